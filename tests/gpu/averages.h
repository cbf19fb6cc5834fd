/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of group averaging on devices share: a rank with a model of a few tensors on either
 * side, and a stream that can be held up. */
#ifndef WEFT_TESTS_GPU_AVERAGES_H
#define WEFT_TESTS_GPU_AVERAGES_H

#include <weft/cuda.h>

#include "schedules/objects/group_average/group_average.h"
#include "tests/gpu/support/device_memory.h"
#include "tests/support/ranks.h"

enum { ELEMENTS = 1237, TENSORS = 4, GATES = 64 };

struct model {
    struct weft_group_average_config config; /* with its tensors */
    struct weft_piece tensors[TENSORS];
    size_t bytes;
    char *memory; /* where tensors are */
    char *host;   /* pinned: what goes there, and comes from there */
    void *stream; /* of a device */
    uint32_t *gates;
    int gate; /* so many have been shut */
};

static inline int is_there(const struct model *model)
{
    return model->config.memory == WEFT_MEMORY_DEVICE;
}

static inline void model_make(struct model *model, const struct weft_group_average_config *config,
                              int rank)
{
    static const size_t counts[TENSORS] = {1, 1000, 0, ELEMENTS - 1001};
    size_t size = weft_dtype_size(config->dtype);

    *model = (struct model){.config = *config, .bytes = ELEMENTS * size};
    device_use(rank % device_count());
    model->stream = device_stream();
    model->host = device_pin(model->bytes);
    model->memory = is_there(model) ? device_alloc(model->bytes) : malloc(model->bytes);
    model->gates = device_pin(GATES * sizeof *model->gates);
    memset(model->gates, 0, GATES * sizeof *model->gates);
    CHECK(model->memory);
    for (size_t i = 0, at = 0; i < TENSORS; at += counts[i++])
        model->tensors[i] =
            (struct weft_piece){counts[i] ? model->memory + at * size : NULL, counts[i]};
    model->config.tensors = model->tensors;
    model->config.tensor_count = TENSORS;
}

static inline void model_free(struct model *model)
{
    device_stream_wait(model->stream);
    device_stream_close(model->stream);
    device_unpin(model->host);
    device_unpin(model->gates);
    if (is_there(model))
        device_free(model->memory);
    else
        free(model->memory);
}

/* Between `host` and the tensors, at once. */
static inline void model_put(struct model *model)
{
    if (is_there(model))
        device_put(model->memory, model->host, model->bytes);
    else
        memcpy(model->memory, model->host, model->bytes);
}

static inline void model_get(struct model *model)
{
    if (is_there(model))
        device_get(model->host, model->memory, model->bytes);
    else
        memcpy(model->host, model->memory, model->bytes);
}

/* The stream goes no further until gate number `gate` is opened. */
static inline int model_hold(struct model *model)
{
    CHECK(model->gate < GATES);
    device_stream_hold(model->stream, &model->gates[model->gate], 1);
    return model->gate++;
}

static inline void model_let_go(struct model *model, int gate)
{
    atomic_store((_Atomic uint32_t *)&model->gates[gate], 1);
}

/* Numbers that say whose they are, and of which step; they round in sums. */
static inline void model_fill(struct model *model, int rank, int step)
{
    double values[ELEMENTS];

    for (size_t i = 0; i < ELEMENTS; i++) {
        uint64_t random = (uint64_t)(rank * 64 + step) * 4096 + i + 1;

        random *= UINT64_C(0x9e3779b97f4a7c15);
        random ^= random >> 29;
        values[i] = ((double)(random >> 11) * 0x1p-53 - 0.5) * (i % 7 == 0 ? 100 : 1);
    }
    OK(weft_convert(model->config.dtype, model->host, WEFT_F64, values, ELEMENTS));
}

/* All elements alike. */
static inline void model_set(struct model *model, double value)
{
    double values[ELEMENTS];

    for (size_t i = 0; i < ELEMENTS; i++)
        values[i] = value;
    OK(weft_convert(model->config.dtype, model->host, WEFT_F64, values, ELEMENTS));
}

static inline double model_at(const struct model *model, size_t i)
{
    double value;

    OK(weft_convert(WEFT_F64, &value, model->config.dtype,
                    model->host + i * weft_dtype_size(model->config.dtype), 1));
    return value;
}

static inline int model_is(struct model *model, double value)
{
    model_get(model);
    for (size_t i = 0; i < ELEMENTS; i++)
        if (model_at(model, i) != value)
            return 0;
    return 1;
}

/* Until versions below have ended on this rank. */
static inline void await_version(struct weft_group_average *average, uint64_t version)
{
    OK(weft_series_wait(average->versions, version - 1, WEFT_NEVER));
}

/* How a step is taken. */
enum how { BY_THREAD, SPLIT_BY_THREAD, ON_STREAM, SPLIT_ON_STREAM, POSTED_ON_STREAM, HOWS };

/* Puts what `host` has into the tensors, takes a step, and brings them back. Between the halves of
 * a step nothing is done to them. */
static inline int model_step(struct model *model, struct weft_group_average *average, enum how how,
                             struct weft_group_average_result *result)
{
    int status = WEFT_OK;

    if (how == BY_THREAD || how == SPLIT_BY_THREAD) {
        model_put(model);
        status = how == BY_THREAD ? weft_group_average_step(average, result)
                                  : weft_group_average_post(average);
        if (how != BY_THREAD && !status)
            status = weft_group_average_wait(average, result);
        model_get(model);
        return status;
    }
    device_stream_put(model->stream, model->memory, model->host, model->bytes);
    if (how == ON_STREAM) {
        status = weft_group_average_step_on(average, model->stream);
    } else {
        status = weft_group_average_post_on(average, model->stream);
        if (!status && how == SPLIT_ON_STREAM)
            status = weft_group_average_wait_on(average, model->stream);
    }
    if (!status && how != POSTED_ON_STREAM) {
        device_stream_get(model->stream, model->host, model->memory, model->bytes);
        device_stream_wait(model->stream);
    }
    if (!status)
        status = weft_group_average_wait(average, result);
    if (how == POSTED_ON_STREAM)
        model_get(model);
    return status;
}

#endif
