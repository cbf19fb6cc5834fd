/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter servers: a worker's steps.
 *
 * With OSP a version of its exchange goes on after the step, in its second stage, until the next
 * step begins. A late layer has, when it is announced, what the servers had before this step
 * (`fresh`, or the tensors themselves if it was important in the last one); the tensors then become
 *
 *     what the servers had + prediction             (equations 7 and 6 of the paper in one)
 *
 * at once, on the trainer's thread: the layer belongs to the object until it is waited for. Its
 * gradient is copied, since the trainer writes the next one while the exchange goes on.
 */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/agreement.h"
#include "schedules/objects/server/server.h"

enum { OVERRUN_NS = 100000 }; /* what looking costs is none */

/* ---- what is common to the calls ---- */

static int check_worker(const char *who, const struct weft_server *server)
{
    if (!server)
        return weft_error_set(WEFT_ERR_INVALID, "%s: server is NULL", who);
    if (!server->is_worker)
        return weft_error_set(WEFT_ERR_STATE, "%s: rank %d is a server alone, expected a worker",
                              who, server->rank);
    return weft_object_check(server->object, who);
}

static int check_layer(const char *who, const struct weft_server *server, size_t layer)
{
    int status = check_worker(who, server);
    if (status || layer < server->layer_count)
        return status;
    return weft_error_set(WEFT_ERR_INVALID, "%s: layer is %zu, expected less than %zu", who, layer,
                          server->layer_count);
}

static uint64_t deadline_of(const struct weft_server *server)
{
    return server->config.deadline_ns ? server->config.deadline_ns : WEFT_NEVER;
}

/* What a wait has come to, in the object's words if that has failed. */
static int outcome(const char *who, struct weft_server *server, const char *what, int status)
{
    if (!status)
        return WEFT_OK;
    if (status == WEFT_IN_PROGRESS)
        return weft__step_timed_out(who, what, server->worker.run, deadline_of(server));
    int failed = weft_object_check(server->object, who);
    return failed ? failed : status;
}

/* Waits for a node of the exchange, or its end. Mostly it is there: then no clock is read. */
static int wait_for(struct weft_server *server, weft_node_t node)
{
    struct weft_run *run = server->worker.run;
    int all = node == WEFT_NODE_NONE;
    int status = all ? weft_run_wait(run, 0) : weft_run_wait_node(run, node, 0);
    if (status != WEFT_IN_PROGRESS)
        return status;
    uint64_t began = weft_context_now(server->context), deadline = deadline_of(server);
    status = all ? weft_run_wait(run, deadline) : weft_run_wait_node(run, node, deadline);
    uint64_t ns = weft_context_now(server->context) - began;
    server->worker.result.waited_ns += ns;
    server->worker.waited_between += ns;
    server->stats.waited_ns += ns;
    return status;
}

/* ---- the end of a version of the exchange ---- */

static char *own(const struct weft_server *server, char *flat, size_t layer)
{
    return weft__server_flat(server, flat, server->layers[layer].at);
}

/* keeps_base: what has come for a layer says how the parameters have changed. */
static void note_change(struct weft_server *server, size_t l)
{
    struct worker *worker = &server->worker;
    const struct layer *layer = &server->layers[l];
    weft__server_change(server->model.dtype, own(server, worker->base, l),
                        own(server, worker->fresh, l), own(server, worker->last, l),
                        worker->average ? own(server, worker->average, l) : NULL,
                        server->config.osp_average, layer->count);
}

static void take_reply(struct weft_server *server)
{
    struct worker *worker = &server->worker;
    const uint64_t *reply = worker->reply;
    struct weft_osp_tuning *tuning = &worker->tuning;
    for (size_t l = 0; l < server->layer_count; l++) {
        struct worker_layer *layer = &worker->layers[l];
        layer->pulled = layer->late && server->layers[l].part_count;
        *(layer->pulled ? &layer->pulled_version : &layer->version) = reply[REPLY_VERSION];
        if (layer->pulled && weft__server_keeps_base(server))
            note_change(server, l);
        layer->late = (int)(reply[REPLY_WORDS + l / 64] >> (l % 64) & 1);
    }
    worker->pulled_version = reply[REPLY_VERSION];
    tuning->goodput = weft__word_real(reply[REPLY_GOODPUT]);
    tuning->compute_ns = reply[REPLY_COMPUTE];
    tuning->most_bytes = reply[REPLY_MOST];
    tuning->late_bytes = reply[REPLY_LATE];
    tuning->first_loss = reply[REPLY_HAS_LOSS] ? weft__word_real(reply[REPLY_FIRST_LOSS]) : 0;
    tuning->loss = reply[REPLY_HAS_LOSS] ? weft__word_real(reply[REPLY_LOSS]) : 0;
    worker->result.version = reply[REPLY_VERSION];
    worker->result.staleness =
        weft__server_is_osp(server) ? worker->result.late_layers > 0 : reply[REPLY_STALENESS];
}

/* Waits until the last version of the exchange is over: of OSP its second stage. */
int weft__server_end_version(const char *who, struct weft_server *server)
{
    struct worker *worker = &server->worker;
    if (!worker->under_way)
        return WEFT_OK;
    int status = wait_for(server, WEFT_NODE_NONE);
    if (status)
        return outcome(who, server, "the end of the last step", status);
    take_reply(server);
    worker->under_way = 0;
    return WEFT_OK;
}

/* ---- beginning ---- */

static int bind_flat(struct weft_server *server, weft_slot_t slot, char *flat, size_t l)
{
    return weft_run_bind(server->worker.run, slot, own(server, flat, l), server->layers[l].count,
                         server->model.dtype);
}

static int bind_pull(struct weft_server *server, size_t l)
{
    struct worker *worker = &server->worker;
    const struct layer *layer = &server->layers[l];
    if (worker->layers[l].late || weft__server_keeps_base(server))
        return bind_flat(server, worker->layers[l].pull, worker->fresh, l);
    return weft_run_bind_list(worker->run, worker->layers[l].pull,
                              &server->model.tensors[layer->first_tensor], layer->tensor_count,
                              server->model.dtype);
}

static int bind_push(struct weft_server *server, size_t l)
{
    struct worker *worker = &server->worker;
    const struct layer *layer = &server->layers[l];
    if (worker->layers[l].late || worker->has_optimiser)
        return bind_flat(server, worker->layers[l].push, worker->kept, l);
    const struct weft_piece *pieces = server->gradients ? server->gradients : server->model.tensors;
    return weft_run_bind_list(worker->run, worker->layers[l].push, &pieces[layer->first_tensor],
                              layer->tensor_count, server->model.dtype);
}

/* Only where that has changed: lists may have to be allocated. */
static int bind_layers(struct weft_server *server)
{
    int status = WEFT_OK;
    for (size_t l = 0; l < server->layer_count && !status; l++) {
        struct worker_layer *layer = &server->worker.layers[l];
        if (!server->layers[l].part_count || layer->bound == 1 + layer->late)
            continue;
        status = bind_pull(server, l);
        if (!status)
            status = bind_push(server, l);
        if (!status)
            layer->bound = 1 + layer->late;
    }
    return status;
}

static void write_report(struct weft_server *server)
{
    struct worker *worker = &server->worker;
    uint64_t *report = worker->report;
    memset(report, 0, (REPORT_WORDS + server->words) * sizeof *report);
    report[REPORT_RATE] = weft__real_word(worker->rate);
    report[REPORT_HAS_LOSS] = (uint64_t)worker->has_loss;
    report[REPORT_LOSS] = weft__real_word(worker->loss);
    report[REPORT_COMPUTE] = worker->compute_ns;
    for (size_t l = 0; l < server->layer_count; l++)
        report[REPORT_WORDS + l / 64] |= (uint64_t)worker->layers[l].late << (l % 64);
}

static void begin_layers(struct weft_server *server)
{
    struct worker *worker = &server->worker;
    size_t important = 0;
    worker->result.step = worker->next;
    for (size_t l = 0; l < server->layer_count; l++) {
        struct worker_layer *layer = &worker->layers[l];
        uint64_t bytes = server->layers[l].count * server->element;
        layer->announced = layer->waited = layer->absent = 0;
        important += server->layers[l].part_count && !layer->late;
        worker->result.bytes += bytes;
        worker->result.late_bytes += layer->late ? bytes : 0;
        worker->result.late_layers += (size_t)layer->late;
    }
    worker->announced = worker->waited = 0;
    /* What the engine's thread reads of it comes after the start of the run. */
    atomic_store_explicit(&worker->to_land, important, memory_order_relaxed);
    atomic_store_explicit(&worker->landed_ns, 0, memory_order_relaxed);
}

static int begin_step(const char *who, struct weft_server *server)
{
    struct worker *worker = &server->worker;
    int overruns = weft__server_is_osp(server) && worker->under_way;
    uint64_t began = overruns ? weft_context_now(server->context) : 0;
    if (!worker->begins) /* else a deadline has ended the wait for what is left of the last step */
        worker->result = (struct weft_server_result){0};
    worker->begins = 1;
    int status = weft__server_end_version(who, server);
    if (status)
        return status;
    uint64_t ns = overruns ? weft_context_now(server->context) - began : 0;
    if (ns > OVERRUN_NS) {
        server->stats.overrun_steps++;
        server->stats.overrun_ns += ns;
    }
    status = bind_layers(server);
    if (status)
        return status;
    begin_layers(server);
    write_report(server);
    status = weft_run_start_version(worker->run, worker->next);
    if (status)
        return status;
    worker->begins = 0;
    worker->in_step = worker->under_way = 1;
    return WEFT_OK;
}

/* ---- announcing ---- */

/* The least of some steps counts: what else a trainer does between two is no computation. The last
 * gradient is there: the time since the last one of the step before, without waits. */
static void note_computed(struct weft_server *server)
{
    struct worker *worker = &server->worker;
    uint64_t now = weft_context_now(server->context);
    if (worker->last_ready) {
        uint64_t ns = now - worker->last_ready;
        ns -= worker->waited_between < ns ? worker->waited_between : ns;
        worker->computed[worker->computed_count++ % COMPUTED] = ns;
        worker->compute_ns = UINT64_MAX;
        for (size_t i = 0; i < COMPUTED && i < worker->computed_count; i++)
            if (worker->computed[i] < worker->compute_ns)
                worker->compute_ns = worker->computed[i];
    }
    worker->last_ready = now;
    worker->waited_between = 0;
}

static int look_for_bad(const char *who, struct weft_server *server, size_t l)
{
    const struct layer *layer = &server->layers[l];
    const struct weft_piece *pieces = server->gradients ? server->gradients : server->model.tensors;
    struct weft__bad bad = {0};
    if (server->config.nan != WEFT_NAN_ERROR)
        return WEFT_OK;
    for (size_t t = layer->first_tensor; t < layer->first_tensor + layer->tensor_count; t++)
        weft__bad_add(&bad, t,
                      weft__count_bad(server->model.dtype, pieces[t].data, pieces[t].count));
    if (!bad.count)
        return WEFT_OK;
    server->stats.nans += bad.count;
    return weft_error_set(
        WEFT_ERR_COMPUTE,
        "%s: step %llu: %s of layer %zu has %llu NaNs or infinities, the first in tensor %zu", who,
        (unsigned long long)server->worker.next, server->gradients ? "the gradient" : "the model",
        l, (unsigned long long)bad.count, bad.tensor);
}

/* Who has the optimiser pushes its updates: `kept` gets them. */
static void update_own(struct weft_server *server, size_t l, int absent)
{
    struct worker *worker = &server->worker;
    const struct layer *layer = &server->layers[l];
    size_t at = layer->at;
    if (absent)
        return;
    for (size_t t = layer->first_tensor; t < layer->first_tensor + layer->tensor_count; t++) {
        const struct weft_piece *gradient = &server->gradients[t];
        weft__server_own_update(
            server->model.dtype, worker->rate, server->config.momentum,
            worker->velocity ? weft__server_flat(server, worker->velocity, at) : NULL,
            gradient->data, weft__server_flat(server, worker->kept, at), gradient->count);
        at += gradient->count;
    }
}

/* A late layer: its tensors become what the servers had and a prediction. */
static void predict(struct weft_server *server, size_t l, int absent)
{
    struct worker *worker = &server->worker;
    const struct layer *layer = &server->layers[l];
    const struct weft_server_config *config = &server->config;
    int own_update = worker->has_optimiser, keeps = weft__server_keeps_base(server);
    size_t at = layer->at;
    if (worker->layers[l].pulled)
        worker->layers[l].version = worker->layers[l].pulled_version;
    for (size_t t = layer->first_tensor; t < layer->first_tensor + layer->tensor_count; t++) {
        const struct weft_piece *tensor = &server->model.tensors[t];
        char *kept = weft__server_flat(server, worker->kept, at);
        if (absent)
            memset(kept, 0, tensor->count * server->element);
        else if (!own_update)
            memcpy(kept, server->gradients[t].data, tensor->count * server->element);
        const void *base =
            worker->layers[l].pulled ? weft__server_flat(server, worker->fresh, at) : tensor->data;
        weft__server_predict(
            server->model.dtype, tensor->data, base, kept,
            keeps && config->momentum > 0 && !own_update
                ? weft__server_flat(server, worker->last, at)
                : NULL,
            config->osp_average > 0 ? weft__server_flat(server, worker->average, at) : NULL,
            own_update ? -1 : worker->rate, config->momentum, config->osp_average, tensor->count);
        at += tensor->count;
    }
}

static int announce(const char *who, struct weft_server *server, size_t l, int absent)
{
    struct worker *worker = &server->worker;
    struct worker_layer *layer = &worker->layers[l];
    if (worker->has_optimiser)
        update_own(server, l, absent);
    if (layer->late)
        predict(server, l, absent);
    layer->pulled = 0;
    layer->absent = absent;
    layer->announced = 1;
    server->stats.pushed_bytes += absent ? 0 : server->layers[l].count * server->element;
    if (++worker->announced == server->layer_count)
        note_computed(server);
    if (layer->ready == WEFT_NODE_NONE)
        return WEFT_OK;
    int status = weft_run_fire(worker->run, layer->ready);
    return status ? outcome(who, server, "an announcement", status) : WEFT_OK;
}

/* A layer, or the beginning of a step of a model without layers. */
static int announce_layer(const char *who, struct weft_server *server, size_t l, int absent)
{
    struct worker *worker = &server->worker;
    struct worker_layer *layer = &worker->layers[l];
    if (worker->in_step && layer->announced)
        return weft_error_set(WEFT_ERR_STATE, "%s: layer %zu has been announced in step %llu", who,
                              l, (unsigned long long)worker->next);
    int status = absent ? WEFT_OK : look_for_bad(who, server, l);
    if (!status && !worker->in_step)
        status = begin_step(who, server);
    return status ? status : announce(who, server, l, absent);
}

int weft_server_ready(struct weft_server *server, size_t layer)
{
    int status = check_layer(__func__, server, layer);
    return status ? status : announce_layer(__func__, server, layer, 0);
}

int weft_server_absent(struct weft_server *server, size_t layer)
{
    int status = check_layer(__func__, server, layer);
    return status ? status : announce_layer(__func__, server, layer, 1);
}

/* ---- waiting ---- */

static void copy_fresh(struct weft_server *server, size_t l)
{
    const struct layer *layer = &server->layers[l];
    size_t at = layer->at;
    for (size_t t = layer->first_tensor; t < layer->first_tensor + layer->tensor_count; t++) {
        const struct weft_piece *tensor = &server->model.tensors[t];
        if (tensor->count)
            memcpy(tensor->data, weft__server_flat(server, server->worker.fresh, at),
                   tensor->count * server->element);
        at += tensor->count;
    }
}

/* Of OSP: an important layer is here, and late ones perhaps. */
static int take_layer(const char *who, struct weft_server *server, size_t l)
{
    struct worker *worker = &server->worker;
    struct worker_layer *layer = &worker->layers[l];
    char what[64];
    if (!server->layers[l].part_count) {
        layer->version = worker->next + 1;
        return WEFT_OK;
    }
    if (layer->late) {
        if (server->config.osp_correction == WEFT_OSP_BEFORE_LAYER &&
            weft_run_wait_node(worker->run, layer->landed, 0) == WEFT_OK) {
            copy_fresh(server, l);
            layer->version = worker->next + 1;
        }
        return WEFT_OK;
    }
    int status = wait_for(server, layer->landed);
    if (status) {
        snprintf(what, sizeof what, "layer %zu in step %llu", l, (unsigned long long)worker->next);
        return outcome(who, server, what, status);
    }
    layer->version = worker->next + 1; /* of BSP and OSP; others are told by the reply */
    if (weft__server_keeps_base(server)) {
        note_change(server, l);
        copy_fresh(server, l);
    }
    return WEFT_OK;
}

static void end_step(struct weft_server *server)
{
    struct worker *worker = &server->worker;
    struct weft_server_result *result = &worker->result;
    /* Who waits sees it later than it was. A layer has landed before its wait ends. */
    uint64_t landed = atomic_load_explicit(&worker->landed_ns, memory_order_relaxed);
    if (landed > worker->last_ready)
        result->synchronised_ns = landed - worker->last_ready;
    if (weft__server_is_osp(server)) {
        result->version = worker->next + 1;
        result->staleness = result->late_layers > 0;
    }
    worker->in_step = 0;
    worker->next++;
    worker->last_result = *result;
    server->stats.steps++;
    server->stats.staleness += result->staleness;
    if (result->staleness > server->stats.staleness_most)
        server->stats.staleness_most = result->staleness;
    server->stats.synchronised_ns += result->synchronised_ns;
    server->stats.late_bytes += result->late_bytes;
}

static int wait_layer(const char *who, struct weft_server *server, size_t l)
{
    struct worker *worker = &server->worker;
    struct worker_layer *layer = &worker->layers[l];
    if (!worker->in_step || layer->waited)
        return WEFT_OK;
    if (!layer->announced)
        return weft_error_set(WEFT_ERR_STATE, "%s: layer %zu has not been announced in step %llu",
                              who, l, (unsigned long long)worker->next);
    int last = worker->waited + 1 == server->layer_count;
    if (last && worker->announced < server->layer_count)
        last = 0;
    int status = take_layer(who, server, l);
    if (!status && last && !weft__server_is_osp(server))
        status = weft__server_end_version(who, server);
    if (status)
        return status;
    layer->waited = 1;
    worker->waited++;
    if (last)
        end_step(server);
    return WEFT_OK;
}

int weft_server_wait(struct weft_server *server, size_t layer)
{
    int status = check_layer(__func__, server, layer);
    return status ? status : wait_layer(__func__, server, layer);
}

static int finish_step(const char *who, struct weft_server *server, int absent,
                       struct weft_server_result *result)
{
    int status = check_worker(who, server);
    if (!status)
        status = weft_sized_check(who, "result", result);
    if (status)
        return status;
    struct worker *worker = &server->worker;
    if (!server->layer_count) {
        if (!worker->in_step)
            status = begin_step(who, server);
        if (!status)
            status = weft__server_end_version(who, server);
        if (!status)
            end_step(server);
    }
    for (size_t l = server->layer_count; l-- > 0 && !status;)
        if (!worker->in_step || !worker->layers[l].announced)
            status = announce_layer(who, server, l, absent);
    for (size_t l = 0; !status && l < server->layer_count; l++)
        status = wait_layer(who, server, l);
    return status ? status
                  : weft_sized_fill(who, "result", result, &worker->last_result,
                                    sizeof worker->last_result);
}

int weft_server_step(struct weft_server *server, struct weft_server_result *result)
{
    return finish_step(__func__, server, 0, result);
}

int weft_server_pull(struct weft_server *server, struct weft_server_result *result)
{
    return finish_step(__func__, server, 1, result);
}

int weft_server_correct(struct weft_server *server)
{
    int status = check_worker(__func__, server);
    if (status)
        return status;
    struct worker *worker = &server->worker;
    if (worker->in_step)
        return weft_error_set(WEFT_ERR_STATE, "%s: step %llu is under way", __func__,
                              (unsigned long long)worker->next);
    status = weft__server_end_version(__func__, server);
    for (size_t l = 0; !status && l < server->layer_count; l++) {
        if (!worker->layers[l].pulled)
            continue;
        copy_fresh(server, l);
        worker->layers[l].version = worker->layers[l].pulled_version;
        worker->layers[l].pulled = 0;
    }
    return status;
}

/* ---- settings between steps ---- */

int weft_server_tell_loss(struct weft_server *server, double loss)
{
    int status = check_worker(__func__, server);
    if (status)
        return status;
    if (!(loss >= 0) || loss > WEFT__SERVER_MOST_REAL)
        return weft_error_set(WEFT_ERR_INVALID, "%s: loss is %g, expected 0 to 1e300", __func__,
                              loss);
    server->worker.loss = loss;
    server->worker.has_loss = 1;
    return WEFT_OK;
}

/* Of the next step as soon as that is known. */
int weft_server_layer_late(struct weft_server *server, size_t layer)
{
    int status = check_layer(__func__, server, layer);
    if (status)
        return 0;
    struct worker *worker = &server->worker;
    if (!worker->in_step && worker->under_way && weft_run_wait(worker->run, 0) == WEFT_OK)
        weft__server_end_version(__func__, server);
    return worker->layers[layer].late;
}

int weft_server_set_rate(struct weft_server *server, double rate)
{
    int status = check_worker(__func__, server);
    if (status)
        return status;
    if (!(rate > 0) || rate > WEFT__SERVER_MOST_REAL)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: rate is %g, expected a number above 0, at most 1e300", __func__,
                              rate);
    if (server->worker.in_step)
        return weft_error_set(WEFT_ERR_STATE, "%s: step %llu is under way", __func__,
                              (unsigned long long)server->worker.next);
    server->worker.rate = rate;
    return WEFT_OK;
}
