/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Series: one object whose versions the engine starts by itself, one after the other.
 *
 * A version is armed as soon as the one before has ended: `arm` chooses plan and bindings, the run
 * of that plan is started, and its events hold it until the application or a signal fires them.
 * Signals are cumulative, so a rank that is behind finds the events of the versions it missed fired
 * already and runs through them: catching up needs nothing else.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/context/accord.h"
#include "runtime/engine/flight.h"
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SERIES_NEW, SERIES_RUNNING, SERIES_OVER };

struct weft_series {
    struct weft_context *context;
    struct weft__object *object;
    struct weft_series *next;
    struct weft_series_config config;
    struct weft_run **runs;
    struct weft__scratch *scratch; /* of all runs */
    size_t count;
    int holding;       /* `arm` has said: not yet */
    uint64_t retry_at; /* when to ask it again */
    atomic_int state;
    int calling;                    /* `arm` or `ended` */
    int failing;                    /* the status, while that is, or an armed version, to end */
    int status;                     /* once over */
    char why[WEFT__ERROR_BYTES];    /* if that is an error; written before it is over */
    _Atomic uint64_t failed;        /* the version that has; UINT64_MAX: none */
    _Atomic uint64_t version;       /* under way, or next */
    _Atomic(struct weft_run *) run; /* of the version under way; NULL between versions */
};

void weft_series_config_init_sized(struct weft_series_config *config, size_t size)
{
    weft_sized_init(config, size);
}

static int check(const char *who, const struct weft_context *context,
                 const struct weft_series_config *given, struct weft_series_config *config)
{
    if (!context || !given)
        return WEFT__INVALID("%s: argument `%s` is NULL", who, !context ? "context" : "config");
    int status = weft_sized_read(who, "config", given, config, sizeof *config);
    if (status != WEFT_OK)
        return status;
    status = weft__object_check(who, "config->object", config->object, context);
    if (status != WEFT_OK)
        return status;
    if (!config->arm)
        return WEFT__INVALID("%s: config->arm is NULL", who);
    if (!config->plans)
        return WEFT__INVALID("%s: config->plans is NULL", who);
    if (config->plan_count == 0)
        return WEFT__INVALID("%s: config->plan_count is %zu, expected at least 1", who,
                             config->plan_count);
    for (size_t p = 0; p < config->plan_count; p++)
        if (!config->plans[p])
            return WEFT__INVALID("%s: config->plans[%zu] is NULL", who, p);
        else if (config->plans[p]->joint_count > 0)
            return WEFT__INVALID(
                "%s: config->plans[%zu] has joint nodes, which a series cannot have "
                "(weft_schedule_write_out())",
                who, p);
    if (!context->has_helper)
        return weft__error(WEFT_ERR_STATE,
                           "%s: the context has caller progress, a series needs "
                           "helper progress (config.progress = WEFT_PROGRESS_HELPER)",
                           who);
    if (config->nccl < WEFT_NCCL_NONE || config->nccl > WEFT_NCCL_IN_ORDER)
        return WEFT__INVALID("%s: config->nccl is %d, expected WEFT_NCCL_NONE or _AGREED", who,
                             (int)config->nccl);
    return WEFT_OK;
}

static void free_series(struct weft_series *series)
{
    for (size_t p = 0; p < series->count; p++)
        weft__run_free(series->runs[p]);
    weft__scratch_release(series->scratch);
    weft__free((void *)series->runs);
    weft__free(series);
}

/* The runs, with scratch for the one that needs most. While driving. */
static int make_runs(struct weft_series *series)
{
    const struct weft_series_config *config = &series->config;
    size_t most = 0, device_most = 0;
    struct weft_run *on_device = NULL; /* whose stream all have: versions run one at a time */
    int status = WEFT_OK;
    for (size_t p = 0; p < config->plan_count; p++) {
        if (config->plans[p]->scratch_bytes > most)
            most = config->plans[p]->scratch_bytes;
        if (config->plans[p]->device_bytes > device_most)
            device_most = config->plans[p]->device_bytes;
    }
    series->runs = weft__calloc(config->plan_count, sizeof *series->runs);
    if (!series->runs)
        return weft__error_memory("the runs of a series");
    if (most > 0 || device_most > 0)
        status = weft__scratch_create(&series->scratch, series->context, most, device_most);
    if (status != WEFT_OK)
        return status;
    for (size_t p = 0; p < config->plan_count; p++) {
        status = weft__run_make(&series->runs[p], series->context, config->plans[p],
                                series->scratch, on_device);
        if (status != WEFT_OK)
            return status;
        series->runs[p]->series = series;
        series->count++;
        if (config->plans[p]->on_device)
            on_device = series->runs[p];
    }
    return WEFT_OK;
}

/* One that is made of what has failed has failed, too. While driving. */
static void fail_new(struct weft_series *series)
{
    const struct weft__engine *engine = &series->context->engine;
    const struct weft__whole *whole = series->object->whole;
    int status = whole ? atomic_load_explicit(&whole->status, memory_order_relaxed) : WEFT_OK;
    if (status < 0)
        weft__series_failed(series, status, whole->text);
    else if (engine->failed < 0)
        weft__series_failed(series, engine->failed,
                            engine->reason ? engine->reason : "the transport has failed");
}

/* A series of this rank alone: driving, and what it is of comes to know it. */
static int make_series(struct weft_series **out, struct weft_context *context,
                       const struct weft_series_config *config)
{
    struct weft_series *series = weft__calloc(1, sizeof *series);
    int status;
    if (!series)
        return weft__error_memory("a series");
    series->context = context;
    series->config = *config;
    atomic_init(&series->version, config->first);
    atomic_init(&series->failed, UINT64_MAX);
    series->retry_at = WEFT__NEVER;
    status = make_runs(series);
    if (status == WEFT_OK)
        status = weft__engine_object(&context->engine, config->plans, config->plan_count, series,
                                     NULL, weft__object_whole(config->object), &series->object);
    if (status != WEFT_OK) {
        free_series(series);
        return status;
    }
    series->object->floor = config->first;
    for (size_t p = 0; p < series->count; p++)
        series->runs[p]->object = series->object;
    series->next = context->all_series;
    context->all_series = series;
    fail_new(series);
    *out = series;
    return WEFT_OK;
}

/* One that all ranks make together: who fails has had a number, too, and tells the others. */
static int make_series_with_all(const char *who, struct weft_series **out,
                                struct weft_context *context,
                                const struct weft_series_config *config, int failed)
{
    struct weft__roll roll;
    struct weft_series *series = NULL;
    int status = weft__roll_open(&roll, context, config->object, who);
    if (status != WEFT_OK)
        return status;
    weft__drive_lock(context);
    if (failed == WEFT_OK)
        failed = make_series(&series, context, config);
    if (failed != WEFT_OK && !config->object)
        context->engine.object_next++;
    weft__drive_unlock(context);
    struct weft__candidate candidate = {.nccl = WEFT_NCCL_AGREED, .dynamic = 1};
    if (series) {
        candidate.runs = series->runs;
        candidate.count = series->count;
        candidate.object = series->object;
    }
    status = weft__accord(&roll, &candidate, failed);
    weft__roll_close(&roll);
    if (status != WEFT_OK && series) {
        struct weft__error_saved saved;
        weft__error_save(&saved);
        weft_series_destroy(series);
        weft__error_restore(&saved);
    }
    *out = series;
    return status;
}

int weft_series_create(struct weft_series **out, struct weft_context *context,
                       const struct weft_series_config *given)
{
    if (!out)
        return WEFT__INVALID("%s: argument `series` is NULL", __func__);
    struct weft_series_config config = {.nccl = WEFT_NCCL_NONE};
    struct weft_series *series = NULL;
    int status = check(__func__, context, given, &config);
    if (context && config.nccl != WEFT_NCCL_NONE &&
        weft__object_check(__func__, "config->object", config.object, context) == WEFT_OK) {
        status = make_series_with_all(__func__, &series, context, &config, status);
    } else if (status == WEFT_OK) {
        weft__drive_lock(context);
        status = make_series(&series, context, &config);
        weft__drive_unlock(context);
    }
    if (status == WEFT_OK)
        *out = series;
    return status;
}

/* Ends the series with a status: nothing of it ends any more. While driving. */
static void end_series(struct weft_series *series, int status)
{
    series->status = status;
    series->holding = 0;
    series->retry_at = WEFT__NEVER;
    atomic_store_explicit(&series->run, NULL, memory_order_release);
    atomic_store_explicit(&series->state, SERIES_OVER, memory_order_seq_cst);
    weft__wake_waiters(series->context); /* nothing else may end any more */
}

/* Remembers when to ask `arm` again. While driving. */
static void ask_again(struct weft_series *series, uint64_t delay)
{
    uint64_t now =
        weft__clock(series->context); /* the engine's time may be that of a step long ago */
    if (delay >= WEFT_NEVER || delay >= WEFT__NEVER - now)
        return;
    series->retry_at = now + delay;
    struct weft__engine *engine = &series->context->engine;
    if (series->retry_at < engine->expires_ns)
        engine->expires_ns = series->retry_at;
}

/* Remembers why the series ends. Not in the error text of the thread, which only happens to drive:
 * its own call may succeed. While driving. */
WEFT_PRINTF(3, 4)
static int tell_why(struct weft_series *series, int status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(series->why, sizeof series->why, format, arguments);
    va_end(arguments);
    return status;
}

/* Whether a version of a plan can begin. While driving. */
static int check_plan(struct weft_series *series, size_t plan)
{
    if (plan >= series->count)
        return tell_why(series, WEFT_ERR_INVALID,
                        "`plan` is %zu, expected less than plan_count, %zu", plan, series->count);
    const struct weft_run *run = series->runs[plan];
    const char *name = run->plan->name;
    for (uint32_t s = 0; s < run->plan->slot_count; s++)
        if (!run->bindings[s].bound && run->plan->slots[s].count != 0)
            return tell_why(series, WEFT_ERR_INVALID, "slot `%s` of plan `%s` is not bound",
                            run->plan->slots[s].name, name);
    if (!weft__run_has_peers(run))
        return tell_why(
            series, WEFT_ERR_INVALID,
            "plan `%s` is of rank %d of %d, expected one of rank %d of at most %d, as the "
            "context, or weft_run_bind_peers()",
            name, run->plan->rank, run->plan->size, weft_context_rank(series->context),
            weft_context_size(series->context));
    if (run->borrowed != 0)
        return tell_why(series, WEFT_ERR_STATE,
                        "the run of `%s` failed and %u transfers are still borrowed", name,
                        run->borrowed);
    return WEFT_OK;
}

/* What `arm` has said of the error that it returned, or what the error is. While driving. */
static int tell_refusal(struct weft_series *series, int status, int said)
{
    if (status > 0)
        return tell_why(series, WEFT_ERR_INVALID,
                        "`arm` returned %d, expected WEFT_OK, WEFT_IN_PROGRESS, WEFT_RETIRED or an "
                        "error",
                        status);
    return tell_why(series, status, "`arm` returned %d: %s", status,
                    said && weft_error_text()[0] != '\0' ? weft_error_text()
                                                         : weft_status_text(status));
}

/* What the application has chosen for the next version. While driving. */
static int choose(struct weft_series *series, struct weft_series_arm *choice)
{
    struct weft__error_saved saved; /* whose call this is in may not fail */
    unsigned texts = weft__error_count();
    weft__error_save(&saved);
    int status = series->config.arm(series->config.user, series, choice);
    int said = weft__error_count() != texts;

    if (status == WEFT_OK)
        status = check_plan(series, choice->plan);
    else if (status == WEFT_IN_PROGRESS && choice->retry_ns == WEFT_NS_NONE)
        status = tell_why(series, WEFT_ERR_INVALID,
                          "`retry_ns` is WEFT_NS_NONE, expected a time or WEFT_NEVER");
    else if (status != WEFT_IN_PROGRESS && status != WEFT_RETIRED)
        status = tell_refusal(series, status, said);
    if (said)
        weft__error_restore(&saved);
    return status;
}

/* A version could not be armed: that is a failure of what the series belongs to. While driving. */
static void fail_object(struct weft_series *series, int status, uint64_t version)
{
    struct weft__engine *engine = &series->context->engine;
    struct weft__whole *whole = series->object->whole;
    char text[WEFT__NEWS_BYTES];
    if (!whole)
        return;
    snprintf(text, sizeof text, "version %llu could not be armed on rank %d: %.320s",
             (unsigned long long)version, engine->transport->rank, series->why);
    const struct weft__news news = {engine->transport->rank, status, text};
    weft__whole_fail(engine, whole, status, text, &news);
}

/* Starts the next version. While driving. */
static void arm(struct weft_series *series)
{
    struct weft_series_arm choice = {0, atomic_load(&series->version), WEFT_NEVER};
    series->calling = 1;
    int status = choose(series, &choice);
    series->calling = 0;
    if (series->failing) { /* by what it has called */
        end_series(series, series->failing);
        return;
    }
    series->holding = status == WEFT_IN_PROGRESS;
    series->retry_at = WEFT__NEVER;
    if (status == WEFT_IN_PROGRESS) {
        ask_again(series, choice.retry_ns);
        return;
    }
    if (status == WEFT_RETIRED) {
        end_series(series, WEFT_OK);
        return;
    }
    if (status != WEFT_OK) {
        weft__log(series->context, WEFT_LOG_ERROR, "series: version %llu could not be armed: %s",
                  (unsigned long long)choice.version, series->why);
        end_series(series, status);
        fail_object(series, status, choice.version);
        return;
    }
    struct weft_run *run = series->runs[choice.plan];
    weft__run_prepare(run, choice.version);
    atomic_store_explicit(&series->run, run, memory_order_release);
    /* Through the command list: versions whose events have all fired would recurse otherwise. */
    weft__command(series->context, run, WEFT__DO_START);
}

void weft__series_ended(struct weft_series *series, struct weft_run *run, int status)
{
    uint64_t version = run->version;
    atomic_store_explicit(&series->run, NULL, memory_order_release);
    if (status != WEFT_OK && !series->failing && atomic_load(&series->state) != SERIES_OVER) {
        tell_why(series, status, "%s", weft_run_error(run));
        atomic_store_explicit(&series->failed, version, memory_order_release);
    }
    series->calling = 1;
    if (series->config.ended)
        series->config.ended(series->config.user, series, version, status);
    series->calling = 0;
    if (status == WEFT_OK) /* else the version stays: it has not been */
        /* Release: who sees the next version sees what `ended` has done. */
        atomic_store_explicit(&series->version, version + 1, memory_order_release);
    if (atomic_load(&series->state) == SERIES_OVER)
        return;
    if (status != WEFT_OK || series->failing)
        end_series(series, series->failing ? series->failing : status);
    else
        arm(series);
}

void weft__series_failed(struct weft_series *series, int status, const char *text)
{
    if (series->failing || atomic_load(&series->state) == SERIES_OVER)
        return;
    tell_why(series, status, "%s", text);
    /* A version that is armed, and has not begun, ends as soon as it begins. */
    if (series->calling || atomic_load_explicit(&series->run, memory_order_relaxed))
        series->failing = status;
    else
        end_series(series, status);
}

void weft__series_all_failed(struct weft_context *context, int status, const char *text)
{
    for (struct weft_series *series = context->all_series; series; series = series->next)
        weft__series_failed(series, status, text);
}

void weft__series_signalled(struct weft_series *series, const struct weft__message *message)
{
    if (series->config.signalled && !series->failing && atomic_load(&series->state) != SERIES_OVER)
        series->config.signalled(series->config.user, series, message->from, message->tag,
                                 message->version);
}

void weft__series_poked(struct weft_series *series)
{
    if (series->failing || atomic_load(&series->state) != SERIES_RUNNING)
        return;
    if (series->config.poked)
        series->config.poked(series->config.user, series);
    if (series->holding)
        arm(series);
}

uint64_t weft__series_due(struct weft_context *context, uint64_t now)
{
    uint64_t next = WEFT__NEVER;
    for (struct weft_series *series = context->all_series; series; series = series->next) {
        if (series->retry_at <= now && series->holding &&
            atomic_load(&series->state) == SERIES_RUNNING)
            arm(series);
        if (series->retry_at < next)
            next = series->retry_at;
    }
    uint64_t due = context->all_objects ? weft__object_due(context, now) : WEFT__NEVER;
    return due < next ? due : next;
}

int weft_series_poke(struct weft_series *series)
{
    if (!series)
        return WEFT__INVALID("%s: argument `series` is NULL", __func__);
    weft__command(series->context, series->runs[0], WEFT__DO_POKE);
    return WEFT_OK;
}

int weft_series_signal(struct weft_series *series, int rank, uint32_t channel, uint64_t version)
{
    if (!series)
        return WEFT__INVALID("%s: argument `series` is NULL", __func__);
    struct weft__transport *transport = series->context->engine.transport;
    if (rank < 0 || rank >= transport->size)
        return WEFT__INVALID("%s: argument `rank` is %d, expected 0 .. %d", __func__, rank,
                             transport->size - 1);
    struct weft__message signal = {.version = version,
                                   .object = series->object->id,
                                   .tag = channel,
                                   .from = transport->rank,
                                   .to = rank,
                                   .kind = WEFT__SIGNAL};
    series->context->engine.stats.signals_sent++;
    int status = transport->ops->control(transport, &signal);
    return status < 0 ? status : WEFT_OK;
}

void weft_series_destroy(struct weft_series *series)
{
    if (!series)
        return;
    struct weft_context *context = series->context;
    struct weft__engine *engine = &context->engine;
    weft__drive_lock(context);
    atomic_store(&series->state, SERIES_OVER);
    for (size_t p = 0; p < series->count; p++)
        weft__run_leave(series->runs[p]);
    weft__drive_commands(context);
    for (size_t p = 0; p < series->count; p++)
        weft__engine_fail(engine, series->runs[p], WEFT_ERR_CANCELLED, WEFT__NONE,
                          engine->transport->rank, "the series is being destroyed");
    for (size_t p = 0; p < series->count; p++) {
        while (weft__run_computes(series->runs[p])) {
            weft__drive_unlock(context);
            int status = weft__yield(context);
            weft__drive_lock(context);
            weft__engine_poll_calls(engine);
            if (status < 0)
                break; /* then it stays borrowed */
        }
        weft__run_regain(series->runs[p]);
        weft__flights_settle(series->runs[p]);
    }
    struct weft_series **link = &context->all_series;
    while (*link != series)
        link = &(*link)->next;
    *link = series->next;
    weft__object_drop(engine, series->object);
    free_series(series);
    weft__run_bury(context, 0);
    weft__drive_unlock(context);
}

struct weft_series *weft__series_loose(const struct weft_context *context)
{
    struct weft_series *series = context->all_series;
    while (series && series->object->whole)
        series = series->next;
    return series;
}

struct weft_run *weft_series_get_run(struct weft_series *series, size_t plan)
{
    if (!series) {
        WEFT__INVALID("%s: argument `series` is NULL", __func__);
        return NULL;
    }
    if (plan >= series->count) {
        WEFT__INVALID("%s: argument `plan` is %zu, expected less than %zu", __func__, plan,
                      series->count);
        return NULL;
    }
    return series->runs[plan];
}

static int start(const char *who, struct weft_series *series, const uint64_t *first)
{
    int fresh = SERIES_NEW;
    if (!atomic_compare_exchange_strong(&series->state, &fresh, SERIES_RUNNING))
        return fresh == SERIES_OVER && series->status < 0 /* also before it was ever started */
                   ? weft__error(series->status, "%s: the series has failed: %s", who, series->why)
                   : weft__error(WEFT_ERR_STATE, "%s: the series has been started", who);
    weft__drive_lock(series->context);
    if (first) {
        series->object->floor = *first;
        atomic_store_explicit(&series->version, *first, memory_order_release);
    }
    if (atomic_load(&series->state) == SERIES_RUNNING) /* else its object has just failed */
        arm(series);
    /* Before others drive: the version may have failed since, which is told who waits for it. */
    int status = atomic_load(&series->state) == SERIES_OVER ? series->status : WEFT_OK;
    weft__drive_unlock(series->context);
    return status == WEFT_OK ? WEFT_OK
                             : weft__error(status, "%s: the first version could not be armed: %s",
                                           who, series->why);
}

int weft_series_start(struct weft_series *series)
{
    return series ? start(__func__, series, NULL)
                  : WEFT__INVALID("%s: argument `series` is NULL", __func__);
}

int weft_series_start_version(struct weft_series *series, uint64_t first)
{
    return series ? start(__func__, series, &first)
                  : WEFT__INVALID("%s: argument `series` is NULL", __func__);
}

int weft_series_fire(struct weft_series *series, uint64_t version, weft_node_t event)
{
    if (!series)
        return WEFT__INVALID("%s: argument `series` is NULL", __func__);
    uint64_t current = atomic_load_explicit(&series->version, memory_order_acquire);
    if (version < current)
        return WEFT_RETIRED;
    int state = atomic_load_explicit(&series->state, memory_order_acquire);
    if (state == SERIES_OVER)
        return weft__error(WEFT_ERR_STATE, "%s: the series has ended", __func__);
    struct weft_run *run = atomic_load_explicit(&series->run, memory_order_acquire);
    if (version > current || !run || state == SERIES_NEW)
        return WEFT_IN_PROGRESS;
    int status = weft__check_event(run->plan, event, __func__);
    if (status != WEFT_OK)
        return status;
    /* The version in the event's word decides if the run has moved on meanwhile. */
    status = weft__run_fire(run, event, &version);
    return status == WEFT_ERR_STATE ? WEFT_RETIRED : status;
}

uint64_t weft_series_version(const struct weft_series *series)
{
    return !series ? 0 : atomic_load_explicit(&series->version, memory_order_acquire);
}

struct series_wait {
    struct weft_series *series;
    uint64_t version;
};

static int has_passed(void *argument)
{
    const struct series_wait *wait = argument;
    return atomic_load_explicit(&wait->series->version, memory_order_acquire) > wait->version ||
           atomic_load_explicit(&wait->series->state, memory_order_acquire) == SERIES_OVER;
}

int weft_series_wait(struct weft_series *series, uint64_t version, uint64_t timeout_ns)
{
    if (!series)
        return WEFT__INVALID("%s: argument `series` is NULL", __func__);
    int status = weft_sized_time(__func__, "timeout_ns", timeout_ns, WEFT_NEVER);
    if (status != WEFT_OK)
        return status;
    struct series_wait wait = {series, version};
    uint64_t until = WEFT__NEVER;
    if (timeout_ns < WEFT_NEVER) {
        until = weft__clock(series->context);
        until = timeout_ns > WEFT__NEVER - 1 - until ? WEFT__NEVER : until + timeout_ns;
    }
    int passed = weft__drive_until(series->context, has_passed, &wait, until, NULL);
    if (passed <= 0)
        return passed < 0 ? passed : WEFT_IN_PROGRESS;
    if (atomic_load_explicit(&series->version, memory_order_acquire) > version)
        return WEFT_OK;
    if (atomic_load_explicit(&series->failed, memory_order_acquire) == version)
        return weft__error(series->status, "%s: version %llu of the series: %s", __func__,
                           (unsigned long long)version, series->why);
    return series->status == WEFT_OK
               ? weft__error(WEFT_ERR_STATE, "%s: the series ended before version %llu", __func__,
                             (unsigned long long)version)
               : weft__error(series->status, "%s: the series ended before version %llu: %s",
                             __func__, (unsigned long long)version, series->why);
}
