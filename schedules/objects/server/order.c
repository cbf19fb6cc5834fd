/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter servers, ASP and its relatives: all that is done to the parameters has a place in one
 * order, the same on all servers: pushes that are applied, and reads of what is to be answered.
 * Server 0 decides it, as pushes come, and tells the others within the exchanges. So an answer is
 * what the first n updates have made of the parameters, on every server the same n.
 *
 *     place     0            1                2          3
 *     done      apply, read  apply (ahead)    apply,read read
 *     for       worker 2     worker 0         worker 1   worker 0
 *
 * One run does what is due, place after place; it pends while there is nothing.
 */
#include <string.h>

#include "schedules/objects/server/server.h"

enum { FIRST, SECOND }; /* places of a guest in a step */

/* ---- what is next ---- */

/* Finds who has the next place. 0: nobody yet. */
static int find_work(struct weft_server *server)
{
    struct host *host = &server->host;
    for (size_t w = 0; w < server->workers; w++)
        for (int i = FIRST; i <= SECOND; i++)
            if (host->guests[w].places[i].kind != DO_NOTHING &&
                host->guests[w].places[i].number == host->done_places) {
                host->working = w;
                host->work_kind = host->guests[w].places[i].kind;
                host->guests[w].places[i].kind = DO_NOTHING;
                host->touched = 0;
                return 1;
            }
    return 0;
}

static void look_for_work(struct weft_server *server)
{
    if (server->host.next && find_work(server))
        weft__server_complete(&server->host.next, WEFT_OK);
}

int weft__server_next_work(struct weft_call *call)
{
    struct weft_server *server = call->user;
    struct host *host = &server->host;
    if (server->broken)
        return WEFT_ERR_CANCELLED;
    host->work_kind = DO_NOTHING;
    if (atomic_load_explicit(&host->all_left, memory_order_relaxed) || find_work(server))
        return WEFT_OK;
    host->next = call;
    return WEFT_IN_PROGRESS;
}

/* ---- doing it ---- */

/* Arguments: the part, parameters, rooms, velocity. */
int weft__server_apply_slice(struct weft_call *call)
{
    struct weft_server *server = call->user;
    struct host *host = &server->host;
    const struct guest *guest = &host->guests[host->working];
    const struct weft_argument *parameters = &call->arguments[1];
    size_t mine = weft__server_id(call, 0), w = host->working;
    if (server->broken || host->work_kind == DO_NOTHING)
        return WEFT_OK;
    /* The run is bound to the first room. */
    char *room = (char *)call->arguments[2].data + w * host->count * server->element;
    int empty = host->empty[weft__server_cell(server, mine, w)];
    if (host->work_kind == DO_READ || (host->work_kind == DO_BOTH && empty)) {
        memcpy(room, parameters->data, parameters->count * server->element);
        return WEFT_OK;
    }
    if (empty)
        return WEFT_OK;
    struct weft__server_update update = server->update;
    if (update.kind == WEFT__UPDATE_SGD && server->config.optimiser == WEFT_SERVER_UPDATES)
        update.rate = weft__word_real(guest->report[REPORT_RATE]);
    update.share = server->push_share * server->weights[w] / (double)server->workers;
    host->touched = 1;
    weft__server_apply(server->model.dtype, &update, parameters->data,
                       host->velocity ? call->arguments[3].data : NULL, room, parameters->count,
                       host->work_kind == DO_BOTH);
    return WEFT_OK;
}

static void has_applied(struct weft_server *server, struct guest *guest)
{
    struct host *host = &server->host;
    guest->staleness = host->updates - guest->pulled;
    host->updates++; /* on all servers the same, also where nothing was pushed to this one */
    if (host->touched)
        atomic_fetch_add_explicit(&host->applied, 1, memory_order_relaxed);
}

void weft__server_work_ended(void *user, struct weft_run *run, int status)
{
    struct weft_server *server = user;
    struct host *host = &server->host;
    struct guest *guest = &host->guests[host->working];
    if (status || server->broken)
        return;
    if (host->work_kind == DO_NOTHING) { /* it is over */
        host->open_runs--;
        weft__server_look_done(server);
        return;
    }
    if (host->work_kind != DO_READ)
        has_applied(server, guest);
    if (host->work_kind != DO_APPLY) {
        guest->pulled = host->updates;
        guest->read = 1;
        atomic_fetch_add_explicit(&host->sent, host->count * server->element, memory_order_relaxed);
        weft__server_complete(&guest->due, WEFT_OK);
    }
    host->done_places++;
    status = weft_run_start(run);
    if (status)
        weft_object_fail(server->object, status, weft_error_text());
}

/* ---- who is how far ahead ---- */

/* The slowest of those that are there. */
static size_t slowest(const struct weft_server *server)
{
    const struct guest *guests = server->host.guests;
    size_t least = SIZE_MAX;
    for (size_t w = 0; w < server->workers; w++)
        if (guests[w].present && (least == SIZE_MAX || guests[w].clock < guests[least].clock))
            least = w;
    return least;
}

static uint64_t ahead_of(const struct weft_server *server, size_t w, size_t other)
{
    const struct guest *guests = server->host.guests;
    return other == SIZE_MAX || guests[w].clock < guests[other].clock
               ? 0
               : guests[w].clock - guests[other].clock;
}

/* A push has come: whether its worker may go on at once. */
static int may_go(struct weft_server *server, size_t w)
{
    struct host *host = &server->host;
    size_t other = slowest(server);
    uint64_t ahead = ahead_of(server, w, other);
    if (ahead > atomic_load_explicit(&host->ahead, memory_order_relaxed))
        atomic_store_explicit(&host->ahead, ahead, memory_order_relaxed);
    if (server->config.sync == WEFT_SERVER_DSSP)
        return weft__threshold_may_go(&host->threshold, w, ahead, other);
    return server->config.sync != WEFT_SERVER_SSP || ahead <= server->config.staleness;
}

/* What server 0 decides and the others are told: words, and the guest's place. */
static void decide(struct weft_server *server, struct guest *guest, int which, uint64_t *words,
                   int kind)
{
    struct host *host = &server->host;
    if (host->index == 0) {
        words[PLACE_KIND] = (uint64_t)kind;
        words[PLACE_NUMBER] = kind == DO_NOTHING ? 0 : host->next_place++;
    }
    guest->places[which].number = words[PLACE_NUMBER];
    guest->places[which].kind = (int)words[PLACE_KIND];
    look_for_work(server);
}

/* Arguments: the worker, the words. */
int weft__server_take_place(struct weft_call *call)
{
    struct weft_server *server = call->user;
    struct host *host = &server->host;
    size_t w = weft__server_id(call, 0);
    struct guest *guest = &host->guests[w];
    if (server->broken)
        return WEFT_ERR_CANCELLED;
    guest->clock = call->version + 1;
    atomic_fetch_add_explicit(&host->pushes, 1, memory_order_relaxed);
    if (host->index) {
        decide(server, guest, FIRST, call->arguments[1].data, DO_NOTHING);
        return WEFT_OK;
    }
    weft__threshold_pushed(&host->threshold, w, weft_context_now(server->context));
    guest->goes = may_go(server, w) || !weft__server_has_gates(server);
    decide(server, guest, FIRST, call->arguments[1].data, guest->goes ? DO_BOTH : DO_APPLY);
    weft__server_open_gates(server);
    return WEFT_OK;
}

static void open_gate(struct weft_server *server, struct guest *guest, struct weft_call *call)
{
    decide(server, guest, SECOND, call->arguments[1].data, DO_READ);
}

/* Arguments: the worker, the words. */
int weft__server_gate(struct weft_call *call)
{
    struct weft_server *server = call->user;
    size_t w = weft__server_id(call, 0);
    struct guest *guest = &server->host.guests[w];
    if (server->broken)
        return WEFT_ERR_CANCELLED;
    if (server->host.index || guest->goes) {
        decide(server, guest, SECOND, call->arguments[1].data, DO_NOTHING);
        return WEFT_OK;
    }
    guest->gate = call;
    weft__server_open_gates(server);
    return WEFT_IN_PROGRESS; /* which its end may have come before */
}

void weft__server_open_gates(struct weft_server *server)
{
    struct host *host = &server->host;
    if (!weft__server_has_gates(server))
        return;
    size_t other = slowest(server);
    for (size_t w = 0; w < server->workers; w++) {
        struct guest *guest = &host->guests[w];
        if (!guest->gate || ahead_of(server, w, other) > server->config.staleness)
            continue;
        open_gate(server, guest, guest->gate);
        weft__server_complete(&guest->gate, WEFT_OK);
    }
}

int weft__server_due(struct weft_call *call)
{
    struct weft_server *server = call->user;
    struct guest *guest = &server->host.guests[weft__server_id(call, 0)];
    if (server->broken)
        return WEFT_ERR_CANCELLED;
    if (guest->read)
        return WEFT_OK;
    guest->due = call;
    return WEFT_IN_PROGRESS;
}
