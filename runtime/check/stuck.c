/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why an execution does not end. What has not ended waits: a node for predecessors, a message for
 * its other end, an event for signals. A shortest cycle of this waiting is the explanation; where
 * there is none, the chain ends at something that never comes. What leads to something explained is
 * not explained again.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/search.h"
#include "runtime/check/check.h"
#include "runtime/graph/lists.h"

#include <string.h>

/* Steps of the search, for the shortest cycle; and how many causes are told. */
#define MOST_STEPS 20000000u
enum { MOST_CAUSES = 8, MOST_NAMED = 12 };

struct stuck {
    struct weft__execution *execution;
    struct weft__check *check;
    uint32_t *nodes; /* those that have not ended, ascending */
    uint32_t count;
    struct weft__edge *edges; /* a number that waits, after the one that it waits for */
    size_t edge_count, edge_capacity;
    struct weft__lists on;   /* what number i waits for */
    struct weft__lists back; /* who waits for number i */
    struct weft__search search;
    uint8_t *state; /* as the execution has left it */
    uint8_t *explained;
};

static int is_stuck(const struct stuck *s, uint32_t node)
{
    return s->state[node] < WEFT__NODE_ENDED;
}

static uint32_t number_of(const struct stuck *s, uint32_t node)
{
    uint32_t low = 0, high = s->count;

    WEFT__SEARCH(low, high, middle, s->nodes[middle] < node)
    return low;
}

static int note(struct stuck *s, uint32_t waits, uint32_t on)
{
    if (weft__grow((void **)&s->edges, &s->edge_capacity, s->edge_count + 1, sizeof *s->edges))
        return -1;
    s->edges[s->edge_count++] = (struct weft__edge){on, waits};
    return 0;
}

static int find_waits(struct stuck *s)
{
    const struct weft__check *check = s->check;

    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t n = s->nodes[i];
        const struct weft__snode *node = weft__check_node(check, n);
        size_t first = 0, last = 0;

        for (uint32_t e = check->first[n]; e < check->first[n + 1]; e++)
            if (s->state[check->after[e]] == WEFT__NODE_WAITS &&
                note(s, number_of(s, check->after[e]), i))
                return -1;
        if (node->kind == WEFT_NODE_SIGNAL)
            weft__check_listeners(check, node->peer, node->tag, &first, &last);
        for (; first < last; first++)
            if (s->state[check->listeners[first].node] == WEFT__NODE_STARTED &&
                note(s, number_of(s, check->listeners[first].node), i))
                return -1;
        if (s->state[n] == WEFT__NODE_STARTED && check->partner[n] != WEFT__CHECK_NONE &&
            is_stuck(s, check->partner[n]) && note(s, i, number_of(s, check->partner[n])))
            return -1;
    }
    return 0;
}

static int build(struct stuck *s)
{
    const struct weft__check *check = s->check;

    s->state = weft__malloc(check->nodes, 1);
    if (!s->state)
        return -1;
    memcpy(s->state, s->execution->state, check->nodes);
    for (uint32_t n = 0; n < check->nodes; n++)
        s->count += is_stuck(s, n);
    s->nodes = weft__malloc(s->count, sizeof *s->nodes);
    s->search.queue = weft__malloc(s->count, sizeof *s->search.queue);
    s->search.from = weft__malloc(s->count, sizeof *s->search.from);
    s->search.seen = weft__calloc(s->count, sizeof *s->search.seen);
    s->explained = weft__calloc(s->count, 1);
    if (!s->nodes || !s->search.queue || !s->search.from || !s->search.seen || !s->explained)
        return -1;
    s->count = 0;
    for (uint32_t n = 0; n < check->nodes; n++)
        if (is_stuck(s, n))
            s->nodes[s->count++] = n;
    return find_waits(s) ||
                   weft__lists_build(&s->on, s->edges, s->edge_count, s->count,
                                     WEFT__PREDECESSORS) ||
                   weft__lists_build(&s->back, s->edges, s->edge_count, s->count, WEFT__SUCCESSORS)
               ? -1
               : 0;
}

/* Marks what waits, directly or not, for something explained. */
static void spread(struct stuck *s)
{
    uint32_t head = 0, tail = 0;

    for (uint32_t i = 0; i < s->count; i++)
        if (s->explained[i])
            s->search.queue[tail++] = i;
    while (head < tail) {
        uint32_t i = s->search.queue[head++];

        for (uint32_t e = s->back.first[i]; e < s->back.first[i + 1]; e++) {
            uint32_t waits = s->back.items[e];

            if (s->explained[waits])
                continue;
            s->explained[waits] = 1;
            s->search.queue[tail++] = waits;
        }
    }
}

/* Executes again with sends that end at once: does it end then? */
static const char *remark(struct stuck *s)
{
    struct weft__execution *execution = s->execution;
    int buffered;

    if (s->check->choice_count)
        return "";
    execution->symbolic = 0;
    execution->eager = 1;
    buffered = weft__execute(execution) == 0 && execution->ended == s->check->nodes;
    execution->symbolic = 1;
    execution->eager = 0;
    return buffered ? " (it ends only if messages are buffered)" : "";
}

static int cycle_fault(struct stuck *s, uint32_t start, uint32_t length)
{
    uint32_t *way = s->search.queue, i = s->search.from[start];
    struct weft__fault fault;
    int rank = -1;

    for (uint32_t at = length - 1; at > 0; at--, i = s->search.from[i])
        way[at] = i;
    way[0] = start;
    weft__fault_begin(&fault, WEFT_FAULT_DEADLOCK);
    for (uint32_t at = 0; at < length; at++) {
        uint32_t node = s->nodes[way[at]];

        s->explained[way[at]] = 1;
        if (at >= MOST_NAMED) {
            weft__fault_note(s->check, &fault, node);
            continue;
        }
        if (s->check->rank_of[node] != rank)
            weft__out_format(&fault.text, "rank %d: ", rank = s->check->rank_of[node]);
        weft__fault_node(s->check, &fault, node);
        weft__out_text(&fault.text, " waits for ");
    }
    if (length > MOST_NAMED)
        weft__out_format(&fault.text, "%u more, the last of them for ", length - MOST_NAMED);
    weft__out_format(&fault.text, "the first, node %d of rank %d%s",
                     (int)(s->nodes[start] - s->check->base[s->check->rank_of[s->nodes[start]]]),
                     s->check->rank_of[s->nodes[start]], remark(s));
    return weft__fault_end(s->check, &fault);
}

/* The shortest cycle of what is not explained; 1 if there was one, 0 if not. */
static int explain_cycle(struct stuck *s)
{
    uint32_t length = 0, best = 0;

    memset(s->search.seen, 0, s->count * sizeof *s->search.seen);
    for (uint32_t i = 0; i < s->count && (!length || s->search.steps < MOST_STEPS); i++) {
        uint32_t node = s->nodes[i], found;

        /* Every cycle has a message or an event in it, or it would be one of a rank alone. */
        if (s->explained[i] || s->state[node] != WEFT__NODE_STARTED)
            continue;
        found = weft__lists_way_around(&s->on, &s->search, i, length ? length : UINT32_MAX);
        if (found) {
            length = found;
            best = i;
        }
        if (length == 2)
            break;
    }
    if (!length)
        return 0;
    memset(s->search.seen, 0, s->count * sizeof *s->search.seen);
    weft__lists_way_around(&s->on, &s->search, best, UINT32_MAX);
    return cycle_fault(s, best, length) ? -1 : 1;
}

/* Messages whose other end has been retired. */
static int explain_retired(struct stuck *s)
{
    struct weft__check *check = s->check;
    int told = 0;

    for (uint32_t i = 0; i < s->count && told < MOST_CAUSES; i++) {
        uint32_t node = s->nodes[i], other = check->partner[node];
        struct weft__fault fault;

        if (s->state[node] != WEFT__NODE_STARTED || other == WEFT__CHECK_NONE ||
            s->state[other] != WEFT__NODE_RETIRED)
            continue;
        s->explained[i] = 1;
        told++;
        weft__fault_begin(&fault, WEFT_FAULT_DEADLOCK);
        weft__out_format(&fault.text, "rank %d: ", check->rank_of[node]);
        weft__fault_node(check, &fault, node);
        weft__out_format(&fault.text, " waits for rank %d: ", check->rank_of[other]);
        weft__fault_node(check, &fault, other);
        weft__out_text(&fault.text, ", which a choice has retired");
        if (weft__fault_end(check, &fault))
            return -1;
    }
    return 0;
}

/* Events that nothing fires: ranks that are not reached. One fault for all. */
static int explain_events(struct stuck *s)
{
    struct weft__check *check = s->check;
    struct weft__fault fault;
    int found = 0, left = 0;

    weft__fault_begin(&fault, WEFT_FAULT_DEADLOCK);
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t node = s->nodes[i];

        if (s->explained[i] || s->on.first[i] != s->on.first[i + 1] ||
            s->state[node] != WEFT__NODE_STARTED ||
            weft__check_node(check, node)->kind != WEFT_NODE_EVENT)
            continue;
        s->explained[i] = 1;
        if (found++ < MOST_CAUSES) {
            weft__out_format(&fault.text, "%srank %d: ", found > 1 ? ", " : "",
                             check->rank_of[node]);
            weft__fault_node(check, &fault, node);
        } else {
            weft__fault_note(check, &fault, node);
            left++;
        }
    }
    if (left)
        weft__out_format(&fault.text, " and %d more", left);
    if (!found)
        return 0;
    weft__out_text(&fault.text,
                   found == 1 ? ": nothing fires this event" : ": nothing fires these events");
    return weft__fault_end(check, &fault);
}

int weft__check_stuck(struct weft__execution *execution)
{
    struct stuck s = {.execution = execution, .check = execution->check};
    int status = build(&s), found = 1;

    if (!status)
        status = explain_retired(&s);
    if (!status)
        spread(&s);
    for (int told = 0; !status && found == 1 && told < MOST_CAUSES; told++) {
        found = explain_cycle(&s);
        status = found < 0 ? -1 : 0;
        if (!status)
            spread(&s);
    }
    if (!status)
        status = explain_events(&s);
    weft__free(s.explained);
    weft__free(s.search.seen);
    weft__free(s.search.from);
    weft__free(s.search.queue);
    weft__lists_free(&s.back);
    weft__lists_free(&s.on);
    weft__free(s.edges);
    weft__free(s.state);
    weft__free(s.nodes);
    return status;
}
