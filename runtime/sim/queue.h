/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator's future: events by time, those of one time by `order`, which counts causes.
 *
 * A radix heap. Time never goes back, so an event waits in the bucket of the highest bit in which
 * its time differs from now; when the buckets below are empty, the lowest that is not is dealt out
 * again. An event moves down at most 64 buckets, in practice one or two: collectives are regular,
 * and thousands of events share an instant. Bucket 0 is that instant, sorted by order, which it
 * nearly always is as it comes. What is added to the instant with an order that has gone by
 * (something that waited may go on) is kept in a small binary heap beside it.
 */
#ifndef WEFT_RUNTIME_SIM_QUEUE_H
#define WEFT_RUNTIME_SIM_QUEUE_H

#include <weft/status.h>

/* What an event is about is the simulator's affair. */
struct weft__sim_event {
    uint64_t time;
    uint64_t order;
    uint32_t rank;
    uint32_t node;
    uint32_t source;
    uint32_t what;
};

struct weft__sim_bucket {
    struct weft__sim_event *events;
    size_t count, capacity;
};

struct weft__sim_queue {
    uint64_t now;
    size_t count;
    size_t head;       /* of bucket 0 */
    uint64_t occupied; /* bit b: bucket b + 1 has events */
    struct weft__sim_bucket bucket[65];
    struct weft__sim_bucket late; /* binary heap by order, of the time `now` */
};

/* An event at a time that is not before `now`. 0, or -1 (out of memory). */
int weft__sim_push(struct weft__sim_queue *queue, const struct weft__sim_event *event);

/* The next event, if there is one (queue->count > 0). 0, or -1 (out of memory). */
int weft__sim_pop(struct weft__sim_queue *queue, struct weft__sim_event *event);

/* The event that comes after `ahead` others of this instant, to fetch its memory early; or NULL. */
static inline const struct weft__sim_event *weft__sim_peek(const struct weft__sim_queue *queue,
                                                           size_t ahead)
{
    const struct weft__sim_bucket *first = &queue->bucket[0];

    return ahead < first->count - queue->head ? &first->events[queue->head + ahead] : NULL;
}

void weft__sim_queue_free(struct weft__sim_queue *queue);

#endif
