/* SPDX-License-Identifier: BSD-3-Clause */
/* Intervals of slots, and who touched them last (access.h has the picture). */
#include "runtime/graph/access.h"

#include "runtime/base/alloc.h"
#include "runtime/base/search.h"

#include <string.h>

/* The first interval that ends after a position. */
static size_t find(const struct weft__access_line *line, size_t position)
{
    size_t at = 0;

    WEFT__SEARCH(at, line->count, middle, line->at[middle].end <= position)
    return at;
}

static int insert(struct weft__access_line *line, size_t index, struct weft__access access)
{
    if (weft__grow((void **)&line->at, &line->capacity, line->count + 1, sizeof *line->at))
        return -1;
    memmove(line->at + index + 1, line->at + index, (line->count - index) * sizeof *line->at);
    line->at[index] = access;
    line->count++;
    return 0;
}

/* Cuts the interval that straddles a position, if there is one. */
static int cut(struct weft__access_line *line, size_t position)
{
    size_t index = find(line, position);
    struct weft__access right;

    if (index == line->count || line->at[index].begin >= position)
        return 0;
    right = line->at[index];
    right.begin = position;
    line->at[index].end = position;
    return insert(line, index + 1, right);
}

/* Makes intervals cover begin .. end exactly, new ones where nobody has been. */
static int cover(struct weft__access_line *line, size_t begin, size_t end)
{
    size_t index;

    if (!line->count || line->at[line->count - 1].end <= begin)
        return insert(line, line->count,
                      (struct weft__access){begin, end, WEFT__NOBODY, WEFT__NOBODY});
    if (cut(line, begin) || cut(line, end))
        return -1;
    index = find(line, begin);
    for (size_t at = begin; at < end; at = line->at[index++].end) {
        size_t next = index < line->count ? line->at[index].begin : end;

        if (next > at &&
            insert(line, index,
                   (struct weft__access){at, next < end ? next : end, WEFT__NOBODY, WEFT__NOBODY}))
            return -1;
    }
    return 0;
}

static struct weft__access_line *line_of(struct weft__accesses *accesses, int32_t slot)
{
    size_t need = (size_t)slot + 1;

    if (need <= accesses->line_count)
        return &accesses->lines[slot];
    if (weft__grow((void **)&accesses->lines, &accesses->line_capacity, need,
                   sizeof *accesses->lines))
        return NULL;
    for (; accesses->line_count < need; accesses->line_count++)
        accesses->lines[accesses->line_count] = (struct weft__access_line){0};
    return &accesses->lines[slot];
}

static int add_reader(struct weft__accesses *accesses, struct weft__access *access, uint32_t node)
{
    if (weft__grow((void **)&accesses->readers, &accesses->reader_capacity,
                   accesses->reader_count + 1, sizeof *accesses->readers))
        return -1;
    accesses->readers[accesses->reader_count] = (struct weft__reader){node, access->readers};
    access->readers = (uint32_t)accesses->reader_count++;
    return 0;
}

int weft__accesses_add(struct weft__accesses *accesses, const struct weft_region *region,
                       uint32_t node, int write, weft__access_fn tell, void *user)
{
    size_t begin = region->offset, end = begin + region->count, first, last;
    struct weft__access_line *line;
    int status = 0;

    if (!region->count)
        return 0;
    line = line_of(accesses, region->slot);
    if (!line)
        return -1;
    /* Mostly, what is touched has been touched as a whole before. */
    first = find(line, begin);
    if (first == line->count || line->at[first].begin != begin || line->at[first].end != end) {
        if (cover(line, begin, end))
            return -1;
        first = find(line, begin);
    }
    for (last = first; last < line->count && line->at[last].begin < end; last++)
        if ((status = tell(user, &line->at[last], region->slot, node, write)) ||
            (!write && (status = add_reader(accesses, &line->at[last], node))))
            return status;
    if (!write)
        return 0;
    line->at[first] = (struct weft__access){begin, end, node, WEFT__NOBODY};
    if (last > first + 1) {
        memmove(line->at + first + 1, line->at + last, (line->count - last) * sizeof *line->at);
        line->count -= last - first - 1;
    }
    return 0;
}

void weft__accesses_clear(struct weft__accesses *accesses)
{
    for (size_t i = 0; i < accesses->line_count; i++)
        accesses->lines[i].count = 0;
    accesses->reader_count = 0;
}

void weft__accesses_free(struct weft__accesses *accesses)
{
    for (size_t i = 0; i < accesses->line_count; i++)
        weft__free(accesses->lines[i].at);
    weft__free(accesses->lines);
    weft__free(accesses->readers);
    *accesses = (struct weft__accesses){0};
}
