/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gradients of the demonstration trainer for the measurements: a perceptron with two hidden layers
 * on optdigits, so wide that it has as many parameters as are asked for, after some steps of
 * training.
 */
#include "tools/bench/bench.h"
#include "tools/bench/data.h"
#include "tools/train/dataset.h"
#include "tools/train/model.h"
#include "tools/train/options.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { STEPS = 10, BATCH = 32 };

/* The gradient of the batch of a step; the first n elements of its tensors in a row. */
static int train(struct model *model, const struct dataset *data, float *values, size_t n)
{
    const struct weft_piece *gradients = model_gradients(model);
    size_t batches = data->rows / BATCH;
    int status = WEFT_OK;
    double loss;

    for (size_t step = 0; step <= STEPS && status == WEFT_OK; step++) {
        size_t at = step % batches * BATCH;
        status = model_gradient(model, data->images + at * DATASET_PIXELS, data->labels + at, BATCH,
                                NULL, &loss);
        if (step < STEPS && status == WEFT_OK)
            status = model_update(model, 0.02f, 0.9f);
    }
    for (size_t i = 0, done = 0; done < n; i++) {
        size_t count = gradients[i].count < n - done ? gradients[i].count : n - done;
        memcpy(values + done, gradients[i].data, count * sizeof *values);
        done += count;
    }
    return status;
}

int bench_gradients(float *values, size_t n)
{
    struct train_options options = {0};
    struct dataset data = {0}, test = {0};
    struct model *model = NULL;
    char storage[PATH_MAX];
    /* h h + (64 + 10 + 2) h + 10 parameters, at least n */
    size_t hidden = 1 + (size_t)fmax(0, sqrt(38.0 * 38.0 + (double)n) - 38);
    size_t widths[] = {hidden, hidden};
    const struct net_config net = {.architecture = net_architectures()[0],
                                   .image = {1, 1, DATASET_PIXELS},
                                   .classes = DATASET_CLASSES,
                                   .hidden = widths,
                                   .hidden_count = 2};
    int status =
        dataset_read_folder(&data, &test, train_options_data(&options, storage, sizeof storage));

    if (status == WEFT_OK && data.rows < BATCH) {
        status =
            weft_error_set(WEFT_ERR_FORMAT, "%zu images; expected at least %d", data.rows, BATCH);
    }
    if (status == WEFT_OK)
        status = model_create(&model, &net, BATCH, 1);
    if (status == WEFT_OK)
        status = train(model, &data, values, n);
    model_destroy(model);
    dataset_free(&data);
    dataset_free(&test);
    return status;
}
