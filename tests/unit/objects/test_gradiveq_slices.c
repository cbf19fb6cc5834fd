/* SPDX-License-Identifier: BSD-3-Clause */
/* How GradiVeQ cuts tensors into slices, and orders their elements. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "schedules/objects/compressed_average/gradiveq.h"

static struct weft_gradiveq_config defaults(void)
{
    struct weft_gradiveq_config config;
    weft_sized_init(&config, sizeof config);
    config.sample_steps = 100;
    return config;
}

static struct weft_tensor_shape convolution(size_t outputs, size_t inputs, size_t height,
                                            size_t width)
{
    return (struct weft_tensor_shape){WEFT_TENSOR_OIHW, outputs, inputs, height, width};
}

static size_t elements(const struct weft_tensor_shape *shape)
{
    switch (shape->layout) {
    case WEFT_TENSOR_VECTOR:
        return shape->outputs;
    case WEFT_TENSOR_DENSE:
        return shape->outputs * shape->inputs;
    default:
        return shape->outputs * shape->inputs * shape->height * shape->width;
    }
}

static struct weft__gradiveq_slices cut(const struct weft_gradiveq_config *config,
                                        struct weft_tensor_shape shape)
{
    const struct weft_piece tensor = {.count = elements(&shape)};
    struct weft__gradiveq_slices slices;
    weft__gradiveq_slice(config, &shape, &tensor, 1, &slices);
    return slices;
}

#define EXPECT(cut_, k, many, shared)                                                              \
    do {                                                                                           \
        const struct weft__gradiveq_slices got_ = (cut_);                                          \
        cr_assert_eq(got_.slice, (size_t)(k), "K is %zu, expected %zu", got_.slice, (size_t)(k));  \
        cr_assert_eq(got_.slices, (size_t)(many), "%zu slices", got_.slices);                      \
        cr_assert_eq(got_.reuse, (size_t)(shared), "%zu share", got_.reuse);                       \
    } while (0)

/* 3 x 3 filters: three slices; 1 x 1 ones one; of others as many as divide, up to three. */
Test(gradiveq_slices, defaults)
{
    const struct weft_gradiveq_config config = defaults();
    EXPECT(cut(&config, convolution(16, 16, 3, 3)), 768, 3, 3);
    EXPECT(cut(&config, convolution(64, 32, 1, 1)), 2048, 1, 1);
    EXPECT(cut(&config, convolution(8, 3, 5, 5)), 24, 25, 25);
    EXPECT(cut(&config, convolution(8, 4, 4, 2)), 64, 4, 4);
    EXPECT(cut(&config, convolution(64, 3, 7, 7)), 192, 49, 49);
    EXPECT(cut(&config, (struct weft_tensor_shape){WEFT_TENSOR_VECTOR, 64, 0, 0, 0}), 0, 0, 0);
    EXPECT(cut(&config, (struct weft_tensor_shape){WEFT_TENSOR_DENSE, 10, 64, 0, 0}), 0, 0, 0);
}

Test(gradiveq_slices, factors_and_reuse)
{
    struct weft_gradiveq_config config = defaults();
    config.slice_factor = 2; /* nine of F D: the last slice is half of one */
    EXPECT(cut(&config, convolution(16, 16, 3, 3)), 512, 5, 5);
    config.slice_factor = 9;
    EXPECT(cut(&config, convolution(16, 16, 3, 3)), 2304, 1, 1);
    config.slice_factor = 100;
    EXPECT(cut(&config, convolution(16, 16, 3, 3)), 2304, 1, 1);
    config.slice_factor = 1;
    config.reuse = 2;
    EXPECT(cut(&config, convolution(16, 16, 3, 3)), 256, 9, 2);
    cr_assert_eq(cut(&config, convolution(16, 16, 3, 3)).groups, 5);
    config.reuse = 9;
    cr_assert_eq(cut(&config, convolution(16, 16, 3, 3)).groups, 1);
    config.reuse = SIZE_MAX;
    EXPECT(cut(&config, convolution(16, 16, 3, 3)), 256, 9, 9);
}

Test(gradiveq_slices, slices_that_are_given)
{
    struct weft_gradiveq_config config = defaults();
    config.slice = 100;
    EXPECT(cut(&config, convolution(16, 16, 3, 3)), 100, 24, 24);
    EXPECT(cut(&config, convolution(2, 5, 5, 2)), 100, 1, 1);
    EXPECT(cut(&config, convolution(11, 3, 3, 1)), 0, 0, 0); /* smaller than a slice */
    EXPECT(cut(&config, (struct weft_tensor_shape){WEFT_TENSOR_VECTOR, 640, 0, 0, 0}), 0, 0, 0);
}

Test(gradiveq_slices, dense_layers_by_an_option)
{
    struct weft_gradiveq_config config = defaults();
    const struct weft_tensor_shape dense = {WEFT_TENSOR_DENSE, 10, 64, 0, 0};
    config.dense_layers = 1;
    EXPECT(cut(&config, dense), 20, 32, 32);
    config.slice_factor = 5;
    EXPECT(cut(&config, dense), 50, 13, 13);
    EXPECT(cut(&config, (struct weft_tensor_shape){WEFT_TENSOR_VECTOR, 64, 0, 0, 0}), 0, 0, 0);
}

/* One filter a slice, whatever the layout is; or as many as are asked for. */
Test(gradiveq_slices, of_whole_filters)
{
    struct weft_gradiveq_config config = defaults();
    config.order = WEFT_SLICES_OF_FILTERS;
    config.dense_layers = 1;
    EXPECT(cut(&config, convolution(16, 5, 3, 3)), 45, 16, 16);
    EXPECT(cut(&config, (struct weft_tensor_shape){WEFT_TENSOR_OHWI, 7, 2, 5, 3}), 30, 7, 7);
    EXPECT(cut(&config, (struct weft_tensor_shape){WEFT_TENSOR_HWIO, 7, 2, 5, 3}), 30, 7, 7);
    EXPECT(cut(&config, (struct weft_tensor_shape){WEFT_TENSOR_DENSE, 10, 64, 0, 0}), 64, 10, 10);
    EXPECT(cut(&config, convolution(8, 1, 1, 1)), 0, 0, 0); /* filters of one element */
    config.slice_factor = 3;
    EXPECT(cut(&config, convolution(16, 5, 3, 3)), 135, 6, 6);
    EXPECT(cut(&config, convolution(8, 1, 1, 1)), 3, 3, 3);
    config.slice_factor = 100;
    EXPECT(cut(&config, convolution(16, 5, 3, 3)), 720, 1, 1);
    config.slice_factor = 0;
    config.slice = 100;
    EXPECT(cut(&config, convolution(16, 5, 3, 3)), 100, 8, 8);
}

Test(gradiveq_slices, too_small_ones)
{
    const struct weft_gradiveq_config config = defaults();
    EXPECT(cut(&config, convolution(1, 1, 1, 1)), 0, 0, 0);
    EXPECT(cut(&config, convolution(1, 1, 2, 1)), 2, 1, 1);
    EXPECT(cut(&config, convolution(0, 4, 3, 3)), 0, 0, 0);
}

/* The largest are halved: multiples of F D, then of F, then parts of it, that all divide. */
Test(gradiveq_slices, memory)
{
    struct weft_gradiveq_config config = defaults();
    const struct weft_tensor_shape shape = convolution(16, 16, 3, 3);
    static const size_t expected[] = {768, 256, 128, 64, 32, 16, 8, 4, 2, 0};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const struct weft__gradiveq_slices now = cut(&config, shape);
        EXPECT(now, expected[i], expected[i] ? 2304 / expected[i] : 0,
               expected[i] ? 2304 / expected[i] : 0);
        size_t rank = now.slice < 99 ? now.slice : 99;
        cr_assert_eq(weft__gradiveq_bytes(&config, &now), 4 * now.slice * (100 + rank));
        if (now.slice) { /* as much as it takes is enough, less is not */
            config.memory_bytes = weft__gradiveq_bytes(&config, &now);
            EXPECT(cut(&config, shape), now.slice, now.slices, now.reuse);
            config.memory_bytes--;
        }
    }
}

/* Whole filters, then what lies together in each, then parts of that. */
static void check_memory(struct weft_tensor_shape shape, size_t factor, const size_t *expected)
{
    struct weft_gradiveq_config config = defaults();
    config.order = WEFT_SLICES_OF_FILTERS;
    config.slice_factor = factor;
    for (size_t i = 0; i == 0 || expected[i - 1]; i++) {
        const struct weft__gradiveq_slices now = cut(&config, shape);
        cr_assert_eq(now.slice, expected[i], "K is %zu, expected %zu", now.slice, expected[i]);
        if (now.slice) { /* as much as it takes is enough, less is not */
            config.memory_bytes = weft__gradiveq_bytes(&config, &now);
            cr_assert_eq(cut(&config, shape).slice, now.slice);
            config.memory_bytes--;
        }
    }
}

Test(gradiveq_slices, memory_of_whole_filters)
{
    static const size_t planes[] = {576, 288, 144, 72, 36, 18, 9, 3, 0};
    static const size_t places[] = {288, 144, 48, 16, 8, 4, 2, 0};
    check_memory(convolution(16, 16, 3, 3), 4, planes);
    check_memory((struct weft_tensor_shape){WEFT_TENSOR_OHWI, 16, 16, 3, 3}, 2, places);
    check_memory((struct weft_tensor_shape){WEFT_TENSOR_HWIO, 16, 16, 3, 3}, 2, places);
}

Test(gradiveq_slices, memory_of_what_does_not_divide)
{
    struct weft_gradiveq_config config = defaults();
    config.memory_bytes = 1 << 15;
    EXPECT(cut(&config, convolution(101, 1, 1, 1)), 50, 3, 3);
    EXPECT(cut(&config, convolution(1, 101, 1, 1)), 50, 3, 3);
    config.slice = 700;
    EXPECT(cut(&config, convolution(16, 16, 3, 3)), 43, 54, 54);
}

/* With projections of their own smaller slices take as much, so none can help. */
Test(gradiveq_slices, memory_of_projections_that_nobody_shares)
{
    struct weft_gradiveq_config config = defaults();
    config.reuse = 1;
    config.memory_bytes = 100000;
    EXPECT(cut(&config, convolution(16, 16, 3, 3)), 0, 0, 0);
    config.memory_bytes = 4 * 2304 * (100 + 99);
    EXPECT(cut(&config, convolution(16, 16, 3, 3)), 768, 3, 1);
}

Test(gradiveq_slices, memory_of_several_goes_to_the_small_ones)
{
    struct weft_gradiveq_config config = defaults();
    const struct weft_tensor_shape shapes[] = {
        convolution(64, 64, 3, 3), convolution(16, 16, 3, 3), {WEFT_TENSOR_VECTOR, 64, 0, 0, 0}};
    const struct weft_piece tensors[] = {{NULL, 36864}, {NULL, 2304}, {NULL, 64}};
    struct weft__gradiveq_slices slices[3];
    config.memory_bytes = 4 * 199 * (4096 + 768);
    weft__gradiveq_slice(&config, shapes, tensors, 3, slices);
    cr_assert_eq(slices[0].slice, 4096);
    cr_assert_eq(slices[1].slice, 768);
    config.memory_bytes--;
    weft__gradiveq_slice(&config, shapes, tensors, 3, slices);
    cr_assert_eq(slices[0].slice, 2048);
    cr_assert_eq(slices[1].slice, 768);
    config.memory_bytes = 1;
    weft__gradiveq_slice(&config, shapes, tensors, 3, slices);
    cr_assert_eq(slices[0].slice, 0);
    cr_assert_eq(slices[1].slice, 0);
}

Test(gradiveq_slices, more_than_can_be)
{
    struct weft_gradiveq_config config = defaults();
    struct weft__gradiveq_slices slices = {.slice = 768, .slices = 3, .reuse = 3, .groups = 1};
    config.sample_steps = UINT64_MAX;
    cr_assert_eq(weft__gradiveq_bytes(&config, &slices), SIZE_MAX);
    config.sample_steps = SIZE_MAX / 8;
    cr_assert_eq(weft__gradiveq_bytes(&config, &slices), SIZE_MAX);
    config.sample_steps = 100;
    slices.groups = SIZE_MAX / 4096;
    cr_assert_eq(weft__gradiveq_bytes(&config, &slices), SIZE_MAX);
}

/* ---- the order of elements ---- */

/* Where an element of filter f, depth d, at (h, w) is in a layout. */
static size_t place(const struct weft_tensor_shape *s, size_t f, size_t d, size_t h, size_t w)
{
    switch (s->layout) {
    case WEFT_TENSOR_OIHW:
        return ((f * s->inputs + d) * s->height + h) * s->width + w;
    case WEFT_TENSOR_OHWI:
        return ((f * s->height + h) * s->width + w) * s->inputs + d;
    case WEFT_TENSOR_DENSE:
        return f * s->inputs + d;
    default:
        return ((h * s->width + w) * s->inputs + d) * s->outputs + f;
    }
}

/* To an order and back. goal: where elements are meant to be. */
static void check_order(weft_gradiveq_order_t order, struct weft_tensor_shape s,
                        weft_tensor_layout_t goal_layout)
{
    size_t count = s.outputs * s.inputs * s.height * s.width;
    float *values = malloc(count * sizeof *values), *scratch = malloc(count * sizeof *scratch);
    const struct weft_tensor_shape goal = {goal_layout, s.outputs, s.inputs, s.height, s.width};
    cr_assert(values && scratch);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)i;
    weft__gradiveq_permute(order, &s, values, scratch);
    for (size_t f = 0; f < s.outputs; f++)
        for (size_t d = 0; d < s.inputs; d++)
            for (size_t h = 0; h < s.height; h++)
                for (size_t w = 0; w < s.width; w++)
                    cr_assert_eq(values[place(&goal, f, d, h, w)], (float)place(&s, f, d, h, w));
    weft__gradiveq_permute_back(order, &s, values, scratch);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(values[i], (float)i);
    free(values);
    free(scratch);
}

static const size_t sizes[][4] = {{5, 3, 2, 4}, {1, 1, 1, 1},   {8, 1, 3, 3},
                                  {1, 7, 3, 2}, {16, 16, 3, 3}, {4, 6, 1, 1}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

Test(gradiveq_slices, the_order_of_figure_3)
{
    static const weft_tensor_layout_t layouts[] = {WEFT_TENSOR_OIHW, WEFT_TENSOR_OHWI,
                                                   WEFT_TENSOR_HWIO};
    for (size_t i = 0; i < SIZES; i++) {
        const size_t *n = sizes[i];
        for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++)
            check_order(WEFT_SLICES_ACROSS_FILTERS,
                        (struct weft_tensor_shape){layouts[l], n[0], n[1], n[2], n[3]},
                        WEFT_TENSOR_HWIO);
        check_order(WEFT_SLICES_ACROSS_FILTERS,
                    (struct weft_tensor_shape){WEFT_TENSOR_DENSE, n[0], n[1], 1, 1},
                    WEFT_TENSOR_HWIO);
    }
}

/* Those that lie filter after filter stay as they are. */
Test(gradiveq_slices, the_order_of_whole_filters)
{
    for (size_t i = 0; i < SIZES; i++) {
        const size_t *n = sizes[i];
        for (int l = WEFT_TENSOR_OIHW; l <= WEFT_TENSOR_HWIO; l++)
            check_order(WEFT_SLICES_OF_FILTERS,
                        (struct weft_tensor_shape){(weft_tensor_layout_t)l, n[0], n[1], n[2], n[3]},
                        l == WEFT_TENSOR_OIHW ? WEFT_TENSOR_OIHW : WEFT_TENSOR_OHWI);
        check_order(WEFT_SLICES_OF_FILTERS,
                    (struct weft_tensor_shape){WEFT_TENSOR_DENSE, n[0], n[1], 1, 1},
                    WEFT_TENSOR_DENSE);
    }
}
