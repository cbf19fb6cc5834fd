/* SPDX-License-Identifier: BSD-3-Clause */
/* What the suites of compressed averaging share: methods with their settings, a model with shapes,
 * and gradients of ranks. */
#ifndef WEFT_TESTS_COMPRESSED_CONFIG_H
#define WEFT_TESTS_COMPRESSED_CONFIG_H

#include <math.h>
#include <string.h>
#include <weft/weft.h>

enum {
    COMPRESSED_TENSORS = 6,
    COMPRESSED_ELEMENTS = 15 * 7 + 15 + 0 + 6 * 2 * 3 * 3 + 1 + 4 * 300
};

/* A dense layer, its biases, an empty tensor, filters in two layouts, a vector of one. */
static const size_t compressed_counts[COMPRESSED_TENSORS] = {15 * 7,        15, 0,
                                                             6 * 2 * 3 * 3, 1,  4 * 300};
static const struct weft_tensor_shape compressed_shapes[COMPRESSED_TENSORS] = {
    {WEFT_TENSOR_DENSE, 15, 7, 0, 0}, {WEFT_TENSOR_VECTOR, 0, 0, 0, 0},
    {WEFT_TENSOR_VECTOR, 0, 0, 0, 0}, {WEFT_TENSOR_OIHW, 6, 2, 3, 3},
    {WEFT_TENSOR_VECTOR, 1, 0, 0, 0}, {WEFT_TENSOR_HWIO, 4, 3, 10, 10}};

/* How a method is set up. */
struct compressed_method {
    const char *name;
    weft_compressed_method_t method;
    int bits; /* of QSGD */
    weft_qsgd_way_t way;
    weft_compressed_residual_t residual;
    size_t rank; /* of PowerSGD */
    uint64_t warmup;
    int cold;
    int keeps; /* residuals */
};

static const struct compressed_method compressed_methods[] = {
    {"qsgd-4", WEFT_COMPRESSED_QSGD, 4, WEFT_QSGD_SHARDS, WEFT_COMPRESSED_RESIDUAL_DEFAULT, 0, 0, 0,
     0},
    {"qsgd-8-ring", WEFT_COMPRESSED_QSGD, 8, WEFT_QSGD_RING, WEFT_COMPRESSED_RESIDUAL_DEFAULT, 0, 0,
     0, 0},
    {"qsgd-2-kept", WEFT_COMPRESSED_QSGD, 2, WEFT_QSGD_SHARDS, WEFT_COMPRESSED_RESIDUAL_KEPT, 0, 0,
     0, 1},
    {"qsgd-4-ring-kept", WEFT_COMPRESSED_QSGD, 4, WEFT_QSGD_RING, WEFT_COMPRESSED_RESIDUAL_KEPT, 0,
     0, 0, 1},
    {"sign", WEFT_COMPRESSED_QSGD, WEFT_QUANTISE_SIGN, WEFT_QSGD_SHARDS,
     WEFT_COMPRESSED_RESIDUAL_DEFAULT, 0, 0, 0, 1},
    {"powersgd", WEFT_COMPRESSED_POWERSGD, 0, WEFT_QSGD_SHARDS, WEFT_COMPRESSED_RESIDUAL_DEFAULT, 2,
     0, 0, 1},
    {"powersgd-warm-up", WEFT_COMPRESSED_POWERSGD, 0, WEFT_QSGD_SHARDS,
     WEFT_COMPRESSED_RESIDUAL_DEFAULT, 1, 3, 0, 1},
    {"powersgd-cold", WEFT_COMPRESSED_POWERSGD, 0, WEFT_QSGD_SHARDS, WEFT_COMPRESSED_RESIDUAL_NONE,
     3, 0, 1, 0},
};
enum { COMPRESSED_METHODS = sizeof compressed_methods / sizeof *compressed_methods };

/* Settings with all that they point to. */
struct compressed_settings {
    struct weft_compressed_average_config config;
    struct weft_quantiser quantiser;
    struct weft_powersgd_config powersgd;
    struct weft_piece tensors[COMPRESSED_TENSORS];
};

/* The tensors lie `gap` elements apart in `data`. */
static inline void compressed_set(struct compressed_settings *settings,
                                  const struct compressed_method *method, weft_dtype_t dtype,
                                  void *data, size_t gap)
{
    char *at = data;
    weft_compressed_average_config_init(&settings->config);
    weft_quantiser_init(&settings->quantiser);
    weft_powersgd_config_init(&settings->powersgd);
    for (int t = 0; t < COMPRESSED_TENSORS; t++) {
        settings->tensors[t] = (struct weft_piece){at, compressed_counts[t]};
        at += (compressed_counts[t] + gap) * weft_dtype_size(dtype);
    }
    settings->quantiser.bits = method->bits;
    settings->quantiser.bucket = 64;
    settings->powersgd.rank = method->rank;
    settings->powersgd.warmup_steps = method->warmup;
    settings->powersgd.cold_start = method->cold;
    settings->config.dtype = dtype;
    settings->config.method = method->method;
    settings->config.residual = method->residual;
    settings->config.qsgd_way = method->way;
    settings->config.quantiser = &settings->quantiser;
    settings->config.powersgd = &settings->powersgd;
    settings->config.tensors = settings->tensors;
    settings->config.tensor_count = COMPRESSED_TENSORS;
    settings->config.shapes = compressed_shapes;
}

static inline uint64_t compressed_scramble(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* An element of a rank's gradient: inexact numbers of magnitudes that differ, and zeros. */
static inline float compressed_gradient(int rank, uint64_t step, size_t element)
{
    const uint64_t bits =
        compressed_scramble(compressed_scramble(step * 64 + (uint64_t)rank) + element);
    if (bits % 11 == 0)
        return 0;
    return (float)((double)(int64_t)compressed_scramble(bits) * 0x1p-63 *
                   ldexp(1, (int)(bits >> 8) % 6));
}

#endif
