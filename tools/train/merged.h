/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What merged gradients came to: the plan of the last step, and what was measured of it.
 */
#ifndef WEFT_TOOLS_TRAIN_MERGED_H
#define WEFT_TOOLS_TRAIN_MERGED_H

#include "tools/train/pace.h"

#include <stddef.h>
#include <stdint.h>

struct train_merged {
    /** Layers of the model in the order in which they are sent, so many in each group, and when
     *  the sum of each is there. Owned; train_merged_free() frees them. */
    size_t *layers;
    size_t layer_count;
    size_t *group_layers;
    size_t group_count;
    double *end_us;
    /** The step from which on it was used, and plans that there have been. */
    uint64_t since;
    uint64_t plans;
    /** As planned: when the last gradient is there, from the first one on, and the share of
     *  communication that is hidden. 0: nothing is planned yet. */
    double ready_us;
    double planned_hidden;
    /** As measured on this rank with this plan. */
    double hidden;
};

/** Zeroed ones are accepted. */
void train_merged_free(struct train_merged *merged);

/**
 * How long a step lasts by the plan, when one follows the other: from the first gradient on until
 * the next step's.
 * @param lead_us from the beginning of a step to its first gradient, without waits.
 * @param by_layers 1: the forward pass waits for each layer; 0: it begins when all are there.
 */
double train_merged_step_us(const struct train_merged *merged, const struct train_pace *pace,
                            double lead_us, int by_layers);

#endif
