/* SPDX-License-Identifier: BSD-3-Clause */
/* What functions of devices put on their streams (weft/device.h): checked here, launched by the
 * device's library. */
#include <weft/device.h>

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/engine/device.h"

static int find_device(const char *who, struct weft__device **device)
{
    *device = weft__device_current();
    return *device
               ? WEFT_OK
               : weft__error(WEFT_ERR_STATE,
                             "%s: called by none of the functions of weft_op_config.device", who);
}

static int is_float(weft_dtype_t dtype)
{
    return dtype == WEFT_F16 || dtype == WEFT_BF16 || dtype == WEFT_F32 || dtype == WEFT_F64;
}

/* Whether a vector has its elements, and as many as another one. */
static int check_vector(const char *who, const char *name, const struct weft_argument *vector,
                        const struct weft_argument *other, const char *other_name)
{
    size_t count = 0;

    if (!vector)
        return WEFT__INVALID("%s: %s is NULL", who, name);
    if (weft_dtype_size(vector->dtype) == 0)
        return WEFT__INVALID("%s: %s->dtype is %d, expected a datatype", who, name,
                             (int)vector->dtype);
    if (other && vector->count != other->count)
        return WEFT__INVALID("%s: %s->count is %zu, expected %zu, as %s->count", who, name,
                             vector->count, other->count, other_name);
    if (!vector->pieces)
        return vector->data || vector->count == 0
                   ? WEFT_OK
                   : WEFT__INVALID("%s: %s->data is NULL, expected %zu elements", who, name,
                                   vector->count);
    for (size_t i = 0; i < vector->piece_count; i++) {
        if (!vector->pieces[i].data && vector->pieces[i].count > 0)
            return WEFT__INVALID("%s: %s->pieces[%zu].data is NULL, expected %zu elements", who,
                                 name, i, vector->pieces[i].count);
        count += vector->pieces[i].count;
    }
    return count == vector->count ? WEFT_OK
                                  : WEFT__INVALID("%s: %s->pieces have %zu elements, expected %zu, "
                                                  "%s->count",
                                                  who, name, count, vector->count, name);
}

static int check_float(const char *who, const char *name, const struct weft_argument *vector,
                       const struct weft_argument *other)
{
    int status = check_vector(who, name, vector, other, "sum->terms[0].vector");

    if (status || is_float(vector->dtype))
        return status;
    return WEFT__INVALID("%s: %s->dtype is %s, expected f16, bf16, f32 or f64", who, name,
                         weft_dtype_name(vector->dtype));
}

static int check_terms(const char *who, const struct weft_device_sum *sum)
{
    int status = WEFT_OK;

    if (sum->term_count < 1 || sum->term_count > WEFT_DEVICE_TERMS)
        return WEFT__INVALID("%s: sum->term_count is %zu, expected 1 to %d", who, sum->term_count,
                             WEFT_DEVICE_TERMS);
    if (!sum->terms)
        return WEFT__INVALID("%s: sum->terms is NULL, expected %zu terms", who, sum->term_count);
    for (size_t k = 0; k < sum->term_count && !status; k++) {
        const struct weft_device_term *term = &sum->terms[k];
        char name[40];

        snprintf(name, sizeof name, "sum->terms[%zu].vector", k);
        status = check_float(who, name, term->vector, k > 0 ? sum->terms[0].vector : NULL);
        snprintf(name, sizeof name, "sum->terms[%zu].factor", k);
        if (!status)
            status = weft_sized_real(who, name, term->factor, -DBL_MAX, DBL_MAX);
        snprintf(name, sizeof name, "sum->terms[%zu].flags", k);
        if (!status)
            status =
                weft_sized_flags(who, name, term->flags, WEFT_DEVICE_COUNT | WEFT_DEVICE_CLEAR);
        if (!status && (term->flags & WEFT_DEVICE_COUNT) && !sum->found)
            status =
                WEFT__INVALID("%s: sum->found is NULL, expected where term %zu is counted", who, k);
    }
    return status;
}

/* Members that are 0 become their defaults. */
static int check_sum(const char *who, struct weft_device_sum *sum)
{
    int status = check_terms(who, sum);
    const struct weft_argument *first = status ? NULL : sum->terms[0].vector;

    if (!status && sum->to)
        status = check_float(who, "sum->to", sum->to, first);
    if (!status && sum->less)
        status = check_float(who, "sum->less", sum->less, first);
    if (!status)
        status = weft_sized_real(who, "sum->factor", sum->factor, -DBL_MAX, DBL_MAX);
    if (!status)
        status = weft_sized_real(who, "sum->divisor", sum->divisor, -DBL_MAX, DBL_MAX);
    if (!status)
        status = weft_sized_number(who, "sum->adds", sum->adds, 0, 1);
    sum->factor = sum->factor == 0 ? 1 : sum->factor;
    sum->divisor = sum->divisor == 0 ? 1 : sum->divisor;
    return status;
}

void weft_device_sum_init_sized(struct weft_device_sum *sum, size_t size)
{
    weft_sized_init(sum, size);
}

int weft_device_combine(const struct weft_device_sum *given, void *stream)
{
    struct weft__device *device;
    struct weft_device_sum sum;
    int status = given ? weft_sized_read(__func__, "sum", given, &sum, sizeof sum)
                       : WEFT__INVALID("%s: argument `sum` is NULL", __func__);

    if (!status)
        status = check_sum(__func__, &sum);
    if (!status)
        status = find_device(__func__, &device);
    return status ? status : device->ops->combine(device, stream, &sum);
}

int weft_device_fill(const struct weft_argument *to, const void *element, void *stream)
{
    struct weft__device *device;
    uint64_t bits = 0;
    int status = check_vector(__func__, "to", to, NULL, NULL);
    size_t size = status ? 0 : weft_dtype_size(to->dtype);

    if (!status && !element)
        status = WEFT__INVALID("%s: argument `element` is NULL", __func__);
    if (!status && size != 1 && size != 2 && size != 4 && size != 8)
        status = weft__error(WEFT_ERR_UNSUPPORTED,
                             "%s: to->dtype is %s, expected elements of 1, 2, 4 or 8 bytes",
                             __func__, weft_dtype_name(to->dtype));
    if (!status)
        status = find_device(__func__, &device);
    if (status)
        return status;
    memcpy(&bits, element, size);
    return device->ops->fill(device, stream, to, bits);
}

int weft_device_copy(const struct weft_argument *to, const struct weft_argument *from, void *stream)
{
    struct weft__device *device;
    int status = check_vector(__func__, "to", to, NULL, NULL);

    if (!status)
        status = check_vector(__func__, "from", from, to, "to");
    if (!status && from->dtype != to->dtype)
        status = WEFT__INVALID("%s: from->dtype is %s, expected %s, as to->dtype", __func__,
                               weft_dtype_name(from->dtype), weft_dtype_name(to->dtype));
    if (!status)
        status = find_device(__func__, &device);
    return status ? status : device->ops->copy_vector(device, stream, to, from);
}

int weft_device_squares(const struct weft_argument *vector, unsigned flags, double *sums,
                        void *stream)
{
    struct weft__device *device;
    int status = check_float(__func__, "vector", vector, NULL);

    if (!status)
        status = weft_sized_flags(__func__, "flags", flags, WEFT_DEVICE_CLEAR);
    if (!status && !sums)
        status = WEFT__INVALID("%s: argument `sums` is NULL", __func__);
    if (!status)
        status = find_device(__func__, &device);
    return status ? status
                  : device->ops->squares(device, stream, vector, (flags & WEFT_DEVICE_CLEAR) != 0,
                                         sums);
}

/* ---- pairs ---- */

static int check_pairs(const char *who, const struct weft_sparse *pairs,
                       const struct weft_argument *to, int needs_values)
{
    if (!pairs)
        return WEFT__INVALID("%s: argument `pairs` is NULL", who);
    if (pairs->index_dtype != WEFT_U32 && pairs->index_dtype != WEFT_U64)
        return WEFT__INVALID("%s: pairs->index_dtype is %d, expected WEFT_U32 or WEFT_U64", who,
                             (int)pairs->index_dtype);
    if (pairs->count > 0 && (!pairs->indices || (needs_values && !pairs->values)))
        return WEFT__INVALID("%s: pairs->%s is NULL, expected %zu pairs", who,
                             pairs->indices ? "values" : "indices", pairs->count);
    if (pairs->values && pairs->dtype != to->dtype && pairs->dtype != WEFT_F32)
        return WEFT__INVALID("%s: pairs->dtype is %d, expected that of to, %s, or f32", who,
                             (int)pairs->dtype, weft_dtype_name(to->dtype));
    return WEFT_OK;
}

static int scatter(const char *who, const struct weft__device_scatter *scatter, void *stream)
{
    struct weft__device *device;
    int status = check_float(who, "to", scatter->to, NULL);

    if (!status && scatter->to->pieces)
        status = weft__error(WEFT_ERR_UNSUPPORTED,
                             "%s: to->pieces is a list of %zu, expected a vector in one piece", who,
                             scatter->to->piece_count);
    if (!status)
        status = check_pairs(who, scatter->pairs, scatter->to, scatter->adds);
    if (!status)
        status = find_device(who, &device);
    return status ? status : device->ops->scatter(device, stream, scatter);
}

int weft_device_scatter_add(const struct weft_sparse *pairs, double scale,
                            const struct weft_argument *to, void *stream)
{
    const struct weft__device_scatter adding = {pairs, to, scale, 1};

    return scatter(__func__, &adding, stream);
}

int weft_device_scatter(const struct weft_sparse *pairs, const struct weft_argument *to,
                        void *stream)
{
    const struct weft__device_scatter setting = {pairs, to, 1, 0};

    return scatter(__func__, &setting, stream);
}
