/* SPDX-License-Identifier: BSD-3-Clause */
/* Series: versions that the engine arms, held by events, caught up by signals. */
#include <criterion/criterion.h>

#include "support/ranks.h"
#include "tests/support/bind.h"
#include "tests/support/compute.h"

enum { VERSIONS = 200, BINDINGS = 4 };

/* Where the callbacks write; read by the test after a wait. */
struct record {
    atomic_ulong armed;
    atomic_ulong ended;
    uint64_t last_armed;
    int last_status;
    uint64_t stop_before; /* arm returns `stop_with` for this version */
    int stop_with;
    size_t plans;
    int64_t in[BINDINGS], out[BINDINGS];
};

static int arm(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    struct record *record = user;
    (void)series;
    CHECK(arm->version == record->last_armed + 1);
    if (arm->version == record->stop_before)
        return record->stop_with;
    record->last_armed = arm->version;
    atomic_fetch_add(&record->armed, 1);
    arm->plan = record->plans > 1 ? (size_t)(arm->version % record->plans) : 0;
    return WEFT_OK;
}

static void ended(void *user, struct weft_series *series, uint64_t version, int status)
{
    struct record *record = user;
    (void)series;
    CHECK(version == record->last_armed);
    record->last_status = status;
    atomic_fetch_add(&record->ended, 1);
}

static void record_init(struct record *record)
{
    memset(record, 0, sizeof *record);
    record->last_armed = UINT64_MAX;
    record->stop_before = UINT64_MAX;
    record->plans = 1;
}

static struct weft_series *make_series(struct weft_context *context, struct record *record,
                                       struct weft_plan **plans, size_t count, uint64_t first)
{
    struct weft_series_config config;
    struct weft_series *series = NULL;
    weft_series_config_init(&config);
    config.plans = plans;
    config.plan_count = count;
    config.first = first;
    config.arm = arm;
    config.ended = ended;
    config.user = record;
    record->last_armed = first - 1;
    record->plans = count;
    OK(weft_series_create(&series, context, &config));
    for (size_t p = 0; p < count; p++)
        weft_plan_destroy(plans[p]);
    return series;
}

static struct weft_plan *one_event(void)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    return commit(s);
}

/* Fires a version as soon as it can be. */
static int fire(struct weft_series *series, uint64_t version, weft_node_t event)
{
    int status;
    while ((status = weft_series_fire(series, version, event)) == WEFT_IN_PROGRESS)
        sched_yield();
    return status;
}

static void refuse(int status, int expected, const char *word)
{
    cr_expect_eq(status, expected, "%s: %s", weft_status_name(status), weft_error_text());
    cr_expect_not_null(strstr(weft_error_text(), word), "\"%s\" does not say %s", weft_error_text(),
                       word);
}

/* ---- alone ---- */

Test(series, versions_follow_each_other_as_they_are_fired)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct record record;
    struct weft_plan *plan = one_event();
    record_init(&record);
    struct weft_series *series = make_series(alone.context, &record, &plan, 1, 0);
    CHECK(weft_series_version(series) == 0);
    CHECK(weft_series_fire(series, 0, 0) == WEFT_IN_PROGRESS); /* not started */
    OK(weft_series_start(series));
    CHECK_STATUS(weft_series_start(series), WEFT_ERR_STATE);
    for (uint64_t v = 0; v < VERSIONS; v++) {
        CHECK(weft_series_wait(series, v, 0) == WEFT_IN_PROGRESS);
        CHECK(weft_series_fire(series, v + 1, 0) == WEFT_IN_PROGRESS);
        OK(fire(series, v, 0));
        CHECK(weft_series_fire(series, v, 0) == WEFT_RETIRED);
        OK(weft_series_wait(series, v, WEFT_NEVER));
        CHECK(weft_series_version(series) >= v + 1);
        OK(weft_series_wait(series, v / 2, WEFT_NEVER));
        CHECK(atomic_load(&record.ended) >= v);
        CHECK_STATUS(weft_series_fire(series, v, 0), WEFT_RETIRED);
    }
    weft_series_destroy(series); /* version VERSIONS is under way */
    cr_expect_eq(record.last_status, WEFT_ERR_CANCELLED);
    cr_expect_eq(atomic_load(&record.ended), VERSIONS + 1);
    alone_destroy(&alone);
}

Test(series, the_first_version_may_be_any)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct record record;
    struct weft_plan *plan = one_event();
    record_init(&record);
    struct weft_series *series = make_series(alone.context, &record, &plan, 1, 1000);
    OK(weft_series_start(series));
    CHECK_STATUS(weft_series_fire(series, 999, 0), WEFT_RETIRED);
    OK(fire(series, 1000, 0));
    OK(weft_series_wait(series, 1000, WEFT_NEVER));
    weft_series_destroy(series);
    alone_destroy(&alone);
}

Test(series, arm_ends_it_before_a_version)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct record record;
    struct weft_plan *plan = one_event();
    record_init(&record);
    record.stop_before = 5;
    record.stop_with = WEFT_RETIRED;
    struct weft_series *series = make_series(alone.context, &record, &plan, 1, 0);
    OK(weft_series_start(series));
    for (uint64_t v = 0; v < 5; v++)
        OK(fire(series, v, 0));
    OK(weft_series_wait(series, 4, WEFT_NEVER));
    CHECK_STATUS(weft_series_wait(series, 5, WEFT_NEVER), WEFT_ERR_STATE);
    CHECK_STATUS(weft_series_fire(series, 5, 0), WEFT_ERR_STATE);
    CHECK_STATUS(weft_series_fire(series, 4, 0), WEFT_RETIRED);
    OK(weft_series_wait(series, 0, WEFT_NEVER));
    cr_expect_eq(atomic_load(&record.armed), 5);
    weft_series_destroy(series);
    alone_destroy(&alone);
}

/* ---- versions that are held, pokes and signals ---- */

struct held {
    struct record record;
    atomic_int go;
    atomic_ulong asked;
    atomic_ulong pokes;
    uint64_t retry_ns;
    atomic_ulong told; /* version of the latest signal + 1 */
    int from;
    uint32_t channel;
};

static int arm_held(void *user, struct weft_series *series, struct weft_series_arm *choice)
{
    struct held *held = user;
    CHECK(choice->retry_ns == WEFT_NEVER);
    choice->retry_ns = held->retry_ns;
    int go = atomic_load(&held->go); /* before the count, which says that it has been read */
    if (atomic_fetch_add(&held->asked, 1) < 3 && held->retry_ns != WEFT_NEVER)
        return WEFT_IN_PROGRESS;
    return go ? arm(&held->record, series, choice) : WEFT_IN_PROGRESS;
}

static void poked(void *user, struct weft_series *series)
{
    struct held *held = user;
    if (atomic_fetch_add(&held->pokes, 1) != 0 || held->channel == 0)
        return;
    refuse(weft_series_signal(series, 2, 1, 0), WEFT_ERR_INVALID, "`rank`");
    OK(weft_series_signal(series, 1, held->channel, 41));
}

static void signalled(void *user, struct weft_series *series, int from, uint32_t channel,
                      uint64_t version)
{
    struct held *held = user;
    (void)series;
    held->from = from;
    held->channel = channel;
    atomic_store(&held->told, version + 1);
}

static struct weft_series *make_held(struct weft_context *context, struct held *held,
                                     uint64_t retry_ns)
{
    struct weft_series_config config;
    struct weft_series *series = NULL;
    struct weft_schedule *s = new_schedule(weft_context_rank(context), weft_context_size(context));
    weft_schedule_add_join(s);
    struct weft_plan *plan = commit(s);
    weft_series_config_init(&config);
    config.plans = &plan;
    config.plan_count = 1;
    config.arm = arm_held;
    config.poked = poked;
    config.signalled = signalled;
    config.user = held;
    record_init(&held->record);
    held->record.stop_before = 1;
    held->record.stop_with = WEFT_RETIRED;
    held->retry_ns = retry_ns;
    OK(weft_series_create(&series, context, &config));
    weft_plan_destroy(plan);
    return series;
}

Test(series, a_version_that_is_held_starts_when_it_is_poked, .timeout = 140)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct held held = {0};
    struct weft_series *series = make_held(alone.context, &held, WEFT_NEVER);
    OK(weft_series_start(series));
    CHECK_STATUS(weft_series_wait(series, 0, 1000000), WEFT_IN_PROGRESS);
    CHECK(atomic_load(&held.asked) == 1);
    OK(weft_series_poke(series));
    while (atomic_load(&held.asked) < 2)
        sched_yield();
    CHECK_STATUS(weft_series_wait(series, 0, 0), WEFT_IN_PROGRESS);
    atomic_store(&held.go, 1);
    OK(weft_series_poke(series));
    OK(weft_series_wait(series, 0, WEFT_NEVER));
    OK(weft_series_poke(series)); /* it is over */
    cr_expect_geq(atomic_load(&held.pokes), 2);
    weft_series_destroy(series);
    alone_destroy(&alone);
}

Test(series, a_version_that_is_held_is_asked_again_in_time, .timeout = 140)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct held held = {.go = 1};
    struct weft_series *series = make_held(alone.context, &held, 100000);
    OK(weft_series_start(series));
    OK(weft_series_wait(series, 0, WEFT_NEVER));
    cr_expect_geq(atomic_load(&held.asked), 4);
    cr_expect_eq(atomic_load(&held.pokes), 0);
    weft_series_destroy(series);
    alone_destroy(&alone);
}

static void signal_the_other(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct held held = {.channel = rank == 0 ? 7 : 0};
    struct weft_series *series = make_held(context, &held, WEFT_NEVER);
    OK(weft_series_start(series));
    ranks_meet(ranks);
    if (rank == 0)
        OK(weft_series_poke(series));
    while (rank == 1 && atomic_load(&held.told) == 0)
        sched_yield();
    if (rank == 1)
        CHECK(held.told == 42 && held.from == 0 && held.channel == 7);
    ranks_meet(ranks);
    weft_series_destroy(series);
}

Test(series, signals_that_no_event_waits_for_are_told, .timeout = 140)
{
    struct ranks ranks;
    ranks_init(&ranks, 2, signal_the_other, NULL);
    ranks.config.progress = WEFT_PROGRESS_HELPER;
    ranks_run(&ranks);
    refuse(weft_series_poke(NULL), WEFT_ERR_INVALID, "`series`");
    refuse(weft_series_signal(NULL, 0, 0, 0), WEFT_ERR_INVALID, "`series`");
}

static void *wait_for_end(void *argument)
{
    struct weft_series *series = argument;
    CHECK_STATUS(weft_series_wait(series, 0, WEFT_NEVER), WEFT_ERR_STATE);
    return NULL;
}

Test(series, a_series_that_ends_before_it_begins_wakes_those_who_wait, .timeout = 140)
{
    for (int i = 0; i < 50; i++) {
        struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
        struct record record;
        struct weft_plan *plan = one_event();
        pthread_t thread;
        record_init(&record);
        record.stop_before = 0;
        record.stop_with = WEFT_RETIRED;
        struct weft_series *series = make_series(alone.context, &record, &plan, 1, 0);
        CHECK(pthread_create(&thread, NULL, wait_for_end, series) == 0);
        for (int y = 0; y < i * 4; y++) /* beside others each takes a slice of theirs */
            sched_yield();
        OK(weft_series_start(series));
        pthread_join(thread, NULL);
        weft_series_destroy(series);
        alone_destroy(&alone);
    }
}

Test(series, an_error_of_arm_fails_it_and_not_the_version_before)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct record record;
    struct weft_context_config config;
    weft_context_config_init(&config);
    for (int first = 0; first < 2; first++) {
        struct weft_plan *plan = one_event();
        record_init(&record);
        record.stop_before = first ? 0 : 2;
        record.stop_with = WEFT_ERR_IO;
        struct weft_series *series = make_series(alone.context, &record, &plan, 1, 0);
        if (first) {
            CHECK_STATUS(weft_series_start(series), WEFT_ERR_IO);
        } else {
            OK(weft_series_start(series));
            OK(fire(series, 0, 0));
            OK(fire(series, 1, 0));
            OK(weft_series_wait(series, 0, WEFT_NEVER));
            OK(weft_series_wait(series, 1, WEFT_NEVER));
            CHECK_STATUS(weft_series_wait(series, 2, WEFT_NEVER), WEFT_ERR_IO);
            OK(weft_series_wait(series, 1, WEFT_NEVER));
        }
        weft_series_destroy(series);
    }
    alone_destroy(&alone);
}

/* ---- a version that fails ---- */

static int fail_at(struct weft_call *call)
{
    return call->version == *(uint64_t *)call->user ? WEFT_ERR_IO : WEFT_OK;
}

Test(series, a_version_that_fails_ends_it_and_keeps_its_status)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    uint64_t culprit = 3;
    struct record record;
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "fails";
    config.compute = fail_at;
    config.user = &culprit;
    OK(weft_op_create(&op, &config));
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    weft_schedule_add_order(s, event, add_compute(s, op, NULL, 0, 0, 0));
    struct weft_plan *plan = commit(s);
    record_init(&record);
    struct weft_series *series = make_series(alone.context, &record, &plan, 1, 0);
    OK(weft_series_start(series));
    for (uint64_t v = 0; v <= 3; v++)
        OK(fire(series, v, event));
    CHECK_STATUS(weft_series_wait(series, 3, WEFT_NEVER), WEFT_ERR_COMPUTE);
    OK(weft_series_wait(series, 2, WEFT_NEVER));
    CHECK_STATUS(weft_series_wait(series, 4, WEFT_NEVER), WEFT_ERR_COMPUTE);
    CHECK_STATUS(weft_series_wait(series, 3, WEFT_NEVER), WEFT_ERR_COMPUTE);
    weft_series_destroy(series);
    weft_op_destroy(op);
    alone_destroy(&alone);
}

/* An object that fails when a version is armed, and has not begun. */
struct between {
    struct weft_object *object;
    struct weft_series *series;
    int ended_status; /* of the version; 1: it has not ended */
    int over;         /* the series was, before its version had ended */
};

static int arm_and_fail(void *user, struct weft_series *series, struct weft_series_arm *choice)
{
    struct between *between = user;
    (void)series;
    if (choice->version == 1) /* it is looked at before the version, which is commanded after it */
        OK(weft_object_fail(between->object, WEFT_ERR_IO, "between the two"));
    return WEFT_OK;
}

static void ended_between(void *user, struct weft_series *series, uint64_t version, int status)
{
    struct between *between = user;
    if (version != 1)
        return;
    between->ended_status = status;
    between->over = weft_series_fire(series, version, 0) == WEFT_ERR_STATE;
}

Test(series, is_over_when_the_version_that_was_armed_has_ended)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct between between = {.ended_status = 1};
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    struct weft_plan *plan = commit(s);
    struct weft_series_config config;
    OK(weft_object_create(&between.object, alone.context, NULL));
    weft_series_config_init(&config);
    config.object = between.object;
    config.plans = &plan;
    config.plan_count = 1;
    config.arm = arm_and_fail;
    config.ended = ended_between;
    config.user = &between;
    OK(weft_series_create(&between.series, alone.context, &config));
    weft_plan_destroy(plan);
    OK(weft_series_start(between.series));
    OK(fire(between.series, 0, event));
    CHECK_STATUS(weft_series_wait(between.series, UINT64_MAX - 1, WEFT_NEVER), WEFT_ERR_IO);
    CHECK_TEXT(weft_error_text(), "between the two");
    CHECK_STATUS(between.ended_status, WEFT_ERR_IO);
    CHECK(!between.over);
    CHECK(weft_series_version(between.series) == 1);
    CHECK_STATUS(weft_series_fire(between.series, 1, event), WEFT_ERR_STATE);
    weft_series_destroy(between.series);
    weft_object_destroy(between.object);
    alone_destroy(&alone);
}

/* ---- what is told of an error ---- */

struct answer {
    size_t plan;
    uint64_t retry_ns;
    int status;
    const char *text; /* NULL: `arm` sets none */
    int expected;
    const char *told;
};

static int arm_as_told(void *user, struct weft_series *series, struct weft_series_arm *choice)
{
    const struct answer *answer = user;
    (void)series;
    choice->plan = answer->plan;
    choice->retry_ns = answer->retry_ns;
    if (answer->text)
        weft_error_set_text(WEFT_ERR_IO, answer->text);
    return answer->status;
}

/* Its plan has a slot that nobody binds. */
static struct weft_series *make_answering(struct weft_context *context, struct answer *answer,
                                          size_t elements)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_slot(s, "unbound", WEFT_I64, elements, WEFT_SLOT_INPUT);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    struct weft_plan *plan = commit(s);
    const struct weft_series_config config = {.struct_size = sizeof config,
                                              .plans = &plan,
                                              .plan_count = 1,
                                              .arm = arm_as_told,
                                              .user = answer};
    struct weft_series *series = NULL;
    OK(weft_series_create(&series, context, &config));
    weft_plan_destroy(plan);
    return series;
}

Test(series, why_a_version_cannot_begin_is_told_who_starts_and_who_waits)
{
    struct answer answers[] = {
        {99, WEFT_NEVER, WEFT_OK, NULL, WEFT_ERR_INVALID, "`plan` is 99, expected less than"},
        {0, WEFT_NEVER, WEFT_OK, NULL, WEFT_ERR_INVALID, "slot `unbound` of plan"},
        {0, WEFT_NS_NONE, WEFT_IN_PROGRESS, NULL, WEFT_ERR_INVALID, "`retry_ns` is WEFT_NS_NONE"},
        {0, WEFT_NEVER, WEFT_ERR_IO, "the disk is full", WEFT_ERR_IO, "the disk is full"},
        {0, WEFT_NEVER, WEFT_ERR_IO, "", WEFT_ERR_IO, weft_status_text(WEFT_ERR_IO)},
        {0, WEFT_NEVER, WEFT_ERR_IO, NULL, WEFT_ERR_IO, weft_status_text(WEFT_ERR_IO)},
        {0, WEFT_NEVER, 77, NULL, WEFT_ERR_INVALID, "`arm` returned 77, expected WEFT_OK"}};
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct weft_series *series = make_answering(alone.context, &answers[i], 1);
        weft_error_set_text(WEFT_ERR_IO, "an older error");
        int status = weft_series_start(series);
        refuse(status, answers[i].expected, "weft_series_start: the first version could not");
        refuse(status, answers[i].expected, answers[i].told);
        status = weft_series_wait(series, 0, WEFT_NEVER);
        refuse(status, answers[i].expected, "weft_series_wait: the series ended before version 0");
        refuse(status, answers[i].expected, answers[i].told);
        weft_series_destroy(series);
    }
    alone_destroy(&alone);
}

/* `arm` may try what fails: that is no error of whose call it is called in. */
Test(series, a_start_that_succeeds_leaves_the_error_text_as_it_was)
{
    struct answer answers[] = {
        {0, WEFT_NEVER, WEFT_OK, "arm has tried", WEFT_OK, NULL},
        {0, WEFT_NEVER, WEFT_IN_PROGRESS, "arm has tried", WEFT_OK, NULL},
        {0, WEFT_NEVER, WEFT_RETIRED, "arm has tried", WEFT_OK, NULL},
    };
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct weft_series *series = make_answering(alone.context, &answers[i], 0);
        weft_error_set_text(WEFT_ERR_IO, "an older error");
        OK(weft_series_start(series));
        cr_expect_str_eq(weft_error_text(), "an older error");
        weft_series_destroy(series);
    }
    alone_destroy(&alone);
}

static int fail_aloud(struct weft_call *call)
{
    (void)call;
    return weft_error_set_text(WEFT_ERR_IO, "the oven is cold");
}

/* It was armed, so that its start is no error, however soon it fails. */
Test(series, why_a_version_failed_is_told_who_waits)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    const struct weft_op_config config = {
        .struct_size = sizeof config, .name = "bake", .compute = fail_aloud};
    struct weft_op *op = NULL;
    OK(weft_op_create(&op, &config));
    for (int i = 0; i < 50; i++) {
        struct record record;
        struct weft_schedule *s = new_schedule(0, 1);
        add_compute(s, op, NULL, 0, 0, 0);
        struct weft_plan *plan = commit(s);
        record_init(&record);
        struct weft_series *series = make_series(alone.context, &record, &plan, 1, 0);
        OK(weft_series_start(series));
        for (uint64_t v = 0; v < 2; v++) {
            int status = weft_series_wait(series, v, WEFT_NEVER);
            refuse(status, WEFT_ERR_COMPUTE, v ? "before version 1" : "version 0 of the series");
            refuse(status, WEFT_ERR_COMPUTE, "weft_series_wait: ");
            refuse(status, WEFT_ERR_COMPUTE, "the oven is cold");
        }
        weft_series_destroy(series);
    }
    weft_op_destroy(op);
    alone_destroy(&alone);
}

/* ---- plans and bindings ---- */

static int arm_bound(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    struct record *record = user;
    size_t at = arm->version % BINDINGS;
    if (arm->version == VERSIONS)
        return WEFT_RETIRED;
    arm->plan = arm->version % 2;
    struct weft_run *run = weft_series_get_run(series, arm->plan);
    record->in[at] = (int64_t)arm->version;
    OK(bind_slot(run, 0, &record->in[at]));
    OK(bind_slot(run, 1, &record->out[at]));
    return WEFT_OK;
}

static void check_bound(void *user, struct weft_series *series, uint64_t version, int status)
{
    struct record *record = user;
    (void)series;
    OK(status);
    CHECK(record->out[version % BINDINGS] == (int64_t)version * (version % 2 ? 3 : 2));
    atomic_fetch_add(&record->ended, 1);
}

Test(series, each_version_has_the_plan_and_the_bindings_that_arm_chose)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct weft_plan *plans[2];
    struct record record;
    struct weft_series_config config;
    struct weft_series *series = NULL;
    record_init(&record);
    for (int p = 0; p < 2; p++) {
        struct weft_schedule *s = new_schedule(0, 1);
        weft_slot_t in = weft_schedule_add_slot(s, "in", WEFT_I64, 1, WEFT_SLOT_INPUT);
        weft_slot_t out = weft_schedule_add_slot(s, "out", WEFT_I64, 1, WEFT_SLOT_OUTPUT);
        weft_node_t sum =
            weft_schedule_add_reduce(s, weft_op_builtin(WEFT_SUM), weft_region_at(out, 0, 1),
                                     weft_region_at(in, 0, 1), weft_region_at(in, 0, 1));
        if (p == 1)
            weft_schedule_add_order(
                s, sum,
                weft_schedule_add_reduce(s, weft_op_builtin(WEFT_SUM), weft_region_at(out, 0, 1),
                                         weft_region_at(out, 0, 1), weft_region_at(in, 0, 1)));
        plans[p] = commit(s);
    }
    weft_series_config_init(&config);
    config.plans = plans;
    config.plan_count = 2;
    config.arm = arm_bound;
    config.ended = check_bound;
    config.user = &record;
    OK(weft_series_create(&series, alone.context, &config));
    weft_plan_destroy(plans[0]);
    weft_plan_destroy(plans[1]);
    OK(weft_series_start(series));
    OK(weft_series_wait(series, VERSIONS - 1, WEFT_NEVER));
    cr_expect_eq(atomic_load(&record.ended), VERSIONS);
    weft_series_destroy(series);
    alone_destroy(&alone);
}

/* ---- ranks ---- */

/* Every rank: an event by the application or by a signal; then it signals the next rank of a ring.
 */
static struct weft_plan *activation(int rank, int size, weft_node_t *mine)
{
    struct weft_schedule *s = new_schedule(rank, size);
    *mine = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    weft_node_t theirs = weft_schedule_add_event(s, 1);
    const weft_node_t members[] = {*mine, theirs};
    OK(weft_schedule_add_choice(s, members, 2));
    weft_node_t go = weft_schedule_add_join(s);
    weft_schedule_add_order(s, *mine, go);
    weft_schedule_add_order(s, theirs, go);
    OK(weft_schedule_set_any(s, go));
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I64, 2, WEFT_SLOT_SCRATCH);
    weft_node_t pass = weft_schedule_add_signal(s, (rank + 1) % size, 1);
    weft_node_t send = weft_schedule_add_send(s, weft_region_at(x, 0, 1), (rank + 1) % size, 0);
    weft_node_t recv =
        weft_schedule_add_recv(s, weft_region_at(x, 1, 1), (rank + size - 1) % size, 0);
    weft_schedule_add_order(s, go, pass);
    weft_schedule_add_order(s, go, send);
    weft_schedule_add_order(s, go, recv);
    return commit(s);
}

static void activate(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct record record;
    weft_node_t mine;
    struct weft_plan *plan = activation(rank, ranks->size, &mine);
    record_init(&record);
    record.stop_before = VERSIONS;
    record.stop_with = WEFT_RETIRED;
    struct weft_series *series = make_series(context, &record, &plan, 1, 0);
    OK(weft_series_start(series));
    /* Rank v mod size arrives at version v; nobody else does anything. */
    for (uint64_t v = (uint64_t)rank; v < VERSIONS; v += (uint64_t)ranks->size) {
        int status = fire(series, v, mine);
        CHECK(status == WEFT_OK || status == WEFT_RETIRED);
    }
    OK(weft_series_wait(series, VERSIONS - 1, WEFT_NEVER));
    CHECK(atomic_load(&record.armed) == VERSIONS);
    ranks_meet(ranks);
    weft_series_destroy(series);
}

Test(series, one_rank_that_arrives_starts_the_version_on_all)
{
    const int sizes[] = {2, 3, 5, 8};
    for (int i = 0; i < 4; i++) {
        struct ranks ranks;
        ranks_init(&ranks, sizes[i], activate, NULL);
        ranks.config.progress = WEFT_PROGRESS_HELPER;
        ranks_run(&ranks);
        ranks.config.helper_yield_ns = WEFT_NS_NONE;
        ranks_run(&ranks);
    }
}

/* Rank 0 is through all its versions before rank 1 has its series: signals are cumulative. */
static void catch_up(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct record record;
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_node_t event = weft_schedule_add_event(s, rank == 0 ? WEFT_CHANNEL_NONE : 1);
    if (rank == 0)
        weft_schedule_add_order(s, event, weft_schedule_add_signal(s, 1, 1));
    struct weft_plan *plan = commit(s);
    record_init(&record);
    record.stop_before = VERSIONS;
    record.stop_with = WEFT_RETIRED;
    if (rank == 1)
        ranks_meet(ranks);
    struct weft_series *series = make_series(context, &record, &plan, 1, 0);
    OK(weft_series_start(series));
    for (uint64_t v = 0; rank == 0 && v < VERSIONS; v++)
        OK(fire(series, v, event));
    OK(weft_series_wait(series, VERSIONS - 1, WEFT_NEVER));
    if (rank == 0)
        ranks_meet(ranks);
    CHECK(atomic_load(&record.armed) == VERSIONS);
    ranks_meet(ranks);
    weft_series_destroy(series);
}

Test(series, a_rank_that_comes_late_runs_through_what_it_missed)
{
    ranks_run_helped(catch_up, 2, NULL);
}

/* The signal that ends a version is for the next one, too: there it fires both events of its
 * channel, though the application had fired one of them before. */
Test(series, a_signal_that_ends_a_version_fires_the_next_one_as_well, .timeout = 140)
{
    for (int mine = 0; mine < 2; mine++) {
        struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
        struct record record;
        struct weft_schedule *s = new_schedule(0, 1);
        weft_node_t events[2] = {weft_schedule_add_event(s, 1), weft_schedule_add_event(s, 1)};
        struct weft_plan *plan = commit(s);
        record_init(&record);
        record.stop_before = 40;
        record.stop_with = WEFT_RETIRED;
        struct weft_series *series = make_series(alone.context, &record, &plan, 1, 0);
        OK(weft_series_start(series));
        for (uint64_t v = 0; v < 40; v += 2) {
            OK(fire(series, v, events[mine]));
            OK(weft_series_signal(series, 0, 1, v + 1));
            OK(weft_series_wait(series, v + 1, WEFT_NEVER));
        }
        weft_series_destroy(series);
        alone_destroy(&alone);
    }
}

/* ---- threads ---- */

struct crowd {
    struct weft_series *series;
    atomic_int wins;
};

static void *fire_all(void *argument)
{
    struct crowd *crowd = argument;
    for (uint64_t v = 0; v < VERSIONS; v++) {
        int status = fire(crowd->series, v, 0);
        CHECK(status == WEFT_OK || status == WEFT_RETIRED || status == WEFT_ERR_STATE);
        if (status == WEFT_OK)
            atomic_fetch_add(&crowd->wins, 1);
        OK(weft_series_wait(crowd->series, v, WEFT_NEVER));
    }
    return NULL;
}

Test(series, threads_that_fire_and_wait_for_the_same_versions)
{
    for (int i = 0; i < 5; i++) {
        struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
        struct record record;
        struct crowd crowd = {NULL, 0};
        struct weft_plan *plan = one_event();
        pthread_t threads[3];
        record_init(&record);
        record.stop_before = VERSIONS;
        record.stop_with = WEFT_RETIRED;
        crowd.series = make_series(alone.context, &record, &plan, 1, 0);
        OK(weft_series_start(crowd.series));
        for (int t = 0; t < 3; t++)
            CHECK(pthread_create(&threads[t], NULL, fire_all, &crowd) == 0);
        for (int t = 0; t < 3; t++)
            pthread_join(threads[t], NULL);
        cr_expect_eq(atomic_load(&crowd.wins), VERSIONS);
        weft_series_destroy(crowd.series);
        alone_destroy(&alone);
    }
}

/* ---- misuse ---- */

static int arm_nothing(void *user, struct weft_series *series, struct weft_series_arm *choice)
{
    (void)user;
    (void)series;
    (void)choice;
    return WEFT_OK;
}

Test(series, what_makes_no_series_is_refused)
{
    struct alone helper = alone_create(WEFT_PROGRESS_HELPER);
    struct alone caller = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_series_config config;
    struct weft_series *series = NULL;
    struct weft_plan *plan = one_event();
    struct weft_plan *none = NULL;
    struct weft_plan *wide = commit(new_schedule(0, 2));
    weft_series_config_init(&config);
    config.plans = &plan;
    config.plan_count = 1;
    config.arm = arm;
    refuse(weft_series_create(NULL, helper.context, &config), WEFT_ERR_INVALID, "`series`");
    refuse(weft_series_create(&series, NULL, &config), WEFT_ERR_INVALID, "`context`");
    refuse(weft_series_create(&series, helper.context, NULL), WEFT_ERR_INVALID, "`config`");
    refuse(weft_series_create(&series, caller.context, &config), WEFT_ERR_STATE, "helper");
    config.arm = NULL;
    refuse(weft_series_create(&series, helper.context, &config), WEFT_ERR_INVALID, "arm");
    config.arm = arm;
    config.plan_count = 0;
    refuse(weft_series_create(&series, helper.context, &config), WEFT_ERR_INVALID, "plan_count");
    config.plan_count = 1;
    config.plans = NULL;
    refuse(weft_series_create(&series, helper.context, &config), WEFT_ERR_INVALID, "plans");
    config.plans = &none;
    refuse(weft_series_create(&series, helper.context, &config), WEFT_ERR_INVALID, "plans[0]");
    config.plans = &wide; /* whose ranks nobody binds when it is armed */
    config.arm = arm_nothing;
    OK(weft_series_create(&series, helper.context, &config));
    refuse(weft_series_start(series), WEFT_ERR_INVALID, "of rank 0 of 2, expected one of rank 0");
    weft_series_destroy(series);
    series = NULL;
    config.arm = arm;
    config.plans = &plan;
    config.struct_size = 0;
    refuse(weft_series_create(&series, helper.context, &config), WEFT_ERR_INVALID, "struct_size");
    cr_expect_null(series);
    refuse(weft_series_start(NULL), WEFT_ERR_INVALID, "`series`");
    refuse(weft_series_fire(NULL, 0, 0), WEFT_ERR_INVALID, "`series`");
    refuse(weft_series_wait(NULL, 0, 0), WEFT_ERR_INVALID, "`series`");
    cr_expect_null(weft_series_get_run(NULL, 0));
    refuse(WEFT_ERR_INVALID, WEFT_ERR_INVALID, "weft_series_get_run: argument `series`");
    cr_expect_eq(weft_series_version(NULL), 0);
    weft_series_destroy(NULL);
    weft_series_config_init(NULL);
    weft_plan_destroy(plan);
    weft_plan_destroy(wide);
    alone_destroy(&helper);
    alone_destroy(&caller);
}

Test(series, its_runs_cannot_be_started_or_destroyed_by_hand)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct record record;
    struct weft_plan *plan = one_event();
    record_init(&record);
    struct weft_series *series = make_series(alone.context, &record, &plan, 1, 0);
    struct weft_run *run = weft_series_get_run(series, 0);
    cr_expect_not_null(run);
    cr_expect_null(weft_series_get_run(series, 1));
    refuse(WEFT_ERR_INVALID, WEFT_ERR_INVALID, "argument `plan` is 1, expected less than 1");
    refuse(weft_run_start(run), WEFT_ERR_STATE, "series");
    weft_run_destroy(run);
    OK(weft_series_start(series));
    refuse(weft_series_fire(series, 0, 1), WEFT_ERR_INVALID, "`event`");
    refuse(weft_series_fire(series, 0, -1), WEFT_ERR_INVALID, "`event`");
    OK(fire(series, 0, 0));
    OK(weft_series_wait(series, 0, WEFT_NEVER));
    weft_context_destroy(alone.context); /* with the series */
    weft_local_destroy(alone.local);
}
