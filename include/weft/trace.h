/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Traces: when each node of each rank began and ended; and the state of a context that hangs.
 *
 * A context records while tracing is on. A `weft_trace` is what was recorded, of one rank or of
 * many, as spans; it is written as Chrome trace JSON, which Perfetto and chrome://tracing open, and
 * read back.
 */
#ifndef WEFT_TRACE_H
#define WEFT_TRACE_H

#include <weft/context.h>
#include <weft/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_trace;
struct weft_run;

/* ---- spans ---- */

/** Kind of a span that is a whole run rather than a node (weft_node_kind_t otherwise). */
#define WEFT_TRACE_RUN (-1)

/** How a span ended. */
typedef enum weft_trace_end {
    /** It ended. */
    WEFT_TRACE_ENDED,
    /** A node that was retired: it did nothing; start and end are one time. */
    WEFT_TRACE_RETIRED,
    /** It had not ended when the recording did, or its run failed first. */
    WEFT_TRACE_UNFINISHED
} weft_trace_end_t;

/** One node, or one run, of one rank. Times are nanoseconds of any clock that the ranks share, or
 *  that weft_trace_align() can bring together. */
struct weft_trace_span {
    size_t struct_size;
    /** Rank of the context; from 0. */
    int rank;
    /** WEFT_TRACE_RUN, or the weft_node_kind_t of the node. */
    int kind;
    weft_trace_end_t end;
    /** 1: the helper thread drove the engine when it ended. */
    int helper;
    /** Number of the node in its schedule; -1 for a run. */
    int32_t node;
    /** Object of the run: its number in the order of creation; of member m of object N
     *  (weft/object.h), m from 1: N + m * 2^20; both modulo UINT32_MAX. So numbers differ while
     *  there are fewer than 2^20 objects, of fewer than 4096 members each. UINT32_MAX: none (a
     *  local run). */
    uint32_t object;
    uint64_t version;
    /** Send, receive, signal: rank of the context at the other end, WEFT_PEER_NONE: none. Else -1.
     */
    int peer;
    /** Tag of a message, channel of an event or signal. */
    uint32_t tag;
    /** Payload; of a computation: what it writes. */
    uint64_t bytes;
    uint64_t start_ns;
    /** Not before start_ns. */
    uint64_t end_ns;
    /** Receive: when its message came to this rank; or WEFT_NEVER. */
    uint64_t arrived_ns;
    /** Run: the status it ended with. */
    int status;
    /** Name of the plan; NULL: "". */
    const char *plan;
    /** Label of the node, or NULL. */
    const char *label;
};

/** A join of rank 0 at time 0, as weft_context_config_init(). */
WEFT_EXPORT void weft_trace_span_init_sized(struct weft_trace_span *span, size_t size);
#define weft_trace_span_init(span) weft_trace_span_init_sized((span), sizeof *(span))

/* ---- traces ---- */

/** An empty trace. One thread at a time. @return WEFT_OK, WEFT_ERR_INVALID, WEFT_ERR_MEMORY. */
WEFT_EXPORT int weft_trace_create(struct weft_trace **trace);
/** NULL is accepted. */
WEFT_EXPORT void weft_trace_destroy(struct weft_trace *trace);

/**
 * Adds a span; texts are copied. In any order.
 * @return WEFT_OK; WEFT_ERR_INVALID (rank or node or kind out of range, end before start);
 *         WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_trace_add(struct weft_trace *trace, const struct weft_trace_span *span);

/** Number of spans, and span @p index of them; its texts belong to the trace. Writing sorts them.
 */
WEFT_EXPORT size_t weft_trace_span_count(const struct weft_trace *trace);
WEFT_EXPORT int weft_trace_get_span(const struct weft_trace *trace, size_t index,
                                    struct weft_trace_span *span);

/** What a trace holds of one rank. */
struct weft_trace_rank {
    /** Set by the caller. */
    size_t struct_size;
    int rank;
    /** Ranks of its context; 0: not known. */
    int size;
    /** Spans of it. */
    size_t spans;
    /** Records that were dropped because its recorder was full: the oldest ones. */
    uint64_t dropped;
    /** What weft_trace_align() has added to its times. */
    int64_t offset_ns;
    /** Half the fastest way there and back: how wrong offset_ns may be. 0: one clock with the first
     *  rank. WEFT_NEVER: no messages led to it and back, the offset is a guess. */
    uint64_t uncertainty_ns;
};

/** Number of ranks in a trace, and number @p index of them, ascending in rank. */
WEFT_EXPORT size_t weft_trace_rank_count(const struct weft_trace *trace);
WEFT_EXPORT int weft_trace_get_rank(const struct weft_trace *trace, size_t index,
                                    struct weft_trace_rank *rank);

/**
 * Brings the clocks of the ranks together. Ranks that share a clock (one machine, or virtual time)
 * are moved as one. Between two clocks, the least time that a message took one way and the least
 * that one took the other way (from the start of its send to its arrival) differ by twice the
 * offset if the fastest ways are equally long: it is half of the difference, as in NTP (RFC 5905,
 * section 8). Where there are several paths from the first clock, the one with the least
 * uncertainty is taken (a minimum spanning tree). Clocks are taken to run at one rate.
 * @return WEFT_OK, WEFT_ERR_INVALID, WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_trace_align(struct weft_trace *trace);

/**
 * Writes Chrome trace JSON: a process a rank (pid = rank + 1), its spans as complete events that
 * never overlap within a thread (overlapping ones are put on several lanes), an arrow from each
 * send to its receive where the trace holds both, times in microseconds with three decimals,
 * ascending. Equal spans give equal bytes.
 * @param path where to; NULL: standard output.
 * @return WEFT_OK, WEFT_ERR_INVALID, WEFT_ERR_IO, WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_trace_write(struct weft_trace *trace, const char *path);

/**
 * Adds what a file holds that weft_trace_write() has written; of other events in it nothing is
 * kept.
 * @return WEFT_OK; WEFT_ERR_IO; WEFT_ERR_FORMAT with a text that says where; WEFT_ERR_MEMORY. After
 *         an error the trace may hold a part of the file.
 */
WEFT_EXPORT int weft_trace_read(struct weft_trace *trace, const char *path);

/** As weft_trace_read() and weft_trace_write(), from and to memory. The text is freed with
 *  weft_memory_free(). */
WEFT_EXPORT int weft_trace_read_text(struct weft_trace *trace, const char *text, size_t length);
WEFT_EXPORT int weft_trace_write_text(struct weft_trace *trace, char **text, size_t *length);

/* ---- recording ---- */

/** How a context records. Members that are 0 mean their defaults. */
struct weft_trace_config {
    size_t struct_size;
    /** Records that are kept, of 56 bytes; a node takes two, a receive three. When there are more
     *  the oldest go, and are counted. At most 2^40. 0: default (2^18, or WEFT_TRACE_RECORDS
     *  from the environment). */
    size_t records;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_trace_config_init_sized(struct weft_trace_config *config, size_t size);
#define weft_trace_config_init(config) weft_trace_config_init_sized((config), sizeof *(config))

/**
 * Begins to record on a context; what was recorded before is dropped. All memory is allocated here
 * and when runs are created, nothing while they run. From any thread. With WEFT_TRACE=DIR in the
 * environment every context records from its creation, and writes
 * DIR/weft-trace.RANK-of-SIZE.*.json when it is destroyed, when a stall is reported, and when
 * SIGTERM, SIGINT or SIGHUP ends the program (merge these with `weft trace`).
 * @param config NULL for defaults.
 * @return WEFT_OK, WEFT_ERR_INVALID, WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_context_trace_start(struct weft_context *context,
                                         const struct weft_trace_config *config);

/** Ends recording and frees what was recorded. */
WEFT_EXPORT int weft_context_trace_stop(struct weft_context *context);

/**
 * Adds what has been recorded so far to a trace; recording goes on. WEFT_ERR_STATE: it is off.
 */
WEFT_EXPORT int weft_context_trace_collect(struct weft_context *context, struct weft_trace *trace);

/* ---- hangs ---- */

/**
 * What every unfinished run of a context waits for: which ranks have not sent or received what they
 * should, node by node, since when. A text of lines that the caller frees with weft_memory_free().
 * From any thread.
 */
WEFT_EXPORT int weft_context_report(struct weft_context *context, char **text);

/**
 * Writes the state of a context as JSON, to be read by `weft post-mortem`: its objects, their
 * versions, unfinished nodes, and messages that have come and match nothing. With WEFT_STATE=DIR in
 * the environment a context does so by itself whenever a run fails and whenever a stall is reported
 * (DIR/weft-state.RANK-of-SIZE.*.json). From any thread.
 * @param path the file to write.
 * @param why  one line that is kept in it; NULL: none.
 * @return WEFT_OK, WEFT_ERR_INVALID, WEFT_ERR_IO, WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_context_dump_state(struct weft_context *context, const char *path,
                                        const char *why);

#ifdef __cplusplus
}
#endif

#endif
