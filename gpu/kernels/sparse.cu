/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of (index, value) pairs with ascending indices: to a dense vector, and the sum of two.
 *
 * A sum is a merge. The two lists, walked in the order of indices with a's first among equals, are
 * cut into tiles of WEFT_MERGE_TILE steps; a cut never parts two pairs of one index, so that a tile
 * may have one step more and the next one less. Three kernels in order:
 *
 *   weft_merge_split   where each tile begins in a: splits[0 .. tiles], a search each
 *   weft_merge_count   how many pairs each tile gives: an index of both lists gives one; where each
 *                      tile's pairs go, and how many there are in all
 *   weft_merge_write   the pairs
 *
 * How long the lists are may be known to the device alone. Lists in disorder, which would lead
 * anywhere, count as empty: `disorder` says so (lists.cu).
 *
 * Nothing depends on the order of threads or blocks. The sum is that of ops/sparse.c, but for the
 * payload of a NaN that it adds (gpu/kernels/operations.cuh). */
#include "gpu/kernels/arguments.h"
#include "gpu/kernels/list.h"
#include "gpu/kernels/operations.cuh"
#include "gpu/kernels/scan.cuh"

/* ---- to a dense vector ---- */

template <class number> WEFT_DEVICE number number_at(const void *from, unsigned format, uint64_t at)
{
    return format == WEFT_GPU_F16    ? (number)weft_widen_f16(((const uint16_t *)from)[at])
           : format == WEFT_GPU_BF16 ? (number)weft_widen_bf16(((const uint16_t *)from)[at])
           : format == WEFT_GPU_F32  ? (number)((const float *)from)[at]
                                     : (number)((const double *)from)[at];
}

WEFT_DEVICE void set_number(void *to, unsigned format, uint64_t at, float x)
{
    if (format == WEFT_GPU_F16)
        ((uint16_t *)to)[at] = weft_narrow_f16(x);
    else if (format == WEFT_GPU_BF16)
        ((uint16_t *)to)[at] = weft_narrow_bf16(x);
    else if (format == WEFT_GPU_F32)
        ((float *)to)[at] = x;
    else
        ((double *)to)[at] = (double)x;
}

/* Rounds the product, and the sum; halves once. */
WEFT_DEVICE void add_at(const weft_gpu_scatter &of, uint64_t at, uint64_t i)
{
    double *wide = (double *)of.dense;

    if (of.format == WEFT_GPU_F64)
        wide[at] = wide[at] + of.scale * number_at<double>(of.values, of.value_format, i);
    else
        set_number(of.dense, of.format, at,
                   number_at<float>(of.dense, of.format, at) +
                       (float)of.scale * number_at<float>(of.values, of.value_format, i));
}

/* Bit by bit where the datatype stays. */
WEFT_DEVICE void set_at(const weft_gpu_scatter &of, uint64_t at, uint64_t i)
{
    if (!of.values)
        set_number(of.dense, of.format, at, 0);
    else if (of.value_format != of.format)
        set_number(of.dense, of.format, at, number_at<float>(of.values, of.value_format, i));
    else if (of.format == WEFT_GPU_F64)
        ((uint64_t *)of.dense)[at] = ((const uint64_t *)of.values)[i];
    else if (of.format == WEFT_GPU_F32)
        ((uint32_t *)of.dense)[at] = ((const uint32_t *)of.values)[i];
    else
        ((uint16_t *)of.dense)[at] = ((const uint16_t *)of.values)[i];
}

/* dense[index] += scale * value, or becomes the value. Values are of the datatype of the dense
 * vector, or f32. No index comes twice, so threads do not meet. Any grid of one dimension. */
WEFT_KERNEL weft_scatter(const weft_gpu_scatter of)
{
    for (uint64_t i = weft_first(); i < of.count; i += weft_step()) {
        const uint64_t at =
            of.wide ? ((const uint64_t *)of.indices)[i] : ((const uint32_t *)of.indices)[i];

        if (of.adds)
            add_at(of, at, i);
        else
            set_at(of, at, i);
    }
}

/* ---- places ---- */

/* The first of `count` indices that is not below `index`. */
template <class type> WEFT_DEVICE uint64_t lower_bound(const type *at, uint64_t count, type index)
{
    uint64_t low = 0;
    uint64_t high = count;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;

        if (at[middle] < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many of the first `steps` of the walk are in a: the least i such that a[i] comes behind
 * b[steps - i - 1]. */
template <class type>
WEFT_DEVICE uint64_t steps_in_a(const type *a, uint64_t a_count, const type *b, uint64_t b_count,
                                uint64_t steps)
{
    uint64_t low = steps > b_count ? steps - b_count : 0;
    uint64_t high = steps < a_count ? steps : a_count;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;

        if (a[middle] <= b[steps - middle - 1])
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where a tile begins in both lists. */
struct corner {
    uint64_t a;
    uint64_t b;
};

template <class type>
WEFT_DEVICE corner corner_of(const type *a, uint64_t a_count, const type *b, uint64_t b_count,
                             const uint64_t *splits, uint64_t tile)
{
    const uint64_t whole = a_count + b_count;
    const uint64_t steps =
        tile > whole / WEFT_MERGE_TILE ? whole : tile * (uint64_t)WEFT_MERGE_TILE;
    corner at = {splits[tile], steps - splits[tile]};

    /* The same index, whose step in b would come next: it belongs to the tile before. */
    if (at.a > 0 && at.b < b_count && a[at.a - 1] == b[at.b])
        at.b++;
    return at;
}

/* ---- two lists ---- */

template <class type> struct merge_lists {
    const type *a;
    const type *b;
    uint64_t a_count;
    uint64_t b_count;
    uint64_t a_begin; /* where their pairs are in their arrays */
    uint64_t b_begin;
    uint64_t tiles;
};

WEFT_DEVICE uint64_t begin_of(const weft_gpu_list &list)
{
    return list.range ? list.range[0] : 0;
}

WEFT_DEVICE uint64_t length_of(const weft_gpu_list &list)
{
    return list.range ? list.range[1] - list.range[0] : list.count;
}

template <class type>
WEFT_DEVICE merge_lists<type> open_lists(const weft_gpu_list &a, const weft_gpu_list &b,
                                         const unsigned long long *disorder)
{
    merge_lists<type> lists = {(const type *)a.indices + begin_of(a),
                               (const type *)b.indices + begin_of(b),
                               length_of(a),
                               length_of(b),
                               begin_of(a),
                               begin_of(b),
                               0};

    if (*disorder != UINT64_MAX)
        lists.a_count = lists.b_count = 0;
    lists.tiles = (lists.a_count + lists.b_count + WEFT_MERGE_TILE - 1) / WEFT_MERGE_TILE;
    return lists;
}

/* Any grid of one dimension. */
template <class type> WEFT_DEVICE void merge_split(const merge_lists<type> &lists, uint64_t *splits)
{
    const uint64_t whole = lists.a_count + lists.b_count;

    for (uint64_t tile = weft_first(); tile <= lists.tiles; tile += weft_step()) {
        const uint64_t steps = tile == lists.tiles ? whole : tile * WEFT_MERGE_TILE;

        splits[tile] = steps_in_a(lists.a, lists.a_count, lists.b, lists.b_count, steps);
    }
}

/* ---- a tile in shared memory ---- */

template <class type> struct tile_of {
    type *a; /* indices of a, then those of b: in shared memory */
    type *b;
    corner begin;
    uint32_t a_count;
    uint32_t b_count;
};

template <class type>
WEFT_DEVICE tile_of<type> load_tile(const merge_lists<type> &lists, const uint64_t *splits,
                                    uint64_t number, type *memory)
{
    const corner begin = corner_of(lists.a, lists.a_count, lists.b, lists.b_count, splits, number);
    const corner end =
        corner_of(lists.a, lists.a_count, lists.b, lists.b_count, splits, number + 1);
    tile_of<type> tile = {memory, memory + (end.a - begin.a), begin, (uint32_t)(end.a - begin.a),
                          (uint32_t)(end.b - begin.b)};

    for (uint32_t i = threadIdx.x; i < tile.a_count; i += blockDim.x)
        tile.a[i] = lists.a[begin.a + i];
    for (uint32_t i = threadIdx.x; i < tile.b_count; i += blockDim.x)
        tile.b[i] = lists.b[begin.b + i];
    __syncthreads();
    return tile;
}

/* Where an index is in b's part of a tile, or would be. */
template <class type> WEFT_DEVICE uint32_t place_in(const type *indices, uint32_t count, type index)
{
    return (uint32_t)lower_bound(indices, count, index);
}

/* counts[tile]: pairs of the tiles before it; range: those of all, from 0 on. Any grid of one
 * dimension, of blocks of whole warps. */
template <class type>
WEFT_DEVICE void merge_count(const merge_lists<type> &lists, const uint64_t *splits,
                             uint64_t *counts, uint64_t *range, uint32_t *done)
{
    WEFT_SHARED(type, memory, WEFT_MERGE_TILE + 1);

    for (uint64_t number = blockIdx.x; number < lists.tiles; number += gridDim.x) {
        const tile_of<type> tile = load_tile(lists, splits, number, memory);
        uint64_t both = 0;
        uint64_t all;

        for (uint32_t i = threadIdx.x; i < tile.a_count; i += blockDim.x) {
            const uint32_t at = place_in(tile.b, tile.b_count, tile.a[i]);

            both += at < tile.b_count && tile.b[at] == tile.a[i];
        }
        weft_scan_block(both, &all);
        if (threadIdx.x == 0)
            counts[number] = tile.a_count + tile.b_count - all;
    }
    if (!weft_is_last(done))
        return;
    const uint64_t all = weft_scan_counts(counts, lists.tiles);

    if (threadIdx.x == 0) {
        range[0] = 0;
        range[1] = all;
    }
}

/* before[i]: indices of a's part before the i-th that are in b's, too; i <= a_count. */
template <class type> WEFT_DEVICE void count_both(const tile_of<type> &tile, uint16_t *before)
{
    uint64_t sum = 0;

    for (uint32_t first = 0; first < tile.a_count; first += blockDim.x) {
        const uint32_t i = first + threadIdx.x;
        uint64_t both = 0;
        uint64_t all;

        if (i < tile.a_count) {
            const uint32_t at = place_in(tile.b, tile.b_count, tile.a[i]);

            both = at < tile.b_count && tile.b[at] == tile.a[i];
        }
        const uint64_t here = weft_scan_block(both, &all);

        if (i < tile.a_count)
            before[i] = (uint16_t)(sum + here);
        sum += all;
    }
    if (threadIdx.x == 0)
        before[tile.a_count] = (uint16_t)sum;
    __syncthreads();
}

/* Where the pairs of a tile are, and where they go. */
template <class element, class type> struct merge_values {
    const element *a;
    const element *b;
    type *index;
    element *value;
};

template <class op, class type>
WEFT_DEVICE void write_tile(const merge_values<typename op::element, type> &of,
                            const tile_of<type> &tile, const uint16_t *before, uint64_t offset)
{
    typedef typename op::element element;
    const element *a_value = of.a + tile.begin.a;
    const element *b_value = of.b + tile.begin.b;
    type *index = of.index + offset;
    element *value = of.value + offset;

    for (uint32_t i = threadIdx.x; i < tile.a_count; i += blockDim.x) {
        const uint32_t at = place_in(tile.b, tile.b_count, tile.a[i]);
        const uint32_t to = i + at - before[i];
        const bool both = at < tile.b_count && tile.b[at] == tile.a[i];

        index[to] = tile.a[i];
        value[to] = both ? op::narrow(op::combine(op::widen(a_value[i]), op::widen(b_value[at])))
                         : a_value[i];
    }
    for (uint32_t j = threadIdx.x; j < tile.b_count; j += blockDim.x) {
        const uint32_t at = place_in(tile.a, tile.a_count, tile.b[j]);
        const uint32_t to = j + at - before[at];

        if (at < tile.a_count && tile.a[at] == tile.b[j])
            continue; /* written with a's */
        index[to] = tile.b[j];
        value[to] = b_value[j];
    }
}

/* offsets[tile], range: what counting has made of them. Without `value` values follow the indices
 * that there are. A grid and blocks as for counting. */
template <class op, class type>
WEFT_DEVICE void merge_write(const weft_gpu_list &a, const weft_gpu_list &b,
                             const merge_lists<type> &lists, const uint64_t *splits,
                             const uint64_t *offsets, const uint64_t *range, void *index,
                             void *value)
{
    typedef typename op::element element;
    WEFT_SHARED(type, memory, WEFT_MERGE_TILE + 1);
    WEFT_SHARED(uint16_t, before, WEFT_MERGE_TILE + 2);
    const merge_values<element, type> of = {
        (const element *)a.values + lists.a_begin, (const element *)b.values + lists.b_begin,
        (type *)index, (element *)(value ? value : (type *)index + range[1])};

    for (uint64_t number = blockIdx.x; number < lists.tiles; number += gridDim.x) {
        const tile_of<type> tile = load_tile(lists, splits, number, memory);

        count_both(tile, before);
        write_tile<op>(of, tile, before, offsets[number]);
        __syncthreads();
    }
}

/* ---- kernels ---- */

#define OF_INDEX(bits)                                                                             \
    WEFT_KERNEL weft_merge_split_u##bits(weft_gpu_list a, weft_gpu_list b,                         \
                                         const unsigned long long *disorder, uint64_t *splits)     \
    {                                                                                              \
        merge_split(open_lists<uint##bits##_t>(a, b, disorder), splits);                           \
    }                                                                                              \
    WEFT_KERNEL __launch_bounds__(1024) weft_merge_count_u##bits(                                  \
        weft_gpu_list a, weft_gpu_list b, const unsigned long long *disorder,                      \
        const uint64_t *splits, uint64_t *counts, uint64_t *range, uint32_t *done)                 \
    {                                                                                              \
        merge_count(open_lists<uint##bits##_t>(a, b, disorder), splits, counts, range, done);      \
    }

OF_INDEX(32)
OF_INDEX(64)

#define OF_FORMAT(format, bits)                                                                    \
    WEFT_KERNEL __launch_bounds__(1024) weft_merge_write_##format##_u##bits(                       \
        weft_gpu_list a, weft_gpu_list b, const unsigned long long *disorder,                      \
        const uint64_t *splits, const uint64_t *offsets, const uint64_t *range, void *index,       \
        void *value)                                                                               \
    {                                                                                              \
        merge_write<op_sum_##format>(a, b, open_lists<uint##bits##_t>(a, b, disorder), splits,     \
                                     offsets, range, index, value);                                \
    }

OF_FORMAT(f16, 32)
OF_FORMAT(bf16, 32)
OF_FORMAT(f32, 32)
OF_FORMAT(f64, 32)
OF_FORMAT(f16, 64)
OF_FORMAT(bf16, 64)
OF_FORMAT(f32, 64)
OF_FORMAT(f64, 64)
