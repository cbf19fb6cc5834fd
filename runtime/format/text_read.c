/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The text format, read: recursive descent with one token of look-ahead; docs/format.md has the
 * grammar. A statement is a line. Nodes may be ordered after nodes that come later, so orders are
 * noted and applied at the end of a rank. What is allocated is in proportion to what has been read,
 * and what is read again and again (text_block.c) is limited.
 */
#include "runtime/format/text_reader.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <inttypes.h>
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

static size_t hash_name(const struct weft__text_name *name)
{
    uint64_t hash = weft__name_hash(name->token.text, name->token.length);

    for (int i = 0; i < name->indexes; i++)
        hash = (hash ^ (uint64_t)name->index[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash ^ hash >> 32);
}

/* The place of a name in the table: its own, or an empty one. */
static struct weft__text_id *id_place(struct weft__text_id *ids, size_t capacity,
                                      const struct weft__text_name *name)
{
    size_t at = hash_name(name) & (capacity - 1);

    while (ids[at].name.token.length && !same_name(&ids[at].name, name))
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
        if (r->ids[i].name.token.length)
            *id_place(ids, capacity, &r->ids[i].name) = r->ids[i];
    weft__free(r->ids);
    r->ids = ids;
    r->id_capacity = capacity;
    return WEFT_OK;
}

/* NAME or NAME[EXPRESSION, ...] of a node. */
static int read_name(struct weft__text_reader *r, struct weft__text_name *name)
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

/* Gives a node its name: nothing to do for n<index>; otherwise it is also its label. */
static int name_node(struct weft__text_reader *r, const struct weft__text_name *name,
                     weft_node_t node)
{
    uint64_t index;
    char what[64];
    struct weft__text_id *place;
    const char *label;

    if (is_index(&name->token, &index)) {
        if (index == (uint64_t)node && !name->indexes)
            return WEFT_OK;
        snprintf(what, sizeof what, "`n%d` or a name of another form", (int)node);
        return weft__lex_error(&name->token, what);
    }
    if (weft__text_is_word(&name->token, "any"))
        return weft__lex_error(&name->token, "a name other than the word of `after any`");
    if (grow_ids(r))
        return WEFT_ERR_MEMORY;
    place = id_place(r->ids, r->id_capacity, name);
    if (place->name.token.length)
        return weft__lex_error(&name->token, "a name that no other node of the rank has");
    *place = (struct weft__text_id){*name, node};
    r->id_count++;
    label = copy_name(r, name);
    return label ? weft__text_built(&name->token, weft_schedule_set_label(r->schedule, node, label))
                 : WEFT_ERR_MEMORY;
}

/* The node with a name, of those read so far; -1 if there is none. */
static weft_node_t find_node(const struct weft__text_reader *r, const struct weft__text_name *name)
{
    size_t nodes = weft_schedule_node_count(r->schedule);
    const struct weft__text_id *place;
    uint64_t index;

    if (is_index(&name->token, &index))
        return index < nodes && !name->indexes ? (weft_node_t)index : -1;
    place = r->id_count ? id_place(r->ids, r->id_capacity, name) : NULL;
    return place && place->name.token.length ? place->node : -1;
}

static int apply_orders(struct weft__text_reader *r)
{
    for (size_t i = 0; i < r->order_count; i++) {
        const struct weft__text_name *before = &r->orders[i].before;
        weft_node_t node = find_node(r, before);
        int status;

        if (node < 0)
            return weft__lex_error(&before->token, "the name of a node of this rank");
        status =
            weft__schedule_link(r->schedule, node, r->orders[i].after, "weft_schedule_add_order");
        if (status)
            return weft__text_built(&before->token, status);
    }
    return WEFT_OK;
}

/* ---- statements ---- */

/* [after [any] NODE {, NODE}] */
static int read_after(struct weft__text_reader *r, weft_node_t node)
{
    struct weft__text_name name;
    int status;

    if (!weft__text_take_if_word(r, "after"))
        return WEFT_OK;
    if (weft__text_take_if_word(r, "any")) {
        if ((status = weft__text_built(&r->token, weft_schedule_set_any(r->schedule, node))))
            return status;
        if (r->token.kind != WEFT__TOKEN_NAME)
            return WEFT_OK;
    }
    do {
        weft__text_skip_lines(r);
        if ((status = read_name(r, &name)))
            return status;
        if (weft__grow((void **)&r->orders, &r->order_capacity, r->order_count + 1,
                       sizeof *r->orders))
            return weft__error_memory("the orders of a schedule");
        r->orders[r->order_count++] = (struct weft__text_order){name, node};
    } while (weft__text_take_if(r, WEFT__TOKEN_COMMA));
    return WEFT_OK;
}

/* Whether a statement begins with the name of its node: a colon, a label or an index follows. */
static int is_named(const struct weft__text_reader *r)
{
    struct weft__lexer ahead = r->lexer;
    enum weft__token_kind next = weft__lex(&ahead).kind;

    return r->token.kind == WEFT__TOKEN_NAME &&
           (next == WEFT__TOKEN_COLON || next == WEFT__TOKEN_STRING || next == WEFT__TOKEN_OPEN);
}

/* [NAME ["label"] :] KIND ... [after ...] */
static int read_node(struct weft__text_reader *r)
{
    int named = is_named(r), status;
    struct weft__text_name name = {.indexes = 0};
    struct weft__token label = {.kind = WEFT__TOKEN_BAD};
    weft_node_t node;

    if (named) {
        if ((status = read_name(r, &name)))
            return status;
        label = r->token;
        weft__text_take_if(r, WEFT__TOKEN_STRING);
        if ((status = weft__text_take_kind(r, WEFT__TOKEN_COLON, "`:`")))
            return status;
    }
    node = weft__text_read_kind(r);
    if (node < 0)
        return node;
    if (named && (status = name_node(r, &name, node)))
        return status;
    if (label.kind == WEFT__TOKEN_STRING) {
        const char *text = copy_string(r, &label);

        if (!text)
            return WEFT_ERR_MEMORY;
        if ((status = weft__text_built(&label, weft_schedule_set_label(r->schedule, node, text))))
            return status;
    }
    return read_after(r, node);
}

/* order NODE after ... */
static int read_order(struct weft__text_reader *r)
{
    struct weft__text_name name;
    weft_node_t node;
    int status;

    if ((status = read_name(r, &name)))
        return status;
    node = find_node(r, &name);
    if (node < 0)
        return weft__lex_error(&name.token, "the name of a node above");
    if (!weft__text_is_word(&r->token, "after"))
        return weft__text_expected(r, "`after`");
    return read_after(r, node);
}

/* After input, output, inout, scratch: NAME DTYPE COUNT */
static int read_buffer(struct weft__text_reader *r, weft_slot_kind_t kind)
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
    status = weft__text_built(
        &name, weft_schedule_add_slot(r->schedule, text, dtype, (size_t)count, kind));
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
    status = weft__text_built(&name, weft_schedule_add_value(r->schedule, text, max));
    return status < 0 ? status : WEFT_OK;
}

/* [EXPRESSION], which must be `end`. */
static int read_source_end(struct weft__text_reader *r, uint64_t end)
{
    const struct weft__token at = r->token;
    uint64_t number = 0;
    char what[64];
    int status;

    if (at.kind == WEFT__TOKEN_CLOSE)
        return WEFT_OK;
    if ((status = weft__text_take_number(r, PTRDIFF_MAX, &number)))
        return status;
    if (number == end)
        return WEFT_OK;
    snprintf(what, sizeof what, "%llu, for a range as long as the result", (unsigned long long)end);
    return weft__lex_error(&at, what);
}

/* NAME[begin:end] of other ranks, as long as result->dst. */
static int read_source(struct weft__text_reader *r, struct weft_result *result)
{
    uint64_t begin = 0;
    int status;

    result->from = r->token.kind == WEFT__TOKEN_NAME ? copy_token(r, &r->token) : "";
    if (!result->from)
        return WEFT_ERR_MEMORY;
    if ((status = weft__text_take_kind(r, WEFT__TOKEN_NAME, "the name of a slot")))
        return status;
    if (weft__text_take_if(r, WEFT__TOKEN_OPEN)) {
        if ((status = weft__text_take_number(r, PTRDIFF_MAX - result->dst.count, &begin)) ||
            (status = weft__text_take_kind(r, WEFT__TOKEN_COLON, "`:`")) ||
            (status = read_source_end(r, begin + result->dst.count)))
            return status;
        if ((status = weft__text_take_kind(r, WEFT__TOKEN_CLOSE, "`]`")))
            return status;
    }
    result->offset = (size_t)begin;
    return WEFT_OK;
}

/* After the first of a list of ranks: "N, N, ...". The caller frees result->among. */
static int read_among(struct weft__text_reader *r, uint64_t first, struct weft_result *result)
{
    int size = weft_schedule_size(r->schedule), status;
    size_t capacity = 0, count = 0;
    int *among = NULL;
    uint64_t rank = first;

    do {
        if (count == (size_t)size) {
            status = weft__text_expected(r, "at most as many ranks as the schedule has");
            break;
        }
        if (weft__grow((void **)&among, &capacity, count + 1, sizeof *among)) {
            status = weft__error_memory("a list of ranks");
            break;
        }
        among[count++] = (int)rank;
        status = WEFT_OK;
        if (!weft__text_take_if(r, WEFT__TOKEN_COMMA))
            break;
        status = weft__text_take_number(r, (uint64_t)size - 1, &rank);
    } while (!status);
    result->among = among;
    result->ranks = (int)count;
    return status;
}

/* result REGION = [OP of] SOURCE from (rank N | ranks N..M | ranks N, N ...) */
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
        status = weft__text_take_number(r, (uint64_t)size - 1, &first);
        if (!status && weft__text_take_if(r, WEFT__TOKEN_DOTS)) {
            status = weft__text_take_number(r, (uint64_t)size - 1, &last);
            if (!status && last < first)
                return weft__lex_error(&at, "ranks in ascending order");
        } else if (!status) {
            status = read_among(r, first, &result);
        }
    } else {
        status = weft__text_expected(r, "`rank` or `ranks`");
    }
    if (!status && !result.among) {
        result.first = (int)first;
        result.ranks = (int)(last - first) + 1;
    }
    if (!status)
        status = weft__text_built(&at, weft_schedule_add_result(r->schedule, &result));
    weft__free((void *)result.among);
    return status;
}

int weft__text_read_statement(struct weft__text_reader *r)
{
    static const char *const kinds[] = {
        [WEFT_SLOT_INPUT] = "input",
        [WEFT_SLOT_OUTPUT] = "output",
        [WEFT_SLOT_INOUT] = "inout",
        [WEFT_SLOT_SCRATCH] = "scratch",
    };
    int status;

    /* A word before a colon, a label or an index is the name of a node, whatever it is. */
    if (is_named(r))
        return read_node(r);
    if (weft__text_read_block(r, &status))
        return status;
    for (int kind = WEFT_SLOT_INPUT; kind <= WEFT_SLOT_SCRATCH; kind++)
        if (weft__text_take_if_word(r, kinds[kind]))
            return read_buffer(r, (weft_slot_kind_t)kind);
    if (weft__text_take_if_word(r, "value"))
        return read_value(r);
    if (weft__text_take_if_word(r, "result"))
        return read_result(r);
    if (weft__text_take_if_word(r, "order"))
        return read_order(r);
    return read_node(r);
}

void weft__text_skip_lines(struct weft__text_reader *r)
{
    while (weft__text_take_if(r, WEFT__TOKEN_NEWLINE))
        ;
}

int weft__text_end_line(struct weft__text_reader *r)
{
    if (r->token.kind != WEFT__TOKEN_NEWLINE && r->token.kind != WEFT__TOKEN_END &&
        r->token.kind != WEFT__TOKEN_FINISH)
        return weft__text_expected(r, "the end of the line");
    weft__text_skip_lines(r);
    return WEFT_OK;
}

/* The statements of one rank, from behind `{` up to `}`. */
static int read_rank(struct weft__text_reader *r, const struct weft__token *at, int rank)
{
    struct weft__document *document = r->document;
    size_t variables = r->variable_count;
    int status;

    if (document->count && rank <= weft_schedule_rank(document->schedules[document->count - 1]))
        return weft__lex_error(at, "ranks in ascending order");
    if ((status = weft__text_built(at, weft__document_rank(document, rank))) ||
        (status = weft__text_define(r, "rank", 4, rank)))
        return status;
    if (r->repeating)
        r->repeated += sizeof(struct weft_schedule);
    r->schedule = document->schedules[document->count - 1];
    r->order_count = 0;
    r->id_count = 0;
    weft__free(r->ids);
    r->ids = NULL;
    r->id_capacity = 0;
    if ((status = weft__text_read_body(r)) || (status = apply_orders(r)))
        return status;
    r->variable_count = variables;
    return weft__text_built(at, weft__document_choose(document));
}

/* After `ranks`: (all | FIRST..LAST) { statements } */
static int read_ranks(struct weft__text_reader *r)
{
    const struct weft__token at = r->token;
    struct weft__text_place begin;
    uint64_t last = (uint64_t)r->document->size - 1, first = 0;
    int64_t end = (int64_t)last;
    int status;

    if (!weft__text_take_if_word(r, "all") &&
        ((status = weft__text_take_number(r, last + 1, &first)) ||
         (status = weft__text_take_kind(r, WEFT__TOKEN_DOTS, "`..`")) ||
         (status = weft__text_read_expression(r, &end))))
        return status;
    if (end > (int64_t)last)
        return weft__lex_error(&at, "ranks below the size");
    if ((status = weft__text_take_kind(r, WEFT__TOKEN_BEGIN, "`{`")))
        return status;
    if (end < (int64_t)first)
        return weft__text_skip_body(r);
    begin = weft__text_place(r);
    r->repeating++;
    for (int rank = (int)first;; rank++) {
        if ((status = read_rank(r, &at, rank)) || (status = weft__text_check_repeated(r)))
            return status;
        if (rank == (int)end)
            break;
        weft__text_return(r, &begin);
    }
    r->repeating--;
    return WEFT_OK;
}

/* let NAME = EXPRESSION, rank N { ... } or ranks ... { ... } */
static int read_part(struct weft__text_reader *r)
{
    struct weft__token at;
    uint64_t rank = 0;
    int status;

    if (weft__text_take_if_word(r, "let"))
        return weft__text_read_let(r);
    if (weft__text_take_if_word(r, "ranks"))
        return read_ranks(r);
    if ((status = weft__text_take_word(r, "rank")))
        return status;
    at = r->token;
    if ((status = weft__text_take_number(r, (uint64_t)r->document->size - 1, &rank)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_BEGIN, "`{`")))
        return status;
    return read_rank(r, &at, (int)rank);
}

/* size (N | any) */
static int read_size(struct weft__text_reader *r)
{
    struct weft__document *document = r->document;
    uint64_t size = 0;
    int status;

    if ((status = weft__text_take_word(r, "size")))
        return status;
    if (weft__text_is_word(&r->token, "any")) {
        if (!document->size)
            return weft__text_expected(r, "a number, for the reader was not told the size");
        weft__text_take(r);
        return WEFT_OK;
    }
    if (r->token.kind == WEFT__TOKEN_NUMBER && r->token.number == 0)
        return weft__text_expected(r, "at least 1");
    if ((status = weft__text_take_number(r, INT_MAX, &size)))
        return status;
    document->size = (int)size;
    return WEFT_OK;
}

static int read_document(struct weft__text_reader *r)
{
    struct weft__document *document = r->document;
    struct weft__token name;
    uint64_t version;
    const char *text;
    int status;

    weft__text_skip_lines(r);
    if ((status = weft__text_take_word(r, "weft")))
        return status;
    if (r->token.kind != WEFT__TOKEN_NUMBER || r->token.number != 1)
        return weft__text_expected(r, "1, the version of the format");
    if ((status = weft__text_take_number(r, 1, &version)) || (status = weft__text_end_line(r)) ||
        (status = weft__text_take_word(r, "schedule")))
        return status;
    name = r->token;
    if ((status = weft__text_take_kind(r, WEFT__TOKEN_STRING, "the name in quotes")) ||
        (status = read_size(r)) || (status = weft__text_end_line(r)))
        return status;
    text = copy_string(r, &name);
    if (!text || !(document->name = weft__strdup(text)))
        return weft__error_memory("the name of a schedule");
    if ((status = weft__text_define(r, "size", 4, document->size)))
        return status;
    do {
        if ((status = read_part(r)) || (status = weft__text_end_line(r)))
            return status;
    } while (r->token.kind != WEFT__TOKEN_END || !document->count);
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
    weft__free(r.variables);
    return status;
}
