/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions: to[i] = a[i] op b[i]; and of two to eight inputs, from left to right, for which
 * halves are accumulated in f32 and rounded once (two inputs give the same bits either way).
 *
 * `to` is exactly one of the inputs or overlaps none: a thread reads what it combines before it
 * writes there, and no other thread touches it. Vectors of 16 bytes where all arrays begin alike,
 * single elements before and behind, and everywhere if they do not. Any grid of one dimension. */
#include "gpu/kernels/arguments.h"
#include "gpu/kernels/list.h"
#include "gpu/kernels/operations.cuh"

template <class op>
WEFT_DEVICE void reduce_two(void *to_, const void *a_, const void *b_, uint64_t count)
{
    typedef typename op::element element;
    enum { LANES = WEFT_VECTOR / sizeof(element) };
    typedef weft_pack<element, LANES> pack;
    element *to = (element *)to_;
    const element *a = (const element *)a_;
    const element *b = (const element *)b_;
    const unsigned offset = weft_offset(to, WEFT_VECTOR);
    const bool alike =
        weft_offset(a, WEFT_VECTOR) == offset && weft_offset(b, WEFT_VECTOR) == offset;
    const weft_split split =
        alike ? weft_split_of(count, offset, sizeof(element), LANES) : weft_split{count, 0};

    /* Not unrolled: ptxas spills where it is, and a grid is to have a thread for most vectors. */
#pragma unroll 1
    for (uint64_t i = weft_first(); i < split.vectors; i += weft_step()) {
        const pack x = ((const pack *)(a + split.head))[i];
        const pack y = ((const pack *)(b + split.head))[i];
        pack result;

#pragma unroll
        for (int lane = 0; lane < LANES; lane++)
            result.at[lane] = op::narrow(op::combine(op::widen(x.at[lane]), op::widen(y.at[lane])));
        ((pack *)(to + split.head))[i] = result;
    }
    for (uint64_t i = weft_first(); i < count - split.vectors * LANES; i += weft_step()) {
        const uint64_t at = weft_single(split, LANES, i);

        to[at] = op::narrow(op::combine(op::widen(a[at]), op::widen(b[at])));
    }
}

/* Inputs whose vectors are loaded before the first of them is used. */
enum { AT_ONCE = 4 };

/* One vector of each input, combined. */
template <class op, class pack, int lanes>
WEFT_DEVICE pack reduce_packs(const weft_gpu_inputs &inputs, uint64_t byte)
{
    typename op::wide sum[lanes];
    pack result;

#pragma unroll
    for (unsigned first = 0; first < WEFT_GPU_MOST_INPUTS; first += AT_ONCE) {
        pack x[AT_ONCE];

#pragma unroll
        for (unsigned k = 0; k < AT_ONCE; k++)
            if (first + k < inputs.count)
                x[k] = *(const pack *)((const char *)inputs.from[first + k] + byte);
#pragma unroll
        for (unsigned k = 0; k < AT_ONCE; k++)
            if (first + k < inputs.count)
#pragma unroll
                for (int lane = 0; lane < lanes; lane++)
                    sum[lane] = first + k == 0 ? op::widen(x[k].at[lane])
                                               : op::combine(sum[lane], op::widen(x[k].at[lane]));
    }
#pragma unroll
    for (int lane = 0; lane < lanes; lane++)
        result.at[lane] = op::narrow(sum[lane]);
    return result;
}

template <class op>
WEFT_DEVICE void reduce_many(void *to_, const weft_gpu_inputs &inputs, uint64_t count)
{
    typedef typename op::element element;
    enum { LANES = WEFT_VECTOR / sizeof(element) };
    typedef weft_pack<element, LANES> pack;
    typedef weft_pack<element, 1> single;
    element *to = (element *)to_;
    const unsigned offset = weft_offset(to, WEFT_VECTOR);
    bool alike = true;

#pragma unroll
    for (unsigned k = 0; k < WEFT_GPU_MOST_INPUTS; k++)
        if (k < inputs.count)
            alike = alike && weft_offset(inputs.from[k], WEFT_VECTOR) == offset;
    const weft_split split =
        alike ? weft_split_of(count, offset, sizeof(element), LANES) : weft_split{count, 0};

    for (uint64_t i = weft_first(); i < split.vectors; i += weft_step())
        ((pack *)(to + split.head))[i] =
            reduce_packs<op, pack, LANES>(inputs, split.head * sizeof(element) + i * WEFT_VECTOR);
    for (uint64_t i = weft_first(); i < count - split.vectors * LANES; i += weft_step()) {
        const uint64_t at = weft_single(split, LANES, i);

        ((single *)to)[at] = reduce_packs<op, single, 1>(inputs, at * sizeof(element));
    }
}

#define REDUCE(operation)                                                                          \
    WEFT_KERNEL __launch_bounds__(512)                                                             \
        weft_reduce_##operation(void *to, const void *a, const void *b, uint64_t count)            \
    {                                                                                              \
        reduce_two<op_##operation>(to, a, b, count);                                               \
    }                                                                                              \
    WEFT_KERNEL __launch_bounds__(512) weft_reduce_n_##operation(                                  \
        void *to, const __grid_constant__ weft_gpu_inputs inputs, uint64_t count)                  \
    {                                                                                              \
        reduce_many<op_##operation>(to, inputs, count);                                            \
    }

WEFT_GPU_OPERATIONS(REDUCE)
