/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers in a play: what ranks do (play_server.h). */
#include "play_server.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One that is called off after so long at the latest (without deadlines). */
enum { MEETING_NS = 250000000 };

const size_t server_counts[SERVER_LAYERS] = {3, 0, 30, 0, 7};
const size_t server_tensors[SERVER_LAYERS] = {1, 1, 2, 0, 1};
static const size_t tensor_counts[SERVER_TENSORS] = {3, 0, 13, 17, 7};

/* How a step is ended: by the call for all, or by waiting for layer after layer. */
enum how { AT_ONCE, LAYERED };

struct actor {
    struct play_actor base;
    struct weft_server *server;
    enum how how;
    int pulls, absent;
    size_t layer;
    struct weft_piece tensors[SERVER_TENSORS], gradients[SERVER_TENSORS];
    double model[SERVER_COUNT], gradient[SERVER_COUNT];
    struct weft_server_state state;
};

/* ---- what is drawn ---- */

uint64_t server_drawn(const struct play_object *object, int rank, int step, int what)
{
    uint64_t state = object->seed + (uint64_t)(rank * 1000003 + step * 10007 + what * 101);
    return play_random(&state) >> 8;
}

int server_pulls(const struct play_object *object, int rank, int step)
{
    const struct server *server = object->settings;
    return server->absents && server_drawn(object, rank, step, 0) % 6 == 0;
}

int server_pushes(const struct play_object *object, int rank, int step, int layer)
{
    const struct server *server = object->settings;
    uint64_t drawn = server_drawn(object, rank, step, 10 + layer);
    if (server_pulls(object, rank, step))
        return drawn % 3 == 0;
    return !server->absents || drawn % 4 != 0;
}

double server_rate(const struct server *server, int step)
{
    static const double factors[] = {1, 0.5, 2};
    return server->config.push == WEFT_SERVER_MODELS
               ? 1
               : server->config.rate * (server->varies ? factors[step % 3] : 1);
}

static void draw_optimiser(struct server *server, uint64_t *random)
{
    struct weft_server_config *config = &server->config;
    if (config->sync == WEFT_SERVER_BSP && play_below(random, 4) == 0) {
        config->push = WEFT_SERVER_MODELS;
        return;
    }
    config->rate = play_below(random, 2) ? 1 : 0.5;
    config->momentum = play_below(random, 3) ? 0 : 0.5;
    config->optimiser = play_below(random, 3) ? WEFT_SERVER_UPDATES : WEFT_WORKER_UPDATES;
    server->varies = play_below(random, 3) == 0;
}

static void draw_flow(struct weft_server_config *config, uint64_t *random)
{
    config->split_bytes = play_below(random, 2) ? 64 : 0;
    config->merge_bytes = play_below(random, 2) ? 80 : 0;
    config->flow = (weft_server_flow_t)play_below(random, 3);
    config->turns = 1 + play_below(random, 2);
    config->segment_bytes = 64;
    config->window = 1 + play_below(random, 3);
}

static void draw_model(struct server *server, uint64_t *random)
{
    struct weft_server_config *config = &server->config;
    int equal = play_below(random, 2), empty = play_below(random, 16) == 0;
    for (int r = 0; r < PLAY_RANKS; r++)
        server->weights[r] = equal ? 1 : 1 + play_below(random, 3);
    config->dtype = WEFT_F64;
    config->tensor_count = empty ? 0 : SERVER_TENSORS;
    config->layer_tensors = empty ? NULL : server_tensors;
    config->layer_count = empty ? 0 : SERVER_LAYERS;
    server->absents = play_below(random, 2);
}

static void draw_osp(struct server *server, uint64_t *random)
{
    struct weft_server_config *config = &server->config;
    int share = play_below(random, 6);
    config->osp_share = share < 5 ? 0.25 * share : WEFT_OSP_NOTHING;
    config->osp_most = play_below(random, 2) ? 0.25 : 0;
    config->osp_average = play_below(random, 3) ? 0 : 0.5;
    config->osp_correction = (weft_osp_correction_t)play_below(random, 2);
    if (play_below(random, 2)) {
        config->osp_goodput = 1e9;
        config->osp_compute_ns = 1 + (uint64_t)play_below(random, 2000);
    }
    server->tells = play_below(random, 4) > 0;
}

/* How far apart ranks may be when they stop. Of another object they would be waited for. */
static int spread_of(const struct play_object *object)
{
    const struct weft_server_config *config = &((struct server *)object->settings)->config;
    if (object->play->object_count > 1)
        return 0;
    if (config->sync == WEFT_SERVER_SSP || config->sync == WEFT_SERVER_DSSP)
        return (int)config->staleness;
    return config->sync == WEFT_SERVER_ASP ? PLAY_STEPS : 0;
}

/* Before which step each rank stops, all of them or none. */
static void draw_restarts(struct play_object *object, uint64_t *random)
{
    struct server *server = object->settings;
    const int spread = spread_of(object), ordered = server->config.sync == WEFT_SERVER_R2SP;
    const int ahead =
        ordered && object->play->object_count == 1 ? play_below(random, server->workers) : 0;
    int least = PLAY_STEPS;
    for (int r = 0; r < object->ranks; r++)
        least = object->steps[r] < least ? object->steps[r] : least;
    const int first = least > 0 && play_below(random, 2) ? play_below(random, least) : -1;
    for (int r = 0; r < PLAY_RANKS; r++) {
        int step = first + (r < ahead) + play_below(random, spread + 1);
        server->restart[r] = first < 0 ? -1 : step < least ? step : least - 1;
    }
}

static void draw(struct play_object *object, uint64_t *random)
{
    struct server *server = play_take(1, sizeof *server);
    struct weft_server_config *config = &server->config;
    weft_server_config_init(config);
    config->sync = (weft_server_sync_t)play_below(random, 6);
    config->place = play_below(random, 2) ? WEFT_SERVER_APART : WEFT_SERVER_COLOCATED;
    int apart = object->ranks > 1 && config->place == WEFT_SERVER_APART;
    int most = object->ranks - apart;
    config->servers = 1 + play_below(random, most > 3 ? 3 : most);
    server->workers = object->ranks - (apart ? config->servers : 0);
    config->staleness = (uint64_t)play_below(random, 3);
    config->staleness_most = config->staleness + (uint64_t)play_below(random, 3);
    draw_model(server, random);
    draw_optimiser(server, random);
    draw_flow(config, random);
    draw_osp(server, random);
    PLAY_TIMES(object, config);
    object->settings = server;
    draw_restarts(object, random);
}

/* ---- life ---- */

static void lay_out(struct weft_piece tensors[SERVER_TENSORS], double *data)
{
    for (int t = 0; t < SERVER_TENSORS; t++) {
        tensors[t] = (struct weft_piece){data, tensor_counts[t]};
        data += tensor_counts[t];
    }
}

static int make(struct play_object *object, struct actor *actor, int rank, uint64_t meet_ns,
                const struct weft_server_state *state)
{
    struct server *server = object->settings;
    struct weft_server_config config = server->config;
    config.weight = server->weights[rank];
    config.tensors = config.tensor_count ? actor->tensors : NULL;
    config.gradients =
        config.tensor_count && config.push == WEFT_SERVER_GRADIENTS ? actor->gradients : NULL;
    config.meet_ns = meet_ns;
    config.state = state;
    return weft_server_create(&actor->server, actor->base.context, &config);
}

static int begin(struct play_object *object, struct weft_context *context, int rank)
{
    struct actor *actor = play_actor_make(object, context, rank, sizeof *actor);
    lay_out(actor->tensors, actor->model);
    lay_out(actor->gradients, actor->gradient);
    return make(object, actor, rank, object->meet_ns, NULL);
}

static int fail(struct play_object *object, int rank, int status, const char *text)
{
    struct server *server = object->settings;
    struct actor *actor = object->actors[rank];
    int failed = weft_server_fail(actor->server, status, text);
    server->failed[rank] = failed == WEFT_OK;
    return failed;
}

static int end(struct play_object *object, int rank)
{
    struct server *server = object->settings;
    struct actor *actor = object->actors[rank];
    int status = weft_server_destroy(actor->server);
    server->off = 1;
    server->ended[rank] = status == WEFT_OK && object->reports[rank].status == WEFT_OK;
    return play_actor_end(object, rank, status);
}

/* ---- going on from states ---- */

/* Waits for all ranks, without the object. 0: it is called off. Ranks run one at a time. */
static int meet(struct play_object *object, struct actor *actor, int meeting)
{
    struct server *server = object->settings;
    uint64_t most = object->deadline_ns ? object->deadline_ns : MEETING_NS;
    if (server->off)
        return 0;
    server->arrived[meeting]++;
    for (uint64_t ns = 1000, all = 0; all < most; all += ns, ns = ns < 1000000 ? 2 * ns : ns) {
        if (server->arrived[meeting] == object->ranks)
            return 1;
        if (server->off)
            return 0;
        if (weft_server_is_worker(actor->server))
            weft_context_sleep(actor->base.context, ns);
        else
            weft_server_serve(actor->server, ns);
    }
    server->off = server->arrived[meeting] < object->ranks;
    return !server->off;
}

static int get_state(void *of)
{
    struct actor *actor = of;
    actor->state = (struct weft_server_state){.struct_size = sizeof actor->state};
    return weft_server_get_state(actor->server, &actor->state);
}

static const void *keep(const void *from, size_t bytes)
{
    void *copy = from ? play_take(bytes + !bytes, 1) : NULL;
    if (copy && bytes)
        memcpy(copy, from, bytes);
    return copy;
}

/* What the state points to is the object's. */
static void keep_state(const struct server *server, struct weft_server_state *state)
{
    size_t count = server->config.tensor_count ? SERVER_COUNT * sizeof(double) : 0;
    state->parameters = keep(state->parameters, state->element_count * sizeof(double));
    state->velocity = keep(state->velocity, state->element_count * sizeof(double));
    state->clocks = keep(state->clocks, state->clock_count * sizeof *state->clocks);
    state->worker_velocity = keep(state->worker_velocity, count);
    state->late = keep(state->late, (size_t)server_layers(server));
    state->pulled = keep(state->pulled, count);
    state->changes = keep(state->changes, count);
    state->average = keep(state->average, count);
}

static void free_state(const struct weft_server_state *state)
{
    const void *const all[] = {state->parameters,      state->velocity, state->clocks,
                               state->worker_velocity, state->late,     state->pulled,
                               state->changes,         state->average};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free((void *)all[i]);
}

/* Another object goes on from what this one has, which is gone by then. */
static int replace(struct play_object *object, struct actor *actor, int rank)
{
    struct server *server = object->settings;
    double before[SERVER_COUNT];
    memcpy(before, actor->model, sizeof before);
    int status = weft_server_destroy(actor->server);
    actor->server = NULL;
    /* Where one has been away for longer than others leave for, they do not come any more. */
    if (status == WEFT_OK)
        status =
            make(object, actor, rank,
                 object->deadline_ns ? object->deadline_ns : UINT64_C(500000000), &actor->state);
    if (status == WEFT_OK && memcmp(before, actor->model, sizeof before) != 0)
        snprintf(server->wrong, sizeof server->wrong, "rank %d: a state has changed the model",
                 rank);
    return status;
}

/* 1: it has its state; 0: it has not, for a reason or it is called off since a worker in a step
 * has not ended it in time. */
static int ask(const struct play_object *object, struct actor *actor, int *status)
{
    struct server *server = object->settings;
    *status = play_actor_wait(&actor->base, get_state(actor), get_state, actor);
    if (*status == WEFT_ERR_STATE && object->deadline_ns) {
        server->off = 1;
        *status = WEFT_OK;
        return 0;
    }
    if (*status != WEFT_OK) { /* others may be waiting for a step of this one */
        char text[PLAY_TEXT];
        snprintf(text, sizeof text, "%s", weft_error_text());
        weft_server_fail(actor->server, *status, text);
        weft_error_set(*status, "%s", text);
    }
    return *status == WEFT_OK;
}

static int restart(struct play_object *object, struct actor *actor, int rank)
{
    struct server *server = object->settings;
    int status = WEFT_OK;
    int twice = server->config.sync == WEFT_SERVER_OSP && weft_server_is_worker(actor->server);
    if (!meet(object, actor, 0) || (twice && !ask(object, actor, &status)) ||
        !meet(object, actor, 1) || !ask(object, actor, &status))
        return status;
    keep_state(server, &actor->state);
    if (meet(object, actor, 2))
        status = replace(object, actor, rank);
    free_state(&actor->state);
    return status;
}

/* ---- a step ---- */

/* Gradients of the step; or the model is changed by them. */
static void compute(struct play_object *object, struct actor *actor, int rank, int step)
{
    struct server *server = object->settings;
    size_t at = 0;
    for (int l = 0; l < server_layers(server); l++)
        for (size_t i = 0; i < server_counts[l]; i++, at++) {
            int mine = server_owner(server, l, i) == rank;
            actor->gradient[at] = mine ? ldexp(1, step) : 0;
            if (server->config.push == WEFT_SERVER_MODELS && server_pushes(object, rank, step, l))
                actor->model[at] -= actor->gradient[at];
        }
}

static int announce_layer(void *of)
{
    struct actor *actor = of;
    return actor->absent ? weft_server_absent(actor->server, actor->layer)
                         : weft_server_ready(actor->server, actor->layer);
}

static int wait_layer(void *of)
{
    struct actor *actor = of;
    return weft_server_wait(actor->server, actor->layer);
}

static int wait_all(void *of)
{
    struct actor *actor = of;
    return actor->pulls ? weft_server_pull(actor->server, NULL)
                        : weft_server_step(actor->server, NULL);
}

static int correct(void *of)
{
    return weft_server_correct(((struct actor *)of)->server);
}

/* All layers, in an order of the rank's own. */
static int draw_order(const struct server *server, struct actor *actor, size_t order[SERVER_LAYERS])
{
    int count = server_layers(server);
    for (int i = 0; i < count; i++) {
        int j = play_below(&actor->base.random, i + 1);
        order[i] = order[j];
        order[j] = (size_t)i;
    }
    return count;
}

/* What the call that ends the step would not announce as it should be, and some beside. */
static int announce(struct play_object *object, struct actor *actor, int rank, int step)
{
    struct server *server = object->settings;
    size_t order[SERVER_LAYERS];
    int count = draw_order(server, actor, order), status = WEFT_OK;
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        int pushes = server_pushes(object, rank, step, (int)order[i]);
        if (actor->how == AT_ONCE && pushes != actor->pulls && play_below(&actor->base.random, 2))
            continue;
        actor->layer = order[i];
        actor->absent = !pushes;
        status = play_actor_wait(&actor->base, announce_layer(actor), announce_layer, actor);
        if (status == WEFT_OK && server_drawn(object, rank, step, 30 + i) % 8 == 0 &&
            announce_layer(actor) == WEFT_OK)
            snprintf(server->wrong, sizeof server->wrong,
                     "rank %d, step %d: layer %zu was taken twice", rank, step, order[i]);
        play_actor_sleep(&actor->base);
    }
    return status;
}

static int finish(const struct server *server, struct actor *actor)
{
    size_t order[SERVER_LAYERS];
    int status = WEFT_OK;
    if (actor->how == AT_ONCE || !server_layers(server))
        return play_actor_wait(&actor->base, wait_all(actor), wait_all, actor);
    int count = draw_order(server, actor, order);
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        actor->layer = order[i];
        status = play_actor_wait(&actor->base, wait_layer(actor), wait_layer, actor);
        play_actor_sleep(&actor->base);
    }
    return status;
}

static int look(struct play_object *object, struct actor *actor, int rank, int step)
{
    struct server *server = object->settings;
    struct server_seen *seen = &server->seen[rank][step];
    struct weft_server_result result = {.struct_size = sizeof result};
    int last = step + 1 == object->steps[rank];
    int status = weft_server_get_result(actor->server, &result);
    seen->corrected = server->config.sync == WEFT_SERVER_OSP &&
                      (last || server_drawn(object, rank, step, 1) % 3 == 0);
    if (status == WEFT_OK && seen->corrected)
        status = play_actor_wait(&actor->base, correct(actor), correct, actor);
    memcpy(seen->model, actor->model, sizeof seen->model);
    seen->version = result.version;
    seen->staleness = result.staleness;
    seen->late_bytes = result.late_bytes;
    for (int l = 0; l < server_layers(server); l++)
        seen->versions[l] = weft_server_layer_version(actor->server, (size_t)l);
    return status;
}

static int train(struct play_object *object, struct actor *actor, int rank, int step)
{
    struct server *server = object->settings;
    int status = WEFT_OK;
    if (weft_server_next(actor->server) != (uint64_t)step)
        snprintf(server->wrong, sizeof server->wrong, "rank %d: step %llu is next, expected %d",
                 rank, (unsigned long long)weft_server_next(actor->server), step);
    if (server->varies)
        status = weft_server_set_rate(actor->server, server_rate(server, step));
    if (status == WEFT_OK && server->tells)
        status = weft_server_tell_loss(actor->server, 1.0 / (1 + step));
    compute(object, actor, rank, step);
    actor->pulls = server_pulls(object, rank, step);
    actor->how = server_drawn(object, rank, step, 2) % 2 ? AT_ONCE : LAYERED;
    if (status == WEFT_OK)
        status = announce(object, actor, rank, step);
    if (status == WEFT_OK)
        status = finish(server, actor);
    if (status == WEFT_OK && server->failed[rank])
        snprintf(server->wrong, sizeof server->wrong, "rank %d: step %d, after it has failed", rank,
                 step);
    return status == WEFT_OK ? look(object, actor, rank, step) : status;
}

static int step(struct play_object *object, int rank, int step)
{
    struct server *server = object->settings;
    struct actor *actor = object->actors[rank];
    play_actor_sleep(&actor->base);
    int status = step == server->restart[rank] ? restart(object, actor, rank) : WEFT_OK;
    if (status != WEFT_OK)
        return status;
    if (weft_server_is_worker(actor->server))
        return train(object, actor, rank, step);
    status = weft_server_serve(actor->server, object->sleep_ns);
    return status == WEFT_IN_PROGRESS ? WEFT_OK : status;
}

const struct play_kind play_server = {
    .name = "server",
    .waits = 3 * SERVER_LAYERS + 8,
    .leaves = 1,
    .gives_up = 1,
    .draw = draw,
    .begin = begin,
    .step = step,
    .fail = fail,
    .end = end,
    .judge = server_judge,
};
