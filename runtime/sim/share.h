/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who gets how much of what: max-min fair shares (Bertsekas, Gallager: "Data Networks", section
 * 6.5.2), by progressive filling. No flow can have more without a flow that has no more having
 * less.
 *
 * Flows and resources are numbers. A flow uses the same rate of all of its resources. When flows
 * come and go, only those are looked at again that are tied to them by resources in use: on a
 * network most are not.
 */
#ifndef WEFT_RUNTIME_SIM_SHARE_H
#define WEFT_RUNTIME_SIM_SHARE_H

#include <stddef.h>
#include <stdint.h>

struct weft__resource {
    double capacity;
    double left;    /* while shares are worked out: of the capacity */
    uint32_t open;  /* then: flows that have no share yet */
    uint32_t count; /* flows that use it */
    uint32_t first; /* entry of one of them, + 1 */
    uint32_t seen;  /* the turn in which it was met */
    uint32_t dirty;
};

/* That a flow uses a resource: entry `flow * stride + i` is its i-th. */
struct weft__use {
    uint32_t resource;
    uint32_t next, previous; /* of the resource: entries, + 1 */
};

struct weft__sharer {
    uint32_t uses; /* of the stride that are in use */
    uint32_t seen;
    double share;
};

/* A resource in the order of what it has for each. */
struct weft__offer {
    double share;
    uint32_t resource;
};

struct weft__shares {
    struct weft__resource *resources;
    struct weft__use *uses;
    struct weft__sharer *flows;
    uint32_t *dirty, *met; /* stacks of resources: changed, of a turn */
    struct weft__offer *offers;
    uint32_t *affected; /* flows of the last turn */
    size_t use_capacity, flow_capacity, affected_capacity;
    uint32_t resource_count, dirty_count, met_count, affected_count, stride, turn;
};

/* `count` resources of no capacity, flows that use at most `stride` each. 0, or -1 without memory:
 * then, too, weft__shares_free(). */
int weft__shares_begin(struct weft__shares *shares, uint32_t count, uint32_t stride);
void weft__shares_free(struct weft__shares *shares);

/* Room for flows 0 .. count - 1. 0, or -1 without memory. */
int weft__shares_reserve(struct weft__shares *shares, uint32_t count);

/* A flow comes, that uses `count` different resources; or goes. */
void weft__shares_add(struct weft__shares *shares, uint32_t flow, const uint32_t *resources,
                      uint32_t count);
void weft__shares_remove(struct weft__shares *shares, uint32_t flow);

/* Works out the shares after flows have come and gone: those of `affected`, `affected_count`
 * flows, may have changed (flows[].share); one that uses nothing has HUGE_VAL. */
void weft__shares_solve(struct weft__shares *shares);

#endif
