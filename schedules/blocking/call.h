/* SPDX-License-Identifier: BSD-3-Clause */
/* A collective in one line: what a function is, what a rank has for its calls, and a call. */
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
    /* The queue (queue.c), for the thread that is in a call: requests whose entries are still out,
     * in the order of their calls. For all: how many of their steps are not over, and whether the
     * context is being destroyed. */
    struct weft_request *oldest, *latest;
    struct weft_request *spare; /* that nobody has */
    size_t spares;
    _Atomic uint32_t steps;
    _Atomic uint32_t closing;
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

/* A call fails before it has begun, with the status that is returned and the text of the thread: it
 * has been one, and the others hear why it is none here. */
int weft__blocking_give_up(struct weft_context *context, int status);

/* Finds or makes what a call needs, and binds it; the entry becomes the newest. prepare.c. */
int weft__blocking_prepare(struct weft__blocking *blocking, struct weft__blocking_call *call,
                           struct weft__blocking_entry **entry);

/* ---- calls that nobody waits for yet: queue.c. By the thread that is in a call ---- */

/* WEFT_ERR_STATE in a callback of the context. From any thread. */
int weft__queue_outside(const char *who, struct weft_context *context);
/* The plan of the latest request, if it is one for such a call; or NULL. Borrowed: it may be in
 * use, but does not go before the request is taken back. */
struct weft_plan *weft__queue_plan(const struct weft__blocking *blocking,
                                   const struct weft__blocking_key *key);
/* Puts the entries of requests that have ended back into the cache. */
void weft__queue_take_back(struct weft__blocking *blocking);
/* Before a call that blocks: waits until the queue is empty. What is wrong with the call fails its
 * step at once, behind those of the queue. */
int weft__queue_catch_up(struct weft__blocking *blocking, const struct weft__blocking_call *call);
/* Makes a request of a step, for an entry that has been prepared. WEFT_ERR_STATE: it could not be
 * started, and is no step. WEFT_ERR_MEMORY: the step has failed. */
int weft__queue_add(struct weft__blocking *blocking, const char *who,
                    struct weft__blocking_entry *entry, struct weft_request **request);
/* As weft__blocking_give_up(), behind the steps of the queue. */
int weft__queue_fail(struct weft__blocking *blocking, int status);
/* Ends all requests: the context is being destroyed. */
void weft__queue_end(struct weft__blocking *blocking);

#endif
