/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a run works on: memory for its slots, contiguous or in pieces, numbers for its values, ranks
 * of the context for those of its plan. Only lists allocate, when they are bound.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/context/context.h"
#include "runtime/engine/ordered.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void weft__list_free(struct weft__list *list)
{
    if (!list)
        return;
    weft__free(list->pieces);
    weft__free(list->start);
    weft__free(list);
}

/* What all binding of memory checks. An input slot takes what may be written as well. */
static int check_bind(const struct weft_run *run, weft_slot_t slot, weft_dtype_t dtype, int reads,
                      const char *who)
{
    const struct weft__slot *info;

    WEFT__REQUIRE(run, "%s: argument `run` is NULL", who);
    WEFT__REQUIRE(slot >= 0 && (uint32_t)slot < run->plan->slot_count,
                  "%s: argument `slot` is %d, expected 0..%d of plan `%s`", who, slot,
                  (int)run->plan->slot_count - 1, run->plan->name);
    info = &run->plan->slots[slot];
    WEFT__REQUIRE(info->kind != WEFT_SLOT_SCRATCH,
                  "%s: slot `%s` is scratch, which belongs to the run", who, info->name);
    WEFT__REQUIRE(
        !reads || info->kind == WEFT_SLOT_INPUT,
        "%s: slot `%s` is %s, expected an input slot: what is written needs weft_run_bind()", who,
        info->name, info->kind == WEFT_SLOT_OUTPUT ? "an output" : "an inout slot");
    if (dtype != info->dtype) {
        char given[24];
        const char *name = weft_dtype_name(dtype);

        snprintf(given, sizeof given, "%s", name ? name : "none");
        return WEFT__INVALID("%s: argument `dtype` is %s (%d), expected %s as slot `%s` has", who,
                             given, (int)dtype, weft_dtype_name(info->dtype), info->name);
    }
    if (!weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` is active", who, run->plan->name);
    return WEFT_OK;
}

static int bind(struct weft_run *run, weft_slot_t slot, const void *data, size_t count,
                weft_dtype_t dtype, int reads, const char *who)
{
    int status = check_bind(run, slot, dtype, reads, who);
    const struct weft__slot *info;
    struct weft__binding *binding;
    int pinned = 0;

    if (status != WEFT_OK)
        return status;
    info = &run->plan->slots[slot];
    binding = &run->bindings[slot];
    WEFT__REQUIRE(count == info->count,
                  "%s: argument `count` is %zu, expected the %zu elements of slot `%s`", who, count,
                  info->count, info->name);
    WEFT__REQUIRE(data || count == 0 || run->engine->transport->no_payload,
                  "%s: argument `data` is NULL, but slot `%s` has %zu elements", who, info->name,
                  count);
    status = weft__device_check(who, run, slot, data, count * info->element, &pinned);
    if (status != WEFT_OK)
        return status;
    weft__list_free(binding->list);
    binding->list = NULL;
    binding->pinned = pinned;
    binding->data = (char *)(uintptr_t)data;
    binding->bound = 1;
    return WEFT_OK;
}

int weft_run_bind(struct weft_run *run, weft_slot_t slot, void *data, size_t count,
                  weft_dtype_t dtype)
{
    return bind(run, slot, data, count, dtype, 0, __func__);
}

int weft_run_bind_input(struct weft_run *run, weft_slot_t slot, const void *data, size_t count,
                        weft_dtype_t dtype)
{
    return bind(run, slot, data, count, dtype, 1, __func__);
}

static weft_slot_t find_slot(const struct weft_run *run, const char *slot, const char *who)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", who);
    WEFT__REQUIRE(slot, "%s: argument `slot` is NULL", who);
    return weft_plan_find_slot(run->plan, slot);
}

int weft_run_bind_name(struct weft_run *run, const char *slot, void *data, size_t count,
                       weft_dtype_t dtype)
{
    weft_slot_t number = find_slot(run, slot, __func__);

    return number < 0 ? number : bind(run, number, data, count, dtype, 0, __func__);
}

int weft_run_bind_input_name(struct weft_run *run, const char *slot, const void *data, size_t count,
                             weft_dtype_t dtype)
{
    weft_slot_t number = find_slot(run, slot, __func__);

    return number < 0 ? number : bind(run, number, data, count, dtype, 1, __func__);
}

/* ---- pieces ---- */

/* Pieces of either kind: one of the two is not NULL, unless there are none. */
struct pieces {
    const struct weft_piece *written;
    const struct weft_input_piece *read;
    size_t count;
};

static struct weft_piece piece_at(const struct pieces *pieces, size_t index)
{
    if (pieces->written)
        return pieces->written[index];
    return (struct weft_piece){(void *)(uintptr_t)pieces->read[index].data,
                               pieces->read[index].count};
}

/* Room for the pieces of each compute argument on this slot. */
static int reserve_arguments(struct weft_run *run, weft_slot_t slot, size_t pieces)
{
    const struct weft_plan *plan = run->plan;

    for (uint32_t c = 0; c < plan->call_count; c++) {
        const struct weft__node *node = &plan->nodes[plan->calls[c].node];

        for (uint32_t i = 0; i < node->region_count; i++) {
            struct weft_piece **room = &run->argument_pieces[plan->calls[c].argument + i];
            struct weft_piece *more;

            if (plan->regions[node->regions + i].slot != (uint32_t)slot)
                continue;
            more = weft__realloc(*room, pieces + 1, sizeof **room);
            if (!more)
                return -1;
            *room = more;
        }
    }
    return 0;
}

static int check_pieces(const struct weft__slot *slot, const struct pieces *pieces, const char *who)
{
    size_t total = 0;

    for (size_t i = 0; i < pieces->count; i++) {
        struct weft_piece piece = piece_at(pieces, i);

        WEFT__REQUIRE(piece.data || piece.count == 0,
                      "%s: pieces[%zu].data is NULL, but it has %zu elements", who, i, piece.count);
        WEFT__REQUIRE(piece.count <= slot->count - total,
                      "%s: pieces 0..%zu have more elements than the %zu of slot `%s`", who, i,
                      slot->count, slot->name);
        total += piece.count;
    }
    WEFT__REQUIRE(total == slot->count,
                  "%s: the pieces have %zu elements, expected the %zu of slot `%s`", who, total,
                  slot->count, slot->name);
    return WEFT_OK;
}

/* An empty piece holds no element of any region: it is left out. */
static struct weft__list *make_list(const struct pieces *pieces, size_t element)
{
    struct weft__list *list = weft__calloc(1, sizeof *list);
    size_t at = 0;

    if (!list)
        return NULL;
    list->pieces = weft__malloc(pieces->count, sizeof *list->pieces);
    list->start = weft__malloc(pieces->count + 1, sizeof *list->start);
    if (!list->pieces || !list->start) {
        weft__list_free(list);
        return NULL;
    }
    for (size_t i = 0; i < pieces->count; i++) {
        struct weft_piece piece = piece_at(pieces, i);

        if (piece.count == 0)
            continue;
        list->pieces[list->count] = piece;
        list->start[list->count++] = at;
        at += piece.count * element;
    }
    list->start[list->count] = at;
    return list;
}

static int bind_list(struct weft_run *run, weft_slot_t slot, const struct pieces *pieces,
                     weft_dtype_t dtype, int reads, const char *who)
{
    int status = check_bind(run, slot, dtype, reads, who);
    struct weft__list *list;
    int pinned = 1;

    if (status != WEFT_OK)
        return status;
    WEFT__REQUIRE(pieces->written || pieces->read || pieces->count == 0,
                  "%s: argument `pieces` is NULL, but `piece_count` is %zu", who, pieces->count);
    status = check_pieces(&run->plan->slots[slot], pieces, who);
    if (status != WEFT_OK)
        return status;
    if (pieces->count == 1)
        return bind(run, slot, piece_at(pieces, 0).data, piece_at(pieces, 0).count, dtype, reads,
                    who);
    for (size_t i = 0; i < pieces->count && status == WEFT_OK; i++) {
        struct weft_piece piece = piece_at(pieces, i);
        int own = 0;

        status = weft__device_check(who, run, slot, piece.data,
                                    piece.count * weft_dtype_size(dtype), &own);
        pinned &= own || piece.count == 0;
    }
    if (status == WEFT_OK)
        status = weft__ordered_reserve(run, (uint32_t)slot);
    if (status != WEFT_OK)
        return status;
    list = make_list(pieces, weft_dtype_size(dtype));
    if (!list || reserve_arguments(run, slot, pieces->count)) {
        weft__list_free(list);
        return weft__error_memory(who);
    }
    weft__list_free(run->bindings[slot].list);
    run->bindings[slot] = (struct weft__binding){NULL, list, 1, pinned};
    return WEFT_OK;
}

int weft_run_bind_list(struct weft_run *run, weft_slot_t slot, const struct weft_piece *pieces,
                       size_t piece_count, weft_dtype_t dtype)
{
    const struct pieces all = {.written = pieces, .count = piece_count};

    return bind_list(run, slot, &all, dtype, 0, __func__);
}

int weft_run_bind_input_list(struct weft_run *run, weft_slot_t slot,
                             const struct weft_input_piece *pieces, size_t piece_count,
                             weft_dtype_t dtype)
{
    const struct pieces all = {.read = pieces, .count = piece_count};

    return bind_list(run, slot, &all, dtype, 1, __func__);
}

/* ---- blocks ---- */

struct blocks {
    const void *data;
    const size_t *counts;
    const size_t *displacements; /* or NULL */
    size_t count;
    weft_dtype_t dtype;
};

/* A block that has elements. */
struct place {
    uintptr_t data; /* a number: where no payload is carried there need be no memory */
    size_t count;
    size_t index;
};

static int by_place(const void *a, const void *b)
{
    uintptr_t x = ((const struct place *)a)->data, y = ((const struct place *)b)->data;

    return (x > y) - (x < y);
}

/* Where the blocks lie, in their order; `places` has room for all. Returns how many have elements.
 */
static size_t place_blocks(const struct blocks *blocks, struct place *places)
{
    size_t element = weft_dtype_size(blocks->dtype), used = 0, end = 0;

    for (size_t i = 0; i < blocks->count; i++) {
        size_t at = blocks->displacements ? blocks->displacements[i] : end;

        if (blocks->counts[i] > 0)
            places[used++] =
                (struct place){(uintptr_t)blocks->data + at * element, blocks->counts[i], i};
        end += blocks->counts[i];
    }
    return used;
}

static int check_overlap(const struct blocks *blocks, struct place *places, size_t count,
                         const char *who)
{
    size_t element = weft_dtype_size(blocks->dtype);

    qsort(places, count, sizeof *places, by_place);
    for (size_t i = 1; i < count; i++) {
        const struct place *a = &places[i - 1], *b = &places[i];

        WEFT__REQUIRE(
            a->data + a->count * element <= b->data,
            "%s: displacements[%zu] is %zu, within block %zu, which has %zu elements from %zu "
            "on: expected blocks apart, since they are written",
            who, b->index, blocks->displacements[b->index], a->index, a->count,
            blocks->displacements[a->index]);
    }
    return WEFT_OK;
}

/* A slot that holds all of them. */
static int bind_together(struct weft_run *run, weft_slot_t slot, const struct blocks *blocks,
                         const struct place *places, size_t used, int reads, const char *who)
{
    size_t element = weft_dtype_size(blocks->dtype), pieces = 0;
    struct weft_piece *list = weft__malloc(used + 1, sizeof *list);

    if (!list)
        return weft__error_memory(who);
    for (size_t i = 0; i < used; i++) {
        struct weft_piece *last = pieces > 0 ? &list[pieces - 1] : NULL;

        if (last && (uintptr_t)last->data + last->count * element == places[i].data)
            last->count += places[i].count;
        else
            list[pieces++] = (struct weft_piece){(void *)places[i].data, places[i].count};
    }
    const struct pieces all = {.written = list, .count = pieces};
    int status = pieces == 1
                     ? bind(run, slot, list[0].data, list[0].count, blocks->dtype, reads, who)
                     : bind_list(run, slot, &all, blocks->dtype, reads, who);

    weft__free(list);
    return status;
}

/* Whether a slot is block number @index of those that are called by a stem. */
static int is_block(const char *name, const char *stem, size_t length, size_t index)
{
    char *end;

    return strncmp(name, stem, length) == 0 && name[length] == '.' &&
           strtoull(name + length + 1, &end, 10) == index && !*end;
}

/* A slot each, one behind the other. */
static int bind_each(struct weft_run *run, const char *stem, weft_slot_t first,
                     const struct blocks *blocks, const struct place *places, size_t used,
                     int reads, const char *who)
{
    const struct weft_plan *plan = run->plan;
    size_t length = strlen(stem), next = 0;
    int status = WEFT_OK;

    for (size_t i = 0; status == WEFT_OK && i < blocks->count; i++) {
        weft_slot_t slot = first + (weft_slot_t)i;
        const void *data = NULL;

        if ((size_t)slot >= plan->slot_count || !is_block(plan->slots[slot].name, stem, length, i))
            return weft__error(WEFT_ERR_NOT_FOUND,
                               "%s: argument `block_count` is %zu, but plan `%s` has the slots "
                               "%s.0 to %s.%zu",
                               who, blocks->count, plan->name, stem, stem, i - 1);
        if (next < used && places[next].index == i)
            data = (const void *)places[next++].data;
        status = bind(run, slot, data, blocks->counts[i], blocks->dtype, reads, who);
    }
    return status;
}

static int has_slot(const struct weft_plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->slot_count; i++)
        if (strcmp(plan->slots[i].name, name) == 0)
            return 1;
    return 0;
}

static int is_read(const struct weft_plan *plan, weft_slot_t slot)
{
    return slot >= 0 && (uint32_t)slot < plan->slot_count &&
           plan->slots[slot].kind == WEFT_SLOT_INPUT;
}

/* Blocks without memory, which is allowed where no payload is carried, lie nowhere. */
static int bind_blocks(struct weft_run *run, const char *slot, struct blocks *blocks, int reads,
                       const char *who)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", who);
    WEFT__REQUIRE(slot, "%s: argument `slot` is NULL", who);
    WEFT__REQUIRE(blocks->counts || blocks->count == 0,
                  "%s: argument `counts` is NULL, but `block_count` is %zu", who, blocks->count);
    size_t element = weft_dtype_size(blocks->dtype), all = 0;

    blocks->displacements = blocks->data ? blocks->displacements : NULL;
    WEFT__REQUIRE(element > 0, "%s: argument `dtype` is %d, expected one of weft_dtype_t", who,
                  (int)blocks->dtype);
    for (size_t i = 0; i < blocks->count; i++) {
        size_t most = PTRDIFF_MAX / element, count = blocks->counts[i];

        WEFT__REQUIRE(count <= most - all, "%s: counts[%zu] is %zu, expected at most %zu", who, i,
                      count, most - all);
        WEFT__REQUIRE(!blocks->displacements || count == 0 ||
                          blocks->displacements[i] <= most - count,
                      "%s: displacements[%zu] is %zu, expected at most %zu", who, i,
                      blocks->displacements[i], most - count);
        all += blocks->counts[i];
    }
    WEFT__REQUIRE(blocks->data || all == 0 || run->engine->transport->no_payload,
                  "%s: argument `data` is NULL, but the blocks have %zu elements", who, all);
    int together = has_slot(run->plan, slot);
    char name[128];

    snprintf(name, sizeof name, together ? "%s" : "%s.0", slot);
    weft_slot_t first = weft_plan_find_slot(run->plan, name);
    struct place *places = first < 0 ? NULL : weft__malloc(2 * blocks->count + 1, sizeof *places);

    if (!places)
        return first < 0 ? first : weft__error_memory(who);
    size_t used = place_blocks(blocks, places);
    int status = WEFT_OK;

    if (blocks->displacements && !is_read(run->plan, first)) {
        memcpy(places + used, places, used * sizeof *places);
        status = check_overlap(blocks, places + used, used, who);
    }
    if (status == WEFT_OK)
        status = (together ? bind_together(run, first, blocks, places, used, reads, who)
                           : bind_each(run, slot, first, blocks, places, used, reads, who));
    weft__free(places);
    return status;
}

int weft_run_bind_blocks(struct weft_run *run, const char *slot, void *data, const size_t *counts,
                         const size_t *displacements, size_t block_count, weft_dtype_t dtype)
{
    struct blocks blocks = {data, counts, displacements, block_count, dtype};

    return bind_blocks(run, slot, &blocks, 0, __func__);
}

int weft_run_bind_input_blocks(struct weft_run *run, const char *slot, const void *data,
                               const size_t *counts, const size_t *displacements,
                               size_t block_count, weft_dtype_t dtype)
{
    struct blocks blocks = {data, counts, displacements, block_count, dtype};

    return bind_blocks(run, slot, &blocks, 1, __func__);
}

/* ---- values, ranks, deadlines ---- */

int weft_run_bind_value(struct weft_run *run, weft_value_t value, uint64_t number)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    WEFT__REQUIRE(value >= 1 && (uint32_t)value <= run->plan->value_count,
                  "%s: argument `value` is %d, expected 1..%u of plan `%s`", __func__, value,
                  run->plan->value_count, run->plan->name);
    const struct weft__plan_value *info = &run->plan->values[value - 1];
    WEFT__REQUIRE(!info->produced, "%s: value `%s` is produced by a node", __func__, info->name);
    WEFT__REQUIRE(number <= info->max, "%s: argument `number` is %llu, expected 0..%llu", __func__,
                  (unsigned long long)number, (unsigned long long)info->max);
    if (!weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` is active", __func__,
                           run->plan->name);
    run->values[value - 1] = number;
    return WEFT_OK;
}

/* Two peers may be the same rank (the neighbours in a ring of two) as long as no two messages get
 * the same peer and tag. Nothing may be allocated here, so it is looked up pair by pair; such peers
 * are rare. */
static int check_same_peer(const char *who, const struct weft_plan *plan, int32_t one, int32_t two,
                           int rank)
{
    for (uint32_t a = 0; a < plan->node_count; a++) {
        const struct weft__node *first = &plan->nodes[a];
        if ((first->kind != WEFT_NODE_SEND && first->kind != WEFT_NODE_RECV) || first->peer != one)
            continue;
        for (uint32_t b = 0; b < plan->node_count; b++) {
            const struct weft__node *second = &plan->nodes[b];
            WEFT__REQUIRE(
                second->kind != first->kind || second->peer != two || second->tag != first->tag,
                "%s: ranks[%d] and ranks[%d] are both %d, and nodes %u and %u "
                "of plan `%s` could not be told apart: tag %u",
                who, plan->peers[one], plan->peers[two], rank, a, b, plan->name, first->tag);
        }
    }
    return WEFT_OK;
}

static int check_apart(const char *who, const struct weft_plan *plan, const int *ranks)
{
    for (uint32_t i = 0; i < plan->peer_count; i++) {
        int rank = ranks[plan->peers[i]];
        for (uint32_t j = i + 1; rank != WEFT_PEER_NONE && j < plan->peer_count; j++) {
            if (ranks[plan->peers[j]] != rank)
                continue;
            int status = check_same_peer(who, plan, (int32_t)i, (int32_t)j, rank);
            if (status != WEFT_OK)
                return status;
        }
    }
    return WEFT_OK;
}

int weft_run_bind_peers(struct weft_run *run, const int *ranks)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    const struct weft_plan *plan = run->plan;
    const struct weft__transport *transport = run->engine->transport;
    if (!weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` is active", __func__, plan->name);
    if (!ranks) {
        run->peers = plan->peers;
        return WEFT_OK;
    }
    if (weft__ordered_is_fixed(run))
        return weft__error(WEFT_ERR_STATE,
                           "%s: the messages of the run of `%s` go over NCCL to the ranks that its "
                           "plan names: expected one of WEFT_NCCL_AGREED",
                           __func__, plan->name);
    for (int i = 0; i < plan->size; i++)
        WEFT__REQUIRE(ranks[i] == WEFT_PEER_NONE || (ranks[i] >= 0 && ranks[i] < transport->size),
                      "%s: ranks[%d] is %d, expected 0..%d or WEFT_PEER_NONE", __func__, i,
                      ranks[i], transport->size - 1);
    WEFT__REQUIRE(ranks[plan->rank] == transport->rank,
                  "%s: ranks[%d] is %d, expected the own rank %d", __func__, plan->rank,
                  ranks[plan->rank], transport->rank);
    int status = check_apart(__func__, plan, ranks);
    if (status != WEFT_OK)
        return status;
    int32_t *bound = run->bound_peers;
    for (uint32_t i = 0; i < plan->peer_count; i++)
        bound[i] = ranks[plan->peers[i]];
    run->peers = bound;
    return WEFT_OK;
}

int weft_run_set_deadline(struct weft_run *run, uint64_t deadline_ns)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    if (!weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` is active", __func__,
                           run->plan->name);
    int status = weft_sized_time(__func__, "deadline_ns", deadline_ns, WEFT_NEVER);
    if (status != WEFT_OK)
        return status;
    run->deadline_ns = deadline_ns == WEFT_NEVER ? 0 : deadline_ns;
    return WEFT_OK;
}

int weft_run_set_ended(struct weft_run *run, weft_ended_fn ended, void *user)
{
    WEFT__REQUIRE(run, "%s: argument `run` is NULL", __func__);
    if (run->series || !weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` %s", __func__, run->plan->name,
                           run->series ? "belongs to a series" : "is active");
    run->ended = ended;
    run->user = user;
    return WEFT_OK;
}
