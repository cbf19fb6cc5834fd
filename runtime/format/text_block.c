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

int weft__text_read_body(struct weft__text_reader *r)
{
    size_t variables = r->variable_count;
    int status;

    if ((status = weft__text_deeper(r)))
        return status;
    weft__text_skip_lines(r);
    while (!weft__text_take_if(r, WEFT__TOKEN_FINISH)) {
        if (r->token.kind == WEFT__TOKEN_END)
            return weft__text_expected(r, "a statement or `}`");
        if ((status = weft__text_check_repeated(r)) || (status = weft__text_read_statement(r)) ||
            (status = weft__text_end_line(r)))
            return status;
    }
    r->variable_count = variables;
    r->depth--;
    return WEFT_OK;
}

int weft__text_skip_body(struct weft__text_reader *r)
{
    size_t depth = 1;

    while (depth) {
        if (r->token.kind == WEFT__TOKEN_END)
            return weft__text_expected(r, "a statement or `}`");
        depth += r->token.kind == WEFT__TOKEN_BEGIN;
        depth -= r->token.kind == WEFT__TOKEN_FINISH;
        weft__text_take(r);
    }
    return weft__text_check_repeated(r);
}

/* A name for a variable that is not one yet. */
static int take_variable(struct weft__text_reader *r, struct weft__token *name)
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

    if ((status = take_variable(r, &name)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_EQUALS, "`=`")) ||
        (status = weft__text_read_expression(r, &value)))
        return status;
    return weft__text_define(r, name.text, name.length, value);
}

/* After `for`: NAME in FIRST..LAST { ... }. Nothing if LAST is below FIRST. */
static int read_for(struct weft__text_reader *r)
{
    struct weft__token name;
    struct weft__text_place begin;
    int64_t first = 0, last = 0;
    size_t variable = r->variable_count;
    int status;

    if ((status = take_variable(r, &name)) || (status = weft__text_take_word(r, "in")) ||
        (status = weft__text_read_expression(r, &first)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_DOTS, "`..`")) ||
        (status = weft__text_read_expression(r, &last)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_BEGIN, "`{`")))
        return status;
    if (last < first)
        return weft__text_skip_body(r);
    begin = weft__text_place(r);
    if ((status = weft__text_define(r, name.text, name.length, first)))
        return status;
    r->repeating++;
    for (;;) {
        if ((status = weft__text_read_body(r)) || (status = weft__text_check_repeated(r)))
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
    int64_t holds = 0;
    int done = 0, status;

    for (;;) {
        if ((status = weft__text_read_expression(r, &holds)) ||
            (status = weft__text_take_kind(r, WEFT__TOKEN_BEGIN, "`{`")) ||
            (status = holds && !done ? weft__text_read_body(r) : weft__text_skip_body(r)))
            return status;
        done |= holds != 0;
        if (!weft__text_take_if_word(r, "else"))
            return WEFT_OK;
        if (weft__text_take_if_word(r, "if")) {
            r->idle += done;
            continue;
        }
        if ((status = weft__text_take_kind(r, WEFT__TOKEN_BEGIN, "`{`")))
            return status;
        return done ? weft__text_skip_body(r) : weft__text_read_body(r);
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
