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
    /** What it would have sent in sums of all gradients. */
    REPORT_DENSE,
    REPORT_SELECTED,
    REPORT_LOSS,
    REPORT_CHECKSUM,
    /** The median of the later steps' durations; of layers, the share of communication hidden. */
    REPORT_STEP,
    REPORT_HIDDEN,
    /** Of gradients, what compression has dropped, as in train_compressed. */
    REPORT_DROPPED,
    /** Of servers, as in train_statistics. */
    REPORT_STALENESS,
    REPORT_SYNCHRONISED,
    REPORT_LATE_LAYERS,
    REPORT_PUSHED,
    REPORT_LATE,
    REPORTS
};

enum { TRAINEE_DURATIONS = 512 };

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
    struct weft_object *object; /* of these two */
    struct weft_run *barrier;
    struct weft_run *gather;
    double *reports;
    double report[REPORTS];
    double began;
    uint64_t bytes_before, bytes_sent;
    struct train_statistics stats;
    double shown;
    /** Steps done; and with which of them the state began: before it nothing has been posted. */
    uint64_t steps;
    uint64_t fresh;
    /** Updates of a layer each. */
    uint64_t updates;
    /** 1: all steps are done, and nothing is under way. */
    int ended;
    /** Whose time it is, and whose memory. */
    struct weft_context *world;
    /** Where ranks have died, the rows of those that are left, and how many there were. */
    struct train_shards shards;
    int began_with;
    /** Of the history: the next of its models that this rank adds to. */
    size_t next;
    /** A model on a device that was kept for the history and is on its way there: as that was. */
    struct {
        int is_there;
        size_t next;
        uint64_t done;
        double seconds;
    } kept;
    /** Of a device: how long gradients had taken before the first step. */
    double rehearsed;
    /** Durations of the latest steps, round and round; how many there have been, and when the one
     *  under way began. */
    double durations[TRAINEE_DURATIONS];
    uint64_t duration_count;
    double step_began;
    /** Of an algorithm with layers; else NULL. */
    struct train_pace *pace;
    struct train_merged merged;
    struct train_compressed compressed;
    /** Those that have begun; how many, and room for. */
    struct train_phase *phases;
    size_t phase_count, phase_room;
    /** In the step under way: processor time that was not the gradient's, and time that the forward
     *  pass has waited for layers. */
    double apart;
    double waited;
    /** Of the steps of the epoch under way: the sum of their losses, and how many. */
    double epoch_loss;
    uint64_t epoch_steps;
    /** As the durations: from the beginning of a step to its first gradient, without waits. */
    double leads[TRAINEE_DURATIONS];
    uint64_t lead_count;
};

/** Makes what a rank needs of its context: its part of the data, the runs that all take part in. */
int trainee_join(struct trainee *trainee, const struct train_shards *shards);

/** Bytes that a rank sends in a sum of whole gradients by a reduce-scatter and an allgather. */
double trainee_dense_bytes(const struct trainee *trainee);

/** Counts what this rank has sent since the last call. */
int trainee_count_bytes(struct trainee *trainee);

/**
 * After a failure: if ranks have died, and those that are left are to go on, makes a context of
 * them and the state anew. Says so on standard error.
 * @return WEFT_OK: go on with trainee->steps; or @p status, with its text, or another failure.
 */
int trainee_go_on(struct trainee *trainee, int status);

/** Adds the model to the history, if it is wanted there after @p done steps. */
int trainee_add_to_history(struct trainee *trainee, uint64_t done);
/** The same of the last model. */
int trainee_add_last_to_history(struct trainee *trainee);

/** Rank 0's line of progress after @p done steps, from time to time. */
int trainee_show(struct trainee *trainee, uint64_t done);

/** Whether gradients whose exchange has failed are in the state: 1 or 0. */
int trainee_keeps_gradients(const struct trainee *trainee);

/** What of a training is waited for layer by layer in the next forward pass: 1 or 0. */
int trainee_goes_by_layers(const struct trainee *trainee);

/** The median of the latest values of a round @p ring, of @p count that there have been and of
 *  at most @p most of them; 0 if there are none. */
double trainee_median(const double *ring, uint64_t count, uint64_t most);

/** Seconds of the context's time: on virtual ranks it passes while a rank sleeps. */
double trainee_now(const struct trainee *trainee);

/** Takes a step. */
int trainee_step(struct trainee *trainee, uint64_t step);

/** The gradient of the next step, of which layers hear; and after it what is still to be waited
 *  for, with the update. */
int trainee_compute_layers(struct trainee *trainee);
int trainee_finish_layers(struct trainee *trainee);

/** The optimizer's. */
float trainee_momentum(const struct trainee *trainee);

/** Seconds of this thread. */
double trainee_processor_time(void);

/** After the last step: what is still under way. */
int trainee_drain(struct trainee *trainee);

/** What came of it, in the job's outcome: from everybody's reports. */
int trainee_conclude(struct trainee *trainee);

#endif
