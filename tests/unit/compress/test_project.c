/* SPDX-License-Identifier: BSD-3-Clause */
/* Projections against plain loops: bits where the order is defined, bounds against f64. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "support/sweep.h"

#define UNIT 0x1p-24

static uint64_t state;

static float draw(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(int32_t)(state >> 32) * 0x1p-31);
}

static float *numbers(size_t count)
{
    float *all = malloc((count + 1) * sizeof *all);

    cr_assert_not_null(all);
    for (size_t i = 0; i < count; i++)
        all[i] = draw();
    return all;
}

static size_t slices_of(size_t count, size_t slice)
{
    return (count + slice - 1) / slice;
}

/* ---- what is defined, in plain loops ---- */

static float component(const float *basis, size_t d, size_t j, const float *x, size_t length)
{
    float lanes[16] = {0};

    for (size_t k = 0; k < length; k++) {
        float *sum = &lanes[d < 8 ? k % 16 : 0];

        *sum = fmaf(x[k], basis[k * d + j], *sum);
    }
    for (size_t half = d < 8 ? 8 : 0; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

static void plain_project(const float *basis, size_t slice, size_t d, const float *values,
                          size_t count, const float *mean, float share, float *out)
{
    float *x = malloc((slice + 1) * sizeof *x);

    cr_assert_not_null(x);
    for (size_t begin = 0; begin < count; begin += slice, out += d) {
        const size_t length = count - begin < slice ? count - begin : slice;

        for (size_t k = 0; k < length; k++)
            x[k] = mean ? fmaf(-share, mean[begin + k], values[begin + k]) : values[begin + k];
        for (size_t j = 0; j < d; j++)
            out[j] = component(basis, d, j, x, length);
    }
    free(x);
}

/* ---- all levels ---- */

static void try_project(size_t slice, size_t d, size_t count, int with_mean)
{
    const size_t n = slices_of(count, slice) * d;
    float *basis = numbers(slice * d);
    float *values = numbers(count);
    float *mean = with_mean ? numbers(count) : NULL;
    float *expected = numbers(n);
    float *out = numbers(n);
    const struct weft_projection projection = {
        .struct_size = sizeof projection, .slice = slice, .components = d, .basis = basis};
    struct weft_projection_squares first = {0, 0, 0};

    plain_project(basis, slice, d, values, count, mean, 0.25F, expected);
    for (weft_simd_t level = WEFT_SIMD_SCALAR; level <= WEFT_SIMD_AVX512; level++) {
        struct weft_projection_squares squares = {0, 0, 0};

        weft_simd_limit(level);
        memset(out, 0x55, n * sizeof *out);
        cr_assert_eq(weft_project(&projection, values, count, mean, 0.25, out, &squares), WEFT_OK,
                     "%s", weft_error_text());
        cr_assert_eq(memcmp(out, expected, n * sizeof *out), 0, "%s: K %zu, d %zu, count %zu",
                     weft_simd_name(level), slice, d, count);
        if (level == WEFT_SIMD_SCALAR)
            first = squares;
        cr_assert_eq(memcmp(&first, &squares, sizeof first), 0, "squares of %s: K %zu, d %zu, %zu",
                     weft_simd_name(level), slice, d, count);
    }
    weft_simd_limit(WEFT_SIMD_AVX512);
    free(basis);
    free(values);
    free(mean);
    free(expected);
    free(out);
}

static void try_reconstruct(size_t slice, size_t d, size_t count, int with_mean)
{
    float *basis = numbers(slice * d);
    float *components = numbers(slices_of(count, slice) * d);
    float *mean = with_mean ? numbers(count) : NULL;
    float *expected = numbers(count);
    float *values = numbers(count);
    const struct weft_projection projection = {
        .struct_size = sizeof projection, .slice = slice, .components = d, .basis = basis};

    for (size_t i = 0; i < count; i++) {
        expected[i] = mean ? mean[i] : 0;
        for (size_t j = 0; j < d; j++)
            expected[i] =
                fmaf(components[i / slice * d + j], basis[i % slice * d + j], expected[i]);
    }
    for (weft_simd_t level = WEFT_SIMD_SCALAR; level <= WEFT_SIMD_AVX512; level++)
        for (int in_place = 0; in_place <= with_mean; in_place++) {
            weft_simd_limit(level);
            memset(values, 0x55, count * sizeof *values);
            if (in_place)
                memcpy(values, mean, count * sizeof *values);
            cr_assert_eq(
                weft_reconstruct(&projection, components, count, in_place ? values : mean, values),
                WEFT_OK, "%s", weft_error_text());
            cr_assert_eq(memcmp(values, expected, count * sizeof *values), 0,
                         "%s: K %zu, d %zu, count %zu", weft_simd_name(level), slice, d, count);
        }
    weft_simd_limit(WEFT_SIMD_AVX512);
    free(basis);
    free(components);
    free(mean);
    free(expected);
    free(values);
}

static void try_correlate(size_t slice, size_t d, size_t rows)
{
    float *values = numbers(rows * slice);
    float *components = numbers(rows * d);
    float *expected = numbers(slice * d);
    float *out = numbers(slice * d);

    for (size_t k = 0; k < slice; k++)
        for (size_t j = 0; j < d; j++) {
            expected[k * d + j] = 0;
            for (size_t m = 0; m < rows; m++)
                expected[k * d + j] =
                    fmaf(values[m * slice + k], components[m * d + j], expected[k * d + j]);
        }
    for (weft_simd_t level = WEFT_SIMD_SCALAR; level <= WEFT_SIMD_AVX512; level++) {
        weft_simd_limit(level);
        memset(out, 0x55, slice * d * sizeof *out);
        cr_assert_eq(weft_correlate(values, rows, slice, components, d, out), WEFT_OK, "%s",
                     weft_error_text());
        cr_assert_eq(memcmp(out, expected, slice * d * sizeof *out), 0,
                     "%s: K %zu, d %zu, rows %zu", weft_simd_name(level), slice, d, rows);
    }
    weft_simd_limit(WEFT_SIMD_AVX512);
    free(values);
    free(components);
    free(expected);
    free(out);
}

/* Around widths of registers, blocks of slices, of components, of the basis. */
static const size_t few[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 48, 49, 65, 99};

Test(project, defined_bits_at_every_level)
{
    state = 1;
    for (size_t s = 1; s <= 20; s += s < 10 ? SWEPT(1, 4) : 5)
        for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
            const size_t d = few[i];

            try_project(d + 3, d, s * (d + 3), s % 2 == 0);
            try_project(d > 270 ? d : 270, d, s * 270, s % 2);
            try_project(100, d, s * 100 - 37, s % 3 == 0);
            try_reconstruct(d + 3, d, s * (d + 3), s % 2 == 0);
            try_reconstruct(130, d, s * 130 - 17, s % 2);
            try_correlate(d + 3, d, s);
            try_correlate(70, d, 3 * s);
        }
}

Test(project, defined_bits_of_large_ones)
{
    state = 2;
    try_project(3000, 2, 3000 * 11 - 5, 1);
    try_project(100000, 1, 100000, 0);
    try_project(1030, SWEPT(200, 100), 1030 * 7, 1);
    try_project(60, 60, 60 * SWEPT(700, 90), 1);
    try_project(5, 5, 5 * 3000 + 2, 1);
    try_reconstruct(2000, 3, 2000 * 11 - 5, 1);
    try_reconstruct(600, SWEPT(300, 150), 600 * 5, 1);
    try_reconstruct(60, 60, 60 * SWEPT(700, 90), 1);
    try_correlate(3000, 2, 40);
    try_correlate(300, SWEPT(150, 100), 300);
}
