/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse averaging of gradients (weft/sparse_average.h says what it computes): steps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "schedules/objects/sparse_average/member.h"
#include "schedules/objects/sparse_average/sparse_average.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

/* ---- densities ---- */

/* Warming up: the density of a step. Else -1. */
static double warmup_density(const struct weft_sparse_average *average, uint64_t step)
{
    uint64_t phase = step / average->config.warmup_steps;
    return phase < average->density_count ? average->densities[phase] : -1;
}

size_t weft__sparse_pairs(double density, size_t count)
{
    size_t k = (size_t)(density * (double)count + 0.5);
    k = k < count ? k : count;
    return k ? k : count > 0;
}

size_t weft__sparse_k(const struct weft_sparse_average *average, size_t count)
{
    size_t k = average->config.k;
    return !k ? weft__sparse_pairs(average->config.density, count) : k < count ? k : count;
}

size_t weft__sparse_step_k(const struct weft__sparse_unit *unit, uint64_t step)
{
    double density = warmup_density(unit->average, step);
    return density >= 0 ? weft__sparse_pairs(density, unit->count)
                        : weft__sparse_k(unit->average, unit->count);
}

/* Of units in a step. */
static double density_of(const struct weft_sparse_average *average,
                         const struct weft__sparse_unit *units, size_t count, uint64_t step)
{
    double density = warmup_density(average, step);
    if (density >= 0 || !average->config.k)
        return density >= 0 ? density : average->config.density;
    size_t k = 0, elements = 0;
    for (size_t u = 0; u < count; u++) {
        k += weft__sparse_k(average, units[u].count);
        elements += units[u].count;
    }
    return elements ? (double)k / (double)elements : 0;
}

double weft_sparse_average_density(const struct weft_sparse_average *average, uint64_t step)
{
    return average ? density_of(average, average->units, average->unit_count, step) : 0;
}

/* ---- post ---- */

static int is_oktopk(const struct weft_sparse_average *average)
{
    return average->config.method == WEFT_SPARSE_OKTOPK;
}

static int check_state(const struct weft_sparse_average *average, const char *who)
{
    if (!average)
        return REFUSE("%s: average is NULL", who);
    int failed = weft_object_check(average->object, who);
    if (failed)
        return failed;
    if (average->stepping)
        return weft_error_set(WEFT_ERR_STATE,
                              "%s: step %llu has been begun and not been waited for", who,
                              (unsigned long long)average->units[0].next);
    return WEFT_OK;
}

/* What has failed the object tells more than the run that has failed with it. */
static int fail(struct weft_sparse_average *average, const char *who, int status)
{
    int failed = weft_object_check(average->object, who);
    return failed ? failed : status;
}

static int post_unit(struct weft__sparse_unit *unit, const char *who)
{
    struct weft_sparse_average *average = unit->average;
    unit->k = weft__sparse_step_k(unit, unit->next);
    unit->selected = unit->kept = 0;
    if (unit->run) {
        uint64_t began = weft_context_now(average->context);
        int status = weft__sparse_select(unit), selected = !status;
        average->stats.selection_ns += weft_context_now(average->context) - began;
        if (!status)
            status =
                is_oktopk(average) ? weft__sparse_regions_start(unit) : weft__sparse_start(unit);
        if (status) {
            unit->failed |= selected;
            return fail(average, who, status);
        }
    }
    unit->posted = 1;
    return WEFT_OK;
}

/* A step of all units has failed: what has been posted of it ends, and what has ended was for
 * nothing. */
static void give_up(struct weft_sparse_average *average)
{
    uint64_t step = UINT64_MAX;
    char text[512];
    snprintf(text, sizeof text, "%s", weft_error_text());
    int status = weft_object_check(average->object, "");
    for (size_t u = 0; u < average->unit_count; u++)
        if (average->units[u].next < step)
            step = average->units[u].next;
    for (size_t u = 0; status && u < average->unit_count; u++) {
        struct weft__sparse_unit *unit = &average->units[u];
        if (unit->posted && unit->run)
            weft_run_wait(unit->run, WEFT_NEVER);
        unit->failed |= unit->posted || unit->next > step;
        unit->posted = 0;
        unit->next = step;
    }
    average->stepping = 0;
    if (status)
        weft_error_set(status, "%s", text);
}

static int post(struct weft_sparse_average *average, const char *who)
{
    int status = check_state(average, who);
    for (size_t u = 0; !status && u < average->unit_count; u++)
        if (average->units[u].posted)
            status = weft_error_set(WEFT_ERR_STATE,
                                    "%s: step %llu of tensor %zu has been posted and not been "
                                    "waited for",
                                    who, (unsigned long long)average->units[u].next,
                                    average->units[u].first);
    if (status)
        return status;
    for (size_t u = average->unit_count; !status && u > 0; u--) { /* as a backward pass would */
        status = post_unit(&average->units[u - 1], who);
        if (status)
            give_up(average);
    }
    return status;
}

/* ---- wait ---- */

/* What this rank has selected and the sum does not have goes back. */
static int put_back(struct weft__sparse_unit *unit)
{
    struct weft_sparse_average *average = unit->average;
    struct weft_sparse own = weft__sparse_list(unit->own, unit->selected);
    struct weft_sparse kept = weft__sparse_list(unit->list, unit->kept), left = {0};
    const uint32_t *mine = own.indices, *in = kept.indices;
    const float *value = own.values;
    if (average->device)
        left = weft__sparse_list(average->device->pairs, own.count);
    left.count = 0;
    for (size_t i = 0, j = 0; i < own.count; i++) {
        while (j < kept.count && in[j] < mine[i])
            j++;
        if (j < kept.count && in[j] == mine[i])
            continue;
        average->stats.returned++;
        average->stats.returned_mass += fabs((double)value[i]);
        if (!average->device)
            continue;
        ((uint32_t *)left.indices)[left.count] = mine[i];
        ((float *)left.values)[left.count++] = value[i];
    }
    return average->device
               ? weft__sparse_pend(unit, &left)
               : weft_sparse_put_back(&own, &kept, average->residual + unit->offset, unit->count);
}

static int end_unit(struct weft__sparse_unit *unit)
{
    struct weft_sparse_average_stats *stats = &unit->average->stats;
    int status = WEFT_OK, regions = is_oktopk(unit->average);
    if (unit->run && regions)
        status = weft__sparse_regions_end(unit);
    else if (unit->run)
        weft__sparse_count(unit);
    stats->elements += unit->count;
    stats->selected += unit->selected;
    stats->pairs += unit->kept;
    unit->posted = 0;
    unit->next++;
    if (!status && unit->average->config.residual == WEFT_SPARSE_PAPER && unit->run && !regions)
        status = put_back(unit);
    return !status && unit->average->device ? weft__sparse_device_settle(unit) : status;
}

/* Until a time on the context's clock, or for ever if it is 0. */
static uint64_t left_until(const struct weft_context *context, uint64_t until)
{
    uint64_t now = weft_context_now(context);
    return !until ? WEFT_NEVER : until > now ? until - now : 0;
}

/* WEFT_IN_PROGRESS: not by then. */
static int try_unit(struct weft__sparse_unit *unit, uint64_t until, const char *who)
{
    struct weft_sparse_average *average = unit->average;
    struct weft_run *runs[] = {unit->run, unit->balancing ? unit->balance_run : NULL};
    for (int i = 0; i < 2; i++) {
        if (!runs[i])
            continue;
        uint64_t began = weft_context_now(average->context);
        int status = weft_run_wait(runs[i], left_until(average->context, until));
        average->stats.waited_ns += weft_context_now(average->context) - began;
        unit->late = status == WEFT_IN_PROGRESS ? runs[i] : NULL;
        if (status == WEFT_IN_PROGRESS)
            return status;
        if (status) {
            unit->posted = 0;
            unit->failed = 1;
            return fail(average, who, status);
        }
    }
    int status = end_unit(unit);
    return status ? fail(average, who, status) : WEFT_OK;
}

static int wait_unit(struct weft__sparse_unit *unit, uint64_t until, const char *who)
{
    int status = try_unit(unit, until, who);
    if (status != WEFT_IN_PROGRESS)
        return status;
    char step[48];
    snprintf(step, sizeof step, "step %llu", (unsigned long long)unit->next);
    return weft__step_timed_out(who, step, unit->late, unit->average->config.deadline_ns);
}

static uint64_t deadline_of(const struct weft_sparse_average *average)
{
    uint64_t now = weft_context_now(average->context), limit = average->config.deadline_ns;
    return !limit || limit == WEFT_NEVER ? 0 : now < UINT64_MAX - limit ? now + limit : UINT64_MAX;
}

/* Tells once of what was not finite in gradients that had to be. */
static int tell_bad(struct weft_sparse_average *average, struct weft__sparse_unit *units,
                    size_t count, const char *who)
{
    const struct weft__sparse_unit *first = NULL;
    uint64_t bad = 0;
    for (size_t u = 0; u < count && average->config.nan == WEFT_NAN_ERROR; u++) {
        if (units[u].told || !units[u].bad)
            continue;
        units[u].told = 1;
        first = first ? first : &units[u];
        bad += units[u].bad;
    }
    if (!first)
        return WEFT_OK;
    return weft_error_set(
        WEFT_ERR_COMPUTE,
        "%s: step %llu: %llu NaNs or infinities in gradients of this rank, the "
        "first in tensor %zu; the gradient of %s counts as zero",
        who, (unsigned long long)first->next - 1, (unsigned long long)bad, first->bad_tensor,
        average->config.scope == WEFT_SPARSE_MODEL ? "the model" : "such a tensor");
}

static void fill_result(struct weft_sparse_average_result *result,
                        const struct weft_sparse_average *average,
                        const struct weft__sparse_unit *units, size_t count, const char *who)
{
    if (!result)
        return;
    struct weft_sparse_average_result got = {0};
    for (size_t u = 0; u < count; u++) {
        if (u == 0 || units[u].next - 1 < got.version)
            got.version = units[u].next - 1;
        got.k += units[u].k;
        got.selected += units[u].selected;
        got.pairs += units[u].kept;
    }
    got.density = density_of(average, units, count, got.version);
    weft_sized_fill(who, "result", result, &got, sizeof got);
}

static int wait_all(struct weft_sparse_average *average, struct weft_sparse_average_result *result,
                    const char *who)
{
    uint64_t until = deadline_of(average);
    for (size_t u = 0; u < average->unit_count; u++) {
        int status = average->units[u].posted ? wait_unit(&average->units[u], until, who) : WEFT_OK;
        if (status && status != WEFT_ERR_TIMEOUT)
            give_up(average);
        if (status)
            return status;
    }
    int status = WEFT_OK;
    for (size_t u = 0; average->stepping && u < average->unit_count && !status; u++)
        status = weft__sparse_write(&average->units[u], weft_context_size(average->context));
    average->stepping = 0;
    if (status)
        return fail(average, who, status);
    fill_result(result, average, average->units, average->unit_count, who);
    return tell_bad(average, average->units, average->unit_count, who);
}

int weft_sparse_average_step(struct weft_sparse_average *average,
                             struct weft_sparse_average_result *result)
{
    int status = weft_sized_check(__func__, "result", result);
    if (!status)
        status = post(average, __func__);
    if (status)
        return status;
    average->stepping = 1;
    return wait_all(average, result, __func__);
}

int weft_sparse_average_post(struct weft_sparse_average *average)
{
    return post(average, __func__);
}

int weft_sparse_average_wait(struct weft_sparse_average *average,
                             struct weft_sparse_average_result *result)
{
    int posted = 0, stepping = average && average->stepping;
    if (weft_sized_check(__func__, "result", result))
        return WEFT_ERR_INVALID;
    if (stepping)
        average->stepping = 0; /* that is what may be waited for */
    int status = check_state(average, __func__);
    if (status && average && status != WEFT_ERR_STATE)
        give_up(average);
    if (status)
        return status;
    average->stepping = stepping;
    for (size_t u = 0; u < average->unit_count; u++)
        posted += average->units[u].posted;
    if (!posted)
        return weft_error_set(WEFT_ERR_STATE, "%s: no step has been posted", __func__);
    return wait_all(average, result, __func__);
}

/* ---- for another object ---- */

int weft__sparse_average_post(struct weft_sparse_average *average, const char *who)
{
    return post(average, who);
}

int weft__sparse_average_wait(struct weft_sparse_average *average, const char *who, uint64_t until)
{
    int status = WEFT_OK;
    /* What has been posted may have ended before the object failed. */
    for (size_t u = 0; u < average->unit_count && !status; u++)
        status = average->units[u].posted ? try_unit(&average->units[u], until, who)
                                          : check_state(average, who);
    return status ? status : tell_bad(average, average->units, average->unit_count, who);
}

int weft__sparse_average_abandon(struct weft_sparse_average *average, uint64_t step)
{
    int kept = 0;
    for (size_t u = 0; u < average->unit_count; u++) {
        struct weft__sparse_unit *unit = &average->units[u];
        if (unit->posted && unit->run)
            weft_run_wait(unit->run, WEFT_NEVER);
        if (unit->posted && unit->balancing && unit->balance_run)
            weft_run_wait(unit->balance_run, WEFT_NEVER);
        unit->failed |= unit->posted || unit->next > step;
        unit->posted = 0;
        unit->next = step;
        kept |= unit->failed;
    }
    return kept;
}

char *weft__sparse_average_report(const struct weft_sparse_average *average)
{
    char *report = NULL;
    for (size_t u = 0; u < average->unit_count && !report; u++) {
        const struct weft__sparse_unit *unit = &average->units[u];
        struct weft_run *run = unit->late ? unit->late : unit->run;
        if (unit->posted && run && weft_run_report(run, &report))
            report = NULL;
    }
    return report;
}

uint64_t weft__sparse_average_ended(const struct weft_sparse_average *average)
{
    uint64_t ended = 0;
    for (size_t u = 0; u < average->unit_count; u++) {
        uint64_t at = atomic_load_explicit(&average->units[u].ended_ns, memory_order_relaxed);
        ended = at > ended ? at : ended;
    }
    return ended;
}

void weft__sparse_average_write(struct weft_sparse_average *average, int divisor)
{
    for (size_t u = 0; u < average->unit_count; u++)
        weft__sparse_write(&average->units[u], divisor);
}

/* ---- tensors ---- */

static int check_tensor(const struct weft_sparse_average *average, size_t tensor, const char *who)
{
    if (!average)
        return REFUSE("%s: average is NULL", who);
    if (average->config.scope != WEFT_SPARSE_TENSOR)
        return REFUSE("%s: the scope of the object is the model, expected WEFT_SPARSE_TENSOR", who);
    if (tensor >= average->model.tensor_count)
        return REFUSE("%s: tensor is %zu, expected less than %zu", who, tensor,
                      average->model.tensor_count);
    return check_state(average, who);
}

int weft_sparse_average_post_tensor(struct weft_sparse_average *average, size_t tensor)
{
    int status = check_tensor(average, tensor, __func__);
    if (status)
        return status;
    struct weft__sparse_unit *unit = &average->units[tensor];
    if (unit->posted)
        return weft_error_set(WEFT_ERR_STATE,
                              "%s: step %llu of tensor %zu has been posted and not been waited for",
                              __func__, (unsigned long long)unit->next, tensor);
    return post_unit(unit, __func__);
}

int weft_sparse_average_wait_tensor(struct weft_sparse_average *average, size_t tensor,
                                    struct weft_sparse_average_result *result)
{
    int status = weft_sized_check(__func__, "result", result);
    if (!status)
        status = check_tensor(average, tensor, __func__);
    if (status)
        return status;
    struct weft__sparse_unit *unit = &average->units[tensor];
    if (!unit->posted)
        return weft_error_set(WEFT_ERR_STATE, "%s: no step of tensor %zu has been posted", __func__,
                              tensor);
    status = wait_unit(unit, deadline_of(average), __func__);
    if (status)
        return status;
    fill_result(result, average, unit, 1, __func__);
    return tell_bad(average, unit, 1, __func__);
}

/* ---- sums ---- */

/* A unit whose sum is there. */
static int check_sum(const struct weft_sparse_average *average,
                     const struct weft__sparse_unit *unit, const char *who)
{
    int failed = weft_object_check(average->object, who);
    if (failed)
        return failed;
    if (unit->posted)
        return weft_error_set(WEFT_ERR_STATE, "%s: step %llu has not been waited for", who,
                              (unsigned long long)unit->next);
    if (unit->next == average->first)
        return weft_error_set(WEFT_ERR_STATE, "%s: there has been no step", who);
    return WEFT_OK;
}

int weft_sparse_average_get_pairs(const struct weft_sparse_average *average, size_t tensor,
                                  struct weft_sparse *pairs)
{
    if (!average || !pairs)
        return REFUSE("%s: %s is NULL", __func__, average ? "pairs" : "average");
    if (tensor >= average->unit_count)
        return REFUSE("%s: tensor is %zu, expected less than %zu", __func__, tensor,
                      average->unit_count);
    const struct weft__sparse_unit *unit = &average->units[tensor];
    int status = check_sum(average, unit, __func__);
    if (!status)
        *pairs = weft__sparse_list(unit->list, unit->kept);
    return status;
}

static int check_apply(const char *who, double scale, weft_dtype_t dtype)
{
    if (isnan(scale))
        return REFUSE("%s: scale is NaN, expected a number", who);
    if (dtype == WEFT_F16 || dtype == WEFT_BF16 || dtype == WEFT_F32 || dtype == WEFT_F64)
        return WEFT_OK;
    const char *name = weft_dtype_name(dtype);
    return weft_error_set(name ? WEFT_ERR_UNSUPPORTED : WEFT_ERR_INVALID,
                          "%s: dtype is %s, expected f16, bf16, f32 or f64", who,
                          name ? name : "no datatype");
}

static int check_tensors(const struct weft__model *model, const char *who, weft_dtype_t dtype,
                         const struct weft_piece *tensors, size_t count)
{
    if (count != model->tensor_count)
        return REFUSE("%s: tensor_count is %zu, expected %zu", who, count, model->tensor_count);
    if (count && !tensors)
        return REFUSE("%s: tensors is NULL, expected %zu tensors", who, count);
    for (size_t t = 0; t < count; t++) {
        if (tensors[t].count != model->tensors[t].count)
            return REFUSE("%s: tensors[%zu].count is %zu, expected %zu", who, t, tensors[t].count,
                          model->tensors[t].count);
        if (tensors[t].count && !tensors[t].data)
            return REFUSE("%s: tensors[%zu].data is NULL, expected %zu elements", who, t,
                          tensors[t].count);
        int status = weft__sparse_check_aligned(who, "tensors", t, dtype, tensors[t].data);
        if (status)
            return status;
    }
    return WEFT_OK;
}

int weft_sparse_average_apply(const struct weft_sparse_average *average, double scale,
                              weft_dtype_t dtype, const struct weft_piece *tensors,
                              size_t tensor_count)
{
    if (!average)
        return REFUSE("%s: average is NULL", __func__);
    int status = check_apply(__func__, scale, dtype);
    if (!status)
        status = check_tensors(&average->model, __func__, dtype, tensors, tensor_count);
    if (!status)
        status = weft__tensors_locate(__func__, "tensors", tensors, tensor_count, dtype,
                                      average->config.memory);
    for (size_t u = 0; u < average->unit_count && !status; u++)
        status = check_sum(average, &average->units[u], __func__);
    for (size_t u = 0; u < average->unit_count && !status; u++)
        status =
            weft__sparse_apply(&average->units[u], scale, dtype, tensors + average->units[u].first);
    return status;
}

int weft_sparse_average_apply_tensor(const struct weft_sparse_average *average, size_t tensor,
                                     double scale, weft_dtype_t dtype, void *data)
{
    int status = check_tensor(average, tensor, __func__);
    if (!status)
        status = check_apply(__func__, scale, dtype);
    if (!status && !data && average->units[tensor].count)
        status = REFUSE("%s: data is NULL, expected %zu elements", __func__,
                        average->units[tensor].count);
    if (!status)
        status = weft__sparse_check_aligned(__func__, NULL, 0, dtype, data);
    if (!status && average->units[tensor].count)
        status = weft__tensor_locate(__func__, "data", data,
                                     average->units[tensor].count * weft_dtype_size(dtype),
                                     average->config.memory);
    if (!status)
        status = check_sum(average, &average->units[tensor], __func__);
    if (status)
        return status;
    const struct weft_piece piece = {data, average->units[tensor].count};
    return weft__sparse_apply(&average->units[tensor], scale, dtype, &piece);
}
