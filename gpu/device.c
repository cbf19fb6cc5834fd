/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices opened and ended. A device of the machine is one here, whoever has it: its context is the
 * primary one, which is the process', and its kernels are loaded once.
 *
 * The threads that call have contexts of their own, or none: each call makes the device's current
 * and puts back what there was.
 */
#include "gpu/cuda_device.h"

#include "gpu/operate.h"

#include <stdio.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/device/library.h"
#include <weft/version.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft__cuda *devices;

const char *weft__cuda_build(uint64_t *layout)
{
    *layout = WEFT__DEVICE_LAYOUT;
    return WEFT_VERSION;
}

/* ---- whose context is current ---- */

int weft__cuda_result(const struct weft__cuda *cuda, CUresult code, const char *call)
{
    return code ? weft__cuda_error(cuda->driver, code, call, "on %s", cuda->name) : WEFT_OK;
}

/* 1, 0; or negative, without a text. */
static int enter(const struct weft__cuda *cuda, CUcontext context, CUresult *code)
{
    CUcontext current = NULL;

    *code = cuda->driver->cuCtxGetCurrent(&current);
    if (!*code && current == context)
        return 0;
    if (!*code)
        *code = cuda->driver->cuCtxPushCurrent(context);
    return *code ? WEFT_ERR_SYSTEM : 1;
}

int weft__cuda_enter_context(const struct weft__cuda *cuda, CUcontext context)
{
    CUresult code;
    int entered = enter(cuda, context, &code);

    return entered < 0 ? weft__cuda_result(cuda, code, "cuCtxPushCurrent") : entered;
}

int weft__cuda_enter(const struct weft__cuda *cuda)
{
    return weft__cuda_enter_context(cuda, cuda->context);
}

int weft__cuda_enter_last(const struct weft__cuda *cuda)
{
    CUresult code;
    int entered = enter(cuda, cuda->context, &code);

    return entered < 0 ? enter(cuda, cuda->context, &code) : entered;
}

void weft__cuda_leave(const struct weft__cuda *cuda, int entered)
{
    CUcontext left;

    if (entered > 0)
        cuda->driver->cuCtxPopCurrent(&left);
}

/* ---- opening ---- */

static void retain(struct weft__device *device);
static void end(struct weft__device *device);

static const struct weft__device_ops ops = {
    .where = weft__cuda_where,
    .alloc = weft__cuda_alloc,
    .free = weft__cuda_free,
    .pin = weft__cuda_pin,
    .unpin = weft__cuda_unpin,
    .pin_words = weft__cuda_pin_words,
    .unpin_words = weft__cuda_unpin_words,
    .open = weft__cuda_open_stream,
    .close = weft__cuda_close,
    .reduce = weft__cuda_reduce,
    .reduce_n = weft__cuda_reduce_n,
    .copy = weft__cuda_copy,
    .room = weft__cuda_operation_room,
    .operate = weft__cuda_operate,
    .call = weft__cuda_call,
    .combine = weft__cuda_combine,
    .fill = weft__cuda_fill,
    .copy_vector = weft__cuda_copy_vector,
    .squares = weft__cuda_squares,
    .scatter = weft__cuda_scatter,
    .mark = weft__cuda_mark,
    .failed = weft__cuda_failed,
    .write = weft__cuda_write,
    .hold = weft__cuda_hold,
    .export_memory = weft__cuda_export,
    .import_memory = weft__cuda_import,
    .return_memory = weft__cuda_return,
    .forget_owner = weft__cuda_forget,
    .follow = weft__cuda_follow,
#ifdef WEFT_HAVE_NCCL
    .comm_id = weft__cuda_comm_id,
    .comm_open = weft__cuda_comm_open,
    .comm_poll = weft__cuda_comm_poll,
    .comm_exchange = weft__cuda_comm_exchange,
    .comm_joint = weft__cuda_comm_joint,
    .comm_abort = weft__cuda_comm_abort,
    .comm_close = weft__cuda_comm_close,
#endif
    .retain = retain,
    .end = end,
};

/* Which device is meant. */
static int choose(const struct weft__cuda_driver *driver, int *ordinal, int otherwise, int *count)
{
    CUcontext context = NULL;
    CUdevice device;
    CUresult code = driver->cuDeviceGetCount(count);

    if (code)
        return weft__cuda_error(driver, code, "cuDeviceGetCount", "%s", "of any device");
    if (*count < 1)
        return weft__error(WEFT_ERR_UNSUPPORTED, "there is a CUDA driver, and no device");
    if (*ordinal >= *count)
        return weft__error(WEFT_ERR_INVALID, "device is cuda:%d, expected one of cuda:0 to cuda:%d",
                           *ordinal, *count - 1);
    if (*ordinal >= 0)
        return WEFT_OK;
    code = driver->cuCtxGetCurrent(&context);
    if (!code && context)
        code = driver->cuCtxGetDevice(&device);
    if (code)
        return weft__cuda_error(driver, code, "cuCtxGetDevice", "of the thread's context");
    *ordinal = context ? (int)device : (otherwise > 0 ? otherwise : 0) % *count;
    return WEFT_OK;
}

/* Everything that needs the context current. */
static int prepare(struct weft__cuda *cuda)
{
    int entered = weft__cuda_enter(cuda);
    int status;

    if (entered < 0)
        return entered;
    status = weft__cuda_can_mark(cuda);
    if (status == WEFT_OK)
        status = weft__cuda_load_kernels(cuda);
    weft__cuda_leave(cuda, entered);
    return status;
}

/* Also the half-built. */
static void destroy(struct weft__cuda *cuda)
{
    int entered = -1;

    if (cuda->context)
        entered = weft__cuda_enter_last(cuda);
    weft__cuda_ipc_end(cuda, entered >= 0);
    if (cuda->context) {
        weft__cuda_unload_kernels(cuda, entered >= 0);
        weft__cuda_words_free(cuda);
        weft__cuda_pools_end(cuda, entered >= 0);
        if (entered >= 0)
            weft__cuda_leave(cuda, entered);
        weft__cuda_peers_release(cuda);
        cuda->driver->cuDevicePrimaryCtxRelease(cuda->ordinal);
    }
    weft__cuda_comms_free(cuda);
    pthread_mutex_destroy(&cuda->lock);
    pthread_mutex_destroy(&cuda->pool_lock);
    weft__free(cuda->peers);
    weft__free(cuda);
}

static int create(const struct weft__cuda_driver *driver, int ordinal, int count,
                  struct weft__cuda **cuda)
{
    struct weft__cuda *made = weft__calloc(1, sizeof *made);
    int status;

    if (!made)
        return weft__error_memory("a device");
    made->driver = driver;
    made->ordinal = ordinal;
    made->devices = count;
    snprintf(made->name, sizeof made->name, "cuda:%d", ordinal);
    made->device.ops = &ops;
    made->device.name = made->name;
    pthread_mutex_init(&made->lock, NULL);
    pthread_mutex_init(&made->pool_lock, NULL);
    weft__cuda_ipc_begin(made);
    weft__cuda_comms_init(made);
    made->peers = weft__calloc((size_t)count, sizeof *made->peers);
    status = made->peers ? WEFT_OK : weft__error_memory("a device's peers");
    if (status == WEFT_OK) {
        CUresult code = driver->cuDevicePrimaryCtxRetain(&made->context, ordinal);

        if (code)
            made->context = NULL;
        status = weft__cuda_result(made, code, "cuDevicePrimaryCtxRetain");
    }
    if (status == WEFT_OK)
        status = prepare(made);
    if (status == WEFT_OK)
        *cuda = made;
    else
        destroy(made);
    return status;
}

int weft__cuda_open(int ordinal, int otherwise, struct weft__device **device)
{
    const struct weft__cuda_driver *driver;
    struct weft__cuda *found;
    int count;
    int status = weft__cuda_driver(&driver);

    if (status == WEFT_OK)
        status = choose(driver, &ordinal, otherwise, &count);
    if (status < 0)
        return status;
    pthread_mutex_lock(&lock);
    for (found = devices; found && found->ordinal != ordinal; found = found->next)
        ;
    if (!found) {
        status = create(driver, ordinal, count, &found);
        if (status == WEFT_OK) {
            found->next = devices;
            devices = found;
        }
    }
    if (status == WEFT_OK) {
        found->users++;
        *device = &found->device;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int weft__cuda_locate(const void *address)
{
    int kind = 0;

    pthread_mutex_lock(&lock);
    if (devices)
        kind = weft__cuda_kind(devices, address);
    pthread_mutex_unlock(&lock);
    return kind;
}

static void retain(struct weft__device *device)
{
    pthread_mutex_lock(&lock);
    weft__cuda_of(device)->users++;
    pthread_mutex_unlock(&lock);
}

static void end(struct weft__device *device)
{
    struct weft__cuda *cuda = weft__cuda_of(device);
    struct weft__cuda **place = &devices;

    pthread_mutex_lock(&lock);
    /* Without the lock: a communicator may end only when those of other devices do. */
    while (cuda->users == 1 && weft__cuda_comms_end_now(cuda)) {
        pthread_mutex_unlock(&lock);
        weft__cuda_comms_settle(cuda);
        pthread_mutex_lock(&lock);
    }
    if (--cuda->users == 0) {
        while (*place != cuda)
            place = &(*place)->next;
        *place = cuda->next;
        destroy(cuda);
    }
    pthread_mutex_unlock(&lock);
}
