/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a training algorithm is to the trainer: a table of functions that are called at fixed points
 * of every step, on every rank. A new algorithm is one file `train_NAME.c` that defines such a
 * table and one line in algorithms.c.
 *
 *     create
 *     every step:  begin          the step begins; what was communicated meanwhile may be applied
 *                  (the trainer computes the gradient, and is late if the imbalance says so)
 *                  gradient_ready what is communicated about gradients; may change them
 *                  (the trainer updates the model from its gradient)
 *                  updated        what is communicated about models; may change the model
 *     finish                      afterwards all ranks hold the same model, bit by bit
 *     statistics, destroy
 *
 * Functions return a status of weft; anything but WEFT_OK ends the training. All are called by the
 * thread of the rank, never two at once for one state. Pointers that are NULL are not called.
 */
#ifndef WEFT_TOOLS_TRAIN_ALGORITHM_H
#define WEFT_TOOLS_TRAIN_ALGORITHM_H

#include "tools/train/mlp.h"
#include "tools/train/options.h"

/** What an algorithm works on; valid from create to destroy. */
struct train_setup {
    struct weft_context *context;
    int rank;
    int size;
    /** Its tensors stay where they are; the same on all ranks at the start. */
    struct mlp *model;
    const struct train_options *options;
    /** Of the transport, or of virtual ranks' network: for templates to choose their algorithm by.
     */
    struct weft_cost_model cost;
};

/** What an algorithm counted on this rank. */
struct train_statistics {
    /** Steps in which this rank's update came too late for the communication of its step. */
    uint64_t stale_steps;
    /** Sparse gradients: entries that a rank could send in the last step (0: they are not sparse),
     *  and the share of all entries that it has sent in all steps. */
    size_t k;
    double selected_share;
};

/** What of train_sparse_options an algorithm uses. */
enum train_sparse_use {
    TRAIN_DENSE,
    /** All but what merges need. */
    TRAIN_SPARSE,
    /** All: it merges lists and drops what is too much. */
    TRAIN_SPARSE_MERGED
};

struct train_algorithm {
    const char *name;
    /** One line for the help. */
    const char *summary;
    /** 1: plots show it before the others. */
    int featured;
    /** 1: needs a context with helper progress. */
    int needs_helper;
    enum train_sparse_use sparse;
    /** NULL: nothing; else the name of what its stale steps make of a sum, or NULL. Pure. */
    const char *(*mix)(const struct train_options *options);
    /** Momentum of the optimizer; NULL: as in the options. Pure. */
    double (*momentum)(const struct train_options *options);
    int (*create)(void **state, const struct train_setup *setup);
    int (*begin)(void *state, uint64_t step);
    int (*gradient_ready)(void *state, uint64_t step);
    int (*updated)(void *state, uint64_t step);
    /** NULL: the models are the same after every step. */
    int (*finish)(void *state);
    /** NULL: nothing is ever stale. */
    void (*stats)(void *state, struct train_statistics *stats);
    void (*destroy)(void *state);
    /**
     * When the ranks leave @p step, by the waits that the algorithm's own definition asks for: the
     * trainer's bound on throughput uses it. Pure.
     * @param arrived when each of @p ranks ranks has ended its computation of this step.
     * @param left in: the same; the function raises it for ranks that wait.
     * @return WEFT_OK or a status. NULL: nobody ever waits.
     */
    int (*leave)(const struct train_options *options, int ranks, uint64_t step,
                 const double *arrived, double *left);
};

/** The algorithms, in the order of the help; NULL-terminated. */
const struct train_algorithm *const *train_algorithms(void);

/** The algorithm with a name, or NULL. */
const struct train_algorithm *train_algorithm_find(const char *name, size_t length);

extern const struct train_algorithm train_allreduce;
extern const struct train_algorithm train_local;
extern const struct train_algorithm train_d_psgd;
extern const struct train_algorithm train_sgp;
extern const struct train_algorithm train_ad_psgd;
extern const struct train_algorithm train_eager_solo;
extern const struct train_algorithm train_eager_majority;
extern const struct train_algorithm train_wagma;
extern const struct train_algorithm train_topk;
extern const struct train_algorithm train_gtopk;
extern const struct train_algorithm train_oktopk;

#endif
