/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators: made by all ranks together, split, finalized, destroyed, aborted. None is ever
 * freed, so that one that was destroyed is known. */
#include "nccl_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAGIC = 0x6e636c73, CONFIG_MAGIC = 0xcafebeef };

static uint64_t host_of(void)
{
    const char *text = getenv("NCCL_HOSTID");
    uint64_t hash = 5381;
    for (; text && *text; text++)
        hash = hash * 33 + (unsigned char)*text;
    return hash;
}

static void nap(void)
{
    nanosleep(&(struct timespec){0, 50000}, NULL);
}

/* ---- what takes its time ---- */

bool nccl__poll(ncclComm_t comm)
{
    if (!comm->advance)
        return true;
    if (comm->polls > 0) {
        comm->polls--;
        return false;
    }
    if (!comm->advance(comm))
        return false;
    comm->advance = NULL;
    return true;
}

ncclResult_t nccl__begin(ncclComm_t comm, bool (*advance)(ncclComm_t))
{
    comm->advance = advance;
    comm->polls = comm->blocking ? 0 : (int)nccl__draw((unsigned)nccl__progress + 1);
    if (nccl__in_group()) {
        nccl__group_add(comm);
        return ncclSuccess;
    }
    while (!nccl__poll(comm)) {
        if (!comm->blocking)
            return ncclInProgress;
        nap();
    }
    return (ncclResult_t)atomic_load(&comm->error);
}

/* ---- joining ---- */

static void compare_devices(ncclComm_t comm)
{
    const struct nccl_rank *ranks = comm->world->ranks;
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && ranks[r].device == ranks[comm->rank].device &&
            ranks[r].host == ranks[comm->rank].host) {
            nccl__misuse(comm, ncclInvalidUsage, "ranks %d and %d are both on device %d",
                         comm->rank, r, comm->device);
            atomic_store(&comm->error, ncclInvalidUsage);
            return;
        }
}

static bool all_joined(ncclComm_t comm)
{
    if (!comm->world) /* a child whose parent is not that far */
        return false;
    nccl__world_lock(comm->world);
    bool all = comm->world->joined == comm->size;
    nccl__world_unlock(comm->world);
    if (all)
        compare_devices(comm);
    return all;
}

static ncclResult_t join(ncclComm_t comm)
{
    ncclResult_t result = ncclSuccess;
    struct nccl_world *world = nccl__world_open(comm->name, comm->size);
    if (!world)
        return ncclSystemError;
    pthread_mutex_lock(&comm->lock);
    comm->world = world;
    pthread_mutex_unlock(&comm->lock);
    nccl__world_lock(comm->world);
    struct nccl_rank *rank = &comm->world->ranks[comm->rank];
    if (comm->world->size != comm->size || rank->joined)
        result =
            nccl__misuse(comm, ncclInvalidArgument, "rank %d of %d: %s", comm->rank, comm->size,
                         rank->joined ? "it is there already" : "others say another size");
    if (!result) {
        rank->joined = 1;
        rank->device = comm->device;
        rank->host = host_of();
        if (++comm->world->joined == comm->size)
            nccl__world_unlink(comm->name);
        nccl__world_changed(comm->world);
    }
    nccl__world_unlock(comm->world);
    return result;
}

static ncclComm_t create(int rank, int size, const char *name, bool blocking)
{
    ncclComm_t comm = calloc(1, sizeof *comm);
    CUdevice device;
    if (!comm || cuCtxGetCurrent(&comm->context) || cuCtxGetDevice(&device)) {
        free(comm);
        return NULL;
    }
    comm->live = true;
    comm->rank = rank;
    comm->size = size;
    comm->device = device;
    comm->blocking = blocking;
    snprintf(comm->name, sizeof comm->name, "%s", name);
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->done_cond, NULL);
    return comm;
}

static void publish(ncclComm_t comm)
{
    pthread_mutex_lock(&nccl__lock);
    comm->next = nccl__comms;
    nccl__comms = comm;
    pthread_mutex_unlock(&nccl__lock);
}

NCCL_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static _Atomic unsigned made;
    ncclResult_t result = nccl__enter(__func__, NULL, CALL_ANY);
    if (!result && !id)
        result = nccl__misuse(NULL, ncclInvalidArgument, "NULL");
    if (!result) {
        struct timespec time;
        clock_gettime(CLOCK_REALTIME, &time);
        memset(id, 0, sizeof *id);
        memcpy(id->internal, &(int){MAGIC}, sizeof(int));
        snprintf(id->internal + 4, sizeof id->internal - 4, "/standin-nccl-%d-%u-%lx",
                 (int)getpid(), atomic_fetch_add(&made, 1), (unsigned long)time.tv_nsec);
    }
    return nccl__leave(NULL, result);
}

static ncclResult_t check_config(const ncclConfig_t *config, bool *blocking)
{
    *blocking = true;
    if (!config)
        return ncclSuccess;
    if (config->magic != CONFIG_MAGIC || config->size > sizeof *config)
        return nccl__misuse(NULL, ncclInvalidArgument,
                            "the configuration is not that of NCCL_CONFIG_INITIALIZER");
    if (config->blocking != NCCL_CONFIG_UNDEF_INT && (unsigned)config->blocking > 1)
        return nccl__misuse(NULL, ncclInvalidArgument, "blocking is %d", config->blocking);
    *blocking = config->blocking != 0;
    return ncclSuccess;
}

static ncclResult_t init(const char *name, ncclComm_t *to, int size, ncclUniqueId id, int rank,
                         const ncclConfig_t *config)
{
    bool blocking;
    int magic;
    ncclResult_t result = nccl__enter(name, NULL, CALL_ANY);
    memcpy(&magic, id.internal, sizeof magic);
    if (!result && (!to || size < 1 || size > RANKS_MAX || rank < 0 || rank >= size ||
                    magic != MAGIC || id.internal[NCCL_UNIQUE_ID_BYTES - 1]))
        result = nccl__misuse(NULL, ncclInvalidArgument, "rank %d of %d, %s", rank, size,
                              magic == MAGIC ? "to be kept" : "with no unique id");
    if (!result)
        result = check_config(config, &blocking);
    if (result)
        return nccl__leave(NULL, result);
    ncclComm_t comm = create(rank, size, id.internal + 4, blocking);
    if (!comm)
        return nccl__leave(NULL, ncclUnhandledCudaError);
    if ((result = join(comm))) {
        nccl__world_close(comm->world);
        free(comm);
        return nccl__leave(NULL, result);
    }
    publish(comm);
    *to = comm;
    return nccl__leave(NULL, nccl__begin(comm, all_joined));
}

NCCL_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
                                                int rank, ncclConfig_t *config)
{
    return init(__func__, comm, size, id, rank, config);
}

NCCL_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank)
{
    return init(__func__, comm, size, id, rank, NULL);
}

/* ---- splitting ---- */

/* The place of a rank among those of its color: by key, then rank. */
static int place_of(const struct nccl_world *world, int rank, int at, int *size)
{
    int color = world->ranks[rank].splits[at].color, key = world->ranks[rank].splits[at].key;
    int place = 0;
    *size = 0;
    for (int r = 0; r < world->size; r++) {
        int other = world->ranks[r].splits[at].key;
        if (world->ranks[r].splits[at].color != color)
            continue;
        ++*size;
        place += other < key || (other == key && r < rank);
    }
    return place;
}

static bool all_split(ncclComm_t comm)
{
    struct nccl_world *world = comm->world;
    ncclComm_t child = comm->child;
    int at = comm->split - 1;
    bool all = true;
    if (child)
        pthread_mutex_lock(&child->lock);
    nccl__world_lock(world);
    for (int r = 0; r < comm->size; r++)
        all &= world->ranks[r].splits[at].said;
    if (all && child && !child->world) {
        child->rank = place_of(world, comm->rank, at, &child->size);
        snprintf(child->name, sizeof child->name, "%.90s-%d.%d", comm->name, at,
                 world->ranks[comm->rank].splits[at].color);
    }
    nccl__world_unlock(world);
    if (child)
        pthread_mutex_unlock(&child->lock);
    if (!all)
        return false;
    if (child && !child->world && join(child))
        atomic_store(&child->error, ncclSystemError);
    else if (child && !all_joined(child))
        return false;
    if (child && child->blocking)
        child->advance = NULL;
    comm->child = NULL;
    return true;
}

NCCL_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *to,
                                       ncclConfig_t *config)
{
    bool blocking = true;
    ncclComm_t child = NULL;
    ncclResult_t result = nccl__enter(__func__, comm, CALL_COMM | CALL_READY | CALL_DEVICE);
    if (!result && (!to || (color < 0 && color != NCCL_SPLIT_NOCOLOR) || nccl__in_group()))
        result = nccl__misuse(comm, ncclInvalidArgument, "color %d%s", color,
                              nccl__in_group() ? ", in a group" : "");
    if (!result)
        result = check_config(config, &blocking);
    if (!result && comm->split == SPLITS_MAX)
        result = ncclSystemError;
    if (result)
        return nccl__leave(comm, result);
    if (color >= 0) {
        child = create(0, 1, "", config ? blocking : comm->blocking);
        if (!child)
            return nccl__leave(comm, ncclUnhandledCudaError);
        child->advance = all_joined;
        child->polls = child->blocking ? 0 : (int)nccl__draw((unsigned)nccl__progress + 1);
        publish(child);
    }
    nccl__world_lock(comm->world);
    comm->world->ranks[comm->rank].splits[comm->split].color = color;
    comm->world->ranks[comm->rank].splits[comm->split].key = key;
    comm->world->ranks[comm->rank].splits[comm->split].said = 1;
    nccl__world_changed(comm->world);
    nccl__world_unlock(comm->world);
    comm->split++;
    comm->child = child;
    *to = child;
    return nccl__leave(comm, nccl__begin(comm, all_split));
}

/* ---- ends ---- */

static bool drained(ncclComm_t comm)
{
    pthread_mutex_lock(&comm->lock);
    bool all = comm->done == comm->issued;
    pthread_mutex_unlock(&comm->lock);
    return all && !comm->held;
}

NCCL_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result = nccl__enter(__func__, comm, CALL_COMM | CALL_READY | CALL_DEVICE);
    if (result)
        return nccl__leave(comm, result);
    comm->finalized = true;
    return nccl__leave(comm, nccl__begin(comm, drained));
}

static void end(ncclComm_t comm)
{
    pthread_mutex_lock(&comm->lock);
    if (comm->world) {
        nccl__world_lock(comm->world);
        bool all = comm->world->joined == comm->size;
        nccl__world_unlock(comm->world);
        if (!all)
            nccl__world_unlink(comm->name);
    }
    nccl__world_close(comm->world);
    comm->world = NULL;
    comm->live = false;
    pthread_mutex_unlock(&comm->lock);
}

NCCL_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    ncclResult_t result =
        nccl__enter(__func__, comm, CALL_COMM | CALL_READY | CALL_DEVICE | CALL_RELEASES);
    if (result)
        return nccl__leave(comm, result);
    while (!drained(comm))
        nap();
    end(comm);
    return nccl__leave(comm, ncclSuccess);
}

NCCL_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    ncclResult_t result = nccl__enter(__func__, comm, CALL_COMM | CALL_RELEASES);
    if (result)
        return nccl__leave(comm, result);
    atomic_store(&comm->aborted, 1);
    while (comm->held) {
        struct nccl_launch *launch = comm->held;
        comm->held = launch->next;
        nccl__launch_free(launch);
    }
    if (comm->world) {
        nccl__world_lock(comm->world);
        nccl__world_changed(comm->world);
        nccl__world_unlock(comm->world);
    }
    while (!drained(comm))
        nap();
    end(comm);
    return nccl__leave(comm, ncclSuccess);
}

/* ---- questions ---- */

NCCL_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    ncclResult_t result = nccl__enter(__func__, comm, CALL_COMM);
    if (!result && !error)
        result = nccl__misuse(comm, ncclInvalidArgument, "NULL");
    if (!result) {
        bool done = nccl__poll(comm);
        *error = atomic_load(&comm->error) ? (ncclResult_t)atomic_load(&comm->error)
                 : done                    ? ncclSuccess
                                           : ncclInProgress;
    }
    return nccl__leave(comm, result);
}

static ncclResult_t ask(const char *name, ncclComm_t comm, const int *from, int *to)
{
    ncclResult_t result = nccl__enter(name, comm, CALL_COMM | CALL_READY);
    if (!result && !to)
        result = nccl__misuse(comm, ncclInvalidArgument, "NULL");
    if (!result)
        *to = *from;
    return nccl__leave(comm, result);
}

NCCL_EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    return ask(__func__, comm, comm ? &comm->size : NULL, count);
}

NCCL_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return ask(__func__, comm, comm ? &comm->rank : NULL, rank);
}

NCCL_EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return ask(__func__, comm, comm ? &comm->device : NULL, device);
}

NCCL_EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
    ncclResult_t result = comm ? nccl__enter(__func__, comm, CALL_COMM) : ncclSuccess;
    if (comm)
        nccl__leave(comm, result);
    return comm && !result ? comm->last_error : "";
}

/* ---- buffers ---- */

NCCL_EXPORT ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t size,
                                          void **handle)
{
    ncclResult_t result = nccl__enter(__func__, comm, CALL_COMM | CALL_READY | CALL_DEVICE);
    if (!result && (!buffer || !size || !handle ||
                    !standin_reach(comm->device, (unsigned long long)(uintptr_t)buffer, size)))
        result = nccl__misuse(comm, ncclInvalidArgument, "%zu bytes at %p", size, buffer);
    struct nccl_buffer *made = result ? NULL : calloc(1, sizeof *made);
    if (made) {
        made->live = true;
        pthread_mutex_lock(&comm->lock);
        made->next = comm->buffers;
        comm->buffers = made;
        pthread_mutex_unlock(&comm->lock);
        *handle = made;
    }
    return nccl__leave(comm, result);
}

NCCL_EXPORT ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    struct nccl_buffer *found = NULL;
    ncclResult_t result = nccl__enter(__func__, comm, CALL_COMM | CALL_RELEASES);
    if (result)
        return nccl__leave(comm, result);
    pthread_mutex_lock(&comm->lock);
    for (struct nccl_buffer *buffer = comm->buffers; buffer; buffer = buffer->next)
        if (buffer == handle && buffer->live)
            found = buffer;
    if (found)
        found->live = false;
    pthread_mutex_unlock(&comm->lock);
    if (!found)
        result = nccl__misuse(comm, ncclInvalidArgument, "%p is no registered buffer", handle);
    return nccl__leave(comm, result);
}
