/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One training: the same steps on every rank of a context, and what came of them.
 */
#ifndef WEFT_TOOLS_TRAIN_LOOP_H
#define WEFT_TOOLS_TRAIN_LOOP_H

#include "tools/train/algorithm.h"
#include "tools/train/dataset.h"
#include "tools/train/history.h"
#include "tools/train/merged.h"
#include "tools/train/options.h"
#include "tools/train/shards.h"

#include <stdatomic.h>
#include <stdint.h>
#include <weft/weft.h>

/** All ranks' models after as many steps each. */
struct train_point {
    /** How many. */
    uint64_t done;
    /** When they had done these: the mean over ranks, from the start. */
    double seconds;
    /** Test accuracy of the mean of their models. */
    double accuracy;
    /** The consensus distance, see history.h. */
    double distance;
};

/** Where the exchanges of an algorithm whose steps differ begin to be others. */
struct train_phase {
    /** The first of its steps, and when it began, from the start, on the rank that reports. */
    uint64_t step;
    double seconds;
    const char *name;
};

/** What servers came to: means over ranks and steps, as in weft_server_result. */
struct train_served {
    int servers;
    /** Updates of others between a pull and the push of a gradient that is computed on it. */
    double staleness;
    /** The batch synchronisation time. */
    double synchronised_seconds;
    /** OSP: the share of the bytes pushed that went in its second stage, and how many layers. */
    double late_share;
    double late_layers;
};

/** What one training came to. */
struct train_outcome {
    int ranks;
    /** Ranks that have died on the way: numbers are of those that were left. */
    int ranks_lost;
    /** Steps that were done; 0: none, and nothing else is known. */
    uint64_t steps;
    /** 1: a signal ended it after these. */
    int interrupted;
    /** The time the slowest rank took from the common start to the end of its last step; evaluation
     *  is not in it. */
    double seconds;
    double samples_per_second;
    /** From the delays that were drawn, the compute time (asked for, or else the processor time
     *  that the gradients took) and the number of processors; see yardsticks.h. */
    double ideal_samples_per_second;
    double bound_samples_per_second;
    /** A fraction, of the model that all ranks hold in the end. */
    double test_accuracy;
    /** Mean over ranks of the loss of the last batch. */
    double loss;
    double stale_fraction;
    /** Mean processor time of a gradient, over ranks. */
    double gradient_seconds;
    size_t parameters;
    /** As in train_statistics; the share is the mean over ranks. */
    size_t k;
    double selected_share;
    /** Payload that all ranks, servers too, have sent in their steps, as their contexts have
     *  counted it; what makes the models one in the end is not in it. Then a rank and step: mean,
     *  and of the rank that sent most. */
    double bytes_sent;
    double bytes_per_step;
    double bytes_per_step_most;
    /** What all of them would have sent in sums of whole gradients, divided by bytes_sent; an
     *  infinity or a NaN if nothing was sent. */
    double compression_ratio;
    /** The median of the later steps' durations, the mean over ranks: without how it begins. */
    double step_seconds;
    /** Of an algorithm with layers: how they were merged on rank 0, whose `hidden` here is the mean
     *  over ranks, and how long a step is to last by the plan (0: there is none). Owned. */
    struct train_merged merged;
    double planned_step_seconds;
    /** Of an algorithm that compresses: what it came to on rank 0, but for the loss, the mean over
     *  ranks. Owned. */
    struct train_compressed compressed;
    /** Of an algorithm with servers. */
    struct train_served served;
    /** Owned; train_outcome_free() frees them. */
    struct train_phase *phases;
    size_t phase_count;
    uint64_t checksum;
    /** 1: all ranks hold the same model in the end, bit by bit. */
    int identical;
    /** 1: rank 0 had to tell it alone. Every number is as if all ranks had done what it has done,
     *  the model is its own, and `identical` is not known. */
    int alone;
    /** The mean of the consensus distance over the time of training. */
    double consensus_distance;
    /** Owned; train_outcome_free() frees it. The last point is of the last models: their distance
     *  before they were made one, the accuracy afterwards. */
    struct train_point *curve;
    size_t curve_count;
};

/** One training: what to do, and for rank 0's process what came of it. */
struct train_job {
    const struct train_options *options;
    const struct train_algorithm *algorithm;
    const struct dataset *train;
    const struct dataset *test;
    /** Zeroed: all ranks train on all rows. */
    struct train_shards shards;
    /** Called by rank 0 between two steps when the user interrupts, if its ranks are processes:
     *  they cannot agree on a last step, so this ends them all, and does not return. The outcome
     *  is what rank 0 knows. NULL: they end after the same step. */
    void (*abandon)(struct train_job *job, void *user);
    void *user;
    /** 1: where ranks die, the others go on. Then, for this process: the context of those that were
     *  left in the end, perhaps the one that it began with. */
    int goes_on;
    struct weft_context *left;
    /** Steps that some rank of this process has begun; the highest bit: and no rank begins more. */
    atomic_uint_least64_t begun;
    /** Of the ranks of this process. Owned, as long as they train. */
    struct train_history *history;
    /** Written by rank 0. */
    struct train_outcome outcome;
};

/** A rank's part of the job, collective over its context. @p job is a struct train_job, for whose
 *  ranks of this process there is a history. Ranks behind the first options->ranks are servers, if
 *  the algorithm has such, and have nothing else to do. */
int train_rank(struct weft_context *context, void *job);

/** Makes the history of a job, for @p ranks ranks of this process. @return WEFT_OK or
 *  WEFT_ERR_MEMORY. */
int train_begin_history(struct train_job *job, int ranks);
void train_end_history(struct train_job *job);

/** Runs a job on options->ranks local ranks. Blocking. @return WEFT_OK, or the
 *  status of the rank whose failure began it, as weft_local_run(); weft_error_text() says why. */
int train_local_ranks(struct train_job *job);

/** The same on virtual ranks: time passes in sleeps and on the network alone. */
int train_virtual_ranks(struct train_job *job);

void train_outcome_free(struct train_outcome *outcome);

/** The whole command: every training that the options ask for, and what it prints. Returns the exit
 *  status. */
int train_with(const struct train_options *options, const struct cli *cli);

#endif
