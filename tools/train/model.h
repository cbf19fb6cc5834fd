/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model that is trained: a net (net.h) with softmax and cross-entropy at its end, and stochastic
 * gradient descent with momentum. Its parameters are a list of tensors, those of each layer in
 * turn, one behind the other in memory; so are its gradients. While a gradient is computed, a
 * watcher hears of each layer.
 */
#ifndef WEFT_TOOLS_TRAIN_MODEL_H
#define WEFT_TOOLS_TRAIN_MODEL_H

#include "tools/train/net.h"
#include "tools/train/real.h"

#include <stddef.h>
#include <stdint.h>
#include <weft/compressed_average.h>
#include <weft/weft.h>

struct model;
struct backend;

/** A layer: its tensors, and additions and multiplications of an image. */
struct model_layer {
    const char *name;
    size_t first_tensor, tensor_count;
    size_t elements;
    double forward_work, backward_work;
};

/** Who hears of layers while a gradient is computed. Functions that are NULL are not called;
 *  anything but WEFT_OK that one returns ends the computation. */
struct model_watcher {
    /** The forward pass is about to use the layer's parameters, and then has used them. Layers in
     *  the order of the model. */
    int (*begins)(void *user, size_t layer);
    int (*passed)(void *user, size_t layer);
    /** Scores are there, and the backward pass begins. */
    int (*turns)(void *user);
    /** The layer's gradients are there, and not read or written any more. Last layer first. */
    int (*ready)(void *user, size_t layer);
    void *user;
};

/**
 * Makes a model. Weights are drawn from @p seed (He et al. 2015, normal), biases are 0, gains 1.
 * @param batch most images that one call of model_gradient() handles.
 * @return WEFT_OK, WEFT_ERR_INVALID, WEFT_ERR_MEMORY.
 */
int model_create(struct model **model, const struct net_config *config, size_t batch,
                 uint64_t seed);
/** The same, of tensors in memory that the transport of @p context moves best; it outlives the
 *  model. */
int model_create_in(struct model **model, struct weft_context *context,
                    const struct net_config *config, size_t batch, uint64_t seed);

/** The same, computed by @p backend, in its memory. The backend is the model's, also if this fails.
 *  @return besides these, what the backend has to say. */
int model_create_by(struct model **model, struct backend *backend, const struct net_config *config,
                    size_t batch, uint64_t seed);

/** NULL is accepted. */
void model_destroy(struct model *model);

/** Who computes it (backend.h): the model's. */
struct backend *model_backend(struct model *model);

size_t model_tensor_count(const struct model *model);
/** Lists of model_tensor_count() tensors with equal counts, owned by the model, one behind the
 *  other in the memory of its backend. */
const struct weft_piece *model_parameters(struct model *model);
const struct weft_piece *model_gradients(struct model *model);
/** Elements of all tensors together. */
size_t model_parameter_count(const struct model *model);

/** Shape and layout of a tensor. */
void model_get_shape(const struct model *model, size_t tensor, struct weft_tensor_shape *shape);

size_t model_layer_count(const struct model *model);
void model_get_layer(const struct model *model, size_t layer, struct model_layer *result);

/* ---- what is computed: WEFT_OK, or what the backend has to say; the processor always can ---- */

/**
 * Computes the gradient of the mean loss over @p batch images (rows of the image's numbers).
 * @param watcher NULL: nobody.
 * @param loss the mean loss. Written only on success. NULL: it is not waited for.
 * @return also what the watcher returned.
 */
int model_gradient(struct model *model, const train_real_t *images, const uint8_t *labels,
                   size_t batch, const struct model_watcher *watcher, double *loss);

/** The mean loss of the last gradient. */
int model_loss(struct model *model, double *loss);

/** v = momentum v + gradient, w = w - rate v, for every parameter, or those of a layer. */
int model_update(struct model *model, float rate, float momentum);
int model_update_layer(struct model *model, size_t layer, float rate, float momentum);

/** The share of @p rows images that are classified right. */
int model_accuracy(struct model *model, const train_real_t *images, const uint8_t *labels,
                   size_t rows, double *accuracy);

/** Copies all parameters to or from model_parameter_count() numbers. */
int model_save(struct model *model, train_real_t *flat);
int model_load(struct model *model, const train_real_t *flat);

/** Copies parameters and velocities to or from 2 model_parameter_count() numbers. */
int model_save_all(struct model *model, train_real_t *flat);
int model_load_all(struct model *model, const train_real_t *flat);

/** A checksum of the bits of all parameters. */
int model_checksum(struct model *model, uint64_t *sum);

#endif
