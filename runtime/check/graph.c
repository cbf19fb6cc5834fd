/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All nodes of all ranks in one numbering, with their successors; and the cycles in them. A cycle
 * is looked for in each rank alone: what goes around through messages is a deadlock.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/search.h"
#include "runtime/check/check.h"
#include "runtime/graph/lists.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LISTED = 64 };

/* ---- ranks ---- */

/* One fault for all ranks without a schedule; it lists the first of them. */
static int missing_ranks(struct weft__check *check, int missing)
{
    struct weft__fault fault;
    int listed = 0;

    weft__fault_begin(&fault, WEFT_FAULT_MATCH);
    weft__out_format(&fault.text, "of %d ranks, %d ha%s no schedule: rank%s ", check->size, missing,
                     missing == 1 ? "s" : "ve", missing == 1 ? "" : "s");
    for (int r = 0; listed < missing && listed < MOST_LISTED; r++) {
        if (check->schedules[r])
            continue;
        weft__fault_rank(&fault, r);
        weft__out_format(&fault.text, "%s%d", listed++ ? ", " : "", r);
    }
    if (listed < missing)
        weft__out_text(&fault.text, ", ...");
    return weft__fault_end(check, &fault);
}

static int unfit_rank(struct weft__check *check, const struct weft_schedule *schedule)
{
    struct weft__fault fault;

    weft__fault_begin(&fault, WEFT_FAULT_MATCH);
    weft__fault_rank(&fault, schedule->rank);
    if (schedule->size != check->size)
        weft__out_format(&fault.text,
                         "the schedule of rank %d is for %d ranks, expected %d as of the first "
                         "schedule; it is left out",
                         schedule->rank, schedule->size, check->size);
    else
        weft__out_format(&fault.text, "there are two schedules of rank %d; the second is left out",
                         schedule->rank);
    return weft__fault_end(check, &fault);
}

/* Puts every schedule at its rank. */
static int place(struct weft__check *check, const struct weft_schedule *const *schedules,
                 size_t count)
{
    int status;

    for (size_t i = 0; i < count; i++) {
        const struct weft_schedule *schedule = schedules[i];

        if (!schedule)
            return WEFT__INVALID("%s: argument `schedules[%zu]` is NULL, expected a schedule",
                                 check->who, i);
        if ((status = weft__schedule_enter(schedule, check->who)) != WEFT_OK)
            return status;
        if (schedule->size != check->size || check->schedules[schedule->rank]) {
            if (unfit_rank(check, schedule))
                return weft__error_memory("a check");
            continue;
        }
        check->schedules[schedule->rank] = schedule;
    }
    int missing = 0;

    for (int r = 0; r < check->size; r++)
        missing += !check->schedules[r];
    return missing && missing_ranks(check, missing) ? weft__error_memory("a check") : WEFT_OK;
}

/* ---- numbering ---- */

static int number(struct weft__check *check)
{
    uint64_t nodes = 0, edges = 0;

    for (int r = 0; r < check->size; r++) {
        const struct weft_schedule *s = check->schedules[r];

        check->base[r] = (uint32_t)nodes;
        nodes += s ? s->node_count : 0;
        edges += s ? s->edge_count : 0;
        check->slot_base[r + 1] = check->slot_base[r] + (s ? s->buffer_count : 0);
        check->value_base[r + 1] = check->value_base[r] + (s ? s->value_count : 0);
        check->report->summary.results += s ? s->result_count : 0;
        for (size_t i = 0; s && i < s->result_count; i++)
            check->synchronised |= s->results[i].kind == WEFT_RESULT_AFTER_START;
        if (nodes >= WEFT__CHECK_NONE || edges >= WEFT__CHECK_NONE ||
            check->value_base[r + 1] >= WEFT__CHECK_NONE - 1)
            return weft__error(WEFT_ERR_UNSUPPORTED,
                               "%s: the schedules of ranks 0..%d have %llu nodes and %llu "
                               "edges, at most %u fit",
                               check->who, r, (unsigned long long)nodes, (unsigned long long)edges,
                               WEFT__CHECK_NONE - 1);
    }
    check->base[check->size] = (uint32_t)nodes;
    check->nodes = (uint32_t)nodes;
    check->report->summary.nodes = nodes;
    check->rank_of = weft__malloc(nodes, sizeof *check->rank_of);
    check->partner = weft__malloc(nodes, sizeof *check->partner);
    check->mismatched = weft__calloc(nodes, sizeof *check->mismatched);
    check->waits = weft__calloc(nodes, sizeof *check->waits);
    check->first = weft__calloc(nodes + 1, sizeof *check->first);
    check->after = weft__malloc(edges, sizeof *check->after);
    return check->rank_of && check->partner && check->mismatched && check->waits && check->first &&
                   check->after
               ? WEFT_OK
               : weft__error_memory("a check");
}

static void note_ranks(struct weft__check *check)
{
    for (int r = 0; r < check->size; r++)
        for (uint32_t n = check->base[r]; n < check->base[r + 1]; n++) {
            check->rank_of[n] = r;
            check->partner[n] = WEFT__CHECK_NONE;
        }
}

static int compare_listeners(const void *left, const void *right)
{
    const struct weft__listener *a = left, *b = right;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->channel != b->channel)
        return a->channel < b->channel ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static int compare_members(const void *left, const void *right)
{
    const struct weft__member *a = left, *b = right;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->choice != b->choice)
        return a->choice < b->choice ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static int find_events(struct weft__check *check)
{
    size_t listeners = 0, members = 0;

    for (uint32_t n = 0; n < check->nodes; n++) {
        const struct weft__snode *node = weft__check_node(check, n);

        if (node->kind != WEFT_NODE_EVENT)
            continue;
        listeners += node->tag != WEFT_CHANNEL_NONE;
        members += node->choice >= 0;
    }
    check->listeners = weft__malloc(listeners, sizeof *check->listeners);
    check->members = weft__malloc(members, sizeof *check->members);
    check->choice_first = weft__calloc(members + 1, sizeof *check->choice_first);
    if (!check->listeners || !check->members || !check->choice_first)
        return weft__error_memory("a check");
    for (uint32_t n = 0; n < check->nodes; n++) {
        const struct weft__snode *node = weft__check_node(check, n);

        if (node->kind == WEFT_NODE_EVENT && node->tag != WEFT_CHANNEL_NONE)
            check->listeners[check->listener_count++] =
                (struct weft__listener){check->rank_of[n], node->tag, n, 0};
        if (node->kind == WEFT_NODE_EVENT && node->choice >= 0)
            check->members[check->member_count++] =
                (struct weft__member){check->rank_of[n], node->choice, n};
    }
    qsort(check->listeners, listeners, sizeof *check->listeners, compare_listeners);
    qsort(check->members, members, sizeof *check->members, compare_members);
    for (size_t i = 0; i < members; i++) {
        const struct weft__member *m = &check->members[i];

        if (!i || m->rank != m[-1].rank || m->choice != m[-1].choice)
            check->choice_first[check->choice_count++] = (uint32_t)i;
    }
    check->choice_first[check->choice_count] = (uint32_t)members;
    return WEFT_OK;
}

void weft__check_listeners(const struct weft__check *check, int rank, uint32_t channel,
                           size_t *first, size_t *last)
{
    struct weft__listener key = {rank, channel, 0, 0};
    size_t low = 0, high = check->listener_count;

    WEFT__SEARCH(low, high, middle, compare_listeners(&check->listeners[middle], &key) < 0)
    *first = low;
    while (low < check->listener_count && check->listeners[low].rank == rank &&
           check->listeners[low].channel == channel)
        low++;
    *last = low;
}

int weft__check_graph(struct weft__check *check, const struct weft_schedule *const *schedules,
                      size_t count)
{
    size_t ranks = (size_t)check->size;
    int status;

    check->schedules = weft__calloc(ranks, sizeof(struct weft_schedule *));
    check->base = weft__calloc(ranks + 1, sizeof *check->base);
    check->slot_base = weft__calloc(ranks + 1, sizeof *check->slot_base);
    check->value_base = weft__calloc(ranks + 1, sizeof *check->value_base);
    if (!check->schedules || !check->base || !check->slot_base || !check->value_base)
        return weft__error_memory("a check");
    if ((status = place(check, schedules, count)) != WEFT_OK || (status = number(check)) != WEFT_OK)
        return status;
    note_ranks(check);
    if (weft__lists_join(check->first, check->after, check->waits, check->schedules, ranks))
        return weft__error_memory("a check");
    return find_events(check);
}

void weft__check_graph_free(struct weft__check *check)
{
    weft__free(check->choice_first);
    weft__free(check->members);
    weft__free(check->listeners);
    weft__free(check->after);
    weft__free(check->first);
    weft__free(check->waits);
    weft__free(check->mismatched);
    weft__free(check->partner);
    weft__free(check->rank_of);
    weft__free(check->value_base);
    weft__free(check->slot_base);
    weft__free(check->base);
    weft__free((void *)check->schedules);
}

/* ---- cycles ---- */

struct search {
    uint32_t *waits; /* of the rank's nodes: 0 if it can start */
    uint32_t *queue;
    uint32_t *from; /* how a search came to a node */
    uint32_t *seen; /* the search that did: 1 + its first node */
};

/* The shortest way from a node that cannot start back to itself; its length, or 0. Breadth first,
 * not deeper than `most` - 1. Ends with queue[0] = start and `from` set. */
static uint32_t way_around(const struct weft__check *check, uint32_t base, struct search *search,
                           uint32_t start, uint32_t most)
{
    uint32_t head = 0, tail = 0, level_end, depth = 0;

    search->queue[tail++] = start;
    search->seen[start] = start + 1;
    level_end = tail;
    while (head < tail && depth + 1 < most) {
        uint32_t n = search->queue[head++];

        for (uint32_t e = check->first[base + n]; e < check->first[base + n + 1]; e++) {
            uint32_t next = check->after[e] - base;

            if (next == start) {
                search->from[start] = n;
                return depth + 1;
            }
            if (search->waits[next] && search->seen[next] != start + 1) {
                search->seen[next] = start + 1;
                search->from[next] = n;
                search->queue[tail++] = next;
            }
        }
        if (head == level_end) {
            level_end = tail;
            depth++;
        }
    }
    return 0;
}

static int cycle_fault(struct weft__check *check, int rank, const struct search *search,
                       uint32_t start, uint32_t length, uint32_t stuck)
{
    uint32_t base = check->base[rank];
    uint32_t *way = search->queue; /* the search is over */
    struct weft__fault fault;
    uint32_t n = search->from[start];

    for (uint32_t i = length - 1; i > 0; i--, n = search->from[n])
        way[i] = n;
    way[0] = start;
    weft__fault_begin(&fault, WEFT_FAULT_CYCLE);
    weft__out_format(&fault.text, "rank %d: ", rank);
    for (uint32_t i = 0; i < length; i++) {
        if (i < 16) {
            weft__fault_node(check, &fault, base + way[i]);
            weft__out_text(&fault.text, " before ");
        } else {
            weft__fault_note(check, &fault, base + way[i]);
        }
    }
    if (length > 16)
        weft__out_format(&fault.text, "%u more before ", length - 16);
    weft__out_format(&fault.text, "node %u again: a cycle, so %u of its %zu nodes can never start",
                     start, stuck, check->schedules[rank]->node_count);
    return weft__fault_end(check, &fault);
}

/* Work that the search for the shortest cycle may take beyond one search. */
#define CYCLE_WORK 2000000u

static int shortest_cycle(struct weft__check *check, int rank, struct search *search,
                          uint32_t stuck)
{
    uint32_t nodes = (uint32_t)check->schedules[rank]->node_count, base = check->base[rank];
    uint32_t best = 0, length = 0;
    uint64_t work = 0;

    for (uint32_t n = 0; n < nodes && (!length || work < CYCLE_WORK); n++) {
        if (!search->waits[n])
            continue;
        uint32_t found = way_around(check, base, search, n, length ? length : UINT32_MAX);

        work += stuck;
        if (found) {
            length = found;
            best = n;
        }
        if (length == 1)
            break;
    }
    memset(search->seen, 0, nodes * sizeof *search->seen);
    way_around(check, base, search, best, UINT32_MAX);
    return cycle_fault(check, rank, search, best, length, stuck);
}

/* Kahn's algorithm; an ANY node on a cycle is an error too, as it is at commit. */
static int rank_cycles(struct weft__check *check, int rank, struct search *search)
{
    uint32_t nodes = (uint32_t)check->schedules[rank]->node_count, base = check->base[rank];
    uint32_t head = 0, tail = 0;

    memcpy(search->waits, check->waits + base, nodes * sizeof *search->waits);
    for (uint32_t n = 0; n < nodes; n++)
        if (!search->waits[n])
            search->queue[tail++] = n;
    while (head < tail) {
        uint32_t n = search->queue[head++];

        for (uint32_t e = check->first[base + n]; e < check->first[base + n + 1]; e++)
            if (--search->waits[check->after[e] - base] == 0)
                search->queue[tail++] = check->after[e] - base;
    }
    if (tail == nodes)
        return 0;
    check->cyclic = 1;
    memset(search->seen, 0, nodes * sizeof *search->seen);
    return shortest_cycle(check, rank, search, nodes - tail);
}

int weft__check_cycles(struct weft__check *check)
{
    size_t most = 0;
    struct search search;
    int status = -1;

    for (int r = 0; r < check->size; r++)
        if (check->schedules[r] && check->schedules[r]->node_count > most)
            most = check->schedules[r]->node_count;
    search.waits = weft__malloc(most, sizeof *search.waits);
    search.queue = weft__malloc(most, sizeof *search.queue);
    search.from = weft__malloc(most, sizeof *search.from);
    search.seen = weft__malloc(most, sizeof *search.seen);
    if (search.waits && search.queue && search.from && search.seen) {
        status = 0;
        for (int r = 0; !status && r < check->size; r++)
            if (check->schedules[r])
                status = rank_cycles(check, r, &search);
    }
    weft__free(search.seen);
    weft__free(search.from);
    weft__free(search.queue);
    weft__free(search.waits);
    return status;
}
