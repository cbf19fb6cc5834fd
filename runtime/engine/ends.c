/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How runs end: all nodes done, or failed here, by a deadline, or at a peer.
 *
 * A failure takes back what can be taken back (posted receives at once, transfers as the transport
 * allows), counts the rest as borrowed, and tells the peers of the plan. Versions that have ended
 * are below the object's floor: what still arrives for them is dropped.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/flight.h"
#include "runtime/engine/record.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- texts ---- */

void weft__describe_node(const struct weft_run *run, uint32_t n, char *text, size_t size)
{
    const struct weft_plan *plan = run->plan;
    if (n == WEFT__NONE) {
        snprintf(text, size, "the run");
        return;
    }
    const struct weft__node *node = &plan->nodes[n];
    const char *kind = weft_node_kind_name(node->kind);
    char name[96];
    weft__plan_node_text(plan, n, name, sizeof name);
    if (node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV)
        snprintf(text, size, "%s (%s %s rank %d, tag %u, %zu bytes)", name, kind,
                 node->kind == WEFT_NODE_SEND ? "to" : "from", weft__peer(run, node->peer),
                 node->tag, weft__region_bytes(run, &plan->regions[node->regions]));
    else if (node->kind == WEFT_NODE_SIGNAL)
        snprintf(text, size, "%s (signal to rank %d, channel %u)", name,
                 weft__peer(run, node->peer), node->tag);
    else if (node->kind == WEFT_NODE_EVENT && node->tag != WEFT_CHANNEL_NONE)
        snprintf(text, size, "%s (event, channel %u)", name, node->tag);
    else
        snprintf(text, size, "%s (%s)", name, kind);
}

static void set_error(struct weft_run *run, const char *format, ...) WEFT_PRINTF(2, 3);
static void set_error(struct weft_run *run, const char *format, ...)
{
    char text[1100];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    weft__free(run->error);
    run->error = weft__strdup(text); /* NULL: weft_run_error() falls back on the status */
}

/* ---- the end ---- */

/* The engines whose callbacks the calling thread is in: a callback may drive another context. Those
 * of a family are driven together. */
static _Thread_local const struct callback {
    const struct weft__engine *engine;
    const struct callback *outer;
} * innermost;

int weft__engine_calls(const struct weft__engine *engine)
{
    const struct callback *callback = innermost;
    while (callback && callback->engine->family != engine->family)
        callback = callback->outer;
    return callback != NULL;
}

static void call_ended(const struct weft__engine *engine, struct weft_run *run,
                       void (*ended)(void *, struct weft_run *, int), void *user, int status)
{
    const struct callback *outer = innermost;
    const struct callback callback = {engine, outer};
    innermost = &callback;
    ended(user, run, status);
    innermost = outer;
}

void weft__engine_end(struct weft__engine *engine, struct weft_run *run, int status)
{
    struct weft__object *object = run->object;
    if (run->active_previous)
        run->active_previous->active_next = run->active_next;
    else
        engine->active = run->active_next;
    if (run->active_next)
        run->active_next->active_previous = run->active_previous;
    engine->active_count--;
    engine->stats.nodes += run->plan->node_count - run->left;
    engine->did++;
    if (object) {
        if (object->whole)
            weft__whole_touch(engine, object->whole);
        if (!object->unordered)
            object->floor = run->version + 1;
        object->active = NULL;
        if (status == WEFT_OK)
            object->failing = UINT64_MAX;
        else if (object->failing == UINT64_MAX)
            object->failing = run->version;
    }
    run->status = status;
    if (engine->recorder)
        weft__note_run(engine, run, WEFT__NOTE_RUN_END);
    struct weft_series *series = run->series;
    void (*ended)(void *, struct weft_run *, int) = run->ended;
    void *user = run->user;
    if (run->watches)
        weft__watches_fail(run, status);
    if (ended)
        atomic_store_explicit(&run->telling, 1, memory_order_relaxed);
    if (object == &engine->sequence) /* release, as the state: who starts the next one sees it */
        atomic_store_explicit(&engine->sequence_busy, 0, memory_order_release);
    /* Release pairs with the acquire of those who look at the state: they see the results. */
    atomic_store_explicit(&run->state, WEFT__RUN_ENDED, memory_order_release);
    if (series)
        engine->host->series_ended(series, run, status);
    else if (ended) {
        call_ended(engine, run, ended, user, status);
        /* Release: what it has done is seen by those who have waited. One that it has destroyed is
         * there until the step is over. */
        atomic_store_explicit(&run->telling, 0, memory_order_release);
    }
    engine->host->wake_waiters(engine->context);
}

/* A job that goes no further: it may hold what it reads. */
static void refuse_source(struct weft__engine *engine, struct weft__xfer *xfer)
{
    if (xfer->source && xfer->source->list == WEFT__DEVICE)
        weft__engine_have_read(engine, xfer);
    if (xfer->source)
        weft__engine_refuse(engine, xfer->source);
    xfer->message.xflags = WEFT__X_IDLE;
}

/* What the transport has: it may have to keep it for a while. */
static void give_back(struct weft__engine *engine, struct weft__xfer *xfer)
{
    struct weft__transport *transport = engine->transport;
    struct weft_run *run = weft__xfer_run(xfer);
    int sends = xfer->message.xflags == WEFT__X_SENDING;
    if (run->flights && run->flights->stages)
        weft__stage_stop(engine, xfer);
    if (transport->ops->cancel(transport, xfer) == WEFT_IN_PROGRESS) {
        run->borrowed++;
        return;
    }
    if (sends && xfer->message.list == WEFT__STAGED)
        weft__stage_end(engine, xfer);
    if (xfer->message.xflags == WEFT__X_FETCHING)
        weft__engine_refuse(engine, xfer->source);
    xfer->message.xflags = WEFT__X_IDLE;
}

static void take_back(struct weft__engine *engine, struct weft_run *run)
{
    struct weft__transport *transport = engine->transport;
    weft__flights_fail(engine, run);
    struct weft__message **link = &engine->job_head;
    struct weft__message *previous = NULL;
    while (*link) {
        struct weft__xfer *xfer = weft__xfer_of(*link);
        if (weft__xfer_run(xfer) != run) {
            previous = *link;
            link = &(*link)->next;
            continue;
        }
        *link = xfer->message.next;
        if (xfer->message.xflags == WEFT__X_COMPUTING)
            xfer->message.xflags = WEFT__X_IDLE;
        else if (xfer->message.xflags != WEFT__X_LANDING)
            refuse_source(engine, xfer);
    }
    engine->job_tail = previous;
    for (uint32_t i = 0; i < run->plan->xfer_count; i++) {
        struct weft__xfer *xfer = &run->xfers[i];
        switch (xfer->message.xflags) {
        case WEFT__X_POSTED:
            weft__match_remove(&engine->match, &xfer->message);
            xfer->message.xflags = WEFT__X_IDLE;
            break;
        case WEFT__X_FETCHING:
        case WEFT__X_SENDING:
            give_back(engine, xfer);
            break;
        case WEFT__X_COPYING_WAITS:
        case WEFT__X_REDUCING_WAITS:
        case WEFT__X_CARRYING_WAITS:
            weft__engine_refuse(engine, xfer->source);
            xfer->message.xflags = WEFT__X_IDLE;
            break;
        case WEFT__X_CARRYING_QUEUED:
            refuse_source(engine, xfer);
            break;
        default:
            break;
        }
    }
    if (transport->ops->unspend)
        transport->ops->unspend(transport, run);
    weft__engine_drop_calls(engine, run);
    for (uint32_t c = 0; c < run->plan->call_count; c++)
        run->borrowed += run->calls[c].pending != 0;
}

static void tell_peers(struct weft__engine *engine, const struct weft_run *run, int status,
                       int origin)
{
    struct weft__transport *transport = engine->transport;
    size_t length = run->how ? strlen(run->how) : 0;
    /* A failure that begins here ends a communicator of all ranks. */
    int tells_all = run->object->team && origin == transport->rank;
    uint32_t count = tells_all ? (uint32_t)transport->size : run->plan->peer_count;
    for (uint32_t i = 0; i < count; i++) {
        int peer = tells_all ? (int)i : weft__peer(run, (int32_t)i);
        if (peer == WEFT_PEER_NONE || peer == transport->rank || peer == origin)
            continue;
        struct weft__message failure = {.version = run->version,
                                        .object = run->object->id,
                                        .tag = (uint32_t)-status,
                                        .bytes = (size_t)origin,
                                        .from = transport->rank,
                                        .to = peer,
                                        .kind = WEFT__FAIL};
        if (run->how) {
            failure.kind = WEFT__BEREFT;
            failure.tag = (uint32_t)origin;
            failure.data = run->how;
            failure.bytes = length < WEFT__NEWS_BYTES ? length : WEFT__NEWS_BYTES - 1;
        }
        weft__engine_control(engine, &failure);
    }
}

/* Before anything is taken back, so that it shows what the run waited for. */
static void leave_state(struct weft__engine *engine, const struct weft_run *run, int status,
                        const char *where, const char *reason)
{
    char why[1000];
    snprintf(why, sizeof why, "%s of `%s`, version %llu: %s%s%s", where, run->plan->name,
             (unsigned long long)run->version, weft_status_text(status),
             reason[0] != '\0' ? ": " : "", reason);
    engine->host->state_dump(engine->context, why);
}

/* The caller's text, and what has come in place of what the node, or if it is none the run, waits
 * for: a receive with a wrong tag ends in many ways. */
static void give_reason(const struct weft__engine *engine, const struct weft_run *run,
                        uint32_t node, const char *text, char *reason, size_t size)
{
    char instead[160];
    engine->host->report_unmatched(run, node != WEFT__NONE ? node : weft__oldest_wait(run), instead,
                                   sizeof instead);
    snprintf(reason, size, "%.*s%s%s", WEFT__NEWS_BYTES, text ? text : "",
             text && text[0] != '\0' && instead[0] != '\0' ? "; " : "", instead);
}

void weft__engine_fail(struct weft__engine *engine, struct weft_run *run, int status, uint32_t node,
                       int origin, const char *text)
{
    if (atomic_load_explicit(&run->state, memory_order_relaxed) != WEFT__RUN_ACTIVE)
        return;
    struct weft__whole *whole = run->object ? run->object->whole : NULL;
    char where[160], reason[600], line[1000];
    if (status == WEFT_ERR_TIMEOUT)
        engine->host->report_log(engine->context, run, WEFT_LOG_INFO);
    weft__describe_node(run, node, where, sizeof where);
    give_reason(engine, run, node, text, reason, sizeof reason);
    run->status = status;
    snprintf(line, sizeof line, "%s of `%s` on rank %d of %d, version %llu: %s%s%s", where,
             run->plan->name, engine->transport->rank, engine->transport->size,
             (unsigned long long)run->version, weft_status_text(status),
             reason[0] != '\0' ? ": " : "", reason);
    /* Told before transfers are given back, so that peers hear the reason first. */
    const struct weft__news news = {engine->transport->rank, status, line};
    int first = whole && weft__whole_mark(engine, whole, status, line, &news);
    /* When everything fails, the news of that are all there is to tell: they may come later. */
    if (run->object && !whole && !run->told && engine->failed == 0)
        tell_peers(engine, run, run->cause != 0 ? run->cause : status, origin);
    if (status != WEFT_ERR_CANCELLED && (first || !whole))
        leave_state(engine, run, status, where, reason);
    take_back(engine, run);
    set_error(run, "%s%s", line,
              run->borrowed == 0 ? "" : "; buffers are borrowed until weft_run_reclaim() succeeds");
    memset(run->ready, 0, run->plan->words * sizeof *run->ready);
    engine->host->log(engine->context, WEFT_LOG_INFO, "%s", run->error ? run->error : "");
    if (run->object && !run->unordered)
        weft__engine_drop(engine,
                          weft__match_purge(&engine->match, run->object->id, run->version + 1));
    weft__engine_end(engine, run, status);
    if (first)
        weft__whole_spread(engine, whole);
}

void weft__engine_deadlines(struct weft__engine *engine)
{
    uint64_t next = WEFT__NEVER;
    struct weft_run *run = engine->active;
    while (run) {
        if (run->expires_ns > engine->now) {
            if (run->expires_ns < next)
                next = run->expires_ns;
            run = run->active_next;
            continue;
        }
        uint32_t culprit = weft__oldest_wait(run);
        char text[256];
        int length = snprintf(text, sizeof text, "not finished %.3f s after the start; ",
                              (double)run->deadline_ns * 1e-9);
        engine->host->report_missing(run, text + length, sizeof text - (size_t)length);
        weft__engine_fail(engine, run, WEFT_ERR_TIMEOUT, culprit, engine->transport->rank, text);
        run = engine->active; /* callbacks may have changed the list */
        next = WEFT__NEVER;
    }
    engine->expires_ns = next; /* what is asked now may want to be asked earlier */
    uint64_t due = engine->host->series_due(engine->context, engine->now);
    if (due < engine->expires_ns)
        engine->expires_ns = due;
}

uint32_t weft__oldest_wait(const struct weft_run *run)
{
    const struct weft_plan *plan = run->plan;
    uint32_t on_device = weft__flights_first(run);
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct weft__node *node = &plan->nodes[n];
        if (n == on_device)
            return n;
        if (node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV) {
            if (run->xfers[node->index].message.xflags != WEFT__X_IDLE)
                return n;
        } else if (node->kind == WEFT_NODE_EVENT) {
            if (run->waits[n] & WEFT__OPEN)
                return n;
        } else if (node->flags & WEFT__JOINT) {
            if (run->xfers[node->index].message.xflags != WEFT__X_IDLE)
                return n;
        } else if (node->kind == WEFT_NODE_COMPUTE) {
            if (run->calls[node->index].pending)
                return n;
        }
    }
    return WEFT__NONE;
}
