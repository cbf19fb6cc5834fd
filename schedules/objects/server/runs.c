/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers: their operations and runs. */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/server/server.h"

static const struct weft__function functions[OPS] = {
    [OP_HOLD] = {"hold", weft__server_hold, WEFT_OP_MAY_PEND},
    [OP_SIZE] = {"size", weft__server_size, 0},
    [OP_PACE] = {"pace", weft__server_pace, WEFT_OP_MAY_PEND},
    [OP_ACKNOWLEDGED] = {"acknowledged", weft__server_acknowledged, 0},
    [OP_LANDED] = {"landed", weft__server_landed, 0},
    [OP_TURN] = {"turn", weft__server_turn, WEFT_OP_MAY_PEND},
    [OP_REPORTED] = {"reported", weft__server_reported, 0},
    [OP_CAME] = {"came", weft__server_came, WEFT_OP_MAY_PEND},
    [OP_PLACE] = {"place", weft__server_take_place, 0},
    [OP_GATE] = {"gate", weft__server_gate, WEFT_OP_MAY_PEND},
    [OP_DUE] = {"due", weft__server_due, WEFT_OP_MAY_PEND},
    [OP_ANSWER] = {"answer", weft__server_answer, WEFT_OP_MAY_PEND},
    [OP_GATHER] = {"gather", weft__server_gather, WEFT_OP_MAY_PEND},
    [OP_MERGE] = {"merge", weft__server_merge_slice, 0},
    [OP_MERGED] = {"merged", weft__server_merged, 0},
    [OP_WEIGH] = {"weigh", weft__server_weigh_slice, 0},
    [OP_NEXT] = {"next", weft__server_next_work, WEFT_OP_MAY_PEND},
    [OP_APPLY] = {"apply", weft__server_apply_slice, 0},
};

int weft__server_make_ops(struct weft_server *server)
{
    return weft__functions_make(server->ops, functions, OPS, server);
}

/* ---- making ---- */

static int bind(struct weft_run *run, const char *name, void *data, size_t count,
                weft_dtype_t dtype)
{
    weft_slot_t slot = weft_plan_find_slot(weft_run_plan(run), name);
    return slot < 0 || !count ? WEFT_OK : weft_run_bind(run, slot, data, count, dtype);
}

static int bind_index(struct weft_run *run, const struct weft_server *server)
{
    return bind(run, "index", server->ids, server->id_count, WEFT_U64);
}

/* A run of a schedule, which it takes. */
static int make_run(struct weft_server *server, struct weft_run **run,
                    struct weft_schedule *schedule, struct weft_run_config *config)
{
    struct weft_plan *plan = NULL;
    config->object = server->object;
    int status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft_run_create(run, server->context, plan, config);
    if (!status)
        status = bind_index(*run, server);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return status;
}

/* Binds rank 0 of a schedule to a rank of the context, and the ranks behind it to the servers. */
static int bind_servers(const struct weft_server *server, struct weft_run *run, int first)
{
    int *ranks = weft_memory_alloc(server->servers + 1, sizeof *ranks);
    if (!ranks)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu servers", server->servers);
    ranks[0] = first;
    for (size_t k = 0; k < server->servers; k++)
        ranks[1 + k] = weft__server_rank(server, k);
    int status = weft_run_bind_peers(run, ranks);
    weft_memory_free(ranks);
    return status;
}

static int bind_host(const struct weft_server *server, struct weft_run *run, size_t w)
{
    struct guest *guest = &server->host.guests[w];
    size_t count = server->host.count;
    weft_dtype_t dtype = server->model.dtype;
    int status = bind(run, "worker", &server->ids[w], 1, WEFT_U64);
    if (!status)
        status = bind(run, "reported", guest->report, REPORT_WORDS + server->words, WEFT_U64);
    if (!status)
        status = bind(run, "answer", guest->reply, REPLY_WORDS + server->words, WEFT_U64);
    if (!status)
        status = bind(run, "order", guest->order, PLACE_WORDS, WEFT_U64);
    if (!status)
        status = bind(run, "release", guest->release, PLACE_WORDS, WEFT_U64);
    if (!status)
        status = bind(run, "room", weft__server_room(server, w, 0), count, dtype);
    return status ? status : bind(run, "parameters", server->host.parameters, count, dtype);
}

static int bind_worker(const struct weft_server *server, struct weft_run *run)
{
    const struct worker *worker = &server->worker;
    int status = bind(run, "report", worker->report, REPORT_WORDS + server->words, WEFT_U64);
    return status ? status
                  : bind(run, "reply", worker->reply, REPLY_WORDS + server->words, WEFT_U64);
}

/* Between worker w and the servers. A rank that is neither leaves its number out. */
static int make_exchange(struct weft_server *server, size_t w)
{
    int worker = server->is_worker && server->rank == (int)w, host = weft__server_takes(server);
    struct weft_schedule *schedule = NULL;
    struct weft_run *run = NULL;
    struct weft_run_config config;
    if (!worker && !host)
        return weft_object_skip(server->object, 1);
    weft_run_config_init(&config);
    if (host) {
        config.ended = weft__server_exchanged;
        config.signalled = weft__server_asked;
        config.user = &server->host.guests[w];
    }
    int status = weft__server_build_exchange(&schedule, server, worker, host);
    if (!status)
        status = make_run(server, &run, schedule, &config);
    if (worker)
        server->worker.run = run;
    if (host)
        server->host.guests[w].run = run;
    if (!status)
        status = bind_servers(server, run, (int)w);
    if (!status && host)
        status = bind_host(server, run, w);
    return status || !worker ? status : bind_worker(server, run);
}

static int make_merge(struct weft_server *server, size_t mine)
{
    struct host *host = &server->host;
    struct server_part *part = &host->parts[mine];
    const struct part *is = &server->parts[part->part];
    weft_dtype_t dtype = server->model.dtype;
    struct weft_schedule *schedule = NULL;
    struct weft_run_config config;
    char name[48];
    weft_run_config_init(&config);
    config.local_only = 1;
    config.ended = weft__server_merge_ended;
    config.user = part;
    int status = weft__server_build_merge(&schedule, server, mine);
    if (!status)
        status = make_run(server, &part->merge, schedule, &config);
    if (!status)
        status = bind(part->merge, "parameters",
                      weft__server_flat(server, host->parameters, is->at), is->is.count, dtype);
    if (!status && host->velocity)
        status = bind(part->merge, "velocity", weft__server_flat(server, host->velocity, is->at),
                      is->is.count, dtype);
    for (size_t w = 0; w < server->workers && !status; w++) {
        snprintf(name, sizeof name, "room.%zu", w);
        status = bind(part->merge, name, weft__server_room(server, w, is->at), is->is.count, dtype);
    }
    return status;
}

static int make_work(struct weft_server *server)
{
    struct host *host = &server->host;
    struct weft_schedule *schedule = NULL;
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.local_only = 1;
    config.ended = weft__server_work_ended;
    config.user = server;
    int status = weft__server_build_work(&schedule, server);
    if (!status)
        status = make_run(server, &host->work, schedule, &config);
    if (!status)
        status = bind(host->work, "parameters", host->parameters, host->count, server->model.dtype);
    if (!status)
        status = bind(host->work, "room", host->rooms, host->count, server->model.dtype);
    return status || !host->velocity
               ? status
               : bind(host->work, "velocity", host->velocity, host->count, server->model.dtype);
}

/* OSP with several servers: a run of the servers alone. */
static int make_tally(struct weft_server *server)
{
    struct host *host = &server->host;
    struct weft_schedule *schedule = NULL;
    struct weft_run_config config;
    if (!weft__server_is_osp(server) || server->servers == 1)
        return WEFT_OK;
    if (!weft__server_hosts(server))
        return weft_object_skip(server->object, 1);
    weft_run_config_init(&config);
    config.ended = weft__server_tallied;
    config.user = server;
    int *ranks = weft_memory_alloc(server->servers, sizeof *ranks);
    int status =
        ranks ? weft__server_build_tally(&schedule, server)
              : weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu servers", server->servers);
    if (!status)
        status = make_run(server, &host->tally, schedule, &config);
    for (size_t k = 0; !status && k < server->servers; k++)
        ranks[k] = weft__server_rank(server, k);
    if (!status)
        status = weft_run_bind_peers(host->tally, ranks);
    size_t holders = weft__server_holders(server);
    if (!status)
        status = bind(host->tally, "importance",
                      host->importance + (host->index ? server->layer_count : 0),
                      server->layer_count * (host->index || !holders ? 1 : holders), WEFT_F64);
    weft_memory_free(ranks);
    return status;
}

static int make_door(struct weft_server *server)
{
    struct weft_schedule *schedule = NULL;
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.signalled = weft__server_hosts(server) ? weft__server_left : NULL;
    config.user = server;
    int status = weft__server_build_door(&schedule, server);
    if (!status)
        status = make_run(server, &server->door, schedule, &config);
    return status ? status : bind_servers(server, server->door, server->rank);
}

/* A run of one node, of this rank alone. */
static int make_single(struct weft_server *server, struct weft_run **run, const char *name,
                       weft_node_t *event, void (*ended)(void *, struct weft_run *, int))
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.local_only = 1;
    config.object = server->object;
    config.ended = ended;
    config.user = server;
    int status = weft_schedule_create(&schedule, 0, 1);
    if (status)
        return status;
    weft_schedule_set_name(schedule, name);
    if (event)
        *event = weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    else
        weft_schedule_add_join(schedule);
    status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft_run_create(run, server->context, plan, &config);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return status;
}

int weft__server_make_runs(struct weft_server *server)
{
    struct host *host = &server->host;
    int status = WEFT_OK;
    for (size_t w = 0; w < server->workers && !status; w++)
        status = make_exchange(server, w);
    if (!status)
        status = make_tally(server);
    if (!status)
        status = make_door(server);
    if (status || !weft__server_hosts(server))
        return status;
    if (!weft__server_merges(server))
        status = make_work(server);
    for (size_t p = 0; weft__server_merges(server) && p < host->part_count && !status; p++)
        status = make_merge(server, p);
    if (!status)
        status = make_single(server, &host->opening, "open", NULL, weft__server_opened);
    return status ? status
                  : make_single(server, &host->over, "until all workers have left",
                                &host->over_event, NULL);
}

int weft__server_start_runs(struct weft_server *server)
{
    struct host *host = &server->host;
    int status = WEFT_OK;
    if (!weft__server_hosts(server))
        return WEFT_OK;
    /* The thread that drives the engine counts them down, once they have been started. */
    host->open_runs = weft__server_merges(server) ? host->part_count : 1;
    status = weft_run_start(host->over);
    if (!status && host->work)
        status = weft_run_start(host->work);
    for (size_t p = 0; p < host->part_count && host->parts[p].merge && !status; p++)
        status = weft_run_start(host->parts[p].merge);
    return status ? status : weft_run_start(host->opening);
}

void weft__server_destroy_runs(struct weft_server *server)
{
    struct host *host = &server->host;
    weft_run_destroy(host->opening); /* may end `over` */
    weft_run_destroy(host->over);
    for (size_t p = 0; host->parts && p < host->part_count; p++)
        weft_run_destroy(host->parts[p].merge);
    weft_run_destroy(host->work);
    weft_run_destroy(server->door);
    weft_run_destroy(host->tally);
    for (size_t w = 0; host->guests && w < server->workers; w++)
        if (host->guests[w].run != server->worker.run)
            weft_run_destroy(host->guests[w].run);
    weft_run_destroy(server->worker.run);
}
