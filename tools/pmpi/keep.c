/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a call that has not ended needs of MPI: a program may free datatypes and operations once it
 * has handed them over. The freeing waits until nobody needs them, so that an operation is called
 * with the datatype that the program knows.
 */
#include <pthread.h>
#include <stdlib.h>

#include "tools/pmpi/request.h"

/* A datatype or an operation of the program that calls under way, or tokens, need. */
struct held {
    int is_op;
    MPI_Datatype type;
    MPI_Op op;
    int holds;
    int freed; /* by the program: goes with the last hold */
    struct held *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *helds;

static int no_memory(void)
{
    return weft_error_set(WEFT_ERR_MEMORY, "no memory to keep what a call under way needs");
}

static struct held **find(const struct held *like)
{
    struct held **link = &helds;
    while (*link && ((*link)->is_op != like->is_op ||
                     (like->is_op ? (*link)->op != like->op : (*link)->type != like->type)))
        link = &(*link)->next;
    return link;
}

static int hold(const struct held *like)
{
    pthread_mutex_lock(&lock);
    struct held *held = *find(like);
    if (!held && (held = calloc(1, sizeof *held))) {
        *held = *like;
        held->next = helds;
        helds = held;
    }
    if (held)
        held->holds++;
    pthread_mutex_unlock(&lock);
    return held ? WEFT_OK : no_memory();
}

static void free_it(struct held *held)
{
    if (held->is_op) {
        pmpi_reduction_forget_op(held->op);
        PMPI_Op_free(&held->op);
    } else {
        PMPI_Type_free(&held->type);
    }
}

static void leave(const struct held *like)
{
    struct held *over = NULL;
    pthread_mutex_lock(&lock);
    struct held **link = find(like);
    if (*link && --(*link)->holds == 0) {
        over = *link;
        *link = over->next;
    }
    pthread_mutex_unlock(&lock);
    if (over && over->freed)
        free_it(over);
    free(over);
}

/* Whether somebody needs what the program frees: it goes later. */
static int is_needed(const struct held *like)
{
    pthread_mutex_lock(&lock);
    struct held *held = *find(like);
    if (held)
        held->freed = 1;
    pthread_mutex_unlock(&lock);
    return held != NULL;
}

/* ---- datatypes ---- */

static int is_named(MPI_Datatype type)
{
    int integers, addresses, datatypes, combiner = MPI_COMBINER_NAMED;
    if (type != MPI_DATATYPE_NULL)
        PMPI_Type_get_envelope(type, &integers, &addresses, &datatypes, &combiner);
    return combiner == MPI_COMBINER_NAMED;
}

static int keep(struct pmpi_kept_types *kept, MPI_Datatype type)
{
    if (is_named(type))
        return WEFT_OK;
    int status = hold(&(struct held){.type = type});
    if (status == WEFT_OK)
        kept->list[kept->count++] = type;
    return status;
}

int pmpi_keep_types(struct pmpi_call *call, int side, struct pmpi_kept_types *kept)
{
    struct pmpi_part *part = side == 0 ? &call->send : &call->recv;
    int size = part->types ? call->state->size : 1;
    /* That of a reduction is its operation's, also where nothing is received. */
    if (!pmpi_wire_has_types(call, side) && !pmpi_is_reduction(call->kind))
        return WEFT_OK;
    if (part->types && !part->counts) /* MPI says what is wrong */
        return WEFT_OK;
    kept->list = size == 1 ? &kept->one : malloc((size_t)size * sizeof *kept->list);
    int status = kept->list ? WEFT_OK : no_memory();
    for (int r = 0; r < size && status == WEFT_OK; r++)
        if (pmpi_wire_is_block(call, side, r))
            status = keep(kept, part->types ? part->types[r] : part->type);
    return status;
}

void pmpi_drop_types(struct pmpi_kept_types *kept)
{
    for (size_t i = 0; i < kept->count; i++)
        leave(&(struct held){.type = kept->list[i]});
    if (kept->list != &kept->one)
        free(kept->list);
    *kept = (struct pmpi_kept_types){0};
}

WEFT_EXPORT int MPI_Type_free(MPI_Datatype *type)
{
    if (!type || !atomic_load(&pmpi_active) || !is_needed(&(struct held){.type = *type}))
        return PMPI_Type_free(type);
    *type = MPI_DATATYPE_NULL;
    return MPI_SUCCESS;
}

/* ---- operations ---- */

int pmpi_is_by_user(const struct pmpi_call *call)
{
    return pmpi_is_reduction(call->kind) && !pmpi_op_is_own(call->op);
}

int pmpi_op_hold(const struct pmpi_call *call)
{
    return pmpi_is_by_user(call) ? hold(&(struct held){.is_op = 1, .op = call->op}) : WEFT_OK;
}

void pmpi_op_leave(const struct pmpi_call *call)
{
    if (pmpi_is_by_user(call))
        leave(&(struct held){.is_op = 1, .op = call->op});
}

WEFT_EXPORT int MPI_Op_free(MPI_Op *op)
{
    if (!op || *op == MPI_OP_NULL || !atomic_load(&pmpi_active))
        return PMPI_Op_free(op);
    if (is_needed(&(struct held){.is_op = 1, .op = *op})) {
        *op = MPI_OP_NULL;
        return MPI_SUCCESS;
    }
    if (!pmpi_op_is_own(*op))
        pmpi_reduction_forget_op(*op);
    return PMPI_Op_free(op);
}
