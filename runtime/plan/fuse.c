/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds receives that may be reduced as they arrive.
 *
 *   recv tmp  ->  reduce dst = a op tmp
 *
 * If nobody else ever looks at what this receive puts into tmp, the payload need not be put there:
 * if the reduce waits for nothing else when the message arrives, dst is computed straight from the
 * sender's memory; else the payload is copied to tmp as the graph says. What must be shown is that
 * no other node reads these bytes of tmp. So the nodes that touch this scratch region are listed by
 * region; the region qualifies if no other region overlaps it, and its nodes are, in the order of
 * creation, pairs (receive, reduce) with an edge inside each pair and an edge from each reduce to
 * the next pair's receive: then everything that touches it stands in one chain.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/search.h"
#include "runtime/plan/plan.h"
#include <stdlib.h>

struct access {
    uint32_t slot;
    uint32_t node;
    size_t begin; /* bytes */
    size_t end;
};

static int compare_access(const void *left, const void *right)
{
    const struct access *a = left;
    const struct access *b = right;
    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return a->node < b->node ? -1 : a->node > b->node;
}

static int has_edge(const struct weft_plan *plan, uint32_t before, uint32_t after)
{
    uint32_t low = plan->first[before];
    uint32_t high = plan->first[before + 1];
    WEFT__SEARCH(low, high, middle, plan->after[middle] < after)
    return low < plan->first[before + 1] && plan->after[low] == after;
}

/* Is the pair an exact receive followed by an ALL reduce of just that region? */
static int is_pair(const struct weft_plan *plan, const struct access *receive,
                   const struct access *reduce)
{
    const struct weft__node *r = &plan->nodes[receive->node];
    const struct weft__node *c = &plan->nodes[reduce->node];
    if (r->kind != WEFT_NODE_RECV || (r->flags & WEFT__UP_TO) || c->kind != WEFT_NODE_REDUCE ||
        (plan->waits[reduce->node] & WEFT__ANY) || !has_edge(plan, receive->node, reduce->node))
        return 0;
    const struct weft__region *received = &plan->regions[r->regions];
    const struct weft__region *operand = &plan->regions[c->regions];
    if (received->value != 0 || operand[0].value != 0 || operand[1].value != 0 ||
        operand[2].value != 0)
        return 0;
    int reads = 0;
    for (int i = 1; i <= 2; i++)
        reads += operand[i].slot == received->slot && operand[i].offset == received->offset;
    int writes = operand[0].slot == received->slot && operand[0].offset == received->offset;
    return reads == 1 && !writes;
}

/* The accesses [i, j) have the same region. */
static void fuse_group(struct weft_plan *plan, const struct access *accesses, size_t i, size_t j)
{
    if ((j - i) % 2 != 0)
        return;
    for (size_t k = i; k < j; k += 2)
        if (!is_pair(plan, &accesses[k], &accesses[k + 1]) ||
            (k > i && !has_edge(plan, accesses[k - 1].node, accesses[k].node)))
            return;
    for (size_t k = i; k < j; k += 2) {
        struct weft__node *receive = &plan->nodes[accesses[k].node];
        receive->flags |= WEFT__FUSED;
        plan->plain = 0;
        receive->op = accesses[k + 1].node;
    }
}

int weft__plan_fuse(struct weft_plan *plan)
{
    size_t count = 0;
    size_t reduces = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        count += plan->nodes[n].region_count;
        reduces += plan->nodes[n].kind == WEFT_NODE_REDUCE;
    }
    if (plan->recv_count == 0 || reduces == 0)
        return WEFT_OK;
    struct access *accesses = weft__malloc(count, sizeof *accesses);
    if (!accesses)
        return weft__error_memory("a plan");
    count = 0;
    for (uint32_t n = 0; n < plan->node_count; n++)
        for (uint32_t r = 0; r < plan->nodes[n].region_count; r++) {
            const struct weft__region *region = &plan->regions[plan->nodes[n].regions + r];
            const struct weft__slot *slot = &plan->slots[region->slot];
            if (slot->kind != WEFT_SLOT_SCRATCH || region->bytes == 0)
                continue;
            accesses[count++] =
                (struct access){region->slot, n, region->offset, region->offset + region->bytes};
        }
    qsort(accesses, count, sizeof *accesses, compare_access);
    size_t reach = 0; /* end of what came before in this slot */
    for (size_t i = 0, j; i < count; i = j) {
        int overlaps =
            i > 0 && accesses[i - 1].slot == accesses[i].slot && reach > accesses[i].begin;
        if (i == 0 || accesses[i - 1].slot != accesses[i].slot || accesses[i].end > reach)
            reach = accesses[i].end;
        for (j = i + 1;
             j < count && accesses[j].slot == accesses[i].slot &&
             accesses[j].begin == accesses[i].begin && accesses[j].end == accesses[i].end;
             j++)
            ;
        if (j < count && accesses[j].slot == accesses[i].slot && accesses[j].begin < reach)
            overlaps = 1;
        if (!overlaps)
            fuse_group(plan, accesses, i, j);
    }
    weft__free(accesses);
    return WEFT_OK;
}
