/* SPDX-License-Identifier: BSD-3-Clause */
/* An allreduce of the sum, in place on a list of tensors, and a multiplication by 1 / ranks. */
#include "tools/train/average.h"

#include <string.h>

struct train_average {
    struct weft_run *run;
    struct weft_piece *tensors;
    size_t count;
    float factor;
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
                    const struct weft_cost_model *cost, size_t elements)
{
    struct weft_plan *plan;
    int status = make_plan(&plan, context, cost, elements);

    if (status != WEFT_OK)
        return status;
    weft_slot_t slot = weft_plan_find_slot(plan, "recv");
    status = slot < 0 ? slot : weft_run_create(&average->run, context, plan, NULL);
    weft_plan_destroy(plan);
    if (status != WEFT_OK)
        return status;
    return weft_run_bind_list(average->run, slot, average->tensors, average->count, WEFT_F32);
}

int train_average_create(struct train_average **average, struct weft_context *context,
                         const struct weft_cost_model *cost, const struct weft_piece *tensors,
                         size_t count)
{
    struct train_average *made = weft_memory_alloc(1, sizeof *made);
    size_t elements = 0;

    if (made)
        made->tensors = weft_memory_alloc(count, sizeof *tensors);
    if (!made || !made->tensors) {
        train_average_destroy(made);
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a list of %zu tensors", count);
    }
    memcpy(made->tensors, tensors, count * sizeof *tensors);
    made->count = count;
    made->factor = 1.0f / (float)weft_context_size(context);
    for (size_t i = 0; i < count; i++)
        elements += tensors[i].count;
    int status = make_run(made, context, cost, elements);
    if (status != WEFT_OK) {
        train_average_destroy(made);
        return status;
    }
    *average = made;
    return WEFT_OK;
}

int train_average_execute(struct train_average *average)
{
    int status = weft_run_execute(average->run);

    if (status != WEFT_OK)
        return status;
    for (size_t tensor = 0; tensor < average->count; tensor++) {
        float *data = average->tensors[tensor].data;

        for (size_t i = 0; i < average->tensors[tensor].count; i++)
            data[i] *= average->factor;
    }
    return WEFT_OK;
}

void train_average_destroy(struct train_average *average)
{
    if (!average)
        return;
    weft_run_destroy(average->run);
    weft_memory_free(average->tensors);
    weft_memory_free(average);
}
