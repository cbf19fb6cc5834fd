/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the cases of devices share. */
#ifndef WEFT_DEVICE_TEST_H
#define WEFT_DEVICE_TEST_H

#include "gpu/cuda_device.h"
#include "runtime/device/library.h"
#include "tests/gpu/support/standin_calls.h"

#include <stdio.h>
#include <string.h>
#include <weft/status.h>

extern struct device_counts {
    _Atomic unsigned checks, failures;
} * counts;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        atomic_fetch_add(&counts->checks, 1);                                                      \
        if (!(condition)) {                                                                        \
            atomic_fetch_add(&counts->failures, 1);                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
        }                                                                                          \
    } while (0)

#define OK(call)                                                                                   \
    do {                                                                                           \
        int ok_status = (call);                                                                    \
        atomic_fetch_add(&counts->checks, 1);                                                      \
        if (ok_status != 0) {                                                                      \
            atomic_fetch_add(&counts->failures, 1);                                                \
            fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, ok_status,           \
                    weft_error_text());                                                            \
        }                                                                                          \
    } while (0)

/* The call returns a status, and its text has something in it. */
#define REFUSED(call, status, what)                                                                \
    do {                                                                                           \
        int refused_status = (call);                                                               \
        atomic_fetch_add(&counts->checks, 1);                                                      \
        if (refused_status != (status) || !strstr(weft_error_text(), what)) {                      \
            atomic_fetch_add(&counts->failures, 1);                                                \
            fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, refused_status,      \
                    weft_error_text());                                                            \
        }                                                                                          \
    } while (0)

/* Of the driver that the library has loaded: counts nothing on a device. */
extern struct standin standin;
extern const struct weft__cuda_driver *driver;
void *driver_function(const char *name);

struct weft__device *open_device(const char *name);
/* "cuda:1", or the only one. */
const char *second_device(void);
/* Nothing was misused, nothing is left. */
void check_clean(void);
/* Until all that is on the stream has been done, or it has failed. */
int wait_for(struct weft__stream *stream);
/* Until a word has a value; or what the stream's device has failed with. */
int wait_for_word(struct weft__stream *stream, _Atomic uint32_t *at, uint32_t value);
/* By a stream of its own, and waits. */
void copy_now(struct weft__device *device, void *dst, const void *src, size_t bytes);
uint64_t random_bits(void);

void case_names(void);
void case_no_driver(void);
void case_no_device(void);
void case_no_mem_ops(void);
void case_where(void);
void case_where_apart(void);
void case_where_peer(void);
void case_streams(void);
void case_many_streams(void);
void case_reduce(void);
void case_reduce_n(void);
void case_call(void);
void case_write_hold(void);
void case_contexts_kept(void);
void case_every_call_fails(void);
void case_no_memory(void);
void case_describe(void);
void case_faults(void);
void case_threads(void);
void case_kernels_loaded(void);
void case_ipc(void);
void case_ipc_freed(void);
void case_ipc_many(void);
void case_ipc_pool(void);
void case_ipc_refused(void);
void case_ipc_fails(void);

#endif
