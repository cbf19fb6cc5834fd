/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The stand-in of cuBLAS: that it computes what cuBLAS does, on a stream, and finds what it is to
 * find. */
#include "cublas/cublas_standin.h"
#include "standin_test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct standin_counts counts;
struct standin_counts *standin_counts = &counts;

static CUcontext context;
static CUstream stream;
static void *handle;

/* Refused with a status, and counted. */
#define CUBLAS_MISUSE(call, code)                                                                  \
    do {                                                                                           \
        unsigned misuse_before = standin_cublas_report(NULL, 0);                                   \
        EXPECT(call, code);                                                                        \
        CHECK(standin_cublas_report(NULL, 0) == misuse_before + 1);                                \
    } while (0)

enum { INVALID_VALUE = 7 };

/* ---- products ---- */

struct shape {
    int m, n, k, more; /* strides are so much larger than they must be */
    float alpha, beta;
};

struct matrix {
    int rows, columns, stride;
    float *host;
    CUdeviceptr at;
};

static struct matrix make_matrix(int rows, int columns, int more)
{
    struct matrix made = {rows, columns, rows + more, NULL, 0};
    size_t count = (size_t)made.stride * (size_t)columns;

    made.host = calloc(count, sizeof *made.host);
    for (size_t i = 0; i < count; i++)
        made.host[i] = (float)((i * 7 + (size_t)rows) % 13) - 6.0f + 1.0f / (float)(i + 3);
    OK(cuMemAlloc(&made.at, count * sizeof *made.host));
    OK(cuMemcpyHtoD(made.at, made.host, count * sizeof *made.host));
    return made;
}

static void free_matrix(const struct matrix *matrix)
{
    OK(cuMemFree(matrix->at));
    free(matrix->host);
}

static float at(const struct matrix *matrix, int transposed, int row, int column)
{
    return transposed ? matrix->host[row * matrix->stride + column]
                      : matrix->host[column * matrix->stride + row];
}

/* An element, in double precision; the sum of magnitudes says how far off a sum in f32 may be. */
static void check_element(const struct shape *shape, const struct matrix *a, const struct matrix *b,
                          const struct matrix *c, const float *result, int ta, int tb, int row,
                          int column)
{
    double sum = 0, magnitude = 0;

    for (int i = 0; i < shape->k; i++) {
        double product = (double)at(a, ta, row, i) * (double)at(b, tb, i, column);
        sum += product;
        magnitude += fabs(product);
    }
    sum = (double)shape->alpha * sum;
    magnitude *= fabs((double)shape->alpha);
    if (shape->beta != 0.0f) {
        sum += (double)shape->beta * (double)at(c, 0, row, column);
        magnitude += fabs((double)shape->beta * (double)at(c, 0, row, column));
    }
    CHECK(fabs((double)result[column * c->stride + row] - sum) <=
          (shape->k + 4) * (double)FLT_EPSILON * magnitude);
}

static void multiply(const struct shape *shape, int ta, int tb)
{
    struct matrix a = make_matrix(ta ? shape->k : shape->m, ta ? shape->m : shape->k, shape->more);
    struct matrix b = make_matrix(tb ? shape->n : shape->k, tb ? shape->k : shape->n, shape->more);
    struct matrix c = make_matrix(shape->m, shape->n, shape->more);
    size_t bytes = (size_t)c.stride * (size_t)c.columns * sizeof(float);
    float *result = calloc(1, bytes);
    float alpha = shape->alpha, beta = shape->beta;

    if (beta == 0.0f) /* then it is not read */
        OK(cuMemsetD8Async(c.at, 0xff, bytes, stream));
    EXPECT(cublasSgemm_v2(handle, ta, tb, shape->m, shape->n, shape->k, &alpha,
                          (float *)(uintptr_t)a.at, a.stride, (float *)(uintptr_t)b.at, b.stride,
                          &beta, (float *)(uintptr_t)c.at, c.stride),
           0);
    alpha = beta = NAN; /* they have been read */
    OK(cuMemcpyDtoHAsync(result, c.at, bytes, stream));
    OK(cuStreamSynchronize(stream));
    for (int column = 0; column < shape->n; column++)
        for (int row = 0; row < shape->m; row++)
            check_element(shape, &a, &b, &c, result, ta, tb, row, column);
    for (int row = shape->m; row < c.stride && shape->beta != 0.0f; row++)
        CHECK(result[row] == c.host[row]); /* what is between columns stays */
    free(result);
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&c);
}

static void products(void)
{
    static const struct shape shapes[] = {
        {1, 1, 1, 0, 1, 0}, {3, 5, 7, 0, 1, 1}, {4, 4, 16, 2, 2, 0}, {17, 2, 33, 1, -1, 0.5f}};
    unsigned long before = standin_cublas_products();

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int way = 0; way < 4; way++)
            multiply(&shapes[i], way & 1, way >> 1);
    CHECK(standin_cublas_products() == before + 16);
}

/* Not before what is on the stream before it. */
static void order(void)
{
    struct matrix a = make_matrix(4, 4, 0), b = make_matrix(4, 4, 0), c = make_matrix(4, 4, 0);
    const float one = 1, none = 0;
    unsigned long before = standin_cublas_products();
    uint32_t *word;

    OK(cuMemHostAlloc((void **)&word, 64, 0));
    *word = 0;
    OK(cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT(cublasSgemm_v2(handle, 0, 0, 4, 4, 4, &one, (float *)(uintptr_t)a.at, 4,
                          (float *)(uintptr_t)b.at, 4, &none, (float *)(uintptr_t)c.at, 4),
           0);
    EXPECT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CHECK(standin_cublas_products() == before);
    atomic_store((_Atomic uint32_t *)word, 1);
    OK(cuStreamSynchronize(stream));
    CHECK(standin_cublas_products() == before + 1);
    OK(cuMemFreeHost(word));
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&c);
}

/* ---- what is wrong ---- */

static void wrong(void)
{
    struct matrix a = make_matrix(4, 6, 0), b = make_matrix(6, 5, 0), c = make_matrix(4, 5, 0);
    float *pa = (float *)(uintptr_t)a.at, *pb = (float *)(uintptr_t)b.at,
          *pc = (float *)(uintptr_t)c.at;
    const float one = 1, none = 0;
    void *other = NULL;

#define SGEMM(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, c, ldc)                              \
    cublasSgemm_v2(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, &none, c, ldc)
    EXPECT(SGEMM(handle, 0, 0, 4, 5, 6, &one, pa, 4, pb, 6, pc, 4), 0);
    CUBLAS_MISUSE(SGEMM(&other, 0, 0, 4, 5, 6, &one, pa, 4, pb, 6, pc, 4), 1);
    CUBLAS_MISUSE(SGEMM(handle, 2, 0, 4, 5, 6, &one, pa, 4, pb, 6, pc, 4), INVALID_VALUE);
    CUBLAS_MISUSE(SGEMM(handle, 0, 0, 4, 5, 0, &one, pa, 4, pb, 6, pc, 4), INVALID_VALUE);
    CUBLAS_MISUSE(SGEMM(handle, 0, 0, 4, 5, 6, &one, pa, 3, pb, 6, pc, 4), INVALID_VALUE);
    CUBLAS_MISUSE(SGEMM(handle, 0, 0, 4, 5, 6, &one, pa, 4, pb, 5, pc, 4), INVALID_VALUE);
    CUBLAS_MISUSE(SGEMM(handle, 0, 0, 4, 5, 6, &one, pa, 4, pb, 6, pc, 3), INVALID_VALUE);
    /* op(A) is transposed: its stride is that of what lies there. */
    CUBLAS_MISUSE(SGEMM(handle, 1, 0, 4, 5, 6, &one, pa, 4, pb, 6, pc, 4), INVALID_VALUE);
    CUBLAS_MISUSE(SGEMM(handle, 0, 0, 4, 5, 6, NULL, pa, 4, pb, 6, pc, 4), INVALID_VALUE);
    CUBLAS_MISUSE(SGEMM(handle, 0, 0, 4, 5, 6, pa, pa, 4, pb, 6, pc, 4), INVALID_VALUE);
    CUBLAS_MISUSE(SGEMM(handle, 0, 0, 4, 5, 6, &one, a.host, 4, pb, 6, pc, 4), INVALID_VALUE);
    CUBLAS_MISUSE(SGEMM(handle, 0, 0, 4, 5, 6, &one, pa, 4, pb, 6, c.host, 4), INVALID_VALUE);
    CUBLAS_MISUSE(SGEMM(handle, 0, 0, 4, 5, 6, &one, pa, 4, pb, 6, pc + 1, 4), INVALID_VALUE);
    CUBLAS_MISUSE(SGEMM(handle, 0, 0, 4, 4, 4, &one, pa, 4, pb, 6, pa, 4), INVALID_VALUE);
    OK(cuCtxSetCurrent(NULL));
    CUBLAS_MISUSE(SGEMM(handle, 0, 0, 4, 5, 6, &one, pa, 4, pb, 6, pc, 4), INVALID_VALUE);
    CUBLAS_MISUSE(cublasCreate_v2(&other), 1);
    OK(cuCtxSetCurrent(context));
    EXPECT(cublasCreate_v2(&other), 0);
    CHECK(standin_cublas_leaks() == 2);
    EXPECT(cublasDestroy_v2(other), 0);
    CUBLAS_MISUSE(cublasDestroy_v2(other), 1);
    CUBLAS_MISUSE(cublasSetStream_v2(other, stream), 1);
    OK(cuStreamSynchronize(stream));
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&c);
    standin_cublas_forget();
    standin_forget(); /* memory that was not reached */
}

static void other_device(void)
{
    CUcontext there;
    CUstream far;

    OK(cuDevicePrimaryCtxRetain(&there, 1));
    OK(cuCtxSetCurrent(there));
    OK(cuStreamCreate(&far, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSetCurrent(context));
    CUBLAS_MISUSE(cublasSetStream_v2(handle, far), INVALID_VALUE);
    OK(cuCtxSetCurrent(there));
    CUBLAS_MISUSE(cublasSetStream_v2(handle, stream), INVALID_VALUE); /* the handle's is not */
    OK(cuStreamDestroy(far));
    OK(cuCtxSetCurrent(context));
    OK(cuDevicePrimaryCtxRelease(1));
    standin_cublas_forget();
}

/* A call that fails, and an operation of the stream that ends the context. */
static void failing(void)
{
    struct matrix a = make_matrix(4, 4, 0), b = make_matrix(4, 4, 0), c = make_matrix(4, 4, 0);
    const float one = 1, none = 0;
    unsigned before;

    standin_cublas_fail_at(1, 13);
    EXPECT(cublasSgemm_v2(handle, 0, 0, 4, 4, 4, &one, (float *)(uintptr_t)a.at, 4,
                          (float *)(uintptr_t)b.at, 4, &none, (float *)(uintptr_t)c.at, 4),
           13);
    before = standin_report(NULL, 0);
    standin_fault_at(1, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(cublasSgemm_v2(handle, 0, 0, 4, 4, 4, &one, (float *)(uintptr_t)a.at, 4,
                          (float *)(uintptr_t)b.at, 4, &none, (float *)(uintptr_t)c.at, 4),
           0);
    EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(cublasSgemm_v2(handle, 0, 0, 4, 4, 4, &one, (float *)(uintptr_t)a.at, 4,
                          (float *)(uintptr_t)b.at, 4, &none, (float *)(uintptr_t)c.at, 4),
           13);
    CHECK(standin_report(NULL, 0) == before);
    cuMemFree(a.at);
    cuMemFree(b.at);
    cuMemFree(c.at);
    free(a.host);
    free(b.host);
    free(c.host);
}

int main(void)
{
    char text[4096];

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT(cublasCreate_v2(&handle), 0);
    EXPECT(cublasSetStream_v2(handle, stream), 0);
    products();
    order();
    EXPECT(standin_cublas_report(text, sizeof text), 0);
    EXPECT(standin_report(text, sizeof text), 0);
    wrong();
    other_device();
    failing();
    cublasDestroy_v2(handle);
    cuStreamDestroy(stream);
    cuCtxSetCurrent(NULL);
    cuDevicePrimaryCtxRelease(0);
    EXPECT(standin_cublas_leaks(), 0);
    EXPECT(standin_leaks(text, sizeof text), 0);
    printf("%u checks, %u failed\n", counts.checks, counts.failures);
    return counts.failures != 0;
}
