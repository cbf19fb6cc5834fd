/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse averaging of gradients that are memory of a device. Dense vectors stay there: gradients,
 * the residual and the velocity; lists, which are short, are the host's, and the engine does to
 * them what it does to those of gradients of the host:
 *
 *     post     on the device: look for what is not finite, accumulate, select
 *              the list comes to the host, where zeros are left out of it
 *     engine   merges on the host; what they drop is kept in lists (`pending`), in their order
 *     wait     pending lists are added to the residual on the device
 *
 * All of the device is waited for where it is started, by the object's user. (WEFT_SPARSE_OKTOPK:
 * the engine's run has a residual on the device, and the operations of it that drop pairs do, too.)
 */
#ifndef WEFT_SCHEDULES_OBJECTS_SPARSE_AVERAGE_DEVICE_H
#define WEFT_SCHEDULES_OBJECTS_SPARSE_AVERAGE_DEVICE_H

#include "schedules/objects/device.h"

struct weft_sparse_average;
struct weft__sparse_unit;

/* Lists that are still to be added to a unit's part of the residual, one behind the other. No index
 * is in one of them twice. The engine appends while the unit is posted, its user takes them when it
 * has been waited for. */
struct weft__sparse_pending {
    uint64_t *pairs;   /* pinned */
    size_t *counts;    /* of each list; owned */
    size_t room;       /* pairs */
    int most;          /* lists */
    size_t used;       /* pairs */
    int count;         /* lists; */
    int added;         /* of those, that are in the residual already */
    size_t added_used; /* and their pairs */
};

struct weft__sparse_device {
    struct weft__device_work work;
    /* Memory of the device: a residual and (or NULL) a velocity, unit by unit, the longest one
     * last: so from the begin of each there are as many elements as that one has, to which a run
     * that is for any of them is bound. And a hint a unit. */
    float *residual, *velocity, *hints;
    uint64_t *pairs; /* pinned: a list on its way */
    double *squares; /* pinned; NULL without clipping */

    /* accumulates, selects and brings the list: of any unit */
    struct weft_op *accumulate, *select;
    struct weft_run *run;
    weft_slot_t residual_slot, gradient_slot, hint_slot;
    weft_value_t elements, gradients, k, found;
    size_t most_elements, most;
    int fuses;     /* the selection may add the gradient itself */
    uint64_t nans; /* that selections have counted */

    /* of the selection under way */
    struct weft__sparse_unit *unit;
    float scale;
    int fused;

    float *copies[2]; /* of the residual and the velocity, for states; owned, or NULL */
};

/* Before units have their runs, and after that. */
int weft__sparse_device_make(struct weft_sparse_average *average, const float *residual,
                             const float *velocity);
int weft__sparse_pending_make(struct weft__sparse_unit *unit);
void weft__sparse_device_free(struct weft_sparse_average *average);

/* Whatever of these fails has failed the object; what has been put on the device is over. */

/* What is not finite in the gradient of a unit. */
int weft__sparse_device_look(struct weft__sparse_unit *unit, struct weft__bad *bad);
/* The sum of the gradient's squares; what is not finite counts as zero. */
int weft__sparse_device_square(struct weft__sparse_unit *unit, double *sum);
/* Accumulates the gradient, times `scale`, and selects: *count pairs, with zeros, in the unit's
 * list. */
int weft__sparse_device_select(struct weft__sparse_unit *unit, float scale, size_t *count);
/* The velocity becomes zero where the unit's list of `selected` pairs has one. */
int weft__sparse_device_mask(struct weft__sparse_unit *unit);
/* Adds what is pending to the residual. */
int weft__sparse_device_settle(struct weft__sparse_unit *unit);
/* The sum of a unit, scaled, is added to tensors of any datatype (as many as the unit has). */
int weft__sparse_device_apply(const struct weft__sparse_unit *unit, double scale,
                              weft_dtype_t dtype, const struct weft_piece *tensors);
/* Its gradient becomes the sum by `divisor`. */
int weft__sparse_device_write(const struct weft__sparse_unit *unit, float divisor);

/* By the engine, or by the user where nothing is posted: one more list is pending. */
int weft__sparse_pend(struct weft__sparse_unit *unit, const struct weft_sparse *list);

/* Copies of the residual (0; with what is pending) and of the velocity (1), in the order of the
 * model. Fails nobody but the caller. */
int weft__sparse_device_copy(struct weft_sparse_average *average, int which, const float **copy);
/* The residual becomes another one. */
int weft__sparse_device_replace(struct weft_sparse_average *average, const float *residual);

#endif
