/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams: each is a thread with a queue, which runs its operations in order, with random
 * pauses. An operation may have marks: operations of other streams that must be done first.
 * Events, the legacy stream and the queues of the hardware are all marks. */
#include "inside.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CONNECTIONS_MAX = 64, MARKS_MAX = 1024 };

static CUstream streams; /* whose threads are there */
static unsigned opened;
static struct standin_mark connections[STANDIN_DEVICES_MAX][CONNECTIONS_MAX];

/* ---- operations ---- */

struct standin_operation *standin__operation(enum standin_work work)
{
    struct standin_operation *operation = calloc(1, sizeof *operation);
    if (!operation)
        abort();
    operation->work = work;
    return operation;
}

void standin__operation_free(struct standin_operation *operation)
{
    free(operation->marks);
    free(operation->staged);
    free(operation);
}

static bool is_done(struct standin_mark mark)
{
    return !mark.stream || mark.stream->done >= mark.ticket;
}

void standin__operation_after(struct standin_operation *operation, CUstream stream, uint64_t ticket)
{
    struct standin_mark mark = {stream, ticket};
    if (is_done(mark))
        return;
    if (operation->mark_count == operation->mark_space) {
        operation->mark_space = operation->mark_space ? 2 * operation->mark_space : 4;
        operation->marks =
            realloc(operation->marks, operation->mark_space * sizeof *operation->marks);
        if (!operation->marks)
            abort();
    }
    operation->marks[operation->mark_count++] = mark;
}

static bool is_blocking(CUstream stream)
{
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

void standin__issue(CUstream stream, struct standin_operation *operation)
{
    CUcontext context = stream->handle.context;
    if (stream == context->legacy) {
        for (CUstream other = streams; other; other = other->next)
            if (other != stream && other->handle.context == context && is_blocking(other))
                standin__operation_after(operation, other, other->issued);
    } else if (is_blocking(stream)) {
        standin__operation_after(operation, context->legacy, context->legacy->issued);
    }
    operation->ticket = ++stream->issued;
    unsigned count = standin__options.connections;
    if (count) {
        count = count < CONNECTIONS_MAX ? count : CONNECTIONS_MAX;
        struct standin_mark *last = &connections[context->device][stream->index % count];
        standin__operation_after(operation, last->stream, last->ticket);
        *last = (struct standin_mark){stream, operation->ticket};
    }
    for (int i = 0; i < 2; i++)
        if (operation->uses[i])
            operation->uses[i]->queued++;
    *stream->tail = operation;
    stream->tail = &operation->next;
    pthread_cond_signal(&stream->work);
}

/* ---- the thread ---- */

static void pause_for(uint64_t *random)
{
    uint64_t drawn = standin__random(random);
    struct timespec time = {0, 0};
    if (drawn % 8 >= 4 && drawn % 8 < 6)
        sched_yield();
    if (drawn % 8 >= 6 && standin__options.delay_us) {
        time.tv_nsec = (long)((drawn >> 8) % (1000ull * standin__options.delay_us) % 1000000000);
        nanosleep(&time, NULL);
    }
}

static void wait_for_marks(CUstream stream, const struct standin_operation *operation)
{
    for (size_t i = 0; i < operation->mark_count; i++) {
        struct standin_mark mark = operation->marks[i];
        while (!is_done(mark) &&
               !atomic_load_explicit(&stream->handle.context->error, memory_order_relaxed)) {
            snprintf(stream->waits, sizeof stream->waits, "operation %llu of stream %p",
                     (unsigned long long)mark.ticket, (void *)mark.stream);
            pthread_cond_wait(&standin__progress, &standin__lock);
        }
    }
    stream->waits[0] = '\0';
}

/* With the lock, which it lets go of while the operation runs. */
static void run_next(CUstream stream, struct standin_operation *operation, uint64_t *random)
{
    CUcontext context = stream->handle.context;
    wait_for_marks(stream, operation);
    CUresult result = standin__injected_fault();
    standin__count_operation();
    if (result)
        standin__context_fail(context, result);
    /* Another library's has to know of it, too. */
    if (operation->work == WORK_FOREIGN ||
        !atomic_load_explicit(&context->error, memory_order_relaxed)) {
        pthread_mutex_unlock(&standin__lock);
        CUresult own = standin__run(stream, operation);
        result = result ? result : own;
        if (standin__random(random) % 4 == 0)
            pause_for(random);
        pthread_mutex_lock(&standin__lock);
    }
    if (result)
        standin__context_fail(context, result);
    else if (operation->work == WORK_RECORD)
        standin__event_reached(stream, operation);
    for (int i = 0; i < 2; i++)
        if (operation->uses[i])
            operation->uses[i]->queued--;
    stream->head = operation->next;
    if (!stream->head)
        stream->tail = &stream->head;
    stream->done = operation->ticket;
    stream->waits[0] = '\0';
    pthread_cond_broadcast(&standin__progress);
    standin__operation_free(operation);
}

static void unlink_stream(CUstream stream)
{
    CUstream *place = &streams;
    while (*place != stream)
        place = &(*place)->next;
    *place = stream->next;
}

static void *stream_main(void *data)
{
    CUstream stream = data;
    pthread_mutex_lock(&standin__lock);
    uint64_t random = standin__options.seed * 1000003 + stream->index;
    for (;;) {
        while (!stream->head && !stream->closing)
            pthread_cond_wait(&stream->work, &standin__lock);
        if (!stream->head)
            break;
        pthread_mutex_unlock(&standin__lock);
        pause_for(&random);
        pthread_mutex_lock(&standin__lock);
        run_next(stream, stream->head, &random);
    }
    unlink_stream(stream);
    pthread_mutex_unlock(&standin__lock);
    return NULL;
}

/* Signals are the program's; what a kernel does wrong is its own thread's. */
static bool start(CUstream stream)
{
    sigset_t blocked, old;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    sigdelset(&blocked, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &blocked, &old);
    bool started = !pthread_create(&stream->thread, NULL, stream_main, stream);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (started)
        pthread_detach(stream->thread);
    return started;
}

CUstream standin__stream_open(CUcontext context, unsigned flags, int priority)
{
    CUstream stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->flags = flags;
    stream->priority = priority;
    stream->index = opened++;
    stream->random = standin__options.seed * 7919 + stream->index;
    stream->tail = &stream->head;
    stream->handle.context = context;
    pthread_cond_init(&stream->work, NULL);
    if (!start(stream)) {
        pthread_cond_destroy(&stream->work);
        free(stream);
        return NULL;
    }
    stream->next = streams;
    streams = stream;
    standin__handle_add(&stream->handle, KIND_STREAM, context);
    return stream;
}

/* What is queued is still done. */
void standin__stream_close(CUstream stream)
{
    standin__handle_die(&stream->handle);
    stream->closing = true;
    pthread_cond_signal(&stream->work);
}

/* ---- waiting ---- */

CUresult standin__wait(CUstream stream, uint64_t ticket)
{
    while (stream->done < ticket)
        pthread_cond_wait(&standin__progress, &standin__lock);
    return (CUresult)atomic_load_explicit(&stream->handle.context->error, memory_order_relaxed);
}

CUresult standin__context_wait(CUcontext context)
{
    struct standin_mark marks[MARKS_MAX];
    size_t count = 0;
    for (CUstream stream = streams; stream && count < MARKS_MAX; stream = stream->next)
        if (stream->handle.context == context && stream->done < stream->issued)
            marks[count++] = (struct standin_mark){stream, stream->issued};
    for (size_t i = 0; i < count; i++)
        standin__wait(marks[i].stream, marks[i].ticket);
    return (CUresult)atomic_load_explicit(&context->error, memory_order_relaxed);
}

void standin__streams_waiting(char *text, size_t size, size_t *used)
{
    for (CUstream stream = streams; stream; stream = stream->next)
        if (stream->waits[0])
            standin__append(text, size, used,
                            "stream %p of device %d, operation %llu of %llu, waits for %s\n",
                            (void *)stream, stream->handle.context->device,
                            (unsigned long long)stream->done + 1,
                            (unsigned long long)stream->issued, stream->waits);
}

CUresult standin__stream_find(CUcontext current, CUstream stream, CUstream *found)
{
    if (stream == CU_STREAM_PER_THREAD)
        return standin__misuse(CUDA_ERROR_NOT_SUPPORTED, "the stand-in has no streams per thread");
    if (!stream || stream == CU_STREAM_LEGACY)
        *found = current->legacy;
    else
        *found = standin__handle_find(stream, KIND_STREAM);
    if (!*found)
        return CUDA_ERROR_INVALID_HANDLE;
    return (CUresult)atomic_load_explicit(&(*found)->handle.context->error, memory_order_relaxed);
}

/* ---- the functions of the driver ---- */

static CUresult enter_stream(const char *name, CUstream stream, CUstream *found)
{
    CUcontext context;
    CUresult result = standin__enter(name, NEEDS_CONTEXT, &context);
    return result ? result : standin__stream_find(context, stream, found);
}

static CUresult create(const char *name, CUstream *stream, unsigned flags, int priority)
{
    CUcontext context;
    CUresult result = standin__enter(name, NEEDS_CONTEXT, &context);
    if (!result && (!stream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "flags %#x", flags);
    if (result)
        return standin__leave(result);
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    CUstream made = standin__stream_open(context, flags, priority);
    if (made)
        *stream = made;
    return standin__leave(made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

STANDIN_EXPORT CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned flags)
{
    return create(__func__, stream, flags, 0);
}

STANDIN_EXPORT CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned flags,
                                                           int priority)
{
    return create(__func__, stream, flags, priority);
}

STANDIN_EXPORT CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT | RELEASES, NULL);
    if (!result && (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD))
        result = standin__misuse(CUDA_ERROR_INVALID_HANDLE, "%p is not destroyed", (void *)stream);
    CUstream found = result ? NULL : standin__handle_find(stream, KIND_STREAM);
    if (!result && !found)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result)
        standin__stream_close(found);
    return standin__leave(result);
}

/* The legacy stream is also what runs before it. */
STANDIN_EXPORT CUresult CUDAAPI cuStreamQuery(CUstream stream)
{
    CUstream found = NULL;
    CUresult result = enter_stream(__func__, stream, &found);
    if (result)
        return standin__leave(result);
    CUcontext context = found->handle.context;
    bool ready = found->done == found->issued;
    for (CUstream other = streams; found == context->legacy && other; other = other->next)
        if (other->handle.context == context && is_blocking(other))
            ready &= other->done == other->issued;
    return standin__leave(ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

STANDIN_EXPORT CUresult CUDAAPI cuStreamSynchronize(CUstream stream)
{
    CUstream found = NULL;
    CUresult result = enter_stream(__func__, stream, &found);
    if (!result && found == found->handle.context->legacy)
        standin__issue(found, standin__operation(WORK_WAIT));
    if (!result)
        result = standin__wait(found, found->issued);
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    CUstream found = NULL;
    CUresult result = enter_stream(__func__, stream, &found);
    if (!result && !context)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result)
        *context = found->handle.context;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuStreamGetFlags(CUstream stream, unsigned *flags)
{
    CUstream found = NULL;
    CUresult result = enter_stream(__func__, stream, &found);
    if (!result && !flags)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result)
        *flags = found->flags;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuStreamGetPriority(CUstream stream, int *priority)
{
    CUstream found = NULL;
    CUresult result = enter_stream(__func__, stream, &found);
    if (!result && !priority)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result)
        *priority = found->priority;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    CUstream found = NULL;
    CUresult result = enter_stream(__func__, stream, &found);
    if (!result && !status)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result)
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return standin__leave(result);
}
