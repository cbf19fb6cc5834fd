/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layer l maps activations[l] (batch x widths[l]) to activations[l + 1]:
 *
 *     A[l+1] = relu(A[l] W[l]^T + b[l])           (no relu after the last layer)
 *     dW[l]  = D[l+1]^T A[l],  db[l] = column sums of D[l+1]
 *     D[l]   = (D[l+1] W[l]) where A[l] > 0
 *
 * with D[last] = (softmax(A[last]) - onehot) / batch. The products are BLAS's; all other loops are
 * plain and in a fixed order, so equal inputs give equal bits.
 */
#include "tools/train/mlp.h"

#include "tools/train/random.h"

#include <cblas.h>
#include <string.h>

struct mlp {
    size_t layers;
    size_t batch;
    size_t parameter_count;
    size_t *widths;
    struct weft_piece *parameters;
    struct weft_piece *gradients;
    struct weft_piece *velocities;
    /** layers + 1 each; activations[0] is the caller's and deltas[0] is not used. */
    float **activations;
    float **deltas;
};

static struct weft_piece *create_tensors(const struct mlp *model)
{
    struct weft_piece *tensors = weft_memory_alloc(2 * model->layers, sizeof *tensors);

    if (!tensors)
        return NULL;
    for (size_t i = 0; i < 2 * model->layers; i++) {
        size_t out = model->widths[i / 2 + 1];
        tensors[i].count = i % 2 == 0 ? out * model->widths[i / 2] : out;
        tensors[i].data = weft_memory_alloc(tensors[i].count, sizeof(float));
    }
    return tensors;
}

static void destroy_tensors(const struct mlp *model, struct weft_piece *tensors)
{
    for (size_t i = 0; tensors && i < 2 * model->layers; i++)
        weft_memory_free(tensors[i].data);
    weft_memory_free(tensors);
}

static int tensors_complete(const struct mlp *model, const struct weft_piece *tensors)
{
    for (size_t i = 0; tensors && i < 2 * model->layers; i++)
        if (!tensors[i].data)
            return 0;
    return tensors != NULL;
}

static void draw_weights(struct mlp *model, uint64_t seed)
{
    for (size_t layer = 0; layer < model->layers; layer++) {
        struct train_random random = train_random_make(seed, TRAIN_RANDOM_WEIGHTS, layer, 0);
        double deviation = sqrt(2.0 / (double)model->widths[layer]);
        float *weights = model->parameters[2 * layer].data;

        for (size_t i = 0; i < model->parameters[2 * layer].count; i++)
            weights[i] = (float)(deviation * train_random_normal(&random));
    }
}

/* Allocates everything; what is missing afterwards is NULL somewhere and found by the caller. */
static int allocate(struct mlp *model, const size_t *widths)
{
    size_t levels = model->layers + 1;

    model->widths = weft_memory_alloc(levels, sizeof *model->widths);
    model->activations = weft_memory_alloc(levels, sizeof *model->activations);
    model->deltas = weft_memory_alloc(levels, sizeof *model->deltas);
    if (!model->widths || !model->activations || !model->deltas)
        return 0;
    memcpy(model->widths, widths, levels * sizeof *widths);
    for (size_t level = 1; level < levels; level++) {
        model->activations[level] = weft_memory_alloc(model->batch * widths[level], sizeof(float));
        model->deltas[level] = weft_memory_alloc(model->batch * widths[level], sizeof(float));
        if (!model->activations[level] || !model->deltas[level])
            return 0;
    }
    model->parameters = create_tensors(model);
    model->gradients = create_tensors(model);
    model->velocities = create_tensors(model);
    return tensors_complete(model, model->parameters) &&
           tensors_complete(model, model->gradients) && tensors_complete(model, model->velocities);
}

int mlp_create(struct mlp **model, const size_t *widths, size_t count, size_t batch, uint64_t seed)
{
    /* Widths and batches are ints to BLAS; this bound also keeps every product below in range. */
    const size_t most = 1u << 24;

    for (size_t i = 0; i < count; i++) {
        if (widths[i] < 1 || widths[i] > most) {
            return weft_error_set(WEFT_ERR_INVALID, "width %zu is %zu; expected 1..%zu", i,
                                  widths[i], most);
        }
    }
    if (count < 2 || batch < 1 || batch > most) {
        return weft_error_set(WEFT_ERR_INVALID,
                              "%zu widths, batch %zu; expected at least 2 and 1..%zu", count, batch,
                              most);
    }
    struct mlp *made = weft_memory_alloc(1, sizeof *made);
    if (made) {
        made->layers = count - 1;
        made->batch = batch;
    }
    if (!made || !allocate(made, widths)) {
        mlp_destroy(made);
        return weft_error_set(WEFT_ERR_MEMORY,
                              "no memory for a perceptron of %zu layers and a "
                              "batch of %zu",
                              count - 1, batch);
    }
    for (size_t i = 0; i < 2 * made->layers; i++)
        made->parameter_count += made->parameters[i].count;
    draw_weights(made, seed);
    *model = made;
    return WEFT_OK;
}

void mlp_destroy(struct mlp *model)
{
    if (!model)
        return;
    destroy_tensors(model, model->velocities);
    destroy_tensors(model, model->gradients);
    destroy_tensors(model, model->parameters);
    for (size_t level = 1; level <= model->layers; level++) {
        if (model->deltas)
            weft_memory_free(model->deltas[level]);
        if (model->activations)
            weft_memory_free(model->activations[level]);
    }
    weft_memory_free(model->deltas);
    weft_memory_free(model->activations);
    weft_memory_free(model->widths);
    weft_memory_free(model);
}

size_t mlp_tensor_count(const struct mlp *model)
{
    return 2 * model->layers;
}

const struct weft_piece *mlp_parameters(struct mlp *model)
{
    return model->parameters;
}

const struct weft_piece *mlp_gradients(struct mlp *model)
{
    return model->gradients;
}

size_t mlp_parameter_count(const struct mlp *model)
{
    return model->parameter_count;
}

static void forward(struct mlp *model, const float *images, size_t batch)
{
    for (size_t layer = 0; layer < model->layers; layer++) {
        size_t in = model->widths[layer];
        size_t out = model->widths[layer + 1];
        const float *from = layer == 0 ? images : model->activations[layer];
        float *to = model->activations[layer + 1];
        const float *biases = model->parameters[2 * layer + 1].data;

        for (size_t row = 0; row < batch; row++)
            memcpy(to + row * out, biases, out * sizeof(float));
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)batch, (int)out, (int)in, 1.0f,
                    from, (int)in, model->parameters[2 * layer].data, (int)in, 1.0f, to, (int)out);
        for (size_t i = 0; layer + 1 < model->layers && i < batch * out; i++)
            to[i] = to[i] > 0.0f ? to[i] : 0.0f;
    }
}

/* Writes the gradient at the outputs to the last deltas; returns the mean loss. */
static double softmax_cross_entropy(struct mlp *model, const uint8_t *labels, size_t batch)
{
    size_t classes = model->widths[model->layers];
    double loss = 0.0;

    for (size_t row = 0; row < batch; row++) {
        const float *scores = model->activations[model->layers] + row * classes;
        float *delta = model->deltas[model->layers] + row * classes;
        float highest = scores[0];
        float sum = 0.0f;

        for (size_t i = 1; i < classes; i++)
            highest = scores[i] > highest ? scores[i] : highest;
        for (size_t i = 0; i < classes; i++) {
            delta[i] = expf(scores[i] - highest);
            sum += delta[i];
        }
        loss += log((double)sum) - (double)(scores[labels[row]] - highest);
        for (size_t i = 0; i < classes; i++)
            delta[i] = (delta[i] / sum - (i == labels[row] ? 1.0f : 0.0f)) / (float)batch;
    }
    return loss / (double)batch;
}

static void backward(struct mlp *model, const float *images, size_t batch)
{
    for (size_t layer = model->layers; layer-- > 0;) {
        size_t in = model->widths[layer];
        size_t out = model->widths[layer + 1];
        const float *from = layer == 0 ? images : model->activations[layer];
        const float *delta = model->deltas[layer + 1];
        float *biases = model->gradients[2 * layer + 1].data;

        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)out, (int)in, (int)batch, 1.0f,
                    delta, (int)out, from, (int)in, 0.0f, model->gradients[2 * layer].data,
                    (int)in);
        memset(biases, 0, out * sizeof(float));
        for (size_t row = 0; row < batch; row++)
            for (size_t i = 0; i < out; i++)
                biases[i] += delta[row * out + i];
        if (layer == 0)
            break;
        float *below = model->deltas[layer];
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)batch, (int)in, (int)out, 1.0f,
                    delta, (int)out, model->parameters[2 * layer].data, (int)in, 0.0f, below,
                    (int)in);
        for (size_t i = 0; i < batch * in; i++)
            below[i] = from[i] > 0.0f ? below[i] : 0.0f;
    }
}

double mlp_gradient(struct mlp *model, const float *images, const uint8_t *labels, size_t batch)
{
    forward(model, images, batch);
    double loss = softmax_cross_entropy(model, labels, batch);
    backward(model, images, batch);
    return loss;
}

void mlp_update(struct mlp *model, float rate, float momentum)
{
    for (size_t tensor = 0; tensor < 2 * model->layers; tensor++) {
        float *restrict weights = model->parameters[tensor].data;
        float *restrict velocities = model->velocities[tensor].data;
        const float *restrict gradients = model->gradients[tensor].data;

        for (size_t i = 0; i < model->parameters[tensor].count; i++) {
            velocities[i] = momentum * velocities[i] + gradients[i];
            weights[i] -= rate * velocities[i];
        }
    }
}

double mlp_accuracy(struct mlp *model, const float *images, const uint8_t *labels, size_t rows)
{
    size_t classes = model->widths[model->layers];
    size_t right = 0;

    for (size_t first = 0; first < rows; first += model->batch) {
        size_t batch = rows - first < model->batch ? rows - first : model->batch;

        forward(model, images + first * model->widths[0], batch);
        for (size_t row = 0; row < batch; row++) {
            const float *scores = model->activations[model->layers] + row * classes;
            size_t best = 0;

            for (size_t i = 1; i < classes; i++)
                best = scores[i] > scores[best] ? i : best;
            right += best == labels[first + row];
        }
    }
    return rows ? (double)right / (double)rows : 0.0;
}

void mlp_save(struct mlp *model, float *flat)
{
    for (size_t tensor = 0; tensor < 2 * model->layers; tensor++) {
        memcpy(flat, model->parameters[tensor].data,
               model->parameters[tensor].count * sizeof(float));
        flat += model->parameters[tensor].count;
    }
}

void mlp_load(struct mlp *model, const float *flat)
{
    for (size_t tensor = 0; tensor < 2 * model->layers; tensor++) {
        memcpy(model->parameters[tensor].data, flat,
               model->parameters[tensor].count * sizeof(float));
        flat += model->parameters[tensor].count;
    }
}

uint64_t mlp_checksum(struct mlp *model)
{
    uint64_t sum = 0;

    for (size_t tensor = 0; tensor < 2 * model->layers; tensor++) {
        const float *weights = model->parameters[tensor].data;

        for (size_t i = 0; i < model->parameters[tensor].count; i++) {
            uint32_t bits;
            memcpy(&bits, &weights[i], sizeof bits);
            sum = train_random_mix(sum + bits + UINT64_C(0x9e3779b97f4a7c15));
        }
    }
    return sum;
}
