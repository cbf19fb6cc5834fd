// SPDX-License-Identifier: BSD-3-Clause
// Every error that the grid is there to find, and a right kernel beside most of them.
#include "tests/gpu/grid/wrong.h"
#include "tests/gpu/grid/grid.h"
#include "tests/gpu/grid/grid_launch.h"

#define WHOLE 0xffffffffu

static unsigned flat()
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

static unsigned threads()
{
    return blockDim.x * blockDim.y * blockDim.z;
}

static void grid_reverse(unsigned *to)
{
    WEFT_SHARED(unsigned, own, 1024);
    to += (uint64_t)(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)) * threads();
    own[flat()] = flat();
    __syncthreads();
    to[flat()] = own[threads() - 1 - flat()];
}

static void grid_reverse_no_barrier(unsigned *to)
{
    WEFT_SHARED(unsigned, own, 1024);
    own[flat()] = flat();
    if (blockIdx.x + blockIdx.y == 0)
        to[flat()] = own[threads() - 1 - flat()];
}

static void grid_divergent_barrier(unsigned *to)
{
    if (flat() % 2 == 0)
        __syncthreads();
    else
        __syncthreads();
    to[flat()] = 1;
}

static void grid_barrier_missed(unsigned *to)
{
    __syncthreads();
    if (flat() != 7)
        __syncthreads();
    to[flat()] = 1;
}

static void grid_left_early(unsigned *to)
{
    if (flat() == 3)
        return;
    __syncwarp(WHOLE);
    to[flat()] = 1;
}

static void grid_warp_sum(unsigned *to)
{
    unsigned sum = flat();

    for (unsigned by = 16; by > 0; by /= 2)
        sum += __shfl_xor_sync(WHOLE, sum, (int)by);
    to[flat()] = sum;
}

static void grid_warp_implicit(unsigned *to)
{
    WEFT_SHARED(unsigned, own, 1024);
    own[flat()] = flat();
    if (blockIdx.x + blockIdx.y == 0)
        to[flat()] = own[flat() ^ 1u]; // a __syncwarp() is missing
}

static void grid_lane_inactive(unsigned *to)
{
    const unsigned lane = flat() % 32;

    if (lane < 16)
        to[flat()] = __shfl_sync(0xffffu, lane, 20);
}

static void grid_lane_not_in_mask(unsigned *to)
{
    to[flat()] = __ballot_sync(0xffffu, 1);
}

static void grid_masks_differ(unsigned *to)
{
    to[flat()] = __ballot_sync(flat() % 32 < 16 ? 0xffffu : WHOLE, 1);
}

static void grid_divergent_warp(unsigned *to)
{
    if (flat() % 2 == 0)
        to[flat()] = __ballot_sync(WHOLE, 1);
    else
        to[flat()] = (unsigned)__all_sync(WHOLE, 1);
}

static void grid_segments(int *to)
{
    const int lane = (int)(flat() % 32);
    int *own = to + (size_t)flat() * 6;

    own[0] = __shfl_up_sync(WHOLE, lane, 3, 8);
    own[1] = __shfl_down_sync(WHOLE, lane, 3, 8);
    own[2] = __shfl_sync(WHOLE, lane, 9, 8);
    own[3] = __shfl_xor_sync(WHOLE, lane, 4, 16);
    own[4] = (int)__ballot_sync(WHOLE, lane % 3 == 0);
    own[5] =
        lane % 2 ? __shfl_down_sync(0xaaaaaaaau, lane, 2) : __shfl_up_sync(0x55555555u, lane, 2);
}

static void grid_match(unsigned long long *to)
{
    to[flat()] = __match_any_sync(WHOLE, (unsigned long long)(flat() % 3) << 40);
}

static void grid_count(unsigned *to)
{
    atomicAdd(to, 1u);
}

static void grid_count_no_atomic(unsigned *to)
{
    const unsigned before = *to;

    __threadfence();
    *to = before + 1;
}

static void grid_shared_behind(unsigned *to)
{
    WEFT_SHARED(unsigned, own, 33);
    own[33 + *to] = 1;
}

static void grid_shared_before(unsigned *to)
{
    WEFT_SHARED(unsigned char, own, 33);
    own[-1 - (int)*to] = 1;
}

static void grid_shared_too_much(unsigned *to)
{
    WEFT_SHARED(unsigned, own, 12 * 1024);
    WEFT_SHARED(unsigned, more, 1);
    own[0] = more[0] = *to;
}

// Half a warp waits for a lane that has gone another way.
static void grid_lane_elsewhere(unsigned *to)
{
    __syncthreads();
    if (flat() < 16)
        __syncwarp(0x1ffffu);
    to[flat()] = 1;
}

extern const grid_kernel grid_wrong[] = {GRID_WRONG_KERNELS(GRID_ROW){}};
