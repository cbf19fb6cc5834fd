/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI's collectives that templates are measured beside. */
#include "tools/mpi/module.h"

#include <mpi.h>
#include <string.h>

#define WORLD MPI_COMM_WORLD
/* Both forms of one: what they are called, and their arguments. */
#define COLLECTIVE(name, ...)                                                                      \
    static void do_##name(const float *send, float *recv, int count)                               \
    {                                                                                              \
        (void)send, (void)recv, (void)count;                                                       \
        MPI_##name(__VA_ARGS__, WORLD);                                                            \
    }
#define POSTED(name, ...)                                                                          \
    static void do_##name(const float *send, float *recv, int count)                               \
    {                                                                                              \
        MPI_Request request;                                                                       \
        (void)send, (void)recv, (void)count;                                                       \
        MPI_##name(__VA_ARGS__, WORLD, &request);                                                  \
        MPI_Wait(&request, MPI_STATUS_IGNORE);                                                     \
    }
#define BLOCKS send, count, MPI_FLOAT, recv, count, MPI_FLOAT
#define SUMS   send, recv, count, MPI_FLOAT, MPI_SUM

COLLECTIVE(Allgather, BLOCKS)
POSTED(Iallgather, BLOCKS)
COLLECTIVE(Allreduce, SUMS)
POSTED(Iallreduce, SUMS)
COLLECTIVE(Alltoall, BLOCKS)
POSTED(Ialltoall, BLOCKS)
COLLECTIVE(Bcast, recv, count, MPI_FLOAT, 0)
POSTED(Ibcast, recv, count, MPI_FLOAT, 0)
COLLECTIVE(Exscan, SUMS)
POSTED(Iexscan, SUMS)
COLLECTIVE(Gather, BLOCKS, 0)
POSTED(Igather, BLOCKS, 0)
COLLECTIVE(Reduce, SUMS, 0)
POSTED(Ireduce, SUMS, 0)
COLLECTIVE(Reduce_scatter_block, SUMS)
POSTED(Ireduce_scatter_block, SUMS)
COLLECTIVE(Scan, SUMS)
POSTED(Iscan, SUMS)
COLLECTIVE(Scatter, BLOCKS, 0)
POSTED(Iscatter, BLOCKS, 0)

static void do_Barrier(const float *send, float *recv, int count)
{
    (void)send, (void)recv, (void)count;
    MPI_Barrier(WORLD);
}

static void do_Ibarrier(const float *send, float *recv, int count)
{
    MPI_Request request;
    (void)send, (void)recv, (void)count;
    MPI_Ibarrier(WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static const struct mpi_collective collectives[] = {
    {"allgather", {"MPI_Allgather", "MPI_Iallgather"}, {do_Allgather, do_Iallgather}},
    {"allreduce", {"MPI_Allreduce", "MPI_Iallreduce"}, {do_Allreduce, do_Iallreduce}},
    {"alltoall", {"MPI_Alltoall", "MPI_Ialltoall"}, {do_Alltoall, do_Ialltoall}},
    {"barrier", {"MPI_Barrier", "MPI_Ibarrier"}, {do_Barrier, do_Ibarrier}},
    {"broadcast", {"MPI_Bcast", "MPI_Ibcast"}, {do_Bcast, do_Ibcast}},
    {"exscan", {"MPI_Exscan", "MPI_Iexscan"}, {do_Exscan, do_Iexscan}},
    {"gather", {"MPI_Gather", "MPI_Igather"}, {do_Gather, do_Igather}},
    {"reduce", {"MPI_Reduce", "MPI_Ireduce"}, {do_Reduce, do_Ireduce}},
    {"reduce-scatter",
     {"MPI_Reduce_scatter_block", "MPI_Ireduce_scatter_block"},
     {do_Reduce_scatter_block, do_Ireduce_scatter_block}},
    {"scan", {"MPI_Scan", "MPI_Iscan"}, {do_Scan, do_Iscan}},
    {"scatter", {"MPI_Scatter", "MPI_Iscatter"}, {do_Scatter, do_Iscatter}},
};

const struct mpi_collective *mpi_collective_find(const char *template)
{
    for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++)
        if (!strcmp(collectives[i].template, template))
            return &collectives[i];
    return NULL;
}
