/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Checking schedules before they run: the graphs of all ranks together are searched for cycles,
 * messages without counterparts, sizes that differ, deadlock, races and wrong results.
 *
 * Nothing is executed on data and no context is needed. docs/checking.md says what is found, what
 * "every choice that can happen" means, and where the search is bounded.
 */
#ifndef WEFT_CHECK_H
#define WEFT_CHECK_H

#include <weft/schedule.h>
#include <weft/sized.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Every kind of fault: name, text. */
#define WEFT_FAULT_MAP(X)                                                                          \
    X(WEFT_FAULT_CYCLE, "cycle")                                                                   \
    X(WEFT_FAULT_MATCH, "match")                                                                   \
    X(WEFT_FAULT_SIZE, "size")                                                                     \
    X(WEFT_FAULT_DEADLOCK, "deadlock")                                                             \
    X(WEFT_FAULT_RACE, "race")                                                                     \
    X(WEFT_FAULT_RESULT, "result")                                                                 \
    X(WEFT_FAULT_ORDER, "order")

/**
 * What is wrong.
 *
 * cycle: nodes of one rank wait for each other, so none of them can start.
 * match: a send, receive or signal without its counterpart, two of one (peer, tag), an event whose
 *        channel nobody signals, a rank whose schedule is missing.
 * size: the two ends of a message differ in bytes or datatype, or more may come than fits; or an
 *       operation cannot take its regions: those of weft/compress.h know theirs, and functions of
 *       the host take no memory of a device.
 * deadlock: nodes that wait without end, if every send waits for its receive.
 * race: two nodes of one rank that are not ordered touch common bytes, and one of them writes.
 * result: a stated result is not what the graphs compute; or a node reads what nothing has written,
 *         or an output is not written.
 * order: with `in_order`, messages that wait for each other in a circle, so that there is no order
 *        in which they could be issued to what executes them one after the other.
 */
typedef enum weft_fault_kind {
#define WEFT_FAULT_ENUM(name, text) name,
    WEFT_FAULT_MAP(WEFT_FAULT_ENUM)
#undef WEFT_FAULT_ENUM
        WEFT_FAULT_COUNT
} weft_fault_kind_t;

/** "cycle" and so on; NULL if there is no such kind. Static storage. */
WEFT_EXPORT const char *weft_fault_kind_name(weft_fault_kind_t kind);

/** A node of a rank. */
struct weft_check_node {
    int rank;
    weft_node_t node;
    /** Of the text that the schedule was read from; 0: it was not. */
    size_t line;
};

/** A fault. What it points to belongs to the report. */
struct weft_fault {
    /** Set by the caller. */
    size_t struct_size;
    weft_fault_kind_t kind;
    /** The ranks concerned, ascending, each once: at least one. */
    const int *ranks;
    size_t rank_count;
    /** The nodes concerned, in the order in which the text names them; none where no node is. */
    const struct weft_check_node *nodes;
    size_t node_count;
    /** How many bytes are concerned: those that two nodes race for, that are missing or wrong. 0
     *  where that has no meaning. */
    uint64_t bytes;
    /** One line, for people. */
    const char *text;
};

/** How much is checked. */
struct weft_check_config {
    size_t struct_size;
    /** Faults that the report keeps; more are only counted. Default 100. */
    size_t faults;
    /** Executions of choices, at most: if there are no more, all are checked, else about twice as
     *  many of them. Default 1024, less for large graphs (at least 16). */
    size_t executions;
    /** What the executions beyond that are drawn from: a plain number. */
    uint64_t seed;
    /** 1: stop before the symbolic execution: no deadlock and no result is looked for. */
    int local_only;
    /** 1: look also for an order in which messages between slots of devices can be issued to what
     *  executes them in the order of issue and blocks until the other end has been issued, as NCCL
     *  does on a stream. Where no schedule has a slot on a device: all messages. */
    int in_order;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_check_config_init_sized(struct weft_check_config *config, size_t size);
#define weft_check_config_init(config) weft_check_config_init_sized((config), sizeof *(config))

/** What was checked. */
struct weft_check_summary {
    size_t struct_size;
    /** Ranks of the collective, and its nodes and messages. */
    int ranks;
    uint64_t nodes;
    uint64_t messages;
    /** Stated results; with none there is nothing that the outputs could be compared with. */
    uint64_t results;
    /** Faults, with those that the report has not kept. */
    uint64_t faults;
    /** Executions of choices that can happen; 1 in a schedule without choices, 0 if a cycle left
     *  nothing to execute. */
    uint64_t executions;
    /** 1: there are more choices than were executed (or, for races, combined). */
    int bounded;
    /** 1: a rank may have more races than those counted: after 8 no more are looked for in it. */
    int more;
    /** With `in_order`: messages that are issued in order, and in how many rounds. A rank issues
     *  its messages of a round together (NCCL: as a group), and the rounds one after the other. */
    uint64_t ordered;
    uint64_t rounds;
    /** With `in_order`: ends of messages whose place in the order is not known beforehand, so that
     *  both ranks have to agree on them before either issues: they come after a choice, or the
     *  order would make them wait for an event of the application that they do not wait for. */
    uint64_t unordered;
    /** One line on the first of these; NULL if there is none. Belongs to the report. */
    const char *unordered_text;
};

struct weft_check_report;

/**
 * Checks the schedules of all ranks of a collective together.
 * @param schedules in any order, one for each rank; borrowed. A rank that is missing, or there
 *        twice, or a schedule of another size than the first one's, is a fault of kind match.
 * @param config NULL: the defaults.
 * @param report receives the report, which the caller frees with weft_check_report_destroy(). It is
 *        made whether there are faults or not.
 * @return WEFT_OK: it has been checked, faults or not; WEFT_ERR_INVALID; WEFT_ERR_MEMORY;
 *         WEFT_ERR_UNSUPPORTED (2^32 nodes or more); the first error of a schedule whose building
 *         has failed.
 *
 * Without choices O(n log n) in nodes, edges, the pieces of memory that they touch and the runs of
 * successive ranks in the sums that these hold; ends that are stated to come after starts, O(n) for
 * each 512 ranks; with `in_order` and events of the application, O(n) for each 256 of these. Blocks
 * the caller; any thread.
 */
WEFT_EXPORT int weft_check(const struct weft_schedule *const *schedules, size_t count,
                           const struct weft_check_config *config,
                           struct weft_check_report **report);

/** 1 if no fault was found, else 0. */
WEFT_EXPORT int weft_check_report_ok(const struct weft_check_report *report);

/** Faults that the report keeps, in the order of their kinds. */
WEFT_EXPORT size_t weft_check_report_fault_count(const struct weft_check_report *report);

/** Fault number @p index. @return WEFT_OK; WEFT_ERR_INVALID if there is none. */
WEFT_EXPORT int weft_check_report_get_fault(const struct weft_check_report *report, size_t index,
                                            struct weft_fault *fault);

/** What was checked. @p summary->struct_size is set by the caller. */
WEFT_EXPORT int weft_check_report_get_summary(const struct weft_check_report *report,
                                              struct weft_check_summary *summary);

/** Frees a report. NULL is accepted. */
WEFT_EXPORT void weft_check_report_destroy(struct weft_check_report *report);

#ifdef __cplusplus
}
#endif

#endif
