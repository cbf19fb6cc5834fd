/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gossip between processes: the mean is kept, models come together, and in pairs nobody waits for a
 * rank that computes, in unequal numbers of steps.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

enum { ELEMENTS = 30000, RANKS = 64 };

static double data[ELEMENTS];

static void set_all(double value)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        data[i] = value;
}

/* All elements are the same bits, or an exchange was torn. */
static double same(void)
{
    for (size_t i = 1; i < ELEMENTS; i++)
        CHECK(data[i] == data[0]);
    return data[0];
}

/* A sum over all ranks adds in another order in each of its blocks, so after it elements may differ
 * in their last bits; all ranks hold the same. */
static void together(double mean)
{
    static double first[ELEMENTS];
    memcpy(first, data, sizeof first);
    world_share(first, sizeof first);
    CHECK(memcmp(first, data, sizeof first) == 0);
    for (size_t i = 0; i < ELEMENTS; i++)
        CHECK(fabs(data[i] - mean) < 1e-9 * (1 + fabs(mean)));
}

static struct weft_context *helped(void)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    return world_context(&config);
}

static void neighbours(struct weft_context *context, weft_gossip_graph_t graph, const char *name)
{
    struct weft_piece tensors[] = {{data, 1000}, {data + 1000, ELEMENTS - 1000}};
    struct weft_gossip_config config;
    struct weft_gossip *gossip = NULL;
    double mean = 1 + (world_size - 1) / 2.0;
    weft_gossip_config_init(&config);
    config.dtype = WEFT_F64;
    config.tensors = tensors;
    config.tensor_count = 2;
    config.graph = graph;
    set_all(0);
    OK(weft_gossip_create(&gossip, context, &config));
    set_all(1 + world_rank);
    for (int step = 0; step < 150; step++)
        OK(weft_gossip_step(gossip));
    CHECK(fabs(same() - mean) < 1e-6);
    weft_gossip_destroy(gossip);
    world_ok("%s: all models come to the mean", name);
}

static void pairs(struct weft_context *context, int steps, const char *name)
{
    struct weft_piece tensors[] = {{data, 10}, {data + 10, ELEMENTS - 10}};
    struct weft_pair_average_config config;
    struct weft_pair_average *average = NULL;
    double added = 0, sum = 0, all[RANKS];
    weft_pair_average_config_init(&config);
    config.dtype = WEFT_F64;
    config.tensors = tensors;
    config.tensor_count = 2;
    config.seed = 11;
    set_all(0);
    OK(weft_pair_average_create(&average, context, &config));
    for (int step = 0; step < steps; step++) {
        double value = (1 + world_rank) * ldexp(1, -(step % 4));
        for (size_t i = 0; i < ELEMENTS; i++)
            data[i] += value;
        added += value;
        OK(weft_pair_average_step(average));
        same();
        if (step % 7 == world_rank % 7)
            OK(weft_context_sleep(context, 2000000));
    }
    OK(weft_pair_average_synchronise(average));
    world_gather(&added, sizeof added, all);
    for (int r = 0; r < world_size; r++)
        sum += all[r];
    together(sum / world_size);
    OK(weft_pair_average_destroy(average));
    world_ok("%s: the sum of all models is kept", name);
}

int main(int argc, char **argv)
{
    world_init(&argc, &argv, WORLD_THREADS);
    CHECK(world_size <= RANKS);
    struct weft_context *context = helped();
    neighbours(context, WEFT_GOSSIP_RING, "ring");
    neighbours(context, WEFT_GOSSIP_EXPONENTIAL, "exponential");
    pairs(context, 40, "pairs");
    pairs(context, 10 + 9 * (world_rank % 4), "pairs, unequal numbers of steps");
    weft_context_destroy(context);
    return world_end();
}
