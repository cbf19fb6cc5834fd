/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the blocking collectives of a context keep: plans with a run each, found by all that a plan
 * depends on, the one used longest ago dropped first.
 */
#ifndef WEFT_SCHEDULES_BLOCKING_CACHE_H
#define WEFT_SCHEDULES_BLOCKING_CACHE_H

#include <weft/collectives.h>
#include <weft/template.h>

/* All that a plan depends on. */
struct weft__blocking_key {
    const char *template;     /* by its address: one for each function */
    const struct weft_op *op; /* or NULL. Held by an entry: no other gets its address */
    size_t count;
    weft_dtype_t dtype;
    int root;
    int in_place;
};

/* A slot that the caller's memory is bound to. */
struct weft__blocking_slot {
    weft_slot_t slot;
    size_t count;     /* 0: the plan has no such slot, or one of no elements */
    const void *data; /* that is bound */
    int reads;        /* an input */
};

struct weft__blocking_entry {
    struct weft__blocking_key key;
    struct weft_run *run;
    struct weft__blocking_slot slots[2];
    /* The arguments of the latest call, as they were given; valid if it has begun. */
    const void *given[2];
    int begun;
    size_t bytes;
    struct weft__blocking_entry *next;          /* in its chain */
    struct weft__blocking_entry *newer, *older; /* by their last use */
};

enum { WEFT__BLOCKING_CHAINS = 64 };

struct weft__blocking_cache {
    struct weft__blocking_entry *newest, *oldest;
    struct weft__blocking_entry *chains[WEFT__BLOCKING_CHAINS];
    size_t most_plans, most_bytes;
    struct weft_collectives_stats stats;
};

static inline int weft__blocking_same(const struct weft__blocking_key *a,
                                      const struct weft__blocking_key *b)
{
    return a->template == b->template && a->op == b->op && a->count == b->count &&
           a->dtype == b->dtype && a->root == b->root && a->in_place == b->in_place;
}

/* The entry with a key, which becomes the newest; NULL: there is none. */
struct weft__blocking_entry *weft__blocking_find(struct weft__blocking_cache *cache,
                                                 const struct weft__blocking_key *key);
/* Makes room by the bounds, the newest excepted, and adds an entry, which becomes the newest. */
void weft__blocking_add(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry);
/* Drops what is above the bounds. */
void weft__blocking_trim(struct weft__blocking_cache *cache);
void weft__blocking_drop(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry);
void weft__blocking_drop_all(struct weft__blocking_cache *cache);

#endif
