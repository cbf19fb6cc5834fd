/* SPDX-License-Identifier: BSD-3-Clause */
/* AVX-512 (F, BW, DQ, VL). */
#include <immintrin.h>
#include <string.h>

#include "ops/quantise.h"

#define WEFT__QUANTISE_TABLE weft__quantise_avx512
#define WEFT__QUANTISE_BLOCKS

static inline __m512i lanes(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* draw_bits() of counters from `counter` on, but for its last step, which does not change the upper
 * half. */
static inline __m512i draw_vector(const uint32_t key[2], uint32_t counter)
{
    __m512i x = _mm512_add_epi32(_mm512_set1_epi32((int)(counter + key[0])), lanes());

    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)WEFT__DRAW_MULTIPLY_1));
    x = _mm512_xor_si512(_mm512_xor_si512(x, _mm512_srli_epi32(x, 15)),
                         _mm512_set1_epi32((int)key[1]));
    return _mm512_mullo_epi32(x, _mm512_set1_epi32((int)WEFT__DRAW_MULTIPLY_2));
}

static inline __m512i level_vector(const struct weft__quantise_draw *draw, int bits,
                                   const float *values, __m512i half)
{
    const unsigned shift = WEFT__DRAW_BITS(bits);
    const __m512 fixed = _mm512_mul_ps(_mm512_loadu_ps(values), _mm512_set1_ps(draw->factor));
    const __m512i drawn = _mm512_srli_epi32(half, 16 - shift);

    return _mm512_srai_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(fixed), drawn), shift);
}

/* Levels of 32 elements, as 16 bits: in each quarter 4 of the first 16 and 4 of the others. */
static inline __m512i level_pair(const struct weft__quantise_draw *draw, int bits, uint32_t at,
                                 const float *values)
{
    const __m512i drawn = draw_vector(draw->key, at / 2);
    const __m512i upper = _mm512_srli_epi32(drawn, 16);
    const __m512i lower =
        _mm512_and_si512(_mm512_xor_si512(drawn, upper), _mm512_set1_epi32(0xffff));

    return _mm512_packs_epi32(level_vector(draw, bits, values, lower),
                              level_vector(draw, bits, values + 16, upper));
}

static inline uint64_t sign_bits(const float *values)
{
    return _cvtmask16_u32(_mm512_movepi32_mask(_mm512_loadu_si512(values)));
}

static inline void encode_block(int bits, const struct weft__quantise_draw *draw, uint32_t at,
                                const float *values, uint8_t *codes)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i bytes;

    if (bits == 1) {
        const uint64_t signs = sign_bits(values) | sign_bits(values + 16) << 16 |
                               sign_bits(values + 32) << 32 | sign_bits(values + 48) << 48;

        memcpy(codes, &signs, sizeof signs);
        return;
    }
    bytes = _mm512_packs_epi16(level_pair(draw, bits, at, values),
                               level_pair(draw, bits, at + 32, values + 32));
    bytes = _mm512_permutexvar_epi32(order, bytes);
    if (bits == 8) {
        _mm512_storeu_si512(codes, bytes);
        return;
    }
    bytes = _mm512_and_si512(bytes, _mm512_set1_epi8((char)((1 << bits) - 1)));
    bytes = _mm512_maddubs_epi16(bytes, _mm512_set1_epi16((short)(256 << bits | 1)));
    if (bits == 4) {
        _mm256_storeu_si256((__m256i *)codes, _mm512_cvtepi16_epi8(bytes));
        return;
    }
    bytes = _mm512_madd_epi16(bytes, _mm512_set1_epi32(16 << 16 | 1));
    _mm_storeu_si128((__m128i *)codes, _mm512_cvtepi32_epi8(bytes));
}

/* The values of all codes of 2 or 4 bits; those of 2 bits four times. */
static inline __m512 value_table(int bits, float norm)
{
    const unsigned up = (unsigned)(32 - bits);
    const __m512i levels = _mm512_srai_epi32(_mm512_slli_epi32(lanes(), up), up);

    return _mm512_mul_ps(
        _mm512_set1_ps(norm),
        _mm512_mul_ps(_mm512_cvtepi32_ps(levels), _mm512_set1_ps(WEFT__LEVEL_STEP(bits))));
}

/* The values of the codes of 16 elements. */
static inline __m512 value_vector(int bits, float norm, const uint8_t *codes)
{
    __m512i index;

    if (bits == 1) {
        uint16_t signs;

        memcpy(&signs, codes, sizeof signs);
        return _mm512_mask_blend_ps(signs, _mm512_set1_ps(norm), _mm512_set1_ps(-norm));
    }
    if (bits == 8) {
        index = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)codes));
        return _mm512_mul_ps(
            _mm512_set1_ps(norm),
            _mm512_mul_ps(_mm512_cvtepi32_ps(index), _mm512_set1_ps(WEFT__LEVEL_STEP(8))));
    }
    if (bits == 4) {
        index = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)codes));
        index = _mm512_or_si512(index, _mm512_slli_epi64(index, 28));
    } else {
        int word;

        memcpy(&word, codes, sizeof word);
        index = _mm512_srlv_epi32(_mm512_set1_epi32(word), _mm512_slli_epi32(lanes(), 1));
    }
    return _mm512_permutexvar_ps(index, value_table(bits, norm));
}

static inline void decode_block(int bits, int add, float norm, const uint8_t *codes, float *values)
{
    for (int i = 0; i < WEFT__QUANTISE_BLOCK; i += 16) {
        __m512 decoded = value_vector(bits, norm, codes + i / 8 * bits);

        if (add)
            decoded = _mm512_add_ps(_mm512_loadu_ps(values + i), decoded);
        _mm512_storeu_ps(values + i, decoded);
    }
}

#include "ops/quantise_template.h"
