/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A multi-layer perceptron in single precision: ReLU between the layers, softmax and cross-entropy
 * at the end, stochastic gradient descent with momentum. Its parameters and its gradients are lists
 * of tensors, each in memory of its own, as in a real framework.
 */
#ifndef WEFT_TOOLS_TRAIN_MLP_H
#define WEFT_TOOLS_TRAIN_MLP_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct mlp;

/**
 * Makes a perceptron. Weights are drawn from @p seed (He et al. 2015, normal), biases are 0.
 * @param widths inputs, hidden widths, outputs: @p count >= 2 numbers >= 1. Copied.
 * @param batch most images that one call of mlp_gradient() handles.
 * @return WEFT_OK, WEFT_ERR_INVALID, WEFT_ERR_MEMORY.
 */
int mlp_create(struct mlp **model, const size_t *widths, size_t count, size_t batch, uint64_t seed);
void mlp_destroy(struct mlp *model);

/** The tensors: weights (out x in, row-major) and biases (out) of each layer in turn. */
size_t mlp_tensor_count(const struct mlp *model);
/** Lists of mlp_tensor_count() tensors with equal counts, owned by the model. */
const struct weft_piece *mlp_parameters(struct mlp *model);
const struct weft_piece *mlp_gradients(struct mlp *model);
/** Elements of all tensors together. */
size_t mlp_parameter_count(const struct mlp *model);

/**
 * Computes the gradient of the mean loss over @p batch images (rows of the first width's floats).
 * @return the mean loss.
 */
double mlp_gradient(struct mlp *model, const float *images, const uint8_t *labels, size_t batch);

/** v = momentum v + gradient, w = w - rate v, for every parameter. */
void mlp_update(struct mlp *model, float rate, float momentum);

/** The share of @p rows images, in rows of the first width's floats, that are classified right. */
double mlp_accuracy(struct mlp *model, const float *images, const uint8_t *labels, size_t rows);

/** Copies all parameters to or from mlp_parameter_count() floats. */
void mlp_save(struct mlp *model, float *flat);
void mlp_load(struct mlp *model, const float *flat);

/** A checksum of the bits of all parameters. */
uint64_t mlp_checksum(struct mlp *model);

#endif
