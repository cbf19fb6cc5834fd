/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse averaging between processes: every rank knows all gradients, so each compares its sum, its
 * residual and its velocity with the plain computation, bit by bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/sparse_reference.h"
#include "world.h"

enum { ELEMENTS = 5000, TENSORS = 3, STEPS = 6 };

static const size_t counts[TENSORS] = {1200, 1, 3799};
static float data[ELEMENTS], sum[ELEMENTS], *gradients[REFERENCE_RANKS];
static struct weft_piece tensors[TENSORS];

static float gradient_of(int rank, uint64_t step, size_t element)
{
    uint64_t x = (step * 64 + (uint64_t)rank) * ELEMENTS + element;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (float)((double)(int64_t)x * 0x1p-63 * ldexp(1, (int)(element % 9)));
}

static size_t k_of(void *user, uint64_t step, size_t count)
{
    const struct weft_sparse_average_config *config = user;
    double density = step < config->warmup_steps ? config->warmup[0] : config->density;
    size_t k = (size_t)(density * (double)count + 0.5);
    return k ? k : 1;
}

static void step_of(struct weft_sparse_average *average, int how, uint64_t step)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        data[i] = gradient_of(world_rank, step, i);
    if (how == 0) {
        OK(weft_sparse_average_step(average, NULL));
        return;
    }
    for (size_t t = 0; t < TENSORS; t++)
        OK(weft_sparse_average_post_tensor(average, (t + (size_t)world_rank) % TENSORS));
    for (size_t t = 0; t < TENSORS; t++)
        OK(weft_sparse_average_wait_tensor(average, t, NULL));
}

static void expect(const struct weft_sparse_average *average,
                   const struct sparse_reference *reference)
{
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    size_t units = reference->config.scope == WEFT_SPARSE_MODEL ? 1 : TENSORS, offset = 0,
           found = 0;
    memset(sum, 0, sizeof sum);
    for (size_t u = 0; u < units; u++) {
        struct weft_sparse pairs;
        OK(weft_sparse_average_get_pairs(average, u, &pairs));
        for (size_t i = 0; i < pairs.count; i++) {
            size_t at = offset + ((uint32_t *)pairs.indices)[i];
            CHECK(reference->sum.present[at]);
            CHECK(reference->sum.value[at] == ((float *)pairs.values)[i]);
        }
        found += pairs.count;
        offset += counts[u];
    }
    OK(weft_sparse_average_get_state(average, &state));
    for (size_t i = 0; i < ELEMENTS; i++) {
        found -= (size_t)reference->sum.present[i];
        CHECK(state.residual[i] == reference->residual[world_rank][i]);
        CHECK(!state.velocity || state.velocity[i] == reference->velocity[world_rank][i]);
    }
    CHECK(found == 0);
}

static void train(struct weft_context *context, struct weft_sparse_average_config *config, int how,
                  const char *name)
{
    struct weft_sparse_average *average = NULL;
    struct sparse_reference reference;
    OK(weft_sparse_average_create(&average, context, config));
    sparse_reference_init(&reference, world_size, config);
    for (uint64_t step = 0; step < STEPS; step++) {
        for (int r = 0; r < world_size; r++)
            for (size_t i = 0; i < ELEMENTS; i++)
                gradients[r][i] = gradient_of(r, step, i);
        step_of(average, how, step);
        sparse_reference_step(&reference, step, k_of, config, gradients);
        expect(average, &reference);
    }
    sparse_reference_free(&reference);
    weft_sparse_average_destroy(average);
    world_ok("%s, %s", name, how ? "tensor by tensor" : "the whole model");
}

/* Nobody learns that a rank has gone on: it must come, refused or not. */
static void refused_alone(struct weft_context *context)
{
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_config config;
    int here = world_rank == world_size - 1;
    weft_sparse_average_config_init(&config);
    config.density = here ? -1 : 0.5;
    STATUS(here ? WEFT_ERR_INVALID : WEFT_ERR_PEER,
           weft_sparse_average_create(&average, context, &config));
    CHECK(!average);
    world_ok("a rank that is refused alone is not waited for");
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"tree", "butterfly", "allgather", "regions"};
    static const double warmup[] = {0.05};
    struct weft_context_config settings;
    world_init(&argc, &argv, WORLD_THREADS);
    CHECK(world_size <= REFERENCE_RANKS);
    weft_context_config_init(&settings);
    settings.progress = WEFT_PROGRESS_HELPER;
    struct weft_context *context = world_context(&settings);
    for (size_t t = 0, at = 0; t < TENSORS; at += counts[t++])
        tensors[t] = (struct weft_piece){data + at, counts[t]};
    for (int r = 0; r < world_size; r++)
        CHECK((gradients[r] = calloc(ELEMENTS, sizeof(float))));
    refused_alone(context);
    for (int method = 0; method < 4; method++)
        for (int how = 0; how < 2; how++) {
            struct weft_sparse_average_config config;
            weft_sparse_average_config_init(&config);
            config.tensors = tensors;
            config.tensor_count = TENSORS;
            config.method = (weft_sparse_method_t)method;
            config.scope = how ? WEFT_SPARSE_TENSOR : WEFT_SPARSE_MODEL;
            config.density = 0.01;
            config.warmup = warmup;
            config.warmup_count = 1;
            config.warmup_steps = 2;
            config.threshold_steps = 3;
            config.balance_steps = 2;
            config.momentum = how ? 0.9 : 0;
            train(context, &config, how, names[method]);
        }
    for (int r = 0; r < world_size; r++)
        free(gradients[r]);
    weft_context_destroy(context);
    return world_end();
}
