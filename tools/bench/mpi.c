/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI for the measurements. A blocking call spins, and with more ranks than cores that burns whole
 * quanta of the scheduler, which would be found again in the next timed region: so everything
 * outside a peer's own timed region is posted, tested and yielded (or slept on).
 */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#ifdef WEFT_HAVE_MPI

#    include <sched.h>
#    include <time.h>
#    include <weft/mpi.h>

static MPI_Request posted = MPI_REQUEST_NULL;
static MPI_Request persistent = MPI_REQUEST_NULL;
static const float *peer_send;
static float *peer_recv;
static int peer_count;

/* Sleeps grow, so that those that wait for a whole turn of others take nothing from them. */
static void finish(MPI_Request *request, int patient)
{
    struct timespec pause = {.tv_nsec = 20000};
    int done = 0;

    for (int i = 0;; i++) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done)
            return;
        if (!patient || i < 20) {
            sched_yield();
            continue;
        }
        nanosleep(&pause, NULL);
        pause.tv_nsec = pause.tv_nsec < 2000000 ? pause.tv_nsec * 2 : 4000000;
    }
}

double bench_mpi_agree(double value, int patient)
{
    MPI_Request request;
    double result = value;

    MPI_Iallreduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request);
    finish(&request, patient);
    return result;
}

void bench_mpi_meet(void)
{
    MPI_Request request;

    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    finish(&request, 0);
}

void bench_mpi_abort(void)
{
    ranks_abort_mpi(CLI_NO);
}

struct weft_context *bench_mpi_context(const struct weft_context_config *config)
{
    struct weft_context *context = NULL;

    return weft_context_create_mpi(&context, MPI_COMM_WORLD, config, NULL) == WEFT_OK ? context
                                                                                      : NULL;
}

int bench_peer_open(enum bench_peer peer, const float *send, float *recv, size_t count)
{
    peer_send = send;
    peer_recv = recv;
    peer_count = (int)count;
    if (peer == BENCH_ALLREDUCE_INIT) {
#    if MPI_VERSION >= 4
        MPI_Allreduce_init(send, recv, peer_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                           MPI_INFO_NULL, &persistent);
        return 1;
#    else
        return 0;
#    endif
    }
    return 1;
}

void bench_peer_run(enum bench_peer peer)
{
    switch (peer) {
    case BENCH_ALLREDUCE:
        MPI_Allreduce(peer_send, peer_recv, peer_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case BENCH_IALLREDUCE:
        bench_peer_post();
        bench_peer_wait();
        break;
    default:
        MPI_Start(&persistent);
        MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    }
}

void bench_peer_close(enum bench_peer peer)
{
    if (peer == BENCH_ALLREDUCE_INIT && persistent != MPI_REQUEST_NULL)
        MPI_Request_free(&persistent);
}

void bench_peer_post(void)
{
    MPI_Iallreduce(peer_send, peer_recv, peer_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &posted);
}

void bench_peer_wait(void)
{
    MPI_Wait(&posted, MPI_STATUS_IGNORE);
}

void bench_mpi_send(int peer)
{
    char byte = 0;

    MPI_Send(&byte, 1, MPI_CHAR, peer, 0, MPI_COMM_WORLD);
}

void bench_mpi_recv(int peer)
{
    char byte;

    MPI_Recv(&byte, 1, MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

#else

double bench_mpi_agree(double value, int patient)
{
    (void)patient;
    return value;
}

void bench_mpi_meet(void)
{
}

void bench_mpi_abort(void)
{
}

struct weft_context *bench_mpi_context(const struct weft_context_config *config)
{
    (void)config;
    weft_error_set(WEFT_ERR_UNSUPPORTED, "the MPI transport was not built in");
    return NULL;
}

int bench_peer_open(enum bench_peer peer, const float *send, float *recv, size_t count)
{
    (void)peer, (void)send, (void)recv, (void)count;
    return 0;
}

void bench_peer_run(enum bench_peer peer)
{
    (void)peer;
}

void bench_peer_close(enum bench_peer peer)
{
    (void)peer;
}

void bench_peer_post(void)
{
}

void bench_peer_wait(void)
{
}

void bench_mpi_send(int peer)
{
    (void)peer;
}

void bench_mpi_recv(int peer)
{
    (void)peer;
}

#endif

const char *bench_peer_name(enum bench_peer peer)
{
    static const char *const names[] = {"MPI_Allreduce", "MPI_Iallreduce", "MPI_Allreduce_init"};

    return names[peer];
}
