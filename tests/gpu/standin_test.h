/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the cases of the stand-in share. */
#ifndef WEFT_STANDIN_TEST_H
#define WEFT_STANDIN_TEST_H

#include <cuda.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "grid/grid_run.h"
#include "standin/standin.h"

/* Of all processes of the test. */
extern struct standin_counts {
    _Atomic unsigned checks, failures;
} * standin_counts;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        atomic_fetch_add(&standin_counts->checks, 1);                                              \
        if (!(condition)) {                                                                        \
            atomic_fetch_add(&standin_counts->failures, 1);                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
        }                                                                                          \
    } while (0)

#define EXPECT(call, code)                                                                         \
    do {                                                                                           \
        int expect_got = (call);                                                                   \
        atomic_fetch_add(&standin_counts->checks, 1);                                              \
        if (expect_got != (int)(code)) {                                                           \
            atomic_fetch_add(&standin_counts->failures, 1);                                        \
            fprintf(stderr, "%s:%d: %s is %d, not %s\n", __FILE__, __LINE__, #call, expect_got,    \
                    #code);                                                                        \
        }                                                                                          \
    } while (0)

#define OK(call) EXPECT(call, CUDA_SUCCESS)

/* The call is refused, and counted as a misuse. */
#define MISUSE(call, code)                                                                         \
    do {                                                                                           \
        unsigned misuse_before = standin_report(NULL, 0);                                          \
        EXPECT(call, code);                                                                        \
        CHECK(standin_report(NULL, 0) == misuse_before + 1);                                       \
    } while (0)

/* Makes the context of a device and makes it current; `standin_end()` finds what was left. */
CUcontext standin_begin(int device);
void standin_end(int device);
/* A kernel of this test by its name; loads the module where there is none. */
CUfunction standin_kernel(CUmodule *module, const char *name);
/* Launches the kernel that appends a digit to a number. */
CUresult standin_append(CUfunction function, CUdeviceptr where, uint32_t digit, CUstream stream);
/* A host function: adds 1 to an int. */
void standin_count_one(void *data);
/* Until a stream waits for something with this text in it. */
void standin_until_waits(const char *what);

void case_devices(void);
void case_errors(void);
void case_contexts(void);
void case_abandoned(void);
void case_memory(void);
void case_slack(void);
void case_copies(void);
void case_pinned(void);
void case_pointers(void);
void case_streams(void);
void case_values(void);
void case_no_mem_ops(void);
void case_connections(void);
void case_events(void);
void case_host_functions(void);
void case_kernels(void);
void case_fault_kernel(void);
void case_fault_freed(void);
void case_fault_host_pointer(void);
void case_fault_injected(void);
void case_peers(void);
void case_no_peers(void);
void case_free_in_use(void);
void case_every_call_fails(void);
void case_failing_from_outside(void);
void case_fork(void);
void case_ipc(void);
void case_ipc_in_use(void);
void case_ipc_freed(void);
void case_ipc_refused(void);
void case_ipc_device(void);
void case_ipc_peer(void);
void case_ipc_number(void);
void case_ipc_pool(void);
void case_touch_device(void);
void case_touch_freed_pinned(void);
void case_touch_behind_pinned(void);
void case_kernel_leaves(void);
void case_abort(void);

#endif
