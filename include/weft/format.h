/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Schedules as documents: written as text, JSON, DOT and GOAL, and read from text and JSON.
 * docs/format.md describes the formats.
 */
#ifndef WEFT_FORMAT_H
#define WEFT_FORMAT_H

#include <weft/memory.h>
#include <weft/schedule.h>
#include <weft/sized.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_sim_op_cost; /* weft/sim.h */

/** Formats of dumps; docs/format.md describes them. Text and JSON read back into the same
 *  schedules. */
typedef enum weft_format {
    WEFT_FORMAT_TEXT,
    WEFT_FORMAT_JSON,
    WEFT_FORMAT_DOT,
    /** As weft_schedule_write_goal() with the default options. */
    WEFT_FORMAT_GOAL
} weft_format_t;

/**
 * Writes the schedules of @p count ranks (usually all, or one) as one document.
 * @param text receives a NUL-terminated string that the caller frees with weft_memory_free().
 * @return WEFT_OK, WEFT_ERR_INVALID, WEFT_ERR_MEMORY; for GOAL as weft_schedule_write_goal().
 */
WEFT_EXPORT int weft_schedule_write(const struct weft_schedule *const *schedules, size_t count,
                                    weft_format_t format, char **text, size_t *length);

/** How schedules become GOAL. */
struct weft_goal_options {
    size_t struct_size;
    /** Ranks whose application reaches the collective at the start; it counts where an event of the
     *  application competes with signals (an activation). Borrowed. NULL: rank 0. */
    const int *activators;
    size_t activator_count;
    /** What computing costs, in microseconds a byte of what is written: reductions, copies, calls
     *  of a user's operation. Rounded to whole nanoseconds a node. Defaults 0. */
    double reduce_us_per_byte;
    double copy_us_per_byte;
    double compute_us_per_byte;
    /** Operations with costs of their own (weft/sim.h), rounded likewise; borrowed. Others cost as
     *  `compute_us_per_byte` says. Of several entries for an operation the longest one counts. */
    const struct weft_sim_op_cost *op_costs;
    size_t op_cost_count;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_goal_options_init_sized(struct weft_goal_options *options, size_t size);
#define weft_goal_options_init(options) weft_goal_options_init_sized((options), sizeof *(options))

/**
 * Writes the schedules of all ranks in GOAL, the input of LogGOPSim (Hoefler, Schneider, Lumsdaine,
 * HPDC 2010). GOAL has no events, choices and ANY nodes: a schedule that has some is written as one
 * of its executions, in which all messages take equally long, applications fire their events at the
 * start, but of those that compete with signals in a choice only the activators'. A comment says
 * so.
 * @param options NULL: the defaults.
 * @param text receives a NUL-terminated string that the caller frees with weft_memory_free().
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_UNSUPPORTED: a rank is missing, or a tag does not fit
 *         (2^32 - 1 means any tag; channels of signals need tags too); WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_schedule_write_goal(const struct weft_schedule *const *schedules, size_t count,
                                         const struct weft_goal_options *options, char **text,
                                         size_t *length);

/**
 * Reads a text or JSON document (told apart by the first character that is not blank).
 * @param ops user operations that the document may name, or NULL; they come before the library's
 *        own of that name, which it knows by itself: those built in, those of weft/sparse.h, and
 *        those of weft/compress.h (with seed 0). A name that is neither is an error.
 * @param schedules receives an array of *count schedules in ascending rank; free each, then the
 *        array with weft_memory_free().
 * @return WEFT_OK; WEFT_ERR_FORMAT with a text that gives line, what was found and what was
 *         expected; WEFT_ERR_INVALID; WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_schedule_read(const char *text, size_t length,
                                   const struct weft_op *const *ops, size_t op_count,
                                   struct weft_schedule ***schedules, size_t *count);

/** A node that a document states well, but that no schedule can have. */
struct weft_read_refusal {
    /** Set by the caller. */
    size_t struct_size;
    /** The rank whose schedule it is, of `size`; -1: it is the document that cannot be read. */
    int rank;
    int size;
    /** Its position among the nodes of the rank. */
    weft_node_t node;
    /** 1: its peer is no rank of the schedule; 0: its regions do not fit a slot, or each other. */
    int peer;
};

/**
 * A parameter of a text document (`param NAME = DEFAULT`), and a value for it, as text: a number,
 * an expression, or where the default is the name of a datatype or operation, such a name.
 */
struct weft_parameter {
    const char *name;
    const char *value;
};

/** How documents are read. */
struct weft_read_options {
    size_t struct_size;
    /** Number of ranks of a document that says `size any`; others say it themselves. 0 (default):
     *  such documents are refused. */
    int size;
    /** As for weft_schedule_read(). Borrowed. */
    const struct weft_op *const *ops;
    size_t op_count;
    /** Bytes of text that the repetitions of a document (`ranks`, `for`) may make, written out:
     *  a short document could otherwise make any number of nodes. A byte takes at most about 50
     *  bytes of memory. 0 (default): 16 MiB. Text that stands there once is not counted. */
    size_t most_repeated;
    /** Told what WEFT_ERR_FORMAT is about; the error's text says what is wrong. NULL: not. */
    struct weft_read_refusal *refusal;
    /** Values of parameters that a text declares; of one name the last counts. A name that it does
     *  not declare is an error that lists those that it does; JSON declares none. Borrowed. */
    const struct weft_parameter *parameters;
    size_t parameter_count;
    /** Bytes of memory that the schedules may take, counted as about 128 for a node. A document
     *  that will take more is refused, by what its first repetitions take, with a text that names
     *  the line, what is needed and what there is. 0 (default): the memory of this machine. */
    size_t most_memory;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_read_options_init_sized(struct weft_read_options *options, size_t size);
#define weft_read_options_init(options) weft_read_options_init_sized((options), sizeof *(options))

/** As weft_schedule_read(), with options (NULL: the defaults). */
WEFT_EXPORT int weft_schedule_read_with(const char *text, size_t length,
                                        const struct weft_read_options *options,
                                        struct weft_schedule ***schedules, size_t *count);

/**
 * What parameters a document declares, in its order, without building it: only what stands above
 * the ranks is read, and no size is needed. A JSON document has none.
 * @param parameters receives an array of *count names and defaults as written (expressions are not
 *        worked out), in one block that the caller frees with weft_memory_free().
 * @return WEFT_OK; WEFT_ERR_FORMAT; WEFT_ERR_INVALID; WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_schedule_read_parameters(const char *text, size_t length,
                                              struct weft_parameter **parameters, size_t *count);

#ifdef __cplusplus
}
#endif

#endif
