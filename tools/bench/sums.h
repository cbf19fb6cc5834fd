/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What takes turns in `weft bench gtopk`: sums of a vector over all ranks, dense and sparse, on one
 * rank's data. The lists have indices drawn anew for each rank; the two ends of the vector are in
 * all of them, with values that no other reaches, so that every sum must find them.
 */
#ifndef WEFT_TOOLS_BENCH_SUMS_H
#define WEFT_TOOLS_BENCH_SUMS_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

/** The sums: dense first. */
enum {
    SUMS_ALLREDUCE, /* by the algorithm that costs least */
    SUMS_RING,      /* by that of the paper */
    SUMS_MPI,
    SUMS_ALLGATHER,
    SUMS_FIRST_SPARSE = SUMS_ALLGATHER,
    SUMS_TREE,
    SUMS_BUTTERFLY,
    SUMS_OKTOPK,
    SUMS
};

/** As it stands in rows: the template, or its algorithm; MPI's function. */
const char *sums_name(int sum);

/** What is summed. */
struct sums_shape {
    int ranks;
    /** Elements of the vector, pairs of a list: 1 <= k <= n. */
    size_t n;
    size_t k;
    /** 1: MPI's own sum takes part. */
    int mpi;
    struct weft_cost_model cost;
};

/** What one rank holds. */
struct sums_side {
    float *dense;
    float *sum; /* of the dense; what merges drop */
    uint32_t *pairs;
    uint32_t *result;
    uint64_t *bounds; /* Ok-Topk: regions of equal size, of which everything is kept */
    float threshold;
    struct weft_schedule *schedules[SUMS];
    struct weft_run *runs[SUMS];
    /** After sums_check(): what this rank sent in the last execution; of the pairs that came out, a
     *  number that a double holds. */
    uint64_t bytes;
    uint64_t hash;
};

/** The schedule of a sum other than MPI's. */
int sums_build(const struct sums_shape *shape, int sum, int rank, struct weft_schedule **schedule);

/** Makes the lists and the runs of a rank. Collective. WEFT_OK or an error; sums_close() in any
 *  case. */
int sums_open(struct sums_side *side, const struct sums_shape *shape, struct weft_context *context);
void sums_close(struct sums_side *side);

/** Values for turn number @p turn. */
void sums_set(struct sums_side *side, const struct sums_shape *shape, int rank, int turn);
/** Executes a sum once. */
int sums_run(struct sums_side *side, int sum);
/** Is the result that of the turn? WEFT_OK or WEFT_ERR_COMPUTE. */
int sums_check(struct sums_side *side, const struct sums_shape *shape, int sum, int turn);

#endif
