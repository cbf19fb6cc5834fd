/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of the roll: all ranks of a context tell rank 0 something, and are told something by it,
 * again and again; what is longer than a line goes in several calls. So ranks that create something
 * together know of each other that all have come so far, or all hear why not. It is a run like any
 * other, of an object, with which it fails: a rank that has no memory for it fails that.
 *
 *     rank 0                          rank r
 *       lines of all   <----------      its line
 *       judges
 *       an answer each ---------->      its answer
 */
#ifndef WEFT_RUNTIME_CONTEXT_ROLL_H
#define WEFT_RUNTIME_CONTEXT_ROLL_H

#include "runtime/context/context.h"

enum { WEFT__LINE_BYTES = 4096, WEFT__LINE_DATA = WEFT__LINE_BYTES - 16 };

struct weft__line_of_roll {
    int32_t status; /* negative: this rank, or somebody, has failed, and `data` says why */
    uint32_t unused;
    uint64_t bytes; /* whatever both know what to take it for */
    char data[WEFT__LINE_DATA];
};

struct weft__roll {
    struct weft_context *context;
    struct weft_object *object; /* that it is of */
    int own;                    /* of nobody else's */
    int rank, size;
    struct weft_run *run;
    weft_node_t ready, heard, judged;
    struct weft__line_of_roll *lines, *answers; /* of all ranks, or this one */
    struct weft__line_of_roll *mine, *answer;   /* of this rank, among them */
    const char *who;
    int begun;
};

/* object: NULL, or one that all ranks are creating something of. who: begins errors. Collective,
 * does not block. After an error the others have been told, and nothing is there. */
int weft__roll_open(struct weft__roll *roll, struct weft_context *context,
                    struct weft_object *object, const char *who);
/* For a rank that fails without a call: the others' calls fail. */
void weft__roll_fail(struct weft__roll *roll, int status);
void weft__roll_close(struct weft__roll *roll);

/* A call, in which roll->mine is told; then roll->answer is there. `judge`, on rank 0, makes the
 * answers of the lines. WEFT_OK; or what the call, or the answer, has failed with, and its text. */
int weft__roll_call(struct weft__roll *roll, void (*judge)(struct weft__roll *roll, void *user),
                    void *user);
/* The same in two steps: between them the other ranks' failures are seen. */
int weft__roll_begin(struct weft__roll *roll);
int weft__roll_failed(struct weft__roll *roll);
int weft__roll_end(struct weft__roll *roll, void (*judge)(struct weft__roll *roll, void *user),
                   void *user);

/* A line that says that this rank has failed, with the thread's text. */
void weft__line_fail(struct weft__line_of_roll *line, int status);
/* judge: the first rank that has failed is what all are told, else that all is well. */
void weft__roll_judge(struct weft__roll *roll, void *user);

#endif
