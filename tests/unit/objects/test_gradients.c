/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients: what a step gives, whatever the plan, the memory and the order are. */
#include <criterion/criterion.h>

#include "gradients_job.h"

/* ---- results ---- */

struct job {
    weft_dtype_t dtype, wire;
    weft_gradients_reduction_t reduction;
    weft_merge_method_t merge;
    size_t gap;
    int by_layer; /* waits for layers one by one */
};

static void step_of(struct weft_gradients *gradients, const struct gradients_model *model,
                    const struct job *job, int rank, uint64_t step)
{
    for (size_t i = 0; i < model->layers; i++) {
        size_t layer = model->layers - 1 - (i + (size_t)rank * step) % model->layers;
        gradients_fill(model, rank, step, layer);
        OK(weft_gradients_ready(gradients, layer));
    }
    for (size_t l = 0; job->by_layer && l < model->layers; l++)
        OK(weft_gradients_wait(gradients, l));
    if (!job->by_layer) {
        struct weft_gradients_result result = {.struct_size = sizeof result};
        OK(weft_gradients_wait_all(gradients, &result));
        CHECK(result.step == step && result.hidden_ns <= result.communication_ns);
    }
}

static void steps(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct job *job = ranks->user;
    struct gradients_model *model = malloc(sizeof *model);
    struct weft_gradients_config config;
    struct weft_merge_config merge;
    struct weft_gradients *gradients = NULL;
    const size_t groups[] = {2, 1, 3};
    CHECK(model);
    gradients_model_make(model, job->dtype, job->gap);
    gradients_config(&config, model);
    weft_merge_config_init(&merge);
    merge.method = job->merge;
    if (merge.method == WEFT_MERGE_GIVEN) {
        merge.group_layers = groups;
        merge.group_count = 3;
    }
    merge.bucket_bytes = 512;
    config.merge = &merge;
    config.wire_dtype = job->wire;
    config.reduction = job->reduction;
    config.measure_steps = 2;
    config.check_steps = 1;
    OK(weft_gradients_create(&gradients, context, &config));
    for (uint64_t step = 0; step < 16; step++) {
        CHECK(weft_gradients_next(gradients) == step);
        step_of(gradients, model, job, rank, step);
        for (size_t l = 0; l < model->layers; l++)
            gradients_check(model, ranks->size, job->reduction == WEFT_GRADIENTS_SUM, step, l, 0);
    }
    struct weft_gradients_stats stats = {.struct_size = sizeof stats};
    OK(weft_gradients_get_stats(gradients, &stats));
    CHECK(stats.steps == 16 && stats.checks >= 2 && stats.plans >= 1);
    CHECK((stats.bytes > 0) == (ranks->size > 1));
    OK(weft_gradients_destroy(gradients));
    free(model);
}

static void run(struct job job)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        ranks_run_once(steps, sizes[i], &job);
}

Test(gradients, averages_are_exact_with_every_plan, .timeout = 120)
{
    for (int merge = 0; merge <= WEFT_MERGE_GIVEN; merge++)
        if (merge != WEFT_MERGE_CYCLES)
            run((struct job){.merge = (weft_merge_method_t)merge, .by_layer = merge & 1});
}

Test(gradients, sums_are_exact_with_every_plan, .timeout = 120)
{
    for (int merge = 0; merge <= WEFT_MERGE_GIVEN; merge++)
        if (merge != WEFT_MERGE_CYCLES)
            run((struct job){.merge = (weft_merge_method_t)merge,
                             .reduction = WEFT_GRADIENTS_SUM,
                             .by_layer = ~merge & 1});
}

Test(gradients, tensors_that_are_not_adjacent_are_copied, .timeout = 120)
{
    run((struct job){.gap = 5});
    run((struct job){.gap = 5, .merge = WEFT_MERGE_SINGLE, .reduction = WEFT_GRADIENTS_SUM});
}

Test(gradients, datatypes_of_sixteen_bits_are_added_up_in_thirty_two, .timeout = 120)
{
    for (int d = 0; d < 2; d++) {
        weft_dtype_t dtype = d ? WEFT_F16 : WEFT_BF16;
        run((struct job){.dtype = dtype, .gap = d ? 3 : 0, .by_layer = d});
        run((struct job){.dtype = dtype, .reduction = WEFT_GRADIENTS_SUM});
    }
}

Test(gradients, what_is_sent_in_sixteen_bits_is_exact_where_it_can_be, .timeout = 120)
{
    run((struct job){.wire = WEFT_BF16, .reduction = WEFT_GRADIENTS_SUM});
    run((struct job){.wire = WEFT_F16, .gap = 1});
    run((struct job){.dtype = WEFT_F16, .wire = WEFT_F16});
    run((struct job){.dtype = WEFT_F16, .wire = WEFT_BF16, .merge = WEFT_MERGE_SINGLE});
}
