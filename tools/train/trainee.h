/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank while it trains: what loop.c (its life), step.c (its steps) and conclude.c (what came of
 * them) share.
 */
#ifndef WEFT_TOOLS_TRAIN_TRAINEE_H
#define WEFT_TOOLS_TRAIN_TRAINEE_H

#include "tools/train/algorithm.h"
#include "tools/train/batches.h"
#include "tools/train/loop.h"
#include "tools/train/model.h"

/* What every rank tells all others at the end; only f64, so that one allgather carries it. */
enum report {
    REPORT_SECONDS,
    /** Processor time of all gradients, and the processors of this rank's machine. */
    REPORT_GRADIENTS,
    REPORT_PROCESSORS,
    REPORT_STALE,
    REPORT_BYTES,
    REPORT_SELECTED,
    REPORT_LOSS,
    REPORT_CHECKSUM,
    REPORTS
};

/* A rank while it trains. */
struct trainee {
    struct train_job *job;
    struct train_setup setup;
    void *state;
    /** Where gradients are exchanged beside the next one, what is exchanged; else NULL. Then its
     *  memory. */
    struct weft_piece *posted;
    float *posted_data;
    struct train_batches batches;
    struct weft_run *barrier;
    struct weft_run *gather;
    double *reports;
    double report[REPORTS];
    double began;
    uint64_t bytes_before;
    struct train_statistics stats;
    double shown;
    /** Steps done. */
    uint64_t steps;
    /** Of the history: the next of its models that this rank adds to. */
    size_t next;
};

/** Seconds of the context's time: on virtual ranks it is virtual, and passes while a rank sleeps. */
double trainee_now(const struct trainee *trainee);

/** Takes a step. */
int trainee_step(struct trainee *trainee, uint64_t step);

/** After the last step: what is still under way. */
int trainee_drain(struct trainee *trainee);

/** What came of it, in the job's outcome: from everybody's reports. */
int trainee_conclude(struct trainee *trainee);

#endif
