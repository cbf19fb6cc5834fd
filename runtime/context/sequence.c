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
    return context ? context->sequence_next : 0;
}

int weft_sequence_fail(struct weft_context *context, int status, const char *text)
{
    if (!context)
        return WEFT__INVALID("%s: argument `context` is NULL", __func__);
    if (status >= 0)
        return WEFT__INVALID("%s: argument `status` is %d, expected an error", __func__, status);
    const struct weft_run *run = context->sequence_run;
    if (run && !weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s`, of the sequence, is active",
                           __func__, run->plan->name);
    if (context->sequence_next == UINT64_MAX)
        return WEFT__INVALID("%s: the sequence has had the last version", __func__);
    weft__drive_lock(context);
    weft__sequence_give_up(&context->engine, context->sequence_next++, status,
                           text ? text : weft_status_text(status));
    weft__drive_unlock(context);
    return WEFT_OK;
}
