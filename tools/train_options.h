/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What `weft train` was asked to do.
 */
#ifndef WEFT_TOOLS_TRAIN_OPTIONS_H
#define WEFT_TOOLS_TRAIN_OPTIONS_H

#include "train_delays.h"

#include <stddef.h>
#include <stdint.h>

struct train_algorithm;

struct train_options {
    /** The algorithms to train with, one after the other; owned. */
    const struct train_algorithm **algorithms;
    size_t algorithm_count;
    /** 1: over MPI, 0: local ranks. */
    int mpi;
    /** Local: how many. MPI: 0 until MPI has been asked. */
    int ranks;
    uint64_t steps;
    /** Images a rank uses in a step. */
    size_t batch;
    double rate;
    double momentum;
    struct train_delays imbalance;
    /** As it was typed. */
    const char *imbalance_text;
    /** Least duration of a step before its delay; 0: as long as the gradient takes. */
    double compute_seconds;
    /** Ranks of a group, for algorithms that have groups; 0: their default. */
    int group_size;
    /** Steps from one global averaging to the next, for algorithms that have such. */
    uint64_t sync_period;
    uint64_t seed;
    int json;
    /** Texts are borrowed from argv or the environment; NULL: none. */
    const char *plot;
    const char *data;
};

/** The defaults: allreduce on 8 local ranks. @return WEFT_OK or WEFT_ERR_MEMORY. */
int train_options_init(struct train_options *options);
void train_options_free(struct train_options *options);

/**
 * Parses the command line over the defaults.
 * @return CLI_OK: go on; else *over is 1 and the exit status (--help, wrong usage) is returned.
 */
int train_options_parse(struct train_options *options, int argc, char **argv, int *over);

/** Checks what depends on the number of ranks. @return CLI_OK, or CLI_WRONG after a line. */
int train_options_check_ranks(const struct train_options *options, int ranks);

/** The folder of the data, found anew in `storage` where several are compiled in. */
const char *train_options_data(const struct train_options *options, char *storage, size_t size);

#endif
