/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gTop-k and top-k by allgather, plainly: lists as dense vectors in which NAN is no entry, merged
 * in the order that the algorithms promise. Every rank can compute what any of them should have.
 */
#ifndef WEFT_TESTS_PLAIN_TOPK_H
#define WEFT_TESTS_PLAIN_TOPK_H

#include <stddef.h>
#include <stdint.h>

enum { PLAIN_RANKS = 17, PLAIN_ELEMENTS = 300, PLAIN_PAIRS = 24 };

struct plain_list {
    float value[PLAIN_ELEMENTS];
};

/* What there is to merge, and what is left over. */
struct plain_sum {
    struct plain_list lists[PLAIN_RANKS]; /* of the ranks; overwritten, lists[root] is the sum */
    float residual[PLAIN_RANKS][PLAIN_ELEMENTS]; /* what merges drop is added to their owner's */
};

size_t plain_count(const struct plain_list *list);

/* First the indices, then the values, as the templates have it; returns how many pairs. */
size_t plain_pack(const struct plain_list *list, void *memory);

/* The list of a rank in a round, ties among its values; `exact`: multiples of 1/8, whose sums are
 * exact, else numbers of many magnitudes whose sums are rounded. */
void plain_draw(struct plain_list *list, int rank, uint64_t round, size_t count, int exact);
/* A residual from before: zeros if exact. */
void plain_draw_residual(float *residual, int rank, uint64_t round, int exact);

/* Merges of all lists into that of the root, of at most k pairs each. */
void plain_tree(struct plain_sum *sum, int size, int root, size_t k);
/* The butterfly: those beyond the power of two first, then as a tree of the others. */
void plain_butterfly(struct plain_sum *sum, int size, int root, size_t k);

/* The bound of docs/sparse.md: result + residuals are what lists and residuals were but for so much
 * of the sum of their magnitudes. */
double plain_bound(int size);

#endif
