/* SPDX-License-Identifier: BSD-3-Clause */
/* What projections are made of, a set for each SIMD level. All levels give the same bits. */
#ifndef WEFT_OPS_PROJECT_KERNELS_H
#define WEFT_OPS_PROJECT_KERNELS_H

#include "ops/project.h"

#include <stddef.h>

enum {
    /* With less than WEFT__NARROW components there are so many sums. */
    WEFT__LANES = 16,
    /* Sums of squares. */
    WEFT__SQUARES = 32,
};

/*
 * c[r ldc + j] = start[r ldc + j] + sum over t of a[r a_row + t a_depth] b[t ldb + j], t upwards,
 * each product added with one rounding:
 *
 *               columns                  b: `depth` rows, streamed through registers
 *              +-------+
 *        depth |   b   |                 c: a tile of it stays in registers meanwhile
 *              +-------+
 *      depth
 *     +-----+  +-------+
 *     |  a  |  |   c   | rows
 *     +-----+  +-------+
 */
struct weft__panel {
    const float *a;
    size_t a_row;
    size_t a_depth;
    const float *b;
    size_t ldb;
    size_t depth;
    size_t rows;
    size_t columns;
    float *c;
    size_t ldc;
    const float *start; /* may be c; NULL: zeros */
};

struct weft__project_kernels {
    void (*panel)(const struct weft__panel *panel);
    /* lanes[(r d + j) 16 + k % 16] += x[r ldx + k] b[j ldb + k], k < count; `first`: they begin
     * with 0, whatever is there. */
    void (*narrow)(const float *x, size_t ldx, size_t rows, const float *b, size_t ldb, size_t d,
                   size_t count, int first, float *lanes);
    /* to[j ldt + i] = from[i ldf + j]. */
    void (*transpose)(const float *from, size_t ldf, size_t rows, size_t columns, float *to,
                      size_t ldt);
    /* to[i] = values[i] - share mean[i], rounded once. */
    void (*centre)(const float *values, const float *mean, float share, size_t count, float *to);
    /* centre(), and squares() of what it reads and of what it writes. */
    void (*centre_squares)(const float *values, const float *mean, float share, size_t count,
                           float *to, double *of_values, double *of_centred);
    /* values[k] = mean[k] (NULL: 0) + sum over j of basis[k d + j] in[j], j < d, k < count, as
     * panel() adds. */
    void (*rebuild)(const float *basis, size_t d, const float *in, size_t count, const float *mean,
                    float *values);
    /* sums[i] = the 16 lanes from i 16 on, added by halves. */
    void (*add_lanes)(const float *lanes, size_t count, float *sums);
    /* lanes[i % 32] += values[i]^2, i < count, in f64. */
    void (*squares)(const float *values, size_t count, double *lanes);
    /* As weft__orthonormalise(). */
    int (*orthonormalise)(const struct weft__orthonormalising *task);
};

extern const struct weft__project_kernels weft__project_scalar;
extern const struct weft__project_kernels weft__project_avx2;
extern const struct weft__project_kernels weft__project_avx512;

/* Those of the SIMD level in use. */
const struct weft__project_kernels *weft__project_kernels_find(void);

#endif
