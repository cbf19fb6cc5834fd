/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>
#ifdef WEFT_EXAMPLE_MPI
#    include <weft/mpi.h>
#endif

enum { WEIGHTS = 4, STEPS = 400 };

/* [train] */
/* Every rank learns y = x . (1, 2, 3, 4) from samples of its own. Rank 1 is slow now and then; it
 * is waited for at every 10th step only. */
static int train(struct weft_context *context, void *user)
{
    double weights[WEIGHTS] = {0};
    struct weft_piece tensors[] = {{weights, WEIGHTS}};
    struct weft_group_average *average = NULL;
    struct weft_group_average_config config;
    int rank = weft_context_rank(context), size = weft_context_size(context);
    uint64_t stale = 0, random = (uint64_t)rank + 1;
    (void)user;
    weft_group_average_config_init(&config);
    config.dtype = WEFT_F64;
    config.tensors = tensors;
    config.tensor_count = 1;
    int status = weft_group_average_create(&average, context, &config);
    for (int step = 0; step < STEPS && !status; step++) {
        struct weft_group_average_result result = {.struct_size = sizeof result};
        double x[WEIGHTS], error = 0;
        for (int i = 0; i < WEIGHTS; i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            x[i] = (double)(random >> 40) * 0x1p-23 - 1;
            error += x[i] * (weights[i] - (i + 1));
        }
        for (int i = 0; i < WEIGHTS; i++)
            weights[i] -= 0.3 * error * x[i];
        weft_context_sleep(context, rank == 1 && step % 8 == 0 ? 2000000 : 100000);
        status = weft_group_average_step(average, &result);
        stale += !status && result.stale;
    }
    if (!status)
        printf("rank %d of %d: %.3f %.3f %.3f %.3f, %llu of %d steps were stale\n", rank, size,
               weights[0], weights[1], weights[2], weights[3], (unsigned long long)stale, STEPS);
    int ended = weft_group_average_destroy(average);
    return status ? status : ended;
}
/* [train] */

/* Local ranks, as many as the first argument says; or those of mpiexec: group_averaging mpi. */
int main(int argc, char **argv)
{
    struct weft_context_config config;
    int status;
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER; /* late ranks take part while they compute */
#ifdef WEFT_EXAMPLE_MPI
    if (argc > 1 && !strcmp(argv[1], "mpi")) {
        struct weft_context *context = NULL;
        int level;
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
        status = weft_context_create_mpi(&context, MPI_COMM_WORLD, &config, NULL);
        if (!status)
            status = train(context, NULL);
        if (status)
            fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
        weft_context_destroy(context);
        MPI_Finalize();
        return status != WEFT_OK;
    }
#endif
    int ranks = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 8;
    if (ranks < 1) {
        fputs("usage: group_averaging [RANKS|mpi], RANKS from 1\n", stderr);
        return 2;
    }
    status = weft_local_run(ranks, &config, train, NULL);
    if (status)
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
    return status != WEFT_OK;
}
