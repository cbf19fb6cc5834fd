/* SPDX-License-Identifier: BSD-3-Clause */
/* A collective of MPI, by the one of weft that is it. */
#include "tools/pmpi/pmpi.h"

static int execute(struct pmpi_call *call)
{
    struct weft_context *context = call->state->context;
    const struct pmpi_wire *sent = &call->sent, *received = &call->received;
    const struct weft_op *op = call->reduction ? call->reduction->op : NULL;
    weft_dtype_t dtype = call->reduction ? call->reduction->dtype : WEFT_U8;
    int root = call->root;
    switch (call->kind) {
    case PMPI_ALLGATHER:
        return weft_allgather(context, sent->data, received->data, received->count, dtype);
    case PMPI_ALLGATHERV:
        return weft_allgatherv(context, sent->data, received->data, received->counts,
                               received->places, dtype);
    case PMPI_ALLREDUCE:
        return weft_allreduce(context, sent->data, received->data, received->count, dtype, op);
    case PMPI_ALLTOALL:
        return weft_alltoall(context, sent->data, received->data, received->count, dtype);
    case PMPI_ALLTOALLV:
    case PMPI_ALLTOALLW:
        return weft_alltoallv(context, sent->data, sent->counts, sent->places, received->data,
                              received->counts, received->places, dtype);
    case PMPI_BARRIER:
        return weft_barrier(context);
    case PMPI_BCAST:
        return weft_broadcast(context, received->data, received->count, dtype, root);
    case PMPI_EXSCAN:
        return weft_exscan(context, sent->data, received->data, received->count, dtype, op);
    case PMPI_GATHER:
        return weft_gather(context, sent->data, received->data,
                           call->state->rank == root ? received->count : sent->count, dtype, root);
    case PMPI_GATHERV:
        return weft_gatherv(context, sent->data, sent->count, received->data, received->counts,
                            received->places, dtype, root);
    case PMPI_REDUCE:
        return weft_reduce(context, sent->data, received->data,
                           call->state->rank == root ? received->count : sent->count, dtype, op,
                           root);
    case PMPI_REDUCE_SCATTER:
        return weft_reduce_scatterv(context, sent->data, received->data, received->counts, dtype,
                                    op);
    case PMPI_REDUCE_SCATTER_BLOCK:
        return weft_reduce_scatter(context, sent->data, received->data, received->count, dtype, op);
    case PMPI_SCAN:
        return weft_scan(context, sent->data, received->data, received->count, dtype, op);
    case PMPI_SCATTER:
        return weft_scatter(context, sent->data, received->data,
                            call->state->rank == root ? sent->count : received->count, dtype, root);
    case PMPI_SCATTERV:
        return weft_scatterv(context, sent->data, sent->counts, sent->places, received->data,
                             received->count, dtype, root);
    case PMPI_KIND_COUNT:
        break;
    }
    return WEFT_ERR_INVALID;
}

/* What all ranks have in common: whether they have a context. */
static enum pmpi_reason look_at(struct pmpi_call *call)
{
    if (!atomic_load_explicit(&pmpi_active, memory_order_acquire))
        return PMPI_OVER;
    call->state = pmpi_comm_find(call->comm);
    if (!call->state)
        return PMPI_ARGUMENT;
    if (call->state->reason != PMPI_SERVED)
        return call->state->reason;
    if (!call->state->context && !pmpi_comm_connect(call->state))
        return call->state->reason;
    return PMPI_SERVED;
}

int pmpi_serve(struct pmpi_call *call, int *code)
{
    if (pmpi_counts)
        call->began_ns = pmpi_now();
    call->reason = look_at(call);
    if (call->reason != PMPI_SERVED)
        return 0;
    int status = pmpi_wire_open(call, &call->reason);
    if (call->reason != PMPI_SERVED)
        return 0;
    if (status == WEFT_OK)
        status = execute(call);
    else
        weft_sequence_fail(call->state->context, status, weft_error_text());
    status = pmpi_wire_close(call, status);
    *code = status == WEFT_OK ? MPI_SUCCESS : pmpi_comm_raise(call->state, status);
    if (pmpi_counts)
        pmpi_stats_count(call);
    return 1;
}
