/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of a model: their memory, what they need of it, and how the processor computes
 * them. All its products are BLAS's; all other loops are plain and in a fixed order, so equal
 * inputs give equal bits.
 */
#ifndef WEFT_TOOLS_TRAIN_OPERATIONS_H
#define WEFT_TOOLS_TRAIN_OPERATIONS_H

#include "tools/train/net.h"
#include "tools/train/real.h"

struct backend;

/** An operation of a model, with its memory: numbers of a batch of images, image by image. */
struct operation {
    const struct net_operation *is;
    struct net_shape in, out;
    /** Who computes it, and has the memory (backend.h). */
    struct backend *backend;
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

/** How a kind of operation is computed. WEFT_OK or a status. */
struct operation_passes {
    int (*forward)(const struct operation *operation, size_t batch);
    int (*backward)(const struct operation *operation, size_t batch);
};

/** A kind of operation. */
struct operation_kind {
    /** On the processor. */
    struct operation_passes cpu;
    /** Of an image: additions and multiplications of the forward pass; numbers of scratch and of
     *  what is kept. NULL: none. */
    double (*work)(const struct operation *operation);
    size_t (*scratch)(const struct operation *operation);
    size_t (*kept)(const struct operation *operation);
};

/** NET_NORM: channels of a group; and what is added to variances. */
static inline size_t operation_norm_width(const struct net_shape *shape)
{
    return shape->channels % 8 == 0 ? 8 : shape->channels;
}
#define OPERATION_NORM_EPSILON ((train_real_t)1e-5)

extern const struct operation_kind operation_dense;
extern const struct operation_kind operation_convolution;
extern const struct operation_kind operation_norm;
extern const struct operation_kind operation_relu;
extern const struct operation_kind operation_add;
extern const struct operation_kind operation_pool;
extern const struct operation_kind operation_mean;

#endif
