/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Algorithms with parameter servers (weft/server.h): ranks push gradients, layer by layer while
 * they are computed, servers update the model, and the next forward pass waits for each layer
 * before it uses it.
 *
 *     bsp     servers answer when all have pushed
 *     asp     at once
 *     ssp     when the slowest is at most --staleness steps behind
 *     dssp    the same, with a bound of --staleness to --staleness-most that is chosen each time
 *     r2sp    at once, but ranks push in turns
 *     osp     important layers as bsp, the others behind the next step, with a prediction until
 *             they have come
 *
 * The optimiser is the servers', with one velocity for all. Which ranks are servers, loop.c knows.
 */
#include "tools/train/algorithm.h"
#include "tools/train/yardsticks.h"

#include <math.h>
#include <stdio.h>

struct served {
    struct weft_server *server;
    struct weft_context *context;
    struct model *model;
    /** Of the step under way that have been waited for. */
    size_t waited;
    /** Steps that counted gradients late, and layers that were, of all steps. */
    uint64_t stale_steps;
    uint64_t late_layers;
};

/* For weft_memory_free(). */
static size_t *count_tensors(const struct model *model)
{
    size_t layers = model_layer_count(model);
    size_t *counts = weft_memory_alloc(layers, sizeof *counts);

    if (!counts)
        weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu layers", layers);
    for (size_t l = 0; l < layers && counts; l++) {
        struct model_layer layer;
        model_get_layer(model, l, &layer);
        counts[l] = layer.tensor_count;
    }
    return counts;
}

/* 0 means a default in the library, and nothing here. */
static void configure_osp(struct weft_server_config *config,
                          const struct train_server_options *options)
{
    config->osp_most = options->osp_most;
    config->osp_share = options->osp_share;
    if (options->osp_share == 0.0 && !(options->osp_most > 0.0))
        config->osp_share = WEFT_OSP_NOTHING;
    config->osp_average = options->osp_average;
    config->osp_correction = options->osp_correction;
}

/* A velocity of all workers bears little staleness. */
int train_servers_update(const struct train_options *options, weft_server_sync_t sync)
{
    if (options->servers.optimiser != TRAIN_OPTIMISER_AUTO)
        return options->servers.optimiser == TRAIN_OPTIMISER_SERVERS;
    return sync == WEFT_SERVER_BSP || sync == WEFT_SERVER_OSP;
}

/* @p gradients: NULL of a rank that is a server alone. */
static int make_server(struct weft_server **server, const struct train_setup *setup,
                       const struct weft_piece *gradients)
{
    const weft_server_sync_t sync = setup->algorithm->sync;
    const struct train_options *options = setup->options;
    struct weft_server_config config;

    weft_server_config_init(&config);
    size_t *layer_tensors = count_tensors(setup->model);
    if (!layer_tensors)
        return WEFT_ERR_MEMORY;
    config.tensors = model_parameters(setup->model);
    config.tensor_count = model_tensor_count(setup->model);
    config.gradients = gradients;
    config.layer_tensors = layer_tensors;
    config.layer_count = model_layer_count(setup->model);
    config.nan = WEFT_NAN_SPREAD; /* as in other algorithms, a loss shows it */
    config.servers = options->servers.count;
    config.place = options->servers.colocated ? WEFT_SERVER_COLOCATED : WEFT_SERVER_APART;
    config.sync = sync;
    config.rate = options->rate;
    config.momentum = options->momentum;
    config.optimiser =
        train_servers_update(options, sync) ? WEFT_SERVER_UPDATES : WEFT_WORKER_UPDATES;
    config.flow = options->servers.flow;
    if (gradients && options->servers.weights == TRAIN_WEIGHTS_ROWS)
        config.weight = (double)setup->rows;
    if (sync == WEFT_SERVER_SSP || sync == WEFT_SERVER_DSSP)
        config.staleness = options->servers.staleness;
    if (sync == WEFT_SERVER_DSSP)
        config.staleness_most = options->servers.staleness_most;
    if (sync == WEFT_SERVER_OSP)
        configure_osp(&config, &options->servers);
    int status = weft_server_create(server, setup->world, &config);
    weft_memory_free(layer_tensors);
    return status;
}

static int create(void **state, const struct train_setup *setup)
{
    struct served *served = weft_memory_alloc(1, sizeof *served);

    if (!served)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the state of a worker");
    served->context = setup->context;
    served->model = setup->model;
    int status = make_server(&served->server, setup, setup->gradients);
    if (status != WEFT_OK) {
        weft_memory_free(served);
        return status;
    }
    *state = served;
    return WEFT_OK;
}

static int serve(const struct train_setup *setup)
{
    struct weft_server *server = NULL;
    int status = make_server(&server, setup, NULL);

    if (status != WEFT_OK)
        return status;
    status = weft_server_serve(server, WEFT_NEVER);
    char text[512] = "";
    if (status != WEFT_OK)
        snprintf(text, sizeof text, "%s", weft_error_text());
    int ended = weft_server_destroy(server);
    return status == WEFT_OK ? ended : weft_error_set(status, "%s", text);
}

static void destroy(void *state)
{
    struct served *served = state;

    if (served)
        weft_server_destroy(served->server);
    weft_memory_free(served);
}

/* ---- steps ---- */

static int ready(void *state, size_t layer)
{
    struct served *served = state;

    return weft_server_ready(served->server, layer);
}

static int wait(void *state, size_t layer)
{
    struct weft_server_result result = {.struct_size = sizeof result};
    struct served *served = state;
    int status = weft_server_wait(served->server, layer);

    if (status != WEFT_OK || ++served->waited < model_layer_count(served->model))
        return status;
    served->waited = 0;
    status = weft_server_get_result(served->server, &result);
    served->stale_steps += result.staleness > 0;
    served->late_layers += result.late_layers;
    return status;
}

static int tell_loss(void *state, double loss)
{
    struct served *served = state;

    return isfinite(loss) ? weft_server_tell_loss(served->server, loss) : WEFT_OK;
}

static void statistics(void *state, struct train_statistics *stats)
{
    struct served *served = state;
    struct weft_server_stats counted = {.struct_size = sizeof counted};

    stats->stale_steps = served->stale_steps;
    if (weft_server_get_stats(served->server, &counted) != WEFT_OK || counted.steps == 0)
        return;
    const double steps = (double)counted.steps;
    stats->staleness = (double)counted.staleness / steps;
    stats->synchronised_seconds = (double)counted.synchronised_ns * 1e-9 / steps;
    stats->late_layers = (double)served->late_layers / steps;
    stats->pushed_bytes = (double)counted.pushed_bytes;
    stats->late_bytes = (double)counted.late_bytes;
}

/* ---- the end ---- */

static int correct(void *state)
{
    struct served *served = state;

    return weft_server_correct(served->server);
}

/* Whose push was the last one has pulled what all pushes have made of the model. */
static int take_last(void *state)
{
    struct weft_server_result result = {.struct_size = sizeof result};
    struct served *served = state;
    const int size = weft_context_size(served->context);
    size_t count = model_parameter_count(served->model);
    double *versions = weft_memory_alloc((size_t)size, sizeof *versions);
    float *flat = weft_memory_alloc(count, sizeof *flat);
    int status = versions && flat ? weft_server_get_result(served->server, &result)
                                  : weft_error_set(WEFT_ERR_MEMORY, "no memory for another model");
    const double mine = (double)result.version;
    int last = 0;

    if (status == WEFT_OK)
        status = weft_allgather(served->context, &mine, versions, 1, WEFT_F64);
    for (int rank = 1; rank < size && status == WEFT_OK; rank++)
        if (versions[rank] > versions[last])
            last = rank;
    if (status == WEFT_OK)
        status = model_save(served->model, flat);
    if (status == WEFT_OK)
        status = weft_broadcast(served->context, flat, count, WEFT_F32, last);
    if (status == WEFT_OK)
        status = model_load(served->model, flat);
    weft_memory_free(flat);
    weft_memory_free(versions);
    return status;
}

/* ---- whom they wait for ---- */

static int leave_together(const struct train_options *options, int ranks, uint64_t step,
                          const double *arrived, double *left)
{
    (void)options, (void)step;
    train_leave_together(ranks, arrived, left);
    return WEFT_OK;
}

static uint64_t ssp_ahead(const struct train_options *options)
{
    return options->servers.staleness;
}

/* As far as it may be. */
static uint64_t dssp_ahead(const struct train_options *options)
{
    return options->servers.staleness_most;
}

/* ---- the tables ---- */

#define SERVED                                                                                     \
    .serve = serve, .needs_helper = 1, .create = create, .layers = {ready, wait, NULL},            \
    .stats = statistics, .destroy = destroy

const struct train_algorithm train_bsp = {
    .name = "bsp",
    .summary = "parameter servers: synchronous SGD, gradients pushed layer by layer",
    .sync = WEFT_SERVER_BSP,
    SERVED,
    .leave = leave_together,
};

const struct train_algorithm train_asp = {
    .name = "asp",
    .summary = "parameter servers that answer each push at once",
    .sync = WEFT_SERVER_ASP,
    SERVED,
    .finish = take_last,
};

const struct train_algorithm train_ssp = {
    .name = "ssp",
    .summary = "the same where nobody is more than --staleness steps ahead of the slowest",
    .sync = WEFT_SERVER_SSP,
    SERVED,
    .finish = take_last,
    .ahead = ssp_ahead,
};

const struct train_algorithm train_dssp = {
    .name = "dssp",
    .summary = "the same with a bound of --staleness to --staleness-most, chosen each time",
    .sync = WEFT_SERVER_DSSP,
    SERVED,
    .finish = take_last,
    .ahead = dssp_ahead,
};

const struct train_algorithm train_r2sp = {
    .name = "r2sp",
    .summary = "parameter servers that answer at once, while ranks push in turns",
    .sync = WEFT_SERVER_R2SP,
    SERVED,
    .finish = take_last,
    .in_turns = 1,
};

const struct train_algorithm train_osp = {
    .name = "osp",
    .summary = "parameter servers: important layers as bsp, the others behind the next step",
    .featured = 1,
    .sync = WEFT_SERVER_OSP,
    SERVED,
    .epoch = tell_loss,
    .settle = correct,
    .leave = leave_together,
};
