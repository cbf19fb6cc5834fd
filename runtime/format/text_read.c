/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The text format, read: recursive descent with one token of look-ahead; docs/format.md has the
 * grammar. A statement is a line. What is allocated is in proportion to what has been read, and
 * what is read again and again (text_block.c) is limited.
 */
#include "runtime/format/text_reader.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

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
        if ((status = weft__text_read_name(r, &name)))
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
    size_t line;

    if (named) {
        if ((status = weft__text_read_name(r, &name)))
            return status;
        label = r->token;
        weft__text_take_if(r, WEFT__TOKEN_STRING);
        if ((status = weft__text_take_kind(r, WEFT__TOKEN_COLON, "`:`")))
            return status;
    }
    line = r->token.line;
    node = weft__text_read_kind(r);
    if (node < 0)
        return node;
    if ((status = weft__schedule_set_line(r->schedule, line)))
        return status;
    if (named && (status = weft__text_name_node(r, &name, node)))
        return status;
    if (label.kind == WEFT__TOKEN_STRING) {
        const char *text = weft__text_copy_string(r, &label);

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

    if ((status = weft__text_read_name(r, &name)))
        return status;
    node = weft__text_find_node(r, &name);
    if (node < 0)
        return weft__text_wrong_name(r, &name, "the name of a node above");
    if (!weft__text_is_word(&r->token, "after"))
        return weft__text_expected(r, "`after`");
    return read_after(r, node);
}

/* After input, output, inout, scratch: NAME DTYPE COUNT [on device] */
static int read_buffer(struct weft__text_reader *r, weft_slot_kind_t kind)
{
    struct weft__token name = r->token;
    weft_dtype_t dtype = WEFT_DTYPE_COUNT;
    const char *text;
    uint64_t count = 0;
    int status;

    if ((status = weft__text_take_kind(r, WEFT__TOKEN_NAME, "a name for the slot")))
        return status;
    if ((status = weft__text_read_dtype(r, &dtype)))
        return status;
    if ((status = weft__text_take_number(r, PTRDIFF_MAX, &count)))
        return status;
    text = weft__text_copy_token(r, &name);
    if (!text)
        return WEFT_ERR_MEMORY;
    status = weft__text_built(
        &name, weft_schedule_add_slot(r->schedule, text, dtype, (size_t)count, kind));
    if (status < 0 || !weft__text_take_if_word(r, "on"))
        return status < 0 ? status : WEFT_OK;
    if (!weft__text_take_if_word(r, "device"))
        return weft__text_expected(r, "`device`");
    return weft_schedule_set_memory(r->schedule, status, WEFT_MEMORY_DEVICE);
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
    text = weft__text_copy_token(r, &name);
    if (!text)
        return WEFT_ERR_MEMORY;
    status = weft__text_built(&name, weft_schedule_add_value(r->schedule, text, max));
    return status < 0 ? status : WEFT_OK;
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

    r->touched = 0;
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
        return weft__text_read_result(r);
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
static int read_rank(struct weft__text_reader *r, const struct weft__token *at,
                     const struct weft__token *open, int rank)
{
    struct weft__document *document = r->document;
    size_t variables = r->variable_count;
    int status;

    if (document->count && rank <= weft_schedule_rank(document->schedules[document->count - 1]))
        return weft__lex_error(at, "ranks in ascending order");
    if ((status = weft__text_built(at, weft__document_rank(document, rank))) ||
        (status = weft__text_define(
             r, &(struct weft__text_variable){
                    .text = "rank", .length = 4, .value = rank, .role = WEFT__TEXT_RANK})))
        return status;
    if (r->repeating)
        r->repeated += sizeof(struct weft_schedule);
    r->schedule = document->schedules[document->count - 1];
    r->order_count = 0;
    r->id_count = 0;
    weft__table_free(&r->id_table); /* a large one would have to be emptied for every rank */
    if ((status = weft__text_read_body(r, open)) || (status = weft__text_apply_orders(r)))
        return status;
    r->variable_count = variables;
    return weft__text_built(at, weft__document_choose(document));
}

/* After `ranks`: (all | FIRST..LAST) { statements } */
static int read_ranks(struct weft__text_reader *r)
{
    const struct weft__token at = r->token;
    struct weft__token open;
    struct weft__text_place begin;
    struct weft__progress progress;
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
    if ((status = weft__text_open(r, &open)))
        return status;
    if (end < (int64_t)first)
        return weft__text_skip_body(r, &open);
    begin = weft__text_place(r);
    r->repeating++;
    weft__text_begin_progress(r, &progress, (uint64_t)end - first + 1);
    for (int rank = (int)first;; rank++) {
        if ((status = read_rank(r, &at, &open, rank)) || (status = weft__text_check_repeated(r)) ||
            (status = weft__text_check_progress(r, &progress, &open)))
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
    struct weft__token at, open;
    uint64_t rank = 0;
    int status;

    r->touched = 0;
    if (weft__text_take_if_word(r, "let"))
        return weft__text_read_let(r);
    if (weft__text_is_word(&r->token, "param"))
        return weft__text_expected(r, "parameters to be declared above the ranks");
    if (weft__text_take_if_word(r, "ranks"))
        return read_ranks(r);
    if ((status = weft__text_take_word(r, "rank")))
        return status;
    at = r->token;
    if ((status = weft__text_take_number(r, (uint64_t)r->document->size - 1, &rank)) ||
        (status = weft__text_open(r, &open)))
        return status;
    return read_rank(r, &at, &open, (int)rank);
}

/* size (N | any). For a list of parameters any will do. */
static int read_size(struct weft__text_reader *r)
{
    struct weft__document *document = r->document;
    uint64_t size = 0;
    int status;

    if ((status = weft__text_take_word(r, "size")))
        return status;
    if (weft__text_is_word(&r->token, "any")) {
        if (!document->size && !r->listing)
            return weft__text_expected(r, "a number, for the reader was not told the size");
        weft__text_take(r);
        return WEFT_OK;
    }
    if (r->listing) {
        int64_t unknown = 0;

        document->size = 1;
        return weft__text_read_expression(r, &unknown);
    }
    if (r->token.kind == WEFT__TOKEN_NUMBER && r->token.number == 0)
        return weft__text_expected(r, "at least 1");
    if ((status = weft__text_take_number(r, INT_MAX, &size)))
        return status;
    if (!size)
        return weft__error(WEFT_ERR_FORMAT, "line %zu: the size is 0, expected at least 1",
                           r->token.line);
    document->size = (int)size;
    return WEFT_OK;
}

/* {param ...}; with `lets` also {let ...}. */
static int read_declarations(struct weft__text_reader *r, int lets)
{
    int status = WEFT_OK;

    for (;;) {
        r->touched = 0;
        if (weft__text_take_if_word(r, "param"))
            status = weft__text_read_param(r);
        else if (lets && weft__text_take_if_word(r, "let"))
            status = weft__text_read_let(r);
        else
            return WEFT_OK;
        if (status || (status = weft__text_end_line(r)))
            return status;
    }
}

/* Up to the first rank. */
static int read_head(struct weft__text_reader *r)
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
        (status = read_declarations(r, 0)) || (status = weft__text_take_word(r, "schedule")))
        return status;
    name = r->token;
    if ((status = weft__text_take_kind(r, WEFT__TOKEN_STRING, "the name in quotes")) ||
        (status = read_size(r)) || (status = weft__text_end_line(r)))
        return status;
    text = weft__text_copy_string(r, &name);
    if (!text || !(document->name = weft__strdup(text)))
        return weft__error_memory("the name of a schedule");
    status = weft__text_define(
        r, &(struct weft__text_variable){.text = "size", .length = 4, .value = document->size});
    return status ? status : read_declarations(r, 1);
}

static int read_document(struct weft__text_reader *r)
{
    int status = read_head(r);

    if (status || (status = weft__text_check_given(r)))
        return status;
    do {
        if ((status = read_part(r)) || (status = weft__text_end_line(r)))
            return status;
    } while (r->token.kind != WEFT__TOKEN_END || !r->document->count);
    return WEFT_OK;
}

static void begin(struct weft__text_reader *r, struct weft__document *document)
{
    const char *text = document->text;

    *r = (struct weft__text_reader){.document = document};
    r->lexer = (struct weft__lexer){
        .at = text, .end = text + document->length, .line_start = text, .line = 1};
    r->token = weft__lex(&r->lexer);
}

static int finish(struct weft__text_reader *r, int status)
{
    if (status == WEFT_ERR_FORMAT)
        weft__text_tell_place(r);
    weft__free(r->orders);
    weft__free(r->ids);
    weft__table_free(&r->id_table);
    weft__free(r->arguments);
    weft__free(r->name);
    weft__free(r->variables);
    return status;
}

int weft__read_text(struct weft__document *document)
{
    struct weft__text_reader r;

    begin(&r, document);
    return finish(&r, read_document(&r));
}

int weft__read_text_parameters(struct weft__document *document, struct weft_parameter **parameters,
                               size_t *count)
{
    struct weft__text_reader r;
    int status;

    begin(&r, document);
    r.listing = 1;
    r.idle = 1; /* what values they have does not matter */
    status = read_head(&r);
    if (!status)
        status = weft__text_list(&r, parameters, count);
    return finish(&r, status);
}
