/* SPDX-License-Identifier: BSD-3-Clause */
/* The k-th largest magnitude, digit by digit, of a vector or a list. What is known of it lies in a
 * struct weft_gpu_select in device memory, so that no step waits for the host.
 *
 * Selecting the k largest entries of a vector exactly, by this source and select.cu (`capacity`:
 * pairs that scratch memory has room for, at least k; reads of the whole vector in brackets):
 *
 *   weft_topk_count      [1] a digit of 11 bits: how many keys have each value of it, and which is
 *                        the k-th's. Addends are added on the way.
 *   weft_topk_wide       [0 or 1] of f32, if more than `capacity` entries might still be selected:
 *                        all other bits, 20, at once
 *   weft_select_gather   [1] the entries that might be selected; they are `capacity` at most, but
 *                        for those that are equal in all bits
 *   weft_select_write    them, as a list in the order of indices
 *
 * then the same over that list, until all bits are known. So a vector of f32 is read twice where
 * the first digit leaves no more than `capacity`, as of most data, and three times at most; one of
 * halves, whose second digit is the last, likewise. One of f64 is read up to seven times.
 *
 * With a guess from the selection before (weft_select_gather, first): once, if at least k entries
 * reach the guess, and `capacity` at most; else as without one, and once more. */
#include "gpu/kernels/select.cuh"

/* ---- a digit ---- */

/* The value of a digit that the k-th key has, which thread gets to know that thread writes down: of
 * `here` keys with the value `bin`, so many are greater. */
WEFT_DEVICE void settle(weft_gpu_select *select, const weft_gpu_select &before, uint32_t digit,
                        uint64_t bin, uint64_t greater, uint64_t here)
{
    if (here == 0 || greater >= before.wanted || greater + here < before.wanted)
        return;
    select->prefix = before.prefix << digit | bin;
    select->shift = before.shift - digit;
    select->above = greater;
    select->equal = here;
}

/* The digit of the k-th key; totals become 0 again. By the last block. */
WEFT_DEVICE void choose_digit(weft_gpu_select *select, const weft_gpu_select &before,
                              unsigned long long *totals)
{
    uint64_t above = before.above;

    for (unsigned first = 0; first < BINS; first += blockDim.x) {
        const unsigned i = first + threadIdx.x;
        const unsigned bin = BINS - 1 - i; /* from the greatest digit down */
        const uint64_t here = i < BINS ? weft_fresh(totals + bin) : 0;
        uint64_t all;
        const uint64_t greater = above + weft_scan_block(here, &all);

        settle(select, before, digit_of(&before), bin, greater, here);
        if (i < BINS)
            totals[bin] = 0;
        above += all;
    }
}

template <class bits> struct digit_counter {
    unsigned *bins; /* in shared memory */
    uint64_t infinity, prefix, mask;
    uint32_t select_shift, shift;
    bool open;

    WEFT_DEVICE_MEMBER void count(bits x) const
    {
        const uint64_t key = (uint64_t)key_of(x, infinity);

        if (open && key >> select_shift == prefix)
            atomicAdd(&bins[key >> shift & mask], 1u);
    }
};

/* Vectors where both begin alike. */
template <class op, class bits>
WEFT_DEVICE uint64_t count_all(const digit_counter<bits> &counter, typename op::element *x,
                               const typename op::element *addend, uint64_t count, uint32_t flags)
{
    typedef typename op::element element;
    enum { LANES = WEFT_VECTOR / sizeof(element) };
    typedef weft_pack<element, LANES> pack;
    const bool first = flags & WEFT_GPU_FIRST;
    const bool erase = flags & WEFT_GPU_ERASE;
    const unsigned offset = weft_offset(x, WEFT_VECTOR);
    const bool alike = !addend || weft_offset(addend, WEFT_VECTOR) == offset;
    const weft_split split =
        alike ? weft_split_of(count, offset, sizeof(element), LANES) : weft_split{count, 0};
    pack *vectors = (pack *)(x + split.head);
    const pack *addends = (const pack *)(addend ? addend + split.head : nullptr);
    uint64_t nans = 0;

    for (uint64_t i = weft_first(); i < split.vectors; i += weft_step()) {
        pack values = vectors[i];
        const pack added = first && addend ? addends[i] : pack{};
        bool changed = false;

#pragma unroll
        for (int lane = 0; lane < LANES; lane++) {
            if (first)
                changed |= prepare<op>(&values.at[lane], addend, added.at[lane], erase,
                                       counter.infinity, &nans);
            counter.count(bits_of(values.at[lane]));
        }
        if (changed)
            vectors[i] = values;
    }
    for (uint64_t i = weft_first(); i < count - split.vectors * LANES; i += weft_step()) {
        const uint64_t at = weft_single(split, LANES, i);
        element value = x[at];

        if (first && prepare<op>(&value, addend, addend ? addend[at] : element(), erase,
                                 counter.infinity, &nans))
            x[at] = value;
        counter.count(bits_of(value));
    }
    return nans;
}

/* totals[digit] grows by how many keys of the prefix have the digit, in x or (with a range) in a
 * part of it. The first look at a vector prepares it. A block counts fewer than 2^32. */
template <class op, class bits>
WEFT_DEVICE void count_digit(typename op::element *x, const typename op::element *addend,
                             uint64_t count, const uint64_t *range, uint32_t flags,
                             uint64_t infinity, uint64_t capacity, weft_gpu_select *select,
                             unsigned long long *totals)
{
    WEFT_SHARED(unsigned, bins, BINS);
    const weft_gpu_select before = *select;
    const uint32_t digit = digit_of(&before);
    const bool open = is_open(&before, capacity) && (range || !before.gathered);
    const uint32_t looks = before.prepared ? flags & ~(uint32_t)WEFT_GPU_FIRST : flags;
    const digit_counter<bits> counter = {bins,          infinity,
                                         before.prefix, ((uint64_t)1 << digit) - 1,
                                         before.shift,  before.shift - digit,
                                         open};

    if (!open && !(looks & WEFT_GPU_FIRST))
        return;
    for (unsigned i = threadIdx.x; i < BINS; i += blockDim.x)
        bins[i] = 0;
    __syncthreads();
    const uint64_t nans = count_all<op, bits>(counter, x + (range ? range[0] : 0), addend,
                                              range ? range[1] - range[0] : count, looks);

    if (nans > 0)
        atomicAdd(&select->nans, (unsigned long long)nans);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < BINS; i += blockDim.x)
        if (bins[i] > 0)
            atomicAdd(&totals[i], (unsigned long long)bins[i]);
    if (!weft_is_last(&select->blocks))
        return;
    if (open)
        choose_digit(select, before, totals);
    if (threadIdx.x == 0 && looks & WEFT_GPU_FIRST)
        select->prepared = 1;
}

/* ---- 20 bits at once, of a vector of f32 ---- */

enum { WIDE = WEFT_TOPK_WIDE, HALF = WIDE / 2, HALVES = 1 << HALF };

/* Of `totals` those that have the k-th key, in two steps: by the upper half of the digit, whose
 * totals are behind those of the whole, then by the lower half. By the last block. */
WEFT_DEVICE void choose_wide(weft_gpu_select *select, const weft_gpu_select &before,
                             const unsigned long long *totals)
{
    WEFT_SHARED(uint64_t, found, 2); /* the upper half, and how many keys are greater */
    uint64_t above = before.above;

    for (int step = 0; step < 2; step++) {
        const unsigned long long *at =
            step == 0 ? totals + ((uint64_t)1 << WIDE) : totals + found[0] * HALVES;

        for (unsigned first = 0; first < HALVES; first += blockDim.x) {
            const unsigned i = first + threadIdx.x;
            const unsigned bin = HALVES - 1 - i;
            const uint64_t here = i < HALVES ? weft_fresh(at + bin) : 0;
            uint64_t all;
            const uint64_t greater = above + weft_scan_block(here, &all);

            if (step == 1)
                settle(select, before, WIDE, found[0] * HALVES + bin, greater, here);
            else if (here > 0 && greater < before.wanted && greater + here >= before.wanted) {
                found[0] = bin;
                found[1] = greater;
            }
            above += all;
        }
        __syncthreads();
        above = found[1];
    }
}

/* After the first digit, if it has left too many. totals: 2^20 + 2^10, all 0 before. Threads of a
 * warp that count the same add once. */
WEFT_KERNEL __launch_bounds__(512)
    weft_topk_wide_f32(const void *x, uint64_t count, uint64_t capacity, weft_gpu_select *select,
                       unsigned long long *totals)
{
    const weft_gpu_select before = *select;
    const uint32_t *bits = (const uint32_t *)x;
    const uint64_t all = (count + weft_step() - 1) / weft_step() * weft_step();

    if (before.gathered || before.shift != WIDE || !is_open(&before, capacity))
        return;
    for (uint64_t i = weft_first(); i < all; i += weft_step()) {
        const uint32_t key = i < count ? key_of(bits[i], WEFT_INFINITY_F32) : 0;
        const bool counts = i < count && key >> WIDE == before.prefix;
        const uint32_t digit = counts ? key & ((1u << WIDE) - 1) : ~0u;
        const unsigned same = __match_any_sync(0xffffffffu, digit);

        if (counts && (unsigned)__ffs((int)same) - 1 == threadIdx.x % WEFT_WARP) {
            const unsigned long long number = (unsigned long long)__popc(same);

            atomicAdd(&totals[digit], number);
            atomicAdd(&totals[((uint64_t)1 << WIDE) + (digit >> HALF)], number);
        }
    }
    if (weft_is_last(&select->blocks))
        choose_wide(select, before, totals);
}

/* ---- kernels ---- */

#define OF_FORMAT(format, bits, infinity)                                                          \
    WEFT_KERNEL __launch_bounds__(512) weft_topk_count_##format(                                   \
        void *x, const void *addend, uint64_t count, const uint64_t *range, uint32_t flags,        \
        uint64_t capacity, weft_gpu_select *select, unsigned long long *totals)                    \
    {                                                                                              \
        typedef op_sum_##format op;                                                                \
                                                                                                   \
        count_digit<op, uint##bits##_t>((op::element *)x, (const op::element *)addend, count,      \
                                        range, flags, infinity, capacity, select, totals);         \
    }

OF_FORMAT(f16, 16, WEFT_INFINITY_F16)
OF_FORMAT(bf16, 16, WEFT_INFINITY_BF16)
OF_FORMAT(f32, 32, WEFT_INFINITY_F32)
OF_FORMAT(f64, 64, WEFT_INFINITY_F64)

/* A selection of a vector begins: of the k largest of `count`, by a guess if there is a hint that
 * is one; or of what reaches a threshold, which is refused if it is no magnitude: then nothing is
 * touched. The totals become 0. One block. */
WEFT_KERNEL __launch_bounds__(1024)
    weft_select_begin(weft_gpu_select *select, uint64_t k, uint64_t count, uint32_t key_bits,
                      const float *hint, const float *threshold, unsigned long long *totals)
{
    for (unsigned i = threadIdx.x; i < BINS; i += blockDim.x)
        totals[i] = 0;
    if (threadIdx.x > 0)
        return;
    const uint32_t guess = hint ? __float_as_uint(*hint) : 0;

    *select = weft_gpu_select{};
    select->k = k;
    select->guessed = guess > 0 && guess < WEFT_INFINITY_F32;
    if (threshold) {
        select->wanted = UINT64_MAX;
        select->prefix = magnitude_of(__float_as_uint(*threshold));
        select->refused = !(*threshold >= 0);
    } else if (select->guessed) {
        select->wanted = UINT64_MAX;
        select->prefix = guess;
    } else {
        select->wanted = k < count ? k : count;
        select->equal = count;
        select->shift = key_bits;
    }
}
