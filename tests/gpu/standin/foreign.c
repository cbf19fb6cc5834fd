/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What another library puts on streams: the stand-in of NCCL. */
#include "inside.h"

STANDIN_EXPORT int standin_foreign(void *stream, int (*run)(void *data, void *stream), void *data)
{
    CUcontext context;
    CUstream found = NULL;
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, &context);
    if (!result)
        result = standin__stream_find(context, stream, &found);
    if (result)
        return (int)standin__leave(result);
    struct standin_operation *operation = standin__operation(WORK_FOREIGN);
    operation->foreign = run;
    operation->data = data;
    standin__issue(found, operation);
    return (int)standin__leave(CUDA_SUCCESS);
}

STANDIN_EXPORT int standin_failed(void *stream)
{
    return atomic_load_explicit(&((CUstream)stream)->handle.context->error, memory_order_relaxed);
}

STANDIN_EXPORT void *standin_reach(int device, unsigned long long address, size_t bytes)
{
    struct standin_allocation *allocation = NULL;
    pthread_mutex_lock(&standin__lock);
    CUresult result = standin__memory_check(&standin__contexts[device], (uintptr_t)address, bytes,
                                            "a buffer", &allocation);
    if (!result &&
        (!allocation || allocation->kind == MEMORY_HOST || allocation->kind == MEMORY_REGISTERED)) {
        standin__misuse(CUDA_ERROR_INVALID_VALUE, "a buffer at %#llx is no memory of a device",
                        address);
        allocation = NULL;
    }
    pthread_mutex_unlock(&standin__lock);
    return !result && allocation ? standin__memory_alias(allocation, (uintptr_t)address) : NULL;
}
