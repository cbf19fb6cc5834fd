/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's arithmetic against plain loops, bit by bit, at every SIMD level. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedules/objects/server/kernels.h"
#include "tests/support/draw.h"
#include "tests/support/sweep.h"

enum { MOST = 5000, MOST_WORKERS = 9, GUARD = 3 };

/* Around vectors, and around the pieces of a merge (2,048 of f32, 1,024 of f64). */
static const size_t counts[] = {0,    1,    2,    3,    7,    8,    9,    15,
                                17,   31,   64,   1000, 1023, 1024, 1025, 2047,
                                2048, 2049, 3072, 4095, 4096, 4097, MOST};
enum { COUNTS = sizeof counts / sizeof *counts };

static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F64};

/* Every element on its own, each result rounded to the datatype: f32 in a volatile. */
static double rounded(weft_dtype_t dtype, double value)
{
    volatile float narrow = (float)value;
    volatile double wide = value;
    return dtype == WEFT_F64 ? wide : narrow;
}

/* f32 operations in double, rounded once more, are exact: double has more than twice the bits. */
#define R(value) rounded(dtype, (value))

static double get(weft_dtype_t dtype, const void *data, size_t i)
{
    return dtype == WEFT_F64 ? ((const double *)data)[i] : ((const float *)data)[i];
}

static void put(weft_dtype_t dtype, void *data, size_t i, double value)
{
    if (dtype == WEFT_F64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

/* Numbers of all sizes; few that are special. */
static void fill(struct draw *draw, weft_dtype_t dtype, double *data, int odd)
{
    for (size_t i = 0; i < MOST + GUARD; i++) {
        double value = ldexp(draw_real(draw) * 2 - 1, (int)draw_below(draw, 20) - 10);
        if (odd)
            switch (draw_below(draw, 40)) {
            case 0:
                value = 0;
                break;
            case 1:
                value = -0.0;
                break;
            case 2:
                value = INFINITY;
                break;
            case 3:
                value = dtype == WEFT_F64 ? 0x1p-1070 : 0x1p-147;
                break;
            case 4:
                value = dtype == WEFT_F64 ? 1.7e308 : 3e38;
                break;
            case 5:
                value = NAN;
                break;
            default:
                break;
            }
        put(dtype, data, i, value);
    }
}

/* The same bits, but for which NaN it is. */
static void same(weft_dtype_t dtype, const double *got, const double *expected, const char *what,
                 uint64_t seed, size_t count)
{
    for (size_t i = 0; i < MOST + GUARD; i++) {
        double a = get(dtype, got, i), b = get(dtype, expected, i);
        if (memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)))
            continue;
        cr_assert_fail("seed %lu, %s, %s, %zu elements: %s[%zu] is %a, expected %a", seed,
                       weft_dtype_name(dtype), weft_simd_name(weft_simd_level()), count, what, i, a,
                       b);
    }
}

/* Buffers as a kernel leaves them, and as a plain loop does. */
struct job {
    weft_dtype_t dtype;
    size_t count;
    struct weft__server_update update;
    double x[MOST + GUARD], v[MOST + GUARD], mean[MOST + GUARD];
    double rooms[MOST_WORKERS][MOST + GUARD];
    double weights[MOST_WORKERS];
    size_t workers, divisor;
};

static struct job now, plain;

static void draw_job(uint64_t seed, struct draw *draw)
{
    draw->state = seed;
    now.dtype = dtypes[seed % 2];
    now.count = counts[seed / 2 % COUNTS];
    now.update.rate = draw_real(draw);
    now.update.momentum = draw_real(draw);
    now.update.share = draw_below(draw, 3) ? draw_real(draw) : 1;
    now.workers = 1 + draw_below(draw, MOST_WORKERS);
    now.divisor = now.workers + draw_below(draw, 3);
    int odd = draw_below(draw, 3) == 0;
    fill(draw, now.dtype, now.x, odd);
    fill(draw, now.dtype, now.v, odd);
    fill(draw, now.dtype, now.mean, 0);
    for (size_t w = 0; w < MOST_WORKERS; w++) {
        fill(draw, now.dtype, now.rooms[w], odd);
        now.weights[w] = draw_below(draw, 2) ? 1 : draw_real(draw) * 3;
    }
    plain = now;
}

/* At all levels that there are, from the same start. */
#define EACH_LEVEL(...)                                                                            \
    do {                                                                                           \
        static struct job start_;                                                                  \
        start_ = now;                                                                              \
        for (int level_ = WEFT_SIMD_SCALAR; level_ <= WEFT_SIMD_AVX512; level_++) {                \
            now = start_;                                                                          \
            weft_simd_limit((weft_simd_t)level_);                                                  \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    } while (0)

/* ---- merges ---- */

enum { WEIGHTS = 1, VELOCITY = 2, MEAN = 4, IN_PLACE = 8, SET = 16, WAYS = 32 };

static void merge_plainly(struct job *job, unsigned way)
{
    weft_dtype_t dtype = job->dtype;
    const double rate = R(job->update.rate), momentum = R(job->update.momentum);
    double *mean = way & IN_PLACE ? job->rooms[0] : job->mean;
    for (size_t i = 0; i < job->count && job->workers; i++) {
        double sum = 0, x = get(dtype, job->x, i);
        for (size_t w = 0; w < job->workers; w++) {
            double weight = way & WEIGHTS ? R(job->weights[w]) : 1;
            double part = R(weight * get(dtype, job->rooms[w], i));
            sum = w ? R(sum + part) : part;
        }
        sum = R(sum / (double)job->divisor);
        if (way & MEAN)
            put(dtype, mean, i, sum);
        if (!(way & SET) && way & VELOCITY) {
            sum = R(R(momentum * get(dtype, job->v, i)) + sum);
            put(dtype, job->v, i, sum);
        }
        put(dtype, job->x, i, way & SET ? sum : R(x - R(rate * sum)));
    }
}

static void merge(struct job *job, unsigned way)
{
    const void *rooms[MOST_WORKERS];
    for (size_t w = 0; w < MOST_WORKERS; w++)
        rooms[w] = job->rooms[w];
    job->update.kind = way & SET ? WEFT__UPDATE_SET : WEFT__UPDATE_SGD;
    weft__server_merge(job->dtype, &job->update, job->x, way & VELOCITY ? job->v : NULL, rooms,
                       way & WEIGHTS ? job->weights : NULL, job->workers, job->divisor, job->count,
                       !(way & MEAN)    ? NULL
                       : way & IN_PLACE ? (void *)job->rooms[0]
                                        : job->mean);
}

static void same_jobs(uint64_t seed)
{
    same(now.dtype, now.x, plain.x, "x", seed, now.count);
    same(now.dtype, now.v, plain.v, "v", seed, now.count);
    same(now.dtype, now.mean, plain.mean, "mean", seed, now.count);
    for (size_t w = 0; w < MOST_WORKERS; w++)
        same(now.dtype, now.rooms[w], plain.rooms[w], "room", seed, now.count);
}

Test(server_kernels, merge_as_a_plain_loop)
{
    struct draw draw;
    for (uint64_t seed = 0; seed < 8 * COUNTS; seed++) {
        draw_job(seed, &draw);
        unsigned way = draw_below(&draw, WAYS);
        merge_plainly(&plain, way);
        EACH_LEVEL(merge(&now, way); same_jobs(seed););
    }
}

/* All ways and numbers of workers, of a few elements. */
Test(server_kernels, merge_in_all_ways)
{
    struct draw draw;
    for (unsigned way = 0; way < WAYS; way++)
        for (size_t workers = 0; workers <= MOST_WORKERS; workers++) {
            draw_job(2 * 17 + way % 2, &draw);
            now.workers = plain.workers = workers;
            now.divisor = plain.divisor = workers + way % 3;
            now.count = plain.count = 41;
            merge_plainly(&plain, way);
            EACH_LEVEL(merge(&now, way); same_jobs(way););
        }
}

/* A rate of -1 adds what was pushed. */
Test(server_kernels, updates_are_added)
{
    struct draw draw;
    draw_job(2 * 10 + 1, &draw);
    now.workers = now.divisor = 1;
    now.update.rate = -1;
    merge(&now, 0);
    for (size_t i = 0; i < now.count; i++)
        cr_assert_eq(now.x[i], plain.x[i] + plain.rooms[0][i]);
}

/* ---- single pushes ---- */

static void apply_plainly(struct job *job, int mixes, int velocity, int answers)
{
    weft_dtype_t dtype = job->dtype;
    const double rate = R(job->update.rate), momentum = R(job->update.momentum);
    const double share = R(job->update.share);
    for (size_t i = 0; i < job->count; i++) {
        double x = get(dtype, job->x, i), pushed = get(dtype, job->rooms[0], i);
        if (mixes) {
            x = R(x + R(share * R(pushed - x)));
        } else {
            double speed = R(share * pushed);
            if (velocity) {
                speed = R(R(momentum * get(dtype, job->v, i)) + speed);
                put(dtype, job->v, i, speed);
            }
            x = R(x - R(rate * speed));
        }
        put(dtype, job->x, i, x);
        if (answers)
            put(dtype, job->rooms[0], i, x);
    }
}

Test(server_kernels, apply_as_a_plain_loop)
{
    struct draw draw;
    for (uint64_t seed = 0; seed < SWEPT(12, 4) * COUNTS; seed++) {
        draw_job(seed, &draw);
        int mixes = draw_below(&draw, 2), velocity = draw_below(&draw, 2);
        int answers = draw_below(&draw, 2);
        now.update.kind = mixes ? WEFT__UPDATE_MIX : WEFT__UPDATE_SGD;
        apply_plainly(&plain, mixes, velocity, answers);
        EACH_LEVEL(weft__server_apply(now.dtype, &now.update, now.x, velocity ? now.v : NULL,
                                      now.rooms[0], now.count, answers);
                   same_jobs(seed););
    }
}

/* One worker's push is what a merge of that one makes. */
Test(server_kernels, a_push_of_all_is_a_merge)
{
    struct draw draw;
    for (uint64_t seed = 0; seed < 2 * COUNTS; seed++) {
        draw_job(seed, &draw);
        now.workers = plain.workers = now.divisor = plain.divisor = 1;
        now.update.share = 1;
        now.update.kind = WEFT__UPDATE_SGD;
        merge(&plain, VELOCITY);
        weft__server_apply(now.dtype, &now.update, now.x, now.v, now.rooms[0], now.count, 0);
        same_jobs(seed);
    }
}

/* ---- importance ---- */

static double weigh_plainly(const struct job *job)
{
    volatile double sums[8] = {0};
    for (size_t i = 0; i < job->count; i++) {
        volatile double part = get(job->dtype, job->rooms[0], i) * get(job->dtype, job->x, i);
        sums[i % 8] += fabs(part);
    }
    for (int half = 4; half; half /= 2)
        for (int i = 0; i < half; i++)
            sums[i] += sums[i + half];
    return sums[0];
}

Test(server_kernels, weigh_as_a_plain_loop)
{
    struct draw draw;
    for (uint64_t seed = 0; seed < SWEPT(20, 6) * COUNTS; seed++) {
        draw_job(seed, &draw);
        double expected = weigh_plainly(&plain);
        EACH_LEVEL(
            double sum = weft__server_weigh(now.dtype, now.rooms[0], now.x, now.count);
            cr_assert(memcmp(&sum, &expected, sizeof sum) == 0 || (isnan(sum) && isnan(expected)),
                      "seed %lu: %a, expected %a", seed, sum, expected);
            same_jobs(seed););
    }
}

Test(server_kernels, weigh_products)
{
    static const double gradient[] = {1, -2, 3}, x[] = {-4, 5, 0};
    static const float small[] = {0x1p-140f}, large[] = {0x1p127f, 7};
    cr_expect_eq(weft__server_weigh(WEFT_F64, gradient, x, 3), 14);
    cr_expect_eq(weft__server_weigh(WEFT_F64, gradient, x, 0), 0);
    cr_expect_eq(weft__server_weigh(WEFT_F32, large, large, 1), 0x1p254); /* in double */
    cr_expect_eq(weft__server_weigh(WEFT_F32, small, small, 1), 0x1p-280);
}

/* ---- workers ---- */

Test(server_kernels, own_update_as_a_plain_loop)
{
    struct draw draw;
    for (uint64_t seed = 0; seed < 6 * COUNTS; seed++) {
        draw_job(seed, &draw);
        weft_dtype_t dtype = now.dtype;
        int velocity = draw_below(&draw, 2), in_place = draw_below(&draw, 2);
        for (size_t i = 0; i < plain.count; i++) {
            double speed = get(dtype, plain.rooms[0], i);
            if (velocity) {
                speed = R(R(R(now.update.momentum) * get(dtype, plain.v, i)) + speed);
                put(dtype, plain.v, i, speed);
            }
            put(dtype, plain.rooms[!in_place], i, -R(R(now.update.rate) * speed));
        }
        EACH_LEVEL(weft__server_own_update(dtype, now.update.rate, now.update.momentum,
                                           velocity ? now.v : NULL, now.rooms[0],
                                           now.rooms[!in_place], now.count);
                   same_jobs(seed););
    }
}

/* Room 0: the base, 1: the gradient, 2: the last update, 3: the average. */
static void predict_plainly(struct job *job, double beta, int last, double *to)
{
    weft_dtype_t dtype = job->dtype;
    const double rate = R(job->update.rate), momentum = R(job->update.momentum);
    for (size_t i = 0; i < job->count; i++) {
        double step = R(rate * get(dtype, job->rooms[1], i));
        double p = last ? R(R(momentum * get(dtype, job->rooms[2], i)) - step) : -step;
        if (beta > 0)
            p = R(R(R(beta) * get(dtype, job->rooms[3], i)) + R(R(1 - beta) * p));
        put(dtype, to, i, R(get(dtype, job->rooms[0], i) + p));
    }
}

Test(server_kernels, predict_as_a_plain_loop)
{
    struct draw draw;
    for (uint64_t seed = 0; seed < SWEPT(12, 4) * COUNTS; seed++) {
        draw_job(seed, &draw);
        double beta = draw_below(&draw, 2) ? draw_real(&draw) : 0;
        int last = draw_below(&draw, 2), in_place = draw_below(&draw, 2);
        predict_plainly(&plain, beta, last, in_place ? plain.rooms[0] : plain.x);
        EACH_LEVEL(weft__server_predict(now.dtype, in_place ? now.rooms[0] : now.x, now.rooms[0],
                                        now.rooms[1], last ? now.rooms[2] : NULL,
                                        beta > 0 ? now.rooms[3] : NULL, now.update.rate,
                                        now.update.momentum, beta, now.count);
                   same_jobs(seed););
    }
}

/* Without momentum a prediction by the gradient that all have is the update, bit by bit. */
Test(server_kernels, predicts_what_a_server_makes)
{
    struct draw draw;
    for (uint64_t seed = 0; seed < 2 * COUNTS; seed++) {
        draw_job(seed, &draw);
        now.workers = plain.workers = now.divisor = plain.divisor = 1;
        merge(&plain, 0);
        weft__server_predict(now.dtype, now.x, now.x, now.rooms[0], NULL, NULL, now.update.rate, 0,
                             0, now.count);
        same_jobs(seed);
    }
}
