/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The text format, read: recursive descent with one token of look-ahead; docs/format.md has the
 * grammar. A statement is a line. Nodes may be ordered after nodes that come later, so orders are
 * noted and applied at the end of a rank. What is allocated is in proportion to what has been read.
 */
#include "runtime/text_reader.h"

#include "runtime/alloc.h"
#include "runtime/error.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The token at hand, terminated; NULL without memory. Valid until the next call. */
static const char *copy_token(struct weft__text_reader *r, const struct weft__token *token)
{
    if (weft__grow((void **)&r->name, &r->name_capacity, token->length + 1, 1)) {
        weft__error_memory("a name");
        return NULL;
    }
    memcpy(r->name, token->text, token->length);
    r->name[token->length] = '\0';
    return r->name;
}

/* A string without its quotes and backslashes, copied as copy_token() does. */
static const char *copy_string(struct weft__text_reader *r, const struct weft__token *token)
{
    size_t length = 0;

    if (!copy_token(r, token))
        return NULL;
    for (size_t i = 1; i + 1 < token->length; i++) {
        if (token->text[i] == '\\')
            i++;
        r->name[length++] = token->text[i];
    }
    r->name[length] = '\0';
    return r->name;
}

/* ---- names of nodes ---- */

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

/* The place of a name in the table: its own, or an empty one. */
static struct weft__text_id *id_place(struct weft__text_id *ids, size_t capacity, const char *text,
                                      size_t length)
{
    size_t at = weft__name_hash(text, length) & (capacity - 1);

    while (ids[at].length && (ids[at].length != length || memcmp(ids[at].text, text, length) != 0))
        at = (at + 1) & (capacity - 1);
    return &ids[at];
}

static int grow_ids(struct weft__text_reader *r)
{
    size_t capacity = r->id_capacity ? r->id_capacity * 2 : 16;
    struct weft__text_id *ids;

    if ((r->id_count + 1) * 2 <= r->id_capacity)
        return WEFT_OK;
    ids = weft__calloc(capacity, sizeof *ids);
    if (!ids)
        return weft__error_memory("the names of nodes");
    for (size_t i = 0; i < r->id_capacity; i++)
        if (r->ids[i].length)
            *id_place(ids, capacity, r->ids[i].text, r->ids[i].length) = r->ids[i];
    weft__free(r->ids);
    r->ids = ids;
    r->id_capacity = capacity;
    return WEFT_OK;
}

/* Gives a node its name: nothing to do for n<index>; otherwise it is also its label. */
static int name_node(struct weft__text_reader *r, const struct weft__token *id, weft_node_t node)
{
    uint64_t index;
    char what[64];
    struct weft__text_id *place;
    const char *label;

    if (is_index(id, &index)) {
        if (index == (uint64_t)node)
            return WEFT_OK;
        snprintf(what, sizeof what, "`n%d` or a name of another form", (int)node);
        return weft__lex_error(id, what);
    }
    if (weft__text_is_word(id, "any"))
        return weft__lex_error(id, "a name other than the word of `after any`");
    if (grow_ids(r))
        return WEFT_ERR_MEMORY;
    place = id_place(r->ids, r->id_capacity, id->text, id->length);
    if (place->length)
        return weft__lex_error(id, "a name that no other node of the rank has");
    *place = (struct weft__text_id){id->text, id->length, node};
    r->id_count++;
    label = copy_token(r, id);
    return label ? weft__text_built(id, weft_schedule_label(r->schedule, node, label))
                 : WEFT_ERR_MEMORY;
}

static int apply_orders(struct weft__text_reader *r)
{
    size_t nodes = weft_schedule_node_count(r->schedule);

    for (size_t i = 0; i < r->order_count; i++) {
        const struct weft__token *before = &r->orders[i].before;
        const struct weft__text_id *place = NULL;
        uint64_t index;
        int status;

        if (!is_index(before, &index)) {
            if (r->id_count)
                place = id_place(r->ids, r->id_capacity, before->text, before->length);
            index = place && place->length ? (uint64_t)place->node : nodes;
        }
        if (index >= nodes)
            return weft__lex_error(before, "the name of a node of this rank");
        status = weft_schedule_order(r->schedule, (weft_node_t)index, r->orders[i].after);
        if (status)
            return weft__text_built(before, status);
    }
    return WEFT_OK;
}

/* ---- statements ---- */

/* [after [any] NODE {, NODE}] */
static int read_after(struct weft__text_reader *r, weft_node_t node)
{
    int status;

    if (!weft__text_take_if_word(r, "after"))
        return WEFT_OK;
    if (weft__text_take_if_word(r, "any")) {
        if ((status = weft__text_built(&r->token, weft_schedule_any(r->schedule, node))))
            return status;
        if (r->token.kind != WEFT__TOKEN_NAME)
            return WEFT_OK;
    }
    do {
        while (weft__text_take_if(r, WEFT__TOKEN_NEWLINE))
            ;
        if (r->token.kind != WEFT__TOKEN_NAME)
            return weft__text_expected(r, "the name of a node");
        if (weft__grow((void **)&r->orders, &r->order_capacity, r->order_count + 1,
                       sizeof *r->orders))
            return weft__error_memory("the orders of a schedule");
        r->orders[r->order_count++] = (struct weft__text_order){r->token, node};
        weft__text_take(r);
    } while (weft__text_take_if(r, WEFT__TOKEN_COMMA));
    return WEFT_OK;
}

/* [NAME ["label"] :] KIND ... [after ...] */
static int read_node(struct weft__text_reader *r)
{
    struct weft__lexer ahead = r->lexer;
    struct weft__token id = r->token, label = weft__lex(&ahead);
    int named = label.kind == WEFT__TOKEN_COLON || label.kind == WEFT__TOKEN_STRING;
    weft_node_t node;
    int status;

    if (named) {
        weft__text_take(r);
        if (weft__text_take_if(r, WEFT__TOKEN_STRING) && r->token.kind != WEFT__TOKEN_COLON)
            return weft__text_expected(r, "`:`");
        weft__text_take(r);
    }
    node = weft__text_read_kind(r);
    if (node < 0)
        return node;
    if (named && (status = name_node(r, &id, node)))
        return status;
    if (named && label.kind == WEFT__TOKEN_STRING) {
        const char *text = copy_string(r, &label);

        if (!text)
            return WEFT_ERR_MEMORY;
        if ((status = weft__text_built(&label, weft_schedule_label(r->schedule, node, text))))
            return status;
    }
    return read_after(r, node);
}

/* After input, output, inout, scratch: NAME DTYPE COUNT */
static int read_buffer(struct weft__text_reader *r, weft_buffer_kind_t kind)
{
    struct weft__token name = r->token;
    weft_dtype_t dtype = WEFT_DTYPE_COUNT;
    char what[128] = "one of ";
    const char *text;
    uint64_t count = 0;
    int status;

    if ((status = weft__text_take_kind(r, WEFT__TOKEN_NAME, "a name for the slot")))
        return status;
    for (int known = 0; known < WEFT_DTYPE_COUNT; known++)
        if (weft__text_is_word(&r->token, weft_dtype_name((weft_dtype_t)known)))
            dtype = (weft_dtype_t)known;
    if (dtype == WEFT_DTYPE_COUNT) {
        weft__dtype_names(what + strlen(what), sizeof what - strlen(what));
        return weft__text_expected(r, what);
    }
    weft__text_take(r);
    if ((status = weft__text_take_number(r, PTRDIFF_MAX, &count)))
        return status;
    text = copy_token(r, &name);
    if (!text)
        return WEFT_ERR_MEMORY;
    status = weft__text_built(&name,
                              weft_schedule_buffer(r->schedule, text, dtype, (size_t)count, kind));
    return status < 0 ? status : WEFT_OK;
}

/* value NAME [max N] */
static int read_value(struct weft__text_reader *r)
{
    struct weft__token name = r->token;
    uint64_t max = UINT64_MAX;
    const char *text;
    int status;

    if ((status = weft__text_take_kind(r, WEFT__TOKEN_NAME, "a name for the value")) ||
        (status = weft__text_read_option(r, "max", UINT64_MAX, &max)))
        return status;
    text = copy_token(r, &name);
    if (!text)
        return WEFT_ERR_MEMORY;
    status = weft__text_built(&name, weft_schedule_value(r->schedule, text, max));
    return status < 0 ? status : WEFT_OK;
}

/* NAME[begin:end] of other ranks, as long as result->dst. */
static int read_source(struct weft__text_reader *r, struct weft_result *result)
{
    uint64_t begin = 0;
    char what[64];
    int status;

    result->from = r->token.kind == WEFT__TOKEN_NAME ? copy_token(r, &r->token) : "";
    if (!result->from)
        return WEFT_ERR_MEMORY;
    if ((status = weft__text_take_kind(r, WEFT__TOKEN_NAME, "the name of a slot")))
        return status;
    if (weft__text_take_if(r, WEFT__TOKEN_OPEN)) {
        uint64_t end;

        if ((status = weft__text_take_number(r, PTRDIFF_MAX - result->dst.count, &begin)) ||
            (status = weft__text_take_kind(r, WEFT__TOKEN_COLON, "`:`")))
            return status;
        end = begin + result->dst.count;
        if (r->token.kind == WEFT__TOKEN_NUMBER && r->token.number != end) {
            snprintf(what, sizeof what, "%llu, for a range as long as the result",
                     (unsigned long long)end);
            return weft__text_expected(r, what);
        }
        weft__text_take_if(r, WEFT__TOKEN_NUMBER);
        if ((status = weft__text_take_kind(r, WEFT__TOKEN_CLOSE, "`]`")))
            return status;
    }
    result->offset = (size_t)begin;
    return WEFT_OK;
}

/* result REGION = [OP of] SOURCE from (rank N | ranks N..M) */
static int read_result(struct weft__text_reader *r)
{
    const struct weft__token at = r->token;
    struct weft_result result = {.ranks = 1};
    struct weft__lexer ahead;
    struct weft__token next;
    uint64_t first = 0, last = 0;
    int status, size = weft_schedule_size(r->schedule);

    if ((status = weft__text_read_region(r, &result.dst)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_EQUALS, "`=`")))
        return status;
    ahead = r->lexer;
    next = weft__lex(&ahead);
    if (weft__text_is_word(&next, "of") &&
        ((status = weft__text_read_op(r, &result.op)) || (status = weft__text_take_word(r, "of"))))
        return status;
    if ((status = read_source(r, &result)) || (status = weft__text_take_word(r, "from")))
        return status;
    if (weft__text_take_if_word(r, "rank")) {
        status = weft__text_take_number(r, (uint64_t)size - 1, &first);
        last = first;
    } else if (weft__text_take_if_word(r, "ranks")) {
        if (!(status = weft__text_take_number(r, (uint64_t)size - 1, &first)) &&
            !(status = weft__text_take_kind(r, WEFT__TOKEN_DOTS, "`..`")))
            status = weft__text_take_number(r, (uint64_t)size - 1, &last);
        if (!status && last < first)
            return weft__lex_error(&at, "ranks in ascending order");
    } else {
        status = weft__text_expected(r, "`rank` or `ranks`");
    }
    if (status)
        return status;
    result.first = (int)first;
    result.ranks = (int)(last - first) + 1;
    return weft__text_built(&at, weft_schedule_result(r->schedule, &result));
}

static int read_statement(struct weft__text_reader *r)
{
    static const char *const kinds[] = {
        [WEFT_BUFFER_INPUT] = "input",
        [WEFT_BUFFER_OUTPUT] = "output",
        [WEFT_BUFFER_INOUT] = "inout",
        [WEFT_BUFFER_SCRATCH] = "scratch",
    };
    struct weft__lexer ahead = r->lexer;
    enum weft__token_kind next = weft__lex(&ahead).kind;

    /* A word before a colon or a label is the name of a node, whatever it is. */
    if (next == WEFT__TOKEN_COLON || next == WEFT__TOKEN_STRING)
        return read_node(r);
    for (int kind = WEFT_BUFFER_INPUT; kind <= WEFT_BUFFER_SCRATCH; kind++)
        if (weft__text_take_if_word(r, kinds[kind]))
            return read_buffer(r, (weft_buffer_kind_t)kind);
    if (weft__text_take_if_word(r, "value"))
        return read_value(r);
    if (weft__text_take_if_word(r, "result"))
        return read_result(r);
    return read_node(r);
}

static void skip_lines(struct weft__text_reader *r)
{
    while (weft__text_take_if(r, WEFT__TOKEN_NEWLINE))
        ;
}

/* The end of a line, or of the document. */
static int end_line(struct weft__text_reader *r)
{
    if (r->token.kind != WEFT__TOKEN_NEWLINE && r->token.kind != WEFT__TOKEN_END)
        return weft__text_expected(r, "the end of the line");
    skip_lines(r);
    return WEFT_OK;
}

/* rank N { statements } */
static int read_rank(struct weft__text_reader *r)
{
    struct weft__document *document = r->document;
    struct weft__token at;
    uint64_t rank = 0;
    int status;

    if ((status = weft__text_take_word(r, "rank")))
        return status;
    at = r->token;
    if ((status = weft__text_take_number(r, (uint64_t)document->size - 1, &rank)))
        return status;
    if (document->count &&
        (int)rank <= weft_schedule_rank(document->schedules[document->count - 1]))
        return weft__lex_error(&at, "ranks in ascending order");
    if ((status = weft__text_take_kind(r, WEFT__TOKEN_BEGIN, "`{`")) || (status = end_line(r)) ||
        (status = weft__text_built(&at, weft__document_rank(document, (int)rank))))
        return status;
    r->schedule = document->schedules[document->count - 1];
    r->order_count = 0;
    r->id_count = 0;
    weft__free(r->ids);
    r->ids = NULL;
    r->id_capacity = 0;
    while (!weft__text_take_if(r, WEFT__TOKEN_FINISH)) {
        if (r->token.kind == WEFT__TOKEN_END)
            return weft__text_expected(r, "a statement or `}`");
        if ((status = read_statement(r)) || (status = end_line(r)))
            return status;
    }
    if ((status = apply_orders(r)) ||
        (status = weft__text_built(&at, weft__document_choose(document))))
        return status;
    return end_line(r);
}

static int read_document(struct weft__text_reader *r)
{
    struct weft__document *document = r->document;
    struct weft__token name;
    uint64_t version, size = 0;
    const char *text;
    int status;

    skip_lines(r);
    if ((status = weft__text_take_word(r, "weft")))
        return status;
    if (r->token.kind != WEFT__TOKEN_NUMBER || r->token.number != 1)
        return weft__text_expected(r, "1, the version of the format");
    if ((status = weft__text_take_number(r, 1, &version)) || (status = end_line(r)) ||
        (status = weft__text_take_word(r, "schedule")))
        return status;
    name = r->token;
    if ((status = weft__text_take_kind(r, WEFT__TOKEN_STRING, "the name in quotes")) ||
        (status = weft__text_take_word(r, "size")))
        return status;
    if (r->token.kind == WEFT__TOKEN_NUMBER && r->token.number == 0)
        return weft__text_expected(r, "at least 1");
    if ((status = weft__text_take_number(r, INT_MAX, &size)) || (status = end_line(r)))
        return status;
    document->size = (int)size;
    text = copy_string(r, &name);
    if (!text || !(document->name = weft__strdup(text)))
        return weft__error_memory("the name of a schedule");
    do {
        if ((status = read_rank(r)))
            return status;
    } while (r->token.kind != WEFT__TOKEN_END);
    return WEFT_OK;
}

int weft__read_text(struct weft__document *document)
{
    struct weft__text_reader r = {.document = document};
    int status;

    r.lexer = (struct weft__lexer){
        .at = document->text, .end = document->text + document->length, .line = 1};
    r.lexer.line_start = r.lexer.at;
    weft__text_take(&r);
    status = read_document(&r);
    weft__free(r.orders);
    weft__free(r.ids);
    weft__free(r.regions);
    weft__free(r.name);
    return status;
}
