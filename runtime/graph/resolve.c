/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An execution without clock and data. Messages under way form one queue, so that those of a round
 * arrive before those of the next; what an arrival ends and retires within its rank is settled
 * before the next arrival. Each node is settled once: linear in nodes, orders and messages.
 */
#include "runtime/graph/resolve.h"

#include "runtime/base/alloc.h"
#include "runtime/graph/lists.h"
#include "runtime/graph/settle.h"

struct queue {
    size_t *items, head, tail;
};

struct execution {
    const struct weft_schedule *const *schedules;
    size_t count, total;
    const struct weft__pairs *pairs;
    struct weft__resolution *result;
    uint32_t *place; /* which schedule a node is of */
    uint32_t *left;  /* of a node: see weft__settle() */
    uint8_t *started, *arrived;
    struct weft__lists successors; /* of nodes */
    struct weft__lists outgoing;   /* pairs, of nodes that send or signal */
    struct weft__lists choices;    /* events, of first[] + choice */
    struct queue settled;          /* nodes whose successors are to be told */
    struct queue travelling;       /* pairs */
    struct queue waiting;          /* events that are open, in that order */
};

static void push(struct queue *queue, size_t item)
{
    queue->items[queue->tail++] = item;
}

static const struct weft__snode *node_of(const struct execution *e, size_t node)
{
    uint32_t at = e->place[node];

    return &e->schedules[at]->nodes[node - e->result->first[at]];
}

/* ---- what happens ---- */

static void retire(struct execution *e, size_t node)
{
    if (e->result->fate[node] != WEFT__FATE_OPEN)
        return;
    e->left[node] = 0;
    e->result->fate[node] = WEFT__FATE_RETIRED;
    e->result->retired++;
    push(&e->settled, node);
}

static void end(struct execution *e, size_t node)
{
    e->result->fate[node] = WEFT__FATE_ENDED;
    push(&e->settled, node);
}

/* Its predecessors allow it. */
static void start(struct execution *e, size_t node)
{
    uint8_t kind = node_of(e, node)->kind;
    int waits = kind == WEFT_NODE_RECV || kind == WEFT_NODE_EVENT;

    e->started[node] = 1;
    if (!waits || e->arrived[node])
        end(e, node);
    else if (kind == WEFT_NODE_EVENT)
        push(&e->waiting, node);
}

/* Its message, signal or application has come. */
static void arrive(struct execution *e, size_t node, size_t by)
{
    const struct weft__snode *n = node_of(e, node);

    if (e->arrived[node] || e->result->fate[node] != WEFT__FATE_OPEN)
        return;
    e->arrived[node] = 1;
    e->result->fired_by[node] = by;
    if (n->kind == WEFT_NODE_EVENT && n->choice >= 0) {
        size_t key = e->result->first[e->place[node]] + (size_t)n->choice;

        for (uint32_t i = e->choices.first[key]; i < e->choices.first[key + 1]; i++)
            if (e->choices.items[i] != node)
                retire(e, e->choices.items[i]);
    }
    if (e->started[node])
        end(e, node);
}

static void tell(struct execution *e, size_t node, size_t successor)
{
    int any = node_of(e, successor)->any;

    switch (weft__settle(&e->left[successor], any, e->result->fate[node] == WEFT__FATE_ENDED)) {
    case WEFT__SETTLED_STARTS:
        if (any)
            e->result->cause[successor] =
                (weft_node_t)(node - e->result->first[e->place[successor]]);
        start(e, successor);
        break;
    case WEFT__SETTLED_RETIRES:
        retire(e, successor);
        break;
    default:
        break;
    }
}

static void settle(struct execution *e)
{
    while (e->settled.head < e->settled.tail) {
        size_t node = e->settled.items[e->settled.head++];

        if (e->result->fate[node] == WEFT__FATE_ENDED)
            for (size_t i = e->outgoing.first[node]; i < e->outgoing.first[node + 1]; i++)
                push(&e->travelling, e->outgoing.items[i]);
        for (size_t i = e->successors.first[node]; i < e->successors.first[node + 1]; i++)
            tell(e, node, e->successors.items[i]);
    }
}

/* Whether signals may come before the application. */
static int competes(const struct execution *e, size_t node)
{
    const struct weft__snode *n = node_of(e, node);
    size_t key = e->result->first[e->place[node]] + (size_t)(n->choice < 0 ? 0 : n->choice);

    if (n->choice < 0)
        return 0;
    for (size_t i = e->choices.first[key]; i < e->choices.first[key + 1]; i++)
        if (node_of(e, e->choices.items[i])->tag != WEFT_CHANNEL_NONE)
            return 1;
    return 0;
}

static int activates(int rank, const int *activators, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (activators[i] == rank)
            return 1;
    return !activators && rank == 0;
}

static void execute(struct execution *e, const int *activators, size_t activator_count)
{
    for (size_t node = 0; node < e->total; node++) {
        const struct weft__snode *n = node_of(e, node);

        if (n->kind == WEFT_NODE_EVENT && n->tag == WEFT_CHANNEL_NONE &&
            (activates(e->schedules[e->place[node]]->rank, activators, activator_count) ||
             !competes(e, node)))
            arrive(e, node, WEFT__FIRED_BY_APPLICATION);
        if (!e->left[node] && !e->started[node] && e->result->fate[node] == WEFT__FATE_OPEN)
            start(e, node);
        settle(e);
    }
    for (;;) {
        if (e->travelling.head < e->travelling.tail) {
            size_t pair = e->travelling.items[e->travelling.head++];
            const struct weft__pair *p = &e->pairs->at[pair];

            arrive(e, e->result->first[p->to_at] + (size_t)p->to, pair);
        } else if (e->waiting.head < e->waiting.tail) {
            arrive(e, e->waiting.items[e->waiting.head++], WEFT__FIRED_BY_APPLICATION);
        } else {
            return;
        }
        settle(e);
    }
}

/* ---- tables ---- */

static int link_successors(struct execution *e)
{
    size_t edges = 0;

    for (size_t i = 0; i < e->count; i++)
        edges += e->schedules[i]->edge_count;
    if (e->total >= UINT32_MAX || edges >= UINT32_MAX)
        return WEFT_ERR_MEMORY;
    e->successors.first = weft__malloc(e->total + 1, sizeof *e->successors.first);
    e->successors.items = weft__malloc(edges, sizeof *e->successors.items);
    return e->successors.first && e->successors.items &&
                   !weft__lists_join(e->successors.first, e->successors.items, e->left,
                                     e->schedules, e->count)
               ? WEFT_OK
               : WEFT_ERR_MEMORY;
}

static int link_pairs(struct execution *e)
{
    struct weft__edge *links = weft__malloc(e->pairs->count, sizeof *links);
    int status = WEFT_ERR_MEMORY;

    if (!links)
        return status;
    for (size_t i = 0; i < e->pairs->count; i++) {
        const struct weft__pair *pair = &e->pairs->at[i];
        size_t from = e->result->first[pair->from_at] + (size_t)pair->from;

        links[i] = (struct weft__edge){(uint32_t)from, (uint32_t)i};
    }
    if (!weft__lists_build(&e->outgoing, links, e->pairs->count, e->total, WEFT__SUCCESSORS))
        status = WEFT_OK;
    weft__free(links);
    return status;
}

static int link_choices(struct execution *e)
{
    struct weft__edge *links = weft__malloc(e->total, sizeof *links);
    size_t used = 0;
    int status = WEFT_ERR_MEMORY;

    if (!links)
        return status;
    for (size_t node = 0; node < e->total; node++) {
        const struct weft__snode *n = node_of(e, node);
        size_t base = e->result->first[e->place[node]];

        if (n->kind == WEFT_NODE_EVENT && n->choice >= 0)
            links[used++] =
                (struct weft__edge){(uint32_t)(base + (size_t)n->choice), (uint32_t)node};
    }
    if (!weft__lists_build(&e->choices, links, used, e->total, WEFT__SUCCESSORS))
        status = WEFT_OK;
    weft__free(links);
    return status;
}

static int number_nodes(struct execution *e)
{
    struct weft__resolution *r = e->result;

    r->first = weft__calloc(e->count + 1, sizeof *r->first);
    if (!r->first)
        return WEFT_ERR_MEMORY;
    for (size_t i = 0; i < e->count; i++)
        r->first[i + 1] = r->first[i] + e->schedules[i]->node_count;
    e->total = r->first[e->count];
    r->fate = weft__calloc(e->total, sizeof *r->fate);
    r->cause = weft__malloc(e->total, sizeof *r->cause);
    r->fired_by = weft__malloc(e->total, sizeof *r->fired_by);
    e->place = weft__malloc(e->total, sizeof *e->place);
    e->left = weft__calloc(e->total, sizeof *e->left);
    e->started = weft__calloc(e->total, 1);
    e->arrived = weft__calloc(e->total, 1);
    e->settled.items = weft__malloc(e->total, sizeof *e->settled.items);
    e->waiting.items = weft__malloc(e->total, sizeof *e->waiting.items);
    e->travelling.items = weft__malloc(e->pairs->count, sizeof *e->travelling.items);
    if (!r->fate || !r->cause || !r->fired_by || !e->place || !e->left || !e->started ||
        !e->arrived || !e->settled.items || !e->waiting.items || !e->travelling.items)
        return WEFT_ERR_MEMORY;
    for (size_t i = 0; i < e->count; i++)
        for (size_t n = r->first[i]; n < r->first[i + 1]; n++) {
            e->place[n] = (uint32_t)i;
            r->cause[n] = -1;
            r->fired_by[n] = WEFT__FIRED_BY_APPLICATION;
        }
    return WEFT_OK;
}

int weft__resolution_needed(const struct weft_schedule *const *schedules, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t n = 0; n < schedules[i]->node_count; n++) {
            const struct weft__snode *node = &schedules[i]->nodes[n];

            if (node->any || node->kind == WEFT_NODE_EVENT || node->kind == WEFT_NODE_SIGNAL)
                return 1;
        }
    return 0;
}

int weft__resolution_build(struct weft__resolution *resolution,
                           const struct weft_schedule *const *schedules, size_t count,
                           const struct weft__pairs *pairs, const int *activators,
                           size_t activator_count)
{
    struct execution e = {
        .schedules = schedules, .count = count, .pairs = pairs, .result = resolution};
    int status;

    *resolution = (struct weft__resolution){0};
    if (!(status = number_nodes(&e)) && !(status = link_successors(&e)) &&
        !(status = link_pairs(&e)) && !(status = link_choices(&e)))
        execute(&e, activators, activator_count);
    weft__free(e.place);
    weft__free(e.left);
    weft__free(e.started);
    weft__free(e.arrived);
    weft__free(e.settled.items);
    weft__free(e.waiting.items);
    weft__free(e.travelling.items);
    weft__lists_free(&e.successors);
    weft__lists_free(&e.outgoing);
    weft__lists_free(&e.choices);
    if (status)
        weft__resolution_free(resolution);
    return status;
}

void weft__resolution_free(struct weft__resolution *resolution)
{
    weft__free(resolution->first);
    weft__free(resolution->fate);
    weft__free(resolution->cause);
    weft__free(resolution->fired_by);
    *resolution = (struct weft__resolution){0};
}
