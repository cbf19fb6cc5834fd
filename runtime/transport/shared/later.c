/* SPDX-License-Identifier: BSD-3-Clause */
/* What the channel calls and nothing has yet: goes as it comes. */
#include "runtime/base/error.h"
#include "runtime/transport/shared/inside.h"

int weft__bulk_open(struct weft__channel *channel, const struct weft__channel_config *config)
{
    (void)channel, (void)config;
    return WEFT_OK;
}

void weft__bulk_close(struct weft__channel *channel)
{
    (void)channel;
}

int weft__bulk_settled(struct weft__channel *channel)
{
    (void)channel;
    return 1;
}

int weft__bulk_send(struct weft__channel *channel, struct weft__peer *peer, struct weft__xfer *xfer)
{
    (void)channel, (void)peer;
    return weft__error(WEFT_ERR_UNSUPPORTED, "a message of %zu bytes is too long",
                       xfer->message.bytes);
}

int weft__bulk_line(struct weft__channel *channel, struct weft__peer *peer,
                    const struct weft__line *line)
{
    (void)line;
    weft__channel_lost(channel, peer, "it has sent a line of no kind");
    return WEFT_OK;
}

int weft__bulk_poll(struct weft__channel *channel)
{
    (void)channel;
    return 0;
}

int weft__bulk_pending(struct weft__channel *channel)
{
    (void)channel;
    return 0;
}

int weft__bulk_fetch(struct weft__channel *channel, struct weft__arrival *arrival,
                     struct weft__xfer *xfer)
{
    (void)channel, (void)arrival, (void)xfer;
    return WEFT_ERR_PEER;
}

const void *weft__bulk_piece(struct weft__channel *channel, struct weft__arrival *arrival,
                             size_t offset, size_t *bytes)
{
    (void)channel, (void)arrival, (void)offset, (void)bytes;
    return NULL;
}

void weft__bulk_release(struct weft__channel *channel, struct weft__arrival *arrival, int consumed)
{
    (void)consumed;
    weft__arrival_free(channel, arrival);
}

int weft__bulk_read(struct weft__channel *channel, struct weft__arrival *arrival, int reading)
{
    (void)channel, (void)arrival, (void)reading;
    return 1;
}

int weft__bulk_withdrawn(struct weft__channel *channel, struct weft__xfer *xfer)
{
    (void)channel, (void)xfer;
    return 1;
}

int weft__bulk_cancel(struct weft__channel *channel, struct weft__xfer *xfer)
{
    (void)channel, (void)xfer;
    return WEFT_IN_PROGRESS;
}

void weft__bulk_gone(struct weft__channel *channel, struct weft__peer *peer)
{
    (void)channel, (void)peer;
}

int weft__death_watch(struct weft__channel *channel)
{
    (void)channel;
    return WEFT_OK;
}

void weft__death_unwatch(struct weft__channel *channel)
{
    (void)channel;
}

int weft__death_poll(struct weft__channel *channel)
{
    (void)channel;
    return 0;
}

void *weft__channel_alloc(struct weft__channel *channel, size_t bytes)
{
    (void)channel, (void)bytes;
    return NULL;
}

int weft__channel_free(struct weft__channel *channel, void *memory)
{
    (void)channel, (void)memory;
    return 0;
}
