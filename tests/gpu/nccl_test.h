/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks of the cases of the stand-in of NCCL: threads, or processes, each with a device. */
#ifndef WEFT_NCCL_TEST_H
#define WEFT_NCCL_TEST_H

#include <nccl.h>

#include "nccl/nccl_standin.h"
#include "standin_test.h"

#define NCCL_OK(call) EXPECT(call, ncclSuccess)

/* The call is refused, and counted as a misuse. */
#define NCCL_MISUSE(call, code)                                                                    \
    do {                                                                                           \
        unsigned misuse_before = standin_nccl_report(NULL, 0);                                     \
        EXPECT(call, code);                                                                        \
        CHECK(standin_nccl_report(NULL, 0) == misuse_before + 1);                                  \
    } while (0)

struct nccl_rank_of_test {
    int rank, size;
    ncclUniqueId id;
    CUcontext context;
    CUstream stream;
    ncclComm_t comm;
    void *shared;
};

/* `body` on so many ranks, each a thread with a device, a context, a stream, and, if `comms`, a
 * communicator of all, which is destroyed where the body has left it. */
void nccl_ranks(int size, bool comms, void (*body)(struct nccl_rank_of_test *), void *shared);
/* What a thread of it does, for a process. */
void nccl_rank(struct nccl_rank_of_test *rank, bool comms,
               void (*body)(struct nccl_rank_of_test *));
/* Memory of the rank's device with so many numbers in it, and back. */
CUdeviceptr nccl_put(const void *from, size_t bytes);
void nccl_get(void *to, CUdeviceptr from, size_t bytes);
/* Until the other ranks are here as well. */
void nccl_meet(void);
/* Until the report has a text in it. */
void nccl_until_reported(const char *what);
/* Polls a communicator until it is not in progress. */
ncclResult_t nccl_settle(ncclComm_t comm);

/* Nothing was misused. */
void nccl_clean(void);

void case_order(void);
void case_messages(void);
void case_chain(void);
void case_two_streams(void);
void case_collectives(void);
void case_types(void);
void case_one_thread(void);
void case_split(void);
void case_asked(void);
void case_processes(void);
void case_circle(void);
void case_mixed(void);
void case_unlike(void);
void case_let_go(void);
void case_misuse(void);
void case_one_device(void);
void case_not_blocking(void);
void case_fault(void);
void case_context_ends(void);
void case_every_nccl_call_fails(void);
void case_nccl_from_outside(void);

#endif
