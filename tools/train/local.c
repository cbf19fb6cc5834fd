/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local SGD (Stich, "Local SGD converges fast and communicates little", ICLR 2019): every rank
 * trains a model of its own, with its own momentum, and after every --sync-period steps all models
 * are replaced by their mean (0: only in the end). Beside the gradient that goes on while the step
 * after is computed, whose update is kept (as in CoCoD-SGD: Shen et al., IJCAI 2019).
 */
#include "tools/train/algorithm.h"
#include "tools/train/average.h"
#include "tools/train/yardsticks.h"

struct local {
    struct train_average *average;
    const struct train_options *options;
    /** 1: the models are the same: they have been averaged, bit by bit, since the last update. */
    int together;
};

static int create(void **state, const struct train_setup *setup)
{
    struct local *local = weft_memory_alloc(1, sizeof *local);

    if (!local)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the state of local SGD");
    local->options = setup->options;
    local->together = 1;
    int status = train_average_create(&local->average, setup, model_parameters(setup->model),
                                      setup->beside ? TRAIN_APART : TRAIN_KEPT);
    if (status != WEFT_OK) {
        weft_memory_free(local);
        return status;
    }
    *state = local;
    return WEFT_OK;
}

static void destroy(void *state)
{
    struct local *local = state;

    if (local) {
        train_average_destroy(local->average);
        weft_memory_free(local);
    }
}

/* All that there is of it is the models. */
static int again(void **state, const struct train_setup *setup)
{
    struct local *before = *state;
    int status = create(state, setup);

    if (status != WEFT_OK)
        return status;
    ((struct local *)*state)->together = 0; /* an average may have ended on some of the ranks */
    destroy(before);
    return WEFT_OK;
}

static int step_models(void *state, uint64_t step)
{
    struct local *local = state;

    local->together = train_is_sync(local->options, step);
    return local->together ? train_average_execute(local->average) : WEFT_OK;
}

static int post_models(void *state, uint64_t step)
{
    struct local *local = state;

    local->together = 0;
    return train_is_sync(local->options, step) ? train_average_post(local->average) : WEFT_OK;
}

static int wait_models(void *state, uint64_t step)
{
    struct local *local = state;

    return train_is_sync(local->options, step) ? train_average_wait(local->average) : WEFT_OK;
}

static int settle(void *state)
{
    struct local *local = state;

    return train_average_settle(local->average);
}

static int finish(void *state)
{
    struct local *local = state;
    int status = local->together ? WEFT_OK : train_average_execute(local->average);

    return status == WEFT_OK ? train_average_settle(local->average) : status;
}

static int leave(const struct train_options *options, int ranks, uint64_t step,
                 const double *arrived, double *left)
{
    if (train_is_sync(options, step))
        train_leave_together(ranks, arrived, left);
    return WEFT_OK;
}

const struct train_algorithm train_local = {
    .name = "local",
    .summary = "local SGD: models averaged over all ranks every --sync-period steps",
    .create = create,
    .again = again,
    .streams = 1,
    .models = {step_models, post_models, wait_models},
    .settle = settle,
    .finish = finish,
    .destroy = destroy,
    .leave = leave,
};
