/* SPDX-License-Identifier: BSD-3-Clause */
/* Orders from what nodes touch (weft/tracker.h), on the intervals of access.h. */
#include <weft/tracker.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/graph/access.h"
#include "runtime/graph/schedule.h"

struct weft_tracker {
    const char *who; /* in errors: the public function */
    struct weft_schedule *schedule;
    struct weft__accesses accesses;
    uint32_t *ordered; /* by node: 1 + the latest that was ordered after it, or 0 */
    size_t ordered_count, ordered_capacity;
};

int weft_tracker_create(struct weft_tracker **tracker, struct weft_schedule *schedule)
{
    struct weft_tracker *made;

    if (!tracker || !schedule)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__,
                             tracker ? "schedule" : "tracker");
    made = weft__calloc(1, sizeof *made);
    if (!made)
        return weft__error_memory(__func__);
    made->schedule = schedule;
    *tracker = made;
    return WEFT_OK;
}

void weft_tracker_destroy(struct weft_tracker *tracker)
{
    if (!tracker)
        return;
    weft__accesses_free(&tracker->accesses);
    weft__free(tracker->ordered);
    weft__free(tracker);
}

/* Room for what is ordered after a node. 0, or -1 without memory. */
static int reserve(struct weft_tracker *tracker, uint32_t node)
{
    if (weft__grow((void **)&tracker->ordered, &tracker->ordered_capacity, (size_t)node + 1,
                   sizeof *tracker->ordered))
        return -1;
    for (; tracker->ordered_count < tracker->ordered_capacity; tracker->ordered_count++)
        tracker->ordered[tracker->ordered_count] = 0;
    return 0;
}

/* Orders a node after another, unless it is that or the same order was the last of `before`. 0, or
 * -1 without memory. */
static int order(struct weft_tracker *tracker, uint32_t before, uint32_t node)
{
    if (before == WEFT__NOBODY || before == node)
        return 0;
    if (before >= tracker->ordered_count && reserve(tracker, before))
        return -1;
    if (tracker->ordered[before] == node + 1)
        return 0;
    tracker->ordered[before] = node + 1;
    return weft__schedule_link(tracker->schedule, (weft_node_t)before, (weft_node_t)node,
                               tracker->who)
               ? -1
               : 0;
}

/* A read comes after the writer, a write after the readers, who have come after the writer. */
static int order_after(void *user, const struct weft__access *before, int32_t slot, uint32_t node,
                       int write)
{
    struct weft_tracker *tracker = user;
    uint32_t reader = write ? before->readers : WEFT__NOBODY;

    (void)slot;
    if (reader == WEFT__NOBODY)
        return order(tracker, before->writer, node);
    for (; reader != WEFT__NOBODY; reader = tracker->accesses.readers[reader].next)
        if (order(tracker, tracker->accesses.readers[reader].node, node))
            return -1;
    return 0;
}

static int touch(struct weft_tracker *tracker, uint32_t node, const struct weft_region *region,
                 int write)
{
    const struct weft_schedule *schedule = tracker->schedule;
    weft_node_t producer = region->value ? schedule->values[region->value - 1].producer : -1;

    if (producer >= 0 && order(tracker, (uint32_t)producer, node))
        return -1;
    if (schedule->buffers[region->slot].kind == WEFT_SLOT_INPUT)
        return 0;
    return weft__accesses_add(&tracker->accesses, region, node, write, order_after, tracker);
}

weft_node_t weft_tracker_add(struct weft_tracker *tracker, weft_node_t node)
{
    struct weft_schedule *schedule;
    const struct weft__snode *n;

    if (!tracker)
        return WEFT__INVALID("%s: argument `tracker` is NULL", __func__);
    schedule = tracker->schedule;
    tracker->who = __func__;
    WEFT__ENTER(schedule);
    if (node < 0)
        return node;
    if ((size_t)node >= schedule->node_count)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `node` is %d, expected less than %zu", __func__,
                                   (int)node, schedule->node_count);
    n = &schedule->nodes[node];
    for (int write = 0; write < 2; write++)
        for (uint32_t r = 0; r < n->region_count; r++)
            if (weft__snode_writes(schedule, n, r) == write &&
                touch(tracker, (uint32_t)node, &schedule->regions[n->regions + r], write))
                return schedule->status ? schedule->status
                                        : weft__schedule_fail_memory(schedule, __func__);
    return node;
}
