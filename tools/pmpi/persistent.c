/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Persistent collectives: a run for each, made from the template of its name.
 *
 * Those of a communicator find each other by the order in which they were made, and may be started
 * in any: so they are runs of their own, and no steps of the context's sequence.
 */
#include "tools/pmpi/request.h"

/* What a template calls the sides of a call, and whether they have counts of their own. */
static const struct form {
    const char *template;
    const char *names[2];
    int listed[2];
} forms[PMPI_KIND_COUNT] = {
    [PMPI_ALLGATHER] = {"allgather", {"send", "recv"}, {0, 0}},
    [PMPI_ALLGATHERV] = {"allgatherv", {"send", "recv"}, {0, 1}},
    [PMPI_ALLREDUCE] = {"allreduce", {"send", "recv"}, {0, 0}},
    [PMPI_ALLTOALL] = {"alltoall", {"send", "recv"}, {0, 0}},
    [PMPI_ALLTOALLV] = {"alltoallv", {"send", "recv"}, {1, 1}},
    [PMPI_ALLTOALLW] = {"alltoallv", {"send", "recv"}, {1, 1}},
    [PMPI_BARRIER] = {"barrier", {NULL, NULL}, {0, 0}},
    [PMPI_BCAST] = {"broadcast", {NULL, "buffer"}, {0, 0}},
    [PMPI_EXSCAN] = {"exscan", {"send", "recv"}, {0, 0}},
    [PMPI_GATHER] = {"gather", {"send", "recv"}, {0, 0}},
    [PMPI_GATHERV] = {"gatherv", {"send", "recv"}, {0, 1}},
    [PMPI_REDUCE] = {"reduce", {"send", "recv"}, {0, 0}},
    [PMPI_REDUCE_SCATTER] = {"reduce-scatterv", {"send", "recv"}, {0, 0}},
    [PMPI_REDUCE_SCATTER_BLOCK] = {"reduce-scatter", {"send", "recv"}, {0, 0}},
    [PMPI_SCAN] = {"scan", {"send", "recv"}, {0, 0}},
    [PMPI_SCATTER] = {"scatter", {"send", "recv"}, {0, 0}},
    [PMPI_SCATTERV] = {"scatterv", {"send", "recv"}, {1, 0}},
};

static weft_dtype_t dtype_of(const struct pmpi_call *call)
{
    return call->reduction ? call->reduction->dtype : WEFT_U8;
}

/* Elements of a block, which the root of a gather has on the other side than the others. */
static size_t count_of(const struct pmpi_call *call)
{
    int is_root = call->state->rank == call->root;
    switch (call->kind) {
    case PMPI_GATHER:
    case PMPI_REDUCE:
        return is_root ? call->received.count : call->sent.count;
    case PMPI_SCATTER:
        return is_root ? call->sent.count : call->received.count;
    case PMPI_GATHERV:
        return call->sent.count;
    default:
        return call->received.count;
    }
}

static int make(const struct pmpi_call *call, struct weft_run **run)
{
    const struct form *form = &forms[call->kind];
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.count = count_of(call);
    params.dtype = dtype_of(call);
    params.op = call->reduction ? call->reduction->op : NULL;
    params.root = call->root;
    params.in_place = call->sent.data == WEFT_IN_PLACE || call->received.data == WEFT_IN_PLACE;
    if (form->listed[0] && form->listed[1]) {
        params.send_counts = call->sent.counts;
        params.recv_counts = call->received.counts;
    } else {
        params.counts = call->sent.counts ? call->sent.counts : call->received.counts;
    }
    return weft_template_create_run(run, call->state->context, form->template, &params);
}

/* Binds one side, if the plan of this rank has it. */
static int bind(const struct pmpi_call *call, struct weft_run *run, int side)
{
    const struct form *form = &forms[call->kind];
    const struct pmpi_wire *wire = side == 0 ? &call->sent : &call->received;
    const struct weft_plan *plan = weft_run_plan(run);
    struct weft_slot_info info = {.struct_size = sizeof info};
    if (!form->names[side] || wire->data == WEFT_IN_PLACE)
        return WEFT_OK;
    if (form->listed[side]) {
        if (!wire->counts)
            return WEFT_OK;
        int status = weft_run_bind_blocks(run, form->names[side], wire->data, wire->counts,
                                          wire->places, (size_t)call->state->size, dtype_of(call));
        return status == WEFT_ERR_NOT_FOUND ? WEFT_OK : status;
    }
    weft_slot_t slot = weft_plan_find_slot(plan, form->names[side]);
    if (slot < 0)
        return WEFT_OK;
    weft_plan_get_slot(plan, slot, &info);
    return weft_run_bind(run, slot, wire->data, info.count, dtype_of(call));
}

static int bind_both(const struct pmpi_call *call, struct weft_run *run)
{
    int status = bind(call, run, 0);
    return status == WEFT_OK ? bind(call, run, 1) : status;
}

/* Bound at once, so what that takes is there when it is started. */
int pmpi_persistent_make(const struct pmpi_call *call, struct weft_run **run)
{
    int status = make(call, run);
    return status == WEFT_OK ? bind_both(call, *run) : status;
}

int pmpi_persistent_start(const struct pmpi_call *call, struct weft_run *run)
{
    int status = bind_both(call, run);
    return status == WEFT_OK ? weft_run_start(run) : status;
}
