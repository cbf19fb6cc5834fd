/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small calls whose outcome is known without PMPI, and which keep nothing: for programs that make
 * very many. Element i of rank r is base + 100 r + i.
 */
#include <stdlib.h>
#include <string.h>

#include "compare.h"

enum which {
    BY_ALLREDUCE,
    BY_BCAST,
    BY_ALLGATHER,
    BY_ALLTOALL,
    BY_IALLREDUCE,
    BY_REDUCE_SCATTER_BLOCK,
    BY_BARRIER,
    BY_ALLREDUCE_INIT,
    BY_SENDRECV
};
static const char *const names[ROUNDS_KNOWN] = {
    "MPI_Allreduce", "MPI_Bcast",          "MPI_Allgather",
    "MPI_Alltoall",  "MPI_Iallreduce",     "MPI_Reduce_scatter_block",
    "MPI_Barrier",   "MPI_Allreduce_init", "MPI_Sendrecv",
};

struct round {
    MPI_Comm comm;
    enum which which;
    int root, base, rank, ranks;
    int *send, *recv; /* of `ranks` elements each */
};

static void later(const struct round *r)
{
    MPI_Request request;

    MUST(MPI_Iallreduce(r->send, r->recv, r->ranks, MPI_INT, MPI_SUM, r->comm, &request));
    test_wait_mpi(&request);
}

static void again(const struct round *r)
{
#if MPI_VERSION >= 4
    MPI_Request request;

    MUST(MPI_Allreduce_init(r->send, r->recv, r->ranks, MPI_INT, MPI_SUM, r->comm, MPI_INFO_NULL,
                            &request));
    for (int start = 0; start < 2; start++) {
        MUST(MPI_Start(&request));
        test_wait_mpi(&request);
    }
    MUST(MPI_Request_free(&request));
#else
    later(r);
#endif
}

static void message(const struct round *r)
{
    int next = (r->rank + 1) % r->ranks, previous = (r->rank + r->ranks - 1) % r->ranks;

    MUST(MPI_Sendrecv(r->send, r->ranks, MPI_INT, next, 3, r->recv, r->ranks, MPI_INT, previous, 3,
                      r->comm, MPI_STATUS_IGNORE));
}

static void call(const struct round *r)
{
    switch (r->which) {
    case BY_ALLREDUCE:
        MUST(MPI_Allreduce(r->send, r->recv, r->ranks, MPI_INT, MPI_SUM, r->comm));
        break;
    case BY_BCAST:
        if (r->rank == r->root)
            memcpy(r->recv, r->send, sizeof(int) * (size_t)r->ranks);
        MUST(MPI_Bcast(r->recv, r->ranks, MPI_INT, r->root, r->comm));
        break;
    case BY_ALLGATHER:
        MUST(MPI_Allgather(r->send, 1, MPI_INT, r->recv, 1, MPI_INT, r->comm));
        break;
    case BY_ALLTOALL:
        MUST(MPI_Alltoall(r->send, 1, MPI_INT, r->recv, 1, MPI_INT, r->comm));
        break;
    case BY_IALLREDUCE:
        later(r);
        break;
    case BY_REDUCE_SCATTER_BLOCK:
        MUST(MPI_Reduce_scatter_block(r->send, r->recv, 1, MPI_INT, MPI_SUM, r->comm));
        break;
    case BY_SENDRECV:
        message(r);
        break;
    case BY_BARRIER:
        MUST(MPI_Barrier(r->comm));
        break;
    default:
        again(r);
    }
}

static int expected_at(const struct round *r, int i)
{
    int sum = r->ranks * r->base + 100 * (r->ranks * (r->ranks - 1) / 2);
    int previous = (r->rank + r->ranks - 1) % r->ranks;

    switch (r->which) {
    case BY_ALLREDUCE:
    case BY_IALLREDUCE:
    case BY_ALLREDUCE_INIT:
        return sum + r->ranks * i;
    case BY_BCAST:
        return r->base + 100 * r->root + i;
    case BY_ALLGATHER:
        return r->base + 100 * i;
    case BY_ALLTOALL:
        return r->base + 100 * i + r->rank;
    case BY_REDUCE_SCATTER_BLOCK:
        return i == 0 ? sum + r->ranks * r->rank : -1;
    case BY_SENDRECV:
        return r->base + 100 * previous + i;
    default:
        return -1;
    }
}

void round_run(MPI_Comm comm, int number, int root, int base)
{
    struct round r = {comm, (enum which)(number % ROUNDS_KNOWN), 0, base, 0, 0, NULL, NULL};

    MUST(PMPI_Comm_rank(comm, &r.rank));
    MUST(PMPI_Comm_size(comm, &r.ranks));
    r.root = root % r.ranks;
    r.send = test_alloc(sizeof(int) * (size_t)r.ranks);
    r.recv = test_alloc(sizeof(int) * (size_t)r.ranks);
    for (int i = 0; i < r.ranks; i++) {
        r.send[i] = base + 100 * r.rank + i;
        r.recv[i] = -1;
    }
    call(&r);
    for (int i = 0; i < r.ranks; i++) {
        if (r.recv[i] == expected_at(&r, i))
            continue;
        test_mismatch("%s, root %d, base %d: element %d: expected %d, found %d", names[r.which],
                      r.root, base, i, expected_at(&r, i), r.recv[i]);
        break;
    }
    free(r.send);
    free(r.recv);
}
