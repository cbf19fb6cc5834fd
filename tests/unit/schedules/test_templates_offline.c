/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every template and algorithm at P = 1 .. 17 through the plain interpreter: declared results,
 * races, deadlocks, eager and rendezvous, under several orders of execution.
 */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <weft/template.h>

#include "support/affine.h"
#include "support/interpreter.h"
#include "support/sweep.h"

enum { MOST = 17, SEEDS = 3 };

struct cell {
    const char *name;
    int size;
    struct weft_template_params params;
    int low; /* of interp_fill(); -1: any bits */
};

static const char *describe(const struct cell *c)
{
    static char text[256];
    snprintf(text, sizeof text, "%s %s P=%d count=%zu root=%d in_place=%d segment=%zd %s %s",
             c->name, c->params.algo, c->size, c->params.count, c->params.root, c->params.in_place,
             (ssize_t)c->params.segment, weft_dtype_name(c->params.dtype),
             weft_op_name(c->params.op));
    return text;
}

static void build_all(const struct cell *c, struct weft_schedule **schedules)
{
    char text[256];
    for (int r = 0; r < c->size; r++) {
        int status = weft_template_build(c->name, r, c->size, &c->params, &schedules[r]);
        cr_assert_eq(status, WEFT_OK, "%s: rank %d: %s", describe(c), r, weft_error_text());
        int race = interp_find_race(schedules[r], text, sizeof text);
        cr_assert_eq(race, 0, "%s: %s", describe(c), text);
    }
}

static void destroy_all(int size, struct weft_schedule **schedules)
{
    for (int r = 0; r < size; r++)
        weft_schedule_destroy(schedules[r]);
}

typedef void (*slot_fn)(void *data, const void *other, const struct weft_slot_info *info,
                        uint64_t seed, const struct cell *c);

/* Calls fn for the slots that hold something at the start. */
static void each_input(const struct cell *c, struct weft_schedule **schedules,
                       struct interp_memory *memory, const struct interp_memory *other,
                       int inputs_only, slot_fn fn)
{
    for (int r = 0; r < c->size; r++)
        for (size_t s = 0; s < weft_schedule_slot_count(schedules[r]); s++) {
            struct weft_slot_info info = {.struct_size = sizeof info};
            weft_schedule_get_slot(schedules[r], (weft_slot_t)s, &info);
            if (info.kind == WEFT_SLOT_INPUT || (info.kind == WEFT_SLOT_INOUT && !inputs_only))
                fn(memory->slots[r][s], other ? other->slots[r][s] : NULL, &info,
                   (uint64_t)r * 1000 + s + c->params.count, c);
        }
}

static void fill(void *data, const void *other, const struct weft_slot_info *info, uint64_t seed,
                 const struct cell *c)
{
    (void)other;
    size_t bytes = info->count * weft_dtype_size(info->dtype);
    if (c->low >= 0) {
        interp_fill(data, info->count, info->dtype, seed, c->low);
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)data)[i] = (unsigned char)(seed >> 56);
    }
}

static void copy(void *data, const void *other, const struct weft_slot_info *info, uint64_t seed,
                 const struct cell *c)
{
    (void)seed, (void)c;
    memcpy(data, other, info->count * weft_dtype_size(info->dtype));
}

static void unchanged(void *data, const void *other, const struct weft_slot_info *info,
                      uint64_t seed, const struct cell *c)
{
    (void)seed;
    cr_assert_arr_eq(data, other, info->count * weft_dtype_size(info->dtype),
                     "%s: input slot %s was written", describe(c), info->name);
}

/* Executes one cell under several orders and compares with what it declares. */
static void check(const struct cell *c)
{
    struct weft_schedule *schedules[64];
    const struct weft_schedule *const *view = (const struct weft_schedule *const *)schedules;
    struct interp_memory initial, memory;
    char text[256];
    build_all(c, schedules);
    cr_assert_eq(interp_memory_create(&initial, view, c->size), 0);
    each_input(c, schedules, &initial, NULL, 0, fill);
    for (uint64_t seed = 0; seed < SWEPT(2 * SEEDS, 2); seed++) {
        struct interp_options options = {.seed = seed * 77 + 1, .rendezvous = seed & 1};
        cr_assert_eq(interp_memory_create(&memory, view, c->size), 0);
        each_input(c, schedules, &memory, &initial, 0, copy);
        int status = interp_run(view, c->size, &memory, &options, text, sizeof text);
        cr_assert_eq(status, 0, "%s seed %d: %s", describe(c), (int)seed, text);
        status = interp_check_results(view, c->size, &initial, &memory, text, sizeof text);
        cr_assert_eq(status, 0, "%s seed %d: %s", describe(c), (int)seed, text);
        each_input(c, schedules, &memory, &initial, 1, unchanged);
        interp_memory_destroy(&memory);
    }
    interp_memory_destroy(&initial);
    destroy_all(c->size, schedules);
}

static int reads(const struct weft_template *template, const char *parameter)
{
    return strstr(template->parameters, parameter) != NULL;
}

/* All counts, roots, places and segments of one algorithm on one number of ranks. */
static void sweep(struct cell *c, const struct weft_template *template)
{
    static const size_t counts[] = {0, 1, 5, 37};
    static const size_t segments[] = {WEFT_SEGMENT_NONE, 24, 0};
    int roots = reads(template, "root") ? c->size : 1;
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++)
        for (int root = 0; root < roots; root += root == 1 && c->size > 5 ? c->size / 2 - 1 : 1)
            for (int in_place = 0; in_place < 2; in_place++)
                for (size_t s = 0; s < sizeof segments / sizeof segments[0]; s++) {
                    c->params.count = counts[n];
                    c->params.root = root;
                    c->params.in_place = in_place;
                    c->params.segment = segments[s];
                    check(c);
                }
}

static void sweep_template(const char *name)
{
    const struct weft_template *template = weft_template_find(name);
    cr_assert_not_null(template);
    for (size_t a = 0; a < template->algorithm_count; a++)
        for (int size = 1; size <= SWEPT(MOST, 8); size++) {
            struct cell c = {.name = name, .size = size, .low = 0};
            weft_template_params_init(&c.params);
            c.params.algo = template->algorithms[a].name;
            c.params.dtype = WEFT_I32;
            sweep(&c, template);
        }
}

Test(templates_offline, allgather)
{
    sweep_template("allgather");
}

Test(templates_offline, allreduce)
{
    sweep_template("allreduce");
}

Test(templates_offline, alltoall)
{
    sweep_template("alltoall");
}

Test(templates_offline, broadcast)
{
    sweep_template("broadcast");
}

Test(templates_offline, exscan)
{
    sweep_template("exscan");
}

Test(templates_offline, gather)
{
    sweep_template("gather");
}

Test(templates_offline, reduce)
{
    sweep_template("reduce");
}

Test(templates_offline, reduce_scatter)
{
    sweep_template("reduce-scatter");
}

Test(templates_offline, scan)
{
    sweep_template("scan");
}

Test(templates_offline, scatter)
{
    sweep_template("scatter");
}

Test(templates_offline, server_step)
{
    sweep_template("server-step");
}

/* radix 0: dissemination. */
static void check_barriers(int radix)
{
    for (int size = 1; size <= MOST; size++)
        for (uint64_t seed = 0; seed < 6; seed++) {
            struct weft_schedule *schedules[MOST];
            const struct weft_schedule *const *view =
                (const struct weft_schedule *const *)schedules;
            struct cell c = {.name = "barrier", .size = size};
            struct interp_memory memory;
            uint64_t heard[MOST];
            struct interp_options options = {.seed = seed, .rendezvous = seed & 1, .heard = heard};
            char text[256];
            weft_template_params_init(&c.params);
            c.params.algo = radix ? "k-dissemination" : "dissemination";
            c.params.radix = radix;
            build_all(&c, schedules);
            cr_assert_eq(interp_memory_create(&memory, view, size), 0);
            int status = interp_run(view, size, &memory, &options, text, sizeof text);
            cr_assert_eq(status, 0, "P=%d: %s", size, text);
            for (int r = 0; r < size; r++)
                cr_assert_eq(heard[r], ((uint64_t)1 << size) - 1, "P=%d rank %d", size, r);
            interp_memory_destroy(&memory);
            destroy_all(size, schedules);
        }
}

Test(templates_offline, barrier_hears_everybody)
{
    static const int radices[] = {0, 2, 3, 4, 7, 16};
    for (size_t i = 0; i < sizeof radices / sizeof radices[0]; i++)
        check_barriers(radices[i]);
}

Test(templates_offline, operations_that_do_not_commute_keep_the_order_of_ranks)
{
    static const char *const names[] = {"allreduce",      "exscan", "reduce",
                                        "reduce-scatter", "scan",   "server-step"};
    struct weft_op *op = affine_op();
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        const struct weft_template *template = weft_template_find(names[n]);
        for (size_t a = 0; a <= template->algorithm_count; a++)
            for (int size = 1; size <= SWEPT(MOST, 6); size++) {
                struct cell c = {.name = names[n], .size = size, .low = -1};
                weft_template_params_init(&c.params);
                c.params.dtype = WEFT_U64;
                c.params.op = op;
                /* The last round leaves the choice to the library. */
                c.params.algo = a < template->algorithm_count ? template->algorithms[a].name : NULL;
                if (!c.params.algo || template->algorithms[a].ordered) {
                    sweep(&c, template);
                } else {
                    struct weft_schedule *schedule = NULL;
                    cr_assert_eq(weft_template_build(names[n], 0, size, &c.params, &schedule),
                                 WEFT_ERR_UNSUPPORTED);
                    cr_assert_null(schedule);
                    cr_assert_not_null(strstr(weft_error_text(), "affine"));
                }
            }
    }
    weft_op_destroy(op);
}

Test(templates_offline, trees_and_steps_of_any_radix)
{
    static const int radices[] = {2, 3, 5, 16};
    int swept = 0;
    for (size_t t = 0; t < weft_template_count(); t++) {
        const struct weft_template *template = weft_template_at(t);
        for (size_t i = 0; i < 4 * template->algorithm_count; i++)
            for (int size = 1; size <= 33; size += size < 18 ? 1 : 5) {
                struct cell c = {.name = template->name, .size = size, .low = 0};
                weft_template_params_init(&c.params);
                c.params.algo = template->algorithms[i / 4].name;
                c.params.radix = radices[i % 4];
                c.params.count = 7;
                c.params.dtype = WEFT_I32;
                c.params.root = reads(template, "root") ? size * 2 / 3 : 0;
                c.params.in_place = size % 2;
                int radix =
                    !strncmp(c.params.algo, "k-", 2) || strstr(c.params.algo, "multiplying");
                if (!radix || !strcmp(c.name, "barrier"))
                    continue;
                check(&c);
                swept++;
            }
    }
    cr_assert_gt(swept, 100);
}

/* Lists of one block to those of all, and as many levels as that takes. */
Test(templates_offline, pat_with_any_aggregation)
{
    static const char *const names[] = {"allgather", "reduce-scatter"};
    for (size_t n = 0; n < 2; n++)
        for (int size = 1; size <= SWEPT(33, 9); size++)
            for (size_t blocks = 1; blocks<8; blocks += blocks> 2 ? 2 : 1) {
                struct cell c = {.name = names[n], .size = size, .low = 0};
                weft_template_params_init(&c.params);
                c.params.algo = "pat";
                c.params.dtype = WEFT_I32;
                c.params.count = 7;
                c.params.aggregate = blocks;
                c.params.in_place = (size + (int)blocks) % 2;
                c.params.segment = size % 3 ? WEFT_SEGMENT_NONE : 24;
                check(&c);
            }
}

/* By an operation that shows a rank that is missing, there twice, or in the wrong place. */
Test(templates_offline, scans_of_up_to_33_ranks_keep_the_order)
{
    static const char *const names[] = {"scan", "exscan"};
    struct weft_op *op = affine_op();
    for (size_t n = 0; n < 2; n++) {
        const struct weft_template *template = weft_template_find(names[n]);
        for (size_t a = 0; a < template->algorithm_count; a++)
            for (int size = 1; size <= 33; size++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    struct cell c = {.name = names[n], .size = size, .low = -1};
                    weft_template_params_init(&c.params);
                    c.params.algo = template->algorithms[a].name;
                    c.params.dtype = WEFT_U64;
                    c.params.op = op;
                    c.params.count = 7;
                    c.params.in_place = in_place;
                    c.params.segment = size % 2 ? 24 : WEFT_SEGMENT_NONE;
                    check(&c);
                }
    }
    weft_op_destroy(op);
}

Test(templates_offline, every_datatype_and_operation)
{
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
        for (int kind = 0; kind < WEFT_OP_COUNT; kind++) {
            struct cell c = {.name = "allreduce", .size = 7, .low = kind == WEFT_PROD};
            weft_template_params_init(&c.params);
            c.params.dtype = (weft_dtype_t)dtype;
            c.params.op = weft_op_builtin((weft_op_kind_t)kind);
            c.params.count = 19;
            struct weft_schedule *schedule = NULL;
            if (weft_op_supports(c.params.op, c.params.dtype)) {
                check(&c);
            } else {
                cr_assert_eq(weft_template_build("allreduce", 0, 7, &c.params, &schedule),
                             WEFT_ERR_INVALID);
            }
        }
}

/* Where ranks are: blocks of three, round robin, all apart, one alone. */
Test(templates_offline, hierarchical_on_nodes)
{
    for (int size = 1; size <= SWEPT(MOST, 9); size++)
        for (int layout = 0; layout < 4; layout++) {
            int nodes[MOST];
            struct cell c = {.name = "allreduce", .size = size};
            for (int r = 0; r < size; r++)
                nodes[r] = layout == 0   ? r / 3
                           : layout == 1 ? r % 4
                           : layout == 2 ? INT_MAX - r / 2
                                         : r == size / 2;
            weft_template_params_init(&c.params);
            c.params.hosts = nodes;
            c.params.algo = "hierarchical";
            sweep(&c, weft_template_find("allreduce"));
            c.params.algo = "multi-lane";
            sweep(&c, weft_template_find("allreduce"));
        }
}

/* Sums of arbitrary floats: rounding shows every difference in order. */
static void sum_of(const char *algo, int size, uint64_t seed, float *results, size_t count)
{
    struct weft_schedule *schedules[MOST];
    const struct weft_schedule *const *view = (const struct weft_schedule *const *)schedules;
    struct cell c = {.name = "allreduce", .size = size};
    struct interp_memory memory;
    struct interp_options options = {.seed = seed};
    char text[256];
    weft_template_params_init(&c.params);
    c.params.algo = algo;
    c.params.count = count;
    build_all(&c, schedules);
    cr_assert_eq(interp_memory_create(&memory, view, size), 0);
    for (int r = 0; r < size; r++)
        for (size_t i = 0; i < count; i++)
            ((float *)memory.slots[r][0])[i] = 1.0f / (float)(1 + (size_t)r * 7 + i * 13);
    cr_assert_eq(interp_run(view, size, &memory, &options, text, sizeof text), 0);
    for (int r = 0; r < size; r++)
        memcpy(results + (size_t)r * count, memory.slots[r][1], count * sizeof *results);
    interp_memory_destroy(&memory);
    destroy_all(size, schedules);
}

Test(templates_offline, allreduce_is_bitwise_the_same_on_all_ranks_and_in_every_run)
{
    enum { COUNT = 41 };
    static float results[MOST * COUNT], first[COUNT], doubling[COUNT];
    const struct weft_template *template = weft_template_find("allreduce");
    for (int size = 2; size <= MOST; size++)
        for (size_t a = 0; a < template->algorithm_count; a++)
            for (uint64_t seed = 0; seed < 3; seed++) {
                sum_of(template->algorithms[a].name, size, seed, results, COUNT);
                if (!seed)
                    memcpy(first, results, sizeof first);
                if (!a)
                    memcpy(doubling, results, sizeof doubling);
                for (int r = 0; r < size; r++)
                    cr_assert_arr_eq(results + (size_t)r * COUNT, first, sizeof first);
                if (!strcmp(template->algorithms[a].name, "reduce-scatter-allgather"))
                    cr_assert_arr_eq(results, doubling, sizeof doubling);
            }
}

Test(templates_offline, segments_have_at_least_one_element)
{
    struct cell c = {.name = "allreduce", .size = 4};
    weft_template_params_init(&c.params);
    c.params.algo = "ring";
    c.params.count = 13;
    c.params.segment = 1;
    check(&c);
}
