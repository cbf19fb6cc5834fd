/* SPDX-License-Identifier: BSD-3-Clause */
/* Broadcast: every rank gets the root's buffer. */
#include <math.h>

#include "schedules/common/butterfly.h"

static struct weft_region whole(const struct weft__build *build)
{
    return weft_region_at(build->recv, 0, build->count);
}

static void binomial(struct weft__build *build)
{
    struct weft__group all = {.size = build->size, .me = build->rank};
    weft__tree_broadcast(build, &all, build->root, whole(build), 0);
}

static void k_nomial(struct weft__build *build)
{
    struct weft__group all = {.size = build->size, .me = build->rank};
    struct weft__tree tree;
    weft__knomial_make(&tree, build->rank, build->size, build->root,
                       weft__radix(build->radix, WEFT__RADIX));
    weft__tree_send_down(build, &all, &tree, whole(build), 0);
}

/* A segment goes on to both sides as soon as it is there. */
static void binary_tree(struct weft__build *build)
{
    struct weft__group all = {.size = build->size, .me = build->rank};
    struct weft__inorder place;
    struct weft__tree tree = {.child_count = 0};
    weft__inorder_make_rooted(&place, build->rank, build->size, build->root);
    tree.parent = place.parent;
    if (place.left >= 0)
        tree.child[tree.child_count++].index = place.left;
    if (place.right >= 0)
        tree.child[tree.child_count++].index = place.right;
    weft__tree_send_down(build, &all, &tree, whole(build), 0);
}

/* root, root + 1, ... around: a segment goes on as soon as it is there. */
static void chain(struct weft__build *build)
{
    int size = build->size, place = (build->rank - build->root + size) % size;
    int next = (build->rank + 1) % size, before = (build->rank + size - 1) % size;
    struct weft_region region = whole(build);
    size_t segments = weft__segment_count(build, region.count);
    for (size_t i = 0; i < segments && !build->status; i++) {
        if (place > 0)
            weft__build_recv_segment(build, region, i, before, 0);
        if (place < size - 1)
            weft__build_send_segment(build, region, i, next, 0);
    }
}

/* Elements of blocks lo .. hi-1 of P. */
static struct weft_region blocks(const struct weft__build *build, int lo, int hi)
{
    size_t begin = weft__block_offset(build->count, build->size, lo);
    size_t end = weft__block_offset(build->count, build->size, hi);
    return weft_region_at(build->recv, begin, end - begin);
}

/*
 * The root's blocks go down the tree, each subtree getting its own, and then around a ring. A block
 * that a rank got with its subtree is not sent to it again.
 */
static void scatter_allgather(struct weft__build *build)
{
    int size = build->size, rank = build->rank;
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    struct weft__tree mine, next;
    weft__tree_make(&mine, rank, size, build->root);
    weft__tree_make(&next, right, size, build->root);
    if (mine.parent >= 0)
        weft__build_recv(build, blocks(build, mine.lo, mine.hi), mine.parent, 0);
    for (int c = 0; c < mine.child_count; c++)
        weft__build_send(build, blocks(build, mine.child[c].lo, mine.child[c].hi),
                         mine.child[c].index, 0);
    for (int s = 0; s < size - 1; s++) {
        int out = (rank + size - s) % size, in = (rank + size - s - 1) % size;
        uint64_t message = (uint64_t)s + 1;
        if (out < next.lo || out >= next.hi)
            weft__build_send(build, blocks(build, out, out + 1), right, message);
        if (in < mine.lo || in >= mine.hi)
            weft__build_recv(build, blocks(build, in, in + 1), left, message);
    }
}

/* Each participant gets the part of its position, and then all of them along the same butterfly. */
static void halve_and_gather(struct weft__build *build, enum weft__numbering numbering)
{
    struct weft__group group = {.size = build->size, .me = build->rank};
    struct weft__butterfly all;
    weft__butterfly_make(&all, &group, numbering, build->root);
    if (all.me >= 0) {
        int root = weft__butterfly_participant(&all, build->root);
        weft__butterfly_scatter(build, &all, root, whole(build), 0);
        weft__butterfly_allgather(build, &all, 0, whole(build), root, 1);
    }
    weft__butterfly_fold_out(build, &all, whole(build), 0);
}

static void scatter_doubling(struct weft__build *build)
{
    halve_and_gather(build, WEFT__FARTHEST);
}

static void bine_scatter_doubling(struct weft__build *build)
{
    halve_and_gather(build, WEFT__BINE);
}

static void bine(struct weft__build *build)
{
    struct weft__group all = {.size = build->size, .me = build->rank};
    struct weft__tree tree;
    weft__bine_tree_make(&tree, build->rank, build->size, build->root);
    weft__tree_send_down(build, &all, &tree, whole(build), 0);
}

static double binomial_cost(const struct weft__shape *shape)
{
    double bytes = (double)shape->bytes;
    return fmax(weft__log2_ceil(shape->size) * weft__cost_message(shape, bytes),
                weft__cost_spread(shape, bytes));
}

static int binomial_rounds(const struct weft__shape *shape)
{
    return weft__log2_ceil(shape->size);
}

static double k_nomial_cost(const struct weft__shape *shape)
{
    double bytes = (double)shape->bytes;
    return fmax(weft__cost_knomial(shape, bytes, 0), weft__cost_spread(shape, bytes));
}

/* Every rank passes a segment on twice. */
static double binary_tree_cost(const struct weft__shape *shape)
{
    return 2 * weft__cost_chain(shape, (double)shape->bytes,
                                weft__inorder_height(shape->size, shape->root), 0);
}

static int binary_tree_rounds(const struct weft__shape *shape)
{
    return weft__inorder_height(shape->size, shape->root);
}

static size_t binary_tree_segment(const struct weft__shape *shape)
{
    return weft__segment_chain(shape, (double)shape->bytes,
                               weft__inorder_height(shape->size, shape->root), 0);
}

static double chain_cost(const struct weft__shape *shape)
{
    return weft__cost_chain(shape, (double)shape->bytes, shape->size - 1, 0);
}

static size_t chain_segment(const struct weft__shape *shape)
{
    return weft__segment_chain(shape, (double)shape->bytes, shape->size - 1, 0);
}

static double scatter_allgather_cost(const struct weft__shape *shape)
{
    double cost = 0, bytes = (double)shape->bytes;
    int logs = weft__log2_ceil(shape->size);
    for (int k = 1; k <= logs; k++)
        cost += weft__cost_message(shape, ldexp(bytes, -k));
    return cost + (shape->size - 1) * weft__cost_message(shape, bytes / shape->size);
}

static double doubling_cost(const struct weft__shape *shape)
{
    double bytes = (double)shape->bytes;
    return 2 * weft__cost_halving(shape, shape->size, bytes, 0) + weft__cost_fold(shape, 0, bytes);
}

static void slots(struct weft__build *build)
{
    build->recv = weft__build_slot(build, "buffer", build->count, WEFT_SLOT_INOUT);
    weft__build_result(build, whole(build), "buffer", 0, build->root, 1);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "binomial",
     .cost = "ceil(log2 P) (alpha + m beta)",
     .notes = "the largest subtree is served first",
     .ordered = 1},
    {.name = "scatter-allgather",
     .cost = "(ceil(log2 P) + P - 1) alpha + 2 (P - 1)/P m beta",
     .notes = "van de Geijn; Barnett et al., SHPCC 1994",
     .ordered = 1},
    {.name = "chain",
     .cost = "(P - 2 + k)(alpha + m/k beta), k segments",
     .notes = "pipelined; segments by cost: k = sqrt((P - 2) m beta / alpha)",
     .ordered = 1},
    {.name = "scatter-doubling",
     .cost = "2 log2 P alpha + 2 (P - 1)/P m beta; P no power of two: + alpha + m beta",
     .notes = "halves of halves, and back by recursive doubling; a folded rank gets all in the "
              "end. Thakur, Rabenseifner, Gropp, IJHPCA 2005, 4.2",
     .ordered = 1},
    {.name = "bine",
     .cost = "ceil(log2 P) (alpha + m beta)",
     .notes = "a Bine tree, whose parents are a third nearer; the farthest child is served first. "
              "De Sensi et al., Bine Trees, SC 2025",
     .ordered = 1},
    {.name = "bine-scatter-doubling",
     .cost = "2 log2 P alpha + 2 (P - 1)/P m beta; P no power of two: + alpha + m beta",
     .notes = "scatter-doubling along a Bine butterfly: each message is contiguous, long ones go "
              "to near ranks. De Sensi et al., Bine Trees, SC 2025",
     .ordered = 1},
    {.name = "k-nomial",
     .cost = "(k - 1) ceil(logk P) (alpha + m beta), k: the radix",
     .notes = "ranges of ranks are cut into k parts (4): ceil(logk P) messages in a row, where "
              "latency is more than what a sender pays for a message",
     .ordered = 1},
    {.name = "binary-tree",
     .cost =
         "2 (d - 1 + k)(alpha + m/k beta), d = floor(log2 h) + 1, h = max(root, P - 1 - root), k "
         "segments",
     .notes = "pipelined; segments by cost: k = sqrt((d - 1) m beta / alpha)",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = binomial, .cost = binomial_cost, .goes = WEFT__FEW_BUSY, .rounds = binomial_rounds},
    {.build = scatter_allgather, .cost = scatter_allgather_cost},
    {.build = chain, .cost = chain_cost, .segment = chain_segment, .goes = WEFT__FEW_BUSY},
    {.build = scatter_doubling, .cost = doubling_cost},
    {.build = bine, .cost = binomial_cost, .goes = WEFT__FEW_BUSY, .rounds = binomial_rounds},
    {.build = bine_scatter_doubling, .cost = doubling_cost},
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

const struct weft__template weft__broadcast_template = {
    .public = {.name = "broadcast",
               .summary = "every rank gets the root's buffer",
               .parameters = "count dtype root algo segment radix",
               .result = "buffer[i] on every rank: buffer[i] of the root",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_ROOT | WEFT__USES_DATA,
    .slots = slots,
};
