/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection by magnitude: threads, NaNs, workspaces, hints, sizes, misuse. */
#include <sys/mman.h>

#include "support/selection.h"
#include "support/sweep.h"

/* ---- threads ---- */

static void with_threads(weft_dtype_t dtype, enum kind kind, size_t n, size_t k, double hint)
{
    const size_t size = weft_dtype_size(dtype);
    char *values = malloc(n * size), *residual[3];
    struct weft_sparse_options options;
    struct weft_sparse_report report = {.struct_size = sizeof report};
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

Test(topk_limits, threads_change_nothing)
{
    with_threads(WEFT_F32, NORMAL, 900001, 901, 0);
    with_threads(WEFT_F32, CLUSTER, 900001, 30000, 0);
    with_threads(WEFT_F64, EQUAL, 500000, 17, 0);
    if (WEFT_SANITIZED)
        return;
    with_threads(WEFT_F32, FEW_VALUES, 900001, 200000, 0);
    with_threads(WEFT_F32, ASCENDING, 900001, 901, 1e-300);
    with_threads(WEFT_F32, NORMAL, 900001, 901, 1e300);
    with_threads(WEFT_F16, NORMAL, 1700000, 1700, 0);
}

/* ---- NaNs ---- */

static void with_nans(weft_dtype_t dtype, size_t n, size_t k, size_t every, double hint)
{
    const size_t size = weft_dtype_size(dtype);
    char *values = malloc(n * size), *zeroed = malloc(n * size), *residual = calloc(n, size);
    struct weft_sparse_options options;
    struct weft_sparse_report report = {.struct_size = sizeof report};
    struct entry *entries, *chosen;
    struct output out;
    size_t nans = 0;

    cr_assert(values && zeroed && residual);
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

Test(topk_limits, nans_are_an_error_or_zeros)
{
    for (int level = (int)WEFT_SIMD_AVX512; level >= 0; level--) {
        if (weft_simd_limit((weft_simd_t)level) != (weft_simd_t)level)
            continue;
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
#ifdef __SANITIZE_THREAD__
        break; /* one thread, and one level of its code: others are for the address sanitizer */
#endif
    }
}

Test(topk_limits, nans_above_a_threshold)
{
    enum { N = 5000 };
    struct weft_sparse_options options;
    struct weft_sparse_report report = {.struct_size = sizeof report};
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

static void select_within_a_workspace(size_t count, size_t k)
{
    float *values = malloc(count * sizeof(float));
    struct weft_sparse_options options;
    struct output out;
    size_t bytes;
    char *memory;

    fill(values, count, WEFT_F32, NORMAL, 1);
    weft_sparse_options_init(&options);
    bytes = weft_sparse_select_workspace(&options, WEFT_F32, count, k);
    cr_assert_gt(bytes, 0);
    memory = malloc(bytes + 65);
    memset(memory, GUARD, bytes + 65);
    options.workspace = memory + 1;
    options.workspace_bytes = bytes;
    open_output(&out, WEFT_F32, WEFT_U32, k, 0);
    for (double hint = 0; hint < 2; hint++) {
        options.hint = hint;
        cr_assert_eq(weft_sparse_top(&options, values, count, k, &out.pairs, NULL), WEFT_OK);
        cr_assert_eq(weft_sparse_above(&options, values, count, hint, &out.pairs, NULL), WEFT_OK);
    }
    cr_expect_eq(spoilt(memory + 1 + bytes, 0, 64), 0);
    cr_expect_eq(memory[0], GUARD);
    close_output(&out);
    free(memory);
    free(values);
}

Test(topk_limits, a_workspace_is_enough)
{
    static const size_t counts[] = {16, 5000, 9000, 61000, 62000, 100000, 4000000};

    for (size_t i = 0; i < SWEPT(sizeof counts / sizeof counts[0], 6); i++)
        select_within_a_workspace(counts[i], counts[i] / 100 + 1);
}

Test(topk_limits, a_few_elements_need_a_small_workspace)
{
    size_t bytes = weft_sparse_select_workspace(NULL, WEFT_F32, 16, 1);

    cr_expect_leq(bytes, 8192, "%zu bytes", bytes);
}

Test(topk_limits, a_hint_saves_a_scan_if_it_is_good_and_costs_one_if_it_is_not)
{
    enum { N = 200000, K = 200 };
    float *values = malloc(N * sizeof(float));
    struct weft_sparse_options options;
    struct weft_sparse_report report = {.struct_size = sizeof report};
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

Test(topk_limits, nothing_of_nothing)
{
    struct weft_sparse out = {.index_dtype = WEFT_U32, .dtype = WEFT_F32};
    struct weft_sparse_report report = {.struct_size = sizeof report};

    cr_expect_eq(weft_sparse_top(NULL, NULL, 0, 10, &out, &report), WEFT_OK);
    cr_expect_eq(report.count, 0);
    cr_expect_eq(weft_sparse_accumulate_top(NULL, NULL, NULL, 0, 0, &out, NULL), WEFT_OK);
    cr_expect_eq(weft_sparse_above(NULL, NULL, 0, 1, &out, &report), WEFT_OK);
    cr_expect_eq(report.found, 0);
}

/* More than 2^32 elements, all but a few in pages that were never written: they take no memory. */
Test(topk_limits, more_elements_than_32_bits_count)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    cr_skip_test("takes too long under a sanitizer");
#endif
    const size_t n = ((size_t)1 << 32) + 1000003;
    const size_t at[] = {5, ((size_t)1 << 32) - 1, (size_t)1 << 32, n - 1, n / 2};
    struct weft_sparse_options options;
    struct weft_sparse_report report = {.struct_size = sizeof report};
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

Test(topk_limits, misuse_is_named)
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
