/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A strict stand-in of the CUDA driver, for machines without one: a library that is named
 * libcuda.so.1. These functions ask it what it has seen, and make it fail. A program finds them by
 * dlsym(), or is linked with it.
 *
 * The environment, read by cuInit():
 *   STANDIN_DEVICES=n       how many devices there are (2)
 *   STANDIN_MEMORY=bytes    the memory of each (1 GiB)
 *   STANDIN_SEED=n          of the delays, and of what the documentation leaves open (1)
 *   STANDIN_DELAY_US=n      the longest sleep between two operations of a stream (100)
 *   STANDIN_CONNECTIONS=n   streams share n queues of the hardware, in the order of issue; 0: each
 *                           has its own (0). With 1, what waits for the host blocks all streams.
 *   STANDIN_IMPLICIT_SYNC=1 memory that is allocated and a kernel's first launch wait for what runs
 *   STANDIN_STREAM_MEM_OPS=0  no cuStreamWriteValue32() and cuStreamWaitValue32()
 *   STANDIN_PEERS=0         no device reaches another
 *   STANDIN_VISIBLE=1,0     which devices of the machine there are, as by CUDA_VISIBLE_DEVICES
 *   STANDIN_POOLS=1         device memory says of itself what that of a pool does: no context, and
 *                           no handle for other processes
 *   STANDIN_REUSE=1         addresses that were freed are given out again at once
 *   STANDIN_IPC=0           no handle of another process can be opened
 *   STANDIN_IPC_FREE=1      memory may be freed while another process has it open, as drivers
 *                           allow: what that one still does with it is the misuse then
 *   STANDIN_FAIL=n[:code]   the n-th call fails with `code` (999)
 *   STANDIN_FAULT=n[:code]  the n-th operation of a stream ends its context (700)
 *   STANDIN_QUIET=1         misuse is counted, and not printed
 *   STANDIN_ABORT=1         misuse ends the program */
#ifndef WEFT_STANDIN_H
#define WEFT_STANDIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How often the driver was misused. `text` (may be NULL) gets the first texts, and a line for every
 * stream that waits now and what it waits for. */
unsigned standin_report(char *text, size_t size);

/* Misuses so far are no longer counted. */
void standin_forget(void);

/* What is still there: memory, registrations, streams, events, modules, contexts; and what was
 * there when its context was released. `text` may be NULL. */
unsigned standin_leaks(char *text, size_t size);

/* Calls so far, of all functions, or of one by the name that the library exports. */
unsigned long standin_calls(void);
unsigned long standin_calls_of(const char *name);

/* Operations that streams have run. */
unsigned long standin_operations(void);

/* Asynchronous copies from or to host memory that is not pinned. */
unsigned long standin_pageable(void);

/* The n-th call from now fails with `code`; what ends a life does so and returns `code` all the
 * same, as the driver does with errors of earlier work. A code of those after which a context
 * cannot be used stays. n = 0: no call fails. */
void standin_fail_at(unsigned long n, int code);

/* The n-th operation that is run from now ends its context with `code`. */
void standin_fault_at(unsigned long n, int code);

/* A test's own kernels: a program that has this function is asked for a name first, and may answer
 * NULL. The others are those of gpu/kernels/, over the grid of fibers. */
struct grid_kernel;
const struct grid_kernel *standin_own_kernel(const char *name);

/* ---- for other libraries, which have operations of their own ---- */

/* Queues an operation of another library: `run` is called by the stream, also after an error of its
 * context, and may wait there for what it likes, but must return once standin_failed(stream) is not
 * 0. It returns a CUresult; one that is not 0 ends the context. `stream` is a CUstream. Returns a
 * CUresult. */
int standin_foreign(void *stream, int (*run)(void *data, void *stream), void *data);
int standin_failed(void *stream);

/* Where such an operation reaches `bytes` of the memory of a device at an address, checked as those
 * of a copy; NULL, and a misuse, if they are not all of one allocation that `device` reaches. */
void *standin_reach(int device, unsigned long long address, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
