/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter servers: what holds up a worker's pushes, on the thread that drives its engine: late
 * layers until the important ones have landed (OSP), segments until there is room on the way.
 */
#include "schedules/objects/server/server.h"

/* ---- stages ---- */

int weft__server_hold(struct weft_call *call)
{
    struct weft_server *server = call->user;
    struct worker *worker = &server->worker;
    size_t l = weft__server_id(call, 0);
    if (server->broken)
        return WEFT_ERR_CANCELLED;
    if (!worker->layers[l].late ||
        atomic_load_explicit(&worker->to_land, memory_order_relaxed) == 0)
        return WEFT_OK;
    worker->held[l] = call;
    return WEFT_IN_PROGRESS;
}

int weft__server_landed(struct weft_call *call)
{
    struct weft_server *server = call->user;
    struct worker *worker = &server->worker;
    if (server->broken || worker->layers[weft__server_id(call, 0)].late ||
        atomic_fetch_sub_explicit(&worker->to_land, 1, memory_order_relaxed) != 1)
        return WEFT_OK;
    atomic_store_explicit(&worker->landed_ns, weft_context_now(server->context),
                          memory_order_relaxed);
    for (size_t l = server->layer_count; worker->held && l-- > 0;)
        weft__server_complete(&worker->held[l], WEFT_OK);
    return WEFT_OK;
}

/* Arguments: the layer, what there is to push. */
int weft__server_size(struct weft_call *call)
{
    struct weft_server *server = call->user;
    int absent = server->worker.layers[weft__server_id(call, 0)].absent;
    *call->value = absent ? 0 : call->arguments[1].count;
    return WEFT_OK;
}

/* ---- pacing ---- */

int weft__server_pace(struct weft_call *call)
{
    struct weft_server *server = call->user;
    struct worker *worker = &server->worker;
    size_t k = weft__server_id(call, 0), room = server->unit_count;
    if (server->broken)
        return WEFT_ERR_CANCELLED;
    if (worker->on_the_way[k] < (size_t)server->config.window) {
        worker->on_the_way[k]++;
        return WEFT_OK;
    }
    worker->waiting[k * room + (worker->waiting_first[k] + worker->waiting_count[k]++) % room] =
        call;
    return WEFT_IN_PROGRESS;
}

int weft__server_acknowledged(struct weft_call *call)
{
    struct weft_server *server = call->user;
    struct worker *worker = &server->worker;
    size_t k = weft__server_id(call, 0), room = server->unit_count;
    if (server->broken)
        return WEFT_OK;
    if (!worker->waiting_count[k]) {
        worker->on_the_way[k]--;
        return WEFT_OK;
    }
    size_t at = worker->waiting_first[k];
    worker->waiting_first[k] = (at + 1) % room;
    worker->waiting_count[k]--;
    weft__server_complete(&worker->waiting[k * room + at], WEFT_OK);
    return WEFT_OK;
}
