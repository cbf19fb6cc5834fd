/* SPDX-License-Identifier: BSD-3-Clause */
/* Building schedules and reading them back: every kind of node, limits, memory. What is refused is
 * in test_schedule_misuse.c. */
#include <stdlib.h>
#include <weft/memory.h>

#include "fixture.h"
#include "runtime/base/alloc.h"

TestSuite(schedule, .init = setup, .fini = teardown);

/* ---- what is built is what is read back ---- */

Test(schedule, is_empty_at_first)
{
    struct weft_schedule *empty;

    cr_assert_eq(weft_schedule_create(&empty, 2, 3), WEFT_OK);
    cr_expect_eq(weft_schedule_rank(empty), 2);
    cr_expect_eq(weft_schedule_size(empty), 3);
    cr_expect_str_eq(weft_schedule_name(empty), "schedule");
    cr_expect_eq(weft_schedule_node_count(empty), 0);
    cr_expect_eq(weft_schedule_slot_count(empty), 0);
    cr_expect_eq(weft_schedule_value_count(empty), 0);
    cr_expect_eq(weft_schedule_edge_count(empty), 0);
    cr_expect_eq(weft_schedule_result_count(empty), 0);
    weft_schedule_destroy(empty);
    weft_schedule_destroy(NULL);
}

Test(schedule, slots_and_values_are_numbered_and_described)
{
    struct weft_slot_info buffer = {.struct_size = sizeof buffer};
    struct weft_value_info info = {.struct_size = sizeof info};

    cr_expect_eq(in, 0);
    cr_expect_eq(scratch, 2);
    cr_expect_eq(value, 1);
    cr_assert_eq(weft_schedule_get_slot(schedule, scratch, &buffer), WEFT_OK);
    cr_expect_str_eq(buffer.name, "scratch");
    cr_expect_eq(buffer.dtype, WEFT_F64);
    cr_expect_eq(buffer.kind, WEFT_SLOT_SCRATCH);
    cr_expect_eq(buffer.count, 50);
    cr_assert_eq(weft_schedule_get_value(schedule, value, &info), WEFT_OK);
    cr_expect_str_eq(info.name, "value");
    cr_expect_eq(info.max, 100);
    cr_expect_eq(info.producer, -1);
}

Test(schedule, a_slot_and_a_value_may_share_a_name)
{
    cr_expect_eq(weft_schedule_add_value(schedule, "in", 1), 2);
    cr_expect_eq(weft_schedule_status(schedule), WEFT_OK);
}

Test(schedule, messages_keep_region_peer_and_tag)
{
    weft_node_t send = weft_schedule_add_send(schedule, weft_region_at(in, 10, 20), 3, 7);
    weft_node_t recv = weft_schedule_add_recv(schedule, weft_region_at(out, 0, 0), 1, UINT32_MAX);
    weft_node_t up_to =
        weft_schedule_add_recv_up_to(schedule, weft_region_at(out, 0, 100), 0, 0, value);
    struct weft_node_info info = {.struct_size = sizeof info};
    struct weft_value_info produced = {.struct_size = sizeof produced};

    cr_assert_eq(weft_schedule_get_node(schedule, send, &info), WEFT_OK);
    cr_expect_eq(info.kind, WEFT_NODE_SEND);
    cr_expect_eq(info.peer, 3);
    cr_expect_eq(info.tag, 7);
    cr_expect_eq(info.region_count, 1);
    cr_expect_eq(info.regions[0].offset, 10);
    cr_expect_eq(info.regions[0].count, 20);
    cr_expect_eq(info.accesses[0], WEFT_READ);
    cr_expect_eq(info.choice, -1);
    cr_expect_null(info.label);
    cr_assert_eq(weft_schedule_get_node(schedule, recv, &info), WEFT_OK);
    cr_expect_eq(info.tag, UINT32_MAX);
    cr_expect_eq(info.accesses[0], WEFT_WRITE);
    cr_expect_eq(info.up_to, 0);
    cr_assert_eq(weft_schedule_get_node(schedule, up_to, &info), WEFT_OK);
    cr_expect_eq(info.kind, WEFT_NODE_RECV);
    cr_expect_eq(info.up_to, 1);
    cr_expect_eq(info.produces, value);
    cr_assert_eq(weft_schedule_get_value(schedule, value, &produced), WEFT_OK);
    cr_expect_eq(produced.producer, up_to);
}

Test(schedule, operations_keep_their_regions)
{
    const struct weft_compute_argument arguments[] = {
        {weft_region_at(in, 0, 5), WEFT_READ},
        {weft_region_at(out, 5, 5), WEFT_WRITE},
        {weft_region_at(out, 10, 5), WEFT_UPDATE},
    };
    weft_node_t reduce =
        weft_schedule_add_reduce(schedule, sum(), weft_region_at(out, 0, 50),
                                 weft_region_at(in, 50, 50), weft_region_at(out, 0, 50));
    weft_node_t copy = weft_schedule_add_copy(schedule, weft_region_at(scratch, 0, 50),
                                              weft_region_at(in, 0, 100));
    weft_node_t compute = weft_schedule_add_compute(schedule, user_op, arguments, 3, value);
    struct weft_node_info info = {.struct_size = sizeof info};

    cr_assert_eq(weft_schedule_get_node(schedule, reduce, &info), WEFT_OK);
    cr_expect_eq(info.region_count, 3);
    cr_expect_eq(info.accesses[0], WEFT_WRITE);
    cr_expect_eq(info.accesses[2], WEFT_READ);
    cr_expect_eq(info.op, sum());
    cr_expect_eq(info.regions[1].slot, in);
    cr_assert_eq(weft_schedule_get_node(schedule, copy, &info), WEFT_OK);
    cr_expect_eq(info.region_count, 2);
    cr_expect_null(info.op);
    cr_assert_eq(weft_schedule_get_node(schedule, compute, &info), WEFT_OK);
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(info.accesses[i], arguments[i].access);
    cr_expect_eq(info.produces, value);
    cr_expect_eq(info.op, user_op);
}

Test(schedule, control_nodes_keep_their_channels)
{
    weft_node_t join = weft_schedule_add_join(schedule);
    weft_node_t event = weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    weft_node_t signal = weft_schedule_add_signal(schedule, 2, 9);
    struct weft_node_info info = {.struct_size = sizeof info};

    cr_assert_eq(weft_schedule_get_node(schedule, join, &info), WEFT_OK);
    cr_expect_eq(info.kind, WEFT_NODE_JOIN);
    cr_expect_eq(info.peer, -1);
    cr_expect_eq(info.region_count, 0);
    cr_assert_eq(weft_schedule_get_node(schedule, event, &info), WEFT_OK);
    cr_expect_eq(info.channel, WEFT_CHANNEL_NONE);
    cr_assert_eq(weft_schedule_get_node(schedule, signal, &info), WEFT_OK);
    cr_expect_eq(info.peer, 2);
    cr_expect_eq(info.channel, 9);
    cr_expect_eq(info.tag, 0);
}

Test(schedule, orders_are_kept_in_the_order_given)
{
    weft_node_t a = weft_schedule_add_join(schedule), b = weft_schedule_add_join(schedule);
    weft_node_t before, after;

    cr_expect_eq(weft_schedule_add_order(schedule, b, a), WEFT_OK);
    cr_expect_eq(weft_schedule_add_order(schedule, a, b), WEFT_OK, "a cycle is found at commit");
    cr_expect_eq(weft_schedule_add_order(schedule, b, a), WEFT_OK, "repeating is harmless");
    cr_expect_eq(weft_schedule_edge_count(schedule), 3);
    cr_assert_eq(weft_schedule_get_edge(schedule, 1, &before, &after), WEFT_OK);
    cr_expect_eq(before, a);
    cr_expect_eq(after, b);
}

static weft_memory_t memory_of(weft_slot_t slot)
{
    struct weft_slot_info info = {.struct_size = sizeof info};

    cr_assert_eq(weft_schedule_get_slot(schedule, slot, &info), WEFT_OK);
    return info.memory;
}

Test(schedule, slots_are_host_memory_until_it_is_said)
{
    cr_expect_eq(memory_of(in), WEFT_MEMORY_HOST);
    cr_expect_eq(weft_schedule_set_memory(schedule, out, WEFT_MEMORY_DEVICE), WEFT_OK);
    cr_expect_eq(memory_of(in), WEFT_MEMORY_HOST);
    cr_expect_eq(memory_of(out), WEFT_MEMORY_DEVICE);
    cr_expect_eq(weft_schedule_set_memory(schedule, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE), WEFT_OK);
    weft_slot_t later = weft_schedule_add_slot(schedule, "later", WEFT_I8, 1, WEFT_SLOT_INOUT);
    cr_expect_eq(memory_of(in), WEFT_MEMORY_DEVICE);
    cr_expect_eq(memory_of(scratch), WEFT_MEMORY_DEVICE);
    cr_expect_eq(memory_of(later), WEFT_MEMORY_HOST, "of all that there were");
    cr_expect_eq(weft_schedule_set_memory(schedule, out, WEFT_MEMORY_HOST), WEFT_OK);
    cr_expect_eq(memory_of(out), WEFT_MEMORY_HOST);
}

Test(schedule, no_slot_is_all_of_none)
{
    struct weft_schedule *empty;

    cr_assert_eq(weft_schedule_create(&empty, 0, 1), WEFT_OK);
    cr_expect_eq(weft_schedule_set_memory(empty, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE), WEFT_OK);
    weft_schedule_destroy(empty);
}

Test(schedule, any_choice_and_label_mark_nodes)
{
    weft_node_t events[] = {weft_schedule_add_event(schedule, 0),
                            weft_schedule_add_event(schedule, 1)};
    weft_node_t third = weft_schedule_add_event(schedule, 2);
    struct weft_node_info info = {.struct_size = sizeof info};

    cr_expect_eq(weft_schedule_set_any(schedule, third), WEFT_OK);
    cr_expect_eq(weft_schedule_add_choice(schedule, events, 2), WEFT_OK);
    cr_expect_eq(weft_schedule_add_choice(schedule, &third, 1), WEFT_OK);
    cr_expect_eq(weft_schedule_set_label(schedule, third, "third"), WEFT_OK);
    cr_expect_eq(weft_schedule_set_label(schedule, events[0], "first"), WEFT_OK);
    cr_expect_eq(weft_schedule_set_label(schedule, third, "the third, \xe2\x89\xa5 2"), WEFT_OK);
    cr_assert_eq(weft_schedule_get_node(schedule, events[1], &info), WEFT_OK);
    cr_expect_eq(info.any, 0);
    cr_expect_eq(info.choice, 0);
    cr_expect_null(info.label);
    cr_assert_eq(weft_schedule_get_node(schedule, third, &info), WEFT_OK);
    cr_expect_eq(info.any, 1);
    cr_expect_eq(info.choice, 1);
    cr_expect_str_eq(info.label, "the third, \xe2\x89\xa5 2");
    cr_assert_eq(weft_schedule_get_node(schedule, events[0], &info), WEFT_OK);
    cr_expect_str_eq(info.label, "first");
}

Test(schedule, results_are_copied)
{
    char from[] = "in";
    struct weft_result stated = {
        .struct_size = sizeof stated, .dst = weft_region_at(out, 0, 100), .from = from, .ranks = 4};
    struct weft_result read = {.struct_size = sizeof read};

    stated.op = sum();
    cr_assert_eq(weft_schedule_add_result(schedule, &stated), WEFT_OK);
    from[0] = 'X';
    cr_assert_eq(weft_schedule_get_result(schedule, 0, &read), WEFT_OK);
    cr_expect_str_eq(read.from, "in");
    cr_expect_eq(read.ranks, 4);
    cr_expect_eq(read.dst.count, 100);
}

Test(schedule, a_name_is_copied)
{
    char name[] = "ring";

    cr_expect_eq(weft_schedule_set_name(schedule, name), WEFT_OK);
    name[0] = 'k';
    cr_expect_str_eq(weft_schedule_name(schedule), "ring");
}

Test(schedule, an_operation_outlives_the_callers_reference)
{
    struct weft_op *op = idle_op("held");
    struct weft_node_info info = {.struct_size = sizeof info};
    weft_node_t node;

    node = weft_schedule_add_compute(schedule, op, NULL, 0, 0);
    weft_op_destroy(op);
    cr_assert_eq(weft_schedule_get_node(schedule, node, &info), WEFT_OK);
    cr_expect_str_eq(weft_op_name(info.op), "held");
}

/* ---- no fixed limits ---- */

Test(schedule, thousands_of_names_are_told_apart)
{
    char name[32];

    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "slot-%d", i);
        cr_assert_eq(weft_schedule_add_slot(schedule, name, WEFT_I8, 1, WEFT_SLOT_SCRATCH), i + 3);
    }
    expect_failure(weft_schedule_add_slot(schedule, "slot-19999", WEFT_I8, 1, WEFT_SLOT_SCRATCH),
                   WEFT_ERR_INVALID, "`name`", "slot-19999", "in use");
}

Test(schedule, a_million_nodes_and_a_wide_fan_out)
{
    weft_node_t root = weft_schedule_add_join(schedule);

    for (int i = 1; i < 1000000; i++) {
        weft_node_t node = weft_schedule_add_join(schedule);

        cr_assert_eq(node, i);
        if (i <= 100000)
            weft_schedule_add_order(schedule, root, node);
        else
            weft_schedule_add_order(schedule, node - 1, node);
    }
    cr_expect_eq(weft_schedule_status(schedule), WEFT_OK);
    cr_expect_eq(weft_schedule_edge_count(schedule), 999999);
}

/* What is done to a region does not depend on how many there are. */
Test(schedule, a_node_with_more_than_64_regions)
{
    struct weft_compute_argument arguments[70];
    struct weft_node_info info = {.struct_size = sizeof info};
    weft_node_t node;

    for (size_t i = 0; i < 70; i++)
        arguments[i] = (struct weft_compute_argument){weft_region_at(out, i, 1),
                                                      i % 3 ? WEFT_READ : WEFT_WRITE};
    node = weft_schedule_add_compute(schedule, user_op, arguments, 70, 0);
    cr_assert_eq(weft_schedule_get_node(schedule, node, &info), WEFT_OK);
    cr_expect_eq(info.region_count, 70);
    for (size_t i = 0; i < 70; i++)
        cr_expect_eq(info.accesses[i], arguments[i].access, "region %zu", i);
    arguments[68].region = weft_region_at(in, 0, 1);
    cr_expect_geq(weft_schedule_add_compute(schedule, user_op, arguments, 70, 0), 0);
    arguments[69].region = weft_region_at(in, 0, 1);
    expect_failure(weft_schedule_add_compute(schedule, user_op, arguments, 70, 0), WEFT_ERR_INVALID,
                   "`arguments[69]`", "input", "written");
}

Test(schedule, an_argument_says_what_is_done_to_it)
{
    struct weft_compute_argument argument = {.region = weft_region_at(out, 0, 1)};

    expect_failure(weft_schedule_add_compute(schedule, user_op, &argument, 1, 0), WEFT_ERR_INVALID,
                   "`arguments[0]` has access 0", "WEFT_READ", "WEFT_UPDATE");
}

Test(schedule, opaque_elements_count_as_others_do)
{
    weft_dtype_t dtype = weft_dtype_opaque(24);
    size_t most = PTRDIFF_MAX / 24;
    struct weft_slot_info info = {.struct_size = sizeof info};

    cr_assert_eq(weft_schedule_add_slot(schedule, "pairs", dtype, most, WEFT_SLOT_INOUT), 3);
    cr_assert_eq(weft_schedule_get_slot(schedule, 3, &info), WEFT_OK);
    cr_expect_eq(info.dtype, dtype);
    cr_expect_eq(info.count, most);
    cr_expect_geq(weft_schedule_add_send(schedule, weft_region_at(3, most - 1, 1), 0, 0), 0);
    expect_failure(weft_schedule_add_slot(schedule, "more", dtype, most + 1, WEFT_SLOT_INOUT),
                   WEFT_ERR_INVALID, "`count`", "elements of 24 bytes", NULL);
}

Test(schedule, the_largest_slot)
{
    cr_expect_eq(
        weft_schedule_add_slot(schedule, "huge", WEFT_F64, PTRDIFF_MAX / 8, WEFT_SLOT_SCRATCH), 3);
    cr_expect_geq(weft_schedule_add_send(schedule, weft_region_at(3, PTRDIFF_MAX / 8, 0), 0, 0), 0);
    expect_failure(
        weft_schedule_add_slot(schedule, "more", WEFT_F64, PTRDIFF_MAX / 8 + 1, WEFT_SLOT_SCRATCH),
        WEFT_ERR_INVALID, "`count`", "at most", NULL);
}

/* ---- memory ---- */

/* Builds a little of everything; the status in the end. */
static int build(struct weft_schedule **built)
{
    struct weft_schedule *s;
    weft_node_t event;
    struct weft_result result = {.struct_size = sizeof result, .from = "a", .ranks = 1};
    int status = weft_schedule_create(&s, 0, 2);

    if (status)
        return status;
    *built = s;
    weft_schedule_set_name(s, "everything");
    result.dst = weft_region_at(weft_schedule_add_slot(s, "a", WEFT_I32, 8, WEFT_SLOT_INOUT), 0, 8);
    weft_schedule_add_value(s, "v", 8);
    weft_schedule_add_compute(s, user_op, &(struct weft_compute_argument){result.dst, WEFT_WRITE},
                              1, 1);
    weft_schedule_add_send(s, result.dst, 1, 0);
    event = weft_schedule_add_event(s, 0);
    weft_schedule_add_order(s, 0, 1);
    weft_schedule_add_choice(s, &event, 1);
    weft_schedule_set_label(s, event, "go");
    weft_schedule_add_result(s, &result);
    return weft_schedule_status(s);
}

Test(schedule, every_allocation_may_fail)
{
    int status = WEFT_ERR_MEMORY;

    for (long n = 1; status == WEFT_ERR_MEMORY; n++) {
        struct weft_schedule *built = NULL;

        cr_assert_lt(n, 100);
        atomic_store(&weft__alloc_countdown, n);
        status = build(&built);
        atomic_store(&weft__alloc_countdown, -1);
        if (status)
            cr_expect_eq(status, WEFT_ERR_MEMORY, "%ld: %s", n, weft_error_text());
        else
            cr_expect_gt(n, 8);
        weft_schedule_destroy(built);
    }
}

Test(schedule, memory_for_builders_is_zeroed_and_aligned)
{
    unsigned char *memory = weft_memory_alloc(3, 5);

    cr_assert_not_null(memory);
    cr_expect_eq((uintptr_t)memory % 64, 0);
    for (int i = 0; i < 15; i++)
        cr_expect_eq(memory[i], 0);
    weft_memory_free(memory);
    cr_expect_null(weft_memory_alloc(SIZE_MAX, 2));
    weft_memory_free(NULL);
}
