/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory of other processes: two of them, which take turns. */
#include "standin_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "turns.h"

static void importer(struct turns *turns)
{
    CUipcMemHandle handles[2];
    CUdeviceptr first, again, other;
    CUmodule module = NULL;
    uint32_t value = 0;
    char turn = 0;
    standin_begin(1); /* another device than the memory's: access comes with opening */
    CUfunction function = standin_kernel(&module, "append");
    hear(turns->to_child[0], handles, sizeof handles);
    MISUSE(cuIpcOpenMemHandle(&first, handles[0], 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcOpenMemHandle(&first, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcOpenMemHandle(&again, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(first == again);
    OK(cuIpcOpenMemHandle(&other, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(other != first);
    OK(cuMemcpyDtoH(&value, first, 4));
    CHECK(value == 7);
    OK(standin_append(function, first, 1, NULL));
    OK(standin_append(function, first + 9996, 2, NULL));
    OK(cuCtxSynchronize());
    MISUSE(cuMemFree(first), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcCloseMemHandle(first));
    OK(cuMemcpyDtoH(&value, first, 4));
    CHECK(value == 71);
    OK(cuIpcCloseMemHandle(first));
    MISUSE(cuIpcCloseMemHandle(first), CUDA_ERROR_INVALID_VALUE);
    MISUSE(cuMemcpyDtoH(&value, first, 4), CUDA_ERROR_INVALID_VALUE);
    say(turns->to_parent[1], &turn, 1);
    hear(turns->to_child[0], &turn, 1); /* both are freed now */
    MISUSE(cuIpcOpenMemHandle(&first, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
           CUDA_ERROR_INVALID_HANDLE);
    OK(cuIpcCloseMemHandle(other));
    handles[0].reserved[0] ^= 1;
    MISUSE(cuIpcOpenMemHandle(&first, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
           CUDA_ERROR_INVALID_HANDLE);
    OK(cuModuleUnload(module));
    standin_end(1);
}

static void exporter(struct turns *turns)
{
    CUipcMemHandle handles[2];
    CUdeviceptr memory[2], opened;
    char turn = 0, small[4];
    uint32_t values[2] = {0, 0};
    standin_begin(0);
    OK(cuMemAlloc(&memory[0], 10000));
    OK(cuMemAlloc(&memory[1], 10));
    OK(cuMemsetD32Async(memory[0], 7, 2500, NULL));
    OK(cuCtxSynchronize());
    for (int i = 0; i < 2; i++)
        OK(cuIpcGetMemHandle(&handles[i], memory[i]));
    MISUSE(cuIpcGetMemHandle(&handles[1], memory[0] + 256), CUDA_ERROR_INVALID_VALUE);
    MISUSE(cuIpcGetMemHandle(&handles[1], (CUdeviceptr)small), CUDA_ERROR_INVALID_VALUE);
    MISUSE(cuIpcOpenMemHandle(&opened, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
           CUDA_ERROR_INVALID_CONTEXT);
    say(turns->to_child[1], handles, sizeof handles);
    hear(turns->to_parent[0], &turn, 1);
    OK(cuMemcpyDtoH(&values[0], memory[0], 4));
    OK(cuMemcpyDtoH(&values[1], memory[0] + 9996, 4));
    CHECK(values[0] == 71 && values[1] == 72);
    unsigned before = standin_report(NULL, 0);
    OK(cuMemFree(memory[0]));
    CHECK(standin_report(NULL, 0) == before);
    OK(cuMemFree(memory[1])); /* the other process has it open */
    CHECK(standin_report(NULL, 0) == before + 1);
    say(turns->to_child[1], &turn, 1);
    standin_end(0);
}

void case_ipc(void)
{
    take_turns(exporter, importer);
}

/* ---- closed while in use ---- */

static void *open_gate(void *gate)
{
    while (!standin_calls_of("cuIpcCloseMemHandle"))
        sched_yield();
    atomic_store((_Atomic uint32_t *)gate, 1);
    return NULL;
}

static void close_in_use(struct turns *turns)
{
    CUipcMemHandle handle;
    CUdeviceptr opened;
    CUstream stream;
    uint32_t *gate;
    pthread_t thread;
    char turn = 0;
    standin_begin(0);
    hear(turns->to_child[0], &handle, sizeof handle);
    OK(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&gate, 4, 0));
    *gate = 0;
    OK(cuStreamWaitValue32(stream, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD8Async(opened, 1, 100, stream));
    CHECK(!pthread_create(&thread, NULL, open_gate, gate));
    MISUSE(cuIpcCloseMemHandle(opened), CUDA_SUCCESS); /* which waits, as drivers do */
    pthread_join(thread, NULL);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
    OK(cuMemFreeHost(gate));
    say(turns->to_parent[1], &turn, 1);
    standin_end(0);
}

static void export_one(struct turns *turns)
{
    CUipcMemHandle handle;
    CUdeviceptr memory;
    char turn = 0;
    standin_begin(0);
    OK(cuMemAlloc(&memory, 100));
    OK(cuIpcGetMemHandle(&handle, memory));
    say(turns->to_child[1], &handle, sizeof handle);
    hear(turns->to_parent[0], &turn, 1);
    OK(cuMemFree(memory));
    standin_end(0);
}

void case_ipc_in_use(void)
{
    take_turns(export_one, close_in_use);
}

/* ---- freed while open, and allocated again at the same address ---- */

static void use_what_was_freed(struct turns *turns)
{
    CUipcMemHandle handles[2];
    CUdeviceptr opened[2];
    unsigned char byte = 0;
    char turn = 0;
    standin_begin(0);
    hear(turns->to_child[0], &handles[0], sizeof handles[0]);
    OK(cuIpcOpenMemHandle(&opened[0], handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuMemcpyDtoH(&byte, opened[0], 1));
    CHECK(byte == 1);
    say(turns->to_parent[1], &turn, 1);
    hear(turns->to_child[0], &handles[1], sizeof handles[1]);
    MISUSE(cuMemcpyDtoH(&byte, opened[0], 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcOpenMemHandle(&opened[1], handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(opened[1] != opened[0]);
    OK(cuMemcpyDtoH(&byte, opened[1], 1));
    CHECK(byte == 2);
    OK(cuIpcCloseMemHandle(opened[0]));
    OK(cuIpcCloseMemHandle(opened[1]));
    say(turns->to_parent[1], &turn, 1);
    standin_end(0);
}

static void free_and_allocate(struct turns *turns)
{
    CUipcMemHandle handle, before;
    CUdeviceptr memory, again;
    unsigned long long ids[2];
    char turn = 0;
    standin_begin(0);
    OK(cuMemAlloc(&memory, 5000));
    OK(cuPointerGetAttribute(&ids[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
    OK(cuMemsetD8Async(memory, 1, 5000, NULL));
    OK(cuCtxSynchronize());
    OK(cuIpcGetMemHandle(&before, memory));
    say(turns->to_child[1], &before, sizeof before);
    hear(turns->to_parent[0], &turn, 1);
    OK(cuMemFree(memory));
    OK(cuMemAlloc(&again, 5000));
    CHECK(again == memory);
    OK(cuPointerGetAttribute(&ids[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, again));
    OK(cuIpcGetMemHandle(&handle, again));
    CHECK(ids[0] != ids[1] && memcmp(&handle, &before, sizeof handle) != 0);
    OK(cuMemsetD8Async(again, 2, 5000, NULL));
    OK(cuCtxSynchronize());
    say(turns->to_child[1], &handle, sizeof handle);
    hear(turns->to_parent[0], &turn, 1);
    OK(cuMemFree(again));
    standin_end(0);
}

void case_ipc_freed(void)
{
    take_turns(free_and_allocate, use_what_was_freed);
}

/* ---- what is not opened ---- */

static void refuse(struct turns *turns, CUresult code)
{
    CUipcMemHandle handle;
    CUdeviceptr opened;
    char turn = 0;
    standin_begin(0);
    hear(turns->to_child[0], &handle, sizeof handle);
    EXPECT(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), code);
    say(turns->to_parent[1], &turn, 1);
    standin_end(0);
}

static void refused_by_system(struct turns *turns)
{
    setenv("STANDIN_IPC", "0", 1);
    refuse(turns, CUDA_ERROR_MAP_FAILED);
}

/* A device that this process does not have; and the same one under another number. */
static void refused_device(struct turns *turns)
{
    setenv("STANDIN_VISIBLE", "1", 1);
    refuse(turns, CUDA_ERROR_INVALID_DEVICE);
}

static void refused_peer(struct turns *turns)
{
    setenv("STANDIN_PEERS", "0", 1);
    setenv("STANDIN_VISIBLE", "1,0", 1);
    refuse(turns, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

static void opened_by_another_number(struct turns *turns)
{
    CUipcMemHandle handle;
    CUdeviceptr opened;
    int ordinal = -1;
    char turn = 0;
    setenv("STANDIN_PEERS", "0", 1);
    setenv("STANDIN_VISIBLE", "3,0", 1);
    standin_begin(1);
    hear(turns->to_child[0], &handle, sizeof handle);
    OK(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, opened));
    CHECK(ordinal == 1);
    OK(cuIpcCloseMemHandle(opened));
    say(turns->to_parent[1], &turn, 1);
    standin_end(1);
}

void case_ipc_refused(void)
{
    take_turns(export_one, refused_by_system);
}

void case_ipc_device(void)
{
    take_turns(export_one, refused_device);
}

void case_ipc_peer(void)
{
    take_turns(export_one, refused_peer);
}

void case_ipc_number(void)
{
    take_turns(export_one, opened_by_another_number);
}

/* Memory of a pool says so, and has no handle. */
void case_ipc_pool(void)
{
    CUipcMemHandle handle;
    CUdeviceptr memory;
    bool capable = true;
    standin_begin(0);
    OK(cuMemAlloc(&memory, 100));
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory));
    CHECK(!capable);
    MISUSE(cuIpcGetMemHandle(&handle, memory), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(memory));
    standin_end(0);
}
