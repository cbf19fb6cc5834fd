/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trainer's models by a device: their gradients beside the processor's and beside differences
 * of the loss, whole trainings, threads with models of their own, and what is refused.
 */
#include "tests/gpu/train_device.h"

#include "tests/support/ranks.h"

#include <cuda.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 4, STEPS = 6 };

#ifdef __SANITIZE_ADDRESS__
enum { THIN = 3 };
#else
enum { THIN = 1 };
#endif

struct batch {
    float images[BATCH * TRAIN_NUMBERS];
    uint8_t labels[BATCH];
};

static double loss_of(struct model *model, const struct batch *batch)
{
    double loss = NAN;

    DONE(model_gradient(model, batch->images, batch->labels, BATCH, NULL, &loss));
    return loss;
}

static float *gradients_of(struct model *model)
{
    struct backend *backend = model_backend(model);
    size_t count = model_parameter_count(model);
    float *made = malloc(count * sizeof *made);

    train_get(backend, made, model_gradients(model)[0].data, count);
    return made;
}

static double norm_of(const float *numbers, const float *less, size_t count)
{
    double square = 0;

    for (size_t i = 0; i < count; i++) {
        double each = (double)numbers[i] - (less ? (double)less[i] : 0.0);
        square += each * each;
    }
    return sqrt(square);
}

/* ---- gradients ---- */

/* What both differ by grows with the depth: some tens of rounded sums of up to some hundred terms
 * of about one size, each with an error of a few u at random. 100 u of a tensor's norm is what that
 * may come to; a wrong term is thousands of times more. */
static const double apart = 100 * (double)FLT_EPSILON / 2;

static void check_gradients(const struct net_config *net, uint64_t seed)
{
    struct model *models[2] = {train_model(net, BATCH, seed, 0), train_model(net, BATCH, seed, 1)};
    float *gradients[2];
    double losses[2];
    struct batch batch;
    size_t at = 0;

    train_draw_batch(batch.images, batch.labels, BATCH, seed);
    for (int m = 0; m < 2; m++) {
        losses[m] = loss_of(models[m], &batch);
        gradients[m] = gradients_of(models[m]);
    }
    cr_assert_float_eq(losses[0], losses[1], apart * losses[0]);
    for (size_t t = 0; t < model_tensor_count(models[0]); t++) {
        size_t count = model_gradients(models[0])[t].count;
        double norm = norm_of(gradients[0] + at, NULL, count);
        double difference = norm_of(gradients[1] + at, gradients[0] + at, count);

        cr_assert_gt(norm, 1e-4, "%s: tensor %zu: the test sees nothing", net->architecture->name,
                     t);
        cr_assert_leq(difference, apart * norm, "%s: tensor %zu: %g of %g", net->architecture->name,
                      t, difference, norm);
        at += count;
    }
    for (int m = 0; m < 2; m++) {
        free(gradients[m]);
        model_destroy(models[m]);
    }
}

Test(train_models, gradients_are_those_of_the_processor)
{
    for (size_t m = 0; net_architectures()[m]; m++) {
        /* Channels that are one group, and several. */
        for (size_t channels = 3; channels <= 8; channels += 5) {
            struct net_config net = train_net(net_architectures()[m], channels);
            check_gradients(&net, m + channels);
        }
    }
    train_check_clean();
}

/* Along the gradient of a tensor the loss has its norm as slope. Steps are so short that it changes
 * by some thousandths, of which f32 leaves three digits; ReLUs and maxima that switch on the way
 * make some per cent. What is exact is above: this finds a sign or a factor that both backends have
 * wrong. */
static void check_slope(struct model *model, const struct batch *batch, const float *parameters,
                        const float *gradient, size_t at, size_t count, const char *name)
{
    size_t all = model_parameter_count(model);
    float *moved = malloc(all * sizeof *moved);
    double norm = norm_of(gradient + at, NULL, count);
    double step = fmin(2e-3 / norm, 0.01 * norm_of(parameters + at, NULL, count));
    double here = loss_of(model, batch), slopes[2];

    for (int side = 0; side < 2; side++) {
        memcpy(moved, parameters, all * sizeof *moved);
        for (size_t i = at; i < at + count; i++)
            moved[i] += (float)((side ? -step : step) * (double)gradient[i] / norm);
        DONE(model_load(model, moved));
        slopes[side] = (loss_of(model, batch) - here) / (side ? -step : step);
    }
    double tolerance = 0.1 * norm;
    cr_assert(norm >= fmin(slopes[0], slopes[1]) - tolerance &&
                  norm <= fmax(slopes[0], slopes[1]) + tolerance,
              "%s: numbers %zu...: %g is not in %g..%g", name, at, norm, slopes[0], slopes[1]);
    DONE(model_load(model, parameters));
    free(moved);
}

Test(train_models, gradients_agree_with_differences)
{
    for (size_t m = 0; net_architectures()[m]; m++) {
        struct net_config net = train_net(net_architectures()[m], 4);
        struct model *model = train_model(&net, BATCH, m + 1, 1);
        float *parameters = malloc(model_parameter_count(model) * sizeof *parameters);
        struct batch batch;
        size_t at = 0;

        train_draw_batch(batch.images, batch.labels, BATCH, m + 1);
        DONE(model_save(model, parameters));
        loss_of(model, &batch);
        float *gradient = gradients_of(model);
        /* Of deeper models some, of all kinds; fewer where the sanitizer takes its time. */
        size_t stride = 2 * THIN * m + 1;
        for (size_t t = 0; t < model_tensor_count(model); t++) {
            size_t count = model_gradients(model)[t].count;
            if (t % stride == 0)
                check_slope(model, &batch, parameters, gradient, at, count, net.architecture->name);
            at += count;
        }
        free(gradient);
        free(parameters);
        model_destroy(model);
    }
    train_check_clean();
}

/* ---- trainings ---- */

/* The loss of the processor after a few steps, within 1e-4 of itself: differences of 100 u in each
 * gradient grow little in so few steps of so short a rate. The loss has changed by much more. */
static void check_training(const struct net_config *net)
{
    struct model *models[2] = {train_model(net, BATCH, 1, 0), train_model(net, BATCH, 1, 1)};
    double first[2], losses[2], accuracies[2], seconds = -1;
    struct backend *backend = model_backend(models[1]);
    size_t count = model_parameter_count(models[0]);
    float *flat[2];

    for (int m = 0; m < 2; m++) {
        struct batch batch;

        for (uint64_t step = 0; step < STEPS; step++) {
            train_draw_batch(batch.images, batch.labels, BATCH, 100 + step % 2);
            losses[m] = loss_of(models[m], &batch);
            first[m] = step ? first[m] : losses[m];
            DONE(model_update(models[m], 0.05f, 0.5f));
        }
        /* In parts of a batch, the last a smaller one. */
        float images[3 * BATCH * TRAIN_NUMBERS];
        uint8_t labels[3 * BATCH];
        train_draw_batch(images, labels, 3 * BATCH, 7);
        DONE(model_accuracy(models[m], images, labels, 3 * BATCH - 1, &accuracies[m]));
        flat[m] = malloc(2 * count * sizeof *flat[m]);
        DONE(model_save_all(models[m], flat[m]));
    }
    cr_assert_float_eq(losses[1], losses[0], 1e-4 * losses[0], "%s: %.9g, not %.9g",
                       net->architecture->name, losses[1], losses[0]);
    cr_assert_gt(fabs(losses[0] - first[0]), 1e-2 * first[0], "%s: the test sees nothing",
                 net->architecture->name);
    cr_assert_eq(accuracies[0], accuracies[1]);
    cr_assert_leq(norm_of(flat[1], flat[0], 2 * count), 1e-4 * norm_of(flat[0], NULL, 2 * count));
    DONE(backend->ops->seconds(backend, &seconds));
    cr_assert(seconds > 0 && seconds < 100);

    /* What was saved is there again, with its checksum. */
    uint64_t sums[2];
    DONE(model_checksum(models[1], &sums[0]));
    DONE(model_update_layer(models[1], 0, 0.1f, 0.5f));
    DONE(model_checksum(models[1], &sums[1]));
    cr_assert_neq(sums[0], sums[1]);
    DONE(model_load_all(models[1], flat[1]));
    DONE(model_load(models[0], flat[1]));
    for (int m = 0; m < 2; m++) {
        DONE(model_checksum(models[m], &sums[1]));
        cr_assert_eq(sums[0], sums[1]);
        free(flat[m]);
        model_destroy(models[m]);
    }
}

Test(train_models, trainings_are_those_of_the_processor)
{
    for (size_t m = 0; net_architectures()[m]; m++) {
        struct net_config net = train_net(net_architectures()[m], 8);
        check_training(&net);
    }
    train_check_clean();
}

Test(train_models, equal_seeds_give_equal_bits)
{
    struct net_config net = train_net(net_architectures()[2], 4);
    uint64_t sums[2];

    for (int i = 0; i < 2; i++) {
        struct model *model = train_model(&net, BATCH, 6, 1);
        struct batch batch;

        for (uint64_t step = 0; step < 3; step++) {
            train_draw_batch(batch.images, batch.labels, BATCH, step);
            DONE(model_gradient(model, batch.images, batch.labels, BATCH, NULL, NULL));
            memset(&batch, 0xff, sizeof batch); /* it has been read */
            DONE(model_update(model, 0.1f, 0.9f));
        }
        DONE(model_checksum(model, &sums[i]));
        model_destroy(model);
    }
    cr_assert_eq(sums[0], sums[1]);
    train_check_clean();
}

/* The first weights are the processor's, bit by bit. */
Test(train_models, are_drawn_alike)
{
    for (size_t m = 0; net_architectures()[m]; m++) {
        struct net_config net = train_net(net_architectures()[m], 8);
        struct model *models[2] = {NULL, NULL};
        uint64_t sums[2];

        DONE(model_create(&models[0], &net, BATCH, 3));
        DONE(model_create_by(&models[1], train_device_backend(1, BATCH, TRAIN_NUMBERS), &net, BATCH,
                             3));
        for (int i = 0; i < 2; i++) {
            DONE(model_checksum(models[i], &sums[i]));
            model_destroy(models[i]);
        }
        cr_assert_eq(sums[0], sums[1]);
    }
    train_check_clean();
}

/* ---- who watches ---- */

static int count_layer(void *user, size_t layer)
{
    size_t *heard = user;

    (void)layer;
    return ++*heard < 5 ? WEFT_OK : WEFT_ERR_TIMEOUT;
}

/* Who ends a gradient has done no harm. */
Test(train_models, a_watcher_ends_the_computation)
{
    struct net_config net = train_net(net_architectures()[1], 3);
    struct model *model = train_model(&net, BATCH, 2, 1);
    struct batch batch;
    size_t heard = 0;
    const struct model_watcher watcher = {.passed = count_layer, .ready = count_layer, &heard};
    double loss = 7.0;

    train_draw_batch(batch.images, batch.labels, BATCH, 2);
    double expected = loss_of(model, &batch);
    for (int i = 0; i < 3; i++) {
        heard = 0;
        cr_assert_eq(model_gradient(model, batch.images, batch.labels, BATCH, &watcher, &loss),
                     WEFT_ERR_TIMEOUT);
        cr_assert_eq(heard, 5);
    }
    cr_assert_eq(loss, 7.0);
    cr_assert_eq(loss_of(model, &batch), expected);
    model_destroy(model);
    train_check_clean();
}

/* ---- threads with devices ---- */

static void train_alone(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct net_config net = train_net(net_architectures()[1], 3);
    struct model *model = NULL;
    struct batch batch;
    uint64_t *sums = ranks->user;

    (void)context;
    OK(model_create_by(&model, train_device_backend(rank % 2, BATCH, TRAIN_NUMBERS), &net, BATCH,
                       1));
    for (uint64_t step = 0; step < 3; step++) {
        train_draw_batch(batch.images, batch.labels, BATCH, step);
        OK(model_gradient(model, batch.images, batch.labels, BATCH, NULL, NULL));
        OK(model_update(model, 0.1f, 0.9f));
    }
    OK(model_checksum(model, &sums[rank]));
    model_destroy(model);
}

/* Several on a device, several devices. */
Test(train_models, threads_have_models_of_their_own)
{
    uint64_t sums[5];

    ranks_run_once(train_alone, 5, sums);
    for (int r = 1; r < 5; r++)
        cr_assert_eq(sums[r], sums[0]);
    train_check_clean();
}

/* ---- what is refused ---- */

static void refused(const struct train_device_config *config, int status, const char *text)
{
    struct backend *backend = NULL;

    cr_assert_eq(weft_command_cuda.create(&backend, config), status);
    cr_assert(strstr(weft_error_text(), text), "%s", weft_error_text());
    cr_assert_null(backend);
}

Test(train_models, devices_that_are_not_there_are_refused)
{
    int devices = 0;

    DONE(weft_command_cuda.count(&devices));
    cr_assert_geq(devices, 1);
    refused(&(struct train_device_config){devices, 1, 1}, WEFT_ERR_INVALID,
            "; expected one of cuda:0 to cuda:");
    refused(&(struct train_device_config){-1, 1, 1}, WEFT_ERR_INVALID, "device cuda:-1");
}

Test(train_models, batches_that_are_too_large_are_refused)
{
    struct net_config net = train_net(net_architectures()[0], 0);
    struct model *model = train_model(&net, BATCH, 1, 1);
    struct batch batch;

    train_draw_batch(batch.images, batch.labels, BATCH, 2);
    cr_assert_eq(model_gradient(model, batch.images, batch.labels, BATCH + 1, NULL, NULL),
                 WEFT_ERR_INVALID);
    cr_assert(strstr(weft_error_text(), "a batch of 5 images; expected up to 4"));
    loss_of(model, &batch);
    model_destroy(model);
    train_check_clean();
}
