/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SGD with gossip (weft/gossip.h): every rank trains a model of its own, with its own momentum, and
 * averages it with a few others at every step.
 *
 *     d-psgd     with both neighbours on a ring, weights 1/3; waits for them
 *     sgp        pushes it to --neighbours others of a directed exponential graph; waits for as
 *                many
 *     ad-psgd    with one drawn at random, which answers while it computes; waits for nobody
 *
 * Algorithm 1 of D-PSGD and of AD-PSGD needs the models as they were before the step, and has the
 * exchange beside the gradient. That of SGP pushes what the gradient has updated; with the exchange
 * beside the gradient it is overlap SGP with one step of overlap.
 *
 * In the end all models are replaced by their mean, which is what the algorithms' papers evaluate.
 */
#include "tools/train/algorithm.h"
#include "tools/train/average.h"
#include "tools/train/yardsticks.h"

/* ---- with neighbours, together ---- */

struct neighbours {
    struct weft_gossip *gossip;
    struct train_average *average;
};

static void neighbours_destroy(void *state)
{
    struct neighbours *neighbours = state;

    if (neighbours) {
        train_average_destroy(neighbours->average);
        weft_gossip_destroy(neighbours->gossip);
        weft_memory_free(neighbours);
    }
}

/* From the state of an object before, if there is one. */
static int neighbours_create(void **state, const struct train_setup *setup,
                             weft_gossip_graph_t graph, int count, struct neighbours *before)
{
    struct neighbours *neighbours = weft_memory_alloc(1, sizeof *neighbours);
    struct weft_gossip_state saved = {.struct_size = sizeof saved};
    struct weft_gossip_config config;

    if (!neighbours)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the state of gossip");
    weft_gossip_config_init(&config);
    config.tensors = model_parameters(setup->model);
    config.tensor_count = model_tensor_count(setup->model);
    config.graph = graph;
    config.neighbours = count;
    int status = before ? weft_gossip_get_state(before->gossip, &saved) : WEFT_OK;
    if (before) {
        saved.next = setup->step;
        config.state = &saved;
    }
    if (status == WEFT_OK)
        status = weft_gossip_create(&neighbours->gossip, setup->context, &config);
    if (status == WEFT_OK)
        status = train_average_create(&neighbours->average, setup, config.tensors, TRAIN_KEPT);
    if (status != WEFT_OK) {
        neighbours_destroy(neighbours);
        return status;
    }
    neighbours_destroy(before);
    *state = neighbours;
    return WEFT_OK;
}

static int neighbours_step(void *state, uint64_t step)
{
    struct neighbours *neighbours = state;

    (void)step;
    return weft_gossip_step(neighbours->gossip);
}

static int neighbours_post(void *state, uint64_t step)
{
    struct neighbours *neighbours = state;

    (void)step;
    return weft_gossip_post(neighbours->gossip);
}

static int neighbours_wait(void *state, uint64_t step)
{
    struct neighbours *neighbours = state;

    (void)step;
    return weft_gossip_wait(neighbours->gossip);
}

static int neighbours_finish(void *state)
{
    struct neighbours *neighbours = state;

    return train_average_execute(neighbours->average);
}

/* A rank leaves when all from whom it receives have arrived. */
static int neighbours_leave(weft_gossip_graph_t graph, int count, int ranks, uint64_t step,
                            const double *arrived, double *left)
{
    int *hops = weft_memory_alloc((size_t)count, sizeof *hops);

    if (!hops)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for %d neighbours", count);
    int found = weft_gossip_hops(graph, ranks, count, step, hops);
    for (int rank = 0; rank < ranks; rank++) {
        for (int i = 0; i < found; i++) {
            double peer = arrived[(rank + ranks - hops[i]) % ranks];
            left[rank] = peer > left[rank] ? peer : left[rank];
        }
    }
    weft_memory_free(hops);
    return found < 0 ? found : WEFT_OK;
}

/* ---- D-PSGD ---- */

static int ring_create(void **state, const struct train_setup *setup)
{
    return neighbours_create(state, setup, WEFT_GOSSIP_RING, 0, NULL);
}

static int ring_again(void **state, const struct train_setup *setup)
{
    return neighbours_create(state, setup, WEFT_GOSSIP_RING, 0, *state);
}

static int ring_leave(const struct train_options *options, int ranks, uint64_t step,
                      const double *arrived, double *left)
{
    (void)options;
    return neighbours_leave(WEFT_GOSSIP_RING, 2, ranks, step, arrived, left);
}

const struct train_algorithm train_d_psgd = {
    .name = "d-psgd",
    .summary = "models averaged with both neighbours on a ring at every step",
    .listed_beside = 1,
    .create = ring_create,
    .again = ring_again,
    .models = {neighbours_step, neighbours_post, neighbours_wait},
    .finish = neighbours_finish,
    .destroy = neighbours_destroy,
    .leave = ring_leave,
};

/* ---- SGP ---- */

static int push_create(void **state, const struct train_setup *setup)
{
    return neighbours_create(state, setup, WEFT_GOSSIP_EXPONENTIAL, setup->options->neighbours,
                             NULL);
}

static int push_again(void **state, const struct train_setup *setup)
{
    return neighbours_create(state, setup, WEFT_GOSSIP_EXPONENTIAL, setup->options->neighbours,
                             *state);
}

static int push_leave(const struct train_options *options, int ranks, uint64_t step,
                      const double *arrived, double *left)
{
    int count = options->neighbours < ranks ? options->neighbours : ranks - 1;

    return count == 0
               ? WEFT_OK
               : neighbours_leave(WEFT_GOSSIP_EXPONENTIAL, count, ranks, step, arrived, left);
}

const struct train_algorithm train_sgp = {
    .name = "sgp",
    .summary = "models pushed to --neighbours others, an exponential graph, at every step",
    .create = push_create,
    .again = push_again,
    .models = {neighbours_step, neighbours_post, neighbours_wait},
    .finish = neighbours_finish,
    .destroy = neighbours_destroy,
    .leave = push_leave,
};

/* ---- AD-PSGD ---- */

static int pair_make(void **state, const struct train_setup *setup,
                     struct weft_pair_average *before)
{
    struct weft_pair_average_state saved = {.struct_size = sizeof saved};
    struct weft_pair_average_config config;
    struct weft_pair_average *average;

    weft_pair_average_config_init(&config);
    config.tensors = model_parameters(setup->model);
    config.tensor_count = model_tensor_count(setup->model);
    config.seed = setup->options->seed;
    int status = before ? weft_pair_average_get_state(before, &saved) : WEFT_OK;
    config.state = before ? &saved : NULL;
    if (status == WEFT_OK)
        status = weft_pair_average_create(&average, setup->context, &config);
    if (status != WEFT_OK)
        return status;
    weft_pair_average_destroy(before);
    *state = average;
    return WEFT_OK;
}

static int pair_create(void **state, const struct train_setup *setup)
{
    return pair_make(state, setup, NULL);
}

static int pair_again(void **state, const struct train_setup *setup)
{
    return pair_make(state, setup, *state);
}

static int pair_own_steps(const struct train_options *options)
{
    (void)options;
    return 1;
}

static int pair_step(void *state, uint64_t step)
{
    (void)step;
    return weft_pair_average_step(state);
}

static int pair_post(void *state, uint64_t step)
{
    (void)step;
    return weft_pair_average_post(state);
}

static int pair_wait(void *state, uint64_t step)
{
    (void)step;
    return weft_pair_average_wait(state);
}

static int pair_finish(void *state)
{
    return weft_pair_average_synchronise(state);
}

static void pair_destroy(void *state)
{
    weft_pair_average_destroy(state);
}

const struct train_algorithm train_ad_psgd = {
    .name = "ad-psgd",
    .summary = "models averaged in pairs, asynchronously, at every step",
    .needs_helper = 1,
    .listed_beside = 1,
    .create = pair_create,
    .again = pair_again,
    .own_steps = pair_own_steps,
    .models = {pair_step, pair_post, pair_wait},
    .finish = pair_finish,
    .destroy = pair_destroy,
};
