/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of CUDA's driver, as peers. */
#include "tools/bench/gpu.h"

#include <dlfcn.h>
#include <string.h>

enum { NON_BLOCKING = 1 }; /* CU_STREAM_NON_BLOCKING */

typedef unsigned long long address; /* CUdeviceptr */

struct calls {
    int (*init)(unsigned flags);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*set_current)(void *context);
    int (*create)(void **stream, unsigned flags);
    int (*destroy)(void *stream);
    int (*synchronize)(void *stream);
    int (*copy)(address to, address from, size_t bytes, void *stream);
    int (*set)(address to, unsigned char value, size_t count, void *stream);
};

/* In that order. */
static const char *const names[] = {
    "cuInit",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuMemcpyAsync",
    "cuMemsetD8Async",
};

enum { CALLS = sizeof names / sizeof *names };

struct gpu_driver {
    union {
        struct calls calls;
        void *found[CALLS];
    };
    int device;
    void *context;
    void *stream;
};

_Static_assert(sizeof(struct calls) == CALLS * sizeof(void *), "a name for each call");

static int told(int code, const char *call)
{
    return code == 0 ? WEFT_OK
                     : weft_error_set(WEFT_ERR_SYSTEM, "%s: error %d of the driver", call, code);
}

/* The driver stays loaded, as libweft-cuda has it anyway. */
static int load(struct gpu_driver *driver)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return weft_error_set(WEFT_ERR_UNSUPPORTED, "%s", dlerror());
    for (int i = 0; i < CALLS; i++) {
        driver->found[i] = dlsym(library, names[i]);
        if (!driver->found[i])
            return weft_error_set(WEFT_ERR_UNSUPPORTED, "libcuda.so.1 has no %s", names[i]);
    }
    return told(driver->calls.init(0), "cuInit");
}

int gpu_driver_open(struct gpu_driver **out, int device)
{
    struct gpu_driver *driver = weft_memory_alloc(1, sizeof *driver);
    int status = driver ? load(driver) : weft_error_set(WEFT_ERR_MEMORY, "out of memory");

    if (status == WEFT_OK) {
        driver->device = device;
        status = told(driver->calls.retain(&driver->context, device), "cuDevicePrimaryCtxRetain");
        if (status != WEFT_OK)
            driver->context = NULL;
    }
    if (status == WEFT_OK)
        status = told(driver->calls.set_current(driver->context), "cuCtxSetCurrent");
    if (status == WEFT_OK &&
        (status = told(driver->calls.create(&driver->stream, NON_BLOCKING), "cuStreamCreate")))
        driver->stream = NULL;
    if (status == WEFT_OK)
        *out = driver;
    else
        gpu_driver_close(driver);
    return status;
}

void gpu_driver_close(struct gpu_driver *driver)
{
    if (!driver)
        return;
    if (driver->context) {
        driver->calls.set_current(driver->context); /* others may have been the thread's since */
        if (driver->stream)
            driver->calls.destroy(driver->stream);
        driver->calls.set_current(NULL);
        driver->calls.release(driver->device);
    }
    weft_memory_free(driver);
}

void *gpu_driver_stream(const struct gpu_driver *driver)
{
    return driver->stream;
}

int gpu_driver_copy(struct gpu_driver *driver, void *to, const void *from, size_t bytes)
{
    return told(
        driver->calls.copy((address)(uintptr_t)to, (address)(uintptr_t)from, bytes, driver->stream),
        "cuMemcpyAsync");
}

int gpu_driver_touch(struct gpu_driver *driver, void *byte)
{
    return told(driver->calls.set((address)(uintptr_t)byte, 1, 1, driver->stream),
                "cuMemsetD8Async");
}

int gpu_driver_wait(struct gpu_driver *driver)
{
    return told(driver->calls.synchronize(driver->stream), "cuStreamSynchronize");
}
