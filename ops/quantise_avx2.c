/* SPDX-License-Identifier: BSD-3-Clause */
/* AVX2. */
#include <immintrin.h>
#include <string.h>

#include "ops/quantise.h"

#define WEFT__QUANTISE_TABLE weft__quantise_avx2
#define WEFT__QUANTISE_BLOCKS

static inline __m256i lanes(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

/* draw_bits() of counters from `counter` on, but for its last step, which does not change the upper
 * half. */
static inline __m256i draw_vector(const uint32_t key[2], uint32_t counter)
{
    __m256i x = _mm256_add_epi32(_mm256_set1_epi32((int)(counter + key[0])), lanes());

    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)WEFT__DRAW_MULTIPLY_1));
    x = _mm256_xor_si256(_mm256_xor_si256(x, _mm256_srli_epi32(x, 15)),
                         _mm256_set1_epi32((int)key[1]));
    return _mm256_mullo_epi32(x, _mm256_set1_epi32((int)WEFT__DRAW_MULTIPLY_2));
}

static inline __m256i level_vector(const struct weft__quantise_draw *draw, int bits,
                                   const float *values, __m256i half)
{
    const int shift = WEFT__DRAW_BITS(bits);
    const __m256 fixed = _mm256_mul_ps(_mm256_loadu_ps(values), _mm256_set1_ps(draw->factor));
    const __m256i drawn = _mm256_srli_epi32(half, 16 - shift);

    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(fixed), drawn), shift);
}

/* Levels of 32 elements, a byte each. */
static inline __m256i level_bytes(const struct weft__quantise_draw *draw, int bits, uint32_t at,
                                  const float *values)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i level[4];

    for (int i = 0; i < 2; i++) {
        const __m256i drawn = draw_vector(draw->key, at / 2 + 8 * (uint32_t)i);
        const __m256i upper = _mm256_srli_epi32(drawn, 16);
        const __m256i lower =
            _mm256_and_si256(_mm256_xor_si256(drawn, upper), _mm256_set1_epi32(0xffff));

        level[i] = level_vector(draw, bits, values + 8 * i, lower);
        level[i + 2] = level_vector(draw, bits, values + 8 * i + 16, upper);
    }
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(_mm256_packs_epi32(level[0], level[1]),
                                                          _mm256_packs_epi32(level[2], level[3])),
                                       order);
}

/* Two neighbouring codes of 2 or 4 bits together, in 16 bits. */
static inline __m256i join_pairs(int bits, __m256i bytes)
{
    return _mm256_maddubs_epi16(_mm256_and_si256(bytes, _mm256_set1_epi8((char)((1 << bits) - 1))),
                                _mm256_set1_epi16((short)(256 << bits | 1)));
}

static inline void encode_signs(const float *values, uint8_t *codes)
{
    for (int i = 0; i < WEFT__QUANTISE_BLOCK / 8; i++)
        codes[i] = (uint8_t)_mm256_movemask_ps(_mm256_loadu_ps(values + 8 * i));
}

static inline void encode_block(int bits, const struct weft__quantise_draw *draw, uint32_t at,
                                const float *values, uint8_t *codes)
{
    __m256i first, second;

    if (bits == 1) {
        encode_signs(values, codes);
        return;
    }
    first = level_bytes(draw, bits, at, values);
    second = level_bytes(draw, bits, at + 32, values + 32);
    if (bits == 8) {
        _mm256_storeu_si256((__m256i *)codes, first);
        _mm256_storeu_si256((__m256i *)(codes + 32), second);
        return;
    }
    first = join_pairs(bits, first);
    second = join_pairs(bits, second);
    if (bits == 4) {
        first = _mm256_permute4x64_epi64(_mm256_packus_epi16(first, second), 0xd8);
        _mm256_storeu_si256((__m256i *)codes, first);
        return;
    }
    first = _mm256_madd_epi16(first, _mm256_set1_epi32(16 << 16 | 1));
    second = _mm256_madd_epi16(second, _mm256_set1_epi32(16 << 16 | 1));
    first = _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xd8);
    _mm_storeu_si128((__m128i *)codes, _mm_packus_epi16(_mm256_castsi256_si128(first),
                                                        _mm256_extracti128_si256(first, 1)));
}

/* The values of the codes of 8 elements. Their bits are the same for all lanes, and each moves its
 * own up to the sign and down again. */
static inline __m256 value_vector(int bits, float norm, const uint8_t *codes)
{
    const __m256i skip = _mm256_mullo_epi32(lanes(), _mm256_set1_epi32(bits));
    const __m256i up = _mm256_sub_epi32(_mm256_set1_epi32(32 - bits), skip);
    __m256i level;
    int word = 0;

    if (bits == 8) {
        level = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)codes));
    } else {
        memcpy(&word, codes, (size_t)bits);
        level = _mm256_sllv_epi32(_mm256_set1_epi32(word), up);
        if (bits == 1)
            return _mm256_xor_ps(_mm256_set1_ps(norm),
                                 _mm256_and_ps(_mm256_castsi256_ps(level), _mm256_set1_ps(-0.0f)));
        level = _mm256_srai_epi32(level, 32 - bits);
    }
    return _mm256_mul_ps(
        _mm256_set1_ps(norm),
        _mm256_mul_ps(_mm256_cvtepi32_ps(level), _mm256_set1_ps(WEFT__LEVEL_STEP(bits))));
}

static inline void decode_block(int bits, int add, float norm, const uint8_t *codes, float *values)
{
    for (int i = 0; i < WEFT__QUANTISE_BLOCK; i += 8) {
        __m256 decoded = value_vector(bits, norm, codes + i / 8 * bits);

        if (add)
            decoded = _mm256_add_ps(_mm256_loadu_ps(values + i), decoded);
        _mm256_storeu_ps(values + i, decoded);
    }
}

#include "ops/quantise_template.h"
