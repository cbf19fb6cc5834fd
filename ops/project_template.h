/* SPDX-License-Identifier: BSD-3-Clause */
/* What is the same text at every SIMD level: loops that compilers make vectors of. A level's file
 * defines WEFT__PROJECT_TABLE, the name of the table to fill, and brings panel(), narrow(),
 * add_lanes(), transpose(), rebuild(), squares() and centre_squares(). */

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
 *     pass 0    c = Q^T v
 *     pass 1    e = Q^T (v - Q c), what rounding has left of the others
 *     pass 2    |v - Q (c + e)|, next to |v|
 *     pass 3    v = (v - Q (c + e)) / norm
 *
 * Q has been rounded to f32, which pass 1 makes up for. Each sum goes over the rows one after the
 * other, so a pass may stop after any of them.
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

/* Passes 0 and 1: products of the columns before, with the column or with what is left of it. */
ALWAYS void add_products(const struct weft__orthonormalising *task, size_t column,
                         const double *coefficients, double *sums)
{
    for (size_t k = task->begin; k < task->end; k++) {
        const float *row = task->matrix + k * task->columns;
        const double left =
            coefficients ? remainder_at(row, column, coefficients) : (double)row[column];

        for (size_t p = 0; p < column; p++)
            sums[p] += (double)row[p] * left;
    }
}

ALWAYS void add_lengths(const struct weft__orthonormalising *task, size_t column,
                        const double *coefficients, double lengths[2])
{
    double before = lengths[0], after = lengths[1];

    for (size_t k = task->begin; k < task->end; k++) {
        const float *row = task->matrix + k * task->columns;
        const double left = remainder_at(row, column, coefficients);

        before += (double)row[column] * (double)row[column];
        after += left * left;
    }
    lengths[0] = before;
    lengths[1] = after;
}

ALWAYS int normalise(const struct weft__orthonormalising *task, size_t column,
                     const double *coefficients, const double lengths[2])
{
    const int independent = lengths[1] > DEPENDENT * lengths[0];
    const double scale = independent ? 1 / sqrt(lengths[1]) : 0;

    for (size_t k = task->begin; k < task->end; k++) {
        float *row = task->matrix + k * task->columns;
        const double left = remainder_at(row, column, coefficients);

        row[column] = independent ? (float)(left * scale) : 0.0F;
    }
    return independent;
}

/* `work`: the two lengths, then the coefficients of each pass. */
ALWAYS int pass_over(const struct weft__orthonormalising *task, size_t column, double *work)
{
    double *first = work + 2, *second = first + column;

    if (task->begin == 0 && task->pass == 0)
        for (size_t i = 0; i < 2 + 2 * column; i++)
            work[i] = 0;
    if (task->begin == 0 && task->pass == 2)
        for (size_t p = 0; p < column; p++)
            first[p] += second[p];
    if (task->pass == 0)
        add_products(task, column, NULL, first);
    if (task->pass == 1)
        add_products(task, column, first, second);
    if (task->pass == 2)
        add_lengths(task, column, first, work);
    return task->pass == 3 ? normalise(task, column, first, work) : 0;
}

/* A few columns are compiled each for themselves: what loops go over becomes registers. */
ALWAYS int pass_over_few(const struct weft__orthonormalising *task, size_t column)
{
    double few[8];
    int independent;

    for (size_t i = 0; i < 2 + 2 * column; i++)
        few[i] = task->work[i];
    independent = pass_over(task, column, few);
    for (size_t i = 0; i < 2 + 2 * column; i++)
        task->work[i] = few[i];
    return independent;
}

static int orthonormalise(const struct weft__orthonormalising *task)
{
    switch (task->column) {
    case 0:
        return pass_over_few(task, 0);
    case 1:
        return pass_over_few(task, 1);
    case 2:
        return pass_over_few(task, 2);
    case 3:
        return pass_over_few(task, 3);
    default:
        return pass_over(task, task->column, task->work);
    }
}

const struct weft__project_kernels WEFT__PROJECT_TABLE = {
    .panel = panel,
    .narrow = narrow,
    .transpose = transpose,
    .rebuild = rebuild,
    .add_lanes = add_lanes,
    .centre = centre,
    .centre_squares = centre_squares,
    .squares = squares,
    .orthonormalise = orthonormalise,
};
