/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What NCCL moves: messages, collectives, parts of communicators, between threads and processes. */
#include "nccl_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4 };

/* ---- messages ---- */

static uint32_t word(int from, int round, size_t i)
{
    return (uint32_t)from * 1000003u + (uint32_t)round * 10007u + (uint32_t)i;
}

static const size_t lengths[] = {1, 0, 4095, 4096, 4097, 50000, 3};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static bool holds(const uint32_t *words, int from, int round, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (words[i] != word(from, round, i))
            return false;
    return true;
}

/* Everybody to everybody, itself too, in one group. */
static void exchange(struct nccl_rank_of_test *r, int round)
{
    size_t count = lengths[round % LENGTHS];
    uint32_t *words = malloc(count * 4 + 4);
    CUdeviceptr from, to[16];
    for (size_t i = 0; i < count; i++)
        words[i] = word(r->rank, round, i);
    from = nccl_put(words, count * 4);
    NCCL_OK(ncclGroupStart());
    for (int p = 0; p < r->size; p++) {
        OK(cuMemAlloc(&to[p], count * 4 + 4));
        NCCL_OK(ncclRecv((void *)to[p], count, ncclUint32, p, r->comm, (cudaStream_t)r->stream));
        NCCL_OK(ncclSend((void *)from, count, ncclUint32, p, r->comm, (cudaStream_t)r->stream));
    }
    NCCL_OK(ncclGroupEnd());
    OK(cuStreamSynchronize(r->stream));
    for (int p = 0; p < r->size; p++) {
        nccl_get(words, to[p], count * 4);
        CHECK(holds(words, p, round, count));
    }
    OK(cuMemFree(from));
    free(words);
}

static void body_messages(struct nccl_rank_of_test *r)
{
    for (int round = 0; round < 2 * LENGTHS; round++)
        exchange(r, round);
}

void case_messages(void)
{
    nccl_ranks(RANKS, true, body_messages, NULL);
    nccl_clean();
}

/* Around a ring without groups: each blocks until the other end is there. */
static void body_chain(struct nccl_rank_of_test *r)
{
    uint32_t words[2] = {0, 0};
    CUdeviceptr at = nccl_put(&(uint32_t){7}, 4), two = nccl_put(words, 8);
    int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
    cudaStream_t stream = (cudaStream_t)r->stream;
    if (r->rank == 0) {
        NCCL_OK(ncclSend((void *)at, 1, ncclUint32, next, r->comm, stream));
        NCCL_OK(ncclRecv((void *)two, 1, ncclUint32, before, r->comm, stream));
        nccl_until_reported("rank 0 of 4 is in send to 1, launch 1 of 2");
        EXPECT(cuStreamQuery(r->stream), CUDA_ERROR_NOT_READY);
        nccl_meet();
    } else {
        nccl_meet();
        NCCL_OK(ncclRecv((void *)two, 1, ncclUint32, before, r->comm, stream));
        NCCL_OK(ncclSend((void *)two, 1, ncclUint32, next, r->comm, stream));
    }
    OK(cuStreamSynchronize(r->stream));
    nccl_get(words, two, 4);
    CHECK(words[0] == 7);
    OK(cuMemFree(at));
}

void case_chain(void)
{
    nccl_ranks(RANKS, true, body_chain, NULL);
    nccl_clean();
    CHECK(standin_nccl_launches() == 2 * RANKS);
}

/* One communicator on two streams: in the order of issue, though the first one has to wait. */
static void body_two_streams(struct nccl_rank_of_test *r)
{
    CUdeviceptr letters[2] = {nccl_put("A", 1), nccl_put("B", 1)};
    CUstream streams[2] = {r->stream, NULL};
    uint32_t *flag;
    char got[2];
    OK(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&flag, 4, 0));
    *flag = 0;
    for (uint32_t round = 1; round <= 40; round++) {
        if (r->rank == 0)
            OK(cuStreamWaitValue32(streams[0], (CUdeviceptr)flag, round, 0));
        else
            for (int i = 0; i < 2; i++)
                OK(cuMemsetD8Async(letters[i], '.', 1, streams[i]));
        for (int i = 0; i < 2; i++)
            NCCL_OK(r->rank ? ncclRecv((void *)letters[i], 1, ncclInt8, 0, r->comm,
                                       (cudaStream_t)streams[i])
                            : ncclSend((void *)letters[i], 1, ncclInt8, 1, r->comm,
                                       (cudaStream_t)streams[i]));
        for (int i = 0; i < 200; i++)
            CHECK(r->rank || cuStreamQuery(streams[1]) == CUDA_ERROR_NOT_READY);
        __atomic_store_n(flag, round, __ATOMIC_RELEASE);
        for (int i = 0; i < 2; i++) {
            OK(cuStreamSynchronize(streams[i]));
            OK(cuMemcpyDtoH(&got[i], letters[i], 1));
        }
        CHECK(got[0] == 'A' && got[1] == 'B');
    }
    for (int i = 0; i < 2; i++)
        OK(cuMemFree(letters[i]));
    OK(cuMemFreeHost(flag));
    OK(cuStreamDestroy(streams[1]));
}

void case_two_streams(void)
{
    nccl_ranks(2, true, body_two_streams, NULL);
    nccl_clean();
}

/* ---- collectives ---- */

static const size_t sizes[] = {0, 1, 1000, 20000};

static void body_collectives(struct nccl_rank_of_test *r)
{
    cudaStream_t stream = (cudaStream_t)r->stream;
    int P = r->size;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s], all = n * (size_t)P, good = 0;
        float *values = calloc(all + 1, 4);
        for (size_t i = 0; i < all; i++)
            values[i] = (float)((i * 7 + (size_t)r->rank) % 1000);
        CUdeviceptr in = nccl_put(values, all * 4 + 4), out[5];
        for (int k = 0; k < 5; k++)
            out[k] = nccl_put(values, all * 4 + 4);
        NCCL_OK(
            ncclAllReduce((void *)in, (void *)out[0], all, ncclFloat32, ncclSum, r->comm, stream));
        NCCL_OK(ncclReduce((void *)in, (void *)out[1], all, ncclFloat32, ncclMax, 1 % P, r->comm,
                           stream));
        NCCL_OK(
            ncclBroadcast((void *)in, (void *)out[2], all, ncclFloat32, P - 1, r->comm, stream));
        NCCL_OK(ncclReduceScatter((void *)in, (void *)out[3], n, ncclFloat32, ncclMin, r->comm,
                                  stream));
        NCCL_OK(ncclAllGather((void *)in, (void *)out[4], n, ncclFloat32, r->comm, stream));
        OK(cuStreamSynchronize(r->stream));
        for (int k = 0; k < 5; k++) {
            nccl_get(values, out[k], all * 4);
            good = 0;
            for (size_t i = 0; i < (k == 3 ? n : all); i++) {
                size_t at = k == 3 ? i + (size_t)r->rank * n : k == 4 ? i % n : i;
                float sum = 0, most = 0, least = 1e9f, one;
                for (int p = 0; p < P; p++) {
                    one = (float)((at * 7 + (size_t)p) % 1000);
                    sum += one;
                    most = one > most ? one : most;
                    least = one < least ? one : least;
                }
                one = (float)((at * 7 + (size_t)(k == 4 ? (int)(i / n) : P - 1)) % 1000);
                good += values[i] == (k == 0   ? sum
                                      : k == 1 ? (r->rank == 1 % P ? most : values[i])
                                      : k == 3 ? least
                                               : one);
            }
            CHECK(good == (k == 3 ? n : all));
        }
        OK(cuMemFree(in));
        free(values);
    }
}

void case_collectives(void)
{
    nccl_ranks(3, true, body_collectives, NULL);
    nccl_ranks(1, true, body_collectives, NULL);
    nccl_clean();
}

/* One element of each type: 3 on rank 0, 5 on rank 1. */
static void body_types(struct nccl_rank_of_test *r)
{
    union {
        int8_t i8;
        uint8_t u8;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        _Float16 f16;
        uint16_t bf16;
        float f32;
        double f64;
    } value;
    static const unsigned expected[] = {8, 15, 5, 3, 4};
    for (int op = ncclSum; op <= ncclAvg; op++)
        for (int type = 0; type < ncclFloat8e4m3; type++) {
            int number = r->rank ? 5 : 3, got = -1;
            float f = (float)number;
            uint32_t bits;
            memset(&value, 0, sizeof value);
            memcpy(&bits, &f, 4);
            switch (type) {
            case ncclFloat16:
                value.f16 = (_Float16)f;
                break;
            case ncclBfloat16:
                value.bf16 = (uint16_t)(bits >> 16);
                break;
            case ncclFloat32:
                value.f32 = f;
                break;
            case ncclFloat64:
                value.f64 = f;
                break;
            default:
                value.i64 = number;
            }
            CUdeviceptr at = nccl_put(&value, sizeof value);
            NCCL_OK(ncclAllReduce((void *)at, (void *)at, 1, (ncclDataType_t)type, (ncclRedOp_t)op,
                                  r->comm, (cudaStream_t)r->stream));
            OK(cuStreamSynchronize(r->stream));
            nccl_get(&value, at, sizeof value);
            bits = (uint32_t)value.bf16 << 16;
            memcpy(&f, &bits, 4);
            got = type == ncclFloat16    ? (int)value.f16
                  : type == ncclBfloat16 ? (int)f
                  : type == ncclFloat32  ? (int)value.f32
                  : type == ncclFloat64  ? (int)value.f64
                                         : (int)value.i64;
            EXPECT(got, expected[op]);
        }
}

void case_types(void)
{
    nccl_ranks(2, true, body_types, NULL);
    nccl_clean();
}

/* ---- one thread of several ranks ---- */

static void body_one_thread(struct nccl_rank_of_test *r)
{
    ncclComm_t comms[3];
    CUcontext contexts[3];
    CUstream streams[3];
    CUdeviceptr at[3];
    uint32_t sum = 0;
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < 3; i++) {
        OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
        OK(cuCtxSetCurrent(contexts[i]));
        NCCL_OK(ncclCommInitRank(&comms[i], 3, r->id, i));
    }
    NCCL_OK(ncclGroupEnd());
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < 3; i++) {
        OK(cuCtxSetCurrent(contexts[i]));
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        at[i] = nccl_put(&(uint32_t){1u << i}, 4);
        NCCL_OK(ncclAllReduce((void *)at[i], (void *)at[i], 1, ncclUint32, ncclSum, comms[i],
                              (cudaStream_t)streams[i]));
    }
    NCCL_OK(ncclGroupEnd());
    for (int i = 0; i < 3; i++) {
        OK(cuCtxSetCurrent(contexts[i]));
        OK(cuStreamSynchronize(streams[i]));
        nccl_get(&sum, at[i], 4);
        EXPECT(sum, 7);
        NCCL_OK(ncclCommDestroy(comms[i]));
        OK(cuStreamDestroy(streams[i]));
    }
    OK(cuCtxSetCurrent(r->context));
    for (int i = 0; i < 3; i++)
        OK(cuDevicePrimaryCtxRelease(i));
}

void case_one_thread(void)
{
    nccl_ranks(1, false, body_one_thread, NULL);
    nccl_clean();
}

/* ---- splits ---- */

static void body_split(struct nccl_rank_of_test *r)
{
    ncclComm_t half = NULL, none = r->comm;
    uint32_t mine = 1u << r->rank, got = 0;
    int rank, size;
    NCCL_OK(ncclCommSplit(r->comm, r->rank % 2, -r->rank, &half, NULL));
    NCCL_OK(ncclCommUserRank(half, &rank));
    NCCL_OK(ncclCommCount(half, &size));
    EXPECT(size, 2);
    EXPECT(rank, r->rank < 2);
    CUdeviceptr at = nccl_put(&mine, 4);
    NCCL_OK(ncclAllReduce((void *)at, (void *)at, 1, ncclUint32, ncclSum, half,
                          (cudaStream_t)r->stream));
    OK(cuStreamSynchronize(r->stream));
    nccl_get(&got, at, 4);
    EXPECT(got, r->rank % 2 ? 10 : 5);
    NCCL_OK(ncclCommDestroy(half));
    NCCL_OK(ncclCommSplit(r->comm, r->rank ? NCCL_SPLIT_NOCOLOR : 0, 0, &none, NULL));
    CHECK(!none == !!r->rank);
    NCCL_OK(ncclCommDestroy(none));
}

void case_split(void)
{
    nccl_ranks(RANKS, true, body_split, NULL);
    nccl_clean();
}

/* ---- questions ---- */

/* Asks for all that a test may, again and again, while communicators come, work and go. */
static void *ask(void *data)
{
    char text[4096];
    unsigned long asked = 0;
    for (bool last = false; !last;) {
        last = atomic_load((atomic_bool *)data);
        standin_nccl_report(text, sizeof text);
        standin_nccl_leaks(text, sizeof text);
        standin_report(text, sizeof text);
        standin_leaks(text, sizeof text);
        asked += standin_nccl_calls() && standin_nccl_calls_of("ncclCommSplit");
    }
    CHECK(asked);
    return NULL;
}

static void body_asked(struct nccl_rank_of_test *r)
{
    cudaStream_t stream = (cudaStream_t)r->stream;
    int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t mine = round, got = 0;
        CUdeviceptr from = nccl_put(&mine, 4), to = nccl_put(&got, 4);
        ncclComm_t part = NULL;
        void *handle;
        NCCL_OK(ncclCommSplit(r->comm, 0, -r->rank, &part, NULL));
        NCCL_OK(ncclCommRegister(part, (void *)from, 4, &handle));
        NCCL_OK(ncclGroupStart());
        NCCL_OK(ncclSend((void *)from, 1, ncclUint32, next, r->comm, stream));
        NCCL_OK(ncclRecv((void *)to, 1, ncclUint32, before, r->comm, stream));
        NCCL_OK(ncclGroupEnd());
        NCCL_OK(ncclAllReduce((void *)to, (void *)to, 1, ncclUint32, ncclSum, part, stream));
        OK(cuStreamSynchronize(r->stream));
        NCCL_OK(ncclCommDeregister(part, handle));
        NCCL_OK(ncclCommDestroy(part));
        nccl_get(&got, to, 4);
        EXPECT(got, round * (uint32_t)r->size);
        OK(cuMemFree(from));
    }
}

void case_asked(void)
{
    atomic_bool over = false;
    pthread_t asks;
    OK(cuInit(0));
    CHECK(!pthread_create(&asks, NULL, ask, &over));
    nccl_ranks(RANKS, true, body_asked, NULL);
    atomic_store(&over, true);
    pthread_join(asks, NULL);
    nccl_clean();
}

/* ---- processes ---- */

static void body_process(struct nccl_rank_of_test *r)
{
    body_collectives(r);
    for (int round = 0; round < LENGTHS; round++)
        exchange(r, round);
}

void case_processes(void)
{
    enum { PROCESSES = 3 };
    pid_t children[PROCESSES];
    ncclUniqueId id;
    NCCL_OK(ncclGetUniqueId(&id));
    for (int p = 0; p < PROCESSES; p++)
        if (!(children[p] = fork())) {
            struct nccl_rank_of_test rank = {.rank = p, .size = PROCESSES, .id = id};
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            OK(cuInit(0));
            nccl_rank(&rank, true, body_process);
            nccl_clean();
            EXPECT(standin_nccl_leaks(NULL, 0), 0);
            EXPECT(standin_leaks(NULL, 0), 0);
            exit(0);
        }
    for (int p = 0; p < PROCESSES; p++) {
        int status = 1;
        CHECK(waitpid(children[p], &status, 0) == children[p] && status == 0);
    }
}
