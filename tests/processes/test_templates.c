/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every template and algorithm between processes, with the result that its schedule states: the
 * inputs of all ranks are known to each, so each computes what it should have. Every run is started
 * three times with other data.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/interpreter.h"
#include "tests/support/bind.h"
#include "world.h"

enum { RESTARTS = 3, SLOTS = 64 };

struct cell {
    const char *name;
    struct weft_template_params params;
    struct weft_context *context;
};

static uint64_t seed_of(const char *slot, int rank, int start)
{
    uint64_t seed = (uint64_t)rank * 7919 + (uint64_t)start * 104729 + 1;

    for (; *slot != '\0'; slot++)
        seed = seed * 31 + (unsigned char)*slot;
    return seed;
}

static void *data_of(const char *slot, int rank, int start, size_t count, weft_dtype_t dtype)
{
    void *data = calloc(count + 1, weft_dtype_size(dtype));

    CHECK(data);
    interp_fill(data, count, dtype, seed_of(slot, rank, start), 0);
    return data;
}

/* What the region should hold, in the order of ranks; freed by the caller. */
static char *expected(const struct weft_result *result, weft_dtype_t dtype, int start)
{
    size_t bytes = weft_dtype_size(dtype);
    size_t end = result->offset + result->dst.count;
    int rank = weft_result_rank(result, 0);
    const char *from = weft_result_slot(result, world_rank, rank);
    char *sum = data_of(from, rank, start, end, dtype);

    for (int i = 1; i < result->ranks; i++) {
        char *next;

        rank = weft_result_rank(result, i);
        from = weft_result_slot(result, world_rank, rank);
        next = data_of(from, rank, start, end, dtype);
        OK(weft_op_reduce(result->op, dtype, sum + result->offset * bytes,
                          sum + result->offset * bytes, next + result->offset * bytes,
                          result->dst.count));
        free(next);
    }
    return sum;
}

static void check_results(const struct cell *cell, const struct weft_schedule *schedule,
                          void *const *slots, int start)
{
    for (size_t i = 0; i < weft_schedule_result_count(schedule); i++) {
        struct weft_result result = {.struct_size = sizeof result};
        struct weft_slot_info info = {.struct_size = sizeof info};
        size_t bytes;
        char *data;

        OK(weft_schedule_get_result(schedule, i, &result));
        if (result.kind != WEFT_RESULT_REGION || result.lossy)
            continue; /* nothing in memory, or not to the bit */
        OK(weft_schedule_get_slot(schedule, result.dst.slot, &info));
        if (info.kind == WEFT_SLOT_SCRATCH || result.dst.count == 0)
            continue;
        bytes = weft_dtype_size(info.dtype);
        data = expected(&result, info.dtype, start);
        if (memcmp(data + result.offset * bytes,
                   (char *)slots[result.dst.slot] + result.dst.offset * bytes,
                   result.dst.count * bytes) != 0) {
            printf("%s %s count=%zu %s root=%d in_place=%d segment=%zu start %d, slot %s\n",
                   cell->name, cell->params.algo, cell->params.count,
                   weft_dtype_name(cell->params.dtype), cell->params.root, cell->params.in_place,
                   cell->params.segment, start, info.name);
            CHECK(!"the result that the schedule states");
        }
        free(data);
    }
}

/* What is held by a choice is started by the last rank's application: the others hear of it. All
 * other events only a rank's own can fire. */
static void execute(struct weft_run *run, const struct weft_schedule *schedule)
{
    struct weft_node_info node = {.struct_size = sizeof node};
    size_t nodes = weft_schedule_node_count(schedule);

    OK(weft_run_start(run));
    for (size_t n = 0; n < nodes; n++) {
        OK(weft_schedule_get_node(schedule, (weft_node_t)n, &node));
        if (node.kind == WEFT_NODE_EVENT && node.channel == WEFT_CHANNEL_NONE &&
            (world_rank == world_size - 1 || node.choice < 0))
            OK(weft_run_fire(run, (weft_node_t)n));
    }
    OK(weft_run_wait(run, WEFT_NEVER));
}

static void check(const struct cell *cell)
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    void *slots[SLOTS] = {0};
    size_t count;

    OK(weft_template_build(cell->name, world_rank, world_size, &cell->params, &schedule));
    OK(weft_schedule_commit(schedule, &plan));
    OK(weft_run_create(&run, cell->context, plan, NULL));
    count = weft_schedule_slot_count(schedule);
    for (int start = 0; start < RESTARTS; start++) {
        for (size_t slot = 0; slot < count; slot++) {
            struct weft_slot_info info = {.struct_size = sizeof info};

            OK(weft_schedule_get_slot(schedule, (weft_slot_t)slot, &info));
            if (info.kind == WEFT_SLOT_SCRATCH)
                continue;
            CHECK(slot < SLOTS);
            free(slots[slot]);
            slots[slot] = data_of(info.name, world_rank, start, info.count, info.dtype);
            if (info.kind == WEFT_SLOT_OUTPUT)
                memset(slots[slot], 0xa5, info.count * weft_dtype_size(info.dtype));
            OK(bind_slot(run, (weft_slot_t)slot, slots[slot]));
        }
        execute(run, schedule);
        check_results(cell, schedule, slots, start);
    }
    weft_run_destroy(run);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    for (size_t slot = 0; slot < SLOTS; slot++)
        free(slots[slot]);
}

static int reads(const struct weft_template *template, const char *parameter)
{
    return strstr(template->parameters, parameter) != NULL;
}

static void places(struct cell *cell, const struct weft_template *template)
{
    int last = reads(template, "root") ? world_size - 1 : 0;

    /* Out of place, in place, and, as MPI allows, in place on the root alone. */
    for (int place = 0; place < (reads(template, "root") ? 3 : 2); place++) {
        cell->params.root = 0;
        cell->params.in_place = place == 2 ? world_rank == 0 : place;
        check(cell);
        if (last > 0) {
            cell->params.root = last;
            cell->params.in_place = place == 2 ? world_rank == last : place;
            check(cell);
        }
    }
}

static void sweep(struct weft_context *context, const struct weft_template *template, size_t a,
                  int brief)
{
    static const size_t counts[] = {0, 1, 37, 4099, 30011};
    static const weft_dtype_t dtypes[] = {WEFT_I8, WEFT_F16, WEFT_F64, WEFT_U32};
    static const size_t opaque[] = {3, 24, 1000};
    struct cell cell = {.name = template->name, .context = context};

    weft_template_params_init(&cell.params);
    cell.params.algo = template->algorithms[a].name;
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
        if (brief && counts[n] != 1 && counts[n] != 4099)
            continue;
        cell.params.count = counts[n];
        cell.params.dtype = WEFT_F32;
        cell.params.segment = WEFT_SEGMENT_NONE;
        places(&cell, template);
        cell.params.segment = counts[n] < 1000 ? 24 : 20000;
        if (!brief && reads(template, "segment"))
            places(&cell, template);
    }
    cell.params.count = 100;
    cell.params.in_place = 0;
    cell.params.root = 0;
    for (size_t d = 0; !brief && d < sizeof dtypes / sizeof dtypes[0]; d++) {
        cell.params.dtype = dtypes[d];
        check(&cell);
    }
    for (size_t i = 0; !reads(template, " op") && i < 3; i++) {
        cell.params.dtype = weft_dtype_opaque(opaque[i]);
        check(&cell);
    }
    world_ok("%s %s", template->name, template->algorithms[a].name);
}

/* With an argument: few counts, for numbers of ranks far above the cores. */
int main(int argc, char **argv)
{
    struct weft_context *context;
    int brief = argc > 1;

    world_init(&argc, &argv, WORLD_ONE_THREAD);
    context = world_context(NULL);
    for (size_t t = 0; t < weft_template_count(); t++) {
        const struct weft_template *template = weft_template_at(t);

        if (reads(template, "count k")) /* lists of pairs: no reduction of numbers */
            continue;
        for (size_t a = 0; a < template->algorithm_count; a++)
            sweep(context, template, a, brief);
    }
    weft_context_destroy(context);
    return world_end();
}
