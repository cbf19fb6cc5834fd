/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives in one line that do not block (weft/collectives.h), on local and virtual ranks: their
 * results, many of them under way, beside blocking ones, and what is kept. What fails, and what
 * ends while they are under way: test_requests_ends.c.
 */
#include <criterion/criterion.h>
#include <malloc.h>

#include "runtime/base/alloc.h"
#include "tests/support/blocking.h"
#include "tests/support/sums.h"
#include "tests/support/sweep.h"
#include "tests/support/virtual_ranks.h"

enum { STRIDE = SWEPT(3, 23), MANY = SWEPT(20000, 2000) };

static const int sizes[] = {1, 2, 3, 5};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static struct weft_collectives_stats stats_of(struct weft_context *context)
{
    struct weft_collectives_stats stats = {.struct_size = sizeof stats};
    OK(weft_collectives_get_stats(context, &stats));
    return stats;
}

/* ---- results ---- */

static void sweep(struct ranks *ranks, struct weft_context *context, int rank)
{
    const unsigned *stride = ranks->user;
    unsigned seed = (unsigned)ranks->size;
    (void)rank;
    CHECK(!blocking_sweep_as(context, *stride, seed, DO_WAIT, 1));
    CHECK(!blocking_sweep_as(context, 3 * *stride, seed + 1, DO_TEST, 3));
    CHECK(!blocking_sweep_as(context, 3 * *stride, seed + 2, DO_WAIT, BLOCKING_JOBS));
}

Test(requests, every_function_gives_what_plain_loops_give)
{
    unsigned stride = STRIDE;
    for (int i = 0; i < SIZES; i++)
        ranks_run_once(sweep, sizes[i], &stride);
}

Test(requests, with_helpers_and_without_eager_messages)
{
    unsigned stride = 9 * STRIDE;
    for (int i = 0; i < SIZES; i++)
        ranks_run_each_way(sweep, sizes[i], &stride);
}

/* What is a request on one rank is a call that waits on another. */
static void mix(struct ranks *ranks, struct weft_context *context, int rank)
{
    const unsigned *stride = ranks->user;
    configure(context, (size_t)rank % 4, rank % 2, 0);
    CHECK(!blocking_sweep_as(context, *stride, 7, DO_ANY, BLOCKING_JOBS));
    struct weft_collectives_stats stats = stats_of(context);
    CHECK(stats.built == stats.dropped + stats.plans);
}

Test(requests, blocking_calls_and_requests_are_the_same_calls)
{
    unsigned stride = 5 * STRIDE;
    for (int i = 0; i < SIZES; i++)
        ranks_run_each_progress(mix, sizes[i], &stride);
}

static int sweep_virtually(struct weft_context *context, void *user)
{
    const unsigned *seed = user;
    configure(context, 1 + (size_t)weft_context_rank(context) % 3, 0, 0);
    return blocking_sweep_as(context, 19 * STRIDE, *seed, *seed % 3 ? DO_ANY : DO_TEST,
                             1 + *seed % BLOCKING_JOBS);
}

Test(requests, on_virtual_ranks_with_delays)
{
    for (unsigned seed = 0; seed < SWEPT(32, 6); seed++) {
        struct weft_virtual_config config = with_delays(seed, 20000, 0.1, 300000);
        OK(weft_virtual_run(sizes[seed % SIZES], &config, sweep_virtually, &seed));
    }
}

/* ---- many ---- */

enum { QUEUED = 1000 };

/* Rank 0 is far ahead. With one plan or several, and a call that waits now and then. */
static void queue_many(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum *sums = calloc(QUEUED, sizeof *sums);
    CHECK(sums);
    for (int turn = 0; turn < 3; turn++) {
        if (rank > 0 && turn == 0)
            ranks_meet(ranks);
        for (int i = 0; i < QUEUED; i++) {
            OK(begin_sum(context, &sums[i], turn ? 1 + (size_t)i % MOST : 1, i + turn));
            if (turn == 2 && i % 100 == 99)
                still_in_step(context);
        }
        if (rank == 0 && turn == 0) {
            CHECK(ranks->size == 1 || weft_request_test(sums[0].request) == WEFT_IN_PROGRESS);
            CHECK(ranks->size == 1 || stats_of(context).built == QUEUED);
            ranks_meet(ranks);
        }
        for (int i = 0; i < QUEUED; i++)
            end_sum(context, &sums[turn == 1 ? QUEUED - 1 - i : i]);
    }
    struct weft_collectives_stats stats = stats_of(context);
    CHECK(stats.plans <= 64 && stats.built == stats.dropped + stats.plans);
    CHECK(stats.calls == 3 * QUEUED + 10 && weft_sequence_next(context) == stats.calls);
    free(sums);
}

Test(requests, a_thousand_are_under_way)
{
    ranks_run_each_progress(queue_many, 1, NULL);
    ranks_run_each_progress(queue_many, 2, NULL);
    ranks_run_once(queue_many, 5, NULL);
}

/* They end in the order of their calls, whoever is waited for. */
static void end_in_order(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum sums[20];
    (void)ranks;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 20; i++)
            OK(begin_sum(context, &sums[i], 1 + (size_t)(i + round) % MOST, i));
        int at = (round * 7 + rank * 3) % 20;
        OK(weft_request_wait(sums[at].request, WEFT_NEVER));
        for (int i = 0; i <= at; i++)
            OK(weft_request_test(sums[i].request));
        for (int i = 0; i < 20; i++)
            end_sum(context, &sums[(i * 13 + rank) % 20]);
    }
}

Test(requests, they_end_in_the_order_of_their_calls)
{
    ranks_run_each_progress(end_in_order, 1, NULL);
    ranks_run_each_progress(end_in_order, 3, NULL);
}

/* Nobody waits for some: a call after them tells that they have ended. */
static void leave_some(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum sums[50];
    (void)ranks, (void)rank;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 50; i++) {
            OK(begin_sum(context, &sums[i], 1 + (size_t)i % MOST, i));
            if (i % 3)
                weft_request_destroy(sums[i].request);
        }
        still_in_step(context);
        for (int i = 0; i < 50; i++) {
            check_sum(context, &sums[i]);
            if (i % 3 == 0)
                end_sum(context, &sums[i]);
        }
    }
}

Test(requests, one_that_is_destroyed_goes_on)
{
    ranks_run_each_progress(leave_some, 1, NULL);
    ranks_run_each_progress(leave_some, 4, NULL);
}

static void keep_memory_flat(struct ranks *ranks, struct weft_context *context, int rank)
{
    size_t *before = ranks->user;
    struct sum sums[8] = {{0}};
    configure(context, 3, 0, 0);
    for (int i = 0; i < MANY; i++) {
        struct sum *sum = &sums[i % 8];
        if (sum->request)
            end_sum(context, sum);
        OK(begin_sum(context, sum, 1 + (size_t)i % 5, i));
        if (i % 16 == 7 && rank == i / 16 % 2) /* fails on one rank, among the others */
            CHECK_STATUS(weft_ibarrier(context, NULL), WEFT_ERR_INVALID);
        else if (i % 16 == 7)
            CHECK_STATUS(weft_barrier(context), WEFT_ERR_PEER);
        if (i != MANY / 10)
            continue;
        ranks_meet_driving(ranks, context); /* the other may wait for what is under way here */
        if (rank == 0)
            *before = mallinfo2().uordblks;
        ranks_meet(ranks);
    }
    for (int i = 0; i < 8; i++)
        end_sum(context, &sums[i]);
    ranks_meet(ranks);
    if (rank == 0 && mallinfo2().uordblks > *before + 131072) {
        fprintf(stderr, "%zu bytes, then %zu\n", *before, mallinfo2().uordblks);
        abort();
    }
    ranks_meet(ranks);
}

Test(requests, many_of_them_keep_memory_flat)
{
    size_t before = 0;
    ranks_run_once(keep_memory_flat, 2, &before);
}

/* ---- what is kept ---- */

static void bound(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum sums[12];
    (void)ranks, (void)rank;
    for (int turn = 0; turn < 3; turn++) {
        size_t plans = turn == 0 ? 2 : turn == 1 ? WEFT_PLANS_NONE : 64;
        size_t kept = turn == 0 ? 2 : turn == 1 ? 0 : 6;
        configure(context, plans, 0, 0);
        for (int i = 0; i < 12; i++)
            OK(begin_sum(context, &sums[i], 1 + (size_t)i % 6, 3));
        for (int i = 0; i < 12; i++)
            end_sum(context, &sums[i]);
        struct weft_collectives_stats stats = stats_of(context);
        CHECK(stats.plans >= (turn == 2 ? kept : 0) && stats.plans <= (turn == 2 ? 12 : kept));
        CHECK(stats.built == stats.dropped + stats.plans);
        CHECK(turn != 1 || stats.bytes == 0);
    }
    uint64_t built = stats_of(context).built;
    for (int i = 0; i < 12; i++) { /* one at a time finds what there is */
        OK(begin_sum(context, &sums[i], 1 + (size_t)i % 6, 3));
        end_sum(context, &sums[i]);
    }
    CHECK(stats_of(context).built == built);
    configure(context, 0, 1, 0);
    OK(begin_sum(context, &sums[0], 1, 0));
    OK(begin_sum(context, &sums[1], 2, 0));
    configure(context, 1, 0, WEFT_NEVER); /* with two under way */
    end_sum(context, &sums[0]);
    end_sum(context, &sums[1]);
    CHECK(stats_of(context).plans == 1);
}

Test(requests, what_is_kept_is_bounded)
{
    for (int i = 0; i < SIZES; i++)
        ranks_run_each_progress(bound, sizes[i], NULL);
}

static void free_at_once(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct affine x[20], y[20];
    struct weft_request *requests[20];
    (void)ranks;
    for (int i = 0; i < 20; i++) {
        struct weft_op *op = affine_op();
        x[i] = (struct affine){3, (uint32_t)(rank + i)};
        OK(weft_iallreduce(context, &x[i], &y[i], 1, weft_dtype_opaque(sizeof *x), op,
                           &requests[i]));
        weft_op_destroy(op);
    }
    for (int i = 0; i < 20; i++) {
        struct affine expected = {3, (uint32_t)i};
        OK(weft_request_wait(requests[i], WEFT_NEVER));
        weft_request_destroy(requests[i]);
        for (int r = 1; r < weft_context_size(context); r++) {
            struct affine next = {3, (uint32_t)(r + i)};
            affine_compose(NULL, &expected, &expected, &next, 1, weft_dtype_opaque(sizeof *x));
        }
        CHECK(y[i].a == expected.a && y[i].b == expected.b);
    }
}

Test(requests, an_operation_may_go_while_they_are_under_way)
{
    ranks_run_each_progress(free_at_once, 1, NULL);
    ranks_run_each_progress(free_at_once, 5, NULL);
}

/* ---- threads ---- */

enum { THREADS = 4 };

struct waiter {
    pthread_t thread;
    struct sum *sums;
    int count;
};

static void *wait_for_all(void *argument)
{
    struct waiter *waiter = argument;
    for (int i = 0; i < waiter->count; i++) {
        while (i % 3 == 0 && weft_request_wait(waiter->sums[i].request, 1000) == WEFT_IN_PROGRESS)
            ;
        OK(weft_request_wait(waiter->sums[i].request, WEFT_NEVER));
        OK(weft_request_test(waiter->sums[i].request));
    }
    return NULL;
}

/* All wait for the same, while more are made. */
static void wait_together(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum sums[60];
    struct waiter waiters[THREADS];
    (void)ranks, (void)rank;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 30; i++)
            OK(begin_sum(context, &sums[i], 1 + (size_t)i % MOST, i));
        for (int t = 0; t < THREADS; t++) {
            waiters[t] = (struct waiter){.sums = sums, .count = 30 - t};
            CHECK(!pthread_create(&waiters[t].thread, NULL, wait_for_all, &waiters[t]));
        }
        for (int i = 30; i < 60; i++)
            OK(begin_sum(context, &sums[i], 1 + (size_t)i % MOST, i));
        for (int t = 0; t < THREADS; t++)
            pthread_join(waiters[t].thread, NULL);
        for (int i = 0; i < 60; i++)
            end_sum(context, &sums[i]);
    }
}

Test(requests, threads_wait_for_the_same)
{
    ranks_run_each_progress(wait_together, 2, NULL);
}

struct caller {
    pthread_t thread;
    struct weft_context *context;
};

static void *call_in_a_thread(void *argument)
{
    struct caller *caller = argument;
    struct sum sums[10];
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < 10; i++)
            OK(begin_sum(caller->context, &sums[i], 1, round));
        if (round % 3 == 0)
            still_in_step(caller->context);
        for (int i = 10; i-- > 0;)
            end_sum(caller->context, &sums[i]);
    }
    return NULL;
}

/* A thread for each context of a family. */
static void call_on_each(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct caller callers[THREADS];
    (void)ranks, (void)rank;
    for (int t = 0; t < THREADS; t++) {
        callers[t].context = context;
        if (t > 0)
            OK(weft_context_split(context, rank % t, rank, &callers[t].context));
    }
    for (int t = 0; t < THREADS; t++)
        CHECK(!pthread_create(&callers[t].thread, NULL, call_in_a_thread, &callers[t]));
    for (int t = 0; t < THREADS; t++) {
        pthread_join(callers[t].thread, NULL);
        if (t > 0)
            OK(weft_context_destroy(callers[t].context));
    }
}

Test(requests, threads_have_contexts_of_their_own)
{
    ranks_run_each_progress(call_on_each, 3, NULL);
}

/* All threads make the same calls on one context: whose is whose does not matter then. */
static void call_on_one(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct waiter waiters[THREADS];
    struct sum sums[THREADS][20];
    (void)ranks, (void)rank;
    for (int round = 0; round < 5; round++) {
        for (int t = 0; t < THREADS; t++) {
            for (int i = 0; i < 20; i++)
                OK(begin_sum(context, &sums[t][i], 1, 0));
            waiters[t] = (struct waiter){.sums = sums[t], .count = 20};
            CHECK(!pthread_create(&waiters[t].thread, NULL, wait_for_all, &waiters[t]));
        }
        still_in_step(context);
        for (int t = 0; t < THREADS; t++) {
            pthread_join(waiters[t].thread, NULL);
            for (int i = 0; i < 20; i++)
                end_sum(context, &sums[t][i]);
        }
    }
}

Test(requests, threads_wait_while_one_calls)
{
    ranks_run_each_progress(call_on_one, 2, NULL);
}

static void *call_the_same(void *argument)
{
    struct caller *caller = argument;
    struct sum sum;
    for (int i = 0; i < 100; i++) {
        OK(begin_sum(caller->context, &sum, 1, 0));
        if (i % 4 == 0)
            still_in_step(caller->context);
        end_sum(caller->context, &sum);
    }
    return NULL;
}

static void call_from_threads(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct caller callers[3];
    (void)ranks, (void)rank;
    for (int t = 0; t < 3; t++) {
        callers[t].context = context;
        CHECK(!pthread_create(&callers[t].thread, NULL, call_the_same, &callers[t]));
    }
    for (int t = 0; t < 3; t++)
        pthread_join(callers[t].thread, NULL);
    CHECK(stats_of(context).calls == 375);
}

Test(requests, threads_call_one_after_the_other)
{
    ranks_run_each_progress(call_from_threads, 2, NULL);
}

/* ---- any of it, drawn from a seed ---- */

static uint64_t drawn(uint64_t seed, uint64_t what, uint64_t below)
{
    uint64_t x = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + what * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 31)) * UINT64_C(0x94d049bb133111eb);
    x = (x ^ (x >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (x ^ (x >> 32)) % below;
}

/* A call that one rank makes wrongly; the others may have needed it or not. */
static void fault_step(struct weft_context *context, int culprit, unsigned how)
{
    int64_t in = 1, out;
    struct sum sum;
    int status;
    if (weft_context_rank(context) == culprit) {
        begin_wrongly(context, &sum, 2 * (how % 2));
        return;
    }
    status = how % 3 == 0 ? allreduce_one(context, in, &out) : begin_sum(context, &sum, 1, 0);
    if (how % 3) {
        OK(status);
        status = weft_request_wait(sum.request, WEFT_NEVER);
        weft_request_destroy(sum.request);
    }
    CHECK_STATUS(status, WEFT_ERR_PEER);
}

static int random_steps(struct weft_context *context, void *user)
{
    static const size_t counts[] = {0, 1, 5, 37, 3000};
    uint64_t seed = *(const uint64_t *)user;
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct blocking_job jobs[BLOCKING_JOBS] = {{.status = 0}};
    uint64_t depth = 1 + drawn(seed, 3 + (uint64_t)rank, BLOCKING_JOBS);
    configure(context, (size_t)drawn(seed, 7 + (uint64_t)rank, 4), 0, 0);
    for (uint64_t step = 0; step < 60; step++) {
        uint64_t what = 100 + step * 16;
        if (drawn(seed, what, 6) == 0) {
            fault_step(context, (int)drawn(seed, what + 1, (uint64_t)size),
                       (unsigned)drawn(seed, what + 2, 6));
            continue;
        }
        struct blocking_cell cell = {
            .function = (enum blocking_function)drawn(seed, what + 3, DO_COUNT),
            .dtype = (weft_dtype_t)drawn(seed, what + 4, WEFT_DTYPE_COUNT),
            .count = counts[drawn(seed, what + 5, 5)],
            .root = (int)drawn(seed, what + 6, (uint64_t)size),
            .in_place = (int)drawn(seed, what + 7, 2),
            .salt = (unsigned)drawn(seed, what + 8, 2),
            .way = (enum blocking_way)drawn(seed, what + 9 + (uint64_t)rank % 4, DO_ANY)};
        cell.op = blocking_reduces(cell.function) ? weft_op_builtin(WEFT_MAX) : NULL;
        if (cell.function >= DO_ALLGATHERV && cell.count > 37)
            cell.count = 37;
        struct blocking_job *job = &jobs[step % depth];
        CHECK(!job->size || !blocking_finish(job));
        blocking_begin(context, &cell, job);
    }
    for (int i = 0; i < BLOCKING_JOBS; i++)
        CHECK(!jobs[i].size || !blocking_finish(&jobs[i]));
    still_in_step(context);
    CHECK(stats_of(context).built == stats_of(context).dropped + stats_of(context).plans);
    return WEFT_OK;
}

Test(requests, any_calls_and_faults_on_virtual_ranks)
{
    for (uint64_t seed = 0; seed < 150 / STRIDE + 4; seed++) {
        struct weft_virtual_config config = with_delays(seed, 5000, 0.1, 2000000);
        struct weft_net net;
        if (seed % 3 == 1) {
            give_net(&config, &net);
            net.S = 64;
        }
        OK(weft_virtual_run(1 + (int)(seed % 9), &config, random_steps, &seed));
    }
}

static void random_steps_locally(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    random_steps(context, ranks->user);
}

Test(requests, any_calls_and_faults_on_local_ranks)
{
    for (uint64_t seed = 100; seed < SWEPT(112, 22); seed++)
        ranks_run_each_progress(random_steps_locally, 2 + (int)(seed % 5), &seed);
}
