/* SPDX-License-Identifier: BSD-3-Clause */
/* Data for selections by magnitude, ordinary and adversarial, and what a sort selects of it. */
#ifndef WEFT_TESTS_SELECTION_H
#define WEFT_TESTS_SELECTION_H

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "ops/kernels.h"

enum { GUARD = 0x5a };

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};

/* ---- elements ---- */

static inline uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline double uniform(uint64_t *state)
{
    return ((double)(next_random(state) >> 11) + 0.5) * 0x1p-53;
}

static inline double normal(uint64_t *state)
{
    const double radius = sqrt(-2 * log(uniform(state)));

    return radius * cos(6.283185307179586 * uniform(state));
}

static inline void put_bits(void *array, size_t i, weft_dtype_t dtype, uint64_t bits)
{
    const size_t size = weft_dtype_size(dtype);
    char *to = (char *)array + i * size;
    const uint16_t half = (uint16_t)bits;
    const uint32_t word = (uint32_t)bits;

    memcpy(to, size == 2 ? (const void *)&half : size == 4 ? (const void *)&word : &bits, size);
}

static inline uint64_t bits_at(const void *array, size_t i, weft_dtype_t dtype)
{
    const size_t size = weft_dtype_size(dtype);
    const char *from = (const char *)array + i * size;
    uint16_t half;
    uint32_t word;
    uint64_t bits;

    memcpy(size == 2 ? (void *)&half : size == 4 ? (void *)&word : &bits, from, size);
    return size == 2 ? half : size == 4 ? word : bits;
}

static inline uint64_t magnitude_of(uint64_t bits, weft_dtype_t dtype)
{
    return bits & (UINT64_MAX >> (65 - 8 * weft_dtype_size(dtype)));
}

static inline uint64_t infinity_of(weft_dtype_t dtype)
{
    return dtype == WEFT_F16    ? 0x7c00
           : dtype == WEFT_BF16 ? 0x7f80
           : dtype == WEFT_F32  ? 0x7f800000
                                : UINT64_C(0x7ff0000000000000);
}

static inline int is_nan(uint64_t bits, weft_dtype_t dtype)
{
    return magnitude_of(bits, dtype) > infinity_of(dtype);
}

static inline void put(void *array, size_t i, weft_dtype_t dtype, double value)
{
    const float narrow = (float)value;
    uint32_t word;
    uint64_t bits;

    memcpy(&word, &narrow, sizeof word);
    memcpy(&bits, &value, sizeof bits);
    put_bits(array, i, dtype,
             dtype == WEFT_F16    ? weft__f32_to_f16(narrow)
             : dtype == WEFT_BF16 ? weft__f32_to_bf16(narrow)
             : dtype == WEFT_F32  ? word
                                  : bits);
}

static inline double number(uint64_t bits, weft_dtype_t dtype)
{
    const uint32_t word = (uint32_t)bits;
    float narrow;
    double value;

    memcpy(&narrow, &word, sizeof narrow);
    memcpy(&value, &bits, sizeof value);
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

static inline double value_of_kind(enum kind kind, size_t i, size_t n, uint64_t *state)
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

static inline void fill(void *array, size_t n, weft_dtype_t dtype, enum kind kind, uint64_t seed)
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

static inline int best_first(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;

    if (p->key != q->key)
        return p->key > q->key ? -1 : 1;
    return (p->index > q->index) - (p->index < q->index);
}

static inline int by_index(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;

    return (p->index > q->index) - (p->index < q->index);
}

static inline struct entry *sorted(const void *values, size_t n, weft_dtype_t dtype)
{
    struct entry *entries = malloc((n + 1) * sizeof *entries);

    cr_assert_not_null(entries);
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = bits_at(values, i, dtype);

        if (is_nan(bits, dtype))
            bits = 0;
        entries[i] = (struct entry){magnitude_of(bits, dtype), bits, i};
    }
    qsort(entries, n, sizeof *entries, best_first);
    return entries;
}

/* The first k of them by index; the caller frees. */
static inline struct entry *best(const struct entry *entries, size_t k)
{
    struct entry *chosen = malloc((k + 1) * sizeof *chosen);

    cr_assert_not_null(chosen);
    memcpy(chosen, entries, k * sizeof *chosen);
    qsort(chosen, k, sizeof *chosen, by_index);
    return chosen;
}

/* ---- a selection and its output, in blocks with guards, `shift` bytes from their alignment ----
 */

struct output {
    struct weft_sparse pairs;
    char *index_block;
    char *value_block;
    size_t index_bytes;
    size_t value_bytes;
    size_t shift;
};

static inline void open_output(struct output *out, weft_dtype_t dtype, weft_dtype_t index_dtype,
                               size_t capacity, size_t shift)
{
    out->index_bytes = capacity * weft_dtype_size(index_dtype);
    out->value_bytes = capacity * weft_dtype_size(dtype);
    out->shift = shift;
    out->index_block = malloc(out->index_bytes + shift + 64);
    out->value_block = malloc(out->value_bytes + shift + 64);
    cr_assert(out->index_block && out->value_block);
    memset(out->index_block, GUARD, out->index_bytes + shift + 64);
    memset(out->value_block, GUARD, out->value_bytes + shift + 64);
    out->pairs = (struct weft_sparse){.indices = out->index_block + shift,
                                      .values = out->value_block + shift,
                                      .capacity = capacity,
                                      .index_dtype = index_dtype,
                                      .dtype = dtype};
}

static inline size_t spoilt(const char *block, size_t from, size_t to)
{
    size_t count = 0;

    for (size_t i = from; i < to; i++)
        count += block[i] != GUARD;
    return count;
}

static inline void close_output(struct output *out)
{
    cr_expect_eq(spoilt(out->index_block, 0, out->shift), 0);
    cr_expect_eq(spoilt(out->value_block, 0, out->shift), 0);
    cr_expect_eq(spoilt(out->index_block + out->shift + out->index_bytes, 0, 64), 0);
    cr_expect_eq(spoilt(out->value_block + out->shift + out->value_bytes, 0, 64), 0);
    free(out->index_block);
    free(out->value_block);
}

static inline uint64_t index_of(const struct weft_sparse *pairs, size_t i)
{
    uint32_t narrow;
    uint64_t wide;

    if (pairs->index_dtype == WEFT_U64) {
        memcpy(&wide, (const char *)pairs->indices + 8 * i, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)pairs->indices + 4 * i, sizeof narrow);
    return narrow;
}

static inline void expect_pairs(const struct weft_sparse *pairs, const struct entry *chosen,
                                size_t k, const char *what)
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

#endif
