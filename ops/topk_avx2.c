/* SPDX-License-Identifier: BSD-3-Clause */
/* AVX2 compares signed integers only, which keys are as well: the sign is taken off. Hits are rare,
 * so they are looked for in the whole block first and told apart only if there are some. */
#include <immintrin.h>

#include "ops/topk.h"

#define WEFT__TOPK_TABLE weft__topk_avx2
#define WEFT__TOPK_HITS

static inline __m256i load(const void *from)
{
    return _mm256_loadu_si256(from);
}

static inline uint64_t hits_32(const weft__key_32 *x, uint32_t least)
{
    const __m256i magnitude = _mm256_set1_epi32(INT32_MAX);
    const __m256i below = _mm256_set1_epi32((int)(least - 1));
    __m256i any = _mm256_setzero_si256();
    __m256i hit[8];
    uint64_t hits = 0;

    for (int i = 0; i < 8; i++) {
        hit[i] = _mm256_cmpgt_epi32(_mm256_and_si256(load(x + 8 * i), magnitude), below);
        any = _mm256_or_si256(any, hit[i]);
    }
    if (_mm256_testz_si256(any, any))
        return 0;
    for (int i = 0; i < 8; i++)
        hits |= (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(hit[i])) << (8 * i);
    return hits;
}

static inline uint64_t hits_16(const weft__key_16 *x, uint16_t least)
{
    const __m256i magnitude = _mm256_set1_epi16(INT16_MAX);
    const __m256i below = _mm256_set1_epi16((short)(least - 1));
    __m256i hit[4];
    uint64_t hits = 0;

    for (int i = 0; i < 4; i++)
        hit[i] = _mm256_cmpgt_epi16(_mm256_and_si256(load(x + 16 * i), magnitude), below);
    for (int i = 0; i < 2; i++) {
        /* Packing works within each half of a register; the permutation undoes that. */
        const __m256i bytes = _mm256_permute4x64_epi64(
            _mm256_packs_epi16(hit[2 * i], hit[2 * i + 1]), _MM_SHUFFLE(3, 1, 2, 0));

        hits |= (uint64_t)(unsigned)_mm256_movemask_epi8(bytes) << (32 * i);
    }
    return hits;
}

static inline uint64_t hits_64(const weft__key_64 *x, uint64_t least)
{
    const __m256i magnitude = _mm256_set1_epi64x(INT64_MAX);
    const __m256i below = _mm256_set1_epi64x((long long)(least - 1));
    __m256i any = _mm256_setzero_si256();
    __m256i hit[16];
    uint64_t hits = 0;

    for (int i = 0; i < 16; i++) {
        hit[i] = _mm256_cmpgt_epi64(_mm256_and_si256(load(x + 4 * i), magnitude), below);
        any = _mm256_or_si256(any, hit[i]);
    }
    if (_mm256_testz_si256(any, any))
        return 0;
    for (int i = 0; i < 16; i++)
        hits |= (uint64_t)(unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(hit[i])) << (4 * i);
    return hits;
}

static inline int any_16(const weft__key_16 *x, uint16_t least)
{
    return hits_16(x, least) != 0;
}

static inline int any_32(const weft__key_32 *x, uint32_t least)
{
    return hits_32(x, least) != 0;
}

static inline int any_64(const weft__key_64 *x, uint64_t least)
{
    return hits_64(x, least) != 0;
}

#include "ops/topk_template.h"
