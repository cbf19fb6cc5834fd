/* SPDX-License-Identifier: BSD-3-Clause */
/* What the threads of a block have counted or found, put together: one of them writes. All threads
 * of the block call these, which is of whole warps. */
#ifndef WEFT_GPU_KERNELS_COUNT_CUH
#define WEFT_GPU_KERNELS_COUNT_CUH

#include "gpu/kernels/common.cuh"

/* *total grows by the sum. */
WEFT_DEVICE void weft_add_count(unsigned long long *total, uint64_t count)
{
    WEFT_SHARED(unsigned long long, sum, 1);

    if (threadIdx.x == 0)
        *sum = 0;
    __syncthreads();
    for (int by = WEFT_WARP / 2; by > 0; by /= 2)
        count += __shfl_down_sync(0xffffffffu, count, (unsigned)by);
    if (threadIdx.x % WEFT_WARP == 0 && count > 0)
        atomicAdd(sum, (unsigned long long)count);
    __syncthreads();
    if (threadIdx.x == 0 && *sum > 0)
        atomicAdd(total, *sum);
}

/* *least becomes the least number, if one is smaller: UINT64_MAX is none. */
WEFT_DEVICE void weft_lower(unsigned long long *least, uint64_t number)
{
    WEFT_SHARED(unsigned long long, lowest, 1);

    if (threadIdx.x == 0)
        *lowest = UINT64_MAX;
    __syncthreads();
    for (int by = WEFT_WARP / 2; by > 0; by /= 2) {
        const uint64_t other = __shfl_down_sync(0xffffffffu, number, (unsigned)by);

        number = other < number ? other : number;
    }
    if (threadIdx.x % WEFT_WARP == 0 && number < UINT64_MAX)
        atomicMin(lowest, (unsigned long long)number);
    __syncthreads();
    if (threadIdx.x == 0 && *lowest < UINT64_MAX)
        atomicMin(least, *lowest);
}

#endif
