/* SPDX-License-Identifier: BSD-3-Clause */
/* An allreduce of the sum, of a list of tensors or of a copy, and a multiplication by 1 / ranks. */
#include "tools/train/average.h"

#include <stdio.h>
#include <string.h>

struct train_average {
    struct weft_context *context;
    struct weft_object *object; /* of the run: where a rank dies it fails on all */
    struct weft_run *run;
    struct weft_piece *tensors;
    size_t count;
    size_t elements;
    float factor;
    /* Apart: what was posted, and the sum, which is after it in one allocation; else NULL. */
    float *posted;
    float *sum;
    float *kept; /* or NULL */
};

static int make_plan(struct weft_plan **plan, struct weft_context *context,
                     const struct weft_cost_model *cost, size_t elements)
{
    struct weft_template_params params;
    struct weft_schedule *schedule;

    weft_template_params_init(&params);
    params.count = elements;
    params.dtype = WEFT_F32;
    params.in_place = 1;
    params.cost = cost;
    int status = weft_template_build("allreduce", weft_context_rank(context),
                                     weft_context_size(context), &params, &schedule);
    if (status != WEFT_OK)
        return status;
    status = weft_schedule_commit(schedule, plan);
    weft_schedule_destroy(schedule);
    return status;
}

static int make_run(struct train_average *average, struct weft_context *context,
                    const struct weft_cost_model *cost)
{
    struct weft_plan *plan;
    int status = make_plan(&plan, context, cost, average->elements);

    if (status != WEFT_OK)
        return status;
    struct weft_run_config config;
    weft_run_config_init(&config);
    weft_slot_t slot = weft_plan_find_slot(plan, "recv");
    status = weft_object_create(&average->object, context, NULL);
    config.object = average->object;
    if (status == WEFT_OK)
        status = slot < 0 ? slot : weft_run_create(&average->run, context, plan, &config);
    weft_plan_destroy(plan);
    if (status != WEFT_OK)
        return status;
    if (average->sum)
        return weft_run_bind(average->run, slot, average->sum, average->elements, WEFT_F32);
    return weft_run_bind_list(average->run, slot, average->tensors, average->count, WEFT_F32);
}

static int allocate(struct train_average *average, struct weft_context *context,
                    const struct weft_piece *tensors, size_t count, enum train_average_place place)
{
    average->tensors = weft_memory_alloc(count, sizeof *tensors);
    if (!average->tensors)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a list of %zu tensors", count);
    memcpy(average->tensors, tensors, count * sizeof *tensors);
    average->count = count;
    for (size_t i = 0; i < count; i++)
        average->elements += tensors[i].count;
    if (place == TRAIN_KEPT) {
        average->kept = weft_memory_alloc(average->elements, sizeof *average->kept);
        return average->kept
                   ? WEFT_OK
                   : weft_error_set(WEFT_ERR_MEMORY, "no memory for a copy of %zu elements",
                                    average->elements);
    }
    if (place == TRAIN_IN_PLACE)
        return WEFT_OK;
    average->posted =
        weft_context_memory_alloc(context, average->elements, 2 * sizeof *average->posted);
    if (!average->posted)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for two copies of %zu elements",
                              average->elements);
    average->sum = average->posted + average->elements;
    return WEFT_OK;
}

int train_average_create(struct train_average **average, struct weft_context *context,
                         const struct weft_cost_model *cost, const struct weft_piece *tensors,
                         size_t count, enum train_average_place place)
{
    struct train_average *made = weft_memory_alloc(1, sizeof *made);

    if (!made)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for an average");
    made->context = context;
    made->factor = 1.0f / (float)weft_context_size(context);
    int status = allocate(made, context, tensors, count, place);
    if (status == WEFT_OK)
        status = make_run(made, context, cost);
    if (status != WEFT_OK) {
        train_average_destroy(made);
        return status;
    }
    *average = made;
    return WEFT_OK;
}

/* Copies what is averaged apart. */
static void take(struct train_average *average)
{
    size_t at = 0;

    for (size_t tensor = 0; tensor < average->count && average->sum; tensor++) {
        const struct weft_piece *piece = &average->tensors[tensor];

        memcpy(average->posted + at, piece->data, piece->count * sizeof(float));
        memcpy(average->sum + at, piece->data, piece->count * sizeof(float));
        at += piece->count;
    }
}

/* The tensors become the mean, or what was done to them since they were posted is kept. */
static void give(struct train_average *average, int kept)
{
    size_t at = 0;

    for (size_t tensor = 0; tensor < average->count; tensor++) {
        const struct weft_piece *piece = &average->tensors[tensor];
        const float *sum = average->sum ? average->sum + at : piece->data;
        float *data = piece->data;

        for (size_t i = 0; i < piece->count; i++) {
            float mean = sum[i] * average->factor;
            data[i] = kept ? data[i] + (mean - average->posted[at + i]) : mean;
        }
        at += piece->count;
    }
}

/* Keeps what the tensors have, or puts it back. */
static void keep(struct train_average *average, int back)
{
    float *kept = average->kept;

    for (size_t tensor = 0; tensor < average->count && kept; tensor++) {
        const struct weft_piece *piece = &average->tensors[tensor];

        memcpy(back ? piece->data : kept, back ? kept : piece->data, piece->count * sizeof(float));
        kept += piece->count;
    }
}

int train_average_execute(struct train_average *average)
{
    char text[512];

    take(average);
    keep(average, 0);
    int status = weft_run_execute(average->run);
    if (status == WEFT_OK) {
        give(average, 0);
        return WEFT_OK;
    }
    snprintf(text, sizeof text, "%s", weft_error_text());
    while (average->kept && weft_run_reclaim(average->run) == WEFT_IN_PROGRESS)
        continue; /* what is under way may still write */
    keep(average, 1);
    return weft_error_set(status, "%s", text);
}

int train_average_post(struct train_average *average)
{
    take(average);
    return weft_run_start(average->run);
}

int train_average_wait(struct train_average *average)
{
    int status = weft_run_wait(average->run, WEFT_NEVER);

    if (status == WEFT_OK)
        give(average, average->sum != NULL);
    return status;
}

void train_average_destroy(struct train_average *average)
{
    if (!average)
        return;
    weft_run_destroy(average->run);
    weft_object_destroy(average->object);
    weft_context_memory_free(average->context, average->posted);
    weft_memory_free(average->kept);
    weft_memory_free(average->tensors);
    weft_memory_free(average);
}
