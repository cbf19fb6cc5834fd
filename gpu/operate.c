/* SPDX-License-Identifier: BSD-3-Clause */
/* Built-in operations: which file has them, their memory and their launches. */
#include "gpu/operate.h"

#include "runtime/base/error.h"

enum { ALIGNMENT = 256 };

void *weft__cuda_carve(struct weft__cuda_room *room, size_t count, size_t size)
{
    const size_t begin = room->used;

    if (begin == SIZE_MAX || count > (SIZE_MAX - begin - ALIGNMENT) / size) {
        room->used = SIZE_MAX;
        return NULL;
    }
    room->used = begin + (count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return room->base ? (void *)(room->base + begin) : NULL;
}

void weft__cuda_run(struct weft__cuda_task *task, enum weft__gpu_kernel kernel, size_t blocks,
                    unsigned threads, void **arguments)
{
    if (task->status == WEFT_OK)
        task->status = weft__cuda_launch(task->on->cuda, task->on->handle, kernel, (unsigned)blocks,
                                         threads, 0, arguments);
}

void weft__cuda_run_copy(struct weft__cuda_task *task, void *to, const void *from, size_t bytes)
{
    const struct weft__cuda *cuda = task->on->cuda;

    if (task->status == WEFT_OK && bytes > 0)
        task->status = weft__cuda_result(cuda,
                                         cuda->driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to,
                                                                     (CUdeviceptr)(uintptr_t)from,
                                                                     bytes, task->on->handle),
                                         "cuMemcpyAsync");
}

void weft__cuda_run_zero(struct weft__cuda_task *task, void *to, size_t bytes)
{
    const struct weft__cuda *cuda = task->on->cuda;

    if (task->status == WEFT_OK && bytes > 0)
        task->status = weft__cuda_result(
            cuda,
            cuda->driver->cuMemsetD8Async((CUdeviceptr)(uintptr_t)to, 0, bytes, task->on->handle),
            "cuMemsetD8Async");
}

size_t weft__cuda_operation_room(const struct weft_op *op, const struct weft_call *most)
{
    return op->form->family == WEFT__FORM_COMPRESS ? weft__cuda_compress_room(most)
                                                   : weft__cuda_sparse_room(op->form->kind, most);
}

int weft__cuda_operate(struct weft__stream *stream, const struct weft_op *op,
                       const struct weft_call *call, void *room, uint64_t *report)
{
    const struct weft__cuda_stream *on = (const struct weft__cuda_stream *)(void *)stream;
    struct weft__cuda_task task = {.on = on,
                                   .call = call,
                                   .room = {.base = (uintptr_t)room},
                                   .report = (struct weft_gpu_found *)(void *)report};
    int entered = weft__cuda_enter(on->cuda);

    if (entered < 0)
        return entered;
    if (op->form->family == WEFT__FORM_COMPRESS)
        weft__cuda_compress(&task);
    else
        weft__cuda_sparse(&task, op->form->kind);
    weft__cuda_leave(on->cuda, entered);
    return task.status;
}
