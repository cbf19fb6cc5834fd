/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sender's side of payloads that are announced.
 *
 * A send has a slot, whose state word lies in the region. Chunks are copied one a poll, for one
 * send after the other, so that what arrives is not kept waiting and all that pull get their share.
 * Windows are made as they are needed, and one is there from the beginning: a payload that is
 * pulled needs nothing but that its receiver goes on, so those that wait for a window get one.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/engine.h"
#include "runtime/transport/shared/bulk.h"
#include <string.h>

#define WINDOW_BYTES (WEFT__BULK_CHUNK * WEFT__BULK_WINDOW)

/* ---- windows ---- */

static char *window_take(struct weft__bulk *bulk)
{
    char *window = bulk->windows;
    if (window) {
        memcpy(&bulk->windows, window, sizeof bulk->windows);
        return window;
    }
    window = weft__channel_alloc(bulk->channel, WINDOW_BYTES);
    bulk->window_count += window != NULL;
    return window;
}

static void window_give(struct weft__bulk *bulk, char *window)
{
    memcpy(window, &bulk->windows, sizeof bulk->windows);
    bulk->windows = window;
}

/* ---- slots ---- */

static _Atomic uint32_t *state_of(const struct weft__bulk *bulk, size_t slot)
{
    struct weft__channel *channel = bulk->channel;
    return &weft__region_slot(&channel->layout, channel->region, (uint32_t)slot)->state;
}

static uint32_t slot_of(const struct weft__bulk *bulk, const struct weft__outgoing *outgoing)
{
    return (uint32_t)(outgoing - bulk->sends);
}

static struct weft__outgoing *take(struct weft__bulk *bulk)
{
    if (bulk->free_send) {
        struct weft__outgoing *outgoing = &bulk->sends[bulk->free_send - 1];
        bulk->free_send = outgoing->next;
        return outgoing;
    }
    if (bulk->send_count == bulk->channel->layout.slots ||
        weft__grow((void **)&bulk->sends, &bulk->send_capacity, bulk->send_count + 1,
                   sizeof *bulk->sends) != 0)
        return NULL;
    struct weft__outgoing *outgoing = &bulk->sends[bulk->send_count++];
    *outgoing = (struct weft__outgoing){.generation = 1};
    return outgoing;
}

static void queue(struct weft__bulk *bulk, struct weft__outgoing *outgoing)
{
    uint32_t number = slot_of(bulk, outgoing) + 1;
    outgoing->next = 0;
    outgoing->queued = 1;
    if (bulk->fill_last)
        bulk->sends[bulk->fill_last - 1].next = number;
    else
        bulk->fill_first = number;
    bulk->fill_last = number;
}

/* Out of the list of those to be filled, or that wait for a window. */
static void unqueue(struct weft__bulk *bulk, struct weft__outgoing *outgoing)
{
    uint32_t number = slot_of(bulk, outgoing) + 1, before = 0;
    if (!outgoing->queued)
        return;
    outgoing->queued = 0;
    for (uint32_t *link = &bulk->fill_first; *link; link = &bulk->sends[*link - 1].next) {
        if (*link == number) {
            *link = outgoing->next;
            if (bulk->fill_last == number)
                bulk->fill_last = before;
            return;
        }
        before = *link;
    }
    for (uint32_t *link = &bulk->starved; *link; link = &bulk->sends[*link - 1].next)
        if (*link == number) {
            *link = outgoing->next;
            return;
        }
}

/* Ends a send: what still comes for it is late. */
static void give(struct weft__bulk *bulk, struct weft__outgoing *outgoing)
{
    unqueue(bulk, outgoing);
    char *window = outgoing->window;
    bulk->cancelling -= outgoing->cancelled;
    *outgoing =
        (struct weft__outgoing){.generation = (outgoing->generation + 1) & (UINT32_MAX >> 2),
                                .peer = -1,
                                .next = bulk->free_send};
    bulk->free_send = slot_of(bulk, outgoing) + 1;
    if (window)
        window_give(bulk, window);
    if (window && bulk->starved) {
        struct weft__outgoing *waits = &bulk->sends[bulk->starved - 1];
        bulk->starved = waits->next;
        queue(bulk, waits);
    }
}

static void finish(struct weft__bulk *bulk, struct weft__outgoing *outgoing, int status)
{
    struct weft__xfer *xfer = outgoing->xfer;
    give(bulk, outgoing);
    if (xfer)
        weft__engine_sent(bulk->channel->transport->engine, xfer, status);
}

int weft__bulk_send_open(struct weft__bulk *bulk)
{
    char *window = window_take(bulk);
    if (!window)
        return weft__error_memory("the chunks of large messages");
    bulk->windows = window; /* its first bytes are 0 */
    return WEFT_OK;
}

void weft__bulk_send_close(struct weft__bulk *bulk)
{
    weft__free(bulk->sends);
}

/* ---- sending ---- */

/* Where the receiver finds the payload. */
static void describe(const struct weft__channel *channel, const struct weft__message *message,
                     struct weft__announcement *announced)
{
    uintptr_t arena = (uintptr_t)weft__region_arena(&channel->layout, channel->region);
    uintptr_t at = (uintptr_t)message->data;
    size_t room = channel->layout.arena_bytes;
    announced->bytes = message->bytes;
    if (message->list) {
        announced->how = WEFT__BULK_IN_LIST;
    } else if (at >= arena && at - arena < room && message->bytes <= room - (at - arena)) {
        announced->how = WEFT__BULK_IN_ARENA;
        announced->where = at - arena;
    } else {
        announced->how = WEFT__BULK_AT_ADDRESS;
        announced->where = at;
    }
}

int weft__bulk_send(struct weft__channel *channel, struct weft__peer *peer, struct weft__xfer *xfer)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    struct weft__message *message = &xfer->message;
    struct weft__outgoing *outgoing = take(bulk);
    if (!outgoing)
        return weft__error_memory("a large message");
    struct weft__announcement announced = {.slot = slot_of(bulk, outgoing),
                                           .generation = outgoing->generation};
    struct weft__line line = {.tag = message->tag,
                              .object = message->object,
                              .version = message->version,
                              .bytes = sizeof announced,
                              .part = message->part,
                              .turn = message->turn,
                              .kind = WEFT__LINE_ANNOUNCE};
    describe(channel, message, &announced);
    memcpy(line.payload, &announced, sizeof announced);
    outgoing->xfer = xfer;
    outgoing->peer = peer->index;
    outgoing->bytes = message->bytes;
    message->flags = WEFT__OF_CHANNEL | WEFT__CH_SENT;
    xfer->handle = announced.slot;
    /* Before the line that tells of it. */
    atomic_store_explicit(state_of(bulk, announced.slot),
                          WEFT__BULK_STATE(outgoing->generation, WEFT__BULK_POSTED),
                          memory_order_release);
    int status = weft__channel_line(channel, peer, &line);
    if (status == WEFT_OK)
        return WEFT_IN_PROGRESS;
    give(bulk, outgoing);
    return status;
}

int weft__bulk_is_own(const struct weft__bulk *bulk, const struct weft__announcement *announced)
{
    const struct weft__outgoing *outgoing =
        announced->slot < bulk->send_count ? &bulk->sends[announced->slot] : NULL;
    return outgoing && outgoing->xfer && outgoing->generation == announced->generation &&
           outgoing->peer == bulk->channel->rank && outgoing->bytes == announced->bytes &&
           (announced->how != WEFT__BULK_AT_ADDRESS ||
            (!outgoing->xfer->message.list &&
             (uintptr_t)outgoing->xfer->message.data == announced->where));
}

/* ---- withdrawing ---- */

/* Whether nobody reads the payload, now or later. */
static int withdraw(struct weft__bulk *bulk, const struct weft__outgoing *outgoing)
{
    _Atomic uint32_t *word = state_of(bulk, slot_of(bulk, outgoing));
    uint32_t reading = WEFT__BULK_STATE(outgoing->generation, WEFT__BULK_READING);
    uint32_t withdrawn = WEFT__BULK_STATE(outgoing->generation, WEFT__BULK_WITHDRAWN);
    /* Acquire: pairs with the release of who has read. */
    uint32_t state = atomic_load_explicit(word, memory_order_acquire);
    while (state != reading && state != withdrawn)
        if (atomic_compare_exchange_weak_explicit(word, &state, withdrawn, memory_order_acq_rel,
                                                  memory_order_acquire))
            return 1;
    return state == withdrawn || weft__bulk_has_ended(&bulk->channel->peers[outgoing->peer]);
}

static struct weft__outgoing *sent(const struct weft__bulk *bulk, const struct weft__xfer *xfer)
{
    struct weft__outgoing *outgoing =
        xfer->message.flags == (WEFT__OF_CHANNEL | WEFT__CH_SENT) && xfer->handle < bulk->send_count
            ? &bulk->sends[xfer->handle]
            : NULL;
    return outgoing && outgoing->xfer == xfer ? outgoing : NULL;
}

int weft__bulk_withdrawn(struct weft__channel *channel, struct weft__xfer *xfer)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    const struct weft__outgoing *outgoing = sent(bulk, xfer);
    return !outgoing || withdraw(bulk, outgoing);
}

int weft__bulk_cancel(struct weft__channel *channel, struct weft__xfer *xfer)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    struct weft__outgoing *outgoing = sent(bulk, xfer);
    if (!outgoing)
        return WEFT_OK; /* a receive that is fetched: release() follows */
    if (!withdraw(bulk, outgoing)) {
        bulk->cancelling += !outgoing->cancelled;
        outgoing->cancelled = 1;
        weft__bulk_settle(bulk);
        return WEFT_IN_PROGRESS;
    }
    if (outgoing->window) {
        unqueue(bulk, outgoing);
        outgoing->xfer = NULL; /* what it has filled may still be read */
    } else {
        give(bulk, outgoing);
    }
    weft__bulk_settle(bulk);
    return WEFT_OK;
}

static int end_cancelled(struct weft__bulk *bulk)
{
    int count = 0;
    for (size_t i = 0; i < bulk->send_count && bulk->cancelling > 0; i++)
        if (bulk->sends[i].cancelled && withdraw(bulk, &bulk->sends[i])) {
            finish(bulk, &bulk->sends[i], WEFT_ERR_CANCELLED);
            count++;
        }
    return count;
}

int weft__bulk_settled(struct weft__channel *channel)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    int settled = 1;
    for (size_t i = 0; bulk && i < bulk->send_count; i++)
        if (bulk->sends[i].xfer)
            settled &= withdraw(bulk, &bulk->sends[i]);
    return settled;
}

void weft__bulk_send_gone(struct weft__bulk *bulk, const struct weft__peer *peer)
{
    for (size_t i = 0; i < bulk->send_count; i++)
        if (bulk->sends[i].peer == peer->index)
            finish(bulk, &bulk->sends[i], WEFT_ERR_PEER);
}

/* ---- chunks ---- */

static void copy_chunk(const struct weft__xfer *xfer, size_t offset, char *to, size_t bytes)
{
    for (size_t at = 0, piece; at < bytes; at += piece) {
        piece = bytes - at;
        const char *from = xfer->message.list ? weft__xfer_chunk(xfer, offset + at, &piece)
                                              : (const char *)xfer->message.data + offset + at;
        if (piece > bytes - at)
            piece = bytes - at;
        memcpy(to + at, from, piece);
    }
}

static int wants_chunk(const struct weft__outgoing *outgoing)
{
    return outgoing->filled - outgoing->freed < WEFT__BULK_WINDOW &&
           outgoing->filled * WEFT__BULK_CHUNK < outgoing->bytes;
}

/* The next chunk of the send whose turn it is. */
static int fill(struct weft__bulk *bulk)
{
    struct weft__channel *channel = bulk->channel;
    struct weft__outgoing *outgoing = &bulk->sends[bulk->fill_first - 1];
    unqueue(bulk, outgoing);
    if (!outgoing->window && !(outgoing->window = window_take(bulk))) {
        outgoing->next = bulk->starved;
        outgoing->queued = 1;
        bulk->starved = slot_of(bulk, outgoing) + 1;
        return 0;
    }
    size_t offset = (size_t)outgoing->filled * WEFT__BULK_CHUNK;
    size_t bytes = outgoing->bytes - offset;
    char *to = outgoing->window + outgoing->filled % WEFT__BULK_WINDOW * WEFT__BULK_CHUNK;
    const struct weft__bulk_words words = {
        .slot = slot_of(bulk, outgoing),
        .generation = outgoing->generation,
        .number = outgoing->number,
        .its_generation = outgoing->its_generation,
        .chunk = outgoing->filled,
        .where = (uint64_t)(to - weft__region_arena(&channel->layout, channel->region))};
    copy_chunk(outgoing->xfer, offset, to, bytes < WEFT__BULK_CHUNK ? bytes : WEFT__BULK_CHUNK);
    outgoing->filled++;
    if (wants_chunk(outgoing))
        queue(bulk, outgoing);
    weft__bulk_tell(channel, &channel->peers[outgoing->peer], WEFT__LINE_CHUNK, &words);
    return 1;
}

int weft__bulk_send_poll(struct weft__bulk *bulk)
{
    int count = bulk->fill_first ? fill(bulk) : 0;
    if (bulk->cancelling > 0)
        count += end_cancelled(bulk);
    return count;
}

/* ---- what the receiver says ---- */

static void pull(struct weft__bulk *bulk, struct weft__peer *peer, struct weft__outgoing *outgoing,
                 const struct weft__bulk_words *words)
{
    if (outgoing->pulled) {
        weft__channel_lost(bulk->channel, peer, "it has asked twice for the same message");
        return;
    }
    outgoing->pulled = 1;
    outgoing->number = words->number;
    outgoing->its_generation = words->its_generation;
    if (wants_chunk(outgoing) && !outgoing->cancelled)
        queue(bulk, outgoing);
}

static void next(struct weft__bulk *bulk, struct weft__peer *peer, struct weft__outgoing *outgoing,
                 const struct weft__bulk_words *words)
{
    if (words->chunk <= outgoing->freed || words->chunk > outgoing->filled) {
        weft__channel_lost(bulk->channel, peer,
                           "it has given back a part of a message that it has not been given");
        return;
    }
    outgoing->freed = words->chunk;
    if (outgoing->xfer && !outgoing->queued && !outgoing->cancelled && wants_chunk(outgoing))
        queue(bulk, outgoing);
}

void weft__bulk_send_line(struct weft__bulk *bulk, struct weft__peer *peer, int kind,
                          const struct weft__bulk_words *words)
{
    static const int outcomes[] = {WEFT_OK, WEFT_ERR_PEER, WEFT_ERR_CANCELLED};
    struct weft__outgoing *outgoing =
        words->slot < bulk->send_count ? &bulk->sends[words->slot] : NULL;
    if (!outgoing) {
        weft__channel_lost(bulk->channel, peer, "it has answered a message that was never sent");
        return;
    }
    if (outgoing->peer != peer->index || outgoing->generation != words->generation)
        return; /* that was withdrawn */
    if (kind == WEFT__LINE_PULL)
        pull(bulk, peer, outgoing, words);
    else if (kind == WEFT__LINE_NEXT)
        next(bulk, peer, outgoing, words);
    else if (words->chunk < sizeof outcomes / sizeof *outcomes)
        finish(bulk, outgoing, outcomes[words->chunk]);
    else
        weft__channel_lost(bulk->channel, peer,
                           "it has ended a message in a way that there is not");
}
