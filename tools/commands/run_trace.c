/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trace of `weft run --trace FILE`: ranks of one process put theirs together in memory; over
 * MPI rank 0 gathers their texts by weft's own collectives. After a failure, when peers may not
 * answer, each rank of MPI writes its own file instead, to be merged by `weft trace`.
 */
#include "tools/cli/transports.h"
#include "tools/commands/run_rank.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Records kept of a rank: all of them up to these, 56 bytes each. */
#define MOST_RECORDS ((size_t)1 << 20)

int run_trace_open(struct run_job *job)
{
    if (!job->trace_path)
        return 0;
    if (!cli_is_follower()) {
        FILE *file = fopen(job->trace_path, "a");
        if (!file) {
            return cli_usage("run", "--trace %s: %s; expected a file that can be written",
                             job->trace_path, strerror(errno));
        }
        fclose(file);
    }
    return weft_trace_create(&job->trace) == WEFT_OK ? 0 : cli_fail("run", "%s", weft_error_text());
}

int run_trace_begin(struct run_job *job, struct weft_context *context,
                    const struct weft_schedule *schedule)
{
    struct weft_trace_config config;

    if (!job->trace_path)
        return WEFT_OK;
    weft_trace_config_init(&config);
    if (!getenv("WEFT_TRACE_RECORDS")) {
        /* A node takes up to three; as much again and more for the barrier before each iteration.
         */
        size_t nodes = 3 * weft_schedule_node_count(schedule) + 256;
        size_t rounds = job->iterations + 8;
        config.records = nodes < MOST_RECORDS / rounds ? nodes * rounds : MOST_RECORDS;
    }
    return weft_context_trace_start(context, &config);
}

/* Takes a rank's text in: on rank 0, all of them. */
static int gather_texts(struct run_job *job, struct weft_context *context, const char *text,
                        size_t length)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    int size = weft_context_size(context);
    uint64_t most = length;

    weft_template_params_init(&params);
    params.count = 1;
    params.dtype = WEFT_U64;
    params.op = weft_op_builtin(WEFT_MAX);
    params.in_place = 1;
    int status = weft_template_create_run(&run, context, "allreduce", &params);
    status = status == WEFT_OK ? weft_run_bind_name(run, "recv", &most, 1, WEFT_U64) : status;
    status = status == WEFT_OK ? weft_run_execute(run) : status;
    weft_run_destroy(run);
    if (status != WEFT_OK)
        return status;
    run = NULL;
    weft_template_params_init(&params);
    params.count = (size_t)most;
    params.dtype = WEFT_U8;
    int root = weft_context_rank(context) == 0;
    char *own = weft_memory_alloc((size_t)most + 1, 1);
    char *all = root ? weft_memory_alloc((size_t)size, (size_t)most) : NULL;
    status = weft_template_create_run(&run, context, "gather", &params);
    if (status == WEFT_OK && (!own || (root && !all)))
        status = weft_error_set(WEFT_ERR_MEMORY, "out of memory for the traces of %d ranks", size);
    if (status == WEFT_OK) {
        memcpy(own, text, length);
        status = weft_run_bind_input_name(run, "send", own, (size_t)most, WEFT_U8);
    }
    if (status == WEFT_OK && root)
        status = weft_run_bind_name(run, "recv", all, (size_t)size * (size_t)most, WEFT_U8);
    status = status == WEFT_OK ? weft_run_execute(run) : status;
    weft_run_destroy(run);
    /* Texts are filled up with zeros. */
    for (int r = 0; status == WEFT_OK && root && r < size; r++) {
        const char *at = all + (size_t)r * (size_t)most;
        status = weft_trace_read_text(job->trace, at, strnlen(at, (size_t)most));
    }
    weft_memory_free(own);
    weft_memory_free(all);
    return status;
}

static int end_mpi(struct run_job *job, struct weft_context *context, int failed)
{
    struct weft_trace *trace = NULL;
    size_t length = 0;
    char path[4096];
    char *text = NULL;
    int status = weft_trace_create(&trace);

    status = status == WEFT_OK ? weft_context_trace_collect(context, trace) : status;
    weft_context_trace_stop(context);
    if (status == WEFT_OK && failed) {
        snprintf(path, sizeof path, "%s.rank-%d", job->trace_path, weft_context_rank(context));
        status = weft_trace_write(trace, path);
        if (status == WEFT_OK && weft_context_rank(context) == 0) {
            fprintf(stderr, "weft run: the run failed: each rank's trace is in %s.rank-R\n",
                    job->trace_path);
        }
    } else if (status == WEFT_OK) {
        status = weft_trace_write_text(trace, &text, &length);
        status = status == WEFT_OK ? gather_texts(job, context, text, length) : status;
    }
    weft_memory_free(text);
    weft_trace_destroy(trace);
    return status;
}

int run_trace_end(struct run_job *job, struct weft_context *context, int failed)
{
    int status;

    if (!job->trace_path)
        return WEFT_OK;
    if (cli_uses_processes(job->transport)) {
        job->trace_apart = failed;
        return end_mpi(job, context, failed);
    }
    pthread_mutex_lock(&job->lock);
    status = weft_context_trace_collect(context, job->trace);
    pthread_mutex_unlock(&job->lock);
    weft_context_trace_stop(context);
    return status;
}

int run_trace_write(struct run_job *job)
{
    struct weft_trace_rank rank = {.struct_size = sizeof rank};

    if (!job->trace_path || job->trace_apart || cli_is_follower())
        return 0;
    for (size_t i = 0; i < weft_trace_rank_count(job->trace); i++) {
        weft_trace_get_rank(job->trace, i, &rank);
        if (rank.dropped) {
            fprintf(stderr,
                    "weft run: --trace: rank %d: the %llu oldest records are not there (see "
                    "WEFT_TRACE_RECORDS)\n",
                    rank.rank, (unsigned long long)rank.dropped);
        }
    }
    if (weft_trace_align(job->trace) != WEFT_OK)
        return cli_fail("run", "--trace: %s", weft_error_text());
    if (weft_trace_write(job->trace, job->trace_path) != WEFT_OK) {
        return cli_usage("run", "--trace %s; expected a file that can be written",
                         weft_error_text());
    }
    return 0;
}
