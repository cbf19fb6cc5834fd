/* SPDX-License-Identifier: BSD-3-Clause */
/* AVX-512: 32 registers, of which a tile's sums take 28 at most. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define WEFT__PROJECT_TABLE weft__project_avx512
#define VECTOR              __m512
#define DOUBLES             __m512d
#define MASK                __mmask16
enum { WIDTH = 16, ROWS = 9, MOST_VECTORS = 8, NARROW_MOST = 4 };

/* By the number of rows; by the number of components. */
static const size_t most_vectors[] = {0, 8, 8, 8, 6, 5, 4, 4, 3, 3};
static const size_t narrow_rows[] = {0, 4, 4, 4, 4, 4, 4, 3};

/* clang-format off */
#define TILES(X) \
    X(1, 1) X(1, 2) X(1, 3) X(1, 4) X(1, 5) X(1, 6) X(1, 7) X(1, 8) \
    X(2, 1) X(2, 2) X(2, 3) X(2, 4) X(2, 5) X(2, 6) X(2, 7) X(2, 8) \
    X(3, 1) X(3, 2) X(3, 3) X(3, 4) X(3, 5) X(3, 6) X(3, 7) X(3, 8) \
    X(4, 1) X(4, 2) X(4, 3) X(4, 4) X(4, 5) X(4, 6) \
    X(5, 1) X(5, 2) X(5, 3) X(5, 4) X(5, 5) \
    X(6, 1) X(6, 2) X(6, 3) X(6, 4) \
    X(7, 1) X(7, 2) X(7, 3) X(7, 4) \
    X(8, 1) X(8, 2) X(8, 3) \
    X(9, 1) X(9, 2) X(9, 3)
/* clang-format on */

/* clang-format off */
#define LANES_TILES(X) \
    X(1, 1) X(2, 1) X(3, 1) X(4, 1) \
    X(1, 2) X(2, 2) X(3, 2) X(4, 2) \
    X(1, 3) X(2, 3) X(3, 3) X(4, 3) \
    X(1, 4) X(2, 4) X(3, 4) X(4, 4) \
    X(1, 5) X(2, 5) X(3, 5) X(4, 5) \
    X(1, 6) X(2, 6) X(3, 6) X(4, 6) \
    X(1, 7) X(2, 7) X(3, 7)
/* clang-format on */

static inline __mmask16 mask_of(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

#define zero()                 _mm512_setzero_ps()
#define load(from)             _mm512_loadu_ps(from)
#define store(to, x)           _mm512_storeu_ps(to, x)
#define load_masked(m, from)   _mm512_maskz_loadu_ps(m, from)
#define store_masked(m, to, x) _mm512_mask_storeu_ps(to, m, x)
#define spread(from)           _mm512_set1_ps(*(from))
#define fused(a, b, c)         _mm512_fmadd_ps(a, b, c)
#define fused_less(a, b, c)    _mm512_fnmadd_ps(a, b, c)
#define lower_wide(x)          _mm512_cvtps_pd(_mm512_castps512_ps256(x))
#define upper_wide(x)          _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))
#define load_wide(from)        _mm512_cvtps_pd(_mm256_loadu_ps(from))
#define load_doubles(from)     _mm512_loadu_pd(from)
#define store_doubles(to, x)   _mm512_storeu_pd(to, x)
#define fused_doubles(a, b, c) _mm512_fmadd_pd(a, b, c)

#include "ops/project_vector.h"

#include "ops/project_template.h"
