// SPDX-License-Identifier: BSD-3-Clause
// Linear combinations: every mixture of datatypes, beside plain loops that round after each step.
#include "tests/gpu/kernel_tests.h"

#include <math.h>
#include <memory>

namespace
{

const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64}; // weft_gpu_format

// A vector, an area a segment.
struct vector_of {
    unsigned format;
    std::vector<std::unique_ptr<area>> parts;
};

struct problem {
    bool wide; // computed in f64
    std::vector<size_t> counts;
    std::vector<vector_of> terms;
    vector_of to, less;
    bool has_to, has_less;
    int alias; // the term that `to` is; -1: none; -2: it is `less`
    weft_gpu_combination of;
};

unsigned draw_format(bool wide)
{
    return (unsigned)draw_below(wide ? 4 : 3);
}

vector_of draw_vector(const problem &is, unsigned format, const std::vector<size_t> &phases)
{
    vector_of made = {format, {}};

    for (size_t s = 0; s < is.counts.size(); s++) {
        const size_t size = dtype_bytes(dtypes[format]);
        const size_t phase = draw_below(8) > 0 ? phases[s] : draw_below(8);

        made.parts.emplace_back(new area(is.counts[s] * size, phase * size));
        fill_numbers(*made.parts[s], dtypes[format]);
    }
    return made;
}

double draw_factor()
{
    static const double factors[] = {1, 1, 1, -1, -1, 0.3, 2, -1.0 / 3};

    return factors[draw_below(8)];
}

size_t draw_count()
{
    static const size_t counts[] = {0, 1, 3, 4, 5, 31, 32, 33, 127, 128, 129, 513};
    const size_t which = draw_below(16);

    return which < 12 ? counts[which] : draw_below(3000);
}

problem draw_problem()
{
    problem is = {};
    std::vector<size_t> phases;

    is.wide = draw_below(2);
    for (size_t s = 1 + draw_below(draw_below(4) ? 3 : 8); s > 0; s--) {
        is.counts.push_back(draw_count());
        phases.push_back(draw_below(8));
    }
    for (size_t k = 1 + draw_below(draw_below(4) ? 3 : WEFT_GPU_MOST_TERMS); k > 0; k--)
        is.terms.push_back(draw_vector(is, draw_format(is.wide), phases));
    is.has_to = draw_below(8) > 0;
    is.has_less = is.has_to && draw_below(3) == 0;
    is.to = draw_vector(is, draw_format(is.wide), phases);
    is.less = draw_vector(is, draw_format(is.wide), phases);
    is.alias = draw_below(2)                  ? (int)draw_below(is.terms.size())
               : is.has_less && draw_below(2) ? -2
                                              : -1;
    is.of.terms = (uint32_t)is.terms.size();
    for (unsigned k = 0; k < is.of.terms; k++)
        is.of.factors[k] = draw_factor();
    is.of.factor = draw_below(3) ? 1 : draw_factor();
    is.of.divisor = draw_below(2) ? 1 : 2 + (double)draw_below(6);
    is.of.looks = draw_below(2) ? (uint32_t)draw_below(1u << is.of.terms) : 0;
    is.of.clears = draw_below(2) ? (uint32_t)draw_below(1u << is.of.terms) : 0;
    is.of.adds = is.has_to && draw_below(3) == 0;
    return is;
}

const vector_of &target_of(const problem &is)
{
    return is.alias >= 0 ? is.terms[(size_t)is.alias] : is.alias == -2 ? is.less : is.to;
}

// ---- by plain loops ----

template <class number> number get(const vector_of &from, size_t s, size_t i)
{
    const weft_dtype_t dtype = dtypes[from.format];
    number x;

    weft__convert(sizeof x == 8 ? WEFT_F64 : WEFT_F32, &x, dtype,
                  from.parts[s]->at(i * dtype_bytes(dtype)), 1);
    return x;
}

// Of element i of segment s; counts what is not finite.
template <class number>
number combine_one(const problem &is, size_t s, size_t i, uint64_t place, uint64_t found[2])
{
    number sum = 0;

    for (size_t k = 0; k < is.terms.size(); k++) {
        number x = get<number>(is.terms[k], s, i);

        if (!std::isfinite(x) && is.of.looks >> k & 1) {
            found[0]++;
            found[1] = place + i < found[1] ? place + i : found[1];
        }
        if (!std::isfinite(x) && is.of.clears >> k & 1)
            x = 0;
        if (is.of.factors[k] != 1)
            x *= (number)is.of.factors[k];
        sum = k == 0 ? x : sum + x;
    }
    if (is.of.factor != 1)
        sum *= (number)is.of.factor;
    if (is.of.divisor != 1)
        sum /= (number)is.of.divisor;
    if (is.has_less)
        sum -= get<number>(is.less, s, i);
    return is.of.adds ? get<number>(target_of(is), s, i) + sum : sum;
}

template <class number>
std::vector<std::vector<char>> combine_plainly(const problem &is, uint64_t found[2])
{
    const weft_dtype_t dtype = dtypes[target_of(is).format];
    std::vector<std::vector<char>> expected;
    uint64_t place = 0;

    for (size_t s = 0; s < is.counts.size(); place += is.counts[s++]) {
        expected.emplace_back(is.counts[s] * dtype_bytes(dtype));
        for (size_t i = 0; i < is.counts[s]; i++) {
            const number x = combine_one<number>(is, s, i, place, found);

            weft__convert(dtype, &expected[s][i * dtype_bytes(dtype)],
                          sizeof x == 8 ? WEFT_F64 : WEFT_F32, &x, 1);
        }
    }
    return expected;
}

// ---- by the kernel ----

uint64_t lay_out(problem &is)
{
    uint64_t blocks = 0, place = 0;

    is.of.segments = (uint32_t)is.counts.size();
    is.of.to_format = (uint8_t)target_of(is).format;
    is.of.less_format = (uint8_t)is.less.format;
    for (size_t s = 0; s < is.counts.size(); s++) {
        weft_gpu_segment &part = is.of.segment[s];

        part.to = is.has_to ? target_of(is).parts[s]->at() : nullptr;
        part.less = is.has_less ? is.less.parts[s]->at() : nullptr;
        for (size_t k = 0; k < is.terms.size(); k++) {
            is.of.formats[k] = (uint8_t)is.terms[k].format;
            part.terms[k] = is.terms[k].parts[s]->at();
        }
        part.count = is.counts[s];
        part.place = place;
        part.before = blocks;
        blocks += 1 + draw_below(3);
        place += is.counts[s];
    }
    return blocks;
}

// Of a single number, and of none, bits are kept; of sums any NaN stands for any.
bool same(const problem &is, const std::vector<std::vector<char>> &expected)
{
    bool holds = true;

    for (size_t s = 0; s < is.counts.size(); s++) {
        const vector_of &to = target_of(is);

        holds = holds && to.parts[s]->intact() &&
                first_difference(to.parts[s]->at(), expected[s].data(), is.counts[s],
                                 dtypes[to.format], true) == is.counts[s];
    }
    return holds;
}

void test_one()
{
    struct pair {
        unsigned long long at[2];
    };
    problem is = draw_problem();
    uint64_t found[2] = {draw_below(9), UINT64_MAX};
    variable<pair> counted(pair{{found[0], UINT64_MAX}});
    const unsigned grid[3] = {(unsigned)lay_out(is), 1, 1};
    const unsigned block[3] = {32 * (1 + (unsigned)draw_below(4)), 1, 1};
    const std::vector<std::vector<char>> expected =
        is.wide ? combine_plainly<double>(is, found) : combine_plainly<float>(is, found);

    is.of.found = is.of.looks || draw_below(2) ? (*counted).at : nullptr;
    if (!launch_on(is.wide ? "weft_combine_f64" : "weft_combine_f32", grid, block, is.of))
        return;
    check(!is.has_to || same(is, expected), "%s of %u terms in %u segments",
          is.wide ? "f64" : "f32", is.of.terms, is.of.segments);
    check((*counted).at[0] == found[0] && (*counted).at[1] == found[1],
          "%llu not finite from %llu on, expected %llu from %llu on", (*counted).at[0],
          (*counted).at[1], (unsigned long long)found[0], (unsigned long long)found[1]);
}

// A term alone goes through bit by bit, NaNs too.
void test_alone(unsigned from, unsigned to)
{
    const size_t count = draw_below(600);
    const bool wide = from == WEFT_GPU_F64 || to == WEFT_GPU_F64;
    area x(count * dtype_bytes(dtypes[from]), 2 * dtype_bytes(dtypes[from]));
    area y(count * dtype_bytes(dtypes[to]), 2 * dtype_bytes(dtypes[to]));
    area expected(y.bytes);
    weft_gpu_combination of = {};
    const unsigned grid[3] = {1 + (unsigned)draw_below(3), 1, 1};
    const unsigned block[3] = {64, 1, 1};

    fill_numbers(x, dtypes[from]);
    weft__convert(dtypes[to], expected.at(), dtypes[from], x.at(), count);
    of.terms = of.segments = 1;
    of.factors[0] = of.factor = of.divisor = 1;
    of.formats[0] = (uint8_t)from;
    of.to_format = (uint8_t)to;
    of.segment[0].to = y.at();
    of.segment[0].terms[0] = x.at();
    of.segment[0].count = count;
    if (launch_on(wide ? "weft_combine_f64" : "weft_combine_f32", grid, block, of))
        check(first_difference(y.at(), expected.at(), count, dtypes[to], from == to) == count,
              "one term, format %u to %u", from, to);
}

// What blocks find adds up to the squares, twice in a row; sums of others stay.
void test_squares()
{
    problem is = draw_problem();
    const unsigned blocks = 1 + (unsigned)draw_below(5);
    const unsigned grid[3] = {blocks, 1, 1};
    const unsigned block[3] = {32 * (1 + (unsigned)draw_below(4)), 1, 1};
    area sums((blocks + 1) * sizeof(double));
    double *sum = (double *)(void *)sums.at();
    double expected = 0, found = 0, first;

    is.has_to = is.has_less = false;
    is.terms.resize(1);
    is.of.terms = 1;
    is.of.looks = is.of.adds = 0;
    is.of.clears &= 1;
    lay_out(is);
    for (size_t s = 0; s < is.counts.size(); s++)
        for (size_t i = 0; i < is.counts[s]; i++) {
            const double x = get<double>(is.terms[0], s, i);

            expected += is.of.clears && !std::isfinite(x) ? 0 : x * x;
        }
    memset(sum, 0, sums.bytes);
    sum[blocks] = 7;
    if (!launch_on("weft_squares", grid, block, is.of, sum))
        return;
    for (unsigned b = 0; b < blocks; b++)
        found += sum[b];
    check(found == expected || (std::isnan(found) && std::isnan(expected)) ||
              fabs(found - expected) <= 1e-12 * expected,
          "squares of %u segments: %.17g, expected %.17g", is.of.segments, found, expected);
    first = sum[0];
    if (launch_on("weft_squares", grid, block, is.of, sum))
        check((sum[0] == 2 * first || std::isnan(first)) && sum[blocks] == 7 && sums.intact(),
              "squares again: %.17g, expected twice %.17g", sum[0], first);
}

} // namespace

void test_combine()
{
    for (int round = 0; round < 100; round++)
        test_squares();
    for (int round = 0; round < 400; round++)
        test_one();
    for (unsigned from = 0; from < 4; from++)
        for (unsigned to = 0; to < 4; to++)
            for (int round = 0; round < 4; round++)
                test_alone(from, to);
}
