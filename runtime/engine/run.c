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
#include "runtime/context/context.h"
#include "runtime/engine/engine.h"
#include "runtime/trace/trace.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the table of objects, to begin with. A power of two. */
#define FIRST_CHAINS 16

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
    const char *label = weft__plan_label(plan, n);
    char name[80];
    if (label)
        snprintf(name, sizeof name, "node %u `%s`", n, label);
    else
        snprintf(name, sizeof name, "node %u", n);
    if (node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV)
        snprintf(text, size, "%s (%s %s rank %d, tag %u, %zu bytes)", name, kind,
                 node->kind == WEFT_NODE_SEND ? "to" : "from", weft__peer(run, node->peer),
                 node->tag, weft__region_count(run, &plan->regions[node->regions]) << node->shift);
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
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    weft__free(run->error);
    run->error = weft__strdup(text); /* NULL: weft_run_error() falls back on the status */
}

/* ---- the end ---- */

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
    /* Release pairs with the acquire of those who look at the state: they see the results. */
    atomic_store_explicit(&run->state, WEFT__RUN_ENDED, memory_order_release);
    if (series)
        weft__series_ended(series, run, status);
    else if (ended)
        ended(user, run, status);
    weft__wake_waiters(engine->context);
}

static void take_back(struct weft__engine *engine, struct weft_run *run)
{
    struct weft__transport *transport = engine->transport;
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
        if (xfer->message.xflags != WEFT__X_COMPUTING)
            transport->ops->release(transport, xfer->source, 0);
        xfer->message.xflags = WEFT__X_IDLE;
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
            if (transport->ops->cancel(transport, xfer) == WEFT_IN_PROGRESS) {
                run->borrowed++;
            } else {
                if (xfer->message.xflags == WEFT__X_FETCHING)
                    transport->ops->release(transport, xfer->source, 0);
                xfer->message.xflags = WEFT__X_IDLE;
            }
            break;
        default:
            break;
        }
    }
    if (transport->ops->unspend)
        transport->ops->unspend(transport, run);
    for (uint32_t c = 0; c < run->plan->call_count; c++)
        run->borrowed += run->calls[c].pending != 0;
}

static void drop_list(struct weft__engine *engine, struct weft__message *message)
{
    while (message) {
        struct weft__message *next = message->next;
        engine->transport->ops->release(engine->transport, message, 0);
        message = next;
    }
}

static void tell_peers(struct weft__engine *engine, const struct weft_run *run, int status,
                       int origin)
{
    struct weft__transport *transport = engine->transport;
    for (uint32_t i = 0; i < run->plan->peer_count; i++) {
        int peer = weft__peer(run, (int32_t)i);
        if (peer == WEFT_PEER_NONE || peer == transport->rank || peer == origin)
            continue;
        struct weft__message failure = {.version = run->version,
                                        .object = run->object->id,
                                        .tag = (uint32_t)-status,
                                        .bytes = (size_t)origin,
                                        .from = transport->rank,
                                        .to = peer,
                                        .kind = WEFT__FAIL};
        transport->ops->control(transport, &failure);
    }
}

/* Before anything is taken back, so that it shows what the run waited for. */
static void leave_state(struct weft__engine *engine, const struct weft_run *run, int status,
                        const char *where, const char *reason)
{
    char why[640];
    if (!engine->context->state_directory)
        return;
    snprintf(why, sizeof why, "%s of `%s`, version %llu: %s%s%s", where, run->plan->name,
             (unsigned long long)run->version, weft_status_text(status),
             reason[0] != '\0' ? ": " : "", reason);
    weft__state_dump(engine->context, why);
}

void weft__engine_fail(struct weft__engine *engine, struct weft_run *run, int status, uint32_t node,
                       int origin, const char *text)
{
    if (atomic_load_explicit(&run->state, memory_order_relaxed) != WEFT__RUN_ACTIVE)
        return;
    char where[160];
    char reason[256];
    if (status == WEFT_ERR_TIMEOUT)
        weft__report_log(engine->context, run, WEFT_LOG_INFO);
    weft__describe_node(run, node, where, sizeof where);
    snprintf(reason, sizeof reason, "%s", !text || text[0] == '\0' ? "" : text);
    run->status = status;
    if (status != WEFT_ERR_CANCELLED)
        leave_state(engine, run, status, where, reason);
    /* Told before transfers are given back, so that peers hear the reason first. */
    if (run->object)
        tell_peers(engine, run, run->cause != 0 ? run->cause : status, origin);
    take_back(engine, run);
    set_error(run, "%s of `%s` on rank %d of %d, version %llu: %s%s%s%s", where, run->plan->name,
              engine->transport->rank, engine->transport->size, (unsigned long long)run->version,
              weft_status_text(status), reason[0] != '\0' ? ": " : "", reason,
              run->borrowed == 0 ? "" : "; buffers are borrowed until weft_run_reclaim() succeeds");
    memset(run->ready, 0, run->plan->words * sizeof *run->ready);
    weft__log(engine->context, WEFT_LOG_INFO, "%s", run->error ? run->error : "");
    if (run->object)
        drop_list(engine, weft__match_purge(&engine->match, run->object->id, run->version + 1));
    weft__engine_end(engine, run, status);
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
        weft__report_missing(run, text + length, sizeof text - (size_t)length);
        weft__engine_fail(engine, run, WEFT_ERR_TIMEOUT, culprit, engine->transport->rank, text);
        run = engine->active; /* callbacks may have changed the list */
        next = WEFT__NEVER;
    }
    engine->expires_ns = next; /* what is asked now may want to be asked earlier */
    uint64_t due = weft__series_due(engine->context, engine->now);
    if (due < engine->expires_ns)
        engine->expires_ns = due;
}

uint32_t weft__oldest_wait(const struct weft_run *run)
{
    const struct weft_plan *plan = run->plan;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct weft__node *node = &plan->nodes[n];
        if (node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV) {
            if (run->xfers[node->index].message.xflags != WEFT__X_IDLE)
                return n;
        } else if (node->kind == WEFT_NODE_EVENT) {
            if (run->waits[n] & WEFT__OPEN)
                return n;
        } else if (node->kind == WEFT_NODE_COMPUTE) {
            if (run->calls[node->index].pending)
                return n;
        }
    }
    return WEFT__NONE;
}

/* ---- objects ---- */

static int compare_channels(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static int find_channels(struct weft__object *object, struct weft_plan *const *plans, size_t count)
{
    size_t total = 0;
    for (size_t p = 0; p < count; p++)
        total += plans[p]->event_count;
    object->channels = weft__malloc(total, sizeof *object->channels);
    object->reached = weft__calloc(total, sizeof *object->reached);
    if (!object->channels || !object->reached)
        return WEFT_ERR_MEMORY;
    size_t n = 0;
    for (size_t p = 0; p < count; p++)
        for (uint32_t e = 0; e < plans[p]->event_count; e++)
            if (plans[p]->events[e].channel != WEFT_CHANNEL_NONE)
                object->channels[n++] = plans[p]->events[e].channel;
    qsort(object->channels, n, sizeof *object->channels, compare_channels);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || object->channels[i] != object->channels[i - 1])
            object->channels[object->channel_count++] = object->channels[i];
    return WEFT_OK;
}

/* Room for one more: as many chains as objects, so that most chains have one. 0, or -1. */
static int object_room(struct weft__engine *engine)
{
    size_t chains = !engine->objects ? 0 : (size_t)engine->object_mask + 1;
    if (engine->object_count < chains)
        return 0;
    size_t wanted = chains == 0 ? FIRST_CHAINS : 2 * chains;
    struct weft__object **table = weft__calloc(wanted, sizeof *table);
    if (!table)
        return -1;
    for (size_t c = 0; c < chains; c++) {
        struct weft__object *object = engine->objects[c];
        while (object) {
            struct weft__object *next = object->next;
            struct weft__object **chain = &table[object->id & (wanted - 1)];
            object->next = *chain;
            *chain = object;
            object = next;
        }
    }
    weft__free((void *)engine->objects);
    engine->objects = table;
    engine->object_mask = wanted - 1;
    return 0;
}

int weft__engine_object(struct weft__engine *engine, struct weft_plan *const *plans, size_t count,
                        struct weft_series *series, struct weft__object **out)
{
    struct weft__object *object = weft__calloc(1, sizeof *object);
    if (!object || find_channels(object, plans, count) != WEFT_OK || object_room(engine) != 0) {
        if (object) {
            weft__free(object->channels);
            weft__free(object->reached);
        }
        weft__free(object);
        return weft__error_memory("an object");
    }
    object->failing = UINT64_MAX;
    object->id = engine->object_next++;
    struct weft__object **chain = &engine->objects[object->id & engine->object_mask];
    object->next = *chain;
    *chain = object;
    engine->object_count++;
    object->series = series;
    *out = object;
    weft__object_early(engine, object);
    return WEFT_OK;
}

/* What came for this object before it was created here. */
void weft__object_early(struct weft__engine *engine, struct weft__object *object)
{
    struct weft__message **link = &engine->early;
    while (*link) {
        struct weft__message *message = *link;
        if (message->object != object->id) {
            link = &message->next;
            continue;
        }
        *link = message->next;
        if (message->kind == WEFT__SIGNAL)
            weft__engine_signal(engine, message);
        else
            weft__engine_failure(engine, message);
    }
}

void weft__object_drop(struct weft__engine *engine, struct weft__object *object)
{
    drop_list(engine, weft__match_purge(&engine->match, object->id, UINT64_MAX));
    drop_list(engine, object->failed);
    struct weft__object **link = &engine->objects[object->id & engine->object_mask];
    while (*link != object)
        link = &(*link)->next;
    *link = object->next;
    engine->object_count--;
    weft__free(object->channels);
    weft__free(object->reached);
    weft__free(object);
}

int weft__object_failed(struct weft__engine *engine, struct weft_run *run)
{
    struct weft__message **link = &run->object->failed;
    while (*link) {
        struct weft__message *message = *link;
        if (message->version > run->version) {
            link = &message->next;
            continue;
        }
        *link = message->next;
        int mine = message->version == run->version;
        if (mine)
            weft__engine_failure(engine, message);
        else
            engine->transport->ops->release(engine->transport, message, 0);
        if (mine)
            return 1;
    }
    return 0;
}

/* ---- control messages ---- */

uint32_t weft__events_from(const struct weft_plan *plan, uint32_t channel)
{
    uint32_t low = 0;
    uint32_t high = plan->event_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->events[middle].channel < channel)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Keeps a message for an object to come. Signals of one rank on one channel are cumulative: the
 * later is kept. A series hears who has sent them. */
static void keep_early(struct weft__engine *engine, struct weft__message *message)
{
    struct weft__message **link = &engine->early;
    for (; *link; link = &(*link)->next)
        if ((*link)->object == message->object && (*link)->kind == message->kind &&
            ((message->kind == WEFT__SIGNAL && (*link)->tag == message->tag &&
              (*link)->from == message->from) ||
             (message->kind == WEFT__FAIL && (*link)->version == message->version))) {
            if ((*link)->version < message->version)
                (*link)->version = message->version;
            engine->transport->ops->release(engine->transport, message, 1);
            return;
        }
    message->next = NULL;
    *link = message;
}

void weft__engine_signal(struct weft__engine *engine, struct weft__message *message)
{
    if (message->object >= engine->object_next) {
        keep_early(engine, message);
        return;
    }
    struct weft__object *object = weft__object_find(engine, message->object);
    uint32_t channel = message->tag;
    uint64_t version = message->version;
    if (object && object->series)
        weft__series_signalled(object->series, message);
    engine->transport->ops->release(engine->transport, message, 1);
    if (!object)
        return;
    uint32_t *found = bsearch(&channel, object->channels, object->channel_count,
                              sizeof *object->channels, compare_channels);
    if (!found || version == UINT64_MAX)
        return;
    uint64_t *reached = &object->reached[found - object->channels];
    if (*reached >= version + 1)
        return;
    *reached = version + 1;
    struct weft_run *run = object->active;
    if (!run || version < run->version)
        return;
    weft__engine_fire_channel(engine, run, channel);
}

void weft__engine_failure(struct weft__engine *engine, struct weft__message *message)
{
    if (message->object >= engine->object_next) {
        keep_early(engine, message);
        return;
    }
    struct weft__object *object = weft__object_find(engine, message->object);
    struct weft_run *run = !object ? NULL : object->active;
    uint64_t version = message->version;
    if (!object || version < object->floor) {
        engine->transport->ops->release(engine->transport, message, 1);
        return;
    }
    if (!run || version > run->version) {
        for (struct weft__message *kept = object->failed; kept; kept = kept->next)
            if (kept->version == version) {
                engine->transport->ops->release(engine->transport, message, 1);
                return;
            }
        message->next = object->failed;
        object->failed = message;
        return;
    }
    int origin = (int)message->bytes;
    int from = message->from;
    int cause = -(int)message->tag;
    engine->transport->ops->release(engine->transport, message, 1);
    char text[160];
    if (origin == from)
        snprintf(text, sizeof text, "rank %d failed (%s)", origin, weft_status_text(cause));
    else
        snprintf(text, sizeof text, "rank %d failed (%s), as rank %d reports", origin,
                 weft_status_text(cause), from);
    run->cause = cause;
    weft__engine_fail(engine, run, WEFT_ERR_PEER, WEFT__NONE, origin, text);
}

/* ---- ranks that have left ---- */

void weft__engine_forsaken(struct weft__engine *engine, struct weft_run *run, uint32_t node,
                           int rank)
{
    char text[64];
    snprintf(text, sizeof text, "rank %d has left", rank);
    weft__engine_fail(engine, run, WEFT_ERR_PEER, node, rank, text);
}

/* The first node of a run that waits for a message of `rank`; or WEFT__NONE. */
static uint32_t waits_for_rank(const struct weft_run *run, int rank)
{
    for (uint32_t i = 0; i < run->plan->xfer_count; i++)
        if (run->xfers[i].message.xflags == WEFT__X_POSTED && run->xfers[i].message.from == rank)
            return run->xfers[i].node;
    return WEFT__NONE;
}

void weft__engine_left(struct weft__engine *engine, struct weft__message *message)
{
    int rank = message->from;
    engine->transport->ops->release(engine->transport, message, 1);
    if (!engine->gone)
        engine->gone = weft__calloc((size_t)engine->transport->size / 8 + 1, 1);
    if (engine->gone) /* without memory, receives that are posted later wait */
        engine->gone[rank / 8] |= (unsigned char)(1u << (rank % 8));
    struct weft_run *run = engine->active;
    while (run) {
        uint32_t node = waits_for_rank(run, rank);
        if (node == WEFT__NONE) {
            run = run->active_next;
            continue;
        }
        weft__engine_forsaken(engine, run, node, rank);
        run = engine->active; /* the list has changed */
    }
}
