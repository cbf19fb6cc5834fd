/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What lets one text serve many ranks: `for`, `if` and `let`. A repetition reads the same text
 * again, so a document costs what it would with its repetitions written out; how much that may be
 * is limited.
 */
#include "runtime/format/text_reader.h"

#include "runtime/base/error.h"

struct weft__text_place weft__text_place(const struct weft__text_reader *r)
{
    return (struct weft__text_place){r->lexer, r->token};
}

void weft__text_return(struct weft__text_reader *r, const struct weft__text_place *place)
{
    r->lexer = place->lexer;
    r->token = place->token;
}

int weft__text_check_repeated(const struct weft__text_reader *r)
{
    if (r->repeated <= r->document->most_repeated)
        return WEFT_OK;
    return weft__error(WEFT_ERR_FORMAT,
                       "line %zu: repetitions make more than %zu bytes of text, expected fewer (or "
                       "a larger `most_repeated`)",
                       r->token.line, r->document->most_repeated);
}

static void count_reader(const struct weft__text_reader *r)
{
    r->document->reader_bytes =
        (double)r->order_capacity * sizeof *r->orders + (double)r->id_capacity * sizeof *r->ids;
}

void weft__text_begin_progress(const struct weft__text_reader *r, struct weft__progress *progress,
                               uint64_t total)
{
    count_reader(r);
    weft__progress_begin(progress, r->document, total);
}

int weft__text_check_progress(const struct weft__text_reader *r, struct weft__progress *progress,
                              const struct weft__token *open)
{
    char lack[128];

    count_reader(r);
    if (!weft__document_lacks(r->document, weft__progress_needs(progress, r->document), lack,
                              sizeof lack))
        return WEFT_OK;
    return weft__error(WEFT_ERR_FORMAT, "line %zu: with its repetitions the document needs %s",
                       open->line, lack);
}

int weft__text_open(struct weft__text_reader *r, struct weft__token *open)
{
    *open = r->token;
    return weft__text_take_kind(r, WEFT__TOKEN_BEGIN, "`{`");
}

int weft__text_read_body(struct weft__text_reader *r, const struct weft__token *open)
{
    const struct weft__text_block block = {*open, r->block};
    size_t variables = r->variable_count;
    int status;

    if ((status = weft__text_deeper(r)))
        return status;
    r->block = &block;
    weft__text_skip_lines(r);
    while (r->token.kind != WEFT__TOKEN_FINISH) {
        if (r->token.kind == WEFT__TOKEN_END)
            return weft__text_unclosed(r, open);
        if ((status = weft__text_check_repeated(r)) || (status = weft__text_read_statement(r)) ||
            (status = weft__text_end_line(r)))
            return status;
    }
    weft__text_note_slip(r, open, &r->token);
    weft__text_take(r);
    r->block = block.outer;
    r->variable_count = variables;
    r->depth--;
    return WEFT_OK;
}

int weft__text_skip_body(struct weft__text_reader *r, const struct weft__token *open)
{
    struct weft__token opens[WEFT__TEXT_DEPTH]; /* of blocks within each other, the first of them */
    size_t depth = 0;

    opens[depth++] = *open;
    while (depth) {
        size_t known = depth < WEFT__TEXT_DEPTH ? depth : WEFT__TEXT_DEPTH;

        if (r->token.kind == WEFT__TOKEN_END)
            return weft__text_unclosed(r, &opens[known - 1]);
        if (r->token.kind == WEFT__TOKEN_BEGIN && depth++ < WEFT__TEXT_DEPTH)
            opens[depth - 1] = r->token;
        if (r->token.kind == WEFT__TOKEN_FINISH && depth-- <= WEFT__TEXT_DEPTH)
            weft__text_note_slip(r, &opens[depth], &r->token);
        weft__text_take(r);
    }
    return weft__text_check_repeated(r);
}

int weft__text_take_variable(struct weft__text_reader *r, struct weft__token *name)
{
    size_t length = 0;

    *name = r->token;
    if (name->kind != WEFT__TOKEN_NAME)
        return weft__text_expected(r, "a name");
    if (weft__text_find(r, name, &length) || weft__text_is_call(name) ||
        weft__text_is_word(name, "rank"))
        return weft__text_expected(r, "a name that is not in use");
    if (length != name->length)
        return weft__text_expected(r, "a name without `-` and `.`");
    weft__text_take(r);
    return WEFT_OK;
}

/* After `let`: NAME = EXPRESSION */
int weft__text_read_let(struct weft__text_reader *r)
{
    struct weft__token name;
    int64_t value = 0;
    int status;

    if ((status = weft__text_take_variable(r, &name)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_EQUALS, "`=`")) ||
        (status = weft__text_read_expression(r, &value)))
        return status;
    return weft__text_define(
        r, &(struct weft__text_variable){
               .text = name.text, .length = name.length, .value = value, .stems_from = r->touched});
}

/* After `for`: NAME in FIRST..LAST { ... }. Nothing if LAST is below FIRST. */
static int read_for(struct weft__text_reader *r)
{
    struct weft__token name, open;
    struct weft__text_place begin;
    struct weft__progress progress;
    int64_t first = 0, last = 0;
    size_t variable = r->variable_count;
    int status;

    if ((status = weft__text_take_variable(r, &name)) || (status = weft__text_take_word(r, "in")) ||
        (status = weft__text_read_expression(r, &first)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_DOTS, "`..`")) ||
        (status = weft__text_read_expression(r, &last)) || (status = weft__text_open(r, &open)))
        return status;
    if (last < first)
        return weft__text_skip_body(r, &open);
    begin = weft__text_place(r);
    if ((status = weft__text_define(r, &(struct weft__text_variable){.text = name.text,
                                                                     .length = name.length,
                                                                     .value = first,
                                                                     .role = WEFT__TEXT_LOOP,
                                                                     .stems_from = r->touched})))
        return status;
    r->repeating++;
    weft__text_begin_progress(r, &progress, (uint64_t)last - (uint64_t)first + 1);
    for (;;) {
        if ((status = weft__text_read_body(r, &open)) || (status = weft__text_check_repeated(r)) ||
            (status = weft__text_check_progress(r, &progress, &open)))
            return status;
        if (r->variables[variable].value == last)
            break;
        r->variables[variable].value++;
        weft__text_return(r, &begin);
    }
    r->repeating--;
    r->variable_count = variable;
    return WEFT_OK;
}

/* After `if`: CONDITION { ... } {else if CONDITION { ... }} [else { ... }] */
static int read_if(struct weft__text_reader *r)
{
    struct weft__token open;
    int64_t holds = 0;
    int done = 0, status;

    for (;;) {
        if ((status = weft__text_read_expression(r, &holds)) ||
            (status = weft__text_open(r, &open)) ||
            (status =
                 holds && !done ? weft__text_read_body(r, &open) : weft__text_skip_body(r, &open)))
            return status;
        done |= holds != 0;
        if (!weft__text_take_if_word(r, "else"))
            return WEFT_OK;
        if (weft__text_take_if_word(r, "if")) {
            r->idle += done;
            continue;
        }
        if ((status = weft__text_open(r, &open)))
            return status;
        return done ? weft__text_skip_body(r, &open) : weft__text_read_body(r, &open);
    }
}

int weft__text_read_block(struct weft__text_reader *r, int *status)
{
    int idle = r->idle;

    if (weft__text_take_if_word(r, "for"))
        *status = read_for(r);
    else if (weft__text_take_if_word(r, "if"))
        *status = read_if(r);
    else if (weft__text_take_if_word(r, "let"))
        *status = weft__text_read_let(r);
    else
        return 0;
    r->idle = idle;
    return 1;
}
