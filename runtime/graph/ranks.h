/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of different ranks, in an order, as ranges with equal steps: they take as much memory as
 * their text, however many ranks those are.
 *
 *     0to6by2_1to7by2_12        0 2 4 6 1 3 5 7 12
 */
#ifndef WEFT_RUNTIME_GRAPH_RANKS_H
#define WEFT_RUNTIME_GRAPH_RANKS_H

#include "runtime/base/out.h"

/* first, first + step, ...: `count` of them. */
struct weft__rank_range {
    int first, step, count;
};

struct weft__ranks {
    int count;
    int range_count;
    struct weft__rank_range ranges[];
};

/* Freed with weft__free(); NULL without memory. */
struct weft__ranks *weft__ranks_of(const int *ranks, int count);
/* 0 .. size - 1. */
struct weft__ranks *weft__ranks_all(int size);
struct weft__ranks *weft__ranks_copy(const struct weft__ranks *ranks);
/* The same with rank r called names[r]. */
struct weft__ranks *weft__ranks_renamed(const struct weft__ranks *ranks, const int *names);
/* A whole text, as weft__ranks_write() writes it: 0, with *ranks NULL if it is none; -1 without
 * memory. */
int weft__ranks_read(const char *text, struct weft__ranks **ranks);
void weft__ranks_write(struct weft__out *out, const struct weft__ranks *ranks);

/* Digits as they are written, with no zeros before them: 1, or 0: there are none, or more than
 * `most`. *at goes behind them. */
int weft__take_number(const char **at, uint64_t most, uint64_t *number);

int weft__ranks_at(const struct weft__ranks *ranks, int place);
/* The place of a rank; -1: it has none. */
int weft__ranks_place(const struct weft__ranks *ranks, int rank);
/* The highest. */
int weft__ranks_last(const struct weft__ranks *ranks);
/* All of them, into an array of `count`. */
void weft__ranks_fill(const struct weft__ranks *ranks, int *out);
uint64_t weft__ranks_hash(const struct weft__ranks *ranks, uint64_t hash);

#endif
