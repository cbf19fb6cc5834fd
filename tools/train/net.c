/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of operations. Room for all is made at once, so that appending cannot fail. */
#include "tools/train/net.h"

#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

static size_t add_value(struct net *net, size_t rows, size_t columns, size_t channels)
{
    net->values[net->value_count] = (struct net_shape){rows, columns, channels};
    return net->value_count++;
}

static struct net_operation *add_operation(struct net *net, enum net_kind kind, size_t from,
                                           size_t to)
{
    struct net_operation *operation = &net->operations[net->operation_count++];

    *operation = (struct net_operation){.kind = kind, .from = from, .to = to};
    operation->layer = net->layer_count ? net->layer_count - 1 : 0;
    return operation;
}

/* The operation that was added last begins a layer. `second` elements: 0 is none. */
static void add_layer(struct net *net, const char *name, size_t first, size_t second, size_t inputs)
{
    struct net_layer *layer = &net->layers[net->layer_count];

    *layer = (struct net_layer){.operation = net->operation_count - 1,
                                .first_tensor = net->tensor_count,
                                .tensor_count = second ? 2 : 1,
                                .elements = {first, second},
                                .inputs = inputs};
    snprintf(layer->name, sizeof layer->name, "%s%s%zu", net->part, name, ++net->part_layers);
    net->operations[net->operation_count - 1].layer = net->layer_count++;
    net->tensor_count += layer->tensor_count;
    net->parameter_count += first + second;
}

size_t net_dense(struct net *net, size_t from, size_t outputs)
{
    size_t inputs = net_size(&net->values[from]);
    size_t to = add_value(net, 1, 1, outputs);

    add_operation(net, NET_DENSE, from, to)->bias = 1;
    add_layer(net, "dense", outputs * inputs, outputs, inputs);
    return to;
}

size_t net_convolution(struct net *net, size_t from, size_t channels, size_t window, size_t stride,
                       int bias)
{
    struct net_shape in = net->values[from];
    size_t inputs = window * window * in.channels;
    size_t to = add_value(net, (in.rows + stride - 1) / stride, (in.columns + stride - 1) / stride,
                          channels);
    struct net_operation *operation = add_operation(net, NET_CONVOLUTION, from, to);

    operation->window = window;
    operation->stride = stride;
    operation->bias = bias;
    add_layer(net, "conv", channels * inputs, bias ? channels : 0, inputs);
    return to;
}

size_t net_norm(struct net *net, size_t from)
{
    struct net_shape in = net->values[from];
    size_t to = add_value(net, in.rows, in.columns, in.channels);

    add_operation(net, NET_NORM, from, to);
    add_layer(net, "norm", in.channels, in.channels, 0);
    return to;
}

size_t net_relu(struct net *net, size_t from)
{
    add_operation(net, NET_RELU, from, from);
    return from;
}

size_t net_add(struct net *net, size_t from, size_t other)
{
    add_operation(net, NET_ADD, from, from)->other = other;
    return from;
}

size_t net_pool(struct net *net, size_t from)
{
    struct net_shape in = net->values[from];
    size_t to = add_value(net, in.rows / 2, in.columns / 2, in.channels);

    add_operation(net, NET_POOL, from, to);
    return to;
}

size_t net_mean(struct net *net, size_t from)
{
    size_t to = add_value(net, 1, 1, net->values[from].channels);

    add_operation(net, NET_MEAN, from, to);
    return to;
}

void net_part(struct net *net, const char *prefix, size_t number)
{
    net->part_layers = 0;
    if (number)
        snprintf(net->part, sizeof net->part, "%s%zu.", prefix, number);
    else
        snprintf(net->part, sizeof net->part, "%s", prefix);
}

/* Sizes are ints to BLAS; this bound also keeps every product in range. */
static int check(const struct net_config *config)
{
    const size_t most = 1u << 24;
    size_t pixels = net_size(&config->image);

    for (size_t i = 0; config->architecture->has_hidden && i < config->hidden_count; i++) {
        if (config->hidden[i] < 1 || config->hidden[i] > most) {
            return weft_error_set(WEFT_ERR_INVALID, "hidden width %zu is %zu; expected 1..%zu", i,
                                  config->hidden[i], most);
        }
    }
    if (pixels < 1 || pixels > most || config->classes < 1 || config->classes > most) {
        return weft_error_set(WEFT_ERR_INVALID,
                              "%zu numbers an image and %zu classes; expected 1..%zu of both",
                              pixels, config->classes, most);
    }
    if (!config->architecture->has_hidden && (config->channels < 1 || config->channels > 4096))
        return weft_error_set(WEFT_ERR_INVALID, "%zu channels; expected 1..4096", config->channels);
    return WEFT_OK;
}

int net_create(struct net **net, const struct net_config *config)
{
    int status = check(config);

    if (status != WEFT_OK)
        return status;
    struct net *made = weft_memory_alloc(1, sizeof *made);
    if (!made)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a net");
    made->capacity = config->architecture->operations(config);
    made->operations = weft_memory_alloc(made->capacity, sizeof *made->operations);
    made->layers = weft_memory_alloc(made->capacity, sizeof *made->layers);
    made->values = weft_memory_alloc(made->capacity + 1, sizeof *made->values);
    if (!made->operations || !made->layers || !made->values) {
        size_t wanted = made->capacity;
        net_destroy(made);
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a net of %zu operations", wanted);
    }
    add_value(made, config->image.rows, config->image.columns, config->image.channels);
    config->architecture->build(made, config);
    *net = made;
    return WEFT_OK;
}

void net_destroy(struct net *net)
{
    if (!net)
        return;
    weft_memory_free(net->values);
    weft_memory_free(net->layers);
    weft_memory_free(net->operations);
    weft_memory_free(net);
}
