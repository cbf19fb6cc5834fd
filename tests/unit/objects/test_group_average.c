/* SPDX-License-Identifier: BSD-3-Clause */
/* Group averaging on local ranks: what a step gets, who waits for whom, how it ends. */
#include <criterion/criterion.h>
#include <math.h>

#include "support/ranks.h"

enum { COUNT = 37, MOST = 17 };

struct job {
    struct weft_group_average_config config;
    int steps;
    int (*program)(struct weft_context *context, struct job *job, int rank);
    double mean[MOST + 1]; /* of a rank's model at the end */
    struct weft_group_average_stats stats[MOST + 1];
};

static int enter(struct weft_context *context, void *user)
{
    struct job *job = user;
    return job->program(context, job, weft_context_rank(context));
}

static struct job new_job(int (*program)(struct weft_context *, struct job *, int))
{
    struct job job = {.program = program, .steps = 20};
    weft_group_average_config_init(&job.config);
    return job;
}

static void run_job(struct job *job, int ranks)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    OK(weft_local_run(ranks, &config, enter, job));
}

static struct weft_group_average *create(struct weft_context *context, const struct job *job,
                                         float *model)
{
    struct weft_piece tensors[3] = {{model, 5}, {model + 5, 0}, {model + 5, COUNT - 5}};
    struct weft_group_average *average = NULL;
    struct weft_group_average_config config = job->config;
    for (int i = 0; i < COUNT; i++)
        model[i] = 0;
    config.tensors = tensors;
    config.tensor_count = 3;
    OK(weft_group_average_create(&average, context, &config));
    return average;
}

/* Whether no element is torn. A sum may add in another order in each of its blocks, so elements
 * differ by rounding; one that lacks a rank's step differs by more than the bound. */
static int same_everywhere(const float *model)
{
    for (int i = 1; i < COUNT; i++)
        if (!(fabsf(model[i] - model[0]) <= 2e-5f * (1 + fabsf(model[0]))))
            return 0;
    return 1;
}

/* Every rank adds 1 + its rank to its model in each step, so the mean of all grows by (P + 1) / 2.
 */
static int train(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT];
    struct weft_group_average *average = create(context, job, model);
    for (int step = 0; step < job->steps; step++) {
        struct weft_group_average_result result = {.struct_size = sizeof result};
        for (int i = 0; i < COUNT; i++)
            model[i] += 1 + (float)rank;
        CHECK(weft_group_average_next(average) == (uint64_t)step);
        OK(weft_group_average_step(average, &result));
        CHECK(same_everywhere(model));
        CHECK(result.members >= 0 && result.members <= weft_context_size(context));
        if (job->config.mode != WEFT_AVERAGE_WAIT_AVOIDING)
            CHECK(!result.stale);
        uint64_t period = job->config.sync_period ? job->config.sync_period : 10;
        if (period != WEFT_NEVER)
            CHECK(result.synchronised == ((uint64_t)(step + 1) % period == 0));
    }
    job->mean[rank] = model[0];
    job->stats[rank].struct_size = sizeof job->stats[rank];
    OK(weft_group_average_get_stats(average, &job->stats[rank]));
    CHECK(job->stats[rank].steps == (uint64_t)job->steps);
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(group_average, models_are_equal_after_a_synchronisation, .timeout = 140)
{
    for (int mode = WEFT_AVERAGE_WAIT_AVOIDING; mode <= WEFT_AVERAGE_NONE; mode++)
        for (int ranks = 1; ranks <= MOST; ranks += ranks < 5 ? 1 : 4) {
            struct job job = new_job(train);
            job.config.mode = (weft_average_mode_t)mode;
            job.config.sync_period = 5;
            run_job(&job, ranks);
            for (int r = 1; r < ranks; r++)
                cr_assert_eq(job.mean[r], job.mean[0], "mode %d, rank %d of %d: %g, not %g", mode,
                             r, ranks, job.mean[r], job.mean[0]);
        }
}

Test(group_average, the_mean_is_kept_where_all_wait, .timeout = 140)
{
    for (int mode = WEFT_AVERAGE_WAITING; mode <= WEFT_AVERAGE_NONE; mode++)
        for (int ranks = 1; ranks <= 16; ranks *= 2) {
            struct job job = new_job(train);
            job.config.mode = (weft_average_mode_t)mode;
            job.config.sync_period = 4;
            run_job(&job, ranks);
            cr_assert_float_eq(job.mean[0], job.steps * (ranks + 1) / 2.0, 1e-3);
        }
}

/* Every group size; the synchronisation at the end makes all equal. */
Test(group_average, every_group_size, .timeout = 140)
{
    for (int ranks = 2; ranks <= 7; ranks++)
        for (int size = 1; size <= ranks; size++) {
            struct job job = new_job(train);
            job.config.group_size = size;
            job.steps = 10;
            run_job(&job, ranks);
            for (int r = 1; r < ranks; r++)
                cr_assert_eq(job.mean[r], job.mean[0]);
        }
}

/* Rank 0 sleeps; the others do not wait for it, and it takes part all the same. */
static int one_sleeps(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT];
    struct weft_group_average *average = create(context, job, model);
    struct weft_group_average_result result = {.struct_size = sizeof result};
    struct weft_group_average_stats *stats = &job->stats[rank];
    stats->struct_size = sizeof *stats;
    if (rank == 0) {
        while (stats->passive_versions < (uint64_t)job->steps) {
            OK(weft_context_sleep(context, 1000000));
            OK(weft_group_average_get_stats(average, stats));
        }
        /* The last version has started here; its sum or the one before is taken now, and its sum,
         * or nothing, next. */
        uint64_t last = (uint64_t)job->steps - 1;
        OK(weft_group_average_step(average, &result));
        CHECK(result.stale && result.members > 0);
        CHECK(result.version == last || result.version == last - 1);
        int ended = result.version == last;
        OK(weft_group_average_step(average, &result));
        CHECK(result.stale && (result.members == 0 || (!ended && result.version == last)));
    } else {
        for (int step = 0; step < job->steps; step++) {
            OK(weft_group_average_step(average, &result));
            CHECK(result.members > 0 || result.stale);
        }
    }
    OK(weft_group_average_get_stats(average, stats));
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(group_average, nobody_waits_for_a_rank_that_sleeps, .timeout = 140)
{
    for (int ranks = 2; ranks <= 9; ranks += 1) {
        struct job job = new_job(one_sleeps);
        job.config.sync_period = WEFT_NEVER;
        job.config.patience_ns = WEFT_NS_NONE;
        run_job(&job, ranks);
        cr_assert_eq(job.stats[0].stale_steps, 2);
        cr_assert_leq(job.stats[0].empty_steps, 1);
        cr_assert_eq(job.stats[0].passive_versions, (uint64_t)job.steps);
    }
}

/* Ranks end after different numbers of steps. */
static int unequal(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT];
    struct weft_group_average *average = create(context, job, model);
    int steps = (rank * 7 + 3) % 23;
    for (int step = 0; step < steps; step++)
        OK(weft_group_average_step(average, NULL));
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(group_average, ranks_may_end_after_different_numbers_of_steps, .timeout = 140)
{
    for (int mode = WEFT_AVERAGE_WAIT_AVOIDING; mode <= WEFT_AVERAGE_NONE; mode++)
        for (int drawn = 0; drawn <= (mode == WEFT_AVERAGE_WAIT_AVOIDING); drawn++)
            for (int period = 0; period <= 6; period += 3)
                for (int ranks = 1; ranks <= 9; ranks += 2) {
                    struct job job = new_job(unequal);
                    job.config.mode = (weft_average_mode_t)mode;
                    job.config.activation = (weft_average_activation_t)drawn;
                    job.config.sync_period = period ? (uint64_t)period : WEFT_NEVER;
                    run_job(&job, ranks);
                }
}

/* Gradients: what was not consumed adds up, and nothing is counted twice. */
static int accumulate(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT];
    struct weft_group_average *average = create(context, job, model);
    double total = 0;
    for (int step = 0; step < job->steps; step++) {
        struct weft_group_average_result result = {.struct_size = sizeof result};
        for (int i = 0; i < COUNT; i++)
            model[i] = 1;
        OK(weft_group_average_step(average, &result));
        CHECK(same_everywhere(model));
        total += model[0] * (float)result.members;
    }
    job->mean[rank] = total;
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(group_average, gradients_are_never_counted_twice, .timeout = 140)
{
    for (int drawn = 0; drawn <= 1; drawn++)
        for (int ranks = 1; ranks <= 9; ranks += 2) {
            struct job job = new_job(accumulate);
            job.config.contribution = WEFT_AVERAGE_ACCUMULATE;
            job.config.activation = (weft_average_activation_t)drawn;
            job.config.group_size = ranks;
            job.config.sync_period = WEFT_NEVER;
            run_job(&job, ranks);
            for (int r = 0; r < ranks; r++)
                cr_assert_leq(job.mean[r], ranks * job.steps);
        }
}

/* Rank 1 hears nothing for a while; rank 0 waits for it with a short deadline, again and again. It
 * asks each time how far rank 1 is, but one question at a time is on its way: else they would pile
 * up. */
static int impatient(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT];
    struct weft_group_average *average = create(context, job, model);
    struct weft_group_average_result result = {.struct_size = sizeof result};
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    int late = 0;
    OK(weft_context_sleep(context, rank == 1 ? 81000000 : 2000000));
    int status = weft_group_average_step(average, &result);
    for (; status == WEFT_ERR_TIMEOUT; late++)
        status = weft_group_average_wait(average, &result);
    OK(status);
    OK(weft_context_get_stats(context, &stats));
    CHECK(rank == 1 || (late > 300 && stats.signals_sent < 30));
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(group_average, questions_do_not_pile_up)
{
    struct weft_virtual_fault pause = {.rank = 1, .at_ns = 1000000, .for_ns = 79000000};
    struct weft_virtual_config config;
    struct job job = new_job(impatient);
    weft_virtual_config_init(&config);
    config.faults = &pause;
    config.fault_count = 1;
    job.config.mode = WEFT_AVERAGE_NONE;
    job.config.sync_period = 1;
    job.config.deadline_ns = 100000;
    OK(weft_virtual_run(2, &config, enter, &job));
}
