/* SPDX-License-Identifier: BSD-3-Clause */
/* How far workers may be ahead, with DSSP: Zhao, An, Liu, Chen, "Dynamic Stale Synchronous Parallel
 * Distributed Training for Deep Learning" (ICDCS 2019), Algorithms 1 and 2. */
#ifndef WEFT_SCHEDULES_OBJECTS_SERVER_THRESHOLD_H
#define WEFT_SCHEDULES_OBJECTS_SERVER_THRESHOLD_H

#include <stddef.h>
#include <stdint.h>

struct weft__threshold_worker {
    uint64_t last_ns;     /* when it pushed last */
    uint64_t interval_ns; /* from the push before; 0: not known */
    uint64_t credits;     /* steps that it may go on without asking */
    int pushed;
};

/* Zeroed: nothing, which may be freed. */
struct weft__threshold {
    uint64_t least;                         /* s_L: who is ahead so far need not ask */
    uint64_t most;                          /* s_U: nobody begins a step who is further ahead */
    struct weft__threshold_worker *workers; /* owned */
    size_t worker_count;
};

/* least <= most. WEFT_OK; WEFT_ERR_MEMORY. */
int weft__threshold_init(struct weft__threshold *threshold, size_t workers, uint64_t least,
                         uint64_t most);
void weft__threshold_free(struct weft__threshold *threshold);

/* A worker's push has come. */
void weft__threshold_pushed(struct weft__threshold *threshold, size_t worker, uint64_t now_ns);

/*
 * Algorithm 2: for how many more steps, 0 .. most - least, a worker that has just pushed should go
 * on, so that it waits least for the next push of the slowest. Both are taken to push on at their
 * last intervals; of equal waits the fewest steps. 0 where an interval is not known. At most
 * WEFT__THRESHOLD_FORESEEN steps are looked at: so far no interval holds. Pure.
 */
enum { WEFT__THRESHOLD_FORESEEN = 1024 };
uint64_t weft__threshold_extra(const struct weft__threshold *threshold, size_t worker,
                               size_t slowest);

/*
 * Algorithm 1: whether a worker that has just pushed, and has now taken `ahead` steps more than the
 * slowest, may begin the next one at once; counts its credits down, or gives it new ones. 0: it
 * waits until it is at most `least` ahead. Never 1 for who is more than `most` ahead.
 */
int weft__threshold_may_go(struct weft__threshold *threshold, size_t worker, uint64_t ahead,
                           size_t slowest);

#endif
