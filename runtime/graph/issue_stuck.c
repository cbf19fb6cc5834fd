/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that have not happened. What comes after a choice is left to it: nobody knows beforehand
 * whether and when it happens. Of all else, a node that is left over waits for another one that is:
 * for a predecessor, the other end of a message, or a signal. So there are circles; a shortest one,
 * through a message that runs in order if there is such a circle, is the reason.
 */
#include "runtime/base/alloc.h"
#include "runtime/graph/issue.h"
#include "runtime/graph/lists.h"

#include <string.h>

/* Steps of the search for the shortest. */
#define MOST_STEPS 20000000u

struct stuck {
    struct weft__issue_run *run;
    uint32_t *number; /* of a node that is left over; or none */
    uint32_t *nodes;  /* by number */
    uint32_t count;
    struct weft__edge *edges; /* a number, and what waits for it */
    size_t edge_count, edge_capacity;
    struct weft__lists on; /* what a number waits for */
    struct weft__search search;
};

/* ---- what comes after a choice ---- */

static void reach(struct weft__issue_run *run, uint8_t *after_choice, uint32_t node)
{
    if (after_choice[node] || run->state[node] == WEFT__ISSUE_ENDED)
        return;
    after_choice[node] = 1;
    run->queue[run->tail++] = node;
}

/* Marks what is left over and comes after a choice; the execution's queue is free by now. */
static void find_choices(struct weft__issue_run *run, uint8_t *after_choice)
{
    const struct weft__issue *issue = run->issue;
    uint32_t first, last;

    run->head = run->tail = 0;
    for (uint32_t n = 0; n < run->nodes; n++)
        if (issue->nodes[n].flags & WEFT__ISSUE_CHOICE)
            reach(run, after_choice, n);
    while (run->head < run->tail) {
        uint32_t node = run->queue[run->head++];

        for (uint32_t e = issue->first[node]; e < issue->first[node + 1]; e++)
            reach(run, after_choice, issue->after[e]);
        if (issue->partner[node] != WEFT__ISSUE_NONE)
            reach(run, after_choice, issue->partner[node]);
        if (issue->nodes[node].kind != WEFT_NODE_SIGNAL)
            continue;
        for (weft__issue_listeners(run, node, &first, &last); first < last; first++)
            reach(run, after_choice, run->listeners[first].node);
    }
}

/* ---- who waits for whom ---- */

static int note(struct stuck *s, uint32_t waits, uint32_t on)
{
    if (s->number[waits] == WEFT__ISSUE_NONE || s->number[on] == WEFT__ISSUE_NONE)
        return 0;
    if (weft__grow((void **)&s->edges, &s->edge_capacity, s->edge_count + 1, sizeof *s->edges))
        return -1;
    s->edges[s->edge_count++] = (struct weft__edge){s->number[on], s->number[waits]};
    return 0;
}

static int find_waits(struct stuck *s)
{
    const struct weft__issue_run *run = s->run;
    const struct weft__issue *issue = run->issue;
    uint32_t first, last;

    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t node = s->nodes[i], other = issue->partner[node];

        for (uint32_t e = issue->first[node]; e < issue->first[node + 1]; e++)
            if (run->state[issue->after[e]] == WEFT__ISSUE_WAITS && note(s, issue->after[e], node))
                return -1;
        if (run->state[node] == WEFT__ISSUE_STARTED && other != WEFT__ISSUE_NONE &&
            note(s, node, other))
            return -1;
        if (issue->nodes[node].kind != WEFT_NODE_SIGNAL)
            continue;
        for (weft__issue_listeners(run, node, &first, &last); first < last; first++)
            if (run->state[run->listeners[first].node] == WEFT__ISSUE_STARTED &&
                note(s, run->listeners[first].node, node))
                return -1;
    }
    return 0;
}

/* A circle has a node in it that has started and has not ended. */
static int begins(const struct stuck *s, uint32_t i, int in_order)
{
    return s->run->state[s->nodes[i]] == WEFT__ISSUE_STARTED &&
           (!in_order || weft__issue_in_order(s->run->issue, s->nodes[i]));
}

static int find_cycle(struct stuck *s)
{
    struct weft__issue_order *order = s->run->order;
    uint32_t length = 0, best = 0;

    for (int in_order = 1; in_order >= 0 && !length; in_order--) {
        memset(s->search.seen, 0, s->count * sizeof *s->search.seen);
        for (uint32_t i = 0;
             i < s->count && length != 2 && (!length || s->search.steps < MOST_STEPS); i++) {
            uint32_t found =
                begins(s, i, in_order)
                    ? weft__lists_way_around(&s->on, &s->search, i, length ? length : UINT32_MAX)
                    : 0;

            if (found) {
                length = found;
                best = i;
            }
        }
    }
    if (!length)
        return 0;
    memset(s->search.seen, 0, s->count * sizeof *s->search.seen);
    weft__lists_way_around(&s->on, &s->search, best, UINT32_MAX);
    order->cycle = weft__malloc(length, sizeof *order->cycle);
    if (!order->cycle)
        return -1;
    order->cycle_count = length;
    for (uint32_t at = length, i = s->search.from[best]; at-- > 1; i = s->search.from[i])
        order->cycle[at] = s->nodes[i];
    order->cycle[0] = s->nodes[best];
    return 0;
}

static int explain(struct stuck *s)
{
    s->search.queue = weft__malloc(s->count, sizeof *s->search.queue);
    s->search.from = weft__malloc(s->count, sizeof *s->search.from);
    s->search.seen = weft__malloc(s->count, sizeof *s->search.seen);
    if (!s->search.queue || !s->search.from || !s->search.seen || find_waits(s) ||
        weft__lists_build(&s->on, s->edges, s->edge_count, s->count, WEFT__PREDECESSORS))
        return -1;
    return find_cycle(s);
}

/* Those that a choice does not account for; how many of them run in order. */
static uint32_t collect(struct stuck *s, const uint8_t *after_choice)
{
    struct weft__issue_run *run = s->run;
    uint32_t in_order = 0;

    for (uint32_t n = 0; n < run->nodes; n++) {
        s->number[n] = WEFT__ISSUE_NONE;
        if (run->state[n] == WEFT__ISSUE_ENDED)
            continue;
        if (!after_choice[n]) {
            s->number[n] = s->count;
            s->nodes[s->count++] = n;
            in_order += (uint32_t)weft__issue_in_order(run->issue, n);
        } else if (weft__issue_in_order(run->issue, n)) {
            if (!run->order->unknown++)
                run->order->unknown_node = n;
        }
    }
    return in_order;
}

int weft__issue_stuck(struct weft__issue_run *run)
{
    struct stuck s = {.run = run};
    uint8_t *after_choice;
    int status = -1;

    if (run->ended_count == run->nodes)
        return 0;
    after_choice = weft__calloc(run->nodes, sizeof *after_choice);
    s.number = weft__malloc(run->nodes, sizeof *s.number);
    s.nodes = weft__malloc(run->nodes, sizeof *s.nodes);
    if (after_choice && s.number && s.nodes) {
        find_choices(run, after_choice);
        status = collect(&s, after_choice) ? explain(&s) : 0;
    }
    weft__free(s.search.seen);
    weft__free(s.search.from);
    weft__free(s.search.queue);
    weft__lists_free(&s.on);
    weft__free(s.edges);
    weft__free(s.nodes);
    weft__free(s.number);
    weft__free(after_choice);
    return status;
}
