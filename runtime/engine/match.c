/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of posted receives and early messages.
 *
 * It is no weft__table (base/hash.h): what it holds comes and goes with every message, in the order
 * of arrival, and nothing may be allocated then. A chain per bucket, linked through the messages
 * themselves; entries of one key keep their order of arrival. The table grows when runs are
 * created, never while they run: chains get longer only when peers run ahead.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/engine/engine.h"

static uint32_t hash(const struct weft__match *match, const struct weft__message *message)
{
    uint64_t key = weft__hash_three(
        message->version, weft__object_key(message->object, message->tag), (uint32_t)message->from);
    return (uint32_t)(key >> 32) >> match->shift;
}

static int same(const struct weft__message *a, const struct weft__message *b)
{
    return a->tag == b->tag && a->from == b->from && a->version == b->version &&
           a->object == b->object;
}

int weft__match_reserve(struct weft__match *match, size_t receives)
{
    size_t need = match->reserved + receives;
    size_t size = !match->buckets ? 0 : (size_t)match->mask + 1;
    size_t wanted = 16;
    uint32_t bits = 4;
    while (wanted < need && bits < 31) {
        wanted *= 2;
        bits++;
    }
    if (wanted > size) {
        struct weft__match next = {NULL, (uint32_t)(wanted - 1), 32 - bits, 0};
        next.buckets = weft__calloc(wanted, sizeof *next.buckets);
        if (!next.buckets)
            return weft__error_memory("the table of messages");
        for (size_t b = 0; b < size; b++) {
            struct weft__message *entry = match->buckets[b];
            while (entry) {
                struct weft__message *following = entry->next;
                struct weft__message **end = &next.buckets[hash(&next, entry)];
                while (*end)
                    end = &(*end)->next;
                entry->next = NULL;
                *end = entry;
                entry = following;
            }
        }
        weft__free((void *)match->buckets);
        match->buckets = next.buckets;
        match->mask = next.mask;
        match->shift = next.shift;
    }
    match->reserved = need;
    return WEFT_OK;
}

void weft__match_unreserve(struct weft__match *match, size_t receives)
{
    match->reserved -= receives;
}

void weft__match_close(struct weft__match *match)
{
    weft__free((void *)match->buckets);
    match->buckets = NULL;
}

static struct weft__message *exchange(struct weft__match *match, struct weft__message *message,
                                      int wants_posted)
{
    struct weft__message **link = &match->buckets[hash(match, message)];
    for (; *link; link = &(*link)->next)
        if (same(*link, message) && ((*link)->kind == WEFT__RECEIVE) == wants_posted) {
            struct weft__message *found = *link;
            *link = found->next;
            return found;
        }
    message->next = NULL;
    *link = message;
    return NULL;
}

struct weft__message *weft__match_arrived(struct weft__match *match, struct weft__message *message)
{
    return exchange(match, message, 1);
}

struct weft__message *weft__match_post(struct weft__match *match, struct weft__message *receive)
{
    return exchange(match, receive, 0);
}

int weft__match_posted(const struct weft__match *match, const struct weft__message *message)
{
    const struct weft__message *entry = match->buckets[hash(match, message)];
    while (entry && !(entry->kind == WEFT__RECEIVE && same(entry, message)))
        entry = entry->next;
    return entry != NULL;
}

void weft__match_remove(struct weft__match *match, struct weft__message *entry)
{
    struct weft__message **link = &match->buckets[hash(match, entry)];
    while (*link && *link != entry)
        link = &(*link)->next;
    if (*link)
        *link = entry->next;
}

static struct weft__message *purge(struct weft__match *match, uint64_t mask, uint64_t object,
                                   uint64_t below)
{
    struct weft__message *taken = NULL;
    for (size_t b = 0; b <= match->mask; b++)
        for (struct weft__message **link = &match->buckets[b]; *link;) {
            struct weft__message *entry = *link;
            if (entry->kind == WEFT__DATA && (entry->object & mask) == object &&
                entry->version < below) {
                *link = entry->next;
                entry->next = taken;
                taken = entry;
            } else {
                link = &entry->next;
            }
        }
    return taken;
}

struct weft__message *weft__match_purge(struct weft__match *match, uint64_t object, uint64_t below)
{
    return purge(match, UINT64_MAX, object, below);
}

struct weft__message *weft__match_purge_whole(struct weft__match *match, uint64_t number)
{
    return purge(match, WEFT__NUMBER(UINT64_MAX), number, UINT64_MAX);
}
