/* SPDX-License-Identifier: BSD-3-Clause */
/* The public functions on projections: arguments here, arithmetic in ops/. */
#include <weft/compress.h>

#include <math.h>
#include <stdint.h>

#include "ops/project.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

enum {
    /* Columns whose coefficients have room on the stack. */
    FEW_COLUMNS = 256,
};

/* Memory of so many floats, that a function reads or writes. */
struct memory {
    const char *name;
    const float *begin;
    size_t count;
};

/* Whether rows of columns floats can be. (A division takes as long as a small product.) */
static int check_size(const char *who, const char *what, size_t rows, const char *of,
                      size_t columns)
{
    if ((rows | columns) < (size_t)1 << (8 * sizeof(size_t) / 2 - 1))
        return WEFT_OK;
    if (columns > 0 && rows > SIZE_MAX / sizeof(float) / columns)
        return WEFT__INVALID("%s: `%s` is %zu with `%s` %zu, more floats than memory can hold", who,
                             what, rows, of, columns);
    return WEFT_OK;
}

static int check_memory(const char *who, const struct memory *memory)
{
    if (memory->count > 0 && !memory->begin)
        return WEFT__INVALID("%s: `%s` is NULL, expected memory of %zu floats", who, memory->name,
                             memory->count);
    return WEFT_OK;
}

/* All that is read is there, and what is written too, and overlaps none of it. */
static int check_memories(const char *who, const struct memory *written, const struct memory *read,
                          size_t reads)
{
    int status = check_memory(who, written);

    for (size_t i = 0; i < reads && !status; i++) {
        const uintptr_t to = (uintptr_t)written->begin;
        const uintptr_t from = (uintptr_t)read[i].begin;

        status = check_memory(who, &read[i]);
        if (!status && written->count > 0 && read[i].count > 0 &&
            to < from + read[i].count * sizeof(float) && from < to + written->count * sizeof(float))
            status = WEFT__INVALID("%s: `%s` and `%s` overlap, expected memory of their own", who,
                                   written->name, read[i].name);
    }
    return status;
}

/* @full receives the projection; *slices how many slices `count` elements are. */
static int read_projection(const char *who, const struct weft_projection *given, size_t count,
                           struct weft_projection *full, size_t *slices)
{
    if (!given)
        return WEFT__INVALID("%s: `projection` is NULL, expected a projection", who);
    int status = weft_sized_read(who, "projection", given, full, sizeof *full);

    if (status)
        return status;
    if (full->slice == 0)
        return WEFT__INVALID("%s: `slice` of the projection is 0, expected at least 1", who);
    if (full->components > full->slice)
        return WEFT__INVALID("%s: `components` of the projection is %zu, expected 0 to %zu", who,
                             full->components, full->slice);
    *slices = count / full->slice + (count % full->slice != 0);
    status = check_size(who, "slice", full->slice, "components", full->components);
    if (!status)
        status = check_size(who, "count", count, "elements", 1);
    return status;
}

void weft_projection_init_sized(struct weft_projection *projection, size_t size)
{
    weft_sized_init(projection, size);
}

int weft_project(const struct weft_projection *projection, const float *values, size_t count,
                 const float *mean, double share, float *out,
                 struct weft_projection_squares *squares)
{
    struct weft_projection full;
    size_t slices = 0;
    int status = read_projection(__func__, projection, count, &full, &slices);

    if (status)
        return status;
    if (mean && (!isfinite(share) || !isfinite((float)share)))
        return WEFT__INVALID("%s: `share` is %g, expected a finite number", __func__, share);
    const struct memory written = {"out", out, slices * full.components};
    const struct memory read[] = {{"values", values, count},
                                  {"basis", full.basis, slices ? full.slice * full.components : 0},
                                  {"mean", mean, mean ? count : 0}};

    status = check_memories(__func__, &written, read, 3);
    if (status)
        return status;
    weft__project(&(struct weft__projecting){.basis = full.basis,
                                             .slice = full.slice,
                                             .components = full.components,
                                             .stride = full.components,
                                             .values = values,
                                             .count = count,
                                             .mean = mean,
                                             .share = mean ? (float)share : 0,
                                             .out = out,
                                             .squares = squares});
    return WEFT_OK;
}

int weft_reconstruct(const struct weft_projection *projection, const float *components,
                     size_t count, const float *mean, float *values)
{
    struct weft_projection full;
    size_t slices = 0;
    int status = read_projection(__func__, projection, count, &full, &slices);

    if (status)
        return status;
    const struct memory written = {"values", values, count};
    const struct memory read[] = {{"components", components, slices * full.components},
                                  {"basis", full.basis, slices ? full.slice * full.components : 0},
                                  {"mean", mean, mean && mean != values ? count : 0}};

    status = check_memories(__func__, &written, read, 3);
    if (status)
        return status;
    weft__reconstruct(&(struct weft__reconstructing){.basis = full.basis,
                                                     .slice = full.slice,
                                                     .components = full.components,
                                                     .in = components,
                                                     .count = count,
                                                     .stride = full.slice,
                                                     .mean = mean,
                                                     .values = values});
    return WEFT_OK;
}

int weft_correlate(const float *values, size_t rows, size_t slice, const float *components,
                   size_t count, float *out)
{
    int status = WEFT_OK;

    if (slice == 0)
        return WEFT__INVALID("%s: `slice` is 0, expected at least 1", __func__);
    status = check_size(__func__, "rows", rows, "slice", slice);
    if (!status)
        status = check_size(__func__, "rows", rows, "count", count);
    if (!status)
        status = check_size(__func__, "slice", slice, "count", count);
    if (status)
        return status;
    const struct memory written = {"out", out, slice * count};
    const struct memory read[] = {{"values", values, rows * slice},
                                  {"components", components, rows * count}};

    status = check_memories(__func__, &written, read, 2);
    if (status)
        return status;
    weft__correlate(&(struct weft__correlating){.values = values,
                                                .rows = rows,
                                                .slice = slice,
                                                .stride = slice,
                                                .in = components,
                                                .components = count,
                                                .out = out});
    return WEFT_OK;
}

static int orthonormalise_column(float *matrix, size_t rows, size_t columns, size_t column,
                                 double *work)
{
    int independent = 0;

    for (size_t pass = 0; pass < WEFT__ORTHONORMAL_PASSES; pass++)
        independent = weft__orthonormalise(&(struct weft__orthonormalising){.matrix = matrix,
                                                                            .columns = columns,
                                                                            .column = column,
                                                                            .pass = pass,
                                                                            .end = rows,
                                                                            .work = work});
    return independent;
}

int weft_orthonormalise(float *matrix, size_t rows, size_t columns, size_t *rank)
{
    const struct memory memory = {"matrix", matrix, rows * columns};
    double few[2 + 2 * FEW_COLUMNS];
    double *work = few;
    size_t independent = 0;
    int status = check_size(__func__, "rows", rows, "columns", columns);

    if (!status)
        status = check_memory(__func__, &memory);
    if (status)
        return status;
    if (!weft__all_finite(matrix, memory.count))
        return weft__error(WEFT_ERR_COMPUTE,
                           "%s: `matrix` has NaNs or infinities, expected finite elements",
                           __func__);
    if (memory.count > 0 && columns > FEW_COLUMNS)
        work = weft__malloc(1 + columns, 2 * sizeof *work);
    if (!work)
        return weft__error_memory("the coefficients of columns");
    for (size_t c = 0; c < columns && rows > 0; c++)
        independent += (size_t)orthonormalise_column(matrix, rows, columns, c, work);
    if (work != few)
        weft__free(work);
    if (rank)
        *rank = independent;
    return WEFT_OK;
}

int weft_transpose(const float *from, size_t rows, size_t columns, float *to)
{
    const struct memory written = {"to", to, rows * columns};
    const struct memory read = {"from", from, rows * columns};
    int status = check_size(__func__, "rows", rows, "columns", columns);

    if (!status)
        status = check_memories(__func__, &written, &read, 1);
    if (!status && written.count > 0)
        weft__transpose(from, rows, columns, to);
    return status;
}
