/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MPI transport inside: active messages over a private communicator, to ranks of other hosts;
 * those of the own one are reached by a channel (near.c).
 *
 *   tag 0         packets: a wire header and up to WEFT__MPI_EAGER bytes of payload. Every rank
 *                 keeps a ring of receives from any source posted for them; they match in posting
 *                 order.
 *   tag 1 + s % W payloads of larger messages, announced by a packet that carries the sequence
 *                 number s of the message among those to its receiver (W = 2^tag_bits). Between
 *                 ranks of one machine they go in chunks of the same tag, which arrive in order:
 *                 MPI passes those through shared memory, where a longer message would first be
 *                 agreed on (16 KiB in 1.1 us instead of 3.7; 64 KiB in 6 instead of 9, or 17
 *                 instead of 12 while the machine hands cache lines over slowly). From
 *                 WEFT__MPI_STREAM_MAX on MPI's single copy is better.
 *
 * Where one side has a payload on a device it goes in segments, as the receiver asks for them
 * (pulled.c); they have such a tag, too.
 *
 * A tag may be used again only when the earlier payload has been received. The receiver therefore
 * acknowledges half windows of W / 2 payloads in their order, each when all of it is in, and a
 * sender begins half window h only after h - 1 acknowledgements (that of h - 2, which had the same
 * tags, is among them); until then sends wait in `delayed`. Two counters a peer are enough, since
 * no more than two half windows are ever open.
 */
#ifndef WEFT_RUNTIME_TRANSPORT_MPI_MPI_TRANSPORT_H
#define WEFT_RUNTIME_TRANSPORT_MPI_MPI_TRANSPORT_H

#include <mpi.h>
#include <stdatomic.h>

#include "runtime/base/error.h"
#include "runtime/engine/transport.h"
#include "runtime/transport/shared/channel.h"
#include <weft/context.h>

enum {
    WEFT__MPI_EAGER = 8192,     /* payload bytes that travel in a packet */
    WEFT__MPI_SMALL = 128,      /* payload bytes of the packets used for control */
    WEFT__MPI_RING = 16,        /* receives posted */
    WEFT__MPI_EAGER_MAX = 1024, /* packets sent and not done, before payloads stop being copied */
    WEFT__MPI_TEST = 64,        /* requests tested in one poll */
    WEFT__MPI_CHUNK = 8192,     /* bytes of a chunk */
    WEFT__MPI_WINDOW = 16,      /* chunks of one message under way */
    WEFT__MPI_ASKED = 4,        /* segments of one message that its receiver has asked for */
    WEFT__MPI_STREAM_MAX = 128 << 10
};

/* wire.kind: enum weft__message_kind, or one of these. */
enum {
    WEFT__WIRE_BULK = 16,
    WEFT__WIRE_ACK,
    WEFT__WIRE_STREAM,
    WEFT__WIRE_PULLED, /* a payload that goes in segments, and what is said of it: */
    WEFT__WIRE_WANT,   /* bytes from `version` on */
    WEFT__WIRE_DROP,
    WEFT__WIRE_GONE /* but for the first bytes */
};

struct weft__wire {
    uint64_t version;
    uint64_t bytes;
    uint64_t sequence; /* bulk */
    uint64_t object;
    uint32_t tag;
    uint8_t kind;
    uint8_t turn; /* with `part` as in the message */
    uint16_t part;
};

/* What is sent or received with tag 0, and the message it becomes on arrival. */
struct weft__packet {
    struct weft__message message; /* first: the engine hands it back */
    uint64_t sequence;
    void *temporary;      /* where an unwanted payload goes */
    size_t capacity;      /* of payload */
    unsigned char bulk;   /* the payload comes by itself */
    unsigned char stream; /* in chunks */
    unsigned char pull;   /* in segments */
    unsigned char fetched;
    size_t segment;                  /* of these, bytes */
    struct weft__mpi_pulled *pulled; /* NULL: none has been asked for */
    /* The payload lies on a cache line of its own, the header right before it. */
    _Alignas(64) unsigned char padding[64 - sizeof(struct weft__wire)];
    struct weft__wire wire;
    unsigned char payload[];
};

/* What an active request belongs to. */
enum weft__mpi_use {
    WEFT__MPI_PACKET,
    WEFT__MPI_SEND,
    WEFT__MPI_FETCH,
    WEFT__MPI_DRAIN,
    WEFT__MPI_CHUNK_OF, /* one chunk of a stream */
    WEFT__MPI_PART      /* a segment */
};

struct weft__mpi_owner {
    enum weft__mpi_use use;
    struct weft__packet *packet;     /* PACKET, FETCH, DRAIN */
    struct weft__xfer *xfer;         /* SEND, FETCH: its handle is the index of the request */
    struct weft__mpi_stream *stream; /* CHUNK_OF */
    struct weft__mpi_part *part;     /* PART */
};

/* A segment that is under way. */
struct weft__mpi_part {
    struct weft__mpi_pulled *of; /* NULL: none is */
    size_t offset, bytes;
    size_t index; /* of its request */
};

struct weft__mpi_want {
    size_t offset, bytes;
};

/* A payload that goes in segments: at its sender since it was announced, at its receiver since that
 * has asked for one. */
struct weft__mpi_pulled {
    struct weft__mpi_pulled *next; /* in a list */
    struct weft__xfer *xfer; /* of the send; or what it is fetched into; NULL: the engine pulls it,
                              * or the send has ended */
    struct weft__packet *packet; /* at the receiver; else NULL */
    uint64_t sequence;
    size_t bytes;
    size_t begun, ended; /* so much has been sent, or asked for; and has left, or come */
    int peer, tag;
    unsigned under_way; /* of these: */
    struct weft__mpi_part parts[WEFT__MPI_ASKED];
    int stopped; /* its run has failed */
    /* The sender's: */
    struct weft__mpi_want wanted[WEFT__MPI_ASKED]; /* that are not there yet, in any order */
    unsigned wanted_count;
    int asked, dropped; /* the receiver has wanted some; and wants no more */
    int gone_told;
    /* The receiver's: */
    struct weft__xfer *stopper; /* what was being received by the engine when it was stopped */
    int gone;                   /* the sender sends no more */
    int status;                 /* of what is fetched */
};

/* A payload that goes in chunks; posted in order, at most a window of them at a time. */
struct weft__mpi_stream {
    struct weft__mpi_stream *next; /* in a list */
    enum weft__mpi_use use;        /* SEND, FETCH, DRAIN */
    struct weft__xfer *xfer;       /* SEND, FETCH */
    struct weft__packet *packet;   /* FETCH, DRAIN */
    size_t bytes;
    size_t posted;
    unsigned outstanding; /* chunks */
    int peer;
    int tag;
    int status;
};

struct weft__mpi_peer {
    uint64_t sequence;    /* of the next bulk message to it */
    uint64_t acks;        /* received from it */
    uint64_t packets;     /* sent to it */
    uint64_t oldest;      /* half window from it that is not complete */
    uint32_t received[2]; /* bulk messages from it that are in, by parity of their half window */
    int streams;          /* payloads go in chunks: MPI passes them through memory */
};

/* Where a rank is: equal numbers for what two of them share. hosts.c. */
struct weft__mpi_home {
    uint64_t kernel;
    uint64_t network;
    uint64_t host; /* what WEFT_HOSTS says included */
};

struct weft__mpi {
    struct weft__transport base;
    struct weft__bell bell;
    MPI_Comm comm;
    struct weft__mpi *open_next, *open_previous; /* of those that MPI_Finalize has to know */
    int open;                                    /* it is in that list */
    atomic_int finalized;
    int held_open;       /* close() is to be postponed: creation is not agreed on yet */
    int closed;          /* and was called */
    int closing;         /* what arrives is thrown away */
    int final;           /* acknowledgements are no longer needed */
    int failed;          /* status of the transport as a whole */
    unsigned half_shift; /* half a window is 1 << half_shift */
    struct weft__mpi_peer *peers;
    struct weft__mpi_home own_home, *homes;
    int *hosts;
    /* The ranks of this host, which a channel reaches. */
    struct weft__channel *channel; /* NULL: MPI reaches them */
    int *members, member_count;
    int member;                         /* this rank, among them */
    void *room;                         /* for the channel that is being opened */
    unsigned char *near;                /* of a rank: 1 if it is one of them and there is one */
    int all_near;                       /* everybody is one of them: nothing goes by MPI */
    int settled;                        /* closing: nobody needs anything of the channel's */
    char no_channel[WEFT__ERROR_BYTES]; /* why there is none, or "" */
    struct weft_transport about;        /* of a transport that is a channel alone */
    uint64_t *totals;                   /* a number for each rank, for collective calls */
    uint64_t expected;                  /* packets sent to this rank in all; known at the end */
    /* Posted receives. */
    MPI_Request ring_requests[WEFT__MPI_RING];
    struct weft__packet *ring[WEFT__MPI_RING]; /* NULL: not posted for lack of memory */
    unsigned head;                             /* the one posted first */
    unsigned quiet;                            /* polls since anything came */
    uint64_t received;                         /* packets */
    size_t held;                               /* packets that the engine has */
    /* Requests under way; dense. */
    MPI_Request *requests;
    struct weft__mpi_owner *owners;
    size_t active, requests_capacity, owners_capacity;
    size_t cursor; /* where the next poll tests */
    size_t packets_active;
    /* Lists through message.next. */
    struct weft__message *free_packets, *free_small;
    struct weft__message *delayed, **delayed_end;
    struct weft__message *undrained; /* unwanted payloads that there was no memory for */
    struct weft__mpi_stream *free_streams;
    struct weft__mpi_pulled *lent, *pulling, *free_pulled;
    size_t stopped;          /* of `lent`, those to be ended */
    int asked, takes_device; /* whether MPI takes memory of devices; it has said so */
    /* Space for datatypes of lists. */
    int *lengths;
    MPI_Aint *places;
    size_t lengths_capacity, places_capacity;
};

extern WEFT__PRIVATE const struct weft_transport weft__transport_mpi; /* about.c */

static inline struct weft__mpi *weft__mpi_of(struct weft__transport *transport)
{
    return (struct weft__mpi *)transport; /* its first member */
}

/* weft__error() for an MPI call that returned `code`. */
int weft__mpi_error(int code, const char *call, int peer);

/* ---- mpi.c, world.c ---- */

/* Waits for a request of creation, where nothing else is under way; `code` and `call`: of the call
 * that made it. */
int weft__mpi_wait(MPI_Request *request, int code, const char *call);
/* Of the table: poll for what comes by MPI; and hosts and close. */
int weft__mpi_poll(struct weft__transport *transport);
int weft__mpi_hosts(struct weft__transport *transport, int *numbers);
void weft__mpi_close(struct weft__transport *transport);
/* 1 if MPI can be finalised: contexts have all been destroyed, and no process of one was seen to
 * die, which MPI would wait for. Any thread. */
int weft__mpi_may_finalize(void);
/* weft_context_create_world() here, which libweft finds by this name. */
WEFT__PRIVATE int weft__mpi_create_world(struct weft_context **context,
                                         const struct weft_context_config *config);

/* ---- hosts.c ---- */

/* Where the calling process is; WEFT_ERR_INVALID: WEFT_HOSTS is wrong. */
int weft__mpi_home(struct weft__mpi_home *home);
/* Numbers hosts and notes what is shared with whom, by the homes of all ranks. */
void weft__mpi_number_hosts(struct weft__mpi *mpi);

/* ---- near.c ---- */

/* Who they are, and the memory without which none can say that it has none. */
int weft__mpi_near_find(struct weft__mpi *mpi);
/* Opens the channel to the ranks of this host, where that is possible, and has it take the part of
 * MPI, or all of it. Collective. Negative: MPI has failed. */
int weft__mpi_near_open(struct weft__mpi *mpi, const char *who);
/* Tells how the ranks of this host are reached. */
void weft__mpi_near_log(const struct weft__mpi *mpi, struct weft_context *context);

/* ---- packet.c: packets, their ring, requests under way ---- */

/* A packet with room for `bytes`; NULL: no memory. */
struct weft__packet *weft__mpi_packet_get(struct weft__mpi *mpi, size_t bytes);
void weft__mpi_packet_put(struct weft__mpi *mpi, struct weft__packet *packet);
/* Sends a packet whose wire header is complete, with `bytes` of payload; takes it over. */
int weft__mpi_packet_send(struct weft__mpi *mpi, struct weft__packet *packet, size_t bytes, int to);
int weft__mpi_ring_open(struct weft__mpi *mpi);
void weft__mpi_ring_close(struct weft__mpi *mpi);
/* Delivers packets that have arrived. How many, or a negative status. */
int weft__mpi_ring_poll(struct weft__mpi *mpi);
/* Room for so many more requests; to be had before they are made. */
int weft__mpi_active_reserve(struct weft__mpi *mpi, size_t count);
void weft__mpi_active_add(struct weft__mpi *mpi, MPI_Request request, struct weft__mpi_owner owner);
/* Looks for requests that have ended. How many, or a negative status. */
int weft__mpi_active_poll(struct weft__mpi *mpi);
void weft__mpi_free_memory(struct weft__mpi *mpi);

/* ---- payload.c: payloads of bulk messages ---- */

/* Begins to send or receive bytes offset .. offset + bytes of a transfer's memory, with tag.
 * Receives into `memory` instead if that is not NULL. */
int weft__mpi_payload_send(struct weft__mpi *mpi, const struct weft__xfer *xfer, size_t offset,
                           size_t bytes, int tag, MPI_Request *request);
int weft__mpi_payload_receive(struct weft__mpi *mpi, const struct weft__xfer *xfer, void *memory,
                              size_t offset, size_t bytes, int from, int tag, MPI_Request *request);
/* Memory for the start of one more payload of any kind. */
int weft__mpi_payload_reserve(struct weft__mpi *mpi);
/* Begins a stream, described by what `stream` points to; weft__mpi_ended() follows. */
int weft__mpi_stream_start(struct weft__mpi *mpi, const struct weft__mpi_stream *stream);
/* One of its chunks has ended. */
void weft__mpi_chunk_ended(struct weft__mpi *mpi, struct weft__mpi_stream *stream, int status);

/* ---- pulled.c: payloads that go in segments ---- */

enum { WEFT__MPI_LENT = 2 }; /* message.flags of a send */

/* Whether a send is one of those. */
int weft__mpi_is_pulled(const struct weft__xfer *xfer);
/* Makes a record of a send, and completes the packet that is to announce it. */
int weft__mpi_lend(struct weft__mpi *mpi, struct weft__xfer *xfer, struct weft__packet *packet,
                   int tag);
void weft__mpi_unlend(struct weft__mpi *mpi, struct weft__mpi_pulled *pulled);
/* The send is given back as soon as nothing of it is under way: weft__mpi_stop(), at each poll
 * while mpi->stopped. */
int weft__mpi_unlend_later(struct weft__mpi *mpi, struct weft__xfer *xfer);
void weft__mpi_stop(struct weft__mpi *mpi);
/* Of the table. */
void weft__mpi_staged(struct weft__transport *transport, struct weft__xfer *xfer);
int weft__mpi_pull(struct weft__transport *transport, struct weft__message *message, size_t offset,
                   void *memory, size_t *bytes);
/* A packet announces one. */
void weft__mpi_is_announced(struct weft__packet *packet);
/* A packet says something of one. */
void weft__mpi_pulled_told(struct weft__mpi *mpi, const struct weft__wire *wire, int from);
int weft__mpi_fetch_pulled(struct weft__mpi *mpi, struct weft__packet *packet,
                           struct weft__xfer *xfer);
/* As cancel, of its receive. */
int weft__mpi_stop_pulling(struct weft__packet *packet, struct weft__xfer *xfer);
void weft__mpi_release_pulled(struct weft__mpi *mpi, struct weft__packet *packet);
void weft__mpi_part_ended(struct weft__mpi *mpi, struct weft__mpi_part *part, int status,
                          int cancelled);
void weft__mpi_pulled_free(struct weft__mpi *mpi);

/* ---- aware.c: MPIs that take memory of devices; of the table ---- */

int weft__mpi_send_device(struct weft__transport *transport, struct weft__xfer *xfer);
int weft__mpi_fetch_device(struct weft__transport *transport, struct weft__message *message,
                           struct weft__xfer *xfer);

/* ---- message.c: messages ---- */

/* The tag of a bulk message. */
int weft__mpi_data_tag(const struct weft__mpi *mpi, uint64_t sequence);
/* All of a bulk payload is in, or will never be: its tag is free once the sender knows. */
void weft__mpi_acknowledge(struct weft__mpi *mpi, int from, uint64_t sequence);

/* WEFT_OK, or why the transport can do nothing any more. */
int weft__mpi_ready(struct weft__mpi *mpi);

int weft__mpi_send(struct weft__transport *transport, struct weft__xfer *xfer);
int weft__mpi_control(struct weft__transport *transport, const struct weft__message *message);
int weft__mpi_fetch(struct weft__transport *transport, struct weft__message *message,
                    struct weft__xfer *xfer);
void weft__mpi_release(struct weft__transport *transport, struct weft__message *message,
                       int consumed);
int weft__mpi_cancel(struct weft__transport *transport, struct weft__xfer *xfer);
/* A packet has arrived. */
void weft__mpi_arrived(struct weft__mpi *mpi, struct weft__packet *packet, int from);
/* A request has ended. */
void weft__mpi_ended(struct weft__mpi *mpi, struct weft__mpi_owner owner, int status,
                     int cancelled);
/* Tries again to throw away what there was no memory for. */
void weft__mpi_drain_again(struct weft__mpi *mpi);

#endif
