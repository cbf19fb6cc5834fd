/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payloads of bulk messages: memory to memory, whole or in chunks, contiguous or in pieces. A
 * message in pieces, and without MPI 4 one of more than INT_MAX bytes, is described by a datatype.
 */
#include <limits.h>

#include "runtime/base/alloc.h"
#include "runtime/transport/mpi/mpi_transport.h"

enum { BLOCK = 1 << 30 };

static int add_block(struct weft__mpi *mpi, size_t count, const void *place, size_t bytes)
{
    if (weft__grow((void **)&mpi->lengths, &mpi->lengths_capacity, count + 1,
                   sizeof *mpi->lengths) != 0 ||
        weft__grow((void **)&mpi->places, &mpi->places_capacity, count + 1, sizeof *mpi->places) !=
            0)
        return weft__error_memory("a list of the MPI transport");
    mpi->lengths[count] = (int)bytes;
    PMPI_Get_address(place, &mpi->places[count]);
    return WEFT_OK;
}

/* The memory of a transfer from `offset` on, and in *bytes how far it is contiguous. */
static char *memory_at(const struct weft__xfer *xfer, size_t offset, size_t *bytes)
{
    if (!weft__xfer_contiguous(xfer))
        return weft__xfer_chunk(xfer, offset, bytes);
    *bytes = xfer->message.bytes - offset;
    return (char *)(uintptr_t)xfer->message.data + offset;
}

/* The datatype, on absolute addresses, of a range of a transfer's memory. */
static int make_type(struct weft__mpi *mpi, const struct weft__xfer *xfer, size_t offset,
                     size_t bytes, MPI_Datatype *type)
{
    size_t end = offset + bytes;
    size_t count = 0;
    int code;

    while (offset < end) {
        size_t length = 0;
        const char *place = memory_at(xfer, offset, &length);
        int status;

        if (length > end - offset)
            length = end - offset;
        if (length > BLOCK)
            length = BLOCK;
        status = add_block(mpi, count++, place, length);
        if (status < 0)
            return status;
        offset += length;
    }
    code = PMPI_Type_create_hindexed((int)count, mpi->lengths, mpi->places, MPI_BYTE, type);
    if (code != MPI_SUCCESS)
        return weft__mpi_error(code, "MPI_Type_create_hindexed", -1);
    code = PMPI_Type_commit(type);
    if (code != MPI_SUCCESS) {
        PMPI_Type_free(type);
        return weft__mpi_error(code, "MPI_Type_commit", -1);
    }
    return WEFT_OK;
}

/* The address of a range that one call of MPI can name, or NULL. */
static void *plain(const struct weft__xfer *xfer, size_t offset, size_t bytes)
{
    size_t length = 0;
    void *place = memory_at(xfer, offset, &length);

    if (length < bytes)
        return NULL;
#if MPI_VERSION < 4
    if (bytes > INT_MAX)
        return NULL;
#endif
    return place;
}

int weft__mpi_payload_send(struct weft__mpi *mpi, const struct weft__xfer *xfer, size_t offset,
                           size_t bytes, int tag, MPI_Request *request)
{
    int to = xfer->message.to;
    const void *place = plain(xfer, offset, bytes);
    MPI_Datatype type;
    int code, status;

    if (!place) {
        status = make_type(mpi, xfer, offset, bytes, &type);
        if (status < 0)
            return status;
        code = PMPI_Isend(MPI_BOTTOM, 1, type, to, tag, mpi->comm, request);
        PMPI_Type_free(&type);
    } else if (bytes <= INT_MAX) {
        code = PMPI_Isend(place, (int)bytes, MPI_BYTE, to, tag, mpi->comm, request);
    } else {
#if MPI_VERSION >= 4
        code = PMPI_Isend_c(place, (MPI_Count)bytes, MPI_BYTE, to, tag, mpi->comm, request);
#else
        code = MPI_ERR_COUNT;
#endif
    }
    return code == MPI_SUCCESS ? WEFT_OK : weft__mpi_error(code, "MPI_Isend", to);
}

int weft__mpi_payload_receive(struct weft__mpi *mpi, const struct weft__xfer *xfer, void *memory,
                              size_t offset, size_t bytes, int from, int tag, MPI_Request *request)
{
    struct weft__xfer simple = {.message = {.data = memory, .bytes = bytes}};
    void *place;
    MPI_Datatype type;
    int code, status;

    if (memory) {
        xfer = &simple;
        offset = 0;
    }
    place = plain(xfer, offset, bytes);
    if (!place) {
        status = make_type(mpi, xfer, offset, bytes, &type);
        if (status < 0)
            return status;
        code = PMPI_Irecv(MPI_BOTTOM, 1, type, from, tag, mpi->comm, request);
        PMPI_Type_free(&type);
    } else if (bytes <= INT_MAX) {
        code = PMPI_Irecv(place, (int)bytes, MPI_BYTE, from, tag, mpi->comm, request);
    } else {
#if MPI_VERSION >= 4
        code = PMPI_Irecv_c(place, (MPI_Count)bytes, MPI_BYTE, from, tag, mpi->comm, request);
#else
        code = MPI_ERR_COUNT;
#endif
    }
    return code == MPI_SUCCESS ? WEFT_OK : weft__mpi_error(code, "MPI_Irecv", from);
}

/* ---- streams ---- */

static int post_chunk(struct weft__mpi *mpi, struct weft__mpi_stream *stream)
{
    size_t bytes = stream->bytes - stream->posted;
    MPI_Request request;
    int status = weft__mpi_active_reserve(mpi, 1);

    if (status < 0)
        return status;
    if (bytes > WEFT__MPI_CHUNK)
        bytes = WEFT__MPI_CHUNK;
    if (stream->use == WEFT__MPI_SEND)
        status =
            weft__mpi_payload_send(mpi, stream->xfer, stream->posted, bytes, stream->tag, &request);
    else
        status = weft__mpi_payload_receive(
            mpi, stream->xfer, stream->use == WEFT__MPI_DRAIN ? stream->packet->temporary : NULL,
            stream->posted, bytes, stream->peer, stream->tag, &request);
    if (status < 0)
        return status;
    stream->posted += bytes;
    stream->outstanding++;
    weft__mpi_active_add(mpi, request,
                         (struct weft__mpi_owner){.use = WEFT__MPI_CHUNK_OF, .stream = stream});
    return WEFT_OK;
}

/* Posts as many chunks as the window takes. Chunks that are thrown away share their memory, so they
 * come one by one. */
static int fill_window(struct weft__mpi *mpi, struct weft__mpi_stream *stream)
{
    unsigned window = stream->use == WEFT__MPI_DRAIN ? 1 : WEFT__MPI_WINDOW;
    int status = WEFT_OK;

    while (status == WEFT_OK && stream->posted < stream->bytes && stream->outstanding < window)
        status = post_chunk(mpi, stream);
    return status;
}

int weft__mpi_payload_reserve(struct weft__mpi *mpi)
{
    if (!mpi->free_streams) {
        mpi->free_streams = weft__calloc(1, sizeof *mpi->free_streams);
        if (!mpi->free_streams)
            return weft__error_memory("a message of the MPI transport");
    }
    return weft__mpi_active_reserve(mpi, WEFT__MPI_WINDOW + 1);
}

int weft__mpi_stream_start(struct weft__mpi *mpi, const struct weft__mpi_stream *description)
{
    struct weft__mpi_stream *stream;
    int status = weft__mpi_payload_reserve(mpi);

    if (status < 0)
        return status;
    stream = mpi->free_streams;
    mpi->free_streams = stream->next;
    *stream = *description;
    status = fill_window(mpi, stream);
    if (status < 0 && stream->outstanding == 0) {
        stream->next = mpi->free_streams;
        mpi->free_streams = stream;
        return status;
    }
    if (status < 0) { /* reported when the chunks under way have ended */
        mpi->failed = stream->status = status;
        stream->posted = stream->bytes;
    }
    return WEFT_OK;
}

void weft__mpi_chunk_ended(struct weft__mpi *mpi, struct weft__mpi_stream *stream, int status)
{
    struct weft__mpi_owner owner = {
        .use = stream->use, .packet = stream->packet, .xfer = stream->xfer};

    stream->outstanding--;
    if (status == WEFT_OK && stream->status == WEFT_OK)
        status = fill_window(mpi, stream);
    if (status < 0) {
        mpi->failed = stream->status = status;
        stream->posted = stream->bytes;
    }
    if (stream->outstanding > 0)
        return;
    status = stream->status;
    stream->next = mpi->free_streams;
    mpi->free_streams = stream;
    weft__mpi_ended(mpi, owner, status, 0);
}
