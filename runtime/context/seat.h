/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of one host that have a hardware thread each keep apart.
 *
 * The system may put two ranks on one hardware thread and leave them there, while another has only
 * work of low priority: each message then costs two switches. So who waits says where it does, in a
 * word that the others see, its seat. Who finds again and again that a rank has waited on its own
 * hardware thread since it looked last moves to one where nobody is:
 *
 *   rank 0, on thread 0             rank 1, on thread 0             thread 1: nobody's seat
 *     waits: seat 0 = (1, 0)
 *     yields ---------------------->  waits: seat 1 = (1, 0)
 *                                     seat 0 says 0, and again: (2, 0), (3, 0), ...
 *                                     moves ------------------------> seat 1 = (n, 1)
 *
 * Nothing is bound: the affinity mask is what it was, so threads that are made later, the user's
 * own, inherit nothing, and the system may move the rank again; each move makes the next wait twice
 * as long, until one has been good for a while. Where somebody's work takes turns with the rank,
 * each yield is a slice of it, a thousand times what a message costs: if that takes half of the
 * time, the rank goes back, and stays there for longer. Of two that share it is the later one that
 * moves; the earlier one does if that one stays for long, as it may be bound.
 */
#ifndef WEFT_RUNTIME_CONTEXT_SEAT_H
#define WEFT_RUNTIME_CONTEXT_SEAT_H

#include <stdatomic.h>
#include <stdint.h>

struct weft_context;
struct weft__transport;

/* Of a rank, under the lock of who drives. */
struct weft__seating {
    int says;  /* where it is */
    int moves; /* it may */
    uint32_t yields;
    uint64_t looks;
    uint64_t *said;  /* by each seat at the last look */
    unsigned times;  /* looks in which another has waited here since the one before, ... */
    unsigned alone;  /* ... and in a row in which nobody has */
    uint64_t until;  /* no move before */
    uint64_t rest;   /* between the last move and the next */
    int from;        /* where it has moved from, a moment ago; -1: nowhere */
    uintptr_t who;   /* the thread that has */
    uint64_t moved;  /* when */
    unsigned slices; /* that it has lost to others since, ... */
    uint64_t lost;   /* ... and how long they were */
};

/* What a seat says: the looks of its rank, and the hardware thread; 0: nothing. */
static inline uint64_t weft__seat_word(uint64_t looks, int thread)
{
    return looks << 16 | (uint16_t)(thread + 1);
}

static inline int weft__seat_thread(uint64_t word)
{
    return (int)(word & UINT16_MAX) - 1;
}

/* One look from a hardware thread, which the rank's seat says. 1: it is time to move. */
WEFT__PRIVATE int weft__seating_look(struct weft__seating *seating,
                                     struct weft__transport *transport, int thread, uint64_t now);
/* It has moved from a hardware thread; -1: it could not. */
WEFT__PRIVATE void weft__seating_moved(struct weft__seating *seating, int from, uint64_t now);
/* A yield took so long. The hardware thread to go back to; -1: it stays. */
WEFT__PRIVATE int weft__seating_lost(struct weft__seating *seating, uint64_t began, uint64_t ended);

/* Where the ranks of this host fit on it; one that may use one hardware thread, or is not to move,
 * tells the others where it is. WEFT_OK or WEFT_ERR_MEMORY. */
WEFT__PRIVATE int weft__seating_open(struct weft_context *context);
WEFT__PRIVATE void weft__seating_close(struct weft_context *context);
/* A thread that drives, and has found nothing to do, yields. */
WEFT__PRIVATE void weft__seating_yield(struct weft_context *context, uint64_t now);

#endif
