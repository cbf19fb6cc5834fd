/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local ranks for suites: each a thread with a context. A check that fails ends the process, since
 * an assertion of Criterion must not leave a thread that it did not start.
 */
#ifndef WEFT_TESTS_RANKS_H
#define WEFT_TESTS_RANKS_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

#include "sweep.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,                    \
                    weft_error_text());                                                            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_STATUS(call, expected)                                                               \
    do {                                                                                           \
        int status_ = (call);                                                                      \
        if (status_ != (expected)) {                                                               \
            fprintf(stderr, "%s:%d: %s is %s, expected %s (%s)\n", __FILE__, __LINE__, #call,      \
                    weft_status_name(status_), weft_status_name(expected), weft_error_text());     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call) CHECK_STATUS(call, WEFT_OK)

#define CHECK_TEXT(text, word)                                                                     \
    do {                                                                                           \
        if (!strstr(text, word)) {                                                                 \
            fprintf(stderr, "%s:%d: \"%s\" does not say \"%s\"\n", __FILE__, __LINE__, text,       \
                    word);                                                                         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct ranks;
typedef void (*ranks_fn)(struct ranks *ranks, struct weft_context *context, int rank);

struct ranks {
    int size;
    ranks_fn fn;
    void *user;
    struct weft_context_config config;
    struct weft_local_config local_config;
    /* The rest is filled by ranks_run(). */
    struct weft_local *local;
    pthread_barrier_t barrier;
    atomic_ulong arrived; /* of ranks_meet_driving() */
};

struct ranks_thread {
    struct ranks *ranks;
    pthread_t thread;
    int rank;
};

static inline void ranks_init(struct ranks *ranks, int size, ranks_fn fn, void *user)
{
    memset(ranks, 0, sizeof *ranks);
    ranks->size = size;
    atomic_init(&ranks->arrived, 0);
    ranks->fn = fn;
    ranks->user = user;
    weft_context_config_init(&ranks->config);
    weft_local_config_init(&ranks->local_config);
}

/* Waits until all ranks are here, without driving any engine. */
static inline void ranks_meet(struct ranks *ranks)
{
    pthread_barrier_wait(&ranks->barrier);
}

/* The same while each drives its own: what has been sent to it meanwhile goes back to who sent it.
 */
static inline void ranks_meet_driving(struct ranks *ranks, struct weft_context *context)
{
    unsigned long size = (unsigned long)ranks->size;
    unsigned long all = atomic_fetch_add(&ranks->arrived, 1) / size * size + size;

    while (atomic_load(&ranks->arrived) < all) {
        weft_context_progress(context);
        sched_yield();
    }
}

static inline void *ranks_main(void *argument)
{
    struct ranks_thread *self = argument;
    struct weft_context *context = NULL;
    OK(weft_context_create_local(&context, self->ranks->local, self->rank, &self->ranks->config));
    self->ranks->fn(self->ranks, context, self->rank);
    ranks_meet(self->ranks);
    weft_context_destroy(context);
    return NULL;
}

static inline void ranks_run(struct ranks *ranks)
{
    struct ranks_thread *threads = calloc((size_t)ranks->size, sizeof *threads);
    CHECK(threads);
    OK(weft_local_create(&ranks->local, ranks->size, &ranks->local_config));
    CHECK(pthread_barrier_init(&ranks->barrier, NULL, (unsigned)ranks->size) == 0);
    for (int r = 0; r < ranks->size; r++) {
        threads[r].ranks = ranks;
        threads[r].rank = r;
        CHECK(pthread_create(&threads[r].thread, NULL, ranks_main, &threads[r]) == 0);
    }
    for (int r = 0; r < ranks->size; r++)
        CHECK(pthread_join(threads[r].thread, NULL) == 0);
    pthread_barrier_destroy(&ranks->barrier);
    weft_local_destroy(ranks->local);
    free(threads);
}

static inline void ranks_run_once(ranks_fn fn, int size, void *user)
{
    struct ranks ranks;
    ranks_init(&ranks, size, fn, user);
    ranks_run(&ranks);
}

/* With a helper in each context. */
static inline void ranks_run_helped(ranks_fn fn, int size, void *user)
{
    struct ranks ranks;
    ranks_init(&ranks, size, fn, user);
    ranks.config.progress = WEFT_PROGRESS_HELPER;
    ranks_run(&ranks);
}

static inline void ranks_run_each_progress(ranks_fn fn, int size, void *user)
{
    ranks_run_once(fn, size, user);
    ranks_run_helped(fn, size, user);
}

/* By eager messages and by rendezvous. */
static inline void ranks_run_each_protocol(ranks_fn fn, int size, void *user)
{
    struct ranks ranks;
    ranks_init(&ranks, size, fn, user);
    ranks_run(&ranks);
    ranks.local_config.eager_bytes = WEFT_EAGER_NONE;
    ranks_run(&ranks);
}

/* By eager messages, by rendezvous, with helpers, and with one eager message at a time. Under a
 * sanitizer two of these, with a helper and without, those of an odd number of ranks or of an even
 * one. */
static inline void ranks_run_each_way(ranks_fn fn, int size, void *user)
{
    struct ranks ranks;
    ranks_init(&ranks, size, fn, user);
    if (SWEPT(1, size % 2))
        ranks_run(&ranks);
    ranks.local_config.eager_bytes = WEFT_EAGER_NONE;
    if (SWEPT(1, size % 2 == 0))
        ranks_run(&ranks);
    ranks.config.progress = WEFT_PROGRESS_HELPER;
    if (SWEPT(1, size % 2))
        ranks_run(&ranks);
    ranks.local_config.eager_bytes = 0;
    ranks.local_config.eager_messages = 1;
    if (SWEPT(1, size % 2 == 0))
        ranks_run(&ranks);
}

/* A context alone, with its group of one. */
struct alone {
    struct weft_local *local;
    struct weft_context *context;
};

static inline struct alone alone_create(weft_progress_t progress)
{
    struct alone alone;
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = progress;
    OK(weft_local_create(&alone.local, 1, NULL));
    OK(weft_context_create_local(&alone.context, alone.local, 0, &config));
    return alone;
}

static inline void alone_destroy(struct alone *alone)
{
    weft_context_destroy(alone->context);
    weft_local_destroy(alone->local);
}

/* Commits and destroys a schedule. */
static inline struct weft_plan *commit(struct weft_schedule *schedule)
{
    struct weft_plan *plan = NULL;
    OK(weft_schedule_commit(schedule, &plan));
    weft_schedule_destroy(schedule);
    return plan;
}

/* A run of a plan, whose reference it takes over. */
static inline struct weft_run *make_run(struct weft_context *context, struct weft_plan *plan,
                                        const struct weft_run_config *config)
{
    struct weft_run *run = NULL;
    OK(weft_run_create(&run, context, plan, config));
    weft_plan_destroy(plan);
    return run;
}

static inline struct weft_schedule *new_schedule(int rank, int size)
{
    struct weft_schedule *schedule = NULL;
    OK(weft_schedule_create(&schedule, rank, size));
    return schedule;
}

#endif
