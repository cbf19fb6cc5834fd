/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects that are brought into a state between their creation and their end, and end there. */
#ifndef WEFT_TESTS_API_ENDS_H
#define WEFT_TESTS_API_ENDS_H

#include <criterion/criterion.h>

#include "tests/api/fixture.h"

/* The others of its group do not exist yet, and never will: it has something for them. */
static void end_context_before_its_peers(void)
{
    struct weft_schedule *s = new_schedule(0, 2);
    struct weft_context *context = NULL;
    struct weft_run *run;

    weft_schedule_add_signal(s, 1, 0);
    OK(weft_context_create_local(&context, api.more, 0, NULL));
    run = make_run(context, commit(s), NULL);
    OK(weft_run_execute(run));
    weft_run_destroy(run);
    cr_expect_eq(weft_context_destroy(context), WEFT_OK);
}

static void end_context_with_a_run_under_way(void)
{
    static int data[4];
    struct weft_context *context = NULL;
    struct weft_run *run = NULL;

    OK(weft_context_create_local(&context, api.more, 0, NULL));
    OK(weft_run_create(&run, context, api.plan, NULL));
    OK(weft_run_bind(run, 0, data, 4, WEFT_I32));
    OK(weft_run_start(run));
    cr_expect_eq(weft_context_destroy(context), WEFT_OK);
}

/* The other of its group does not exist: it never ends. */
static void end_request_that_is_under_way(void)
{
    struct weft_context *context = NULL;
    struct weft_request *request = NULL;

    OK(api_make_context(&context));
    OK(weft_ibarrier(context, &request));
    weft_request_destroy(request);
    cr_expect_eq(weft_context_destroy(context), WEFT_OK);
}

static void end_request_whose_context_has_gone(void)
{
    struct weft_context *context = NULL;
    struct weft_request *request = NULL;

    OK(api_make_context(&context));
    OK(weft_ibarrier(context, &request));
    cr_expect_eq(weft_context_destroy(context), WEFT_OK);
    cr_expect_eq(weft_request_wait(request, WEFT_NEVER), WEFT_ERR_CANCELLED);
    weft_request_destroy(request);
}

static void end_launch_of_which_one_has_ended(void)
{
    struct weft_launch *launch;

    OK(weft_launch_create(&launch, 3));
    OK(weft_launch_ended(launch, 1, 9));
    weft_launch_destroy(launch);
}

static void end_local_of_which_one_rank_was(void)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;

    OK(weft_local_create(&local, 3, NULL));
    OK(weft_context_create_local(&context, local, 1, NULL));
    OK(weft_context_destroy(context));
    weft_local_destroy(local);
}

static void end_object_that_has_failed(void)
{
    struct weft_object *object = NULL;

    OK(weft_object_create(&object, api.context, NULL));
    OK(weft_object_fail(object, WEFT_ERR_COMPUTE, "it is to"));
    cr_expect_eq(weft_object_check(object, "test"), WEFT_ERR_COMPUTE);
    weft_object_destroy(object);
}

static void end_gossip_that_is_posted(void)
{
    struct weft_gossip *gossip = api_weft_gossip();

    OK(weft_gossip_post(gossip));
    cr_expect_eq(weft_gossip_destroy(gossip), WEFT_OK);
}

static void end_pair_average_that_is_posted(void)
{
    struct weft_pair_average *average = api_weft_pair_average();

    OK(weft_pair_average_post(average));
    cr_expect_eq(weft_pair_average_destroy(average), WEFT_OK);
}

static void end_group_average_that_is_posted(void)
{
    struct weft_group_average *average = api_weft_group_average();

    OK(weft_group_average_post(average));
    cr_expect_eq(weft_group_average_destroy(average), WEFT_OK);
}

static void end_compressed_average_that_is_posted(void)
{
    struct weft_compressed_average *average = api_weft_compressed_average();

    OK(weft_compressed_average_post(average));
    cr_expect_eq(weft_compressed_average_destroy(average), WEFT_OK);
}

static void end_sparse_average_that_is_posted(void)
{
    struct weft_sparse_average *average = api_weft_sparse_average();

    OK(weft_sparse_average_post_tensor(average, 0));
    cr_expect_eq(weft_sparse_average_destroy(average), WEFT_OK);
}

static void end_gradients_that_are_announced(void)
{
    struct weft_gradients *gradients = api_weft_gradients();

    OK(weft_gradients_ready(gradients, 0));
    cr_expect_eq(weft_gradients_destroy(gradients), WEFT_OK);
}

static void end_server_in_a_step(void)
{
    struct weft_server *server = api_weft_server();

    OK(weft_server_ready(server, 0));
    cr_expect_eq(weft_server_destroy(server), WEFT_OK);
}

static void end_texts(void)
{
    char *text = NULL;
    size_t length;

    OK(weft_schedule_write(api.schedules, 1, WEFT_FORMAT_TEXT, &text, &length));
    weft_memory_free(text);
}

static void end_op_that_a_schedule_holds(void)
{
    struct weft_op *op = NULL;
    weft_slot_t slot = weft_schedule_add_slot(api.open, "a", WEFT_I32, 4, WEFT_SLOT_INOUT);
    struct weft_region all = weft_region_at(slot, 0, 4);

    OK(api_make_op(&op));
    CHECK(weft_schedule_add_reduce(api.open, op, all, all, all) >= 0);
    weft_op_destroy(op);
    weft_op_destroy(weft_op_builtin(WEFT_SUM));
}

static void end_plan_that_a_run_holds(void)
{
    struct weft_plan *plan = NULL;
    struct weft_run *run;

    OK(weft_schedule_commit(api.schedule, &plan));
    run = make_run(api.context, plan, NULL);
    cr_expect_eq(weft_plan_rank(weft_run_plan(run)), 0);
    weft_run_destroy(run);
}

/* Its slot is not bound, so it cannot start. */
static void end_run_that_is_half_bound(void)
{
    struct weft_run *run = NULL;

    OK(weft_run_create(&run, api.context, api.plan, NULL));
    cr_expect_eq(weft_run_start(run), WEFT_ERR_INVALID);
    weft_run_destroy(run);
}

/* It waits for an event that nobody fires. */
static void end_run_that_is_under_way(void)
{
    static int data[4];
    struct weft_run *run = NULL;

    OK(weft_run_create(&run, api.context, api.plan, NULL));
    OK(weft_run_bind(run, 0, data, 4, WEFT_I32));
    OK(weft_run_start(run));
    cr_expect_eq(weft_run_test(run), WEFT_IN_PROGRESS);
    weft_run_destroy(run);
}

static void end_series_that_is_started(void)
{
    struct weft_series *series = NULL;

    OK(api_make_series(&series));
    OK(weft_series_start(series));
    weft_series_destroy(series);
}

static void end_schedule_that_has_an_error(void)
{
    struct weft_schedule *schedule = new_schedule(0, 1);

    weft_schedule_add_slot(schedule, "a", WEFT_I32, 4, WEFT_SLOT_INOUT);
    cr_expect_lt(weft_schedule_add_send(schedule, weft_region_at(7, 0, 1), 0, 0), 0);
    cr_expect_lt(weft_schedule_status(schedule), 0);
    weft_schedule_destroy(schedule);
}

static void end_tracker_whose_schedule_has_an_error(void)
{
    struct weft_tracker *tracker = NULL;
    weft_slot_t slot = weft_schedule_add_slot(api.open, "a", WEFT_I32, 4, WEFT_SLOT_INOUT);

    OK(weft_tracker_create(&tracker, api.open));
    weft_tracker_add(tracker, weft_schedule_add_send(api.open, weft_region_at(slot, 0, 4), 0, 0));
    cr_expect_lt(
        weft_tracker_add(tracker, weft_schedule_add_send(api.open, weft_region_at(7, 0, 1), 0, 1)),
        0);
    weft_tracker_destroy(tracker);
}

static void end_sim_result_that_is_incomplete(void)
{
    struct weft_schedule *s = new_schedule(0, 1);
    const struct weft_schedule *all[] = {s};
    const struct weft_sim_config config = {
        .struct_size = sizeof config, .ranks = 1, .schedules = all};
    struct weft_sim_result *result = NULL;
    weft_slot_t slot = weft_schedule_add_slot(s, "a", WEFT_I32, 4, WEFT_SLOT_INOUT);

    weft_schedule_add_recv(s, weft_region_at(slot, 0, 4), 0, 0);
    OK(weft_simulate(&config, &result));
    cr_expect_not(result->complete);
    weft_sim_result_destroy(result);
    weft_schedule_destroy(s);
}

static void end_trace_of_half_a_file(void)
{
    char *text = NULL;
    size_t length;
    struct weft_trace *trace = NULL;

    OK(weft_trace_write_text(api.trace, &text, &length));
    OK(weft_trace_create(&trace));
    cr_expect_eq(weft_trace_read_text(trace, text, length / 2), WEFT_ERR_FORMAT);
    weft_trace_destroy(trace);
    weft_memory_free(text);
}

#endif
