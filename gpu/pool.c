/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for runs, kept when they are done with it.
 *
 * The driver waits for everything on the device before it takes memory back (cuMemFree(),
 * cuMemFreeHost()): also for a stream of the user's that waits, in turn, for the thread that wants
 * to get rid of a run. So what is freed goes to a list of the device, and the driver has it again
 * when the last context has ended, or when there is too little. It is given out again to who needs
 * at most so much, and at least half of it: what is kept is at most about twice what was in use at
 * one time. Words that streams wait for are kept apart, with what they have: a stream may see them
 * late.
 */
#include "gpu/cuda_device.h"

#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

struct weft__cuda_block {
    struct weft__cuda_block *next;
    void *memory;
    size_t bytes;
};

static CUresult driver_alloc(const struct weft__cuda *cuda, int kind, size_t bytes, void **memory)
{
    CUdeviceptr there = 0;
    CUresult code;

    if (kind != WEFT__CUDA_THERE)
        return cuda->driver->cuMemHostAlloc(memory, bytes,
                                            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    code = cuda->driver->cuMemAlloc(&there, bytes);
    *memory = (void *)(uintptr_t)there;
    return code;
}

static void driver_free(const struct weft__cuda *cuda, int kind, void *memory)
{
    if (kind != WEFT__CUDA_THERE)
        cuda->driver->cuMemFreeHost(memory);
    else
        cuda->driver->cuMemFree((CUdeviceptr)(uintptr_t)memory);
}

static void forget(struct weft__cuda_block **list)
{
    while (*list) {
        struct weft__cuda_block *block = *list;

        *list = block->next;
        weft__free(block);
    }
}

/* With the lock, the device current: gives the driver back what nobody has. */
static void trim(struct weft__cuda *cuda, int kind)
{
    for (struct weft__cuda_block *block = cuda->pools[kind].spare; block; block = block->next)
        driver_free(cuda, kind, block->memory);
    forget(&cuda->pools[kind].spare);
}

/* With the lock: the smallest that is large enough, if it is not too large. */
static struct weft__cuda_block *take_spare(struct weft__cuda *cuda, int kind, size_t bytes)
{
    struct weft__cuda_block **best = NULL, *block;

    for (struct weft__cuda_block **link = &cuda->pools[kind].spare; *link; link = &(*link)->next)
        if ((*link)->bytes >= bytes && (*link)->bytes / 2 <= bytes &&
            (!best || (*link)->bytes < (*best)->bytes))
            best = link;
    if (!best)
        return NULL;
    block = *best;
    *best = block->next;
    return block;
}

static struct weft__cuda_block *make(struct weft__cuda *cuda, int kind, size_t bytes)
{
    struct weft__cuda_block *block = weft__calloc(1, sizeof *block);
    CUresult code;

    if (!block) {
        weft__error_memory("memory of a device");
        return NULL;
    }
    block->bytes = bytes;
    code = driver_alloc(cuda, kind, bytes, &block->memory);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && cuda->pools[kind].spare) {
        trim(cuda, kind);
        code = driver_alloc(cuda, kind, bytes, &block->memory);
    }
    if (code == CUDA_SUCCESS && kind == WEFT__CUDA_WORDS)
        memset(block->memory, 0, bytes);
    if (code == CUDA_SUCCESS)
        return block;
    weft__cuda_error(cuda->driver, code, kind != WEFT__CUDA_THERE ? "cuMemHostAlloc" : "cuMemAlloc",
                     "of %zu bytes %s %s", bytes, kind != WEFT__CUDA_THERE ? "for" : "on",
                     cuda->name);
    weft__free(block);
    return NULL;
}

static void *get(struct weft__device *device, int kind, size_t bytes)
{
    struct weft__cuda *cuda = weft__cuda_of(device);
    int entered = weft__cuda_enter(cuda);
    struct weft__cuda_block *block;

    if (entered < 0)
        return NULL;
    bytes += !bytes;
    pthread_mutex_lock(&cuda->pool_lock);
    block = take_spare(cuda, kind, bytes);
    if (!block)
        block = make(cuda, kind, bytes);
    if (block) {
        block->next = cuda->pools[kind].used;
        cuda->pools[kind].used = block;
    }
    pthread_mutex_unlock(&cuda->pool_lock);
    weft__cuda_leave(cuda, entered);
    return !block ? NULL : block->memory;
}

static void give_back(struct weft__device *device, int kind, const void *memory)
{
    struct weft__cuda *cuda = weft__cuda_of(device);
    struct weft__cuda_pool *pool = &cuda->pools[kind];

    if (!memory)
        return;
    pthread_mutex_lock(&cuda->pool_lock);
    for (struct weft__cuda_block **link = &pool->used; *link; link = &(*link)->next)
        if ((*link)->memory == memory) {
            struct weft__cuda_block *block = *link;

            *link = block->next;
            block->next = pool->spare;
            pool->spare = block;
            break;
        }
    pthread_mutex_unlock(&cuda->pool_lock);
}

void *weft__cuda_alloc(struct weft__device *device, size_t bytes)
{
    return get(device, WEFT__CUDA_THERE, bytes);
}

void weft__cuda_free(struct weft__device *device, void *memory)
{
    give_back(device, WEFT__CUDA_THERE, memory);
}

void *weft__cuda_pin(struct weft__device *device, size_t bytes)
{
    return get(device, WEFT__CUDA_PINNED, bytes);
}

void weft__cuda_unpin(struct weft__device *device, void *memory)
{
    give_back(device, WEFT__CUDA_PINNED, memory);
}

void *weft__cuda_pin_words(struct weft__device *device, size_t bytes)
{
    return get(device, WEFT__CUDA_WORDS, bytes);
}

void weft__cuda_unpin_words(struct weft__device *device, void *memory)
{
    give_back(device, WEFT__CUDA_WORDS, memory);
}

void weft__cuda_pools_end(struct weft__cuda *cuda, int current)
{
    for (int kind = 0; kind < WEFT__CUDA_POOLS; kind++) {
        if (current)
            trim(cuda, kind);
        forget(&cuda->pools[kind].spare);
        forget(&cuda->pools[kind].used);
    }
}
