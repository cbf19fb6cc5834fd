/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers: their life, and what they tell of themselves. */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/initial.h"
#include "schedules/objects/server/create.h"

/* ---- creation ---- */

static void release(void *user)
{
    weft__server_free(user);
}

enum { WEIGHT, STEP, PULLED, CLOCKS, WORDS };

/* All ranks learn what the workers count, their next steps, and a hash of what servers have of
 * these. Who leaves this knows that all servers have their shares. */
static int gather_words(struct weft_server *server, struct weft_run *gather, uint64_t *mine,
                        uint64_t *all)
{
    size_t size = (size_t)server->size;
    int status = weft_run_bind_input_name(gather, "send", mine, WORDS, WEFT_U64);
    if (!status)
        status = weft_run_bind_name(gather, "recv", all, WORDS * size, WEFT_U64);
    if (!status)
        status = weft_run_set_deadline(gather, server->config.meet_ns);
    return status ? status : weft_run_execute(gather);
}

static int make_gather(struct weft_server *server, struct weft_run **gather, uint64_t **words)
{
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.count = WORDS;
    params.dtype = WEFT_U64;
    *words =
        weft_memory_alloc((size_t)weft_context_size(server->context) + 1, WORDS * sizeof **words);
    if (!*words)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d ranks",
                              weft_context_size(server->context));
    return weft__object_run(gather, server->context, server->object, "allgather", &params);
}

/* After the meeting: nothing of this rank's own is refused any more, but others may fail. */
static int begin(const char *who, struct weft_server *server, struct weft_run *gather,
                 uint64_t *words)
{
    uint64_t mine[WORDS] = {weft__real_word(server->is_worker ? server->config.weight : 0)};
    weft__server_fill_share(server);
    if (server->config.state)
        weft__server_restore(server);
    server->config.state = NULL;
    mine[CLOCKS] = weft__server_hash_clocks(server);
    mine[STEP] = server->worker.next;
    mine[PULLED] = server->worker.restored_version;
    int status = gather_words(server, gather, mine, words);
    for (size_t w = 0; w < server->workers && !status; w++) {
        server->weights[w] = weft__word_real(words[WORDS * w + WEIGHT]);
        server->steps[w] = words[WORDS * w + STEP];
        server->pulled[w] = words[WORDS * w + PULLED];
    }
    if (!status) /* all ranks find the same, whoever says so first */
        status = weft__server_agree_steps(who, server, &words[CLOCKS], WORDS);
    if (!status) {
        weft__server_set_weights(server);
        status = weft__server_start_runs(server);
    }
    if (!status)
        return WEFT_OK;
    char text[512];
    snprintf(text, sizeof text, "%s", weft_error_text());
    int failed = weft_object_check(server->object, who);
    if (failed)
        return failed;
    weft_object_fail(server->object, status, text);
    return weft_error_set(status, "%s", text);
}

static int agree(struct weft__creation *creation, const struct weft_server *server, int failed)
{
    struct weft__setting settings[WEFT__SETTINGS_MOST];
    size_t count = failed ? 0 : weft__server_settings(server, creation, settings);
    return weft__creation_end(creation, settings, count, NULL, failed ? 0 : server->config.meet_ns,
                              failed);
}

static int make(const char *who, struct weft__creation *creation, struct weft_server *server,
                const struct weft_server_config *config)
{
    int status = weft__server_set_up(who, server, config);
    if (!status && config->state)
        status = weft__server_check_state(who, server);
    if (!status)
        status = weft__server_make_ops(server);
    if (!status)
        status = weft__server_make_runs(server);
    if (!status)
        atomic_store_explicit(&server->made, 1, memory_order_release);
    return status ? status
                  : weft__initial_make(creation, config->initial, &server->model, NULL,
                                       config->nan == WEFT_NAN_ERROR, !config->state);
}

static int create(const char *who, struct weft__creation *creation, struct weft_context *context,
                  struct weft_server *server, const struct weft_server_config *config, int failed)
{
    struct weft_object_config object;
    struct weft_run *gather = NULL;
    uint64_t *words = NULL;
    int alone = !failed && config->place == WEFT_SERVER_APART &&
                weft_context_rank(context) < weft_context_size(context) - config->servers;
    weft_object_config_init(&object);
    object.leave_ns = failed ? 0 : config->leave_ns;
    object.silent = alone; /* nobody asks a worker for anything */
    object.failed = server ? weft__server_failed : NULL;
    object.settled = server ? weft__server_settled : NULL;
    object.release = release;
    object.user = server;
    int status = weft__creation_begin(creation, context, who, &object, failed);
    if (server) {
        server->context = context;
        server->object = creation->object;
    }
    if (!status)
        status = make_gather(server, &gather, &words);
    if (!status)
        status = make(who, creation, server, config);
    status = agree(creation, server, status);
    if (!status)
        status = begin(who, server, gather, words);
    weft_run_destroy(gather);
    weft_memory_free(words);
    return status;
}

int weft_server_create(struct weft_server **out, struct weft_context *context,
                       const struct weft_server_config *given)
{
    if (!context)
        return weft_error_set(WEFT_ERR_INVALID, "%s: context is NULL", __func__);
    struct weft_server_config config;
    struct weft__creation creation;
    struct weft_server *server = NULL;
    int status = out ? weft__server_check(__func__, context, given, &config)
                     : weft_error_set(WEFT_ERR_INVALID, "%s: server is NULL", __func__);
    if (!status && !(server = weft_memory_alloc(1, sizeof *server)))
        status = weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", __func__);
    status = create(__func__, &creation, context, server, &config, status);
    if (!status) {
        *out = server;
        return WEFT_OK;
    }
    if (server)
        weft__server_free(server);
    else
        weft_object_destroy(creation.object);
    return status;
}

/* ---- what it tells ---- */

int weft_server_is_worker(const struct weft_server *server)
{
    return server && server->is_worker;
}

int weft_server_workers(const struct weft_server *server)
{
    return server ? (int)server->workers : 0;
}

int weft_server_index(const struct weft_server *server)
{
    return server ? server->host.index : -1;
}

uint64_t weft_server_next(const struct weft_server *server)
{
    return server ? server->worker.next : 0;
}

uint64_t weft_server_layer_version(const struct weft_server *server, size_t layer)
{
    return server && server->is_worker && layer < server->layer_count
               ? server->worker.layers[layer].version
               : 0;
}

int weft_server_get_result(const struct weft_server *server, struct weft_server_result *result)
{
    if (!server || !result)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %s is NULL", __func__,
                              server ? "result" : "server");
    return weft_sized_fill(__func__, "result", result, &server->worker.last_result,
                           sizeof server->worker.last_result);
}

int weft_server_get_tuning(const struct weft_server *server, struct weft_osp_tuning *tuning)
{
    if (!server || !tuning)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %s is NULL", __func__,
                              server ? "tuning" : "server");
    return weft_sized_fill(__func__, "tuning", tuning, &server->worker.tuning,
                           sizeof server->worker.tuning);
}

static uint64_t load(const atomic_uint_least64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

void weft__server_count(const struct weft_server *server, struct weft_server_stats *stats)
{
    const struct host *host = &server->host;
    *stats = server->stats;
    stats->struct_size = sizeof *stats;
    stats->updates += load(&host->applied);
    stats->pushes += load(&host->pushes);
    stats->received_bytes += load(&host->received);
    stats->sent_bytes += load(&host->sent);
    if (load(&host->ahead) > stats->ahead_most)
        stats->ahead_most = load(&host->ahead);
}

int weft_server_get_stats(const struct weft_server *server, struct weft_server_stats *stats)
{
    struct weft_server_stats counted;
    if (!server || !stats)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %s is NULL", __func__,
                              server ? "stats" : "server");
    weft__server_count(server, &counted);
    return weft_sized_fill(__func__, "stats", stats, &counted, sizeof counted);
}

/* ---- serving, and the end ---- */

int weft_server_serve(struct weft_server *server, uint64_t timeout_ns)
{
    if (!server)
        return weft_error_set(WEFT_ERR_INVALID, "%s: server is NULL", __func__);
    int status = weft_sized_time(__func__, "timeout_ns", timeout_ns, WEFT_NEVER);
    if (status)
        return status;
    if (server->is_worker)
        return weft_error_set(WEFT_ERR_STATE,
                              "%s: rank %d is a worker, expected one that is a server alone",
                              __func__, server->rank);
    int failed = weft_object_check(server->object, __func__);
    if (failed)
        return failed;
    status = weft_run_wait(server->host.over, timeout_ns);
    failed = weft_object_check(server->object, __func__);
    return failed ? failed : status;
}

int weft_server_fail(struct weft_server *server, int status, const char *text)
{
    return server ? weft__object_give_up(__func__, server->object, status, text)
                  : weft_error_set(WEFT_ERR_INVALID, "%s: server is NULL", __func__);
}

/* A worker's last step comes to its end, which the others need; then it says that it has left. */
static int leave(const char *who, struct weft_server *server)
{
    struct worker *worker = &server->worker;
    if (worker->in_step && worker->announced < server->layer_count) {
        size_t l = server->layer_count - 1;
        while (l > 0 && worker->layers[l].announced)
            l--;
        char text[128];
        snprintf(text, sizeof text, "it has left in step %llu, layer %zu has not been announced",
                 (unsigned long long)worker->next, l);
        weft_object_fail(server->object, WEFT_ERR_CANCELLED, text);
        return weft_error_set(WEFT_ERR_STATE, "%s: %s", who, text);
    }
    int status = worker->under_way ? weft__object_end_run(who, server->object, worker->run,
                                                          server->config.leave_ns)
                                   : WEFT_OK;
    if (!status)
        status = weft_run_start(server->door);
    return status;
}

int weft_server_destroy(struct weft_server *server)
{
    if (!server)
        return WEFT_OK;
    int status = weft_object_check(server->object, __func__);
    if (!status && server->is_worker)
        status = leave(__func__, server);
    char text[512];
    snprintf(text, sizeof text, "%s", status ? weft_error_text() : "");
    weft_object_leave(server->object); /* the context has it from now on, and may have freed it */
    return status ? weft_error_set(status, "%s", text) : WEFT_OK;
}
