/* SPDX-License-Identifier: BSD-3-Clause */
/* Misuse of every call that builds a schedule: what is wrong is named, the first error stays. */
#include "fixture.h"

TestSuite(schedule_misuse, .init = setup, .fini = teardown);

Test(schedule_misuse, create_refuses_impossible_ranks)
{
    struct weft_schedule *none = NULL;

    cr_expect_eq(weft_schedule_create(NULL, 0, 1), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_create(&none, 0, 0), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "`size` is 0"));
    cr_expect_eq(weft_schedule_create(&none, 4, 4), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "`rank` is 4, expected 0..3"));
    cr_expect_eq(weft_schedule_create(&none, -1, 4), WEFT_ERR_INVALID);
    cr_expect_null(none);
}

Test(schedule_misuse, calls_without_a_schedule_fail)
{
    struct weft_slot_info buffer = {.struct_size = sizeof buffer};
    weft_node_t node = 0;

    cr_expect_eq(weft_schedule_add_join(NULL), WEFT_ERR_INVALID);
    cr_expect_not_null(
        strstr(weft_error_text(), "weft_schedule_add_join: argument `schedule` is NULL"));
    cr_expect_eq(weft_schedule_add_send(NULL, weft_region_at(0, 0, 0), 0, 0), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_add_order(NULL, 0, 1), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_add_choice(NULL, &node, 1), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_add_result(NULL, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_status(NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_get_slot(NULL, 0, &buffer), WEFT_ERR_INVALID);
}

Test(schedule_misuse, the_first_error_sticks_and_nothing_is_added_after_it)
{
    weft_schedule_add_send(schedule, weft_region_at(in, 0, 1), 9, 0);
    expect_failure(weft_schedule_add_join(schedule), WEFT_ERR_INVALID,
                   "weft_schedule_add_send: argument `peer` is 9, expected 0..3", NULL, NULL);
    expect_failure(weft_schedule_add_recv(schedule, weft_region_at(99, 0, 1), 0, 0),
                   WEFT_ERR_INVALID, "weft_schedule_add_send", NULL, NULL);
    cr_expect_eq(weft_schedule_node_count(schedule), 0);
}

Test(schedule_misuse, a_schedule_name_is_a_line)
{
    expect_failure(weft_schedule_set_name(schedule, "two\nlines"), WEFT_ERR_INVALID, "`name`",
                   "one line", NULL);
}

Test(schedule_misuse, a_schedule_name_is_not_null)
{
    expect_failure(weft_schedule_set_name(schedule, NULL), WEFT_ERR_INVALID, "`name` is NULL", NULL,
                   NULL);
}

Test(schedule_misuse, a_label_is_valid_utf8)
{
    expect_failure(weft_schedule_set_label(schedule, weft_schedule_add_join(schedule), "\xc0\xaf"),
                   WEFT_ERR_INVALID, "`label`", "UTF-8", NULL);
}

Test(schedule_misuse, a_slot_needs_a_proper_name)
{
    expect_failure(weft_schedule_add_slot(schedule, "9lives", WEFT_I8, 1, WEFT_SLOT_INOUT),
                   WEFT_ERR_INVALID, "weft_schedule_add_slot: argument `name`", "9lives",
                   "[A-Za-z_]");
}

Test(schedule_misuse, memory_is_of_slots)
{
    expect_failure(weft_schedule_set_memory(schedule, 3, WEFT_MEMORY_DEVICE), WEFT_ERR_INVALID,
                   "weft_schedule_set_memory: argument `slot` is 3", "3 slots", "WEFT_SLOT_ALL");
    teardown(), setup();
    expect_failure(weft_schedule_set_memory(schedule, -2, WEFT_MEMORY_DEVICE), WEFT_ERR_INVALID,
                   "`slot` is -2", NULL, NULL);
}

Test(schedule_misuse, memory_is_of_the_host_or_the_device)
{
    expect_failure(weft_schedule_set_memory(schedule, in, (weft_memory_t)2), WEFT_ERR_INVALID,
                   "`memory` is 2", "WEFT_MEMORY_HOST", "_DEVICE");
}

Test(schedule_misuse, a_value_needs_a_proper_name)
{
    expect_failure(weft_schedule_add_value(schedule, "", 1), WEFT_ERR_INVALID,
                   "weft_schedule_add_value", "`name`", NULL);
}

Test(schedule_misuse, a_slot_needs_a_datatype)
{
    expect_failure(weft_schedule_add_slot(schedule, "x", (weft_dtype_t)77, 1, WEFT_SLOT_INOUT),
                   WEFT_ERR_INVALID, "`dtype` is 77", NULL, NULL);
}

Test(schedule_misuse, opaque_elements_have_a_size)
{
    expect_failure(weft_schedule_add_slot(schedule, "x", weft_dtype_opaque(0), 1, WEFT_SLOT_INOUT),
                   WEFT_ERR_INVALID, "`dtype`", "weft_dtype_opaque()", NULL);
}

Test(schedule_misuse, a_built_in_operation_takes_no_opaque_elements)
{
    weft_schedule_add_slot(schedule, "pairs", weft_dtype_opaque(24), 9, WEFT_SLOT_INOUT);
    expect_failure(weft_schedule_add_reduce(schedule, weft_op_builtin(WEFT_MAX),
                                            weft_region_at(3, 0, 2), weft_region_at(3, 0, 2),
                                            weft_region_at(3, 2, 2)),
                   WEFT_ERR_INVALID, "`op` is max", "bytes24", "weft_op_create()");
}

Test(schedule_misuse, elements_of_two_sizes_are_not_reduced)
{
    weft_schedule_add_slot(schedule, "a", weft_dtype_opaque(24), 9, WEFT_SLOT_INOUT);
    weft_schedule_add_slot(schedule, "b", weft_dtype_opaque(12), 18, WEFT_SLOT_INOUT);
    expect_failure(weft_schedule_add_reduce(schedule, weft_op_builtin(WEFT_MAX),
                                            weft_region_at(3, 0, 2), weft_region_at(3, 0, 2),
                                            weft_region_at(4, 0, 2)),
                   WEFT_ERR_INVALID, "`b` is of bytes12", "bytes24", NULL);
}

Test(schedule_misuse, a_slot_needs_a_kind)
{
    expect_failure(weft_schedule_add_slot(schedule, "x", WEFT_I8, 1, (weft_slot_kind_t)4),
                   WEFT_ERR_INVALID, "`kind` is 4", NULL, NULL);
}

Test(schedule_misuse, a_region_is_in_a_slot)
{
    expect_failure(weft_schedule_add_send(schedule, weft_region_at(3, 0, 1), 0, 0),
                   WEFT_ERR_INVALID, "`region` has slot 3", "one of the 3 slots", NULL);
}

Test(schedule_misuse, a_region_ends_within_its_slot)
{
    expect_failure(weft_schedule_add_send(schedule, weft_region_at(in, 51, 50), 0, 0),
                   WEFT_ERR_INVALID, "offset 51, count 50", "\"in\"", "100 elements");
}

Test(schedule_misuse, a_region_that_wraps_round_is_outside)
{
    expect_failure(weft_schedule_add_send(schedule, weft_region_at(in, 2, SIZE_MAX), 0, 0),
                   WEFT_ERR_INVALID, "`region`", "100 elements", NULL);
}

Test(schedule_misuse, a_region_names_an_existing_value)
{
    struct weft_region region = weft_region_at(in, 0, 1);

    region.value = 2;
    expect_failure(weft_schedule_add_send(schedule, region, 0, 0), WEFT_ERR_INVALID,
                   "`region` has value 2", NULL, NULL);
}

Test(schedule_misuse, an_input_slot_is_not_received_into)
{
    expect_failure(weft_schedule_add_recv(schedule, weft_region_at(in, 0, 1), 0, 0),
                   WEFT_ERR_INVALID, "`region`", "input slot \"in\"", "may be written");
}

Test(schedule_misuse, a_peer_is_a_rank)
{
    expect_failure(weft_schedule_add_recv(schedule, weft_region_at(out, 0, 1), -1, 0),
                   WEFT_ERR_INVALID, "`peer` is -1, expected 0..3", NULL, NULL);
}

Test(schedule_misuse, a_signal_needs_a_peer)
{
    expect_failure(weft_schedule_add_signal(schedule, 4, 0), WEFT_ERR_INVALID,
                   "weft_schedule_add_signal: argument `peer` is 4", NULL, NULL);
}

Test(schedule_misuse, a_signal_needs_a_channel)
{
    expect_failure(weft_schedule_add_signal(schedule, 0, WEFT_CHANNEL_NONE), WEFT_ERR_INVALID,
                   "`channel`", NULL, NULL);
}

Test(schedule_misuse, a_value_is_produced_once)
{
    weft_schedule_add_recv_up_to(schedule, weft_region_at(out, 0, 1), 0, 0, value);
    expect_failure(weft_schedule_add_recv_up_to(schedule, weft_region_at(out, 0, 1), 0, 1, value),
                   WEFT_ERR_INVALID, "`produces` is value \"value\"", "node 0", NULL);
}

Test(schedule_misuse, what_is_produced_is_a_value)
{
    expect_failure(weft_schedule_add_recv_up_to(schedule, weft_region_at(out, 0, 1), 0, 0, 5),
                   WEFT_ERR_INVALID, "`produces` is 5", NULL, NULL);
}

Test(schedule_misuse, a_node_does_not_read_the_value_it_produces)
{
    struct weft_compute_argument argument = {weft_region_at(out, 0, 1), WEFT_READ};

    argument.region.value = value;
    expect_failure(weft_schedule_add_compute(schedule, user_op, &argument, 1, value),
                   WEFT_ERR_INVALID, "`produces`", "same node", NULL);
}

Test(schedule_misuse, a_reduction_has_an_operation)
{
    expect_failure(weft_schedule_add_reduce(schedule, NULL, weft_region_at(out, 0, 1),
                                            weft_region_at(in, 0, 1), weft_region_at(in, 1, 1)),
                   WEFT_ERR_INVALID, "`op` is NULL", NULL, NULL);
}

Test(schedule_misuse, a_reduction_is_of_one_datatype)
{
    expect_failure(weft_schedule_add_reduce(schedule, sum(), weft_region_at(out, 0, 1),
                                            weft_region_at(scratch, 0, 1),
                                            weft_region_at(in, 1, 1)),
                   WEFT_ERR_INVALID, "`a` is of f64, expected f32", NULL, NULL);
}

Test(schedule_misuse, a_reduction_is_of_one_count)
{
    expect_failure(weft_schedule_add_reduce(schedule, sum(), weft_region_at(out, 0, 2),
                                            weft_region_at(in, 0, 2), weft_region_at(in, 1, 1)),
                   WEFT_ERR_INVALID, "`b` has count 1", "count 2", NULL);
}

Test(schedule_misuse, a_reduction_does_not_overlap_in_part)
{
    expect_failure(weft_schedule_add_reduce(schedule, sum(), weft_region_at(out, 0, 8),
                                            weft_region_at(in, 0, 8), weft_region_at(out, 7, 8)),
                   WEFT_ERR_INVALID, "`b` overlaps `dst`", NULL, NULL);
}

Test(schedule_misuse, a_reduction_is_defined_on_its_datatype)
{
    expect_failure(weft_schedule_add_reduce(schedule, weft_op_builtin(WEFT_BAND),
                                            weft_region_at(out, 0, 1), weft_region_at(in, 0, 1),
                                            weft_region_at(in, 1, 1)),
                   WEFT_ERR_INVALID, "`op` is band", "f32", NULL);
}

Test(schedule_misuse, a_compute_operation_does_not_reduce)
{
    expect_failure(weft_schedule_add_reduce(schedule, user_op, weft_region_at(out, 0, 1),
                                            weft_region_at(in, 0, 1), weft_region_at(in, 1, 1)),
                   WEFT_ERR_INVALID, "`op` is nothing", NULL, NULL);
}

Test(schedule_misuse, a_reduction_does_not_compute)
{
    expect_failure(weft_schedule_add_compute(schedule, sum(), NULL, 0, 0), WEFT_ERR_INVALID,
                   "`op` is sum", "compute function", NULL);
}

Test(schedule_misuse, compute_needs_its_regions)
{
    expect_failure(weft_schedule_add_compute(schedule, user_op, NULL, 2, 0), WEFT_ERR_INVALID,
                   "`arguments` is NULL", NULL, NULL);
}

Test(schedule_misuse, a_copy_is_of_equal_bytes)
{
    expect_failure(
        weft_schedule_add_copy(schedule, weft_region_at(scratch, 0, 4), weft_region_at(in, 0, 4)),
        WEFT_ERR_INVALID, "`src` has 16 bytes, expected 32", NULL, NULL);
}

Test(schedule_misuse, a_copy_does_not_overlap_in_part)
{
    expect_failure(
        weft_schedule_add_copy(schedule, weft_region_at(out, 0, 4), weft_region_at(out, 3, 4)),
        WEFT_ERR_INVALID, "`src` overlaps `dst`", NULL, NULL);
}

Test(schedule_misuse, copies_of_the_same_or_of_nothing_overlap_nowhere)
{
    cr_expect_geq(
        weft_schedule_add_copy(schedule, weft_region_at(out, 3, 4), weft_region_at(out, 3, 4)), 0);
    cr_expect_geq(
        weft_schedule_add_copy(schedule, weft_region_at(out, 3, 0), weft_region_at(out, 4, 0)), 0);
    cr_expect_geq(
        weft_schedule_add_copy(schedule, weft_region_at(out, 0, 4), weft_region_at(out, 4, 4)), 0);
}

Test(schedule_misuse, an_order_is_between_nodes)
{
    weft_schedule_add_join(schedule);
    expect_failure(weft_schedule_add_order(schedule, 0, 1), WEFT_ERR_INVALID,
                   "`after` is 1, expected one of the 1 nodes", NULL, NULL);
}

Test(schedule_misuse, a_node_is_not_before_itself)
{
    weft_schedule_add_join(schedule);
    expect_failure(weft_schedule_add_order(schedule, 0, 0), WEFT_ERR_INVALID, "both 0", NULL, NULL);
}

Test(schedule_misuse, any_is_for_nodes)
{
    expect_failure(weft_schedule_set_any(schedule, 0), WEFT_ERR_INVALID, "`node` is 0", NULL, NULL);
}

Test(schedule_misuse, labels_are_for_nodes)
{
    expect_failure(weft_schedule_set_label(schedule, -1, "x"), WEFT_ERR_INVALID, "`node` is -1",
                   NULL, NULL);
}

Test(schedule_misuse, a_choice_is_of_events)
{
    weft_node_t join = weft_schedule_add_join(schedule);

    expect_failure(weft_schedule_add_choice(schedule, &join, 1), WEFT_ERR_INVALID, "`events[0]`",
                   "a join, expected an event", NULL);
}

Test(schedule_misuse, a_choice_is_not_empty)
{
    expect_failure(weft_schedule_add_choice(schedule, NULL, 0), WEFT_ERR_INVALID, "`count` is 0",
                   NULL, NULL);
}

Test(schedule_misuse, an_event_is_in_one_choice)
{
    weft_node_t events[] = {weft_schedule_add_event(schedule, 0), 0};

    expect_failure(weft_schedule_add_choice(schedule, events, 2), WEFT_ERR_INVALID, "`events[1]`",
                   "in choice 0", NULL);
}

Test(schedule_misuse, a_result_of_several_ranks_needs_an_operation)
{
    struct weft_result result = {
        .struct_size = sizeof result, .dst = weft_region_at(out, 0, 1), .from = "in", .ranks = 2};

    expect_failure(weft_schedule_add_result(schedule, &result), WEFT_ERR_INVALID, "`result->op`",
                   NULL, NULL);
}

Test(schedule_misuse, a_result_is_of_ranks_that_exist)
{
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = weft_region_at(out, 0, 1),
                                 .from = "in",
                                 .first = 3,
                                 .ranks = 2};

    expect_failure(weft_schedule_add_result(schedule, &result), WEFT_ERR_INVALID,
                   "`result->ranks` is 2, expected 1..1", NULL, NULL);
}

Test(schedule_misuse, a_result_names_a_slot)
{
    struct weft_result result = {
        .struct_size = sizeof result, .dst = weft_region_at(out, 0, 1), .ranks = 1};

    expect_failure(weft_schedule_add_result(schedule, &result), WEFT_ERR_INVALID,
                   "`result->from` is NULL", NULL, NULL);
}

Test(schedule_misuse, a_result_lies_in_its_slot)
{
    struct weft_result result = {
        .struct_size = sizeof result, .dst = weft_region_at(out, 100, 1), .from = "in", .ranks = 1};

    expect_failure(weft_schedule_add_result(schedule, &result), WEFT_ERR_INVALID, "`result->dst`",
                   NULL, NULL);
}

Test(schedule_misuse, queries_beyond_the_end_fail_and_do_not_stick)
{
    struct weft_slot_info buffer = {.struct_size = sizeof buffer};
    struct weft_value_info info = {.struct_size = sizeof info};
    struct weft_node_info node = {.struct_size = sizeof node};
    struct weft_result result = {.struct_size = sizeof result};
    weft_node_t before, after;

    cr_expect_eq(weft_schedule_get_slot(schedule, 3, &buffer), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "`slot` is 3"));
    cr_expect_eq(weft_schedule_get_slot(schedule, 0, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_get_value(schedule, 0, &info), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_get_node(schedule, 0, &node), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_get_result(schedule, 0, &result), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_get_edge(schedule, 0, &before, &after), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_status(schedule), WEFT_OK);
}

Test(schedule_misuse, node_kinds_have_names)
{
    cr_expect_str_eq(weft_node_kind_name(WEFT_NODE_SEND), "send");
    cr_expect_str_eq(weft_node_kind_name(WEFT_NODE_SIGNAL), "signal");
    cr_expect_null(weft_node_kind_name(WEFT_NODE_KIND_COUNT));
    cr_expect_null(weft_node_kind_name((weft_node_kind_t)-1));
}
