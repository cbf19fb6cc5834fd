/* SPDX-License-Identifier: BSD-3-Clause */
/* CUDA's words for the host's C++ compiler, included before a kernel's first line (-include): the
 * kernels' own sources run over fibers, one a thread. What is missing here does not compile, so
 * that no kernel comes to use what has no test.
 *
 * The rules are stricter than a device's, where breaking them mostly works: all threads of a block
 * come to the same __syncthreads(), and none has left; all lanes of a mask come to the same
 * function of the warp with the same mask, are in it, and exist. */
#ifndef WEFT_TESTS_GPU_GRID_H
#define WEFT_TESTS_GPU_GRID_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

/* Memory of a block: an array of `count`, of which every thread of the block gets the same. Each is
 * an allocation of its own, so that AddressSanitizer sees its ends; it is filled with a pattern. */
#define WEFT_SHARED(type, name, count)                                                             \
    static const char name##_site = 0;                                                             \
    type *const name = static_cast<type *>(grid_shared(&name##_site, sizeof(type) * (count)))

struct grid_size {
    unsigned x, y, z;
};

struct grid_place {
    grid_size thread, block, block_size, grid_size_;
};

/* The place of the thread that runs: of each OS thread. */
extern thread_local const grid_place *grid_here;

#define threadIdx (grid_here->thread)
#define blockIdx  (grid_here->block)
#define blockDim  (grid_here->block_size)
#define gridDim   (grid_here->grid_size_)

struct alignas(8) uint2 {
    unsigned x, y;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

/* ---- what the fibers wait at ---- */

enum grid_meeting {
    GRID_BARRIER,
    GRID_BARRIER_COUNT,
    GRID_SYNC,
    GRID_FROM,
    GRID_UP,
    GRID_DOWN,
    GRID_XOR,
    GRID_BALLOT,
    GRID_MATCH,
};

/* Where the calling thread waits, with what, and for what. */
struct grid_wait {
    grid_meeting meeting;
    unsigned mask;
    uint64_t value;
    unsigned lane, width; /* of shuffles: the lane, or how far away it is */
    const char *file;
    int line;
};

uint64_t grid_meet(const grid_wait &wait);
void *grid_shared(const char *site, size_t bytes);
/* Another thread may run now. */
void grid_yield();

#define GRID_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(GRID_SITE)
{
    grid_meet({GRID_BARRIER, 0, 0, 0, 0, file, line});
}

inline int __syncthreads_count(int holds, GRID_SITE)
{
    return (int)grid_meet({GRID_BARRIER_COUNT, 0, holds != 0, 0, 0, file, line});
}

inline int __syncthreads_or(int holds, GRID_SITE)
{
    return grid_meet({GRID_BARRIER_COUNT, 0, holds != 0, 0, 0, file, line}) > 0;
}

inline void __syncwarp(unsigned mask = 0xffffffffu, GRID_SITE)
{
    grid_meet({GRID_SYNC, mask, 0, 0, 0, file, line});
}

inline unsigned __ballot_sync(unsigned mask, int holds, GRID_SITE)
{
    return (unsigned)grid_meet({GRID_BALLOT, mask, holds != 0, 0, 0, file, line});
}

inline int __any_sync(unsigned mask, int holds, GRID_SITE)
{
    return grid_meet({GRID_BALLOT, mask, holds != 0, 0, 0, file, line}) != 0;
}

inline int __all_sync(unsigned mask, int holds, GRID_SITE)
{
    return grid_meet({GRID_BALLOT, mask, holds != 0, 0, 0, file, line}) == mask;
}

template <class type>
inline type grid_shuffle(grid_meeting meeting, unsigned mask, type value, unsigned lane, int width,
                         const char *file, int line)
{
    static_assert(sizeof(type) == 4 || sizeof(type) == 8, "values of 32 or 64 bits are shuffled");
    uint64_t word = 0;

    memcpy(&word, &value, sizeof value);
    word = grid_meet({meeting, mask, word, lane, (unsigned)width, file, line});
    memcpy(&value, &word, sizeof value);
    return value;
}

template <class type>
inline type __shfl_sync(unsigned mask, type value, int lane, int width = 32, GRID_SITE)
{
    return grid_shuffle(GRID_FROM, mask, value, (unsigned)lane, width, file, line);
}

template <class type>
inline type __shfl_up_sync(unsigned mask, type value, unsigned by, int width = 32, GRID_SITE)
{
    return grid_shuffle(GRID_UP, mask, value, by, width, file, line);
}

template <class type>
inline type __shfl_down_sync(unsigned mask, type value, unsigned by, int width = 32, GRID_SITE)
{
    return grid_shuffle(GRID_DOWN, mask, value, by, width, file, line);
}

template <class type>
inline type __shfl_xor_sync(unsigned mask, type value, int by, int width = 32, GRID_SITE)
{
    return grid_shuffle(GRID_XOR, mask, value, (unsigned)by, width, file, line);
}

template <class type> inline unsigned __match_any_sync(unsigned mask, type value, GRID_SITE)
{
    static_assert(sizeof(type) == 4 || sizeof(type) == 8, "values of 32 or 64 bits are matched");
    uint64_t word = 0;

    memcpy(&word, &value, sizeof value);
    return (unsigned)grid_meet({GRID_MATCH, mask, word, 0, 0, file, line});
}

/* ---- atomics and fences: of one device, on the types that CUDA has them for ---- */

inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    grid_yield();
}

inline void __threadfence_block()
{
    __threadfence();
}

#define GRID_ATOMIC(name, type, expression)                                                        \
    inline type name(type *at, type value)                                                         \
    {                                                                                              \
        grid_yield();                                                                              \
        type old = __atomic_load_n(at, __ATOMIC_RELAXED);                                          \
        while (!__atomic_compare_exchange_n(at, &old, (type)(expression), false, __ATOMIC_SEQ_CST, \
                                            __ATOMIC_RELAXED)) {                                   \
        }                                                                                          \
        return old;                                                                                \
    }

#define GRID_ATOMICS(type)                                                                         \
    GRID_ATOMIC(atomicExch, type, value)                                                           \
    GRID_ATOMIC(atomicMin, type, value < old ? value : old)                                        \
    GRID_ATOMIC(atomicMax, type, value > old ? value : old)                                        \
    GRID_ATOMIC(atomicAnd, type, old &value)                                                       \
    GRID_ATOMIC(atomicOr, type, old | value)                                                       \
    GRID_ATOMIC(atomicXor, type, old ^ value)                                                      \
    inline type atomicCAS(type *at, type expected, type value)                                     \
    {                                                                                              \
        grid_yield();                                                                              \
        __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST,                 \
                                    __ATOMIC_RELAXED);                                             \
        return expected;                                                                           \
    }

GRID_ATOMICS(int)
GRID_ATOMICS(unsigned)
GRID_ATOMICS(unsigned long long)
GRID_ATOMIC(atomicAdd, int, (unsigned)old + (unsigned)value)
GRID_ATOMIC(atomicAdd, unsigned, old + value)
GRID_ATOMIC(atomicAdd, unsigned long long, old + value)
GRID_ATOMIC(atomicSub, int, (unsigned)old - (unsigned)value)
GRID_ATOMIC(atomicSub, unsigned, old - value)

/* ---- bits ---- */

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}

inline int __clzll(long long x)
{
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}

inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}

template <class to, class from> inline to grid_bits(from value)
{
    to result;

    static_assert(sizeof(to) == sizeof(from), "bits are as many");
    memcpy(&result, &value, sizeof result);
    return result;
}

inline unsigned __float_as_uint(float x)
{
    return grid_bits<unsigned>(x);
}

inline float __uint_as_float(unsigned x)
{
    return grid_bits<float>(x);
}

inline long long __double_as_longlong(double x)
{
    return grid_bits<long long>(x);
}

inline double __longlong_as_double(long long x)
{
    return grid_bits<double>(x);
}

inline double __dsqrt_rn(double x)
{
    return sqrt(x);
}

template <class type> inline type __ldg(const type *at)
{
    return *at;
}

template <class type> inline type __ldcg(const type *at)
{
    return *at;
}

#endif
