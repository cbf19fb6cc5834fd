/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of numbers (ops/topk.h), and which entries a selection takes. */
#ifndef WEFT_GPU_KERNELS_SELECT_CUH
#define WEFT_GPU_KERNELS_SELECT_CUH

#include "gpu/kernels/arguments.h"
#include "gpu/kernels/list.h"
#include "gpu/kernels/operations.cuh"
#include "gpu/kernels/scan.cuh"

enum { DIGIT = 11, BINS = 1 << DIGIT, ITEMS = WEFT_SELECT_ITEMS };

WEFT_DEVICE uint16_t bits_of(uint16_t x)
{
    return x;
}

WEFT_DEVICE uint32_t bits_of(float x)
{
    return __float_as_uint(x);
}

WEFT_DEVICE uint64_t bits_of(double x)
{
    return (uint64_t)__double_as_longlong(x);
}

template <class bits> WEFT_DEVICE bits magnitude_of(bits x)
{
    return (bits)(x & (bits)((bits) ~(bits)0 >> 1));
}

/* NaNs count as zeros. */
template <class bits> WEFT_DEVICE bits key_of(bits x, uint64_t infinity)
{
    const bits key = magnitude_of(x);

    return key > infinity ? (bits)0 : key;
}

/* Whether a digit is still to be found, lest more than `capacity` entries might be selected. */
WEFT_DEVICE bool is_open(const weft_gpu_select *select, uint64_t capacity)
{
    return select->shift > 0 && select->above + select->equal > capacity;
}

WEFT_DEVICE uint32_t digit_of(const weft_gpu_select *select)
{
    return select->shift < DIGIT ? select->shift : (uint32_t)DIGIT;
}

/* How many of the entries that are equal to the prefix are taken. */
WEFT_DEVICE uint64_t limit_of(const weft_gpu_select *select)
{
    return select->shift == 0 ? select->wanted - select->above : select->equal;
}

/* Adds to an element what is to be added, and makes +0 of a NaN that is to be erased: 1 if it may
 * have changed. */
template <class op>
WEFT_DEVICE bool prepare(typename op::element *x, bool adds, typename op::element addend,
                         bool erase, uint64_t infinity, uint64_t *nans)
{
    if (adds)
        *x = op::narrow(op::combine(op::widen(*x), op::widen(addend)));
    const bool is_nan = magnitude_of(bits_of(*x)) > infinity;

    *nans += is_nan;
    if (is_nan && erase)
        *x = 0;
    return adds || (is_nan && erase);
}

/* ---- entries of one thread ---- */

/* Above the prefix, or of it. */
template <class bits, class index> struct chosen {
    bits value[ITEMS];
    index at[ITEMS];
    uint32_t above; /* a bit each */
    uint32_t equal;
    uint64_t counts; /* above, and equal in the upper half */
};

template <class bits, class index> WEFT_DEVICE void count_chosen(chosen<bits, index> *own)
{
    own->counts = (uint64_t)__popc(own->above) | (uint64_t)__popc(own->equal) << 32;
}

/* How many entries are above the prefix, and equal to it, in the chunks before; last, of all. */
struct chunk_tables {
    uint64_t *above;
    uint64_t *equal;
    uint64_t *starts; /* where they are in scratch memory */
};

/* The place of an entry among those that are written: what is equal comes up to `limit`. */
WEFT_DEVICE uint64_t place_of(uint64_t above, uint64_t equal, uint64_t limit)
{
    return above + (equal < limit ? equal : limit);
}

/* How many pairs a write gives: by tables that have been scanned, of so many chunks. */
WEFT_DEVICE uint64_t pairs_of(const chunk_tables &tables, uint64_t chunks, uint64_t limit,
                              uint64_t most)
{
    const uint64_t all = place_of(tables.above[chunks], tables.equal[chunks], limit);

    return all < most ? all : most;
}

#endif
