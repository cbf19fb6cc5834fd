// SPDX-License-Identifier: BSD-3-Clause
// Copies, fills, NaNs and conversions.
#include "tests/gpu/kernel_tests.h"

#include <sys/mman.h>

namespace
{

const weft_dtype_t floats[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
const char *const names[] = {"f16", "bf16", "f32", "f64"};

void fill_bytes(const area &to)
{
    for (size_t i = 0; i < to.bytes; i++)
        *to.at(i) = (char)draw();
}

bool launch_rows(char *to, uint64_t to_stride, const char *from, uint64_t from_stride,
                 uint64_t bytes, uint64_t rows)
{
    const unsigned grid[3] = {1 + (unsigned)draw_below(3), 1 + (unsigned)draw_below(3), 1};
    const unsigned block[3] = {1u << draw_below(6), 1u << draw_below(4), 1};

    return launch_on("weft_copy_strided", grid, block, (void *)to, to_stride, (const void *)from,
                     from_stride, bytes, rows);
}

// Rows of any length at any distance; what lies between them stays.
void test_strided()
{
    const uint64_t unit = UINT64_C(1) << draw_below(5);
    const uint64_t rows = draw_below(20);
    const uint64_t bytes = draw_below(2) ? unit * draw_below(20) : draw_below(200);
    const uint64_t to_stride = (bytes + unit - 1) / unit * unit + unit * draw_below(3);
    const uint64_t from_stride = (bytes + unit - 1) / unit * unit + unit * draw_below(3);
    const size_t to_bytes = rows > 0 ? (rows - 1) * to_stride + bytes : 0;
    const size_t from_bytes = rows > 0 ? (rows - 1) * from_stride + bytes : 0;
    area to(to_bytes, draw_below(2) ? 0 : unit * draw_below(3));
    area expected(to_bytes);
    area from(from_bytes, draw_below(2) ? 0 : unit * draw_below(3));

    fill_bytes(to);
    fill_bytes(from);
    expected.copy(to);
    for (uint64_t row = 0; row < rows; row++)
        memcpy(expected.at(row * to_stride), from.at(row * from_stride), bytes);
    if (launch_rows(to.at(), to_stride, from.at(), from_stride, bytes, rows))
        check(to.intact() && (to_bytes == 0 || memcmp(to.at(), expected.at(), to_bytes) == 0),
              "%llu rows of %llu bytes", (unsigned long long)rows, (unsigned long long)bytes);
}

// Rows 8 GiB apart, of address space that is hardly touched.
void test_far()
{
    const uint64_t stride = (UINT64_C(1) << 33) + 16;
    char *memory = static_cast<char *>(mmap(nullptr, 3 * stride, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    area to(3 * 40);
    bool holds = memory != MAP_FAILED;

    for (int row = 0; holds && row < 3; row++)
        memset(memory + (uint64_t)row * stride, row + 1, 40);
    holds = holds && launch_rows(to.at(), 40, memory, stride, 40, 3);
    for (int i = 0; holds && i < 120; i++)
        holds = *to.at((size_t)i) == i / 40 + 1;
    check(holds, "rows that are far apart");
    if (memory != MAP_FAILED)
        munmap(memory, 3 * stride);
}

void test_pieces()
{
    const size_t count = draw_below(WEFT_GPU_MOST_PIECES + 1);
    std::vector<area *> to(count);
    std::vector<area *> from(count);
    weft_gpu_pieces pieces = {};
    bool holds = true;

    for (size_t p = 0; p < count; p++) {
        const size_t bytes = draw_below(3) ? draw_below(600) : 0;

        to[p] = new area(bytes, draw_below(17));
        from[p] = new area(bytes, draw_below(17));
        fill_bytes(*from[p]);
        pieces.piece[p] = {to[p]->at(), from[p]->at(), bytes};
    }
    pieces.count = (uint32_t)count;
    const unsigned grid[3] = {1 + (unsigned)draw_below(3), 1 + (unsigned)draw_below(9), 1};
    const unsigned block[3] = {1 + (unsigned)draw_below(70), 1, 1};
    const bool ran = launch_on("weft_copy_pieces", grid, block, pieces);

    for (size_t p = 0; p < count; p++) {
        holds = holds && to[p]->intact() &&
                (to[p]->bytes == 0 || memcmp(to[p]->at(), from[p]->at(), to[p]->bytes) == 0);
        delete to[p];
        delete from[p];
    }
    if (ran)
        check(holds, "%zu pieces", count);
}

void test_fill()
{
    const size_t size = (size_t)1 << draw_below(4);
    const size_t count = draw_below(500);
    const uint64_t bits = draw();
    area to(count * size, size * draw_below(16 / size));
    bool holds = true;

    if (!launch("weft_fill_" + std::to_string(8 * size), (void *)to.at(), bits, (uint64_t)count))
        return;
    for (size_t i = 0; i < count; i++)
        holds = holds && memcmp(to.at(i * size), &bits, size) == 0;
    check(holds && to.intact(), "%zu elements of %zu bytes filled", count, size);
}

void test_nans_of(int format)
{
    const size_t size = dtype_bytes(floats[format]);
    const size_t count = draw_below(2000);
    area x(count * size, size * draw_below(16 / size));
    area before(count * size);
    const unsigned long long others = draw_below(100);
    variable<unsigned long long> total(others);
    variable<unsigned long long> cleared(others);

    fill_numbers(x, floats[format]);
    before.copy(x);
    if (!launch(std::string("weft_nan_count_") + names[format], (const void *)x.at(),
                (uint64_t)count, &*total))
        return;
    const bool kept = count == 0 || memcmp(x.at(), before.at(), x.bytes) == 0;

    if (!launch(std::string("weft_nan_clear_") + names[format], (void *)x.at(), (uint64_t)count,
                &*cleared))
        return;
    const size_t nans = weft__sparse_clear_nans(before.at(), floats[format], count);

    check(kept && *total == others + nans && *cleared == others + nans && x.intact() &&
              (count == 0 || memcmp(x.at(), before.at(), x.bytes) == 0),
          "NaNs of %zu %s", count, names[format]);
}

void test_conversion(int from_format, int to_format, size_t count, bool all)
{
    const weft_dtype_t from_dtype = floats[from_format];
    const weft_dtype_t to_dtype = floats[to_format];
    const size_t from_size = dtype_bytes(from_dtype);
    const size_t to_size = dtype_bytes(to_dtype);
    const size_t phase = draw_below(8);
    const bool alike = draw_below(3) > 0;
    area from(count * from_size, from_size * phase);
    area to(count * to_size, to_size * (alike ? phase : draw_below(8)));
    area expected(count * to_size);

    fill_numbers(from, from_dtype);
    for (size_t i = 0; all && i < count; i++) {
        const uint16_t half = (uint16_t)i;

        memcpy(from.at(2 * i), &half, sizeof half);
    }
    weft__convert(to_dtype, expected.at(), from_dtype, from.at(), count);
    if (!launch(std::string("weft_convert_") + names[from_format] + "_" + names[to_format],
                (void *)to.at(), (const void *)from.at(), (uint64_t)count))
        return;
    const size_t at = first_difference(to.at(), expected.at(), count, to_dtype, false);

    check(at == count && to.intact(), "%s to %s, %zu: element %zu differs", names[from_format],
          names[to_format], count, at);
}

// Doubles about the middle between two halves, where rounding twice would be wrong.
void test_ties(int to_format)
{
    enum { COUNT = 4096 };
    const weft_dtype_t to_dtype = floats[to_format];
    area from(COUNT * sizeof(double));
    area to(COUNT * 2);
    area expected(COUNT * 2);

    for (size_t i = 0; i < COUNT; i++) {
        const uint64_t key = draw_below(weft__topk_infinity(to_dtype) - 1);
        const double low = weft__topk_magnitude(to_dtype, key);
        double middle = low + (weft__topk_magnitude(to_dtype, key + 1) - low) / 2;
        uint64_t bits;

        memcpy(&bits, &middle, sizeof bits);
        bits += draw_below(3) - 1;
        bits |= (draw() & 1) << 63;
        memcpy(from.at(8 * i), &bits, sizeof bits);
    }
    weft__convert(to_dtype, expected.at(), WEFT_F64, from.at(), COUNT);
    if (launch(std::string("weft_convert_f64_") + names[to_format], (void *)to.at(),
               (const void *)from.at(), (uint64_t)COUNT))
        check(memcmp(to.at(), expected.at(), to.bytes) == 0, "ties of %s", names[to_format]);
}

} // namespace

void test_copy()
{
    for (int round = 0; round < 150; round++) {
        test_strided();
        test_pieces();
        test_fill();
    }
    if (!kernels_are_apart)
        test_far();
}

void test_nans()
{
    for (int round = 0; round < 25; round++)
        for (int format = 0; format < 4; format++)
            test_nans_of(format);
}

void test_convert()
{
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++) {
            if (from == to)
                continue;
            for (int round = 0; round < 10; round++)
                test_conversion(from, to, draw_below(round < 5 ? 40 : 3000), false);
            if (from < 2)
                test_conversion(from, to, 65536, true);
        }
    for (int round = 0; round < 4; round++) {
        test_ties(0);
        test_ties(1);
    }
}
