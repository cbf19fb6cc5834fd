/* SPDX-License-Identifier: BSD-3-Clause */
/* An allreduce of the sum, of a list of tensors or of a copy, and a multiplication by 1 / ranks. */
#include "tools/train/average.h"

#include "tools/train/algorithm.h"
#include "tools/train/backend.h"

#include <stdio.h>
#include <weft/cuda.h>

struct train_average {
    struct backend *backend;
    /* 1: the thread waits for what has begun; 0: the stream does. */
    int waits;
    /* A version of the run that the thread has not waited for. */
    int under_way;
    struct weft_object *object; /* of the run: where a rank dies it fails on all */
    struct weft_run *run;
    /* What is averaged: a list, whose tensors lie one behind the other. */
    const struct weft_piece *tensors;
    float *data;
    size_t count;
    size_t elements;
    float factor;
    /* Apart: what was posted, and the sum, which is after it in one allocation; else NULL. */
    float *posted;
    float *sum;
    float *kept; /* or NULL */
};

static int make_plan(struct weft_plan **plan, const struct train_average *average,
                     const struct train_setup *setup)
{
    struct weft_template_params params;
    struct weft_schedule *schedule;

    weft_template_params_init(&params);
    params.count = average->elements;
    params.dtype = WEFT_F32;
    params.in_place = 1;
    params.cost = &setup->cost;
    int status = weft_template_build("allreduce", weft_context_rank(setup->context),
                                     weft_context_size(setup->context), &params, &schedule);
    if (status != WEFT_OK)
        return status;
    if (average->backend->stream)
        status = weft_schedule_set_memory(schedule, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE);
    if (status == WEFT_OK)
        status = weft_schedule_commit(schedule, plan);
    weft_schedule_destroy(schedule);
    return status;
}

static int make_run(struct train_average *average, const struct train_setup *setup)
{
    struct weft_plan *plan;
    int status = make_plan(&plan, average, setup);

    if (status != WEFT_OK)
        return status;
    struct weft_run_config config;
    weft_run_config_init(&config);
    weft_slot_t slot = weft_plan_find_slot(plan, "recv");
    status = weft_object_create(&average->object, setup->context, NULL);
    config.object = average->object;
    if (status == WEFT_OK)
        status = slot < 0 ? slot : weft_run_create(&average->run, setup->context, plan, &config);
    weft_plan_destroy(plan);
    if (status != WEFT_OK)
        return status;
    if (average->sum)
        return weft_run_bind(average->run, slot, average->sum, average->elements, WEFT_F32);
    return weft_run_bind_list(average->run, slot, average->tensors, average->count, WEFT_F32);
}

static int allocate(struct train_average *average, enum train_average_place place)
{
    struct backend *backend = average->backend;

    /* Whose failure is found later is not put right. */
    if (place == TRAIN_KEPT && average->waits)
        return backend->ops->alloc(backend, average->elements, 0, &average->kept);
    if (place != TRAIN_APART)
        return WEFT_OK;
    int status = backend->ops->alloc(backend, 2 * average->elements, 1, &average->posted);
    if (status == WEFT_OK)
        average->sum = average->posted + average->elements;
    return status;
}

int train_average_waits(const struct train_setup *setup)
{
    const struct backend *backend = model_backend(setup->model);

    return !backend->stream || backend->crowded ||
           (setup->options->processes && setup->options->on_death == TRAIN_GO_ON);
}

int train_average_create(struct train_average **average, const struct train_setup *setup,
                         const struct weft_piece *tensors, enum train_average_place place)
{
    struct train_average *made = weft_memory_alloc(1, sizeof *made);

    if (!made)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for an average");
    made->backend = model_backend(setup->model);
    made->waits = train_average_waits(setup);
    made->tensors = tensors;
    made->data = tensors[0].data;
    made->count = model_tensor_count(setup->model);
    made->elements = model_parameter_count(setup->model);
    made->factor = 1.0f / (float)weft_context_size(setup->context);
    int status = allocate(made, place);
    if (status == WEFT_OK)
        status = make_run(made, setup);
    if (status != WEFT_OK) {
        train_average_destroy(made);
        return status;
    }
    *average = made;
    return WEFT_OK;
}

/* Copies what is averaged apart. */
static int take(struct train_average *average)
{
    struct backend *backend = average->backend;

    if (!average->sum)
        return WEFT_OK;
    int status = backend->ops->copy(backend, average->posted, average->data, average->elements);
    return status == WEFT_OK
               ? backend->ops->copy(backend, average->sum, average->data, average->elements)
               : status;
}

/* The tensors become the mean. */
static int give(struct train_average *average)
{
    return average->backend->ops->scale(average->backend, average->data,
                                        average->sum ? average->sum : average->data,
                                        average->factor, average->elements);
}

/* Keeps what the tensors have, or puts it back. */
static int keep(struct train_average *average, int back)
{
    struct backend *backend = average->backend;

    if (!average->kept)
        return WEFT_OK;
    return back ? backend->ops->copy(backend, average->data, average->kept, average->elements)
                : backend->ops->copy(backend, average->kept, average->data, average->elements);
}

/* ---- the run ---- */

int train_average_settle(struct train_average *average)
{
    if (!average->under_way)
        return WEFT_OK;
    average->under_way = 0;
    return weft_run_wait(average->run, WEFT_NEVER);
}

/* Once the version before has ended: the stream has gone on without the thread. */
static int start(struct train_average *average)
{
    struct CUstream_st *stream = average->backend->stream;
    int status = train_average_settle(average);

    if (status == WEFT_OK)
        status = stream ? weft_run_start_on(average->run, stream) : weft_run_start(average->run);
    average->under_way = status == WEFT_OK;
    return status;
}

static int finish(struct train_average *average)
{
    return average->waits ? train_average_settle(average)
                          : weft_run_wait_on(average->run, average->backend->stream);
}

int train_average_execute(struct train_average *average)
{
    char text[512];

    int status = take(average);
    if (status == WEFT_OK)
        status = keep(average, 0);
    if (status != WEFT_OK)
        return status;
    status = start(average);
    if (status == WEFT_OK)
        status = finish(average);
    if (status == WEFT_OK)
        return give(average);
    snprintf(text, sizeof text, "%s", weft_error_text());
    while (average->kept && weft_run_reclaim(average->run) == WEFT_IN_PROGRESS)
        continue; /* what is under way may still write */
    keep(average, 1);
    return weft_error_set(status, "%s", text);
}

int train_average_post(struct train_average *average)
{
    int status = take(average);

    return status == WEFT_OK ? start(average) : status;
}

int train_average_wait(struct train_average *average)
{
    int status = finish(average);

    if (status != WEFT_OK || !average->sum)
        return status == WEFT_OK ? give(average) : status;
    /* What was done to the tensors since they were posted is kept. */
    return average->backend->ops->shift(average->backend, average->data, average->sum,
                                        average->factor, average->posted, average->elements);
}

void train_average_destroy(struct train_average *average)
{
    if (!average)
        return;
    const struct backend_ops *ops = average->backend->ops;
    weft_run_destroy(average->run);
    weft_object_destroy(average->object);
    ops->settle(average->backend); /* nothing waits for the run any more */
    ops->free(average->backend, average->posted, 1);
    ops->free(average->backend, average->kept, 0);
    weft_memory_free(average);
}
