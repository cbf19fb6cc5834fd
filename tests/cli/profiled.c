/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that knows MPI alone, for weft profile: how often it calls what is in test_profile.sh.
 * With `fails` rank 1 ends with status 7 behind MPI_Finalize, with `aborts` before it; with
 * `nothing` no collective is called.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static float from[256], to[8 * 256];

static void call_all(int rank)
{
    MPI_Comm half;
    MPI_Request request;
    int three[3] = {0};

    for (int i = 0; i < 10; i++)
        MPI_Allreduce(from, to, 256, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 5; i++)
        MPI_Bcast(three, 3, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < 4; i++) {
        MPI_Iallgather(from, 100, MPI_FLOAT, to, 100, MPI_FLOAT, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Comm_set_name(half, "halves");
    for (int i = 0; i < 3 + 3 * (rank % 2); i++)
        MPI_Barrier(half);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (strcmp(what, "nothing") != 0)
        call_all(rank);
    if (strcmp(what, "aborts") == 0)
        MPI_Abort(MPI_COMM_WORLD, 9);
    printf("rank %d is done\n", rank);
    MPI_Finalize();
    return rank == 1 && strcmp(what, "fails") == 0 ? 7 : 0;
}
