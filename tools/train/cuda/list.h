/* SPDX-License-Identifier: BSD-3-Clause */
/* The names of all kernels of the trainer. */
#ifndef WEFT_TOOLS_TRAIN_CUDA_LIST_H
#define WEFT_TOOLS_TRAIN_CUDA_LIST_H

#define TRAIN_CUDA_NORM_KERNELS(X)                                                                 \
    X(train_norm)                                                                                  \
    X(train_norm_back)                                                                             \
    X(train_norm_sums)

#define TRAIN_CUDA_POINTWISE_KERNELS(X)                                                            \
    X(train_relu)                                                                                  \
    X(train_relu_back)                                                                             \
    X(train_pool)                                                                                  \
    X(train_pool_back)                                                                             \
    X(train_mean)                                                                                  \
    X(train_mean_back)

#define TRAIN_CUDA_PRODUCT_KERNELS(X)                                                              \
    X(train_gather)                                                                                \
    X(train_scatter)                                                                               \
    X(train_spread)                                                                                \
    X(train_sum_columns)

#define TRAIN_CUDA_SCORE_KERNELS(X)                                                                \
    X(train_softmax)                                                                               \
    X(train_mean_loss)                                                                             \
    X(train_count_right)

#define TRAIN_CUDA_VECTOR_KERNELS(X)                                                               \
    X(train_add)                                                                                   \
    X(train_scale)                                                                                 \
    X(train_shift)                                                                                 \
    X(train_swap)                                                                                  \
    X(train_update)

#define TRAIN_CUDA_KERNELS(X)                                                                      \
    TRAIN_CUDA_NORM_KERNELS(X)                                                                     \
    TRAIN_CUDA_POINTWISE_KERNELS(X)                                                                \
    TRAIN_CUDA_PRODUCT_KERNELS(X)                                                                  \
    TRAIN_CUDA_SCORE_KERNELS(X)                                                                    \
    TRAIN_CUDA_VECTOR_KERNELS(X)

/* Threads of a block, of all of them. */
#define TRAIN_CUDA_THREADS 256

#endif
