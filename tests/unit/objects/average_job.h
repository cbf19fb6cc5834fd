/* SPDX-License-Identifier: BSD-3-Clause */
/* What the suites of group averaging share: a program that local ranks run, each with a helper, and
 * what it is given and leaves. */
#ifndef WEFT_TESTS_AVERAGE_JOB_H
#define WEFT_TESTS_AVERAGE_JOB_H

#include "support/ranks.h"

enum { MOST = 8, COUNT = 11 };

struct job {
    int (*program)(struct weft_context *context, struct job *job, int rank);
    struct weft_group_average_config config;
    int number;
    int kind;
    _Atomic int stage;
    float model[MOST][COUNT];
    struct weft_group_average *kept[MOST];
    int status[MOST];
};

static inline int enter(struct weft_context *context, void *user)
{
    struct job *job = user;
    return job->program(context, job, weft_context_rank(context));
}

static inline struct job new_job(int (*program)(struct weft_context *, struct job *, int))
{
    struct job job = {.program = program};
    weft_group_average_config_init(&job.config);
    return job;
}

static inline int run_job(struct job *job, int ranks)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    return weft_local_run(ranks, &config, enter, job);
}

static inline void await_stage(struct job *job, int stage)
{
    while (atomic_load(&job->stage) < stage)
        sched_yield();
}

static inline struct weft_group_average *create(struct weft_context *context,
                                                const struct weft_group_average_config *settings,
                                                void *model, size_t count)
{
    struct weft_piece tensor = {model, count};
    struct weft_group_average *average = NULL;
    struct weft_group_average_config config = *settings;
    config.tensors = &tensor;
    config.tensor_count = 1;
    OK(weft_group_average_create(&average, context, &config));
    return average;
}

#endif
