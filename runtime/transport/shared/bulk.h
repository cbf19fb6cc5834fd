/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payloads that stay with their sender until the receiver fetches them.
 *
 *   sender                                     receiver
 *
 *   state POSTED, ANNOUNCE ------------------> state TAKEN; the engine has the message
 *                                              memory of the arena: reads it where it is
 *                                              at an address: process_vm_readv(), if allowed
 *                                              on a device: bulk_device.c
 *                                              else, or in chunks:
 *                         <------------------- PULL
 *   copies a part into a chunk of its arena
 *   CHUNK 0, CHUNK 1 ... --------------------> copies or reduces them
 *                         <------------------- NEXT: chunk 0 may be used again
 *   CHUNK 16 ...
 *   weft__engine_sent() <--------------------- state BACK, on the stack of returns
 *
 * A send comes back without a line, since a ring may be full and who is done with a message may be
 * done with everything: its slot goes on a stack in the sender's region, for which there is always
 * room.
 *
 * Where the sender knows that chunks are the better way, the first one is filled before the
 * announcement, which says where it is: a payload that fits needs no more lines than others.
 *
 * States are as between local ranks: the receiver holds READING while it reads memory of the
 * sender's that is not a chunk, and the sender may put WITHDRAWN at any other time. The word has
 * the generation of the send in it, so who comes late changes nothing; a send that has been
 * withdrawn is over at once, unless it has chunks, which stay until their reader gives it back.
 *
 * Lines name a send by slot and generation, and a message that is being pulled by its number and
 * generation at the receiver. What is not known is late, and dropped; what cannot be makes the peer
 * lost.
 */
#ifndef WEFT_RUNTIME_TRANSPORT_SHARED_BULK_H
#define WEFT_RUNTIME_TRANSPORT_SHARED_BULK_H

#include "runtime/transport/shared/arena.h"
#include "runtime/transport/shared/inside.h"
#include <weft/shared.h>

#define WEFT__BULK_CHUNK  ((size_t)64 << 10)
#define WEFT__BULK_WINDOW 16 /* chunks of one payload */
#define WEFT__BULK_BUFFER ((size_t)512 << 10)

/* announcement.how */
enum { WEFT__BULK_IN_ARENA, WEFT__BULK_AT_ADDRESS, WEFT__BULK_IN_CHUNKS, WEFT__BULK_ON_DEVICE };

enum {
    WEFT__BULK_POSTED,
    WEFT__BULK_TAKEN,
    WEFT__BULK_READING,
    WEFT__BULK_WITHDRAWN, /* by the sender, while its receiver has it */
    WEFT__BULK_GONE,      /* by the sender; its receiver has nothing to do with it any more */
    WEFT__BULK_BACK       /* on the stack, as is each of these: + outcome */
};
enum { WEFT__BULK_CONSUMED, WEFT__BULK_REFUSED, WEFT__BULK_FAILED, WEFT__BULK_OUTCOMES };
#define WEFT__BULK_STATE(generation, state) ((generation) << 3 | (uint32_t)(state))
#define WEFT__BULK_GENERATIONS              (UINT32_MAX >> 3)

/* What the lines but announcements say. */
struct weft__bulk_words {
    uint32_t slot, generation;       /* of the send */
    uint32_t number, its_generation; /* of the message at the receiver */
    uint64_t chunk;                  /* CHUNK: its number; NEXT: how many are done with */
    uint64_t where;                  /* CHUNK: in the sender's arena */
};
_Static_assert(sizeof(struct weft__bulk_words) <= WEFT__LINE_PAYLOAD, "they fit into a line");

struct weft__lent; /* a list of memory of devices: bulk_device.c */

/* A send. */
struct weft__outgoing {
    struct weft__xfer *xfer;            /* NULL: free, or taken back while its chunks are read */
    uint64_t filled, freed;             /* chunks */
    uint32_t chunks[WEFT__BULK_WINDOW]; /* those between, by number modulo that */
    size_t bytes;
    uint32_t generation;
    uint32_t number, its_generation; /* at the receiver, who pulls */
    uint32_t next;                   /* + 1; of the free ones, or of those to be filled */
    int32_t peer;                    /* -1: free */
    uint8_t pulled, pushed, queued, cancelled;
    struct weft__lent *lent; /* what its receiver may read on a device; or NULL */
};

/* A message that is not read where it is. */
struct weft__incoming {
    struct weft__incoming *next; /* of the free ones, or of those that are fetched */
    struct weft__arrival *arrival;
    struct weft__peer *peer;
    uint32_t number, generation;
    int reads; /* by process_vm_readv(); else it pulls */
    int pulled;
    uint64_t come, done; /* chunks that have come, that are done with */
    uint64_t where[WEFT__BULK_WINDOW];
    struct weft__xfer *xfer; /* that it is fetched into, or NULL */
    size_t fetched;
    int queued;
};

struct weft__bulk {
    struct weft__channel *channel;
    size_t read_from;          /* process_vm_readv() is better for so many bytes and more, ... */
    size_t reduce_from;        /* ... and where they are reduced for so many */
    unsigned char *unreadable; /* for each peer: it has been refused */
    /* Of sends. */
    struct weft__outgoing *sends;
    size_t send_count, send_capacity;
    uint32_t free_send;             /* + 1 */
    uint32_t fill_first, fill_last; /* + 1: whose next chunk is to be filled */
    uint32_t starved;               /* + 1: those that there was no chunk for */
    struct weft__lent *free_lent;   /* kept for the next ones */
    size_t under_way;               /* all that have not come back */
    size_t cancelling;              /* that are read at the moment */
    unsigned large;                 /* sends of read_from bytes and more */
    size_t pushed;                  /* chunks that nobody has asked for */
    char **chunks;                  /* all that there are */
    uint32_t *free_chunks;          /* a ring of their numbers: the one that rested longest first */
    uint32_t chunk_count, free_first, free_count;
    struct weft__filling { /* two ways to copy into a chunk */
        uint64_t cost[2];  /* ns for a KiB */
        uint64_t seen[2];  /* of the look that is under way */
        unsigned looks;    /* chunks that it will still take */
        unsigned count;    /* of all chunks */
    } filling;
    /* Of messages. */
    struct weft__incoming **messages;
    size_t message_count, message_capacity;
    struct weft__incoming *free_messages;
    struct weft__incoming *fetches, **fetches_end;
    char *buffer; /* what was read last; it is of ... */
    const struct weft__incoming *buffered;
    size_t buffer_begin, buffer_end;
    _Atomic int busy;
};

static inline struct weft__bulk *weft__bulk_of(const struct weft__channel *channel)
{
    return channel->bulk;
}

/* Sends a line of bulk's; tries hard, since the peer waits for it. Without memory for it the peer
 * is lost. */
void weft__bulk_tell(struct weft__channel *channel, struct weft__peer *peer, int kind,
                     const struct weft__bulk_words *words);
/* Whether there is something to do at the next poll. */
void weft__bulk_settle(struct weft__bulk *bulk);

/* ---- bulk_send.c ---- */

int weft__bulk_send_open(struct weft__bulk *bulk);
void weft__bulk_send_close(struct weft__bulk *bulk);
void weft__bulk_send_line(struct weft__bulk *bulk, struct weft__peer *peer, int kind,
                          const struct weft__bulk_words *words);
int weft__bulk_send_poll(struct weft__bulk *bulk);
/* Takes what has been given back. Returns how much. */
int weft__bulk_send_returned(struct weft__bulk *bulk);
void weft__bulk_send_gone(struct weft__bulk *bulk, const struct weft__peer *peer);
/* Copies `bytes` bytes of a payload into a chunk, by the better of two ways. */
void weft__bulk_fill(struct weft__filling *filling, const struct weft__xfer *xfer, size_t offset,
                     char *to, size_t bytes);
/* Whether stores go past the caches, which is when cores share none. */
int weft__bulk_fills_past(const struct weft__filling *filling);
/* Whether they are so much better that cores can share no cache: then reading is as bad. */
int weft__bulk_is_apart(const struct weft__filling *filling);
/* Times both ways with the next chunks. */
void weft__bulk_fill_look(struct weft__filling *filling);
/* Whether a message that this member has announced to itself is what it says. */
int weft__bulk_is_own(const struct weft__bulk *bulk, const struct weft__announcement *announced);

/* ---- bulk_receive.c ---- */

int weft__bulk_receive_open(struct weft__bulk *bulk);
void weft__bulk_receive_close(struct weft__bulk *bulk);
int weft__bulk_announced(struct weft__bulk *bulk, struct weft__peer *peer,
                         const struct weft__line *line);
void weft__bulk_chunk(struct weft__bulk *bulk, struct weft__peer *peer,
                      const struct weft__bulk_words *words);
int weft__bulk_receive_poll(struct weft__bulk *bulk);
/* A message that has been announced otherwise is to come in chunks. WEFT_OK or WEFT_ERR_MEMORY. */
int weft__bulk_pull(struct weft__bulk *bulk, struct weft__peer *peer,
                    struct weft__arrival *arrival);
void weft__bulk_receive_gone(struct weft__bulk *bulk, const struct weft__peer *peer);

/* ---- bulk_device.c ---- */

/* Lends the memory of devices that a send is of: its handle keeps the list, until the send is
 * announced or weft__bulk_unlend(). 0: the peer would not get at it. */
int weft__bulk_lend(struct weft__channel *channel, const struct weft__peer *peer,
                    struct weft__xfer *xfer);
void weft__bulk_unlend(struct weft__channel *channel, struct weft__xfer *xfer);
void weft__bulk_announce_lent(const struct weft__bulk *bulk, struct weft__outgoing *outgoing,
                              struct weft__announcement *announced);
void weft__bulk_give_lent(struct weft__bulk *bulk, struct weft__outgoing *outgoing);
/* What is wrong with an announcement, or NULL. */
const char *weft__bulk_check_lent(const struct weft__layout *layout,
                                  const struct weft__announcement *announced);
/* What a device has reached of a message is given back. */
void weft__bulk_put_back(struct weft__arrival *arrival);
/* A peer is gone. */
void weft__bulk_device_gone(struct weft__peer *peer);

/* ---- bulk_read.c: process_vm_readv() ---- */

/* From how many bytes on it is better than chunks, by a measurement; *reduce_from: where they are
 * reduced. */
size_t weft__bulk_read_threshold(const struct weft__bulk *bulk, size_t *reduce_from);
/* Brings `bytes` bytes at an address of a peer into `memory`, or into the receive's from byte
 * `offset` on. 1: they are there; 0: the peer is gone, or lost; -1: it is not allowed. */
int weft__bulk_read_memory(struct weft__bulk *bulk, struct weft__peer *peer, uint64_t address,
                           void *memory, size_t bytes);
int weft__bulk_read_xfer(struct weft__bulk *bulk, struct weft__peer *peer, uint64_t address,
                         const struct weft__xfer *xfer, size_t offset, size_t bytes);
/* Whether a peer's process has ended, by what the kernel says now. */
int weft__bulk_has_ended(const struct weft__peer *peer);

#endif
