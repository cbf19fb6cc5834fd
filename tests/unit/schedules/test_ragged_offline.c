/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Templates with counts a block at P = 1 .. 17 through the plain interpreter, and up to 33 through
 * the checker: what they state, races, deadlocks; and what they refuse.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

#include "runtime/base/alloc.h"
#include "support/interpreter.h"
#include "support/ragged.h"
#include "support/sweep.h"
#include "tests/support/opaque.h"

enum { MOST = 17 };

static const char *describe(const struct ragged *c)
{
    static char text[256];
    return ragged_text(c, text, sizeof text);
}

static void build_all(const struct ragged *c, struct weft_schedule **schedules)
{
    struct ragged_room room;
    for (int r = 0; r < c->size; r++) {
        struct weft_template_params params = ragged_params(c, r, &room);
        int status = weft_template_build(c->name, r, c->size, &params, &schedules[r]);
        cr_assert_eq(status, WEFT_OK, "%s: rank %d: %s", describe(c), r, weft_error_text());
    }
}

static void destroy_all(int size, struct weft_schedule **schedules)
{
    for (int r = 0; r < size; r++)
        weft_schedule_destroy(schedules[r]);
}

static void fill_inputs(const struct ragged *c, struct weft_schedule **schedules,
                        struct interp_memory *memory)
{
    for (int r = 0; r < c->size; r++)
        for (size_t s = 0; s < weft_schedule_slot_count(schedules[r]); s++) {
            struct weft_slot_info info = {.struct_size = sizeof info};
            uint64_t seed = (uint64_t)r * 1000 + s;
            weft_schedule_get_slot(schedules[r], (weft_slot_t)s, &info);
            if (info.kind != WEFT_SLOT_INPUT && info.kind != WEFT_SLOT_INOUT)
                continue;
            unsigned char *data = memory->slots[r][s];
            for (size_t i = 0; i < info.count * weft_dtype_size(info.dtype); i++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                data[i] = (unsigned char)(seed >> 56);
            }
        }
}

static void check(const struct ragged *c)
{
    struct weft_schedule *schedules[RAGGED_MOST];
    const struct weft_schedule *const *view = (const struct weft_schedule *const *)schedules;
    struct interp_memory initial, memory;
    char text[256];
    build_all(c, schedules);
    for (int r = 0; r < c->size; r++)
        cr_assert_eq(interp_find_race(schedules[r], text, sizeof text), 0, "%s: %s", describe(c),
                     text);
    cr_assert_eq(interp_memory_create(&initial, view, c->size), 0);
    fill_inputs(c, schedules, &initial);
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct interp_options options = {.seed = seed * 77 + 1, .rendezvous = seed & 1};
        cr_assert_eq(interp_memory_create(&memory, view, c->size), 0);
        fill_inputs(c, schedules, &memory);
        int status = interp_run(view, c->size, &memory, &options, text, sizeof text);
        cr_assert_eq(status, 0, "%s seed %d: %s", describe(c), (int)seed, text);
        status = interp_check_results(view, c->size, &initial, &memory, text, sizeof text);
        cr_assert_eq(status, 0, "%s seed %d: %s", describe(c), (int)seed, text);
        interp_memory_destroy(&memory);
    }
    interp_memory_destroy(&initial);
    destroy_all(c->size, schedules);
}

static int reads(const struct weft_template *template, const char *parameter)
{
    return strstr(template->parameters, parameter) != NULL;
}

/* The first and last roots, agreed or not, in place or not, in segments or not. */
static void sweep(struct ragged *c, const struct weft_template *template)
{
    int rooted = reads(template, "root");
    for (c->pattern = 0; c->pattern < RAGGED_PATTERNS - 1; c->pattern++)
        for (int way = 0; way < (rooted ? 8 : 4); way++) {
            c->in_place = way & 1;
            c->segment = way & 2 ? 24 : 0;
            c->agreed = !rooted || way & 4;
            c->root = rooted ? (c->pattern * 5 + way) % c->size : 0;
            if (ragged_serves(c))
                check(c);
        }
}

static void sweep_template(const char *name)
{
    const struct weft_template *template = weft_template_find(name);
    cr_assert_not_null(template);
    for (size_t a = 0; a <= template->algorithm_count; a++)
        for (int size = 1; size <= SWEPT(MOST, 9); size++) {
            struct ragged c = {.name = name, .size = size, .dtype = WEFT_U32};
            c.op = weft_op_builtin(WEFT_SUM);
            c.algo = a < template->algorithm_count ? template->algorithms[a].name : NULL;
            sweep(&c, template);
        }
}

Test(ragged_offline, pat_with_any_aggregation)
{
    static const char *const names[] = {"allgatherv", "reduce-scatterv"};
    for (int n = 0; n < 2; n++)
        for (int size = 1; size <= SWEPT(MOST, 9); size++) {
            struct ragged c = {.name = names[n], .algo = "pat", .size = size, .dtype = WEFT_U32};
            c.op = weft_op_builtin(WEFT_SUM);
            c.aggregate = 1 + (size_t)size % 3;
            sweep(&c, weft_template_find(names[n]));
        }
}

Test(ragged_offline, allgatherv)
{
    sweep_template("allgatherv");
}

Test(ragged_offline, gatherv)
{
    sweep_template("gatherv");
}

Test(ragged_offline, scatterv)
{
    sweep_template("scatterv");
}

Test(ragged_offline, alltoallv)
{
    sweep_template("alltoallv");
}

Test(ragged_offline, reduce_scatterv)
{
    sweep_template("reduce-scatterv");
}

Test(ragged_offline, operations_that_do_not_commute_keep_the_order_of_ranks)
{
    const struct weft_template *template = weft_template_find("reduce-scatterv");
    const struct weft_op *op = opaque_op(0);
    for (int size = 1; size <= SWEPT(MOST, 9); size++) {
        struct ragged c = {.name = "reduce-scatterv", .size = size, .op = op};
        c.dtype = weft_dtype_opaque(3);
        sweep(&c, template);
        c.algo = "pairwise";
        sweep(&c, template);
    }
    weft_op_destroy((struct weft_op *)op);
}

/* The checker finds nothing, with a result stated for every block that has elements. */
Test(ragged_offline, the_checker_finds_nothing_up_to_33_ranks)
{
    for (int n = 0; ragged_names[n]; n++)
        for (int size = 1; size <= SWEPT(33, 15); size += size < 9 ? 1 : 6)
            for (int way = 0; way < 4; way++) {
                struct weft_schedule *schedules[RAGGED_MOST];
                struct weft_check_report *report = NULL;
                struct ragged c = {.name = ragged_names[n],
                                   .size = size,
                                   .root = size / 2,
                                   .dtype = WEFT_F32,
                                   .op = weft_op_builtin(WEFT_SUM),
                                   .pattern = way < 2 ? 4 : 3,
                                   .agreed = way & 1,
                                   .in_place = way & 1};
                build_all(&c, schedules);
                cr_assert_eq(weft_check((const struct weft_schedule *const *)schedules,
                                        (size_t)size, NULL, &report),
                             WEFT_OK, "%s: %s", describe(&c), weft_error_text());
                cr_assert_eq(weft_check_report_fault_count(report), 0, "%s", describe(&c));
                weft_check_report_destroy(report);
                destroy_all(size, schedules);
            }
}

/* A pair that does not agree is found before it runs: by the checker, with both ranks. */
Test(ragged_offline, counts_that_differ_within_a_pair_are_found)
{
    struct ragged c = {.name = "alltoallv", .size = 3, .pattern = 3, .dtype = WEFT_I32, .op = NULL};
    struct weft_schedule *schedules[3];
    struct weft_check_report *report = NULL;
    struct weft_fault fault = {.struct_size = sizeof fault};
    struct ragged_room room;
    build_all(&c, schedules);
    weft_schedule_destroy(schedules[1]);
    struct weft_template_params params = ragged_params(&c, 1, &room);
    room.recv[2] += 2;
    cr_assert_eq(weft_template_build(c.name, 1, 3, &params, &schedules[1]), WEFT_OK);
    cr_assert_eq(weft_check((const struct weft_schedule *const *)schedules, 3, NULL, &report),
                 WEFT_OK, "%s", weft_error_text());
    cr_assert_gt(weft_check_report_fault_count(report), 0);
    cr_assert_eq(weft_check_report_get_fault(report, 0, &fault), WEFT_OK);
    cr_assert(fault.kind == WEFT_FAULT_SIZE, "%s", fault.text);
    weft_check_report_destroy(report);
    destroy_all(3, schedules);
}

static void refuse(const char *name, int rank, const struct weft_template_params *params,
                   const char *word)
{
    struct weft_schedule *schedule = NULL;
    cr_assert_eq(weft_template_build(name, rank, 3, params, &schedule), WEFT_ERR_INVALID, "%s: %s",
                 name, weft_error_text());
    cr_assert_null(schedule);
    cr_assert_not_null(strstr(weft_error_text(), word), "%s", weft_error_text());
}

Test(ragged_offline, counts_that_are_too_large_together_are_named)
{
    size_t half = PTRDIFF_MAX / 8 + 1, counts[] = {half, 1, half};
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.counts = params.send_counts = params.recv_counts = counts;
    params.dtype = WEFT_F32;
    refuse("allgatherv", 1, &params, "counts[2] is");
    refuse("reduce-scatterv", 1, &params, "counts[2] is");
    refuse("gatherv", 0, &params, "counts[2] is");
    refuse("scatterv", 0, &params, "counts[2] is");
    refuse("alltoallv", 1, &params, "send_counts[2] is");
    params.send_counts = NULL;
    refuse("alltoallv", 1, &params, "recv_counts[2] is");
    params.counts_agreed = 2;
    refuse("gatherv", 0, &params, "counts_agreed");
    /* Of another rank only its own is looked at. */
    struct weft_schedule *schedule = NULL;
    params.counts_agreed = 0;
    cr_assert_eq(weft_template_build("gatherv", 1, 3, &params, &schedule), WEFT_OK);
    weft_schedule_destroy(schedule);
    /* One block that fits, but not as often as pairwise needs it. */
    counts[0] = counts[2] = 0;
    counts[1] = PTRDIFF_MAX / 5;
    params.algo = "pairwise";
    refuse("reduce-scatterv", 1, &params, "counts[1] is");
}

/* Counts whose sum needs 64 bits. */
Test(ragged_offline, totals_beyond_32_bits)
{
    size_t big = (size_t)3 << 31, counts[] = {big, 5, big};
    struct weft_template_params params;
    struct weft_schedule *schedule = NULL;
    struct weft_slot_info info = {.struct_size = sizeof info};
    weft_template_params_init(&params);
    params.counts = counts;
    params.algo = "ring";
    params.segment = WEFT_SEGMENT_NONE;
    cr_assert_eq(weft_template_build("allgatherv", 2, 3, &params, &schedule), WEFT_OK);
    cr_assert_eq(weft_schedule_get_slot(schedule, 1, &info), WEFT_OK);
    cr_assert_eq(info.count, 2 * big + 5);
    weft_schedule_destroy(schedule);
}

/* Without a block nobody sends anything; a block of nothing is no message. */
Test(ragged_offline, blocks_of_no_elements_are_no_messages)
{
    for (int n = 0; ragged_names[n]; n++)
        for (int rank = 0; rank < 5; rank++) {
            struct ragged c = {.name = ragged_names[n], .size = 5, .agreed = 1};
            struct ragged_room room;
            struct weft_schedule *schedule = NULL;
            c.dtype = WEFT_F32;
            c.op = weft_op_builtin(WEFT_SUM);
            struct weft_template_params params = ragged_params(&c, rank, &room);
            cr_assert_eq(weft_template_build(c.name, rank, 5, &params, &schedule), WEFT_OK);
            cr_assert_eq(weft_schedule_node_count(schedule), 0, "%s", c.name);
            weft_schedule_destroy(schedule);
        }
}

/* The choice sees the largest block, and in gatherv and scatterv nothing that some rank lacks. */
Test(ragged_offline, the_choice_is_the_same_on_all_ranks)
{
    struct weft_template_params params;
    size_t counts[16] = {0};
    const char *algo;
    weft_template_params_init(&params);
    params.counts = counts;
    counts[5] = 1;
    cr_assert_eq(weft_template_choose("allgatherv", 16, &params, &algo, NULL), WEFT_OK);
    cr_assert_str_eq(algo, "recursive-doubling"); /* bruck has ranges that wrap */
    counts[5] = (size_t)1 << 20;
    cr_assert_eq(weft_template_choose("allgatherv", 16, &params, &algo, NULL), WEFT_OK);
    cr_assert_str_eq(algo, "ring");
    for (int r = 0; r < 16; r++)
        counts[r] = 1;
    static const char *const rooted[] = {"gatherv", "scatterv"};
    for (int i = 0; i < 2; i++) {
        params.counts_agreed = 0;
        cr_assert_eq(weft_template_choose(rooted[i], 16, &params, &algo, NULL), WEFT_OK);
        cr_assert_str_eq(algo, "linear");
        params.counts_agreed = 1;
        cr_assert_eq(weft_template_choose(rooted[i], 16, &params, &algo, NULL), WEFT_OK);
        cr_assert_str_eq(algo, "binomial");
    }
}

/* With equal counts they are the templates without. */
Test(ragged_offline, equal_counts_cost_what_they_cost_without)
{
    static const char *const names[][2] = {
        {"allgather", "allgatherv"}, {"gather", "gatherv"}, {"reduce-scatter", "reduce-scatterv"}};
    static const size_t sizes[] = {1, 100, 100000};
    for (int n = 0; n < 3; n++)
        for (int size = 1; size <= MOST; size++)
            for (int s = 0; s < 3; s++) {
                struct weft_template_params params;
                size_t counts[MOST];
                const char *plain, *ragged;
                double plain_us, ragged_us;
                weft_template_params_init(&params);
                params.count = sizes[s];
                cr_assert_eq(weft_template_choose(names[n][0], size, &params, &plain, &plain_us),
                             0);
                for (int r = 0; r < size; r++)
                    counts[r] = sizes[s];
                params.counts = counts;
                params.counts_agreed = 1;
                params.count = 0;
                cr_assert_eq(weft_template_choose(names[n][1], size, &params, &ragged, &ragged_us),
                             0);
                cr_assert_str_eq(plain, ragged);
                cr_assert(plain_us == ragged_us, "%s P=%d", names[n][1], size);
            }
}

/* A few messages of alltoallv at a time: what is sent in a step waits for the step four before. */
Test(ragged_offline, pairwise_bounds_what_is_under_way)
{
    struct weft_template_params params;
    struct weft_schedule *schedule = NULL;
    weft_template_params_init(&params);
    params.count = 10;
    params.algo = "pairwise";
    cr_assert_eq(weft_template_build("alltoallv", 0, 12, &params, &schedule), WEFT_OK);
    size_t held = 0;
    for (size_t i = 0; i < weft_schedule_edge_count(schedule); i++) {
        struct weft_node_info info = {.struct_size = sizeof info};
        weft_node_t before, after;
        weft_schedule_get_edge(schedule, i, &before, &after);
        weft_schedule_get_node(schedule, after, &info);
        held += info.kind == WEFT_NODE_SEND || info.kind == WEFT_NODE_RECV;
    }
    cr_assert_eq(held, 2 * (11 - 4));
    weft_schedule_destroy(schedule);
}

/* Every allocation fails in turn. */
Test(ragged_offline, no_memory)
{
    for (int n = 0; ragged_names[n]; n++) {
        const struct weft_template *template = weft_template_find(ragged_names[n]);
        for (size_t a = 0; a < template->algorithm_count; a++) {
            struct ragged c = {.name = ragged_names[n], .size = 6, .pattern = 3, .agreed = 1};
            struct ragged_room room;
            struct weft_schedule *schedule = NULL;
            int status = WEFT_ERR_MEMORY;
            c.dtype = WEFT_F32;
            c.op = weft_op_builtin(WEFT_SUM);
            c.algo = template->algorithms[a].name;
            struct weft_template_params params = ragged_params(&c, 2, &room);
            for (long i = 1; status == WEFT_ERR_MEMORY && i < 10000; i++) {
                atomic_store(&weft__alloc_countdown, i);
                status = weft_template_build(c.name, 2, 6, &params, &schedule);
                atomic_store(&weft__alloc_countdown, -1);
                if (status == WEFT_ERR_MEMORY)
                    cr_assert_null(schedule);
            }
            cr_assert_eq(status, WEFT_OK, "%s: %s", describe(&c), weft_error_text());
            weft_schedule_destroy(schedule);
        }
    }
}
