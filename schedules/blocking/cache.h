/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the blocking collectives of a context keep: plans with a run each, found by all that a plan
 * depends on, the one used longest ago dropped first.
 */
#ifndef WEFT_SCHEDULES_BLOCKING_CACHE_H
#define WEFT_SCHEDULES_BLOCKING_CACHE_H

#include <string.h>

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
    /* Of the blocks of `send` and `recv`, where they have counts of their own: one a rank. Or NULL.
     * An entry has its own. */
    const size_t *counts[2];
};

/* A slot that the caller's memory is bound to; or several, of a block each. */
struct weft__blocking_slot {
    weft_slot_t slot;
    size_t count;     /* 0: the plan has no such slot, or one of no elements */
    const void *data; /* that is bound */
    int reads;        /* an input */
    /* Where its blocks are bound to, if they are; `displaced`: not behind each other. */
    size_t *displacements;
    int displaced;
};

struct weft__blocking_entry {
    struct weft__blocking_key key;
    struct weft_run *run;
    struct weft__blocking_slot slots[2];
    /* The arguments of the latest call, as they were given; valid if it has begun. */
    const void *given[2];
    int begun;
    size_t *lists; /* memory of counts and displacements, or NULL */
    size_t bytes;
    struct weft__blocking_entry *next;          /* in its chain */
    struct weft__blocking_entry *newer, *older; /* by their last use */
};

enum { WEFT__BLOCKING_CHAINS = 64 };

struct weft__blocking_cache {
    size_t ranks; /* so many has a list of counts */
    struct weft__blocking_entry *newest, *oldest;
    struct weft__blocking_entry *chains[WEFT__BLOCKING_CHAINS];
    struct weft__blocking_entry *lent; /* failed, and ended once nobody reads or writes buffers */
    size_t most_plans, most_bytes;
    struct weft_collectives_stats stats;
};

/* Whether two lists of numbers are the same; NULL is another list than any. */
static inline int weft__blocking_equal(const size_t *a, const size_t *b, size_t count)
{
    return a && b ? memcmp(a, b, count * sizeof *a) == 0 : a == b;
}

/* Whether two calls need the same plan. */
int weft__blocking_same(const struct weft__blocking_cache *cache,
                        const struct weft__blocking_key *a, const struct weft__blocking_key *b);
/* Whether the newest entry has a key. */
int weft__blocking_is_newest(const struct weft__blocking_cache *cache,
                             const struct weft__blocking_key *key);
/* The entry with a key, which becomes the newest; NULL: there is none. */
struct weft__blocking_entry *weft__blocking_find(struct weft__blocking_cache *cache,
                                                 const struct weft__blocking_key *key);
/* Makes room by the bounds, the newest excepted, and adds an entry, which becomes the newest. */
void weft__blocking_add(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry);
/* Takes an entry out, which is the caller's from now on: no other call finds it. */
void weft__blocking_take(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry);
/* Puts it back as the newest, and drops what is above the bounds; or ends it. */
void weft__blocking_give_back(struct weft__blocking_cache *cache,
                              struct weft__blocking_entry *entry);
void weft__blocking_end(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry);
/* Drops what is above the bounds. */
void weft__blocking_trim(struct weft__blocking_cache *cache);
void weft__blocking_drop(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry);
void weft__blocking_drop_all(struct weft__blocking_cache *cache);
/* Drops all, and waits for what is lent. */
void weft__blocking_close(struct weft__blocking_cache *cache);

#endif
