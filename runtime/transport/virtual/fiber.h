/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fibers: stacks of their own for functions that take turns in one thread.
 *
 * There is one resumer and many fibers: weft__fiber_resume() runs a fiber until it calls
 * weft__fiber_pause() or returns. Sanitizers are told of each change of stacks.
 */
#ifndef WEFT_RUNTIME_TRANSPORT_VIRTUAL_FIBER_H
#define WEFT_RUNTIME_TRANSPORT_VIRTUAL_FIBER_H

#include <stddef.h>

struct weft__fibers;

struct weft__fiber {
    struct weft__fibers *all;
    void *top;     /* of its stack while it pauses */
    char *stack;   /* lowest byte */
    void *machine; /* ucontext, where there is no switch of our own */
    void *tsan;    /* what the sanitizers keep */
    void *fake_stack;
    void (*run)(void *argument);
    void *argument;
    int started;
    int ended;
};

/* Room for the stacks of `count` fibers of at least `bytes` each. NULL: no memory. */
struct weft__fibers *weft__fibers_create(size_t count, size_t bytes);
/* Frees the stacks. Fibers that have not ended are gone with them. */
void weft__fibers_destroy(struct weft__fibers *fibers);

/* Makes fiber `index` of the room ready to run a function. 0, or -1: no memory. */
int weft__fiber_create(struct weft__fiber *fiber, struct weft__fibers *fibers, size_t index,
                       void (*run)(void *), void *argument);
void weft__fiber_destroy(struct weft__fiber *fiber);

/* Runs it until it pauses or ends. From the resumer only. */
void weft__fiber_resume(struct weft__fiber *fiber);
/* Back to the resumer. From the fiber itself only. */
void weft__fiber_pause(struct weft__fiber *fiber);
/* Whether the fiber has overrun its stack, as far as can be told where it has no guard page. */
int weft__fiber_overrun(const struct weft__fiber *fiber);

#endif
