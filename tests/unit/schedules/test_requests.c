/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives in one line that do not block (weft/collectives.h), on local and virtual ranks: their
 * results, many of them under way, beside blocking ones, what is kept, what fails, and what ends
 * while they are under way.
 */
#include <criterion/criterion.h>
#include <malloc.h>

#include "runtime/base/alloc.h"
#include "tests/support/blocking.h"
#include "tests/support/virtual_ranks.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 23, MANY = 2000 };
#else
enum { STRIDE = 3, MANY = 20000 };
#endif

static const int sizes[] = {1, 2, 3, 5};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void configure(struct weft_context *context, size_t plans, size_t bytes,
                      uint64_t deadline_ns)
{
    struct weft_collectives_config config;
    weft_collectives_config_init(&config);
    config.plans = plans;
    config.bytes = bytes;
    config.deadline_ns = deadline_ns;
    OK(weft_collectives_configure(context, &config));
}

static struct weft_collectives_stats stats_of(struct weft_context *context)
{
    struct weft_collectives_stats stats = {.struct_size = sizeof stats};
    OK(weft_collectives_get_stats(context, &stats));
    return stats;
}

/* ---- a sum ---- */

enum { MOST = 8 };

/* An allreduce of `count` elements, all of a rank's number plus one, and a salt. */
struct sum {
    struct weft_request *request;
    size_t count;
    int64_t salt;
    int64_t in[MOST], out[MOST];
};

static int begin_sum(struct weft_context *context, struct sum *sum, size_t count, int64_t salt)
{
    *sum = (struct sum){.count = count, .salt = salt};
    for (size_t i = 0; i < count; i++)
        sum->in[i] = weft_context_rank(context) + 1 + salt;
    return weft_iallreduce(context, sum->in, sum->out, count, WEFT_I64, weft_op_builtin(WEFT_SUM),
                           &sum->request);
}

static void check_sum(struct weft_context *context, const struct sum *sum)
{
    int64_t size = weft_context_size(context);
    for (size_t i = 0; i < sum->count; i++)
        CHECK(sum->out[i] == size * (size + 1) / 2 + size * sum->salt);
}

static void end_sum(struct weft_context *context, struct sum *sum)
{
    OK(weft_request_wait(sum->request, WEFT_NEVER));
    check_sum(context, sum);
    CHECK(weft_request_error(sum->request)[0] == '\0');
    weft_request_destroy(sum->request);
}

static int allreduce_one(struct weft_context *context, int64_t in, int64_t *out)
{
    return weft_allreduce(context, &in, out, 1, WEFT_I64, weft_op_builtin(WEFT_SUM));
}

static void still_in_step(struct weft_context *context)
{
    int64_t out = 0, size = weft_context_size(context);
    OK(allreduce_one(context, weft_context_rank(context) + 1, &out));
    CHECK(out == size * (size + 1) / 2);
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
    for (unsigned seed = 0; seed < 32; seed++) {
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

/* ---- failing ---- */

static int begin_wrongly(struct weft_context *context, struct sum *sum, unsigned how)
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

/* One rank after the other has wrong arguments behind requests that are under way. */
static int fail_among_others(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct sum sums[16];
    (void)user;
    for (int culprit = 0; culprit < size; culprit++) {
        for (int i = 0; i < 16; i++)
            if (i % 4 == 1 && rank == culprit)
                begin_wrongly(context, &sums[i], (unsigned)i / 4);
            else
                OK(begin_sum(context, &sums[i], 2, i));
        for (int i = 16; i-- > 0;) {
            if (i % 4 != 1) {
                end_sum(context, &sums[i]);
                continue;
            }
            if (rank == culprit)
                continue;
            char who[32];
            snprintf(who, sizeof who, "rank %d failed: weft_i", culprit);
            CHECK_STATUS(weft_request_wait(sums[i].request, WEFT_NEVER), WEFT_ERR_PEER);
            CHECK_TEXT(weft_error_text(), who);
            CHECK_TEXT(weft_request_error(sums[i].request), who);
            CHECK_STATUS(weft_request_test(sums[i].request), WEFT_ERR_PEER);
            weft_request_destroy(sums[i].request);
        }
        still_in_step(context);
    }
    return WEFT_OK;
}

static void fail_among_others_locally(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    fail_among_others(context, ranks->user);
}

Test(requests, an_argument_of_one_rank_fails_that_call_alone)
{
    for (int i = 0; i < SIZES; i++)
        ranks_run_each_way(fail_among_others_locally, sizes[i], NULL);
    for (unsigned seed = 0; seed < 32; seed++) {
        struct weft_virtual_config config = with_delays(seed, 20000, 0.2, 500000);
        OK(weft_virtual_run(sizes[seed % SIZES], &config, fail_among_others, NULL));
    }
}

/* Behind one that is under way, a thousand that fail when their turn comes. */
static void fail_many(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum first, last, none;
    if (rank == 1)
        ranks_meet(ranks);
    OK(begin_sum(context, &first, 1, 0));
    for (unsigned i = 0; i < QUEUED; i++)
        begin_wrongly(context, &none, i);
    OK(begin_sum(context, &last, 1, 0));
    if (rank == 0)
        ranks_meet(ranks);
    end_sum(context, &last);
    end_sum(context, &first);
    CHECK(weft_sequence_next(context) == QUEUED + 2);
    still_in_step(context);
}

Test(requests, a_thousand_that_fail_at_once)
{
    ranks_run_each_progress(fail_many, 2, NULL);
}

/* A call that waits, and is wrong, does so at once. */
static void fail_a_blocking_one(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum sum;
    int64_t x = 0;
    if (rank == 1)
        ranks_meet(ranks);
    OK(begin_sum(context, &sum, 1, 0));
    if (rank == 0) {
        CHECK_STATUS(weft_allreduce(context, &x, NULL, 1, WEFT_I64, weft_op_builtin(WEFT_SUM)),
                     WEFT_ERR_INVALID);
        CHECK(weft_request_wait(sum.request, 0) == WEFT_IN_PROGRESS);
        CHECK(weft_request_error(sum.request)[0] == '\0');
        ranks_meet(ranks); /* rank 1 has not called yet */
    } else {
        CHECK_STATUS(allreduce_one(context, 1, &x), WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), "rank 0 failed: weft_allreduce: argument `recv` is NULL");
    }
    end_sum(context, &sum);
    still_in_step(context);
}

Test(requests, a_blocking_call_that_is_wrong_waits_for_nobody)
{
    ranks_run_each_progress(fail_a_blocking_one, 2, NULL);
}

static void come_late(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum sums[3];
    still_in_step(context);
    if (rank == 0)
        configure(context, 0, 0, 20000000);
    if (rank == 1)
        ranks_meet(ranks); /* until 0 has given up */
    for (int i = 0; i < 3; i++)
        OK(begin_sum(context, &sums[i], 1, i));
    if (rank == 0)
        OK(weft_collectives_configure(context, NULL)); /* those keep theirs */
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(weft_request_wait(sums[i].request, WEFT_NEVER),
                     rank == 0 ? WEFT_ERR_TIMEOUT : WEFT_ERR_PEER);
        weft_request_destroy(sums[i].request);
    }
    if (rank != 1)
        ranks_meet(ranks);
    for (int i = 0; i < 3; i++)
        still_in_step(context);
}

Test(requests, each_has_a_deadline)
{
    ranks_run_each_progress(come_late, 2, NULL);
}

static void abort_context(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum sums[QUEUED / 10];
    int64_t out;
    still_in_step(context);
    ranks_meet(ranks);
    for (int i = 0; rank != 1 && i < QUEUED / 10; i++)
        OK(begin_sum(context, &sums[i], 1, 0));
    if (rank == 1)
        OK(weft_context_abort(context, WEFT_ERR_IO, "no disk"));
    for (int i = 0; rank != 1 && i < QUEUED / 10; i++) {
        CHECK_STATUS(weft_request_wait(sums[i].request, WEFT_NEVER), WEFT_ERR_PEER);
        CHECK_TEXT(weft_request_error(sums[i].request), "no disk");
        weft_request_destroy(sums[i].request);
    }
    CHECK_STATUS(allreduce_one(context, 1, &out), rank == 1 ? WEFT_ERR_IO : WEFT_ERR_PEER);
}

Test(requests, a_context_that_is_aborted_fails_all_of_them)
{
    ranks_run_each_progress(abort_context, 3, NULL);
}

/* A wait that succeeds leaves the text of the error before, whatever fails meanwhile. */
static void keep_the_text(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum good, bad;
    if (rank == 1)
        ranks_meet(ranks);
    CHECK_STATUS(weft_context_sleep(NULL, 1), WEFT_ERR_INVALID);
    char before[512];
    snprintf(before, sizeof before, "%s", weft_error_text());
    if (rank == 0)
        OK(begin_sum(context, &bad, 1, 0));
    else
        begin_wrongly(context, &bad, 0);
    OK(begin_sum(context, &good, 1, 0));
    if (rank == 0) {
        ranks_meet(ranks);
        end_sum(context, &good);
        CHECK(strcmp(before, weft_error_text()) == 0);
        CHECK_STATUS(weft_request_test(bad.request), WEFT_ERR_PEER);
        weft_request_destroy(bad.request);
    } else {
        end_sum(context, &good);
    }
}

Test(requests, a_wait_that_succeeds_leaves_the_text_of_errors)
{
    ranks_run_each_progress(keep_the_text, 2, NULL);
}

/* ---- not allowed ---- */

struct nested {
    struct weft_context *context;
    struct weft_request *request;
    atomic_int calls;
};

static int call_in_a_callback(void *user, void *dst, const void *a, const void *b, size_t count,
                              weft_dtype_t dtype)
{
    struct nested *nested = user;
    struct weft_request *request = (struct weft_request *)nested;
    int64_t x = 1, y;
    (void)a, (void)b, (void)count, (void)dtype;
    CHECK_STATUS(
        weft_iallreduce(nested->context, &x, &y, 1, WEFT_I64, weft_op_builtin(WEFT_SUM), &request),
        WEFT_ERR_STATE);
    CHECK(request == (struct weft_request *)nested);
    CHECK_TEXT(weft_error_text(), "weft_iallreduce: called by a callback");
    CHECK_STATUS(allreduce_one(nested->context, 1, &y), WEFT_ERR_STATE);
    CHECK_STATUS(weft_request_wait(nested->request, WEFT_NEVER), WEFT_ERR_STATE);
    CHECK(weft_request_test(nested->request) == WEFT_IN_PROGRESS);
    *(int64_t *)dst = 77;
    atomic_fetch_add(&nested->calls, 1);
    return WEFT_OK;
}

static void recurse(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    struct nested nested = {.context = context};
    int64_t in = 1, out;
    weft_op_config_init(&config);
    config.name = "recursive";
    config.reduce = call_in_a_callback;
    config.user = &nested;
    OK(weft_op_create(&op, &config));
    if (rank != 0) /* whose contribution starts the operation of rank 0 */
        ranks_meet(ranks);
    OK(weft_ireduce(context, &in, &out, 1, WEFT_I64, op, 0, &nested.request));
    if (rank == 0)
        ranks_meet(ranks);
    OK(weft_request_wait(nested.request, WEFT_NEVER));
    CHECK(rank != 0 || (nested.calls > 0 && out == 77));
    weft_request_destroy(nested.request);
    weft_op_destroy(op);
    still_in_step(context);
    CHECK(weft_sequence_next(context) == 2); /* what was refused is no step */
}

Test(requests, a_call_from_a_callback_is_refused)
{
    ranks_run_each_progress(recurse, 2, NULL);
}

/* Steps of the program's own are in the same sequence. */
static void among_steps(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run_config config;
    struct weft_schedule *s = new_schedule(rank, ranks->size);
    weft_node_t event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    struct sum sum;
    weft_run_config_init(&config);
    config.sequence = 1;
    struct weft_run *held = make_run(context, commit(s), &config);
    OK(begin_sum(context, &sum, 1, 0));
    end_sum(context, &sum);
    OK(weft_run_start(held));
    CHECK_STATUS(begin_sum(context, &sum, 1, 0), WEFT_ERR_STATE);
    CHECK(!sum.request);
    CHECK_TEXT(weft_error_text(), "of the same sequence is active");
    CHECK(weft_sequence_next(context) == 2);
    OK(weft_run_fire(held, event));
    OK(weft_run_wait(held, WEFT_NEVER));
    OK(begin_sum(context, &sum, 1, 0));
    end_sum(context, &sum);
    weft_run_destroy(held);
    CHECK(weft_sequence_next(context) == 3);
}

Test(requests, a_step_of_the_program_that_is_active_is_respected)
{
    ranks_run_each_progress(among_steps, 3, NULL);
}

Test(requests, what_is_no_request)
{
    CHECK_STATUS(weft_request_test(NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_request_test: argument `request` is NULL");
    CHECK_STATUS(weft_request_wait(NULL, 0), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_request_wait: argument `request` is NULL");
    CHECK(weft_request_error(NULL)[0] == '\0');
    weft_request_destroy(NULL);
    struct weft_request *request = (struct weft_request *)&request;
    CHECK_STATUS(weft_ibarrier(NULL, &request), WEFT_ERR_INVALID);
    CHECK(request == (struct weft_request *)&request);
    CHECK_TEXT(weft_error_text(), "weft_ibarrier: argument `context` is NULL");
}

/* ---- contexts that go ---- */

struct left {
    struct sum sums[3][20];
    int count;
};

/* Rank 0 does not call: it leaves the others alone with theirs. */
static void leave_with_requests(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct left *left = ranks->user;
    still_in_step(context);
    for (int i = 0; rank > 0 && i < left->count; i++)
        OK(begin_sum(context, &left->sums[rank][i], 1 + (size_t)i % 3, i));
    if (rank == 2) /* with a step that fails among them */
        CHECK_STATUS(weft_ibarrier(context, NULL), WEFT_ERR_INVALID);
}

Test(requests, they_outlive_their_context)
{
    struct left left = {.count = 20};
    for (int turn = 0; turn < 10; turn++) {
        if (turn % 2)
            ranks_run_helped(leave_with_requests, 3, &left);
        else
            ranks_run_once(leave_with_requests, 3, &left);
        for (int r = 1; r < 3; r++)
            for (int i = 0; i < left.count; i++) {
                struct weft_request *request = left.sums[r][i].request;
                int status = weft_request_wait(request, WEFT_NEVER);
                CHECK(status == WEFT_ERR_CANCELLED || status == WEFT_ERR_PEER);
                CHECK(weft_request_test(request) == status && weft_request_error(request)[0]);
                weft_request_destroy(request);
            }
    }
}

/* One rank destroys its part of a context with calls under way, the others hear of each. */
static int destroy_a_split_one(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context);
    struct weft_context *all = NULL;
    struct sum sums[10];
    (void)user;
    OK(weft_context_split(context, 0, 0, &all));
    still_in_step(all);
    for (int i = 0; i < 10; i++)
        OK(begin_sum(all, &sums[i], 1, i));
    if (rank == 0)
        OK(weft_context_destroy(all));
    for (int i = 0; i < 10; i++) {
        int status = weft_request_wait(sums[i].request, WEFT_NEVER);
        CHECK(status == WEFT_OK || status == (rank == 0 ? WEFT_ERR_CANCELLED : WEFT_ERR_PEER));
        if (status == WEFT_OK)
            check_sum(context, &sums[i]);
        weft_request_destroy(sums[i].request);
    }
    still_in_step(context);
    if (rank != 0)
        OK(weft_context_destroy(all));
    return WEFT_OK;
}

static void destroy_locally(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    destroy_a_split_one(context, ranks->user);
}

Test(requests, a_context_that_is_destroyed_tells_the_others)
{
    for (int i = 0; i < SIZES; i++)
        for (int turn = 0; turn < 10; turn++)
            ranks_run_each_progress(destroy_locally, sizes[i], NULL);
    for (unsigned seed = 0; seed < 32; seed++) {
        struct weft_virtual_config config = with_delays(seed, 20000, 0.2, 500000);
        OK(weft_virtual_run(sizes[seed % SIZES], &config, destroy_a_split_one, NULL));
    }
}

/* Nobody waits, nothing is destroyed: what is left goes with the context. */
static int leave_all(struct weft_context *context, void *user)
{
    struct sum *sums = user;
    int rank = weft_context_rank(context);
    for (int i = 0; i < 5; i++) {
        OK(begin_sum(context, &sums[rank * 5 + i], 1, i));
        weft_request_destroy(sums[rank * 5 + i].request);
    }
    return WEFT_OK;
}

Test(requests, nobody_need_wait)
{
    struct sum sums[25];
    for (unsigned seed = 0; seed < 20; seed++) {
        struct weft_virtual_config config = with_delays(seed, 20000, 0.2, 500000);
        OK(weft_virtual_run(sizes[seed % SIZES], &config, leave_all, sums));
    }
    for (int i = 0; i < SIZES; i++)
        OK(weft_local_run(sizes[i], NULL, leave_all, sums));
}

/* ---- memory ---- */

enum { MOST_ALLOCATIONS = 600 };

static int count_failure(int status, atomic_int *failures)
{
    if (!status)
        return 0;
    CHECK(status == WEFT_ERR_MEMORY || status == WEFT_ERR_PEER);
    atomic_fetch_add(failures, 1);
    return 1;
}

/* One thread after the other has the n-th allocation fail: virtual ranks are one thread. */
static int live(struct weft_context *context, void *user)
{
    atomic_int *failures = user;
    struct sum sums[12];
    for (int i = 0; i < 12; i++)
        count_failure(begin_sum(context, &sums[i], 1 + (size_t)i % 4, i), failures);
    for (int i = 0; i < 12; i++) {
        if (!sums[i].request)
            continue;
        if (!count_failure(weft_request_wait(sums[i].request, WEFT_NEVER), failures))
            check_sum(context, &sums[i]);
        weft_request_destroy(sums[i].request);
    }
    still_in_step(context);
    return WEFT_OK;
}

Test(requests, without_memory_a_call_fails_and_the_next_is_in_step)
{
    atomic_int failures = 0;
    int reached = 0;
    for (long n = 1; n < MOST_ALLOCATIONS; n++) {
        struct weft_virtual_config config = with_seed((uint64_t)n);
        atomic_store(&weft__alloc_countdown, n);
        int status = weft_virtual_run(3, &config, live, &failures);
        int lucky = atomic_load(&weft__alloc_countdown) > 0;
        atomic_store(&weft__alloc_countdown, -1);
        CHECK(status == WEFT_OK || status == WEFT_ERR_MEMORY);
        reached += status == WEFT_OK;
        if (lucky)
            break;
    }
    cr_expect_gt(failures, 0);
    cr_expect_gt(reached, 0);
}

/* A call that fails behind others needs memory for that, and there is none: it fails in its order
 * all the same. */
static void fail_without_memory(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum sums[3];
    struct weft_request *request = NULL;
    int64_t x = 0;
    if (rank == 1)
        ranks_meet(ranks); /* it allocates nothing meanwhile */
    OK(begin_sum(context, &sums[0], 1, 0));
    for (int i = 0; i < 6; i++) {
        if (i == 3)
            OK(begin_sum(context, &sums[1], 1, 1));
        if (rank == 1) {
            CHECK_STATUS(weft_broadcast(context, &x, 1, WEFT_I64, 0), WEFT_ERR_PEER);
            CHECK_TEXT(weft_error_text(), i % 3 < 2 ? "out of memory" : "argument `root` is -1");
            continue;
        }
        atomic_store(&weft__alloc_countdown, i % 3 < 2 ? 1 : -1);
        CHECK_STATUS(weft_ibroadcast(context, &x, 1, WEFT_I64, -1, &request), WEFT_ERR_INVALID);
        CHECK_TEXT(weft_error_text(), "weft_ibroadcast: argument `root` is -1");
        CHECK(atomic_exchange(&weft__alloc_countdown, -1) <= 0);
    }
    OK(begin_sum(context, &sums[2], 1, 2));
    if (rank == 0)
        ranks_meet(ranks);
    for (int i = 0; i < 3; i++)
        end_sum(context, &sums[i]);
    CHECK(weft_sequence_next(context) == 9);
    still_in_step(context);
}

Test(requests, without_memory_even_for_its_failure)
{
    ranks_run_once(fail_without_memory, 2, NULL);
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
    for (uint64_t seed = 100; seed < 112; seed++)
        ranks_run_each_progress(random_steps_locally, 2 + (int)(seed % 5), &seed);
}
