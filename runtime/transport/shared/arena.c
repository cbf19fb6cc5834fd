/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arena: best fit in a table of blocks.
 *
 *   base                                        top                       base + bytes
 *   | used | free | used | used | free | ... | used |  never used: zeroed, and no pages yet  |
 *
 * The table has the blocks below `top` in order, and no two free ones side by side. There are some
 * hundreds, of buffers and scratch: that a block is looked for from the first to the last and that
 * others make room for a new one in the table costs less than what is done with the memory.
 *
 * Pages of freed blocks are kept for the next ones, since fresh ones cost a fault each; beyond
 * KEPT_BYTES they go back to the system.
 */
#include "runtime/transport/shared/arena.h"
#include "runtime/base/alloc.h"
#include "runtime/base/search.h"
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define LINE       ((size_t)64)
#define PAGE       ((size_t)4096)
#define HUGE_PAGE  ((size_t)2 << 20)
#define HUGE_BYTES ((size_t)4 << 20)
#define KEPT_BYTES ((size_t)32 << 20)
#define BACK_BYTES ((size_t)1 << 20) /* what is smaller stays */

struct block {
    size_t at; /* from base */
    size_t bytes;
    int used;
    int dirty; /* free, and not known to be zeroed */
};

struct weft__arena {
    pthread_mutex_t lock;
    char *base;
    size_t bytes;
    size_t top;
    size_t dirty; /* bytes of free blocks that are */
    struct block *blocks;
    size_t count, capacity;
};

struct weft__arena *weft__arena_open(void *base, size_t bytes)
{
    struct weft__arena *arena = weft__calloc(1, sizeof *arena);
    if (!arena)
        return NULL;
    pthread_mutex_init(&arena->lock, NULL);
    arena->base = base;
    arena->bytes = bytes;
    return arena;
}

void weft__arena_close(struct weft__arena *arena)
{
    if (!arena)
        return;
    pthread_mutex_destroy(&arena->lock);
    weft__free(arena->blocks);
    weft__free(arena);
}

/* The first offset from `at` on whose address has an alignment. */
static size_t align(const struct weft__arena *arena, size_t at, size_t alignment)
{
    uintptr_t address = (uintptr_t)arena->base + at;
    return at + (size_t)(-address & (alignment - 1));
}

/* The number of the first block at or behind an offset. */
static size_t find(const struct weft__arena *arena, size_t at)
{
    size_t low = 0, high = arena->count;
    WEFT__SEARCH(low, high, middle, arena->blocks[middle].at < at)
    return low;
}

static void insert(struct weft__arena *arena, size_t i, struct block block)
{
    memmove(&arena->blocks[i + 1], &arena->blocks[i], (arena->count - i) * sizeof block);
    arena->blocks[i] = block;
    arena->count++;
    if (block.dirty)
        arena->dirty += block.bytes;
}

static void erase(struct weft__arena *arena, size_t i)
{
    if (arena->blocks[i].dirty)
        arena->dirty -= arena->blocks[i].bytes;
    arena->count--;
    memmove(&arena->blocks[i], &arena->blocks[i + 1], (arena->count - i) * sizeof *arena->blocks);
}

/* The free block that fits best; `count`: none does. */
static size_t best_fit(const struct weft__arena *arena, size_t bytes, size_t alignment)
{
    size_t best = arena->count;
    for (size_t i = 0; i < arena->count; i++) {
        const struct block *block = &arena->blocks[i];
        if (block->used || block->bytes < bytes ||
            (best < arena->count && block->bytes >= arena->blocks[best].bytes))
            continue;
        if (align(arena, block->at, alignment) - block->at <= block->bytes - bytes)
            best = i;
    }
    return best;
}

/* Makes the memory below `top` reach as far as a block needs that none has; if the last is free, it
 * grows. 0: there is no more. */
static int extend(struct weft__arena *arena, size_t bytes, size_t alignment)
{
    struct block *last = arena->count > 0 ? &arena->blocks[arena->count - 1] : NULL;
    if (last && last->used)
        last = NULL;
    size_t from = last ? last->at : arena->top;
    size_t begin = align(arena, from, alignment);
    if (begin > arena->bytes || arena->bytes - begin < bytes)
        return 0;
    struct block grown = {.at = from, .bytes = begin + bytes - from, .dirty = last && last->dirty};
    arena->top = begin + bytes;
    if (last)
        erase(arena, arena->count - 1);
    insert(arena, arena->count, grown);
    return 1;
}

/* Takes [begin, begin + bytes) out of free block `i`; what is left before and behind stays free.
 * Returns whether it has to be zeroed. */
static int carve(struct weft__arena *arena, size_t i, size_t begin, size_t bytes)
{
    struct block block = arena->blocks[i];
    size_t end = begin + bytes;
    erase(arena, i);
    if (end < block.at + block.bytes)
        insert(
            arena, i,
            (struct block){.at = end, .bytes = block.at + block.bytes - end, .dirty = block.dirty});
    insert(arena, i, (struct block){.at = begin, .bytes = bytes, .used = 1});
    if (begin > block.at)
        insert(arena, i,
               (struct block){.at = block.at, .bytes = begin - block.at, .dirty = block.dirty});
    return block.dirty;
}

void *weft__arena_alloc(struct weft__arena *arena, size_t bytes)
{
    size_t unit = bytes < PAGE ? LINE : PAGE;
    size_t alignment = bytes >= HUGE_BYTES ? HUGE_PAGE : unit;
    if (weft__alloc_fails(bytes) || bytes > arena->bytes)
        return NULL;
    bytes = bytes == 0 ? LINE : (bytes + unit - 1) & ~(unit - 1);
    char *memory = NULL;
    int dirty = 0;
    pthread_mutex_lock(&arena->lock);
    size_t top = arena->top;
    size_t room = arena->capacity;
    /* A block may become three. */
    if (weft__grow((void **)&arena->blocks, &room, arena->count + 3, sizeof *arena->blocks) == 0) {
        arena->capacity = room;
        size_t i = best_fit(arena, bytes, alignment);
        if (i == arena->count && extend(arena, bytes, alignment))
            i = arena->count - 1;
        if (i < arena->count) {
            size_t begin = align(arena, arena->blocks[i].at, alignment);
            dirty = carve(arena, i, begin, bytes);
            memory = arena->base + begin;
        }
    }
    pthread_mutex_unlock(&arena->lock);
    if (!memory)
        return NULL;
    size_t used = (size_t)(memory - arena->base) < top ? top - (size_t)(memory - arena->base) : 0;
    if (dirty)
        memset(memory, 0, used < bytes ? used : bytes);
#ifdef MADV_HUGEPAGE
    if (alignment == HUGE_PAGE)
        madvise(memory, bytes & ~(HUGE_PAGE - 1), MADV_HUGEPAGE); /* advice: may be declined */
#endif
    return memory;
}

/* Gives the pages of a free block back; what is left of it is zeroed by hand. */
static void give_back(struct weft__arena *arena, struct block *block)
{
    size_t begin = align(arena, block->at, PAGE);
    size_t end = (block->at + block->bytes) & ~(PAGE - 1);
    if (begin >= end || madvise(arena->base + begin, end - begin, MADV_REMOVE) != 0)
        return;
    memset(arena->base + block->at, 0, begin - block->at);
    memset(arena->base + end, 0, block->at + block->bytes - end);
    block->dirty = 0;
    arena->dirty -= block->bytes;
}

/* Makes one block of two free ones side by side. */
static void join(struct weft__arena *arena, size_t i)
{
    struct block joined = arena->blocks[i];
    const struct block *next = &arena->blocks[i + 1];
    if (joined.used || next->used)
        return;
    joined.bytes += next->bytes;
    joined.dirty |= next->dirty;
    erase(arena, i + 1);
    erase(arena, i);
    insert(arena, i, joined);
}

int weft__arena_free(struct weft__arena *arena, void *memory)
{
    uintptr_t base = (uintptr_t)arena->base;
    uintptr_t address = (uintptr_t)memory;
    if (address < base || address - base >= arena->bytes)
        return 0;
    int found = 0;
    pthread_mutex_lock(&arena->lock);
    size_t i = find(arena, address - base);
    if (i < arena->count && arena->blocks[i].at == address - base && arena->blocks[i].used) {
        found = 1;
        arena->blocks[i].used = 0;
        arena->blocks[i].dirty = 1;
        arena->dirty += arena->blocks[i].bytes;
        if (i + 1 < arena->count)
            join(arena, i);
        if (i > 0) {
            size_t count = arena->count;
            join(arena, i - 1);
            i -= arena->count < count;
        }
        if (arena->dirty > KEPT_BYTES && arena->blocks[i].bytes >= BACK_BYTES)
            give_back(arena, &arena->blocks[i]);
    }
    pthread_mutex_unlock(&arena->lock);
    return found;
}
