/* SPDX-License-Identifier: BSD-3-Clause */
/* What a run means: restarts, versions, messages, bindings, groups, callbacks. */
#include <criterion/criterion.h>

#include "support/ranks.h"
#include "tests/support/bind.h"
#include "tests/support/transfer.h"

static const struct weft_op *sum(void)
{
    return weft_op_builtin(WEFT_SUM);
}

/* A ring: every rank sends x[0] to the next and receives x[1] from the one before. */
static struct weft_plan *ring(int rank, int size, size_t count)
{
    struct weft_schedule *s = new_schedule(rank, size);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I64, 2 * count, WEFT_SLOT_INOUT);
    weft_schedule_add_send(s, weft_region_at(x, 0, count), (rank + 1) % size, 0);
    weft_schedule_add_recv(s, weft_region_at(x, count, count), (rank + size - 1) % size, 0);
    return commit(s);
}

static const int sizes[] = {1, 2, 3, 5, 7, 8, 13, 16};

/* ---- restarts and versions ---- */

static void restart(struct ranks *ranks, struct weft_context *context, int rank)
{
    size_t count = *(size_t *)ranks->user;
    int64_t *x = calloc(2 * count, sizeof *x);
    int before = (rank + ranks->size - 1) % ranks->size;
    struct weft_run *run = make_run(context, ring(rank, ranks->size, count), NULL);
    CHECK(weft_run_version(run) == UINT64_MAX);
    OK(bind_slot(run, 0, x));
    for (int64_t i = 0; i < 50; i++) {
        for (size_t k = 0; k < count; k++)
            x[k] = rank * 1000000 + i * 1000 + (int64_t)k;
        OK(weft_run_execute(run));
        for (size_t k = 0; k < count; k++)
            CHECK(x[count + k] == before * 1000000 + i * 1000 + (int64_t)k);
        CHECK(weft_run_version(run) == (uint64_t)i);
    }
    weft_run_destroy(run);
    free(x);
}

Test(run, a_run_is_restarted_with_other_data)
{
    size_t counts[] = {1, 100, 3000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        ranks_run_each_way(restart, sizes[i], &counts[i % 3]);
}

enum { FLIGHT = 6 };

static void in_flight(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run *runs[FLIGHT];
    int64_t x[FLIGHT][2];
    int before = (rank + ranks->size - 1) % ranks->size;
    struct weft_plan *plan = ring(rank, ranks->size, 1);
    for (int f = 0; f < FLIGHT; f++) {
        OK(weft_run_create(&runs[f], context, plan, NULL));
        OK(bind_slot(runs[f], 0, x[f]));
    }
    weft_plan_destroy(plan);
    for (int64_t i = 0; i < 30; i++) {
        for (int k = 0; k < FLIGHT; k++) {
            int f = (k + rank) % FLIGHT; /* each rank in another order */
            x[f][0] = rank * 10000 + i * 100 + f;
            OK(weft_run_start(runs[f]));
        }
        for (int k = 0; k < FLIGHT; k++) {
            int f = (FLIGHT - 1 - k + rank) % FLIGHT;
            OK(weft_run_wait(runs[f], WEFT_NEVER));
            CHECK(x[f][1] == before * 10000 + i * 100 + f);
        }
    }
    for (int f = 0; f < FLIGHT; f++)
        weft_run_destroy(runs[f]);
}

Test(run, several_runs_of_one_plan_are_in_flight)
{
    ranks_run_each_way(in_flight, 2, NULL);
    ranks_run_each_way(in_flight, 5, NULL);
}

/* Rank 0 only sends: it is hundreds of versions ahead before rank 1 begins. */
static void far_ahead(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I64, 1, WEFT_SLOT_INOUT);
    if (rank == 0)
        weft_schedule_add_send(s, weft_region_at(x, 0, 1), 1, 0);
    else
        weft_schedule_add_recv(s, weft_region_at(x, 0, 1), 0, 0);
    struct weft_run *run = make_run(context, commit(s), NULL);
    int64_t value;
    OK(bind_slot(run, x, &value));
    if (rank == 1)
        ranks_meet(ranks);
    for (int64_t i = 0; i < 200; i++) { /* within the default number of eager messages */
        value = rank == 0 ? i * 3 : -1;
        OK(weft_run_execute(run));
        CHECK(value == i * 3);
    }
    if (rank == 0)
        ranks_meet(ranks);
    weft_run_destroy(run);
}

Test(run, a_rank_may_be_many_versions_ahead)
{
    ranks_run_each_progress(far_ahead, 2, NULL);
}

static void explicit_versions(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const uint64_t versions[] = {
        3, 4, 1000, UINT64_C(1) << 32, (UINT64_C(1) << 32) + 3, UINT64_C(1) << 62, UINT64_MAX - 1};
    int64_t x[2];
    int before = (rank + ranks->size - 1) % ranks->size;
    struct weft_run *run = make_run(context, ring(rank, ranks->size, 1), NULL);
    OK(bind_slot(run, 0, x));
    for (int i = 0; i < 7; i++) {
        x[0] = rank + i * 100;
        OK(weft_run_start_version(run, versions[i]));
        OK(weft_run_wait(run, WEFT_NEVER));
        CHECK(x[1] == before + i * 100);
        CHECK(weft_run_version(run) == versions[i]);
        CHECK_STATUS(weft_run_start_version(run, versions[i]), WEFT_ERR_INVALID);
        CHECK_STATUS(weft_run_start_version(run, 0), WEFT_ERR_INVALID);
        CHECK_STATUS(weft_run_start_version(run, UINT64_MAX), WEFT_ERR_INVALID);
    }
    /* There is no version after the last. */
    CHECK_STATUS(weft_run_start(run), WEFT_ERR_INVALID);
    weft_run_destroy(run);
}

Test(run, versions_may_be_given_and_only_grow)
{
    ranks_run_each_way(explicit_versions, 3, NULL);
}

/* ---- messages ---- */

static void zero_bytes(struct ranks *ranks, struct weft_context *context, int rank)
{
    int64_t nothing[1] = {0};
    struct weft_run *run = make_run(context, ring(rank, ranks->size, 0), NULL);
    OK(bind_slot(run, 0, rank % 2 ? nothing : NULL));
    for (int i = 0; i < 20; i++)
        OK(weft_run_execute(run));
    weft_run_destroy(run);
    /* Without binding the slot of no elements at all. */
    run = make_run(context, ring(rank, ranks->size, 0), NULL);
    OK(weft_run_execute(run));
    weft_run_destroy(run);
}

Test(run, messages_of_zero_bytes_are_messages)
{
    ranks_run_each_way(zero_bytes, 1, NULL);
    ranks_run_each_way(zero_bytes, 3, NULL);
}

/* values: rank 0 sends `n` of up to 1000 elements, rank 1 receives, forwards them and sums. */
static void up_to(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const uint64_t numbers[] = {0, 1, 7, 999, 1000, 24, 0, 500};
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I64, 1000, WEFT_SLOT_INOUT);
    weft_value_t n = weft_schedule_add_value(s, "n", 1000);
    weft_value_t back = weft_schedule_add_value(s, "back", 1000);
    struct weft_region region = weft_region_at(x, 0, 1000);
    region.value = n;
    int64_t data[1000];
    (void)ranks;
    if (rank == 0) {
        weft_node_t send = weft_schedule_add_send(s, region, 1, 0);
        weft_node_t recv = weft_schedule_add_recv_up_to(s, weft_region_at(x, 0, 1000), 1, 1, back);
        weft_schedule_add_order(s, send, recv);
    } else {
        weft_node_t recv = weft_schedule_add_recv_up_to(s, weft_region_at(x, 0, 1000), 0, 0, n);
        weft_node_t add = weft_schedule_add_reduce(s, sum(), region, region, region);
        weft_node_t send = weft_schedule_add_send(s, region, 0, 1);
        weft_schedule_add_order(s, recv, add);
        weft_schedule_add_order(s, add, send);
    }
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(bind_slot(run, x, data));
    if (rank == 1)
        CHECK_STATUS(weft_run_bind_value(run, n, 1), WEFT_ERR_INVALID);
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 1000; k++)
            data[k] = rank == 0 ? k + i : -1;
        if (rank == 0) {
            CHECK_STATUS(weft_run_bind_value(run, n, 1001), WEFT_ERR_INVALID);
            OK(weft_run_bind_value(run, n, numbers[i]));
        }
        OK(weft_run_execute(run));
        CHECK(weft_run_get_value(run, n) == numbers[i]);
        CHECK(rank == 1 || weft_run_get_value(run, back) == numbers[i]);
        for (int k = 0; k < 1000; k++) {
            int64_t kept = rank == 0 ? k + i : -1;
            CHECK(data[k] == ((uint64_t)k < numbers[i] ? 2 * (k + i) : kept));
        }
    }
    weft_run_destroy(run);
}

Test(run, a_receive_up_to_a_capacity_makes_a_value_that_later_nodes_read)
{
    ranks_run_each_way(up_to, 2, NULL);
}

/* ---- lists ---- */

/* The same ring as above, on a list of pieces cut at random places, empty ones among them. */
static void on_lists(struct ranks *ranks, struct weft_context *context, int rank)
{
    size_t count = *(size_t *)ranks->user;
    int64_t *x = calloc(2 * count, sizeof *x);
    int before = (rank + ranks->size - 1) % ranks->size;
    uint32_t random = 12345u + (uint32_t)rank;
    struct weft_run *run = make_run(context, ring(rank, ranks->size, count), NULL);
    for (int64_t i = 0; i < 12; i++) {
        struct weft_piece pieces[40];
        size_t used = 0, at = 0;
        while (used < 39) {
            random = random * 1664525u + 1013904223u;
            size_t n = (random >> 16) % (count / 8 + 2);
            if (n > 2 * count - at)
                n = 2 * count - at;
            pieces[used++] = (struct weft_piece){n == 0 ? NULL : x + at, n};
            at += n;
        }
        pieces[used++] = (struct weft_piece){x + at, 2 * count - at};
        for (size_t k = 0; k < count; k++)
            x[k] = rank * 1000000 + i * 1000 + (int64_t)k;
        if (i % 4 == 3)
            OK(bind_slot(run, 0, x));
        else
            OK(bind_list(run, 0, pieces, used));
        OK(weft_run_execute(run));
        for (size_t k = 0; k < count; k++)
            CHECK(x[count + k] == before * 1000000 + i * 1000 + (int64_t)k);
    }
    weft_run_destroy(run);
    free(x);
}

Test(run, a_slot_may_be_a_list_of_tensors)
{
    size_t counts[] = {1, 9, 1000, 60000};
    for (int i = 0; i < 4; i++)
        ranks_run_each_way(on_lists, i % 2 ? 3 : 1, &counts[i]);
}

static void add_on_lists(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    enum { N = 40001, PIECES = 301 };
    int64_t *x = calloc(N, sizeof *x), *y = calloc(N, sizeof *y);
    struct weft_piece in[PIECES + 1], out[2] = {{y, 5}, {y + 5, N - 5}};
    weft_template_params_init(&params);
    params.count = N;
    params.dtype = WEFT_I64;
    for (int p = 0; p < PIECES; p++)
        in[p] =
            (struct weft_piece){x + p * (p - 1) / 4, (size_t)((p + 1) * p / 4 - p * (p - 1) / 4)};
    size_t at = PIECES * (PIECES - 1) / 4;
    in[PIECES] = (struct weft_piece){x + at, N - at};
    OK(weft_template_create_run(&run, context, "allreduce", &params));
    weft_slot_t recv = 1;
    OK(bind_list(run, 0, in, PIECES + 1));
    OK(bind_list(run, recv, out, 2));
    for (int64_t i = 0; i < 3; i++) {
        for (int64_t k = 0; k < N; k++)
            x[k] = rank + k * i;
        OK(weft_run_execute(run));
        for (int64_t k = 0; k < N; k++)
            CHECK(y[k] == ranks->size * (ranks->size - 1) / 2 + k * i * ranks->size);
    }
    weft_run_destroy(run);
    free(x);
    free(y);
}

Test(run, an_allreduce_of_a_list_of_hundreds_of_tensors)
{
    ranks_run_each_way(add_on_lists, 3, NULL);
    ranks_run_each_way(add_on_lists, 4, NULL);
}

/* ---- peers ---- */

/* Pairs that change: in version v rank r exchanges with r ^ (1 << v % 3); rank 7 has nobody. */
static void change_groups(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_schedule *s = new_schedule(0, 2); /* everyone is rank 0 of a pair */
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I64, 2, WEFT_SLOT_INOUT);
    weft_value_t n = weft_schedule_add_value(s, "n", 1);
    weft_schedule_add_send(s, weft_region_at(x, 0, 1), 1, 0);
    weft_schedule_add_recv_up_to(s, weft_region_at(x, 1, 1), 1, 0, n);
    struct weft_run *run = make_run(context, commit(s), NULL);
    int64_t data[2];
    (void)ranks;
    OK(bind_slot(run, x, data));
    for (int v = 0; v < 60; v++) {
        int peer = rank ^ (1 << v % 3);
        if (rank == 7 || peer == 7)
            peer = WEFT_PEER_NONE;
        OK(weft_run_bind_peers(run, (int[]){rank, peer}));
        data[0] = rank * 100 + v;
        data[1] = -1;
        OK(weft_run_execute(run));
        CHECK(data[1] == (peer < 0 ? -1 : peer * 100 + v));
        CHECK(weft_run_get_value(run, n) == (peer < 0 ? 0 : 1));
    }
    weft_run_destroy(run);
}

Test(run, one_plan_serves_groups_that_change)
{
    ranks_run_each_way(change_groups, 8, NULL);
}

/* ---- callbacks, local runs ---- */

struct chain {
    struct weft_run *next;
    atomic_int ended;
};

static void start_next(void *user, struct weft_run *run, int status)
{
    struct chain *chain = user;
    (void)run;
    OK(status);
    if (chain->next)
        OK(weft_run_start(chain->next));
    atomic_fetch_add(&chain->ended, 1);
}

static void chained(struct ranks *ranks, struct weft_context *context, int rank)
{
    enum { LENGTH = 5 };
    struct weft_run *runs[LENGTH];
    struct chain chains[LENGTH];
    int64_t x[LENGTH][2];
    int before = (rank + ranks->size - 1) % ranks->size;
    for (int i = LENGTH; i-- > 0;) {
        struct weft_run_config config;
        weft_run_config_init(&config);
        config.ended = start_next;
        config.user = &chains[i];
        chains[i].next = i + 1 < LENGTH ? runs[i + 1] : NULL;
        atomic_init(&chains[i].ended, 0);
        runs[i] = make_run(context, ring(rank, ranks->size, 1), &config);
        OK(bind_slot(runs[i], 0, x[i]));
    }
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < LENGTH; i++)
            x[i][0] = rank * 1000 + round * 10 + i;
        OK(weft_run_start(runs[0]));
        while (weft_run_version(runs[LENGTH - 1]) != (uint64_t)round)
            if (weft_context_progress(context) != WEFT_OK)
                sched_yield();
        for (int i = 0; i < LENGTH; i++) {
            OK(weft_run_wait(runs[i], WEFT_NEVER));
            CHECK(x[i][1] == before * 1000 + round * 10 + i);
        }
    }
    for (int i = 0; i < LENGTH; i++)
        weft_run_destroy(runs[i]);
}

Test(run, a_callback_starts_the_next_run)
{
    ranks_run_each_protocol(chained, 3, NULL);
}

/* Whoever has waited for a run is told when its callback has returned, though another thread calls
 * that: the one that fires the last event. */
struct told {
    struct weft_run *run;
    weft_node_t event;
    atomic_int started, calls;
};

enum { TOLD = 100 };

static void take_time(void *user, struct weft_run *run, int status)
{
    struct told *told = user;
    OK(status);
    OK(weft_run_test(run));
    for (int i = 0; i < 300; i++)
        sched_yield();
    atomic_fetch_add(&told->calls, 1);
}

static void *fire_all(void *user)
{
    struct told *told = user;
    for (int round = 1; round <= TOLD; round++) {
        while (atomic_load(&told->started) < round)
            sched_yield();
        OK(weft_run_fire(told->run, told->event));
    }
    return NULL;
}

static void told_late(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct told told = {0};
    struct weft_run_config config;
    pthread_t thread;
    (void)ranks;
    (void)rank;
    weft_run_config_init(&config);
    config.ended = take_time;
    config.user = &told;
    config.local_only = 1;
    struct weft_schedule *schedule = new_schedule(0, 1);
    told.event = weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    told.run = make_run(context, commit(schedule), &config);
    CHECK(pthread_create(&thread, NULL, fire_all, &told) == 0);
    for (int round = 1; round <= TOLD; round++) {
        int status;
        OK(weft_run_start(told.run));
        atomic_store(&told.started, round);
        for (int i = 0; i < round % 5; i++)
            sched_yield();
        while ((status = round % 2 ? weft_run_test(told.run)
                                   : weft_run_wait(told.run, WEFT_NEVER)) == WEFT_IN_PROGRESS)
            sched_yield();
        OK(status);
        CHECK(atomic_load(&told.calls) == round);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    weft_run_destroy(told.run);
}

Test(run, callbacks_have_returned_when_a_wait_does)
{
    ranks_run_each_progress(told_late, 2, NULL);
}

/* A run that one waits for in one version has another told in the next. */
struct turns {
    struct weft_run *run;
    atomic_int calls;
};

static void count_turn(void *user, struct weft_run *run, int status)
{
    struct turns *turns = user;
    OK(status);
    CHECK(run == turns->run);
    OK(weft_run_set_ended(run, NULL, NULL)); /* it has ended */
    atomic_fetch_add(&turns->calls, 1);
}

static void tell_in_turns(struct ranks *ranks, struct weft_context *context, int rank)
{
    int64_t x[2];
    struct turns turns[2] = {{0}};
    struct weft_run *run = make_run(context, ring(rank, ranks->size, 1), NULL);
    OK(bind_slot(run, 0, x));
    for (int i = 0; i < 100; i++) {
        turns[i % 2].run = run;
        if (i % 3)
            OK(weft_run_set_ended(run, count_turn, &turns[i % 2]));
        OK(weft_run_execute(run));
        CHECK(turns[0].calls + turns[1].calls == i - i / 3);
    }
    weft_run_destroy(run);
}

Test(run, who_is_told_may_be_another_one_each_time)
{
    ranks_run_each_progress(tell_in_turns, 3, NULL);
}

/* Local runs on some ranks only, between objects: those still find each other. */
static void local_only(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run_config config;
    struct weft_run *locals[3], *run;
    int64_t x[2] = {rank, -1}, y[2];
    weft_run_config_init(&config);
    config.local_only = 1;
    struct weft_plan *talks = ring(rank, ranks->size, 1);
    CHECK_STATUS(weft_run_create(&run, context, talks, &config), WEFT_ERR_INVALID);
    weft_plan_destroy(talks);
    for (int i = 0; i < rank; i++) {
        struct weft_schedule *s = new_schedule(0, 1);
        weft_slot_t slot = weft_schedule_add_slot(s, "y", WEFT_I64, 2, WEFT_SLOT_INOUT);
        weft_schedule_add_copy(s, weft_region_at(slot, 0, 1), weft_region_at(slot, 1, 1));
        locals[i] = make_run(context, commit(s), &config);
        y[1] = i + 5;
        OK(bind_slot(locals[i], slot, y));
        OK(weft_run_execute(locals[i]));
        CHECK(y[0] == i + 5);
    }
    run = make_run(context, ring(rank, ranks->size, 1), NULL);
    OK(bind_slot(run, 0, x));
    OK(weft_run_execute(run));
    CHECK(x[1] == (rank + ranks->size - 1) % ranks->size);
    for (int i = 0; i < rank; i++)
        weft_run_destroy(locals[i]);
    weft_run_destroy(run);
}

Test(run, local_runs_are_no_objects)
{
    ranks_run_once(local_only, 4, NULL);
}

/* ---- memory of a device ---- */

Test(run, memory_of_a_device_needs_one)
{
    setenv("WEFT_DEVICE", "elsewhere", 1);
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_schedule *s = new_schedule(0, 1);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_F32, 4, WEFT_SLOT_INOUT);
    weft_schedule_add_copy(s, weft_region_at(x, 0, 2), weft_region_at(x, 2, 2));
    cr_assert_eq(weft_schedule_set_memory(s, x, WEFT_MEMORY_DEVICE), WEFT_OK);
    struct weft_plan *plan = commit(s);
    struct weft_run *run = NULL;
    cr_expect_eq(weft_run_create(&run, alone.context, plan, NULL), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "device is \"elsewhere\", expected \"cuda\""), "%s",
              weft_error_text());
    cr_expect_null(run);
    weft_plan_destroy(plan);
    alone_destroy(&alone);
}

/* ---- ranks that are bound twice ---- */

static void neighbours(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)ranks;
    struct weft_schedule *s = new_schedule(0, 3); /* 0: me, 1: left, 2: right */
    weft_slot_t mine = weft_schedule_add_slot(s, "mine", WEFT_I32, 1, WEFT_SLOT_INPUT);
    weft_slot_t theirs = weft_schedule_add_slot(s, "theirs", WEFT_I32, 2, WEFT_SLOT_OUTPUT);
    weft_schedule_add_send(s, weft_region_at(mine, 0, 1), 1, 0);
    weft_schedule_add_send(s, weft_region_at(mine, 0, 1), 2, 1);
    weft_schedule_add_recv(s, weft_region_at(theirs, 0, 1), 2, 0);
    weft_schedule_add_recv(s, weft_region_at(theirs, 1, 1), 1, 1);
    struct weft_run *run = make_run(context, commit(s), NULL);
    int32_t number = 7 + rank;
    int32_t numbers[2] = {0, 0};
    OK(bind_slot(run, mine, &number));
    OK(bind_slot(run, theirs, numbers));
    OK(weft_run_bind_peers(run, (int[]){rank, 1 - rank, 1 - rank}));
    OK(weft_run_execute(run));
    CHECK(numbers[0] == 8 - rank && numbers[1] == 8 - rank);
    weft_run_destroy(run);
}

Test(run, both_neighbours_may_be_the_same_rank_if_their_tags_differ)
{
    ranks_run_once(neighbours, 2, NULL);
}

/* Each rank takes the schedule of the other. */
static void take_the_wrong_one(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)ranks;
    int other = 1 - rank;
    char text[120];
    int64_t x[4] = {rank, rank, rank, rank};
    struct weft_run *run = make_run(context, transfer(other, 2, 4, 4), NULL);
    OK(bind_slot(run, 0, x));
    snprintf(text, sizeof text, "plan `transfer` is of rank %d, expected rank %d", other, rank);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(weft_run_start(run), WEFT_ERR_INVALID);
        CHECK_TEXT(weft_error_text(), text);
        /* As it was meant, perhaps: the first is the own one. */
        OK(weft_run_bind_peers(run, (int[]){1, 0}));
        OK(weft_run_execute(run));
        CHECK(x[0] == 1);
        OK(weft_run_bind_peers(run, NULL));
    }
    weft_run_destroy(run);
}

Test(run, a_plan_of_another_rank_is_refused)
{
    ranks_run_each_progress(take_the_wrong_one, 2, NULL);
}

static void talk_to_nobody(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)ranks;
    for (int size = 1; size <= 2; size++) {
        struct weft_schedule *s = new_schedule(size == 1 ? 0 : 1 - rank, size);
        weft_schedule_add_join(s);
        struct weft_run *run = make_run(context, commit(s), NULL);
        OK(weft_run_execute(run));
        weft_run_destroy(run);
    }
}

Test(run, a_plan_that_talks_to_nobody_may_be_of_any_rank)
{
    ranks_run_once(talk_to_nobody, 2, NULL);
}

Test(run, ranks_bound_twice_are_refused_where_messages_could_be_mixed_up)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_schedule *s = new_schedule(0, 3);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I32, 1, WEFT_SLOT_INPUT);
    weft_schedule_add_send(s, weft_region_at(x, 0, 1), 1, 4);
    weft_schedule_add_send(s, weft_region_at(x, 0, 1), 2, 4);
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    int32_t number = 0;
    OK(bind_slot(run, x, &number));
    CHECK_STATUS(weft_run_start(run), WEFT_ERR_INVALID); /* a plan for three ranks on one */
    CHECK_TEXT(weft_error_text(), "weft_run_bind_peers");
    CHECK_STATUS(weft_run_bind_peers(run, (int[]){0, 0, 0}), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_run_bind_peers: ranks[1] and ranks[2] are both 0");
    CHECK_TEXT(weft_error_text(), "nodes 0 and 1");
    OK(weft_run_bind_peers(run, (int[]){0, WEFT_PEER_NONE, WEFT_PEER_NONE}));
    OK(weft_run_execute(run));
    weft_run_destroy(run);
    alone_destroy(&alone);
}

/* ---- versions in any order ---- */

enum { GUESTS = 4, VISITS = 40 };

/* Rank 0 serves whoever asks: what a guest sends, doubled. Guests ask in versions of their own. */
struct host {
    struct weft_run *run;
    int64_t room;
    uint64_t asked[GUESTS + 1];
    int waiting[GUESTS + 1];
    int first, count, busy;
    atomic_int served;
};

static int twice(struct weft_call *call)
{
    *(int64_t *)call->arguments[0].data *= 2;
    return WEFT_OK;
}

static struct weft_plan *hosting(const struct weft_op *op)
{
    struct weft_schedule *s = new_schedule(1, 2);
    weft_slot_t room = weft_schedule_add_slot(s, "room", WEFT_I64, 1, WEFT_SLOT_INOUT);
    struct weft_compute_argument argument = {weft_region_at(room, 0, 1), WEFT_UPDATE};
    weft_node_t came = weft_schedule_add_recv(s, argument.region, 0, 0);
    weft_node_t done = weft_schedule_add_compute(s, op, &argument, 1, 0);
    weft_schedule_add_order(s, came, done);
    weft_schedule_add_order(s, done, weft_schedule_add_send(s, argument.region, 0, 0));
    return commit(s);
}

static struct weft_plan *visiting(void)
{
    struct weft_schedule *s = new_schedule(0, 2);
    weft_slot_t gift = weft_schedule_add_slot(s, "gift", WEFT_I64, 1, WEFT_SLOT_INPUT);
    weft_slot_t thanks = weft_schedule_add_slot(s, "thanks", WEFT_I64, 1, WEFT_SLOT_OUTPUT);
    weft_schedule_add_signal(s, 1, 7);
    weft_schedule_add_send(s, weft_region_at(gift, 0, 1), 1, 0);
    weft_schedule_add_recv(s, weft_region_at(thanks, 0, 1), 1, 0);
    return commit(s);
}

static void serve(struct host *host)
{
    if (host->busy || !host->count)
        return;
    int guest = host->waiting[host->first], peers[] = {guest, 0};
    host->first = (host->first + 1) % (GUESTS + 1);
    host->count--;
    host->busy = 1;
    OK(weft_run_bind_peers(host->run, peers));
    OK(weft_run_start_version(host->run, host->asked[guest] - 1));
}

static void knocked(void *user, struct weft_run *run, int from, uint32_t channel, uint64_t version)
{
    struct host *host = user;
    CHECK(channel == 7 && from > 0 && (!host->run || run == host->run));
    if (host->asked[from] > version)
        return;
    host->asked[from] = version + 1;
    host->waiting[(host->first + host->count++) % (GUESTS + 1)] = from;
    serve(host);
}

static void left_again(void *user, struct weft_run *run, int status)
{
    struct host *host = user;
    (void)run;
    OK(status);
    host->busy = 0;
    host->served++;
    serve(host);
}

static void receive_guests(struct ranks *ranks, struct weft_context *context)
{
    struct host host = {0};
    struct weft_op_config op_config;
    struct weft_op *op;
    struct weft_run_config config;
    weft_op_config_init(&op_config);
    op_config.name = "twice";
    op_config.compute = twice;
    OK(weft_op_create(&op, &op_config));
    struct weft_plan *plan = hosting(op);
    weft_run_config_init(&config);
    config.unordered = 1;
    config.signalled = knocked;
    config.ended = left_again;
    config.user = &host;
    OK(weft_run_create(&host.run, context, plan, &config));
    OK(bind_slot(host.run, 0, &host.room));
    ranks_meet(ranks);
    ranks_meet(ranks);
    while (host.served < GUESTS * VISITS) {
        CHECK(weft_context_progress(context) >= WEFT_OK); /* the helper may be driving */
        sched_yield();
    }
    weft_run_destroy(host.run);
    weft_plan_destroy(plan);
    weft_op_destroy(op);
}

static void visit(struct ranks *ranks, struct weft_context *context, int rank)
{
    if (rank == 0) {
        receive_guests(ranks, context);
        return;
    }
    int64_t gift, thanks;
    int peers[] = {rank, 0};
    struct weft_run *run = make_run(context, visiting(), NULL);
    OK(weft_run_bind_peers(run, peers));
    OK(bind_slot(run, 0, &gift));
    OK(bind_slot(run, 1, &thanks));
    ranks_meet(ranks);
    for (int64_t v = 0; v < VISITS; v++) {
        gift = rank * 1000 + v;
        OK(weft_run_start_version(run, (uint64_t)(v * rank)));
        OK(weft_run_wait(run, WEFT_NEVER));
        CHECK(thanks == 2 * gift);
    }
    ranks_meet(ranks);
    weft_run_destroy(run);
}

Test(run, an_unordered_run_serves_versions_of_several_ranks)
{
    struct ranks ranks;
    ranks_init(&ranks, GUESTS + 1, visit, NULL);
    ranks.config.progress = WEFT_PROGRESS_HELPER;
    ranks_run(&ranks);
}

Test(run, an_unordered_run_has_no_events_of_channels)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_schedule *s = new_schedule(0, 1);
    struct weft_run_config config;
    struct weft_run *run = NULL;
    weft_schedule_add_event(s, 3);
    struct weft_plan *plan = commit(s);
    weft_run_config_init(&config);
    config.unordered = 1;
    CHECK_STATUS(weft_run_create(&run, alone.context, plan, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->unordered is set, but an event");
    CHECK_TEXT(weft_error_text(), "channel 3");
    CHECK(!run);
    weft_plan_destroy(plan);
    alone_destroy(&alone);
}
