/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who touched which element last: a slot is a sorted array of disjoint intervals, each with the
 * node that wrote it last and those that have read it since.
 *
 *     elements   0        10            25     40
 *                |--w 3---|--w 7, r 9---|-w 3--|
 *
 * A read is ordered after the writer, a write after the readers or, if there are none, the writer.
 * Lists of readers only grow at their heads, so an interval that is split shares its list.
 */
#include <string.h>

#include "schedules/common/template.h"

enum { FIRST_CAPACITY = 48 }; /* enough for a rank of most algorithms: growing costs time */

struct interval {
    size_t begin, end;
    weft_node_t writer; /* -1: nobody in this schedule */
    int32_t readers;    /* newest in track->readers, -1: none */
};

struct reader {
    weft_node_t node;
    int32_t next;
};

struct line {
    struct interval *intervals;
    size_t count, capacity;
};

struct weft__track {
    struct weft_schedule *schedule;
    struct line *lines; /* one a slot */
    size_t line_count, line_capacity;
    struct reader *readers;
    size_t reader_count, reader_capacity;
    weft_node_t *ordered; /* ordered[n] - 1: the latest node that was ordered after n */
    size_t ordered_count, ordered_capacity;
};

static int grow(void **array, size_t *capacity, size_t used, size_t need, size_t size)
{
    if (need <= *capacity)
        return WEFT_OK;
    size_t larger = *capacity ? *capacity * 2 : FIRST_CAPACITY;
    while (larger < need)
        larger *= 2;
    void *memory = weft_memory_alloc(larger, size);
    if (!memory)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for a template's %zu records",
                              larger);
    if (used)
        memcpy(memory, *array, used * size);
    weft_memory_free(*array);
    *array = memory;
    *capacity = larger;
    return WEFT_OK;
}

struct weft__track *weft__track_create(struct weft_schedule *schedule)
{
    struct weft__track *track = weft_memory_alloc(1, sizeof *track);
    if (track)
        track->schedule = schedule;
    return track;
}

void weft__track_destroy(struct weft__track *track)
{
    if (!track)
        return;
    for (size_t i = 0; i < track->line_count; i++)
        weft_memory_free(track->lines[i].intervals);
    weft_memory_free(track->lines);
    weft_memory_free(track->readers);
    weft_memory_free(track->ordered);
    weft_memory_free(track);
}

static int order(struct weft__track *track, weft_node_t before, weft_node_t after)
{
    if (before < 0 || before == after)
        return WEFT_OK;
    size_t need = (size_t)before + 1;
    int status = grow((void **)&track->ordered, &track->ordered_capacity, track->ordered_count,
                      need, sizeof *track->ordered);
    if (status)
        return status;
    if (track->ordered_count < need)
        track->ordered_count = need;
    if (track->ordered[before] == after + 1)
        return WEFT_OK;
    track->ordered[before] = after + 1;
    weft_schedule_add_order(track->schedule, before, after);
    return WEFT_OK;
}

/* The first interval that ends after position. */
static size_t find(const struct line *line, size_t position)
{
    size_t low = 0, high = line->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (line->intervals[middle].end > position)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int insert(struct line *line, size_t index, struct interval interval)
{
    int status = grow((void **)&line->intervals, &line->capacity, line->count, line->count + 1,
                      sizeof *line->intervals);
    if (status)
        return status;
    memmove(line->intervals + index + 1, line->intervals + index,
            (line->count - index) * sizeof *line->intervals);
    line->intervals[index] = interval;
    line->count++;
    return WEFT_OK;
}

/* Cuts the interval that straddles position, if there is one. */
static int split(struct line *line, size_t position)
{
    size_t index = find(line, position);
    if (index == line->count || line->intervals[index].begin >= position)
        return WEFT_OK;
    struct interval right = line->intervals[index];
    right.begin = position;
    line->intervals[index].end = position;
    return insert(line, index + 1, right);
}

/* Makes intervals cover [begin, end) exactly, new ones where nobody has been. */
static int cover(struct line *line, size_t begin, size_t end)
{
    if (!line->count || line->intervals[line->count - 1].end <= begin)
        return insert(line, line->count, (struct interval){begin, end, -1, -1});
    int status = split(line, begin);
    if (!status)
        status = split(line, end);
    size_t index = find(line, begin);
    for (size_t position = begin; !status && position < end; index++) {
        size_t next = index < line->count ? line->intervals[index].begin : end;
        if (next > position) {
            struct interval gap = {position, next < end ? next : end, -1, -1};
            status = insert(line, index, gap);
        }
        if (!status)
            position = line->intervals[index].end;
    }
    return status;
}

static int order_after(struct weft__track *track, const struct interval *interval, weft_node_t node,
                       int write)
{
    if (!write || interval->readers < 0)
        return order(track, interval->writer, node);
    int status = WEFT_OK;
    for (int32_t i = interval->readers; i >= 0 && !status; i = track->readers[i].next)
        status = order(track, track->readers[i].node, node);
    return status;
}

static int add_reader(struct weft__track *track, struct interval *interval, weft_node_t node)
{
    int status = grow((void **)&track->readers, &track->reader_capacity, track->reader_count,
                      track->reader_count + 1, sizeof *track->readers);
    if (status)
        return status;
    track->readers[track->reader_count] = (struct reader){node, interval->readers};
    interval->readers = (int32_t)track->reader_count++;
    return WEFT_OK;
}

int weft__track_access(struct weft__track *track, struct weft_region region, weft_node_t node,
                       int write)
{
    if (region.slot < 0 || node < 0 || !region.count)
        return WEFT_OK; /* nothing, or an error that the schedule keeps */
    size_t slot = (size_t)region.slot, begin = region.offset, end = begin + region.count;
    int status = grow((void **)&track->lines, &track->line_capacity, track->line_count, slot + 1,
                      sizeof *track->lines);
    if (status)
        return status;
    if (track->line_count <= slot)
        track->line_count = slot + 1;
    struct line *line = &track->lines[slot];
    size_t first = find(line, begin), last;
    /* Mostly, what is touched has been touched as a whole before. */
    if (first == line->count || line->intervals[first].begin != begin ||
        line->intervals[first].end != end) {
        if ((status = cover(line, begin, end)))
            return status;
        first = find(line, begin);
    }
    last = first;
    for (; !status && last < line->count && line->intervals[last].begin < end; last++) {
        status = order_after(track, &line->intervals[last], node, write);
        if (!status && !write)
            status = add_reader(track, &line->intervals[last], node);
    }
    if (status || !write)
        return status;
    line->intervals[first] = (struct interval){begin, end, node, -1};
    if (last == first + 1)
        return WEFT_OK;
    memmove(line->intervals + first + 1, line->intervals + last,
            (line->count - last) * sizeof *line->intervals);
    line->count -= last - first - 1;
    return WEFT_OK;
}
