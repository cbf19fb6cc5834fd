/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The batches of a rank. Without shards they are its parts of batches that all ranks share: the
 * training rows, shuffled anew for every epoch, are dealt in turn, step by step and rank by rank.
 * With shards they are of its own rows, which it goes through in epochs of its own.
 */
#ifndef WEFT_TOOLS_TRAIN_BATCHES_H
#define WEFT_TOOLS_TRAIN_BATCHES_H

#include "tools/train/shards.h"

struct train_batches {
    /** The batch that was taken last: rows of DATASET_PIXELS, and their labels. */
    float *images;
    uint8_t *labels;
    /* private */
    const struct dataset *data;
    size_t batch;
    uint64_t seed;
    /** Of shards; NULL: all. */
    const uint32_t *own;
    int rank;
    int ranks;
    /** The order of the `count` rows in one epoch, and which. */
    uint32_t *order;
    size_t count;
    uint64_t epoch;
};

/** Prepares batches of @p batch rows for @p rank of @p ranks. @p data and @p shards are borrowed.
 *  @return WEFT_OK or WEFT_ERR_MEMORY; train_batches_free() frees what there is in any case. */
int train_batches_init(struct train_batches *batches, const struct dataset *data,
                       const struct train_shards *shards, size_t batch, uint64_t seed, int rank,
                       int ranks);

/** Gathers the rank's batch of @p step. */
void train_batches_take(struct train_batches *batches, uint64_t step);

/** The epoch in which the batch of @p step begins: of shards the rank's own. */
uint64_t train_batches_epoch(const struct train_batches *batches, uint64_t step);

/** Zeroed ones are accepted. */
void train_batches_free(struct train_batches *batches);

#endif
