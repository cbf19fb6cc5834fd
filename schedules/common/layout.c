/* SPDX-License-Identifier: BSD-3-Clause */
/* Who talks to whom: blocks, powers of two, trees over ranges of ranks. */
#include "schedules/common/template.h"

size_t weft__block_offset(size_t count, int n, int i)
{
    size_t parts = (size_t)n, index = (size_t)i;
    size_t longer = count % parts;
    return count / parts * index + (index < longer ? index : longer);
}

int weft__power_below(int size, int *exponent)
{
    int log = 0;
    while ((size >> log) > 1)
        log++;
    if (exponent)
        *exponent = log;
    return 1 << log;
}

void weft__tree_make(struct weft__tree *tree, int index, int size, int root)
{
    weft__knomial_make(tree, index, size, root, 2);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Part number `part` of a range, led by its first. */
static struct weft__tree_child part_of(int lo, int hi, int parts, int part)
{
    int begin = lo + (int)weft__block_offset((size_t)(hi - lo), parts, part);
    int end = lo + (int)weft__block_offset((size_t)(hi - lo), parts, part + 1);
    return (struct weft__tree_child){begin, begin, end};
}

/*
 * Ranges are added as they lie, the outermost first, above the own part before below it. Taken from
 * the end, each child is then next to what was taken before it: the order of ranks is kept.
 */
void weft__knomial_make(struct weft__tree *tree, int index, int size, int root, int radix)
{
    int lo = 0, hi = size, leader = root;
    *tree = (struct weft__tree){.parent = -1, .hi = size};
    while (hi - lo > 1) {
        int parts = least(radix, hi - lo), own = 0, mine = 0;
        for (int p = 0; p < parts; p++) {
            struct weft__tree_child part = part_of(lo, hi, parts, p);
            own = leader >= part.lo && leader < part.hi ? p : own;
            mine = index >= part.lo && index < part.hi ? p : mine;
        }
        for (int p = parts - 1; p > own && index == leader; p--)
            tree->child[tree->child_count++] = part_of(lo, hi, parts, p);
        for (int p = 0; p < own && index == leader; p++)
            tree->child[tree->child_count++] = part_of(lo, hi, parts, p);
        struct weft__tree_child next = part_of(lo, hi, parts, mine);
        if (mine != own && index == next.index) {
            tree->parent = leader;
            tree->lo = next.lo;
            tree->hi = next.hi;
        }
        leader = mine == own ? leader : next.index;
        lo = next.lo;
        hi = next.hi;
    }
}

/* The middle of a range, its leader; -1: it is empty. */
static int middle_of(int lo, int hi)
{
    return lo < hi ? lo + (hi - lo) / 2 : -1;
}

/* Within a range that hangs on `parent`. */
static void inorder_within(struct weft__inorder *tree, int index, int lo, int hi, int parent)
{
    int middle = middle_of(lo, hi);
    while (middle != index) {
        parent = middle;
        if (index < middle)
            hi = middle;
        else
            lo = middle + 1;
        middle = middle_of(lo, hi);
    }
    *tree = (struct weft__inorder){.parent = parent,
                                   .left = middle_of(lo, index),
                                   .right = middle_of(index + 1, hi),
                                   .lo = lo,
                                   .hi = hi};
}

void weft__inorder_make(struct weft__inorder *tree, int index, int size)
{
    inorder_within(tree, index, 0, size, -1);
}

void weft__inorder_make_rooted(struct weft__inorder *tree, int index, int size, int root)
{
    if (index < root)
        inorder_within(tree, index, 0, root, root);
    else if (index > root)
        inorder_within(tree, index, root + 1, size, root);
    else
        *tree = (struct weft__inorder){.parent = -1,
                                       .left = middle_of(0, root),
                                       .right = middle_of(root + 1, size),
                                       .hi = size};
}

int weft__inorder_height(int size, int root)
{
    int longer = root > size - 1 - root ? root : size - 1 - root, log = 0;
    if (longer > 0)
        weft__power_below(longer, &log);
    return longer > 0 ? log + 1 : 0;
}

void weft__tree_broadcast(struct weft__build *build, const struct weft__group *group, int root,
                          struct weft_region region, uint64_t message)
{
    struct weft__tree tree;
    weft__tree_make(&tree, group->me, group->size, root);
    weft__tree_send_down(build, group, &tree, region, message);
}

void weft__tree_send_down(struct weft__build *build, const struct weft__group *group,
                          const struct weft__tree *tree, struct weft_region region,
                          uint64_t message)
{
    size_t segments = weft__segment_count(build, region.count);
    for (size_t i = 0; i < segments && !build->status; i++) {
        if (tree->parent >= 0)
            weft__build_recv_segment(build, region, i, weft__group_rank(group, tree->parent),
                                     message);
        for (int c = 0; c < tree->child_count; c++)
            weft__build_send_segment(build, region, i,
                                     weft__group_rank(group, tree->child[c].index), message);
    }
}

void weft__tree_reduce(struct weft__build *build, const struct weft__group *group, int root,
                       struct weft_region *current, struct weft_region acc, uint64_t message)
{
    struct weft__tree tree;
    weft__tree_make(&tree, group->me, group->size, root);
    weft__tree_combine_up(build, group, &tree, current, acc, message);
}

void weft__tree_combine_up(struct weft__build *build, const struct weft__group *group,
                           const struct weft__tree *tree, struct weft_region *current,
                           struct weft_region acc, uint64_t message)
{
    size_t children = (size_t)tree->child_count;
    weft__build_reserve(build, children * acc.count, children);
    for (int c = tree->child_count - 1; c >= 0; c--) {
        const struct weft__tree_child *child = &tree->child[c];
        weft__build_recv_reduce(build, acc, *current, weft__group_rank(group, child->index),
                                message, child->index < group->me);
        *current = acc;
    }
    if (tree->parent >= 0)
        weft__build_send(build, *current, weft__group_rank(group, tree->parent), message);
}
