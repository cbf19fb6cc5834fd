/* SPDX-License-Identifier: BSD-3-Clause */
/* The text format, read: what schedules state about their results. */
#include "runtime/format/text_reader.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <stdio.h>
#include <string.h>

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

    result->from = r->token.kind == WEFT__TOKEN_NAME ? weft__text_copy_token(r, &r->token) : "";
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

/* (rank N | ranks N..M | ranks N, N ...) */
static int read_ranks(struct weft__text_reader *r, const struct weft__token *at,
                      struct weft_result *result)
{
    uint64_t first = 0, last = 0, most = (uint64_t)weft_schedule_size(r->schedule) - 1;
    int status;

    if (weft__text_take_if_word(r, "rank")) {
        status = weft__text_take_number(r, most, &first);
        last = first;
    } else if (weft__text_take_if_word(r, "ranks")) {
        status = weft__text_take_number(r, most, &first);
        if (!status && !weft__text_take_if(r, WEFT__TOKEN_DOTS))
            return read_among(r, first, result);
        if (!status)
            status = weft__text_take_number(r, most, &last);
        if (!status && last < first)
            return weft__lex_error(at, "ranks in ascending order");
    } else {
        status = weft__text_expected(r, "`rank` or `ranks`");
    }
    result->first = (int)first;
    result->ranks = (int)(last - first) + 1;
    return status;
}

/* A copy beside that of `from`, which the reader keeps only one of. The caller frees it. */
static int copy_own(const struct weft__token *token, struct weft_result *result)
{
    char *own = weft__malloc(token->length + 1, 1);

    if (!own)
        return weft__error_memory("the name of a slot");
    memcpy(own, token->text, token->length);
    own[token->length] = '\0';
    result->own = own;
    return WEFT_OK;
}

/* REGION = [OP of] SOURCE from RANKS [own NAME] [lossy] */
static int read_region_result(struct weft__text_reader *r, const struct weft__token *at,
                              struct weft_result *result)
{
    struct weft__lexer ahead;
    struct weft__token next;
    int status;

    if ((status = weft__text_read_region(r, &result->dst)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_EQUALS, "`=`")))
        return status;
    ahead = r->lexer;
    next = weft__lex(&ahead);
    if (weft__text_is_word(&next, "of") &&
        ((status = weft__text_read_op(r, &result->op)) || (status = weft__text_take_word(r, "of"))))
        return status;
    if ((status = read_source(r, result)) || (status = weft__text_take_word(r, "from")))
        return status;
    if ((status = read_ranks(r, at, result)))
        return status;
    if (weft__text_take_if_word(r, "own")) {
        if (r->token.kind == WEFT__TOKEN_NAME && (status = copy_own(&r->token, result)))
            return status;
        if ((status = weft__text_take_kind(r, WEFT__TOKEN_NAME, "the name of a slot")))
            return status;
    }
    result->lossy = weft__text_take_if_word(r, "lossy");
    return WEFT_OK;
}

/* end after start of RANKS; `end` has been seen, with `after` behind it */
static int read_start_result(struct weft__text_reader *r, const struct weft__token *at,
                             struct weft_result *result)
{
    int status;

    result->kind = WEFT_RESULT_AFTER_START;
    weft__text_take(r);
    weft__text_take(r);
    if ((status = weft__text_take_word(r, "start")) || (status = weft__text_take_word(r, "of")))
        return status;
    return read_ranks(r, at, result);
}

/* result (REGION = [OP of] SOURCE from RANKS [own NAME] [lossy] | end after start of RANKS). A slot
 * may be called `end`. */
int weft__text_read_result(struct weft__text_reader *r)
{
    const struct weft__token at = r->token;
    struct weft_result result = {.struct_size = sizeof result, .ranks = 1};
    struct weft__lexer ahead = r->lexer;
    struct weft__token next = weft__lex(&ahead);
    int status;

    if (weft__text_is_word(&at, "end") && weft__text_is_word(&next, "after"))
        status = read_start_result(r, &at, &result);
    else
        status = read_region_result(r, &at, &result);
    if (!status)
        status = weft__text_built(&at, weft_schedule_add_result(r->schedule, &result));
    weft__free((void *)result.among);
    weft__free((void *)result.own);
    return status;
}
