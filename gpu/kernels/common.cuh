/* SPDX-License-Identifier: BSD-3-Clause */
/* What kernels share: places in the grid, vectors, and the bits of numbers. The sources are also
 * compiled by the host's compiler, over tests/gpu/grid/, which has what it needs defined before. */
#ifndef WEFT_GPU_KERNELS_COMMON_CUH
#define WEFT_GPU_KERNELS_COMMON_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#ifndef WEFT_SHARED
#    define WEFT_SHARED(type, name, count) __shared__ type name[count]
#endif

#define WEFT_KERNEL        extern "C" __global__ void
#define WEFT_DEVICE        static __device__ __forceinline__
#define WEFT_DEVICE_MEMBER __device__ __forceinline__

enum { WEFT_WARP = 32, WEFT_VECTOR = 16 };

/* The bits of infinities: those of NaNs, without the sign, are above them. */
#define WEFT_INFINITY_F16  0x7c00u
#define WEFT_INFINITY_BF16 0x7f80u
#define WEFT_INFINITY_F32  0x7f800000u
#define WEFT_INFINITY_F64  UINT64_C(0x7ff0000000000000)

/* The number of this thread in the grid, and how many there are: of one dimension. */
WEFT_DEVICE uint64_t weft_first()
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

WEFT_DEVICE uint64_t weft_step()
{
    return (uint64_t)gridDim.x * blockDim.x;
}

/* So many elements as are loaded at once. */
template <class type, int count> struct alignas(sizeof(type) * count) weft_pack {
    type at[count];
};

/* How elements 0 .. count of one array are split: `head` of them one by one, `vectors` of `lanes`
 * each, the rest one by one. */
struct weft_split {
    uint64_t head;
    uint64_t vectors;
};

/* `offset`: bytes at which the array begins behind a multiple of a vector's. */
WEFT_DEVICE weft_split weft_split_of(uint64_t count, unsigned offset, unsigned size, unsigned lanes)
{
    const uint64_t head = offset == 0 ? 0 : (size * lanes - offset) / size;
    weft_split split = {count, 0};

    if (head < count) {
        split.head = head;
        split.vectors = (count - head) / lanes;
    }
    return split;
}

WEFT_DEVICE unsigned weft_offset(const void *memory, unsigned bytes)
{
    return (unsigned)((uintptr_t)memory & (bytes - 1));
}

/* The place of the i-th element that is in no vector. */
WEFT_DEVICE uint64_t weft_single(weft_split split, unsigned lanes, uint64_t i)
{
    return i < split.head ? i : i + split.vectors * lanes;
}

/* ---- halves ---- */

WEFT_DEVICE float weft_widen_f16(uint16_t half)
{
    return __half2float(__ushort_as_half(half));
}

WEFT_DEVICE uint16_t weft_narrow_f16(float value)
{
    return __half_as_ushort(__float2half_rn(value));
}

WEFT_DEVICE float weft_widen_bf16(uint16_t half)
{
    return __uint_as_float((uint32_t)half << 16);
}

WEFT_DEVICE uint16_t weft_narrow_bf16(float value)
{
    const uint32_t bits = __float_as_uint(value);
    const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    const int is_nan = (bits & 0x7fffffffu) > 0x7f800000u;

    return (uint16_t)(is_nan ? bits >> 16 | 0x0040u : rounded >> 16);
}

#endif
