/* SPDX-License-Identifier: BSD-3-Clause */
/* What operations on lists of pairs do beside merging (sparse.cu): lists as nodes of schedules have
 * them, indices u32 and values f32, which lie behind the indices that there are.
 *
 *   weft_list_begin    nothing has been found
 *   weft_list_check    indices that do not ascend, NaNs
 *   weft_list_cut      the part of a list between two bounds
 *   weft_list_select   a selection (topk.cu) of the k largest begins
 *   weft_list_raise    and its prefix becomes a threshold, where that is greater
 *   weft_list_count    how many entries of each chunk are above the prefix, and equal to it
 *   weft_list_write    what stays, to where it belongs; the rest is added to a residual
 *   weft_list_bounds   whether bounds ascend, and a list lies within
 *   weft_list_end      what has been found, to the host
 *
 * Lists come from other ranks: what is wrong with one is told, and nothing of it is written. */
#include "gpu/kernels/select.cuh"

struct view {
    const uint32_t *index;
    const float *value;
    uint64_t count;
};

/* Values of NULL follow the indices. */
WEFT_DEVICE view view_of(const weft_gpu_list &list)
{
    const uint64_t begin = list.range ? list.range[0] : 0;
    view found = {(const uint32_t *)list.indices + begin, (const float *)list.values,
                  list.range ? list.range[1] - begin : list.count};

    found.value = found.value ? found.value + begin : (const float *)(found.index + found.count);
    return found;
}

/* One block. */
WEFT_KERNEL __launch_bounds__(1024)
    weft_list_begin(weft_gpu_chain *chain, unsigned long long *totals)
{
    for (unsigned i = threadIdx.x; totals && i < BINS; i += blockDim.x)
        totals[i] = 0;
    if (threadIdx.x > 0)
        return;
    *chain = weft_gpu_chain{};
    chain->found.disorder = UINT64_MAX;
}

/* ---- checking ---- */

WEFT_DEVICE bool is_nan(float x)
{
    return magnitude_of(bits_of(x)) > WEFT_INFINITY_F32;
}

/* Any grid of one dimension; blocks in number 0, 1 .. go over the lists one after the other. */
WEFT_KERNEL weft_list_check(const __grid_constant__ weft_gpu_lists lists, uint32_t flags,
                            weft_gpu_chain *chain)
{
    uint64_t nans = 0;

    for (uint32_t number = 0; number < lists.count && !chain->loose; number++) {
        const view list = view_of(lists.list[number]);
        bool wrong = false;

        for (uint64_t i = weft_first(); i < list.count; i += weft_step()) {
            if (flags & WEFT_LIST_ORDER && i > 0 && list.index[i - 1] >= list.index[i] && !wrong) {
                atomicMin(&chain->found.disorder, (unsigned long long)number << 48 | i);
                wrong = true;
            }
            if (flags & WEFT_LIST_NANS && is_nan(list.value[i])) {
                nans++;
                if (flags & WEFT_LIST_CLEAR)
                    ((float *)list.value)[i] = 0;
            }
        }
    }
    if (nans > 0)
        atomicAdd(&chain->found.nans, (unsigned long long)nans);
}

/* ---- a part ---- */

WEFT_DEVICE uint64_t place_of_index(const view &list, uint64_t index)
{
    uint64_t low = 0;
    uint64_t high = list.count;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;

        if (list.index[middle] < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* chain->range: the pairs between the first bound and the last. They are taken as they are, unless
 * there are more than `most`. One thread. */
WEFT_KERNEL weft_list_cut(weft_gpu_list of, const uint64_t *bounds, uint64_t bound_count,
                          uint64_t most, weft_gpu_chain *chain)
{
    const view list = view_of(of);
    const uint64_t lower = bounds[0];
    const uint64_t upper = bounds[bound_count - 1];

    chain->found.detail[0] = lower;
    chain->found.detail[1] = upper;
    chain->range[0] = place_of_index(list, lower);
    chain->range[1] = lower <= upper ? place_of_index(list, upper) : chain->range[0];
    chain->found.total = chain->range[1] - chain->range[0];
    chain->loose = chain->found.total <= most;
}

/* ---- what stays ---- */

/* One thread. */
WEFT_KERNEL weft_list_select(weft_gpu_list of, uint64_t k, weft_gpu_chain *chain)
{
    const uint64_t count = view_of(of).count;
    weft_gpu_select *select = &chain->select;

    select->wanted = k < count ? k : count;
    select->equal = count;
    select->shift = 31;
    chain->found.total = count;
}

/* One thread. */
WEFT_KERNEL weft_list_raise(const float *threshold, weft_gpu_chain *chain)
{
    const uint64_t key = magnitude_of(bits_of(*threshold));
    weft_gpu_select *select = &chain->select;

    chain->found.detail[0] = bits_of(*threshold);
    chain->found.detail[1] = !(*threshold >= 0);
    if (select->shift > 0 || key <= select->prefix)
        return;
    select->wanted = UINT64_MAX;
    select->prefix = key;
    select->above = 0;
}

WEFT_DEVICE chosen<uint32_t, uint32_t> choose_pairs(const view &list, uint64_t first,
                                                    const weft_gpu_select &select)
{
    chosen<uint32_t, uint32_t> own;

    own.above = 0;
    own.equal = 0;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const bool exists = first + j < list.count;
        const uint32_t value = exists ? bits_of(list.value[first + j]) : 0;
        const uint64_t key = (uint64_t)key_of(value, WEFT_INFINITY_F32) >> select.shift;

        own.value[j] = value;
        own.at[j] = exists ? list.index[first + j] : 0;
        own.above |= (uint32_t)(exists && key > select.prefix) << j;
        own.equal |= (uint32_t)(exists && key == select.prefix) << j;
    }
    count_chosen(&own);
    return own;
}

/* A chunk is what a block takes at once: counting and writing need blocks of one size. */
WEFT_KERNEL __launch_bounds__(512)
    weft_list_count(weft_gpu_list of, weft_gpu_chain *chain, uint64_t *above, uint64_t *equal)
{
    const view list = view_of(of);
    const weft_gpu_select select = chain->select;
    const uint64_t size = (uint64_t)blockDim.x * ITEMS;
    const uint64_t chunks = (list.count + size - 1) / size;

    for (uint64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const uint64_t counts =
            choose_pairs(list, chunk * size + threadIdx.x * (uint64_t)ITEMS, select).counts;
        uint64_t all;

        weft_scan_block(counts, &all);
        if (threadIdx.x == 0) {
            above[chunk] = all & 0xffffffffu;
            equal[chunk] = all >> 32;
        }
    }
    if (!weft_is_last(&chain->blocks))
        return;
    const uint64_t all_above = weft_scan_counts(above, chunks);
    const uint64_t all_equal = weft_scan_counts(equal, chunks);

    if (threadIdx.x == 0) {
        above[chunks] = all_above;
        equal[chunks] = all_equal;
    }
}

/* The residual of operations: of no elements, what is dropped is lost. */
struct residual_of {
    float *at;
    uint64_t count;
    unsigned long long *outside;
};

WEFT_DEVICE void drop(const residual_of &residual, uint32_t at, uint32_t value)
{
    if (residual.count == 0)
        return;
    if (at < residual.count)
        residual.at[at] += __uint_as_float(value);
    else
        atomicMax(residual.outside, (unsigned long long)at + 1);
}

WEFT_DEVICE void write_pairs(const chosen<uint32_t, uint32_t> &own, uint32_t exists, uint64_t above,
                             uint64_t equal, uint64_t limit, uint64_t most, bool clear,
                             uint32_t *indices, uint32_t *values, const residual_of &residual)
{
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const uint64_t place = place_of(above, equal, limit);
        const uint32_t is_above = own.above >> j & 1u;
        const uint32_t is_equal = own.equal >> j & 1u;
        const bool stays = (is_above || (is_equal && equal < limit)) && place < most;
        const uint32_t value =
            clear && magnitude_of(own.value[j]) > WEFT_INFINITY_F32 ? 0 : own.value[j];

        if (stays) {
            values[place] = value;
            indices[place] = own.at[j];
        } else if (exists >> j & 1u) {
            drop(residual, own.at[j], value);
        }
        above += is_above;
        equal += is_equal;
    }
}

/* Nothing is written of lists in disorder, or where NaNs are refused (WEFT_LIST_NANS). */
WEFT_KERNEL __launch_bounds__(512)
    weft_list_write(weft_gpu_list of, weft_gpu_chain *chain, const uint64_t *above,
                    const uint64_t *equal, uint64_t most, uint32_t flags, void *indices,
                    void *residual, uint64_t residual_count)
{
    const view list = view_of(of);
    const weft_gpu_select select = chain->select;
    const weft_gpu_found found = chain->found;
    const uint64_t size = (uint64_t)blockDim.x * ITEMS;
    const uint64_t chunks = (list.count + size - 1) / size;
    const uint64_t limit = limit_of(&select);
    const chunk_tables tables = {(uint64_t *)above, (uint64_t *)equal, nullptr};
    const uint64_t pairs = pairs_of(tables, chunks, limit, most);
    const residual_of dropped = {(float *)residual, residual_count, &chain->found.outside};
    const bool clears = flags & WEFT_LIST_CLEAR && !chain->loose;

    if (found.disorder != UINT64_MAX || (flags & WEFT_LIST_NANS && found.nans > 0) ||
        (flags & WEFT_LIST_RAISED && found.detail[1]))
        return;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        chain->found.count = pairs;
    for (uint64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const uint64_t first = chunk * size + threadIdx.x * (uint64_t)ITEMS;
        const chosen<uint32_t, uint32_t> own = choose_pairs(list, first, select);
        const uint64_t left = first < list.count ? list.count - first : 0;
        const uint32_t exists = left < ITEMS ? (1u << left) - 1 : ~0u;
        uint64_t all;
        const uint64_t place = weft_scan_block(own.counts, &all);

        write_pairs(own, exists, above[chunk] + (place & 0xffffffffu), equal[chunk] + (place >> 32),
                    limit, most, clears, (uint32_t *)indices, (uint32_t *)indices + pairs, dropped);
    }
}

/* ---- bounds ---- */

/* What is wrong first, as a host finds it: detail[0] says which kind, the others what it is of. */
WEFT_DEVICE void judge_bounds(const uint64_t *bounds, uint64_t last, const view &list,
                              uint64_t elements, uint64_t step, weft_gpu_found *found)
{
    const uint64_t wrong = found->disorder;

    found->total = WEFT_BOUNDS_RIGHT;
    if (bounds[0] != 0 || bounds[last] != elements) {
        found->total = WEFT_BOUNDS_ENDS;
        found->detail[0] = bounds[0];
        found->detail[1] = bounds[last];
    } else if (step != UINT64_MAX) {
        found->total = WEFT_BOUNDS_STEP;
        found->detail[0] = step + 1;
        found->detail[1] = bounds[step + 1];
        found->detail[2] = bounds[step];
    } else if (wrong != UINT64_MAX) {
        found->total = WEFT_BOUNDS_ORDER;
        found->detail[0] = wrong;
        found->detail[1] = list.index[wrong];
        found->detail[2] = list.index[wrong - 1];
    } else if (list.count > 0 && list.index[list.count - 1] >= elements) {
        found->total = WEFT_BOUNDS_LAST;
        found->detail[0] = list.index[list.count - 1];
    }
}

/* Any grid of one dimension. */
WEFT_KERNEL weft_list_bounds(const uint64_t *bounds, uint64_t bound_count, weft_gpu_list of,
                             uint64_t elements, weft_gpu_chain *chain)
{
    const view list = view_of(of);
    const uint64_t last = bound_count - 1;
    unsigned long long *step = &chain->select.reserved;
    bool wrong = false;

    /* The first that is wrong + 1, from above; 0: none. */
    for (uint64_t i = weft_first(); i < last && !wrong; i += weft_step())
        if (bounds[i] > bounds[i + 1]) {
            atomicMax(step, (unsigned long long)(UINT64_MAX - i));
            wrong = true;
        }
    wrong = false;
    for (uint64_t i = weft_first(); i < list.count && !wrong; i += weft_step())
        if (i > 0 && list.index[i - 1] >= list.index[i]) {
            atomicMin(&chain->found.disorder, (unsigned long long)i);
            wrong = true;
        }
    if (weft_is_last(&chain->blocks) && threadIdx.x == 0) {
        const uint64_t most = weft_fresh(step);

        chain->found.disorder = weft_fresh(&chain->found.disorder);
        judge_bounds(bounds, last, list, elements, most > 0 ? UINT64_MAX - most : UINT64_MAX,
                     &chain->found);
    }
}

/* ---- the end ---- */

/* The words of what was found, to memory of the host; with a range, of a list that is what was
 * written. One thread. */
WEFT_KERNEL weft_list_end(const weft_gpu_chain *chain, const uint64_t *range,
                          weft_gpu_found *report)
{
    weft_gpu_found found = chain->found;

    if (range)
        found.count = found.total = range[1];
    *report = found;
}
