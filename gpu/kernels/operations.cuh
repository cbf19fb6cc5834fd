/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations of reductions, a struct each: how an element is widened, two are combined, and the
 * result is narrowed. They are those of ops/reduce_template.h: the same bits, whatever the numbers,
 * with one exception: a sum or product that is NaN has the device's own NaN, where a processor
 * keeps the payload of an operand. min, max and logical operations look at bits and have none. */
#ifndef WEFT_GPU_KERNELS_OPERATIONS_CUH
#define WEFT_GPU_KERNELS_OPERATIONS_CUH

#include "gpu/kernels/common.cuh"

#define WEFT_OPERATION(name, type, wide_type, widened, narrowed, combined)                         \
    struct name {                                                                                  \
        typedef type element;                                                                      \
        typedef wide_type wide;                                                                    \
        static __device__ __forceinline__ wide widen(element x)                                    \
        {                                                                                          \
            return widened;                                                                        \
        }                                                                                          \
        static __device__ __forceinline__ wide combine(wide x, wide y)                             \
        {                                                                                          \
            return (wide)(combined);                                                               \
        }                                                                                          \
        static __device__ __forceinline__ element narrow(wide x)                                   \
        {                                                                                          \
            return (element)(narrowed);                                                            \
        }                                                                                          \
    };

#define WEFT_PLAIN(name, type, combined) WEFT_OPERATION(name, type, type, x, x, combined)

/* ---- integers: unsigned, so that they wrap; signed for min and max, which compare them as
 * signed words that hold all values where there are: of others ptxas makes code that spills ---- */

#define WEFT_INTEGERS(bits, word, unsigned_word)                                                   \
    WEFT_PLAIN(op_sum_u##bits, uint##bits##_t, x + y)                                              \
    WEFT_PLAIN(op_prod_u##bits, uint##bits##_t, 1u * x * y)                                        \
    WEFT_OPERATION(op_min_i##bits, int##bits##_t, word, x, x, x < y ? x : y)                       \
    WEFT_OPERATION(op_min_u##bits, uint##bits##_t, unsigned_word, x, x, x < y ? x : y)             \
    WEFT_OPERATION(op_max_i##bits, int##bits##_t, word, x, x, x > y ? x : y)                       \
    WEFT_OPERATION(op_max_u##bits, uint##bits##_t, unsigned_word, x, x, x > y ? x : y)             \
    WEFT_PLAIN(op_land_u##bits, uint##bits##_t, (x != 0) & (y != 0))                               \
    WEFT_PLAIN(op_lor_u##bits, uint##bits##_t, (x | y) != 0)                                       \
    WEFT_PLAIN(op_lxor_u##bits, uint##bits##_t, (x != 0) ^ (y != 0))                               \
    WEFT_PLAIN(op_band_u##bits, uint##bits##_t, (x & y))                                           \
    WEFT_PLAIN(op_bor_u##bits, uint##bits##_t, x | y)                                              \
    WEFT_PLAIN(op_bxor_u##bits, uint##bits##_t, x ^ y)

WEFT_INTEGERS(8, int32_t, int32_t)
WEFT_INTEGERS(16, int32_t, int32_t)
WEFT_INTEGERS(32, int32_t, uint32_t)
WEFT_INTEGERS(64, int64_t, uint64_t)

/* ---- floating point by its bits ---- */

/* Two's complement keys in the order of the numbers: the magnitude of a negative one is inverted.
 * Of the NaNs, `nans` at each end, all are turned to the end that wins: to the least keys by adding
 * their number, to the greatest by taking it away. */
#define WEFT_ORDER(bits)                                                                           \
    WEFT_DEVICE uint32_t true_##bits(uint##bits##_t x)                                             \
    {                                                                                              \
        return (uint##bits##_t)(x << 1) != 0;                                                      \
    }                                                                                              \
                                                                                                   \
    WEFT_DEVICE int##bits##_t order_##bits(uint##bits##_t x, uint##bits##_t turn)                  \
    {                                                                                              \
        const uint##bits##_t magnitude =                                                           \
            (uint##bits##_t)((uint##bits##_t) ~(uint##bits##_t)0 >> 1);                            \
        const uint##bits##_t sign = (uint##bits##_t)((int##bits##_t)x >> (bits - 1));              \
                                                                                                   \
        return (int##bits##_t)(uint##bits##_t)((x ^ (sign & magnitude)) + turn);                   \
    }                                                                                              \
                                                                                                   \
    WEFT_DEVICE uint##bits##_t number_##bits(int##bits##_t key, uint##bits##_t turn)               \
    {                                                                                              \
        return (uint##bits##_t)order_##bits((uint##bits##_t)((uint##bits##_t)key - turn), 0);      \
    }                                                                                              \
                                                                                                   \
    WEFT_DEVICE uint##bits##_t min_of_##bits(uint##bits##_t x, uint##bits##_t y,                   \
                                             uint##bits##_t nans)                                  \
    {                                                                                              \
        const int##bits##_t p = order_##bits(x, nans);                                             \
        const int##bits##_t q = order_##bits(y, nans);                                             \
                                                                                                   \
        return number_##bits(p < q ? p : q, nans);                                                 \
    }                                                                                              \
                                                                                                   \
    WEFT_DEVICE uint##bits##_t max_of_##bits(uint##bits##_t x, uint##bits##_t y,                   \
                                             uint##bits##_t nans)                                  \
    {                                                                                              \
        const uint##bits##_t turn = (uint##bits##_t)(0u - nans);                                   \
        const int##bits##_t p = order_##bits(x, turn);                                             \
        const int##bits##_t q = order_##bits(y, turn);                                             \
                                                                                                   \
        return number_##bits(p > q ? p : q, turn);                                                 \
    }

WEFT_ORDER(16)
WEFT_ORDER(32)
WEFT_ORDER(64)

/* Truth is widened to 0 or 1 and narrowed to the number `one` or 0; a number is true if its bits
 * but the sign are not all 0. */
#define WEFT_FLOATS(format, bits, nans, one)                                                       \
    WEFT_PLAIN(op_min_##format, uint##bits##_t, min_of_##bits(x, y, nans))                         \
    WEFT_PLAIN(op_max_##format, uint##bits##_t, max_of_##bits(x, y, nans))                         \
    WEFT_TRUTH(op_land_##format, bits, one, (x & y))                                               \
    WEFT_TRUTH(op_lor_##format, bits, one, x | y)                                                  \
    WEFT_TRUTH(op_lxor_##format, bits, one, x ^ y)
#define WEFT_TRUTH(name, bits, one, combined)                                                      \
    WEFT_OPERATION(name, uint##bits##_t, uint32_t, true_##bits(x), x != 0 ? one : 0, combined)

WEFT_FLOATS(f16, 16, 0x03ff, 0x3c00u)
WEFT_FLOATS(bf16, 16, 0x007f, 0x3f80u)
WEFT_FLOATS(f32, 32, 0x007fffffu, 0x3f800000u)
WEFT_FLOATS(f64, 64, UINT64_C(0x000fffffffffffff), UINT64_C(0x3ff0000000000000))

/* Halves are widened once and rounded once, however many are combined in between. */
WEFT_OPERATION(op_sum_f16, uint16_t, float, weft_widen_f16(x), weft_narrow_f16(x), x + y)
WEFT_OPERATION(op_prod_f16, uint16_t, float, weft_widen_f16(x), weft_narrow_f16(x), (x * y))
WEFT_OPERATION(op_sum_bf16, uint16_t, float, weft_widen_bf16(x), weft_narrow_bf16(x), x + y)
WEFT_OPERATION(op_prod_bf16, uint16_t, float, weft_widen_bf16(x), weft_narrow_bf16(x), (x * y))
WEFT_PLAIN(op_sum_f32, float, x + y)
WEFT_PLAIN(op_prod_f32, float, (x * y))
WEFT_PLAIN(op_sum_f64, double, x + y)
WEFT_PLAIN(op_prod_f64, double, (x * y))

#endif
