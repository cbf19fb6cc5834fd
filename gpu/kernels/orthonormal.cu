/* SPDX-License-Identifier: BSD-3-Clause */
/* Columns of a matrix made orthonormal, from the first to the last: bit by bit what ops/ gives, by
 * the passes that are described in ops/project_template.h. Every sum goes over the rows one after
 * the other, and every column needs those before it, so one block does it: what is left of a column
 * is computed for some rows at a time, by a thread each; then sums go over these rows, by a thread
 * for each column before. That is meant for a few columns. */
#include "gpu/kernels/select.cuh"

enum { ROWS = 256, MOST = WEFT_ORTHONORMAL_MOST, SIDE_BY_SIDE = 8 };

/* The column less what the coefficients make of those before it. */
WEFT_DEVICE double remainder_at(const float *row, uint32_t column, const double *coefficients)
{
    double sums[SIDE_BY_SIDE] = {};
    uint32_t p = 0;

    if (column < SIDE_BY_SIDE) {
        double sum = (double)row[column];

        for (; p < column; p++)
            sum -= coefficients[p] * (double)row[p];
        return sum;
    }
    for (; p + SIDE_BY_SIDE <= column; p += SIDE_BY_SIDE)
#pragma unroll
        for (uint32_t l = 0; l < SIDE_BY_SIDE; l++)
            sums[l] += coefficients[p + l] * (double)row[p + l];
#pragma unroll
    for (uint32_t l = 0; l < SIDE_BY_SIDE; l++)
        if (p + l < column)
            sums[l] += coefficients[p + l] * (double)row[p + l];
    return (double)row[column] - (((sums[0] + sums[4]) + (sums[2] + sums[6])) +
                                  ((sums[1] + sums[5]) + (sums[3] + sums[7])));
}

struct matrix {
    float *at;
    uint64_t rows;
    uint32_t columns;
};

/* What is left of a column in some rows from `begin` on. */
WEFT_DEVICE uint32_t find_left(const matrix &of, uint32_t column, const double *coefficients,
                               uint64_t begin, double *left)
{
    const uint64_t rest = of.rows - begin;
    const uint32_t rows = rest < ROWS ? (uint32_t)rest : (uint32_t)ROWS;

    __syncthreads(); /* the memory has been read, the coefficients written */
    for (uint32_t i = threadIdx.x; i < rows; i += blockDim.x) {
        const float *row = of.at + (begin + i) * of.columns;

        left[i] = coefficients ? remainder_at(row, column, coefficients) : (double)row[column];
    }
    __syncthreads();
    return rows;
}

/* sums[p] = products of column p with what is left of this one: passes 0 and 1. */
WEFT_DEVICE void add_products(const matrix &of, uint32_t column, const double *coefficients,
                              double *left, double *sums)
{
    __syncthreads();
    for (uint32_t p = threadIdx.x; p < column; p += blockDim.x)
        sums[p] = 0;
    for (uint64_t begin = 0; begin < of.rows; begin += ROWS) {
        const uint32_t rows = find_left(of, column, coefficients, begin, left);

        for (uint32_t p = threadIdx.x; p < column; p += blockDim.x) {
            double sum = sums[p];

#pragma unroll 4
            for (uint32_t i = 0; i < rows; i++)
                sum += (double)of.at[(begin + i) * of.columns + p] * left[i];
            sums[p] = sum;
        }
    }
}

/* Squares of a column, and of what is left of it: pass 2, by the first threads of two warps. */
WEFT_DEVICE void add_lengths(const matrix &of, uint32_t column, const double *coefficients,
                             double *left, double *lengths)
{
    double sum = 0;

    for (uint64_t begin = 0; begin < of.rows; begin += ROWS) {
        const uint32_t rows = find_left(of, column, coefficients, begin, left);

        for (uint32_t i = 0; threadIdx.x == 0 && i < rows; i++) {
            const double value = (double)of.at[(begin + i) * of.columns + column];

            sum += value * value;
        }
        for (uint32_t i = 0; threadIdx.x == WEFT_WARP && i < rows; i++)
            sum += left[i] * left[i];
    }
    if (threadIdx.x % WEFT_WARP == 0 && threadIdx.x <= WEFT_WARP)
        lengths[threadIdx.x / WEFT_WARP] = sum;
    __syncthreads();
}

/* Pass 3. */
WEFT_DEVICE void normalise(const matrix &of, uint32_t column, const double *coefficients,
                           const double *lengths)
{
    const bool independent = lengths[1] > 0x1p-40 * lengths[0];
    const double scale = independent ? 1 / __dsqrt_rn(lengths[1]) : 0;

    for (uint64_t k = threadIdx.x; k < of.rows; k += blockDim.x) {
        float *row = of.at + k * of.columns;
        const double left = remainder_at(row, column, coefficients);

        row[column] = independent ? (float)(left * scale) : 0.0f;
    }
}

/* What is not finite is counted: then nothing is written. One block, of at least two warps. */
WEFT_KERNEL __launch_bounds__(1024)
    weft_orthonormalise(float *at, uint64_t rows, uint32_t columns, unsigned long long *bad)
{
    WEFT_SHARED(double, first, MOST);
    WEFT_SHARED(double, second, MOST);
    WEFT_SHARED(double, left, ROWS);
    WEFT_SHARED(double, lengths, 2);
    const matrix of = {at, rows, columns};
    int wrong = 0;

    for (uint64_t i = threadIdx.x; i < rows * columns; i += blockDim.x)
        wrong |= magnitude_of(bits_of(at[i])) >= WEFT_INFINITY_F32;
    wrong = __syncthreads_or(wrong);
    if (threadIdx.x == 0)
        *bad = (unsigned long long)wrong;
    if (wrong)
        return;
    for (uint32_t column = 0; column < columns; column++) {
        add_products(of, column, nullptr, left, first);
        add_products(of, column, first, left, second);
        __syncthreads();
        for (uint32_t p = threadIdx.x; p < column; p += blockDim.x)
            first[p] += second[p];
        __syncthreads();
        add_lengths(of, column, first, left, lengths);
        normalise(of, column, first, lengths);
        __syncthreads();
    }
}
