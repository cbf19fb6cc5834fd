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

#endif
