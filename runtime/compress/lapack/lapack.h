/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What libweft-lapack gives to libweft, which loads it (runtime/compress/load.c): a table of
 * functions. It knows nothing of libweft, so it serves programs that hold that as a static library,
 * too. LAPACK is in a library of its own because OpenBLAS, which mostly is it, starts threads in
 * every process that is linked with it.
 */
#ifndef WEFT_RUNTIME_COMPRESS_LAPACK_LAPACK_H
#define WEFT_RUNTIME_COMPRESS_LAPACK_LAPACK_H

#include <stddef.h>

/* Changes whenever this file does. */
enum { WEFT__LAPACK_VERSION = 1 };

struct weft__lapack {
    int version;
    /* Bytes that the next one works in; 0: it does not take matrices of this size. */
    size_t (*svd_bytes)(size_t rows, size_t columns);
    /* The left singular vectors of a matrix, column after column, overwrite its first min(rows,
     * columns) columns; their values are descending. 0; 1: it did not converge; -1: it was refused.
     */
    int (*svd)(double *matrix, size_t rows, size_t columns, double *values, void *work);
};

/* The name of the table. */
extern const struct weft__lapack weft__lapack_table;

#endif
