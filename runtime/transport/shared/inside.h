/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The channel from inside: what a member keeps for itself, and what the files of this folder call
 * of each other.
 *
 *   layout.c   where things are in a region
 *   ring.c     lines and payload: publishing, taking, credits, full rings
 *   channel.c  the functions of channel.h that are not bulk's
 *   open.c     makes regions, meets the others, maps theirs
 *   bulk_*.c   payload that stays with its sender; arena.c: the arena
 *   death.c    who has died, and how
 */
#ifndef WEFT_RUNTIME_TRANSPORT_SHARED_INSIDE_H
#define WEFT_RUNTIME_TRANSPORT_SHARED_INSIDE_H

#include "runtime/transport/shared/channel.h"
#include "runtime/transport/shared/region.h"
#include <weft/status.h>

/* message.flags of what a channel has under way: WEFT__OF_CHANNEL and one of these. */
enum {
    WEFT__OF_CHANNEL = 0x80,
    WEFT__CH_EAGER = 1,  /* arrived: the payload is in the ring or behind the record */
    WEFT__CH_BULK = 2,   /* arrived: announced */
    WEFT__CH_QUEUED = 3, /* a send that waits for the ring */
    WEFT__CH_LINE = 4,   /* a line that waits for the ring */
    WEFT__CH_SENT = 5    /* a send that was announced */
};

/* What an announcement says, in a line's payload. */
struct weft__announcement {
    uint64_t bytes;
    uint64_t where; /* bytes from the start of the sender's arena, or an address of its process */
    uint32_t slot;
    uint32_t generation;
    uint32_t how; /* bulk's */
    uint32_t unused;
};
_Static_assert(sizeof(struct weft__announcement) <= WEFT__LINE_PAYLOAD, "it fits into a line");

/* A message that has arrived: the engine's from weft__engine_message() to release(). */
struct weft__arrival {
    struct weft__message message; /* .own: the peer's index */
    size_t capacity;              /* of the payload behind it; which list it goes back to */
    size_t cost;                  /* what its sender gets back of `ahead_bytes` */
    struct weft__announcement announcement; /* CH_BULK; copied and checked */
    void *bulk;                             /* bulk's own */
    _Alignas(64) char payload[];
};

/* How a peer is. Changed by the driver. */
enum weft__peer_state {
    WEFT__PEER_HERE,
    WEFT__PEER_LEFT,   /* its WEFT__LINE_LEAVE has come: it still receives */
    WEFT__PEER_CLOSED, /* its WEFT__LINE_CLOSED has come */
    WEFT__PEER_DEAD    /* it has died, or has written what cannot be: `how` says which */
};

/* Another member (or, for messages to oneself, this one). Two halves: what it writes to us, and
 * what we write to it. The driver's, but for what is atomic. */
struct weft__peer {
    /* incoming: its ring in our region */
    struct weft__line *in;
    char *in_payload;
    struct weft__credits *in_credits; /* in our region; we write it */
    uint64_t in_payload_taken;
    uint64_t in_consumed;
    /* The next line to take. Written by the driver; pending() reads it. */
    _Atomic uint32_t in_taken;

    /* outgoing: our ring in its region */
    uint32_t out_position; /* of the next line */
    uint32_t out_limit;    /* position before which there is room, as last seen */
    uint64_t out_payload;
    uint64_t out_payload_limit;
    uint64_t out_cost, out_cost_limit;
    struct weft__line *out;
    char *out_payload_at;
    struct weft__credits *out_credits;        /* in its region; it writes it */
    struct weft__message *queue, **queue_end; /* what waits for room, in order */
    int wanting;                              /* a WEFT__LINE_WANT stands at the end of the ring */

    struct weft__region *region; /* as this process sees it */
    int index;                   /* among the members */
    int rank;                    /* of the transport */
    enum weft__peer_state state;
    char *how; /* WEFT__PEER_DEAD: in words; never freed before the channel */

    /* open.c's */
    size_t mapped_bytes; /* 0: the mapping is the owner's, in this process */
    int pid;             /* as the kernel says */
    int pidfd;           /* -1: none */

    /* bulk's, death's */
    void *bulk;
    void *death;
};

struct weft__channel {
    struct weft__transport *transport;
    struct weft__layout layout;
    struct weft__region *region; /* this member's */
    int rank;                    /* among the members */
    int size;
    int *member_of;           /* [transport->size]: the member that a rank is, or -1 */
    struct weft__peer *peers; /* [size], this member among them */
    int summarised; /* rings are looked for in the region's summary, not one after the other */
    int many;       /* peers that poll looks at without a summary */
    int left;       /* this member has said so */
    size_t queued;  /* messages in all queues */
    _Atomic uint32_t queues; /* peers whose queue is not empty: pending() looks at their credits */
    struct weft__arrival *free_small, *free_large;
    /* Something has happened that poll is to look at: a death. Set by any thread, which then rings
     * the bell. */
    _Atomic uint32_t alarm;
    void *open;    /* open.c's own */
    void *bulk;    /* bulk's own */
    int bulk_busy; /* weft__bulk_poll() is called at each poll */
    void *arena;   /* arena.c's own */
    void *death;   /* death.c's own */
};

/* ---- channel.c: the parts of opening and closing (open.c calls them) ---- */

/* A channel over this member's region, which weft__region_init() has filled in; sets
 * transport->bell. No peer is there but itself. */
int weft__channel_create(struct weft__channel **channel, struct weft__transport *transport,
                         const struct weft__channel_config *config,
                         const struct weft__layout *layout, void *region);
/* A peer's region is there, and has been checked. Before the first message. */
void weft__channel_attach(struct weft__channel *channel, int member, void *region);
/* Frees what weft__channel_create() has made: regions and descriptors are open.c's. No protocol. */
void weft__channel_discard(struct weft__channel *channel);

/* ---- open.c ---- */

/* The channel has been closed: unmaps all regions, closes descriptors. */
void weft__channel_unmap(struct weft__channel *channel);

/* ---- ring.c, channel.c: for bulk and death ---- */

/* Sends a line to a peer (its kind, tag, object, version, bytes, part, turn and payload; `bytes` at
 * most WEFT__LINE_PAYLOAD, but for kinds without payload); where there is no room now, it is
 * queued. Peers that are closed or dead get nothing: WEFT_OK. Negative: no memory to queue it. */
int weft__channel_line(struct weft__channel *channel, struct weft__peer *peer,
                       const struct weft__line *line);
/* The peer has written what cannot be, or has died: nothing of it is read any more, what waits for
 * it ends, weft__engine_died() (`how` in words, copied). Once; later calls do nothing. */
void weft__channel_lost(struct weft__channel *channel, struct weft__peer *peer, const char *how);
/* Takes all that a peer has written: before its death is told. Returns how much. */
int weft__channel_drain(struct weft__channel *channel, struct weft__peer *peer);
/* A record for something that arrives, with room for `bytes` behind it; NULL: no memory. Given back
 * by weft__arrival_free(). */
struct weft__arrival *weft__arrival_take(struct weft__channel *channel, size_t bytes);
void weft__arrival_free(struct weft__channel *channel, struct weft__arrival *arrival);
/* Hands a record to the engine; fills in what a line says of the message, and from and to. */
void weft__arrival_fill(const struct weft__channel *channel, const struct weft__peer *peer,
                        struct weft__arrival *arrival, const struct weft__line *line);

static inline struct weft__arrival *weft__arrival_of(struct weft__message *message)
{
    return (struct weft__arrival *)message; /* its first member */
}

/* ---- bulk_*.c ---- */

int weft__bulk_open(struct weft__channel *channel, const struct weft__channel_config *config);
/* Frees what it has; no peer is there any more. */
void weft__bulk_close(struct weft__channel *channel);
/* As send; announces the payload (of 0 bytes, too) by weft__channel_line(). */
int weft__bulk_send(struct weft__channel *channel, struct weft__peer *peer,
                    struct weft__xfer *xfer);
/* A line of WEFT__LINE_BULK or above: a private copy, of which nothing has been checked. May call
 * weft__channel_lost(). WEFT_ERR_MEMORY: it is tried again later, the line stays where it is. */
int weft__bulk_line(struct weft__channel *channel, struct weft__peer *peer,
                    const struct weft__line *line);
/* What goes on without lines: pieces of payload that arrive or leave. Returns how many things it
 * did. Called at each poll if weft__channel.bulk_busy. */
int weft__bulk_poll(struct weft__channel *channel);
int weft__bulk_pending(struct weft__channel *channel); /* any thread */
int weft__bulk_fetch(struct weft__channel *channel, struct weft__arrival *arrival,
                     struct weft__xfer *xfer);
const void *weft__bulk_piece(struct weft__channel *channel, struct weft__arrival *arrival,
                             size_t offset, size_t *bytes);
void weft__bulk_release(struct weft__channel *channel, struct weft__arrival *arrival, int consumed);
int weft__bulk_read(struct weft__channel *channel, struct weft__arrival *arrival, int reading);
int weft__bulk_withdrawn(struct weft__channel *channel, struct weft__xfer *xfer);
int weft__bulk_cancel(struct weft__channel *channel, struct weft__xfer *xfer);
/* A peer is closed or dead: sends to it end with WEFT_ERR_PEER, what comes from it is not read any
 * more. */
void weft__bulk_gone(struct weft__channel *channel, struct weft__peer *peer);

/* ---- death.c ---- */

/* Watches the peers' processes: sets the alarm and rings the bell when one ends. */
int weft__death_watch(struct weft__channel *channel);
void weft__death_unwatch(struct weft__channel *channel);
/* From poll, after an alarm: weft__channel_drain(), weft__channel_lost() of who has ended. Returns
 * how many. */
int weft__death_poll(struct weft__channel *channel);

#endif
