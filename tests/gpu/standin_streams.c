/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams, events, values in memory, host functions. */
#include "standin_test.h"

#include <sched.h>
#include <string.h>

void case_streams(void)
{
    CUstream streams[4], found;
    CUdeviceptr word;
    CUcontext context = standin_begin(0), seen;
    CUmodule module = NULL;
    CUfunction function = standin_kernel(&module, "append"),
               plain = standin_kernel(&module, "append_plain");
    CUstreamCaptureStatus status;
    uint32_t value = 0;
    int priority;
    OK(cuMemAlloc(&word, 4));
    for (unsigned i = 0; i < 4; i++)
        OK(cuStreamCreateWithPriority(&streams[i], i % 2, -(int)i));
    OK(cuStreamGetCtx(streams[0], &seen));
    CHECK(seen == context);
    OK(cuStreamGetPriority(streams[3], &priority));
    CHECK(priority == -3);
    OK(cuStreamIsCapturing(streams[0], &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    for (int round = 0; round < 50; round++) {
        OK(cuMemsetD32Async(word, 0, 1, streams[1]));
        for (uint32_t digit = 1; digit < 6; digit++)
            OK(standin_append(digit % 2 ? function : plain, word, digit, streams[1]));
        OK(cuStreamSynchronize(streams[1]));
        OK(cuStreamQuery(streams[1]));
        OK(cuMemcpyDtoH(&value, word, 4));
        CHECK(value == 12345);
        /* The legacy stream stands between those that block: 0, legacy, 2, legacy, 0. */
        OK(cuMemsetD32Async(word, 0, 1, streams[0]));
        OK(standin_append(function, word, 1, NULL));
        OK(standin_append(function, word, 2, streams[2]));
        OK(standin_append(function, word, 3, CU_STREAM_LEGACY));
        OK(standin_append(function, word, 4, streams[0]));
        OK(cuStreamSynchronize(NULL));
        OK(cuStreamQuery(NULL));
        OK(cuStreamQuery(streams[0]));
        OK(cuMemcpyDtoH(&value, word, 4));
        CHECK(value == 1234);
    }
    /* What is queued is done after the stream is destroyed. */
    OK(cuMemsetD32Async(word, 0, 1, streams[3]));
    for (uint32_t digit = 1; digit < 8; digit++)
        OK(standin_append(function, word, digit, streams[3]));
    OK(cuStreamDestroy(streams[3]));
    MISUSE(cuStreamQuery(streams[3]), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&value, word, 4));
    CHECK(value == 1234567);
    MISUSE(cuStreamDestroy(streams[3]), CUDA_ERROR_INVALID_HANDLE);
    MISUSE(cuStreamDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
    MISUSE(cuStreamQuery((CUstream)module), CUDA_ERROR_INVALID_HANDLE);
    MISUSE(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_SUPPORTED);
    MISUSE(cuStreamCreate(&found, 8), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < 3; i++)
        OK(cuStreamDestroy(streams[i]));
    OK(cuModuleUnload(module));
    OK(cuMemFree(word));
    standin_end(0);
}

void case_values(void)
{
    CUstream waiting, writing;
    uint32_t *flags;
    CUdeviceptr flag, word;
    standin_begin(0);
    OK(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&writing, 0));
    OK(cuMemHostAlloc((void **)&flags, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemAlloc(&word, 4));
    memset(flags, 0, 64);
    OK(cuMemHostGetDevicePointer(&flag, flags, 0));
    /* The comparison is cyclic: 1 comes after 0xffffffff. */
    __atomic_store_n(&flags[0], 0xfffffff0, __ATOMIC_RELEASE);
    OK(cuStreamWaitValue32(waiting, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamWriteValue32(waiting, flag + 4, 77, 0));
    standin_until_waits("a value of at least 0x1");
    EXPECT(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(NULL)); /* a stream that does not block is not waited for */
    OK(cuStreamQuery(writing));
    CHECK(__atomic_load_n(&flags[1], __ATOMIC_ACQUIRE) == 0);
    OK(cuStreamWriteValue32(writing, flag, 5, 0));
    while (__atomic_load_n(&flags[1], __ATOMIC_ACQUIRE) != 77)
        sched_yield();
    OK(cuStreamSynchronize(waiting));
    __atomic_store_n(&flags[0], 0, __ATOMIC_RELEASE);
    OK(cuStreamWaitValue32(waiting, flag, 0xfffffff0, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamSynchronize(waiting));
    OK(cuStreamWaitValue32(waiting, flag, 6, CU_STREAM_WAIT_VALUE_AND));
    __atomic_store_n(&flags[0], 2, __ATOMIC_RELEASE);
    OK(cuStreamWaitValue32(waiting, flag, 9, CU_STREAM_WAIT_VALUE_EQ));
    __atomic_store_n(&flags[0], 10, __ATOMIC_RELEASE); /* at least 9, and not 9 */
    standin_until_waits("the value 0x9");
    __atomic_store_n(&flags[0], 9, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(waiting));
    OK(cuStreamWriteValue32(waiting, word, 3, 0));
    OK(cuStreamWaitValue32(writing, word, 3, 0));
    OK(cuCtxSynchronize());
    CHECK(standin_report(NULL, 0) == 0);
    MISUSE(cuStreamWriteValue32(waiting, flag + 1, 3, 0), CUDA_ERROR_INVALID_VALUE);
    uint32_t pageable;
    MISUSE(cuStreamWriteValue32(waiting, (CUdeviceptr)&pageable, 3, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamDestroy(waiting));
    OK(cuStreamDestroy(writing));
    OK(cuMemFreeHost(flags));
    OK(cuMemFree(word));
    standin_end(0);
}

void case_no_mem_ops(void)
{
    CUdeviceptr word;
    int value = 1;
    standin_begin(0);
    OK(cuMemAlloc(&word, 4));
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
    CHECK(value == 0);
    EXPECT(cuStreamWriteValue32(NULL, word, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(cuStreamWaitValue32(NULL, word, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuMemFree(word));
    standin_end(0);
}

/* One queue of the hardware: a stream that waits for the host holds up the other one. */
void case_connections(void)
{
    CUstream first, second;
    uint32_t *flags;
    standin_begin(0);
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&flags, 8, 0));
    memset(flags, 0, 8);
    OK(cuStreamWaitValue32(first, (CUdeviceptr)flags, 1, 0));
    OK(cuStreamWriteValue32(second, (CUdeviceptr)(flags + 1), 1, 0));
    standin_until_waits("operation 1 of stream");
    EXPECT(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
    __atomic_store_n(&flags[0], 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(second));
    CHECK(flags[1] == 1);
    OK(cuStreamDestroy(first));
    OK(cuStreamDestroy(second));
    OK(cuMemFreeHost(flags));
    standin_end(0);
}

void case_events(void)
{
    CUevent event, timed, never;
    CUstream streams[2];
    CUdeviceptr word;
    CUmodule module = NULL;
    uint32_t *flag, value = 0;
    float time = -1;
    standin_begin(0);
    CUfunction function = standin_kernel(&module, "append");
    OK(cuMemAlloc(&word, 4));
    OK(cuMemHostAlloc((void **)&flag, 4, 0));
    for (int i = 0; i < 2; i++)
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&timed, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&never, CU_EVENT_DEFAULT));
    OK(cuEventQuery(never));
    OK(cuEventSynchronize(never));
    OK(cuStreamWaitEvent(streams[0], never, 0));
    for (int round = 0; round < 50; round++) {
        OK(cuMemsetD32Async(word, 0, 1, streams[0]));
        for (uint32_t digit = 1; digit < 7; digit++) {
            OK(standin_append(function, word, digit, streams[(digit - 1) % 2]));
            OK(cuEventRecord(event, streams[(digit - 1) % 2]));
            OK(cuStreamWaitEvent(streams[digit % 2], event, 0));
        }
        OK(cuStreamSynchronize(streams[0]));
        OK(cuEventQuery(event));
        OK(cuMemcpyDtoH(&value, word, 4));
        CHECK(value == 123456);
    }
    /* An event that waits; a later record is another matter than the one that was waited for. */
    *flag = 0;
    OK(cuEventRecord(timed, streams[0]));
    OK(cuStreamWaitValue32(streams[0], (CUdeviceptr)flag, 1, 0));
    OK(cuStreamWaitEvent(streams[1], timed, 0));
    OK(cuEventRecord(timed, streams[0]));
    OK(cuStreamSynchronize(streams[1]));
    EXPECT(cuEventQuery(timed), CUDA_ERROR_NOT_READY);
    OK(cuEventRecord(never, streams[1]));
    EXPECT(cuEventElapsedTime(&time, never, timed), CUDA_ERROR_NOT_READY);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    OK(cuEventSynchronize(timed));
    OK(cuEventSynchronize(never));
    OK(cuEventElapsedTime(&time, never, timed));
    MISUSE(cuEventElapsedTime(&time, event, timed), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventDestroy(never));
    MISUSE(cuEventQuery(never), CUDA_ERROR_INVALID_HANDLE);
    MISUSE(cuEventDestroy(never), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventDestroy(timed));
    OK(cuEventDestroy(event));
    for (int i = 0; i < 2; i++)
        OK(cuStreamDestroy(streams[i]));
    OK(cuModuleUnload(module));
    OK(cuMemFreeHost(flag));
    OK(cuMemFree(word));
    standin_end(0);
}

static void call_driver(void *data)
{
    *(CUresult *)data = cuStreamQuery(NULL);
}

void case_host_functions(void)
{
    CUstream streams[4];
    CUresult result = CUDA_SUCCESS;
    int count = 0;
    standin_begin(0);
    for (int i = 0; i < 4; i++) {
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        for (int k = 0; k < 20; k++)
            OK(cuLaunchHostFunc(streams[i], standin_count_one, &count)); /* one at a time */
    }
    OK(cuCtxSynchronize());
    CHECK(count == 80);
    OK(cuLaunchHostFunc(streams[0], call_driver, &result));
    OK(cuStreamSynchronize(streams[0]));
    CHECK(result == CUDA_ERROR_NOT_PERMITTED);
    CHECK(standin_report(NULL, 0) == 1);
    MISUSE(cuLaunchHostFunc(streams[0], NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < 4; i++)
        OK(cuStreamDestroy(streams[i]));
    standin_end(0);
}
