/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank gives up: whenever it does, everything of all ranks ends, with its text. */
#include <criterion/criterion.h>

#include "parts.h"

enum { RANKS_MOST = 16, STEPS = 3 };

struct aborting {
    struct weft_context *contexts[RANKS_MOST];
    int culprit;
    uint64_t events, at; /* it gives up at that event, or when it has done its steps */
    atomic_int failed;   /* ranks that have ended */
};

static int hold(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    (void)user, (void)series, (void)arm;
    return WEFT_IN_PROGRESS;
}

static int go_on(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    (void)user, (void)series, (void)arm;
    return WEFT_OK;
}

struct things {
    struct weft_object *object;
    struct weft_run *own, *member;
    struct weft_series *held, *running, *lone;
    int64_t x[2];
};

static void things_make(struct things *things, struct weft_context *context)
{
    int rank = weft_context_rank(context);
    struct weft_series_config config;
    memset(things, 0, sizeof *things);
    things->x[0] = things->x[1] = rank;
    things->own = chain_run(context, NULL, 0, "own", NULL, &things->x[0]);
    OK(weft_object_create(&things->object, context, NULL));
    things->member = chain_run(context, things->object, 0, "member", NULL, &things->x[1]);
    if (weft_context_progress_mode(context) != WEFT_PROGRESS_HELPER)
        return;
    weft_series_config_init(&config);
    config.arm = hold;
    things->lone = wait_series(context, &config);
    config.object = things->object;
    things->held = wait_series(context, &config);
    config.arm = go_on;
    things->running = wait_series(context, &config);
}

static void things_destroy(struct things *things)
{
    weft_series_destroy(things->lone);
    weft_series_destroy(things->held);
    weft_series_destroy(things->running);
    weft_run_destroy(things->own);
    weft_run_destroy(things->member);
    weft_object_destroy(things->object);
}

/* An error is that of the rank that has given up. */
static int is_over(const struct aborting *aborting, struct weft_context *context, int status)
{
    char culprit[48];
    if (status == WEFT_OK)
        return 0;
    snprintf(culprit, sizeof culprit, "rank %d has aborted: enough is enough", aborting->culprit);
    CHECK_STATUS(status,
                 weft_context_rank(context) == aborting->culprit ? WEFT_ERR_IO : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), culprit);
    return 1;
}

static void steps(struct aborting *aborting, struct weft_context *context, struct things *things)
{
    int rank = weft_context_rank(context), over = 0;
    struct weft_run *runs[2] = {things->own, things->member};
    struct weft_series *series[3] = {things->lone, things->held, things->running};
    for (int i = 0; i < 3 && !over && series[i]; i++)
        over = is_over(aborting, context, weft_series_start(series[i]));
    for (int step = 0; step < STEPS && !over; step++) {
        for (int i = 0; i < 2 && !over; i++) {
            OK(weft_run_start(runs[i]));
            if (rank == 0)
                weft_run_fire(runs[i], 0);
            over = is_over(aborting, context, weft_run_wait(runs[i], WEFT_NEVER));
        }
        if (things->running)
            weft_series_fire(things->running, (uint64_t)step, 0);
    }
}

static void expect_run(const struct aborting *aborting, struct weft_run *run)
{
    struct weft_context *context = aborting->contexts[weft_plan_rank(weft_run_plan(run))];
    int status;
    while ((status = weft_run_reclaim(run)) == WEFT_IN_PROGRESS)
        sched_yield();
    CHECK(status == WEFT_OK);
    OK(weft_run_start(run));
    CHECK(is_over(aborting, context, weft_run_wait(run, WEFT_NEVER)));
}

static void expect_end(const struct aborting *aborting, struct weft_series *series)
{
    if (!series)
        return;
    struct weft_run *run = weft_series_get_run(series, 0);
    struct weft_context *context = aborting->contexts[weft_plan_rank(weft_run_plan(run))];
    CHECK(is_over(aborting, context, weft_series_wait(series, 100, WEFT_NEVER)));
}

/* Steps, then gives up or hears that another does; then everything has failed. */
static int work(struct weft_context *context, void *user)
{
    struct aborting *aborting = user;
    int rank = weft_context_rank(context);
    struct things things, late;
    aborting->contexts[rank] = context;
    things_make(&things, context);
    steps(aborting, context, &things);
    if (rank == aborting->culprit)
        OK(weft_context_abort(context, WEFT_ERR_IO, "enough is enough"));
    OK(weft_run_start(things.own)); /* nobody fires it */
    CHECK(is_over(aborting, context, weft_run_wait(things.own, WEFT_NEVER)));
    CHECK(is_over(aborting, context, weft_object_check(things.object, "work")));
    expect_end(aborting, things.lone);
    expect_end(aborting, things.held);
    expect_end(aborting, things.running);
    expect_run(aborting, things.own);
    expect_run(aborting, things.member);
    /* And what is made from now on. */
    things_make(&late, context);
    CHECK(is_over(aborting, context, weft_object_check(late.object, "work")));
    expect_run(aborting, late.own);
    expect_run(aborting, late.member);
    expect_end(aborting, late.lone);
    expect_end(aborting, late.held);
    expect_end(aborting, late.running);
    things_destroy(&late);
    things_destroy(&things);
    atomic_fetch_add(&aborting->failed, 1);
    return WEFT_OK;
}

/* ---- at every event ---- */

static void give_up(void *user, const struct weft_virtual_event *event)
{
    struct aborting *aborting = user;
    (void)event;
    if (aborting->events++ < aborting->at || !aborting->contexts[aborting->culprit])
        return;
    struct weft_context *context = aborting->contexts[aborting->culprit];
    aborting->at = UINT64_MAX;
    OK(weft_context_abort(context, WEFT_ERR_IO, "enough is enough"));
    OK(weft_context_abort(context, WEFT_ERR_INVALID, "too late"));
}

/* Returns how many events there were. */
static uint64_t abort_at(int size, int culprit, uint64_t at, uint64_t seed)
{
    struct aborting aborting = {.culprit = culprit, .at = at};
    struct weft_virtual_config config = with_seed(seed);
    config.delay_ns = 20000;
    config.duplicate_share = 0.2;
    config.trace = give_up;
    config.trace_user = &aborting;
    OK(weft_virtual_run(size, &config, work, &aborting));
    cr_assert_eq(aborting.failed, size);
    return aborting.events;
}

Test(abort, at_every_event)
{
    static const int sizes[] = {1, 2, 3, 5, 8, 13};
    for (int s = 0; s < (int)SWEPT(sizeof sizes / sizeof *sizes, 4); s++) {
        int size = sizes[s];
        uint64_t events = abort_at(size, 0, UINT64_MAX, 1);
        for (uint64_t at = 0; at < events; at++)
            abort_at(size, (int)drawn(at, 1, (uint64_t)size), at, 1 + at % 5);
    }
}

/* ---- on threads ---- */

static void *abort_by_thread(void *context)
{
    OK(weft_context_abort(context, WEFT_ERR_IO, "enough is enough"));
    return NULL;
}

/* One more thread of the culprit gives up in the middle. */
static int work_beside(struct weft_context *context, void *user)
{
    struct aborting *aborting = user;
    pthread_t thread;
    int culprit = weft_context_rank(context) == aborting->culprit;
    if (culprit)
        CHECK(pthread_create(&thread, NULL, abort_by_thread, context) == 0);
    work(context, user);
    if (culprit)
        CHECK(pthread_join(thread, NULL) == 0);
    return WEFT_OK;
}

Test(abort, by_any_thread_of_a_local_rank)
{
    for (int size = 1; size <= 7; size++)
        for (int round = 0; round < 4; round++)
            for (int helped = 0; helped < 2; helped++) {
                struct aborting aborting = {.culprit = round % size};
                OK(local_run(size, helped ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER,
                             round < 2 ? work : work_beside, &aborting));
                cr_expect_eq(aborting.failed, size);
            }
}

/* ---- by callbacks ---- */

static void ended_giving_up(void *user, struct weft_run *run, int status)
{
    struct weft_context *context = user;
    (void)run;
    if (status == WEFT_OK)
        OK(weft_context_abort(context, WEFT_ERR_IO, NULL));
}

static int abort_in_callback(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_run_config config;
    int64_t x[2] = {0, 0};
    (void)user;
    weft_run_config_init(&config);
    config.ended = ended_giving_up;
    config.user = context;
    struct weft_run *first = make_run(context, chain_from(0, rank, size, "first", NULL),
                                      rank == size - 1 ? &config : NULL);
    struct weft_run *second = chain_run(context, NULL, 0, "second", NULL, &x[1]);
    OK(bind_slot(first, 0, &x[0]));
    OK(weft_run_start(second));
    OK(weft_run_start(first));
    if (rank == 0)
        OK(weft_run_fire(first, 0));
    CHECK_STATUS(weft_run_wait(second, WEFT_NEVER), rank == size - 1 ? WEFT_ERR_IO : WEFT_ERR_PEER);
    char text[64];
    snprintf(text, sizeof text, "rank %d has aborted: %s", size - 1, weft_status_text(WEFT_ERR_IO));
    CHECK_TEXT(weft_error_text(), text);
    weft_run_destroy(first);
    weft_run_destroy(second);
    return WEFT_OK;
}

Test(abort, a_callback_may_and_without_text_the_status_tells)
{
    for (int size = 1; size <= 5; size++) {
        OK(local_run(size, WEFT_PROGRESS_CALLER, abort_in_callback, NULL));
        OK(local_run(size, WEFT_PROGRESS_HELPER, abort_in_callback, NULL));
        OK(weft_virtual_run(size, NULL, abort_in_callback, NULL));
    }
}

/* ---- what comes with it ---- */

/* A text that is too long for news is cut for the others, and destroying is all that is left. */
static int abort_at_length(struct weft_context *context, void *user)
{
    char text[3000];
    int64_t x = 0;
    struct weft_run *run = chain_run(context, NULL, 0, "run", NULL, &x);
    (void)user;
    memset(text, 'x', sizeof text);
    memcpy(text, "begin ", 6);
    text[sizeof text - 1] = '\0';
    if (weft_context_rank(context) == 1)
        OK(weft_context_abort(context, WEFT_ERR_COMPUTE, text));
    OK(weft_run_start(run));
    CHECK(weft_run_wait(run, WEFT_NEVER) < 0);
    CHECK_TEXT(weft_error_text(), "rank 1 has aborted: begin xxxxxxxx");
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(abort, a_long_text_is_cut)
{
    for (int size = 2; size <= 9; size += 7) {
        OK(local_run(size, WEFT_PROGRESS_HELPER, abort_at_length, NULL));
        OK(weft_virtual_run(size, NULL, abort_at_length, NULL));
    }
}

/* Ranks that are at their end already, or never heard: their contexts are destroyed. */
static void abort_and_end(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct things things;
    things_make(&things, context);
    if (rank == *(int *)ranks->user)
        OK(weft_context_abort(context, WEFT_ERR_IO, "enough is enough"));
    things_destroy(&things);
}

Test(abort, whoever_is_at_its_end_ends)
{
    for (int culprit = 0; culprit < 4; culprit++) {
        ranks_run_once(abort_and_end, 4, &culprit);
        ranks_run_helped(abort_and_end, 4, &culprit);
    }
}

Test(abort, needs_an_error)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    cr_expect_eq(weft_context_abort(alone.context, WEFT_OK, "no"), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "`status` is 0"));
    cr_expect_eq(weft_context_abort(alone.context, WEFT_IN_PROGRESS, "no"), WEFT_ERR_INVALID);
    cr_expect_eq(weft_context_abort(NULL, WEFT_ERR_IO, "no"), WEFT_ERR_INVALID);
    alone_destroy(&alone);
}
