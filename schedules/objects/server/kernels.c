/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A merge goes through the model in pieces that stay in the L1 cache, and through all workers'
 * rooms for each piece: every room is read once, parameters and velocity are read and written once.
 *
 *     rooms      [ piece ]------------------
 *                [ piece ]------------------     sum -> / workers -> update
 *     velocity   [ piece ]------------------
 *     parameters [ piece ]------------------
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "schedules/objects/server/kernels.h"

/* Products and sums are rounded each, also where the processor could fuse them. GCC leaves them
 * alone in ISO C, and does not know the pragma. */
#ifdef __clang__
#    pragma STDC FP_CONTRACT OFF
#endif

enum {
    LANES = 8,   /* of weigh() */
    TOGETHER = 4 /* rooms that are read at a time */
};

typedef void sum_fn(void *to, const void *sum, const void *const *rooms, const double *weights,
                    size_t count);

struct prediction {
    void *to;
    const void *base, *gradient, *last, *average;
    double rate, momentum, beta;
};

struct loops {
    size_t size;
    void (*scale)(void *to, const void *from, double weight, size_t count);
    void (*divide)(void *to, const void *from, size_t divisor, size_t count);
    /* Of 1 to TOGETHER rooms; add: sum and them. */
    sum_fn *sum[TOGETHER], *add[TOGETHER];
    void (*descend)(void *x, const void *gradient, double rate, size_t count);
    void (*descend_velocity)(void *x, void *v, const void *gradient, double rate, double momentum,
                             size_t count);
    void (*push)(const struct weft__server_update *update, void *x, void *v, void *room,
                 size_t count, int answers);
    void (*push_velocity)(const struct weft__server_update *update, void *x, void *v, void *room,
                          size_t count, int answers);
    void (*mix)(const struct weft__server_update *update, void *x, void *v, void *room,
                size_t count, int answers);
    double (*weigh)(const void *gradient, const void *x, size_t count);
    void (*own_update)(double rate, double momentum, void *v, const void *gradient, void *update,
                       size_t count);
    void (*change)(void *base, const void *fresh, void *last, void *average, double beta,
                   size_t count);
    void (*predict[4])(const struct prediction *p, size_t count); /* last: 1, average: 2 */
};

#define T float
#define LEVEL
#define NAME(word) word##_f32
#include "schedules/objects/server/kernels_template.h"
#undef NAME
#undef T
#define T          double
#define NAME(word) word##_f64
#include "schedules/objects/server/kernels_template.h"
#undef NAME
#undef T
#undef LEVEL

#ifdef __x86_64__
/* AVX2 does not bring fused multiply-add with it. AVX-512 would, and memory is no faster for it. */
#    define LEVEL      __attribute__((target("avx2")))
#    define T          float
#    define NAME(word) word##_f32_wide
#    include "schedules/objects/server/kernels_template.h"
#    undef NAME
#    undef T
#    define T          double
#    define NAME(word) word##_f64_wide
#    include "schedules/objects/server/kernels_template.h"
#    undef NAME
#    undef T
#    undef LEVEL
#else
#    define table_f32_wide table_f32
#    define table_f64_wide table_f64
#endif

static const struct loops *loops_of(weft_dtype_t dtype)
{
    int wide = weft_simd_level() >= WEFT_SIMD_AVX2;
    if (dtype == WEFT_F64)
        return wide ? &table_f64_wide : &table_f64;
    assert(dtype == WEFT_F32);
    return wide ? &table_f32_wide : &table_f32;
}

/* A weight of 1 in the datatype. */
static int is_one(weft_dtype_t dtype, double weight)
{
    return dtype == WEFT_F64 ? weight == 1 : (float)weight == 1;
}

static const void *at(const void *data, size_t bytes)
{
    return (const char *)data + bytes;
}

/* What a piece of all rooms adds up to, in `scratch` or, of one room that counts 1, in place. Rooms
 * are read several at a time: memory is faster then, and the sum is touched less often. A product
 * with 1 changes nothing. */
static const void *sum_up(weft_dtype_t dtype, const struct loops *loops, const void *const *rooms,
                          const double *weights, size_t workers, size_t offset, size_t count,
                          void *scratch)
{
    if (workers == 1 && (!weights || is_one(dtype, weights[0])))
        return at(rooms[0], offset);
    for (size_t first = 0; first < workers; first += TOGETHER) {
        size_t some = workers - first < TOGETHER ? workers - first : TOGETHER;
        const void *these[TOGETHER] = {NULL};
        double theirs[TOGETHER] = {0};
        for (size_t i = 0; i < some; i++) {
            these[i] = at(rooms[first + i], offset);
            theirs[i] = weights ? weights[first + i] : 1;
        }
        (first ? loops->add : loops->sum)[some - 1](scratch, scratch, these, theirs, count);
    }
    return scratch;
}

/* Divided: of a power of two the reciprocal is exact, and so the product has the
 * same bits. */
static const void *average(const struct loops *loops, const void *sum, size_t divisor, size_t count,
                           void *scratch)
{
    if (divisor == 1)
        return sum;
    if (divisor & (divisor - 1))
        loops->divide(scratch, sum, divisor, count);
    else
        loops->scale(scratch, sum, 1 / (double)divisor, count);
    return scratch;
}

static void step(const struct loops *loops, const struct weft__server_update *update, void *x,
                 void *v, const void *gradient, size_t count)
{
    if (update->kind == WEFT__UPDATE_SET)
        memcpy(x, gradient, count * loops->size);
    else if (v)
        loops->descend_velocity(x, v, gradient, update->rate, update->momentum, count);
    else
        loops->descend(x, gradient, update->rate, count);
}

void weft__server_merge(weft_dtype_t dtype, const struct weft__server_update *update,
                        void *parameters, void *velocity, const void *const *rooms,
                        const double *weights, size_t workers, size_t divisor, size_t count,
                        void *mean)
{
    _Alignas(64) unsigned char piece[WEFT__MERGE_BYTES];
    const struct loops *loops = loops_of(dtype);
    size_t most = sizeof piece / loops->size;
    assert(update->kind != WEFT__UPDATE_MIX);
    for (size_t done = 0; workers && done < count; done += most) {
        size_t n = count - done < most ? count - done : most, offset = done * loops->size;
        void *to = mean ? (char *)mean + offset : (void *)piece;
        const void *sum = sum_up(dtype, loops, rooms, weights, workers, offset, n, to);
        sum = average(loops, sum, divisor, n, to);
        if (mean && sum != to)
            memcpy(to, sum, n * loops->size);
        step(loops, update, (char *)parameters + offset,
             velocity ? (char *)velocity + offset : NULL, sum, n);
    }
}

void weft__server_apply(weft_dtype_t dtype, const struct weft__server_update *update,
                        void *parameters, void *velocity, void *room, size_t count, int answers)
{
    const struct loops *loops = loops_of(dtype);
    assert(update->kind != WEFT__UPDATE_SET);
    if (update->kind == WEFT__UPDATE_MIX)
        loops->mix(update, parameters, NULL, room, count, answers);
    else if (velocity)
        loops->push_velocity(update, parameters, velocity, room, count, answers);
    else
        loops->push(update, parameters, NULL, room, count, answers);
}

double weft__server_weigh(weft_dtype_t dtype, const void *gradient, const void *parameters,
                          size_t count)
{
    return loops_of(dtype)->weigh(gradient, parameters, count);
}

void weft__server_own_update(weft_dtype_t dtype, double rate, double momentum, void *velocity,
                             const void *gradient, void *update, size_t count)
{
    loops_of(dtype)->own_update(rate, momentum, velocity, gradient, update, count);
}

void weft__server_change(weft_dtype_t dtype, void *base, const void *fresh, void *last,
                         void *average_, double beta, size_t count)
{
    loops_of(dtype)->change(base, fresh, last, average_, beta, count);
}

void weft__server_predict(weft_dtype_t dtype, void *to, const void *base, const void *gradient,
                          const void *last, const void *average_, double rate, double momentum,
                          double beta, size_t count)
{
    const struct prediction p = {to, base, gradient, last, average_, rate, momentum, beta};
    loops_of(dtype)->predict[(last != NULL) + 2 * (beta > 0)](&p, count);
}
