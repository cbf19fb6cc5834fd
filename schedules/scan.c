/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scan: rank r gets the combination of the contributions of ranks 0 .. r. Exscan: of 0 .. r - 1,
 * and rank 0 nothing.
 *
 * A partial result stands for contiguous ranks, and what it is combined with begins where it ends:
 * so the order of ranks is kept.
 */
#include "schedules/common/template.h"

static struct weft_region contribution(const struct weft__build *build)
{
    return weft_region_at(build->in_place ? build->recv : build->send, 0, build->count);
}

static struct weft_region result(const struct weft__build *build)
{
    return weft_region_at(build->recv, 0, build->count);
}

/*
 * After k steps a rank has the combination of the 2^k ranks that end with it: it passes that on
 * 2^k ranks further, and takes in what ends before its own part begins. Each step's goes to a
 * place of its own, the last one's to recv, as in allreduce.
 */
static void scan_doubling(struct weft__build *build)
{
    struct weft_region current = contribution(build), recv = result(build);
    int rank = build->rank, size = build->size, receives = weft__log2_ceil(rank + 1);
    size_t parts = receives ? 2 * (size_t)receives - 1 : 0;
    weft__build_reserve(build, parts * build->count, parts);
    for (int k = 0; k < weft__log2_ceil(size); k++) {
        int step = 1 << k;
        if (rank < size - step)
            weft__build_send(build, current, rank + step, 0);
        if (k >= receives)
            continue;
        struct weft_region to = k < receives - 1 ? weft__build_scratch(build, build->count) : recv;
        weft__build_recv_reduce(build, to, current, rank - step, 0, 1);
        current = to;
    }
    weft__build_copy(build, recv, current);
}

/* What comes from the left, combined with the own part, is the result and goes on to the right,
 * segment by segment. */
static void scan_chain(struct weft__build *build)
{
    struct weft_region own = contribution(build), recv = result(build);
    int rank = build->rank, last = rank == build->size - 1;
    if (rank == 0) {
        if (!last)
            weft__build_send(build, own, 1, 0);
        weft__build_copy(build, recv, own);
        return;
    }
    struct weft_region before = weft__build_scratch(build, build->count);
    size_t segments = weft__segment_count(build, build->count);
    for (size_t i = 0; i < segments && !build->status; i++) {
        struct weft_region to = weft__segment_at(build, recv, i);
        weft__build_recv_segment(build, before, i, rank - 1, 0);
        weft__build_reduce(build, to, weft__segment_at(build, before, i),
                           weft__segment_at(build, own, i));
        if (!last)
            weft__build_send_segment(build, recv, i, rank + 1, 0);
    }
}

/* The contribution where nothing writes: in place it lies where the result goes. */
static struct weft_region kept(struct weft__build *build)
{
    struct weft_region own = contribution(build), copy;
    if (!build->in_place)
        return own;
    copy = weft__build_scratch(build, build->count);
    weft__build_copy_segments(build, copy, own);
    return copy;
}

/* Where the combination of what is before a rank goes that is complete with this many steps left:
 * to recv in the end, before that to a place of its own. */
static struct weft_region step_place(struct weft__build *build, int left)
{
    return left ? weft__build_scratch(build, build->count) : result(build);
}

/*
 * Two totals, without the own contribution and with it. The second is what others hear, as in
 * scan; what is heard goes before both.
 */
static void exscan_doubling(struct weft__build *build)
{
    struct weft_region with = contribution(build), before = with;
    int rank = build->rank, size = build->size, receives = weft__log2_ceil(rank + 1);
    if (receives == 1 && rank < size - 1)
        with = kept(build); /* the first thing heard is the result already */
    size_t parts = receives ? 3 * (size_t)receives - 2 : 0;
    weft__build_reserve(build, parts * build->count, parts);
    for (int k = 0; k < weft__log2_ceil(size); k++) {
        int step = 1 << k;
        if (rank < size - step)
            weft__build_send(build, with, rank + step, 0);
        if (k >= receives)
            continue;
        struct weft_region to = step_place(build, receives - 1 - k), other = to;
        if (k)
            other = weft__build_scratch(build, build->count);
        weft__build_recv(build, other, rank - step, 0);
        if (k)
            weft__build_reduce_segments(build, to, other, before);
        if (rank < size - step - step) { /* somebody hears of it */
            struct weft_region sum = weft__build_scratch(build, build->count);
            weft__build_reduce_segments(build, sum, other, with);
            with = sum;
        }
        before = to;
    }
}

/* How far the steps of 123-doubling reach: 1, 2, 3, 6, 12 ... */
static int reach(int k)
{
    return k < 2 ? k + 1 : 3 << (k - 2);
}

/* Its steps, for what `ranks` ranks before the last one have: `reach` doubles what is covered,
 * but 3 are covered after the second. */
static int steps_123(int ranks)
{
    int steps = 0;
    for (int64_t covered = 0; covered < ranks; steps++)
        covered = steps < 2 ? 2 * covered + 1 : 2 * covered;
    return steps;
}

/*
 * One total, without the own contribution: after steps that reach 1, 2, 3, 6, 12 ranks it is of 1,
 * 3, 6, 12 ... ranks. In the second step alone it is passed on with the own contribution.
 */
static void exscan_123(struct weft__build *build)
{
    struct weft_region own = contribution(build), before = own;
    int rank = build->rank, size = build->size;
    int steps = steps_123(size - 1), receives = steps_123(rank);
    if (receives == 1 && rank < size - 1)
        own = kept(build);
    size_t parts = receives ? 2 * (size_t)receives - 1 : 0;
    weft__build_reserve(build, parts * build->count, parts);
    for (int k = 0; k < steps; k++) {
        int step = reach(k);
        if (rank < size - step && (rank > 0 || k < 2)) {
            struct weft_region out = k && rank ? before : own;
            if (k == 1 && rank) {
                out = weft__build_scratch(build, build->count);
                weft__build_reduce_segments(build, out, before, own);
            }
            weft__build_send(build, out, rank + step, 0);
        }
        if (k >= receives)
            continue;
        struct weft_region to = step_place(build, receives - 1 - k);
        if (k)
            weft__build_recv_reduce(build, to, before, rank - step, 0, 1);
        else
            weft__build_recv(build, to, rank - step, 0);
        before = to;
    }
}

/* What comes from the left is the result; combined with the own part it goes on to the right. */
static void exscan_chain(struct weft__build *build)
{
    struct weft_region own = contribution(build), recv = result(build);
    int rank = build->rank, last = rank == build->size - 1;
    if (last && rank > 0)
        weft__build_recv(build, recv, rank - 1, 0);
    if (!last && rank == 0)
        weft__build_send(build, own, 1, 0);
    if (last || rank == 0)
        return;
    own = kept(build);
    struct weft_region sum = weft__build_scratch(build, build->count);
    size_t segments = weft__segment_count(build, build->count);
    for (size_t i = 0; i < segments && !build->status; i++) {
        weft__build_recv_segment(build, recv, i, rank - 1, 0);
        weft__build_reduce(build, weft__segment_at(build, sum, i), weft__segment_at(build, recv, i),
                           weft__segment_at(build, own, i));
        weft__build_send_segment(build, sum, i, rank + 1, 0);
    }
}

/* ---- the tree ---- */

/* What a rank of the tree hears and makes, and where; of 0 elements: it does not. */
struct known {
    struct weft_region own;
    struct weft_region left, right; /* of its subtrees */
    struct weft_region inner;       /* of the left subtree and itself */
    struct weft_region all;         /* of its whole subtree, for the parent */
    struct weft_region before;      /* of all ranks before its subtree */
    struct weft_region exclusive;   /* of all ranks before it: before and left */
    struct weft_region inclusive;   /* of these and itself: before and inner */
};

/* dst = a and b, of one segment. */
static void combine(struct weft__build *build, struct weft_region dst, struct weft_region a,
                    struct weft_region b, size_t i)
{
    if (dst.count)
        weft__build_reduce(build, weft__segment_at(build, dst, i), weft__segment_at(build, a, i),
                           weft__segment_at(build, b, i));
}

/* A segment on its way up: what the subtrees come to, and itself between them. */
static void ascend(struct weft__build *build, const struct weft__inorder *tree,
                   const struct known *known, size_t i)
{
    if (known->left.count) {
        weft__build_recv_segment(build, known->left, i, tree->left, 0);
        combine(build, known->inner, known->left, known->own, i);
    }
    if (known->right.count) {
        weft__build_recv_segment(build, known->right, i, tree->right, 0);
        combine(build, known->all, known->inner, known->right, i);
    }
    if (known->all.count)
        weft__build_send_segment(build, known->all, i, tree->parent, 0);
}

/* On its way down: what all ranks before the subtree come to, for the left subtree as it is. */
static void descend(struct weft__build *build, const struct weft__inorder *tree,
                    const struct known *known, size_t i)
{
    if (known->before.count) {
        weft__build_recv_segment(build, known->before, i, tree->parent, 0);
        if (tree->left >= 0)
            weft__build_send_segment(build, known->before, i, tree->left, 0);
        combine(build, known->exclusive, known->before, known->left, i);
        combine(build, known->inclusive, known->before, known->inner, i);
    }
    if (tree->right >= 0)
        weft__build_send_segment(build, known->inclusive, i, tree->right, 0);
}

static void tree_segments(struct weft__build *build, const struct weft__inorder *tree,
                          const struct known *known)
{
    size_t segments = weft__segment_count(build, build->count);
    for (size_t i = 0; i < segments && !build->status; i++) {
        ascend(build, tree, known, i);
        descend(build, tree, known, i);
    }
}

/* Nobody asks for the whole of a subtree that ends with the last rank, and nothing is before one
 * that begins with rank 0. */
static int goes_up(const struct weft__build *build, const struct weft__inorder *tree)
{
    return tree->hi < build->size;
}

static int comes_down(const struct weft__inorder *tree)
{
    return tree->lo > 0;
}

static void scan_tree(struct weft__build *build)
{
    struct weft__inorder tree;
    weft__inorder_make(&tree, build->rank, build->size);
    int up = goes_up(build, &tree), down = comes_down(&tree);
    struct weft_region none = {0}, recv = result(build), own = contribution(build);
    struct known known = {.own = own, .inner = own, .inclusive = recv};
    int left = tree.left >= 0, right = tree.right >= 0, sent = left && up && down && !right;
    size_t parts = (size_t)(left + down + sent + (up && right ? 2 : 0));
    weft__build_reserve(build, parts * build->count, parts);
    known.left = left ? weft__build_scratch(build, build->count) : none;
    known.before = down ? weft__build_scratch(build, build->count) : none;
    if (left) /* what is sent is not written over by the result */
        known.inner = sent ? weft__build_scratch(build, build->count) : recv;
    if (up) {
        known.all = known.inner;
        if (right) {
            known.right = weft__build_scratch(build, build->count);
            known.all = weft__build_scratch(build, build->count);
        }
    }
    tree_segments(build, &tree, &known);
    if (!down)
        weft__build_copy_segments(build, recv, known.inner);
}

static void exscan_tree(struct weft__build *build)
{
    struct weft__inorder tree;
    weft__inorder_make(&tree, build->rank, build->size);
    int up = goes_up(build, &tree), down = comes_down(&tree);
    struct weft_region recv = result(build), own = contribution(build);
    struct known known = {.own = own, .inner = own};
    int left = tree.left >= 0, right = tree.right >= 0;
    int passes = left && (up || right); /* what it comes to with the left */
    size_t parts = (size_t)(2 * (left && down) + passes + (up && right ? 2 : 0) + (right && down));
    if (passes && !down)
        known.own = kept(build); /* what comes from the left is the result already */
    weft__build_reserve(build, parts * build->count, parts);
    if (left) {
        known.left = down ? weft__build_scratch(build, build->count) : recv;
        known.inner = (struct weft_region){0};
        if (passes)
            known.inner = weft__build_scratch(build, build->count);
    }
    if (down) {
        known.before = left ? weft__build_scratch(build, build->count) : recv;
        known.exclusive = left ? recv : known.exclusive;
    }
    if (up) {
        known.all = known.inner;
        if (right) {
            known.right = weft__build_scratch(build, build->count);
            known.all = weft__build_scratch(build, build->count);
        }
    }
    if (right)
        known.inclusive = down ? weft__build_scratch(build, build->count) : known.inner;
    tree_segments(build, &tree, &known);
}

/* ---- costs ---- */

static double doubling_cost(const struct weft__shape *shape)
{
    return weft__log2_ceil(shape->size) * weft__cost_combine(shape, (double)shape->bytes);
}

/* Messages, and reductions of a rank in the middle; the last thing heard is combined once. */
static double exscan_cost(const struct weft__shape *shape, int messages, int reductions)
{
    double bytes = (double)shape->bytes, message = weft__cost_message(shape, bytes);
    double reduction = weft__cost_combine(shape, bytes) - message;
    return messages * message + reductions * reduction;
}

static double exscan_doubling_cost(const struct weft__shape *shape)
{
    int steps = weft__log2_ceil(shape->size);
    return exscan_cost(shape, steps, steps > 1 ? 2 * steps - 2 : 0);
}

static double exscan_123_cost(const struct weft__shape *shape)
{
    int steps = steps_123(shape->size - 1);
    return exscan_cost(shape, steps, shape->size > 3 ? steps : steps > 1 ? steps - 1 : 0);
}

static double chain_cost(const struct weft__shape *shape)
{
    return weft__cost_chain(shape, (double)shape->bytes, shape->size - 1, 1);
}

static size_t chain_segment(const struct weft__shape *shape)
{
    return weft__segment_chain(shape, (double)shape->bytes, shape->size - 1, 1);
}

/* A rank hears and says three things for each segment; a segment takes two steps a level up, where
 * it hears from both sides, and one down. */
static double tree_cost(const struct weft__shape *shape)
{
    int depth;
    weft__power_below(shape->size, &depth);
    return 3 * weft__cost_chain(shape, (double)shape->bytes, depth, 1);
}

/* Up, and down again. */
static int tree_rounds(const struct weft__shape *shape)
{
    int depth;
    weft__power_below(shape->size, &depth);
    return 2 * depth;
}

static size_t tree_segment(const struct weft__shape *shape)
{
    int depth;
    weft__power_below(shape->size, &depth);
    return weft__segment_chain(shape, (double)shape->bytes, depth, 1);
}

/* ---- the templates ---- */

static void scan_slots(struct weft__build *build)
{
    weft__build_pair(build, build->count, build->count);
    weft__build_result(build, result(build), build->in_place ? "recv" : "send", 0, 0,
                       build->rank + 1);
}

/* Rank 0 gets nothing, so it has no "recv", unless its contribution is there. */
static void exscan_slots(struct weft__build *build)
{
    if (build->rank > 0 || build->in_place) {
        weft__build_pair(build, build->count, build->count);
        weft__build_result(build, result(build), build->in_place ? "recv" : "send", 0, 0,
                           build->rank > 0 ? build->rank : 1);
    } else {
        build->send = weft__build_slot(build, "send", build->count, WEFT_SLOT_INPUT);
    }
}

#define TREE_COST "3 (d - 1 + k)(alpha + m/k (beta + gamma)), d = floor(log2 P), k segments"
#define TREE_NOTES                                                                                 \
    "the ranks before a subtree, then its left half, then the rank; 2 (P - 1) messages and about " \
    "as many reductions on all ranks together; the same in every run. Sanders, Traeff, "           \
    "EuroPVM/MPI "                                                                                 \
    "2006; segments by cost: k = sqrt((d - 1) m (beta + gamma) / alpha)"
#define CHAIN_COST "(P - 2 + k)(alpha + m/k (beta + gamma)), k segments"
#define CHAIN_NOTES                                                                                \
    "((0 + 1) + 2) + ...; the same in every run; segments by cost: "                               \
    "k = sqrt((P - 2) m (beta + gamma) / alpha)"

static const struct weft_algorithm scan_algorithms[] = {
    {.name = "recursive-doubling",
     .cost = "ceil(log2 P)(alpha + m beta + m gamma)",
     .notes =
         "on rank r the tree that halves r + 1 ranks from their end, lower ranks left; the same "
         "in every run. Hillis, Steele, CACM 1986",
     .ordered = 1},
    {.name = "binary-tree", .cost = TREE_COST, .notes = TREE_NOTES, .ordered = 1},
    {.name = "chain", .cost = CHAIN_COST, .notes = CHAIN_NOTES, .ordered = 1},
};

static const struct weft_algorithm exscan_algorithms[] = {
    {.name = "recursive-doubling",
     .cost = "ceil(log2 P)(alpha + m beta) + 2 (ceil(log2 P) - 1) m gamma",
     .notes =
         "two totals, without and with the own contribution; every element: what was heard last "
         "is combined with all before; the same in every run",
     .ordered = 1},
    {.name = "123-doubling",
     .cost = "q (alpha + m beta + m gamma), q = ceil(log2((P - 1) 4/3))",
     .notes =
         "steps that reach 1, 2, 3, 6, 12 ... ranks: a reduction a step, and one in the second; "
         "the same in every run. Traeff, 2025",
     .ordered = 1},
    {.name = "binary-tree", .cost = TREE_COST, .notes = TREE_NOTES, .ordered = 1},
    {.name = "chain", .cost = CHAIN_COST, .notes = CHAIN_NOTES, .ordered = 1},
};

static const struct weft__algorithm scan_impl[] = {
    {.build = scan_doubling, .cost = doubling_cost},
    {.build = scan_tree,
     .cost = tree_cost,
     .segment = tree_segment,
     .goes = WEFT__FEW_BUSY,
     .rounds = tree_rounds},
    {.build = scan_chain, .cost = chain_cost, .segment = chain_segment, .goes = WEFT__FEW_BUSY},
};

static const struct weft__algorithm exscan_impl[] = {
    {.build = exscan_doubling, .cost = exscan_doubling_cost},
    {.build = exscan_123, .cost = exscan_123_cost},
    {.build = exscan_tree,
     .cost = tree_cost,
     .segment = tree_segment,
     .goes = WEFT__FEW_BUSY,
     .rounds = tree_rounds},
    {.build = exscan_chain, .cost = chain_cost, .segment = chain_segment, .goes = WEFT__FEW_BUSY},
};

const struct weft__template weft__scan_template = {
    .public = {.name = "scan",
               .summary = "rank r gets the combination of the contributions of ranks 0 .. r",
               .parameters = "count dtype op algo segment",
               .result = "recv[i] on rank r: send[i] of ranks 0 .. r combined",
               .algorithms = scan_algorithms,
               .algorithm_count = sizeof scan_algorithms / sizeof scan_algorithms[0]},
    .impl = scan_impl,
    .flags = WEFT__USES_OP | WEFT__USES_DATA,
    .slots = scan_slots,
};

const struct weft__template weft__exscan_template = {
    .public = {.name = "exscan",
               .summary = "rank r gets the combination of the contributions of ranks 0 .. r-1",
               .parameters = "count dtype op algo segment",
               .result = "recv[i] on rank r > 0: send[i] of ranks 0 .. r-1 combined",
               .algorithms = exscan_algorithms,
               .algorithm_count = sizeof exscan_algorithms / sizeof exscan_algorithms[0]},
    .impl = exscan_impl,
    .flags = WEFT__USES_OP | WEFT__USES_DATA,
    .slots = exscan_slots,
};
