/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Virtual time: the event queue, the ranks and the network between them; all files here share them.
 *
 * Times inside are in ticks (loggops.h). A rank is one processor, which its engine and the
 * network's overheads share, and two links; its function has a processor of its own, as with a
 * helper thread.
 *
 *   function --- weft_run_wait() ---> blocked --- engine has ended the run ---> resumed
 *   engine   --- send ----------> `sends` --- processor and link free ----> under way -> arrives
 *            --- compute -------> `computes` - processor free ------------> computed
 *   arrives ---------------------> `arrivals` - processor and link free ---> inbox -> engine
 */
#ifndef WEFT_RUNTIME_TRANSPORT_VIRTUAL_VIRTUAL_H
#define WEFT_RUNTIME_TRANSPORT_VIRTUAL_VIRTUAL_H

#include "runtime/context/context.h"
#include "runtime/cost/loggops.h"
#include "runtime/transport/virtual/fiber.h"
#include <weft/virtual.h>

#define WEFT__VIRTUAL_NEVER UINT64_MAX

/* ---- events: queue.c ---- */

enum weft__virtual_what {
    WEFT__V_RESUME,   /* of a rank: its function goes on */
    WEFT__V_WAKE,     /* its engine has something to do */
    WEFT__V_TIMER,    /* a time that the engine or the function waits for */
    WEFT__V_SERVE,    /* its processor or a link has become free */
    WEFT__V_ARRIVE,   /* of a message: its first byte is there */
    WEFT__V_DELIVER,  /* it has been taken in */
    WEFT__V_SENT,     /* its send has ended */
    WEFT__V_COMPUTED, /* of a compute record */
    WEFT__V_STOP,     /* of a rank that stops, for the others to hear of it */
    WEFT__V_DIED,     /* of a rank that hears of it */
};

struct weft__virtual_entry {
    weft__ticks_t time;
    uint64_t turn; /* among simultaneous events: the order of their causes, or random */
    uint64_t sequence;
    void *subject;
    uint32_t what;
};

struct weft__virtual_queue {
    struct weft__virtual_entry *entries; /* a heap of four children each */
    size_t count, capacity;
    uint64_t sequence;
};

/* Makes room for so many entries in all. 0, or -1. */
int weft__virtual_queue_reserve(struct weft__virtual_queue *queue, size_t count);
/* Puts one in, for which there is room. */
void weft__virtual_queue_push(struct weft__virtual_queue *queue, struct weft__virtual_entry entry);
/* Takes the first out of a queue that is not empty. */
struct weft__virtual_entry weft__virtual_queue_pop(struct weft__virtual_queue *queue);

/* ---- what is under way ---- */

struct weft__virtual_message {
    struct weft__message base;
    struct weft__virtual_message *next; /* in a rank's sends or arrivals */
    struct weft__xfer *xfer;            /* the send that waits for it; NULL: none */
    uint64_t turn;
    int32_t from, to;    /* as they were given: the engine writes into `base` */
    uint32_t references; /* the network or an engine; the event that ends the send */
    uint8_t posted;      /* a rendezvous whose send has been told */
    uint8_t under_way;   /* sent, and not taken in */
    int refused;         /* and that the receiver did not want: with what it ends */
    size_t room;         /* bytes of payload here */
    struct weft__virtual_message *all_next, *all_previous;
    _Alignas(16) char payload[];
};

/* A node that takes virtual time. */
struct weft__virtual_compute {
    struct weft__virtual_compute *next;
    struct weft__virtual_compute *all_next, *all_previous; /* of its rank */
    struct weft__virtual_rank *rank;
    struct weft_run *run; /* NULL: it has failed meanwhile */
    uint32_t node;
    weft__ticks_t cost;
    uint64_t turn;
};

/* What a rank is to hear of another. */
struct weft__virtual_death {
    struct weft__virtual_death *next; /* of the rank, for poll */
    struct weft__virtual_rank *rank;
    struct weft__virtual_rank *dead;
};

enum weft__virtual_state { WEFT__V_READY, WEFT__V_BLOCKED, WEFT__V_ENDED };

struct weft__virtual_rank {
    struct weft__transport base;
    struct weft__bell bell;
    struct weft__virtual *world;
    struct weft_context *context;
    struct weft__fiber fiber;
    struct weft__port port;
    uint64_t turn;  /* of what the engine is told now, ... */
    uint32_t after; /* and how much has followed from it */
    struct weft__virtual_message *sends, **sends_end;
    struct weft__virtual_message *arrivals, **arrivals_end;
    struct weft__virtual_compute *computes, **computes_end;
    struct weft__virtual_compute *all_computes;
    struct weft__message *inbox, **inbox_end;
    struct weft__message *ended;            /* sends, for poll; handle: their statuses */
    struct weft__virtual_compute *computed; /* for poll */
    struct weft__virtual_death *died;       /* the same: of others */
    struct weft__virtual_death *deaths;     /* of this rank, for each of the others */
    weft__ticks_t stopped_at;
    weft__ticks_t serve_at, timer_at; /* of the pending events; NEVER: none */
    uint8_t waking;                   /* a WAKE is pending */
    uint8_t state;                    /* enum weft__virtual_state */
    uint8_t stopped;
    uint8_t unwinding;
    uint8_t polls; /* it is blocked by a poll */
    /* While blocked. */
    int (*done)(void *);
    void *argument;
    weft__ticks_t until;
    weft__ticks_t engine_until;
    /* Pauses: the current or next one, lazily. */
    weft__ticks_t pause_from, pause_to;
    size_t fault; /* next in the world's sorted list */
    uint64_t pause_random;
    int status;
    uint32_t escapes; /* calls that failed while unwinding */
    char *text;       /* of the function's latest error while another runs */
    char *failure;    /* of what it returned */
};

struct weft__virtual {
    struct weft_virtual_config config;
    struct weft_context_config settings; /* of the contexts */
    struct weft__loggops net;
    struct weft__virtual_queue queue;
    struct weft__virtual_rank *ranks;
    struct weft__fibers *fibers;
    struct weft_virtual_fault *faults;  /* by rank, then time */
    struct weft__virtual_rank *current; /* whose function runs */
    struct weft__virtual_message *all;  /* every message there is */
    weft__ticks_t now;
    uint64_t turns; /* of causes so far */
    uint64_t order_random, fault_random;
    unsigned traces_asked; /* for traces: those that have been written */
    struct weft_virtual_result result;
    int size;
    int live;   /* functions that have neither ended nor stopped */
    int broken; /* a status: waits fail with it from now on */
    int failed; /* the first rank that failed + 1 */
    uint64_t idle_polls;
    int serving; /* all functions have returned, and ... */
    int served;  /* ... the objects of so many ranks are over */
    weft_rank_fn fn;
    void *user;
    int told; /* that it is broken */
    int has_faults;
    int timed;      /* nodes wait for the processor, or have no payload */
    char text[512]; /* why it is broken */
};

/* ---- loop.c ---- */

/* Runs the functions of all ranks until the last has ended. As weft_virtual_run() returns. */
int weft__virtual_play(struct weft__virtual *world);
/* The main function of a rank's fiber. */
void weft__virtual_main(void *rank);
/* The turn of something that begins now: what it leads to comes after it, and before what begins
 * later. */
uint64_t weft__virtual_turn(struct weft__virtual *world);
/* The turn of what follows from what the engine of a rank is told. */
uint64_t weft__virtual_follow(struct weft__virtual_rank *rank);
/* Sets what the engine is told next. */
void weft__virtual_tell(struct weft__virtual_rank *rank, uint64_t turn);
void weft__virtual_push(struct weft__virtual *world, weft__ticks_t time, uint64_t turn,
                        enum weft__virtual_what what, void *subject);
/* From now on every wait fails with `status`. */
void weft__virtual_break(struct weft__virtual *world, int status, const char *format, ...)
    WEFT_PRINTF(3, 4);
/* Lets the engine of a rank work, now. */
void weft__virtual_step(struct weft__virtual_rank *rank);
/* Tells the hash and the trace of an event. */
void weft__virtual_record(struct weft__virtual *world, weft_virtual_kind_t kind, int rank,
                          const struct weft__message *message);

/* ---- network.c ---- */

extern const struct weft_transport weft__transport_virtual; /* about.c */
extern const struct weft__transport_ops weft__virtual_ops;
/* Starts what the processor and the links of a rank have time for. */
void weft__virtual_serve(struct weft__virtual_rank *rank);
void weft__virtual_arrive(struct weft__virtual *world, struct weft__virtual_message *message);
void weft__virtual_deliver(struct weft__virtual *world, struct weft__virtual_message *message);
/* The rank has stopped before the message came. */
void weft__virtual_lose(struct weft__virtual *world, struct weft__virtual_message *message);
/* Whether everything that has been sent from one rank to another has been taken in or lost. */
int weft__virtual_drained(const struct weft__virtual *world, int from, int to);
/* `alive` 0: the rank has stopped. */
void weft__virtual_sent(struct weft__virtual *world, struct weft__virtual_message *message,
                        uint64_t turn, int alive);
void weft__virtual_computed(struct weft__virtual_compute *compute, int alive);
/* Frees every message and compute record there is. */
void weft__virtual_forget(struct weft__virtual *world);

/* ---- faults.c ---- */

/* Uniform in 0 .. most. */
weft__ticks_t weft__virtual_uniform(uint64_t *state, weft__ticks_t most);
/* Uniform in [0, 1). */
double weft__virtual_share(uint64_t *state);
int weft__virtual_faults_set(struct weft__virtual *world);
/* When a rank can do something, at `now` or after; NEVER: it has stopped. */
weft__ticks_t weft__virtual_available(struct weft__virtual_rank *rank, weft__ticks_t now);
/* How long it takes that a rank hears of a death. */
weft__ticks_t weft__virtual_death_delay(struct weft__virtual *world);
/* How much longer than the network says a message takes. */
weft__ticks_t weft__virtual_delay(struct weft__virtual *world);

/* Also loop.c: part of the transport's table. */
uint64_t weft__virtual_now(const struct weft__transport *transport);
int weft__virtual_block(struct weft__transport *transport, int (*done)(void *), void *argument,
                        uint64_t until);
void weft__virtual_wake(struct weft__transport *transport);

#endif
