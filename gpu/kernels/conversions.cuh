/* SPDX-License-Identifier: BSD-3-Clause */
/* One number of one floating point datatype as one of another, bit by bit as in ops/convert.c, NaNs
 * too (which devices do not keep by themselves). */
#ifndef WEFT_GPU_KERNELS_CONVERSIONS_CUH
#define WEFT_GPU_KERNELS_CONVERSIONS_CUH

#include "gpu/kernels/common.cuh"

/* A NaN of one width as that of another: the sign, the upper bits of the payload, and quiet. */
WEFT_DEVICE float weft_f32_of_f64(double value)
{
    const uint64_t bits = (uint64_t)__double_as_longlong(value);
    const uint32_t sign = (uint32_t)(bits >> 63) << 31;

    if (value == value)
        return (float)value;
    return __uint_as_float(sign | 0x7fc00000u | ((uint32_t)(bits >> 29) & 0x003fffffu));
}

WEFT_DEVICE double weft_f64_of_f32(float value)
{
    const uint64_t bits = __float_as_uint(value);
    const uint64_t sign = bits >> 31 << 63;

    if (value == value)
        return (double)value;
    return __longlong_as_double(
        (long long)(sign | UINT64_C(0x7ff8000000000000) | (bits & 0x003fffffu) << 29));
}

WEFT_DEVICE uint16_t weft_f16_of_f32(float value)
{
    const uint32_t bits = __float_as_uint(value);

    if (value == value)
        return weft_narrow_f16(value);
    return (uint16_t)((bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x03ffu));
}

WEFT_DEVICE float weft_f32_of_f16(uint16_t half)
{
    if ((half & 0x7fffu) <= 0x7c00u)
        return weft_widen_f16(half);
    return __uint_as_float((uint32_t)(half & 0x8000u) << 16 | 0x7fc00000u |
                           (uint32_t)(half & 0x03ffu) << 13);
}

/* The float next to a double towards zero, its last bit set if anything was cut off: rounding that
 * once more is rounding once. */
WEFT_DEVICE float weft_odd_of_f64(double value)
{
    const float near = weft_f32_of_f64(value);
    const double back = (double)near;
    uint32_t bits = __float_as_uint(near);

    if (back == value || value != value)
        return near;
    if ((back < 0 ? -back : back) > (value < 0 ? -value : value))
        bits--; /* it was rounded away from zero */
    return __uint_as_float(bits | 1u);
}

#endif
