/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter servers: what a server does about its workers: who asks, whose turn it is, what has
 * come, who has left. All of it on the thread that drives the engine.
 */
#include "schedules/objects/server/server.h"

size_t weft__server_id(const struct weft_call *call, size_t argument)
{
    return (size_t) * (const uint64_t *)call->arguments[argument].data;
}

void weft__server_complete(struct weft_call **call, int status)
{
    struct weft_call *pending = *call;
    *call = NULL;
    if (pending)
        weft_call_complete(pending, status);
}

size_t weft__server_cell(const struct weft_server *server, size_t mine, size_t worker)
{
    return mine * server->workers + worker;
}

static void fail(struct weft_server *server, int status)
{
    if (status)
        weft_object_fail(server->object, status, weft_error_text());
}

/* ---- exchanges begin and end ---- */

static void begin_exchange(struct guest *guest)
{
    if (guest->running || guest->asked <= guest->begun || !guest->server->host.open)
        return;
    guest->running = 1;
    guest->begun = guest->asked;
    fail(guest->server, weft_run_start_version(guest->run, guest->asked - 1));
}

void weft__server_asked(void *user, struct weft_run *run, int from, uint32_t channel,
                        uint64_t version)
{
    struct guest *guest = user;
    (void)run;
    (void)from;
    if (channel != WEFT__SERVER_ASK || guest->server->broken || guest->asked > version)
        return; /* a signal may come twice */
    guest->asked = version + 1;
    begin_exchange(guest);
}

void weft__server_exchanged(void *user, struct weft_run *run, int status)
{
    struct guest *guest = user;
    (void)run;
    guest->running = 0;
    if (!status && !guest->server->broken)
        begin_exchange(guest);
}

/* ---- turns ---- */

static void give_turn(struct weft_server *server, size_t w)
{
    struct guest *guest = &server->host.guests[w];
    guest->turning = 1;
    server->host.turns_taken++;
    weft__server_complete(&guest->turn, WEFT_OK);
}

/* Those who are next, as far as there is room. */
static void give_turns(struct weft_server *server)
{
    struct host *host = &server->host;
    if (server->config.sync == WEFT_SERVER_R2SP) {
        if (!host->turns_taken && host->guests[host->turn_of].turn)
            give_turn(server, host->turn_of);
        return;
    }
    while (host->turns_taken < (size_t)server->config.turns) {
        size_t first = SIZE_MAX;
        for (size_t w = 0; w < server->workers; w++)
            if (host->guests[w].turn &&
                (first == SIZE_MAX || host->guests[w].asked_at < host->guests[first].asked_at))
                first = w;
        if (first == SIZE_MAX)
            return;
        give_turn(server, first);
    }
}

int weft__server_turn(struct weft_call *call)
{
    struct weft_server *server = call->user;
    size_t w = weft__server_id(call, 0);
    struct guest *guest = &server->host.guests[w];
    if (server->broken)
        return WEFT_ERR_CANCELLED;
    guest->turn = call;
    guest->asked_at = server->host.asks++;
    give_turns(server);
    return WEFT_IN_PROGRESS; /* which its end may have come before */
}

static void next_round(struct weft_server *server)
{
    struct host *host = &server->host;
    for (size_t i = 0; i < server->workers; i++) {
        host->turn_of = (host->turn_of + 1) % server->workers;
        if (host->guests[host->turn_of].present)
            return;
    }
}

static void leave_turn(struct weft_server *server, size_t w)
{
    struct guest *guest = &server->host.guests[w];
    if (!guest->turning)
        return;
    guest->turning = 0;
    server->host.turns_taken--;
    if (server->config.sync == WEFT_SERVER_R2SP)
        next_round(server);
    give_turns(server);
}

/* ---- what comes ---- */

static int is_late(const struct guest *guest, size_t layer)
{
    return guest->report[REPORT_WORDS + layer / 64] >> (layer % 64) & 1;
}

/* Late layers are pushed when those that are not have been merged: a turn does not last for them,
 * unless there are no others. */
static size_t parts_of_turn(const struct weft_server *server, const struct guest *guest)
{
    size_t count = 0, important = 0;
    for (size_t l = 0; l < server->layer_count; l++)
        important += server->layers[l].part_count && !is_late(guest, l);
    for (size_t p = 0; p < server->host.part_count; p++)
        count += !important || !is_late(guest, server->parts[server->host.parts[p].part].is.layer);
    return count;
}

/* OSP: server 0 measures its link. What it pushes to itself is on no link. */
static int measures(const struct weft_server *server)
{
    return weft__server_is_osp(server) && server->host.index == 0;
}

/* Parts that are expected in each stage. */
static void count_report(struct weft_server *server, const struct guest *guest)
{
    struct host *host = &server->host;
    for (size_t p = 0; p < host->part_count; p++)
        host->stages[is_late(guest, server->parts[host->parts[p].part].is.layer)].expected++;
    if (++host->reported == host->present)
        weft__server_all_asked(server);
}

int weft__server_reported(struct weft_call *call)
{
    struct weft_server *server = call->user;
    size_t w = weft__server_id(call, 0);
    struct guest *guest = &server->host.guests[w];
    guest->read = 0;
    if (weft__server_merges(server))
        atomic_fetch_add_explicit(&server->host.pushes, 1, memory_order_relaxed);
    if (weft__server_merges(server))
        guest->clock = call->version + 1;
    guest->to_come = parts_of_turn(server, guest);
    if (!guest->to_come)
        leave_turn(server, w);
    if (measures(server))
        count_report(server, guest);
    return WEFT_OK;
}

int weft__server_came(struct weft_call *call)
{
    struct weft_server *server = call->user;
    struct host *host = &server->host;
    size_t w = weft__server_id(call, 0), mine = weft__server_id(call, 1);
    size_t cell = weft__server_cell(server, mine, w);
    const struct part *part = &server->parts[host->parts[mine].part];
    if (server->broken)
        return WEFT_ERR_CANCELLED;
    /* All of it has come, or nothing: what is told is how long its first segment was. */
    host->empty[cell] = call->arguments[2].count == 0;
    uint64_t bytes = host->empty[cell] ? 0 : part->is.count * server->element;
    atomic_fetch_add_explicit(&host->received, bytes, memory_order_relaxed);
    if (measures(server))
        weft__server_measure(server, is_late(&host->guests[w], part->is.layer),
                             (int)w == server->rank ? 0 : bytes);
    if (host->guests[w].to_come && --host->guests[w].to_come == 0)
        leave_turn(server, w);
    if (!weft__server_merges(server))
        return WEFT_OK;
    host->calls[cell] = call;
    host->parts[mine].came++;
    weft__server_look(server, mine);
    return WEFT_IN_PROGRESS;
}

int weft__server_answer(struct weft_call *call)
{
    struct weft_server *server = call->user;
    size_t w = weft__server_id(call, 0);
    struct guest *guest = &server->host.guests[w];
    if (server->broken)
        return WEFT_ERR_CANCELLED;
    if (weft__server_is_osp(server) && server->part_count && server->host.ranked <= call->version) {
        guest->answer = call;
        return WEFT_IN_PROGRESS;
    }
    weft__server_fill_reply(server, w, call->version);
    return WEFT_OK;
}

/* ---- who leaves ---- */

/* Who waits in serve() goes on. */
static void end_serving(struct host *host)
{
    if (!host->served)
        weft_run_fire(host->over, host->over_event);
    host->served = 1;
}

static void all_have_left(struct weft_server *server)
{
    struct host *host = &server->host;
    if (atomic_load_explicit(&host->all_left, memory_order_relaxed))
        return;
    atomic_store_explicit(&host->all_left, 1, memory_order_release);
    for (size_t p = 0; p < host->part_count; p++)
        weft__server_complete(&host->parts[p].gather, WEFT_OK);
    weft__server_complete(&host->next, WEFT_OK);
    end_serving(host);
}

static void leaves(struct weft_server *server, size_t w)
{
    struct host *host = &server->host;
    host->guests[w].present = 0;
    if (--host->present == 0) {
        all_have_left(server);
        return;
    }
    if (server->config.sync == WEFT_SERVER_R2SP && host->turn_of == w) {
        next_round(server);
        give_turns(server);
    }
    for (size_t p = 0; p < host->part_count; p++)
        weft__server_look(server, p);
    weft__server_open_gates(server);
}

void weft__server_left(void *user, struct weft_run *run, int from, uint32_t channel,
                       uint64_t version)
{
    struct weft_server *server = user;
    struct host *host = &server->host;
    (void)run;
    (void)version;
    if (channel != WEFT__SERVER_LEFT || server->broken || (size_t)from >= server->workers ||
        host->guests[from].left)
        return;
    host->guests[from].left = 1;
    if (host->open)
        leaves(server, (size_t)from);
}

void weft__server_opened(void *user, struct weft_run *run, int status)
{
    struct weft_server *server = user;
    struct host *host = &server->host;
    (void)run;
    if (status || server->broken) {
        end_serving(host);
        return;
    }
    host->open = 1;
    for (size_t w = 0; w < server->workers; w++) {
        begin_exchange(&host->guests[w]);
        if (host->guests[w].left)
            leaves(server, w);
    }
}

/* ---- the end ---- */

/* All ranks have left: also those whose signals have not come yet. */
void weft__server_settled(void *user, struct weft_object *object, uint64_t largest)
{
    struct weft_server *server = user;
    (void)object;
    (void)largest;
    server->settled = 1;
    if (weft__server_hosts(server))
        all_have_left(server);
    weft__server_look_done(server);
}

void weft__server_look_done(struct weft_server *server)
{
    if (server->settled && !server->host.open_runs)
        weft_object_done(server->object);
}

static void cancel_guest(struct guest *guest)
{
    weft__server_complete(&guest->turn, WEFT_ERR_CANCELLED);
    weft__server_complete(&guest->gate, WEFT_ERR_CANCELLED);
    weft__server_complete(&guest->due, WEFT_ERR_CANCELLED);
    weft__server_complete(&guest->answer, WEFT_ERR_CANCELLED);
}

static void cancel_worker(struct weft_server *server)
{
    struct worker *worker = &server->worker;
    for (size_t l = 0; worker->held && l < server->layer_count; l++)
        weft__server_complete(&worker->held[l], WEFT_ERR_CANCELLED);
    for (size_t i = 0; worker->waiting && i < server->servers * server->unit_count; i++)
        weft__server_complete(&worker->waiting[i], WEFT_ERR_CANCELLED);
}

/* Nodes that pend must not do so for ever. */
void weft__server_failed(void *user, struct weft_object *object, int status)
{
    struct weft_server *server = user;
    struct host *host = &server->host;
    (void)object;
    (void)status;
    server->broken = 1;
    /* Acquire pairs with the release in the creation. */
    if (!atomic_load_explicit(&server->made, memory_order_acquire))
        return;
    cancel_worker(server);
    if (!weft__server_hosts(server))
        return;
    for (size_t w = 0; w < server->workers; w++)
        cancel_guest(&host->guests[w]);
    for (size_t i = 0; i < host->part_count * server->workers; i++)
        weft__server_complete(&host->calls[i], WEFT_ERR_CANCELLED);
    for (size_t p = 0; p < host->part_count; p++)
        weft__server_complete(&host->parts[p].gather, WEFT_ERR_CANCELLED);
    weft__server_complete(&host->next, WEFT_ERR_CANCELLED);
    /* A run of this rank alone does not end with the object, and its application may wait for it.
     * Before the server is open see there. */
    if (host->open)
        end_serving(host);
}
