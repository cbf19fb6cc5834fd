/* SPDX-License-Identifier: BSD-3-Clause */
/* What every processor has: the kernels of projections as they are defined. */
#include <math.h>

#include "ops/project_kernels.h"

#define WEFT__PROJECT_TABLE weft__project_scalar

static void panel(const struct weft__panel *p)
{
    for (size_t r = 0; r < p->rows; r++) {
        float *c = p->c + r * p->ldc;

        for (size_t j = 0; j < p->columns; j++)
            c[j] = p->start ? p->start[r * p->ldc + j] : 0.0F;
        for (size_t t = 0; t < p->depth; t++) {
            const float x = p->a[r * p->a_row + t * p->a_depth];

            for (size_t j = 0; j < p->columns; j++)
                c[j] = fmaf(x, p->b[t * p->ldb + j], c[j]);
        }
    }
}

static void narrow(const float *x, size_t ldx, size_t rows, const float *b, size_t ldb, size_t d,
                   size_t count, int first, float *lanes)
{
    for (size_t i = 0; first && i < rows * d * WEFT__LANES; i++)
        lanes[i] = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < d; j++)
            for (size_t k = 0; k < count; k++) {
                float *lane = &lanes[(r * d + j) * WEFT__LANES + k % WEFT__LANES];

                *lane = fmaf(x[r * ldx + k], b[j * ldb + k], *lane);
            }
}

static void add_lanes(const float *lanes, size_t count, float *sums)
{
    for (size_t i = 0; i < count; i++, lanes += WEFT__LANES) {
        float left[WEFT__LANES / 2];

        for (size_t l = 0; l < WEFT__LANES / 2; l++)
            left[l] = lanes[l] + lanes[l + WEFT__LANES / 2];
        for (size_t half = WEFT__LANES / 4; half > 0; half /= 2)
            for (size_t l = 0; l < half; l++)
                left[l] += left[l + half];
        sums[i] = left[0];
    }
}

/* The square of a float is exact in f64: whether products are rounded makes no difference. */
static void squares(const float *values, size_t count, double *lanes)
{
    for (size_t i = 0; i < count; i++)
        lanes[i % WEFT__SQUARES] += (double)values[i] * (double)values[i];
}

/* A product with 1 is exact, so a share of 1 needs no fmaf(), which is a call here. */
static void centre_squares(const float *values, const float *mean, float share, size_t count,
                           float *to, double *of_values, double *of_centred)
{
    for (size_t i = 0; i < count; i++)
        to[i] = share == 1 ? values[i] - mean[i] : fmaf(-share, mean[i], values[i]);
    squares(values, count, of_values);
    squares(to, count, of_centred);
}

static void transpose(const float *from, size_t ldf, size_t rows, size_t columns, float *to,
                      size_t ldt)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            to[j * ldt + i] = from[i * ldf + j];
}

static void rebuild(const float *basis, size_t d, const float *in, size_t count, const float *mean,
                    float *values)
{
    for (size_t k = 0; k < count; k++) {
        float sum = mean ? mean[k] : 0.0F;

        for (size_t j = 0; j < d; j++)
            sum = fmaf(in[j], basis[k * d + j], sum);
        values[k] = sum;
    }
}

#include "ops/project_template.h"
