/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The communicators that joint nodes need: one for each list of ranks, made in layers. A rank is in
 * at most one of a layer, so all of a layer are joined at the same time, and layer after layer.
 *
 *     0 1 2 3    4 5 6 7        layer 0
 *     0 4   1 5   2 6   3 7     layer 1
 */
#include "runtime/context/accord.h"

#include <string.h>

#include "runtime/base/alloc.h"

struct making {
    struct weft__circle_sets *sets;
    size_t rank_capacity, set_capacity;
    size_t rank_count;
    const struct weft__issue *issue;
    uint32_t *of_rank; /* the latest set that begins with a rank, or WEFT__NONE */
    uint32_t *layer;   /* of a rank: the first in which it has no set */
};

static int is_known(const struct making *making, const int32_t *ranks, uint32_t count)
{
    const struct weft__circle_sets *sets = making->sets;

    for (uint32_t s = making->of_rank[ranks[0]]; s != WEFT__NONE; s = sets->at[s].next)
        if (sets->at[s].count == count &&
            memcmp(sets->ranks + sets->at[s].first, ranks, count * sizeof *ranks) == 0)
            return 1;
    return 0;
}

/* All ranks of the context, as they are: these have a communicator for messages. */
static int is_everybody(const struct making *making, const int32_t *ranks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (ranks[i] != (int32_t)i)
            return 0;
    return count == (uint32_t)making->issue->size;
}

/* A layer in which none of its ranks has another one. */
static void put_in_layer(struct making *making, struct weft__circle_set *set)
{
    const int32_t *ranks = making->sets->ranks + set->first;

    for (uint32_t i = 0; i < set->count; i++)
        if (making->layer[ranks[i]] > set->layer)
            set->layer = making->layer[ranks[i]];
    for (uint32_t i = 0; i < set->count; i++)
        making->layer[ranks[i]] = set->layer + 1;
    if (set->layer >= making->sets->layers)
        making->sets->layers = set->layer + 1;
}

/* The ring that begins with a node. */
static int add(struct making *making, const int32_t *rank_of, uint32_t node)
{
    struct weft__circle_sets *sets = making->sets;
    uint32_t count = 0, next = node;
    int32_t *ranks;

    do {
        if (weft__grow((void **)&sets->ranks, &making->rank_capacity,
                       making->rank_count + count + 1, sizeof *sets->ranks))
            return -1;
        sets->ranks[making->rank_count + count++] = rank_of[next];
        next = making->issue->partner[next];
    } while (next != node);
    ranks = sets->ranks + making->rank_count;
    if (is_everybody(making, ranks, count) || is_known(making, ranks, count))
        return 0;
    if (weft__grow((void **)&sets->at, &making->set_capacity, sets->count + (size_t)1,
                   sizeof *sets->at))
        return -1;
    sets->at[sets->count] = (struct weft__circle_set){
        .first = (uint32_t)making->rank_count, .count = count, .next = making->of_rank[ranks[0]]};
    making->of_rank[ranks[0]] = sets->count;
    put_in_layer(making, &sets->at[sets->count++]);
    making->rank_count += count;
    return 0;
}

int weft__circle_sets_find(const struct weft__issue *issue, struct weft__circle_sets *sets)
{
    size_t ranks = (size_t)issue->size;
    uint32_t nodes = issue->base[issue->size];
    struct making making = {.sets = sets,
                            .issue = issue,
                            .of_rank = weft__malloc(ranks, sizeof *making.of_rank),
                            .layer = weft__calloc(ranks, sizeof *making.layer)};
    int32_t *rank_of = weft__malloc(nodes, sizeof *rank_of);
    int status = making.of_rank && making.layer && rank_of ? 0 : -1;

    for (int r = 0; r < issue->size && !status; r++) {
        making.of_rank[r] = WEFT__NONE;
        for (uint32_t n = issue->base[r]; n < issue->base[r + 1]; n++)
            rank_of[n] = r;
    }
    for (uint32_t n = 0; n < nodes && !status; n++)
        if (weft__issue_is_joint(issue, n) && issue->nodes[n].place == 0 &&
            issue->partner[n] != WEFT__ISSUE_NONE)
            status = add(&making, rank_of, n);
    weft__free(rank_of);
    weft__free(making.layer);
    weft__free(making.of_rank);
    return status;
}

void weft__circle_sets_free(struct weft__circle_sets *sets)
{
    weft__free(sets->at);
    weft__free(sets->ranks);
    *sets = (struct weft__circle_sets){0};
}

/* ---- what a rank is told of them: for each layer how many ranks it is with, and which ---- */

/* The set of a rank in a layer, or NULL. */
static const struct weft__circle_set *find(const struct weft__circle_sets *sets, uint32_t layer,
                                           int rank)
{
    for (uint32_t s = 0; s < sets->count; s++)
        for (uint32_t i = 0; i < sets->at[s].count && sets->at[s].layer == layer; i++)
            if (sets->ranks[sets->at[s].first + i] == rank)
                return &sets->at[s];
    return NULL;
}

size_t weft__circle_sets_bytes(const struct weft__circle_sets *sets, int rank)
{
    size_t bytes = 0;

    for (uint32_t layer = 0; layer < sets->layers; layer++) {
        const struct weft__circle_set *set = find(sets, layer, rank);

        bytes += sizeof(uint32_t) + (set ? set->count * sizeof(int32_t) : 0);
    }
    return bytes;
}

void weft__circle_sets_put(const struct weft__circle_sets *sets, int rank, char *to)
{
    for (uint32_t layer = 0; layer < sets->layers; layer++) {
        const struct weft__circle_set *set = find(sets, layer, rank);
        uint32_t count = set ? set->count : 0;

        memcpy(to, &count, sizeof count);
        to += sizeof count;
        if (count > 0)
            memcpy(to, sets->ranks + set->first, count * sizeof *sets->ranks);
        to += count * sizeof *sets->ranks;
    }
}
