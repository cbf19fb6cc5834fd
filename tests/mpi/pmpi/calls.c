/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collectives, in all their forms, by one list: a form is what is made of a name and of
 * arguments. COUNTS and DISPLS name the arrays of a part: those of int, or those of the _c forms.
 */
#include <stdlib.h>
#include <string.h>

#include "compare.h"

/* X(number, Name, name, arguments...) */
#define WITH_COUNTS(X, COUNTS, DISPLS)                                                             \
    X(ALLREDUCE, Allreduce, allreduce, c->send, c->recv, c->out.count, c->out.type, c->op,         \
      c->comm)                                                                                     \
    X(REDUCE, Reduce, reduce, c->send, c->recv, c->out.count, c->out.type, c->op, c->root,         \
      c->comm)                                                                                     \
    X(REDUCE_SCATTER, Reduce_scatter, reduce_scatter, c->send, c->recv, c->in.COUNTS, c->in.type,  \
      c->op, c->comm)                                                                              \
    X(REDUCE_SCATTER_BLOCK, Reduce_scatter_block, reduce_scatter_block, c->send, c->recv,          \
      c->in.count, c->in.type, c->op, c->comm)                                                     \
    X(SCAN, Scan, scan, c->send, c->recv, c->out.count, c->out.type, c->op, c->comm)               \
    X(EXSCAN, Exscan, exscan, c->send, c->recv, c->out.count, c->out.type, c->op, c->comm)         \
    X(BCAST, Bcast, bcast, c->recv, c->in.count, c->in.type, c->root, c->comm)                     \
    X(ALLGATHER, Allgather, allgather, c->send, c->out.count, c->out.type, c->recv, c->in.count,   \
      c->in.type, c->comm)                                                                         \
    X(ALLGATHERV, Allgatherv, allgatherv, c->send, c->out.count, c->out.type, c->recv,             \
      c->in.COUNTS, c->in.DISPLS, c->in.type, c->comm)                                             \
    X(GATHER, Gather, gather, c->send, c->out.count, c->out.type, c->recv, c->in.count,            \
      c->in.type, c->root, c->comm)                                                                \
    X(GATHERV, Gatherv, gatherv, c->send, c->out.count, c->out.type, c->recv, c->in.COUNTS,        \
      c->in.DISPLS, c->in.type, c->root, c->comm)                                                  \
    X(SCATTER, Scatter, scatter, c->send, c->out.count, c->out.type, c->recv, c->in.count,         \
      c->in.type, c->root, c->comm)                                                                \
    X(SCATTERV, Scatterv, scatterv, c->send, c->out.COUNTS, c->out.DISPLS, c->out.type, c->recv,   \
      c->in.count, c->in.type, c->root, c->comm)                                                   \
    X(ALLTOALL, Alltoall, alltoall, c->send, c->out.count, c->out.type, c->recv, c->in.count,      \
      c->in.type, c->comm)                                                                         \
    X(ALLTOALLV, Alltoallv, alltoallv, c->send, c->out.COUNTS, c->out.DISPLS, c->out.type,         \
      c->recv, c->in.COUNTS, c->in.DISPLS, c->in.type, c->comm)                                    \
    X(ALLTOALLW, Alltoallw, alltoallw, c->send, c->out.COUNTS, c->out.DISPLS, c->out.types,        \
      c->recv, c->in.COUNTS, c->in.DISPLS, c->in.types, c->comm)
#define WITHOUT_COUNTS(X) X(BARRIER, Barrier, barrier, c->comm)

#define NARROW(X)                                                                                  \
    WITH_COUNTS(X, counts, displs)                                                                 \
    WITHOUT_COUNTS(X)
#define WIDE(X) WITH_COUNTS(X, wide_counts, wide_displs)

#define NAMES(number, Name, name, ...)                                                             \
    [number] = {"MPI_" #Name,      "MPI_I" #name,      "MPI_" #Name "_init",                       \
                "MPI_" #Name "_c", "MPI_I" #name "_c", "MPI_" #Name "_init_c"},
static const char *const names[COLLECTIVES][FORMS] = {NARROW(NAMES)};

const char *call_name(enum collective which, enum form form)
{
    return names[which][form];
}

bool call_reduces(enum collective which)
{
    return which <= EXSCAN;
}

bool call_has_root(enum collective which)
{
    return which == REDUCE || which == BCAST || which == GATHER || which == GATHERV ||
           which == SCATTER || which == SCATTERV;
}

bool call_irregular(enum collective which)
{
    return which == REDUCE_SCATTER || which == ALLGATHERV || which == GATHERV ||
           which == SCATTERV || which == ALLTOALLV || which == ALLTOALLW;
}

#define BLOCKING(number, Name, name, ...)                                                          \
    case number:                                                                                   \
        return MPI_##Name(__VA_ARGS__);
static int blocking(const struct call *c)
{
    switch (c->which) {
        NARROW(BLOCKING)
    default:
        return MPI_ERR_INTERN;
    }
}

#define NONBLOCKING(number, Name, name, ...)                                                       \
    case number:                                                                                   \
        return MPI_I##name(__VA_ARGS__, request);
static int nonblocking(const struct call *c, MPI_Request *request)
{
    switch (c->which) {
        NARROW(NONBLOCKING)
    default:
        return MPI_ERR_INTERN;
    }
}

#define EXPECTED(number, Name, name, ...)                                                          \
    case number:                                                                                   \
        return PMPI_##Name(__VA_ARGS__);
static int expected(const struct call *c)
{
    switch (c->which) {
        NARROW(EXPECTED)
    default:
        return MPI_ERR_INTERN;
    }
}

#define EXPECTED_LATER(number, Name, name, ...)                                                    \
    case number:                                                                                   \
        return PMPI_I##name(__VA_ARGS__, request);
static int expected_later(const struct call *c, MPI_Request *request)
{
    switch (c->which) {
        NARROW(EXPECTED_LATER)
    default:
        return MPI_ERR_INTERN;
    }
}

#if MPI_VERSION >= 4
#    define PERSISTENT(number, Name, name, ...)                                                    \
    case number:                                                                                   \
        return MPI_##Name##_init(__VA_ARGS__, MPI_INFO_NULL, request);
static int persistent(const struct call *c, MPI_Request *request)
{
    switch (c->which) {
        NARROW(PERSISTENT)
    default:
        return MPI_ERR_INTERN;
    }
}

#    define BLOCKING_C(number, Name, name, ...)                                                    \
    case number:                                                                                   \
        return MPI_##Name##_c(__VA_ARGS__);
static int blocking_c(const struct call *c)
{
    switch (c->which) {
        WIDE(BLOCKING_C)
    default:
        return blocking(c);
    }
}

#    define NONBLOCKING_C(number, Name, name, ...)                                                 \
    case number:                                                                                   \
        return MPI_I##name##_c(__VA_ARGS__, request);
static int nonblocking_c(const struct call *c, MPI_Request *request)
{
    switch (c->which) {
        WIDE(NONBLOCKING_C)
    default:
        return nonblocking(c, request);
    }
}

#    define PERSISTENT_C(number, Name, name, ...)                                                  \
    case number:                                                                                   \
        return MPI_##Name##_init_c(__VA_ARGS__, MPI_INFO_NULL, request);
static int persistent_c(const struct call *c, MPI_Request *request)
{
    switch (c->which) {
        WIDE(PERSISTENT_C)
    default:
        return persistent(c, request);
    }
}
#endif

int call_mpi(const struct call *call, enum form form, MPI_Request *request)
{
    switch (form) {
    case FORM_BLOCKING:
        return blocking(call);
    case FORM_NONBLOCKING:
        return nonblocking(call, request);
#if MPI_VERSION >= 4
    case FORM_PERSISTENT:
        return persistent(call, request);
    case FORM_BLOCKING_C:
        return blocking_c(call);
    case FORM_NONBLOCKING_C:
        return nonblocking_c(call, request);
    case FORM_PERSISTENT_C:
        return persistent_c(call, request);
#endif
    default:
        return MPI_ERR_INTERN;
    }
}

int call_pmpi(const struct call *call, enum form form, MPI_Request *request)
{
    return form == FORM_BLOCKING ? expected(call) : expected_later(call, request);
}

/*
 * What is wrong in MPICH 4.0.2: PMPI_Reduce in place (see shape_broken()); PMPI_Ialltoallv and
 * PMPI_Ialltoallw in place, of datatypes with gaps.
 */
int call_expected(const struct call *call)
{
    MPI_Request request = MPI_REQUEST_NULL;
    bool exchange = call->which >= ALLTOALL && call->which <= ALLTOALLW;
    int code;

    if ((call->which != REDUCE && !test_crowded()) || (exchange && call->send == MPI_IN_PLACE))
        return expected(call);
    code = expected_later(call, &request);
    if (code == MPI_SUCCESS)
        test_wait(&request);
    return code;
}

void part_alloc(struct part *part, int ranks)
{
    size_t n = (size_t)ranks;

    part->counts = memset(test_alloc(n * sizeof(int)), 0, n * sizeof(int));
    part->displs = memset(test_alloc(n * sizeof(int)), 0, n * sizeof(int));
    part->types = test_alloc(n * sizeof(MPI_Datatype));
    part->wide_counts = test_alloc(n * sizeof *part->wide_counts);
    part->wide_displs = test_alloc(n * sizeof(MPI_Aint));
    for (int i = 0; i < ranks; i++)
        part->types[i] = MPI_BYTE;
}

void part_widen(struct part *part, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        part->wide_counts[i] = part->counts[i];
        part->wide_displs[i] = part->displs[i];
    }
}

void part_free(struct part *part)
{
    free(part->counts);
    free(part->displs);
    free(part->types);
    free(part->wide_counts);
    free(part->wide_displs);
    memset(part, 0, sizeof *part);
}
