/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A value has two arrays: what it is, and the derivative of the loss by it. The last operation that
 * uses a value is the first to write its derivative, those before it add to it. The gradient at
 * the scores is (softmax - onehot) / batch.
 */
#include "tools/train/model.h"

#include "tools/train/backend.h"
#include "tools/train/random.h"

#include <stdio.h>
#include <string.h>

struct model {
    struct backend *backend;
    struct net *net;
    size_t batch;
    struct weft_piece *parameters;
    struct weft_piece *gradients;
    struct weft_piece *velocities;
    struct operation *operations;
    /** What all tensors are in: parameters, and `stride` numbers behind them gradients, then
     *  velocities; and all values. */
    train_real_t *tensors;
    size_t stride;
    train_real_t *memory;
};

/* What is brought to the backend, or from there, at once. */
enum { PART = 1024 };

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

    model->stride = round_up(net->parameter_count);
    model->parameters = weft_memory_alloc(count, 3 * sizeof *model->parameters);
    if (!model->parameters)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for lists of %zu tensors", count);
    int status = model->backend->ops->alloc(model->backend, 3 * model->stride, 1, &model->tensors);
    if (status != WEFT_OK)
        return status;
    model->gradients = model->parameters + count;
    model->velocities = model->gradients + count;
    train_real_t *at = model->tensors;
    for (size_t l = 0; l < net->layer_count; l++) {
        for (size_t i = 0; i < net->layers[l].tensor_count; i++) {
            size_t tensor = net->layers[l].first_tensor + i;
            size_t elements = net->layers[l].elements[i];
            model->parameters[tensor] = (struct weft_piece){at, elements};
            model->gradients[tensor] = (struct weft_piece){at + model->stride, elements};
            model->velocities[tensor] = (struct weft_piece){at + 2 * model->stride, elements};
            at += elements;
        }
    }
    return WEFT_OK;
}

static void describe_operations(struct model *model)
{
    const struct net *net = model->net;

    for (size_t i = 0; i < net->operation_count; i++) {
        const struct net_operation *is = &net->operations[i];
        const struct net_layer *layer = &net->layers[is->layer];
        struct operation *operation = &model->operations[i];

        *operation = (struct operation){.is = is,
                                        .in = net->values[is->from],
                                        .out = net->values[is->to],
                                        .backend = model->backend};
        for (size_t t = 0; t < layer->tensor_count && layer->operation == i; t++) {
            operation->parameters[t] = model->parameters[layer->first_tensor + t].data;
            operation->gradients[t] = model->gradients[layer->first_tensor + t].data;
        }
    }
}

/* Who is the first to write a derivative, going backwards. */
static int find_order(struct model *model)
{
    const struct net *net = model->net;
    char *written = weft_memory_alloc(net->value_count, 1);

    if (!written)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the order of %zu operations",
                              net->operation_count);
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
    return WEFT_OK;
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
    size_t operations = model->net->operation_count;

    model->operations = weft_memory_alloc(operations, sizeof *model->operations);
    if (!model->operations)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu operations", operations);
    int status = create_tensors(model);
    if (status != WEFT_OK)
        return status;
    describe_operations(model);
    status = find_order(model);
    if (status == WEFT_OK)
        status = model->backend->ops->alloc(model->backend, place_values(model, NULL), 0,
                                            &model->memory);
    if (status == WEFT_OK)
        place_values(model, model->memory);
    return status;
}

/* Of a tensor, so that all is drawn in one order however it is brought there. */
static int draw_tensor(struct model *model, const struct net_layer *layer,
                       struct train_random *random)
{
    double deviation = layer->inputs ? sqrt(2.0 / (double)layer->inputs) : 0.0;
    train_real_t *weights = model->parameters[layer->first_tensor].data;
    train_real_t part[PART];
    int status = WEFT_OK;

    for (size_t at = 0; at < layer->elements[0] && status == WEFT_OK; at += PART) {
        size_t count = layer->elements[0] - at < PART ? layer->elements[0] - at : PART;

        for (size_t i = 0; i < count; i++)
            part[i] = layer->inputs ? (train_real_t)(deviation * train_random_normal(random)) : 1;
        status = model->backend->ops->put(model->backend, weights + at, part, count);
    }
    return status;
}

static int draw_weights(struct model *model, uint64_t seed)
{
    int status = WEFT_OK;

    for (size_t l = 0; l < model->net->layer_count && status == WEFT_OK; l++) {
        struct train_random random = train_random_make(seed, TRAIN_RANDOM_WEIGHTS, l, 0);

        status = draw_tensor(model, &model->net->layers[l], &random);
    }
    return status;
}

/* The model has the backend then. */
static int make(struct model **model, struct backend *backend, const struct net_config *config,
                size_t batch)
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
    made->backend = backend;
    made->net = net;
    made->batch = batch;
    *model = made;
    return WEFT_OK;
}

int model_create_by(struct model **model, struct backend *backend, const struct net_config *config,
                    size_t batch, uint64_t seed)
{
    struct model *made = NULL;
    int status = make(&made, backend, config, batch);

    if (status != WEFT_OK) {
        backend->ops->destroy(backend);
        return status;
    }
    status = allocate(made);
    if (status == WEFT_OK)
        status = draw_weights(made, seed);
    if (status == WEFT_OK) {
        *model = made;
        return WEFT_OK;
    }
    char text[512];
    snprintf(text, sizeof text, "%s", weft_error_text());
    weft_error_set(status, "a %s of %zu parameters and a batch of %zu: %s",
                   config->architecture->name, made->net->parameter_count, batch, text);
    model_destroy(made);
    return status;
}

int model_create_in(struct model **model, struct weft_context *context,
                    const struct net_config *config, size_t batch, uint64_t seed)
{
    struct backend *backend;
    int status = backend_create_cpu(&backend, context);

    return status == WEFT_OK ? model_create_by(model, backend, config, batch, seed) : status;
}

int model_create(struct model **model, const struct net_config *config, size_t batch, uint64_t seed)
{
    return model_create_in(model, NULL, config, batch, seed);
}

void model_destroy(struct model *model)
{
    if (!model)
        return;
    const struct backend_ops *ops = model->backend->ops;
    ops->settle(model->backend); /* what has failed has been said */
    ops->free(model->backend, model->memory, 0);
    ops->free(model->backend, model->tensors, 1);
    ops->destroy(model->backend);
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

static const struct operation_passes *passes_of(const struct operation *operation)
{
    return operation->backend->ops->passes[operation->is->kind];
}

/* Of the batch that was loaded. */
static int forward(struct model *model, size_t batch, const struct model_watcher *watcher)
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
                operation->from = model->backend->images;
            status = passes_of(operation)->forward(operation, batch);
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
        while (at > model->net->layers[l].operation && status == WEFT_OK) {
            const struct operation *operation = &model->operations[--at];
            status = passes_of(operation)->backward(operation, batch);
        }
        if (status == WEFT_OK)
            status = tell(watcher->ready, watcher, l);
    }
    return status;
}

/* The operation that makes the scores. */
static const struct operation *last_of(const struct model *model)
{
    return &model->operations[model->net->operation_count - 1];
}

static const struct model_watcher nobody;

static int load(struct model *model, const train_real_t *images, const uint8_t *labels,
                size_t batch)
{
    return model->backend->ops->load(model->backend, images,
                                     batch * net_size(&model->net->values[0]), labels, batch);
}

int model_gradient(struct model *model, const train_real_t *images, const uint8_t *labels,
                   size_t batch, const struct model_watcher *watcher, double *loss)
{
    const struct model_watcher *hears = watcher ? watcher : &nobody;
    int status = load(model, images, labels, batch);

    if (status == WEFT_OK)
        status = forward(model, batch, hears);
    if (status == WEFT_OK && hears->turns)
        status = hears->turns(hears->user);
    if (status == WEFT_OK)
        status = model->backend->ops->derive_scores(model->backend, last_of(model), batch);
    if (status == WEFT_OK)
        status = backward(model, batch, hears);
    if (status == WEFT_OK)
        status = model->backend->ops->end_gradient(model->backend);
    return status == WEFT_OK && loss ? model_loss(model, loss) : status;
}

int model_loss(struct model *model, double *loss)
{
    return model->backend->ops->loss(model->backend, loss);
}

/* Of tensors that lie one behind the other. */
static int update(struct model *model, size_t first_tensor, size_t count, float rate,
                  float momentum)
{
    return model->backend->ops->update(
        model->backend, model->parameters[first_tensor].data, model->velocities[first_tensor].data,
        model->gradients[first_tensor].data, count, (train_real_t)rate, (train_real_t)momentum);
}

int model_update_layer(struct model *model, size_t layer, float rate, float momentum)
{
    const struct net_layer *is = &model->net->layers[layer];

    return update(model, is->first_tensor, is->elements[0] + is->elements[1], rate, momentum);
}

int model_update(struct model *model, float rate, float momentum)
{
    return update(model, 0, model->net->parameter_count, rate, momentum);
}

int model_accuracy(struct model *model, const train_real_t *images, const uint8_t *labels,
                   size_t rows, double *accuracy)
{
    size_t width = net_size(&model->net->values[0]);
    size_t right = 0;

    for (size_t first = 0; first < rows; first += model->batch) {
        size_t batch = rows - first < model->batch ? rows - first : model->batch;
        size_t count = 0;
        int status = load(model, images + first * width, labels + first, batch);

        if (status == WEFT_OK)
            status = forward(model, batch, &nobody);
        if (status == WEFT_OK)
            status =
                model->backend->ops->count_right(model->backend, last_of(model), batch, &count);
        if (status != WEFT_OK)
            return status;
        right += count;
    }
    *accuracy = rows ? (double)right / (double)rows : 0.0;
    return WEFT_OK;
}

/* Parameters, and behind them velocities. */
static int save(struct model *model, train_real_t *flat, size_t lists)
{
    size_t count = model->net->parameter_count;
    int status = WEFT_OK;

    for (size_t i = 0; i < lists && status == WEFT_OK; i++)
        status = model->backend->ops->get(model->backend, flat + i * count,
                                          model->tensors + 2 * i * model->stride, count);
    return status;
}

static int load_saved(struct model *model, const train_real_t *flat, size_t lists)
{
    size_t count = model->net->parameter_count;
    int status = WEFT_OK;

    for (size_t i = 0; i < lists && status == WEFT_OK; i++)
        status = model->backend->ops->put(model->backend, model->tensors + 2 * i * model->stride,
                                          flat + i * count, count);
    return status;
}

int model_save(struct model *model, train_real_t *flat)
{
    return save(model, flat, 1);
}

int model_load(struct model *model, const train_real_t *flat)
{
    return load_saved(model, flat, 1);
}

int model_save_all(struct model *model, train_real_t *flat)
{
    return save(model, flat, 2);
}

int model_load_all(struct model *model, const train_real_t *flat)
{
    return load_saved(model, flat, 2);
}

int model_checksum(struct model *model, uint64_t *sum)
{
    size_t total = model->net->parameter_count;
    train_real_t part[PART];
    uint64_t made = 0;

    for (size_t at = 0; at < total; at += PART) {
        size_t count = total - at < PART ? total - at : PART;
        int status = model->backend->ops->get(model->backend, part, model->tensors + at, count);

        if (status != WEFT_OK)
            return status;
        for (size_t i = 0; i < count; i++) {
            float weight = (float)part[i];
            uint32_t bits;
            memcpy(&bits, &weight, sizeof bits);
            made = train_random_mix(made + bits + UINT64_C(0x9e3779b97f4a7c15));
        }
    }
    *sum = made;
    return WEFT_OK;
}

struct backend *model_backend(struct model *model)
{
    return model->backend;
}
