/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Built-in operations as devices do them: kernels of gpu/kernels/, one behind the other on a
 * stream, and no word of the host in between. How much a device alone knows (how many pairs two
 * lists have in common) is read by the next kernel; grids are for as much as there may be.
 */
#ifndef WEFT_GPU_OPERATE_H
#define WEFT_GPU_OPERATE_H

#include "gpu/cuda_device.h"
#include "gpu/kernels/arguments.h"
#include "runtime/graph/op.h"

/* Threads of most blocks, and blocks of most grids, which go round where there is more to do. */
enum { WEFT__GPU_THREADS = 256, WEFT__GPU_BLOCKS = 1024 };

/* ---- memory to work in ---- */

/* Pieces of it, one behind the other, aligned to 256 bytes. From a base of 0 it only counts. */
struct weft__cuda_room {
    uintptr_t base;
    size_t used; /* SIZE_MAX: more than can be */
};

void *weft__cuda_carve(struct weft__cuda_room *room, size_t count, size_t size);

/* ---- launches ---- */

/* A call on its way to a stream; the device is current. */
struct weft__cuda_task {
    const struct weft__cuda_stream *on;
    const struct weft_call *call;
    struct weft__cuda_room room;
    struct weft_gpu_found *report;
    int status; /* of the launches so far: after one that has failed, nothing is launched */
};

void weft__cuda_run(struct weft__cuda_task *task, enum weft__gpu_kernel kernel, size_t blocks,
                    unsigned threads, void **arguments);

/* weft__gpu_run(task, weft_fill_8, blocks, threads, &to, &bits, &count) */
#define WEFT__CUDA_RUN(task, kernel, blocks, threads, ...)                                         \
    weft__cuda_run(task, WEFT__GPU_##kernel, blocks, threads, (void *[]){__VA_ARGS__})

void weft__cuda_run_copy(struct weft__cuda_task *task, void *to, const void *from, size_t bytes);
void weft__cuda_run_zero(struct weft__cuda_task *task, void *to, size_t bytes);

/* The memory of a region. Of no elements it may be anywhere. */
static inline void *weft__cuda_data(const struct weft_argument *argument)
{
    return argument->count > 0 ? argument->data : NULL;
}

/* Blocks that have a thread for each of so many things to do. */
static inline size_t weft__cuda_blocks(size_t things)
{
    size_t blocks = things / WEFT__GPU_THREADS + (things % WEFT__GPU_THREADS != 0);

    return blocks < 1 ? 1 : blocks < WEFT__GPU_BLOCKS ? blocks : WEFT__GPU_BLOCKS;
}

/* ---- operations ---- */

size_t weft__cuda_operation_room(const struct weft_op *op, const struct weft_call *most);
int weft__cuda_operate(struct weft__stream *stream, const struct weft_op *op,
                       const struct weft_call *call, void *room, uint64_t *report);

/* Of lists of pairs: sparse.c. The first counts what the second works in. */
size_t weft__cuda_sparse_room(int kind, const struct weft_call *most);
void weft__cuda_sparse(struct weft__cuda_task *task, int kind);
/* Those that select from dense vectors: select.c. */
size_t weft__cuda_select_room(const struct weft_call *most);
void weft__cuda_select(struct weft__cuda_task *task);
/* Of compressed vectors: compress.c. */
size_t weft__cuda_compress_room(const struct weft_call *most);
void weft__cuda_compress(struct weft__cuda_task *task);

#endif
