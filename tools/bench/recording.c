/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One model stands for all ranks, which would hold the same one: the gradient of each rank's batch
 * is computed in turn. Recorded is the sum, the model goes on with the mean.
 */
#include "tools/bench/recording.h"

#include "tools/train/batches.h"
#include "tools/train/dataset.h"
#include "tools/train/model.h"
#include "tools/train/options.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>
#include <weft/weft.h>

enum { BATCH = 32, CHANNELS = 16 };
static const float momentum = 0.9F;

struct training {
    struct recording *recording;
    struct model *model;
    struct dataset data, test;
    struct train_batches *batches; /* a rank */
    /* which tensor each layer of the recording is */
    size_t tensors[RECORDING_LAYERS];
    float *sum; /* of all parameters, over ranks */
};

/* ---- which tensors ---- */

static int find_layers(struct training *training, const struct net_config *config)
{
    struct recording *recording = training->recording;
    struct net *net;
    int status = net_create(&net, config);

    if (status != WEFT_OK)
        return status;
    for (size_t l = 0; l < net->layer_count; l++) {
        const struct net_operation *is = &net->operations[net->layers[l].operation];
        if (is->kind != NET_CONVOLUTION || recording->layer_count == RECORDING_LAYERS)
            continue;
        struct recording_layer *layer = &recording->layers[recording->layer_count];
        *layer = (struct recording_layer){.filters = net->values[is->to].channels,
                                          .depth = net->values[is->from].channels,
                                          .window = is->window * is->window,
                                          .at = recording->count,
                                          .count = net->layers[l].elements[0]};
        memcpy(layer->name, net->layers[l].name, sizeof layer->name);
        training->tensors[recording->layer_count++] = net->layers[l].first_tensor;
        recording->count += layer->count;
    }
    net_destroy(net);
    return WEFT_OK;
}

static int open_training(struct training *training)
{
    struct recording *recording = training->recording;
    struct train_options options = {0};
    char storage[PATH_MAX];
    struct net_config config = {
        .image = {DATASET_SIDE, DATASET_SIDE, 1}, .classes = DATASET_CLASSES, .channels = CHANNELS};
    const struct net_architecture *const *architectures = net_architectures();
    const struct train_shards all = {0};

    for (size_t i = 0; architectures[i]; i++)
        if (strcmp(architectures[i]->name, recording->model) == 0)
            config.architecture = architectures[i];
    if (!config.architecture)
        return weft_error_set(WEFT_ERR_INVALID, "'%s'; expected a net", recording->model);
    int status = dataset_read_folder(&training->data, &training->test,
                                     train_options_data(&options, storage, sizeof storage));
    if (status == WEFT_OK)
        status = find_layers(training, &config);
    if (status == WEFT_OK)
        status = model_create(&training->model, &config, BATCH, 1);
    if (status != WEFT_OK)
        return status;
    size_t locals = (recording->steps - recording->local_from) / recording->local_every + 1;
    training->batches = weft_memory_alloc((size_t)recording->ranks, sizeof *training->batches);
    training->sum = weft_memory_alloc(model_parameter_count(training->model), sizeof(float));
    recording->sums = weft_memory_alloc(recording->steps * recording->count, sizeof(float));
    recording->locals = weft_memory_alloc(locals * recording->count, sizeof(float));
    recording->losses = weft_memory_alloc(recording->steps, sizeof(double));
    if (!training->batches || !training->sum || !recording->sums || !recording->locals ||
        !recording->losses)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu gradients of %zu elements",
                              recording->steps, recording->count);
    for (int r = 0; r < recording->ranks && status == WEFT_OK; r++)
        status = train_batches_init(&training->batches[r], &training->data, &all, BATCH, 1, r,
                                    recording->ranks);
    return status;
}

static void close_training(struct training *training)
{
    for (int r = 0; training->batches && r < training->recording->ranks; r++)
        train_batches_free(&training->batches[r]);
    weft_memory_free(training->batches);
    weft_memory_free(training->sum);
    model_destroy(training->model);
    dataset_free(&training->data);
    dataset_free(&training->test);
}

/* ---- steps ---- */

/* Filters lie one behind the other in the trainer's nets; here they vary fastest. */
static int arrange(const struct training *training, float *out)
{
    const struct recording *recording = training->recording;
    const struct weft_piece *gradients = model_gradients(training->model);
    int status = WEFT_OK;

    for (size_t l = 0; l < recording->layer_count && status == WEFT_OK; l++) {
        const struct recording_layer *layer = &recording->layers[l];
        status = weft_transpose(gradients[training->tensors[l]].data, layer->filters,
                                layer->depth * layer->window, out + layer->at);
    }
    return status;
}

/* The gradients' tensors lie in a row. */
static int step(struct training *training, size_t number)
{
    struct recording *recording = training->recording;
    size_t parameters = model_parameter_count(training->model);
    float *gradient = model_gradients(training->model)[0].data;
    double mean = 0;
    int status = WEFT_OK;

    memset(training->sum, 0, parameters * sizeof(float));
    for (int r = 0; r < recording->ranks && status == WEFT_OK; r++) {
        struct train_batches *batches = &training->batches[r];
        double loss = 0;
        train_batches_take(batches, number);
        status =
            model_gradient(training->model, batches->images, batches->labels, BATCH, NULL, &loss);
        mean += loss / recording->ranks;
        for (size_t i = 0; i < parameters; i++)
            training->sum[i] += gradient[i];
        if (r == 0 && number >= recording->local_from &&
            (number - recording->local_from) % recording->local_every == 0)
            status = arrange(training, recording->locals + (number - recording->local_from) /
                                                               recording->local_every *
                                                               recording->count);
    }
    recording->losses[number] = mean;
    memcpy(gradient, training->sum, parameters * sizeof(float));
    if (status == WEFT_OK)
        status = arrange(training, recording->sums + number * recording->count);
    for (size_t i = 0; i < parameters; i++)
        gradient[i] /= (float)recording->ranks;
    return status == WEFT_OK ? model_update(training->model, (float)recording->rate, momentum)
                             : status;
}

int recording_make(struct recording *recording, const char *model, double rate, int ranks,
                   size_t steps, size_t local_from, size_t local_every)
{
    *recording = (struct recording){.model = model,
                                    .rate = rate,
                                    .ranks = ranks,
                                    .steps = steps,
                                    .local_from = local_from,
                                    .local_every = local_every};
    struct training training = {.recording = recording};
    int status;

    openblas_set_num_threads(1);
    status = open_training(&training);
    for (size_t number = 0; number < steps && status == WEFT_OK; number++)
        status = step(&training, number);
    close_training(&training);
    return status;
}

void recording_free(struct recording *recording)
{
    weft_memory_free(recording->sums);
    weft_memory_free(recording->locals);
    weft_memory_free(recording->losses);
    *recording = (struct recording){0};
}

const float *recording_sum(const struct recording *recording, size_t layer, size_t step)
{
    return recording->sums + step * recording->count + recording->layers[layer].at;
}

const float *recording_local(const struct recording *recording, size_t layer, size_t step)
{
    if (step < recording->local_from ||
        (step - recording->local_from) % recording->local_every != 0)
        return NULL;
    return recording->locals +
           (step - recording->local_from) / recording->local_every * recording->count +
           recording->layers[layer].at;
}
