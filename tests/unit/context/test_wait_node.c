/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for a join of a run that goes on: from many threads, however the engine is driven. */
#include <criterion/criterion.h>

#include "tests/support/bind.h"
#include "tests/support/ranks.h"

/* ---- one rank ---- */

/* first; an event, then second. */
enum { FIRST, EVENT, SECOND };

static struct weft_schedule *held_schedule(void)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_join(s);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    weft_schedule_add_join(s);
    weft_schedule_add_order(s, FIRST, EVENT);
    weft_schedule_add_order(s, EVENT, SECOND);
    return s;
}

static const weft_progress_t modes[] = {WEFT_PROGRESS_CALLER, WEFT_PROGRESS_HELPER};

Test(wait_node, a_join_is_waited_for_while_the_rest_is_held)
{
    for (int m = 0; m < 2; m++) {
        struct alone alone = alone_create(modes[m]);
        struct weft_run *run = make_run(alone.context, commit(held_schedule()), NULL);
        for (int version = 0; version < 3; version++) {
            OK(weft_run_start(run));
            OK(weft_run_wait_node(run, FIRST, WEFT_NEVER));
            OK(weft_run_wait_node(run, FIRST, 0));
            CHECK_STATUS(weft_run_wait_node(run, SECOND, 0), WEFT_IN_PROGRESS);
            CHECK_STATUS(weft_run_wait_node(run, SECOND, 100000), WEFT_IN_PROGRESS);
            CHECK_STATUS(weft_run_wait(run, 0), WEFT_IN_PROGRESS);
            OK(weft_run_fire(run, EVENT));
            OK(weft_run_wait_node(run, SECOND, WEFT_NEVER));
            OK(weft_run_wait(run, WEFT_NEVER));
            OK(weft_run_wait_node(run, FIRST, 0));
            OK(weft_run_wait_node(run, SECOND, 0));
        }
        weft_run_destroy(run);
        alone_destroy(&alone);
    }
}

Test(wait_node, what_cannot_be_waited_for_is_refused)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_run *run = make_run(alone.context, commit(held_schedule()), NULL);
    CHECK_STATUS(weft_run_wait_node(NULL, 0, 0), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_run_wait_node(run, FIRST, 0), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "weft_run_wait_node: the run of `schedule` was never started");
    CHECK_STATUS(weft_run_wait_node(run, EVENT, 0), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "`node` is 1, expected a join of plan `schedule`");
    CHECK_STATUS(weft_run_wait_node(run, -1, 0), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_run_wait_node(run, 3, 0), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_run_wait_node(run, FIRST, WEFT_NS_NONE), WEFT_ERR_INVALID);
    weft_run_destroy(run);
    alone_destroy(&alone);
}

struct called {
    int status;
};

static void wait_inside(void *user, struct weft_run *run, int status)
{
    (void)status;
    ((struct called *)user)->status = weft_run_wait_node(run, FIRST, 0);
}

Test(wait_node, a_callback_must_not_wait)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct called called = {WEFT_OK};
    struct weft_run_config config = {
        .struct_size = sizeof config, .ended = wait_inside, .user = &called};
    struct weft_run *run = make_run(alone.context, commit(held_schedule()), &config);
    OK(weft_run_start(run));
    OK(weft_run_fire(run, EVENT));
    OK(weft_run_wait(run, WEFT_NEVER));
    cr_expect_eq(called.status, WEFT_ERR_STATE);
    weft_run_destroy(run);
    alone_destroy(&alone);
}

static struct weft_run *run_inside;

static int wait_in_compute(struct weft_call *call)
{
    struct called *called = call->user;
    called->status = weft_run_wait_node(run_inside, FIRST, WEFT_NEVER);
    return WEFT_OK;
}

/* Whoever drives calls it: the caller while it waits or fires, or the helper. */
static void wait_by_computing(weft_progress_t progress)
{
    struct alone alone = alone_create(progress);
    struct called called = {WEFT_OK};
    struct weft_op_config config = {
        .struct_size = sizeof config, .name = "waits", .compute = wait_in_compute, .user = &called};
    struct weft_op *op = NULL;
    OK(weft_op_create(&op, &config));
    struct weft_schedule *schedule = held_schedule();
    weft_node_t start = weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    weft_schedule_add_order(schedule, start, weft_schedule_add_compute(schedule, op, NULL, 0, 0));
    weft_op_destroy(op);
    run_inside = make_run(alone.context, commit(schedule), NULL);
    for (int round = 0; round < 3; round++) {
        called.status = WEFT_OK;
        OK(weft_run_start(run_inside));
        OK(weft_run_fire(run_inside, start));
        OK(weft_run_fire(run_inside, EVENT));
        OK(weft_run_wait(run_inside, WEFT_NEVER));
        cr_expect_eq(called.status, WEFT_ERR_STATE);
        OK(weft_run_wait_node(run_inside, FIRST, WEFT_NEVER));
    }
    weft_run_destroy(run_inside);
    alone_destroy(&alone);
}

Test(wait_node, a_compute_function_must_not_wait)
{
    wait_by_computing(WEFT_PROGRESS_CALLER);
    wait_by_computing(WEFT_PROGRESS_HELPER);
}

/* An event of two, a join after each, one after either, and one that is held to the end. */
Test(wait_node, a_join_that_a_choice_retires_is_said_to_be)
{
    for (int m = 0; m < 2; m++)
        for (int winner = 0; winner < 2; winner++) {
            struct alone alone = alone_create(modes[m]);
            struct weft_schedule *s = new_schedule(0, 1);
            weft_node_t events[2], after[2], either, last;
            for (int i = 0; i < 2; i++)
                events[i] = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
            either = weft_schedule_add_join(s);
            weft_schedule_set_any(s, either);
            weft_schedule_add_choice(s, events, 2);
            for (int i = 0; i < 2; i++) {
                after[i] = weft_schedule_add_join(s);
                weft_schedule_add_order(s, events[i], after[i]);
                weft_schedule_add_order(s, after[i], either);
            }
            last = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
            struct weft_run *run = make_run(alone.context, commit(s), NULL);
            for (int version = 0; version < 2; version++) {
                OK(weft_run_start(run));
                /* Watched before or after it is retired. */
                if (version)
                    CHECK_STATUS(weft_run_wait_node(run, after[1 - winner], 0), WEFT_IN_PROGRESS);
                OK(weft_run_fire(run, events[winner]));
                OK(weft_run_wait_node(run, after[winner], WEFT_NEVER));
                OK(weft_run_wait_node(run, either, WEFT_NEVER));
                CHECK_STATUS(weft_run_wait_node(run, after[1 - winner], WEFT_NEVER), WEFT_RETIRED);
                OK(weft_run_fire(run, last));
                OK(weft_run_wait(run, WEFT_NEVER));
                CHECK_STATUS(weft_run_wait_node(run, after[1 - winner], 0), WEFT_RETIRED);
                OK(weft_run_wait_node(run, either, 0));
            }
            weft_run_destroy(run);
            alone_destroy(&alone);
        }
}

/* ---- failures ---- */

struct waiter {
    struct weft_run *run;
    weft_node_t node;
    int expected;
    const char *word;
    pthread_t thread;
};

static void *wait_one(void *argument)
{
    const struct waiter *waiter = argument;
    CHECK_STATUS(weft_run_wait_node(waiter->run, waiter->node, WEFT_NEVER), waiter->expected);
    if (waiter->word)
        CHECK_TEXT(weft_error_text(), waiter->word);
    return NULL;
}

Test(wait_node, whoever_waits_hears_that_the_run_has_failed)
{
    for (int m = 0; m < 2; m++)
        for (int started = 0; started < 2; started++) {
            struct alone alone = alone_create(modes[m]);
            struct weft_run_config config = {.struct_size = sizeof config, .deadline_ns = 2000000};
            struct weft_run *run = make_run(alone.context, commit(held_schedule()), &config);
            struct waiter waiters[3];
            OK(weft_run_start(run));
            if (started) { /* else the waiters may come before the engine has begun it */
                int status = weft_run_wait_node(run, FIRST, WEFT_NEVER);
                CHECK(status == WEFT_OK || status == WEFT_ERR_TIMEOUT); /* 2 ms, for a slow one */
            }
            for (int i = 0; i < 3; i++) {
                waiters[i] = (struct waiter){run, SECOND, WEFT_ERR_TIMEOUT, "not finished", 0};
                CHECK(!pthread_create(&waiters[i].thread, NULL, wait_one, &waiters[i]));
            }
            for (int i = 0; i < 3; i++)
                pthread_join(waiters[i].thread, NULL);
            CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), WEFT_ERR_TIMEOUT);
            /* Of a version that has failed nothing is known but that. */
            CHECK_STATUS(weft_run_wait_node(run, FIRST, 0), WEFT_ERR_TIMEOUT);
            CHECK_TEXT(weft_error_text(), "node 1 (event)");
            OK(weft_run_set_deadline(run, WEFT_NEVER));
            OK(weft_run_start(run));
            OK(weft_run_fire(run, EVENT));
            OK(weft_run_wait_node(run, SECOND, WEFT_NEVER));
            OK(weft_run_wait(run, WEFT_NEVER));
            weft_run_destroy(run);
            alone_destroy(&alone);
        }
}

Test(wait_node, a_run_that_is_cancelled_lets_its_waiters_go)
{
    for (int m = 0; m < 2; m++) {
        struct alone alone = alone_create(modes[m]);
        struct weft_run *run = make_run(alone.context, commit(held_schedule()), NULL);
        struct waiter waiter = {run, SECOND, WEFT_ERR_CANCELLED, NULL, 0};
        OK(weft_run_start(run));
        CHECK(!pthread_create(&waiter.thread, NULL, wait_one, &waiter));
        OK(weft_run_cancel(run));
        pthread_join(waiter.thread, NULL);
        weft_run_destroy(run);
        alone_destroy(&alone);
    }
}

/* ---- layers on several ranks ---- */

/* LAYERS sums of a ring's neighbours, each held by an event, one after the other; the last is
 * large, so that others have to be polled for. */
enum { LAYERS = 5, COUNT = 300, STEPS = SWEPT(40, 10), MOST_RANKS = 5 };

struct layers {
    weft_slot_t mine, sum;
    weft_node_t event[LAYERS], join[LAYERS];
};

static struct weft_schedule *layered(int rank, int size, int held, struct layers *layers)
{
    struct weft_schedule *s = new_schedule(rank, size);
    weft_node_t before = WEFT_NODE_NONE;
    layers->mine =
        weft_schedule_add_slot(s, "mine", WEFT_I64, LAYERS * (size_t)COUNT, WEFT_SLOT_INPUT);
    layers->sum =
        weft_schedule_add_slot(s, "sum", WEFT_I64, LAYERS * (size_t)COUNT, WEFT_SLOT_OUTPUT);
    for (uint32_t i = 0; i < LAYERS; i++) {
        struct weft_region mine = weft_region_at(layers->mine, i * COUNT, COUNT);
        struct weft_region sum = weft_region_at(layers->sum, i * COUNT, COUNT);
        weft_node_t send = weft_schedule_add_send(s, mine, (rank + 1) % size, i);
        weft_node_t recv = weft_schedule_add_recv(s, sum, (rank + size - 1) % size, i);
        weft_node_t add = weft_schedule_add_reduce(s, weft_op_builtin(WEFT_SUM), sum, sum, mine);
        layers->event[i] =
            held ? weft_schedule_add_event(s, WEFT_CHANNEL_NONE) : weft_schedule_add_join(s);
        layers->join[i] = weft_schedule_add_join(s);
        weft_schedule_add_order(s, layers->event[i], send);
        weft_schedule_add_order(s, layers->event[i], recv);
        weft_schedule_add_order(s, recv, add);
        weft_schedule_add_order(s, add, layers->join[i]);
        weft_schedule_add_order(s, send, layers->join[i]);
        if (before >= 0)
            weft_schedule_add_order(s, before, layers->event[i]);
        before = layers->join[i];
    }
    return s;
}

struct job {
    struct weft_run *run;
    const struct layers *layers;
    const int64_t *sum;
    int rank, size;
    int64_t step;
    int backwards;
    pthread_t thread;
};

static int64_t mine(int rank, int layer, int64_t step, size_t at)
{
    return rank * 1000003 + layer * 1009 + step * 17 + (int64_t)at;
}

static void check_layer(const struct job *job, int layer)
{
    int left = (job->rank + job->size - 1) % job->size;
    for (size_t i = 0; i < COUNT; i++)
        CHECK(job->sum[(size_t)layer * COUNT + i] ==
              mine(job->rank, layer, job->step, i) + mine(left, layer, job->step, i));
}

static void *wait_layers(void *argument)
{
    const struct job *job = argument;
    for (int i = 0; i < LAYERS; i++) {
        int layer = job->backwards ? LAYERS - 1 - i : i;
        OK(weft_run_wait_node(job->run, job->layers->join[layer], WEFT_NEVER));
        check_layer(job, layer);
    }
    return NULL;
}

static void train(struct weft_context *context, int rank, int size, int held, int threads)
{
    struct layers layers;
    struct weft_run *run = make_run(context, commit(layered(rank, size, held, &layers)), NULL);
    int64_t *data = calloc(LAYERS * (size_t)COUNT, sizeof *data);
    int64_t *sum = calloc(LAYERS * (size_t)COUNT, sizeof *sum);
    OK(bind_slot(run, layers.mine, data));
    OK(bind_slot(run, layers.sum, sum));
    for (int64_t step = 0; step < STEPS; step++) {
        struct job job = {run, &layers, sum, rank, size, step, 0, 0}, jobs[3];
        for (int layer = 0; layer < LAYERS; layer++)
            for (size_t i = 0; i < COUNT; i++)
                data[(size_t)layer * COUNT + i] = mine(rank, layer, step, i);
        OK(weft_run_start(run));
        for (int t = 0; t < threads; t++) {
            jobs[t] = job;
            jobs[t].backwards = t % 2;
            CHECK(!pthread_create(&jobs[t].thread, NULL, wait_layers, &jobs[t]));
        }
        for (int layer = LAYERS; held && layer-- > 0;)
            OK(weft_run_fire(run, layers.event[layer]));
        wait_layers(&job);
        OK(weft_run_wait(run, WEFT_NEVER));
        for (int t = 0; t < threads; t++)
            pthread_join(jobs[t].thread, NULL);
    }
    weft_run_destroy(run);
    free(sum);
    free(data);
}

static void train_held(struct ranks *ranks, struct weft_context *context, int rank)
{
    train(context, rank, ranks->size, 1, *(int *)ranks->user);
}

static void train_plain(struct ranks *ranks, struct weft_context *context, int rank)
{
    train(context, rank, ranks->size, 0, *(int *)ranks->user);
}

Test(wait_node, layers_are_waited_for_one_by_one)
{
    for (int threads = 0; threads <= 3; threads += 3)
        for (int size = 1; size <= MOST_RANKS; size += 2) {
            ranks_run_each_way(train_held, size, &threads);
            ranks_run_each_way(train_plain, size, &threads);
        }
}

static int train_virtual(struct weft_context *context, void *user)
{
    train(context, weft_context_rank(context), weft_context_size(context), *(int *)user, 0);
    return WEFT_OK;
}

Test(wait_node, virtual_ranks_wait_for_layers)
{
    for (int held = 0; held < 2; held++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            struct weft_virtual_config config;
            weft_virtual_config_init(&config);
            config.seed = seed;
            config.shuffle = seed % 2 != 0;
            config.delay_ns = 5000;
            OK(weft_virtual_run(1 + (int)(seed % MOST_RANKS), &config, train_virtual, &held));
        }
}

/* In virtual time it is seen when a wait returns. */
static int wait_in_time(struct weft_context *context, void *user)
{
    struct weft_run *run = make_run(context, commit(held_schedule()), NULL);
    (void)user;
    OK(weft_run_start(run));
    OK(weft_run_wait_node(run, FIRST, WEFT_NEVER));
    uint64_t began = weft_context_now(context);
    CHECK_STATUS(weft_run_wait_node(run, SECOND, 5000), WEFT_IN_PROGRESS);
    CHECK(weft_context_now(context) == began + 5000);
    OK(weft_run_fire(run, EVENT));
    OK(weft_run_wait_node(run, SECOND, 5000));
    CHECK(weft_context_now(context) < began + 10000);
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(wait_node, a_timeout_is_kept)
{
    OK(weft_virtual_run(1, NULL, wait_in_time, NULL));
}
