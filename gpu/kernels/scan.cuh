/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums over the threads of a block, and over what the blocks of a grid have written. */
#ifndef WEFT_GPU_KERNELS_SCAN_CUH
#define WEFT_GPU_KERNELS_SCAN_CUH

#include "gpu/kernels/common.cuh"

/* How many values before this thread's, in the order of threads, and in *total of all of them: for
 * blocks of whole warps, all threads of which call it. */
WEFT_DEVICE uint64_t weft_scan_block(uint64_t value, uint64_t *total)
{
    WEFT_SHARED(uint64_t, sums, WEFT_WARP + 1);
    const unsigned lane = threadIdx.x % WEFT_WARP;
    const unsigned warp = threadIdx.x / WEFT_WARP;
    uint64_t sum = value;

    for (unsigned by = 1; by < WEFT_WARP; by *= 2) {
        const uint64_t before = __shfl_up_sync(0xffffffffu, sum, by);

        sum += lane >= by ? before : 0;
    }
    if (lane == WEFT_WARP - 1)
        sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        uint64_t before = 0;

        for (unsigned i = 0; i < blockDim.x / WEFT_WARP; i++) {
            const uint64_t here = sums[i];

            sums[i] = before;
            before += here;
        }
        sums[WEFT_WARP] = before;
    }
    __syncthreads();
    const uint64_t result = sums[warp] + sum - value;

    *total = sums[WEFT_WARP];
    __syncthreads(); /* the memory may be used again: shuffles order none */
    return result;
}

/* ---- the block that is done last ----
 *
 * It goes on with what all blocks have written, and saves a launch. Its processor may have an older
 * copy of memory that others have written, so it reads that by weft_fresh(). */

WEFT_DEVICE uint64_t weft_fresh(const uint64_t *at)
{
    return __ldcg((const unsigned long long *)at);
}

WEFT_DEVICE uint64_t weft_fresh(const unsigned long long *at)
{
    return __ldcg(at);
}

/* All threads of a grid of one dimension call it, when their block has written everything. `done`
 * is 0 before the grid and after it. */
WEFT_DEVICE bool weft_is_last(uint32_t *done)
{
    WEFT_SHARED(uint32_t, number, 1);

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        *number = atomicAdd(done, 1u);
    __syncthreads();
    const bool last = *number == gridDim.x - 1;

    if (last) {
        __threadfence();
        if (threadIdx.x == 0)
            *done = 0;
    }
    return last;
}

/* counts[i] becomes the sum of those before it; returns that of all. By the last block. */
WEFT_DEVICE uint64_t weft_scan_counts(uint64_t *counts, uint64_t count)
{
    uint64_t before = 0;

    for (uint64_t first = 0; first < count; first += blockDim.x) {
        const uint64_t i = first + threadIdx.x;
        uint64_t all;
        const uint64_t here = weft_scan_block(i < count ? weft_fresh(counts + i) : 0, &all);

        if (i < count)
            counts[i] = before + here;
        before += all;
    }
    return before;
}

#endif
