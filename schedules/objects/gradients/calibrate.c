/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Merged gradients: what an allreduce costs, measured when the object is created. The ranks begin
 * each size together, and agree on the time of the slowest; no larger size is tried once one has
 * taken long. So all have the same numbers, and go on after the same number of sizes.
 */
#include <math.h>
#include <string.h>

#include "schedules/objects/gradients/gradients.h"

enum { REPEATED = 5, REPEATED_LONG = 3, SMALLEST = 256, FACTOR = 8 };
/* Of one allreduce: what is larger is measured less often; what is larger still, not at all. */
#define LESS_NS UINT64_C(2000000)
#define LONG_NS UINT64_C(25000000)

struct weft__gradients_calibration {
    struct weft_context *context;
    size_t bytes[WEFT__CALIBRATION_SIZES];
    struct weft_run *runs[WEFT__CALIBRATION_SIZES];
    size_t count;
    void *data; /* owned */
    struct weft_run *agree;
    uint64_t agreed;
};

static int set_cost(struct weft_gradients *g, const struct weft_merge_point *points, size_t count)
{
    weft_memory_free(g->points);
    g->cost.points = NULL;
    g->cost.point_count = 0;
    g->points = weft_memory_alloc(count + 1, sizeof *points);
    if (!g->points)
        return weft__gradients_no_memory("costs", count);
    memcpy(g->points, points, count * sizeof *points);
    g->cost.points = g->points;
    g->cost.point_count = count;
    return WEFT_OK;
}

/* Of a function, values at 0 and at powers of two, up to all of the model in one group. */
static int sample(struct weft_gradients *g, const struct weft_merge_cost *cost)
{
    struct weft_merge_point points[66];
    size_t count = 0, most = g->model.count * weft_dtype_size(g->config.wire_dtype);
    int status = WEFT_OK;
    for (double bytes = 0; count < 2 || (count < 65 && points[count - 1].bytes < (double)most);
         bytes = bytes > 0 ? 2 * bytes : 1) {
        points[count].bytes = bytes;
        status = weft_merge_cost_get(cost, bytes, &points[count].us);
        if (status)
            return status;
        count++;
    }
    return set_cost(g, points, count);
}

int weft__gradients_copy_cost(struct weft_gradients *g, const struct weft_merge_cost *cost)
{
    g->cost = *cost;
    g->cost.function = NULL;
    g->cost.points = NULL;
    g->cost.point_count = 0;
    if (cost->function)
        return sample(g, cost);
    return cost->points ? set_cost(g, cost->points, cost->point_count) : WEFT_OK;
}

/* ---- measuring ---- */

static int make_run(struct weft_gradients *g, struct weft__gradients_calibration *calibration,
                    size_t i)
{
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.dtype = g->config.wire_dtype;
    params.count = calibration->bytes[i] / weft_dtype_size(params.dtype);
    params.in_place = 1;
    int status = weft__gradients_exchange(g, "allreduce", &params, "recv", calibration->data, NULL,
                                          &calibration->runs[i]);
    return status ? status : weft_run_set_deadline(calibration->runs[i], g->config.meet_ns);
}

static int make_agree(struct weft_gradients *g, struct weft__gradients_calibration *calibration)
{
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.dtype = WEFT_U64;
    params.count = 1;
    params.in_place = 1;
    params.op = weft_op_builtin(WEFT_MAX);
    int status = weft__gradients_exchange(g, "allreduce", &params, "recv", &calibration->agreed,
                                          NULL, &calibration->agree);
    return status ? status : weft_run_set_deadline(calibration->agree, g->config.meet_ns);
}

int weft__gradients_calibration_make(struct weft_gradients *g,
                                     struct weft__gradients_calibration **out)
{
    const size_t all = g->model.count * weft_dtype_size(g->config.wire_dtype);
    if (g->given_cost || g->measured_cost || g->ranks == 1 || !g->model.count)
        return WEFT_OK;
    struct weft__gradients_calibration *calibration = weft_memory_alloc(1, sizeof *calibration);
    *out = calibration;
    if (!calibration)
        return weft__gradients_no_memory("costs", WEFT__CALIBRATION_SIZES);
    calibration->context = g->context;
    /* The largest is all of the model, as far as sizes go: between two, costs are a guess. */
    size_t bytes = SMALLEST, count = 0;
    while (count < WEFT__CALIBRATION_SIZES && (count < 2 || calibration->bytes[count - 1] < all)) {
        calibration->bytes[count++] = bytes;
        bytes = bytes < all && all < FACTOR * bytes ? all : FACTOR * bytes;
    }
    calibration->count = count;
    calibration->data = weft_context_memory_alloc(g->context, calibration->bytes[count - 1], 1);
    if (!calibration->data)
        return weft__gradients_no_memory("measuring costs", calibration->bytes[count - 1]);
    int status = make_agree(g, calibration);
    for (size_t i = 0; i < count && !status; i++)
        status = make_run(g, calibration, i);
    return status;
}

void weft__gradients_calibration_free(struct weft__gradients_calibration *calibration)
{
    if (!calibration)
        return;
    for (size_t i = 0; i < calibration->count; i++)
        weft_run_destroy(calibration->runs[i]);
    weft_run_destroy(calibration->agree);
    weft_context_memory_free(calibration->context, calibration->data);
    weft_memory_free(calibration);
}

/* The median of some executions, after one that does not count: of the slowest rank. */
static int measure(struct weft_gradients *g, struct weft__gradients_calibration *calibration,
                   size_t i, size_t times)
{
    uint64_t took[REPEATED];
    int status = weft_run_execute(calibration->runs[i]);
    for (size_t r = 0; r < times && !status; r++) {
        uint64_t began = weft_context_now(g->context), t;
        status = weft_run_execute(calibration->runs[i]);
        t = weft_context_now(g->context) - began;
        size_t at = r;
        for (; at > 0 && took[at - 1] > t; at--)
            took[at] = took[at - 1];
        took[at] = t;
    }
    if (status)
        return status;
    calibration->agreed = took[times / 2];
    return weft_run_execute(calibration->agree);
}

int weft__gradients_calibrate(struct weft_gradients *g,
                              struct weft__gradients_calibration *calibration)
{
    struct weft_merge_point points[WEFT__CALIBRATION_SIZES];
    size_t count = 0;
    double least = 0;
    int status = WEFT_OK;
    if (!calibration)
        return WEFT_OK;
    while (count < calibration->count && !status) {
        status = measure(g, calibration, count,
                         count && calibration->agreed > LESS_NS ? REPEATED_LONG : REPEATED);
        if (status)
            break;
        /* What is larger takes no less: a smaller time is noise. */
        least = fmax(least, (double)calibration->agreed * 1e-3);
        points[count].bytes = (double)calibration->bytes[count];
        points[count].us = least;
        count++;
        if (count >= 2 && calibration->agreed > LONG_NS)
            break;
    }
    g->measured_cost = !status;
    if (!status && g->way == &weft__gradients_sparse)
        status = weft__gradients_sparse_cost(g, points, &count);
    if (!status && g->way == &weft__gradients_compressed)
        weft__gradients_compressed_cost(g, points, count);
    return status ? status : set_cost(g, points, count);
}
