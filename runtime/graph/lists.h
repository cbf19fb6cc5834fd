/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of numbers, one a key, in two flat arrays: those of key k are
 *
 *     items[first[k]] .. items[first[k + 1] - 1]        ascending, each once
 *
 * The successors and the predecessors of nodes are such lists; whatever else belongs to numbered
 * things may be. This is the only place that makes them from edges.
 */
#ifndef WEFT_RUNTIME_GRAPH_LISTS_H
#define WEFT_RUNTIME_GRAPH_LISTS_H

#include "runtime/graph/schedule.h"

struct weft__lists {
    uint32_t *first; /* keys + 1 */
    uint32_t *items;
};

/* Which end of an edge is the key; the other one is the item. */
enum weft__way {
    WEFT__SUCCESSORS,  /* of `before` */
    WEFT__PREDECESSORS /* of `after` */
};

/* Fills the caller's arrays, `first` of keys + 1 and `items` of count. An edge that is there twice
 * is one, so first[keys] of the items are used. Items may be any numbers. O(keys + count + the
 * largest item). 0, or -1: no memory, or 2^32 - 1 edges or more. */
int weft__lists_fill(uint32_t *first, uint32_t *items, const struct weft__edge *edges, size_t count,
                     size_t keys, enum weft__way way);

/* The same in arrays of its own. */
int weft__lists_build(struct weft__lists *lists, const struct weft__edge *edges, size_t count,
                      size_t keys, enum weft__way way);
/* Of the nodes of a schedule. */
int weft__lists_of(struct weft__lists *lists, const struct weft_schedule *schedule,
                   enum weft__way way);
/* Room for a search, a number a key each; `seen` begins as zeroes. */
struct weft__search {
    uint32_t *queue, *seen;
    uint32_t *from; /* after a way was found: what leads to a number on it */
    uint64_t steps; /* of all searches */
};

/* The shortest way from a key back to itself, shorter than `most`; its length, or 0. */
uint32_t weft__lists_way_around(const struct weft__lists *lists, struct weft__search *search,
                                uint32_t start, uint32_t most);
/* Accepts lists of zeroes. */
void weft__lists_free(struct weft__lists *lists);

/* The successors of the nodes of several schedules (NULL: one without nodes) in one numbering,
 * which goes through them in turn: the caller's `first` has a place a node and one more, `items`
 * one an edge. waits[n], zero before, becomes the number of node n's predecessors. 0, or -1 as
 * above. */
int weft__lists_join(uint32_t *first, uint32_t *items, uint32_t *waits,
                     const struct weft_schedule *const *schedules, size_t count);

#endif
