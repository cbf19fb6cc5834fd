/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The channel: messages between the processes of one machine, through memory that all of them map.
 *
 * The shared transport is a channel and nothing else; the MPI transport has one for the ranks of
 * its own host. Functions have the meaning, and the callers, of those of the same name in
 * runtime/engine/transport.h.
 */
#ifndef WEFT_RUNTIME_TRANSPORT_SHARED_CHANNEL_H
#define WEFT_RUNTIME_TRANSPORT_SHARED_CHANNEL_H

#include "runtime/engine/transport.h"

struct weft__channel;

struct weft__channel_config {
    int rank, size;     /* among the members */
    const int *ranks;   /* the members' ranks of the transport, ascending; NULL: the same numbers */
    size_t eager_bytes; /* 0: 8 KiB; WEFT_EAGER_NONE: no payload is copied into messages */
    size_t ahead_bytes; /* of eager payload that a rank has under way to another; 0: 512 KiB */
    size_t arena_bytes; /* 0: by the machine's memory */
    int large;          /* enum weft_shared_large */
    const char *who;    /* for error texts */
    void *room;         /* of weft__channel_room() bytes, zeroed; NULL: it is allocated, and who has
                         * no memory for it gathers nothing, which the others are to notice */
    /* Collective over the members: all[i] := member i's `bytes` bytes. Negative: failed, with a
     * text. Used a fixed number of times. */
    int (*gather)(void *user, const void *mine, size_t bytes, void *all);
    void *user;
};

/* Bytes without which a member cannot even say that it has no memory. */
WEFT__PRIVATE size_t weft__channel_room(int size);
/* Collective over the members: all succeed, or all fail. Sets transport->bell, to the one in the
 * member's region; messages go to transport->engine, which is set later. */
WEFT__PRIVATE int weft__channel_open(struct weft__channel **channel,
                                     struct weft__transport *transport,
                                     const struct weft__channel_config *config);
/* Whether a rank of the transport is a member. */
WEFT__PRIVATE int weft__channel_reaches(const struct weft__channel *channel, int rank);
WEFT__PRIVATE int weft__channel_send(struct weft__channel *channel, struct weft__xfer *xfer);
WEFT__PRIVATE int weft__channel_send_device(struct weft__channel *channel, struct weft__xfer *xfer);
WEFT__PRIVATE int weft__channel_reach(struct weft__channel *channel, struct weft__message *message,
                                      struct weft__device *device);
WEFT__PRIVATE const char *weft__channel_reached(const struct weft__message *message, size_t offset,
                                                size_t *bytes);
WEFT__PRIVATE void weft__channel_staged(struct weft__channel *channel,
                                        const struct weft__xfer *xfer);
WEFT__PRIVATE int weft__channel_control(struct weft__channel *channel,
                                        const struct weft__message *message);
WEFT__PRIVATE int weft__channel_poll(struct weft__channel *channel);
WEFT__PRIVATE int weft__channel_pending(struct weft__channel *channel); /* any thread */
WEFT__PRIVATE int weft__channel_fetch(struct weft__channel *channel, struct weft__message *message,
                                      struct weft__xfer *xfer);
WEFT__PRIVATE const void *weft__channel_piece(struct weft__channel *channel,
                                              struct weft__message *message, size_t offset,
                                              size_t *bytes);
WEFT__PRIVATE void weft__channel_release(struct weft__channel *channel,
                                         struct weft__message *message, int consumed);
WEFT__PRIVATE int weft__channel_read(struct weft__channel *channel, struct weft__message *message,
                                     int reading);
WEFT__PRIVATE int weft__channel_withdrawn(struct weft__channel *channel, struct weft__xfer *xfer);
WEFT__PRIVATE int weft__channel_cancel(struct weft__channel *channel, struct weft__xfer *xfer);
/* Whether a message that has arrived, or a send that is under way, is a channel's, where a
 * transport has other ways too. */
WEFT__PRIVATE int weft__channel_owns(const struct weft__message *message);
/* After all that was sent: weft__engine_left() at the others. */
WEFT__PRIVATE void weft__channel_leave(struct weft__channel *channel);
/* Takes one step towards the end; the engine has no more runs, and hears nothing any more. 1:
 * nothing of this member's is under way that others need; 0: they are late, ask again. */
WEFT__PRIVATE int weft__channel_settled(struct weft__channel *channel);
/* Waits until it is settled, and frees it. */
WEFT__PRIVATE void weft__channel_close(struct weft__channel *channel);
/* How many members are dead, or broken, as this one knows. Any thread. */
WEFT__PRIVATE int weft__channel_deaths(const struct weft__channel *channel);
/* Of a member: ops->seat. */
WEFT__PRIVATE _Atomic uint64_t *weft__channel_seat(const struct weft__channel *channel, int member);

/* Memory in the arena: zeroed, aligned to 64 bytes, to a page from 4 KiB on. NULL: none is left.
 * Any thread. */
WEFT__PRIVATE void *weft__channel_alloc(struct weft__channel *channel, size_t bytes);
/* 0: it is not of the arena. Any thread. */
WEFT__PRIVATE int weft__channel_free(struct weft__channel *channel, void *memory);

#endif
