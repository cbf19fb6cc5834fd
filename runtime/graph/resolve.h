/* SPDX-License-Identifier: BSD-3-Clause */
/* One of the executions that the schedules of all ranks allow: who fires which event, what is
 * retired. */
#ifndef WEFT_RUNTIME_GRAPH_RESOLVE_H
#define WEFT_RUNTIME_GRAPH_RESOLVE_H

#include "runtime/graph/pairs.h"

enum weft__fate { WEFT__FATE_OPEN, WEFT__FATE_ENDED, WEFT__FATE_RETIRED };

#define WEFT__FIRED_BY_APPLICATION SIZE_MAX

/* Node n of schedules[i] is number first[i] + n. */
struct weft__resolution {
    size_t *first;
    uint8_t *fate;      /* OPEN: nothing that can happen makes it end */
    weft_node_t *cause; /* an ANY node: the predecessor that started it, or -1 */
    size_t *fired_by;   /* an event that has ended: a pair, or WEFT__FIRED_BY_APPLICATION */
    size_t retired;
};

/* 1 if the schedules hold events, signals or nodes that wait for ANY predecessor. */
int weft__resolution_needed(const struct weft_schedule *const *schedules, size_t count);

/*
 * Executes the schedules, every message and signal taking one round. The application fires an event
 * without a channel at the start; where such an event competes with signals in a choice, only the
 * applications of the activators (none: of rank 0) do, the others when nothing else can happen.
 * WEFT_OK, or WEFT_ERR_MEMORY (without a text).
 */
int weft__resolution_build(struct weft__resolution *resolution,
                           const struct weft_schedule *const *schedules, size_t count,
                           const struct weft__pairs *pairs, const int *activators,
                           size_t activator_count);
void weft__resolution_free(struct weft__resolution *resolution);

#endif
