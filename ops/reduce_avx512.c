/* SPDX-License-Identifier: BSD-3-Clause */
/* AVX-512 (F, BW, DQ, VL). 16-bit floating point as in reduce_avx2.c, at twice the width; the rest
 * of a block is a masked vector. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define F16_KERNEL(name, vector_op)                                                                \
    static inline void name##_block(uint16_t *to, const uint16_t *a, const uint16_t *b,            \
                                    __mmask16 mask)                                                \
    {                                                                                              \
        const __m512 x = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, a));                       \
        const __m512 y = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, b));                       \
        const __m256i sum = _mm512_cvtps_ph(vector_op(x, y), _MM_FROUND_TO_NEAREST_INT);           \
                                                                                                   \
        _mm256_mask_storeu_epi16(to, mask, sum);                                                   \
    }                                                                                              \
                                                                                                   \
    static void name(void *dst, const void *a, const void *b, size_t count)                        \
    {                                                                                              \
        uint16_t *to = dst;                                                                        \
        const uint16_t *from_a = a;                                                                \
        const uint16_t *from_b = b;                                                                \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (; i + 32 <= count; i += 32) {                                                         \
            name##_block(to + i, from_a + i, from_b + i, 0xffff);                                  \
            name##_block(to + i + 16, from_a + i + 16, from_b + i + 16, 0xffff);                   \
        }                                                                                          \
        for (; i < count; i += 16) {                                                               \
            const __mmask16 mask = (__mmask16)(count - i < 16 ? (1u << (count - i)) - 1 : 0xffff); \
                                                                                                   \
            name##_block(to + i, from_a + i, from_b + i, mask);                                    \
        }                                                                                          \
    }

F16_KERNEL(sum_f16, _mm512_add_ps)
F16_KERNEL(prod_f16, _mm512_mul_ps)

/* The bits of f32 values rounded to bf16 in their upper halves; the lower halves are not cleared. A
 * NaN that arithmetic returned is quiet. */
static inline __m512i bf16_round(__m512 values)
{
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_add_epi32(bits, bias);
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);

    return _mm512_mask_mov_epi32(rounded, nan, bits);
}

#define BF16_KERNEL(name, vector_op)                                                               \
    static inline void name##_block(uint16_t *to, const uint16_t *a, const uint16_t *b,            \
                                    __mmask32 mask)                                                \
    {                                                                                              \
        const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);                                 \
        const __m512i x = _mm512_maskz_loadu_epi16(mask, a);                                       \
        const __m512i y = _mm512_maskz_loadu_epi16(mask, b);                                       \
        const __m512i even = bf16_round(vector_op(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),   \
                                                  _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)))); \
        const __m512i odd =                                                                        \
            bf16_round(vector_op(_mm512_castsi512_ps(_mm512_and_si512(x, upper)),                  \
                                 _mm512_castsi512_ps(_mm512_and_si512(y, upper))));                \
        const __m512i both =                                                                       \
            _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(even, 16), odd);                \
                                                                                                   \
        _mm512_mask_storeu_epi16(to, mask, both);                                                  \
    }                                                                                              \
                                                                                                   \
    static void name(void *dst, const void *a, const void *b, size_t count)                        \
    {                                                                                              \
        uint16_t *to = dst;                                                                        \
        const uint16_t *from_a = a;                                                                \
        const uint16_t *from_b = b;                                                                \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (; i + 32 <= count; i += 32)                                                           \
            name##_block(to + i, from_a + i, from_b + i, 0xffffffffu);                             \
        if (i < count)                                                                             \
            name##_block(to + i, from_a + i, from_b + i, (__mmask32)((1u << (count - i)) - 1));    \
    }

BF16_KERNEL(sum_bf16, _mm512_add_ps)
BF16_KERNEL(prod_bf16, _mm512_mul_ps)

#define WEFT__F16_SUM      sum_f16
#define WEFT__F16_PROD     prod_f16
#define WEFT__BF16_SUM     sum_bf16
#define WEFT__BF16_PROD    prod_bf16
#define WEFT__REDUCE_TABLE weft__reduce_avx512
#include "ops/reduce_template.h"
