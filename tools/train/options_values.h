/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The options of `weft train` by number, and the reading of their values.
 */
#ifndef WEFT_TOOLS_TRAIN_OPTIONS_VALUES_H
#define WEFT_TOOLS_TRAIN_OPTIONS_VALUES_H

#include "tools/train/options.h"

enum train_option {
    OPT_ALGORITHM = 1,
    OPT_TRANSPORT,
    OPT_NET,
    OPT_STEPS,
    OPT_BATCH,
    OPT_HIDDEN,
    OPT_LR,
    OPT_MOMENTUM,
    OPT_IMBALANCE,
    OPT_COMPUTE,
    OPT_GROUP_SIZE,
    OPT_SYNC_PERIOD,
    OPT_NEIGHBOURS,
    OPT_MODE,
    OPT_ACTIVATION,
    OPT_CONTRIBUTION,
    OPT_PATIENCE,
    OPT_DENSITY,
    OPT_K,
    OPT_WARMUP_STEPS,
    OPT_RESIDUAL,
    OPT_PER_LAYER,
    OPT_GTOPK_ALGO,
    OPT_MOMENTUM_CORRECTION,
    OPT_SEED,
    OPT_SEEDS,
    OPT_PLOT,
    OPT_DATA
};

/**
 * Reads the value of an option.
 * @param id what cli_next() returned.
 * @param text its value, or NULL if it takes none; borrowed as long as @p options are used.
 * @return CLI_OK; CLI_WRONG or CLI_NO after a line.
 */
int train_options_value(struct train_options *options, int id, const char *text);

#endif
