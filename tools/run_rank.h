/* SPDX-License-Identifier: BSD-3-Clause */
/* What `weft run` hands to each rank, and gets back. */
#ifndef WEFT_TOOLS_RUN_RANK_H
#define WEFT_TOOLS_RUN_RANK_H

#include "cli.h"
#include "verify.h"

#include <pthread.h>

/* What is to be done, and what came out; shared by the ranks of this process. */
struct run_job {
    const struct cli *cli;
    const char *name;
    const char *transport;
    struct cli_schedules *file; /* NULL: a template */
    struct weft_cost_model cost;
    struct weft_template_params params;
    enum verify_fill fill;
    size_t iterations;
    int verify;
    double timeout_s;
    enum weft_progress progress;
    /* set by rank 0 */
    double *times_us; /* of each iteration: the slowest rank's */
    int faults;       /* 1: some rank found a fault */
    size_t results;   /* most results that one rank states; of a barrier: 1 if it was checked */
    size_t nodes;
    char schedule[128]; /* its name: template and algorithm */
    size_t input_bytes;
    int size;
    /* set by whoever fails first */
    pthread_mutex_t lock;
    int status;
    char error[512];
};

/** What one rank does (a weft_rank_fn; @p user is the job). */
int run_rank(struct weft_context *context, void *user);

#endif
