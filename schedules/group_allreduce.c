/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce within the groups of a version, plain and behind an activation.
 *
 * The algorithms are those of allreduce, on places instead of ranks: `build` gets the group as its
 * ranks before they add their nodes.
 */
#include <weft/activation.h>
#include <weft/groups.h>
#include <weft/memory.h>

#include "schedules/common/template.h"

int weft__group_largest(int ranks, int group_size)
{
    int size = group_size ? group_size : weft_groups_default_size(ranks);
    int groups = (ranks + size - 1) / size;
    return (ranks + groups - 1) / groups;
}

/* Makes the group of this rank the ranks of the algorithm. */
static int enter_group(struct weft__build *build)
{
    struct weft_groups *groups;
    int status = weft_groups_create(&groups, build->size, build->group_size);
    if (status)
        return status;
    int rank = build->rank;
    build->members = weft_memory_alloc((size_t)weft_groups_largest(groups), sizeof(int));
    if (build->members)
        weft_groups_at(groups, build->version, rank, build->members, &build->size, &build->rank);
    else
        status = weft_error_set(WEFT_ERR_MEMORY, "out of memory for a group of %d ranks",
                                weft_groups_largest(groups));
    weft_groups_destroy(groups);
    build->ranks = build->members;
    return status;
}

static void slots(struct weft__build *build)
{
    build->status = enter_group(build);
    if (build->status)
        return;
    weft__build_pair(build, build->count, build->count);
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = weft_region_at(build->recv, 0, build->count),
                                 .from = build->in_place ? "recv" : "send",
                                 .ranks = build->size,
                                 .op = build->size > 1 ? build->op : NULL,
                                 .among = build->members};
    weft_schedule_add_result(build->schedule, &result);
}

/* The algorithms of allreduce that need no more than ranks, in its order. */
enum { DOUBLING, HALVING, RING, ALGORITHMS };

static void plain(struct weft__build *build, int algorithm)
{
    if (!build->status)
        weft__allreduce_template.impl[algorithm].build(build);
}

/* The allreduce waits for the activation: its first nodes do. */
static void activated(struct weft__build *build, int algorithm)
{
    weft_node_t started;
    weft_activation_add(build->schedule, 0, &started);
    plain(build, algorithm);
    size_t nodes = weft_schedule_node_count(build->schedule);
    size_t edges = weft_schedule_edge_count(build->schedule);
    unsigned char *waits = weft_memory_alloc(nodes, 1);
    if (!waits) {
        build->status = weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu nodes", nodes);
        return;
    }
    for (size_t e = 0; e < edges; e++) {
        weft_node_t before, after;
        weft_schedule_get_edge(build->schedule, e, &before, &after);
        waits[after] = 1;
    }
    for (size_t n = (size_t)started + 1; started >= 0 && n < nodes; n++)
        if (!waits[n])
            weft_schedule_add_order(build->schedule, started, (weft_node_t)n);
    weft_memory_free(waits);
}

static void plain_doubling(struct weft__build *build)
{
    plain(build, DOUBLING);
}

static void plain_halving(struct weft__build *build)
{
    plain(build, HALVING);
}

static void plain_ring(struct weft__build *build)
{
    plain(build, RING);
}

static void activated_doubling(struct weft__build *build)
{
    activated(build, DOUBLING);
}

static void activated_halving(struct weft__build *build)
{
    activated(build, HALVING);
}

static void activated_ring(struct weft__build *build)
{
    activated(build, RING);
}

/* The shape has the size of the largest group. */
static double doubling_cost(const struct weft__shape *shape)
{
    return weft__allreduce_template.impl[DOUBLING].cost(shape);
}

static double halving_cost(const struct weft__shape *shape)
{
    return weft__allreduce_template.impl[HALVING].cost(shape);
}

static double ring_cost(const struct weft__shape *shape)
{
    return weft__allreduce_template.impl[RING].cost(shape);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "recursive-doubling",
     .cost = "log2 S (alpha + m beta + m gamma); S no power of two: + 2 alpha + 2 m beta + m gamma",
     .notes = "every element: a balanced binary tree over the places of the group; the same on its "
              "members. On powers of two the butterfly of Li et al., TPDS 2021, Algorithm 1",
     .ordered = 0},
    {.name = "reduce-scatter-allgather",
     .cost = "2 log2 S alpha + (S - 1)/S (2 m beta + m gamma); S no power of two: + 2 alpha + 2 m "
             "beta + m gamma",
     .notes = "every element: the tree of recursive-doubling, so bitwise the same result. "
              "Rabenseifner, ICCS 2004",
     .ordered = 0},
    {.name = "ring",
     .cost = "2 (S - 1) alpha + (S - 1)/S (2 m beta + m gamma)",
     .notes = "around the places of the group; the same on its members. Patarasuk, Yuan, JPDC 2009",
     .ordered = 0},
};

static const struct weft__algorithm plain_impl[] = {
    {.build = plain_doubling, .cost = doubling_cost, .goes = WEFT__EXCHANGES},
    {.build = plain_halving, .cost = halving_cost, .goes = WEFT__EXCHANGES},
    {.build = plain_ring, .cost = ring_cost},
};

static const struct weft__algorithm activated_impl[] = {
    {.build = activated_doubling, .cost = doubling_cost, .goes = WEFT__EXCHANGES},
    {.build = activated_halving, .cost = halving_cost, .goes = WEFT__EXCHANGES},
    {.build = activated_ring, .cost = ring_cost},
};

const struct weft__template weft__group_allreduce_template = {
    .public = {.name = "group-allreduce",
               .summary = "allreduce within the groups of a version",
               .parameters = "count dtype op algo group-size version",
               .result = "recv[i] on every rank: send[i] of its group's ranks combined",
               .algorithms = algorithms,
               .algorithm_count = ALGORITHMS},
    .impl = plain_impl,
    .flags = WEFT__USES_OP | WEFT__USES_DATA | WEFT__USES_GROUP,
    .slots = slots,
};

const struct weft__template weft__wait_avoiding_allreduce_template = {
    .public = {.name = "wait-avoiding-allreduce",
               .summary = "the same, started on all ranks by whoever arrives first",
               .parameters = "count dtype op algo group-size version",
               .result = "recv[i] on every rank: send[i] of its group's ranks combined",
               .algorithms = algorithms,
               .algorithm_count = ALGORITHMS},
    .impl = activated_impl,
    .flags = WEFT__USES_OP | WEFT__USES_DATA | WEFT__USES_GROUP,
    .slots = slots,
};
