/* SPDX-License-Identifier: BSD-3-Clause */
/* Events and choices: what fires, what is retired, who wins. Signals are in test_signals.c. */
#include <criterion/criterion.h>

#include "notes.h"

TestSuite(events, .init = setup, .fini = teardown);

/* ---- joins ---- */

Test(events, a_node_waits_for_all_its_predecessors)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t e[3];
    for (int i = 0; i < 3; i++)
        e[i] = event(s);
    weft_node_t node = noting(s, &notes, 1);
    for (int i = 0; i < 3; i++)
        weft_schedule_add_order(s, e[i], node);
    struct weft_run *run = run_of(s);
    for (int round = 0; round < 6; round++) {
        notes.count = 0;
        OK(weft_run_start(run));
        for (int i = 0; i < 3; i++) {
            weft_context_progress(alone.context);
            CHECK(notes.count == 0);
            CHECK(weft_run_test(run) == WEFT_IN_PROGRESS);
            OK(weft_run_fire(run, e[(i + round) % 3]));
            CHECK_STATUS(weft_run_fire(run, e[(i + round) % 3]),
                         i < 2 ? WEFT_RETIRED : WEFT_ERR_STATE);
        }
        OK(weft_run_wait(run, WEFT_NEVER));
        cr_expect_eq(notes.count, 1);
    }
    weft_run_destroy(run);
}

Test(events, an_any_node_starts_once_with_the_first_and_ignores_the_rest)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t e[3];
    for (int i = 0; i < 3; i++)
        e[i] = event(s);
    weft_node_t node = noting(s, &notes, 1);
    for (int i = 0; i < 3; i++)
        weft_schedule_add_order(s, e[i], node);
    OK(weft_schedule_set_any(s, node));
    weft_node_t after = noting(s, &notes, 2);
    weft_schedule_add_order(s, node, after);
    struct weft_run *run = run_of(s);
    for (int round = 0; round < 6; round++) {
        notes.count = 0;
        OK(weft_run_start(run));
        CHECK(weft_run_test(run) == WEFT_IN_PROGRESS);
        CHECK(notes.count == 0);
        for (int i = 0; i < 3; i++) {
            OK(weft_run_fire(run, e[(i + round) % 3]));
            weft_context_progress(alone.context);
            CHECK(noted(&notes, 1) == 1 && noted(&notes, 2) == 1);
            if (i < 2) /* the run stays open for the other events */
                CHECK(weft_run_test(run) == WEFT_IN_PROGRESS);
        }
        OK(weft_run_wait(run, WEFT_NEVER));
        cr_expect_eq(notes.count, 2);
    }
    weft_run_destroy(run);
}

Test(events, an_any_node_without_predecessors_starts)
{
    struct weft_schedule *s = new_schedule(0, 1);
    OK(weft_schedule_set_any(s, noting(s, &notes, 1)));
    struct weft_run *run = run_of(s);
    OK(weft_run_execute(run));
    cr_expect_eq(notes.count, 1);
    weft_run_destroy(run);
}

/* ---- firing ---- */

Test(events, an_event_fired_before_its_predecessors_ends_after_them)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t first = event(s);
    weft_node_t second = event(s);
    weft_node_t node = noting(s, &notes, 1);
    weft_schedule_add_order(s, first, second);
    weft_schedule_add_order(s, second, node);
    struct weft_run *run = run_of(s);
    for (int i = 0; i < 3; i++) {
        notes.count = 0;
        OK(weft_run_start(run));
        OK(weft_run_fire(run, second));
        CHECK_STATUS(weft_run_fire(run, second), WEFT_RETIRED);
        weft_context_progress(alone.context);
        cr_expect_eq(notes.count, 0);
        OK(weft_run_fire(run, first));
        OK(weft_run_wait(run, WEFT_NEVER));
        cr_expect_eq(notes.count, 1);
    }
    weft_run_destroy(run);
}

Test(events, an_any_event_needs_one_predecessor_and_its_firing)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t a = event(s);
    weft_node_t b = event(s);
    weft_node_t any = event(s);
    weft_node_t node = noting(s, &notes, 1);
    weft_schedule_add_order(s, a, any);
    weft_schedule_add_order(s, b, any);
    weft_schedule_add_order(s, any, node);
    OK(weft_schedule_set_any(s, any));
    struct weft_run *run = run_of(s);
    for (int early = 0; early < 2; early++) {
        notes.count = 0;
        OK(weft_run_start(run));
        OK(weft_run_fire(run, early ? any : b));
        weft_context_progress(alone.context);
        cr_expect_eq(notes.count, 0);
        OK(weft_run_fire(run, early ? b : any));
        weft_context_progress(alone.context);
        cr_expect_eq(notes.count, 1);
        OK(weft_run_fire(run, a));
        OK(weft_run_wait(run, WEFT_NEVER));
        cr_expect_eq(notes.count, 1);
    }
    weft_run_destroy(run);
}

Test(events, firing_does_nothing_to_a_run_that_is_not_active)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t e = event(s);
    struct weft_run *run = run_of(s);
    CHECK_STATUS(weft_run_fire(run, e), WEFT_ERR_STATE);
    OK(weft_run_start(run));
    OK(weft_run_fire(run, e));
    OK(weft_run_wait(run, WEFT_NEVER));
    CHECK_STATUS(weft_run_fire(run, e), WEFT_ERR_STATE);
    /* Nothing of it is left for the next version. */
    OK(weft_run_start(run));
    cr_expect_eq(weft_run_test(run), WEFT_IN_PROGRESS);
    OK(weft_run_fire(run, e));
    OK(weft_run_wait(run, WEFT_NEVER));
    weft_run_destroy(run);
}

/* An `ended` callback starts another run and fires its event, without waiting for anything. */
struct relay {
    struct weft_run *next;
    weft_node_t event;
    int fired;
};

static void start_and_fire(void *user, struct weft_run *run, int status)
{
    struct relay *relay = user;
    (void)run;
    OK(status);
    OK(weft_run_start(relay->next));
    relay->fired = weft_run_fire(relay->next, relay->event);
}

Test(events, a_callback_may_fire_the_run_that_it_starts, .timeout = 140)
{
    struct weft_run_config config;
    struct relay relay = {NULL, 0, -1};
    struct weft_schedule *s = new_schedule(0, 1);
    relay.event = event(s);
    weft_node_t node = noting(s, &notes, 1);
    weft_schedule_add_order(s, relay.event, node);
    relay.next = run_of(s);
    s = new_schedule(0, 1);
    weft_schedule_add_join(s);
    weft_run_config_init(&config);
    config.ended = start_and_fire;
    config.user = &relay;
    struct weft_run *run = make_run(alone.context, commit(s), &config);
    OK(weft_run_execute(run));
    OK(weft_run_wait(relay.next, WEFT_NEVER));
    cr_expect_eq(relay.fired, WEFT_OK);
    cr_expect_eq(notes.count, 1);
    weft_run_destroy(run);
    weft_run_destroy(relay.next);
}

/* ---- choices and retirement ---- */

Test(events, the_first_of_a_choice_wins_and_the_others_do_nothing)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t e[4];
    for (int i = 0; i < 4; i++)
        e[i] = event(s);
    for (int i = 0; i < 4; i++)
        weft_schedule_add_order(s, e[i], noting(s, &notes, i));
    OK(weft_schedule_add_choice(s, e, 4));
    struct weft_run *run = run_of(s);
    for (int i = 0; i < 8; i++) {
        notes.count = 0;
        OK(weft_run_start(run));
        OK(weft_run_fire(run, e[i % 4]));
        int late = weft_run_fire(run, e[(i + 1) % 4]);
        CHECK(late == WEFT_RETIRED || late == WEFT_ERR_STATE); /* it may have ended */
        OK(weft_run_wait(run, WEFT_NEVER));
        cr_expect_eq(notes.count, 1);
        cr_expect_eq(notes.order[0], i % 4);
    }
    weft_run_destroy(run);
}

Test(events, retirement_passes_through_all_nodes_and_stops_at_any_nodes_with_another_way)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t a = event(s);
    weft_node_t b = event(s);
    weft_node_t other = event(s);
    weft_node_t all = noting(s, &notes, 1);      /* of b and other: retired with b */
    weft_node_t chained = noting(s, &notes, 2);  /* of all: retired */
    weft_node_t any = noting(s, &notes, 3);      /* of b and other: waits for other */
    weft_node_t any_both = noting(s, &notes, 4); /* of b and all: both retired, so is it */
    weft_node_t any_won = noting(s, &notes, 5);  /* of a and b */
    choice(s, a, b);
    weft_schedule_add_order(s, b, all);
    weft_schedule_add_order(s, other, all);
    weft_schedule_add_order(s, all, chained);
    weft_schedule_add_order(s, b, any);
    weft_schedule_add_order(s, other, any);
    OK(weft_schedule_set_any(s, any));
    weft_schedule_add_order(s, b, any_both);
    weft_schedule_add_order(s, all, any_both);
    OK(weft_schedule_set_any(s, any_both));
    weft_schedule_add_order(s, a, any_won);
    weft_schedule_add_order(s, b, any_won);
    OK(weft_schedule_set_any(s, any_won));
    struct weft_run *run = run_of(s);
    for (int first = 0; first < 2; first++) {
        notes.count = 0;
        OK(weft_run_start(run));
        OK(weft_run_fire(run, first ? other : a));
        weft_context_progress(alone.context);
        CHECK(weft_run_test(run) == WEFT_IN_PROGRESS);
        OK(weft_run_fire(run, first ? a : other));
        OK(weft_run_wait(run, WEFT_NEVER));
        cr_expect_eq(notes.count, 2);
        cr_expect_eq(noted(&notes, 3), 1);
        cr_expect_eq(noted(&notes, 5), 1);
        /* The other way round nothing is retired. */
        notes.count = 0;
        OK(weft_run_start(run));
        OK(weft_run_fire(run, first ? other : b));
        OK(weft_run_fire(run, first ? b : other));
        OK(weft_run_wait(run, WEFT_NEVER));
        cr_expect_eq(notes.count, 5);
    }
    weft_run_destroy(run);
}

Test(events, an_event_behind_a_retired_one_is_retired_even_if_it_was_fired)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t a = event(s);
    weft_node_t b = event(s);
    weft_node_t behind = event(s);
    weft_node_t open = event(s);
    choice(s, a, b);
    weft_schedule_add_order(s, b, behind);
    weft_schedule_add_order(s, behind, noting(s, &notes, 1));
    struct weft_run *run = run_of(s);
    for (int early = 0; early < 2; early++) {
        notes.count = 0;
        OK(weft_run_start(run));
        if (early)
            OK(weft_run_fire(run, behind));
        OK(weft_run_fire(run, a));
        weft_context_progress(alone.context);
        CHECK_STATUS(weft_run_fire(run, behind), WEFT_RETIRED);
        CHECK_STATUS(weft_run_fire(run, b), WEFT_RETIRED);
        OK(weft_run_fire(run, open));
        OK(weft_run_wait(run, WEFT_NEVER));
        cr_expect_eq(notes.count, 0);
    }
    weft_run_destroy(run);
}

Test(events, a_choice_decided_before_its_predecessors_have_ended)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t gate = event(s);
    weft_node_t a = event(s);
    weft_node_t b = event(s);
    choice(s, a, b);
    weft_schedule_add_order(s, gate, a);
    weft_schedule_add_order(s, gate, b);
    weft_schedule_add_order(s, a, noting(s, &notes, 1));
    weft_schedule_add_order(s, b, noting(s, &notes, 2));
    struct weft_run *run = run_of(s);
    for (int i = 0; i < 4; i++) {
        notes.count = 0;
        OK(weft_run_start(run));
        OK(weft_run_fire(run, i % 2 ? a : b));
        CHECK_STATUS(weft_run_fire(run, i % 2 ? b : a), WEFT_RETIRED);
        weft_context_progress(alone.context);
        cr_expect_eq(notes.count, 0);
        OK(weft_run_fire(run, gate));
        OK(weft_run_wait(run, WEFT_NEVER));
        cr_expect_eq(notes.count, 1);
        cr_expect_eq(notes.order[0], i % 2 ? 1 : 2);
    }
    weft_run_destroy(run);
}

Test(events, the_winner_of_one_choice_may_retire_a_member_of_another)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t a = event(s), b = event(s), c = event(s), d = event(s);
    choice(s, a, b);
    choice(s, c, d);
    weft_schedule_add_order(s, b, c); /* c is retired if a wins, so only d is left */
    weft_schedule_add_order(s, c, noting(s, &notes, 1));
    weft_schedule_add_order(s, d, noting(s, &notes, 2));
    struct weft_run *run = run_of(s);
    OK(weft_run_start(run));
    OK(weft_run_fire(run, a));
    weft_context_progress(alone.context);
    CHECK_STATUS(weft_run_fire(run, c), WEFT_RETIRED);
    cr_expect_eq(weft_run_test(run), WEFT_IN_PROGRESS);
    OK(weft_run_fire(run, d));
    OK(weft_run_wait(run, WEFT_NEVER));
    cr_expect_eq(notes.count, 1);
    cr_expect_eq(notes.order[0], 2);
    weft_run_destroy(run);
}

/* ---- many threads ---- */

enum { FIRERS = 4, EVENTS = 8 };

struct contest {
    struct weft_run *run;
    weft_node_t events[EVENTS];
    int rounds;
    pthread_barrier_t barrier;
    atomic_int wins;
    atomic_int bad;
    int together; /* a choice; else each event has to be fired once */
};

static void *contend(void *argument)
{
    struct contest *contest = argument;
    for (int i = 0; i < contest->rounds; i++) {
        pthread_barrier_wait(&contest->barrier);
        for (int e = 0; e < EVENTS; e++) {
            int status = weft_run_fire(contest->run, contest->events[(e + i) % EVENTS]);
            if (status == WEFT_OK)
                atomic_fetch_add(&contest->wins, 1);
            else if (status != WEFT_RETIRED && status != WEFT_ERR_STATE)
                atomic_fetch_add(&contest->bad, 1);
        }
        pthread_barrier_wait(&contest->barrier);
    }
    return NULL;
}

static void hold_contest(weft_progress_t progress, int together)
{
    struct alone own = alone_create(progress);
    struct contest contest = {.rounds = 500, .together = together};
    pthread_t threads[FIRERS];
    struct weft_schedule *s = new_schedule(0, 1);
    for (int e = 0; e < EVENTS; e++) {
        contest.events[e] = event(s);
        weft_schedule_add_order(s, contest.events[e], noting(s, &notes, e));
    }
    if (together)
        OK(weft_schedule_add_choice(s, contest.events, EVENTS));
    contest.run = make_run(own.context, commit(s), NULL);
    CHECK(pthread_barrier_init(&contest.barrier, NULL, FIRERS + 1) == 0);
    for (int t = 0; t < FIRERS; t++)
        CHECK(pthread_create(&threads[t], NULL, contend, &contest) == 0);
    for (int i = 0; i < contest.rounds; i++) {
        notes.count = 0;
        atomic_store(&contest.wins, 0);
        OK(weft_run_start(contest.run));
        pthread_barrier_wait(&contest.barrier);
        OK(weft_run_wait(contest.run, WEFT_NEVER)); /* while the others fire */
        pthread_barrier_wait(&contest.barrier);
        CHECK(atomic_load(&contest.wins) == (together ? 1 : EVENTS));
        CHECK(notes.count == (together ? 1 : EVENTS));
        CHECK(atomic_load(&contest.bad) == 0);
    }
    for (int t = 0; t < FIRERS; t++)
        pthread_join(threads[t], NULL);
    pthread_barrier_destroy(&contest.barrier);
    weft_run_destroy(contest.run);
    alone_destroy(&own);
}

Test(events, of_many_threads_that_fire_a_choice_exactly_one_wins)
{
    hold_contest(WEFT_PROGRESS_CALLER, 1);
    hold_contest(WEFT_PROGRESS_HELPER, 1);
}

Test(events, events_fired_by_many_threads_fire_once_each)
{
    hold_contest(WEFT_PROGRESS_CALLER, 0);
    hold_contest(WEFT_PROGRESS_HELPER, 0);
}

/* Threads fire the run without knowing when it is restarted. */
static void *fire_always(void *argument)
{
    struct contest *contest = argument;
    while (atomic_load(&contest->bad) == 0) {
        int status = weft_run_fire(contest->run, contest->events[0]);
        CHECK(status == WEFT_OK || status == WEFT_RETIRED || status == WEFT_ERR_STATE);
        if (status == WEFT_OK)
            atomic_fetch_add(&contest->wins, 1);
        else
            sched_yield();
    }
    return NULL;
}

Test(events, firing_beside_restarts_fires_every_version_once)
{
    for (int progress = WEFT_PROGRESS_CALLER; progress <= WEFT_PROGRESS_HELPER; progress++) {
        struct alone own = alone_create((weft_progress_t)progress);
        struct contest contest = {.rounds = 2000};
        pthread_t threads[2];
        struct weft_schedule *s = new_schedule(0, 1);
        contest.events[0] = event(s);
        contest.run = make_run(own.context, commit(s), NULL);
        for (int t = 0; t < 2; t++)
            CHECK(pthread_create(&threads[t], NULL, fire_always, &contest) == 0);
        for (int i = 0; i < contest.rounds; i++)
            OK(weft_run_execute(contest.run));
        atomic_store(&contest.bad, 1);
        for (int t = 0; t < 2; t++)
            pthread_join(threads[t], NULL);
        cr_expect_eq(atomic_load(&contest.wins), contest.rounds);
        weft_run_destroy(contest.run);
        alone_destroy(&own);
    }
}

/* The thread whose fire ends the run is still inside weft_run_fire() when the run is destroyed. */
static void *fire_last(void *argument)
{
    struct contest *contest = argument;
    pthread_barrier_wait(&contest->barrier);
    int status = weft_run_fire(contest->run, contest->events[0]);
    CHECK(status == WEFT_OK);
    return NULL;
}

Test(events, a_run_may_be_destroyed_as_soon_as_it_has_ended)
{
    for (int i = 0; i < 300; i++) {
        struct contest contest = {.rounds = 1};
        pthread_t threads[2];
        struct weft_schedule *s = new_schedule(0, 1);
        contest.events[0] = event(s);
        weft_node_t other = event(s);
        contest.run = make_run(alone.context, commit(s), NULL);
        CHECK(pthread_barrier_init(&contest.barrier, NULL, 2) == 0);
        OK(weft_run_start(contest.run));
        CHECK(pthread_create(&threads[0], NULL, fire_last, &contest) == 0);
        pthread_barrier_wait(&contest.barrier);
        OK(weft_run_fire(contest.run, other));
        OK(weft_run_wait(contest.run, WEFT_NEVER));
        weft_run_destroy(contest.run);
        pthread_join(threads[0], NULL);
        pthread_barrier_destroy(&contest.barrier);
    }
}
