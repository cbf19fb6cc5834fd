/* SPDX-License-Identifier: BSD-3-Clause */
/* A small model for suites of merged gradients: five layers, one of two tensors, one without
 * elements, whose gradients are whole numbers, so that sums are exact. */
#ifndef WEFT_TESTS_LAYERS_JOB_H
#define WEFT_TESTS_LAYERS_JOB_H

#include "given_costs.h"
#include "support/virtual_ranks.h"

enum { JOB_LAYERS = 5, JOB_TENSORS = 6, JOB_ELEMENTS = 41 };

static const size_t job_layer_tensors[JOB_LAYERS] = {1, 2, 1, 1, 1};
static const size_t job_counts[JOB_TENSORS] = {7, 3, 6, 0, 20, 5};
/* Elements before each layer. */
static const size_t job_first[JOB_LAYERS + 1] = {0, 7, 16, 16, 36, 41};

struct job {
    struct weft_context *context;
    int rank, size;
    struct weft_gradients *gradients;
    float data[JOB_ELEMENTS];
    struct weft_piece tensors[JOB_TENSORS];
    struct weft_merge_config merge;
    struct weft_merge_cost cost;
    struct weft_gradients_config config;
};

/* A configuration that can be changed before job_create(): sums, costs and times that are given. */
static inline void job_init(struct job *job, struct weft_context *context)
{
    memset(job, 0, sizeof *job);
    job->context = context;
    job->rank = weft_context_rank(context);
    job->size = weft_context_size(context);
    float *at = job->data;
    for (int t = 0; t < JOB_TENSORS; t++) {
        job->tensors[t] = (struct weft_piece){at, job_counts[t]};
        at += job_counts[t];
    }
    given_costs_init(&job->config, &job->merge, &job->cost);
    job->config.tensors = job->tensors;
    job->config.tensor_count = JOB_TENSORS;
    job->config.layer_tensors = job_layer_tensors;
    job->config.layer_count = JOB_LAYERS;
}

static inline int job_create(struct job *job)
{
    return weft_gradients_create(&job->gradients, job->context, &job->config);
}

static inline float job_value(int rank, uint64_t step, size_t element)
{
    return (float)((rank * 5 + (int)step * 3 + (int)element) % 11 - 5);
}

static inline void job_fill(struct job *job, uint64_t step, size_t layer)
{
    for (size_t i = job_first[layer]; i < job_first[layer + 1]; i++)
        job->data[i] = job_value(job->rank, step, i);
}

static inline int job_announce(struct job *job, uint64_t step, size_t layer)
{
    job_fill(job, step, layer);
    return weft_gradients_ready(job->gradients, layer);
}

/* The sum over ranks, of which `absent` has no gradient of that layer (-1: all have). */
static inline void job_check(const struct job *job, uint64_t step, size_t layer, int absent)
{
    for (size_t i = job_first[layer]; i < job_first[layer + 1]; i++) {
        float sum = 0;
        for (int r = 0; r < job->size; r++)
            sum += r == absent ? 0 : job_value(r, step, i);
        if (job->data[i] != sum) {
            fprintf(stderr, "rank %d, step %d: element %zu is %g, expected %g\n", job->rank,
                    (int)step, i, (double)job->data[i], (double)sum);
            abort();
        }
    }
}

static inline void job_check_all(const struct job *job, uint64_t step)
{
    for (size_t l = 0; l < JOB_LAYERS; l++)
        job_check(job, step, l, -1);
}

/* A step in which nothing happens. */
static inline int job_step(struct job *job, uint64_t step)
{
    int status = WEFT_OK;
    for (size_t l = JOB_LAYERS; l > 0 && status == WEFT_OK; l--)
        status = job_announce(job, step, l - 1);
    return status == WEFT_OK ? weft_gradients_wait_all(job->gradients, NULL) : status;
}

static inline void job_take(struct job *job, uint64_t step)
{
    OK(job_step(job, step));
    job_check_all(job, step);
}

#endif
