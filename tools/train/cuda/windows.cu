/* SPDX-License-Identifier: BSD-3-Clause */
/* What is beside the products of matrices: the windows of a convolution as rows of a matrix, and
 * back, and biases. */
#include "tools/train/cuda/kernel.cuh"

/* Each window is a row of the matrix: its pixels line by line, channels innermost; 0 beyond the
 * border of the image. `count` numbers of the matrix. */
TRAIN_KERNEL train_gather(float *matrix, const float *images,
                          const __grid_constant__ train_windows windows, uint64_t count)
{
    const train_image image = windows.image;
    const int64_t border = windows.side / 2;

    for (TRAIN_EACH(i, count)) {
        uint64_t rest = i / image.channels;
        const int64_t right = (int64_t)(rest % windows.side) - border;
        rest /= windows.side;
        const int64_t down = (int64_t)(rest % windows.side) - border;
        rest /= windows.side;
        const int64_t x = (int64_t)(rest % windows.columns) * windows.stride + right;
        rest /= windows.columns;
        const int64_t y = (int64_t)(rest % windows.rows) * windows.stride + down;
        const uint64_t first = rest / windows.rows * image.rows; /* row of all images */
        const bool inside = x >= 0 && x < image.columns && y >= 0 && y < image.rows;

        matrix[i] =
            inside ? images[((first + (uint64_t)y) * image.columns + (uint64_t)x) * image.channels +
                            i % image.channels]
                   : 0;
    }
}

/* Of a line of the image: the windows from `first` to before `end` hold it. */
struct span {
    uint32_t first, end;
};

WEFT_DEVICE span span_of(uint32_t line, uint32_t lines, uint32_t side, uint32_t stride)
{
    const uint32_t shifted = line + side / 2; /* in the window that begins at 0, at this place */
    const uint32_t last = shifted / stride;
    const uint32_t before = shifted < side ? 0 : (shifted - side) / stride + 1;

    return {before, last < lines ? last + 1 : lines};
}

/* The windows added up in the images that they were gathered from; in the order of the windows.
 * `count` numbers of the images. `adds`: to what is there. */
TRAIN_KERNEL train_scatter(float *images, const float *matrix,
                           const __grid_constant__ train_windows windows, int adds, uint64_t count)
{
    const train_image image = windows.image;
    const uint32_t side = windows.side;

    for (TRAIN_EACH(i, count)) {
        const uint64_t pixel = i / image.channels;
        const uint32_t x = (uint32_t)(pixel % image.columns);
        const uint32_t y = (uint32_t)(pixel / image.columns % image.rows);
        const uint64_t first = pixel / image.columns / image.rows * windows.rows;
        const span across = span_of(x, windows.columns, side, windows.stride);
        const span down = span_of(y, windows.rows, side, windows.stride);
        float sum = adds ? images[i] : 0;

        for (uint32_t row = down.first; row < down.end; row++) {
            for (uint32_t column = across.first; column < across.end; column++) {
                const uint64_t window = (first + row) * windows.columns + column;
                const uint32_t line = y + side / 2 - row * windows.stride;
                const uint32_t place = x + side / 2 - column * windows.stride;

                sum += matrix[((window * side + line) * side + place) * image.channels +
                              i % image.channels];
            }
        }
        images[i] = sum;
    }
}

/* Every row of a matrix becomes `row`. `count` numbers of the matrix. */
TRAIN_KERNEL train_spread(float *matrix, const float *row, uint64_t columns, uint64_t count)
{
    for (TRAIN_EACH(i, count))
        matrix[i] = row[i % columns];
}

enum { ACROSS = WEFT_WARP, DOWN = TRAIN_CUDA_THREADS / ACROSS };

/* The sums of the columns of a matrix: a block has as many columns as a warp has lanes, each warp
 * every eighth row, and one warp adds up in the order of warps. */
TRAIN_KERNEL train_sum_columns(float *sums, const float *matrix, uint64_t rows, uint64_t columns)
{
    WEFT_SHARED(float, parts, TRAIN_CUDA_THREADS);
    const unsigned lane = threadIdx.x % ACROSS;

    for (uint64_t first = (uint64_t)blockIdx.x * ACROSS; first < columns;
         first += (uint64_t)gridDim.x * ACROSS) {
        const uint64_t column = first + lane;
        float sum = 0;

        for (uint64_t row = threadIdx.x / ACROSS; row < rows && column < columns; row += DOWN)
            sum += matrix[row * columns + column];
        parts[threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.x < ACROSS && column < columns) {
            for (unsigned warp = 1; warp < DOWN; warp++)
                sum += parts[warp * ACROSS + lane];
            sums[column] = sum;
        }
        __syncthreads();
    }
}
