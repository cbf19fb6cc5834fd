/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter servers between processes, with messages of both protocols: all gradients are 1, so a
 * parameter says how many updates it has; workers leave early, and who gives up while what it has
 * sent is on its way is named.
 */
#include <math.h>
#include <string.h>

#include "world.h"

enum { LAYERS = 4, MOST = 130000, STEPS = 5 };

static const size_t counts[LAYERS] = {9, 100000, 0, 20000};
static double parameters[MOST], gradients[MOST];
static struct weft_piece tensors[LAYERS], pieces[LAYERS];

static void lay_out(void)
{
    size_t at = 0;
    for (size_t l = 0; l < LAYERS; l++) {
        tensors[l] = (struct weft_piece){parameters + at, counts[l]};
        pieces[l] = (struct weft_piece){gradients + at, counts[l]};
        at += counts[l];
    }
    for (size_t i = 0; i < MOST; i++) {
        parameters[i] = 0;
        gradients[i] = 1;
    }
}

static struct weft_server *create(struct weft_context *context, weft_server_sync_t sync,
                                  weft_server_place_t place, weft_server_flow_t flow)
{
    struct weft_server_config config;
    struct weft_server *server = NULL;
    lay_out();
    weft_server_config_init(&config);
    config.dtype = WEFT_F64;
    config.tensors = tensors;
    config.gradients = pieces;
    config.tensor_count = LAYERS;
    config.sync = sync;
    config.place = place;
    config.flow = flow;
    config.servers = world_size > 2 ? 2 : 1;
    config.rate = 1;
    config.staleness = 1;
    config.staleness_most = 2;
    config.osp_share = 1;
    OK(weft_server_create(&server, context, &config));
    return server;
}

static void work(struct weft_server *server, int together, int steps)
{
    struct weft_server_result result = {.struct_size = sizeof result};
    double each = together ? 1 : 1.0 / weft_server_workers(server);
    for (int t = 0; t < steps; t++) {
        for (size_t i = 0; i < LAYERS; i++)
            OK(weft_server_ready(server, (i + (size_t)world_rank) % LAYERS));
        OK(weft_server_step(server, &result));
        double expected = -(double)result.version * each;
        for (size_t l = 0; l < LAYERS; l++)
            for (size_t i = 0; i < counts[l]; i++) {
                const double *x = tensors[l].data;
                CHECK(fabs(x[i] - expected) <= 1e-9 * (1 - expected));
            }
    }
    OK(weft_server_correct(server));
}

static void train(struct weft_context *context, weft_server_sync_t sync, weft_server_place_t place,
                  int leaves, const char *name)
{
    struct weft_server *server = create(context, sync, place, (weft_server_flow_t)(sync % 3));
    if (weft_server_is_worker(server))
        work(server, sync == WEFT_SERVER_BSP || sync == WEFT_SERVER_OSP,
             leaves ? 2 * world_rank : STEPS);
    else
        OK(weft_server_serve(server, WEFT_NEVER));
    OK(weft_server_destroy(server));
    world_meet_driving(context);
    world_ok("%s%s%s", name, place == WEFT_SERVER_APART ? "" : ", co-located",
             leaves ? ", of whom some leave" : "");
}

static void train_all(struct weft_context *context, weft_server_place_t place, int osp)
{
    train(context, WEFT_SERVER_BSP, place, 0, "BSP");
    train(context, WEFT_SERVER_ASP, place, 1, "ASP");
    train(context, WEFT_SERVER_SSP, place, 0, "SSP");
    train(context, WEFT_SERVER_R2SP, place, 1, "R2SP");
    if (!osp)
        return;
    train(context, WEFT_SERVER_OSP, place, 1, "OSP");
}

static void give_up(struct weft_context *context)
{
    struct weft_server *server =
        create(context, WEFT_SERVER_BSP, WEFT_SERVER_APART, WEFT_SERVER_AT_ONCE);
    int status = WEFT_OK;
    world_meet_driving(context); /* or others hear of it while they create theirs */
    if (world_rank == 0) {
        OK(weft_server_ready(server, 1));
        OK(weft_server_fail(server, WEFT_ERR_IO, "the disk is full"));
        STATUS(WEFT_ERR_IO, weft_server_destroy(server));
    } else {
        status = weft_server_is_worker(server) ? weft_server_step(server, NULL)
                                               : weft_server_serve(server, WEFT_NEVER);
        STATUS(WEFT_ERR_PEER, status);
        CHECK(strstr(weft_error_text(), "rank 0 has failed: the disk is full"));
        STATUS(WEFT_ERR_PEER, weft_server_destroy(server));
    }
    world_meet_driving(context);
    world_ok("who gives up is named");
}

int main(int argc, char **argv)
{
    struct weft_context_config config;
    struct weft_context *context;
    world_init(&argc, &argv, WORLD_THREADS);
    context = world_context(NULL);
    train_all(context, WEFT_SERVER_APART, 0);
    weft_context_destroy(context);
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    context = world_context(&config);
    train_all(context, WEFT_SERVER_APART, 1);
    train_all(context, WEFT_SERVER_COLOCATED, 1);
    for (int time = 0; time < 10; time++)
        give_up(context);
    weft_context_destroy(context);
    return world_end();
}
