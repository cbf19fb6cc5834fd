/* SPDX-License-Identifier: BSD-3-Clause */
/* A collective of MPI, by the one of weft that is it. */
#include "tools/pmpi/request.h"

/* The function of a name, or the one of it that does not block. */
#define RUN(name, ...) (request ? weft_i##name(__VA_ARGS__, request) : weft_##name(__VA_ARGS__))

int pmpi_execute(struct pmpi_call *call, struct weft_request **request)
{
    struct weft_context *context = call->state->context;
    const struct pmpi_wire *sent = &call->sent, *received = &call->received;
    const struct weft_op *op = call->reduction ? call->reduction->op : NULL;
    weft_dtype_t dtype = call->reduction ? call->reduction->dtype : WEFT_U8;
    int root = call->root;
    switch (call->kind) {
    case PMPI_ALLGATHER:
        return RUN(allgather, context, sent->data, received->data, received->count, dtype);
    case PMPI_ALLGATHERV:
        return RUN(allgatherv, context, sent->data, received->data, received->counts,
                   received->places, dtype);
    case PMPI_ALLREDUCE:
        return RUN(allreduce, context, sent->data, received->data, received->count, dtype, op);
    case PMPI_ALLTOALL:
        return RUN(alltoall, context, sent->data, received->data, received->count, dtype);
    case PMPI_ALLTOALLV:
    case PMPI_ALLTOALLW:
        return RUN(alltoallv, context, sent->data, sent->counts, sent->places, received->data,
                   received->counts, received->places, dtype);
    case PMPI_BARRIER:
        return RUN(barrier, context);
    case PMPI_BCAST:
        return RUN(broadcast, context, received->data, received->count, dtype, root);
    case PMPI_EXSCAN:
        return RUN(exscan, context, sent->data, received->data, received->count, dtype, op);
    case PMPI_GATHER:
        return RUN(gather, context, sent->data, received->data,
                   call->state->rank == root ? received->count : sent->count, dtype, root);
    case PMPI_GATHERV:
        return RUN(gatherv, context, sent->data, sent->count, received->data, received->counts,
                   received->places, dtype, root);
    case PMPI_REDUCE:
        return RUN(reduce, context, sent->data, received->data,
                   call->state->rank == root ? received->count : sent->count, dtype, op, root);
    case PMPI_REDUCE_SCATTER:
        return RUN(reduce_scatterv, context, sent->data, received->data, received->counts, dtype,
                   op);
    case PMPI_REDUCE_SCATTER_BLOCK:
        return RUN(reduce_scatter, context, sent->data, received->data, received->count, dtype, op);
    case PMPI_SCAN:
        return RUN(scan, context, sent->data, received->data, received->count, dtype, op);
    case PMPI_SCATTER:
        return RUN(scatter, context, sent->data, received->data,
                   call->state->rank == root ? sent->count : received->count, dtype, root);
    case PMPI_SCATTERV:
        return RUN(scatterv, context, sent->data, sent->counts, sent->places, received->data,
                   received->count, dtype, root);
    case PMPI_KIND_COUNT:
        break;
    }
    return WEFT_ERR_INVALID;
}

static int slot_of(const struct pmpi_call *call)
{
    return pmpi_table_slot(call->kind, call->form);
}

/* What all ranks have in common: whether they have a context, and how much is to be moved. */
static enum pmpi_reason look_at(struct pmpi_call *call)
{
    if (!atomic_load_explicit(&pmpi_active, memory_order_acquire))
        return PMPI_OVER;
    call->state = pmpi_comm_find(call->comm);
    if (!call->state)
        return PMPI_ARGUMENT;
    if (call->state->reason != PMPI_SERVED)
        return call->state->reason;
    call->lists = call->state->lists;
    if (!call->state->context && call->form != PMPI_BLOCKING)
        return PMPI_NOT_YET;
    if (call->form != PMPI_BLOCKING && !pmpi_rescue_may_run())
        return PMPI_NOT_DRIVEN;
    if (!call->state->context) {
        enum pmpi_reason reason = pmpi_comm_connect(call->comm, call->state);
        if (reason != PMPI_SERVED)
            return reason;
    }
    if (call->form == PMPI_PERSISTENT && call->state->persists_not != PMPI_SERVED)
        return call->state->persists_not;
    int is_sized = pmpi_wire_size(call, &call->bytes);
    if (pmpi_table_has_all(call->state->table, slot_of(call)))
        return PMPI_CHOICE;
    if (!is_sized)
        return PMPI_ARGUMENT;
    return pmpi_table_has(call->state->table, slot_of(call), call->bytes) ? PMPI_CHOICE
                                                                          : PMPI_SERVED;
}

int pmpi_is_by_size(const struct pmpi_call *call)
{
    int is_asked =
        call->reason == PMPI_SERVED || call->reason == PMPI_CHOICE || call->reason == PMPI_ARGUMENT;
    return call->state && call->state->table && is_asked &&
           !pmpi_table_has_all(call->state->table, slot_of(call));
}

int pmpi_is_left(enum pmpi_kind kind, enum pmpi_form form, MPI_Comm comm, MPI_Count count,
                 MPI_Datatype type)
{
    const struct pmpi_comm *state = pmpi_comm_known(comm);
    int slot = pmpi_table_slot(kind, form);
    if (!state || !state->table || pmpi_counts ||
        atomic_load_explicit(&pmpi_under_way, memory_order_relaxed) > 0)
        return 0;
    if (pmpi_table_has_all(state->table, slot))
        return 1;
    const struct pmpi_type *known = count >= 0 ? pmpi_type_find(type) : NULL;
    return known && known != &pmpi_type_lost &&
           pmpi_table_has(state->table, slot, (size_t)count * known->size);
}

int pmpi_is_served(struct pmpi_call *call, enum pmpi_form form)
{
    call->form = form;
    if (pmpi_counts)
        call->began_ns = pmpi_now();
    call->reason = look_at(call);
    return call->reason == PMPI_SERVED;
}

int pmpi_serve(struct pmpi_call *call, int *code)
{
    if (!pmpi_is_served(call, PMPI_BLOCKING))
        return 0;
    int status = pmpi_wire_open(call, &call->reason);
    if (call->reason != PMPI_SERVED)
        return 0;
    if (status == WEFT_OK)
        status = pmpi_execute(call, NULL);
    else
        weft_collectives_fail(call->state->context, status, weft_error_text());
    status = pmpi_wire_close(call, status);
    *code = status == WEFT_OK ? MPI_SUCCESS : pmpi_comm_raise(call->state, status);
    if (pmpi_counts)
        pmpi_stats_count(call);
    return 1;
}
