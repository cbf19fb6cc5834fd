/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traces: what a context records while it runs, and the spans that are made of it.
 *
 *   engine --notes--> recorder (a ring of records) --collect--> weft_trace (spans) --write--> JSON
 *                                                                  ^    <--read---
 *                                         simulations add spans ---+
 */
#ifndef WEFT_RUNTIME_TRACE_TRACE_H
#define WEFT_RUNTIME_TRACE_TRACE_H

#include "runtime/engine/engine.h"
#include <weft/trace.h>

/* ---- spans: trace.c ---- */

/* A span as a trace keeps it. Texts are numbers in trace->texts, 0 is none. */
struct weft__span {
    uint64_t version, bytes, start, end, arrived;
    uint32_t source;
    uint32_t object, tag, plan, label;
    int32_t node, peer, status;
    int8_t kind;
    uint8_t finish; /* weft_trace_end_t */
    uint8_t helper;
    uint32_t lane; /* tid, while it is written */
};

/* A rank of a group: where spans come from. */
struct weft__source {
    uint32_t group; /* text: contexts of one group exchange messages */
    uint32_t clock; /* text: those of one clock need no alignment */
    int rank;
    int size;
    int pid; /* while it is written */
    uint64_t dropped;
    size_t spans;
    int64_t offset;
    uint64_t uncertainty;
};

struct weft_trace {
    struct weft__span *spans;
    size_t count, capacity;
    struct weft__source *sources;
    size_t source_count, source_capacity;
    uint32_t *source_table; /* hash table of numbers in sources + 1; 0: free */
    size_t source_mask;
    char **texts;
    size_t text_count, text_capacity;
    uint32_t *text_table; /* hash table of numbers in texts; 0: free */
    size_t text_mask;
};

/* The number of a text, which is copied; 0 for NULL and ""; or -1: no memory. */
int64_t weft__trace_text(struct weft_trace *trace, const char *text, size_t length);
/* The source of a rank of a group, made if it is new; or -1: no memory. */
int64_t weft__trace_source(struct weft_trace *trace, uint32_t group, int rank);
/* Fills the table of sources anew. */
void weft__trace_index(struct weft_trace *trace);
/* Room for one more span; NULL: no memory. */
struct weft__span *weft__trace_push(struct weft_trace *trace);
/* Sources by group and rank, spans by source, start, falling end, object, version, node. */
int weft__trace_sort(struct weft_trace *trace);

/* A message: the spans of its send and its receive (or of a signal and its event). */
struct weft__arrow {
    uint32_t from;
    uint32_t to;
};
/* All messages of which both spans are there, ascending in `from`; allocated. */
int weft__trace_arrows(const struct weft_trace *trace, struct weft__arrow **arrows, size_t *count);

/* ---- recording: trace_record.c makes notes, trace_collect.c spans of them ---- */

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
    char *directory; /* where to write at the end; NULL: nowhere */
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

/* Adds spans of what was recorded. While driving. */
int weft__recorder_collect(struct weft_context *context, struct weft_trace *trace);

/* A run gets its number, and its plan's name and labels are kept. WEFT_OK or WEFT_ERR_MEMORY. */
int weft__recorder_register(struct weft_run *run);
/* Starts recording if WEFT_TRACE says so; writes the file, and ends. While driving. */
int weft__recorder_open(struct weft_context *context);
void weft__recorder_close(struct weft_context *context, int write);

/* Makes an empty file DIR/weft-WHAT.RANK-of-SIZE.PID.N.json, with the first N from *number that is
 * free; *number becomes the next one. WEFT_OK, or WEFT_ERR_IO. */
int weft__rank_file(const struct weft_context *context, const char *directory, const char *what,
                    unsigned *number, char *path, size_t size);
/* Whose messages and whose clock a transport has, as texts. */
enum { WEFT__ORIGIN_BYTES = 64 };
void weft__origin(const struct weft__transport *transport, char group[WEFT__ORIGIN_BYTES],
                  char clock[WEFT__ORIGIN_BYTES]);

#endif
