/* SPDX-License-Identifier: BSD-3-Clause */
/* All allocation of weft goes through these, so that a test can make the n-th call fail. */
#ifndef WEFT_RUNTIME_BASE_ALLOC_H
#define WEFT_RUNTIME_BASE_ALLOC_H

#include "runtime/base/companion.h"
#include <stdatomic.h>
#include <stddef.h>

/* Uninitialised, zeroed, resized memory. NULL on failure, and on overflow of count * size. Memory
 * of zero bytes is a valid pointer. */
WEFT__PRIVATE void *weft__malloc(size_t count, size_t size);
WEFT__PRIVATE void *weft__calloc(size_t count, size_t size);
void *weft__realloc(void *memory, size_t count, size_t size);
/* Zeroed, aligned to a power of two; freed with weft__free. */
WEFT__PRIVATE void *weft__aligned(size_t alignment, size_t size);
char *weft__strdup(const char *text);
WEFT__PRIVATE void weft__free(void *memory);

/* Counts an allocation of an allocator of its own; 1: it is to fail. */
int weft__alloc_fails(size_t bytes);

/* Grows *array to hold at least `need` elements, doubling. 0, or -1 with the array unchanged. */
WEFT__PRIVATE int weft__grow(void **array, size_t *capacity, size_t need, size_t size);

/* Test hook: the call that counts this down to zero fails (and those after it do not); negative
 * (the default): never. Process-wide. */
extern atomic_long weft__alloc_countdown;
/* Test hook: calls so far. */
extern atomic_long weft__alloc_calls;
/* Test hook: bytes asked for so far, whether or not they have been given back. */
extern atomic_size_t weft__alloc_bytes;

#endif
