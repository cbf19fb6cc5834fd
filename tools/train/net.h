/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a model computes: operations over values, one after the other. Value 0 is the image, the
 * last one the scores. A value is rows x columns x channels numbers an image, channels innermost.
 *
 *     mlp       dense relu dense relu dense
 *
 *     cnn       conv relu conv relu pool conv relu pool dense
 *
 *     resnet    conv norm relu  block block block  mean dense
 *
 *     block     +-- conv norm relu conv norm --+
 *             --+                              +-- add relu --
 *               +------------------------------+               (conv norm where the shape changes)
 *
 * An operation with parameters begins a layer; what follows it without any belongs to it. Layers
 * and their tensors are in the order of the forward pass.
 */
#ifndef WEFT_TOOLS_TRAIN_NET_H
#define WEFT_TOOLS_TRAIN_NET_H

#include <stddef.h>

enum net_kind {
    /** y = x W^T + b of all of a value. Tensors: W (out x in), b. */
    NET_DENSE,
    /** The same of a window around each pixel, which beyond the border is 0. Tensors: W (out x
     *  window x window x in), and b if it has a bias. */
    NET_CONVOLUTION,
    /** Group normalisation (Wu and He, ECCV 2018), groups of 8 channels (all, where there are
     *  fewer or they do not divide). It is of each image alone: it does not depend on the batch,
     *  and there are no statistics in which ranks could differ. Tensors: gain and shift (channels
     *  each). */
    NET_NORM,
    /** max(x, 0), in place. */
    NET_RELU,
    /** Adds another value, in place. */
    NET_ADD,
    /** The largest of 2 x 2 pixels. */
    NET_POOL,
    /** The mean of all pixels. */
    NET_MEAN,
    NET_KINDS
};

struct net_shape {
    size_t rows, columns, channels;
};

struct net_operation {
    enum net_kind kind;
    /** Values; the same if it is in place. */
    size_t from, to;
    /** NET_ADD: what is added. */
    size_t other;
    /** NET_CONVOLUTION: pixels of a side of the window, odd; and from one window to the next. */
    size_t window, stride;
    int bias;
    size_t layer;
};

struct net_layer {
    char name[48];
    /** Its first. */
    size_t operation;
    /** One or two tensors, and how many elements they have. */
    size_t first_tensor, tensor_count;
    size_t elements[2];
    /** Numbers that each output is made of: for the scale of first weights. 0: not weights. */
    size_t inputs;
};

struct net {
    struct net_operation *operations;
    size_t operation_count;
    struct net_shape *values;
    size_t value_count;
    struct net_layer *layers;
    size_t layer_count;
    size_t tensor_count;
    size_t parameter_count;
    /* private */
    size_t capacity;
    char part[32];
    size_t part_layers;
};

/** An architecture and its sizes. */
struct net_config {
    const struct net_architecture *architecture;
    struct net_shape image;
    size_t classes;
    /** Of the perceptron: widths of the hidden layers. Borrowed. */
    const size_t *hidden;
    size_t hidden_count;
    /** Of the others: channels of the first convolution; later ones have up to four times as many.
     */
    size_t channels;
};

struct net_architecture {
    const char *name;
    /** One line for the help. */
    const char *summary;
    /** 1: it uses net_config.hidden; 0: net_config.channels. */
    int has_hidden;
    /** How many operations it has at most; pure. */
    size_t (*operations)(const struct net_config *config);
    void (*build)(struct net *net, const struct net_config *config);
};

/** The architectures, in the order of the help; NULL-terminated. The first is the default. */
const struct net_architecture *const *net_architectures(void);

/**
 * Makes a net. Pure but for its memory.
 * @return WEFT_OK, WEFT_ERR_INVALID (a size is 0 or above 2^24) or WEFT_ERR_MEMORY.
 */
int net_create(struct net **net, const struct net_config *config);

/** NULL is accepted. */
void net_destroy(struct net *net);

/** Numbers of a value. */
static inline size_t net_size(const struct net_shape *shape)
{
    return shape->rows * shape->columns * shape->channels;
}

/* ---- for architectures; room has been made ---- */

/** Each appends an operation on value @p from. @return the value that it makes. */
size_t net_dense(struct net *net, size_t from, size_t outputs);
size_t net_convolution(struct net *net, size_t from, size_t channels, size_t window, size_t stride,
                       int bias);
size_t net_norm(struct net *net, size_t from);
size_t net_relu(struct net *net, size_t from);
size_t net_add(struct net *net, size_t from, size_t other);
size_t net_pool(struct net *net, size_t from);
size_t net_mean(struct net *net, size_t from);

/** Names of the layers that follow begin so: "block1.". */
void net_part(struct net *net, const char *prefix, size_t number);

#endif
