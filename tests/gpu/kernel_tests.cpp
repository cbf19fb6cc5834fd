// SPDX-License-Identifier: BSD-3-Clause
// Drawn numbers, memory that is watched, and cases.
#include "tests/gpu/kernel_tests.h"

#include <map>
#include <stdarg.h>

int tests_passed;
int tests_failed;

static uint64_t state;
static std::map<const char *, const area *> areas; // by where they begin

enum { MARGIN = 64 };

void check(bool holds, const char *format, ...)
{
    va_list list;

    holds ? tests_passed++ : tests_failed++;
    if (holds || tests_failed > 50)
        return;
    fprintf(stderr, "failed: ");
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n");
}

void draw_from(uint64_t seed)
{
    state = seed;
}

uint64_t draw()
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t draw_below(uint64_t bound)
{
    return draw() % bound;
}

// The bits of 1 and of infinity; 0 of integers.
static void format_of(weft_dtype_t dtype, uint64_t *one, uint64_t *infinity)
{
    *one = 0;
    *infinity = 0;
    if (dtype == WEFT_F16 || dtype == WEFT_BF16 || dtype == WEFT_F32 || dtype == WEFT_F64) {
        *infinity = weft__topk_infinity(dtype);
        *one = weft__topk_key(dtype, 1);
    }
}

uint64_t draw_number(weft_dtype_t dtype)
{
    const unsigned bits = 8 * (unsigned)dtype_bytes(dtype);
    const uint64_t sign = (draw() & 1) << (bits - 1);
    uint64_t one;
    uint64_t infinity;

    format_of(dtype, &one, &infinity);
    switch (draw_below(8)) {
    case 0:
        return sign; // 0, or the least integer
    case 1:
        return sign | (one + draw_below(4) - 2);
    case 2:
        return sign | (infinity + draw_below(4) - 2); // the greatest number, infinity, a NaN
    case 3:
        return sign | draw_below(3); // subnormals
    case 4:
        return sign | (one + (draw() & (infinity - one) & (infinity >> 4))); // about 1
    case 5:
        return UINT64_MAX;
    default:
        return draw();
    }
}

area::area(size_t bytes, size_t offset)
    : bytes(bytes), offset(MARGIN + offset),
      memory(static_cast<char *>(malloc(bytes + MARGIN + offset)))
{
    if (!memory)
        abort();
    memset(memory, 0x5a, bytes + this->offset);
    areas[memory] = this;
}

area::~area()
{
    areas.erase(memory);
    free(memory);
}

const area *area_of(const void *address)
{
    const char *at = static_cast<const char *>(address);
    auto next = areas.upper_bound(at);

    if (next == areas.begin())
        return nullptr;
    const area *found = (--next)->second;

    return at <= found->at(found->bytes) ? found : nullptr;
}

void area::copy(const area &from)
{
    if (bytes > 0)
        memcpy(at(), from.at(), bytes);
}

bool area::intact() const
{
    for (size_t i = 0; i < offset; i++)
        if (memory[i] != 0x5a)
            return false;
    return true;
}

void fill_numbers(const area &to, weft_dtype_t dtype)
{
    const size_t size = dtype_bytes(dtype);

    for (size_t i = 0; i < to.bytes; i += size) {
        const uint64_t bits = draw_number(dtype);

        memcpy(to.at(i), &bits, size);
    }
}

static bool is_nan(const char *x, weft_dtype_t dtype)
{
    const size_t size = dtype_bytes(dtype);
    uint64_t bits = 0;

    memcpy(&bits, x, size);
    return (bits & (UINT64_MAX >> (65 - 8 * size))) > weft__topk_infinity(dtype);
}

size_t first_difference(const char *x, const char *y, size_t count, weft_dtype_t dtype, bool nans)
{
    const size_t size = dtype_bytes(dtype);

    for (size_t i = 0; i < count; i++) {
        const char *p = x + i * size;
        const char *q = y + i * size;

        if (memcmp(p, q, size) != 0 && !(nans && is_nan(p, dtype) && is_nan(q, dtype)))
            return i;
    }
    return count;
}
