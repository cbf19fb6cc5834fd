/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions: making one's own, mapping those of others. */
#ifndef WEFT_RUNTIME_TRANSPORT_SHARED_MAP_H
#define WEFT_RUNTIME_TRANSPORT_SHARED_MAP_H

#include <stddef.h>
#include <stdint.h>

/* Memory without a name that grows and shrinks no more, mapped. */
struct weft__map;

/* How large arenas can be where `size` members map each other's regions, of an arena and
 * `other_bytes`, within the limits of this process: at most `wanted` bytes. 0: none has room. */
size_t weft__map_arena(size_t wanted, size_t other_bytes, int size);

/* Makes one of `bytes` bytes, zeroed. Memory is taken as it is touched. WEFT_OK, WEFT_ERR_MEMORY,
 * WEFT_ERR_SYSTEM. */
int weft__map_make(struct weft__map **map, size_t bytes, const char *who);

/* Maps what another process has made, or finds what was made in this one. `file` stays the
 * caller's. Nobody writes from byte `read_only_at` on. A file that can shrink, or is not of `bytes`
 * bytes, is refused: WEFT_ERR_STATE. */
int weft__map_other(struct weft__map **map, int file, size_t bytes, size_t read_only_at,
                    const char *who);
/* What weft__map_number() was there; NULL: it is gone. */
struct weft__map *weft__map_find(uint64_t number);

void *weft__map_memory(const struct weft__map *map);
/* Of one's own: its file; -1: it has been shut. */
int weft__map_file(const struct weft__map *map);
uint64_t weft__map_number(const struct weft__map *map);
/* Shuts the file; the memory stays. */
void weft__map_shut(struct weft__map *map);
/* Another process's memory is given back: zeros of this process's own are in its place. If there
 * is no memory for that it stays. */
void weft__map_void(struct weft__map *map);
/* The last that has it unmaps it. */
void weft__map_drop(struct weft__map *map);

#endif
