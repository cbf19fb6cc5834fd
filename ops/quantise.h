/* SPDX-License-Identifier: BSD-3-Clause */
/* Stochastic quantisation, bucket by bucket.
 *
 * What has been quantised, b bits an element:
 *
 *     | norm, f32 | codes: element i of the bucket in bits b i .. b i + b - 1 | norm | codes | ...
 *
 * Codes are levels -s .. s in two's complement (2, 4, 8 bits), the lowest bits in the first byte;
 * the last byte of the last bucket is filled up with zeros. With 1 bit a code is the sign bit.
 *
 * A level is drawn in fixed point: f = s x / n, rounded to a multiple of 2^-k, plus a random number
 * 0 <= r < 1 of k bits, rounded down. So its expectation is f, for f of both signs, and a whole f
 * is never drawn otherwise. k is small enough that what has been dequantised comes out whole: that
 * is off by 5 roundings, 5 s 2^-24 < 2^-(k + 1).
 *
 * All levels of SIMD do the same operations on the same elements, and none that could be fused. */
#ifndef WEFT_OPS_QUANTISE_H
#define WEFT_OPS_QUANTISE_H

#include <weft/compress.h>

enum {
    /* Kernels work on so many elements at once: whole bytes, and whole draws. */
    WEFT__QUANTISE_BLOCK = 64,
    /* Partial sums: element i is added to the one of number i modulo this. */
    WEFT__QUANTISE_SUMS = 16,
};

/* Bits k of a draw. */
#define WEFT__DRAW_BITS(bits) ((bits) == 8 ? 13 : 16)

/* Of the random numbers: lowbias32 (C. Wellons, Prospecting for Hash Functions, 2018) with a second
 * key in its middle. */
#define WEFT__DRAW_MULTIPLY_1 0x7feb352du
#define WEFT__DRAW_MULTIPLY_2 0x846ca68bu

/* A level times this, times the norm, is what it stands for. The largest level is the norm itself:
 * s * (1 / s) is 1 in f32, too. */
#define WEFT__LEVEL_STEP(bits) (1 / (float)((1 << ((bits)-1)) - 1))

/* How elements of a bucket become codes. */
struct weft__quantise_draw {
    /* f 2^k = x * factor. */
    float factor;
    /* Of the random numbers of this bucket. */
    uint32_t key[2];
};

/* By the logarithm of the bits. Counts are any; `at`, the place of the first element in its bucket,
 * is a multiple of WEFT__QUANTISE_BLOCK. */
struct weft__quantise_kernels {
    /* Bits of the largest magnitude; from infinity's on there is something that is not finite. */
    uint32_t (*largest)(const float *values, size_t count);
    /* Adds squares or magnitudes to the sums; values[0] to the first one. Not finite if one of them
     * is not. */
    void (*squares)(const float *values, size_t count, double *sums);
    void (*magnitudes)(const float *values, size_t count, double *sums);
    void (*encode[4])(const struct weft__quantise_draw *draw, uint32_t at, const float *values,
                      size_t count, uint8_t *codes);
    void (*decode[4])(float norm, const uint8_t *codes, size_t count, float *values);
    void (*decode_add[4])(float norm, const uint8_t *codes, size_t count, float *values);
};

extern const struct weft__quantise_kernels weft__quantise_scalar;
extern const struct weft__quantise_kernels weft__quantise_avx2;
extern const struct weft__quantise_kernels weft__quantise_avx512;

/* Those of the SIMD level in use. */
const struct weft__quantise_kernels *weft__quantise_kernels_find(void);

/* The following take a quantiser whose members are all set and right, and a range of whole buckets
 * of a vector (the last one may have fewer elements). A range gives the same bytes as that part of
 * the whole. */

/* Of `count` elements; SIZE_MAX if they are too many. */
size_t weft__quantise_bytes(const struct weft_quantiser *quantiser, size_t count);

/* `first`: the place in the vector of values[0], a multiple of the bucket. Returns how many values
 * are not finite; then, with WEFT_NAN_ERROR, codes are not defined. */
uint64_t weft__quantise(const struct weft_quantiser *quantiser, uint64_t stream, uint64_t first,
                        const float *values, size_t count, uint8_t *codes);
void weft__dequantise(const struct weft_quantiser *quantiser, const uint8_t *codes, size_t count,
                      float *values);
void weft__dequantise_add(const struct weft_quantiser *quantiser, const uint8_t *codes,
                          size_t count, float *values);

#endif
