/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A value has two arrays: what it is, and the derivative of the loss by it. The last operation that
 * uses a value is the first to write its derivative, those before it add to it. The gradient at
 * the scores is (softmax - onehot) / batch.
 */
#include "tools/train/model.h"

#include "tools/train/operations.h"
#include "tools/train/random.h"

#include <string.h>

struct model {
    struct weft_context *context; /* of the tensors' memory; or NULL */
    struct net *net;
    size_t batch;
    struct weft_piece *parameters;
    struct weft_piece *gradients;
    struct weft_piece *velocities;
    struct operation *operations;
    /** What all tensors and values are in. */
    train_real_t *tensors;
    train_real_t *memory;
};

static const struct operation_kind *const kinds[NET_KINDS] = {
    [NET_DENSE] = &operation_dense, [NET_CONVOLUTION] = &operation_convolution,
    [NET_NORM] = &operation_norm,   [NET_RELU] = &operation_relu,
    [NET_ADD] = &operation_add,     [NET_POOL] = &operation_pool,
    [NET_MEAN] = &operation_mean,
};

/* ---- memory ---- */

static const struct operation_kind *kind_of(const struct operation *operation)
{
    return kinds[operation->is->kind];
}

/* Arrays begin at cache lines. */
static size_t round_up(size_t count)
{
    size_t line = 64 / sizeof(train_real_t);

    return (count + line - 1) / line * line;
}

static int create_tensors(struct model *model)
{
    const struct net *net = model->net;
    size_t count = net->tensor_count;
    size_t stride = round_up(net->parameter_count);

    model->parameters = weft_memory_alloc(count, 3 * sizeof *model->parameters);
    model->tensors = model->context ? weft_context_memory_alloc(model->context, stride,
                                                                3 * sizeof *model->tensors)
                                    : weft_memory_alloc(stride, 3 * sizeof *model->tensors);
    if (!model->parameters || !model->tensors)
        return 0;
    model->gradients = model->parameters + count;
    model->velocities = model->gradients + count;
    train_real_t *at = model->tensors;
    for (size_t l = 0; l < net->layer_count; l++) {
        for (size_t i = 0; i < net->layers[l].tensor_count; i++) {
            size_t tensor = net->layers[l].first_tensor + i;
            size_t elements = net->layers[l].elements[i];
            model->parameters[tensor] = (struct weft_piece){at, elements};
            model->gradients[tensor] = (struct weft_piece){at + stride, elements};
            model->velocities[tensor] = (struct weft_piece){at + 2 * stride, elements};
            at += elements;
        }
    }
    return 1;
}

static void describe_operations(struct model *model)
{
    const struct net *net = model->net;

    for (size_t i = 0; i < net->operation_count; i++) {
        const struct net_operation *is = &net->operations[i];
        const struct net_layer *layer = &net->layers[is->layer];
        struct operation *operation = &model->operations[i];

        *operation =
            (struct operation){.is = is, .in = net->values[is->from], .out = net->values[is->to]};
        for (size_t t = 0; t < layer->tensor_count && layer->operation == i; t++) {
            operation->parameters[t] = model->parameters[layer->first_tensor + t].data;
            operation->gradients[t] = model->gradients[layer->first_tensor + t].data;
        }
    }
}

/* Who is the first to write a derivative, going backwards. 0: no memory. */
static int find_order(struct model *model)
{
    const struct net *net = model->net;
    char *written = weft_memory_alloc(net->value_count, 1);

    if (!written)
        return 0;
    for (size_t i = net->operation_count; i-- > 0;) {
        struct operation *operation = &model->operations[i];
        const struct net_operation *is = operation->is;

        if (is->from != is->to) {
            operation->adds = written[is->from];
            written[is->from] = 1;
        }
        if (is->kind == NET_ADD) {
            operation->adds_other = written[is->other];
            written[is->other] = 1;
        }
    }
    weft_memory_free(written);
    return 1;
}

/* Where values, derivatives, what is kept and scratch begin, from `base` on (NULL: nowhere yet).
 * Returns how many numbers that are. */
static size_t place_values(struct model *model, train_real_t *base)
{
    const struct net *net = model->net;
    size_t used = 0;
    size_t scratch = 0;

    for (size_t value = 1; value < net->value_count; value++) {
        size_t count = round_up(model->batch * net_size(&net->values[value]));
        for (size_t i = 0; base && i < net->operation_count; i++) {
            struct operation *operation = &model->operations[i];
            if (operation->is->from == value) {
                operation->from = base + used;
                operation->from_delta = base + used + count;
            }
            if (operation->is->to == value) {
                operation->to = base + used;
                operation->to_delta = base + used + count;
            }
            if (operation->is->kind == NET_ADD && operation->is->other == value) {
                operation->other = base + used;
                operation->other_delta = base + used + count;
            }
        }
        used += 2 * count;
    }
    for (size_t i = 0; i < net->operation_count; i++) {
        struct operation *operation = &model->operations[i];
        const struct operation_kind *kind = kind_of(operation);
        size_t wanted = kind->scratch ? kind->scratch(operation) : 0;

        scratch = wanted > scratch ? wanted : scratch;
        if (base)
            operation->kept = base + used;
        used += kind->kept ? round_up(model->batch * kind->kept(operation)) : 0;
    }
    for (size_t i = 0; base && i < net->operation_count; i++)
        model->operations[i].scratch = base + used;
    return used + round_up(model->batch * scratch);
}

static int allocate(struct model *model)
{
    model->operations = weft_memory_alloc(model->net->operation_count, sizeof *model->operations);
    if (!model->operations || !create_tensors(model))
        return 0;
    describe_operations(model);
    model->memory = weft_memory_alloc(place_values(model, NULL), sizeof *model->memory);
    if (!model->memory || !find_order(model))
        return 0;
    place_values(model, model->memory);
    return 1;
}

static void draw_weights(struct model *model, uint64_t seed)
{
    for (size_t l = 0; l < model->net->layer_count; l++) {
        const struct net_layer *layer = &model->net->layers[l];
        struct train_random random = train_random_make(seed, TRAIN_RANDOM_WEIGHTS, l, 0);
        double deviation = layer->inputs ? sqrt(2.0 / (double)layer->inputs) : 0.0;
        train_real_t *weights = model->parameters[layer->first_tensor].data;

        for (size_t i = 0; i < layer->elements[0]; i++)
            weights[i] =
                layer->inputs ? (train_real_t)(deviation * train_random_normal(&random)) : 1;
    }
}

int model_create_in(struct model **model, struct weft_context *context,
                    const struct net_config *config, size_t batch, uint64_t seed)
{
    const size_t most = 1u << 24;
    struct net *net;

    if (batch < 1 || batch > most)
        return weft_error_set(WEFT_ERR_INVALID, "batch %zu; expected 1..%zu", batch, most);
    int status = net_create(&net, config);
    if (status != WEFT_OK)
        return status;
    struct model *made = weft_memory_alloc(1, sizeof *made);
    if (!made) {
        net_destroy(net);
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a model");
    }
    made->context = context;
    made->net = net;
    made->batch = batch;
    if (!allocate(made)) {
        status = weft_error_set(WEFT_ERR_MEMORY,
                                "no memory for a %s of %zu parameters and a batch of %zu",
                                config->architecture->name, net->parameter_count, batch);
        model_destroy(made);
        return status;
    }
    draw_weights(made, seed);
    *model = made;
    return WEFT_OK;
}

int model_create(struct model **model, const struct net_config *config, size_t batch, uint64_t seed)
{
    return model_create_in(model, NULL, config, batch, seed);
}

void model_destroy(struct model *model)
{
    if (!model)
        return;
    weft_memory_free(model->memory);
    if (model->context)
        weft_context_memory_free(model->context, model->tensors);
    else
        weft_memory_free(model->tensors);
    weft_memory_free(model->parameters);
    weft_memory_free(model->operations);
    net_destroy(model->net);
    weft_memory_free(model);
}

/* ---- what it is ---- */

/* Of the tensor that holds an operation's weights; the others are vectors. */
static void describe_weights(const struct net *net, const struct net_layer *layer,
                             struct weft_tensor_shape *shape)
{
    const struct net_operation *operation = &net->operations[layer->operation];

    shape->outputs = layer->elements[0] / layer->inputs;
    shape->inputs = layer->inputs;
    shape->layout = WEFT_TENSOR_DENSE;
    if (operation->kind == NET_CONVOLUTION) {
        shape->layout = WEFT_TENSOR_OHWI;
        shape->height = shape->width = operation->window;
        shape->inputs = net->values[operation->from].channels;
    }
}

void model_get_shape(const struct model *model, size_t tensor, struct weft_tensor_shape *shape)
{
    const struct net *net = model->net;
    size_t l = 0;

    while (net->layers[l].first_tensor + net->layers[l].tensor_count <= tensor)
        l++;
    *shape = (struct weft_tensor_shape){.layout = WEFT_TENSOR_VECTOR};
    if (tensor == net->layers[l].first_tensor && net->layers[l].inputs)
        describe_weights(net, &net->layers[l], shape);
}

size_t model_tensor_count(const struct model *model)
{
    return model->net->tensor_count;
}

const struct weft_piece *model_parameters(struct model *model)
{
    return model->parameters;
}

const struct weft_piece *model_gradients(struct model *model)
{
    return model->gradients;
}

size_t model_parameter_count(const struct model *model)
{
    return model->net->parameter_count;
}

size_t model_layer_count(const struct model *model)
{
    return model->net->layer_count;
}

void model_get_layer(const struct model *model, size_t layer, struct model_layer *result)
{
    const struct net_layer *is = &model->net->layers[layer];

    *result = (struct model_layer){.name = is->name,
                                   .first_tensor = is->first_tensor,
                                   .tensor_count = is->tensor_count,
                                   .elements = is->elements[0] + is->elements[1]};
    for (size_t i = is->operation;
         i < model->net->operation_count && model->net->operations[i].layer == layer; i++) {
        const struct operation *operation = &model->operations[i];
        double work = kind_of(operation)->work(operation);
        /* Backward there are two products, but by the image none. */
        result->forward_work += work;
        result->backward_work += operation->is->from == 0 ? work : 2 * work;
    }
}

/* ---- passes ---- */

static int tell(int (*function)(void *user, size_t layer), const struct model_watcher *watcher,
                size_t layer)
{
    return function ? function(watcher->user, layer) : WEFT_OK;
}

static int forward(struct model *model, const train_real_t *images, size_t batch,
                   const struct model_watcher *watcher)
{
    int status = WEFT_OK;

    for (size_t l = 0; l < model->net->layer_count && status == WEFT_OK; l++) {
        status = tell(watcher->begins, watcher, l);
        for (size_t i = model->net->layers[l].operation;
             status == WEFT_OK && i < model->net->operation_count &&
             model->net->operations[i].layer == l;
             i++) {
            struct operation *operation = &model->operations[i];
            if (operation->is->from == 0)
                operation->from = images;
            kind_of(operation)->forward(operation, batch);
        }
        if (status == WEFT_OK)
            status = tell(watcher->passed, watcher, l);
    }
    return status;
}

static int backward(struct model *model, size_t batch, const struct model_watcher *watcher)
{
    size_t at = model->net->operation_count;
    int status = WEFT_OK;

    for (size_t l = model->net->layer_count; l-- > 0 && status == WEFT_OK;) {
        while (at > model->net->layers[l].operation) {
            const struct operation *operation = &model->operations[--at];
            kind_of(operation)->backward(operation, batch);
        }
        status = tell(watcher->ready, watcher, l);
    }
    return status;
}

/* The operation that makes the scores. */
static const struct operation *last_of(const struct model *model)
{
    return &model->operations[model->net->operation_count - 1];
}

/* Writes the derivatives by the scores; returns the mean loss. */
static double softmax_cross_entropy(const struct operation *last, const uint8_t *labels,
                                    size_t batch)
{
    size_t classes = last->out.channels;
    double loss = 0.0;

    for (size_t row = 0; row < batch; row++) {
        const train_real_t *scores = last->to + row * classes;
        train_real_t *delta = last->to_delta + row * classes;
        train_real_t highest = scores[0];
        train_real_t sum = 0;

        for (size_t i = 1; i < classes; i++)
            highest = scores[i] > highest ? scores[i] : highest;
        for (size_t i = 0; i < classes; i++) {
            delta[i] = train_exp(scores[i] - highest);
            sum += delta[i];
        }
        loss += log((double)sum) - (double)(scores[labels[row]] - highest);
        for (size_t i = 0; i < classes; i++)
            delta[i] = (delta[i] / sum - (train_real_t)(i == labels[row])) / (train_real_t)batch;
    }
    return loss / (double)batch;
}

static const struct model_watcher nobody;

int model_gradient(struct model *model, const train_real_t *images, const uint8_t *labels,
                   size_t batch, const struct model_watcher *watcher, double *loss)
{
    const struct model_watcher *hears = watcher ? watcher : &nobody;
    int status = forward(model, images, batch, hears);

    if (status == WEFT_OK && hears->turns)
        status = hears->turns(hears->user);
    if (status != WEFT_OK)
        return status;
    double mean = softmax_cross_entropy(last_of(model), labels, batch);
    status = backward(model, batch, hears);
    if (status == WEFT_OK)
        *loss = mean;
    return status;
}

static void update_tensor(struct model *model, size_t tensor, train_real_t rate,
                          train_real_t momentum)
{
    train_real_t *restrict weights = model->parameters[tensor].data;
    train_real_t *restrict velocities = model->velocities[tensor].data;
    const train_real_t *restrict gradients = model->gradients[tensor].data;

    for (size_t i = 0; i < model->parameters[tensor].count; i++) {
        velocities[i] = momentum * velocities[i] + gradients[i];
        weights[i] -= rate * velocities[i];
    }
}

void model_update_layer(struct model *model, size_t layer, float rate, float momentum)
{
    const struct net_layer *is = &model->net->layers[layer];

    for (size_t i = 0; i < is->tensor_count; i++)
        update_tensor(model, is->first_tensor + i, (train_real_t)rate, (train_real_t)momentum);
}

void model_update(struct model *model, float rate, float momentum)
{
    for (size_t layer = 0; layer < model->net->layer_count; layer++)
        model_update_layer(model, layer, rate, momentum);
}

double model_accuracy(struct model *model, const train_real_t *images, const uint8_t *labels,
                      size_t rows)
{
    const struct operation *last = last_of(model);
    size_t classes = last->out.channels;
    size_t width = net_size(&model->net->values[0]);
    size_t right = 0;

    for (size_t first = 0; first < rows; first += model->batch) {
        size_t batch = rows - first < model->batch ? rows - first : model->batch;

        forward(model, images + first * width, batch, &nobody);
        for (size_t row = 0; row < batch; row++) {
            const train_real_t *scores = last->to + row * classes;
            size_t best = 0;

            for (size_t i = 1; i < classes; i++)
                best = scores[i] > scores[best] ? i : best;
            right += best == labels[first + row];
        }
    }
    return rows ? (double)right / (double)rows : 0.0;
}

void model_save(struct model *model, train_real_t *flat)
{
    memcpy(flat, model->tensors, model->net->parameter_count * sizeof *flat);
}

void model_load(struct model *model, const train_real_t *flat)
{
    memcpy(model->tensors, flat, model->net->parameter_count * sizeof *flat);
}

void model_save_all(struct model *model, train_real_t *flat)
{
    size_t count = model->net->parameter_count;

    memcpy(flat, model->tensors, count * sizeof *flat);
    memcpy(flat + count, model->tensors + 2 * round_up(count), count * sizeof *flat);
}

void model_load_all(struct model *model, const train_real_t *flat)
{
    size_t count = model->net->parameter_count;

    memcpy(model->tensors, flat, count * sizeof *flat);
    memcpy(model->tensors + 2 * round_up(count), flat + count, count * sizeof *flat);
}

uint64_t model_checksum(struct model *model)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < model->net->parameter_count; i++) {
        float weight = (float)model->tensors[i];
        uint32_t bits;
        memcpy(&bits, &weight, sizeof bits);
        sum = train_random_mix(sum + bits + UINT64_C(0x9e3779b97f4a7c15));
    }
    return sum;
}
