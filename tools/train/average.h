/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mean over all ranks of a list of tensors, by one allreduce. In place its only slot is bound
 * to the whole list: nothing is packed. Apart it works on copies, so that the tensors may be
 * changed while it is under way.
 *
 * Of a model on a device nothing is waited for by the thread: the allreduce starts on the model's
 * stream, and the stream waits for it. So an average that has failed is found by the next one, or
 * by train_average_settle(), and what the tensors have until then is of no use. But where ranks may
 * die, and the others go on, the thread waits for each: it must know whether it has failed before
 * anything is done with what it leaves. And so it does where a device is crowded (device.c).
 */
#ifndef WEFT_TOOLS_TRAIN_AVERAGE_H
#define WEFT_TOOLS_TRAIN_AVERAGE_H

#include <weft/weft.h>

struct train_average;
struct train_setup;

enum train_average_place {
    /** What fails leaves nothing of the tensors. */
    TRAIN_IN_PLACE,
    /** In place; what train_average_execute() finds in the tensors is there again if it fails. */
    TRAIN_KEPT,
    TRAIN_APART
};

/** Whether the thread waits for exchanges of a model: 1; or its stream does: 0. */
int train_average_waits(const struct train_setup *setup);

/**
 * Prepares averaging tensors of a model over the ranks of a context. Collective, does not block.
 * Apart takes twice their memory, kept once.
 * @param setup the context, the model, and what chooses the template's algorithm.
 * @param tensors as many as the model has, with as many elements, one behind the other in the
 *        memory of its backend. Their memory is borrowed until train_average_destroy().
 * @return WEFT_OK, or why not.
 */
int train_average_create(struct train_average **average, const struct train_setup *setup,
                         const struct weft_piece *tensors, enum train_average_place place);

/** Replaces the tensors by their mean: the sum over ranks times 1 / ranks. Collective, blocking but
 *  on a device. The result is the same on all ranks, bit by bit. */
int train_average_execute(struct train_average *average);

/** The first half: the mean of the tensors as they are now is begun. Does not block. */
int train_average_post(struct train_average *average);

/** The second half, blocking but on a device. In place the tensors become the mean; apart the mean
 *  less what was posted is added to them. */
int train_average_wait(struct train_average *average);

/** Waits until what was executed, or posted and waited for, has ended. Blocking. WEFT_OK, or how
 *  that failed. */
int train_average_settle(struct train_average *average);

/** NULL is accepted. */
void train_average_destroy(struct train_average *average);

#endif
