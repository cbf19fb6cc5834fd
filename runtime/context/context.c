/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts: made of a transport, with the settings that the caller and the environment give, or of
 * a part of another. */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/topology.h"
#include "runtime/context/part.h"
#include "runtime/cost/model.h"
#include "runtime/engine/flight.h"
#include "runtime/engine/gate.h"
#include "runtime/engine/issuer.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weft/sim.h>
#include <weft/version.h>

#define SLICE_BYTES   ((size_t)256 << 10)
#define SEGMENT_BYTES ((size_t)256 << 10)
#define SEGMENT_MOST  ((size_t)1 << 30)
#define SPIN_NS       UINT64_C(2000)
#define SLEEP_MIN_NS  UINT64_C(20000)
#define SLEEP_MAX_NS  UINT64_C(15000000)

void weft_context_config_init_sized(struct weft_context_config *config, size_t size)
{
    weft_sized_init(config, size);
}

int weft__context_config_read(const char *who, const char *name,
                              const struct weft_context_config *given,
                              struct weft_context_config *config)
{
    int status = weft_sized_read(who, name, given, config, sizeof *config);
    const struct {
        const char *name;
        int value, most;
    } choices[] = {{"progress", (int)config->progress, WEFT_PROGRESS_HELPER},
                   {"log_level", (int)config->log_level, WEFT_LOG_DEBUG},
                   {"bind_helper", (int)config->bind_helper, WEFT_BIND_OFF},
                   {"device_way", (int)config->device_way, WEFT_DEVICE_WAY_STAGED},
                   {"keep_apart", (int)config->keep_apart, WEFT_BIND_OFF}};
    /* Over several hosts a sleeper polls MPI when it wakes, so it must wake. */
    const struct {
        const char *name;
        uint64_t value, special;
    } times[] = {{"sleep_min_ns", config->sleep_min_ns, WEFT_NS_NONE},
                 {"sleep_max_ns", config->sleep_max_ns, WEFT_NS_NONE},
                 {"stall_ns", config->stall_ns, WEFT_NEVER}};
    char member[64];

    for (size_t i = 0; !status && i < sizeof choices / sizeof *choices; i++) {
        snprintf(member, sizeof member, "%s->%s", name, choices[i].name);
        status = weft_sized_number(who, member, choices[i].value, 0, choices[i].most);
    }
    for (size_t i = 0; !status && i < sizeof times / sizeof *times; i++) {
        snprintf(member, sizeof member, "%s->%s", name, times[i].name);
        status = weft_sized_time(who, member, times[i].value, times[i].special);
    }
    if (!status && config->sleep_max_ns != 0 && config->sleep_min_ns != WEFT_NS_NONE &&
        config->sleep_min_ns > config->sleep_max_ns)
        status = WEFT__INVALID("%s: %s->sleep_min_ns is %llu, expected at most %s->sleep_max_ns, "
                               "which is %llu",
                               who, name, (unsigned long long)config->sleep_min_ns, name,
                               (unsigned long long)config->sleep_max_ns);
    if (!status && config->segment_bytes > SEGMENT_MOST)
        status = WEFT__INVALID("%s: %s->segment_bytes is %zu, expected at most %zu", who, name,
                               config->segment_bytes, SEGMENT_MOST);
    return status;
}

/* Inside, durations are plain numbers: 0 is none at all, and a stall of 0 is never reported. */
static void settle(uint64_t *value, uint64_t standard)
{
    if (*value == 0)
        *value = standard;
    else if (*value == WEFT_NS_NONE)
        *value = 0;
}

/* The other way round, for who asks. */
static void unsettle(uint64_t *value)
{
    if (*value == 0)
        *value = WEFT_NS_NONE;
}

static void settle_config(struct weft_context_config *config,
                          const struct weft__transport *transport)
{
    weft__env_apply(config);
    if (config->progress == WEFT_PROGRESS_DEFAULT)
        config->progress = WEFT_PROGRESS_CALLER;
    if (config->log_level == WEFT_LOG_DEFAULT)
        config->log_level = WEFT_LOG_WARNING;
    int room = weft__topology_holds(transport->local_ranks);
    settle(&config->spin_ns, room ? SPIN_NS : 0);
    settle(&config->yield_ns, transport->about->yield_ns);
    settle(&config->sleep_min_ns, SLEEP_MIN_NS);
    settle(&config->sleep_max_ns, SLEEP_MAX_NS);
    settle(&config->helper_yield_ns, transport->about->helper_yield_ns);
    if (config->bind_helper == WEFT_BIND_DEFAULT)
        config->bind_helper = WEFT_BIND_ON;
    if (config->keep_apart == WEFT_BIND_DEFAULT)
        config->keep_apart = WEFT_BIND_ON;
    if (config->stall_ns == WEFT_NEVER)
        config->stall_ns = 0;
    if (config->sleep_min_ns == 0)
        config->sleep_min_ns = 1;
    if (config->sleep_max_ns < config->sleep_min_ns)
        config->sleep_max_ns = config->sleep_min_ns;
    if (config->slice_bytes == 0)
        config->slice_bytes = SLICE_BYTES;
    if (config->slice_bytes < WEFT__SLICE_MIN)
        config->slice_bytes = WEFT__SLICE_MIN;
    if (config->segment_bytes == 0)
        config->segment_bytes = SEGMENT_BYTES;
    config->segment_bytes += WEFT__STAGE_UNIT - 1;
    config->segment_bytes -= config->segment_bytes % WEFT__STAGE_UNIT;
}

static void log_creation(const struct weft_context *context)
{
    const struct weft__transport *transport = context->engine.transport;
    char progress[64] = "caller progress";
    if (transport->ops->block)
        snprintf(progress, sizeof progress, "virtual time");
    else if (context->has_helper && context->helper_thread < 0)
        snprintf(progress, sizeof progress, "helper progress");
    else if (context->has_helper)
        snprintf(progress, sizeof progress, "helper progress on hardware thread %d",
                 context->helper_thread);
    weft__log(context, WEFT_LOG_INFO, "%s context of %d ranks, %s", transport->about->name,
              transport->size, progress);
}

static void all_failed(struct weft_context *context, int status, const char *text)
{
    weft__series_all_failed(context, status, text);
    weft__family_abort(context, status, text);
}

static const struct weft__host host = {
    .wake_waiters = weft__wake_waiters,
    .log = weft__log,
    .report_log = weft__report_log,
    .report_missing = weft__report_missing,
    .report_unmatched = weft__report_unmatched,
    .state_dump = weft__state_dump,
    .device_needed = weft__device_needed,
    .gate_open = weft__gate_open,
    .gate_fire = weft__gate_fire,
    .series_due = weft__series_due,
    .series_failed = weft__series_failed,
    .whole_failed = weft__object_failed_whole,
    .whole_signalled = weft__object_signalled,
    .all_failed = all_failed,
    .delivered = weft__family_delivered,
    .invited = weft__family_invited,
    .left = weft__family_left,
    .died = weft__family_died,
    .reported = weft__family_reported,
    .returned = weft__invitations_look,
    .series_ended = weft__series_ended,
    .reclaimed = weft__object_reclaimed,
    .series_signalled = weft__series_signalled,
    .helps = weft__helps,
};

/* What every context begins with; its settings and its root are set. */
static int set_up(struct weft_context *context, struct weft__transport *transport)
{
    struct weft__engine *engine = &context->engine;
    context->process = (int)getpid();
    engine->transport = transport;
    engine->host = &host;
    engine->context = context;
    engine->family = &context->root->engine;
    context->commanded.kind = WEFT__OF_CONTEXT;
    engine->slice_bytes = context->config.slice_bytes;
    engine->segment_bytes = context->config.segment_bytes;
    transport->device_way = (int)context->config.device_way;
    engine->expires_ns = WEFT__NEVER;
    engine->sequence.id = WEFT__SEQUENCE;
    engine->sequence.failing = UINT64_MAX;
    transport->engine = engine;
    weft__memories_open(&context->memories);
    for (int memory = WEFT_MEMORY_HOST; memory <= WEFT_MEMORY_DEVICE; memory++)
        weft__memories_open(&context->device_memories[memory]);
    int status = weft__match_reserve(&engine->match, 0);
    if (status == WEFT_OK)
        status = weft__recorder_open(context);
    if (status == WEFT_OK && weft__env_state() &&
        !(context->state_directory = weft__strdup(weft__env_state())))
        status = weft__error_memory("a context");
    return status;
}

int weft__context_create(struct weft_context **out, struct weft__transport *transport,
                         const struct weft_context_config *config)
{
    struct weft_context *context = weft__calloc(1, sizeof *context);
    if (!context) {
        transport->ops->close(transport);
        return weft__error_memory("a context");
    }
    struct weft__engine *engine = &context->engine;
    context->config = *config;
    context->root = context;
    settle_config(&context->config, transport);
    int status = set_up(context, transport);
    if (status == WEFT_OK && config->device) {
        context->config.device = context->device_name = weft__strdup(config->device);
        if (!context->device_name)
            status = weft__error_memory("a context");
    }
    if (status == WEFT_OK)
        status = weft__seating_open(context);
    if (transport->ops->block) {
        context->config.progress = WEFT_PROGRESS_HELPER; /* the transport itself */
        context->has_helper = 1;
    } else if (status == WEFT_OK && context->config.progress == WEFT_PROGRESS_HELPER) {
        status = weft__helper_start(context);
    }
    if (status != WEFT_OK) {
        weft__recorder_close(context, 0);
        transport->ops->close(transport);
        weft__context_free(context);
        return status;
    }
    context->cost = weft__env_cost(context);
    if (engine->recorder)
        weft__trace_watch(context);
    log_creation(context);
    weft__process_add(context);
    *out = context;
    return WEFT_OK;
}

int weft__context_child(struct weft_context **out, const struct weft_context *parent,
                        struct weft__part *part)
{
    struct weft_context *context = weft__calloc(1, sizeof *context);
    if (!context)
        return weft__error_memory("a context");
    context->config = parent->config;
    context->root = parent->root;
    context->part = part;
    context->has_helper = parent->has_helper;
    context->helper_thread = parent->helper_thread;
    int status = set_up(context, &part->base);
    if (status == WEFT_OK && parent->cost) {
        context->cost = weft__malloc(1, sizeof *context->cost);
        if (context->cost)
            *context->cost = *parent->cost;
        else
            status = weft__error_memory("a context");
    }
    if (status != WEFT_OK) {
        weft__recorder_close(context, 0);
        weft__context_free(context);
        return status;
    }
    *out = context;
    return WEFT_OK;
}

void weft__context_begun(struct weft_context *context)
{
    if (context->engine.recorder)
        weft__trace_watch(context);
    log_creation(context);
}

void weft__context_drop_messages(struct weft_context *context)
{
    struct weft__engine *engine = &context->engine;
    struct weft__transport *transport = engine->transport;
    weft__invitations_drop(context);
    weft__engine_drop(engine, engine->sequence.failed);
    engine->sequence.failed = NULL;
    for (size_t b = 0; b <= engine->match.mask; b++)
        while (engine->match.buckets[b]) {
            struct weft__message *message = engine->match.buckets[b];
            engine->match.buckets[b] = message->next;
            transport->ops->release(transport, message, 0);
        }
    while (engine->early) {
        struct weft__message *message = engine->early;
        engine->early = message->next;
        transport->ops->release(transport, message, 0);
    }
}

void weft__context_abort(struct weft_context *context, const char *text)
{
    weft__drive_lock(context);
    struct weft__engine *engine = &context->engine;
    /* Between two runs, too: who has left nothing is taken for dead. */
    if (engine->active || context->state_number == 0)
        weft__family_dump(context, "another rank has failed");
    weft__engine_abort(engine, WEFT_ERR_CANCELLED, text);
    weft__drive_unlock(context);
}

void weft__context_aborted(struct weft_context *context)
{
    struct weft__engine *engine = &context->engine;
    int rank = engine->transport->rank;
    /* Acquire pairs with the release in weft_context_abort(). */
    if (atomic_load_explicit(&context->aborting, memory_order_acquire) != 2 || engine->failed < 0)
        return;
    const char *given = context->abort_text && context->abort_text[0]
                            ? context->abort_text
                            : weft_status_text(context->abort_status);
    char text[WEFT__NEWS_BYTES + 64];
    snprintf(text, sizeof text, "rank %d has aborted: %.*s", rank, WEFT__NEWS_BYTES, given);
    const struct weft__news news = {rank, context->abort_status, given};
    weft__family_dump(context, text);
    weft__engine_tell(engine, WEFT__EVERY_OBJECT, &news);
    weft__engine_abort(engine, context->abort_status, text);
}

/* So often memory for the text is asked for. */
enum { ABORT_TRIES = 100 };

int weft_context_abort(struct weft_context *context, int status, const char *text)
{
    if (!context)
        return WEFT__INVALID("%s: argument `context` is NULL", __func__);
    if (status >= 0)
        return WEFT__INVALID("%s: argument `status` is %d, expected an error", __func__, status);
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&context->aborting, &none, 1))
        return WEFT_OK; /* the first one counts */
    context->abort_status = status;
    /* Tried again: it is what everybody wants to know. NULL: the status alone tells. */
    for (int i = 0; !context->abort_text && i < ABORT_TRIES; i++)
        context->abort_text = weft__strdup(text ? text : "");
    atomic_store_explicit(&context->aborting, 2, memory_order_release);
    weft__command_give(context, &context->commanded, WEFT__DO_FAIL, 0);
    return WEFT_OK;
}

void weft__context_leave(struct weft_context *context)
{
    struct weft__transport *transport = context->engine.transport;
    void (*leave)(struct weft__transport *) =
        context->has_helper ? transport->ops->retire : transport->ops->leave;
    if (!leave)
        return;
    weft__drive_lock(context);
    weft__engine_tell_rest(&context->engine);
    leave(transport);
    weft__drive_unlock(context);
}

void weft__context_free(struct weft_context *context)
{
    struct weft__engine *engine = &context->engine;
    weft__free(context->seating.said);
    weft__bounce_close(engine);
    weft__staging_close(engine);
    weft__gates_close(engine);
    weft__issuer_close(context->issuer);
    weft__context_device_close(context);
    weft__free(context->device_name);
    weft__memories_close(&context->memories, NULL, NULL);
    weft__match_close(&engine->match);
    weft__free((void *)engine->objects);
    weft__free(engine->gone);
    weft__deaths_free(engine);
    weft__told_free(engine);
    weft__free(engine->failed_numbers);
    weft__free(engine->reason);
    weft__free(context->abort_text);
    weft__free(context->state_directory);
    weft__free(context->cost);
    weft__free(context);
}

int weft_context_destroy(struct weft_context *context)
{
    if (!context)
        return WEFT_OK;
    if (context->process != (int)getpid())
        return WEFT_OK; /* it lives on in the process that this one was forked from */
    if (context->part) {
        weft__family_destroy(context);
        return WEFT_OK;
    }
    struct weft__engine *engine = &context->engine;
    struct weft__transport *transport = engine->transport;
    weft__process_remove(context);
    weft__attachments_end(context);
    weft__family_destroy_all(context);
    weft__object_end_all(context);
    weft__family_end_all(context);
    while (context->all_series)
        weft_series_destroy(context->all_series);
    weft__drive_lock(context); /* a callback may destroy one meanwhile */
    while (context->runs)
        weft__run_end(context->runs);
    weft__drive_unlock(context);
    weft__trace_unwatch(context);
    weft__helper_stop(context);
    weft__seating_close(context);
    weft__drive_lock(context);
    int failed = engine->failed == WEFT_ERR_TRANSPORT;
    weft__engine_tell_rest(engine);
    weft__engine_step(engine, engine->now);
    weft__engine_tell_rest(engine); /* of what has come in it */
    weft__recorder_close(context, 1);
    weft__run_bury(context, 0);
    weft__context_drop_messages(context);
    if (transport->ops->keep) {
        weft__run_bury(context, 1);
        transport->ops->close(transport);
        context->closed = 1;
    } else {
        transport->ops->close(transport);
        context->closed = 1;
        weft__run_bury_closed(context);
    }
    weft__family_free(context);
    weft__context_free(context);
    return failed ? weft__error(WEFT_ERR_TRANSPORT, "%s: the transport of the context has failed",
                                __func__)
                  : WEFT_OK;
}

int weft_context_rank(const struct weft_context *context)
{
    return !context ? WEFT__INVALID("%s: argument `context` is NULL", __func__)
                    : context->engine.transport->rank;
}

int weft_context_size(const struct weft_context *context)
{
    return !context ? WEFT__INVALID("%s: argument `context` is NULL", __func__)
                    : context->engine.transport->size;
}

weft_progress_t weft_context_progress_mode(const struct weft_context *context)
{
    if (!context)
        return WEFT_PROGRESS_DEFAULT;
    return context->has_helper ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
}

const char *weft_context_transport(const struct weft_context *context)
{
    return !context ? "" : context->engine.transport->about->name;
}

const struct weft_cost_model *weft__context_cost(const struct weft_context *context)
{
    const struct weft_transport *about = context->engine.transport->about;
    return context->cost ? context->cost : about->cost ? about->cost : &weft__cost_standard;
}

int weft_context_get_cost(const struct weft_context *context, struct weft_cost_model *model)
{
    if (!context || !model)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !context ? "context" : "model");
    struct weft_cost_model full = *weft__context_cost(context);
    /* Of one host all ranks count the same. */
    if (full.cores == 0 && weft_context_host_count(context) == 1 &&
        !context->engine.transport->about->virtual_time)
        full.cores = (size_t)weft__topology_cores();
    return weft_sized_fill(__func__, "model", model, &full, sizeof *model);
}

int weft__companion_check(const char *companion, const char *version, uint64_t layout)
{
    if (strcmp(version, WEFT_VERSION) == 0 && layout == WEFT__LAYOUT)
        return WEFT_OK;
    return weft__error(WEFT_ERR_STATE,
                       "%s %s does not belong to libweft %s%s: install both from one build",
                       companion, version, WEFT_VERSION,
                       strcmp(version, WEFT_VERSION) == 0 ? " (another build of it)" : "");
}

int weft_context_hosts(const struct weft_context *context, int *hosts)
{
    if (!context || !hosts)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !context ? "context" : "hosts");
    struct weft__transport *transport = context->engine.transport;
    if (transport->ops->hosts)
        return transport->ops->hosts(transport, hosts);
    memset(hosts, 0, (size_t)transport->size * sizeof *hosts);
    return WEFT_OK;
}

int weft_context_host_count(const struct weft_context *context)
{
    if (!context)
        return 0;
    return context->engine.transport->host_count > 0 ? context->engine.transport->host_count : 1;
}

int weft_context_get_config(const struct weft_context *context, struct weft_context_config *config)
{
    if (!context || !config)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__,
                             !context ? "context" : "config");
    struct weft_context_config settled = context->config;
    unsettle(&settled.spin_ns);
    unsettle(&settled.yield_ns);
    unsettle(&settled.helper_yield_ns);
    if (settled.stall_ns == 0)
        settled.stall_ns = WEFT_NEVER;
    return weft_sized_fill(__func__, "config", config, &settled, sizeof settled);
}

void weft_context_log(struct weft_context *context, weft_log_level_t level, const char *line)
{
    if (context && line)
        weft__log(context, level, "%s", line);
}

int weft_context_get_stats(struct weft_context *context, struct weft_context_stats *stats)
{
    if (!context || !stats)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !context ? "context" : "stats");
    weft__drive_lock(context);
    struct weft_context_stats counted = context->engine.stats;
    weft__drive_unlock(context);
    return weft_sized_fill(__func__, "stats", stats, &counted, sizeof counted);
}
