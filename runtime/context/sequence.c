/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sequence of a context: one object for the runs of any plans, whose versions are one sequence.
 *
 * Messages match on (object, version, peer, tag). Where the object is there from the beginning, and
 * the version is the number of the step, what a rank has made or kept for a step is its own affair:
 * nothing is created that the others would have to create, too.
 */
#include "runtime/base/error.h"
#include "runtime/context/context.h"

uint64_t weft_sequence_next(const struct weft_context *context)
{
    return context ? atomic_load_explicit(&context->sequence_next, memory_order_relaxed) : 0;
}

int weft__sequence_check(const char *who, struct weft_context *context)
{
    if (!atomic_load_explicit(&context->engine.sequence_busy, memory_order_acquire))
        return WEFT_OK;
    /* It could end, and be freed, while its name is read, unless this thread drives. */
    int drives = weft__drives(context), locked = !drives && weft__drive_try(context);
    const struct weft_run *run = atomic_load_explicit(&context->sequence_run, memory_order_relaxed);
    int named = (drives || locked) && run;
    int status =
        weft__error(WEFT_ERR_STATE, "%s: the run%s%s%s of the same sequence is active", who,
                    named ? " of `" : "", named ? run->plan->name : "", named ? "`," : "");
    if (locked)
        weft__drive_unlock(context);
    return status;
}

int weft_sequence_fail(struct weft_context *context, int status, const char *text)
{
    if (!context)
        return WEFT__INVALID("%s: argument `context` is NULL", __func__);
    if (status >= 0)
        return WEFT__INVALID("%s: argument `status` is %d, expected an error", __func__, status);
    int active = weft__sequence_check(__func__, context);
    if (active != WEFT_OK)
        return active;
    uint64_t next = weft_sequence_next(context);
    if (next == UINT64_MAX)
        return WEFT__INVALID("%s: the sequence has had the last version", __func__);
    int drives = weft__drives(context); /* in a callback of the run before */
    if (!drives)
        weft__drive_lock(context);
    atomic_store_explicit(&context->sequence_next, next + 1, memory_order_relaxed);
    weft__sequence_give_up(&context->engine, next, status, text ? text : weft_status_text(status));
    if (!drives)
        weft__drive_unlock(context);
    return WEFT_OK;
}
