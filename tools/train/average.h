/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mean over all ranks of a list of tensors, in place, by one allreduce whose only slot is bound
 * to the whole list: nothing is packed.
 */
#ifndef WEFT_TOOLS_TRAIN_AVERAGE_H
#define WEFT_TOOLS_TRAIN_AVERAGE_H

#include <weft/weft.h>

struct train_average;

/**
 * Prepares averaging @p count f32 tensors over the ranks of @p context. Collective, does not block.
 * The memory of the tensors is borrowed until train_average_destroy(), the list is copied.
 * @param cost chooses the algorithm; the same on all ranks.
 * @return WEFT_OK, or why not.
 */
int train_average_create(struct train_average **average, struct weft_context *context,
                         const struct weft_cost_model *cost, const struct weft_piece *tensors,
                         size_t count);

/** Replaces the tensors by their mean: the sum over ranks times 1 / ranks. Collective, blocking.
 *  The result is the same on all ranks, bit by bit. */
int train_average_execute(struct train_average *average);

/** NULL is accepted. */
void train_average_destroy(struct train_average *average);

#endif
