/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is under way goes on in every function of MPI that waits, also in those that are not here.
 *
 * Functions that complete requests or wait for a message (wait.c) drive weft themselves. Others
 * know nothing of it, as what waits in a file or a window, or a blocking collective that is MPI's;
 * that may not be begun as one that does not block, since whether anything is under way is a rank's
 * own affair, and the two do not match. So a thread drives weft now and then while anything is. It
 * calls nothing of MPI, as between processes of one host weft does not; where it would, it may only
 * run if the program has asked for MPI_THREAD_MULTIPLE, and if it may not, calls that do not block
 * are MPI's. Functions of the program, and MPI_Reduce_local, in operations, it only calls while the
 * program is in MPI, unless that is so.
 */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "tools/pmpi/request.h"

/* How often it drives: while the program waits in MPI, where others may wait for it; else. And how
 * long it does so when nothing is under way any more. */
#define WAIT_TURN_NS 50000L
#define TURN_NS      1000000L
enum { IDLE_TURNS = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static int has_thread;
static _Atomic int stopping;
/* Held while the thread drives what may call the program. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int sleeping = 1;    /* it is not there, or waits to be armed */
static _Atomic int by_others_count; /* of what is under way */
static _Atomic int inside;

static void sleep_a_turn(void)
{
    struct timespec turn = {0, atomic_load(&inside) > 0 ? WAIT_TURN_NS : TURN_NS};
    nanosleep(&turn, NULL);
}

static int may_drive(void)
{
    return atomic_load(&by_others_count) == 0 || atomic_load(&inside) > 0 ||
           pmpi_level == MPI_THREAD_MULTIPLE;
}

/* Waits until something is under way. 0: it is over. */
static int wait_for_work(void)
{
    pthread_mutex_lock(&lock);
    atomic_store(&sleeping, 1);
    /* Either who arms sees it asleep, or it sees what is under way. */
    while (!atomic_load(&stopping) && atomic_load(&pmpi_under_way) == 0)
        pthread_cond_wait(&changed, &lock);
    atomic_store(&sleeping, 0);
    int goes_on = !atomic_load(&stopping);
    pthread_mutex_unlock(&lock);
    return goes_on;
}

static void *rescue(void *unused)
{
    (void)unused;
    while (wait_for_work())
        for (int idle = 0; idle < IDLE_TURNS && !atomic_load(&stopping); idle++) {
            sleep_a_turn();
            if (atomic_load(&pmpi_under_way) == 0)
                continue;
            idle = 0;
            pthread_mutex_lock(&gate);
            if (may_drive())
                weft_context_progress(pmpi_world);
            pthread_mutex_unlock(&gate);
        }
    return NULL;
}

int pmpi_rescue_may_run(void)
{
    return weft_context_host_count(pmpi_world) == 1 || pmpi_level == MPI_THREAD_MULTIPLE;
}

/* Else weft's own thread drives. */
static int is_wanted(void)
{
    return weft_context_progress_mode(pmpi_world) != WEFT_PROGRESS_HELPER;
}

static void wake(void)
{
    pthread_mutex_lock(&lock);
    if (!has_thread && !atomic_load(&stopping) && is_wanted())
        has_thread = pthread_create(&thread, NULL, rescue, NULL) == 0;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

/* Who drives has looked before, or sees it: the program is not called back once it is in its own
 * functions again. */
void pmpi_rescue_allow(int by_others)
{
    if (!by_others)
        return;
    atomic_fetch_add(&by_others_count, 1);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

void pmpi_rescue_arm(void)
{
    if (atomic_load(&sleeping))
        wake();
}

void pmpi_rescue_disarm(int by_others)
{
    if (by_others)
        atomic_fetch_sub(&by_others_count, 1);
}

void pmpi_rescue_enter(void)
{
    atomic_fetch_add(&inside, 1);
}

void pmpi_rescue_leave(void)
{
    atomic_fetch_sub(&inside, 1);
    if (atomic_load(&by_others_count) > 0) { /* until it has left functions of the program */
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
    }
}

void pmpi_rescue_close(void)
{
    pthread_mutex_lock(&lock);
    atomic_store(&stopping, 1);
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    if (has_thread)
        pthread_join(thread, NULL);
    has_thread = 0;
}
