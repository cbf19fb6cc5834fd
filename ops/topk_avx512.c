/* SPDX-License-Identifier: BSD-3-Clause */
/* AVX-512 (F, BW, DQ, VL): comparisons give masks, and a mask compresses a register. The compressed
 * register is stored whole, since storing a part of one is slow on some processors: within a block
 * that writes no further than what has been read. 16-bit keys are compressed as 32-bit ones (their
 * own instruction is not part of this level). */
#include <immintrin.h>

#include "ops/topk.h"

#define WEFT__TOPK_TABLE weft__topk_avx512
#define WEFT__TOPK_HITS
#define WEFT__TOPK_COMPRESS

static inline __m512i load(const void *from)
{
    return _mm512_loadu_si512(from);
}

static inline size_t ones(unsigned mask)
{
    return (size_t)__builtin_popcount(mask);
}

static inline uint64_t hits_16(const weft__key_16 *x, uint16_t least)
{
    const __m512i magnitude = _mm512_set1_epi16(INT16_MAX);
    const __m512i bound = _mm512_set1_epi16((short)least);
    const __mmask32 low = _mm512_cmpge_epu16_mask(_mm512_and_si512(load(x), magnitude), bound);
    const __mmask32 high =
        _mm512_cmpge_epu16_mask(_mm512_and_si512(load(x + 32), magnitude), bound);

    return (uint64_t)high << 32 | low;
}

static inline uint64_t hits_32(const weft__key_32 *x, uint32_t least)
{
    const __m512i magnitude = _mm512_set1_epi32(INT32_MAX);
    const __m512i bound = _mm512_set1_epi32((int)least);
    __mmask16 hit[4];

    for (int i = 0; i < 4; i++)
        hit[i] = _mm512_cmpge_epu32_mask(_mm512_and_si512(load(x + 16 * i), magnitude), bound);
    return _cvtmask64_u64(
        _mm512_kunpackd(_mm512_kunpackw(hit[3], hit[2]), _mm512_kunpackw(hit[1], hit[0])));
}

static inline uint64_t hits_64(const weft__key_64 *x, uint64_t least)
{
    const __m512i magnitude = _mm512_set1_epi64(INT64_MAX);
    const __m512i bound = _mm512_set1_epi64((long long)least);
    uint64_t hits = 0;

    for (int i = 0; i < 8; i++) {
        const __mmask8 hit =
            _mm512_cmpge_epu64_mask(_mm512_and_si512(load(x + 8 * i), magnitude), bound);

        hits |= (uint64_t)hit << (8 * i);
    }
    return hits;
}

/* Whether a block has hits: the largest key of each lane is enough. */
#define ANY(width, lanes)                                                                          \
    static inline int any_##width(const weft__key_##width *x, uint##width##_t least)               \
    {                                                                                              \
        const __m512i magnitude = SET_##width(INT##width##_MAX);                                   \
        __m512i most = _mm512_and_si512(load(x), magnitude);                                       \
                                                                                                   \
        for (int i = lanes; i < WEFT__TOPK_BLOCK; i += lanes)                                      \
            most = _mm512_max_epu##width(most, _mm512_and_si512(load(x + i), magnitude));          \
        return _mm512_cmpge_epu##width##_mask(most, SET_##width((int##width##_t)least)) != 0;      \
    }

#define SET_16 _mm512_set1_epi16
#define SET_32 _mm512_set1_epi32
#define SET_64 _mm512_set1_epi64

ANY(16, 32)
ANY(32, 16)
ANY(64, 8)

static inline __m512i places(uint32_t base)
{
    const __m512i ascending =
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);

    return _mm512_add_epi32(_mm512_set1_epi32((int)base), ascending);
}

/* Sixteen entries at a time: PLACES are their indices. */
#define TAKE_16(to, to_index, from, hits, PLACES)                                                  \
    size_t n = 0;                                                                                  \
                                                                                                   \
    for (int i = 0; i < WEFT__TOPK_BLOCK; i += 16) {                                               \
        const __mmask16 hit = (__mmask16)((hits) >> i);                                            \
        const __m256i narrow = _mm256_loadu_si256((const void *)((from) + i));                     \
        const __m512i wide = _mm512_cvtepu16_epi32(narrow);                                        \
        const __m512i at = PLACES;                                                                 \
                                                                                                   \
        _mm256_storeu_si256((void *)((to) + n),                                                    \
                            _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(hit, wide)));        \
        _mm512_storeu_si512((to_index) + n, _mm512_maskz_compress_epi32(hit, at));                 \
        n += ones(hit);                                                                            \
    }                                                                                              \
    return n

#define TAKE_32(to, to_index, from, hits, PLACES)                                                  \
    size_t n = 0;                                                                                  \
                                                                                                   \
    for (int i = 0; i < WEFT__TOPK_BLOCK; i += 16) {                                               \
        const __mmask16 hit = (__mmask16)((hits) >> i);                                            \
        const __m512i value = load((from) + i);                                                    \
        const __m512i at = PLACES;                                                                 \
                                                                                                   \
        _mm512_storeu_si512((to) + n, _mm512_maskz_compress_epi32(hit, value));                    \
        _mm512_storeu_si512((to_index) + n, _mm512_maskz_compress_epi32(hit, at));                 \
        n += ones(hit);                                                                            \
    }                                                                                              \
    return n

#define TAKE_64(to, to_index, from, hits, PLACES)                                                  \
    size_t n = 0;                                                                                  \
                                                                                                   \
    for (int i = 0; i < WEFT__TOPK_BLOCK; i += 16) {                                               \
        const __mmask16 hit = (__mmask16)((hits) >> i);                                            \
        const __mmask8 low = (__mmask8)hit;                                                        \
        const __mmask8 high = (__mmask8)(hit >> 8);                                                \
        const __m512i values[2] = {load((from) + i), load((from) + i + 8)};                        \
        const __m512i at = PLACES;                                                                 \
                                                                                                   \
        _mm512_storeu_si512((to) + n, _mm512_maskz_compress_epi64(low, values[0]));                \
        _mm512_storeu_si512((to) + n + ones(low), _mm512_maskz_compress_epi64(high, values[1]));   \
        _mm512_storeu_si512((to_index) + n, _mm512_maskz_compress_epi32(hit, at));                 \
        n += ones(hit);                                                                            \
    }                                                                                              \
    return n

#define PUSH_AND_MOVE(width)                                                                       \
    static inline size_t push_many_##width(weft__key_##width *to, uint32_t *index,                 \
                                           const weft__key_##width *x, uint64_t hits,              \
                                           uint32_t base)                                          \
    {                                                                                              \
        TAKE_##width(to, index, x, hits, places(base + (uint32_t)i));                              \
    }                                                                                              \
                                                                                                   \
    static inline size_t move_##width(weft__key_##width *to, uint32_t *to_index,                   \
                                      const weft__key_##width *x, const uint32_t *index,           \
                                      uint64_t hits)                                               \
    {                                                                                              \
        TAKE_##width(to, to_index, x, hits, load(index + i));                                      \
    }

/* Keeps the keys in [least, most], as between_N of topk_width.h. */
static size_t between_32(weft__key_32 *x, size_t count, uint32_t least, uint32_t most)
{
    const __m512i magnitude = _mm512_set1_epi32(INT32_MAX);
    size_t n = 0;

    for (size_t i = 0; i < count; i += 16) {
        const __mmask16 there =
            count - i < 16 ? (__mmask16)((1u << (count - i)) - 1) : (__mmask16)0xffff;
        const __m512i bits = _mm512_maskz_loadu_epi32(there, x + i);
        const __m512i key = _mm512_and_si512(bits, magnitude);
        const __mmask16 in = _mm512_mask_cmple_epu32_mask(
            _mm512_mask_cmpge_epu32_mask(there, key, _mm512_set1_epi32((int)least)), key,
            _mm512_set1_epi32((int)most));
        const __mmask16 stay = (__mmask16)((1u << ones(in)) - 1);

        _mm512_mask_storeu_epi32(x + n, stay, _mm512_maskz_compress_epi32(in, bits));
        n += ones(in);
    }
    return n;
}

static size_t between_64(weft__key_64 *x, size_t count, uint64_t least, uint64_t most)
{
    const __m512i magnitude = _mm512_set1_epi64(INT64_MAX);
    size_t n = 0;

    for (size_t i = 0; i < count; i += 8) {
        const __mmask8 there = count - i < 8 ? (__mmask8)((1u << (count - i)) - 1) : (__mmask8)0xff;
        const __m512i bits = _mm512_maskz_loadu_epi64(there, x + i);
        const __m512i key = _mm512_and_si512(bits, magnitude);
        const __mmask8 in = _mm512_mask_cmple_epu64_mask(
            _mm512_mask_cmpge_epu64_mask(there, key, _mm512_set1_epi64((long long)least)), key,
            _mm512_set1_epi64((long long)most));
        const __mmask8 stay = (__mmask8)((1u << ones(in)) - 1);

        _mm512_mask_storeu_epi64(x + n, stay, _mm512_maskz_compress_epi64(in, bits));
        n += ones(in);
    }
    return n;
}

static size_t between_16(weft__key_16 *x, size_t count, uint16_t least, uint16_t most)
{
    const __m512i magnitude = _mm512_set1_epi32(INT16_MAX);
    size_t n = 0;

    for (size_t i = 0; i < count; i += 16) {
        const __mmask16 there =
            count - i < 16 ? (__mmask16)((1u << (count - i)) - 1) : (__mmask16)0xffff;
        const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, x + i));
        const __m512i key = _mm512_and_si512(bits, magnitude);
        const __mmask16 in = _mm512_mask_cmple_epu32_mask(
            _mm512_mask_cmpge_epu32_mask(there, key, _mm512_set1_epi32(least)), key,
            _mm512_set1_epi32(most));
        const __mmask16 stay = (__mmask16)((1u << ones(in)) - 1);

        _mm256_mask_storeu_epi16(x + n, stay,
                                 _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(in, bits)));
        n += ones(in);
    }
    return n;
}

PUSH_AND_MOVE(16)
PUSH_AND_MOVE(32)
PUSH_AND_MOVE(64)

#include "ops/topk_template.h"
