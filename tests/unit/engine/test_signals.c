/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals: they are kept until somebody listens, and fire every event of their channel. */
#include <criterion/criterion.h>

#include "notes.h"

TestSuite(signals, .init = setup, .fini = teardown);

/* Rank 0 signals channel 3 of every other rank; they note it. */
static struct weft_plan *signalling(int rank, int size)
{
    struct weft_schedule *s = new_schedule(rank, size);
    if (rank == 0)
        for (int r = 1; r < size; r++)
            weft_schedule_add_signal(s, r, 3);
    else
        weft_schedule_add_event(s, 3);
    return commit(s);
}

static void signal_ahead(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run *run = NULL;
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    if (rank == 0) {
        run = make_run(context, signalling(0, ranks->size), NULL);
        for (int i = 0; i < 100; i++)
            OK(weft_run_execute(run)); /* before the others have an object */
        ranks_meet(ranks);
        ranks_meet(ranks);
        OK(weft_run_execute(run));
        CHECK(weft_run_version(run) == 100);
    } else {
        ranks_meet(ranks);
        weft_context_progress(context);
        run = make_run(context, signalling(rank, ranks->size), NULL);
        for (int i = 0; i < 100; i++) {
            OK(weft_run_execute(run));
            CHECK(weft_run_version(run) == (uint64_t)i);
        }
        OK(weft_run_start(run));
        CHECK(weft_run_wait(run, 1000) == WEFT_IN_PROGRESS);
        ranks_meet(ranks);
        OK(weft_run_wait(run, WEFT_NEVER));
        OK(weft_context_get_stats(context, &stats));
        CHECK(stats.signals_received == 101);
    }
    weft_run_destroy(run);
}

Test(signals, signals_that_come_before_the_object_and_its_versions_are_kept)
{
    ranks_run_each_progress(signal_ahead, 3, NULL);
}

/* One signal of version 7 fires versions 0 .. 7, and not 8. */
static void signal_once(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run *run = make_run(context, signalling(rank, 2), NULL);
    if (rank == 0) {
        OK(weft_run_start_version(run, 7));
        OK(weft_run_wait(run, WEFT_NEVER));
        ranks_meet(ranks);
        OK(weft_run_start_version(run, 20));
        OK(weft_run_wait(run, WEFT_NEVER));
    } else {
        for (int i = 0; i < 8; i++)
            OK(weft_run_execute(run));
        OK(weft_run_start(run));
        CHECK(weft_run_wait(run, 1000) == WEFT_IN_PROGRESS);
        ranks_meet(ranks);
        OK(weft_run_wait(run, WEFT_NEVER));
        for (int i = 9; i <= 20; i++)
            OK(weft_run_execute(run));
    }
    weft_run_destroy(run);
}

Test(signals, signals_are_cumulative)
{
    ranks_run_each_progress(signal_once, 2, NULL);
}

/* The call of the application and the signal of the peer are one choice: both fire at once. */
static void application_or_signal(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_node_t mine = event(s);
    weft_node_t theirs = weft_schedule_add_event(s, 9);
    weft_node_t go = weft_schedule_add_join(s);
    choice(s, mine, theirs);
    weft_schedule_add_order(s, mine, go);
    weft_schedule_add_order(s, theirs, go);
    OK(weft_schedule_set_any(s, go));
    weft_schedule_add_order(s, go, weft_schedule_add_signal(s, 1 - rank, 9));
    struct weft_run *run = make_run(context, commit(s), NULL);
    for (int i = 0; i < *(int *)ranks->user; i++) {
        OK(weft_run_start(run));
        if ((i + rank) % 3 != 0) { /* at least one of the two */
            int status = weft_run_fire(run, mine);
            CHECK(status == WEFT_OK || status == WEFT_RETIRED || status == WEFT_ERR_STATE);
        }
        OK(weft_run_wait(run, WEFT_NEVER));
    }
    weft_run_destroy(run);
}

Test(signals, an_application_and_a_signal_compete_for_a_choice)
{
    int rounds = 2000;
    struct ranks ranks;
    ranks_init(&ranks, 2, application_or_signal, &rounds);
    ranks_run(&ranks);
    ranks.config.progress = WEFT_PROGRESS_HELPER;
    ranks_run(&ranks);
    ranks.config.spin_ns = ranks.config.yield_ns = ranks.config.helper_yield_ns = WEFT_NS_NONE;
    ranks_run(&ranks);
}

/* A signal to the own rank, several events on one channel, and an unknown channel. */
Test(signals, a_signal_fires_every_event_of_its_channel_and_an_unknown_channel_is_ignored)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_signal(s, 0, 77);
    weft_schedule_add_signal(s, 0, 5);
    for (int i = 0; i < 3; i++)
        weft_schedule_add_order(s, weft_schedule_add_event(s, 5), noting(s, &notes, i));
    weft_node_t last = weft_schedule_add_event(s, 6);
    struct weft_run *run = run_of(s);
    OK(weft_run_start(run));
    while (notes.count < 3)
        weft_context_progress(alone.context);
    cr_expect_eq(weft_run_test(run), WEFT_IN_PROGRESS);
    OK(weft_run_fire(run, last)); /* an event with a channel may be fired by hand too */
    OK(weft_run_wait(run, WEFT_NEVER));
    weft_run_destroy(run);
}
