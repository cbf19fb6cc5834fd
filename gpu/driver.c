/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/driver.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "gpu/table.h"
#include "runtime/base/error.h"

static struct weft__cuda_driver loaded;

/* The names as the library has them: expanded before they become texts. */
#define TEXT(name)   #name
#define SYMBOL(name) {TEXT(name), offsetof(struct weft__cuda_driver, name)},
static const struct weft__symbol needed[] = {WEFT__CUDA_FUNCTIONS(SYMBOL){NULL, 0}};
static const struct weft__symbol later[] = {WEFT__CUDA_LATER_FUNCTIONS(SYMBOL){NULL, 0}};

static int begin(void)
{
    CUresult code = loaded.cuInit(0);

    if (code == CUDA_ERROR_NO_DEVICE)
        return weft__error(WEFT_ERR_UNSUPPORTED, "there is a CUDA driver, and no device");
    return code ? weft__cuda_error(&loaded, code, "cuInit", "%s", "of the CUDA driver") : WEFT_OK;
}

static struct weft__table table = {.file = "libcuda.so.1",
                                   .absent = "there is no CUDA driver",
                                   .what = "CUDA",
                                   .major = CUDA_VERSION / 1000,
                                   .minor = CUDA_VERSION % 1000 / 10,
                                   .needed = needed,
                                   .later = later,
                                   .functions = &loaded,
                                   .begin = begin,
                                   .lock = PTHREAD_MUTEX_INITIALIZER};

int weft__cuda_driver(const struct weft__cuda_driver **driver)
{
    int status = weft__table_load(&table);

    if (status == WEFT_OK)
        *driver = &loaded;
    return status;
}

static int status_of(CUresult code)
{
    switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return WEFT_ERR_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
        return WEFT_ERR_UNSUPPORTED;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
        return WEFT_ERR_COMPUTE;
    default:
        return WEFT_ERR_SYSTEM;
    }
}

int weft__cuda_error(const struct weft__cuda_driver *driver, CUresult code, const char *call,
                     const char *format, ...)
{
    char behind[256];
    const char *name = NULL;
    const char *text = NULL;
    va_list list;

    va_start(list, format);
    vsnprintf(behind, sizeof behind, format, list);
    va_end(list);
    if (driver->cuGetErrorName(code, &name) || !name || driver->cuGetErrorString(code, &text) ||
        !text)
        return weft__error(status_of(code), "%s: error %d of the CUDA driver%s%s", call, (int)code,
                           *behind ? " " : "", behind);
    return weft__error(status_of(code), "%s: %s (%s)%s%s", call, name, text, *behind ? " " : "",
                       behind);
}
