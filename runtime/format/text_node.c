/* SPDX-License-Identifier: BSD-3-Clause */
/* The text format, read: tokens taken one by one, regions, and nodes up to where their order
 * begins. */
#include "runtime/format/text_reader.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- tokens ---- */

void weft__text_take(struct weft__text_reader *r)
{
    if (r->repeating)
        r->repeated += r->token.length + 1;
    r->taken = r->token.text + r->token.length;
    r->token = weft__lex(&r->lexer);
}

int weft__text_expected(const struct weft__text_reader *r, const char *what)
{
    return weft__lex_error(&r->token, what);
}

int weft__text_is_word(const struct weft__token *token, const char *word)
{
    return token->kind == WEFT__TOKEN_NAME && token->length == strlen(word) &&
           !memcmp(token->text, word, token->length);
}

int weft__text_take_if_word(struct weft__text_reader *r, const char *word)
{
    if (!weft__text_is_word(&r->token, word))
        return 0;
    weft__text_take(r);
    return 1;
}

int weft__text_take_if(struct weft__text_reader *r, enum weft__token_kind kind)
{
    if (r->token.kind != kind)
        return 0;
    weft__text_take(r);
    return 1;
}

int weft__text_take_word(struct weft__text_reader *r, const char *word)
{
    char what[32];

    if (weft__text_take_if_word(r, word))
        return WEFT_OK;
    snprintf(what, sizeof what, "`%s`", word);
    return weft__text_expected(r, what);
}

int weft__text_take_kind(struct weft__text_reader *r, enum weft__token_kind kind, const char *what)
{
    return weft__text_take_if(r, kind) ? WEFT_OK : weft__text_expected(r, what);
}

static int not_a_number(const struct weft__token *at, uint64_t max)
{
    char what[48];

    snprintf(what, sizeof what, "a number of at most %llu", (unsigned long long)max);
    return weft__lex_error(at, what);
}

/* What stands from `at` up to here is a number that does not fit. */
static int bad_expression(struct weft__text_reader *r, const struct weft__token *at, int64_t value,
                          uint64_t max)
{
    enum { SHOWN = 60 };
    size_t length = (size_t)(r->taken - at->text);

    r->too_large = value > 0;
    return weft__error(WEFT_ERR_FORMAT,
                       "line %zu, column %zu: the expression `%.*s%s` is %lld, expected a number "
                       "from 0 to %llu",
                       at->line, at->column, (int)(length < SHOWN ? length : SHOWN), at->text,
                       length > SHOWN ? " ..." : "", (long long)value, (unsigned long long)max);
}

int weft__text_take_number(struct weft__text_reader *r, uint64_t max, uint64_t *number)
{
    const struct weft__token at = r->token;
    int64_t value = 0;
    size_t length;
    int status;

    if (at.kind == WEFT__TOKEN_NUMBER) {
        weft__text_take(r);
        if (r->token.kind != WEFT__TOKEN_OPERATOR) {
            r->too_large = at.overflow || at.number > max;
            if (r->too_large)
                return not_a_number(&at, max);
            *number = at.number;
            return WEFT_OK;
        }
        if (at.overflow || at.number > INT64_MAX)
            return not_a_number(&at, INT64_MAX);
        value = (int64_t)at.number;
        status = weft__text_read_rest(r, &value);
    } else if (at.kind == WEFT__TOKEN_LEFT || at.kind == WEFT__TOKEN_OPERATOR ||
               (at.kind == WEFT__TOKEN_NAME && weft__text_find(r, &at, &length)) ||
               weft__text_is_call(&at)) {
        status = weft__text_read_expression(r, &value);
    } else {
        return not_a_number(&at, max);
    }
    if (status)
        return status;
    if (value < 0 || (uint64_t)value > max)
        return bad_expression(r, &at, value, max);
    *number = (uint64_t)value;
    return WEFT_OK;
}

int weft__text_built(const struct weft__token *token, int status)
{
    char text[400];

    if (status >= 0 || status == WEFT_ERR_MEMORY)
        return status;
    snprintf(text, sizeof text, "%s", weft__builder_text());
    return weft__error(WEFT_ERR_FORMAT, "line %zu: %s", token->line, text);
}

/* ---- parts of statements ---- */

/* Whether the end of a range is left out: `]` or `count VALUE` follows. A variable may be called
 * count, too. */
static int ends_region(const struct weft__text_reader *r)
{
    struct weft__lexer ahead = r->lexer;
    struct weft__token next;

    if (r->token.kind == WEFT__TOKEN_CLOSE)
        return 1;
    if (!weft__text_is_word(&r->token, "count"))
        return 0;
    next = weft__lex(&ahead);
    return next.kind == WEFT__TOKEN_NAME && !weft__text_is_word(&next, "count");
}

/* A number in a region. One that is too large is beyond the slot. */
static int take_position(struct weft__text_reader *r, size_t count, uint64_t *number)
{
    int status;

    r->too_large = 0;
    status = weft__text_take_number(r, count, number);
    r->document->beyond = status == WEFT_ERR_FORMAT && r->too_large;
    return status;
}

int weft__text_read_region(struct weft__text_reader *r, struct weft_region *region)
{
    struct weft_slot_info buffer = {.struct_size = sizeof buffer};
    uint64_t begin = 0, end = 0;
    int status;

    *region = (struct weft_region){0};
    if (r->token.kind == WEFT__TOKEN_NAME)
        region->slot = weft__schedule_find_slot(r->schedule, r->token.text, r->token.length);
    if (r->token.kind != WEFT__TOKEN_NAME || region->slot < 0 ||
        weft_schedule_get_slot(r->schedule, region->slot, &buffer))
        return weft__text_expected(r, "the name of a slot declared above");
    weft__text_take(r);
    end = buffer.count;
    if (weft__text_take_if(r, WEFT__TOKEN_OPEN)) {
        if ((status = take_position(r, buffer.count, &begin)) ||
            (status = weft__text_take_kind(r, WEFT__TOKEN_COLON, "`:`")))
            return status;
        if (!ends_region(r) && (status = take_position(r, buffer.count, &end)))
            return status;
        if (begin > end)
            return weft__text_expected(r, "the end of a range that is not before its begin");
        if (weft__text_take_if_word(r, "count")) {
            if (r->token.kind == WEFT__TOKEN_NAME)
                region->value =
                    weft__schedule_find_value(r->schedule, r->token.text, r->token.length);
            if (!region->value)
                return weft__text_expected(r, "the name of a value declared above");
            weft__text_take(r);
        }
        if ((status = weft__text_take_kind(r, WEFT__TOKEN_CLOSE, "`]`")))
            return status;
    }
    region->offset = (size_t)begin;
    region->count = (size_t)(end - begin);
    return WEFT_OK;
}

/* [gives VALUE] */
static int read_gives(struct weft__text_reader *r, weft_value_t *value)
{
    *value = 0;
    if (!weft__text_take_if_word(r, "gives"))
        return WEFT_OK;
    if (r->token.kind == WEFT__TOKEN_NAME)
        *value = weft__schedule_find_value(r->schedule, r->token.text, r->token.length);
    if (!*value)
        return weft__text_expected(r, "the name of a value declared above");
    weft__text_take(r);
    return WEFT_OK;
}

int weft__text_read_option(struct weft__text_reader *r, const char *word, uint64_t max,
                           uint64_t *number)
{
    return weft__text_take_if_word(r, word) ? weft__text_take_number(r, max, number) : WEFT_OK;
}

/* ---- nodes: what follows the word of the kind; a handle or a status ---- */

static weft_node_t read_message(struct weft__text_reader *r, const struct weft__token *at,
                                int is_send)
{
    struct weft_region region;
    uint64_t peer = 0, tag = 0;
    weft_value_t gives = 0;
    int up_to = 0, status;

    if (!is_send && weft__text_is_word(&r->token, "up")) {
        struct weft__lexer ahead = r->lexer;
        struct weft__token next = weft__lex(&ahead);

        if ((up_to = weft__text_is_word(&next, "to"))) {
            weft__text_take(r);
            weft__text_take(r);
        }
    }
    if ((status = weft__text_read_region(r, &region)) ||
        (status = weft__text_take_word(r, is_send ? "to" : "from")) ||
        (status = weft__text_take_number(r, INT_MAX, &peer)) ||
        (status = weft__text_read_option(r, "tag", UINT32_MAX, &tag)))
        return status;
    if (is_send)
        return weft__text_built(
            at, weft_schedule_add_send(r->schedule, region, (int)peer, (uint32_t)tag));
    if (!up_to)
        return weft__text_built(
            at, weft_schedule_add_recv(r->schedule, region, (int)peer, (uint32_t)tag));
    if ((status = read_gives(r, &gives)))
        return status;
    return weft__text_built(
        at, weft_schedule_add_recv_up_to(r->schedule, region, (int)peer, (uint32_t)tag, gives));
}

static weft_node_t read_reduce(struct weft__text_reader *r, const struct weft__token *at)
{
    const struct weft_op *op = NULL;
    struct weft_region dst, a, b;
    int status;

    if ((status = weft__text_read_op(r, &op)) || (status = weft__text_read_region(r, &dst)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_EQUALS, "`=`")) ||
        (status = weft__text_read_region(r, &a)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_COMMA, "`,`")) ||
        (status = weft__text_read_region(r, &b)))
        return status;
    return weft__text_built(at, weft_schedule_add_reduce(r->schedule, op, dst, a, b));
}

static weft_node_t read_copy(struct weft__text_reader *r, const struct weft__token *at)
{
    struct weft_region dst, src;
    int status;

    if ((status = weft__text_read_region(r, &dst)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_EQUALS, "`=`")) ||
        (status = weft__text_read_region(r, &src)))
        return status;
    return weft__text_built(at, weft_schedule_add_copy(r->schedule, dst, src));
}

/* What the word of an argument says, 0 if it is none. A node that follows may be called `update`.
 */
static int access_of(const struct weft__text_reader *r)
{
    struct weft__lexer ahead = r->lexer;

    if (weft__text_is_word(&r->token, "in"))
        return WEFT_READ;
    if (weft__text_is_word(&r->token, "out"))
        return WEFT_WRITE;
    return weft__text_is_word(&r->token, "update") && weft__lex(&ahead).kind == WEFT__TOKEN_NAME
               ? WEFT_UPDATE
               : 0;
}

/* in|out|update REGION */
static int read_argument(struct weft__text_reader *r)
{
    int access = access_of(r);
    struct weft_compute_argument *argument;

    if (!access)
        return weft__text_expected(r, "`in`, `out` or `update`");
    weft__text_take(r);
    if (weft__grow((void **)&r->arguments, &r->argument_capacity, r->argument_count + 1,
                   sizeof *r->arguments))
        return weft__error_memory("the arguments of a node");
    argument = &r->arguments[r->argument_count++];
    argument->access = (weft_access_t)access;
    return weft__text_read_region(r, &argument->region);
}

static weft_node_t read_compute(struct weft__text_reader *r, const struct weft__token *at)
{
    const struct weft_op *op = NULL;
    weft_value_t gives = 0;
    int status;

    if ((status = weft__text_read_op(r, &op)))
        return status;
    r->argument_count = 0;
    if (access_of(r)) {
        do {
            if ((status = read_argument(r)))
                return status;
        } while (weft__text_take_if(r, WEFT__TOKEN_COMMA));
    }
    if ((status = read_gives(r, &gives)))
        return status;
    return weft__text_built(
        at, weft_schedule_add_compute(r->schedule, op, r->arguments, r->argument_count, gives));
}

static weft_node_t read_event(struct weft__text_reader *r, const struct weft__token *at)
{
    uint64_t channel = WEFT_CHANNEL_NONE, choice = 0;
    weft_node_t node;
    int status;

    if ((status = weft__text_read_option(r, "channel", UINT32_MAX - 1, &channel)))
        return status;
    node = weft__text_built(at, weft_schedule_add_event(r->schedule, (uint32_t)channel));
    if (node < 0 || !weft__text_take_if_word(r, "choice"))
        return node;
    if ((status = weft__text_take_number(r, UINT32_MAX, &choice)) ||
        (status = weft__document_choice(r->document, choice, node)))
        return status;
    return node;
}

static weft_node_t read_signal(struct weft__text_reader *r, const struct weft__token *at)
{
    uint64_t peer = 0, channel = 0;
    int status;

    if ((status = weft__text_take_word(r, "to")) ||
        (status = weft__text_take_number(r, INT_MAX, &peer)) ||
        (status = weft__text_take_word(r, "channel")) ||
        (status = weft__text_take_number(r, UINT32_MAX - 1, &channel)))
        return status;
    return weft__text_built(at,
                            weft_schedule_add_signal(r->schedule, (int)peer, (uint32_t)channel));
}

weft_node_t weft__text_read_kind(struct weft__text_reader *r)
{
    const struct weft__token at = r->token;

    if (weft__text_take_if_word(r, "send"))
        return read_message(r, &at, 1);
    if (weft__text_take_if_word(r, "recv"))
        return read_message(r, &at, 0);
    if (weft__text_take_if_word(r, "reduce"))
        return read_reduce(r, &at);
    if (weft__text_take_if_word(r, "copy"))
        return read_copy(r, &at);
    if (weft__text_take_if_word(r, "compute"))
        return read_compute(r, &at);
    if (weft__text_take_if_word(r, "join"))
        return weft__text_built(&at, weft_schedule_add_join(r->schedule));
    if (weft__text_take_if_word(r, "event"))
        return read_event(r, &at);
    if (weft__text_take_if_word(r, "signal"))
        return read_signal(r, &at);
    if (weft__text_is_word(&r->token, "rank") || weft__text_is_word(&r->token, "ranks"))
        return weft__text_unclosed(r, &r->block->open);
    if (weft__text_is_word(&r->token, "param"))
        return weft__text_expected(r, "parameters to be declared above the ranks");
    return weft__text_expected(
        r, "send, recv, reduce, copy, compute, join, event, signal, or input, output, "
           "inout, scratch, value, result, let, for, if, order, `}`");
}
