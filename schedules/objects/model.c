/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of tensors, steps, and what is around an object. */
#include <stdio.h>
#include <string.h>

#include <weft/run.h>
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
    char expected[64] = "", number[16];
    for (int i = 0; i < WEFT_DTYPE_COUNT; i++) {
        size_t used = strlen(expected);
        if (dtypes >> i & 1)
            snprintf(expected + used, sizeof expected - used, "%s%s", used ? " or " : "",
                     weft_dtype_name((weft_dtype_t)i));
    }
    snprintf(number, sizeof number, "%d", (int)dtype);
    return weft_error_set(name ? WEFT_ERR_UNSUPPORTED : WEFT_ERR_INVALID,
                          "%s: config->dtype is %s, expected %s", who, name ? name : number,
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

int weft__surroundings_find(struct weft__surroundings *surroundings, struct weft_context *context)
{
    surroundings->hosts = NULL;
    surroundings->cost.struct_size = sizeof surroundings->cost;
    int status = weft_context_get_cost(context, &surroundings->cost);
    if (status || weft_context_host_count(context) < 2)
        return status;
    size_t ranks = (size_t)weft_context_size(context);
    surroundings->hosts = weft_memory_alloc(ranks, sizeof *surroundings->hosts);
    if (!surroundings->hosts)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for the hosts of %zu ranks", ranks);
    return weft_context_hosts(context, surroundings->hosts);
}

void weft__surroundings_free(struct weft__surroundings *surroundings)
{
    weft_memory_free(surroundings->hosts);
    surroundings->hosts = NULL;
}

void weft__model_free(struct weft__model *model)
{
    weft_memory_free(model->tensors);
    memset(model, 0, sizeof *model);
}

/* ---- steps ---- */

int weft__step_check_none(const char *who, enum weft__step step, uint64_t number)
{
    if (step == WEFT__STEP_NONE)
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_STATE, "%s: step %llu has been %s and not been waited for", who,
                          (unsigned long long)number,
                          step == WEFT__STEP_POSTED ? "posted" : "begun");
}

int weft__step_check_posted(const char *who, enum weft__step step)
{
    return step == WEFT__STEP_NONE
               ? weft_error_set(WEFT_ERR_STATE, "%s: no step has been posted", who)
               : WEFT_OK;
}

int weft__step_wait(struct weft_context *context, struct weft_run *run, uint64_t deadline_ns,
                    uint64_t *waited_ns)
{
    uint64_t began = weft_context_now(context);
    int status = weft_run_wait(run, deadline_ns ? deadline_ns : WEFT_NEVER);
    *waited_ns += weft_context_now(context) - began;
    return status;
}

int weft__step_timed_out(const char *who, const char *what, struct weft_run *run,
                         uint64_t deadline_ns)
{
    char *report = NULL;
    int status = weft_run_report(run, &report);
    weft_error_set(WEFT_ERR_TIMEOUT, "%s: %s has not ended within %llu ns:\n%s", who, what,
                   (unsigned long long)deadline_ns, status ? "" : report);
    weft_memory_free(report);
    return WEFT_ERR_TIMEOUT;
}

uint64_t weft__scramble(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}
