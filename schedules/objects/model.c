/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of tensors, steps, and what is around an object. */
#include <stdio.h>
#include <string.h>

#include <weft/device.h>
#include <weft/run.h>
#include <weft/template.h>

#include "schedules/objects/device.h"
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

int weft__tensor_locate(const char *who, const char *name, const void *data, size_t bytes,
                        weft_memory_t memory)
{
    const char *expected = memory == WEFT_MEMORY_HOST
                               ? "memory of the host"
                               : "memory of the device, as config->memory says";
    int of_host, of_device, status = weft_devices_locate(data, &of_host, &of_device);
    if (!status && !(memory == WEFT_MEMORY_HOST ? of_host : of_device))
        return weft_error_set(WEFT_ERR_INVALID, "%s: %s, %p, is memory of %s, expected %s", who,
                              name, data, of_host ? "the host" : "a device", expected);
    if (!status)
        status =
            weft_devices_locate((const char *)data + (bytes ? bytes - 1 : 0), &of_host, &of_device);
    if (status || (memory == WEFT_MEMORY_HOST ? of_host : of_device))
        return status;
    return weft_error_set(WEFT_ERR_INVALID,
                          "%s: %s, %p, is of %zu bytes, of which the last is outside: expected %s",
                          who, name, data, bytes, expected);
}

int weft__tensors_locate(const char *who, const char *list, const struct weft_piece *tensors,
                         size_t tensor_count, weft_dtype_t dtype, weft_memory_t memory)
{
    int status = WEFT_OK;
    for (size_t i = 0; i < tensor_count && !status; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s[%zu].data", list, i);
        if (tensors[i].count)
            status = weft__tensor_locate(who, name, tensors[i].data,
                                         tensors[i].count * weft_dtype_size(dtype), memory);
    }
    return status;
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

int weft__model_init_in(struct weft__model *model, const char *who, int dtypes, weft_dtype_t dtype,
                        const struct weft_piece *tensors, size_t tensor_count, weft_memory_t memory)
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
    int status = weft__tensors_locate(who, "config->tensors", tensors, tensor_count, dtype, memory);
    if (status)
        return status;
    model->tensors = weft_memory_alloc(tensor_count ? tensor_count : 1, sizeof *tensors);
    if (!model->tensors)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for a list of %zu tensors", who,
                              tensor_count);
    if (tensor_count)
        memcpy(model->tensors, tensors, tensor_count * sizeof *tensors);
    model->tensor_count = tensor_count;
    model->dtype = dtype;
    model->memory = memory;
    model->count = most - left;
    return WEFT_OK;
}

int weft__model_init(struct weft__model *model, const char *who, int dtypes, weft_dtype_t dtype,
                     const struct weft_piece *tensors, size_t tensor_count)
{
    return weft__model_init_in(model, who, dtypes, dtype, tensors, tensor_count, WEFT_MEMORY_HOST);
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

/* ---- what is not finite ---- */

enum { BLOCK = 1024 }; /* elements that stay in the first cache */

/* Integers alone, as wide as elements, so that loops become vectors: of what is not finite all bits
 * of the exponent are set, and one more is carried out of them. */
#define COUNT(name, type, lowest, exponent)                                                        \
    static size_t count_##name(const void *data, size_t count)                                     \
    {                                                                                              \
        const char *at = data;                                                                     \
        size_t bad = 0;                                                                            \
        for (size_t first = 0; first < count; first += BLOCK) {                                    \
            size_t n = count - first < BLOCK ? count - first : BLOCK;                              \
            type found = 0;                                                                        \
            for (size_t i = 0; i < n; i++) {                                                       \
                type bits;                                                                         \
                memcpy(&bits, at + (first + i) * sizeof bits, sizeof bits);                        \
                bits = (type)(((bits >> (lowest)) & ((1 << (exponent)) - 1)) + 1);                 \
                found = (type)(found + (bits >> (exponent)));                                      \
            }                                                                                      \
            bad += found;                                                                          \
        }                                                                                          \
        return bad;                                                                                \
    }

COUNT(f32, uint32_t, 23, 8)
COUNT(f64, uint64_t, 52, 11)
COUNT(f16, uint16_t, 10, 5)
COUNT(bf16, uint16_t, 7, 8)

size_t weft__count_bad(weft_dtype_t dtype, const void *data, size_t count)
{
    return dtype == WEFT_F32   ? count_f32(data, count)
           : dtype == WEFT_F64 ? count_f64(data, count)
           : dtype == WEFT_F16 ? count_f16(data, count)
                               : count_bf16(data, count);
}

void weft__bad_add(struct weft__bad *bad, size_t tensor, size_t found)
{
    if (found && !bad->count)
        bad->tensor = tensor;
    bad->count += found;
}

size_t weft__tensor_at(const struct weft_piece *tensors, size_t place)
{
    size_t tensor = 0;
    while (place >= tensors[tensor].count)
        place -= tensors[tensor++].count;
    return tensor;
}

int weft__model_look(const struct weft__model *model, struct weft__device_work *work,
                     struct weft__bad *bad)
{
    *bad = (struct weft__bad){0};
    if (model->memory == WEFT_MEMORY_DEVICE)
        return weft__device_look(work, model, bad);
    for (size_t t = 0; t < model->tensor_count; t++)
        weft__bad_add(
            bad, t, weft__count_bad(model->dtype, model->tensors[t].data, model->tensors[t].count));
    return WEFT_OK;
}

struct weft__bad weft__model_copy(const struct weft__model *model, void *flat, int looks)
{
    struct weft__bad bad = {0};
    char *to = flat;
    for (size_t t = 0; t < model->tensor_count; t++) {
        const struct weft_piece *tensor = &model->tensors[t];
        for (size_t first = 0, n; first < tensor->count; first += n) {
            const char *from = weft__model_at(model, tensor->data, first);
            n = !looks || tensor->count - first < BLOCK ? tensor->count - first : BLOCK;
            memcpy(to, from, n * weft_dtype_size(model->dtype));
            to += n * weft_dtype_size(model->dtype);
            if (looks)
                weft__bad_add(&bad, t, weft__count_bad(model->dtype, from, n));
        }
    }
    return bad;
}

const char *weft__nan_word(weft_nan_policy_t nan)
{
    static const char *const words[] = {"error", "zero", "spread"};
    return words[nan];
}

int weft__nan_check(const char *who, weft_nan_policy_t nan)
{
    if (nan == WEFT_NAN_ERROR || nan == WEFT_NAN_SPREAD)
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_INVALID,
                          "%s: config->nan is %d, expected WEFT_NAN_ERROR or WEFT_NAN_SPREAD: an "
                          "element of a model cannot count as zero",
                          who, (int)nan);
}

int weft__bad_refuse(const char *who, uint64_t step, const struct weft__bad *bad)
{
    return weft_error_set(WEFT_ERR_COMPUTE,
                          "%s: step %llu: %llu NaNs or infinities in the model of this rank, the "
                          "first in tensor %zu; nothing has been published",
                          who, (unsigned long long)step, (unsigned long long)bad->count,
                          bad->tensor);
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

int weft__functions_make(struct weft_op **ops, const struct weft__function *functions, size_t count,
                         void *user)
{
    for (size_t i = 0; i < count; i++) {
        struct weft_op_config config;
        weft_op_config_init(&config);
        config.name = functions[i].name;
        config.compute = functions[i].compute;
        config.flags = functions[i].flags;
        config.user = user;
        int status = weft_op_create(&ops[i], &config);
        if (status)
            return status;
    }
    return WEFT_OK;
}

uint64_t weft__scramble(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}
