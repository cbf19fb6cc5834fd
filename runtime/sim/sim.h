/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flat simulator: schedules of all ranks in a compact form, and what has become of their nodes.
 *
 *   shape   what a rank's graph is, but for the peers: kinds, sizes, tags, successors. Ranks of a
 *           regular collective share one, so a million of them need little more than
 *   rank    its peers, 16 bytes of state a node, its port (loggops.h)
 *
 * A shape is found by hashing a schedule as it comes from the builder; the schedule is freed at
 * once.
 */
#ifndef WEFT_RUNTIME_SIM_SIM_H
#define WEFT_RUNTIME_SIM_SIM_H

#include "runtime/cost/loggops.h"
#include "runtime/graph/schedule.h"
#include "runtime/sim/flows.h"
#include "runtime/sim/queue.h"

#include <weft/sim.h>

#define WEFT__SIM_NONE UINT32_MAX

/* Nodes of a rank: the critical path keeps a node and a reason in 32 bits. */
#define WEFT__SIM_NODES_MAX (UINT32_C(1) << 28)

/* weft__sim_state.left: the count of weft__settle(), and what has happened. */
#define WEFT__SIM_STARTED 0x80000000u /* started; a receive: posted */
#define WEFT__SIM_ENDED   0x40000000u
#define WEFT__SIM_ARRIVED 0x20000000u /* receive: its message is there */
#define WEFT__SIM_RETIRED 0x10000000u
#define WEFT__SIM_FIRED   0x08000000u /* event */
#define WEFT__SIM_LATE    0x04000000u /* receive: posted after its message had come */
#define WEFT__SIM_TIMED   0x02000000u /* event: the application fires it at `start` */
#define WEFT__SIM_COUNT   0x01ffffffu

struct weft__sim_node {
    uint64_t bytes; /* of the message, or computed */
    union {
        struct {
            uint32_t tag;   /* event, signal: channel */
            uint32_t index; /* among the rank's sends, receives, signals */
        };
        weft__ticks_t ticks; /* what it costs, if it is `priced` */
    };
    uint32_t first;  /* successors: after[first] .. of the next node */
    uint32_t waits;  /* predecessors */
    uint32_t choice; /* event: from 1, 0: none */
    uint8_t kind;
    uint8_t any;
    uint8_t up_to;
    uint8_t priced;
};

struct weft__sim_shape {
    struct weft__sim_shape *next; /* of the same place in the table */
    uint64_t hash;
    uint32_t nodes, edges, sends, recvs, signals, events;
    int plain; /* no ANY nodes, no events: nothing is ever retired */
    const uint32_t *after;
    const uint32_t *send_node; /* node of send number i */
    const uint32_t *recv_node;
    struct weft__sim_node node[]; /* nodes + 1, then the arrays above */
};

struct weft__sim_state {
    uint64_t start; /* receive: its message began to come in; LATE: it was posted */
    uint32_t left;
    uint32_t cause; /* node << 3 | weft__sim_cause */
};

/* The cause of an event that the application fired at a time of its own. */
#define WEFT__SIM_BY_TIME (1u << 3 | WEFT__SIM_FIRST)

/* Why a node could not start earlier. The node is one of the same rank, but for an event that a
 * signal fired (WEFT__SIM_MESSAGE): there it is the rank that sent it. */
enum weft__sim_cause {
    WEFT__SIM_FIRST,
    WEFT__SIM_ORDER,
    WEFT__SIM_MESSAGE,
    WEFT__SIM_CPU,     /* the processor was the node's */
    WEFT__SIM_CPU_MSG, /* the processor took in the message of the node, a receive */
    WEFT__SIM_LINK,
    WEFT__SIM_LINK_MSG,
    /* Processor or link took in a signal; here too the node is the rank it is of. */
    WEFT__SIM_SIGNAL
};

/* Who has a processor or a link. */
enum weft__sim_holder {
    WEFT__SIM_OF_NODE,
    WEFT__SIM_OF_MESSAGE, /* for a receive */
    WEFT__SIM_OF_SIGNAL   /* from a rank */
};

/* A receive of a rank that has many, to be found by peer and tag. */
struct weft__sim_key {
    uint32_t peer, tag, node;
};

/* What a rank can want: at most one event of each is in the queue, the rest waits in line. */
#define WEFT__SIM_LINE 3u /* of weft__sim_event.what */
enum weft__sim_line { WEFT__SIM_SENDS, WEFT__SIM_WORK, WEFT__SIM_MESSAGES, WEFT__SIM_LINES };

/* weft__sim_event.what of messages on a fabric (flows.h). */
#define WEFT__SIM_ENTER   128u
#define WEFT__SIM_SETTLE  256u
#define WEFT__SIM_WAKE    512u
#define WEFT__SIM_FLOWING (WEFT__SIM_ENTER | WEFT__SIM_SETTLE | WEFT__SIM_WAKE)

struct weft__sim_rank {
    const struct weft__sim_shape *shape;
    struct weft__sim_state *state;
    const uint32_t *send_peer, *recv_peer, *signal_peer;
    struct weft__sim_key *keys; /* sorted receives, made when they are first needed */
    struct weft__port port;
    uint32_t cpu, send, receive; /* who has them: node << 2 | weft__sim_holder */
    uint32_t busy;               /* bit of a line: its head is in the queue */
    uint32_t first[WEFT__SIM_LINES], last[WEFT__SIM_LINES]; /* who waits behind it */
};

/* ---- shape.c ---- */

struct weft__sim_maker;

struct weft__sim_maker *weft__sim_maker_create(const char *who,
                                               const struct weft_sim_config *config);
/* Frees it, with all that it made. */
void weft__sim_maker_destroy(struct weft__sim_maker *maker);
/* The compact form of a schedule. WEFT_OK, or a status with its text. */
int weft__sim_make(struct weft__sim_maker *maker, const struct weft_schedule *schedule,
                   struct weft__sim_rank *rank);

/* ---- firing.c ---- */

/* weft_sim_config.firings, prepared; NULL: there are none. */
struct weft__sim_firings;
int weft__sim_firings_create(struct weft__sim_firings **firings, const char *who,
                             const struct weft_sim_config *config);
void weft__sim_firings_destroy(struct weft__sim_firings *firings);
/* Notes when the events of a rank fire. Any thread. */
void weft__sim_firings_take(struct weft__sim_firings *firings, const struct weft_schedule *schedule,
                            struct weft__sim_rank *rank);
/* Whether each of them was of some event. */
int weft__sim_firings_check(const struct weft__sim_firings *firings);

/* ---- run.c ---- */

/* Something that waits in a line. */
struct weft__sim_cell {
    uint64_t order;
    uint32_t node, source, next, pad;
};

/* A message that cannot be received; so many are kept. */
#define WEFT__SIM_LOST 8

struct weft__sim_lost {
    uint32_t from, send, to, recv; /* recv NONE: there is no receive */
};

struct weft__sim {
    const char *who; /* in errors: the public function */
    const struct weft_sim_config *config;
    struct weft__loggops model;
    double compute[3]; /* ticks a byte: reduce, copy, compute */
    uint32_t size;
    struct weft__sim_rank *ranks;
    struct weft__sim_queue queue;
    uint64_t order;
    struct weft__sim_cell *cells;
    size_t cell_count, cell_capacity;
    uint32_t free_cell;
    uint32_t *stack; /* of retiring */
    size_t stack_capacity;
    struct weft__sim_lost lost[WEFT__SIM_LOST]; /* the first few */
    uint64_t lost_count;
    uint64_t nodes, ended, messages, bytes, signals;
    uint64_t *first_node;          /* with WEFT_SIM_KEEP_NODES */
    struct weft_sim_node *kept;    /* the same */
    const unsigned char *activate; /* a byte a rank */
    struct weft__sim_firings *firings;
    struct weft__flows *flows; /* NULL: there is no fabric */
    int status;
};

/* A signal's, which is a message. */
#define WEFT__SIM_SIGNAL_BYTES 8u

/* Runs to the end. WEFT_OK, or a status with its text. */
int weft__sim_run(struct weft__sim *sim);

/* Something is to happen. What goes wrong is in sim->status. */
void weft__sim_later(struct weft__sim *sim, const struct weft__sim_event *event);

/* What a compute node costs. */
weft__ticks_t weft__sim_cost(const struct weft__sim *sim, const struct weft__sim_node *node);

/* The receive of `to`, the send of `from`, for a message; `guess` is the likely number. NONE: none.
 */
uint32_t weft__sim_find_recv(struct weft__sim *sim, uint32_t to, uint32_t from, uint32_t tag,
                             uint32_t guess);
uint32_t weft__sim_find_send(const struct weft__sim *sim, uint32_t from, uint32_t to, uint32_t tag,
                             uint32_t guess);

/* ---- path.c, fault.c: what came of it ---- */

int weft__sim_path(struct weft__sim *sim, struct weft_sim_step **path, size_t *length);
int weft__sim_faults(struct weft__sim *sim, struct weft_sim_fault **faults, size_t *count);

/* Fetches what an event will touch before its turn comes. */
static inline void weft__sim_prefetch(const struct weft__sim *sim)
{
    const struct weft__sim_event *far = weft__sim_peek(&sim->queue, 12);
    const struct weft__sim_event *near = weft__sim_peek(&sim->queue, 5);

    if (far) {
        __builtin_prefetch(&sim->ranks[far->rank]);
        __builtin_prefetch((const char *)&sim->ranks[far->rank] + 64);
        if ((far->what & WEFT__SIM_LINE) == WEFT__SIM_MESSAGES)
            __builtin_prefetch(&sim->ranks[far->source]);
    }
    if (near) {
        const struct weft__sim_rank *rank = &sim->ranks[near->rank];

        __builtin_prefetch(&rank->state[near->node < rank->shape->nodes ? near->node : 0]);
        __builtin_prefetch((near->what & WEFT__SIM_LINE) == WEFT__SIM_MESSAGES ? rank->recv_peer
                                                                               : rank->send_peer);
    }
}

#endif
