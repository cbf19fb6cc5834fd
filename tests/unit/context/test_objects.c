/* SPDX-License-Identifier: BSD-3-Clause */
/* The lives of objects: many of them leave nothing behind, and none is taken for another. */
#include <criterion/criterion.h>
#include <malloc.h>

#include "support/ranks.h"
#include "tests/support/bind.h"

/* Two ranks in one thread, which drives both. */
struct pair {
    struct weft_local *local;
    struct weft_context *contexts[2];
};

static struct pair pair_create(void)
{
    struct pair pair;
    OK(weft_local_create(&pair.local, 2, NULL));
    for (int r = 0; r < 2; r++)
        OK(weft_context_create_local(&pair.contexts[r], pair.local, r, NULL));
    return pair;
}

static void pair_destroy(struct pair *pair)
{
    for (int r = 0; r < 2; r++)
        weft_context_destroy(pair->contexts[r]);
    weft_local_destroy(pair->local);
}

static void drive(const struct pair *pair, struct weft_run *run)
{
    while (weft_run_test(run) == WEFT_IN_PROGRESS)
        for (int r = 0; r < 2; r++)
            weft_context_progress(pair->contexts[r]);
    OK(weft_run_test(run));
}

/* Each rank sends x[0] to the other, which receives it as x[1]. */
static struct weft_plan *swap(int rank)
{
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I64, 2, WEFT_SLOT_INOUT);
    weft_schedule_add_send(s, weft_region_at(x, 0, 1), 1 - rank, 0);
    weft_schedule_add_recv(s, weft_region_at(x, 1, 1), 1 - rank, 0);
    return commit(s);
}

static size_t memory_used(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

enum { MANY = SWEPT(1000000, 20000), SHARE = 50 };

/* Of every SHARE runs one exchanges messages, and one is started by a rank alone: what it has sent
 * comes when the run of the other is gone, or before it is there. */
static void one_of_many(const struct pair *pair, struct weft_plan *const *plans, int64_t i)
{
    struct weft_run *runs[2];
    int64_t x[2][2] = {{i, -1}, {2 * i, -1}};
    int lone = i % (2 * SHARE) == 1 ? 0 : 1;
    for (int r = 0; r < 2; r++) {
        OK(weft_run_create(&runs[r], pair->contexts[r], plans[r], NULL));
        OK(bind_slot(runs[r], 0, x[r]));
        if (i % SHARE != 1)
            continue;
        if (r == lone)
            OK(weft_run_start(runs[r]));
        weft_run_destroy(runs[r]);
    }
    if (i % SHARE == 1)
        return;
    if (i % SHARE == 0) {
        for (int r = 0; r < 2; r++)
            OK(weft_run_start(runs[r]));
        for (int r = 0; r < 2; r++)
            drive(pair, runs[r]);
        CHECK(x[0][1] == 2 * i && x[1][1] == i);
    }
    for (int r = 0; r < 2; r++)
        weft_run_destroy(runs[r]);
}

Test(objects, a_million_of_them_leave_nothing)
{
    struct pair pair = pair_create();
    struct weft_plan *plans[2] = {swap(0), swap(1)};
    size_t before = 0;
    for (int64_t i = 0; i < MANY; i++) {
        if (i == MANY / 10)
            before = memory_used();
        one_of_many(&pair, plans, i);
    }
    size_t after = memory_used();
    CHECK(after < before + 65536);
    for (int r = 0; r < 2; r++)
        weft_plan_destroy(plans[r]);
    pair_destroy(&pair);
}

/* Many live at once, and are destroyed in another order than they were made in. */
Test(objects, those_that_live_are_found_among_those_that_are_gone)
{
    enum { LIVE = 500, ROUNDS = 4 };
    static struct weft_run *runs[LIVE][2];
    static int64_t x[LIVE][2][2];
    struct pair pair = pair_create();
    struct weft_plan *plans[2] = {swap(0), swap(1)};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LIVE; i++) {
            if (round > 0 && i % (round + 1) == 0)
                continue; /* lives on from the round before */
            for (int r = 0; r < 2; r++) {
                weft_run_destroy(runs[i][r]);
                OK(weft_run_create(&runs[i][r], pair.contexts[r], plans[r], NULL));
                OK(bind_slot(runs[i][r], 0, x[i][r]));
            }
        }
        for (int i = 0; i < LIVE; i++)
            for (int r = 0; r < 2; r++) {
                int at = r == 0 ? i : LIVE - 1 - i;
                x[at][r][0] = round * 10000 + 2 * at + r;
                OK(weft_run_start(runs[at][r]));
            }
        for (int i = 0; i < LIVE; i++)
            for (int r = 0; r < 2; r++) {
                drive(&pair, runs[i][r]);
                CHECK(x[i][r][1] == round * 10000 + 2 * i + 1 - r);
            }
    }
    for (int i = 0; i < LIVE; i++)
        for (int r = 0; r < 2; r++)
            weft_run_destroy(runs[i][r]);
    for (int r = 0; r < 2; r++)
        weft_plan_destroy(plans[r]);
    pair_destroy(&pair);
}

/* ---- given back by their own callbacks ---- */

struct given {
    struct weft_context *context;
    struct weft_plan *plan;
    int64_t x[2];
    _Atomic int ended;
    _Atomic int status;
    struct weft_run *also;
};

static void give_back(void *user, struct weft_run *run, int status);

static struct weft_run *new_given(struct given *given)
{
    struct weft_run_config config;
    struct weft_run *run = NULL;
    weft_run_config_init(&config);
    config.ended = give_back;
    config.user = given;
    OK(weft_run_create(&run, given->context, given->plan, &config));
    if (weft_plan_find_slot(given->plan, "x") >= 0)
        OK(weft_run_bind(run, 0, given->x, 2, WEFT_I64));
    return run;
}

static void give_back(void *user, struct weft_run *run, int status)
{
    struct given *given = user;
    weft_run_destroy(run);
    weft_run_destroy(given->also);
    given->also = NULL;
    given->status = status;
    given->ended++;
}

/* Drives until so many runs have ended. */
static void await(const struct given *given, int count)
{
    while (given->ended < count) {
        CHECK(weft_context_progress(given->context) >= 0);
        sched_yield();
    }
}

/* A ring in which every rank sends x[0] to the next, and receives x[1] from the one before. */
static struct weft_plan *ring(int rank, int size)
{
    struct weft_schedule *s = new_schedule(rank, size);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I64, 2, WEFT_SLOT_INOUT);
    weft_schedule_add_send(s, weft_region_at(x, 0, 1), (rank + 1) % size, 0);
    weft_schedule_add_recv(s, weft_region_at(x, 1, 1), (rank + size - 1) % size, 0);
    return commit(s);
}

enum { TURNS = 200 };

static void turns(struct weft_context *context, int rank, int size)
{
    struct given given = {.context = context, .plan = ring(rank, size)};
    int before = (rank + size - 1) % size;
    for (int i = 0; i < TURNS; i++) {
        struct weft_run *run = new_given(&given);
        if (i % 3 == 0)
            given.also = new_given(&given); /* never started */
        given.x[0] = rank * 1000 + i;
        OK(weft_run_start(run));
        await(&given, i + 1);
        CHECK(given.status == WEFT_OK);
        CHECK(given.x[1] == before * 1000 + i);
    }
    weft_plan_destroy(given.plan);
}

static void local_turns(struct ranks *ranks, struct weft_context *context, int rank)
{
    turns(context, rank, ranks->size);
}

Test(objects, a_run_is_given_back_by_its_own_callback)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        ranks_run_each_way(local_turns, sizes[i], NULL);
}

static int virtual_turns(struct weft_context *context, void *user)
{
    (void)user;
    turns(context, weft_context_rank(context), weft_context_size(context));
    return WEFT_OK;
}

Test(objects, a_run_is_given_back_by_its_own_callback_in_virtual_time)
{
    OK(weft_virtual_run(1, NULL, virtual_turns, NULL));
    OK(weft_virtual_run(7, NULL, virtual_turns, NULL));
}

/* An event that the application fires is the last node: whoever fires is in the run as it goes.
 */
static struct weft_plan *one_event(void)
{
    struct weft_schedule *s = new_schedule(0, 1);
    CHECK(weft_schedule_add_event(s, WEFT_CHANNEL_NONE) == 0);
    return commit(s);
}

static void fire_many(weft_progress_t progress)
{
    struct alone alone = alone_create(progress);
    struct given given = {.context = alone.context, .plan = one_event()};
    for (int i = 0; i < TURNS; i++) {
        struct weft_run *run = new_given(&given);
        OK(weft_run_start(run));
        OK(weft_run_fire(run, 0));
        await(&given, i + 1);
    }
    weft_plan_destroy(given.plan);
    alone_destroy(&alone);
}

Test(objects, a_run_is_given_back_while_its_event_is_being_fired)
{
    fire_many(WEFT_PROGRESS_CALLER);
    fire_many(WEFT_PROGRESS_HELPER);
}

/* Unfinished runs that are cancelled or destroyed call their callbacks, which destroy them too. */
static void unfinished(weft_progress_t progress)
{
    struct alone alone = alone_create(progress);
    struct given given = {.context = alone.context, .plan = one_event()};
    struct weft_run *run = new_given(&given);
    OK(weft_run_start(run));
    OK(weft_run_cancel(run));
    await(&given, 1);
    CHECK(given.status == WEFT_ERR_CANCELLED);
    run = new_given(&given);
    OK(weft_run_start(run));
    weft_run_destroy(run);
    CHECK(given.ended == 2);
    /* One that is under way is destroyed by the callback of another. */
    struct given other = {.context = alone.context, .plan = given.plan};
    run = new_given(&given);
    other.also = run;
    struct weft_run *first = new_given(&other);
    OK(weft_run_start(run));
    OK(weft_run_start(first));
    OK(weft_run_fire(first, 0));
    await(&given, 3);
    await(&other, 1);
    CHECK(given.status == WEFT_ERR_CANCELLED);
    /* The context destroys the last. */
    run = new_given(&given);
    OK(weft_run_start(run));
    weft_plan_destroy(given.plan);
    alone_destroy(&alone);
    CHECK(given.ended == 4);
}

Test(objects, unfinished_runs_are_given_back_by_their_callbacks)
{
    unfinished(WEFT_PROGRESS_CALLER);
    unfinished(WEFT_PROGRESS_HELPER);
}

/* The peer fails: the send of this rank may still be read. */
static void failing(struct ranks *ranks, struct weft_context *context, int rank)
{
    enum { LARGE = 1 << 16 };
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t x = weft_schedule_add_slot(s, "large", WEFT_I64, LARGE, WEFT_SLOT_INOUT);
    if (rank == 0)
        weft_schedule_add_send(s, weft_region_at(x, 0, LARGE), 1, 0);
    else
        weft_schedule_add_recv(s, weft_region_at(x, 0, LARGE - 1), 0, 0);
    struct given given = {.context = context, .plan = commit(s)};
    int64_t *memory = calloc(LARGE, sizeof *memory);
    struct weft_run *run = new_given(&given);
    CHECK(memory);
    OK(weft_run_bind(run, 0, memory, LARGE, WEFT_I64));
    OK(weft_run_start(run));
    await(&given, 1);
    CHECK_STATUS(given.status, rank == 0 ? WEFT_ERR_PEER : WEFT_ERR_TRUNCATED);
    ranks_meet(ranks);
    weft_plan_destroy(given.plan);
    free(memory);
}

Test(objects, a_run_that_has_failed_is_given_back_by_its_callback)
{
    ranks_run_each_way(failing, 2, NULL);
}
