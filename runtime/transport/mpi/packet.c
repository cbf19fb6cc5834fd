/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets, the ring of receives that wait for them, and the requests under way.
 *
 * Receives of the ring have the same envelope, so packets fill them in posting order: a poll tests
 * the oldest alone. A transfer that takes several steps may end after younger ones; every few quiet
 * polls all are tested. A packet that was received is delivered before its place is posted again:
 * the answer leaves earlier, and the same memory, still in the cache, serves the next packet.
 */
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/transport/mpi/mpi_transport.h"

enum {
    BURST = 16,         /* packets delivered in one poll */
    QUIET = 16,         /* quiet polls of the oldest before all are tested */
    HELD_WHOLE = 64,    /* packets that the engine may hold as they are; of further ones, copies */
    COPIED_BYTES = 1024 /* largest payload of those */
};

static struct weft__packet *make_packet(size_t capacity)
{
    struct weft__packet *packet = weft__aligned(64, sizeof *packet + capacity);

    if (packet)
        packet->capacity = capacity;
    return packet;
}

struct weft__packet *weft__mpi_packet_get(struct weft__mpi *mpi, size_t bytes)
{
    int small = bytes <= WEFT__MPI_SMALL;
    struct weft__message **list = small ? &mpi->free_small : &mpi->free_packets;
    struct weft__message *first = *list;

    if (!first)
        return make_packet(small ? WEFT__MPI_SMALL : WEFT__MPI_EAGER);
    *list = first->next;
    return (struct weft__packet *)first;
}

void weft__mpi_packet_put(struct weft__mpi *mpi, struct weft__packet *packet)
{
    struct weft__message **list;

    if (packet->capacity == WEFT__MPI_EAGER)
        list = &mpi->free_packets;
    else if (packet->capacity == WEFT__MPI_SMALL)
        list = &mpi->free_small;
    else {
        weft__free(packet);
        return;
    }
    packet->message.next = *list;
    *list = &packet->message;
}

static void free_list(struct weft__message *list)
{
    while (list) {
        struct weft__message *next = list->next;

        weft__free(list);
        list = next;
    }
}

void weft__mpi_free_memory(struct weft__mpi *mpi)
{
    free_list(mpi->free_packets);
    free_list(mpi->free_small);
    while (mpi->free_streams) {
        struct weft__mpi_stream *next = mpi->free_streams->next;

        weft__free(mpi->free_streams);
        mpi->free_streams = next;
    }
    weft__mpi_pulled_free(mpi);
    weft__free(mpi->requests);
    weft__free(mpi->owners);
    weft__free(mpi->lengths);
    weft__free(mpi->places);
    weft__free(mpi->peers);
    weft__free(mpi->homes);
    weft__free(mpi->hosts);
    weft__free(mpi->members);
    weft__free(mpi->room);
    weft__free(mpi->near);
    weft__free(mpi->totals);
    weft__free(mpi);
}

int weft__mpi_packet_send(struct weft__mpi *mpi, struct weft__packet *packet, size_t bytes, int to)
{
    MPI_Request request;
    int done = 0;
    int code;
    int status = weft__mpi_active_reserve(mpi, 1);

    if (status < 0) {
        weft__mpi_packet_put(mpi, packet);
        return status;
    }
    code = PMPI_Isend(&packet->wire, (int)(sizeof packet->wire + bytes), MPI_BYTE, to, 0, mpi->comm,
                      &request);
    if (code != MPI_SUCCESS) {
        weft__mpi_packet_put(mpi, packet);
        return weft__mpi_error(code, "MPI_Isend", to);
    }
    mpi->peers[to].packets++;
    code = PMPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
        weft__mpi_packet_put(mpi, packet);
        return weft__mpi_error(code, "sending", to);
    }
    if (done) {
        weft__mpi_packet_put(mpi, packet);
        return WEFT_OK;
    }
    mpi->packets_active++;
    weft__mpi_active_add(mpi, request,
                         (struct weft__mpi_owner){.use = WEFT__MPI_PACKET, .packet = packet});
    return WEFT_OK;
}

/* ---- the ring ---- */

static int post(struct weft__mpi *mpi, unsigned place)
{
    struct weft__packet *packet = weft__mpi_packet_get(mpi, WEFT__MPI_EAGER);
    int code;

    mpi->ring[place] = NULL;
    mpi->ring_requests[place] = MPI_REQUEST_NULL;
    if (!packet)
        return weft__error_memory("a receive of the MPI transport");
    code = PMPI_Irecv(&packet->wire, (int)(sizeof packet->wire + WEFT__MPI_EAGER), MPI_BYTE,
                      MPI_ANY_SOURCE, 0, mpi->comm, &mpi->ring_requests[place]);
    if (code != MPI_SUCCESS) {
        weft__mpi_packet_put(mpi, packet);
        return weft__mpi_error(code, "MPI_Irecv", -1);
    }
    mpi->ring[place] = packet;
    return WEFT_OK;
}

int weft__mpi_ring_open(struct weft__mpi *mpi)
{
    int status = WEFT_OK;

    for (unsigned place = 0; place < WEFT__MPI_RING && status == WEFT_OK; place++)
        status = post(mpi, place);
    return status;
}

void weft__mpi_ring_close(struct weft__mpi *mpi)
{
    for (unsigned place = 0; place < WEFT__MPI_RING; place++) {
        if (!mpi->ring[place])
            continue;
        PMPI_Cancel(&mpi->ring_requests[place]);
        PMPI_Wait(&mpi->ring_requests[place], MPI_STATUS_IGNORE);
        weft__mpi_packet_put(mpi, mpi->ring[place]);
        mpi->ring[place] = NULL;
    }
}

/* A small packet gets memory of its size when the engine holds many, and its own is free again. */
static struct weft__packet *shrink(struct weft__mpi *mpi, struct weft__packet *packet)
{
    size_t bytes = weft__has_payload((int)packet->wire.kind) ? (size_t)packet->wire.bytes : 0;
    struct weft__packet *copy;

    if (mpi->held < HELD_WHOLE || bytes > COPIED_BYTES)
        return packet;
    copy = bytes <= WEFT__MPI_SMALL ? weft__mpi_packet_get(mpi, bytes) : make_packet(bytes);
    if (!copy)
        return packet;
    copy->wire = packet->wire;
    memcpy(copy->payload, packet->payload, bytes);
    weft__mpi_packet_put(mpi, packet);
    return copy;
}

static void deliver(struct weft__mpi *mpi, unsigned place, const MPI_Status *status)
{
    struct weft__packet *packet = mpi->ring[place];

    mpi->ring[place] = NULL;
    mpi->received++;
    mpi->quiet = 0;
    mpi->head = (place + 1) % WEFT__MPI_RING;
    weft__mpi_arrived(mpi, shrink(mpi, packet), status->MPI_SOURCE);
    post(mpi, place); /* or again when its turn comes */
}

/* Delivers from the head on while there is something. */
static int poll_head(struct weft__mpi *mpi)
{
    int did = 0;

    for (int turn = 0; turn < BURST; turn++) {
        unsigned place = mpi->head;
        MPI_Status status;
        int flag = 0;
        int code;

        if (!mpi->ring[place] && post(mpi, place) != WEFT_OK) {
            mpi->head = (place + 1) % WEFT__MPI_RING;
            continue;
        }
        code = PMPI_Test(&mpi->ring_requests[place], &flag, &status);
        if (code != MPI_SUCCESS)
            return weft__mpi_error(code, "receiving", -1);
        if (!flag)
            break;
        deliver(mpi, place, &status);
        did++;
    }
    return did;
}

int weft__mpi_ring_poll(struct weft__mpi *mpi)
{
    int did = poll_head(mpi);

    if (did != 0 || ++mpi->quiet < QUIET)
        return did;
    mpi->quiet = 0;
    for (; did < BURST; did++) {
        MPI_Status status;
        int place = MPI_UNDEFINED;
        int flag = 0;
        int code = PMPI_Testany(WEFT__MPI_RING, mpi->ring_requests, &place, &flag, &status);

        if (code != MPI_SUCCESS)
            return weft__mpi_error(code, "receiving", -1);
        if (!flag || place == MPI_UNDEFINED)
            break;
        deliver(mpi, (unsigned)place, &status);
    }
    return did;
}

/* ---- requests under way ---- */

int weft__mpi_active_reserve(struct weft__mpi *mpi, size_t count)
{
    if (weft__grow((void **)&mpi->requests, &mpi->requests_capacity, mpi->active + count,
                   sizeof *mpi->requests) != 0 ||
        weft__grow((void **)&mpi->owners, &mpi->owners_capacity, mpi->active + count,
                   sizeof *mpi->owners) != 0)
        return weft__error_memory("requests of the MPI transport");
    return WEFT_OK;
}

static void place_owner(struct weft__mpi *mpi, size_t index, struct weft__mpi_owner owner)
{
    mpi->owners[index] = owner;
    if (owner.xfer)
        owner.xfer->handle = index;
    if (owner.part)
        owner.part->index = index;
}

void weft__mpi_active_add(struct weft__mpi *mpi, MPI_Request request, struct weft__mpi_owner owner)
{
    mpi->requests[mpi->active] = request;
    place_owner(mpi, mpi->active, owner);
    mpi->active++;
}

struct ended {
    struct weft__mpi_owner owner;
    int status;
    int cancelled;
};

/* Takes the requests first + places[..] out, and notes what they were. */
static void take_out(struct weft__mpi *mpi, size_t first, int count, const int *places,
                     const MPI_Status *statuses, int code, struct ended *ended)
{
    unsigned char gone[WEFT__MPI_TEST] = {0};

    for (int i = 0; i < count; i++) {
        ended[i].owner = mpi->owners[first + (size_t)places[i]];
        ended[i].status = WEFT_OK;
        if (code != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_SUCCESS)
            ended[i].status = weft__mpi_error(statuses[i].MPI_ERROR, "a transfer", -1);
        PMPI_Test_cancelled(&statuses[i], &ended[i].cancelled);
        gone[places[i]] = 1;
    }
    for (size_t i = WEFT__MPI_TEST; i-- > 0;) {
        size_t index = first + i;

        if (!gone[i])
            continue;
        mpi->active--;
        if (index != mpi->active) {
            mpi->requests[index] = mpi->requests[mpi->active];
            place_owner(mpi, index, mpi->owners[mpi->active]);
        }
    }
}

/* Callbacks come after the arrays are in order again: they may begin further transfers. */
int weft__mpi_active_poll(struct weft__mpi *mpi)
{
    int places[WEFT__MPI_TEST];
    MPI_Status statuses[WEFT__MPI_TEST];
    struct ended ended[WEFT__MPI_TEST];
    size_t first = mpi->cursor < mpi->active ? mpi->cursor : 0;
    size_t span = mpi->active - first;
    int count = 0;
    int code;

    if (span > WEFT__MPI_TEST)
        span = WEFT__MPI_TEST;
    code = PMPI_Testsome((int)span, mpi->requests + first, &count, places, statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
        int class = MPI_SUCCESS;

        PMPI_Error_class(code, &class);
        if (class != MPI_ERR_IN_STATUS)
            return weft__mpi_error(code, "MPI_Testsome", -1);
    }
    mpi->cursor = first + span;
    if (count == MPI_UNDEFINED || count == 0)
        return 0;
    take_out(mpi, first, count, places, statuses, code, ended);
    mpi->cursor = first;
    for (int i = 0; i < count; i++)
        weft__mpi_ended(mpi, ended[i].owner, ended[i].status, ended[i].cancelled);
    return count;
}
