/* SPDX-License-Identifier: BSD-3-Clause */
/* The processes are those of MPI_COMM_WORLD. */
#include <sched.h>
#include <stdlib.h>
#include <weft/mpi.h>

#include "world.h"

const int world_hears_all = 1;
static MPI_Request meeting;

void world_begin(int *argc, char ***argv, int threads)
{
    static const int levels[] = {[WORLD_ONE_THREAD] = MPI_THREAD_SINGLE,
                                 [WORLD_MAIN_THREAD] = MPI_THREAD_FUNNELED,
                                 [WORLD_THREADS] = MPI_THREAD_MULTIPLE};
    int provided;

    MPI_Init_thread(argc, argv, levels[threads], &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    CHECK(provided >= levels[threads]);
}

void world_finish(void)
{
    MPI_Finalize();
}

void world_abort(void)
{
    MPI_Abort(MPI_COMM_WORLD, 1);
}

void world_come(void)
{
    MPI_Ibarrier(MPI_COMM_WORLD, &meeting);
}

int world_all_came(void)
{
    int done = 0;

    MPI_Test(&meeting, &done, MPI_STATUS_IGNORE);
    return done;
}

void world_gather(const void *mine, size_t bytes, void *all)
{
    MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, &meeting);
    while (!world_all_came())
        sched_yield();
}

int world_create(struct weft_context **context, const struct weft_context_config *config)
{
    return weft_context_create_mpi(context, MPI_COMM_WORLD, config, NULL);
}
