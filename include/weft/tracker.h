/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The orders that the memory of a schedule asks for, found from what its nodes read and write.
 *
 * Who writes a collective thinks of what a rank does as one list: receive this, add it to that,
 * send the sum. A tracker takes the nodes in that order and adds an order wherever two of them
 * touch a common element and at least one writes it: read after write, write after read, write
 * after write; and the reader of a value after the node that produces it. No two of its nodes race
 * then, whatever is done in place, and everything else may overlap.
 *
 * @code
 * struct weft_tracker *t;
 * weft_tracker_create(&t, schedule);
 * weft_tracker_add(t, weft_schedule_add_recv(schedule, tmp, left, 0));
 * weft_tracker_add(t, weft_schedule_add_reduce(schedule, op, sum, sum, tmp)); // after the first
 * weft_tracker_add(t, weft_schedule_add_send(schedule, sum, right, 0));       // after the second
 * weft_tracker_destroy(t);
 * status = weft_schedule_status(schedule);
 * @endcode
 */
#ifndef WEFT_TRACKER_H
#define WEFT_TRACKER_H

#include <weft/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_tracker;

/**
 * Makes a tracker of a schedule, which it borrows until it is destroyed. Nodes that the schedule
 * has already are unknown to it until they are added.
 * @return WEFT_OK; WEFT_ERR_INVALID: an argument is NULL; WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_tracker_create(struct weft_tracker **tracker, struct weft_schedule *schedule);

/**
 * Adds the orders that @p node needs after the nodes added before it. They are as few as the nodes
 * next to it: the last writer of each element that it reads, and of each element that it writes the
 * readers since then, or the last writer if there are none. What slots of kind WEFT_SLOT_INPUT hold
 * is never written, so it needs none. Takes time in the logarithm of the pieces into which a slot
 * has been cut by different regions, and in the orders that it adds.
 *
 * Nodes may be ordered otherwise as well, by weft_schedule_add_order().
 *
 * @param node of the tracker's schedule. Negative: an error of weft_schedule_add_...(), which the
 *        schedule keeps; nothing is done.
 * @return @p node; WEFT_ERR_INVALID (@p tracker is NULL, or there is no such node);
 *         WEFT_ERR_MEMORY. The last two become the error of the schedule too, so one look at
 *         weft_schedule_status() in the end is enough.
 *
 * A tracker belongs to the thread that builds its schedule.
 */
WEFT_EXPORT weft_node_t weft_tracker_add(struct weft_tracker *tracker, weft_node_t node);

/** Frees a tracker, not its schedule. NULL is accepted. */
WEFT_EXPORT void weft_tracker_destroy(struct weft_tracker *tracker);

#ifdef __cplusplus
}
#endif

#endif
