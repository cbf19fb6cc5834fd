/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Algorithms on wait-avoiding group averaging (weft/group_average.h):
 *
 *     wagma            models averaged in groups that change from step to step; the first to arrive
 *                      starts all of them; its parameters are options, and some settings are other
 *                      algorithms (docs/training.md)
 *     eager-solo       gradients averaged over all ranks as soon as the first has arrived; those
 *                      that come late are kept and added to the next
 *     eager-majority   the same, but a rank drawn for each step must have arrived, so that half of
 *                      them have on average
 *
 * A rank of eager SGD that is late misses the sums of the versions it slept through, so the models
 * drift apart (Li et al., PPoPP 2020); they are averaged now and then, here every --sync-period
 * steps. WAGMA's own synchronisation is part of its object.
 *
 * In their papers all of them exchange after the gradient, or after the update.
 */
#include "tools/train/algorithm.h"
#include "tools/train/average.h"
#include "tools/train/backend.h"
#include "tools/train/yardsticks.h"

#include <weft/cuda.h>

/* Of an object: of all its versions, of what is published, mixed and waited for; and of the mean of
 * the models. */
enum { STREAMS = 5 };

struct group {
    struct weft_group_average *average;
    struct backend *backend;
    /** 1: the thread waits for what has begun; 0: the stream does. */
    int waits;
    /** A step of the object that the stream waits for, and the thread has not. */
    int under_way;
    /** The mean of all models: for eager SGD now and then, for all at the end. */
    struct train_average *models;
    const struct train_options *options;
    /** 1: what the object averages are gradients; 0: models. */
    int accumulates;
    /** 1: the models are the same: they have been averaged, bit by bit, since the last update. */
    int together;
    /** 1: sums are taken by all ranks together or by none. */
    int alike;
};

static void group_destroy(void *state)
{
    struct group *group = state;

    if (group) {
        train_average_destroy(group->models);
        weft_group_average_destroy(group->average);
        weft_memory_free(group);
    }
}

/* From the state of an object before, if there is one. */
static int group_create(void **state, const struct train_setup *setup,
                        struct weft_group_average_config *config, struct group *before)
{
    struct weft_group_average_state saved = {.struct_size = sizeof saved};
    struct group *group = weft_memory_alloc(1, sizeof *group);

    if (!group)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the state of group averaging");
    group->options = setup->options;
    group->backend = model_backend(setup->model);
    group->waits = train_average_waits(setup);
    group->accumulates = config->contribution == WEFT_AVERAGE_ACCUMULATE;
    group->together = !before; /* an average may have ended on some of the ranks */
    group->alike = config->mode == WEFT_AVERAGE_NONE;
    config->tensors = group->accumulates ? setup->gradients : model_parameters(setup->model);
    config->tensor_count = model_tensor_count(setup->model);
    config->memory = group->backend->stream ? WEFT_MEMORY_DEVICE : WEFT_MEMORY_HOST;
    config->seed = setup->options->seed;
    int status = before ? weft_group_average_get_state(before->average, &saved) : WEFT_OK;
    if (before) {
        saved.next = setup->step;
        config->state = &saved;
    }
    if (status == WEFT_OK)
        status = weft_group_average_create(&group->average, setup->context, config);
    if (status == WEFT_OK)
        status = train_average_create(&group->models, setup, model_parameters(setup->model),
                                      setup->beside ? TRAIN_APART : TRAIN_KEPT);
    if (status != WEFT_OK) {
        group_destroy(group);
        return status;
    }
    group_destroy(before);
    *state = group;
    return WEFT_OK;
}

/* ---- the object's steps: of a model on a device its stream puts them ---- */

static int settle_object(struct group *group)
{
    if (!group->under_way)
        return WEFT_OK;
    group->under_way = 0;
    return weft_group_average_wait(group->average, NULL);
}

/* What the thread begins finds the tensors as they were asked to be. */
static int settle_tensors(const struct group *group)
{
    return group->backend->ops->settle(group->backend);
}

static int step_object(struct group *group)
{
    int status = group->waits ? settle_tensors(group) : settle_object(group);

    if (status != WEFT_OK)
        return status;
    if (group->waits)
        return weft_group_average_step(group->average, NULL);
    status = weft_group_average_step_on(group->average, group->backend->stream);
    group->under_way = status == WEFT_OK;
    return status;
}

static int post_object(struct group *group)
{
    int status = group->waits ? settle_tensors(group) : settle_object(group);

    if (status != WEFT_OK)
        return status;
    return group->waits ? weft_group_average_post(group->average)
                        : weft_group_average_post_on(group->average, group->backend->stream);
}

static int wait_object(struct group *group)
{
    int status = group->waits ? settle_tensors(group) : WEFT_OK;

    if (status != WEFT_OK)
        return status;
    if (group->waits)
        return weft_group_average_wait(group->average, NULL);
    status = weft_group_average_wait_on(group->average, group->backend->stream);
    group->under_way = status == WEFT_OK;
    return status;
}

/* ---- gradients, if they are what is accumulated ---- */

static int step_gradients(void *state, uint64_t step)
{
    struct group *group = state;

    (void)step;
    return group->accumulates ? step_object(group) : WEFT_OK;
}

static int post_gradients(void *state, uint64_t step)
{
    struct group *group = state;

    (void)step;
    return group->accumulates ? post_object(group) : WEFT_OK;
}

static int wait_gradients(void *state, uint64_t step)
{
    struct group *group = state;

    (void)step;
    return group->accumulates ? wait_object(group) : WEFT_OK;
}

/* ---- models, or with gradients the models' mean now and then ---- */

/* Where every step has been a sum over all, the models are the same anyway. */
static int meets(const struct group *group, uint64_t step)
{
    return train_is_sync(group->options, step) && !group->alike;
}

static int step_models(void *state, uint64_t step)
{
    struct group *group = state;

    group->together = train_is_sync(group->options, step);
    if (!group->accumulates)
        return step_object(group);
    return meets(group, step) ? train_average_execute(group->models) : WEFT_OK;
}

static int post_models(void *state, uint64_t step)
{
    struct group *group = state;

    group->together = 0;
    if (!group->accumulates)
        return post_object(group);
    return meets(group, step) ? train_average_post(group->models) : WEFT_OK;
}

static int wait_models(void *state, uint64_t step)
{
    struct group *group = state;

    if (!group->accumulates)
        return wait_object(group);
    return meets(group, step) ? train_average_wait(group->models) : WEFT_OK;
}

/* ---- the end ---- */

static int group_settle(void *state)
{
    struct group *group = state;
    int status = settle_object(group);

    return status == WEFT_OK ? train_average_settle(group->models) : status;
}

static int group_finish(void *state)
{
    struct group *group = state;
    int status = group_settle(state);

    if (status == WEFT_OK && !group->together)
        status = train_average_execute(group->models);
    return status == WEFT_OK ? train_average_settle(group->models) : status;
}

static void group_statistics(void *state, struct train_statistics *stats)
{
    struct group *group = state;
    struct weft_group_average_stats counted = {.struct_size = sizeof counted};

    if (weft_group_average_get_stats(group->average, &counted) == WEFT_OK)
        stats->stale_steps = counted.stale_steps;
}

/* Those that arrive before the rank drawn for this step wait for it. */
static void leave_drawn(uint64_t seed, int ranks, uint64_t step, const double *arrived,
                        double *left)
{
    double drawn = arrived[weft_group_average_activator(seed, ranks, step)];

    for (int rank = 0; rank < ranks; rank++)
        left[rank] = drawn > left[rank] ? drawn : left[rank];
}

/* Those of a group leave together. `members` has room for the largest group. */
static int leave_groups(const struct weft_groups *groups, uint64_t step, const double *arrived,
                        double *left, int *members)
{
    for (int g = 0; g < weft_groups_count(groups); g++) {
        double last = 0.0;
        int count;
        int status = weft_groups_members(groups, step, g, members, &count);
        if (status != WEFT_OK)
            return status;
        for (int i = 0; i < count; i++)
            last = arrived[members[i]] > last ? arrived[members[i]] : last;
        for (int i = 0; i < count; i++)
            left[members[i]] = last;
    }
    return WEFT_OK;
}

/* ---- WAGMA: patience is its object's own, adaptive; the paper has none ---- */

static uint64_t wagma_patience(const struct train_options *options)
{
    return options->patience_typed ? options->patience_ns : 0;
}

/* A group of all that are left is as large as can be. */
static int group_size(const struct train_options *options, int ranks)
{
    return options->group_size < ranks ? options->group_size : ranks;
}

static int wagma_make(void **state, const struct train_setup *setup, struct group *before)
{
    const struct train_options *options = setup->options;
    struct weft_group_average_config config;

    weft_group_average_config_init(&config);
    config.group_size = group_size(options, setup->size);
    config.sync_period = options->sync_period ? options->sync_period : WEFT_NEVER;
    config.mode = options->mode;
    config.activation = options->activation;
    config.contribution = options->contribution;
    config.stale_mix = options->stale_mix;
    return group_create(state, setup, &config, before);
}

static int wagma_create(void **state, const struct train_setup *setup)
{
    return wagma_make(state, setup, NULL);
}

static int wagma_again(void **state, const struct train_setup *setup)
{
    return wagma_make(state, setup, *state);
}

static int wagma_accumulates(const struct train_options *options)
{
    return options->contribution == WEFT_AVERAGE_ACCUMULATE;
}

/* Of models the object knows which step is whose; gradients' are averaged by the trainer's own now
 * and then, for which all have to be in the same. */
static int wagma_own_steps(const struct train_options *options)
{
    return !wagma_accumulates(options);
}

static int leave_waiting(const struct train_options *options, int ranks, uint64_t step,
                         const double *arrived, double *left)
{
    struct weft_groups *groups;
    int status = weft_groups_create(&groups, ranks, group_size(options, ranks));

    if (status != WEFT_OK)
        return status;
    int *members = weft_memory_alloc((size_t)weft_groups_largest(groups), sizeof *members);
    status = members ? leave_groups(groups, step, arrived, left, members)
                     : weft_error_set(WEFT_ERR_MEMORY, "no memory for the members of a group");
    weft_memory_free(members);
    weft_groups_destroy(groups);
    return status;
}

static int wagma_leave(const struct train_options *options, int ranks, uint64_t step,
                       const double *arrived, double *left)
{
    if (train_is_sync(options, step))
        train_leave_together(ranks, arrived, left);
    else if (options->mode == WEFT_AVERAGE_WAITING)
        return leave_waiting(options, ranks, step, arrived, left);
    else if (options->mode == WEFT_AVERAGE_WAIT_AVOIDING &&
             options->activation == WEFT_AVERAGE_DRAWN)
        leave_drawn(options->seed, ranks, step, arrived, left);
    return WEFT_OK;
}

const struct train_algorithm train_wagma = {
    .name = "wagma",
    .by_contribution = 1,
    .summary = "models averaged in changing groups, waiting for nobody, and over all now and then",
    .featured = 1,
    .needs_helper = 1,
    .streams = STREAMS,
    .mix = train_options_mix,
    .patience = wagma_patience,
    .create = wagma_create,
    .again = wagma_again,
    .own_steps = wagma_own_steps,
    .keeps_gradients = wagma_accumulates,
    .gradients = {step_gradients, post_gradients, wait_gradients},
    .models = {step_models, post_models, wait_models},
    .settle = group_settle,
    .finish = group_finish,
    .stats = group_statistics,
    .destroy = group_destroy,
    .leave = wagma_leave,
};

/* ---- eager SGD: no patience, as in its paper ---- */

static uint64_t eager_patience(const struct train_options *options)
{
    return options->patience_typed ? options->patience_ns : WEFT_NS_NONE;
}

static int eager_make(void **state, const struct train_setup *setup,
                      weft_average_activation_t activation, struct group *before)
{
    struct weft_group_average_config config;

    weft_group_average_config_init(&config);
    config.group_size = setup->size;
    config.sync_period = WEFT_NEVER;
    config.mode = WEFT_AVERAGE_WAIT_AVOIDING;
    config.activation = activation;
    config.contribution = WEFT_AVERAGE_ACCUMULATE;
    config.patience_ns = eager_patience(setup->options);
    return group_create(state, setup, &config, before);
}

static int eager_keeps(const struct train_options *options)
{
    (void)options;
    return 1;
}

static int solo_create(void **state, const struct train_setup *setup)
{
    return eager_make(state, setup, WEFT_AVERAGE_ANYONE, NULL);
}

static int solo_again(void **state, const struct train_setup *setup)
{
    return eager_make(state, setup, WEFT_AVERAGE_ANYONE, *state);
}

static int majority_create(void **state, const struct train_setup *setup)
{
    return eager_make(state, setup, WEFT_AVERAGE_DRAWN, NULL);
}

static int majority_again(void **state, const struct train_setup *setup)
{
    return eager_make(state, setup, WEFT_AVERAGE_DRAWN, *state);
}

static int solo_leave(const struct train_options *options, int ranks, uint64_t step,
                      const double *arrived, double *left)
{
    if (train_is_sync(options, step))
        train_leave_together(ranks, arrived, left);
    return WEFT_OK;
}

static int majority_leave(const struct train_options *options, int ranks, uint64_t step,
                          const double *arrived, double *left)
{
    if (train_is_sync(options, step))
        train_leave_together(ranks, arrived, left);
    else
        leave_drawn(options->seed, ranks, step, arrived, left);
    return WEFT_OK;
}

const struct train_algorithm train_eager_solo = {
    .name = "eager-solo",
    .summary =
        "gradients averaged as soon as one rank has arrived; late ones are added to the next",
    .needs_helper = 1,
    .streams = STREAMS,
    .patience = eager_patience,
    .create = solo_create,
    .again = solo_again,
    .keeps_gradients = eager_keeps,
    .gradients = {step_gradients, post_gradients, wait_gradients},
    .models = {step_models, post_models, wait_models},
    .settle = group_settle,
    .finish = group_finish,
    .stats = group_statistics,
    .destroy = group_destroy,
    .leave = solo_leave,
};

const struct train_algorithm train_eager_majority = {
    .name = "eager-majority",
    .summary = "the same as soon as a rank drawn for the step has: half of them, on average",
    .needs_helper = 1,
    .streams = STREAMS,
    .patience = eager_patience,
    .create = majority_create,
    .again = majority_again,
    .keeps_gradients = eager_keeps,
    .gradients = {step_gradients, post_gradients, wait_gradients},
    .models = {step_models, post_models, wait_models},
    .settle = group_settle,
    .finish = group_finish,
    .stats = group_statistics,
    .destroy = group_destroy,
    .leave = majority_leave,
};
