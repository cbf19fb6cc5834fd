/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection by magnitude, on every SIMD level and datatype, against a sort. */
#include "support/selection.h"
#include "support/sweep.h"

#include "ops/topk.h"

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
    struct weft_sparse_report report = {.struct_size = sizeof report};
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

/* The sums of `values` and a residual: `trial` is of the sums, `residual` of what they came from.
 */
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

    cr_assert(block && expected);
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
    struct weft_sparse_report report = {.struct_size = sizeof report};
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

    cr_assert(sums && aligned);
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

    cr_assert(values && residual);
    snprintf(trial.what, sizeof trial.what, "%s, n %zu, data %d, %s", weft_dtype_name(dtype), n,
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
        for (int kind = 0; kind < KINDS; kind++)
            for (size_t i = 0; i < SWEPT(COUNT_OF(sizes), 10); i++)
                try_size(sizes[i], dtypes[d], (enum kind)kind);
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

/* Larger than the room for candidates: a hint that all reach makes the scan drop some on the way.
 */
static void drop_on_the_way(weft_dtype_t dtype, enum kind kind)
{
    enum { N = 250000 };
    struct trial trial = {.n = N, .dtype = dtype};
    char *values = malloc(N * weft_dtype_size(dtype));
    struct entry *entries;

    cr_assert_not_null(values);
    snprintf(trial.what, sizeof trial.what, "%s, data %d", weft_dtype_name(dtype), (int)kind);
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
