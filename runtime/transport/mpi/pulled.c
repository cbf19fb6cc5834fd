/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payloads that go in segments, as their receiver asks for them: where one of both sides has them
 * on a device, and a few segments of pinned memory to bring them there. Whoever asks has memory for
 * the answer, so what is sent is received, and nothing that waits for a segment waits for ever.
 *
 *   sender                                       receiver
 *
 *   PULLED: so long, in such segments ---------> the engine has the message
 *                          <-------------------- WANT 0, WANT 1: a receive is posted for each
 *   segment 0, segment 1 ----------------------> weft__engine_pulled(), or more of what is fetched
 *                          <-------------------- WANT 2 ...
 *   all have been sent: weft__engine_sent()
 *
 *                          <-------------------- DROP: no more is wanted, or ever was
 *   GONE: so much has been sent, no more is ---> posted receives of the rest are cancelled; DROP
 *
 * Segments of a message have one tag, and go in the order of their places, in which receives for
 * them are posted; packets that ask for them may overtake each other. Of a send that was given back
 * the record stays until its receiver has dropped it, so that it gets its answer.
 */
#include "runtime/base/alloc.h"
#include "runtime/engine/engine.h"
#include "runtime/transport/mpi/mpi_transport.h"

/* The size of segments stands in units of WEFT__STAGE_UNIT above the sequence number. */
enum { SEGMENT_SHIFT = 48 };

static struct weft__mpi_pulled *make(struct weft__mpi *mpi)
{
    struct weft__mpi_pulled *pulled = mpi->free_pulled;

    if (pulled)
        mpi->free_pulled = pulled->next;
    else
        pulled = weft__malloc(1, sizeof *pulled);
    if (pulled)
        *pulled = (struct weft__mpi_pulled){.next = NULL};
    return pulled;
}

static void put(struct weft__mpi *mpi, struct weft__mpi_pulled *pulled)
{
    pulled->next = mpi->free_pulled;
    mpi->free_pulled = pulled;
}

/* What both sides say of a message. Where there is no memory for it the other one waits for ever:
 * the transport has failed. */
static void tell(struct weft__mpi *mpi, int to, int kind, uint64_t sequence, uint64_t offset,
                 uint64_t bytes)
{
    struct weft__packet *packet = weft__mpi_packet_get(mpi, 0);
    int status;

    if (!packet) {
        mpi->failed = weft__error_memory("an answer of the MPI transport");
        return;
    }
    packet->wire = (struct weft__wire){
        .version = offset, .bytes = bytes, .sequence = sequence, .kind = (uint8_t)kind};
    status = weft__mpi_packet_send(mpi, packet, 0, to);
    if (status < 0)
        mpi->failed = status;
}

static struct weft__mpi_part *free_part(struct weft__mpi_pulled *pulled)
{
    struct weft__mpi_part *part = pulled->parts;

    while (part->of)
        part++;
    return part;
}

static void begin_part(struct weft__mpi *mpi, struct weft__mpi_pulled *pulled, size_t offset,
                       size_t bytes, MPI_Request request)
{
    struct weft__mpi_part *part = free_part(pulled);

    *part = (struct weft__mpi_part){.of = pulled, .offset = offset, .bytes = bytes};
    pulled->under_way++;
    pulled->begun = offset + bytes;
    weft__mpi_active_add(mpi, request,
                         (struct weft__mpi_owner){.use = WEFT__MPI_PART, .part = part});
}

/* ---- the sender ---- */

/* Whether a send goes so: the receiver of what is large may have it on a device, where this rank
 * has some as well. */
int weft__mpi_is_pulled(const struct weft__xfer *xfer)
{
    size_t segment = weft__stage_segment(xfer);

    return xfer->message.list == WEFT__STAGED ||
           (xfer->message.list != WEFT__DEVICE && segment > 0 && xfer->message.bytes > segment);
}

int weft__mpi_lend(struct weft__mpi *mpi, struct weft__xfer *xfer, struct weft__packet *packet,
                   int tag)
{
    struct weft__mpi_pulled *pulled = make(mpi);
    uint64_t units = weft__stage_segment(xfer) / WEFT__STAGE_UNIT;

    if (!pulled)
        return weft__error_memory("a message of the MPI transport");
    pulled->xfer = xfer;
    pulled->sequence = packet->wire.sequence;
    pulled->bytes = xfer->message.bytes;
    pulled->peer = xfer->message.to;
    pulled->tag = tag;
    packet->wire.kind = WEFT__WIRE_PULLED;
    packet->wire.sequence |= units << SEGMENT_SHIFT;
    xfer->message.flags = WEFT__MPI_LENT;
    xfer->handle = (uintptr_t)pulled;
    pulled->next = mpi->lent;
    mpi->lent = pulled;
    return WEFT_OK;
}

void weft__mpi_unlend(struct weft__mpi *mpi, struct weft__mpi_pulled *pulled)
{
    struct weft__mpi_pulled **link = &mpi->lent;

    while (*link != pulled)
        link = &(*link)->next;
    *link = pulled->next;
    put(mpi, pulled);
}

static void finish(struct weft__mpi *mpi, struct weft__mpi_pulled *pulled)
{
    struct weft__xfer *xfer = pulled->xfer;
    int stopped = pulled->stopped;

    mpi->stopped -= stopped && xfer;
    weft__mpi_unlend(mpi, pulled);
    if (xfer && !mpi->closing)
        weft__engine_sent(mpi->base.engine, xfer, stopped ? WEFT_ERR_CANCELLED : WEFT_OK);
}

static void tell_gone(struct weft__mpi *mpi, struct weft__mpi_pulled *pulled)
{
    if (pulled->gone_told)
        return;
    pulled->gone_told = 1;
    pulled->wanted_count = 0;
    tell(mpi, pulled->peer, WEFT__WIRE_GONE, pulled->sequence, 0, pulled->begun);
}

/* Of what is wanted the next part; NULL: that is not. */
static struct weft__mpi_want *next_wanted(struct weft__mpi_pulled *pulled)
{
    for (unsigned i = 0; i < pulled->wanted_count; i++)
        if (pulled->wanted[i].offset == pulled->begun)
            return &pulled->wanted[i];
    return NULL;
}

/* Sends what is wanted, as far as it is there. */
static int serve(struct weft__mpi *mpi, struct weft__mpi_pulled *pulled)
{
    int staged = pulled->xfer->message.list == WEFT__STAGED;
    struct weft__mpi_want *want;
    int status = WEFT_OK;

    while (status == WEFT_OK && pulled->under_way < WEFT__MPI_ASKED &&
           (want = next_wanted(pulled))) {
        size_t offset = want->offset, bytes = want->bytes, there;
        struct weft__xfer simple = {.message = {.bytes = bytes, .to = pulled->peer}};
        MPI_Request request;

        if (staged)
            simple.message.data = weft__stage_at(pulled->xfer, offset, &there);
        if (staged && !simple.message.data) {
            mpi->base.engine->did++; /* the engine brings it */
            break;
        }
        status = weft__mpi_active_reserve(mpi, 1);
        if (status == WEFT_OK)
            status = weft__mpi_payload_send(mpi, staged ? &simple : pulled->xfer,
                                            staged ? 0 : offset, bytes, pulled->tag, &request);
        if (status < 0)
            break;
        *want = pulled->wanted[--pulled->wanted_count];
        begin_part(mpi, pulled, offset, bytes, request);
    }
    return status;
}

void weft__mpi_staged(struct weft__transport *transport, struct weft__xfer *xfer)
{
    struct weft__mpi *mpi = weft__mpi_of(transport);
    int status = WEFT_OK;

    if (xfer->message.flags == WEFT__MPI_LENT)
        status = serve(mpi, (struct weft__mpi_pulled *)(uintptr_t)xfer->handle);
    if (status < 0)
        mpi->failed = status;
}

static struct weft__mpi_pulled *find_lent(const struct weft__mpi *mpi, int peer, uint64_t sequence)
{
    struct weft__mpi_pulled *pulled = mpi->lent;

    while (pulled && (pulled->peer != peer || pulled->sequence != sequence))
        pulled = pulled->next;
    return pulled;
}

static void wanted(struct weft__mpi *mpi, struct weft__mpi_pulled *pulled,
                   const struct weft__wire *wire)
{
    int status;

    if (pulled->stopped) {
        if (!pulled->xfer)
            tell_gone(mpi, pulled);
        else
            pulled->asked = 1;
        return;
    }
    pulled->asked = 1;
    pulled->wanted[pulled->wanted_count++] =
        (struct weft__mpi_want){.offset = (size_t)wire->version, .bytes = (size_t)wire->bytes};
    status = serve(mpi, pulled);
    if (status < 0)
        mpi->failed = status;
}

static void dropped(struct weft__mpi *mpi, struct weft__mpi_pulled *pulled)
{
    pulled->dropped = 1;
    if (pulled->under_way == 0)
        finish(mpi, pulled);
}

/* A segment has left. */
static void part_left(struct weft__mpi *mpi, const struct weft__mpi_part *part)
{
    struct weft__mpi_pulled *pulled = part->of;
    int status;

    if (pulled->xfer->message.list == WEFT__STAGED)
        weft__stage_done(pulled->xfer, part->offset, part->bytes);
    pulled->ended += part->bytes;
    if (pulled->under_way == 0 && (pulled->dropped || pulled->ended == pulled->bytes)) {
        finish(mpi, pulled);
        return;
    }
    status = serve(mpi, pulled);
    if (status < 0)
        mpi->failed = status;
}

int weft__mpi_unlend_later(struct weft__mpi *mpi, struct weft__xfer *xfer)
{
    struct weft__mpi_pulled *pulled = (struct weft__mpi_pulled *)(uintptr_t)xfer->handle;

    mpi->stopped += !pulled->stopped;
    pulled->stopped = 1;
    pulled->wanted_count = 0;
    mpi->base.engine->did++;
    return WEFT_IN_PROGRESS;
}

/* Sends that were given back, and of which nothing is under way any more. */
void weft__mpi_stop(struct weft__mpi *mpi)
{
    struct weft__mpi_pulled *pulled = mpi->lent;

    while (pulled && mpi->stopped > 0) {
        struct weft__xfer *xfer = pulled->xfer;

        if (!pulled->stopped || !xfer || pulled->under_way > 0) {
            pulled = pulled->next;
            continue;
        }
        mpi->stopped--;
        pulled->xfer = NULL;
        if (pulled->asked)
            tell_gone(mpi, pulled);
        if (!mpi->closing)
            weft__engine_sent(mpi->base.engine, xfer, WEFT_ERR_CANCELLED);
        pulled = mpi->lent; /* the callback may have changed the list */
    }
}

/* ---- the receiver ---- */

void weft__mpi_is_announced(struct weft__packet *packet)
{
    packet->pull = 1;
    packet->segment = (size_t)(packet->wire.sequence >> SEGMENT_SHIFT) * WEFT__STAGE_UNIT;
    packet->sequence = packet->wire.sequence & ((UINT64_C(1) << SEGMENT_SHIFT) - 1);
    packet->pulled = NULL;
}

static struct weft__mpi_pulled *record_of(struct weft__mpi *mpi, struct weft__packet *packet)
{
    struct weft__mpi_pulled *pulled = packet->pulled;

    if (pulled)
        return pulled;
    pulled = make(mpi);
    if (!pulled)
        return NULL;
    pulled->packet = packet;
    pulled->sequence = packet->sequence;
    pulled->bytes = packet->message.bytes;
    pulled->peer = packet->message.own;
    pulled->tag = weft__mpi_data_tag(mpi, packet->sequence);
    pulled->next = mpi->pulling;
    mpi->pulling = pulled;
    return packet->pulled = pulled;
}

static int is_gone(const struct weft__mpi_pulled *pulled)
{
    return weft__error(WEFT_ERR_PEER, "rank %d has taken its message back", pulled->peer);
}

/* Posts a receive, of a transfer's memory or at `memory`, and asks for what it takes. */
static int ask(struct weft__mpi *mpi, struct weft__mpi_pulled *pulled, void *memory, size_t bytes)
{
    size_t offset = pulled->begun;
    MPI_Request request;
    int status = pulled->gone ? is_gone(pulled) : weft__mpi_active_reserve(mpi, 1);

    if (status == WEFT_OK)
        status = weft__mpi_payload_receive(mpi, pulled->xfer, memory, offset, bytes, pulled->peer,
                                           pulled->tag, &request);
    if (status < 0)
        return status;
    begin_part(mpi, pulled, offset, bytes, request);
    tell(mpi, pulled->peer, WEFT__WIRE_WANT, pulled->sequence, offset, bytes);
    return mpi->failed < 0 ? mpi->failed : WEFT_IN_PROGRESS;
}

/* How much is asked for at a time where there is room for `room`: segments of the sender's, or
 * equal parts of them. */
static size_t unit_of(size_t segment, size_t room)
{
    size_t units = segment / WEFT__STAGE_UNIT;
    size_t parts = (segment + room - 1) / room;

    while (parts < units && units % parts != 0)
        parts++;
    return segment / parts;
}

int weft__mpi_pull(struct weft__transport *transport, struct weft__message *message, size_t offset,
                   void *memory, size_t *bytes)
{
    struct weft__mpi *mpi = weft__mpi_of(transport);
    struct weft__packet *packet = (struct weft__packet *)message; /* its first member */
    struct weft__mpi_pulled *pulled;
    size_t unit;
    int status = weft__mpi_ready(mpi);

    if (status < 0)
        return status;
    pulled = record_of(mpi, packet);
    if (!pulled)
        return weft__error_memory("a message of the MPI transport");
    unit = unit_of(packet->segment, *bytes);
    *bytes = unit < message->bytes - offset ? unit : message->bytes - offset;
    return ask(mpi, pulled, memory, *bytes);
}

/* More of what is fetched. */
static int ask_more(struct weft__mpi *mpi, struct weft__mpi_pulled *pulled)
{
    int status = WEFT_IN_PROGRESS;

    while (status == WEFT_IN_PROGRESS && pulled->under_way < WEFT__MPI_ASKED &&
           pulled->begun < pulled->bytes) {
        size_t rest = pulled->bytes - pulled->begun;

        status =
            ask(mpi, pulled, NULL, rest < pulled->packet->segment ? rest : pulled->packet->segment);
    }
    return status;
}

int weft__mpi_fetch_pulled(struct weft__mpi *mpi, struct weft__packet *packet,
                           struct weft__xfer *xfer)
{
    struct weft__mpi_pulled *pulled = record_of(mpi, packet);
    int status;

    if (!pulled)
        return weft__error_memory("a message of the MPI transport");
    pulled->xfer = xfer;
    status = ask_more(mpi, pulled);
    if (status < 0 && pulled->under_way == 0)
        return status;
    pulled->status = status < 0 ? status : WEFT_OK; /* told when those under way have ended */
    return WEFT_IN_PROGRESS;
}

/* A segment of what is fetched has come; or not. */
static void fetched(struct weft__mpi *mpi, struct weft__mpi_pulled *pulled, int status)
{
    struct weft__xfer *xfer = pulled->xfer;

    if (pulled->status == WEFT_OK)
        pulled->status = status;
    if (pulled->status == WEFT_OK && !pulled->stopped) {
        status = ask_more(mpi, pulled);
        pulled->status = status < 0 ? status : WEFT_OK;
    }
    if (pulled->under_way > 0)
        return;
    status = pulled->stopped ? WEFT_ERR_CANCELLED : pulled->status;
    if (pulled->gone && status == WEFT_ERR_PEER)
        is_gone(pulled);
    if (mpi->closing)
        weft__mpi_release(&mpi->base, &pulled->packet->message, 0);
    else
        weft__engine_fetched(mpi->base.engine, xfer, status);
}

static void part_arrived(struct weft__mpi *mpi, const struct weft__mpi_part *part, int status,
                         int cancelled)
{
    struct weft__mpi_pulled *pulled = part->of;
    struct weft__packet *packet = pulled->packet;
    struct weft__xfer *stopped = pulled->stopped && pulled->under_way == 0 ? pulled->stopper : NULL;

    if (cancelled)
        status = is_gone(pulled);
    else if (status == WEFT_OK)
        pulled->ended += part->bytes;
    if (pulled->ended == pulled->bytes)
        weft__mpi_acknowledge(mpi, pulled->peer, pulled->sequence);
    if (pulled->xfer) {
        fetched(mpi, pulled, status);
        return;
    }
    /* The engine may be done with the message, and the record is gone then. */
    if (!mpi->closing)
        weft__engine_pulled(mpi->base.engine, &packet->message, part->offset, status);
    if (stopped && !mpi->closing)
        weft__engine_fetched(mpi->base.engine, stopped, WEFT_ERR_CANCELLED);
}

void weft__mpi_part_ended(struct weft__mpi *mpi, struct weft__mpi_part *ended, int status,
                          int cancelled)
{
    const struct weft__mpi_part part = *ended;
    struct weft__mpi_pulled *pulled = part.of;

    ended->of = NULL;
    pulled->under_way--;
    if (status < 0)
        mpi->failed = status;
    if (pulled->packet)
        part_arrived(mpi, &part, status, cancelled);
    else
        part_left(mpi, &part);
}

int weft__mpi_stop_pulling(struct weft__packet *packet, struct weft__xfer *xfer)
{
    struct weft__mpi_pulled *pulled = packet->pulled;

    if (!pulled || pulled->under_way == 0)
        return WEFT_OK;
    pulled->stopped = 1;
    pulled->stopper = xfer;
    return WEFT_IN_PROGRESS;
}

void weft__mpi_release_pulled(struct weft__mpi *mpi, struct weft__packet *packet)
{
    struct weft__mpi_pulled *pulled = packet->pulled, **link = &mpi->pulling;

    if ((!pulled || pulled->ended < pulled->bytes) &&
        !atomic_load_explicit(&mpi->finalized, memory_order_acquire)) {
        tell(mpi, packet->message.own, WEFT__WIRE_DROP, packet->sequence, 0, 0);
        weft__mpi_acknowledge(mpi, packet->message.own, packet->sequence);
    }
    if (pulled) {
        while (*link != pulled)
            link = &(*link)->next;
        *link = pulled->next;
        put(mpi, pulled);
    }
    packet->pulled = NULL;
}

/* Receives of what is not sent any more match nothing. */
static void gone(struct weft__mpi *mpi, int peer, uint64_t sequence, uint64_t sent)
{
    struct weft__mpi_pulled *pulled = mpi->pulling;

    while (pulled && (pulled->peer != peer || pulled->sequence != sequence))
        pulled = pulled->next;
    if (!pulled)
        return; /* it has been dropped here */
    pulled->gone = 1;
    for (int i = 0; i < WEFT__MPI_ASKED; i++)
        if (pulled->parts[i].of && pulled->parts[i].offset >= sent)
            PMPI_Cancel(&mpi->requests[pulled->parts[i].index]);
}

/* ---- what is told ---- */

void weft__mpi_pulled_told(struct weft__mpi *mpi, const struct weft__wire *wire, int from)
{
    struct weft__mpi_pulled *pulled;

    if (wire->kind == WEFT__WIRE_GONE) {
        gone(mpi, from, wire->sequence, wire->bytes);
        return;
    }
    pulled = find_lent(mpi, from, wire->sequence);
    if (pulled && wire->kind == WEFT__WIRE_WANT)
        wanted(mpi, pulled, wire);
    else if (pulled) /* a drop may overtake what was asked for before */
        dropped(mpi, pulled);
}

void weft__mpi_pulled_free(struct weft__mpi *mpi)
{
    struct weft__mpi_pulled **lists[] = {&mpi->free_pulled, &mpi->lent, &mpi->pulling};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        while (*lists[i]) {
            struct weft__mpi_pulled *next = (*lists[i])->next;

            weft__free(*lists[i]);
            *lists[i] = next;
        }
}
