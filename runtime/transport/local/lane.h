/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes: messages between two local ranks of few, in lines that one writes and the other reads, so
 * that each moves one cache line, and its payload if that does not fit into the line; an inbox,
 * which anybody writes to, moves six. Lines and what is behind them are rings, as between processes
 * (runtime/transport/shared/ring.c): what is taken at once by a run is read from there, and only
 * what nobody waits for yet is copied.
 *
 * A message goes by the lane if there is room, and its receiver has taken all that this sender has
 * put into the inbox. So messages of one rank stay in order: who takes the inbox, then what is in
 * the lanes, then hands over what was in the lanes, then what was in the inbox, hands over each
 * rank's messages as they were sent, since
 *   - what was in the lane was sent before what was in the inbox: while there is something of a
 *     rank's there, that rank does not write to the lane;
 *   - what comes into the lane later was sent after it.
 * Where nothing is in the inbox, a receiver takes of a lane what it can use, and leaves the rest
 * there: as between processes.
 *
 * A sender that finds the lane full is a lane ahead of its receiver: its message waits for the
 * receiver, by the inbox, and all that follows has an empty lane.
 */
#ifndef WEFT_RUNTIME_TRANSPORT_LOCAL_LANE_H
#define WEFT_RUNTIME_TRANSPORT_LOCAL_LANE_H

#include "runtime/engine/transport.h"
#include "runtime/transport/shared/region.h"

/* Lanes are looked at one after the other, and there is one for each pair. */
enum {
    WEFT__LANE_RANKS = 8,
    WEFT__LANE_LINES = 256,       /* of a lane: a power of two */
    WEFT__LANE_BEHIND = 64 << 10, /* bytes of payload: a power of two */
    WEFT__LANE_BYTES = 16 << 10,  /* of one message, at most */
    WEFT__LANE_RECORDS = 256,     /* messages of one rank that another has taken and not released */
    WEFT__LANE_SMALL = 256 /* records that are kept have so many bytes, or as many as can be */
};

/* Kept 128 bytes apart: processors fetch pairs of lines. */
struct weft__lane {
    _Alignas(128) struct weft__line lines[WEFT__LANE_LINES];
    /* The receiver's. */
    _Alignas(128) _Atomic uint32_t taken; /* lines */
    _Atomic uint32_t released;            /* of the messages in them */
    _Atomic uint32_t from_inbox;          /* messages of the sender that it has handed over */
    _Atomic uint32_t behind_taken;        /* bytes of payload */
    /* The sender's. */
    _Alignas(128) uint32_t position; /* of the next line */
    uint32_t limit;                  /* before which there is room, as last seen */
    uint32_t in_inbox;               /* messages put there */
    uint32_t seen;                   /* of from_inbox */
    uint32_t behind, behind_limit;   /* payload: position of the next, and as limit */
};

/* What is taken of a lane: the engine's until it is released. */
struct weft__lane_record {
    struct weft__message message; /* .own: the sender */
    size_t capacity;              /* of the payload, if it was behind the line */
    _Alignas(64) unsigned char payload[WEFT__LINE_PAYLOAD];
};

/* The line has been written: its last store. */
static inline void weft__lane_publish(struct weft__lane *lane, struct weft__line *line)
{
    /* Release: pairs with weft__lane_has(). Sequentially consistent, for the bell. */
    atomic_store_explicit(&line->sequence, weft__line_sequence(lane->position++),
                          memory_order_seq_cst);
}

/* Whether there is a message that has not been taken. Any thread. */
static inline int weft__lane_has(const struct weft__lane *lane)
{
    uint32_t taken = atomic_load_explicit(&lane->taken, memory_order_relaxed);
    return atomic_load_explicit(&lane->lines[taken % WEFT__LANE_LINES].sequence,
                                memory_order_seq_cst) == weft__line_sequence(taken);
}

#endif
