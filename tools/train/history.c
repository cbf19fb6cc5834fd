/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * With the sum of all models and the sum of their squared norms the distances to the mean are known
 * without a second look at the models: sum |x - m|^2 = sum |x|^2 - P |m|^2. The sums are doubles:
 * of models that are the same the difference is below 1e-12 of what is subtracted, and taken for 0.
 */
#include "tools/train/history.h"

#include "tools/train/random.h"
#include "tools/train/together.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { FIRST = 10, EVENLY = 60, EVENLY_LEAST = 8 };

/* What the sums may take. */
static const size_t MOST_BYTES = (size_t)256 << 20;

enum { MOMENTS = FIRST + EVENLY + 2 };

struct moment {
    /** The steps after which it is. */
    uint64_t done;
    /** Owned; NULL: no rank has added to it. */
    double *sums;
    double squares;
    double seconds;
    int added;
    /** Of all processes: sums, and squares and seconds. Owned, or NULL. 1: all have added. */
    double *total;
    double both[2];
    int common;
};

struct train_history {
    size_t parameters;
    int ranks;
    /** 1: totals are those of `ranks` ranks. */
    int merged;
    pthread_mutex_t lock;
    /** In ascending order; one more for the last models. */
    struct moment moments[MOMENTS];
    size_t count;
};

static void choose_moments(struct train_history *history, uint64_t steps, uint64_t seed)
{
    struct train_random random = train_random_make(seed, TRAIN_RANDOM_HISTORY, 0, 0);
    uint64_t parts = MOST_BYTES / (history->parameters * sizeof(double));
    uint64_t first = FIRST;

    parts = parts > EVENLY ? EVENLY : parts < EVENLY_LEAST ? EVENLY_LEAST : parts;
    first = first > parts ? parts : first;
    for (uint64_t done = 0; done <= first && done < steps; done++)
        history->moments[history->count++].done = done;
    for (uint64_t part = 0; part < parts; part++) {
        /* Products of steps, at most 1e9, and parts fit by far. */
        uint64_t low = steps * part / parts;
        uint64_t high = steps * (part + 1) / parts;
        if (low == high)
            continue;
        uint64_t done = low + 1 + train_random_below(&random, high - low);
        if (done > first && done < steps)
            history->moments[history->count++].done = done;
    }
    history->moments[history->count++].done = UINT64_MAX;
}

int train_history_create(struct train_history **history, size_t parameters, int ranks,
                         uint64_t steps, uint64_t seed)
{
    struct train_history *made = weft_memory_alloc(1, sizeof *made);

    if (!made)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a history of the models");
    made->parameters = parameters;
    made->ranks = ranks;
    pthread_mutex_init(&made->lock, NULL);
    choose_moments(made, steps, seed);
    *history = made;
    return WEFT_OK;
}

static double square_of(const float *data, size_t count)
{
    double part[4] = {0};
    size_t i = 0;

    /* Four sums that do not wait for each other. */
    for (; i + 4 <= count; i += 4)
        for (int j = 0; j < 4; j++)
            part[j] += (double)data[i + (size_t)j] * (double)data[i + (size_t)j];
    for (; i < count; i++)
        part[0] += (double)data[i] * (double)data[i];
    return part[0] + part[1] + (part[2] + part[3]);
}

/* Under the lock. */
static int add_sums(struct train_history *history, struct moment *moment,
                    const struct weft_piece *tensors, size_t count)
{
    if (!moment->sums)
        moment->sums = weft_memory_alloc(history->parameters, sizeof *moment->sums);
    if (!moment->sums) {
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the sum of models of %zu parameters",
                              history->parameters);
    }
    double *sum = moment->sums;
    for (size_t tensor = 0; tensor < count; tensor++) {
        const float *data = tensors[tensor].data;
        for (size_t i = 0; i < tensors[tensor].count; i++)
            sum[i] += data[i];
        sum += tensors[tensor].count;
    }
    return WEFT_OK;
}

static int add(struct train_history *history, struct moment *moment, double seconds,
               const struct weft_piece *tensors, size_t count)
{
    double square = 0.0;

    for (size_t tensor = 0; tensor < count; tensor++)
        square += square_of(tensors[tensor].data, tensors[tensor].count);
    pthread_mutex_lock(&history->lock);
    int status = add_sums(history, moment, tensors, count);
    moment->squares += square;
    moment->seconds += seconds;
    moment->added++;
    pthread_mutex_unlock(&history->lock);
    return status;
}

int train_history_wants(const struct train_history *history, size_t *next, uint64_t done)
{
    while (history->moments[*next].done < done)
        (*next)++; /* who goes on where others are has missed them */
    return history->moments[*next].done == done;
}

int train_history_add(struct train_history *history, size_t *next, uint64_t done, double seconds,
                      const struct weft_piece *tensors, size_t count)
{
    if (!train_history_wants(history, next, done))
        return WEFT_OK;
    return add(history, &history->moments[(*next)++], seconds, tensors, count);
}

int train_history_add_last(struct train_history *history, double seconds,
                           const struct weft_piece *tensors, size_t count)
{
    return add(history, &history->moments[history->count - 1], seconds, tensors, count);
}

/* ---- over processes ---- */

/* The sums of all ranks, beside those of this process: it may have to be done again. */
static int merge_moment(struct train_history *history, struct moment *moment, struct weft_run *sum,
                        struct weft_run *numbers)
{
    size_t bytes = history->parameters * sizeof *moment->total;

    if (!moment->total)
        moment->total = weft_memory_alloc(history->parameters, sizeof *moment->total);
    if (!moment->total) {
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the sum of models of %zu parameters",
                              history->parameters);
    }
    memcpy(moment->total, moment->sums, bytes);
    moment->both[0] = moment->squares;
    moment->both[1] = moment->seconds;
    int status = weft_run_bind_name(sum, "recv", moment->total, history->parameters, WEFT_F64);
    if (status == WEFT_OK)
        status = weft_run_bind_name(numbers, "recv", moment->both, 2, WEFT_F64);
    if (status == WEFT_OK)
        status = weft_run_execute(sum);
    return status == WEFT_OK ? weft_run_execute(numbers) : status;
}

/* Moments that all ranks have: who goes on where others are has missed some. */
static int find_common(struct train_history *history, struct weft_context *context,
                       struct weft_object *object)
{
    uint8_t has[MOMENTS];
    struct weft_template_params params;
    struct weft_run *run = NULL;

    for (size_t i = 0; i < history->count; i++)
        has[i] = history->moments[i].added > 0;
    weft_template_params_init(&params);
    params.dtype = WEFT_U8;
    params.op = weft_op_builtin(WEFT_MIN);
    params.in_place = 1;
    params.count = history->count;
    int status = train_together(&run, context, object, "allreduce", &params);
    if (status == WEFT_OK)
        status = weft_run_bind_name(run, "recv", has, history->count, WEFT_U8);
    if (status == WEFT_OK)
        status = weft_run_execute(run);
    weft_run_destroy(run);
    for (size_t i = 0; i < history->count; i++)
        history->moments[i].common = has[i];
    return status;
}

int train_history_merge(struct train_history *history, struct weft_context *context)
{
    struct weft_template_params params;
    struct weft_run *sum = NULL, *numbers = NULL;
    struct weft_object *object = NULL;
    int status = weft_object_create(&object, context, NULL);

    if (status == WEFT_OK)
        status = find_common(history, context, object);

    weft_template_params_init(&params);
    params.dtype = WEFT_F64;
    params.in_place = 1;
    params.count = history->parameters;
    if (status == WEFT_OK)
        status = train_together(&sum, context, object, "allreduce", &params);
    params.count = 2;
    if (status == WEFT_OK)
        status = train_together(&numbers, context, object, "allreduce", &params);
    for (size_t i = 0; i < history->count && status == WEFT_OK; i++)
        if (history->moments[i].common)
            status = merge_moment(history, &history->moments[i], sum, numbers);
    weft_run_destroy(numbers);
    weft_run_destroy(sum);
    weft_object_destroy(object);
    history->merged = status == WEFT_OK;
    if (history->merged)
        history->ranks = weft_context_size(context);
    return status;
}

/* ---- what came of it ---- */

static int is_whole(const struct train_history *history, const struct moment *moment)
{
    return history->merged ? moment->common : moment->added == history->ranks;
}

static const struct moment *find_moment(const struct train_history *history, size_t number)
{
    for (size_t i = 0; i < history->count; i++)
        if (is_whole(history, &history->moments[i]) && number-- == 0)
            return &history->moments[i];
    return NULL;
}

size_t train_history_count(const struct train_history *history)
{
    size_t count = 0;

    for (size_t i = 0; i < history->count; i++)
        count += (size_t)is_whole(history, &history->moments[i]);
    return count;
}

void train_history_get(const struct train_history *history, size_t number,
                       struct train_history_point *point, float *mean)
{
    const struct moment *moment = find_moment(history, number);
    const double *sums = history->merged ? moment->total : moment->sums;
    double squares = history->merged ? moment->both[0] : moment->squares;
    double seconds = history->merged ? moment->both[1] : moment->seconds;
    double square = 0.0;

    for (size_t i = 0; i < history->parameters; i++) {
        double value = sums[i] / history->ranks;
        mean[i] = (float)value;
        square += value * value;
    }
    double of_models = squares / history->ranks;
    double distance = of_models - square;
    point->done = moment->done;
    point->seconds = seconds / history->ranks;
    point->distance = distance <= 1e-12 * of_models ? 0.0 : sqrt(distance);
}

void train_history_destroy(struct train_history *history)
{
    if (!history)
        return;
    for (size_t i = 0; i < history->count; i++) {
        weft_memory_free(history->moments[i].total);
        weft_memory_free(history->moments[i].sums);
    }
    pthread_mutex_destroy(&history->lock);
    weft_memory_free(history);
}
