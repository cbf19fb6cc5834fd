/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft_convert(), beside a table: all numbers that a half has, in order, each decoded from its bits
 * by the definition; the nearest of a double is looked up, on ties the one with an even last bit.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

struct format {
    weft_dtype_t dtype;
    int fraction; /* bits */
    int exponent;
};
static const struct format formats[] = {{WEFT_F16, 10, 5}, {WEFT_BF16, 7, 8}};

/* By definition: (-1)^s 2^(e - bias) 1.f, subnormals 2^(1 - bias) 0.f. */
static double decode(const struct format *format, uint16_t bits)
{
    int bias = (1 << (format->exponent - 1)) - 1, top = (1 << format->exponent) - 1;
    int e = bits >> format->fraction & top, f = bits & ((1 << format->fraction) - 1);
    double size;
    if (e == top)
        size = f ? (double)NAN : (double)INFINITY;
    else if (e == 0)
        size = ldexp(f, 1 - bias - format->fraction);
    else
        size = ldexp(f + (1 << format->fraction), e - bias - format->fraction);
    return bits >> 15 ? -size : size;
}

/* The bits of a double that is no NaN. Positive halves are in the order of their bits. */
static uint16_t nearest(const struct format *format, double value)
{
    int infinity = ((1 << format->exponent) - 1) << format->fraction;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    int low = 0, high = infinity; /* decode(low) <= size; above high, or it is infinity */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (decode(format, (uint16_t)middle) <= size)
            low = middle;
        else
            high = middle;
    }
    if (isinf(size))
        return (uint16_t)(sign | infinity);
    /* the step to infinity is as long as the one before */
    double below = decode(format, (uint16_t)low);
    double above = high == infinity ? 2 * below - decode(format, (uint16_t)(low - 1))
                                    : decode(format, (uint16_t)high);
    int up = size - below > above - size || (size - below == above - size && low & 1);
    return (uint16_t)(sign | (up ? high : low));
}

static void check_double(const struct format *format, double value)
{
    uint16_t got, expected = nearest(format, value);
    cr_assert_eq(weft_convert(format->dtype, &got, WEFT_F64, &value, 1), WEFT_OK);
    cr_assert_eq(got, expected, "%s of %a: %04x, expected %04x", weft_dtype_name(format->dtype),
                 value, got, expected);
    float narrow = (float)value;
    if (isinf(narrow) && !isinf(value))
        return;
    expected = nearest(format, (double)narrow);
    cr_assert_eq(weft_convert(format->dtype, &got, WEFT_F32, &narrow, 1), WEFT_OK);
    cr_assert_eq(got, expected, "%s of %af: %04x, expected %04x", weft_dtype_name(format->dtype),
                 (double)narrow, got, expected);
}

/* Every half, the halfway point to the next, and doubles and floats next to that. */
Test(convert, halfway_between_any_two_halves)
{
    for (size_t f = 0; f < 2; f++) {
        const struct format *format = &formats[f];
        int infinity = ((1 << format->exponent) - 1) << format->fraction;
        for (int bits = 0; bits < infinity; bits++) {
            double here = decode(format, (uint16_t)bits);
            double step = bits + 1 < infinity ? decode(format, (uint16_t)(bits + 1)) - here
                                              : here - decode(format, (uint16_t)(bits - 1));
            double half = here + step / 2;
            double values[] = {here,
                               half,
                               nextafter(half, 0),
                               nextafter(half, INFINITY),
                               (double)nextafterf((float)half, 0),
                               (double)nextafterf((float)half, INFINITY),
                               here + step / 4};
            for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
                check_double(format, values[i]);
                check_double(format, -values[i]);
            }
        }
    }
}

Test(convert, doubles_of_any_size)
{
    uint64_t random = 1;
    for (int i = 0; i < 200000; i++) {
        double value;
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint64_t bits = random ^ random >> 29;
        if (i % 2) /* near the halves' range */
            bits = (bits & ~(UINT64_C(0x7ff) << 52)) | (uint64_t)(1023 - 30 + i / 2 % 50) << 52;
        memcpy(&value, &bits, sizeof value);
        for (size_t f = 0; f < 2 && !isnan(value); f++)
            check_double(&formats[f], value);
    }
}

/* A half survives the way to any wider type and back; what is no number stays none. */
Test(convert, every_half_there_and_back)
{
    static const weft_dtype_t wider[] = {WEFT_F32, WEFT_F64};
    for (size_t f = 0; f < 2; f++)
        for (size_t w = 0; w < 2; w++)
            for (unsigned bits = 0; bits < 65536; bits++) {
                uint16_t half = (uint16_t)bits, back;
                double wide, number = decode(&formats[f], half);
                float single;
                void *there = w ? (void *)&wide : (void *)&single;
                weft_convert(wider[w], there, formats[f].dtype, &half, 1);
                double got = w ? wide : (double)single;
                cr_assert(isnan(number) ? isnan(got)
                                        : got == number && !signbit(got) == !signbit(number),
                          "%04x became %a, expected %a", bits, got, number);
                weft_convert(formats[f].dtype, &back, wider[w], there, 1);
                cr_assert(isnan(number) ? isnan(decode(&formats[f], back)) : back == half,
                          "%04x came back as %04x", bits, back);
            }
}

Test(convert, one_kind_of_half_to_the_other)
{
    for (size_t f = 0; f < 2; f++)
        for (unsigned bits = 0; bits < 65536; bits++) {
            uint16_t half = (uint16_t)bits, other;
            double number = decode(&formats[f], half);
            weft_convert(formats[1 - f].dtype, &other, formats[f].dtype, &half, 1);
            if (isnan(number))
                cr_assert(isnan(decode(&formats[1 - f], other)));
            else
                cr_assert_eq(other, nearest(&formats[1 - f], number), "%04x became %04x", bits,
                             other);
        }
}

Test(convert, singles_and_doubles)
{
    static const double values[] = {
        0,        -0.0,     1,          0x1.000001p0, 0x1.000003p0, 0x1.fffffep127, 0x1.ffffffp127,
        0x1p-149, 0x1p-150, 0x1.8p-150, 1e300,        -1e300};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        float single, expected = (float)values[i];
        double back;
        weft_convert(WEFT_F32, &single, WEFT_F64, &values[i], 1);
        cr_assert(memcmp(&single, &expected, sizeof single) == 0);
        weft_convert(WEFT_F64, &back, WEFT_F32, &single, 1);
        cr_assert(back == (double)single);
    }
    double nan = (double)NAN;
    float single = 0;
    weft_convert(WEFT_F32, &single, WEFT_F64, &nan, 1);
    cr_assert(isnan(single));
}

/* Any number of elements, and nothing beyond them. */
Test(convert, every_length)
{
    static const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
    enum { MOST = 70 };
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            for (size_t count = 0; count < MOST; count++) {
                double wide[MOST];
                unsigned char from[MOST * 8], to[MOST * 8], one[8];
                size_t size = weft_dtype_size(dtypes[b]), step = weft_dtype_size(dtypes[a]);
                for (size_t i = 0; i < MOST; i++)
                    wide[i] = (double)i * 1.37 - 20;
                weft_convert(dtypes[a], from, WEFT_F64, wide, MOST);
                memset(to, 0xa5, sizeof to);
                cr_assert_eq(weft_convert(dtypes[b], to, dtypes[a], from, count), WEFT_OK);
                for (size_t i = 0; i < count; i++) {
                    weft_convert(dtypes[b], one, dtypes[a], from + i * step, 1);
                    cr_assert(memcmp(one, to + i * size, size) == 0);
                }
                for (size_t i = count * size; i < sizeof to; i++)
                    cr_assert_eq(to[i], 0xa5);
            }
}

Test(convert, what_cannot_be_converted)
{
    float x = 1;
    int32_t n = 0;
    cr_assert_eq(weft_convert(WEFT_I32, &n, WEFT_F32, &x, 1), WEFT_ERR_UNSUPPORTED);
    cr_assert_eq(weft_convert(WEFT_F32, &x, WEFT_I32, &n, 1), WEFT_ERR_UNSUPPORTED);
    cr_assert_lt(weft_convert((weft_dtype_t)77, &x, WEFT_F32, &n, 1), 0);
    cr_assert_eq(weft_convert(WEFT_F64, NULL, WEFT_F32, &x, 1), WEFT_ERR_INVALID);
    cr_assert_eq(weft_convert(WEFT_F64, &x, WEFT_F32, NULL, 1), WEFT_ERR_INVALID);
    cr_assert_eq(weft_convert(WEFT_F64, NULL, WEFT_F32, NULL, 0), WEFT_OK);
}
