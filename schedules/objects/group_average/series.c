/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the engine calls for group averaging. All of it is called by the thread that drives the
 * context, one call at a time, and does not block.
 *
 * A rank that is leaving stands in for its application: it counts as arrived wherever a rank that
 * is still there has arrived. That somebody leaves is passed on once over the edges of activations,
 * and from then on how far those are who have not. Once all have left (the object counts them),
 * they agree on the last version and stop there.
 */
#include <weft/activation.h>

#include "schedules/objects/group_average/group_average.h"

static uint64_t load(_Atomic uint64_t *number)
{
    return atomic_load_explicit(number, memory_order_acquire);
}

/* Whether this rank is leaving, and takes part in a version as if it had arrived. */
static int stands_in(struct weft_group_average *average, uint64_t version)
{
    return atomic_load(&average->leaving) && atomic_load(&average->reached) > version;
}

/* ---- activation ---- */

static int arm_activation(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    struct weft_group_average *average = user;
    uint64_t version = arm->version;
    (void)series;
    /* Sequentially consistent: pairs with those who set these, and then fire the version. */
    int stopping = atomic_load(&average->stopping), leaving = stands_in(average, version);
    int arrived = atomic_load(&average->arrived) > version;
    if (weft__average_syncs(average, version))
        arm->plan = arrived || leaving || stopping ? WEFT__ACTIVATE_NONE : WEFT__ACTIVATE_SELF;
    else if (!stopping &&
             (arrived || (leaving && average->config.activation == WEFT_AVERAGE_DRAWN)) &&
             weft__average_activates(average, version))
        arm->plan = WEFT__ACTIVATE_NOW;
    else
        arm->plan = WEFT__ACTIVATE;
    return WEFT_OK;
}

static void activation_ended(void *user, struct weft_series *series, uint64_t version, int status)
{
    struct weft_group_average *average = user;
    (void)series;
    (void)version;
    if (status == WEFT_OK) /* else the object has failed, and `versions` with it */
        weft_series_poke(average->versions);
}

/* The application has arrived at, or left, a version that could not be fired then. */
static void activation_poked(void *user, struct weft_series *series)
{
    struct weft_group_average *average = user;
    uint64_t version = weft_series_version(series);
    int leaving = stands_in(average, version);
    if (atomic_load(&average->arrived) <= version && !leaving)
        return;
    if (weft__average_syncs(average, version) ||
        (weft__average_activates(average, version) &&
         (!leaving || average->config.activation == WEFT_AVERAGE_DRAWN)))
        weft_series_fire(series, version, average->application);
}

/* ---- versions ---- */

/* WEFT_OK if a version may start; else WEFT_IN_PROGRESS. */
static int may_start(struct weft_group_average *average, uint64_t version, uint64_t *retry_ns)
{
    uint64_t steps = load(&average->arrived);
    int arrived = steps > version;
    int leaving = stands_in(average, version);
    if (atomic_load(&average->stopping))
        return version < load(&average->goal) ? WEFT_OK : WEFT_IN_PROGRESS;
    if (weft__average_syncs(average, version) || !average->activation)
        return arrived || leaving ? WEFT_OK : WEFT_IN_PROGRESS;
    uint64_t activated = weft_series_version(average->activation);
    if (activated <= version)
        return WEFT_IN_PROGRESS;
    uint64_t patience = load(&average->patience_ns);
    /* An application that has missed the version before is late by a step: it is not expected. */
    if (arrived || steps < version || atomic_load(&average->leaving) || activated > version + 1 ||
        patience == 0)
        return WEFT_OK;
    uint64_t now = weft_context_now(average->context);
    if (average->held_version != version) {
        average->held_version = version;
        average->held_since = now;
    }
    uint64_t held = now - average->held_since;
    if (held >= patience)
        return WEFT_OK;
    *retry_ns = patience - held;
    return WEFT_IN_PROGRESS;
}

static int arm_version(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    struct weft_group_average *average = user;
    const void *send = NULL;
    void *recv = NULL;
    int members;
    int status = may_start(average, arm->version, &arm->retry_ns);
    if (status != WEFT_OK)
        return status;
    if (average->device && atomic_load(&average->device->folds))
        return WEFT_IN_PROGRESS;
    arm->plan = weft__average_plan_of(average, arm->version, &members);
    average->running_plan = arm->plan;
    weft__average_begin(average, arm->version, members, &send, &recv);
    if (members == 0)
        return WEFT_OK;
    const struct weft__average_plan *plan = &average->plans[arm->plan];
    struct weft_run *run = weft_series_get_run(series, arm->plan);
    status = weft_run_bind_input(run, plan->send, send, average->count, average->work);
    if (status == WEFT_OK)
        status = weft_run_bind(run, plan->recv, recv, average->count, average->work);
    if (status == WEFT_OK && !weft__average_syncs(average, arm->version))
        status = weft_run_bind_peers(run, average->members);
    return status;
}

/* Nothing is left to be done once the last version that all agreed on has ended. */
static void look_done(struct weft_group_average *average, uint64_t ended)
{
    if (average->has_goal && ended >= load(&average->goal))
        weft_object_done(average->object);
}

static void version_ended(void *user, struct weft_series *series, uint64_t version, int status)
{
    struct weft_group_average *average = user;
    (void)series;
    weft__average_end(average, weft__average_syncs(average, version), status);
    if (status != WEFT_OK)
        return;
    weft__average_device_look(average, version + 1);
    look_done(average, version + 1);
}

/* ---- ranks that leave ---- */

/* Signals over the edges that activations take. */
static void pass_on(struct weft_group_average *average, uint32_t channel, uint64_t value)
{
    for (int i = 0; i < weft_activation_edges(average->ranks); i++) {
        int peer = weft_activation_peer(average->rank, average->ranks, i);
        int status =
            peer >= 0 ? weft_series_signal(average->versions, peer, channel, value) : WEFT_OK;
        if (status) /* what is not told leaves others waiting */
            weft_object_fail(average->object, status, weft_error_text());
    }
}

/* Somebody who has not left has reached a step. */
static void reached(struct weft_group_average *average, uint64_t steps)
{
    if (steps <= load(&average->reached))
        return;
    atomic_store(&average->reached, steps);
    pass_on(average, WEFT__AVERAGE_REACHED, steps);
    if (!atomic_load(&average->leaving))
        return;
    if (average->activation)
        weft_series_poke(average->activation);
    weft_series_poke(average->versions);
}

/* Tells how far this rank is, where those who have left have to stand in: activations tell it as
 * well, but of synchronisations and of versions that a rank is drawn for. */
static void tell_reached(struct weft_group_average *average)
{
    uint64_t arrived = atomic_load(&average->arrived);
    if (atomic_load(&average->leaving) || !arrived)
        return;
    if (!average->activation || average->config.activation == WEFT_AVERAGE_DRAWN ||
        weft__average_syncs(average, arrived - 1))
        reached(average, arrived);
}

/* Asks all how far they are, but those who have not answered yet: whoever is asked again and again
 * (a wait with a short deadline does) has one question at most to answer when it gets to it. */
static void ask_all(struct weft_group_average *average, struct weft_series *series)
{
    for (int r = 0; r < average->ranks; r++) {
        if (r == average->rank || average->owes[r])
            continue;
        average->owes[r] = 1;
        weft_series_signal(series, r, WEFT__AVERAGE_ASK, 0);
    }
}

/* Somebody leaves, this rank perhaps. */
static void leaves(struct weft_group_average *average)
{
    if (atomic_exchange(&average->somebody_left, 1))
        return;
    pass_on(average, WEFT__AVERAGE_LEAVES, 0);
    tell_reached(average);
}

/* Whom this rank waits for, or that is none of the ranks. */
static int awaited(struct weft_group_average *average)
{
    uint64_t version = weft_series_version(average->versions);
    int rank = weft_run_awaited(weft_series_get_run(average->versions, average->running_plan));
    if (rank >= 0 || !average->activation || average->config.activation != WEFT_AVERAGE_DRAWN ||
        weft_series_version(average->activation) > version)
        return rank;
    return weft_group_average_activator(average->config.seed, average->ranks, version);
}

/* The next one of those who wait for each other; it ends at one that waits for none, or in a
 * circle.
 */
static void chase(struct weft_group_average *average, int next)
{
    if (next < 0 || next == average->rank || average->hops++ > average->ranks) {
        atomic_store(&average->chasing, WEFT__CHASE_OVER);
        return;
    }
    atomic_store(&average->chased, next);
    atomic_store(&average->chased_at, WEFT__AVERAGE_LEFT);
    weft_series_signal(average->versions, next, WEFT__AVERAGE_CHASE, load(&average->chase_step));
}

static void begin_chase(struct weft_group_average *average)
{
    atomic_store(&average->chasing, WEFT__CHASE_ON);
    atomic_store(&average->chased, -1);
    average->hops = 0;
    chase(average, awaited(average));
}

static void answer_chase(struct weft_group_average *average, int from, uint64_t step)
{
    uint64_t arrived = atomic_load(&average->leaving) ? UINT64_MAX : load(&average->arrived);
    weft_series_signal(average->versions, from, WEFT__AVERAGE_CHASED,
                       arrived > step ? 2 * ((uint64_t)awaited(average) + 1) + 1 : 2 * arrived);
}

static void go_on_chasing(struct weft_group_average *average, int from, uint64_t answer)
{
    if (atomic_load(&average->chasing) != WEFT__CHASE_ON || from != atomic_load(&average->chased))
        return;
    if (answer & 1) {
        chase(average, (int)(answer >> 1) - 1);
        return;
    }
    atomic_store(&average->chased_at, answer >> 1);
    atomic_store(&average->chasing, WEFT__CHASE_OVER);
}

static void versions_poked(void *user, struct weft_series *series)
{
    struct weft_group_average *average = user;
    weft__average_device_look(average, weft_series_version(series));
    if (atomic_load(&average->chasing) == WEFT__CHASE_WANTED)
        begin_chase(average);
    if (atomic_exchange(&average->asked, 0))
        ask_all(average, series);
    if (atomic_load(&average->somebody_left))
        tell_reached(average);
    if (!atomic_load(&average->leaving) || average->announced)
        return;
    average->announced = 1;
    leaves(average);
}

void weft__average_all_left(void *user, struct weft_object *object)
{
    struct weft_group_average *average = user;
    /* Nobody arrives any more. What has been activated or started somewhere is ended everywhere. */
    atomic_store(&average->stopping, 1);
    uint64_t last = atomic_load(&average->started);
    if (average->activation && weft_series_version(average->activation) > last)
        last = weft_series_version(average->activation);
    weft_object_settle(object, last);
}

void weft__average_settled(void *user, struct weft_object *object, uint64_t largest)
{
    struct weft_group_average *average = user;
    (void)object;
    atomic_store(&average->goal, largest);
    average->has_goal = 1;
    weft_series_poke(average->versions);
    look_done(average, weft_series_version(average->versions));
}

static void versions_signalled(void *user, struct weft_series *series, int from, uint32_t channel,
                               uint64_t version)
{
    struct weft_group_average *average = user;
    switch (channel) {
    case WEFT__AVERAGE_ASK:
        weft_series_signal(series, from, WEFT__AVERAGE_ANSWER,
                           atomic_load(&average->leaving) ? WEFT__AVERAGE_LEFT
                                                          : load(&average->arrived));
        break;
    case WEFT__AVERAGE_ANSWER:
        average->owes[from] = 0;
        atomic_store_explicit(&average->answers[from], version + 1, memory_order_release);
        break;
    case WEFT__AVERAGE_CHASE:
        answer_chase(average, from, version);
        break;
    case WEFT__AVERAGE_CHASED:
        go_on_chasing(average, from, version);
        break;
    case WEFT__AVERAGE_LEAVES:
        leaves(average);
        break;
    case WEFT__AVERAGE_REACHED:
        reached(average, version);
        break;
    default:
        break;
    }
}

int weft__average_make_series(struct weft_group_average *average)
{
    struct weft_series_config config;
    weft_series_config_init(&config);
    struct weft_plan **plans = weft_memory_alloc(average->plan_count, sizeof(struct weft_plan *));
    if (!plans)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu plans", average->plan_count);
    for (size_t i = 0; i < average->plan_count; i++)
        plans[i] = average->plans[i].plan;
    config.user = average;
    config.object = average->object;
    config.plans = plans;
    config.plan_count = average->plan_count;
    config.arm = arm_version;
    config.ended = version_ended;
    config.poked = versions_poked;
    config.signalled = versions_signalled;
    int status = weft_series_create(&average->versions, average->context, &config);
    weft_memory_free(plans);
    if (status || average->config.mode != WEFT_AVERAGE_WAIT_AVOIDING)
        return status;
    config.plans = average->activations;
    config.plan_count = WEFT__ACTIVATIONS;
    config.arm = arm_activation;
    config.ended = activation_ended;
    config.poked = activation_poked;
    config.signalled = NULL;
    return weft_series_create(&average->activation, average->context, &config);
}
