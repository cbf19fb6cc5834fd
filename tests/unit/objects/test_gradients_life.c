/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients: what is refused, who is late, leaves or fails, what goes into a checkpoint. */
#include <criterion/criterion.h>

#include "gradients_job.h"

static struct weft_gradients *make(struct weft_context *context,
                                   const struct weft_gradients_config *config)
{
    struct weft_gradients *gradients = NULL;
    OK(weft_gradients_create(&gradients, context, config));
    return gradients;
}

static void announce(struct weft_gradients *gradients, const struct gradients_model *model,
                     int rank)
{
    for (size_t l = model->layers; l-- > 0;) {
        gradients_fill(model, rank, weft_gradients_next(gradients), l);
        OK(weft_gradients_ready(gradients, l));
    }
}

static void take_steps(struct weft_gradients *gradients, const struct gradients_model *model,
                       int rank, int ranks, uint64_t until)
{
    while (weft_gradients_next(gradients) < until) {
        uint64_t step = weft_gradients_next(gradients);
        announce(gradients, model, rank);
        OK(weft_gradients_wait_all(gradients, NULL));
        for (size_t l = 0; l < model->layers; l++)
            gradients_check(model, ranks, 0, step, l, 0);
    }
}

/* ---- misuse ---- */

static void misuse(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct gradients_model model;
    struct weft_gradients_config config;
    struct weft_gradients_stats stats = {.struct_size = sizeof stats};
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    struct weft_gradients_state state = {.struct_size = sizeof state};
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    struct weft_gradients *gradients = make(context, &config);
    OK(weft_gradients_wait(gradients, 0)); /* between steps */
    CHECK_STATUS(weft_gradients_wait_all(gradients, NULL), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "in step 0 layers 0, 1, 2, 3, 4, 5 have not been announced");
    CHECK_STATUS(weft_gradients_ready(gradients, LAYERS), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "layer is 6, expected less than 6");
    for (size_t l = 1; l < LAYERS; l++) {
        gradients_fill(&model, rank, 0, l);
        OK(weft_gradients_ready(gradients, l));
    }
    CHECK_STATUS(weft_gradients_ready(gradients, 3), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "weft_gradients_ready: layer 3 has been announced in step 0");
    CHECK_STATUS(weft_gradients_absent(gradients, 3), WEFT_ERR_STATE);
    CHECK_STATUS(weft_gradients_wait(gradients, 0), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "layer 0 has not been announced in step 0");
    CHECK_STATUS(weft_gradients_wait_all(gradients, NULL), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "in step 0 layer 0 has not been announced");
    CHECK_STATUS(weft_gradients_get_plan(gradients, &plan), WEFT_ERR_STATE);
    CHECK_STATUS(weft_gradients_get_state(gradients, &state), WEFT_ERR_STATE);
    OK(weft_gradients_get_stats(gradients, &stats));
    CHECK(stats.steps == 0);
    gradients_fill(&model, rank, 0, 0);
    OK(weft_gradients_ready(gradients, 0));
    OK(weft_gradients_wait(gradients, 4));
    OK(weft_gradients_wait(gradients, 4));
    CHECK_STATUS(weft_gradients_ready(gradients, 4), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "step 0, which has not ended: layer 0 has not been waited for");
    OK(weft_gradients_wait_all(gradients, NULL));
    for (size_t l = 0; l < LAYERS; l++)
        gradients_check(&model, ranks->size, 0, 0, l, 0);
    OK(weft_gradients_wait(gradients, 4));
    CHECK(weft_gradients_next(gradients) == 1);
    take_steps(gradients, &model, rank, ranks->size, 3);
    OK(weft_gradients_destroy(gradients));
}

Test(gradients_life, misuse_is_told_and_changes_nothing, .timeout = 140)
{
    ranks_run_each_progress(misuse, 1, NULL);
    ranks_run_each_progress(misuse, 3, NULL);
}

static void differ(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct gradients_model model;
    struct weft_gradients_config config;
    struct weft_gradients *gradients = NULL;
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    config.gain = rank == 1 ? 0.5 : 0.25;
    CHECK_STATUS(weft_gradients_create(&gradients, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "do not agree about config->gain: rank 0 has 0.25, rank 1 has");
    config.gain = 0;
    model.tensors[1].count -= rank == 2;
    CHECK_STATUS(weft_gradients_create(&gradients, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "the number of elements");
    if (rank == 1)
        config.dtype = WEFT_U8;
    CHECK_STATUS(weft_gradients_create(&gradients, context, &config),
                 rank == 1 ? WEFT_ERR_UNSUPPORTED : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "config->dtype is u8");
    (void)ranks;
}

Test(gradients_life, ranks_that_do_not_agree_are_told, .timeout = 140)
{
    ranks_run_once(differ, 3, NULL);
}

/* ---- several threads ---- */

struct racer {
    struct weft_gradients *gradients;
    _Atomic int *won;
    pthread_barrier_t *all;
    pthread_t thread;
};

/* Announces everything, and counts what it was the first to. Nobody waits before all have, or a
 * late announcement would begin the next step. */
static void *race(void *argument)
{
    struct racer *racer = argument;
    for (size_t l = LAYERS; l-- > 0;) {
        int status = weft_gradients_ready(racer->gradients, l);
        CHECK(status == WEFT_OK || status == WEFT_ERR_STATE);
        racer->won[l] += status == WEFT_OK;
    }
    pthread_barrier_wait(racer->all);
    for (size_t l = 0; l < LAYERS; l++)
        OK(weft_gradients_wait(racer->gradients, l));
    return NULL;
}

static void threads(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct gradients_model model;
    struct weft_gradients_config config;
    struct racer racers[3];
    _Atomic int won[LAYERS];
    pthread_barrier_t all;
    CHECK(pthread_barrier_init(&all, NULL, 3) == 0);
    gradients_model_make(&model, WEFT_F32, 2);
    gradients_config(&config, &model);
    config.measure_steps = 1;
    config.check_steps = 1;
    struct weft_gradients *gradients = make(context, &config);
    for (uint64_t step = 0; step < 20; step++) {
        for (size_t l = 0; l < LAYERS; l++) {
            won[l] = 0;
            gradients_fill(&model, rank, step, l);
        }
        for (int i = 0; i < 3; i++) {
            racers[i] = (struct racer){.gradients = gradients, .won = won, .all = &all};
            CHECK(pthread_create(&racers[i].thread, NULL, race, &racers[i]) == 0);
        }
        for (int i = 0; i < 3; i++)
            CHECK(pthread_join(racers[i].thread, NULL) == 0);
        for (size_t l = 0; l < LAYERS; l++) {
            CHECK(won[l] == 1);
            gradients_check(&model, ranks->size, 0, step, l, 0);
        }
        CHECK(weft_gradients_next(gradients) == step + 1);
    }
    OK(weft_gradients_destroy(gradients));
    pthread_barrier_destroy(&all);
}

Test(gradients_life, threads_announce_and_wait_at_once, .timeout = 140)
{
    ranks_run_each_progress(threads, 2, NULL);
}

/* ---- absent layers, empty models ---- */

static void absent(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct gradients_model model;
    struct weft_gradients_config config;
    struct weft_gradients_result result = {.struct_size = sizeof result};
    const unsigned all = (1u << ranks->size) - 1;
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    config.missing = WEFT_GRADIENTS_MISSING_ZERO;
    struct weft_gradients *gradients = make(context, &config);
    for (uint64_t step = 0; step < 8; step++) {
        for (size_t l = LAYERS; l-- > 0;) {
            gradients_fill(&model, rank, step, l);
            if (l == 1 && rank == 0)
                OK(weft_gradients_absent(gradients, l));
            else if (l != 4 && step != 5)
                OK(weft_gradients_ready(gradients, l));
        }
        OK(weft_gradients_wait_all(gradients, &result));
        CHECK(result.absent == (step == 5 ? LAYERS : 1 + (size_t)(rank == 0)));
        for (size_t l = 0; l < LAYERS; l++)
            gradients_check(&model, ranks->size, 0, step, l, l == 4 || step == 5 ? all : l == 1);
    }
    OK(weft_gradients_destroy(gradients));
}

Test(gradients_life, absent_layers_count_as_zero, .timeout = 140)
{
    for (int size = 1; size <= 4; size++)
        ranks_run_once(absent, size, NULL);
}

static void empty(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_gradients_config config;
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    float data[3] = {1, 2, (float)rank};
    const struct weft_piece nothing[] = {{NULL, 0}, {data, 0}};
    const struct weft_piece three[] = {{data, 1}, {data + 1, 2}};
    const size_t layers[] = {0, 2, 0};
    weft_gradients_config_init(&config);
    struct weft_gradients *gradients = make(context, &config); /* no layers */
    for (int step = 0; step < 3; step++)
        OK(weft_gradients_wait_all(gradients, NULL));
    CHECK(weft_gradients_next(gradients) == 3);
    CHECK_STATUS(weft_gradients_ready(gradients, 0), WEFT_ERR_INVALID);
    OK(weft_gradients_get_plan(gradients, &plan));
    CHECK(plan.group_count == 0);
    OK(weft_gradients_destroy(gradients));
    config.tensors = nothing;
    config.tensor_count = 2;
    config.measure_steps = 1;
    gradients = make(context, &config); /* no elements */
    for (int step = 0; step < 5; step++) {
        OK(weft_gradients_ready(gradients, 1));
        OK(weft_gradients_ready(gradients, 0));
        OK(weft_gradients_wait(gradients, 0));
        OK(weft_gradients_wait_all(gradients, NULL));
    }
    OK(weft_gradients_destroy(gradients));
    config.tensors = three;
    config.layer_tensors = layers;
    config.layer_count = 3;
    config.reduction = WEFT_GRADIENTS_SUM;
    gradients = make(context, &config); /* layers without tensors */
    OK(weft_gradients_ready(gradients, 2));
    OK(weft_gradients_ready(gradients, 0));
    OK(weft_gradients_ready(gradients, 1));
    OK(weft_gradients_wait_all(gradients, NULL));
    CHECK(data[0] == (float)ranks->size && data[1] == 2 * (float)ranks->size);
    CHECK(data[2] == (float)(ranks->size * (ranks->size - 1) / 2));
    OK(weft_gradients_destroy(gradients));
}

Test(gradients_life, models_without_elements_take_steps, .timeout = 140)
{
    for (int size = 1; size <= 3; size++)
        ranks_run_once(empty, size, NULL);
}

/* ---- late ---- */

static void late(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct gradients_model model;
    struct weft_gradients_config config;
    int status;
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    config.deadline_ns = rank == 0 ? 50000000 : 0; /* it has begun to wait for rank 1 by then */
    struct weft_gradients *gradients = make(context, &config);
    if (rank == 1)
        ranks_meet(ranks); /* until rank 0 has given up twice */
    announce(gradients, &model, rank);
    if (rank == 0) {
        CHECK_STATUS(weft_gradients_wait(gradients, 2), WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_error_text(), "layer 2 in step 0");
        CHECK_TEXT(weft_error_text(), "rank 1");
        CHECK_STATUS(weft_gradients_wait_all(gradients, NULL), WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_error_text(), "step 0");
        CHECK_STATUS(weft_gradients_ready(gradients, 2), WEFT_ERR_STATE);
        ranks_meet(ranks);
    }
    while ((status = weft_gradients_wait_all(gradients, NULL)) == WEFT_ERR_TIMEOUT)
        continue;
    OK(status);
    for (size_t l = 0; l < LAYERS; l++)
        gradients_check(&model, 2, 0, 0, l, 0);
    OK(weft_gradients_destroy(gradients));
}

Test(gradients_life, a_deadline_leaves_the_step_to_be_waited_for, .timeout = 140)
{
    ranks_run_each_progress(late, 2, NULL);
}

/* A layer that is summed with one that nobody announces. */
static void half(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct gradients_model model;
    struct weft_gradients_config config;
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    config.deadline_ns = 1000000;
    struct weft_gradients *gradients = make(context, &config); /* at first all are one bucket */
    for (size_t l = 0; l < LAYERS; l++) {
        gradients_fill(&model, rank, 0, l);
        if (l != 4)
            OK(weft_gradients_ready(gradients, l));
    }
    CHECK_STATUS(weft_gradients_wait(gradients, 2), WEFT_ERR_TIMEOUT);
    CHECK_TEXT(weft_error_text(), "layer 2 in step 0, in which layer 4 has not been announced");
    ranks_meet(ranks);
    OK(weft_gradients_ready(gradients, 4));
    for (int status = WEFT_ERR_TIMEOUT; status;) {
        status = weft_gradients_wait_all(gradients, NULL);
        CHECK(status == WEFT_OK || status == WEFT_ERR_TIMEOUT);
    }
    for (size_t l = 0; l < LAYERS; l++)
        gradients_check(&model, ranks->size, 0, 0, l, 0);
    OK(weft_gradients_destroy(gradients));
}

Test(gradients_life, who_waits_is_told_what_has_not_been_announced, .timeout = 140)
{
    ranks_run_each_progress(half, 2, NULL);
}

/* ---- failing and leaving ---- */

static void gives_up(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct gradients_model model;
    struct weft_gradients_config config;
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    struct weft_gradients *gradients = make(context, &config);
    take_steps(gradients, &model, rank, ranks->size, 2);
    ranks_meet(ranks);
    if (rank == 1) {
        OK(weft_gradients_ready(gradients, 5));
        if (*(int *)ranks->user) {
            OK(weft_gradients_fail(gradients, WEFT_ERR_IO, "the disk is full"));
            CHECK_STATUS(weft_gradients_ready(gradients, 4), WEFT_ERR_IO);
            CHECK_STATUS(weft_gradients_destroy(gradients), WEFT_ERR_IO);
        } else {
            CHECK_STATUS(weft_gradients_destroy(gradients), WEFT_ERR_STATE);
            CHECK_TEXT(weft_error_text(), "layer 0 has not been announced");
        }
        return;
    }
    for (size_t l = 0; l < LAYERS; l++) {
        int status = weft_gradients_ready(gradients, l);
        CHECK(status == WEFT_OK || status == WEFT_ERR_PEER);
    }
    CHECK_STATUS(weft_gradients_wait(gradients, 3), WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "rank 1");
    CHECK_TEXT(weft_error_text(), *(int *)ranks->user ? "the disk is full" : "layer 0");
    CHECK_STATUS(weft_gradients_wait_all(gradients, NULL), WEFT_ERR_PEER);
    CHECK_STATUS(weft_gradients_destroy(gradients), WEFT_ERR_PEER);
}

Test(gradients_life, who_gives_up_is_named_on_all_ranks, .timeout = 140)
{
    for (int fails = 0; fails < 2; fails++)
        ranks_run_each_progress(gives_up, 3, &fails);
}

/* Ranks end after different numbers of steps, also where plans are being changed: who goes on is
 * told, in the step after. */
static int leave(struct weft_context *context, void *user)
{
    const int rank = weft_context_rank(context), ranks = weft_context_size(context);
    const uint64_t seed = *(uint64_t *)user, last = 1 + seed % 9;
    struct gradients_model model;
    struct weft_gradients_config config;
    int status = WEFT_OK;
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    config.measure_steps = 1 + seed % 2;
    config.check_steps = 1;
    config.gain = 1e-9;
    struct weft_gradients *gradients = make(context, &config);
    if (rank == (int)(seed / 9 % 3)) {
        take_steps(gradients, &model, rank, ranks, last);
        if (seed % 3 == 0) /* announced, and not waited for */
            announce(gradients, &model, rank);
        OK(weft_gradients_destroy(gradients));
        return WEFT_OK;
    }
    while (!status && weft_gradients_next(gradients) < last + 3) {
        for (size_t l = 0; l < LAYERS && !status; l++) {
            OK(weft_context_sleep(context, 1 + (seed * 7919 + (uint64_t)rank * 31 + l) % 3000));
            gradients_fill(&model, rank, weft_gradients_next(gradients), l);
            status = weft_gradients_ready(gradients, l);
        }
        if (!status)
            status = weft_gradients_wait_all(gradients, NULL);
    }
    CHECK_STATUS(status, WEFT_ERR_PEER);
    /* Who is ahead may begin that step, and tell, before others have ended theirs. */
    uint64_t taken = last + (seed % 3 == 0), next = weft_gradients_next(gradients);
    CHECK(next == taken || next == taken - 1);
    weft_gradients_destroy(gradients);
    return WEFT_OK;
}

Test(gradients_life, ranks_may_end_after_different_numbers_of_steps, .timeout = 140)
{
    for (uint64_t seed = 0; seed < SWEPT(300, 60); seed++) {
        struct weft_virtual_config config;
        weft_virtual_config_init(&config);
        config.seed = seed;
        config.shuffle = 1;
        config.delay_ns = 2000;
        cr_assert_eq(weft_virtual_run(3, &config, leave, &seed), WEFT_OK, "seed %llu: %s",
                     (unsigned long long)seed, weft_error_text());
    }
}

/* ---- plans ---- */

static void check_groups(struct weft_gradients *gradients, size_t count, const size_t layers[])
{
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    struct weft_merge_group group = {.struct_size = sizeof group};
    OK(weft_gradients_get_plan(gradients, &plan));
    CHECK(plan.group_count == count);
    for (size_t k = 0; k < count; k++) {
        OK(weft_merge_plan_get_group(plan.merge, k, &group));
        CHECK(group.layer_count == layers[k]);
    }
}

static void plans(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct gradients_model model;
    struct weft_gradients_config config;
    struct weft_merge_cost cost;
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    const uint64_t times[LAYERS] = {9000000, 8000000, 3000000, 2000000, 1000000, 0};
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    weft_merge_cost_init(&cost);
    cost.a_us = 500;
    cost.b_us_per_byte = 0.1;
    config.cost = &cost;
    config.ready_ns = times;
    struct weft_gradients *gradients = make(context, &config);
    OK(weft_gradients_get_plan(gradients, &plan));
    OK(weft_merge_plan_get_summary(plan.merge, &summary));
    CHECK(plan.since == 0 && plan.layer_count == LAYERS && !plan.ready_us);
    CHECK(summary.ready_us == 9000 && summary.end_us > 9500);
    CHECK(plan.order[0] == 5 && plan.order[5] == 0);
    CHECK(plan.group_count == summary.group_count && plan.group_count > 1);
    take_steps(gradients, &model, rank, ranks->size, 4);
    OK(weft_gradients_get_plan(gradients, &plan));
    CHECK(plan.since == 0 && plan.ready_us && plan.ready_us[0] == 0);
    for (size_t k = 0; k < plan.group_count; k++)
        CHECK(plan.end_us[k] >= plan.start_us[k] && (!k || plan.start_us[k] >= plan.end_us[k - 1]));
    OK(weft_gradients_destroy(gradients));
}

Test(gradients_life, plans_are_made_of_times_and_costs, .timeout = 140)
{
    ranks_run_once(plans, 1, NULL);
    ranks_run_once(plans, 4, NULL);
}

/* What a method has no use for does not matter to it. */
static void unused_groups(struct ranks *ranks, struct weft_context *context, int rank)
{
    const size_t one[] = {1};
    struct gradients_model model;
    struct weft_gradients_config config;
    struct weft_merge_config merge;
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    weft_merge_config_init(&merge);
    merge.method = WEFT_MERGE_SINGLE;
    merge.group_layers = one;
    merge.group_count = 1;
    config.merge = &merge;
    struct weft_gradients *gradients = make(context, &config);
    check_groups(gradients, 1, (const size_t[]){LAYERS});
    take_steps(gradients, &model, rank, ranks->size, 2);
    OK(weft_gradients_destroy(gradients));
}

Test(gradients_life, groups_given_to_another_method_do_not_matter, .timeout = 140)
{
    ranks_run_once(unused_groups, 2, NULL);
}

/* ---- checkpoints ---- */

static void restart(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct gradients_model model;
    struct weft_gradients_config config;
    struct weft_gradients_state state = {.struct_size = sizeof state};
    struct weft_gradients_plan plan = {.struct_size = sizeof plan}, again = plan;
    struct weft_gradients_stats stats = {.struct_size = sizeof stats};
    struct weft_gradients *gradients, *second = NULL;
    uint64_t words[128];
    size_t groups[LAYERS];
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    config.measure_steps = 1;
    gradients = make(context, &config);
    take_steps(gradients, &model, rank, ranks->size, 5);
    OK(weft_gradients_get_state(gradients, &state));
    OK(weft_gradients_get_plan(gradients, &plan));
    CHECK(state.next == 5 && state.agreed_count <= 128);
    memcpy(words, state.agreed, state.agreed_count * sizeof *words);
    state.agreed = words;
    for (size_t k = 0; k < plan.group_count; k++) {
        struct weft_merge_group group = {.struct_size = sizeof group};
        OK(weft_merge_plan_get_group(plan.merge, k, &group));
        groups[k] = group.layer_count;
    }
    config.state = &state;
    second = make(context, &config);
    OK(weft_gradients_get_plan(second, &again));
    CHECK(weft_gradients_next(second) == 5 && again.group_count == plan.group_count);
    for (size_t k = 0; k < plan.group_count; k++) {
        struct weft_merge_group group = {.struct_size = sizeof group};
        OK(weft_merge_plan_get_group(again.merge, k, &group));
        CHECK(group.layer_count == groups[k]);
    }
    OK(weft_gradients_destroy(gradients));
    take_steps(second, &model, rank, ranks->size, 9);
    OK(weft_gradients_get_stats(second, &stats));
    CHECK(stats.steps == 9);
    OK(weft_gradients_destroy(second));
    model.tensors[4].count--;
    CHECK_STATUS(weft_gradients_create(&second, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "129 elements in layer 4, the model has 128");
    config.tensor_count--;
    CHECK_STATUS(weft_gradients_create(&second, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "is of 6 layers, the model has 5");
    model.tensors[4].count++;
    config.tensor_count++;
    words[1]++; /* of another number of ranks: costs are measured anew */
    second = make(context, &config);
    take_steps(second, &model, rank, ranks->size, 9);
    OK(weft_gradients_destroy(second));
    for (size_t cut = 0; cut < state.agreed_count; cut++) {
        struct weft_gradients_state short_state = state;
        short_state.agreed_count = cut;
        config.state = &short_state;
        CHECK_STATUS(weft_gradients_create(&second, context, &config), WEFT_ERR_INVALID);
    }
    config.state = &state;
    state.next = UINT64_MAX - 2; /* steps are counted on from here */
    CHECK_STATUS(weft_gradients_create(&second, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->state->next is 18446744073709551613, expected less");
}

Test(gradients_life, a_checkpoint_goes_on_where_it_was, .timeout = 140)
{
    ranks_run_once(restart, 1, NULL);
    ranks_run_once(restart, 3, NULL);
}

/* Groups of checkpoints are those of what has merged them. */
static void remerge(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const size_t given[] = {2, 4}, others[] = {4, 2};
    struct gradients_model model;
    struct weft_gradients_config config;
    struct weft_merge_config merge;
    struct weft_gradients_state state = {.struct_size = sizeof state};
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    struct weft_gradients *gradients;
    uint64_t words[128];
    (void)rank;
    (void)ranks;
    gradients_model_make(&model, WEFT_F32, 0);
    gradients_config(&config, &model);
    weft_merge_config_init(&merge);
    merge.method = WEFT_MERGE_GIVEN;
    merge.group_layers = given;
    merge.group_count = 2;
    config.merge = &merge;
    gradients = make(context, &config);
    OK(weft_gradients_get_state(gradients, &state));
    memcpy(words, state.agreed, state.agreed_count * sizeof *words);
    state.agreed = words;
    OK(weft_gradients_destroy(gradients));
    config.state = &state;
    gradients = make(context, &config);
    check_groups(gradients, 2, given);
    OK(weft_gradients_destroy(gradients));
    merge.group_layers = others;
    gradients = make(context, &config);
    check_groups(gradients, 2, others);
    OK(weft_gradients_destroy(gradients));
    merge.method = WEFT_MERGE_SINGLE;
    gradients = make(context, &config);
    check_groups(gradients, 1, (const size_t[]){LAYERS});
    OK(weft_gradients_destroy(gradients));
    merge.method = WEFT_MERGE_BUCKETS;
    merge.bucket_bytes = 1;
    gradients = make(context, &config);
    OK(weft_gradients_get_plan(gradients, &plan));
    CHECK(plan.group_count > 2);
    const size_t groups = plan.group_count;
    OK(weft_gradients_get_state(gradients, &state));
    memcpy(words, state.agreed, state.agreed_count * sizeof *words);
    state.agreed = words;
    OK(weft_gradients_destroy(gradients));
    merge.bucket_bytes = 1 << 20;
    gradients = make(context, &config);
    check_groups(gradients, 1, (const size_t[]){LAYERS});
    OK(weft_gradients_destroy(gradients));
    merge.bucket_bytes = 1;
    gradients = make(context, &config);
    OK(weft_gradients_get_plan(gradients, &plan));
    CHECK(plan.group_count == groups);
    OK(weft_gradients_destroy(gradients));
}

Test(gradients_life, a_checkpoint_of_another_method_is_merged_anew, .timeout = 140)
{
    ranks_run_once(remerge, 1, NULL);
    ranks_run_once(remerge, 3, NULL);
}
