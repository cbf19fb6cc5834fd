/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between the model's tensors and the buffers of group averaging. Tensors of f16 and bf16 are
 * widened to f32 when they are published, and rounded once, to nearest even, when a result is
 * written.
 */
#include <math.h>
#include <string.h>

#include "schedules/objects/group_average/group_average.h"

enum { BLOCK = 2048 }; /* elements that are converted at a time */

/* The kernels of a datatype of buffers. */
#define KERNELS(name, type)                                                                        \
    static void add_##name(void *to_, const void *base_, const void *from_, size_t count)          \
    {                                                                                              \
        type *to = to_;                                                                            \
        const type *base = base_, *from = from_;                                                   \
        for (size_t i = 0; i < count; i++)                                                         \
            to[i] = base[i] + from[i];                                                             \
    }                                                                                              \
    static void combine_##name(void *to_, type scale, const void *from_, type by, size_t count)    \
    {                                                                                              \
        type *to = to_;                                                                            \
        const type *from = from_;                                                                  \
        for (size_t i = 0; i < count; i++)                                                         \
            to[i] = to[i] * scale + from[i] * by;                                                  \
    }                                                                                              \
    static void mix_##name(void *model_, const struct weft__average_mix *mix, size_t count)        \
    {                                                                                              \
        type *model = model_;                                                                      \
        const type *total = mix->sum, *own = mix->own, *posted = mix->posted;                      \
        const type by = (type)mix->divisor;                                                        \
        if (!posted && !mix->stale && is_power_of_two(mix->divisor))                               \
            for (size_t i = 0; i < count; i++)                                                     \
                model[i] = total[i] * (1 / by); /* the same number, and sooner */                  \
        else if (!posted && !mix->stale)                                                           \
            for (size_t i = 0; i < count; i++)                                                     \
                model[i] = total[i] / by;                                                          \
        else if (!posted && own)                                                                   \
            for (size_t i = 0; i < count; i++)                                                     \
                model[i] = (total[i] - own[i] + model[i]) / by;                                    \
        else if (!posted)                                                                          \
            for (size_t i = 0; i < count; i++)                                                     \
                model[i] = (total[i] + model[i]) / by;                                             \
        else if (!mix->stale)                                                                      \
            for (size_t i = 0; i < count; i++)                                                     \
                model[i] += total[i] / by - posted[i];                                             \
        else if (own)                                                                              \
            for (size_t i = 0; i < count; i++)                                                     \
                model[i] += (total[i] - own[i] + posted[i]) / by - posted[i];                      \
        else                                                                                       \
            for (size_t i = 0; i < count; i++)                                                     \
                model[i] += (total[i] + posted[i]) / by - posted[i];                               \
    }

static int is_power_of_two(int number)
{
    return (number & (number - 1)) == 0;
}

KERNELS(f32, float)
KERNELS(f64, double)

void weft__average_combine(const struct weft_group_average *average, void *to, double scale,
                           const void *from, double by)
{
    if (average->work == WEFT_F64)
        combine_f64(to, scale, from, by, average->count);
    else
        combine_f32(to, (float)scale, from, (float)by, average->count);
}

/* to = widened from, or base + that. */
static void load(const struct weft_group_average *average, void *to, const void *base,
                 const void *from, size_t count)
{
    if (!base) {
        weft_convert(average->work, to, average->config.dtype, from, count);
    } else if (average->work == average->config.dtype) {
        (average->work == WEFT_F64 ? add_f64 : add_f32)(to, base, from, count);
    } else {
        float wide[BLOCK];
        for (size_t i = 0; i < count; i += BLOCK) {
            size_t part = count - i < BLOCK ? count - i : BLOCK;
            weft_convert(WEFT_F32, wide, average->config.dtype, (const uint16_t *)from + i, part);
            add_f32((float *)to + i, (const float *)base + i, wide, part);
        }
    }
}

static void mix_half(weft_dtype_t dtype, uint16_t *model, struct weft__average_mix mix,
                     size_t count)
{
    float wide[BLOCK];
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t part = count - i < BLOCK ? count - i : BLOCK;
        weft_convert(WEFT_F32, wide, dtype, model + i, part);
        mix_f32(wide, &mix, part);
        weft_convert(dtype, model + i, WEFT_F32, wide, part);
        mix.sum = (const float *)mix.sum + part;
        if (mix.own)
            mix.own = (const float *)mix.own + part;
        if (mix.posted)
            mix.posted = (const float *)mix.posted + part;
    }
}

static const char *at(const void *base, size_t bytes)
{
    return base ? (const char *)base + bytes : NULL;
}

/* Elements are counted as they are copied, while they are in the first cache. */
void weft__average_load(const struct weft_group_average *average, void *buffer, const void *base,
                        struct weft__bad *bad)
{
    size_t size = weft_dtype_size(average->work), done = 0;
    for (size_t i = 0; i < average->config.tensor_count; i++) {
        const struct weft_piece *tensor = &average->tensors[i];
        for (size_t first = 0, n; first < tensor->count; first += n, done += n) {
            const char *from =
                (char *)tensor->data + first * weft_dtype_size(average->config.dtype);
            n = !bad || tensor->count - first < BLOCK ? tensor->count - first : BLOCK;
            load(average, (char *)buffer + done * size, at(base, done * size), from, n);
            if (bad)
                weft__bad_add(bad, i, weft__count_bad(average->config.dtype, from, n));
        }
    }
}

void weft__average_load_finite(const struct weft_group_average *average, void *buffer,
                               const void *base)
{
    size_t done = 0;
    double wide[BLOCK];
    for (size_t i = 0; i < average->config.tensor_count; i++) {
        const struct weft_piece *tensor = &average->tensors[i];
        for (size_t first = 0, n; first < tensor->count; first += n) {
            n = tensor->count - first < BLOCK ? tensor->count - first : BLOCK;
            weft_convert(WEFT_F64, wide, average->config.dtype,
                         (char *)tensor->data + first * weft_dtype_size(average->config.dtype), n);
            for (size_t e = 0; e < n; e++, done++) {
                double value = isfinite(wide[e]) ? wide[e] : 0;
                if (average->work == WEFT_F64)
                    ((double *)buffer)[done] = base ? value + ((const double *)base)[done] : value;
                else
                    ((float *)buffer)[done] =
                        base ? (float)value + ((const float *)base)[done] : (float)value;
            }
        }
    }
}

void weft__average_mix(const struct weft_group_average *average,
                       const struct weft__average_mix *mix)
{
    size_t size = weft_dtype_size(average->work), done = 0;
    for (size_t i = 0; i < average->config.tensor_count; i++) {
        const struct weft_piece *tensor = &average->tensors[i];
        struct weft__average_mix part = *mix;
        part.sum = (const char *)mix->sum + done * size;
        part.own = at(mix->own, done * size);
        part.posted = at(mix->posted, done * size);
        if (average->work != average->config.dtype)
            mix_half(average->config.dtype, tensor->data, part, tensor->count);
        else
            (average->work == WEFT_F64 ? mix_f64 : mix_f32)(tensor->data, &part, tensor->count);
        done += tensor->count;
    }
}

void weft__average_clear(const struct weft_group_average *average)
{
    for (size_t i = 0; i < average->config.tensor_count; i++)
        if (average->tensors[i].count)
            memset(average->tensors[i].data, 0,
                   average->tensors[i].count * weft_dtype_size(average->config.dtype));
}

int weft__average_divide(struct weft_call *call)
{
    const struct weft_argument *argument = &call->arguments[0];
    for (size_t p = 0; p < argument->piece_count; p++) {
        const struct weft_piece *piece = &argument->pieces[p];
        if (argument->dtype == WEFT_F64)
            for (size_t i = 0; i < piece->count; i++)
                ((double *)piece->data)[i] /= (double)call->size;
        else
            for (size_t i = 0; i < piece->count; i++)
                ((float *)piece->data)[i] /= (float)call->size;
    }
    return WEFT_OK;
}
