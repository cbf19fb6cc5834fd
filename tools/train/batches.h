/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The batches of a rank: its parts of the batches that all ranks share. The training rows, shuffled
 * anew for every epoch, are dealt in turn, step by step and rank by rank.
 */
#ifndef WEFT_TOOLS_TRAIN_BATCHES_H
#define WEFT_TOOLS_TRAIN_BATCHES_H

#include "tools/train/dataset.h"

struct train_batches {
    /** The batch that was taken last: rows of DATASET_PIXELS, and their labels. */
    float *images;
    uint8_t *labels;
    /* private */
    const struct dataset *data;
    size_t batch;
    uint64_t seed;
    /** The order of the rows in one epoch, and which. */
    uint32_t *order;
    uint64_t epoch;
};

/** Prepares batches of @p batch rows of @p data, which is borrowed. @return WEFT_OK or
 *  WEFT_ERR_MEMORY; train_batches_free() frees what there is in any case. */
int train_batches_init(struct train_batches *batches, const struct dataset *data, size_t batch,
                       uint64_t seed);

/** Gathers the part of @p rank of @p ranks in the batch of @p step. */
void train_batches_take(struct train_batches *batches, uint64_t step, int rank, int ranks);

/** Zeroed ones are accepted. */
void train_batches_free(struct train_batches *batches);

#endif
