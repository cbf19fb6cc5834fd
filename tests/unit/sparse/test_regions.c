/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists taken apart, cut down, joined and summed, on every level, datatype and width of indices,
 * against dense vectors; bounds of regions. Values are small multiples of 1/8, so that sums are
 * exact. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "ops/kernels.h"

enum { RANGE = 600, MOST_LISTS = 70 };

static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};
static const weft_dtype_t index_dtypes[] = {WEFT_U32, WEFT_U64};

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

/* ---- lists and dense vectors (NAN: no entry) ---- */

struct dense {
    double value[RANGE];
};

static struct weft_sparse room(size_t capacity, weft_dtype_t index_dtype, weft_dtype_t dtype)
{
    struct weft_sparse list = {.capacity = capacity, .index_dtype = index_dtype, .dtype = dtype};

    list.indices = malloc(capacity * 8 + 1);
    list.values = malloc(capacity * 8 + 1);
    cr_assert(list.indices && list.values);
    return list;
}

static void release(struct weft_sparse *list)
{
    free(list->indices);
    free(list->values);
}

static void put(struct weft_sparse *list, uint64_t index, double value)
{
    size_t i = list->count++;
    float narrow = (float)value;

    cr_assert_leq(list->count, list->capacity);
    if (list->index_dtype == WEFT_U64)
        ((uint64_t *)list->indices)[i] = index;
    else
        ((uint32_t *)list->indices)[i] = (uint32_t)index;
    if (list->dtype == WEFT_F64)
        ((double *)list->values)[i] = value;
    else if (list->dtype == WEFT_F32)
        ((float *)list->values)[i] = narrow;
    else
        ((uint16_t *)list->values)[i] =
            list->dtype == WEFT_F16 ? weft__f32_to_f16(narrow) : weft__f32_to_bf16(narrow);
}

static double value_of(const struct weft_sparse *list, size_t i)
{
    if (list->dtype == WEFT_F64)
        return ((const double *)list->values)[i];
    if (list->dtype == WEFT_F32)
        return (double)((const float *)list->values)[i];
    uint16_t half = ((const uint16_t *)list->values)[i];
    return (double)(list->dtype == WEFT_F16 ? weft__f16_to_f32(half) : weft__bf16_to_f32(half));
}

static uint64_t index_of(const struct weft_sparse *list, size_t i)
{
    return list->index_dtype == WEFT_U64 ? ((const uint64_t *)list->indices)[i]
                                         : ((const uint32_t *)list->indices)[i];
}

static struct weft_sparse pack(const struct dense *from, weft_dtype_t index_dtype,
                               weft_dtype_t dtype)
{
    struct weft_sparse list = room(RANGE, index_dtype, dtype);

    for (uint64_t i = 0; i < RANGE; i++)
        if (!isnan(from->value[i]))
            put(&list, i, from->value[i]);
    return list;
}

static void clear(struct dense *list)
{
    for (int i = 0; i < RANGE; i++)
        list->value[i] = NAN;
}

static void draw_dense(struct dense *list, uint64_t begin, uint64_t end, size_t pairs)
{
    clear(list);
    while (pairs-- > 0)
        list->value[begin + draw(end - begin)] = (double)((int64_t)draw(33) - 16) / 8;
}

static void expect(const struct weft_sparse *list, const struct dense *expected, const char *what)
{
    size_t n = 0;

    for (uint64_t i = 0; i < RANGE; i++) {
        if (isnan(expected->value[i]))
            continue;
        cr_assert_lt(n, list->count, "%s: too few pairs", what);
        cr_assert_eq(index_of(list, n), i, "%s: pair %zu", what, n);
        cr_assert_eq(value_of(list, n), expected->value[i], "%s: pair %zu", what, n);
        n++;
    }
    cr_assert_eq(n, list->count, "%s: %zu pairs, expected %zu", what, list->count, n);
}

typedef void (*try_fn)(weft_dtype_t index_dtype, weft_dtype_t dtype);

static void everywhere(try_fn try)
{
    for (int level = WEFT_SIMD_SCALAR; level <= WEFT_SIMD_AVX512; level++) {
        if (weft_simd_limit((weft_simd_t)level) != (weft_simd_t)level)
            break;
        for (size_t d = 0; d < 4; d++)
            for (size_t i = 0; i < 2; i++)
                for (state = 1; state < 8; state++) {
                    uint64_t seed = state;
                    try(index_dtypes[i], dtypes[d]);
                    state = seed;
                }
    }
    weft_simd_limit(WEFT_SIMD_AVX512);
}

/* ---- parts ---- */

static void try_ranges(weft_dtype_t index_dtype, weft_dtype_t dtype)
{
    struct dense all, part;
    draw_dense(&all, 0, RANGE, draw(200));
    struct weft_sparse list = pack(&all, index_dtype, dtype), view;

    for (int i = 0; i < 20; i++) {
        uint64_t lower = draw(RANGE + 1), upper = lower + draw(RANGE + 1 - lower);
        clear(&part);
        for (uint64_t k = lower; k < upper; k++)
            part.value[k] = all.value[k];
        cr_assert_eq(weft_sparse_range(&list, lower, upper, &view), WEFT_OK);
        expect(&view, &part, "range");
    }
    cr_assert_eq(weft_sparse_range(&list, 0, UINT64_MAX, &view), WEFT_OK);
    expect(&view, &all, "all");
    release(&list);
}

Test(sparse_regions, ranges)
{
    everywhere(try_ranges);
}

/* ---- the largest above a threshold ---- */

static void plain_keep(struct dense *kept, struct dense *dropped, double threshold, size_t k)
{
    size_t count = 0;

    clear(dropped);
    for (int i = 0; i < RANGE; i++)
        if (fabs(kept->value[i]) < threshold) {
            dropped->value[i] = kept->value[i];
            kept->value[i] = NAN;
        }
    for (int i = 0; i < RANGE; i++)
        count += !isnan(kept->value[i]);
    for (; count > k; count--) {
        int least = -1;

        for (int i = 0; i < RANGE; i++)
            if (!isnan(kept->value[i]) &&
                (least < 0 || fabs(kept->value[i]) <= fabs(kept->value[least])))
                least = i;
        dropped->value[least] = kept->value[least];
        kept->value[least] = NAN;
    }
}

static void try_keep(weft_dtype_t index_dtype, weft_dtype_t dtype)
{
    static const double thresholds[] = {0, 0.125, 1, 2, 2.0625, INFINITY};

    for (int i = 0; i < 12; i++) {
        struct dense kept, dropped;
        double threshold = thresholds[draw(6)];
        draw_dense(&kept, 0, RANGE, draw(300));
        struct weft_sparse list = pack(&kept, index_dtype, dtype);
        size_t k = draw(4) ? draw(list.count + 2) : draw(2) * SIZE_MAX;
        struct weft_sparse out = room(list.count, index_dtype, dtype);
        struct weft_sparse rest = room(list.count, index_dtype, dtype);
        struct weft_sparse_report report = {.struct_size = sizeof report};
        struct weft_sparse_options options;
        weft_sparse_options_init(&options);
        options.workspace_bytes = weft_sparse_merge_workspace(index_dtype, dtype, list.count);
        options.workspace = malloc(options.workspace_bytes);

        plain_keep(&kept, &dropped, threshold, k);
        cr_assert_eq(weft_sparse_keep(&options, &list, threshold, k, &out, &rest, &report), WEFT_OK,
                     "%s", weft_error_text());
        expect(&out, &kept, "kept");
        expect(&rest, &dropped, "dropped");
        cr_assert_eq(report.count, out.count);
        double least = out.count ? INFINITY : 0;
        for (size_t n = 0; n < out.count; n++)
            least = fmin(least, fabs(value_of(&out, n)));
        cr_assert_eq(report.threshold, least);
        cr_assert_eq(weft_sparse_keep(NULL, &list, threshold, k, &list, NULL, NULL), WEFT_OK);
        expect(&list, &kept, "kept in place");
        free(options.workspace);
        release(&list);
        release(&out);
        release(&rest);
    }
}

Test(sparse_regions, keeps_the_largest_above_a_threshold)
{
    everywhere(try_keep);
}

static int by_magnitude(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a < b) - (a > b);
}

static void try_kth(weft_dtype_t index_dtype, weft_dtype_t dtype)
{
    struct dense all;
    double sorted[RANGE], magnitude;
    draw_dense(&all, 0, RANGE, 1 + draw(200));
    struct weft_sparse list = pack(&all, index_dtype, dtype);

    for (size_t i = 0; i < list.count; i++)
        sorted[i] = fabs(value_of(&list, i));
    qsort(sorted, list.count, sizeof *sorted, by_magnitude);
    for (size_t k = 0; k <= list.count + 1; k++) {
        cr_assert_eq(weft_sparse_kth(NULL, &list, k, &magnitude), WEFT_OK);
        cr_assert_eq(magnitude, k == 0 || k > list.count ? 0 : sorted[k - 1]);
    }
    expect(&list, &all, "untouched");
    release(&list);
}

Test(sparse_regions, the_kth_magnitude)
{
    everywhere(try_kth);
}

/* ---- together ---- */

static void try_sum(weft_dtype_t index_dtype, weft_dtype_t dtype)
{
    static const size_t counts[] = {0, 1, 2, 3, 5, 8, 33, MOST_LISTS};
    size_t count = counts[draw(dtype == WEFT_BF16 ? 6 : 8)], pairs = 0; /* 8 bits hold few sums */
    struct weft_sparse lists[MOST_LISTS];
    struct dense sum, one;

    clear(&sum);
    for (size_t l = 0; l < count; l++) {
        draw_dense(&one, 0, draw(3) ? RANGE : 20, draw(40));
        lists[l] = pack(&one, index_dtype, dtype);
        pairs += lists[l].count;
        for (int i = 0; i < RANGE; i++)
            if (!isnan(one.value[i]))
                sum.value[i] = isnan(sum.value[i]) ? one.value[i] : sum.value[i] + one.value[i];
    }
    struct weft_sparse out = room(pairs, index_dtype, dtype);
    cr_assert_eq(weft_sparse_sum(NULL, lists, count, &out, NULL), WEFT_OK, "%s", weft_error_text());
    expect(&out, &sum, "sum");
    for (size_t l = 0; l < count; l++)
        release(&lists[l]);
    release(&out);
}

Test(sparse_regions, sums_of_many_lists)
{
    everywhere(try_sum);
}

static float tree(const float *values, size_t count)
{
    size_t half = count - count / 2;

    return count == 1 ? values[0] : tree(values, half) + tree(values + half, count - half);
}

Test(sparse_regions, sums_are_rounded_along_a_balanced_tree)
{
    for (size_t count = 1; count <= MOST_LISTS; count++) {
        struct weft_sparse lists[MOST_LISTS], out = room(count, WEFT_U32, WEFT_F32);
        float values[MOST_LISTS];

        state = count;
        for (size_t l = 0; l < count; l++) {
            values[l] = (float)draw(1 << 24) * powf(2, (float)draw(20)) / 3;
            lists[l] = room(1, WEFT_U32, WEFT_F32);
            put(&lists[l], 7, (double)values[l]);
        }
        cr_assert_eq(weft_sparse_sum(NULL, lists, count, &out, NULL), WEFT_OK);
        cr_assert_eq(out.count, 1);
        cr_assert_eq(*(float *)out.values, tree(values, count), "%zu lists", count);
        for (size_t l = 0; l < count; l++)
            release(&lists[l]);
        release(&out);
    }
}

static void try_join(weft_dtype_t index_dtype, weft_dtype_t dtype)
{
    for (int turn = 0; turn < 8; turn++) {
        struct dense a, b, both;
        uint64_t begin = draw(RANGE), end = begin + 1 + draw(RANGE - begin);
        draw_dense(&a, 0, RANGE, draw(120));
        draw_dense(&b, begin, end, draw(120));
        clear(&both);
        for (uint64_t i = 0; i < RANGE; i++) { /* side by side, within, or everywhere */
            if (turn % 2 && begin <= i && i < end)
                a.value[i] = NAN;
            if (!isnan(a.value[i]) && !isnan(b.value[i]))
                a.value[i] = NAN;
            both.value[i] = isnan(a.value[i]) ? b.value[i] : a.value[i];
        }
        struct weft_sparse left = pack(&a, index_dtype, dtype);
        struct weft_sparse right = pack(&b, index_dtype, dtype);
        struct weft_sparse out = room(left.count + right.count, index_dtype, dtype);

        cr_assert_eq(weft_sparse_join(&left, &right, &out), WEFT_OK, "%s", weft_error_text());
        expect(&out, &both, "join");
        cr_assert_eq(weft_sparse_join(&right, &left, &out), WEFT_OK);
        expect(&out, &both, "join, the other way round");
        if (right.count > 0) {
            struct weft_sparse more = room(2 * right.count, index_dtype, dtype);
            cr_assert_eq(weft_sparse_join(&right, &right, &more), WEFT_ERR_INVALID);
            cr_assert_not_null(strstr(weft_error_text(), "are in both lists"));
            release(&more);
        }
        release(&left);
        release(&right);
        release(&out);
    }
}

Test(sparse_regions, joins_lists_without_a_common_index)
{
    everywhere(try_join);
}

/* ---- bounds ---- */

Test(sparse_regions, bounds_give_every_region_as_many_pairs)
{
    for (state = 1; state < 200; state++) {
        uint64_t seed = state, bounds[41];
        struct dense all;
        int regions = 1 + (int)draw(40);
        draw_dense(&all, draw(300), RANGE, draw(200));
        struct weft_sparse list = pack(&all, index_dtypes[state % 2], WEFT_F32), part;

        cr_assert_eq(weft_sparse_bounds(&list, RANGE, regions, bounds), WEFT_OK);
        cr_assert_eq(bounds[0], 0);
        cr_assert_eq(bounds[regions], RANGE);
        for (int j = 0; j < regions; j++) {
            size_t least = list.count / (size_t)regions;

            cr_assert_leq(bounds[j], bounds[j + 1]);
            cr_assert_eq(weft_sparse_range(&list, bounds[j], bounds[j + 1], &part), WEFT_OK);
            cr_assert(part.count == least || part.count == least + 1, "region %d of %d: %zu of %zu",
                      j, regions, part.count, list.count);
            if (list.count == 0)
                cr_assert_eq(bounds[j], (uint64_t)j * RANGE / (uint64_t)regions);
        }
        release(&list);
        state = seed;
    }
}

/* ---- wrong arguments ---- */

static void refused(int status, const char *text)
{
    cr_expect_eq(status, WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), text), "%s", weft_error_text());
}

Test(sparse_regions, misuse_is_told)
{
    struct weft_sparse a = room(4, WEFT_U32, WEFT_F32), b = room(4, WEFT_U64, WEFT_F32);
    struct weft_sparse out = room(1, WEFT_U32, WEFT_F32), disorder = room(2, WEFT_U32, WEFT_F32);
    double magnitude;
    uint64_t bounds[3];
    size_t share;

    put(&a, 3, 1);
    put(&a, 5, 2);
    put(&disorder, 5, 2);
    put(&disorder, 3, 2);
    refused(weft_sparse_range(NULL, 0, 1, &out), "`list` is NULL");
    refused(weft_sparse_range(&a, 0, 1, NULL), "`part` is NULL");
    refused(weft_sparse_range(&a, 2, 1, &out), "`lower` is 2");
    refused(weft_sparse_keep(NULL, &a, 0, 2, &out, NULL, NULL), "`capacity` of out is 1");
    refused(weft_sparse_keep(NULL, &a, -1, 1, &out, NULL, NULL), "`threshold` is -1");
    refused(weft_sparse_keep(NULL, &a, 0, 1, &out, &out, NULL), "`capacity` of dropped is 1");
    refused(weft_sparse_keep(NULL, &a, 0, 1, &b, NULL, NULL), "expected u32 and f32 as in list");
    refused(weft_sparse_keep(NULL, &disorder, 0, 1, &out, NULL, NULL), "index 1 of list");
    refused(weft_sparse_sum(NULL, NULL, 1, &out, NULL), "`lists` is NULL");
    refused(weft_sparse_sum(NULL, &a, 1, &out, NULL), "`capacity` of out is 1");
    refused(weft_sparse_sum(NULL, &b, 1, &out, NULL), "`lists[0]` has indices of u64");
    refused(weft_sparse_sum(NULL, &disorder, 1, &a, NULL), "index 1 of lists[0]");
    refused(weft_sparse_join(&a, &b, &out), "`b` has indices of u64");
    refused(weft_sparse_join(&a, &disorder, &out), "`capacity` of out is 1");
    refused(weft_sparse_kth(NULL, &a, 1, NULL), "`magnitude` is NULL");
    refused(weft_sparse_bounds(&a, 5, 2, bounds), "the last index of list is 5");
    refused(weft_sparse_bounds(&a, 6, 0, bounds), "`regions` is 0");
    refused(weft_sparse_bounds(&a, 6, 2, NULL), "`bounds` is NULL");
    refused(weft_sparse_region_limits(1, 0, &share, &share), "`ranks` is 0");
    refused(weft_sparse_region_limits(SIZE_MAX, 2, &share, &share), "`k` is");
    refused(weft_sparse_region_limits(1, 2, NULL, &share), "`share` is NULL");
    struct weft_op *op = NULL;
    refused(weft_sparse_op(WEFT_SPARSE_OP_COUNT, &op), "`kind` is 8");
    refused(weft_sparse_op_create(&op, NULL), "`config` is NULL");
    refused(weft_sparse_op_create(NULL, &(struct weft_sparse_op_config){.struct_size = 16}),
            "`op` is NULL");
    refused(
        weft_sparse_op_create(&op, &(struct weft_sparse_op_config){.struct_size = 16, .nan = 7}),
        "`nan` is 7");
    put(&out, 0, NAN);
    cr_expect_eq(weft_sparse_keep(NULL, &out, 0, 1, &a, NULL, NULL), WEFT_ERR_COMPUTE);
    cr_expect_eq(weft_sparse_sum(NULL, &out, 1, &a, NULL), WEFT_ERR_COMPUTE);
    cr_expect_eq(weft_sparse_kth(NULL, &out, 1, &magnitude), WEFT_ERR_COMPUTE);
    release(&a);
    release(&b);
    release(&out);
    release(&disorder);
}

/* ---- as operations of schedules ---- */

/* Letters as runtime/sparse/ops.c has them; capitals are written. */
Test(sparse_regions, what_operations_write_is_not_only_read)
{
    static const char *const regions[] = {
        [WEFT_SPARSE_MERGE] = "LllWkR",  [WEFT_SPARSE_PART] = "LlbWkR",
        [WEFT_SPARSE_SUM] = "LWll",      [WEFT_SPARSE_KEEP] = "LltWkR",
        [WEFT_SPARSE_JOIN] = "Lll",      [WEFT_SPARSE_BOUNDS] = "blr",
        [WEFT_SPARSE_SELECT] = "LRrWkT", [WEFT_SPARSE_ABOVE] = "LRrWt",
    };

    for (int kind = 0; kind < WEFT_SPARSE_OP_COUNT; kind++)
        for (size_t wrong = 0; wrong <= strlen(regions[kind]); wrong++) {
            struct weft_compute_argument arguments[6];
            struct weft_schedule *s;
            struct weft_op *op;
            int written = 0;

            cr_assert_eq(weft_schedule_create(&s, 0, 1), WEFT_OK);
            cr_assert_eq(weft_sparse_op((weft_sparse_op_kind_t)kind, &op), WEFT_OK);
            for (size_t i = 0; regions[kind][i]; i++) {
                const char letter = regions[kind][i];
                const weft_slot_t slot = weft_schedule_add_slot(
                    s, (char[]){letter, (char)('0' + i), '\0'},
                    strchr("tTrR", letter) ? WEFT_F32 : WEFT_U64, 4, WEFT_SLOT_INOUT);
                const int writes = letter >= 'A' && letter <= 'Z';

                arguments[i] = (struct weft_compute_argument){
                    .region = weft_region_at(slot, 0, 4),
                    .access = writes && i != wrong ? WEFT_UPDATE : WEFT_READ};
                written |= writes && i == wrong;
            }
            weft_node_t node =
                weft_schedule_add_compute(s, op, arguments, strlen(regions[kind]), 0);

            cr_expect_eq(node, written ? WEFT_ERR_INVALID : 0, "%s, region %zu: %d %s",
                         weft_op_name(op), wrong, node, weft_error_text());
            weft_op_destroy(op);
            weft_schedule_destroy(s);
        }
}
