/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A committed schedule: flat arrays, immutable, shared by any number of runs.
 *
 *   nodes[n]            what node n does
 *   first[n] .. first[n + 1]   its successors in after[], ascending
 *   streamed[n]         NULL where nothing is on a device: how many of them, the first, may be put
 *                       on the stream as soon as node n is there, since they find all that they
 *                       need in its order; the others wait until it has ended, and ascend again
 *   waits[n]            how many predecessors it waits for, with WEFT__ANY where one is enough;
 *                       WEFT__OPEN for an event that waits for none, which is therefore no root
 *   roots               ready set at the start (a copy of the bitmap that a run works on)
 */
#ifndef WEFT_RUNTIME_PLAN_PLAN_H
#define WEFT_RUNTIME_PLAN_PLAN_H

#include "runtime/graph/issue.h"

#include <stdatomic.h>
#include <weft/plan.h>

#define WEFT__NONE UINT32_MAX

/* The word of a node in a run: predecessors still to come, and what has happened to it. A node that
 * started because its count reached 0 has the word 0. */
#define WEFT__STARTED 0x80000000u /* started by other means; later predecessors are ignored */
#define WEFT__RETIRE  0x40000000u /* retired, or about to be */
#define WEFT__ANY     0x20000000u /* one predecessor is enough */
#define WEFT__OPEN    0x10000000u /* an event that waits to be fired */
#define WEFT__FIRED   0x08000000u /* an event that was fired before its predecessors had ended */
#define WEFT__WATCHED 0x04000000u /* a join that somebody waits for */
#define WEFT__COUNT   0x03ffffffu

/* Flags of a plan's node. */
#define WEFT__UP_TO 1u /* receive of at most */
#define WEFT__FUSED                                                                                \
    2u /* receive whose payload only node `op` reads: may be reduced as it arrives */
#define WEFT__PENDS 4u /* compute that may finish later */
#define WEFT__DEVICE_NODE                                                                          \
    8u /* a region of it is memory of the device: what executes it, sends or receives is there */
#define WEFT__JOINT 16u /* compute of several ranks at once, which has a transfer and no call */

/* Compute nodes of more bytes than this get a record to be worked on in slices. */
#define WEFT__SLICE_MIN ((size_t)64 << 10)

struct weft__region {
    uint32_t slot;
    uint32_t value; /* 0: none */
    size_t offset;  /* bytes */
    size_t bytes;
};

struct weft__node {
    uint8_t kind; /* weft_node_kind_t */
    uint8_t flags;
    uint8_t dtype; /* built-in reductions: of the elements */
    uint8_t shift; /* and log2 of their bytes */
    uint32_t regions;
    uint32_t region_count;
    int32_t peer;      /* which of plan->peers, of a joint node the rank that follows in its list;
                          event: its choice or -1 */
    uint32_t tag;      /* event, signal: channel */
    uint32_t index;    /* send, recv, large compute, joint: transfer; event: event; compute: call */
    uint32_t op;       /* in plan->ops; fused receive: the node that reduces */
    uint32_t produces; /* value, 0: none */
};

struct weft__slot {
    char *name;
    size_t count;
    size_t scratch; /* scratch: byte offset in the run's scratch memory of that kind */
    weft_dtype_t dtype;
    uint32_t element; /* bytes */
    uint8_t kind;
    uint8_t memory; /* weft_memory_t */
};

struct weft__plan_value {
    char *name;
    uint64_t max;
    int produced;
};

struct weft__event {
    uint32_t node;
    uint32_t channel;
};

struct weft__call_info {
    uint32_t node;
    uint32_t argument; /* first in the run's arguments */
};

struct weft__plan_label {
    uint32_t node;
    char *text;
};

struct weft_plan {
    atomic_int references;
    int rank;
    int size;
    char *name;
    uint32_t node_count;
    uint32_t edge_count;
    struct weft__node *nodes;
    uint32_t *first;
    uint32_t *after;
    uint32_t *waits;
    uint32_t *streamed;
    uint64_t *roots;
    uint32_t levels;        /* of the ready bitmap; level 0 has a bit a node */
    uint32_t level_word[6]; /* first word of each level */
    uint32_t words;         /* of all levels */
    struct weft__region *regions;
    uint32_t region_count;
    struct weft__slot *slots;
    uint32_t slot_count;
    struct weft__plan_value *values;
    uint32_t value_count;
    const struct weft_op **ops; /* a reference each */
    uint32_t op_count;
    struct weft__event *events; /* ascending in channel, then node */
    uint32_t event_count;
    uint32_t choice_count;
    uint32_t *choice_first;  /* members of choice c: choice_events[first[c] .. first[c + 1]) */
    uint32_t *choice_events; /* numbers of events */
    int32_t *peers;          /* distinct ranks it exchanges messages or signals with, ascending */
    uint32_t peer_count;
    uint32_t xfer_count;
    uint32_t recv_count;
    uint32_t joint_count;
    struct weft__call_info *calls;
    uint32_t call_count;
    uint32_t argument_count;
    struct weft__plan_label *labels; /* ascending in node */
    uint32_t label_count;
    uint32_t *lines; /* of the text that the nodes were read from, 0: none; NULL without a text */
    size_t scratch_bytes;  /* of the host */
    size_t device_bytes;   /* of scratch on the device */
    uint32_t device_nodes; /* that have WEFT__DEVICE_NODE */
    int on_device;         /* a slot is */
    size_t bytes;
    int communicates;
    int plain; /* no events, no ANY nodes, no fused receives: words of nodes have no flags; and
                  nothing on a device */
};

/* Whether a node has a transfer of the run's. */
static inline int weft__node_transfers(const struct weft__node *node)
{
    return node->index != WEFT__NONE && node->kind != WEFT_NODE_EVENT &&
           (node->kind != WEFT_NODE_COMPUTE || (node->flags & WEFT__JOINT));
}

/* Bytes an element of the node's first region has. */
static inline size_t weft__node_element(const struct weft_plan *plan, const struct weft__node *node)
{
    return plan->slots[plan->regions[node->regions].slot].element;
}

/* The label of a node among `count` that ascend, or of a plan; NULL if it has none. */
const char *weft__label_of(const struct weft__plan_label *labels, uint32_t count, uint32_t node);
const char *weft__plan_label(const struct weft_plan *plan, uint32_t node);

/* The line of the text that a node was read from; 0: there was none. */
uint32_t weft__plan_line(const struct weft_plan *plan, uint32_t node);

/* "node 3 `label`, line 12", as far as there is one: how reports name a node. */
void weft__plan_node_text(const struct weft_plan *plan, uint32_t node, char *text, size_t size);

/* weft_schedule_commit() without its dump; @who is named in errors. */
int weft__plan_compile(const char *who, const struct weft_schedule *schedule,
                       struct weft_plan **plan);

struct weft_plan *weft__plan_retain(struct weft_plan *plan);

/* The plan's list for the order of issue; issue.c. It points into the plan and to `nodes`, which
 * the caller frees with weft__free(). WEFT_OK or WEFT_ERR_MEMORY. */
int weft__plan_issue(const struct weft_plan *plan, struct weft__issue_node **nodes,
                     struct weft__issue_list *list);
/* Finds which nodes are on the device, and what follows them there; stream.c. */
int weft__plan_stream(struct weft_plan *plan);
/* Sorts `after`, the successors of node `n`: those that may follow it on a stream come first; both
 * groups keep their order. `over`, by node, or NULL: messages that are put on a stream, too. How
 * many follow. `room` is of weft__plan_followers_room(), which the caller frees. */
uint32_t weft__plan_followers(const struct weft_plan *plan, uint32_t n, const uint8_t *over,
                              uint32_t *after, uint32_t *room);
uint32_t *weft__plan_followers_room(const struct weft_plan *plan);

/* Finds receives whose payload can be reduced as it arrives, and marks them; fuse.c. */
int weft__plan_fuse(struct weft_plan *plan);

#endif
