/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver of CUDA and cuBLAS, loaded when a device is asked for: the module is linked with
 * neither. Calls go through one table. Those of the driver have the names and the types of cuda.h;
 * those of cuBLAS, whose header is not everywhere where nvcc is, are declared here (a test compares
 * them with cublas_v2.h where it is).
 */
#ifndef WEFT_TOOLS_TRAIN_CUDA_LIBRARIES_H
#define WEFT_TOOLS_TRAIN_CUDA_LIBRARIES_H

#include <cuda.h>

#include <weft/status.h>

/* What is called; without one of them a driver is too old. */
#define TRAIN_CUDA_FUNCTIONS(X)                                                                    \
    X(cuInit)                                                                                      \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)                                                                            \
    X(cuDeviceGetCount)                                                                            \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxSetCurrent)                                                                             \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleUnload)                                                                              \
    X(cuModuleGetFunction)                                                                         \
    X(cuLaunchKernel)                                                                              \
    X(cuMemAlloc)                                                                                  \
    X(cuMemFree)                                                                                   \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemcpyHtoDAsync)                                                                           \
    X(cuMemcpyDtoHAsync)                                                                           \
    X(cuMemcpyDtoDAsync)                                                                           \
    X(cuMemsetD8Async)                                                                             \
    X(cuStreamCreate)                                                                              \
    X(cuStreamDestroy)                                                                             \
    X(cuStreamQuery)                                                                               \
    X(cuStreamSynchronize)                                                                         \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy)                                                                              \
    X(cuEventRecord)                                                                               \
    X(cuEventSynchronize)                                                                          \
    X(cuEventElapsedTime)

/* NULL in drivers that have none of them. */
#if CUDA_VERSION >= 12040
#    define TRAIN_CUDA_LATER_FUNCTIONS(X) X(cuFuncLoad)
#else
#    define TRAIN_CUDA_LATER_FUNCTIONS(X)
#endif

/* cuBLAS: matrices by columns. Its enums, as int. */
enum { TRAIN_CUBLAS_AS_IT_IS, TRAIN_CUBLAS_TRANSPOSED };

typedef int (*train_cublas_create)(void **handle);
typedef int (*train_cublas_destroy)(void *handle);
typedef int (*train_cublas_set_stream)(void *handle, CUstream stream);
/* C (m x n) = alpha op(A) op(B) + beta C, with op(A) m x k and op(B) k x n. With beta 0 C is not
 * read. */
typedef int (*train_cublas_sgemm)(void *handle, int of_a, int of_b, int m, int n, int k,
                                  const float *alpha, const float *a, int lda, const float *b,
                                  int ldb, const float *beta, float *c, int ldc);

/* The members and the names that the library has for them. */
#define TRAIN_CUBLAS_FUNCTIONS(X)                                                                  \
    X(create, cublasCreate_v2)                                                                     \
    X(destroy, cublasDestroy_v2)                                                                   \
    X(set_stream, cublasSetStream_v2)                                                              \
    X(sgemm, cublasSgemm_v2)

struct train_cuda_libraries {
#define TRAIN_CUDA_MEMBER(name) __typeof__(name) *name;
    TRAIN_CUDA_FUNCTIONS(TRAIN_CUDA_MEMBER)
    TRAIN_CUDA_LATER_FUNCTIONS(TRAIN_CUDA_MEMBER)
#undef TRAIN_CUDA_MEMBER
    struct {
#define TRAIN_CUBLAS_MEMBER(name, symbol) train_cublas_##name name;
        TRAIN_CUBLAS_FUNCTIONS(TRAIN_CUBLAS_MEMBER)
#undef TRAIN_CUBLAS_MEMBER
    } cublas;
    /* How many devices there are: at least one. */
    int devices;
};

/* Both, and the driver initialised; they stay for ever. WEFT_ERR_UNSUPPORTED with a text: there is
 * no driver, no device or no cuBLAS. Any thread. */
int train_cuda_libraries(const struct train_cuda_libraries **libraries);

/* The status that an error of the driver stands for; the thread's text is then "cuMemAlloc:
 * CUDA_ERROR_OUT_OF_MEMORY (out of memory) on cuda:0". `device` is "cuda:0". */
int train_cuda_error(const struct train_cuda_libraries *libraries, CUresult code, const char *call,
                     const char *device);
/* The same of cuBLAS. */
int train_cublas_error(int code, const char *call, const char *device);

#endif
