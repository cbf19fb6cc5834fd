/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs that fail: what they say, what peers hear, and that the context goes on. */
#include <criterion/criterion.h>

#include "support/transfer.h"
#include "tests/support/bind.h"
#include "tests/support/compute.h"

/* ---- deadlines ---- */

static void deadline(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run *run = make_run(context, transfer(rank, 2, 4, 4), NULL);
    int64_t x[4] = {rank, 1, 2, 3};
    OK(bind_slot(run, 0, x));
    if (rank == 1) {
        OK(weft_run_set_deadline(run, 1000000));
        OK(weft_run_start(run));
        expect_error(run, WEFT_ERR_TIMEOUT, "node 0 (recv from rank 0, tag 5", "`transfer`");
        CHECK_TEXT(weft_run_error(run), "rank 1 of 2");
        OK(weft_run_set_deadline(run, 0));
    }
    ranks_meet(ranks);
    if (rank == 0) {
        /* The failure came before this version started here. */
        OK(weft_run_start(run));
        expect_error(run, WEFT_ERR_PEER, "rank 1 failed", "`transfer`");
    }
    OK(weft_run_execute(run));
    CHECK(x[0] == 0);
    CHECK(weft_run_version(run) == 1);
    CHECK(strcmp(weft_run_error(run), "") == 0);
    weft_run_destroy(run);
}

Test(failures, a_deadline_fails_the_run_and_its_peer_and_the_next_version_works)
{
    struct ranks ranks;
    ranks_init(&ranks, 2, deadline, NULL);
    ranks_run(&ranks);
    ranks.config.progress = WEFT_PROGRESS_HELPER;
    ranks_run(&ranks);
    ranks.local_config.eager_bytes = WEFT_EAGER_NONE;
    ranks_run(&ranks);
}

Test(failures, a_deadline_that_never_comes_is_none)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    const uint64_t far[] = {WEFT_NEVER, UINT64_MAX, UINT64_MAX / 2};
    for (int i = 0; i < 3; i++) {
        OK(weft_run_set_deadline(run, far[i]));
        OK(weft_run_start(run));
        cr_expect_eq(weft_run_wait(run, 1000), WEFT_IN_PROGRESS);
        cr_expect_eq(weft_run_fire(run, 0), WEFT_OK);
        cr_expect_eq(weft_run_wait(run, WEFT_NEVER), WEFT_OK);
    }
    weft_run_destroy(run);
    alone_destroy(&alone);
}

/* ---- user operations ---- */

static int fail_with(struct weft_call *call)
{
    return *(int *)call->user;
}

static int reduce_with(void *user, void *dst, const void *a, const void *b, size_t count,
                       weft_dtype_t dtype)
{
    (void)dst, (void)a, (void)b, (void)count, (void)dtype;
    return *(int *)user;
}

static void fail_compute(struct weft_context *context, int returned)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "breaks";
    config.compute = fail_with;
    config.user = &returned;
    OK(weft_op_create(&op, &config));
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_join(s);
    weft_node_t node = add_compute(s, op, NULL, 0, 0, 0);
    weft_node_t event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    weft_schedule_add_order(s, node, event);
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(weft_run_start(run));
    expect_error(run, WEFT_ERR_COMPUTE, "node 1 (compute)", "breaks");
    CHECK_STATUS(weft_run_fire(run, event), WEFT_ERR_STATE);
    returned = WEFT_OK;
    OK(weft_run_start(run));
    OK(weft_run_fire(run, event));
    OK(weft_run_wait(run, WEFT_NEVER));
    weft_run_destroy(run);
    weft_op_destroy(op);
}

static void fail_reduce(struct weft_context *context, int returned, size_t count)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    int64_t *x = calloc(count, sizeof *x);
    weft_op_config_init(&config);
    config.name = "breaks";
    config.reduce = reduce_with;
    config.user = &returned;
    OK(weft_op_create(&op, &config));
    struct weft_schedule *s = new_schedule(0, 1);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, count, WEFT_SLOT_INOUT);
    weft_schedule_add_reduce(s, op, weft_region_at(slot, 0, count), weft_region_at(slot, 0, count),
                             weft_region_at(slot, 0, count));
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(bind_slot(run, slot, x));
    OK(weft_run_start(run));
    expect_error(run, WEFT_ERR_COMPUTE, "node 0 (reduce)", "breaks");
    returned = WEFT_OK;
    OK(weft_run_execute(run));
    weft_run_destroy(run);
    weft_op_destroy(op);
    free(x);
}

Test(failures, a_user_operation_that_fails_is_named_whatever_it_returns)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    const int returned[] = {WEFT_ERR_INVALID, -12345, 7, WEFT_IN_PROGRESS, WEFT_RETIRED};
    for (int i = 0; i < 5; i++) {
        fail_compute(alone.context, returned[i]);
        fail_reduce(alone.context, returned[i], 4);
        fail_reduce(alone.context, returned[i], LARGE);
    }
    alone_destroy(&alone);
}

/* Operations that say why they fail. */

static int say_and_reduce(void *user, void *dst, const void *a, const void *b, size_t count,
                          weft_dtype_t dtype)
{
    (void)dst, (void)a, (void)b, (void)count, (void)dtype;
    return weft_error_set(-8, "the reason of %s", (const char *)user);
}

static int say_and_compute(struct weft_call *call)
{
    return weft_error_set(-8, "the reason of %s", (const char *)call->user);
}

static void fail_and_say(struct weft_context *context, size_t count, int reduces)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    int64_t *x = calloc(count, sizeof *x);
    weft_op_config_init(&config);
    config.name = "breaks";
    config.reduce = reduces ? say_and_reduce : NULL;
    config.compute = reduces ? NULL : say_and_compute;
    config.user = "mine";
    OK(weft_op_create(&op, &config));
    struct weft_schedule *s = new_schedule(0, 1);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, count, WEFT_SLOT_INOUT);
    struct weft_region all = weft_region_at(slot, 0, count);
    if (reduces)
        weft_schedule_add_reduce(s, op, all, all, all);
    else
        add_compute(s, op, &all, 1, 1, 0);
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(bind_slot(run, slot, x));
    OK(weft_run_start(run));
    expect_error(run, WEFT_ERR_COMPUTE, "node 0", "the reason of mine");
    weft_run_destroy(run);
    weft_op_destroy(op);
    free(x);
}

Test(failures, what_a_user_operation_says_of_its_failure_is_kept)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    for (int reduces = 0; reduces < 2; reduces++) {
        fail_and_say(alone.context, 4, reduces);
        fail_and_say(alone.context, LARGE, reduces);
    }
    alone_destroy(&alone);
}

/* Receive and reduce, fused, with an operation that fails. */
static void fail_fused(struct ranks *ranks, struct weft_context *context, int rank)
{
    size_t count = *(size_t *)ranks->user;
    int returned = -77;
    struct weft_op_config config;
    struct weft_op *op = NULL;
    int64_t *x = calloc(count, sizeof *x);
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_op_config_init(&config);
    config.name = "breaks";
    config.reduce = reduce_with;
    config.user = &returned;
    OK(weft_op_create(&op, &config));
    weft_slot_t slot = add_to_the_second(s, op, count);
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(bind_slot(run, slot, x));
    OK(weft_run_start(run));
    if (rank == 1) {
        expect_error(run, WEFT_ERR_COMPUTE, "node 1 (reduce)", "breaks");
    } else {
        int status = weft_run_wait(run, WEFT_NEVER);
        CHECK(status == WEFT_OK || status == WEFT_ERR_PEER);
        if (status != WEFT_OK)
            CHECK_TEXT(weft_error_text(), "rank 1");
        while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
            sched_yield();
    }
    ranks_meet(ranks);
    returned = WEFT_OK;
    OK(weft_run_execute(run));
    weft_run_destroy(run);
    weft_op_destroy(op);
    free(x);
}

Test(failures, an_operation_that_fails_in_a_fused_receive_is_named)
{
    size_t count = 16;
    struct ranks ranks;
    ranks_init(&ranks, 2, fail_fused, &count);
    ranks_run(&ranks);
    ranks.config.progress = WEFT_PROGRESS_HELPER;
    ranks_run(&ranks);
    count = LARGE;
    ranks_run(&ranks);
}

/* ---- truncation ---- */

static void truncate_message(struct ranks *ranks, struct weft_context *context, int rank)
{
    const size_t *counts = ranks->user;
    struct weft_run *run = make_run(context, transfer(rank, 2, counts[0], counts[1]), NULL);
    int64_t *x = calloc(counts[rank], sizeof *x);
    OK(bind_slot(run, 0, x));
    for (int i = 0; i < 3; i++) {
        OK(weft_run_start(run));
        if (rank == 1) {
            char text[64];
            expect_error(run, WEFT_ERR_TRUNCATED, "node 0 (recv from rank 0, tag 5", "`transfer`");
            snprintf(text, sizeof text, "a message of %zu bytes", counts[0] * 8);
            CHECK_TEXT(weft_run_error(run), text);
        } else {
            int status = weft_run_wait(run, WEFT_NEVER); /* an eager send may have ended well */
            CHECK(status == WEFT_OK || status == WEFT_ERR_PEER);
            while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
                sched_yield();
        }
        ranks_meet(ranks);
    }
    weft_run_destroy(run);
    free(x);
}

Test(failures, a_message_of_another_length_is_an_error_that_says_both)
{
    const size_t cases[][2] = {{4, 3}, {3, 4}, {4000, 5}, {4, 4000}, {LARGE, LARGE - 1}, {4, 0}};
    for (int i = 0; i < 6; i++) {
        size_t counts[2] = {cases[i][0], cases[i][1]};
        struct ranks ranks;
        ranks_init(&ranks, 2, truncate_message, counts);
        ranks.config.progress = WEFT_PROGRESS_HELPER;
        ranks_run(&ranks);
        ranks.local_config.eager_bytes = WEFT_EAGER_NONE;
        ranks_run(&ranks);
    }
}

/* ---- cancelling, and what peers hear ---- */

static void cancel_chain(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run *run = make_run(context, chain(rank, ranks->size), NULL);
    int64_t x = rank;
    OK(bind_slot(run, 0, &x));
    for (int round = 0; round < 20; round++) {
        int culprit = round % ranks->size;
        OK(weft_run_start(run));
        if (rank == culprit) {
            OK(weft_run_cancel(run));
            expect_error(run, WEFT_ERR_CANCELLED, "`chain`", "");
            OK(weft_run_cancel(run));
        } else {
            char text[64];
            snprintf(text, sizeof text, "rank %d failed (cancelled)", culprit);
            expect_error(run, WEFT_ERR_PEER, text, "`chain`");
        }
        /* All of them again, at once: no meeting in between. */
        x = rank == 0 ? round : -1;
        OK(weft_run_start(run));
        if (rank == 0)
            OK(weft_run_fire(run, 1));
        OK(weft_run_wait(run, WEFT_NEVER));
        CHECK(x == round);
    }
    weft_run_destroy(run);
}

Test(failures, a_cancelled_run_fails_all_its_peers_who_name_the_origin)
{
    struct ranks ranks;
    ranks_init(&ranks, 5, cancel_chain, NULL);
    ranks_run(&ranks);
    ranks.local_config.eager_bytes = WEFT_EAGER_NONE;
    ranks_run(&ranks);
    ranks.config.progress = WEFT_PROGRESS_HELPER;
    ranks_run(&ranks);
}

struct canceller {
    struct weft_run *run;
    atomic_int round;
    int rounds;
};

static void *cancel_rounds(void *argument)
{
    struct canceller *canceller = argument;
    int seen = 0;
    while (seen < canceller->rounds) {
        int now = atomic_load(&canceller->round);
        if (now == seen) {
            sched_yield();
            continue;
        }
        seen = now;
        /* It may be queued, active, or have ended. */
        OK(weft_run_cancel(canceller->run));
        OK(weft_run_cancel(canceller->run));
    }
    return NULL;
}

Test(failures, cancelling_from_a_thread_ends_the_version_under_way)
{
    struct canceller canceller = {.rounds = 3000};
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    pthread_t thread;
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    canceller.run = make_run(alone.context, commit(s), NULL);
    CHECK(pthread_create(&thread, NULL, cancel_rounds, &canceller) == 0);
    for (int i = 1; i <= canceller.rounds; i++) {
        OK(weft_run_start(canceller.run));
        atomic_store(&canceller.round, i);
        CHECK_STATUS(weft_run_wait(canceller.run, WEFT_NEVER), WEFT_ERR_CANCELLED);
    }
    pthread_join(thread, NULL);
    weft_run_destroy(canceller.run);
    alone_destroy(&alone);
}

/* ---- versions ---- */

/* Ranks 0 and 1 use versions 5 and 9, rank 1 fails version 3 of which rank 0 knows nothing. */
static void skipped(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run *run = make_run(context, chain(rank, 2), NULL);
    int64_t x = rank;
    OK(bind_slot(run, 0, &x));
    if (rank == 1) {
        ranks_meet(ranks); /* rank 0 is in version 5 */
        OK(weft_run_start_version(run, 3));
        OK(weft_run_cancel(run));
        expect_error(run, WEFT_ERR_CANCELLED, "version 3", "`chain`");
        ranks_meet(ranks);
        OK(weft_run_start_version(run, 5));
    } else {
        OK(weft_run_start_version(run, 5));
        ranks_meet(ranks);
        ranks_meet(ranks);
        OK(weft_run_fire(run, 1));
    }
    OK(weft_run_wait(run, WEFT_NEVER));
    weft_run_destroy(run);
}

Test(failures, the_failure_of_an_older_version_does_not_touch_the_one_under_way)
{
    ranks_run_once(skipped, 2, NULL);
}

/* A failure of version 1 arrives while version 0 is under way, and must wait for version 1. */
static void failed_ahead(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run *run = make_run(context, transfer(rank, 2, 1, 1), NULL);
    int64_t x = 0;
    OK(bind_slot(run, 0, &x));
    if (rank == 0) {
        OK(weft_run_execute(run)); /* eager */
        OK(weft_run_start(run));   /* eager: ended at once */
        OK(weft_run_wait(run, WEFT_NEVER));
        OK(weft_run_start(run));
        OK(weft_run_wait(run, WEFT_NEVER));
        ranks_meet(ranks);
    } else {
        ranks_meet(ranks);
        for (int i = 0; i < 3; i++)
            OK(weft_run_execute(run));
    }
    weft_run_destroy(run);
}

Test(failures, a_rank_that_is_versions_ahead_disturbs_nothing)
{
    ranks_run_once(failed_ahead, 2, NULL);
}

/* ---- labels ---- */

Test(failures, labels_stand_in_errors_and_reports)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    OK(weft_schedule_set_label(s, event, "gradient"));
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    char *text = NULL;
    OK(weft_run_set_deadline(run, 1000000));
    OK(weft_run_start(run));
    OK(weft_run_report(run, &text));
    CHECK_TEXT(text, "node 0 `gradient` (event)");
    weft_memory_free(text);
    CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), WEFT_ERR_TIMEOUT);
    CHECK_TEXT(weft_error_text(), "node 0 `gradient` (event)");
    weft_run_destroy(run);
    s = new_schedule(0, 1);
    weft_node_t a = weft_schedule_add_join(s);
    weft_node_t b = weft_schedule_add_join(s);
    OK(weft_schedule_set_label(s, a, "round"));
    OK(weft_schedule_set_label(s, b, "round"));
    OK(weft_schedule_add_order(s, a, b));
    OK(weft_schedule_add_order(s, b, a));
    struct weft_plan *plan = NULL;
    CHECK_STATUS(weft_schedule_commit(s, &plan), WEFT_ERR_CYCLE);
    CHECK_TEXT(weft_error_text(), "`round`");
    weft_schedule_destroy(s);
    alone_destroy(&alone);
}
