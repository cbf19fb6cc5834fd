/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A slot as a sorted array of intervals, each with the value that its bytes hold. Intervals cover
 * the slot without gaps; the first begins at 0, and each ends where the next begins.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/search.h"
#include "runtime/check/check.h"

#include <string.h>

int weft__line_reset(struct weft__line *line, uint64_t bytes, uint32_t value)
{
    line->bytes = bytes;
    line->count = 0;
    if (!bytes)
        return 0;
    if (weft__grow((void **)&line->at, &line->capacity, 1, sizeof *line->at))
        return -1;
    line->at[0] = (struct weft__interval){.value = value, .writer = WEFT__CHECK_NONE};
    line->count = 1;
    return 0;
}

static uint64_t end_of(const struct weft__line *line, size_t index)
{
    return index + 1 < line->count ? line->at[index + 1].begin : line->bytes;
}

/* The interval in which a byte lies. Slots are mostly gone through block by block, up or down, and
 * those of a thousand ranks do not fit into a cache together: so it looks beside the last one
 * first. */
static size_t find(struct weft__line *line, uint64_t position)
{
    size_t low = line->hint > 2 ? line->hint - 2 : 0, high = line->hint + 3;

    if (high > line->count)
        high = line->count;
    if (low >= high || line->at[low].begin > position || end_of(line, high - 1) <= position) {
        low = 0;
        high = line->count;
    }
    low++; /* the last of those that are not behind it */
    WEFT__SEARCH(low, high, middle, line->at[middle].begin <= position)
    low--;
    line->hint = low;
    return low;
}

int weft__pieces_add(struct weft__pieces *pieces, struct weft__piece piece)
{
    struct weft__piece *last = pieces->count ? &pieces->at[pieces->count - 1] : NULL;

    if (last && last->value == piece.value && last->limit == piece.limit &&
        last->from + (int64_t)last->bytes == piece.from) {
        last->bytes += piece.bytes;
        return 0;
    }
    if (weft__grow((void **)&pieces->at, &pieces->capacity, pieces->count + 1, sizeof *pieces->at))
        return -1;
    pieces->at[pieces->count++] = piece;
    return 0;
}

int weft__line_read(struct weft__line *line, uint64_t begin, uint64_t end,
                    struct weft__pieces *pieces)
{
    pieces->count = 0;
    if (begin >= end)
        return 0;
    for (size_t i = find(line, begin); begin < end; i++) {
        const struct weft__interval *from = &line->at[i];
        uint64_t stop = end_of(line, i) < end ? end_of(line, i) : end;
        struct weft__piece piece = {stop - begin, (int64_t)begin + from->at, from->value,
                                    from->writer, from->limit};

        if (weft__pieces_add(pieces, piece))
            return -1;
        begin = stop;
    }
    return 0;
}

int weft__line_write(struct weft__line *line, uint64_t begin, uint64_t end,
                     const struct weft__pieces *pieces, uint32_t writer, uint32_t limit)
{
    size_t first, last, kept, added;
    struct weft__interval right;

    if (begin >= end)
        return 0;
    first = find(line, begin);
    last = find(line, end - 1);
    right = line->at[last];
    right.begin = end;
    kept = first + (line->at[first].begin < begin); /* intervals that stay on the left */
    added =
        pieces->count + (end_of(line, last) > end); /* new ones, and what is left on the right */
    size_t tail = line->count - last - 1, count = kept + added + tail;

    if (weft__grow((void **)&line->at, &line->capacity, count, sizeof *line->at))
        return -1;
    memmove(line->at + kept + added, line->at + last + 1, tail * sizeof *line->at);
    if (added > pieces->count)
        line->at[kept + added - 1] = right;
    for (size_t i = 0; i < pieces->count; i++) {
        const struct weft__piece *piece = &pieces->at[i];

        line->at[kept + i] = (struct weft__interval){begin, piece->from - (int64_t)begin,
                                                     piece->value, writer, limit};
        begin += piece->bytes;
    }
    line->count = count;
    return 0;
}
