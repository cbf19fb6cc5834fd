/* SPDX-License-Identifier: BSD-3-Clause */
/* A table of chains, and a list by last use. */
#include <weft/memory.h>
#include <weft/run.h>

#include "schedules/blocking/cache.h"

int weft__blocking_same(const struct weft__blocking_cache *cache,
                        const struct weft__blocking_key *a, const struct weft__blocking_key *b)
{
    return a->template == b->template && a->op == b->op && a->count == b->count &&
           a->dtype == b->dtype && a->root == b->root && a->in_place == b->in_place &&
           weft__blocking_equal(a->counts[0], b->counts[0], cache->ranks) &&
           weft__blocking_equal(a->counts[1], b->counts[1], cache->ranks);
}

static struct weft__blocking_entry **chain_of(struct weft__blocking_cache *cache,
                                              const struct weft__blocking_key *key)
{
    uint64_t word = (uint64_t)(uintptr_t)key->template ^ (uint64_t)(uintptr_t)key->op << 7;
    word ^= (uint64_t)key->count * UINT64_C(0x9e3779b97f4a7c15);
    word ^= (uint64_t)(unsigned)key->dtype << 40 ^ (uint64_t)(unsigned)key->root << 20 ^
            (uint64_t)(unsigned)key->in_place << 60;
    for (int a = 0; a < 2; a++)
        for (size_t r = 0; key->counts[a] && r < cache->ranks; r++)
            word = (word ^ key->counts[a][r]) * UINT64_C(0x100000001b3);
    word *= UINT64_C(0xbf58476d1ce4e5b9);
    return &cache->chains[word >> 32 & (WEFT__BLOCKING_CHAINS - 1)];
}

static void unlink_use(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry)
{
    *(entry->newer ? &entry->newer->older : &cache->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &cache->oldest) = entry->newer;
}

static void link_newest(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry)
{
    entry->newer = NULL;
    entry->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
}

int weft__blocking_is_newest(const struct weft__blocking_cache *cache,
                             const struct weft__blocking_key *key)
{
    return cache->newest && weft__blocking_same(cache, &cache->newest->key, key);
}

struct weft__blocking_entry *weft__blocking_find(struct weft__blocking_cache *cache,
                                                 const struct weft__blocking_key *key)
{
    struct weft__blocking_entry *entry = *chain_of(cache, key);
    while (entry && !weft__blocking_same(cache, &entry->key, key))
        entry = entry->next;
    if (entry) {
        unlink_use(cache, entry);
        link_newest(cache, entry);
    }
    return entry;
}

void weft__blocking_take(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry)
{
    struct weft__blocking_entry **link = chain_of(cache, &entry->key);
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    unlink_use(cache, entry);
    cache->stats.plans--;
    cache->stats.bytes -= entry->bytes;
}

static void destroy(struct weft__blocking_entry *entry)
{
    weft_run_destroy(entry->run);
    weft_op_destroy(entry->key.op);
    weft_memory_free(entry->lists);
    weft_memory_free(entry);
}

void weft__blocking_end(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry)
{
    cache->stats.dropped++;
    if (!entry->run || weft_run_reclaim(entry->run) != WEFT_IN_PROGRESS) {
        destroy(entry);
        return;
    }
    entry->next = cache->lent;
    cache->lent = entry;
}

/* Destroys what has come back, or, waiting for it, all. */
static void end_lent(struct weft__blocking_cache *cache, int all)
{
    struct weft__blocking_entry **link = &cache->lent;
    while (*link) {
        struct weft__blocking_entry *entry = *link;
        if (!all && weft_run_reclaim(entry->run) == WEFT_IN_PROGRESS) {
            link = &entry->next;
            continue;
        }
        *link = entry->next;
        destroy(entry);
    }
}

void weft__blocking_drop(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry)
{
    weft__blocking_take(cache, entry);
    weft__blocking_end(cache, entry);
}

void weft__blocking_drop_all(struct weft__blocking_cache *cache)
{
    while (cache->newest)
        weft__blocking_drop(cache, cache->newest);
}

void weft__blocking_close(struct weft__blocking_cache *cache)
{
    weft__blocking_drop_all(cache);
    end_lent(cache, 1);
}

void weft__blocking_trim(struct weft__blocking_cache *cache)
{
    if (cache->lent)
        end_lent(cache, 0);
    if (cache->most_plans == 0)
        weft__blocking_drop_all(cache);
    while (cache->oldest != cache->newest &&
           (cache->stats.plans > cache->most_plans || cache->stats.bytes > cache->most_bytes))
        weft__blocking_drop(cache, cache->oldest);
}

static void link_entry(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry)
{
    struct weft__blocking_entry **chain = chain_of(cache, &entry->key);
    entry->next = *chain;
    *chain = entry;
    link_newest(cache, entry);
    cache->stats.plans++;
    cache->stats.bytes += entry->bytes;
}

void weft__blocking_give_back(struct weft__blocking_cache *cache,
                              struct weft__blocking_entry *entry)
{
    link_entry(cache, entry);
    weft__blocking_trim(cache);
}

void weft__blocking_add(struct weft__blocking_cache *cache, struct weft__blocking_entry *entry)
{
    link_entry(cache, entry);
    cache->stats.built++;
    if (cache->most_plans > 0) /* else it goes after its call */
        weft__blocking_trim(cache);
}
