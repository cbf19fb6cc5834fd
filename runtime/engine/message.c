/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What arrives: matching, delivery, and the copies and reductions that take many slices.
 *
 *   message -> matched receive -> in reach?  copy, or reduce straight from it: here, or as a job
 *                              -> in pieces? the same as a job, out of one piece after the other
 *                              -> else:      the transport fetches it into the receive's memory
 *
 * A job is a transfer record in a queue; its `done` says how far it is. One that waits for a piece
 * is in no queue: the message's `next` leads to it.
 */
#include "runtime/base/error.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/flight.h"
#include "runtime/engine/ordered.h"
#include "runtime/engine/record.h"
#include <stdio.h>
#include <string.h>

static void finish_receive(struct weft__engine *engine, struct weft__xfer *xfer, size_t bytes)
{
    struct weft_run *run = weft__xfer_run(xfer);
    const struct weft__node *node = &run->plan->nodes[xfer->node];
    int reduced = xfer->message.xflags == WEFT__X_REDUCING;
    xfer->message.xflags = WEFT__X_IDLE;
    xfer->source = NULL;
    engine->stats.messages_received++;
    engine->stats.bytes_received += bytes;
    if (node->produces != 0)
        run->values[node->produces - 1] = bytes / weft__node_element(run->plan, node);
    uint32_t reducer = node->op;
    weft__engine_finish(engine, run, xfer->node);
    if (reduced) {
        /* The receive was not the last node of the run: the reduction had not ended. */
        engine->stats.fused++;
        weft__engine_finish(engine, run, reducer);
    }
}

void weft__engine_received(struct weft__engine *engine, struct weft__xfer *xfer, size_t bytes,
                           int reduced)
{
    xfer->message.xflags = reduced ? WEFT__X_REDUCING : WEFT__X_IDLE;
    finish_receive(engine, xfer, bytes);
}

static void fail_receive(struct weft__engine *engine, struct weft__xfer *xfer, int status,
                         const char *text)
{
    xfer->message.xflags = WEFT__X_IDLE;
    xfer->source = NULL;
    weft__engine_fail(engine, weft__xfer_run(xfer), status, xfer->node, engine->transport->rank,
                      text);
}

/* The operation of the reduction that a receive is fused with has failed. */
static void break_receive(struct weft__engine *engine, struct weft__xfer *xfer)
{
    struct weft_run *run = weft__xfer_run(xfer);
    xfer->message.xflags = WEFT__X_IDLE;
    xfer->source = NULL;
    weft__engine_broken(engine, run, run->plan->nodes[xfer->node].op);
}

const char *weft__source_chunk(const struct weft__message *source, size_t offset, size_t *bytes)
{
    if (source->list == WEFT__LIST)
        return weft__xfer_chunk((const struct weft__xfer *)source, offset, bytes);
    *bytes = source->bytes - offset;
    return (const char *)weft__source_at(source, offset);
}

/* Copies bytes [begin, end) of a message into its receive. */
static void copy_in(const struct weft__xfer *xfer, size_t begin, size_t end)
{
    const struct weft_run *run = weft__xfer_run(xfer);
    const struct weft__region *region = &run->plan->regions[run->plan->nodes[xfer->node].regions];
    while (begin < end) {
        size_t in = end - begin;
        size_t out = end - begin;
        const char *from = weft__source_chunk(xfer->source, begin, &in);
        char *to = weft__region_chunk(run, region, begin, &out);
        size_t bytes = in < out ? in : out;
        if (bytes > end - begin)
            bytes = end - begin;
        if (bytes == 0 || !to)
            return; /* payload omitted, or nothing there */
        if (from)
            memcpy(to, from, bytes);
        begin += bytes;
    }
}

void weft__engine_again(struct weft__engine *engine, struct weft__xfer *xfer, int state)
{
    xfer->message.xflags = (uint8_t)state;
    xfer->message.next = NULL;
    if (engine->job_tail)
        engine->job_tail->next = &xfer->message;
    else
        engine->job_head = &xfer->message;
    engine->job_tail = &xfer->message;
}

void weft__engine_rest(struct weft__engine *engine)
{
    engine->job_head = engine->job_head->next;
    if (!engine->job_head)
        engine->job_tail = NULL;
}

void weft__engine_job(struct weft__engine *engine, struct weft__xfer *xfer, int state)
{
    xfer->done = 0;
    weft__engine_again(engine, xfer, state);
}

/* Whether the reduction that waits for this receive waits for nothing else. */
static int can_fuse(const struct weft_run *run, const struct weft__node *node,
                    const struct weft__message *message)
{
    if (!(node->flags & WEFT__FUSED) || run->waits[node->op] != 1)
        return 0;
    /* A piece has whole elements: it is a multiple of 64 bytes. */
    return weft__in_pieces(message) ? 64 % weft__node_element(run->plan, node) == 0
                                    : !message->list && message->data;
}

/* The next slice of a job comes out of a piece, of which *bytes are there; 0: they are awaited. */
static int take_piece(struct weft__engine *engine, struct weft__xfer *xfer, size_t *bytes)
{
    struct weft__transport *transport = engine->transport;
    const char *piece = transport->ops->piece(transport, xfer->source, xfer->done, bytes);
    /* Where the payload would begin: as if all of it were there. */
    xfer->source->data = piece ? (const void *)((uintptr_t)piece - xfer->done) : NULL;
    return piece != NULL;
}

/* Who has sent what a receive waits for. */
static int sender_of(const struct weft__xfer *xfer)
{
    const struct weft_run *run = weft__xfer_run(xfer);
    return weft__peer(run, run->plan->nodes[xfer->node].peer);
}

/* The first job waits for more of its payload; of who has died none comes. */
static void set_aside(struct weft__engine *engine, struct weft__xfer *xfer)
{
    int sender = sender_of(xfer);
    weft__engine_rest(engine);
    xfer->source->next = &xfer->message;
    xfer->message.xflags = (uint8_t)(xfer->message.xflags + WEFT__X_WAITS);
    if (weft__engine_death(engine, sender))
        weft__engine_forsaken(engine, weft__xfer_run(xfer), xfer->node, sender);
}

/* Before the payload of a message is read. 0: the sender has withdrawn it; it told us before that
 * its run failed, so the next step will end ours. */
int weft__engine_may_read(struct weft__engine *engine, const struct weft__xfer *xfer)
{
    struct weft__transport *transport = engine->transport;
    return !transport->ops->read || transport->ops->read(transport, xfer->source, 1);
}

void weft__engine_have_read(struct weft__engine *engine, const struct weft__xfer *xfer)
{
    if (engine->transport->ops->read)
        engine->transport->ops->read(engine->transport, xfer->source, 0);
}

void weft__engine_deliver(struct weft__engine *engine, struct weft__xfer *xfer,
                          struct weft__message *message)
{
    struct weft__transport *transport = engine->transport;
    struct weft_run *run = weft__xfer_run(xfer);
    const struct weft__node *node = &run->plan->nodes[xfer->node];
    const struct weft__region *region = &run->plan->regions[node->regions];
    size_t capacity = weft__region_bytes(run, region);
    size_t bytes = message->bytes;
    int fits = bytes == capacity;
    if (node->flags & (WEFT__UP_TO | WEFT__DEVICE_NODE)) {
        if (node->flags & WEFT__UP_TO)
            fits = bytes <= capacity && bytes % weft__node_element(run->plan, node) == 0;
        if (fits && (node->flags & WEFT__DEVICE_NODE) &&
            !weft__device_deliver(engine, xfer, message))
            return;
    }
    if (!fits) {
        char text[96];
        snprintf(text, sizeof text, "a message of %zu bytes arrived, expected %s%zu", bytes,
                 node->flags & WEFT__UP_TO ? "at most " : "", capacity);
        transport->ops->release(transport, message, 0);
        fail_receive(engine, xfer, WEFT_ERR_TRUNCATED, text);
        return;
    }
    if (message->list == WEFT__DEVICE && !weft__device_deliver(engine, xfer, message))
        return;
    if (weft__in_pieces(message) && weft__engine_death(engine, sender_of(xfer))) {
        /* It has only been announced: its sender was to hand it over. */
        transport->ops->release(transport, message, 0);
        xfer->message.xflags = WEFT__X_IDLE;
        weft__engine_forsaken(engine, run, xfer->node, sender_of(xfer));
        return;
    }
    xfer->source = message;
    int fuse = can_fuse(run, node, message);
    if (weft__in_pieces(message))
        message->next = NULL;
    if (!message->data && bytes > 0 &&
        (!message->list || message->list == WEFT__PULLED ||
         (message->list == WEFT__PIECES_OR_FETCH && !fuse))) {
        size_t chunk = bytes;
        xfer->message.data = weft__region_chunk(run, region, 0, &chunk);
        xfer->message.list = chunk < bytes;
        xfer->message.bytes = bytes;
        xfer->message.xflags = WEFT__X_FETCHING;
        int status = transport->ops->fetch(transport, message, xfer);
        if (status != WEFT_IN_PROGRESS)
            weft__engine_fetched(engine, xfer, status);
        return;
    }
    if (fuse) {
        run->waits[node->op] |= WEFT__STARTED;
        if (engine->recorder)
            weft__note_node(engine, run, node->op, WEFT__NOTE_START);
    }
    if (bytes > engine->slice_bytes ||
        (bytes > 0 && (weft__in_pieces(message) || !weft__engine_may_read(engine, xfer)))) {
        weft__engine_job(engine, xfer, fuse ? WEFT__X_REDUCING : WEFT__X_COPYING);
        return;
    }
    int status = WEFT_OK;
    if (fuse)
        status = weft__engine_reduce(run, node->op, xfer, 0, bytes);
    else
        copy_in(xfer, 0, bytes);
    if (bytes > 0)
        weft__engine_have_read(engine, xfer);
    xfer->message.xflags = fuse ? WEFT__X_REDUCING : WEFT__X_IDLE;
    transport->ops->release(transport, message, 1);
    if (status == WEFT_OK)
        finish_receive(engine, xfer, bytes);
    else
        break_receive(engine, xfer);
}

/* ---- jobs ---- */

/* Bytes of a slice: whole elements, which is what a reduction works on. */
static size_t slice_of(const struct weft__engine *engine, const struct weft__node *node,
                       const struct weft_plan *plan)
{
    size_t element = weft__node_element(plan, node);
    size_t slice = engine->slice_bytes & ~(size_t)63;
    if (slice % element == 0)
        return slice;
    return element > slice ? element : slice / element * element;
}

int weft__engine_read_begin(struct weft__engine *engine, struct weft__xfer *xfer, size_t *most)
{
    if (!weft__engine_may_read(engine, xfer)) {
        set_aside(engine, xfer);
        return 0;
    }
    if (weft__in_pieces(xfer->source) && !take_piece(engine, xfer, most)) {
        weft__engine_have_read(engine, xfer);
        set_aside(engine, xfer);
        return 0;
    }
    return 1;
}

void weft__engine_read_end(struct weft__engine *engine, const struct weft__xfer *xfer)
{
    if (weft__in_pieces(xfer->source))
        xfer->source->data = NULL;
    weft__engine_have_read(engine, xfer);
}

/* One slice, of at most `most` bytes. Returns whether it was the last; *returned is what the
 * operation returned. */
static int work_slice(struct weft__engine *engine, struct weft__xfer *xfer, size_t most,
                      int *returned)
{
    struct weft_run *run = weft__xfer_run(xfer);
    const struct weft__node *node = &run->plan->nodes[xfer->node];
    int state = xfer->message.xflags;
    size_t total = state == WEFT__X_COMPUTING
                       ? weft__region_bytes(run, &run->plan->regions[node->regions])
                       : xfer->source->bytes;
    size_t slice = slice_of(engine, node, run->plan);
    if (slice > most)
        slice = most;
    size_t end = total - xfer->done > slice ? xfer->done + slice : total;
    int status = WEFT_OK;
    if (state == WEFT__X_COPYING)
        copy_in(xfer, xfer->done, end);
    else if (state == WEFT__X_REDUCING)
        status = weft__engine_reduce(run, node->op, xfer, xfer->done, end);
    else if (node->kind == WEFT_NODE_COPY)
        status = weft__engine_copy(run, xfer->node, xfer->done, end);
    else
        status = weft__engine_reduce(run, xfer->node, NULL, xfer->done, end);
    xfer->done = end;
    engine->did++;
    *returned = status;
    return status != WEFT_OK || end == total;
}

void weft__engine_work(struct weft__engine *engine)
{
    struct weft__xfer *xfer = weft__xfer_of(engine->job_head);
    int receives = xfer->message.xflags != WEFT__X_COMPUTING;
    int status;
    size_t most = SIZE_MAX;
    if (xfer->message.xflags == WEFT__X_CARRYING) {
        weft__bounce_work(engine, xfer);
        return;
    }
    if (receives && !weft__engine_read_begin(engine, xfer, &most))
        return;
    int last = work_slice(engine, xfer, most, &status);
    if (receives)
        weft__engine_read_end(engine, xfer);
    if (!last)
        return;
    weft__engine_rest(engine);
    struct weft_run *run = weft__xfer_run(xfer);
    if (xfer->message.xflags == WEFT__X_COMPUTING) {
        xfer->message.xflags = WEFT__X_IDLE;
        if (status == WEFT_OK)
            weft__engine_finish(engine, run, xfer->node);
        else
            weft__engine_broken(engine, run, xfer->node);
        return;
    }
    size_t bytes = xfer->source->bytes;
    engine->transport->ops->release(engine->transport, xfer->source, 1);
    if (status == WEFT_OK)
        finish_receive(engine, xfer, bytes);
    else
        break_receive(engine, xfer);
}

/* ---- the transport's calls ---- */

void weft__engine_message(struct weft__engine *engine, struct weft__message *message)
{
    engine->did++;
    if (message->part) {
        engine->host->delivered(engine->context, message);
        return;
    }
    if (engine->recorder && (message->kind == WEFT__DATA || message->kind == WEFT__SIGNAL))
        weft__note_message(engine, message);
    if (message->kind == WEFT__DATA) {
        struct weft__object *object;
        if (!weft__object_awaited(engine, message->object, &object) &&
            (!object || message->version < object->floor)) {
            weft__engine_refuse(engine, message);
            return;
        }
        struct weft__message *receive = weft__match_arrived(&engine->match, message);
        if (receive)
            weft__engine_deliver(engine, weft__xfer_of(receive), message);
    } else if (message->kind == WEFT__SIGNAL) {
        engine->stats.signals_received++;
        weft__engine_signal(engine, message);
    } else if (message->kind == WEFT__NEWS) {
        weft__engine_news(engine, message);
    } else if (message->kind == WEFT__INVITE) {
        engine->host->invited(engine->context, message);
    } else if (message->kind == WEFT__TURN) {
        weft__ordered_note(engine, message);
    } else {
        weft__engine_failure(engine, message);
    }
}

/* After a failure of its run a transfer comes back: one less that is borrowed. */
static void come_back(struct weft__engine *engine, struct weft_run *run)
{
    run->borrowed--;
    engine->did++;
    if (!run->zombie && run->object && run->object->whole) /* else its object may have gone */
        engine->host->reclaimed(engine->context);
}

/* The transport tells the engine that it belongs to, whose family the run is of. */
void weft__engine_sent(struct weft__engine *engine, struct weft__xfer *xfer, int status)
{
    struct weft_run *run = weft__xfer_run(xfer);
    int state = xfer->message.xflags;
    engine->did++;
    engine = run->engine;
    xfer->message.xflags = WEFT__X_IDLE;
    if (xfer->message.list == WEFT__STAGED)
        weft__stage_end(engine, xfer);
    if (run->borrowed > 0 &&
        atomic_load_explicit(&run->state, memory_order_relaxed) == WEFT__RUN_ENDED)
        come_back(engine, run);
    else if (state != WEFT__X_SENDING)
        return;
    else if (status == WEFT_OK)
        weft__engine_finish(engine, run, xfer->node);
    else if (status == WEFT_ERR_CANCELLED && run->object &&
             (run->object->whole || run->object == &engine->sequence))
        return; /* it has failed there: the news, with the reason, come some other way */
    else if (status == WEFT_ERR_PEER || status == WEFT_ERR_CANCELLED)
        weft__engine_fail(engine, run, WEFT_ERR_PEER, xfer->node,
                          weft__peer(run, run->plan->nodes[xfer->node].peer),
                          "the receiver has dropped the message");
    else
        weft__engine_fail(engine, run, status, xfer->node, engine->transport->rank,
                          weft_error_text());
}

void weft__engine_piece(struct weft__engine *engine, struct weft__message *message)
{
    struct weft__xfer *xfer = message->next ? weft__xfer_of(message->next) : NULL;
    if (!xfer)
        return;
    message->next = NULL;
    engine->did++;
    weft__engine_again(weft__xfer_run(xfer)->engine, xfer, xfer->message.xflags - WEFT__X_WAITS);
}

void weft__engine_fetched(struct weft__engine *engine, struct weft__xfer *xfer, int status)
{
    struct weft_run *run = weft__xfer_run(xfer);
    struct weft__message *source = xfer->source;
    size_t bytes = source->bytes;
    engine->did++;
    engine = run->engine;
    engine->transport->ops->release(engine->transport, source, 1);
    if (run->borrowed > 0 &&
        atomic_load_explicit(&run->state, memory_order_relaxed) == WEFT__RUN_ENDED) {
        xfer->source = NULL;
        xfer->message.xflags = WEFT__X_IDLE;
        come_back(engine, run);
    } else if (status != WEFT_OK) {
        fail_receive(engine, xfer, status, weft_error_text());
    } else if (!run->flights || !weft__device_fetched(engine, xfer)) {
        finish_receive(engine, xfer, bytes);
    }
}
