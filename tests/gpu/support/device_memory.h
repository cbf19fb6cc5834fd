/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of devices for tests, and operations on it that the host computes: by the driver that the
 * process finds, a real one or the stand-in. A failing call ends the process.
 */
#ifndef WEFT_TESTS_GPU_DEVICE_MEMORY_H
#define WEFT_TESTS_GPU_DEVICE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Devices of the machine; the calling thread works on one of them from now on. */
int device_count(void);
void device_use(int ordinal);

void *device_alloc(size_t bytes);
void device_free(void *memory);
/* Pinned memory of the host. */
void *device_pin(size_t bytes);
void device_unpin(void *memory);
void device_put(void *to, const void *from, size_t bytes);
void device_get(void *to, const void *from, size_t bytes);

/* Brings memory of the device to `host` (or back) on a stream, and calls a function on it. */
void device_stream_get(void *stream, void *host, const void *from, size_t bytes);
void device_stream_put(void *stream, void *to, const void *host, size_t bytes);
void device_stream_call(void *stream, void (*function)(void *), void *argument);

/* Streams of the test's own. */
void *device_stream(void);
void device_stream_wait(void *stream);
/* The stream waits until a word of pinned memory is `value`. Not by a function of the host, one of
 * which a driver calls at a time. */
void device_stream_hold(void *stream, uint32_t *word, uint32_t value);
void device_stream_close(void *stream);

/* Ends the process if the stand-in has seen misuse; nothing on a device. */
void device_check(void);
/* How much the stand-in still has but the contexts of this file; nothing on a device. */
int device_left(void);

#endif
