/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs and contexts that end while others need them: what stays borrowed, who is told, who waits.
 */
#include <criterion/criterion.h>

#include "support/transfer.h"
#include "tests/support/bind.h"
#include "tests/support/compute.h"

/* ---- borrowed sends ---- */

static void borrow(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run *run = make_run(context, transfer(rank, 2, LARGE, LARGE), NULL);
    int64_t *x = calloc(LARGE, sizeof *x);
    x[7] = rank == 0 ? 7 : 0;
    OK(bind_slot(run, 0, x));
    if (rank == 0) {
        OK(weft_run_start(run));
        OK(weft_run_cancel(run));
        CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), WEFT_ERR_CANCELLED);
        CHECK_TEXT(weft_error_text(), "weft_run_reclaim");
        /* The receiver does not look: nothing comes back. */
        CHECK(weft_run_reclaim(run) == WEFT_IN_PROGRESS);
        CHECK_STATUS(weft_run_start(run), WEFT_ERR_STATE);
        CHECK_TEXT(weft_error_text(), "weft_run_reclaim");
        ranks_meet(ranks);
        while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
            sched_yield();
        OK(weft_run_reclaim(run));
        OK(weft_run_execute(run));
    } else {
        ranks_meet(ranks);
        OK(weft_run_start(run));
        expect_error(run, WEFT_ERR_PEER, "rank 0 failed (cancelled)", "`transfer`");
        OK(weft_run_execute(run));
        CHECK(x[7] == 7);
    }
    weft_run_destroy(run);
    free(x);
}

Test(failures_end, a_send_that_cannot_be_cancelled_stays_borrowed_until_it_is_reclaimed)
{
    ranks_run_once(borrow, 2, NULL);
}

/* The receiver reads the sender's memory, in an operation that takes its time; meanwhile the sender
 * destroys its run: that must not return before the reading is over. */
struct reading {
    atomic_int inside;
    atomic_int cancelled;
    atomic_int destroyed;
    atomic_int torn;
};

static int slow_reduce(void *user, void *dst, const void *a, const void *b, size_t count,
                       weft_dtype_t dtype)
{
    struct reading *reading = user;
    (void)dst, (void)a, (void)dtype;
    atomic_store(&reading->inside, 1);
    while (!atomic_load(&reading->cancelled))
        sched_yield();
    for (int i = 0; i < 2000; i++)
        sched_yield();
    if (atomic_load(&reading->destroyed))
        atomic_store(&reading->torn, 1);
    else
        for (size_t i = 0; i < count; i++)
            if (((const int64_t *)b)[i] == -1)
                atomic_store(&reading->torn, 1);
    return WEFT_OK;
}

static void destroy_while_read(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct reading *reading = ranks->user;
    struct weft_op_config config;
    struct weft_op *op = NULL;
    int64_t *x = calloc(LARGE, sizeof *x);
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_op_config_init(&config);
    config.name = "slow";
    config.reduce = slow_reduce;
    config.user = reading;
    OK(weft_op_create(&op, &config));
    weft_slot_t slot = add_to_the_second(s, op, LARGE);
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(bind_slot(run, slot, x));
    OK(weft_run_start(run));
    if (rank == 0) {
        while (!atomic_load(&reading->inside))
            sched_yield();
        OK(weft_run_cancel(run));
        CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), WEFT_ERR_CANCELLED);
        atomic_store(&reading->cancelled, 1);
        weft_run_destroy(run);
        atomic_store(&reading->destroyed, 1);
        memset(x, 0xff, LARGE * sizeof *x);
    } else {
        CHECK(weft_run_wait(run, WEFT_NEVER) == WEFT_ERR_PEER);
        weft_run_destroy(run);
        CHECK(!atomic_load(&reading->torn));
    }
    free(x);
    weft_op_destroy(op);
}

Test(failures_end, destroying_a_run_waits_for_those_who_read_its_memory)
{
    struct reading reading = {0, 0, 0, 0};
    ranks_run_once(destroy_while_read, 2, &reading);
}

/* ---- destroying ---- */

static void destroy_active(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run *run = make_run(context, chain(rank, ranks->size), NULL);
    struct weft_run *other = make_run(context, chain(rank, ranks->size), NULL);
    int64_t x = rank;
    OK(bind_slot(run, 0, &x));
    OK(bind_slot(other, 0, &x));
    OK(weft_run_start(run));
    if (rank == 1) {
        weft_run_destroy(run);
    } else {
        expect_error(run, WEFT_ERR_PEER, "rank 1 failed (cancelled)", "`chain`");
        weft_run_destroy(run);
    }
    OK(weft_run_start(other));
    if (rank == 0)
        OK(weft_run_fire(other, 1));
    OK(weft_run_wait(other, WEFT_NEVER));
    CHECK(x == 0);
    weft_run_destroy(other);
}

Test(failures_end, destroying_an_active_run_cancels_it_at_its_peers)
{
    ranks_run_each_progress(destroy_active, 4, NULL);
}

static void restart_on_failure(void *user, struct weft_run *run, int status)
{
    int *refused = user;
    if (status != WEFT_OK && weft_run_start(run) != WEFT_OK)
        ++*refused;
}

Test(failures_end, a_run_being_destroyed_cannot_be_started_by_its_callback)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_run_config config;
    int refused = 0;
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    weft_run_config_init(&config);
    config.ended = restart_on_failure;
    config.user = &refused;
    struct weft_run *run = make_run(alone.context, commit(s), &config);
    OK(weft_run_start(run));
    weft_run_destroy(run);
    cr_expect_eq(refused, 1);
    cr_expect_eq(weft_context_progress(alone.context), WEFT_OK);
    alone_destroy(&alone);
}

/* Rank 1 takes its context away while the others are in the middle. */
static void *leave_early(void *argument)
{
    weft_context_destroy(argument);
    return NULL;
}

Test(failures_end, a_rank_that_destroys_its_context_early_fails_its_peers)
{
    for (int large = 0; large < 2; large++) {
        struct weft_local *local = NULL;
        struct weft_context *contexts[2];
        struct weft_run *runs[2];
        size_t count = large ? LARGE : 1;
        int64_t *x = calloc(count, sizeof *x);
        pthread_t thread;
        OK(weft_local_create(&local, 2, NULL));
        for (int r = 0; r < 2; r++) {
            OK(weft_context_create_local(&contexts[r], local, r, NULL));
            runs[r] = make_run(contexts[r], transfer(r, 2, count, count), NULL);
            OK(bind_slot(runs[r], 0, x));
        }
        OK(weft_run_start(runs[1])); /* a receive */
        CHECK(pthread_create(&thread, NULL, leave_early, contexts[1]) == 0);
        pthread_join(thread, NULL);
        OK(weft_run_start(runs[0]));
        expect_error(runs[0], WEFT_ERR_PEER, "rank 1", "`transfer`");
        OK(weft_run_start(runs[0])); /* its message finds nobody */
        expect_error(runs[0], WEFT_ERR_PEER, "rank 1 has destroyed its context", "send to rank 1");
        weft_context_destroy(contexts[0]);
        weft_local_destroy(local);
        free(x);
    }
}

Test(failures_end, a_context_destroyed_with_sends_under_way_leaves_nothing_dangling)
{
    struct weft_local *local = NULL;
    struct weft_context *contexts[2];
    struct weft_run *runs[2];
    int64_t *x = calloc(LARGE, sizeof *x);
    int64_t *y = calloc(LARGE, sizeof *y);
    OK(weft_local_create(&local, 2, NULL));
    for (int r = 0; r < 2; r++) {
        OK(weft_context_create_local(&contexts[r], local, r, NULL));
        runs[r] = make_run(contexts[r], transfer(r, 2, LARGE, LARGE), NULL);
        OK(bind_slot(runs[r], 0, r == 0 ? x : y));
    }
    OK(weft_run_start(runs[0]));
    weft_context_destroy(contexts[0]);
    free(x);
    OK(weft_run_start(runs[1]));
    expect_error(runs[1], WEFT_ERR_PEER, "rank 0 failed", "`transfer`");
    weft_context_destroy(contexts[1]);
    weft_local_destroy(local);
    free(y);
}

/* ---- pending computes ---- */

struct parked {
    _Atomic(struct weft_call *) call;
    atomic_int completed;
};

static int park_call(struct weft_call *call)
{
    struct parked *parked = call->user;
    atomic_store(&parked->call, call);
    return WEFT_IN_PROGRESS;
}

static void *complete_parked(void *argument)
{
    struct parked *parked = argument;
    for (int i = 0; i < 2000; i++)
        sched_yield();
    atomic_store(&parked->completed, 1);
    weft_call_complete(atomic_load(&parked->call), WEFT_OK);
    return NULL;
}

Test(failures_end, destroying_a_run_waits_for_its_pending_computes)
{
    for (int progress = WEFT_PROGRESS_CALLER; progress <= WEFT_PROGRESS_HELPER; progress++) {
        struct alone alone = alone_create((weft_progress_t)progress);
        struct parked parked = {NULL, 0};
        struct weft_op_config config;
        struct weft_op *op = NULL;
        pthread_t thread;
        weft_op_config_init(&config);
        config.name = "parked";
        config.flags = WEFT_OP_MAY_PEND;
        config.compute = park_call;
        config.user = &parked;
        OK(weft_op_create(&op, &config));
        struct weft_schedule *s = new_schedule(0, 1);
        add_compute(s, op, NULL, 0, 0, 0);
        struct weft_run *run = make_run(alone.context, commit(s), NULL);
        OK(weft_run_start(run));
        OK(weft_run_cancel(run));
        CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), WEFT_ERR_CANCELLED);
        if (atomic_load(&parked.call)) {
            CHECK(weft_run_reclaim(run) == WEFT_IN_PROGRESS);
            CHECK_STATUS(weft_run_start(run), WEFT_ERR_STATE);
            CHECK(pthread_create(&thread, NULL, complete_parked, &parked) == 0);
            weft_run_destroy(run);
            cr_expect_eq(atomic_load(&parked.completed), 1);
            pthread_join(thread, NULL);
        } else {
            weft_run_destroy(run); /* cancelled before its node started */
        }
        weft_op_destroy(op);
        alone_destroy(&alone);
    }
}

/* ---- a rank that has gone before it was needed ---- */

static void *come_and_go(void *argument)
{
    struct weft_context *context = NULL;
    OK(weft_context_create_local(&context, argument, 0, NULL));
    weft_context_destroy(context);
    return NULL;
}

Test(failures_end, nobody_waits_for_a_rank_that_has_left)
{
    for (int left_before = 0; left_before < 2; left_before++) {
        struct weft_local *local = NULL;
        struct weft_context *context = NULL;
        pthread_t leaver;
        int64_t x[4];
        OK(weft_local_create(&local, 2, NULL));
        OK(weft_context_create_local(&context, local, 1, NULL));
        struct weft_run *run = make_run(context, transfer(1, 2, 4, 4), NULL);
        OK(bind_slot(run, 0, x));
        CHECK(pthread_create(&leaver, NULL, come_and_go, local) == 0);
        if (left_before)
            CHECK(pthread_join(leaver, NULL) == 0);
        for (int i = 0; i < 2; i++) {
            OK(weft_run_start(run));
            expect_error(run, WEFT_ERR_PEER, "node 0 (recv from rank 0, tag 5", "rank 0 has left");
        }
        if (!left_before)
            CHECK(pthread_join(leaver, NULL) == 0);
        weft_run_destroy(run);
        weft_context_destroy(context);
        weft_local_destroy(local);
    }
}

/* A message whose tag no receive has, and a receive whose tag no message has: whatever ends the
 * receive, its error tells of the message. */

enum way { THE_SENDER_LEAVES, THE_SENDER_FAILS, THE_RECEIVER_CANCELS };

static struct weft_plan *mistaken(int rank)
{
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I64, 4, WEFT_SLOT_INOUT);
    if (rank == 0) {
        weft_schedule_add_send(s, weft_region_at(x, 0, 4), 1, 3);
        weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    } else {
        weft_schedule_add_recv(s, weft_region_at(x, 0, 4), 0, 4);
    }
    return commit(s);
}

static void end_mistaken(enum way way)
{
    struct weft_local *local = NULL;
    struct weft_context *contexts[2];
    struct weft_run *runs[2];
    int64_t x[2][4] = {{0}};
    OK(weft_local_create(&local, 2, NULL));
    for (int r = 0; r < 2; r++) {
        OK(weft_context_create_local(&contexts[r], local, r, NULL));
        runs[r] = make_run(contexts[r], mistaken(r), NULL);
        OK(bind_slot(runs[r], 0, x[r]));
        OK(weft_run_start(runs[r]));
        CHECK(weft_context_progress(contexts[r]) >= 0);
    }
    CHECK(weft_context_progress(contexts[1]) >= 0);
    if (way == THE_SENDER_LEAVES) {
        OK(weft_run_fire(runs[0], 1));
        OK(weft_run_wait(runs[0], WEFT_NEVER));
    }
    if (way == THE_RECEIVER_CANCELS)
        OK(weft_run_cancel(runs[1]));
    else
        weft_context_destroy(contexts[0]);
    expect_error(runs[1], way == THE_RECEIVER_CANCELS ? WEFT_ERR_CANCELLED : WEFT_ERR_PEER,
                 "a message of rank 0 with tag 3, 32 bytes, version 0 has come and matches nothing",
                 way == THE_SENDER_LEAVES  ? "rank 0 has left; a message"
                 : way == THE_SENDER_FAILS ? "rank 0 failed"
                                           : "cancelled");
    if (way == THE_RECEIVER_CANCELS)
        weft_context_destroy(contexts[0]);
    weft_context_destroy(contexts[1]);
    weft_local_destroy(local);
}

Test(failures_end, a_message_that_matches_nothing_is_told_however_the_receive_ends)
{
    end_mistaken(THE_SENDER_LEAVES);
    end_mistaken(THE_SENDER_FAILS);
    end_mistaken(THE_RECEIVER_CANCELS);
}

static int return_early(struct weft_context *context, void *user)
{
    (void)user;
    int rank = weft_context_rank(context);
    struct weft_run *run = make_run(context, transfer(rank, 3, 4, 4), NULL);
    int64_t x[4] = {rank, 1, 2, 3};
    if (rank < 2)
        OK(bind_slot(run, 0, x));
    if (rank == 0)
        OK(weft_run_execute(run)); /* once; rank 1 wants it twice */
    if (rank == 1) {
        OK(weft_run_execute(run));
        CHECK(x[0] == 0);
        OK(weft_run_start(run));
        expect_error(run, WEFT_ERR_PEER, "recv from rank 0", "rank 0 has left");
    }
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(failures_end, nobody_waits_for_a_local_rank_that_has_returned)
{
    OK(weft_local_run(3, NULL, return_early, NULL));
}
