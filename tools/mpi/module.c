/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The module. A blocking call of MPI spins, and with more ranks than cores that burns whole quanta
 * of the scheduler, which would be found again in the next timed region: so everything outside a
 * peer's own timed region is posted, tested and yielded (or slept on).
 */
#include "tools/mpi/module.h"

#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef OPEN_MPI
static const char *const launchers[] = {"mpiexec.openmpi", "orterun", "mpiexec", NULL};
static const char *const options[] = {"--oversubscribe", NULL};
#    define MPI_NAME "Open MPI"
#else
static const char *const launchers[] = {"mpiexec.mpich", "mpiexec.hydra", "mpiexec", NULL};
static const char *const options[] = {NULL};
#    define MPI_NAME "MPICH"
#endif

static MPI_Request posted = MPI_REQUEST_NULL;
static MPI_Request persistent = MPI_REQUEST_NULL;
static const float *peer_send;
static float *peer_recv;
static int peer_count;
static MPI_Win window = MPI_WIN_NULL; /* of share() */

/* ---- start and end ---- */

static const char *start(int threads, int *rank, int *size)
{
    static char text[128];
    int wanted = threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
    int started = 0;
    int level = wanted;

    MPI_Initialized(&started);
    if (!started && MPI_Init_thread(NULL, NULL, wanted, &level) != MPI_SUCCESS)
        return "MPI_Init_thread failed";
    if (threads && level < wanted) {
        MPI_Finalize();
        snprintf(text, sizeof text, "MPI gives thread level %d, less than MPI_THREAD_MULTIPLE",
                 level);
        return text;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    return NULL;
}

/* Tells the launcher that this process is done, as MPI_Finalize does in the end (PMI-1,
 * "finalize"). To hydra a connection that closes without it is a process that died: where it has
 * reaped the process before it sees the connection close, it ends the others and reports a bad
 * termination, although all went well. The process must not end before the answer is here. */
static void leave_launcher(void)
{
    static const char word[] = "cmd=finalize\n";
    const char *name = getenv("PMI_FD");
    char *end = NULL;
    long file = name ? strtol(name, &end, 10) : -1;
    ssize_t sent;
    char answer = 0;

    if (file < 0 || end == name || *end)
        return;
    do
        sent = write((int)file, word, strlen(word)); /* a socket takes all of so little */
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return;
    while (answer != '\n') {
        ssize_t got = read((int)file, &answer, 1);
        if (got == 0 || (got < 0 && errno != EINTR))
            return;
    }
}

static void stop(int finalize)
{
    int started = 0;
    int stopped = 0;

#ifdef OPEN_MPI
    finalize = 1; /* it returns, and whoever ends without is taken for one that has died */
#endif
    MPI_Initialized(&started);
    MPI_Finalized(&stopped);
    if (!started || stopped)
        return;
    if (window != MPI_WIN_NULL)
        MPI_Win_free(&window);
    if (finalize) {
        MPI_Finalize();
        return;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    leave_launcher();
}

static void end_all(int status)
{
    MPI_Abort(MPI_COMM_WORLD, status);
}

/* ---- outside timed regions ---- */

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

static double agree(double value, int patient)
{
    MPI_Request request;
    double result = value;

    MPI_Iallreduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request);
    finish(&request, patient);
    return result;
}

static void adopt(void *data, size_t bytes)
{
    MPI_Request request;

    MPI_Ibcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
    finish(&request, 0);
}

static void meet(void)
{
    MPI_Request request;

    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    finish(&request, 0);
}

static int gather(void *user, const void *mine, size_t bytes, void *all)
{
    MPI_Request request;

    (void)user;
    MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, &request);
    finish(&request, 0);
    return 0;
}

static void *share(size_t bytes)
{
    MPI_Comm host;
    MPI_Aint size = 0;
    int rank, world, near, unit;
    void *memory = NULL;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &near);
    if (near == world && window == MPI_WIN_NULL) {
        MPI_Win_allocate_shared(rank == 0 ? (MPI_Aint)bytes : 0, 1, MPI_INFO_NULL, host, &memory,
                                &window);
        MPI_Win_shared_query(window, 0, &size, &unit, &memory);
        if (rank == 0)
            memset(memory, 0, bytes);
        MPI_Barrier(host);
    }
    MPI_Comm_free(&host);
    return memory;
}

static void send_byte(int peer)
{
    char byte = 0;

    MPI_Send(&byte, 1, MPI_CHAR, peer, 0, MPI_COMM_WORLD);
}

static void recv_byte(int peer)
{
    char byte;

    MPI_Recv(&byte, 1, MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* ---- peers ---- */

static int peer_open(enum bench_peer peer, const float *send, float *recv, size_t count)
{
    peer_send = send;
    peer_recv = recv;
    peer_count = (int)count;
    if (peer != BENCH_ALLREDUCE_INIT)
        return 1;
#if MPI_VERSION >= 4
    MPI_Allreduce_init(send, recv, peer_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                       &persistent);
    return 1;
#else
    return 0;
#endif
}

static void peer_post(void)
{
    MPI_Iallreduce(peer_send, peer_recv, peer_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &posted);
}

static void peer_wait(void)
{
    MPI_Wait(&posted, MPI_STATUS_IGNORE);
}

static void peer_run(enum bench_peer peer)
{
    switch (peer) {
    case BENCH_ALLREDUCE:
        MPI_Allreduce(peer_send, peer_recv, peer_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case BENCH_IALLREDUCE:
        peer_post();
        peer_wait();
        break;
    default:
        MPI_Start(&persistent);
        MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    }
}

static void peer_close(enum bench_peer peer)
{
    if (peer == BENCH_ALLREDUCE_INIT && persistent != MPI_REQUEST_NULL)
        MPI_Request_free(&persistent);
}

const struct mpi_module weft_command_mpi = {
    .version = WEFT_VERSION,
    .size = sizeof(struct mpi_module),
    .mpi = MPI_NAME,
    .launchers = launchers,
    .options = options,
    .start = start,
    .stop = stop,
    .abort = end_all,
    .agree = agree,
    .adopt = adopt,
    .meet = meet,
    .gather = gather,
    .send = send_byte,
    .recv = recv_byte,
    .peer_open = peer_open,
    .peer_run = peer_run,
    .peer_close = peer_close,
    .peer_post = peer_post,
    .peer_wait = peer_wait,
    .collective = mpi_collective_find,
    .share = share,
};
