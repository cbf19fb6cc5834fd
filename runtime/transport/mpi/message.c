/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages over MPI: small ones are copied into packets, of larger ones a packet tells, and the
 * payload goes from the sender's memory to the receiver's. The sender does not wait to be asked:
 * the payload is on its way with the packet. A payload that nobody wants is received all the same,
 * into temporary memory, so that its sender ends.
 */
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/transport/mpi/mpi_transport.h"

enum { DELAYED = 1 /* message.flags of a send */ };

int weft__mpi_error(int code, const char *call, int peer)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;

    if (PMPI_Error_string(code, text, &length) != MPI_SUCCESS)
        text[0] = '\0';
    if (peer < 0)
        return weft__error(WEFT_ERR_TRANSPORT, "MPI: %s failed: %.200s", call, text);
    return weft__error(WEFT_ERR_TRANSPORT, "MPI: %s, rank %d: %.200s", call, peer, text);
}

static struct weft__packet *packet_of(struct weft__message *message)
{
    return (struct weft__packet *)message; /* its first member */
}

int weft__mpi_data_tag(const struct weft__mpi *mpi, uint64_t sequence)
{
    return 1 + (int)(sequence & ((UINT64_C(2) << mpi->half_shift) - 1));
}

/* ---- sending ---- */

static void fill(struct weft__packet *packet, const struct weft__message *message, uint32_t kind)
{
    packet->wire = (struct weft__wire){.version = message->version,
                                       .bytes = message->bytes,
                                       .object = message->object,
                                       .tag = message->tag,
                                       .kind = (uint8_t)kind,
                                       .turn = message->turn,
                                       .part = message->part};
}

static int send_eager(struct weft__mpi *mpi, const struct weft__xfer *xfer)
{
    const struct weft__message *message = &xfer->message;
    struct weft__packet *packet = weft__mpi_packet_get(mpi, message->bytes);

    if (!packet)
        return weft__error_memory("a message of the MPI transport");
    fill(packet, message, WEFT__DATA);
    if (message->bytes != 0 && weft__xfer_contiguous(xfer))
        memcpy(packet->payload, message->data, message->bytes);
    else
        for (size_t done = 0; done < message->bytes;) {
            size_t bytes = 0;
            const void *chunk = weft__xfer_chunk(xfer, done, &bytes);

            if (bytes > message->bytes - done)
                bytes = message->bytes - done;
            memcpy(packet->payload + done, chunk, bytes);
            done += bytes;
        }
    return weft__mpi_packet_send(mpi, packet, message->bytes, message->to);
}

/* 1 if the tag of the next bulk message to a peer is free. */
static int window_open(const struct weft__mpi *mpi, int to)
{
    const struct weft__mpi_peer *peer = &mpi->peers[to];

    return (peer->sequence >> mpi->half_shift) < peer->acks + 2;
}

/* 1 if a payload to or from a peer goes in chunks. */
static int streams(const struct weft__mpi *mpi, int peer, size_t bytes)
{
    return bytes < WEFT__MPI_STREAM_MAX && mpi->peers[peer].streams;
}

/* The payload of a send that the peer has been told of. */
static int start_payload(struct weft__mpi *mpi, struct weft__xfer *xfer, int tag, int stream)
{
    struct weft__mpi_owner owner = {.use = WEFT__MPI_SEND, .xfer = xfer};
    size_t bytes = xfer->message.bytes;
    MPI_Request request;
    int status;

    if (stream)
        return weft__mpi_stream_start(mpi, &(struct weft__mpi_stream){.use = WEFT__MPI_SEND,
                                                                      .xfer = xfer,
                                                                      .bytes = bytes,
                                                                      .peer = xfer->message.to,
                                                                      .tag = tag});
    status = weft__mpi_active_reserve(mpi, 1);
    if (status == WEFT_OK)
        status = weft__mpi_payload_send(mpi, xfer, 0, bytes, tag, &request);
    if (status == WEFT_OK)
        weft__mpi_active_add(mpi, request, owner);
    return status;
}

/* Announces a payload that its receiver asks for. */
static int send_pulled(struct weft__mpi *mpi, struct weft__xfer *xfer)
{
    struct weft__mpi_peer *peer = &mpi->peers[xfer->message.to];
    struct weft__packet *packet = weft__mpi_packet_get(mpi, 0);
    int status;

    if (!packet)
        return weft__error_memory("a message of the MPI transport");
    fill(packet, &xfer->message, WEFT__WIRE_PULLED);
    packet->wire.sequence = peer->sequence;
    status = weft__mpi_lend(mpi, xfer, packet, weft__mpi_data_tag(mpi, peer->sequence));
    if (status < 0) {
        weft__mpi_packet_put(mpi, packet);
        return status;
    }
    status = weft__mpi_packet_send(mpi, packet, 0, xfer->message.to);
    if (status < 0) {
        weft__mpi_unlend(mpi, (struct weft__mpi_pulled *)(uintptr_t)xfer->handle);
        return status;
    }
    peer->sequence++;
    return WEFT_IN_PROGRESS;
}

static int send_bulk(struct weft__mpi *mpi, struct weft__xfer *xfer)
{
    struct weft__mpi_peer *peer = &mpi->peers[xfer->message.to];
    int stream =
        xfer->message.list != WEFT__DEVICE && streams(mpi, xfer->message.to, xfer->message.bytes);
    struct weft__packet *packet;
    int status;

    if (weft__mpi_is_pulled(xfer))
        return send_pulled(mpi, xfer);
    status = weft__mpi_payload_reserve(mpi);
    if (status < 0)
        return status;
    packet = weft__mpi_packet_get(mpi, 0);
    if (!packet)
        return weft__error_memory("a message of the MPI transport");
    fill(packet, &xfer->message, stream ? WEFT__WIRE_STREAM : WEFT__WIRE_BULK);
    packet->wire.sequence = peer->sequence;
    xfer->message.flags = 0;
    status = weft__mpi_packet_send(mpi, packet, 0, xfer->message.to);
    if (status < 0)
        return status;
    /* From here on the peer waits for the payload: an error leaves the transport broken. */
    status = start_payload(mpi, xfer, weft__mpi_data_tag(mpi, peer->sequence), stream);
    peer->sequence++;
    if (status < 0)
        return mpi->failed = status;
    return WEFT_IN_PROGRESS;
}

int weft__mpi_ready(struct weft__mpi *mpi)
{
    if (atomic_load_explicit(&mpi->finalized, memory_order_acquire))
        mpi->failed = WEFT_ERR_STATE;
    if (mpi->failed == WEFT_ERR_STATE)
        return weft__error(WEFT_ERR_STATE,
                           "MPI_Finalize was called before the context was destroyed");
    return mpi->failed;
}

int weft__mpi_send(struct weft__transport *transport, struct weft__xfer *xfer)
{
    struct weft__mpi *mpi = weft__mpi_of(transport);
    size_t bytes = xfer->message.bytes;
    int status = weft__mpi_ready(mpi);

    if (status < 0)
        return status;
    if (xfer->message.list < WEFT__DEVICE &&
        (bytes <= WEFT__MPI_SMALL ||
         (bytes <= WEFT__MPI_EAGER && mpi->packets_active < WEFT__MPI_EAGER_MAX)))
        return send_eager(mpi, xfer);
    if (window_open(mpi, xfer->message.to))
        return send_bulk(mpi, xfer);
    xfer->message.flags = DELAYED;
    xfer->message.next = NULL;
    *mpi->delayed_end = &xfer->message;
    mpi->delayed_end = &xfer->message.next;
    return WEFT_IN_PROGRESS;
}

int weft__mpi_control(struct weft__transport *transport, const struct weft__message *message)
{
    struct weft__mpi *mpi = weft__mpi_of(transport);
    struct weft__packet *packet;
    int status = weft__mpi_ready(mpi);

    if (status < 0)
        return status;
    size_t bytes = message->data ? message->bytes : 0; /* of news */
    packet = weft__mpi_packet_get(mpi, bytes);
    if (!packet)
        return weft__error_memory("a signal of the MPI transport");
    fill(packet, message, message->kind);
    if (bytes)
        memcpy(packet->payload, message->data, bytes);
    return weft__mpi_packet_send(mpi, packet, bytes, message->to);
}

/* Takes a delayed send out of its list. */
static void undelay(struct weft__mpi *mpi, struct weft__message **link)
{
    struct weft__message *message = *link;

    *link = message->next;
    if (mpi->delayed_end == &message->next)
        mpi->delayed_end = link;
    message->next = NULL;
    message->flags = 0;
}

static void send_delayed(struct weft__mpi *mpi)
{
    struct weft__message **link = &mpi->delayed;

    while (*link) {
        struct weft__xfer *xfer = (struct weft__xfer *)*link; /* its first member */
        int status;

        if (!window_open(mpi, xfer->message.to)) {
            link = &(*link)->next;
            continue;
        }
        undelay(mpi, link);
        status = send_bulk(mpi, xfer);
        if (status == WEFT_IN_PROGRESS)
            continue;
        if (!mpi->closing)
            weft__engine_sent(mpi->base.engine, xfer, status);
        link = &mpi->delayed; /* the callback may have changed the list */
    }
}

int weft__mpi_cancel(struct weft__transport *transport, struct weft__xfer *xfer)
{
    struct weft__mpi *mpi = weft__mpi_of(transport);

    if (xfer->message.kind == WEFT__RECEIVE && packet_of(xfer->source)->pull)
        return weft__mpi_stop_pulling(packet_of(xfer->source), xfer);
    if (xfer->message.kind == WEFT__RECEIVE) {
        /* Its completion tells whether it was in time. A stream is as short as it is: it goes on.
         */
        if (!packet_of(xfer->source)->stream)
            PMPI_Cancel(&mpi->requests[xfer->handle]);
        return WEFT_IN_PROGRESS;
    }
    if (xfer->message.flags == WEFT__MPI_LENT)
        return weft__mpi_unlend_later(mpi, xfer);
    if (xfer->message.flags != DELAYED)
        return WEFT_IN_PROGRESS;
    for (struct weft__message **link = &mpi->delayed; *link; link = &(*link)->next)
        if (*link == &xfer->message) {
            undelay(mpi, link);
            return WEFT_OK;
        }
    return WEFT_IN_PROGRESS;
}

/* ---- receiving ---- */

/* The oldest half window of bulk payloads from a peer is in: its tags are free once it knows. */
static void end_half_window(struct weft__mpi *mpi, int from)
{
    struct weft__packet *packet;
    int status;

    if (mpi->final)
        return;
    packet = weft__mpi_packet_get(mpi, 0);
    if (!packet) {
        mpi->failed = weft__error_memory("an acknowledgement of the MPI transport");
        return;
    }
    packet->wire = (struct weft__wire){.kind = WEFT__WIRE_ACK};
    status = weft__mpi_packet_send(mpi, packet, 0, from);
    if (status < 0)
        mpi->failed = status;
}

void weft__mpi_acknowledge(struct weft__mpi *mpi, int from, uint64_t sequence)
{
    struct weft__mpi_peer *peer = &mpi->peers[from];
    uint32_t half = UINT32_C(1) << mpi->half_shift;

    peer->received[sequence >> mpi->half_shift & 1]++;
    while (peer->received[peer->oldest & 1] == half) { /* the younger one may be complete, too */
        peer->received[peer->oldest & 1] = 0;
        peer->oldest++;
        end_half_window(mpi, from);
    }
}

/* Begins to receive a payload into a transfer's memory, or into packet->temporary if xfer is NULL.
 */
static int receive_payload(struct weft__mpi *mpi, struct weft__packet *packet,
                           struct weft__xfer *xfer)
{
    struct weft__message *message = &packet->message;
    enum weft__mpi_use use = xfer ? WEFT__MPI_FETCH : WEFT__MPI_DRAIN;
    struct weft__mpi_owner owner = {.use = use, .packet = packet, .xfer = xfer};
    int tag = weft__mpi_data_tag(mpi, packet->sequence);
    MPI_Request request;
    int status;

    if (packet->stream)
        return weft__mpi_stream_start(mpi, &(struct weft__mpi_stream){.use = use,
                                                                      .xfer = xfer,
                                                                      .packet = packet,
                                                                      .bytes = message->bytes,
                                                                      .peer = message->from,
                                                                      .tag = tag});
    status = weft__mpi_active_reserve(mpi, 1);
    if (status == WEFT_OK)
        status = weft__mpi_payload_receive(mpi, xfer, packet->temporary, 0, message->bytes,
                                           message->from, tag, &request);
    if (status == WEFT_OK)
        weft__mpi_active_add(mpi, request, owner);
    return status;
}

int weft__mpi_fetch(struct weft__transport *transport, struct weft__message *message,
                    struct weft__xfer *xfer)
{
    struct weft__mpi *mpi = weft__mpi_of(transport);
    struct weft__packet *packet = packet_of(message);
    int status = weft__mpi_ready(mpi);

    if (status == WEFT_OK && packet->pull)
        return weft__mpi_fetch_pulled(mpi, packet, xfer);
    packet->temporary = NULL;
    if (status == WEFT_OK)
        status = receive_payload(mpi, packet, xfer);
    if (status < 0)
        return status;
    packet->fetched = 1;
    return WEFT_IN_PROGRESS;
}

/* Begins to receive a payload that nobody wants; chunks all go to one place. 0: no memory now. */
static int drain(struct weft__mpi *mpi, struct weft__packet *packet)
{
    packet->temporary = weft__malloc(packet->stream ? WEFT__MPI_CHUNK : packet->message.bytes, 1);
    if (!packet->temporary)
        return 0;
    if (receive_payload(mpi, packet, NULL) == WEFT_OK)
        return 1;
    weft__free(packet->temporary);
    return 0;
}

static void drain_or_keep(struct weft__mpi *mpi, struct weft__packet *packet)
{
    if (drain(mpi, packet))
        return;
    packet->message.next = mpi->undrained;
    mpi->undrained = &packet->message;
}

void weft__mpi_drain_again(struct weft__mpi *mpi)
{
    struct weft__message *list = mpi->undrained;

    mpi->undrained = NULL;
    while (list) {
        struct weft__message *next = list->next;

        drain_or_keep(mpi, packet_of(list));
        list = next;
    }
}

void weft__mpi_release(struct weft__transport *transport, struct weft__message *message,
                       int consumed)
{
    struct weft__mpi *mpi = weft__mpi_of(transport);
    struct weft__packet *packet = packet_of(message);

    (void)consumed;
    mpi->held--;
    if (packet->pull)
        weft__mpi_release_pulled(mpi, packet);
    if (packet->bulk && !packet->fetched &&
        !atomic_load_explicit(&mpi->finalized, memory_order_acquire))
        drain_or_keep(mpi, packet);
    else
        weft__mpi_packet_put(mpi, packet);
}

void weft__mpi_arrived(struct weft__mpi *mpi, struct weft__packet *packet, int from)
{
    const struct weft__wire *wire = &packet->wire;

    if (wire->kind == WEFT__WIRE_ACK) {
        mpi->peers[from].acks++;
        weft__mpi_packet_put(mpi, packet);
        send_delayed(mpi);
        return;
    }
    if (wire->kind > WEFT__WIRE_PULLED) {
        weft__mpi_pulled_told(mpi, wire, from);
        weft__mpi_packet_put(mpi, packet);
        return;
    }
    packet->stream = wire->kind == WEFT__WIRE_STREAM;
    packet->bulk = packet->stream || wire->kind == WEFT__WIRE_BULK;
    packet->fetched = 0;
    packet->sequence = wire->sequence;
    packet->pull = 0;
    if (wire->kind == WEFT__WIRE_PULLED)
        weft__mpi_is_announced(packet);
    packet->message = (struct weft__message){
        .data = packet->bulk || !weft__has_payload((int)wire->kind) ? NULL : packet->payload,
        .bytes = (size_t)wire->bytes,
        .version = wire->version,
        .object = wire->object,
        .tag = wire->tag,
        .from = from,
        .to = mpi->base.rank,
        .own = from,
        .kind = packet->bulk || packet->pull ? WEFT__DATA : (uint8_t)wire->kind,
        .list = packet->pull ? WEFT__PULLED : 0,
        .turn = wire->turn,
        .part = wire->part,
    };
    mpi->held++;
    if (mpi->closing)
        weft__mpi_release(&mpi->base, &packet->message, 0);
    else
        weft__engine_message(mpi->base.engine, &packet->message);
}

void weft__mpi_ended(struct weft__mpi *mpi, struct weft__mpi_owner owner, int status, int cancelled)
{
    struct weft__packet *packet = owner.packet;

    switch (owner.use) {
    case WEFT__MPI_PACKET:
        mpi->packets_active--;
        weft__mpi_packet_put(mpi, packet);
        if (status < 0)
            mpi->failed = status;
        break;
    case WEFT__MPI_CHUNK_OF:
        weft__mpi_chunk_ended(mpi, owner.stream, status);
        break;
    case WEFT__MPI_SEND:
        if (!mpi->closing)
            weft__engine_sent(mpi->base.engine, owner.xfer, status);
        break;
    case WEFT__MPI_FETCH:
        if (cancelled) {
            packet->fetched = 0; /* its release will drain it */
            status = WEFT_ERR_CANCELLED;
        } else {
            weft__mpi_acknowledge(mpi, packet->message.from, packet->sequence);
        }
        if (mpi->closing)
            weft__mpi_release(&mpi->base, &packet->message, 0);
        else
            weft__engine_fetched(mpi->base.engine, owner.xfer, status);
        break;
    case WEFT__MPI_PART:
        weft__mpi_part_ended(mpi, owner.part, status, cancelled);
        break;
    case WEFT__MPI_DRAIN:
        weft__free(packet->temporary);
        weft__mpi_acknowledge(mpi, packet->message.from, packet->sequence);
        weft__mpi_packet_put(mpi, packet);
        break;
    }
}
