// SPDX-License-Identifier: BSD-3-Clause
// Exact selection, and selection by a threshold, beside ops/topk.c.
#include "tests/gpu/kernel_tests.h"

namespace
{

enum { THREADS = 64, CHUNK = THREADS * WEFT_SELECT_ITEMS };

const weft_dtype_t floats[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
const char *const names[] = {"f16", "bf16", "f32", "f64"};

struct selection {
    int format;
    bool wide;
    bool above;
    bool adds;
    bool erases;
    size_t count;
    bool strict;        // NaNs are refused
    bool searches_wide; // of f32
    size_t k;
    size_t capacity;
    double threshold;
    double guess; // negative: none
};

struct output {
    area indices;
    area values;
    size_t count;
    size_t found;
    size_t nans;
    float hint;
};

// ---- by ops/ ----

void select_plainly(const selection &is, area &residual, const area &values, output &to)
{
    struct weft__topk_task task = {};
    struct weft__topk topk;
    struct weft__topk_report report;

    task.dtype = floats[is.format];
    task.values = is.adds ? values.at() : residual.at();
    task.residual = is.adds ? residual.at() : nullptr;
    task.count = is.count;
    task.k = is.k;
    task.above = is.above;
    task.threshold = is.threshold;
    task.erase_nans = is.erases;
    task.parts = 1;
    void *workspace = aligned_alloc(64, (weft__topk_bytes(&task) + 63) / 64 * 64 + 64);

    weft__topk_begin(&topk, &task, workspace);
    do
        weft__topk_scan(&topk, 0);
    while (weft__topk_again(&topk));
    to.nans = weft__topk_nans(&topk);
    weft__topk_end(&topk, to.indices.at(), is.wide, to.values.at(), &report);
    to.count = report.count;
    to.found = report.found;
    free(workspace);
}

// ---- by kernels ----

// What a launch sequence works on, device memory of its own each.
struct memory {
    explicit memory(const selection &is)
        : chunks(is.count / CHUNK + 1), above((chunks + 1) * 8), equal((chunks + 1) * 8),
          starts(chunks * 8), ties(chunks * THREADS), totals(2048 * 8),
          wide(((1u << WEFT_TOPK_WIDE) + (1u << WEFT_TOPK_WIDE / 2)) * is.searches_wide * 8),
          size(dtype_bytes(floats[is.format])), scratch(is.capacity * size),
          scratch_at(is.capacity * (is.wide ? 8 : 4)), list(is.capacity * size),
          list_at(is.capacity * (is.wide ? 8 : 4))
    {
        memset(totals.at(), 0, totals.bytes);
        if (is.searches_wide)
            memset(wide.at(), 0, wide.bytes);
    }
    size_t chunks;
    area above, equal, starts, ties, totals, wide;
    size_t size;
    area scratch, scratch_at, list, list_at;
    variable<weft_gpu_select> select{weft_gpu_select{}};
    variable<weft_gpu_found> found{weft_gpu_found{}};
    variable<float> number{0};
};

template <class... types>
bool launch_fixed(const std::string &name, unsigned blocks, unsigned threads, types... values)
{
    const unsigned grid[3] = {blocks, 1, 1};
    const unsigned block[3] = {threads, 1, 1};

    return launch_on(name, grid, block, values...);
}

unsigned key_bits(const selection &is)
{
    return 8 * (unsigned)dtype_bytes(floats[is.format]) - 1;
}

// By the kernel, which knows f32 alone where it reads numbers, or as it would be.
bool begin(const selection &is, memory &own)
{
    const float *number = is.above || is.guess >= 0 ? &*own.number : nullptr;
    weft_gpu_select &select = *own.select;

    *own.number = (float)(is.above ? is.threshold : is.guess);
    if (is.format == 2 || (!is.above && draw_below(2))) {
        memset(own.totals.at(), 0x77, own.totals.bytes);
        return launch_fixed("weft_select_begin", 1, 32 * (1 + (unsigned)draw_below(4)), &select,
                            (uint64_t)is.k, (uint64_t)is.count, key_bits(is),
                            is.above ? (const float *)nullptr : number,
                            is.above ? number : (const float *)nullptr,
                            (unsigned long long *)(void *)own.totals.at());
    }
    select.wanted = is.above ? UINT64_MAX : is.k < is.count ? is.k : is.count;
    select.k = is.k;
    if (is.above) {
        select.prefix = weft__topk_key(floats[is.format], is.threshold);
    } else {
        select.equal = is.count;
        select.shift = key_bits(is);
    }
    return true;
}

uint32_t flags_of(const selection &is)
{
    return WEFT_GPU_FIRST | (is.adds && is.erases ? WEFT_GPU_ERASE : 0);
}

// Of the vector, or of the list that has been gathered.
bool count_digit(const selection &is, memory &own, area *residual, const void *addend,
                 uint32_t flags)
{
    weft_gpu_select *select = &*own.select;
    void *x = residual ? residual->at() : own.list.at();
    const uint64_t *range = residual ? nullptr : &select->begin;

    return launch(std::string("weft_topk_count_") + names[is.format], x, addend, (uint64_t)is.count,
                  range, flags, residual ? (uint64_t)is.capacity : (uint64_t)0, select,
                  (unsigned long long *)(void *)own.totals.at());
}

bool count_wide(const selection &is, memory &own, area &residual)
{
    return launch("weft_topk_wide_f32", (const void *)residual.at(), (uint64_t)is.count,
                  (uint64_t)is.capacity, &*own.select, (unsigned long long *)(void *)own.wide.at());
}

std::string suffix(const selection &is)
{
    return std::string("_") + names[is.format] + (is.wide ? "_u64" : "_u32");
}

bool gather(const selection &is, memory &own, void *x, const void *at, const void *addend,
            uint32_t flags)
{
    return launch_fixed("weft_select_gather" + suffix(is), 1 + (unsigned)draw_below(4), THREADS, x,
                        at, addend, (uint64_t)is.count, flags, &*own.select,
                        (void *)own.scratch.at(), (void *)own.scratch_at.at(),
                        (uint8_t *)own.ties.at(), (uint64_t)is.capacity,
                        (uint64_t *)(void *)own.above.at(), (uint64_t *)(void *)own.equal.at(),
                        (uint64_t *)(void *)own.starts.at());
}

bool write(const selection &is, memory &own, void *x, const void *at, uint32_t flags, uint64_t most,
           void *values, void *indices, void *zero)
{
    return launch_fixed("weft_select_write" + suffix(is), 1 + (unsigned)draw_below(4), THREADS, x,
                        at, (uint64_t)is.count, flags, &*own.select, (void *)own.scratch.at(),
                        (void *)own.scratch_at.at(), (uint8_t *)own.ties.at(),
                        (uint64_t)is.capacity, (uint64_t *)(void *)own.above.at(),
                        (uint64_t *)(void *)own.equal.at(), (uint64_t *)(void *)own.starts.at(),
                        most, values, indices, zero, (uint32_t)is.strict);
}

// The vector is read by as many launches as may be: writing does not look at it again.
bool search_vector(const selection &is, memory &own, area &residual, const void *addend)
{
    const unsigned digits = is.searches_wide ? 1 : (key_bits(is) + 10) / 11;
    const uint32_t first = flags_of(is);
    const weft_gpu_select &select = *own.select;
    area other(is.count * own.size);
    bool runs =
        is.guess < 0 || gather(is, own, residual.at(), nullptr, addend, first | WEFT_GPU_GUESS);

    for (unsigned i = 0; runs && i < digits; i++)
        runs = count_digit(is, own, &residual, addend, first);
    if (runs && is.searches_wide)
        runs = count_wide(is, own, residual);
    check(!runs || !is.searches_wide || select.gathered || select.shift == 0 ||
              select.above + select.equal <= is.capacity,
          "%zu of %zu, room for %zu: more than two searches", is.k, is.count, is.capacity);
    return runs && gather(is, own, residual.at(), nullptr, nullptr, WEFT_GPU_TIES) &&
           write(is, own, other.at(), nullptr, WEFT_GPU_TIES, is.capacity, own.list.at(),
                 own.list_at.at(), nullptr);
}

bool select_top(const selection &is, memory &own, area &residual, const void *addend, output &to)
{
    const unsigned digits = (key_bits(is) + 10) / 11;
    bool runs = begin(is, own) && search_vector(is, own, residual, addend);

    for (unsigned i = 0; runs && i < digits; i++)
        runs = count_digit(is, own, nullptr, nullptr, 0);
    return runs && gather(is, own, own.list.at(), own.list_at.at(), nullptr, 0) &&
           write(is, own, own.list.at(), own.list_at.at(), 0, is.k, to.values.at(), to.indices.at(),
                 is.adds ? residual.at() : nullptr);
}

bool select_above(const selection &is, memory &own, area &residual, const void *addend, output &to)
{
    return begin(is, own) && gather(is, own, residual.at(), nullptr, addend, flags_of(is)) &&
           write(is, own, residual.at(), nullptr, 0, is.k, to.values.at(), to.indices.at(),
                 is.adds ? residual.at() : nullptr);
}

bool select_by_kernels(const selection &is, area &residual, const area &values, output &to)
{
    memory own(is);
    const void *addend = is.adds ? values.at() : nullptr;

    if (is.above ? !select_above(is, own, residual, addend, to)
                 : !select_top(is, own, residual, addend, to))
        return false;
    if (!launch_fixed("weft_select_end", 1, 1, (const weft_gpu_select *)&*own.select,
                      is.format == 2 ? &*own.number : (float *)nullptr, (const float *)nullptr,
                      &*own.found))
        return false;
    to.count = (*own.found).count;
    to.found = is.above ? (*own.found).total : to.count;
    to.nans = (*own.found).nans;
    to.hint = *own.number;
    return true;
}

// ---- cases ----

// Numbers of all kinds; few different ones; or numbers that share their first digits.
void draw_values(area &to, weft_dtype_t dtype, int kind)
{
    const size_t size = dtype_bytes(dtype);
    const uint64_t one = weft__topk_key(dtype, 1);

    fill_numbers(to, dtype);
    for (size_t i = 0; kind > 0 && i < to.bytes; i += size) {
        const uint64_t sign = (draw() & 1) << (8 * size - 1);
        const uint64_t bits = kind == 1        ? sign | (draw_below(3) * (one / 2))
                              : kind == 2      ? sign | (one + draw_below(200))
                              : draw_below(20) ? sign
                                               : sign | (one + draw_below(9));

        memcpy(to.at(i), &bits, size);
    }
}

size_t draw_k(size_t count)
{
    switch (draw_below(6)) {
    case 0:
        return 1;
    case 1:
        return count;
    case 2:
        return count + 5;
    default:
        return 1 + draw_below(count / 4 + 1);
    }
}

selection draw_selection(int format)
{
    selection is = {};

    is.format = format;
    is.wide = draw_below(2);
    is.above = draw_below(3) == 0;
    is.adds = draw_below(2);
    is.erases = draw_below(2);
    is.strict = !is.erases && draw_below(2);
    is.searches_wide = format == 2 && !is.above && draw_below(4) > 0;
    is.count = draw_below(3) ? 1 + draw_below(1500) : 1 + draw_below(20);
    is.k = draw_k(is.count);
    is.guess = -1;
    const size_t least = is.k < is.count ? is.k : is.count;

    is.capacity = least + draw_below(is.count + 1) * draw_below(2);
    is.threshold = weft__topk_magnitude(
        floats[format], draw_below(4) ? weft__topk_key(floats[format], 1) + draw_below(100) : 0);
    return is;
}

// The least magnitude of what was selected.
double least_of(const selection &is, const output &of)
{
    const size_t size = dtype_bytes(floats[is.format]);
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < of.count; i++) {
        uint64_t bits = 0;

        memcpy(&bits, of.values.at(i * size), size);
        bits &= UINT64_MAX >> (65 - 8 * size);
        least = bits < least ? bits : least;
    }
    return of.count > 0 ? weft__topk_magnitude(floats[is.format], least) : 0;
}

// Of f32: none, what is none, one that is right if there is room, or any.
double draw_guess(const selection &is, const output &right)
{
    if (is.format != 2 || is.above)
        return -1;
    switch (draw_below(5)) {
    case 0:
        return -1;
    case 1:
        return draw_below(2) ? 0 : 1.0 / 0.0;
    case 2:
        return weft__topk_magnitude(WEFT_F32, draw_below(weft__topk_infinity(WEFT_F32)));
    default:
        return (double)(0.9F * (float)least_of(is, right));
    }
}

// What was refused: the sums, and nothing selected.
bool is_refused(const selection &is, const area &residual, area &begun, const area &values,
                const output &own, const output &right)
{
    selection none = is;
    output nothing = {{0}, {0}, 0, 0, 0, 0};

    none.k = 0;
    none.above = false;
    select_plainly(none, begun, values, nothing);
    return own.nans == right.nans && own.values.at()[0] == 0x5a && own.indices.at()[0] == 0x5a &&
           first_difference(residual.at(), begun.at(), is.count, floats[is.format], true) ==
               is.count;
}

bool is_right(const selection &is, const area &residual, const area &expected, const output &own,
              const output &right)
{
    const size_t size = dtype_bytes(floats[is.format]);

    return own.count == right.count && own.found == right.found && own.nans == right.nans &&
           memcmp(own.indices.at(), right.indices.at(), own.count * (is.wide ? 8 : 4)) == 0 &&
           memcmp(own.values.at(), right.values.at(), own.count * size) == 0 &&
           (is.format != 2 || is.above || own.hint == 0.875F * (float)least_of(is, right)) &&
           first_difference(residual.at(), expected.at(), is.count, floats[is.format], true) ==
               is.count;
}

void test_selection(int format)
{
    selection is = draw_selection(format);
    const weft_dtype_t dtype = floats[format];
    const size_t size = dtype_bytes(dtype);
    const int kind = (int)draw_below(4);
    area residual(is.count * size, size * draw_below(16 / size));
    area expected(is.count * size);
    area begun(is.count * size);
    area values(is.count * size, size * draw_below(16 / size));
    const size_t room = is.k < is.count ? is.k : is.count;
    output own = {{room * (is.wide ? 8u : 4u)}, {room * size}, 0, 0, 0, 0};
    output right = {{room * (is.wide ? 8u : 4u)}, {room * size}, 0, 0, 0, 0};

    draw_values(residual, dtype, kind);
    draw_values(values, dtype, kind);
    if (is.adds && kind > 0)
        memset(draw_below(2) ? residual.at() : values.at(), 0, residual.bytes);
    expected.copy(residual);
    begun.copy(residual);
    select_plainly(is, expected, values, right);
    is.guess = draw_guess(is, right);
    if (!select_by_kernels(is, residual, values, own))
        return;
    check(is.strict && right.nans > 0 ? is_refused(is, residual, begun, values, own, right)
                                      : is_right(is, residual, expected, own, right),
          "%s %s: %zu of %zu, room for %zu, kind %d%s%s%s%s, guess %g: %zu (%zu) found %zu (%zu) "
          "NaNs %zu (%zu)",
          is.above ? "above" : "top", names[format], is.k, is.count, is.capacity, kind,
          is.adds ? ", added" : "", is.erases ? ", erased" : "", is.strict ? ", strict" : "",
          is.searches_wide ? ", wide" : "", is.guess, own.count, right.count, own.found,
          right.found, own.nans, right.nans);
}

} // namespace

void test_topk()
{
    for (int round = 0; round < 60; round++)
        for (int format = 0; format < 4; format++)
            test_selection(format);
    for (int round = 0; round < 60; round++)
        test_selection(2);
}
