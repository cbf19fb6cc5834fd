/* SPDX-License-Identifier: BSD-3-Clause */
/* Which table of kernels is in use. What the processor has is found once, and what the process is
 * limited to can change at any time; both are single words, so threads need no lock: two that look
 * for the first time find the same. */
#include <stdatomic.h>

#include "ops/project_kernels.h"
#include "ops/quantise.h"
#include "ops/reduce.h"
#include "ops/topk.h"

#ifdef WEFT_HAVE_AVX2
#    include <cpuid.h>
#endif

static const weft__reduce_table *const tables[] = {
    [WEFT_SIMD_SCALAR] = &weft__reduce_scalar,
#ifdef WEFT_HAVE_AVX2
    [WEFT_SIMD_AVX2] = &weft__reduce_avx2,
#endif
#ifdef WEFT_HAVE_AVX512
    [WEFT_SIMD_AVX512] = &weft__reduce_avx512,
#endif
};

/* Relaxed everywhere: nothing but the values themselves is communicated. */
static atomic_int best_level = -1; /* -1: not looked for yet */
static atomic_int level_limit = WEFT_SIMD_AVX512;

/* A level needs the ones below. The builtin also asks whether the operating system keeps the wide
 * registers; it does not know F16C by name everywhere. */
static weft_simd_t detect(void)
{
#ifdef WEFT_HAVE_AVX2
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;

    if (!__builtin_cpu_supports("avx2") || !__get_cpuid(1, &eax, &ebx, &ecx, &edx) ||
        (ecx & bit_F16C) == 0 || (ecx & bit_FMA) == 0)
        return WEFT_SIMD_SCALAR;
#    ifdef WEFT_HAVE_AVX512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return WEFT_SIMD_AVX512;
#    endif
    return WEFT_SIMD_AVX2;
#else
    return WEFT_SIMD_SCALAR;
#endif
}

weft_simd_t weft_simd_level(void)
{
    int best = atomic_load_explicit(&best_level, memory_order_relaxed);
    const int limit = atomic_load_explicit(&level_limit, memory_order_relaxed);

    if (best < 0) {
        best = (int)detect();
        atomic_store_explicit(&best_level, best, memory_order_relaxed);
    }
    return (weft_simd_t)(limit < best ? limit : best);
}

weft_simd_t weft_simd_limit(weft_simd_t level)
{
    int limit = (int)level;

    if (limit < WEFT_SIMD_SCALAR)
        limit = WEFT_SIMD_SCALAR;
    if (limit > WEFT_SIMD_AVX512)
        limit = WEFT_SIMD_AVX512;
    atomic_store_explicit(&level_limit, limit, memory_order_relaxed);
    return weft_simd_level();
}

const char *weft_simd_name(weft_simd_t level)
{
    switch (level) {
    case WEFT_SIMD_SCALAR:
        return "scalar";
    case WEFT_SIMD_AVX2:
        return "avx2";
    case WEFT_SIMD_AVX512:
        return "avx512";
    }
    return NULL;
}

weft__reduce_kernel weft__reduce_kernel_find(weft_op_kind_t kind, weft_dtype_t dtype)
{
    if ((unsigned)kind >= WEFT_OP_COUNT || (unsigned)dtype >= WEFT_DTYPE_COUNT)
        return NULL;
    return (*tables[weft_simd_level()])[kind][dtype];
}

static const weft__topk_table *const topk_tables[] = {
    [WEFT_SIMD_SCALAR] = &weft__topk_scalar,
#ifdef WEFT_HAVE_AVX2
    [WEFT_SIMD_AVX2] = &weft__topk_avx2,
#endif
#ifdef WEFT_HAVE_AVX512
    [WEFT_SIMD_AVX512] = &weft__topk_avx512,
#endif
};

const struct weft__topk_kernels *weft__topk_kernels_find(weft_dtype_t dtype)
{
    const weft__topk_table *table = topk_tables[weft_simd_level()];

    switch (dtype) {
    case WEFT_F16:
    case WEFT_BF16:
        return &(*table)[0];
    case WEFT_F32:
        return &(*table)[1];
    case WEFT_F64:
        return &(*table)[2];
    default:
        return NULL;
    }
}

static const struct weft__quantise_kernels *const quantise_tables[] = {
    [WEFT_SIMD_SCALAR] = &weft__quantise_scalar,
#ifdef WEFT_HAVE_AVX2
    [WEFT_SIMD_AVX2] = &weft__quantise_avx2,
#endif
#ifdef WEFT_HAVE_AVX512
    [WEFT_SIMD_AVX512] = &weft__quantise_avx512,
#endif
};

const struct weft__quantise_kernels *weft__quantise_kernels_find(void)
{
    return quantise_tables[weft_simd_level()];
}

const struct weft__project_kernels *weft__project_kernels_find(void)
{
    static const struct weft__project_kernels *const levels[] = {
        [WEFT_SIMD_SCALAR] = &weft__project_scalar,
#ifdef WEFT_HAVE_AVX2
        [WEFT_SIMD_AVX2] = &weft__project_avx2,
#endif
#ifdef WEFT_HAVE_AVX512
        [WEFT_SIMD_AVX512] = &weft__project_avx512,
#endif
    };

    return levels[weft_simd_level()];
}
