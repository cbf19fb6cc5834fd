/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The blocking collectives (weft/collectives.h) on local and virtual ranks: their results, what is
 * kept on each rank, what fails on one rank, and what else the context does meanwhile.
 */
#include <criterion/criterion.h>
#include <malloc.h>

#include "runtime/base/alloc.h"
#include "tests/support/blocking.h"
#include "tests/support/sweep.h"
#include "tests/support/virtual_ranks.h"

enum { STRIDE = SWEPT(1, 13), MANY = SWEPT(100000, 2000) };

static const int sizes[] = {1, 2, 3, 5, 7, 8, 13, 16};
enum { SIZES = SWEPT(sizeof sizes / sizeof sizes[0], 6) };

static void configure(struct weft_context *context, size_t plans, size_t bytes)
{
    struct weft_collectives_config config;
    weft_collectives_config_init(&config);
    config.plans = plans;
    config.bytes = bytes;
    OK(weft_collectives_configure(context, &config));
}

static struct weft_collectives_stats stats_of(struct weft_context *context)
{
    struct weft_collectives_stats stats = {.struct_size = sizeof stats};
    OK(weft_collectives_get_stats(context, &stats));
    return stats;
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
    (void)rank;
    CHECK(!blocking_sweep(context, *stride, (unsigned)ranks->size));
}

Test(blocking, every_function_gives_what_plain_loops_give)
{
    unsigned stride = STRIDE * swept_again();
    for (int i = 0; i < SIZES; i++)
        ranks_run_once(sweep, sizes[i], &stride);
}

Test(blocking, with_helpers_and_without_eager_messages)
{
    unsigned stride = 5 * STRIDE * swept_again();
    for (int i = 0; i < SIZES; i++)
        ranks_run_each_way(sweep, sizes[i], &stride);
}

static int sweep_virtually(struct weft_context *context, void *user)
{
    const unsigned *seed = user;
    configure(context, 1 + (size_t)weft_context_rank(context) % 3, 0);
    return blocking_sweep(context, 9 * STRIDE, *seed);
}

Test(blocking, on_virtual_ranks_with_delays)
{
    for (unsigned seed = 0; seed < SWEPT(24, 6); seed++) {
        struct weft_virtual_config config = with_delays(seed, 20000, 0.1, 300000);
        OK(weft_virtual_run(sizes[seed % SIZES], &config, sweep_virtually, &seed));
    }
}

/* ---- what is kept ---- */

static void differ(struct ranks *ranks, struct weft_context *context, int rank)
{
    const unsigned *stride = ranks->user;
    configure(context, rank % 3 == 0 ? WEFT_PLANS_NONE : (size_t)rank % 3, rank % 4 == 3 ? 1 : 0);
    CHECK(!blocking_sweep(context, *stride, 0));
    struct weft_collectives_stats stats = stats_of(context);
    CHECK(stats.plans == (rank % 3 == 0 ? 0 : rank % 4 == 3 ? 1 : (size_t)rank % 3));
    CHECK(stats.built == stats.dropped + stats.plans);
}

Test(blocking, ranks_keep_what_they_like)
{
    unsigned stride = 5 * STRIDE * swept_again();
    for (int i = 0; i < SIZES; i++)
        ranks_run_once(differ, sizes[i], &stride);
}

/* Calls with 1, 2, 3 ... elements. */
static void call_with(struct weft_context *context, size_t count)
{
    int64_t in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];
    OK(weft_allreduce(context, in, out, count, WEFT_I64, weft_op_builtin(WEFT_SUM)));
    for (size_t i = 0; i < count; i++)
        CHECK(out[i] == in[i] * weft_context_size(context));
}

static void use_longest_ago(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)ranks, (void)rank;
    CHECK(stats_of(context).calls == 0);
    configure(context, 2, 0);
    call_with(context, 1);
    call_with(context, 2);
    call_with(context, 1);
    CHECK(stats_of(context).built == 2);
    call_with(context, 3); /* 2 goes */
    CHECK(stats_of(context).plans == 2 && stats_of(context).dropped == 1);
    call_with(context, 1);
    call_with(context, 3);
    CHECK(stats_of(context).built == 3);
    call_with(context, 2); /* 1 goes */
    call_with(context, 3);
    CHECK(stats_of(context).built == 4 && stats_of(context).dropped == 2);
    configure(context, 1, 0);
    CHECK(stats_of(context).plans == 1);
    call_with(context, 3);
    CHECK(stats_of(context).built == 4);
    configure(context, 0, 1); /* one is kept, whatever it takes */
    CHECK(stats_of(context).plans == 1 && stats_of(context).bytes > 1);
    call_with(context, 3);
    CHECK(stats_of(context).built == 4);
    call_with(context, 4);
    CHECK(stats_of(context).plans == 1);
    configure(context, WEFT_PLANS_NONE, 0);
    CHECK(stats_of(context).plans == 0 && stats_of(context).bytes == 0);
    call_with(context, 4);
    call_with(context, 4);
    CHECK(stats_of(context).built == 7 && stats_of(context).plans == 0);
    CHECK(stats_of(context).calls == 13);
}

Test(blocking, what_was_used_longest_ago_goes_first)
{
    ranks_run_once(use_longest_ago, 1, NULL);
    ranks_run_once(use_longest_ago, 3, NULL);
}

/* The lists are what the call sees in them, wherever they lie. */
static void change_lists(struct ranks *ranks, struct weft_context *context, int rank)
{
    size_t counts[8], places[8];
    int64_t mine[4] = {rank, rank, rank, rank}, all[64];
    for (size_t turn = 0; turn < 24; turn++) {
        for (size_t r = 0; r < 8; r++) {
            counts[r] = 1 + (turn / 6 + r) % 3;
            places[r] = 8 * r + turn % 4;
        }
        memset(all, 0xff, sizeof all);
        OK(weft_allgatherv(context, mine, all, counts, places, WEFT_I64));
        for (int64_t i = 0; i < 64; i++) {
            size_t at = (size_t)i % 8, of = (size_t)i / 8;
            int is_in = (int)of < ranks->size && at >= turn % 4 && at < turn % 4 + counts[of];
            CHECK(all[i] == (is_in ? i / 8 : -1));
        }
    }
    CHECK(stats_of(context).built == 3);
}

Test(blocking, lists_may_change_where_they_are)
{
    ranks_run_once(change_lists, 1, NULL);
    ranks_run_once(change_lists, 5, NULL);
}

static void keep_memory_flat(struct ranks *ranks, struct weft_context *context, int rank)
{
    size_t *before = ranks->user;
    configure(context, 3, 0);
    for (int i = 0; i < MANY; i++) {
        int64_t in = 1, out;
        int wrong = rank == i / 32 % 2;
        if (i % 32 == 0) /* some fail, on one rank after the other */
            CHECK(weft_allreduce(context, &in, &out, 1, WEFT_I64,
                                 wrong ? NULL : weft_op_builtin(WEFT_SUM)) ==
                  (wrong ? WEFT_ERR_INVALID : WEFT_ERR_PEER));
        call_with(context, 1 + (size_t)i % 4 / 3 + (i % 64 == 0 ? (size_t)i / 64 % 4 : 0));
        if (i == MANY / 10) {
            ranks_meet(ranks);
            if (rank == 0)
                *before = mallinfo2().uordblks;
            ranks_meet(ranks);
        }
    }
    ranks_meet(ranks);
    if (rank == 0 && mallinfo2().uordblks > *before + 65536) {
        fprintf(stderr, "%zu bytes, then %zu\n", *before, mallinfo2().uordblks);
        abort();
    }
    ranks_meet(ranks);
}

Test(blocking, many_calls_keep_memory_flat)
{
    size_t before = 0;
    ranks_run_once(keep_memory_flat, 2, &before);
}

/* ---- operations ---- */

static void free_after_the_call(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)ranks;
    for (int i = 0; i < 20; i++) {
        struct weft_op *op = affine_op();
        struct affine x = {3, (uint32_t)rank}, y = {0, 0}, expected = {3, 0};
        weft_dtype_t dtype = weft_dtype_opaque(sizeof x);
        OK(weft_allreduce(context, &x, &y, 1, dtype, op));
        weft_op_destroy(op);
        for (int r = 1; r < weft_context_size(context); r++) {
            struct affine next = {3, (uint32_t)r};
            affine_compose(NULL, &expected, &expected, &next, 1, dtype);
        }
        CHECK(y.a == expected.a && y.b == expected.b);
    }
    CHECK(stats_of(context).built == 20); /* each is another one */
}

Test(blocking, an_operation_may_go_after_its_call)
{
    ranks_run_once(free_after_the_call, 1, NULL);
    ranks_run_once(free_after_the_call, 5, NULL);
}

static int calls_again(void *user, void *dst, const void *a, const void *b, size_t count,
                       weft_dtype_t dtype)
{
    struct weft_context *context = user;
    int64_t out;
    (void)dst, (void)a, (void)b, (void)count, (void)dtype;
    int status = allreduce_one(context, 1, &out);
    return status ? status : WEFT_ERR_COMPUTE;
}

static void recurse(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    int64_t in = 1, out;
    (void)ranks;
    weft_op_config_init(&config);
    config.name = "recursive";
    config.reduce = calls_again;
    config.user = context;
    OK(weft_op_create(&op, &config));
    int status = weft_reduce(context, &in, &out, 1, WEFT_I64, op, 0);
    if (rank == 0) {
        CHECK(status == WEFT_ERR_COMPUTE || status == WEFT_ERR_STATE);
        CHECK_TEXT(weft_error_text(), "is in another call");
    }
    weft_op_destroy(op);
    still_in_step(context);
}

Test(blocking, a_call_from_within_a_call_is_refused)
{
    ranks_run_once(recurse, 2, NULL);
}

/* ---- failing ---- */

enum fault {
    NO_DTYPE,
    NO_OP,
    BAD_OP,
    BAD_ROOT,
    HUGE_COUNT,
    NO_BUFFER,
    ALIAS,
    IN_PLACE_NOT_ON_ROOT,
    IN_PLACE_BOTH,
    NO_COUNTS,
    OVERLAP,
    OWN_COUNT,
    HUGE_COUNTS,
    FAULTS
};

static const char *const fault_texts[FAULTS] = {
    [NO_DTYPE] = "weft_allreduce: argument `dtype` is 77, expected a datatype",
    [NO_OP] = "weft_allreduce: argument `op` is NULL",
    [BAD_OP] = "weft_allreduce: argument `op` is band, expected an operation that reduces f32",
    [BAD_ROOT] = "weft_broadcast: argument `root` is -1, expected 0..",
    [HUGE_COUNT] = "weft_allreduce: argument `count` is 4611686018427387904, expected at most",
    [NO_BUFFER] = "weft_allreduce: argument `recv` is NULL, expected 4 elements",
    [ALIAS] = "or WEFT_IN_PLACE for `send`",
    [IN_PLACE_NOT_ON_ROOT] = "weft_gather: argument `send` is WEFT_IN_PLACE, expected a buffer: it "
                             "may be that on the root only",
    [IN_PLACE_BOTH] = "weft_allreduce: argument `recv` is WEFT_IN_PLACE, expected a buffer",
    [NO_COUNTS] = "weft_allgatherv: argument `counts` is NULL, expected",
    [OVERLAP] = "weft_allgatherv: weft_run_bind_blocks: displacements[",
    [OWN_COUNT] = "weft_gatherv: argument `send_count` is 3, expected 2 as counts[",
    [HUGE_COUNTS] = "weft_allgatherv: allgatherv: counts["};

static int call_wrongly(struct weft_context *context, enum fault fault, int root)
{
    const struct weft_op *sum = weft_op_builtin(WEFT_SUM);
    float x[16] = {0}, y[64] = {0};
    size_t counts[16], places[16], huge[16];
    for (size_t r = 0; r < 16; r++) {
        counts[r] = 2;
        places[r] = r;
        huge[r] = r == 0 ? SIZE_MAX / 2 : 0;
    }
    switch (fault) {
    case NO_COUNTS:
        return weft_allgatherv(context, x, y, NULL, NULL, WEFT_F32);
    case OVERLAP:
        return weft_allgatherv(context, x, y, counts, places, WEFT_F32);
    case OWN_COUNT:
        return weft_gatherv(context, x, 3, y, counts, NULL, WEFT_F32, root);
    case HUGE_COUNTS:
        return weft_allgatherv(context, x, y, huge, NULL, WEFT_F32);
    case NO_DTYPE:
        return weft_allreduce(context, x, y, 4, (weft_dtype_t)77, sum);
    case NO_OP:
        return weft_allreduce(context, x, y, 4, WEFT_F32, NULL);
    case BAD_OP:
        return weft_allreduce(context, x, y, 4, WEFT_F32, weft_op_builtin(WEFT_BAND));
    case BAD_ROOT:
        return weft_broadcast(context, x, 4, WEFT_F32, -1);
    case HUGE_COUNT:
        return weft_allreduce(context, x, y, (size_t)1 << 62, WEFT_F32, sum);
    case NO_BUFFER:
        return weft_allreduce(context, x, NULL, 4, WEFT_F32, sum);
    case ALIAS:
        return weft_allreduce(context, x, x, 4, WEFT_F32, sum);
    case IN_PLACE_NOT_ON_ROOT:
        return weft_gather(context, WEFT_IN_PLACE, y, 4, WEFT_F32, root);
    default:
        return weft_allreduce(context, x, WEFT_IN_PLACE, 4, WEFT_F32, sum);
    }
}

static int call_rightly(struct weft_context *context, enum fault fault, int root)
{
    float x[16] = {0}, y[64] = {0};
    size_t counts[16];
    for (size_t r = 0; r < 16; r++)
        counts[r] = 2;
    if (fault == NO_COUNTS || fault == OVERLAP || fault == HUGE_COUNTS)
        return weft_allgatherv(context, x, y, counts, NULL, WEFT_F32);
    if (fault == OWN_COUNT)
        return weft_gatherv(context, x, 2, y, counts, NULL, WEFT_F32, root);
    if (fault == BAD_ROOT)
        return weft_broadcast(context, x, 4, WEFT_F32, root);
    if (fault == IN_PLACE_NOT_ON_ROOT)
        return weft_gather(context, x, y, 4, WEFT_F32, root);
    return weft_allreduce(context, x, y, 4, WEFT_F32, weft_op_builtin(WEFT_SUM));
}

/* On one rank after the other each fault, while the others call as they should. */
static int fail_one(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    (void)user;
    for (int fault = 0; fault < FAULTS; fault++)
        for (int culprit = 0; culprit < size; culprit++) {
            int root = fault == OWN_COUNT ? culprit : (culprit + 1) % size;
            if (size == 1 && (fault == IN_PLACE_NOT_ON_ROOT || fault == OVERLAP))
                continue;
            if (rank == culprit) {
                CHECK_STATUS(call_wrongly(context, (enum fault)fault, root), WEFT_ERR_INVALID);
                CHECK_TEXT(weft_error_text(), fault_texts[fault]);
            } else {
                int status = call_rightly(context, (enum fault)fault, root);
                char who[32];
                snprintf(who, sizeof who, "rank %d failed", culprit);
                /* A tree's root may need nothing of it, or a leaf. */
                int needed = fault != BAD_ROOT && fault != OWN_COUNT &&
                             (fault != IN_PLACE_NOT_ON_ROOT || rank == root);
                CHECK(status == WEFT_ERR_PEER || (!needed && status == WEFT_OK));
                if (status) {
                    CHECK_TEXT(weft_error_text(), who);
                    CHECK_TEXT(weft_error_text(), fault_texts[fault]);
                }
            }
            if (fault % 2)
                still_in_step(context);
        }
    for (int i = 0; i < 3; i++)
        still_in_step(context);
    return WEFT_OK;
}

static void fail_one_locally(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    fail_one(context, ranks->user);
}

Test(blocking, an_argument_of_one_rank_fails_that_call_on_all_that_need_it)
{
    for (int i = 0; i < SIZES; i++)
        ranks_run_each_way(fail_one_locally, sizes[i], NULL);
}

Test(blocking, the_same_on_virtual_ranks)
{
    for (unsigned seed = 0; seed < SWEPT(32, 6); seed++) {
        struct weft_virtual_config config = with_delays(seed, 20000, 0.2, 500000);
        struct weft_net net;
        if (seed / SIZES % 2) { /* every message waits for its receive */
            give_net(&config, &net);
            net.S = 1;
        }
        OK(weft_virtual_run(sizes[seed % SIZES], &config, fail_one, NULL));
    }
}

/* ---- any of it, drawn from a seed ---- */

static uint64_t drawn(uint64_t seed, uint64_t what, uint64_t below)
{
    uint64_t x = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + what * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 31)) * UINT64_C(0x94d049bb133111eb);
    x = (x ^ (x >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (x ^ (x >> 32)) % below;
}

/* One rank has a wrong argument, the others may have needed it or not. */
static void fault_step(struct weft_context *context, uint64_t seed, uint64_t step)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    int culprit = (int)drawn(seed, step * 16 + 1, (uint64_t)size);
    int root = (culprit + 1) % size;
    enum fault fault = (enum fault)drawn(seed, step * 16 + 2, FAULTS);
    if (size == 1 || fault == OWN_COUNT) /* those two depend on who the root is */
        fault = NO_DTYPE;
    int status =
        rank == culprit ? call_wrongly(context, fault, root) : call_rightly(context, fault, root);
    CHECK(status == (rank == culprit ? WEFT_ERR_INVALID : WEFT_ERR_PEER) ||
          (rank != culprit && status == WEFT_OK));
    if (status)
        CHECK_TEXT(weft_error_text(), fault_texts[fault]);
}

static int random_steps(struct weft_context *context, void *user)
{
    static const size_t counts[] = {0, 1, 5, 37, 3000};
    uint64_t seed = *(const uint64_t *)user;
    int rank = weft_context_rank(context), size = weft_context_size(context);
    configure(context, (size_t)drawn(seed, 7 + (uint64_t)rank, 4), 0);
    for (uint64_t step = 0; step < 60; step++) {
        uint64_t what = step * 16;
        if (drawn(seed, what, 4) == 0) {
            fault_step(context, seed, step);
            continue;
        }
        struct blocking_cell cell = {.function =
                                         (enum blocking_function)drawn(seed, what + 3, DO_COUNT),
                                     .dtype = (weft_dtype_t)drawn(seed, what + 4, WEFT_DTYPE_COUNT),
                                     .count = counts[drawn(seed, what + 5, 5)],
                                     .root = (int)drawn(seed, what + 6, (uint64_t)size),
                                     .in_place = (int)drawn(seed, what + 7, 2),
                                     .salt = (unsigned)drawn(seed, what + 8, 2)};
        cell.op = blocking_reduces(cell.function) ? weft_op_builtin(WEFT_MAX) : NULL;
        if (cell.function >= DO_ALLGATHERV && cell.count > 37)
            cell.count = 37;
        CHECK(!blocking_do(context, &cell));
    }
    still_in_step(context);
    return WEFT_OK;
}

Test(blocking, any_calls_and_faults_on_virtual_ranks)
{
    for (uint64_t seed = 0; seed < 60 / STRIDE + 4; seed++) {
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

Test(blocking, any_calls_and_faults_on_local_ranks)
{
    for (uint64_t seed = 100; seed < SWEPT(112, 22); seed++)
        ranks_run_each_progress(random_steps_locally, 2 + (int)(seed % 5), &seed);
}

static void fail_on_all(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)ranks, (void)rank;
    for (int i = 0; i < 5; i++) {
        CHECK_STATUS(call_wrongly(context, BAD_OP, 0), WEFT_ERR_INVALID);
        CHECK_TEXT(weft_error_text(), fault_texts[BAD_OP]);
    }
    still_in_step(context);
    CHECK(weft_sequence_next(context) == 6);
}

Test(blocking, an_argument_that_is_wrong_everywhere_says_so_everywhere)
{
    ranks_run_each_progress(fail_on_all, 5, NULL);
}

static void come_late(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_collectives_config config;
    int64_t out;
    weft_collectives_config_init(&config);
    config.deadline_ns = 20000000;
    still_in_step(context);
    if (rank == 0)
        OK(weft_collectives_configure(context, &config));
    if (rank == 1)
        ranks_meet(ranks); /* until 0 has given up */
    int status = allreduce_one(context, 1, &out);
    CHECK_STATUS(status, rank == 0 ? WEFT_ERR_TIMEOUT : WEFT_ERR_PEER);
    if (rank == 0)
        OK(weft_collectives_configure(context, NULL));
    if (rank != 1)
        ranks_meet(ranks);
    for (int i = 0; i < 3; i++)
        still_in_step(context);
}

Test(blocking, a_call_has_a_deadline)
{
    ranks_run_once(come_late, 2, NULL);
}

static void abort_context(struct ranks *ranks, struct weft_context *context, int rank)
{
    int64_t out;
    still_in_step(context);
    ranks_meet(ranks); /* who has ended a call knows nothing of whether others have */
    if (rank == 1)
        OK(weft_context_abort(context, WEFT_ERR_IO, "no disk"));
    CHECK_STATUS(allreduce_one(context, 1, &out), rank == 1 ? WEFT_ERR_IO : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "no disk");
}

Test(blocking, a_context_that_is_aborted_fails_its_calls)
{
    ranks_run_once(abort_context, 3, NULL);
}

/* ---- memory ---- */

enum { MOST_ALLOCATIONS = 400 };

static void count_failure(int status, atomic_int *failures)
{
    if (!status)
        return;
    CHECK(status == WEFT_ERR_MEMORY || status == WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "memory");
    atomic_fetch_add(failures, 1);
}

/* One thread after the other has the n-th allocation fail: virtual ranks are one thread. */
static int live(struct weft_context *context, void *user)
{
    static const int64_t mine[4] = {1, 2, 3, 4};
    int64_t out[4];
    atomic_int *failures = user;
    for (size_t count = 1; count <= 4; count++) {
        int status = weft_allreduce(context, mine, out, count, WEFT_I64, weft_op_builtin(WEFT_SUM));
        count_failure(status, failures);
    }
    for (size_t turn = 0; turn < 3; turn++) {
        const size_t counts[3] = {1, turn / 2, 2}, places[3] = {3, 2, 0};
        count_failure(weft_allgatherv(context, mine, out, counts, turn ? places : NULL, WEFT_I64),
                      failures);
    }
    still_in_step(context);
    return WEFT_OK;
}

Test(blocking, without_memory_a_call_fails_and_the_next_is_in_step)
{
    atomic_int failures = 0;
    int reached = 0;
    for (long n = 1; n < MOST_ALLOCATIONS; n += SWEPT(1, 4)) {
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

/* ---- contexts that were split ---- */

/* In two halves at once, and in the whole between: each has calls of its own. */
static int split_and_call(struct weft_context *context, void *user)
{
    const unsigned *seed = user;
    struct weft_context *half = NULL;
    int rank = weft_context_rank(context);
    still_in_step(context);
    OK(weft_context_split(context, rank % 2, -rank, &half));
    CHECK(!blocking_sweep(half, 37 * STRIDE, *seed + (unsigned)rank % 2));
    still_in_step(context);
    if (rank % 2)
        fail_one(half, NULL);
    else
        still_in_step(half);
    still_in_step(context);
    CHECK(!blocking_sweep(half, 41 * STRIDE, *seed));
    OK(weft_context_destroy(half)); /* with what is kept */
    still_in_step(context);
    return WEFT_OK;
}

static void split_locally(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    split_and_call(context, ranks->user);
}

Test(blocking, contexts_that_were_split_have_calls_of_their_own)
{
    unsigned seed = 3;
    for (int i = 0; i < SIZES; i++)
        ranks_run_each_progress(split_locally, sizes[i], &seed);
}

Test(blocking, split_on_virtual_ranks)
{
    for (unsigned seed = 0; seed < 16; seed++) {
        struct weft_virtual_config config = with_delays(seed, 20000, 0.2, 500000);
        OK(weft_virtual_run(sizes[seed % SIZES], &config, split_and_call, &seed));
    }
}

/* ---- company ---- */

static void in_company(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_object *object = NULL;
    int64_t in[5], out[5];
    (void)ranks;
    if (rank % 2) /* the first call is no object: it may be anywhere among those */
        still_in_step(context);
    struct weft_run *mine = allreduce(context, 5);
    OK(weft_object_create(&object, context, NULL));
    if (rank % 2 == 0)
        still_in_step(context);
    struct weft_run *other = allreduce(context, 5);
    for (int64_t i = 0; i < 5; i++)
        in[i] = i + rank;
    OK(bind_name(mine, "send", in));
    OK(bind_name(mine, "recv", out));
    OK(weft_run_start(mine));
    still_in_step(context); /* while a run is under way */
    OK(weft_run_wait(mine, WEFT_NEVER));
    int64_t size = weft_context_size(context);
    for (int64_t i = 0; i < 5; i++)
        CHECK(out[i] == i * size + size * (size - 1) / 2);
    weft_run_destroy(other);
    weft_run_destroy(mine);
    weft_object_destroy(object);
    still_in_step(context);
}

Test(blocking, other_runs_and_objects_of_the_context)
{
    ranks_run_each_progress(in_company, 4, NULL);
}

/* Steps of the program's own are in the same sequence: one at a time. */
static void among_steps(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run_config config;
    struct weft_schedule *s = new_schedule(rank, ranks->size);
    weft_node_t event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    int64_t out;
    weft_run_config_init(&config);
    config.sequence = 1;
    struct weft_run *held = make_run(context, commit(s), &config);
    still_in_step(context);
    OK(weft_run_start(held));
    CHECK_STATUS(allreduce_one(context, 1, &out), WEFT_ERR_STATE);
    CHECK(weft_sequence_next(context) == 2);
    OK(weft_run_fire(held, event));
    OK(weft_run_wait(held, WEFT_NEVER));
    still_in_step(context);
    CHECK(weft_sequence_next(context) == 3);
    weft_run_destroy(held);
    still_in_step(context);
}

Test(blocking, steps_of_the_program_are_in_the_same_sequence)
{
    ranks_run_each_progress(among_steps, 3, NULL);
}

struct caller {
    struct weft_context *context;
    atomic_int calls;
};

static void *call_in_a_thread(void *argument)
{
    struct caller *caller = argument;
    for (int i = 0; i < 200; i++) {
        still_in_step(caller->context);
        atomic_fetch_add(&caller->calls, 1);
    }
    return NULL;
}

/* All threads make the same calls: the order does not matter then. */
static void call_from_threads(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct caller caller = {.context = context};
    pthread_t threads[3];
    (void)ranks, (void)rank;
    for (int t = 0; t < 3; t++)
        CHECK(pthread_create(&threads[t], NULL, call_in_a_thread, &caller) == 0);
    for (int t = 0; t < 3; t++)
        CHECK(pthread_join(threads[t], NULL) == 0);
    CHECK(caller.calls == 600);
}

Test(blocking, threads_call_one_after_the_other)
{
    ranks_run_each_progress(call_from_threads, 2, NULL);
}
