/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduces of merged gradients: what MG-WFBP executes, with the layers' computation left to who
 * fires the events.
 *
 *     ready 0   ready 1   ready 2        ready 3          events of the application, a layer each
 *         \         |         |            /
 *          +-- all -+         +--- all ---+
 *               |                   |
 *          allreduce 0 ------> allreduce 1 ----->          one at a time, in the order of layers
 *
 * Layers lie behind each other in "send" and "recv", so a group is a region, and its allreduce is
 * the template of that name as a part (weft_schedule_add_part()). Source: Shi, Chu, Li, "MG-WFBP:
 * Efficient Data Communication for Distributed Synchronous SGD Algorithms" (INFOCOM 2019).
 */
#include <math.h>
#include <stdio.h>

#include "schedules/common/template.h"

#define ALLREDUCE (&weft__allreduce_template)

/* The first is this template's, the others are those of allreduce in their order. */
enum { BY_GROUP, FIRST_OF_ALLREDUCE };

/* ---- layers and groups ---- */

/* Where the layers of a group end that begins with layer `first`. */
static size_t end_of(const struct weft__layers *layers, size_t group, size_t first)
{
    if (layers->groups)
        return first + layers->groups[group];
    return weft__block_offset(layers->layer_count, (int)layers->group_count, (int)group + 1);
}

/* The elements of layers first .. end - 1. */
static size_t elements_of(const struct weft__layers *layers, size_t first, size_t end)
{
    size_t sum = 0;
    if (!layers->layers)
        return weft__block_offset(layers->elements, (int)layers->layer_count, (int)end) -
               weft__block_offset(layers->elements, (int)layers->layer_count, (int)first);
    for (size_t i = first; i < end; i++)
        sum += layers->layers[i];
    return sum;
}

/* ---- costs ---- */

static double allreduce_cost(const struct weft__shape *shape, size_t algorithm, size_t bytes)
{
    struct weft__shape group = *shape;
    group.bytes = bytes;
    group.largest = (double)bytes;
    group.total = (double)bytes * shape->size;
    return ALLREDUCE->impl[algorithm].cost(&group);
}

/* The algorithm of allreduce that is cheapest for so many bytes, of equals the first. */
static size_t cheapest(const struct weft__shape *shape, size_t bytes, double *cost_us)
{
    size_t best = 0;
    double least = INFINITY;
    for (size_t a = 0; a < ALLREDUCE->public.algorithm_count; a++) {
        if (!ALLREDUCE->public.algorithms[a].ordered && !weft_op_commutes(shape->op))
            continue;
        double cost = allreduce_cost(shape, a, bytes);
        if (cost < least * (1 - 1e-9)) {
            least = cost;
            best = a;
        }
    }
    *cost_us = least;
    return best;
}

/* All allreduces, one after the other: when layers are ready is not known. */
static double sum_of_costs(const struct weft__shape *shape, size_t algorithm)
{
    const struct weft__layers *layers = &shape->layers;
    size_t element = shape->bytes / (layers->elements ? layers->elements : 1), begin = 0;
    double sum = 0;
    for (size_t g = 0; g < layers->group_count; g++) {
        size_t end = end_of(layers, g, begin);
        size_t bytes = elements_of(layers, begin, end) * element;
        double cost = 0;
        if (algorithm == BY_GROUP)
            cheapest(shape, bytes, &cost);
        else
            cost = allreduce_cost(shape, algorithm - FIRST_OF_ALLREDUCE, bytes);
        sum += cost;
        begin = end;
    }
    return sum;
}

/* ---- building ---- */

/* The allreduce of a group by itself, on slots "send" and "recv" of its own. */
static struct weft_schedule *group_schedule(struct weft__build *build, size_t algorithm,
                                            size_t count)
{
    size_t element = weft_dtype_size(build->dtype);
    struct weft__shape shape = {.size = build->size,
                                .radix = build->radix,
                                .bytes = count * element,
                                .cost = build->cost,
                                .hosts = build->hosts,
                                .op = build->op};
    const struct weft_template_params params = {.struct_size = sizeof params,
                                                .count = count,
                                                .dtype = build->dtype,
                                                .op = build->op,
                                                .in_place = build->in_place,
                                                .hosts = build->hosts};
    struct weft_schedule *schedule = NULL;
    struct weft__build group;
    double cost;
    size_t index = algorithm == BY_GROUP ? cheapest(&shape, shape.bytes, &cost)
                                         : algorithm - FIRST_OF_ALLREDUCE;
    build->status = weft__build_init(&group, build->rank, build->size, &shape, &params);
    if (build->status)
        return NULL;
    group.segment = build->segment;
    weft_schedule_set_name(group.schedule, ALLREDUCE->public.algorithms[index].name);
    ALLREDUCE->slots(&group);
    ALLREDUCE->impl[index].build(&group);
    build->status = weft__build_finish(&group, &schedule);
    return schedule;
}

/* Puts it between `start` and the join that is returned. */
static weft_node_t add_group(struct weft__build *build, size_t algorithm, size_t group,
                             weft_node_t start, size_t offset, size_t count)
{
    uint32_t tags = UINT32_MAX / (uint32_t)build->layers.group_count;
    struct weft_schedule *part = group_schedule(build, algorithm, count);
    char name[32];
    if (!part)
        return build->status;
    snprintf(name, sizeof name, "group%zu", group);
    const struct weft_part_slot slots[] = {{"recv", weft_region_at(build->recv, offset, count)},
                                           {"send", weft_region_at(build->send, offset, count)}};
    const struct weft_part_config config = {.struct_size = sizeof config,
                                            .name = name,
                                            .slots = slots,
                                            .slot_count = build->in_place ? 1 : 2,
                                            .tag = (uint32_t)group * tags,
                                            .tag_count = tags};
    weft_node_t end = weft_schedule_add_part(build->schedule, part, start, &config);
    weft_schedule_destroy(part);
    return end;
}

/* Events of layers first .. end - 1, and the join that follows them all. */
static weft_node_t add_ready(struct weft__build *build, size_t group, size_t first, size_t end)
{
    struct weft_schedule *s = build->schedule;
    weft_node_t event = WEFT_NODE_NONE, start;
    char label[48];
    for (size_t i = first; i < end; i++) {
        event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
        snprintf(label, sizeof label, "ready %zu", i);
        weft_schedule_set_label(s, event, label);
    }
    start = weft_schedule_add_join(s);
    snprintf(label, sizeof label, "group%zu ready", group);
    weft_schedule_set_label(s, start, label);
    for (size_t i = first; i < end; i++)
        weft_schedule_add_order(s, event - (weft_node_t)(end - 1 - i), start);
    return start;
}

static void build_merged(struct weft__build *build, size_t algorithm)
{
    const struct weft__layers *layers = &build->layers;
    weft_node_t before = WEFT_NODE_NONE;
    size_t first = 0, offset = 0;
    for (size_t g = 0; g < layers->group_count && !build->status; g++) {
        size_t end = end_of(layers, g, first);
        size_t count = elements_of(layers, first, end);
        weft_node_t start = add_ready(build, g, first, end);
        if (before >= 0)
            weft_schedule_add_order(build->schedule, before, start);
        before = add_group(build, algorithm, g, start, offset, count);
        if (!build->status)
            build->status = weft_schedule_status(build->schedule);
        first = end;
        offset += count;
    }
}

/* ---- the template ---- */

static void slots(struct weft__build *build)
{
    weft__build_pair(build, build->count, build->count);
    weft__build_result(build, weft_region_at(build->recv, 0, build->count),
                       build->in_place ? "recv" : "send", 0, 0, build->size);
}

/* A function an algorithm: NAME_build, NAME_cost. */
#define ALGORITHM(name, index)                                                                     \
    static void name##_build(struct weft__build *build)                                            \
    {                                                                                              \
        build_merged(build, index);                                                                \
    }                                                                                              \
                                                                                                   \
    static double name##_cost(const struct weft__shape *shape)                                     \
    {                                                                                              \
        return sum_of_costs(shape, index);                                                         \
    }

ALGORITHM(by_group, BY_GROUP)
ALGORITHM(doubling, FIRST_OF_ALLREDUCE)
ALGORITHM(halving, FIRST_OF_ALLREDUCE + 1)
ALGORITHM(ring, FIRST_OF_ALLREDUCE + 2)
ALGORITHM(hierarchical, FIRST_OF_ALLREDUCE + 3)
ALGORITHM(bine, FIRST_OF_ALLREDUCE + 4)
ALGORITHM(multiplying, FIRST_OF_ALLREDUCE + 5)

static const struct weft_algorithm algorithms[] = {
    {.name = "by-group",
     .cost = "of each group the least of those below",
     .notes = "each group by the algorithm of allreduce that is cheapest for its size",
     .ordered = 1},
    {.name = "recursive-doubling",
     .cost = "each group as allreduce",
     .notes = "as allreduce; the same on all ranks and in every run, however layers are merged",
     .ordered = 1},
    {.name = "reduce-scatter-allgather",
     .cost = "each group as allreduce",
     .notes = "every element: the tree of recursive-doubling, so bitwise the same result",
     .ordered = 1},
    {.name = "ring",
     .cost = "each group as allreduce",
     .notes = "as allreduce; the same on all ranks, but it depends on how layers are merged",
     .ordered = 0},
    {.name = "hierarchical",
     .cost = "each group as allreduce",
     .notes = "as allreduce; the same on all ranks and in every run",
     .ordered = 0},
    {.name = "bine",
     .cost = "each group as allreduce",
     .notes = "as allreduce; the same on all ranks and in every run",
     .ordered = 0},
    {.name = "recursive-multiplying",
     .cost = "each group as allreduce",
     .notes = "as allreduce; the same on all ranks and in every run, however layers are merged",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = by_group_build, .cost = by_group_cost},
    {.build = doubling_build, .cost = doubling_cost, .goes = WEFT__EXCHANGES},
    {.build = halving_build, .cost = halving_cost, .goes = WEFT__EXCHANGES},
    {.build = ring_build, .cost = ring_cost},
    {.build = hierarchical_build, .cost = hierarchical_cost},
    {.build = bine_build, .cost = bine_cost, .goes = WEFT__EXCHANGES},
    {.build = multiplying_build, .cost = multiplying_cost, .goes = WEFT__EXCHANGES},
};

const struct weft__template weft__merged_allreduce_template = {
    .public = {.name = "merged-allreduce",
               .summary = "gradients that appear layer by layer, merged into allreduces",
               .parameters = "count dtype op algo segment layers merge radix",
               .result = "recv[i] on every rank: send[i] of ranks 0 .. P-1 combined",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_OP | WEFT__USES_DATA | WEFT__USES_HOSTS | WEFT__USES_LAYERS,
    .slots = slots,
};
