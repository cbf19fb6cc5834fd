/* SPDX-License-Identifier: BSD-3-Clause */
/* What kernels use of CUDA's header of the same name, by the conversions of ops/. */
#ifndef WEFT_TESTS_GPU_GRID_CUDA_FP16_H
#define WEFT_TESTS_GPU_GRID_CUDA_FP16_H

#include "ops/half.h"

struct __half {
    uint16_t bits;
};

inline __half __ushort_as_half(unsigned short bits)
{
    return {bits};
}

inline unsigned short __half_as_ushort(__half half)
{
    return half.bits;
}

inline float __half2float(__half half)
{
    return weft__f16_widen(half.bits);
}

inline __half __float2half_rn(float value)
{
    return {weft__f16_narrow(value)};
}

#endif
