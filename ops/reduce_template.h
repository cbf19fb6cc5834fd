/* SPDX-License-Identifier: BSD-3-Clause */
/* All reduction kernels of one SIMD level: plain loops that the compiler turns into vectors of
 * whatever width its flags allow. A level's file defines WEFT__REDUCE_TABLE, the name of the table
 * to fill, and for what compilers do badly (16-bit floating point) WEFT__F16_SUM, WEFT__F16_PROD,
 * WEFT__BF16_SUM and WEFT__BF16_PROD, its own kernels.
 *
 * Every level gives the same bits, so a result does not depend on the machine:
 *  - integers are added and multiplied unsigned, which wraps;
 *  - min, max and the logical operations of floating point are integer arithmetic on the bits.
 *    min and max commute and associate bit by bit, see FLOAT_ORDER;
 *  - a sum or product is one IEEE operation, rounded once. (Of two NaNs it keeps one: which one is
 *    the compiler's choice of operand order, and the only thing that is not fixed.)
 *
 * dst may be a or b. A vector is loaded from both before it is stored, which is correct then, but
 * compilers have to be told that no iteration depends on another: WEFT__INDEPENDENT. */
#include "ops/half.h"
#include "ops/reduce.h"

#if defined(__clang__)
#    define WEFT__INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#    define WEFT__INDEPENDENT _Pragma("GCC ivdep") _Pragma("GCC unroll 4")
#else
#    define WEFT__INDEPENDENT
#endif

/* Memory is the caller's, of whatever type it declared. */
#if defined(__GNUC__)
#    define WEFT__ANY_TYPE __attribute__((__may_alias__))
#else
#    define WEFT__ANY_TYPE
#endif

typedef int8_t WEFT__ANY_TYPE mem_i8;
typedef int16_t WEFT__ANY_TYPE mem_i16;
typedef int32_t WEFT__ANY_TYPE mem_i32;
typedef int64_t WEFT__ANY_TYPE mem_i64;
typedef uint8_t WEFT__ANY_TYPE mem_u8;
typedef uint16_t WEFT__ANY_TYPE mem_u16;
typedef uint32_t WEFT__ANY_TYPE mem_u32;
typedef uint64_t WEFT__ANY_TYPE mem_u64;
typedef float WEFT__ANY_TYPE mem_f32;
typedef double WEFT__ANY_TYPE mem_f64;

/* A kernel whose elements are `type`, the result being an expression of x and y. */
#define KERNEL(name, type, expression)                                                             \
    static void name(void *dst, const void *a, const void *b, size_t count)                        \
    {                                                                                              \
        type *to = dst;                                                                            \
        const type *from_a = a;                                                                    \
        const type *from_b = b;                                                                    \
                                                                                                   \
        WEFT__INDEPENDENT                                                                          \
        for (size_t i = 0; i < count; i++) {                                                       \
            const type x = from_a[i];                                                              \
            const type y = from_b[i];                                                              \
                                                                                                   \
            to[i] = (type)(expression);                                                            \
        }                                                                                          \
    }

/* ---- integers: one kernel serves both signs but for min and max ---- */

#define INTEGER_KERNELS(bits)                                                                      \
    KERNEL(sum_##bits, mem_u##bits, x + y)                                                         \
    KERNEL(prod_##bits, mem_u##bits, 1u * x * y)                                                   \
    KERNEL(min_i##bits, mem_i##bits, x < y ? x : y)                                                \
    KERNEL(min_u##bits, mem_u##bits, x < y ? x : y)                                                \
    KERNEL(max_i##bits, mem_i##bits, x > y ? x : y)                                                \
    KERNEL(max_u##bits, mem_u##bits, x > y ? x : y)                                                \
    KERNEL(land_##bits, mem_u##bits, (x != 0) & (y != 0))                                          \
    KERNEL(lor_##bits, mem_u##bits, (x | y) != 0)                                                  \
    KERNEL(lxor_##bits, mem_u##bits, (x != 0) ^ (y != 0))                                          \
    KERNEL(band_##bits, mem_u##bits, (x & y))                                                      \
    KERNEL(bor_##bits, mem_u##bits, x | y)                                                         \
    KERNEL(bxor_##bits, mem_u##bits, x ^ y)

INTEGER_KERNELS(8)
INTEGER_KERNELS(16)
INTEGER_KERNELS(32)
INTEGER_KERNELS(64)

/* ---- floating point by its bits: the sign is the top bit, MAGNITUDE the others ---- */

/* min and max compare keys, two's complement integers in the order of the numbers: the magnitude of
 * a negative one is inverted, which is its own inverse. That leaves the NaNs at both ends, `nans`
 * of them at each; adding this number (or taking it away) turns the ring until all are at the end
 * that wins. So -0 is below +0, a NaN wins against numbers, and of two NaNs the same one does in
 * whichever order they come. */
#define FLOAT_ORDER(format, bits, magnitude, nans)                                                 \
    static inline int##bits##_t order_##format(uint##bits##_t x, uint##bits##_t turn)              \
    {                                                                                              \
        const uint##bits##_t sign = (uint##bits##_t)((int##bits##_t)x >> (bits - 1));              \
        const uint##bits##_t key = x ^ (sign & (magnitude));                                       \
                                                                                                   \
        return (int##bits##_t)(uint##bits##_t)(key + turn);                                        \
    }                                                                                              \
                                                                                                   \
    static inline uint##bits##_t number_##format(int##bits##_t key, uint##bits##_t turn)           \
    {                                                                                              \
        const uint##bits##_t straight = (uint##bits##_t)((uint##bits##_t)key - turn);              \
                                                                                                   \
        return (uint##bits##_t)order_##format(straight, 0);                                        \
    }                                                                                              \
                                                                                                   \
    static inline uint##bits##_t min_of_##format(uint##bits##_t x, uint##bits##_t y)               \
    {                                                                                              \
        const int##bits##_t p = order_##format(x, (nans));                                         \
        const int##bits##_t q = order_##format(y, (nans));                                         \
        const int##bits##_t least = p < q ? p : q;                                                 \
                                                                                                   \
        return number_##format(least, (nans));                                                     \
    }                                                                                              \
                                                                                                   \
    static inline uint##bits##_t max_of_##format(uint##bits##_t x, uint##bits##_t y)               \
    {                                                                                              \
        const int##bits##_t p = order_##format(x, (uint##bits##_t) - (nans));                      \
        const int##bits##_t q = order_##format(y, (uint##bits##_t) - (nans));                      \
        const int##bits##_t most = p > q ? p : q;                                                  \
                                                                                                   \
        return number_##format(most, (uint##bits##_t) - (nans));                                   \
    }

#define FLOAT_KERNELS(format, bits, magnitude, nans, one)                                          \
    FLOAT_ORDER(format, bits, magnitude, nans)                                                     \
    KERNEL(min_##format, mem_u##bits, min_of_##format(x, y))                                       \
    KERNEL(max_##format, mem_u##bits, max_of_##format(x, y))                                       \
    KERNEL(land_##format, mem_u##bits, (x & (magnitude)) != 0 && (y & (magnitude)) != 0 ? one : 0) \
    KERNEL(lor_##format, mem_u##bits, ((x | y) & (magnitude)) != 0 ? one : 0)                      \
    KERNEL(lxor_##format, mem_u##bits,                                                             \
           ((x & (magnitude)) != 0) != ((y & (magnitude)) != 0) ? one : 0)

FLOAT_KERNELS(f16, 16, 0x7fff, 0x03ff, 0x3c00u)
FLOAT_KERNELS(bf16, 16, 0x7fff, 0x007f, 0x3f80u)
FLOAT_KERNELS(f32, 32, 0x7fffffffu, 0x007fffffu, 0x3f800000u)
FLOAT_KERNELS(f64, 64, UINT64_C(0x7fffffffffffffff), UINT64_C(0x000fffffffffffff),
              UINT64_C(0x3ff0000000000000))

KERNEL(sum_f32, mem_f32, x + y)
KERNEL(prod_f32, mem_f32, (x * y))
KERNEL(sum_f64, mem_f64, x + y)
KERNEL(prod_f64, mem_f64, (x * y))

#ifndef WEFT__F16_SUM
#    define WEFT__F16_SUM  sum_f16
#    define WEFT__F16_PROD prod_f16
KERNEL(sum_f16, mem_u16, weft__f16_narrow(weft__f16_widen(x) + weft__f16_widen(y)))
KERNEL(prod_f16, mem_u16, weft__f16_narrow(weft__f16_widen(x) * weft__f16_widen(y)))
#endif

#ifndef WEFT__BF16_SUM
#    define WEFT__BF16_SUM  sum_bf16
#    define WEFT__BF16_PROD prod_bf16
KERNEL(sum_bf16, mem_u16, weft__bf16_narrow(weft__bf16_widen(x) + weft__bf16_widen(y)))
KERNEL(prod_bf16, mem_u16, weft__bf16_narrow(weft__bf16_widen(x) * weft__bf16_widen(y)))
#endif

/* ---- the table ---- */

#define EITHER_SIGN(name)                                                                          \
    [WEFT_I8] = name##_8, [WEFT_I16] = name##_16, [WEFT_I32] = name##_32, [WEFT_I64] = name##_64,  \
    [WEFT_U8] = name##_8, [WEFT_U16] = name##_16, [WEFT_U32] = name##_32, [WEFT_U64] = name##_64
#define EACH_SIGN(name)                                                                            \
    [WEFT_I8] = name##_i8, [WEFT_I16] = name##_i16, [WEFT_I32] = name##_i32,                       \
    [WEFT_I64] = name##_i64, [WEFT_U8] = name##_u8, [WEFT_U16] = name##_u16,                       \
    [WEFT_U32] = name##_u32, [WEFT_U64] = name##_u64
#define FLOATING(name)                                                                             \
    [WEFT_F16] = name##_f16, [WEFT_BF16] = name##_bf16, [WEFT_F32] = name##_f32,                   \
    [WEFT_F64] = name##_f64

const weft__reduce_table WEFT__REDUCE_TABLE = {
    [WEFT_SUM] = {EITHER_SIGN(sum), [WEFT_F16] = WEFT__F16_SUM, [WEFT_BF16] = WEFT__BF16_SUM,
                  [WEFT_F32] = sum_f32, [WEFT_F64] = sum_f64},
    [WEFT_PROD] = {EITHER_SIGN(prod), [WEFT_F16] = WEFT__F16_PROD, [WEFT_BF16] = WEFT__BF16_PROD,
                   [WEFT_F32] = prod_f32, [WEFT_F64] = prod_f64},
    [WEFT_MIN] = {EACH_SIGN(min), FLOATING(min)},
    [WEFT_MAX] = {EACH_SIGN(max), FLOATING(max)},
    [WEFT_LAND] = {EITHER_SIGN(land), FLOATING(land)},
    [WEFT_LOR] = {EITHER_SIGN(lor), FLOATING(lor)},
    [WEFT_LXOR] = {EITHER_SIGN(lxor), FLOATING(lxor)},
    [WEFT_BAND] = {EITHER_SIGN(band)},
    [WEFT_BOR] = {EITHER_SIGN(bor)},
    [WEFT_BXOR] = {EITHER_SIGN(bxor)},
};
