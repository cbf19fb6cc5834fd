/* SPDX-License-Identifier: BSD-3-Clause */
/* What is in the air: tickets, landings, and what is left of it when a run fails. */
#include "runtime/engine/flight.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/ordered.h"
#include "runtime/engine/record.h"
#include "runtime/graph/op.h"

#include <sched.h>

/* Who sleeps looks again after a tenth of the time in which nothing has landed. */
enum { BACK_OFF = 10, SLEEP_NS = 1000000 };

/* ---- the list ---- */

static void enter(struct weft__engine *engine, struct weft__flights *flights)
{
    if (flights->flying)
        return;
    if (!engine->flying)
        engine->landed_ns = engine->now;
    flights->flying = 1;
    flights->before = NULL;
    flights->next = engine->flying;
    if (engine->flying)
        engine->flying->before = flights;
    engine->flying = flights;
    engine->pending++;
}

static void leave(struct weft__engine *engine, struct weft__flights *flights)
{
    flights->flying = 0;
    if (flights->before)
        flights->before->next = flights->next;
    else
        engine->flying = flights->next;
    if (flights->next)
        flights->next->before = flights->before;
    engine->pending--;
}

/* ---- taking off ---- */

/* Whether somebody waits for just this one. What follows on the stream brings the ticket for what
 * is only waited for there; that may be retired, though, so it has one at the end of the turn. */
static int is_awaited(const struct weft_run *run, const struct weft__flight *flight)
{
    const struct weft_plan *plan = run->plan;
    uint32_t n = flight->node;
    uint32_t after = plan->first[n + 1] - plan->first[n];

    return flight->kind != WEFT__FLIGHT_NODE || after == 0 || run->flights->streamed[n] < after;
}

void weft__flight_add(struct weft__engine *engine, struct weft__flights *flights,
                      struct weft__flight flight)
{
    flight.ticket = flights->stream->issued + 1;
    flights->ring[flights->tail++ & flights->mask] = flight;
    flights->unmarked = 1;
    engine->did++;
    enter(engine, flights);
    if (is_awaited(flights->run, &flight))
        weft__flights_mark(engine, flights);
}

void weft__flights_mark(struct weft__engine *engine, struct weft__flights *flights)
{
    const struct weft__device_ops *ops = flights->stream->device->ops;

    if (!flights->unmarked)
        return;
    if (ops->mark(flights->stream) == WEFT_OK)
        flights->unmarked = 0;
    else if (!flights->draining)
        weft__engine_fail(engine, flights->run, WEFT_ERR_SYSTEM, WEFT__NONE,
                          engine->transport->rank, weft_error_text());
}

/* ---- landing ---- */

/* A staged send goes on as one of the host's memory. */
static void send_staged(struct weft__engine *engine, struct weft_run *run, uint32_t n)
{
    struct weft__xfer *xfer = &run->xfers[run->plan->nodes[n].index];

    xfer->message.xflags = WEFT__X_IDLE;
    weft__engine_post(engine, run, n, weft__device_staging(xfer), 0);
}

static void land_receive(struct weft__engine *engine, struct weft_run *run,
                         const struct weft__flight *flight)
{
    struct weft__xfer *xfer = &run->xfers[run->plan->nodes[flight->node].index];

    if (xfer->source) {
        weft__engine_have_read(engine, xfer);
        engine->transport->ops->release(engine->transport, xfer->source, 1);
    }
    weft__engine_received(engine, xfer, flight->bytes, flight->last);
}

/* A call of the device has written its value, or what it has found, where both reach it. */
static void land_node(struct weft__engine *engine, const struct weft__flights *flights, uint32_t n)
{
    struct weft_run *run = flights->run;
    const struct weft__node *node = &run->plan->nodes[n];
    int is_call = node->kind == WEFT_NODE_COMPUTE;
    char text[256] = "";

    if (is_call && run->plan->ops[node->op]->form) {
        if (weft__operation_land(run, n) != WEFT_OK) {
            weft__engine_broken(engine, run, n);
            return;
        }
    } else if (is_call && node->produces != 0) {
        run->values[node->produces - 1] = flights->values[node->produces - 1];
    }
    if (is_call)
        weft__engine_check_value(run, n, text, sizeof text);
    if (text[0] == '\0')
        weft__engine_landed(engine, run, n);
    else
        weft__engine_fail(engine, run, WEFT_ERR_COMPUTE, n, engine->transport->rank, text);
}

static void land(struct weft__engine *engine, struct weft__flights *flights)
{
    const struct weft__flight flight = flights->ring[flights->head++ & flights->mask];
    struct weft_run *run = flights->run;

    if (flights->head == flights->tail)
        leave(engine, flights);
    engine->did++;
    engine->landed_ns = engine->now;
    switch ((enum weft__flight_kind)flight.kind) {
    case WEFT__FLIGHT_NODE:
        land_node(engine, flights, flight.node);
        break;
    case WEFT__FLIGHT_RECEIVE:
        land_receive(engine, run, &flight);
        break;
    case WEFT__FLIGHT_STAGE:
        send_staged(engine, run, flight.node);
        break;
    case WEFT__FLIGHT_SEGMENT:
        weft__stage_landed(engine, flight.chunk);
        break;
    case WEFT__FLIGHT_PULLED:
        weft__pull_landed(engine, flight.chunk);
        break;
    case WEFT__FLIGHT_IN:
    case WEFT__FLIGHT_OUT:
    default:
        weft__bounce_landed(engine, flights, &flight);
        break;
    }
}

/* ---- failing ---- */

void weft__flights_fail(struct weft__engine *engine, struct weft_run *run)
{
    struct weft__flights *flights = run->flights;

    weft__bounce_drop(engine, run);
    weft__ordered_fail(run);
    if (!flights || !flights->flying)
        return;
    flights->draining = 1;
    run->borrowed++;
    for (uint32_t i = flights->head; i != flights->tail; i++) {
        const struct weft__flight *flight = &flights->ring[i & flights->mask];
        struct weft__xfer *xfer;

        if (flight->kind == WEFT__FLIGHT_NODE || flight->kind == WEFT__FLIGHT_SEGMENT ||
            flight->kind == WEFT__FLIGHT_PULLED)
            continue; /* it has none, or the transport has it */
        xfer = &run->xfers[run->plan->nodes[flight->node].index];
        xfer->message.xflags = WEFT__X_LANDING;
        if (xfer->source && weft__in_pieces(xfer->source))
            xfer->source->next = NULL; /* the next piece goes on with nothing */
    }
    weft__flights_mark(engine, flights);
}

/* Messages that were being read when the run failed. */
static void refuse(struct weft__engine *engine, struct weft_run *run)
{
    for (uint32_t i = 0; i < run->plan->xfer_count; i++) {
        struct weft__xfer *xfer = &run->xfers[i];

        if (xfer->message.xflags != WEFT__X_LANDING)
            continue;
        xfer->message.xflags = WEFT__X_IDLE;
        if (run->plan->nodes[xfer->node].kind != WEFT_NODE_RECV || !xfer->source)
            continue;
        if (xfer->source->list == WEFT__DEVICE)
            weft__engine_have_read(engine, xfer);
        weft__engine_refuse(engine, xfer->source);
        xfer->source = NULL;
    }
}

/* 1: nothing of a failed run is in the air any more. */
static int drain(struct weft__engine *engine, struct weft__flights *flights, int failed)
{
    struct weft_run *run = flights->run;

    weft__flights_mark(engine, flights);
    if (!failed &&
        (flights->unmarked || !weft__stream_passed(flights->stream, flights->stream->issued)))
        return 0;
    for (; flights->head != flights->tail; flights->head++) {
        const struct weft__flight *flight = &flights->ring[flights->head & flights->mask];

        if (flight->kind == WEFT__FLIGHT_SEGMENT)
            weft__segments_give(&engine->staging->out, flight->chunk);
        else if (flight->kind == WEFT__FLIGHT_PULLED)
            weft__segments_give(&engine->staging->in, flight->chunk);
        else if (flight->chunk)
            weft__bounce_free(engine, flight->chunk);
    }
    flights->draining = 0;
    flights->unmarked = 0;
    leave(engine, flights);
    refuse(engine, run);
    run->borrowed--;
    engine->did++;
    return 1;
}

/* Whether a device has failed: then nothing of it will ever land. */
static int look_after(struct weft__engine *engine, struct weft__flights *flights)
{
    if (flights->stream->device->ops->failed(flights->stream) >= 0)
        return 0;
    if (!flights->draining)
        weft__engine_fail(engine, flights->run, WEFT_ERR_SYSTEM,
                          flights->ring[flights->head & flights->mask].node,
                          engine->transport->rank, weft_error_text());
    return !flights->draining || drain(engine, flights, 1);
}

static void look_after_all(struct weft__engine *engine)
{
    engine->looks = 0;
    engine->looked_ns = engine->now;
    for (struct weft__flights *flights = engine->flying; flights;)
        flights = look_after(engine, flights) ? engine->flying : flights->next;
}

void weft__flights_poll(struct weft__engine *engine)
{
    uint32_t did = engine->did;

    for (struct weft__flights *flights = engine->flying; flights;) {
        int done = 0;

        if (flights->draining)
            done = drain(engine, flights, 0);
        else if (weft__stream_passed(flights->stream,
                                     flights->ring[flights->head & flights->mask].ticket)) {
            land(engine, flights);
            done = 1;
        }
        /* A run may have ended, and others have begun or failed. */
        flights = done ? engine->flying : flights->next;
    }
    if (engine->did == did &&
        (++engine->looks >= WEFT__LOOKS || engine->now - engine->looked_ns >= WEFT__LOOK_NS))
        look_after_all(engine);
}

uint32_t weft__flights_first(const struct weft_run *run)
{
    const struct weft__flights *flights = run->flights;

    return flights && flights->flying ? flights->ring[flights->head & flights->mask].node
                                      : WEFT__NONE;
}

uint64_t weft__flights_interval(const struct weft__engine *engine)
{
    uint64_t waited = (engine->now - engine->landed_ns) / BACK_OFF;

    if (waited < WEFT__CALL_POLL_NS)
        return WEFT__CALL_POLL_NS;
    return waited < SLEEP_NS ? waited : SLEEP_NS;
}

void weft__flights_settle(struct weft_run *run)
{
    struct weft__engine *engine = run->engine;

    while (run->flights && run->flights->flying) {
        engine->looks =
            WEFT__LOOKS; /* the device may have failed, and this thread does nothing else */
        weft__flights_poll(engine);
        sched_yield();
    }
    while (run->flights && run->flights->ordered && run->flights->ordered->flying) {
        engine->ordered_looks = WEFT__LOOKS;
        weft__ordered_poll(engine);
        sched_yield();
    }
}

/* ---- making ---- */

/* How much of a transfer has a place of its own: of those on the device that the transport does not
 * take in segments all of it. */
static size_t place_bytes(const struct weft_run *run, const struct weft__node *node)
{
    size_t bytes;

    if (!(node->flags & WEFT__DEVICE_NODE) ||
        (node->kind != WEFT_NODE_SEND && node->kind != WEFT_NODE_RECV))
        return 0;
    bytes = run->plan->regions[node->regions].bytes;
    if (!run->engine->transport->ops->staged)
        return bytes;
    if (node->kind == WEFT_NODE_RECV)
        return 0;
    return bytes < WEFT__STAGE_SMALL ? bytes : WEFT__STAGE_SMALL;
}

static int make_staging(struct weft_run *run, struct weft__flights *flights)
{
    struct weft__device *device = flights->stream->device;
    const struct weft__transport_ops *ops = run->engine->transport->ops;
    const struct weft_plan *plan = run->plan;
    size_t total = 0;

    if ((ops->send_device && !ops->staged) || plan->xfer_count == 0)
        return WEFT_OK;
    flights->staged = weft__calloc(plan->xfer_count, sizeof *flights->staged);
    if (ops->staged)
        flights->stages = weft__calloc(plan->xfer_count, sizeof *flights->stages);
    if (!flights->staged || (ops->staged && !flights->stages))
        return weft__error_memory("a run on a device");
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct weft__node *node = &plan->nodes[n];
        size_t bytes = place_bytes(run, node);

        if (bytes > 0)
            flights->staged[node->index] = total;
        total += (bytes + 63) & ~(size_t)63;
    }
    if (total == 0)
        return WEFT_OK;
    flights->staging = device->ops->pin(device, total);
    return flights->staging ? WEFT_OK : WEFT_ERR_MEMORY;
}

static int make_values(struct weft_run *run, struct weft__flights *flights)
{
    struct weft__device *device = flights->stream->device;
    const struct weft_plan *plan = run->plan;
    int any = 0;

    for (uint32_t n = 0; n < plan->node_count; n++)
        any |= plan->nodes[n].produces != 0 && plan->nodes[n].kind == WEFT_NODE_COMPUTE &&
               (plan->nodes[n].flags & WEFT__DEVICE_NODE) && !plan->ops[plan->nodes[n].op]->form;
    if (!any)
        return WEFT_OK;
    flights->values = device->ops->pin(device, plan->value_count * sizeof *flights->values);
    return flights->values ? WEFT_OK : WEFT_ERR_MEMORY;
}

/* As many as can be in the air at once: a node has one, beside the engine's chunks. */
static int make_ring(const struct weft_run *run, struct weft__flights *flights)
{
    const struct weft_plan *plan = run->plan;
    uint32_t most = plan->device_nodes + plan->recv_count + WEFT__CHUNKS + 2 * WEFT__SEGMENTS;
    uint32_t size = 16;

    while (size < most)
        size *= 2;
    flights->mask = size - 1;
    flights->ring = weft__calloc(size, sizeof *flights->ring);
    return flights->ring ? WEFT_OK : weft__error_memory("a run on a device");
}

static int make_bounce(struct weft__engine *engine, struct weft__device *device)
{
    struct weft__bounce *bounce;

    if (engine->bounce)
        return WEFT_OK;
    bounce = weft__calloc(1, sizeof *bounce);
    if (!bounce)
        return weft__error_memory("chunks of pinned memory");
    bounce->device = device;
    bounce->memory = device->ops->pin(device, (size_t)WEFT__CHUNKS * WEFT__CHUNK_BYTES);
    if (!bounce->memory) {
        weft__free(bounce);
        return WEFT_ERR_MEMORY;
    }
    for (int i = 0; i < WEFT__CHUNKS; i++) {
        bounce->chunks[i].data = bounce->memory + (size_t)i * WEFT__CHUNK_BYTES;
        bounce->chunks[i].next = bounce->free;
        bounce->free = &bounce->chunks[i];
    }
    engine->bounce = bounce;
    return WEFT_OK;
}

static int open_stream(struct weft__flights *flights, struct weft__device *device)
{
    const struct weft_run *beside = flights->run->beside;
    int status = WEFT_OK;

    if (beside && beside->flights) {
        flights->stream = beside->flights->stream;
        flights->stream->shared++;
    } else {
        status = device->ops->open(device, &flights->stream);
    }
    if (status == WEFT_OK)
        device->ops->retain(device);
    else
        flights->stream = NULL;
    return status;
}

int weft__flights_open(struct weft_run *run, struct weft__device *device)
{
    struct weft__flights *flights = weft__calloc(1, sizeof *flights);
    int status;

    if (!flights)
        return weft__error_memory("a run on a device");
    flights->run = run;
    flights->after = run->plan->after;
    flights->streamed = run->plan->streamed;
    run->flights = flights;
    if ((status = make_ring(run, flights)) != WEFT_OK ||
        (status = open_stream(flights, device)) != WEFT_OK ||
        (status = make_staging(run, flights)) != WEFT_OK ||
        (status = make_values(run, flights)) != WEFT_OK ||
        (status = weft__operations_open(run, flights)) != WEFT_OK ||
        (status = make_bounce(run->engine, device)) != WEFT_OK ||
        (status = weft__staging_open(run->engine, device)) != WEFT_OK)
        weft__flights_close(run);
    return status;
}

void weft__flights_close(struct weft_run *run)
{
    struct weft__flights *flights = run->flights;

    if (!flights)
        return;
    weft__ordered_close(run);
    if (flights->flying)
        leave(run->engine, flights);
    if (flights->stream) {
        struct weft__device *device = flights->stream->device;

        if (flights->stream->shared > 0)
            flights->stream->shared--;
        else
            device->ops->close(flights->stream);
        weft__operations_close(flights, device);
        if (flights->staging)
            device->ops->unpin(device, flights->staging);
        if (flights->values)
            device->ops->unpin(device, flights->values);
        device->ops->end(device);
    }
    for (uint32_t i = 0; flights->stages && i < run->plan->xfer_count; i++)
        weft__free(flights->stages[i].temporary);
    weft__free(flights->staged);
    weft__free(flights->stages);
    weft__free(flights->ring);
    weft__free(flights);
    run->flights = NULL;
}
