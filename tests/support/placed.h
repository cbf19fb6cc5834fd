/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory on either side, for tests that run with devices too: what is there on the host is
 * malloc() and memcpy(). A test is built a second time with WEFT_TEST_DEVICE, and then the memory
 * that it places on the device is there.
 */
#ifndef WEFT_TESTS_PLACED_H
#define WEFT_TESTS_PLACED_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/types.h>

#ifdef WEFT_TEST_DEVICE
#    include "runtime/device/library.h"
#    include "tests/gpu/support/device_memory.h"
enum { PLACED = 1 };
#else
enum { PLACED = 0 };
#endif

enum placed { ON_HOST, PINNED, ON_DEVICE };

static inline void *placed_alloc(enum placed place, size_t bytes)
{
#ifdef WEFT_TEST_DEVICE
    if (place == ON_DEVICE)
        return device_alloc(bytes);
    if (place == PINNED)
        return device_pin(bytes);
#endif
    (void)place;
    return malloc(bytes ? bytes : 1);
}

static inline void placed_free(enum placed place, void *memory)
{
#ifdef WEFT_TEST_DEVICE
    if (place == ON_DEVICE)
        device_free(memory);
    else if (place == PINNED)
        device_unpin(memory);
    else
#endif
        free(memory);
    (void)place;
}

static inline void placed_put(enum placed place, void *to, const void *from, size_t bytes)
{
#ifdef WEFT_TEST_DEVICE
    if (place == ON_DEVICE) {
        device_put(to, from, bytes);
        return;
    }
#endif
    (void)place;
    if (bytes > 0)
        memcpy(to, from, bytes);
}

static inline void placed_get(enum placed place, void *to, const void *from, size_t bytes)
{
#ifdef WEFT_TEST_DEVICE
    if (place == ON_DEVICE) {
        device_get(to, from, bytes);
        return;
    }
#endif
    (void)place;
    if (bytes > 0)
        memcpy(to, from, bytes);
}

/* The calling thread, that of a rank, has its device from now on. */
static inline void placed_rank(int rank)
{
#ifdef WEFT_TEST_DEVICE
    device_use(rank % device_count());
#endif
    (void)rank;
}

#ifdef WEFT_TEST_DEVICE
/*
 * The device form of an operation whose host form is `on_host`: brings its arguments to the host on
 * the stream, computes there, and takes back what it has. `user` of the call is a struct
 * placed_op's.
 */
struct placed_work {
    struct placed_work *next;
    struct weft_call call;
    weft_compute_fn compute;
    weft_reduce_fn reduce;
    struct weft_argument arguments[4];
    struct weft_piece pieces[4];
    void *memory;
    uint64_t *value;
};

static struct placed_work *_Atomic placed_works;

static void placed_compute(void *argument)
{
    struct placed_work *work = argument;
    struct weft_argument *a = work->arguments;

    if (work->reduce) {
        if (work->reduce(work->call.user, a[0].data, a[1].data, a[2].data, a[0].count, a[0].dtype))
            abort();
    } else if (work->compute(&work->call)) {
        abort();
    }
}

static inline int placed_call(struct weft_call *call, void *stream, weft_compute_fn compute,
                              weft_reduce_fn reduce)
{
    struct placed_work *work = calloc(1, sizeof *work);
    size_t bytes = 0;

    if (!work || call->argument_count > 4)
        abort();
    work->call = *call;
    work->call.arguments = work->arguments;
    work->compute = compute;
    work->reduce = reduce;
    for (size_t i = 0; i < call->argument_count; i++)
        bytes += (call->arguments[i].count * weft_dtype_size(call->arguments[i].dtype) + 63) & ~63u;
    work->memory = device_pin(bytes);
    char *at = work->memory;
    for (size_t i = 0; i < call->argument_count; i++) {
        const struct weft_argument *from = &call->arguments[i];
        size_t size = weft_dtype_size(from->dtype), done = 0;

        for (size_t p = 0; p < from->piece_count; p++) {
            device_stream_get(stream, at + done, from->pieces[p].data,
                              from->pieces[p].count * size);
            done += from->pieces[p].count * size;
        }
        work->pieces[i] = (struct weft_piece){at, from->count};
        work->arguments[i] = *from;
        work->arguments[i].data = at;
        work->arguments[i].pieces = &work->pieces[i];
        work->arguments[i].piece_count = 1;
        at += (from->count * size + 63) & ~63u;
    }
    device_stream_call(stream, placed_compute, work);
    size_t size = weft_dtype_size(call->arguments[0].dtype), done = 0;
    for (size_t p = 0; p < call->arguments[0].piece_count; p++) {
        const struct weft_piece *piece = &call->arguments[0].pieces[p];

        device_stream_put(stream, piece->data, (char *)work->memory + done, piece->count * size);
        done += piece->count * size;
    }
    work->next = atomic_load(&placed_works);
    while (!atomic_compare_exchange_weak(&placed_works, &work->next, work))
        ;
    return WEFT_OK;
}

/* The device form, called `name`, of a reduction of the host. */
#    define PLACED_REDUCE(name, on_host)                                                           \
        static int name(struct weft_call *call, void *stream)                                      \
        {                                                                                          \
            return placed_call(call, stream, NULL, on_host);                                       \
        }

/* Once no stream has any of it. */
static inline void placed_collect(void)
{
    struct placed_work *work = atomic_exchange(&placed_works, NULL);

    while (work) {
        struct placed_work *next = work->next;

        device_unpin(work->memory);
        free(work);
        work = next;
    }
}

/* Between trials, when nothing is under way: the driver has been used as it is to be. */
static inline void placed_check(void)
{
    device_use(0);
    placed_collect();
    device_check();
}
#else
#    define PLACED_REDUCE(name, on_host) static const weft_device_fn name = NULL;

static inline void placed_check(void)
{
}
#endif

/* The devices stay open from now on, whatever contexts come and go: opening one takes as long as a
 * trial. */
static inline void placed_hold(void)
{
#ifdef WEFT_TEST_DEVICE
    struct weft__device *device;
    char name[32];

    for (int i = 0; i < device_count(); i++) {
        snprintf(name, sizeof name, "cuda:%d", i);
        if (weft__device_open(name, 0, &device))
            abort();
    }
#endif
}

#endif
