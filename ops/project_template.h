/* SPDX-License-Identifier: BSD-3-Clause */
/* What is the same text at every SIMD level: loops that compilers make vectors of. A level's file
 * defines WEFT__PROJECT_TABLE, the name of the table to fill, and brings panel(), narrow(),
 * add_lanes(), transpose(), rebuild() and squares(). */

static void centre(const float *values, const float *mean, float share, size_t count, float *to)
{
    for (size_t i = 0; i < count; i++)
        to[i] = fmaf(-share, mean[i], values[i]);
}

/* ---- orthonormal columns ---- */

#if defined(__GNUC__)
#    define ALWAYS static inline __attribute__((always_inline))
#else
#    define ALWAYS static inline
#endif

/* Sums that are computed side by side. */
enum { SIDE_BY_SIDE = 8 };

/* What is left of a dependent column, of its square. */
static const double DEPENDENT = 0x1p-40;

/*
 * The column less what the given coefficients make of those before it. It is computed anew wherever
 * it is needed, so that no pass needs memory for a column in f64:
 *
 *     pass 1    c = Q^T v
 *     pass 2    e = Q^T (v - Q c), what rounding has left of the others
 *     pass 3    |v - Q (c + e)|, next to |v|
 *     pass 4    v = (v - Q (c + e)) / norm
 *
 * Q has been rounded to f32, which the second pass makes up for.
 */
ALWAYS double remainder_at(const float *row, size_t column, const double *coefficients)
{
    double sums[SIDE_BY_SIDE] = {0};
    size_t p = 0;

    if (column < SIDE_BY_SIDE) {
        double sum = (double)row[column];

        for (; p < column; p++)
            sum -= coefficients[p] * (double)row[p];
        return sum;
    }
    for (; p + SIDE_BY_SIDE <= column; p += SIDE_BY_SIDE)
        for (size_t l = 0; l < SIDE_BY_SIDE; l++)
            sums[l] += coefficients[p + l] * (double)row[p + l];
    for (size_t l = 0; p + l < column; l++)
        sums[l] += coefficients[p + l] * (double)row[p + l];
    return (double)row[column] - (((sums[0] + sums[4]) + (sums[2] + sums[6])) +
                                  ((sums[1] + sums[5]) + (sums[3] + sums[7])));
}

ALWAYS int make_orthonormal(float *matrix, size_t rows, size_t columns, size_t column, double *work)
{
    double *first = work;
    double *second = work + column;
    double before = 0;
    double after = 0;

    for (size_t p = 0; p < 2 * column; p++)
        work[p] = 0;
    for (size_t k = 0; k < rows; k++)
        for (size_t p = 0; p < column; p++)
            first[p] += (double)matrix[k * columns + p] * (double)matrix[k * columns + column];
    for (size_t k = 0; k < rows; k++) {
        const double left = remainder_at(matrix + k * columns, column, first);

        for (size_t p = 0; p < column; p++)
            second[p] += (double)matrix[k * columns + p] * left;
    }
    for (size_t p = 0; p < column; p++)
        first[p] += second[p];
    for (size_t k = 0; k < rows; k++) {
        const double value = (double)matrix[k * columns + column];
        const double left = remainder_at(matrix + k * columns, column, first);

        before += value * value;
        after += left * left;
    }
    const int independent = after > DEPENDENT * before;
    const double scale = independent ? 1 / sqrt(after) : 0;

    for (size_t k = 0; k < rows; k++) {
        const double left = remainder_at(matrix + k * columns, column, first);

        matrix[k * columns + column] = independent ? (float)(left * scale) : 0.0F;
    }
    return independent;
}

/* A few columns are compiled each for themselves: what loops go over becomes registers. */
static int orthonormalise(float *matrix, size_t rows, size_t columns, size_t column, double *work)
{
    double few[8];

    switch (column) {
    case 0:
        return make_orthonormal(matrix, rows, columns, 0, few);
    case 1:
        return make_orthonormal(matrix, rows, columns, 1, few);
    case 2:
        return make_orthonormal(matrix, rows, columns, 2, few);
    case 3:
        return make_orthonormal(matrix, rows, columns, 3, few);
    default:
        return make_orthonormal(matrix, rows, columns, column, work);
    }
}

const struct weft__project_kernels WEFT__PROJECT_TABLE = {
    .panel = panel,
    .narrow = narrow,
    .transpose = transpose,
    .rebuild = rebuild,
    .add_lanes = add_lanes,
    .centre = centre,
    .squares = squares,
    .orthonormalise = orthonormalise,
};
