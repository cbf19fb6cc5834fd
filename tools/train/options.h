/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What `weft train` was asked to do.
 */
#ifndef WEFT_TOOLS_TRAIN_OPTIONS_H
#define WEFT_TOOLS_TRAIN_OPTIONS_H

#include "tools/train/delays.h"
#include "tools/train/net.h"
#include "tools/train/shards.h"

#include <stddef.h>
#include <stdint.h>
#include <weft/compressed_average.h>
#include <weft/merge.h>
#include <weft/server.h>
#include <weft/sim.h>
#include <weft/weft.h>

struct train_algorithm;
struct cli;

/** Of algorithms that send sparse gradients. */
struct train_sparse_options {
    /** The share of entries that a rank sends; or how many, if k is not 0. */
    double density;
    size_t k;
    /** Steps with each density of the warm-up; 0: none. */
    uint64_t warmup_steps;
    weft_sparse_residual_t residual;
    /** WEFT_SPARSE_GTOPK or WEFT_SPARSE_GTOPK_BUTTERFLY. */
    weft_sparse_method_t gtopk;
    /** 1: entries are selected of every tensor for itself. */
    int per_layer;
    /** Momentum correction; 0: none. */
    double momentum;
};

/** How dense gradients are compressed. */
enum train_compression {
    TRAIN_COMPRESS_NONE,
    TRAIN_COMPRESS_GRADIVEQ,
    TRAIN_COMPRESS_QSGD,
    TRAIN_COMPRESS_POWERSGD
};

/** train_compress_options.warmup_steps: as the number of steps has it. */
#define TRAIN_SCALED UINT64_MAX

/** Of algorithms that compress dense gradients; what is 0 is the library's default, or as the
 *  number of steps has it. */
struct train_compress_options {
    /** Quantisation: bits or WEFT_QUANTISE_SIGN, elements of a bucket, and by what they are
     *  measured. */
    int bits;
    size_t bucket;
    weft_quantise_norm_t norm;
    weft_qsgd_way_t way;
    /** PowerSGD: r; 1: every step begins with random factors. */
    size_t rank;
    int cold_start;
    /** GradiVeQ: lambda, 0: nothing is lost of the samples. */
    double pca_loss;
    weft_gradiveq_order_t order;
    /** One of the two at most. */
    size_t slice_factor;
    size_t slice;
    size_t reuse;
    size_t pca_memory;
    uint64_t warmup_steps;
    uint64_t sample_steps;
    /** Of samples; 0: `bits`. */
    int sample_bits;
    /** WEFT_NEVER: no other phase follows. */
    uint64_t compressed_steps;
    double loss_bound;
    weft_uncompressed_t uncompressed;
    /** 1: dense layers are projected, too. */
    int dense_layers;
    /** Of projected sums; NULL: by cost. */
    const char *algo;
    weft_compressed_residual_t residual;
};

/** When ranks exchange: tools/train/algorithm.h draws it. */
enum train_order {
    /** As the algorithm's paper lists it. */
    TRAIN_LISTING,
    /** After the gradient, or after the update: everything waits for it. */
    TRAIN_AFTER,
    /** While the next gradient is computed. */
    TRAIN_BESIDE
};

/** How merged makes groups sparse. */
enum train_merge_sparse {
    TRAIN_MERGE_DENSE,
    TRAIN_MERGE_TOPK,
    TRAIN_MERGE_GTOPK,
    TRAIN_MERGE_OKTOPK
};

/** Of algorithms with parameter servers; what is 0 is the library's default. */
struct train_server_options {
    /** How many servers. 1: the first workers are; 0: ranks of their own. */
    int count;
    int colocated;
    /** As in weft_server_config. */
    uint64_t staleness;
    uint64_t staleness_most;
    weft_server_flow_t flow;
    /** Where the optimiser is: with the servers where steps are merged, else with the ranks. */
    enum train_optimiser {
        TRAIN_OPTIMISER_AUTO,
        TRAIN_OPTIMISER_SERVERS,
        TRAIN_OPTIMISER_RANKS
    } optimiser;
    /** What a rank's pushes count. */
    enum { TRAIN_WEIGHTS_EQUAL, TRAIN_WEIGHTS_ROWS } weights;
    double osp_share;
    double osp_most;
    double osp_average;
    weft_osp_correction_t osp_correction;
};

struct train_options {
    /** The algorithms to train with, one after the other, one with layers once for each of the
     *  merges; and which of those; owned. */
    const struct train_algorithm **algorithms;
    size_t *merge_of;
    size_t algorithm_count;
    /** How layers are merged; owned. Then the one of a training. */
    struct weft_merge_config *merges;
    size_t merge_count;
    struct weft_merge_config merge;
    /** 1: the sums of all layers are waited for at the end of a step; 0: layer by layer. */
    int merge_wait;
    /** At most one of the two. */
    enum train_merge_sparse merge_sparse;
    enum train_compression merge_compress;
    /** Its name; then 1: its ranks are processes; 1: in virtual time; neither: local ranks. */
    const char *transport;
    int processes;
    int is_virtual;
    /** What becomes of a training in which a process dies. */
    enum { TRAIN_GO_ON, TRAIN_STOP } on_death;
    /** Where models are: "cuda" or "cuda:1", borrowed; NULL: the processor. */
    const char *device;
    /** Of virtual ranks. */
    struct weft_net net;
    /** How many train. MPI: 0 until it has been asked. */
    int ranks;
    /** Of processes: how many there are on top of these, which are servers alone. */
    int server_ranks;
    /** 1: algorithms are there because all were asked for. */
    int all;
    uint64_t steps;
    /** Images a rank uses in a step. */
    size_t batch;
    /** The architecture's number. */
    int model;
    /** Of the perceptron: widths of the hidden layers; owned. */
    size_t *hidden;
    size_t hidden_count;
    /** Of the others: channels of their first convolution. */
    size_t channels;
    double rate;
    double momentum;
    struct train_division division;
    /** As it was typed. */
    const char *division_text;
    struct train_delays imbalance;
    /** As it was typed. */
    const char *imbalance_text;
    /** Least duration of a step before its delay; 0: as long as the gradient takes. */
    double compute_seconds;
    enum train_order order;
    /** Ranks of a group, for algorithms that have groups; 0: their default. */
    int group_size;
    /** Steps from one global averaging to the next, for algorithms that have such; 0: none. */
    uint64_t sync_period;
    /** To how many others a rank pushes its model, for sgp. */
    int neighbours;
    /** The parameters of wagma. */
    weft_average_mode_t mode;
    weft_average_activation_t activation;
    weft_average_contribution_t contribution;
    weft_stale_mix_t stale_mix;
    /** As in weft_group_average_config: 0 is adaptive, WEFT_NS_NONE none. For all wait-avoiding
     *  ones; and whether it was typed, or each has its own. */
    uint64_t patience_ns;
    int patience_typed;
    struct train_sparse_options sparse;
    struct train_compress_options compress;
    struct train_server_options servers;
    uint64_t seed;
    /** Trainings of each algorithm, with seeds that follow each other. */
    size_t seeds;
    int json;
    /** Texts are borrowed from argv or the environment; NULL: none. */
    const char *plot;
    const char *data;
};

/** The defaults: allreduce on 8 local ranks. @return WEFT_OK or WEFT_ERR_MEMORY. */
int train_options_init(struct train_options *options);
void train_options_free(struct train_options *options);

/** Parses the command line over the defaults. 1: go on; 0: the command is over, with cli->status.
 *  */
int train_options_parse(struct train_options *options, struct cli *cli);

/** Of so many processes those that do not train are servers. Of all algorithms those are left out
 *  for whose servers there are too few. @return CLI_OK, or CLI_WRONG after a line. */
int train_options_take_processes(struct train_options *options, int processes);

/** Checks what was typed as a whole. @return CLI_OK, or an exit status after a line. */
int train_options_check(struct train_options *options, const struct cli *cli);

/** Checks what depends on the number of ranks. @return CLI_OK, or CLI_WRONG after a line. */
int train_options_check_ranks(const struct train_options *options, int ranks);

/** The name of the @p index-th training for tables: of its algorithm, and how layers are merged.
 *  @return @p text. */
const char *train_options_name(const struct train_options *options, size_t index, char *text,
                               size_t size);

/** The name of what wagma's stale steps make of a sum, or NULL: it has none, or mixes nothing. */
const char *train_options_mix(const struct train_options *options);

/** How an algorithm compresses dense gradients. */
enum train_compression train_compression_of(const struct train_options *options,
                                            const struct train_algorithm *algorithm);

/** How many ranks of a training are servers alone, on top of those that train. */
int train_server_ranks(const struct train_options *options,
                       const struct train_algorithm *algorithm);

/** 1: one of the algorithms has servers. */
int train_options_serve(const struct train_options *options);

/** What is trained. It borrows the hidden widths. */
struct net_config train_options_net(const struct train_options *options);

/** How many parameters that has. @return WEFT_OK or what net_create() returned. */
int train_options_parameters(const struct train_options *options, size_t *parameters);

/** Whether all ranks average after @p step: every --sync-period steps. */
int train_is_sync(const struct train_options *options, uint64_t step);

/** The folder of the data, found anew in `storage` where several are compiled in. */
const char *train_options_data(const struct train_options *options, char *storage, size_t size);

#endif
