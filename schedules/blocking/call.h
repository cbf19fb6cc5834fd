/* SPDX-License-Identifier: BSD-3-Clause */
/* A blocking collective: what a function is, what a rank has for its calls, and a call. */
#ifndef WEFT_SCHEDULES_BLOCKING_CALL_H
#define WEFT_SCHEDULES_BLOCKING_CALL_H

#include <stdatomic.h>

#include "schedules/blocking/cache.h"

enum weft__blocking_side { NOBODY, ROOT, ALL }; /* whose argument it is */

/* What a list of counts beside a buffer says: nothing is there; how large the blocks of all ranks
 * are; the same, of blocks that may lie anywhere in that buffer. */
enum weft__blocking_listed { NO_LIST, COUNTS, PLACES };

struct weft__blocking_function {
    const char *template;
    const char *names[2]; /* of its buffers: the arguments, and the slots */
    enum weft__blocking_side sides[2];
    int in_place;                   /* the argument that WEFT_IN_PLACE may stand for; -1: neither */
    enum weft__blocking_side whose; /* who may say so */
    int reduces;
    int rooted;
    int blocks; /* of its buffers, the largest has so many: 0 is P of them */
    enum weft__blocking_listed listed[2];
    const char *lists[2]; /* the arguments */
    const char *own;      /* the argument that has the count of the root's block, or NULL */
};

/* What a rank has for the calls on a context; attached to it. */
struct weft__blocking {
    struct weft_context *context;
    /* The thread that is in a call, as a number; 0: none. */
    _Atomic uintptr_t inside;
    int rank, size;
    uint64_t deadline_ns;
    struct weft__blocking_cache cache;
};

/* A call. */
struct weft__blocking_call {
    const char *who;
    const struct weft__blocking_function *function;
    const void *data[2];
    struct weft__blocking_key key;
    const size_t *displacements[2];
};

#define INVALID(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

static inline int out_of_memory(const char *who)
{
    return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", who);
}

/* Finds or makes what a call needs, and binds it; the entry becomes the newest. prepare.c. */
int weft__blocking_prepare(struct weft__blocking *blocking, struct weft__blocking_call *call,
                           struct weft__blocking_entry **entry);

#endif
