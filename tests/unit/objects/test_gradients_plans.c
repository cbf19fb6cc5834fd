/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients: plans that the object makes of what it measures, in virtual time. */
#include <criterion/criterion.h>
#include <math.h>

#include "gradients_job.h"

enum { RANKS = 4, SLOW = 2 };

/* What rank 0 has found. */
struct found {
    size_t groups[3];         /* buckets, of the first times, after the drift */
    uint64_t since[3];        /* of these plans */
    double planned, measured; /* end of the last allreduce, us */
    uint64_t checks, plans;
};

static size_t groups_of(struct weft_gradients *gradients, uint64_t *since)
{
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    OK(weft_gradients_get_plan(gradients, &plan));
    *since = plan.since;
    return plan.group_count;
}

/* A step whose layers take so long each. One rank is slower, and its times count. */
static void take_step(struct weft_gradients *gradients, struct gradients_model *model,
                      struct weft_context *context, uint64_t layer_ns)
{
    const int rank = weft_context_rank(context);
    const uint64_t step = weft_gradients_next(gradients);
    for (size_t l = LAYERS; l-- > 0;) {
        gradients_fill(model, rank, step, l);
        OK(weft_gradients_ready(gradients, l));
        if (l)
            OK(weft_context_sleep(context, rank == SLOW ? layer_ns : layer_ns - layer_ns / 8));
    }
    OK(weft_gradients_wait_all(gradients, NULL));
    for (size_t l = 0; l < LAYERS; l++)
        gradients_check(model, RANKS, 0, step, l, 0);
}

static int drift(struct weft_context *context, void *user)
{
    struct found here, *found = weft_context_rank(context) == SLOW ? user : &here;
    struct gradients_model model;
    struct weft_gradients_config config;
    struct weft_gradients *gradients = NULL;
    struct weft_gradients_stats stats = {.struct_size = sizeof stats};
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    config.measure_steps = 3;
    config.check_steps = 4;
    OK(weft_gradients_create(&gradients, context, &config));
    found->groups[0] = groups_of(gradients, &found->since[0]);
    for (int step = 0; step < 6; step++)
        take_step(gradients, &model, context, 1000000);
    found->groups[1] = groups_of(gradients, &found->since[1]);
    OK(weft_gradients_get_plan(gradients, &plan));
    OK(weft_merge_plan_get_summary(plan.merge, &summary));
    CHECK(fabs(summary.ready_us - 5000) < 50); /* of the slowest rank */
    for (int step = 6; step < 24; step++)
        take_step(gradients, &model, context, 600);
    found->groups[2] = groups_of(gradients, &found->since[2]);
    OK(weft_gradients_get_plan(gradients, &plan));
    OK(weft_merge_plan_get_summary(plan.merge, &summary));
    found->planned = summary.end_us;
    /* Ranks begin a step one after the other: what it takes is from one to the next. */
    uint64_t began = weft_context_now(context);
    for (int step = 0; step < 40; step++)
        take_step(gradients, &model, context, 600);
    found->measured = (double)(weft_context_now(context) - began) * 1e-3 / 40;
    OK(weft_gradients_get_stats(gradients, &stats));
    found->checks = stats.checks;
    found->plans = stats.plans;
    OK(weft_gradients_destroy(gradients));
    return WEFT_OK;
}

static struct found play(uint64_t seed)
{
    struct weft_virtual_config config;
    struct weft_net net;
    struct found found = {0};
    weft_net_init(&net);
    net.L = 1;
    net.G = 0.0001; /* bytes count: one group for all ends later */
    weft_virtual_config_init(&config);
    config.net = &net;
    config.seed = seed;
    cr_assert_eq(weft_virtual_run(RANKS, &config, drift, &found), WEFT_OK, "%s", weft_error_text());
    return found;
}

Test(gradients_plans, a_plan_follows_the_times_of_layers, .timeout = 140)
{
    struct found found = play(1);
    cr_assert(found.groups[0] == 1 && found.since[0] == 0, "%zu buckets", found.groups[0]);
    /* Three steps are measured; one later the times are agreed on, one more the groups. Small
     * layers cost no more together. */
    cr_assert(found.groups[1] > 2 && found.since[1] == 5, "%zu groups since step %llu",
              found.groups[1], (unsigned long long)found.since[1]);
    cr_assert(found.groups[2] < found.groups[1] && found.since[2] > 8, "%zu groups since step %llu",
              found.groups[2], (unsigned long long)found.since[2]);
    cr_assert(found.checks >= 2 && found.plans >= 3 && found.plans < 6);
    cr_assert(fabs(found.measured - found.planned) < 0.15 * found.planned,
              "planned %g us, measured %g us", found.planned, found.measured);
}

Test(gradients_plans, the_same_seed_makes_the_same_plans, .timeout = 140)
{
    for (uint64_t seed = 2; seed < 5; seed++) {
        struct found first = play(seed), second = play(seed);
        cr_assert(!memcmp(&first, &second, sizeof first), "seed %llu", (unsigned long long)seed);
    }
}

/* ---- costs that are given ---- */

static double line(void *user, double bytes)
{
    return *(double *)user + 0.01 * bytes;
}

static int given(struct weft_context *context, void *user)
{
    struct gradients_model model;
    struct weft_gradients_config config;
    struct weft_merge_cost cost;
    struct weft_gradients *gradients = NULL;
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    double a = 100, us;
    (void)user;
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    weft_merge_cost_init(&cost);
    cost.function = line;
    cost.user = &a;
    config.cost = &cost;
    OK(weft_gradients_create(&gradients, context, &config));
    OK(weft_gradients_get_plan(gradients, &plan));
    OK(weft_merge_plan_get_summary(plan.merge, &summary));
    us = 100 + 0.01 * 897 * sizeof(float); /* all in one bucket, and no times are known */
    CHECK(fabs(summary.end_us - us) < 1e-6 * us && summary.ready_us == 0);
    OK(weft_gradients_destroy(gradients));
    a += weft_context_rank(context);
    CHECK_STATUS(weft_gradients_create(&gradients, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "do not agree about config->cost");
    a = -1;
    CHECK_STATUS(weft_gradients_create(&gradients, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->cost");
    return WEFT_OK;
}

Test(gradients_plans, costs_may_be_a_function_that_is_the_same_on_all_ranks, .timeout = 140)
{
    struct weft_virtual_config config;
    weft_virtual_config_init(&config);
    cr_assert_eq(weft_virtual_run(RANKS, &config, given, NULL), WEFT_OK, "%s", weft_error_text());
}
