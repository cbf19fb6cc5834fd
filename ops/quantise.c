/* SPDX-License-Identifier: BSD-3-Clause */
/* Quantisation of a range: buckets, their norms, their random numbers, what is not finite. */
#include "ops/quantise.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define INFINITE UINT32_C(0x7f800000)

enum {
    NORM_BYTES = sizeof(float),
    CHUNK = 8 * WEFT__QUANTISE_BLOCK, /* that is cleaned at once */
};

static int log2_of(int bits)
{
    return bits == 1 ? 0 : bits == 2 ? 1 : bits == 4 ? 2 : 3;
}

static size_t code_bytes(const struct weft_quantiser *quantiser, size_t count)
{
    return count / 8 * (size_t)quantiser->bits + (count % 8 * (size_t)quantiser->bits + 7) / 8;
}

size_t weft__quantise_bytes(const struct weft_quantiser *quantiser, size_t count)
{
    const size_t buckets = count / quantiser->bucket + (count % quantiser->bucket > 0);
    const size_t codes = code_bytes(quantiser, count);

    if (buckets > (SIZE_MAX - codes) / NORM_BYTES)
        return SIZE_MAX;
    return codes + buckets * NORM_BYTES;
}

/* ---- random numbers ---- */

/* The finaliser of splitmix64: any change of what goes in changes about half of what comes out. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

static uint64_t stream_key(uint64_t seed, uint64_t stream)
{
    return mix(mix(seed + GOLDEN) + stream);
}

/* ---- what is not finite ---- */

static uint64_t count_bad(const float *values, size_t count)
{
    uint64_t bad = 0;

    for (size_t i = 0; i < count; i++)
        bad += !isfinite(values[i]);
    return bad;
}

/* values; or a copy, times a power of two, in which zeros are what is not finite. */
static const float *cleaned(const float *values, size_t count, int clean, float scale, float *copy)
{
    if (!clean && scale == 1)
        return values;
    for (size_t i = 0; i < count; i++)
        copy[i] = isfinite(values[i]) ? values[i] * scale : 0;
    return copy;
}

/* ---- norms ---- */

static double total(const double *sums)
{
    double sum[WEFT__QUANTISE_SUMS];

    memcpy(sum, sums, sizeof sum);
    for (int half = WEFT__QUANTISE_SUMS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return sum[0];
}

/* Any norm that is not less than the largest magnitude will do, so what is larger than a float can
 * be is the largest one that is. */
static float as_norm(double norm)
{
    return norm > (double)FLT_MAX && !isinf(norm) ? FLT_MAX : (float)norm;
}

/* The norm of a bucket; not finite if something in it is not. */
static float norm_of(const struct weft__quantise_kernels *kernels,
                     const struct weft_quantiser *quantiser, const float *values, size_t count,
                     int clean)
{
    double sums[WEFT__QUANTISE_SUMS] = {0};
    const int sign = quantiser->bits == WEFT_QUANTISE_SIGN;
    const size_t chunk = clean ? CHUNK : count;
    float copy[CHUNK], norm;
    uint32_t most = 0;

    for (size_t at = 0; at < count; at += chunk) {
        const size_t here = count - at < chunk ? count - at : chunk;
        const float *x = cleaned(values + at, here, clean, 1, copy);

        if (sign) {
            kernels->magnitudes(x, here, sums);
        } else if (quantiser->norm == WEFT_QUANTISE_L2) {
            kernels->squares(x, here, sums);
        } else {
            const uint32_t largest = kernels->largest(x, here);

            most = largest > most ? largest : most;
        }
    }
    if (sign)
        return as_norm(total(sums) / (double)count);
    if (quantiser->norm == WEFT_QUANTISE_L2)
        return as_norm(sqrt(total(sums)));
    memcpy(&norm, &most, sizeof norm);
    return norm;
}

/* ---- buckets ---- */

/* What values are multiplied by before factors: s 2^k / n may be more than a float can be. */
static float scale_of(float norm)
{
    return norm < 0x1p-64f ? 0x1p+80f : norm > 0x1p+64f ? 0x1p-80f : 1;
}

/* The codes of a bucket with this norm. */
static void encode_bucket(const struct weft__quantise_kernels *kernels, int bits, uint64_t key,
                          float norm, const float *values, size_t count, int clean, uint8_t *codes)
{
    const float fixed = (float)((1 << (bits - 1)) - 1) * (float)(1 << WEFT__DRAW_BITS(bits));
    const float scale = scale_of(norm);
    const struct weft__quantise_draw draw = {.factor = fixed / (norm * scale),
                                             .key = {(uint32_t)key, (uint32_t)(key >> 32)}};
    const size_t chunk = clean || scale != 1 ? CHUNK : count;
    float copy[CHUNK];

    for (size_t at = 0; at < count; at += chunk) {
        const size_t here = count - at < chunk ? count - at : chunk;

        kernels->encode[log2_of(bits)](&draw, (uint32_t)at,
                                       cleaned(values + at, here, clean, scale, copy), here,
                                       codes + at / 8 * (size_t)bits);
    }
}

/* Returns how many values are not finite. */
static uint64_t quantise_bucket(const struct weft__quantise_kernels *kernels,
                                const struct weft_quantiser *quantiser, uint64_t key,
                                const float *values, size_t count, uint8_t *codes)
{
    float norm = norm_of(kernels, quantiser, values, count, 0);
    const int clean = !isfinite(norm);
    uint64_t bad = 0;

    if (clean) {
        bad = count_bad(values, count);
        if (quantiser->nan == WEFT_NAN_ERROR)
            return bad;
        norm = norm_of(kernels, quantiser, values, count, 1);
    }
    memcpy(codes, &norm, NORM_BYTES);
    codes += NORM_BYTES;
    if (norm == 0)
        memset(codes, 0, code_bytes(quantiser, count));
    else
        encode_bucket(kernels, quantiser->bits, key, norm, values, count, clean, codes);
    return bad;
}

uint64_t weft__quantise(const struct weft_quantiser *quantiser, uint64_t stream, uint64_t first,
                        const float *values, size_t count, uint8_t *codes)
{
    const struct weft__quantise_kernels *kernels = weft__quantise_kernels_find();
    const size_t bucket = quantiser->bucket;
    const uint64_t key = stream_key(quantiser->seed, stream);
    uint64_t number = first / bucket, bad = 0;

    for (size_t at = 0; at < count; at += bucket) {
        const size_t here = count - at < bucket ? count - at : bucket;

        bad += quantise_bucket(kernels, quantiser, mix(key + ++number * GOLDEN), values + at, here,
                               codes);
        codes += NORM_BYTES + code_bytes(quantiser, here);
    }
    return bad;
}

static void decode_buckets(const struct weft_quantiser *quantiser,
                           void (*decode)(float, const uint8_t *, size_t, float *),
                           const uint8_t *codes, size_t count, float *values)
{
    const size_t bucket = quantiser->bucket;

    for (size_t at = 0; at < count; at += bucket) {
        const size_t here = count - at < bucket ? count - at : bucket;
        float norm;

        memcpy(&norm, codes, NORM_BYTES);
        decode(norm, codes + NORM_BYTES, here, values + at);
        codes += NORM_BYTES + code_bytes(quantiser, here);
    }
}

void weft__dequantise(const struct weft_quantiser *quantiser, const uint8_t *codes, size_t count,
                      float *values)
{
    decode_buckets(quantiser, weft__quantise_kernels_find()->decode[log2_of(quantiser->bits)],
                   codes, count, values);
}

void weft__dequantise_add(const struct weft_quantiser *quantiser, const uint8_t *codes,
                          size_t count, float *values)
{
    decode_buckets(quantiser, weft__quantise_kernels_find()->decode_add[log2_of(quantiser->bits)],
                   codes, count, values);
}
