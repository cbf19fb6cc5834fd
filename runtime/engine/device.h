/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a device is to the engine: memory, and streams that work on it in order.
 *
 * A run whose plan has nodes on the device has a stream. Such a node is put on it as soon as the
 * nodes before it that are on the stream as well have been, and those of the host have ended; the
 * nodes after it that are the host's wait until the stream has got there. Of that the engine learns
 * by a load: behind every piece of work it puts a ticket on the stream, and the device writes the
 * number of the latest ticket it has passed into memory of the host.
 *
 *     engine                       stream             reached
 *     reduce(a), mark() = 1  ----> a                    0
 *     copy(b), mark() = 2    ----> b                    0
 *                                  a has ended  ------> 1      a load: node a has ended
 *                                  b has ended  ------> 2
 *
 * Nothing here waits for the device, and the driver of the device is not called to look. One thread
 * at a time calls these, the one that drives the engine, except what says "any thread".
 */
#ifndef WEFT_RUNTIME_ENGINE_DEVICE_H
#define WEFT_RUNTIME_ENGINE_DEVICE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/device.h>

struct weft__device_ops;
struct weft_op;

/* A device: one for all contexts that have it. */
struct weft__device {
    const struct weft__device_ops *ops;
    const char *name; /* "cuda:0", for errors */
};

struct weft__stream {
    struct weft__device *device;
    /* The latest ticket that the stream has passed; the device writes it. Acquire: what was done
     * before is seen. Tickets wrap, and are compared as differences. */
    const _Atomic uint32_t *reached;
    uint32_t issued; /* the latest ticket */
    unsigned shared; /* by so many runs beside the first; driving */
};

/*
 * A communicator: messages between the devices of its ranks, which it executes in the order in
 * which they are put on a stream, and of which none ends before its other end has been put there,
 * too (NCCL). It does not wait: what is begun may be in progress for a while, and nothing else is
 * begun, nor put on the stream, until comm_poll() says that it is not any more.
 */
struct weft__comm {
    struct weft__device *device;
    int rank, size;
    /* comm_abort() has come to its end: it has nothing on any stream. Release, after that; pairs
     * with the acquire of who waits for it. */
    _Atomic int gone;
};

enum { WEFT__COMM_ID_BYTES = 128 };

/* One end of a message. */
struct weft__comm_item {
    void *data; /* memory of the device */
    size_t bytes;
    int peer;
    int receives;
};

/* What several ranks do at once. */
enum weft__comm_joint_kind {
    WEFT__COMM_FOLD_ALL,   /* `count` elements of all, combined, to all */
    WEFT__COMM_FOLD_ONE,   /* to the root */
    WEFT__COMM_FOLD_PARTS, /* `count` elements to each, of as many times more */
    WEFT__COMM_SPREAD,     /* `count` elements of the root to all */
    WEFT__COMM_COLLECT     /* `count` elements of each to all */
};

struct weft__comm_joint {
    enum weft__comm_joint_kind kind;
    weft_op_kind_t fold; /* WEFT_SUM, WEFT_PROD, WEFT_MIN or WEFT_MAX */
    weft_dtype_t dtype;  /* of what folds; all else is bytes */
    int root;
    const void *from; /* who gives nothing: `to` */
    void *to;         /* who gets nothing: NULL; the root that spreads: `from` */
    size_t count;     /* elements, or bytes */
};

/* Where an address is. */
enum weft__where {
    WEFT__ON_HOST, /* of which the device knows nothing: it is copied by way of pinned memory */
    WEFT__ON_HOST_PINNED, /* which the device reads and writes */
    WEFT__ON_DEVICE,
    WEFT__ON_PEER,      /* of another device of this machine, which kernels of this one reach */
    WEFT__ON_PEER_APART /* of another one, from where it can be copied, and nothing else */
};

/* An allocation of a device, as other processes of the machine are told of it: plain data. */
struct weft__exported {
    unsigned char handle[64];
    uint64_t owner; /* the use that a process makes of its device, which no other one has */
    uint64_t id;    /* of the allocation there: one at the same address later has another */
    uint64_t base;  /* where it begins there */
    uint64_t bytes;
};

struct weft__imported; /* one that is another process', opened in this one */

/* Pairs that are added to a vector in one piece, or replace its elements. */
struct weft__device_scatter {
    const struct weft_sparse *pairs; /* without `values`: zeros */
    const struct weft_argument *to;
    double scale; /* of what is added */
    int adds;
};

struct weft__device_ops {
    /* Where `bytes` at an address are; negative, with weft__error set: partly here, partly there.
     * The first time that memory of another device is asked for, makes it reachable where the
     * machine can. Any thread. */
    int (*where)(struct weft__device *device, const void *address, size_t bytes);
    /* Memory of the device, aligned to 256 bytes, or of the host, pinned and mapped (one address on
     * both sides); NULL, with weft__error set. They, and what frees, may wait for the device, so
     * they are for what creates and ends runs. Any thread. */
    void *(*alloc)(struct weft__device *device, size_t bytes);
    void (*free)(struct weft__device *device, void *memory);
    void *(*pin)(struct weft__device *device, size_t bytes);
    void (*unpin)(struct weft__device *device, void *memory);
    /* Pinned memory for words that streams wait for, each until it is at least a number. It has
     * what it had when it was given back, at first zeros, and is given to nobody else: a stream may
     * not have got to its wait yet, however long ago that has been fulfilled. Any thread. */
    void *(*pin_words)(struct weft__device *device, size_t bytes);
    void (*unpin_words)(struct weft__device *device, void *memory);
    /* A stream; negative, with weft__error set. Closing waits for what is on it. Any thread. */
    int (*open)(struct weft__device *device, struct weft__stream **stream);
    void (*close)(struct weft__stream *stream);
    /* dst[i] = a[i] op b[i], a built-in operation; all where kernels reach, dst may be a or b.
     * WEFT_OK: it is on the stream; negative, with weft__error set. So for all that follow. */
    int (*reduce)(struct weft__stream *stream, weft_op_kind_t kind, weft_dtype_t dtype, void *dst,
                  const void *a, const void *b, size_t count);
    /* dst[i] = inputs[0][i] op inputs[1][i] op ..., from left to right: 2 to 8 inputs, one of which
     * may be dst. Halves are accumulated in f32, and rounded once. */
    int (*reduce_n)(struct weft__stream *stream, weft_op_kind_t kind, weft_dtype_t dtype, void *dst,
                    const void *const *inputs, unsigned n, size_t count);
    /* Either anywhere but WEFT__ON_HOST; they do not overlap. */
    int (*copy)(struct weft__stream *stream, void *dst, const void *src, size_t bytes);
    /* Bytes of the device's memory that a call of an operation with a form (runtime/graph/op.h)
     * works in, whose regions have at most so many elements; SIZE_MAX: more than can be. Any
     * thread. */
    size_t (*room)(const struct weft_op *op, const struct weft_call *most);
    /* Such a call, which the form has checked. `report`: words of pinned memory, which are what the
     * form expects once the stream has got there. */
    int (*operate)(struct weft__stream *stream, const struct weft_op *op,
                   const struct weft_call *call, void *room, uint64_t *report);
    /* Calls a function with the stream as its library knows it (a CUstream), and the device
     * current. What it returns is returned. */
    int (*call)(struct weft__stream *stream, weft_device_fn function, struct weft_call *call);
    /* For functions that are being called so, on any stream of the device (a CUstream): vectors of
     * one length, which have been looked at; a fill by elements of 1, 2, 4 or 8 bytes, and a copy.
     */
    int (*combine)(struct weft__device *device, void *stream, const struct weft_device_sum *sum);
    int (*fill)(struct weft__device *device, void *stream, const struct weft_argument *to,
                uint64_t bits);
    int (*copy_vector)(struct weft__device *device, void *stream, const struct weft_argument *to,
                       const struct weft_argument *from);
    /* Adds sums of squares to WEFT_DEVICE_SQUARES numbers; clears: what is not finite counts as
     * zero. */
    int (*squares)(struct weft__device *device, void *stream, const struct weft_argument *vector,
                   int clears, double *sums);
    int (*scatter)(struct weft__device *device, void *stream,
                   const struct weft__device_scatter *scatter);
    /* Puts ticket ++issued on the stream. */
    int (*mark)(struct weft__stream *stream);
    /* Whether the stream, or its device, has failed: negative, with weft__error set. Asks the
     * driver, so it is called now and then. */
    int (*failed)(struct weft__stream *stream);
    /* Of a stream of the user (a CUstream; NULL and so on are the driver's default streams): when
     * it gets here, writes a word of pinned memory; or waits here until
     * (int32_t)(*word - value) >= 0. Any thread. */
    int (*write)(struct weft__device *device, void *stream, _Atomic uint32_t *word, uint32_t value);
    int (*hold)(struct weft__device *device, void *stream, _Atomic uint32_t *word, uint32_t value);
    /* The allocation that memory is in, for other processes, and *offset in that. 1; 0: they cannot
     * open it (that of a pool, or mapped by parts). Sets no text. */
    int (*export_memory)(struct weft__device *device, const void *address, size_t bytes,
                         struct weft__exported *exported, uint64_t *offset);
    /* Opens one of another process, or finds it open: where it begins, until it is given back.
     * NULL: it cannot be (the system or the device does not allow it, or too many are open). Sets
     * no text. The first time takes as long as the driver does to map it. What is given back stays
     * open for the next message; where runs are created some are closed, those first that were used
     * longest ago. */
    void *(*import_memory)(struct weft__device *device, const struct weft__exported *exported,
                           struct weft__imported **imported);
    void (*return_memory)(struct weft__device *device, struct weft__imported *imported);
    /* An owner is gone: what is open of it will be closed. Any thread. */
    void (*forget_owner)(struct weft__device *device, uint64_t owner);
    /* What is put on a stream from now on waits for what has been put on the other one. */
    int (*follow)(struct weft__stream *stream, const struct weft__stream *first);
    /* What ranks of a new communicator are told by one of them. Negative, with weft__error set: in
     * this build, or on this machine, there is none. Any thread. */
    int (*comm_id)(struct weft__device *device, unsigned char id[WEFT__COMM_ID_BYTES]);
    /* Joins it, as all ranks do. WEFT_OK; WEFT_IN_PROGRESS: until comm_poll() says otherwise. */
    int (*comm_open)(struct weft__device *device, const unsigned char id[WEFT__COMM_ID_BYTES],
                     int rank, int size, struct weft__comm **comm);
    /* What has become of it: WEFT_OK; WEFT_IN_PROGRESS: what was begun is not over; negative, with
     * weft__error set: it has failed, here or on another rank. */
    int (*comm_poll)(struct weft__comm *comm);
    /* Puts ends of messages on a stream, in this order to each peer; they go on independently.
     * WEFT_OK or WEFT_IN_PROGRESS. */
    int (*comm_exchange)(struct weft__comm *comm, struct weft__stream *stream,
                         const struct weft__comm_item *items, size_t count);
    /* Puts this rank's part of a joint operation on a stream. As comm_exchange(). NULL: there is
     * none. */
    int (*comm_joint)(struct weft__comm *comm, struct weft__stream *stream,
                      const struct weft__comm_joint *joint);
    /* Ends what it has on streams, on this rank, and then sets `gone`. It can only be closed then.
     * Does not wait. */
    void (*comm_abort)(struct weft__comm *comm);
    /* It is nobody's any more; ends when what it has on streams has. Does not wait. NULL is
     * accepted. */
    void (*comm_close)(struct weft__comm *comm);
    /* One more use of it; and one less: with the last it ends, all its streams closed, all its
     * memory freed. Any thread. */
    void (*retain)(struct weft__device *device);
    void (*end)(struct weft__device *device);
};

/* The device whose function is being called for a node, in this thread; NULL in any other. */
struct weft__device *weft__device_current(void);
/* ops->call(), in which weft__device_current() is the stream's device. */
int weft__device_call(struct weft__stream *stream, weft_device_fn function, struct weft_call *call);

/* Whether a stream has passed a ticket. */
static inline int weft__stream_passed(const struct weft__stream *stream, uint32_t ticket)
{
    uint32_t reached = atomic_load_explicit(stream->reached, memory_order_acquire);

    return (int32_t)(reached - ticket) >= 0;
}

#endif
