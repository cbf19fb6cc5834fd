/* SPDX-License-Identifier: BSD-3-Clause */
/* The conversions of half.h as functions, for those who convert an element now and then. */
#include "ops/half.h"
#include "ops/kernels.h"

float weft__f16_to_f32(uint16_t bits)
{
    return weft__f16_widen(bits);
}

uint16_t weft__f32_to_f16(float value)
{
    return weft__f16_narrow(value);
}

float weft__bf16_to_f32(uint16_t bits)
{
    return weft__bf16_widen(bits);
}

uint16_t weft__f32_to_bf16(float value)
{
    return weft__bf16_narrow(value);
}
