/* SPDX-License-Identifier: BSD-3-Clause */
/* Opaque elements as a program has them, over MPI; support/structs.h says which. */
#include "mpi_test.h"
#include "support/structs.h"

int main(int argc, char **argv)
{
    struct weft_context *context;
    int few;

    mpi_test_init(&argc, &argv, MPI_THREAD_SINGLE);
    few = mpi_test_size > 3;
    context = mpi_test_context(MPI_COMM_WORLD, NULL);
    OK(structs_rank(context, &few));
    mpi_test_ok("structs, complex numbers and long doubles");
    OK(structs_broken(context, NULL));
    mpi_test_ok("a message that ends within an element fails its receive");
    weft_context_destroy(context);
    return mpi_test_end();
}
