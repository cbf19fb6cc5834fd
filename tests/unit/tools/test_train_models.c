/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The models of the demonstration trainer, built in double precision: their gradients against
 * finite differences, and what a watcher hears.
 */
#include "tools/train/model.h"
#include "tools/train/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 5, IMAGES = 3, MOST_LAYERS = 32 };

static const size_t hidden[] = {9, 7};

static struct net_config net_of(const struct net_architecture *architecture, size_t channels)
{
    return (struct net_config){.architecture = architecture,
                               .image = {SIDE, SIDE, 1},
                               .classes = CLASSES,
                               .hidden = hidden,
                               .hidden_count = 2,
                               .channels = channels};
}

/* Every tensor is what its shape says, and weights lie as the net has them. */
Test(model, tensors_have_shapes)
{
    for (const struct net_architecture *const *at = net_architectures(); *at; at++) {
        struct net_config config = net_of(*at, 6);
        struct model *model = NULL;
        size_t convolutions = 0, dense = 0;
        cr_assert_eq(model_create(&model, &config, IMAGES, 1), WEFT_OK);
        for (size_t t = 0; t < model_tensor_count(model); t++) {
            struct weft_tensor_shape shape;
            size_t count = model_parameters(model)[t].count;
            model_get_shape(model, t, &shape);
            convolutions += shape.layout == WEFT_TENSOR_OHWI;
            dense += shape.layout == WEFT_TENSOR_DENSE;
            if (shape.layout == WEFT_TENSOR_OHWI)
                cr_assert_eq(shape.outputs * shape.height * shape.width * shape.inputs, count);
            else if (shape.layout == WEFT_TENSOR_DENSE)
                cr_assert_eq(shape.outputs * shape.inputs, count);
            else
                cr_assert(shape.layout == WEFT_TENSOR_VECTOR && shape.outputs == 0);
        }
        cr_assert_eq(dense, (*at)->has_hidden ? 3 : 1, "%s", (*at)->name);
        /* The second block of the residual net has a third one, of single pixels. */
        cr_assert_eq(convolutions, strcmp((*at)->name, "mlp") == 0   ? 0
                                   : strcmp((*at)->name, "cnn") == 0 ? 3
                                                                     : 9);
        model_destroy(model);
    }
    struct net_config config = net_of(net_architectures()[1], 6);
    struct model *model = NULL;
    struct weft_tensor_shape shape;
    cr_assert_eq(model_create(&model, &config, IMAGES, 1), WEFT_OK);
    model_get_shape(model, 2, &shape);
    cr_assert(shape.outputs == 12 && shape.inputs == 6 && shape.height == 3 && shape.width == 3);
    model_destroy(model);
}

struct batch {
    train_real_t images[IMAGES * PIXELS];
    uint8_t labels[IMAGES];
};

static void draw_batch(struct batch *batch, uint64_t seed)
{
    struct train_random random = train_random_make(seed, TRAIN_RANDOM_SHUFFLE, 0, 0);

    for (int i = 0; i < IMAGES * PIXELS; i++)
        batch->images[i] = (train_real_t)train_random_normal(&random);
    for (int i = 0; i < IMAGES; i++)
        batch->labels[i] = (uint8_t)train_random_below(&random, CLASSES);
}

/* All parameters drawn, biases, gains and shifts too. */
static struct model *make_model(const struct net_config *net, uint64_t seed)
{
    struct train_random random = train_random_make(seed, TRAIN_RANDOM_WEIGHTS, 1000, 0);
    struct model *model = NULL;

    cr_assert_eq(model_create(&model, net, IMAGES, seed), WEFT_OK, "%s", weft_error_text());
    for (size_t t = 0; t < model_tensor_count(model); t++) {
        train_real_t *values = model_parameters(model)[t].data;
        for (size_t i = 0; i < model_parameters(model)[t].count; i++)
            values[i] += (train_real_t)(0.2 * train_random_normal(&random));
    }
    return model;
}

static double loss_of(struct model *model, const struct batch *batch)
{
    double loss = NAN;

    cr_assert_eq(model_gradient(model, batch->images, batch->labels, IMAGES, NULL, &loss), WEFT_OK);
    return loss;
}

/* The slopes to both sides differ where a ReLU or a maximum switches; the gradient is one of them
 * or lies between. */
static void check_parameter(struct model *model, const struct batch *batch, size_t tensor, size_t i,
                            const char *name)
{
    const double step = 1e-6;
    const double tolerance = 1e-6;
    train_real_t *parameter = (train_real_t *)model_parameters(model)[tensor].data + i;
    train_real_t value = *parameter;
    double here = loss_of(model, batch);
    double gradient = ((train_real_t *)model_gradients(model)[tensor].data)[i];

    *parameter = value + step;
    double right = (loss_of(model, batch) - here) / step;
    *parameter = value - step;
    double left = (here - loss_of(model, batch)) / step;
    *parameter = value;
    cr_assert(
        gradient >= fmin(left, right) - tolerance && gradient <= fmax(left, right) + tolerance,
        "%s: tensor %zu [%zu]: %.9g is not in %.9g..%.9g", name, tensor, i, gradient, left, right);
}

/* Up to 40 parameters of each tensor, spread over it. */
static void check_gradient(const struct net_config *net, uint64_t seed)
{
    struct model *model = make_model(net, seed);
    struct batch batch;

    draw_batch(&batch, seed);
    for (size_t t = 0; t < model_tensor_count(model); t++) {
        size_t count = model_parameters(model)[t].count;
        size_t stride = count > 40 ? count / 40 : 1;
        const train_real_t *gradients = model_gradients(model)[t].data;
        double largest = 0.0;

        for (size_t i = seed % stride; i < count; i += stride) {
            check_parameter(model, &batch, t, i, net->architecture->name);
            largest = fmax(largest, fabs(gradients[i]));
        }
        cr_assert_gt(largest, 1e-4, "%s: tensor %zu: the test sees nothing",
                     net->architecture->name, t);
    }
    model_destroy(model);
}

Test(models, gradients_agree_with_finite_differences)
{
    for (size_t i = 0; net_architectures()[i]; i++) {
        /* Channels that are one group, and several. */
        for (size_t channels = 3; channels <= 8; channels += 5) {
            struct net_config net = net_of(net_architectures()[i], channels);
            check_gradient(&net, i + channels);
        }
    }
}

/* Nothing of a model depends on which images are together in a batch. */
Test(models, gradient_of_a_batch_is_the_mean_of_its_images)
{
    for (size_t m = 0; net_architectures()[m]; m++) {
        struct net_config net = net_of(net_architectures()[m], 8);
        struct model *model = make_model(&net, 5);
        size_t count = model_parameter_count(model);
        train_real_t *sum = calloc(count, sizeof *sum);
        /* Tensors are one behind the other. */
        const train_real_t *gradient = model_gradients(model)[0].data;
        struct batch batch;
        double loss;

        draw_batch(&batch, 5);
        for (size_t i = 0; i < IMAGES; i++) {
            cr_assert_eq(
                model_gradient(model, batch.images + i * PIXELS, batch.labels + i, 1, NULL, &loss),
                WEFT_OK);
            for (size_t k = 0; k < count; k++)
                sum[k] += gradient[k] / IMAGES;
        }
        loss_of(model, &batch);
        for (size_t k = 0; k < count; k++)
            cr_assert_float_eq(gradient[k], sum[k], 1e-12);
        free(sum);
        model_destroy(model);
    }
}

Test(models, equal_seeds_give_equal_bits)
{
    for (size_t m = 0; net_architectures()[m]; m++) {
        uint64_t sums[2];
        for (int i = 0; i < 2; i++) {
            struct net_config net = net_of(net_architectures()[m], 8);
            struct model *model = make_model(&net, 6);
            struct batch batch;

            for (uint64_t step = 0; step < 4; step++) {
                draw_batch(&batch, step);
                loss_of(model, &batch);
                model_update(model, 0.1f, 0.9f);
            }
            cr_assert_eq(model_checksum(model, &sums[i]), WEFT_OK);
            model_destroy(model);
        }
        cr_assert_eq(sums[0], sums[1]);
    }
}

Test(models, layers_have_all_tensors_in_order_one_behind_the_other)
{
    for (size_t m = 0; net_architectures()[m]; m++) {
        struct net_config net = net_of(net_architectures()[m], 8);
        struct model *model = make_model(&net, 7);
        const struct weft_piece *tensors = model_gradients(model);
        size_t tensor = 0;

        for (size_t l = 0; l < model_layer_count(model); l++) {
            struct model_layer layer;
            size_t elements = 0;

            model_get_layer(model, l, &layer);
            cr_assert_eq(layer.first_tensor, tensor);
            for (size_t i = 0; i < layer.tensor_count; i++, tensor++) {
                elements += tensors[tensor].count;
                if (tensor > 0)
                    cr_assert_eq(tensors[tensor].data, (train_real_t *)tensors[tensor - 1].data +
                                                           tensors[tensor - 1].count);
            }
            cr_assert_eq(layer.elements, elements);
            cr_assert_gt(strlen(layer.name), 0);
            cr_assert_gt(layer.forward_work, 0);
            cr_assert_geq(layer.backward_work, layer.forward_work);
        }
        cr_assert_eq(tensor, model_tensor_count(model));
        model_destroy(model);
    }
}

Test(models, residual_net_has_at_least_20_tensors)
{
    struct net_config net = net_of(net_architectures()[2], 16);
    struct model *model = make_model(&net, 8);

    cr_assert_str_eq(net.architecture->name, "resnet");
    cr_assert_geq(model_tensor_count(model), 20);
    model_destroy(model);
}

/* ---- watchers ---- */

/* Gives each layer its parameters when they are wanted, and takes its gradients when they are
 * there. */
struct witness {
    struct model *model;
    train_real_t *parameters;
    train_real_t *gradients;
    size_t begun, passed, ready;
    int turned;
    size_t fails_at;
};

static void copy_layer(const struct witness *witness, size_t l, int in)
{
    struct model_layer layer;

    model_get_layer(witness->model, l, &layer);
    const struct weft_piece *tensors =
        in ? model_parameters(witness->model) : model_gradients(witness->model);
    size_t at = (size_t)((train_real_t *)tensors[layer.first_tensor].data -
                         (train_real_t *)tensors[0].data);
    train_real_t *own = tensors[layer.first_tensor].data;

    if (in)
        memcpy(own, witness->parameters + at, layer.elements * sizeof *own);
    else
        memcpy(witness->gradients + at, own, layer.elements * sizeof *own);
}

static int begins(void *user, size_t layer)
{
    struct witness *witness = user;

    cr_assert_eq(layer, witness->begun++);
    cr_assert_eq(layer, witness->passed);
    copy_layer(witness, layer, 1);
    return WEFT_OK;
}

static int passed(void *user, size_t layer)
{
    struct witness *witness = user;

    cr_assert_eq(layer, witness->passed++);
    return WEFT_OK;
}

static int turns(void *user)
{
    struct witness *witness = user;

    cr_assert_eq(witness->passed, model_layer_count(witness->model));
    witness->turned++;
    return WEFT_OK;
}

static int ready(void *user, size_t layer)
{
    struct witness *witness = user;

    cr_assert_eq(witness->turned, 1);
    cr_assert_eq(layer, model_layer_count(witness->model) - 1 - witness->ready++);
    copy_layer(witness, layer, 0);
    return layer == witness->fails_at ? WEFT_ERR_TIMEOUT : WEFT_OK;
}

static const struct model_watcher watcher_of_layers = {begins, passed, turns, ready, NULL};

Test(models, watcher_gives_and_takes_layers_when_it_hears_of_them)
{
    for (size_t m = 0; net_architectures()[m]; m++) {
        struct net_config net = net_of(net_architectures()[m], 4);
        struct model *model = make_model(&net, 9);
        size_t count = model_parameter_count(model);
        train_real_t *memory = calloc(3 * count, sizeof *memory);
        struct witness witness = {.model = model,
                                  .parameters = memory,
                                  .gradients = memory + count,
                                  .fails_at = MOST_LAYERS};
        struct model_watcher watcher = watcher_of_layers;
        struct batch batch;
        double loss;

        draw_batch(&batch, 9);
        double expected = loss_of(model, &batch);
        train_real_t *gradients = model_gradients(model)[0].data;
        memcpy(memory + 2 * count, gradients, count * sizeof *memory);
        model_save(model, witness.parameters);
        for (size_t i = 0; i < count; i++)
            ((train_real_t *)model_parameters(model)[0].data)[i] = NAN;
        watcher.user = &witness;
        cr_assert_eq(model_gradient(model, batch.images, batch.labels, IMAGES, &watcher, &loss),
                     WEFT_OK);
        cr_assert_eq(loss, expected);
        cr_assert_eq(witness.ready, model_layer_count(model));
        cr_assert_eq(memcmp(witness.gradients, memory + 2 * count, count * sizeof *memory), 0);
        free(memory);
        model_destroy(model);
    }
}

Test(models, watcher_ends_the_computation)
{
    struct net_config net = net_of(net_architectures()[2], 4);
    struct model *model = make_model(&net, 10);
    size_t count = model_parameter_count(model);
    train_real_t *memory = calloc(2 * count, sizeof *memory);
    struct witness witness = {
        .model = model, .parameters = memory, .gradients = memory + count, .fails_at = 3};
    struct model_watcher watcher = watcher_of_layers;
    struct batch batch;
    double loss = 7.0;

    model_save(model, witness.parameters);
    draw_batch(&batch, 10);
    watcher.user = &witness;
    cr_assert_eq(model_gradient(model, batch.images, batch.labels, IMAGES, &watcher, &loss),
                 WEFT_ERR_TIMEOUT);
    cr_assert_eq(loss, 7.0);
    cr_assert_eq(witness.ready, model_layer_count(model) - 3);
    free(memory);
    model_destroy(model);
}
