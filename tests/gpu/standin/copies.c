/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies and fills. Both ends are looked at when a copy is issued; what the host may see of a copy
 * from or to memory that is not pinned is left to chance, as the documentation leaves it open. */
#include "inside.h"

static unsigned long pageable;

STANDIN_EXPORT unsigned long standin_pageable(void)
{
    pthread_mutex_lock(&standin__lock);
    unsigned long found = pageable;
    pthread_mutex_unlock(&standin__lock);
    return found;
}

enum place { ANYWHERE, ON_DEVICE, ON_HOST };

struct end {
    uintptr_t address;
    size_t pitch;
    enum place place;
    CUcontext context; /* whose it is, where the caller says so */
    struct standin_allocation *allocation;
};

struct shape {
    size_t width, height;
};

static CUresult check_end(CUcontext context, struct end *end, struct shape shape, const char *what)
{
    size_t bytes = shape.height ? (shape.height - 1) * end->pitch + shape.width : 0;
    if (!shape.width)
        bytes = 0;
    CUresult result = standin__memory_check(end->context ? end->context : context, end->address,
                                            bytes, what, &end->allocation);
    if (result)
        return result;
    bool host = !end->allocation || end->allocation->kind >= MEMORY_HOST;
    if (end->place == ON_HOST && !host)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "%s %#lx is device memory", what,
                               (unsigned long)end->address);
    if (end->place == ON_DEVICE && !end->allocation)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "%s %#lx is no memory of the driver", what,
                               (unsigned long)end->address);
    return CUDA_SUCCESS;
}

/* The lock is held. `wait`: the caller wants it done. */
static CUresult issue_copy(CUcontext current, CUstream stream, struct end to, struct end from,
                           struct shape shape, bool wait)
{
    CUstream found = NULL;
    CUresult result = standin__stream_find(current, stream, &found);
    if (!result)
        result = check_end(found->handle.context, &to, shape, "the destination");
    if (!result)
        result = check_end(found->handle.context, &from, shape, "the source");
    if (!result && shape.height == 1 && shape.width &&
        (to.address - from.address < shape.width || from.address - to.address < shape.width))
        result =
            standin__misuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes at %#lx and %#lx overlap",
                            shape.width, (unsigned long)to.address, (unsigned long)from.address);
    if (result)
        return result;
    if (!wait && (!to.allocation || !from.allocation)) {
        pageable++;
        wait = standin__random(&found->random) % 2;
    }
    struct standin_operation *operation = standin__operation(WORK_COPY);
    operation->to = standin__memory_alias(to.allocation, to.address);
    operation->from = standin__memory_alias(from.allocation, from.address);
    operation->to_pitch = to.pitch;
    operation->from_pitch = from.pitch;
    operation->width = shape.width;
    operation->height = shape.width ? shape.height : 0;
    operation->uses[0] = to.allocation;
    operation->uses[1] = from.allocation;
    standin__issue(found, operation);
    return wait ? standin__wait(found, found->issued) : CUDA_SUCCESS;
}

static CUresult copy(const char *name, CUstream stream, struct end to, struct end from,
                     size_t bytes, bool wait)
{
    CUcontext context;
    CUresult result = standin__enter(name, NEEDS_CONTEXT, &context);
    if (!result)
        result = issue_copy(context, stream, to, from, (struct shape){bytes, 1}, wait);
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                              CUstream stream)
{
    return copy(__func__, stream, (struct end){.address = to}, (struct end){.address = from}, bytes,
                false);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes,
                                                  CUstream stream)
{
    return copy(__func__, stream, (struct end){.address = to, .place = ON_DEVICE},
                (struct end){.address = (uintptr_t)from, .place = ON_HOST}, bytes, false);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes,
                                                  CUstream stream)
{
    return copy(__func__, stream, (struct end){.address = (uintptr_t)to, .place = ON_HOST},
                (struct end){.address = from, .place = ON_DEVICE}, bytes, false);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                                  CUstream stream)
{
    return copy(__func__, stream, (struct end){.address = to, .place = ON_DEVICE},
                (struct end){.address = from, .place = ON_DEVICE}, bytes, false);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy(__func__, NULL, (struct end){.address = to, .place = ON_DEVICE},
                (struct end){.address = (uintptr_t)from, .place = ON_HOST}, bytes, true);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    return copy(__func__, NULL, (struct end){.address = (uintptr_t)to, .place = ON_HOST},
                (struct end){.address = from, .place = ON_DEVICE}, bytes, true);
}

/* Needs no access of one device to the other, but the right contexts. */
STANDIN_EXPORT CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context,
                                                  CUdeviceptr from, CUcontext from_context,
                                                  size_t bytes, CUstream stream)
{
    CUcontext context;
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, &context);
    if (!result && (!standin__context_known(to_context) || !standin__context_known(from_context)))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (!result)
        result = issue_copy(
            context, stream, (struct end){.address = to, .place = ON_DEVICE, .context = to_context},
            (struct end){.address = from, .place = ON_DEVICE, .context = from_context},
            (struct shape){bytes, 1}, false);
    return standin__leave(result);
}

static CUresult plane_end(CUmemorytype type, const void *host, CUdeviceptr device, size_t x,
                          size_t y, size_t pitch, size_t width, struct end *end)
{
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "memory type %d", (int)type);
    if (pitch && pitch < width + x)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "pitch %zu, rows of %zu bytes", pitch,
                               width + x);
    end->address = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : (uintptr_t)device;
    end->pitch = pitch ? pitch : width + x;
    end->address += y * end->pitch + x;
    end->place = type == CU_MEMORYTYPE_HOST     ? ON_HOST
                 : type == CU_MEMORYTYPE_DEVICE ? ON_DEVICE
                                                : ANYWHERE;
    return CUDA_SUCCESS;
}

STANDIN_EXPORT CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D *plane, CUstream stream)
{
    CUcontext context;
    struct end to = {0}, from = {0};
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, &context);
    if (!result && !plane)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result)
        result =
            plane_end(plane->dstMemoryType, plane->dstHost, plane->dstDevice, plane->dstXInBytes,
                      plane->dstY, plane->dstPitch, plane->WidthInBytes, &to);
    if (!result)
        result =
            plane_end(plane->srcMemoryType, plane->srcHost, plane->srcDevice, plane->srcXInBytes,
                      plane->srcY, plane->srcPitch, plane->WidthInBytes, &from);
    if (!result)
        result = issue_copy(context, stream, to, from,
                            (struct shape){plane->WidthInBytes, plane->Height}, false);
    return standin__leave(result);
}

/* ---- fills ---- */

static CUresult fill(const char *name, CUdeviceptr to, unsigned bytes, uint32_t value, size_t count,
                     CUstream stream)
{
    CUcontext context;
    CUstream found = NULL;
    struct end end = {.address = to, .pitch = 1, .place = ON_DEVICE};
    CUresult result = standin__enter(name, NEEDS_CONTEXT, &context);
    if (!result)
        result = standin__stream_find(context, stream, &found);
    if (!result && (to % bytes || count > SIZE_MAX / bytes))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "%zu values at %#llx", count, to);
    if (!result)
        result = check_end(found->handle.context, &end, (struct shape){count * bytes, 1},
                           "the destination");
    if (result)
        return standin__leave(result);
    struct standin_operation *operation = standin__operation(WORK_SET);
    operation->to = standin__memory_alias(end.allocation, to);
    operation->value = value;
    operation->bytes = bytes;
    operation->width = count;
    operation->uses[0] = end.allocation;
    standin__issue(found, operation);
    return standin__leave(CUDA_SUCCESS);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                                                CUstream stream)
{
    return fill(__func__, to, 1, value, count, stream);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count,
                                                 CUstream stream)
{
    return fill(__func__, to, 4, value, count, stream);
}
