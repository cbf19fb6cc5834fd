/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocation. Every call passes one gate that counts it, so that a test can make the n-th one fail;
 * sizes are products that are checked for overflow here, once, instead of at every caller.
 */
#include "runtime/base/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <weft/memory.h>

enum { FIRST_CAPACITY = 32, MEMORY_ALIGNMENT = 64 };

atomic_long weft__alloc_countdown = -1;
atomic_long weft__alloc_calls = 0;
atomic_size_t weft__alloc_bytes = 0;

/* Counts a call for `count` * `size` bytes; 0 if it is to be carried out. */
static int gate(size_t count, size_t size, size_t *bytes)
{
    atomic_fetch_add_explicit(&weft__alloc_calls, 1, memory_order_relaxed);
    if (atomic_load_explicit(&weft__alloc_countdown, memory_order_relaxed) > 0 &&
        atomic_fetch_sub_explicit(&weft__alloc_countdown, 1, memory_order_relaxed) == 1)
        return -1;
    if (size && count > PTRDIFF_MAX / size)
        return -1;
    atomic_fetch_add_explicit(&weft__alloc_bytes, count * size, memory_order_relaxed);
    *bytes = count && size ? count * size : 1;
    return 0;
}

int weft__alloc_fails(size_t bytes)
{
    size_t counted;

    return gate(1, bytes, &counted) != 0;
}

void *weft__malloc(size_t count, size_t size)
{
    size_t bytes;

    return gate(count, size, &bytes) ? NULL : malloc(bytes);
}

void *weft__calloc(size_t count, size_t size)
{
    size_t bytes;

    return gate(count, size, &bytes) ? NULL : calloc(1, bytes);
}

void *weft__realloc(void *memory, size_t count, size_t size)
{
    size_t bytes;

    return gate(count, size, &bytes) ? NULL : realloc(memory, bytes);
}

/* Copies between processes look up every page, and are twice as fast where source and destination
 * begin at the same place of one: large memory begins pages, huge ones if it fills them. */
#define PAGE        ((size_t)4096)
#define PAGED_BYTES ((size_t)64 << 10)
#define HUGE_PAGE   ((size_t)2 << 20)
#define HUGE_BYTES  ((size_t)4 << 20)

void *weft__aligned(size_t alignment, size_t size)
{
    size_t bytes;
    void *memory;

    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    if (gate(1, size, &bytes))
        return NULL;
    if (bytes >= HUGE_BYTES && alignment < HUGE_PAGE)
        alignment = HUGE_PAGE;
    else if (bytes >= PAGED_BYTES && alignment < PAGE)
        alignment = PAGE;
    if (posix_memalign(&memory, alignment, bytes))
        return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_BYTES)
        madvise(memory, bytes & ~(HUGE_PAGE - 1), MADV_HUGEPAGE); /* advice: may be declined */
#endif
    memset(memory, 0, bytes);
    return memory;
}

char *weft__strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = weft__malloc(bytes, 1);

    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void weft__free(void *memory)
{
    free(memory);
}

int weft__grow(void **array, size_t *capacity, size_t need, size_t size)
{
    size_t wanted = *capacity ? *capacity : FIRST_CAPACITY;
    void *grown;

    if (need <= *capacity)
        return 0;
    while (wanted < need)
        wanted = wanted > SIZE_MAX / 2 ? need : wanted * 2;
    grown = weft__realloc(*array, wanted, size);
    if (!grown)
        return -1;
    *array = grown;
    *capacity = wanted;
    return 0;
}

void *weft_memory_alloc(size_t count, size_t size)
{
    if (size && count > PTRDIFF_MAX / size)
        return NULL;
    return weft__aligned(MEMORY_ALIGNMENT, count * size);
}

void weft_memory_free(void *memory)
{
    weft__free(memory);
}
