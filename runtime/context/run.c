/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs from the user's side: started, waited for, ended. run_make.c makes them. */
#include "runtime/base/error.h"
#include "runtime/context/part.h"
#include "runtime/engine/flight.h"
#include "runtime/engine/gate.h"
#include "runtime/engine/ordered.h"
#include <sched.h>
#include <string.h>

/* Whether it is one of the runs of the context's sequence. */
static int in_sequence(const struct weft_run *run)
{
    return run->object == &run->engine->sequence;
}

/* Waits until no peer reads from the sends of a failed run: a slice at most. What a device reads
 * has been read when its rank has seen that: so this rank looks, too, or two that wait for each
 * other would do so for ever. */
static void withdraw(const struct weft_run *run)
{
    struct weft__transport *transport = run->engine->transport;
    if (!transport->ops->withdrawn || run->borrowed == 0)
        return;
    for (uint32_t i = 0; i < run->plan->xfer_count; i++)
        while (run->xfers[i].message.xflags == WEFT__X_SENDING &&
               transport->ops->withdrawn(transport, &run->xfers[i]) == 0) {
            weft__family_land(run->context);
            sched_yield();
        }
}

int weft__run_is_lent(const struct weft_run *run)
{
    const struct weft__engine *engine = run->engine, *root = &run->context->root->engine;
    struct weft__transport *transport = engine->transport;
    if (run->borrowed == 0 || root->failed < 0 || root->deaths || engine->deaths)
        return 0;
    for (uint32_t i = 0; i < run->plan->xfer_count; i++) {
        struct weft__xfer *xfer = &run->xfers[i];
        if (xfer->message.xflags == WEFT__X_FETCHING)
            return 1;
        if (xfer->message.xflags == WEFT__X_SENDING &&
            (!transport->ops->withdrawn || transport->ops->withdrawn(transport, xfer) < 0))
            return 1;
    }
    return 0;
}

void weft__run_regain(const struct weft_run *run)
{
    struct weft_context *context = run->context;
    withdraw(run);
    while (weft__run_is_lent(run)) {
        weft__drive_step(context, weft__clock(context));
        weft__drive_unlock(context);
        int status = weft__yield(context);
        weft__drive_lock(context);
        if (status < 0)
            break;
    }
}

/* Waits for threads that have fired the last event and are about to return. Driving. */
void weft__run_leave(const struct weft_run *run)
{
    while (atomic_load_explicit(&run->inside, memory_order_acquire) != 0)
        sched_yield();
}

/* Whether a compute of the run is still to be completed. */
int weft__run_computes(const struct weft_run *run)
{
    for (uint32_t c = 0; c < run->plan->call_count; c++)
        if (run->calls[c].pending)
            return 1;
    return 0;
}

/* Destroyed by a callback: the step that calls it still looks at the run. */
static void doom(struct weft_run *run)
{
    struct weft_context *context = run->context;
    if (run->zombie)
        return; /* it is being destroyed, and that has called */
    run->zombie = 1;
    run->doomed_next = context->doomed;
    context->doomed = run;
    weft__family_wake(context);
    if (!weft__run_idle(run))
        weft__command(context, run, WEFT__DO_CANCEL);
}

static void undoom(struct weft_run *run)
{
    struct weft_run **link = &run->context->doomed;
    while (*link && *link != run)
        link = &(*link)->doomed_next;
    if (*link)
        *link = run->doomed_next;
}

/* What is left to do once a run has ended and nobody is in it. Driving. */
static void dispose(struct weft_run *run)
{
    struct weft_context *context = run->context;
    weft__flights_settle(run);
    if (run->object && !in_sequence(run))
        weft__object_drop(&context->engine, run->object);
    weft__run_free(run);
    weft__run_bury(context, 0);
}

void weft__run_reap(struct weft_context *context)
{
    struct weft_run **link = &context->doomed;
    while (*link) {
        struct weft_run *run = *link;
        /* Acquire: pairs with the last touch of a thread that has fired an event or commanded. */
        if (atomic_load_explicit(&run->inside, memory_order_acquire) != 0 ||
            atomic_load_explicit(&run->commanded.commands, memory_order_acquire) != 0 ||
            !weft__run_idle(run) || weft__run_computes(run)) {
            link = &run->doomed_next;
            continue;
        }
        *link = run->doomed_next;
        withdraw(run);
        dispose(run);
    }
}

void weft_run_destroy(struct weft_run *run)
{
    if (!run || run->series)
        return;
    struct weft_context *context = run->context;
    if (weft__engine_calls(&context->engine)) {
        doom(run);
        return;
    }
    weft__drive_lock(context);
    weft__run_end(run);
    weft__drive_unlock(context);
}

void weft__run_end(struct weft_run *run)
{
    struct weft_context *context = run->context;
    undoom(run);     /* a callback may have destroyed it: the context goes now */
    run->zombie = 1; /* its callback cannot start it again */
    weft__run_leave(run);
    weft__drive_commands(context); /* none of them may point to this run */
    if (weft__gates_drop(&context->engine, run))
        weft__gate_open(run);
    weft__engine_fail(&context->engine, run, WEFT_ERR_CANCELLED, WEFT__NONE,
                      context->engine.transport->rank, "the run is being destroyed");
    while (weft__run_computes(run)) {
        /* Its completion comes from a thread that may have to use the context. */
        weft__drive_unlock(context);
        int status = weft__yield(context);
        weft__drive_lock(context);
        weft__engine_poll_calls(&context->engine);
        if (status < 0)
            break; /* then it stays borrowed */
    }
    weft__run_regain(run);
    dispose(run);
}

/* ---- starting ---- */

/* A plan that talks to nobody may be of any rank. */
int weft__run_has_peers(const struct weft_run *run)
{
    const struct weft_plan *plan = run->plan;
    const struct weft__transport *transport = run->engine->transport;
    return run->peers != plan->peers || (plan->size <= transport->size &&
                                         (plan->rank == transport->rank || plan->peer_count == 0));
}

static int refuse_peers(const char *who, const struct weft_run *run)
{
    const struct weft_plan *plan = run->plan;
    const struct weft__transport *transport = run->engine->transport;
    WEFT__REQUIRE(plan->size <= transport->size,
                  "%s: plan `%s` is for %d ranks, expected at most the %d of the context, or "
                  "weft_run_bind_peers()",
                  who, plan->name, plan->size, transport->size);
    return WEFT__INVALID("%s: plan `%s` is of rank %d, expected rank %d as the context, or "
                         "weft_run_bind_peers()",
                         who, plan->name, plan->rank, transport->rank);
}

static uint64_t next_version(const struct weft_run *run)
{
    return in_sequence(run) ? weft_sequence_next(run->context) : run->next_version;
}

static int check_start(const char *who, const struct weft_run *run, uint64_t version,
                       int explicit_version)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", who);
    if (run->series)
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` belongs to a series", who,
                           run->plan->name);
    if (!weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` is active", who, run->plan->name);
    if (run->zombie)
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` is being destroyed", who,
                           run->plan->name);
    int status = in_sequence(run) ? weft__sequence_check(who, run->context) : WEFT_OK;
    if (status != WEFT_OK)
        return status;
    uint64_t least = run->unordered ? 0 : next_version(run);
    WEFT__REQUIRE(!explicit_version || (version >= least && version < UINT64_MAX),
                  "%s: argument `version` is %llu, expected %llu to 2^64-2", who,
                  (unsigned long long)version, (unsigned long long)least);
    WEFT__REQUIRE(explicit_version || least < UINT64_MAX,
                  "%s: the run of `%s` has had the last version", who, run->plan->name);
    if (run->borrowed != 0)
        return weft__error(WEFT_ERR_STATE,
                           "%s: the run of `%s` failed and %u transfers are still "
                           "borrowed; see weft_run_reclaim()",
                           who, run->plan->name, run->borrowed);
    if (weft__ordered_over(run))
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` is over: %s", who, run->plan->name,
                           weft__ordered_over(run));
    if (!weft__run_has_peers(run))
        return refuse_peers(who, run);
    for (uint32_t s = 0; s < run->plan->slot_count; s++)
        WEFT__REQUIRE(run->bindings[s].bound || run->plan->slots[s].count == 0,
                      "%s: slot `%s` of plan `%s` is not bound", who, run->plan->slots[s].name,
                      run->plan->name);
    return WEFT_OK;
}

/* Sets the version up; the run may then be handed to the engine. */
void weft__run_prepare(struct weft_run *run, uint64_t version)
{
    /* A thread inside weft_run_fire() for the version before is about to leave. */
    while (atomic_load_explicit(&run->firing, memory_order_seq_cst) != 0)
        sched_yield();
    atomic_store_explicit(&run->fired_head, 0, memory_order_relaxed);
    run->version = version;
    atomic_store_explicit(&run->told_version, version, memory_order_relaxed);
    run->next_version = version + 1;
    run->starts++;
    if (in_sequence(run)) {
        struct weft_context *context = run->context;
        atomic_store_explicit(&context->engine.sequence_busy, 1, memory_order_relaxed);
        atomic_store_explicit(&context->sequence_run, run, memory_order_relaxed);
        atomic_store_explicit(&context->sequence_next, version + 1, memory_order_relaxed);
    }
    /* A value whose node is retired in this version must not keep an older one. */
    for (uint32_t v = 0; v < run->plan->value_count; v++)
        if (run->plan->values[v].produced)
            run->values[v] = 0;
    /* From now on events may be fired, before the engine has started the run too. */
    for (uint32_t e = 0; e < run->plan->event_count; e++)
        atomic_store_explicit(&run->events[e],
                              WEFT__EVENT_WORD(version, (uint64_t)WEFT__EVENT_IDLE),
                              memory_order_release);
    for (uint32_t c = 0; c < run->plan->choice_count; c++)
        atomic_store_explicit(&run->choices[c], WEFT__CHOICE_WORD(version, (uint64_t)0),
                              memory_order_release);
    if (run->deadline_ns != 0 || run->context->config.stall_ns != 0)
        run->started_ns = weft__clock(run->context);
    atomic_store_explicit(&run->state, WEFT__RUN_QUEUED, memory_order_release);
}

int weft__run_check_start(const char *who, const struct weft_run *run, uint64_t *version,
                          int explicit_version)
{
    int status = check_start(who, run, *version, explicit_version);
    if (status == WEFT_OK && !explicit_version)
        *version = next_version(run);
    return status;
}

int weft_run_start_version(struct weft_run *run, uint64_t version)
{
    int status = check_start(__func__, run, version, 1);
    if (status != WEFT_OK)
        return status;
    weft__run_prepare(run, version);
    weft__command(run->context, run, WEFT__DO_START);
    return WEFT_OK;
}

int weft_run_start(struct weft_run *run)
{
    int status = check_start(__func__, run, 0, 0);
    if (status != WEFT_OK)
        return status;
    weft__run_prepare(run, next_version(run));
    weft__command(run->context, run, WEFT__DO_START);
    return WEFT_OK;
}

/* For all but its callback it has when that has returned. */
static int has_ended(void *argument)
{
    const struct weft_run *run = argument;
    /* Acquire pairs with the releases in weft__engine_end(). */
    return atomic_load_explicit(&run->state, memory_order_acquire) == WEFT__RUN_ENDED &&
           (!atomic_load_explicit(&run->telling, memory_order_acquire) ||
            weft__drives(run->context));
}

static int outcome(const struct weft_run *run)
{
    if (run->status == WEFT_OK)
        return WEFT_OK;
    return weft__error(run->status, "%s", weft_run_error(run));
}

int weft_run_wait(struct weft_run *run, uint64_t timeout_ns)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    if (timeout_ns == WEFT_NS_NONE)
        return weft_sized_time(__func__, "timeout_ns", timeout_ns, WEFT_NEVER);
    if (atomic_load_explicit(&run->state, memory_order_acquire) == WEFT__RUN_IDLE)
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` was never started", __func__,
                           run->plan->name);
    if (!has_ended(run)) {
        uint64_t until = weft__time_after(run->context, timeout_ns);
        int ended = weft__drive_until(run->context, has_ended, run, until, run);
        if (ended <= 0)
            return ended < 0 ? ended : WEFT_IN_PROGRESS;
    }
    return outcome(run);
}

/* ---- waiting for a node ---- */

static int is_told(void *argument)
{
    const struct weft__watch *watch = argument;
    /* Pairs with the store of who tells, weft__watches_tell(): the thread has registered as a
     * sleeper before, or is awake, and who tells looks for sleepers after. */
    return atomic_load_explicit(&watch->status, memory_order_seq_cst) != WEFT_IN_PROGRESS;
}

/* How a version that is not under way has ended; while driving, so that no other begins. */
static int join_ended(const char *who, const struct weft_run *run, uint32_t node, int state)
{
    if (state == WEFT__RUN_IDLE)
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` was never started", who,
                           run->plan->name);
    if (run->status == WEFT_OK)
        return weft__join_outcome(run, node);
    return weft__error(run->status, "%s", run->error ? run->error : weft_status_text(run->status));
}

static int check_join(const char *who, const struct weft_run *run, weft_node_t node)
{
    const struct weft_plan *plan = run->plan;
    WEFT__REQUIRE(node >= 0 && (uint32_t)node < plan->node_count &&
                      plan->nodes[node].kind == WEFT_NODE_JOIN,
                  "%s: argument `node` is %d, expected a join of plan `%s`", who, node, plan->name);
    if (weft__drives(run->context))
        return weft__error(WEFT_ERR_STATE, "%s: called by a callback, which must not block", who);
    return WEFT_OK;
}

/* Waits for a watch that has been added, and takes it back if it has not been told. */
static int wait_for(struct weft_run *run, struct weft__watch *watch, uint64_t timeout_ns)
{
    struct weft_context *context = run->context;
    int status =
        weft__drive_until(context, is_told, watch, weft__time_after(context, timeout_ns), run);
    if (status <= 0) {
        weft__drive_lock(context);
        int told = is_told(watch);
        if (!told)
            weft__watch_remove(run, watch);
        weft__drive_unlock(context);
        if (!told)
            return status < 0 ? status : WEFT_IN_PROGRESS;
    }
    status = atomic_load_explicit(&watch->status, memory_order_acquire);
    return status < 0 ? weft__error(status, "%s", watch->text) : status;
}

int weft_run_wait_node(struct weft_run *run, weft_node_t node, uint64_t timeout_ns)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    int status = weft_sized_time(__func__, "timeout_ns", timeout_ns, WEFT_NEVER);
    if (status == WEFT_OK)
        status = check_join(__func__, run, node);
    if (status != WEFT_OK)
        return status;
    struct weft__watch watch = {.node = (uint32_t)node};
    weft__drive_lock(run->context);
    int state = atomic_load_explicit(&run->state, memory_order_acquire);
    int under_way = state == WEFT__RUN_QUEUED || state == WEFT__RUN_ACTIVE;
    if (under_way)
        weft__watch_add(run, &watch);
    else
        status = join_ended(__func__, run, watch.node, state);
    weft__drive_unlock(run->context);
    return under_way ? wait_for(run, &watch, timeout_ns) : status;
}

int weft_run_execute(struct weft_run *run)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    int status = weft_run_start(run);
    return status != WEFT_OK ? status : weft_run_wait(run, WEFT_NEVER);
}

int weft_run_test(struct weft_run *run)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    if (atomic_load_explicit(&run->state, memory_order_acquire) == WEFT__RUN_IDLE)
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` was never started", __func__,
                           run->plan->name);
    int status = has_ended(run) ? WEFT_OK : weft_context_progress(run->context);
    if (status < 0)
        return status;
    return has_ended(run) ? outcome(run) : WEFT_IN_PROGRESS;
}

/* ---- events, cancelling ---- */

/* `version` NULL: the active one. */
int weft__run_fire(struct weft_run *run, weft_node_t event, const uint64_t *version)
{
    const struct weft_plan *plan = run->plan;
    uint32_t number = plan->nodes[event].index;
    int status = WEFT_ERR_STATE;
    atomic_fetch_add_explicit(&run->inside, 1, memory_order_seq_cst);
    /* Before the look at the state: the version does not change while this counts. */
    atomic_fetch_add_explicit(&run->firing, 1, memory_order_seq_cst);
    int state = atomic_load_explicit(&run->state, memory_order_seq_cst);
    if (state == WEFT__RUN_ACTIVE || state == WEFT__RUN_QUEUED)
        status = weft__event_try(run, number, version ? *version : run->version);
    if (status == WEFT_OK) {
        uint32_t head = atomic_load_explicit(&run->fired_head, memory_order_relaxed);
        do
            run->fired_next[number] = head;
        while (!atomic_compare_exchange_weak_explicit(&run->fired_head, &head, number + 1,
                                                      memory_order_release, memory_order_relaxed));
    }
    atomic_fetch_sub_explicit(&run->firing, 1, memory_order_release);
    if (status == WEFT_OK)
        weft__command(run->context, run, WEFT__DO_FIRE);
    /* The last touch: whoever destroys the run waits for it. */
    atomic_fetch_sub_explicit(&run->inside, 1, memory_order_release);
    return status;
}

int weft__check_event(const struct weft_plan *plan, weft_node_t event, const char *who)
{
    WEFT__REQUIRE(event >= 0 && (uint32_t)event < plan->node_count &&
                      plan->nodes[event].kind == WEFT_NODE_EVENT,
                  "%s: argument `event` is %d, expected an event node of plan `%s`", who, event,
                  plan->name);
    return WEFT_OK;
}

int weft_run_fire(struct weft_run *run, weft_node_t event)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    int status = weft__check_event(run->plan, event, __func__);
    if (status != WEFT_OK)
        return status;
    const char *name = run->plan->name;
    status = weft__run_fire(run, event, NULL);
    /* No formatting here, so that the name is spelled: to be late is no surprise, and must cost
     * little. */
    return status < 0
               ? weft__error_of(status, "weft_run_fire: the run of `", name, "` is not active")
               : status;
}

int weft_run_cancel(struct weft_run *run)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    int state = atomic_load_explicit(&run->state, memory_order_acquire);
    if (state == WEFT__RUN_IDLE || state == WEFT__RUN_ENDED)
        return WEFT_OK;
    weft__command(run->context, run, WEFT__DO_CANCEL);
    return WEFT_OK;
}

static void quit(struct weft__engine *engine, const struct weft_run *run)
{
    struct weft__transport *transport = engine->transport;
    for (uint32_t n = 0; n < run->plan->node_count; n++) {
        const struct weft__node *node = &run->plan->nodes[n];
        int peer = node->kind == WEFT_NODE_SEND ? weft__peer(run, node->peer) : WEFT_PEER_NONE;
        if (peer == WEFT_PEER_NONE || peer == transport->rank)
            continue;
        struct weft__message message = {.version = run->next_version,
                                        .object = run->object->id,
                                        .tag = WEFT_OK,
                                        .bytes = (size_t)transport->rank,
                                        .from = transport->rank,
                                        .to = peer,
                                        .kind = WEFT__FAIL};
        weft__engine_control(engine, &message);
    }
}

int weft_run_quit(struct weft_run *run)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    if (run->series || in_sequence(run) || !weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` %s", __func__, run->plan->name,
                           run->series        ? "belongs to a series"
                           : in_sequence(run) ? "is one of the sequence"
                                              : "is active");
    struct weft__engine *engine = run->engine;
    struct weft__error_saved saved; /* of a peer that cannot be told */
    weft__error_save(&saved);
    weft__drive_lock(run->context);
    if (run->object && engine->failed == 0 && weft__run_has_peers(run))
        quit(engine, run);
    weft__drive_unlock(run->context);
    weft__error_restore(&saved);
    return WEFT_OK;
}

int weft_run_reclaim(struct weft_run *run)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    if (!weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` is active", __func__,
                           run->plan->name);
    int driven = run->context->engine.transport->ops->block != NULL;
    if (driven && run->borrowed > 0 && weft__yield(run->context) < 0)
        return WEFT_IN_PROGRESS;
    weft__drive_lock(run->context);
    if (run->borrowed > 0 && !driven)
        weft__drive_step(run->context, weft__clock(run->context));
    uint32_t borrowed = run->borrowed;
    weft__drive_unlock(run->context);
    return borrowed == 0 ? WEFT_OK : WEFT_IN_PROGRESS;
}

/* ---- asking ---- */

int weft_run_awaited(const struct weft_run *run)
{
    if (!run || atomic_load_explicit(&run->state, memory_order_relaxed) != WEFT__RUN_ACTIVE)
        return WEFT_PEER_NONE;
    uint32_t n = weft__oldest_wait(run);
    if (n == WEFT__NONE ||
        (run->plan->nodes[n].kind != WEFT_NODE_SEND && run->plan->nodes[n].kind != WEFT_NODE_RECV))
        return WEFT_PEER_NONE;
    return weft__peer(run, run->plan->nodes[n].peer);
}

const struct weft_plan *weft_run_plan(const struct weft_run *run)
{
    return !run ? NULL : run->plan;
}

uint64_t weft_run_version(const struct weft_run *run)
{
    return !run ? UINT64_MAX : run->version;
}

uint64_t weft_run_get_value(const struct weft_run *run, weft_value_t value)
{
    if (!run || value < 1 || (uint32_t)value > run->plan->value_count)
        return 0;
    return run->values[value - 1];
}

const char *weft_run_error(const struct weft_run *run)
{
    if (!run || !weft__run_idle(run) || run->status >= 0)
        return "";
    return run->error ? run->error : weft_status_text(run->status);
}

int weft_run_report(struct weft_run *run, char **text)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    WEFT__REQUIRE(text, "%s: argument `text` is NULL", __func__);
    weft__drive_lock(run->context);
    char *report = weft__report(run);
    weft__drive_unlock(run->context);
    if (!report)
        return weft__error_memory(__func__);
    *text = report;
    return WEFT_OK;
}
