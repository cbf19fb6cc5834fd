/* SPDX-License-Identifier: BSD-3-Clause */
/* The events of virtual time: a heap with four children a node, by time, turn and age. */
#include "runtime/base/alloc.h"
#include "runtime/transport/virtual/virtual.h"

static inline int before(const struct weft__virtual_entry *a, const struct weft__virtual_entry *b)
{
    if (a->time != b->time)
        return a->time < b->time;
    if (a->turn != b->turn)
        return a->turn < b->turn;
    return a->sequence < b->sequence;
}

int weft__virtual_queue_reserve(struct weft__virtual_queue *queue, size_t count)
{
    return weft__grow((void **)&queue->entries, &queue->capacity, count, sizeof *queue->entries);
}

void weft__virtual_queue_push(struct weft__virtual_queue *queue, struct weft__virtual_entry entry)
{
    size_t at = queue->count++;
    entry.sequence = queue->sequence++;
    while (at > 0) {
        size_t parent = (at - 1) / 4;
        if (!before(&entry, &queue->entries[parent]))
            break;
        queue->entries[at] = queue->entries[parent];
        at = parent;
    }
    queue->entries[at] = entry;
}

struct weft__virtual_entry weft__virtual_queue_pop(struct weft__virtual_queue *queue)
{
    struct weft__virtual_entry *entries = queue->entries;
    struct weft__virtual_entry first = entries[0];
    struct weft__virtual_entry last = entries[--queue->count];
    size_t count = queue->count;
    size_t at = 0;
    for (size_t child = 1; child < count; child = 4 * at + 1) {
        size_t least = child;
        size_t end = child + 4 < count ? child + 4 : count;
        for (size_t c = child + 1; c < end; c++)
            if (before(&entries[c], &entries[least]))
                least = c;
        if (!before(&entries[least], &last))
            break;
        entries[at] = entries[least];
        at = least;
    }
    if (count > 0)
        entries[at] = last;
    return first;
}
