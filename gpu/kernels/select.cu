/* SPDX-License-Identifier: BSD-3-Clause */
/* The entries that a selection takes (topk.cu has the steps): of the largest magnitudes, or of all
 * that reach a threshold; indices ascending, ties to the lower index, NaNs as zeros; bit by bit
 * what ops/topk.c gives.
 *
 *   weft_select_gather   entries above the prefix or equal to it: each chunk takes its room in
 *                        scratch memory by one atomic, and is counted
 *   weft_select_write    the entries in the order of indices, from there
 *
 * With a threshold that is known both do the whole of it: one read of the vector, and another one
 * where more entries reach it than scratch memory has room for. */
#include "gpu/kernels/select.cuh"

/* Numbers, and where they were in the vector: of a list, or (no indices) the vector itself. */
template <class bits, class index> struct entries {
    bits *value;
    const index *at;
};

/* What becomes of a vector at the first look. */
template <class element> struct preparation {
    const element *addend;
    uint64_t nans;
    bool first, erase;
};

/* ITEMS numbers from place `first` on; by one load where they begin at a multiple of all. */
template <class type>
WEFT_DEVICE void load_items(const type *from, uint64_t first, uint64_t end, type value[ITEMS])
{
    typedef weft_pack<type, ITEMS> pack;

    if (first + ITEMS <= end && weft_offset(from + first, sizeof(pack)) == 0) {
        const pack all = *(const pack *)(from + first);

#pragma unroll
        for (int j = 0; j < ITEMS; j++)
            value[j] = all.at[j];
        return;
    }
#pragma unroll
    for (int j = 0; j < ITEMS; j++)
        value[j] = first + j < end ? from[first + j] : type();
}

template <class op>
WEFT_DEVICE void prepare_items(typename op::element *x, uint64_t first, uint64_t end,
                               uint64_t infinity, preparation<typename op::element> *prepared,
                               typename op::element value[ITEMS])
{
    typedef typename op::element element;
    element added[ITEMS] = {};

    if (prepared->addend)
        load_items(prepared->addend, first, end, added);
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const bool changed = prepare<op>(&value[j], prepared->addend, added[j], prepared->erase,
                                         infinity, &prepared->nans);

        if (changed && first + j < end)
            x[first + j] = value[j];
    }
}

/* Those of one thread, as they are; `own.value` has zeros for NaNs. */
template <class op, class bits, class index>
WEFT_DEVICE chosen<bits, index> choose(const entries<bits, index> &from, uint64_t first,
                                       uint64_t end, uint64_t infinity, uint32_t shift,
                                       uint64_t prefix, preparation<typename op::element> *prepared)
{
    typedef typename op::element element;
    chosen<bits, index> own;
    element value[ITEMS];

    load_items((const element *)from.value, first, end, value);
    if (prepared && prepared->first)
        prepare_items<op>((element *)from.value, first, end, infinity, prepared, value);
    own.above = 0;
    own.equal = 0;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const uint64_t i = first + j;
        const bool exists = i < end;
        const bits found = bits_of(value[j]);
        const uint64_t key = (uint64_t)key_of(found, infinity) >> shift;

        own.value[j] = magnitude_of(found) > infinity ? (bits)0 : found;
        own.at[j] = exists && from.at ? from.at[i] : (index)i;
        own.above |= (uint32_t)(exists && key > prefix) << j;
        own.equal |= (uint32_t)(exists && key == prefix) << j;
    }
    count_chosen(&own);
    return own;
}

/* Whether more entries are equal in all bits than scratch memory has room for: then it gets those
 * above alone, and `ties` a byte a thread, two bits an entry: 0, above, equal, equal and negative.
 */
WEFT_DEVICE bool are_many(const weft_gpu_select *select, uint32_t flags, uint64_t room)
{
    return flags & WEFT_GPU_TIES && select->shift == 0 && select->wanted != UINT64_MAX &&
           select->above + select->equal > room;
}

template <class bits, class index> WEFT_DEVICE uint8_t ties_of(const chosen<bits, index> &own)
{
    uint32_t byte = 0;

#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const uint32_t negative = own.value[j] != magnitude_of(own.value[j]);

        byte |= (own.above >> j & 1u ? 1u : own.equal >> j & 1u ? 2u + negative : 0u) << (2 * j);
    }
    return (uint8_t)byte;
}

template <class bits, class index> struct scratch_of {
    bits *value;
    index *at;
    uint8_t *ties;
    uint64_t room;
};

/* A guess was right if at least k entries reach it, and there was room for all. By one thread. */
WEFT_DEVICE void judge(weft_gpu_select *select, uint64_t count, uint32_t key_bits, uint64_t room)
{
    const uint64_t found = weft_fresh(&select->reserved);
    const uint64_t wanted = select->k < count ? select->k : count;

    select->gathered = found >= wanted && found <= room;
    if (select->gathered)
        return;
    select->guessed = 0;
    select->wanted = wanted;
    select->prefix = 0;
    select->equal = count;
    select->shift = key_bits;
    select->reserved = 0;
}

/* The entries of each chunk to some place of their own in scratch memory. A chunk is what a block
 * takes at once: ITEMS a thread, so that gathering and writing need blocks of one size. */
template <class op, class bits, class index>
WEFT_DEVICE void gather(const entries<bits, index> &from, const void *addend, uint64_t count,
                        uint32_t flags, uint64_t infinity, weft_gpu_select *select,
                        const scratch_of<bits, index> &scratch, const chunk_tables &tables)
{
    typedef typename op::element element;
    WEFT_SHARED(unsigned long long, start, 1);
    const weft_gpu_select before = *select;
    const uint64_t size = (uint64_t)blockDim.x * ITEMS;
    const uint64_t chunks = (count + size - 1) / size;
    const bool many = are_many(&before, flags, scratch.room);
    preparation<element> prepared = {(const element *)addend, 0,
                                     flags & WEFT_GPU_FIRST && !before.prepared,
                                     (flags & WEFT_GPU_ERASE) != 0};

    if (before.refused ||
        (!from.at && (before.gathered || (flags & WEFT_GPU_GUESS && !before.guessed))))
        return;
    for (uint64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const chosen<bits, index> own =
            choose<op>(from, chunk * size + threadIdx.x * (uint64_t)ITEMS, count, infinity,
                       before.shift, before.prefix, &prepared);
        const uint32_t taken = many ? own.above : own.above | own.equal;
        uint64_t all;
        const uint64_t place = weft_scan_block(own.counts, &all);
        const uint64_t room = (all & 0xffffffffu) + (many ? 0 : all >> 32);

        if (many)
            scratch.ties[chunk * blockDim.x + threadIdx.x] = ties_of(own);
        if (threadIdx.x == 0) {
            *start = atomicAdd(&select->reserved, (unsigned long long)room);
            tables.above[chunk] = all & 0xffffffffu;
            tables.equal[chunk] = all >> 32;
            tables.starts[chunk] = *start;
        }
        __syncthreads();
        uint64_t to = *start + (place & 0xffffffffu) + (many ? 0 : place >> 32);

#pragma unroll
        for (int j = 0; j < ITEMS; j++)
            if (*start + room <= scratch.room && (taken >> j & 1u)) {
                scratch.value[to] = own.value[j];
                scratch.at[to++] = own.at[j];
            }
        __syncthreads();
    }
    if (prepared.nans > 0)
        atomicAdd(&select->nans, (unsigned long long)prepared.nans);
    if (!weft_is_last(&select->blocks))
        return;
    const uint64_t all_above = weft_scan_counts(tables.above, chunks);
    const uint64_t all_equal = weft_scan_counts(tables.equal, chunks);

    if (threadIdx.x > 0)
        return;
    tables.above[chunks] = all_above;
    tables.equal[chunks] = all_equal;
    if (prepared.first)
        select->prepared = 1;
    if (flags & WEFT_GPU_GUESS)
        judge(select, count, 8 * sizeof(bits) - 1, scratch.room);
    else if (!from.at)
        select->gathered = 1;
}

/* ---- writing ---- */

/* Where pairs go; without `values` these follow the indices that there are. */
template <class bits, class index> struct target_of {
    bits *values;
    index *indices;
    bits *zero; /* what is written becomes 0 here */
    uint64_t most;
};

/* A thread's part of a chunk of which `ties` knows all but the values above. */
template <class bits, class index>
WEFT_DEVICE chosen<bits, index> chosen_of_ties(uint32_t byte, uint64_t first, uint64_t prefix)
{
    chosen<bits, index> own;

    own.above = 0;
    own.equal = 0;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const uint32_t kind = byte >> (2 * j) & 3u;

        own.value[j] = (bits)(prefix | (uint64_t)(kind == 3) << (8 * sizeof(bits) - 1));
        own.at[j] = (index)(first + j);
        own.above |= (uint32_t)(kind == 1) << j;
        own.equal |= (uint32_t)(kind > 1) << j;
    }
    count_chosen(&own);
    return own;
}

/* One thread's part of a chunk to where it belongs: behind the `above` entries above the prefix and
 * the `equal` ones of the chunks before, of which `limit` are taken in all. */
template <class bits, class index>
WEFT_DEVICE void write_items(const chosen<bits, index> &own, uint64_t above, uint64_t equal,
                             uint64_t limit, const target_of<bits, index> &to)
{
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const uint64_t place = place_of(above, equal, limit);
        const uint32_t is_above = own.above >> j & 1u;
        const uint32_t is_equal = own.equal >> j & 1u;

        if ((is_above || (is_equal && equal < limit)) && place < to.most) {
            to.values[place] = own.value[j];
            to.indices[place] = own.at[j];
            if (to.zero)
                to.zero[own.at[j]] = 0;
        }
        above += is_above;
        equal += is_equal;
    }
}

/* `from` is what was gathered from; it is read again only if scratch memory was too small. */
template <class op, class bits, class index>
WEFT_DEVICE void write(const entries<bits, index> &from, uint64_t count, uint32_t flags,
                       uint64_t infinity, const weft_gpu_select &before,
                       const scratch_of<bits, index> &scratch, const chunk_tables &tables,
                       const target_of<bits, index> &to)
{
    const uint64_t size = (uint64_t)blockDim.x * ITEMS;
    const uint64_t chunks = (count + size - 1) / size;
    const uint64_t limit = limit_of(&before);
    const bool many = !from.at && are_many(&before, flags, scratch.room);
    const bool fits = before.reserved <= scratch.room;
    const entries<bits, index> source = {fits ? scratch.value : from.value,
                                         fits ? scratch.at : from.at};

    for (uint64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const uint64_t above = tables.above[chunk];
        const uint64_t equal = tables.equal[chunk];
        const uint64_t taken = tables.above[chunk + 1] - above + tables.equal[chunk + 1] - equal;
        const uint64_t start = fits && !many ? tables.starts[chunk] : chunk * size;
        const uint64_t end = fits ? start + taken : count;
        const uint64_t first = start + threadIdx.x * (uint64_t)ITEMS;
        chosen<bits, index> own =
            many ? chosen_of_ties<bits, index>(scratch.ties[chunk * blockDim.x + threadIdx.x],
                                               first, before.prefix)
                 : choose<op>(source, first, end, infinity, before.shift, before.prefix,
                              (preparation<typename op::element> *)nullptr);
        uint64_t all;
        const uint64_t place = weft_scan_block(own.counts, &all);

#pragma unroll
        for (int j = 0, passed = 0; many && j < ITEMS; j++)
            if (own.above >> j & 1u)
                own.value[j] =
                    scratch.value[tables.starts[chunk] + (place & 0xffffffffu) + passed++];
        write_items(own, above + (place & 0xffffffffu), equal + (place >> 32), limit, to);
    }
}

/* The list that has been written, which is to be searched for the k-th key if that is not known. By
 * one thread. */
WEFT_DEVICE void become_list(weft_gpu_select *select, const weft_gpu_select &before,
                             const chunk_tables &tables, uint64_t chunks, uint32_t key_bits,
                             uint64_t most)
{
    select->count = pairs_of(tables, chunks, limit_of(&before), most);
    select->found = tables.above[chunks] + tables.equal[chunks];
    select->reserved = 0;
    if (!before.guessed)
        return;
    select->guessed = 0;
    select->wanted = select->k < select->count ? select->k : select->count;
    select->prefix = 0;
    select->equal = select->count;
    select->shift = key_bits;
}

template <class op, class bits, class index>
WEFT_DEVICE void write_all(const entries<bits, index> &from, uint64_t count, uint32_t flags,
                           uint64_t infinity, weft_gpu_select *select,
                           const scratch_of<bits, index> &scratch, const chunk_tables &tables,
                           target_of<bits, index> to)
{
    const weft_gpu_select before = *select;
    const uint64_t size = (uint64_t)blockDim.x * ITEMS;
    const uint64_t chunks = (count + size - 1) / size;

    if (!to.values)
        to.values = (bits *)(to.indices + pairs_of(tables, chunks, limit_of(&before), to.most));
    write<op>(from, count, flags, infinity, before, scratch, tables, to);
    if (weft_is_last(&select->blocks) && threadIdx.x == 0)
        become_list(select, before, tables, chunks, 8 * sizeof(bits) - 1, to.most);
}

/* ---- kernels ---- */

/* `at`: NULL for a vector, whose entries are `count`; of a list it is select->count. `room`: pairs
 * that scratch memory has room for. A write that is refused by NaNs (`strict`) writes nothing. */
#define OF_FORMAT(format, bits, infinity, width)                                                   \
    WEFT_KERNEL __launch_bounds__(512) weft_select_gather_##format##_u##width(                     \
        void *x, const void *at, const void *addend, uint64_t count, uint32_t flags,               \
        weft_gpu_select *select, void *scratch, void *scratch_at, uint8_t *ties, uint64_t room,    \
        uint64_t *above, uint64_t *equal, uint64_t *starts)                                        \
    {                                                                                              \
        const entries<uint##bits##_t, uint##width##_t> from = {(uint##bits##_t *)x,                \
                                                               (const uint##width##_t *)at};       \
        const scratch_of<uint##bits##_t, uint##width##_t> into = {                                 \
            (uint##bits##_t *)scratch, (uint##width##_t *)scratch_at, ties, room};                 \
        const chunk_tables tables = {above, equal, starts};                                        \
                                                                                                   \
        gather<op_sum_##format>(from, addend, at ? select->count : count, flags, infinity, select, \
                                into, tables);                                                     \
    }                                                                                              \
    WEFT_KERNEL __launch_bounds__(512) weft_select_write_##format##_u##width(                      \
        void *x, const void *at, uint64_t count, uint32_t flags, weft_gpu_select *select,          \
        void *scratch, void *scratch_at, uint8_t *ties, uint64_t room, uint64_t *above,            \
        uint64_t *equal, uint64_t *starts, uint64_t most, void *values, void *indices, void *zero, \
        uint32_t strict)                                                                           \
    {                                                                                              \
        const entries<uint##bits##_t, uint##width##_t> from = {(uint##bits##_t *)x,                \
                                                               (const uint##width##_t *)at};       \
        const scratch_of<uint##bits##_t, uint##width##_t> own = {                                  \
            (uint##bits##_t *)scratch, (uint##width##_t *)scratch_at, ties, room};                 \
        const target_of<uint##bits##_t, uint##width##_t> to = {                                    \
            (uint##bits##_t *)values, (uint##width##_t *)indices, (uint##bits##_t *)zero, most};   \
        const chunk_tables tables = {above, equal, starts};                                        \
                                                                                                   \
        if (select->refused || (strict && select->nans > 0))                                       \
            return;                                                                                \
        write_all<op_sum_##format>(from, at ? select->count : count, flags, infinity, select, own, \
                                   tables, to);                                                    \
    }

OF_FORMAT(f16, 16, WEFT_INFINITY_F16, 32)
OF_FORMAT(bf16, 16, WEFT_INFINITY_BF16, 32)
OF_FORMAT(f32, 32, WEFT_INFINITY_F32, 32)
OF_FORMAT(f64, 64, WEFT_INFINITY_F64, 32)
OF_FORMAT(f16, 16, WEFT_INFINITY_F16, 64)
OF_FORMAT(bf16, 16, WEFT_INFINITY_BF16, 64)
OF_FORMAT(f32, 32, WEFT_INFINITY_F32, 64)
OF_FORMAT(f64, 64, WEFT_INFINITY_F64, 64)

/* What was found, to memory of the host; the least magnitude that was selected, made somewhat
 * smaller, is the hint for the next selection. One thread. */
WEFT_KERNEL weft_select_end(const weft_gpu_select *select, float *hint, const float *threshold,
                            weft_gpu_found *report)
{
    const float least = __uint_as_float((uint32_t)select->prefix);

    if (hint)
        *hint = select->shift == 0 && select->wanted > 0 ? WEFT_SELECT_HINT * least : 0;
    report->disorder = UINT64_MAX;
    report->nans = select->nans;
    report->outside = 0;
    report->count = select->count;
    report->total = select->found;
    report->detail[0] = threshold ? __float_as_uint(*threshold) : 0;
}
