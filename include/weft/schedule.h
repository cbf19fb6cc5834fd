/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Schedules: a collective written down as a graph for one rank; building and reading them.
 *
 * A schedule is built for any (rank, size) without a context. Functions that add something return
 * its handle (>= 0) or a negative status; the first error sticks: every later call returns it, and
 * so does weft_schedule_commit() (weft/plan.h), so that a builder may check once, at the end. One
 * thread at a time may use a schedule.
 */
#ifndef WEFT_SCHEDULE_H
#define WEFT_SCHEDULE_H

#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_schedule;

/** A node: position in the order of creation, from 0. Negative: a status. */
typedef int32_t weft_node_t;
/** A buffer slot, from 0. Negative: a status. */
typedef int32_t weft_slot_t;
/** A run-time value, from 1; 0 is "none". Negative: a status. */
typedef int32_t weft_value_t;

/** No node. */
#define WEFT_NODE_NONE (-1)

/** No such peer: a send, receive or signal whose peer is bound to it ends at once. */
#define WEFT_PEER_NONE (-1)

/** What a buffer slot is for. Only scratch is provided by the run; the rest is bound by the user.
 */
typedef enum weft_slot_kind {
    /** Bound by the user, read only. */
    WEFT_SLOT_INPUT,
    /** Bound by the user, contents before the run do not matter. */
    WEFT_SLOT_OUTPUT,
    /** Bound by the user, read and written. */
    WEFT_SLOT_INOUT,
    /** Belongs to the run; undefined contents at its start. */
    WEFT_SLOT_SCRATCH
} weft_slot_kind_t;

/** Where the memory of a slot is. */
typedef enum weft_memory {
    /** Of the host: what the processor reads and writes. */
    WEFT_MEMORY_HOST,
    /** Of the device of the context that a run is of (weft/cuda.h). */
    WEFT_MEMORY_DEVICE
} weft_memory_t;

/** In weft_schedule_set_memory(): every slot that the schedule has so far. */
#define WEFT_SLOT_ALL (-1)

/** A range of elements of a slot. `value`, if not 0, holds the number used in a run: <= `count`. */
struct weft_region {
    weft_slot_t slot;
    weft_value_t value;
    /** Elements of the slot's datatype. */
    size_t offset;
    size_t count;
};

/** The region of @p count elements from element @p offset of @p slot. */
WEFT_EXPORT struct weft_region weft_region_at(weft_slot_t slot, size_t offset, size_t count);

/**
 * An empty schedule for rank @p rank of @p size ranks. The ranks of a schedule are 0 .. size-1;
 * which ranks of a context they are is bound when a run starts (by default the same).
 * @return WEFT_OK; WEFT_ERR_INVALID (size < 1, rank outside 0 .. size-1); WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_schedule_create(struct weft_schedule **schedule, int rank, int size);

/** Frees a schedule; plans made from it live on. NULL is accepted. */
WEFT_EXPORT void weft_schedule_destroy(struct weft_schedule *schedule);

/** Names it, for dumps, traces and errors. Copied. Default "schedule". */
WEFT_EXPORT int weft_schedule_set_name(struct weft_schedule *schedule, const char *name);

/** The status of the first failed call on this schedule, WEFT_OK if there was none. */
WEFT_EXPORT int weft_schedule_status(const struct weft_schedule *schedule);

/**
 * Adds a buffer slot of @p count elements (0 is allowed).
 * @param name [A-Za-z_][A-Za-z0-9_.-]*, unique in the schedule; copied.
 */
WEFT_EXPORT weft_slot_t weft_schedule_add_slot(struct weft_schedule *schedule, const char *name,
                                               weft_dtype_t dtype, size_t count,
                                               weft_slot_kind_t kind);

/**
 * Says where the memory of @p slot is: what is bound to it must be there, and of scratch the run
 * provides it there. Without this it is host memory. weft_schedule_place() says which nodes the
 * device executes.
 * @param slot WEFT_SLOT_ALL: every slot that there is, of a template that has been built, say.
 * @return WEFT_OK, or a negative status, as all errors of a builder.
 */
WEFT_EXPORT int weft_schedule_set_memory(struct weft_schedule *schedule, weft_slot_t slot,
                                         weft_memory_t memory);

/**
 * Adds a value: a count that is known only while the schedule runs, between 0 and @p max. It is
 * bound by the user (weft_run_bind_value()), or produced by one node: an up-to receive or a
 * compute. Regions name it; they are read when their node starts.
 */
WEFT_EXPORT weft_value_t weft_schedule_add_value(struct weft_schedule *schedule, const char *name,
                                                 uint64_t max);

/**
 * Adds a send of @p region to rank @p peer (0 .. size-1; itself is allowed). In one run of one
 * rank, (peer, tag) is unique among sends, and among receives. Ends when the region may be changed.
 */
WEFT_EXPORT weft_node_t weft_schedule_add_send(struct weft_schedule *schedule,
                                               struct weft_region region, int peer, uint32_t tag);

/** Adds a receive of exactly region.count elements; anything else fails the run. */
WEFT_EXPORT weft_node_t weft_schedule_add_recv(struct weft_schedule *schedule,
                                               struct weft_region region, int peer, uint32_t tag);

/** Adds a receive of at most region.count elements; @p produces, if not 0, becomes their number. */
WEFT_EXPORT weft_node_t weft_schedule_add_recv_up_to(struct weft_schedule *schedule,
                                                     struct weft_region region, int peer,
                                                     uint32_t tag, weft_value_t produces);

/**
 * Adds dst[i] = a[i] op b[i]. Three regions of the same count and datatype; dst may be exactly a or
 * b. For an operation that does not commute, a must stem from lower ranks than b.
 */
WEFT_EXPORT weft_node_t weft_schedule_add_reduce(struct weft_schedule *schedule,
                                                 const struct weft_op *op, struct weft_region dst,
                                                 struct weft_region a, struct weft_region b);

/** Adds a copy. Regions of the same size in bytes that do not overlap (or are the same). */
WEFT_EXPORT weft_node_t weft_schedule_add_copy(struct weft_schedule *schedule,
                                               struct weft_region dst, struct weft_region src);

/** What a compute function does to a region. */
typedef enum weft_access {
    /** Reads it. */
    WEFT_READ = 1,
    /** Writes it; what it held before does not matter. */
    WEFT_WRITE = 2,
    /** Reads what it held before, and writes it. */
    WEFT_UPDATE = 3
} weft_access_t;

/** A region that a compute function is called with, and what the function does to it. */
struct weft_compute_argument {
    struct weft_region region;
    weft_access_t access;
};

/**
 * Adds a call of a compute operation on @p count regions.
 * @param arguments copied; NULL if there are none.
 * @param produces the value that it sets, or 0.
 */
WEFT_EXPORT weft_node_t weft_schedule_add_compute(struct weft_schedule *schedule,
                                                  const struct weft_op *op,
                                                  const struct weft_compute_argument *arguments,
                                                  size_t count, weft_value_t produces);

/** Adds a node that does nothing: it ends as soon as it starts. */
WEFT_EXPORT weft_node_t weft_schedule_add_join(struct weft_schedule *schedule);

/** An event that only the application fires. */
#define WEFT_CHANNEL_NONE UINT32_MAX

/**
 * Adds an event: it ends when its predecessors allow it and it has been fired, by weft_run_fire()
 * or by a signal on @p channel with a version that is at least the run's.
 */
WEFT_EXPORT weft_node_t weft_schedule_add_event(struct weft_schedule *schedule, uint32_t channel);

/** Adds a node that signals the run's version to @p channel of the same object on rank @p peer. */
WEFT_EXPORT weft_node_t weft_schedule_add_signal(struct weft_schedule *schedule, int peer,
                                                 uint32_t channel);

/** @p after starts only when @p before allows it. Repeating an order is harmless. */
WEFT_EXPORT int weft_schedule_add_order(struct weft_schedule *schedule, weft_node_t before,
                                        weft_node_t after);

/** @p node starts after ANY of its predecessors instead of ALL. */
WEFT_EXPORT int weft_schedule_set_any(struct weft_schedule *schedule, weft_node_t node);

/** The events become a choice: the first to fire retires the others. An event is in one choice. */
WEFT_EXPORT int weft_schedule_add_choice(struct weft_schedule *schedule, const weft_node_t *events,
                                         size_t count);

/** Names a node, for dumps and errors. Copied. */
WEFT_EXPORT int weft_schedule_set_label(struct weft_schedule *schedule, weft_node_t node,
                                        const char *label);

/** What a result states. */
typedef enum weft_result_kind {
    /** When the run has ended, region `dst` holds, element by element, the combination by `op` of
     *  `from`[offset + i] of ranks, each exactly once, as those slots were at the start. With one
     *  rank no op is needed (NULL). */
    WEFT_RESULT_REGION,
    /** This rank's run ends after the runs of ranks have started, whatever its memory holds: what a
     *  barrier is for. `dst`, `from`, `own`, `offset` and `op` are left 0. */
    WEFT_RESULT_AFTER_START
} weft_result_kind_t;

/** A result, for checking and verification. Its ranks are first .. first + ranks - 1, or those in
 *  `among`. */
struct weft_result {
    size_t struct_size;
    weft_result_kind_t kind;
    struct weft_region dst;
    /** Name of the slot on the contributing ranks. Copied. */
    const char *from;
    size_t offset;
    int first;
    int ranks;
    const struct weft_op *op;
    /** `ranks` different ranks in the order of combination, where they are not a range; else NULL.
     *  Copied. */
    const int *among;
    /** Name of the slot on the rank that states the result, where its own contribution lies in
     *  another one than `from`, at the same offset; NULL: `from`. Copied. */
    const char *own;
    /** 1: up to what is lost where contributions are compressed on the way: quantised and
     *  dequantised, projected and reconstructed (weft/compress.h). Which they are does not change.
     *  0: exactly, but for rounding. */
    int lossy;
};

/** A result of kind WEFT_RESULT_REGION of no ranks yet, as weft_context_config_init(). */
WEFT_EXPORT void weft_result_init_sized(struct weft_result *result, size_t size);
#define weft_result_init(result) weft_result_init_sized((result), sizeof *(result))

/** The rank of contribution @p index to a result; WEFT_ERR_INVALID if @p result is NULL or has no
 *  such contribution (0 .. ranks - 1). */
WEFT_EXPORT int weft_result_rank(const struct weft_result *result, int index);

/** The name of the slot on rank @p contributor of a result that rank @p rank states: `own` if they
 *  are the same and it is there, else `from`. It lives as long as @p result's names; NULL, with an
 *  error text, if @p result is NULL or has no size. */
WEFT_EXPORT const char *weft_result_slot(const struct weft_result *result, int rank,
                                         int contributor);

/** Adds a statement about the result; a schedule may have many. A struct_size that is none is an
 *  error of the schedule, as all else that is wrong. */
WEFT_EXPORT int weft_schedule_add_result(struct weft_schedule *schedule,
                                         const struct weft_result *result);

/**
 * Puts every node on one side, the host's or the device's, and adds copies for those of its regions
 * that are on the other: a reduction works where what it writes is, a compute node on the device if
 * one of its regions is there. Such a region is replaced by scratch of its size, into which it is
 * copied before if the node reads it, and from which after if the node writes it. Nodes keep their
 * numbers; copies come behind them, with labels. weft_schedule_commit() does this to a copy of its
 * own, so it is for who wants to see it, or to dump it.
 * @return WEFT_OK, also where there was nothing to add; WEFT_ERR_MEMORY, WEFT_ERR_UNSUPPORTED (too
 *         many nodes), as all errors of a builder.
 */
WEFT_EXPORT int weft_schedule_place(struct weft_schedule *schedule);

/* ---- schedules made of others ---- */

/** Where the elements of a slot of a part lie. */
struct weft_part_slot {
    /** Of an INPUT, OUTPUT or INOUT slot of the part. */
    const char *name;
    /** Of the schedule that it is put into: of the slot's datatype, at least its count, with no
     *  value, and in no INPUT slot if the part may write it. */
    struct weft_region region;
};

/** How a part is put into a schedule. Members that are 0 mean their defaults. */
struct weft_part_config {
    size_t struct_size;
    /** Names what the part brings: its slots are called NAME.SLOT, its values NAME.VALUE, its
     *  labels "NAME: LABEL", and the join NAME. As the name of a slot. Default: "part0", "part1"
     *  and so on. */
    const char *name;
    /** Where its slots lie, each that is not scratch and has elements once. Regions of two may
     *  overlap only if the part writes neither. */
    const struct weft_part_slot *slots;
    size_t slot_count;
    /** Its scratch slots are called SCRATCH.SLOT and shared with other parts that say the same;
     *  nodes of two such parts must not run at the same time (weft_check() sees it if they may).
     *  Memory that is shared is never skipped: a receive is then not reduced as it arrives. NULL:
     *  scratch of its own. */
    const char *scratch;
    /** Added to its tags; the same on all ranks. */
    uint32_t tag;
    /** All its tags must be below, as they were before: so parts whose `tag` is that far apart
     *  share none. 0: not looked at. */
    uint32_t tag_count;
    /** Added to the channels of its events and signals. */
    uint32_t channel;
    /** ranks[r]: the rank of the schedule that rank r of the part is; as many entries as it has
     *  ranks, all different. NULL: the same. */
    const int *ranks;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_part_config_init_sized(struct weft_part_config *config, size_t size);
#define weft_part_config_init(config) weft_part_config_init_sized((config), sizeof *(config))

/**
 * Puts a copy of @p part into @p schedule: its nodes, orders, operations, scratch, values, choices
 * and labels, but no results, and not its name. So schedules are made of others, of those that
 * weft_template_build() makes, say. The nodes come behind those that there are, in their order:
 * node n of the part becomes node J - N + n, if J is what is returned and N how many it has.
 *
 * What has no predecessors in the part starts after @p after. The events among it may be fired
 * before, and end then. A value that nobody produces there is the user's to bind.
 * @param part of any rank and size that `ranks` translates, without an error; is not changed.
 * @param after WEFT_NODE_NONE: they start with the run.
 * @param config NULL: all defaults.
 * @return the join that ends after @p after and all of the part that no choice can retire. Nodes
 *         that one may retire are waited for only as far as something follows them that lives
 *         whichever event wins (after each of a choice's events, say, with
 *         weft_schedule_set_any()). Or a negative status, as all errors of a builder:
 *         WEFT_ERR_INVALID; WEFT_ERR_UNSUPPORTED (too many nodes); WEFT_ERR_MEMORY.
 */
WEFT_EXPORT weft_node_t weft_schedule_add_part(struct weft_schedule *schedule,
                                               const struct weft_schedule *part, weft_node_t after,
                                               const struct weft_part_config *config);

/* ---- reading a schedule ---- */

/** Rank, size and name of a schedule, and how much there is in it. Of NULL: rank and size are
 *  WEFT_ERR_INVALID, the name is "", and there are 0 of everything. */
WEFT_EXPORT int weft_schedule_rank(const struct weft_schedule *schedule);
WEFT_EXPORT int weft_schedule_size(const struct weft_schedule *schedule);
WEFT_EXPORT const char *weft_schedule_name(const struct weft_schedule *schedule);
WEFT_EXPORT size_t weft_schedule_node_count(const struct weft_schedule *schedule);
WEFT_EXPORT size_t weft_schedule_slot_count(const struct weft_schedule *schedule);
WEFT_EXPORT size_t weft_schedule_value_count(const struct weft_schedule *schedule);
WEFT_EXPORT size_t weft_schedule_result_count(const struct weft_schedule *schedule);
WEFT_EXPORT size_t weft_schedule_edge_count(const struct weft_schedule *schedule);

/** A slot, as weft_schedule_add_slot() made it. */
struct weft_slot_info {
    /** Set by the caller. */
    size_t struct_size;
    const char *name;
    weft_dtype_t dtype;
    weft_slot_kind_t kind;
    size_t count;
    weft_memory_t memory;
};

/** A value; `producer` is the node that sets it, or -1 if the user binds it. */
struct weft_value_info {
    /** Set by the caller. */
    size_t struct_size;
    const char *name;
    uint64_t max;
    weft_node_t producer;
};

/** Every kind of node: name, text. */
#define WEFT_NODE_MAP(X)                                                                           \
    X(WEFT_NODE_SEND, "send")                                                                      \
    X(WEFT_NODE_RECV, "recv")                                                                      \
    X(WEFT_NODE_REDUCE, "reduce")                                                                  \
    X(WEFT_NODE_COPY, "copy")                                                                      \
    X(WEFT_NODE_COMPUTE, "compute")                                                                \
    X(WEFT_NODE_JOIN, "join")                                                                      \
    X(WEFT_NODE_EVENT, "event")                                                                    \
    X(WEFT_NODE_SIGNAL, "signal")

/** The kind of a node. Reduce and copy are compute nodes whose meaning is known. */
typedef enum weft_node_kind {
#define WEFT_NODE_ENUM(name, text) name,
    WEFT_NODE_MAP(WEFT_NODE_ENUM)
#undef WEFT_NODE_ENUM
        WEFT_NODE_KIND_COUNT
} weft_node_kind_t;

/** "send" and so on; NULL if there is no such kind. */
WEFT_EXPORT const char *weft_node_kind_name(weft_node_kind_t kind);

/** A node. Pointers belong to the schedule and are valid until it is changed or destroyed. */
struct weft_node_info {
    /** Set by the caller. */
    size_t struct_size;
    weft_node_kind_t kind;
    /** Starts after ANY predecessor. */
    int any;
    /** A receive takes up to its region's count. */
    int up_to;
    /** Send, receive, signal: rank of the schedule. Else -1. */
    int peer;
    /** Send and receive. */
    uint32_t tag;
    /** Event and signal. */
    uint32_t channel;
    /** Event: number of its choice (from 0), or -1. */
    int choice;
    /** Value produced, or 0. */
    weft_value_t produces;
    /** send, recv: 1 region; reduce: dst, a, b; copy: dst, src; compute: its arguments. */
    const struct weft_region *regions;
    size_t region_count;
    /** What the node does to each of its regions. */
    const weft_access_t *accesses;
    const struct weft_op *op;
    /** NULL if it has none. */
    const char *label;
    /** The line of the text that the schedule was read from, from 1; 0: it was not. */
    size_t line;
};

/** What a slot, a value or a node of a schedule is.
 *  @return WEFT_OK, or WEFT_ERR_INVALID if there is no such thing. */
WEFT_EXPORT int weft_schedule_get_slot(const struct weft_schedule *schedule, weft_slot_t slot,
                                       struct weft_slot_info *info);
WEFT_EXPORT int weft_schedule_get_value(const struct weft_schedule *schedule, weft_value_t value,
                                        struct weft_value_info *info);
WEFT_EXPORT int weft_schedule_get_node(const struct weft_schedule *schedule, weft_node_t node,
                                       struct weft_node_info *info);
/** A statement about the result. Its struct_size is set by the caller.
 *  @return WEFT_OK, or WEFT_ERR_INVALID if there is no such result. */
WEFT_EXPORT int weft_schedule_get_result(const struct weft_schedule *schedule, size_t index,
                                         struct weft_result *result);

/** Edge number @p index (0 .. edge_count-1), in the order in which they were given. */
WEFT_EXPORT int weft_schedule_get_edge(const struct weft_schedule *schedule, size_t index,
                                       weft_node_t *before, weft_node_t *after);

#ifdef __cplusplus
}
#endif

#endif
