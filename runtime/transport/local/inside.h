/* SPDX-License-Identifier: BSD-3-Clause */
/* The local transport from inside: local.c draws what this is for; lane.c is what goes by lanes. */
#ifndef WEFT_RUNTIME_TRANSPORT_LOCAL_INSIDE_H
#define WEFT_RUNTIME_TRANSPORT_LOCAL_INSIDE_H

#include "runtime/context/context.h"
#include "runtime/transport/local/lane.h"

#define CELL_ALIGNMENT ((size_t)64)

/* message.flags */
enum {
    CELL_SMALL = 1,
    CELL_LARGE = 2,
    CELL_HEAP = 3,
    DIRECT = 4,
    BACK = 5,
    OF_LANE = 6,
    BEHIND_LANE = 7
};
enum { POSTED, TAKEN, READING, WITHDRAWN }; /* message.state */
enum { NOBODY = -1 };                       /* in the list of those that have left: its end */

/* What an inbox holds once its rank has left. */
extern struct weft__message weft__closed_mark;
#define WEFT__CLOSED (&weft__closed_mark)

/* A cell is a message, whose `own` is the rank that it belongs to, and its payload. */
#define CELL_HEADER ((sizeof(struct weft__message) + CELL_ALIGNMENT - 1) & ~(CELL_ALIGNMENT - 1))

struct kept {
    struct kept *next;
    void *memory;
    void (*release)(void *);
};

/* Kept 128 bytes apart: processors fetch pairs of lines. */
struct weft__endpoint {
    /* Touched by senders. */
    _Alignas(128) _Atomic(struct weft__message *) inbox;
    struct weft__bell bell;
    _Atomic uint32_t urgent; /* failures and such, that lanes have had */
    /* Read by ranks that wait. */
    _Alignas(128) _Atomic uint64_t seat;
    /* Touched by receivers of our messages. */
    _Alignas(128) _Atomic(struct weft__message *) returns;
    /* Ours. */
    _Alignas(128) struct weft__message *free_cells[3]; /* by kind */
    struct weft__message *free_records;                /* for what lanes bring, in lines */
    struct weft__message *free_behind[2];              /* ... and behind them; up to SMALL, more */
    struct weft__message *delivering;                  /* its payload is in a lane, or NULL */
    uint32_t urgent_seen;
    struct weft__message *postponed; /* of the inbox: what is in lanes goes before it */
    char *records;
    size_t uncut_records;
    char *cells[3];
    size_t uncut[3];      /* cells at the end of the memory that have never been used */
    int left;             /* stands in the group's list */
    _Atomic int returned; /* its function has, while its helper goes on */
    _Atomic int exists;   /* 0: never, 1: has a context, 2: had one */
};

struct weft_local {
    int size;
    uint64_t group;
    size_t eager_bytes;
    size_t small_cells;
    size_t large_cells;
    struct weft__endpoint *endpoints;
    struct weft__lane *lanes; /* [to * size + from]; NULL: there are none */
    char *behind;             /* the payload of each */
    size_t lane_bytes;        /* what goes by a lane has at most so many */
    _Atomic int32_t *left;    /* ranks that have left or returned; NOBODY at the end */
    _Atomic uint32_t left_count;
    _Atomic(struct kept *) kept;
};

struct weft__local_transport {
    struct weft__transport base;
    struct weft_local *local;
    struct weft__endpoint *own;
    atomic_uint left_seen; /* of the group's list */
    int used;              /* by a context that was made */
};

static inline struct weft__lane *weft__lane_of(const struct weft_local *local, int from, int to)
{
    return &local->lanes[to * local->size + from];
}

/* ---- lane.c ---- */

/* Lanes for all pairs, if there are to be some. WEFT_OK or WEFT_ERR_MEMORY. */
int weft__lanes_make(struct weft_local *local, int wanted);
void weft__lanes_free(struct weft_local *local);
/* Memory for what lanes bring to a rank, which is not touched before it is used. */
int weft__lane_records_make(const struct weft_local *local, struct weft__endpoint *own);
void weft__lane_records_free(struct weft__endpoint *own);

enum { WEFT__LANE_SENT = 1, WEFT__LANE_NOT, WEFT__LANE_FULL };
/* Sends a message whose payload, if any, is `bytes` bytes. NOT: it goes by the inbox now. FULL: its
 * receiver is so far behind that who sends may as well wait. */
int weft__lane_send(const struct weft__local_transport *self, const struct weft__message *message,
                    size_t bytes, const struct weft__xfer *xfer);
/* Hands over what is in the lane of a rank; if not all of it, as far as its receiver can use it.
 * Returns how much; *rest is set if there was no memory for some of it now. */
int weft__lane_take(const struct weft__local_transport *self, int from, int all, int *rest);
void weft__lane_release(const struct weft__local_transport *self, struct weft__message *message);

#endif
