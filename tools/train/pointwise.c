/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations without parameters. */
#include "tools/train/operations.h"

#include <string.h>
#include <weft/status.h>

/* ---- relu, in place: what was cut off is 0 in what it made ---- */

static int relu_forward(const struct operation *operation, size_t batch)
{
    train_real_t *to = operation->to;
    size_t count = batch * net_size(&operation->out);

    for (size_t i = 0; i < count; i++)
        to[i] = to[i] > 0 ? to[i] : 0;
    return WEFT_OK;
}

static int relu_backward(const struct operation *operation, size_t batch)
{
    const train_real_t *restrict to = operation->to;
    train_real_t *restrict delta = operation->to_delta;
    size_t count = batch * net_size(&operation->out);

    for (size_t i = 0; i < count; i++)
        delta[i] = to[i] > 0 ? delta[i] : 0;
    return WEFT_OK;
}

static double pointwise_work(const struct operation *operation)
{
    return (double)net_size(&operation->in);
}

const struct operation_kind operation_relu = {
    .cpu = {relu_forward, relu_backward},
    .work = pointwise_work,
};

/* ---- add, in place ---- */

static int add_forward(const struct operation *operation, size_t batch)
{
    const train_real_t *restrict other = operation->other;
    train_real_t *restrict to = operation->to;
    size_t count = batch * net_size(&operation->out);

    for (size_t i = 0; i < count; i++)
        to[i] += other[i];
    return WEFT_OK;
}

static int add_backward(const struct operation *operation, size_t batch)
{
    const train_real_t *restrict delta = operation->to_delta;
    train_real_t *restrict other = operation->other_delta;
    size_t count = batch * net_size(&operation->out);

    if (!operation->adds_other)
        memcpy(other, delta, count * sizeof *other);
    for (size_t i = 0; i < count && operation->adds_other; i++)
        other[i] += delta[i];
    return WEFT_OK;
}

const struct operation_kind operation_add = {
    .cpu = {add_forward, add_backward},
    .work = pointwise_work,
};

/* ---- pool: the largest of 2 x 2 pixels, of equal ones the first ---- */

/* Where the largest of a channel is that an output is made of. */
static size_t largest(const struct net_shape *in, const train_real_t *image, size_t row,
                      size_t column, size_t channel)
{
    size_t line = in->columns * in->channels;
    size_t corner = 2 * row * line + 2 * column * in->channels + channel;
    size_t best = corner;
    const size_t others[] = {corner + in->channels, corner + line, corner + line + in->channels};

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (image[others[i]] > image[best])
            best = others[i];
    return best;
}

static int pool_forward(const struct operation *operation, size_t batch)
{
    const struct net_shape *in = &operation->in;
    const struct net_shape *out = &operation->out;
    train_real_t *to = operation->to;

    for (size_t i = 0; i < batch; i++) {
        const train_real_t *image = operation->from + i * net_size(in);
        for (size_t row = 0; row < out->rows; row++)
            for (size_t column = 0; column < out->columns; column++)
                for (size_t c = 0; c < out->channels; c++)
                    *to++ = image[largest(in, image, row, column, c)];
    }
    return WEFT_OK;
}

static int pool_backward(const struct operation *operation, size_t batch)
{
    const struct net_shape *in = &operation->in;
    const struct net_shape *out = &operation->out;
    const train_real_t *delta = operation->to_delta;
    size_t size = net_size(in);

    if (!operation->adds)
        memset(operation->from_delta, 0, batch * size * sizeof *delta);
    for (size_t i = 0; i < batch; i++) {
        const train_real_t *image = operation->from + i * size;
        train_real_t *below = operation->from_delta + i * size;
        for (size_t row = 0; row < out->rows; row++)
            for (size_t column = 0; column < out->columns; column++)
                for (size_t c = 0; c < out->channels; c++)
                    below[largest(in, image, row, column, c)] += *delta++;
    }
    return WEFT_OK;
}

const struct operation_kind operation_pool = {
    .cpu = {pool_forward, pool_backward},
    .work = pointwise_work,
};

/* ---- mean of all pixels ---- */

static int mean_forward(const struct operation *operation, size_t batch)
{
    size_t channels = operation->in.channels;
    size_t size = net_size(&operation->in);
    train_real_t factor = (train_real_t)channels / (train_real_t)size;

    for (size_t i = 0; i < batch; i++) {
        const train_real_t *restrict from = operation->from + i * size;
        train_real_t *restrict to = operation->to + i * channels;

        memset(to, 0, channels * sizeof *to);
        for (size_t p = 0; p < size; p += channels)
            for (size_t c = 0; c < channels; c++)
                to[c] += from[p + c];
        for (size_t c = 0; c < channels; c++)
            to[c] *= factor;
    }
    return WEFT_OK;
}

static int mean_backward(const struct operation *operation, size_t batch)
{
    size_t channels = operation->in.channels;
    size_t size = net_size(&operation->in);
    train_real_t factor = (train_real_t)channels / (train_real_t)size;

    for (size_t i = 0; i < batch; i++) {
        const train_real_t *restrict delta = operation->to_delta + i * channels;
        train_real_t *restrict below = operation->from_delta + i * size;

        for (size_t p = 0; p < size; p += channels)
            for (size_t c = 0; c < channels; c++)
                below[p + c] = (operation->adds ? below[p + c] : 0) + delta[c] * factor;
    }
    return WEFT_OK;
}

const struct operation_kind operation_mean = {
    .cpu = {mean_forward, mean_backward},
    .work = pointwise_work,
};
