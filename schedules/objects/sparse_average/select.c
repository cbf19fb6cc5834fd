/* SPDX-License-Identifier: BSD-3-Clause */
/* What sparse averaging does to dense memory: accumulates gradients, selects, writes and applies
 * sums. */
#include <math.h>
#include <string.h>

#include "schedules/objects/sparse_average/sparse_average.h"

enum { BLOCK = 1024 }; /* elements that stay in the first cache */

static size_t block_at(size_t count, size_t first)
{
    return count - first < BLOCK ? count - first : BLOCK;
}

int weft__sparse_check_aligned(const char *who, const char *list, size_t tensor, weft_dtype_t dtype,
                               const void *data)
{
    size_t size = weft_dtype_size(dtype);
    if ((uintptr_t)data % size == 0)
        return WEFT_OK;
    if (!list)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: data is %p, expected a multiple of the %zu bytes of %s", who,
                              data, size, weft_dtype_name(dtype));
    return weft_error_set(WEFT_ERR_INVALID,
                          "%s: %s[%zu].data is %p, expected a multiple of the %zu bytes of %s", who,
                          list, tensor, data, size, weft_dtype_name(dtype));
}

/* ---- gradients ---- */

/* n elements of a gradient as f32; what is not finite as zero, if there is such. */
static void load(float *to, weft_dtype_t dtype, const void *data, size_t first, size_t n, int bad)
{
    size_t size = weft_dtype_size(dtype);
    weft_convert(WEFT_F32, to, dtype, (const char *)data + first * size, n);
    for (size_t i = 0; bad && i < n; i++)
        to[i] = isfinite(to[i]) ? to[i] : 0;
}

static double square_here(const struct weft__sparse_unit *unit)
{
    const struct weft__model *model = &unit->average->model;
    float block[BLOCK];
    double sum = 0;
    for (size_t t = unit->first; t < unit->first + unit->tensor_count; t++) {
        const struct weft_piece *tensor = &model->tensors[t];
        for (size_t first = 0; first < tensor->count; first += BLOCK) {
            size_t n = block_at(tensor->count, first);
            load(block, model->dtype, tensor->data, first, n, unit->bad > 0);
            for (size_t i = 0; i < n; i++)
                sum += (double)block[i] * (double)block[i];
        }
    }
    return sum;
}

/* What clipping multiplies the gradient by. */
static int find_scale(struct weft__sparse_unit *unit, float *scale)
{
    const struct weft_sparse_average *average = unit->average;
    double square = 0;
    int status = WEFT_OK;
    *scale = 1;
    if (average->config.clip_norm == 0)
        return WEFT_OK;
    if (average->device)
        status = weft__sparse_device_square(unit, &square);
    else
        square = square_here(unit);
    double most = average->config.clip_norm / sqrt(weft_context_size(average->context));
    double norm = sqrt(square);
    if (norm > most)
        *scale = (float)(most / norm);
    return status;
}

static void add_block(float *residual, float *velocity, const float *gradient, size_t n,
                      float scale, float momentum)
{
    if (velocity) {
        for (size_t i = 0; i < n; i++) {
            velocity[i] = momentum * velocity[i] + scale * gradient[i];
            residual[i] += velocity[i];
        }
    } else if (scale != 1) {
        for (size_t i = 0; i < n; i++)
            residual[i] += scale * gradient[i];
    } else {
        for (size_t i = 0; i < n; i++)
            residual[i] += gradient[i];
    }
}

static void accumulate(struct weft__sparse_unit *unit, float scale)
{
    struct weft_sparse_average *average = unit->average;
    const struct weft__model *model = &average->model;
    float block[BLOCK], momentum = (float)average->config.momentum;
    float *residual = average->residual + unit->offset;
    float *velocity = average->velocity ? average->velocity + unit->offset : NULL;
    for (size_t t = unit->first; t < unit->first + unit->tensor_count; t++) {
        const struct weft_piece *tensor = &model->tensors[t];
        for (size_t first = 0; first < tensor->count; first += BLOCK) {
            size_t n = block_at(tensor->count, first);
            const float *gradient = block;
            if (model->dtype == WEFT_F32 && !unit->bad)
                gradient = (const float *)tensor->data + first;
            else
                load(block, model->dtype, tensor->data, first, n, unit->bad > 0);
            add_block(residual, velocity, gradient, n, scale, momentum);
            residual += n;
            velocity = velocity ? velocity + n : NULL;
        }
    }
}

static struct weft__bad look_here(const struct weft__sparse_unit *unit)
{
    const struct weft__model *model = &unit->average->model;
    struct weft__bad bad = {0};
    for (size_t t = unit->first; t < unit->first + unit->tensor_count; t++)
        weft__bad_add(
            &bad, t,
            weft__count_bad(model->dtype, model->tensors[t].data, model->tensors[t].count));
    return bad;
}

/* Counts what is not finite. */
static int look_for_bad(struct weft__sparse_unit *unit)
{
    struct weft_sparse_average *average = unit->average;
    struct weft__bad bad = {0};
    int status = WEFT_OK;
    if (average->device)
        status = weft__sparse_device_look(unit, &bad);
    else
        bad = look_here(unit);
    unit->told = 0;
    unit->bad = bad.count;
    if (bad.count)
        unit->bad_tensor = bad.tensor;
    average->stats.nans += unit->bad;
    return status;
}

/* ---- selection ---- */

static void options_of(const struct weft__sparse_unit *unit, struct weft_sparse_options *options)
{
    const struct weft_sparse_average *average = unit->average;
    weft_sparse_options_init(options);
    options->nan = WEFT_NAN_ZERO; /* a residual may come to be one, from sums of infinities */
    options->threads = average->config.threads;
    options->hint = unit->hint_k == unit->k ? unit->hint : 0;
    options->workspace = average->workspace;
    options->workspace_bytes = average->workspace_bytes;
}

size_t weft__sparse_select_bytes(const struct weft__sparse_unit *unit)
{
    struct weft_sparse_options options;
    options_of(unit, &options);
    return weft_sparse_select_workspace(&options, WEFT_F32, unit->count, unit->most);
}

/* Leaves out zeros, and moves the values behind the indices. Returns how many pairs there are. */
static size_t pack(struct weft_sparse *list, float *velocity)
{
    uint32_t *index = list->indices;
    float *value = list->values;
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (value[i] == 0)
            continue;
        if (velocity)
            velocity[index[i]] = 0;
        index[count] = index[i];
        value[count++] = value[i];
    }
    memmove(index + count, value, count * sizeof *value);
    return count;
}

/* What has been selected is the unit's list. */
static void take(struct weft__sparse_unit *unit, struct weft_sparse *list, float *velocity)
{
    unit->selected = pack(list, velocity);
    if (unit->own)
        memcpy(unit->own, unit->list, unit->selected * sizeof *unit->own);
}

/* NaNs counted as zero; where the gradient has been added before, they have to become that here. */
static void drop_nans(float *residual, size_t count)
{
    for (size_t i = 0; i < count; i++)
        residual[i] = isnan(residual[i]) ? 0 : residual[i];
}

static int select_top(struct weft__sparse_unit *unit, const void *gradient)
{
    struct weft_sparse_average *average = unit->average;
    float *residual = average->residual + unit->offset;
    const uint32_t *index = (const uint32_t *)unit->list;
    struct weft_sparse list = weft__sparse_list(unit->list, unit->k);
    struct weft_sparse_options options;
    struct weft_sparse_report report = {.struct_size = sizeof report};
    options_of(unit, &options);
    int status = gradient
                     ? weft_sparse_accumulate_top(&options, residual, gradient, unit->count,
                                                  unit->k, &list, &report)
                     : weft_sparse_top(&options, residual, unit->count, unit->k, &list, &report);
    if (status)
        return status;
    average->stats.nans += report.nans;
    unit->hint = report.hint;
    unit->hint_k = unit->k;
    for (size_t i = 0; !gradient && i < list.count; i++)
        residual[index[i]] = 0;
    if (!gradient && report.nans)
        drop_nans(residual, unit->count);
    take(unit, &list, average->velocity ? average->velocity + unit->offset : NULL);
    return WEFT_OK;
}

static int select_there(struct weft__sparse_unit *unit, float scale)
{
    size_t count = 0;
    int status = weft__sparse_device_select(unit, scale, &count);
    if (status)
        return status;
    struct weft_sparse list = weft__sparse_list(unit->list, count);
    take(unit, &list, NULL);
    status = weft__sparse_device_mask(unit);
    unit->failed |= status != WEFT_OK; /* which the others get nothing of */
    return status;
}

/* The gradient, if one pass can add it and select: f32 in one piece, as it is. Else NULL. */
static const void *plain_gradient(const struct weft__sparse_unit *unit, float scale)
{
    const struct weft_sparse_average *average = unit->average;
    const struct weft_piece *tensor = average->model.tensors + unit->first;
    if (!unit->contiguous || average->model.dtype != WEFT_F32 || average->velocity || scale != 1 ||
        unit->bad)
        return NULL;
    while (!tensor->count)
        tensor++;
    return tensor->data;
}

int weft__sparse_select(struct weft__sparse_unit *unit)
{
    float scale = 1;
    unit->selected = 0;
    int status = look_for_bad(unit);
    if (status || (unit->bad && unit->average->config.nan == WEFT_NAN_ERROR))
        return status; /* or the gradient counts as zero */
    status = find_scale(unit, &scale);
    if (status || unit->average->device)
        return status ? status : select_there(unit, scale);
    const void *gradient = plain_gradient(unit, scale);
    if (!gradient)
        accumulate(unit, scale);
    return select_top(unit, gradient);
}

/* ---- sums ---- */

struct weft__sparse_range weft__sparse_range_of(const struct weft__sparse_unit *unit, size_t tensor)
{
    const struct weft_piece *tensors = unit->average->model.tensors;
    const uint32_t *index = (const uint32_t *)unit->list;
    struct weft__sparse_range range = {.base = unit->average->offsets[tensor] - unit->offset};
    size_t bounds[] = {range.base, range.base + tensors[tensor].count}, found[2];
    for (int i = 0; i < 2; i++) {
        size_t low = 0, high = unit->kept;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (index[middle] < bounds[i])
                low = middle + 1;
            else
                high = middle;
        }
        found[i] = low;
    }
    range.from = found[0];
    range.to = found[1];
    return range;
}

static void write_tensor(const struct weft__sparse_unit *unit, size_t tensor, float divisor)
{
    const struct weft__model *model = &unit->average->model;
    const struct weft_piece *piece = &model->tensors[tensor];
    const uint32_t *index = (const uint32_t *)unit->list;
    const float *sum = (const float *)(index + unit->kept);
    struct weft__sparse_range range = weft__sparse_range_of(unit, tensor);
    size_t size = weft_dtype_size(model->dtype);
    float mean[BLOCK];
    char converted[BLOCK * sizeof(float)];
    if (piece->count)
        memset(piece->data, 0, piece->count * size);
    for (size_t first = range.from; first < range.to; first += BLOCK) {
        size_t n = block_at(range.to, first);
        for (size_t i = 0; i < n; i++)
            mean[i] = sum[first + i] / divisor;
        weft_convert(model->dtype, converted, WEFT_F32, mean, n);
        for (size_t i = 0; i < n; i++)
            memcpy((char *)piece->data + (index[first + i] - range.base) * size,
                   converted + i * size, size);
    }
}

int weft__sparse_write(const struct weft__sparse_unit *unit, int divisor)
{
    if (unit->average->device)
        return weft__sparse_device_write(unit, (float)divisor);
    for (size_t t = unit->first; t < unit->first + unit->tensor_count; t++)
        write_tensor(unit, t, (float)divisor);
    return WEFT_OK;
}

static void apply_half(weft_dtype_t dtype, uint16_t *data, const uint32_t *index, size_t base,
                       const float *sum, size_t count, float scale)
{
    uint16_t half[BLOCK];
    float wide[BLOCK];
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = block_at(count, first);
        for (size_t i = 0; i < n; i++)
            half[i] = data[index[first + i] - base];
        weft_convert(WEFT_F32, wide, dtype, half, n);
        for (size_t i = 0; i < n; i++)
            wide[i] += scale * sum[first + i];
        weft_convert(dtype, half, WEFT_F32, wide, n);
        for (size_t i = 0; i < n; i++)
            data[index[first + i] - base] = half[i];
    }
}

static void apply_tensor(const struct weft__sparse_unit *unit, size_t tensor, double scale,
                         weft_dtype_t dtype, void *data)
{
    struct weft__sparse_range range = weft__sparse_range_of(unit, tensor);
    const uint32_t *index = (const uint32_t *)unit->list + range.from;
    const float *sum = (const float *)((const uint32_t *)unit->list + unit->kept) + range.from;
    size_t count = range.to - range.from;
    if (dtype == WEFT_F32)
        for (size_t i = 0; i < count; i++)
            ((float *)data)[index[i] - range.base] += (float)scale * sum[i];
    else if (dtype == WEFT_F64)
        for (size_t i = 0; i < count; i++)
            ((double *)data)[index[i] - range.base] += scale * (double)sum[i];
    else
        apply_half(dtype, data, index, range.base, sum, count, (float)scale);
}

int weft__sparse_apply(const struct weft__sparse_unit *unit, double scale, weft_dtype_t dtype,
                       const struct weft_piece *tensors)
{
    scale /= weft_context_size(unit->average->context);
    if (unit->average->device)
        return weft__sparse_device_apply(unit, scale, dtype, tensors);
    for (size_t t = 0; t < unit->tensor_count; t++)
        apply_tensor(unit, unit->first + t, scale, dtype, tensors[t].data);
    return WEFT_OK;
}
