/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleeps end at times that are computed from the beginning of the step, so that those that last too
 * long do not add up.
 */
#include "tools/train/pace.h"

#include <math.h>
#include <time.h>

enum { REPEATS = 5 };

struct train_pace {
    struct weft_context *context;
    size_t layers;
    /** Shares of all layers forward, then of all backward. */
    double *shares;
    uint64_t step_ns;
    /** When the step began, later by what was no computation; and the shares that are over. */
    uint64_t began_ns;
    double over;
};

/* Makes them add up to 1. */
static void normalise(struct train_pace *pace)
{
    double sum = 0.0;

    for (size_t i = 0; i < 2 * pace->layers; i++)
        sum += pace->shares[i];
    for (size_t i = 0; i < 2 * pace->layers && sum > 0.0; i++)
        pace->shares[i] /= sum;
}

int train_pace_create(struct train_pace **pace, struct weft_context *context,
                      const struct model *model, uint64_t step_ns)
{
    struct train_pace *made = weft_memory_alloc(1, sizeof *made);
    size_t layers = model_layer_count(model);

    if (made)
        made->shares = weft_memory_alloc(2 * layers, sizeof *made->shares);
    if (!made || !made->shares) {
        weft_memory_free(made);
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the pace of %zu layers", layers);
    }
    made->context = context;
    made->layers = layers;
    made->step_ns = step_ns;
    for (size_t l = 0; l < layers; l++) {
        struct model_layer layer;
        model_get_layer(model, l, &layer);
        made->shares[l] = layer.forward_work;
        made->shares[layers + l] = layer.backward_work;
    }
    normalise(made);
    *pace = made;
    return WEFT_OK;
}

/* ---- measuring ---- */

struct stopwatch {
    double *shares;
    size_t layers;
    double last;
};

static double processor_time(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void take_time(struct stopwatch *watch, size_t share)
{
    double time = processor_time();

    watch->shares[share] = fmin(watch->shares[share], time - watch->last);
    watch->last = time;
}

static int time_forward(void *user, size_t layer)
{
    take_time(user, layer);
    return WEFT_OK;
}

static int time_backward(void *user, size_t layer)
{
    struct stopwatch *watch = user;

    take_time(watch, watch->layers + layer);
    return WEFT_OK;
}

int train_pace_measure(struct train_pace *pace, struct model *model, const train_real_t *images,
                       const uint8_t *labels, size_t batch)
{
    struct stopwatch watch = {pace->shares, pace->layers, 0.0};
    struct model_watcher watcher = {.passed = time_forward, .ready = time_backward, .user = &watch};
    int status = WEFT_OK;
    double loss;

    for (size_t i = 0; i < 2 * pace->layers; i++)
        pace->shares[i] = INFINITY;
    for (int repeat = 0; repeat < REPEATS && status == WEFT_OK; repeat++) {
        watch.last = processor_time();
        status = model_gradient(model, images, labels, batch, &watcher, &loss);
    }
    normalise(pace);
    return status;
}

void train_pace_destroy(struct train_pace *pace)
{
    if (pace)
        weft_memory_free(pace->shares);
    weft_memory_free(pace);
}

/* ---- a step ---- */

void train_pace_begin(struct train_pace *pace)
{
    pace->began_ns = weft_context_now(pace->context);
    pace->over = 0.0;
}

static int sleep_to(struct train_pace *pace, double share)
{
    pace->over += share;
    uint64_t end = pace->began_ns + (uint64_t)(pace->over * (double)pace->step_ns + 0.5);
    uint64_t now = weft_context_now(pace->context);

    return end > now && pace->step_ns ? weft_context_sleep(pace->context, end - now) : WEFT_OK;
}

int train_pace_forward(struct train_pace *pace, size_t layer)
{
    return sleep_to(pace, train_pace_forward_share(pace, layer));
}

int train_pace_backward(struct train_pace *pace, size_t layer)
{
    return sleep_to(pace, train_pace_backward_share(pace, layer));
}

void train_pace_shift(struct train_pace *pace, uint64_t ns)
{
    pace->began_ns += ns;
}

double train_pace_forward_share(const struct train_pace *pace, size_t layer)
{
    return pace->shares[layer];
}

double train_pace_backward_share(const struct train_pace *pace, size_t layer)
{
    return pace->shares[pace->layers + layer];
}
