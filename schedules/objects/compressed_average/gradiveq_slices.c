/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GradiVeQ: how tensors are cut into slices, and the order of their elements (section 3, and
 * figures 3 and 5 of the paper: compression is best where K is a multiple of F D; or, which the
 * paper does not have, of D H W, filter after filter).
 */
#include <string.h>

#include "schedules/objects/compressed_average/gradiveq.h"

enum {
    LEAST_SLICE = 2,
    DIVISIONS = 3, /* of H W at most, by default: three slices of F D each */
};

/* ---- sizes ---- */

/* What slices consist of: a tensor is `units`, of `parts` each, of `part` elements. */
struct cut {
    size_t units, parts, part;
};

/* Across filters a unit is a place, and its parts are a depth each. Of whole filters parts are what
 * lies together: planes of OIHW, else places. Of the weights of a dense layer each input is a
 * place, and each output a filter. */
static struct cut cut_of(weft_gradiveq_order_t order, const struct weft_tensor_shape *shape)
{
    const size_t filters = shape->outputs, depth = shape->inputs;
    const size_t places = shape->height * shape->width;
    const int whole = order == WEFT_SLICES_OF_FILTERS;
    if (shape->layout == WEFT_TENSOR_DENSE)
        return whole ? (struct cut){.units = filters, .parts = 1, .part = depth}
                     : (struct cut){.units = depth, .parts = 1, .part = filters};
    if (!whole)
        return (struct cut){.units = places, .parts = depth, .part = filters};
    return shape->layout == WEFT_TENSOR_OIHW
               ? (struct cut){.units = filters, .parts = depth, .part = places}
               : (struct cut){.units = filters, .parts = places, .part = depth};
}

/* The largest number up to `most` that divides n; 0: none, as `most` is 0. */
static size_t divisor(size_t n, size_t most)
{
    size_t best = 0;
    for (size_t i = 1; i <= n / i; i++) {
        if (n % i)
            continue;
        if (i <= most && i > best)
            best = i;
        if (n / i <= most && n / i > best)
            best = n / i;
    }
    return best;
}

static size_t first_slice(const struct weft_gradiveq_config *config,
                          const struct weft_tensor_shape *shape, size_t count)
{
    int convolution = shape->layout != WEFT_TENSOR_VECTOR && shape->layout != WEFT_TENSOR_DENSE;
    if (!count || !(convolution || (shape->layout == WEFT_TENSOR_DENSE && config->dense_layers)))
        return 0;
    if (config->slice)
        return config->slice <= count ? config->slice : 0;
    struct cut cut = cut_of(config->order, shape);
    size_t factor = config->slice_factor                      ? config->slice_factor
                    : config->order == WEFT_SLICES_OF_FILTERS ? 1
                                                              : divisor(cut.units, DIVISIONS);
    return (factor < cut.units ? factor : cut.units) * cut.parts * cut.part;
}

/* At most half: whole multiples of a unit as long as there are, then of a part, then what divides a
 * part; the tensor is a multiple of all of them. If they are much less than half, because numbers
 * are prime, half it is, and the last slice is shorter. */
static size_t smaller_slice(const struct weft_gradiveq_config *config,
                            const struct weft_tensor_shape *shape, size_t slice)
{
    struct cut cut = cut_of(config->order, shape);
    size_t most = slice / 2, unit = cut.parts * cut.part, smaller;
    if (config->slice)
        return most;
    if (unit <= most)
        return divisor(cut.units, most / unit) * unit;
    smaller =
        cut.part <= most ? divisor(cut.parts, most / cut.part) * cut.part : divisor(cut.part, most);
    return smaller > most / 2 ? smaller : most;
}

static struct weft__gradiveq_slices cut_into(const struct weft_gradiveq_config *config,
                                             size_t slice, size_t count)
{
    struct weft__gradiveq_slices made = {.slice = slice};
    if (slice < LEAST_SLICE)
        return (struct weft__gradiveq_slices){0};
    made.slices = count / slice + (count % slice != 0);
    made.reuse = config->reuse && config->reuse < made.slices ? config->reuse : made.slices;
    made.groups = made.slices / made.reuse + (made.slices % made.reuse != 0);
    return made;
}

size_t weft__gradiveq_bytes(const struct weft_gradiveq_config *config,
                            const struct weft__gradiveq_slices *slices)
{
    const size_t most = SIZE_MAX / sizeof(float);
    uint64_t rank = config->sample_steps - 1;
    if (!slices->slice)
        return 0;
    rank = rank < slices->slice ? rank : slices->slice;
    if (config->sample_steps > most / 2)
        return SIZE_MAX;
    size_t floats = (size_t)(config->sample_steps + rank); /* of an element of a slice */
    if (floats > most / slices->slice || floats * slices->slice > most / slices->groups)
        return SIZE_MAX;
    return floats * slices->slice * slices->groups * sizeof(float);
}

static size_t add(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

void weft__gradiveq_slice(const struct weft_gradiveq_config *config,
                          const struct weft_tensor_shape *shapes, const struct weft_piece *tensors,
                          size_t tensor_count, struct weft__gradiveq_slices *slices)
{
    for (size_t t = 0; t < tensor_count; t++)
        slices[t] =
            cut_into(config, first_slice(config, &shapes[t], tensors[t].count), tensors[t].count);
    while (config->memory_bytes) {
        size_t total = 0, largest = 0, bytes = 0;
        for (size_t t = 0; t < tensor_count; t++) {
            size_t these = weft__gradiveq_bytes(config, &slices[t]);
            total = add(total, these);
            if (these > bytes) {
                bytes = these;
                largest = t;
            }
        }
        if (total <= config->memory_bytes)
            return;
        struct weft__gradiveq_slices *slice = &slices[largest];
        *slice = cut_into(config, smaller_slice(config, &shapes[largest], slice->slice),
                          tensors[largest].count);
        if (weft__gradiveq_bytes(config, slice) >= bytes) /* as many more groups */
            *slice = (struct weft__gradiveq_slices){0};
    }
}

/* ---- the order of elements ---- */

/* A matrix of rows by columns, in place. */
static void transpose(float *values, size_t rows, size_t columns, float *scratch)
{
    memcpy(scratch, values, rows * columns * sizeof *values);
    weft_transpose(scratch, rows, columns, values);
}

struct extent {
    size_t places, filters, depth;
};

static struct extent extent_of(const struct weft_tensor_shape *shape)
{
    const int dense = shape->layout == WEFT_TENSOR_DENSE;
    return (struct extent){dense ? 1 : shape->height * shape->width, shape->outputs, shape->inputs};
}

/* Of OIHW across filters the two halves of the way: filters go last, then depth behind places.
 *
 *     F [D [P]]  ->  P [F [D]]  ->  P [D [F]]
 */
void weft__gradiveq_permute(weft_gradiveq_order_t order, const struct weft_tensor_shape *shape,
                            float *values, float *scratch)
{
    const struct extent e = extent_of(shape);
    const size_t matrix = e.depth * e.filters;
    if (order == WEFT_SLICES_OF_FILTERS) {
        if (shape->layout == WEFT_TENSOR_HWIO)
            transpose(values, e.places * e.depth, e.filters, scratch);
    } else if (shape->layout == WEFT_TENSOR_OIHW) {
        weft_transpose(values, matrix, e.places, scratch);
        for (size_t p = 0; p < e.places; p++)
            weft_transpose(scratch + p * matrix, e.filters, e.depth, values + p * matrix);
    } else if (shape->layout == WEFT_TENSOR_OHWI || shape->layout == WEFT_TENSOR_DENSE) {
        transpose(values, e.filters, e.places * e.depth, scratch);
    }
}

void weft__gradiveq_permute_back(weft_gradiveq_order_t order, const struct weft_tensor_shape *shape,
                                 float *values, float *scratch)
{
    const struct extent e = extent_of(shape);
    const size_t matrix = e.depth * e.filters;
    if (order == WEFT_SLICES_OF_FILTERS) {
        if (shape->layout == WEFT_TENSOR_HWIO)
            transpose(values, e.filters, e.places * e.depth, scratch);
    } else if (shape->layout == WEFT_TENSOR_OIHW) {
        for (size_t p = 0; p < e.places; p++)
            weft_transpose(values + p * matrix, e.depth, e.filters, scratch + p * matrix);
        weft_transpose(scratch, e.places, matrix, values);
    } else if (shape->layout == WEFT_TENSOR_OHWI || shape->layout == WEFT_TENSOR_DENSE) {
        transpose(values, e.places * e.depth, e.filters, scratch);
    }
}
