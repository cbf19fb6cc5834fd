/* SPDX-License-Identifier: BSD-3-Clause */
/* The processor as a backend: what is asked for is done at once, and does not fail. */
#include "tools/train/backend.h"

#include <string.h>
#include <weft/weft.h>

struct cpu {
    struct backend backend;       /* first */
    struct weft_context *context; /* or NULL */
    const uint8_t *labels;
    double loss;
};

static const struct operation_passes *const passes[NET_KINDS] = {
    [NET_DENSE] = &operation_dense.cpu, [NET_CONVOLUTION] = &operation_convolution.cpu,
    [NET_NORM] = &operation_norm.cpu,   [NET_RELU] = &operation_relu.cpu,
    [NET_ADD] = &operation_add.cpu,     [NET_POOL] = &operation_pool.cpu,
    [NET_MEAN] = &operation_mean.cpu,
};

static struct cpu *cpu_of(struct backend *backend)
{
    return (struct cpu *)backend;
}

/* ---- memory ---- */

static int alloc(struct backend *backend, size_t count, int sent, train_real_t **memory)
{
    struct weft_context *context = cpu_of(backend)->context;
    train_real_t *made = sent && context ? weft_context_memory_alloc(context, count, sizeof *made)
                                         : weft_memory_alloc(count, sizeof *made);

    if (!made)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu numbers", count);
    *memory = made;
    return WEFT_OK;
}

static void release(struct backend *backend, train_real_t *memory, int sent)
{
    struct weft_context *context = cpu_of(backend)->context;

    if (sent && context)
        weft_context_memory_free(context, memory);
    else
        weft_memory_free(memory);
}

static int load(struct backend *backend, const train_real_t *images, size_t numbers,
                const uint8_t *labels, size_t batch)
{
    (void)numbers, (void)batch;
    backend->images = images;
    cpu_of(backend)->labels = labels;
    return WEFT_OK;
}

/* ---- scores ---- */

/* Of an image; returns its loss. */
static double softmax_cross_entropy(const train_real_t *scores, train_real_t *delta, size_t classes,
                                    size_t label, size_t batch)
{
    train_real_t highest = scores[0];
    train_real_t sum = 0;

    for (size_t i = 1; i < classes; i++)
        highest = scores[i] > highest ? scores[i] : highest;
    for (size_t i = 0; i < classes; i++) {
        delta[i] = train_exp(scores[i] - highest);
        sum += delta[i];
    }
    for (size_t i = 0; i < classes; i++)
        delta[i] = (delta[i] / sum - (train_real_t)(i == label)) / (train_real_t)batch;
    return log((double)sum) - (double)(scores[label] - highest);
}

static int derive_scores(struct backend *backend, const struct operation *last, size_t batch)
{
    const uint8_t *labels = cpu_of(backend)->labels;
    size_t classes = last->out.channels;
    double loss = 0.0;

    for (size_t row = 0; row < batch; row++)
        loss += softmax_cross_entropy(last->to + row * classes, last->to_delta + row * classes,
                                      classes, labels[row], batch);
    cpu_of(backend)->loss = loss / (double)batch;
    return WEFT_OK;
}

static int end_gradient(struct backend *backend)
{
    (void)backend;
    return WEFT_OK;
}

static int loss_of(struct backend *backend, double *loss)
{
    *loss = cpu_of(backend)->loss;
    return WEFT_OK;
}

static int count_right(struct backend *backend, const struct operation *last, size_t batch,
                       size_t *right)
{
    const uint8_t *labels = cpu_of(backend)->labels;
    size_t classes = last->out.channels;
    size_t count = 0;

    for (size_t row = 0; row < batch; row++) {
        const train_real_t *scores = last->to + row * classes;
        size_t best = 0;

        for (size_t i = 1; i < classes; i++)
            best = scores[i] > scores[best] ? i : best;
        count += best == labels[row];
    }
    *right = count;
    return WEFT_OK;
}

/* ---- vectors ---- */

static int update(struct backend *backend, train_real_t *restrict weights,
                  train_real_t *restrict velocities, const train_real_t *restrict gradients,
                  size_t count, train_real_t rate, train_real_t momentum)
{
    (void)backend;
    for (size_t i = 0; i < count; i++) {
        velocities[i] = momentum * velocities[i] + gradients[i];
        weights[i] -= rate * velocities[i];
    }
    return WEFT_OK;
}

static int clear(struct backend *backend, train_real_t *to, size_t count)
{
    (void)backend;
    memset(to, 0, count * sizeof *to);
    return WEFT_OK;
}

static int copy(struct backend *backend, train_real_t *to, const train_real_t *from, size_t count)
{
    (void)backend;
    memcpy(to, from, count * sizeof *to);
    return WEFT_OK;
}

static int scale(struct backend *backend, train_real_t *to, const train_real_t *from,
                 train_real_t factor, size_t count)
{
    (void)backend;
    for (size_t i = 0; i < count; i++)
        to[i] = from[i] * factor;
    return WEFT_OK;
}

static int shift(struct backend *backend, train_real_t *data, const train_real_t *sum,
                 train_real_t factor, const train_real_t *posted, size_t count)
{
    (void)backend;
    for (size_t i = 0; i < count; i++) {
        train_real_t mean = sum[i] * factor;

        data[i] += mean - posted[i];
    }
    return WEFT_OK;
}

static int swap(struct backend *backend, train_real_t *a, train_real_t *b, size_t count)
{
    (void)backend;
    for (size_t i = 0; i < count; i++) {
        train_real_t kept = a[i];

        a[i] = b[i];
        b[i] = kept;
    }
    return WEFT_OK;
}

static int settle(struct backend *backend)
{
    (void)backend;
    return WEFT_OK;
}

static void destroy(struct backend *backend)
{
    weft_memory_free(backend);
}

static const struct backend_ops ops = {
    .passes = passes,
    .alloc = alloc,
    .free = release,
    .load = load,
    .derive_scores = derive_scores,
    .end_gradient = end_gradient,
    .loss = loss_of,
    .count_right = count_right,
    .update = update,
    .clear = clear,
    .copy = copy,
    .scale = scale,
    .shift = shift,
    .swap = swap,
    .get = copy,
    .put = copy,
    .settle = settle,
    .destroy = destroy,
};

int backend_create_cpu(struct backend **backend, struct weft_context *context)
{
    struct cpu *cpu = weft_memory_alloc(1, sizeof *cpu);

    if (!cpu)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a backend");
    cpu->backend.ops = &ops;
    cpu->context = context;
    *backend = &cpu->backend;
    return WEFT_OK;
}
