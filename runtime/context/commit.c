/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The commit that users call. Here is what comes before the compilation, copies between host and
 * device, and what the environment may want of a plan after it: WEFT_DUMP, a file of its own for
 * every plan.
 */
#include "runtime/context/context.h"
#include "runtime/graph/schedule.h"
#include <weft/format.h>
#include <weft/memory.h>

/* Failing to write one is no error. */
static void dump(const struct weft_schedule *schedule)
{
    static atomic_uint counter;
    const char *directory = weft__env_dump();
    char *text = NULL;
    size_t length = 0;
    if (!directory ||
        weft_schedule_write(&schedule, 1, WEFT_FORMAT_TEXT, &text, &length) != WEFT_OK)
        return;
    weft__env_dump_file(directory, weft_schedule_name(schedule), weft_schedule_rank(schedule),
                        weft_schedule_size(schedule), atomic_fetch_add(&counter, 1), text, length);
    weft_memory_free(text);
}

/* *placed: the schedule with copies between host and device, or NULL if it needs none. */
static int place(const char *who, const struct weft_schedule *schedule,
                 struct weft_schedule **placed)
{
    int status = weft__schedule_check_sides(who, schedule);
    *placed = NULL;
    if (status != WEFT_OK || weft__schedule_is_placed(schedule))
        return status;
    status = weft__schedule_copy(schedule, placed);
    return status == WEFT_OK ? weft_schedule_place(*placed) : status;
}

int weft_schedule_commit(const struct weft_schedule *schedule, struct weft_plan **plan)
{
    struct weft_schedule *placed = NULL;
    int status = WEFT_OK;
    if (schedule && schedule->status == WEFT_OK)
        status = place(__func__, schedule, &placed);
    if (placed)
        schedule = placed;
    if (status == WEFT_OK)
        status = weft__plan_compile(__func__, schedule, plan);
    if (status == WEFT_OK)
        dump(schedule);
    weft_schedule_destroy(placed);
    return status;
}
