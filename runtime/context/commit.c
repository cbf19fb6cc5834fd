/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The commit that users call. Here is what the environment may want of a plan once it has been
 * compiled: WEFT_DUMP, a file of its own for every plan.
 */
#include "runtime/context/context.h"
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

int weft_schedule_commit(const struct weft_schedule *schedule, struct weft_plan **plan)
{
    int status = weft__plan_compile(__func__, schedule, plan);
    if (status == WEFT_OK)
        dump(schedule);
    return status;
}
