/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process is killed (kill -9), and its launcher lets the others go on: they hear which and how,
 * go on without it, and end. Knows no MPI, so that ending it is libweft-mpi's. What they say, and
 * that all has gone well, is in files: output of a job that a launcher ends may be lost.
 *
 *   test_mpi_killed VICTIM HELPER FOLDER [device]
 *
 * device: what they add up is long and memory of a device, so that messages are staged, and the
 * victim is killed in the middle of a sum.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/device.h>
#include <weft/weft.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, weft_error_text()); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { MOST = 100000 };

/* Memory of one array, of the device or of the host. */
static double *make(struct weft_context *context, int on_device)
{
    void *data = NULL;

    CHECK(weft_context_device_alloc(context, on_device ? WEFT_MEMORY_DEVICE : WEFT_MEMORY_HOST,
                                    MOST * sizeof(double), &data) == WEFT_OK);
    return data;
}

/* Adds up ones. The status of the run. @p die: in the middle of it. */
static int sum(struct weft_context *context, const struct weft_template_params *params,
               const double *ones, double *all, int die)
{
    struct weft_run *run = NULL;
    int status;

    CHECK(weft_template_create_run(&run, context, "allreduce", params) == WEFT_OK);
    CHECK(weft_run_bind_input_name(run, "send", ones, params->count, WEFT_F64) == WEFT_OK);
    CHECK(weft_run_bind_name(run, "recv", all, params->count, WEFT_F64) == WEFT_OK);
    status = weft_run_start(run);
    CHECK(status == WEFT_OK || !die);
    if (die)
        raise(SIGKILL);
    if (status == WEFT_OK)
        status = weft_run_wait(run, WEFT_NEVER);
    while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
        CHECK(weft_context_progress(context) >= 0);
    weft_run_destroy(run);
    return status;
}

static int count_ranks(struct weft_context *context, int die)
{
    double one = 1, all = 0;
    struct weft_template_params params;

    weft_template_params_init(&params);
    params.count = 1;
    params.dtype = WEFT_F64;
    int status = sum(context, &params, &one, &all, die);
    CHECK(status < 0 || all == weft_context_size(context));
    return status;
}

static int count_on_device(struct weft_context *context, int die)
{
    struct weft_template_params params;
    double *host = make(context, 0), *ones = make(context, 1), *all = make(context, 1);

    weft_template_params_init(&params);
    params.count = MOST;
    params.dtype = WEFT_F64;
    params.memory = WEFT_MEMORY_DEVICE;
    for (int i = 0; i < MOST; i++)
        host[i] = 1;
    CHECK(weft_context_device_copy(context, ones, host, MOST * sizeof *host) == WEFT_OK);
    int status = sum(context, &params, ones, all, die);
    if (status == WEFT_OK)
        CHECK(weft_context_device_copy(context, host, all, MOST * sizeof *host) == WEFT_OK);
    for (int i = 0; i < MOST && status == WEFT_OK; i++)
        CHECK(host[i] == weft_context_size(context));
    weft_context_device_free(context, host);
    weft_context_device_free(context, ones);
    weft_context_device_free(context, all);
    return status;
}

int main(int argc, char **argv)
{
    struct weft_context_config config;
    struct weft_context *context = NULL, *survivors = NULL;
    int victim = argc > 3 ? atoi(argv[1]) : -1;
    int on_device = argc > 4 && strcmp(argv[4], "device") == 0;
    int (*sums)(struct weft_context *, int) = on_device ? count_on_device : count_ranks;
    int times = on_device ? 5 : 100;
    int rank, size, count, status = WEFT_OK;
    weft_rank_state_t state = WEFT_RANK_PRESENT;
    const char *how = "";
    char path[4096], text[100];

    CHECK(victim >= 0);
    snprintf(path, sizeof path, "%s/said.%ld", argv[3], (long)getpid());
    CHECK(freopen(path, "w", stderr));
    weft_context_config_init(&config);
    config.progress = atoi(argv[2]) ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
    CHECK(weft_context_create_world(&context, "mpi", &config) == WEFT_OK);
    rank = weft_context_rank(context);
    size = weft_context_size(context);
    for (count = 0; status == WEFT_OK && count < times; count++)
        status = sums(context, 0);
    /* The victim is through with the last sum, which may still need it on the others. */
    CHECK(count == times && (status == WEFT_OK || rank != victim));
    if (rank == victim && !on_device)
        raise(SIGKILL);
    while (status == WEFT_OK)
        status = sums(context, rank == victim);
    CHECK(status == WEFT_ERR_PEER);
    /* Of a long message it may hear that another has dropped it, whose sum had failed before. */
    snprintf(text, sizeof text, "rank %d has died: ", victim);
    CHECK(strstr(weft_error_text(), text) ||
          (on_device && strstr(weft_error_text(), "the receiver has dropped the message")));
    /* It may have heard of that from another before it is told. */
    while (state == WEFT_RANK_PRESENT) {
        CHECK(weft_context_progress(context) >= 0);
        CHECK(weft_context_rank_state(context, victim, &state, &how) == WEFT_OK);
    }
    CHECK(state == WEFT_RANK_DEAD && how[0]); /* in which words depends on the launcher */
    CHECK(weft_context_shrink(context, &survivors) == WEFT_OK);
    CHECK(weft_context_size(survivors) == size - 1);
    CHECK(weft_context_rank(survivors) == rank - (rank > victim));
    for (count = 0; count < times; count++)
        CHECK(sums(survivors, 0) == WEFT_OK);
    CHECK(weft_context_destroy(survivors) == WEFT_OK);
    CHECK(weft_context_destroy(context) == WEFT_OK);
    snprintf(path, sizeof path, "%s/survivor.%d", argv[3], rank);
    FILE *file = fopen(path, "w");
    CHECK(file && fclose(file) == 0);
    return 0;
}
