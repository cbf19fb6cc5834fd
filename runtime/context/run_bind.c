/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a run works on: memory for its slots, contiguous or in pieces, numbers for its values, ranks
 * of the context for those of its plan. Only lists allocate, when they are bound.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/context/context.h"
#include <string.h>

#define REQUIRE(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return WEFT__INVALID(__VA_ARGS__);                                                     \
    } while (0)

void weft__list_free(struct weft__list *list)
{
    if (!list)
        return;
    weft__free(list->pieces);
    weft__free(list->start);
    weft__free(list);
}

static int check_bind(const struct weft_run *run, weft_slot_t slot, const char *function)
{
    REQUIRE(run, "%s: argument `run` is NULL", function);
    REQUIRE(slot >= 0 && (uint32_t)slot < run->plan->slot_count,
            "%s: argument `slot` is %d, expected 0..%d of plan `%s`", function, slot,
            (int)run->plan->slot_count - 1, run->plan->name);
    REQUIRE(run->plan->slots[slot].kind != WEFT_SLOT_SCRATCH,
            "%s: slot `%s` is scratch, which belongs to the run", function,
            run->plan->slots[slot].name);
    if (!weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` is active", function,
                           run->plan->name);
    return WEFT_OK;
}

int weft_run_bind(struct weft_run *run, weft_slot_t slot, const void *data)
{
    int status = check_bind(run, slot, "weft_run_bind");
    if (status != WEFT_OK)
        return status;
    REQUIRE(data || run->plan->slots[slot].count == 0 || run->engine->transport->no_payload,
            "weft_run_bind: argument `data` is NULL, but slot `%s` has %zu elements",
            run->plan->slots[slot].name, run->plan->slots[slot].count);
    struct weft__binding *binding = &run->bindings[slot];
    weft__list_free(binding->list);
    binding->list = NULL;
    binding->data = (char *)(uintptr_t)data;
    binding->bound = 1;
    return WEFT_OK;
}

int weft_run_bind_name(struct weft_run *run, const char *slot, const void *data)
{
    REQUIRE(run, "weft_run_bind_name: argument `run` is NULL");
    REQUIRE(slot, "weft_run_bind_name: argument `slot` is NULL");
    weft_slot_t number = weft_plan_find_slot(run->plan, slot);
    return number < 0 ? number : weft_run_bind(run, number, data);
}

/* Room for the pieces of each compute argument on this slot. */
static int reserve_arguments(struct weft_run *run, weft_slot_t slot, size_t pieces)
{
    const struct weft_plan *plan = run->plan;
    for (uint32_t c = 0; c < plan->call_count; c++) {
        const struct weft__node *node = &plan->nodes[plan->calls[c].node];
        for (uint32_t i = 0; i < node->region_count; i++) {
            if (plan->regions[node->regions + i].slot != (uint32_t)slot)
                continue;
            struct weft_piece **room = &run->argument_pieces[plan->calls[c].argument + i];
            struct weft_piece *more = weft__realloc(*room, pieces + 1, sizeof **room);
            if (!more)
                return weft__error_memory("weft_run_bind_list");
            *room = more;
        }
    }
    return WEFT_OK;
}

int weft_run_bind_list(struct weft_run *run, weft_slot_t slot, const struct weft_piece *pieces,
                       size_t piece_count)
{
    int status = check_bind(run, slot, "weft_run_bind_list");
    if (status != WEFT_OK)
        return status;
    REQUIRE(pieces || piece_count == 0, "weft_run_bind_list: argument `pieces` is NULL");
    const struct weft__slot *info = &run->plan->slots[slot];
    size_t size = weft_dtype_size(info->dtype);
    size_t total = 0;
    for (size_t i = 0; i < piece_count; i++) {
        REQUIRE(pieces[i].data || pieces[i].count == 0,
                "weft_run_bind_list: pieces[%zu].data is NULL, but it has %zu elements", i,
                pieces[i].count);
        REQUIRE(pieces[i].count <= info->count - total,
                "weft_run_bind_list: pieces 0..%zu have more elements than the %zu of slot `%s`", i,
                info->count, info->name);
        total += pieces[i].count;
    }
    REQUIRE(total == info->count,
            "weft_run_bind_list: the pieces have %zu elements, expected the %zu of slot `%s`",
            total, info->count, info->name);
    if (piece_count == 1)
        return weft_run_bind(run, slot, pieces[0].data);
    struct weft__list *list = weft__calloc(1, sizeof *list);
    if (list) {
        list->pieces = weft__malloc(piece_count, sizeof *list->pieces);
        list->start = weft__malloc(piece_count + 1, sizeof *list->start);
    }
    if (!list || !list->pieces || !list->start ||
        reserve_arguments(run, slot, piece_count) != WEFT_OK) {
        weft__list_free(list);
        return weft__error_memory("weft_run_bind_list");
    }
    size_t at = 0;
    for (size_t i = 0; i < piece_count; i++) {
        if (pieces[i].count == 0)
            continue; /* an empty piece holds no element of any region */
        list->pieces[list->count] = pieces[i];
        list->start[list->count++] = at;
        at += pieces[i].count * size;
    }
    list->start[list->count] = at;
    weft__list_free(run->bindings[slot].list);
    run->bindings[slot] = (struct weft__binding){NULL, list, 1};
    return WEFT_OK;
}

int weft_run_bind_value(struct weft_run *run, weft_value_t value, uint64_t number)
{
    REQUIRE(run, "weft_run_bind_value: argument `run` is NULL");
    REQUIRE(value >= 1 && (uint32_t)value <= run->plan->value_count,
            "weft_run_bind_value: argument `value` is %d, expected 1..%u of plan `%s`", value,
            run->plan->value_count, run->plan->name);
    const struct weft__plan_value *info = &run->plan->values[value - 1];
    REQUIRE(!info->produced, "weft_run_bind_value: value `%s` is produced by a node", info->name);
    REQUIRE(number <= info->max, "weft_run_bind_value: argument `number` is %llu, expected 0..%llu",
            (unsigned long long)number, (unsigned long long)info->max);
    if (!weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "weft_run_bind_value: the run of `%s` is active",
                           run->plan->name);
    run->values[value - 1] = number;
    return WEFT_OK;
}

/* Two peers may be the same rank (the neighbours in a ring of two) as long as no two messages get
 * the same peer and tag. Nothing may be allocated here, so it is looked up pair by pair; such peers
 * are rare. */
static int check_same_peer(const struct weft_plan *plan, int32_t one, int32_t two, int rank)
{
    for (uint32_t a = 0; a < plan->node_count; a++) {
        const struct weft__node *first = &plan->nodes[a];
        if ((first->kind != WEFT_NODE_SEND && first->kind != WEFT_NODE_RECV) || first->peer != one)
            continue;
        for (uint32_t b = 0; b < plan->node_count; b++) {
            const struct weft__node *second = &plan->nodes[b];
            REQUIRE(second->kind != first->kind || second->peer != two || second->tag != first->tag,
                    "weft_run_bind_peers: ranks[%d] and ranks[%d] are both %d, and nodes %u and %u "
                    "of plan `%s` could not be told apart: tag %u",
                    plan->peers[one], plan->peers[two], rank, a, b, plan->name, first->tag);
        }
    }
    return WEFT_OK;
}

static int check_apart(const struct weft_plan *plan, const int *ranks)
{
    for (uint32_t i = 0; i < plan->peer_count; i++) {
        int rank = ranks[plan->peers[i]];
        for (uint32_t j = i + 1; rank != WEFT_PEER_NONE && j < plan->peer_count; j++) {
            if (ranks[plan->peers[j]] != rank)
                continue;
            int status = check_same_peer(plan, (int32_t)i, (int32_t)j, rank);
            if (status != WEFT_OK)
                return status;
        }
    }
    return WEFT_OK;
}

int weft_run_bind_peers(struct weft_run *run, const int *ranks)
{
    REQUIRE(run, "weft_run_bind_peers: argument `run` is NULL");
    const struct weft_plan *plan = run->plan;
    const struct weft__transport *transport = run->engine->transport;
    if (!weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "weft_run_bind_peers: the run of `%s` is active",
                           plan->name);
    if (!ranks) {
        run->peers = plan->peers;
        return WEFT_OK;
    }
    for (int i = 0; i < plan->size; i++)
        REQUIRE(ranks[i] == WEFT_PEER_NONE || (ranks[i] >= 0 && ranks[i] < transport->size),
                "weft_run_bind_peers: ranks[%d] is %d, expected 0..%d or WEFT_PEER_NONE", i,
                ranks[i], transport->size - 1);
    REQUIRE(ranks[plan->rank] == transport->rank,
            "weft_run_bind_peers: ranks[%d] is %d, expected the own rank %d", plan->rank,
            ranks[plan->rank], transport->rank);
    int status = check_apart(plan, ranks);
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
    REQUIRE(run, "weft_run_set_deadline: argument `run` is NULL");
    if (!weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "weft_run_set_deadline: the run of `%s` is active",
                           run->plan->name);
    run->deadline_ns = deadline_ns;
    return WEFT_OK;
}
