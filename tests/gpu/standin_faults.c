/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels, peers, and what fails: kernels, calls. */
#include "standin_test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void case_kernels(void)
{
    CUmodule module = NULL;
    CUfunction function, add, missing;
    CUdeviceptr word;
    int value = 0;
    standin_begin(0);
    MISUSE(cuModuleLoadData(&module, "garbage"), CUDA_ERROR_INVALID_IMAGE);
    function = standin_kernel(&module, "append");
    add = standin_kernel(&module, "add");
    CHECK(standin_kernel(&module, "add") == add);
    EXPECT(cuModuleGetFunction(&missing, module, "missing"), CUDA_ERROR_NOT_FOUND);
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    CHECK(value == 1024);
    OK(cuMemAlloc(&word, 4));
    uint32_t one = 1;
    void *arguments[] = {&word, &one};
    MISUSE(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL),
           CUDA_ERROR_INVALID_VALUE);
    MISUSE(cuLaunchKernel(function, 1, 65536, 1, 1, 1, 1, 0, NULL, arguments, NULL),
           CUDA_ERROR_INVALID_VALUE);
    MISUSE(cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, NULL, arguments, NULL),
           CUDA_ERROR_INVALID_VALUE);
    MISUSE(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 49153, NULL, arguments, NULL),
           CUDA_ERROR_INVALID_VALUE);
    OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
    OK(cuMemsetD32Async(word, 0, 1, NULL));
    OK(cuLaunchKernel(function, 1, 1, 1, 1024, 1, 1, 49153, NULL, arguments, NULL));
    one = 2;
    OK(cuMemcpyDtoH(&value, word, 4));
    CHECK(value == 1);
    OK(cuModuleUnload(module));
    MISUSE(standin_append(function, word, 1, NULL), CUDA_ERROR_INVALID_HANDLE);
    OK(cuMemFree(word));
    standin_end(0);
}

/* After a fault nothing works in the context, what was queued is not done, and all that ends a life
 * still does. `how`: the kernel's own, a pointer that was freed, one that is the host's, or
 * injected. */
static void fault(int how)
{
    CUmodule module = NULL;
    CUstream stream, other;
    CUdeviceptr word, freed;
    CUcontext context = standin_begin(0);
    CUfunction function = standin_kernel(&module, "append"),
               failing = standin_kernel(&module, "fail");
    CUresult code = how == 0 ? CUDA_ERROR_LAUNCH_FAILED : CUDA_ERROR_ILLEGAL_ADDRESS;
    uint32_t *flags, value;
    int count = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&word, 4));
    OK(cuMemAlloc(&freed, 4));
    OK(cuMemFree(freed));
    OK(cuMemHostAlloc((void **)&flags, 8, 0));
    memset(flags, 0, 8);
    OK(cuStreamWaitValue32(other, (CUdeviceptr)flags, 1, 0)); /* is let go, too */
    OK(cuStreamWriteValue32(other, (CUdeviceptr)(flags + 1), 1, 0));
    if (how == 3) {
        standin_until_waits("a value");
        standin_fault_at(1, code);
    }
    if (how == 0)
        OK(cuLaunchKernel(failing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    else
        OK(standin_append(function,
                          how == 1   ? freed
                          : how == 2 ? (CUdeviceptr)&value
                                     : word,
                          1, stream));
    cuLaunchHostFunc(stream, standin_count_one, &count);
    cuStreamWriteValue32(stream, (CUdeviceptr)(flags + 1), 1, 0);
    EXPECT(cuStreamSynchronize(stream), code);
    EXPECT(cuStreamQuery(other), code);
    EXPECT(cuMemAlloc(&freed, 1), code);
    EXPECT(cuCtxSynchronize(), code);
    CHECK(standin_report(NULL, 0) == (how == 3 ? 0 : 1));
    EXPECT(cuStreamDestroy(stream), code);
    EXPECT(cuStreamDestroy(other), code);
    EXPECT(cuMemFree(word), code);
    CHECK(count == 0 && flags[1] == 0);
    EXPECT(cuMemFreeHost(flags), code);
    EXPECT(cuModuleUnload(module), code);
    standin_end(0);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&word, 4));
    OK(cuMemFree(word));
    standin_end(0);
}

void case_fault_kernel(void)
{
    fault(0);
}

void case_fault_freed(void)
{
    fault(1);
}

void case_fault_host_pointer(void)
{
    fault(2);
}

void case_fault_injected(void)
{
    fault(3);
}

void case_peers(void)
{
    CUcontext first = standin_begin(0), second;
    CUdeviceptr here, there;
    CUmodule module = NULL;
    CUstream foreign;
    CUevent event;
    CUfunction function = standin_kernel(&module, "append");
    uint32_t value = 0;
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuMemAlloc(&here, 4));
    OK(cuEventCreate(&event, 0));
    OK(cuCtxPushCurrent(second));
    OK(cuMemAlloc(&there, 4));
    OK(cuStreamCreate(&foreign, 0));
    MISUSE(cuEventRecord(event, foreign), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamWaitEvent(foreign, event, 0));
    MISUSE(standin_append(function, there, 1, foreign), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxPopCurrent(NULL));
    MISUSE(standin_append(function, here, 1, foreign), CUDA_ERROR_INVALID_HANDLE);
    MISUSE(cuMemcpyDtoDAsync(there, here, 4, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD32Async(here, 4, 1, NULL));
    OK(cuMemcpyPeerAsync(there, second, here, first, 4, NULL));
    MISUSE(cuMemcpyPeerAsync(there, first, here, first, 4, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSynchronize());
    MISUSE(cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_INVALID_DEVICE);
    MISUSE(cuCtxDisablePeerAccess(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    OK(cuCtxEnablePeerAccess(second, 0));
    EXPECT(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    OK(standin_append(function, there, 2, NULL));
    OK(cuMemcpyDtoDAsync(here, there, 4, NULL));
    OK(cuMemcpyDtoH(&value, here, 4));
    CHECK(value == 42);
    OK(cuCtxDisablePeerAccess(second));
    /* One way only: a kernel without the access ends its context. */
    OK(standin_append(function, there, 2, NULL));
    EXPECT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuCtxPushCurrent(second));
    OK(cuCtxSynchronize());
    OK(cuMemFree(there));
    OK(cuStreamDestroy(foreign));
    OK(cuCtxPopCurrent(NULL));
    EXPECT(cuMemFree(here), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(cuEventDestroy(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(cuModuleUnload(module), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuDevicePrimaryCtxRelease(1));
    standin_end(0);
}

void case_no_peers(void)
{
    CUcontext second;
    int can = 1;
    standin_begin(0);
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK(can == 0);
    EXPECT(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    OK(cuDevicePrimaryCtxRelease(1));
    standin_end(0);
}

static void *let_go(void *data)
{
    standin_until_waits("a value");
    while (!standin_calls_of("cuMemFree_v2"))
        sched_yield();
    __atomic_store_n((uint32_t *)data, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Memory that is freed while a stream still uses it: the driver waits, and it is a misuse. */
void case_free_in_use(void)
{
    CUdeviceptr word;
    uint32_t *flag;
    CUstream stream;
    pthread_t thread;
    standin_begin(0);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&word, 4));
    OK(cuMemHostAlloc((void **)&flag, 4, 0));
    *flag = 0;
    OK(cuStreamWaitValue32(stream, (CUdeviceptr)flag, 1, 0));
    OK(cuMemsetD32Async(word, 1, 1, stream));
    CHECK(!pthread_create(&thread, NULL, let_go, flag));
    OK(cuMemFree(word));
    CHECK(standin_report(NULL, 0) == 1);
    pthread_join(thread, NULL);
    OK(cuStreamQuery(stream));
    OK(cuMemFreeHost(flag));
    CHECK(standin_report(NULL, 0) == 1);
    OK(cuStreamDestroy(stream));
    standin_end(0);
}

/* A sequence of calls in which the n-th fails: nothing stays behind, whatever n is. */
static bool sequence(void)
{
    CUcontext context;
    CUdeviceptr word = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    void *pinned = NULL;
    bool good = false;
    if (cuDevicePrimaryCtxRetain(&context, 0))
        return false;
    if (cuCtxPushCurrent(context))
        goto release;
    good = !cuMemAlloc(&word, 64) && !cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) &&
           !cuEventCreate(&event, 0) && !cuMemHostAlloc(&pinned, 64, 0) &&
           !cuMemsetD32Async(word, 3, 16, stream) && !cuMemcpyDtoHAsync(pinned, word, 64, stream) &&
           !cuEventRecord(event, stream) && !cuEventSynchronize(event);
    if (stream)
        good &= !cuStreamSynchronize(stream);
    if (pinned)
        good &= !cuMemFreeHost(pinned);
    if (event)
        good &= !cuEventDestroy(event);
    if (stream)
        good &= !cuStreamDestroy(stream);
    if (word)
        good &= !cuMemFree(word);
    good &= !cuCtxPopCurrent(NULL);
release:
    good &= !cuDevicePrimaryCtxRelease(0);
    return good;
}

void case_every_call_fails(void)
{
    static const int codes[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY,
                                CUDA_ERROR_ILLEGAL_ADDRESS};
    OK(cuInit(0));
    unsigned long before = standin_calls();
    CHECK(sequence());
    unsigned long calls = standin_calls() - before;
    CHECK(calls == 17);
    for (int i = 0; i < 3; i++)
        for (unsigned long n = 1; n <= calls; n++) {
            standin_fail_at(n, codes[i]);
            CHECK(!sequence());
            standin_fail_at(0, 0);
            EXPECT(standin_leaks(NULL, 0), 0);
        }
    CHECK(sequence());
    CHECK(standin_report(NULL, 0) <= 3 * calls); /* freed while in use, where the wait failed */
}

void case_failing_from_outside(void)
{
    CUcontext context;
    OK(cuInit(0));
    EXPECT(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRelease(0));
    EXPECT(standin_leaks(NULL, 0), 0);
}

void case_fork(void)
{
    int status;
    standin_begin(0);
    pid_t child = fork();
    if (!child) {
        CUstream stream;
        _exit(cuStreamCreate(&stream, 0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    standin_end(0);
}

/* ---- what must crash ---- */

void case_touch_device(void)
{
    CUdeviceptr address;
    standin_begin(0);
    OK(cuMemAlloc(&address, 64));
    *(volatile char *)(uintptr_t)address = 1;
}

void case_touch_freed_pinned(void)
{
    volatile char *pinned;
    standin_begin(0);
    OK(cuMemHostAlloc((void **)&pinned, 64, 0));
    OK(cuMemFreeHost((void *)pinned));
    *pinned = 1;
}

void case_touch_behind_pinned(void)
{
    volatile char *pinned;
    standin_begin(0);
    OK(cuMemHostAlloc((void **)&pinned, 256, 0));
    pinned[256] = 1;
}

void case_kernel_leaves(void)
{
    CUmodule module = NULL;
    CUdeviceptr address;
    size_t count = 65;
    uint32_t value = 1;
    standin_begin(0);
    CUfunction add = standin_kernel(&module, "add");
    OK(cuMemAlloc(&address, 256));
    void *arguments[] = {&address, &count, &value};
    OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    cuCtxSynchronize();
}

void case_abort(void)
{
    cuInit(1);
}
