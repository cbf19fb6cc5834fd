/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether the end of a rank comes after the start of the ranks that it states: what a barrier is
 * for.
 *
 * What a point in time has heard is the set of ranks that have surely started by then:
 *
 *   rank 0   start --- send ------------------- recv --- end      the end of recv: 0, 1, 2
 *                         \                    /
 *   rank 1   start ------- recv --- recv --- send --- end      the ends of recv: 0, 1; 0, 1, 2
 *                                  /
 *   rank 2   start ------------ send --- end                      itself only
 *
 *   start of a node    its own rank, and what its predecessors have heard at their ends; of an ANY
 *                      node only what all of them have
 *   end of a node      what its start has heard
 *   end of a receive   also what its send had heard at its start
 *   end of an event    also what all signals that may fire it had heard at their starts
 *   end of a rank      what the end of any of its nodes has heard
 *
 * The end of a send hears nothing of its receiver, since a message may be buffered. What cannot be
 * known (a message without its counterpart, which is a fault of its own) hears everything.
 *
 * Nodes are taken in the order in which they ended in the execution at hand, so that a set is known
 * when it is needed. An ANY node, and an event that several signals may fire, can come before some
 * of what they look at: their sets begin as everything and only lose ranks, until nothing changes.
 * The ranks are looked for in batches, a bit for each, so that memory grows with the nodes only.
 */
#include "runtime/base/alloc.h"
#include "runtime/check/check.h"

#include <string.h>

enum { WORDS = 8, BATCH = 64 * WORDS, MOST_LISTED = 8 };

/* A set of ranks of the batch. */
struct heard {
    uint64_t bits[WORDS];
};

/* What the end of a rank has not heard. */
struct lack {
    int count;
    int listed[MOST_LISTED]; /* the first of them */
};

struct hearing {
    struct weft__execution *execution;
    struct weft__check *check;
    int first;            /* the batch: ranks first .. first + BATCH - 1 */
    struct heard *starts; /* by node */
    struct heard
        *signals;       /* by listener, of the first of its channel: what all its signals heard */
    struct heard *ends; /* by rank */
    struct lack *lacks; /* by rank */
    int changed;        /* in this pass, something that had been looked at */
};

static void join(struct heard *set, const struct heard *other)
{
    for (int w = 0; w < WORDS; w++)
        set->bits[w] |= other->bits[w];
}

static void meet(struct hearing *h, struct heard *set, const struct heard *other)
{
    for (int w = 0; w < WORDS; w++) {
        uint64_t both = set->bits[w] & other->bits[w];

        h->changed |= both != set->bits[w];
        set->bits[w] = both;
    }
}

static int has(const struct heard *set, int bit)
{
    return (int)(set->bits[bit / 64] >> (bit % 64) & 1);
}

static struct heard only(const struct hearing *h, int rank)
{
    struct heard set = {{0}};
    int bit = rank - h->first;

    if (bit >= 0 && bit < BATCH)
        set.bits[bit / 64] = UINT64_C(1) << (bit % 64);
    return set;
}

/* What the end of a node has heard, of which the start is known. */
static struct heard end_of(struct hearing *h, uint32_t id)
{
    const struct weft__check *check = h->check;
    const struct weft__snode *node = weft__check_node(check, id);
    struct heard end = h->starts[id];
    size_t first, last;

    if (node->kind == WEFT_NODE_RECV) {
        if (check->partner[id] == WEFT__CHECK_NONE)
            memset(&end, 0xff, sizeof end);
        else
            join(&end, &h->starts[check->partner[id]]);
    } else if (node->kind == WEFT_NODE_EVENT && node->tag != WEFT_CHANNEL_NONE) {
        weft__check_listeners(check, check->rank_of[id], node->tag, &first, &last);
        join(&end, &h->signals[first]); /* everything, if nobody signals: a fault of its own */
    } else if (node->kind == WEFT_NODE_SIGNAL) {
        weft__check_listeners(check, node->peer, node->tag, &first, &last);
        if (first < last)
            meet(h, &h->signals[first], &h->starts[id]);
    }
    return end;
}

/* All nodes once, in the order of their ends. */
static void pass(struct hearing *h)
{
    const struct weft__execution *x = h->execution;
    const struct weft__check *check = h->check;

    h->changed = 0;
    for (uint32_t n = 0; n < check->nodes; n++)
        if (!weft__check_node(check, n)->any || !check->waits[n])
            h->starts[n] = only(h, check->rank_of[n]);
    for (int r = 0; r < check->size; r++)
        h->ends[r] = only(h, r);
    for (size_t i = 0; i < x->order_count; i++) {
        uint32_t id = x->order[i];
        struct heard end = end_of(h, id);

        join(&h->ends[check->rank_of[id]], &end);
        for (uint32_t e = check->first[id]; e < check->first[id + 1]; e++) {
            uint32_t next = check->after[e];

            if (weft__check_node(check, next)->any)
                meet(h, &h->starts[next], &end);
            else
                join(&h->starts[next], &end);
        }
    }
}

/* What the end of a rank lacks of one statement, of the ranks of the batch. */
static void compare(struct hearing *h, int rank, const struct weft_result *result)
{
    struct lack *lack = &h->lacks[rank];
    int i = 0, past = result->ranks;

    if (!result->among) { /* only those of the batch: there are ranks times ranks of them */
        i = h->first > result->first ? h->first - result->first : 0;
        if (past > h->first + BATCH - result->first)
            past = h->first + BATCH - result->first;
    }
    for (; i < past; i++) {
        int other = weft_result_rank(result, i), bit = other - h->first;

        if (bit < 0 || bit >= BATCH || !h->check->schedules[other] || has(&h->ends[rank], bit))
            continue;
        if (lack->count < MOST_LISTED)
            lack->listed[lack->count] = other;
        lack->count++;
    }
}

static void look(struct hearing *h)
{
    const struct weft__check *check = h->check;

    memset(h->starts, 0xff, check->nodes * sizeof *h->starts);
    memset(h->signals, 0xff, check->listener_count * sizeof *h->signals);
    do
        pass(h);
    while (h->changed);
    for (int r = 0; r < check->size; r++) {
        const struct weft_schedule *s = check->schedules[r];

        for (size_t i = 0; s && i < s->result_count; i++)
            if (s->results[i].kind == WEFT_RESULT_AFTER_START)
                compare(h, r, &s->results[i]);
    }
}

static int report(struct hearing *h, int rank)
{
    const struct lack *lack = &h->lacks[rank];
    struct weft__fault fault;

    if (!lack->count)
        return 0;
    weft__fault_begin(&fault, WEFT_FAULT_RESULT);
    weft__fault_rank(&fault, rank);
    weft__out_format(&fault.text, "rank %d may end before rank%s ", rank,
                     lack->count == 1 ? "" : "s");
    for (int i = 0; i < lack->count && i < MOST_LISTED; i++) {
        weft__out_format(&fault.text, "%s%d", i ? ", " : "", lack->listed[i]);
        weft__fault_rank(&fault, lack->listed[i]);
    }
    weft__out_format(&fault.text, "%s ha%s started, though it is stated to end after",
                     lack->count > MOST_LISTED ? ", ..." : "", lack->count == 1 ? "s" : "ve");
    return weft__fault_end(h->check, &fault);
}

int weft__check_synchronised(struct weft__execution *execution)
{
    struct weft__check *check = execution->check;
    struct hearing h = {.execution = execution, .check = check};
    int status = -1;

    if (!check->synchronised)
        return 0;
    h.starts = weft__malloc(check->nodes, sizeof *h.starts);
    h.signals = weft__malloc(check->listener_count, sizeof *h.signals);
    h.ends = weft__malloc((size_t)check->size, sizeof *h.ends);
    h.lacks = weft__calloc((size_t)check->size, sizeof *h.lacks);
    if (h.starts && h.signals && h.ends && h.lacks) {
        status = 0;
        for (h.first = 0; h.first < check->size; h.first += BATCH)
            look(&h);
        for (int r = 0; !status && r < check->size; r++)
            status = report(&h, r);
    }
    weft__free(h.lacks);
    weft__free(h.ends);
    weft__free(h.signals);
    weft__free(h.starts);
    return status;
}
