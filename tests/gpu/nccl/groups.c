/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations are put into the group of the thread; what is outside of one is a group of its own. At
 * the end of the group each communicator has one launch: on its stream at once, or, if it does not
 * block, when it is polled. */
#include "nccl_inside.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GROUP_COMMS_MAX = 64 };

static _Thread_local struct {
    int depth;
    ncclResult_t error;
    struct nccl_launch *launches, **last;
    ncclComm_t comms[GROUP_COMMS_MAX]; /* that something has begun of */
    int comm_count;
} group;

bool nccl__in_group(void)
{
    return group.depth > 0;
}

void nccl__group_add(ncclComm_t comm)
{
    for (int i = 0; i < group.comm_count; i++)
        if (group.comms[i] == comm)
            return;
    if (group.comm_count < GROUP_COMMS_MAX)
        group.comms[group.comm_count++] = comm;
    comm->grouped = true;
    comm->group_thread = pthread_self();
}

void nccl__group_error(ncclResult_t result)
{
    if (!group.error)
        group.error = result;
}

/* ---- launches ---- */

void nccl__launch_free(struct nccl_launch *launch)
{
    free(launch->ops);
    free(launch);
}

ncclResult_t nccl__issue(struct nccl_launch *launch)
{
    ncclComm_t comm = launch->comm;
    int failed = cuCtxPushCurrent(comm->context);
    if (failed) {
        nccl__launch_free(launch);
        return ncclUnhandledCudaError;
    }
    pthread_mutex_lock(&comm->lock);
    launch->ticket = ++comm->issued;
    pthread_mutex_unlock(&comm->lock);
    failed = standin_foreign(launch->stream, nccl__execute, launch);
    if (failed) {
        pthread_mutex_lock(&comm->lock);
        comm->issued--;
        pthread_mutex_unlock(&comm->lock);
        nccl__launch_free(launch);
    }
    return cuCtxPopCurrent(NULL) || failed ? ncclUnhandledCudaError : ncclSuccess;
}

static bool issue_held(ncclComm_t comm)
{
    while (comm->held) {
        struct nccl_launch *launch = comm->held;
        comm->held = launch->next;
        ncclResult_t result = nccl__issue(launch);
        if (result)
            atomic_store(&comm->error, (int)result);
    }
    return true;
}

static struct nccl_launch *launch_of(ncclComm_t comm, CUstream stream)
{
    for (struct nccl_launch *launch = group.launches; launch; launch = launch->next)
        if (launch->comm == comm) {
            if (launch->stream != stream)
                nccl__misuse(comm, ncclInvalidUsage,
                             "rank %d: two streams in a group; the stand-in has one", comm->rank);
            return launch;
        }
    struct nccl_launch *launch = calloc(1, sizeof *launch);
    if (!launch)
        abort();
    launch->comm = comm;
    launch->stream = stream;
    if (!group.launches)
        group.last = &group.launches;
    *group.last = launch;
    group.last = &launch->next;
    return launch;
}

static void add(ncclComm_t comm, CUstream stream, const struct nccl_op *op)
{
    struct nccl_launch *launch = launch_of(comm, stream);
    if (launch->count == launch->space) {
        launch->space = launch->space ? 2 * launch->space : 4;
        launch->ops = realloc(launch->ops, launch->space * sizeof *launch->ops);
        if (!launch->ops)
            abort();
    }
    launch->ops[launch->count++] = *op;
    nccl__group_add(comm);
}

/* ---- groups ---- */

static void wait_for_blocking(void)
{
    bool all = false;
    while (!all) {
        all = true;
        for (int i = 0; i < group.comm_count; i++)
            all &= !group.comms[i]->blocking || nccl__poll(group.comms[i]);
        if (!all)
            nanosleep(&(struct timespec){0, 50000}, NULL);
    }
}

/* Of a communicator that does not block: what it has is issued when it has been polled. */
static void hold(struct nccl_launch *launch)
{
    struct nccl_launch **place = &launch->comm->held;
    while (*place)
        place = &(*place)->next;
    *place = launch;
    launch->comm->advance = issue_held;
    launch->comm->polls = (int)nccl__draw((unsigned)nccl__progress + 1);
}

static ncclResult_t end_group(void)
{
    ncclResult_t result = group.error;
    struct nccl_launch *launch = group.launches, *next;
    group.launches = NULL;
    if (!result)
        wait_for_blocking();
    for (int i = 0; i < group.comm_count; i++) {
        ncclComm_t comm = group.comms[i];
        comm->grouped = false;
        if (!result)
            result = (ncclResult_t)atomic_load(&comm->error);
    }
    for (; launch; launch = next) {
        next = launch->next;
        launch->next = NULL;
        if (result)
            nccl__launch_free(launch);
        else if (launch->comm->blocking)
            result = nccl__issue(launch);
        else
            hold(launch);
    }
    for (int i = 0; i < group.comm_count && !result; i++)
        if (!group.comms[i]->blocking && !nccl__poll(group.comms[i]))
            result = ncclInProgress;
    group.comm_count = 0;
    group.error = ncclSuccess;
    return result;
}

NCCL_EXPORT ncclResult_t ncclGroupStart(void)
{
    ncclResult_t result = nccl__enter(__func__, NULL, CALL_ANY);
    if (!result)
        group.depth++;
    return nccl__leave(NULL, result);
}

NCCL_EXPORT ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t result = nccl__enter(__func__, NULL, CALL_RELEASES);
    if (!result && !group.depth)
        result = nccl__misuse(NULL, ncclInvalidUsage, "without ncclGroupStart()");
    if (!result && --group.depth == 0)
        result = end_group();
    return nccl__leave(NULL, result);
}

/* ---- operations ---- */

/* Bytes of both buffers. */
static uint64_t from_bytes(const struct nccl_op *op, int rank, int size)
{
    uint64_t bytes = op->count * nccl__type_size(op->type);
    if (op->kind == KIND_RECV || (op->kind == KIND_BROADCAST && rank != op->peer))
        return 0;
    return op->kind == KIND_REDUCE_SCATTER ? bytes * (uint64_t)size : bytes;
}

static uint64_t to_bytes(const struct nccl_op *op, int rank, int size)
{
    uint64_t bytes = op->count * nccl__type_size(op->type);
    if (op->kind == KIND_SEND || (op->kind == KIND_REDUCE && rank != op->peer))
        return 0;
    return op->kind == KIND_ALL_GATHER ? bytes * (uint64_t)size : bytes;
}

static bool reduces(enum nccl_kind kind)
{
    return kind == KIND_ALL_REDUCE || kind == KIND_REDUCE || kind == KIND_REDUCE_SCATTER;
}

static ncclResult_t check(ncclComm_t comm, struct nccl_op *op, const void *from, void *to,
                          CUstream stream)
{
    CUcontext context;
    uint64_t reads = from_bytes(op, comm->rank, comm->size);
    uint64_t writes = to_bytes(op, comm->rank, comm->size);
    if (atomic_load(&comm->error))
        return (ncclResult_t)atomic_load(&comm->error);
    if (!nccl__type_size(op->type) || op->peer < 0 || op->peer >= comm->size ||
        (reduces(op->kind) && (op->type >= ncclFloat8e4m3 || op->op < 0 || op->op > ncclAvg)))
        return nccl__misuse(comm, ncclInvalidArgument,
                            "rank %d of %d: type %d, operation %d, peer or root %d", comm->rank,
                            comm->size, op->type, op->op, op->peer);
    if (cuStreamGetCtx(stream, &context))
        return ncclUnhandledCudaError;
    if (context != comm->context)
        return nccl__misuse(comm, ncclInvalidArgument,
                            "rank %d: the stream is of another device than %d", comm->rank,
                            comm->device);
    op->from = reads ? standin_reach(comm->device, (uintptr_t)from, reads) : NULL;
    op->to = writes ? standin_reach(comm->device, (uintptr_t)to, writes) : NULL;
    if ((reads && !op->from) || (writes && !op->to))
        return nccl__misuse(comm, ncclInvalidArgument, "rank %d: a buffer is not there",
                            comm->rank);
    return ncclSuccess;
}

static ncclResult_t operate(const char *name, struct nccl_op op, const void *from, void *to,
                            ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result = nccl__enter(name, comm, CALL_COMM | CALL_READY | CALL_DEVICE);
    if (!result)
        result = check(comm, &op, from, to, (CUstream)stream);
    if (result) {
        if (group.depth)
            nccl__group_error(result);
        return nccl__leave(comm, result);
    }
    add(comm, (CUstream)stream, &op);
    if (!group.depth)
        result = end_group();
    return nccl__leave(comm, result);
}

NCCL_EXPORT ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                                  ncclComm_t comm, cudaStream_t stream)
{
    struct nccl_op op = {.kind = KIND_SEND, .peer = peer, .count = count, .type = (int)type};
    return operate(__func__, op, from, NULL, comm, stream);
}

NCCL_EXPORT ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer,
                                  ncclComm_t comm, cudaStream_t stream)
{
    struct nccl_op op = {.kind = KIND_RECV, .peer = peer, .count = count, .type = (int)type};
    return operate(__func__, op, NULL, to, comm, stream);
}

NCCL_EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count,
                                       ncclDataType_t type, ncclRedOp_t with, ncclComm_t comm,
                                       cudaStream_t stream)
{
    struct nccl_op op = {
        .kind = KIND_ALL_REDUCE, .count = count, .type = (int)type, .op = (int)with};
    return operate(__func__, op, from, to, comm, stream);
}

NCCL_EXPORT ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                                    ncclRedOp_t with, int root, ncclComm_t comm,
                                    cudaStream_t stream)
{
    struct nccl_op op = {
        .kind = KIND_REDUCE, .peer = root, .count = count, .type = (int)type, .op = (int)with};
    return operate(__func__, op, from, to, comm, stream);
}

NCCL_EXPORT ncclResult_t ncclBroadcast(const void *from, void *to, size_t count,
                                       ncclDataType_t type, int root, ncclComm_t comm,
                                       cudaStream_t stream)
{
    struct nccl_op op = {.kind = KIND_BROADCAST, .peer = root, .count = count, .type = (int)type};
    return operate(__func__, op, from, to, comm, stream);
}

NCCL_EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count,
                                           ncclDataType_t type, ncclRedOp_t with, ncclComm_t comm,
                                           cudaStream_t stream)
{
    struct nccl_op op = {
        .kind = KIND_REDUCE_SCATTER, .count = count, .type = (int)type, .op = (int)with};
    return operate(__func__, op, from, to, comm, stream);
}

NCCL_EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t count,
                                       ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    struct nccl_op op = {.kind = KIND_ALL_GATHER, .count = count, .type = (int)type};
    return operate(__func__, op, from, to, comm, stream);
}
