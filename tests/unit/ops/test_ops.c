/* SPDX-License-Identifier: BSD-3-Clause */
/* The reduction kernels of every SIMD level against plain arithmetic written here: integers in 64
 * bits and then cut, 16-bit floating point widened and rounded by scaling. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ops/kernels.h"

enum { LEVELS = WEFT_SIMD_AVX512 + 1, LARGEST = 5003, GUARD = 0x5a };

/* Full vectors of every level, one less, one more, a rest of each size; odd; many blocks. */
static const size_t counts[] = {0,  1,  2,  3,  5,  7,  8,   9,   15,  16,  17,   31,
                                32, 33, 47, 63, 64, 65, 127, 128, 129, 255, 1021, LARGEST};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- elements as 64 bits ---- */

static uint64_t get(const void *array, size_t index, size_t size)
{
    uint64_t bits = 0;

    memcpy(&bits, (const char *)array + index * size, size); /* of a little-endian machine, or: */
    if (*(const unsigned char *)&(const uint16_t){1} == 0)
        bits >>= 64 - 8 * size;
    return bits;
}

static void put(void *array, size_t index, size_t size, uint64_t bits)
{
    if (*(const unsigned char *)&(const uint16_t){1} == 0)
        bits <<= 64 - 8 * size;
    memcpy((char *)array + index * size, &bits, size);
}

static int is_floating(weft_dtype_t dtype)
{
    return dtype == WEFT_F32 || dtype >= WEFT_F16;
}

static int is_signed(weft_dtype_t dtype)
{
    return dtype >= WEFT_I8 && dtype <= WEFT_I64;
}

/* ---- floating point, slowly ---- */

struct format {
    int bits;
    int fraction_bits;
    int bias;
    weft_dtype_t dtype;
};

static const struct format formats[] = {{16, 10, 15, WEFT_F16},
                                        {16, 7, 127, WEFT_BF16},
                                        {32, 23, 127, WEFT_F32},
                                        {64, 52, 1023, WEFT_F64}};

static const struct format *format_of(weft_dtype_t dtype)
{
    const struct format *format = formats;

    while (format->dtype != dtype)
        format++;
    return format;
}

static uint64_t magnitude_of(const struct format *format, uint64_t bits)
{
    return bits & (UINT64_MAX >> (65 - format->bits));
}

static uint64_t infinity_of(const struct format *format)
{
    return (UINT64_C(2) * (unsigned)format->bias + 1) << format->fraction_bits;
}

static int is_nan(const struct format *format, uint64_t bits)
{
    return magnitude_of(format, bits) > infinity_of(format);
}

/* A number, no NaN, as a double. */
static double value_of(const struct format *format, uint64_t bits)
{
    const uint64_t magnitude = magnitude_of(format, bits);
    const int exponent = (int)(magnitude >> format->fraction_bits);
    const uint64_t fraction = magnitude & ((UINT64_C(1) << format->fraction_bits) - 1);
    const double sign = bits >> (format->bits - 1) != 0 ? -1.0 : 1.0;

    if (magnitude == infinity_of(format))
        return sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp((double)fraction, 1 - format->bias - format->fraction_bits);
    return sign * ldexp((double)(fraction + (UINT64_C(1) << format->fraction_bits)),
                        exponent - format->bias - format->fraction_bits);
}

/* The nearest number of a 16-bit format: nearbyint() rounds to even. */
static uint16_t nearest(const struct format *format, float value)
{
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const int least = 1 - format->bias - format->fraction_bits;
    int exponent = 0;
    double units;
    uint32_t bits;

    if (isnan(value)) { /* quiet, and the upper bits of what it carries */
        memcpy(&bits, &value, sizeof bits);
        bits = (bits & 0x7fffffu) >> (23 - format->fraction_bits);
        return (uint16_t)(sign | infinity_of(format) | 1u << (format->fraction_bits - 1) | bits);
    }
    if (isinf(value) || value == 0)
        return (uint16_t)(sign | (value == 0 ? 0 : infinity_of(format)));
    frexp((double)value, &exponent);
    exponent -= format->fraction_bits + 1;
    if (exponent < least)
        exponent = least;
    units = nearbyint(ldexp(fabs((double)value), -exponent));
    /* `units` carries the leading one, which adds one to the exponent field; so it may overflow. */
    bits = (uint32_t)units + ((uint32_t)(exponent - least) << format->fraction_bits);
    return (uint16_t)(sign | (bits > infinity_of(format) ? infinity_of(format) : bits));
}

static float f32_of(uint64_t bits)
{
    const uint32_t narrow = (uint32_t)bits;
    float value;

    memcpy(&value, &narrow, sizeof value);
    return value;
}

static float widen(const struct format *format, uint64_t bits)
{
    const int shift = 23 - format->fraction_bits;
    const uint32_t sign = (uint32_t)(bits >> (format->bits - 1)) << 31;

    if (is_nan(format, bits)) {
        const uint32_t quiet = format->dtype == WEFT_F16 ? 0x400000u : 0;

        return f32_of(sign | 0x7f800000u | quiet | (uint32_t)(magnitude_of(format, bits) << shift));
    }
    return (float)value_of(format, bits);
}

/* ---- the reference: one element ---- */

/* The bits of a float, kept from being computed at compile time, where a NaN may come out other. */
static uint64_t arithmetic_f32(weft_op_kind_t kind, float x, float y, float *result)
{
    volatile float p = x;
    volatile float q = y;
    const float r = kind == WEFT_SUM ? p + q : p * q;
    uint32_t bits;

    memcpy(&bits, &r, sizeof bits);
    *result = r;
    return bits;
}

static uint64_t arithmetic_f64(weft_op_kind_t kind, uint64_t x, uint64_t y)
{
    volatile double p;
    volatile double q;
    double value;
    uint64_t bits;

    memcpy(&value, &x, sizeof value);
    p = value;
    memcpy(&value, &y, sizeof value);
    q = value;
    value = kind == WEFT_SUM ? p + q : p * q;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t float_arithmetic(weft_op_kind_t kind, const struct format *format, uint64_t x,
                                 uint64_t y)
{
    float result;

    if (format->dtype == WEFT_F64)
        return arithmetic_f64(kind, x, y);
    if (format->dtype == WEFT_F32)
        return arithmetic_f32(kind, f32_of(x), f32_of(y), &result);
    arithmetic_f32(kind, widen(format, x), widen(format, y), &result);
    return nearest(format, result);
}

static uint64_t float_extreme(weft_op_kind_t kind, const struct format *format, uint64_t x,
                              uint64_t y)
{
    const double p = is_nan(format, x) ? 0 : value_of(format, x);
    const double q = is_nan(format, y) ? 0 : value_of(format, y);
    int x_is_less;

    if (is_nan(format, x) || is_nan(format, y))
        return is_nan(format, x) ? x : y;
    x_is_less = p < q || (p == q && signbit(p));
    return (kind == WEFT_MIN) == x_is_less ? x : y;
}

/* In 64 bits, of which the caller cuts off what is too much: wrapping is arithmetic modulo 2^64. */
static uint64_t integer_result(weft_op_kind_t kind, weft_dtype_t dtype, uint64_t x, uint64_t y)
{
    const uint64_t top = UINT64_C(1) << (8 * weft_dtype_size(dtype) - 1);
    /* With the top bit inverted, signed numbers are in the order of unsigned ones. */
    const uint64_t invert = is_signed(dtype) ? top : 0;
    const int x_is_less = (x ^ invert) < (y ^ invert);

    switch (kind) {
    case WEFT_SUM:
        return x + y;
    case WEFT_PROD:
        return x * y;
    case WEFT_MIN:
        return x_is_less ? x : y;
    case WEFT_MAX:
        return x_is_less ? y : x;
    case WEFT_BAND:
        return x & y;
    case WEFT_BOR:
        return x | y;
    default:
        return x ^ y;
    }
}

static uint64_t expected(weft_op_kind_t kind, weft_dtype_t dtype, uint64_t x, uint64_t y)
{
    const size_t size = weft_dtype_size(dtype);
    const uint64_t mask = UINT64_MAX >> (64 - 8 * size);
    const struct format *format = is_floating(dtype) ? format_of(dtype) : NULL;

    if (kind == WEFT_LAND || kind == WEFT_LOR || kind == WEFT_LXOR) {
        const uint64_t one = format ? (uint64_t)format->bias << format->fraction_bits : 1;
        const int p = (format ? magnitude_of(format, x) : x) != 0;
        const int q = (format ? magnitude_of(format, y) : y) != 0;

        return (kind == WEFT_LAND ? p && q : kind == WEFT_LOR ? p || q : p != q) ? one : 0;
    }
    if (!format)
        return integer_result(kind, dtype, x, y) & mask;
    if (kind == WEFT_MIN || kind == WEFT_MAX)
        return float_extreme(kind, format, x, y);
    return float_arithmetic(kind, format, x, y);
}

/* Which of two NaNs comes out is left open; which of one is not. */
static int agrees(weft_op_kind_t kind, weft_dtype_t dtype, uint64_t x, uint64_t y, uint64_t result)
{
    const struct format *format = is_floating(dtype) ? format_of(dtype) : NULL;

    if (!format || !is_nan(format, x) || !is_nan(format, y))
        return result == expected(kind, dtype, x, y);
    if (kind == WEFT_MIN || kind == WEFT_MAX)
        return result == x || result == y;
    return kind > WEFT_MAX ? result == expected(kind, dtype, x, y) : is_nan(format, result);
}

/* ---- operands ---- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Where arithmetic goes wrong if it does; for integers, the extremes of each sign. */
static uint64_t special(weft_dtype_t dtype, size_t index)
{
    const uint64_t top = UINT64_C(1) << (8 * weft_dtype_size(dtype) - 1);

    if (!is_floating(dtype)) {
        const uint64_t values[] = {0, 1, 2, 3, top - 1, top, top + 1, 2 * (top - 1) + 1};

        return values[index % COUNT_OF(values)];
    }
    const struct format *format = format_of(dtype);
    const uint64_t infinity = infinity_of(format);
    const uint64_t one = (uint64_t)format->bias << format->fraction_bits;
    const uint64_t least_normal = UINT64_C(1) << format->fraction_bits;
    const uint64_t values[] = {0,                  /* zero */
                               1,                  /* the least subnormal */
                               least_normal - 1,   /* the largest subnormal */
                               least_normal,       /* the least normal */
                               one,                /* 1 */
                               one + 1,            /* and the next */
                               one - least_normal, /* 1/2 */
                               infinity - 1,       /* the largest */
                               infinity,           /* infinity */
                               infinity + 1,       /* a signalling NaN */
                               infinity + (least_normal >> 1) +
                                   5}; /* a quiet NaN that carries something */

    return values[index / 2 % COUNT_OF(values)] | (index % 2 != 0 ? top : 0);
}

/* Specials against specials first (22 x 22 of floating point), then random bits, of which the
 * exponents of some pairs are brought together so that sums round in every way. */
static void fill(weft_dtype_t dtype, void *a, void *b, size_t count, uint64_t seed)
{
    const size_t size = weft_dtype_size(dtype);
    const size_t kinds = is_floating(dtype) ? 22 : 8;

    for (size_t i = 0; i < count; i++) {
        uint64_t x = next_random(&seed);
        uint64_t y = next_random(&seed);

        if (i % 3 == 0)
            y = (x & ~UINT64_C(0xff)) ^ (y & UINT64_C(0x80000000800080ff));
        put(a, i, size, i < kinds * kinds ? special(dtype, i / kinds) : x);
        put(b, i, size, i < kinds * kinds ? special(dtype, i % kinds) : y);
    }
}

/* ---- every operation on every datatype ---- */

struct workplace {
    weft_op_kind_t kind;
    weft_dtype_t dtype;
    weft__reduce_kernel kernel;
    const char *a;
    const char *b;
};

/* Runs the kernel on `count` elements from `first` on, with dst in a block of its own (form 0), in
 * a's place (1) or in b's (2), `shift` elements into its block, and looks at every byte of it. */
static void run_form(const struct workplace *at, size_t first, size_t count, int form, size_t shift)
{
    const size_t size = weft_dtype_size(at->dtype);
    const size_t bytes = (count + shift + 1) * size;
    char *block = malloc(bytes);
    char *dst = block + shift * size;
    const char *a = at->a + first * size;
    const char *b = at->b + first * size;
    size_t wrong = 0;

    cr_assert_not_null(block);
    memset(block, GUARD, bytes);
    if (form != 0)
        memcpy(dst, form == 1 ? a : b, count * size);
    at->kernel(dst, form == 1 ? dst : a, form == 2 ? dst : b, count);
    for (size_t i = 0; i < count; i++) {
        const uint64_t x = get(a, i, size);
        const uint64_t y = get(b, i, size);

        if (!agrees(at->kind, at->dtype, x, y, get(dst, i, size)) && wrong++ == 0)
            cr_expect_fail("%s %s, %s, form %d, element %zu of %zu: %" PRIx64 " and %" PRIx64
                           " give %" PRIx64 ", expected %" PRIx64,
                           weft_op_name(weft_op_builtin(at->kind)), weft_dtype_name(at->dtype),
                           weft_simd_name(weft_simd_level()), form, i, count, x, y,
                           get(dst, i, size), expected(at->kind, at->dtype, x, y));
    }
    for (size_t i = 0; i < bytes; i++)
        if (i < shift * size || i >= (shift + count) * size)
            wrong += block[i] != GUARD;
    cr_assert_eq(wrong, 0, "%zu elements or guards are wrong", wrong);
    free(block);
}

static void run_operation(weft_op_kind_t kind, weft_dtype_t dtype)
{
    const size_t size = weft_dtype_size(dtype);
    char *a = malloc((LARGEST + 1) * size);
    char *b = malloc((LARGEST + 1) * size);
    const struct workplace at = {kind, dtype, weft__reduce_kernel_find(kind, dtype), a, b};

    cr_assert(a && b);
    if (is_floating(dtype) && kind >= WEFT_BAND) {
        cr_assert_null(at.kernel);
    } else {
        cr_assert_not_null(at.kernel);
        fill(dtype, a, b, LARGEST + 1, 1 + (uint64_t)kind * WEFT_DTYPE_COUNT + dtype);
        for (size_t c = 0; c < COUNT_OF(counts); c++) {
            for (int form = 0; form < 3; form++) {
                run_form(&at, 0, counts[c], form, 0);
                run_form(&at, 1, counts[c], form, 0);
                run_form(&at, 0, counts[c], form, 1);
                run_form(&at, 1, counts[c], form, 1);
            }
        }
    }
    free(a);
    free(b);
}

static void require_level(weft_simd_t level)
{
    if (weft_simd_limit(level) != level)
        cr_skip_test("this build or processor has no %s", weft_simd_name(level));
}

static void run_level(weft_simd_t level)
{
    require_level(level);
    for (int kind = 0; kind < WEFT_OP_COUNT; kind++)
        for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
            run_operation((weft_op_kind_t)kind, (weft_dtype_t)dtype);
}

Test(ops, scalar_reductions_agree_with_plain_arithmetic)
{
    run_level(WEFT_SIMD_SCALAR);
}

Test(ops, avx2_reductions_agree_with_plain_arithmetic)
{
    run_level(WEFT_SIMD_AVX2);
}

Test(ops, avx512_reductions_agree_with_plain_arithmetic)
{
    run_level(WEFT_SIMD_AVX512);
}

/* ---- min and max of floating point commute even for zeros and NaNs ---- */

static void run_commuting(weft_op_kind_t kind, weft_dtype_t dtype)
{
    enum { COUNT = 1000 };
    const weft__reduce_kernel kernel = weft__reduce_kernel_find(kind, dtype);
    uint64_t a[COUNT];
    uint64_t b[COUNT];
    uint64_t one_way[COUNT];
    uint64_t other_way[COUNT];

    fill(dtype, a, b, COUNT, 77);
    kernel(one_way, a, b, COUNT);
    kernel(other_way, b, a, COUNT);
    cr_assert_arr_eq(one_way, other_way, COUNT * weft_dtype_size(dtype));
}

Test(ops, min_and_max_do_not_depend_on_the_order_of_operands)
{
    for (int level = 0; level < LEVELS; level++) {
        weft_simd_limit((weft_simd_t)level);
        for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
            run_commuting(WEFT_MIN, (weft_dtype_t)dtype);
            run_commuting(WEFT_MAX, (weft_dtype_t)dtype);
        }
    }
}

/* ---- 16-bit floating point, all of it ---- */

typedef float (*widen_fn)(uint16_t);
typedef uint16_t (*narrow_fn)(float);

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void check_conversions(const struct format *format, widen_fn to_f32, narrow_fn from_f32)
{
    for (uint32_t h = 0; h < 65536; h++) {
        const float value = to_f32((uint16_t)h);

        cr_assert_eq(bits_of(value), bits_of(widen(format, h)), "widening %x", h);
        if (!is_nan(format, h))
            cr_assert_eq(from_f32(value), h, "narrowing %x", h);
        /* The number itself, and its neighbourhood up to the next one, where rounding turns. */
        const uint32_t half_step = 1u << (22 - format->fraction_bits);
        const uint32_t offsets[] = {
            0, 1, half_step - 1, half_step, half_step + 1, 2 * half_step - 1};

        for (size_t i = 0; i < COUNT_OF(offsets); i++) {
            const float near_it = f32_of(bits_of(value) + offsets[i]);

            cr_assert_eq(from_f32(near_it), nearest(format, near_it), "narrowing %x",
                         bits_of(near_it));
        }
    }
}

static void check_random_narrowing(const struct format *format, narrow_fn from_f32)
{
    uint64_t seed = 5;

    for (int i = 0; i < 1000000; i++) {
        const float value = f32_of(next_random(&seed));

        cr_assert_eq(from_f32(value), nearest(format, value), "narrowing %x", bits_of(value));
    }
    /* Below the subnormals of binary16 half a step is not one of its own bits. */
    for (uint32_t bits = 0x32ffff00u; bits < 0x33c00100u; bits += 0x55)
        cr_assert_eq(from_f32(f32_of(bits)), nearest(format, f32_of(bits)), "narrowing %x", bits);
}

Test(ops, every_f16_widens_and_narrows)
{
    check_conversions(format_of(WEFT_F16), weft__f16_to_f32, weft__f32_to_f16);
    check_random_narrowing(format_of(WEFT_F16), weft__f32_to_f16);
}

Test(ops, every_bf16_widens_and_narrows)
{
    check_conversions(format_of(WEFT_BF16), weft__bf16_to_f32, weft__f32_to_bf16);
    check_random_narrowing(format_of(WEFT_BF16), weft__f32_to_bf16);
}

/* Every 16-bit number with a few others, at the level in use against the scalar one. */
static void compare_with_scalar(weft_simd_t level, weft_op_kind_t kind, weft_dtype_t dtype)
{
    static uint16_t all[65536];
    static uint16_t other[65536];
    static uint16_t here[65536];
    static uint16_t scalar[65536];
    const uint64_t others[] = {0x0000, 0x8000, 0x0001, 0x3c00, 0x3f80, 0x3555, 0x7bff, 0x7f7f};
    const struct format *format = format_of(dtype);

    for (size_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (size_t k = 0; k < COUNT_OF(others) + 8; k++) {
        uint64_t seed = k;

        for (size_t i = 0; i < 65536; i++)
            other[i] = (uint16_t)(k < COUNT_OF(others) ? others[k] : next_random(&seed));
        weft_simd_limit(level);
        weft__reduce_kernel_find(kind, dtype)(here, all, other, 65536);
        weft_simd_limit(WEFT_SIMD_SCALAR);
        weft__reduce_kernel_find(kind, dtype)(scalar, all, other, 65536);
        for (size_t i = 0; i < 65536; i++) {
            const int open = is_nan(format, all[i]) && is_nan(format, other[i]);

            cr_assert(here[i] == scalar[i] || open, "%x and %x give %x and %x", all[i], other[i],
                      here[i], scalar[i]);
        }
    }
}

static void compare_halves(weft_simd_t level)
{
    require_level(level);
    compare_with_scalar(level, WEFT_SUM, WEFT_F16);
    compare_with_scalar(level, WEFT_PROD, WEFT_F16);
    compare_with_scalar(level, WEFT_SUM, WEFT_BF16);
    compare_with_scalar(level, WEFT_PROD, WEFT_BF16);
}

Test(ops, avx2_rounds_every_half_as_scalar_does)
{
    compare_halves(WEFT_SIMD_AVX2);
}

Test(ops, avx512_rounds_every_half_as_scalar_does)
{
    compare_halves(WEFT_SIMD_AVX512);
}

/* ---- levels ---- */

Test(ops, the_limit_lowers_the_level_and_lifts_again)
{
    const weft_simd_t best = weft_simd_limit(WEFT_SIMD_AVX512);

    cr_assert_eq(weft_simd_level(), best);
    cr_assert_eq(weft_simd_limit(WEFT_SIMD_SCALAR), WEFT_SIMD_SCALAR);
    cr_assert_eq(weft_simd_level(), WEFT_SIMD_SCALAR);
    cr_assert_eq(weft_simd_limit((weft_simd_t)99), best);
    cr_assert_str_eq(weft_simd_name(WEFT_SIMD_SCALAR), "scalar");
    cr_assert_str_eq(weft_simd_name(WEFT_SIMD_AVX2), "avx2");
    cr_assert_str_eq(weft_simd_name(WEFT_SIMD_AVX512), "avx512");
    cr_assert_null(weft_simd_name((weft_simd_t)99));
}

Test(ops, there_is_no_kernel_for_what_does_not_exist)
{
    cr_assert_null(weft__reduce_kernel_find(WEFT_OP_COUNT, WEFT_F32));
    cr_assert_null(weft__reduce_kernel_find(WEFT_SUM, WEFT_DTYPE_COUNT));
    cr_assert_null(weft__reduce_kernel_find((weft_op_kind_t)-1, WEFT_F32));
}
