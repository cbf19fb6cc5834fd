/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a training algorithm is to the trainer: a table of functions that are called at fixed points
 * of every step, on every rank. A new algorithm is one file `NAME.c` that defines such a table and
 * one line in algorithms.c.
 *
 * It exchanges gradients or models, or both. Each exchange has two places (--order), the trainer
 * knows both, and the algorithm says in which of them its paper has it:
 *
 *     after      gradient of t    [gradients.step t]    update    [models.step t]
 *
 *     beside     gradient of t    models.wait t-1    update    models.post t
 *
 *     beside     gradient of t    gradients.wait t-1    gradients.post t    update by those of t-1
 *     (delayed)
 *
 *     layers     gradient of t    and while it is computed   layers.ready of each layer,
 *                forward pass of t+1    layers.wait of each layer, and its update, unless servers
 *                have updated it
 *
 * An exchange of layers has one place, whatever --order says: it is as if it came after the
 * gradient.
 *
 * Beside the next gradient a model's exchange only moves: x <- W x - rate g(x), where x <- W (x -
 * rate g(x)) waits in between. Of gradients it makes a step of delay, since a gradient is applied
 * after the next one has been computed. After the last step what is posted is waited for, and the
 * last gradient applied.
 *
 *     create, exchanges of every step, finish (afterwards all ranks hold the same model, bit by
 *     bit), statistics, destroy
 *
 * Functions return a status of weft; anything but WEFT_OK ends the training. All are called by the
 * thread of the rank, never two at once for one state. Pointers that are NULL are not called.
 */
#ifndef WEFT_TOOLS_TRAIN_ALGORITHM_H
#define WEFT_TOOLS_TRAIN_ALGORITHM_H

#include "tools/train/merged.h"
#include "tools/train/model.h"
#include "tools/train/options.h"

struct train_algorithm;

/** What an algorithm works on; valid from create to destroy. */
struct train_setup {
    const struct train_algorithm *algorithm;
    /** Of the ranks that train; and of all, servers too: the last ones. */
    struct weft_context *context;
    struct weft_context *world;
    int rank;
    int size;
    /** How many rows of the data it trains on. */
    size_t rows;
    /** Its tensors stay where they are; the same on all ranks at the start. */
    struct model *model;
    const struct train_options *options;
    /** What exchanges of gradients work on: the model's own, or copies that stay as they are from
     *  post to wait. */
    const struct weft_piece *gradients;
    /** 1: exchanges are posted and waited for; 0: they are taken at once. */
    int beside;
    /** The step with which the state begins: 0, or where those go on that are left. */
    uint64_t step;
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
    /** Servers: means over steps, of what a step was on this rank (weft_server_result); the bytes
     *  that it has pushed, and those of them in OSP's second stage. */
    double staleness;
    double synchronised_seconds;
    double late_layers;
    double pushed_bytes;
    double late_bytes;
};

/** What of train_sparse_options an algorithm uses. */
enum train_sparse_use {
    TRAIN_DENSE,
    /** All but what merges need. */
    TRAIN_SPARSE,
    /** All: it merges lists and drops what is too much. */
    TRAIN_SPARSE_MERGED
};

/** How GradiVeQ compresses a tensor, as in weft_gradiveq_tensor. */
struct train_projection {
    size_t tensor;
    size_t slice;
    size_t slices;
    size_t reuse;
    size_t components;
    double loss;
};

/** What compression came to on this rank. */
struct train_compressed {
    /** Compressed steps, and in them the bits of an f32 by those that an element took. */
    uint64_t steps;
    double ratio;
    /** Mean over them of the share of the gradient's squared norm that was dropped; -1: not known.
     */
    double loss;
    /** GradiVeQ: compressed phases, those that votes have ended, and the time that principal
     *  components took. */
    uint64_t phases;
    uint64_t ended_early;
    double pca_seconds;
    /** Of tensors that are projected, at last. Owned. */
    struct train_projection *projections;
    size_t projection_count;
};

/** Zeroed ones are accepted. */
void train_compressed_free(struct train_compressed *compressed);

/** What ranks exchange at a step, of gradients or of models. All NULL: nothing. */
struct train_exchange {
    /** The whole exchange, blocking; changes the gradients or the model. */
    int (*step)(void *state, uint64_t step);
    /** Begins it: what is exchanged is as it is now. */
    int (*post)(void *state, uint64_t step);
    /** Ends what was posted at @p step: writes the gradients, or adds to the model what the
     *  exchange has changed. */
    int (*wait)(void *state, uint64_t step);
};

/** What ranks exchange layer by layer. All NULL: nothing; then neither of the others. */
struct train_layers {
    /** The layer's gradients are there. Does not block. */
    int (*ready)(void *state, size_t layer);
    /** Waits until they are the mean of all ranks'; of servers: until the layer is updated. Every
     *  layer of a step once, in the order of the model, before the first of the next one is ready.
     */
    int (*wait)(void *state, size_t layer);
    /** Between steps: how layers were merged; NULL: they are not. */
    int (*describe)(void *state, struct train_merged *merged);
};

struct train_algorithm {
    const char *name;
    /** One line for the help. */
    const char *summary;
    /** 1: plots show it before the others. */
    int featured;
    /** 1: layers are sent in groups, as --merge says. */
    int merges;
    /** How servers synchronise the ranks that train; and what a rank is that is a server alone:
     *  blocking, until all others have destroyed their states. The model is what it is at the
     *  start. NULL: there are no servers; else they update the model, and the trainer does not. */
    weft_server_sync_t sync;
    int (*serve)(const struct train_setup *setup);
    /** 1: needs a context with helper progress also where nothing is beside the gradient. */
    int needs_helper;
    /** Streams that a rank has beside its model's, whose model is on a device; of such a model it
     *  may neither read nor write tensors itself. 0: it takes none of a device. */
    int streams;
    enum train_sparse_use sparse;
    enum train_compression compression;
    /** Whether it can be had on this machine: 1, or 0 with an error text. NULL: it can. */
    int (*available)(void);
    /** NULL: nothing; else the name of what its stale steps make of a sum, or NULL. Pure. */
    const char *(*mix)(const struct train_options *options);
    /** How long a passive rank's start waits for its application, as in weft_group_average_config.
     *  NULL: nobody starts passively. Pure. */
    uint64_t (*patience)(const struct train_options *options);
    /** Momentum of the optimizer; NULL: as in the options. Pure. */
    double (*momentum)(const struct train_options *options);
    int (*create)(void **state, const struct train_setup *setup);
    /** Where a rank has died, on those that are left: makes the state anew in setup->context, which
     *  has fewer ranks, from what there is of *state, which is destroyed then; after an error it is
     *  as it was. NULL: create() does, from the model alone. */
    int (*again)(void **state, const struct train_setup *setup);
    /** 1: the ranks' models are the same after every step: those that are left and have missed an
     *  update take the model of one that has not. */
    int one_model;
    /** 1: those that are left go on with their own steps; 0: with the last step of all, or where
     *  layers' gradients are kept with the first, so that setup->step is perhaps one that this rank
     *  has announced. */
    int (*own_steps)(const struct train_options *options);
    /** 1: a gradient whose exchange has failed is in the state, from which it goes on. */
    int (*keeps_gradients)(const struct train_options *options);
    struct train_exchange gradients;
    struct train_exchange models;
    struct train_layers layers;
    /** What the exchange of the step to come is called, where steps differ; or NULL. Nothing is
     *  posted; layer by layer: of the step under way. */
    const char *(*phase)(void *state);
    /** After the last step; NULL: nothing is compressed. */
    int (*describe)(void *state, struct train_compressed *compressed);
    /** 1: it has both, and --contribution says whether gradients are exchanged. */
    int by_contribution;
    /** 1: its paper has the exchange beside the gradient; 0: after it. */
    int listed_beside;
    /** An epoch has ended: the mean loss of this rank's batches in it. NULL: not asked for. */
    int (*epoch)(void *state, double loss);
    /** After the last step: waits for what goes on beside the next one. NULL: nothing does. */
    int (*settle)(void *state);
    /** NULL: the models are the same after every step, or once they have settled. */
    int (*finish)(void *state);
    /** NULL: nothing is ever stale. */
    void (*stats)(void *state, struct train_statistics *stats);
    void (*destroy)(void *state);
    /**
     * When the exchange of @p step has ended, by whom each rank waits for in it. Pure.
     * @param arrived when each of @p ranks ranks has begun it.
     * @param left in: the same; the function raises it for ranks that wait.
     * @return WEFT_OK or a status. NULL: nobody ever waits.
     */
    int (*leave)(const struct train_options *options, int ranks, uint64_t step,
                 const double *arrived, double *left);
    /** By how many steps a rank may be ahead of the slowest; NULL: as `leave` says. Pure. */
    uint64_t (*ahead)(const struct train_options *options);
    /** 1: a rank leaves when the one before it in a round has, rank 0 after the last one's step
     *  before. */
    int in_turns;
};

/** 1: the algorithm's exchanges are beside the gradient, by --order or by its paper. */
int train_is_beside(const struct train_options *options, const struct train_algorithm *algorithm);

/** 1: so are those of gradients, so that each is applied a step late. */
int train_is_delayed(const struct train_options *options, const struct train_algorithm *algorithm);

/** 1: servers have the optimiser; 0: each rank has its own. */
int train_servers_update(const struct train_options *options, weft_server_sync_t sync);

/** "after", "beside", "delayed" or "layers": for tables. */
const char *train_order_name(const struct train_options *options,
                             const struct train_algorithm *algorithm);

/** 1: the contexts need helper progress. */
int train_needs_helper(const struct train_options *options,
                       const struct train_algorithm *algorithm);

/** The algorithms, in the order of the help; NULL-terminated. */
const struct train_algorithm *const *train_algorithms(void);

/** The algorithm with a name, or NULL. */
const struct train_algorithm *train_algorithm_find(const char *name, size_t length);

extern const struct train_algorithm train_allreduce;
extern const struct train_algorithm train_merged;
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
extern const struct train_algorithm train_gradiveq;
extern const struct train_algorithm train_qsgd;
extern const struct train_algorithm train_powersgd;
extern const struct train_algorithm train_bsp;
extern const struct train_algorithm train_asp;
extern const struct train_algorithm train_ssp;
extern const struct train_algorithm train_dssp;
extern const struct train_algorithm train_r2sp;
extern const struct train_algorithm train_osp;

#endif
