/* SPDX-License-Identifier: BSD-3-Clause */
/* Arithmetic on lists of (index, value) pairs with ascending indices. Widths are in bytes: of an
 * index 4 or 8, of a value that of its datatype. */
#ifndef WEFT_OPS_SPARSE_H
#define WEFT_OPS_SPARSE_H

#include "ops/kernels.h"

struct weft__pairs {
    void *indices;
    void *values;
    size_t count;
};

static inline size_t weft__sparse_value_size(weft_dtype_t dtype)
{
    return dtype == WEFT_F64 ? 8 : dtype == WEFT_F32 ? 4 : 2;
}

/* The first position whose index is not above the one before, or `count`. */
size_t weft__sparse_disorder(const void *indices, int wide, size_t count);

/* The largest index; 0 of none. */
uint64_t weft__sparse_largest(const void *indices, int wide, size_t count);

/* a + b to `sum`, which overlaps neither and has room for both; sets sum->count. */
void weft__sparse_add(const struct weft__pairs *a, const struct weft__pairs *b, int wide,
                      weft_dtype_t dtype, struct weft__pairs *sum);

/* The first position whose index is not below `index`. */
size_t weft__sparse_lower_bound(const struct weft__pairs *pairs, int wide, uint64_t index);

/* The sum of `count` lists along a balanced binary tree to `sum`, with `spare` to work in: each has
 * room for all pairs together, and overlaps nothing; sets sum->count. */
void weft__sparse_sum(const struct weft__pairs *lists, size_t count, int wide, weft_dtype_t dtype,
                      struct weft__pairs *sum, const struct weft__pairs *spare);

/* `count` pairs from place `first` of a list to place `at` of another. */
void weft__sparse_copy(const struct weft__pairs *to, size_t at, const struct weft__pairs *from,
                       size_t first, size_t count, int wide, weft_dtype_t dtype);

/* Both lists as one; returns its pairs: fewer than both have if an index is in both. */
size_t weft__sparse_join(const struct weft__pairs *a, const struct weft__pairs *b, int wide,
                         weft_dtype_t dtype, struct weft__pairs *to);

/* Splits pairs into those above `key`, with the first `ties` of those equal to it, which are moved
 * to the front, and the others, which go to `rest` (room for all of them), and sets both counts. */
void weft__sparse_split(struct weft__pairs *pairs, int wide, weft_dtype_t dtype, uint64_t key,
                        size_t ties, struct weft__pairs *rest);

/* NaNs become +0; returns how many there were. */
size_t weft__sparse_clear_nans(void *values, weft_dtype_t dtype, size_t count);

/* dense[index] += scale * value; indices have been checked. */
void weft__sparse_scatter(const struct weft__pairs *pairs, int wide, weft_dtype_t dtype,
                          double scale, void *dense);

/* dense[index] += value where `kept` does not have the index. */
void weft__sparse_put_back(const struct weft__pairs *own, const struct weft__pairs *kept, int wide,
                           weft_dtype_t dtype, void *dense);

#endif
