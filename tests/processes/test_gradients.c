/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Merged gradients between processes, with messages of both protocols: averages are exact (of small
 * integers) while plans change, layers are waited for one by one, and who gives up is named.
 */
#include <stdlib.h>
#include <string.h>

#include "world.h"

enum { LAYERS = 5, MOST = 120000, STEPS = 12 };

static const size_t counts[LAYERS] = {7, 40000, 1, 60000, 3000};
static float data[MOST];
static uint16_t narrow[MOST];
static struct weft_piece tensors[LAYERS];

static float value_of(int rank, uint64_t step, size_t layer, size_t i)
{
    return (float)((i * 7 + layer * 3 + step * 5 + (size_t)rank * 11) % 17) - 8;
}

static void lay_out(weft_dtype_t dtype, size_t gap)
{
    size_t at = 0;
    for (size_t l = 0; l < LAYERS; l++) {
        tensors[l].data = dtype == WEFT_F32 ? (void *)(data + at) : (void *)(narrow + at);
        tensors[l].count = counts[l];
        at += counts[l] + gap;
    }
    CHECK(at <= MOST);
}

static void fill(weft_dtype_t dtype, uint64_t step, size_t layer)
{
    char *at = tensors[layer].data;
    for (size_t i = 0; i < counts[layer]; i++, at += weft_dtype_size(dtype)) {
        float value = value_of(world_rank, step, layer, i);
        OK(weft_convert(dtype, at, WEFT_F32, &value, 1));
    }
}

static void expect(weft_dtype_t dtype, uint64_t step, size_t layer)
{
    const size_t size = weft_dtype_size(dtype);
    const char *at = tensors[layer].data;
    for (size_t i = 0; i < counts[layer]; i++, at += size) {
        float sum = 0;
        unsigned char bits[4];
        for (int r = 0; r < world_size; r++)
            sum += value_of(r, step, layer, i);
        sum /= (float)world_size;
        OK(weft_convert(dtype, bits, WEFT_F32, &sum, 1));
        CHECK(!memcmp(at, bits, size));
    }
}

static void train(struct weft_context *context, weft_dtype_t dtype, weft_gradients_method_t method,
                  size_t gap, const char *name)
{
    struct weft_gradients_config config;
    struct weft_sparse_average_config sparse;
    struct weft_gradients *gradients = NULL;
    struct weft_gradients_stats stats = {.struct_size = sizeof stats};
    lay_out(dtype, gap);
    weft_gradients_config_init(&config);
    config.dtype = dtype;
    config.tensors = tensors;
    config.tensor_count = LAYERS;
    config.measure_steps = 2;
    config.check_steps = 1;
    config.gain = 1e-9;
    weft_sparse_average_config_init(&sparse);
    sparse.method = WEFT_SPARSE_ALLGATHER;
    sparse.density = 1; /* so that averages are those of all */
    config.method = method;
    config.sparse = &sparse;
    OK(weft_gradients_create(&gradients, context, &config));
    for (uint64_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < LAYERS; i++) {
            size_t layer = LAYERS - 1 - (i + step * (size_t)world_rank) % LAYERS;
            fill(dtype, step, layer);
            OK(weft_gradients_ready(gradients, layer));
        }
        for (size_t l = 0; l < LAYERS; l++) {
            OK(weft_gradients_wait(gradients, l));
            expect(dtype, step, l);
        }
    }
    OK(weft_gradients_get_stats(gradients, &stats));
    CHECK(stats.steps == STEPS && stats.checks > 0);
    OK(weft_gradients_destroy(gradients));
    world_ok("%s", name);
}

static void give_up(struct weft_context *context)
{
    struct weft_gradients_config config;
    struct weft_gradients *gradients = NULL;
    lay_out(WEFT_F32, 0);
    weft_gradients_config_init(&config);
    config.tensors = tensors;
    config.tensor_count = LAYERS;
    OK(weft_gradients_create(&gradients, context, &config));
    world_meet_driving(context); /* or others hear of it while they create theirs */
    if (world_rank == 0) {
        OK(weft_gradients_ready(gradients, 2));
        OK(weft_gradients_fail(gradients, WEFT_ERR_IO, "the disk is full"));
        STATUS(WEFT_ERR_IO, weft_gradients_destroy(gradients));
    } else {
        int status = WEFT_OK;
        for (size_t l = LAYERS; l-- > 0 && !status;)
            status = weft_gradients_ready(gradients, l);
        if (!status)
            status = weft_gradients_wait_all(gradients, NULL);
        STATUS(WEFT_ERR_PEER, status);
        CHECK(strstr(weft_error_text(), "rank 0 has failed: the disk is full"));
        STATUS(WEFT_ERR_PEER, weft_gradients_destroy(gradients));
    }
    world_meet_driving(context); /* or a rank whose sends this one has not taken yet waits for it */
    world_ok("who gives up is named");
}

int main(int argc, char **argv)
{
    struct weft_context_config config;

    world_init(&argc, &argv, WORLD_THREADS);
    for (int helped = 0; helped < 2; helped++) {
        weft_context_config_init(&config);
        config.progress = helped ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
        struct weft_context *context = world_context(&config);
        train(context, WEFT_F32, WEFT_GRADIENTS_DENSE, 0, "averages where gradients lie");
        train(context, WEFT_F32, WEFT_GRADIENTS_DENSE, 3, "averages of copies");
        train(context, WEFT_BF16, WEFT_GRADIENTS_DENSE, 0, "averages of 16 bits");
        train(context, WEFT_F32, WEFT_GRADIENTS_SPARSE, 3, "sparse groups");
        give_up(context);
        OK(weft_context_destroy(context));
    }
    return world_end();
}
