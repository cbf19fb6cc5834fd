/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a run has on a device, as the engine sees it.
 *
 * Whatever is put on the run's stream is a flight until the stream has passed its ticket: a node
 * that the device executes, a message that it copies or reduces out of a peer's memory, a chunk of
 * what is brought over. Flights of a run land in the order in which they took off, so they are a
 * ring:
 *
 *     head                      tail
 *     | copy | reduce | message |          the oldest ticket is the one that is looked at
 *
 * Memory of the host that the device does not know is brought over in chunks of pinned memory, of
 * which an engine has a few: so a large copy goes on while the processor fills the next chunk, and
 * no copy makes the engine wait (bounce.c). A transport whose receiver does not get at memory of a
 * device is given that by way of pinned memory: what is small as a whole, from a place of the run,
 * the rest in segments, of which an engine has a few, too (staging.c).
 *
 * Runs with flights are in a list of the engine's, and count as one pending call each: nothing of
 * this is looked at by engines without a device.
 */
#ifndef WEFT_RUNTIME_ENGINE_FLIGHT_H
#define WEFT_RUNTIME_ENGINE_FLIGHT_H

#include "runtime/engine/device.h"
#include "runtime/engine/engine.h"

enum { WEFT__CHUNKS = 8, WEFT__CHUNK_BYTES = 256 << 10 };
enum {
    WEFT__SEGMENTS = 8,
    WEFT__STAGE_SMALL = 8 << 10 /* so much of a send has a place of its own */
};

/* So often in vain, or after so long, the driver is asked whether the device has failed. */
enum { WEFT__LOOKS = 4096, WEFT__LOOK_NS = 10000000 };

struct weft__chunk {
    struct weft__chunk *next;
    char *data;
    /* Of a segment: */
    struct weft__xfer *xfer;   /* whose it is; NULL: it is free */
    size_t begin, bytes, left; /* in the payload; so much of it has not been sent */
    int there;                 /* the stream has filled it */
    int used;                  /* the transport has looked at it */
};

/* How far a transfer is that goes in segments. */
struct weft__stage {
    struct weft__xfer *next; /* of those that wait for one */
    size_t brought;          /* bytes that have, or had, one */
    size_t wanted;           /* of a send: what the transport has last asked for, if it has asked */
    size_t landed;           /* of a receive: bytes that are where they belong */
    uint8_t segments;        /* that it has */
    uint8_t waits;
    uint8_t asked;   /* by the transport: the receiver waits */
    void *temporary; /* of a receive that is fetched as a whole: where it is fetched to */
};

/* Some segments, and the transfers that wait for one. */
struct weft__segments {
    struct weft__engine *engine;
    struct weft__chunk chunks[WEFT__SEGMENTS];
    struct weft__chunk *free;
    struct weft__xfer *waiting, *waiting_last;
};

/* The segments of an engine. Sends have some and receives have others: a rank whose sends wait for
 * their receivers receives all the same. */
struct weft__staging {
    struct weft__device *device;
    char *memory; /* pinned */
    struct weft__segments out, in;
};

/* The chunks of an engine, and the jobs that wait for one. */
struct weft__bounce {
    struct weft__device *device;
    char *memory; /* pinned */
    struct weft__chunk chunks[WEFT__CHUNKS];
    struct weft__chunk *free;
    struct weft__message *waiting, *waiting_last;
};

enum weft__flight_kind {
    WEFT__FLIGHT_NODE,    /* a reduction, copy or call; a copy's last chunk has been filled */
    WEFT__FLIGHT_RECEIVE, /* reads a message's payload, straight or staged */
    WEFT__FLIGHT_STAGE,   /* of a send, to its place */
    WEFT__FLIGHT_SEGMENT, /* of a send, to a segment */
    WEFT__FLIGHT_PULLED,  /* of a receive, from a segment */
    WEFT__FLIGHT_IN,      /* a chunk that the device reads */
    WEFT__FLIGHT_OUT /* a chunk that the device fills; then it is copied to the host's memory */
};

struct weft__flight {
    uint32_t ticket;
    uint32_t node;
    uint8_t kind;
    uint8_t last;              /* of the node's chunks */
    struct weft__chunk *chunk; /* or NULL */
    size_t begin;              /* of OUT: where its bytes go */
    size_t bytes;
};

/* The device's part of a run. */
struct weft__flights {
    struct weft_run *run;
    struct weft__stream *stream;
    struct weft__flights *next, *before; /* among those of the engine that are in the air */
    struct weft__flight *ring;           /* head and tail count on, modulo mask + 1 */
    uint32_t mask, head, tail;
    int flying;   /* in that list */
    int unmarked; /* the latest have no ticket yet */
    int draining; /* the run has failed */
    char *staging;
    size_t *staged;             /* a transfer's place there */
    struct weft__stage *stages; /* of each transfer; NULL: none goes in segments */
    uint64_t *values;           /* of the plan, where calls of the device write them; or NULL */
    void *room;                 /* that built-in operations work in, one after the other; or NULL */
    uint64_t *reports;          /* of these, WEFT__REPORT_WORDS for each call; or NULL */
    /* Successors of nodes, of which so many of each follow on the stream: the plan's, or those of
     * `ordered`. */
    const uint32_t *after, *streamed;
    struct weft__ordered *ordered; /* its messages over a communicator, or NULL */
};

/* Makes the device's part of a run. Driving. */
int weft__flights_open(struct weft_run *run, struct weft__device *device);
/* Waits for what is on the stream. The run is on no list any more. */
void weft__flights_close(struct weft_run *run);

/* Waits until nothing of a run that has ended is in the air: what is there ends by itself. Driving.
 */
void weft__flights_settle(struct weft_run *run);

/* A flight takes off: what it is has been put on the stream. */
void weft__flight_add(struct weft__engine *engine, struct weft__flights *flights,
                      struct weft__flight flight);
/* Puts a ticket behind what has none. */
void weft__flights_mark(struct weft__engine *engine, struct weft__flights *flights);
/* Lands what has arrived. */
void weft__flights_poll(struct weft__engine *engine);
/* The node whose flight is the oldest; or WEFT__NONE. */
uint32_t weft__flights_first(const struct weft_run *run);
/* How long the engine may sleep while there are some, or while it waits for streams of the user. */
uint64_t weft__flights_interval(const struct weft__engine *engine);
/* A run fails: what is in the air is counted as borrowed, once. */
void weft__flights_fail(struct weft__engine *engine, struct weft_run *run);

/* Starts a node that has WEFT__DEVICE_NODE. 0: on its way; 1: it is started as any other. */
int weft__device_start(struct weft__engine *engine, struct weft_run *run, uint32_t node);
/* A message has come for a receive on a device, or its payload is there. 0: as any other. */
int weft__device_deliver(struct weft__engine *engine, struct weft__xfer *xfer,
                         struct weft__message *message);
/* Byte `offset` of a payload that is memory of a device and can be read there, and in *bytes how
 * far it is contiguous. */
const char *weft__reached_chunk(const struct weft__engine *engine,
                                const struct weft__message *source, size_t offset, size_t *bytes);
/* What was fetched lies where a receive on a device has it first: 1. */
int weft__device_fetched(struct weft__engine *engine, struct weft__xfer *xfer);
/* Between bytes [begin, begin + bytes) of a region on the device and pinned memory, on the stream;
 * `in`: to the device. */
int weft__device_carry(const struct weft_run *run, const struct weft__region *region, size_t begin,
                       char *memory, size_t bytes, int in);
/* What a receive on a device was fetched to, as a whole, is not needed any more. */
void weft__device_drop_temporary(const struct weft__xfer *xfer);
/* Where a receive on a device has its staging; NULL: it has none. */
void *weft__device_staging(const struct weft__xfer *xfer);

/* ---- segments: staging.c ---- */

int weft__staging_open(struct weft__engine *engine, struct weft__device *device);
void weft__staging_close(struct weft__engine *engine);
/* Begins a send. */
void weft__stage_begin(struct weft__engine *engine, struct weft_run *run, uint32_t node);
/* A send that was begun as WEFT__DEVICE is WEFT__STAGED from now on. */
void weft__stage_switch(struct weft__xfer *xfer);
/* Brings what is waited for, and asks for what there is room for. */
void weft__staging_work(struct weft__engine *engine);
void weft__stage_landed(struct weft__engine *engine, struct weft__chunk *segment);
/* A transfer is being given back: nothing more is brought; a send has ended: what it has goes. */
void weft__stage_stop(struct weft__engine *engine, struct weft__xfer *xfer);
void weft__stage_end(struct weft__engine *engine, struct weft__xfer *xfer);

static inline struct weft__stage *weft__stage_of(const struct weft__xfer *xfer)
{
    return &weft__xfer_run(xfer)->flights->stages[xfer->index];
}
/* Puts a transfer behind those that wait; once. */
void weft__segments_wait(struct weft__segments *segments, struct weft__xfer *xfer);
/* Takes the first one out. */
struct weft__xfer *weft__segments_next(struct weft__segments *segments);
/* A free one, for the next bytes of a transfer, at most `most`. */
struct weft__chunk *weft__segments_take(struct weft__segments *segments, struct weft__xfer *xfer,
                                        size_t total, size_t most);
void weft__segments_give(struct weft__segments *segments, struct weft__chunk *segment);
/* The one that byte `offset` of a transfer has; or NULL. */
struct weft__chunk *weft__segments_find(struct weft__segments *segments,
                                        const struct weft__xfer *xfer, size_t offset);

/* ---- messages that come in segments: pull.c ---- */

/* Begins a receive of a message that is WEFT__PULLED. */
void weft__pull_begin(struct weft__engine *engine, struct weft__xfer *xfer,
                      struct weft__message *message);
void weft__pull_work(struct weft__engine *engine);
void weft__pull_landed(struct weft__engine *engine, struct weft__chunk *segment);
/* ---- built-in operations that devices have: operation.c ---- */

int weft__operations_open(struct weft_run *run, struct weft__flights *flights);
/* After the stream is closed. */
void weft__operations_close(struct weft__flights *flights, struct weft__device *device);
/* Puts a call on the stream. Negative, with weft__error set. */
int weft__operation_issue(struct weft_run *run, uint32_t node, const struct weft_call *call);
/* It has got there: WEFT_OK, or what a compute function would have returned, with its text. */
int weft__operation_land(struct weft_run *run, uint32_t node);

/* ---- chunks: bounce.c ---- */

/* A copy between host and device, or a receive of what is on the other side. A job. */
void weft__bounce_start(struct weft__engine *engine, struct weft__xfer *xfer);
/* One chunk of the first job. */
void weft__bounce_work(struct weft__engine *engine, struct weft__xfer *xfer);
void weft__bounce_landed(struct weft__engine *engine, struct weft__flights *flights,
                         const struct weft__flight *flight);
/* Takes the jobs of a run out of those that wait. */
void weft__bounce_drop(struct weft__engine *engine, const struct weft_run *run);
void weft__bounce_free(struct weft__engine *engine, struct weft__chunk *chunk);
void weft__bounce_close(struct weft__engine *engine);

#endif
