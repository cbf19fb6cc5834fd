/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver's side of payloads that are announced. */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/engine.h"
#include "runtime/transport/shared/bulk.h"
#include <string.h>

/* ---- records ---- */

static struct weft__incoming *take(struct weft__bulk *bulk)
{
    struct weft__incoming *incoming = bulk->free_messages;
    if (incoming) {
        bulk->free_messages = incoming->next;
        return incoming;
    }
    if (weft__grow((void **)&bulk->messages, &bulk->message_capacity, bulk->message_count + 1,
                   sizeof *bulk->messages) != 0)
        return NULL;
    incoming = weft__calloc(1, sizeof *incoming);
    if (!incoming)
        return NULL;
    incoming->number = (uint32_t)bulk->message_count;
    bulk->messages[bulk->message_count++] = incoming;
    return incoming;
}

/* Takes what is fetched out of the list of what can go on. */
static void unqueue(struct weft__bulk *bulk, struct weft__incoming *incoming)
{
    if (!incoming->queued)
        return;
    struct weft__incoming **link = &bulk->fetches;
    while (*link != incoming)
        link = &(*link)->next;
    *link = incoming->next;
    if (bulk->fetches_end == &incoming->next)
        bulk->fetches_end = link;
    incoming->queued = 0;
}

static void queue(struct weft__bulk *bulk, struct weft__incoming *incoming)
{
    if (incoming->queued)
        return;
    incoming->queued = 1;
    incoming->next = NULL;
    *bulk->fetches_end = incoming;
    bulk->fetches_end = &incoming->next;
    weft__bulk_settle(bulk);
}

static void give(struct weft__bulk *bulk, struct weft__incoming *incoming)
{
    unqueue(bulk, incoming);
    if (bulk->buffered == incoming)
        bulk->buffered = NULL;
    *incoming = (struct weft__incoming){.number = incoming->number,
                                        .generation = incoming->generation + 1,
                                        .next = bulk->free_messages};
    bulk->free_messages = incoming;
}

int weft__bulk_receive_open(struct weft__bulk *bulk)
{
    bulk->fetches_end = &bulk->fetches;
    bulk->unreadable = weft__calloc((size_t)bulk->channel->size, 1);
    bulk->buffer = weft__aligned(64, WEFT__BULK_BUFFER);
    return bulk->unreadable && bulk->buffer ? WEFT_OK
                                            : weft__error_memory("the buffer of large messages");
}

void weft__bulk_receive_close(struct weft__bulk *bulk)
{
    for (size_t i = 0; i < bulk->message_count; i++)
        weft__free(bulk->messages[i]);
    weft__free(bulk->messages);
    weft__free(bulk->buffer);
    weft__free(bulk->unreadable);
}

/* ---- states ---- */

static struct weft__peer *peer_of(const struct weft__channel *channel,
                                  const struct weft__arrival *arrival)
{
    return &channel->peers[arrival->message.own];
}

static _Atomic uint32_t *state_of(const struct weft__channel *channel,
                                  const struct weft__arrival *arrival)
{
    return &weft__region_slot(&channel->layout, peer_of(channel, arrival)->region,
                              arrival->announcement.slot)
                ->state;
}

static int change(const struct weft__channel *channel, const struct weft__arrival *arrival,
                  uint32_t from, uint32_t to)
{
    uint32_t expected = WEFT__BULK_STATE(arrival->announcement.generation, from);
    /* Release: what was read is no longer; pairs with the withdrawal. */
    return atomic_compare_exchange_strong_explicit(
        state_of(channel, arrival), &expected,
        WEFT__BULK_STATE(arrival->announcement.generation, to), memory_order_acq_rel,
        memory_order_acquire);
}

static int hold(const struct weft__channel *channel, const struct weft__arrival *arrival)
{
    return change(channel, arrival, WEFT__BULK_TAKEN, WEFT__BULK_READING);
}

static void let_go(const struct weft__channel *channel, const struct weft__arrival *arrival)
{
    change(channel, arrival, WEFT__BULK_READING, WEFT__BULK_TAKEN);
}

int weft__bulk_read(struct weft__channel *channel, struct weft__arrival *arrival, int reading)
{
    const struct weft__incoming *incoming = arrival->bulk;
    if (!reading)
        let_go(channel, arrival);
    else if (!incoming || incoming->reads)
        return hold(channel, arrival);
    else /* chunks are the receiver's until it gives them back, but only all of them are of use */
        return atomic_load_explicit(state_of(channel, arrival), memory_order_acquire) ==
               WEFT__BULK_STATE(arrival->announcement.generation, WEFT__BULK_TAKEN);
    return 1;
}

/* ---- announcements ---- */

/* What is wrong with an announcement, or NULL. */
static const char *check(const struct weft__bulk *bulk, const struct weft__announcement *announced)
{
    const struct weft__layout *layout = &bulk->channel->layout;
    if (announced->slot >= layout->slots || announced->generation > WEFT__BULK_GENERATIONS ||
        announced->how > WEFT__BULK_ON_DEVICE)
        return "it has announced a message in a way that there is not";
    if (announced->bytes > PTRDIFF_MAX)
        return "it has announced a message that is longer than any memory";
    if (announced->how == WEFT__BULK_ON_DEVICE)
        return weft__bulk_check_lent(layout, announced);
    if (announced->how == WEFT__BULK_IN_ARENA &&
        (announced->where > layout->arena_bytes ||
         announced->bytes > layout->arena_bytes - announced->where))
        return "it has announced a message that is not in its memory";
    if (announced->filled > 1 ||
        (announced->filled == 1 &&
         (announced->how != WEFT__BULK_IN_CHUNKS || announced->where > layout->arena_bytes ||
          layout->arena_bytes - announced->where < WEFT__BULK_CHUNK)))
        return "it has announced a part of a message that is not in its memory";
    return NULL;
}

static struct weft__incoming *make_incoming(struct weft__bulk *bulk, struct weft__peer *peer,
                                            struct weft__arrival *arrival)
{
    struct weft__incoming *incoming = take(bulk);
    if (incoming) {
        incoming->arrival = arrival;
        incoming->peer = peer;
        arrival->bulk = incoming;
    }
    return incoming;
}

int weft__bulk_pull(struct weft__bulk *bulk, struct weft__peer *peer, struct weft__arrival *arrival)
{
    if (!make_incoming(bulk, peer, arrival))
        return weft__error_memory("a large message");
    arrival->message.list = WEFT__PIECES;
    return WEFT_OK;
}

/* Where the engine finds the payload. 0: no memory. */
static int place(struct weft__bulk *bulk, struct weft__peer *peer, struct weft__arrival *arrival)
{
    const struct weft__channel *channel = bulk->channel;
    const struct weft__announcement *announced = &arrival->announcement;
    struct weft__message *message = &arrival->message;
    message->data = NULL;
    message->list = 0;
    arrival->bulk = NULL;
    arrival->reached = NULL;
    if (announced->bytes == 0)
        return 1;
    if (announced->how == WEFT__BULK_ON_DEVICE) {
        message->list = WEFT__DEVICE;
        return 1;
    }
    int all_there = announced->filled == 1 && announced->bytes <= WEFT__BULK_CHUNK;
    if (announced->how == WEFT__BULK_IN_ARENA || all_there) {
        message->data = weft__region_arena(&channel->layout, peer->region) + announced->where;
        return 1;
    }
    if (announced->how == WEFT__BULK_AT_ADDRESS && peer->index == channel->rank) {
        message->data = (const void *)(uintptr_t)announced->where;
        return 1;
    }
    struct weft__incoming *incoming = make_incoming(bulk, peer, arrival);
    if (!incoming)
        return 0;
    incoming->come = announced->filled;
    incoming->where[0] = announced->where;
    incoming->reads = announced->how == WEFT__BULK_AT_ADDRESS && bulk->read_from < SIZE_MAX &&
                      !bulk->unreadable[peer->index];
    message->list = incoming->reads ? WEFT__PIECES_OR_FETCH : WEFT__PIECES;
    return 1;
}

int weft__bulk_announced(struct weft__bulk *bulk, struct weft__peer *peer,
                         const struct weft__line *line)
{
    struct weft__channel *channel = bulk->channel;
    struct weft__announcement announced;
    memcpy(&announced, line->payload, sizeof announced);
    const char *wrong =
        line->bytes == sizeof announced ? check(bulk, &announced) : "it has announced nothing";
    if (wrong) {
        weft__channel_lost(channel, peer, wrong);
        return WEFT_OK;
    }
    /* What is announced to oneself is read where it is: nothing that is not under way is. */
    if (peer->index == channel->rank && !weft__bulk_is_own(bulk, &announced))
        return WEFT_OK; /* withdrawn */
    struct weft__arrival *arrival = weft__arrival_take(channel, 0);
    if (!arrival)
        return WEFT_ERR_MEMORY;
    weft__arrival_fill(channel, peer, arrival, line);
    arrival->message.kind = WEFT__DATA;
    arrival->message.bytes = (size_t)announced.bytes;
    arrival->message.own = peer->index;
    arrival->message.flags = WEFT__OF_CHANNEL | WEFT__CH_BULK;
    arrival->cost = 0;
    arrival->announcement = announced;
    if (!place(bulk, peer, arrival)) {
        weft__arrival_free(channel, arrival);
        return WEFT_ERR_MEMORY;
    }
    if (change(channel, arrival, WEFT__BULK_POSTED, WEFT__BULK_TAKEN)) {
        peer->announced++;
        weft__channel_deliver(channel, arrival);
        return WEFT_OK;
    }
    /* Withdrawn: its sender knows. */
    if (arrival->bulk)
        give(bulk, arrival->bulk);
    weft__arrival_free(channel, arrival);
    return WEFT_OK;
}

/* Puts a send on its sender's stack: there is always room. */
static void give_back(struct weft__channel *channel, struct weft__arrival *arrival, int outcome)
{
    struct weft__peer *peer = peer_of(channel, arrival);
    uint32_t number = arrival->announcement.slot;
    struct weft__shared_slot *slot = weft__region_slot(&channel->layout, peer->region, number);
    int back = WEFT__BULK_BACK + outcome;
    /* Withdrawn, it is still wanted back if it has chunks; else it is gone. */
    if (!change(channel, arrival, WEFT__BULK_TAKEN, back) &&
        !change(channel, arrival, WEFT__BULK_WITHDRAWN, back))
        return;
    _Atomic uint32_t *returns = &peer->region->returns;
    uint32_t head = atomic_load_explicit(returns, memory_order_relaxed);
    do
        atomic_store_explicit(&slot->next, head, memory_order_relaxed);
    /* Release: pairs with the exchange of its owner. Sequentially consistent, for the bell. */
    while (!atomic_compare_exchange_weak_explicit(returns, &head, number + 1, memory_order_seq_cst,
                                                  memory_order_relaxed));
    weft__bell_ring(&peer->region->bell);
}

void weft__bulk_release(struct weft__channel *channel, struct weft__arrival *arrival, int consumed)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    struct weft__peer *peer = peer_of(channel, arrival);
    if (arrival->bulk)
        give(bulk, arrival->bulk);
    weft__bulk_put_back(arrival);
    give_back(channel, arrival,
              consumed == 1   ? WEFT__BULK_CONSUMED
              : consumed == 0 ? WEFT__BULK_REFUSED
                              : WEFT__BULK_FAILED);
    weft__arrival_free(channel, arrival);
    if (--peer->announced == 0 && peer->told)
        weft__channel_forget(channel, peer);
    weft__bulk_settle(bulk);
}

/* ---- chunks ---- */

static uint64_t chunks_of(const struct weft__arrival *arrival)
{
    return (arrival->message.bytes + WEFT__BULK_CHUNK - 1) / WEFT__BULK_CHUNK;
}

static void say(struct weft__channel *channel, const struct weft__incoming *incoming, int kind)
{
    const struct weft__announcement *announced = &incoming->arrival->announcement;
    const struct weft__bulk_words words = {.slot = announced->slot,
                                           .generation = announced->generation,
                                           .number = incoming->number,
                                           .its_generation = incoming->generation,
                                           .chunk = incoming->done};
    weft__bulk_tell(channel, incoming->peer, kind, &words);
}

static const void *chunk_at(struct weft__channel *channel, struct weft__incoming *incoming,
                            size_t offset, size_t *bytes)
{
    uint64_t chunk = offset / WEFT__BULK_CHUNK;
    size_t within = offset % WEFT__BULK_CHUNK;
    size_t end = incoming->arrival->message.bytes - (offset - within);
    if (!incoming->pulled && incoming->come < chunks_of(incoming->arrival)) {
        incoming->pulled = 1;
        say(channel, incoming, WEFT__LINE_PULL);
    }
    if (chunk > incoming->done) {
        incoming->done = chunk;
        /* Its sender may be short of chunks, not of room in the window. */
        if (incoming->come < chunks_of(incoming->arrival))
            say(channel, incoming, WEFT__LINE_NEXT);
    }
    if (chunk >= incoming->come)
        return NULL;
    *bytes = (end < WEFT__BULK_CHUNK ? end : WEFT__BULK_CHUNK) - within;
    return weft__region_arena(&channel->layout, incoming->peer->region) +
           incoming->where[chunk % WEFT__BULK_WINDOW] + within;
}

void weft__bulk_chunk(struct weft__bulk *bulk, struct weft__peer *peer,
                      const struct weft__bulk_words *words)
{
    struct weft__channel *channel = bulk->channel;
    struct weft__incoming *incoming =
        words->number < bulk->message_count ? bulk->messages[words->number] : NULL;
    if (!incoming) {
        weft__channel_lost(channel, peer, "it has sent a part of a message that nobody waits for");
        return;
    }
    if (!incoming->arrival || incoming->generation != words->its_generation ||
        incoming->peer != peer)
        return; /* that has been dropped */
    size_t arena = channel->layout.arena_bytes;
    if (!incoming->pulled || words->chunk != incoming->come ||
        incoming->come >= chunks_of(incoming->arrival) ||
        incoming->come - incoming->done >= WEFT__BULK_WINDOW || words->where > arena ||
        arena - words->where < WEFT__BULK_CHUNK) {
        weft__channel_lost(channel, peer, "it has sent a part of a message that there is not");
        return;
    }
    incoming->where[incoming->come % WEFT__BULK_WINDOW] = words->where;
    incoming->come++;
    if (incoming->xfer)
        queue(bulk, incoming);
    else
        weft__engine_piece(channel->transport->engine, &incoming->arrival->message);
}

/* ---- reading ---- */

/* The system does not allow it: from now on in chunks. */
static void refuse_reads(struct weft__bulk *bulk, struct weft__incoming *incoming)
{
    bulk->unreadable[incoming->peer->index] = 1;
    incoming->reads = 0;
}

/* Whether what was read last is what the peer had, not another process with its number. */
static int is_true(const struct weft__incoming *incoming, size_t end)
{
    return end < incoming->arrival->message.bytes || !weft__bulk_has_ended(incoming->peer);
}

static const void *read_at(struct weft__bulk *bulk, struct weft__incoming *incoming, size_t offset,
                           size_t *bytes)
{
    if (bulk->buffered != incoming || offset < bulk->buffer_begin || offset >= bulk->buffer_end) {
        size_t rest = incoming->arrival->message.bytes - offset;
        size_t wanted = rest < WEFT__BULK_BUFFER ? rest : WEFT__BULK_BUFFER;
        bulk->buffered = NULL;
        int status = weft__bulk_read_memory(bulk, incoming->peer,
                                            incoming->arrival->announcement.where + offset,
                                            bulk->buffer, wanted);
        if (status < 0)
            refuse_reads(bulk, incoming);
        if (status != 1 || !is_true(incoming, offset + wanted))
            return NULL;
        bulk->buffered = incoming;
        bulk->buffer_begin = offset;
        bulk->buffer_end = offset + wanted;
    }
    *bytes = bulk->buffer_end - offset;
    return bulk->buffer + (offset - bulk->buffer_begin);
}

const void *weft__bulk_piece(struct weft__channel *channel, struct weft__arrival *arrival,
                             size_t offset, size_t *bytes)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    struct weft__incoming *incoming = arrival->bulk;
    if (incoming->reads && arrival->message.bytes >= bulk->reduce_from) {
        const void *piece = read_at(bulk, incoming, offset, bytes);
        if (incoming->reads)
            return piece;
    }
    return chunk_at(channel, incoming, offset, bytes);
}

/* ---- fetching ---- */

/* Copies what is there of a chunk. 0: nothing is. */
static size_t fetch_chunk(struct weft__channel *channel, struct weft__incoming *incoming)
{
    size_t bytes = 0;
    if (!weft__bulk_read(channel, incoming->arrival, 1))
        return 0;
    const char *from = chunk_at(channel, incoming, incoming->fetched, &bytes);
    if (!from)
        return 0;
    for (size_t at = 0, piece; at < bytes; at += piece) {
        piece = bytes - at;
        void *to = weft__xfer_chunk(incoming->xfer, incoming->fetched + at, &piece);
        if (piece > bytes - at)
            piece = bytes - at;
        memcpy(to, from + at, piece);
    }
    return bytes;
}

/* Reads a slice. 0: it cannot, now or ever. */
static size_t fetch_slice(struct weft__bulk *bulk, struct weft__incoming *incoming)
{
    struct weft__channel *channel = bulk->channel;
    size_t slice = channel->transport->engine->slice_bytes;
    size_t rest = incoming->arrival->message.bytes - incoming->fetched;
    size_t bytes = rest < slice ? rest : slice;
    if (!hold(channel, incoming->arrival))
        return 0;
    int status = weft__bulk_read_xfer(bulk, incoming->peer,
                                      incoming->arrival->announcement.where + incoming->fetched,
                                      incoming->xfer, incoming->fetched, bytes);
    let_go(channel, incoming->arrival);
    if (status < 0)
        refuse_reads(bulk, incoming);
    return status == 1 && is_true(incoming, incoming->fetched + bytes) ? bytes : 0;
}

/* A part of what is fetched. 1: all of it is there; 0: not yet; -1: it waits. */
static int fetch_part(struct weft__bulk *bulk, struct weft__incoming *incoming)
{
    size_t bytes = incoming->reads ? fetch_slice(bulk, incoming) : 0;
    if (bytes == 0 && !incoming->reads)
        bytes = fetch_chunk(bulk->channel, incoming);
    incoming->fetched += bytes;
    return incoming->fetched == incoming->arrival->message.bytes ? 1 : bytes > 0 ? 0 : -1;
}

int weft__bulk_fetch(struct weft__channel *channel, struct weft__arrival *arrival,
                     struct weft__xfer *xfer)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    struct weft__incoming *incoming = arrival->bulk;
    incoming->xfer = xfer;
    incoming->fetched = 0;
    int status = fetch_part(bulk, incoming);
    if (status == 0)
        queue(bulk, incoming);
    return status == 1 ? WEFT_OK : WEFT_IN_PROGRESS;
}

int weft__bulk_receive_poll(struct weft__bulk *bulk)
{
    struct weft__incoming *incoming = bulk->fetches;
    if (!incoming)
        return 0;
    int status = fetch_part(bulk, incoming);
    unqueue(bulk, incoming);
    if (status == 0)
        queue(bulk, incoming); /* behind the others */
    else if (status == 1)
        weft__engine_fetched(bulk->channel->transport->engine, incoming->xfer, WEFT_OK);
    return status >= 0;
}

void weft__bulk_receive_gone(struct weft__bulk *bulk, const struct weft__peer *peer)
{
    for (size_t i = 0; i < bulk->message_count; i++)
        if (bulk->messages[i]->arrival && bulk->messages[i]->peer == peer)
            unqueue(bulk, bulk->messages[i]);
}
