/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between memory of the host that the device does not know and the device: in chunks of pinned
 * memory.
 *
 *   to the device:    memory -- processor --> chunk -- stream --> device
 *   to the host:      device -- stream --> chunk -- landed: processor --> memory
 *
 * Each is a job of the engine (message.c), a chunk a slice. While all chunks are in the air a job
 * waits in the bounce's own list, and goes on when one has landed.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/flight.h"

#include <string.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The side of a job that is memory of the host, or a message; and of the device. */
struct sides {
    const struct weft__region *to, *from; /* NULL: the message */
    size_t total;
    int in; /* to the device */
};

static struct sides sides_of(const struct weft__xfer *xfer)
{
    const struct weft_run *run = weft__xfer_run(xfer);
    const struct weft_plan *plan = run->plan;
    const struct weft__node *node = &plan->nodes[xfer->node];
    const struct weft__region *regions = &plan->regions[node->regions];
    struct sides sides = {.to = regions};

    sides.in = plan->slots[regions->slot].memory == WEFT_MEMORY_DEVICE;
    if (node->kind == WEFT_NODE_COPY) {
        sides.from = regions + 1;
        sides.total = weft__region_bytes(run, regions);
    } else {
        sides.total = xfer->source ? xfer->source->bytes : xfer->message.bytes;
    }
    return sides;
}

/* ---- chunks ---- */

void weft__bounce_free(struct weft__engine *engine, struct weft__chunk *chunk)
{
    struct weft__bounce *bounce = engine->bounce;
    struct weft__message *waiting = bounce->waiting;

    chunk->next = bounce->free;
    bounce->free = chunk;
    if (!waiting)
        return;
    bounce->waiting = waiting->next;
    if (!bounce->waiting)
        bounce->waiting_last = NULL;
    weft__engine_again(engine, weft__xfer_of(waiting), WEFT__X_CARRYING);
}

static struct weft__chunk *take(struct weft__engine *engine)
{
    struct weft__chunk *chunk = engine->bounce->free;

    if (chunk)
        engine->bounce->free = chunk->next;
    return chunk;
}

static void wait_for_chunk(struct weft__engine *engine, struct weft__xfer *xfer)
{
    struct weft__bounce *bounce = engine->bounce;

    weft__engine_rest(engine);
    xfer->message.xflags = WEFT__X_CARRYING_QUEUED;
    xfer->message.next = NULL;
    if (bounce->waiting_last)
        bounce->waiting_last->next = &xfer->message;
    else
        bounce->waiting = &xfer->message;
    bounce->waiting_last = &xfer->message;
}

void weft__bounce_drop(struct weft__engine *engine, const struct weft_run *run)
{
    struct weft__bounce *bounce = engine->bounce;
    struct weft__message **link = bounce ? &bounce->waiting : NULL;
    struct weft__message *last = NULL;

    while (link && *link) {
        struct weft__xfer *xfer = weft__xfer_of(*link);

        if (weft__xfer_run(xfer) != run) {
            last = *link;
            link = &(*link)->next;
            continue;
        }
        *link = xfer->message.next;
    }
    if (bounce)
        bounce->waiting_last = last;
}

/* ---- the work ---- */

void weft__bounce_start(struct weft__engine *engine, struct weft__xfer *xfer)
{
    weft__engine_job(engine, xfer, WEFT__X_CARRYING);
}

/* Bytes [begin, begin + bytes) of the host's side into a chunk. */
static void fill(const struct weft__xfer *xfer, const struct sides *sides, char *to, size_t begin,
                 size_t bytes)
{
    const struct weft_run *run = weft__xfer_run(xfer);

    for (size_t at = 0, in; at < bytes; at += in) {
        in = bytes - at;
        const char *from = sides->from    ? weft__region_chunk(run, sides->from, begin + at, &in)
                           : xfer->source ? weft__source_chunk(xfer->source, begin + at, &in)
                                          : (const char *)xfer->message.data + begin + at;
        in = least(in, bytes - at);
        memcpy(to + at, from, in);
    }
}

/* Between a chunk and the device's side, whose memory may be in pieces. */
static int carry(const struct weft__xfer *xfer, const struct sides *sides, char *chunk,
                 size_t begin, size_t bytes)
{
    const struct weft_run *run = weft__xfer_run(xfer);
    struct weft__stream *stream = run->flights->stream;
    int status = WEFT_OK;

    for (size_t at = 0, size; at < bytes && status == WEFT_OK; at += size) {
        size = bytes - at;
        char *there = sides->in     ? weft__region_chunk(run, sides->to, begin + at, &size)
                      : sides->from ? weft__region_chunk(run, sides->from, begin + at, &size)
                                    : weft__xfer_chunk((const struct weft__xfer *)xfer->source,
                                                       begin + at, &size);
        size = least(size, bytes - at);
        status = sides->in ? stream->device->ops->copy(stream, there, chunk + at, size)
                           : stream->device->ops->copy(stream, chunk + at, there, size);
    }
    return status;
}

/* The last chunk of a job has taken off. A message of the host's has been read. */
static void taken_off(struct weft__engine *engine, struct weft__xfer *xfer,
                      const struct sides *sides)
{
    struct weft_run *run = weft__xfer_run(xfer);

    xfer->message.xflags = WEFT__X_LANDING;
    if (sides->from) {
        weft__engine_issued(engine, run, xfer->node);
    } else if (sides->in && xfer->source) {
        engine->transport->ops->release(engine->transport, xfer->source, 1);
        xfer->source = NULL;
    } else if (sides->in) {
        weft__device_drop_temporary(xfer);
    }
}

void weft__bounce_work(struct weft__engine *engine, struct weft__xfer *xfer)
{
    struct weft_run *run = weft__xfer_run(xfer);
    const struct sides sides = sides_of(xfer);
    int reads = !sides.from && sides.in && xfer->source;
    size_t most = WEFT__CHUNK_BYTES;
    struct weft__chunk *chunk = take(engine);

    if (!chunk) {
        wait_for_chunk(engine, xfer);
        return;
    }
    if (reads && !weft__engine_read_begin(engine, xfer, &most)) {
        weft__bounce_free(engine, chunk);
        return;
    }
    size_t begin = xfer->done;
    size_t bytes = least(least(most, WEFT__CHUNK_BYTES), sides.total - begin);
    int last = begin + bytes == sides.total;
    if (sides.in)
        fill(xfer, &sides, chunk->data, begin, bytes);
    if (reads)
        weft__engine_read_end(engine, xfer);
    int status = carry(xfer, &sides, chunk->data, begin, bytes);
    xfer->done = begin + bytes;
    if (last || status != WEFT_OK)
        weft__engine_rest(engine);
    /* Also where it has failed: a part of it may be on the stream. */
    weft__flight_add(engine, run->flights,
                     (struct weft__flight){
                         .node = xfer->node,
                         .kind = sides.in ? WEFT__FLIGHT_IN : WEFT__FLIGHT_OUT,
                         .last = (uint8_t)last,
                         .chunk = chunk,
                         .begin = begin,
                         .bytes = bytes,
                     });
    if (status != WEFT_OK)
        weft__engine_broken(engine, run, xfer->node);
    else if (last && weft__run_active(run))
        taken_off(engine, xfer, &sides);
}

/* A chunk that the device has filled goes to the host's memory. */
static void empty(const struct weft_run *run, const struct weft__region *region,
                  const struct weft__flight *flight)
{
    for (size_t at = 0, out; at < flight->bytes; at += out) {
        out = flight->bytes - at;
        char *to = weft__region_chunk(run, region, flight->begin + at, &out);
        out = least(out, flight->bytes - at);
        memcpy(to, flight->chunk->data + at, out);
    }
}

void weft__bounce_landed(struct weft__engine *engine, struct weft__flights *flights,
                         const struct weft__flight *flight)
{
    struct weft_run *run = flights->run;
    const struct weft__node *node = &run->plan->nodes[flight->node];
    struct weft__xfer *xfer = &run->xfers[node->index];
    size_t bytes = flight->begin + flight->bytes;

    if (flight->kind == WEFT__FLIGHT_OUT)
        empty(run, &run->plan->regions[node->regions], flight);
    weft__bounce_free(engine, flight->chunk);
    if (!flight->last)
        return;
    if (node->kind == WEFT_NODE_COPY) {
        xfer->message.xflags = WEFT__X_IDLE;
        weft__engine_landed(engine, run, flight->node);
        return;
    }
    if (xfer->source) {
        weft__engine_have_read(engine, xfer);
        engine->transport->ops->release(engine->transport, xfer->source, 1);
    }
    weft__engine_received(engine, xfer, bytes, 0);
}

void weft__bounce_close(struct weft__engine *engine)
{
    struct weft__bounce *bounce = engine->bounce;

    if (!bounce)
        return;
    bounce->device->ops->unpin(bounce->device, bounce->memory);
    weft__free(bounce);
    engine->bounce = NULL;
}
