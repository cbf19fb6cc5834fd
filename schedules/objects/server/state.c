/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers: states for checkpoints. */
#include <math.h>
#include <string.h>

#include "schedules/objects/server/create.h"

/* ---- giving one ---- */

/* What a server has begun for workers has ended: they are told before it has. */
static int settle_server(const char *who, struct weft_server *server)
{
    struct host *host = &server->host;
    for (size_t w = 0; w < server->workers; w++) {
        struct weft_run *run = host->guests[w].run;
        if (!run || run == server->worker.run || weft_run_version(run) == UINT64_MAX)
            continue;
        int status = weft_run_wait(run, server->config.deadline_ns ? server->config.deadline_ns
                                                                   : WEFT_NEVER);
        if (status == WEFT_IN_PROGRESS)
            return weft_error_set(WEFT_ERR_STATE, "%s: worker %zu is in a step", who, w);
        int failed = status ? weft_object_check(server->object, who) : WEFT_OK;
        if (status)
            return failed ? failed : status;
    }
    return WEFT_OK;
}

/* The largest; 0 of none. */
static uint64_t latest(const uint64_t *steps, size_t count)
{
    uint64_t largest = 0;
    for (size_t w = 0; w < count; w++)
        largest = steps[w] > largest ? steps[w] : largest;
    return largest;
}

static int save_server(const char *who, struct weft_server *server, struct weft_server_state *state)
{
    struct host *host = &server->host;
    if (!host->saved_clocks)
        host->saved_clocks = weft_memory_alloc(server->workers + 1, sizeof *host->saved_clocks);
    if (!host->saved_clocks)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for %zu workers", who,
                              server->workers);
    int status = settle_server(who, server);
    if (status)
        return status;
    for (size_t w = 0; w < server->workers; w++)
        host->saved_clocks[w] = host->guests[w].clock;
    state->parameters = host->parameters;
    state->velocity = host->velocity;
    state->element_count = host->count;
    if (weft__server_takes(server)) { /* others hear of no step */
        state->clocks = host->saved_clocks;
        state->clock_count = server->workers;
    }
    state->version =
        weft__server_merges(server) ? latest(state->clocks, state->clock_count) : host->updates;
    state->first_loss = isnan(host->tune.first_loss) ? 0 : host->tune.first_loss;
    state->loss = isnan(host->tune.loss) ? 0 : host->tune.loss;
    return WEFT_OK;
}

static int save_worker(struct weft_server *server, struct weft_server_state *state)
{
    struct worker *worker = &server->worker;
    int osp = weft__server_is_osp(server);
    state->next = worker->next;
    state->pulled_version = worker->pulled_version;
    state->worker_velocity = worker->velocity;
    if (!osp)
        return WEFT_OK;
    if (!worker->saved_late)
        worker->saved_late = weft_memory_alloc(server->layer_count + 1, 2);
    if (!worker->saved_late)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu layers", server->layer_count);
    for (size_t l = 0; l < server->layer_count; l++)
        worker->saved_late[l] =
            (unsigned char)(worker->layers[l].late | worker->layers[l].pulled << 1);
    state->late = worker->saved_late;
    state->pulled = worker->fresh;
    state->changes = worker->last;
    state->average = worker->average;
    if (!weft__server_hosts(server)) { /* which knows better */
        state->first_loss = worker->tuning.first_loss;
        state->loss = worker->tuning.loss;
    }
    return WEFT_OK;
}

int weft_server_get_state(struct weft_server *server, struct weft_server_state *state)
{
    if (!server || !state)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %s is NULL", __func__,
                              server ? "state" : "server");
    int status = weft_sized_check(__func__, "state", state);
    if (!status)
        status = weft_object_check(server->object, __func__);
    if (!status && server->worker.in_step)
        status = weft_error_set(WEFT_ERR_STATE, "%s: step %llu is under way", __func__,
                                (unsigned long long)server->worker.next);
    if (status)
        return status;
    struct weft_server_state now = {
        .rank = (uint64_t)server->rank,
        .agreed = {(uint64_t)server->size, server->servers, server->layer_count}};
    if (server->is_worker)
        status = weft__server_end_version(__func__, server);
    if (!status && server->host.index >= 0)
        status = save_server(__func__, server, &now);
    if (!status && server->is_worker)
        status = save_worker(server, &now);
    weft__server_count(server, &now.stats);
    return status ? status : weft_sized_fill(__func__, "state", state, &now, sizeof now);
}

/* ---- going on from one ---- */

static int refuse(const char *who, const char *member, uint64_t is, uint64_t expected)
{
    return weft_error_set(WEFT_ERR_INVALID, "%s: config->state->%s is %llu, expected %llu", who,
                          member, (unsigned long long)is, (unsigned long long)expected);
}

/* Whether a member of `count` elements is there, if the object has use for it: memory for it. Not
 * asked of a state that says nothing, all of whose members are 0: that part begins anew. */
static int check_list(const char *who, const char *member, const void *list, const void *use,
                      size_t count)
{
    if (!use || list || !count)
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_INVALID, "%s: config->state->%s is NULL, expected %zu elements",
                          who, member, count);
}

static int check_server(const char *who, const struct weft_server *server,
                        const struct weft_server_state *state)
{
    const struct host *host = &server->host;
    int says = state->parameters || state->velocity || state->clocks || state->element_count ||
               state->clock_count || state->version;
    if (!says)
        return WEFT_OK;
    if (state->clocks ? state->clock_count != server->workers : state->clock_count != 0)
        return refuse(who, "clock_count", state->clock_count, state->clocks ? server->workers : 0);
    if (state->element_count != host->count)
        return refuse(who, "element_count", state->element_count, host->count);
    int status = check_list(who, "parameters", state->parameters, host->parameters, host->count);
    if (!status)
        status = check_list(who, "velocity", state->velocity, host->velocity, host->count);
    if (!status && weft__server_takes(server))
        status = check_list(who, "clocks", state->clocks, host->guests, server->workers);
    for (size_t w = 0; !status && state->clocks && w < server->workers; w++)
        if (state->clocks[w] >= WEFT__SERVER_MOST_STEPS)
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: config->state->clocks[%zu] is %llu, expected less than 2^62",
                                  who, w, (unsigned long long)state->clocks[w]);
    return status;
}

static int check_late(const char *who, const struct weft_server *server,
                      const struct weft_server_state *state)
{
    const struct worker *worker = &server->worker;
    int status = check_list(who, "late", state->late, worker->fresh, server->layer_count);
    for (size_t l = 0; !status && worker->fresh && l < server->layer_count; l++) {
        if (state->late[l] > 3)
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: config->state->late[%zu] is %d, expected 0 to 3", who, l,
                                  state->late[l]);
        if (state->late[l] & 2 && !state->pulled && server->layers[l].count)
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: config->state->pulled is NULL, expected parameters: layer "
                                  "%zu is to be corrected",
                                  who, l);
    }
    return status;
}

static int check_worker(const char *who, const struct weft_server *server,
                        const struct weft_server_state *state)
{
    const struct worker *worker = &server->worker;
    size_t count = server->model.count;
    int says = state->next || state->worker_velocity || state->late || state->pulled ||
               state->changes || state->average;
    if (!says)
        return WEFT_OK;
    if (state->next >= WEFT__SERVER_MOST_STEPS)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->state->next is %llu, expected less than 2^62", who,
                              (unsigned long long)state->next);
    int status =
        check_list(who, "worker_velocity", state->worker_velocity, worker->velocity, count);
    if (!status)
        status = check_list(who, "changes", state->changes, worker->last, count);
    if (!status)
        status = check_list(who, "average", state->average, worker->average, count);
    return status || !weft__server_is_osp(server) ? status : check_late(who, server, state);
}

static int check_agreed(const char *who, const struct weft_server *server,
                        const struct weft_server_state *state)
{
    static const char *const names[] = {"agreed[0] (ranks)", "agreed[1] (servers)",
                                        "agreed[2] (layers)"};
    const uint64_t expected[] = {(uint64_t)server->size, server->servers, server->layer_count};
    if (state->agreed[0] && state->rank != (uint64_t)server->rank)
        return refuse(who, "rank", state->rank, (uint64_t)server->rank);
    for (int i = 0; i < 3; i++)
        if (state->agreed[i] && state->agreed[i] != expected[i])
            return refuse(who, names[i], state->agreed[i], expected[i]);
    return WEFT_OK;
}

int weft__server_check_state(const char *who, struct weft_server *server)
{
    struct weft_server_state *state = &server->state;
    int status = weft_sized_read(who, "config->state", server->config.state, state, sizeof *state);
    if (!status)
        status = check_agreed(who, server, state);
    if (!status && server->host.index >= 0)
        status = check_server(who, server, state);
    return status || !server->is_worker ? status : check_worker(who, server, state);
}

static void copy(const struct weft_server *server, void *to, const void *from, size_t count)
{
    if (to && from && count)
        memcpy(to, from, count * server->element);
}

static void restore_server(struct weft_server *server, const struct weft_server_state *state)
{
    struct host *host = &server->host;
    copy(server, host->parameters, state->parameters, host->count);
    copy(server, host->velocity, state->velocity, host->count);
    host->updates = state->version;
    if (state->first_loss > 0) {
        host->tune.first_loss = state->first_loss;
        host->tune.loss = state->loss;
    }
}

static void restore_worker(struct weft_server *server, const struct weft_server_state *state)
{
    struct worker *worker = &server->worker;
    size_t count = server->model.count;
    worker->next = state->next;
    worker->pulled_version = worker->restored_version = state->pulled_version;
    for (size_t l = 0; l < server->layer_count; l++)
        worker->layers[l].version = state->pulled_version;
    copy(server, worker->velocity, state->worker_velocity, count);
    if (!weft__server_is_osp(server))
        return;
    worker->tuning.first_loss = state->first_loss;
    worker->tuning.loss = state->loss;
    copy(server, worker->fresh, state->pulled, count);
    copy(server, worker->last, state->changes, count);
    copy(server, worker->average, state->average, count);
    for (size_t l = 0; state->late && l < server->layer_count; l++) {
        worker->layers[l].late = state->late[l] & 1 && server->layers[l].part_count;
        worker->layers[l].pulled = state->late[l] >> 1 & 1 && server->layers[l].part_count;
        worker->layers[l].pulled_version = state->pulled_version;
        if (worker->layers[l].pulled && state->pulled_version) /* the prediction's base */
            worker->layers[l].version = state->pulled_version - 1;
        if (worker->base && worker->layers[l].pulled) { /* its tensors are predicted */
            const struct layer *layer = &server->layers[l];
            copy(server, weft__server_flat(server, worker->base, layer->at),
                 weft__server_flat(server, worker->fresh, layer->at), layer->count);
        }
    }
}

void weft__server_restore(struct weft_server *server)
{
    const struct weft_server_state *state = &server->state;
    server->stats = state->stats;
    if (server->host.index >= 0)
        restore_server(server, state);
    if (server->is_worker)
        restore_worker(server, state);
}

/* Updates in what a worker has last pulled. A state that does not say it has 0, and so has that of
 * a worker which has pulled nothing yet, where others have. */
static uint64_t pulled_by(const struct weft_server *server, size_t worker)
{
    uint64_t begun = 0;
    for (size_t w = 0; w < server->workers; w++)
        begun |= server->steps[w];
    int none = begun && !server->steps[worker];
    return server->pulled[worker] || none ? server->pulled[worker] : server->host.updates;
}

static uint64_t hash_steps(const struct weft_server *server, const uint64_t *steps)
{
    return weft__setting_counts("steps", steps, server->workers, sizeof *steps).value | 1;
}

uint64_t weft__server_hash_clocks(const struct weft_server *server)
{
    const uint64_t *clocks = server->host.index >= 0 ? server->state.clocks : NULL;
    return clocks ? hash_steps(server, clocks) : 0;
}

static int refuse_clocks(const char *who, const struct weft_server *server, int rank)
{
    const uint64_t *clocks = server->state.clocks;
    size_t w = 0;
    if (rank != server->rank)
        return weft_error_set(
            WEFT_ERR_INVALID,
            "%s: config->state->clocks of rank %d are not what the workers have as "
            "config->state->next",
            who, rank);
    while (w + 1 < server->workers && clocks[w] == server->steps[w])
        w++;
    return weft_error_set(WEFT_ERR_INVALID,
                          "%s: config->state->clocks[%zu] is %llu, and worker %zu has "
                          "config->state->next %llu, expected the same",
                          who, w, (unsigned long long)clocks[w], w,
                          (unsigned long long)server->steps[w]);
}

int weft__server_agree_steps(const char *who, struct weft_server *server, const uint64_t *clocks,
                             size_t stride)
{
    struct host *host = &server->host;
    uint64_t expected = hash_steps(server, server->steps);
    for (size_t w = 1; w < server->workers && weft__server_merges(server); w++)
        if (server->steps[w] != server->steps[0])
            return weft_error_set(
                WEFT_ERR_INVALID,
                "%s: the workers do not agree about config->state->next: worker 0 "
                "has %llu, worker %zu has %llu",
                who, (unsigned long long)server->steps[0], w, (unsigned long long)server->steps[w]);
    for (int rank = 0; rank < server->size; rank++)
        if (clocks[(size_t)rank * stride] && clocks[(size_t)rank * stride] != expected)
            return refuse_clocks(who, server, rank);
    for (size_t w = 0; weft__server_hosts(server) && w < server->workers; w++) {
        struct guest *guest = &host->guests[w];
        guest->clock = server->steps[w];
        guest->pulled = pulled_by(server, w);
        host->ranked = server->steps[w];
        if (!host->turn_of && server->steps[w] < server->steps[0])
            host->turn_of = w; /* R2SP: those before it have had their turns in this round */
    }
    return WEFT_OK;
}
