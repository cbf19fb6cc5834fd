/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL, loaded when a communicator is asked for: nothing of weft is linked with it. Calls go
 * through one table, as those of the driver do.
 */
#ifndef WEFT_GPU_NCCL_H
#define WEFT_GPU_NCCL_H

#include <nccl.h>

#include <weft/status.h>

/* Of which nccl.h has prototypes without arguments. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

/* What is called; without one of them NCCL is too old (2.14 has communicators that do not block).
 */
#define WEFT__NCCL_FUNCTIONS(X)                                                                    \
    X(ncclGetVersion)                                                                              \
    X(ncclGetUniqueId)                                                                             \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclCommFinalize)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclSend)                                                                                    \
    X(ncclRecv)                                                                                    \
    X(ncclAllReduce)                                                                               \
    X(ncclReduce)                                                                                  \
    X(ncclBroadcast)                                                                               \
    X(ncclReduceScatter)                                                                           \
    X(ncclAllGather)

struct weft__nccl {
#define WEFT__NCCL_MEMBER(name) __typeof__(name) *name;
    WEFT__NCCL_FUNCTIONS(WEFT__NCCL_MEMBER)
#undef WEFT__NCCL_MEMBER
    int version; /* 22809 is 2.28.9 */
};

/* NCCL; stays for ever. WEFT_ERR_UNSUPPORTED with a text: it is not there, or too old. Any thread.
 */
int weft__nccl(const struct weft__nccl **nccl);

/* The error of a call: "ncclSend: invalid usage (what NCCL says last) of rank 1 of 4 on cuda:0".
 * Sets the text of the thread, returns the status that the code stands for. */
int weft__nccl_error(const struct weft__nccl *nccl, ncclResult_t code, ncclComm_t comm,
                     const char *call, const char *format, ...) WEFT_PRINTF(5, 6);

#endif
