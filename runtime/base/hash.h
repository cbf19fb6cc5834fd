/* SPDX-License-Identifier: BSD-3-Clause */
/* Hashes, the table that finds things by them, and numbers that look random. */
#ifndef WEFT_RUNTIME_BASE_HASH_H
#define WEFT_RUNTIME_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Of no bytes. */
#define WEFT__HASH_EMPTY UINT64_C(0xcbf29ce484222325)

/* FNV-1a, from the hash of what stands before. */
static inline uint64_t weft__hash_bytes(uint64_t hash, const void *data, size_t length)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The same for a word at once. */
static inline uint64_t weft__hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9fb21c651e98df25);
    return hash ^ hash >> 32;
}

/* Three words whose order counts; the upper half is the better one. Nothing waits for anything here
 * but the last product, since every message is looked up by it (engine/match.c). */
static inline uint64_t weft__hash_three(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t key = a * UINT64_C(0x9e3779b97f4a7c15);

    key ^= b * UINT64_C(0xc2b2ae3d27d4eb4f);
    key ^= c * UINT64_C(0x165667b19e3779f9);
    return key * UINT64_C(0x9e3779b97f4a7c15);
}

/* SplitMix64: Steele, Lea, Flood, OOPSLA 2014. */
static inline uint64_t weft__random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/*
 * Numbers of things that the owner keeps, found by a hash of what they are looked up by: open
 * addressing, at most half full. A table of zeroes is empty. To look something up:
 *
 *     size_t at;
 *     for (uint32_t n = weft__table_first(&table, hash, &at); n != WEFT__TABLE_END;
 *          n = weft__table_next(&table, hash, &at))
 *         if (... things[n] is it ...)
 *
 * It does not know more of a thing than its number and its hash; so it grows without asking.
 */
#define WEFT__TABLE_END UINT32_MAX

struct weft__table {
    struct weft__table_entry {
        uint32_t hash;
        uint32_t number; /* + 1; 0: free */
    } * at;
    size_t size; /* a power of two, or 0 */
    size_t count;
};

/* Another number; the same hash may have many. 0, or -1 without memory. */
int weft__table_add(struct weft__table *table, uint64_t hash, uint32_t number);
/* Makes room for `count` numbers in all. 0, or -1 without memory. */
int weft__table_reserve(struct weft__table *table, size_t count);
/* Takes out all numbers, and keeps the room. */
void weft__table_clear(struct weft__table *table);
void weft__table_free(struct weft__table *table);

static inline uint32_t weft__table_short(uint64_t hash)
{
    return (uint32_t)(hash ^ hash >> 32);
}

/* From place *at on: the next number of a hash. */
static inline uint32_t weft__table_scan(const struct weft__table *table, uint64_t hash, size_t *at)
{
    for (size_t i = *at; table->at[i & (table->size - 1)].number; i++) {
        const struct weft__table_entry *entry = &table->at[i & (table->size - 1)];

        if (entry->hash == weft__table_short(hash)) {
            *at = i;
            return entry->number - 1;
        }
    }
    return WEFT__TABLE_END;
}

static inline uint32_t weft__table_first(const struct weft__table *table, uint64_t hash, size_t *at)
{
    *at = weft__table_short(hash);
    return table->size ? weft__table_scan(table, hash, at) : WEFT__TABLE_END;
}

static inline uint32_t weft__table_next(const struct weft__table *table, uint64_t hash, size_t *at)
{
    ++*at;
    return weft__table_scan(table, hash, at);
}

#endif
