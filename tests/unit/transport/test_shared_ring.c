/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rings of the channel, with ranks as threads over one mapping: what is eager, control
 * messages, rings that are full, ranks that run ahead, leave, and write what cannot be.
 */
#include <criterion/criterion.h>

#include "tests/support/mapped_ranks.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 1500, AHEAD = 700 };
#else
enum { ROUNDS = 10000, AHEAD = 1000 };
#endif

static void run(ranks_fn fn, int size, void *user, weft_progress_t progress)
{
    struct ranks ranks;
    ranks_init(&ranks, size, fn, user);
    ranks.config.progress = progress;
    mapped_run(&ranks, 0, 0);
}

static void run_each(ranks_fn fn, int size, void *user)
{
    run(fn, size, user, WEFT_PROGRESS_CALLER);
    run(fn, size, user, WEFT_PROGRESS_HELPER);
}

/* ---- what arrives ---- */

static void sum_often(struct ranks *ranks, struct weft_context *context, int rank)
{
    int64_t size = ranks->size;
    int rounds = ROUNDS / ranks->size;
    for (int64_t i = 0; i < rounds; i++) {
        int64_t in = i + rank, out = 0;
        OK(weft_allreduce(context, &in, &out, 1, WEFT_I64, weft_op_builtin(WEFT_SUM)));
        CHECK(out == size * i + size * (size - 1) / 2);
    }
}

/* Counters of rings wrap within the first hundred messages. */
Test(shared_ring, sums_of_many_rounds)
{
    static const int sizes[] = {1, 2, 3, 4, 8, 16, 17, 33};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        run_each(sum_often, sizes[i], NULL);
}

/* Around the limits of a line, of the lines of a payload, of what is eager; and beyond it. */
static const size_t lengths[] = {0,   1,   31,  32,  33,   63,   64,   65,   127,    128,
                                 255, 256, 257, 400, 4096, 8191, 8192, 8193, 100000, 300000};
enum { LENGTHS = sizeof lengths / sizeof lengths[0], ALL = 500000 };

/* Each rank sends a message of each length to the next one. */
static struct weft_plan *round_about(int rank, int size)
{
    struct weft_schedule *s = new_schedule(rank, size);
    weft_slot_t in = weft_schedule_add_slot(s, "in", WEFT_U8, ALL, WEFT_SLOT_INPUT);
    weft_slot_t out = weft_schedule_add_slot(s, "out", WEFT_U8, ALL, WEFT_SLOT_OUTPUT);
    size_t at = 0;
    for (uint32_t i = 0; i < LENGTHS; i++) {
        weft_schedule_add_send(s, weft_region_at(in, at, lengths[i]), (rank + 1) % size, i);
        weft_schedule_add_recv(s, weft_region_at(out, at, lengths[i]), (rank + size - 1) % size, i);
        at += lengths[i];
    }
    CHECK(at <= ALL);
    return commit(s);
}

static unsigned char pattern(int rank, int round, size_t at)
{
    return (unsigned char)((size_t)rank * 7 + (size_t)round * 31 + at * 13 + at / 251);
}

static void send_round_about(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run *run = make_run(context, round_about(rank, ranks->size), NULL);
    unsigned char *in = malloc(ALL), *out = malloc(ALL);
    size_t used = 0;
    int left = (rank + ranks->size - 1) % ranks->size;
    CHECK(in && out);
    for (int i = 0; i < LENGTHS; i++)
        used += lengths[i];
    OK(weft_run_bind(run, 0, in, ALL, WEFT_U8));
    OK(weft_run_bind(run, 1, out, ALL, WEFT_U8));
    for (int round = 0; round < ROUNDS / 500; round++) {
        for (size_t at = 0; at < used; at++)
            in[at] = pattern(rank, round, at);
        memset(out, 0, ALL);
        OK(weft_run_execute(run));
        for (size_t at = 0; at < used; at++)
            CHECK(out[at] == pattern(left, round, at));
    }
    weft_run_destroy(run);
    free(in);
    free(out);
}

Test(shared_ring, messages_of_all_lengths_to_others_and_to_oneself)
{
    static const int sizes[] = {1, 2, 3, 18};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        run_each(send_round_about, sizes[i], NULL);
}

/* Nothing eager; one message ahead; all of them eager, and few bytes ahead. */
Test(shared_ring, messages_of_all_lengths_with_little_credit)
{
    static const size_t limits[][2] = {{WEFT_EAGER_NONE, 0}, {0, 1}, {(size_t)1 << 20, 3000}};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        for (int size = 1; size <= 3; size++) {
            struct ranks ranks;
            ranks_init(&ranks, size, send_round_about, NULL);
            mapped_run(&ranks, limits[i][0], limits[i][1]);
            ranks.config.progress = WEFT_PROGRESS_HELPER;
            mapped_run(&ranks, limits[i][0], limits[i][1]);
        }
}

/* ---- rings that are full ---- */

enum { FLOOD = 1000 };

/* Both send a thousand messages of `count` elements before they take one. */
static struct weft_plan *flood(int rank, size_t count)
{
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t in = weft_schedule_add_slot(s, "in", WEFT_I64, FLOOD + count, WEFT_SLOT_INPUT);
    weft_slot_t out = weft_schedule_add_slot(s, "out", WEFT_I64, FLOOD * count, WEFT_SLOT_OUTPUT);
    for (uint32_t i = 0; i < FLOOD; i++)
        weft_schedule_add_send(s, weft_region_at(in, i, count), 1 - rank, i);
    for (uint32_t i = 0; i < FLOOD; i++)
        weft_schedule_add_recv(s, weft_region_at(out, i * count, count), 1 - rank, i);
    return commit(s);
}

static void flood_both(struct ranks *ranks, struct weft_context *context, int rank)
{
    size_t count = *(const size_t *)ranks->user;
    struct weft_run *run = make_run(context, flood(rank, count), NULL);
    int64_t *in = malloc((FLOOD + count) * sizeof *in);
    int64_t *out = malloc(FLOOD * count * sizeof *out);
    CHECK(in && out);
    OK(weft_run_bind(run, 0, in, FLOOD + count, WEFT_I64));
    OK(weft_run_bind(run, 1, out, FLOOD * count, WEFT_I64));
    for (int64_t round = 0; round < 10; round++) {
        for (size_t i = 0; i < FLOOD + count; i++)
            in[i] = (int64_t)i * 10 + round;
        OK(weft_run_execute(run));
        for (size_t i = 0; i < FLOOD; i++)
            for (size_t k = 0; k < count; k++)
                CHECK(out[i * count + k] == (int64_t)(i + k) * 10 + round);
    }
    weft_run_destroy(run);
    free(in);
    free(out);
}

Test(shared_ring, both_rings_full_at_once)
{
    size_t one = 1, some = 25;
    run_each(flood_both, 2, &one);
    run_each(flood_both, 2, &some);
}

/* A rank goes on while its peer does not: what is early is kept by the peer's helper. */
static void run_ahead(struct ranks *ranks, struct weft_context *context, int rank)
{
    const size_t count = *(const size_t *)ranks->user;
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, count,
                                              rank == 0 ? WEFT_SLOT_INPUT : WEFT_SLOT_OUTPUT);
    if (rank == 0)
        weft_schedule_add_send(s, weft_region_at(slot, 0, count), 1, 0);
    else
        weft_schedule_add_recv(s, weft_region_at(slot, 0, count), 0, 0);
    struct weft_run *run = make_run(context, commit(s), NULL);
    int64_t *x = calloc(count, sizeof *x);
    CHECK(x);
    OK(weft_run_bind(run, 0, x, count, WEFT_I64));
    if (rank == 1)
        ranks_meet(ranks);
    for (int64_t i = 0; i < AHEAD; i++) {
        x[count - 1] = rank == 0 ? i : -1;
        OK(weft_run_execute(run));
        CHECK(x[count - 1] == i);
    }
    if (rank == 0)
        ranks_meet(ranks);
    weft_run_destroy(run);
    free(x);
}

Test(shared_ring, a_rank_that_is_far_ahead_waits_for_nobody)
{
    size_t one = 1, forty = 40;
    run(run_ahead, 2, &one, WEFT_PROGRESS_HELPER);
    run(run_ahead, 2, &forty, WEFT_PROGRESS_HELPER);
}

/* ---- two ranks in one thread ---- */

struct two {
    struct mapped mapped;
    struct weft_context *contexts[2];
    struct weft_run *runs[2];
    int64_t values[2];
};

/* Rank 0 signals channel 3 of rank 1 and sends it a value. */
static struct weft_plan *signal_and_send(int rank)
{
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t slot =
        weft_schedule_add_slot(s, "x", WEFT_I64, 1, rank == 0 ? WEFT_SLOT_INPUT : WEFT_SLOT_OUTPUT);
    struct weft_region x = weft_region_at(slot, 0, 1);
    if (rank == 0) {
        weft_schedule_add_signal(s, 1, 3);
        weft_schedule_add_send(s, x, 1, 0);
    } else {
        weft_schedule_add_event(s, 3);
        weft_schedule_add_recv(s, x, 0, 0);
    }
    return commit(s);
}

static void two_open(struct two *two)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_CALLER;
    mapped_create(&two->mapped, 2, 0, 0);
    for (int r = 0; r < 2; r++) {
        two->contexts[r] = mapped_context(&two->mapped, r, &config);
        two->runs[r] = make_run(two->contexts[r], signal_and_send(r), NULL);
        two->values[r] = -1;
        OK(weft_run_bind(two->runs[r], 0, &two->values[r], 1, WEFT_I64));
    }
}

static void two_close(struct two *two)
{
    for (int r = 0; r < 2; r++) {
        weft_run_destroy(two->runs[r]);
        weft_context_destroy(two->contexts[r]);
    }
    mapped_destroy(&two->mapped);
}

static void expect_value(struct two *two, int64_t value)
{
    two->values[1] = -1;
    OK(weft_run_execute(two->runs[1]));
    CHECK(two->values[1] == value);
}

Test(shared_ring, a_message_for_which_there_is_no_memory_comes_later)
{
    struct two two;
    two_open(&two);
    for (int64_t i = 0; i < 80; i++) {
        two.values[0] = i;
        OK(weft_run_execute(two.runs[0]));
        atomic_store(&weft__alloc_countdown, 1);
        weft_context_progress(two.contexts[1]);
        atomic_store(&weft__alloc_countdown, -1);
    }
    for (int64_t i = 0; i < 80; i++)
        expect_value(&two, i);
    two_close(&two);
}

/* As many as one likes, since signals wait for nobody; in their order. */
Test(shared_ring, thousands_of_signals_wait_for_room)
{
    struct two two;
    two_open(&two);
    struct weft_schedule *s = new_schedule(0, 2);
    for (uint32_t i = 0; i < 5000; i++)
        weft_schedule_add_signal(s, 1, 10 + i);
    struct weft_run *many = make_run(two.contexts[0], commit(s), NULL);
    s = new_schedule(1, 2);
    for (uint32_t i = 0; i < 5000; i++)
        weft_schedule_add_event(s, 10 + i);
    struct weft_run *heard = make_run(two.contexts[1], commit(s), NULL);
    OK(weft_run_execute(many));
    OK(weft_run_start(heard));
    int status;
    while ((status = weft_run_wait(heard, 0)) == WEFT_IN_PROGRESS) {
        weft_context_progress(two.contexts[1]);
        weft_context_progress(two.contexts[0]);
    }
    OK(status);
    weft_run_destroy(many);
    weft_run_destroy(heard);
    two_close(&two);
}

Test(shared_ring, a_send_that_waits_for_room_can_be_taken_back)
{
    struct two two;
    two_open(&two);
    two.values[0] = 5;
    int sent = 0;
    /* Two lines each, until they do not fit any more. */
    for (;; sent++) {
        OK(weft_run_start(two.runs[0]));
        if (weft_run_wait(two.runs[0], 0) == WEFT_IN_PROGRESS)
            break;
    }
    CHECK(sent > 50);
    OK(weft_run_cancel(two.runs[0]));
    CHECK_STATUS(weft_run_wait(two.runs[0], WEFT_NEVER), WEFT_ERR_CANCELLED);
    OK(weft_run_reclaim(two.runs[0]));
    for (int i = 0; i < sent; i++)
        expect_value(&two, 5);
    /* There was room for its failure, though nobody drives who has sent it. */
    CHECK_STATUS(weft_run_execute(two.runs[1]), WEFT_ERR_PEER);
    /* What comes next is in step. */
    OK(weft_run_execute(two.runs[0]));
    expect_value(&two, 5);
    two_close(&two);
}

/* ---- leaving ---- */

static void *destroy_first(void *argument)
{
    struct two *two = argument;
    weft_run_destroy(two->runs[0]);
    weft_context_destroy(two->contexts[0]);
    two->contexts[0] = NULL;
    two->runs[0] = NULL;
    return NULL;
}

Test(shared_ring, who_leaves_has_sent_everything_before)
{
    struct two two;
    two_open(&two);
    struct weft_schedule *s = new_schedule(0, 2);
    for (uint32_t i = 0; i < 900; i++)
        weft_schedule_add_signal(s, 1, 3);
    struct weft_run *many = make_run(two.contexts[0], commit(s), NULL);
    pthread_t thread;
    two.values[0] = 8;
    OK(weft_run_execute(two.runs[0]));
    OK(weft_run_execute(many));
    weft_run_destroy(many);
    /* Its signals do not fit into the ring: it waits until they are taken. */
    CHECK(pthread_create(&thread, NULL, destroy_first, &two) == 0);
    expect_value(&two, 8);
    CHECK_STATUS(weft_run_execute(two.runs[1]), WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "rank 0 has left");
    CHECK(pthread_join(thread, NULL) == 0);
    two_close(&two);
}

Test(shared_ring, nothing_is_sent_to_who_has_closed)
{
    struct two two;
    two_open(&two);
    weft_run_destroy(two.runs[1]);
    weft_context_destroy(two.contexts[1]);
    two.runs[1] = NULL;
    two.contexts[1] = NULL;
    CHECK_STATUS(weft_run_execute(two.runs[0]), WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "rank 1");
    two_close(&two);
}
