/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The channel: what goes by lines, what waits for room in a ring, who leaves and who is lost.
 *
 *   send        fits, and the peer's credit allows it: a line, and the send has ended
 *               else: bulk, whose announcement is a line
 *   control     a line
 *   no room     a queue for each peer, in order, which poll empties as the peer takes its ring
 *
 * Bulk (bulk_*.c) is asked for what is announced.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/engine.h"
#include "runtime/transport/shared/bulk.h"
#include <stdio.h>
#include <string.h>

/* So many peers are looked at one after the other: a look that finds nothing is a load from the
 * nearest cache. With more, senders set a bit in a summary. */
#define LOOKED_AT 16
/* Payload that small records have room for; the others have room for all that is eager. */
#define SMALL_BYTES 256
/* While it closes, what others do late is looked for so often, if the bell does not ring. */
#define CLOSE_NS UINT64_C(10000000)

/* ---- opening ---- */

static void open_outgoing(struct weft__channel *channel, struct weft__peer *peer, void *region)
{
    const struct weft__layout *layout = &channel->layout;
    peer->region = region;
    peer->out = weft__region_ring(layout, region, channel->rank);
    peer->out_payload = (char *)(peer->out + layout->lines);
    peer->out_credits = weft__region_credits(layout, region, channel->rank);
    peer->out_position = WEFT__RING_START;
    peer->out_limit = WEFT__RING_START + layout->lines;
    peer->out_payload_limit = layout->payload_bytes;
    peer->out_cost_limit = layout->ahead_bytes;
    atomic_init(&peer->out_taken, WEFT__RING_START);
}

static void open_incoming(struct weft__channel *channel, struct weft__peer *peer)
{
    const struct weft__layout *layout = &channel->layout;
    struct weft__line *ring = weft__region_ring(layout, channel->region, peer->index);
    peer->in = ring;
    peer->in_payload = (const char *)(ring + layout->lines);
    peer->in_credits = weft__region_credits(layout, channel->region, peer->index);
    atomic_init(&peer->in_taken, WEFT__RING_START);
    peer->in_lines_told = WEFT__RING_START;
}

static void keep_line(struct weft__queued *queued, int kind)
{
    queued->message.flags = WEFT__OF_CHANNEL | WEFT__CH_LINE;
    queued->line.kind = (uint8_t)kind;
    queued->kept = 1;
}

int weft__channel_create(struct weft__channel **out, struct weft__transport *transport,
                         const struct weft__channel_config *config,
                         const struct weft__layout *layout, void *region)
{
    struct weft__channel *channel = weft__calloc(1, sizeof *channel);
    if (!channel)
        return weft__error_memory(config->who);
    channel->peers = weft__aligned(64, (size_t)config->size * sizeof *channel->peers);
    channel->member_of = weft__malloc((size_t)transport->size, sizeof *channel->member_of);
    if (!channel->peers || !channel->member_of) {
        weft__channel_discard(channel);
        return weft__error_memory(config->who);
    }
    channel->transport = transport;
    channel->layout = *layout;
    channel->line_mask = layout->lines - 1;
    channel->rank = config->rank;
    channel->size = config->size;
    channel->looked_at = config->size <= LOOKED_AT ? config->size : 0;
    channel->region = region;
    for (int rank = 0; rank < transport->size; rank++)
        channel->member_of[rank] = -1;
    for (int member = 0; member < config->size; member++) {
        struct weft__peer *peer = &channel->peers[member];
        peer->index = member;
        peer->rank = config->ranks ? config->ranks[member] : member;
        peer->pidfd = -1;
        peer->queue_end = &peer->queue;
        keep_line(&peer->leave, WEFT__LINE_LEAVE);
        keep_line(&peer->closed, WEFT__LINE_CLOSED);
        channel->member_of[peer->rank] = member;
        open_incoming(channel, peer);
    }
    open_outgoing(channel, &channel->peers[channel->rank], region);
    transport->bell = &channel->region->bell;
    *out = channel;
    return WEFT_OK;
}

void weft__channel_attach(struct weft__channel *channel, int member, void *region)
{
    open_outgoing(channel, &channel->peers[member], region);
}

int weft__channel_reaches(const struct weft__channel *channel, int rank)
{
    return channel->member_of[rank] >= 0;
}

static struct weft__peer *peer_of(const struct weft__channel *channel, int rank)
{
    return &channel->peers[channel->member_of[rank]];
}

int weft__channel_owns(const struct weft__message *message)
{
    return (message->flags & WEFT__OF_CHANNEL) != 0;
}

_Atomic uint64_t *weft__channel_seat(const struct weft__channel *channel, int member)
{
    return member < channel->size ? &channel->peers[member].region->seat : NULL;
}

int weft__channel_deaths(const struct weft__channel *channel)
{
    return atomic_load_explicit(&channel->deaths, memory_order_acquire);
}

/* ---- records of what has arrived ---- */

struct weft__arrival *weft__arrival_take(struct weft__channel *channel, size_t bytes)
{
    int small = bytes <= SMALL_BYTES;
    struct weft__arrival **list = small ? &channel->free_small : &channel->free_large;
    struct weft__arrival *arrival = *list;
    if (arrival) {
        *list = (struct weft__arrival *)arrival->message.next;
        return arrival;
    }
    size_t eager = channel->layout.eager_bytes;
    size_t capacity = small ? SMALL_BYTES : eager > WEFT__NEWS_BYTES ? eager : WEFT__NEWS_BYTES;
    arrival = weft__aligned(64, sizeof *arrival + capacity);
    if (arrival)
        arrival->capacity = capacity;
    return arrival;
}

void weft__arrival_free(struct weft__channel *channel, struct weft__arrival *arrival)
{
    struct weft__arrival **list =
        arrival->capacity <= SMALL_BYTES ? &channel->free_small : &channel->free_large;
    arrival->message.next = (struct weft__message *)*list; /* its first member */
    *list = arrival;
}

static void free_records(struct weft__arrival *arrival)
{
    while (arrival) {
        struct weft__arrival *next = (struct weft__arrival *)arrival->message.next;
        weft__free(arrival);
        arrival = next;
    }
}

void weft__channel_deliver(struct weft__channel *channel, struct weft__arrival *arrival)
{
    if (channel->closing)
        weft__channel_release(channel, &arrival->message, 0);
    else
        weft__engine_message(channel->transport->engine, &arrival->message);
}

void weft__channel_again(struct weft__channel *channel)
{
    if (!channel->closing)
        channel->transport->engine->did++;
}

/* ---- what waits for room ---- */

static void enqueue(struct weft__channel *channel, struct weft__peer *peer,
                    struct weft__message *message)
{
    if (!peer->queue) {
        atomic_store_explicit(&peer->out_waits, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&channel->queues, 1, memory_order_relaxed);
    }
    message->next = NULL;
    *peer->queue_end = message;
    peer->queue_end = &message->next;
    weft__ring_want(channel, peer);
}

static void has_no_queue(struct weft__channel *channel, struct weft__peer *peer)
{
    peer->queue_end = &peer->queue;
    atomic_store_explicit(&peer->out_waits, 0, memory_order_relaxed);
    atomic_fetch_sub_explicit(&channel->queues, 1, memory_order_relaxed);
}

static struct weft__message *dequeue(struct weft__channel *channel, struct weft__peer *peer)
{
    struct weft__message *message = peer->queue;
    peer->queue = message->next;
    if (!peer->queue)
        has_no_queue(channel, peer);
    return message;
}

static int is_queued_line(const struct weft__message *message)
{
    return message->flags == (WEFT__OF_CHANNEL | WEFT__CH_LINE);
}

static void free_queued(struct weft__message *message)
{
    struct weft__queued *queued = (struct weft__queued *)message; /* its first member */
    if (!queued->kept)
        weft__free(queued);
}

static int put_or_queue(struct weft__channel *channel, struct weft__peer *peer,
                        const struct weft__line *line, size_t bytes, const void *data)
{
    int waits = peer->queue && !peer->flushing;
    int status = waits ? 0 : weft__ring_put(channel, peer, line, bytes, data, NULL);
    if (status != 0)
        return WEFT_OK; /* who is lost needs nothing */
    size_t behind = bytes > WEFT__LINE_PAYLOAD ? bytes : 0;
    struct weft__queued *queued = weft__malloc(1, sizeof *queued + behind);
    if (!queued)
        return weft__error_memory("a message that waits for its receiver");
    memset(queued, 0, sizeof *queued);
    queued->message.flags = WEFT__OF_CHANNEL | WEFT__CH_LINE;
    memcpy(&queued->line, line, sizeof *line);
    queued->bytes = bytes;
    if (bytes > 0)
        memcpy(behind ? (unsigned char *)(queued + 1) : queued->line.payload, data, bytes);
    enqueue(channel, peer, &queued->message);
    return WEFT_OK;
}

int weft__channel_line(struct weft__channel *channel, struct weft__peer *peer,
                       const struct weft__line *line)
{
    if (peer->state >= WEFT__PEER_CLOSED)
        return WEFT_OK;
    return put_or_queue(channel, peer, line, WEFT__LINE_PAYLOAD, line->payload);
}

/* A line that is part of its peer. */
static void send_kept(struct weft__channel *channel, struct weft__peer *peer,
                      struct weft__queued *queued)
{
    if (peer->state >= WEFT__PEER_CLOSED)
        return;
    if (peer->queue || weft__ring_put(channel, peer, &queued->line, 0, NULL, NULL) == 0)
        enqueue(channel, peer, &queued->message);
}

/* ---- sending ---- */

int weft__channel_refused(const struct weft__peer *peer)
{
    if (peer->state == WEFT__PEER_DEAD)
        return weft__error(WEFT_ERR_PEER, "rank %d has died: %s", peer->rank, peer->how);
    return weft__error(WEFT_ERR_PEER, "rank %d has destroyed its context", peer->rank);
}

/* NO_ROOM for a line; else as ops->send. */
enum { NO_ROOM = 2 };
static inline int try_send(struct weft__channel *channel, struct weft__peer *peer,
                           struct weft__xfer *xfer)
{
    const struct weft__message *message = &xfer->message;
    size_t bytes = message->bytes;
    size_t cost = WEFT__AHEAD_COST(bytes);
    if (!weft__ring_may_send(channel, peer))
        return peer->state == WEFT__PEER_DEAD ? weft__channel_refused(peer) : NO_ROOM;
    if (bytes <= channel->layout.eager_bytes && message->list < WEFT__DEVICE &&
        weft__ring_may(channel, peer, cost)) {
        struct weft__line line = {.tag = message->tag,
                                  .object = message->object,
                                  .version = message->version,
                                  .bytes = (uint32_t)bytes,
                                  .part = message->part,
                                  .turn = message->turn,
                                  .kind = WEFT__DATA};
        int status =
            weft__ring_put(channel, peer, &line, bytes, message->data, message->list ? xfer : NULL);
        if (status == 1) {
            peer->out_cost += cost;
            return WEFT_OK;
        }
        if (status < 0)
            return weft__channel_refused(peer);
    }
    return weft__bulk_send(channel, peer, xfer);
}

int weft__channel_send(struct weft__channel *channel, struct weft__xfer *xfer)
{
    struct weft__peer *peer = peer_of(channel, xfer->message.to);
    if (peer->state >= WEFT__PEER_CLOSED)
        return weft__channel_refused(peer);
    int status = peer->queue ? NO_ROOM : try_send(channel, peer, xfer);
    if (status != NO_ROOM)
        return status;
    xfer->message.flags = WEFT__OF_CHANNEL | WEFT__CH_QUEUED;
    enqueue(channel, peer, &xfer->message);
    return WEFT_IN_PROGRESS;
}

int weft__channel_send_device(struct weft__channel *channel, struct weft__xfer *xfer)
{
    struct weft__peer *peer = peer_of(channel, xfer->message.to);
    if (peer->state >= WEFT__PEER_CLOSED)
        return weft__channel_refused(peer);
    if (channel->transport->device_way == WEFT_DEVICE_WAY_STAGED ||
        !weft__bulk_lend(channel, peer, xfer))
        return WEFT__OUT_OF_REACH;
    int status = weft__channel_send(channel, xfer);
    if (status < 0)
        weft__bulk_unlend(channel, xfer);
    return status;
}

int weft__channel_reach(struct weft__channel *channel, struct weft__message *message,
                        struct weft__device *device)
{
    return weft__bulk_reach(channel, weft__arrival_of(message), device);
}

const char *weft__channel_reached(const struct weft__message *message, size_t offset, size_t *bytes)
{
    return weft__bulk_reached((const struct weft__arrival *)message, offset, bytes);
}

void weft__channel_staged(struct weft__channel *channel, const struct weft__xfer *xfer)
{
    weft__bulk_staged(channel, xfer);
}

int weft__channel_control(struct weft__channel *channel, const struct weft__message *message)
{
    struct weft__peer *peer = peer_of(channel, message->to);
    if (peer->state >= WEFT__PEER_CLOSED)
        return WEFT_OK; /* it needs no signals */
    size_t bytes = !weft__has_payload(message->kind) || !message->data ? 0 : message->bytes;
    struct weft__line line = {.tag = message->tag,
                              .object = message->object,
                              .version = message->version,
                              .bytes = weft__has_payload(message->kind) ? (uint32_t)bytes
                                                                        : (uint32_t)message->bytes,
                              .part = message->part,
                              .turn = message->turn,
                              .kind = message->kind};
    return put_or_queue(channel, peer, &line, bytes, message->data);
}

/* A send that has waited; there is room for a line. */
static void send_queued(struct weft__channel *channel, struct weft__peer *peer)
{
    struct weft__xfer *xfer = (struct weft__xfer *)dequeue(channel, peer); /* its first member */
    /* What it sends goes before all that still waits. */
    peer->flushing = 1;
    int status = try_send(channel, peer, xfer);
    peer->flushing = 0;
    if (status < 0 && xfer->message.list == WEFT__DEVICE)
        weft__bulk_unlend(channel, xfer);
    if (status != WEFT_IN_PROGRESS)
        weft__engine_sent(channel->transport->engine, xfer, status);
}

static int send_queued_line(struct weft__channel *channel, struct weft__peer *peer)
{
    struct weft__message *message = peer->queue;
    const struct weft__queued *queued = (struct weft__queued *)message; /* its first member */
    const void *data =
        queued->bytes > WEFT__LINE_PAYLOAD ? (const void *)(queued + 1) : queued->line.payload;
    if (weft__ring_put(channel, peer, &queued->line, queued->bytes, data, NULL) != 1)
        return 0;
    dequeue(channel, peer);
    free_queued(message);
    return 1;
}

/* Sends what has waited, as far as there is room. */
static void flush(struct weft__channel *channel, struct weft__peer *peer)
{
    while (peer->queue && peer->state < WEFT__PEER_CLOSED) {
        int line = is_queued_line(peer->queue);
        if (line ? !send_queued_line(channel, peer) : !weft__ring_may_send(channel, peer))
            break;
        if (!line)
            send_queued(channel, peer);
    }
    if (peer->queue && peer->state < WEFT__PEER_CLOSED)
        weft__ring_want(channel, peer);
}

/* Nothing will be taken by a peer any more. */
static void end_sends(struct weft__channel *channel, struct weft__peer *peer)
{
    while (peer->queue) {
        struct weft__message *message = dequeue(channel, peer);
        if (is_queued_line(message)) {
            free_queued(message);
            continue;
        }
        struct weft__xfer *xfer = (struct weft__xfer *)message; /* its first member */
        if (message->list == WEFT__DEVICE)
            weft__bulk_unlend(channel, xfer);
        weft__engine_sent(channel->transport->engine, xfer, WEFT_ERR_PEER);
    }
    weft__bulk_gone(channel, peer);
}

/* ---- polling ---- */

static int tell_lost(struct weft__channel *channel)
{
    int count = 0;
    atomic_store_explicit(&channel->lost, 0, memory_order_relaxed);
    for (int i = 0; i < channel->size; i++) {
        struct weft__peer *peer = &channel->peers[i];
        if (peer->state != WEFT__PEER_DEAD || peer->told)
            continue;
        peer->told = 1;
        if (!channel->closing)
            weft__engine_died(channel->transport->engine, peer->rank, peer->how);
        end_sends(channel, peer);
        if (peer->announced == 0)
            weft__channel_forget(channel, peer);
        count++;
    }
    return count;
}

/* What is rare. */
static WEFT__NOINLINE int look_after(struct weft__channel *channel)
{
    int count = 0;
    if (atomic_load_explicit(&channel->queues, memory_order_relaxed) != 0)
        for (int i = 0; i < channel->size; i++)
            if (channel->peers[i].queue)
                flush(channel, &channel->peers[i]);
    if (channel->bulk_busy)
        count += weft__bulk_poll(channel);
    if (atomic_load_explicit(&channel->alarm, memory_order_relaxed) != 0 &&
        atomic_exchange_explicit(&channel->alarm, 0, memory_order_acquire) != 0)
        count += weft__death_poll(channel);
    if (atomic_load_explicit(&channel->lost, memory_order_relaxed) != 0)
        count += tell_lost(channel);
    return count;
}

int weft__channel_poll(struct weft__channel *channel)
{
    int count = weft__ring_take(channel);
    if (channel->bulk_busy || atomic_load_explicit(&channel->queues, memory_order_relaxed) != 0 ||
        atomic_load_explicit(&channel->alarm, memory_order_seq_cst) != 0 ||
        atomic_load_explicit(&channel->lost, memory_order_relaxed) != 0)
        count += look_after(channel);
    return count;
}

int weft__channel_pending(struct weft__channel *channel)
{
    if (atomic_load_explicit(&channel->alarm, memory_order_seq_cst) != 0 ||
        atomic_load_explicit(&channel->lost, memory_order_relaxed) != 0 ||
        weft__ring_pending(channel) || weft__bulk_pending(channel))
        return 1;
    if (atomic_load_explicit(&channel->queues, memory_order_relaxed) == 0)
        return 0;
    for (int i = 0; i < channel->size; i++) {
        const struct weft__peer *peer = &channel->peers[i];
        if (atomic_load_explicit(&peer->out_waits, memory_order_relaxed) != 0 &&
            weft__ring_moved(peer))
            return 1;
    }
    return 0;
}

/* ---- what has arrived, and what was sent ---- */

static struct weft__peer *sender_of(const struct weft__channel *channel,
                                    const struct weft__message *message)
{
    return &channel->peers[message->own];
}

static int is_eager(const struct weft__message *message)
{
    return message->flags == (WEFT__OF_CHANNEL | WEFT__CH_EAGER);
}

void weft__channel_release(struct weft__channel *channel, struct weft__message *message,
                           int consumed)
{
    struct weft__arrival *arrival = weft__arrival_of(message);
    if (!is_eager(message)) {
        weft__bulk_release(channel, arrival, consumed);
        return;
    }
    struct weft__peer *peer = sender_of(channel, message);
    peer->in_consumed += arrival->cost;
    /* No memory is given away by it: nothing to pair with. */
    atomic_store_explicit(&peer->in_credits->consumed, peer->in_consumed, memory_order_relaxed);
    if (channel->delivering == message)
        channel->delivering = NULL;
    weft__arrival_free(channel, arrival);
}

int weft__channel_read(struct weft__channel *channel, struct weft__message *message, int reading)
{
    return is_eager(message) || weft__bulk_read(channel, weft__arrival_of(message), reading);
}

int weft__channel_fetch(struct weft__channel *channel, struct weft__message *message,
                        struct weft__xfer *xfer)
{
    return weft__bulk_fetch(channel, weft__arrival_of(message), xfer);
}

const void *weft__channel_piece(struct weft__channel *channel, struct weft__message *message,
                                size_t offset, size_t *bytes)
{
    return weft__bulk_piece(channel, weft__arrival_of(message), offset, bytes);
}

int weft__channel_withdrawn(struct weft__channel *channel, struct weft__xfer *xfer)
{
    return weft__bulk_withdrawn(channel, xfer);
}

static int is_queued_send(const struct weft__message *message)
{
    return message->flags == (WEFT__OF_CHANNEL | WEFT__CH_QUEUED);
}

/* A send that still waits for room is given back: nobody has heard of it. */
int weft__channel_cancel(struct weft__channel *channel, struct weft__xfer *xfer)
{
    if (!is_queued_send(&xfer->message))
        return weft__bulk_cancel(channel, xfer);
    struct weft__peer *peer = peer_of(channel, xfer->message.to);
    struct weft__message **link = &peer->queue;
    while (*link && *link != &xfer->message)
        link = &(*link)->next;
    if (!*link)
        return WEFT_IN_PROGRESS; /* its end is about to be told */
    *link = xfer->message.next;
    if (peer->queue_end == &xfer->message.next)
        peer->queue_end = link;
    if (!peer->queue)
        has_no_queue(channel, peer);
    if (xfer->message.list == WEFT__DEVICE)
        weft__bulk_unlend(channel, xfer);
    return WEFT_OK;
}

/* ---- leaving, closing, losing ---- */

void weft__channel_leave(struct weft__channel *channel)
{
    if (channel->left)
        return;
    channel->left = 1;
    for (int i = 0; i < channel->size; i++)
        if (i != channel->rank)
            send_kept(channel, &channel->peers[i], &channel->peers[i].leave);
}

void weft__channel_parted(struct weft__channel *channel, struct weft__peer *peer, int kind)
{
    if (kind != WEFT__LINE_LEAVE && kind != WEFT__LINE_CLOSED) {
        weft__channel_lost(channel, peer, "it has sent a line of no kind");
        return;
    }
    int is_first = peer->state == WEFT__PEER_HERE;
    peer->state = kind == WEFT__LINE_LEAVE ? WEFT__PEER_LEFT : WEFT__PEER_CLOSED;
    if (is_first && !channel->closing)
        weft__engine_left(channel->transport->engine, peer->rank);
    if (kind == WEFT__LINE_CLOSED)
        end_sends(channel, peer);
}

/* The engine hears of it from poll: this may be called by what the engine has called. */
void weft__channel_lost(struct weft__channel *channel, struct weft__peer *peer, const char *how)
{
    if (peer->state >= WEFT__PEER_CLOSED)
        return; /* who has closed has ended well, whatever comes of its process */
    snprintf(peer->how, sizeof peer->how, "%s", how);
    peer->state = WEFT__PEER_DEAD;
    atomic_fetch_add_explicit(&channel->deaths, 1, memory_order_release);
    atomic_store_explicit(&channel->lost, 1, memory_order_relaxed);
}

int weft__channel_settled(struct weft__channel *channel)
{
    channel->closing = 1;
    weft__channel_leave(channel);
    weft__channel_poll(channel);
    if (!channel->closed && weft__bulk_settled(channel)) {
        channel->closed = 1;
        for (int i = 0; i < channel->size; i++)
            if (i != channel->rank)
                send_kept(channel, &channel->peers[i], &channel->peers[i].closed);
    }
    return channel->closed && atomic_load_explicit(&channel->queues, memory_order_relaxed) == 0;
}

void weft__channel_close(struct weft__channel *channel)
{
    struct weft__bell *bell = &channel->region->bell;
    while (!weft__channel_settled(channel)) {
        uint32_t seen = atomic_load_explicit(&bell->count, memory_order_seq_cst);
        atomic_fetch_or_explicit(&bell->sleeper, WEFT__BELL_CALLER, memory_order_seq_cst);
        if (!weft__channel_pending(channel))
            weft__bell_wait(bell, seen, WEFT__BELL_CALLER, CLOSE_NS);
    }
    weft__death_unwatch(channel);
    weft__bulk_close(channel);
    weft__channel_unmap(channel);
    weft__channel_discard(channel);
}

void weft__channel_discard(struct weft__channel *channel)
{
    free_records(channel->free_small);
    free_records(channel->free_large);
    weft__free(channel->member_of);
    weft__free(channel->peers);
    weft__free(channel);
}
