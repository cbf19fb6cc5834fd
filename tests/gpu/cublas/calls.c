/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What every call goes through, handles, and what tests ask. */
#include "inside.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { TEXT_MAX = 16384, WORKSPACE = 1 << 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cublas_handle *handles; /* with the lock, as all that follows */
static unsigned long calls, products, fail_at;
static int fail_code = CUBLAS_INTERNAL_ERROR;
static unsigned misuses;
static char texts[TEXT_MAX];
static size_t texts_used;
static bool quiet, aborts;

static _Thread_local const char *running;
static _Thread_local int afterwards;

__attribute__((constructor)) static void start(void)
{
    const char *fail = getenv("STANDIN_CUBLAS_FAIL");
    const char *silent = getenv("STANDIN_QUIET"), *ends = getenv("STANDIN_ABORT");
    char *end = NULL;

    fail_at = fail ? strtoul(fail, &end, 0) : 0;
    if (end && *end == ':')
        fail_code = atoi(end + 1);
    quiet = silent && atoi(silent);
    aborts = ends && atoi(ends);
}

int cublas__misuse(int result, const char *format, ...)
{
    char line[512];
    va_list list;

    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    const char *who = running ? running : "a stream";
    pthread_mutex_lock(&lock);
    misuses++;
    if (texts_used + 1 < sizeof texts) {
        int length = snprintf(texts + texts_used, sizeof texts - texts_used, "%s: %s\n", who, line);
        texts_used += (size_t)length;
    }
    pthread_mutex_unlock(&lock);
    if (!quiet || aborts)
        fprintf(stderr, "stand-in of cuBLAS: %s: %s\n", who, line);
    if (aborts)
        abort();
    return result;
}

static struct cublas_handle *find(const void *pointer)
{
    struct cublas_handle *found = NULL;

    pthread_mutex_lock(&lock);
    for (struct cublas_handle *handle = handles; handle; handle = handle->next)
        if (handle == pointer)
            found = handle;
    pthread_mutex_unlock(&lock);
    return found;
}

static int usable(struct cublas_handle *handle, bool releases)
{
    CUcontext current = NULL;

    if (atomic_fetch_add(&handle->busy, 1))
        return cublas__misuse(CUBLAS_INVALID_VALUE, "two threads are in one handle");
    if (cuCtxGetCurrent(&current))
        return releases ? CUBLAS_OK : CUBLAS_EXECUTION_FAILED;
    return current == handle->context
               ? CUBLAS_OK
               : cublas__misuse(CUBLAS_INVALID_VALUE, "device %d, the handle's, is not current",
                                (int)handle->device);
}

int cublas__enter(const char *name, void *pointer, bool releases, struct cublas_handle **found)
{
    running = name;
    afterwards = CUBLAS_OK;
    pthread_mutex_lock(&lock);
    calls++;
    bool fails = fail_at && --fail_at == 0;
    pthread_mutex_unlock(&lock);
    if (found) {
        *found = find(pointer);
        if (!*found || !(*found)->live) {
            bool known = *found;
            *found = NULL;
            return cublas__misuse(CUBLAS_NOT_INITIALIZED, "%p %s", pointer,
                                  known ? "was destroyed" : "is no handle");
        }
        int result = usable(*found, releases);
        if (result)
            return result;
    }
    if (!fails)
        return CUBLAS_OK;
    if (!releases) {
        cuCtxSynchronize(); /* so that it is known what it comes upon */
        return fail_code;
    }
    afterwards = fail_code;
    return CUBLAS_OK;
}

int cublas__leave(struct cublas_handle *handle, int result)
{
    if (handle)
        atomic_fetch_sub(&handle->busy, 1);
    running = NULL;
    return result ? result : afterwards;
}

void cublas__count_product(void)
{
    pthread_mutex_lock(&lock);
    products++;
    pthread_mutex_unlock(&lock);
}

/* ---- handles ---- */

/* Takes memory of the device, as cuBLAS does. */
static int make(struct cublas_handle *handle)
{
    CUcontext context = NULL;

    if (cuCtxGetCurrent(&context))
        return CUBLAS_NOT_INITIALIZED;
    if (!context)
        return cublas__misuse(CUBLAS_NOT_INITIALIZED, "no context is current");
    handle->context = context;
    if (cuCtxGetDevice(&handle->device))
        return CUBLAS_NOT_INITIALIZED;
    return cuMemAlloc(&handle->workspace, WORKSPACE) ? CUBLAS_ALLOC_FAILED : CUBLAS_OK;
}

CUBLAS_EXPORT int cublasCreate_v2(void **handle)
{
    int result = cublas__enter(__func__, NULL, false, NULL);
    struct cublas_handle *made = calloc(1, sizeof *made);

    if (!result && !handle)
        result = cublas__misuse(CUBLAS_INVALID_VALUE, "NULL");
    if (!result && !made)
        result = CUBLAS_ALLOC_FAILED;
    if (!result)
        result = make(made);
    if (result) {
        free(made);
        return cublas__leave(NULL, result);
    }
    made->live = true;
    pthread_mutex_lock(&lock);
    made->next = handles;
    handles = made;
    pthread_mutex_unlock(&lock);
    *handle = made;
    return cublas__leave(NULL, CUBLAS_OK);
}

CUBLAS_EXPORT int cublasDestroy_v2(void *handle)
{
    struct cublas_handle *found;
    int result = cublas__enter(__func__, handle, true, &found);

    if (!result) {
        cuStreamSynchronize(found->stream); /* it may be said there that something has failed */
        found->live = false;
        if (cuMemFree(found->workspace))
            result = CUBLAS_INTERNAL_ERROR;
    }
    return cublas__leave(found, result);
}

CUBLAS_EXPORT int cublasSetStream_v2(void *handle, void *stream)
{
    struct cublas_handle *found;
    CUcontext context = NULL;
    int result = cublas__enter(__func__, handle, false, &found);

    if (!result && stream && cuStreamGetCtx(stream, &context))
        result = CUBLAS_EXECUTION_FAILED;
    if (!result && stream && context != found->context)
        result = cublas__misuse(CUBLAS_INVALID_VALUE, "the stream is not of device %d",
                                (int)found->device);
    if (!result)
        found->stream = stream;
    return cublas__leave(found, result);
}

/* ---- what tests ask ---- */

CUBLAS_EXPORT unsigned standin_cublas_report(char *text, size_t size)
{
    pthread_mutex_lock(&lock);
    unsigned count = misuses;
    if (text && size)
        snprintf(text, size, "%s", texts);
    pthread_mutex_unlock(&lock);
    return count;
}

CUBLAS_EXPORT void standin_cublas_forget(void)
{
    pthread_mutex_lock(&lock);
    misuses = 0;
    texts_used = 0;
    texts[0] = '\0';
    pthread_mutex_unlock(&lock);
}

CUBLAS_EXPORT unsigned standin_cublas_leaks(void)
{
    unsigned count = 0;

    pthread_mutex_lock(&lock);
    for (const struct cublas_handle *handle = handles; handle; handle = handle->next)
        count += handle->live;
    pthread_mutex_unlock(&lock);
    return count;
}

static unsigned long read_count(const unsigned long *from)
{
    pthread_mutex_lock(&lock);
    unsigned long count = *from;
    pthread_mutex_unlock(&lock);
    return count;
}

CUBLAS_EXPORT unsigned long standin_cublas_calls(void)
{
    return read_count(&calls);
}

CUBLAS_EXPORT unsigned long standin_cublas_products(void)
{
    return read_count(&products);
}

CUBLAS_EXPORT void standin_cublas_fail_at(unsigned long n, int code)
{
    pthread_mutex_lock(&lock);
    fail_at = n;
    fail_code = code;
    pthread_mutex_unlock(&lock);
}
