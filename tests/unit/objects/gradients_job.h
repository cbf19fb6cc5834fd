/* SPDX-License-Identifier: BSD-3-Clause */
/* Models of layers for suites of merged gradients: small integers, so that sums are exact. */
#ifndef WEFT_TESTS_GRADIENTS_JOB_H
#define WEFT_TESTS_GRADIENTS_JOB_H

#include "support/ranks.h"

enum { LAYERS = 6, MOST = 4096 };

/* Elements of each layer; gaps: between them in memory, in elements. */
struct gradients_model {
    size_t counts[LAYERS];
    size_t layers;
    size_t gap;
    weft_dtype_t dtype;
    _Alignas(64) unsigned char memory[MOST * sizeof(float)];
    struct weft_piece tensors[LAYERS];
};

static inline void gradients_model_make(struct gradients_model *model, weft_dtype_t dtype,
                                        size_t gap)
{
    static const size_t counts[LAYERS] = {3, 700, 0, 1, 129, 64};
    size_t at = 0;
    memset(model, 0, sizeof *model);
    model->layers = LAYERS;
    model->gap = gap;
    model->dtype = dtype;
    for (size_t l = 0; l < LAYERS; l++) {
        model->counts[l] = counts[l];
        model->tensors[l].data = model->memory + at * weft_dtype_size(dtype);
        model->tensors[l].count = counts[l];
        at += counts[l] + gap;
    }
    CHECK(at <= MOST);
}

/* What a rank contributes. */
static inline float gradients_value(int rank, uint64_t step, size_t layer, size_t i)
{
    return (float)((i * 7 + layer * 3 + step * 5 + (size_t)rank * 11) % 17) - 8;
}

static inline void gradients_fill(const struct gradients_model *model, int rank, uint64_t step,
                                  size_t layer)
{
    const struct weft_piece *tensor = &model->tensors[layer];
    for (size_t i = 0; i < tensor->count; i++) {
        float value = gradients_value(rank, step, layer, i);
        char *at = (char *)tensor->data + i * weft_dtype_size(model->dtype);
        OK(weft_convert(model->dtype, at, WEFT_F32, &value, 1));
    }
}

/* The result of a step in which the ranks of a mask had no gradient. */
static inline void gradients_check(const struct gradients_model *model, int ranks, int sums,
                                   uint64_t step, size_t layer, unsigned absent)
{
    const struct weft_piece *tensor = &model->tensors[layer];
    for (size_t i = 0; i < tensor->count; i++) {
        float sum = 0, expected, found;
        unsigned char bits[4];
        for (int r = 0; r < ranks; r++)
            sum += absent >> r & 1 ? 0 : gradients_value(r, step, layer, i);
        expected = sums ? sum : sum / (float)ranks;
        OK(weft_convert(model->dtype, bits, WEFT_F32, &expected, 1));
        OK(weft_convert(WEFT_F32, &expected, model->dtype, bits, 1));
        OK(weft_convert(WEFT_F32, &found, model->dtype,
                        (char *)tensor->data + i * weft_dtype_size(model->dtype), 1));
        if (found != expected) {
            fprintf(stderr, "step %llu, layer %zu, element %zu of %d ranks: %g, expected %g\n",
                    (unsigned long long)step, layer, i, ranks, (double)found, (double)expected);
            abort();
        }
    }
}

static inline void gradients_config(struct weft_gradients_config *config,
                                    const struct gradients_model *model)
{
    weft_gradients_config_init(config);
    config->dtype = model->dtype;
    config->tensors = model->tensors;
    config->tensor_count = model->layers;
}

#endif
