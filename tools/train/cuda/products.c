/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that are products of matrices, as tools/train/products.c has them, by rows: X (rows x
 * in), W (out x in). To cuBLAS, which has matrices by columns, each is its own transpose:
 *
 *     Y = X W^T + b:   Y^T = W X^T        of_a: transposed, since W is W^T to it
 *     dW = dY^T X:     dW^T = X^T dY      of_b: transposed
 *     dX = dY W:       dX^T = W^T dY^T
 */
#include "tools/train/cuda/device.h"
#include "tools/train/cuda/shapes.h"

enum { AS_IT_IS = TRAIN_CUBLAS_AS_IT_IS, TRANSPOSED = TRAIN_CUBLAS_TRANSPOSED };

struct product {
    size_t rows, in, out;
};

static struct train_cuda *cuda_of(const struct operation *operation)
{
    return train_cuda_of(operation->backend);
}

static int multiply(const struct operation *operation, const struct product *is,
                    const float *matrix)
{
    struct train_cuda *cuda = cuda_of(operation);
    float *to = operation->to;
    uint64_t count = is->rows * is->out, columns = is->out;

    if (operation->is->bias)
        TRAIN_CUDA_LAUNCH(cuda, train_spread, count, &to, (void *)&operation->parameters[1],
                          &columns, &count);
    return train_cuda_product(cuda, TRANSPOSED, AS_IT_IS, is->out, is->rows, is->in,
                              operation->parameters[0], is->in, matrix, is->in,
                              operation->is->bias ? 1 : 0, to, is->out);
}

static int derive_parameters(const struct operation *operation, const struct product *is,
                             const float *matrix)
{
    struct train_cuda *cuda = cuda_of(operation);
    float *biases = operation->gradients[1];
    uint64_t rows = is->rows, columns = is->out;
    int status =
        train_cuda_product(cuda, AS_IT_IS, TRANSPOSED, is->in, is->out, is->rows, matrix, is->in,
                           operation->to_delta, is->out, 0, operation->gradients[0], is->in);

    if (!operation->is->bias)
        return status;
    /* A block for as many columns as a warp has lanes. */
    return TRAIN_CUDA_LAUNCH(cuda, train_sum_columns, (columns + 31) / 32 * TRAIN_CUDA_THREADS,
                             &biases, (void *)&operation->to_delta, &rows, &columns);
}

static int derive_matrix(const struct operation *operation, const struct product *is, float *below,
                         int adds)
{
    return train_cuda_product(cuda_of(operation), AS_IT_IS, AS_IT_IS, is->in, is->rows, is->out,
                              operation->parameters[0], is->in, operation->to_delta, is->out,
                              adds ? 1 : 0, below, is->in);
}

/* ---- dense ---- */

static struct product dense_product(const struct operation *operation, size_t batch)
{
    return (struct product){batch, net_size(&operation->in), net_size(&operation->out)};
}

static int dense_forward(const struct operation *operation, size_t batch)
{
    struct product is = dense_product(operation, batch);

    return multiply(operation, &is, operation->from);
}

static int dense_backward(const struct operation *operation, size_t batch)
{
    struct product is = dense_product(operation, batch);
    int status = derive_parameters(operation, &is, operation->from);

    return operation->from_delta
               ? derive_matrix(operation, &is, operation->from_delta, operation->adds)
               : status;
}

const struct operation_passes train_cuda_dense = {dense_forward, dense_backward};

/* ---- convolution ---- */

static struct train_windows windows_of(const struct operation *operation)
{
    return (struct train_windows){
        .image = {(uint32_t)operation->in.rows, (uint32_t)operation->in.columns,
                  (uint32_t)operation->in.channels},
        .rows = (uint32_t)operation->out.rows,
        .columns = (uint32_t)operation->out.columns,
        .side = (uint32_t)operation->is->window,
        .stride = (uint32_t)operation->is->stride,
    };
}

static struct product windows_product(const struct operation *operation, size_t batch)
{
    size_t window = operation->is->window;

    return (struct product){batch * operation->out.rows * operation->out.columns,
                            window * window * operation->in.channels, operation->out.channels};
}

static void gather(const struct operation *operation, const struct product *is)
{
    struct train_windows windows = windows_of(operation);
    uint64_t count = is->rows * is->in;

    TRAIN_CUDA_LAUNCH(cuda_of(operation), train_gather, count, (void *)&operation->scratch,
                      (void *)&operation->from, &windows, &count);
}

static int convolution_forward(const struct operation *operation, size_t batch)
{
    struct product is = windows_product(operation, batch);

    gather(operation, &is);
    return multiply(operation, &is, operation->scratch);
}

static int convolution_backward(const struct operation *operation, size_t batch)
{
    struct product is = windows_product(operation, batch);
    struct train_windows windows = windows_of(operation);
    uint64_t count = batch * net_size(&operation->in);
    int adds = operation->adds;

    gather(operation, &is);
    int status = derive_parameters(operation, &is, operation->scratch);
    if (!operation->from_delta)
        return status;
    derive_matrix(operation, &is, operation->scratch, 0);
    return TRAIN_CUDA_LAUNCH(cuda_of(operation), train_scatter, count,
                             (void *)&operation->from_delta, (void *)&operation->scratch, &windows,
                             &adds, &count);
}

const struct operation_passes train_cuda_convolution = {convolution_forward, convolution_backward};
