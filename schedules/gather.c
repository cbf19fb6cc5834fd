/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gather and gatherv: the root gets the blocks of all ranks. In gatherv a rank may know the size of
 * its own block alone; only the tree needs more.
 */
#include "schedules/common/template.h"

/* This rank's block where it is at the start. */
static struct weft_region own(const struct weft__build *build)
{
    return weft_region_at(build->send, 0, weft__build_own(build));
}

static void keep_own(struct weft__build *build)
{
    if (build->send >= 0)
        weft__build_copy(build,
                         weft__build_blocks(build, build->recv, build->rank, build->rank + 1),
                         own(build));
}

/* A subtree is a contiguous range of blocks: it is collected in order and goes up as it is. */
static void along(struct weft__build *build, int radix)
{
    struct weft__tree tree;
    weft__knomial_make(&tree, build->rank, build->size, build->root, radix);
    struct weft_region range = own(build);
    if (weft__build_is_root(build)) {
        keep_own(build);
        range = weft__build_blocks(build, build->recv, 0, build->size);
    } else if (tree.child_count) {
        range = weft__build_scratch(build, weft__build_range(build, tree.lo, tree.hi));
        weft__build_copy(build,
                         weft__build_within(build, range, tree.lo, build->rank, build->rank + 1),
                         own(build));
    }
    for (int c = tree.child_count - 1; c >= 0; c--) {
        const struct weft__tree_child *child = &tree.child[c];
        struct weft_region to = weft__build_within(build, range, tree.lo, child->lo, child->hi);
        weft__build_recv(build, to, child->index, 0);
    }
    if (tree.parent >= 0)
        weft__build_send(build, range, tree.parent, 0);
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
        weft__build_send(build, own(build), build->root, 0);
        return;
    }
    for (int i = 1; i < build->size; i++) {
        int from = (build->rank + i) % build->size;
        weft__build_recv(build, weft__build_blocks(build, build->recv, from, from + 1), from, 0);
    }
    keep_own(build);
}

/* In place is the root's affair: its block is where it belongs. */
static void slots(struct weft__build *build)
{
    int in_place = build->in_place && weft__build_is_root(build);
    if (!in_place)
        build->send = weft__build_slot(build, "send", weft__build_own(build), WEFT_SLOT_INPUT);
    if (!weft__build_is_root(build))
        return;
    build->recv = weft__build_slot(build, "recv", weft__build_offset(build, build->size),
                                   in_place ? WEFT_SLOT_INOUT : WEFT_SLOT_OUTPUT);
    for (int r = 0; r < build->size; r++) {
        int own = in_place && r == build->rank;
        weft__build_result(build, weft__build_blocks(build, build->recv, r, r + 1),
                           own ? "recv" : "send", own ? weft__build_offset(build, r) : 0, r, 1);
    }
}

static double k_nomial_cost(const struct weft__shape *shape)
{
    return weft__cost_block_knomial(shape, 1);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "binomial",
     .cost = "ceil(log2 P) alpha + (P - 1)/P m beta + m/P copy",
     .notes = "a tree over contiguous ranges of ranks: no rotation for any root",
     .ordered = 1},
    {.name = "linear",
     .cost = "(P - 1)(alpha + m/P beta)",
     .notes = "everybody sends straight to the root",
     .ordered = 1},
    {.name = "k-nomial",
     .cost = "(k - 1) ceil(logk P) alpha + (P - 1)/P m beta + m/P copy, k: the radix",
     .notes = "as binomial, ranges of ranks in k parts (4)",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = binomial, .cost = weft__cost_block_tree, .passes_on = 1, .goes = WEFT__FEW_BUSY},
    {.build = linear,
     .cost = weft__cost_block_star,
     .goes = WEFT__FEW_BUSY,
     .rounds = weft__star_rounds},
    {.build = k_nomial,
     .cost = k_nomial_cost,
     .passes_on = 1,
     .goes = WEFT__FEW_BUSY,
     .rounds = weft__radix_rounds},
};

const struct weft__template weft__gather_template = {
    .public = {.name = "gather",
               .summary = "the root gets the blocks of all ranks",
               .parameters = "count dtype root algo segment radix",
               .result = "recv[r count + i] on the root: send[i] of rank r",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_ROOT | WEFT__USES_DATA | WEFT__BLOCKS,
    .slots = slots,
};

const struct weft__template weft__gatherv_template = {
    .public = {.name = "gatherv",
               .summary = "the root gets the blocks of all ranks, each of a size of its own",
               .parameters = "count counts counts-agreed dtype root algo segment radix",
               .result = "recv[counts[0] + ... + counts[r-1] + i] on the root: send[i] of rank r",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_ROOT | WEFT__USES_DATA | WEFT__BLOCKS | WEFT__USES_COUNTS,
    .slots = slots,
};
