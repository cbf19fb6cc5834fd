/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions, in the order of ranks; 16-bit floats accumulate in 32 bits. */
#include "nccl_inside.h"

#include <string.h>

size_t nccl__type_size(int type)
{
    static const unsigned char sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (unsigned)type < ncclNumTypes ? sizes[type] : 0;
}

static float bf16_to_f32(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

static uint16_t f32_to_bf16(float value)
{
    uint32_t wide;
    memcpy(&wide, &value, 4);
    if ((wide & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(wide >> 16 | 0x40);
    return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

#define COMBINE(ring, a, b, op)                                                                    \
    ((op) == ncclProd  ? (ring)(a) * (ring)(b)                                                     \
     : (op) == ncclMax ? ((a) > (b) ? (ring)(a) : (ring)(b))                                       \
     : (op) == ncclMin ? ((a) < (b) ? (ring)(a) : (ring)(b))                                       \
                       : (ring)(a) + (ring)(b))

/* `wide` is what is accumulated in, by the arithmetic of `ring`: signed integers wrap as unsigned
 * ones. */
#define REDUCE(name, element, wide, ring, get, put)                                                \
    static void name(char *to, const char *const *from, int n, size_t count, int op)               \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            element one;                                                                           \
            wide sum = 0;                                                                          \
            for (int r = 0; r < n; r++) {                                                          \
                memcpy(&one, from[r] + i * sizeof one, sizeof one);                                \
                wide next = get(one);                                                              \
                sum = r ? (wide)COMBINE(ring, sum, next, op) : next;                               \
            }                                                                                      \
            if (op == ncclAvg)                                                                     \
                sum = (wide)(sum / (wide)n);                                                       \
            one = put(sum);                                                                        \
            memcpy(to + i * sizeof one, &one, sizeof one);                                         \
        }                                                                                          \
    }

#define SAME(x)     (x)
#define TO_HALF(x)  ((_Float16)(x))
#define TO_FLOAT(x) ((float)(x))

REDUCE(reduce_i8, int8_t, int32_t, uint32_t, SAME, (int8_t))
REDUCE(reduce_u8, uint8_t, uint32_t, uint32_t, SAME, (uint8_t))
REDUCE(reduce_i32, int32_t, int64_t, uint64_t, SAME, (int32_t))
REDUCE(reduce_u32, uint32_t, uint32_t, uint32_t, SAME, SAME)
REDUCE(reduce_i64, int64_t, int64_t, uint64_t, SAME, SAME)
REDUCE(reduce_u64, uint64_t, uint64_t, uint64_t, SAME, SAME)
REDUCE(reduce_f16, _Float16, float, float, TO_FLOAT, TO_HALF)
REDUCE(reduce_bf16, uint16_t, float, float, bf16_to_f32, f32_to_bf16)
REDUCE(reduce_f32, float, float, float, SAME, SAME)
REDUCE(reduce_f64, double, double, double, SAME, SAME)

void nccl__reduce(char *to, const char *const *from, int n, size_t count, int type, int op)
{
    static void (*const reduce[ncclNumTypes])(char *, const char *const *, int, size_t, int) = {
        [ncclInt8] = reduce_i8,       [ncclUint8] = reduce_u8,    [ncclInt32] = reduce_i32,
        [ncclUint32] = reduce_u32,    [ncclInt64] = reduce_i64,   [ncclUint64] = reduce_u64,
        [ncclFloat16] = reduce_f16,   [ncclFloat32] = reduce_f32, [ncclFloat64] = reduce_f64,
        [ncclBfloat16] = reduce_bf16,
    };
    reduce[type](to, from, n, count, op);
}
