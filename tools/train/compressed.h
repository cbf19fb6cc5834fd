/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compressed averaging as the options of `weft train` have it.
 */
#ifndef WEFT_TOOLS_TRAIN_COMPRESSED_H
#define WEFT_TOOLS_TRAIN_COMPRESSED_H

#include "tools/train/algorithm.h"

#include <weft/compressed_average.h>

/** A configuration, and what it points to. */
struct train_compressed_config {
    struct weft_compressed_average_config average;
    struct weft_quantiser quantiser;
    struct weft_gradiveq_config gradiveq;
    struct weft_powersgd_config powersgd;
    /** Owned. */
    struct weft_tensor_shape *shapes;
};

/** Fills in a configuration, of the gradients of @p setup. @return WEFT_OK or WEFT_ERR_MEMORY. */
int train_compressed_config_create(struct train_compressed_config *config,
                                   const struct train_setup *setup,
                                   enum train_compression compression);

void train_compressed_config_free(struct train_compressed_config *config);

/** What compression has come to, of the steps in which something was compressed. */
struct train_compression_tally {
    uint64_t steps;
    /** Sums over them, and how many had a loss. */
    double bits;
    uint64_t losses;
    double loss;
};

/** Counts a step. @param loss -1: not known. */
void train_compression_count(struct train_compression_tally *tally, double bits, double loss);

/** How a tensor of an object is compressed: WEFT_OK, or why it is not told. */
typedef int (*train_get_tensor_fn)(void *object, size_t tensor, struct weft_gradiveq_tensor *info);

/** Fills in the counts, and the tensors that @p get says are projected; others are sent whole.
 *  @param get NULL: none is projected. @param result zeroed after an error. */
int train_compression_describe(const struct train_compression_tally *tally, size_t tensors,
                               train_get_tensor_fn get, void *object,
                               struct train_compressed *result);

/** GradiVeQ's phases: what was typed, or the paper's, shortened so that a training has several. */
struct train_phase_lengths {
    uint64_t warmup_steps;
    uint64_t sample_steps;
    /** WEFT_NEVER: no other phase follows. */
    uint64_t compressed_steps;
    /** 1: some of them were not typed, and are not the paper's. */
    int scaled;
};

struct train_phase_lengths train_compressed_lengths(const struct train_options *options);

/** 1: what is dropped is kept for the next step. */
int train_compressed_keeps(const struct train_options *options, enum train_compression compression);

/** 1: the weights of dense layers are projected: if that was asked for, or there are no
 *  convolutions. */
int train_compressed_dense_layers(const struct train_options *options);

#endif
