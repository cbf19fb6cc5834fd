/* SPDX-License-Identifier: BSD-3-Clause */
#include "trainers.h"

#define CREATE(function, object_type, ...)                                                         \
    static int function(void **object, struct weft_context *context, float *data, size_t count,    \
                        weft_dtype_t dtype)                                                        \
    {                                                                                              \
        struct weft_piece tensor = {data, count};                                                  \
        struct object_type##_config config;                                                        \
        struct object_type *made = NULL;                                                           \
        object_type##_config_init(&config);                                                        \
        config.dtype = dtype;                                                                      \
        config.tensors = &tensor;                                                                  \
        config.tensor_count = 1;                                                                   \
        __VA_ARGS__;                                                                               \
        int status = object_type##_create(&made, context, &config);                                \
        *object = made;                                                                            \
        return status;                                                                             \
    }

CREATE(create_anyone, weft_group_average, config.sync_period = 4)
CREATE(create_drawn, weft_group_average, config.sync_period = 5;
       config.activation = WEFT_AVERAGE_DRAWN)
CREATE(create_waiting, weft_group_average, config.mode = WEFT_AVERAGE_WAITING)
CREATE(create_pair, weft_pair_average, config.seed = 7)
CREATE(create_gossip, weft_gossip, config.graph = WEFT_GOSSIP_EXPONENTIAL)
CREATE(create_sparse, weft_sparse_average, config.k = 10)
CREATE(create_quantised, weft_compressed_average, config.method = WEFT_COMPRESSED_QSGD;
       config.residual = WEFT_COMPRESSED_RESIDUAL_KEPT)
CREATE(create_factored, weft_compressed_average, config.method = WEFT_COMPRESSED_POWERSGD;
       const struct weft_powersgd_config powersgd = {.struct_size = sizeof powersgd,
                                                     .least_ratio = 0.1};
       const struct weft_tensor_shape shape = {WEFT_TENSOR_DENSE, count, 1, 0, 0};
       config.powersgd = &powersgd; config.shapes = &shape)
CREATE(create_merged, weft_gradients, config.measure_steps = 1; config.check_steps = 1)
CREATE(create_merged_sparse, weft_gradients, config.method = WEFT_GRADIENTS_SPARSE)

static int step_group(void *object)
{
    return weft_group_average_step(object, NULL);
}

static int step_pair(void *object)
{
    return weft_pair_average_step(object);
}

static int step_gossip(void *object)
{
    return weft_gossip_step(object);
}

static int step_merged(void *object)
{
    int status = weft_gradients_ready(object, 0);
    return status ? status : weft_gradients_wait_all(object, NULL);
}

static int step_sparse(void *object)
{
    return weft_sparse_average_step(object, NULL);
}

static int step_compressed(void *object)
{
    return weft_compressed_average_step(object, NULL);
}

#define ENDS(name, object_type)                                                                    \
    static int fail_##name(void *object, int status, const char *text)                             \
    {                                                                                              \
        return object_type##_fail(object, status, text);                                           \
    }                                                                                              \
    static int destroy_##name(void *object)                                                        \
    {                                                                                              \
        return object_type##_destroy(object);                                                      \
    }

ENDS(group, weft_group_average)
ENDS(pair, weft_pair_average)
ENDS(gossip, weft_gossip)
ENDS(sparse, weft_sparse_average)
ENDS(compressed, weft_compressed_average)
ENDS(merged, weft_gradients)

const struct trainer trainers[TRAINERS] = {
    {"wait-avoiding", create_anyone, step_group, fail_group, destroy_group, 1},
    {"drawn", create_drawn, step_group, fail_group, destroy_group, 1},
    {"waiting", create_waiting, step_group, fail_group, destroy_group, 1},
    {"pairs", create_pair, step_pair, fail_pair, destroy_pair, 1},
    {"gossip", create_gossip, step_gossip, fail_gossip, destroy_gossip, 0},
    {"sparse", create_sparse, step_sparse, fail_sparse, destroy_sparse, 0},
    {"quantised", create_quantised, step_compressed, fail_compressed, destroy_compressed, 0},
    {"factored", create_factored, step_compressed, fail_compressed, destroy_compressed, 0},
    {"merged", create_merged, step_merged, fail_merged, destroy_merged, 0},
    {"merged, sparse", create_merged_sparse, step_merged, fail_merged, destroy_merged, 0},
};
