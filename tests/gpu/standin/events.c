/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Events: the operation that was the last one of a stream when the event was recorded. */
#include "inside.h"

#include <stdlib.h>
#include <time.h>

static CUresult enter_event(const char *name, CUevent event, CUevent *found, CUcontext *context)
{
    CUcontext current;
    CUresult result = standin__enter(name, NEEDS_CONTEXT, &current);
    if (result)
        return result;
    *found = standin__handle_find(event, KIND_EVENT);
    if (!*found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (context)
        *context = current;
    return (CUresult)atomic_load_explicit(&(*found)->handle.context->error, memory_order_relaxed);
}

static bool is_reached(const struct CUevent_st *event)
{
    return !event->mark.stream || event->mark.stream->done >= event->mark.ticket;
}

void standin__event_reached(CUstream stream, struct standin_operation *operation)
{
    CUevent event = operation->event;
    struct timespec now;
    if (event->mark.stream != stream || event->mark.ticket != operation->ticket)
        return; /* recorded again since */
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

STANDIN_EXPORT CUresult CUDAAPI cuEventCreate(CUevent *event, unsigned flags)
{
    CUcontext context;
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, &context);
    if (!result && (!event || flags & ~7u ||
                    (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING))))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "flags %#x", flags);
    CUevent made = result ? NULL : calloc(1, sizeof *made);
    if (!result && !made)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        return standin__leave(result);
    standin__handle_add(&made->handle, KIND_EVENT, context);
    made->flags = flags;
    *event = made;
    return standin__leave(CUDA_SUCCESS);
}

STANDIN_EXPORT CUresult CUDAAPI cuEventDestroy(CUevent event)
{
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT | RELEASES, NULL);
    CUevent found = result ? NULL : standin__handle_find(event, KIND_EVENT);
    if (!result && !found)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result)
        standin__handle_die(&found->handle);
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream)
{
    CUevent found;
    CUstream on;
    CUcontext context;
    CUresult result = enter_event(__func__, event, &found, &context);
    if (!result)
        result = standin__stream_find(context, stream, &on);
    if (!result && on->handle.context != found->handle.context)
        result = standin__misuse(CUDA_ERROR_INVALID_HANDLE,
                                 "the event is of device %d, the stream of device %d",
                                 found->handle.context->device, on->handle.context->device);
    if (result)
        return standin__leave(result);
    struct standin_operation *operation = standin__operation(WORK_RECORD);
    operation->event = found;
    standin__issue(on, operation);
    found->mark = (struct standin_mark){on, on->issued};
    return standin__leave(CUDA_SUCCESS);
}

STANDIN_EXPORT CUresult CUDAAPI cuEventQuery(CUevent event)
{
    CUevent found;
    CUresult result = enter_event(__func__, event, &found, NULL);
    if (!result && !is_reached(found))
        result = CUDA_ERROR_NOT_READY;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuEventSynchronize(CUevent event)
{
    CUevent found;
    CUresult result = enter_event(__func__, event, &found, NULL);
    if (!result && found->mark.stream)
        result = standin__wait(found->mark.stream, found->mark.ticket);
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    CUevent from, to = NULL;
    CUresult result = enter_event(__func__, start, &from, NULL);
    if (!result && !(to = standin__handle_find(end, KIND_EVENT)))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result && !milliseconds)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result && (!from->mark.stream || !to->mark.stream))
        result = standin__misuse(CUDA_ERROR_INVALID_HANDLE, "an event was never recorded");
    if (!result && (from->flags | to->flags) & CU_EVENT_DISABLE_TIMING)
        result = standin__misuse(CUDA_ERROR_INVALID_HANDLE, "an event has no time");
    if (!result && from->handle.context != to->handle.context)
        result = standin__misuse(CUDA_ERROR_INVALID_HANDLE, "the events are of two contexts");
    if (!result && (!is_reached(from) || !is_reached(to)))
        result = CUDA_ERROR_NOT_READY;
    if (!result)
        *milliseconds = (float)((double)(int64_t)(to->time - from->time) * 1e-6);
    return standin__leave(result);
}

/* The event as it is now: what is recorded later is not waited for. */
STANDIN_EXPORT CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    CUevent found;
    CUstream on;
    CUcontext context;
    CUresult result = enter_event(__func__, event, &found, &context);
    if (!result)
        result = standin__stream_find(context, stream, &on);
    if (!result && flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "flags %#x", flags);
    if (result)
        return standin__leave(result);
    struct standin_operation *operation = standin__operation(WORK_WAIT);
    if (found->mark.stream)
        standin__operation_after(operation, found->mark.stream, found->mark.ticket);
    standin__issue(on, operation);
    return standin__leave(CUDA_SUCCESS);
}
