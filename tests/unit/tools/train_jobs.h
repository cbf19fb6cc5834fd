/* SPDX-License-Identifier: BSD-3-Clause */
/* Trainings on data that is made up and small. */
#ifndef WEFT_TESTS_UNIT_TOOLS_TRAIN_JOBS_H
#define WEFT_TESTS_UNIT_TOOLS_TRAIN_JOBS_H

#include "tools/train/algorithm.h"
#include "tools/train/loop.h"
#include "tools/train/random.h"

#include <criterion/criterion.h>
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

static inline int run_job_as(struct train_job *job, int ranks, uint64_t steps, uint64_t seed,
                             enum train_order order)
{
    struct train_options options;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    options.order = order;
    if (order == TRAIN_BESIDE)
        options.momentum = 0.5; /* a step of delay bears less of it */
    options.ranks = ranks;
    options.steps = steps;
    int status = run_with(job, &options, seed, 4);
    train_options_free(&options);
    return status;
}

static inline int run_job(struct train_job *job, int ranks, uint64_t steps, uint64_t seed)
{
    return run_job_as(job, ranks, steps, seed, TRAIN_LISTING);
}

static inline struct train_outcome train_as(const struct train_algorithm *algorithm, int ranks,
                                            uint64_t steps, uint64_t seed, enum train_order order)
{
    struct train_job job = {.algorithm = algorithm};
    int status = run_job_as(&job, ranks, steps, seed, order);

    cr_assert_eq(status, WEFT_OK, "%s, %d ranks: %s: %s", algorithm->name, ranks,
                 weft_status_text(status), weft_error_text());
    return job.outcome;
}

static inline struct train_outcome train_once(const struct train_algorithm *algorithm, int ranks,
                                              uint64_t steps, uint64_t seed)
{
    return train_as(algorithm, ranks, steps, seed, TRAIN_LISTING);
}

static const int sizes[] = {1, 2, 3, 5, 8};

static inline int is_available(const struct train_algorithm *algorithm)
{
    return !algorithm->available || algorithm->available();
}

#endif
