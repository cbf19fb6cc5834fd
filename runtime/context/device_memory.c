/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a context's device for its users, and copies that they wait for.
 *
 * A copy has a stream of its own, so that it waits for nothing but itself. Memory of the host that
 * the device does not know goes through parts of pinned memory, of which some are under way while
 * the processor fills or empties another. Both are kept for the next copy: one set, as mostly one
 * thread copies; who finds it taken makes another.
 *
 *     from:  | 0 | 1 | 2 | 3 | 4 | 5 |
 *     parts: | 0 | 1 | 2 | 3 |             part 4 is put where 0 was when 0 has arrived
 */
#include "runtime/context/context.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include <weft/device.h>

#include <sched.h>
#include <string.h>
#include <time.h>

enum { PARTS = 4, PART_BYTES = 256 << 10 };
/* Who waits looks so often without rest; then after a tenth of the time that it has waited. */
enum { SPINS = 2000, BACK_OFF = 10, SLEEP_NS = 1000000 };
/* So long after the last time the driver is asked whether the device has failed. */
enum { LOOK_NS = 10000000 };

struct weft__mover {
    struct weft__stream *stream;
    char *parts; /* pinned; NULL until they are needed */
    uint32_t tickets[PARTS];
};

static void mover_free(struct weft__mover *mover)
{
    struct weft__device *device;

    if (!mover)
        return;
    device = mover->stream->device;
    device->ops->close(mover->stream);
    device->ops->unpin(device, mover->parts);
    weft__free(mover);
}

void weft__context_device_close(struct weft_context *root)
{
    struct weft__device *device = atomic_load_explicit(&root->device, memory_order_relaxed);

    mover_free(atomic_load_explicit(&root->mover, memory_order_relaxed));
    for (int memory = WEFT_MEMORY_HOST; memory <= WEFT_MEMORY_DEVICE; memory++)
        weft__memories_close(&root->device_memories[memory], device,
                             !device                        ? NULL
                             : memory == WEFT_MEMORY_DEVICE ? device->ops->free
                                                            : device->ops->unpin);
    if (device)
        device->ops->end(device);
}

/* ---- memory ---- */

int weft_context_device(struct weft_context *context, const char **name)
{
    struct weft__device *device;
    int status;

    if (!context)
        return WEFT__INVALID("%s: argument `context` is NULL", __func__);
    status = weft__context_device(context, &device);
    if (status == WEFT_OK && name)
        *name = device->name;
    return status;
}

int weft_context_device_alloc(struct weft_context *context, weft_memory_t memory, size_t bytes,
                              void **data)
{
    struct weft__device *device;
    void *made;
    int status;

    if (!context || !data)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !context ? "context" : "data");
    if (memory != WEFT_MEMORY_HOST && memory != WEFT_MEMORY_DEVICE)
        return WEFT__INVALID("%s: argument `memory` is %d, expected one of weft_memory_t", __func__,
                             (int)memory);
    status = weft__context_device(context, &device);
    if (status != WEFT_OK)
        return status;
    made = memory == WEFT_MEMORY_DEVICE ? device->ops->alloc(device, bytes)
                                        : device->ops->pin(device, bytes);
    if (!made)
        return WEFT_ERR_MEMORY;
    if (weft__memories_add(&context->root->device_memories[memory], made) == 0) {
        *data = made;
        return WEFT_OK;
    }
    if (memory == WEFT_MEMORY_DEVICE)
        device->ops->free(device, made);
    else
        device->ops->unpin(device, made);
    return weft__error_memory("memory of a device");
}

void weft_context_device_free(struct weft_context *context, void *data)
{
    struct weft_context *root = context ? context->root : NULL;
    struct weft__device *device;

    if (!root || !data)
        return;
    device = atomic_load_explicit(&root->device, memory_order_acquire);
    if (device && weft__memories_remove(&root->device_memories[WEFT_MEMORY_DEVICE], data))
        device->ops->free(device, data);
    else if (device && weft__memories_remove(&root->device_memories[WEFT_MEMORY_HOST], data))
        device->ops->unpin(device, data);
    else
        weft__log(context, WEFT_LOG_ERROR,
                  "%s: %p is not, or no longer, memory of this context's device", __func__, data);
}

/* ---- copies ---- */

/* Until the stream has passed a ticket, or the device has failed. */
static int await(struct weft__stream *stream, uint32_t ticket)
{
    uint64_t began = weft__now(), looked = began;
    int status = WEFT_OK;

    for (uint32_t turns = 0; status == WEFT_OK && !weft__stream_passed(stream, ticket); turns++) {
        uint64_t now = turns < SPINS ? began : weft__now(), pause = (now - began) / BACK_OFF;

        if (now - looked >= LOOK_NS) {
            status = stream->device->ops->failed(stream);
            looked = now;
        }
        if (turns < SPINS)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = (long)(pause < SLEEP_NS ? pause : SLEEP_NS)},
                      NULL);
    }
    return status;
}

static int put(struct weft__stream *stream, void *to, const void *from, size_t bytes,
               uint32_t *ticket)
{
    const struct weft__device_ops *ops = stream->device->ops;
    int status = ops->copy(stream, to, from, bytes);

    if (status == WEFT_OK)
        status = ops->mark(stream);
    *ticket = stream->issued;
    return status;
}

/* Part `i` of a copy in parts: begins on the stream, ... */
static int begin_part(struct weft__mover *mover, size_t i, char *to, const char *from, size_t bytes,
                      int to_device)
{
    char *part = mover->parts + i % PARTS * PART_BYTES;

    if (to_device)
        memcpy(part, from, bytes);
    return put(mover->stream, to_device ? to : part, to_device ? part : from, bytes,
               &mover->tickets[i % PARTS]);
}

/* ... and ends. */
static int end_part(struct weft__mover *mover, size_t i, char *to, size_t bytes, int to_device)
{
    int status = await(mover->stream, mover->tickets[i % PARTS]);

    if (status == WEFT_OK && !to_device)
        memcpy(to, mover->parts + i % PARTS * PART_BYTES, bytes);
    return status;
}

static size_t part_bytes(size_t i, size_t bytes)
{
    size_t left = bytes - i * PART_BYTES;

    return left < PART_BYTES ? left : PART_BYTES;
}

static int move_parts(struct weft__mover *mover, char *to, const char *from, size_t bytes,
                      int to_device)
{
    struct weft__device *device = mover->stream->device;
    size_t count = bytes / PART_BYTES + (bytes % PART_BYTES != 0);
    int status = WEFT_OK;

    if (!mover->parts && !(mover->parts = device->ops->pin(device, PARTS * PART_BYTES)))
        return WEFT_ERR_MEMORY;
    for (size_t i = 0; i < count + PARTS && status == WEFT_OK; i++) {
        if (i >= PARTS && i - PARTS < count)
            status = end_part(mover, i - PARTS, to + (i - PARTS) * PART_BYTES,
                              part_bytes(i - PARTS, bytes), to_device);
        if (status == WEFT_OK && i < count)
            status = begin_part(mover, i, to + i * PART_BYTES, from + i * PART_BYTES,
                                part_bytes(i, bytes), to_device);
    }
    return status;
}

static int mover_make(struct weft__device *device, struct weft__mover **out)
{
    struct weft__mover *mover = weft__calloc(1, sizeof *mover);
    int status = mover ? device->ops->open(device, &mover->stream)
                       : weft__error_memory("a copy of memory of a device");

    if (status == WEFT_OK)
        *out = mover;
    else
        weft__free(mover);
    return status;
}

static int move(struct weft_context *root, struct weft__device *device, void *to, const void *from,
                size_t bytes, int to_device, int in_parts)
{
    /* Acquire, and release below: what the last one has left is whole. */
    struct weft__mover *mover = atomic_exchange_explicit(&root->mover, NULL, memory_order_acq_rel);
    int status = mover ? WEFT_OK : mover_make(device, &mover);
    uint32_t ticket;

    if (status != WEFT_OK)
        return status;
    if (in_parts)
        status = move_parts(mover, to, from, bytes, to_device);
    else if ((status = put(mover->stream, to, from, bytes, &ticket)) == WEFT_OK)
        status = await(mover->stream, ticket);
    /* What has been begun ends first: the memory is the caller's again. */
    if (status == WEFT_OK)
        mover = atomic_exchange_explicit(&root->mover, mover, memory_order_acq_rel);
    mover_free(mover);
    return status;
}

/* Where an end of a copy is. */
static int find(const char *who, const char *argument, struct weft__device *device,
                const void *data, size_t bytes)
{
    int where = device->ops->where(device, data, bytes);

    return where == WEFT_ERR_INVALID
               ? WEFT__INVALID("%s: argument `%s`: %s", who, argument, weft_error_text())
               : where;
}

static int is_host(int where)
{
    return where == WEFT__ON_HOST || where == WEFT__ON_HOST_PINNED;
}

int weft_context_device_copy(struct weft_context *context, void *to, const void *from, size_t bytes)
{
    struct weft__device *device;
    uintptr_t ahead = (uintptr_t)to - (uintptr_t)from;
    int status, there, here;

    if (!context)
        return WEFT__INVALID("%s: argument `context` is NULL", __func__);
    if (bytes > 0 && (!to || !from))
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !to ? "to" : "from");
    if (ahead != 0 && (ahead < bytes || 0 - ahead < bytes))
        return WEFT__INVALID("%s: %zu bytes at %p and at %p overlap", __func__, bytes, to, from);
    status = weft__context_device(context, &device);
    if (status != WEFT_OK || bytes == 0 || ahead == 0)
        return status;
    there = find(__func__, "to", device, to, bytes);
    here = there < 0 ? there : find(__func__, "from", device, from, bytes);
    if (here < 0)
        return here;
    if (!is_host(there) || !is_host(here))
        return move(context->root, device, to, from, bytes, !is_host(there),
                    there == WEFT__ON_HOST || here == WEFT__ON_HOST);
    memcpy(to, from, bytes);
    return WEFT_OK;
}
