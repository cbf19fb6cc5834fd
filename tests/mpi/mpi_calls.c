/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stands in for MPI's functions, to be preloaded into a program that calls none of them: whoever
 * does is weft, which is to call PMPI_*.
 */
#include <stdio.h>
#include <stdlib.h>

#define CALLS(X)                                                                                   \
    X(Barrier)                                                                                     \
    X(Cancel)                                                                                      \
    X(Comm_create_keyval)                                                                          \
    X(Comm_dup)                                                                                    \
    X(Comm_free)                                                                                   \
    X(Comm_free_keyval)                                                                            \
    X(Comm_get_attr)                                                                               \
    X(Comm_idup)                                                                                   \
    X(Comm_rank)                                                                                   \
    X(Comm_set_attr)                                                                               \
    X(Comm_set_errhandler)                                                                         \
    X(Comm_size)                                                                                   \
    X(Comm_split)                                                                                  \
    X(Comm_test_inter)                                                                             \
    X(Error_class)                                                                                 \
    X(Error_string)                                                                                \
    X(Finalize)                                                                                    \
    X(Finalized)                                                                                   \
    X(Get_address)                                                                                 \
    X(Get_processor_name)                                                                          \
    X(Iallgather)                                                                                  \
    X(Iallreduce)                                                                                  \
    X(Ibarrier)                                                                                    \
    X(Ibcast)                                                                                      \
    X(Init)                                                                                        \
    X(Init_thread)                                                                                 \
    X(Initialized)                                                                                 \
    X(Iprobe)                                                                                      \
    X(Irecv)                                                                                       \
    X(Irecv_c)                                                                                     \
    X(Ireduce_scatter_block)                                                                       \
    X(Is_thread_main)                                                                              \
    X(Isend)                                                                                       \
    X(Isend_c)                                                                                     \
    X(Query_thread)                                                                                \
    X(Recv)                                                                                        \
    X(Send)                                                                                        \
    X(Test)                                                                                        \
    X(Test_cancelled)                                                                              \
    X(Testany)                                                                                     \
    X(Testsome)                                                                                    \
    X(Type_commit)                                                                                 \
    X(Type_create_hindexed)                                                                        \
    X(Type_free)                                                                                   \
    X(Wait)

#define STAND_IN(name)                                                                             \
    int MPI_##name(void);                                                                          \
    int MPI_##name(void)                                                                           \
    {                                                                                              \
        fprintf(stderr, "MPI_" #name " was called\n");                                             \
        abort();                                                                                   \
    }
CALLS(STAND_IN)
