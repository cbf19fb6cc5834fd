// SPDX-License-Identifier: BSD-3-Clause
// What operations on lists do beside merging, kernel by kernel, beside plain loops and ops/.
#include "tests/gpu/kernel_tests.h"

#include <math.h>

namespace
{

enum { THREADS = 64 };

// A list as nodes have it: indices, then values behind those that there are, in memory of that
// length; or values apart.
struct list {
    list(size_t count, bool apart)
        : count(count), apart(apart), packed(count * (apart ? 4 : 8)),
          values(apart ? count * 4 : 0), range(16)
    {
    }
    uint32_t *index() const
    {
        return (uint32_t *)(void *)packed.at();
    }
    float *value() const
    {
        return (float *)(void *)(apart ? values.at() : packed.at(4 * count));
    }
    // All of it; the device alone knows where it ends.
    weft_gpu_list whole(bool known) const
    {
        uint64_t *of = (uint64_t *)(void *)range.at();

        of[0] = 0;
        of[1] = count;
        return {packed.at(), apart ? values.at() : nullptr, count, known ? nullptr : of};
    }
    size_t count;
    bool apart;
    area packed, values, range;
};

void draw_list(const list &to, uint32_t most_step)
{
    uint32_t index = (uint32_t)draw_below(10);

    for (size_t i = 0; i < to.count; i++) {
        const uint32_t bits = (uint32_t)draw_number(WEFT_F32);

        to.index()[i] = index;
        memcpy(to.value() + i, &bits, sizeof bits);
        index += 1 + (uint32_t)draw_below(most_step);
    }
}

size_t draw_length()
{
    static const size_t lengths[] = {0, 1, 2, 3, 4, 5, 127, 128, 129, 255, 256, 257, 512};

    return draw_below(3) ? lengths[draw_below(13)] : draw_below(1500);
}

template <class... types>
bool launch_blocks(const char *name, unsigned blocks, unsigned threads, types... values)
{
    const unsigned grid[3] = {blocks, 1, 1};
    const unsigned block[3] = {threads, 1, 1};

    return launch_on(name, grid, block, values...);
}

struct work {
    variable<weft_gpu_chain> chain{weft_gpu_chain{}};
    area totals{2048 * 8};
    variable<weft_gpu_found> report{weft_gpu_found{}};

    bool begin()
    {
        memset(&*chain, 0x77, sizeof(weft_gpu_chain));
        memset(totals.at(), 0x77, totals.bytes);
        return launch_blocks("weft_list_begin", 1, 32 * (1 + (unsigned)draw_below(3)), &*chain,
                             (unsigned long long *)(void *)totals.at());
    }
    bool end()
    {
        return launch_blocks("weft_list_end", 1, 1, (const weft_gpu_chain *)&*chain,
                             (const uint64_t *)nullptr, &*report);
    }
};

// ---- checking ----

// Swaps or repeats an index, or not: how the list is wrong then.
uint64_t disturb(const list &of, uint64_t number)
{
    if (of.count < 2 || draw_below(3) == 0)
        return UINT64_MAX;
    const size_t at = 1 + (size_t)draw_below(of.count - 1);

    of.index()[at] = of.index()[at - 1] - (uint32_t)draw_below(2) * (of.index()[at - 1] > 0);
    return number << 48 | at;
}

void test_check_of(bool loose)
{
    const uint32_t flags = (uint32_t)draw_below(8);
    list a(draw_length(), draw_below(2)), b(draw_length(), draw_below(2));
    const list *both[] = {&a, &b};
    weft_gpu_lists lists = {};
    uint64_t disorder = UINT64_MAX, nans = 0;
    work own;

    lists.count = 2;
    for (int i = 0; i < 2; i++) {
        draw_list(*both[i], 4);
        const uint64_t wrong = disturb(*both[i], (uint64_t)i);

        disorder = wrong < disorder ? wrong : disorder;
        lists.list[i] = both[i]->whole(draw_below(2));
        for (size_t j = 0; j < both[i]->count; j++)
            nans += isnan(both[i]->value()[j]);
    }
    if (!own.begin())
        return;
    (*own.chain).loose = loose;
    if (!launch("weft_list_check", lists, flags, &*own.chain) || !own.end())
        return;
    const weft_gpu_found &found = *own.report;
    bool cleared = true;

    for (int i = 0; i < 2; i++)
        for (size_t j = 0; j < both[i]->count; j++)
            cleared = cleared && !isnan(both[i]->value()[j]);
    check(found.disorder == (flags & WEFT_LIST_ORDER && !loose ? disorder : UINT64_MAX) &&
              found.nans == (flags & WEFT_LIST_NANS && !loose ? nans : 0) &&
              cleared == (nans == 0 || (!loose && (flags & 6) == 6)),
          "lists of %zu and %zu checked by %u: %llx, %llu of %llu NaNs", a.count, b.count, flags,
          found.disorder, found.nans, (unsigned long long)nans);
}

// ---- parts ----

void test_cut()
{
    list of(draw_length(), draw_below(2));
    area bounds(3 * 8);
    uint64_t *bound = (uint64_t *)(void *)bounds.at();
    const uint64_t most = draw_below(of.count + 2);
    work own;

    draw_list(of, 3);
    for (int i = 0; i < 3; i++)
        bound[i] = draw_below(2 * of.count + 20);
    if (draw_below(4) && bound[0] > bound[2])
        bound[0] = bound[2];
    if (!own.begin() || !launch_blocks("weft_list_cut", 1, 1, of.whole(draw_below(2)),
                                       (const uint64_t *)bound, (uint64_t)3, most, &*own.chain))
        return;
    const weft_gpu_chain &chain = *own.chain;
    uint64_t begin = 0, end = 0;

    while (begin < of.count && of.index()[begin] < bound[0])
        begin++;
    while (end < of.count && of.index()[end] < bound[2])
        end++;
    end = bound[0] > bound[2] ? begin : end;
    check(chain.range[0] == begin && chain.range[1] == end && chain.found.total == end - begin &&
              (chain.loose != 0) == (end - begin <= most) && chain.found.detail[0] == bound[0] &&
              chain.found.detail[1] == bound[2],
          "%zu pairs cut at %llu and %llu: [%llu, %llu)", of.count, (unsigned long long)bound[0],
          (unsigned long long)bound[2], (unsigned long long)chain.range[0],
          (unsigned long long)chain.range[1]);
}

// ---- what stays ----

struct keeping {
    size_t k, residual_count;
    bool raised, clears, known;
    float threshold;
    uint32_t flags;
};

keeping draw_keeping(const list &of)
{
    static const float thresholds[] = {0, 1, 0x1p-149F, INFINITY, 1e-30F, -1, NAN};
    keeping is = {};

    is.k = draw_below(3) ? draw_below(of.count + 2) : draw_below(3);
    is.residual_count = draw_below(3) ? 10 + 3 * of.count : draw_below(10 + 3 * of.count);
    is.raised = draw_below(2);
    is.threshold = thresholds[draw_below(7)];
    is.clears = draw_below(2);
    is.known = draw_below(2);
    is.flags = (is.clears ? WEFT_LIST_CLEAR : WEFT_LIST_NANS) |
               (is.raised ? (uint32_t)WEFT_LIST_RAISED : 0u);
    return is;
}

bool launch_keeping(const keeping &is, const list &of, work &own, area &indices, area &residual)
{
    const size_t chunks = of.count / (THREADS * WEFT_SELECT_ITEMS) + 1;
    const weft_gpu_list list = of.whole(is.known);
    weft_gpu_lists lists = {{list}, 1};
    area above((chunks + 1) * 8), equal((chunks + 1) * 8);
    variable<float> threshold(is.threshold);
    uint64_t *tables[] = {(uint64_t *)(void *)above.at(), (uint64_t *)(void *)equal.at()};
    bool runs = own.begin() &&
                launch("weft_list_check", lists, (uint32_t)(WEFT_LIST_ORDER | WEFT_LIST_NANS),
                       &*own.chain) &&
                launch_blocks("weft_list_select", 1, 1, list, (uint64_t)is.k, &*own.chain);

    for (int digit = 0; runs && digit < 3; digit++)
        runs = launch("weft_topk_count_f32", (void *)of.value(), (const void *)nullptr,
                      (uint64_t)of.count, (const uint64_t *)(void *)of.range.at(), 0u, (uint64_t)0,
                      &(*own.chain).select, (unsigned long long *)(void *)own.totals.at());
    if (runs && is.raised)
        runs = launch_blocks("weft_list_raise", 1, 1, (const float *)&*threshold, &*own.chain);
    return runs &&
           launch_blocks("weft_list_count", 1 + (unsigned)draw_below(3), THREADS, list, &*own.chain,
                         tables[0], tables[1]) &&
           launch_blocks("weft_list_write", 1 + (unsigned)draw_below(3), THREADS, list, &*own.chain,
                         (const uint64_t *)tables[0], (const uint64_t *)tables[1], (uint64_t)is.k,
                         is.flags, (void *)indices.at(), (void *)residual.at(),
                         (uint64_t)is.residual_count) &&
           own.end();
}

uint32_t key_at(const list &of, size_t i)
{
    uint32_t bits;

    memcpy(&bits, of.value() + i, sizeof bits);
    bits &= INT32_MAX;
    return bits > 0x7f800000u ? 0 : bits;
}

// Entry i stays if fewer than k are greater, or equal and before it, and it reaches the threshold.
bool stays(const keeping &is, const list &of, size_t i)
{
    size_t before = 0;

    for (size_t j = 0; j < of.count; j++)
        before += key_at(of, j) > key_at(of, i) || (j < i && key_at(of, j) == key_at(of, i));
    return before < is.k &&
           (!is.raised || key_at(of, i) >= weft__topk_key(WEFT_F32, (double)is.threshold));
}

void compare_kept(const keeping &is, const list &of, const weft_gpu_found &found,
                  const area &indices, area &expected, const area &residual)
{
    std::vector<uint32_t> at, values;
    float *sums = (float *)(void *)expected.at();
    unsigned long long outside = 0;

    for (size_t i = 0; i < of.count; i++) {
        const float value = is.clears && isnan(of.value()[i]) ? 0 : of.value()[i];
        const uint32_t index = of.index()[i];
        uint32_t bits;

        memcpy(&bits, &value, sizeof bits);
        if (stays(is, of, i)) {
            at.push_back(index);
            values.push_back(bits);
        } else if (index < is.residual_count) {
            sums[index] += value;
        } else if (is.residual_count > 0) {
            outside = index + 1u;
        }
    }
    at.insert(at.end(), values.begin(), values.end());
    check(found.count == values.size() && found.outside == outside &&
              (at.empty() || memcmp(indices.at(), at.data(), 4 * at.size()) == 0) &&
              first_difference(residual.at(), expected.at(), is.residual_count, WEFT_F32, true) ==
                  is.residual_count,
          "%zu of %zu pairs kept%s by %g: %llu, beyond the residual %llu", is.k, of.count,
          is.clears ? ", cleared" : "", is.raised ? (double)is.threshold : 0.0,
          (unsigned long long)found.count, found.outside);
}

void test_keep()
{
    list of(draw_length(), draw_below(2));
    const keeping is = draw_keeping(of);
    const size_t most = is.k < of.count ? is.k : of.count;
    area indices(most * 8), residual(is.residual_count * 4), expected(is.residual_count * 4);
    uint64_t nans = 0;
    work own;

    draw_list(of, 3);
    for (size_t i = 0; i < of.count; i++) {
        if (is.flags & WEFT_LIST_NANS && isnan(of.value()[i]) && draw_below(50))
            of.value()[i] = 1;
        nans += isnan(of.value()[i]);
    }
    fill_numbers(residual, WEFT_F32);
    expected.copy(residual);
    if (!launch_keeping(is, of, own, indices, residual))
        return;
    const weft_gpu_found &found = *own.report;
    const bool refused =
        (is.flags & WEFT_LIST_NANS && nans > 0) || (is.raised && !(is.threshold >= 0));

    check(found.total == of.count && found.nans == nans &&
              (!is.raised || found.detail[1] == !(is.threshold >= 0)),
          "%zu pairs: %llu, %llu NaNs", of.count, (unsigned long long)found.total, found.nans);
    if (!refused)
        compare_kept(is, of, found, indices, expected, residual);
    else
        check(
            (is.residual_count == 0 || memcmp(residual.at(), expected.at(), residual.bytes) == 0) &&
                (most == 0 || indices.at()[0] == 0x5a),
            "what is refused is not written");
}

// ---- bounds ----

void test_bounds()
{
    list of(draw_length(), false);
    const size_t count = 2 + draw_below(600);
    area bounds(count * 8);
    uint64_t *bound = (uint64_t *)(void *)bounds.at();
    work own;

    draw_list(of, 3);
    const uint64_t elements = of.count ? of.index()[of.count - 1] + draw_below(2) : draw_below(9);

    for (size_t i = 0; i < count; i++)
        bound[i] = elements * i / (count - 1);
    if (draw_below(4) == 0)
        bound[draw_below(2) * (count - 1)]++;
    if (draw_below(4) == 0)
        bound[draw_below(count)] = draw_below(elements + 1);
    const uint64_t wrong = draw_below(2) ? UINT64_MAX : disturb(of, 0);
    uint64_t expected[4] = {WEFT_BOUNDS_RIGHT, 0, 0, 0};
    size_t step = 1;

    while (step < count && bound[step] >= bound[step - 1])
        step++;
    if (bound[0] != 0 || bound[count - 1] != elements) {
        const uint64_t ends[] = {WEFT_BOUNDS_ENDS, bound[0], bound[count - 1], 0};
        memcpy(expected, ends, sizeof ends);
    } else if (step < count) {
        const uint64_t steps[] = {WEFT_BOUNDS_STEP, step, bound[step], bound[step - 1]};
        memcpy(expected, steps, sizeof steps);
    } else if (wrong != UINT64_MAX) {
        const uint64_t order[] = {WEFT_BOUNDS_ORDER, wrong, of.index()[wrong],
                                  of.index()[wrong - 1]};
        memcpy(expected, order, sizeof order);
    } else if (of.count > 0 && of.index()[of.count - 1] >= elements) {
        const uint64_t last[] = {WEFT_BOUNDS_LAST, of.index()[of.count - 1], 0, 0};
        memcpy(expected, last, sizeof last);
    }
    if (!own.begin() ||
        !launch("weft_list_bounds", (const uint64_t *)bound, (uint64_t)count,
                of.whole(draw_below(2)), elements, &*own.chain) ||
        !own.end())
        return;
    const weft_gpu_found &found = *own.report;

    check(found.total == expected[0] && memcmp(found.detail, expected + 1, 24) == 0,
          "%zu bounds of %zu pairs in %llu: %llu (%llu), of %llu (%llu)", count, of.count,
          (unsigned long long)elements, (unsigned long long)found.total,
          (unsigned long long)expected[0], (unsigned long long)found.detail[0],
          (unsigned long long)expected[1]);
}

} // namespace

void test_lists()
{
    for (int round = 0; round < 40; round++) {
        test_check_of(round % 8 == 0);
        test_cut();
        test_keep();
        test_keep();
        test_bounds();
    }
}
