/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory of every kind, and copies. */
#include "standin_test.h"

#include <stdlib.h>
#include <string.h>

void case_memory(void)
{
    static const size_t sizes[] = {1, 3, 255, 256, 257, 4095, 4096, 4097, 65536, 100003};
    CUdeviceptr address = 0, other;
    size_t unused, total;
    unsigned char *host = malloc(1 << 17), *back = malloc(1 << 17);
    standin_begin(0);
    MISUSE(cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        OK(cuMemAlloc(&address, n));
        CHECK(address % 256 == 0);
        OK(cuMemGetInfo(&unused, &total));
        CHECK(total == 1 << 20 && unused == total - n);
        OK(cuMemcpyDtoH(back, address, n));
        CHECK(back[0] == 0xe5 && back[n - 1] == 0xe5);
        for (size_t k = 0; k < n; k++)
            host[k] = (unsigned char)(k * 7 + n);
        OK(cuMemcpyHtoD(address, host, n));
        memset(back, 0, n);
        OK(cuMemcpyDtoH(back, address, n));
        CHECK(!memcmp(back, host, n));
        MISUSE(cuMemcpyDtoH(back, address, n + 1), CUDA_ERROR_INVALID_VALUE);
        MISUSE(cuMemcpyDtoH(back, address - 1, 1), CUDA_ERROR_INVALID_VALUE);
        OK(cuMemFree(address));
        MISUSE(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
        MISUSE(cuMemcpyDtoH(back, address, 1), CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT(cuMemAlloc(&address, (1 << 20) + 1), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&address, 1 << 20));
    EXPECT(cuMemAlloc(&other, 1), CUDA_ERROR_OUT_OF_MEMORY);
    MISUSE(cuMemFree(address + 256), CUDA_ERROR_INVALID_VALUE);
    MISUSE(cuMemFreeHost((void *)(uintptr_t)address), CUDA_ERROR_INVALID_VALUE);
    MISUSE(cuMemcpyDtoDAsync(address, address + 10, 11, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyDtoDAsync(address, address + 11, 11, NULL));
    MISUSE(cuMemcpyHtoDAsync((CUdeviceptr)host, host, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    MISUSE(cuMemcpyDtoHAsync((void *)(uintptr_t)address, address, 1, NULL),
           CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSynchronize());
    OK(cuMemFree(address));
    free(host);
    free(back);
    standin_end(0);
}

/* What a kernel writes where no guard page is: before the memory, in it, and behind it. */
/* A kernel that writes beside its memory, where no guard page is: a fault all the same. */
void case_slack(void)
{
    static const ptrdiff_t places[] = {-1, 0, 3, 4, 255};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        CUdeviceptr address;
        CUmodule module = NULL;
        ptrdiff_t place = places[i];
        CUresult code = place < 0 || place > 3 ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
        standin_begin(0);
        CUfunction poke = standin_kernel(&module, "poke");
        void *arguments[] = {&address, &place};
        unsigned misuses = standin_report(NULL, 0);
        OK(cuMemAlloc(&address, 4));
        OK(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
        EXPECT(cuCtxSynchronize(), code);
        EXPECT(cuMemFree(address), code);
        EXPECT(cuModuleUnload(module), code);
        CHECK(standin_report(NULL, 0) == misuses + (code ? 1 : 0));
        standin_end(0);
    }
}

void case_copies(void)
{
    enum { PITCH = 64, ROWS = 5, WIDTH = 20 };
    CUdeviceptr plane, dense;
    unsigned char *host, seen[WIDTH * ROWS];
    uint32_t words[4];
    standin_begin(0);
    OK(cuMemAlloc(&plane, PITCH * ROWS));
    OK(cuMemAlloc(&dense, WIDTH * ROWS));
    OK(cuMemHostAlloc((void **)&host, PITCH * ROWS, 0));
    for (int i = 0; i < PITCH * ROWS; i++)
        host[i] = (unsigned char)i;
    OK(cuMemcpyHtoDAsync(plane, host, PITCH * ROWS, NULL));
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = plane,
                          .srcPitch = PITCH,
                          .srcXInBytes = 3,
                          .srcY = 1,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = dense,
                          .WidthInBytes = WIDTH,
                          .Height = ROWS - 1};
    OK(cuMemcpy2DAsync(&copy, NULL));
    OK(cuMemcpyDtoH(seen, dense, WIDTH * (ROWS - 1)));
    for (int i = 0; i < ROWS - 1; i++)
        CHECK(!memcmp(seen + i * WIDTH, host + (i + 1) * PITCH + 3, WIDTH));
    copy.Height = ROWS;
    MISUSE(cuMemcpy2DAsync(&copy, NULL), CUDA_ERROR_INVALID_VALUE);
    copy.srcPitch = WIDTH;
    MISUSE(cuMemcpy2DAsync(&copy, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD8Async(dense, 0x5a, 7, NULL));
    OK(cuMemsetD32Async(dense + 8, 0x01020304, 2, NULL));
    OK(cuMemcpyDtoH(words, dense, 16));
    CHECK(words[0] == 0x5a5a5a5a && words[2] == 0x01020304 && words[3] == 0x01020304);
    MISUSE(cuMemsetD32Async(dense + 2, 0, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    MISUSE(cuMemsetD8Async(dense, 0, WIDTH * ROWS + 1, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyAsync(dense, plane, 0, NULL));
    EXPECT(standin_pageable(), 0);
    OK(cuMemcpyDtoHAsync(seen, dense, 4, NULL));
    EXPECT(standin_pageable(), 1);
    OK(cuStreamSynchronize(NULL));
    OK(cuMemFreeHost(host));
    OK(cuMemFree(plane));
    OK(cuMemFree(dense));
    standin_end(0);
}

void case_pinned(void)
{
    char *pinned, *own = aligned_alloc(4096, 8192), stack[8];
    CUdeviceptr address, device;
    standin_begin(0);
    OK(cuMemAlloc(&device, 16));
    OK(cuMemHostAlloc((void **)&pinned, 100, CU_MEMHOSTALLOC_DEVICEMAP));
    memset(pinned, 1, 100);
    OK(cuMemHostGetDevicePointer(&address, pinned + 4, 0));
    CHECK(address == (CUdeviceptr)(pinned + 4));
    MISUSE(cuMemHostGetDevicePointer(&address, stack, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemHostRegister(own, 8192, CU_MEMHOSTREGISTER_DEVICEMAP));
    EXPECT(cuMemHostRegister(own + 4096, 100, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostGetDevicePointer(&address, own, 0));
    MISUSE(cuMemHostUnregister(own + 1), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    MISUSE(cuMemHostUnregister(pinned), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(cuMemcpyHtoDAsync(device, own, 16, NULL));
    EXPECT(standin_pageable(), 0);
    OK(cuCtxSynchronize());
    OK(cuMemHostUnregister(own));
    MISUSE(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(cuMemcpyHtoDAsync(device, own, 16, NULL));
    EXPECT(standin_pageable(), 1);
    OK(cuCtxSynchronize());
    pinned[100] = 2;
    unsigned misuses = standin_report(NULL, 0);
    OK(cuMemFreeHost(pinned));
    CHECK(standin_report(NULL, 0) == misuses + 1);
    MISUSE(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(device));
    free(own);
    standin_end(0);
}

void case_pointers(void)
{
    CUdeviceptr device, base;
    CUcontext context = standin_begin(0), owner = NULL;
    CUmemorytype type = 0;
    int ordinal = 5;
    size_t size = 0;
    char *pinned, *own = malloc(10);
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_CONTEXT};
    void *data[] = {&type, &ordinal, &owner};
    OK(cuMemAlloc(&device, 1000));
    OK(cuMemHostAlloc((void **)&pinned, 10, 0));
    OK(cuPointerGetAttributes(3, asked, data, device + 999));
    CHECK(type == CU_MEMORYTYPE_DEVICE && ordinal == 0 && owner == context);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)pinned));
    CHECK(type == CU_MEMORYTYPE_HOST);
    OK(cuPointerGetAttributes(3, asked, data, (CUdeviceptr)own));
    CHECK(type == 0 && ordinal == -2 && !owner);
    EXPECT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)own),
           CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 1000),
           CUDA_ERROR_INVALID_VALUE);
    OK(cuMemGetAddressRange(&base, &size, device + 500));
    CHECK(base == device && size == 1000);
    EXPECT(cuMemGetAddressRange(&base, &size, (CUdeviceptr)own), CUDA_ERROR_NOT_FOUND);
    CHECK(standin_report(NULL, 0) == 0);
    OK(cuMemFree(device));
    EXPECT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device),
           CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeHost(pinned));
    free(own);
    standin_end(0);
}
