/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse averages that are parts of another object: one fails with it and as it, its runs are that
 * object's. So making one needs no meeting and never waits, and who makes it sees to it that all
 * ranks make the same, in the same order. The rest of weft/sparse_average.h is used as ever;
 * weft_sparse_average_destroy() leaves the object to its owner.
 */
#ifndef WEFT_SCHEDULES_OBJECTS_SPARSE_AVERAGE_MEMBER_H
#define WEFT_SCHEDULES_OBJECTS_SPARSE_AVERAGE_MEMBER_H

#include <weft/object.h>
#include <weft/sparse_average.h>

/* WEFT_OK if a configuration could be one, but for its tensors. `who` begins error texts. */
int weft__sparse_average_check(const char *who, const struct weft_sparse_average_config *config);

/* Makes one with runs of `object`, of which only the local part of
 * weft_sparse_average_create() can fail. Does not communicate or block. */
int weft__sparse_average_create_member(struct weft_sparse_average **average, const char *who,
                                       struct weft_context *context, struct weft_object *object,
                                       const struct weft_sparse_average_config *config);

/* weft_sparse_average_post(), for the function that is called `who`. */
int weft__sparse_average_post(struct weft_sparse_average *average, const char *who);
/* weft_sparse_average_wait() until a time on the context's clock; 0: for ever. WEFT_IN_PROGRESS:
 * not by then, and it may be waited for again. */
int weft__sparse_average_wait(struct weft_sparse_average *average, const char *who, uint64_t until);
/* After the wait: the gradients become the sum by `divisor`. */
void weft__sparse_average_write(struct weft_sparse_average *average, int divisor);
/* When the step that was waited for last had ended, on the context's clock; 0: not known. */
uint64_t weft__sparse_average_ended(const struct weft_sparse_average *average);
/* What a posted step waits for, for weft_memory_free(); NULL: nothing, or no memory. */
char *weft__sparse_average_report(const struct weft_sparse_average *average);
/* Of one that has failed in `step`, which has been given to nobody yet, whatever has come of it
 * here: what is under way ends, and weft_sparse_average_get_state() gives the state with what was
 * selected in it. 1: the gradient of the step is in it; 0: it has not been posted. */
int weft__sparse_average_abandon(struct weft_sparse_average *average, uint64_t step);
/* What weft_sparse_average_destroy() does, in two halves: the end of a step that has been posted,
 * and word to the others that there is none after it; the rest. NULL is accepted by the second. */
int weft__sparse_average_leave(struct weft_sparse_average *average, const char *who);
void weft__sparse_average_free(struct weft_sparse_average *average);

#endif
