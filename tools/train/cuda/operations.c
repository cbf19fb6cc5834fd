/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations that are no products: each is a kernel or two. */
#include "tools/train/cuda/device.h"
#include "tools/train/cuda/shapes.h"

static struct train_cuda *cuda_of(const struct operation *operation)
{
    return train_cuda_of(operation->backend);
}

/* ---- relu, in place ---- */

static int relu_forward(const struct operation *operation, size_t batch)
{
    uint64_t count = batch * net_size(&operation->out);

    return TRAIN_CUDA_LAUNCH(cuda_of(operation), train_relu, count, (void *)&operation->to, &count);
}

static int relu_backward(const struct operation *operation, size_t batch)
{
    uint64_t count = batch * net_size(&operation->out);

    return TRAIN_CUDA_LAUNCH(cuda_of(operation), train_relu_back, count,
                             (void *)&operation->to_delta, (void *)&operation->to, &count);
}

const struct operation_passes train_cuda_relu = {relu_forward, relu_backward};

/* ---- add, in place ---- */

static int add(const struct operation *operation, float *to, const float *other, size_t batch)
{
    uint64_t count = batch * net_size(&operation->out);

    return TRAIN_CUDA_LAUNCH(cuda_of(operation), train_add, count, &to, (void *)&other, &count);
}

static int add_forward(const struct operation *operation, size_t batch)
{
    return add(operation, operation->to, operation->other, batch);
}

static int add_backward(const struct operation *operation, size_t batch)
{
    if (operation->adds_other)
        return add(operation, operation->other_delta, operation->to_delta, batch);
    return train_cuda_copy(cuda_of(operation), operation->other_delta, operation->to_delta,
                           batch * net_size(&operation->out) * sizeof(float));
}

const struct operation_passes train_cuda_add = {add_forward, add_backward};

/* ---- pool ---- */

static struct train_image image_of(const struct operation *operation)
{
    return (struct train_image){(uint32_t)operation->in.rows, (uint32_t)operation->in.columns,
                                (uint32_t)operation->in.channels};
}

static int pool_forward(const struct operation *operation, size_t batch)
{
    struct train_image in = image_of(operation);
    uint64_t count = batch * net_size(&operation->out);

    return TRAIN_CUDA_LAUNCH(cuda_of(operation), train_pool, count, (void *)&operation->to,
                             (void *)&operation->from, &in, &count);
}

static int pool_backward(const struct operation *operation, size_t batch)
{
    struct train_image in = image_of(operation);
    uint64_t count = batch * net_size(&operation->in);
    int adds = operation->adds;

    return TRAIN_CUDA_LAUNCH(cuda_of(operation), train_pool_back, count,
                             (void *)&operation->from_delta, (void *)&operation->to_delta,
                             (void *)&operation->from, &in, &adds, &count);
}

const struct operation_passes train_cuda_pool = {pool_forward, pool_backward};

/* ---- mean of all pixels ---- */

/* In the words of the processor, and so with its bits. */
static float mean_factor(const struct operation *operation)
{
    return (float)operation->in.channels / (float)net_size(&operation->in);
}

static int mean_forward(const struct operation *operation, size_t batch)
{
    uint64_t channels = operation->in.channels, pixels = net_size(&operation->in) / channels;
    uint64_t count = batch * channels;
    float factor = mean_factor(operation);

    return TRAIN_CUDA_LAUNCH(cuda_of(operation), train_mean, count, (void *)&operation->to,
                             (void *)&operation->from, &pixels, &channels, &factor, &count);
}

static int mean_backward(const struct operation *operation, size_t batch)
{
    uint64_t channels = operation->in.channels, pixels = net_size(&operation->in) / channels;
    uint64_t count = batch * net_size(&operation->in);
    float factor = mean_factor(operation);
    int adds = operation->adds;

    return TRAIN_CUDA_LAUNCH(cuda_of(operation), train_mean_back, count,
                             (void *)&operation->from_delta, (void *)&operation->to_delta, &pixels,
                             &channels, &factor, &adds, &count);
}

const struct operation_passes train_cuda_mean = {mean_forward, mean_backward};

/* ---- group normalisation ---- */

/* What its kernels take of the shape. */
struct norm {
    uint64_t images;
    uint32_t pixels, channels, width;
    float factor;
};

static struct norm norm_of(const struct operation *operation, size_t batch)
{
    const struct net_shape *shape = &operation->in;
    size_t width = operation_norm_width(shape);
    size_t pixels = shape->rows * shape->columns;

    return (struct norm){batch, (uint32_t)pixels, (uint32_t)shape->channels, (uint32_t)width,
                         1.0f / (float)(pixels * width)};
}

/* A block for each image. */
static int norm_forward(const struct operation *operation, size_t batch)
{
    struct norm norm = norm_of(operation, batch);
    float epsilon = OPERATION_NORM_EPSILON;

    return TRAIN_CUDA_LAUNCH(cuda_of(operation), train_norm, norm.images * TRAIN_CUDA_THREADS,
                             (void *)&operation->to, (void *)&operation->from,
                             (void *)&operation->parameters[0], (void *)&operation->parameters[1],
                             (void *)&operation->kept, (void *)&operation->scratch, &norm.images,
                             &norm.pixels, &norm.channels, &norm.width, &norm.factor, &epsilon);
}

static int norm_backward(const struct operation *operation, size_t batch)
{
    struct norm norm = norm_of(operation, batch);
    uint64_t channels = norm.channels;
    int adds = operation->adds;

    norm.factor =
        (float)channels / (float)(net_size(&operation->in) * operation_norm_width(&operation->in));
    TRAIN_CUDA_LAUNCH(cuda_of(operation), train_norm_back, norm.images * TRAIN_CUDA_THREADS,
                      (void *)&operation->from_delta, (void *)&operation->to_delta,
                      (void *)&operation->from, (void *)&operation->parameters[0],
                      (void *)&operation->kept, (void *)&operation->scratch, &adds, &norm.images,
                      &norm.pixels, &norm.channels, &norm.width, &norm.factor);
    return TRAIN_CUDA_LAUNCH(cuda_of(operation), train_norm_sums, channels,
                             (void *)&operation->gradients[0], (void *)&operation->gradients[1],
                             (void *)&operation->scratch, &norm.images, &channels);
}

const struct operation_passes train_cuda_norm = {norm_forward, norm_backward};
