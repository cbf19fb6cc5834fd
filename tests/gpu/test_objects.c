/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors that are memory of a device, in objects that take those of the host. */
#include <criterion/criterion.h>

#include "tests/gpu/support/device_memory.h"
#include "tests/support/ranks.h"

enum { COUNT = 100 };

/* Each object with two tensors. */
#define CREATE(name)                                                                               \
    static int create_##name(struct weft_context *context, const struct weft_piece *tensors)       \
    {                                                                                              \
        struct weft_##name##_config config;                                                        \
        struct weft_##name *made = NULL;                                                           \
        weft_##name##_config_init(&config);                                                        \
        config.tensors = tensors;                                                                  \
        config.tensor_count = 2;                                                                   \
        int status = weft_##name##_create(&made, context, &config);                                \
        if (status == WEFT_OK)                                                                     \
            OK(weft_##name##_destroy(made));                                                       \
        return status;                                                                             \
    }

CREATE(group_average)
CREATE(gossip)
CREATE(pair_average)
CREATE(sparse_average)
CREATE(gradients)

static int make_server(struct weft_context *context, const struct weft_piece *tensors,
                       const struct weft_piece *gradients)
{
    struct weft_server_config config;
    struct weft_server *made = NULL;
    weft_server_config_init(&config);
    config.tensors = tensors;
    config.tensor_count = 2;
    config.gradients = gradients;
    int status = weft_server_create(&made, context, &config);
    if (status == WEFT_OK)
        OK(weft_server_destroy(made));
    return status;
}

static int create_server(struct weft_context *context, const struct weft_piece *tensors)
{
    return make_server(context, tensors, tensors);
}

/* The default method needs LAPACK. */
static int create_compressed_average(struct weft_context *context, const struct weft_piece *tensors)
{
    struct weft_compressed_average_config config;
    struct weft_compressed_average *made = NULL;
    weft_compressed_average_config_init(&config);
    config.tensors = tensors;
    config.tensor_count = 2;
    config.method = WEFT_COMPRESSED_QSGD;
    int status = weft_compressed_average_create(&made, context, &config);
    if (status == WEFT_OK)
        OK(weft_compressed_average_destroy(made));
    return status;
}

static const struct {
    const char *name;
    int (*create)(struct weft_context *context, const struct weft_piece *tensors);
} objects[] = {
    {"weft_group_average_create", create_group_average},
    {"weft_gossip_create", create_gossip},
    {"weft_pair_average_create", create_pair_average},
    {"weft_sparse_average_create", create_sparse_average},
    {"weft_gradients_create", create_gradients},
    {"weft_server_create", create_server},
    {"weft_compressed_average_create", create_compressed_average},
};

Test(objects, of_the_host_refuse_tensors_of_a_device, .timeout = 300)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    float host[COUNT] = {0};
    const char *device = NULL;
    char text[200];

    device_use(0);
    float *there = device_alloc(sizeof host), *pinned = device_pin(sizeof host);
    memset(pinned, 0, sizeof host);
    OK(weft_context_device(alone.context, &device));
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        struct weft_piece tensors[] = {{host, COUNT}, {there + 1, 7}};
        CHECK_STATUS(objects[i].create(alone.context, tensors), WEFT_ERR_INVALID);
        snprintf(
            text, sizeof text,
            "%s: config->tensors[1].data, %p, is memory of a device, expected memory of the host",
            objects[i].name, (void *)(there + 1));
        CHECK(strcmp(weft_error_text(), text) == 0);
        tensors[1].count = 0;
        OK(objects[i].create(alone.context, tensors));
        tensors[1] = (struct weft_piece){pinned, COUNT};
        OK(objects[i].create(alone.context, tensors));
    }
    struct weft_piece tensors[] = {{host, COUNT}, {pinned, 7}};
    struct weft_piece gradients[] = {{host, COUNT}, {there, 7}};
    CHECK_STATUS(make_server(alone.context, tensors, gradients), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_server_create: config->gradients[1].data, ");
    device_free(there);
    device_unpin(pinned);
    alone_destroy(&alone);
    device_check();
}

Test(objects, are_told_where_memory_is)
{
    int host = -1, device = -1;

    device_use(0);
    char *there = device_alloc(10);
    OK(weft_devices_locate(there, &host, &device)); /* no device has been opened */
    CHECK(host == 1 && device == 0);
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    OK(weft_context_device(alone.context, NULL));
    OK(weft_devices_locate(there + 9, &host, &device));
    CHECK(host == 0 && device == 1);
    OK(weft_devices_locate(&host, &host, &device));
    CHECK(host == 1 && device == 0);
    OK(weft_devices_locate(NULL, &host, &device));
    CHECK(host == 1 && device == 0);
    CHECK_STATUS(weft_devices_locate(there, NULL, &device), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_devices_locate(there, &host, NULL), WEFT_ERR_INVALID);
    device_free(there);
    OK(weft_devices_locate(there, &host, &device)); /* as any address that the driver has not */
    CHECK(host == 1 && device == 0);
    alone_destroy(&alone);
    device_check();
}
