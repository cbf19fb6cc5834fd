/* SPDX-License-Identifier: BSD-3-Clause */
/* AVX2 and FMA: 16 registers, of which a tile's sums take 12 at most. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define WEFT__PROJECT_TABLE weft__project_avx2
#define VECTOR              __m256
#define DOUBLES             __m256d
#define MASK                __m256i
enum { WIDTH = 8, ROWS = 4, MOST_VECTORS = 8, NARROW_MOST = 4 };

/* By the number of rows; by the number of components. */
static const size_t most_vectors[] = {0, 8, 5, 4, 3};
static const size_t narrow_rows[] = {0, 4, 3, 2, 1, 1, 1, 1};

/* clang-format off */
#define TILES(X) \
    X(1, 1) X(1, 2) X(1, 3) X(1, 4) X(1, 5) X(1, 6) X(1, 7) X(1, 8) \
    X(2, 1) X(2, 2) X(2, 3) X(2, 4) X(2, 5) \
    X(3, 1) X(3, 2) X(3, 3) X(3, 4) \
    X(4, 1) X(4, 2) X(4, 3)
/* clang-format on */

/* clang-format off */
#define LANES_TILES(X) \
    X(1, 1) X(2, 1) X(3, 1) X(4, 1) \
    X(1, 2) X(2, 2) X(3, 2) \
    X(1, 3) X(2, 3) \
    X(1, 4) \
    X(1, 5) \
    X(1, 6) \
    X(1, 7)
/* clang-format on */

static inline __m256i mask_of(size_t n)
{
    const __m256i ascending = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), ascending);
}

#define zero()                 _mm256_setzero_ps()
#define load(from)             _mm256_loadu_ps(from)
#define store(to, x)           _mm256_storeu_ps(to, x)
#define load_masked(m, from)   _mm256_maskload_ps(from, m)
#define store_masked(m, to, x) _mm256_maskstore_ps(to, m, x)
#define spread(from)           _mm256_broadcast_ss(from)
#define fused(a, b, c)         _mm256_fmadd_ps(a, b, c)
#define fused_less(a, b, c)    _mm256_fnmadd_ps(a, b, c)
#define lower_wide(x)          _mm256_cvtps_pd(_mm256_castps256_ps128(x))
#define upper_wide(x)          _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))
#define load_wide(from)        _mm256_cvtps_pd(_mm_loadu_ps(from))
#define load_doubles(from)     _mm256_loadu_pd(from)
#define store_doubles(to, x)   _mm256_storeu_pd(to, x)
#define fused_doubles(a, b, c) _mm256_fmadd_pd(a, b, c)

#include "ops/project_vector.h"

#include "ops/project_template.h"
