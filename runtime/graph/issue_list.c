/* SPDX-License-Identifier: BSD-3-Clause */
/* The lists that an order of issue is computed from: what a node has to tell, and the lists of all
 * ranks put together. */
#include "runtime/base/alloc.h"
#include "runtime/base/search.h"
#include "runtime/graph/issue.h"
#include "runtime/graph/joint.h"

#include <stdlib.h>
#include <string.h>

struct weft__issue_node weft__issue_joint(const struct weft__joint *joint, int rank,
                                          weft_dtype_t dtype, size_t first, uint32_t region_count)
{
    int place = weft__ranks_place(joint->ranks, rank);
    struct weft__joint_sides sides = weft__joint_sides(joint, place, region_count);
    size_t n = (size_t)joint->ranks->count;

    /* What a rank gives, by what its first region has. */
    if (joint->kind == WEFT_JOINT_COLLECT)
        first /= n;
    else if (joint->kind == WEFT_JOINT_FOLD_PARTS && sides.gives == 1)
        first *= n;
    return (struct weft__issue_node){.bytes = weft__joint_signature(joint, dtype, first),
                                     .peer = weft__joint_next(joint, rank),
                                     .tag = joint->tag,
                                     .kind = WEFT_NODE_COMPUTE,
                                     .flags = WEFT__ISSUE_JOINT | WEFT__ISSUE_IN_ORDER |
                                              WEFT__ISSUE_DEVICE,
                                     .place = place};
}

struct weft__issue_node weft__issue_node_of(const struct weft_schedule *schedule,
                                            const struct weft__snode *node)
{
    struct weft__issue_node out = {.peer = node->peer,
                                   .tag = node->tag,
                                   .kind = node->kind,
                                   .flags = node->any ? WEFT__ISSUE_ANY : 0};

    if (weft__snode_joint(node)) {
        const struct weft_region *region = &schedule->regions[node->regions];

        out = weft__issue_joint(weft__snode_joint(node), schedule->rank,
                                schedule->buffers[region->slot].dtype, region->count,
                                node->region_count);
        out.flags |= node->any ? WEFT__ISSUE_ANY : 0;
    }
    if (node->kind == WEFT_NODE_EVENT && node->choice >= 0)
        out.flags |= WEFT__ISSUE_CHOICE;
    if (node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV) {
        const struct weft_region *region = &schedule->regions[node->regions];
        const struct weft__buffer *buffer = &schedule->buffers[region->slot];

        out.bytes = region->count * weft_dtype_size(buffer->dtype);
        if (buffer->memory == WEFT_MEMORY_DEVICE)
            out.flags |= WEFT__ISSUE_DEVICE | (out.bytes > 0 ? WEFT__ISSUE_IN_ORDER : 0);
        if (region->value != 0 || node->up_to)
            out.flags |= WEFT__ISSUE_VARIES;
    }
    return out;
}

/* ---- the other ends ---- */

struct end {
    int32_t from, to;
    uint32_t tag, node;
};

static int compare_messages(const struct end *a, const struct end *b)
{
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return (a->tag > b->tag) - (a->tag < b->tag);
}

static int compare_ends(const void *left, const void *right)
{
    const struct end *a = left, *b = right;
    int order = compare_messages(a, b);

    return order ? order : (a->node > b->node) - (a->node < b->node);
}

static uint32_t collect(const struct weft__issue *issue, uint8_t kind, struct end *ends)
{
    uint32_t count = 0;

    for (int r = 0; r < issue->size; r++)
        for (uint32_t n = issue->base[r]; n < issue->base[r + 1]; n++) {
            const struct weft__issue_node *node = &issue->nodes[n];
            int send = kind == WEFT_NODE_SEND;

            if (node->kind == kind)
                ends[count++] =
                    (struct end){send ? r : node->peer, send ? node->peer : r, node->tag, n};
        }
    qsort(ends, count, sizeof *ends, compare_ends);
    return count;
}

static int match(const struct weft__issue *issue, uint32_t *partner)
{
    uint32_t nodes = issue->base[issue->size], send_count, recv_count, j = 0;
    struct end *sends = weft__malloc(nodes, sizeof *sends);
    struct end *recvs = weft__malloc(nodes, sizeof *recvs);

    memset(partner, 0xff, nodes * sizeof *partner);
    if (sends && recvs) {
        send_count = collect(issue, WEFT_NODE_SEND, sends);
        recv_count = collect(issue, WEFT_NODE_RECV, recvs);
        for (uint32_t i = 0; i < send_count; i++) {
            while (j < recv_count && compare_messages(&recvs[j], &sends[i]) < 0)
                j++;
            if (j == recv_count || compare_messages(&recvs[j], &sends[i]))
                continue;
            partner[sends[i].node] = recvs[j].node;
            partner[recvs[j++].node] = sends[i].node;
        }
    }
    weft__free(recvs);
    weft__free(sends);
    return sends && recvs ? 0 : -1;
}

/* ---- joint nodes ---- */

/* A joint node, and the rank, tag and signature by which the one before it in the ring names it. */
struct joint {
    uint64_t signature;
    int32_t rank;
    uint32_t tag, node;
    int32_t place;
};

static int compare_joints(const void *left, const void *right)
{
    const struct joint *a = left, *b = right;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    if (a->signature != b->signature)
        return a->signature < b->signature ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* Whether a ring comes back to where it began after as many as it has, in their order. */
static int is_ring(const struct weft__issue *issue, const uint32_t *partner, uint32_t first)
{
    uint32_t node = first;
    int32_t place = 0;

    do {
        if (issue->nodes[node].place != place++)
            return 0;
        node = partner[node];
    } while (node != WEFT__ISSUE_NONE && node != first);
    return node == first;
}

static void break_rings(const struct weft__issue *issue, uint32_t *partner, uint8_t *whole)
{
    uint32_t nodes = issue->base[issue->size];

    for (uint32_t n = 0; n < nodes; n++) {
        uint32_t node = n;

        if (!weft__issue_is_joint(issue, n) || issue->nodes[n].place != 0 ||
            !is_ring(issue, partner, n))
            continue;
        do {
            whole[node] = 1;
            node = partner[node];
        } while (node != n);
    }
    for (uint32_t n = 0; n < nodes; n++)
        if (weft__issue_is_joint(issue, n) && !whole[n])
            partner[n] = WEFT__ISSUE_NONE;
}

/* Joint nodes find the one that follows, by all that they have in common. */
static int match_joints(const struct weft__issue *issue, uint32_t *partner)
{
    uint32_t nodes = issue->base[issue->size], count = 0;
    struct joint *joints;
    uint8_t *whole;

    for (uint32_t n = 0; n < nodes; n++)
        count += (uint32_t)weft__issue_is_joint(issue, n);
    if (!count)
        return 0;
    joints = weft__malloc(count, sizeof *joints);
    whole = weft__calloc(nodes, 1);
    count = 0;
    for (int r = 0; r < issue->size && joints && whole; r++)
        for (uint32_t n = issue->base[r]; n < issue->base[r + 1]; n++)
            if (weft__issue_is_joint(issue, n))
                joints[count++] = (struct joint){issue->nodes[n].bytes, r, issue->nodes[n].tag, n,
                                                 issue->nodes[n].place};
    if (joints && whole) {
        qsort(joints, count, sizeof *joints, compare_joints);
        for (uint32_t i = 0; i < count; i++) {
            const struct weft__issue_node *node = &issue->nodes[joints[i].node];
            struct joint key = {joints[i].signature, node->peer, node->tag, 0, INT32_MIN};
            uint32_t low = 0, high = count;

            WEFT__SEARCH(low, high, middle, compare_joints(&joints[middle], &key) < 0)
            if (low < count && joints[low].rank == node->peer && joints[low].tag == node->tag &&
                joints[low].signature == node->bytes)
                partner[joints[i].node] = joints[low].node;
        }
        break_rings(issue, partner, whole);
    }
    weft__free(whole);
    weft__free(joints);
    return joints && whole ? 0 : -1;
}

/* ---- together ---- */

static void copy(struct weft__issue_joined *joined, const struct weft__issue_list *lists, int size)
{
    uint32_t edge = 0;

    for (int r = 0; r < size; r++) {
        const struct weft__issue_list *list = &lists[r];
        uint32_t base = joined->base[r];

        if (list->count)
            memcpy(joined->nodes + base, list->nodes, list->count * sizeof *list->nodes);
        for (uint32_t n = 0; n < list->count; n++) {
            joined->first[base + n] = edge;
            for (uint32_t e = list->first[n]; e < list->first[n + 1]; e++) {
                joined->after[edge++] = base + list->after[e];
                joined->waits[base + list->after[e]]++;
            }
        }
    }
    joined->first[joined->base[size]] = edge;
}

static int join(struct weft__issue_joined *joined, const struct weft__issue_list *lists, int size)
{
    uint64_t nodes = 0, edges = 0;

    joined->base = weft__malloc((size_t)size + 1, sizeof *joined->base);
    if (!joined->base)
        return -1;
    for (int r = 0; r < size; r++) {
        joined->base[r] = (uint32_t)nodes;
        nodes += lists[r].count;
        edges += lists[r].count ? lists[r].first[lists[r].count] : 0;
        if (nodes >= WEFT__ISSUE_NONE || edges >= WEFT__ISSUE_NONE)
            return -1;
    }
    joined->base[size] = (uint32_t)nodes;
    joined->nodes = weft__malloc(nodes, sizeof *joined->nodes);
    joined->first = weft__malloc(nodes + 1, sizeof *joined->first);
    joined->after = weft__malloc(edges, sizeof *joined->after);
    joined->waits = weft__calloc(nodes, sizeof *joined->waits);
    joined->partner = weft__malloc(nodes, sizeof *joined->partner);
    if (!joined->nodes || !joined->first || !joined->after || !joined->waits || !joined->partner)
        return -1;
    copy(joined, lists, size);
    joined->issue = (struct weft__issue){.nodes = joined->nodes,
                                         .base = joined->base,
                                         .first = joined->first,
                                         .after = joined->after,
                                         .waits = joined->waits,
                                         .partner = joined->partner,
                                         .size = size};
    return match(&joined->issue, joined->partner) || match_joints(&joined->issue, joined->partner)
               ? -1
               : 0;
}

int weft__issue_join(struct weft__issue_joined *joined, const struct weft__issue_list *lists,
                     int size)
{
    *joined = (struct weft__issue_joined){0};
    if (!join(joined, lists, size))
        return 0;
    weft__issue_joined_free(joined);
    return -1;
}

void weft__issue_joined_free(struct weft__issue_joined *joined)
{
    weft__free(joined->partner);
    weft__free(joined->waits);
    weft__free(joined->after);
    weft__free(joined->first);
    weft__free(joined->base);
    weft__free(joined->nodes);
    *joined = (struct weft__issue_joined){0};
}
