/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Races, rank by rank: two nodes touch a common byte, one of them writes, and the graph of their
 * rank does not order them. Orders that only messages make do not count: a send's memory is
 * borrowed until the send has ended, whatever the receiver may have answered, and the engine fuses
 * nodes by what the graph says.
 *
 * Nodes are taken in a topological order, and each is compared with those that wrote or have read
 * its bytes last, kept as intervals. That is enough: if all such neighbours are ordered then all
 * pairs are, since "surely before" is transitive. An ANY node is surely after what is before all of
 * its predecessors; of a choice one event fires, so each combination of winners is gone through
 * with what the losers retire left out.
 *
 * Whether x is before y is nearly always an edge or a few steps; what is left is answered in
 * batches, a bit for each x, carried along all edges once a batch.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/hash.h"
#include "runtime/base/search.h"
#include "runtime/check/check.h"
#include "runtime/graph/access.h"
#include "runtime/graph/lists.h"
#include "runtime/graph/settle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_WORDS = 8, NEAR = 64, MOST_COMBINATIONS = 256, MOST_RACES = 8 };

/* Is node x before node y? If not, they race for these bytes. */
struct query {
    uint32_t x, y;
    int32_t slot;
    uint64_t begin, end; /* elements */
};

struct race {
    struct weft__check *check;
    const struct weft_schedule *schedule;
    int rank;
    uint32_t base, nodes;
    uint32_t *order, *position; /* topological */
    uint32_t *first, *before;   /* predecessors of n: before[first[n] .. first[n + 1]) */
    uint8_t *retired;
    uint32_t *left; /* of a node, while nodes are retired: see weft__settle() */
    struct weft__accesses accesses;
    struct query *queries;
    size_t query_count, query_capacity;
    uint32_t *stamp, *near; /* of the search for what is near */
    uint32_t stamps;
    uint64_t *bits;
    int found;
};

/* ---- the graph of the rank ---- */

/* 0; 1: a cycle, which is a fault already; -1 without memory. */
static int prepare_order(struct race *race)
{
    const struct weft__check *check = race->check;
    uint32_t base = race->base, head = 0, tail = 0;
    uint32_t *waits = race->stamp;

    memcpy(waits, check->waits + base, race->nodes * sizeof *waits);
    for (uint32_t n = 0; n < race->nodes; n++)
        if (!waits[n])
            race->order[tail++] = n;
    while (head < tail) {
        uint32_t n = race->order[head];

        race->position[n] = head++;
        for (uint32_t e = check->first[base + n]; e < check->first[base + n + 1]; e++)
            if (--waits[check->after[e] - base] == 0)
                race->order[tail++] = check->after[e] - base;
    }
    memset(race->stamp, 0, race->nodes * sizeof *race->stamp);
    race->stamps = 0;
    if (weft__lists_fill(race->first, race->before, race->schedule->edges,
                         race->schedule->edge_count, race->nodes, WEFT__PREDECESSORS))
        return -1;
    return tail == race->nodes ? 0 : 1;
}

/* ---- what has touched what ---- */

static int is_sure(const struct race *race, uint32_t node)
{
    const struct weft__snode *n = &race->schedule->nodes[node];
    uint32_t live = 0;

    if (!n->any)
        return 1;
    for (uint32_t e = race->first[node]; e < race->first[node + 1]; e++)
        live += !race->retired[race->before[e]];
    return live == 1;
}

/* Looks back from y over a few nodes: 1 if x is among what must have ended before it. */
static int is_near(struct race *race, uint32_t x, uint32_t y)
{
    uint32_t head = 0, tail = 0;

    for (uint32_t e = race->first[y]; e < race->first[y + 1]; e++)
        if (race->before[e] == x && is_sure(race, y))
            return 1;
    race->stamps++;
    race->near[tail++] = y;
    race->stamp[y] = race->stamps;
    while (head < tail && tail < NEAR) {
        uint32_t n = race->near[head++];

        if (!is_sure(race, n))
            continue;
        for (uint32_t e = race->first[n]; e < race->first[n + 1] && tail < NEAR; e++) {
            uint32_t p = race->before[e];

            if (p == x)
                return 1;
            if (race->retired[p] || race->stamp[p] == race->stamps ||
                race->position[p] < race->position[x])
                continue;
            race->stamp[p] = race->stamps;
            race->near[tail++] = p;
        }
    }
    return 0;
}

static int ask(struct race *race, uint32_t x, uint32_t y, int32_t slot, uint64_t begin,
               uint64_t end)
{
    struct query *last = race->query_count ? &race->queries[race->query_count - 1] : NULL;

    if (x == WEFT__NOBODY || x == y)
        return 0;
    if (last && last->x == x && last->y == y && last->slot == slot && last->end == begin) {
        last->end = end;
        return 0;
    }
    if (is_near(race, x, y))
        return 0;
    if (weft__grow((void **)&race->queries, &race->query_capacity, race->query_count + 1,
                   sizeof *race->queries))
        return -1;
    race->queries[race->query_count++] = (struct query){x, y, slot, begin, end};
    return 0;
}

/* Where a tracker orders a node after those it finds, here the orders are what is in question: the
 * writer is asked about even where there are readers, who are ordered after it or race with it:
 * so each pair is named. */
static int ask_all(void *user, const struct weft__access *before, int32_t slot, uint32_t node,
                   int write)
{
    struct race *race = user;
    const struct weft__reader *readers = race->accesses.readers;

    if (ask(race, before->writer, node, slot, before->begin, before->end))
        return -1;
    for (uint32_t r = before->readers; write && r != WEFT__NOBODY; r = readers[r].next)
        if (ask(race, readers[r].node, node, slot, before->begin, before->end))
            return -1;
    return 0;
}

static int touch_all(struct race *race)
{
    weft__accesses_clear(&race->accesses);
    race->query_count = 0;
    for (uint32_t i = 0; i < race->nodes; i++) {
        uint32_t n = race->order[i];
        const struct weft__snode *node = &race->schedule->nodes[n];
        const struct weft_region *regions;

        if (race->retired[n] || !node->region_count)
            continue;
        regions = race->schedule->regions + node->regions;
        /* Reads first: what it writes itself is no business of its reads. */
        for (int write = 0; write < 2; write++)
            for (uint32_t r = 0; r < node->region_count; r++)
                if (weft__snode_writes(race->schedule, node, r) == write &&
                    race->schedule->buffers[regions[r].slot].kind != WEFT_SLOT_INPUT &&
                    weft__accesses_add(&race->accesses, &regions[r], n, write, ask_all, race))
                    return -1;
    }
    return 0;
}

/* ---- answers ---- */

static int race_fault(struct race *race, const struct query *query)
{
    struct weft__check *check = race->check;
    const struct weft__buffer *buffer = &race->schedule->buffers[query->slot];
    uint64_t element = weft_dtype_size(buffer->dtype);
    uint32_t low = query->x < query->y ? query->x : query->y;
    uint32_t high = query->x < query->y ? query->y : query->x;
    struct weft__fault fault;

    weft__fault_begin(&fault, WEFT_FAULT_RACE);
    fault.bytes = (query->end - query->begin) * element;
    weft__out_format(&fault.text, "rank %d: ", race->rank);
    weft__fault_node(check, &fault, race->base + low);
    weft__out_text(&fault.text, " and ");
    weft__fault_node(check, &fault, race->base + high);
    weft__out_text(&fault.text, " both touch ");
    weft__fault_bytes(&fault.text, buffer, query->begin * element, query->end * element);
    weft__out_format(&fault.text, " (%" PRIu64 " bytes), and nothing orders them", fault.bytes);
    race->found++;
    return weft__fault_end(check, &fault);
}

/* What is before each node, of up to 64 * words nodes x. */
static void carry(struct race *race, const uint32_t *sources, size_t count, size_t words)
{
    uint64_t *bits = race->bits;

    memset(bits, 0, (size_t)race->nodes * words * sizeof *bits);
    for (uint32_t i = 0; i < race->nodes; i++) {
        uint32_t n = race->order[i];
        uint64_t *own = bits + (size_t)n * words;
        int any = race->schedule->nodes[n].any, begun = 0;

        if (race->retired[n])
            continue;
        for (uint32_t e = race->first[n]; e < race->first[n + 1]; e++) {
            uint32_t p = race->before[e];
            const uint64_t *theirs = bits + (size_t)p * words;

            if (race->retired[p])
                continue;
            /* A node's own bit is in its row; it is no predecessor of itself, which nobody asks. */
            for (size_t w = 0; w < words; w++)
                own[w] = any && begun ? own[w] & theirs[w] : own[w] | theirs[w];
            begun = 1;
        }
        size_t source = 0;

        WEFT__SEARCH(source, count, middle, sources[middle] < n)
        if (source < count && sources[source] == n)
            own[source / 64] |= (uint64_t)1 << (source % 64);
    }
}

static int compare_queries(const void *left, const void *right)
{
    const struct query *a = left, *b = right;

    if (a->x != b->x)
        return a->x < b->x ? -1 : 1;
    if (a->y != b->y)
        return a->y < b->y ? -1 : 1;
    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static int answer(struct race *race)
{
    uint32_t sources[64 * BATCH_WORDS];
    size_t begin = 0;

    if (race->query_count)
        qsort(race->queries, race->query_count, sizeof *race->queries, compare_queries);
    while (begin < race->query_count && race->found < MOST_RACES) {
        size_t end = begin, count = 0;

        for (; end < race->query_count; end++) {
            uint32_t x = race->queries[end].x;

            if (count && sources[count - 1] == x)
                continue;
            if (count == sizeof sources / sizeof sources[0])
                break;
            sources[count++] = x;
        }
        size_t words = (count + 63) / 64, source = 0;

        carry(race, sources, count, words);
        for (; begin < end && race->found < MOST_RACES; begin++) {
            const struct query *q = &race->queries[begin];

            while (source + 1 < count && sources[source] != q->x)
                source++;
            if (!(race->bits[(size_t)q->y * words + source / 64] >> (source % 64) & 1) &&
                race_fault(race, q))
                return -1;
        }
    }
    return 0;
}

/* ---- choices ---- */

/* Retires the losers of a combination of winners, and what depends on them. */
static void retire(struct race *race, const uint32_t *winners, size_t first, size_t last)
{
    const struct weft__check *check = race->check;

    memset(race->retired, 0, race->nodes);
    if (first == last)
        return;
    for (uint32_t n = 0; n < race->nodes; n++)
        race->left[n] = race->first[n + 1] - race->first[n];
    for (size_t c = first; c < last; c++)
        for (uint32_t m = check->choice_first[c]; m < check->choice_first[c + 1]; m++)
            if (m != winners[c - first])
                race->retired[check->members[m].node - race->base] = 1;
    for (uint32_t i = 0; i < race->nodes; i++) {
        uint32_t n = race->order[i], id = race->base + n;

        for (uint32_t e = check->first[id]; race->retired[n] && e < check->first[id + 1]; e++) {
            uint32_t next = check->after[e] - race->base;

            if (weft__settle(&race->left[next], race->schedule->nodes[next].any, 0) ==
                WEFT__SETTLED_RETIRES)
                race->retired[next] = 1;
        }
    }
}

/* The next combination: counts up with a digit a choice. 0 after the last. */
static int next_combination(const struct weft__check *check, uint32_t *winners, size_t first,
                            size_t last)
{
    for (size_t c = first; c < last; c++) {
        if (++winners[c - first] < check->choice_first[c + 1])
            return 1;
        winners[c - first] = check->choice_first[c];
    }
    return 0;
}

static uint64_t combinations(const struct weft__check *check, size_t first, size_t last)
{
    uint64_t product = 1;

    for (size_t c = first; c < last && product <= MOST_COMBINATIONS; c++)
        product *= check->choice_first[c + 1] - check->choice_first[c];
    return product;
}

/* Too many combinations: each event wins in some of them, with the other choices drawn at random.
 */
static void draw(const struct weft__check *check, uint32_t *winners, size_t first, size_t last,
                 uint64_t turn, uint64_t *random)
{
    for (size_t c = first; c < last; c++) {
        uint64_t own = check->choice_first[c + 1] - check->choice_first[c];

        winners[c - first] = check->choice_first[c] +
                             (uint32_t)((turn < 2 * own ? turn : weft__random(random)) % own);
    }
}

/* The choices of a rank: from `*first` on, which moves past them. */
static int rank_races(struct race *race, size_t *first)
{
    struct weft__check *check = race->check;
    size_t begin = *first, end = begin;
    uint64_t random = check->config.seed;

    while (end < check->choice_count && check->members[check->choice_first[end]].rank == race->rank)
        end++;
    *first = end;
    uint32_t *winners = weft__malloc(end - begin, sizeof *winners);
    if (!winners)
        return -1;
    for (size_t c = begin; c < end; c++)
        winners[c - begin] = check->choice_first[c];
    int bounded = combinations(check, begin, end) > MOST_COMBINATIONS, status = 0;

    check->report->summary.bounded |= bounded;
    race->found = 0;
    for (uint64_t turn = 0; !status && race->found < MOST_RACES; turn++) {
        if (bounded)
            draw(check, winners, begin, end, turn, &random);
        retire(race, winners, begin, end);
        status = touch_all(race);
        if (!status)
            status = answer(race);
        if (bounded ? turn == MOST_COMBINATIONS : !next_combination(check, winners, begin, end))
            break;
    }
    check->report->summary.more |= race->found >= MOST_RACES;
    weft__free(winners);
    return status;
}

/* ---- all ranks ---- */

static int reserve(struct race *race)
{
    const struct weft__check *check = race->check;
    size_t nodes = 1, edges = 1;

    for (int r = 0; r < check->size; r++) {
        const struct weft_schedule *s = check->schedules[r];

        if (!s)
            continue;
        nodes = s->node_count > nodes ? s->node_count : nodes;
        edges = s->edge_count > edges ? s->edge_count : edges;
    }
    race->order = weft__malloc(nodes, sizeof *race->order);
    race->position = weft__malloc(nodes, sizeof *race->position);
    race->first = weft__malloc(nodes + 1, sizeof *race->first);
    race->before = weft__malloc(edges, sizeof *race->before);
    race->retired = weft__malloc(nodes, sizeof *race->retired);
    race->left = weft__malloc(nodes, sizeof *race->left);
    race->stamp = weft__malloc(nodes, sizeof *race->stamp);
    race->near = weft__malloc(NEAR, sizeof *race->near);
    race->bits = weft__malloc(nodes, BATCH_WORDS * sizeof *race->bits);
    return race->order && race->position && race->first && race->before && race->retired &&
                   race->left && race->stamp && race->near && race->bits
               ? 0
               : -1;
}

int weft__check_races(struct weft__check *check)
{
    struct race race = {.check = check};
    size_t choice = 0;
    int status = reserve(&race);

    for (int r = 0; !status && r < check->size; r++) {
        race.schedule = check->schedules[r];
        if (!race.schedule)
            continue;
        race.rank = r;
        race.base = check->base[r];
        race.nodes = (uint32_t)race.schedule->node_count;
        status = prepare_order(&race);
        if (status > 0) {
            status = 0;
            while (choice < check->choice_count &&
                   check->members[check->choice_first[choice]].rank == r)
                choice++;
            continue;
        }
        if (!status)
            status = rank_races(&race, &choice);
    }
    weft__accesses_free(&race.accesses);
    weft__free(race.bits);
    weft__free(race.near);
    weft__free(race.stamp);
    weft__free(race.left);
    weft__free(race.retired);
    weft__free(race.before);
    weft__free(race.first);
    weft__free(race.position);
    weft__free(race.order);
    weft__free(race.queries);
    return status;
}
