/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a transport is to the engine.
 *
 * The engine matches messages itself, by (object, version, peer, tag): so receives can be
 * cancelled, versions are 64 bits wide, and no transport runs out of tags. A transport moves
 * messages: it takes sends, hands arriving messages to weft__engine_message(), and gives the memory
 * of a message back when the engine releases it. One thread at a time calls the functions below,
 * the one that drives the engine, and none of them waits; `pending`, `wake` and `block` are called
 * by others too, and `block` waits.
 *
 *   send(x) --------------> arrives at the peer: weft__engine_message(m)
 *                           engine matches m with a receive r
 *                             m->data set:  engine copies or reduces from it, in slices
 *                             m->data NULL: fetch(m, r) ... weft__engine_fetched(r)
 *                             m->list WEFT__PIECES: copies or reduces from piece(m, offset)
 *   weft__engine_sent(x) <- release(m)
 *
 * A payload in pieces is at hand a piece at a time, so that it can be reduced while it arrives out
 * of memory that the caches hold:
 *
 *   engine: a job, offset 0     transport
 *   piece(m, 0) --------------> NULL: not here yet. The engine does other things, or sleeps.
 *               <-------------- weft__engine_piece(m): more is here
 *   piece(m, 0) --------------> address, 65536 bytes; the slices of the job go over them
 *   piece(m, 65536) ----------> what was before is not needed any more
 *   ...
 *   release(m, 1)
 *
 * Where m->data points into the sender's own memory, a third rank can take that memory away: its
 * failure ends the sender's run, whose caller wants the buffers back, while the receiver is in the
 * middle of reading them. So the receiver asks before each slice (`read`), and the sender may take
 * the payload back between two slices (`withdrawn`), though not the record, which is in the
 * receiver's queue:
 *
 *   rank 0, sends to 1               rank 1, receives                rank 2
 *
 *   send(x): the memory is lent ---> m
 *                                    read(m, 1) = 1: may read
 *                                       copies a slice
 *   the run fails  <------------------------------------------------ fails, tells 0 and 1
 *     cancel(x) = IN_PROGRESS           ...
 *     withdrawn(x) = 0, it is read      ...
 *                                    read(m, 0): the slice is done
 *     withdrawn(x) = 1: rank 0's
 *     caller may free the memory     read(m, 1) = 0: touches it no more
 *                                    the news of 2 arrives, the run fails
 *   weft__engine_sent(x) <---------- release(m, 0)
 *     the record is back
 */
#ifndef WEFT_RUNTIME_ENGINE_TRANSPORT_H
#define WEFT_RUNTIME_ENGINE_TRANSPORT_H

#include "runtime/base/bell.h"
#include "runtime/base/companion.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* For what is rare beside a path that is hot, so that this one saves no registers for it. */
#if defined(__GNUC__)
#    define WEFT__NOINLINE __attribute__((noinline))
#else
#    define WEFT__NOINLINE
#endif

struct weft_context;
struct weft_transport;
struct weft_run;
struct weft__engine;
struct weft__xfer;
struct weft__device;

enum weft__message_kind {
    WEFT__DATA,
    WEFT__SIGNAL, /* tag: channel; bytes 0 */
    WEFT__FAIL,   /* the run (object, version) failed on rank `from`; tag: -status, 0: that rank has
                     left; bytes: the rank where it began */
    WEFT__GIVEN_UP, /* the version of the sequence failed on rank `from`, which has told everybody;
                       tag: -status; data: its text, `bytes` without an end */
    WEFT__NEWS,   /* the object, or everything, has failed; tag: -status; version: the rank where it
                     began; data: its text, `bytes` without an end */
    WEFT__INVITE, /* to make a context of some ranks; object: which; data: the rest */
    WEFT__LEFT,   /* the sender has left such a context; version: how many messages it has sent */
    WEFT__BEREFT, /* the run (object, version) failed on rank `from`, since rank `tag` has died;
                     data: how that ended, `bytes` without an end */
    WEFT__TURN,   /* of the run (object, version): the ranks agree on the order of messages over a
                     communicator (ordered.h) */
    WEFT__RECEIVE /* not a message: a posted receive, in the engine's table */
};

enum { WEFT__HAS_FAILED = -1 };

/* message.list: how a payload is reached that `data` does not point to. */
enum {
    WEFT__LIST = 1,        /* of a local send: weft__xfer_chunk() on the xfer that it is part of */
    WEFT__PIECES,          /* by ops->piece() */
    WEFT__PIECES_OR_FETCH, /* the same, or where it is only to be copied by ops->fetch() */
    WEFT__DEVICE,          /* memory of a device: weft__xfer_chunk() of a send; ops->reach() */
    WEFT__STAGED,          /* of a send, memory of a device by way of the host: weft__stage_at() */
    WEFT__PULLED           /* has arrived: by ops->fetch(), or in parts by ops->pull() */
};

/* What ops->send_device() returns where the receiver does not get at the memory. */
enum { WEFT__OUT_OF_REACH = 2 };

/* Whether what comes of a kind may have a payload. */
static inline int weft__has_payload(int kind)
{
    return kind == WEFT__DATA || kind == WEFT__NEWS || kind == WEFT__GIVEN_UP ||
           kind == WEFT__INVITE || kind == WEFT__BEREFT || kind == WEFT__TURN;
}

/* Whether it is about a failure or such, which must not wait behind messages that nobody waits for:
 * who has called late hears of it before it takes what was sent earlier. */
static inline int weft__is_urgent(int kind)
{
    return kind != WEFT__DATA && kind != WEFT__SIGNAL && kind != WEFT__TURN;
}

/* A message as it arrives. Owned by the engine from weft__engine_message() to release(). */
struct weft__message {
    struct weft__message *next; /* for its owner's queues */
    const void *data;           /* payload that can be read now, or NULL */
    size_t bytes;
    uint64_t version;
    uint64_t object;
    uint32_t tag;
    int32_t from; /* rank of the context */
    int32_t to;
    int32_t own;           /* the transport's own */
    uint8_t kind;          /* enum weft__message_kind */
    uint8_t list;          /* 0, or how the payload is reached, data being NULL (WEFT__LIST ...) */
    uint8_t flags;         /* the transport's own */
    uint8_t xflags;        /* the engine's own, for a message that is part of an xfer */
    _Atomic uint8_t state; /* the transport's own */
    uint8_t turn;          /* of the place that `part` is, which others had before */
    uint16_t part;         /* where in the receiver's family it goes (runtime/context/part.h); 0: to
                              the context that the transport is of */
};

/* A send or receive of a run while it is under way; part of the run, so nothing is allocated. The
 * transport may use message.next, .flags, .state and `handle` of a send that it has accepted, and
 * `handle` of a receive that it fetches for. */
struct weft__xfer {
    struct weft__message message; /* what is sent; for a receive: what it matches, capacity */
    struct weft__message *source; /* receive: the message that matched */
    size_t done;                  /* bytes or elements of the engine's work on it done so far */
    uint64_t handle;
    uint32_t node;
    uint32_t index; /* in the run's array */
};

/* The contiguous memory at byte `offset` of the payload: its address, and in *bytes how far it
 * goes. For sends and receives on slots bound to a list; one chunk if bound to contiguous memory.
 */
WEFT__PRIVATE void *weft__xfer_chunk(const struct weft__xfer *xfer, size_t offset, size_t *bytes);

/*
 * A send that is WEFT__STAGED. Its payload comes to the host in segments, a few at a time, as the
 * transport asks for them; it asks when its receiver waits for them, since those that are there
 * keep others from coming.
 *
 *   engine                       transport
 *   send(x), WEFT__STAGED -----> tells the receiver, which asks
 *                         <----- weft__stage_at(x, 0): NULL
 *   device -> segment 0
 *   staged(x) -----------------> weft__stage_at(x, 0): it is there. The next comes meanwhile.
 *                         <----- weft__stage_done(x, 0, bytes): it has been sent
 *
 * What is at byte `offset`, and in *bytes how far it goes: to the end, or to a multiple of
 * WEFT__STAGE_UNIT. NULL: it is not there yet, and staged(x) will follow, unless the run fails.
 */
#define WEFT__STAGE_UNIT ((size_t)64 << 10)
WEFT__PRIVATE const char *weft__stage_at(struct weft__xfer *xfer, size_t offset, size_t *bytes);
/* So much from `offset` on, which was there, is not needed any more. */
WEFT__PRIVATE void weft__stage_done(struct weft__xfer *xfer, size_t offset, size_t bytes);

/* Bytes of segments, where a rank has some for its devices; else 0. */
WEFT__PRIVATE size_t weft__stage_segment(const struct weft__xfer *xfer);

/* 1 if the whole payload is contiguous: then message.data is its address. */
static inline int weft__xfer_contiguous(const struct weft__xfer *xfer)
{
    return !xfer->message.list;
}

/* Whether a payload comes by ops->piece(). */
static inline int weft__in_pieces(const struct weft__message *message)
{
    return message->list == WEFT__PIECES || message->list == WEFT__PIECES_OR_FETCH;
}

struct weft__transport {
    const struct weft__transport_ops *ops;
    const struct weft_transport *about; /* its description */
    struct weft__bell *bell;
    struct weft__engine *engine;
    int rank;
    int size;
    /* Equal for the contexts that exchange messages, else different: tells traces apart. 0:
     * virtual. */
    uint64_t group;
    /* Ranks of this transport that share this machine's cores (for the idle policy). */
    int local_ranks;
    /* Among those of ops->seat. */
    int seat;
    /* Hosts that its ranks are on, which ops->hosts numbers; 0: one. */
    int host_count;
    /* Where in_order is 0: ordered[r] is 1 if what rank r sends arrives in order all the same.
     * NULL: of nobody. */
    const unsigned char *ordered;
    /* Facts. */
    int wakes;          /* 1: what arrives rings the bell; 0: somebody must poll */
    int device_way;     /* weft_device_way_t */
    int timed;          /* 1: compute nodes, reductions and copies are begun by ops->spend */
    int no_payload;     /* 1: reductions and copies touch no memory, messages have no contents */
    int in_order;       /* 1: what one rank sends to another arrives in that order */
    int takes_back;     /* 1: a send that cancel() gives back at once never arrives */
    int reports_deaths; /* 1: whoever dies is told to all others: weft__engine_died() */
    unsigned tag_bits;  /* 0: no tags */
    size_t largest_message;
};

struct weft__transport_ops {
    /* Begins a send (message.kind DATA; message.data or chunks hold the payload).
     * WEFT_OK: done, the payload may change, no callback follows; WEFT_IN_PROGRESS:
     * weft__engine_sent() follows; negative: failed, with weft__error set, no callback follows:
     * WEFT_ERR_PEER to a rank that has died or left. */
    int (*send)(struct weft__transport *transport, struct weft__xfer *xfer);
    /* The same of a payload that is memory of a device (message.list is WEFT__DEVICE), if its
     * receiver can get at it there; else WEFT__OUT_OF_REACH, and nothing has happened. NULL: nobody
     * can. */
    int (*send_device)(struct weft__transport *transport, struct weft__xfer *xfer);
    /* A payload that has arrived as WEFT__DEVICE is to be read by a device, or, NULL, by the host:
     * where it is for that device (enum weft__where), until release(); or WEFT__ON_HOST: from now
     * on it comes in pieces (WEFT__PIECES). Negative: failed. Called between read(message, 1) and
     * read(message, 0). NULL: the payload is the sender's xfer, of this process. */
    int (*reach)(struct weft__transport *transport, struct weft__message *message,
                 struct weft__device *device);
    /* Byte `offset` of a payload that has been reached, and in *bytes how far it is contiguous. */
    const char *(*reached)(struct weft__transport *transport, const struct weft__message *message,
                           size_t offset, size_t *bytes);
    /* More of a send that is WEFT__STAGED is there. Such a send may also have been begun as
     * WEFT__DEVICE, and become one by the transport, whose receiver did not reach the memory. NULL:
     * sends are never staged so, but are there as a whole. */
    void (*staged)(struct weft__transport *transport, struct weft__xfer *xfer);
    /* Sends a control message: SIGNAL, FAIL and LEFT have no payload, the others
     * (weft__has_payload()) one of at most WEFT__NEWS_BYTES; copied. Never waits: what cannot be
     * sent now is queued by the transport. To a rank that has died or left: WEFT_OK, and nothing
     * happens. */
    int (*control)(struct weft__transport *transport, const struct weft__message *message);
    /* Looks for what has arrived and ended, and calls the engine for it. Returns how many things it
     * did, or a negative status if the transport as a whole has failed. */
    int (*poll)(struct weft__transport *transport);
    /* 1 if poll would find something, for a thread that does not drive; NULL: never known. */
    int (*pending)(struct weft__transport *transport);
    /* Brings the payload of a message that arrived with data NULL (and list 0,
     * WEFT__PIECES_OR_FETCH or WEFT__PULLED) into the memory of receive `xfer`; message->bytes <=
     * capacity. Status as send; weft__engine_fetched() follows. The message stays the engine's, who
     * releases it. NULL if it never happens. */
    int (*fetch)(struct weft__transport *transport, struct weft__message *message,
                 struct weft__xfer *xfer);
    /* The same into memory of a device, which is contiguous; or WEFT__OUT_OF_REACH. NULL: never. */
    int (*fetch_device)(struct weft__transport *transport, struct weft__message *message,
                        struct weft__xfer *xfer);
    /* Asks for a part of a payload that is WEFT__PULLED: the next *bytes bytes, from byte `offset`
     * on, or fewer, which it says, are to be brought to `memory`. WEFT_IN_PROGRESS:
     * weft__engine_pulled() follows; negative: failed. NULL if it never happens. */
    int (*pull)(struct weft__transport *transport, struct weft__message *message, size_t offset,
                void *memory, size_t *bytes);
    /* Where the payload of a message that is WEFT__PIECES goes on at byte `offset`: an address, and
     * in *bytes how far it reaches, a multiple of 64 unless it ends there. NULL: it is not here
     * yet; weft__engine_piece() follows, unless the sender or this transport fails, or has
     * withdrawn it. Offsets ascend; what was before `offset` is not read any more. Called between
     * read(message, 1) and read(message, 0); what it returns stays until the next call, or
     * release(). NULL if it never happens. */
    const void *(*piece)(struct weft__transport *transport, struct weft__message *message,
                         size_t offset, size_t *bytes);
    /* The engine is done with a message: it was consumed, or it is not wanted (`consumed` 0), maybe
     * since its object has failed here (WEFT__HAS_FAILED). The send ends with WEFT_OK,
     * WEFT_ERR_PEER or WEFT_ERR_CANCELLED. */
    void (*release)(struct weft__transport *transport, struct weft__message *message, int consumed);
    /* The receiver's side of the drawing above, called around each slice. `reading` 1: asks
     * whether it may read the payload. If so (1), it holds the payload until the call with
     * `reading` 0; else (0) the sender has withdrawn it. NULL: payloads that can be read are the
     * receiver's own, and nobody takes them. */
    int (*read)(struct weft__transport *transport, struct weft__message *message, int reading);
    /* The sender's side, after cancel(): withdraws the payload of a send that has not come back.
     * 1: nobody reads it now or later; 0: a slice is being read, ask again; negative: this one
     * comes back with its send alone. NULL: a payload comes
     * back with its send alone. */
    int (*withdrawn)(struct weft__transport *transport, struct weft__xfer *xfer);
    /* Gives a send (or a fetching receive) that is under way back. WEFT_OK: it is, no callback
     * follows; WEFT_IN_PROGRESS: the callback will still come, until then it is borrowed. */
    int (*cancel)(struct weft__transport *transport, struct weft__xfer *xfer);
    /* Takes over memory that messages under way may still point to; freed when they cannot any
     * more. NULL: nothing is under way after close. */
    void (*keep)(struct weft__transport *transport, void *memory, void (*release)(void *));
    /* Memory that peers read straight from: zeroed, aligned to 64 bytes. NULL: none is left; the
     * function NULL: there is none. Any thread. What is left goes with close(). */
    void *(*alloc)(struct weft__transport *transport, size_t bytes);
    /* Gives it back; 0: it is none of it. */
    int (*free)(struct weft__transport *transport, void *memory);
    /* hosts[r]: the host that rank r is on. NULL: all on one. */
    int (*hosts)(struct weft__transport *transport, int *hosts);
    /* The word of a rank of this host in which it says where it waits (runtime/context/seat.h), by
     * the place that these ranks are numbered by, this rank's being transport->seat; NULL: there is
     * no such place. The function NULL: they do not say it. */
    _Atomic uint64_t *(*seat)(struct weft__transport *transport, int place);
    /* The transport's own clock, for deadlines and timeouts. NULL: the machine's. */
    uint64_t (*now)(const struct weft__transport *transport);
    /* Tells the peers that nothing more comes from this rank: weft__engine_left() there, after all
     * that it has sent. NULL: they are not told. */
    void (*leave)(struct weft__transport *transport);
    /* Tells the peers that this rank's function has returned, though its helper goes on:
     * weft__engine_returned() there. NULL: they are not told, or it does not happen. */
    void (*retire)(struct weft__transport *transport);
    /* 1: the function of a rank has returned: it calls nothing that is collective any more. Any
     * thread. NULL: it is not known, or does not happen. */
    int (*returned)(const struct weft__transport *transport, int rank);
    /* Returns when done(argument) is not 0 (1; `done` NULL: never), when `until` has come (0), or
     * when neither will ever be (negative, with weft__error set). The transport drives the engine
     * meanwhile, and between two such calls: no thread of the context does. NULL: threads do. */
    int (*block)(struct weft__transport *transport, int (*done)(void *), void *argument,
                 uint64_t until);
    /* The engine has something to do: commands, or calls that have been completed. Does not drive
     * it. NULL: whoever has given it drives, or the bell is rung. */
    void (*wake)(struct weft__transport *transport);
    /* On a timed transport: a compute node, reduction, copy or join is to be executed. WEFT_OK: at
     * once; WEFT_IN_PROGRESS: when its time has passed, by weft__engine_spent(). */
    int (*spend)(struct weft__transport *transport, struct weft_run *run, uint32_t node);
    /* The run has failed: weft__engine_spent() is not called for its nodes any more. */
    void (*unspend)(struct weft__transport *transport, const struct weft_run *run);
    /* Ends it and frees it. The engine has no more runs. */
    void (*close)(struct weft__transport *transport);
};

/* ---- the engine's side ---- */

/* A message has arrived. */
WEFT__PRIVATE void weft__engine_message(struct weft__engine *engine, struct weft__message *message);
/* A send that was in progress has ended. */
WEFT__PRIVATE void weft__engine_sent(struct weft__engine *engine, struct weft__xfer *xfer,
                                     int status);
/* More of a payload is here, after piece() has returned NULL. Once too often does no harm. */
void weft__engine_piece(struct weft__engine *engine, struct weft__message *message);
/* A receive's payload is in its memory. */
WEFT__PRIVATE void weft__engine_fetched(struct weft__engine *engine, struct weft__xfer *xfer,
                                        int status);

/* A part of a payload that was pulled is in its memory, or will not come (negative, with
 * weft__error set). The message's `next` is the engine's until it is released. */
WEFT__PRIVATE void weft__engine_pulled(struct weft__engine *engine, struct weft__message *message,
                                       size_t offset, int status);

/* Rank `rank` has left, and all that it has sent has been handed over. */
void weft__engine_left(struct weft__engine *engine, int rank);

/* Rank `rank` has died, and all that it has sent has been handed over; `how`, in words ("killed by
 * signal 9 (Killed)"), may be "" and is copied. Runs that need it fail, of the engine and of its
 * family; their transfers are given back (cancel()). Afterwards the transport ends those that are
 * still under way with that rank: weft__engine_sent() or weft__engine_fetched() with WEFT_ERR_PEER.
 * A rank that is known to have left has not died. Twice is as once. */
void weft__engine_died(struct weft__engine *engine, int rank, const char *how);

/* The function of some rank has returned (ops->returned()): who counts those that are present looks
 * again. */
void weft__engine_returned(struct weft__engine *engine);

/* The time that a node takes has passed. */
void weft__engine_spent(struct weft__engine *engine, struct weft_run *run, uint32_t node);

#endif
