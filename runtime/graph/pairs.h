/* SPDX-License-Identifier: BSD-3-Clause */
/* Which send reaches which receive, and which signal which event, among the schedules of a
 * document. */
#ifndef WEFT_RUNTIME_GRAPH_PAIRS_H
#define WEFT_RUNTIME_GRAPH_PAIRS_H

#include "runtime/graph/schedule.h"

/* A message or a signal. `from_at` and `to_at` are places in the array of schedules, not ranks. */
struct weft__pair {
    uint32_t from_at, to_at;
    weft_node_t from, to;
    int signal;
};

/* Messages first, then signals; within each by the receiver's rank, tag or channel, sender. A
 * signal is paired with every event on its channel; a send or receive without the other end is in
 * none. */
struct weft__pairs {
    struct weft__pair *at;
    size_t count, capacity;
};

/* The schedules are ascending in rank. 0, or WEFT_ERR_MEMORY (without a text). */
int weft__pairs_build(struct weft__pairs *pairs, const struct weft_schedule *const *schedules,
                      size_t count);
void weft__pairs_free(struct weft__pairs *pairs);

#endif
