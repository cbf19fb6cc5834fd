/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a device that goes by way of the host: in segments of pinned memory, of which an engine
 * has a few.
 *
 *   device -- stream --> segment i + 1        while the transport sends segment i
 *
 * A transport asks for a segment once its receiver waits for it (weft__stage_at()), so whatever has
 * one gets rid of it, and the others get their turn, first come, first served. Others are brought
 * ahead; those that nobody has asked for yet are given up where one is needed that was, so a
 * receiver that is slow keeps none from the others but the one that is being sent to it.
 * All calls of the driver are made in the engine's own turn.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/flight.h"

enum { AHEAD = 3 /* segments of one message, if others do not wait for one */ };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- who waits ---- */

void weft__segments_wait(struct weft__segments *segments, struct weft__xfer *xfer)
{
    struct weft__stage *stage = weft__stage_of(xfer);

    if (stage->waits)
        return;
    if (!segments->waiting)
        segments->engine->pending++;
    stage->waits = 1;
    stage->next = NULL;
    if (segments->waiting_last)
        weft__stage_of(segments->waiting_last)->next = xfer;
    else
        segments->waiting = xfer;
    segments->waiting_last = xfer;
}

/* Takes out the one behind `before`; NULL: the first. */
static void take_out(struct weft__segments *segments, struct weft__xfer *before)
{
    struct weft__xfer *xfer = before ? weft__stage_of(before)->next : segments->waiting;
    struct weft__stage *stage = weft__stage_of(xfer);

    if (before)
        weft__stage_of(before)->next = stage->next;
    else
        segments->waiting = stage->next;
    if (segments->waiting_last == xfer)
        segments->waiting_last = before;
    stage->waits = 0;
    if (!segments->waiting)
        segments->engine->pending--;
}

struct weft__xfer *weft__segments_next(struct weft__segments *segments)
{
    struct weft__xfer *xfer = segments->waiting;

    take_out(segments, NULL);
    return xfer;
}

/* A transfer is in one list at most. */
void weft__stage_stop(struct weft__engine *engine, struct weft__xfer *xfer)
{
    int sends = weft__xfer_run(xfer)->plan->nodes[xfer->node].kind == WEFT_NODE_SEND;
    struct weft__segments *segments = sends ? &engine->staging->out : &engine->staging->in;
    struct weft__xfer *before = NULL;

    if (!weft__stage_of(xfer)->waits)
        return;
    for (struct weft__xfer *at = segments->waiting; at != xfer; at = weft__stage_of(at)->next)
        before = at;
    take_out(segments, before);
}

/* ---- segments ---- */

struct weft__chunk *weft__segments_take(struct weft__segments *segments, struct weft__xfer *xfer,
                                        size_t total, size_t most)
{
    struct weft__stage *stage = weft__stage_of(xfer);
    struct weft__chunk *segment = segments->free;

    segments->free = segment->next;
    *segment = (struct weft__chunk){.data = segment->data,
                                    .xfer = xfer,
                                    .begin = stage->brought,
                                    .bytes = least(most, total - stage->brought)};
    segment->left = segment->bytes;
    stage->brought += segment->bytes;
    stage->segments++;
    return segment;
}

void weft__segments_give(struct weft__segments *segments, struct weft__chunk *segment)
{
    weft__stage_of(segment->xfer)->segments--;
    segment->xfer = NULL;
    segment->next = segments->free;
    segments->free = segment;
}

struct weft__chunk *weft__segments_find(struct weft__segments *segments,
                                        const struct weft__xfer *xfer, size_t offset)
{
    for (int i = 0; i < WEFT__SEGMENTS; i++) {
        struct weft__chunk *segment = &segments->chunks[i];

        if (segment->xfer == xfer && offset - segment->begin < segment->bytes)
            return segment;
    }
    return NULL;
}

/* ---- bringing ---- */

static void bring(struct weft__engine *engine, struct weft__xfer *xfer)
{
    struct weft_run *run = weft__xfer_run(xfer);
    struct weft__chunk *segment = weft__segments_take(&engine->staging->out, xfer,
                                                      xfer->message.bytes, engine->segment_bytes);
    const struct weft__region *region = &run->plan->regions[run->plan->nodes[xfer->node].regions];
    int status = weft__device_carry(run, region, segment->begin, segment->data, segment->bytes, 0);

    /* Also where it has failed: a part of it may be on the stream. */
    weft__flight_add(
        engine, run->flights,
        (struct weft__flight){.node = xfer->node, .kind = WEFT__FLIGHT_SEGMENT, .chunk = segment});
    if (status != WEFT_OK)
        weft__engine_fail(engine, run, status, xfer->node, engine->transport->rank,
                          weft_error_text());
}

static int wants_more(const struct weft__xfer *xfer)
{
    const struct weft__stage *stage = weft__stage_of(xfer);

    return stage->brought < xfer->message.bytes && stage->segments < (stage->asked ? AHEAD : 1);
}

/* Whether a send waits for a segment that its transport has asked for. */
static int is_awaited(const struct weft__xfer *xfer)
{
    const struct weft__stage *stage = weft__stage_of(xfer);

    return stage->asked && stage->brought <= stage->wanted && stage->brought < xfer->message.bytes;
}

/* Frees a segment that was brought ahead: the last of its send, so that it can be brought again. */
static void give_up_one(struct weft__segments *out)
{
    for (int i = 0; i < WEFT__SEGMENTS && !out->free; i++) {
        struct weft__chunk *segment = &out->chunks[i];
        struct weft__stage *stage = segment->xfer ? weft__stage_of(segment->xfer) : NULL;

        if (!stage || !segment->there || segment->used ||
            (stage->asked && segment->begin <= stage->wanted) ||
            segment->begin + segment->bytes != stage->brought)
            continue;
        stage->brought = segment->begin;
        weft__segments_give(out, segment);
    }
}

static void bring_all(struct weft__engine *engine)
{
    struct weft__segments *out = &engine->staging->out;

    while (out->waiting) {
        struct weft__xfer *xfer = out->waiting;
        int awaited = is_awaited(xfer);

        if (!out->free && awaited)
            give_up_one(out);
        if (!out->free && awaited)
            return;
        weft__segments_next(out);
        if (!out->free || !wants_more(xfer))
            continue; /* what is brought ahead keeps nobody waiting */
        bring(engine, xfer);
        /* Behind those that have none yet. It may have failed. */
        if (xfer->message.xflags == WEFT__X_SENDING && wants_more(xfer))
            weft__segments_wait(out, xfer);
    }
}

void weft__staging_work(struct weft__engine *engine)
{
    bring_all(engine);
    weft__pull_work(engine);
}

void weft__stage_landed(struct weft__engine *engine, struct weft__chunk *segment)
{
    struct weft__xfer *xfer = segment->xfer;

    segment->there = 1;
    if (xfer->message.xflags == WEFT__X_SENDING)
        engine->transport->ops->staged(engine->transport, xfer);
    else
        weft__segments_give(&engine->staging->out, segment);
}

/* ---- what sends do ---- */

void weft__stage_begin(struct weft__engine *engine, struct weft_run *run, uint32_t n)
{
    struct weft__xfer *xfer = &run->xfers[run->plan->nodes[n].index];

    *weft__stage_of(xfer) = (struct weft__stage){0};
    weft__engine_post(engine, run, n, NULL, WEFT__STAGED);
    if (xfer->message.xflags == WEFT__X_SENDING)
        weft__segments_wait(&engine->staging->out, xfer);
}

size_t weft__stage_segment(const struct weft__xfer *xfer)
{
    const struct weft__engine *engine = weft__xfer_run(xfer)->engine;

    return engine->staging ? engine->segment_bytes : 0;
}

const char *weft__stage_at(struct weft__xfer *xfer, size_t offset, size_t *bytes)
{
    struct weft__engine *engine = weft__xfer_run(xfer)->engine;
    struct weft__segments *out = &engine->staging->out;
    struct weft__chunk *segment = weft__segments_find(out, xfer, offset);

    weft__stage_of(xfer)->asked = 1;
    weft__stage_of(xfer)->wanted = offset;
    if (wants_more(xfer)) {
        weft__segments_wait(out, xfer);
        engine->did++;
    }
    if (!segment || !segment->there)
        return NULL;
    segment->used = 1;
    *bytes = segment->begin + segment->bytes - offset;
    return segment->data + (offset - segment->begin);
}

void weft__stage_done(struct weft__xfer *xfer, size_t offset, size_t bytes)
{
    struct weft__engine *engine = weft__xfer_run(xfer)->engine;
    struct weft__segments *out = &engine->staging->out;
    struct weft__chunk *segment = weft__segments_find(out, xfer, offset);

    segment->left -= bytes;
    if (segment->left > 0)
        return;
    weft__segments_give(out, segment);
    if (xfer->message.xflags == WEFT__X_SENDING && wants_more(xfer))
        weft__segments_wait(out, xfer);
    engine->did++;
}

void weft__stage_switch(struct weft__xfer *xfer)
{
    struct weft_context_stats *stats = &weft__xfer_run(xfer)->engine->stats;

    *weft__stage_of(xfer) = (struct weft__stage){0};
    xfer->message.list = WEFT__STAGED;
    stats->device_direct--;
    stats->device_staged++;
}

/* What is on the stream comes back by itself. */
void weft__stage_end(struct weft__engine *engine, struct weft__xfer *xfer)
{
    struct weft__segments *out = &engine->staging->out;

    weft__stage_stop(engine, xfer);
    for (int i = 0; i < WEFT__SEGMENTS; i++)
        if (out->chunks[i].xfer == xfer && out->chunks[i].there)
            weft__segments_give(out, &out->chunks[i]);
}

/* ---- making ---- */

static void cut(struct weft__engine *engine, struct weft__segments *segments, char *memory)
{
    segments->engine = engine;
    for (int i = 0; i < WEFT__SEGMENTS; i++) {
        segments->chunks[i].data = memory + (size_t)i * engine->segment_bytes;
        segments->chunks[i].next = segments->free;
        segments->free = &segments->chunks[i];
    }
}

int weft__staging_open(struct weft__engine *engine, struct weft__device *device)
{
    const struct weft__transport_ops *ops = engine->transport->ops;
    size_t bytes = WEFT__SEGMENTS * engine->segment_bytes;
    struct weft__staging *staging;

    if (engine->staging || !ops->staged)
        return WEFT_OK;
    staging = weft__calloc(1, sizeof *staging);
    if (!staging)
        return weft__error_memory("segments of pinned memory");
    staging->device = device;
    staging->memory = device->ops->pin(device, ops->pull ? 2 * bytes : bytes);
    if (!staging->memory) {
        weft__free(staging);
        return WEFT_ERR_MEMORY;
    }
    cut(engine, &staging->out, staging->memory);
    if (ops->pull)
        cut(engine, &staging->in, staging->memory + bytes);
    engine->staging = staging;
    return WEFT_OK;
}

void weft__staging_close(struct weft__engine *engine)
{
    struct weft__staging *staging = engine->staging;

    if (!staging)
        return;
    staging->device->ops->unpin(staging->device, staging->memory);
    weft__free(staging);
    engine->staging = NULL;
}
