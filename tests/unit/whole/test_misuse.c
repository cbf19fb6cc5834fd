/* SPDX-License-Identifier: BSD-3-Clause */
/* Misuse of contexts and runs: the status, and a text that names the argument and its value. What
 * builds schedules is in test_schedule.c, operations are in test_op.c, series in test_series.c. */
#include <criterion/criterion.h>

#include "support/ranks.h"

static struct alone alone;
static struct weft_run *run, *held;
static struct weft_plan *plan;
static int64_t data[8];

enum { IN, OUT, TMP, NOTHING };

/* A plan with a slot of each kind, two values and an event (node 1). */
static void setup(void)
{
    alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_schedule *s = new_schedule(0, 1);
    OK(weft_schedule_set_name(s, "example"));
    weft_schedule_add_slot(s, "in", WEFT_I64, 4, WEFT_SLOT_INPUT);
    weft_schedule_add_slot(s, "out", WEFT_I64, 4, WEFT_SLOT_OUTPUT);
    weft_schedule_add_slot(s, "tmp", WEFT_I64, 4, WEFT_SLOT_SCRATCH);
    weft_schedule_add_slot(s, "nothing", WEFT_I64, 0, WEFT_SLOT_INPUT);
    weft_value_t bound = weft_schedule_add_value(s, "bound", 4);
    weft_value_t made = weft_schedule_add_value(s, "made", 4);
    struct weft_region region = weft_region_at(IN, 0, 4);
    region.value = bound;
    weft_node_t send = weft_schedule_add_send(s, region, 0, 0);
    weft_schedule_add_order(s, send, weft_schedule_add_event(s, WEFT_CHANNEL_NONE));
    weft_schedule_add_recv_up_to(s, weft_region_at(OUT, 0, 4), 0, 0, made);
    plan = commit(s);
    OK(weft_run_create(&run, alone.context, plan, NULL));
    OK(weft_run_create(&held, alone.context, plan, NULL));
    OK(weft_run_bind(held, IN, data, 4, WEFT_I64));
    OK(weft_run_bind(held, OUT, data + 4, 4, WEFT_I64));
    OK(weft_run_start(held)); /* active until its event is fired */
}

static void teardown(void)
{
    weft_run_destroy(run);
    weft_run_destroy(held);
    weft_plan_destroy(plan);
    alone_destroy(&alone);
}

TestSuite(misuse, .init = setup, .fini = teardown);

static void refuse(int line, int status, int expected, const char *first, const char *second)
{
    const char *text = weft_error_text();
    cr_expect_eq(status, expected, "line %d: %s, expected %s: %s", line, weft_status_name(status),
                 weft_status_name(expected), text);
    cr_expect_not_null(strstr(text, first), "line %d: \"%s\" does not say %s", line, text, first);
    cr_expect_not_null(strstr(text, second), "line %d: \"%s\" does not say %s", line, text, second);
}

#define INVALID(call, first, second) refuse(__LINE__, call, WEFT_ERR_INVALID, first, second)
#define STATE(call, first, second)   refuse(__LINE__, call, WEFT_ERR_STATE, first, second)

static int rank_fn(struct weft_context *context, void *user)
{
    (void)context;
    return *(int *)user;
}

Test(misuse, groups)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    int ok = WEFT_OK;
    INVALID(weft_local_create(NULL, 2, NULL), "weft_local_create", "`local`");
    INVALID(weft_local_create(&local, 0, NULL), "`size` is 0", "at least 1");
    INVALID(weft_local_create(&local, -5, NULL), "`size` is -5", "at least 1");
    cr_expect_null(local);
    INVALID(weft_local_run(0, NULL, rank_fn, &ok), "`size` is 0", "at least 1");
    INVALID(weft_local_run(2, NULL, NULL, &ok), "weft_local_run", "`fn`");
    OK(weft_local_create(&local, 2, NULL));
    INVALID(weft_context_create_local(NULL, local, 0, NULL), "create_local", "`context`");
    INVALID(weft_context_create_local(&context, NULL, 0, NULL), "create_local", "`local`");
    INVALID(weft_context_create_local(&context, local, 2, NULL), "`rank` is 2", "0..1");
    INVALID(weft_context_create_local(&context, local, -1, NULL), "`rank` is -1", "0..1");
    cr_expect_null(context);
    OK(weft_context_create_local(&context, local, 1, NULL));
    struct weft_context *again = NULL;
    STATE(weft_context_create_local(&again, local, 1, NULL), "rank 1", "has a context");
    weft_context_destroy(context);
    STATE(weft_context_create_local(&again, local, 1, NULL), "rank 1", "has had");
    cr_expect_null(again);
    weft_local_destroy(local);
    weft_local_destroy(NULL);
    weft_context_destroy(NULL);
    weft_local_config_init(NULL);
    weft_context_config_init(NULL);
}

Test(misuse, contexts)
{
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    int nodes[1];
    INVALID(weft_context_rank(NULL), "weft_context_rank", "`context`");
    INVALID(weft_context_size(NULL), "weft_context_size", "`context`");
    cr_expect_str_eq(weft_context_transport(NULL), "");
    INVALID(weft_context_hosts(NULL, nodes), "weft_context_hosts", "`context`");
    INVALID(weft_context_hosts(alone.context, NULL), "weft_context_hosts", "`hosts`");
    cr_expect_eq(weft_context_host_count(NULL), 0);
    cr_expect_eq(weft_context_host_count(alone.context), 1);
    INVALID(weft_context_get_stats(NULL, &stats), "get_stats", "`context`");
    INVALID(weft_context_get_stats(alone.context, NULL), "get_stats", "`stats`");
    INVALID(weft_context_progress(NULL), "weft_context_progress", "`context`");
    INVALID(weft_topology_get(NULL), "`topology`", "NULL");
}

Test(misuse, creating_runs)
{
    struct weft_run *made = NULL;
    struct weft_run_config config;
    struct weft_plan *wide = commit(new_schedule(0, 3));
    weft_run_config_init(&config);
    weft_run_config_init(NULL);
    INVALID(weft_run_create(NULL, alone.context, plan, NULL), "weft_run_create", "`run`");
    INVALID(weft_run_create(&made, NULL, plan, NULL), "weft_run_create", "`context`");
    INVALID(weft_run_create(&made, alone.context, NULL, NULL), "weft_run_create", "`plan`");
    OK(weft_run_create(&made, alone.context, wide, NULL)); /* its ranks may still be bound */
    INVALID(weft_run_start(made), "3 ranks", "at most the 1");
    weft_run_destroy(made);
    made = NULL;
    config.struct_size = 0;
    INVALID(weft_run_create(&made, alone.context, plan, &config), "weft_run_create",
            "config->struct_size is 0");
    weft_run_config_init(&config);
    config.local_only = 1;
    INVALID(weft_run_create(&made, alone.context, plan, &config), "local_only", "`example`");
    cr_expect_null(made);
    weft_run_destroy(NULL);
    weft_plan_destroy(wide);
}

Test(misuse, binding)
{
    struct weft_piece pieces[] = {{data, 2}, {data + 2, 2}, {NULL, 0}, {NULL, 1}};
    INVALID(weft_run_bind(NULL, IN, data, 4, WEFT_I64), "weft_run_bind", "`run`");
    INVALID(weft_run_bind(run, -1, data, 4, WEFT_I64), "`slot` is -1", "0..3");
    INVALID(weft_run_bind(run, 4, data, 4, WEFT_I64), "`slot` is 4", "0..3");
    INVALID(weft_run_bind(run, TMP, data, 4, WEFT_I64), "`tmp`", "scratch");
    INVALID(weft_run_bind(run, IN, NULL, 4, WEFT_I64), "`data` is NULL", "`in` has 4 elements");
    OK(weft_run_bind(run, NOTHING, NULL, 0, WEFT_I64));
    STATE(weft_run_bind(held, IN, data, 4, WEFT_I64), "weft_run_bind", "`example` is active");
    INVALID(weft_run_bind_name(NULL, "in", data, 4, WEFT_I64), "weft_run_bind_name", "`run`");
    INVALID(weft_run_bind_name(run, NULL, data, 4, WEFT_I64), "weft_run_bind_name", "`slot`");
    refuse(__LINE__, weft_run_bind_name(run, "inn", data, 4, WEFT_I64), WEFT_ERR_NOT_FOUND, "`inn`",
           "`example`");
    INVALID(weft_run_bind_list(NULL, IN, pieces, 2, WEFT_I64), "weft_run_bind_list", "`run`");
    INVALID(weft_run_bind_list(run, 9, pieces, 2, WEFT_I64), "`slot` is 9", "0..3");
    INVALID(weft_run_bind_list(run, IN, NULL, 2, WEFT_I64), "weft_run_bind_list", "`pieces`");
    INVALID(weft_run_bind_list(run, IN, pieces, 1, WEFT_I64), "have 2 elements", "4 of slot `in`");
    INVALID(weft_run_bind_list(run, IN, pieces, 0, WEFT_I64), "have 0 elements", "4 of slot `in`");
    INVALID(weft_run_bind_list(run, IN, pieces, 4, WEFT_I64), "pieces[3].data is NULL",
            "1 elements");
    pieces[1].count = SIZE_MAX;
    INVALID(weft_run_bind_list(run, IN, pieces, 2, WEFT_I64), "pieces 0..1",
            "more elements than the 4");
    pieces[1].count = 2;
    OK(weft_run_bind_list(run, IN, pieces, 3, WEFT_I64));
    OK(weft_run_bind_list(run, NOTHING, NULL, 0, WEFT_I64));
    OK(weft_run_bind_list(run, NOTHING, pieces + 2, 1, WEFT_I64));
    STATE(weft_run_bind_list(held, IN, pieces, 2, WEFT_I64), "weft_run_bind_list", "is active");
    INVALID(weft_run_bind_list(run, IN, pieces, 2, WEFT_U32), "weft_run_bind_list",
            "`dtype` is u32 (7), expected i64 as slot `in` has");
}

/* What is written is not bound through a pointer to const; count and datatype are the slot's. */
Test(misuse, binding_inputs)
{
    const int64_t constant[4] = {1, 2, 3, 4};
    struct weft_input_piece pieces[] = {{constant, 1}, {constant + 1, 3}};
    struct weft_slot_info info = {.struct_size = sizeof info};

    INVALID(weft_run_bind(run, IN, data, 3, WEFT_I64), "weft_run_bind: argument `count` is 3",
            "expected the 4 elements of slot `in`");
    INVALID(weft_run_bind(run, IN, data, 4, WEFT_F32), "argument `dtype` is f32",
            "expected i64 as slot `in` has");
    INVALID(weft_run_bind(run, IN, data, 4, (weft_dtype_t)99), "`dtype` is none (99)", "i64");
    INVALID(weft_run_bind_name(run, "in", data, 5, WEFT_I64), "weft_run_bind_name", "`count` is 5");
    INVALID(weft_run_bind_input(NULL, IN, data, 4, WEFT_I64), "weft_run_bind_input", "`run`");
    INVALID(weft_run_bind_input(run, OUT, constant, 4, WEFT_I64), "slot `out` is an output",
            "expected an input slot");
    INVALID(weft_run_bind_input_name(run, "out", constant, 4, WEFT_I64),
            "weft_run_bind_input_name: slot `out`", "expected an input slot");
    INVALID(weft_run_bind_input_list(run, OUT, pieces, 2, WEFT_I64),
            "weft_run_bind_input_list: slot `out`", "expected an input slot");
    INVALID(weft_run_bind_input_list(run, IN, pieces, 1, WEFT_I64), "have 1 elements",
            "4 of slot `in`");
    refuse(__LINE__, weft_run_bind_input_name(run, "inn", data, 4, WEFT_I64), WEFT_ERR_NOT_FOUND,
           "`inn`", "`example`");
    OK(weft_run_bind_input(run, IN, constant, 4, WEFT_I64));
    OK(weft_run_bind_input_name(run, "in", constant, 4, WEFT_I64));
    OK(weft_run_bind_input_list(run, IN, pieces, 2, WEFT_I64));
    OK(weft_plan_get_slot(plan, OUT, &info));
    cr_expect_str_eq(info.name, "out");
    cr_expect_eq(info.kind, WEFT_SLOT_OUTPUT);
    cr_expect_eq(info.dtype, WEFT_I64);
    cr_expect_eq(info.count, 4);
    INVALID(weft_plan_get_slot(NULL, OUT, &info), "weft_plan_get_slot", "`plan`");
    INVALID(weft_plan_get_slot(plan, OUT, NULL), "weft_plan_get_slot", "`info`");
    INVALID(weft_plan_get_slot(plan, 4, &info), "`slot` is 4", "0..3");
}

Test(misuse, values_peers_deadlines)
{
    INVALID(weft_run_bind_value(NULL, 1, 0), "weft_run_bind_value", "`run`");
    INVALID(weft_run_bind_value(run, 0, 0), "`value` is 0", "1..2");
    INVALID(weft_run_bind_value(run, 3, 0), "`value` is 3", "1..2");
    INVALID(weft_run_bind_value(run, 2, 0), "`made`", "produced");
    INVALID(weft_run_bind_value(run, 1, 5), "`number` is 5", "0..4");
    STATE(weft_run_bind_value(held, 1, 0), "weft_run_bind_value", "is active");
    INVALID(weft_run_bind_peers(NULL, NULL), "weft_run_bind_peers", "`run`");
    INVALID(weft_run_bind_peers(run, (int[]){1}), "ranks[0] is 1", "0..0");
    INVALID(weft_run_bind_peers(run, (int[]){-2}), "ranks[0] is -2", "WEFT_PEER_NONE");
    INVALID(weft_run_bind_peers(run, (int[]){WEFT_PEER_NONE}), "ranks[0] is -1", "own rank 0");
    STATE(weft_run_bind_peers(held, NULL), "weft_run_bind_peers", "is active");
    OK(weft_run_bind_peers(run, (int[]){0}));
    OK(weft_run_bind_peers(run, NULL));
    INVALID(weft_run_set_deadline(NULL, 0), "weft_run_set_deadline", "`run`");
    STATE(weft_run_set_deadline(held, 0), "weft_run_set_deadline", "is active");
    INVALID(weft_run_set_ended(NULL, NULL, NULL), "weft_run_set_ended", "`run`");
    STATE(weft_run_set_ended(held, NULL, NULL), "weft_run_set_ended", "is active");
}

Test(misuse, starting_and_waiting)
{
    INVALID(weft_run_start(NULL), "weft_run_start", "`run`");
    INVALID(weft_run_start_version(NULL, 0), "weft_run_start", "`run`");
    INVALID(weft_run_execute(NULL), "weft_run_execute", "`run`");
    INVALID(weft_run_start(run), "slot `in`", "not bound");
    OK(weft_run_bind(run, IN, data, 4, WEFT_I64));
    INVALID(weft_run_start(run), "slot `out`", "not bound");
    STATE(weft_run_start(held), "weft_run_start", "is active");
    STATE(weft_run_start_version(held, 5), "weft_run_start", "is active");
    STATE(weft_run_execute(held), "weft_run_start", "is active");
    INVALID(weft_run_wait(NULL, 0), "weft_run_wait", "`run`");
    STATE(weft_run_wait(run, 0), "weft_run_wait", "never started");
    INVALID(weft_run_test(NULL), "weft_run_test", "`run`");
    STATE(weft_run_test(run), "weft_run_test", "never started");
    cr_expect_eq(weft_run_wait(held, 0), WEFT_IN_PROGRESS);
    cr_expect_eq(weft_run_test(held), WEFT_IN_PROGRESS);
}

Test(misuse, events_and_the_end)
{
    char *text = NULL;
    INVALID(weft_run_fire(NULL, 0), "weft_run_fire", "`run`");
    INVALID(weft_run_fire(held, 0), "`event` is 0", "`example`");
    INVALID(weft_run_fire(held, -1), "`event` is -1", "`example`");
    INVALID(weft_run_fire(held, 3), "`event` is 3", "`example`");
    STATE(weft_run_fire(run, 1), "weft_run_fire", "not active");
    INVALID(weft_run_cancel(NULL), "weft_run_cancel", "`run`");
    OK(weft_run_cancel(run));
    INVALID(weft_run_reclaim(NULL), "weft_run_reclaim", "`run`");
    STATE(weft_run_reclaim(held), "weft_run_reclaim", "is active");
    OK(weft_run_reclaim(run));
    INVALID(weft_run_report(NULL, &text), "weft_run_report", "`run`");
    INVALID(weft_run_report(run, NULL), "weft_run_report", "`text`");
    cr_expect_null(text);
    weft_call_complete(NULL, WEFT_OK);
}

Test(misuse, questions_about_nothing_have_harmless_answers)
{
    cr_expect_eq(weft_run_version(NULL), UINT64_MAX);
    cr_expect_eq(weft_run_get_value(NULL, 1), 0);
    cr_expect_eq(weft_run_get_value(run, 0), 0);
    cr_expect_eq(weft_run_get_value(run, 3), 0);
    cr_expect_eq(weft_run_get_value(run, -1), 0);
    cr_expect_str_eq(weft_run_error(NULL), "");
    cr_expect_str_eq(weft_run_error(run), "");
    cr_expect_str_eq(weft_run_error(held), "");
    cr_expect_str_eq(weft_plan_name(NULL), "");
    cr_expect_eq(weft_plan_node_count(NULL), 0);
    cr_expect_eq(weft_plan_bytes(NULL), 0);
    cr_expect_eq(weft_plan_run_bytes(NULL), 0);
    INVALID(weft_plan_rank(NULL), "weft_plan_rank", "`plan`");
    INVALID(weft_plan_size(NULL), "weft_plan_size", "`plan`");
    INVALID(weft_plan_find_slot(NULL, "in"), "weft_plan_find_slot", "`plan`");
    INVALID(weft_plan_find_slot(plan, NULL), "weft_plan_find_slot", "`name`");
    INVALID(weft_plan_find_value(NULL, "made"), "weft_plan_find_value", "`plan`");
    INVALID(weft_plan_find_value(plan, NULL), "weft_plan_find_value", "`name`");
    cr_expect_eq(weft_plan_find_slot(plan, "out"), OUT);
    cr_expect_eq(weft_plan_find_value(plan, "made"), 2);
    weft_plan_destroy(NULL);
}

Test(misuse, a_refusal_changes_nothing)
{
    for (int i = 0; i < 4; i++)
        data[i] = 10 + i;
    OK(weft_run_fire(held, 1));
    OK(weft_run_wait(held, WEFT_NEVER));
    OK(weft_run_bind_value(held, 1, 3));
    INVALID(weft_run_bind_value(held, 1, 5), "`number` is 5", "0..4");
    INVALID(weft_run_bind(held, IN, NULL, 4, WEFT_I64), "`data`", "`in`");
    INVALID(weft_run_start_version(held, 0), "`version` is 0", "1 to 2^64-2");
    OK(weft_run_start(held));
    OK(weft_run_fire(held, 1));
    OK(weft_run_wait(held, WEFT_NEVER));
    cr_expect_eq(weft_run_version(held), 1);
    cr_expect_eq(weft_run_get_value(held, 2), 3);
    cr_expect_eq(data[6], 12);
}

static int return_it(struct weft_context *context, void *user)
{
    if (weft_context_rank(context) == *(int *)user)
        return weft_error_set(WEFT_ERR_IO, "the disk of rank %d", weft_context_rank(context));
    return WEFT_OK;
}

Test(misuse, what_a_rank_returns_is_reported_with_its_number)
{
    for (int culprit = 0; culprit < 3; culprit++) {
        char text[64];
        snprintf(text, sizeof text, "the disk of rank %d", culprit);
        int status = weft_local_run(3, NULL, return_it, &culprit);
        refuse(__LINE__, status, WEFT_ERR_IO, text, "rank");
    }
    int nobody = 3;
    cr_expect_eq(weft_local_run(3, NULL, return_it, &nobody), WEFT_OK);
}
