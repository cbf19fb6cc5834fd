/* SPDX-License-Identifier: BSD-3-Clause */
/* The transport that is a channel and nothing else: its table. */
#include "runtime/base/alloc.h"
#include "runtime/transport/shared/inside.h"

static struct weft__channel *channel_of(const struct weft__transport *transport)
{
    return ((const struct weft__shared *)transport)->channel; /* its first member */
}

static int shared_send(struct weft__transport *transport, struct weft__xfer *xfer)
{
    return weft__channel_send(channel_of(transport), xfer);
}

static int shared_send_device(struct weft__transport *transport, struct weft__xfer *xfer)
{
    return weft__channel_send_device(channel_of(transport), xfer);
}

static int shared_reach(struct weft__transport *transport, struct weft__message *message,
                        struct weft__device *device)
{
    return weft__channel_reach(channel_of(transport), message, device);
}

static const char *shared_reached(struct weft__transport *transport,
                                  const struct weft__message *message, size_t offset, size_t *bytes)
{
    (void)transport;
    return weft__channel_reached(message, offset, bytes);
}

static void shared_staged(struct weft__transport *transport, struct weft__xfer *xfer)
{
    weft__channel_staged(channel_of(transport), xfer);
}

static int shared_control(struct weft__transport *transport, const struct weft__message *message)
{
    return weft__channel_control(channel_of(transport), message);
}

static int shared_poll(struct weft__transport *transport)
{
    return weft__channel_poll(channel_of(transport));
}

static int shared_pending(struct weft__transport *transport)
{
    return weft__channel_pending(channel_of(transport));
}

static int shared_fetch(struct weft__transport *transport, struct weft__message *message,
                        struct weft__xfer *xfer)
{
    return weft__channel_fetch(channel_of(transport), message, xfer);
}

static const void *shared_piece(struct weft__transport *transport, struct weft__message *message,
                                size_t offset, size_t *bytes)
{
    return weft__channel_piece(channel_of(transport), message, offset, bytes);
}

static void shared_release(struct weft__transport *transport, struct weft__message *message,
                           int consumed)
{
    weft__channel_release(channel_of(transport), message, consumed);
}

static int shared_read(struct weft__transport *transport, struct weft__message *message,
                       int reading)
{
    return weft__channel_read(channel_of(transport), message, reading);
}

static int shared_withdrawn(struct weft__transport *transport, struct weft__xfer *xfer)
{
    return weft__channel_withdrawn(channel_of(transport), xfer);
}

static int shared_cancel(struct weft__transport *transport, struct weft__xfer *xfer)
{
    return weft__channel_cancel(channel_of(transport), xfer);
}

static void *shared_alloc(struct weft__transport *transport, size_t bytes)
{
    return weft__channel_alloc(channel_of(transport), bytes);
}

static int shared_free(struct weft__transport *transport, void *memory)
{
    return weft__channel_free(channel_of(transport), memory);
}

static void shared_leave(struct weft__transport *transport)
{
    weft__channel_leave(channel_of(transport));
}

static _Atomic uint64_t *shared_seat(struct weft__transport *transport, int place)
{
    return weft__channel_seat(channel_of(transport), place);
}

static void shared_close(struct weft__transport *transport)
{
    weft__channel_close(channel_of(transport));
    weft__free(transport);
}

const struct weft__transport_ops weft__shared_ops = {
    .send = shared_send,
    .send_device = shared_send_device,
    .reach = shared_reach,
    .reached = shared_reached,
    .staged = shared_staged,
    .control = shared_control,
    .poll = shared_poll,
    .pending = shared_pending,
    .fetch = shared_fetch,
    .piece = shared_piece,
    .release = shared_release,
    .read = shared_read,
    .withdrawn = shared_withdrawn,
    .cancel = shared_cancel,
    .alloc = shared_alloc,
    .free = shared_free,
    .leave = shared_leave,
    .seat = shared_seat,
    .close = shared_close,
};
