/* SPDX-License-Identifier: BSD-3-Clause */
#include "in_order.h"

#include <stdlib.h>
#include <string.h>

struct executor {
    const struct weft__issue *issue;
    const struct in_order_groups *groups;
    const uint8_t *fires;
    uint8_t *ended;
    uint8_t *issued;
    uint8_t *signalled; /* events */
    uint32_t *left;     /* predecessors that have not ended; ANY: 0 once one has */
    uint32_t *next;     /* by rank: in groups->nodes, its group that is next or runs */
    uint8_t *running;   /* by rank */
    uint32_t *place;    /* of an end among those of its rank, peer and direction */
    uint32_t nodes, count;
};

static int rank_of(const struct weft__issue *issue, uint32_t node)
{
    int r = 0;

    while (issue->base[r + 1] <= node)
        r++;
    return r;
}

static int is_message(const struct executor *x, uint32_t node)
{
    return x->issue->nodes[node].kind == WEFT_NODE_SEND ||
           x->issue->nodes[node].kind == WEFT_NODE_RECV;
}

/* Whether it is for the groups to say when it starts. */
static int is_grouped(const struct executor *x, uint32_t node)
{
    return x->groups && is_message(x, node) && weft__issue_in_order(x->issue, node);
}

static void end(struct executor *x, uint32_t node)
{
    x->ended[node] = 1;
    x->count++;
    for (uint32_t e = x->issue->first[node]; e < x->issue->first[node + 1]; e++) {
        uint32_t next = x->issue->after[e];

        if (x->left[next])
            x->left[next] = x->issue->nodes[next].flags & WEFT__ISSUE_ANY ? 0 : x->left[next] - 1;
    }
}

static int has_signals(const struct executor *x, uint32_t event)
{
    int rank = rank_of(x->issue, event);

    for (uint32_t n = 0; n < x->nodes; n++)
        if (x->issue->nodes[n].kind == WEFT_NODE_SIGNAL && x->issue->nodes[n].peer == rank &&
            x->issue->nodes[n].tag == x->issue->nodes[event].tag)
            return 1;
    return 0;
}

/* A node that is no message of a group: 1 if something has happened to it. */
static int step_node(struct executor *x, uint32_t node)
{
    const struct weft__issue_node *n = &x->issue->nodes[node];
    uint32_t other = x->issue->partner[node];

    if (x->ended[node] || x->left[node] || is_grouped(x, node))
        return 0;
    if (is_message(x, node) && other != WEFT__ISSUE_NONE) {
        if (x->left[other] || x->ended[other])
            return 0;
        end(x, other);
    } else if (n->kind == WEFT_NODE_EVENT) {
        int own = n->tag == WEFT_CHANNEL_NONE || !has_signals(x, node);

        if (n->flags & WEFT__ISSUE_CHOICE || (own && x->fires && !x->fires[node]) ||
            (!own && !x->signalled[node]))
            return 0;
    } else if (n->kind == WEFT_NODE_SIGNAL) {
        for (uint32_t e = x->issue->base[n->peer]; e < x->issue->base[n->peer + 1]; e++)
            if (x->issue->nodes[e].kind == WEFT_NODE_EVENT && x->issue->nodes[e].tag == n->tag)
                x->signalled[e] = 1;
    }
    end(x, node);
    return 1;
}

static uint32_t past_group(const struct executor *x, int rank)
{
    uint32_t at = x->next[rank], past = at;

    while (past < x->groups->first[rank + 1] && x->groups->group[past] == x->groups->group[at])
        past++;
    return past;
}

/* The group of a rank that is next: issued, or ended, if that can be. */
static int step_rank(struct executor *x, int rank)
{
    uint32_t at = x->next[rank], past;

    if (at == x->groups->first[rank + 1])
        return 0;
    past = past_group(x, rank);
    if (!x->running[rank]) {
        for (uint32_t i = at; i < past; i++)
            if (x->left[x->groups->nodes[i]])
                return 0;
        for (uint32_t i = at; i < past; i++)
            x->issued[x->groups->nodes[i]] = 1;
        x->running[rank] = 1;
        return 1;
    }
    for (uint32_t i = at; i < past; i++)
        if (!x->issued[x->issue->partner[x->groups->nodes[i]]])
            return 0;
    for (uint32_t i = at; i < past; i++)
        end(x, x->groups->nodes[i]);
    x->running[rank] = 0;
    x->next[rank] = past;
    return 1;
}

/* Without tags: what a rank issues to another one is taken there in that order. */
static int mismatches(struct executor *x)
{
    for (uint32_t i = 0; i < x->groups->first[x->issue->size]; i++) {
        uint32_t node = x->groups->nodes[i], count = 0;
        const struct weft__issue_node *n = &x->issue->nodes[node];

        for (uint32_t j = x->groups->first[rank_of(x->issue, node)]; j < i; j++) {
            const struct weft__issue_node *m = &x->issue->nodes[x->groups->nodes[j]];

            count += m->kind == n->kind && m->peer == n->peer;
        }
        x->place[node] = count;
    }
    for (uint32_t i = 0; i < x->groups->first[x->issue->size]; i++)
        if (x->place[x->groups->nodes[i]] != x->place[x->issue->partner[x->groups->nodes[i]]])
            return 1;
    return 0;
}

static void run(struct executor *x, uint64_t random)
{
    uint32_t ranks = x->groups ? (uint32_t)x->issue->size : 0, things = x->nodes + ranks;
    uint32_t idle = 0, at = 0;

    while (idle < things) {
        uint32_t thing = at++ % things;

        if (random && idle == 0) { /* another one; then all of them in turn */
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            at = (uint32_t)(random >> 33) % things;
            thing = at++ % things;
        }
        if (thing < x->nodes ? step_node(x, thing) : step_rank(x, (int)(thing - x->nodes)))
            idle = 0;
        else
            idle++;
    }
}

void in_order_execute(const struct weft__issue *issue, const struct in_order_groups *groups,
                      const uint8_t *fires, uint64_t random, struct in_order_outcome *outcome)
{
    struct executor x = {.issue = issue, .groups = groups, .fires = fires, .ended = outcome->ended};
    size_t nodes = x.nodes = issue->base[issue->size], ranks = (size_t)issue->size;

    x.issued = calloc(nodes + 1, 1);
    x.signalled = calloc(nodes + 1, 1);
    x.left = malloc((nodes + 1) * sizeof *x.left);
    x.place = calloc(nodes + 1, sizeof *x.place);
    x.next = calloc(ranks, sizeof *x.next);
    x.running = calloc(ranks, 1);
    if (!x.issued || !x.signalled || !x.left || !x.place || !x.next || !x.running)
        abort();
    memset(x.ended, 0, nodes);
    if (nodes)
        memcpy(x.left, issue->waits, nodes * sizeof *x.left);
    if (groups)
        memcpy(x.next, groups->first, ranks * sizeof *x.next);
    run(&x, random);
    outcome->mismatch = groups ? mismatches(&x) : 0;
    outcome->ended_count = x.count;
    free(x.running);
    free(x.next);
    free(x.place);
    free(x.left);
    free(x.signalled);
    free(x.issued);
}
