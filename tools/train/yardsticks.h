/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a training would take without any communication: the yardsticks beside which its
 * throughput is put.
 */
#ifndef WEFT_TOOLS_TRAIN_YARDSTICKS_H
#define WEFT_TOOLS_TRAIN_YARDSTICKS_H

#include "tools/train/algorithm.h"

struct train_yardsticks {
    /** Nobody ever waits: the time of the rank whose own steps and delays add up to most. */
    double ideal_seconds;
    /** Everyone waits for whom the algorithm's definition names. */
    double bound_seconds;
};

/** Everybody leaves when the last has arrived: for train_algorithm.leave. */
void train_leave_together(int ranks, const double *arrived, double *left);

/**
 * Plays the delays that were drawn.
 * @param compute_seconds how long a step of each of @p ranks ranks takes without its delay.
 * @return WEFT_OK, WEFT_ERR_MEMORY or what the algorithm's function returned.
 */
int train_yardsticks(struct train_yardsticks *yardsticks, const struct train_options *options,
                     const struct train_algorithm *algorithm, int ranks,
                     const double *compute_seconds);

#endif
