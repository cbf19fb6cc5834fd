/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A strict stand-in of NCCL, over the stand-in of the driver: a library that is named libnccl.so.2.
 * What is put on a stream blocks it until all ranks concerned have put theirs there, in the order
 * of issue of each communicator; ranks are threads of one process or processes of one machine.
 *
 * The environment, read when the library is loaded:
 *   STANDIN_NCCL_FAIL=n[:code]   the n-th call fails with `code` (3, ncclInternalError)
 *   STANDIN_NCCL_FAULT=n[:code]  the n-th launch ends with an error of its communicator (6,
 *                                ncclRemoteError), and moves nothing
 *   STANDIN_NCCL_PROGRESS=n      a communicator that does not block is in progress for up to n
 *                                polls of each call (3)
 *   STANDIN_NCCL_VERSION=n       what ncclGetVersion() says (that of nccl.h)
 *   STANDIN_SEED=n, STANDIN_QUIET=1, STANDIN_ABORT=1: as of the stand-in of the driver */
#ifndef WEFT_NCCL_STANDIN_H
#define WEFT_NCCL_STANDIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How often NCCL was misused by this process. `text` (may be NULL) gets the first texts, and a line
 * for every communicator whose stream waits now: for whom, and for what. */
unsigned standin_nccl_report(char *text, size_t size);
void standin_nccl_forget(void);

/* Communicators that were not destroyed, and buffers that were not deregistered. */
unsigned standin_nccl_leaks(char *text, size_t size);

/* Calls so far, of all functions, or of one. */
unsigned long standin_nccl_calls(void);
unsigned long standin_nccl_calls_of(const char *name);

/* Launches (groups, or calls outside of one) that streams have run. */
unsigned long standin_nccl_launches(void);

/* The n-th call from now fails with `code`; what ends a life does so all the same. 0: none. */
void standin_nccl_fail_at(unsigned long n, int code);
/* The n-th launch from now fails. */
void standin_nccl_fault_at(unsigned long n, int code);

#ifdef __cplusplus
}
#endif

#endif
