/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traces: spans, and what is made of them.
 *
 *   runtime/engine/record.c    notes of the engine, in a ring
 *   runtime/context/recorder.c, trace_collect.c --> weft_trace (spans) --write--> JSON
 *                                                 ^          <--read---
 *                        simulations add spans ---+
 */
#ifndef WEFT_RUNTIME_TRACE_TRACE_H
#define WEFT_RUNTIME_TRACE_TRACE_H

#include "runtime/base/hash.h"

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
    struct weft__table source_table;
    char **texts;
    size_t text_count, text_capacity;
    struct weft__table text_table;
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

#endif
