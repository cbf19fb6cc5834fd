/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulator's queue of events; queue.h says how it works. */
#include "runtime/sim/queue.h"

#include "runtime/base/alloc.h"

#include <stdlib.h>

static int append(struct weft__sim_bucket *bucket, const struct weft__sim_event *event)
{
    if (bucket->count == bucket->capacity && weft__grow((void **)&bucket->events, &bucket->capacity,
                                                        bucket->count + 1, sizeof *bucket->events))
        return -1;
    bucket->events[bucket->count++] = *event;
    return 0;
}

/* ---- the heap of what comes late ---- */

static int late_push(struct weft__sim_bucket *late, const struct weft__sim_event *event)
{
    size_t at = late->count;

    if (append(late, event))
        return -1;
    for (; at && late->events[(at - 1) / 2].order > event->order; at = (at - 1) / 2)
        late->events[at] = late->events[(at - 1) / 2];
    late->events[at] = *event;
    return 0;
}

static void late_pop(struct weft__sim_bucket *late, struct weft__sim_event *event)
{
    const struct weft__sim_event last = late->events[--late->count];
    size_t at = 0;

    *event = late->events[0];
    for (size_t child; (child = 2 * at + 1) < late->count; at = child) {
        child +=
            child + 1 < late->count && late->events[child + 1].order < late->events[child].order;
        if (late->events[child].order >= last.order)
            break;
        late->events[at] = late->events[child];
    }
    late->events[at] = last;
}

/* ---- buckets ---- */

int weft__sim_push(struct weft__sim_queue *queue, const struct weft__sim_event *event)
{
    struct weft__sim_bucket *first = &queue->bucket[0];
    uint64_t differs = event->time ^ queue->now;
    int status;

    if (differs) {
        int high = 63 - __builtin_clzll(differs);

        queue->occupied |= UINT64_C(1) << high;
        status = append(&queue->bucket[high + 1], event);
    } else if (first->count && first->events[first->count - 1].order > event->order) {
        status = late_push(&queue->late, event);
    } else {
        status = append(first, event);
    }
    queue->count += status == 0;
    return status;
}

static int by_order(const void *left, const void *right)
{
    const struct weft__sim_event *a = left, *b = right;

    return a->order < b->order ? -1 : a->order > b->order;
}

/* Deals the lowest bucket out: its earliest time becomes now. Bucket 0 is empty. */
static int advance(struct weft__sim_queue *queue)
{
    int lowest = __builtin_ctzll(queue->occupied);
    struct weft__sim_bucket *from = &queue->bucket[lowest + 1];
    struct weft__sim_bucket *first = &queue->bucket[0];
    uint64_t earliest = from->events[0].time;
    int sorted = 1;

    for (size_t i = 1; i < from->count; i++)
        earliest = from->events[i].time < earliest ? from->events[i].time : earliest;
    queue->now = earliest;
    queue->head = 0;
    first->count = 0;
    queue->occupied &= queue->occupied - 1;
    for (size_t i = 0; i < from->count; i++) {
        const struct weft__sim_event *event = &from->events[i];
        uint64_t differs = event->time ^ earliest;
        int high = differs ? 63 - __builtin_clzll(differs) : -1;

        if (append(&queue->bucket[high + 1], event))
            return -1;
        if (differs)
            queue->occupied |= UINT64_C(1) << high;
        else if (first->count > 1)
            sorted &= first->events[first->count - 2].order < event->order;
    }
    from->count = 0;
    if (!sorted)
        qsort(first->events, first->count, sizeof *first->events, by_order);
    return 0;
}

int weft__sim_pop(struct weft__sim_queue *queue, struct weft__sim_event *event)
{
    struct weft__sim_bucket *first = &queue->bucket[0];

    if (queue->head == first->count) {
        first->count = queue->head = 0;
        if (!queue->late.count && advance(queue))
            return -1;
    }
    queue->count--;
    if (queue->late.count && (queue->head == first->count ||
                              queue->late.events[0].order < first->events[queue->head].order))
        late_pop(&queue->late, event);
    else
        *event = first->events[queue->head++];
    return 0;
}

void weft__sim_queue_free(struct weft__sim_queue *queue)
{
    for (int i = 0; i < 65; i++)
        weft__free(queue->bucket[i].events);
    weft__free(queue->late.events);
}
