/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Templates on compressed vectors beside each other, and ended in the middle: several in a context,
 * several groups of contexts in a process, runs that are cancelled, contexts that go and ranks that
 * quit while a computation has parts left. Memory is given back at once, as a program would.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "support/ranks.h"
#include "tests/support/bind.h"

enum { MOST_SLOTS = 16, RANKS = 3, GROUPS = 3, VERSIONS = 3 };

/* ---- a run with memory of its own ---- */

struct job {
    const char *name, *algo;
    size_t count, slice, components;
};

static const struct job jobs[] = {
    {"projected-allreduce", "ring", 3000, 64, 8},
    {"projected-allreduce", "reduce-scatter-allgather", 3000, 64, 8},
    {"quantised-allreduce", "ring", 3000, 0, 0},
    {"quantised-allreduce", "all-to-all", 3000, 0, 0},
    {"powersgd-allreduce", NULL, 3072, 64, 2},
};
enum { JOBS = sizeof jobs / sizeof jobs[0], MOST_COUNT = 3072 };

/* Each projects in some 20 parts. */
static const struct job long_job = {"projected-allreduce", "ring", 2048 * 96, 2048, 128};

struct bound {
    struct weft_run *run;
    void *slots[MOST_SLOTS];
    size_t recv, count;
};

static float draw(uint64_t seed, size_t i)
{
    uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15U + i * 0xbf58476d1ce4e5b9U;

    x = (x ^ x >> 29) * 0x94d049bb133111ebU;
    return (float)(int32_t)(x >> 32) * 0x1p-31F;
}

/* What ranks contribute differs, all else is alike on them. */
static void fill(struct bound *bound, int rank)
{
    struct weft_slot_info info = {.struct_size = sizeof info};

    for (weft_slot_t s = 0; weft_plan_get_slot(weft_run_plan(bound->run), s, &info) == WEFT_OK;
         s++) {
        const uint64_t seed = strcmp(info.name, "send") == 0 ? 7 + (uint64_t)rank : 3;

        if (info.kind == WEFT_SLOT_SCRATCH)
            continue;
        for (size_t i = 0; i < info.count; i++)
            if (info.dtype == WEFT_F32)
                ((float *)bound->slots[s])[i] = draw(seed, i);
            else
                ((double *)bound->slots[s])[i] = 0;
    }
}

static void bind_all(struct bound *bound, int rank)
{
    struct weft_slot_info info = {.struct_size = sizeof info};

    for (weft_slot_t s = 0; weft_plan_get_slot(weft_run_plan(bound->run), s, &info) == WEFT_OK;
         s++) {
        if (info.kind == WEFT_SLOT_SCRATCH)
            continue;
        CHECK(s < MOST_SLOTS);
        bound->slots[s] = calloc(info.count + 1, weft_dtype_size(info.dtype));
        CHECK(bound->slots[s]);
        OK(bind_slot(bound->run, s, bound->slots[s]));
        if (strcmp(info.name, "recv") == 0) {
            bound->recv = (size_t)s;
            bound->count = info.count;
        }
    }
    fill(bound, rank);
}

static void release(struct bound *bound)
{
    for (size_t s = 0; s < MOST_SLOTS; s++) {
        free(bound->slots[s]);
        bound->slots[s] = NULL;
    }
}

static struct bound make(struct weft_context *context, const struct job *job)
{
    struct weft_template_params params;
    struct bound bound = {0};

    weft_template_params_init(&params);
    params.algo = job->algo;
    params.count = job->count;
    params.slice = job->slice;
    params.components = job->components;
    OK(weft_template_create_run(&bound.run, context, job->name, &params));
    bind_all(&bound, weft_context_rank(context));
    return bound;
}

static void destroy(struct bound *bound)
{
    weft_run_destroy(bound->run);
    release(bound);
}

static uint64_t digest(const struct bound *bound)
{
    const unsigned char *at = bound->slots[bound->recv];
    uint64_t hash = 14695981039346656037U;

    for (size_t i = 0; i < bound->count * sizeof(float); i++)
        hash = (hash ^ at[i]) * 1099511628211U;
    return hash;
}

/* ---- beside each other ---- */

struct many {
    int at_once;
    weft_progress_t progress;
    uint64_t digests[RANKS][JOBS][VERSIONS];
};

static void run_many(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct many *many = ranks->user;
    struct bound bounds[JOBS];

    for (size_t j = 0; j < JOBS; j++)
        bounds[j] = make(context, &jobs[j]);
    for (int version = 0; version < VERSIONS; version++) {
        for (size_t j = 0; j < JOBS; j++) {
            fill(&bounds[j], rank);
            OK(many->at_once ? weft_run_start(bounds[j].run) : weft_run_execute(bounds[j].run));
        }
        /* Ranks wait for them in other orders. */
        for (size_t k = 0; k < JOBS; k++) {
            const size_t j = (k + (size_t)(rank + version)) % JOBS;

            if (many->at_once)
                OK(weft_run_wait(bounds[j].run, WEFT_NEVER));
            many->digests[rank][j][version] = digest(&bounds[j]);
        }
    }
    for (size_t j = 0; j < JOBS; j++)
        destroy(&bounds[j]);
}

static void *run_group(void *argument)
{
    struct many *many = argument;
    struct ranks ranks;

    ranks_init(&ranks, RANKS, run_many, many);
    ranks.config.progress = many->progress;
    ranks_run(&ranks);
    return NULL;
}

Test(compressed_together, several_in_a_context_and_groups_in_a_process)
{
    static struct many alone, many[GROUPS];

    run_group(&alone);
    for (size_t j = 0; j < JOBS; j++)
        for (int v = 0; v < VERSIONS; v++)
            for (int r = 1; r < RANKS; r++)
                cr_expect_eq(alone.digests[r][j][v], alone.digests[0][j][v], "%s, rank %d",
                             jobs[j].name, r);
    for (int helped = 0; helped < 2; helped++) {
        pthread_t threads[GROUPS];

        for (int g = 0; g < GROUPS; g++) {
            many[g] = (struct many){.at_once = 1,
                                    .progress = helped && g != 1 ? WEFT_PROGRESS_HELPER
                                                                 : WEFT_PROGRESS_CALLER};
            CHECK(pthread_create(&threads[g], NULL, run_group, &many[g]) == 0);
        }
        for (int g = 0; g < GROUPS; g++) {
            CHECK(pthread_join(threads[g], NULL) == 0);
            cr_expect(memcmp(many[g].digests, alone.digests, sizeof alone.digests) == 0,
                      "group %d has other bits than one that is alone", g);
        }
    }
}

/* ---- cancelled ---- */

struct cancelling {
    struct weft_run *run;
    int turns;
};

static void *cancel_later(void *argument)
{
    struct cancelling *cancelling = argument;

    for (int i = 0; i < cancelling->turns; i++)
        sched_yield();
    OK(weft_run_cancel(cancelling->run));
    return NULL;
}

/* Cancels after some steps by itself, or lets a thread do it at any time. */
static void cancel_one(struct ranks *ranks, struct weft_context *context, struct weft_run *run,
                       int round)
{
    struct cancelling cancelling = {run, 1 << round};
    const int alone = round % 2 == 0;
    pthread_t thread;

    if (!alone)
        CHECK(pthread_create(&thread, NULL, cancel_later, &cancelling) == 0);
    for (int i = 0; alone && i < round / 2; i++)
        weft_context_progress(context);
    if (alone)
        OK(weft_run_cancel(run));
    int status = weft_run_wait(run, WEFT_NEVER);
    /* Who drives by itself has not come to the end. */
    CHECK(status == WEFT_ERR_CANCELLED ||
          (status == WEFT_OK && (!alone || ranks->config.progress == WEFT_PROGRESS_HELPER)));
    if (!alone)
        pthread_join(thread, NULL);
}

/* One rank cancels, somewhere in the middle; all take their memory back and have others. */
static void cancel_and_go_on(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct bound bound = make(context, &long_job);
    uint64_t expected;

    OK(weft_run_execute(bound.run));
    expected = digest(&bound);
    for (int round = 0; round < SWEPT(12, 4); round++) {
        ranks_meet(ranks);
        OK(weft_run_start(bound.run));
        if (rank == round % RANKS) {
            cancel_one(ranks, context, bound.run, round);
        } else {
            int status = weft_run_wait(bound.run, WEFT_NEVER);
            CHECK(status == WEFT_OK || status == WEFT_ERR_PEER);
        }
        while (weft_run_reclaim(bound.run) == WEFT_IN_PROGRESS)
            sched_yield();
        release(&bound);
        bind_all(&bound, rank);
        ranks_meet_driving(ranks, context); /* a rank that starts late has sends to get back */
        OK(weft_run_execute(bound.run));
        CHECK(digest(&bound) == expected);
    }
    destroy(&bound);
}

Test(compressed_together, a_run_that_is_cancelled_in_the_middle_works_again)
{
    ranks_run_each_progress(cancel_and_go_on, RANKS, NULL);
}

/* ---- gone ---- */

/* Of two ranks in one thread the second goes after so many steps; the first is in the middle. */
static void leave_after(int steps, int whole_context, int quits)
{
    struct weft_local *local = NULL;
    struct weft_context *contexts[2];
    struct bound bounds[2];

    OK(weft_local_create(&local, 2, NULL));
    for (int r = 0; r < 2; r++) {
        OK(weft_context_create_local(&contexts[r], local, r, NULL));
        bounds[r] = make(contexts[r], &long_job);
    }
    OK(weft_run_start(bounds[0].run));
    if (quits)
        OK(weft_run_quit(bounds[1].run));
    else
        OK(weft_run_start(bounds[1].run));
    for (int i = 0; i < steps; i++) {
        weft_context_progress(contexts[1]);
        if (i % 2 == 0)
            weft_context_progress(contexts[0]);
    }
    if (whole_context)
        weft_context_destroy(contexts[1]);
    else
        weft_run_destroy(bounds[1].run);
    release(&bounds[1]);
    CHECK_STATUS(weft_run_wait(bounds[0].run, WEFT_NEVER), WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "rank 1");
    destroy(&bounds[0]);
    if (!whole_context)
        weft_context_destroy(contexts[1]);
    weft_context_destroy(contexts[0]);
    weft_local_destroy(local);
}

Test(compressed_together, a_context_that_goes_in_the_middle_fails_its_peer)
{
    for (int steps = 0; steps < 12; steps += 1 + steps / 4)
        leave_after(steps, 1, 0);
}

Test(compressed_together, a_run_that_goes_in_the_middle_fails_its_peer)
{
    for (int steps = 0; steps < 12; steps += 1 + steps / 4)
        leave_after(steps, 0, 0);
}

Test(compressed_together, a_rank_that_quits_fails_who_is_in_the_middle)
{
    for (int steps = 0; steps < 12; steps += 1 + steps / 4)
        leave_after(steps, steps % 2, 1);
}

Test(compressed_together, a_context_alone_goes_in_the_middle)
{
    for (int progress = WEFT_PROGRESS_CALLER; progress <= WEFT_PROGRESS_HELPER; progress++)
        for (int steps = 0; steps < 8; steps++) {
            struct alone alone = alone_create((weft_progress_t)progress);
            struct bound bound = make(alone.context, &long_job);

            OK(weft_run_start(bound.run));
            for (int i = 0; i < steps; i++)
                weft_context_progress(alone.context);
            alone_destroy(&alone);
            release(&bound);
        }
}

/* ---- late ---- */

Test(compressed_together, a_deadline_ends_what_has_parts_left)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_template_params params;
    struct weft_run_config config;
    struct bound bound = {0};

    weft_template_params_init(&params);
    params.algo = long_job.algo;
    params.count = long_job.count;
    params.slice = long_job.slice;
    params.components = long_job.components;
    weft_run_config_init(&config);
    config.deadline_ns = 1;
    struct weft_schedule *schedule = NULL;
    OK(weft_template_build(long_job.name, 0, 1, &params, &schedule));
    bound.run = make_run(alone.context, commit(schedule), &config);
    bind_all(&bound, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(weft_run_execute(bound.run), WEFT_ERR_TIMEOUT);
        OK(weft_run_reclaim(bound.run));
    }
    destroy(&bound);
    alone_destroy(&alone);
}
