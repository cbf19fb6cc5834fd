/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that knows MPI alone. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int mine, size, sum = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &mine);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return sum != size * (size - 1) / 2;
}
