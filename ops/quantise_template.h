/* SPDX-License-Identifier: BSD-3-Clause */
/* The quantisation kernels of one SIMD level. A level's file defines WEFT__QUANTISE_TABLE, the name
 * of the table to fill, and may bring its own encode_block and decode_block (then it defines
 * WEFT__QUANTISE_BLOCKS). */
#include <string.h>

#include "ops/quantise.h"

#define BLOCK WEFT__QUANTISE_BLOCK
#define SUMS  WEFT__QUANTISE_SUMS

static inline uint32_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- norms ---- */

static uint32_t largest(const float *values, size_t count)
{
    uint32_t most = 0;

    for (size_t i = 0; i < count; i++) {
        const uint32_t magnitude = float_bits(values[i]) & INT32_MAX;

        most = magnitude > most ? magnitude : most;
    }
    return most;
}

/* A square of an f32 is exact in f64, so fusing changes nothing. */
static void squares(const float *values, size_t count, double *sums)
{
    size_t i = 0;

    for (; i + SUMS <= count; i += SUMS)
        for (size_t j = 0; j < SUMS; j++)
            sums[j] += (double)values[i + j] * (double)values[i + j];
    for (size_t j = 0; i + j < count; j++)
        sums[j] += (double)values[i + j] * (double)values[i + j];
}

static inline double magnitude(float value)
{
    return value < 0 ? -(double)value : (double)value;
}

static void magnitudes(const float *values, size_t count, double *sums)
{
    size_t i = 0;

    for (; i + SUMS <= count; i += SUMS)
        for (size_t j = 0; j < SUMS; j++)
            sums[j] += magnitude(values[i + j]);
    for (size_t j = 0; i + j < count; j++)
        sums[j] += magnitude(values[i + j]);
}

/* ---- codes of a block ---- */

#ifndef WEFT__QUANTISE_BLOCKS
/* 2^23 and a half of it: what is added to it is rounded to a whole number. */
#    define ROUNDING 12582912.0f

/* A number for each counter and key: lowbias32 (C. Wellons, Prospecting for Hash Functions, 2018),
 * with the other half of the key in its middle. */
static inline uint32_t draw_bits(const uint32_t key[2], uint32_t counter)
{
    uint32_t x = counter + key[0];

    x ^= x >> 16;
    x *= WEFT__DRAW_MULTIPLY_1;
    x ^= x >> 15 ^ key[1];
    x *= WEFT__DRAW_MULTIPLY_2;
    return x ^ x >> 16;
}

/* One number serves elements i and i + 16 of 32: its lower half and its upper half. */
static inline uint32_t draw_half(const struct weft__quantise_draw *draw, uint32_t at)
{
    const uint32_t drawn = draw_bits(draw->key, (at >> 5 << 4) + (at & 15));

    return (at & 16) != 0 ? drawn >> 16 : drawn & 0xffff;
}

static inline unsigned code_of(int bits, const struct weft__quantise_draw *draw, uint32_t at,
                               float value)
{
    const int shift = WEFT__DRAW_BITS(bits);
    const float fixed = value * draw->factor + ROUNDING;

    if (bits == 1)
        return float_bits(value) >> 31;
    return ((float_bits(fixed) - float_bits(ROUNDING)) + (draw_half(draw, at) >> (16 - shift))) >>
           shift;
}

static inline void encode_block(int bits, const struct weft__quantise_draw *draw, uint32_t at,
                                const float *values, uint8_t *codes)
{
    uint8_t of_each[BLOCK];
    const int a_byte = 8 / bits;

    for (int i = 0; i < BLOCK; i++)
        of_each[i] = code_of(bits, draw, at + (uint32_t)i, values[i]) & ((1u << bits) - 1);
    for (int i = 0; i < BLOCK / a_byte; i++) {
        unsigned byte = 0;

        for (int j = 0; j < a_byte; j++)
            byte |= (unsigned)of_each[i * a_byte + j] << (j * bits);
        codes[i] = (uint8_t)byte;
    }
}

static inline float value_of(int bits, float norm, unsigned code)
{
    const int level = (int)(code ^ (1u << (bits - 1))) - (1 << (bits - 1));

    if (bits == 1) {
        const uint32_t turned = float_bits(norm) ^ code << 31;

        memcpy(&norm, &turned, sizeof norm);
        return norm;
    }
    return norm * ((float)level * WEFT__LEVEL_STEP(bits));
}

static inline void decode_block(int bits, int add, float norm, const uint8_t *codes, float *values)
{
    const int a_byte = 8 / bits;

    for (int i = 0; i < BLOCK / a_byte; i++)
        for (int j = 0; j < a_byte; j++) {
            float *value = &values[i * a_byte + j];
            const float decoded =
                value_of(bits, norm, (unsigned)codes[i] >> (j * bits) & ((1u << bits) - 1));

            *value = add ? *value + decoded : decoded;
        }
}
#endif

/* ---- of a range ---- */

/* What draws are made of is copied: nobody writes to the copy, so it stays in registers. */
static inline void encode(int bits, const struct weft__quantise_draw *made, uint32_t at,
                          const float *values, size_t count, uint8_t *codes)
{
#ifdef __SANITIZE_ADDRESS__ /* whose stack is not aligned for vectors of 64 bytes */
    const struct weft__quantise_draw *const draw = made;
#else
    const struct weft__quantise_draw copy = *made, *const draw = &copy;
#endif
    const size_t bytes = (size_t)(BLOCK / 8 * bits);
    float last[BLOCK] = {0};
    uint8_t coded[BLOCK];

    for (; count >= BLOCK; count -= BLOCK) {
        encode_block(bits, draw, at, values, codes);
        at += BLOCK;
        values += BLOCK;
        codes += bytes;
    }
    if (count > 0) {
        memcpy(last, values, count * sizeof *values);
        encode_block(bits, draw, at, last, coded);
        memcpy(codes, coded, (count * (size_t)bits + 7) / 8);
    }
}

static inline void decode(int bits, int add, float norm, const uint8_t *codes, size_t count,
                          float *values)
{
    const size_t bytes = (size_t)(BLOCK / 8 * bits);
    float last[BLOCK] = {0};
    uint8_t coded[BLOCK] = {0};

    for (; count >= BLOCK; count -= BLOCK) {
        decode_block(bits, add, norm, codes, values);
        values += BLOCK;
        codes += bytes;
    }
    if (count > 0) {
        memcpy(coded, codes, (count * (size_t)bits + 7) / 8);
        memcpy(last, values, add ? count * sizeof *values : 0);
        decode_block(bits, add, norm, coded, last);
        memcpy(values, last, count * sizeof *values);
    }
}

#define KERNELS(bits)                                                                              \
    static void encode_##bits(const struct weft__quantise_draw *draw, uint32_t at,                 \
                              const float *values, size_t count, uint8_t *codes)                   \
    {                                                                                              \
        encode(bits, draw, at, values, count, codes);                                              \
    }                                                                                              \
                                                                                                   \
    static void decode_##bits(float norm, const uint8_t *codes, size_t count, float *values)       \
    {                                                                                              \
        decode(bits, 0, norm, codes, count, values);                                               \
    }                                                                                              \
                                                                                                   \
    static void decode_add_##bits(float norm, const uint8_t *codes, size_t count, float *values)   \
    {                                                                                              \
        decode(bits, 1, norm, codes, count, values);                                               \
    }

KERNELS(1)
KERNELS(2)
KERNELS(4)
KERNELS(8)

const struct weft__quantise_kernels WEFT__QUANTISE_TABLE = {
    .largest = largest,
    .squares = squares,
    .magnitudes = magnitudes,
    .encode = {encode_1, encode_2, encode_4, encode_8},
    .decode = {decode_1, decode_2, decode_4, decode_8},
    .decode_add = {decode_add_1, decode_add_2, decode_add_4, decode_add_8},
};
