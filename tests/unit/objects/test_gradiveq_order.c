/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GradiVeQ on slices of whole filters. Whatever the layout is, it is what slices across filters are
 * of tensors that lie filter after filter, and are described as one place a filter and one filter
 * an element: bit for bit.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "support/virtual_ranks.h"

enum { TENSORS = 7, ELEMENTS = 90 + 42 + 126 + 4 + 30 + 36 + 4, STEPS = 22 };

/* All layouts, odd sizes, one filter, filters of one element. */
static const struct weft_tensor_shape shapes[TENSORS] = {
    {WEFT_TENSOR_OIHW, 5, 3, 3, 2},  {WEFT_TENSOR_OHWI, 7, 2, 1, 3},
    {WEFT_TENSOR_HWIO, 7, 3, 2, 3},  {WEFT_TENSOR_VECTOR, 4, 0, 0, 0},
    {WEFT_TENSOR_DENSE, 6, 5, 0, 0}, {WEFT_TENSOR_HWIO, 1, 4, 3, 3},
    {WEFT_TENSOR_OIHW, 4, 1, 1, 1}};

static size_t filter_of(const struct weft_tensor_shape *shape)
{
    return shape->layout == WEFT_TENSOR_VECTOR  ? 1
           : shape->layout == WEFT_TENSOR_DENSE ? shape->inputs
                                                : shape->inputs * shape->height * shape->width;
}

/* Where element k of filter f is in a tensor. */
static size_t place(const struct weft_tensor_shape *shape, size_t f, size_t k)
{
    return shape->layout == WEFT_TENSOR_HWIO ? k * shape->outputs + f : f * filter_of(shape) + k;
}

/* What differs between the runs of a test. */
struct settings {
    size_t factor, slice, reuse;
    int dense, qsgd;
    uint64_t seed;
    weft_compressed_residual_t residual;
};

struct side {
    struct weft_compressed_average *average;
    struct weft_tensor_shape shapes[TENSORS];
    struct weft_piece tensors[TENSORS];
    float data[ELEMENTS];
};

static void side_create(struct side *side, struct weft_context *context,
                        const struct settings *settings, weft_gradiveq_order_t order)
{
    struct weft_gradiveq_config gradiveq;
    struct weft_quantiser quantiser;
    struct weft_compressed_average_config config;
    float *at = side->data;
    weft_gradiveq_config_init(&gradiveq);
    weft_quantiser_init(&quantiser);
    weft_compressed_average_config_init(&config);
    for (int t = 0; t < TENSORS; t++) {
        size_t count = shapes[t].outputs * filter_of(&shapes[t]);
        side->tensors[t] = (struct weft_piece){at, count};
        at += count;
    }
    gradiveq.order = order;
    gradiveq.loss = 1e-6;
    gradiveq.slice_factor = settings->factor;
    gradiveq.slice = settings->slice;
    gradiveq.reuse = settings->reuse;
    gradiveq.warmup_steps = 2;
    gradiveq.sample_steps = 4;
    gradiveq.compressed_steps = 5;
    gradiveq.uncompressed = settings->qsgd ? WEFT_UNCOMPRESSED_QSGD : WEFT_UNCOMPRESSED_DENSE;
    gradiveq.dense_layers = settings->dense;
    quantiser.bits = 8;
    quantiser.bucket = 16;
    config.tensors = side->tensors;
    config.tensor_count = TENSORS;
    config.shapes = side->shapes;
    config.gradiveq = &gradiveq;
    config.quantiser = &quantiser;
    config.residual = settings->residual;
    config.sum = 1;
    OK(weft_compressed_average_create(&side->average, context, &config));
}

static float number(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + a;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9) + b;
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb) + c;
    x = (x ^ (x >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 32;
    return (float)(int32_t)(x >> 8 & 0xffffff) / 8388608.0F - 1;
}

/* All filters of a tensor have the same two components. */
static float planted(uint64_t seed, int rank, uint64_t step, int t, size_t f, size_t k)
{
    const uint64_t tensor = (uint64_t)t, who = (uint64_t)rank * 1000 + step;
    float value = 0;
    for (uint64_t j = 0; j < 2; j++)
        value += number(seed, who, 64 * tensor + f, j) * number(seed, tensor, k, 10 + j);
    return value;
}

/* ---- it is what the other order makes of other shapes ---- */

/* In the order of the tensors, and filter after filter. */
static void fill(struct side *of, struct side *across, uint64_t seed, int rank, uint64_t step)
{
    for (int t = 0; t < TENSORS; t++) {
        const size_t filter = filter_of(&shapes[t]);
        for (size_t f = 0; f < shapes[t].outputs; f++)
            for (size_t k = 0; k < filter; k++) {
                float value = planted(seed, rank, step, t, f, k) +
                              0.3F * number(seed + 1, (uint64_t)rank * 1000 + step, (uint64_t)t,
                                            f * filter + k);
                ((float *)of->tensors[t].data)[place(&shapes[t], f, k)] = value;
                ((float *)across->tensors[t].data)[f * filter + k] = value;
            }
    }
}

static void check_same(const struct side *of, const struct side *across)
{
    for (int t = 0; t < TENSORS; t++) {
        const size_t filter = filter_of(&shapes[t]);
        struct weft_gradiveq_tensor a = {.struct_size = sizeof a}, b = a;
        for (size_t f = 0; f < shapes[t].outputs; f++)
            for (size_t k = 0; k < filter; k++)
                CHECK(((const float *)of->tensors[t].data)[place(&shapes[t], f, k)] ==
                      ((const float *)across->tensors[t].data)[f * filter + k]);
        OK(weft_compressed_average_get_tensor(of->average, (size_t)t, &a));
        OK(weft_compressed_average_get_tensor(across->average, (size_t)t, &b));
        CHECK(a.slice == b.slice && a.slices == b.slices && a.reuse == b.reuse);
        CHECK(a.components == b.components && a.loss == b.loss);
    }
}

static void same(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct settings *settings = ranks->user;
    struct side *of = calloc(1, sizeof *of), *across = calloc(1, sizeof *across);
    struct settings described = *settings;
    CHECK(of && across);
    for (int t = 0; t < TENSORS; t++) {
        of->shapes[t] = across->shapes[t] = shapes[t];
        if (shapes[t].layout != WEFT_TENSOR_VECTOR &&
            (shapes[t].layout != WEFT_TENSOR_DENSE || settings->dense))
            across->shapes[t] = (struct weft_tensor_shape){WEFT_TENSOR_HWIO, filter_of(&shapes[t]),
                                                           1, shapes[t].outputs, 1};
    }
    if (!settings->slice && !settings->factor)
        described.factor = 1;
    side_create(of, context, settings, WEFT_SLICES_OF_FILTERS);
    side_create(across, context, &described, WEFT_SLICES_ACROSS_FILTERS);
    for (uint64_t step = 0; step < STEPS; step++) {
        struct weft_compressed_average_result a = {.struct_size = sizeof a}, b = a;
        fill(of, across, settings->seed, rank, step);
        OK(weft_compressed_average_step(of->average, &a));
        OK(weft_compressed_average_step(across->average, &b));
        CHECK(a.phase == b.phase && a.bits == b.bits && a.loss == b.loss && a.votes == b.votes);
        CHECK(a.phase != WEFT_COMPRESSED_COMPRESSED || a.bits < 32);
        check_same(of, across);
    }
    OK(weft_compressed_average_destroy(of->average));
    OK(weft_compressed_average_destroy(across->average));
    free(of);
    free(across);
}

Test(gradiveq_order, whole_filters_are_one_place_each)
{
    static const int sizes[] = {1, 2, 3, 5};
    static const struct settings each[] = {
        {.dense = 1},                                             /* a filter a slice */
        {.factor = 2, .reuse = 2},                                /* the last one is shorter */
        {.slice = 7, .dense = 1, .reuse = 3},                     /* ends within filters */
        {.factor = 3, .dense = 1, .qsgd = 1},                     /* quantised alike */
        {.factor = 100},                                          /* a slice a tensor */
        {.residual = WEFT_COMPRESSED_RESIDUAL_KEPT, .factor = 1}, /* come back to their places */
    };
    const char *given = getenv("WEFT_TEST_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 0) : 20261123;
    printf("seed %llu (WEFT_TEST_SEED)\n", (unsigned long long)seed);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
            struct settings settings = each[i];
            settings.seed = seed + i;
            ranks_run_once(same, sizes[s], &settings);
        }
}

/* ---- it finds what filters have in common ---- */

static void find(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct settings settings = {.dense = 1, .seed = 7};
    struct side *side = calloc(1, sizeof *side);
    (void)ranks;
    CHECK(side);
    memcpy(side->shapes, shapes, sizeof shapes);
    side_create(side, context, &settings, WEFT_SLICES_OF_FILTERS);
    for (uint64_t step = 0; step < STEPS; step++) {
        struct weft_gradiveq_tensor info = {.struct_size = sizeof info};
        const int size = weft_context_size(context);
        double most = 0;
        for (int t = 0; t < TENSORS; t++)
            for (size_t f = 0; f < shapes[t].outputs; f++)
                for (size_t k = 0; k < filter_of(&shapes[t]); k++)
                    ((float *)side->tensors[t].data)[place(&shapes[t], f, k)] =
                        planted(7, rank, step, t, f, k);
        OK(weft_compressed_average_step(side->average, NULL));
        for (int t = 0; t < TENSORS; t++)
            for (size_t f = 0; f < shapes[t].outputs; f++)
                for (size_t k = 0; k < filter_of(&shapes[t]); k++) {
                    double sum = (double)((float *)side->tensors[t].data)[place(&shapes[t], f, k)];
                    for (int r = 0; r < size; r++)
                        sum -= (double)planted(7, r, step, t, f, k);
                    most = fmax(most, fabs(sum));
                }
        CHECK(most < 2e-5 * size);
        OK(weft_compressed_average_get_tensor(side->average, 0, &info));
        CHECK(info.slice == 18 && info.slices == 5);
        CHECK(info.components == (step < 5 ? 0 : 2));
    }
    OK(weft_compressed_average_destroy(side->average));
    free(side);
}

Test(gradiveq_order, components_that_filters_have_in_common_are_found)
{
    ranks_run_once(find, 1, NULL);
    ranks_run_once(find, 3, NULL);
    ranks_run_once(find, 8, NULL);
}
