/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduce: the root gets the combination of all contributions. */
#include "schedules/common/butterfly.h"

static struct weft_region contribution(const struct weft__build *build)
{
    /* In place "recv" holds it, on the root. */
    return weft_region_at(build->send >= 0 ? build->send : build->recv, 0, build->count);
}

/* Where a rank with something to combine puts it. */
static struct weft_region accumulator(struct weft__build *build)
{
    if (build->rank == build->root)
        return weft_region_at(build->recv, 0, build->count);
    return weft__build_scratch(build, build->count);
}

/* Up a tree, whatever it is. */
static void along(struct weft__build *build, const struct weft__tree *tree)
{
    struct weft__group all = {.size = build->size, .me = build->rank};
    struct weft_region current = contribution(build), acc = current;
    if (tree->child_count || build->rank == build->root)
        acc = accumulator(build);
    weft__tree_combine_up(build, &all, tree, &current, acc, 0);
    if (build->rank == build->root)
        weft__build_copy(build, acc, current);
}

static void binomial(struct weft__build *build)
{
    struct weft__tree tree;
    weft__tree_make(&tree, build->rank, build->size, build->root);
    along(build, &tree);
}

static void k_nomial(struct weft__build *build)
{
    struct weft__tree tree;
    weft__knomial_make(&tree, build->rank, build->size, build->root,
                       weft__radix(build->radix, WEFT__RADIX));
    along(build, &tree);
}

static void bine(struct weft__build *build)
{
    struct weft__tree tree;
    weft__bine_tree_make(&tree, build->rank, build->size, build->root);
    along(build, &tree);
}

/* What comes of a segment from one side, combined with what is there: in the order of ranks. */
static struct weft_region take_side(struct weft__build *build, size_t segment, int side,
                                    struct weft_region other, struct weft_region current,
                                    struct weft_region acc)
{
    struct weft_region theirs = weft__segment_at(build, other, segment);
    struct weft_region mine = weft__segment_at(build, current, segment);
    int first = side < build->rank;
    weft__build_recv_segment(build, other, segment, side, 0);
    weft__build_reduce(build, weft__segment_at(build, acc, segment), first ? theirs : mine,
                       first ? mine : theirs);
    return acc;
}

/* One rank of a chain towards the root: what comes from behind, combined with the own part, goes
 * on, segment by segment. */
static void link_of_chain(struct weft__build *build, int behind, int ahead)
{
    struct weft_region own = contribution(build);
    if (behind < 0 || behind >= build->size) {
        weft__build_send(build, own, ahead, 0);
        return;
    }
    struct weft_region other = weft__build_scratch(build, build->count);
    struct weft_region acc = accumulator(build);
    size_t segments = weft__segment_count(build, build->count);
    for (size_t i = 0; i < segments && !build->status; i++) {
        take_side(build, i, behind, other, own, acc);
        weft__build_send_segment(build, acc, i, ahead, 0);
    }
}

/* The left side, the own part, the right side; on to the parent, segment by segment. */
static void binary_tree(struct weft__build *build)
{
    struct weft__inorder tree;
    struct weft_region own = contribution(build), left = own, right = own, acc = own;
    weft__inorder_make_rooted(&tree, build->rank, build->size, build->root);
    if (tree.left >= 0)
        left = weft__build_scratch(build, build->count);
    if (tree.right >= 0)
        right = weft__build_scratch(build, build->count);
    if (tree.left >= 0 || tree.right >= 0 || build->rank == build->root)
        acc = accumulator(build);
    size_t segments = weft__segment_count(build, build->count);
    for (size_t i = 0; i < segments && !build->status; i++) {
        struct weft_region current = own;
        if (tree.left >= 0)
            current = take_side(build, i, tree.left, left, current, acc);
        if (tree.right >= 0)
            current = take_side(build, i, tree.right, right, current, acc);
        if (tree.parent >= 0)
            weft__build_send_segment(build, current, i, tree.parent, 0);
    }
    if (build->size == 1)
        weft__build_copy(build, acc, own);
}

/* Two chains, 0 -> root and P - 1 -> root: each keeps the order of ranks, whatever the root. */
static void chain(struct weft__build *build)
{
    int rank = build->rank, root = build->root;
    if (rank < root) {
        link_of_chain(build, rank - 1, rank + 1);
    } else if (rank > root) {
        link_of_chain(build, rank + 1, rank - 1);
    } else {
        struct weft_region current = contribution(build);
        struct weft_region recv = weft_region_at(build->recv, 0, build->count);
        if (root > 0) {
            weft__build_recv_reduce(build, recv, current, root - 1, 0, 1);
            current = recv;
        }
        if (root < build->size - 1) {
            weft__build_recv_reduce(build, recv, current, root + 1, 0, 0);
            current = recv;
        }
        weft__build_copy(build, recv, current);
    }
}

/* Each participant combines the part of its position, and the root collects these. */
static void halve_and_collect(struct weft__build *build, enum weft__numbering numbering)
{
    struct weft__group group = {.size = build->size, .me = build->rank};
    struct weft__butterfly all;
    weft__butterfly_make(&all, &group, numbering, build->root);
    struct weft_region current = contribution(build), acc = current;
    if (all.me >= 0)
        acc = accumulator(build);
    weft__butterfly_reserve(build, &all, build->count, all.partner >= 0);
    if (!weft__butterfly_fold_in(build, &all, &current, acc, 0))
        return;
    weft__butterfly_reduce_scatter(build, &all, 0, &current, acc, 0);
    weft__butterfly_gather(build, &all, weft__butterfly_participant(&all, build->root), acc, 1);
    if (build->rank == build->root)
        weft__build_copy(build, acc, current);
}

static void reduce_scatter_gather(struct weft__build *build)
{
    halve_and_collect(build, WEFT__NEAREST);
}

static void bine_reduce_scatter_gather(struct weft__build *build)
{
    halve_and_collect(build, WEFT__BINE);
}

static double binomial_cost(const struct weft__shape *shape)
{
    return weft__log2_ceil(shape->size) * weft__cost_combine(shape, (double)shape->bytes);
}

static double k_nomial_cost(const struct weft__shape *shape)
{
    return weft__cost_knomial(shape, (double)shape->bytes, 1);
}

/* Every rank takes in a segment twice. */
static double binary_tree_cost(const struct weft__shape *shape)
{
    return 2 * weft__cost_chain(shape, (double)shape->bytes,
                                weft__inorder_height(shape->size, shape->root), 1);
}

static int binary_tree_rounds(const struct weft__shape *shape)
{
    return weft__inorder_height(shape->size, shape->root);
}

static size_t binary_tree_segment(const struct weft__shape *shape)
{
    return weft__segment_chain(shape, (double)shape->bytes,
                               weft__inorder_height(shape->size, shape->root), 1);
}

/* The longer chain, and what the root takes from the other one. */
static int longest(const struct weft__shape *shape)
{
    int below = shape->root, above = shape->size - 1 - shape->root;
    return below > above ? below : above;
}

static double chain_cost(const struct weft__shape *shape)
{
    double cost = weft__cost_chain(shape, (double)shape->bytes, longest(shape), 1);
    if (shape->root > 0 && shape->root < shape->size - 1)
        cost += weft__cost_combine(shape, (double)shape->bytes);
    return cost;
}

static size_t chain_segment(const struct weft__shape *shape)
{
    return weft__segment_chain(shape, (double)shape->bytes, longest(shape), 1);
}

static double reduce_scatter_gather_cost(const struct weft__shape *shape)
{
    double bytes = (double)shape->bytes;
    return weft__cost_halving(shape, shape->size, bytes, 1) +
           weft__cost_halving(shape, shape->size, bytes, 0) + weft__cost_fold(shape, bytes, 0);
}

/* In place is the root's affair: its contribution is where the result goes. */
static void slots(struct weft__build *build)
{
    int root = weft__build_is_root(build), in_place = build->in_place && root;
    if (!in_place)
        build->send = weft__build_slot(build, "send", build->count, WEFT_SLOT_INPUT);
    if (!root)
        return;
    build->recv = weft__build_slot(build, "recv", build->count,
                                   in_place ? WEFT_SLOT_INOUT : WEFT_SLOT_OUTPUT);
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = weft_region_at(build->recv, 0, build->count),
                                 .from = "send",
                                 .own = in_place ? "recv" : NULL,
                                 .ranks = build->size,
                                 .op = build->size > 1 ? build->op : NULL};
    weft_schedule_add_result(build->schedule, &result);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "binomial",
     .cost = "ceil(log2 P)(alpha + m beta + m gamma)",
     .notes = "a balanced binary tree over contiguous ranges of ranks, lower ranks left; the order "
              "does not depend on the root, and is the same in every run",
     .ordered = 1},
    {.name = "chain",
     .cost = "(h - 1 + k)(alpha + m/k (beta + gamma)), h = max(root, P - 1 - root), k segments; "
             "0 < root < P - 1: + alpha + m (beta + gamma)",
     .notes = "((0 + 1) + ...) + root from below, root + (... + (P-2 + P-1)) from above; the same "
              "in every run; segments by cost: k = sqrt((h - 1) m (beta + gamma) / alpha)",
     .ordered = 1},
    {.name = "reduce-scatter-gather",
     .cost = "2 log2 P alpha + (P - 1)/P (2 m beta + m gamma); P no power of two: + alpha + m "
             "(beta + gamma)",
     .notes = "every element: a balanced binary tree over contiguous participants, lower ranks "
              "left; the same in every run. Rabenseifner, ICCS 2004; halves the nearest first to "
              "keep the order of ranks",
     .ordered = 1},
    {.name = "bine",
     .cost = "ceil(log2 P)(alpha + m beta + m gamma)",
     .notes = "a Bine tree, whose parents are a third nearer; the same in every run. De Sensi et "
              "al., Bine Trees, SC 2025",
     .ordered = 0},
    {.name = "bine-reduce-scatter-gather",
     .cost = "2 log2 P alpha + (P - 1)/P (2 m beta + m gamma); P no power of two: + alpha + m "
             "(beta + gamma)",
     .notes = "reduce-scatter-gather along a Bine butterfly: long messages go to near ranks; the "
              "same in every run. De Sensi et al., Bine Trees, SC 2025",
     .ordered = 0},
    {.name = "k-nomial",
     .cost = "(k - 1) ceil(logk P)(alpha + m beta + m gamma), k: the radix",
     .notes =
         "a tree over contiguous ranges of ranks in k parts (4), lower ranks left; the same in "
         "every run",
     .ordered = 1},
    {.name = "binary-tree",
     .cost =
         "2 (d - 1 + k)(alpha + m/k (beta + gamma)), d = floor(log2 h) + 1, h = max(root, P - 1 - "
         "root), k segments",
     .notes =
         "a binary tree in the order of ranks, the root on top: (left + own) + right; the same "
         "in every run; segments by cost: k = sqrt((d - 1) m (beta + gamma) / alpha)",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = binomial, .cost = binomial_cost, .goes = WEFT__FEW_BUSY},
    {.build = chain, .cost = chain_cost, .segment = chain_segment, .goes = WEFT__FEW_BUSY},
    {.build = reduce_scatter_gather, .cost = reduce_scatter_gather_cost},
    {.build = bine, .cost = binomial_cost, .goes = WEFT__FEW_BUSY},
    {.build = bine_reduce_scatter_gather, .cost = reduce_scatter_gather_cost},
    {.build = k_nomial,
     .cost = k_nomial_cost,
     .goes = WEFT__FEW_BUSY,
     .rounds = weft__radix_rounds},
    {.build = binary_tree,
     .cost = binary_tree_cost,
     .segment = binary_tree_segment,
     .goes = WEFT__FEW_BUSY,
     .rounds = binary_tree_rounds},
};

const struct weft__template weft__reduce_template = {
    .public = {.name = "reduce",
               .summary = "the root gets the combination of all contributions",
               .parameters = "count dtype op root algo segment radix",
               .result = "recv[i] on the root: send[i] of ranks 0 .. P-1 combined",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_OP | WEFT__USES_ROOT | WEFT__USES_DATA,
    .slots = slots,
};
