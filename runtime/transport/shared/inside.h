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
#include "runtime/transport/shared/launched.h"
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
    uint32_t how;    /* bulk's */
    uint32_t filled; /* in chunks: so many are there, at `where`; on a device: parts of the list */
};
_Static_assert(sizeof(struct weft__announcement) <= WEFT__LINE_PAYLOAD, "it fits into a line");

/* A message that has arrived: the engine's from weft__engine_message() to release(). */
struct weft__arrival {
    struct weft__message message;           /* .own: the peer's index */
    size_t capacity;                        /* of the payload behind it */
    size_t cost;                            /* what its sender gets back of `ahead_bytes` */
    struct weft__announcement announcement; /* CH_BULK; copied and checked */
    void *bulk;                             /* bulk's own */
    struct weft__reached *reached;          /* what a device reads of it; or NULL (bulk_device.c) */
    _Alignas(64) char payload[];
};

/* A line that waits for room in a ring; its payload is behind it. */
struct weft__queued {
    struct weft__message message; /* WEFT__CH_LINE */
    struct weft__line line;
    size_t bytes; /* of payload that does not fit into the line */
    int kept;     /* it is part of its peer */
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
    _Alignas(64) const struct weft__line *in;
    _Atomic uint32_t in_taken; /* position of the next line. Written by the driver, alone */
    _Atomic uint32_t state;    /* enum weft__peer_state */
    const char *in_payload;
    uint64_t in_payload_taken;
    uint64_t in_consumed;
    uint32_t in_lines_told; /* of in_taken and in_payload_taken, as the peer has heard */
    uint64_t in_payload_told;
    struct weft__credits *in_credits; /* in our region; we write it */
    int index;                        /* among the members */
    int rank;                         /* of the transport */

    /* outgoing: our ring in its region */
    _Alignas(64) struct weft__line *out;
    uint32_t out_position; /* of the next line */
    uint32_t out_limit;    /* position before which there is room, as last seen */
    char *out_payload;
    uint64_t out_payload_position, out_payload_limit;
    uint64_t out_cost, out_cost_limit;
    struct weft__shared_region *region;       /* as this process sees it */
    struct weft__credits *out_credits;        /* in that region; it writes it */
    struct weft__message *queue, **queue_end; /* what waits for room, in order */
    _Atomic uint32_t out_taken;               /* as last seen of the peer's credits */
    _Atomic uint32_t out_waits;               /* the queue is not empty: pending() looks, too */
    uint32_t want_at;                         /* where a WEFT__LINE_WANT stands, ... */
    int wanting;                              /* ... if one stands in the ring */
    struct weft__queued leave, closed;        /* so that these need no memory */

    int flushing;  /* the head of the queue is being sent */
    int told;      /* the engine knows that it is dead */
    int announced; /* arrivals whose payload is with it */
    char how[160]; /* WEFT__PEER_DEAD: in words */

    /* open.c's */
    size_t mapped_bytes; /* 0: the mapping is the owner's, in this process */
    int pid;             /* as the kernel says */
    int pidfd;           /* -1: none */
    struct weft__launched launched;

    /* bulk's, death's */
    void *bulk;
    void *death;
    uint64_t owner;              /* of its device, whose memory ... */
    struct weft__device *reader; /* ... this one has open; 0: none has been */
};

struct weft__channel {
    struct weft__transport *transport;
    uint32_t line_mask;
    int rank; /* among the members */
    int size;
    int looked_at; /* the first so many peers are looked at one after the other; 0: by summary */
    int closing;   /* what arrives is thrown away */
    int left;      /* this member has said so, ... */
    int closed;    /* ... and that it is closed */
    int bulk_busy; /* weft__bulk_poll() is called at each poll */
    uint32_t urgent_seen; /* of region->urgent */
    int taking_urgent;    /* all lines are taken, whoever waits for them */
    /* Something has happened that poll is to look at: a death. Set by any thread, which then rings
     * the bell. */
    _Atomic uint32_t alarm;
    _Atomic uint32_t lost;            /* a peer is dead, and the engine does not know */
    _Atomic uint32_t queues;          /* peers whose queue is not empty */
    struct weft__message *delivering; /* its payload is in the ring; NULL: it was released */
    struct weft__arrival *free_small, *free_large;
    struct weft__peer *peers;           /* [size], this member among them */
    struct weft__shared_region *region; /* this member's */
    int *member_of;                     /* [transport->size]: the member that a rank is, or -1 */
    _Atomic int deaths;                 /* members that are dead */
    struct weft__layout layout;
    void *open;  /* open.c's own */
    void *bulk;  /* bulk's own */
    void *arena; /* arena.c's own */
    void *death; /* death.c's own */
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
/* A peer is dead, and nothing that it has announced is held any more: gives its memory back. There
 * are zeros in its place, so that whoever still looks finds nothing. */
void weft__channel_forget(struct weft__channel *channel, struct weft__peer *peer);

/* ---- ring.c, channel.c: for bulk and death ---- */

/* Sends a line to a peer (its kind, tag, object, version, bytes, part, turn and payload; `bytes` at
 * most WEFT__LINE_PAYLOAD, but for kinds without payload); where there is no room now, it is
 * queued. Peers that are closed or dead get nothing: WEFT_OK. Negative: no memory to queue it. */
int weft__channel_line(struct weft__channel *channel, struct weft__peer *peer,
                       const struct weft__line *line);
/* The peer has written what cannot be, or has died: nothing of it is read any more. The next poll
 * tells the engine (`how` in words, copied), and ends what waits for it. Once; later calls do
 * nothing. */
void weft__channel_lost(struct weft__channel *channel, struct weft__peer *peer, const char *how);
/* Takes all that a peer has written: before its death is told. Returns how much. */
int weft__channel_drain(struct weft__channel *channel, struct weft__peer *peer);
/* Hands a record to the engine, or, while the channel closes, refuses it. */
void weft__channel_deliver(struct weft__channel *channel, struct weft__arrival *arrival);
/* A record for something that arrives, with room for `bytes` behind it; NULL: no memory. Given back
 * by weft__arrival_free(). */
struct weft__arrival *weft__arrival_take(struct weft__channel *channel, size_t bytes);
void weft__arrival_free(struct weft__channel *channel, struct weft__arrival *arrival);
/* Fills in what a line says of its message, and from and to. */
void weft__arrival_fill(const struct weft__channel *channel, const struct weft__peer *peer,
                        struct weft__arrival *arrival, const struct weft__line *line);
/* "rank 3 has destroyed its context", "... has died: ...": WEFT_ERR_PEER. */
int weft__channel_refused(const struct weft__peer *peer);

static inline struct weft__arrival *weft__arrival_of(struct weft__message *message)
{
    return (struct weft__arrival *)message; /* its first member */
}

/* ---- bulk_*.c ---- */

int weft__bulk_open(struct weft__channel *channel, const struct weft__channel_config *config);
/* Frees what it has; no peer is there any more. */
void weft__bulk_close(struct weft__channel *channel);
/* While the channel closes: 0 if a payload of this member's is being read, ask again. */
int weft__bulk_settled(struct weft__channel *channel);
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
void weft__bulk_staged(struct weft__channel *channel, const struct weft__xfer *xfer);
int weft__bulk_reach(struct weft__channel *channel, struct weft__arrival *arrival,
                     struct weft__device *device);
const char *weft__bulk_reached(const struct weft__arrival *arrival, size_t offset, size_t *bytes);
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

/* ---- ring.c, for channel.c ---- */

/* One line and its payload: `bytes` at `data`, or of a send. 1: published; 0: no room; negative:
 * the peer has become lost. */
struct weft__xfer;
int weft__ring_put(struct weft__channel *channel, struct weft__peer *peer,
                   const struct weft__line *line, size_t bytes, const void *data,
                   const struct weft__xfer *xfer);
/* Whether there is room for the line of a send, which leaves some to others. */
int weft__ring_may_send(struct weft__channel *channel, struct weft__peer *peer);
/* Asks a peer whose ring is full to ring our bell when it has read it. */
void weft__ring_want(struct weft__channel *channel, struct weft__peer *peer);
/* What an eager message takes of `ahead_bytes`: its receiver may have to keep it. */
#define WEFT__AHEAD_COST(bytes) (((bytes) + 127) & ~(size_t)63)
/* Whether a peer's credit allows a message that costs so much. */
int weft__ring_may(struct weft__channel *channel, struct weft__peer *peer, size_t cost);
/* Whether a peer has taken lines since weft__ring_put() has found no room. */
int weft__ring_moved(const struct weft__peer *peer);
/* Whether a line of a peer is there to be taken. Any thread. */
int weft__ring_has(const struct weft__channel *channel, const struct weft__peer *peer);
/* Whether any line is there. Any thread. */
int weft__ring_pending(const struct weft__channel *channel);
/* Takes what has arrived. Returns how many lines. */
int weft__ring_take(struct weft__channel *channel);

/* ---- channel.c, for ring.c ---- */

/* A line has come by which a peer parts: WEFT__LINE_LEAVE or WEFT__LINE_CLOSED, or of no kind. */
void weft__channel_parted(struct weft__channel *channel, struct weft__peer *peer, int kind);
/* There was no memory for what has come: nobody may sleep. */
void weft__channel_again(struct weft__channel *channel);

/* ---- ops.c ---- */

/* The transport that is a channel and nothing else. */
struct weft__shared {
    struct weft__transport base;
    struct weft__channel *channel;
};
extern const struct weft__transport_ops weft__shared_ops;

#endif
