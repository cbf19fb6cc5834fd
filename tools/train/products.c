/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that are products of matrices: X (rows x in) has a row for each image, or for each
 * window of a convolution (im2col).
 *
 *     Y = X W^T + b,  dW = dY^T X,  db = column sums of dY,  dX = dY W
 */
#include "tools/train/operations.h"

#include <cblas.h>
#include <string.h>
#include <weft/status.h>

#ifdef WEFT_TRAIN_DOUBLE
#    define train_gemm cblas_dgemm
#else
#    define train_gemm cblas_sgemm
#endif

struct product {
    size_t rows, in, out;
};

static void multiply(const struct operation *operation, const struct product *is,
                     const train_real_t *matrix)
{
    train_real_t *to = operation->to;

    for (size_t row = 0; row < is->rows && operation->is->bias; row++)
        memcpy(to + row * is->out, operation->parameters[1], is->out * sizeof *to);
    train_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)is->rows, (int)is->out, (int)is->in, 1,
               matrix, (int)is->in, operation->parameters[0], (int)is->in,
               operation->is->bias ? 1 : 0, to, (int)is->out);
}

static void derive_parameters(const struct operation *operation, const struct product *is,
                              const train_real_t *matrix)
{
    const train_real_t *delta = operation->to_delta;
    train_real_t *biases = operation->gradients[1];

    train_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)is->out, (int)is->in, (int)is->rows, 1,
               delta, (int)is->out, matrix, (int)is->in, 0, operation->gradients[0], (int)is->in);
    if (!operation->is->bias)
        return;
    memset(biases, 0, is->out * sizeof *biases);
    for (size_t row = 0; row < is->rows; row++)
        for (size_t i = 0; i < is->out; i++)
            biases[i] += delta[row * is->out + i];
}

static void derive_matrix(const struct operation *operation, const struct product *is,
                          train_real_t *below, int adds)
{
    train_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)is->rows, (int)is->in, (int)is->out,
               1, operation->to_delta, (int)is->out, operation->parameters[0], (int)is->in,
               adds ? 1 : 0, below, (int)is->in);
}

/* ---- dense ---- */

static struct product dense_product(const struct operation *operation, size_t batch)
{
    return (struct product){batch, net_size(&operation->in), net_size(&operation->out)};
}

static int dense_forward(const struct operation *operation, size_t batch)
{
    struct product is = dense_product(operation, batch);

    multiply(operation, &is, operation->from);
    return WEFT_OK;
}

static int dense_backward(const struct operation *operation, size_t batch)
{
    struct product is = dense_product(operation, batch);

    derive_parameters(operation, &is, operation->from);
    if (operation->from_delta)
        derive_matrix(operation, &is, operation->from_delta, operation->adds);
    return WEFT_OK;
}

static double dense_work(const struct operation *operation)
{
    struct product is = dense_product(operation, 1);

    return 2.0 * (double)is.in * (double)is.out;
}

const struct operation_kind operation_dense = {
    .cpu = {dense_forward, dense_backward},
    .work = dense_work,
};

/* ---- convolution ---- */

static struct product windows_product(const struct operation *operation, size_t batch)
{
    size_t window = operation->is->window;

    return (struct product){batch * operation->out.rows * operation->out.columns,
                            window * window * operation->in.channels, operation->out.channels};
}

/* A row of a window: `skip` of its numbers are beyond the border on the left, then `count` are
 * those of the image from `at` on. */
struct strip {
    size_t skip, count, at;
};

static struct strip find_strip(const struct operation *operation, size_t row, size_t column,
                               size_t line)
{
    const struct net_shape *in = &operation->in;
    size_t window = operation->is->window;
    size_t border = window / 2;
    /* Shifted by the border, so that nothing is negative. */
    size_t y = row * operation->is->stride + line;
    size_t x = column * operation->is->stride;
    size_t skip = x < border ? border - x : 0;
    size_t end = x + window > in->columns + border ? in->columns + border - x : window;

    if (y < border || y >= in->rows + border)
        return (struct strip){.count = 0};
    return (struct strip){skip * in->channels, (end - skip) * in->channels,
                          ((y - border) * in->columns + x + skip - border) * in->channels};
}

/* The windows of an image, a row of the matrix each. */
static void gather(const struct operation *operation, const train_real_t *image,
                   train_real_t *matrix)
{
    size_t window = operation->is->window;
    size_t width = window * operation->in.channels;

    for (size_t row = 0; row < operation->out.rows; row++) {
        for (size_t column = 0; column < operation->out.columns; column++) {
            for (size_t line = 0; line < window; line++, matrix += width) {
                struct strip strip = find_strip(operation, row, column, line);
                if (strip.count < width)
                    memset(matrix, 0, width * sizeof *matrix);
                memcpy(matrix + strip.skip, image + strip.at, strip.count * sizeof *matrix);
            }
        }
    }
}

/* Adds windows to the image that they were gathered from. */
static void scatter(const struct operation *operation, const train_real_t *restrict matrix,
                    train_real_t *restrict image)
{
    size_t window = operation->is->window;
    size_t width = window * operation->in.channels;

    for (size_t row = 0; row < operation->out.rows; row++) {
        for (size_t column = 0; column < operation->out.columns; column++) {
            for (size_t line = 0; line < window; line++, matrix += width) {
                struct strip strip = find_strip(operation, row, column, line);
                for (size_t i = 0; i < strip.count; i++)
                    image[strip.at + i] += matrix[strip.skip + i];
            }
        }
    }
}

static size_t windows_size(const struct operation *operation)
{
    struct product is = windows_product(operation, 1);

    return is.rows * is.in;
}

static void gather_all(const struct operation *operation, size_t batch)
{
    for (size_t i = 0; i < batch; i++)
        gather(operation, operation->from + i * net_size(&operation->in),
               operation->scratch + i * windows_size(operation));
}

static int convolution_forward(const struct operation *operation, size_t batch)
{
    struct product is = windows_product(operation, batch);

    gather_all(operation, batch);
    multiply(operation, &is, operation->scratch);
    return WEFT_OK;
}

static int convolution_backward(const struct operation *operation, size_t batch)
{
    struct product is = windows_product(operation, batch);
    size_t size = net_size(&operation->in);

    gather_all(operation, batch);
    derive_parameters(operation, &is, operation->scratch);
    if (!operation->from_delta)
        return WEFT_OK;
    derive_matrix(operation, &is, operation->scratch, 0);
    if (!operation->adds)
        memset(operation->from_delta, 0, batch * size * sizeof *operation->from_delta);
    for (size_t i = 0; i < batch; i++)
        scatter(operation, operation->scratch + i * windows_size(operation),
                operation->from_delta + i * size);
    return WEFT_OK;
}

static double convolution_work(const struct operation *operation)
{
    struct product is = windows_product(operation, 1);

    return 2.0 * (double)is.rows * (double)is.in * (double)is.out;
}

const struct operation_kind operation_convolution = {
    .cpu = {convolution_forward, convolution_backward},
    .work = convolution_work,
    .scratch = windows_size,
};
