/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names of nodes in the text format. Nodes may be ordered after nodes that come later, so orders
 * are noted by name and applied at the end of a rank.
 */
#include "runtime/format/text_reader.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *weft__text_copy_token(struct weft__text_reader *r, const struct weft__token *token)
{
    if (weft__grow((void **)&r->name, &r->name_capacity, token->length + 1, 1)) {
        weft__error_memory("a name");
        return NULL;
    }
    memcpy(r->name, token->text, token->length);
    r->name[token->length] = '\0';
    return r->name;
}

const char *weft__text_copy_string(struct weft__text_reader *r, const struct weft__token *token)
{
    size_t length = 0;

    if (!weft__text_copy_token(r, token))
        return NULL;
    for (size_t i = 1; i + 1 < token->length; i++) {
        if (token->text[i] == '\\')
            i++;
        r->name[length++] = token->text[i];
    }
    r->name[length] = '\0';
    return r->name;
}

/* ---- names ---- */

/* 1 if a name is n followed by digits: the node with that index. */
static int is_index(const struct weft__token *token, uint64_t *index)
{
    uint64_t number = 0;

    if (token->length < 2 || token->length > 11 || token->text[0] != 'n')
        return 0;
    for (size_t i = 1; i < token->length; i++) {
        if (token->text[i] < '0' || token->text[i] > '9')
            return 0;
        number = number * 10 + (uint64_t)(token->text[i] - '0');
    }
    *index = number;
    return 1;
}

static int same_name(const struct weft__text_name *a, const struct weft__text_name *b)
{
    if (a->token.length != b->token.length || a->indexes != b->indexes ||
        memcmp(a->token.text, b->token.text, a->token.length) != 0)
        return 0;
    for (int i = 0; i < a->indexes; i++)
        if (a->index[i] != b->index[i])
            return 0;
    return 1;
}

static uint64_t hash_name(const struct weft__text_name *name)
{
    uint64_t hash = weft__hash_bytes(WEFT__HASH_EMPTY, name->token.text, name->token.length);

    for (int i = 0; i < name->indexes; i++)
        hash = weft__hash_word(hash, (uint64_t)name->index[i]);
    return hash;
}

/* The node of a name, or -1. */
static weft_node_t find_name(const struct weft__text_reader *r, const struct weft__text_name *name)
{
    uint64_t hash = hash_name(name);
    size_t at;

    for (uint32_t n = weft__table_first(&r->id_table, hash, &at); n != WEFT__TABLE_END;
         n = weft__table_next(&r->id_table, hash, &at))
        if (same_name(&r->ids[n].name, name))
            return r->ids[n].node;
    return -1;
}

int weft__text_read_name(struct weft__text_reader *r, struct weft__text_name *name)
{
    int status;

    *name = (struct weft__text_name){.token = r->token};
    if (r->token.kind != WEFT__TOKEN_NAME)
        return weft__text_expected(r, "the name of a node");
    weft__text_take(r);
    if (!weft__text_take_if(r, WEFT__TOKEN_OPEN))
        return WEFT_OK;
    do {
        if (name->indexes == WEFT__TEXT_INDEXES)
            return weft__text_expected(r, "at most 3 indexes");
        if ((status = weft__text_read_expression(r, &name->index[name->indexes++])))
            return status;
    } while (weft__text_take_if(r, WEFT__TOKEN_COMMA));
    return weft__text_take_kind(r, WEFT__TOKEN_CLOSE, "`]`");
}

/* As it is written, with its indexes worked out. */
static const char *copy_name(struct weft__text_reader *r, const struct weft__text_name *name)
{
    size_t length = name->token.length;

    if (weft__grow((void **)&r->name, &r->name_capacity, length + WEFT__TEXT_INDEXES * 22 + 2, 1)) {
        weft__error_memory("a name");
        return NULL;
    }
    memcpy(r->name, name->token.text, length);
    for (int i = 0; i < name->indexes; i++)
        length += (size_t)snprintf(r->name + length, r->name_capacity - length, "%c%" PRId64,
                                   i ? ',' : '[', name->index[i]);
    if (name->indexes)
        r->name[length++] = ']';
    r->name[length] = '\0';
    return r->name;
}

int weft__text_wrong_name(struct weft__text_reader *r, const struct weft__text_name *name,
                          const char *expected)
{
    const char *text;

    if (!name->indexes)
        return weft__lex_error(&name->token, expected);
    text = copy_name(r, name);
    if (!text)
        return WEFT_ERR_MEMORY;
    return weft__error(WEFT_ERR_FORMAT, "line %zu, column %zu: found `%.80s`, expected %s",
                       name->token.line, name->token.column, text, expected);
}

int weft__text_name_node(struct weft__text_reader *r, const struct weft__text_name *name,
                         weft_node_t node)
{
    uint64_t index;
    char what[64];
    const char *label;

    if (is_index(&name->token, &index)) {
        if (index == (uint64_t)node && !name->indexes)
            return WEFT_OK;
        snprintf(what, sizeof what, "`n%d` or a name of another form", (int)node);
        return weft__lex_error(&name->token, what);
    }
    if (weft__text_is_word(&name->token, "any"))
        return weft__lex_error(&name->token, "a name other than the word of `after any`");
    if (find_name(r, name) >= 0)
        return weft__text_wrong_name(r, name, "a name that no other node of the rank has");
    if (weft__grow((void **)&r->ids, &r->id_capacity, r->id_count + 1, sizeof *r->ids) ||
        weft__table_add(&r->id_table, hash_name(name), (uint32_t)r->id_count))
        return weft__error_memory("the names of nodes");
    r->ids[r->id_count++] = (struct weft__text_id){*name, node};
    label = copy_name(r, name);
    return label ? weft__text_built(&name->token, weft_schedule_set_label(r->schedule, node, label))
                 : WEFT_ERR_MEMORY;
}

weft_node_t weft__text_find_node(const struct weft__text_reader *r,
                                 const struct weft__text_name *name)
{
    size_t nodes = weft_schedule_node_count(r->schedule);
    uint64_t index;

    if (is_index(&name->token, &index))
        return index < nodes && !name->indexes ? (weft_node_t)index : -1;
    return find_name(r, name);
}

int weft__text_apply_orders(struct weft__text_reader *r)
{
    r->touched = 0;
    for (size_t i = 0; i < r->order_count; i++) {
        const struct weft__text_name *before = &r->orders[i].before;
        weft_node_t node = weft__text_find_node(r, before);
        int status;

        if (node < 0)
            return weft__text_wrong_name(r, before, "the name of a node of this rank");
        status = weft__schedule_link(r->schedule, node, r->orders[i].after, __func__);
        if (status)
            return weft__text_built(&before->token, status);
    }
    return WEFT_OK;
}
