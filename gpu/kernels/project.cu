/* SPDX-License-Identifier: BSD-3-Clause */
/* Products of slices with a basis (weft/compress.h says what comes out, bit for bit).
 *
 *   weft_project_N, weft_reconstruct_N, weft_correlate_N   tiles of a product, N columns at a time:
 *                                every element is one sum, from the first product to the last, each
 *                                added with one rounding
 *   weft_project_narrow          onto less than 8 components: 16 sums each, added by halves
 *   weft_project_squares         what has been read and written, squared: sums of the parts that
 *                                the host computes a projection in, and in its order
 *   weft_project_add_squares     the parts, one after the other
 *
 * Slices are centred as they are read: less share times the mean, rounded once. */
#include "gpu/kernels/arguments.h"
#include "gpu/kernels/common.cuh"
#include "gpu/kernels/list.h"

enum { SIDE = 16, DEEP = 16, LANES = 16, NARROW = 8 };

WEFT_DEVICE float centred(float value, float mean, float share)
{
    return fmaf(-share, mean, value);
}

WEFT_DEVICE uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- tiles ----
 *
 * A tile of c stays in registers, elements 16 apart in a thread, while 16 columns of a and 16 rows
 * of b are in shared memory. a_turned: a lies column by column; b_turned: so does b. */

/* So many of `most` as are left. */
WEFT_DEVICE int part_of(uint64_t left, int most)
{
    return left < (uint64_t)most ? (int)left : most;
}

template <bool turned, int rows>
WEFT_DEVICE void load_a(const weft_gpu_product &task, uint64_t row, uint64_t k, float *to)
{
    const uint64_t origin = turned ? k * task.a_stride + row : row * task.a_stride + k;
    const int down = part_of(task.rows - row, rows);
    const int deep = part_of(task.depth - k, DEEP);

#pragma unroll 1
    for (int i = (int)threadIdx.x; i < rows * DEEP; i += SIDE * SIDE) {
        const int r = turned ? i % rows : i / DEEP;
        const int t = turned ? i / rows : i % DEEP;
        const uint64_t at = origin + (turned ? t * task.a_stride + r : r * task.a_stride + t);
        float value = 0;

        if (r < down && t < deep) {
            value = task.a[at];
            if (task.mean)
                value = centred(value, task.mean[at], task.share);
        }
        to[t * (rows + 1) + r] = value;
    }
}

template <bool turned, int columns>
WEFT_DEVICE void load_b(const weft_gpu_product &task, uint64_t column, uint64_t k, float *to)
{
    const uint64_t origin = turned ? column * task.b_stride + k : k * task.b_stride + column;
    const int across = part_of(task.columns - column, columns);
    const int deep = part_of(task.depth - k, DEEP);

#pragma unroll 1
    for (int i = (int)threadIdx.x; i < columns * DEEP; i += SIDE * SIDE) {
        const int c = turned ? i / DEEP : i % columns;
        const int t = turned ? i % DEEP : i / columns;
        const uint64_t at = origin + (turned ? c * task.b_stride + t : t * task.b_stride + c);

        to[t * (columns + 1) + c] = c < across && t < deep ? task.b[at] : 0;
    }
}

template <int rows, int columns>
WEFT_DEVICE void add_products(const float *a, const float *b, int depth,
                              float sum[rows / SIDE][columns / SIDE])
{
    const int down = (int)threadIdx.x / SIDE;
    const int across = (int)threadIdx.x % SIDE;

    for (int t = 0; t < depth; t++) {
        float x[rows / SIDE];

#pragma unroll
        for (int r = 0; r < rows / SIDE; r++)
            x[r] = a[t * (rows + 1) + r * SIDE + down];
#pragma unroll
        for (int c = 0; c < columns / SIDE; c++) {
            const float y = b[t * (columns + 1) + c * SIDE + across];

#pragma unroll
            for (int r = 0; r < rows / SIDE; r++)
                sum[r][c] = fmaf(x[r], y, sum[r][c]);
        }
    }
}

/* Blocks of 256 threads, any grid of one dimension. */
template <bool a_turned, bool b_turned, int rows, int columns>
WEFT_DEVICE void multiply(const weft_gpu_product &task)
{
    WEFT_SHARED(float, a, DEEP *(rows + 1));
    WEFT_SHARED(float, b, DEEP *(columns + 1));
    const uint64_t down = (task.rows + rows - 1) / rows;
    const uint64_t across = (task.columns + columns - 1) / columns;

    for (uint64_t tile = blockIdx.x; tile < down * across; tile += gridDim.x) {
        const uint64_t row = tile / across * rows;
        const uint64_t column = tile % across * columns;
        float sum[rows / SIDE][columns / SIDE];

#pragma unroll
        for (int r = 0; r < rows / SIDE; r++)
#pragma unroll
            for (int c = 0; c < columns / SIDE; c++) {
                const uint64_t i = row + r * SIDE + threadIdx.x / SIDE;
                const uint64_t j = column + c * SIDE + threadIdx.x % SIDE;

                sum[r][c] = task.start && i < task.rows && j < task.columns
                                ? task.start[i * task.c_stride + j]
                                : 0;
            }
        for (uint64_t k = 0; k < task.depth; k += DEEP) {
            load_a<a_turned, rows>(task, row, k, a);
            load_b<b_turned, columns>(task, column, k, b);
            __syncthreads();
            add_products<rows, columns>(a, b, part_of(task.depth - k, DEEP), sum);
            __syncthreads();
        }
#pragma unroll
        for (int r = 0; r < rows / SIDE; r++)
#pragma unroll
            for (int c = 0; c < columns / SIDE; c++) {
                const uint64_t i = row + r * SIDE + threadIdx.x / SIDE;
                const uint64_t j = column + c * SIDE + threadIdx.x % SIDE;

                if (i < task.rows && j < task.columns)
                    task.c[i * task.c_stride + j] = sum[r][c];
            }
    }
}

#define OF_COLUMNS(rows, columns)                                                                  \
    WEFT_KERNEL __launch_bounds__(256)                                                             \
        weft_project_##columns(const __grid_constant__ weft_gpu_product task)                      \
    {                                                                                              \
        multiply<false, false, rows, columns>(task);                                               \
    }                                                                                              \
    WEFT_KERNEL __launch_bounds__(256)                                                             \
        weft_reconstruct_##columns(const __grid_constant__ weft_gpu_product task)                  \
    {                                                                                              \
        multiply<false, true, rows, columns>(task);                                                \
    }                                                                                              \
    WEFT_KERNEL __launch_bounds__(256)                                                             \
        weft_correlate_##columns(const __grid_constant__ weft_gpu_product task)                    \
    {                                                                                              \
        multiply<true, false, rows, columns>(task);                                                \
    }

OF_COLUMNS(32, 16)
OF_COLUMNS(64, 64)

/* ---- few components ---- */

/* Half a warp a slice: lane l adds products of elements l, l + 16, ... Blocks of whole warps, any
 * grid of one dimension. */
WEFT_KERNEL __launch_bounds__(512)
    weft_project_narrow(const float *values, uint64_t count, const float *mean, float share,
                        const float *basis, uint64_t slice, uint32_t components, float *out)
{
    const uint64_t slices = (count + slice - 1) / slice;
    const uint64_t all = (slices + 1) / 2 * 2; /* both halves of a warp */
    const unsigned lane = threadIdx.x % LANES;

    for (uint64_t m = weft_first() / LANES; m < all; m += weft_step() / LANES) {
        const uint64_t begin = m * slice;
        const uint64_t length = m < slices ? lesser(slice, count - begin) : 0;
        float sum[NARROW - 1] = {};

        for (uint64_t k = lane; k < length; k += LANES) {
            const float value = values[begin + k];
            const float x = mean ? centred(value, mean[begin + k], share) : value;

#pragma unroll
            for (unsigned j = 0; j < NARROW - 1; j++)
                if (j < components)
                    sum[j] = fmaf(x, basis[k * components + j], sum[j]);
        }
#pragma unroll
        for (unsigned j = 0; j < NARROW - 1; j++) {
            for (unsigned half = LANES / 2; half > 0; half /= 2)
                sum[j] += __shfl_down_sync(0xffffffffu, sum[j], half, LANES);
            if (lane == 0 && m < slices && j < components)
                out[m * components + j] = sum[j];
        }
    }
}

/* ---- squares ----
 *
 * The host adds squares to 32 numbers: element i of a run to number i modulo 32. A run is what its
 * loops read at once (ops/project.c): a piece of a slice, or whole slices that lie together. */

struct two_sums {
    double values;
    double centred;
};

WEFT_DEVICE void add_run(const weft_gpu_squares &task, uint64_t at, uint64_t count, two_sums *sums)
{
#pragma unroll 4
    for (uint64_t i = threadIdx.x % WEFT_WARP; i < count; i += WEFT_WARP) {
        const float value = task.values[at + i];
        const float x = task.mean ? centred(value, task.mean[at + i], task.share) : value;

        sums->values += (double)value * (double)value;
        sums->centred += (double)x * (double)x;
    }
}

/* Elements [k, k + depth) of `rows` slices from m on, of which `joined` are one run if these are
 * all. `even`: groups of nearly the same size. */
WEFT_DEVICE void add_rows(const weft_gpu_squares &task, uint64_t begin, uint64_t rows, uint64_t k,
                          uint64_t depth, bool even, two_sums *sums)
{
    const uint64_t groups = (rows + task.joined - 1) / task.joined;

    if (depth < task.slice) {
        for (uint64_t r = 0; r < rows; r++)
            add_run(task, begin + r * task.slice + k, depth, sums);
        return;
    }
    for (uint64_t g = 0; g < groups; g++) {
        const uint64_t first = even ? rows * g / groups : g * task.joined;
        const uint64_t next = even ? rows * (g + 1) / groups : lesser(rows, first + task.joined);

        add_run(task, begin + first * task.slice, (next - first) * task.slice, sums);
    }
}

/* A block of elements of all slices after the other. */
WEFT_DEVICE void add_wide(const weft_gpu_squares &task, uint64_t begin, uint64_t whole,
                          uint64_t rest, two_sums *sums)
{
    const uint64_t length = whole > 0 ? task.slice : rest;

    for (uint64_t k = 0; k < length; k += task.deep) {
        add_rows(task, begin, whole, k, lesser(task.deep, length - k), true, sums);
        if (k < rest)
            add_run(task, begin + whole * task.slice + k, lesser(task.deep, rest - k), sums);
    }
}

/* Some slices after the others. */
WEFT_DEVICE void add_narrow(const weft_gpu_squares &task, uint64_t begin, uint64_t whole,
                            uint64_t rest, two_sums *sums)
{
    for (uint64_t m = 0; m < whole; m += task.rows)
        for (uint64_t k = 0; k < task.slice; k += task.deep)
            add_rows(task, begin + m * task.slice, lesser(task.rows, whole - m), k,
                     lesser(task.deep, task.slice - k), false, sums);
    for (uint64_t k = 0; k < rest; k += task.deep)
        add_run(task, begin + whole * task.slice + k, lesser(task.deep, rest - k), sums);
}

WEFT_DEVICE double add_kept(const float *out, uint64_t stride, uint64_t rows, uint64_t columns)
{
    const uint64_t joined = stride == columns && rows > 0 ? rows : 1;
    double sum = 0;

    for (uint64_t r = 0; r < rows; r += joined)
#pragma unroll 4
        for (uint64_t i = threadIdx.x % WEFT_WARP; i < joined * columns; i += WEFT_WARP) {
            const double x = (double)out[r * stride + i];

            sum += x * x;
        }
    return sum;
}

WEFT_DEVICE double total(double sum)
{
    for (unsigned half = WEFT_WARP / 2; half > 0; half /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, half);
    return sum;
}

/* sums[3 part ...]: of the values, centred, and kept. A warp a part: blocks of whole warps, any
 * grid of one dimension. */
WEFT_KERNEL __launch_bounds__(512)
    weft_project_squares(const __grid_constant__ weft_gpu_squares task, double *sums)
{
    const uint64_t slices = (task.count + task.slice - 1) / task.slice;

    for (uint64_t part = weft_first() / WEFT_WARP; part < task.parts;
         part += weft_step() / WEFT_WARP) {
        const uint64_t m = part % task.down * task.tall;
        const uint64_t j = part / task.down * task.wide;
        const uint64_t begin = m * task.slice;
        const uint64_t rows = lesser(task.tall, slices - m);
        const uint64_t count = lesser(rows * task.slice, task.count - begin);
        const uint64_t whole = count / task.slice;
        two_sums own = {0, 0};

        if (j == 0 && task.narrow)
            add_narrow(task, begin, whole, count % task.slice, &own);
        else if (j == 0)
            add_wide(task, begin, whole, count % task.slice, &own);
        const double kept = total(add_kept(task.out + m * task.components + j, task.components,
                                           rows, lesser(task.wide, task.components - j)));
        const double values = total(own.values);
        const double less = total(own.centred);

        if (threadIdx.x % WEFT_WARP == 0) {
            sums[3 * part] = values;
            sums[3 * part + 1] = less;
            sums[3 * part + 2] = kept;
        }
    }
}

/* The first `down` parts have squares of values. Three threads. */
WEFT_KERNEL weft_project_add_squares(const double *sums, uint64_t down, uint64_t parts,
                                     double *squares)
{
    const unsigned which = threadIdx.x;
    const uint64_t count = which < 2 ? down : parts;
    double sum = squares[which];

#pragma unroll 8
    for (uint64_t part = 0; part < count; part++)
        sum += sums[3 * part + which];
    squares[which] = sum;
}
