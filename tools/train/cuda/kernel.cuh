/* SPDX-License-Identifier: BSD-3-Clause */
/* What the trainer's kernels share. All take f32, are launched with blocks of TRAIN_CUDA_THREADS in
 * a grid of one dimension of any size, and compute what the processor does, in its order: but for
 * products, column sums and exponentials they give its bits. */
#ifndef WEFT_TOOLS_TRAIN_CUDA_KERNEL_CUH
#define WEFT_TOOLS_TRAIN_CUDA_KERNEL_CUH

#include "gpu/kernels/common.cuh"
#include "tools/train/cuda/list.h"
#include "tools/train/cuda/shapes.h"

#include <math.h>

#define TRAIN_KERNEL WEFT_KERNEL __launch_bounds__(TRAIN_CUDA_THREADS)

/* Each i below `count` is some thread's. */
#define TRAIN_EACH(i, count)                                                                       \
    uint64_t i = weft_first(), i##_step = weft_step();                                             \
    i < (count);                                                                                   \
    i += i##_step

#endif
