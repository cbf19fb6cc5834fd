/* SPDX-License-Identifier: BSD-3-Clause */
/* Merging and adding sparse vectors, against dense vectors and a sort. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "ops/kernels.h"
#include "support/sweep.h"

enum { RANGE = 4000, GUARD = 0x5a };

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ---- lists ---- */

static void put_value(struct weft_sparse *list, size_t i, double value)
{
    char *to = (char *)list->values + i * weft_dtype_size(list->dtype);
    const float narrow = (float)value;
    const uint16_t half =
        list->dtype == WEFT_F16 ? weft__f32_to_f16(narrow) : weft__f32_to_bf16(narrow);

    memcpy(to,
           list->dtype == WEFT_F64   ? (const void *)&value
           : list->dtype == WEFT_F32 ? (const void *)&narrow
                                     : &half,
           weft_dtype_size(list->dtype));
}

static double value_at(const void *values, weft_dtype_t dtype, size_t i)
{
    const char *from = (const char *)values + i * weft_dtype_size(dtype);
    uint16_t half;
    float narrow;
    double value;

    memcpy(dtype == WEFT_F64   ? (void *)&value
           : dtype == WEFT_F32 ? (void *)&narrow
                               : &half,
           from, weft_dtype_size(dtype));
    return dtype == WEFT_F64   ? value
           : dtype == WEFT_F32 ? (double)narrow
           : dtype == WEFT_F16 ? (double)weft__f16_to_f32(half)
                               : (double)weft__bf16_to_f32(half);
}

static uint64_t index_at(const struct weft_sparse *list, size_t i)
{
    uint32_t narrow;
    uint64_t wide;

    if (list->index_dtype == WEFT_U64) {
        memcpy(&wide, (const char *)list->indices + 8 * i, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)list->indices + 4 * i, sizeof narrow);
    return narrow;
}

static void put_index(struct weft_sparse *list, size_t i, uint64_t index)
{
    const uint32_t narrow = (uint32_t)index;

    if (list->index_dtype == WEFT_U64)
        memcpy((char *)list->indices + 8 * i, &index, sizeof index);
    else
        memcpy((char *)list->indices + 4 * i, &narrow, sizeof narrow);
}

/* Room for `capacity` pairs, one byte off their alignment if `odd`, with a guard behind. */
static struct weft_sparse make_list(weft_dtype_t dtype, weft_dtype_t index_dtype, size_t capacity,
                                    int odd)
{
    struct weft_sparse list = {.capacity = capacity, .index_dtype = index_dtype, .dtype = dtype};
    char *indices = malloc(capacity * weft_dtype_size(index_dtype) + 9);
    char *values = malloc(capacity * weft_dtype_size(dtype) + 9);

    cr_assert(indices && values);
    list.indices = indices + odd;
    list.values = values + odd;
    memset((char *)list.indices + capacity * weft_dtype_size(index_dtype), GUARD, 8);
    memset((char *)list.values + capacity * weft_dtype_size(dtype), GUARD, 8);
    return list;
}

static void free_list(struct weft_sparse *list, int odd)
{
    static const char guard[] = {GUARD, GUARD, GUARD, GUARD, GUARD, GUARD, GUARD, GUARD};
    const char *indices_end =
        (char *)list->indices + list->capacity * weft_dtype_size(list->index_dtype);
    const char *values_end = (char *)list->values + list->capacity * weft_dtype_size(list->dtype);

    cr_expect_eq(memcmp(indices_end, guard, 8), 0);
    cr_expect_eq(memcmp(values_end, guard, 8), 0);
    free((char *)list->indices - odd);
    free((char *)list->values - odd);
}

enum kind {
    RANDOM,
    SAME_INDICES,
    DISJOINT,
    CANCELLING,
    TIES,      /* one magnitude, both signs, in sums three */
    EQUAL,     /* the very same value everywhere */
    ZEROS,     /* of both signs */
    SUBNORMAL, /* numbers as any other */
    INFINITE,  /* an infinity now and then, of one sign at each index */
    KINDS
};

/* The least number above 0. */
static double least_of(weft_dtype_t dtype)
{
    return dtype == WEFT_F16    ? 0x1p-24
           : dtype == WEFT_BF16 ? 0x1p-133
           : dtype == WEFT_F32  ? 0x1p-149
                                : 0x1p-1074;
}

static double value_of_kind(enum kind kind, weft_dtype_t dtype, size_t i, uint64_t bits)
{
    const double sign = bits >> 40 & 1 ? -1 : 1;

    switch (kind) {
    case TIES:
        return 2 * sign;
    case EQUAL:
        return -0.375;
    case ZEROS:
        return 0 * sign;
    case SUBNORMAL:
        return sign * (double)(bits % 60) * least_of(dtype);
    case INFINITE:
        return bits % 7 ? (double)(bits % 100) - 50 : i % 2 ? -(double)INFINITY : (double)INFINITY;
    default:
        return (double)(int64_t)(bits % 2001) / 64 - 15;
    }
}

/* `count` distinct indices below RANGE (scaled beyond 32 bits if they are wide), and values. */
static void fill(struct weft_sparse *list, size_t count, enum kind kind, int which, uint64_t seed)
{
    uint64_t state = seed + (kind == SAME_INDICES || kind == CANCELLING ? 0 : (unsigned)which);
    const uint64_t scale = list->index_dtype == WEFT_U64 ? UINT64_C(0x300000001) : 1;
    uint64_t values = seed;
    size_t n = 0;

    for (size_t i = 0; i < RANGE && n < count; i++) {
        if (kind == DISJOINT && (int)(i % 2) != which)
            continue;
        if (next_random(&state) % (RANGE - i) >= (count - n) * (kind == DISJOINT ? 2 : 1))
            continue;
        const double value = value_of_kind(kind, list->dtype, i, next_random(&values));

        put_index(list, n, i * scale);
        put_value(list, n++, kind == CANCELLING && which == 1 ? -value : value);
    }
    list->count = n;
}

/* ---- the sum and its order, slowly ---- */

struct entry {
    uint64_t index;
    double value;
};

static int by_index(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;

    return (p->index > q->index) - (p->index < q->index);
}

static int best_first(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;

    if (fabs(p->value) != fabs(q->value))
        return fabs(p->value) > fabs(q->value) ? -1 : 1;
    return by_index(a, b);
}

static double rounded_sum(weft_dtype_t dtype, double x, double y)
{
    const float sum = (float)x + (float)y;

    switch (dtype) {
    case WEFT_F64:
        return x + y;
    case WEFT_F32:
        return (double)sum;
    case WEFT_F16:
        return (double)weft__f16_to_f32(weft__f32_to_f16(sum));
    default:
        return (double)weft__bf16_to_f32(weft__f32_to_bf16(sum));
    }
}

static size_t plain_sum(const struct weft_sparse *a, const struct weft_sparse *b, struct entry *sum)
{
    size_t n = 0;

    for (size_t i = 0; i < a->count; i++)
        sum[n++] = (struct entry){index_at(a, i), value_at(a->values, a->dtype, i)};
    for (size_t j = 0; j < b->count; j++) {
        const double y = value_at(b->values, b->dtype, j);
        size_t i = 0;

        while (i < a->count && index_at(a, i) != index_at(b, j))
            i++;
        if (i < a->count)
            sum[i].value = rounded_sum(a->dtype, sum[i].value, y);
        else
            sum[n++] = (struct entry){index_at(b, j), y};
    }
    return n;
}

static void expect_list(const struct weft_sparse *list, const struct entry *entries, size_t count,
                        const char *what)
{
    cr_assert_eq(list->count, count, "%s: %zu pairs, expected %zu", what, list->count, count);
    for (size_t i = 0; i < count; i++) {
        const double value = value_at(list->values, list->dtype, i);

        cr_assert(index_at(list, i) == entries[i].index && value == entries[i].value &&
                      !signbit(value) == !signbit(entries[i].value),
                  "%s %zu: (%" PRIu64 ", %g), expected (%" PRIu64 ", %g)", what, i,
                  index_at(list, i), value, entries[i].index, entries[i].value);
    }
}

static void try_merge(const struct weft_sparse *a, const struct weft_sparse *b, size_t k)
{
    const size_t all = a->count + b->count;
    struct entry *sum = malloc((all + 1) * sizeof *sum);
    const size_t n = plain_sum(a, b, sum);
    const size_t kept = k < n ? k : n;
    struct weft_sparse out = make_list(a->dtype, a->index_dtype, k < all ? k : all, 1);
    struct weft_sparse other = make_list(a->dtype, a->index_dtype, k < all ? k : all, 0);
    struct weft_sparse dropped = make_list(a->dtype, a->index_dtype, k < all ? all - k : 0, 1);
    struct weft_sparse_report report = {.struct_size = sizeof report};

    qsort(sum, n, sizeof *sum, best_first);
    cr_assert_eq(weft_sparse_merge(NULL, a, b, k, &out, &dropped, &report), WEFT_OK, "%s",
                 weft_error_text());
    cr_expect_eq(report.count, kept);
    cr_expect(report.threshold == (kept > 0 ? fabs(sum[kept - 1].value) : 0));
    qsort(sum, kept, sizeof *sum, by_index);
    qsort(sum + kept, n - kept, sizeof *sum, by_index);
    expect_list(&out, sum, kept, "kept");
    expect_list(&dropped, sum + kept, n - kept, "dropped");
    cr_assert_eq(weft_sparse_merge(NULL, b, a, k, &other, NULL, NULL), WEFT_OK);
    cr_expect_eq(memcmp(out.indices, other.indices, kept * weft_dtype_size(a->index_dtype)), 0);
    cr_expect_eq(memcmp(out.values, other.values, kept * weft_dtype_size(a->dtype)), 0);
    free_list(&dropped, 1);
    free_list(&other, 0);
    free_list(&out, 1);
    free(sum);
}

static void merge_all(weft_dtype_t dtype, weft_dtype_t index_dtype)
{
    static const size_t counts[][2] = {{0, 0},  {1, 0},   {0, 1},     {1, 1},     {5, 3},
                                       {64, 1}, {100, 7}, {200, 200}, {1000, 999}};

    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = SWEPT(0, kind % 3); i < COUNT_OF(counts); i += SWEPT(1, 3)) {
            const size_t all = counts[i][0] + counts[i][1];
            const size_t ks[] = {0, 1, counts[i][0], all / 2, all, all + 3};
            struct weft_sparse a = make_list(dtype, index_dtype, counts[i][0], 0);
            struct weft_sparse b = make_list(dtype, index_dtype, counts[i][1], 1);

            fill(&a, counts[i][0], (enum kind)kind, 0, 10 * i);
            fill(&b, counts[i][1], (enum kind)kind, 1, 10 * i);
            for (size_t j = 0; j < COUNT_OF(ks); j++)
                try_merge(&a, &b, ks[j]);
            free_list(&a, 0);
            free_list(&b, 1);
        }
    }
}

Test(sparse, a_merge_keeps_the_best_of_the_sum)
{
    for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
        merge_all(dtypes[d], WEFT_U32);
        merge_all(dtypes[d], WEFT_U64);
    }
}

/* The level that there is without a limit is that of the test before. */
Test(sparse, a_merge_on_every_level_gives_the_same)
{
    for (int level = 0; level < (int)WEFT_SIMD_AVX512; level++) {
        if (weft_simd_limit((weft_simd_t)level) != (weft_simd_t)level)
            continue;
        for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
            merge_all(dtypes[d], WEFT_U32);
            merge_all(dtypes[d], WEFT_U64);
        }
    }
}

/* The output may be an input, and no memory is allocated with a workspace. */
Test(sparse, a_merge_into_an_input)
{
    enum { N = 500 };
    struct weft_sparse a = make_list(WEFT_F32, WEFT_U32, N, 0);
    struct weft_sparse b = make_list(WEFT_F32, WEFT_U32, N, 0);
    struct weft_sparse out = make_list(WEFT_F32, WEFT_U32, N, 0);
    struct weft_sparse dropped = make_list(WEFT_F32, WEFT_U32, N, 0);
    struct weft_sparse_options options;
    char *memory;

    weft_sparse_options_init(&options);
    options.workspace_bytes = weft_sparse_merge_workspace(WEFT_U32, WEFT_F32, 2 * N);
    memory = malloc(options.workspace_bytes + 8);
    memset(memory + options.workspace_bytes, GUARD, 8);
    options.workspace = memory;
    fill(&a, N, RANDOM, 0, 1);
    fill(&b, N, RANDOM, 1, 1);
    cr_assert_eq(weft_sparse_merge(NULL, &a, &b, N, &out, &dropped, NULL), WEFT_OK);
    cr_assert_eq(weft_sparse_merge(&options, &a, &b, N, &a, &b, NULL), WEFT_OK);
    cr_assert_eq(a.count, N);
    cr_assert_eq(b.count, dropped.count);
    cr_expect_eq(memcmp(a.indices, out.indices, 4 * N), 0);
    cr_expect_eq(memcmp(a.values, out.values, 4 * N), 0);
    cr_expect_eq(memcmp(b.indices, dropped.indices, 4 * b.count), 0);
    for (int i = 0; i < 8; i++)
        cr_expect_eq(memory[options.workspace_bytes + (size_t)i], GUARD);
    free(memory);
    free_list(&a, 0);
    free_list(&b, 0);
    free_list(&out, 0);
    free_list(&dropped, 0);
}

/* a: inf 1 NaN 8 -, b: -inf 1 1 - NaN: NaNs are made, read, and in one list alone. */
static void merge_nans(weft_dtype_t dtype, weft_dtype_t index_dtype)
{
    const double x[] = {(double)INFINITY, 1, (double)NAN, 8};
    const double y[] = {-(double)INFINITY, 1, 1, (double)NAN};
    const uint64_t a_at[] = {1, 2, 3, 5}, b_at[] = {1, 2, 3, 6};
    struct weft_sparse a = make_list(dtype, index_dtype, 4, 1);
    struct weft_sparse b = make_list(dtype, index_dtype, 4, 0);
    struct weft_sparse out = make_list(dtype, index_dtype, 5, 1);
    struct weft_sparse dropped = make_list(dtype, index_dtype, 6, 0);
    const struct entry kept[] = {{2, 2}, {5, 8}}, left[] = {{1, 0}, {3, 0}, {6, 0}};
    struct weft_sparse_options options;
    struct weft_sparse_report report = {.struct_size = sizeof report};

    for (size_t i = 0; i < 4; i++) {
        put_index(&a, i, a_at[i]);
        put_value(&a, i, x[i]);
        put_index(&b, i, b_at[i]);
        put_value(&b, i, y[i]);
    }
    a.count = b.count = 4;
    out.count = 77;
    weft_sparse_options_init(&options);
    for (size_t k = 0; k < 6; k++) {
        cr_expect_eq(weft_sparse_merge(&options, &a, &b, k, &out, NULL, &report), WEFT_ERR_COMPUTE);
        cr_expect_eq(report.nans, 3);
        cr_expect_eq(out.count, 77);
    }
    options.nan = WEFT_NAN_ZERO;
    cr_assert_eq(weft_sparse_merge(&options, &a, &b, 2, &out, &dropped, &report), WEFT_OK, "%s",
                 weft_error_text());
    cr_expect_eq(report.nans, 3);
    expect_list(&out, kept, 2, "kept");
    expect_list(&dropped, left, 3, "dropped");
    free_list(&a, 1);
    free_list(&b, 0);
    free_list(&out, 1);
    free_list(&dropped, 0);
}

Test(sparse, a_merge_and_nans)
{
    for (int level = (int)WEFT_SIMD_AVX512; level >= 0; level--) {
        if (weft_simd_limit((weft_simd_t)level) != (weft_simd_t)level)
            continue;
        for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
            merge_nans(dtypes[d], WEFT_U32);
            merge_nans(dtypes[d], WEFT_U64);
        }
    }
}

Test(sparse, misuse_of_a_merge_is_named)
{
    uint32_t indices[] = {1, 3, 3, 5};
    float values[] = {1, 2, 3, 4}, z[8];
    uint32_t places[8];
    struct weft_sparse a = {indices, values, 2, 2, WEFT_U32, WEFT_F32};
    struct weft_sparse bad = {indices, values, 4, 4, WEFT_U32, WEFT_F32};
    struct weft_sparse out = {places, z, 0, 8, WEFT_U32, WEFT_F32};

    cr_expect_eq(weft_sparse_merge(NULL, &a, &bad, 2, &out, NULL, NULL), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "index 2 of b"), "%s", weft_error_text());
    out.capacity = 1;
    cr_expect_eq(weft_sparse_merge(NULL, &a, &a, 2, &out, NULL, NULL), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "capacity"));
    out.capacity = 8;
    out.dtype = WEFT_F64;
    cr_expect_eq(weft_sparse_merge(NULL, &a, &a, 2, &out, NULL, NULL), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "f64"));
    cr_expect_eq(weft_sparse_merge(NULL, &a, NULL, 2, &out, NULL, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_sparse_merge_workspace(WEFT_U32, WEFT_I8, 2), 0);
    cr_expect_eq(weft_sparse_merge_workspace(WEFT_I32, WEFT_F32, 2), 0);
    cr_expect_eq(weft_sparse_merge_workspace(WEFT_U32, WEFT_F32, SIZE_MAX), SIZE_MAX);
}

/* ---- to dense vectors ---- */

Test(sparse, scatter_add)
{
    for (size_t d = 0; d < 2 * COUNT_OF(dtypes); d++) {
        const weft_dtype_t dtype = dtypes[d / 2];
        const size_t size = weft_dtype_size(dtype);
        uint64_t wide[] = {0, 7, 3, 7};
        uint32_t narrow[] = {0, 7, 3, 7};
        char values[4 * 8], dense[8 * 8];
        struct weft_sparse list = {d % 2 ? (void *)wide : narrow, values, 4, 4,
                                   d % 2 ? WEFT_U64 : WEFT_U32,   dtype};
        struct weft_sparse all = {NULL, dense, 8, 8, WEFT_U32, dtype};
        const double expected[] = {1 - 0.5, 1, 1, 1 + 1.5, 1, 1, 1, 1 + 1 - 4};

        for (size_t i = 0; i < 8; i++)
            put_value(&all, i, 1);
        for (size_t i = 0; i < 4; i++)
            put_value(&list, i, (double[]){1, -2, -3, 8}[i]);
        cr_assert_eq(weft_sparse_scatter_add(&list, -0.5, dense, 8), WEFT_OK);
        for (size_t i = 0; i < 8; i++)
            cr_expect_eq(value_at(dense, dtype, i), expected[i], "%s %zu", weft_dtype_name(dtype),
                         i);
        memset(dense, 0, 8 * size);
        cr_expect_eq(weft_sparse_scatter_add(&list, 1, dense, 7), WEFT_ERR_INVALID);
        cr_expect_not_null(strstr(weft_error_text(), "index of pairs is 7"));
        cr_expect_eq(value_at(dense, dtype, 0), 0);
    }
}

Test(sparse, put_back_what_was_not_kept)
{
    for (size_t c = 0; c < 2 * COUNT_OF(dtypes); c++) {
        const weft_dtype_t dtype = dtypes[c / 2], index_dtype = c % 2 ? WEFT_U64 : WEFT_U32;
        const uint64_t own_at[] = {1, 2, 4, 6}, kept_at[] = {0, 2, 6, 7};
        uint64_t own_indices[4], kept_indices[4];
        char values[4 * 8], dense[8 * 8];
        struct weft_sparse own = {own_indices, values, 4, 4, index_dtype, dtype};
        struct weft_sparse kept = {kept_indices, values, 4, 4, index_dtype, dtype};
        struct weft_sparse all = {NULL, dense, 8, 8, WEFT_U32, dtype};
        const double expected[] = {1, 2, 1, 1, 4, 1, 1, 1};

        for (size_t i = 0; i < 8; i++)
            put_value(&all, i, 1);
        for (size_t i = 0; i < 4; i++) {
            put_index(&own, i, own_at[i]);
            put_index(&kept, i, kept_at[i]);
            put_value(&own, i, (double)i + 1);
        }
        cr_assert_eq(weft_sparse_put_back(&own, &kept, dense, 8), WEFT_OK);
        for (size_t i = 0; i < 8; i++)
            cr_expect_eq(value_at(dense, dtype, i), expected[i]);
        cr_expect_eq(weft_sparse_put_back(&own, &kept, dense, 6), WEFT_ERR_INVALID);
    }
}
