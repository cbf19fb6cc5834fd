// SPDX-License-Identifier: BSD-3-Clause
// Lists of pairs: added to dense vectors, and merged.
#include "tests/gpu/kernel_tests.h"

#include <sys/mman.h>

namespace
{

const weft_dtype_t floats[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
const char *const names[] = {"f16", "bf16", "f32", "f64"};

// A list with memory of exactly its length.
struct list {
    list(size_t count, bool wide, weft_dtype_t dtype)
        : indices(count * (wide ? 8 : 4)), values(count * dtype_bytes(dtype)), wide(wide),
          pairs({indices.at(), values.at(), count})
    {
    }
    uint64_t index(size_t i) const
    {
        uint32_t narrow;
        uint64_t index;

        if (!wide) {
            memcpy(&narrow, indices.at(4 * i), 4);
            return narrow;
        }
        memcpy(&index, indices.at(8 * i), 8);
        return index;
    }
    void set(size_t i, uint64_t index)
    {
        const uint32_t narrow = (uint32_t)index;

        if (wide)
            memcpy(indices.at(8 * i), &index, 8);
        else
            memcpy(indices.at(4 * i), &narrow, 4);
    }
    area indices;
    area values;
    bool wide;
    weft__pairs pairs;
};

std::string suffix(int format, bool wide)
{
    return std::string("_") + names[format] + (wide ? "_u64" : "_u32");
}

// Ascending indices from `first` on, up to `most_step` apart.
void draw_list(list &to, weft_dtype_t dtype, uint64_t first, uint64_t most_step)
{
    uint64_t index = first;

    fill_numbers(to.values, dtype);
    for (size_t i = 0; i < to.pairs.count; i++) {
        to.set(i, index);
        index += 1 + draw_below(most_step);
    }
}

weft_gpu_scatter scatter_to(const area &dense, int format, const list &own, int value_format)
{
    weft_gpu_scatter of = {};

    of.indices = own.pairs.indices;
    of.values = own.pairs.values;
    of.dense = dense.at();
    of.count = own.pairs.count;
    of.scale = 1;
    of.wide = own.wide;
    of.format = (uint8_t)format;
    of.value_format = (uint8_t)value_format;
    of.adds = 1;
    return of;
}

// Element `at` of a vector, and pair i, as numbers; by a plain loop for pairs of f32.
template <class number>
void add_plainly(char *dense, weft_dtype_t dtype, const list &own, size_t i, double scale)
{
    const weft_dtype_t wide = sizeof(number) == 8 ? WEFT_F64 : WEFT_F32;
    char *at = dense + own.index(i) * dtype_bytes(dtype);
    number x, y;

    weft__convert(wide, &x, dtype, at, 1);
    weft__convert(wide, &y, WEFT_F32, own.values.at(4 * i), 1);
    y *= (number)scale;
    x += y;
    weft__convert(dtype, at, wide, &x, 1);
}

void add_wide_plainly(char *dense, weft_dtype_t dtype, const list &own, double scale)
{
    for (size_t i = 0; i < own.pairs.count; i++)
        if (dtype == WEFT_F64)
            add_plainly<double>(dense, dtype, own, i, scale);
        else
            add_plainly<float>(dense, dtype, own, i, scale);
}

void set_plainly(char *dense, weft_dtype_t dtype, const list &own, weft_dtype_t from)
{
    const size_t size = dtype_bytes(dtype);

    for (size_t i = 0; i < own.pairs.count; i++) {
        char *at = dense + own.index(i) * size;

        if (!own.pairs.values)
            memset(at, 0, size);
        else if (from == dtype)
            memcpy(at, own.values.at(i * size), size);
        else
            weft__convert(dtype, at, from, own.values.at(4 * i), 1);
    }
}

// Values of the vector's own datatype, or of f32; added, set, or (without values) zeros.
void test_scatter_of(int format, bool wide)
{
    const int value_format = draw_below(2) ? format : WEFT_GPU_F32;
    const weft_dtype_t dtype = floats[format], from = floats[value_format];
    const size_t size = dtype_bytes(dtype);
    const size_t count = draw_below(400);
    const double scales[] = {1, -1, 0.1, 1.0 / 3, 1e-30, 1e300};
    list own(count, wide, from);

    draw_list(own, from, draw_below(10), 1 + draw_below(5));
    const size_t length = count > 0 ? (size_t)own.index(count - 1) + 1 : 0;
    area dense(length * size);
    area expected(length * size);
    weft_gpu_scatter of = scatter_to(dense, format, own, value_format);

    fill_numbers(dense, dtype);
    expected.copy(dense);
    of.scale = scales[draw_below(6)];
    of.adds = draw_below(3) > 0;
    if (!of.adds && draw_below(3) == 0)
        of.values = own.pairs.values = nullptr;
    if (!of.adds)
        set_plainly(expected.at(), dtype, own, from);
    else if (value_format == format)
        weft__sparse_scatter(&own.pairs, wide, dtype, of.scale, expected.at());
    else
        add_wide_plainly(expected.at(), dtype, own, of.scale);
    if (!launch("weft_scatter", of))
        return;
    const size_t at = first_difference(dense.at(), expected.at(), length, dtype, of.adds);

    check(at == length && dense.intact(), "%zu %s %s: element %zu differs", count, names[format],
          of.adds     ? "added"
          : of.values ? "set"
                      : "cleared",
          at);
}

// Indices beyond 2^32, into address space that is hardly touched.
void test_scatter_far()
{
    const size_t bytes = (size_t)1 << 35;
    float *dense = static_cast<float *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    const uint64_t indices[] = {3, (UINT64_C(1) << 32) + 3, (UINT64_C(1) << 33) - 1};
    const float values[] = {1, 2, 3};
    weft_gpu_scatter of = {};
    bool holds = dense != MAP_FAILED;

    of.indices = indices;
    of.values = values;
    of.dense = dense;
    of.count = 3;
    of.scale = 2;
    of.wide = of.adds = 1;
    of.format = of.value_format = WEFT_GPU_F32;
    holds = holds && launch("weft_scatter", of);
    for (int i = 0; holds && i < 3; i++)
        holds = dense[indices[i]] == 2 * values[i];
    check(holds, "indices beyond 2^32");
    if (dense != MAP_FAILED)
        munmap(dense, bytes);
}

// Lists whose length the host knows, or the device alone, with pairs before them that do not count.
weft_gpu_list list_in(const list &of, const uint64_t *range)
{
    return {of.pairs.indices, of.pairs.values, of.pairs.count, range};
}

bool launch_merge(const weft_gpu_list &a, const weft_gpu_list &b, int format, bool wide,
                  void *index, void *value, uint64_t *range)
{
    const std::string width = wide ? "_u64" : "_u32";
    const size_t tiles = (size_t)(a.count + b.count + WEFT_MERGE_TILE - 1) / WEFT_MERGE_TILE;
    area splits((tiles + 1) * 8);
    area counts(tiles * 8);
    uint64_t *split = (uint64_t *)(void *)splits.at();
    uint64_t *offsets = (uint64_t *)(void *)counts.at();
    variable<unsigned long long> disorder(UINT64_MAX);
    variable<uint32_t> done(0);
    const unsigned long long *order = &*disorder;

    return launch("weft_merge_split" + width, a, b, order, split) &&
           launch("weft_merge_count" + width, a, b, order, (const uint64_t *)split, offsets, range,
                  &*done) &&
           launch("weft_merge_write" + suffix(format, wide), a, b, order, (const uint64_t *)split,
                  (const uint64_t *)offsets, (const uint64_t *)range, index, value);
}

// A part of a list as ops/ has it.
weft__pairs part_of(const list &of, const uint64_t range[2], weft_dtype_t dtype)
{
    return {of.indices.at(range[0] * (of.wide ? 8 : 4)),
            of.values.at(range[0] * dtype_bytes(dtype)), (size_t)(range[1] - range[0])};
}

void draw_range(const list &of, bool known, uint64_t range[2])
{
    range[0] = known ? 0 : draw_below(of.pairs.count + 1);
    range[1] = known ? of.pairs.count : range[0] + draw_below(of.pairs.count - range[0] + 1);
}

// Where values may follow the indices they do.
void merge_and_compare(const list &a, const list &b, int format, bool wide)
{
    const weft_dtype_t dtype = floats[format];
    const size_t index_size = wide ? 8 : 4;
    const size_t both = a.pairs.count + b.pairs.count;
    const bool known = draw_below(2);
    const bool apart = format != 2 || wide || draw_below(2);
    list expected(both, wide, dtype);
    list to(both, wide, dtype);
    area packed(both * (index_size + dtype_bytes(dtype)));
    area range(2 * 8), a_range(2 * 8), b_range(2 * 8);
    uint64_t *sum = (uint64_t *)(void *)range.at();
    uint64_t *of_a = (uint64_t *)(void *)a_range.at();
    uint64_t *of_b = (uint64_t *)(void *)b_range.at();

    draw_range(a, known, of_a);
    draw_range(b, known, of_b);
    const weft__pairs left = part_of(a, of_a, dtype);
    const weft__pairs right = part_of(b, of_b, dtype);

    weft__sparse_add(&left, &right, wide, dtype, &expected.pairs);
    if (!launch_merge(list_in(a, known ? nullptr : of_a), list_in(b, known ? nullptr : of_b),
                      format, wide, apart ? to.indices.at() : packed.at(),
                      apart ? (void *)to.values.at() : nullptr, sum))
        return;
    const size_t count = expected.pairs.count;
    const char *indices = apart ? to.indices.at() : packed.at();
    const char *values = apart ? to.values.at() : packed.at(count * index_size);
    const bool same =
        sum[0] == 0 && sum[1] == count &&
        (count == 0 || memcmp(indices, expected.indices.at(), count * index_size) == 0);
    const size_t at = same ? first_difference(values, expected.values.at(), count, dtype, true) : 0;

    check(same && at == count, "%zu and %zu %s merged: %llu of %zu pairs, value %zu differs",
          left.count, right.count, names[format], (unsigned long long)sum[1], count, at);
}

// Lists in disorder are empty.
void test_disorder()
{
    list a(1500, false, WEFT_F32), b(1500, false, WEFT_F32);
    variable<unsigned long long> disorder(7);
    variable<uint32_t> done(0);
    area splits(8), range(16);
    const unsigned long long *order = &*disorder;

    fill_numbers(a.indices, WEFT_F32);
    fill_numbers(b.indices, WEFT_F32);
    check(launch("weft_merge_split_u32", list_in(a, nullptr), list_in(b, nullptr), order,
                 (uint64_t *)(void *)splits.at()) &&
              launch("weft_merge_count_u32", list_in(a, nullptr), list_in(b, nullptr), order,
                     (const uint64_t *)(const void *)splits.at(), (uint64_t *)nullptr,
                     (uint64_t *)(void *)range.at(), &*done) &&
              ((uint64_t *)(void *)range.at())[1] == 0,
          "lists in disorder");
}

size_t draw_length()
{
    static const size_t lengths[] = {0, 1, 2, 511, 512, 513, 1023, 1024, 1025, 2048};
    const size_t which = draw_below(14);

    return which < 10 ? lengths[which] : draw_below(4000);
}

void test_merge_of(int format, bool wide)
{
    const weft_dtype_t dtype = floats[format];
    const uint64_t base = wide && draw_below(2) ? UINT64_C(1) << 40 : 0;
    list a(draw_length(), wide, dtype);
    list b(draw_length(), wide, dtype);

    draw_list(a, dtype, base + draw_below(50), 1 + draw_below(4));
    draw_list(b, dtype, base + draw_below(5000), 1 + draw_below(4));
    merge_and_compare(a, b, format, wide);
    if (draw_below(3) == 0)
        merge_and_compare(a, a, format, wide);
}

} // namespace

void test_scatter()
{
    for (int round = 0; round < 15; round++)
        for (int format = 0; format < 4; format++) {
            test_scatter_of(format, false);
            test_scatter_of(format, true);
        }
    if (!kernels_are_apart)
        test_scatter_far();
}

void test_merge()
{
    for (int round = 0; round < 12; round++)
        for (int format = 0; format < 4; format++) {
            test_merge_of(format, false);
            test_merge_of(format, true);
        }
    test_disorder();
}
