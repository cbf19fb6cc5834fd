/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Singular values by LAPACK's dgesdd, by divide and conquer.
 *
 * The threads of OpenBLAS are left as they are. It can limit them for the whole process alone (in
 * its usual build openblas_set_num_threads_local() does that, too), which would change the products
 * of other threads of the program under way.
 */
#include "runtime/compress/lapack/lapack.h"

#include <limits.h>
#include <string.h>

/* LAPACK: Fortran, whose functions get the lengths of texts behind everything else. */
void dgesdd_(const char *job, const int *rows, const int *columns, double *matrix, const int *lda,
             double *values, double *u, const int *ldu, double *vt, const int *ldvt, double *work,
             const int *work_count, int *integers, int *status, size_t job_length);

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* With job 'O' the longer of the factors overwrites the matrix, so beside it there is room for the
 * shorter one: V^T of a tall matrix, U of a wide one. */
static int decompose(double *matrix, size_t rows, size_t columns, double *values, double *shorter,
                     double *work, int work_count, int *integers)
{
    const int m = (int)rows, n = (int)columns, least = (int)lesser(rows, columns), one = 1;
    const int tall = m >= n;
    int status = 0;

    dgesdd_("O", &m, &n, matrix, &m, values, shorter, tall ? &one : &least, shorter,
            tall ? &least : &one, work, &work_count, integers, &status, 1);
    return status;
}

/* How many numbers LAPACK works in; 0: more than its integers can say. */
static int work_count(size_t rows, size_t columns)
{
    double none = 0, wanted = 0;
    int integer = 0;

    if (rows == 0 || columns == 0 || rows > INT_MAX || columns > INT_MAX)
        return 0;
    if (decompose(&none, rows, columns, &none, &none, &wanted, -1, &integer) != 0)
        return 0;
    return wanted >= 1 && wanted < INT_MAX ? (int)wanted : 0;
}

static size_t svd_bytes(size_t rows, size_t columns)
{
    const size_t least = lesser(rows, columns), count = (size_t)work_count(rows, columns);

    return count ? (least * least + count) * sizeof(double) + 8 * least * sizeof(int) : 0;
}

static int svd(double *matrix, size_t rows, size_t columns, double *values, void *work)
{
    const size_t least = lesser(rows, columns);
    const int count = work_count(rows, columns);
    double *shorter = work, *numbers = shorter + least * least;
    int status;

    if (!count)
        return -1;
    status = decompose(matrix, rows, columns, values, shorter, numbers, count,
                       (int *)(void *)(numbers + count));
    if (status == 0 && rows < columns)
        memcpy(matrix, shorter, least * least * sizeof *matrix);
    return status > 0 ? 1 : status < 0 ? -1 : 0;
}

const struct weft__lapack weft__lapack_table = {WEFT__LAPACK_VERSION, svd_bytes, svd};
