/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed averaging: gradients in and out, residuals, shapes. */
#include <math.h>
#include <string.h>

#include "schedules/objects/compressed_average/compressed_average.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

enum { BLOCK = 1024 }; /* elements that stay in the first cache */

static size_t block_at(size_t count, size_t first)
{
    return count - first < BLOCK ? count - first : BLOCK;
}

/* ---- in ---- */

/* values = gradient + residual; what is not finite then is the residual alone. Returns how many
 * that were. */
static size_t add_block(float *values, const float *gradient, const float *residual, size_t n)
{
    size_t bad;
    for (size_t i = 0; i < n && residual; i++)
        values[i] = gradient[i] + residual[i];
    if (!residual && values != gradient)
        memcpy(values, gradient, n * sizeof *values);
    bad = weft__count_bad(WEFT_F32, values, n);
    for (size_t i = 0; bad && i < n; i++)
        if (!isfinite(values[i]))
            values[i] = residual ? residual[i] : 0;
    return bad;
}

static void read_tensor(struct weft_compressed_average *average, size_t tensor)
{
    const struct weft__model *model = &average->model;
    const struct weft_piece *piece = &model->tensors[tensor];
    float block[BLOCK];
    for (size_t first = 0; first < piece->count; first += BLOCK) {
        const size_t n = block_at(piece->count, first), at = average->offsets[tensor] + first;
        const float *gradient = block;
        if (model->dtype == WEFT_F32)
            gradient = (const float *)piece->data + first;
        else
            weft_convert(WEFT_F32, block, model->dtype, weft__model_at(model, piece->data, first),
                         n);
        weft__bad_add(&average->bad, tensor,
                      add_block(average->values + at, gradient,
                                average->keeps ? average->residual + at : NULL, n));
    }
}

void weft__compressed_read(struct weft_compressed_average *average)
{
    const struct weft__model *model = &average->model;
    average->bad = (struct weft__bad){0};
    average->told = 0;
    for (size_t t = 0; t < model->tensor_count; t++)
        read_tensor(average, t);
    average->stats.nans += average->bad.count;
    if (average->bad.count && average->config.nan == WEFT_NAN_ERROR && average->keeps)
        memcpy(average->values, average->residual, model->count * sizeof *average->values);
    else if (average->bad.count && average->config.nan == WEFT_NAN_ERROR)
        memset(average->values, 0, model->count * sizeof *average->values);
    for (size_t t = 0; t < model->tensor_count && average->own && average->method->arrange; t++)
        average->method->arrange(average, t, average->values + average->offsets[t],
                                 average->sum + average->offsets[t]);
}

/* ---- out ---- */

static void write_tensor(const struct weft_compressed_average *average, size_t tensor,
                         float divisor)
{
    const struct weft__model *model = &average->model;
    const struct weft_piece *piece = &model->tensors[tensor];
    const float *sum = average->sum + average->offsets[tensor];
    float mean[BLOCK];
    for (size_t first = 0; first < piece->count; first += BLOCK) {
        const size_t n = block_at(piece->count, first);
        float *to = model->dtype == WEFT_F32 ? (float *)piece->data + first : mean;
        for (size_t i = 0; i < n; i++)
            to[i] = sum[first + i] / divisor;
        if (model->dtype != WEFT_F32)
            weft_convert(model->dtype, weft__model_at(model, piece->data, first), WEFT_F32, mean,
                         n);
    }
}

/* Squares of what was to be sent, and of what was not. */
struct squares {
    double all, kept;
};

/* What is kept of a tensor. A sum that is not finite leaves nothing that could be kept. The squares
 * are those of a projection onto no component, which vectors are made for. */
static void keep_tensor(struct weft_compressed_average *average, size_t tensor,
                        struct squares *squares)
{
    const size_t begin = average->offsets[tensor], count = average->offsets[tensor + 1] - begin;
    const float *values = average->values + begin, *sent = average->sent + begin;
    const struct weft_projection none = {.struct_size = sizeof none, .slice = count};
    struct weft_projection_squares found = {0, 0, 0};
    float *kept = average->residual + begin;
    if (!count || weft_project(&none, values, count, sent, 1, NULL, &found))
        return;
    for (size_t i = 0; i < count; i++)
        kept[i] = values[i] - sent[i];
    if (!isfinite(found.centred)) {
        found.centred = 0;
        for (size_t i = 0; i < count; i++) {
            kept[i] = isfinite(kept[i]) ? kept[i] : 0;
            found.centred += (double)kept[i] * (double)kept[i];
        }
    }
    squares->all += found.values;
    squares->kept += found.centred;
}

static void restore(const struct weft_compressed_average *average, size_t tensor, float *values,
                    float *scratch)
{
    const size_t at = average->offsets[tensor];
    if (average->own && average->method->restore)
        average->method->restore(average, tensor, values + at, scratch + at);
}

void weft__compressed_write(struct weft_compressed_average *average, int divisor)
{
    struct squares squares = {0};
    for (size_t t = 0; t < average->model.tensor_count; t++) {
        restore(average, t, average->sum, average->keeps ? average->residual : average->values);
        write_tensor(average, t, (float)divisor);
        if (!average->keeps)
            continue;
        restore(average, t, average->sent, average->sum);
        restore(average, t, average->values, average->sum);
        keep_tensor(average, t, &squares);
    }
    if (average->keeps && average->step.loss < 0 && average->model.count) {
        average->step.loss = squares.all > 0    ? squares.kept / squares.all
                             : squares.kept > 0 ? -1
                                                : 0;
        average->step.squares = squares.all;
        average->step.dropped = squares.kept;
    }
    average->written = 1;
}

void weft__compressed_unread(struct weft_compressed_average *average)
{
    for (size_t t = 0; t < average->model.tensor_count; t++)
        restore(average, t, average->values, average->sum);
}

/* ---- shapes ---- */

/* Elements of a shape; SIZE_MAX: more than can be. */
static size_t shape_count(const struct weft_tensor_shape *shape)
{
    const int spatial = shape->layout >= WEFT_TENSOR_OIHW;
    const size_t factors[] = {shape->outputs, shape->inputs, spatial ? shape->height : 1,
                              spatial ? shape->width : 1};
    size_t count = 1;
    for (int i = 0; i < 4; i++)
        if (!factors[i])
            return 0;
    for (int i = 0; i < 4; i++) {
        if (count > SIZE_MAX / factors[i])
            return SIZE_MAX;
        count *= factors[i];
    }
    return count;
}

int weft__compressed_shape(const char *who, struct weft_tensor_shape *shape, size_t tensor,
                           size_t count)
{
    if ((unsigned)shape->layout > WEFT_TENSOR_HWIO)
        return REFUSE("%s: config->shapes[%zu].layout is %d, expected one of weft_tensor_layout_t",
                      who, tensor, (int)shape->layout);
    if (shape->layout == WEFT_TENSOR_VECTOR) {
        if (shape->outputs && shape->outputs != count)
            return REFUSE("%s: config->shapes[%zu].outputs is %zu, expected the %zu elements of "
                          "the vector, or 0",
                          who, tensor, shape->outputs, count);
        shape->outputs = count;
    }
    if (shape->layout <= WEFT_TENSOR_DENSE && (shape->height || shape->width))
        return REFUSE("%s: config->shapes[%zu] has height %zu and width %zu, expected 0 but of "
                      "convolutions",
                      who, tensor, shape->height, shape->width);
    if (shape->layout == WEFT_TENSOR_VECTOR && shape->inputs)
        return REFUSE("%s: config->shapes[%zu].inputs is %zu, expected 0 of a vector", who, tensor,
                      shape->inputs);
    if (shape->layout == WEFT_TENSOR_VECTOR || shape_count(shape) == count)
        return WEFT_OK;
    return REFUSE("%s: config->shapes[%zu] is %zu outputs, %zu inputs, %zu x %zu, expected as many "
                  "elements as the tensor has, %zu",
                  who, tensor, shape->outputs, shape->inputs, shape->height, shape->width, count);
}

int weft__compressed_shapes(struct weft_compressed_average *average,
                            const struct weft_tensor_shape *shapes)
{
    const struct weft__model *model = &average->model;
    int status = WEFT_OK;
    average->shapes = weft_memory_alloc(model->tensor_count + 1, sizeof *average->shapes);
    average->layouts = weft_memory_alloc(model->tensor_count + 1, 1);
    if (!average->shapes || !average->layouts)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for %zu shapes", average->who,
                              model->tensor_count);
    for (size_t t = 0; t < model->tensor_count && !status; t++) {
        average->shapes[t] = shapes ? shapes[t] : (struct weft_tensor_shape){WEFT_TENSOR_VECTOR};
        status =
            weft__compressed_shape(average->who, &average->shapes[t], t, model->tensors[t].count);
        average->layouts[t] = "vdoOh"[status ? 0 : average->shapes[t].layout];
    }
    return status;
}

void weft__compressed_matrix(const struct weft_tensor_shape *shape, size_t *rows, size_t *columns)
{
    const int spatial = shape->layout >= WEFT_TENSOR_OIHW;
    const size_t rest = shape->inputs * (spatial ? shape->height * shape->width : 1);
    const int vector = shape->layout == WEFT_TENSOR_VECTOR,
              last = shape->layout == WEFT_TENSOR_HWIO;
    *rows = vector ? 0 : last ? rest : shape->outputs;
    *columns = vector ? 0 : last ? shape->outputs : rest;
}
