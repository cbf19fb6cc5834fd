/* SPDX-License-Identifier: BSD-3-Clause */
/* What `weft run` hands to each rank, and gets back. */
#ifndef WEFT_TOOLS_COMMANDS_RUN_RANK_H
#define WEFT_TOOLS_COMMANDS_RUN_RANK_H

#include "tools/cli/cli.h"
#include "tools/commands/verify.h"

#include <pthread.h>

/* Slots that a failed send is still reading: freed when the contexts are gone. */
struct run_kept {
    void **slots;
    size_t count;
    struct run_kept *next;
};

/* What is to be done, and what came out; shared by the ranks of this process. */
struct run_job {
    const struct cli *cli;
    const char *name;
    const char *transport;
    struct cli_schedules *file; /* NULL: a template */
    struct weft_cost_model cost;
    const char *cost_file; /* or NULL: estimates */
    struct weft_template_params params;
    enum verify_fill fill;
    size_t iterations;
    int verify;
    double timeout_s;
    enum { RUN_ARENA, RUN_PRIVATE } memory; /* of slots */
    weft_nccl_t nccl;
    const char *driver;     /* "caller" or "helper"; NULL: as the environment says */
    const char *trace_path; /* NULL: no trace */
    struct weft_trace *trace;
    int trace_apart; /* 1: ranks have written files of their own */
    /* set by rank 0 */
    double *times_us; /* of each iteration: the slowest rank's */
    int faults;       /* 1: some rank found a fault */
    size_t nodes;
    char schedule[128]; /* its name: template and algorithm */
    size_t input_bytes;
    int size;
    pthread_mutex_t lock; /* of what follows */
    struct run_kept *kept;
};

/** What one rank does (a weft_rank_fn; @p user is the job). */
int run_rank(struct weft_context *context, void *user);
/** Frees what ranks that failed could not free. */
void run_free_kept(struct run_job *job);

/* --trace: makes the trace, if its file can be written (else an exit status, after a line). */
int run_trace_open(struct run_job *job);
/* Begins to record one rank; puts what was recorded into the trace; writes that. */
int run_trace_begin(struct run_job *job, struct weft_context *context,
                    const struct weft_schedule *schedule);
int run_trace_end(struct run_job *job, struct weft_context *context, int failed);
/** 0, or the exit status after a line. */
int run_trace_write(struct run_job *job);

#endif
