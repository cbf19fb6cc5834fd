/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/cli/points.h"

#include "tools/cli/csv.h"

#include <stdlib.h>
#include <string.h>

/* Most that a time or a number of bytes may be. */
#define MOST 1e15

struct reader {
    const char *path;
    struct weft_merge_point *at;
    size_t count;
    size_t capacity;
};

static int add(struct reader *reader, const char *where, double bytes, double us)
{
    if (!(bytes >= 0 && bytes <= MOST) || !(us >= 0 && us <= MOST)) {
        return weft_error_set(WEFT_ERR_FORMAT,
                              "%s: %s: %g bytes, %g us; expected both from 0 to 1e15", reader->path,
                              where, bytes, us);
    }
    if (reader->count == reader->capacity) {
        size_t wanted = reader->capacity ? 2 * reader->capacity : 64;
        struct weft_merge_point *larger = weft_memory_alloc(wanted, sizeof *larger);
        if (!larger)
            return weft_error_set(WEFT_ERR_MEMORY, "%s: no memory for %zu points", reader->path,
                                  wanted);
        if (reader->count)
            memcpy(larger, reader->at, reader->count * sizeof *larger);
        weft_memory_free(reader->at);
        reader->at = larger;
        reader->capacity = wanted;
    }
    reader->at[reader->count++] = (struct weft_merge_point){bytes, us};
    return WEFT_OK;
}

static int ascending(const void *a, const void *b)
{
    const struct weft_merge_point *left = a, *right = b;

    return (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

/* They come in any order, each size once. */
static int check(struct reader *reader)
{
    if (reader->count < 2) {
        return weft_error_set(WEFT_ERR_FORMAT, "%s: %zu measured size%s; expected two or more",
                              reader->path, reader->count, reader->count == 1 ? "" : "s");
    }
    qsort(reader->at, reader->count, sizeof *reader->at, ascending);
    for (size_t i = 1; i < reader->count; i++) {
        if (reader->at[i].bytes == reader->at[i - 1].bytes) {
            return weft_error_set(WEFT_ERR_FORMAT, "%s: %.16g bytes twice; expected each size once",
                                  reader->path, reader->at[i].bytes);
        }
    }
    return WEFT_OK;
}

static int finish(struct reader *reader, int status, struct weft_merge_point **points,
                  size_t *count)
{
    if (!status)
        status = check(reader);
    if (status) {
        weft_memory_free(reader->at);
        return status;
    }
    *points = reader->at;
    *count = reader->count;
    return WEFT_OK;
}

int points_read_json(struct weft_merge_point **points, size_t *count, const char *path,
                     const json_t *array)
{
    struct reader reader = {.path = path};
    int status = WEFT_OK;

    for (size_t i = 0; i < json_array_size(array) && !status; i++) {
        const json_t *bytes = json_object_get(json_array_get(array, i), "bytes");
        const json_t *us = json_object_get(json_array_get(array, i), "us");
        char where[48];

        snprintf(where, sizeof where, "points[%zu]", i);
        if (json_is_number(bytes) && json_is_number(us))
            status = add(&reader, where, json_number_value(bytes), json_number_value(us));
        else
            status =
                weft_error_set(WEFT_ERR_FORMAT, "%s: %s has no number %s; expected bytes and us",
                               path, where, json_is_number(bytes) ? "us" : "bytes");
    }
    return finish(&reader, status, points, count);
}

int points_read_csv(struct weft_merge_point **points, size_t *count, const char *path,
                    const char *text, size_t length)
{
    static const struct csv_column columns[] = {{"bytes", 0}, {"us", 0}};
    struct reader reader = {.path = path};
    struct csv csv;
    double bytes = 0, us = 0;
    int status = csv_begin(&csv, path, columns, 2, text, length);

    while (!status && !(status = csv_next(&csv)) && !csv.ended) {
        char where[48];
        snprintf(where, sizeof where, "line %zu", csv.line);
        if (csv_number(&csv, 0, &bytes) || csv_number(&csv, 1, &us))
            status = WEFT_ERR_FORMAT;
        else
            status = add(&reader, where, bytes, us);
    }
    csv_end(&csv);
    return finish(&reader, status, points, count);
}
