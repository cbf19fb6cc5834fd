/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device as a backend: memory, vectors, its beginning and its end. Each has a stream of its own;
 * the context is the device's primary one, which libweft uses, too. An error of an operation of the
 * stream is found by a later call, so whatever fails is kept, and nothing is done any more.
 */
#include "tools/train/cuda/device.h"

#include "tools/train/device.h"

#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

/* ---- what has failed ---- */

int train_cuda_status(struct train_cuda *cuda)
{
    return cuda->status ? weft_error_set(cuda->status, "%s", cuda->text) : WEFT_OK;
}

int train_cuda_fail(struct train_cuda *cuda, int status)
{
    if (!cuda->status && status != WEFT_OK) {
        cuda->status = status;
        snprintf(cuda->text, sizeof cuda->text, "%s", weft_error_text());
    }
    return train_cuda_status(cuda);
}

int train_cuda_check(struct train_cuda *cuda, CUresult code, const char *call)
{
    int status = code ? train_cuda_error(cuda->calls, code, call, cuda->name) : WEFT_OK;

    return train_cuda_fail(cuda, status);
}

/* cuBLAS has words of its own for a device that an operation before has ended, those of a driver
 * that is too old and of memory that is full among them: the driver says what it was. It is not
 * waited for: what is on the stream may wait for other ranks. */
int train_cublas_check(struct train_cuda *cuda, int code, const char *call)
{
    CUresult state = code ? cuda->calls->cuStreamQuery(cuda->stream) : CUDA_SUCCESS;

    if (state && state != CUDA_ERROR_NOT_READY)
        return train_cuda_check(cuda, state, call);
    return train_cuda_fail(cuda, code ? train_cublas_error(code, call, cuda->name) : WEFT_OK);
}

int train_cuda_enter(struct train_cuda *cuda)
{
    CUcontext current = NULL;

    TRAIN_CUDA_CALL(cuda, cuCtxGetCurrent, &current);
    if (current != cuda->context)
        TRAIN_CUDA_CALL(cuda, cuCtxSetCurrent, cuda->context);
    return train_cuda_status(cuda);
}

/* ---- memory ---- */

int train_cuda_clear(struct train_cuda *cuda, void *memory, size_t bytes)
{
    return TRAIN_CUDA_CALL(cuda, cuMemsetD8Async, train_cuda_at(memory), 0, bytes, cuda->stream);
}

int train_cuda_copy(struct train_cuda *cuda, void *to, const void *from, size_t bytes)
{
    return TRAIN_CUDA_CALL(cuda, cuMemcpyDtoDAsync, train_cuda_at(to), train_cuda_at(from), bytes,
                           cuda->stream);
}

int train_cuda_alloc(struct train_cuda *cuda, size_t bytes, void **memory)
{
    CUdeviceptr made = 0;

    if (TRAIN_CUDA_CALL(cuda, cuMemAlloc, &made, bytes) != WEFT_OK)
        return train_cuda_status(cuda);
    int status = train_cuda_clear(cuda, (void *)(uintptr_t)made, bytes);
    if (status == WEFT_OK)
        *memory = (void *)(uintptr_t)made;
    else
        cuda->calls->cuMemFree(made);
    return status;
}

static int alloc(struct backend *backend, size_t count, int sent, float **memory)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    void *made = NULL;

    (void)sent;
    int status = train_cuda_enter(cuda);
    if (status == WEFT_OK)
        status = train_cuda_alloc(cuda, count * sizeof **memory, &made);
    if (status == WEFT_OK)
        *memory = made;
    return status;
}

/* What gives back goes on after failures; what cannot be made current is tried twice. */
static int enter_last(struct train_cuda *cuda)
{
    const struct train_cuda_libraries *calls = cuda->calls;

    return !calls->cuCtxSetCurrent(cuda->context) || !calls->cuCtxSetCurrent(cuda->context);
}

static void release(struct backend *backend, float *memory, int sent)
{
    struct train_cuda *cuda = train_cuda_of(backend);

    (void)sent;
    if (memory && enter_last(cuda))
        cuda->calls->cuMemFree(train_cuda_at(memory));
}

/* ---- vectors ---- */

static int clear(struct backend *backend, float *to, size_t count)
{
    struct train_cuda *cuda = train_cuda_of(backend);

    train_cuda_enter(cuda);
    return train_cuda_clear(cuda, to, count * sizeof *to);
}

static int copy(struct backend *backend, float *to, const float *from, size_t count)
{
    struct train_cuda *cuda = train_cuda_of(backend);

    train_cuda_enter(cuda);
    return train_cuda_copy(cuda, to, from, count * sizeof *to);
}

static int scale(struct backend *backend, float *to, const float *from, float factor, size_t count)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    uint64_t elements = count;

    train_cuda_enter(cuda);
    return TRAIN_CUDA_LAUNCH(cuda, train_scale, elements, &to, &from, &factor, &elements);
}

static int shift(struct backend *backend, float *data, const float *sum, float factor,
                 const float *posted, size_t count)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    uint64_t elements = count;

    train_cuda_enter(cuda);
    return TRAIN_CUDA_LAUNCH(cuda, train_shift, elements, &data, &sum, &factor, &posted, &elements);
}

static int swap(struct backend *backend, float *a, float *b, size_t count)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    uint64_t elements = count;

    train_cuda_enter(cuda);
    return TRAIN_CUDA_LAUNCH(cuda, train_swap, elements, &a, &b, &elements);
}

static int update(struct backend *backend, float *weights, float *velocities,
                  const float *gradients, size_t count, float rate, float momentum)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    uint64_t elements = count;

    train_cuda_enter(cuda);
    return TRAIN_CUDA_LAUNCH(cuda, train_update, elements, &weights, &velocities, &gradients, &rate,
                             &momentum, &elements);
}

/* ---- to and from the host ---- */

/* Also after a failure, for then memory is freed: a call that has failed is tried again. */
static int settle(struct backend *backend)
{
    struct train_cuda *cuda = train_cuda_of(backend);

    if (!enter_last(cuda))
        return train_cuda_enter(cuda);
    CUresult code = cuda->calls->cuStreamSynchronize(cuda->stream);
    if (code)
        cuda->calls->cuStreamSynchronize(cuda->stream);
    return train_cuda_check(cuda, code, "cuStreamSynchronize");
}

static int get(struct backend *backend, float *host, const float *from, size_t count)
{
    struct train_cuda *cuda = train_cuda_of(backend);

    train_cuda_enter(cuda);
    TRAIN_CUDA_CALL(cuda, cuMemcpyDtoHAsync, host, train_cuda_at(from), count * sizeof *host,
                    cuda->stream);
    return settle(backend);
}

static int put(struct backend *backend, float *to, const float *host, size_t count)
{
    struct train_cuda *cuda = train_cuda_of(backend);

    train_cuda_enter(cuda);
    TRAIN_CUDA_CALL(cuda, cuMemcpyHtoDAsync, train_cuda_at(to), host, count * sizeof *host,
                    cuda->stream);
    return settle(backend);
}

/* Nothing is under way to what was kept before, or it has not been asked for. */
static int make_room(struct train_cuda *cuda, size_t count)
{
    void *made = NULL;

    if (cuda->kept)
        TRAIN_CUDA_CALL(cuda, cuMemFreeHost, cuda->kept);
    cuda->kept = NULL;
    cuda->kept_room = 0;
    TRAIN_CUDA_CALL(cuda, cuMemHostAlloc, &made, count * sizeof(float), CU_MEMHOSTALLOC_PORTABLE);
    if (!cuda->kept_there)
        TRAIN_CUDA_CALL(cuda, cuEventCreate, &cuda->kept_there,
                        CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    cuda->kept = made;
    cuda->kept_room = cuda->kept ? count : 0;
    return train_cuda_status(cuda);
}

static int keep(struct backend *backend, const float *from, size_t count)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    int status = train_cuda_enter(cuda);

    if (status == WEFT_OK && count > cuda->kept_room)
        status = settle(backend);
    if (status == WEFT_OK && count > cuda->kept_room)
        status = make_room(cuda, count);
    if (status != WEFT_OK)
        return status;
    TRAIN_CUDA_CALL(cuda, cuMemcpyDtoHAsync, cuda->kept, train_cuda_at(from), count * sizeof *from,
                    cuda->stream);
    return TRAIN_CUDA_CALL(cuda, cuEventRecord, cuda->kept_there, cuda->stream);
}

static int kept(struct backend *backend, const float **host)
{
    struct train_cuda *cuda = train_cuda_of(backend);

    train_cuda_enter(cuda);
    int status = TRAIN_CUDA_CALL(cuda, cuEventSynchronize, cuda->kept_there);
    if (status == WEFT_OK)
        *host = cuda->kept;
    return status;
}

/* ---- beginning and end ---- */

/* Also the half-built. */
static void destroy(struct backend *backend)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    const struct train_cuda_libraries *calls = cuda ? cuda->calls : NULL;

    if (cuda && cuda->context && enter_last(cuda)) {
        if (cuda->stream)
            settle(backend); /* what the half-built has begun */
        if (cuda->cublas)
            calls->cublas.destroy(cuda->cublas);
        if (cuda->kept_there)
            calls->cuEventDestroy(cuda->kept_there);
        if (cuda->kept)
            calls->cuMemFreeHost(cuda->kept);
        train_cuda_free_batches(cuda);
        if (cuda->stream)
            calls->cuStreamDestroy(cuda->stream);
        train_cuda_unload_kernels(cuda);
        calls->cuCtxSetCurrent(NULL);
        calls->cuDevicePrimaryCtxRelease(cuda->ordinal);
    }
    weft_memory_free(cuda);
}

static const struct operation_passes *const passes[NET_KINDS] = {
    [NET_DENSE] = &train_cuda_dense, [NET_CONVOLUTION] = &train_cuda_convolution,
    [NET_NORM] = &train_cuda_norm,   [NET_RELU] = &train_cuda_relu,
    [NET_ADD] = &train_cuda_add,     [NET_POOL] = &train_cuda_pool,
    [NET_MEAN] = &train_cuda_mean,
};

static const struct backend_ops ops = {
    .passes = passes,
    .alloc = alloc,
    .free = release,
    .load = train_cuda_load,
    .derive_scores = train_cuda_derive_scores,
    .end_gradient = train_cuda_end_gradient,
    .loss = train_cuda_loss,
    .count_right = train_cuda_count_right,
    .update = update,
    .clear = clear,
    .copy = copy,
    .scale = scale,
    .shift = shift,
    .swap = swap,
    .get = get,
    .put = put,
    .keep = keep,
    .kept = kept,
    .seconds = train_cuda_seconds,
    .settle = settle,
    .destroy = destroy,
};

/* Everything that needs the context. */
static int prepare(struct train_cuda *cuda, size_t numbers)
{
    int status = train_cuda_enter(cuda);

    if (status == WEFT_OK)
        status = train_cuda_fail(cuda, train_cuda_load_kernels(cuda));
    if (status == WEFT_OK)
        status = TRAIN_CUDA_CALL(cuda, cuStreamCreate, &cuda->stream, CU_STREAM_NON_BLOCKING);
    if (status == WEFT_OK)
        status = train_cuda_make_batches(cuda, numbers);
    if (status == WEFT_OK)
        status =
            train_cublas_check(cuda, cuda->calls->cublas.create(&cuda->cublas), "cublasCreate");
    if (status == WEFT_OK)
        status = train_cublas_check(
            cuda, cuda->calls->cublas.set_stream(cuda->cublas, cuda->stream), "cublasSetStream");
    return status;
}

static int create(struct backend **backend, const struct train_device_config *config)
{
    const struct train_cuda_libraries *calls;
    int status = train_cuda_libraries(&calls);

    if (status != WEFT_OK)
        return status;
    if (config->ordinal < 0 || config->ordinal >= calls->devices)
        return weft_error_set(WEFT_ERR_INVALID, "device cuda:%d; expected one of cuda:0 to cuda:%d",
                              config->ordinal, calls->devices - 1);
    struct train_cuda *cuda = weft_memory_alloc(1, sizeof *cuda);
    if (!cuda)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a device");
    cuda->backend.ops = &ops;
    cuda->calls = calls;
    cuda->ordinal = config->ordinal;
    cuda->most = config->batch;
    cuda->batch = cuda->batches;
    snprintf(cuda->name, sizeof cuda->name, "cuda:%d", config->ordinal);
    status = TRAIN_CUDA_CALL(cuda, cuDevicePrimaryCtxRetain, &cuda->context, config->ordinal);
    if (status == WEFT_OK)
        status = prepare(cuda, config->numbers);
    if (status != WEFT_OK) {
        destroy(&cuda->backend);
        return status;
    }
    cuda->backend.stream = cuda->stream;
    *backend = &cuda->backend;
    return WEFT_OK;
}

static int count(int *devices)
{
    const struct train_cuda_libraries *calls;
    int status = train_cuda_libraries(&calls);

    if (status == WEFT_OK)
        *devices = calls->devices;
    return status;
}

WEFT_EXPORT const struct train_device_module weft_command_cuda = {
    .version = WEFT_VERSION,
    .size = sizeof(struct train_device_module),
    .count = count,
    .create = create,
};
