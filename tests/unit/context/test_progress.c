/* SPDX-License-Identifier: BSD-3-Clause */
/* Who drives, who sleeps, and that nobody is forgotten: many threads and ranks on few cores. */
#include <criterion/criterion.h>

#include "support/ranks.h"
#include "tests/support/bind.h"
#include "tests/support/compute.h"

/* Falls asleep at once when there is nothing to do. */
static void sleepy(struct weft_context_config *config)
{
    config->spin_ns = WEFT_NS_NONE;
    config->yield_ns = WEFT_NS_NONE;
    config->helper_yield_ns = WEFT_NS_NONE;
}

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

/* rank 0: send to 1, receive from 1; rank 1: receive, then send. */
static struct weft_plan *ping_pong(int rank)
{
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, 1, WEFT_SLOT_INOUT);
    weft_node_t send, recv;
    if (rank == 0) {
        send = weft_schedule_add_send(s, weft_region_at(slot, 0, 1), 1, 0);
        recv = weft_schedule_add_recv(s, weft_region_at(slot, 0, 1), 1, 0);
        weft_schedule_add_order(s, send, recv);
    } else {
        recv = weft_schedule_add_recv(s, weft_region_at(slot, 0, 1), 0, 0);
        send = weft_schedule_add_send(s, weft_region_at(slot, 0, 1), 0, 0);
        weft_schedule_add_order(s, recv, send);
    }
    return commit(s);
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
    int rounds = 1500;
    run_sleepily(many_callers, &rounds, WEFT_PROGRESS_CALLER);
}

Test(progress, threads_that_wait_beside_a_helper_are_all_woken)
{
    int rounds = 1500;
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

/* ---- stall reports ---- */

struct lines {
    pthread_mutex_t lock;
    char text[8192];
    int rank;
};

static void keep_line(void *user, weft_log_level_t level, int rank, const char *line)
{
    struct lines *lines = user;
    (void)level;
    pthread_mutex_lock(&lines->lock);
    lines->rank = rank;
    if (strlen(lines->text) + strlen(line) + 2 < sizeof lines->text) {
        strcat(lines->text, line);
        strcat(lines->text, "\n");
    }
    pthread_mutex_unlock(&lines->lock);
}

static void stall(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct lines *lines = ranks->user;
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, 1, WEFT_SLOT_INOUT);
    OK(weft_schedule_set_name(s, "lonely"));
    if (rank == 0) {
        weft_node_t recv = weft_schedule_add_recv(s, weft_region_at(slot, 0, 1), 1, 44);
        weft_schedule_add_order(s, recv, weft_schedule_add_join(s));
        weft_schedule_add_event(s, 7);
    } else {
        weft_schedule_add_send(s, weft_region_at(slot, 0, 1), 0, 44);
        weft_schedule_add_signal(s, 0, 7);
    }
    struct weft_run *run = make_run(context, commit(s), NULL);
    int64_t x = rank;
    OK(bind_slot(run, 0, &x));
    if (rank == 0) {
        int found = 0;
        OK(weft_run_start(run));
        while (!found) {
            CHECK(weft_run_wait(run, 2000000) == WEFT_IN_PROGRESS);
            pthread_mutex_lock(&lines->lock);
            found = strstr(lines->text, "event, channel 7") != NULL;
            pthread_mutex_unlock(&lines->lock);
        }
        char *report = NULL;
        OK(weft_run_report(run, &report));
        CHECK_TEXT(report, "lonely");
        CHECK_TEXT(report, "from rank 1, tag 44");
        CHECK_TEXT(report, "channel 7");
        CHECK_TEXT(report, "since");
        CHECK_TEXT(report, "3 of 3 nodes have not ended");
        weft_memory_free(report);
        CHECK_TEXT(lines->text, "lonely");
        CHECK_TEXT(lines->text, "from rank 1, tag 44");
        CHECK(lines->rank == 0);
        ranks_meet(ranks);
        OK(weft_run_wait(run, WEFT_NEVER));
        CHECK(x == 1);
        OK(weft_run_report(run, &report));
        CHECK_TEXT(report, "ended");
        weft_memory_free(report);
    } else {
        ranks_meet(ranks);
        OK(weft_run_execute(run));
    }
    weft_run_destroy(run);
}

Test(progress, a_wait_that_stalls_reports_what_it_waits_for_and_goes_on)
{
    struct lines lines = {PTHREAD_MUTEX_INITIALIZER, "", -1};
    struct ranks ranks;
    ranks_init(&ranks, 2, stall, &lines);
    ranks.config.stall_ns = 500000;
    ranks.config.log = keep_line;
    ranks.config.log_user = &lines;
    ranks_run(&ranks);
}

/* ---- the clock of a context ---- */

static void tell_time(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)ranks;
    (void)rank;
    uint64_t before = weft_context_now(context);
    OK(weft_context_sleep(context, 0));
    OK(weft_context_sleep(context, 2000000));
    CHECK(weft_context_now(context) >= before + 2000000);
}

Test(progress, time_passes_by_at_least_what_is_slept)
{
    struct ranks ranks;
    ranks_init(&ranks, 2, tell_time, NULL);
    ranks_run(&ranks);
    cr_assert(weft_context_now(NULL) == 0);
    cr_assert(weft_context_sleep(NULL, 1) == WEFT_ERR_INVALID);
}

/* ---- idle policies ---- */

static int open_alone(const struct weft_context_config *config)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    OK(weft_local_create(&local, 1, NULL));
    int status = weft_context_create_local(&context, local, 0, config);
    weft_context_destroy(context);
    weft_local_destroy(local);
    return status;
}

Test(progress, a_least_sleep_above_the_longest_is_refused)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.sleep_min_ns = 2000;
    config.sleep_max_ns = 1000;
    cr_expect_eq(open_alone(&config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_context_create_local: config->sleep_min_ns is 2000, "
                                  "expected at most config->sleep_max_ns, which is 1000");
    config.sleep_max_ns = WEFT_NS_NONE;
    cr_expect_eq(open_alone(&config), WEFT_OK);
    config.sleep_max_ns = 0;
    config.sleep_min_ns = UINT64_C(1000000000); /* above the default of the longest */
    cr_expect_eq(open_alone(&config), WEFT_OK);
    config.sleep_min_ns = WEFT_NS_NONE;
    config.sleep_max_ns = 1000;
    cr_expect_eq(open_alone(&config), WEFT_OK);
}

Test(progress, spinning_and_yielding_may_be_for_ever)
{
    struct ranks ranks;
    ranks_init(&ranks, 2, tell_time, NULL);
    ranks.config.spin_ns = WEFT_NEVER;
    ranks.config.yield_ns = WEFT_NEVER;
    ranks.config.helper_yield_ns = WEFT_NEVER;
    ranks_run(&ranks);
    ranks.config.spin_ns = WEFT_NS_NONE;
    ranks.config.progress = WEFT_PROGRESS_HELPER;
    ranks_run(&ranks);
}

/* ---- something else goes on meanwhile ---- */

/* What rank 1 drives while it waits for rank 0, which goes on when it has been called often. */
struct beside {
    atomic_int called;
    _Atomic uint64_t longest_ns;
    uint64_t again_ns;
};

enum { CALLED = 20 };

static uint64_t drive_beside(void *user, uint64_t idle_ns)
{
    struct beside *beside = user;
    atomic_fetch_add(&beside->called, 1);
    if (idle_ns > atomic_load(&beside->longest_ns))
        atomic_store(&beside->longest_ns, idle_ns);
    return beside->again_ns;
}

static void wait_for_calls(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct beside *beside = ranks->user;
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    struct weft_run *run = make_run(context, ping_pong(rank), NULL);
    int64_t x = rank;
    OK(bind_slot(run, 0, &x));
    ranks_meet(ranks); /* creating a context may have called it */
    int before = atomic_load(&beside->called);
    ranks_meet(ranks);
    if (rank == 0)
        while (atomic_load(&beside->called) < before + CALLED)
            sched_yield();
    OK(weft_run_execute(run));
    CHECK(x == 0);
    OK(weft_context_get_stats(context, &stats));
    if (beside->again_ns == 0)
        CHECK(stats.sleeps == 0);
    else if (rank == 1 && ranks->config.progress == WEFT_PROGRESS_CALLER)
        CHECK(stats.sleeps > 0);
    weft_run_destroy(run);
}

static void drive_meanwhile(weft_progress_t progress, uint64_t again_ns)
{
    struct beside beside = {.again_ns = again_ns};
    struct ranks ranks;
    ranks_init(&ranks, 2, wait_for_calls, &beside);
    sleepy(&ranks.config);
    ranks.config.progress = progress;
    ranks.config.meanwhile = drive_beside;
    ranks.config.meanwhile_user = &beside;
    ranks_run(&ranks);
    CHECK(atomic_load(&beside.longest_ns) > 0);
}

Test(progress, who_waits_calls_what_goes_on_beside_and_does_not_sleep)
{
    drive_meanwhile(WEFT_PROGRESS_CALLER, 0);
}

Test(progress, who_waits_sleeps_no_longer_than_what_goes_on_beside_wants)
{
    drive_meanwhile(WEFT_PROGRESS_CALLER, 100000);
    drive_meanwhile(WEFT_PROGRESS_HELPER, 100000);
}

/* ---- a condition of one's own ---- */

struct ends_of_two {
    struct weft_run *runs[2];
    int calls;
};

static int has_one_ended(void *user)
{
    struct ends_of_two *two = user;
    two->calls++;
    return weft_run_test(two->runs[0]) != WEFT_IN_PROGRESS ||
           weft_run_test(two->runs[1]) != WEFT_IN_PROGRESS;
}

static int never(void *user)
{
    (void)user;
    return 0;
}

static void wait_for_either(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct ends_of_two two = {.calls = 0};
    int64_t x[2] = {rank, rank};
    (void)ranks;
    for (int i = 0; i < 2; i++) {
        two.runs[i] = make_run(context, ping_pong(rank), NULL);
        OK(bind_slot(two.runs[i], 0, &x[i]));
    }
    OK(weft_run_start(two.runs[1]));
    if (rank == 0) {
        OK(weft_run_start(two.runs[0]));
        OK(weft_context_wait(context, has_one_ended, &two, WEFT_NEVER));
        CHECK(two.calls > 0);
        CHECK(weft_run_test(two.runs[0]) == WEFT_IN_PROGRESS); /* the peer waits for our word */
        CHECK(weft_context_wait(context, never, NULL, 1000000) == WEFT_IN_PROGRESS);
        ranks_meet(ranks);
    } else {
        OK(weft_run_wait(two.runs[1], WEFT_NEVER));
        ranks_meet(ranks);
        OK(weft_run_start(two.runs[0]));
    }
    for (int i = 0; i < 2; i++) {
        OK(weft_run_wait(two.runs[i], WEFT_NEVER));
        weft_run_destroy(two.runs[i]);
    }
}

Test(progress, a_wait_ends_when_its_condition_says_so)
{
    ranks_run_each_progress(wait_for_either, 2, NULL);
}

static int wait_within(struct weft_call *call)
{
    return weft_context_wait(call->user, never, NULL, WEFT_NEVER) == WEFT_ERR_STATE
               ? WEFT_OK
               : WEFT_ERR_TIMEOUT;
}

Test(progress, a_callback_is_told_that_it_must_not_wait)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_op_config op_config;
    struct weft_op *op = NULL;
    weft_op_config_init(&op_config);
    op_config.name = "waits";
    op_config.compute = wait_within;
    op_config.user = alone.context;
    OK(weft_op_create(&op, &op_config));
    struct weft_schedule *s = new_schedule(0, 1);
    add_compute(s, op, NULL, 0, 0, 0);
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    OK(weft_run_execute(run));
    cr_assert_eq(weft_context_wait(NULL, never, NULL, 0), WEFT_ERR_INVALID);
    cr_assert_eq(weft_context_wait(alone.context, NULL, NULL, 0), WEFT_ERR_INVALID);
    weft_run_destroy(run);
    weft_op_destroy(op);
    alone_destroy(&alone);
}
