/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random programs for several ranks whose result is determined, drawn from a seed.
 *
 * A program is a list of nodes in one order that is good for all ranks: executing them one after
 * the other on plain memory (dag_reference()) gives the result. The schedules made from it
 * (dag_schedule()) hold only the orders that this result needs, and some random ones, so the engine
 * may execute them in many ways. What makes it so:
 *
 * - every access is ordered after the earlier accesses of its rank that it conflicts with;
 * - both ends of a message, and a signal and its event, follow each other in the list, so any
 *   execution can go on at the first node that has not ended: no deadlock, rendezvous or not;
 * - an ANY node follows joins each of which alone implies all the orders that it needs, or joins
 *   the branches of a choice, of which one is executed and the others are retired as a whole, on
 *   all ranks that it involves.
 */
#ifndef WEFT_TESTS_DAG_H
#define WEFT_TESTS_DAG_H

#include <weft/schedule.h>

enum { DAG_SLOTS = 5, DAG_CELLS = 6, DAG_REGIONS = 3 };

/* The slots of every rank: input, output, inout, and two of scratch. */
enum { DAG_IN, DAG_OUT, DAG_ACC, DAG_SCRATCH_A, DAG_SCRATCH_B };

/* A compute operation: bytes of regions[0] become 5 * old + regions[1] + version. Four ways to end:
 * at once, completed before it returns, polled, completed by another thread. */
enum dag_pend { DAG_AT_ONCE, DAG_COMPLETED, DAG_POLLED, DAG_BY_THREAD, DAG_PENDS };

struct dag_region {
    int slot;
    int value; /* of the rank, from 1; 0: none */
    size_t offset, count;
};

struct dag_node {
    weft_node_kind_t kind;
    int rank;
    int any;
    int up_to;
    int mate; /* receive: the node that sends */
    int peer;
    uint32_t tag;
    uint32_t channel;
    struct dag_region regions[DAG_REGIONS];
    int region_count;
    int produces; /* value of the rank, from 1; 0: none */
    enum dag_pend pend;
    int user_op; /* reduce: the operation that does not commute */
    int kind_op; /* reduce: else the built-in one */
    int choice;  /* event: its choice, or -1 */
    int branch;  /* member of that branch of a choice, or -1 */
    int of;      /* the choice it is a branch of, or -1 */
};

/* Who fires a choice: the application one branch drawn for each version, a signal always branch 0,
 * or both (then the branches do the same, and whoever is first wins). */
enum dag_firing { DAG_BY_APPLICATION, DAG_BY_SIGNAL, DAG_BY_BOTH };

struct dag_choice {
    int branches;
    enum dag_firing firing;
};

struct dag_value {
    int rank;
    int number; /* in its rank, from 1 */
    size_t max;
    int produced;
};

struct dag_edge {
    int before, after; /* nodes of the program */
};

struct dag {
    uint64_t seed;
    int ranks;
    weft_dtype_t dtype;
    size_t cell; /* elements */
    int shuffled;
    struct dag_node *nodes;
    size_t node_count, node_capacity;
    struct dag_edge *edges;
    size_t edge_count, edge_capacity;
    struct dag_choice *choices;
    size_t choice_count, choice_capacity;
    struct dag_value *values;
    size_t value_count, value_capacity;
};

uint64_t dag_random(uint64_t *state);
/* A number drawn from a key of up to four parts. */
uint64_t dag_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/* All or nothing: aborts the process if out of memory. */
struct dag *dag_create(uint64_t seed, size_t most_bytes);
void dag_destroy(struct dag *dag);

size_t dag_slot_count(const struct dag *dag);
size_t dag_slot_bytes(const struct dag *dag);

/* The operations that schedules use: for each way to end a compute, and the reduction. */
struct dag_ops {
    const struct weft_op *mix[DAG_PENDS];
    const struct weft_op *reduce;
};

/* The schedule of one rank; ids[n] becomes the handle of node n where it is of that rank. NULL with
 * weft_error_text() on failure. */
struct weft_schedule *dag_schedule(const struct dag *dag, int rank, const struct dag_ops *ops,
                                   weft_node_t *ids);

/* Contents of a user's slot at the start, and a value bound by the user, for a key (run, version).
 */
void dag_fill(const struct dag *dag, int rank, int slot, void *data, uint64_t key);
uint64_t dag_bound(const struct dag *dag, const struct dag_value *value, uint64_t key);
/* The branch that is executed. */
int dag_winner(const struct dag *dag, int choice, uint64_t key);

/* Executes the program on memory[rank][slot], filled by the caller; values[rank][number - 1] become
 * the values. */
void dag_reference(const struct dag *dag, void *(*memory)[DAG_SLOTS], uint64_t **values,
                   uint64_t key, uint64_t version);

/* What both sides share: the arithmetic of the user's operations. The value that a compute produces
 * is at most the count of its source. */
void dag_mix(unsigned char *data, const unsigned char *source, size_t bytes, uint64_t version);
uint64_t dag_produce(const unsigned char *source, size_t bytes, size_t count);
int dag_user_reduce(void *user, void *dst, const void *a, const void *b, size_t count,
                    weft_dtype_t dtype);

#endif
