/* SPDX-License-Identifier: BSD-3-Clause */
/* One element of binary16 and bfloat16 to binary32 and back, without branches. This is what the
 * vector kernels must reproduce bit by bit: rounding to nearest even, subnormals kept, a NaN made
 * quiet with the upper bits of its payload, as the F16C instructions do. */
#ifndef WEFT_OPS_HALF_H
#define WEFT_OPS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float weft__float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t weft__bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float weft__f16_widen(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7fffu;
    const uint32_t subnormal = weft__bits_of((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t bits = (magnitude << 13) + (112u << 23); /* the bias of the exponent is 127, not 15 */

    bits = magnitude < 0x0400u ? subnormal : bits;
    bits = magnitude >= 0x7c00u ? 0x7f800000u | magnitude << 13 : bits;
    bits = magnitude > 0x7c00u ? 0x00400000u | bits : bits;
    return weft__float_of(sign | bits);
}

static inline uint16_t weft__f16_narrow(float value)
{
    const uint32_t sign = weft__bits_of(value) >> 16 & 0x8000u;
    const uint32_t bits = weft__bits_of(value) & 0x7fffffffu;
    const uint32_t nan = 0x7e00u | (bits >> 13 & 0x03ffu);
    const uint32_t normal = (bits + 0x0fffu + (bits >> 13 & 1u) - (112u << 23)) >> 13;
    /* The unit of a half's subnormals, 2^-24, is that of floats from 0.5: adding 0.5 rounds to it.
     */
    const uint32_t subnormal = weft__bits_of(weft__float_of(bits) + 0.5f) - 0x3f000000u;
    uint32_t half = bits < 0x38800000u ? subnormal : normal;

    half = bits >= 0x477ff000u ? 0x7c00u : half; /* from 65520 on the nearest is infinity */
    half = bits > 0x7f800000u ? nan : half;
    return (uint16_t)(half | sign);
}

static inline float weft__bf16_widen(uint16_t half)
{
    return weft__float_of((uint32_t)half << 16);
}

static inline uint16_t weft__bf16_narrow(float value)
{
    const uint32_t bits = weft__bits_of(value);
    const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    const int is_nan = (bits & 0x7fffffffu) > 0x7f800000u;

    return (uint16_t)(is_nan ? bits >> 16 | 0x0040u : rounded >> 16);
}

#endif
