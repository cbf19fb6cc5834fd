/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings: one for each ordered pair of members, in the receiver's region, written by its sender
 * alone.
 *
 *   lines      o o o o X X X X o o o o      X: written, not taken
 *                      ^in_taken
 *                              ^out_position
 *
 *   sender                                receiver
 *     payload that is longer than a line    looks at one word: the sequence of the next line
 *     the line, its sequence last --------> copies the line, checks it
 *     a bit of the summary                  hands its message to the engine
 *     the bell, if the receiver sleeps      what the engine keeps is copied: so the ring is taken
 *                                           in order, whatever the engine waits for
 *     credits.lines, credits.payload <----- has taken so much: told for a quarter of a ring at a
 *                                           time, or a sender that looks each time it has no room
 *                                           would have the line of every message move twice
 *     credits.consumed <------------------- the engine is done with so much
 *
 * A receiver takes no more than it can use: it stops behind a message that ends a run, as the next
 * one will likely be of the version that is started next, and behind one that nobody waits for yet.
 * What is in the ring has been copied once; what the engine keeps is copied again. But a failure is
 * heard at once, whatever stands before it: its sender counts it in the receiver's region.
 *
 * Where there is no room, messages wait at the sender's. A sender that has to wait writes a WANT
 * into the last line, and the receiver, having taken that, rings the sender's bell: so nothing has
 * to be asked for while there is room.
 */
#include "runtime/engine/engine.h"
#include "runtime/transport/shared/inside.h"
#include <string.h>

/* Kept by all for a WANT. Sends keep a quarter of the ring: what goes without a run that waits for
 * it (signals, failures, answers) then finds room, unless its receiver has not polled for long. A
 * rank whose runs have ended drives no more, where no helper does, and what still waits at it waits
 * until it makes progress, or destroys its context. */
#define LINES_KEPT               1
#define LINES_SENDS_KEEP(layout) ((layout)->lines / 4)
/* A ring is given back in so many parts, unless its sender has asked. */
#define CREDIT_PARTS 4
/* Of a payload, fetched while its message is matched; what follows, the processor sees coming. */
#define EXPECTED_BYTES 512
/* No status is so far below zero. */
#define STATUS_MOST 1000

/* ---- the sender's side ---- */

/* Lines for which there is room, as last seen. */
static inline uint32_t room(const struct weft__peer *peer)
{
    return peer->out_limit - peer->out_position;
}

/* Looks at what the peer has taken. 0: it has written what cannot be. */
static WEFT__NOINLINE int look_at_credits(struct weft__channel *channel, struct weft__peer *peer)
{
    /* Acquire: what was read there has been read; pairs with weft__ring_taken(). Sequentially
     * consistent, for a sleeper's last look. */
    uint32_t taken = atomic_load_explicit(&peer->out_credits->lines, memory_order_seq_cst);
    uint64_t payload = atomic_load_explicit(&peer->out_credits->payload, memory_order_acquire);
    if (peer->out_position - taken > channel->layout.lines ||
        peer->out_payload_position - payload > channel->layout.payload_bytes) {
        weft__channel_lost(channel, peer, "it has said to have taken what was not sent");
        return 0;
    }
    if (peer->wanting && (int32_t)(taken - peer->want_at) > 0)
        peer->wanting = 0;
    atomic_store_explicit(&peer->out_taken, taken, memory_order_relaxed);
    peer->out_limit = taken + channel->layout.lines;
    peer->out_payload_limit = payload + channel->layout.payload_bytes;
    return 1;
}

/* The last store of a line, and whoever waits for it. */
static inline void publish(struct weft__channel *channel, struct weft__peer *peer,
                           struct weft__line *line)
{
    struct weft__shared_region *region = peer->region;
    /* Release: pairs with the look of the receiver. Sequentially consistent, for the summary and
     * the bell: either the receiver sees the line, or it is seen to sleep. */
    atomic_store_explicit(&line->sequence, weft__line_sequence(peer->out_position++),
                          memory_order_seq_cst);
    if (channel->looked_at == 0) {
        _Atomic uint64_t *word = &region->summary[channel->rank / 64];
        uint64_t bit = UINT64_C(1) << channel->rank % 64;
        if (!(atomic_load_explicit(word, memory_order_seq_cst) & bit))
            atomic_fetch_or_explicit(word, bit, memory_order_seq_cst);
    }
    if (atomic_load_explicit(&region->bell.sleeper, memory_order_seq_cst) != 0)
        weft__bell_ring(&region->bell);
}

static inline struct weft__line *next_line(const struct weft__channel *channel,
                                           const struct weft__peer *peer)
{
    return &peer->out[peer->out_position & channel->line_mask];
}

/* Where `bytes` of payload lie that come after `position`: contiguous, so maybe at the beginning of
 * the next turn. */
static inline uint64_t payload_at(const struct weft__layout *layout, uint64_t position,
                                  uint64_t bytes)
{
    uint64_t in_turn = position & (layout->payload_bytes - 1);
    return in_turn + bytes > layout->payload_bytes ? position - in_turn + layout->payload_bytes
                                                   : position;
}

static inline uint64_t in_lines(uint64_t bytes)
{
    return (bytes + WEFT__LINE_BYTES - 1) & ~(uint64_t)(WEFT__LINE_BYTES - 1);
}

static void copy_payload(char *to, size_t bytes, const void *data, const struct weft__xfer *xfer)
{
    for (size_t at = 0, chunk; at < bytes; at += chunk) {
        chunk = bytes - at;
        const char *from = xfer ? weft__xfer_chunk(xfer, at, &chunk) : (const char *)data + at;
        if (chunk > bytes - at)
            chunk = bytes - at;
        memcpy(to + at, from, chunk);
    }
}

/* 1: it is in the ring; 0: no room; negative: the peer is lost. */
static WEFT__NOINLINE int put_payload(struct weft__channel *channel, struct weft__peer *peer,
                                      size_t bytes, const void *data, const struct weft__xfer *xfer)
{
    const struct weft__layout *layout = &channel->layout;
    uint64_t at = payload_at(layout, peer->out_payload_position, bytes);
    uint64_t end = at + in_lines(bytes);
    if (end > peer->out_payload_limit) {
        if (!look_at_credits(channel, peer))
            return WEFT_ERR_PEER;
        if (end > peer->out_payload_limit)
            return 0;
    }
    copy_payload(peer->out_payload + (at & (layout->payload_bytes - 1)), bytes, data, xfer);
    peer->out_payload_position = end;
    return 1;
}

static inline int has_room(struct weft__channel *channel, struct weft__peer *peer, uint32_t kept)
{
    return room(peer) > kept || (look_at_credits(channel, peer) && room(peer) > kept);
}

int weft__ring_may_send(struct weft__channel *channel, struct weft__peer *peer)
{
    return has_room(channel, peer, LINES_SENDS_KEEP(&channel->layout));
}

int weft__ring_put(struct weft__channel *channel, struct weft__peer *peer,
                   const struct weft__line *given, size_t bytes, const void *data,
                   const struct weft__xfer *xfer)
{
    if (!has_room(channel, peer, LINES_KEPT))
        return peer->state == WEFT__PEER_DEAD ? WEFT_ERR_PEER : 0;
    int status = bytes > WEFT__LINE_PAYLOAD ? put_payload(channel, peer, bytes, data, xfer) : 1;
    if (status != 1)
        return status;
    struct weft__line *line = next_line(channel, peer);
    line->tag = given->tag;
    line->object = given->object;
    line->version = given->version;
    line->bytes = given->bytes;
    line->part = given->part;
    line->turn = given->turn;
    line->kind = given->kind;
    if (bytes > 0 && bytes <= WEFT__LINE_PAYLOAD)
        copy_payload((char *)line->payload, bytes, data, xfer);
    publish(channel, peer, line);
    /* Release: the line is there; pairs with weft__ring_take(). */
    if (given->kind < WEFT__LINE_OWN && weft__is_urgent(given->kind))
        atomic_fetch_add_explicit(&peer->region->urgent, 1, memory_order_release);
    return 1;
}

void weft__ring_want(struct weft__channel *channel, struct weft__peer *peer)
{
    if (peer->wanting || room(peer) == 0)
        return;
    struct weft__line *line = next_line(channel, peer);
    line->kind = WEFT__LINE_WANT;
    peer->wanting = 1;
    peer->want_at = peer->out_position;
    publish(channel, peer, line);
}

int weft__ring_may(struct weft__channel *channel, struct weft__peer *peer, size_t cost)
{
    if (peer->out_cost + cost <= peer->out_cost_limit)
        return 1;
    /* A number that cannot be lets us send more than the peer has asked for: its own affair. */
    peer->out_cost_limit =
        atomic_load_explicit(&peer->out_credits->consumed, memory_order_relaxed) +
        channel->layout.ahead_bytes;
    return peer->out_cost + cost <= peer->out_cost_limit;
}

int weft__ring_moved(const struct weft__peer *peer)
{
    return atomic_load_explicit(&peer->out_credits->lines, memory_order_seq_cst) !=
           atomic_load_explicit(&peer->out_taken, memory_order_relaxed);
}

/* ---- the receiver's side ---- */

/* Whether a peer's next line is there. */
static inline int has_line(const struct weft__channel *channel, const struct weft__peer *peer,
                           uint32_t position)
{
    /* Acquire: pairs with publish(). Sequentially consistent, as the last look of a thread that has
     * registered on the bell. */
    return atomic_load_explicit(&peer->in[position & channel->line_mask].sequence,
                                memory_order_seq_cst) == weft__line_sequence(position);
}

/* The peer may write over what we have taken. */
static void give_credit(struct weft__peer *peer, memory_order order)
{
    struct weft__credits *credits = peer->in_credits;
    uint32_t taken = atomic_load_explicit(&peer->in_taken, memory_order_relaxed);
    peer->in_lines_told = taken;
    peer->in_payload_told = peer->in_payload_taken;
    atomic_store_explicit(&credits->payload, peer->in_payload_taken, memory_order_release);
    /* Release: what was taken has been read; pairs with look_at_credits(). */
    atomic_store_explicit(&credits->lines, taken, order);
}

/* So much that the peer should hear of it, though it has not asked. */
static inline void give_much_credit(const struct weft__channel *channel, struct weft__peer *peer)
{
    const struct weft__layout *layout = &channel->layout;
    uint32_t taken = atomic_load_explicit(&peer->in_taken, memory_order_relaxed);
    if (taken - peer->in_lines_told >= layout->lines / CREDIT_PARTS ||
        peer->in_payload_taken - peer->in_payload_told >= layout->payload_bytes / CREDIT_PARTS)
        give_credit(peer, memory_order_release);
}

/* What is wrong with a message; NULL: nothing that a transport can know. */
static const char *check_line(const struct weft__channel *channel, const struct weft__line *line)
{
    uint32_t ranks = (uint32_t)channel->transport->size;
    int failure =
        line->kind == WEFT__FAIL || line->kind == WEFT__NEWS || line->kind == WEFT__GIVEN_UP;
    if (line->kind >= WEFT__RECEIVE)
        return "a message is of no kind";
    if (line->kind == WEFT__LEFT && !line->part)
        return "no part has been left";
    if (line->kind == WEFT__DATA)
        return line->bytes > channel->layout.eager_bytes ? "a message is too long" : NULL;
    if (weft__has_payload(line->kind) && line->bytes > WEFT__NEWS_BYTES)
        return "a text is too long";
    if (failure && line->tag > STATUS_MOST)
        return "a failure has no status";
    if ((line->kind == WEFT__FAIL && line->bytes >= ranks) ||
        (line->kind == WEFT__NEWS && line->version >= ranks) ||
        (line->kind == WEFT__BEREFT && line->tag >= ranks))
        return "a failure is of no rank";
    return NULL;
}

void weft__arrival_fill(const struct weft__channel *channel, const struct weft__peer *peer,
                        struct weft__arrival *arrival, const struct weft__line *line)
{
    struct weft__message *message = &arrival->message;
    message->next = NULL;
    message->data = NULL;
    message->bytes = line->bytes;
    message->version = line->version;
    message->object = line->object;
    message->tag = line->tag;
    message->from = peer->rank;
    message->to = channel->transport->rank;
    message->own = peer->index;
    message->kind = line->kind;
    message->list = 0;
    message->turn = line->turn;
    message->part = line->part;
}

/* The engine has kept a message whose payload is in the ring: the ring is needed. */
static WEFT__NOINLINE void keep(struct weft__arrival *arrival)
{
    struct weft__message *message = &arrival->message;
    memcpy(arrival->payload, message->data, message->bytes);
    message->data = arrival->payload;
}

/* Payload that will be read soon, and lies in the sender's cache. */
static inline void expect(const char *payload, size_t bytes)
{
#if defined(__GNUC__)
    for (size_t at = 0; at < bytes && at < EXPECTED_BYTES; at += WEFT__LINE_BYTES)
        __builtin_prefetch(payload + at);
#endif
}

/* A message: its line is a private copy. 0: there is no memory for it now. */
static int take_message(struct weft__channel *channel, struct weft__peer *peer, uint32_t position,
                        const struct weft__line *line)
{
    const char *wrong = check_line(channel, line);
    if (wrong) {
        weft__channel_lost(channel, peer, wrong);
        return 1;
    }
    size_t bytes = weft__has_payload(line->kind) ? line->bytes : 0;
    const struct weft__layout *layout = &channel->layout;
    uint64_t at = payload_at(layout, peer->in_payload_taken, bytes);
    const char *payload = peer->in_payload + (at & (layout->payload_bytes - 1));
    if (bytes > WEFT__LINE_PAYLOAD)
        expect(payload, bytes);
    struct weft__arrival *arrival = weft__arrival_take(channel, bytes);
    if (!arrival)
        return 0;
    weft__arrival_fill(channel, peer, arrival, line);
    struct weft__message *message = &arrival->message;
    message->flags = WEFT__OF_CHANNEL | WEFT__CH_EAGER;
    arrival->cost = line->kind == WEFT__DATA ? WEFT__AHEAD_COST(bytes) : 0;
    atomic_store_explicit(&peer->in_taken, position + 1, memory_order_relaxed);
    if (bytes <= WEFT__LINE_PAYLOAD) {
        memcpy(arrival->payload, line->payload, WEFT__LINE_PAYLOAD);
        if (bytes > 0)
            message->data = arrival->payload;
        weft__channel_deliver(channel, arrival);
        return 1;
    }
    message->data = payload;
    channel->delivering = message;
    weft__channel_deliver(channel, arrival);
    if (channel->delivering)
        keep(arrival);
    channel->delivering = NULL;
    peer->in_payload_taken = at + in_lines(bytes);
    return 1;
}

/* What channels say to each other. 0: there is no memory for it now. */
static WEFT__NOINLINE int take_own(struct weft__channel *channel, struct weft__peer *peer,
                                   uint32_t position, const struct weft__line *line)
{
    if (line->kind >= WEFT__LINE_BULK) {
        atomic_store_explicit(&peer->in_taken, position + 1, memory_order_relaxed);
        if (weft__bulk_line(channel, peer, line) != WEFT_ERR_MEMORY)
            return 1;
        atomic_store_explicit(&peer->in_taken, position, memory_order_relaxed);
        return 0;
    }
    atomic_store_explicit(&peer->in_taken, position + 1, memory_order_relaxed);
    if (line->kind == WEFT__LINE_WANT) {
        /* Sequentially consistent: pairs with look_at_credits() of a sender about to sleep. */
        give_credit(peer, memory_order_seq_cst);
        weft__bell_ring(&peer->region->bell);
    } else {
        weft__channel_parted(channel, peer, line->kind);
    }
    return 1;
}

/* Runs that go on: fewer of them, and one has ended. Nobody's while the channel opens or closes. */
static inline uint32_t active_runs(const struct weft__channel *channel)
{
    return channel->closing ? 0 : channel->transport->engine->active_count;
}

/* Takes the lines that a peer has written, at most one turn of the ring. */
static int take_lines(struct weft__channel *channel, struct weft__peer *peer)
{
    uint32_t position = atomic_load_explicit(&peer->in_taken, memory_order_relaxed);
    uint32_t end = position + channel->layout.lines, active = active_runs(channel);
    int count = 0, enough = 0, urgent = channel->taking_urgent;
    for (; position != end && !enough && peer->state < WEFT__PEER_CLOSED &&
           has_line(channel, peer, position);
         position++, count++) {
        /* Copied, and no more looked at from here on, whatever the compiler thinks of it. */
        struct weft__line line;
        uint64_t consumed = peer->in_consumed;
        memcpy(&line, &peer->in[position & channel->line_mask], sizeof line);
        atomic_signal_fence(memory_order_seq_cst);
        if (line.kind < WEFT__LINE_OWN ? !take_message(channel, peer, position, &line)
                                       : !take_own(channel, peer, position, &line)) {
            weft__channel_again(channel);
            break;
        }
        enough = !urgent && (active_runs(channel) < active ||
                             (line.kind == WEFT__DATA && peer->in_consumed == consumed));
    }
    give_much_credit(channel, peer);
    return count;
}

int weft__channel_drain(struct weft__channel *channel, struct weft__peer *peer)
{
    int count = 0, more;
    do
        count += more = take_lines(channel, peer);
    while (more > 0);
    return count;
}

int weft__ring_has(const struct weft__channel *channel, const struct weft__peer *peer)
{
    return peer->state < WEFT__PEER_CLOSED &&
           has_line(channel, peer, atomic_load_explicit(&peer->in_taken, memory_order_relaxed));
}

/* Where there are many peers, those that say in the summary that they have written. */
static WEFT__NOINLINE int take_summarised(struct weft__channel *channel)
{
    int count = 0;
    for (int word = 0; word * 64 < channel->size; word++) {
        _Atomic uint64_t *summary = &channel->region->summary[word];
        if (atomic_load_explicit(summary, memory_order_seq_cst) == 0)
            continue;
        /* Before the lines: who writes a line after we have looked sets its bit again. */
        uint64_t bits = atomic_exchange_explicit(summary, 0, memory_order_seq_cst);
        for (; bits != 0; bits &= bits - 1) {
            int index = word * 64 + __builtin_ctzll(bits);
            if (index >= channel->size)
                break;
            struct weft__peer *peer = &channel->peers[index];
            count += take_lines(channel, peer);
            if (weft__ring_has(channel, peer))
                atomic_fetch_or_explicit(summary, UINT64_C(1) << index % 64, memory_order_seq_cst);
        }
    }
    return count;
}

int weft__ring_pending(const struct weft__channel *channel)
{
    for (int word = 0; channel->looked_at == 0 && word * 64 < channel->size; word++)
        if (atomic_load_explicit(&channel->region->summary[word], memory_order_seq_cst) != 0)
            return 1;
    for (int i = 0; i < channel->looked_at; i++)
        if (weft__ring_has(channel, &channel->peers[i]))
            return 1;
    return 0;
}

/* All lines that are there. */
static WEFT__NOINLINE int take_urgent(struct weft__channel *channel, uint32_t urgent)
{
    int count = 0;
    channel->urgent_seen = urgent;
    channel->taking_urgent = 1;
    for (int i = 0; i < channel->size; i++)
        count += take_lines(channel, &channel->peers[i]);
    channel->taking_urgent = 0;
    return count;
}

int weft__ring_take(struct weft__channel *channel)
{
    /* Acquire: pairs with weft__ring_put(). */
    uint32_t urgent = atomic_load_explicit(&channel->region->urgent, memory_order_acquire);
    int count = urgent != channel->urgent_seen ? take_urgent(channel, urgent) : 0;
    if (channel->looked_at == 0)
        return count + take_summarised(channel);
    for (int i = 0; i < channel->looked_at; i++) {
        struct weft__peer *peer = &channel->peers[i];
        if (has_line(channel, peer, atomic_load_explicit(&peer->in_taken, memory_order_relaxed)))
            count += take_lines(channel, peer);
    }
    return count;
}
