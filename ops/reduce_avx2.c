/* SPDX-License-Identifier: BSD-3-Clause */
/* AVX2 with F16C. Eight f16 at a time go through the conversion instructions. bf16 needs none: of
 * 16 elements seen as eight 32-bit words, the odd ones are f32 but for the lower bits, and the even
 * ones are after a shift; the results interleave again without leaving their lanes. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/half.h"

static inline __m256 f16_load(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

static inline void f16_store(uint16_t *to, __m256 values)
{
    const __m128i halves = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);

    _mm_storeu_si128((__m128i *)(void *)to, halves);
}

#define F16_KERNEL(name, vector_op, op)                                                            \
    static void name(void *dst, const void *a, const void *b, size_t count)                        \
    {                                                                                              \
        uint16_t *to = dst;                                                                        \
        const uint16_t *from_a = a;                                                                \
        const uint16_t *from_b = b;                                                                \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (; i + 16 <= count; i += 16) {                                                         \
            const __m256 low = vector_op(f16_load(from_a + i), f16_load(from_b + i));              \
            const __m256 high = vector_op(f16_load(from_a + i + 8), f16_load(from_b + i + 8));     \
                                                                                                   \
            f16_store(to + i, low);                                                                \
            f16_store(to + i + 8, high);                                                           \
        }                                                                                          \
        for (; i < count; i++)                                                                     \
            to[i] = weft__f16_narrow(weft__f16_widen(from_a[i]) op weft__f16_widen(from_b[i]));    \
    }

F16_KERNEL(sum_f16, _mm256_add_ps, +)
F16_KERNEL(prod_f16, _mm256_mul_ps, *)

/* The bits of f32 values rounded to bf16 in their upper halves; the lower halves are not cleared. A
 * NaN that arithmetic returned is quiet. */
static inline __m256i bf16_round(__m256 values)
{
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_add_epi32(bits, bias);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));

    return _mm256_blendv_epi8(rounded, bits, nan);
}

#define BF16_KERNEL(name, vector_op, op)                                                           \
    static void name(void *dst, const void *a, const void *b, size_t count)                        \
    {                                                                                              \
        const __m256i upper = _mm256_set1_epi32((int)0xffff0000u);                                 \
        uint16_t *to = dst;                                                                        \
        const uint16_t *from_a = a;                                                                \
        const uint16_t *from_b = b;                                                                \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (; i + 16 <= count; i += 16) {                                                         \
            const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(from_a + i));     \
            const __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)(from_b + i));     \
            const __m256i even =                                                                   \
                bf16_round(vector_op(_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),                \
                                     _mm256_castsi256_ps(_mm256_slli_epi32(y, 16))));              \
            const __m256i odd =                                                                    \
                bf16_round(vector_op(_mm256_castsi256_ps(_mm256_and_si256(x, upper)),              \
                                     _mm256_castsi256_ps(_mm256_and_si256(y, upper))));            \
            const __m256i both = _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);       \
                                                                                                   \
            _mm256_storeu_si256((__m256i *)(void *)(to + i), both);                                \
        }                                                                                          \
        for (; i < count; i++)                                                                     \
            to[i] = weft__bf16_narrow(weft__bf16_widen(from_a[i]) op weft__bf16_widen(from_b[i])); \
    }

BF16_KERNEL(sum_bf16, _mm256_add_ps, +)
BF16_KERNEL(prod_bf16, _mm256_mul_ps, *)

#define WEFT__F16_SUM      sum_f16
#define WEFT__F16_PROD     prod_f16
#define WEFT__BF16_SUM     sum_bf16
#define WEFT__BF16_PROD    prod_bf16
#define WEFT__REDUCE_TABLE weft__reduce_avx2
#include "ops/reduce_template.h"
