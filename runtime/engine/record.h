/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the engine notes while it runs, if somebody wants a trace: a ring of records. The context
 * makes spans of them (runtime/context/trace_collect.c).
 */
#ifndef WEFT_RUNTIME_ENGINE_RECORD_H
#define WEFT_RUNTIME_ENGINE_RECORD_H

#include "runtime/engine/engine.h"

/* What is kept of a plan: runs of equal plans share it. */
struct weft__kept_plan {
    uint64_t hash;
    char *name;
    struct weft__plan_label *labels; /* ascending in node */
    uint32_t label_count;
};

struct weft__recorder {
    struct weft__record *records;
    size_t mask;
    uint64_t count; /* noted so far; the ring holds the last of them */
    uint32_t runs;  /* registered so far */
    struct weft__kept_plan *plans;
    size_t plan_count, plan_capacity;
    char *directory;     /* where to write at the end; NULL: nowhere */
    char *path;          /* of the file there, once it has been written */
    _Atomic int writing; /* that file */
};

enum weft__record_what {
    WEFT__NOTE_RUN_START,
    WEFT__NOTE_RUN_END,
    WEFT__NOTE_START,
    WEFT__NOTE_END,
    WEFT__NOTE_RETIRED,
    WEFT__NOTE_ARRIVED /* a message or signal */
};

struct weft__record {
    uint64_t time;
    uint64_t version;
    uint64_t bytes;
    uint32_t object;
    uint32_t plan;
    uint32_t run; /* number of the run, in the order in which they were registered */
    uint32_t node;
    uint32_t tag;
    int32_t peer;
    uint8_t what;
    uint8_t kind;
    uint8_t helper;
    int8_t status;
};

/* Notes while tracing is on: engine->recorder is not NULL. */
void weft__note_run(struct weft__engine *engine, const struct weft_run *run, int what);
void weft__note_node(struct weft__engine *engine, const struct weft_run *run, uint32_t node,
                     int what);
void weft__note_message(struct weft__engine *engine, const struct weft__message *message);

/* A recorder of at least `records` records, empty. NULL: no memory, with the text set. */
struct weft__recorder *weft__recorder_create(size_t records);
void weft__recorder_destroy(struct weft__recorder *recorder);
/* A run gets its number, and its plan's name and labels are kept, if its engine records. WEFT_OK or
 * WEFT_ERR_MEMORY. */
int weft__recorder_register(struct weft_run *run);

#endif
