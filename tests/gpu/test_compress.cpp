// SPDX-License-Identifier: BSD-3-Clause
// Quantisation, projection and orthonormal columns, beside ops/.
#include "tests/gpu/kernel_tests.h"

#include <math.h>

extern "C" {
#include "ops/project.h"
#include "ops/quantise.h"
}

namespace
{

float *floats(const area &of)
{
    return (float *)(void *)of.at();
}

// Finite numbers of drawn magnitude, or with what is not, or all alike.
void fill_floats(const area &to, bool odd)
{
    const unsigned kind = (unsigned)draw_below(6);
    const float scale = ldexpf(1, (int)draw_below(200) - 100);

    for (size_t i = 0; i < to.bytes / 4; i++) {
        uint32_t bits = (uint32_t)draw_number(WEFT_F32);
        float value = (float)((double)draw_below(2000001) * 1e-6 - 1);

        if (kind == 0)
            memcpy(&value, &bits, 4);
        if (kind == 1)
            value *= scale;
        if (kind == 2)
            value = draw_below(4) ? 0 : value;
        if (kind == 3)
            value = -0.0F;
        if (!odd && !isfinite(value))
            value = 0.5F;
        floats(to)[i] = value;
    }
}

size_t draw_count()
{
    static const size_t counts[] = {1,  2,  7,  8,  9,  15,  16,  17, 31,
                                    32, 33, 63, 64, 65, 511, 512, 513};

    return draw_below(2) ? counts[draw_below(17)] : 1 + draw_below(3000);
}

// ---- quantisation ----

struct quantiser {
    weft_quantiser by;
    int log2;
    const char *bits;
    uint32_t norm;
};

quantiser draw_quantiser()
{
    static const int bits[] = {WEFT_QUANTISE_SIGN, 2, 4, 8};
    static const char *const names[] = {"1", "2", "4", "8"};
    quantiser made = {};

    made.log2 = (int)draw_below(4);
    made.bits = names[made.log2];
    made.by.struct_size = sizeof made.by;
    made.by.bits = bits[made.log2];
    made.by.bucket = 8 * (1 + draw_below(draw_below(2) ? 100 : 8));
    made.by.norm = draw_below(2) ? WEFT_QUANTISE_L2 : WEFT_QUANTISE_MAX;
    made.by.seed = draw();
    made.by.nan = WEFT_NAN_ZERO;
    made.norm = made.by.bits == WEFT_QUANTISE_SIGN ? WEFT_GPU_MAGNITUDES
                : made.by.norm == WEFT_QUANTISE_L2 ? WEFT_GPU_SQUARES
                                                   : WEFT_GPU_LARGEST;
    return made;
}

// As a warp each bucket, or as large ones.
bool quantise_by_kernels(const quantiser &q, uint64_t stream, const area &values, size_t count,
                         area &bytes, unsigned long long *bad)
{
    const weft_gpu_quantiser by = {q.by.bucket, q.by.seed, stream, q.norm, 0};
    const float *from = floats(values);
    uint8_t *to = (uint8_t *)bytes.at();

    if (draw_below(2))
        return launch(std::string("weft_quantise_") + q.bits, from, (uint64_t)count, by, to, bad);
    area norms((count / q.by.bucket + 1) * 4);

    memset(norms.at(), 0, norms.bytes);
    return launch("weft_quantise_norms", from, (uint64_t)count, by, (uint64_t)(1 + draw_below(200)),
                  floats(norms), bad) &&
           launch(std::string("weft_quantise_codes_") + q.bits, from, (uint64_t)count, by,
                  (const float *)floats(norms), to);
}

void test_quantise()
{
    const quantiser q = draw_quantiser();
    const size_t count = draw_count();
    const uint64_t stream = draw();
    const size_t length = weft__quantise_bytes(&q.by, count);
    area values(count * 4, 4 * draw_below(4));
    area bytes(length, draw_below(16));
    area expected(length);
    variable<unsigned long long> bad(0);

    fill_floats(values, draw_below(4) == 0);
    const uint64_t found =
        weft__quantise(&q.by, stream, 0, floats(values), count, (uint8_t *)expected.at());

    if (!quantise_by_kernels(q, stream, values, count, bytes, &*bad))
        return;
    check(*bad == found && memcmp(bytes.at(), expected.at(), length) == 0 && bytes.intact(),
          "%zu quantised, %d bits, buckets of %zu, norm %u: %llu of %llu bad", count, q.by.bits,
          q.by.bucket, q.norm, *bad, (unsigned long long)found);
}

void test_dequantise()
{
    const quantiser q = draw_quantiser();
    const bool adds = draw_below(2);
    const size_t count = draw_count();
    area bytes(weft__quantise_bytes(&q.by, count), draw_below(16));
    area values(count * 4, 4 * draw_below(4));
    area expected(count * 4);

    for (size_t i = 0; i < bytes.bytes; i++)
        *bytes.at(i) = (char)draw();
    fill_floats(values, true);
    expected.copy(values);
    (adds ? weft__dequantise_add : weft__dequantise)(&q.by, (const uint8_t *)bytes.at(), count,
                                                     floats(expected));
    if (!launch(std::string(adds ? "weft_dequantise_add_" : "weft_dequantise_") + q.bits,
                (const uint8_t *)bytes.at(), (uint64_t)count, (uint64_t)q.by.bucket,
                floats(values)))
        return;
    const size_t at = first_difference(values.at(), expected.at(), count, WEFT_F32, true);

    check(at == count && values.intact(), "%zu dequantised%s, %d bits, buckets of %zu: %zu differs",
          count, adds ? " and added" : "", q.by.bits, q.by.bucket, at);
}

// ---- products ----

// Blocks of 256 threads, as the kernels want them.
bool launch_product(const std::string &name, const weft_gpu_product &product)
{
    const unsigned grid[3] = {1 + (unsigned)draw_below(3), 1, 1};
    const unsigned block[3] = {256, 1, 1};

    return launch_on(name + (draw_below(2) ? "_16" : "_64"), grid, block, product);
}

size_t draw_size()
{
    static const size_t sizes[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65};

    return draw_below(3) ? sizes[draw_below(12)] : 1 + draw_below(150);
}

bool same(const area &a, const area &b)
{
    return first_difference(a.at(), b.at(), a.bytes / 4, WEFT_F32, true) == a.bytes / 4 &&
           a.intact();
}

struct projection {
    size_t slice, components, count, slices;
    bool centres;
    float share;
    area values, mean, basis, out;
};

void project_wide(projection &of)
{
    const size_t whole = of.count / of.slice, rest = of.count % of.slice, d = of.components;
    const float *mean = of.centres ? floats(of.mean) : nullptr;
    weft_gpu_product product = {floats(of.values),
                                floats(of.basis),
                                nullptr,
                                floats(of.out),
                                of.slice,
                                d,
                                d,
                                whole,
                                of.slice,
                                d,
                                mean,
                                of.share};

    if (whole > 0 && !launch_product("weft_project", product))
        return;
    product.a += whole * of.slice;
    product.c += whole * d;
    product.mean = mean ? mean + whole * of.slice : nullptr;
    product.rows = 1;
    product.depth = rest;
    if (rest > 0)
        launch_product("weft_project", product);
}

// The parts of the host are drawn.
void test_squares(projection &of)
{
    const size_t tall = 1 + draw_below(of.slices), wide = 1 + draw_below(of.components + 1);
    const size_t d = of.components, down = (of.slices + tall - 1) / tall;
    const size_t parts = down * (d > 0 ? (d + wide - 1) / wide : 1);
    const weft__project_order order = weft__project_order_of(of.slice, wide < d ? wide : d, d);
    const float *mean = of.centres ? floats(of.mean) : nullptr;
    weft_gpu_squares squares = {floats(of.values),
                                mean,
                                floats(of.out),
                                of.count,
                                of.slice,
                                d,
                                of.share,
                                (uint32_t)order.narrow,
                                tall,
                                wide,
                                down,
                                parts,
                                order.rows,
                                order.deep,
                                order.joined};
    area sums(parts * 24), found(24), expected(24);
    double *to = (double *)(void *)found.at(), *right = (double *)(void *)expected.at();

    for (int i = 0; i < 3; i++)
        right[i] = to[i] = (double)draw_below(100);
    for (size_t part = 0; part < parts; part++) {
        const size_t m = part % down * tall, j = part / down * wide;
        const size_t slices = tall < of.slices - m ? tall : of.slices - m;
        const size_t left = of.count - m * of.slice;
        weft_projection_squares own = {0, 0, 0};
        std::vector<float> out(of.slices * (d + 1));
        const weft__projecting task = {floats(of.basis) + j,
                                       of.slice,
                                       wide < d - j ? wide : d - j,
                                       d,
                                       floats(of.values) + m * of.slice,
                                       slices * of.slice < left ? slices * of.slice : left,
                                       mean ? mean + m * of.slice : nullptr,
                                       of.share,
                                       out.data() + m * d + j,
                                       &own};

        weft__project(&task);
        right[0] += j == 0 ? own.values : 0;
        right[1] += j == 0 ? own.centred : 0;
        right[2] += own.kept;
    }
    const unsigned one[3] = {1, 1, 1}, three[3] = {3, 1, 1};

    if (launch("weft_project_squares", squares, (double *)(void *)sums.at()) &&
        launch_on("weft_project_add_squares", one, three, (const double *)(void *)sums.at(),
                  (uint64_t)down, (uint64_t)parts, to))
        check(first_difference(found.at(), expected.at(), 3, WEFT_F64, true) == 3,
              "squares of %zu in slices of %zu onto %zu, parts of %zu and %zu: %g %g %g, not %g %g "
              "%g",
              of.count, of.slice, d, tall, wide, to[0], to[1], to[2], right[0], right[1], right[2]);
}

void test_project()
{
    const size_t slice = draw_below(4) ? draw_size() : 1 + draw_below(1500);
    const size_t most = slice < 70 ? slice : 70,
                 d = draw_below(2) ? draw_below(most + 1) : draw_below(most < 8 ? most : 8);
    const size_t count = 1 + draw_below(slice * (slice > 300 ? 5 : 50));
    const size_t slices = (count + slice - 1) / slice;
    projection of = {slice,
                     d,
                     count,
                     slices,
                     draw_below(2) != 0,
                     1 / 3.0F,
                     {count * 4, 4 * draw_below(4)},
                     {count * 4},
                     {slice * d * 4},
                     {slices * d * 4, 4 * draw_below(4)}};
    area expected(slices * d * 4);

    if (draw_below(3) == 0)
        of.share = 1;
    fill_floats(of.values, draw_below(8) == 0);
    fill_floats(of.mean, false);
    fill_floats(of.basis, false);
    const weft__projecting task = {floats(of.basis),
                                   slice,
                                   d,
                                   d,
                                   floats(of.values),
                                   count,
                                   of.centres ? floats(of.mean) : nullptr,
                                   of.share,
                                   floats(expected),
                                   nullptr};

    weft__project(&task);
    if (d >= WEFT__NARROW)
        project_wide(of);
    else if (d > 0)
        launch("weft_project_narrow", (const float *)floats(of.values), (uint64_t)count, task.mean,
               of.share, (const float *)floats(of.basis), (uint64_t)slice, (uint32_t)d,
               floats(of.out));
    check(same(of.out, expected), "%zu in slices of %zu projected onto %zu", count, slice, d);
    of.out.copy(expected);
    test_squares(of);
}

void test_reconstruct()
{
    const size_t slice = draw_size(), d = draw_below((slice < 70 ? slice : 70) + 1);
    const size_t count = 1 + draw_below(slice * 20), whole = count / slice, rest = count % slice;
    const size_t slices = whole + (rest > 0);
    const unsigned starts = (unsigned)draw_below(3);
    area basis(slice * d * 4), in(slices * d * 4), mean(count * 4), values(count * 4, 4),
        expected(count * 4);

    fill_floats(basis, false);
    fill_floats(in, draw_below(8) == 0);
    fill_floats(mean, false);
    values.copy(mean);
    expected.copy(mean);
    float *to = floats(values);
    const float *start = starts == 0 ? nullptr : starts == 1 ? floats(mean) : to;
    const weft__reconstructing task = {
        floats(basis),   slice, d, floats(in), count, slice, starts == 0 ? nullptr : floats(mean),
        floats(expected)};

    weft__reconstruct(&task);
    weft_gpu_product product = {floats(in), floats(basis), start, to,    d,       d,
                                slice,      whole,         d,     slice, nullptr, 0};
    if (whole > 0 && !launch_product("weft_reconstruct", product))
        return;
    product.a += whole * d;
    product.start = start ? start + whole * slice : nullptr;
    product.c += whole * slice;
    product.rows = 1;
    product.columns = rest;
    if (rest > 0 && !launch_product("weft_reconstruct", product))
        return;
    check(same(values, expected), "%zu in slices of %zu from %zu", count, slice, d);
}

void test_correlate()
{
    const size_t slice = draw_size(), d = 1 + draw_below(70),
                 rows = draw_below(4) ? draw_size() : 0;
    area values(rows * slice * 4), in(rows * d * 4), out(slice * d * 4, 4), expected(slice * d * 4);

    fill_floats(values, draw_below(8) == 0);
    fill_floats(in, false);
    const weft__correlating task = {floats(values), rows, slice,           slice,
                                    floats(in),     d,    floats(expected)};

    weft__correlate(&task);
    if (launch_product("weft_correlate", {floats(values), floats(in), nullptr, floats(out), slice,
                                          d, d, slice, rows, d, nullptr, 0}))
        check(same(out, expected), "%zu rows of %zu and of %zu", rows, slice, d);
}

// ---- orthonormal columns ----

void test_orthonormalise()
{
    const size_t columns = 1 + draw_below(draw_below(3) ? 5 : 20);
    const size_t rows = draw_below(3) ? 1 + draw_below(40) : 250 + draw_below(300);
    area matrix(rows * columns * 4), expected(rows * columns * 4);
    std::vector<double> work(2 + 2 * columns);
    variable<unsigned long long> bad(7);
    const unsigned grid[3] = {1, 1, 1};
    const unsigned block[3] = {64 * (1 + (unsigned)draw_below(3)), 1, 1};

    fill_floats(matrix, draw_below(10) == 0);
    for (size_t r = 0; r < rows && columns > 2 && draw_below(2); r++)
        floats(matrix)[r * columns + 2] = 2 * floats(matrix)[r * columns];
    expected.copy(matrix);
    const bool finite = weft__all_finite(floats(expected), rows * columns);

    for (size_t c = 0; finite && c < columns; c++)
        for (size_t pass = 0; pass < WEFT__ORTHONORMAL_PASSES; pass++) {
            const weft__orthonormalising task = {floats(expected), columns, c, pass, 0, rows,
                                                 work.data()};

            weft__orthonormalise(&task);
        }
    if (launch_on("weft_orthonormalise", grid, block, floats(matrix), (uint64_t)rows,
                  (uint32_t)columns, &*bad))
        check(*bad == !finite && memcmp(matrix.at(), expected.at(), matrix.bytes) == 0,
              "%zu rows of %zu columns", rows, columns);
}

} // namespace

void test_compress()
{
    for (int round = 0; round < 60; round++) {
        test_quantise();
        test_quantise();
        test_dequantise();
        test_dequantise();
        test_project();
        test_reconstruct();
        test_correlate();
        test_orthonormalise();
    }
}
