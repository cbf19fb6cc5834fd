/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compressed averaging: PowerSGD, whose sums are those of the template powersgd-allreduce.
 *
 * Of each matrix M there is a factor Q, from which the step begins and which it replaces:
 *
 *     P = orthonormalise(sum of M Q)      Q' = sum of M^T P      sum of M ~ P Q'^T
 *
 * The next step begins from Q' with columns of length 1, which changes nothing but what overflows.
 * Of a sum of less rank some columns of Q' are 0, and would stay so for ever: they begin anew, from
 * the seed and the step. All of it is computed from what all ranks have alike, in a fixed order, so
 * factors are the same bits on all ranks.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "schedules/objects/compressed_average/compressed_average.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

enum { RANK = 2 };

/* The factor of a tensor. */
struct factor {
    size_t offset;        /* in `factors` */
    size_t rows, columns; /* of the tensor's matrix */
    size_t rank;          /* 0: it is sent as it is */
};

struct powersgd {
    struct factor *of; /* by tensor; owned */
    size_t number_count;
    float *factors;                  /* the engine's while a step is posted; owned */
    float *kept;                     /* those that the next step begins from; owned */
    struct weft__sum plain;          /* of warm-up steps */
    struct weft__compressed_run run; /* of the others */
    double bits;
};

static int check(struct weft_compressed_average *average)
{
    struct weft_powersgd_config *config = &average->powersgd;
    config->rank = config->rank ? config->rank : RANK;
    if (!(config->least_ratio >= 0) || isinf(config->least_ratio))
        return REFUSE("%s: config->powersgd->least_ratio is %g, expected a number, 0 or more",
                      average->who, config->least_ratio);
    if (config->least_ratio == 0)
        config->least_ratio = 1;
    if ((unsigned)config->cold_start > 1)
        return REFUSE("%s: config->powersgd->cold_start is %d, expected 0 or 1", average->who,
                      config->cold_start);
    return WEFT_OK;
}

static size_t settings_of(const struct weft_compressed_average *average,
                          struct weft__setting settings[])
{
    const struct weft_powersgd_config *config = &average->powersgd;
    settings[0] = weft__setting_count("config->powersgd->rank", config->rank);
    settings[1] = weft__setting_count("config->powersgd->warmup_steps", config->warmup_steps);
    settings[2] = weft__setting_count("config->powersgd->cold_start", (uint64_t)config->cold_start);
    settings[3] = weft__setting_count("config->powersgd->seed", config->seed);
    settings[4] = weft__setting_real("config->powersgd->least_ratio", config->least_ratio);
    return 5;
}

/* ---- factors ---- */

/* About normal: the sum of four numbers that are uniform. */
static float draw(uint64_t seed, uint64_t index)
{
    const uint64_t bits = weft__scramble(seed + index);
    int64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (int64_t)(bits >> (16 * i) & 0xffff) - 0x8000;
    return (float)sum / 0x8000;
}

/* Not by the tensor's number, so that merged gradients get the same in any group. */
static void draw_column(const struct weft_compressed_average *average, size_t tensor, size_t column,
                        uint64_t step, float *factor)
{
    const struct powersgd *own = average->own;
    const struct factor *of = &own->of[tensor];
    uint64_t seed = weft__scramble(average->powersgd.seed ^ weft__scramble(step));
    seed = weft__scramble(weft__scramble(seed ^ of->rows) ^ of->columns);
    seed = weft__scramble(seed ^ column);
    for (size_t k = 0; k < of->columns; k++)
        factor[k * of->rank + column] = draw(seed, k);
}

/* From the seed and a step. */
static void draw_factors(struct weft_compressed_average *average, uint64_t step)
{
    const struct powersgd *own = average->own;
    for (size_t t = 0; t < average->model.tensor_count; t++)
        for (size_t j = 0; j < own->of[t].rank; j++)
            draw_column(average, t, j, step, own->kept + own->of[t].offset);
}

/* Columns get length 1. One that has none, or no number for it, begins anew. */
static void scale_column(const struct weft_compressed_average *average, size_t tensor,
                         size_t column, float *factor)
{
    const struct powersgd *own = average->own;
    const struct factor *of = &own->of[tensor];
    double sum = 0;
    for (size_t k = 0; k < of->columns; k++) {
        const double value = factor[k * of->rank + column];
        sum += value * value;
    }
    if (!(sum > 0) || isinf(sum)) {
        draw_column(average, tensor, column, average->next + 1, factor);
        return;
    }
    const double length = sqrt(sum);
    for (size_t k = 0; k < of->columns; k++)
        factor[k * of->rank + column] = (float)(factor[k * of->rank + column] / length);
}

/* ---- life ---- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* What the tensors' factors are; returns the elements that are sent of all of them. */
static double lay_out(const struct weft_compressed_average *average, struct powersgd *own)
{
    const struct weft_powersgd_config *config = &average->powersgd;
    double sent = 0;
    for (size_t t = 0; t < average->model.tensor_count; t++) {
        struct factor *of = &own->of[t];
        const double count = (double)average->model.tensors[t].count;
        weft__compressed_matrix(&average->shapes[t], &of->rows, &of->columns);
        const size_t rank = least(config->rank, least(of->rows, of->columns));
        const double factored = (double)rank * ((double)of->rows + (double)of->columns);
        of->offset = own->number_count;
        of->rank = rank && count >= config->least_ratio * factored ? rank : 0;
        own->number_count += of->columns * of->rank;
        sent += of->rank ? factored : count;
    }
    return sent;
}

static int bind(struct weft_compressed_average *average, struct powersgd *own)
{
    struct weft_run *run = own->run.run;
    const size_t count = average->model.count;
    char name[40];
    int status = weft_run_bind_input_name(run, "send", average->values, count, WEFT_F32);
    if (!status)
        status = weft_run_bind_name(run, "recv", average->sum, count, WEFT_F32);
    if (!status && average->keeps)
        status = weft_run_bind_name(run, "sent", average->sent, count, WEFT_F32);
    for (size_t t = 0; t < average->model.tensor_count && !status; t++) {
        const struct factor *of = &own->of[t];
        snprintf(name, sizeof name, "factor.%zu", t);
        if (of->rank)
            status = weft_run_bind_name(run, name, own->factors + of->offset,
                                        of->columns * of->rank, WEFT_F32);
    }
    return status;
}

/* Of columns that are made orthonormal there are not more. */
static int check_ranks(const struct weft_compressed_average *average, const struct powersgd *own)
{
    for (size_t t = 0; t < average->model.tensor_count; t++)
        if (own->of[t].rank > WEFT_ORTHONORMALISE_COLUMNS)
            return REFUSE("%s: config->powersgd->rank is %zu, of which tensor %zu takes %zu, "
                          "expected at most %d",
                          average->who, average->powersgd.rank, t, own->of[t].rank,
                          WEFT_ORTHONORMALISE_COLUMNS);
    return WEFT_OK;
}

static int make_run(struct weft_compressed_average *average, struct powersgd *own)
{
    const size_t tensors = average->model.tensor_count;
    struct weft_template_params params;
    struct weft_compressed_block *blocks = weft_memory_alloc(tensors + 1, sizeof *blocks);
    if (!blocks)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for %zu matrices", average->who,
                              tensors);
    for (size_t t = 0; t < tensors; t++) {
        const struct factor *of = &own->of[t];
        blocks[t].count = average->model.tensors[t].count;
        blocks[t].slice = of->rank ? of->columns : 0;
        blocks[t].components = of->rank;
    }
    weft_template_params_init(&params);
    params.blocks = blocks;
    params.block_count = tensors;
    params.sent = average->keeps;
    int status = weft__compressed_run_make(average, "powersgd-allreduce", &params, &own->run);
    weft_memory_free(blocks);
    return status ? status : bind(average, own);
}

static int create(struct weft_compressed_average *average)
{
    struct powersgd *own = weft_memory_alloc(1, sizeof *own);
    if (!own)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", average->who);
    average->own = own;
    own->of = weft_memory_alloc(average->model.tensor_count + 1, sizeof *own->of);
    if (own->of)
        own->bits = 32 * lay_out(average, own) / (double)average->model.count;
    int status = own->of ? check_ranks(average, own) : WEFT_OK;
    if (status)
        return status;
    own->factors =
        weft_context_memory_alloc(average->context, own->number_count + 1, sizeof *own->factors);
    own->kept = weft_memory_alloc(own->number_count + 1, sizeof *own->kept);
    if (!own->of || !own->factors || !own->kept)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for factors of %zu elements",
                              average->who, own->number_count);
    draw_factors(average, 0);
    if (average->powersgd.warmup_steps) /* whatever the step: after a failure it may differ */
        status = weft__sum_make(average, &own->plain, NULL, average->model.count);
    return status ? status : make_run(average, own);
}

static void destroy(struct weft_compressed_average *average)
{
    struct powersgd *own = average->own;
    weft__compressed_run_free(average, &own->run);
    weft__sum_free(average, &own->plain);
    weft_memory_free(own->kept);
    weft_context_memory_free(average->context, own->factors);
    weft_memory_free(own->of);
    weft_memory_free(own);
}

/* ---- steps ---- */

static int warms_up(const struct weft_compressed_average *average)
{
    return average->next < average->powersgd.warmup_steps;
}

static weft_compressed_phase_t phase(const struct weft_compressed_average *average)
{
    return warms_up(average) ? WEFT_COMPRESSED_WARMUP : WEFT_COMPRESSED_COMPRESSED;
}

static int post(struct weft_compressed_average *average)
{
    struct powersgd *own = average->own;
    if (warms_up(average))
        return weft__sum_start(average, &own->plain);
    if (average->powersgd.cold_start)
        draw_factors(average, average->next);
    memcpy(own->factors, own->kept, own->number_count * sizeof *own->factors);
    return weft__compressed_run_start(average, &own->run);
}

static int wait(struct weft_compressed_average *average, uint64_t until)
{
    struct powersgd *own = average->own;
    average->step.phase = phase(average);
    if (warms_up(average))
        return weft__sum_wait(average, &own->plain, until);
    int status = weft__compressed_run_wait(average, &own->run, until);
    if (status)
        return status;
    average->step.bits = own->bits;
    average->step.loss = -1;
    for (size_t t = 0; t < average->model.tensor_count; t++)
        for (size_t j = 0; j < own->of[t].rank; j++)
            scale_column(average, t, j, own->factors + own->of[t].offset);
    return WEFT_OK;
}

static void keep(struct weft_compressed_average *average)
{
    struct powersgd *own = average->own;
    if (!warms_up(average) && !average->powersgd.cold_start)
        memcpy(own->kept, own->factors, own->number_count * sizeof *own->kept);
}

/* ---- states ---- */

enum { STATE_RANK, STATE_COMMON };

/* With a cold start nothing is gone on from. */
static size_t saved_of(const struct weft_compressed_average *average, size_t tensor)
{
    const struct factor *of = &((const struct powersgd *)average->own)->of[tensor];
    return average->powersgd.cold_start ? 0 : of->columns * of->rank;
}

static size_t state_size(const struct weft_compressed_average *average)
{
    size_t count = 0;
    for (size_t t = 0; t < average->model.tensor_count; t++)
        count += saved_of(average, t);
    return count;
}

static void save(const struct weft_compressed_average *average, uint64_t *words, float *numbers)
{
    const struct powersgd *own = average->own;
    words[STATE_RANK] = average->powersgd.rank;
    for (size_t t = 0; t < average->model.tensor_count; t++)
        words[STATE_COMMON + t] = saved_of(average, t);
    if (!average->powersgd.cold_start)
        memcpy(numbers, own->kept, own->number_count * sizeof *numbers);
}

static int load(struct weft_compressed_average *average, int ranks, const uint64_t *words,
                size_t word_count, const float *numbers, size_t number_count)
{
    struct powersgd *own = average->own;
    const char *who = average->who;
    (void)ranks;
    (void)word_count;
    if (words[STATE_RANK] != average->powersgd.rank)
        return REFUSE("%s: config->state is of rank %llu, expected %zu (config->powersgd->rank)",
                      who, (unsigned long long)words[STATE_RANK], average->powersgd.rank);
    for (size_t t = 0; t < average->model.tensor_count; t++)
        if (words[STATE_COMMON + t] != saved_of(average, t))
            return REFUSE("%s: config->state has %llu numbers for tensor %zu, expected %zu", who,
                          (unsigned long long)words[STATE_COMMON + t], t, saved_of(average, t));
    for (size_t i = 0; i < number_count; i++)
        if (!isfinite(numbers[i]))
            return REFUSE("%s: config->state->numbers[%zu] is %g, expected a finite number", who, i,
                          (double)numbers[i]);
    if (number_count)
        memcpy(own->kept, numbers, number_count * sizeof *numbers);
    return WEFT_OK;
}

static void renew(struct weft_compressed_average *average)
{
    draw_factors(average, average->next);
}

static int get_tensor(const struct weft_compressed_average *average, size_t tensor,
                      struct weft_gradiveq_tensor *info)
{
    const struct factor *of = &((const struct powersgd *)average->own)->of[tensor];
    if (!of->rank)
        return WEFT_OK;
    info->slice = of->columns;
    info->slices = info->reuse = of->rows;
    info->components = of->rank;
    info->loss = -1;
    return WEFT_OK;
}

const struct weft__compression weft__compression_powersgd = {
    .name = "powersgd",
    .keeps = 1,
    .check = check,
    .settings = settings_of,
    .create = create,
    .destroy = destroy,
    .post = post,
    .wait = wait,
    .keep = keep,
    .phase = phase,
    .state_common = STATE_COMMON,
    .state_each = 1,
    .state_size = state_size,
    .save = save,
    .load = load,
    .renew = renew,
    .tensor = get_tensor,
};
