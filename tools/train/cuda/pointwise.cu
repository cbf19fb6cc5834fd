/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations without parameters. `adds`: the backward pass adds to what is there, else it writes
 * it. */
#include "tools/train/cuda/kernel.cuh"

TRAIN_KERNEL train_relu(float *to, uint64_t count)
{
    for (TRAIN_EACH(i, count))
        to[i] = to[i] > 0 ? to[i] : 0;
}

TRAIN_KERNEL train_relu_back(float *delta, const float *to, uint64_t count)
{
    for (TRAIN_EACH(i, count))
        delta[i] = to[i] > 0 ? delta[i] : 0;
}

/* ---- the largest of 2 x 2 pixels, of equal ones the first ---- */

/* Where it is, of those whose first is `corner`. */
WEFT_DEVICE uint64_t largest(const float *from, train_image in, uint64_t corner)
{
    const uint64_t line = (uint64_t)in.columns * in.channels;
    const uint64_t others[] = {corner + in.channels, corner + line, corner + line + in.channels};
    uint64_t best = corner;

#pragma unroll
    for (int i = 0; i < 3; i++)
        if (from[others[i]] > from[best])
            best = others[i];
    return best;
}

/* The first of the four pixels that output `i` is made of, in all images. */
WEFT_DEVICE uint64_t corner_of(train_image in, uint64_t i)
{
    const uint32_t columns = in.columns / 2;
    const uint32_t rows = in.rows / 2;
    const uint64_t pixel = i / in.channels;
    const uint64_t line = pixel / columns; /* of all images */

    return ((line / rows * in.rows + line % rows * 2) * in.columns + pixel % columns * 2) *
               in.channels +
           i % in.channels;
}

/* `count` outputs. */
TRAIN_KERNEL train_pool(float *to, const float *from, const __grid_constant__ train_image in,
                        uint64_t count)
{
    for (TRAIN_EACH(i, count))
        to[i] = from[largest(from, in, corner_of(in, i))];
}

/* `count` inputs: each looks whether it is the largest of its four. */
TRAIN_KERNEL train_pool_back(float *below, const float *delta, const float *from,
                             const __grid_constant__ train_image in, int adds, uint64_t count)
{
    for (TRAIN_EACH(i, count)) {
        const uint64_t pixel = i / in.channels;
        const uint32_t column = (uint32_t)(pixel % in.columns) / 2;
        const uint64_t line = pixel / in.columns;
        const uint32_t row = (uint32_t)(line % in.rows) / 2;
        float sum = adds ? below[i] : 0;

        if (column < in.columns / 2 && row < in.rows / 2) {
            const uint64_t out =
                ((line / in.rows * (in.rows / 2) + row) * (in.columns / 2) + column) * in.channels +
                i % in.channels;

            if (largest(from, in, corner_of(in, out)) == i)
                sum += delta[out];
        }
        below[i] = sum;
    }
}

/* ---- the mean of all pixels ---- */

/* `count` outputs: a channel of an image each. `factor` is 1 / pixels. */
TRAIN_KERNEL train_mean(float *to, const float *from, uint64_t pixels, uint64_t channels,
                        float factor, uint64_t count)
{
    for (TRAIN_EACH(i, count)) {
        const float *channel = from + i / channels * pixels * channels + i % channels;
        float sum = 0;

        for (uint64_t pixel = 0; pixel < pixels; pixel++)
            sum += channel[pixel * channels];
        to[i] = sum * factor;
    }
}

/* `count` inputs. */
TRAIN_KERNEL train_mean_back(float *below, const float *delta, uint64_t pixels, uint64_t channels,
                             float factor, int adds, uint64_t count)
{
    for (TRAIN_EACH(i, count)) {
        const float part = delta[i / channels / pixels * channels + i % channels] * factor;

        below[i] = (adds ? below[i] : 0) + part;
    }
}
