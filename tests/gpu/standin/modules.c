/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Modules and kernels: those of the grid whose names are in the module's image. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

#pragma weak standin_own_kernel

enum { SHARED_DEFAULT = 49152, SHARED_MAX = 101376 };

static CUresult load(const char *name, CUmodule *module, const void *image)
{
    CUcontext context;
    CUresult result = standin__enter(name, NEEDS_CONTEXT, &context);
    if (!result && (!module || !image))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    CUmodule made = result ? NULL : calloc(1, sizeof *made);
    if (!result && made && !standin__image_copy(&made->image, image))
        result = standin__misuse(CUDA_ERROR_INVALID_IMAGE, "this is no fatbin, cubin or PTX");
    if (!result && (!made || !made->image.data))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        free(made);
        return standin__leave(result);
    }
    standin__handle_add(&made->handle, KIND_MODULE, context);
    *module = made;
    return standin__leave(CUDA_SUCCESS);
}

STANDIN_EXPORT CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
    return load(__func__, module, image);
}

STANDIN_EXPORT CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *module, const void *image,
                                                   unsigned count, CUjit_option *options,
                                                   void **values)
{
    (void)count;
    (void)options;
    (void)values;
    return load(__func__, module, image);
}

STANDIN_EXPORT CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT | RELEASES, NULL);
    CUmodule found = result ? NULL : standin__handle_find(module, KIND_MODULE);
    if (!result && !found)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result)
        return standin__leave(result);
    standin__handle_die(&found->handle);
    for (CUfunction function = found->functions; function; function = function->next)
        standin__handle_die(&function->handle);
    standin__context_wait(found->handle.context);
    free(found->image.data);
    found->image = (struct standin_image){0};
    return standin__leave(CUDA_SUCCESS);
}

static const struct grid_kernel *find_kernel(CUmodule module, const char *name)
{
    const struct grid_kernel *kernel = standin_own_kernel ? standin_own_kernel(name) : NULL;
    if (!standin__image_has(&module->image, name))
        return NULL;
    return kernel ? kernel : grid_find(name);
}

static CUfunction make_function(CUmodule module, const struct grid_kernel *kernel)
{
    for (CUfunction old = module->functions; old; old = old->next)
        if (old->kernel == kernel)
            return old;
    CUfunction made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    standin__handle_add(&made->handle, KIND_FUNCTION, module->handle.context);
    made->kernel = kernel;
    made->threads_max = standin__image_threads(&module->image, kernel->name);
    made->shared_max = SHARED_DEFAULT;
    made->next = module->functions;
    module->functions = made;
    return made;
}

STANDIN_EXPORT CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module,
                                                    const char *name)
{
    CUmodule found = NULL;
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, NULL);
    if (!result && (!function || !name))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result && !(found = standin__handle_find(module, KIND_MODULE)))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result)
        return standin__leave(result);
    const struct grid_kernel *kernel = find_kernel(found, name);
    if (!kernel)
        return standin__leave(CUDA_ERROR_NOT_FOUND);
    CUfunction made = make_function(found, kernel);
    if (made)
        *function = made;
    return standin__leave(made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

static CUresult enter_function(const char *name, CUfunction function, CUfunction *found,
                               CUcontext *context)
{
    CUresult result = standin__enter(name, NEEDS_CONTEXT, context);
    if (result)
        return result;
    *found = standin__handle_find(function, KIND_FUNCTION);
    return *found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

STANDIN_EXPORT CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attribute,
                                                   CUfunction function)
{
    CUfunction found;
    CUcontext context;
    CUresult result = enter_function(__func__, function, &found, &context);
    if (!result && (!value || (int)attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "attribute %d", (int)attribute);
    if (result)
        return standin__leave(result);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)found->threads_max;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 86;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = found->shared_max;
        break;
    default:
        *value = 0;
    }
    return standin__leave(CUDA_SUCCESS);
}

STANDIN_EXPORT CUresult CUDAAPI cuFuncSetAttribute(CUfunction function,
                                                   CUfunction_attribute attribute, int value)
{
    CUfunction found;
    CUcontext context;
    CUresult result = enter_function(__func__, function, &found, &context);
    if (!result && (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
                    value > SHARED_MAX))
        result =
            standin__misuse(CUDA_ERROR_INVALID_VALUE, "attribute %d: %d", (int)attribute, value);
    if (!result)
        found->shared_max = value;
    return standin__leave(result);
}

#if CUDA_VERSION >= 12040
STANDIN_EXPORT CUresult CUDAAPI cuFuncLoad(CUfunction function)
{
    CUfunction found;
    CUcontext context;
    CUresult result = enter_function(__func__, function, &found, &context);
    if (!result)
        found->launched = true;
    return standin__leave(result);
}
#endif

/* ---- launches ---- */

static CUresult check_shape(const unsigned grid[3], const unsigned block[3], unsigned shared,
                            CUfunction function)
{
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > INT32_MAX || grid[1] > 65535 ||
        grid[2] > 65535)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "%s: a grid of %u x %u x %u blocks",
                               function->kernel->name, grid[0], grid[1], grid[2]);
    if (!threads || block[0] > 1024 || block[1] > 1024 || block[2] > 64 ||
        threads > function->threads_max)
        return standin__misuse(
            CUDA_ERROR_INVALID_VALUE, "%s: a block of %u x %u x %u threads, %u are allowed",
            function->kernel->name, block[0], block[1], block[2], function->threads_max);
    if (shared > (unsigned)function->shared_max)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "%s: %u bytes of shared memory",
                               function->kernel->name, shared);
    return CUDA_SUCCESS;
}

static CUresult check_arguments(CUfunction function, void **arguments)
{
    const struct grid_kernel *kernel = function->kernel;
    if (!arguments && kernel->count)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "%s: no arguments", kernel->name);
    for (unsigned i = 0; i < kernel->count; i++)
        if (!arguments[i])
            return standin__misuse(CUDA_ERROR_INVALID_VALUE, "%s: argument %u of %u is NULL",
                                   kernel->name, i, kernel->count);
    return CUDA_SUCCESS;
}

/* The driver copies arguments when a kernel is launched: so the caller's are poisoned by time. */
static void **copy_arguments(const struct grid_kernel *kernel, void **arguments)
{
    size_t bytes = kernel->count * sizeof(void *) + 16;
    for (unsigned i = 0; i < kernel->count; i++)
        bytes += (kernel->sizes[i] + 15) / 16 * 16;
    void **copies = aligned_alloc(16, (bytes + 15) / 16 * 16);
    if (!copies)
        return NULL;
    char *next = (char *)copies + (kernel->count * sizeof(void *) + 15) / 16 * 16;
    for (unsigned i = 0; i < kernel->count; i++) {
        copies[i] = next;
        memcpy(next, arguments[i], kernel->sizes[i]);
        next += (kernel->sizes[i] + 15) / 16 * 16;
    }
    return copies;
}

static CUresult issue_kernel(CUstream stream, CUfunction function, const unsigned grid[3],
                             const unsigned block[3], unsigned shared, void **arguments)
{
    struct standin_operation *operation = standin__operation(WORK_KERNEL);
    bool copied = function->kernel->sizes;
    operation->kernel = function;
    memcpy(operation->grid, grid, sizeof operation->grid);
    memcpy(operation->block, block, sizeof operation->block);
    operation->shared = shared;
    operation->seed = standin__random(&stream->random);
    operation->arguments = copied ? copy_arguments(function->kernel, arguments) : arguments;
    operation->staged = copied ? operation->arguments : NULL;
    if (copied && !operation->arguments) {
        standin__operation_free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    standin__issue(stream, operation);
    return copied ? CUDA_SUCCESS : standin__wait(stream, stream->issued);
}

STANDIN_EXPORT CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned grid_x,
                                               unsigned grid_y, unsigned grid_z, unsigned block_x,
                                               unsigned block_y, unsigned block_z, unsigned shared,
                                               CUstream stream, void **arguments, void **extra)
{
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    CUfunction found;
    CUcontext context;
    CUstream on;
    CUresult result = enter_function(__func__, function, &found, &context);
    if (!result)
        result = standin__stream_find(context, stream, &on);
    if (!result && (on->handle.context != context || found->handle.context != context))
        result = standin__misuse(
            CUDA_ERROR_INVALID_HANDLE,
            "the kernel is of device %d, the stream of %d, device %d is current",
            found->handle.context->device, on->handle.context->device, context->device);
    if (!result && extra)
        result = standin__misuse(CUDA_ERROR_NOT_SUPPORTED, "the stand-in knows no `extra`");
    if (!result)
        result = check_arguments(found, arguments);
    if (!result)
        result = check_shape(grid, block, shared, found);
    /* A kernel may be loaded by its first launch, which waits for what runs. */
    if (!result && standin__options.implicit_sync && !found->launched)
        result = standin__context_wait(context);
    if (!result) {
        found->launched = true;
        result = issue_kernel(on, found, grid, block, shared, arguments);
    }
    return standin__leave(result);
}
