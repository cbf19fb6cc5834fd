/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes of random programs, after all that they conflict with, and the regions they may use. */
#include "support/dag_builder.h"

#include <stdio.h>
#include <stdlib.h>

uint64_t dag_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t dag_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t state = a;
    state = dag_random(&state) ^ b;
    state = dag_random(&state) ^ c;
    state = dag_random(&state) ^ d;
    return dag_random(&state);
}

int dag_draw(struct dag_builder *b, int below)
{
    return (int)(dag_random(&b->random) % (uint64_t)below);
}

int dag_chance(struct dag_builder *b, int percent)
{
    return dag_draw(b, 100) < percent;
}

void *dag_grow(void *array, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return array;
    *capacity = need * 2 + 8;
    array = realloc(array, *capacity * size);
    if (!array) {
        fprintf(stderr, "dag: out of memory\n");
        abort();
    }
    return array;
}

size_t dag_slot_count(const struct dag *dag)
{
    return DAG_CELLS * dag->cell;
}

size_t dag_slot_bytes(const struct dag *dag)
{
    return dag_slot_count(dag) * weft_dtype_size(dag->dtype);
}

static struct dag_cell *cell_at(struct dag_builder *b, int rank, int slot, size_t cell)
{
    return &b->cells[((size_t)rank * DAG_SLOTS + (size_t)slot) * DAG_CELLS + cell];
}

static void cells_of(const struct dag *dag, const struct dag_region *region, size_t *first,
                     size_t *last)
{
    *first = region->offset / dag->cell;
    *last = region->count ? (region->offset + region->count - 1) / dag->cell + 1 : *first;
}

/* ---- nodes and orders ---- */

void dag_add_edge(struct dag_builder *b, int before, int after)
{
    struct dag *dag = b->dag;
    dag->edges = dag_grow(dag->edges, &dag->edge_capacity, dag->edge_count + 1, sizeof *dag->edges);
    dag->edges[dag->edge_count++] = (struct dag_edge){before, after};
}

void dag_need(struct dag_builder *b, int node)
{
    if (node < 0)
        return;
    if (b->pred_count == MOST_PREDS)
        abort();
    b->preds[b->pred_count++] = node;
}

void dag_need_region(struct dag_builder *b, int rank, const struct dag_region *region, int write)
{
    size_t first, last;
    cells_of(b->dag, region, &first, &last);
    for (size_t c = first; c < last; c++) {
        struct dag_cell *cell = cell_at(b, rank, region->slot, c);
        dag_need(b, cell->writer);
        for (size_t i = 0; write && i < cell->reader_count; i++)
            dag_need(b, cell->readers[i]);
    }
    for (size_t v = 0; region->value && v < b->dag->value_count; v++)
        if (b->dag->values[v].rank == rank && b->dag->values[v].number == region->value)
            dag_need(b, b->producers[v]);
}

void dag_note_region(struct dag_builder *b, int rank, const struct dag_region *region, int write,
                     int node)
{
    size_t first, last;
    cells_of(b->dag, region, &first, &last);
    for (size_t c = first; c < last; c++) {
        struct dag_cell *cell = cell_at(b, rank, region->slot, c);
        if (!write) {
            cell->readers = dag_grow(cell->readers, &cell->reader_capacity, cell->reader_count + 1,
                                     sizeof *cell->readers);
            cell->readers[cell->reader_count++] = node;
            continue;
        }
        cell->writer = node;
        cell->reader_count = 0;
    }
}

/* After a write of all of it outside of branches, the cells that it covers hold something. */
static void define(struct dag_builder *b, int rank, const struct dag_region *region)
{
    for (size_t c = 0; c < DAG_CELLS; c++)
        if (!region->value && region->offset <= c * b->dag->cell &&
            region->offset + region->count >= (c + 1) * b->dag->cell)
            cell_at(b, rank, region->slot, c)->defined = 1;
}

void dag_undefine(struct dag_builder *b, int rank, const struct dag_region *region)
{
    size_t first, last;
    cells_of(b->dag, region, &first, &last);
    for (; region->slot >= DAG_SCRATCH_A && first < last; first++)
        cell_at(b, rank, region->slot, first)->defined = 0;
}

struct dag_node dag_node_of(weft_node_kind_t kind, int rank)
{
    return (struct dag_node){.kind = kind,
                             .rank = rank,
                             .mate = -1,
                             .peer = -1,
                             .channel = WEFT_CHANNEL_NONE,
                             .choice = -1,
                             .branch = -1,
                             .of = -1};
}

int dag_push(struct dag_builder *b, const struct dag_node *node)
{
    struct dag *dag = b->dag;
    dag->nodes = dag_grow(dag->nodes, &dag->node_capacity, dag->node_count + 1, sizeof *dag->nodes);
    dag->nodes[dag->node_count] = *node;
    return (int)dag->node_count++;
}

int dag_some_node(struct dag_builder *b, int rank)
{
    for (int i = 0; b->dag->node_count && i < MOST_TRIES; i++) {
        int n = dag_draw(b, (int)b->dag->node_count);
        if (b->dag->nodes[n].rank == rank && b->dag->nodes[n].of < 0 && n != b->avoid)
            return n;
    }
    return -1;
}

int dag_add(struct dag_builder *b, struct dag_node node)
{
    int needed = b->pred_count, joins[3], join_count = 0;
    if (node.of < 0 && dag_chance(b, 12)) {
        node.any = 1;
        join_count = 2 + dag_draw(b, 2);
        for (int j = 0; j < join_count; j++) {
            struct dag_node join = dag_node_of(WEFT_NODE_JOIN, node.rank);
            int extra = dag_chance(b, 60) ? dag_some_node(b, node.rank) : -1;
            joins[j] = dag_push(b, &join);
            for (int i = 0; i < needed; i++)
                dag_add_edge(b, b->preds[i], joins[j]);
            if (extra >= 0)
                dag_add_edge(b, extra, joins[j]);
        }
    } else if (dag_chance(b, 25)) {
        dag_need(b, dag_some_node(b, node.rank));
    }
    int number = dag_push(b, &node);
    for (int j = 0; j < join_count; j++)
        dag_add_edge(b, joins[j], number);
    for (int i = 0; !join_count && i < b->pred_count; i++)
        dag_add_edge(b, b->preds[i], number);
    b->pred_count = 0;
    return number;
}

int dag_add_access(struct dag_builder *b, const struct dag_node *node, int written)
{
    for (int i = 0; i < node->region_count; i++)
        dag_need_region(b, node->rank, &node->regions[i], i < written);
    int number = dag_add(b, *node);
    for (int i = node->region_count - 1; i >= 0; i--)
        dag_note_region(b, node->rank, &node->regions[i], i < written, number);
    for (int i = 0; i < written; i++)
        define(b, node->rank, &node->regions[i]);
    return number;
}

/* ---- regions ---- */

int dag_overlap(const struct dag_region *a, const struct dag_region *b, size_t cell)
{
    /* By cells, since that is how accesses are followed. */
    return a->slot == b->slot && a->count && b->count &&
           a->offset / cell <= (b->offset + b->count - 1) / cell &&
           b->offset / cell <= (a->offset + a->count - 1) / cell;
}

int dag_pick(struct dag_builder *b, int rank, size_t count, int write, struct dag_region *region)
{
    size_t most = dag_slot_count(b->dag) - count;
    for (int try = 0; try < MOST_TRIES; try++) {
        size_t first, last;
        *region = (struct dag_region){.slot = dag_draw(b, DAG_SLOTS), .count = count};
        region->offset = dag_random(&b->random) % (most / b->dag->cell + 1) * b->dag->cell;
        if (dag_chance(b, 15))
            region->offset = dag_random(&b->random) % (most + 1);
        if (write && region->slot == DAG_IN)
            continue;
        cells_of(b->dag, region, &first, &last);
        for (; !write && first < last; first++)
            if (!cell_at(b, rank, region->slot, first)->defined)
                break;
        if (write || first == last)
            return 1;
    }
    return 0;
}

size_t dag_pick_count(struct dag_builder *b)
{
    size_t cells = 1 + (size_t)dag_draw(b, dag_chance(b, 20) ? DAG_CELLS : 2);
    if (dag_chance(b, 6))
        return 0;
    if (dag_chance(b, 20))
        return 1 + dag_random(&b->random) % (cells * b->dag->cell);
    return cells * b->dag->cell;
}

int dag_new_value(struct dag_builder *b, int rank, size_t max, int produced)
{
    struct dag *dag = b->dag;
    int number = 1;
    for (size_t v = 0; v < dag->value_count; v++)
        number += dag->values[v].rank == rank;
    dag->values =
        dag_grow(dag->values, &dag->value_capacity, dag->value_count + 1, sizeof *dag->values);
    b->producers =
        dag_grow(b->producers, &b->producer_capacity, dag->value_count + 1, sizeof *b->producers);
    b->producers[dag->value_count] = -1;
    dag->values[dag->value_count++] = (struct dag_value){rank, number, max, produced};
    return number;
}
