/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gradients of a training, step after step: of the convolutions of the trainer's nets, with
 * several ranks' batches added up, in GradiVeQ's order of elements (its figure 3: height, width,
 * depth of a filter, filters, the last varying fastest).
 */
#ifndef WEFT_TOOLS_BENCH_RECORDING_H
#define WEFT_TOOLS_BENCH_RECORDING_H

#include <stddef.h>
#include <stdint.h>

enum { RECORDING_LAYERS = 16 };

/** A convolution, in the order of the forward pass. */
struct recording_layer {
    char name[48];
    /** F, D, and the pixels of a filter's window, H W. */
    size_t filters, depth, window;
    /** Where it begins among the elements of a step; and how many it has. */
    size_t at, count;
};

struct recording {
    const char *model;
    double rate;
    int ranks;
    size_t steps;
    struct recording_layer layers[RECORDING_LAYERS];
    size_t layer_count;
    /** Elements of a step. */
    size_t count;
    /** steps x count: sums over ranks. */
    float *sums;
    /** The same of rank 0 alone, of each local_every-th step from local_from on. */
    float *locals;
    size_t local_from, local_every;
    /** steps: the mean loss of the batches. */
    double *losses;
};

/**
 * Trains a net ("cnn", "resnet") on optdigits as `weft train` does, with exact sums.
 * WEFT_OK; an error if the data cannot be read, or memory ends.
 */
int recording_make(struct recording *recording, const char *model, double rate, int ranks,
                   size_t steps, size_t local_from, size_t local_every);
/** A zeroed one is accepted. */
void recording_free(struct recording *recording);

/** The layer's gradient in a step: of all ranks, and of rank 0, NULL if that is not recorded. */
const float *recording_sum(const struct recording *recording, size_t layer, size_t step);
const float *recording_local(const struct recording *recording, size_t layer, size_t step);

#endif
