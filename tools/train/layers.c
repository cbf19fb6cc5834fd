/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps of an algorithm with layers: what a rank does between them while it computes a gradient. In
 * its forward pass it waits for what the step before has left under way, in its backward pass it
 * announces. A delay is a computation that takes longer, so it lies before the first announcement.
 */
#include "tools/train/trainee.h"

/* Waits for the mean gradient of a layer and applies it, or for the servers, which have. */
static int finish_layer(struct trainee *trainee, size_t layer)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    int status = algorithm->layers.wait(trainee->state, layer);

    if (status != WEFT_OK)
        return status;
    if (!algorithm->serve)
        status = model_update_layer(trainee->setup.model, layer, (float)trainee->job->options->rate,
                                    trainee_momentum(trainee));
    trainee->updates += status == WEFT_OK;
    return status;
}

/* Everything between the computation of layers is apart from it. */
static void leave_computation(struct trainee *trainee)
{
    trainee->apart -= trainee_processor_time();
}

static int enter_computation(struct trainee *trainee, int status)
{
    trainee->apart += trainee_processor_time();
    return status;
}

static int begins(void *user, size_t layer)
{
    struct trainee *trainee = user;
    uint64_t began = weft_context_now(trainee->setup.context);

    if (trainee->steps == trainee->fresh || !trainee_goes_by_layers(trainee))
        return WEFT_OK;
    leave_computation(trainee);
    int status = finish_layer(trainee, layer);
    uint64_t waited = weft_context_now(trainee->setup.context) - began;
    trainee->waited += (double)waited * 1e-9;
    train_pace_shift(trainee->pace, waited);
    return enter_computation(trainee, status);
}

static int passed(void *user, size_t layer)
{
    struct trainee *trainee = user;

    leave_computation(trainee);
    return enter_computation(trainee, train_pace_forward(trainee->pace, layer));
}

static int turns(void *user)
{
    struct trainee *trainee = user;
    const struct train_options *options = trainee->job->options;
    struct train_setup *setup = &trainee->setup;
    uint64_t began = weft_context_now(setup->context);
    int status = WEFT_OK;

    leave_computation(trainee);
    /* Now all layers are those after the step before. */
    if (trainee->steps > trainee->fresh && trainee_goes_by_layers(trainee))
        status = trainee_add_to_history(trainee, trainee->steps);
    double late =
        train_delay(&options->imbalance, options->seed, trainee->steps, setup->rank, setup->size);
    if (status == WEFT_OK && late > 0.0)
        status = weft_context_sleep(setup->context, (uint64_t)(late * 1e9));
    train_pace_shift(trainee->pace, weft_context_now(setup->context) - began);
    return enter_computation(trainee, status);
}

static int ready(void *user, size_t layer)
{
    struct trainee *trainee = user;

    leave_computation(trainee);
    int status = train_pace_backward(trainee->pace, layer);
    if (layer + 1 == model_layer_count(trainee->setup.model)) {
        double lead = trainee_now(trainee) - trainee->step_began - trainee->waited;
        trainee->leads[trainee->lead_count++ % TRAINEE_DURATIONS] = lead;
    }
    if (status == WEFT_OK)
        status = trainee->job->algorithm->layers.ready(trainee->state, layer);
    return enter_computation(trainee, status);
}

int trainee_goes_by_layers(const struct trainee *trainee)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;

    return algorithm->layers.ready && !(algorithm->merges && trainee->job->options->merge_wait);
}

int trainee_compute_layers(struct trainee *trainee)
{
    const struct model_watcher watcher = {begins, passed, turns, ready, trainee};
    double used = trainee_processor_time();

    trainee->apart = 0.0;
    trainee->waited = 0.0;
    train_pace_begin(trainee->pace);
    train_batches_take(&trainee->batches, trainee->steps);
    int status =
        model_gradient(trainee->setup.model, trainee->batches.images, trainee->batches.labels,
                       trainee->job->options->batch, &watcher, &trainee->report[REPORT_LOSS]);
    trainee->report[REPORT_GRADIENTS] += trainee_processor_time() - used - trainee->apart;
    return status;
}

int trainee_finish_layers(struct trainee *trainee)
{
    int status = WEFT_OK;

    for (size_t l = 0; l < model_layer_count(trainee->setup.model) && status == WEFT_OK; l++)
        status = finish_layer(trainee, l);
    return status;
}
