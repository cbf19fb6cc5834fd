/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers in a play: all gradients are 1, so that every parameter says how many updates
 * it has, and all of a pull say the same. */
#include <math.h>
#include <stdio.h>

#include "play.h"

enum { LAYERS = 4, COUNT = 40 };

static const size_t counts[LAYERS] = {3, 0, 30, 7};

struct server {
    struct weft_server_config config;
    double wrong[PLAY_RANKS], expected[PLAY_RANKS]; /* of a pull; wrong: 0 if none is */
};

struct actor {
    struct play_actor base;
    struct weft_server *server;
    double model[COUNT], gradient[COUNT];
};

static void lay_out(struct weft_piece tensors[LAYERS], double *data)
{
    for (int l = 0; l < LAYERS; l++) {
        tensors[l] = (struct weft_piece){data, counts[l]};
        data += counts[l];
    }
}

static void draw(struct play_object *object, uint64_t *random)
{
    struct server *server = play_take(1, sizeof *server);
    struct weft_server_config *config = &server->config;
    weft_server_config_init(config);
    config->dtype = WEFT_F64;
    config->rate = 1;
    config->sync = (weft_server_sync_t)play_below(random, 6);
    config->place =
        object->ranks > 1 && play_below(random, 2) ? WEFT_SERVER_APART : WEFT_SERVER_COLOCATED;
    int most = object->ranks - (config->place == WEFT_SERVER_APART);
    config->servers = 1 + play_below(random, most > 3 ? 3 : most);
    config->split_bytes = play_below(random, 2) ? 64 : 0;
    config->flow = (weft_server_flow_t)play_below(random, 3);
    config->turns = 1 + play_below(random, 2);
    config->segment_bytes = 64;
    config->merge_bytes = play_below(random, 2) ? 80 : 0;
    config->staleness = (uint64_t)play_below(random, 3);
    config->staleness_most = config->staleness + (uint64_t)play_below(random, 3);
    config->osp_share = 0.25 * play_below(random, 5);
    config->osp_correction = (weft_osp_correction_t)play_below(random, 2);
    PLAY_TIMES(object, config);
    object->settings = server;
}

static int begin(struct play_object *object, struct weft_context *context, int rank)
{
    struct server *server = object->settings;
    struct actor *actor = play_actor_make(object, context, rank, sizeof *actor);
    struct weft_server_config config = server->config;
    struct weft_piece tensors[LAYERS], gradients[LAYERS];
    lay_out(tensors, actor->model);
    lay_out(gradients, actor->gradient);
    for (int i = 0; i < COUNT; i++)
        actor->gradient[i] = 1;
    config.tensors = tensors;
    config.gradients = gradients;
    config.tensor_count = LAYERS;
    return weft_server_create(&actor->server, context, &config);
}

static int wait(void *of)
{
    return weft_server_step(of, NULL);
}

/* Some layers beforehand, in an order of the rank's own. */
static int announce(struct actor *actor)
{
    int status = WEFT_OK;
    for (int i = play_below(&actor->base.random, LAYERS); i > 0 && status == WEFT_OK; i--) {
        status = weft_server_ready(actor->server, (size_t)i);
        play_actor_sleep(&actor->base);
    }
    return status;
}

static void look(struct server *server, const struct actor *actor, int rank)
{
    struct weft_server_result result = {.struct_size = sizeof result};
    int merged = server->config.sync == WEFT_SERVER_BSP || server->config.sync == WEFT_SERVER_OSP;
    if (weft_server_get_result(actor->server, &result) != WEFT_OK)
        return;
    double each = merged ? 1 : 1.0 / weft_server_workers(actor->server);
    double expected = -(double)result.version * each;
    for (int i = 0; i < COUNT; i++)
        if (fabs(actor->model[i] - expected) > 1e-9 * (1 - expected)) {
            server->wrong[rank] = actor->model[i];
            server->expected[rank] = expected;
        }
}

static int step(struct play_object *object, int rank, int step)
{
    struct server *server = object->settings;
    struct actor *actor = object->actors[rank];
    (void)step;
    play_actor_sleep(&actor->base);
    if (!weft_server_is_worker(actor->server)) {
        int status = weft_server_serve(actor->server, object->sleep_ns);
        return status == WEFT_IN_PROGRESS ? WEFT_OK : status;
    }
    int status = announce(actor);
    if (status == WEFT_OK || status == WEFT_ERR_TIMEOUT)
        status = play_actor_wait(&actor->base, weft_server_step(actor->server, NULL), wait,
                                 actor->server);
    if (status == WEFT_OK)
        look(server, actor, rank);
    return status;
}

static int fail(struct play_object *object, int rank, int status, const char *text)
{
    struct actor *actor = object->actors[rank];
    return weft_server_fail(actor->server, status, text);
}

static int end(struct play_object *object, int rank)
{
    struct actor *actor = object->actors[rank];
    return play_actor_end(object, rank, weft_server_destroy(actor->server));
}

static int judge(struct play_object *object, char text[PLAY_TEXT])
{
    struct server *server = object->settings;
    for (int r = 0; r < object->ranks; r++)
        if (server->wrong[r] != 0 || server->expected[r] != 0) {
            snprintf(text, PLAY_TEXT, "rank %d: a parameter is %.17g, expected %.17g", r,
                     server->wrong[r], server->expected[r]);
            return 0;
        }
    return 1;
}

const struct play_kind play_server = {
    .name = "server",
    .waits = 2 + LAYERS + LAYERS,
    .leaves = 1,
    .gives_up = 1,
    .draw = draw,
    .begin = begin,
    .step = step,
    .fail = fail,
    .end = end,
    .judge = judge,
};
