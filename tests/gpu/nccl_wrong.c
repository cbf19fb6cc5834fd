/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is wrong and must be seen, communicators that do not block, and what fails. */
#include "nccl_test.h"

#include <pthread.h>
#include <string.h>

/* ---- what is wrong ---- */

static void abort_all(struct nccl_rank_of_test *r)
{
    NCCL_OK(ncclCommAbort(r->comm));
    r->comm = NULL;
    OK(cuStreamSynchronize(r->stream));
}

/* Each sends before it receives, and does not group: nothing can go on, and that is told. */
static void body_circle(struct nccl_rank_of_test *r)
{
    CUdeviceptr a = nccl_put("abcd", 4), b = nccl_put("efgh", 4);
    int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
    NCCL_OK(ncclSend((void *)a, 4, ncclInt8, next, r->comm, (cudaStream_t)r->stream));
    NCCL_OK(ncclRecv((void *)b, 4, ncclInt8, before, r->comm, (cudaStream_t)r->stream));
    nccl_until_reported("nothing can go on: ");
    nccl_until_reported("(send to 1) waits for rank 1");
    EXPECT(cuStreamQuery(r->stream), CUDA_ERROR_NOT_READY);
    nccl_meet();
    abort_all(r);
    OK(cuMemFree(a));
    OK(cuMemFree(b));
}

void case_circle(void)
{
    nccl_ranks(3, true, body_circle, NULL);
    CHECK(standin_nccl_report(NULL, 0) == 1);
}

/* A collective on one rank, a message on the other: the same. */
static void body_mixed(struct nccl_rank_of_test *r)
{
    CUdeviceptr a = nccl_put("abcd", 4);
    cudaStream_t stream = (cudaStream_t)r->stream;
    if (r->rank)
        NCCL_OK(ncclSend((void *)a, 4, ncclInt8, 0, r->comm, stream));
    else
        NCCL_OK(ncclAllReduce((void *)a, (void *)a, 4, ncclInt8, ncclSum, r->comm, stream));
    nccl_until_reported("nothing can go on: ");
    nccl_meet();
    abort_all(r);
    OK(cuMemFree(a));
}

void case_mixed(void)
{
    nccl_ranks(2, true, body_mixed, NULL);
    CHECK(standin_nccl_report(NULL, 0) == 1);
}

/* Ends that do not fit: counts, types; collectives that differ. */
static void body_unlike(struct nccl_rank_of_test *r)
{
    CUdeviceptr a = nccl_put("abcdefgh", 8);
    cudaStream_t stream = (cudaStream_t)r->stream;
    ncclResult_t state;
    int how = *(int *)r->shared;
    if (how == 2)
        NCCL_OK(r->rank
                    ? ncclBroadcast((void *)a, (void *)a, 4, ncclInt8, 0, r->comm, stream)
                    : ncclAllReduce((void *)a, (void *)a, 4, ncclInt8, ncclSum, r->comm, stream));
    else if (r->rank)
        NCCL_OK(ncclSend((void *)a, 4, ncclInt8, 0, r->comm, stream));
    else
        NCCL_OK(ncclRecv((void *)a, how ? 4 : 5, how ? ncclUint8 : ncclInt8, 1, r->comm, stream));
    nccl_until_reported(how == 2 ? "rank 1 in broadcast of 4" : "rank 1 sends 4 bytes of type 0");
    do
        NCCL_OK(ncclCommGetAsyncError(r->comm, &state));
    while (!state);
    EXPECT(state, ncclInvalidUsage);
    EXPECT(ncclSend((void *)a, 4, ncclInt8, 0, r->comm, stream), ncclInvalidUsage);
    nccl_meet();
    abort_all(r);
    OK(cuMemFree(a));
}

void case_unlike(void)
{
    for (int how = 0; how < 3; how++) {
        standin_nccl_forget();
        nccl_ranks(2, true, body_unlike, &how);
        CHECK(standin_nccl_report(NULL, 0) >= 1);
    }
}

/* Only the ranks that abort are let go. */
static void body_abort(struct nccl_rank_of_test *r)
{
    CUdeviceptr a = nccl_put("abcd", 4);
    NCCL_OK(ncclRecv((void *)a, 4, ncclInt8, 2, r->comm, (cudaStream_t)r->stream));
    if (r->rank == 0) {
        nccl_until_reported("rank 0 of 3 is in receive from 2");
        abort_all(r);
        nccl_meet();
    } else if (r->rank == 1) {
        nccl_meet();
        EXPECT(cuStreamQuery(r->stream), CUDA_ERROR_NOT_READY);
        abort_all(r);
    } else {
        nccl_meet();
        abort_all(r);
    }
    OK(cuMemFree(a));
}

void case_let_go(void)
{
    nccl_ranks(3, true, body_abort, NULL);
    /* Rank 2 waits for itself without a send in the group. */
    CHECK(standin_nccl_report(NULL, 0) <= 1);
}

static void *ask_count(void *data)
{
    int count;
    NCCL_MISUSE(ncclCommCount(((struct nccl_rank_of_test *)data)->comm, &count), ncclSuccess);
    return NULL;
}

static void body_misuse(struct nccl_rank_of_test *r)
{
    CUdeviceptr a = nccl_put("abcd", 4), freed = nccl_put("abcd", 4);
    cudaStream_t stream = (cudaStream_t)r->stream;
    CUcontext other;
    ncclComm_t gone = r->comm;
    pthread_t thread;
    void *handle;
    char host[4];
    int count;
    OK(cuMemFree(freed));
    NCCL_OK(ncclCommCount(r->comm, &count));
    EXPECT(count, 1);
    NCCL_OK(ncclCommCuDevice(r->comm, &count));
    EXPECT(count, 0);
    NCCL_MISUSE(ncclSend((void *)a, 4, ncclInt8, 1, r->comm, stream), ncclInvalidArgument);
    NCCL_MISUSE(ncclSend((void *)a, 4, (ncclDataType_t)12, 0, r->comm, stream),
                ncclInvalidArgument);
    NCCL_MISUSE(ncclSend((void *)a, 5, ncclInt8, 0, r->comm, stream), ncclInvalidArgument);
    NCCL_MISUSE(ncclSend((void *)freed, 4, ncclInt8, 0, r->comm, stream), ncclInvalidArgument);
    NCCL_MISUSE(ncclSend(host, 4, ncclInt8, 0, r->comm, stream), ncclInvalidArgument);
    NCCL_MISUSE(ncclAllReduce((void *)a, (void *)a, 4, ncclFloat8e4m3, ncclSum, r->comm, stream),
                ncclInvalidArgument);
    NCCL_MISUSE(ncclGroupEnd(), ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(r->comm), "type 10"));
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxSetCurrent(other));
    NCCL_MISUSE(ncclSend((void *)a, 4, ncclInt8, 0, r->comm, stream), ncclInvalidUsage);
    OK(cuCtxSetCurrent(r->context));
    OK(cuDevicePrimaryCtxRelease(1));
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend((void *)a, 4, ncclInt8, 0, r->comm, stream));
    CHECK(!pthread_create(&thread, NULL, ask_count, r));
    pthread_join(thread, NULL);
    NCCL_OK(ncclRecv((void *)a, 4, ncclInt8, 0, r->comm, stream));
    NCCL_OK(ncclGroupEnd());
    /* An error in a group: nothing of it is issued. */
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend((void *)a, 4, ncclInt8, 0, r->comm, stream));
    NCCL_MISUSE(ncclRecv((void *)a, 4, ncclInt8, 3, r->comm, stream), ncclInvalidArgument);
    EXPECT(ncclGroupEnd(), ncclInvalidArgument);
    OK(cuStreamSynchronize(r->stream));
    NCCL_OK(ncclCommRegister(r->comm, (void *)a, 4, &handle));
    CHECK(standin_nccl_leaks(NULL, 0) == 2);
    NCCL_OK(ncclCommDeregister(r->comm, handle));
    NCCL_MISUSE(ncclCommDeregister(r->comm, handle), ncclInvalidArgument);
    NCCL_OK(ncclCommFinalize(r->comm));
    NCCL_MISUSE(ncclSend((void *)a, 4, ncclInt8, 0, r->comm, stream), ncclInvalidUsage);
    NCCL_OK(ncclCommDestroy(r->comm));
    r->comm = NULL;
    NCCL_MISUSE(ncclCommCount(gone, &count), ncclInvalidArgument);
    NCCL_MISUSE(ncclCommDestroy(gone), ncclInvalidArgument);
    NCCL_MISUSE(ncclCommCount((ncclComm_t)&count, &count), ncclInvalidArgument);
    CHECK(standin_nccl_launches() == 1);
    OK(cuMemFree(a));
}

void case_misuse(void)
{
    nccl_ranks(1, true, body_misuse, NULL);
}

static void body_one_device(struct nccl_rank_of_test *r)
{
    CUcontext context;
    ncclComm_t comm = NULL;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    EXPECT(ncclCommInitRank(&comm, r->size, r->id, r->rank), ncclInvalidUsage);
    nccl_meet();
    NCCL_OK(ncclCommAbort(comm));
    OK(cuCtxSetCurrent(r->context));
    OK(cuDevicePrimaryCtxRelease(0));
}

void case_one_device(void)
{
    nccl_ranks(2, false, body_one_device, NULL);
    CHECK(standin_nccl_report(NULL, 0) == 2);
}

/* ---- communicators that do not block ---- */

static void body_not_blocking(struct nccl_rank_of_test *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    cudaStream_t stream = (cudaStream_t)r->stream;
    CUdeviceptr a = nccl_put("abcd", 4), b = nccl_put("....", 4);
    char got[5] = "";
    int other = 1 - r->rank, seen = 0, rank = -1;
    ncclComm_t half = NULL;
    ncclResult_t result;
    config.blocking = 0;
    result = ncclCommInitRankConfig(&r->comm, r->size, r->id, r->rank, &config);
    CHECK(result == ncclSuccess || result == ncclInProgress);
    EXPECT(nccl_settle(r->comm), ncclSuccess);
    for (int round = 0; round < 40; round++) {
        NCCL_OK(ncclGroupStart());
        result = ncclSend((void *)a, 4, ncclInt8, other, r->comm, stream);
        CHECK(result == ncclSuccess || result == ncclInProgress);
        result = ncclRecv((void *)b, 4, ncclInt8, other, r->comm, stream);
        CHECK(result == ncclSuccess || result == ncclInProgress);
        result = ncclGroupEnd();
        CHECK(result == ncclSuccess || result == ncclInProgress);
        if (result == ncclInProgress) {
            /* Nothing is on the stream before it has been polled, and nothing else is allowed. */
            seen++;
            unsigned before = standin_nccl_report(NULL, 0);
            EXPECT(ncclSend((void *)a, 4, ncclInt8, other, r->comm, stream), ncclInvalidUsage);
            CHECK(standin_nccl_report(NULL, 0) > before);
            OK(cuStreamQuery(r->stream));
        }
        EXPECT(nccl_settle(r->comm), ncclSuccess);
        OK(cuStreamSynchronize(r->stream));
    }
    CHECK(seen > 5 && seen < 40);
    nccl_get(got, b, 4);
    CHECK(!strcmp(got, "abcd"));
    result = ncclCommSplit(r->comm, 0, other, &half, NULL);
    CHECK(result == ncclSuccess || result == ncclInProgress);
    EXPECT(nccl_settle(r->comm), ncclSuccess);
    EXPECT(nccl_settle(half), ncclSuccess);
    NCCL_OK(ncclCommUserRank(half, &rank));
    EXPECT(rank, other);
    /* What has not been polled is never issued. */
    result = ncclSend((void *)a, 4, ncclInt8, other, half, stream);
    NCCL_OK(ncclCommAbort(half));
    OK(cuStreamSynchronize(r->stream));
    result = ncclCommFinalize(r->comm);
    CHECK(result == ncclSuccess || result == ncclInProgress);
    EXPECT(nccl_settle(r->comm), ncclSuccess);
    OK(cuMemFree(a));
}

void case_not_blocking(void)
{
    nccl_ranks(2, false, body_not_blocking, NULL);
}

/* ---- failures ---- */

static void body_fault(struct nccl_rank_of_test *r)
{
    CUdeviceptr a = nccl_put("abcd", 4);
    ncclResult_t state = ncclSuccess;
    standin_nccl_fault_at(1, ncclRemoteError);
    NCCL_OK(ncclSend((void *)a, 4, ncclInt8, 0, r->comm, (cudaStream_t)r->stream));
    OK(cuStreamSynchronize(r->stream));
    NCCL_OK(ncclCommGetAsyncError(r->comm, &state));
    EXPECT(state, ncclRemoteError);
    EXPECT(ncclSend((void *)a, 4, ncclInt8, 0, r->comm, (cudaStream_t)r->stream), ncclRemoteError);
    abort_all(r);
    OK(cuMemFree(a));
}

void case_fault(void)
{
    nccl_ranks(1, true, body_fault, NULL);
}

/* A context that ends lets go of what waits on its streams. */
static void body_context_ends(struct nccl_rank_of_test *r)
{
    CUdeviceptr a = nccl_put("abcd", 4);
    CUstream other;
    nccl_meet(); /* the fault is rank 0's */
    if (r->rank == 0) {
        OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
        NCCL_OK(ncclRecv((void *)a, 4, ncclInt8, 1, r->comm, (cudaStream_t)r->stream));
        nccl_until_reported("rank 0 of 2 is in receive from 1");
        standin_fault_at(1, CUDA_ERROR_ILLEGAL_ADDRESS);
        OK(cuMemsetD32Async(a, 1, 1, other));
        EXPECT(cuStreamSynchronize(r->stream), CUDA_ERROR_ILLEGAL_ADDRESS);
        EXPECT(ncclCommAbort(r->comm), ncclSuccess);
        r->comm = NULL;
        EXPECT(cuStreamDestroy(other), CUDA_ERROR_ILLEGAL_ADDRESS);
        EXPECT(cuStreamDestroy(r->stream), CUDA_ERROR_ILLEGAL_ADDRESS);
        r->stream = NULL;
    }
    EXPECT(cuMemFree(a), r->rank ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
    nccl_meet();
}

void case_context_ends(void)
{
    nccl_ranks(2, true, body_context_ends, NULL);
}

/* A sequence of calls in which the n-th fails: nothing stays behind, whatever n is. */
static bool sequence(CUstream stream)
{
    cudaStream_t on = (cudaStream_t)stream;
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    void *handle = NULL;
    CUdeviceptr a = nccl_put("abcd", 4);
    bool good = !ncclGetUniqueId(&id) && !ncclCommInitRank(&comm, 1, id, 0);
    if (comm) {
        good = good && !ncclCommRegister(comm, (void *)a, 4, &handle);
        bool open = !ncclGroupStart();
        good &= open;
        good = good && !ncclSend((void *)a, 4, ncclInt8, 0, comm, on) &&
               !ncclRecv((void *)a, 4, ncclInt8, 0, comm, on);
        if (open)
            good &= !ncclGroupEnd();
        good = good && !ncclAllReduce((void *)a, (void *)a, 4, ncclInt8, ncclSum, comm, on);
        if (good)
            OK(cuStreamSynchronize(stream));
        if (handle)
            good &= !ncclCommDeregister(comm, handle);
        good &= !(good ? ncclCommDestroy(comm) : ncclCommAbort(comm));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree(a));
    return good;
}

static void body_every_call_fails(struct nccl_rank_of_test *r)
{
    unsigned long before = standin_nccl_calls();
    CHECK(sequence(r->stream));
    unsigned long calls = standin_nccl_calls() - before;
    CHECK(calls == 10);
    for (unsigned long n = 1; n <= calls; n++) {
        standin_nccl_fail_at(n, ncclSystemError);
        CHECK(!sequence(r->stream));
        standin_nccl_fail_at(0, 0);
        EXPECT(standin_nccl_leaks(NULL, 0), 0);
    }
    CHECK(sequence(r->stream));
}

void case_every_nccl_call_fails(void)
{
    nccl_ranks(1, false, body_every_call_fails, NULL);
}

void case_nccl_from_outside(void)
{
    int version = 0;
    EXPECT(ncclGetVersion(&version), ncclRemoteError);
    NCCL_OK(ncclGetVersion(&version));
    EXPECT(version, 21903);
    CHECK(standin_nccl_calls_of("ncclGetVersion") == 2);
    CHECK(!strcmp(ncclGetErrorString(ncclInProgress), "NCCL operation in progress"));
}
