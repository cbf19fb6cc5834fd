/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Primary contexts, one a device, and each thread's stack of them. The address of a context stays
 * the same when it is made again; its generation tells a thread that it still has the old one. */
#include "inside.h"

enum { STACK_MAX = 64 };

struct CUctx_st standin__contexts[STANDIN_DEVICES_MAX];

static _Thread_local struct {
    CUcontext context;
    unsigned long generation;
} stack[STACK_MAX];
static _Thread_local unsigned depth;

bool standin__context_known(CUcontext context)
{
    if (context < standin__contexts || context >= standin__contexts + standin__options.devices ||
        context != &standin__contexts[context - standin__contexts]) {
        standin__misuse(CUDA_ERROR_INVALID_CONTEXT, "%p is no context", (void *)context);
        return false;
    }
    if (!context->retained) {
        standin__misuse(CUDA_ERROR_INVALID_CONTEXT, "the context of device %d was released",
                        context->device);
        return false;
    }
    return true;
}

CUresult standin__context_current(CUcontext *context)
{
    if (!depth || !stack[depth - 1].context)
        return standin__misuse(CUDA_ERROR_INVALID_CONTEXT, "this thread has no current context");
    CUcontext current = stack[depth - 1].context;
    if (!current->retained || current->generation != stack[depth - 1].generation)
        return standin__misuse(CUDA_ERROR_CONTEXT_IS_DESTROYED,
                               "the current context, of device %d, was released", current->device);
    *context = current;
    return CUDA_SUCCESS;
}

void standin__context_fail(CUcontext context, CUresult code)
{
    if (!atomic_load_explicit(&context->error, memory_order_relaxed))
        atomic_store_explicit(&context->error, (int)code, memory_order_relaxed);
    pthread_cond_broadcast(&standin__progress);
}

bool standin__context_failed(CUcontext context)
{
    return atomic_load_explicit(&context->error, memory_order_relaxed) != CUDA_SUCCESS;
}

/* ---- retain and release ---- */

STANDIN_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = standin__enter(__func__, NEEDS_INIT, NULL);
    if (!result && !context)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result && (device < 0 || device >= (int)standin__options.devices))
        result = standin__misuse(CUDA_ERROR_INVALID_DEVICE, "there is no device %d", device);
    if (result)
        return standin__leave(result);
    CUcontext made = &standin__contexts[device];
    if (!made->retained) {
        made->device = device;
        made->generation++;
        made->peers = 1u << device;
        atomic_store_explicit(&made->error, 0, memory_order_relaxed);
        made->legacy = standin__stream_open(made, 0, 0);
        if (!made->legacy)
            return standin__leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->retained++;
    *context = made;
    return standin__leave(CUDA_SUCCESS);
}

static void abandon(struct standin_handle *handle, void *data)
{
    CUcontext context = data;
    if (handle->kind == KIND_STREAM) {
        if ((CUstream)handle != context->legacy)
            context->abandoned++;
        standin__stream_close((CUstream)handle);
    } else {
        if (handle->kind != KIND_FUNCTION)
            context->abandoned++;
        standin__handle_die(handle);
    }
}

STANDIN_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUresult result = standin__enter(__func__, NEEDS_INIT | RELEASES, NULL);
    if (!result && (device < 0 || device >= (int)standin__options.devices))
        result = standin__misuse(CUDA_ERROR_INVALID_DEVICE, "there is no device %d", device);
    if (!result && !standin__contexts[device].retained)
        result = standin__misuse(CUDA_ERROR_INVALID_CONTEXT,
                                 "the context of device %d is not retained", device);
    if (result)
        return standin__leave(result);
    CUcontext context = &standin__contexts[device];
    if (context->retained == 1) {
        standin__context_wait(context);
        standin__handles(context, abandon, context);
        standin__memory_abandon(context);
        context->legacy = NULL;
    }
    context->retained--;
    return standin__leave(CUDA_SUCCESS);
}

/* ---- a thread's current context ---- */

STANDIN_EXPORT CUresult CUDAAPI cuCtxPushCurrent(CUcontext context)
{
    CUresult result = standin__enter(__func__, NEEDS_INIT, NULL);
    if (!result && !standin__context_known(context))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (!result && depth == STACK_MAX)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "%d contexts are pushed", STACK_MAX);
    if (!result) {
        stack[depth].context = context;
        stack[depth++].generation = context->generation;
    }
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuCtxPopCurrent(CUcontext *context)
{
    CUresult result = standin__enter(__func__, NEEDS_INIT | RELEASES, NULL);
    if (!result && !depth)
        result = standin__misuse(CUDA_ERROR_INVALID_CONTEXT, "no context is pushed");
    if (!result) {
        depth--;
        if (context)
            *context = stack[depth].context;
    }
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    CUresult result = standin__enter(__func__, NEEDS_INIT | RELEASES, NULL);
    if (!result && context && !standin__context_known(context))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result)
        return standin__leave(result);
    if (!context && depth) {
        depth--;
    } else if (context) {
        if (!depth)
            depth = 1;
        stack[depth - 1].context = context;
        stack[depth - 1].generation = context->generation;
    }
    return standin__leave(CUDA_SUCCESS);
}

STANDIN_EXPORT CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = standin__enter(__func__, NEEDS_INIT, NULL);
    if (!result && !context)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result)
        *context = depth ? stack[depth - 1].context : NULL;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
    CUcontext context;
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, &context);
    if (!result && !device)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result)
        *device = context->device;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, NULL);
    if (!result && least)
        *least = 0;
    if (!result && greatest)
        *greatest = -5;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuCtxSynchronize(void)
{
    CUcontext context;
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, &context);
    if (!result)
        result = standin__context_wait(context);
    return standin__leave(result);
}

/* ---- peers ---- */

static CUresult enter_peer(const char *name, unsigned needs, CUcontext peer, CUcontext *context)
{
    CUresult result = standin__enter(name, NEEDS_CONTEXT | needs, context);
    if (!result && !standin__context_known(peer))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (!result && peer == *context)
        result = standin__misuse(CUDA_ERROR_INVALID_DEVICE, "the context is the current one");
    return result;
}

STANDIN_EXPORT CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    CUcontext context;
    CUresult result = enter_peer(__func__, 0, peer, &context);
    if (!result && flags)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
    if (!result && !standin__options.peers)
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (!result && context->peers & 1u << peer->device)
        result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (!result)
        context->peers |= 1u << peer->device;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer)
{
    CUcontext context;
    CUresult result = enter_peer(__func__, RELEASES, peer, &context);
    if (!result && !(context->peers & 1u << peer->device))
        result = standin__misuse(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "device %d to device %d",
                                 context->device, peer->device);
    if (!result)
        context->peers &= ~(1u << peer->device);
    return standin__leave(result);
}

/* ---- what is left ---- */

struct left {
    char *text;
    size_t size, used;
    unsigned count;
};

static void left_handle(struct standin_handle *handle, void *data)
{
    static const char *const names[] = {
        [KIND_STREAM] = "stream", [KIND_EVENT] = "event", [KIND_MODULE] = "module"};
    struct left *left = data;
    if (handle->kind == KIND_FUNCTION ||
        (handle->kind == KIND_STREAM && (CUstream)handle == handle->context->legacy))
        return;
    left->count++;
    standin__append(left->text, left->size, &left->used, "%s %p of device %d\n",
                    names[handle->kind], (void *)handle, handle->context->device);
}

static void left_memory(struct standin_allocation *allocation, void *data)
{
    static const char *const names[] = {[MEMORY_DEVICE] = "device memory",
                                        [MEMORY_IPC] = "memory of another process",
                                        [MEMORY_HOST] = "pinned memory",
                                        [MEMORY_REGISTERED] = "registered memory"};
    struct left *left = data;
    if (!allocation->live)
        return;
    left->count++;
    standin__append(left->text, left->size, &left->used, "%s of %zu bytes at %#lx of device %d\n",
                    names[allocation->kind], allocation->size, (unsigned long)allocation->base,
                    allocation->device);
}

STANDIN_EXPORT unsigned standin_leaks(char *text, size_t size)
{
    struct left left = {text, size, 0, 0};
    if (text && size)
        text[0] = '\0';
    pthread_mutex_lock(&standin__lock);
    standin__handles(NULL, left_handle, &left);
    standin__allocations(left_memory, &left);
    for (unsigned i = 0; i < STANDIN_DEVICES_MAX; i++) {
        CUcontext context = &standin__contexts[i];
        if (context->retained)
            standin__append(text, size, &left.used, "context of device %u, retained %u times\n", i,
                            context->retained);
        if (context->abandoned)
            standin__append(text, size, &left.used,
                            "%u objects of device %u when its context was released, %u of them "
                            "pinned memory of at most %zu bytes\n",
                            context->abandoned, i, context->abandoned_pins, context->abandoned_pin);
        left.count += context->retained + context->abandoned;
    }
    pthread_mutex_unlock(&standin__lock);
    return left.count;
}
