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

/* Every so many chunks both ways are timed. */
#define LOOK_EVERY 64

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

void weft__bulk_fill(struct weft__filling *filling, const struct weft__xfer *xfer, size_t offset,
                     char *to, size_t bytes)
{
    unsigned turn = bytes == WEFT__BULK_CHUNK ? filling->count++ % LOOK_EVERY : LOOK_EVERY;
    int way = filling->ns[PAST] < filling->ns[CACHED] ? PAST : CACHED;
    if (turn > 1) {
        copy_all(xfer, offset, to, bytes, way);
        return;
    }
    uint64_t begin = weft__now();
    copy_all(xfer, offset, to, bytes, (int)turn);
    filling->ns[turn] = weft__now() - begin;
}
