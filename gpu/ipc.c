/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of other processes: allocations are exported by their handles, opened when the first
 * message out of them comes, and kept open.
 *
 * The driver may wait for the device before it closes one, as it does before it frees memory
 * (pool.c), and an engine waits for no device: so what is to be closed waits for the next run that
 * is created, where the driver may wait anyway. That also bounds how many there are: beyond
 * MOST_OPEN nothing is opened, and the messages are staged.
 *
 * What the exporting process has freed stays where it is until it is closed here. An allocation
 * that is at its addresses later has another number.
 */
#include "gpu/cuda_device.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"

enum {
    MOST_OPEN = 256,
    KEPT_OPEN = 64 /* of what nobody uses, where a run is created */
};

struct weft__imported {
    struct weft__imported *next; /* the one that was used before */
    struct weft__exported exported;
    CUdeviceptr address; /* 0: the driver has refused it, and is not asked again */
    unsigned uses;
    int stale; /* not found any more */
};

void weft__cuda_ipc_begin(struct weft__cuda *cuda)
{
    pthread_mutex_init(&cuda->imports.lock, NULL);
    if (getrandom(&cuda->owner, sizeof cuda->owner, GRND_NONBLOCK) != sizeof cuda->owner)
        cuda->owner = weft__now() ^ (uint64_t)getpid() << 32 ^ (uint64_t)cuda->ordinal;
}

/* ---- exporting ---- */

struct about {
    unsigned type;
    unsigned char capable; /* a bool of C++ */
    CUcontext context;
    CUdeviceptr start;
    size_t bytes;
    unsigned long long id;
};

static int ask(const struct weft__cuda *cuda, const void *address, struct about *about)
{
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_CONTEXT,     CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,  CU_POINTER_ATTRIBUTE_BUFFER_ID,
    };
    void *values[] = {&about->type,  &about->capable, &about->context,
                      &about->start, &about->bytes,   &about->id};

    *about = (struct about){0};
    return cuda->driver->cuPointerGetAttributes(sizeof names / sizeof *names, names, values,
                                                (CUdeviceptr)(uintptr_t)address) == CUDA_SUCCESS;
}

static int export_it(const struct weft__cuda *cuda, const void *address, size_t bytes,
                     struct weft__exported *exported, uint64_t *offset)
{
    CUdeviceptr place = (CUdeviceptr)(uintptr_t)address;
    CUipcMemHandle handle;
    struct about about;

    if (!ask(cuda, address, &about) || about.type != CU_MEMORYTYPE_DEVICE || !about.capable ||
        about.context != cuda->context || place - about.start > about.bytes ||
        bytes > about.bytes - (place - about.start) ||
        cuda->driver->cuIpcGetMemHandle(&handle, about.start))
        return 0;
    *exported = (struct weft__exported){
        .owner = cuda->owner, .id = about.id, .base = about.start, .bytes = about.bytes};
    memcpy(exported->handle, &handle, sizeof exported->handle);
    *offset = place - about.start;
    return 1;
}
_Static_assert(sizeof(CUipcMemHandle) == sizeof((struct weft__exported){0}.handle),
               "it is what is handed on");

int weft__cuda_export(struct weft__device *device, const void *address, size_t bytes,
                      struct weft__exported *exported, uint64_t *offset)
{
    const struct weft__cuda *cuda = weft__cuda_of(device);
    int entered = weft__cuda_enter_last(cuda);
    int done;

    if (entered < 0)
        return 0;
    done = export_it(cuda, address, bytes, exported, offset);
    weft__cuda_leave(cuda, entered);
    return done;
}

/* ---- importing ---- */

static int overlap(const struct weft__exported *a, const struct weft__exported *b)
{
    return a->base - b->base < b->bytes || b->base - a->base < a->bytes;
}

/* With the lock: what is open of an allocation, which is the latest one used now. Others of the
 * same addresses are no more. */
static struct weft__imported *find(struct weft__cuda *cuda, const struct weft__exported *exported)
{
    struct weft__imported *found = NULL;

    for (struct weft__imported **link = &cuda->imports.first; *link; link = &(*link)->next) {
        struct weft__imported *imported = *link;

        if (imported->stale || imported->exported.owner != exported->owner)
            continue;
        if (imported->exported.id == exported->id) {
            found = imported;
            *link = imported->next;
            imported->next = cuda->imports.first;
            cuda->imports.first = imported;
            break;
        }
        imported->stale = overlap(&imported->exported, exported);
    }
    return found;
}

/* With the lock. */
static struct weft__imported *open_it(struct weft__cuda *cuda,
                                      const struct weft__exported *exported)
{
    struct weft__imported *made;
    CUipcMemHandle handle;
    int entered;

    if (cuda->imports.count >= MOST_OPEN || !(made = weft__calloc(1, sizeof *made)))
        return NULL;
    made->exported = *exported;
    memcpy(&handle, exported->handle, sizeof handle);
    entered = weft__cuda_enter_last(cuda);
    if (entered < 0 || cuda->driver->cuIpcOpenMemHandle(&made->address, handle,
                                                        CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
        made->address = 0;
    weft__cuda_leave(cuda, entered);
    made->next = cuda->imports.first;
    cuda->imports.first = made;
    cuda->imports.count++;
    return made;
}

void *weft__cuda_import(struct weft__device *device, const struct weft__exported *exported,
                        struct weft__imported **imported)
{
    struct weft__cuda *cuda = weft__cuda_of(device);
    struct weft__imported *found;

    pthread_mutex_lock(&cuda->imports.lock);
    found = find(cuda, exported);
    if (!found)
        found = open_it(cuda, exported);
    if (found && found->address)
        found->uses++;
    else
        found = NULL;
    pthread_mutex_unlock(&cuda->imports.lock);
    *imported = found;
    return found ? (void *)(uintptr_t)found->address : NULL;
}

void weft__cuda_return(struct weft__device *device, struct weft__imported *imported)
{
    struct weft__cuda *cuda = weft__cuda_of(device);

    pthread_mutex_lock(&cuda->imports.lock);
    imported->uses--;
    pthread_mutex_unlock(&cuda->imports.lock);
}

void weft__cuda_forget(struct weft__device *device, uint64_t owner)
{
    struct weft__cuda *cuda = weft__cuda_of(device);

    pthread_mutex_lock(&cuda->imports.lock);
    for (struct weft__imported *imported = cuda->imports.first; imported; imported = imported->next)
        imported->stale |= imported->exported.owner == owner;
    pthread_mutex_unlock(&cuda->imports.lock);
}

/* ---- closing ---- */

/* Takes out what nobody uses: all that is stale, and of the rest what is beyond `kept`. */
static struct weft__imported *take_idle(struct weft__cuda *cuda, unsigned kept)
{
    struct weft__imported *taken = NULL;
    unsigned idle = 0;

    pthread_mutex_lock(&cuda->imports.lock);
    for (struct weft__imported **link = &cuda->imports.first; *link;) {
        struct weft__imported *imported = *link;

        if (imported->uses > 0 || (!imported->stale && ++idle <= kept)) {
            link = &imported->next;
            continue;
        }
        *link = imported->next;
        imported->next = taken;
        taken = imported;
        cuda->imports.count--;
    }
    pthread_mutex_unlock(&cuda->imports.lock);
    return taken;
}

/* Without the lock: others go on importing while the driver waits. */
static void close_idle(struct weft__cuda *cuda, unsigned kept)
{
    struct weft__imported *taken = take_idle(cuda, kept);

    while (taken) {
        struct weft__imported *next = taken->next;

        if (taken->address)
            cuda->driver->cuIpcCloseMemHandle(taken->address);
        weft__free(taken);
        taken = next;
    }
}

void weft__cuda_ipc_trim(struct weft__cuda *cuda)
{
    close_idle(cuda, KEPT_OPEN);
}

void weft__cuda_ipc_end(struct weft__cuda *cuda, int current)
{
    if (current)
        close_idle(cuda, 0);
    while (cuda->imports.first) { /* the driver cannot be used any more */
        struct weft__imported *imported = cuda->imports.first;

        cuda->imports.first = imported->next;
        weft__free(imported);
    }
    pthread_mutex_destroy(&cuda->imports.lock);
}
