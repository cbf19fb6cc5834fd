/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels are loaded, all of them, when a device is opened: the first launch of one that is loaded
 * then would wait for the whole device, and with it for peers. */
#include "gpu/cuda_device.h"

#include "gpu/kernels/image.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#define NAME(name)       #name,
#define NAMES(operation) "weft_reduce_" #operation, "weft_reduce_n_" #operation,
static const char *const names[] = {WEFT_GPU_OPERATIONS(NAMES) WEFT__GPU_KERNELS(NAME)};

_Static_assert(sizeof names / sizeof *names == WEFT__GPU_KERNEL_COUNT, "a name for each kernel");

/* Of whichever image has it: mostly `image`, which had the one before, for names are in the order
 * of their sources. */
static int find_kernel(struct weft__cuda *cuda, enum weft__gpu_kernel kernel, unsigned *image)
{
    CUresult code = CUDA_ERROR_NOT_FOUND;

    for (unsigned i = 0; i < weft__gpu_image_count && code == CUDA_ERROR_NOT_FOUND; i++) {
        const unsigned at = (*image + i) % weft__gpu_image_count;

        code = cuda->driver->cuModuleGetFunction(&cuda->functions[kernel], cuda->modules[at],
                                                 names[kernel]);
        if (!code) {
            *image = at;
            break;
        }
    }
#if CUDA_VERSION >= 12040
    if (!code && cuda->driver->cuFuncLoad)
        code = cuda->driver->cuFuncLoad(cuda->functions[kernel]);
#endif
    return code ? weft__cuda_error(cuda->driver, code, "cuModuleGetFunction", "for %s on %s",
                                   names[kernel], cuda->name)
                : WEFT_OK;
}

int weft__cuda_load_kernels(struct weft__cuda *cuda)
{
    unsigned image = 0;
    int status = WEFT_OK;

    cuda->modules = weft__calloc(weft__gpu_image_count, sizeof *cuda->modules);
    if (!cuda->modules)
        return weft__error_memory("the kernels of a device");
    for (unsigned i = 0; i < weft__gpu_image_count; i++) {
        CUresult code = cuda->driver->cuModuleLoadData(&cuda->modules[i], weft__gpu_images[i].data);

        if (code) {
            cuda->modules[i] = NULL;
            return weft__cuda_error(cuda->driver, code, "cuModuleLoadData", "for %s.cu on %s",
                                    weft__gpu_images[i].name, cuda->name);
        }
    }
    for (int kernel = 0; kernel < WEFT__GPU_KERNEL_COUNT && status == WEFT_OK; kernel++)
        status = find_kernel(cuda, (enum weft__gpu_kernel)kernel, &image);
    return status;
}

void weft__cuda_unload_kernels(struct weft__cuda *cuda, int current)
{
    for (unsigned i = 0; current && cuda->modules && i < weft__gpu_image_count; i++)
        if (cuda->modules[i])
            cuda->driver->cuModuleUnload(cuda->modules[i]);
    weft__free(cuda->modules);
    cuda->modules = NULL;
}

int weft__cuda_launch(struct weft__cuda *cuda, CUstream stream, enum weft__gpu_kernel kernel,
                      unsigned blocks, unsigned threads, size_t shared, void **arguments)
{
    CUresult code;

    if (blocks == 0)
        return WEFT_OK;
    code = cuda->driver->cuLaunchKernel(cuda->functions[kernel], blocks, 1, 1, threads, 1, 1,
                                        (unsigned)shared, stream, arguments, NULL);
    return code ? weft__cuda_error(cuda->driver, code, "cuLaunchKernel", "of %s on %s",
                                   names[kernel], cuda->name)
                : WEFT_OK;
}
