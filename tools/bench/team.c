/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local ranks that stay between measurements, asleep on a semaphore, so that other contenders have
 * the cores for themselves when it is their turn.
 */
#include "tools/bench/bench.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bench_member {
    struct bench_team *team;
    int rank;
    int started;
    int status;
    char text[512];
    pthread_t thread;
    sem_t go;
};

static void *member_main(void *user)
{
    struct bench_member *member = user;
    struct bench_team *team = member->team;

    for (;;) {
        while (sem_wait(&member->go) != 0) {
        }
        if (team->stop)
            return NULL;
        member->status = team->fn(team, member->rank, team->user);
        if (member->status < 0)
            snprintf(member->text, sizeof member->text, "%s", weft_error_text());
        sem_post(&team->done);
    }
}

int bench_team_open(struct bench_team *team, int size, const struct weft_context_config *config)
{
    *team = (struct bench_team){.size = size};
    team->contexts = calloc((size_t)size, sizeof(struct weft_context *));
    team->members = calloc((size_t)size, sizeof *team->members);
    team->spins = sysconf(_SC_NPROCESSORS_ONLN) >= size ? 2000 : 0;
    sem_init(&team->done, 0, 0);
    int status = team->contexts && team->members
                     ? weft_local_create(&team->local, size, NULL)
                     : weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d ranks", size);
    for (int r = 0; status == WEFT_OK && r < size; r++) {
        struct bench_member *member = &team->members[r];
        member->team = team;
        member->rank = r;
        status = weft_context_create_local(&team->contexts[r], team->local, r, config);
        if (status == WEFT_OK && r > 0) {
            sem_init(&member->go, 0, 0);
            int error = pthread_create(&member->thread, NULL, member_main, member);
            member->started = !error;
            if (error)
                status = weft_error_set(WEFT_ERR_SYSTEM, "thread %d of %d could not be started: %s",
                                        r, size, strerror(error));
        }
    }
    if (status != WEFT_OK)
        bench_team_close(team);
    return status;
}

void bench_team_close(struct bench_team *team)
{
    team->stop = 1;
    for (int r = 1; team->members && r < team->size; r++) {
        if (team->members[r].started) {
            sem_post(&team->members[r].go);
            pthread_join(team->members[r].thread, NULL);
            sem_destroy(&team->members[r].go);
        }
    }
    for (int r = 0; team->contexts && r < team->size; r++)
        weft_context_destroy(team->contexts[r]);
    weft_local_destroy(team->local);
    sem_destroy(&team->done);
    free(team->contexts);
    free(team->members);
    *team = (struct bench_team){.size = 0};
}

int bench_team_run(struct bench_team *team, bench_team_fn fn, void *user)
{
    team->fn = fn;
    team->user = user;
    for (int r = 1; r < team->size; r++)
        sem_post(&team->members[r].go);
    int status = fn(team, 0, user);
    for (int r = 1; r < team->size; r++) {
        while (sem_wait(&team->done) != 0) {
        }
    }
    /* A text belongs to the thread that it was written in. One that says more than that another
     * rank has failed goes first. */
    for (int r = 1; r < team->size; r++) {
        const struct bench_member *member = &team->members[r];
        int more = status == WEFT_OK || status == WEFT_ERR_PEER || status == WEFT_ERR_CANCELLED;
        int echo = member->status == WEFT_ERR_PEER || member->status == WEFT_ERR_CANCELLED;
        if (member->status < 0 && more && (status == WEFT_OK || !echo))
            status = weft_error_set(member->status, "rank %d: %s", r, member->text);
    }
    return status;
}

void bench_team_meet(struct bench_team *team)
{
    int round = atomic_load_explicit(&team->round, memory_order_acquire);

    /* the last one opens the next round; its release pairs with the acquire of the others */
    if (atomic_fetch_add_explicit(&team->meeting, 1, memory_order_acq_rel) == team->size - 1) {
        atomic_store_explicit(&team->meeting, 0, memory_order_relaxed);
        atomic_store_explicit(&team->round, round + 1, memory_order_release);
        return;
    }
    for (int i = 0; atomic_load_explicit(&team->round, memory_order_acquire) == round; i++)
        if (i >= team->spins)
            sched_yield();
}
