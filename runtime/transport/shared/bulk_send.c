/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sender's side of payloads that are announced.
 *
 * A send has a slot, whose state word lies in the region. Chunks are copied one a poll, for one
 * send after the other, so that what arrives is not kept waiting and all that pull get their share.
 * Some chunks are there from the beginning, and not all are filled before they are asked for: a
 * payload that is pulled needs nothing but that its receiver goes on, so who waits for a chunk gets
 * one.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/flight.h"
#include "runtime/transport/shared/bulk.h"
#include <string.h>

/* Chunks are made as they are needed, up to so many, before one is used again: by then its lines
 * have left the caches of whoever has read it, and writing to it does not wait for that core. */
#define CHUNKS 64
/* So many are there from the beginning, whatever is done with the arena. */
#define CHUNKS_LEAST 4
/* So many if that is not enough. */
#define CHUNKS_MOST 256
/* Of these, so many may be filled for who has not asked yet. */
#define PUSHED_MOST 32
/* One of so many large messages goes by chunks. */
#define LOOK_EVERY 64

/* ---- chunks ---- */

static int chunk_make(struct weft__bulk *bulk)
{
    char *chunk = weft__channel_alloc(bulk->channel, WEFT__BULK_CHUNK);
    if (!chunk)
        return 0;
    bulk->chunks[bulk->chunk_count++] = chunk;
    return 1;
}

static void chunk_give(struct weft__bulk *bulk, uint32_t chunk)
{
    bulk->free_chunks[(bulk->free_first + bulk->free_count++) % CHUNKS_MOST] = chunk;
}

/* 0: there is none. */
static int chunk_take(struct weft__bulk *bulk, uint32_t *chunk)
{
    uint32_t most = bulk->free_count > 0 ? CHUNKS : CHUNKS_MOST;
    if (bulk->chunk_count < most && chunk_make(bulk)) {
        *chunk = bulk->chunk_count - 1;
        return 1;
    }
    if (bulk->free_count == 0)
        return 0;
    *chunk = bulk->free_chunks[bulk->free_first];
    bulk->free_first = (bulk->free_first + 1) % CHUNKS_MOST;
    bulk->free_count--;
    return 1;
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
    *outgoing = (struct weft__outgoing){.generation = 1, .peer = -1};
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

/* Chunks that the receiver is done with. */
static void free_until(struct weft__bulk *bulk, struct weft__outgoing *outgoing, uint64_t end)
{
    for (; outgoing->freed < end; outgoing->freed++)
        chunk_give(bulk, outgoing->chunks[outgoing->freed % WEFT__BULK_WINDOW]);
    bulk->pushed -= outgoing->pushed && end > 0;
    outgoing->pushed &= end == 0;
    while (bulk->free_count > 0 && bulk->starved) {
        struct weft__outgoing *waits = &bulk->sends[bulk->starved - 1];
        bulk->starved = waits->next;
        queue(bulk, waits);
        if (bulk->free_count < WEFT__BULK_WINDOW)
            break;
    }
}

/* Ends a send: what still comes for it is late. */
static void give(struct weft__bulk *bulk, struct weft__outgoing *outgoing)
{
    unqueue(bulk, outgoing);
    free_until(bulk, outgoing, outgoing->filled);
    weft__bulk_give_lent(bulk, outgoing);
    bulk->cancelling -= outgoing->cancelled;
    bulk->under_way--;
    *outgoing =
        (struct weft__outgoing){.generation = (outgoing->generation + 1) & WEFT__BULK_GENERATIONS,
                                .peer = -1,
                                .next = bulk->free_send};
    bulk->free_send = slot_of(bulk, outgoing) + 1;
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
    bulk->chunks = weft__malloc(CHUNKS_MOST, sizeof *bulk->chunks);
    bulk->free_chunks = weft__malloc(CHUNKS_MOST, sizeof *bulk->free_chunks);
    if (!bulk->chunks || !bulk->free_chunks)
        return weft__error_memory("the chunks of large messages");
    while (bulk->chunk_count < CHUNKS_LEAST)
        if (chunk_make(bulk))
            chunk_give(bulk, bulk->chunk_count - 1);
        else
            return weft__error_memory("the chunks of large messages");
    return WEFT_OK;
}

void weft__bulk_send_close(struct weft__bulk *bulk)
{
    weft__free(bulk->chunks);
    weft__free(bulk->free_chunks);
    weft__free(bulk->sends);
}

/* ---- sending ---- */

static uint64_t arena_offset(const struct weft__channel *channel, const char *at)
{
    return (uint64_t)(at - weft__region_arena(&channel->layout, channel->region));
}

/* The next chunk of a send, filled; where it is in the arena. 0: there is none. `staged`: its
 * bytes, which have come from a device; or NULL. */
static int fill_next(struct weft__bulk *bulk, struct weft__outgoing *outgoing, const char *staged,
                     uint64_t *where)
{
    uint32_t *chunk = &outgoing->chunks[outgoing->filled % WEFT__BULK_WINDOW];
    const struct weft__xfer there = {.message = {.data = staged}};
    size_t offset = (size_t)outgoing->filled * WEFT__BULK_CHUNK;
    size_t rest = outgoing->bytes - offset;
    size_t bytes = rest < WEFT__BULK_CHUNK ? rest : WEFT__BULK_CHUNK;
    if (!chunk_take(bulk, chunk))
        return 0;
    weft__bulk_fill(&bulk->filling, staged ? &there : outgoing->xfer, staged ? 0 : offset,
                    bulk->chunks[*chunk], bytes);
    outgoing->filled++;
    if (staged)
        weft__stage_done(outgoing->xfer, offset, bytes);
    *where = arena_offset(bulk->channel, bulk->chunks[*chunk]);
    return 1;
}

/* Whether a chunk may be filled that nobody has asked for: one is left for those who have. */
static int may_push(struct weft__bulk *bulk)
{
    if (bulk->pushed >= PUSHED_MOST || bulk->chunk_count - bulk->free_count >= CHUNKS)
        return 0;
    if (bulk->pushed + 1 < bulk->chunk_count)
        return 1;
    if (!chunk_make(bulk))
        return 0;
    chunk_give(bulk, bulk->chunk_count - 1);
    return 1;
}

/* Whether process_vm_readv() is the better way. It goes over the same lines as the caches do, so it
 * is not where stores past them are better: the first large messages go by chunks, until that is
 * known, and later some. */
static int may_read(struct weft__bulk *bulk, size_t bytes)
{
    if (bytes < bulk->read_from || bulk->read_from == 0)
        return bytes >= bulk->read_from;
    if (bulk->filling.cost[0] == 0)
        return 0;
    if (++bulk->large % LOOK_EVERY == 0) {
        weft__bulk_fill_look(&bulk->filling);
        return 0;
    }
    return !weft__bulk_is_apart(&bulk->filling);
}

/* Says where the receiver finds the payload. */
static void describe(struct weft__bulk *bulk, struct weft__outgoing *outgoing,
                     struct weft__announcement *announced)
{
    const struct weft__channel *channel = bulk->channel;
    const struct weft__message *message = &outgoing->xfer->message;
    uintptr_t arena = (uintptr_t)weft__region_arena(&channel->layout, channel->region);
    uintptr_t at = (uintptr_t)message->data;
    size_t room = channel->layout.arena_bytes;
    int to_itself = outgoing->peer == channel->rank;
    announced->bytes = message->bytes;
    if (message->list == WEFT__DEVICE) {
        weft__bulk_announce_lent(bulk, outgoing, announced);
    } else if (!message->list && at >= arena && at - arena < room &&
               message->bytes <= room - (at - arena)) {
        announced->how = WEFT__BULK_IN_ARENA;
        announced->where = at - arena;
    } else if (!message->list && (to_itself || may_read(bulk, message->bytes))) {
        announced->how = WEFT__BULK_AT_ADDRESS;
        announced->where = at;
    } else {
        announced->how = WEFT__BULK_IN_CHUNKS;
        if (message->bytes == 0 || message->list == WEFT__STAGED || !may_push(bulk) ||
            !fill_next(bulk, outgoing, NULL, &announced->where))
            return;
        announced->filled = 1;
        outgoing->pushed = 1;
        bulk->pushed++;
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
    outgoing->xfer = xfer;
    outgoing->peer = peer->index;
    outgoing->bytes = message->bytes;
    bulk->under_way++;
    channel->bulk_busy = 1;
    describe(bulk, outgoing, &announced);
    memcpy(line.payload, &announced, sizeof announced);
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
    xfer->handle = 0;
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

static int change(const struct weft__bulk *bulk, const struct weft__outgoing *outgoing, int from,
                  int to)
{
    uint32_t expected = WEFT__BULK_STATE(outgoing->generation, from);
    /* Acquire: pairs with the release of who has read. */
    return atomic_compare_exchange_strong_explicit(
        state_of(bulk, slot_of(bulk, outgoing)), &expected,
        WEFT__BULK_STATE(outgoing->generation, to), memory_order_acq_rel, memory_order_acquire);
}

/* Whether nobody reads the payload, now or later. */
static int withdraw(const struct weft__bulk *bulk, const struct weft__outgoing *outgoing)
{
    uint32_t reading = WEFT__BULK_STATE(outgoing->generation, WEFT__BULK_READING);
    if (change(bulk, outgoing, WEFT__BULK_POSTED, WEFT__BULK_GONE) ||
        change(bulk, outgoing, WEFT__BULK_TAKEN, WEFT__BULK_WITHDRAWN))
        return 1;
    uint32_t state =
        atomic_load_explicit(state_of(bulk, slot_of(bulk, outgoing)), memory_order_acquire);
    if (state != reading) /* unless it was taken or let go in between */
        return state != WEFT__BULK_STATE(outgoing->generation, WEFT__BULK_TAKEN);
    return weft__bulk_has_ended(&bulk->channel->peers[outgoing->peer]);
}

/* A send that has been withdrawn: what its receiver still reads stays, and its slot if that is
 * about to give it back. */
static void let_go(struct weft__bulk *bulk, struct weft__outgoing *outgoing)
{
    uint32_t gone = WEFT__BULK_STATE(outgoing->generation, WEFT__BULK_GONE);
    _Atomic uint32_t *state = state_of(bulk, slot_of(bulk, outgoing));
    unqueue(bulk, outgoing);
    outgoing->xfer = NULL;
    if (atomic_load_explicit(state, memory_order_relaxed) == gone ||
        (outgoing->filled == outgoing->freed &&
         change(bulk, outgoing, WEFT__BULK_WITHDRAWN, WEFT__BULK_GONE)))
        give(bulk, outgoing);
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
        unqueue(bulk, outgoing);
        bulk->cancelling += !outgoing->cancelled;
        outgoing->cancelled = 1;
        weft__bulk_settle(bulk);
        return WEFT_IN_PROGRESS;
    }
    let_go(bulk, outgoing);
    weft__bulk_settle(bulk);
    return WEFT_OK;
}

static int end_cancelled(struct weft__bulk *bulk)
{
    int count = 0;
    for (size_t i = 0; i < bulk->send_count && bulk->cancelling > 0; i++) {
        struct weft__outgoing *outgoing = &bulk->sends[i];
        struct weft__xfer *xfer = outgoing->xfer;
        if (!outgoing->cancelled || !withdraw(bulk, outgoing))
            continue;
        outgoing->cancelled = 0;
        bulk->cancelling--;
        let_go(bulk, outgoing);
        weft__engine_sent(bulk->channel->transport->engine, xfer, WEFT_ERR_CANCELLED);
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

/* ---- what comes back ---- */

/* One that is on the stack. What it says may be anything. */
static int come_back(struct weft__bulk *bulk, struct weft__outgoing *outgoing)
{
    static const int outcomes[WEFT__BULK_OUTCOMES] = {WEFT_OK, WEFT_ERR_PEER, WEFT_ERR_CANCELLED};
    /* Acquire: who has read the payload has put it there afterwards. */
    uint32_t state =
        atomic_load_explicit(state_of(bulk, slot_of(bulk, outgoing)), memory_order_acquire);
    uint32_t outcome = state - WEFT__BULK_STATE(outgoing->generation, WEFT__BULK_BACK);
    if (outgoing->peer < 0 || outcome >= WEFT__BULK_OUTCOMES)
        return 0;
    finish(bulk, outgoing, outcomes[outcome]);
    return 1;
}

/* Somebody has written over the stack, and nobody knows who. */
static void lose_all(struct weft__channel *channel)
{
    for (int i = 0; i < channel->size; i++)
        if (i != channel->rank)
            weft__channel_lost(channel, &channel->peers[i],
                               "it or another rank has written where it must not");
}

int weft__bulk_send_returned(struct weft__bulk *bulk)
{
    struct weft__channel *channel = bulk->channel;
    _Atomic uint32_t *returns = &channel->region->returns;
    if (atomic_load_explicit(returns, memory_order_relaxed) == 0)
        return 0;
    int count = 0;
    size_t steps = 0;
    /* Acquire: pairs with the push. */
    uint32_t slot = atomic_exchange_explicit(returns, 0, memory_order_acquire);
    while (slot != 0) {
        if (slot > bulk->send_count || steps++ > bulk->send_count) {
            lose_all(channel);
            break;
        }
        const struct weft__shared_slot *shared =
            weft__region_slot(&channel->layout, channel->region, slot - 1);
        uint32_t next = atomic_load_explicit(&shared->next, memory_order_relaxed);
        count += come_back(bulk, &bulk->sends[slot - 1]);
        slot = next;
    }
    return count;
}

/* Nothing more comes back from it: what is on the stack first, since its slots are used again. */
void weft__bulk_send_gone(struct weft__bulk *bulk, const struct weft__peer *peer)
{
    weft__bulk_send_returned(bulk);
    for (size_t i = 0; i < bulk->send_count; i++)
        if (bulk->sends[i].peer == peer->index) {
            atomic_store_explicit(state_of(bulk, i),
                                  WEFT__BULK_STATE(bulk->sends[i].generation, WEFT__BULK_GONE),
                                  memory_order_relaxed);
            finish(bulk, &bulk->sends[i], WEFT_ERR_PEER);
        }
}

/* ---- what is pulled ---- */

/* Whether the next chunk of a send that is pulled may be filled. */
static int wants_chunk(const struct weft__outgoing *outgoing)
{
    return outgoing->xfer && !outgoing->cancelled &&
           outgoing->filled - outgoing->freed < WEFT__BULK_WINDOW &&
           outgoing->filled * WEFT__BULK_CHUNK < outgoing->bytes;
}

/* The next chunk of the send whose turn it is. */
static int fill_turn(struct weft__bulk *bulk)
{
    struct weft__channel *channel = bulk->channel;
    struct weft__outgoing *outgoing = &bulk->sends[bulk->fill_first - 1];
    struct weft__bulk_words words = {.slot = slot_of(bulk, outgoing),
                                     .generation = outgoing->generation,
                                     .number = outgoing->number,
                                     .its_generation = outgoing->its_generation,
                                     .chunk = outgoing->filled};
    const char *staged = NULL;
    unqueue(bulk, outgoing);
    if (outgoing->xfer->message.list == WEFT__STAGED) {
        size_t bytes;
        staged =
            weft__stage_at(outgoing->xfer, (size_t)outgoing->filled * WEFT__BULK_CHUNK, &bytes);
        if (!staged) {
            weft__channel_again(channel); /* the engine brings it, and tells by `staged` */
            return 0;
        }
    }
    if (!fill_next(bulk, outgoing, staged, &words.where)) {
        outgoing->next = bulk->starved;
        outgoing->queued = 1;
        bulk->starved = words.slot + 1;
        return 0;
    }
    if (wants_chunk(outgoing))
        queue(bulk, outgoing);
    weft__bulk_tell(channel, &channel->peers[outgoing->peer], WEFT__LINE_CHUNK, &words);
    return 1;
}

int weft__bulk_send_poll(struct weft__bulk *bulk)
{
    int count = weft__bulk_send_returned(bulk);
    if (bulk->fill_first)
        count += fill_turn(bulk);
    if (bulk->cancelling > 0)
        count += end_cancelled(bulk);
    return count;
}

void weft__bulk_staged(struct weft__channel *channel, const struct weft__xfer *xfer)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    struct weft__outgoing *outgoing = sent(bulk, xfer);
    if (outgoing && outgoing->pulled && !outgoing->queued && wants_chunk(outgoing))
        queue(bulk, outgoing);
    weft__bulk_settle(bulk);
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
    bulk->pushed -= outgoing->pushed;
    outgoing->pushed = 0;
    outgoing->number = words->number;
    outgoing->its_generation = words->its_generation;
    if (outgoing->lent && outgoing->xfer) {
        weft__bulk_give_lent(bulk, outgoing);
        weft__stage_switch(outgoing->xfer);
    }
    if (wants_chunk(outgoing))
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
    free_until(bulk, outgoing, words->chunk);
    if (!outgoing->queued && wants_chunk(outgoing))
        queue(bulk, outgoing);
}

void weft__bulk_send_line(struct weft__bulk *bulk, struct weft__peer *peer, int kind,
                          const struct weft__bulk_words *words)
{
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
    else
        next(bulk, peer, outgoing, words);
}
