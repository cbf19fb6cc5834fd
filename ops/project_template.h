/* SPDX-License-Identifier: BSD-3-Clause */
/* What is the same text at every SIMD level: loops that compilers make vectors of. A level's file
 * defines WEFT__PROJECT_TABLE, the name of the table to fill, and brings panel(), narrow() and
 * transpose(). */

static void centre(const float *values, const float *mean, float share, size_t count, float *to)
{
    for (size_t i = 0; i < count; i++)
        to[i] = fmaf(-share, mean[i], values[i]);
}

static double squares(const float *values, size_t count)
{
    double sums[WEFT__LANES] = {0};
    size_t i = 0;

    for (; i + WEFT__LANES <= count; i += WEFT__LANES)
        for (size_t l = 0; l < WEFT__LANES; l++)
            sums[l] += (double)values[i + l] * (double)values[i + l];
    for (size_t l = 0; i + l < count; l++)
        sums[l] += (double)values[i + l] * (double)values[i + l];
    for (size_t half = WEFT__LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            sums[l] += sums[l + half];
    return sums[0];
}

const struct weft__project_kernels WEFT__PROJECT_TABLE = {
    .panel = panel,
    .narrow = narrow,
    .transpose = transpose,
    .centre = centre,
    .squares = squares,
};
