/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums of squares, at the end; and linear combinations of vectors whose datatypes differ, a segment
 * each of contiguous parts:
 *
 *     sum = factors[0] terms[0] + factors[1] terms[1] + ...      from left to right
 *     to = sum factor / divisor - less                           adds: to + (that)
 *
 * in f32 or f64, rounded after every operation, and once more to the datatype of `to`. A factor or
 * divisor of 1 is none, so a single term goes through bit by bit. Without `to` terms are only
 * looked at: elements of those in `looks` that are not finite are counted, and the place of the
 * first of them is found, in *found; of those in `clears` they count as +0.
 *
 * `to` is exactly `less` or one of the terms, or overlaps none. Vectors of four elements where all
 * parts begin alike. A grid of one dimension with at least a block a segment (`before`), of blocks
 * of whole warps. */
#include "gpu/kernels/arguments.h"
#include "gpu/kernels/conversions.cuh"
#include "gpu/kernels/count.cuh"
#include "gpu/kernels/list.h"

enum { LANES = 4 };

/* ---- numbers of either width ---- */

struct in_f32 {
    typedef float number;

    static __device__ __forceinline__ float of_f32(float x)
    {
        return x;
    }
    static __device__ __forceinline__ float of_f64(double x)
    {
        return (float)x; /* of factors: vectors of f64 are not computed in f32 */
    }
    static __device__ __forceinline__ uint16_t f16(float x)
    {
        return weft_f16_of_f32(x);
    }
    static __device__ __forceinline__ uint16_t bf16(float x)
    {
        return weft_narrow_bf16(x);
    }
    static __device__ __forceinline__ float f32(float x)
    {
        return x;
    }
    static __device__ __forceinline__ double f64(float x)
    {
        return (double)x;
    }
    static __device__ __forceinline__ bool is_finite(float x)
    {
        return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
    }
};

struct in_f64 {
    typedef double number;

    static __device__ __forceinline__ double of_f32(float x)
    {
        return weft_f64_of_f32(x);
    }
    static __device__ __forceinline__ double of_f64(double x)
    {
        return x;
    }
    static __device__ __forceinline__ uint16_t f16(double x)
    {
        return weft_f16_of_f32(weft_odd_of_f64(x));
    }
    static __device__ __forceinline__ uint16_t bf16(double x)
    {
        return weft_narrow_bf16(weft_odd_of_f64(x));
    }
    static __device__ __forceinline__ float f32(double x)
    {
        return weft_f32_of_f64(x);
    }
    static __device__ __forceinline__ double f64(double x)
    {
        return x;
    }
    static __device__ __forceinline__ bool is_finite(double x)
    {
        const uint64_t exponent = UINT64_C(0x7ff0000000000000);

        return ((uint64_t)__double_as_longlong(x) & exponent) != exponent;
    }
};

/* ---- loads and stores of elements at .. at + lanes ---- */

#define FOR_LANES _Pragma("unroll") for (int lane = 0; lane < lanes; lane++)

template <class type, int lanes>
WEFT_DEVICE weft_pack<type, lanes> take(const void *from, uint64_t at)
{
    return *(const weft_pack<type, lanes> *)((const type *)from + at);
}

template <class type, int lanes>
WEFT_DEVICE void put(void *to, uint64_t at, const weft_pack<type, lanes> &pack)
{
    *(weft_pack<type, lanes> *)((type *)to + at) = pack;
}

template <class in, int lanes>
WEFT_DEVICE void load(typename in::number (&x)[lanes], const void *from, unsigned format,
                      uint64_t at)
{
    if (format == WEFT_GPU_F16) {
        const weft_pack<uint16_t, lanes> pack = take<uint16_t, lanes>(from, at);
        FOR_LANES x[lane] = in::of_f32(weft_f32_of_f16(pack.at[lane]));
    } else if (format == WEFT_GPU_BF16) {
        const weft_pack<uint16_t, lanes> pack = take<uint16_t, lanes>(from, at);
        FOR_LANES x[lane] = in::of_f32(weft_widen_bf16(pack.at[lane]));
    } else if (format == WEFT_GPU_F32) {
        const weft_pack<float, lanes> pack = take<float, lanes>(from, at);
        FOR_LANES x[lane] = in::of_f32(pack.at[lane]);
    } else {
        const weft_pack<double, lanes> pack = take<double, lanes>(from, at);
        FOR_LANES x[lane] = in::of_f64(pack.at[lane]);
    }
}

template <class in, int lanes>
WEFT_DEVICE void store(void *to, unsigned format, uint64_t at,
                       const typename in::number (&x)[lanes])
{
    if (format == WEFT_GPU_F16) {
        weft_pack<uint16_t, lanes> pack;
        FOR_LANES pack.at[lane] = in::f16(x[lane]);
        put(to, at, pack);
    } else if (format == WEFT_GPU_BF16) {
        weft_pack<uint16_t, lanes> pack;
        FOR_LANES pack.at[lane] = in::bf16(x[lane]);
        put(to, at, pack);
    } else if (format == WEFT_GPU_F32) {
        weft_pack<float, lanes> pack;
        FOR_LANES pack.at[lane] = in::f32(x[lane]);
        put(to, at, pack);
    } else {
        weft_pack<double, lanes> pack;
        FOR_LANES pack.at[lane] = in::f64(x[lane]);
        put(to, at, pack);
    }
}

/* ---- one group of elements ---- */

/* What this thread has found that is not finite. */
struct finding {
    uint64_t count, first;
};

template <class in, int lanes>
WEFT_DEVICE void look(typename in::number (&x)[lanes], bool counts, bool clears, uint64_t place,
                      finding &found)
{
    FOR_LANES
    {
        if (in::is_finite(x[lane]))
            continue;
        if (counts) {
            found.count++;
            found.first = place + lane < found.first ? place + lane : found.first;
        }
        if (clears)
            x[lane] = 0;
    }
}

template <class in, int lanes>
WEFT_DEVICE void combine_at(const weft_gpu_combination &of, const weft_gpu_segment &part,
                            uint64_t at, finding &found)
{
    typedef typename in::number number;
    number sum[lanes], x[lanes];

#pragma unroll 1
    for (unsigned k = 0; k < of.terms; k++) {
        const number factor = in::of_f64(of.factors[k]);
        const unsigned bit = 1u << k;

        load<in, lanes>(x, part.terms[k], of.formats[k], at);
        if ((of.looks | of.clears) & bit)
            look<in, lanes>(x, of.looks & bit, of.clears & bit, part.place + at, found);
        if (factor != 1)
            FOR_LANES x[lane] *= factor;
        FOR_LANES sum[lane] = k == 0 ? x[lane] : sum[lane] + x[lane];
    }
    if (!part.to)
        return;
    if (of.factor != 1)
        FOR_LANES sum[lane] *= in::of_f64(of.factor);
    if (of.divisor != 1)
        FOR_LANES sum[lane] /= in::of_f64(of.divisor);
    if (part.less) {
        load<in, lanes>(x, part.less, of.less_format, at);
        FOR_LANES sum[lane] -= x[lane];
    }
    if (of.adds) {
        load<in, lanes>(x, part.to, of.to_format, at);
        FOR_LANES sum[lane] = x[lane] + sum[lane];
    }
    store<in, lanes>(part.to, of.to_format, at, sum);
}

/* ---- a segment ---- */

WEFT_DEVICE unsigned size_of(unsigned format)
{
    return format == WEFT_GPU_F64 ? 8 : format == WEFT_GPU_F32 ? 4 : 2;
}

/* How many elements behind a whole group memory begins. */
WEFT_DEVICE unsigned phase_of(const void *memory, unsigned format)
{
    const unsigned size = size_of(format);

    return weft_offset(memory, LANES * size) / size;
}

/* Groups, where all parts begin the same number of elements behind one. */
WEFT_DEVICE weft_split split_of(const weft_gpu_combination &of, const weft_gpu_segment &part)
{
    const unsigned phase = phase_of(part.terms[0], of.formats[0]);
    bool alike = (!part.to || phase_of(part.to, of.to_format) == phase) &&
                 (!part.less || phase_of(part.less, of.less_format) == phase);

#pragma unroll 1
    for (unsigned k = 1; k < of.terms; k++)
        alike = alike && phase_of(part.terms[k], of.formats[k]) == phase;
    return alike ? weft_split_of(part.count, phase, 1, LANES) : weft_split{part.count, 0};
}

/* The segment of this block: those before it have so many blocks. */
WEFT_DEVICE unsigned segment_of(const weft_gpu_combination &of)
{
    unsigned segment = 0;

    while (segment + 1 < of.segments && of.segment[segment + 1].before <= blockIdx.x)
        segment++;
    return segment;
}

template <class in> WEFT_DEVICE void combine(const weft_gpu_combination &of)
{
    const unsigned number = segment_of(of);
    const weft_gpu_segment &part = of.segment[number];
    const uint64_t end = number + 1 < of.segments ? of.segment[number + 1].before : gridDim.x;
    const uint64_t first = (blockIdx.x - part.before) * (uint64_t)blockDim.x + threadIdx.x;
    const uint64_t step = (end - part.before) * blockDim.x;
    const weft_split split = split_of(of, part);
    finding found = {0, UINT64_MAX};

    for (uint64_t i = first; i < split.vectors; i += step)
        combine_at<in, LANES>(of, part, split.head + i * LANES, found);
    for (uint64_t i = first; i < part.count - split.vectors * LANES; i += step)
        combine_at<in, 1>(of, part, weft_single(split, LANES, i), found);
    if (of.looks && __syncthreads_or(found.count > 0)) { /* hardly ever */
        weft_add_count(&of.found[0], found.count);
        weft_lower(&of.found[1], found.first);
    }
}

#define COMBINE(format)                                                                            \
    WEFT_KERNEL __launch_bounds__(512)                                                             \
        weft_combine_##format(const __grid_constant__ weft_gpu_combination of)                     \
    {                                                                                              \
        combine<in_##format>(of);                                                                  \
    }

COMBINE(f32)
COMBINE(f64)

/* ---- squares ---- */

/* A tree over the threads of a block, the same whatever they are: in the first of them. */
WEFT_DEVICE double sum_of_block(double own)
{
    WEFT_SHARED(double, sums, WEFT_SQUARES_THREADS);

    sums[threadIdx.x] = own;
    __syncthreads();
    for (unsigned by = 1; by < blockDim.x; by *= 2) {
        if (threadIdx.x % (2 * by) == 0 && threadIdx.x + by < blockDim.x)
            sums[threadIdx.x] += sums[threadIdx.x + by];
        __syncthreads();
    }
    return sums[0];
}

template <int lanes>
WEFT_DEVICE void square_at(const weft_gpu_combination &of, const weft_gpu_segment &part,
                           uint64_t at, double &sum)
{
    finding found = {0, 0};
    double x[lanes];

    load<in_f64, lanes>(x, part.terms[0], of.formats[0], at);
    if (of.clears)
        look<in_f64, lanes>(x, false, true, 0, found);
    FOR_LANES sum += x[lane] * x[lane];
}

/* sums[block] += the squares of what the block reads: of the first term, in f64. All blocks read of
 * all segments, in an order that the shape of the grid alone says. A grid of one dimension, of
 * blocks of whole warps. */
WEFT_KERNEL __launch_bounds__(WEFT_SQUARES_THREADS)
    weft_squares(const __grid_constant__ weft_gpu_combination of, double *sums)
{
    double sum = 0;

#pragma unroll 1
    for (unsigned number = 0; number < of.segments; number++) {
        const weft_gpu_segment &part = of.segment[number];
        const weft_split split = split_of(of, part);

        for (uint64_t i = weft_first(); i < split.vectors; i += weft_step())
            square_at<LANES>(of, part, split.head + i * LANES, sum);
        for (uint64_t i = weft_first(); i < part.count - split.vectors * LANES; i += weft_step())
            square_at<1>(of, part, weft_single(split, LANES, i), sum);
    }
    sum = sum_of_block(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] += sum;
}
