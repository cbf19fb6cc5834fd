/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scatter and scatterv: every rank gets its block of the root's.
 *
 * In scatterv a rank may know the size of its own block alone, so it cannot tell where the root has
 * it: there each block is a slot of its own, and the statement of the result calls it by its name.
 */
#include "schedules/common/template.h"

#include <stdio.h>

static struct weft_region own(const struct weft__build *build)
{
    return weft_region_at(build->recv, 0, weft__build_own(build));
}

/* The root's block of a rank. */
static struct weft_region block(const struct weft__build *build, int rank)
{
    if (build->slot_per_block)
        return weft_region_at(build->send + rank, 0, weft__build_range(build, rank, rank + 1));
    return weft__build_blocks(build, build->send, rank, rank + 1);
}

/* Blocks lo .. hi - 1 of the root's behind each other, so that they are one message. */
static struct weft_region together(struct weft__build *build, int lo, int hi)
{
    if (!build->slot_per_block)
        return weft__build_blocks(build, build->send, lo, hi);
    if (hi - lo == 1)
        return block(build, lo);
    struct weft_region range = weft__build_scratch(build, weft__build_range(build, lo, hi));
    for (int r = lo; r < hi; r++)
        weft__build_copy(build, weft__build_within(build, range, lo, r, r + 1), block(build, r));
    return range;
}

/* A subtree's blocks come as one range; the children's go on, the own one stays. */
static void along(struct weft__build *build, int radix)
{
    struct weft__tree tree;
    struct weft_region range = own(build);
    int root = weft__build_is_root(build);
    weft__knomial_make(&tree, build->rank, build->size, build->root, radix);
    if (!root && tree.child_count)
        range = weft__build_scratch(build, weft__build_range(build, tree.lo, tree.hi));
    if (!root)
        weft__build_recv(build, range, tree.parent, 0);
    for (int c = 0; c < tree.child_count; c++) {
        const struct weft__tree_child *child = &tree.child[c];
        weft__build_send(build,
                         root ? together(build, child->lo, child->hi)
                              : weft__build_within(build, range, tree.lo, child->lo, child->hi),
                         child->index, 0);
    }
    if (root && build->recv >= 0)
        weft__build_copy(build, own(build), block(build, build->rank));
    else if (!root)
        weft__build_copy(build, own(build),
                         weft__build_within(build, range, tree.lo, build->rank, build->rank + 1));
}

static void binomial(struct weft__build *build)
{
    along(build, 2);
}

static void k_nomial(struct weft__build *build)
{
    along(build, weft__radix(build->radix, WEFT__RADIX));
}

static void linear(struct weft__build *build)
{
    if (!weft__build_is_root(build)) {
        weft__build_recv(build, own(build), build->root, 0);
        return;
    }
    for (int i = 1; i < build->size; i++) {
        int to = (build->rank + i) % build->size;
        weft__build_send(build, block(build, to), to, 0);
    }
    if (build->recv >= 0)
        weft__build_copy(build, own(build), block(build, build->rank));
}

/* In place is the root's affair: its block stays in "send", which is only read, and it has no
 * "recv" and nothing to state. */
static int makes_recv(struct weft__build *build)
{
    if (build->in_place && weft__build_is_root(build))
        return 0;
    build->recv = weft__build_slot(build, "recv", weft__build_own(build), WEFT_SLOT_OUTPUT);
    return 1;
}

static void slots(struct weft__build *build)
{
    if (weft__build_is_root(build))
        build->send =
            weft__build_slot(build, "send", (size_t)build->size * build->count, WEFT_SLOT_INPUT);
    if (makes_recv(build))
        weft__build_result(build, own(build), "send", (size_t)build->rank * build->count,
                           build->root, 1);
}

static void slots_apart(struct weft__build *build)
{
    char name[32];
    build->slot_per_block = 1;
    if (weft__build_is_root(build))
        build->send = weft__build_block_slots(build, "send", NULL, WEFT_SLOT_INPUT);
    if (!makes_recv(build) || !weft__build_own(build))
        return;
    snprintf(name, sizeof name, "send.%d", build->rank);
    weft__build_result(build, own(build), name, 0, build->root, 1);
}

/* The root brings blocks together. */
static double apart_cost(const struct weft__shape *shape)
{
    double copies = weft__cost_blocks(shape, shape->size - 1) * shape->cost->copy_us_per_byte;
    return copies + (shape->size - 1) * shape->cost->node_us;
}

static double k_nomial_cost(const struct weft__shape *shape)
{
    return weft__cost_block_knomial(shape, 0);
}

static double tree_apart_cost(const struct weft__shape *shape)
{
    return weft__cost_block_tree(shape) + apart_cost(shape);
}

static double k_nomial_apart_cost(const struct weft__shape *shape)
{
    return k_nomial_cost(shape) + apart_cost(shape);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "binomial",
     .cost = "ceil(log2 P) alpha + (P - 1)/P m beta + m/P copy",
     .notes = "a tree over contiguous ranges of ranks, the largest subtree first: no rotation for "
              "any root",
     .ordered = 1},
    {.name = "linear",
     .cost = "(P - 1)(alpha + m/P beta)",
     .notes = "the root sends straight to everybody",
     .ordered = 1},
    {.name = "k-nomial",
     .cost = "(k - 1) ceil(logk P) alpha + (P - 1)/P m beta + m/P copy, k: the radix",
     .notes = "as binomial, ranges of ranks in k parts (4)",
     .ordered = 1},
};

static const struct weft_algorithm algorithms_apart[] = {
    {.name = "binomial",
     .cost = "ceil(log2 P) alpha + (P - 1)/P m beta + m copy",
     .notes =
         "a tree over contiguous ranges of ranks; the root brings the blocks of each together. "
         "All ranks need the counts of all",
     .ordered = 1},
    {.name = "linear",
     .cost = "(P - 1) alpha + m beta",
     .notes = "the root sends straight to everybody; a rank needs its own count only",
     .ordered = 1},
    {.name = "k-nomial",
     .cost = "(k - 1) ceil(logk P) alpha + (P - 1)/P m beta + m copy, k: the radix",
     .notes = "as binomial, ranges of ranks in k parts (4). All ranks need the counts of all",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = binomial, .cost = weft__cost_block_tree, .goes = WEFT__FEW_BUSY},
    {.build = linear,
     .cost = weft__cost_block_fan,
     .goes = WEFT__FEW_BUSY,
     .rounds = weft__star_rounds},
    {.build = k_nomial,
     .cost = k_nomial_cost,
     .goes = WEFT__FEW_BUSY,
     .rounds = weft__radix_rounds},
};

static const struct weft__algorithm impl_apart[] = {
    {.build = binomial, .cost = tree_apart_cost, .passes_on = 1, .goes = WEFT__FEW_BUSY},
    {.build = linear,
     .cost = weft__cost_block_fan,
     .goes = WEFT__FEW_BUSY,
     .rounds = weft__star_rounds},
    {.build = k_nomial,
     .cost = k_nomial_apart_cost,
     .passes_on = 1,
     .goes = WEFT__FEW_BUSY,
     .rounds = weft__radix_rounds},
};

const struct weft__template weft__scatter_template = {
    .public = {.name = "scatter",
               .summary = "every rank gets its block of the root's",
               .parameters = "count dtype root algo segment radix",
               .result = "recv[i] on rank r: send[r count + i] of the root",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_ROOT | WEFT__USES_DATA | WEFT__BLOCKS,
    .slots = slots,
};

const struct weft__template weft__scatterv_template = {
    .public = {.name = "scatterv",
               .summary = "every rank gets its block of the root's, each of a size of its own",
               .parameters = "count counts counts-agreed dtype root algo segment radix",
               .result = "recv[i] on rank r: send.r[i] of the root, a slot a block",
               .algorithms = algorithms_apart,
               .algorithm_count = sizeof algorithms_apart / sizeof algorithms_apart[0]},
    .impl = impl_apart,
    .flags = WEFT__USES_ROOT | WEFT__USES_DATA | WEFT__BLOCKS | WEFT__USES_COUNTS,
    .slots = slots_apart,
};
