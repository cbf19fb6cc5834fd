/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An allocator for memory that other processes read, but do not allocate from: all that it knows of
 * the memory stands in private memory, so nothing that they write can lead it astray.
 */
#ifndef WEFT_RUNTIME_TRANSPORT_SHARED_ARENA_H
#define WEFT_RUNTIME_TRANSPORT_SHARED_ARENA_H

#include <stddef.h>

struct weft__arena;

/* Over `bytes` bytes from `base` on: they begin a page, are zeroed and shared (a memfd's), and take
 * no room until they are touched. NULL: no memory. */
struct weft__arena *weft__arena_open(void *base, size_t bytes);
/* All that was allocated is gone with the memory. NULL is accepted. */
void weft__arena_close(struct weft__arena *arena);
/* Zeroed, aligned to 64 bytes, to a page from 4 KiB on; NULL: there is none left. Any thread. */
void *weft__arena_alloc(struct weft__arena *arena, size_t bytes);
/* 0: it is not from weft__arena_alloc(). Any thread. */
int weft__arena_free(struct weft__arena *arena, void *memory);

#endif
