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
    int lo = 0, hi = size, leader = root;
    *tree = (struct weft__tree){.parent = -1, .hi = size};
    while (hi - lo > 1) {
        int middle = lo + (hi - lo + 1) / 2;
        int upper_leads = leader >= middle;
        int other = upper_leads ? lo : middle; /* leader of the half without the leader */
        int other_lo = upper_leads ? lo : middle, other_hi = upper_leads ? middle : hi;
        if (index >= other_lo && index < other_hi) {
            if (index == other) {
                tree->parent = leader;
                tree->lo = other_lo;
                tree->hi = other_hi;
            }
            leader = other;
            lo = other_lo;
            hi = other_hi;
        } else {
            if (index == leader)
                tree->child[tree->child_count++] =
                    (struct weft__tree_child){other, other_lo, other_hi};
            lo = upper_leads ? middle : lo;
            hi = upper_leads ? hi : middle;
        }
    }
}

/* The middle of a range, its leader; -1: it is empty. */
static int middle_of(int lo, int hi)
{
    return lo < hi ? lo + (hi - lo) / 2 : -1;
}

void weft__inorder_make(struct weft__inorder *tree, int index, int size)
{
    int lo = 0, hi = size, parent = -1, middle = middle_of(lo, hi);
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
