/* SPDX-License-Identifier: BSD-3-Clause */
/* Scatter: every rank gets its block of the root's. */
#include "schedules/common/template.h"

static struct weft_region own(const struct weft__build *build)
{
    return weft_region_at(build->recv, 0, build->count);
}

/* A subtree's blocks come as one range; the children's go on, the own one stays. */
static void binomial(struct weft__build *build)
{
    struct weft__tree tree;
    weft__tree_make(&tree, build->rank, build->size, build->root);
    struct weft_region range = own(build);
    if (weft__build_is_root(build))
        range = weft__build_blocks(build, build->send, 0, build->size);
    else if (tree.child_count)
        range = weft__build_scratch(build, (size_t)(tree.hi - tree.lo) * build->count);
    size_t skip = (size_t)tree.lo * build->count; /* what the range's slot does not hold */
    if (tree.parent >= 0)
        weft__build_recv(build, range, tree.parent, 0);
    for (int c = 0; c < tree.child_count; c++) {
        const struct weft__tree_child *child = &tree.child[c];
        struct weft_region out = weft__part(range, (size_t)child->lo * build->count - skip,
                                            (size_t)(child->hi - child->lo) * build->count);
        weft__build_send(build, out, child->index, 0);
    }
    if (build->recv >= 0 && range.slot != build->recv)
        weft__build_copy(
            build, own(build),
            weft__part(range, (size_t)build->rank * build->count - skip, build->count));
}

static void linear(struct weft__build *build)
{
    if (!weft__build_is_root(build)) {
        weft__build_recv(build, own(build), build->root, 0);
        return;
    }
    for (int i = 1; i < build->size; i++) {
        int to = (build->rank + i) % build->size;
        weft__build_send(build, weft__build_blocks(build, build->send, to, to + 1), to, 0);
    }
    if (build->recv >= 0)
        weft__build_copy(build, own(build),
                         weft__build_blocks(build, build->send, build->rank, build->rank + 1));
}

/* In place is the root's affair: its block stays in "send", which is only read, and it has no
 * "recv" and nothing to state. */
static void slots(struct weft__build *build)
{
    int in_place = build->in_place && weft__build_is_root(build);
    if (weft__build_is_root(build))
        build->send =
            weft__build_slot(build, "send", (size_t)build->size * build->count, WEFT_SLOT_INPUT);
    if (!in_place)
        build->recv = weft__build_slot(build, "recv", build->count, WEFT_SLOT_OUTPUT);
    if (!in_place)
        weft__build_result(build, own(build), "send", (size_t)build->rank * build->count,
                           build->root, 1);
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
};

static const struct weft__algorithm impl[] = {
    {.build = binomial, .cost = weft__cost_block_tree},
    {.build = linear, .cost = weft__cost_block_star},
};

const struct weft__template weft__scatter_template = {
    .public = {.name = "scatter",
               .summary = "every rank gets its block of the root's",
               .parameters = "count dtype root algo segment",
               .result = "recv[i] on rank r: send[r count + i] of the root",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_ROOT | WEFT__USES_DATA | WEFT__BLOCKS,
    .slots = slots,
};
