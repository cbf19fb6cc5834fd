/* SPDX-License-Identifier: BSD-3-Clause */
/* What projections promise: bounds on rounding, linearity, exactness; cuts; orthonormal columns;
 * misuse. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "ops/project.h"

static const double u = 0x1p-24;

static uint64_t state;

static void seed(uint64_t value)
{
    state = value;
    cr_log_info("seed %llu", (unsigned long long)value);
}

static uint32_t draw_bits(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 32);
}

static float draw(void)
{
    return (float)((double)(int32_t)draw_bits() * 0x1p-31);
}

/* Uniform numbers times powers of two up to 2^spread. */
static float *numbers(size_t count, int spread)
{
    float *all = malloc((count + 1) * sizeof *all);

    cr_assert_not_null(all);
    for (size_t i = 0; i < count; i++)
        all[i] = ldexpf(draw(), spread ? (int)(draw_bits() % (unsigned)spread) : 0);
    return all;
}

static struct weft_projection projection_of(const float *basis, size_t slice, size_t d)
{
    return (struct weft_projection){.struct_size = sizeof(struct weft_projection),
                                    .slice = slice,
                                    .components = d,
                                    .basis = basis};
}

static double gamma_of(size_t n)
{
    return (double)n * u / (1 - (double)n * u);
}

/* ---- bounds of weft/compress.h ---- */

static void bound_project(size_t slice, size_t d, size_t slices, int spread)
{
    const size_t roundings = d < 8 ? slice / 16 + 5 : slice;
    float *basis = numbers(slice * d, spread), *values = numbers(slices * slice, spread);
    float *out = numbers(slices * d, 0);
    const struct weft_projection projection = projection_of(basis, slice, d);

    cr_assert_eq(weft_project(&projection, values, slices * slice, NULL, 0, out, NULL), WEFT_OK);
    for (size_t i = 0; i < slices * d; i++) {
        double sum = 0, magnitude = 0;

        for (size_t k = 0; k < slice; k++) {
            const double product = (double)values[i / d * slice + k] * (double)basis[k * d + i % d];

            sum += product;
            magnitude += fabs(product);
        }
        cr_assert_leq(fabs((double)out[i] - sum), (gamma_of(roundings) + 1e-13) * magnitude,
                      "K %zu, d %zu, component %zu", slice, d, i);
    }
    free(basis);
    free(values);
    free(out);
}

static void bound_reconstruct(size_t slice, size_t d, size_t slices, int spread)
{
    float *basis = numbers(slice * d, spread), *components = numbers(slices * d, spread);
    float *mean = numbers(slices * slice, spread), *values = numbers(slices * slice, 0);
    const struct weft_projection projection = projection_of(basis, slice, d);

    cr_assert_eq(weft_reconstruct(&projection, components, slices * slice, mean, values), WEFT_OK);
    for (size_t i = 0; i < slices * slice; i++) {
        double sum = (double)mean[i], magnitude = fabs((double)mean[i]);

        for (size_t j = 0; j < d; j++) {
            const double product =
                (double)components[i / slice * d + j] * (double)basis[i % slice * d + j];

            sum += product;
            magnitude += fabs(product);
        }
        cr_assert_leq(fabs((double)values[i] - sum), (gamma_of(d) + 1e-13) * magnitude);
    }
    free(basis);
    free(components);
    free(mean);
    free(values);
}

Test(project_bounds, rounding)
{
    seed(11);
    for (int spread = 0; spread <= 40; spread += 20) {
        bound_project(1, 1, 3, spread);
        bound_project(700, 3, 5, spread);
        bound_project(5000, 7, 2, spread);
        bound_project(700, 30, 5, spread);
        bound_project(3000, 99, 2, spread);
        bound_reconstruct(70, 3, 5, spread);
        bound_reconstruct(300, 200, 5, spread);
    }
}

/* ---- linearity and exactness ---- */

/* Both are within K + P roundings of the exact projection of the exact sum. */
static void commute(size_t slice, size_t d, size_t ranks)
{
    float *basis = numbers(slice * d, 0), *sum = calloc(slice, sizeof *sum);
    float *of_sum = numbers(d, 0), *part = numbers(d, 0), *added = calloc(d + 1, sizeof *added);
    double *magnitude = calloc(d + 1, sizeof *magnitude);
    const struct weft_projection projection = projection_of(basis, slice, d);

    cr_assert(sum && added && magnitude);
    for (size_t r = 0; r < ranks; r++) {
        float *values = numbers(slice, 10);

        cr_assert_eq(weft_project(&projection, values, slice, NULL, 0, part, NULL), WEFT_OK);
        for (size_t j = 0; j < d; j++)
            added[j] += part[j];
        for (size_t k = 0; k < slice; k++) {
            sum[k] += values[k];
            for (size_t j = 0; j < d; j++)
                magnitude[j] += fabs((double)values[k] * (double)basis[k * d + j]);
        }
        free(values);
    }
    cr_assert_eq(weft_project(&projection, sum, slice, NULL, 0, of_sum, NULL), WEFT_OK);
    for (size_t j = 0; j < d; j++)
        cr_expect_leq(fabs((double)added[j] - (double)of_sum[j]),
                      2 * gamma_of(slice + ranks) * magnitude[j], "K %zu, d %zu, P %zu", slice, d,
                      ranks);
    free(basis);
    free(sum);
    free(of_sum);
    free(part);
    free(added);
    free(magnitude);
}

Test(project_bounds, projection_commutes_with_the_sum)
{
    static const size_t ranks[] = {1, 2, 3, 5, 7, 8, 13};

    seed(12);
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        commute(300, 20, ranks[i]);
        commute(1000, 3, ranks[i]);
    }
}

static double norm_of(const float *values, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

/* With an orthonormal basis of all K components nothing is lost but 8 K roundings of the norm. */
Test(project_bounds, all_components_give_back_the_values)
{
    seed(13);
    for (size_t slice = 1; slice <= 130; slice += slice < 10 ? 1 : 24) {
        float *basis = numbers(slice * slice, 0), *values = numbers(slice, 0);
        float *mean = numbers(slice, 0), *out = numbers(slice, 0), *back = numbers(slice, 0);
        struct weft_projection_squares squares = {1, 2, 3};
        size_t rank;

        cr_assert_eq(weft_orthonormalise(basis, slice, slice, &rank), WEFT_OK);
        cr_assert_eq(rank, slice);
        const struct weft_projection projection = projection_of(basis, slice, slice);

        cr_assert_eq(weft_project(&projection, values, slice, mean, 1, out, &squares), WEFT_OK);
        cr_assert_eq(weft_reconstruct(&projection, out, slice, mean, back), WEFT_OK);
        const double norm = norm_of(values, slice) + norm_of(mean, slice);

        cr_expect_float_eq(squares.values - 1, pow(norm_of(values, slice), 2), 1e-12 * norm * norm);
        cr_expect_float_eq(squares.centred - 2, squares.kept - 3,
                           8 * (double)slice * u * norm * norm);
        cr_expect_float_eq(squares.kept - 3, pow(norm_of(out, slice), 2), 1e-12 * norm * norm);
        for (size_t k = 0; k < slice; k++)
            back[k] -= values[k];
        cr_expect_leq(norm_of(back, slice), 8 * (double)slice * u * norm);
        free(basis);
        free(values);
        free(mean);
        free(out);
        free(back);
    }
}

/* ---- parts of slices, alignment, cuts ---- */

/* A last slice that is shorter gives what zeros give; memory begins at any float. */
Test(project_bounds, short_slices_are_as_if_zeros_followed)
{
    seed(14);
    for (size_t d = 0; d <= 40; d += d < 9 ? 1 : 7)
        for (size_t count = 0; count < 260; count += 13) {
            const size_t slice = 100, slices = (count + slice - 1) / slice;
            float *basis = numbers(slice * d, 0), *values = calloc(401, sizeof *values);
            float *out = numbers(slices * d + 2, 0), *padded = numbers(4 * d, 0);
            float *back = numbers(count + 2, 0), *whole = numbers(400, 0);
            const struct weft_projection projection = projection_of(basis, slice, d);

            cr_assert_not_null(values);
            for (size_t i = 0; i < count; i++)
                values[i + 1] = draw();
            out[slices * d + 1] = back[count + 1] = 77;
            cr_assert_eq(weft_project(&projection, values + 1, count, NULL, 0, out + 1, NULL),
                         WEFT_OK);
            cr_assert_eq(weft_project(&projection, values + 1, 400, NULL, 0, padded, NULL),
                         WEFT_OK);
            for (size_t i = 0; i < slices * d; i++)
                cr_assert_eq(out[i + 1], padded[i]);
            cr_assert_eq(weft_reconstruct(&projection, out + 1, count, NULL, back + 1), WEFT_OK);
            cr_assert_eq(weft_reconstruct(&projection, padded, 400, NULL, whole), WEFT_OK);
            for (size_t i = 0; i < count; i++)
                cr_assert_eq(back[i + 1], whole[i]);
            cr_assert_eq(out[slices * d + 1], 77);
            cr_assert_eq(back[count + 1], 77);
            free(basis);
            free(values);
            free(out);
            free(padded);
            free(back);
            free(whole);
        }
}

/* Cuts into slices and components, and into elements, change no bit. */
static void try_cut(size_t slice, size_t d, size_t slices, size_t cut)
{
    float *basis = numbers(slice * d, 0), *values = numbers(slices * slice, 0);
    float *mean = numbers(slices * slice, 0), *out = numbers(slices * d, 0);
    float *pieces = numbers(slices * d, 0), *back = numbers(slices * slice, 0);
    float *parts = numbers(slices * slice, 0), *product = numbers(slice * d, 0);
    float *blocks = numbers(slice * d, 0);
    const struct weft_projection projection = projection_of(basis, slice, d);

    cr_assert_eq(weft_project(&projection, values, slices * slice, mean, 0.5, out, NULL), WEFT_OK);
    for (size_t j = 0; j < d; j += cut)
        for (size_t m = 0; m < slices; m++)
            weft__project(&(struct weft__projecting){.basis = basis + j,
                                                     .slice = slice,
                                                     .components = d - j < cut ? d - j : cut,
                                                     .stride = d,
                                                     .values = values + m * slice,
                                                     .count = slice,
                                                     .mean = mean + m * slice,
                                                     .share = 0.5F,
                                                     .out = pieces + m * d + j});
    cr_expect_eq(memcmp(out, pieces, slices * d * sizeof *out), 0);
    cr_assert_eq(weft_reconstruct(&projection, out, slices * slice, mean, back), WEFT_OK);
    cr_assert_eq(weft_correlate(values, slices, slice, out, d, product), WEFT_OK);
    for (size_t k = 0; k < slice; k += cut) {
        const size_t wide = slice - k < cut ? slice - k : cut;

        weft__reconstruct(&(struct weft__reconstructing){.basis = basis + k * d,
                                                         .slice = wide,
                                                         .components = d,
                                                         .in = out,
                                                         .count = slices * wide,
                                                         .stride = slice,
                                                         .mean = mean + k,
                                                         .values = parts + k});
        weft__correlate(&(struct weft__correlating){.values = values + k,
                                                    .rows = slices,
                                                    .slice = wide,
                                                    .stride = slice,
                                                    .in = out,
                                                    .components = d,
                                                    .out = blocks + k * d});
    }
    cr_expect_eq(memcmp(back, parts, slices * slice * sizeof *back), 0);
    cr_expect_eq(memcmp(product, blocks, slice * d * sizeof *product), 0);
    free(basis);
    free(values);
    free(mean);
    free(out);
    free(pieces);
    free(back);
    free(parts);
    free(product);
    free(blocks);
}

Test(project_bounds, cuts_change_nothing)
{
    seed(15);
    try_cut(600, 40, 11, 16);
    try_cut(600, 40, 11, 7);
    try_cut(600, 5, 11, 2);
    try_cut(70, 70, 3, 33);
}

/* ---- orthonormal columns ---- */

/* Columns are orthonormal or 0: |q_i q_j - delta_ij| <= 4 u. */
static void expect_orthonormal(const float *matrix, size_t rows, size_t columns, size_t rank)
{
    size_t found = 0;

    for (size_t i = 0; i < columns; i++)
        for (size_t j = 0; j <= i; j++) {
            double sum = 0;

            for (size_t k = 0; k < rows; k++)
                sum += (double)matrix[k * columns + i] * (double)matrix[k * columns + j];
            if (i == j && sum != 0) {
                found++;
                sum -= 1;
            }
            cr_assert_leq(fabs(sum), 4 * u, "%zu x %zu: columns %zu and %zu", rows, columns, j, i);
        }
    cr_assert_eq(found, rank, "%zu columns are not 0, expected %zu", found, rank);
}

Test(project_bounds, columns_become_orthonormal)
{
    static const size_t shapes[][2] = {{1, 1},   {5, 2},    {5, 5},   {5, 9},
                                       {512, 4}, {300, 99}, {40, 40}, {600, 260}};

    seed(16);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int spread = 0; spread <= 60; spread += 60) {
            const size_t rows = shapes[i][0], columns = shapes[i][1];
            float *matrix = numbers(rows * columns, spread);
            size_t rank = 99;

            cr_assert_eq(weft_orthonormalise(matrix, rows, columns, &rank), WEFT_OK);
            if (!spread)
                cr_expect_eq(rank, rows < columns ? rows : columns);
            expect_orthonormal(matrix, rows, columns, rank);
            free(matrix);
        }
}

Test(project_bounds, dependent_columns_become_zero)
{
    enum { ROWS = 200, COLUMNS = 6 };
    float *matrix;
    size_t rank;

    seed(17);
    matrix = numbers(ROWS * COLUMNS, 0);
    for (size_t k = 0; k < ROWS; k++) {
        float *row = matrix + k * COLUMNS;

        row[1] = 0;
        row[2] = 3 * row[0];
        row[4] = row[0] - 2 * row[3];
    }
    cr_assert_eq(weft_orthonormalise(matrix, ROWS, COLUMNS, &rank), WEFT_OK);
    cr_expect_eq(rank, 3);
    expect_orthonormal(matrix, ROWS, COLUMNS, 3);
    for (size_t k = 0; k < ROWS; k++)
        cr_assert(matrix[k * COLUMNS + 1] == 0 && matrix[k * COLUMNS + 2] == 0 &&
                  matrix[k * COLUMNS + 4] == 0);
    free(matrix);
}

Test(project_bounds, columns_of_any_magnitude)
{
    static const float scales[] = {1, 3e38F, 1e-38F, 1e-42F, 1e30F, 1e-30F};
    enum { ROWS = 50, COLUMNS = sizeof scales / sizeof scales[0] };
    float zeros[6] = {0};
    float *matrix;
    size_t rank;

    seed(18);
    matrix = numbers(ROWS * COLUMNS, 0);
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        matrix[i] *= scales[i % COLUMNS];
    cr_assert_eq(weft_orthonormalise(matrix, ROWS, COLUMNS, &rank), WEFT_OK);
    cr_expect_eq(rank, COLUMNS);
    expect_orthonormal(matrix, ROWS, COLUMNS, COLUMNS);
    free(matrix);
    cr_assert_eq(weft_orthonormalise(zeros, 3, 2, &rank), WEFT_OK);
    cr_expect_eq(rank, 0);
    for (size_t i = 0; i < 6; i++)
        cr_expect_eq(zeros[i], 0);
    cr_assert_eq(weft_orthonormalise((float[]){0x1p-149F}, 1, 1, &rank), WEFT_OK);
    cr_expect_eq(rank, 1);
}

Test(project_bounds, what_is_not_finite_is_refused)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    for (size_t i = 0; i < 3; i++) {
        float matrix[6] = {1, 2, 3, 4, bad[i], 6}, before[6];
        size_t rank = 99;

        memcpy(before, matrix, sizeof matrix);
        cr_expect_eq(weft_orthonormalise(matrix, 3, 2, &rank), WEFT_ERR_COMPUTE);
        cr_expect_eq(memcmp(matrix, before, sizeof matrix), 0);
        cr_expect_eq(rank, 99);
    }
}

/* ---- transposition, misuse ---- */

Test(project_bounds, transposition)
{
    seed(19);
    for (size_t rows = 0; rows < 70; rows += rows < 18 ? 1 : 17)
        for (size_t columns = 0; columns < 140; columns += columns < 18 ? 1 : 23) {
            float *from = numbers(rows * columns, 0), *to = numbers(rows * columns, 0);

            cr_assert_eq(weft_transpose(from, rows, columns, to), WEFT_OK);
            for (size_t i = 0; i < rows * columns; i++)
                cr_assert_eq(to[i % columns * rows + i / columns], from[i]);
            free(from);
            free(to);
        }
}

#define REFUSED(call, text)                                                                        \
    do {                                                                                           \
        cr_expect_eq((call), WEFT_ERR_INVALID);                                                    \
        cr_expect(strstr(weft_error_text(), (text)) != NULL, "%s", weft_error_text());             \
    } while (0)

Test(project_bounds, misuse_is_refused)
{
    float memory[64] = {0}, other[64] = {0}, out[64] = {0};
    struct weft_projection p = projection_of(memory, 4, 2);

    REFUSED(weft_project(NULL, other, 8, NULL, 0, out, NULL), "`projection`");
    REFUSED(weft_project(&p, NULL, 8, NULL, 0, out, NULL), "`values` is NULL");
    REFUSED(weft_project(&p, other, 8, NULL, 0, NULL, NULL), "`out` is NULL");
    REFUSED(weft_project(&p, other, 8, other, (double)NAN, out, NULL), "`share`");
    REFUSED(weft_project(&p, other, 8, other, 1e300, out, NULL), "`share`");
    cr_expect_eq(weft_project(&p, other, 8, NULL, (double)NAN, out, NULL), WEFT_OK);
    REFUSED(weft_project(&p, other, 8, NULL, 0, other + 7, NULL), "`out` and `values` overlap");
    REFUSED(weft_project(&p, other, 8, NULL, 0, memory + 7, NULL), "`out` and `basis` overlap");
    REFUSED(weft_project(&p, other, SIZE_MAX / 2, NULL, 0, out, NULL), "`count`");
    REFUSED(weft_reconstruct(&p, other, 8, memory, memory), "`values` and `basis` overlap");
    REFUSED(weft_reconstruct(&p, other, 8, out + 1, out), "`values` and `mean` overlap");
    cr_expect_eq(weft_reconstruct(&p, other, 8, out, out), WEFT_OK);
    p.basis = NULL;
    REFUSED(weft_project(&p, other, 8, NULL, 0, out, NULL), "`basis` is NULL");
    cr_expect_eq(weft_project(&p, NULL, 0, NULL, 0, NULL, NULL), WEFT_OK);
    p.components = 0;
    cr_expect_eq(weft_project(&p, other, 8, NULL, 0, NULL, NULL), WEFT_OK);
    p = projection_of(memory, 0, 0);
    REFUSED(weft_project(&p, other, 8, NULL, 0, out, NULL), "`slice`");
    p = projection_of(memory, 4, 5);
    REFUSED(weft_project(&p, other, 8, NULL, 0, out, NULL), "`components`");
    p = projection_of(memory, SIZE_MAX / 8, 3);
    REFUSED(weft_project(&p, other, 8, NULL, 0, out, NULL), "more floats than memory can hold");
    REFUSED(weft_correlate(memory, 2, 0, other, 2, out), "`slice`");
    REFUSED(weft_correlate(memory, SIZE_MAX / 2, 3, other, 2, out), "`rows`");
    REFUSED(weft_correlate(memory, 2, 4, other, 2, memory + 7), "`out` and `values` overlap");
    REFUSED(weft_orthonormalise(NULL, 2, 2, NULL), "`matrix` is NULL");
    REFUSED(weft_orthonormalise(memory, SIZE_MAX, 2, NULL), "`rows`");
    REFUSED(weft_transpose(memory, 2, 3, memory + 5), "`to` and `from` overlap");
    memset(out, 0x55, sizeof out);
    cr_expect_eq(weft_correlate(NULL, 0, 4, NULL, 2, out), WEFT_OK);
    for (size_t i = 0; i < 8; i++)
        cr_expect_eq(out[i], 0);
}

/* The last of the columns is a sum of two others wherever there are enough. */
static void try_levels(size_t rows, size_t columns)
{
    float *matrix = numbers(rows * columns, 0), *first = numbers(rows * columns, 0);
    float *out = numbers(rows * columns, 0);
    size_t expected = 0;

    for (size_t k = 0; k < rows && columns > 2; k++)
        matrix[k * columns + columns - 1] = matrix[k * columns] + matrix[k * columns + 1];
    for (weft_simd_t level = WEFT_SIMD_SCALAR; level <= WEFT_SIMD_AVX512; level++) {
        size_t rank;

        weft_simd_limit(level);
        memcpy(out, matrix, rows * columns * sizeof *out);
        cr_assert_eq(weft_orthonormalise(out, rows, columns, &rank), WEFT_OK);
        if (level == WEFT_SIMD_SCALAR) {
            memcpy(first, out, rows * columns * sizeof *out);
            expected = rank;
        }
        cr_expect_eq(rank, expected, "%s: %zu x %zu", weft_simd_name(level), rows, columns);
        cr_expect_eq(memcmp(out, first, rows * columns * sizeof *out), 0, "%s: %zu x %zu",
                     weft_simd_name(level), rows, columns);
    }
    if (columns > 2)
        cr_expect_lt(expected, columns);
    weft_simd_limit(WEFT_SIMD_AVX512);
    free(matrix);
    free(first);
    free(out);
}

Test(project_bounds, orthonormal_columns_are_the_same_bits_at_every_level)
{
    static const size_t rows[] = {1, 3, 7, 8, 16, 17, 33, 64, 200};
    static const size_t columns[] = {1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 18, 25, 33};

    seed(29);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
            try_levels(rows[r], columns[c]);
}
