/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages under way on a fabric, as a fluid: while its bytes move, a message uses all links of its
 * route at once, and the adapters of its ranks, at a rate that is its max-min fair share of them
 * (share.h). Rates change only when a message begins or ends, so these are the events; what happens
 * at one instant is worked out together, behind everything else of that instant.
 *
 *     ENTER    the first byte is at the link that leaves the sender
 *     SETTLE   flows have come or gone at this instant: shares, and with them ends, are others
 *     WAKE     a flow ends: its last byte has left, and is at the receiver after all latencies
 *
 * A rank sends one message at a time over each of the links that leave its host; the next waits.
 */
#ifndef WEFT_RUNTIME_SIM_FLOWS_H
#define WEFT_RUNTIME_SIM_FLOWS_H

#include "runtime/cost/loggops.h"
#include "runtime/sim/queue.h"
#include "runtime/sim/route.h"
#include "runtime/sim/share.h"

#include <weft/sim.h>

/* What was sent over something: messages, and their bytes. */
struct weft__load {
    uint64_t messages, bytes;
};

/* A message under way, or one that waits for its turn. */
struct weft__flow {
    double left;         /* ticks at rate 1, at `since` */
    double rate;         /* 0: not settled yet */
    weft__ticks_t since; /* it has this rate */
    weft__ticks_t end;
    struct weft__sim_event message;
    uint32_t place; /* in the heap of ends, + 1 */
    uint32_t next;  /* that waits behind it, or is free, + 1 */
    uint32_t lane, hops;
};

/* Who uses a link that leaves a rank's host: flows, + 1. */
struct weft__lane {
    uint32_t first, last;
};

struct weft__flows {
    struct weft__routes routes;
    struct weft__shares shares;
    uint32_t ranks;
    uint32_t *hosts;     /* of ranks */
    weft__ticks_t hop;   /* latency of a link */
    double per_byte;     /* ticks a byte at rate 1: of the slower of link and adapter */
    int links, adapters; /* have a bandwidth */
    struct weft__lane *lanes;
    struct weft__flow *flows;
    uint32_t *ends; /* heap: flows, the earliest end first */
    uint32_t *route, *uses;
    size_t flow_capacity, end_capacity;
    uint32_t flow_count, free_flow, end_count;
    weft__ticks_t wake;                    /* when the next WAKE comes */
    int settling;                          /* a SETTLE is in the queue */
    struct weft__load *loads;              /* of links */
    uint64_t crossing[WEFT_FABRIC_LEVELS]; /* bytes of messages that cross a link of a level */
};

struct weft__sim;

/* Makes sim->flows of the config's fabric: NULL where it has none. WEFT_OK; WEFT_ERR_INVALID;
 * WEFT_ERR_MEMORY. */
int weft__flows_create(struct weft__sim *sim, const struct weft_net *net);
void weft__flows_destroy(struct weft__flows *flows);

/* An ENTER, a SETTLE, a WAKE. What goes wrong is in sim->status. */
void weft__flows_happen(struct weft__sim *sim, const struct weft__sim_event *event);

/* ---- traffic.c ---- */

/* What went over the levels, and over the busiest links, until `time`; of no fabric: nothing.
 * WEFT_OK; WEFT_ERR_MEMORY. */
int weft__flows_traffic(const struct weft__sim *sim, weft__ticks_t time,
                        struct weft_sim_result *result);

#endif
