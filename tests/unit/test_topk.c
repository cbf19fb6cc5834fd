/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection by magnitude, on every SIMD level and datatype, against a sort. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <weft/weft.h>

#include "ops/kernels.h"
#include "ops/topk.h"

enum { GUARD = 0x5a };

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};

/* ---- elements ---- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static double uniform(uint64_t *state)
{
    return ((double)(next_random(state) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t *state)
{
    const double radius = sqrt(-2 * log(uniform(state)));

    return radius * cos(6.283185307179586 * uniform(state));
}

static void put_bits(void *array, size_t i, weft_dtype_t dtype, uint64_t bits)
{
    const size_t size = weft_dtype_size(dtype);
    char *to = (char *)array + i * size;
    const uint16_t half = (uint16_t)bits;
    const uint32_t word = (uint32_t)bits;

    memcpy(to, size == 2 ? (const void *)&half : size == 4 ? (const void *)&word : &bits, size);
}

static uint64_t bits_at(const void *array, size_t i, weft_dtype_t dtype)
{
    const size_t size = weft_dtype_size(dtype);
    const char *from = (const char *)array + i * size;
    uint16_t half;
    uint32_t word;
    uint64_t bits;

    memcpy(size == 2 ? (void *)&half : size == 4 ? (void *)&word : &bits, from, size);
    return size == 2 ? half : size == 4 ? word : bits;
}

static uint64_t magnitude_of(uint64_t bits, weft_dtype_t dtype)
{
    return bits & (UINT64_MAX >> (65 - 8 * weft_dtype_size(dtype)));
}

static uint64_t infinity_of(weft_dtype_t dtype)
{
    return dtype == WEFT_F16    ? 0x7c00
           : dtype == WEFT_BF16 ? 0x7f80
           : dtype == WEFT_F32  ? 0x7f800000
                                : UINT64_C(0x7ff0000000000000);
}

static int is_nan(uint64_t bits, weft_dtype_t dtype)
{
    return magnitude_of(bits, dtype) > infinity_of(dtype);
}

static void put(void *array, size_t i, weft_dtype_t dtype, double value)
{
    const float narrow = (float)value;
    uint32_t word;
    uint64_t bits;

    memcpy(&word, &narrow, sizeof(word));
    memcpy(&bits, &value, sizeof(bits));
    put_bits(array, i, dtype,
             dtype == WEFT_F16    ? weft__f32_to_f16(narrow)
             : dtype == WEFT_BF16 ? weft__f32_to_bf16(narrow)
             : dtype == WEFT_F32  ? word
                                  : bits);
}

static double number(uint64_t bits, weft_dtype_t dtype)
{
    const uint32_t word = (uint32_t)bits;
    float narrow;
    double value;

    memcpy(&narrow, &word, sizeof(narrow));
    memcpy(&value, &bits, sizeof(value));
    return dtype == WEFT_F16    ? (double)weft__f16_to_f32((uint16_t)bits)
           : dtype == WEFT_BF16 ? (double)weft__bf16_to_f32((uint16_t)bits)
           : dtype == WEFT_F32  ? (double)narrow
                                : value;
}

/* ---- data, ordinary and adversarial ---- */

enum kind {
    NORMAL,
    LAYERS, /* scales that differ by place */
    ASCENDING,
    DESCENDING,
    EQUAL,      /* one magnitude, both signs */
    FEW_VALUES, /* ties wherever the cut is */
    ZEROS,      /* of both signs */
    SUBNORMAL,
    INFINITE, /* infinities among numbers */
    RANDOM_BITS,
    CLUSTER, /* nearly all zero, what is not stands together: a sample sees little of it */
    PERIODIC,
    KINDS
};

static double value_of_kind(enum kind kind, size_t i, size_t n, uint64_t *state)
{
    const double sign = next_random(state) % 2 ? 1 : -1;

    switch (kind) {
    case LAYERS:
        return normal(state) * exp2((double)(i * 13 / (n + 1) * 7 % 13) - 6);
    case ASCENDING:
        return sign * (double)(i + 1) / (double)n;
    case DESCENDING:
        return sign * (double)(n - i) / (double)n;
    case EQUAL:
        return sign * 0.75;
    case FEW_VALUES:
        return sign * (double)(next_random(state) % 5);
    case ZEROS:
        return sign * 0.0;
    case INFINITE:
        return next_random(state) % 50 == 0 ? sign * (double)INFINITY : normal(state);
    case CLUSTER:
        return i > n / 3 && i < n / 3 + n / 40 ? normal(state) : 0;
    case PERIODIC:
        return i % 64 == 63 ? 100 + normal(state) : normal(state) * 0.01;
    default:
        return normal(state);
    }
}

static void fill(void *array, size_t n, weft_dtype_t dtype, enum kind kind, uint64_t seed)
{
    uint64_t state = seed;

    for (size_t i = 0; i < n; i++) {
        uint64_t bits = next_random(&state);

        if (kind == RANDOM_BITS || kind == SUBNORMAL) {
            const int fraction = dtype == WEFT_F16    ? 10
                                 : dtype == WEFT_BF16 ? 7
                                 : dtype == WEFT_F32  ? 23
                                                      : 52;

            if (kind == SUBNORMAL)
                bits &= (UINT64_C(1) << fraction) - 1;
            if (is_nan(bits & (UINT64_MAX >> (64 - 8 * weft_dtype_size(dtype))), dtype))
                bits = i % 1000;
            put_bits(array, i, dtype, bits);
        } else {
            put(array, i, dtype, value_of_kind(kind, i, n, &state));
        }
    }
}

/* ---- the reference: all entries in the order in which they are taken ---- */

struct entry {
    uint64_t key; /* of a NaN 0 */
    uint64_t bits;
    uint64_t index;
};

static int best_first(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;

    if (p->key != q->key)
        return p->key > q->key ? -1 : 1;
    return (p->index > q->index) - (p->index < q->index);
}

static int by_index(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;

    return (p->index > q->index) - (p->index < q->index);
}

static struct entry *sorted(const void *values, size_t n, weft_dtype_t dtype)
{
    struct entry *entries = malloc((n + 1) * sizeof(*entries));

    cr_assert_not_null(entries);
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = bits_at(values, i, dtype);

        if (is_nan(bits, dtype))
            bits = 0;
        entries[i] = (struct entry){magnitude_of(bits, dtype), bits, i};
    }
    qsort(entries, n, sizeof(*entries), best_first);
    return entries;
}

/* The first k of them by index; the caller frees. */
static struct entry *best(const struct entry *entries, size_t k)
{
    struct entry *chosen = malloc((k + 1) * sizeof(*chosen));

    cr_assert_not_null(chosen);
    memcpy(chosen, entries, k * sizeof(*chosen));
    qsort(chosen, k, sizeof(*chosen), by_index);
    return chosen;
}

/* ---- a selection and its output, in blocks with guards, `shift` bytes from their alignment ---- */

struct output {
    struct weft_sparse pairs;
    char *index_block;
    char *value_block;
    size_t index_bytes;
    size_t value_bytes;
    size_t shift;
};

static void open_output(struct output *out, weft_dtype_t dtype, weft_dtype_t index_dtype,
                        size_t capacity, size_t shift)
{
    out->index_bytes = capacity * weft_dtype_size(index_dtype);
    out->value_bytes = capacity * weft_dtype_size(dtype);
    out->shift = shift;
    out->index_block = malloc(out->index_bytes + shift + 64);
    out->value_block = malloc(out->value_bytes + shift + 64);
    cr_assert(out->index_block != NULL && out->value_block != NULL);
    memset(out->index_block, GUARD, out->index_bytes + shift + 64);
    memset(out->value_block, GUARD, out->value_bytes + shift + 64);
    out->pairs = (struct weft_sparse){.indices = out->index_block + shift,
                                      .values = out->value_block + shift,
                                      .capacity = capacity,
                                      .index_dtype = index_dtype,
                                      .dtype = dtype};
}

static size_t spoilt(const char *block, size_t from, size_t to)
{
    size_t count = 0;

    for (size_t i = from; i < to; i++)
        count += block[i] != GUARD;
    return count;
}

static void close_output(struct output *out)
{
    cr_expect_eq(spoilt(out->index_block, 0, out->shift), 0);
    cr_expect_eq(spoilt(out->value_block, 0, out->shift), 0);
    cr_expect_eq(spoilt(out->index_block + out->shift + out->index_bytes, 0, 64), 0);
    cr_expect_eq(spoilt(out->value_block + out->shift + out->value_bytes, 0, 64), 0);
    free(out->index_block);
    free(out->value_block);
}

static uint64_t index_of(const struct weft_sparse *pairs, size_t i)
{
    uint32_t narrow;
    uint64_t wide;

    if (pairs->index_dtype == WEFT_U64) {
        memcpy(&wide, (const char *)pairs->indices + 8 * i, sizeof(wide));
        return wide;
    }
    memcpy(&narrow, (const char *)pairs->indices + 4 * i, sizeof(narrow));
    return narrow;
}

static void expect_pairs(const struct weft_sparse *pairs, const struct entry *chosen, size_t k,
                         const char *what)
{
    size_t wrong = 0;

    cr_assert_eq(pairs->count, k, "%s: %zu pairs, expected %zu", what, pairs->count, k);
    for (size_t i = 0; i < k; i++) {
        if ((index_of(pairs, i) != chosen[i].index ||
             bits_at(pairs->values, i, pairs->dtype) != chosen[i].bits) &&
            wrong++ == 0)
            cr_expect_fail("%s: pair %zu of %zu is (%" PRIu64 ", %" PRIx64 "), expected (%" PRIu64
                           ", %" PRIx64 ")",
                           what, i, k, index_of(pairs, i), bits_at(pairs->values, i, pairs->dtype),
                           chosen[i].index, chosen[i].bits);
    }
    cr_assert_eq(wrong, 0);
}

struct trial {
    const void *values;
    size_t n;
    weft_dtype_t dtype;
    const struct entry *entries;
    char what[128];
};

static void expect_report(const struct trial *trial, const struct weft_sparse_report *report,
                          size_t k)
{
    const double least = k > 0 ? number(trial->entries[k - 1].key, trial->dtype) : 0;

    cr_expect_eq(report->count, k);
    cr_expect_eq(report->nans, 0);
    cr_expect(report->threshold == least, "%s: threshold %g, expected %g", trial->what,
              report->threshold, least);
}

/* The k best in a form of its own for each k, so that all are covered without being multiplied. */
static void select_top(const struct trial *trial, size_t k, double hint)
{
    const size_t kept = k < trial->n ? k : trial->n;
    struct entry *chosen = best(trial->entries, kept);
    struct weft_sparse_options options;
    struct weft_sparse_report report;
    struct output out;

    weft_sparse_options_init(&options);
    options.hint = hint;
    open_output(&out, trial->dtype, k % 2 ? WEFT_U64 : WEFT_U32, kept, k % 3);
    cr_assert_eq(weft_sparse_top(&options, trial->values, trial->n, k, &out.pairs, &report),
                 WEFT_OK, "%s", weft_error_text());
    expect_pairs(&out.pairs, chosen, kept, trial->what);
    expect_report(trial, &report, kept);
    close_output(&out);
    free(chosen);
}

/* The sums of `values` and a residual: `trial` is of the sums, `residual` of what they came from. */
static void accumulate_top(const struct trial *trial, const void *residual, const void *values,
                           size_t k)
{
    const size_t bytes = trial->n * weft_dtype_size(trial->dtype);
    const size_t kept = k < trial->n ? k : trial->n;
    struct entry *chosen = best(trial->entries, kept);
    const size_t begin = k % 5 == 3 ? weft_dtype_size(trial->dtype) : 0;
    char *block = malloc(bytes + 8), *expected = malloc(bytes + 1);
    char *work = block + begin;
    struct output out;

    cr_assert(block != NULL && expected != NULL);
    memcpy(work, residual, bytes);
    memcpy(expected, trial->values, bytes);
    for (size_t i = 0; i < kept; i++)
        put_bits(expected, chosen[i].index, trial->dtype, 0);
    open_output(&out, trial->dtype, k % 2 ? WEFT_U32 : WEFT_U64, kept, k % 3);
    cr_assert_eq(weft_sparse_accumulate_top(NULL, work, values, trial->n, k, &out.pairs, NULL),
                 WEFT_OK, "%s", weft_error_text());
    expect_pairs(&out.pairs, chosen, kept, trial->what);
    cr_expect_eq(memcmp(work, expected, bytes), 0, "%s: residual, k %zu", trial->what, k);
    close_output(&out);
    free(expected);
    free(block);
    free(chosen);
}

static void select_above(const struct trial *trial, size_t cut, size_t capacity)
{
    const double threshold =
        cut < trial->n ? number(trial->entries[cut].key, trial->dtype) : (double)INFINITY;
    struct weft_sparse_report report;
    struct entry *chosen;
    struct output out;
    size_t reach = 0, kept;

    while (reach < trial->n && number(trial->entries[reach].key, trial->dtype) >= threshold)
        reach++;
    kept = reach < capacity ? reach : capacity;
    chosen = best(trial->entries, reach);
    open_output(&out, trial->dtype, WEFT_U32, capacity, cut % 3);
    cr_assert_eq(weft_sparse_above(NULL, trial->values, trial->n, threshold, &out.pairs, &report),
                 WEFT_OK, "%s", weft_error_text());
    expect_pairs(&out.pairs, chosen, kept, trial->what);
    cr_expect_eq(report.found, reach, "%s: %zu found, expected %zu", trial->what, report.found,
                 reach);
    close_output(&out);
    free(chosen);
}

static void try_data(struct trial *trial, char *values, char *residual)
{
    const size_t n = trial->n;
    const size_t ks[] = {0, 1,    2, 17, n / 1000, n / 100, n / 7, n / 2 + 1, n > 0 ? n - 1 : 0,
                         n, n + 5};
    struct entry *entries = sorted(values, n, trial->dtype);
    char *sums = malloc(n * weft_dtype_size(trial->dtype) + 1);
    char *aligned = malloc(n * weft_dtype_size(trial->dtype) + 1); /* reductions ask for that */

    cr_assert(sums != NULL && aligned != NULL);
    memcpy(aligned, values, n * weft_dtype_size(trial->dtype));
    trial->values = values;
    trial->entries = entries;
    for (size_t i = 0; i < COUNT_OF(ks); i++) {
        select_top(trial, ks[i], 0);
        if (ks[i] <= n)
            select_above(trial, ks[i], i % 2 ? ks[i] / 2 : n);
    }
    select_top(trial, n / 100, 1e300); /* hints: nothing reaches it; all do; about right */
    select_top(trial, n / 100, 1e-300);
    select_top(trial, n / 50, number(entries[n / 60].key, trial->dtype));
    free(entries);

    weft_op_reduce(weft_op_builtin(WEFT_SUM), trial->dtype, sums, residual, aligned, n);
    for (size_t i = 0; i < n; i++) { /* infinities of both signs */
        if (is_nan(bits_at(sums, i, trial->dtype), trial->dtype)) {
            put_bits(residual, i, trial->dtype, 0);
            put_bits(sums, i, trial->dtype, bits_at(values, i, trial->dtype));
        }
    }
    weft_op_reduce(weft_op_builtin(WEFT_SUM), trial->dtype, sums, residual, aligned, n);
    entries = sorted(sums, n, trial->dtype);
    trial->values = sums;
    trial->entries = entries;
    for (size_t i = 0; i < COUNT_OF(ks); i++)
        accumulate_top(trial, residual, values, ks[i]);
    free(entries);
    free(aligned);
    free(sums);
}

static void try_size(size_t n, weft_dtype_t dtype, enum kind kind)
{
    const size_t size = weft_dtype_size(dtype);
    char *values = malloc((n + 1) * size + 1), *residual = malloc((n + 1) * size);
    struct trial trial = {.n = n, .dtype = dtype};

    cr_assert(values != NULL && residual != NULL);
    snprintf(trial.what, sizeof(trial.what), "%s, n %zu, data %d, %s", weft_dtype_name(dtype), n,
             (int)kind, weft_simd_name(weft_simd_level()));
    const size_t begin = n % 2 * size; /* aligned for an element, not for a vector */

    fill(values + begin, n, dtype, kind, 1 + n + 100 * (unsigned)kind);
    fill(residual, n, dtype, kind == RANDOM_BITS ? RANDOM_BITS : NORMAL, 7 + n);
    try_data(&trial, values + begin, residual);
    free(residual);
    free(values);
}

static void run_level(weft_simd_t level)
{
    static const size_t sizes[] = {1, 2, 3, 63, 64, 65, 127, 1000, 8192, 8193, 20011};

    if (weft_simd_limit(level) != level)
        cr_skip_test("this build or processor has no %s", weft_simd_name(level));
    for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
        for (int kind = 0; kind < KINDS; kind++) {
            for (size_t i = 0; i < COUNT_OF(sizes); i++)
                try_size(sizes[i], dtypes[d], (enum kind)kind);
        }
    }
}

Test(topk, scalar_selects_what_a_sort_does)
{
    run_level(WEFT_SIMD_SCALAR);
}

Test(topk, avx2_selects_what_a_sort_does)
{
    run_level(WEFT_SIMD_AVX2);
}

Test(topk, avx512_selects_what_a_sort_does)
{
    run_level(WEFT_SIMD_AVX512);
}

/* Larger than the room for candidates: a hint that all reach makes the scan drop some on the way. */
static void drop_on_the_way(weft_dtype_t dtype, enum kind kind)
{
    enum { N = 250000 };
    struct trial trial = {.n = N, .dtype = dtype};
    char *values = malloc(N * weft_dtype_size(dtype));
    struct entry *entries;

    cr_assert_not_null(values);
    snprintf(trial.what, sizeof(trial.what), "%s, data %d", weft_dtype_name(dtype), (int)kind);
    fill(values, N, dtype, kind, 99);
    entries = sorted(values, N, dtype);
    trial.values = values;
    trial.entries = entries;
    select_top(&trial, 1, 1e-300);
    select_top(&trial, 250, 1e-300);
    select_top(&trial, 3001, 1e-300);
    select_top(&trial, 3000, 0);
    free(entries);
    free(values);
}

Test(topk, more_candidates_than_room)
{
    for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
        drop_on_the_way(dtypes[d], ASCENDING);
        drop_on_the_way(dtypes[d], NORMAL);
        drop_on_the_way(dtypes[d], FEW_VALUES);
        drop_on_the_way(dtypes[d], EQUAL);
        drop_on_the_way(dtypes[d], ZEROS);
    }
}

/* ---- threads ---- */

static void with_threads(weft_dtype_t dtype, enum kind kind, size_t n, size_t k, double hint)
{
    const size_t size = weft_dtype_size(dtype);
    char *values = malloc(n * size), *residual[3];
    struct weft_sparse_options options;
    struct weft_sparse_report report;
    struct output out[3];

    cr_assert_not_null(values);
    fill(values, n, dtype, kind, 5);
    weft_sparse_options_init(&options);
    options.hint = hint;
    for (int threads = 1; threads <= 3; threads++) {
        struct output *o = &out[threads - 1];
        char *r = residual[threads - 1] = calloc(n, size);

        cr_assert_not_null(r);
        options.threads = threads;
        open_output(o, dtype, WEFT_U32, k, 0);
        cr_assert_eq(weft_sparse_top(&options, values, n, k, &o->pairs, &report), WEFT_OK);
        cr_assert_eq(o->pairs.count, k);
        if (threads > 1) {
            cr_expect_eq(memcmp(o->pairs.indices, out[0].pairs.indices, 4 * k), 0);
            cr_expect_eq(memcmp(o->pairs.values, out[0].pairs.values, size * k), 0);
        }
        cr_assert_eq(weft_sparse_accumulate_top(&options, r, values, n, k, &o->pairs, NULL),
                     WEFT_OK);
        cr_expect_eq(memcmp(o->pairs.indices, out[0].pairs.indices, 4 * k), 0);
        cr_expect_eq(memcmp(r, residual[0], n * size), 0, "%d threads", threads);
    }
    for (int i = 0; i < 3; i++) {
        free(residual[i]);
        close_output(&out[i]);
    }
    free(values);
}

Test(topk, threads_change_nothing)
{
    with_threads(WEFT_F32, NORMAL, 900001, 901, 0);
    with_threads(WEFT_F32, FEW_VALUES, 900001, 200000, 0);
    with_threads(WEFT_F32, ASCENDING, 900001, 901, 1e-300);
    with_threads(WEFT_F32, CLUSTER, 900001, 30000, 0);
    with_threads(WEFT_F32, NORMAL, 900001, 901, 1e300);
    with_threads(WEFT_F16, NORMAL, 1700000, 1700, 0);
    with_threads(WEFT_F64, EQUAL, 500000, 17, 0);
}

/* ---- NaNs ---- */

static void with_nans(weft_dtype_t dtype, size_t n, size_t k, size_t every, double hint)
{
    const size_t size = weft_dtype_size(dtype);
    char *values = malloc(n * size), *zeroed = malloc(n * size), *residual = calloc(n, size);
    struct weft_sparse_options options;
    struct weft_sparse_report report;
    struct entry *entries, *chosen;
    struct output out;
    size_t nans = 0;

    cr_assert(values != NULL && zeroed != NULL && residual != NULL);
    fill(values, n, dtype, NORMAL, 3);
    for (size_t i = every / 2; i < n; i += every, nans++)
        put_bits(values, i, dtype,
                 (infinity_of(dtype) + 1 + i % 5) | (i % 2 ? UINT64_C(1) << (8 * size - 1) : 0));
    memcpy(zeroed, values, n * size);
    for (size_t i = every / 2; i < n; i += every)
        put_bits(zeroed, i, dtype, 0);
    entries = sorted(zeroed, n, dtype);
    chosen = best(entries, k);
    weft_sparse_options_init(&options);
    options.hint = hint;
    open_output(&out, dtype, WEFT_U32, k, 0);

    cr_expect_eq(weft_sparse_top(&options, values, n, k, &out.pairs, &report), WEFT_ERR_COMPUTE);
    cr_expect_eq(report.nans, nans, "%" PRIu64 " NaNs, expected %zu", report.nans, nans);
    cr_expect_not_null(strstr(weft_error_text(), "NaN"));
    cr_expect_eq(spoilt(out.value_block, 0, out.value_bytes), 0);
    options.nan = WEFT_NAN_ZERO;
    cr_assert_eq(weft_sparse_top(&options, values, n, k, &out.pairs, &report), WEFT_OK);
    cr_expect_eq(report.nans, nans);
    expect_pairs(&out.pairs, chosen, k, "NaNs as zeros");

    cr_assert_eq(weft_sparse_accumulate_top(&options, residual, values, n, k, &out.pairs, &report),
                 WEFT_OK);
    cr_expect_eq(report.nans, nans);
    expect_pairs(&out.pairs, chosen, k, "NaNs as zeros in sums");
    for (size_t i = 0; i < k; i++)
        put_bits(zeroed, chosen[i].index, dtype, 0);
    for (size_t i = 0; i < n; i++) /* 0 + -0 is 0 */
        if (magnitude_of(bits_at(zeroed, i, dtype), dtype) == 0)
            put_bits(zeroed, i, dtype, 0);
    cr_expect_eq(memcmp(residual, zeroed, n * size), 0);
    close_output(&out);
    free(chosen);
    free(entries);
    free(residual);
    free(zeroed);
    free(values);
}

Test(topk, nans_are_an_error_or_zeros)
{
    for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
        with_nans(dtypes[d], 1, 1, 1, 0);
        with_nans(dtypes[d], 1000, 0, 10, 0);
        with_nans(dtypes[d], 1000, 10, 1000, 0);
        with_nans(dtypes[d], 1000, 1000, 2, 0);
        with_nans(dtypes[d], 1000, 900, 1, 0);
        with_nans(dtypes[d], 50000, 50, 17, 0);
        with_nans(dtypes[d], 50000, 50, 17, 1e300);
        with_nans(dtypes[d], 200000, 50, 2, 0); /* more of them than there is room */
        with_nans(dtypes[d], 200000, 190000, 3, 0);
    }
}

Test(topk, nans_above_a_threshold)
{
    enum { N = 5000 };
    struct weft_sparse_options options;
    struct weft_sparse_report report;
    float values[N], residual[N] = {0};
    struct output out;

    for (int i = 0; i < N; i++)
        values[i] = i % 5 == 0 ? NAN : i % 5 == 1 ? 2.0f : 1.0f;
    weft_sparse_options_init(&options);
    open_output(&out, WEFT_F32, WEFT_U32, 100, 0);
    cr_expect_eq(weft_sparse_above(&options, values, N, 2, &out.pairs, &report), WEFT_ERR_COMPUTE);
    cr_expect_eq(report.nans, N / 5);
    options.nan = WEFT_NAN_ZERO;
    cr_assert_eq(weft_sparse_above(&options, values, N, 2, &out.pairs, &report), WEFT_OK);
    cr_expect_eq(report.nans, N / 5);
    cr_expect_eq(report.found, N / 5);
    cr_expect_eq(report.count, 100);
    cr_expect_eq(index_of(&out.pairs, 99), 496);
    cr_assert_eq(weft_sparse_above(&options, values, N, 0, &out.pairs, &report), WEFT_OK);
    cr_expect_eq(report.found, N);
    cr_assert_eq(
        weft_sparse_accumulate_above(&options, residual, values, N, 2, &out.pairs, &report),
        WEFT_OK);
    cr_expect_eq(report.found, N / 5);
    for (int i = 0; i < N; i++) {
        const float left = i % 5 == 0 || (i % 5 == 1 && i <= 496) ? 0 : values[i];

        cr_assert_eq(residual[i], left, "residual %d is %g", i, (double)residual[i]);
    }
    close_output(&out);
}

/* ---- workspace, hints, limits ---- */

Test(topk, a_workspace_is_enough)
{
    enum { N = 100000, K = 1000 };
    float *values = malloc(N * sizeof(float));
    struct weft_sparse_options options;
    struct output out;
    size_t bytes;
    char *memory;

    fill(values, N, WEFT_F32, NORMAL, 1);
    weft_sparse_options_init(&options);
    bytes = weft_sparse_select_workspace(&options, WEFT_F32, N, K);
    cr_assert_gt(bytes, 0);
    memory = malloc(bytes + 65);
    memset(memory, GUARD, bytes + 65);
    options.workspace = memory + 1;
    options.workspace_bytes = bytes;
    open_output(&out, WEFT_F32, WEFT_U32, K, 0);
    for (double hint = 0; hint < 2; hint++) {
        options.hint = hint;
        cr_assert_eq(weft_sparse_top(&options, values, N, K, &out.pairs, NULL), WEFT_OK);
        cr_assert_eq(weft_sparse_above(&options, values, N, hint, &out.pairs, NULL), WEFT_OK);
    }
    cr_expect_eq(spoilt(memory + 1 + bytes, 0, 64), 0);
    cr_expect_eq(memory[0], GUARD);
    close_output(&out);
    free(memory);
    free(values);
}

Test(topk, a_hint_saves_a_scan_if_it_is_good_and_costs_one_if_it_is_not)
{
    enum { N = 200000, K = 200 };
    float *values = malloc(N * sizeof(float));
    struct weft_sparse_options options;
    struct weft_sparse_report report;
    struct output out;

    weft_sparse_options_init(&options);
    open_output(&out, WEFT_F32, WEFT_U32, K, 0);
    for (uint64_t step = 0; step < 10; step++) {
        fill(values, N, WEFT_F32, NORMAL, step);
        cr_assert_eq(weft_sparse_top(&options, values, N, K, &out.pairs, &report), WEFT_OK);
        cr_expect_eq(report.scans, 1);
        cr_expect_gt(report.hint, 0);
        cr_expect_leq(report.hint, report.threshold);
        options.hint = report.hint;
    }
    options.hint = 1000;
    cr_assert_eq(weft_sparse_top(&options, values, N, K, &out.pairs, &report), WEFT_OK);
    cr_expect_eq(report.scans, 2);
    close_output(&out);
    free(values);
}

Test(topk, nothing_of_nothing)
{
    struct weft_sparse out = {.index_dtype = WEFT_U32, .dtype = WEFT_F32};
    struct weft_sparse_report report;

    cr_expect_eq(weft_sparse_top(NULL, NULL, 0, 10, &out, &report), WEFT_OK);
    cr_expect_eq(report.count, 0);
    cr_expect_eq(weft_sparse_accumulate_top(NULL, NULL, NULL, 0, 0, &out, NULL), WEFT_OK);
    cr_expect_eq(weft_sparse_above(NULL, NULL, 0, 1, &out, &report), WEFT_OK);
    cr_expect_eq(report.found, 0);
}

/* More than 2^32 elements, all but a few in pages that were never written: they take no memory. */
Test(topk, more_elements_than_32_bits_count)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    cr_skip_test("takes too long under a sanitizer");
#endif
    const size_t n = ((size_t)1 << 32) + 1000003;
    const size_t at[] = {5, ((size_t)1 << 32) - 1, (size_t)1 << 32, n - 1, n / 2};
    struct weft_sparse_options options;
    struct weft_sparse_report report;
    uint64_t indices[8];
    uint16_t values[8];
    struct weft_sparse out = {indices, values, 0, 8, WEFT_U64, WEFT_BF16};
    uint16_t *x = mmap(NULL, n * 2, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (x == MAP_FAILED || madvise(x, n * 2, MADV_HUGEPAGE) != 0)
        cr_skip_test("no such memory here");
    for (size_t i = 0; i < COUNT_OF(at); i++)
        x[at[i]] = (uint16_t)(0x3f80 + i);
    weft_sparse_options_init(&options);
    for (options.threads = 1; options.threads <= 3; options.threads += 2) {
        cr_assert_eq(weft_sparse_top(&options, x, n, 4, &out, &report), WEFT_OK);
        cr_assert_eq(out.count, 4);
        cr_expect_eq(indices[0], n / 2);
        cr_expect_eq(indices[1], at[1]);
        cr_expect_eq(indices[2], at[2]);
        cr_expect_eq(indices[3], n - 1);
        cr_expect_eq(values[3], 0x3f83);
        cr_assert_eq(weft_sparse_top(&options, x, n, 8, &out, &report), WEFT_OK);
        cr_expect_eq(indices[0], 0); /* zeros, the lowest first */
        cr_expect_eq(indices[2], 2);
        cr_expect_eq(indices[3], 5);
        cr_expect_eq(indices[7], n - 1);
        cr_assert_eq(weft_sparse_above(&options, x, n, 1, &out, &report), WEFT_OK);
        cr_expect_eq(report.found, COUNT_OF(at));
        cr_expect_eq(indices[4], n - 1);
    }
    out.index_dtype = WEFT_U32;
    cr_expect_eq(weft_sparse_top(NULL, x, n, 4, &out, NULL), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "u64"));
    munmap(x, n * 2);
}

Test(topk, misuse_is_named)
{
    float values[4] = {1, 2, 3, 4};
    uint32_t indices[4];
    float kept[4];
    struct weft_sparse out = {indices, kept, 0, 4, WEFT_U32, WEFT_F32};
    struct weft_sparse_options options;

    weft_sparse_options_init(&options);
    cr_expect_eq(weft_sparse_top(&options, NULL, 4, 2, &out, NULL), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "`values`"));
    cr_expect_eq(weft_sparse_top(&options, values, 4, 2, NULL, NULL), WEFT_ERR_INVALID);
    out.capacity = 1;
    cr_expect_eq(weft_sparse_top(&options, values, 4, 2, &out, NULL), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "capacity"));
    out.capacity = 4;
    out.dtype = WEFT_I32;
    cr_expect_eq(weft_sparse_top(&options, values, 4, 2, &out, NULL), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "i32"));
    out.dtype = WEFT_F32;
    out.index_dtype = WEFT_I64;
    cr_expect_eq(weft_sparse_top(&options, values, 4, 2, &out, NULL), WEFT_ERR_INVALID);
    out.index_dtype = WEFT_U32;
    cr_expect_eq(weft_sparse_accumulate_top(&options, values + 1, values, 3, 2, &out, NULL),
                 WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "overlaps"));
    cr_expect_eq(weft_sparse_above(&options, values, 4, -1, &out, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_sparse_above(&options, values, 4, NAN, &out, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_sparse_top(&options, values, SIZE_MAX / 2, 2, &out, NULL), WEFT_ERR_INVALID);
    options.hint = NAN;
    cr_expect_eq(weft_sparse_top(&options, values, 4, 2, &out, NULL), WEFT_ERR_INVALID);
    options.hint = 0;
    options.threads = -1;
    cr_expect_eq(weft_sparse_top(&options, values, 4, 2, &out, NULL), WEFT_ERR_INVALID);
    options.threads = 0;
    options.struct_size = 3;
    cr_expect_eq(weft_sparse_top(&options, values, 4, 2, &out, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_sparse_select_workspace(NULL, WEFT_I8, 4, 2), 0);
    cr_expect_eq(weft_sparse_select_workspace(NULL, WEFT_F32, SIZE_MAX, SIZE_MAX), SIZE_MAX);
}

/* ---- kernels ---- */

Test(topk, keys_are_the_least_that_reach_a_magnitude)
{
    for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
        const uint64_t infinity = weft__topk_infinity(dtypes[d]);
        uint64_t state = 1;

        cr_expect_eq(weft__topk_key(dtypes[d], 0), 0);
        cr_expect_eq(weft__topk_key(dtypes[d], (double)INFINITY), infinity);
        for (int i = 0; i < 2000; i++) {
            const uint64_t key = next_random(&state) % infinity;
            const double magnitude = weft__topk_magnitude(dtypes[d], key);
            const double between = nextafter(magnitude, (double)INFINITY);

            cr_assert_eq(number(key, dtypes[d]), magnitude);
            cr_assert_eq(weft__topk_key(dtypes[d], magnitude), key);
            cr_assert_eq(weft__topk_key(dtypes[d], between), key + 1);
        }
    }
}

Test(topk, the_kth_of_many_is_that_of_a_sort)
{
    static const size_t sizes[] = {1, 47, 48, 49, 1000, 4097, 5000, 60000};

    for (int level = 0; level <= (int)WEFT_SIMD_AVX512; level++) {
        if (weft_simd_limit((weft_simd_t)level) != (weft_simd_t)level)
            continue;
        for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
            for (size_t i = 0; i < COUNT_OF(sizes) * KINDS; i++) {
                const size_t n = sizes[i % COUNT_OF(sizes)];
                const size_t bytes = n * weft_dtype_size(dtypes[d]);
                char *values = malloc(bytes), *copy = malloc(bytes);
                struct entry *entries;

                fill(values, n, dtypes[d], (enum kind)(i / COUNT_OF(sizes)), i);
                entries = sorted(values, n, dtypes[d]);
                for (size_t k = 1; k <= n; k += 1 + n / 7 + (k < 4 ? 0 : n / 3)) {
                    memcpy(copy, values, bytes);
                    cr_assert_eq(weft__topk_kernels_find(dtypes[d])->kth(copy, n, k),
                                 entries[k - 1].key, "%zu-th of %zu", k, n);
                }
                memcpy(copy, values, bytes);
                cr_assert_eq(weft__topk_kernels_find(dtypes[d])->kth(copy, n, n),
                             entries[n - 1].key);
                free(entries);
                free(copy);
                free(values);
            }
        }
    }
}
