/* SPDX-License-Identifier: BSD-3-Clause */
/* Trainings on data that is made up and small. */
#ifndef WEFT_TESTS_UNIT_TOOLS_TRAIN_JOBS_H
#define WEFT_TESTS_UNIT_TOOLS_TRAIN_JOBS_H

#include "tools/train/loop.h"
#include "tools/train/random.h"

#include <stdlib.h>

/* Ten patterns with noise: learnt in a few steps. */
static inline void make_data(struct dataset *data, size_t rows, uint64_t seed)
{
    struct train_random noise = train_random_make(seed, TRAIN_RANDOM_SHUFFLE, 0, 0);

    data->rows = rows;
    data->images = calloc(rows, DATASET_PIXELS * sizeof(float));
    data->labels = calloc(rows, 1);
    for (size_t row = 0; row < rows; row++) {
        uint8_t label = (uint8_t)train_random_below(&noise, DATASET_CLASSES);
        struct train_random pattern = train_random_make(label, TRAIN_RANDOM_WEIGHTS, 0, 0);
        data->labels[row] = label;
        for (size_t i = 0; i < DATASET_PIXELS; i++) {
            data->images[row * DATASET_PIXELS + i] =
                (float)(train_random_unit(&pattern) + 0.2 * train_random_normal(&noise));
        }
    }
}

static inline int run_with(struct train_job *job, struct train_options *options, uint64_t seed,
                           uint64_t sync_period)
{
    struct dataset train;
    struct dataset test;

    make_data(&train, 600, 1);
    make_data(&test, 200, 2);
    options->batch = 8;
    options->rate = 0.05;
    options->sync_period = sync_period;
    options->seed = seed;
    job->options = options;
    job->train = &train;
    job->test = &test;
    int status = options->is_virtual ? train_virtual_ranks(job) : train_local_ranks(job);
    dataset_free(&test);
    dataset_free(&train);
    return status;
}

#endif
