/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copying into memory that another core has read and will read.
 *
 * Ordinary stores fetch each line from where it was read last, and leave it in this core's cache,
 * from which the reader fetches it: between cores that share a cache that is the shortest way.
 * Between others each line may take longer than memory does, and stores that go past the caches
 * are several times as fast. Which it is depends on where the two run, which may change; so what
 * filling a chunk takes is looked at now and then, both ways.
 */
#include "runtime/base/clock.h"
#include "runtime/transport/shared/bulk.h"
#include <string.h>
#ifdef __SSE2__
#    include <emmintrin.h>
#endif

/* Every so many chunks both ways are timed, with so many of each, of at least so many bytes. */
#define LOOK_EVERY 64
#define LOOKS      2
#define LOOK_BYTES ((size_t)8 << 10)
/* So many times as long: by way of memory. */
#define APART 3

enum { CACHED, PAST };

#ifdef __SSE2__
static void copy_past(char *to, const char *from, size_t bytes)
{
    size_t streamed = (uintptr_t)to % 16 == 0 ? bytes & ~(size_t)63 : 0;
    for (size_t at = 0; at < streamed; at += 64)
        for (size_t part = 0; part < 64; part += 16)
            _mm_stream_si128((__m128i *)(void *)(to + at + part),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + at + part)));
    memcpy(to + streamed, from + streamed, bytes - streamed);
}
#endif

static void copy(char *to, const char *from, size_t bytes, int way)
{
#ifdef __SSE2__
    if (way == PAST) {
        copy_past(to, from, bytes);
        return;
    }
#endif
    (void)way;
    memcpy(to, from, bytes);
}

static void copy_all(const struct weft__xfer *xfer, size_t offset, char *to, size_t bytes, int way)
{
    for (size_t at = 0, piece; at < bytes; at += piece) {
        piece = bytes - at;
        const char *from = xfer->message.list ? weft__xfer_chunk(xfer, offset + at, &piece)
                                              : (const char *)xfer->message.data + offset + at;
        if (piece > bytes - at)
            piece = bytes - at;
        copy(to + at, from, piece, way);
    }
#ifdef __SSE2__
    /* These stores are in no order with others: all of them before the line that tells of them. */
    if (way == PAST)
        _mm_sfence();
#endif
}

int weft__bulk_fills_past(const struct weft__filling *filling)
{
    return filling->cost[PAST] < filling->cost[CACHED];
}

int weft__bulk_is_apart(const struct weft__filling *filling)
{
    return filling->cost[PAST] * APART < filling->cost[CACHED];
}

void weft__bulk_fill_look(struct weft__filling *filling)
{
    filling->looks = 2 * LOOKS;
}

void weft__bulk_fill(struct weft__filling *filling, const struct weft__xfer *xfer, size_t offset,
                     char *to, size_t bytes)
{
    /* Not at once: what fresh pages take tells nothing. */
    if (++filling->count % LOOK_EVERY == 0)
        weft__bulk_fill_look(filling);
    if (filling->looks == 0 || bytes < LOOK_BYTES) {
        copy_all(xfer, offset, to, bytes, weft__bulk_fills_past(filling) ? PAST : CACHED);
        return;
    }
    int way = filling->looks % 2 ? PAST : CACHED, first = filling->looks > 2 * (LOOKS - 1);
    uint64_t begin = weft__now();
    copy_all(xfer, offset, to, bytes, way);
    uint64_t cost = (weft__now() - begin) * 1024 / bytes;
    /* The least of some: others may have had the core. */
    filling->seen[way] = first || cost < filling->seen[way] ? cost : filling->seen[way];
    if (--filling->looks == 0)
        memcpy(filling->cost, filling->seen, sizeof filling->cost);
}
