/* SPDX-License-Identifier: BSD-3-Clause */
/* The loops that the compiler makes wide, once for each width. */
#include "tools/bench/plain.h"

#include <string.h>
#include <weft/weft.h>

#if defined(__x86_64__) && defined(__GNUC__)
#    define WIDE(features) __attribute__((noinline, target(features)))
#else
#    define WIDE(features)
#endif

#define PLAIN_LOOPS(name, features)                                                                \
    WIDE(features) static uint64_t read_##name(const float *values, size_t n)                      \
    {                                                                                              \
        uint64_t seen = 0;                                                                         \
        uint64_t word;                                                                             \
                                                                                                   \
        for (size_t i = 0; i < n / 2; i++) {                                                       \
            memcpy(&word, values + 2 * i, sizeof(word));                                           \
            seen |= word;                                                                          \
        }                                                                                          \
        return seen;                                                                               \
    }                                                                                              \
                                                                                                   \
    WIDE(features)                                                                                 \
    static void add_##name(float *restrict sums, const float *restrict values, size_t n)           \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            sums[i] += values[i];                                                                  \
    }                                                                                              \
                                                                                                   \
    WIDE(features) static void shift_##name(float *values, float by, size_t n)                     \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            values[i] += by;                                                                       \
    }                                                                                              \
                                                                                                   \
    WIDE(features) static void fill_##name(float *values, float to, size_t n)                      \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            values[i] = to;                                                                        \
    }

#if defined(__x86_64__) && defined(__GNUC__)
PLAIN_LOOPS(512, "avx512f,avx512vl,avx512bw,avx512dq")
PLAIN_LOOPS(256, "avx2")
PLAIN_LOOPS(128, "sse2")

/* The loop of the level in use. */
#    define AT_LEVEL(loop)                                                                         \
        (weft_simd_level() == WEFT_SIMD_AVX512 ? loop##_512                                        \
         : weft_simd_level() == WEFT_SIMD_AVX2 ? loop##_256                                        \
                                               : loop##_128)
#else
PLAIN_LOOPS(plain, "")
#    define AT_LEVEL(loop) loop##_plain
#endif

uint64_t bench_plain_read(const float *values, size_t n)
{
    return AT_LEVEL(read)(values, n);
}

void bench_plain_add(float *sums, const float *values, size_t n)
{
    AT_LEVEL(add)(sums, values, n);
}

void bench_plain_shift(float *values, float by, size_t n)
{
    AT_LEVEL(shift)(values, by, n);
}

void bench_plain_fill(float *values, float to, size_t n)
{
    AT_LEVEL(fill)(values, to, n);
}
