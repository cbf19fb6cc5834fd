/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Devices, contexts, errors. */
#include "standin_test.h"

#include <pthread.h>
#include <string.h>

void case_devices(void)
{
    int count = 0, value = 0, can = -1;
    char name[32], bus[13];
    size_t bytes = 0;
    CUuuid uuid[2];
    CUdevice device;
    MISUSE(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuDriverGetVersion(&value));
    CHECK(value == CUDA_VERSION);
    MISUSE(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    OK(cuInit(0));
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    CHECK(count == 3);
    OK(cuDeviceGet(&device, 2));
    MISUSE(cuDeviceGet(&device, 3), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGetName(name, sizeof name, device));
    CHECK(!strcmp(name, "stand-in 2"));
    OK(cuDeviceTotalMem(&bytes, device));
    CHECK(bytes == 1 << 20);
    OK(cuDeviceGetUuid(&uuid[0], 0));
    OK(cuDeviceGetUuid(&uuid[1], 1));
    CHECK(memcmp(&uuid[0], &uuid[1], sizeof *uuid) != 0);
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, 1));
    CHECK(!strcmp(bus, "0000:02:00.0"));
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    CHECK(value == 32);
    MISUSE(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK(can == 1);
    OK(cuDeviceCanAccessPeer(&can, 1, 1));
    CHECK(can == 0);
    CHECK(standin_calls_of("cuInit") == 3);
    EXPECT(standin_leaks(NULL, 0), 0);
}

void case_errors(void)
{
    const char *text = NULL;
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    CHECK(!strcmp(text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK(!strcmp(text, "out of memory"));
    EXPECT(cuGetErrorString((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
    CHECK(!text);
    OK(cuGetProcAddress("cuMemAlloc", &function, CUDA_VERSION, 0, &status));
    CHECK(function == (void *)(uintptr_t)&cuMemAlloc);
    CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
    EXPECT(cuGetProcAddress("cuNothing", &function, CUDA_VERSION, 0, &status),
           CUDA_ERROR_NOT_FOUND);
    CHECK(!function && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

static void *other_thread(void *data)
{
    CUdeviceptr address;
    (void)data;
    MISUSE(cuMemAlloc(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
    return NULL;
}

void case_contexts(void)
{
    CUcontext context, seen, second;
    CUdevice device = -1;
    CUdeviceptr address;
    pthread_t thread;
    int least, greatest;
    OK(cuInit(0));
    OK(cuCtxGetCurrent(&seen));
    CHECK(!seen);
    MISUSE(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    MISUSE(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    MISUSE(cuCtxSetCurrent((CUcontext)&device), CUDA_ERROR_INVALID_CONTEXT);
    context = standin_begin(0);
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxPushCurrent(second));
    OK(cuCtxGetDevice(&device));
    CHECK(device == 1);
    OK(cuCtxPopCurrent(&seen));
    CHECK(seen == second);
    OK(cuCtxGetCurrent(&seen));
    CHECK(seen == context);
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(least == 0 && greatest < 0);
    CHECK(!pthread_create(&thread, NULL, other_thread, NULL));
    pthread_join(thread, NULL);
    OK(cuDevicePrimaryCtxRelease(1));
    MISUSE(cuCtxPushCurrent(second), CUDA_ERROR_INVALID_CONTEXT);
    /* The context is made again: this thread still has the old one. */
    OK(cuDevicePrimaryCtxRelease(0));
    MISUSE(cuMemAlloc(&address, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    MISUSE(cuMemAlloc(&address, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&address, 1));
    CHECK(standin_leaks(NULL, 0) == 2);
    OK(cuMemFree(address));
    standin_end(0);
    MISUSE(cuCtxPopCurrent(NULL), CUDA_ERROR_INVALID_CONTEXT);
}

void case_abandoned(void)
{
    CUdeviceptr address;
    CUstream stream;
    CUevent event;
    standin_begin(0);
    OK(cuMemAlloc(&address, 100));
    OK(cuStreamCreate(&stream, 0));
    OK(cuEventCreate(&event, 0));
    CHECK(standin_leaks(NULL, 0) == 4);
    OK(cuDevicePrimaryCtxRelease(0));
    CHECK(standin_leaks(NULL, 0) == 3);
}
