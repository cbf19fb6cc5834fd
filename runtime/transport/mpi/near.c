/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of this rank's own host: they are reached by a channel through shared memory
 * (runtime/transport/shared/), the others by MPI. A pair of ranks is near or far for ever, so its
 * messages never overtake each other from one way to the other.
 *
 *   all on one host   the channel is all there is: who sleeps is woken, MPI is called when the
 *                     context begins and ends, and not between
 *   several hosts     both are polled; who sleeps wakes by itself to poll MPI, and is woken by
 *                     messages of its own host
 *   no channel        (the system does not allow it, or the rank is alone on its host) MPI
 *
 * The ranks of a host have a channel or none has.
 */
#include "runtime/transport/mpi/mpi_transport.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <stdio.h>
#include <string.h>

extern WEFT__PRIVATE const struct weft_transport weft__transport_shared; /* shared/about.c */

enum { GATHER_TAG = 1 }; /* before there are payloads, which have it later */

static struct weft__channel *channel_of(struct weft__transport *transport)
{
    return weft__mpi_of(transport)->channel;
}

/* ---- all on one host ---- */

static int near_send(struct weft__transport *transport, struct weft__xfer *xfer)
{
    int status = weft__mpi_ready(weft__mpi_of(transport));

    return status < 0 ? status : weft__channel_send(channel_of(transport), xfer);
}

static int near_send_device(struct weft__transport *transport, struct weft__xfer *xfer)
{
    int status = weft__mpi_ready(weft__mpi_of(transport));

    return status < 0 ? status : weft__channel_send_device(channel_of(transport), xfer);
}

static int near_reach(struct weft__transport *transport, struct weft__message *message,
                      struct weft__device *device)
{
    return weft__channel_reach(channel_of(transport), message, device);
}

static const char *near_reached(struct weft__transport *transport,
                                const struct weft__message *message, size_t offset, size_t *bytes)
{
    (void)transport;
    return weft__channel_reached(message, offset, bytes);
}

static void near_staged(struct weft__transport *transport, struct weft__xfer *xfer)
{
    weft__channel_staged(channel_of(transport), xfer);
}

static int near_control(struct weft__transport *transport, const struct weft__message *message)
{
    int status = weft__mpi_ready(weft__mpi_of(transport));

    return status < 0 ? status : weft__channel_control(channel_of(transport), message);
}

static int near_poll(struct weft__transport *transport)
{
    int status = weft__mpi_ready(weft__mpi_of(transport));

    return status < 0 ? status : weft__channel_poll(channel_of(transport));
}

static int near_pending(struct weft__transport *transport)
{
    return weft__channel_pending(channel_of(transport));
}

static int near_fetch(struct weft__transport *transport, struct weft__message *message,
                      struct weft__xfer *xfer)
{
    return weft__channel_fetch(channel_of(transport), message, xfer);
}

static const void *near_piece(struct weft__transport *transport, struct weft__message *message,
                              size_t offset, size_t *bytes)
{
    return weft__channel_piece(channel_of(transport), message, offset, bytes);
}

static void near_release(struct weft__transport *transport, struct weft__message *message,
                         int consumed)
{
    weft__channel_release(channel_of(transport), message, consumed);
}

static int near_read(struct weft__transport *transport, struct weft__message *message, int reading)
{
    return weft__channel_read(channel_of(transport), message, reading);
}

static int near_withdrawn(struct weft__transport *transport, struct weft__xfer *xfer)
{
    return weft__channel_withdrawn(channel_of(transport), xfer);
}

static int near_cancel(struct weft__transport *transport, struct weft__xfer *xfer)
{
    return weft__channel_cancel(channel_of(transport), xfer);
}

static void *near_alloc(struct weft__transport *transport, size_t bytes)
{
    return weft__channel_alloc(channel_of(transport), bytes);
}

static int near_free(struct weft__transport *transport, void *memory)
{
    return weft__channel_free(channel_of(transport), memory);
}

static void near_leave(struct weft__transport *transport)
{
    weft__channel_leave(channel_of(transport));
}

static _Atomic uint64_t *near_seat(struct weft__transport *transport, int place)
{
    return weft__channel_seat(channel_of(transport), place);
}

static const struct weft__transport_ops near_ops = {
    .send = near_send,
    .send_device = near_send_device,
    .reach = near_reach,
    .reached = near_reached,
    .staged = near_staged,
    .control = near_control,
    .poll = near_poll,
    .pending = near_pending,
    .fetch = near_fetch,
    .piece = near_piece,
    .release = near_release,
    .read = near_read,
    .withdrawn = near_withdrawn,
    .cancel = near_cancel,
    .alloc = near_alloc,
    .free = near_free,
    .hosts = weft__mpi_hosts,
    .leave = near_leave,
    .seat = near_seat,
    .close = weft__mpi_close,
};

/* ---- several hosts ---- */

static int is_near(struct weft__transport *transport, int rank)
{
    return weft__channel_reaches(channel_of(transport), rank);
}

static int mixed_send(struct weft__transport *transport, struct weft__xfer *xfer)
{
    return is_near(transport, xfer->message.to) ? near_send(transport, xfer)
                                                : weft__mpi_send(transport, xfer);
}

static int mixed_send_device(struct weft__transport *transport, struct weft__xfer *xfer)
{
    return is_near(transport, xfer->message.to) ? near_send_device(transport, xfer)
                                                : weft__mpi_send_device(transport, xfer);
}

static void mixed_staged(struct weft__transport *transport, struct weft__xfer *xfer)
{
    if (is_near(transport, xfer->message.to))
        near_staged(transport, xfer);
    else
        weft__mpi_staged(transport, xfer);
}

static int mixed_control(struct weft__transport *transport, const struct weft__message *message)
{
    return is_near(transport, message->to) ? near_control(transport, message)
                                           : weft__mpi_control(transport, message);
}

static int mixed_poll(struct weft__transport *transport)
{
    int near = weft__channel_poll(channel_of(transport));
    int far = weft__mpi_poll(transport);

    return near < 0 || far < 0 ? (near < far ? near : far) : near + far;
}

static int mixed_fetch(struct weft__transport *transport, struct weft__message *message,
                       struct weft__xfer *xfer)
{
    return weft__channel_owns(message) ? near_fetch(transport, message, xfer)
                                       : weft__mpi_fetch(transport, message, xfer);
}

/* What the channel has goes in pieces, or is read where it is. */
static int mixed_fetch_device(struct weft__transport *transport, struct weft__message *message,
                              struct weft__xfer *xfer)
{
    return weft__channel_owns(message) ? WEFT__OUT_OF_REACH
                                       : weft__mpi_fetch_device(transport, message, xfer);
}

static void mixed_release(struct weft__transport *transport, struct weft__message *message,
                          int consumed)
{
    if (weft__channel_owns(message))
        near_release(transport, message, consumed);
    else
        weft__mpi_release(transport, message, consumed);
}

static int mixed_read(struct weft__transport *transport, struct weft__message *message, int reading)
{
    return !weft__channel_owns(message) || near_read(transport, message, reading);
}

/* What MPI sends comes back with its send alone. */
static int mixed_withdrawn(struct weft__transport *transport, struct weft__xfer *xfer)
{
    return is_near(transport, xfer->message.to) ? near_withdrawn(transport, xfer)
                                                : WEFT_ERR_UNSUPPORTED;
}

static int mixed_cancel(struct weft__transport *transport, struct weft__xfer *xfer)
{
    int near = xfer->message.kind == WEFT__RECEIVE ? weft__channel_owns(xfer->source)
                                                   : is_near(transport, xfer->message.to);

    return near ? near_cancel(transport, xfer) : weft__mpi_cancel(transport, xfer);
}

/* Pieces are a channel's alone. */
static const struct weft__transport_ops mixed_ops = {
    .send = mixed_send,
    .send_device = mixed_send_device,
    .reach = near_reach,
    .reached = near_reached,
    .staged = mixed_staged,
    .control = mixed_control,
    .poll = mixed_poll,
    .pending = near_pending,
    .fetch = mixed_fetch,
    .fetch_device = mixed_fetch_device,
    .pull = weft__mpi_pull,
    .piece = near_piece,
    .release = mixed_release,
    .read = mixed_read,
    .withdrawn = mixed_withdrawn,
    .cancel = mixed_cancel,
    .alloc = near_alloc,
    .free = near_free,
    .hosts = weft__mpi_hosts,
    .leave = near_leave,
    .seat = near_seat,
    .close = weft__mpi_close,
};

/* ---- creation ---- */

/* One of the host's ranks collects and hands out. */
static int gather(void *user, const void *mine, size_t bytes, void *all)
{
    struct weft__mpi *mpi = user;
    const int *members = mpi->members;
    int count = mpi->member_count;
    int whole = (int)((size_t)count * bytes);
    MPI_Request request;
    int status = WEFT_OK;

    if (mpi->base.rank == members[0]) {
        memcpy(all, mine, bytes);
        for (int i = 1; i < count && status == WEFT_OK; i++)
            status =
                weft__mpi_wait(&request,
                               PMPI_Irecv((char *)all + (size_t)i * bytes, (int)bytes, MPI_BYTE,
                                          members[i], GATHER_TAG, mpi->comm, &request),
                               "MPI_Irecv");
        for (int i = 1; i < count && status == WEFT_OK; i++)
            status = weft__mpi_wait(
                &request,
                PMPI_Isend(all, whole, MPI_BYTE, members[i], GATHER_TAG, mpi->comm, &request),
                "MPI_Isend");
    } else {
        status = weft__mpi_wait(
            &request,
            PMPI_Isend(mine, (int)bytes, MPI_BYTE, members[0], GATHER_TAG, mpi->comm, &request),
            "MPI_Isend");
        if (status == WEFT_OK)
            status = weft__mpi_wait(
                &request,
                PMPI_Irecv(all, whole, MPI_BYTE, members[0], GATHER_TAG, mpi->comm, &request),
                "MPI_Irecv");
    }
    if (status < 0)
        mpi->failed = status;
    return status;
}

/* Everybody near: the transport is what the channel is. */
static void take_facts(struct weft__mpi *mpi)
{
    const struct weft_transport *shared = &weft__transport_shared;

    mpi->all_near = 1;
    mpi->base.ops = &near_ops;
    mpi->base.wakes = 1;
    mpi->base.in_order = 1;
    mpi->base.takes_back = 0;
    mpi->base.reports_deaths = 1;
    mpi->base.largest_message = SIZE_MAX;
    mpi->about = weft__transport_mpi;
    mpi->about.yield_ns = shared->yield_ns;
    mpi->about.helper_yield_ns = shared->helper_yield_ns;
    mpi->about.cost = shared->cost;
    mpi->base.about = &mpi->about;
}

int weft__mpi_near_find(struct weft__mpi *mpi)
{
    const struct weft__transport *base = &mpi->base;

    for (int rank = 0; rank < base->size; rank++) {
        if (mpi->hosts[rank] != mpi->hosts[base->rank])
            continue;
        if (rank == base->rank)
            mpi->member = mpi->member_count;
        mpi->members[mpi->member_count++] = rank;
    }
    mpi->room = weft__calloc(1, weft__channel_room(mpi->member_count));
    return mpi->room ? WEFT_OK : weft__error_memory("the channel to the ranks of this host");
}

int weft__mpi_near_open(struct weft__mpi *mpi, const char *who)
{
    struct weft__transport *base = &mpi->base;
    const struct weft__channel_config config = {.rank = mpi->member,
                                                .size = mpi->member_count,
                                                .ranks = mpi->members,
                                                .who = who,
                                                .room = mpi->room,
                                                .gather = gather,
                                                .user = mpi};
    int status;

    if (config.size == 1 && base->size > 1)
        return WEFT_OK; /* messages to oneself go by MPI */
    status = weft__channel_open(&mpi->channel, base, &config);
    weft__free(mpi->room);
    mpi->room = NULL;
    if (mpi->failed < 0)
        return mpi->failed;
    if (status < 0) {
        snprintf(mpi->no_channel, sizeof mpi->no_channel, "%s", weft_error_text());
        base->bell = &mpi->bell;
        return WEFT_OK;
    }
    base->seat = mpi->member;
    if (base->host_count == 1) {
        take_facts(mpi);
        return WEFT_OK;
    }
    base->ops = &mixed_ops;
    base->ordered = mpi->near;
    for (int i = 0; i < config.size; i++)
        mpi->near[mpi->members[i]] = 1;
    return WEFT_OK;
}

void weft__mpi_near_log(const struct weft__mpi *mpi, struct weft_context *context)
{
    char line[sizeof mpi->no_channel + 100];

    if (mpi->channel)
        snprintf(line, sizeof line, "%d of %d ranks are reached through shared memory",
                 mpi->member_count, mpi->base.size);
    else if (mpi->no_channel[0] != '\0')
        snprintf(line, sizeof line, "the %d ranks of this host are reached by MPI: %s",
                 mpi->member_count, mpi->no_channel);
    else
        return;
    weft_context_log(context, WEFT_LOG_INFO, line);
}
