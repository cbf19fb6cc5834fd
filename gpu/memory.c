/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where memory is, and memory itself.
 *
 * What the driver says of an address does not depend on who has allocated it: memory of the
 * runtime's pools, of other libraries and of other processes (CUDA IPC) is found like one's own.
 */
#include "gpu/cuda_device.h"

#include <stdatomic.h>

#include "runtime/base/error.h"

/* What the driver says of an address; all 0 where it knows nothing of it. */
struct about {
    unsigned type; /* CUmemorytype */
    int ordinal;
    unsigned managed;
    CUdeviceptr start;
    size_t bytes;
    CUdeviceptr on_device; /* where the device has it */
    CUcontext context;     /* NULL: it is of a pool, or mapped by parts */
};

static int ask(const struct weft__cuda *cuda, const void *address, struct about *about)
{
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,  CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_CONTEXT,
    };
    void *values[] = {&about->type,  &about->ordinal,   &about->managed, &about->start,
                      &about->bytes, &about->on_device, &about->context};
    CUresult code;

    *about = (struct about){0};
    code = cuda->driver->cuPointerGetAttributes(sizeof names / sizeof *names, names, values,
                                                (CUdeviceptr)(uintptr_t)address);
    return weft__cuda_result(cuda, code, "cuPointerGetAttributes");
}

int weft__cuda_kind(const struct weft__cuda *cuda, const void *address)
{
    struct about about;
    int entered = weft__cuda_enter(cuda);
    int status;

    if (entered < 0)
        return entered;
    status = ask(cuda, address, &about);
    weft__cuda_leave(cuda, entered);
    return status < 0 ? status : about.managed ? 2 : about.type == CU_MEMORYTYPE_DEVICE;
}

static int covers(const struct about *about, const void *address, size_t bytes)
{
    CUdeviceptr offset = (CUdeviceptr)(uintptr_t)address - about->start;

    return offset <= about->bytes && bytes <= about->bytes - offset;
}

static int not_covered(const struct about *about, const void *address, size_t bytes)
{
    return weft__error(
        WEFT_ERR_INVALID, "%zu bytes at %p are not in one allocation: cuda:%d has %zu bytes at %p",
        bytes, address, about->ordinal, about->bytes, (void *)(uintptr_t)about->start);
}

/* ---- other devices ---- */

/* With the lock; the device is current. */
static int meet(struct weft__cuda *cuda, int ordinal, struct weft__cuda_peer *peer)
{
    const struct weft__cuda_driver *driver = cuda->driver;
    int can = 0;
    CUresult code = driver->cuDeviceCanAccessPeer(&can, cuda->ordinal, ordinal);

    if (code)
        return weft__cuda_error(driver, code, "cuDeviceCanAccessPeer", "from %s to cuda:%d",
                                cuda->name, ordinal);
    code = driver->cuDevicePrimaryCtxRetain(&peer->context, ordinal);
    if (code) {
        peer->context = NULL;
        return weft__cuda_error(driver, code, "cuDevicePrimaryCtxRetain", "of cuda:%d", ordinal);
    }
    if (can) {
        code = driver->cuCtxEnablePeerAccess(peer->context, 0);
        if (code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
            code = CUDA_SUCCESS;
        /* The machine, or the number of its peers, may not allow it after all. */
        if (code == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED || code == CUDA_ERROR_TOO_MANY_PEERS)
            can = 0;
        else if (code) {
            driver->cuDevicePrimaryCtxRelease(ordinal);
            peer->context = NULL;
            return weft__cuda_error(driver, code, "cuCtxEnablePeerAccess", "from %s to cuda:%d",
                                    cuda->name, ordinal);
        }
    }
    peer->reached = can;
    return WEFT_OK;
}

/* Who owns a pool, or maps memory by parts, says which devices reach it. */
static int may_access(const struct weft__cuda *cuda, const void *address)
{
    unsigned access = 0;
    CUresult code = cuda->driver->cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
                                                        (CUdeviceptr)(uintptr_t)address);

    /* A driver that cannot tell is no reason to fail: copies work. */
    return !code && access == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
}

/* Memory of another device, or of a context that somebody has made of this one. */
static int where_apart(struct weft__cuda *cuda, const struct about *about, const void *address)
{
    struct weft__cuda_peer *peer = &cuda->peers[about->ordinal];
    int status = WEFT_OK;
    int reached;

    pthread_mutex_lock(&cuda->lock);
    if (about->ordinal != cuda->ordinal && !peer->context)
        status = meet(cuda, about->ordinal, peer);
    reached = peer->reached && about->context == peer->context;
    pthread_mutex_unlock(&cuda->lock);
    if (status < 0)
        return status;
    if (!about->context)
        reached = may_access(cuda, address);
    if (!reached)
        atomic_store_explicit(&cuda->apart, 1, memory_order_relaxed);
    return reached ? WEFT__ON_PEER : WEFT__ON_PEER_APART;
}

void weft__cuda_peers_release(struct weft__cuda *cuda)
{
    for (int i = 0; cuda->peers && i < cuda->devices; i++)
        if (cuda->peers[i].context)
            cuda->driver->cuDevicePrimaryCtxRelease(i);
}

/* ---- where memory is ---- */

static int where_device(struct weft__cuda *cuda, const struct about *about, const void *address,
                        size_t bytes)
{
    if (!covers(about, address, bytes))
        return not_covered(about, address, bytes);
    if (about->ordinal < 0 || about->ordinal >= cuda->devices)
        return weft__error(WEFT_ERR_INVALID, "%p is memory of device %d, of %d", address,
                           about->ordinal, cuda->devices);
    /* What this context has opened, of another process, is reached wherever it is. */
    if (about->managed || about->context == cuda->context ||
        (about->ordinal == cuda->ordinal && !about->context))
        return WEFT__ON_DEVICE;
    return where_apart(cuda, about, address);
}

/* The first byte is the host's: so must the last one be. */
static int where_host(struct weft__cuda *cuda, const struct about *about, const void *address,
                      size_t bytes)
{
    struct about last;
    int status;

    if (about->type == CU_MEMORYTYPE_HOST && covers(about, address, bytes) &&
        about->on_device == (CUdeviceptr)(uintptr_t)address)
        return WEFT__ON_HOST_PINNED;
    if (bytes < 2)
        return WEFT__ON_HOST;
    status = ask(cuda, (const char *)address + bytes - 1, &last);
    if (status < 0)
        return status;
    if (last.type == CU_MEMORYTYPE_DEVICE)
        return not_covered(&last, address, bytes);
    return WEFT__ON_HOST;
}

int weft__cuda_where(struct weft__device *device, const void *address, size_t bytes)
{
    struct weft__cuda *cuda = weft__cuda_of(device);
    struct about about;
    int entered = weft__cuda_enter(cuda);
    int status;

    if (entered < 0)
        return entered;
    status = ask(cuda, address, &about);
    if (status == WEFT_OK)
        status = about.managed || about.type == CU_MEMORYTYPE_DEVICE
                     ? where_device(cuda, &about, address, bytes)
                     : where_host(cuda, &about, address, bytes);
    weft__cuda_leave(cuda, entered);
    return status;
}

/* ---- copies between devices that do not reach each other ---- */

/* The context that memory is in; NULL: the host's. */
static CUcontext context_of(struct weft__cuda *cuda, const struct about *about)
{
    CUcontext found = about->context;

    if (about->type != CU_MEMORYTYPE_DEVICE || about->managed)
        return NULL;
    if (!found && about->ordinal == cuda->ordinal)
        return cuda->context;
    if (!found && about->ordinal >= 0 && about->ordinal < cuda->devices) {
        pthread_mutex_lock(&cuda->lock);
        found = cuda->peers[about->ordinal].context;
        pthread_mutex_unlock(&cuda->lock);
    }
    return found;
}

int weft__cuda_copy_apart(struct weft__cuda *cuda, CUstream stream, void *dst, const void *src,
                          size_t bytes)
{
    struct about to, from;
    CUcontext to_context, from_context;
    int status = ask(cuda, dst, &to);

    if (status == WEFT_OK)
        status = ask(cuda, src, &from);
    if (status < 0)
        return status;
    to_context = context_of(cuda, &to);
    from_context = context_of(cuda, &from);
    if (!to_context)
        to_context = from_context ? from_context : cuda->context;
    if (!from_context)
        from_context = to_context;
    return weft__cuda_result(
        cuda,
        cuda->driver->cuMemcpyPeerAsync((CUdeviceptr)(uintptr_t)dst, to_context,
                                        (CUdeviceptr)(uintptr_t)src, from_context, bytes, stream),
        "cuMemcpyPeerAsync");
}

/* ---- memory ---- */
