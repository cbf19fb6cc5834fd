/* SPDX-License-Identifier: BSD-3-Clause */
/* Group averaging from the user: steps, questions, the end (group_average.h has the idea). */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/agreement.h"
#include "schedules/objects/group_average/group_average.h"

#define PATIENCE_LEAST 100 /* shares of the time between steps */
#define PATIENCE_MOST  10
#define PATIENCE_WEARS 256

#define MOST_ASKING_NS UINT64_C(1000000000)

/* ---- steps ---- */

#define REQUIRE_OBJECT(average)                                                                    \
    do {                                                                                           \
        if (!(average))                                                                            \
            return weft_error_set(WEFT_ERR_INVALID, "%s: argument `average` is NULL", __func__);   \
    } while (0)

/*
 * Patience by default: a share of the time between steps. It grows, up to a larger share, where
 * waiting a little longer would have made a stale step a fresh one, and wears off again where it
 * would not: so ranks that are in step but for some jitter become patient enough for it, and nobody
 * waits for a rank that is really late. late_ns: since the start of this step's version, 0: not
 * late.
 */
static void adapt(struct weft_group_average *average, uint64_t now, uint64_t late_ns)
{
    uint64_t patience = atomic_load_explicit(&average->patience_ns, memory_order_relaxed);
    uint64_t last = average->last_step_ns;
    average->last_step_ns = now;
    if (!last || average->config.patience_ns != 0)
        return;
    uint64_t took = now - last;
    average->step_ns = average->step_ns ? (7 * average->step_ns + took) / 8 : took;
    uint64_t least = average->step_ns / PATIENCE_LEAST, most = average->step_ns / PATIENCE_MOST;
    if (late_ns && late_ns <= most) /* it had been held already */
        patience += 2 * late_ns;
    else if (patience > least)
        patience -= (patience - least) / PATIENCE_WEARS;
    if (patience < least)
        patience = least;
    if (patience > most)
        patience = most;
    atomic_store_explicit(&average->patience_ns, patience, memory_order_release);
}

/* Looks at the clock and the versions as a step begins. */
static void measure(struct weft_group_average *average, uint64_t step)
{
    uint64_t now = weft_context_now(average->context), late = 0;
    pthread_mutex_lock(&average->lock);
    if (atomic_load(&average->started) == step + 1 && now > average->started_ns)
        late = now - average->started_ns;
    pthread_mutex_unlock(&average->lock);
    adapt(average, now, late);
}

static void count_behind(struct weft_group_average *average, uint64_t step)
{
    uint64_t started = atomic_load_explicit(&average->started, memory_order_acquire);
    uint64_t behind = started > step ? started - step : 0;
    size_t bucket = behind < 4 ? (size_t)behind : 4;
    for (; bucket >= 4 && bucket < WEFT_AVERAGE_BEHIND - 1 && behind >> (bucket - 1) > 0; bucket++)
        continue;
    pthread_mutex_lock(&average->lock);
    average->stats.behind[bucket]++;
    pthread_mutex_unlock(&average->lock);
}

void weft__average_arrive(struct weft_group_average *average, uint64_t step)
{
    int fired = WEFT_RETIRED;
    measure(average, step);
    count_behind(average, step);
    /* Sequentially consistent: whoever arms the version after this sees it. */
    atomic_store(&average->arrived, step + 1);
    if (average->activation &&
        (weft__average_syncs(average, step) || weft__average_activates(average, step))) {
        fired = weft_series_fire(average->activation, step, average->application);
        if (fired == WEFT_IN_PROGRESS)
            weft_series_poke(average->activation);
    }
    if (fired != WEFT_OK || atomic_load(&average->somebody_left))
        /* else the end of the activation does it */
        weft_series_poke(average->versions);
}

static int end(struct weft_group_average *average, struct weft_group_average_result *result,
               const char *who);

/* A step that a stream waits for ends by itself; if nobody has asked for it, what it has got is
 * nobody's, but errors are. */
static int end_on_stream(struct weft_group_average *average, const char *who)
{
    return average->device && average->device->on_stream ? end(average, NULL, who) : WEFT_OK;
}

int weft__average_begin_step(struct weft_group_average *average,
                             const struct weft__average_begin *begins)
{
    int status = end_on_stream(average, begins->who);
    if (!status)
        status = weft__step_check_none(begins->who, average->step, average->next);
    if (!status)
        status = weft_object_check(average->object, begins->who);
    if (status)
        return status;
    if (average->device)
        status = weft__average_device_post(average, begins);
    else if (!weft__average_publish(average, average->next))
        status = weft__bad_refuse(begins->who, average->next, &average->bad);
    if (status)
        return status;
    average->step = begins->step;
    if (!average->device) /* else it has arrived with its contribution */
        weft__average_arrive(average, average->next);
    return WEFT_OK;
}

/* Who has not arrived, once the deadline is near: they are asked in what is left of it. */
static int late(struct weft_group_average *average, uint64_t step, uint64_t began, const char *who)
{
    char missing[320];
    uint64_t end = began + average->config.deadline_ns, now;
    pthread_mutex_lock(&average->asking);
    int asks = average->ranks <= WEFT__AVERAGE_ASKS;
    now = weft_context_now(average->context); /* who did not run for a while may be too late */
    int status =
        (asks ? weft__average_ask : weft__average_chase)(average, step, now < end ? end - now : 0);
    now = weft_context_now(average->context);
    if (status == WEFT_IN_PROGRESS && now < end)
        status = weft_series_wait(average->versions, step, end - now);
    if (asks)
        weft__average_missing(average, step, missing, sizeof missing);
    else
        weft__average_chased(average, missing, sizeof missing);
    pthread_mutex_unlock(&average->asking);
    if (status != WEFT_IN_PROGRESS)
        return status;
    return weft_error_set(WEFT_ERR_TIMEOUT, "%s: version %llu%s has not ended after %.3f s: %s",
                          who, (unsigned long long)step,
                          weft__average_syncs(average, step) ? ", a synchronisation," : "",
                          (double)(weft_context_now(average->context) - began) * 1e-9, missing);
}

static void log_stall(struct weft_group_average *average)
{
    char *text;
    if (weft_group_average_report(average, UINT64_C(1000000000), &text) != WEFT_OK)
        return;
    for (char *line = text, *end; line && *line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        weft_context_log(average->context, WEFT_LOG_WARNING, line);
    }
    weft_memory_free(text);
}

/* Of a deadline so much is for asking who is missing. */
static uint64_t asking_ns(uint64_t deadline)
{
    return deadline / 4 < MOST_ASKING_NS ? deadline / 4 : MOST_ASKING_NS;
}

uint64_t weft__average_left(const struct weft_group_average *average, uint64_t began)
{
    uint64_t deadline = average->config.deadline_ns ? average->config.deadline_ns : WEFT_NEVER;
    uint64_t waited = weft_context_now(average->context) - began;
    return deadline == WEFT_NEVER ? WEFT_NEVER : waited < deadline ? deadline - waited : 0;
}

int weft__average_late_stream(const struct weft_group_average *average, const char *who,
                              const char *where, uint64_t began)
{
    return weft_error_set(WEFT_ERR_TIMEOUT,
                          "%s: the stream has not got to %s of step %llu in %.3f s", who, where,
                          (unsigned long long)average->next,
                          (double)(weft_context_now(average->context) - began) * 1e-9);
}

/* Waits until the version of a step has ended. */
static int await(struct weft_group_average *average, uint64_t step, uint64_t began, const char *who)
{
    if (weft_series_version(average->versions) > step)
        return WEFT_OK;
    uint64_t start = weft_context_now(average->context), stall = average->stall_ns;
    uint64_t waited = start - began,
             deadline = average->config.deadline_ns ? average->config.deadline_ns : WEFT_NEVER;
    uint64_t quiet = deadline >= WEFT_NEVER - began ? WEFT_NEVER : deadline - asking_ns(deadline);
    int status = WEFT_IN_PROGRESS;
    while (status == WEFT_IN_PROGRESS && waited < quiet) {
        uint64_t limit = quiet == WEFT_NEVER ? WEFT_NEVER : quiet - waited;
        if (stall && stall > waited && stall - waited < limit)
            limit = stall - waited;
        status = weft_series_wait(average->versions, step, limit);
        waited = weft_context_now(average->context) - began;
        if (status == WEFT_IN_PROGRESS && stall && waited >= stall && waited < quiet) {
            log_stall(average);
            stall = 2 * waited;
        }
    }
    if (status == WEFT_IN_PROGRESS)
        status = late(average, step, began, who);
    waited = weft_context_now(average->context) - start;
    pthread_mutex_lock(&average->lock);
    average->stats.waited_ns += waited;
    if (weft__average_syncs(average, step))
        average->stats.waited_sync_ns += waited;
    pthread_mutex_unlock(&average->lock);
    return status;
}

/* Waits for the version, and writes what the step gets to the tensors. A model that was refused on
 * a stream ends the step, which has not been taken. */
static int take(struct weft_group_average *average, struct weft_group_average_result *got,
                const char *who)
{
    uint64_t began = weft_context_now(average->context);
    int status = average->device ? weft__average_device_await(average, began, who) : WEFT_OK;
    if (!status && average->device)
        status = weft__average_device_refused(average, began, who);
    if (!status)
        status = await(average, average->next, began, who);
    if (!status && average->device) {
        status = weft__average_device_mix(average, began, who);
        *got = average->device->got;
    } else if (!status) {
        weft__average_take(average, average->next, average->step == WEFT__STEP_POSTED, got);
    }
    return status;
}

static int end(struct weft_group_average *average, struct weft_group_average_result *result,
               const char *who)
{
    struct weft_group_average_result got;
    int status = take(average, &got, who);
    if (average->step == WEFT__STEP_NONE)
        return status;
    if (status < 0) { /* the text of a deadline stays, if it is no failure */
        int failed = weft_object_check(average->object, who);
        if (failed) { /* what it has published is in a sum or in the state */
            average->next += !average->device || weft__average_device_stop(average);
            average->step = WEFT__STEP_NONE;
            weft_object_check(average->object, who);
        }
        return failed ? failed : status;
    }
    average->step = WEFT__STEP_NONE;
    average->next++;
    status = weft_sized_fill(who, "result", result, &got, sizeof got);
    if (status || !average->bad.count || average->config.nan != WEFT_NAN_ERROR)
        return status;
    return weft_error_set(WEFT_ERR_COMPUTE,
                          "%s: step %llu: %llu NaNs or infinities in the gradient of this rank, "
                          "the first in tensor %zu; it counts as zero",
                          who, (unsigned long long)average->next - 1,
                          (unsigned long long)average->bad.count, average->bad.tensor);
}

int weft_group_average_step(struct weft_group_average *average,
                            struct weft_group_average_result *result)
{
    REQUIRE_OBJECT(average);
    const struct weft__average_begin begins = {.who = __func__, .step = WEFT__STEP_BEGUN};
    int status = weft_sized_check(__func__, "result", result);
    if (!status)
        status = weft__average_begin_step(average, &begins);
    return status ? status : end(average, result, __func__);
}

int weft_group_average_post(struct weft_group_average *average)
{
    REQUIRE_OBJECT(average);
    const struct weft__average_begin begins = {.who = __func__, .step = WEFT__STEP_POSTED};
    return weft__average_begin_step(average, &begins);
}

int weft_group_average_wait(struct weft_group_average *average,
                            struct weft_group_average_result *result)
{
    REQUIRE_OBJECT(average);
    int status = weft__step_check_posted(__func__, average->step);
    if (!status)
        status = weft_sized_check(__func__, "result", result);
    return status ? status : end(average, result, __func__);
}

static int step_has_ended(struct weft_group_average *average)
{
    return average->device ? weft__average_device_ended(average)
                           : weft_series_version(average->versions) > average->next;
}

int weft_group_average_test(struct weft_group_average *average,
                            struct weft_group_average_result *result)
{
    REQUIRE_OBJECT(average);
    int status = weft__step_check_posted(__func__, average->step);
    if (!status)
        status = weft_sized_check(__func__, "result", result);
    if (status)
        return status;
    if (!step_has_ended(average)) {
        status = weft_context_progress(average->context);
        if (status < 0)
            return status;
    }
    if (!step_has_ended(average) && weft_object_check(average->object, __func__) == WEFT_OK)
        return WEFT_IN_PROGRESS;
    return end(average, result, __func__);
}

/* ---- queries ---- */

uint64_t weft_group_average_next(const struct weft_group_average *average)
{
    return average ? average->next : 0;
}

int weft_group_average_get_stats(struct weft_group_average *average,
                                 struct weft_group_average_stats *stats)
{
    REQUIRE_OBJECT(average);
    if (!stats)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `stats` is NULL", __func__);
    pthread_mutex_lock(&average->lock);
    struct weft_group_average_stats counted = average->stats;
    pthread_mutex_unlock(&average->lock);
    return weft_sized_fill(__func__, "stats", stats, &counted, sizeof counted);
}

static int save(struct weft_group_average *average, int takes,
                struct weft_group_average_state *state, const char *who)
{
    if (!state)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `state` is NULL", who);
    int status = weft_sized_check(who, "state", state);
    if (status)
        return status;
    status = end_on_stream(average, who);
    int failed = weft_object_check(average->object, who) != WEFT_OK;
    if (!status || failed)
        status = weft__step_check_none(who, average->step, average->next);
    if (status)
        return status;
    struct weft_group_average_state now = {0};
    if (failed) /* until no version of it ends any more */
        weft_series_wait(average->versions, UINT64_MAX, WEFT_NEVER);
    status = weft__average_save(average, takes, failed, &now);
    return status ? status : weft_sized_fill(who, "state", state, &now, sizeof now);
}

int weft_group_average_get_state(struct weft_group_average *average,
                                 struct weft_group_average_state *state)
{
    REQUIRE_OBJECT(average);
    return save(average, 0, state, __func__);
}

int weft_group_average_take_state(struct weft_group_average *average,
                                  struct weft_group_average_state *state)
{
    REQUIRE_OBJECT(average);
    return save(average, 1, state, __func__);
}

/* ---- the end ---- */

int weft_group_average_fail(struct weft_group_average *average, int status, const char *text)
{
    REQUIRE_OBJECT(average);
    return weft__object_give_up(__func__, average->object, status, text);
}

/* A step that a stream has still to begin or to end is not taken any more. */
static int give_up_step(struct weft_group_average *average, int failed, const char *who)
{
    int waits = weft__average_device_waits(average);
    weft__average_device_stop(average);
    if (failed)
        return weft_object_check(average->object, who);
    return waits ? weft_error_set(WEFT_ERR_CANCELLED,
                                  "%s: step %llu was under way on a stream, which goes on", who,
                                  (unsigned long long)average->next)
                 : WEFT_OK;
}

int weft_group_average_destroy(struct weft_group_average *average)
{
    if (!average)
        return WEFT_OK;
    int status = weft_object_check(average->object, __func__);
    struct weft_object *object = average->object;
    if (average->device && average->step != WEFT__STEP_NONE)
        status = give_up_step(average, status, __func__);
    atomic_store(&average->leaving, 1);
    if (average->activation)
        weft_series_poke(average->activation);
    weft_series_poke(average->versions);
    weft_object_leave(object); /* the context has it from now on, and may have freed it */
    return status;
}
