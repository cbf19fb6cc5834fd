/* SPDX-License-Identifier: BSD-3-Clause */
/* What fails is tried again by the next call; what was loaded stays, as drivers do not survive
 * their unloading. */
#include "tools/train/cuda/libraries.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <weft/weft.h>

static struct train_cuda_libraries loaded;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static int ready; /* with the lock */

struct symbol {
    const char *name;
    size_t member;
};

/* The names as the libraries have them: expanded before they become texts. */
#define TEXT(name)           #name
#define SYMBOL(name)         {TEXT(name), offsetof(struct train_cuda_libraries, name)},
#define OF_CUBLAS(name, has) {#has, offsetof(struct train_cuda_libraries, cublas.name)},
static const struct symbol of_driver[] = {TRAIN_CUDA_FUNCTIONS(SYMBOL){0}};
static const struct symbol later[] = {TRAIN_CUDA_LATER_FUNCTIONS(SYMBOL){0}};
static const struct symbol of_cublas[] = {TRAIN_CUBLAS_FUNCTIONS(OF_CUBLAS){0}};

/* The first symbol that is not there; NULL: all are, and in their members. */
static const char *find_all(void *library, const struct symbol *symbol)
{
    const char *missing = NULL;

    for (; symbol->name; symbol++) {
        void *found = dlsym(library, symbol->name);

        memcpy((char *)&loaded + symbol->member, &found, sizeof found);
        if (!found && !missing)
            missing = symbol->name;
    }
    return missing;
}

static int load_driver(void)
{
    static const char file[] = "libcuda.so.1";
    static void *library;

    if (!library)
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return weft_error_set(WEFT_ERR_UNSUPPORTED, "there is no CUDA driver: %s", dlerror());
    const char *missing = find_all(library, of_driver);
    if (missing)
        return weft_error_set(WEFT_ERR_UNSUPPORTED,
                              "%s has no %s: the CUDA driver is older than what weft was built "
                              "with (CUDA %d.%d)",
                              file, missing, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
    find_all(library, later);
    CUresult code = loaded.cuInit(0);
    if (code == CUDA_ERROR_NO_DEVICE)
        return weft_error_set(WEFT_ERR_UNSUPPORTED, "there is a CUDA driver, and no device");
    if (!code)
        code = loaded.cuDeviceGetCount(&loaded.devices);
    if (code)
        return train_cuda_error(&loaded, code, "cuInit", "any device");
    if (loaded.devices < 1)
        return weft_error_set(WEFT_ERR_UNSUPPORTED, "there is a CUDA driver, and no device");
    return WEFT_OK;
}

/* What the module calls is the same in these. */
static int load_cublas(void)
{
    static const char *const files[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
    static void *library;
    const char *why = NULL;

    for (size_t i = 0; i < sizeof files / sizeof *files && !library; i++) {
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        if (!library && !why)
            why = dlerror();
    }
    if (!library)
        return weft_error_set(WEFT_ERR_UNSUPPORTED, "there is no cuBLAS: %s", why);
    const char *missing = find_all(library, of_cublas);
    return missing ? weft_error_set(WEFT_ERR_UNSUPPORTED, "cuBLAS has no %s", missing) : WEFT_OK;
}

int train_cuda_libraries(const struct train_cuda_libraries **libraries)
{
    int status = WEFT_OK;

    pthread_mutex_lock(&loading);
    if (!ready) {
        status = load_driver();
        if (status == WEFT_OK)
            status = load_cublas();
        ready = status == WEFT_OK;
    }
    pthread_mutex_unlock(&loading);
    if (status == WEFT_OK)
        *libraries = &loaded;
    return status;
}

/* ---- errors ---- */

static int status_of(CUresult code)
{
    switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return WEFT_ERR_MEMORY;
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
        return WEFT_ERR_UNSUPPORTED;
    default:
        return WEFT_ERR_SYSTEM;
    }
}

int train_cuda_error(const struct train_cuda_libraries *libraries, CUresult code, const char *call,
                     const char *device)
{
    const char *name = NULL;
    const char *text = NULL;

    if (libraries->cuGetErrorName(code, &name) || !name ||
        libraries->cuGetErrorString(code, &text) || !text)
        return weft_error_set(status_of(code), "%s: error %d of the CUDA driver on %s", call,
                              (int)code, device);
    return weft_error_set(status_of(code), "%s: %s (%s) on %s", call, name, text, device);
}

int train_cublas_error(int code, const char *call, const char *device)
{
    static const struct {
        int code, status;
        const char *name, *text;
    } known[] = {
        {1, WEFT_ERR_UNSUPPORTED, "NOT_INITIALIZED",
         "it could not begin; is the driver older than it?"},
        {3, WEFT_ERR_MEMORY, "ALLOC_FAILED", "out of memory"},
        {7, WEFT_ERR_SYSTEM, "INVALID_VALUE", "invalid argument"},
        {8, WEFT_ERR_UNSUPPORTED, "ARCH_MISMATCH", "not on this device"},
        {11, WEFT_ERR_SYSTEM, "MAPPING_ERROR", "memory that it cannot reach"},
        {13, WEFT_ERR_SYSTEM, "EXECUTION_FAILED", "a kernel could not be launched"},
        {14, WEFT_ERR_SYSTEM, "INTERNAL_ERROR", "it failed inside"},
        {15, WEFT_ERR_UNSUPPORTED, "NOT_SUPPORTED", "not supported"},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].code == code)
            return weft_error_set(known[i].status, "%s: CUBLAS_STATUS_%s (%s) on %s", call,
                                  known[i].name, known[i].text, device);
    return weft_error_set(WEFT_ERR_SYSTEM, "%s: error %d of cuBLAS on %s", call, code, device);
}
