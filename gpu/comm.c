/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators of NCCL. They do not block, and only the thread that drives calls them, one call at
 * a time: that is the one way in which NCCL can be aborted.
 *
 * Ending one may take its time: NCCL waits for its own threads, and for what is on streams. So a
 * device has a thread for that, from the first communicator on that ends:
 *
 *     engine                                    the thread
 *       comm_abort(c)  ----- list ----------->  a thread for ncclCommAbort(c); c is gone
 *       comm_close(c)  ----- list ----------->  ncclCommFinalize(c) ..., ncclCommDestroy(c)
 *
 * ncclCommAbort() returns when nothing of its communicator is on a stream any more. What is before
 * it there may be of another communicator that is to be aborted too: so each has a thread.
 */
#include "gpu/cuda_device.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "gpu/nccl.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

_Static_assert(NCCL_UNIQUE_ID_BYTES == WEFT__COMM_ID_BYTES, "an id is NCCL's");

struct weft__cuda_comm {
    struct weft__comm comm; /* first */
    struct weft__cuda *cuda;
    const struct weft__nccl *nccl;
    ncclComm_t handle;
    struct weft__cuda_comm *next; /* in the list of the thread */
    int aborted;                  /* to be closed afterwards */
    int closed; /* nobody has it any more; with the lock, once the thread has it */
    /* The thread's. */
    int finalized;
    int aborting;
    pthread_t aborter;
    atomic_int over; /* `aborter` has nothing left to do */
};

static struct weft__cuda_comm *comm_of(struct weft__comm *comm)
{
    return (struct weft__cuda_comm *)comm;
}

/* ---- the thread ---- */

/* Goes on with one that is being closed: 1, once NCCL has let it go. The device is current, as in
 * all that ends one; what fails there is NCCL's. */
static int close_more(struct weft__cuda_comm *comm)
{
    const struct weft__nccl *nccl = comm->nccl;
    ncclResult_t state = ncclSuccess;

    if (!comm->finalized)
        state = nccl->ncclCommFinalize(comm->handle);
    else if (nccl->ncclCommGetAsyncError(comm->handle, &state))
        state = ncclInternalError;
    comm->finalized = 1;
    if (state == ncclInProgress)
        return 0;
    if (state != ncclSuccess || nccl->ncclCommDestroy(comm->handle))
        nccl->ncclCommAbort(comm->handle);
    return 1;
}

static void *abort_now(void *argument)
{
    struct weft__cuda_comm *comm = argument;
    int entered = weft__cuda_enter_last(comm->cuda);

    comm->nccl->ncclCommAbort(comm->handle);
    weft__cuda_leave(comm->cuda, entered);
    /* Release: pairs with the acquire of the thread, which takes its time to join. */
    atomic_store_explicit(&comm->over, 1, memory_order_release);
    return NULL;
}

/* As close_more(), of one that is aborted. Where there can be no thread it is done at once. */
static int abort_more(struct weft__cuda_comm *comm)
{
    if (!comm->aborting) {
        comm->aborting = 1;
        if (pthread_create(&comm->aborter, NULL, abort_now, comm)) {
            abort_now(comm);
            return 1;
        }
    }
    if (!atomic_load_explicit(&comm->over, memory_order_acquire))
        return 0;
    pthread_join(comm->aborter, NULL);
    return 1;
}

/* 1: there is nothing left to do for it, and it may be gone. */
static int end_more(struct weft__cuda *cuda, struct weft__cuda_comm *comm)
{
    int frees;

    if (comm->handle && !(comm->aborted ? abort_more(comm) : close_more(comm)))
        return 0;
    comm->handle = NULL;
    pthread_mutex_lock(&cuda->comm_lock);
    frees = comm->closed;
    /* Release: nothing of it is on a stream any more. */
    atomic_store_explicit(&comm->comm.gone, 1, memory_order_release);
    pthread_mutex_unlock(&cuda->comm_lock);
    if (frees)
        weft__free(comm);
    return 1;
}

/* With the lock. */
static void append(struct weft__cuda *cuda, struct weft__cuda_comm *comm)
{
    struct weft__cuda_comm **place = &cuda->ending;

    while (*place)
        place = &(*place)->next;
    comm->next = NULL;
    *place = comm;
}

/* One that is closed may wait for what another one has on the stream, which is to be aborted: so
 * they have turns. */
static void *run(void *argument)
{
    static const struct timespec nap = {0, 100000};
    struct weft__cuda *cuda = argument;
    int entered = weft__cuda_enter_last(cuda);

    pthread_mutex_lock(&cuda->comm_lock);
    while (cuda->ending || !cuda->comm_stop) {
        struct weft__cuda_comm *comm = cuda->ending;
        int over;

        if (!comm) {
            pthread_cond_wait(&cuda->comm_more, &cuda->comm_lock);
            continue;
        }
        cuda->ending = comm->next;
        pthread_mutex_unlock(&cuda->comm_lock);
        over = end_more(cuda, comm);
        if (!over)
            nanosleep(&nap, NULL);
        pthread_mutex_lock(&cuda->comm_lock);
        if (!over)
            append(cuda, comm);
    }
    pthread_mutex_unlock(&cuda->comm_lock);
    weft__cuda_leave(cuda, entered);
    return NULL;
}

/* Gives it to the thread; where there can be none, does it at once. */
static void give(struct weft__cuda *cuda, struct weft__cuda_comm *comm)
{
    int given, entered;

    pthread_mutex_lock(&cuda->comm_lock);
    if (!cuda->comm_thread_runs)
        cuda->comm_thread_runs = pthread_create(&cuda->comm_thread, NULL, run, cuda) == 0;
    given = cuda->comm_thread_runs;
    if (given) {
        append(cuda, comm);
        pthread_cond_signal(&cuda->comm_more);
    }
    pthread_mutex_unlock(&cuda->comm_lock);
    if (given)
        return;
    entered = weft__cuda_enter_last(cuda);
    while (!end_more(cuda, comm))
        sched_yield();
    weft__cuda_leave(cuda, entered);
}

void weft__cuda_comms_init(struct weft__cuda *cuda)
{
    pthread_mutex_init(&cuda->comm_lock, NULL);
    pthread_cond_init(&cuda->comm_more, NULL);
}

int weft__cuda_comms_end_now(struct weft__cuda *cuda)
{
    int runs;

    pthread_mutex_lock(&cuda->comm_lock);
    runs = cuda->comm_thread_runs;
    pthread_mutex_unlock(&cuda->comm_lock);
    return runs;
}

void weft__cuda_comms_settle(struct weft__cuda *cuda)
{
    struct weft__cuda_comm *comm, *next;

    pthread_mutex_lock(&cuda->comm_lock);
    cuda->comm_stop = 1;
    pthread_cond_signal(&cuda->comm_more);
    pthread_mutex_unlock(&cuda->comm_lock);
    pthread_join(cuda->comm_thread, NULL);
    pthread_mutex_lock(&cuda->comm_lock);
    cuda->comm_thread_runs = 0;
    cuda->comm_stop = 0;
    comm = cuda->ending;
    cuda->ending = NULL;
    pthread_mutex_unlock(&cuda->comm_lock);
    for (; comm; comm = next) { /* given between the end of the thread and its join */
        next = comm->next;
        give(cuda, comm);
    }
}

void weft__cuda_comms_free(struct weft__cuda *cuda)
{
    pthread_cond_destroy(&cuda->comm_more);
    pthread_mutex_destroy(&cuda->comm_lock);
}

/* ---- making ---- */

int weft__cuda_comm_id(struct weft__device *device, unsigned char id[WEFT__COMM_ID_BYTES])
{
    const struct weft__cuda *cuda = weft__cuda_of(device);
    const struct weft__nccl *nccl;
    ncclUniqueId made;
    ncclResult_t code;
    int status = weft__nccl(&nccl);
    int entered;

    if (status < 0)
        return status;
    entered = weft__cuda_enter(cuda);
    if (entered < 0)
        return entered;
    code = nccl->ncclGetUniqueId(&made);
    weft__cuda_leave(cuda, entered);
    if (code)
        return weft__nccl_error(nccl, code, NULL, "ncclGetUniqueId", "on %s", cuda->name);
    memcpy(id, &made, sizeof made);
    return WEFT_OK;
}

static int error_of(const struct weft__cuda_comm *comm, ncclResult_t code, const char *call)
{
    return weft__nccl_error(comm->nccl, code, comm->handle, call, "of rank %d of %d on %s",
                            comm->comm.rank, comm->comm.size, comm->cuda->name);
}

/* What a call of a communicator that does not block has returned. */
static int status_of(const struct weft__cuda_comm *comm, ncclResult_t code, const char *call)
{
    if (code == ncclSuccess || code == ncclInProgress)
        return code == ncclSuccess ? WEFT_OK : WEFT_IN_PROGRESS;
    return error_of(comm, code, call);
}

int weft__cuda_comm_open(struct weft__device *device, const unsigned char id[WEFT__COMM_ID_BYTES],
                         int rank, int size, struct weft__comm **out)
{
    struct weft__cuda *cuda = weft__cuda_of(device);
    struct weft__cuda_comm *comm = weft__calloc(1, sizeof *comm);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId made;
    int status = comm ? weft__nccl(&comm->nccl) : weft__error_memory("a communicator");
    int entered = 0;

    if (status == WEFT_OK)
        entered = status = weft__cuda_enter(cuda);
    if (status < 0) {
        weft__free(comm);
        return status;
    }
    comm->cuda = cuda;
    comm->comm = (struct weft__comm){.device = device, .rank = rank, .size = size};
    memcpy(&made, id, sizeof made);
    config.blocking = 0;
    status = status_of(comm,
                       comm->nccl->ncclCommInitRankConfig(&comm->handle, size, made, rank, &config),
                       "ncclCommInitRankConfig");
    weft__cuda_leave(cuda, entered);
    if (status >= 0) {
        *out = &comm->comm;
        return status;
    }
    weft__cuda_comm_close(&comm->comm);
    return status;
}

int weft__cuda_comm_poll(struct weft__comm *comm)
{
    struct weft__cuda_comm *asked = comm_of(comm);
    ncclResult_t state = ncclSuccess;
    int entered = weft__cuda_enter(asked->cuda);
    ncclResult_t code;
    int status;

    if (entered < 0)
        return entered;
    code = asked->nccl->ncclCommGetAsyncError(asked->handle, &state);
    status = code ? error_of(asked, code, "ncclCommGetAsyncError")
                  : status_of(asked, state, "communication");
    weft__cuda_leave(asked->cuda, entered);
    return status;
}

/* ---- what is put on streams ---- */

int weft__cuda_comm_exchange(struct weft__comm *comm, struct weft__stream *stream,
                             const struct weft__comm_item *items, size_t count)
{
    struct weft__cuda_comm *with = comm_of(comm);
    const struct weft__nccl *nccl = with->nccl;
    cudaStream_t on = (cudaStream_t)((struct weft__cuda_stream *)stream)->handle;
    const char *call = "ncclGroupStart";
    int entered = weft__cuda_enter(with->cuda);
    ncclResult_t code, ended;

    if (entered < 0)
        return entered;
    code = nccl->ncclGroupStart();
    if (code == ncclSuccess) {
        for (size_t i = 0; i < count && (code == ncclSuccess || code == ncclInProgress); i++) {
            const struct weft__comm_item *item = &items[i];

            call = item->receives ? "ncclRecv" : "ncclSend";
            code = item->receives ? nccl->ncclRecv(item->data, item->bytes, ncclInt8, item->peer,
                                                   with->handle, on)
                                  : nccl->ncclSend(item->data, item->bytes, ncclInt8, item->peer,
                                                   with->handle, on);
        }
        ended = nccl->ncclGroupEnd();
        if (code == ncclSuccess || code == ncclInProgress) {
            call = "ncclGroupEnd";
            code = ended;
        }
    }
    int status = status_of(with, code, call);
    weft__cuda_leave(with->cuda, entered);
    return status;
}

/* What combines is of a datatype of NCCL's; all else goes as bytes. */
static int dtype_of(const struct weft__comm_joint *joint, ncclDataType_t *dtype)
{
    static const ncclDataType_t types[] = {
        [WEFT_I8] = ncclInt8,     [WEFT_I32] = ncclInt32,     [WEFT_I64] = ncclInt64,
        [WEFT_U8] = ncclUint8,    [WEFT_U32] = ncclUint32,    [WEFT_U64] = ncclUint64,
        [WEFT_F16] = ncclFloat16, [WEFT_BF16] = ncclBfloat16, [WEFT_F32] = ncclFloat32,
        [WEFT_F64] = ncclFloat64,
    };
    int folds = joint->kind <= WEFT__COMM_FOLD_PARTS;

    *dtype = folds ? types[joint->dtype] : ncclInt8;
    return joint->dtype != WEFT_I16 && joint->dtype != WEFT_U16;
}

static ncclRedOp_t fold_of(const struct weft__comm_joint *joint)
{
    return joint->fold == WEFT_SUM    ? ncclSum
           : joint->fold == WEFT_PROD ? ncclProd
           : joint->fold == WEFT_MIN  ? ncclMin
                                      : ncclMax;
}

/* The call for a joint operation, and its name. */
static ncclResult_t put_joint(const struct weft__cuda_comm *with,
                              const struct weft__comm_joint *joint, ncclDataType_t dtype,
                              cudaStream_t on, const char **call)
{
    const struct weft__nccl *nccl = with->nccl;
    ncclRedOp_t fold = fold_of(joint);

    switch (joint->kind) {
    case WEFT__COMM_FOLD_ALL:
        *call = "ncclAllReduce";
        return nccl->ncclAllReduce(joint->from, joint->to, joint->count, dtype, fold, with->handle,
                                   on);
    case WEFT__COMM_FOLD_ONE:
        *call = "ncclReduce";
        return nccl->ncclReduce(joint->from, joint->to, joint->count, dtype, fold, joint->root,
                                with->handle, on);
    case WEFT__COMM_FOLD_PARTS:
        *call = "ncclReduceScatter";
        return nccl->ncclReduceScatter(joint->from, joint->to, joint->count, dtype, fold,
                                       with->handle, on);
    case WEFT__COMM_SPREAD:
        *call = "ncclBroadcast";
        return nccl->ncclBroadcast(joint->from, joint->to, joint->count, dtype, joint->root,
                                   with->handle, on);
    case WEFT__COMM_COLLECT:
    default:
        *call = "ncclAllGather";
        return nccl->ncclAllGather(joint->from, joint->to, joint->count, dtype, with->handle, on);
    }
}

int weft__cuda_comm_joint(struct weft__comm *comm, struct weft__stream *stream,
                          const struct weft__comm_joint *joint)
{
    struct weft__cuda_comm *with = comm_of(comm);
    cudaStream_t on = (cudaStream_t)((struct weft__cuda_stream *)stream)->handle;
    ncclDataType_t dtype;
    const char *call;
    int entered, status;

    if (!dtype_of(joint, &dtype))
        return weft__error(WEFT_ERR_UNSUPPORTED, "%s: NCCL has no 16-bit integers",
                           with->cuda->name);
    entered = weft__cuda_enter(with->cuda);
    if (entered < 0)
        return entered;
    ncclResult_t code = put_joint(with, joint, dtype, on, &call);
    status = status_of(with, code, call);
    weft__cuda_leave(with->cuda, entered);
    return status;
}

/* ---- ends ---- */

void weft__cuda_comm_abort(struct weft__comm *comm)
{
    struct weft__cuda_comm *ended = comm_of(comm);

    ended->aborted = 1;
    give(ended->cuda, ended);
}

void weft__cuda_comm_close(struct weft__comm *comm)
{
    struct weft__cuda_comm *ended = comm_of(comm);
    struct weft__cuda *cuda;
    int frees;

    if (!comm)
        return;
    cuda = ended->cuda;
    if (!ended->aborted && ended->handle) {
        ended->closed = 1;
        give(cuda, ended);
        return;
    }
    /* The thread frees it, unless it is done with it, or never had it. */
    pthread_mutex_lock(&cuda->comm_lock);
    ended->closed = 1;
    frees = !ended->aborted || atomic_load_explicit(&ended->comm.gone, memory_order_relaxed);
    pthread_mutex_unlock(&cuda->comm_lock);
    if (frees)
        weft__free(ended);
}
