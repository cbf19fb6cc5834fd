/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse sums. A merge of two lists cannot predict which list the next index comes from, so nothing
 * branches on it: every step writes one pair and moves on in a, in b, or in both. */
#include "ops/sparse.h"

#include <string.h>

#include "ops/half.h"
#include "ops/topk.h"

/* Memory may begin anywhere. */
#if defined(__GNUC__)
typedef float __attribute__((__may_alias__, __aligned__(1))) mem_f32;
typedef double __attribute__((__may_alias__, __aligned__(1))) mem_f64;
#else
typedef float mem_f32;
typedef double mem_f64;
#endif
typedef weft__key_16 mem_f16;
typedef weft__key_16 mem_bf16;

/* Sums of the bits of two numbers. */
static inline uint16_t sum_f16(uint16_t x, uint16_t y)
{
    return weft__f16_narrow(weft__f16_widen(x) + weft__f16_widen(y));
}

static inline uint16_t sum_bf16(uint16_t x, uint16_t y)
{
    return weft__bf16_narrow(weft__bf16_widen(x) + weft__bf16_widen(y));
}

static inline uint32_t sum_f32(uint32_t x, uint32_t y)
{
    return weft__bits_of(weft__float_of(x) + weft__float_of(y));
}

static inline uint64_t sum_f64(uint64_t x, uint64_t y)
{
    double p;
    double q;

    memcpy(&p, &x, sizeof p);
    memcpy(&q, &y, sizeof q);
    p += q;
    memcpy(&x, &p, sizeof x);
    return x;
}

/* One kernel for each format and width of indices. */
#define EVERY(KERNEL)                                                                              \
    KERNEL(f16, 32)                                                                                \
    KERNEL(bf16, 32)                                                                               \
    KERNEL(f32, 32)                                                                                \
    KERNEL(f64, 32)                                                                                \
    KERNEL(f16, 64)                                                                                \
    KERNEL(bf16, 64)                                                                               \
    KERNEL(f32, 64)                                                                                \
    KERNEL(f64, 64)

#define TABLE(name)                                                                                \
    {                                                                                              \
        {name##_f16_32, name##_bf16_32, name##_f32_32, name##_f64_32},                             \
        {                                                                                          \
            name##_f16_64, name##_bf16_64, name##_f32_64, name##_f64_64                            \
        }                                                                                          \
    }

static int row_of(weft_dtype_t dtype)
{
    return dtype == WEFT_F16 ? 0 : dtype == WEFT_BF16 ? 1 : dtype == WEFT_F32 ? 2 : 3;
}

/* ---- indices ---- */

size_t weft__sparse_disorder(const void *indices, int wide, size_t count)
{
    const weft__key_32 *narrow = indices;
    const weft__key_64 *index = indices;
    int wrong = 0;

    for (size_t i = 1; i < count; i++) /* vectors, without a way out in between */
        wrong |= wide ? index[i - 1] >= index[i] : narrow[i - 1] >= narrow[i];
    for (size_t i = 1; wrong && i < count; i++)
        if (wide ? index[i - 1] >= index[i] : narrow[i - 1] >= narrow[i])
            return i;
    return count;
}

uint64_t weft__sparse_largest(const void *indices, int wide, size_t count)
{
    const weft__key_32 *narrow = indices;
    const weft__key_64 *index = indices;
    uint64_t most = 0;
    uint32_t narrow_most = 0;

    if (wide) {
        for (size_t i = 0; i < count; i++)
            most = index[i] > most ? index[i] : most;
        return most;
    }
    for (size_t i = 0; i < count; i++)
        narrow_most = narrow[i] > narrow_most ? narrow[i] : narrow_most;
    return narrow_most;
}

/* ---- the sum of two lists ----
 *
 * A step waits for the one before: it says which index comes next. So two halves, which know
 * nothing of each other, take turns: indices before and from the middle one of a. The second is
 * written to where it would come if no index were in both lists, and moved up in the end. */

/* What is left of two lists, [i, i_end) of a and [j, j_end) of b, and where their sum goes. */
struct half {
    size_t i, i_end, j, j_end, n;
};

/* Selecting by masks, not by branches that nobody could predict. */
#define CHOOSE(type, condition, x, y) ((type)((y) ^ (((x) ^ (y)) & (type) - (type)(condition))))

#define STEP(format, bits, width, h)                                                               \
    do {                                                                                           \
        const uint##width##_t p = a_index[(h).i], q = b_index[(h).j];                              \
        const uint##bits##_t x = a_value[(h).i], y = b_value[(h).j];                               \
        const size_t from_a = p <= q, from_b = q <= p;                                             \
        const uint##bits##_t one = CHOOSE(uint##bits##_t, from_a, x, y);                           \
                                                                                                   \
        index[(h).n] = CHOOSE(uint##width##_t, from_a, p, q);                                      \
        value[(h).n] = CHOOSE(uint##bits##_t, from_a & from_b, sum_##format(x, y), one);           \
        (h).n++;                                                                                   \
        (h).i += from_a;                                                                           \
        (h).j += from_b;                                                                           \
    } while (0)

#define HAS_BOTH(h) ((h).i < (h).i_end && (h).j < (h).j_end)

/* What is left of one list when the other has ended. */
#define REST(h)                                                                                    \
    for (; (h).i < (h).i_end; (h).i++, (h).n++) {                                                  \
        index[(h).n] = a_index[(h).i];                                                             \
        value[(h).n] = a_value[(h).i];                                                             \
    }                                                                                              \
    for (; (h).j < (h).j_end; (h).j++, (h).n++) {                                                  \
        index[(h).n] = b_index[(h).j];                                                             \
        value[(h).n] = b_value[(h).j];                                                             \
    }

typedef size_t (*add_kernel)(const struct weft__pairs *a, const struct weft__pairs *b,
                             struct weft__pairs *sum, size_t a_middle, size_t b_middle);

#define ADD_KERNEL(format, bits, width)                                                            \
    static size_t add_##format##_##width(const struct weft__pairs *a, const struct weft__pairs *b, \
                                         struct weft__pairs *sum, size_t a_middle,                 \
                                         size_t b_middle)                                          \
    {                                                                                              \
        const weft__key_##width *a_index = a->indices, *b_index = b->indices;                      \
        const weft__key_##bits *a_value = a->values, *b_value = b->values;                         \
        weft__key_##width *index = sum->indices;                                                   \
        weft__key_##bits *value = sum->values;                                                     \
        const size_t second = a_middle + b_middle;                                                 \
        struct half low = {0, a_middle, 0, b_middle, 0};                                           \
        struct half high = {a_middle, a->count, b_middle, b->count, second};                       \
                                                                                                   \
        while (HAS_BOTH(low) && HAS_BOTH(high)) {                                                  \
            STEP(format, bits, width, low);                                                        \
            STEP(format, bits, width, high);                                                       \
        }                                                                                          \
        while (HAS_BOTH(low))                                                                      \
            STEP(format, bits, width, low);                                                        \
        while (HAS_BOTH(high))                                                                     \
            STEP(format, bits, width, high);                                                       \
        REST(low)                                                                                  \
        REST(high)                                                                                 \
        memmove(index + low.n, index + second, (high.n - second) * sizeof(*index));                \
        memmove(value + low.n, value + second, (high.n - second) * sizeof(*value));                \
        return low.n + high.n - second;                                                            \
    }

#define ADD(format, width)             ADD_KERNEL_##format(format, width)
#define ADD_KERNEL_f16(format, width)  ADD_KERNEL(format, 16, width)
#define ADD_KERNEL_bf16(format, width) ADD_KERNEL(format, 16, width)
#define ADD_KERNEL_f32(format, width)  ADD_KERNEL(format, 32, width)
#define ADD_KERNEL_f64(format, width)  ADD_KERNEL(format, 64, width)

EVERY(ADD)

static uint64_t index_at(const void *indices, int wide, size_t i)
{
    return wide ? ((const weft__key_64 *)indices)[i] : ((const weft__key_32 *)indices)[i];
}

size_t weft__sparse_lower_bound(const struct weft__pairs *pairs, int wide, uint64_t index)
{
    size_t low = 0;
    size_t high = pairs->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (index_at(pairs->indices, wide, middle) < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void weft__sparse_add(const struct weft__pairs *a, const struct weft__pairs *b, int wide,
                      weft_dtype_t dtype, struct weft__pairs *sum)
{
    static const add_kernel kernels[2][4] = TABLE(add);
    const size_t middle = a->count / 2;
    const size_t other =
        middle > 0 ? weft__sparse_lower_bound(b, wide, index_at(a->indices, wide, middle)) : 0;

    sum->count = kernels[wide != 0][row_of(dtype)](a, b, sum, middle, other);
}

static size_t total_of(const struct weft__pairs *lists, size_t count)
{
    size_t pairs = 0;

    for (size_t i = 0; i < count; i++)
        pairs += lists[i].count;
    return pairs;
}

static struct weft__pairs behind(const struct weft__pairs *pairs, size_t count, int wide,
                                 weft_dtype_t dtype)
{
    return (struct weft__pairs){(char *)pairs->indices + count * (wide ? 8 : 4),
                                (char *)pairs->values + count * weft__sparse_value_size(dtype), 0};
}

/* Halves of the lists are summed to `spare`, each with its part of `sum` to work in, and then added
 * to `sum`: so two buffers do, however many lists there are. A list alone stays where it is. */
static struct weft__pairs sum_of(const struct weft__pairs *lists, size_t count, int wide,
                                 weft_dtype_t dtype, struct weft__pairs sum,
                                 struct weft__pairs spare)
{
    const size_t half = count - count / 2, middle = count > 1 ? total_of(lists, half) : 0;
    struct weft__pairs left, right;

    if (count == 1)
        return lists[0];
    left = sum_of(lists, half, wide, dtype, spare, sum);
    right = sum_of(lists + half, count - half, wide, dtype, behind(&spare, middle, wide, dtype),
                   behind(&sum, middle, wide, dtype));
    weft__sparse_add(&left, &right, wide, dtype, &sum);
    return sum;
}

void weft__sparse_sum(const struct weft__pairs *lists, size_t count, int wide, weft_dtype_t dtype,
                      struct weft__pairs *sum, const struct weft__pairs *spare)
{
    if (count > 1)
        sum->count = sum_of(lists, count, wide, dtype, *sum, *spare).count;
    else
        weft__sparse_copy(sum, 0, lists, 0, count == 1 ? lists->count : 0, wide, dtype);
    if (count <= 1)
        sum->count = count == 1 ? lists->count : 0;
}

void weft__sparse_copy(const struct weft__pairs *to, size_t at, const struct weft__pairs *from,
                       size_t first, size_t count, int wide, weft_dtype_t dtype)
{
    const size_t index = wide ? 8 : 4, value = weft__sparse_value_size(dtype);

    if (count == 0) /* there need not be memory */
        return;
    memcpy((char *)to->indices + at * index, (const char *)from->indices + first * index,
           count * index);
    memcpy((char *)to->values + at * value, (const char *)from->values + first * value,
           count * value);
}

/* Whether all of b lies before place `at` of a, and behind the one before; b has pairs. */
static int fits_at(const struct weft__pairs *a, const struct weft__pairs *b, size_t at, int wide)
{
    return at == a->count ||
           index_at(b->indices, wide, b->count - 1) < index_at(a->indices, wide, at);
}

size_t weft__sparse_join(const struct weft__pairs *a, const struct weft__pairs *b, int wide,
                         weft_dtype_t dtype, struct weft__pairs *to)
{
    for (int turn = 0; turn < 2; turn++) {
        const struct weft__pairs *outer = turn ? b : a, *inner = turn ? a : b;
        size_t at = inner->count > 0
                        ? weft__sparse_lower_bound(outer, wide, index_at(inner->indices, wide, 0))
                        : outer->count;

        if (inner->count > 0 && !fits_at(outer, inner, at, wide))
            continue;
        weft__sparse_copy(to, 0, outer, 0, at, wide, dtype);
        weft__sparse_copy(to, at, inner, 0, inner->count, wide, dtype);
        weft__sparse_copy(to, at + inner->count, outer, at, outer->count - at, wide, dtype);
        to->count = a->count + b->count;
        return to->count;
    }
    weft__sparse_add(a, b, wide, dtype, to);
    return to->count;
}

/* ---- what stays and what is dropped ---- */

typedef void (*split_kernel)(struct weft__pairs *pairs, uint64_t key, size_t ties,
                             struct weft__pairs *rest);

#define SPLIT(bits, width)                                                                         \
    static void split_##bits##_##width(struct weft__pairs *pairs, uint64_t key, size_t ties,       \
                                       struct weft__pairs *rest)                                   \
    {                                                                                              \
        const uint##bits##_t magnitude =                                                           \
            (uint##bits##_t)((uint##bits##_t) ~(uint##bits##_t)0 >> 1);                            \
        weft__key_##width *index = pairs->indices, *rest_index = rest->indices;                    \
        weft__key_##bits *value = pairs->values, *rest_value = rest->values;                       \
        size_t kept = 0, left = 0;                                                                 \
                                                                                                   \
        for (size_t i = 0; i < pairs->count; i++) {                                                \
            const uint##width##_t at = index[i];                                                   \
            const uint##bits##_t x = value[i];                                                     \
            const uint##bits##_t magnitude_x = x & magnitude;                                      \
            const size_t tie = (magnitude_x == key) & (ties > 0);                                  \
            const size_t stays = (magnitude_x > key) | tie;                                        \
                                                                                                   \
            index[kept] = rest_index[left] = at;                                                   \
            value[kept] = rest_value[left] = x;                                                    \
            kept += stays;                                                                         \
            left += !stays;                                                                        \
            ties -= tie;                                                                           \
        }                                                                                          \
        pairs->count = kept;                                                                       \
        rest->count = left;                                                                        \
    }

SPLIT(16, 32)
SPLIT(32, 32)
SPLIT(64, 32)
SPLIT(16, 64)
SPLIT(32, 64)
SPLIT(64, 64)

void weft__sparse_split(struct weft__pairs *pairs, int wide, weft_dtype_t dtype, uint64_t key,
                        size_t ties, struct weft__pairs *rest)
{
    static const split_kernel kernels[2][4] = {
        {split_16_32, split_16_32, split_32_32, split_64_32},
        {split_16_64, split_16_64, split_32_64, split_64_64}};

    const struct weft__topk_kernels *vectors = weft__topk_kernels_find(dtype);

    if (!wide && key <= weft__topk_infinity(dtype) &&
        vectors->count(pairs->values, pairs->count, key) -
                vectors->count(pairs->values, pairs->count, key + 1) ==
            ties) { /* all entries equal to the key stay */
        const size_t kept = vectors->split(pairs->values, pairs->indices, pairs->count, key,
                                           rest->values, rest->indices);

        rest->count = pairs->count - kept;
        pairs->count = kept;
        return;
    }
    kernels[wide != 0][row_of(dtype)](pairs, key, ties, rest);
}

size_t weft__sparse_clear_nans(void *values, weft_dtype_t dtype, size_t count)
{
    const uint64_t infinity = weft__topk_infinity(dtype);
    const struct weft__topk_kernels *kernels = weft__topk_kernels_find(dtype);
    const size_t size = weft__sparse_value_size(dtype);
    const size_t nans = kernels->count(values, count, infinity + 1);

    for (size_t i = 0; nans > 0 && i < count; i++)
        if (kernels->count((char *)values + i * size, 1, infinity + 1) > 0)
            memset((char *)values + i * size, 0, size);
    return nans;
}

/* ---- to a dense vector ---- */

typedef void (*scatter_kernel)(const struct weft__pairs *pairs, double scale, void *dense);

#define SCALED_f32(x, y, scale) ((x) + (float)(scale) * (y))
#define SCALED_f64(x, y, scale) ((x) + (scale) * (y))
#define SCALED_f16(x, y, scale)                                                                    \
    weft__f16_narrow(weft__f16_widen(x) + (float)(scale)*weft__f16_widen(y))
#define SCALED_bf16(x, y, scale)                                                                   \
    weft__bf16_narrow(weft__bf16_widen(x) + (float)(scale)*weft__bf16_widen(y))

#define SCATTER(format, width)                                                                     \
    static void scatter_##format##_##width(const struct weft__pairs *pairs, double scale,          \
                                           void *dense)                                            \
    {                                                                                              \
        const weft__key_##width *index = pairs->indices;                                           \
        const mem_##format *value = pairs->values;                                                 \
        mem_##format *to = dense;                                                                  \
                                                                                                   \
        for (size_t i = 0; i < pairs->count; i++)                                                  \
            to[index[i]] = SCALED_##format(to[index[i]], value[i], scale);                         \
    }

EVERY(SCATTER)

void weft__sparse_scatter(const struct weft__pairs *pairs, int wide, weft_dtype_t dtype,
                          double scale, void *dense)
{
    static const scatter_kernel kernels[2][4] = TABLE(scatter);

    kernels[wide != 0][row_of(dtype)](pairs, scale, dense);
}

void weft__sparse_put_back(const struct weft__pairs *own, const struct weft__pairs *kept, int wide,
                           weft_dtype_t dtype, void *dense)
{
    const size_t index_size = wide ? sizeof(uint64_t) : sizeof(uint32_t);
    const size_t size = weft__sparse_value_size(dtype);
    size_t j = 0;

    for (size_t i = 0; i < own->count; i++) {
        const uint64_t at = index_at(own->indices, wide, i);

        while (j < kept->count && index_at(kept->indices, wide, j) < at)
            j++;
        if (j < kept->count && index_at(kept->indices, wide, j) == at)
            continue;
        const struct weft__pairs one = {(char *)own->indices + i * index_size,
                                        (char *)own->values + i * size, 1};
        weft__sparse_scatter(&one, wide, dtype, 1, dense);
    }
}
