/* SPDX-License-Identifier: BSD-3-Clause */
/* Stochastic quantisation: the bytes that ops/quantise.c gives (ops/quantise.h has their layout and
 * the draws).
 *
 *   weft_quantise_BITS       small buckets: a warp each finds the norm and draws the codes;
 *                            values come from memory once, and from caches then
 *   weft_quantise_norms      norms of buckets that are large: of their largest magnitude in parts
 *                            by all blocks, of sums by a warp each
 *   weft_quantise_codes_BITS codes of buckets whose norms are known: a thread each eight elements
 *   weft_dequantise_BITS, weft_dequantise_add_BITS
 *
 * Sums are those of ops/: element i of a bucket is added to number i modulo 16, in f64, one after
 * the other, and then halves are added. That orders the additions, so that a bucket as large as a
 * vector is summed by 16 threads. What is not finite counts as +0, and is counted. */
#include "gpu/kernels/list.h"
#include "gpu/kernels/select.cuh"

enum { GROUP = 8, SUMS = 16 };

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)
/* 2^23 and a half of it: what is added to it is rounded to a whole number. */
#define ROUNDING 12582912.0f
#define MOST     3.402823466e38f

WEFT_DEVICE uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The key of a bucket of a vector. */
WEFT_DEVICE uint64_t key_of_bucket(uint64_t seed, uint64_t stream, uint64_t bucket)
{
    return mix(mix(mix(seed + GOLDEN) + stream) + (bucket + 1) * GOLDEN);
}

WEFT_DEVICE bool is_finite(float x)
{
    return magnitude_of(bits_of(x)) < WEFT_INFINITY_F32;
}

/* Bytes of the codes of so many elements, which begin a bucket. */
template <int bits> WEFT_DEVICE uint64_t code_bytes(uint64_t count)
{
    return count / 8 * bits + (count % 8 * bits + 7) / 8;
}

/* Where a bucket's bytes begin: its norm, then its codes. */
template <int bits> WEFT_DEVICE uint64_t bytes_before(uint64_t bucket, uint64_t number)
{
    return number * (sizeof(float) + bucket / 8 * bits);
}

/* ---- eight elements, and their bytes ---- */

/* The last of a bucket may be fewer; zeros follow. */
WEFT_DEVICE void load_group(const float *from, uint64_t count, float value[GROUP])
{
    typedef weft_pack<float, 4> pack;

    if (count >= GROUP && weft_offset(from, sizeof(pack)) == 0) {
        const pack low = ((const pack *)from)[0];
        const pack high = ((const pack *)from)[1];

#pragma unroll
        for (int i = 0; i < 4; i++) {
            value[i] = low.at[i];
            value[i + 4] = high.at[i];
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < GROUP; i++)
        value[i] = (uint64_t)i < count ? from[i] : 0;
}

WEFT_DEVICE void store_group(float *to, uint64_t count, const float value[GROUP])
{
    typedef weft_pack<float, 4> pack;

    if (count >= GROUP && weft_offset(to, sizeof(pack)) == 0) {
        pack low;
        pack high;

#pragma unroll
        for (int i = 0; i < 4; i++) {
            low.at[i] = value[i];
            high.at[i] = value[i + 4];
        }
        ((pack *)to)[0] = low;
        ((pack *)to)[1] = high;
        return;
    }
#pragma unroll
    for (int i = 0; i < GROUP; i++)
        if ((uint64_t)i < count)
            to[i] = value[i];
}

/* `bytes` of a word, the lowest first; at once where the address allows it. */
template <class word> WEFT_DEVICE void store_bytes(uint8_t *to, uint64_t value, unsigned bytes)
{
    if (bytes == sizeof(word) && weft_offset(to, sizeof(word)) == 0) {
        *(word *)to = (word)value;
        return;
    }
    for (unsigned i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

template <class word> WEFT_DEVICE uint64_t load_bytes(const uint8_t *from, unsigned bytes)
{
    uint64_t value = 0;

    if (bytes == sizeof(word) && weft_offset(from, sizeof(word)) == 0)
        return *(const word *)from;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << (8 * i);
    return value;
}

template <int bits> struct word_of;
template <> struct word_of<1> {
    typedef uint8_t type;
};
template <> struct word_of<2> {
    typedef uint16_t type;
};
template <> struct word_of<4> {
    typedef uint32_t type;
};
template <> struct word_of<8> {
    typedef uint64_t type;
};

/* ---- norms ---- */

/* A norm that is not less than the largest magnitude will do. */
WEFT_DEVICE float as_norm(double norm)
{
    return norm > (double)MOST ? MOST : (float)norm;
}

/* 16 sums of squares or magnitudes, one a lane, added by halves: to lane 0. */
WEFT_DEVICE double total(double sum)
{
    for (unsigned half = SUMS / 2; half > 0; half /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, half);
    return sum;
}

/* By the lower half of a warp. */
WEFT_DEVICE double sum_bucket(const float *values, uint64_t count, uint32_t norm, unsigned lane,
                              uint64_t *bad)
{
    double sum = 0;

#pragma unroll 4
    for (uint64_t i = lane; lane < SUMS && i < count; i += SUMS) {
        const float x = values[i];
        const bool finite = is_finite(x);
        const double wide = finite ? (double)x : 0;

        *bad += !finite;
        sum += norm == WEFT_GPU_SQUARES ? wide * wide : wide < 0 ? -wide : wide;
    }
    return sum;
}

/* The largest magnitude of what this thread sees: elements `first`, `first + step` ... */
WEFT_DEVICE uint32_t largest_of(const float *values, uint64_t first, uint64_t count, uint64_t step,
                                uint64_t *bad)
{
    uint32_t most = 0;

#pragma unroll 4
    for (uint64_t i = first; i < count; i += step) {
        const uint32_t magnitude = magnitude_of(bits_of(values[i]));
        const bool finite = magnitude < WEFT_INFINITY_F32;

        *bad += !finite;
        most = finite && magnitude > most ? magnitude : most;
    }
    return most;
}

WEFT_DEVICE float norm_of_sum(double sum, uint64_t count, uint32_t norm)
{
    return as_norm(norm == WEFT_GPU_SQUARES ? __dsqrt_rn(sum) : sum / (double)count);
}

/* Of a bucket, by a warp: the same in all lanes. */
WEFT_DEVICE float norm_of(const float *values, uint64_t count, uint32_t norm, uint64_t *bad)
{
    const unsigned lane = threadIdx.x % WEFT_WARP;

    if (norm != WEFT_GPU_LARGEST) {
        const double sum = total(sum_bucket(values, count, norm, lane, bad));

        return __shfl_sync(0xffffffffu, norm_of_sum(sum, count, norm), 0);
    }
    uint32_t most = largest_of(values, lane, count, WEFT_WARP, bad);

    for (unsigned by = WEFT_WARP / 2; by > 0; by /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, most, (int)by);

        most = other > most ? other : most;
    }
    return __uint_as_float(most);
}

/* ---- codes ---- */

/* What values are multiplied by: s 2^k / n may be more than a float can be, so a power of two comes
 * before it. */
struct factors {
    float scale;
    float factor;
    uint32_t key[2];
    bool zero; /* all codes are */
};

template <int bits> WEFT_DEVICE factors factors_of(float norm, uint64_t key)
{
    const float fixed = (float)((1 << (bits - 1)) - 1) * (float)(1 << (bits == 8 ? 13 : 16));
    factors made;

    made.scale = norm < 0x1p-64f ? 0x1p+80f : norm > 0x1p+64f ? 0x1p-80f : 1;
    made.factor = fixed / (norm * made.scale);
    made.key[0] = (uint32_t)key;
    made.key[1] = (uint32_t)(key >> 32);
    made.zero = norm == 0;
    return made;
}

/* One number serves elements i and i + 16 of 32: its lower half and its upper half. */
WEFT_DEVICE uint32_t draw_half(const factors &with, uint32_t at)
{
    uint32_t x = (at >> 5 << 4) + (at & 15) + with.key[0];

    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15 ^ with.key[1];
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return (at & 16) != 0 ? x >> 16 : x & 0xffff;
}

template <int bits> WEFT_DEVICE uint32_t code_of(const factors &with, uint32_t at, float value)
{
    const int shift = bits == 8 ? 13 : 16;
    const float x = is_finite(value) ? value * with.scale : 0;
    const float fixed = x * with.factor + ROUNDING;

    if (bits == 1)
        return bits_of(x) >> 31;
    return ((bits_of(fixed) - __float_as_uint(ROUNDING)) + (draw_half(with, at) >> (16 - shift))) >>
               shift &
           ((1u << bits) - 1);
}

/* Group number `group` of a bucket of `count` elements. */
template <int bits>
WEFT_DEVICE void encode_group(const factors &with, const float *values, uint64_t count,
                              uint64_t group, uint8_t *codes)
{
    const uint64_t at = group * GROUP;
    const uint64_t left = count - at;
    float value[GROUP];
    uint64_t packed = 0;

    load_group(values + at, left, value);
#pragma unroll
    for (int i = 0; i < GROUP; i++)
        packed |= (uint64_t)code_of<bits>(with, (uint32_t)at + i, value[i]) << (bits * i);
    store_bytes<typename word_of<bits>::type>(codes + group * bits, with.zero ? 0 : packed,
                                              (unsigned)code_bytes<bits>(left < GROUP ? left : 8));
}

WEFT_DEVICE void add_bad(uint64_t bad, unsigned long long *total)
{
    if (bad > 0)
        atomicAdd(total, (unsigned long long)bad);
}

/* ---- kernels ---- */

/* A warp each bucket: blocks of whole warps, any grid of one dimension. */
template <int bits>
WEFT_DEVICE void quantise(const float *values, uint64_t count, const weft_gpu_quantiser &by,
                          uint8_t *bytes, unsigned long long *bad)
{
    const uint64_t buckets = (count + by.bucket - 1) / by.bucket;
    const unsigned lane = threadIdx.x % WEFT_WARP;
    uint64_t found = 0;

    for (uint64_t b = weft_first() / WEFT_WARP; b < buckets; b += weft_step() / WEFT_WARP) {
        const float *own = values + b * by.bucket;
        const uint64_t left = count - b * by.bucket;
        const uint64_t here = left < by.bucket ? left : by.bucket;
        uint8_t *to = bytes + bytes_before<bits>(by.bucket, b);
        const float norm = norm_of(own, here, by.norm, &found);
        const factors with = factors_of<bits>(norm, key_of_bucket(by.seed, by.stream, b));

        if (lane == 0)
            store_bytes<uint32_t>(to, bits_of(norm), sizeof norm);
        for (uint64_t group = lane; group * GROUP < here; group += WEFT_WARP)
            encode_group<bits>(with, own, here, group, to + sizeof norm);
    }
    add_bad(found, bad);
}

/* The largest magnitudes of buckets, 0 before: a block each `part` of one. Of sums a warp each
 * bucket. */
WEFT_KERNEL __launch_bounds__(512)
    weft_quantise_norms(const float *values, uint64_t count,
                        const __grid_constant__ weft_gpu_quantiser by, uint64_t part, float *norms,
                        unsigned long long *bad)
{
    const uint64_t buckets = (count + by.bucket - 1) / by.bucket;
    const uint64_t parts = (by.bucket + part - 1) / part;
    const unsigned lane = threadIdx.x % WEFT_WARP;
    uint64_t found = 0;

    if (by.norm == WEFT_GPU_LARGEST) {
        for (uint64_t p = blockIdx.x; p < buckets * parts; p += gridDim.x) {
            const uint64_t begin = p / parts * by.bucket;
            const uint64_t left = count - begin;
            const uint64_t end = left < by.bucket ? left : by.bucket;
            const uint64_t first = p % parts * part;
            const uint64_t last = end < first + part ? end : first + part;
            const uint32_t most =
                largest_of(values + begin, first + threadIdx.x, last, blockDim.x, &found);

            if (most > 0)
                atomicMax((unsigned *)norms + p / parts, most);
        }
        add_bad(found, bad);
        return;
    }
    for (uint64_t b = weft_first() / WEFT_WARP; b < buckets; b += weft_step() / WEFT_WARP) {
        const uint64_t left = count - b * by.bucket;
        const uint64_t here = left < by.bucket ? left : by.bucket;
        const float norm = norm_of(values + b * by.bucket, here, by.norm, &found);

        if (lane == 0)
            norms[b] = norm;
    }
    add_bad(found, bad);
}

/* Any grid of one dimension. */
template <int bits>
WEFT_DEVICE void write_codes(const float *values, uint64_t count, const weft_gpu_quantiser &by,
                             const float *norms, uint8_t *bytes)
{
    const uint64_t groups = by.bucket / GROUP;

    for (uint64_t i = weft_first(); i * GROUP < count; i += weft_step()) {
        const uint64_t b = i / groups;
        const uint64_t left = count - b * by.bucket;
        uint8_t *to = bytes + bytes_before<bits>(by.bucket, b);
        const factors with = factors_of<bits>(norms[b], key_of_bucket(by.seed, by.stream, b));

        if (i % groups == 0)
            store_bytes<uint32_t>(to, bits_of(norms[b]), sizeof(float));
        encode_group<bits>(with, values + b * by.bucket, left < by.bucket ? left : by.bucket,
                           i % groups, to + sizeof(float));
    }
}

template <int bits> WEFT_DEVICE float value_of(float norm, uint32_t code)
{
    const float step = bits > 1 ? 1 / (float)((1 << (bits > 1 ? bits - 1 : 1)) - 1) : 1;
    const int level = (int)(code ^ (1u << (bits - 1))) - (1 << (bits - 1));

    if (bits == 1)
        return __uint_as_float(bits_of(norm) ^ code << 31);
    return norm * ((float)level * step);
}

/* Any grid of one dimension. */
template <int bits, bool adds>
WEFT_DEVICE void dequantise(const uint8_t *bytes, uint64_t count, uint64_t bucket, float *values)
{
    const uint64_t groups = bucket / GROUP;

    for (uint64_t i = weft_first(); i * GROUP < count; i += weft_step()) {
        const uint8_t *from = bytes + bytes_before<bits>(bucket, i / groups);
        const uint64_t left = count - i * GROUP;
        const float norm = __uint_as_float((uint32_t)load_bytes<uint32_t>(from, sizeof(float)));
        const uint64_t packed = load_bytes<typename word_of<bits>::type>(
            from + sizeof(float) + i % groups * bits,
            (unsigned)code_bytes<bits>(left < GROUP ? left : 8));
        float value[GROUP] = {};

        if (adds)
            load_group(values + i * GROUP, left, value);
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            const float decoded =
                value_of<bits>(norm, (uint32_t)(packed >> (bits * j)) & ((1u << bits) - 1));

            value[j] = adds ? value[j] + decoded : decoded;
        }
        store_group(values + i * GROUP, left, value);
    }
}

#define OF_BITS(bits)                                                                              \
    WEFT_KERNEL __launch_bounds__(512) weft_quantise_##bits(                                       \
        const float *values, uint64_t count, const __grid_constant__ weft_gpu_quantiser by,        \
        uint8_t *bytes, unsigned long long *bad)                                                   \
    {                                                                                              \
        quantise<bits>(values, count, by, bytes, bad);                                             \
    }                                                                                              \
    WEFT_KERNEL __launch_bounds__(512) weft_quantise_codes_##bits(                                 \
        const float *values, uint64_t count, const __grid_constant__ weft_gpu_quantiser by,        \
        const float *norms, uint8_t *bytes)                                                        \
    {                                                                                              \
        write_codes<bits>(values, count, by, norms, bytes);                                        \
    }                                                                                              \
    WEFT_KERNEL __launch_bounds__(512) weft_dequantise_##bits(                                     \
        const uint8_t *bytes, uint64_t count, uint64_t bucket, float *values)                      \
    {                                                                                              \
        dequantise<bits, false>(bytes, count, bucket, values);                                     \
    }                                                                                              \
    WEFT_KERNEL __launch_bounds__(512) weft_dequantise_add_##bits(                                 \
        const uint8_t *bytes, uint64_t count, uint64_t bucket, float *values)                      \
    {                                                                                              \
        dequantise<bits, true>(bytes, count, bucket, values);                                      \
    }

OF_BITS(1)
OF_BITS(2)
OF_BITS(4)
OF_BITS(8)
