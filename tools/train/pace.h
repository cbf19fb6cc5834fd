/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pace of a rank whose step is to last: sleeps behind the computation of each layer, forward
 * and backward, so that layers take the shares of a step that they really have. A layer whose
 * computation is late shortens the sleeps behind it; what is no computation moves them all.
 */
#ifndef WEFT_TOOLS_TRAIN_PACE_H
#define WEFT_TOOLS_TRAIN_PACE_H

#include "tools/train/model.h"

struct train_pace;

/**
 * Makes a pace by the work of layers: the same on all ranks and at all times.
 * @param step_ns how long a step is to last; 0: as long as it takes, and nobody sleeps.
 * @return WEFT_OK or WEFT_ERR_MEMORY.
 */
int train_pace_create(struct train_pace **pace, struct weft_context *context,
                      const struct model *model, uint64_t step_ns);

/** Makes it a pace by the processor time that layers take on these images, which is measured, the
 *  least of several times. Leaves gradients behind. @return WEFT_OK. */
int train_pace_measure(struct train_pace *pace, struct model *model, const train_real_t *images,
                       const uint8_t *labels, size_t batch);

/** NULL is accepted. */
void train_pace_destroy(struct train_pace *pace);

/** A step begins now. */
void train_pace_begin(struct train_pace *pace);

/** The layer has been computed, forward or backward: sleeps until its share is over.
 *  @return WEFT_OK or what the sleep returned. */
int train_pace_forward(struct train_pace *pace, size_t layer);
int train_pace_backward(struct train_pace *pace, size_t layer);

/** For so long there was no computation. */
void train_pace_shift(struct train_pace *pace, uint64_t ns);

/** The share of a step that a layer has, forward or backward. All add up to 1. */
double train_pace_forward_share(const struct train_pace *pace, size_t layer);
double train_pace_backward_share(const struct train_pace *pace, size_t layer);

#endif
