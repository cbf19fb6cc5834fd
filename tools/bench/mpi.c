/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI for the measurements, which runs when these are called: what its module does. */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#include <weft/shared.h>

double bench_mpi_agree(double value, int patient)
{
    return ranks_mpi()->agree(value, patient);
}

void bench_mpi_adopt(void *data, size_t bytes)
{
    ranks_mpi()->adopt(data, bytes);
}

void bench_mpi_meet(void)
{
    ranks_mpi()->meet();
}

void bench_mpi_abort(void)
{
    ranks_abort(CLI_NO);
}

const char *bench_over_name(enum bench_over over)
{
    static const char *const names[] = {"local", "shared", "mpi"};

    return names[over];
}

enum bench_over bench_over_last(const struct bench *bench)
{
    return bench->world > 1 ? BENCH_MPI : BENCH_LOCAL;
}

struct weft_context *bench_context(const struct bench *bench, enum bench_over over,
                                   const struct weft_context_config *config)
{
    struct weft_context *context = NULL;
    struct weft_shared_config shared;

    if (over == BENCH_MPI) {
        weft_context_create_world(&context, "mpi", config);
        return context;
    }
    weft_shared_config_init(&shared);
    shared.gather = ranks_mpi()->gather;
    weft_context_create_shared(&context, bench->rank, bench->world, config, &shared);
    return context;
}

int bench_shares(const struct bench *bench)
{
    struct weft_context *context = bench_context(bench, BENCH_SHARED, NULL);

    if (!context)
        bench_note(bench, "not over shared memory: %s", weft_error_text());
    weft_context_destroy(context);
    return context != NULL;
}

void bench_mpi_send(int peer)
{
    ranks_mpi()->send(peer);
}

void bench_mpi_recv(int peer)
{
    ranks_mpi()->recv(peer);
}

int bench_peer_open(enum bench_peer peer, const float *send, float *recv, size_t count)
{
    return ranks_mpi()->peer_open(peer, send, recv, count);
}

void bench_peer_run(enum bench_peer peer)
{
    ranks_mpi()->peer_run(peer);
}

void bench_peer_close(enum bench_peer peer)
{
    ranks_mpi()->peer_close(peer);
}

void bench_peer_post(void)
{
    ranks_mpi()->peer_post();
}

void bench_peer_wait(void)
{
    ranks_mpi()->peer_wait();
}

const char *bench_peer_name(enum bench_peer peer)
{
    static const char *const names[] = {"MPI_Allreduce", "MPI_Iallreduce", "MPI_Allreduce_init"};

    return names[peer];
}
