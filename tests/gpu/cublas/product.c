/* SPDX-License-Identifier: BSD-3-Clause
 *
 * C = alpha op(A) op(B) + beta C, all of it by columns. */
#include "inside.h"

#include <stdlib.h>

enum { AS_IT_IS, TRANSPOSED, PARTS = 8 };

/* A matrix on the device: `rows` of each column are used, columns are `stride` apart. */
struct matrix {
    unsigned long long at;
    int rows, columns, stride;
    const float *reached; /* where the stand-in has it */
};

struct product {
    struct matrix a, b, c;
    int of_a, of_b, k, device;
    float alpha, beta;
};

static size_t bytes_of(const struct matrix *matrix)
{
    return ((size_t)(matrix->columns - 1) * (size_t)matrix->stride + (size_t)matrix->rows) *
           sizeof(float);
}

static bool reach(struct matrix *matrix, int device)
{
    matrix->reached = standin_reach(device, matrix->at, bytes_of(matrix));
    return matrix->reached;
}

/* ---- what a stream does ---- */

static float element(const struct matrix *matrix, int transposed, int row, int column)
{
    return transposed ? matrix->reached[(size_t)row * (size_t)matrix->stride + (size_t)column]
                      : matrix->reached[(size_t)column * (size_t)matrix->stride + (size_t)row];
}

/* Several sums at a time, and then these: as devices do, not as a loop does. */
static float sum_of(const struct product *is, int row, int column)
{
    float parts[PARTS] = {0};

    for (int i = 0; i < is->k; i++)
        parts[i % PARTS] +=
            element(&is->a, is->of_a, row, i) * element(&is->b, is->of_b, i, column);
    for (int by = PARTS / 2; by > 0; by /= 2)
        for (int i = 0; i < by; i++)
            parts[i] += parts[i + by];
    return parts[0];
}

static int compute(void *data, void *stream)
{
    struct product *is = data;
    int result = CUDA_ERROR_ILLEGAL_ADDRESS;

    /* What is freed by now is found here. */
    if (!standin_failed(stream) && reach(&is->a, is->device) && reach(&is->b, is->device) &&
        reach(&is->c, is->device)) {
        float *c = (float *)(uintptr_t)is->c.reached;

        for (int column = 0; column < is->c.columns; column++)
            for (int row = 0; row < is->c.rows; row++) {
                float *to = c + (size_t)column * (size_t)is->c.stride + row;
                float sum = is->alpha * sum_of(is, row, column);

                *to = is->beta == 0.0f ? sum : sum + is->beta * *to;
            }
        cublas__count_product();
        result = CUDA_SUCCESS;
    }
    free(is);
    return standin_failed(stream) ? CUDA_SUCCESS : result;
}

/* ---- the call ---- */

/* Of the device, or of the host and not to be looked into. */
static bool is_of_device(const void *pointer)
{
    CUmemorytype type = 0;

    return !cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  (CUdeviceptr)(uintptr_t)pointer) &&
           type == CU_MEMORYTYPE_DEVICE;
}

static int check_matrix(struct matrix *matrix, const char *name, int device)
{
    if (matrix->stride < (matrix->rows > 1 ? matrix->rows : 1))
        return cublas__misuse(CUBLAS_INVALID_VALUE, "ld%s is %d, less than its %d rows", name,
                              matrix->stride, matrix->rows);
    if (matrix->at % sizeof(float))
        return cublas__misuse(CUBLAS_INVALID_VALUE, "%s begins at %#llx", name, matrix->at);
    if (!reach(matrix, device))
        return cublas__misuse(CUBLAS_INVALID_VALUE, "%s at %#llx is not in one piece of memory",
                              name, matrix->at);
    return CUBLAS_OK;
}

static bool overlap(const struct matrix *a, const struct matrix *b)
{
    return a->at < b->at + bytes_of(b) && b->at < a->at + bytes_of(a);
}

static int check_memory(struct product *is)
{
    int result = check_matrix(&is->a, "a", is->device);

    if (!result)
        result = check_matrix(&is->b, "b", is->device);
    if (!result)
        result = check_matrix(&is->c, "c", is->device);
    if (!result && (overlap(&is->a, &is->c) || overlap(&is->b, &is->c)))
        result = cublas__misuse(CUBLAS_INVALID_VALUE, "c overlaps a or b");
    return result;
}

static int check_factors(const float *alpha, const float *beta)
{
    if (!alpha || !beta)
        return cublas__misuse(CUBLAS_INVALID_VALUE, "NULL for alpha or beta");
    if (is_of_device(alpha) || is_of_device(beta))
        return cublas__misuse(CUBLAS_INVALID_VALUE,
                              "alpha or beta is memory of a device, and the pointer mode host");
    return CUBLAS_OK;
}

static int issue(struct cublas_handle *handle, const struct product *is)
{
    struct product *copy = malloc(sizeof *copy);

    if (!copy)
        return CUBLAS_ALLOC_FAILED;
    *copy = *is;
    if (!standin_foreign(handle->stream, compute, copy))
        return CUBLAS_OK;
    free(copy);
    return CUBLAS_EXECUTION_FAILED;
}

CUBLAS_EXPORT int cublasSgemm_v2(void *handle, int of_a, int of_b, int m, int n, int k,
                                 const float *alpha, const float *a, int lda, const float *b,
                                 int ldb, const float *beta, float *c, int ldc)
{
    struct cublas_handle *found;
    int result = cublas__enter(__func__, handle, false, &found);

    if (!result && (of_a < AS_IT_IS || of_a > TRANSPOSED || of_b < AS_IT_IS || of_b > TRANSPOSED))
        result = cublas__misuse(CUBLAS_INVALID_VALUE, "operations %d and %d", of_a, of_b);
    if (!result && (m < 1 || n < 1 || k < 1))
        result =
            cublas__misuse(CUBLAS_INVALID_VALUE, "a product of %d x %d by %d x %d", m, k, k, n);
    if (!result)
        result = check_factors(alpha, beta);
    if (result)
        return cublas__leave(found, result);
    struct product is = {.a = {(uintptr_t)a, of_a ? k : m, of_a ? m : k, lda, NULL},
                         .b = {(uintptr_t)b, of_b ? n : k, of_b ? k : n, ldb, NULL},
                         .c = {(uintptr_t)c, m, n, ldc, NULL},
                         .of_a = of_a,
                         .of_b = of_b,
                         .k = k,
                         .device = (int)found->device,
                         .alpha = *alpha,
                         .beta = *beta};
    result = check_memory(&is);
    if (!result)
        result = issue(found, &is);
    return cublas__leave(found, result);
}
