/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the operations of a net are computed: a table of functions for each kind. All products are
 * BLAS's; all other loops are plain and in a fixed order, so equal inputs give equal bits.
 */
#ifndef WEFT_TOOLS_TRAIN_OPERATIONS_H
#define WEFT_TOOLS_TRAIN_OPERATIONS_H

#include "tools/train/net.h"
#include "tools/train/real.h"

/** An operation of a model, with its memory: numbers of a batch of images, image by image. */
struct operation {
    const struct net_operation *is;
    struct net_shape in, out;
    const train_real_t *from;
    train_real_t *to;
    /** The derivatives of the loss by these. NULL: nobody wants that by the image. */
    train_real_t *from_delta;
    train_real_t *to_delta;
    /** 1: the backward pass adds to from_delta; 0: it is the first to write it. */
    int adds;
    /** NET_ADD: the same of the other value. */
    const train_real_t *other;
    train_real_t *other_delta;
    int adds_other;
    train_real_t *parameters[2];
    train_real_t *gradients[2];
    /** What the forward pass leaves for the backward pass. */
    train_real_t *kept;
    /** Of all operations alike. */
    train_real_t *scratch;
};

struct operation_kind {
    void (*forward)(const struct operation *operation, size_t batch);
    void (*backward)(const struct operation *operation, size_t batch);
    /** Of an image: additions and multiplications of the forward pass; numbers of scratch and of
     *  what is kept. NULL: none. */
    double (*work)(const struct operation *operation);
    size_t (*scratch)(const struct operation *operation);
    size_t (*kept)(const struct operation *operation);
};

extern const struct operation_kind operation_dense;
extern const struct operation_kind operation_convolution;
extern const struct operation_kind operation_norm;
extern const struct operation_kind operation_relu;
extern const struct operation_kind operation_add;
extern const struct operation_kind operation_pool;
extern const struct operation_kind operation_mean;

#endif
