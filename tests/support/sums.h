/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums by requests (weft/collectives.h), and settings of calls, for more than one suite. */
#ifndef WEFT_TESTS_SUPPORT_SUMS_H
#define WEFT_TESTS_SUPPORT_SUMS_H

#include <weft/collectives.h>

#include "tests/support/ranks.h"

static inline void configure(struct weft_context *context, size_t plans, size_t bytes,
                             uint64_t deadline_ns)
{
    struct weft_collectives_config config;
    weft_collectives_config_init(&config);
    config.plans = plans;
    config.bytes = bytes;
    config.deadline_ns = deadline_ns;
    OK(weft_collectives_configure(context, &config));
}

enum { MOST = 8 };

/* An allreduce of `count` elements, all of a rank's number plus one, and a salt. */
struct sum {
    struct weft_request *request;
    size_t count;
    int64_t salt;
    int64_t in[MOST], out[MOST];
};

static inline int begin_sum(struct weft_context *context, struct sum *sum, size_t count,
                            int64_t salt)
{
    *sum = (struct sum){.count = count, .salt = salt};
    for (size_t i = 0; i < count; i++)
        sum->in[i] = weft_context_rank(context) + 1 + salt;
    return weft_iallreduce(context, sum->in, sum->out, count, WEFT_I64, weft_op_builtin(WEFT_SUM),
                           &sum->request);
}

static inline void check_sum(struct weft_context *context, const struct sum *sum)
{
    int64_t size = weft_context_size(context);
    for (size_t i = 0; i < sum->count; i++)
        CHECK(sum->out[i] == size * (size + 1) / 2 + size * sum->salt);
}

static inline void end_sum(struct weft_context *context, struct sum *sum)
{
    OK(weft_request_wait(sum->request, WEFT_NEVER));
    check_sum(context, sum);
    CHECK(weft_request_error(sum->request)[0] == '\0');
    weft_request_destroy(sum->request);
}

static inline int allreduce_one(struct weft_context *context, int64_t in, int64_t *out)
{
    return weft_allreduce(context, &in, out, 1, WEFT_I64, weft_op_builtin(WEFT_SUM));
}

static inline void still_in_step(struct weft_context *context)
{
    int64_t out = 0, size = weft_context_size(context);
    OK(allreduce_one(context, weft_context_rank(context) + 1, &out));
    CHECK(out == size * (size + 1) / 2);
}

/* One of three arguments is wrong. */
static inline int begin_wrongly(struct weft_context *context, struct sum *sum, unsigned how)
{
    int64_t x = 0;
    sum->request = NULL;
    int status = how % 3 == 0   ? weft_iallreduce(context, &x, &x, 1, WEFT_I64,
                                                  weft_op_builtin(WEFT_SUM), &sum->request)
                 : how % 3 == 1 ? weft_ibroadcast(context, &x, 1, WEFT_I64, -1, &sum->request)
                                : weft_iallreduce(context, &x, NULL, 1, WEFT_I64,
                                                  weft_op_builtin(WEFT_SUM), &sum->request);
    CHECK(status == WEFT_ERR_INVALID && !sum->request);
    CHECK_TEXT(weft_error_text(),
               how % 3 == 1 ? "weft_ibroadcast: argument `root`" : "weft_iallreduce: argument");
    return status;
}

#endif
