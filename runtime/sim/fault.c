/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why schedules do not end: for a node that never ended, the one thing that it waits for, and so on
 * until nothing is left or a node comes again. That cycle, if there is one, is the first thing
 * told.
 */
#include "runtime/sim/sim.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FAULTS = 16, CHAIN = 1000, SHOWN = 8, TEXT = 1024 };

struct place {
    uint32_t rank, node;
};

struct list {
    struct weft__sim *sim;
    struct weft_sim_fault *faults;
    size_t count, capacity;
};

static const struct weft__sim_node *node_at(const struct weft__sim *sim, struct place place)
{
    return &sim->ranks[place.rank].shape->node[place.node];
}

static int is_over(const struct weft__sim *sim, struct place place)
{
    return (sim->ranks[place.rank].state[place.node].left &
            (WEFT__SIM_ENDED | WEFT__SIM_RETIRED)) != 0;
}

/* "rank 2 node 5 (recv from rank 1, tag 0)" */
static void describe(const struct weft__sim *sim, struct place place, char text[TEXT])
{
    const struct weft__sim_rank *rank = &sim->ranks[place.rank];
    const struct weft__sim_node *node = node_at(sim, place);
    const char *kind = weft_node_kind_name((weft_node_kind_t)node->kind);
    int used = snprintf(text, TEXT, "rank %u node %u (%s", place.rank, place.node, kind);

    if (node->kind == WEFT_NODE_SEND)
        snprintf(text + used, (size_t)(TEXT - used), " to rank %u, tag %u)",
                 rank->send_peer[node->index], node->tag);
    else if (node->kind == WEFT_NODE_RECV)
        snprintf(text + used, (size_t)(TEXT - used), " from rank %u, tag %u)",
                 rank->recv_peer[node->index], node->tag);
    else
        snprintf(text + used, (size_t)(TEXT - used), ")");
}

/* The first predecessor that has not ended. */
static uint32_t predecessor(const struct weft__sim_rank *rank, uint32_t n)
{
    for (uint32_t p = 0; p < rank->shape->nodes; p++) {
        if (rank->state[p].left & (WEFT__SIM_ENDED | WEFT__SIM_RETIRED))
            continue;
        for (uint32_t e = rank->shape->node[p].first; e < rank->shape->node[p + 1].first; e++)
            if (rank->shape->after[e] == n)
                return p;
    }
    return WEFT__SIM_NONE;
}

/* What a node waits for. 1: `next` says; 0: for nothing that there is, `why` says. */
static int waits_for(struct weft__sim *sim, struct place place, struct place *next, char why[TEXT])
{
    const struct weft__sim_rank *rank = &sim->ranks[place.rank];
    const struct weft__sim_node *node = node_at(sim, place);
    uint32_t left = rank->state[place.node].left;

    *next = place;
    if (left & WEFT__SIM_COUNT) {
        next->node = predecessor(rank, place.node);
        snprintf(why, TEXT, "a predecessor");
        return next->node != WEFT__SIM_NONE;
    }
    if (node->kind == WEFT_NODE_RECV) {
        next->rank = rank->recv_peer[node->index];
        next->node = weft__sim_find_send(sim, next->rank, place.rank, node->tag, node->index);
        snprintf(why, TEXT, "a message that rank %u never sends", next->rank);
        return next->node != WEFT__SIM_NONE && !is_over(sim, *next);
    }
    if (node->kind == WEFT_NODE_SEND) {
        next->rank = rank->send_peer[node->index];
        next->node = weft__sim_find_recv(sim, next->rank, place.rank, node->tag, node->index);
        snprintf(why, TEXT, "a receive that rank %u never posts", next->rank);
        return next->node != WEFT__SIM_NONE && !is_over(sim, *next);
    }
    if (node->kind == WEFT_NODE_EVENT && node->tag != WEFT_CHANNEL_NONE)
        snprintf(why, TEXT, "a signal on channel %u, which never comes", node->tag);
    else
        snprintf(why, TEXT, "the application of rank %u, which does not fire it", place.rank);
    return 0;
}

static int add(struct list *list, struct place place, const char *text)
{
    char *copy = weft__strdup(text);

    if (!copy || weft__grow((void **)&list->faults, &list->capacity, list->count + 1,
                            sizeof *list->faults)) {
        weft__free(copy);
        return weft__error_memory("a simulation");
    }
    list->faults[list->count++] =
        (struct weft_sim_fault){.rank = (int)place.rank,
                                .node = place.node == WEFT__SIM_NONE ? -1 : (weft_node_t)place.node,
                                .text = copy};
    return WEFT_OK;
}

static int add_lost(struct list *list, const struct weft__sim_lost *lost)
{
    const struct weft__sim *sim = list->sim;
    struct place send = {lost->from, lost->send}, recv = {lost->to, lost->recv};
    char text[TEXT], one[TEXT];

    describe(sim, send, one);
    if (lost->recv == WEFT__SIM_NONE)
        snprintf(text, sizeof text, "match: %.300s: rank %u has no receive for it", one, lost->to);
    else
        snprintf(text, sizeof text,
                 "size: %.300s sends %" PRIu64 " bytes, but node %u of rank %u receives %s%" PRIu64,
                 one, node_at(sim, send)->bytes, lost->recv, lost->to,
                 node_at(sim, recv)->up_to ? "at most " : "", node_at(sim, recv)->bytes);
    return add(list, send, text);
}

/* "deadlock: A waits for B, which waits for ...". */
static int add_cycle(struct list *list, struct place start)
{
    struct place place = start, next;
    char text[TEXT], one[TEXT], why[TEXT];
    size_t used = 0, links = 0;

    do {
        describe(list->sim, place, one);
        if (links < SHOWN && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                     links ? ", which waits for " : "deadlock: ", one);
        links++;
        if (!waits_for(list->sim, place, &next, why))
            break;
        place = next;
    } while (place.rank != start.rank || place.node != start.node);
    if (used < sizeof text)
        snprintf(text + used, sizeof text - used,
                 links > SHOWN ? ", and so on over %zu more, back to the first"
                               : ", which waits for the first of these",
                 links - SHOWN);
    return add(list, start, text);
}

/* The cycle of waits that a node leads to, by two walkers of which one is twice as fast. */
static int find_cycle(struct weft__sim *sim, struct place start, struct place *on)
{
    struct place slow = start, fast = start;
    char why[TEXT];

    for (int i = 0; i < CHAIN; i++) {
        if (!waits_for(sim, fast, &fast, why) || !waits_for(sim, fast, &fast, why))
            return 0;
        waits_for(sim, slow, &slow, why);
        if (slow.rank == fast.rank && slow.node == fast.node) {
            *on = slow;
            return 1;
        }
    }
    return 0;
}

static int add_wait(struct list *list, struct place place)
{
    struct place next;
    char text[TEXT], one[TEXT], what[TEXT];
    int more = waits_for(list->sim, place, &next, what);

    describe(list->sim, place, one);
    if (more)
        describe(list->sim, next, what);
    snprintf(text, sizeof text, "deadlock: %.300s waits for %.300s%s", one, what,
             more ? ", which has not ended" : "");
    return add(list, place, text);
}

/* A node that waits although its predecessors have ended says more than one behind it. */
static int is_front(const struct weft__sim *sim, struct place place)
{
    return !is_over(sim, place) &&
           !(sim->ranks[place.rank].state[place.node].left & WEFT__SIM_COUNT);
}

static int add_stuck(struct list *list, int front)
{
    struct weft__sim *sim = list->sim;
    int status = WEFT_OK, cycle = 0;
    struct place place, on;

    for (place.rank = 0; place.rank < sim->size && list->count < FAULTS; place.rank++)
        for (place.node = 0;
             place.node < sim->ranks[place.rank].shape->nodes && list->count < FAULTS;
             place.node++) {
            if (front ? !is_front(sim, place) : is_over(sim, place))
                continue;
            if (!cycle && find_cycle(sim, place, &on)) {
                cycle = 1;
                status = add_cycle(list, on);
            }
            if (!status)
                status = add_wait(list, place);
            if (status)
                return status;
        }
    return WEFT_OK;
}

int weft__sim_faults(struct weft__sim *sim, struct weft_sim_fault **faults, size_t *count)
{
    struct list list = {.sim = sim};
    int status = WEFT_OK;

    for (size_t i = 0; i < sim->lost_count && i < WEFT__SIM_LOST && !status; i++)
        status = add_lost(&list, &sim->lost[i]);
    if (!status && sim->ended < sim->nodes)
        status = add_stuck(&list, 1);
    if (!status && sim->ended < sim->nodes && !list.count) /* a cycle of orders has no front */
        status = add_stuck(&list, 0);
    if (status)
        while (list.count)
            weft__free((void *)list.faults[--list.count].text);
    if (status) {
        weft__free(list.faults);
        list.faults = NULL;
    }
    *faults = list.faults;
    *count = list.count;
    return status;
}
