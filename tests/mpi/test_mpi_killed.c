/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process is killed (kill -9), and its launcher lets the others go on: they hear which and how,
 * go on without it, and end. Knows no MPI, so that ending it is libweft-mpi's. What they say, and
 * that all has gone well, is in files: output of a job that a launcher ends may be lost.
 *
 *   test_mpi_killed VICTIM HELPER FOLDER
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/weft.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, weft_error_text()); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Adds up ones. The status of the run. */
static int count_ranks(struct weft_context *context)
{
    double one = 1, all = 0;
    struct weft_template_params params;
    struct weft_run *run = NULL;
    int status;

    weft_template_params_init(&params);
    params.count = 1;
    params.dtype = WEFT_F64;
    CHECK(weft_template_create_run(&run, context, "allreduce", &params) == WEFT_OK);
    CHECK(weft_run_bind_input_name(run, "send", &one, 1, WEFT_F64) == WEFT_OK);
    CHECK(weft_run_bind_name(run, "recv", &all, 1, WEFT_F64) == WEFT_OK);
    status = weft_run_execute(run);
    CHECK(status < 0 || all == weft_context_size(context));
    weft_run_destroy(run);
    return status;
}

int main(int argc, char **argv)
{
    struct weft_context_config config;
    struct weft_context *context = NULL, *survivors = NULL;
    int victim = argc > 3 ? atoi(argv[1]) : -1;
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
    for (count = 0; status == WEFT_OK && count < 100; count++)
        status = count_ranks(context);
    /* The victim is through with the last sum, which may still need it on the others. */
    CHECK(count == 100 && (status == WEFT_OK || rank != victim));
    if (rank == victim)
        raise(SIGKILL);
    while (status == WEFT_OK)
        status = count_ranks(context);
    CHECK(status == WEFT_ERR_PEER);
    snprintf(text, sizeof text, "rank %d has died: ", victim);
    CHECK(strstr(weft_error_text(), text));
    /* It may have heard of that from another before it is told. */
    while (state == WEFT_RANK_PRESENT) {
        CHECK(weft_context_progress(context) >= 0);
        CHECK(weft_context_rank_state(context, victim, &state, &how) == WEFT_OK);
    }
    CHECK(state == WEFT_RANK_DEAD && how[0]); /* in which words depends on the launcher */
    CHECK(weft_context_shrink(context, &survivors) == WEFT_OK);
    CHECK(weft_context_size(survivors) == size - 1);
    CHECK(weft_context_rank(survivors) == rank - (rank > victim));
    for (count = 0; count < 100; count++)
        CHECK(count_ranks(survivors) == WEFT_OK);
    CHECK(weft_context_destroy(survivors) == WEFT_OK);
    CHECK(weft_context_destroy(context) == WEFT_OK);
    snprintf(path, sizeof path, "%s/survivor.%d", argv[3], rank);
    FILE *file = fopen(path, "w");
    CHECK(file && fclose(file) == 0);
    return 0;
}
