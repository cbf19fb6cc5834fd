/* SPDX-License-Identifier: BSD-3-Clause */
/* Projections, as they are defined. */
#include "ops/project.h"

#include <math.h>
#include <string.h>

enum {
    NARROW = 8, /* with less components there are LANES sums */
    LANES = 16,
    TRANSPOSED = 16, /* a block of a transposition is a square of so many */
};

/* What is left of a dependent column, of its square. */
static const double DEPENDENT = 0x1p-40;

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- onto components ---- */

static float centred(const struct weft__projecting *task, size_t i)
{
    return task->mean ? fmaf(-task->share, task->mean[i], task->values[i]) : task->values[i];
}

static float sum_lanes(float *lanes)
{
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

static void project_narrow(const struct weft__projecting *task, size_t begin, size_t length,
                           float *out)
{
    for (size_t j = 0; j < task->components; j++) {
        float lanes[LANES] = {0};

        for (size_t k = 0; k < length; k++)
            lanes[k % LANES] =
                fmaf(centred(task, begin + k), task->basis[k * task->stride + j], lanes[k % LANES]);
        out[j] = sum_lanes(lanes);
    }
}

static void project_wide(const struct weft__projecting *task, size_t begin, size_t length,
                         float *out)
{
    const size_t components = task->components;

    for (size_t j = 0; j < components; j++)
        out[j] = 0;
    for (size_t k = 0; k < length; k++) {
        const float x = centred(task, begin + k);

        for (size_t j = 0; j < components; j++)
            out[j] = fmaf(x, task->basis[k * task->stride + j], out[j]);
    }
}

static void add_squares(const struct weft__projecting *task, size_t begin, size_t length,
                        const float *out)
{
    for (size_t k = 0; k < length; k++) {
        const double value = (double)task->values[begin + k];
        const double left = (double)centred(task, begin + k);

        task->squares->values += value * value;
        task->squares->centred += left * left;
    }
    for (size_t j = 0; j < task->components; j++)
        task->squares->kept += (double)out[j] * (double)out[j];
}

void weft__project(const struct weft__projecting *task)
{
    float *out = task->out;

    for (size_t begin = 0; begin < task->count; begin += lesser(task->slice, task->count - begin)) {
        const size_t length = lesser(task->slice, task->count - begin);

        if (task->stride < NARROW)
            project_narrow(task, begin, length, out);
        else
            project_wide(task, begin, length, out);
        if (task->squares)
            add_squares(task, begin, length, out);
        out += task->stride;
    }
}

/* ---- and back ---- */

void weft__reconstruct(const struct weft__reconstructing *task)
{
    const size_t components = task->components;

    for (size_t i = 0; i < task->count; i++) {
        const size_t at = i / task->slice * task->stride + i % task->slice;
        const float *row = task->basis + i % task->slice * components;
        const float *in = task->in + i / task->slice * components;
        float sum = task->mean ? task->mean[at] : 0.0F;

        for (size_t j = 0; j < components; j++)
            sum = fmaf(in[j], row[j], sum);
        task->values[at] = sum;
    }
}

/* ---- transposed ---- */

void weft__correlate(const struct weft__correlating *task)
{
    const size_t components = task->components;

    for (size_t i = 0; i < task->slice * components; i++)
        task->out[i] = 0;
    for (size_t m = 0; m < task->rows; m++)
        for (size_t k = 0; k < task->slice; k++)
            for (size_t j = 0; j < components; j++)
                task->out[k * components + j] =
                    fmaf(task->values[m * task->stride + k], task->in[m * components + j],
                         task->out[k * components + j]);
}

void weft__transpose(const float *from, size_t rows, size_t columns, float *to)
{
    for (size_t r = 0; r < rows; r += lesser(TRANSPOSED, rows - r))
        for (size_t c = 0; c < columns; c += lesser(TRANSPOSED, columns - c))
            for (size_t i = r; i < r + lesser(TRANSPOSED, rows - r); i++)
                for (size_t j = c; j < c + lesser(TRANSPOSED, columns - c); j++)
                    to[j * rows + i] = from[i * columns + j];
}

/* ---- orthonormal columns ---- */

int weft__all_finite(const float *values, size_t count)
{
    int finite = 1;

    for (size_t i = 0; i < count; i++)
        finite &= fabsf(values[i]) <= 3.402823466e38F;
    return finite;
}

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
static double remainder_at(const float *row, size_t column, const double *coefficients)
{
    double sum = (double)row[column];

    for (size_t p = 0; p < column; p++)
        sum -= coefficients[p] * (double)row[p];
    return sum;
}

int weft__orthonormalise_column(float *matrix, size_t rows, size_t columns, size_t column,
                                double *work)
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
