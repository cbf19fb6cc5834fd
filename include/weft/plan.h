/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Plans: committed schedules. A plan is flat arrays without spare memory, immutable, counted by
 * reference, and may be used from any thread by any number of runs.
 */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include <weft/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_plan;

/**
 * Validates and compiles a schedule. The schedule is borrowed and stays as it was.
 * @return WEFT_OK; the schedule's first error; WEFT_ERR_CYCLE (the text names a node on it);
 *         WEFT_ERR_DUPLICATE (names both nodes); WEFT_ERR_INVALID (a value nobody produces before
 *         it is read); WEFT_ERR_MEMORY. O(nodes + edges).
 */
WEFT_EXPORT int weft_schedule_commit(const struct weft_schedule *schedule, struct weft_plan **plan);

/** Gives the caller's reference back; runs hold their own. NULL is accepted. */
WEFT_EXPORT void weft_plan_destroy(struct weft_plan *plan);

/** The name, rank and size of the schedule that a plan was made from, and its nodes. The name
 *  belongs to the plan. Of NULL: "", WEFT_ERR_INVALID and 0. */
WEFT_EXPORT const char *weft_plan_name(const struct weft_plan *plan);
WEFT_EXPORT int weft_plan_rank(const struct weft_plan *plan);
WEFT_EXPORT int weft_plan_size(const struct weft_plan *plan);
WEFT_EXPORT size_t weft_plan_node_count(const struct weft_plan *plan);
/** Bytes the plan takes; 0 if @p plan is NULL. */
WEFT_EXPORT size_t weft_plan_bytes(const struct weft_plan *plan);
/** Bytes that weft_run_create() takes for a run of it: scratch is in it, the user's buffers and the
 *  context's own tables are not. 0 if @p plan is NULL. */
WEFT_EXPORT size_t weft_plan_run_bytes(const struct weft_plan *plan);

/** How many slots it has, scratch included; 0 if @p plan is NULL. */
WEFT_EXPORT size_t weft_plan_slot_count(const struct weft_plan *plan);
/** Slot number @p slot, as it was added; the name belongs to the plan. @return WEFT_OK, or
 *  WEFT_ERR_INVALID if there is no such slot. */
WEFT_EXPORT int weft_plan_get_slot(const struct weft_plan *plan, weft_slot_t slot,
                                   struct weft_slot_info *info);

/** The slot or value with a name; WEFT_ERR_NOT_FOUND (negative) if there is none. */
WEFT_EXPORT weft_slot_t weft_plan_find_slot(const struct weft_plan *plan, const char *name);
WEFT_EXPORT weft_value_t weft_plan_find_value(const struct weft_plan *plan, const char *name);

#ifdef __cplusplus
}
#endif

#endif
