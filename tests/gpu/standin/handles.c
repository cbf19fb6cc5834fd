/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams, events, modules and functions by their addresses. None is ever freed, so that a
 * handle that was destroyed is told from one that never was, and its address is not given out
 * again. */
#include "inside.h"

enum { BUCKETS = 4096 };

static struct standin_handle *buckets[BUCKETS];
static struct standin_handle *living;

static struct standin_handle **bucket_of(const void *pointer)
{
    return &buckets[((uintptr_t)pointer >> 4) * 0x9e3779b1u % BUCKETS];
}

static const char *name_of(enum standin_kind kind)
{
    static const char *const names[] = {[KIND_STREAM] = "stream",
                                        [KIND_EVENT] = "event",
                                        [KIND_MODULE] = "module",
                                        [KIND_FUNCTION] = "function"};
    return names[kind];
}

void standin__handle_add(struct standin_handle *handle, enum standin_kind kind, CUcontext context)
{
    struct standin_handle **bucket = bucket_of(handle);
    *handle = (struct standin_handle){kind, true, context, *bucket, living, NULL};
    *bucket = handle;
    if (living)
        living->before = handle;
    living = handle;
}

void standin__handle_die(struct standin_handle *handle)
{
    if (!handle->live)
        return;
    handle->live = false;
    if (handle->before)
        handle->before->after = handle->after;
    else
        living = handle->after;
    if (handle->after)
        handle->after->before = handle->before;
}

void *standin__handle_find(const void *pointer, enum standin_kind kind)
{
    for (struct standin_handle *handle = *bucket_of(pointer); handle; handle = handle->next)
        if (handle == pointer) {
            if (handle->kind != kind)
                standin__misuse(CUDA_ERROR_INVALID_HANDLE, "%p is a %s, no %s", pointer,
                                name_of(handle->kind), name_of(kind));
            else if (!handle->live)
                standin__misuse(CUDA_ERROR_INVALID_HANDLE, "the %s %p was destroyed", name_of(kind),
                                pointer);
            else
                return handle;
            return NULL;
        }
    standin__misuse(CUDA_ERROR_INVALID_HANDLE, "%p is no %s", pointer, name_of(kind));
    return NULL;
}

void standin__handles(CUcontext context, void (*visit)(struct standin_handle *, void *), void *data)
{
    for (struct standin_handle *handle = living; handle; handle = handle->after)
        if (handle->live && (!context || handle->context == context))
            visit(handle, data);
}
