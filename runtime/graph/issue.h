/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order of issue: in which order each rank hands its messages to a channel that executes them
 * in the order in which they were handed over, and ends none before its other end has come
 * (rendezvous), as NCCL does with what is put on one stream.
 *
 *     rank 0   send A to 1, send B to 2       in this order; rank 1 waits for B, by way of rank 2,
 *     rank 1   recv C from 2, recv A from 0   before it takes A: nobody goes on, though the graphs
 *     rank 2   recv B from 0, send C to 1     leave A and B in any order
 *
 * All ranks have the lists of all ranks and compute one order by one rule. The graphs are executed
 * without clock and data; a message happens when both of its ends can start, and belongs to the
 * round after the last round of a message that it comes after:
 *
 *     round(m) > round(l)    for every message l that made m possible
 *
 * A rank issues its messages round by round; those of one round are issued together (a group) and
 * wait for nothing but earlier rounds. So round 1 happens, whoever is fast, then round 2, and so
 * on: no order of execution can come to a stop. An execution that stops is one in which messages
 * wait for each other in a circle, and then no order helps.
 *
 * A joint node is a message with more than two ends. Of a round they come after the messages, one
 * after the other, in one order on all ranks, so they wait for nothing that is issued later.
 *
 * Messages of other memory are executed, too, since others come after them, but have no round.
 */
#ifndef WEFT_RUNTIME_GRAPH_ISSUE_H
#define WEFT_RUNTIME_GRAPH_ISSUE_H

#include "runtime/graph/schedule.h"

#define WEFT__ISSUE_NONE UINT32_MAX

enum weft__issue_flag {
    WEFT__ISSUE_IN_ORDER = 1, /* a send or receive of memory whose messages run in order; a message
                                 does if both of its ends are such */
    WEFT__ISSUE_ANY = 2,
    WEFT__ISSUE_CHOICE = 4,  /* an event of a choice */
    WEFT__ISSUE_VARIES = 8,  /* how much is sent, or may come, is known only when it is */
    WEFT__ISSUE_DEVICE = 16, /* of memory of a device, be it of no bytes */
    WEFT__ISSUE_JOINT = 32   /* of several ranks at once (joint.h) */
};

/* What a round takes from a rank to another one. */
enum { WEFT__ISSUE_PAIR_BYTES = 1 << 20 };

/* A node, as far as the order is concerned. No pointers: lists can be sent as they are. */
struct weft__issue_node {
    uint64_t bytes; /* of a message, at most; joint: its signature */
    int32_t peer;   /* send, recv, signal; joint: the rank that follows in its list, or the first */
    uint32_t tag;   /* or channel */
    uint8_t kind;   /* weft_node_kind_t */
    uint8_t flags;
    uint8_t unused[2]; /* 0 */
    int32_t place;     /* joint: of this rank in its list */
};

/* The list of a rank: the successors of node n are after[first[n]] .. after[first[n + 1] - 1]. */
struct weft__issue_list {
    const struct weft__issue_node *nodes;
    const uint32_t *first, *after;
    uint32_t count;
};

/* The lists of all ranks in one numbering: node n of rank r is base[r] + n. Borrowed. */
struct weft__issue {
    const struct weft__issue_node *nodes;
    const uint32_t *base; /* size + 1 */
    const uint32_t *first, *after;
    const uint32_t *waits; /* predecessors of a node */
    /* The other end of a message; of a joint node the one on the rank that follows, so that they
     * are a ring; or none, if a rank has none that belongs to it. Of anything else none. */
    const uint32_t *partner;
    int size;
    /* A round takes so many bytes from a rank to another one, or one message: so that those which
     * need not wait for each other still follow each other, as in a pipeline. 0: any number. */
    uint64_t pair_bytes;
};

struct weft__issue_order {
    uint32_t *round;    /* of a node, from 1; 0: none */
    uint32_t rounds;    /* the last one */
    uint32_t *sequence; /* nodes in the order of issue: those of rank r are sequence[start[r]] ..
                           sequence[start[r + 1] - 1], ascending in rounds. In a round, messages
                           of two ranks stand in one order on both. */
    uint32_t *start;
    uint64_t messages; /* that have a round */

    /* There is no order: each of these waits for the next one, the last for the first. */
    uint32_t *cycle;
    uint32_t cycle_count;

    /* The order is not known beforehand, and `round` is not to be used without the ranks' agreeing
     * on each message first: so many ends of messages come after a choice, or would wait for an
     * event that their graphs do not make them wait for, or vary in size. */
    uint32_t unknown;
    uint32_t unknown_node;  /* the first of them */
    uint32_t unknown_event; /* and the event (or the node after ANY) for it; or none */
};

/* O(nodes + edges + messages log messages), and, where the application fires events, O(nodes times
 * events / 256). The same for the same lists, wherever it is computed. 0, also if there is no
 * order; -1 without memory. */
int weft__issue_order(const struct weft__issue *issue, struct weft__issue_order *order);
/* Accepts orders of zeroes. */
void weft__issue_order_free(struct weft__issue_order *order);

/* ---- lists ---- */

/* What the order has to know of a joint node, of a rank whose region has so many elements. */
struct weft__joint;
struct weft__issue_node weft__issue_joint(const struct weft__joint *joint, int rank,
                                          weft_dtype_t dtype, size_t first, uint32_t region_count);

/* What the order has to know of a node of a schedule. */
struct weft__issue_node weft__issue_node_of(const struct weft_schedule *schedule,
                                            const struct weft__snode *node);

/* Lists of all ranks put together, with what was allocated for it. */
struct weft__issue_joined {
    struct weft__issue issue;
    struct weft__issue_node *nodes;
    uint32_t *base, *first, *after, *waits, *partner;
};

/* Puts the lists of ranks 0 .. size - 1 together and finds the other ends: the k-th send of a rank
 * to another one with a tag is the k-th receive of it there. 0, or -1: no memory, or 2^32 - 1
 * nodes or edges and more. */
int weft__issue_join(struct weft__issue_joined *joined, const struct weft__issue_list *lists,
                     int size);
void weft__issue_joined_free(struct weft__issue_joined *joined);

/* ---- inside ---- */

/* An event that a channel fires; ascending in rank, channel, node. */
struct weft__issue_listener {
    int32_t rank;
    uint32_t channel;
    uint32_t node;
    uint32_t signals; /* how many signal it */
};

enum weft__issue_state { WEFT__ISSUE_WAITS, WEFT__ISSUE_STARTED, WEFT__ISSUE_ENDED };

/* The execution. */
struct weft__issue_run {
    const struct weft__issue *issue;
    struct weft__issue_order *order;
    uint32_t nodes;
    int32_t *rank_of;
    struct weft__issue_listener *listeners;
    uint32_t listener_count;
    uint8_t *state;
    uint8_t *fired;  /* by listener: 1, or 2 if the application had to fire something before */
    int applied;     /* the application has fired its events */
    uint32_t *left;  /* of a node, predecessors */
    uint32_t *level; /* the last round that a node comes after */
    uint32_t *queue; /* nodes as they could start */
    uint32_t head, tail;
    uint32_t *ended; /* nodes as they ended */
    uint32_t ended_count;
    uint32_t sure_count; /* those of them that the application need not fire anything for */
    /* Of a send, the first one of the same two ranks; of that, their latest round, and bytes in it.
     * Of a joint node, the one of its first rank; of that, how many have started, and there are. */
    uint32_t *pair_of;
    uint32_t *pair_latest;
    uint64_t *pair_used;
};

void weft__issue_listeners(const struct weft__issue_run *run, uint32_t signal, uint32_t *first,
                           uint32_t *last);
/* The listener that a node is, or WEFT__ISSUE_NONE. */
uint32_t weft__issue_listener_of(const struct weft__issue_run *run, uint32_t node);
static inline int weft__issue_is_joint(const struct weft__issue *issue, uint32_t node)
{
    return (issue->nodes[node].flags & WEFT__ISSUE_JOINT) != 0;
}
static inline int weft__issue_in_order(const struct weft__issue *issue, uint32_t node)
{
    return issue->nodes[node].flags & WEFT__ISSUE_IN_ORDER &&
           issue->partner[node] != WEFT__ISSUE_NONE &&
           issue->nodes[issue->partner[node]].flags & WEFT__ISSUE_IN_ORDER;
}

/* issue_stuck.c: why messages have not happened. */
int weft__issue_stuck(struct weft__issue_run *run);
/* issue_held.c: which would wait for events of the application that are not theirs. */
int weft__issue_held(struct weft__issue_run *run);

#endif
