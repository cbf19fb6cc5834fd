/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collectives of MPI, in all their forms: each fills in a struct pmpi_call, and calls PMPI's
 * where weft does not serve it.
 *
 * A table has the parameters of each: what they are called, and which side of a call they are. The
 * forms with large counts have other types, the non-blocking and the persistent ones parameters
 * behind the communicator.
 */
#include "tools/pmpi/request.h"

/* The const of what is sent goes where buffers of both kinds are one. */
#define BUFFER(buffer) ((void *)(uintptr_t)(buffer))

/* Parameters up to the communicator, their names, what says how large a block or vector is where
 * that is told on all ranks alike, and the call that they make. N is the type of counts, D of
 * displacements. */
#define UNTOLD -1, MPI_DATATYPE_NULL

#define ALLGATHER_PARAMETERS(N, D)                                                                 \
    const void *send, N send_count, MPI_Datatype send_type, void *recv, N recv_count,              \
        MPI_Datatype recv_type
#define ALLGATHER_NAMES send, send_count, send_type, recv, recv_count, recv_type
#define ALLGATHER_SENT  .send = {BUFFER(send), .count = send_count, .type = send_type}
#define ALLGATHER_SIZE  recv_count, recv_type
#define ALLGATHER_CALL                                                                             \
    ALLGATHER_SENT, .recv = {.data = recv, .count = recv_count, .type = recv_type}

#define ALLGATHERV_PARAMETERS(N, D)                                                                \
    const void *send, N send_count, MPI_Datatype send_type, void *recv, const N recv_counts[],     \
        const D places[], MPI_Datatype recv_type
#define ALLGATHERV_NAMES send, send_count, send_type, recv, recv_counts, places, recv_type
#define ALLGATHERV_SIZE  UNTOLD
#define ALLGATHERV_CALL                                                                            \
    ALLGATHER_SENT, .recv = {recv, .counts = recv_counts, .places = places, .type = recv_type}

#define ALLREDUCE_PARAMETERS(N, D)                                                                 \
    const void *send, void *recv, N count, MPI_Datatype type, MPI_Op op
#define ALLREDUCE_NAMES send, recv, count, type, op
#define ALLREDUCE_SIZE  count, type
#define ALLREDUCE_CALL                                                                             \
    .send = {BUFFER(send), .count = count, .type = type},                                          \
    .recv = {recv, .count = count, .type = type}, .op = op

#define ALLTOALL_PARAMETERS(N, D) ALLGATHER_PARAMETERS(N, D)
#define ALLTOALL_NAMES            ALLGATHER_NAMES
#define ALLTOALL_SIZE             ALLGATHER_SIZE
#define ALLTOALL_CALL             ALLGATHER_CALL

#define ALLTOALLV_PARAMETERS(N, D)                                                                 \
    const void *send, const N send_counts[], const D send_places[], MPI_Datatype send_type,        \
        void *recv, const N recv_counts[], const D recv_places[], MPI_Datatype recv_type
#define ALLTOALLV_NAMES                                                                            \
    send, send_counts, send_places, send_type, recv, recv_counts, recv_places, recv_type
#define ALLTOALLV_SIZE UNTOLD
#define ALLTOALLV_CALL                                                                             \
    .send = {BUFFER(send), .counts = send_counts, .places = send_places, .type = send_type},       \
    .recv = {recv, .counts = recv_counts, .places = recv_places, .type = recv_type}

#define ALLTOALLW_PARAMETERS(N, D)                                                                 \
    const void *send, const N send_counts[], const D send_places[],                                \
        const MPI_Datatype send_types[], void *recv, const N recv_counts[], const D recv_places[], \
        const MPI_Datatype recv_types[]
#define ALLTOALLW_NAMES                                                                            \
    send, send_counts, send_places, send_types, recv, recv_counts, recv_places, recv_types
#define ALLTOALLW_SIZE UNTOLD
#define ALLTOALLW_CALL                                                                             \
    .send = {BUFFER(send), .counts = send_counts, .places = send_places, .types = send_types},     \
    .recv = {recv, .counts = recv_counts, .places = recv_places, .types = recv_types}

#define BCAST_PARAMETERS(N, D) void *buffer, N count, MPI_Datatype type, int root
#define BCAST_NAMES            buffer, count, type, root
#define BCAST_SIZE             count, type
#define BCAST_CALL             .recv = {buffer, .count = count, .type = type}, .root = root

#define EXSCAN_PARAMETERS(N, D) ALLREDUCE_PARAMETERS(N, D)
#define EXSCAN_NAMES            ALLREDUCE_NAMES
#define EXSCAN_SIZE             ALLREDUCE_SIZE
#define EXSCAN_CALL             ALLREDUCE_CALL

#define GATHER_PARAMETERS(N, D) ALLGATHER_PARAMETERS(N, D), int root
#define GATHER_NAMES            ALLGATHER_NAMES, root
#define GATHER_SIZE             UNTOLD
#define GATHER_CALL             ALLGATHER_CALL, .root = root

#define GATHERV_PARAMETERS(N, D) ALLGATHERV_PARAMETERS(N, D), int root
#define GATHERV_NAMES            ALLGATHERV_NAMES, root
#define GATHERV_SIZE             UNTOLD
#define GATHERV_CALL             ALLGATHERV_CALL, .root = root

#define REDUCE_PARAMETERS(N, D) ALLREDUCE_PARAMETERS(N, D), int root
#define REDUCE_NAMES            ALLREDUCE_NAMES, root
#define REDUCE_SIZE             ALLREDUCE_SIZE
#define REDUCE_CALL             ALLREDUCE_CALL, .root = root

#define REDUCE_SCATTER_PARAMETERS(N, D)                                                            \
    const void *send, void *recv, const N recv_counts[], MPI_Datatype type, MPI_Op op
#define REDUCE_SCATTER_NAMES send, recv, recv_counts, type, op
#define REDUCE_SCATTER_SIZE  UNTOLD
#define REDUCE_SCATTER_CALL                                                                        \
    .send = {BUFFER(send), .counts = recv_counts, .type = type},                                   \
    .recv = {recv, .counts = recv_counts, .type = type}, .op = op

#define REDUCE_SCATTER_BLOCK_PARAMETERS(N, D) ALLREDUCE_PARAMETERS(N, D)
#define REDUCE_SCATTER_BLOCK_NAMES            ALLREDUCE_NAMES
#define REDUCE_SCATTER_BLOCK_SIZE             ALLREDUCE_SIZE
#define REDUCE_SCATTER_BLOCK_CALL             ALLREDUCE_CALL

#define SCAN_PARAMETERS(N, D) ALLREDUCE_PARAMETERS(N, D)
#define SCAN_NAMES            ALLREDUCE_NAMES
#define SCAN_SIZE             ALLREDUCE_SIZE
#define SCAN_CALL             ALLREDUCE_CALL

#define SCATTER_PARAMETERS(N, D) ALLGATHER_PARAMETERS(N, D), int root
#define SCATTER_NAMES            ALLGATHER_NAMES, root
#define SCATTER_SIZE             UNTOLD
#define SCATTER_CALL             ALLGATHER_CALL, .root = root

#define SCATTERV_PARAMETERS(N, D)                                                                  \
    const void *send, const N send_counts[], const D places[], MPI_Datatype send_type, void *recv, \
        N recv_count, MPI_Datatype recv_type, int root
#define SCATTERV_NAMES send, send_counts, places, send_type, recv, recv_count, recv_type, root
#define SCATTERV_SIZE  UNTOLD
#define SCATTERV_CALL                                                                              \
    .send = {BUFFER(send), .counts = send_counts, .places = places, .type = send_type},            \
    .recv = {recv, .count = recv_count, .type = recv_type}, .root = root

/* All but the barrier, which has the communicator alone. */
#define WITH_DATA(X, ...)                                                                          \
    X(ALLGATHER, Allgather, allgather, __VA_ARGS__)                                                \
    X(ALLGATHERV, Allgatherv, allgatherv, __VA_ARGS__)                                             \
    X(ALLREDUCE, Allreduce, allreduce, __VA_ARGS__)                                                \
    X(ALLTOALL, Alltoall, alltoall, __VA_ARGS__)                                                   \
    X(ALLTOALLV, Alltoallv, alltoallv, __VA_ARGS__)                                                \
    X(BCAST, Bcast, bcast, __VA_ARGS__)                                                            \
    X(EXSCAN, Exscan, exscan, __VA_ARGS__)                                                         \
    X(GATHER, Gather, gather, __VA_ARGS__)                                                         \
    X(GATHERV, Gatherv, gatherv, __VA_ARGS__)                                                      \
    X(REDUCE, Reduce, reduce, __VA_ARGS__)                                                         \
    X(REDUCE_SCATTER, Reduce_scatter, reduce_scatter, __VA_ARGS__)                                 \
    X(REDUCE_SCATTER_BLOCK, Reduce_scatter_block, reduce_scatter_block, __VA_ARGS__)               \
    X(SCAN, Scan, scan, __VA_ARGS__)                                                               \
    X(SCATTER, Scatter, scatter, __VA_ARGS__)                                                      \
    X(SCATTERV, Scatterv, scatterv, __VA_ARGS__)

/* A call that was MPI's. */
static int forwarded(struct pmpi_call *call, int code)
{
    if (pmpi_counts)
        pmpi_stats_count(call);
    return code;
}

#define MAKE(NAME, suffix, is_large)                                                               \
    {                                                                                              \
        .kind = PMPI_##NAME, .large = (is_large), .comm = comm, NAME##_CALL                        \
    }

#define BLOCKING(NAME, Name, name, suffix, N, D, is_large)                                         \
    WEFT_EXPORT int MPI_##Name##suffix(NAME##_PARAMETERS(N, D), MPI_Comm comm)                     \
    {                                                                                              \
        if (pmpi_is_left(PMPI_##NAME, PMPI_BLOCKING, comm, NAME##_SIZE))                           \
            return PMPI_##Name##suffix(NAME##_NAMES, comm);                                        \
        struct pmpi_call call = MAKE(NAME, suffix, is_large);                                      \
        int code;                                                                                  \
        if (pmpi_serve(&call, &code))                                                              \
            return code;                                                                           \
        pmpi_rescue_enter();                                                                       \
        code = PMPI_##Name##suffix(NAME##_NAMES, comm);                                            \
        pmpi_rescue_leave();                                                                       \
        return forwarded(&call, code);                                                             \
    }

#define NONBLOCKING(NAME, Name, name, suffix, N, D, is_large)                                      \
    WEFT_EXPORT int MPI_I##name##suffix(NAME##_PARAMETERS(N, D), MPI_Comm comm,                    \
                                        MPI_Request *request)                                      \
    {                                                                                              \
        if (pmpi_is_left(PMPI_##NAME, PMPI_NONBLOCKING, comm, NAME##_SIZE))                        \
            return PMPI_I##name##suffix(NAME##_NAMES, comm, request);                              \
        struct pmpi_call call = MAKE(NAME, suffix, is_large);                                      \
        int code;                                                                                  \
        if (pmpi_request_start(&call, request, &code))                                             \
            return code;                                                                           \
        return forwarded(&call, PMPI_I##name##suffix(NAME##_NAMES, comm, request));                \
    }

#define PERSISTENT(NAME, Name, name, suffix, N, D, is_large)                                       \
    WEFT_EXPORT int MPI_##Name##_init##suffix(NAME##_PARAMETERS(N, D), MPI_Comm comm,              \
                                              MPI_Info info, MPI_Request *request)                 \
    {                                                                                              \
        struct pmpi_call call = MAKE(NAME, suffix, is_large);                                      \
        int code;                                                                                  \
        if (pmpi_request_init(&call, request, &code))                                              \
            return code;                                                                           \
        return forwarded(&call, PMPI_##Name##_init##suffix(NAME##_NAMES, comm, info, request));    \
    }

#define EVERY_FORM(X, ...) WITH_DATA(X, __VA_ARGS__) X(ALLTOALLW, Alltoallw, alltoallw, __VA_ARGS__)

EVERY_FORM(BLOCKING, , int, int, 0)
EVERY_FORM(NONBLOCKING, , int, int, 0)
#if MPI_VERSION >= 4
EVERY_FORM(BLOCKING, _c, MPI_Count, MPI_Aint, 1)
EVERY_FORM(NONBLOCKING, _c, MPI_Count, MPI_Aint, 1)
EVERY_FORM(PERSISTENT, , int, int, 0)
EVERY_FORM(PERSISTENT, _c, MPI_Count, MPI_Aint, 1)
#endif

/* ---- the barrier ---- */

WEFT_EXPORT int MPI_Barrier(MPI_Comm comm)
{
    if (pmpi_is_left(PMPI_BARRIER, PMPI_BLOCKING, comm, UNTOLD))
        return PMPI_Barrier(comm);
    struct pmpi_call call = {.kind = PMPI_BARRIER, .comm = comm};
    int code;
    if (pmpi_serve(&call, &code))
        return code;
    pmpi_rescue_enter();
    code = PMPI_Barrier(comm);
    pmpi_rescue_leave();
    return forwarded(&call, code);
}

WEFT_EXPORT int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    if (pmpi_is_left(PMPI_BARRIER, PMPI_NONBLOCKING, comm, UNTOLD))
        return PMPI_Ibarrier(comm, request);
    struct pmpi_call call = {.kind = PMPI_BARRIER, .comm = comm};
    int code;
    if (pmpi_request_start(&call, request, &code))
        return code;
    return forwarded(&call, PMPI_Ibarrier(comm, request));
}

#if MPI_VERSION >= 4
WEFT_EXPORT int MPI_Barrier_init(MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    struct pmpi_call call = {.kind = PMPI_BARRIER, .comm = comm};
    int code;
    if (pmpi_request_init(&call, request, &code))
        return code;
    return forwarded(&call, PMPI_Barrier_init(comm, info, request));
}
#endif
