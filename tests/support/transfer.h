/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans for runs that fail, and what they are expected to say. */
#ifndef WEFT_TESTS_TRANSFER_H
#define WEFT_TESTS_TRANSFER_H

#include "support/ranks.h"

enum { LARGE = 1 << 18 }; /* elements of 8 bytes: many slices */

/* rank 0 sends `count` elements to rank 1, which receives `capacity`. */
static inline struct weft_plan *transfer(int rank, int size, size_t count, size_t capacity)
{
    struct weft_schedule *s = new_schedule(rank, size);
    OK(weft_schedule_set_name(s, "transfer"));
    if (rank == 0) {
        weft_slot_t in = weft_schedule_add_slot(s, "x", WEFT_I64, count, WEFT_SLOT_INPUT);
        weft_schedule_add_send(s, weft_region_at(in, 0, count), 1, 5);
    } else if (rank == 1) {
        weft_slot_t out = weft_schedule_add_slot(s, "x", WEFT_I64, capacity, WEFT_SLOT_OUTPUT);
        weft_schedule_add_recv(s, weft_region_at(out, 0, capacity), 0, 5);
    }
    return commit(s);
}

/* Rank 0 sends slot "x" to rank 1, which adds it to its own. Returns the slot. */
static inline weft_slot_t add_to_the_second(struct weft_schedule *s, const struct weft_op *op,
                                            size_t count)
{
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, count, WEFT_SLOT_INOUT);
    struct weft_region x = weft_region_at(slot, 0, count);
    if (weft_schedule_rank(s) == 0) {
        weft_schedule_add_send(s, x, 1, 0);
        return slot;
    }
    weft_slot_t tmp = weft_schedule_add_slot(s, "tmp", WEFT_I64, count, WEFT_SLOT_SCRATCH);
    struct weft_region received = weft_region_at(tmp, 0, count);
    weft_node_t recv = weft_schedule_add_recv(s, received, 0, 0);
    weft_schedule_add_order(s, recv, weft_schedule_add_reduce(s, op, x, x, received));
    return slot;
}

static inline void expect_error(struct weft_run *run, int expected, const char *first,
                                const char *second)
{
    CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), expected);
    CHECK_TEXT(weft_error_text(), first);
    CHECK_TEXT(weft_error_text(), second);
    CHECK_TEXT(weft_run_error(run), first);
    while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
        sched_yield();
}

/* A chain 0 -> 1 -> 2 ... that the last rank holds back by an event. */
static inline struct weft_plan *chain(int rank, int size)
{
    struct weft_schedule *s = new_schedule(rank, size);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I64, 1, WEFT_SLOT_INOUT);
    OK(weft_schedule_set_name(s, "chain"));
    weft_node_t before = weft_schedule_add_join(s);
    if (rank == 0)
        before = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    else
        before = weft_schedule_add_recv(s, weft_region_at(x, 0, 1), rank - 1, 0);
    if (rank < size - 1)
        weft_schedule_add_order(s, before,
                                weft_schedule_add_send(s, weft_region_at(x, 0, 1), rank + 1, 0));
    return commit(s);
}

#endif
