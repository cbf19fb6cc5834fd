/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ranks are on one host. Ranks share a kernel, whose cores they share, then; a network, too,
 * where addresses that are names of that kernel's lead from one to the other; and a host, if
 * WEFT_HOSTS does not have them pretend otherwise. Containers and network namespaces of one machine
 * are hosts of their own: that is how MPI reaches them, and how limits of links are felt.
 */
#include "runtime/transport/mpi/mpi_transport.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/hash.h"
#include "runtime/context/context.h"

/* A number for the running kernel, or else for the machine's name. */
static uint64_t kernel(void)
{
    char text[MPI_MAX_PROCESSOR_NAME + 64] = "";
    int length = 0;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    if (file) {
        if (!fgets(text, 64, file))
            text[0] = '\0';
        fclose(file);
    }
    if (text[0] == '\0')
        PMPI_Get_processor_name(text, &length);
    return weft__hash_bytes(WEFT__HASH_EMPTY, text, strlen(text));
}

int weft__mpi_home(struct weft__mpi_home *home)
{
    char network[64] = "";
    int rank, size, pretended;
    int status;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    status = weft__env_host(rank, size, &pretended);
    if (status < 0)
        return status;
    if (readlink("/proc/self/ns/net", network, sizeof network - 1) < 0)
        network[0] = '\0';
    home->kernel = kernel();
    home->network = weft__hash_bytes(home->kernel, network, sizeof network);
    home->host = weft__hash_bytes(home->network, &pretended, sizeof pretended);
    return WEFT_OK;
}

void weft__mpi_number_hosts(struct weft__mpi *mpi)
{
    const struct weft__mpi_home *homes = mpi->homes;
    const struct weft__mpi_home *own = &homes[mpi->base.rank];
    int count = 0;

    mpi->base.local_ranks = 0;
    for (int rank = 0; rank < mpi->base.size; rank++) {
        int first = 0;

        while (homes[first].host != homes[rank].host)
            first++;
        mpi->hosts[rank] = first == rank ? count++ : mpi->hosts[first];
        mpi->peers[rank].streams = homes[rank].network == own->network;
        mpi->base.local_ranks += homes[rank].kernel == own->kernel;
    }
    mpi->base.host_count = count;
}
