/* SPDX-License-Identifier: BSD-3-Clause */
/* Products of slices with a basis, and what else projections need: weft/compress.h says what comes
 * out, bit for bit. Arguments are right, and sizes in bytes fit into size_t.
 *
 * Every element that comes out is computed by itself, so a task may be cut: a projection into
 * slices and components, the others into slices, or rows of the basis, and elements of them.
 * Strides say where the next row or slice begins in memory of which a cut sees a part. */
#ifndef WEFT_OPS_PROJECT_H
#define WEFT_OPS_PROJECT_H

#include <weft/compress.h>

/* With less components there are sums of parts. */
enum { WEFT__NARROW = 8 };

struct weft__projecting {
    const float *basis;
    size_t slice;
    size_t components;
    /* Of rows of the basis and of slices of `out`: d. With less than 8 components in all there are
     * 16 sums, however the task is cut. */
    size_t stride;
    const float *values;
    size_t count;
    const float *mean; /* NULL: zeros */
    float share;
    float *out;
    struct weft_projection_squares *squares; /* NULL: not wanted */
};

void weft__project(const struct weft__projecting *task);

/*
 * The order in which squares are added: element i of a run to number i modulo 32, run after run;
 * then halves are added. A run is what is read at once:
 *
 *     wide      a block of `deep` elements of all slices, slice by slice, after the other; and in
 *               each block the last slice, if it is shorter, at the end. If a block is all of them,
 *               slices lie together: then they are read in groups of nearly the same size, of at
 *               most `joined` slices.
 *     narrow    so many slices (`rows`) after the others, block by block of them; the last slice,
 *               if it is shorter, by itself at the end. Groups are `joined` slices as far as they
 *               go.
 */
struct weft__project_order {
    int narrow;
    size_t rows;
    size_t deep;
    size_t joined;
};

enum {
    /* A block of the basis stays in the second cache while slices come by, and so many elements of
     * a few of these, centred, in the first. */
    WEFT__BASIS_FLOATS = 65536,
    WEFT__BASIS_DEEP = 256,
    WEFT__CENTRED_ROWS = 18,
    /* With few components: slices of which sums are held at a time; elements of a slice, and of all
     * that are prepared at a time. */
    WEFT__NARROW_ROWS = 64,
    WEFT__PREPARED_DEEP = 1024,
    WEFT__PREPARED_FLOATS = 4096,
};

/* Of a task: its slice, components and stride. */
static inline struct weft__project_order weft__project_order_of(size_t slice, size_t components,
                                                                size_t stride)
{
    struct weft__project_order order = {1, WEFT__NARROW_ROWS, WEFT__PREPARED_DEEP, 1};

    if (stride < WEFT__NARROW || components == 0) {
        order.joined =
            WEFT__PREPARED_FLOATS / (slice < order.deep ? slice : (size_t)WEFT__PREPARED_DEEP);
        return order;
    }
    order.narrow = 0;
    order.joined = WEFT__CENTRED_ROWS;
    order.deep = WEFT__BASIS_FLOATS / components;
    if (order.deep < 16)
        order.deep = 16;
    if (order.deep > WEFT__BASIS_DEEP)
        order.deep = WEFT__BASIS_DEEP;
    return order;
}

struct weft__reconstructing {
    const float *basis;
    size_t slice;
    size_t components;
    const float *in;
    size_t count;      /* elements: the last slice may be shorter */
    size_t stride;     /* of slices of the mean and of `values`: K */
    const float *mean; /* may be `values`; NULL: zeros */
    float *values;
};

void weft__reconstruct(const struct weft__reconstructing *task);

struct weft__correlating {
    const float *values;
    size_t rows;
    size_t slice;
    size_t stride; /* of rows of `values`: K */
    const float *in;
    size_t components;
    float *out;
};

void weft__correlate(const struct weft__correlating *task);

/* Whether all elements are finite. */
int weft__all_finite(const float *values, size_t count);

/* Makes one column orthonormal to those before it, which are orthonormal or 0, in passes over the
 * rows, pass after pass. A pass may be cut into ranges of rows, from the first to the last. */
enum { WEFT__ORTHONORMAL_PASSES = 4 };

struct weft__orthonormalising {
    float *matrix;
    size_t columns;
    size_t column;
    size_t pass;
    size_t begin; /* rows */
    size_t end;
    double *work; /* two numbers, and two for each column before: kept from range to range */
};

/* 1: the last pass, and the column is not 0. */
int weft__orthonormalise(const struct weft__orthonormalising *task);

void weft__transpose(const float *from, size_t rows, size_t columns, float *to);

#endif
