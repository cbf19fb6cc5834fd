/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What errors of the text format say beside line and column: which repetition of a line is meant,
 * with which parameters, and which block was not closed.
 */
#include "runtime/format/text_reader.h"

#include "runtime/base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- ranks, loops, parameters ---- */

struct place {
    char text[256];
    size_t used;
};

/* "rank 2", "i = 3", "parameter op = max"; left out if there is no room. */
static void add(struct place *place, const char *before, const struct weft__text_variable *variable,
                const char *between)
{
    size_t room = sizeof place->text - place->used;
    char value[48];
    int length;

    if (variable->sort == WEFT__TEXT_NUMBER)
        snprintf(value, sizeof value, "%" PRId64, variable->value);
    else
        snprintf(value, sizeof value, "%.40s",
                 variable->sort == WEFT__TEXT_OP ? weft_op_name(variable->op)
                                                 : weft_dtype_name((weft_dtype_t)variable->value));
    length = snprintf(place->text + place->used, room, "%s%s%.*s%s%s", place->used ? ", " : "",
                      before, variable->length < 40 ? (int)variable->length : 40, variable->text,
                      between, value);
    if (length > 0 && (size_t)length < room)
        place->used += (size_t)length;
    place->text[place->used] = '\0';
}

void weft__text_tell_place(const struct weft__text_reader *r)
{
    struct place place = {.text = ""};
    char text[512];

    for (size_t v = 0; v < r->variable_count; v++)
        if (r->variables[v].role == WEFT__TEXT_RANK)
            add(&place, "", &r->variables[v], " ");
        else if (r->variables[v].role == WEFT__TEXT_LOOP)
            add(&place, "", &r->variables[v], " = ");
    for (size_t v = 0; v < r->variable_count; v++)
        if (r->variables[v].role == WEFT__TEXT_PARAMETER &&
            (r->variables[v].stems_from & r->touched))
            add(&place, "parameter ", &r->variables[v], " = ");
    if (!place.used)
        return;
    snprintf(text, sizeof text, "%.*s (%s)", (int)(sizeof text - place.used - 4), weft_error_text(),
             place.text);
    weft__error(WEFT_ERR_FORMAT, "%s", text);
}

/* ---- braces ---- */

/* The column of the first token in the line of `token`; `first`: whether it is that token. */
static size_t indent_of(const struct weft__token *token, int *first)
{
    const char *begin = token->text - (token->column - 1), *at = begin;

    while (*at == ' ' || *at == '\t')
        at++;
    *first = at == token->text;
    return (size_t)(at - begin) + 1;
}

void weft__text_note_slip(struct weft__text_reader *r, const struct weft__token *open,
                          const struct weft__token *close)
{
    int opens, closes;

    if (r->slip.close || open->line == close->line)
        return;
    if (indent_of(open, &opens) != indent_of(close, &closes) && closes)
        r->slip = (struct weft__text_slip){open->line, close->line};
}

int weft__text_unclosed(const struct weft__text_reader *r, const struct weft__token *open)
{
    char what[200];
    int used = snprintf(what, sizeof what, "a statement or `}`: the `{` of line %zu is not closed",
                        open->line);

    if (r->slip.close && used > 0)
        snprintf(what + used, sizeof what - (size_t)used,
                 ", or that of line %zu, which the `}` of line %zu closes in another column",
                 r->slip.open, r->slip.close);
    return weft__text_expected(r, what);
}
