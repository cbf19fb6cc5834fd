/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What lies in the memory that processes share.
 *
 * Each member has one region, which the others map. Only its owner writes to it, but for the rings,
 * the bell and the summary:
 *
 *   header      written once, before anybody else maps it
 *   bell        wakes the owner
 *   summary     a bit for each member whose ring has something; where there are many
 *   credits     for each member, how much of its ring the owner has taken
 *   slots       states of the owner's sends that others read (bulk)
 *   rings       one for each member, which alone writes to it: lines, and the payload that they
 *               have no room for
 *   arena       memory of the owner's, which the others read
 *
 * A message is one line of 64 bytes, and payload of more than WEFT__LINE_PAYLOAD bytes lies in the
 * ring's payload part, in the order of the lines, each contiguous and at a multiple of 64 bytes:
 * both sides know where from the lengths. The last store of a line is its sequence word, whose
 * value says for which turn of the ring it is. So a short message moves one cache line, and lines
 * hold nothing but lines: no payload can be mistaken for one.
 *
 * No number that is read from here is trusted: it is copied, then checked, then used. Addresses are
 * different in each process, so there are none but those of a sender's own payload.
 */
#ifndef WEFT_RUNTIME_TRANSPORT_SHARED_REGION_H
#define WEFT_RUNTIME_TRANSPORT_SHARED_REGION_H

#include "runtime/base/bell.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT__REGION_MAGIC   UINT64_C(0x6e6f696765722077) /* "w region" */
#define WEFT__REGION_VERSION 3
#define WEFT__CHANNEL_MOST   1024 /* members */
/* Rings start here, so that their counters wrap soon, and not only after a year. */
#define WEFT__RING_START ((uint32_t)0 - 200)

enum { WEFT__LINE_BYTES = 64, WEFT__LINE_PAYLOAD = 32 };

/* What a line is: below WEFT__LINE_OWN an enum weft__message_kind, else between channels. */
enum weft__line_kind {
    WEFT__LINE_OWN = 64,
    WEFT__LINE_WANT =
        WEFT__LINE_OWN, /* the ring is full: tell its sender when this has been read */
    WEFT__LINE_LEAVE,   /* nothing more comes of this rank: weft__engine_left() */
    WEFT__LINE_CLOSED,  /* the last line of all: nothing is answered any more, nothing is read */
    WEFT__LINE_BULK,    /* from here on: bulk_*.c, which defines them */
    WEFT__LINE_ANNOUNCE = WEFT__LINE_BULK, /* a payload that stays with the sender */
    WEFT__LINE_PULL,                       /* its receiver wants it in chunks */
    WEFT__LINE_CHUNK,                      /* one is in the sender's arena */
    WEFT__LINE_NEXT                        /* so many have been read */
};

struct weft__line {
    _Atomic uint32_t sequence; /* weft__line_sequence(), the last that is written */
    uint32_t tag;
    uint64_t object;
    uint64_t version;
    uint32_t bytes; /* of the payload; as message.bytes for kinds that have none */
    uint16_t part;
    uint8_t turn;
    uint8_t kind;
    unsigned char payload[WEFT__LINE_PAYLOAD];
};
_Static_assert(sizeof(struct weft__line) == WEFT__LINE_BYTES, "a message is one cache line");

/* Of the line at a position; never 0, which fresh memory is. */
static inline uint32_t weft__line_sequence(uint32_t position)
{
    return position << 1 | 1;
}

/* Kept 128 bytes apart: processors fetch pairs of lines. Written by the owner of the region; they
 * only grow. */
struct weft__credits {
    _Alignas(128) _Atomic uint32_t lines; /* position up to which lines have been taken */
    _Atomic uint64_t payload;             /* bytes of payload that have been taken */
    _Atomic uint64_t consumed;            /* cost of the messages that the engine is done with */
};

/* A send that others read: bulk.h. */
struct weft__shared_slot {
    _Alignas(64) _Atomic uint32_t state;
    _Atomic uint32_t next; /* of those that are given back: slot + 1, 0 is the last */
};

struct weft__shared_region {
    uint64_t magic;
    uint32_t version;
    uint32_t member;
    uint32_t size;
    uint32_t lines;         /* of each ring: a power of two */
    uint64_t payload_bytes; /* of each ring: a power of two */
    uint64_t eager_bytes;
    uint64_t ahead_bytes;
    uint64_t arena_bytes;
    uint64_t total_bytes;
    uint32_t slots;
    uint32_t reads; /* the owner can process_vm_readv() */
    _Alignas(128) struct weft__bell bell;
    /* Sends that their receivers are done with, the latest first: slot + 1, 0: none (bulk). */
    _Alignas(128) _Atomic uint32_t returns;
    /* Lines about failures and such, of all senders: who waits for them takes all that is there. */
    _Alignas(128) _Atomic uint32_t urgent;
    /* Where the owner waits, read by others that wait: ops->seat of transports. */
    _Alignas(128) _Atomic uint64_t seat;
    _Alignas(128) _Atomic uint64_t summary[WEFT__CHANNEL_MOST / 64];
};

/* Where things are in a region: the same for all members of a channel. */
struct weft__layout {
    int size;
    uint32_t lines;
    size_t payload_bytes;
    size_t eager_bytes; /* 0: none */
    size_t ahead_bytes;
    size_t arena_bytes;
    uint32_t slots;
    size_t credits_at, slots_at, rings_at, ring_bytes, arena_at, total_bytes;
};

struct weft__channel_config;

/* From what was asked for; negative: it cannot be, with a text. */
int weft__layout_make(struct weft__layout *layout, const struct weft__channel_config *config);
/* Fills in the header of fresh, zeroed memory of layout->total_bytes. */
void weft__region_init(void *memory, const struct weft__layout *layout, int member);
/* Whether memory of `bytes` bytes is the region of a member of a channel with this layout;
 * negative: it is not, with a text, which begins with `who`. */
int weft__region_check(const void *memory, size_t bytes, const struct weft__layout *layout,
                       int member, const char *who);

static inline struct weft__credits *weft__region_credits(const struct weft__layout *layout,
                                                         void *region, int member)
{
    return (struct weft__credits *)(void *)((char *)region + layout->credits_at) + member;
}

static inline struct weft__shared_slot *weft__region_slot(const struct weft__layout *layout,
                                                          void *region, uint32_t slot)
{
    return (struct weft__shared_slot *)(void *)((char *)region + layout->slots_at) + slot;
}

/* The lines of the ring that a member writes to; its payload is behind them. */
static inline struct weft__line *weft__region_ring(const struct weft__layout *layout, void *region,
                                                   int member)
{
    return (struct weft__line *)(void *)((char *)region + layout->rings_at +
                                         (size_t)member * layout->ring_bytes);
}

static inline char *weft__region_arena(const struct weft__layout *layout, void *region)
{
    return (char *)region + layout->arena_at;
}

#endif
