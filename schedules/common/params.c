/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameters of templates: defaults and checks. */
#include <string.h>

#include "schedules/common/template.h"

void weft_template_params_init(struct weft_template_params *params)
{
    if (!params)
        return;
    *params = (struct weft_template_params){
        .struct_size = sizeof *params,
        .count = 1024,
        .dtype = WEFT_F32,
        .op = weft_op_builtin(WEFT_SUM),
        .segment = WEFT_SEGMENT_AUTO,
    };
}

int weft__params_read(struct weft_template_params *full, const struct weft_template_params *params)
{
    weft_template_params_init(full);
    if (!params)
        return WEFT_OK;
    if (params->struct_size < sizeof params->struct_size || params->struct_size > sizeof *full)
        return weft_error_set(WEFT_ERR_INVALID,
                              "params: struct_size is %zu, expected %zu as "
                              "weft_template_params_init() sets it",
                              params->struct_size, sizeof *full);
    memcpy(full, params, params->struct_size);
    full->struct_size = sizeof *full;
    if (!full->op)
        full->op = weft_op_builtin(WEFT_SUM);
    if (full->cost && full->cost->struct_size != sizeof *full->cost)
        return weft_error_set(WEFT_ERR_INVALID,
                              "params: cost->struct_size is %zu, expected %zu as "
                              "weft_cost_model_init() sets it",
                              full->cost->struct_size, sizeof *full->cost);
    return WEFT_OK;
}

static int check_data(const struct weft__template *template, int size,
                      const struct weft_template_params *params)
{
    const char *name = template->public.name;
    size_t element = weft_dtype_size(params->dtype);
    if (!element)
        return weft_error_set(WEFT_ERR_INVALID, "%s: dtype is %d, expected one of weft_dtype_t",
                              name, (int)params->dtype);
    size_t blocks = template->flags & WEFT__BLOCKS ? (size_t)size : 1;
    if (params->count > PTRDIFF_MAX / element / blocks)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: count is %zu, expected at most %zu elements of %s on %d ranks",
                              name, params->count, PTRDIFF_MAX / element / blocks,
                              weft_dtype_name(params->dtype), size);
    return WEFT_OK;
}

/* By default a thousandth of the elements; the vector has at least as many elements as pairs. */
static int check_pairs(const struct weft__template *template, int size,
                       struct weft_template_params *params)
{
    const char *name = template->public.name;
    size_t most = PTRDIFF_MAX / 64 / (size_t)size;
    if (!params->k)
        params->k = params->count / 1000 + (params->count % 1000 != 0);
    if (params->k > most)
        return weft_error_set(WEFT_ERR_INVALID, "%s: k is %zu, expected at most %zu on %d ranks",
                              name, params->k, most, size);
    if ((uint64_t)params->k > (uint64_t)1 << 32)
        return weft_error_set(WEFT_ERR_UNSUPPORTED,
                              "%s: k is %zu, expected at most 2^32: indices have 4 bytes", name,
                              params->k);
    if (params->count < params->k)
        params->count = params->k;
    if ((uint64_t)params->count > (uint64_t)1 << 32)
        return weft_error_set(WEFT_ERR_UNSUPPORTED,
                              "%s: count is %zu, expected at most 2^32: indices have 4 bytes", name,
                              params->count);
    return WEFT_OK;
}

int weft__params_check(const struct weft__template *template, int size,
                       struct weft_template_params *params)
{
    const char *name = template->public.name;
    if (size < 1)
        return weft_error_set(WEFT_ERR_INVALID, "%s: size is %d, expected at least 1", name, size);
    if (template->flags & WEFT__USES_DATA) {
        int status = check_data(template, size, params);
        if (status)
            return status;
    }
    if (template->flags & WEFT__USES_PAIRS) {
        int status = check_pairs(template, size, params);
        if (status)
            return status;
    }
    if (template->flags & WEFT__USES_GROUP && (params->group_size < 0 || params->group_size > size))
        return weft_error_set(WEFT_ERR_INVALID, "%s: group_size is %d, expected 0 .. %d", name,
                              params->group_size, size);
    if (template->flags & WEFT__USES_ROOT && (params->root < 0 || params->root >= size))
        return weft_error_set(WEFT_ERR_INVALID, "%s: root is %d, expected 0 .. %d", name,
                              params->root, size - 1);
    if (template->flags & WEFT__USES_OP && !weft_op_supports(params->op, params->dtype))
        return weft_error_set(WEFT_ERR_INVALID, "%s: operation %s is not defined on %s", name,
                              weft_op_name(params->op), weft_dtype_name(params->dtype));
    return WEFT_OK;
}
