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

#include "compare.h"

enum { THREADS = 4, ROUNDS = 500, ROUNDS_ALONE = 32, DUP_EVERY = 100, SKIPPED = 77 };

struct worker {
    pthread_t thread;
    int number;
    MPI_Comm comm;
};

static int rounds = ROUNDS;

static void round_of(const struct worker *worker, MPI_Comm comm, int round)
{
    round_run(comm, round + worker->number, round, 1000 * worker->number + round);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    MPI_Comm comm = worker->comm;

    for (int round = 0; round < rounds; round++) {
        if (round % DUP_EVERY == DUP_EVERY / 2) {
            MUST(MPI_Comm_dup(worker->comm, &comm));
        } else if (round % DUP_EVERY == 0 && comm != worker->comm) {
            MUST(MPI_Comm_free(&comm));
            comm = worker->comm;
        }
        round_of(worker, comm, round);
    }
    if (comm != worker->comm)
        MUST(MPI_Comm_free(&comm));
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

    for (int round = 0; round < rounds / THREADS; round++) {
        pthread_mutex_lock(&lock);
        while (turn % THREADS != worker->number)
            pthread_cond_wait(&passed, &lock);
        round_of(worker, worker->comm, round);
        round_of(worker, MPI_COMM_WORLD, round);
        turn++;
        pthread_cond_broadcast(&passed);
        pthread_mutex_unlock(&lock);
    }
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
