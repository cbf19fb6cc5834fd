/* SPDX-License-Identifier: BSD-3-Clause */
/* Who drives, who sleeps, and that nobody is forgotten: many threads and ranks on few cores. */
#include <criterion/criterion.h>

#include "ping_pong.h"
#include "tests/support/compute.h"

/* By eager messages and by rendezvous. */
static void run_sleepily(ranks_fn fn, int *rounds, weft_progress_t progress)
{
    struct ranks ranks;
    ranks_init(&ranks, 2, fn, rounds);
    sleepy(&ranks.config);
    ranks.config.progress = progress;
    ranks_run(&ranks);
    ranks.local_config.eager_bytes = WEFT_EAGER_NONE;
    ranks_run(&ranks);
}

/* ---- one caller ---- */

static void ping(struct ranks *ranks, struct weft_context *context, int rank)
{
    int rounds = *(int *)ranks->user;
    struct weft_run *run = make_run(context, ping_pong(rank), NULL);
    int64_t x = 0;
    OK(bind_slot(run, 0, &x));
    for (int i = 0; i < rounds; i++) {
        x = rank == 0 ? i : -1;
        OK(weft_run_execute(run));
        CHECK(x == i);
    }
    weft_run_destroy(run);
}

Test(progress, a_caller_that_sleeps_at_once_is_always_woken)
{
    int rounds = 5000;
    run_sleepily(ping, &rounds, WEFT_PROGRESS_CALLER);
}

Test(progress, a_helper_and_a_caller_that_sleep_at_once_are_always_woken)
{
    int rounds = 5000;
    run_sleepily(ping, &rounds, WEFT_PROGRESS_HELPER);
}

static void ping_by_test(struct ranks *ranks, struct weft_context *context, int rank)
{
    int rounds = *(int *)ranks->user;
    struct weft_run *run = make_run(context, ping_pong(rank), NULL);
    int64_t x = 0;
    OK(bind_slot(run, 0, &x));
    for (int i = 0; i < rounds; i++) {
        int status;
        x = rank == 0 ? i : -1;
        OK(weft_run_start(run));
        while ((status = weft_run_test(run)) == WEFT_IN_PROGRESS)
            sched_yield();
        CHECK(status == WEFT_OK);
        CHECK(x == i);
    }
    weft_run_destroy(run);
}

Test(progress, testing_drives_and_needs_no_wait)
{
    int rounds = 1000;
    ranks_run_each_progress(ping_by_test, 2, &rounds);
}

/* ---- many callers ---- */

enum { THREADS = 4 };

struct caller {
    pthread_t thread;
    struct weft_run *run;
    int rank;
    int rounds;
    int timed; /* now and then waits with a limit that mostly passes */
    int64_t x;
};

static void *call(void *argument)
{
    struct caller *caller = argument;
    for (int i = 0; i < caller->rounds; i++) {
        caller->x = caller->rank == 0 ? i : -1;
        OK(weft_run_start(caller->run));
        if (caller->timed)
            while (weft_run_wait(caller->run, 1000) == WEFT_IN_PROGRESS)
                ;
        OK(weft_run_wait(caller->run, WEFT_NEVER));
        CHECK(caller->x == i);
    }
    return NULL;
}

static void many_callers(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct caller callers[THREADS];
    for (int t = 0; t < THREADS; t++) {
        callers[t] = (struct caller){.rank = rank, .rounds = *(int *)ranks->user, .timed = t % 2};
        callers[t].run = make_run(context, ping_pong(rank), NULL);
        OK(bind_slot(callers[t].run, 0, &callers[t].x));
    }
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_create(&callers[t].thread, NULL, call, &callers[t]) == 0);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(callers[t].thread, NULL);
        weft_run_destroy(callers[t].run);
    }
}

Test(progress, threads_that_wait_for_runs_of_one_context_are_all_woken)
{
    int rounds = SWEPT(1500, 300);
    run_sleepily(many_callers, &rounds, WEFT_PROGRESS_CALLER);
}

Test(progress, threads_that_wait_beside_a_helper_are_all_woken)
{
    int rounds = SWEPT(1500, 300);
    run_sleepily(many_callers, &rounds, WEFT_PROGRESS_HELPER);
}

/* Thread C waits with a limit while thread D waits without; C goes, then the message for D comes.
 * What is asked for is the order in which they fall asleep, which nobody can force: many rounds. */
struct leaving {
    struct weft_run *run;
    atomic_int gone;
};

static void *wait_for_ever(void *argument)
{
    OK(weft_run_wait(argument, WEFT_NEVER));
    return NULL;
}

static void leave_first(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run *run = make_run(context, ping_pong(rank), NULL);
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    struct weft_run *held = make_run(context, commit(s), NULL);
    int64_t x = 0;
    OK(bind_slot(run, 0, &x));
    for (int i = 0; i < *(int *)ranks->user; i++) {
        if (rank == 0) {
            pthread_t thread;
            /* The answer comes only after the meeting. */
            OK(weft_run_start(run));
            OK(weft_run_start(held));
            CHECK(pthread_create(&thread, NULL, wait_for_ever, run) == 0);
            CHECK(weft_run_wait(held, 200000) == WEFT_IN_PROGRESS);
            ranks_meet(ranks);
            pthread_join(thread, NULL);
            OK(weft_run_fire(held, 0));
            OK(weft_run_wait(held, WEFT_NEVER));
        } else {
            ranks_meet(ranks);
            OK(weft_run_execute(run));
        }
    }
    weft_run_destroy(held);
    weft_run_destroy(run);
}

Test(progress, a_caller_whose_time_is_up_leaves_the_others_wakeable)
{
    int rounds = 200;
    struct ranks ranks;
    ranks_init(&ranks, 2, leave_first, &rounds);
    sleepy(&ranks.config);
    ranks_run(&ranks);
}

/* ---- pending computes wake ---- */

struct later {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct weft_call *call;
    int over;
};

static int begin_later(struct weft_call *call)
{
    struct later *later = call->user;
    pthread_mutex_lock(&later->lock);
    later->call = call;
    pthread_cond_signal(&later->changed);
    pthread_mutex_unlock(&later->lock);
    return WEFT_IN_PROGRESS;
}

static void *complete_later(void *argument)
{
    struct later *later = argument;
    pthread_mutex_lock(&later->lock);
    for (;;) {
        while (!later->call && !later->over)
            pthread_cond_wait(&later->changed, &later->lock);
        if (later->over)
            break;
        struct weft_call *call = later->call;
        later->call = NULL;
        pthread_mutex_unlock(&later->lock);
        weft_call_complete(call, WEFT_OK);
        pthread_mutex_lock(&later->lock);
    }
    pthread_mutex_unlock(&later->lock);
    return NULL;
}

static void complete_rounds(weft_progress_t progress, int rounds)
{
    struct later later = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0};
    struct weft_op_config op_config;
    struct weft_op *op = NULL;
    struct weft_context_config config;
    struct weft_local *local;
    struct weft_context *context;
    pthread_t thread;
    weft_context_config_init(&config);
    sleepy(&config);
    config.progress = progress;
    OK(weft_local_create(&local, 1, NULL));
    OK(weft_context_create_local(&context, local, 0, &config));
    weft_op_config_init(&op_config);
    op_config.name = "later";
    op_config.flags = WEFT_OP_MAY_PEND;
    op_config.compute = begin_later;
    op_config.user = &later;
    OK(weft_op_create(&op, &op_config));
    struct weft_schedule *s = new_schedule(0, 1);
    add_compute(s, op, NULL, 0, 0, 0);
    struct weft_run *run = make_run(context, commit(s), NULL);
    CHECK(pthread_create(&thread, NULL, complete_later, &later) == 0);
    for (int i = 0; i < rounds; i++)
        OK(weft_run_execute(run));
    pthread_mutex_lock(&later.lock);
    later.over = 1;
    pthread_cond_signal(&later.changed);
    pthread_mutex_unlock(&later.lock);
    pthread_join(thread, NULL);
    weft_run_destroy(run);
    weft_op_destroy(op);
    weft_context_destroy(context);
    weft_local_destroy(local);
}

Test(progress, the_completion_of_a_pending_compute_wakes_the_sleeper)
{
    complete_rounds(WEFT_PROGRESS_CALLER, 20000);
    complete_rounds(WEFT_PROGRESS_HELPER, 5000);
}

/* ---- firing while somebody sleeps ---- */

struct firer {
    struct weft_run *run;
    atomic_int turn; /* version + 1 that may be fired */
    int rounds;
};

static void *fire_rounds(void *argument)
{
    struct firer *firer = argument;
    for (int i = 0; i < firer->rounds; i++) {
        while (atomic_load(&firer->turn) != i + 1)
            sched_yield();
        OK(weft_run_fire(firer->run, 0));
    }
    return NULL;
}

static void fire_while_waiting(weft_progress_t progress, int rounds)
{
    struct weft_context_config config;
    struct weft_local *local;
    struct weft_context *context;
    struct firer firer = {.rounds = rounds};
    pthread_t thread;
    weft_context_config_init(&config);
    sleepy(&config);
    config.progress = progress;
    OK(weft_local_create(&local, 1, NULL));
    OK(weft_context_create_local(&context, local, 0, &config));
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    firer.run = make_run(context, commit(s), NULL);
    CHECK(pthread_create(&thread, NULL, fire_rounds, &firer) == 0);
    for (int i = 0; i < rounds; i++) {
        OK(weft_run_start(firer.run));
        atomic_store(&firer.turn, i + 1);
        OK(weft_run_wait(firer.run, WEFT_NEVER));
    }
    pthread_join(thread, NULL);
    weft_run_destroy(firer.run);
    weft_context_destroy(context);
    weft_local_destroy(local);
}

Test(progress, firing_from_a_thread_wakes_the_one_that_waits)
{
    fire_while_waiting(WEFT_PROGRESS_CALLER, 20000);
    fire_while_waiting(WEFT_PROGRESS_HELPER, 5000);
}

/* ---- more ranks than cores ---- */

static void allreduce(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    int64_t in[17], out[17];
    weft_template_params_init(&params);
    params.count = 17;
    params.dtype = WEFT_I64;
    OK(weft_template_create_run(&run, context, "allreduce", &params));
    OK(bind_name(run, "send", in));
    OK(bind_name(run, "recv", out));
    for (int round = 0; round < *(int *)ranks->user; round++) {
        int64_t sum = 0;
        for (int i = 0; i < 17; i++)
            in[i] = rank + round * i;
        for (int r = 0; r < ranks->size; r++)
            sum += r;
        OK(weft_run_execute(run));
        for (int i = 0; i < 17; i++)
            CHECK(out[i] == sum + (int64_t)ranks->size * round * i);
    }
    weft_run_destroy(run);
}

Test(progress, sixteen_ranks_on_few_cores)
{
    int rounds = 200;
    struct ranks ranks;
    ranks_init(&ranks, 16, allreduce, &rounds);
    ranks_run(&ranks);
    sleepy(&ranks.config);
    ranks_run(&ranks);
    ranks.config.progress = WEFT_PROGRESS_HELPER;
    rounds = 50;
    ranks_run(&ranks);
}

/* ---- idling ---- */

/* A message to the own rank wakes the helper; it finds the message taken, or takes it, and sleeps.
 */
Test(progress, a_helper_with_nothing_to_do_sleeps)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    int64_t x[2] = {0};
    struct weft_schedule *s = new_schedule(0, 1);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, 2, WEFT_SLOT_INOUT);
    weft_schedule_add_send(s, weft_region_at(slot, 0, 1), 0, 0);
    weft_schedule_add_recv(s, weft_region_at(slot, 1, 1), 0, 0);
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    OK(bind_slot(run, slot, x));
    do {
        OK(weft_run_execute(run));
        for (int i = 0; i < 100; i++)
            sched_yield();
        OK(weft_context_get_stats(alone.context, &stats));
    } while (stats.sleeps == 0);
    /* A helper that polled would make steps by itself, one after the other. */
    uint64_t steps = stats.steps;
    for (int i = 0; i < 1000; i++)
        sched_yield();
    OK(weft_context_get_stats(alone.context, &stats));
    cr_expect_lt(stats.steps - steps, 100);
    weft_run_destroy(run);
    alone_destroy(&alone);
}

/* ---- limits of waits ---- */

struct restart {
    atomic_int stop;
    atomic_int count;
};

static void start_again(void *user, struct weft_run *run, int status)
{
    struct restart *restart = user;
    atomic_fetch_add(&restart->count, 1);
    if (status == WEFT_OK && !atomic_load(&restart->stop))
        OK(weft_run_start(run));
}

static int busy(struct weft_call *call)
{
    (void)call;
    return WEFT_IN_PROGRESS;
}

static int busy_poll(struct weft_call *call)
{
    return call->state++ == 0 ? WEFT_IN_PROGRESS : WEFT_OK;
}

Test(progress, a_wait_with_a_limit_returns_though_the_engine_is_never_idle, .timeout = 140)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct restart restart = {0, 0};
    struct weft_run_config config;
    struct weft_op_config op_config;
    struct weft_op *op = NULL;
    weft_op_config_init(&op_config);
    op_config.name = "busy";
    op_config.flags = WEFT_OP_MAY_PEND;
    op_config.compute = busy;
    op_config.poll = busy_poll;
    OK(weft_op_create(&op, &op_config));
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    struct weft_run *held = make_run(alone.context, commit(s), NULL);
    s = new_schedule(0, 1);
    add_compute(s, op, NULL, 0, 0, 0);
    weft_run_config_init(&config);
    config.ended = start_again;
    config.user = &restart;
    struct weft_run *endless = make_run(alone.context, commit(s), &config);
    OK(weft_run_start(held));
    OK(weft_run_start(endless));
    /* A thread that is put aside may find its time over before its first step. */
    do
        cr_assert_eq(weft_run_wait(held, 1000000), WEFT_IN_PROGRESS);
    while (atomic_load(&restart.count) == 0);
    atomic_store(&restart.stop, 1);
    OK(weft_run_fire(held, 0));
    OK(weft_run_wait(held, WEFT_NEVER));
    weft_run_destroy(endless);
    weft_run_destroy(held);
    weft_op_destroy(op);
    alone_destroy(&alone);
}

struct creator {
    struct weft_context *context;
    struct weft_run *held;
    struct restart *restart;
};

static void *create_and_fire(void *argument)
{
    struct creator *creator = argument;
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    while (atomic_load(&creator->restart->count) == 0)
        sched_yield();
    OK(weft_context_get_stats(creator->context, &stats));
    OK(weft_run_fire(creator->held, 0));
    return NULL;
}

Test(progress, a_caller_that_never_rests_lets_others_use_the_context, .timeout = 140)
{
    struct weft_context_config context_config;
    struct weft_local *local;
    struct restart restart = {0, 0};
    struct creator creator = {.restart = &restart};
    pthread_t thread;
    struct weft_run_config config;
    weft_context_config_init(&context_config);
    context_config.spin_ns = WEFT_NEVER;
    OK(weft_local_create(&local, 1, NULL));
    OK(weft_context_create_local(&creator.context, local, 0, &context_config));
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    creator.held = make_run(creator.context, commit(s), NULL);
    s = new_schedule(0, 1);
    weft_schedule_add_join(s);
    weft_run_config_init(&config);
    config.ended = start_again;
    config.user = &restart;
    atomic_store(&restart.stop, 1); /* ends once */
    struct weft_run *once = make_run(creator.context, commit(s), &config);
    CHECK(pthread_create(&thread, NULL, create_and_fire, &creator) == 0);
    OK(weft_run_start(creator.held));
    OK(weft_run_start(once));
    OK(weft_run_wait(creator.held, WEFT_NEVER));
    pthread_join(thread, NULL);
    weft_run_destroy(once);
    weft_run_destroy(creator.held);
    weft_context_destroy(creator.context);
    weft_local_destroy(local);
}
