/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Group normalisation: of each image and group of channels, over all pixels,
 *
 *     x' = (x - mean) r,  r = 1 / sqrt(variance + epsilon),  y = gain x' + shift
 *
 *     d shift = sum dy,  d gain = sum dy x',  g = dy gain,
 *     dx = r (g - mean(g) - x' mean(g x'))
 *
 * Sums are made channel by channel first: lanes that do not wait for each other.
 */
#include "tools/train/operations.h"

#include <string.h>
#include <weft/status.h>

/* Sums of a group's channels, at each of its channels. */
static void spread(train_real_t *sums, const struct net_shape *shape, train_real_t factor)
{
    size_t width = operation_norm_width(shape);

    for (size_t first = 0; first < shape->channels; first += width) {
        train_real_t sum = 0;
        for (size_t c = first; c < first + width; c++)
            sum += sums[c];
        for (size_t c = first; c < first + width; c++)
            sums[c] = sum * factor;
    }
}

/* The mean and r of an image, at each channel. */
static void measure(const struct net_shape *shape, const train_real_t *restrict from,
                    train_real_t *restrict mean, train_real_t *restrict scale)
{
    size_t pixels = shape->rows * shape->columns;
    size_t channels = shape->channels;
    train_real_t factor = (train_real_t)1 / (train_real_t)(pixels * operation_norm_width(shape));

    memset(mean, 0, channels * sizeof *mean);
    memset(scale, 0, channels * sizeof *scale);
    for (size_t p = 0; p < pixels; p++)
        for (size_t c = 0; c < channels; c++)
            mean[c] += from[p * channels + c];
    spread(mean, shape, factor);
    for (size_t p = 0; p < pixels; p++) {
        for (size_t c = 0; c < channels; c++) {
            train_real_t apart = from[p * channels + c] - mean[c];
            scale[c] += apart * apart;
        }
    }
    spread(scale, shape, factor);
    for (size_t c = 0; c < channels; c++)
        scale[c] = 1 / train_root(scale[c] + OPERATION_NORM_EPSILON);
}

static int norm_forward(const struct operation *operation, size_t batch)
{
    const struct net_shape *shape = &operation->in;
    size_t channels = shape->channels;
    size_t size = net_size(shape);
    const train_real_t *restrict gain = operation->parameters[0];
    const train_real_t *restrict shift = operation->parameters[1];

    for (size_t i = 0; i < batch; i++) {
        const train_real_t *restrict from = operation->from + i * size;
        train_real_t *restrict to = operation->to + i * size;
        train_real_t *restrict mean = operation->kept + i * 2 * channels;
        train_real_t *restrict scale = mean + channels;

        measure(shape, from, mean, scale);
        for (size_t p = 0; p < size; p += channels)
            for (size_t c = 0; c < channels; c++)
                to[p + c] = (from[p + c] - mean[c]) * scale[c] * gain[c] + shift[c];
    }
    return WEFT_OK;
}

/* Of one image; `sums` has room for two numbers a channel. */
static void derive(const struct operation *operation, size_t image, train_real_t *restrict sums)
{
    const struct net_shape *shape = &operation->in;
    size_t channels = shape->channels;
    size_t size = net_size(shape);
    const train_real_t *restrict from = operation->from + image * size;
    const train_real_t *restrict delta = operation->to_delta + image * size;
    const train_real_t *restrict mean = operation->kept + image * 2 * channels;
    const train_real_t *restrict scale = mean + channels;
    const train_real_t *restrict gain = operation->parameters[0];
    train_real_t *restrict below = operation->from_delta + image * size;
    train_real_t *restrict products = sums + channels;
    train_real_t factor =
        (train_real_t)channels / (train_real_t)(size * operation_norm_width(shape));

    memset(sums, 0, 2 * channels * sizeof *sums);
    for (size_t p = 0; p < size; p += channels) {
        for (size_t c = 0; c < channels; c++) {
            sums[c] += delta[p + c];
            products[c] += delta[p + c] * ((from[p + c] - mean[c]) * scale[c]);
        }
    }
    for (size_t c = 0; c < channels; c++) {
        operation->gradients[0][c] += products[c];
        operation->gradients[1][c] += sums[c];
        products[c] *= gain[c];
        sums[c] *= gain[c];
    }
    spread(sums, shape, factor);
    spread(products, shape, factor);
    for (size_t p = 0; p < size; p += channels) {
        for (size_t c = 0; c < channels; c++) {
            train_real_t normal = (from[p + c] - mean[c]) * scale[c];
            train_real_t part = delta[p + c] * gain[c] - sums[c] - normal * products[c];
            below[p + c] = (operation->adds ? below[p + c] : 0) + scale[c] * part;
        }
    }
}

static int norm_backward(const struct operation *operation, size_t batch)
{
    size_t channels = operation->in.channels;

    memset(operation->gradients[0], 0, channels * sizeof(train_real_t));
    memset(operation->gradients[1], 0, channels * sizeof(train_real_t));
    for (size_t i = 0; i < batch; i++)
        derive(operation, i, operation->scratch);
    return WEFT_OK;
}

static double norm_work(const struct operation *operation)
{
    return 8.0 * (double)net_size(&operation->in);
}

static size_t norm_kept(const struct operation *operation)
{
    return 2 * operation->in.channels;
}

/* Of which the processor uses half of one image's. */
static size_t norm_scratch(const struct operation *operation)
{
    return 4 * operation->in.channels;
}

const struct operation_kind operation_norm = {
    .cpu = {norm_forward, norm_backward},
    .work = norm_work,
    .scratch = norm_scratch,
    .kept = norm_kept,
};
