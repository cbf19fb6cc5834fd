/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/gpu/support/device_memory.h"

#include "tests/gpu/support/standin_calls.h"

#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define FUNCTIONS(X)                                                                               \
    X(cuInit)                                                                                      \
    X(cuDeviceGetCount)                                                                            \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuCtxSetCurrent)                                                                             \
    X(cuMemAlloc)                                                                                  \
    X(cuMemFree)                                                                                   \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemcpyHtoD)                                                                                \
    X(cuMemcpyDtoH)                                                                                \
    X(cuMemcpyHtoDAsync)                                                                           \
    X(cuMemcpyDtoHAsync)                                                                           \
    X(cuLaunchHostFunc)                                                                            \
    X(cuStreamCreate)                                                                              \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamDestroy)                                                                             \
    X(cuStreamWaitValue32)

#define TEXT(name)     #name
#define NAME_OF(name)  TEXT(name)
#define MEMBER(name)   __typeof__(name) *name##_;
#define FIND(function) driver.function##_ = find(NAME_OF(function));

enum { MOST_DEVICES = 16 };

static struct {
    FUNCTIONS(MEMBER)
    CUcontext contexts[MOST_DEVICES];
    int count;
} driver;

static void *library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void check(CUresult code, const char *call)
{
    if (code == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s returned %d\n", call, (int)code);
    abort();
}

#define CALL(name, ...) check(driver.name##_(__VA_ARGS__), #name)

static void *find(const char *name)
{
    void *found = dlsym(library, name);

    if (!found) {
        fprintf(stderr, "the driver has no %s\n", name);
        abort();
    }
    return found;
}

/* The contexts stay until the process ends: tests have memory of them all the time. */
static void load(void)
{
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    FUNCTIONS(FIND)
    CALL(cuInit, 0);
    CALL(cuDeviceGetCount, &driver.count);
    driver.count = driver.count < MOST_DEVICES ? driver.count : MOST_DEVICES;
    for (int i = 0; i < driver.count; i++)
        CALL(cuDevicePrimaryCtxRetain, &driver.contexts[i], i);
}

int device_count(void)
{
    pthread_once(&once, load);
    return driver.count;
}

void device_use(int ordinal)
{
    if (ordinal >= device_count())
        abort();
    CALL(cuCtxSetCurrent, driver.contexts[ordinal]);
}

void *device_alloc(size_t bytes)
{
    CUdeviceptr memory;

    CALL(cuMemAlloc, &memory, bytes ? bytes : 1);
    return (void *)(uintptr_t)memory;
}

void device_free(void *memory)
{
    if (memory)
        CALL(cuMemFree, (CUdeviceptr)(uintptr_t)memory);
}

void *device_pin(size_t bytes)
{
    void *memory;

    CALL(cuMemHostAlloc, &memory, bytes ? bytes : 1, CU_MEMHOSTALLOC_PORTABLE);
    return memory;
}

void device_unpin(void *memory)
{
    if (memory)
        CALL(cuMemFreeHost, memory);
}

void device_put(void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        CALL(cuMemcpyHtoD, (CUdeviceptr)(uintptr_t)to, from, bytes);
}

void device_get(void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        CALL(cuMemcpyDtoH, to, (CUdeviceptr)(uintptr_t)from, bytes);
}

void device_stream_get(void *stream, void *host, const void *from, size_t bytes)
{
    if (bytes > 0)
        CALL(cuMemcpyDtoHAsync, host, (CUdeviceptr)(uintptr_t)from, bytes, stream);
}

void device_stream_put(void *stream, void *to, const void *host, size_t bytes)
{
    if (bytes > 0)
        CALL(cuMemcpyHtoDAsync, (CUdeviceptr)(uintptr_t)to, host, bytes, stream);
}

void device_stream_call(void *stream, void (*function)(void *), void *argument)
{
    CALL(cuLaunchHostFunc, stream, function, argument);
}

void *device_stream(void)
{
    CUstream stream;

    CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    return stream;
}

void device_stream_wait(void *stream)
{
    CALL(cuStreamSynchronize, stream);
}

void device_stream_hold(void *stream, uint32_t *word, uint32_t value)
{
    CALL(cuStreamWaitValue32, stream, (CUdeviceptr)(uintptr_t)word, value, CU_STREAM_WAIT_VALUE_EQ);
}

void device_stream_close(void *stream)
{
    CALL(cuStreamDestroy, stream);
}

int device_left(void)
{
    char text[4096] = "";
    int left;

    pthread_once(&once, load);
    if (!standin_find()->there)
        return 0;
    left = (int)standin_find()->leaks(text, sizeof text) - driver.count;
    if (left > 0)
        fprintf(stderr, "left on devices: %s\n", text);
    return left;
}

void device_check(void)
{
    char text[4096] = "";

    if (standin_find()->report(text, sizeof text) > 0) {
        fprintf(stderr, "misuse of the driver: %s\n", text);
        abort();
    }
}
