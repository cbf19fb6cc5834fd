/* SPDX-License-Identifier: BSD-3-Clause */
/* What comes without a payload: signals, news that a version has failed or that a rank has left. */
#include "runtime/base/alloc.h"
#include "runtime/engine/engine.h"
#include <stdio.h>

/* ---- keeping and dropping ---- */

void weft__engine_drop(struct weft__engine *engine, struct weft__message *message)
{
    while (message) {
        struct weft__message *next = message->next;
        engine->transport->ops->release(engine->transport, message, 0);
        message = next;
    }
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
        engine->host->series_signalled(object->series, message);
    engine->transport->ops->release(engine->transport, message, 1);
    if (!object)
        return;
    uint64_t *reached = weft__object_reached(object, channel);
    if (!reached || version == UINT64_MAX || *reached >= version + 1)
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

void weft__engine_left(struct weft__engine *engine, int rank)
{
    engine->did++;
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
