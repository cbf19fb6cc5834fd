/* SPDX-License-Identifier: BSD-3-Clause */
/* Projections: blocks that fit into caches, and kernels on them. The order of every sum is as
 * weft/compress.h says, whatever the blocks. */
#include "ops/project.h"

#include <math.h>
#include <string.h>

#include "ops/project_kernels.h"

enum {
    /* A block of the basis that has been transposed. */
    TURNED_FLOATS = 8192,
    TURNED_DEEP = 64,
    TURNED_WIDE = 480,
    TURNED_STEP = 48,
    /* Slices that are computed without. */
    REBUILT = 1,
    /* A block of values that is to be multiplied transposed. */
    COPIED_ROWS = 128,
    COPIED_WIDE = 64,
    /* With few components it is the result that is computed transposed: so many components,
     * elements of a row, elements of the result, and elements of rows (but at least some rows). */
    FLAT_MOST = 12,
    FLAT_STEP = 16,
    FLAT_FLOATS = 8192,
    FLAT_WIDE = 1024,
    FLAT_ROWS = 16,
    FLAT_READ = FLAT_ROWS * FLAT_WIDE,
    FLAT_ALWAYS = FLAT_FLOATS / FLAT_MOST, /* a row that fits, whatever the components */
    /* A block of a transposition. */
    SQUARE = 64,
};

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- onto components ---- */

/* Slices, of which the last may be shorter. */
static size_t slices_of(size_t count, size_t slice)
{
    return count / slice + (count % slice != 0);
}

/* Sums of squares, that go on from block to block. */
struct squares {
    double values[WEFT__SQUARES];
    double centred[WEFT__SQUARES];
    double kept[WEFT__SQUARES];
};

struct projection {
    const struct weft__projecting *task;
    const struct weft__project_kernels *kernels;
    struct weft__project_order order;
    struct squares *squares; /* NULL: not wanted */
};

/* Rows that lie one behind another are one row. */
static void add_squares(const struct projection *p, const float *values, size_t stride, size_t rows,
                        size_t count, double *lanes)
{
    const size_t joined = stride == count && rows > 0 ? rows : 1;

    for (size_t r = 0; r < rows; r += joined)
        p->kernels->squares(values + r * stride, joined * count, lanes);
}

/* Elements [k, k + depth) of slices from m on, as they are or centred in `work`; and their
 * squares. */
static const float *prepare(const struct projection *p, size_t m, size_t rows, size_t k,
                            size_t depth, float *work)
{
    const struct weft__projecting *task = p->task;
    const size_t at = m * task->slice + k;
    const float *values = task->values + at;
    const size_t joined = task->slice == depth && rows > 0 ? rows : 1;

    if (p->squares && !task->mean)
        add_squares(p, values, task->slice, rows, depth, p->squares->values);
    if (!task->mean)
        return values;
    for (size_t r = 0; r < rows; r += joined) {
        const float *from = values + r * task->slice;
        const float *mean = task->mean + at + r * task->slice;

        if (p->squares)
            p->kernels->centre_squares(from, mean, task->share, joined * depth, work + r * depth,
                                       p->squares->values, p->squares->centred);
        else
            p->kernels->centre(from, mean, task->share, joined * depth, work + r * depth);
    }
    return work;
}

static double total(double *lanes)
{
    for (size_t half = WEFT__SQUARES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

static void add_totals(const struct projection *p)
{
    const struct weft__projecting *task = p->task;
    const double values = total(p->squares->values);

    add_squares(p, task->out, task->stride, slices_of(task->count, task->slice), task->components,
                p->squares->kept);
    task->squares->values += values;
    task->squares->centred += task->mean ? total(p->squares->centred) : values;
    task->squares->kept += total(p->squares->kept);
}

/* 16 sums a component: a block of the basis is transposed, so that they are in one register. */
static void project_narrow(const struct projection *p, size_t m, size_t rows, size_t length)
{
    const struct weft__projecting *task = p->task;
    const size_t d = task->components;
    const size_t deep = p->order.deep;
    float lanes[WEFT__NARROW_ROWS * (WEFT__NARROW - 1) * WEFT__LANES];
    float turned[(WEFT__NARROW - 1) * WEFT__PREPARED_DEEP];
    float work[WEFT__PREPARED_FLOATS];
    float sums[WEFT__NARROW_ROWS * (WEFT__NARROW - 1)];

    for (size_t k = 0; k < length; k += lesser(deep, length - k)) {
        const size_t depth = lesser(deep, length - k);
        const size_t step = task->mean || p->squares ? WEFT__PREPARED_FLOATS / depth : rows;

        p->kernels->transpose(task->basis + k * task->stride, task->stride, depth, d, turned,
                              WEFT__PREPARED_DEEP);
        for (size_t r = 0; r < rows; r += lesser(step, rows - r)) {
            const size_t some = lesser(step, rows - r);
            const float *x = prepare(p, m + r, some, k, depth, work);

            if (d > 0)
                p->kernels->narrow(x, task->mean ? depth : task->slice, some, turned,
                                   WEFT__PREPARED_DEEP, d, depth, k == 0,
                                   lanes + r * d * WEFT__LANES);
        }
    }
    if (task->stride == d) {
        p->kernels->add_lanes(lanes, rows * d, task->out + m * d);
        return;
    }
    p->kernels->add_lanes(lanes, rows * d, sums);
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < d; j++)
            task->out[(m + r) * task->stride + j] = sums[r * d + j];
}

/* Elements [k, k + depth) of some slices. */
static void project_block(const struct projection *p, size_t m, size_t rows, size_t k, size_t depth)
{
    const struct weft__projecting *task = p->task;
    float work[WEFT__CENTRED_ROWS * WEFT__BASIS_DEEP];
    const size_t step = task->mean || p->squares ? p->order.joined : rows;
    const size_t groups = rows > 0 ? (rows + step - 1) / step : 0;

    for (size_t g = 0; g < groups; g++) {
        const size_t first = m + rows * g / groups;
        const size_t some = m + rows * (g + 1) / groups - first;
        float *out = task->out + first * task->stride;

        p->kernels->panel(&(struct weft__panel){.a = prepare(p, first, some, k, depth, work),
                                                .a_row = task->mean ? depth : task->slice,
                                                .a_depth = 1,
                                                .b = task->basis + k * task->stride,
                                                .ldb = task->stride,
                                                .depth = depth,
                                                .rows = some,
                                                .columns = task->components,
                                                .c = out,
                                                .ldc = task->stride,
                                                .start = k > 0 ? out : NULL});
    }
}

/* Sums go on from block to block of the basis, in the memory that they end in. */
static void project_wide(const struct projection *p)
{
    const struct weft__projecting *task = p->task;
    const size_t whole = task->count / task->slice;
    const size_t rest = task->count % task->slice;
    const size_t length = whole > 0 ? task->slice : rest;
    const size_t deep = p->order.deep;

    for (size_t k = 0; k < length; k += lesser(deep, length - k)) {
        project_block(p, 0, whole, k, lesser(deep, length - k));
        if (k < rest)
            project_block(p, whole, 1, k, lesser(deep, rest - k));
    }
}

void weft__project(const struct weft__projecting *task)
{
    struct squares squares;
    const struct projection p = {
        .task = task,
        .kernels = weft__project_kernels_find(),
        .order = weft__project_order_of(task->slice, task->components, task->stride),
        .squares = task->squares ? &squares : NULL};
    const size_t whole = task->count / task->slice;
    const size_t rest = task->count % task->slice;

    if (p.squares)
        memset(&squares, 0, sizeof squares);
    if (!p.order.narrow) {
        project_wide(&p);
    } else {
        for (size_t m = 0; m < whole; m += lesser(p.order.rows, whole - m))
            project_narrow(&p, m, lesser(p.order.rows, whole - m), task->slice);
        if (rest > 0)
            project_narrow(&p, whole, 1, rest);
    }
    if (p.squares)
        add_totals(&p);
}

/* ---- and back ---- */

/* Elements [k, k + wide) of some slices, of which `depth` components from j on are added. */
static void reconstruct_block(const struct weft__reconstructing *task,
                              const struct weft__project_kernels *kernels,
                              const struct weft__panel *turned, size_t m, size_t j)
{
    struct weft__panel block = *turned;
    const size_t at = m * task->stride + (size_t)(turned->c - task->values);

    block.a = task->in + m * task->components + j;
    block.c = task->values + at;
    block.start = j > 0 ? block.c : task->mean ? task->mean + at : NULL;
    kernels->panel(&block);
}

/* A few slices: the basis is read for each, which is less work than to store it transposed. */
static void rebuild_slices(const struct weft__reconstructing *task,
                           const struct weft__project_kernels *kernels)
{
    for (size_t m = 0; m * task->slice < task->count; m++) {
        const size_t at = m * task->stride;

        kernels->rebuild(task->basis, task->components, task->in + m * task->components,
                         lesser(task->slice, task->count - m * task->slice),
                         task->mean ? task->mean + at : NULL, task->values + at);
    }
}

void weft__reconstruct(const struct weft__reconstructing *task)
{
    const struct weft__project_kernels *kernels = weft__project_kernels_find();
    const size_t d = task->components;
    const size_t whole = task->count / task->slice;
    const size_t rest = task->count % task->slice;
    const size_t length = whole > 0 ? task->slice : rest;
    const size_t deep = d == 0 ? 1 : lesser(d, TURNED_DEEP);
    const size_t wide = lesser(TURNED_FLOATS / deep / TURNED_STEP * TURNED_STEP, TURNED_WIDE);
    float turned[TURNED_FLOATS];

    if (whole <= REBUILT && d > 0) {
        rebuild_slices(task, kernels);
        return;
    }
    for (size_t k = 0; k < length; k += lesser(wide, length - k)) {
        const size_t columns = lesser(wide, length - k);
        size_t j = 0;

        do { /* once if there are no components: the mean is copied */
            struct weft__panel block = {.a_row = d,
                                        .a_depth = 1,
                                        .b = turned,
                                        .ldb = wide,
                                        .depth = lesser(deep, d - j),
                                        .rows = whole,
                                        .columns = columns,
                                        .c = task->values + k,
                                        .ldc = task->stride};

            kernels->transpose(task->basis + k * d + j, d, columns, block.depth, turned, wide);
            reconstruct_block(task, kernels, &block, 0, j);
            block.rows = 1;
            block.columns = k < rest ? lesser(columns, rest - k) : 0;
            if (block.columns > 0)
                reconstruct_block(task, kernels, &block, whole, j);
            j += block.depth;
        } while (j < d);
    }
}

/* ---- transposed ---- */

/* Few components: what comes out is computed transposed, so that rows of values are vectors. */
static void correlate_narrow(const struct weft__correlating *task,
                             const struct weft__project_kernels *kernels)
{
    const size_t d = task->components;
    const size_t fits = task->slice <= FLAT_ALWAYS
                            ? task->slice
                            : lesser(FLAT_FLOATS / (d + !d) / FLAT_STEP * FLAT_STEP, FLAT_WIDE);
    float turned[FLAT_FLOATS];

    for (size_t k = 0; k < task->slice; k += lesser(fits, task->slice - k)) {
        const size_t wide = lesser(fits, task->slice - k);
        const size_t deep = task->rows <= FLAT_ROWS ? FLAT_ROWS : FLAT_READ / wide;

        for (size_t m = 0; m < task->rows; m += lesser(deep, task->rows - m))
            kernels->panel(&(struct weft__panel){.a = task->in + m * d,
                                                 .a_row = 1,
                                                 .a_depth = d,
                                                 .b = task->values + m * task->stride + k,
                                                 .ldb = task->stride,
                                                 .depth = lesser(deep, task->rows - m),
                                                 .rows = d,
                                                 .columns = wide,
                                                 .c = turned,
                                                 .ldc = wide,
                                                 .start = m > 0 ? turned : NULL});
        kernels->transpose(turned, wide, d, wide, task->out + k * d, d);
    }
}

/* Rows [m, m + depth), elements [k, k + wide): copied, since rows that are a power of two apart do
 * not fit into a cache together. */
static void correlate_block(const struct weft__correlating *task,
                            const struct weft__project_kernels *kernels, size_t m, size_t depth,
                            size_t k, size_t wide)
{
    const size_t d = task->components;
    float copied[COPIED_ROWS * COPIED_WIDE];
    float *out = task->out + k * d;

    for (size_t r = 0; r < depth; r++)
        memcpy(copied + r * COPIED_WIDE, task->values + (m + r) * task->stride + k,
               wide * sizeof *copied);
    kernels->panel(&(struct weft__panel){.a = copied,
                                         .a_row = 1,
                                         .a_depth = COPIED_WIDE,
                                         .b = task->in + m * d,
                                         .ldb = d,
                                         .depth = depth,
                                         .rows = wide,
                                         .columns = d,
                                         .c = out,
                                         .ldc = d,
                                         .start = m > 0 ? out : NULL});
}

void weft__correlate(const struct weft__correlating *task)
{
    const struct weft__project_kernels *kernels = weft__project_kernels_find();

    if (task->rows == 0)
        for (size_t i = 0; i < task->slice * task->components; i++)
            task->out[i] = 0;
    else if (task->components <= FLAT_MOST)
        correlate_narrow(task, kernels);
    else
        for (size_t m = 0; m < task->rows; m += lesser(COPIED_ROWS, task->rows - m))
            for (size_t k = 0; k < task->slice; k += lesser(COPIED_WIDE, task->slice - k))
                correlate_block(task, kernels, m, lesser(COPIED_ROWS, task->rows - m), k,
                                lesser(COPIED_WIDE, task->slice - k));
}

void weft__transpose(const float *from, size_t rows, size_t columns, float *to)
{
    const struct weft__project_kernels *kernels = weft__project_kernels_find();

    for (size_t r = 0; r < rows; r += lesser(SQUARE, rows - r))
        for (size_t c = 0; c < columns; c += lesser(SQUARE, columns - c))
            kernels->transpose(from + r * columns + c, columns, lesser(SQUARE, rows - r),
                               lesser(SQUARE, columns - c), to + c * rows + r, rows);
}

/* ---- orthonormal columns ---- */

int weft__all_finite(const float *values, size_t count)
{
    int finite = 1;

    for (size_t i = 0; i < count; i++)
        finite &= fabsf(values[i]) <= 3.402823466e38F;
    return finite;
}

int weft__orthonormalise(const struct weft__orthonormalising *task)
{
    return weft__project_kernels_find()->orthonormalise(task);
}
