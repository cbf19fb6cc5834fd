/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse averaging of gradients: what can be asked, and checkpoints. */
#include <math.h>
#include <string.h>

#include "schedules/objects/sparse_average/sparse_average.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

/* ---- going on from a checkpoint ---- */

static int out_of_memory(const char *what, size_t count)
{
    return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %s of %zu", what, count);
}

static int copy_residuals(struct weft_sparse_average *average,
                          const struct weft_sparse_average_state *state)
{
    size_t count = average->model.count;
    if (state) {
        average->stats = state->stats;
        average->step_base = state->stats.steps;
    }
    if (average->config.memory == WEFT_MEMORY_DEVICE)
        return WEFT_OK;
    average->residual = weft_memory_alloc(count + 1, sizeof(float));
    if (!average->residual)
        return out_of_memory("a residual", count);
    if (average->config.momentum != 0) {
        average->velocity = weft_memory_alloc(count + 1, sizeof(float));
        if (!average->velocity)
            return out_of_memory("a velocity", count);
    }
    if (!state)
        return WEFT_OK;
    if (state->residual)
        memcpy(average->residual, state->residual, count * sizeof(float));
    if (state->velocity)
        memcpy(average->velocity, state->velocity, count * sizeof(float));
    return WEFT_OK;
}

static int check_regions(const char *who, const struct weft__sparse_unit *unit, int ranks)
{
    uint32_t bits = (uint32_t)unit->regions[0];
    const uint64_t *bounds = unit->regions + 1;
    float threshold;
    memcpy(&threshold, &bits, sizeof threshold);
    if (unit->regions[0] > UINT32_MAX || !(threshold >= 0))
        return REFUSE(
            "%s: config->state->regions have a threshold of %g for tensor %zu, expected 0 "
            "or more",
            who, (double)threshold, unit->first);
    int wrong = bounds[0] != 0 || bounds[ranks] != unit->count;
    for (int j = 0; j < ranks; j++)
        wrong |= bounds[j] > bounds[j + 1];
    if (wrong)
        return REFUSE(
            "%s: config->state->regions have bounds for tensor %zu that do not ascend from "
            "0 to %zu",
            who, unit->first, unit->count);
    return WEFT_OK;
}

/* Thresholds and bounds: of the checkpoint, else equally long regions. */
static int copy_regions(const char *who, struct weft_sparse_average *average,
                        const struct weft_sparse_average_state *state)
{
    int ranks = weft_context_size(average->context), status = WEFT_OK;
    const struct weft_sparse nothing = weft__sparse_list(NULL, 0);
    size_t stride = (size_t)ranks + 2, count = stride * average->unit_count;
    if (average->config.method != WEFT_SPARSE_OKTOPK)
        return WEFT_OK;
    average->regions = weft_memory_alloc(count, sizeof *average->regions);
    if (!average->regions)
        return out_of_memory("regions", count);
    average->region_count = count;
    if (state && state->regions && state->region_count != count)
        return REFUSE("%s: config->state->region_count is %zu, expected %zu of %d ranks", who,
                      state->region_count, count, ranks);
    for (size_t u = 0; u < average->unit_count && !status; u++) {
        average->units[u].regions = average->regions + u * stride;
        status = weft_sparse_bounds(&nothing, average->units[u].count, ranks,
                                    average->units[u].regions + 1);
    }
    if (!status && state && state->regions)
        memcpy(average->regions, state->regions, count * sizeof *average->regions);
    for (size_t u = 0; u < average->unit_count && !status; u++)
        status = check_regions(who, &average->units[u], ranks);
    return status;
}

int weft__sparse_copy_state(const char *who, struct weft_sparse_average *average,
                            const struct weft_sparse_average_state *state)
{
    int status = copy_residuals(average, state);
    return status ? status : copy_regions(who, average, state);
}

/* ---- what can be asked ---- */

uint64_t weft_sparse_average_next(const struct weft_sparse_average *average)
{
    if (!average || !average->unit_count)
        return average ? average->first : 0;
    uint64_t next = UINT64_MAX;
    for (size_t u = 0; u < average->unit_count; u++)
        next = average->units[u].next < next ? average->units[u].next : next;
    return next;
}

int weft_sparse_average_get_stats(const struct weft_sparse_average *average,
                                  struct weft_sparse_average_stats *stats)
{
    if (!average || !stats)
        return REFUSE("%s: %s is NULL", __func__, average ? "stats" : "average");
    struct weft_sparse_average_stats counted = average->stats;
    counted.steps = average->step_base + weft_sparse_average_next(average) - average->first;
    return weft_sized_fill(__func__, "stats", stats, &counted, sizeof counted);
}

static int check_idle(const struct weft_sparse_average *average, const char *who)
{
    for (size_t u = 0; u < average->unit_count; u++)
        if (average->units[u].posted)
            return weft_error_set(WEFT_ERR_STATE, "%s: step %llu has not been waited for", who,
                                  (unsigned long long)average->units[u].next);
    return WEFT_OK;
}

/* The residual (0) or the velocity (1), or a copy of it. Nobody else reads that. */
static int find_vector(const struct weft_sparse_average *average, int which, const float **vector)
{
    *vector = which ? average->velocity : average->residual;
    return average->device ? weft__sparse_device_copy(
                                 (struct weft_sparse_average *)(uintptr_t)average, which, vector)
                           : WEFT_OK;
}

int weft_sparse_average_residual_norm(const struct weft_sparse_average *average, double *norm)
{
    if (!average || !norm)
        return REFUSE("%s: %s is NULL", __func__, average ? "norm" : "average");
    int status = check_idle(average, __func__);
    const float *residual = NULL;
    double sum = 0;
    if (!status)
        status = find_vector(average, 0, &residual);
    for (size_t i = 0; !status && i < average->model.count; i++)
        sum += (double)residual[i] * (double)residual[i];
    if (!status)
        *norm = sqrt(sum);
    return status;
}

/* What has been selected and not been sent. Of the paper's residuals what the sum does not have has
 * gone back already where a step had ended before others failed. */
static int find_unsent(struct weft_sparse_average *average, const float **unsent)
{
    int any = 0;
    for (size_t u = 0; u < average->unit_count; u++)
        any |= average->units[u].failed && average->units[u].own;
    if (any && !average->unsent) {
        average->unsent = weft_memory_alloc(average->model.count, sizeof *average->unsent);
        if (!average->unsent)
            return out_of_memory("what was not sent,", average->model.count);
        for (size_t u = 0; u < average->unit_count; u++) {
            const struct weft__sparse_unit *unit = &average->units[u];
            const struct weft_sparse own = weft__sparse_list(unit->own, unit->selected);
            int status =
                unit->failed && unit->own
                    ? weft_sparse_scatter_add(&own, 1, average->unsent + unit->offset, unit->count)
                    : WEFT_OK;
            if (status)
                return status;
        }
    }
    *unsent = average->unsent;
    return WEFT_OK;
}

int weft_sparse_average_get_state(const struct weft_sparse_average *average,
                                  struct weft_sparse_average_state *state)
{
    if (!average || !state)
        return REFUSE("%s: %s is NULL", __func__, average ? "state" : "average");
    int failed = weft_object_check(average->object, __func__) != WEFT_OK;
    int status = check_idle(average, __func__);
    for (size_t u = 1; u < average->unit_count && !status; u++)
        if (average->units[u].next != average->units[0].next)
            status = weft_error_set(WEFT_ERR_STATE,
                                    "%s: tensor %zu has had %llu steps and tensor 0 %llu, expected "
                                    "as many of all",
                                    __func__, u, (unsigned long long)average->units[u].next,
                                    (unsigned long long)average->units[0].next);
    if (status)
        return status;
    struct weft_sparse_average_state now = {.next = weft_sparse_average_next(average),
                                            .regions = failed ? NULL : average->regions,
                                            .region_count = failed ? 0 : average->region_count,
                                            .failed = failed,
                                            .stats = {.struct_size = sizeof now.stats}};
    weft_sparse_average_get_stats(average, &now.stats);
    status = find_vector(average, 0, &now.residual);
    if (!status)
        status = find_vector(average, 1, &now.velocity);
    if (!status && failed) /* nobody else reads it */
        status = find_unsent((struct weft_sparse_average *)(uintptr_t)average, &now.unsent);
    return status ? status : weft_sized_fill(__func__, "state", state, &now, sizeof now);
}
