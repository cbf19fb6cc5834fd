/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that call collectives: threads [multiple | serialized | funneled | single]. With
 * multiple, which is the default, each thread has communicators of its own and all call at once;
 * with serialized they take turns; with funneled the others do something else meanwhile. Exits with
 * 77 if MPI has no such level.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

enum { THREADS = 4, ROUNDS = 500, ROUNDS_ALONE = 32, DUP_EVERY = 100, SKIPPED = 77 };

struct worker {
    pthread_t thread;
    int number;
    MPI_Comm comm;
};

static int rounds = ROUNDS;

static const char *const names[] = {"MPI_Allreduce", "MPI_Bcast",      "MPI_Allgather",
                                    "MPI_Alltoall",  "MPI_Iallreduce", "MPI_Reduce_scatter_block",
                                    "MPI_Sendrecv",  "MPI_Barrier"};
enum { CALLS = sizeof names / sizeof names[0] };

static void wait_for(MPI_Request *request)
{
    int flag = 0;

    while (!flag) {
        MUST(MPI_Test(request, &flag, MPI_STATUS_IGNORE));
        sched_yield();
    }
}

/* `data` is of `test_size` elements each; what was received is known. */
static void call(MPI_Comm comm, int which, int root, int *send, int *recv)
{
    int next = (test_rank + 1) % test_size, previous = (test_rank + test_size - 1) % test_size;
    MPI_Request request;

    switch (which) {
    case 0:
        MUST(MPI_Allreduce(send, recv, test_size, MPI_INT, MPI_SUM, comm));
        break;
    case 1:
        if (test_rank == root)
            memcpy(recv, send, sizeof(int) * (size_t)test_size);
        MUST(MPI_Bcast(recv, test_size, MPI_INT, root, comm));
        break;
    case 2:
        MUST(MPI_Allgather(send, 1, MPI_INT, recv, 1, MPI_INT, comm));
        break;
    case 3:
        MUST(MPI_Alltoall(send, 1, MPI_INT, recv, 1, MPI_INT, comm));
        break;
    case 4:
        MUST(MPI_Iallreduce(send, recv, test_size, MPI_INT, MPI_SUM, comm, &request));
        wait_for(&request);
        break;
    case 5:
        MUST(MPI_Reduce_scatter_block(send, recv, 1, MPI_INT, MPI_SUM, comm));
        break;
    case 6:
        MUST(MPI_Sendrecv(send, test_size, MPI_INT, next, 3, recv, test_size, MPI_INT, previous, 3,
                          comm, MPI_STATUS_IGNORE));
        break;
    default:
        MUST(MPI_Barrier(comm));
    }
}

/* Element i of rank r is base + 100 r + i. */
static int expected_at(int which, int root, int base, int i)
{
    int sum = test_size * base + 100 * (test_size * (test_size - 1) / 2);
    int previous = (test_rank + test_size - 1) % test_size;

    switch (which) {
    case 0:
    case 4:
        return sum + test_size * i;
    case 1:
        return base + 100 * root + i;
    case 2:
        return base + 100 * i;
    case 3:
        return base + 100 * i + test_rank;
    case 5:
        return i == 0 ? sum + test_size * test_rank : -1;
    case 6:
        return base + 100 * previous + i;
    default:
        return -1;
    }
}

static void round_of(const struct worker *worker, MPI_Comm comm, int round, int *send, int *recv)
{
    int which = (round + worker->number) % CALLS, root = round % test_size;
    int base = 1000 * worker->number + round;

    for (int i = 0; i < test_size; i++) {
        send[i] = base + 100 * test_rank + i;
        recv[i] = -1;
    }
    call(comm, which, root, send, recv);
    for (int i = 0; i < test_size; i++) {
        int expected = expected_at(which, root, base, i);

        if (recv[i] == expected)
            continue;
        test_mismatch("%s, thread %d, round %d: element %d: expected %d, found %d", names[which],
                      worker->number, round, i, expected, recv[i]);
        return;
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    int *send = test_alloc(sizeof(int) * (size_t)test_size);
    int *recv = test_alloc(sizeof(int) * (size_t)test_size);
    MPI_Comm comm = worker->comm;

    for (int round = 0; round < rounds; round++) {
        if (round % DUP_EVERY == DUP_EVERY / 2) {
            MUST(MPI_Comm_dup(worker->comm, &comm));
        } else if (round % DUP_EVERY == 0 && comm != worker->comm) {
            MUST(MPI_Comm_free(&comm));
            comm = worker->comm;
        }
        round_of(worker, comm, round, send, recv);
    }
    if (comm != worker->comm)
        MUST(MPI_Comm_free(&comm));
    free(send);
    free(recv);
    return NULL;
}

static void start(struct worker *worker, void *(*function)(void *))
{
    if (pthread_create(&worker->thread, NULL, function, worker) != 0) {
        test_mismatch("pthread_create fails");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void make(struct worker *workers)
{
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        MUST(MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm));
    }
}

static void destroy(struct worker *workers)
{
    for (int i = 0; i < THREADS; i++)
        MUST(MPI_Comm_free(&workers[i].comm));
}

/* The main thread is one of them. */
static void multiple(void)
{
    struct worker workers[THREADS];

    make(workers);
    for (int i = 1; i < THREADS; i++)
        start(&workers[i], work);
    work(&workers[0]);
    for (int i = 1; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    destroy(workers);
}

/* ---- turns ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t passed = PTHREAD_COND_INITIALIZER;
static int turn;

/* In turn one round on the thread's communicator and one on a common one. */
static void *take_turns(void *argument)
{
    const struct worker *worker = argument;
    int *send = test_alloc(sizeof(int) * (size_t)test_size);
    int *recv = test_alloc(sizeof(int) * (size_t)test_size);

    for (int round = 0; round < rounds / THREADS; round++) {
        pthread_mutex_lock(&lock);
        while (turn % THREADS != worker->number)
            pthread_cond_wait(&passed, &lock);
        round_of(worker, worker->comm, round, send, recv);
        round_of(worker, MPI_COMM_WORLD, round, send, recv);
        turn++;
        pthread_cond_broadcast(&passed);
        pthread_mutex_unlock(&lock);
    }
    free(send);
    free(recv);
    return NULL;
}

static void serialized(void)
{
    struct worker workers[THREADS];

    make(workers);
    for (int i = 0; i < THREADS; i++)
        start(&workers[i], take_turns);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    destroy(workers);
}

/* ---- one thread alone ---- */

static atomic_bool over;

static void *elsewhere(void *argument)
{
    unsigned steps = 0;

    (void)argument;
    while (!atomic_load(&over)) {
        steps++;
        sched_yield();
    }
    return steps ? NULL : argument;
}

static void funneled(void)
{
    struct worker workers[2] = {{.number = 0}, {.number = 1}};

    start(&workers[1], elsewhere);
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &workers[0].comm));
    work(&workers[0]);
    MUST(MPI_Comm_free(&workers[0].comm));
    atomic_store(&over, true);
    pthread_join(workers[1].thread, NULL);
}

static void single(void)
{
    struct worker worker = {.number = 0};

    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &worker.comm));
    work(&worker);
    MUST(MPI_Comm_free(&worker.comm));
}

static const struct {
    const char *name;
    int level;
    void (*function)(void);
} variants[] = {
    {"multiple", MPI_THREAD_MULTIPLE, multiple},
    {"serialized", MPI_THREAD_SERIALIZED, serialized},
    {"funneled", MPI_THREAD_FUNNELED, funneled},
    {"single", MPI_THREAD_SINGLE, single},
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

int main(int argc, char **argv)
{
    int variant = 0, provided;

    for (int i = 0; i < VARIANTS; i++)
        if (test_option(argc, argv, variants[i].name))
            variant = i;
    provided = test_begin(&argc, &argv, variants[variant].level);
    if (provided < variants[variant].level) {
        if (test_rank == 0)
            fprintf(stderr, "threads: skipped: MPI has no level \"%s\"\n", variants[variant].name);
        MPI_Finalize();
        return SKIPPED;
    }
    if (!test_preloaded() && test_crowded() && !test_option(argc, argv, "--all"))
        rounds = ROUNDS_ALONE; /* all of them spin */
    test_doing("threads, %s", variants[variant].name);
    variants[variant].function();
    return test_end();
}
