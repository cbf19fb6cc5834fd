/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels by number, and their launch. */
#ifndef WEFT_GPU_LAUNCH_H
#define WEFT_GPU_LAUNCH_H

#include <stddef.h>

#include "gpu/driver.h"
#include "gpu/kernels/list.h"

struct weft__cuda;

/* All kernels but the reductions, by the names that they have; a list of list.h a line. */
#define WEFT__GPU_KERNELS(X)                                                                       \
    WEFT_GPU_COPY_KERNELS(X)                                                                       \
    WEFT_GPU_NAN_KERNELS(X)                                                                        \
    WEFT_GPU_CONVERT_KERNELS(X)                                                                    \
    WEFT_GPU_COMBINE_KERNELS(X)                                                                    \
    WEFT_GPU_SPARSE_KERNELS(X)                                                                     \
    WEFT_GPU_LIST_KERNELS(X)                                                                       \
    WEFT_GPU_TOPK_KERNELS(X)                                                                       \
    WEFT_GPU_SELECT_KERNELS(X)                                                                     \
    WEFT_GPU_QUANTISE_KERNELS(X)                                                                   \
    WEFT_GPU_PROJECT_KERNELS(X)                                                                    \
    WEFT_GPU_ORTHONORMAL_KERNELS(X)

/* WEFT__GPU_weft_topk_choose is the kernel weft_topk_choose(). That of n inputs stands behind that
 * of two. */
#define WEFT__GPU_NUMBER(name) WEFT__GPU_##name,
#define WEFT__GPU_NUMBERS(operation)                                                               \
    WEFT__GPU_weft_reduce_##operation, WEFT__GPU_weft_reduce_n_##operation,
enum weft__gpu_kernel {
    WEFT_GPU_OPERATIONS(WEFT__GPU_NUMBERS) WEFT__GPU_KERNELS(WEFT__GPU_NUMBER)
        WEFT__GPU_KERNEL_COUNT
};
#undef WEFT__GPU_NUMBERS
#undef WEFT__GPU_NUMBER

/* Puts a kernel on a stream: `blocks` of `threads`, of one dimension; no blocks are no work. The
 * device is current, as it is in functions that are called for a node. Waits for nothing. WEFT_OK;
 * negative, with weft__error set. */
int weft__cuda_launch(struct weft__cuda *cuda, CUstream stream, enum weft__gpu_kernel kernel,
                      unsigned blocks, unsigned threads, size_t shared, void **arguments);

/* The device whose function is being called for a node, in this thread; NULL in any other. */
struct weft__cuda *weft__cuda_current(void);

#endif
