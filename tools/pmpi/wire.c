/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a program gives MPI, as weft gets it: bytes, or elements that weft combines.
 *
 *     send, recv: address, count or counts and displacements, datatype
 *         |
 *         |-- dense: the same memory, counts and displacements in bytes
 *         '-- else:  packed, blocks behind each other; unpacked when the call is over
 *
 * All of it is this rank's own affair. Others may have another datatype of the same signature.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/pmpi/pmpi.h"

enum who { NOBODY, ROOT, ALL };
/* What a side has: one block, one for each rank, as many with counts of their own, or for all of
 * them or this rank one of the counts. */
enum layout { ONE, EACH, LISTED, SUM, OWN };

static const struct {
    enum who who[2];
    enum layout layout[2];
} sides[PMPI_KIND_COUNT] = {
    [PMPI_ALLGATHER] = {{ALL, ALL}, {ONE, EACH}},
    [PMPI_ALLGATHERV] = {{ALL, ALL}, {ONE, LISTED}},
    [PMPI_ALLREDUCE] = {{ALL, ALL}, {ONE, ONE}},
    [PMPI_ALLTOALL] = {{ALL, ALL}, {EACH, EACH}},
    [PMPI_ALLTOALLV] = {{ALL, ALL}, {LISTED, LISTED}},
    [PMPI_ALLTOALLW] = {{ALL, ALL}, {LISTED, LISTED}},
    [PMPI_BARRIER] = {{NOBODY, NOBODY}, {ONE, ONE}},
    [PMPI_BCAST] = {{NOBODY, ALL}, {ONE, ONE}},
    [PMPI_EXSCAN] = {{ALL, ALL}, {ONE, ONE}},
    [PMPI_GATHER] = {{ALL, ROOT}, {ONE, EACH}},
    [PMPI_GATHERV] = {{ALL, ROOT}, {ONE, LISTED}},
    [PMPI_REDUCE] = {{ALL, ROOT}, {ONE, ONE}},
    [PMPI_REDUCE_SCATTER] = {{ALL, ALL}, {SUM, OWN}},
    [PMPI_REDUCE_SCATTER_BLOCK] = {{ALL, ALL}, {EACH, ONE}},
    [PMPI_SCAN] = {{ALL, ALL}, {ONE, ONE}},
    [PMPI_SCATTER] = {{ROOT, ALL}, {EACH, ONE}},
    [PMPI_SCATTERV] = {{ROOT, ALL}, {LISTED, ONE}},
};

static int is_used(const struct pmpi_call *call, int side)
{
    enum who who = sides[call->kind].who[side];
    return who == ALL || (who == ROOT && call->state->rank == call->root);
}

int pmpi_wire_has_types(const struct pmpi_call *call, int side)
{
    const struct pmpi_part *part = side == 0 ? &call->send : &call->recv;
    return is_used(call, side) && call->kind != PMPI_BARRIER && part->data != MPI_IN_PLACE;
}

static struct pmpi_part *part_of(struct pmpi_call *call, int side)
{
    return side == 0 ? &call->send : &call->recv;
}

static struct pmpi_wire *wire_of(struct pmpi_call *call, int side)
{
    return side == 0 ? &call->sent : &call->received;
}

/* ---- lists ---- */

static MPI_Count count_at(const struct pmpi_call *call, const struct pmpi_part *part, int rank)
{
    return call->large ? ((const MPI_Count *)part->counts)[rank]
                       : (MPI_Count)((const int *)part->counts)[rank];
}

int pmpi_wire_is_block(const struct pmpi_call *call, int side, int rank)
{
    const struct pmpi_part *part = side == 0 ? &call->send : &call->recv;
    return !part->types || count_at(call, part, rank) != 0;
}

/* Bytes from `data` to the block of a rank. */
static ptrdiff_t place_at(const struct pmpi_call *call, const struct pmpi_part *part,
                          const struct pmpi_type *type, int rank)
{
    ptrdiff_t place = call->large ? (ptrdiff_t)((const MPI_Aint *)part->places)[rank]
                                  : (ptrdiff_t)((const int *)part->places)[rank];
    return call->kind == PMPI_ALLTOALLW ? place : place * type->extent;
}

/* The datatype of a rank's block, which has been found before. */
static struct pmpi_type *type_at(const struct pmpi_part *part, int rank)
{
    return pmpi_type_find(part->types ? part->types[rank] : part->type);
}

static int is_packed(const struct pmpi_call *call, const struct pmpi_type *type)
{
    return call->reduction ? call->reduction->packed : !type->dense;
}

/* ---- packing ---- */

/* What goes over one side in packed form, to it or (`pack` 0) from it: all blocks of a list, or the
 * first `most` elements. */
static int copy_side(struct pmpi_call *call, int side, int pack, size_t most)
{
    struct pmpi_part *part = part_of(call, side);
    char *packed = wire_of(call, side)->packed;
    int listed = sides[call->kind].layout[side] == LISTED;
    for (int r = 0; r < (listed ? call->state->size : 1); r++) {
        size_t count = listed ? (size_t)count_at(call, part, r) : most;
        if (count == 0)
            continue;
        struct pmpi_type *type = type_at(part, r);
        char *data = (char *)part->data + (listed ? place_at(call, part, type, r) : 0);
        int code = pack ? pmpi_type_pack(type, data, count, packed)
                        : pmpi_type_unpack(type, packed, data, count);
        if (code != MPI_SUCCESS)
            return code;
        packed += count * type->size;
    }
    return MPI_SUCCESS;
}

/* Elements of a side that is not listed: of all of its blocks. */
static size_t elements(const struct pmpi_call *call, const struct pmpi_part *part,
                       enum layout layout)
{
    size_t total = 0;
    if (layout == ONE)
        return (size_t)part->count;
    if (layout == EACH)
        return (size_t)part->count * (size_t)call->state->size;
    if (layout == OWN)
        return (size_t)count_at(call, part, call->state->rank);
    for (int r = 0; r < call->state->size; r++)
        total += (size_t)count_at(call, part, r);
    return total;
}

/* What a receive buffer has before the call is needed: it is the root's of a broadcast, or stands
 * for what is sent. All that it has room for. */
static int is_loaded(const struct pmpi_call *call, int side)
{
    return side == 0 || (call->kind == PMPI_BCAST && call->state->rank == call->root) ||
           call->send.data == MPI_IN_PLACE;
}

/* What a side has when the call begins: a receive buffer that stands for what is sent has all of
 * that. */
static enum layout loaded(const struct pmpi_call *call, int side)
{
    int stands = side == 1 && call->send.data == MPI_IN_PLACE;
    return stands && call->reduction ? sides[call->kind].layout[0] : sides[call->kind].layout[side];
}

static int pack_side(struct pmpi_call *call, int side, size_t bytes)
{
    struct pmpi_wire *wire = wire_of(call, side);
    struct pmpi_part *part = part_of(call, side);
    enum layout layout = loaded(call, side);
    if (!wire->packed)
        wire->packed = malloc(bytes);
    wire->data = wire->packed;
    if (!wire->packed)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu packed bytes", bytes);
    if (!is_loaded(call, side))
        return WEFT_OK;
    size_t most = layout == LISTED ? 0 : elements(call, part, layout);
    return copy_side(call, side, 1, most) == MPI_SUCCESS
               ? WEFT_OK
               : weft_error_set(WEFT_ERR_INVALID, "MPI_Pack failed");
}

/* ---- opening ---- */

static int refuse(enum pmpi_reason *reason)
{
    *reason = PMPI_ARGUMENT;
    return WEFT_OK;
}

/* Rank 0 receives nothing in an exclusive scan, and may have no buffer. */
static int is_nothing(const struct pmpi_call *call, int side)
{
    return call->kind == PMPI_EXSCAN && side == 1 && call->state->rank == 0 &&
           call->send.data != MPI_IN_PLACE && !call->recv.data;
}

static int is_lost(const struct pmpi_type *type)
{
    return type == &pmpi_type_lost;
}

static int no_memory(void)
{
    return weft_error_set(WEFT_ERR_MEMORY, "no memory for what is known of a datatype");
}

static int by_place(const void *a, const void *b)
{
    const size_t *left = a, *right = b;
    return left[0] < right[0] ? -1 : left[0] > right[0];
}

/* Whether blocks lie in each other, which MPI leaves to the program where they are received. */
static int do_overlap(const struct pmpi_call *call, const size_t *counts, const size_t *places)
{
    int overlap = 0, sorted = 1, size = call->state->size;
    size_t end = 0;
    for (int r = 0; r < size && sorted; r++) {
        sorted = counts[r] == 0 || places[r] >= end;
        end = counts[r] == 0 ? end : places[r] + counts[r];
    }
    if (sorted)
        return 0;
    size_t(*blocks)[2] = (void *)(call->lists + 4 * (size_t)size);
    for (int r = 0; r < size; r++) {
        blocks[r][0] = counts[r] > 0 ? places[r] : SIZE_MAX;
        blocks[r][1] = counts[r];
    }
    qsort(blocks, (size_t)size, sizeof *blocks, by_place);
    for (int r = 1; r < size; r++)
        overlap |= blocks[r][1] > 0 && blocks[r][0] < blocks[r - 1][0] + blocks[r - 1][1];
    return overlap;
}

/* Blocks with counts of their own: bytes of each, and where they lie. */
static int open_listed(struct pmpi_call *call, int side, enum pmpi_reason *reason)
{
    struct pmpi_part *part = part_of(call, side);
    struct pmpi_wire *wire = wire_of(call, side);
    int size = call->state->size, packs = 0, any = 0;
    size_t *counts = call->lists + (size_t)(2 * side) * (size_t)size;
    size_t *places = counts + size, total = 0;
    ptrdiff_t lowest = 0;
    if (!part->counts || !part->places)
        return refuse(reason);
    for (int r = 0; r < size; r++) {
        MPI_Count count = count_at(call, part, r);
        counts[r] = places[r] = 0;
        if (count == 0 && part->types) /* what its type is does not matter */
            continue;
        struct pmpi_type *type = type_at(part, r);
        if (!type || count < 0)
            return refuse(reason);
        if (is_lost(type))
            return no_memory();
        counts[r] = (size_t)count * type->size;
        packs |= counts[r] > 0 && !type->dense;
        total += counts[r];
        ptrdiff_t place = place_at(call, part, type, r);
        places[r] = counts[r] > 0 ? (size_t)place : 0;
        if (counts[r] > 0 && (!any || place < lowest))
            lowest = place;
        any |= counts[r] > 0;
    }
    call->bytes = total / (size_t)size;
    wire->counts = counts;
    for (int r = 0; r < size; r++)
        places[r] = counts[r] > 0 ? (size_t)((ptrdiff_t)places[r] - lowest) : 0;
    if (packs || (side == 1 && do_overlap(call, counts, places)))
        return pack_side(call, side, total);
    if (any && !part->data && lowest == 0)
        return refuse(reason);
    wire->data = (char *)part->data + lowest;
    wire->places = places;
    return WEFT_OK;
}

/* The counts of a reduce-scatter, in elements. */
static int open_counts(struct pmpi_call *call, int side, enum pmpi_reason *reason)
{
    struct pmpi_part *part = part_of(call, side);
    size_t *counts = call->lists;
    if (!part->counts)
        return refuse(reason);
    for (int r = 0; r < call->state->size; r++) {
        MPI_Count count = count_at(call, part, r);
        if (count < 0)
            return refuse(reason);
        counts[r] = (size_t)count;
    }
    wire_of(call, side)->counts = counts;
    return WEFT_OK;
}

static int open_plain(struct pmpi_call *call, int side, enum pmpi_reason *reason)
{
    struct pmpi_part *part = part_of(call, side);
    struct pmpi_wire *wire = wire_of(call, side);
    enum layout layout = sides[call->kind].layout[side];
    struct pmpi_type *type = pmpi_type_find(part->type);
    if (!type || part->count < 0)
        return refuse(reason);
    if (is_lost(type))
        return no_memory();
    if (layout == SUM || layout == OWN) {
        open_counts(call, side, reason);
        if (*reason != PMPI_SERVED)
            return WEFT_OK;
    }
    size_t count = elements(call, part, layout), has = elements(call, part, loaded(call, side));
    wire->data = part->data;
    wire->count = (size_t)part->count * (call->reduction ? 1 : type->size);
    if (layout != SUM && layout != OWN) /* else it is that of pmpi_wire_size() */
        call->bytes = (size_t)part->count * type->size;
    if (has == 0 || type->size == 0)
        return WEFT_OK;
    if (!is_packed(call, type) && !is_nothing(call, side))
        return part->data || count == 0 ? WEFT_OK : refuse(reason);
    return pack_side(call, side, has * type->size);
}

static int open_side(struct pmpi_call *call, int side, enum pmpi_reason *reason)
{
    struct pmpi_part *part = part_of(call, side);
    if (!is_used(call, side))
        return WEFT_OK;
    if (part->data == MPI_IN_PLACE) {
        wire_of(call, side)->data = WEFT_IN_PLACE;
        return WEFT_OK;
    }
    return sides[call->kind].layout[side] == LISTED ? open_listed(call, side, reason)
                                                    : open_plain(call, side, reason);
}

/* On all ranks alike: a reduce-scatter is empty where all of its blocks are. */
static int is_empty(const struct pmpi_call *call)
{
    return call->kind == PMPI_REDUCE_SCATTER ? elements(call, &call->recv, SUM) == 0
                                             : call->bytes == 0;
}

/* Where all ranks have one count, and both sides are of one type. */
static int is_alike(const struct pmpi_call *call)
{
    return call->send.type == call->recv.type && call->send.count == call->recv.count;
}

/* Two buffers that are one, as MPI looks for them. Those of exchanges with counts of their own may
 * begin at one place. */
static int is_aliased(const struct pmpi_call *call)
{
    const char *recv = call->recv.data;
    if (!is_used(call, 0) || !is_used(call, 1) || call->send.data == MPI_IN_PLACE ||
        call->recv.data == MPI_IN_PLACE || is_empty(call))
        return 0;
    switch (call->kind) {
    case PMPI_ALLGATHER:
    case PMPI_GATHER:
        recv += (ptrdiff_t)call->received.count * call->state->rank;
        return is_alike(call) && !call->received.packed && call->send.data == recv;
    case PMPI_ALLTOALL:
        return is_alike(call) && call->send.data == recv;
    case PMPI_ALLTOALLV:
    case PMPI_ALLTOALLW:
    case PMPI_ALLGATHERV:
    case PMPI_GATHERV:
    case PMPI_SCATTER:
    case PMPI_SCATTERV:
        return 0;
    default:
        return call->send.data == recv;
    }
}

/* Where both sides are one of MPI's parameters, the root's in place has no other. */
static int settle_reduction(struct pmpi_call *call, enum pmpi_reason *reason)
{
    struct pmpi_type *type = pmpi_type_find(call->recv.type);
    if (!type)
        return refuse(reason);
    if (is_lost(type))
        return no_memory();
    int status = pmpi_reduction_find(call->op, type, &call->reduction);
    return status != WEFT_OK || call->reduction ? status : refuse(reason);
}

static int is_rooted(enum pmpi_kind kind)
{
    return kind == PMPI_BCAST || kind == PMPI_GATHER || kind == PMPI_GATHERV ||
           kind == PMPI_REDUCE || kind == PMPI_SCATTER || kind == PMPI_SCATTERV;
}

int pmpi_is_reduction(enum pmpi_kind kind)
{
    return kind == PMPI_ALLREDUCE || kind == PMPI_REDUCE || kind == PMPI_REDUCE_SCATTER ||
           kind == PMPI_REDUCE_SCATTER_BLOCK || kind == PMPI_SCAN || kind == PMPI_EXSCAN;
}

/* MPI_IN_PLACE where it has no meaning, in a buffer that is looked at. */
static int is_misplaced(const struct pmpi_call *call)
{
    int stands = call->kind == PMPI_SCATTER || call->kind == PMPI_SCATTERV; /* the side it is for */
    int may = !is_rooted(call->kind) || call->state->rank == call->root;
    for (int side = 0; side < 2; side++) {
        const struct pmpi_part *part = side == 0 ? &call->send : &call->recv;
        if (part->data == MPI_IN_PLACE && is_used(call, side) && !(may && side == stands))
            return 1;
    }
    return 0;
}

int pmpi_wire_open(struct pmpi_call *call, enum pmpi_reason *reason)
{
    int status = WEFT_OK;
    *reason = PMPI_SERVED;
    if (is_rooted(call->kind) && (call->root < 0 || call->root >= call->state->size))
        return refuse(reason);
    if (is_misplaced(call))
        return refuse(reason);
    if (pmpi_is_reduction(call->kind))
        status = settle_reduction(call, reason);
    for (int side = 0; side < 2 && status == WEFT_OK && *reason == PMPI_SERVED; side++)
        status = open_side(call, side, reason);
    if (status == WEFT_OK && *reason == PMPI_SERVED && is_aliased(call))
        *reason = PMPI_ARGUMENT;
    if (*reason != PMPI_SERVED)
        pmpi_wire_close(call, WEFT_ERR_CANCELLED);
    return status;
}

/* ---- sizes ---- */

/* The side that says how large a call is on all ranks alike. -1: none does. */
static int telling_side(const struct pmpi_call *call)
{
    switch (call->kind) {
    case PMPI_ALLTOALLV:
    case PMPI_ALLTOALLW:
    case PMPI_GATHERV:
    case PMPI_SCATTERV:
    case PMPI_BARRIER:
        return -1;
    case PMPI_GATHER:
        return call->state->rank == call->root;
    case PMPI_SCATTER:
        return call->state->rank != call->root;
    default:
        return 1;
    }
}

int pmpi_wire_size(const struct pmpi_call *call, size_t *bytes)
{
    int side = telling_side(call);
    *bytes = 0;
    if (side < 0)
        return 1;
    const struct pmpi_part *part = side == 0 ? &call->send : &call->recv;
    const struct pmpi_type *type = pmpi_type_find(part->type);
    MPI_Count count = part->count, size, ranks = 1;
    if (!type || (call->kind == PMPI_ALLGATHERV && !part->counts) ||
        (call->kind == PMPI_REDUCE_SCATTER && !part->counts))
        return 0;
    if (call->kind == PMPI_ALLGATHERV || call->kind == PMPI_REDUCE_SCATTER) {
        count = 0;
        for (int r = 0; r < call->state->size; r++)
            count += count_at(call, part, r);
        ranks = call->state->size;
    }
    size = (MPI_Count)type->size;
    if (is_lost(type) && PMPI_Type_size_x(part->type, &size) != MPI_SUCCESS)
        return 0;
    *bytes = count > 0 ? (size_t)(count * size / ranks) : 0;
    return 1;
}

/* ---- closing ---- */

int pmpi_wire_close(struct pmpi_call *call, int status)
{
    struct pmpi_part *part = &call->recv;
    enum layout layout = sides[call->kind].layout[1];
    int keeps = (call->kind == PMPI_BCAST && call->state->rank == call->root) ||
                (call->kind == PMPI_EXSCAN && call->state->rank == 0);
    if (status == WEFT_OK && call->received.packed && !keeps &&
        copy_side(call, 1, 0, layout == LISTED ? 0 : elements(call, part, layout)) != MPI_SUCCESS)
        status = weft_error_set(WEFT_ERR_INVALID, "MPI_Unpack failed");
    if (call->form != PMPI_PERSISTENT) {
        free(call->sent.packed);
        free(call->received.packed);
    }
    return status;
}
