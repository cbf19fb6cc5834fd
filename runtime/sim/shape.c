/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From schedules to shapes. A shape is made in scratch memory that is used again, compared with
 * those there are, and copied only if it is new. What commit checks about messages is checked here.
 */
#include "runtime/sim/sim.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/graph/joint.h"
#include "runtime/graph/lists.h"
#include "runtime/graph/op_price.h"
#include "runtime/graph/schedule.h"

#include <stdlib.h>
#include <string.h>

/* Memory for ranks comes from blocks: a few bytes each, freed together. */
struct block {
    struct block *next;
    size_t used, size;
    _Alignas(16) unsigned char memory[];
};

enum { BLOCK_BYTES = 1 << 20 };

/* A (peer, tag) of the rank and direction that `round` counts. */
struct stamp {
    uint64_t key;
    uint64_t round;
};

struct weft__sim_maker {
    const char *who; /* in errors: the public function */
    const struct weft_sim_config *config;
    struct block *blocks;
    struct weft__sim_shape **table;
    size_t table_size, shape_count;
    struct weft__sim_node *nodes; /* scratch */
    size_t node_capacity;
    uint32_t *first, *after; /* successors */
    size_t first_capacity, after_capacity;
    uint32_t *peers; /* sends, receives, signals: each of node_capacity */
    size_t peer_capacity;
    struct stamp *stamps;
    size_t stamp_size;
    uint64_t round;
};

struct weft__sim_maker *weft__sim_maker_create(const char *who,
                                               const struct weft_sim_config *config)
{
    struct weft__sim_maker *maker = weft__calloc(1, sizeof *maker);

    if (maker) {
        maker->who = who;
        maker->config = config;
    }
    return maker;
}

void weft__sim_maker_destroy(struct weft__sim_maker *maker)
{
    if (!maker)
        return;
    for (struct block *block = maker->blocks, *next; block; block = next) {
        next = block->next;
        weft__free(block);
    }
    weft__free(maker->table);
    weft__free(maker->nodes);
    weft__free(maker->first);
    weft__free(maker->after);
    weft__free(maker->peers);
    weft__free(maker->stamps);
    weft__free(maker);
}

static void *take(struct weft__sim_maker *maker, size_t bytes)
{
    struct block *block = maker->blocks;
    size_t rounded = (bytes + 15) & ~(size_t)15;

    if (rounded < bytes || rounded > SIZE_MAX - sizeof *block)
        return NULL;
    if (!block || block->size - block->used < rounded) {
        size_t size = rounded > BLOCK_BYTES ? rounded : BLOCK_BYTES;

        block = weft__malloc(1, sizeof *block + size);
        if (!block)
            return NULL;
        *block = (struct block){.next = maker->blocks, .size = size};
        maker->blocks = block;
    }
    block->used += rounded;
    return block->memory + block->used - rounded;
}

/* ---- messages that could not be told apart ---- */

/* Is this the second message of the key in this round? */
static int stamped(struct weft__sim_maker *maker, uint64_t key, uint64_t round)
{
    size_t mask = maker->stamp_size - 1;
    size_t at = weft__hash_word(0, key) & mask;

    for (; maker->stamps[at].round >= maker->round; at = (at + 1) & mask)
        if (maker->stamps[at].round == round && maker->stamps[at].key == key)
            return 1;
    maker->stamps[at] = (struct stamp){key, round};
    return 0;
}

static int duplicate(const char *who, const struct weft_schedule *s, size_t second)
{
    const struct weft__snode *node = &s->nodes[second];
    size_t first = 0;

    while (s->nodes[first].kind != node->kind || s->nodes[first].peer != node->peer ||
           s->nodes[first].tag != node->tag)
        first++;
    return weft__error(WEFT_ERR_DUPLICATE,
                       "%s: nodes %zu and %zu of schedule `%s` of rank %d are both a %s "
                       "with peer %d and tag %u; they could not be told apart",
                       who, first, second, s->name, s->rank,
                       weft_node_kind_name((weft_node_kind_t)node->kind), node->peer, node->tag);
}

static int reserve(struct weft__sim_maker *maker, const struct weft_schedule *s)
{
    size_t stamps = 64;

    while (stamps < 2 * s->node_count)
        stamps *= 2;
    if (s->node_count >= WEFT__SIM_NODES_MAX || s->edge_count >= UINT32_MAX)
        return weft__error(WEFT_ERR_UNSUPPORTED,
                           "%s: schedule `%s` of rank %d has %zu nodes and %zu edges, "
                           "at most %u and %u fit",
                           maker->who, s->name, s->rank, s->node_count, s->edge_count,
                           WEFT__SIM_NODES_MAX - 1, UINT32_MAX - 1);
    if (weft__grow((void **)&maker->nodes, &maker->node_capacity, s->node_count + 1,
                   sizeof *maker->nodes) ||
        weft__grow((void **)&maker->first, &maker->first_capacity, s->node_count + 1,
                   sizeof *maker->first) ||
        weft__grow((void **)&maker->after, &maker->after_capacity, s->edge_count + 1,
                   sizeof *maker->after) ||
        weft__grow((void **)&maker->peers, &maker->peer_capacity, 3 * s->node_count + 1,
                   sizeof *maker->peers))
        return weft__error_memory("a simulation");
    if (stamps > maker->stamp_size) {
        struct stamp *larger = weft__calloc(stamps, sizeof *larger);

        if (!larger)
            return weft__error_memory("a simulation");
        weft__free(maker->stamps);
        maker->stamps = larger;
        maker->stamp_size = stamps;
    }
    return WEFT_OK;
}

/* ---- nodes ---- */

static uint64_t region_bytes(const struct weft_schedule *s, const struct weft_region *region)
{
    return (uint64_t)region->count * weft_dtype_size(s->buffers[region->slot].dtype);
}

/* Of the message, or of what is written. */
static uint64_t node_bytes(const struct weft_schedule *s, const struct weft__snode *node)
{
    const struct weft_region *regions = &s->regions[node->regions];
    uint64_t bytes = 0;

    if (node->kind != WEFT_NODE_COMPUTE)
        return node->region_count ? region_bytes(s, regions) : 0;
    for (uint32_t i = 0; i < node->region_count; i++)
        if (weft__snode_writes(s, node, i)) {
            uint64_t more = region_bytes(s, &regions[i]);

            bytes = bytes + more < bytes ? UINT64_MAX : bytes + more;
        }
    return bytes;
}

/* Nodes and peers into scratch; `shape` gets the counts. */
static int make_nodes(struct weft__sim_maker *maker, const struct weft_schedule *s,
                      struct weft__sim_shape *shape)
{
    uint32_t *send_peer = maker->peers, *recv_peer = send_peer + s->node_count;
    uint32_t *signal_peer = recv_peer + s->node_count;

    maker->round += 2;
    for (size_t n = 0; n < s->node_count; n++) {
        const struct weft__snode *from = &s->nodes[n];
        struct weft__sim_node *to = &maker->nodes[n];
        uint64_t key = (uint64_t)(uint32_t)from->peer << 32 | from->tag;

        *to = (struct weft__sim_node){.bytes = node_bytes(s, from),
                                      .tag = from->tag,
                                      .kind = from->kind,
                                      .any = from->any,
                                      .up_to = from->up_to};
        shape->plain &= !from->any;
        if (from->kind == WEFT_NODE_SEND) {
            to->index = shape->sends++;
            send_peer[to->index] = (uint32_t)from->peer;
            if (stamped(maker, key, maker->round))
                return duplicate(maker->who, s, n);
        } else if (from->kind == WEFT_NODE_RECV) {
            to->index = shape->recvs++;
            recv_peer[to->index] = (uint32_t)from->peer;
            if (stamped(maker, key, maker->round + 1))
                return duplicate(maker->who, s, n);
        } else if (from->kind == WEFT_NODE_SIGNAL) {
            to->index = shape->signals++;
            signal_peer[to->index] = (uint32_t)from->peer;
        } else if (from->kind == WEFT_NODE_EVENT) {
            to->index = shape->events++;
            to->choice = (uint32_t)(from->choice + 1);
            shape->plain = 0;
        } else if (from->kind == WEFT_NODE_COMPUTE) {
            const struct weft_sim_op_cost *cost =
                weft__op_price_find(maker->config->op_costs, maker->config->op_cost_count, from);

            to->priced = cost != NULL;
            to->ticks = cost ? weft__ticks(weft__op_price_us(cost, s, from)) : 0;
        }
    }
    maker->nodes[s->node_count] = (struct weft__sim_node){0};
    return WEFT_OK;
}

/* Ascending: what becomes ready together starts in the order of creation. */
static int make_edges(struct weft__sim_maker *maker, const struct weft_schedule *s,
                      struct weft__sim_shape *shape)
{
    struct weft__sim_node *nodes = maker->nodes;

    if (weft__lists_fill(maker->first, maker->after, s->edges, s->edge_count, s->node_count,
                         WEFT__SUCCESSORS))
        return weft__error_memory("a simulation");
    shape->edges = maker->first[s->node_count];
    for (uint32_t e = 0; e < shape->edges; e++)
        nodes[maker->after[e]].waits++;
    for (size_t n = 0; n <= s->node_count; n++) {
        nodes[n].first = maker->first[n];
        if (nodes[n].waits > WEFT__SIM_COUNT)
            return weft__error(WEFT_ERR_UNSUPPORTED,
                               "%s: node %zu of schedule `%s` of rank %d has %u "
                               "predecessors, at most %u fit",
                               maker->who, n, s->name, s->rank, nodes[n].waits, WEFT__SIM_COUNT);
    }
    return WEFT_OK;
}

/* ---- shapes ---- */

static uint64_t hash_words(uint64_t hash, const void *words, size_t count)
{
    const unsigned char *at = words;

    for (size_t i = 0; i < count; i++, at += 8) {
        uint64_t word;

        memcpy(&word, at, sizeof word);
        hash = weft__hash_word(hash, word);
    }
    return hash;
}

static int table_grow(struct weft__sim_maker *maker)
{
    size_t size = maker->table_size ? 2 * maker->table_size : 64;
    struct weft__sim_shape **table;

    if (maker->shape_count < maker->table_size)
        return 0;
    table = weft__calloc(size, sizeof *table);
    if (!table)
        return -1;
    for (size_t i = 0; i < maker->table_size; i++)
        for (struct weft__sim_shape *shape = maker->table[i], *next; shape; shape = next) {
            next = shape->next;
            shape->next = table[shape->hash & (size - 1)];
            table[shape->hash & (size - 1)] = shape;
        }
    weft__free(maker->table);
    maker->table = table;
    maker->table_size = size;
    return 0;
}

static struct weft__sim_shape *copy_shape(struct weft__sim_maker *maker,
                                          const struct weft__sim_shape *counts)
{
    size_t node_bytes = (counts->nodes + (size_t)1) * sizeof(struct weft__sim_node);
    size_t words = (size_t)counts->edges + counts->sends + counts->recvs;
    struct weft__sim_shape *shape;
    uint32_t *after, *send_node, *recv_node;

    if (table_grow(maker))
        return NULL;
    shape = take(maker, sizeof *shape + node_bytes + words * sizeof *after);
    if (!shape)
        return NULL;
    memcpy(shape, counts, sizeof *shape);
    memcpy(shape->node, maker->nodes, node_bytes);
    after = (uint32_t *)&shape->node[counts->nodes + (size_t)1];
    send_node = after + counts->edges;
    recv_node = send_node + counts->sends;
    memcpy(after, maker->after, counts->edges * sizeof *after);
    for (uint32_t n = 0; n < counts->nodes; n++)
        if (shape->node[n].kind == WEFT_NODE_SEND)
            send_node[shape->node[n].index] = n;
        else if (shape->node[n].kind == WEFT_NODE_RECV)
            recv_node[shape->node[n].index] = n;
    shape->after = after;
    shape->send_node = send_node;
    shape->recv_node = recv_node;
    shape->next = maker->table[shape->hash & (maker->table_size - 1)];
    maker->table[shape->hash & (maker->table_size - 1)] = shape;
    maker->shape_count++;
    return shape;
}

/* The shape that is in scratch, made if it is new. */
static const struct weft__sim_shape *find_shape(struct weft__sim_maker *maker,
                                                struct weft__sim_shape *counts)
{
    size_t node_bytes = (counts->nodes + (size_t)1) * sizeof(struct weft__sim_node);
    size_t edge_bytes = counts->edges * sizeof *maker->after;

    maker->after[counts->edges] = 0; /* the words of the edges are hashed in pairs */
    counts->hash = hash_words(counts->nodes, maker->nodes, node_bytes / 8);
    counts->hash = hash_words(counts->hash, maker->after, (counts->edges + (size_t)1) / 2);
    if (maker->table_size)
        for (const struct weft__sim_shape *shape =
                 maker->table[counts->hash & (maker->table_size - 1)];
             shape; shape = shape->next)
            if (shape->hash == counts->hash && shape->nodes == counts->nodes &&
                shape->edges == counts->edges && !memcmp(shape->node, maker->nodes, node_bytes) &&
                !memcmp(shape->after, maker->after, edge_bytes))
                return shape;
    return copy_shape(maker, counts);
}

/* The rank's own memory: state and peers. */
static int make_rank(struct weft__sim_maker *maker, const struct weft__sim_shape *shape,
                     size_t stride, struct weft__sim_rank *rank)
{
    size_t peers = (size_t)shape->sends + shape->recvs + shape->signals;
    struct weft__sim_state *state =
        take(maker, shape->nodes * sizeof *state + peers * sizeof(uint32_t));
    uint32_t *words;

    if (!state)
        return weft__error_memory("a simulation");
    for (uint32_t n = 0; n < shape->nodes; n++)
        state[n] = (struct weft__sim_state){.left = shape->node[n].waits};
    words = (uint32_t *)(state + shape->nodes);
    memcpy(words, maker->peers, shape->sends * sizeof *words);
    memcpy(words + shape->sends, maker->peers + stride, shape->recvs * sizeof *words);
    memcpy(words + shape->sends + shape->recvs, maker->peers + 2 * stride,
           shape->signals * sizeof *words);
    *rank = (struct weft__sim_rank){.shape = shape,
                                    .state = state,
                                    .send_peer = words,
                                    .recv_peer = words + shape->sends,
                                    .signal_peer = words + shape->sends + shape->recvs};
    return WEFT_OK;
}

static int make_plain(struct weft__sim_maker *maker, const struct weft_schedule *s,
                      struct weft__sim_rank *rank)
{
    struct weft__sim_shape counts = {.plain = 1};
    const struct weft__sim_shape *shape;
    int status;

    counts.nodes = (uint32_t)s->node_count;
    if ((status = reserve(maker, s)) || (status = make_nodes(maker, s, &counts)) ||
        (status = make_edges(maker, s, &counts)))
        return status;
    shape = find_shape(maker, &counts);
    return shape ? make_rank(maker, shape, s->node_count, rank)
                 : weft__error_memory("a simulation");
}

int weft__sim_make(struct weft__sim_maker *maker, const struct weft_schedule *s,
                   struct weft__sim_rank *rank)
{
    const struct weft_schedule *plain;
    struct weft_schedule *owned;
    int status;

    if (s->status)
        return weft__error(s->status, "%s", s->error);
    status = weft__schedule_written_out(s, &plain, &owned);
    if (status == WEFT_OK)
        status = make_plain(maker, plain, rank);
    weft_schedule_destroy(owned);
    return status;
}
