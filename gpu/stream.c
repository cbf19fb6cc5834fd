/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams, and words that they write and wait for.
 *
 * The word of a stream is a cache line of pinned memory, which the device writes when it has passed
 * a ticket; the write waits for what is before it on the stream to be seen (it has a barrier, by
 * default). Pinned memory is slow to come by and has pages, so lines come from pages that the
 * device keeps.
 */
#include "gpu/cuda_device.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

enum { LINE = 64, LINES = 64 };

struct weft__cuda_words {
    struct weft__cuda_words *next;
    char *memory;
    uint64_t taken; /* a bit a line */
};

/* ---- words ---- */

/* With the lock. */
static struct weft__cuda_words *more_words(struct weft__cuda *cuda)
{
    struct weft__cuda_words *words = weft__calloc(1, sizeof *words);

    if (!words) {
        weft__error_memory("the words of a device");
        return NULL;
    }
    words->memory = weft__cuda_pin(&cuda->device, (size_t)LINE * LINES);
    if (!words->memory) {
        weft__free(words);
        return NULL;
    }
    words->next = cuda->words;
    cuda->words = words;
    return words;
}

static _Atomic uint32_t *take_word(struct weft__cuda *cuda)
{
    struct weft__cuda_words *words;
    _Atomic uint32_t *word = NULL;

    pthread_mutex_lock(&cuda->lock);
    for (words = cuda->words; words && words->taken == UINT64_MAX; words = words->next)
        ;
    if (!words)
        words = more_words(cuda);
    if (words) {
        int line = __builtin_ctzll(~words->taken);

        words->taken |= UINT64_C(1) << line;
        word = (_Atomic uint32_t *)(void *)(words->memory + (size_t)line * LINE);
        atomic_init(word, 0);
    }
    pthread_mutex_unlock(&cuda->lock);
    return word;
}

static void give_word(struct weft__cuda *cuda, const _Atomic uint32_t *word)
{
    pthread_mutex_lock(&cuda->lock);
    for (struct weft__cuda_words *words = cuda->words; words; words = words->next) {
        uintptr_t offset = (uintptr_t)word - (uintptr_t)words->memory;

        if (offset < (uintptr_t)LINE * LINES)
            words->taken &= ~(UINT64_C(1) << offset / LINE);
    }
    pthread_mutex_unlock(&cuda->lock);
}

void weft__cuda_words_free(struct weft__cuda *cuda)
{
    while (cuda->words) {
        struct weft__cuda_words *words = cuda->words;

        cuda->words = words->next;
        weft__cuda_unpin(&cuda->device, words->memory);
        weft__free(words);
    }
}

static CUresult write_word(const struct weft__cuda *cuda, CUstream stream,
                           const _Atomic uint32_t *word, uint32_t value)
{
    return cuda->driver->cuStreamWriteValue32(stream, (CUdeviceptr)(uintptr_t)word, value,
                                              CU_STREAM_WRITE_VALUE_DEFAULT);
}

/* ---- streams ---- */

static struct weft__cuda_stream *stream_of(struct weft__stream *stream)
{
    return (struct weft__cuda_stream *)stream;
}

int weft__cuda_open_stream(struct weft__device *device, struct weft__stream **stream)
{
    struct weft__cuda *cuda = weft__cuda_of(device);
    struct weft__cuda_stream *made = weft__calloc(1, sizeof *made);
    int status;
    int entered;

    if (!made)
        return weft__error_memory("a stream");
    entered = status = weft__cuda_enter(cuda);
    if (entered < 0)
        goto free_stream;
    weft__cuda_ipc_trim(cuda);
    made->word = take_word(cuda);
    status = made->word ? WEFT_OK : WEFT_ERR_MEMORY;
    if (status < 0)
        goto leave;
    status =
        weft__cuda_result(cuda, cuda->driver->cuStreamCreate(&made->handle, CU_STREAM_NON_BLOCKING),
                          "cuStreamCreate");
    if (status < 0)
        goto give_word;
    status = weft__cuda_result(
        cuda, cuda->driver->cuEventCreate(&made->event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    if (status < 0)
        goto destroy_stream;
    weft__cuda_leave(cuda, entered);
    made->cuda = cuda;
    made->stream.device = device;
    made->stream.reached = made->word;
    *stream = &made->stream;
    return WEFT_OK;
destroy_stream:
    cuda->driver->cuStreamDestroy(made->handle);
give_word:
    give_word(cuda, made->word);
leave:
    weft__cuda_leave(cuda, entered);
free_stream:
    weft__free(made);
    return status;
}

void weft__cuda_close(struct weft__stream *stream)
{
    struct weft__cuda_stream *closed = stream_of(stream);
    const struct weft__cuda *cuda;
    int entered;

    if (!stream)
        return;
    cuda = closed->cuda;
    entered = weft__cuda_enter_last(cuda);
    /* A word that the device may still write is not given to another stream. */
    if (entered >= 0) {
        CUresult code = cuda->driver->cuStreamSynchronize(closed->handle);

        if (code)
            code = cuda->driver->cuStreamSynchronize(closed->handle);
        cuda->driver->cuStreamDestroy(closed->handle);
        cuda->driver->cuEventDestroy(closed->event);
        weft__cuda_leave(cuda, entered);
        give_word(closed->cuda, closed->word);
    }
    weft__free(closed);
}

int weft__cuda_mark(struct weft__stream *stream)
{
    struct weft__cuda_stream *on = stream_of(stream);
    int entered = weft__cuda_enter(on->cuda);
    CUresult code;

    if (entered < 0)
        return entered;
    code = write_word(on->cuda, on->handle, on->word, stream->issued + 1);
    if (!code)
        stream->issued++;
    weft__cuda_leave(on->cuda, entered);
    return weft__cuda_result(on->cuda, code, "cuStreamWriteValue32");
}

/* A stream waits for what the event was recorded for when it was told to, so one will do. */
int weft__cuda_follow(struct weft__stream *stream, const struct weft__stream *first)
{
    const struct weft__cuda_stream *later = stream_of(stream);
    const struct weft__cuda_stream *before = (const struct weft__cuda_stream *)first;
    const char *call = "cuEventRecord";
    int entered = weft__cuda_enter(before->cuda);
    CUresult code;

    if (entered < 0)
        return entered;
    code = before->cuda->driver->cuEventRecord(before->event, before->handle);
    if (!code) {
        call = "cuStreamWaitEvent";
        code = before->cuda->driver->cuStreamWaitEvent(later->handle, before->event, 0);
    }
    weft__cuda_leave(before->cuda, entered);
    return weft__cuda_result(before->cuda, code, call);
}

int weft__cuda_failed(struct weft__stream *stream)
{
    struct weft__cuda_stream *on = stream_of(stream);
    int entered = weft__cuda_enter(on->cuda);
    CUresult code;

    if (entered < 0)
        return entered;
    code = on->cuda->driver->cuStreamQuery(on->handle);
    weft__cuda_leave(on->cuda, entered);
    return code == CUDA_ERROR_NOT_READY ? WEFT_OK
                                        : weft__cuda_result(on->cuda, code, "cuStreamQuery");
}

int weft__cuda_copy(struct weft__stream *stream, void *dst, const void *src, size_t bytes)
{
    struct weft__cuda_stream *on = stream_of(stream);
    struct weft__cuda *cuda = on->cuda;
    int status;
    int entered;

    if (bytes == 0 || dst == src)
        return WEFT_OK;
    entered = weft__cuda_enter(cuda);
    if (entered < 0)
        return entered;
    if (atomic_load_explicit(&cuda->apart, memory_order_relaxed))
        status = weft__cuda_copy_apart(cuda, on->handle, dst, src, bytes);
    else
        status = weft__cuda_result(cuda,
                                   cuda->driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)dst,
                                                               (CUdeviceptr)(uintptr_t)src, bytes,
                                                               on->handle),
                                   "cuMemcpyAsync");
    weft__cuda_leave(cuda, entered);
    return status;
}

/* ---- functions of users ---- */

static _Thread_local struct weft__cuda *calling;

struct weft__cuda *weft__cuda_current(void)
{
    return calling;
}

int weft__cuda_call(struct weft__stream *stream, weft_device_fn function, struct weft_call *call)
{
    struct weft__cuda_stream *on = stream_of(stream);
    struct weft__cuda *outer = calling;
    int entered = weft__cuda_enter(on->cuda);
    int status;

    if (entered < 0)
        return entered;
    calling = on->cuda;
    status = function(call, on->handle);
    calling = outer;
    weft__cuda_leave(on->cuda, entered);
    return status;
}

/* ---- streams of users ---- */

/* Makes current what the stream is of: default streams are those of the device. */
static int enter_stream(const struct weft__cuda *cuda, CUstream stream)
{
    CUcontext context = cuda->context;
    CUresult code;
    int entered;

    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return weft__cuda_enter(cuda);
    entered = weft__cuda_enter(cuda);
    if (entered < 0)
        return entered;
    code = cuda->driver->cuStreamGetCtx(stream, &context);
    if (!code && context == cuda->context)
        return entered;
    weft__cuda_leave(cuda, entered);
    return code ? weft__cuda_result(cuda, code, "cuStreamGetCtx")
                : weft__cuda_enter_context(cuda, context);
}

int weft__cuda_write(struct weft__device *device, void *stream, _Atomic uint32_t *word,
                     uint32_t value)
{
    struct weft__cuda *cuda = weft__cuda_of(device);
    int entered = enter_stream(cuda, stream);
    CUresult code;

    if (entered < 0)
        return entered;
    code = write_word(cuda, stream, word, value);
    weft__cuda_leave(cuda, entered);
    return weft__cuda_result(cuda, code, "cuStreamWriteValue32");
}

int weft__cuda_hold(struct weft__device *device, void *stream, _Atomic uint32_t *word,
                    uint32_t value)
{
    struct weft__cuda *cuda = weft__cuda_of(device);
    int entered = enter_stream(cuda, stream);
    CUresult code;

    if (entered < 0)
        return entered;
    code = cuda->driver->cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)word, value,
                                             CU_STREAM_WAIT_VALUE_GEQ);
    weft__cuda_leave(cuda, entered);
    return weft__cuda_result(cuda, code, "cuStreamWaitValue32");
}

/* Attributes say this of an older kind of these calls, so it is tried. */
int weft__cuda_can_mark(struct weft__cuda *cuda)
{
    struct weft__stream *stream;
    int status = weft__cuda_open_stream(&cuda->device, &stream);
    CUresult code;
    int entered;

    if (status < 0)
        return status;
    entered = weft__cuda_enter(cuda);
    if (entered < 0) {
        weft__cuda_close(stream);
        return entered;
    }
    code = write_word(cuda, stream_of(stream)->handle, stream_of(stream)->word, 1);
    if (!code)
        code = cuda->driver->cuStreamSynchronize(stream_of(stream)->handle);
    weft__cuda_leave(cuda, entered);
    weft__cuda_close(stream);
    if (code == CUDA_ERROR_NOT_SUPPORTED)
        return weft__error(WEFT_ERR_UNSUPPORTED,
                           "%s has no stream memory operations (cuStreamWriteValue32), by which "
                           "weft learns what a stream has done",
                           cuda->name);
    return weft__cuda_result(cuda, code, "cuStreamWriteValue32");
}
