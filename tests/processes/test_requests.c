/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives in one line that do not block, between processes; support/blocking.h has what they
 * are compared with. */
#include <string.h>

#include "support/blocking.h"
#include "world.h"

/* A vector that does not travel in a packet; and so many are under way. */
enum { LARGE = 1 << 16, QUEUED = 12 };

static struct weft_context *new_context(weft_progress_t progress)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = progress;
    return world_context(&config);
}

static void still_in_step(struct weft_context *context)
{
    int64_t in = world_rank + 1, out = 0, size = world_size;
    OK(weft_allreduce(context, &in, &out, 1, WEFT_I64, weft_op_builtin(WEFT_SUM)));
    CHECK(out == size * (size + 1) / 2);
}

static int begin_sum(struct weft_context *context, const double *in, double *out, int count,
                     struct weft_request **request)
{
    return weft_iallreduce(context, in, out, (size_t)count, WEFT_F64, weft_op_builtin(WEFT_SUM),
                           request);
}

static void check_sum(const double *out, int count)
{
    for (int i = 0; i < count; i++)
        CHECK(out[i] == (i % 97) * world_size + world_size * (world_size - 1) / 2);
}

/* Large and small ones, of which only the last is waited for, or each, or none. */
static void queue_some(struct weft_context *context, const double *in, double *out, int turn)
{
    struct weft_request *requests[QUEUED];
    for (int i = 0; i < QUEUED; i++) {
        int count = i % 3 ? 1 + i : LARGE;
        OK(begin_sum(context, in, out + i * LARGE, count, &requests[i]));
        if (turn % 3 == 2)
            weft_request_destroy(requests[i]);
    }
    if (turn % 3 == 0)
        OK(weft_request_wait(requests[QUEUED - 1], WEFT_NEVER));
    if (turn % 3 == 2)
        still_in_step(context);
    for (int i = 0; i < QUEUED && turn % 3 < 2; i++) {
        int status;
        while ((status = weft_request_test(requests[i])) == WEFT_IN_PROGRESS)
            ;
        OK(status);
        weft_request_destroy(requests[i]);
    }
    for (int i = 0; i < QUEUED; i++)
        check_sum(out + i * LARGE, i % 3 ? 1 + i : LARGE);
}

/* One rank after the other is wrong, among calls that are under way. */
static void fail_one(struct weft_context *context, const double *in, double *out)
{
    for (int culprit = 0; culprit < world_size; culprit++) {
        struct weft_request *requests[QUEUED];
        char who[64];
        snprintf(who, sizeof who, "rank %d failed: weft_iallreduce: argument `recv`", culprit);
        for (int i = 0; i < QUEUED; i++) {
            int count = i % 3 ? 1 + i : LARGE, wrong = i % 4 == 2 && culprit == world_rank;
            requests[i] = NULL;
            int status =
                begin_sum(context, in, wrong ? NULL : out + i * LARGE, count, &requests[i]);
            CHECK(status == (wrong ? WEFT_ERR_INVALID : WEFT_OK));
            CHECK(!wrong == !!requests[i]);
        }
        for (int i = 0; i < QUEUED; i++) {
            if (!requests[i])
                continue;
            int status = weft_request_wait(requests[i], WEFT_NEVER);
            CHECK(status == (i % 4 == 2 ? WEFT_ERR_PEER : WEFT_OK));
            CHECK(!status || strstr(weft_request_error(requests[i]), who));
            weft_request_destroy(requests[i]);
            if (!status)
                check_sum(out + i * LARGE, i % 3 ? 1 + i : LARGE);
        }
        still_in_step(context);
    }
}

/* Those of a context that was split go with it, and the others are told. */
static void destroy_one(struct weft_context *context, const double *in, double *out)
{
    struct weft_request *requests[QUEUED];
    struct weft_context *all = NULL;
    OK(weft_context_split(context, 0, 0, &all));
    for (int i = 0; i < QUEUED; i++)
        OK(begin_sum(all, in, out + i * LARGE, 1 + i, &requests[i]));
    if (world_rank == 0)
        OK(weft_context_destroy(all));
    for (int i = 0; i < QUEUED; i++) {
        int status = weft_request_wait(requests[i], WEFT_NEVER);
        CHECK(!status || status == (world_rank == 0 ? WEFT_ERR_CANCELLED : WEFT_ERR_PEER));
        weft_request_destroy(requests[i]);
    }
    if (world_rank > 0)
        OK(weft_context_destroy(all));
    still_in_step(context);
}

static void one_context(weft_progress_t progress, const char *how)
{
    struct weft_context *context = new_context(progress);
    double *in = calloc(LARGE, sizeof *in), *out = calloc(QUEUED * (size_t)LARGE, sizeof *out);
    unsigned stride = world_size > 3 ? 97 : 41;
    CHECK(in && out);
    for (int i = 0; i < LARGE; i++)
        in[i] = i % 97 + world_rank;
    CHECK(!blocking_sweep_as(context, stride, (unsigned)world_size, DO_WAIT, 1));
    CHECK(!blocking_sweep_as(context, stride, 1, DO_TEST, 3));
    world_ok("every function gives what plain loops give, %s", how);
    CHECK(!blocking_sweep_as(context, stride, 2, DO_ANY, BLOCKING_JOBS));
    world_ok("calls that block on one rank and not on another, %s", how);
    for (int turn = 0; turn < 6; turn++)
        queue_some(context, in, out, turn);
    world_ok("large and small ones are under way, %s", how);
    fail_one(context, in, out);
    world_ok("an argument of one rank fails that call alone, %s", how);
    for (int turn = 0; turn < 3; turn++)
        destroy_one(context, in, out);
    world_ok("a context is destroyed with some under way, %s", how);
    weft_context_destroy(context); /* with what is kept */
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    world_init(&argc, &argv, WORLD_THREADS);
    one_context(WEFT_PROGRESS_CALLER, "driven by the caller");
    one_context(WEFT_PROGRESS_HELPER, "driven by a helper");
    return world_end();
}
