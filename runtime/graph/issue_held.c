/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that the order would make wait for an event of the application, though their graphs do
 * not: then it may be that the application fires it only after the message has come.
 *
 *     rank 0   event E ---> send A to 1
 *     rank 1   recv A from 0, recv B from 2       in one round, so that B would wait for E, too
 *     rank 2   send B to 1
 *
 * What ends before the application fires anything needs nothing. Each other node has the set of
 * those that it needs: events that the application fires, and nodes that need one of several others
 * (after ANY, events of signals), each of which stands for itself. A rank's messages of the rounds
 * up to one need what the rounds need; the order asks for nothing new if each message needs just
 * that. Sets are looked at in batches, a bit for each, so that memory grows with the nodes only.
 */
#include "runtime/base/alloc.h"
#include "runtime/graph/issue.h"

#include <string.h>

enum { WORDS = 4, BATCH = 64 * WORDS };

struct needs {
    uint64_t bits[WORDS];
};

struct held {
    struct weft__issue_run *run;
    uint32_t *atoms; /* nodes that stand for themselves, in the order in which they ended */
    uint32_t atom_count;
    struct needs *sets; /* by node */
    uint8_t *done;      /* a node whose set is known */
    uint8_t *told;      /* a message that is counted */
};

/* A node after ANY of several. */
static int is_either(const struct held *h, uint32_t node)
{
    const struct weft__issue *issue = h->run->issue;

    return issue->nodes[node].flags & WEFT__ISSUE_ANY && issue->waits[node] > 1;
}

/* Of nodes that are not sure. */
static int stands(const struct held *h, uint32_t node)
{
    uint32_t listener = weft__issue_listener_of(h->run, node);

    if (is_either(h, node))
        return 1;
    return h->run->issue->nodes[node].kind == WEFT_NODE_EVENT &&
           (listener == WEFT__ISSUE_NONE || h->run->fired[listener] != 1);
}

/* ---- sets ---- */

static void join(struct needs *set, const struct needs *other)
{
    for (int w = 0; w < WORDS; w++)
        set->bits[w] |= other->bits[w];
}

/* What follows a node needs what it needs. */
static void pass_on(struct held *h, uint32_t node)
{
    const struct weft__issue *issue = h->run->issue;

    for (uint32_t e = issue->first[node]; e < issue->first[node + 1]; e++)
        if (!h->done[issue->after[e]])
            join(&h->sets[issue->after[e]], &h->sets[node]);
}

/* A joint node needs what all of its ranks need; they have ended one after the other. */
static void gather_ring(struct held *h, uint32_t node)
{
    const uint32_t *partner = h->run->issue->partner;
    struct needs all = h->sets[node];
    uint32_t next;

    for (next = partner[node]; next != node; next = partner[next]) {
        if (!h->done[next])
            return;
        join(&all, &h->sets[next]);
    }
    do {
        h->sets[next] = all;
        pass_on(h, next);
        next = partner[next];
    } while (next != node);
}

/* The sets of a batch, of all nodes. The two ends of a message have ended one after the other. */
static void gather(struct held *h, uint32_t batch)
{
    const struct weft__issue_run *run = h->run;
    uint32_t atom = 0;

    memset(h->sets, 0, run->nodes * sizeof *h->sets);
    memset(h->done, 0, run->nodes);
    for (uint32_t i = 0; i < run->sure_count; i++)
        h->done[run->ended[i]] = 1;
    for (uint32_t i = run->sure_count; i < run->ended_count; i++) {
        uint32_t node = run->ended[i], other = run->issue->partner[node];
        struct needs *set = &h->sets[node];

        if (is_either(h, node))
            memset(set, 0, sizeof *set);
        if (stands(h, node)) {
            if (atom >= batch && atom < batch + BATCH)
                set->bits[(atom - batch) / 64] |= UINT64_C(1) << ((atom - batch) % 64);
            atom++;
        }
        h->done[node] = 1;
        if (weft__issue_is_joint(run->issue, node) && other != WEFT__ISSUE_NONE) {
            gather_ring(h, node);
        } else if (other == WEFT__ISSUE_NONE) {
            pass_on(h, node);
        } else if (h->done[other]) {
            join(set, &h->sets[other]);
            h->sets[other] = *set;
            pass_on(h, other);
            pass_on(h, node);
        }
    }
}

static uint32_t atom_of(const struct held *h, uint32_t batch, const struct needs *set,
                        const struct needs *own)
{
    for (uint32_t bit = 0; bit < BATCH; bit++)
        if ((set->bits[bit / 64] & ~own->bits[bit / 64]) >> (bit % 64) & 1)
            return h->atoms[batch + bit];
    return WEFT__ISSUE_NONE;
}

static void compare(struct held *h, uint32_t batch, uint32_t node, const struct needs *rounds)
{
    struct weft__issue_order *order = h->run->order;
    uint32_t atom = atom_of(h, batch, rounds, &h->sets[node]);

    if (atom == WEFT__ISSUE_NONE || h->told[node])
        return;
    h->told[node] = 1;
    if (!order->unknown++) {
        order->unknown_node = node;
        order->unknown_event = atom;
    }
}

/* Each rank's rounds. */
static void compare_rounds(struct held *h, uint32_t batch)
{
    const struct weft__issue_order *order = h->run->order;

    for (int r = 0; r < h->run->issue->size; r++) {
        struct needs rounds = {{0}};
        uint32_t past;

        for (uint32_t i = order->start[r]; i < order->start[r + 1]; i = past) {
            uint32_t round = order->round[order->sequence[i]];

            for (past = i;
                 past < order->start[r + 1] && order->round[order->sequence[past]] == round; past++)
                join(&rounds, &h->sets[order->sequence[past]]);
            for (uint32_t k = i; k < past; k++)
                compare(h, batch, order->sequence[k], &rounds);
        }
    }
}

/* ---- all ---- */

static void find_atoms(struct held *h)
{
    for (uint32_t i = h->run->sure_count; i < h->run->ended_count; i++)
        if (stands(h, h->run->ended[i]))
            h->atoms[h->atom_count++] = h->run->ended[i];
}

int weft__issue_held(struct weft__issue_run *run)
{
    struct held h = {.run = run};
    int status = -1;

    if (run->sure_count == run->ended_count || !run->order->messages)
        return 0;
    h.atoms = weft__malloc(run->nodes, sizeof *h.atoms);
    h.sets = weft__malloc(run->nodes, sizeof *h.sets);
    h.done = weft__malloc(run->nodes, 1);
    h.told = weft__calloc(run->nodes, 1);
    if (h.atoms && h.sets && h.done && h.told) {
        find_atoms(&h);
        for (uint32_t batch = 0; batch < h.atom_count; batch += BATCH) {
            gather(&h, batch);
            compare_rounds(&h, batch);
        }
        status = 0;
    }
    weft__free(h.told);
    weft__free(h.done);
    weft__free(h.sets);
    weft__free(h.atoms);
    return status;
}
