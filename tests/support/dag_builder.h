/* SPDX-License-Identifier: BSD-3-Clause */
/* A random program under construction: its nodes come after all that they conflict with. Shared by
 * dag.c, which draws what there is, and dag_order.c, which keeps the order. */
#ifndef WEFT_TESTS_DAG_BUILDER_H
#define WEFT_TESTS_DAG_BUILDER_H

#include "support/dag.h"

enum { MOST_TRIES = 12, MOST_PREDS = 4096 };

/* Who accessed one cell of a slot: the last writer, and readers since. Node numbers. */
struct dag_cell {
    int writer; /* -1: nobody */
    int *readers;
    size_t reader_count, reader_capacity;
    int defined; /* holds something at this point */
};

struct dag_builder {
    struct dag *dag;
    uint64_t random;
    struct dag_cell *cells; /* [rank][slot][DAG_CELLS] */
    int preds[MOST_PREDS];
    int pred_count;
    uint32_t tags, channels;
    uint32_t scramble;
    int avoid;      /* the send of a message to itself, whose receive must not wait for it; or -1 */
    int *producers; /* of values; -1 */
    size_t producer_capacity;
};

/* From the seed: a number below another; true so many times of a hundred. */
int dag_draw(struct dag_builder *b, int below);
int dag_chance(struct dag_builder *b, int percent);
void *dag_grow(void *array, size_t *capacity, size_t need, size_t size);

/* Orders. */
void dag_add_edge(struct dag_builder *b, int before, int after);
/* The next node comes after this one; -1: none. */
void dag_need(struct dag_builder *b, int node);
/* The next node will access a region: it comes after whoever conflicts. */
void dag_need_region(struct dag_builder *b, int rank, const struct dag_region *region, int write);
/* A node has accessed a region. */
void dag_note_region(struct dag_builder *b, int rank, const struct dag_region *region, int write,
                     int node);
/* What a receive up to a capacity leaves in scratch is not known to be all there. */
void dag_undefine(struct dag_builder *b, int rank, const struct dag_region *region);
struct dag_node dag_node_of(weft_node_kind_t kind, int rank);
int dag_push(struct dag_builder *b, const struct dag_node *node);
/* Some earlier node of the rank that will end in any case; -1: none found. */
int dag_some_node(struct dag_builder *b, int rank);
/* Adds a node after all that it needs, sometimes by way of joins that it takes ANY of. */
int dag_add(struct dag_builder *b, struct dag_node node);
/* As dag_add(), for a node with regions of which the first `written` are written. */
int dag_add_access(struct dag_builder *b, const struct dag_node *node, int written);
int dag_overlap(const struct dag_region *a, const struct dag_region *b, size_t cell);
/* A region of `count` elements to be read or written; 0 if there is none. */
int dag_pick(struct dag_builder *b, int rank, size_t count, int write, struct dag_region *region);
size_t dag_pick_count(struct dag_builder *b);
int dag_new_value(struct dag_builder *b, int rank, size_t max, int produced);

#endif
