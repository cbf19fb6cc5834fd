/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects and giving up between processes: one failure reaches all ranks with its text, also those
 * that have still to create the object; objects are left in any order; who gives up ends
 * everything.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/bind.h"
#include "tests/support/compute.h"
#include "world.h"

static struct weft_context *context;
static int rank, size;

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* A message from `first` on through all ranks, which that rank begins by event 0. `op`: called
 * there before. */
static struct weft_run *chain(struct weft_object *object, int first, const char *name,
                              const struct weft_op *op, int64_t *x)
{
    struct weft_schedule *schedule = NULL;
    struct weft_run_config config;
    weft_node_t before;
    weft_slot_t slot;

    weft_run_config_init(&config);
    config.object = object;
    OK(weft_schedule_create(&schedule, rank, size));
    OK(weft_schedule_set_name(schedule, name));
    slot = weft_schedule_add_slot(schedule, "x", WEFT_I64, 1, WEFT_SLOT_INOUT);
    if (rank == first)
        before = weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    else
        before = weft_schedule_add_recv(schedule, weft_region_at(slot, 0, 1),
                                        (rank + size - 1) % size, 0);
    if (rank == first && op) {
        weft_node_t call = add_compute(schedule, op, NULL, 0, 0, 0);

        OK(weft_schedule_add_order(schedule, before, call));
        before = call;
    }
    if ((rank + 1) % size != first)
        OK(weft_schedule_add_order(
            schedule, before,
            weft_schedule_add_send(schedule, weft_region_at(slot, 0, 1), (rank + 1) % size, 0)));
    struct weft_run *run = world_run(context, schedule, &config);
    OK(bind_slot(run, slot, x));
    return run;
}

static void start(struct weft_run *run, int first)
{
    OK(weft_run_start(run));
    if (rank == first)
        weft_run_fire(run, 0);
}

static void still_works(void)
{
    int64_t x = rank == 0 ? 4711 : 0;
    struct weft_run *run = chain(NULL, 0, "other", NULL, &x);

    start(run, 0);
    OK(weft_run_wait(run, WEFT_NEVER));
    CHECK(x == 4711);
    weft_run_destroy(run);
}

static int hold(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    (void)user, (void)series, (void)arm;
    return WEFT_IN_PROGRESS;
}

/* A series that holds its first version; NULL without a helper. */
static struct weft_series *held(struct weft_object *object)
{
    struct weft_schedule *schedule = NULL;
    struct weft_series_config config;
    struct weft_series *series = NULL;
    struct weft_plan *plan = NULL;

    if (weft_context_progress_mode(context) != WEFT_PROGRESS_HELPER)
        return NULL;
    OK(weft_schedule_create(&schedule, rank, size));
    weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    OK(weft_schedule_commit(schedule, &plan));
    weft_schedule_destroy(schedule);
    weft_series_config_init(&config);
    config.arm = hold;
    config.object = object;
    config.plans = &plan;
    config.plan_count = 1;
    OK(weft_series_create(&series, context, &config));
    weft_plan_destroy(plan);
    return series;
}

static int break_down(struct weft_call *call)
{
    (void)call;
    return weft_error_set(WEFT_ERR_COMPUTE, "it broke");
}

/* ---- one failure ends all ---- */

enum cause { NODE, DEADLINE, CANCEL, FAIL, CAUSES };

static void expect(int status, int own, int culprit, const char *word)
{
    char who[32];

    snprintf(who, sizeof who, "rank %d", culprit);
    if (status != (rank == culprit ? own : WEFT_ERR_PEER) || !strstr(weft_error_text(), word) ||
        (rank != culprit && !strstr(weft_error_text(), who)))
        printf("rank %d: %s: %s\n", rank, weft_status_name(status), weft_error_text());
    CHECK(status == (rank == culprit ? own : WEFT_ERR_PEER));
    CHECK(strstr(weft_error_text(), word));
    CHECK(rank == culprit || strstr(weft_error_text(), who));
}

static void one_fails(enum cause cause, int late)
{
    static const char *const words[] = {"it broke", "not finished 0.005", "cancelled",
                                        "the sky is low"};
    static const int statuses[] = {WEFT_ERR_COMPUTE, WEFT_ERR_TIMEOUT, WEFT_ERR_CANCELLED,
                                   WEFT_ERR_IO};
    int culprit = size / 2;
    struct weft_op_config op_config;
    struct weft_object *object = NULL;
    struct weft_op *op = NULL;
    int64_t x[3] = {0, 0, 0};

    if (cause == NODE) {
        weft_op_config_init(&op_config);
        op_config.name = "broken";
        op_config.compute = break_down;
        OK(weft_op_create(&op, &op_config));
    }
    struct weft_run *alone = chain(NULL, 0, "alone", NULL, &x[2]);
    OK(weft_run_start(alone));
    if (late && rank != culprit && rank % 2 == 0) {
        /* The news come first, and are passed on. */
        for (int i = 0; i < 10; i++) {
            nap();
            weft_context_progress(context);
        }
    }
    OK(weft_object_create(&object, context, NULL));
    struct weft_run *idle = chain(object, 0, "idle", NULL, &x[0]);
    struct weft_run *work = chain(object, culprit, "work", op, &x[1]);
    struct weft_series *series = held(object);
    if (rank == culprit && cause == DEADLINE)
        OK(weft_run_set_deadline(work, 5000000));
    if (series)
        (void)weft_series_start(series); /* it may have failed by now */
    OK(weft_run_start(idle));
    OK(weft_run_start(work));
    if (rank == culprit && cause == NODE)
        OK(weft_run_fire(work, 0));
    if (rank == culprit && cause == CANCEL)
        OK(weft_run_cancel(work));
    if (rank == culprit && cause == FAIL)
        OK(weft_object_fail(object, WEFT_ERR_IO, "the sky is low"));
    expect(weft_run_wait(idle, WEFT_NEVER), statuses[cause], culprit, words[cause]);
    expect(weft_run_wait(work, WEFT_NEVER), statuses[cause], culprit, words[cause]);
    expect(weft_object_check(object, "test"), statuses[cause], culprit, words[cause]);
    if (series)
        expect(weft_series_wait(series, 0, WEFT_NEVER), statuses[cause], culprit, words[cause]);
    while (weft_run_reclaim(idle) == WEFT_IN_PROGRESS)
        nap();
    OK(weft_run_start(idle)); /* fails at once */
    expect(weft_run_wait(idle, WEFT_NEVER), statuses[cause], culprit, words[cause]);
    weft_series_destroy(series);
    weft_run_destroy(idle);
    weft_run_destroy(work);
    weft_object_destroy(object);
    weft_op_destroy(op);
    /* What belongs to nothing goes on. */
    if (rank == 0)
        OK(weft_run_fire(alone, 0));
    OK(weft_run_wait(alone, WEFT_NEVER));
    weft_run_destroy(alone);
    still_works();
    world_ok("an object fails on all ranks, as rank %d says: %s%s", culprit, words[cause],
             late ? ", before some have created it" : "");
}

/* ---- leaving ---- */

struct left {
    struct weft_object *object;
    struct weft_run *run;
    int64_t x;
    uint64_t largest;
    int released;
};

static void all_left(void *user, struct weft_object *object)
{
    (void)user;
    OK(weft_object_settle(object, (uint64_t)rank + 100));
}

static void all_settled(void *user, struct weft_object *object, uint64_t largest)
{
    ((struct left *)user)->largest = largest;
    OK(weft_object_done(object));
}

static void release(void *user)
{
    struct left *left = user;

    left->released++;
    weft_run_destroy(left->run);
    weft_object_destroy(left->object);
}

static void leave(const struct weft_context_config *settings)
{
    struct left left[2];
    struct weft_object_config config;

    memset(left, 0, sizeof left);
    context = world_context(settings);
    for (int i = 0; i < 2; i++) {
        weft_object_config_init(&config);
        config.left = all_left;
        config.settled = all_settled;
        config.release = release;
        config.user = &left[i];
        OK(weft_object_create(&left[i].object, context, &config));
        left[i].run = chain(left[i].object, 0, "work", NULL, &left[i].x);
        start(left[i].run, 0);
        OK(weft_run_wait(left[i].run, WEFT_NEVER));
    }
    if (rank % 3 == 1)
        nap();
    OK(weft_object_leave(left[rank % 2].object));
    if (rank % 3 == 2)
        nap();
    OK(weft_object_leave(left[1 - rank % 2].object));
    OK(weft_context_destroy(context)); /* serves them until all have left */
    for (int i = 0; i < 2; i++) {
        CHECK(left[i].released == 1);
        CHECK(left[i].largest == (uint64_t)size + 99);
    }
    world_ok("two objects are left in different orders");
}

/* ---- ending with an object, giving up ---- */

static void end_with_object(const struct weft_context_config *settings)
{
    struct weft_object *object = NULL;
    int64_t x = 0;

    context = world_context(settings);
    OK(weft_object_create(&object, context, NULL));
    struct weft_run *run = chain(object, 0, "work", NULL, &x);
    if (rank != size / 2) {
        OK(weft_run_start(run));
        CHECK(weft_run_wait(run, WEFT_NEVER) == WEFT_ERR_PEER);
        if (!strstr(weft_error_text(), "has destroyed its context"))
            printf("rank %d: %s\n", rank, weft_error_text());
        CHECK(strstr(weft_error_text(), "has destroyed its context"));
        weft_run_destroy(run);
        weft_object_destroy(object);
    }
    OK(weft_context_destroy(context));
    world_ok("a rank that ends with an object fails it");
}

static void give_up(const struct weft_context_config *settings)
{
    struct weft_object *object = NULL;
    int64_t x[2] = {0, 0};
    int culprit = size - 1;

    context = world_context(settings);
    struct weft_run *alone = chain(NULL, 0, "alone", NULL, &x[0]);
    OK(weft_object_create(&object, context, NULL));
    struct weft_run *work = chain(object, 0, "work", NULL, &x[1]);
    struct weft_series *series = held(object), *lone = held(NULL);
    if (series) {
        (void)weft_series_start(series);
        (void)weft_series_start(lone);
    }
    OK(weft_run_start(alone));
    OK(weft_run_start(work));
    if (rank == culprit) {
        OK(weft_context_abort(context, WEFT_ERR_IO, "enough is enough"));
        OK(weft_context_abort(context, WEFT_ERR_INVALID, "too late"));
    }
    expect(weft_run_wait(alone, WEFT_NEVER), WEFT_ERR_IO, culprit, "aborted: enough is enough");
    expect(weft_run_wait(work, WEFT_NEVER), WEFT_ERR_IO, culprit, "aborted: enough is enough");
    expect(weft_object_check(object, "test"), WEFT_ERR_IO, culprit, "enough is enough");
    if (series) {
        expect(weft_series_wait(series, 0, WEFT_NEVER), WEFT_ERR_IO, culprit, "enough is enough");
        expect(weft_series_wait(lone, 0, WEFT_NEVER), WEFT_ERR_IO, culprit, "enough is enough");
    }
    while (weft_run_reclaim(alone) == WEFT_IN_PROGRESS)
        nap();
    OK(weft_run_start(alone)); /* fails at once */
    expect(weft_run_wait(alone, WEFT_NEVER), WEFT_ERR_IO, culprit, "enough is enough");
    weft_series_destroy(series);
    weft_series_destroy(lone);
    weft_run_destroy(alone);
    weft_run_destroy(work);
    weft_object_destroy(object);
    OK(weft_context_destroy(context));
    /* Others can be made after it. */
    context = world_context(settings);
    still_works();
    OK(weft_context_destroy(context));
    world_ok("a rank gives up, and everything of all ranks ends");
}

int main(int argc, char **argv)
{
    struct weft_context_config config;

    world_init(&argc, &argv, WORLD_THREADS);
    rank = world_rank;
    size = world_size;
    for (int helped = 0; helped < 2; helped++) {
        weft_context_config_init(&config);
        config.progress = helped ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
        context = world_context(&config);
        for (int cause = 0; cause < CAUSES; cause++)
            for (int late = 0; late < 2; late++)
                one_fails((enum cause)cause, late);
        OK(weft_context_destroy(context));
        leave(&config);
        end_with_object(&config);
        give_up(&config);
    }
    return world_end();
}
