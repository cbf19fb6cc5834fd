/* SPDX-License-Identifier: BSD-3-Clause */
/* The top-k kernels of one SIMD level: topk_width.h for each width of keys. A level's file defines
 * WEFT__TOPK_TABLE, the name of the table to fill, and may bring its own hits_N (then it defines
 * WEFT__TOPK_HITS) and push_N, move_N (WEFT__TOPK_COMPRESS). */
#include <math.h>

#include "ops/topk.h"

#if defined(__GNUC__)
#    define WEFT__LOWEST_BIT(mask) __builtin_ctzll(mask)
#    define WEFT__ONES(mask)       __builtin_popcountll(mask)
#    define WEFT__PREFETCH(where)  __builtin_prefetch((const void *)(where))
#else
#    define WEFT__PREFETCH(where) ((void)(where))
static inline int WEFT__ONES(uint64_t mask)
{
    int ones = 0;

    for (; mask != 0; mask &= mask - 1)
        ones++;
    return ones;
}

static inline int WEFT__LOWEST_BIT(uint64_t mask)
{
    int bit = 0;

    for (; (mask & 1) == 0; mask >>= 1)
        bit++;
    return bit;
}
#endif

/* How far ahead of a scan memory is asked for, in bytes: past what the hardware does by itself,
 * which stops at the end of each page. */
#define WEFT__TOPK_AHEAD 16384

static inline void prefetch_block(const void *from, size_t size)
{
    for (size_t line = 0; line < WEFT__TOPK_BLOCK * size; line += 64)
        WEFT__PREFETCH((uintptr_t)from + WEFT__TOPK_AHEAD + line);
}

#if defined(__GNUC__)
typedef float __attribute__((__may_alias__, __aligned__(1))) weft__number_32;
typedef double __attribute__((__may_alias__, __aligned__(1))) weft__number_64;
#else
typedef float weft__number_32;
typedef double weft__number_64;
#endif

/* The residual may not overlap what is added to it. */
#if defined(__clang__)
#    define WEFT__INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#    define WEFT__INDEPENDENT _Pragma("GCC ivdep")
#else
#    define WEFT__INDEPENDENT
#endif

/* With hits in more of 64 blocks, some have several. */
#define WEFT__TOPK_FEW 16

#define WEFT__TOP_BIT (UINT64_C(1) << 63)

/* Bins of a histogram. */
#define WEFT__TOPK_BINS_LOG2 10
#define WEFT__TOPK_BINS      (1 << WEFT__TOPK_BINS_LOG2)

#define WEFT__WIDTH 16
#include "ops/topk_width.h"
#undef WEFT__WIDTH
#define WEFT__WIDTH 32
#include "ops/topk_width.h"
#undef WEFT__WIDTH
#define WEFT__WIDTH 64
#include "ops/topk_width.h"
#undef WEFT__WIDTH

#define KERNELS(width, add)                                                                        \
    {                                                                                              \
        scan_##width, add, filter_##width, split_##width, count_##width, kth_##width               \
    }

const weft__topk_table WEFT__TOPK_TABLE = {KERNELS(16, NULL), KERNELS(32, add_scan_32),
                                           KERNELS(64, add_scan_64)};
