/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that local ranks run, each with a helper, whose models are on devices. */
#ifndef WEFT_TESTS_GPU_AVERAGES_JOB_H
#define WEFT_TESTS_GPU_AVERAGES_JOB_H

#include "tests/gpu/averages.h"

/* A test goes through one of so many rounds; sanitizers take ten times as long over each. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { EVERY = 5 };
#else
enum { EVERY = 1 };
#endif

struct job {
    int (*program)(struct job *job, struct weft_context *context, int rank);
    struct weft_group_average_config config;
    int ranks, kind;
    int mixed; /* odd ranks are on the host */
    enum how how;
    pthread_barrier_t barrier;
    void *user;
};

static inline int job_enter(struct weft_context *context, void *user)
{
    struct job *job = user;

    return job->program(job, context, weft_context_rank(context));
}

static inline struct job new_job(int (*program)(struct job *, struct weft_context *, int))
{
    struct job job = {.program = program};

    weft_group_average_config_init(&job.config);
    job.config.memory = WEFT_MEMORY_DEVICE;
    job.config.initial = WEFT_INITIAL_ANY;
    job.config.patience_ns = WEFT_NS_NONE;
    return job;
}

static inline int try_job(struct job *job, int ranks)
{
    struct weft_context_config config;

    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    job->ranks = ranks;
    CHECK(pthread_barrier_init(&job->barrier, NULL, (unsigned)ranks) == 0);
    int status = weft_local_run(ranks, &config, job_enter, job);
    pthread_barrier_destroy(&job->barrier);
    return status;
}

static inline void run_job(struct job *job, int ranks)
{
    OK(try_job(job, ranks));
    device_check();
}

static inline void meet(struct job *job)
{
    pthread_barrier_wait(&job->barrier);
}

/* The object of a rank, with the first model in `host`. */
static inline struct weft_group_average *create(struct job *job, struct model *model,
                                                struct weft_context *context, int rank)
{
    struct weft_group_average_config config = job->config;
    struct weft_group_average *average = NULL;

    if (job->mixed && rank % 2)
        config.memory = WEFT_MEMORY_HOST;
    model_make(model, &config, rank);
    model_fill(model, rank, 63);
    model_put(model);
    OK(weft_group_average_create(&average, context, &model->config));
    return average;
}

#endif
