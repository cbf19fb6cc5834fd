/* SPDX-License-Identifier: BSD-3-Clause */
/* Gather: the root gets the blocks of all ranks. */
#include "schedules/common/template.h"

static void keep_own(struct weft__build *build)
{
    if (build->send >= 0)
        weft__build_copy(build,
                         weft__build_blocks(build, build->recv, build->rank, build->rank + 1),
                         weft_region_at(build->send, 0, build->count));
}

/* A subtree is a contiguous range of blocks: it is collected in order and goes up as it is. */
static void binomial(struct weft__build *build)
{
    struct weft__tree tree;
    weft__tree_make(&tree, build->rank, build->size, build->root);
    struct weft_region range = weft_region_at(build->send, 0, build->count);
    size_t skip = (size_t)tree.lo * build->count; /* what the range's slot does not hold */
    if (weft__build_is_root(build)) {
        keep_own(build);
        range = weft__build_blocks(build, build->recv, 0, build->size);
    } else if (tree.child_count) {
        range = weft__build_scratch(build, (size_t)(tree.hi - tree.lo) * build->count);
        weft__build_copy(build,
                         weft__part(range, (size_t)build->rank * build->count - skip, build->count),
                         weft_region_at(build->send, 0, build->count));
    }
    for (int c = tree.child_count - 1; c >= 0; c--) {
        const struct weft__tree_child *child = &tree.child[c];
        struct weft_region to = weft__part(range, (size_t)child->lo * build->count - skip,
                                           (size_t)(child->hi - child->lo) * build->count);
        weft__build_recv(build, to, child->index, 0);
    }
    if (tree.parent >= 0)
        weft__build_send(build, range, tree.parent, 0);
}

static void linear(struct weft__build *build)
{
    if (!weft__build_is_root(build)) {
        weft__build_send(build, weft_region_at(build->send, 0, build->count), build->root, 0);
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
        build->send = weft__build_slot(build, "send", build->count, WEFT_SLOT_INPUT);
    if (!weft__build_is_root(build))
        return;
    build->recv = weft__build_slot(build, "recv", (size_t)build->size * build->count,
                                   in_place ? WEFT_SLOT_INOUT : WEFT_SLOT_OUTPUT);
    for (int r = 0; r < build->size; r++) {
        int own = in_place && r == build->rank;
        weft__build_result(build, weft__build_blocks(build, build->recv, r, r + 1),
                           own ? "recv" : "send", own ? (size_t)r * build->count : 0, r, 1);
    }
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
};

static const struct weft__algorithm impl[] = {
    {.build = binomial, .cost = weft__cost_block_tree},
    {.build = linear, .cost = weft__cost_block_star},
};

const struct weft__template weft__gather_template = {
    .public = {.name = "gather",
               .summary = "the root gets the blocks of all ranks",
               .parameters = "count dtype root algo segment",
               .result = "recv[r count + i] on the root: send[i] of rank r",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_ROOT | WEFT__USES_DATA | WEFT__BLOCKS,
    .slots = slots,
};
