/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that come in segments, as they are asked for, to memory of a device.
 *
 *   segment i -- stream --> device        while the transport receives segment i + 1
 *
 * A segment is asked for when there is pinned memory for it; its sender then has, or will have,
 * what it takes to send it. So none waits for another message.
 */
#include "runtime/base/error.h"
#include "runtime/engine/flight.h"

enum { AHEAD = 3 /* segments of one message that are asked for, or on the stream */ };

static int wants_more(const struct weft__xfer *xfer)
{
    const struct weft__stage *stage = weft__stage_of(xfer);

    return stage->brought < xfer->source->bytes && stage->segments < AHEAD;
}

void weft__pull_begin(struct weft__engine *engine, struct weft__xfer *xfer,
                      struct weft__message *message)
{
    *weft__stage_of(xfer) = (struct weft__stage){0};
    xfer->source = message;
    xfer->message.xflags = WEFT__X_FETCHING;
    message->next = &xfer->message;
    weft__segments_wait(&engine->staging->in, xfer);
    engine->did++;
}

static void ask(struct weft__engine *engine, struct weft__xfer *xfer)
{
    struct weft__transport *transport = engine->transport;
    struct weft__segments *in = &engine->staging->in;
    struct weft__message *message = xfer->source;
    struct weft__chunk *segment =
        weft__segments_take(in, xfer, message->bytes, engine->segment_bytes);
    size_t bytes = segment->bytes;
    int status = transport->ops->pull(transport, message, segment->begin, segment->data, &bytes);

    if (status == WEFT_IN_PROGRESS) {
        weft__stage_of(xfer)->brought -= segment->bytes - bytes;
        segment->bytes = bytes;
        return;
    }
    weft__segments_give(in, segment);
    weft__engine_fail(engine, weft__xfer_run(xfer), status, xfer->node, transport->rank,
                      weft_error_text());
}

void weft__pull_work(struct weft__engine *engine)
{
    struct weft__segments *in = &engine->staging->in;

    while (in->waiting && in->free) {
        struct weft__xfer *xfer = weft__segments_next(in);

        if (!wants_more(xfer))
            continue;
        ask(engine, xfer);
        if (xfer->message.xflags == WEFT__X_FETCHING && wants_more(xfer))
            weft__segments_wait(in, xfer);
    }
}

void weft__engine_pulled(struct weft__engine *engine, struct weft__message *message, size_t offset,
                         int status)
{
    struct weft__xfer *xfer = weft__xfer_of(message->next);
    struct weft_run *run = weft__xfer_run(xfer);
    struct weft__chunk *segment;

    engine->did++;
    engine = run->engine;
    segment = weft__segments_find(&engine->staging->in, xfer, offset);
    if (!weft__run_active(run)) {
        weft__segments_give(&engine->staging->in, segment);
        return;
    }
    if (status == WEFT_OK) {
        const struct weft__node *node = &run->plan->nodes[xfer->node];

        status = weft__device_carry(run, &run->plan->regions[node->regions], segment->begin,
                                    segment->data, segment->bytes, 1);
        /* Also where it has failed: a part of it may be on the stream. */
        weft__flight_add(engine, run->flights,
                         (struct weft__flight){
                             .node = xfer->node, .kind = WEFT__FLIGHT_PULLED, .chunk = segment});
    } else {
        weft__segments_give(&engine->staging->in, segment);
    }
    if (status != WEFT_OK)
        weft__engine_fail(engine, run, status, xfer->node, engine->transport->rank,
                          weft_error_text());
}

void weft__pull_landed(struct weft__engine *engine, struct weft__chunk *segment)
{
    struct weft__xfer *xfer = segment->xfer;
    struct weft__stage *stage = weft__stage_of(xfer);
    struct weft__message *message = xfer->source;

    stage->landed += segment->bytes;
    weft__segments_give(&engine->staging->in, segment);
    if (stage->landed < message->bytes) {
        if (wants_more(xfer))
            weft__segments_wait(&engine->staging->in, xfer);
        return;
    }
    engine->transport->ops->release(engine->transport, message, 1);
    weft__engine_received(engine, xfer, stage->landed, 0);
}
