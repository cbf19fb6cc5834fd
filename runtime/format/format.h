/* SPDX-License-Identifier: BSD-3-Clause */
/* What the formats of schedules share: a document being read. */
#ifndef WEFT_RUNTIME_FORMAT_FORMAT_H
#define WEFT_RUNTIME_FORMAT_FORMAT_H

#include "runtime/base/hash.h"
#include "runtime/base/out.h"
#include "runtime/graph/lists.h"
#include "runtime/graph/op.h"
#include "runtime/graph/schedule.h"

#include <weft/format.h>

/* The word for a kind of slot, "input" and so on; NULL if there is no such kind. */
const char *weft__slot_word(weft_slot_kind_t kind);
/* "in", "out" or "update". */
const char *weft__access_word(weft_access_t access);

/* ---- writing ---- */

/* Writers of the formats. The schedules are sound, of one size and name, ascending in rank.
 * WEFT_OK; WEFT_ERR_MEMORY without a text; GOAL also other statuses, with one. */
int weft__write_text(struct weft__out *out, const struct weft_schedule *const *schedules,
                     size_t count);
int weft__write_json(struct weft__out *out, const struct weft_schedule *const *schedules,
                     size_t count);
int weft__write_dot(struct weft__out *out, const struct weft_schedule *const *schedules,
                    size_t count);
/* `options` NULL: the defaults. */
int weft__write_goal(const char *who, struct weft__out *out,
                     const struct weft_schedule *const *schedules, size_t count,
                     const struct weft_goal_options *options);

/* ---- reading ---- */

struct weft__choice {
    uint64_t number;
    weft_node_t event;
};

/* Operations of the library that were named (named.c). */
struct weft__named_ops {
    struct weft_op **at;
    size_t count, capacity;
    struct weft__table table; /* by their names */
    int no_memory;            /* for one that was named */
    char reason[128];         /* why the last name that was asked for is none; "": nothing to say */
};

/* The operation with a name, made when it is first asked for. NULL: there is none, or no memory. */
const struct weft_op *weft__named_op(struct weft__named_ops *named, const char *name,
                                     size_t length);
void weft__named_ops_free(struct weft__named_ops *named);

/* A document while it is read. The reader of a format fills it; what is in it is freed by
 * weft_schedule_read() if that fails. */
struct weft__document {
    const char *text;
    size_t length;
    const struct weft_op *const *ops;
    size_t op_count;
    struct weft__named_ops *named;
    char *name;
    int size;             /* before it is read: that of a document of any size, or 0 */
    size_t most_repeated; /* bytes that repetitions may make */
    const struct weft_parameter *parameters; /* given */
    size_t parameter_count;
    struct weft_schedule **schedules;
    size_t count, capacity;
    struct weft__choice *choices; /* of the rank that is being read */
    size_t choice_count, choice_capacity;
    int beyond;            /* a region goes beyond its slot */
    size_t most_memory;    /* bytes that the schedules may take; 0: not looked up yet */
    double finished_bytes; /* that the ranks before the last take */
    double reader_bytes;   /* that the reader takes besides */
};

/* Repetitions that are being read, and what the document took before the last half of them. */
struct weft__progress {
    uint64_t done, total;
    uint64_t older, newer; /* how many were done then */
    double older_bytes, newer_bytes;
};

/* Readers of the formats. WEFT_OK; WEFT_ERR_FORMAT, WEFT_ERR_MEMORY with the thread's text set. */
int weft__read_text(struct weft__document *document);
int weft__read_json(struct weft__document *document);

/* The parameters that a text declares, for weft_schedule_read_parameters(). */
int weft__read_text_parameters(struct weft__document *document, struct weft_parameter **parameters,
                               size_t *count);

/* Starts the schedule of the next rank: the last one in document->schedules. */
int weft__document_rank(struct weft__document *document, int rank);
/* What a document takes (memory.c). A rank is complete; .._document_rank() says so. */
void weft__document_finish(struct weft__document *document);
void weft__progress_begin(struct weft__progress *progress, const struct weft__document *document,
                          uint64_t total);
/* One more is done: the bytes that the document will need if the others are like the latest. */
double weft__progress_needs(struct weft__progress *progress, const struct weft__document *document);
/* 1, with "about 10 GiB of memory, expected at most the 8 GiB here", if `needs`, or what is taken
 * already, is more than there is; else 0. */
int weft__document_lacks(struct weft__document *document, double needs, char *text, size_t bytes);
/* Notes that an event belongs to a choice; applied, in ascending number, by .._choose(). */
int weft__document_choice(struct weft__document *document, uint64_t number, weft_node_t event);
int weft__document_choose(struct weft__document *document);
/* The operation with a name: what was given comes before the library's. NULL if there is none. */
const struct weft_op *weft__document_op(const struct weft__document *document, const char *name,
                                        size_t length);
/* "expected one of ..." for operations and datatypes, cut to fit. */
void weft__document_op_names(const struct weft__document *document, char *text, size_t bytes);
void weft__dtype_names(char *text, size_t bytes);

/* The latest error of a builder without the name of the function. */
const char *weft__builder_text(void);

#endif
