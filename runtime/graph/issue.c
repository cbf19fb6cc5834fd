/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The execution that gives messages their rounds. Nodes wait in one queue; a node after ANY starts
 * with the first of its predecessors, as it would: that one will have ended in any case, so what
 * comes after it can be issued once that one's round is over. The application fires its events when
 * nothing else can happen, so that nothing is after an event that need not be.
 *
 * Events of choices never fire: what comes after one is left over, as are messages in a circle.
 */
#include "runtime/graph/issue.h"

#include "runtime/base/alloc.h"
#include "runtime/base/search.h"

#include <stdlib.h>
#include <string.h>

/* ---- events and signals ---- */

static int compare_listeners(const void *left, const void *right)
{
    const struct weft__issue_listener *a = left, *b = right;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->channel != b->channel)
        return a->channel < b->channel ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static int listens(const struct weft__issue_node *node)
{
    return node->kind == WEFT_NODE_EVENT && node->tag != WEFT_CHANNEL_NONE;
}

void weft__issue_listeners(const struct weft__issue_run *run, uint32_t signal, uint32_t *first,
                           uint32_t *last)
{
    const struct weft__issue_node *node = &run->issue->nodes[signal];
    struct weft__issue_listener key = {.rank = node->peer, .channel = node->tag};
    uint32_t low = 0, high = run->listener_count;

    WEFT__SEARCH(low, high, middle, compare_listeners(&run->listeners[middle], &key) < 0)
    *first = low;
    while (low < run->listener_count && run->listeners[low].rank == key.rank &&
           run->listeners[low].channel == key.channel)
        low++;
    *last = low;
}

uint32_t weft__issue_listener_of(const struct weft__issue_run *run, uint32_t node)
{
    struct weft__issue_listener key = {run->rank_of[node], run->issue->nodes[node].tag, node, 0};
    uint32_t low = 0, high = run->listener_count;

    if (!listens(&run->issue->nodes[node]))
        return WEFT__ISSUE_NONE;
    WEFT__SEARCH(low, high, middle, compare_listeners(&run->listeners[middle], &key) < 0)
    return low;
}

static int find_listeners(struct weft__issue_run *run)
{
    const struct weft__issue *issue = run->issue;
    uint32_t count = 0, first, last;

    for (uint32_t n = 0; n < run->nodes; n++)
        count += (uint32_t)listens(&issue->nodes[n]);
    run->listeners = weft__malloc(count, sizeof *run->listeners);
    run->fired = weft__calloc(count, 1);
    if (!run->listeners || !run->fired)
        return -1;
    for (uint32_t n = 0; n < run->nodes; n++)
        if (listens(&issue->nodes[n]))
            run->listeners[run->listener_count++] =
                (struct weft__issue_listener){run->rank_of[n], issue->nodes[n].tag, n, 0};
    qsort(run->listeners, count, sizeof *run->listeners, compare_listeners);
    for (uint32_t n = 0; n < run->nodes; n++)
        if (issue->nodes[n].kind == WEFT_NODE_SIGNAL)
            for (weft__issue_listeners(run, n, &first, &last); first < last; first++)
                run->listeners[first].signals++;
    return 0;
}

/* ---- joint nodes ---- */

/* One of each ring stands for all: that of the rank that is first in its list. */
static void find_rings(struct weft__issue_run *run)
{
    const struct weft__issue *issue = run->issue;

    for (uint32_t n = 0; n < run->nodes; n++) {
        uint32_t next = issue->partner[n];

        if (!weft__issue_is_joint(issue, n) || next == WEFT__ISSUE_NONE ||
            issue->nodes[n].place != 0)
            continue;
        run->pair_of[n] = n;
        run->pair_used[n] = 1;
        for (; next != n; next = issue->partner[next], run->pair_used[n]++)
            run->pair_of[next] = n;
    }
}

/* ---- pairs of ranks ---- */

struct target {
    int32_t peer;
    uint32_t node;
};

static int compare_targets(const void *left, const void *right)
{
    const struct target *a = left, *b = right;

    if (a->peer != b->peer)
        return a->peer < b->peer ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static int find_pairs(struct weft__issue_run *run)
{
    const struct weft__issue *issue = run->issue;
    uint32_t most = 0;
    struct target *targets;

    for (int r = 0; r < issue->size; r++)
        if (issue->base[r + 1] - issue->base[r] > most)
            most = issue->base[r + 1] - issue->base[r];
    run->pair_of = weft__malloc(run->nodes, sizeof *run->pair_of);
    run->pair_latest = weft__calloc(run->nodes, sizeof *run->pair_latest);
    run->pair_used = weft__malloc(run->nodes, sizeof *run->pair_used);
    targets = weft__malloc(most, sizeof *targets);
    for (int r = 0; targets && run->pair_of && r < issue->size; r++) {
        uint32_t count = 0;

        for (uint32_t n = issue->base[r]; n < issue->base[r + 1]; n++)
            if (issue->nodes[n].kind == WEFT_NODE_SEND && weft__issue_in_order(issue, n))
                targets[count++] = (struct target){issue->nodes[n].peer, n};
        qsort(targets, count, sizeof *targets, compare_targets);
        for (uint32_t i = 0; i < count; i++)
            run->pair_of[targets[i].node] = i && targets[i].peer == targets[i - 1].peer
                                                ? run->pair_of[targets[i - 1].node]
                                                : targets[i].node;
    }
    weft__free(targets);
    if (run->pair_of && run->pair_used)
        find_rings(run);
    return targets && run->pair_of && run->pair_latest && run->pair_used ? 0 : -1;
}

/* The round of a message that can be in round `least` or later. */
static uint32_t round_of(struct weft__issue_run *run, uint32_t send, uint32_t least)
{
    uint64_t bytes = run->issue->nodes[send].bytes, most = run->issue->pair_bytes;
    uint32_t pair = run->pair_of[send];
    uint32_t *latest = &run->pair_latest[pair];
    uint64_t *used = &run->pair_used[pair];

    if (!most)
        return least;
    if (least > *latest || *used + bytes > most || *used + bytes < bytes) {
        *latest = least > *latest ? least : *latest + 1;
        *used = 0;
    }
    *used += bytes ? bytes : 1;
    return *latest;
}

/* ---- the execution ---- */

static void end_node(struct weft__issue_run *run, uint32_t node, uint32_t level)
{
    const struct weft__issue *issue = run->issue;

    run->state[node] = WEFT__ISSUE_ENDED;
    run->level[node] = level;
    run->ended[run->ended_count++] = node;
    for (uint32_t e = issue->first[node]; e < issue->first[node + 1]; e++) {
        uint32_t next = issue->after[e];

        if (!run->left[next])
            continue;
        if (level > run->level[next])
            run->level[next] = level;
        run->left[next] = issue->nodes[next].flags & WEFT__ISSUE_ANY ? 0 : run->left[next] - 1;
        if (!run->left[next])
            run->queue[run->tail++] = next;
    }
}

/* The last of them to start starts all. */
static void start_joint(struct weft__issue_run *run, uint32_t node)
{
    const struct weft__issue *issue = run->issue;
    uint32_t level = 0, next = node, first;

    if (issue->partner[node] == WEFT__ISSUE_NONE) { /* as of a message */
        end_node(run, node, run->level[node]);
        return;
    }
    first = run->pair_of[node];
    if (++run->pair_latest[first] < run->pair_used[first])
        return;
    do {
        level = run->level[next] > level ? run->level[next] : level;
        next = issue->partner[next];
    } while (next != node);
    level++;
    run->order->messages++;
    if (level > run->order->rounds)
        run->order->rounds = level;
    do {
        run->order->round[next] = level;
        end_node(run, next, level);
        next = issue->partner[next];
    } while (next != node);
}

static void start_message(struct weft__issue_run *run, uint32_t node)
{
    const struct weft__issue *issue = run->issue;
    uint32_t other = issue->partner[node];
    uint32_t send = issue->nodes[node].kind == WEFT_NODE_SEND ? node : other;
    uint32_t level = run->level[node];

    if (other == WEFT__ISSUE_NONE) { /* its rank is missing, or it is a fault of its own */
        end_node(run, node, level);
        return;
    }
    if (run->state[other] != WEFT__ISSUE_STARTED)
        return;
    if (run->level[other] > level)
        level = run->level[other];
    if (weft__issue_in_order(issue, node)) {
        level = round_of(run, send, level + 1);
        run->order->round[node] = run->order->round[other] = level;
        run->order->messages++;
        if (level > run->order->rounds)
            run->order->rounds = level;
    }
    end_node(run, other, level);
    end_node(run, node, level);
}

/* Whether only the application fires it. */
static int is_own(const struct weft__issue_run *run, uint32_t node)
{
    uint32_t listener = weft__issue_listener_of(run, node);

    return listener == WEFT__ISSUE_NONE || !run->listeners[listener].signals;
}

static void start_event(struct weft__issue_run *run, uint32_t node)
{
    if (run->issue->nodes[node].flags & WEFT__ISSUE_CHOICE)
        return;
    if (is_own(run, node) ? run->applied : run->fired[weft__issue_listener_of(run, node)])
        end_node(run, node, run->level[node]);
}

static void start_signal(struct weft__issue_run *run, uint32_t node)
{
    uint32_t first, last;

    for (weft__issue_listeners(run, node, &first, &last); first < last; first++) {
        uint32_t event = run->listeners[first].node;

        if (run->fired[first])
            continue;
        run->fired[first] = run->applied ? 2 : 1;
        if (run->level[node] > run->level[event])
            run->level[event] = run->level[node];
        if (run->state[event] == WEFT__ISSUE_STARTED &&
            !(run->issue->nodes[event].flags & WEFT__ISSUE_CHOICE))
            end_node(run, event, run->level[event]);
    }
    end_node(run, node, run->level[node]);
}

static void start_node(struct weft__issue_run *run, uint32_t node)
{
    run->state[node] = WEFT__ISSUE_STARTED;
    if (weft__issue_is_joint(run->issue, node)) {
        start_joint(run, node);
        return;
    }
    switch (run->issue->nodes[node].kind) {
    case WEFT_NODE_SEND:
    case WEFT_NODE_RECV:
        start_message(run, node);
        break;
    case WEFT_NODE_EVENT:
        start_event(run, node);
        break;
    case WEFT_NODE_SIGNAL:
        start_signal(run, node);
        break;
    default:
        end_node(run, node, run->level[node]);
    }
}

static void execute(struct weft__issue_run *run)
{
    for (uint32_t n = 0; n < run->nodes; n++)
        if (!run->left[n])
            run->queue[run->tail++] = n;
    while (run->head < run->tail)
        start_node(run, run->queue[run->head++]);
    run->sure_count = run->ended_count;
    run->applied = 1;
    for (uint32_t n = 0; n < run->nodes; n++)
        if (run->state[n] == WEFT__ISSUE_STARTED && run->issue->nodes[n].kind == WEFT_NODE_EVENT &&
            is_own(run, n))
            start_event(run, n);
    while (run->head < run->tail)
        start_node(run, run->queue[run->head++]);
}

/* ---- the order ---- */

struct place {
    uint32_t round;
    int joint;
    int32_t from, to;
    uint32_t tag, send, node;
};

static int compare_places(const void *left, const void *right)
{
    const struct place *a = left, *b = right;

    if (a->round != b->round)
        return a->round < b->round ? -1 : 1;
    if (a->joint != b->joint)
        return a->joint ? 1 : -1;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    if (a->send != b->send)
        return a->send < b->send ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node); /* both ends on one rank */
}

/* Of a node that has a round. */
static struct place place_of(const struct weft__issue_run *run, uint32_t n)
{
    const struct weft__issue *issue = run->issue;
    int joint = weft__issue_is_joint(issue, n);
    uint32_t send = joint                                    ? run->pair_of[n]
                    : issue->nodes[n].kind == WEFT_NODE_SEND ? n
                                                             : issue->partner[n];

    return (struct place){.round = run->order->round[n],
                          .joint = joint,
                          .from = run->rank_of[send],
                          .to = issue->nodes[send].peer,
                          .tag = issue->nodes[send].tag,
                          .send = send,
                          .node = n};
}

/* Each rank's nodes by rounds, and within them by what both ends know. */
static int put_in_order(struct weft__issue_run *run)
{
    const struct weft__issue *issue = run->issue;
    struct weft__issue_order *order = run->order;
    struct place *places;
    uint32_t at = 0, most = 0;

    for (int r = 0; r < issue->size; r++)
        if (issue->base[r + 1] - issue->base[r] > most)
            most = issue->base[r + 1] - issue->base[r];
    places = weft__malloc(most, sizeof *places);
    if (!places)
        return -1;
    for (int r = 0; r < issue->size; r++) {
        uint32_t count = 0;

        order->start[r] = at;
        for (uint32_t n = issue->base[r]; n < issue->base[r + 1]; n++)
            if (order->round[n])
                places[count++] = place_of(run, n);
        qsort(places, count, sizeof *places, compare_places);
        for (uint32_t i = 0; i < count; i++)
            order->sequence[at++] = places[i].node;
    }
    order->start[issue->size] = at;
    weft__free(places);
    return 0;
}

static int allocate(struct weft__issue_run *run)
{
    size_t nodes = run->nodes;

    run->rank_of = weft__malloc(nodes, sizeof *run->rank_of);
    run->state = weft__calloc(nodes, sizeof *run->state);
    run->left = weft__malloc(nodes, sizeof *run->left);
    run->level = weft__calloc(nodes, sizeof *run->level);
    run->queue = weft__malloc(nodes, sizeof *run->queue);
    run->ended = weft__malloc(nodes, sizeof *run->ended);
    run->order->round = weft__calloc(nodes, sizeof *run->order->round);
    run->order->sequence = weft__calloc(nodes, sizeof *run->order->sequence);
    run->order->start = weft__calloc((size_t)run->issue->size + 1, sizeof *run->order->start);
    if (!run->rank_of || !run->state || !run->left || !run->level || !run->queue || !run->ended ||
        !run->order->round || !run->order->sequence || !run->order->start)
        return -1;
    if (nodes)
        memcpy(run->left, run->issue->waits, nodes * sizeof *run->left);
    for (int r = 0; r < run->issue->size; r++)
        for (uint32_t n = run->issue->base[r]; n < run->issue->base[r + 1]; n++)
            run->rank_of[n] = r;
    return find_listeners(run) || find_pairs(run) ? -1 : 0;
}

/* Messages whose sizes are not known, beside those that are unknown for another reason. */
static void count_varying(struct weft__issue_run *run)
{
    struct weft__issue_order *order = run->order;

    for (uint32_t n = 0; n < run->nodes; n++) {
        uint32_t other = run->issue->partner[n];

        if (!order->round[n] ||
            !((run->issue->nodes[n].flags | run->issue->nodes[other].flags) & WEFT__ISSUE_VARIES))
            continue;
        if (!order->unknown++)
            order->unknown_node = n;
    }
}

int weft__issue_order(const struct weft__issue *issue, struct weft__issue_order *order)
{
    struct weft__issue_run run = {
        .issue = issue, .order = order, .nodes = issue->base[issue->size]};
    int status = -1;

    *order = (struct weft__issue_order){.unknown_node = WEFT__ISSUE_NONE,
                                        .unknown_event = WEFT__ISSUE_NONE};
    if (!allocate(&run)) {
        execute(&run);
        status = weft__issue_stuck(&run) || put_in_order(&run) ||
                         (!order->cycle_count && weft__issue_held(&run))
                     ? -1
                     : 0;
        if (!status && !order->unknown)
            count_varying(&run);
    }
    weft__free(run.pair_used);
    weft__free(run.pair_latest);
    weft__free(run.pair_of);
    weft__free(run.fired);
    weft__free(run.listeners);
    weft__free(run.ended);
    weft__free(run.queue);
    weft__free(run.level);
    weft__free(run.left);
    weft__free(run.state);
    weft__free(run.rank_of);
    if (status)
        weft__issue_order_free(order);
    return status;
}

void weft__issue_order_free(struct weft__issue_order *order)
{
    weft__free(order->cycle);
    weft__free(order->start);
    weft__free(order->sequence);
    weft__free(order->round);
    *order = (struct weft__issue_order){0};
}
