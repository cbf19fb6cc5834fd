/* SPDX-License-Identifier: BSD-3-Clause */
/* Quantisation gives the same bits on every SIMD level, and in parts what it gives in one. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

#include "ops/quantise.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

enum { MOST = 5000 };

enum kind { UNIFORM, SUBNORMAL, HUGE_ONES, SPREAD, MANY_ZEROS, NOT_FINITE, KINDS };

static const int all_bits[] = {WEFT_QUANTISE_SIGN, 2, 4, 8};
static const size_t counts[] = {1,  7,  8,  9,   15,  16,  17,  31,  32,   33,
                                63, 64, 65, 127, 129, 511, 512, 513, 1000, MOST};
static const size_t buckets[] = {8, 24, 64, 72, 512, 4096};

static uint64_t next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void fill(float *values, size_t count, enum kind kind, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        const float value = (float)next(&seed) * 0x1p-30f - 1;
        const uint64_t which = next(&seed) % 256;

        switch (kind) {
        case SUBNORMAL:
            values[i] = value * 0x1p-140f;
            break;
        case HUGE_ONES:
            values[i] = value * 0x1.8p+127f;
            break;
        case SPREAD:
            values[i] = ldexpf(value, (int)which - 128);
            break;
        case MANY_ZEROS:
            values[i] = which < 16 ? value : which % 2 != 0 ? -0.0f : 0.0f;
            break;
        case NOT_FINITE:
            values[i] = which == 0 ? NAN : which == 1 ? INFINITY : which == 2 ? -INFINITY : value;
            break;
        default:
            values[i] = value;
        }
    }
}

struct outcome {
    uint8_t codes[2 * MOST + 64];
    float values[MOST];
    float sums[MOST];
    uint64_t bad;
};

/* All that is made of values, one byte off any alignment. */
static void make(const struct weft_quantiser *quantiser, const float *values, size_t count,
                 struct outcome *out)
{
    memset(out, 0xa5, sizeof *out);
    cr_assert_eq(weft_quantise(quantiser, 5, values, count, out->codes + 1, &out->bad), WEFT_OK);
    cr_assert_eq(weft_dequantise(quantiser, out->codes + 1, count, out->values), WEFT_OK);
    memcpy(out->sums, values, count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        out->sums[i] = isfinite(values[i]) ? values[i] : 1;
    cr_assert_eq(weft_dequantise_add(quantiser, out->codes + 1, count, out->sums), WEFT_OK);
}

static void compare_levels(const struct weft_quantiser *quantiser, const float *values,
                           size_t count, const char *what)
{
    static struct outcome plain, fast;

    weft_simd_limit(WEFT_SIMD_SCALAR);
    make(quantiser, values, count, &plain);
    for (int level = WEFT_SIMD_AVX2; level <= WEFT_SIMD_AVX512; level++) {
        if ((int)weft_simd_limit((weft_simd_t)level) != level)
            continue;
        make(quantiser, values, count, &fast);
        cr_assert_eq(memcmp(&plain, &fast, sizeof plain), 0,
                     "%s: %d bits, bucket %zu, count %zu, %s", weft_simd_name((weft_simd_t)level),
                     quantiser->bits, quantiser->bucket, count, what);
    }
}

static void compare_kind(enum kind kind, weft_quantise_norm_t norm)
{
    struct weft_quantiser quantiser;
    float *values = malloc((MOST + 1) * sizeof *values);
    char what[64];

    cr_assert_not_null(values);
    weft_quantiser_init(&quantiser);
    quantiser.norm = norm;
    quantiser.nan = WEFT_NAN_ZERO;
    snprintf(what, sizeof what, "data %d, norm %d", (int)kind, (int)norm);
    for (size_t c = 0; c < COUNT_OF(counts); c++) {
        fill(values + 1, counts[c], kind, 17 + c);
        for (size_t i = 0; i < COUNT_OF(buckets) * COUNT_OF(all_bits); i++) {
            quantiser.bits = all_bits[i % COUNT_OF(all_bits)];
            quantiser.bucket = buckets[i / COUNT_OF(all_bits)];
            quantiser.seed = i;
            compare_levels(&quantiser, values + 1, counts[c], what);
        }
    }
    free(values);
}

Test(quantise, all_levels_give_the_same_bits)
{
    for (int kind = 0; kind < KINDS; kind++) {
        compare_kind((enum kind)kind, WEFT_QUANTISE_MAX);
        compare_kind((enum kind)kind, WEFT_QUANTISE_L2);
    }
}

/* Codes that are never written, norms that are never stored. */
Test(quantise, all_levels_read_any_bytes_alike)
{
    enum { N = 1024 };
    static uint8_t bytes[2 * N + 64];
    static float plain[N], fast[N];
    struct weft_quantiser quantiser;
    uint64_t state = 3;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)next(&state);
    weft_quantiser_init(&quantiser);
    for (size_t b = 0; b < COUNT_OF(all_bits); b++) {
        quantiser.bits = all_bits[b];
        quantiser.bucket = 64;
        weft_simd_limit(WEFT_SIMD_SCALAR);
        cr_assert_eq(weft_dequantise(&quantiser, bytes, N, plain), WEFT_OK);
        for (int level = WEFT_SIMD_AVX2; level <= WEFT_SIMD_AVX512; level++) {
            if ((int)weft_simd_limit((weft_simd_t)level) != level)
                continue;
            cr_assert_eq(weft_dequantise(&quantiser, bytes, N, fast), WEFT_OK);
            for (int i = 0; i < N; i++)
                cr_assert(isnan(plain[i]) ? isnan(fast[i]) : plain[i] == fast[i]);
        }
    }
}

/* From the middle of a vector on, of one that is as long as no memory, too. */
Test(quantise, parts_give_what_the_whole_gives)
{
    static const uint64_t begins[] = {0, UINT64_C(1) << 32, (UINT64_C(1) << 60) + 128};
    static float values[MOST];
    static uint8_t whole[2 * MOST], part[2 * MOST], first[2 * MOST];
    struct weft_quantiser quantiser;

    fill(values, MOST, UNIFORM, 1);
    weft_quantiser_init(&quantiser);
    for (size_t b = 0; b < COUNT_OF(all_bits); b++)
        for (size_t i = 0; i < COUNT_OF(begins); i++) {
            quantiser.bits = all_bits[b];
            quantiser.bucket = 64;
            const size_t bytes = weft__quantise_bytes(&quantiser, MOST);

            weft__quantise(&quantiser, 9, begins[i], values, MOST, whole);
            for (size_t at = 0; at < MOST; at += 192)
                weft__quantise(&quantiser, 9, begins[i] + at, values + at,
                               MOST - at < 192 ? MOST - at : 192,
                               part + weft__quantise_bytes(&quantiser, at));
            cr_expect_eq(memcmp(whole, part, bytes), 0);
            if (i == 0)
                memcpy(first, whole, bytes);
            else if (all_bits[b] != WEFT_QUANTISE_SIGN)
                cr_expect_neq(memcmp(whole, first, bytes), 0, "elsewhere, and drawn alike");
        }
}
