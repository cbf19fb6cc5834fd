/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of the user as events, and events that streams of the user wait for.
 *
 * A gate is a word of pinned memory. A stream that is to start a run, or to fire one of its events,
 * writes the gate's ticket there when it gets so far; the engine looks at the gates that are shut,
 * a load each, in the same turns as at its own streams. A hold is the other way round: the stream
 * waits until the word is at least a ticket, which the engine stores when the run has ended,
 * however that was.
 *
 *     user's stream:  ... compute, write(gate, 7), hold(word, 7), compute ...
 *     engine:                       7: start the run ... it has ended: word = 7
 *
 * Words are used again with tickets that count on, by other engines as well: a stream may get to
 * its hold when run and context are gone, and must find there what it waits for. One that a stream
 * is still to write, since its run was cancelled, say, is left alone until that has come: a later
 * ticket would be written over.
 */
#ifndef WEFT_RUNTIME_ENGINE_GATE_H
#define WEFT_RUNTIME_ENGINE_GATE_H

#include "runtime/engine/device.h"
#include "runtime/engine/engine.h"

struct weft__gate {
    struct weft__gate *next;
    _Atomic uint32_t *word;
    uint32_t ticket; /* the latest that was given */
    uint32_t node;   /* the event to fire, or WEFT__NONE: to start the run */
    struct weft_run *run;
    uint64_t version;
};

/* A run's hold, among its watches; there from the first stream that waits for the run on. */
struct weft__hold {
    struct weft__watch watch; /* first; its hold leads here */
    struct weft__gate *gate;  /* whose word it is */
};

/* The gates of an engine. */
struct weft__gates {
    struct weft__device *device;
    struct weft__gate *shut;  /* that runs wait for, the latest first */
    struct weft__gate *spare; /* some are still to be written */
    struct weft__gate_page *pages;
    uint32_t looks;     /* since it was asked whether a device has failed ... */
    uint64_t looked_ns; /* ... which was then */
};

/* A gate whose word holds its ticket; NULL, with weft__error set. Driving. */
struct weft__gate *weft__gate_take(struct weft__engine *engine, struct weft__device *device);
void weft__gate_give_back(struct weft__engine *engine, struct weft__gate *gate);
/* The run, or its event, waits for the gate. Driving. */
void weft__gate_shut(struct weft__engine *engine, struct weft__gate *gate);
/* Opens those whose streams have got there. */
void weft__gates_poll(struct weft__engine *engine);
/* Forgets what streams were to do for a run; whether one was to start it. Driving. */
int weft__gates_drop(struct weft__engine *engine, const struct weft_run *run);
void weft__gates_close(struct weft__engine *engine);

/* Makes a run's hold, if it has none. Driving. */
int weft__hold_make(struct weft_run *run, struct weft__device *device);
/* The run is about to be freed: who still waits has been told. */
void weft__hold_leave(struct weft_run *run);
/* The run has ended. */
void weft__hold_end(const struct weft__hold *hold, const struct weft_run *run);

#endif
