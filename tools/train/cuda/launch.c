/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels, and products by cuBLAS. Kernels are loaded when a device is opened: the first launch of
 * one that is loaded then would wait for the whole device, on which a stream may wait for this
 * thread.
 */
#include "tools/train/cuda/device.h"

#include "gpu/kernels/image.h"

#include <limits.h>
#include <stdio.h>
#include <weft/weft.h>

/* What gpu/kernels/embed.sh has made. */
extern const struct weft__gpu_image train_cuda_images[];
extern const unsigned train_cuda_image_count;

/* A grid is to have a thread for each thing, and goes round where that would be more blocks. */
enum { MOST_BLOCKS = 65536 };

#define NAME(name) #name,
static const char *const names[] = {TRAIN_CUDA_KERNELS(NAME)};

_Static_assert(sizeof names / sizeof *names == TRAIN_CUDA_KERNEL_COUNT, "a name for each kernel");

/* Of whichever image has it. */
static int find_kernel(struct train_cuda *cuda, enum train_cuda_kernel kernel)
{
    const struct train_cuda_libraries *calls = cuda->calls;
    CUresult code = CUDA_ERROR_NOT_FOUND;
    char call[64];

    for (unsigned i = 0; i < train_cuda_image_count && code == CUDA_ERROR_NOT_FOUND; i++)
        code = calls->cuModuleGetFunction(&cuda->kernels[kernel], cuda->modules[i], names[kernel]);
#if CUDA_VERSION >= 12040
    if (!code && calls->cuFuncLoad)
        code = calls->cuFuncLoad(cuda->kernels[kernel]);
#endif
    snprintf(call, sizeof call, "cuModuleGetFunction of %s", names[kernel]);
    return train_cuda_check(cuda, code, call);
}

int train_cuda_load_kernels(struct train_cuda *cuda)
{
    int status = WEFT_OK;

    cuda->modules = weft_memory_alloc(train_cuda_image_count, sizeof *cuda->modules);
    if (!cuda->modules)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the kernels of a device");
    for (unsigned i = 0; i < train_cuda_image_count && status == WEFT_OK; i++) {
        CUresult code = cuda->calls->cuModuleLoadData(&cuda->modules[i], train_cuda_images[i].data);

        if (code)
            cuda->modules[i] = NULL;
        status = train_cuda_check(cuda, code, "cuModuleLoadData");
    }
    for (int kernel = 0; kernel < TRAIN_CUDA_KERNEL_COUNT && status == WEFT_OK; kernel++)
        status = find_kernel(cuda, (enum train_cuda_kernel)kernel);
    return status;
}

void train_cuda_unload_kernels(struct train_cuda *cuda)
{
    for (unsigned i = 0; cuda->modules && i < train_cuda_image_count; i++)
        if (cuda->modules[i])
            cuda->calls->cuModuleUnload(cuda->modules[i]);
    weft_memory_free(cuda->modules);
    cuda->modules = NULL;
}

int train_cuda_launch(struct train_cuda *cuda, enum train_cuda_kernel kernel, uint64_t work,
                      void **arguments)
{
    uint64_t blocks = work / TRAIN_CUDA_THREADS + (work % TRAIN_CUDA_THREADS != 0);
    char call[64];

    if (cuda->status)
        return train_cuda_status(cuda);
    CUresult code = cuda->calls->cuLaunchKernel(
        cuda->kernels[kernel], blocks < MOST_BLOCKS ? (unsigned)blocks : MOST_BLOCKS, 1, 1,
        TRAIN_CUDA_THREADS, 1, 1, 0, cuda->stream, arguments, NULL);
    if (!code)
        return WEFT_OK;
    snprintf(call, sizeof call, "cuLaunchKernel of %s", names[kernel]);
    return train_cuda_check(cuda, code, call);
}

int train_cuda_product(struct train_cuda *cuda, int of_a, int of_b, size_t m, size_t n, size_t k,
                       const float *a, size_t lda, const float *b, size_t ldb, float beta, float *c,
                       size_t ldc)
{
    const float one = 1;

    if (cuda->status)
        return train_cuda_status(cuda);
    if (m > INT_MAX || n > INT_MAX || k > INT_MAX)
        return train_cuda_fail(
            cuda, weft_error_set(WEFT_ERR_INVALID,
                                 "a product of %zu x %zu by %zu x %zu; cuBLAS has sizes up to %d",
                                 m, k, k, n, INT_MAX));
    return train_cublas_check(cuda,
                              cuda->calls->cublas.sgemm(cuda->cublas, of_a, of_b, (int)m, (int)n,
                                                        (int)k, &one, a, (int)lda, b, (int)ldb,
                                                        &beta, c, (int)ldc),
                              "cublasSgemm");
}
