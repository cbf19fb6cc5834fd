/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conversions between floating point datatypes: by way of f32, which holds the halves exactly; from
 * f64 to a half by way of a float rounded to odd, so that rounding twice is rounding once.
 */
#include "ops/half.h"
#include "ops/kernels.h"
#include <math.h>
#include <string.h>

/* The float next to a double towards zero, its last bit set if anything was cut off. */
static inline float to_odd(double value)
{
    float near = (float)value;
    uint32_t bits;
    if ((double)near == value || value != value)
        return near;
    memcpy(&bits, &near, sizeof bits);
    if (fabs((double)near) > fabs(value))
        bits--; /* it was rounded away from zero */
    bits |= 1;
    memcpy(&near, &bits, sizeof near);
    return near;
}

#define LOOP(to_type, from_type, expression)                                                       \
    do {                                                                                           \
        to_type *to = to_;                                                                         \
        const from_type *from = from_;                                                             \
        for (size_t i = 0; i < count; i++)                                                         \
            to[i] = expression;                                                                    \
        return 1;                                                                                  \
    } while (0)

static int from_f32(weft_dtype_t to_dtype, void *restrict to_, const void *restrict from_,
                    size_t count)
{
    switch (to_dtype) {
    case WEFT_F64:
        LOOP(double, float, from[i]);
    case WEFT_F16:
        LOOP(uint16_t, float, weft__f16_narrow(from[i]));
    case WEFT_BF16:
        LOOP(uint16_t, float, weft__bf16_narrow(from[i]));
    default:
        return 0;
    }
}

static int from_f64(weft_dtype_t to_dtype, void *restrict to_, const void *restrict from_,
                    size_t count)
{
    switch (to_dtype) {
    case WEFT_F32:
        LOOP(float, double, (float)from[i]);
    case WEFT_F16:
        LOOP(uint16_t, double, weft__f16_narrow(to_odd(from[i])));
    case WEFT_BF16:
        LOOP(uint16_t, double, weft__bf16_narrow(to_odd(from[i])));
    default:
        return 0;
    }
}

static int from_f16(weft_dtype_t to_dtype, void *restrict to_, const void *restrict from_,
                    size_t count)
{
    switch (to_dtype) {
    case WEFT_F32:
        LOOP(float, uint16_t, weft__f16_widen(from[i]));
    case WEFT_F64:
        LOOP(double, uint16_t, (double)weft__f16_widen(from[i]));
    case WEFT_BF16:
        LOOP(uint16_t, uint16_t, weft__bf16_narrow(weft__f16_widen(from[i])));
    default:
        return 0;
    }
}

static int from_bf16(weft_dtype_t to_dtype, void *restrict to_, const void *restrict from_,
                     size_t count)
{
    switch (to_dtype) {
    case WEFT_F32:
        LOOP(float, uint16_t, weft__bf16_widen(from[i]));
    case WEFT_F64:
        LOOP(double, uint16_t, (double)weft__bf16_widen(from[i]));
    case WEFT_F16:
        LOOP(uint16_t, uint16_t, weft__f16_narrow(weft__bf16_widen(from[i])));
    default:
        return 0;
    }
}

static int is_float(weft_dtype_t dtype)
{
    return dtype == WEFT_F16 || dtype == WEFT_BF16 || dtype == WEFT_F32 || dtype == WEFT_F64;
}

int weft__convert(weft_dtype_t to_dtype, void *to, weft_dtype_t from_dtype, const void *from,
                  size_t count)
{
    if (!is_float(to_dtype) || !is_float(from_dtype))
        return 0;
    if (to_dtype == from_dtype) {
        if (count > 0)
            memcpy(to, from, count * (to_dtype == WEFT_F64 ? 8 : to_dtype == WEFT_F32 ? 4 : 2));
        return 1;
    }
    switch (from_dtype) {
    case WEFT_F32:
        return from_f32(to_dtype, to, from, count);
    case WEFT_F64:
        return from_f64(to_dtype, to, from, count);
    case WEFT_F16:
        return from_f16(to_dtype, to, from, count);
    default:
        return from_bf16(to_dtype, to, from, count);
    }
}
