/* SPDX-License-Identifier: BSD-3-Clause */
/* Host and device: where nodes work, which copies that needs, and that nothing else changes. */
#include "fixture.h"

#include <weft/check.h>
#include <weft/format.h>
#include <weft/memory.h>
#include <weft/plan.h>
#include <weft/sparse.h>
#include <weft/template.h>

#include "runtime/base/alloc.h"
#include "support/draw.h"
#include "support/interpreter.h"

TestSuite(place, .init = setup, .fini = teardown);

static struct weft_node_info node_info(const struct weft_schedule *s, weft_node_t node)
{
    struct weft_node_info info = {.struct_size = sizeof info};

    cr_assert_eq(weft_schedule_get_node(s, node, &info), WEFT_OK);
    return info;
}

static struct weft_slot_info slot_info(const struct weft_schedule *s, weft_slot_t slot)
{
    struct weft_slot_info info = {.struct_size = sizeof info};

    cr_assert_eq(weft_schedule_get_slot(s, slot, &info), WEFT_OK);
    return info;
}

static weft_memory_t memory_of(const struct weft_schedule *s, const struct weft_region *region)
{
    return slot_info(s, region->slot).memory;
}

static size_t orders(weft_node_t before, weft_node_t after)
{
    weft_node_t b, a;
    size_t found = 0;

    for (size_t e = 0; e < weft_schedule_edge_count(schedule); e++) {
        cr_assert_eq(weft_schedule_get_edge(schedule, e, &b, &a), WEFT_OK);
        found += b == before && a == after;
    }
    return found;
}

static int on_device(struct weft_call *call, void *stream)
{
    (void)call, (void)stream;
    return WEFT_OK;
}

/* An operation that a device can do; @host NULL: nobody else. */
static struct weft_op *device_op(const char *name, weft_compute_fn host)
{
    struct weft_op_config config;
    struct weft_op *op;

    weft_op_config_init(&config);
    config.name = name;
    config.compute = host;
    config.device = on_device;
    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK, "%s", weft_error_text());
    return op;
}

static weft_node_t add_sum(weft_slot_t to, weft_slot_t left, weft_slot_t right)
{
    return weft_schedule_add_reduce(schedule, sum(), weft_region_at(to, 0, 10),
                                    weft_region_at(left, 10, 10), weft_region_at(right, 20, 10));
}

Test(place, what_is_on_one_side_stays_as_it_is)
{
    weft_schedule_set_memory(schedule, scratch, WEFT_MEMORY_DEVICE);
    weft_node_t node = add_sum(out, in, in);
    weft_schedule_add_copy(schedule, weft_region_at(out, 50, 10), weft_region_at(scratch, 0, 5));
    weft_schedule_add_send(schedule, weft_region_at(scratch, 0, 5), 0, 0);
    cr_expect_eq(weft_schedule_place(schedule), WEFT_OK);
    cr_expect_eq(weft_schedule_node_count(schedule), 3, "copies cross by themselves");
    cr_expect_eq(weft_schedule_slot_count(schedule), 3);
    cr_expect_eq(node_info(schedule, node).regions[1].slot, in);
}

Test(place, a_reduction_works_where_it_writes)
{
    weft_schedule_set_memory(schedule, out, WEFT_MEMORY_DEVICE);
    weft_node_t before = weft_schedule_add_join(schedule);
    weft_node_t node = add_sum(out, in, in);
    weft_node_t after = weft_schedule_add_join(schedule);
    weft_schedule_add_order(schedule, before, node);
    weft_schedule_add_order(schedule, node, after);
    cr_assert_eq(weft_schedule_place(schedule), WEFT_OK, "%s", weft_error_text());
    cr_assert_eq(weft_schedule_node_count(schedule), 5);
    struct weft_node_info info = node_info(schedule, node);
    cr_expect_eq(info.regions[0].slot, out);
    for (int i = 1; i < 3; i++) {
        weft_node_t copy = after + i;
        struct weft_node_info brought = node_info(schedule, copy);
        cr_expect_eq(memory_of(schedule, &info.regions[i]), WEFT_MEMORY_DEVICE);
        cr_expect_eq(slot_info(schedule, info.regions[i].slot).kind, WEFT_SLOT_SCRATCH);
        cr_expect_eq(brought.kind, WEFT_NODE_COPY);
        cr_expect_str_eq(brought.label, "to the device");
        cr_expect_eq(brought.regions[0].slot, info.regions[i].slot);
        cr_expect_eq(brought.regions[1].slot, in);
        cr_expect_eq(brought.regions[1].offset, (size_t)i * 10);
        cr_expect_eq(orders(before, copy), 1);
        cr_expect_eq(orders(copy, node), 1);
    }
    cr_expect_eq(orders(node, after), 1);
    cr_expect_eq(orders(before, node), 0);
    cr_expect_eq(weft_schedule_place(schedule), WEFT_OK);
    cr_expect_eq(weft_schedule_node_count(schedule), 5, "nothing is left to place");
}

Test(place, a_call_works_on_the_device_if_one_of_its_regions_is_there)
{
    weft_slot_t there = weft_schedule_add_slot(schedule, "there", WEFT_F32, 8, WEFT_SLOT_INOUT);
    weft_slot_t both = weft_schedule_add_slot(schedule, "both", WEFT_F32, 9, WEFT_SLOT_INOUT);
    weft_schedule_set_memory(schedule, there, WEFT_MEMORY_DEVICE);
    const struct weft_compute_argument arguments[] = {
        {weft_region_at(in, 0, 3), WEFT_READ},   {weft_region_at(there, 0, 8), WEFT_UPDATE},
        {weft_region_at(out, 4, 5), WEFT_WRITE}, {weft_region_at(both, 0, 9), WEFT_UPDATE},
        {weft_region_at(in, 7, 0), WEFT_READ},
    };
    struct weft_op *op = device_op("either", compute_nothing);
    weft_node_t node = weft_schedule_add_compute(schedule, op, arguments, 5, 0);
    weft_op_destroy(op);
    weft_node_t after = weft_schedule_add_join(schedule);
    weft_schedule_add_order(schedule, node, after);
    cr_assert_eq(weft_schedule_place(schedule), WEFT_OK, "%s", weft_error_text());
    cr_assert_eq(weft_schedule_node_count(schedule), 6, "two copies in, two out");
    struct weft_node_info info = node_info(schedule, node);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(memory_of(schedule, &info.regions[i]), WEFT_MEMORY_DEVICE);
    cr_expect_eq(info.regions[4].slot, in, "a region of nothing is anywhere");
    size_t in_copies = 0;
    for (weft_node_t c = after + 1; c < 6; c++) {
        int to_device = node_info(schedule, c).regions[1].slot == in ||
                        node_info(schedule, c).regions[1].slot == both;
        in_copies += (size_t)to_device;
        cr_expect_str_eq(node_info(schedule, c).label, to_device ? "to the device" : "to the host");
        cr_expect_eq(orders(c, node), (size_t)to_device);
        cr_expect_eq(orders(node, c), (size_t)!to_device);
        cr_expect_eq(orders(c, after), (size_t)!to_device);
    }
    cr_expect_eq(in_copies, 2);
    cr_expect_eq(orders(node, after), 0, "what comes after comes after the copies");
}

Test(place, any_is_a_matter_of_the_copies)
{
    weft_schedule_set_memory(schedule, out, WEFT_MEMORY_DEVICE);
    weft_node_t first = weft_schedule_add_join(schedule);
    weft_node_t second = weft_schedule_add_join(schedule);
    weft_node_t node = add_sum(out, in, in);
    weft_schedule_add_order(schedule, first, node);
    weft_schedule_add_order(schedule, second, node);
    weft_schedule_set_any(schedule, node);
    cr_assert_eq(weft_schedule_place(schedule), WEFT_OK);
    cr_expect_eq(node_info(schedule, node).any, 0, "it needs both operands");
    for (weft_node_t c = node + 1; c <= node + 2; c++) {
        cr_expect_eq(node_info(schedule, c).any, 1);
        cr_expect_eq(orders(first, c) + orders(second, c), 2);
    }
}

Test(place, run_time_counts_go_with_their_regions)
{
    weft_schedule_set_memory(schedule, out, WEFT_MEMORY_DEVICE);
    struct weft_region to = {out, value, 0, 50}, from = {in, value, 10, 50};
    weft_node_t node = weft_schedule_add_reduce(schedule, sum(), to, from, from);
    cr_assert_geq(node, 0, "%s", weft_error_text());
    cr_assert_eq(weft_schedule_place(schedule), WEFT_OK);
    struct weft_node_info info = node_info(schedule, node);
    struct weft_node_info brought = node_info(schedule, node + 1);
    cr_expect_eq(info.regions[1].value, value);
    cr_expect_eq(brought.regions[0].value, value);
    cr_expect_eq(brought.regions[1].value, value);
    cr_expect_eq(brought.regions[1].offset, 10);
}

Test(place, names_that_are_in_use_are_not_taken)
{
    weft_schedule_add_slot(schedule, "on-device-4", WEFT_F32, 1, WEFT_SLOT_SCRATCH);
    weft_schedule_set_memory(schedule, out, WEFT_MEMORY_DEVICE);
    add_sum(out, in, in);
    cr_assert_eq(weft_schedule_place(schedule), WEFT_OK, "%s", weft_error_text());
    cr_expect_eq(weft_schedule_slot_count(schedule), 6);
}

/* The text of a schedule, placed or as commit has it. */
static char *text_of(const struct weft_schedule *s)
{
    char *text;
    size_t length;

    cr_assert_eq(weft_schedule_write(&s, 1, WEFT_FORMAT_TEXT, &text, &length), WEFT_OK);
    return text;
}

Test(place, commit_does_it_to_a_copy)
{
    struct weft_plan *plan;

    weft_schedule_set_name(schedule, "crossing");
    weft_schedule_set_memory(schedule, out, WEFT_MEMORY_DEVICE);
    weft_schedule_set_label(schedule, add_sum(out, in, in), "add");
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = weft_region_at(out, 0, 10),
                                 .from = "in",
                                 .first = 1,
                                 .ranks = 1};
    cr_assert_eq(weft_schedule_add_result(schedule, &result), WEFT_OK, "%s", weft_error_text());
    char *before = text_of(schedule);
    cr_assert_eq(weft_schedule_commit(schedule, &plan), WEFT_OK, "%s", weft_error_text());
    char *after = text_of(schedule);
    cr_expect_str_eq(before, after);
    cr_expect_eq(weft_plan_slot_count(plan), 5);
    struct weft_slot_info info = {.struct_size = sizeof info};
    cr_assert_eq(weft_plan_get_slot(plan, 4, &info), WEFT_OK);
    cr_expect_eq(info.memory, WEFT_MEMORY_DEVICE);
    weft_plan_destroy(plan);
    weft_memory_free(before);
    weft_memory_free(after);
}

/* Commit refuses, and checking finds it, in the same words. */
static void expect_misplaced(const char *words, const char *slot)
{
    const struct weft_schedule *view = schedule;
    struct weft_plan *plan = NULL;
    struct weft_check_report *report;
    struct weft_fault fault = {.struct_size = sizeof fault};
    const struct weft_check_config config = {.struct_size = sizeof config, .local_only = 1};

    cr_expect_eq(weft_schedule_commit(schedule, &plan), WEFT_ERR_UNSUPPORTED);
    cr_expect_null(plan);
    cr_expect_not_null(strstr(weft_error_text(), words), "%s", weft_error_text());
    cr_expect_not_null(strstr(weft_error_text(), slot), "%s", weft_error_text());
    cr_assert_eq(weft_check(&view, 1, &config, &report), WEFT_OK, "%s", weft_error_text());
    int found = 0;
    for (size_t i = 0; weft_check_report_get_fault(report, i, &fault) == WEFT_OK; i++)
        found += fault.kind == WEFT_FAULT_SIZE && strstr(fault.text, words) != NULL;
    cr_expect_eq(found, 1);
    weft_check_report_destroy(report);
}

Test(place, a_function_of_the_host_takes_no_memory_of_the_device)
{
    const struct weft_region regions[] = {weft_region_at(in, 0, 3), weft_region_at(out, 0, 3)};

    weft_schedule_set_memory(schedule, out, WEFT_MEMORY_DEVICE);
    add_compute(schedule, user_op, regions, 2, 2, 0);
    expect_misplaced("operation `nothing` is a function of the host", "slot `out`");
}

static int add_on_host(void *user, void *dst, const void *a, const void *b, size_t count,
                       weft_dtype_t dtype)
{
    (void)user, (void)dst, (void)a, (void)b, (void)count, (void)dtype;
    return WEFT_OK;
}

Test(place, a_reduction_of_ones_own_works_where_its_function_is)
{
    struct weft_op_config config = {
        .struct_size = sizeof config, .name = "own", .reduce = add_on_host};
    struct weft_op *op;
    struct weft_plan *plan;

    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK);
    weft_schedule_set_memory(schedule, in, WEFT_MEMORY_DEVICE);
    weft_schedule_add_reduce(schedule, op, weft_region_at(out, 0, 9), weft_region_at(in, 0, 9),
                             weft_region_at(in, 9, 9));
    cr_assert_eq(weft_schedule_commit(schedule, &plan), WEFT_OK,
                 "it writes memory of the host, and its operands are brought: %s",
                 weft_error_text());
    weft_plan_destroy(plan);
    weft_schedule_set_memory(schedule, out, WEFT_MEMORY_DEVICE);
    expect_misplaced("operation `own` is a function of the host", "slot `out`");
    weft_op_destroy(op);
}

Test(place, an_operation_of_devices_alone_needs_one)
{
    struct weft_op *op = device_op("kernel", NULL);
    const struct weft_region region = weft_region_at(out, 0, 3);
    struct weft_plan *plan;

    add_compute(schedule, op, &region, 1, 1, 0);
    expect_misplaced("operation `kernel` is one of devices alone", "memory of one");
    weft_schedule_set_memory(schedule, out, WEFT_MEMORY_DEVICE);
    cr_expect_eq(weft_schedule_commit(schedule, &plan), WEFT_OK, "%s", weft_error_text());
    weft_plan_destroy(plan);
    weft_op_destroy(op);
}

Test(place, a_merge_of_lists_brings_its_residual_and_nothing_to_work_in)
{
    weft_slot_t lists = weft_schedule_add_slot(schedule, "lists", WEFT_U64, 20, WEFT_SLOT_INOUT);
    weft_slot_t work = weft_schedule_add_slot(schedule, "work", WEFT_U64, 99, WEFT_SLOT_SCRATCH);
    const struct weft_compute_argument arguments[] = {
        {weft_region_at(lists, 0, 10), WEFT_WRITE}, {weft_region_at(lists, 10, 5), WEFT_READ},
        {weft_region_at(lists, 15, 5), WEFT_READ},  {weft_region_at(work, 0, 89), WEFT_WRITE},
        {weft_region_at(work, 89, 10), WEFT_WRITE}, {weft_region_at(out, 0, 50), WEFT_WRITE}};
    struct weft_plan *plan;
    struct weft_op *op;

    cr_assert_eq(weft_sparse_merge_op(&op), WEFT_OK);
    weft_schedule_set_memory(schedule, lists, WEFT_MEMORY_DEVICE);
    weft_node_t node = weft_schedule_add_compute(schedule, op, arguments, 6, 0);
    weft_op_destroy(op);
    cr_assert_eq(weft_schedule_commit(schedule, &plan), WEFT_OK, "%s", weft_error_text());
    weft_plan_destroy(plan);
    cr_assert_eq(weft_schedule_place(schedule), WEFT_OK, "%s", weft_error_text());
    struct weft_node_info info = node_info(schedule, node);
    cr_expect_eq(weft_schedule_node_count(schedule), 3, "the residual comes and goes");
    cr_expect_eq(memory_of(schedule, &info.regions[5]), WEFT_MEMORY_DEVICE);
    cr_expect_eq(info.regions[3].slot, work);
    cr_expect_eq(info.regions[4].slot, work);
    cr_expect_eq(node_info(schedule, node + 1).regions[1].slot, out);
    cr_expect_eq(orders(node + 1, node), 1, "what it held is added to");
    cr_expect_eq(node_info(schedule, node + 2).regions[0].slot, out);
    cr_expect_eq(orders(node, node + 2), 1);
}

Test(place, every_allocation_of_a_commit_may_fail)
{
    int status = WEFT_ERR_MEMORY;
    struct weft_plan *plan = NULL;

    weft_schedule_set_memory(schedule, out, WEFT_MEMORY_DEVICE);
    weft_schedule_set_label(schedule, add_sum(out, in, in), "add");
    for (long n = 1; status == WEFT_ERR_MEMORY; n++) {
        atomic_store(&weft__alloc_countdown, n);
        status = weft_schedule_commit(schedule, &plan);
        atomic_store(&weft__alloc_countdown, -1);
        cr_assert(status == WEFT_OK || status == WEFT_ERR_MEMORY, "%ld: %s", n, weft_error_text());
        cr_assert(status == WEFT_OK || !plan);
    }
    cr_expect_eq(status, WEFT_OK);
    weft_plan_destroy(plan);
}

/* ---- ready-made schedules, their slots on sides that are drawn ---- */

enum { MOST = 9, SEEDS = 6 };

static void expect_one_side(const struct weft_schedule *s)
{
    for (size_t n = 0; n < weft_schedule_node_count(s); n++) {
        struct weft_node_info info = node_info(s, (weft_node_t)n);
        for (size_t i = 1; info.kind == WEFT_NODE_REDUCE && i < info.region_count; i++)
            cr_expect_eq(memory_of(s, &info.regions[i]), memory_of(s, &info.regions[0]));
    }
}

static void place_all(struct weft_schedule **schedules, int size, const char *name, uint64_t seed)
{
    struct draw draw = {seed};
    char text[256];

    for (int r = 0; r < size; r++) {
        for (size_t s = 0; s < weft_schedule_slot_count(schedules[r]); s++)
            weft_schedule_set_memory(schedules[r], (weft_slot_t)s,
                                     (weft_memory_t)draw_below(&draw, 2));
        cr_assert_eq(weft_schedule_place(schedules[r]), WEFT_OK, "%s", weft_error_text());
        expect_one_side(schedules[r]);
        cr_assert_eq(interp_find_race(schedules[r], text, sizeof text), 0, "%s P=%d seed %d: %s",
                     name, size, (int)seed, text);
    }
}

static void run_all(struct weft_schedule **schedules, int size, const char *name, uint64_t seed)
{
    const struct weft_schedule *const *view = (const struct weft_schedule *const *)schedules;
    const struct interp_options options = {.seed = seed, .rendezvous = seed & 1};
    struct interp_memory initial, memory;
    char text[256];

    cr_assert_eq(interp_memory_create(&initial, view, size), 0);
    cr_assert_eq(interp_memory_create(&memory, view, size), 0);
    for (int r = 0; r < size; r++)
        for (size_t s = 0; s < weft_schedule_slot_count(schedules[r]); s++) {
            struct weft_slot_info info = slot_info(schedules[r], (weft_slot_t)s);
            if (info.kind != WEFT_SLOT_INPUT && info.kind != WEFT_SLOT_INOUT)
                continue;
            interp_fill(initial.slots[r][s], info.count, info.dtype, seed + (uint64_t)r, 0);
            interp_fill(memory.slots[r][s], info.count, info.dtype, seed + (uint64_t)r, 0);
        }
    cr_assert_eq(interp_run(view, size, &memory, &options, text, sizeof text), 0,
                 "%s P=%d seed %d: %s", name, size, (int)seed, text);
    cr_assert_eq(interp_check_results(view, size, &initial, &memory, text, sizeof text), 0,
                 "%s P=%d seed %d: %s", name, size, (int)seed, text);
    interp_memory_destroy(&initial);
    interp_memory_destroy(&memory);
}

Test(place, results_are_those_of_the_template)
{
    static const char *const names[] = {"allreduce", "reduce",    "reduce-scatter", "scan",
                                        "exscan",    "broadcast", "allgather"};
    struct weft_schedule *schedules[MOST];

    for (size_t t = 0; t < sizeof names / sizeof *names; t++)
        for (int size = 1; size <= MOST; size++)
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                const struct weft_template *template = weft_template_find(names[t]);
                struct weft_template_params params;
                weft_template_params_init(&params);
                params.dtype = WEFT_I32;
                params.count = 11;
                params.algo = template->algorithms[seed % template->algorithm_count].name;
                for (int r = 0; r < size; r++)
                    cr_assert_eq(weft_template_build(names[t], r, size, &params, &schedules[r]),
                                 WEFT_OK, "%s", weft_error_text());
                place_all(schedules, size, names[t], seed);
                run_all(schedules, size, names[t], seed);
                for (int r = 0; r < size; r++)
                    weft_schedule_destroy(schedules[r]);
            }
}
