/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs whose messages between devices go over NCCL: what all ranks do together when they create
 * one. They tell rank 0 what their plans have of messages; it computes the order of issue
 * (runtime/graph/issue.h), or finds that two ranks have to agree on each, and tells them; then they
 * join a communicator, and those that joint nodes need (weft/joint.h). So all have them or none
 * has.
 */
#ifndef WEFT_RUNTIME_CONTEXT_ACCORD_H
#define WEFT_RUNTIME_CONTEXT_ACCORD_H

#include "runtime/context/roll.h"
#include "runtime/engine/ordered.h"

/* What is created: a run, or the runs of a series. */
struct weft__candidate {
    struct weft_run *const *runs;
    size_t count;
    struct weft__object *object; /* NULL: this rank has failed to make it */
    int nccl;                    /* enum weft_nccl */
    int dynamic;                 /* peers, or which of the plans, change from version to version */
};

/* Collective, blocking; on a roll that is open. failed: what this rank has failed with, with its
 * text. Returns that, or how it went; after an error the runs are to be freed. Not driving. */
int weft__accord(struct weft__roll *roll, const struct weft__candidate *candidate, int failed);

/* ---- accord_order.c: what rank 0 computes ---- */

/* What a rank tells: behind it, for each plan, its list. */
struct weft__accord_head {
    uint32_t plans;
    uint32_t nccl;
    uint32_t dynamic;
    uint32_t size; /* of the first plan */
    uint32_t rank;
    uint32_t unused;
};

struct weft__accord_list {
    uint32_t nodes, edges;
};

/* What it is told: behind it `over` of all plans, a byte a node; then, if the order is known,
 * sequence and first, members, and the circles of joint nodes. */
struct weft__accord_answer {
    uint32_t joins; /* 0: nothing goes over a communicator, on any rank */
    uint32_t over;  /* bytes */
    uint32_t known;
    uint32_t sequence, rounds;
    uint32_t members;
    uint32_t layers; /* of circles, on all ranks */
};

struct weft__bytes {
    char *data;
    size_t size;
};

/* A rank's list of all plans of a candidate, put together. WEFT_OK or WEFT_ERR_MEMORY. */
int weft__accord_write(const struct weft__candidate *candidate, struct weft__bytes *out);
/* The answers of all ranks' lists; negative, with weft__error set: what they are is refused. */
int weft__accord_compute(const struct weft__bytes *lists, int size, struct weft__bytes *answers);

/* ---- accord_circles.c: the communicators of joint nodes ---- */

struct weft__circle_set {
    uint32_t first, count; /* ranks */
    uint32_t layer;
    uint32_t next; /* that begins with the same rank, or WEFT__NONE */
};

struct weft__circle_sets {
    struct weft__circle_set *at;
    uint32_t count;
    int32_t *ranks;
    uint32_t layers;
};

/* Of all joint nodes. 0, or -1 without memory; to be freed in either case. */
int weft__circle_sets_find(const struct weft__issue *issue, struct weft__circle_sets *sets);
void weft__circle_sets_free(struct weft__circle_sets *sets);
/* What a rank is told: for each layer how many ranks (uint32_t), and which (int32_t). */
size_t weft__circle_sets_bytes(const struct weft__circle_sets *sets, int rank);
void weft__circle_sets_put(const struct weft__circle_sets *sets, int rank, char *to);

#endif
