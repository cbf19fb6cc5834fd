/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nodes that the device executes, and messages of its memory.
 *
 *   reduction, copy, call     put on the stream; what follows there is released at once (issued),
 *                             the rest, and the run's end, when it has got there (landed)
 *   send                      the transport carries the device's memory as it is, or it is staged
 *   receive                   of the device's memory: copied or reduced straight from there;
 *                             of the host's: brought over in chunks, or fetched into the staging
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/flight.h"
#include "runtime/engine/ordered.h"
#include "runtime/engine/record.h"

#include <string.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static const struct weft__region *region_of(const struct weft_run *run, uint32_t n)
{
    return &run->plan->regions[run->plan->nodes[n].regions];
}

static int is_there(const struct weft_run *run, const struct weft__region *region)
{
    return run->plan->slots[region->slot].memory == WEFT_MEMORY_DEVICE;
}

static const struct weft__device_ops *ops_of(const struct weft_run *run)
{
    return run->flights->stream->device->ops;
}

int weft__device_carry(const struct weft_run *run, const struct weft__region *region, size_t begin,
                       char *memory, size_t bytes, int in)
{
    struct weft__stream *stream = run->flights->stream;
    int status = WEFT_OK;

    for (size_t at = 0, size; at < bytes && status == WEFT_OK; at += size) {
        size = bytes - at;
        char *there = weft__region_chunk(run, region, begin + at, &size);
        size = least(size, bytes - at);
        status = in ? stream->device->ops->copy(stream, there, memory + at, size)
                    : stream->device->ops->copy(stream, memory + at, there, size);
    }
    return status;
}

/* ---- reductions, copies, calls ---- */

static _Thread_local struct weft__device *calling;

struct weft__device *weft__device_current(void)
{
    return calling;
}

int weft__device_call(struct weft__stream *stream, weft_device_fn function, struct weft_call *call)
{
    struct weft__device *outer = calling;
    int status;

    calling = stream->device;
    status = stream->device->ops->call(stream, function, call);
    calling = outer;
    return status;
}

static int reduce_chunk(struct weft_run *run, const struct weft__node *node, char *const at[3],
                        size_t bytes)
{
    const struct weft_op *op = run->plan->ops[node->op];
    const struct weft__slot *slot = &run->plan->slots[run->plan->regions[node->regions].slot];
    struct weft_argument arguments[3];
    struct weft_piece pieces[3];

    if (op->builtin >= 0)
        return ops_of(run)->reduce(run->flights->stream, (weft_op_kind_t)op->builtin,
                                   (weft_dtype_t)node->dtype, at[0], at[1], at[2],
                                   bytes >> node->shift);
    for (int i = 0; i < 3; i++) {
        pieces[i] = (struct weft_piece){at[i], bytes / slot->element};
        arguments[i] = (struct weft_argument){.data = at[i],
                                              .count = bytes / slot->element,
                                              .dtype = slot->dtype,
                                              .pieces = &pieces[i],
                                              .piece_count = 1};
    }
    struct weft_call call = {.user = op->user,
                             .arguments = arguments,
                             .argument_count = 3,
                             .version = run->version,
                             .rank = run->plan->rank,
                             .size = run->plan->size,
                             .node = (int32_t)(node - run->plan->nodes)};
    return weft__device_call(run->flights->stream, op->device, &call);
}

/* Which operand of a reduction a receive stands for. */
static int operand_of(const struct weft_run *run, const struct weft__region *operands,
                      const struct weft__xfer *receive)
{
    const struct weft__region *received = region_of(run, receive->node);

    return operands[1].slot == received->slot && operands[1].offset == received->offset ? 1 : 2;
}

/* All of reduce node @n; with a receive, the sender's memory is one of its operands. */
static int issue_reduce(struct weft_run *run, uint32_t n, const struct weft__xfer *receive)
{
    const struct weft__node *node = &run->plan->nodes[n];
    const struct weft__region *regions = region_of(run, n);
    int replaced = receive ? operand_of(run, regions, receive) : 0;
    size_t total = weft__region_bytes(run, regions);

    for (size_t begin = 0, bytes; begin < total; begin += bytes) {
        char *at[3];

        bytes = total - begin;
        for (int i = 0; i < 3; i++) {
            size_t chunk = total - begin;

            at[i] = i > 0 && i == replaced ? (char *)(uintptr_t)weft__reached_chunk(
                                                 run->engine, receive->source, begin, &chunk)
                                           : weft__region_chunk(run, &regions[i], begin, &chunk);
            bytes = least(bytes, chunk);
        }
        int status = reduce_chunk(run, node, at, bytes);
        if (status != WEFT_OK)
            return status;
    }
    return WEFT_OK;
}

static int issue_copy(struct weft_run *run, uint32_t n)
{
    const struct weft__region *regions = region_of(run, n);
    size_t total = weft__region_bytes(run, regions);

    for (size_t begin = 0, bytes; begin < total; begin += bytes) {
        size_t out = total - begin, in = total - begin;
        char *to = weft__region_chunk(run, &regions[0], begin, &out);
        const char *from = weft__region_chunk(run, &regions[1], begin, &in);

        bytes = least(least(in, out), total - begin);
        int status =
            to == from ? WEFT_OK : ops_of(run)->copy(run->flights->stream, to, from, bytes);
        if (status != WEFT_OK)
            return status;
    }
    return WEFT_OK;
}

static int issue_call(struct weft_run *run, uint32_t n)
{
    const struct weft__node *node = &run->plan->nodes[n];
    const struct weft_op *op = run->plan->ops[node->op];
    struct weft__call *call = weft__engine_prepare_call(run, n);
    unsigned texts = weft__error_count();

    if (node->produces != 0 && run->flights->values) {
        run->flights->values[node->produces - 1] = 0;
        call->call.value = &run->flights->values[node->produces - 1];
    }
    int status = op->form ? weft__operation_issue(run, n, &call->call)
                          : weft__device_call(run->flights->stream, op->device, &call->call);
    if (status != WEFT_OK && (weft__error_count() == texts || weft_error_text()[0] == '\0'))
        weft__error(status, "operation `%s` returned %d", weft_op_name(op), status);
    return status;
}

/* A copy between the two sides whose memory of the host the device does not know. */
static int is_carried(const struct weft_run *run, uint32_t n)
{
    const struct weft__region *regions = region_of(run, n);
    int to = is_there(run, &regions[0]);

    return to != is_there(run, &regions[1]) && weft__region_bytes(run, regions) > 0 &&
           !run->bindings[regions[to].slot].pinned;
}

static void issue(struct weft__engine *engine, struct weft_run *run, uint32_t n)
{
    const struct weft__node *node = &run->plan->nodes[n];
    int status;

    if (engine->recorder)
        weft__note_node(engine, run, n, WEFT__NOTE_START);
    if (node->kind == WEFT_NODE_COPY && is_carried(run, n)) {
        run->xfers[node->index].source = NULL;
        weft__bounce_start(engine, &run->xfers[node->index]);
        return;
    }
    status = node->kind == WEFT_NODE_COPY     ? issue_copy(run, n)
             : node->kind == WEFT_NODE_REDUCE ? issue_reduce(run, n, NULL)
                                              : issue_call(run, n);
    /* Also where it has failed: a part of it may be on the stream. */
    weft__flight_add(engine, run->flights,
                     (struct weft__flight){.node = n, .kind = WEFT__FLIGHT_NODE});
    if (status != WEFT_OK)
        weft__engine_broken(engine, run, n);
    else
        weft__engine_issued(engine, run, n);
}

/* ---- sends ---- */

static int stage(struct weft__engine *engine, struct weft_run *run, uint32_t n, size_t total)
{
    struct weft__xfer *xfer = &run->xfers[run->plan->nodes[n].index];
    int status =
        weft__device_carry(run, region_of(run, n), 0, weft__device_staging(xfer), total, 0);

    /* Also where it has failed: a part of it may be on the stream. */
    xfer->message.xflags = WEFT__X_LANDING;
    weft__flight_add(engine, run->flights,
                     (struct weft__flight){.node = n, .kind = WEFT__FLIGHT_STAGE, .bytes = total});
    if (status != WEFT_OK)
        weft__engine_fail(engine, run, status, n, engine->transport->rank, weft_error_text());
    return 0;
}

/* 0: on its way; 1: of nothing, or to nobody. */
static int start_send(struct weft__engine *engine, struct weft_run *run, uint32_t n)
{
    const struct weft__node *node = &run->plan->nodes[n];
    size_t bytes = weft__region_bytes(run, region_of(run, n));

    if (bytes == 0 || weft__peer(run, node->peer) == WEFT_PEER_NONE)
        return 1;
    if (engine->recorder)
        weft__note_node(engine, run, n, WEFT__NOTE_START);
    if (engine->transport->ops->send_device &&
        weft__engine_post(engine, run, n, NULL, WEFT__DEVICE) != WEFT__OUT_OF_REACH) {
        engine->stats.device_direct++;
        return 0;
    }
    engine->stats.device_staged++;
    if (bytes <= WEFT__STAGE_SMALL || !engine->staging)
        return stage(engine, run, n, bytes);
    weft__stage_begin(engine, run, n);
    return 0;
}

int weft__device_start(struct weft__engine *engine, struct weft_run *run, uint32_t n)
{
    if (weft__ordered_has(run->flights->ordered, n))
        return weft__ordered_start(engine, run, n);
    switch ((weft_node_kind_t)run->plan->nodes[n].kind) {
    case WEFT_NODE_SEND:
        return start_send(engine, run, n);
    case WEFT_NODE_REDUCE:
    case WEFT_NODE_COPY:
    case WEFT_NODE_COMPUTE:
        issue(engine, run, n);
        return 0;
    case WEFT_NODE_RECV:
    case WEFT_NODE_SIGNAL:
    case WEFT_NODE_EVENT:
    case WEFT_NODE_JOIN:
    default:
        return 1;
    }
}

/* ---- receives ---- */

void *weft__device_staging(const struct weft__xfer *xfer)
{
    const struct weft__flights *flights = weft__xfer_run(xfer)->flights;

    return flights && flights->staging ? flights->staging + flights->staged[xfer->index] : NULL;
}

const char *weft__reached_chunk(const struct weft__engine *engine,
                                const struct weft__message *source, size_t offset, size_t *bytes)
{
    struct weft__transport *transport = engine->transport;

    return transport->ops->reached
               ? transport->ops->reached(transport, source, offset, bytes)
               : weft__xfer_chunk((const struct weft__xfer *)source, offset, bytes);
}

/* Where the memory of a rank of this process is for this run's device, which is made to reach it if
 * it can: all of it where the worst of its pieces is. */
static int find_here(const struct weft_run *run, const struct weft__xfer *sent)
{
    const struct weft__flights *theirs = weft__xfer_run(sent)->flights;
    struct weft__device *ours = run->flights->stream->device;
    size_t total = sent->message.bytes;
    int worst = WEFT__ON_DEVICE;

    for (size_t begin = 0, bytes; theirs->stream->device != ours && begin < total; begin += bytes) {
        bytes = total - begin;
        const void *data = weft__xfer_chunk(sent, begin, &bytes);
        bytes = least(bytes, total - begin);
        int where = ours->ops->where(ours, data, bytes);
        if (where < 0)
            return where;
        worst = where > worst ? where : worst;
    }
    return worst;
}

/* WEFT__ON_HOST: it comes in pieces. */
static int find_sender(const struct weft_run *run, struct weft__message *message)
{
    struct weft__transport *transport = run->engine->transport;

    return transport->ops->reach
               ? transport->ops->reach(transport, message, run->flights->stream->device)
               : find_here(run, (const struct weft__xfer *)message);
}

/* Whether the reduction that waits for a receive can take its operand where it lies. */
static int can_fuse(const struct weft_run *run, const struct weft__node *node, int where)
{
    return (node->flags & WEFT__FUSED) && run->waits[node->op] == 1 &&
           (run->plan->nodes[node->op].flags & WEFT__DEVICE_NODE) && where != WEFT__ON_PEER_APART;
}

static int copy_from(struct weft_run *run, const struct weft__xfer *receive)
{
    const struct weft__region *region = region_of(run, receive->node);
    size_t total = receive->source->bytes;

    for (size_t begin = 0, bytes; begin < total; begin += bytes) {
        size_t in = total - begin, out = total - begin;
        char *to = weft__region_chunk(run, region, begin, &out);
        const char *from = weft__reached_chunk(run->engine, receive->source, begin, &in);

        bytes = least(least(in, out), total - begin);
        int status = ops_of(run)->copy(run->flights->stream, to, from, bytes);
        if (status != WEFT_OK)
            return status;
    }
    return WEFT_OK;
}

static void receive_here(struct weft__engine *engine, struct weft__xfer *xfer, int where)
{
    struct weft_run *run = weft__xfer_run(xfer);
    const struct weft__node *node = &run->plan->nodes[xfer->node];
    int fuse = can_fuse(run, node, where);

    if (fuse) {
        run->waits[node->op] |= WEFT__STARTED;
        if (engine->recorder)
            weft__note_node(engine, run, node->op, WEFT__NOTE_START);
    }
    int status = fuse ? issue_reduce(run, node->op, xfer) : copy_from(run, xfer);
    /* Also where it has failed: a part of it may be on the stream. */
    xfer->message.xflags = WEFT__X_LANDING;
    weft__flight_add(engine, run->flights,
                     (struct weft__flight){.node = xfer->node,
                                           .kind = WEFT__FLIGHT_RECEIVE,
                                           .last = (uint8_t)fuse,
                                           .bytes = xfer->source->bytes});
    if (status != WEFT_OK)
        weft__engine_broken(engine, run, fuse ? node->op : xfer->node);
}

/* It cannot be received, and the thread's text says why. */
static void refuse(struct weft__engine *engine, struct weft__xfer *xfer, int status)
{
    engine->transport->ops->release(engine->transport, xfer->source, 0);
    xfer->source = NULL;
    xfer->message.xflags = WEFT__X_IDLE;
    weft__engine_fail(engine, weft__xfer_run(xfer), status, xfer->node, engine->transport->rank,
                      weft_error_text());
}

/* The payload is memory of a device, and the host wants it: of another process in pieces (1). */
static int receive_on_host(struct weft__engine *engine, struct weft__xfer *xfer)
{
    struct weft__transport *transport = engine->transport;
    struct weft_run *run = weft__xfer_run(xfer);
    int status = WEFT_OK;

    if (transport->ops->reach)
        status = transport->ops->reach(transport, xfer->source, NULL);
    else if (!run->flights)
        status = engine->host->device_needed(engine->context, run);
    if (!transport->ops->reach && status == WEFT_OK)
        status = find_here(run, (const struct weft__xfer *)xfer->source);
    if (!transport->ops->reach && status >= 0) {
        weft__bounce_start(engine, xfer);
        return 0;
    }
    weft__engine_have_read(engine, xfer);
    if (status < 0)
        refuse(engine, xfer, status);
    return status >= 0;
}

/* The payload is memory of a device, which the sender lends. */
static int receive_device(struct weft__engine *engine, struct weft__xfer *xfer,
                          struct weft__message *message, int there)
{
    struct weft_run *run = weft__xfer_run(xfer);
    int sender = weft__peer(run, run->plan->nodes[xfer->node].peer);
    int where;

    xfer->source = message;
    if (weft__engine_death(engine, sender)) {
        engine->transport->ops->release(engine->transport, message, 0);
        xfer->source = NULL;
        xfer->message.xflags = WEFT__X_IDLE;
        weft__engine_forsaken(engine, run, xfer->node, sender);
        return 0;
    }
    if (!weft__engine_may_read(engine, xfer)) {
        /* The sender has withdrawn it, and told us before that its run has failed. */
        message->next = &xfer->message;
        xfer->message.xflags = WEFT__X_COPYING_WAITS;
        return 0;
    }
    if (!there)
        return receive_on_host(engine, xfer);
    where = find_sender(run, message);
    if (where > WEFT__ON_HOST) {
        receive_here(engine, xfer, where);
        return 0;
    }
    weft__engine_have_read(engine, xfer);
    if (where == WEFT__ON_HOST)
        return 1;
    refuse(engine, xfer, where);
    return 0;
}

void weft__device_drop_temporary(const struct weft__xfer *xfer)
{
    struct weft__stage *stage = weft__stage_of(xfer);

    weft__free(stage->temporary);
    stage->temporary = NULL;
}

static void begin_fetch(struct weft__xfer *xfer, struct weft__message *message, void *memory)
{
    xfer->source = message;
    xfer->message.data = memory;
    xfer->message.list = 0;
    xfer->message.bytes = message->bytes;
    xfer->message.xflags = WEFT__X_FETCHING;
}

/* Straight to the device, where the transport can: 1. */
static int fetch_there(struct weft__engine *engine, struct weft__xfer *xfer,
                       struct weft__message *message)
{
    struct weft__transport *transport = engine->transport;
    const struct weft_run *run = weft__xfer_run(xfer);
    size_t chunk = message->bytes;
    char *to = weft__region_chunk(run, region_of(run, xfer->node), 0, &chunk);
    int status;

    if (!transport->ops->fetch_device || chunk < message->bytes)
        return 0;
    begin_fetch(xfer, message, to);
    status = transport->ops->fetch_device(transport, message, xfer);
    if (status != WEFT_IN_PROGRESS && status != WEFT__OUT_OF_REACH)
        weft__engine_fetched(engine, xfer, status);
    return status != WEFT__OUT_OF_REACH;
}

/* As a whole: a message that has no segments is a host's, of a rank that has no device, or it is
 * small. */
static int fetch(struct weft__engine *engine, struct weft__xfer *xfer,
                 struct weft__message *message)
{
    void *memory = weft__device_staging(xfer);
    int status;

    if (fetch_there(engine, xfer, message))
        return 0;
    if (engine->transport->ops->staged)
        memory = weft__stage_of(xfer)->temporary = weft__malloc(message->bytes, 1);
    xfer->source = message;
    if (!memory) {
        refuse(engine, xfer, weft__error_memory("a message for a device"));
        return 0;
    }
    begin_fetch(xfer, message, memory);
    status = engine->transport->ops->fetch(engine->transport, message, xfer);
    if (status != WEFT_IN_PROGRESS)
        weft__engine_fetched(engine, xfer, status);
    return 0;
}

int weft__device_deliver(struct weft__engine *engine, struct weft__xfer *xfer,
                         struct weft__message *message)
{
    struct weft_run *run = weft__xfer_run(xfer);
    int there = run->flights && (run->plan->nodes[xfer->node].flags & WEFT__DEVICE_NODE);

    if (message->list == WEFT__DEVICE && !receive_device(engine, xfer, message, there))
        return 0;
    if (!there)
        return 1;
    if (message->bytes == 0) {
        xfer->source = message;
        engine->transport->ops->release(engine->transport, message, 1);
        weft__engine_received(engine, xfer, 0, 0);
        return 0;
    }
    if (message->list == WEFT__PULLED) {
        weft__pull_begin(engine, xfer, message);
        return 0;
    }
    if (!message->data && !message->list) {
        if (run->flights->stages)
            weft__device_drop_temporary(xfer); /* of a run that has failed */
        return fetch(engine, xfer, message);
    }
    xfer->source = message;
    if (weft__in_pieces(message))
        message->next = NULL;
    weft__bounce_start(engine, xfer);
    return 0;
}

int weft__device_fetched(struct weft__engine *engine, struct weft__xfer *xfer)
{
    struct weft_run *run = weft__xfer_run(xfer);
    const struct weft__region *region = region_of(run, xfer->node);
    size_t total = xfer->message.bytes;

    if (!run->flights || !is_there(run, region))
        return 0;
    xfer->source = NULL;
    if (run->flights->stages) {
        if (!weft__stage_of(xfer)->temporary)
            return 0; /* it is there */
        weft__bounce_start(engine, xfer);
        return 1;
    }
    int status = weft__device_carry(run, region, 0, weft__device_staging(xfer), total, 1);
    xfer->message.xflags = WEFT__X_LANDING;
    weft__flight_add(
        engine, run->flights,
        (struct weft__flight){.node = xfer->node, .kind = WEFT__FLIGHT_RECEIVE, .bytes = total});
    if (status != WEFT_OK)
        weft__engine_broken(engine, run, xfer->node);
    return 1;
}
