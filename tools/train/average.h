/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mean over all ranks of a list of tensors, by one allreduce. In place its only slot is bound
 * to the whole list: nothing is packed. Apart it works on copies, so that the tensors may be
 * changed while it is under way.
 */
#ifndef WEFT_TOOLS_TRAIN_AVERAGE_H
#define WEFT_TOOLS_TRAIN_AVERAGE_H

#include <weft/weft.h>

struct train_average;

enum train_average_place {
    /** What fails leaves nothing of the tensors. */
    TRAIN_IN_PLACE,
    /** In place; what train_average_execute() finds in the tensors is there again if it fails. */
    TRAIN_KEPT,
    TRAIN_APART
};

/**
 * Prepares averaging @p count f32 tensors over the ranks of @p context. Collective, does not block.
 * The memory of the tensors is borrowed until train_average_destroy(), the list is copied. Apart
 * takes twice their memory, kept once.
 * @param cost chooses the algorithm; the same on all ranks.
 * @return WEFT_OK, or why not.
 */
int train_average_create(struct train_average **average, struct weft_context *context,
                         const struct weft_cost_model *cost, const struct weft_piece *tensors,
                         size_t count, enum train_average_place place);

/** Replaces the tensors by their mean: the sum over ranks times 1 / ranks. Collective, blocking.
 *  The result is the same on all ranks, bit by bit. */
int train_average_execute(struct train_average *average);

/** The first half: the mean of the tensors as they are now is begun. Does not block. */
int train_average_post(struct train_average *average);

/** The second half, blocking. In place the tensors become the mean; apart the mean less what was
 *  posted is added to them. */
int train_average_wait(struct train_average *average);

/** NULL is accepted. */
void train_average_destroy(struct train_average *average);

#endif
