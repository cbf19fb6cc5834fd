/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes on while somebody waits: reports of stalls, the clock, how waits idle, what the user
 * has driven meanwhile, and waits for conditions of the user's own.
 */
#include <criterion/criterion.h>

#include "ping_pong.h"
#include "tests/support/compute.h"

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

Test(waits, a_wait_that_stalls_reports_what_it_waits_for_and_goes_on)
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

Test(waits, time_passes_by_at_least_what_is_slept)
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

Test(waits, a_least_sleep_above_the_longest_is_refused)
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

Test(waits, spinning_and_yielding_may_be_for_ever)
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

Test(waits, who_waits_calls_what_goes_on_beside_and_does_not_sleep)
{
    drive_meanwhile(WEFT_PROGRESS_CALLER, 0);
}

Test(waits, who_waits_sleeps_no_longer_than_what_goes_on_beside_wants)
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

Test(waits, a_wait_ends_when_its_condition_says_so)
{
    ranks_run_each_progress(wait_for_either, 2, NULL);
}

static int wait_within(struct weft_call *call)
{
    return weft_context_wait(call->user, never, NULL, WEFT_NEVER) == WEFT_ERR_STATE
               ? WEFT_OK
               : WEFT_ERR_TIMEOUT;
}

Test(waits, a_callback_is_told_that_it_must_not_wait)
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
