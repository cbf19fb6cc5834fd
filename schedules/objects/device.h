/* SPDX-License-Identifier: BSD-3-Clause */
/* What objects do on devices: work that they wait for, and runs of their own. */
#ifndef WEFT_SCHEDULES_OBJECTS_DEVICE_H
#define WEFT_SCHEDULES_OBJECTS_DEVICE_H

#include <weft/device.h>
#include <weft/object.h>
#include <weft/run.h>

#include "schedules/objects/model.h"

/* A run of one node, by which a function gets at a stream of the context's device. For one thread
 * at a time, that of the object's user. */
struct weft__device_work {
    struct weft_context *context;
    struct weft_op *op;
    struct weft_run *run;
    struct weft_device_found *found; /* pinned */
    int (*function)(void *user, void *stream);
    void *user;
};

/* object: which the run is part of, and fails with; NULL: of none. */
int weft__device_work_make(struct weft__device_work *work, struct weft_context *context,
                           struct weft_object *object);
/* Also of what could not be made. */
void weft__device_work_free(struct weft__device_work *work);
/* Executes a run of this rank alone, and waits until nothing of it is on the device any more. */
int weft__device_execute(struct weft_context *context, struct weft_run *run);
/* Calls a function with a stream, and waits until all that it has put there has been done. */
int weft__device_do(struct weft__device_work *work, int (*function)(void *user, void *stream),
                    void *user);

/* What is not finite in tensors of the device. */
int weft__device_look(struct weft__device_work *work, const struct weft__model *model,
                      struct weft__bad *bad);

/* A vector of `count` elements at an address, and one of a list of tensors. */
struct weft_argument weft__vector(const void *data, size_t count, weft_dtype_t dtype);
struct weft_argument weft__vector_of(const struct weft_piece *tensors, size_t tensor_count,
                                     size_t count, weft_dtype_t dtype);

/* Ends a run of this rank alone that may be under way, and waits until nothing of it is on the
 * device any more. The text of the thread may be another one. */
void weft__run_drain(struct weft_context *context, struct weft_run *run);

#endif
