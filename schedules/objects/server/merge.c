/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter servers, BSP and OSP: a part that has come from all workers is merged, in the order of
 * the workers, and sent to them.
 *
 *     exchange of worker 0    came(p) ---------------- pends .... send p
 *     exchange of worker 1              came(p) ------ pends .... send p
 *     merge of p              gather .......... merge slices, merged   weigh slices (OSP)
 *
 * Workers take part in a merge whose `came` pends when it begins. None can push the part again
 * before it has been answered.
 */
#include <string.h>

#include "schedules/objects/server/server.h"

/* ---- gathering ---- */

static int is_complete(const struct weft_server *server, const struct server_part *part)
{
    return server->host.present && part->came >= server->host.present;
}

static int is_over(const struct weft_server *server)
{
    return atomic_load_explicit(&server->host.all_left, memory_order_relaxed);
}

void weft__server_look(struct weft_server *server, size_t mine)
{
    struct server_part *part = &server->host.parts[mine];
    if (part->gather && is_complete(server, part))
        weft__server_complete(&part->gather, WEFT_OK);
}

int weft__server_gather(struct weft_call *call)
{
    struct weft_server *server = call->user;
    struct server_part *part = &server->host.parts[weft__server_id(call, 0)];
    if (server->broken)
        return WEFT_ERR_CANCELLED;
    if (is_over(server) || is_complete(server, part))
        return WEFT_OK;
    part->gather = call;
    return WEFT_IN_PROGRESS;
}

/* ---- merging ---- */

/* Sets host->lists and weights to what takes part, from argument `first` on, and returns how many.
 * *first_worker: the lowest one. *divisor: of their sum. A gradient that was not pushed is zero,
 * and counts; a model that was not does not. */
static size_t list_rooms(const struct weft_server *server, const struct weft_call *call,
                         size_t mine, size_t first, size_t *first_worker, size_t *divisor)
{
    const struct host *host = &server->host;
    size_t count = 0, workers = 0;
    int models = server->update.kind == WEFT__UPDATE_SET;
    double sum = 0;
    *first_worker = SIZE_MAX;
    for (size_t w = 0; w < server->workers; w++) {
        size_t cell = weft__server_cell(server, mine, w);
        if (!host->calls[cell])
            continue;
        if (*first_worker == SIZE_MAX)
            *first_worker = w;
        if (models && host->empty[cell])
            continue;
        sum += server->weights[w];
        workers++;
        if (host->empty[cell])
            continue;
        host->lists[count] = call->arguments[first + w].data;
        host->weights[count++] = server->weights[w];
    }
    if (!count && workers) { /* all are zero: momentum goes on */
        const struct weft_argument *room = &call->arguments[first + *first_worker];
        memset(room->data, 0, room->count * server->element);
        host->lists[0] = room->data;
        host->weights[0] = 1;
        *divisor = 1;
        return 1;
    }
    /* Weights are by the mean of all workers: exactly 1 where they are equal and all there. */
    double scale = workers < server->workers ? (double)workers / sum : 1;
    *divisor = workers;
    for (size_t i = 0; i < count; i++)
        host->weights[i] *= scale;
    return count;
}

static double rate_of(const struct weft_server *server, size_t worker)
{
    return weft__word_real(server->host.guests[worker].report[REPORT_RATE]);
}

/* Arguments: the part, parameters, rooms, velocity. */
int weft__server_merge_slice(struct weft_call *call)
{
    struct weft_server *server = call->user;
    struct host *host = &server->host;
    size_t mine = weft__server_id(call, 0), first, divisor;
    const struct weft_argument *parameters = &call->arguments[1];
    struct weft__server_update update = server->update;
    if (server->broken || is_over(server))
        return WEFT_OK;
    size_t count = list_rooms(server, call, mine, 2, &first, &divisor);
    void *velocity = host->velocity ? call->arguments[2 + server->workers].data : NULL;
    if (update.kind == WEFT__UPDATE_SGD && server->config.optimiser == WEFT_SERVER_UPDATES)
        update.rate = rate_of(server, first);
    void *mean = weft__server_is_osp(server) ? call->arguments[2 + first].data : NULL;
    host->parts[mine].mean = first;
    weft__server_merge(server->model.dtype, &update, parameters->data, velocity, host->lists,
                       host->weights, count, divisor, parameters->count, mean);
    return WEFT_OK;
}

/* All that have waited for the part are answered. */
static void answer_all(struct weft_server *server, struct server_part *part)
{
    struct host *host = &server->host;
    size_t mine = (size_t)(part - host->parts);
    uint64_t bytes = server->parts[part->part].is.count * server->element;
    for (size_t w = 0; w < server->workers; w++) {
        size_t cell = weft__server_cell(server, mine, w);
        if (host->calls[cell])
            atomic_fetch_add_explicit(&host->sent, bytes, memory_order_relaxed);
        weft__server_complete(&host->calls[cell], WEFT_OK);
    }
    part->came = 0;
}

/* OSP: the workers go on before the layer is weighed. */
int weft__server_merged(struct weft_call *call)
{
    struct weft_server *server = call->user;
    if (!server->broken && !is_over(server))
        answer_all(server, &server->host.parts[weft__server_id(call, 0)]);
    return WEFT_OK;
}

/* Arguments: the part, parameters, rooms, one of which has the mean gradient. */
int weft__server_weigh_slice(struct weft_call *call)
{
    struct weft_server *server = call->user;
    struct host *host = &server->host;
    size_t mine = weft__server_id(call, 0);
    const struct server_part *part = &host->parts[mine];
    const struct weft_argument *parameters = &call->arguments[1];
    if (server->broken || is_over(server))
        return WEFT_OK;
    host->importance[server->parts[part->part].is.layer] +=
        weft__server_weigh(server->model.dtype, call->arguments[2 + part->mean].data,
                           parameters->data, parameters->count);
    return WEFT_OK;
}

void weft__server_merge_ended(void *user, struct weft_run *run, int status)
{
    struct server_part *part = user;
    struct weft_server *server = part->server;
    struct host *host = &server->host;
    if (status || server->broken)
        return;
    if (is_over(server)) {
        host->open_runs--;
        weft__server_look_done(server);
        return;
    }
    int osp = weft__server_is_osp(server);
    if (!osp)
        answer_all(server, part);
    if (part == &host->parts[0])
        atomic_fetch_add_explicit(&host->applied, 1, memory_order_relaxed);
    status = weft_run_start(run);
    if (status)
        weft_object_fail(server->object, status, weft_error_text());
    if (osp && ++host->weighed == host->part_count) {
        host->weighed = 0;
        weft__server_tally(server);
    }
}
