/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of tensors, and the comparison of settings: the largest value and the largest complement of
 * one settle whether all are equal, in one allreduce. */
#include <stdio.h>
#include <string.h>

#include <weft/template.h>

#include "schedules/objects/model.h"

static int check_tensor(const char *who, const struct weft_piece *tensor, size_t index,
                        size_t *left)
{
    if (tensor->count && !tensor->data)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->tensors[%zu].data is NULL, expected %zu elements", who,
                              index, tensor->count);
    if (tensor->count > *left)
        return weft_error_set(
            WEFT_ERR_INVALID,
            "%s: config->tensors[%zu].count is %zu, expected at most %zu elements "
            "in all tensors",
            who, index, tensor->count, *left);
    *left -= tensor->count;
    return WEFT_OK;
}

static int refuse_dtype(const char *who, int dtypes, weft_dtype_t dtype)
{
    const char *name = weft_dtype_name(dtype);
    char expected[64] = "";
    for (int i = 0; i < WEFT_DTYPE_COUNT; i++) {
        size_t used = strlen(expected);
        if (dtypes >> i & 1)
            snprintf(expected + used, sizeof expected - used, "%s%s", used ? " or " : "",
                     weft_dtype_name((weft_dtype_t)i));
    }
    return weft_error_set(name ? WEFT_ERR_UNSUPPORTED : WEFT_ERR_INVALID,
                          "%s: config->dtype is %s, expected %s", who, name ? name : "no datatype",
                          expected);
}

int weft__model_init(struct weft__model *model, const char *who, int dtypes, weft_dtype_t dtype,
                     const struct weft_piece *tensors, size_t tensor_count)
{
    memset(model, 0, sizeof *model);
    if ((unsigned)dtype >= WEFT_DTYPE_COUNT || !(dtypes >> dtype & 1))
        return refuse_dtype(who, dtypes, dtype);
    if (!tensors && tensor_count)
        return weft_error_set(WEFT_ERR_INVALID, "%s: config->tensors is NULL, expected %zu tensors",
                              who, tensor_count);
    /* So that objects may keep several copies in one block. */
    size_t most = PTRDIFF_MAX / weft_dtype_size(dtype) / 8, left = most;
    for (size_t i = 0; i < tensor_count; i++) {
        int status = check_tensor(who, &tensors[i], i, &left);
        if (status)
            return status;
    }
    model->tensors = weft_memory_alloc(tensor_count ? tensor_count : 1, sizeof *tensors);
    if (!model->tensors)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for a list of %zu tensors", who,
                              tensor_count);
    if (tensor_count)
        memcpy(model->tensors, tensors, tensor_count * sizeof *tensors);
    model->tensor_count = tensor_count;
    model->dtype = dtype;
    model->count = most - left;
    return WEFT_OK;
}

void weft__model_free(struct weft__model *model)
{
    weft_memory_free(model->tensors);
    memset(model, 0, sizeof *model);
}

/* values[0]: whether any rank has failed. Then each setting, and its complement. */
static int meet(struct weft_context *context, uint64_t *values, size_t count)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    weft_template_params_init(&params);
    params.count = count;
    params.dtype = WEFT_U64;
    params.op = weft_op_builtin(WEFT_MAX);
    params.in_place = 1;
    int status = weft_template_create_run(&run, context, "allreduce", &params);
    if (!status)
        status = weft_run_bind_name(run, "recv", values, count, WEFT_U64);
    if (!status)
        status = weft_run_execute(run);
    weft_run_destroy(run);
    return status;
}

int weft__settings_agree(struct weft_context *context, const char *who,
                         const struct weft__setting *settings, size_t count, int failed)
{
    uint64_t values[1 + 2 * WEFT__SETTINGS_MOST] = {failed != WEFT_OK};
    char text[512];
    if (count > WEFT__SETTINGS_MOST)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %zu settings to compare, expected at most %d",
                              who, count, WEFT__SETTINGS_MOST);
    snprintf(text, sizeof text, "%s", failed ? weft_error_text() : "");
    for (size_t i = 0; i < count && !failed; i++) {
        values[1 + 2 * i] = settings[i].value;
        values[2 + 2 * i] = ~settings[i].value;
    }
    int status = meet(context, values, sizeof values / sizeof values[0]);
    if (failed)
        return weft_error_set(failed, "%s", text);
    if (!status && values[0])
        status = weft_error_set(WEFT_ERR_PEER, "%s: it has failed on another rank", who);
    for (size_t i = 0; i < count && !status; i++)
        if (values[1 + 2 * i] != ~values[2 + 2 * i])
            status = weft_error_set(
                WEFT_ERR_INVALID,
                "%s: %s is %llu here, and between %llu and %llu on the ranks; expected the same on "
                "all",
                who, settings[i].name, (unsigned long long)settings[i].value,
                (unsigned long long)~values[2 + 2 * i], (unsigned long long)values[1 + 2 * i]);
    return status;
}
