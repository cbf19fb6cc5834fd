/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients: what a step gives, whatever the plan, the memory and the order are. */
#include <criterion/criterion.h>
#include <math.h>

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

Test(gradients, averages_are_exact_with_every_plan, .timeout = 140)
{
    for (int merge = 0; merge <= WEFT_MERGE_GIVEN; merge++)
        if (merge != WEFT_MERGE_CYCLES)
            run((struct job){.merge = (weft_merge_method_t)merge, .by_layer = merge & 1});
}

Test(gradients, sums_are_exact_with_every_plan, .timeout = 140)
{
    for (int merge = 0; merge <= WEFT_MERGE_GIVEN; merge++)
        if (merge != WEFT_MERGE_CYCLES)
            run((struct job){.merge = (weft_merge_method_t)merge,
                             .reduction = WEFT_GRADIENTS_SUM,
                             .by_layer = ~merge & 1});
}

Test(gradients, tensors_that_are_not_adjacent_are_copied, .timeout = 140)
{
    run((struct job){.gap = 5});
    run((struct job){.gap = 5, .merge = WEFT_MERGE_SINGLE, .reduction = WEFT_GRADIENTS_SUM});
}

Test(gradients, datatypes_of_sixteen_bits_are_added_up_in_thirty_two, .timeout = 140)
{
    for (int d = 0; d < 2; d++) {
        weft_dtype_t dtype = d ? WEFT_F16 : WEFT_BF16;
        run((struct job){.dtype = dtype, .gap = d ? 3 : 0, .by_layer = d});
        run((struct job){.dtype = dtype, .reduction = WEFT_GRADIENTS_SUM});
    }
}

Test(gradients, what_is_sent_in_sixteen_bits_is_exact_where_it_can_be, .timeout = 140)
{
    run((struct job){.wire = WEFT_BF16, .reduction = WEFT_GRADIENTS_SUM});
    run((struct job){.wire = WEFT_F16, .gap = 1});
    run((struct job){.dtype = WEFT_F16, .wire = WEFT_F16});
    run((struct job){.dtype = WEFT_F16, .wire = WEFT_BF16, .merge = WEFT_MERGE_SINGLE});
}

/* ---- rounding ---- */

enum { ROUNDED_RANKS = 8, ROUNDED_STEPS = 4, ROUNDED = 897 };

struct rounded {
    weft_dtype_t dtype, wire;
    weft_gradients_reduction_t reduction;
    size_t gap;
    float results[ROUNDED_RANKS][ROUNDED];
};

/* Of very different magnitudes, as far as f16 has them. */
static float rounded_value(int rank, uint64_t step, size_t i)
{
    uint64_t x = ((uint64_t)rank << 40 | step << 20 | i) * UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    float sign = x & 1 ? -1 : 1;
    return sign * ldexpf(1 + (float)(x >> 40) * 0x1p-24F, (int)(x >> 1 & 7) - 4);
}

static float read_element(const struct gradients_model *model, size_t layer, size_t i)
{
    float value;
    const char *at = model->tensors[layer].data;
    OK(weft_convert(WEFT_F32, &value, model->dtype, at + i * weft_dtype_size(model->dtype), 1));
    return value;
}

/* What a rounding adds at most, as a share. */
static double unit(weft_dtype_t dtype)
{
    return dtype == WEFT_BF16 ? 0x1p-8 : dtype == WEFT_F16 ? 0x1p-11 : 0x1p-24;
}

/* The header's bound, of values that are rounded to the gradients' datatype before. */
static void check_bound(const struct rounded *job, int ranks, uint64_t step)
{
    const double u = unit(job->wire), n = ranks + 1, g = n * u / (1 - n * u);
    const double v = job->dtype == job->wire || job->dtype == WEFT_F32 ? 0 : unit(job->dtype);
    const double by = job->reduction == WEFT_GRADIENTS_AVERAGE ? ranks : 1;
    for (size_t i = 0; i < ROUNDED; i++) {
        double sum = 0, all = 0;
        for (int r = 0; r < ranks; r++) {
            float value = rounded_value(r, step, i), given;
            unsigned char bits[4];
            OK(weft_convert(job->dtype, bits, WEFT_F32, &value, 1));
            OK(weft_convert(WEFT_F32, &given, job->dtype, bits, 1));
            sum += (double)given;
            all += fabs((double)given);
        }
        double error = fabs((double)job->results[0][i] - sum / by);
        CHECK(error <= (g + v + g * v) * all / by);
    }
}

static void round_steps(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct rounded *job = ranks->user;
    struct gradients_model *model = malloc(sizeof *model);
    struct weft_gradients_config config;
    struct weft_gradients *gradients = NULL;
    CHECK(model);
    gradients_model_make(model, job->dtype, job->gap);
    gradients_config(&config, model);
    config.wire_dtype = job->wire;
    config.reduction = job->reduction;
    config.measure_steps = 1;
    config.check_steps = 1;
    config.gain = 1e-9;
    OK(weft_gradients_create(&gradients, context, &config));
    for (uint64_t step = 0; step < ROUNDED_STEPS; step++) {
        size_t at[LAYERS], all = 0;
        for (size_t l = 0; l < LAYERS; all += model->counts[l++])
            at[l] = all;
        CHECK(all == ROUNDED);
        for (size_t n = 0; n < LAYERS; n++) {
            size_t l = (n * 5 + step + (size_t)rank) % LAYERS, size = weft_dtype_size(job->dtype);
            for (size_t i = 0; i < model->counts[l]; i++) {
                float value = rounded_value(rank, step, at[l] + i);
                OK(weft_convert(job->dtype, (char *)model->tensors[l].data + i * size, WEFT_F32,
                                &value, 1));
            }
            OK(weft_gradients_ready(gradients, l));
        }
        OK(weft_gradients_wait_all(gradients, NULL));
        for (size_t l = 0; l < LAYERS; l++)
            for (size_t i = 0; i < model->counts[l]; i++)
                job->results[rank][at[l] + i] = read_element(model, l, i);
        ranks_meet(ranks);
        CHECK(!memcmp(job->results[rank], job->results[0], sizeof job->results[0]));
        if (rank == 0)
            check_bound(job, ranks->size, step);
        ranks_meet(ranks);
    }
    OK(weft_gradients_destroy(gradients));
    free(model);
}

Test(gradients, all_ranks_have_the_same_bits_within_the_bound, .timeout = 140)
{
    static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
    static struct rounded job;
    for (int d = 0; d < 18; d += SWEPT(1, 4))
        for (int size = 2; size <= ROUNDED_RANKS; size++) {
            job = (struct rounded){.dtype = dtypes[d / 3 % 3],
                                   .wire = dtypes[d % 3],
                                   .reduction = d < 9 ? WEFT_GRADIENTS_AVERAGE : WEFT_GRADIENTS_SUM,
                                   .gap = d & 1};
            ranks_run_helped(round_steps, size, &job);
        }
}
