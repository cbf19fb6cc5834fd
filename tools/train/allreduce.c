/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Synchronous data-parallel SGD: the gradient of every step is the mean of all ranks' gradients, so
 * the ranks train one model on a batch that is `ranks` times larger. Delayed it is that with each
 * mean applied one step late. The state is the averaging.
 */
#include "tools/train/algorithm.h"
#include "tools/train/average.h"
#include "tools/train/yardsticks.h"

static int create(void **state, const struct train_setup *setup)
{
    struct train_average *average;
    int status = train_average_create(&average, setup, setup->gradients, TRAIN_IN_PLACE);

    if (status == WEFT_OK)
        *state = average;
    return status;
}

static int step_gradients(void *state, uint64_t step)
{
    (void)step;
    return train_average_execute(state);
}

static int post_gradients(void *state, uint64_t step)
{
    (void)step;
    return train_average_post(state);
}

static int wait_gradients(void *state, uint64_t step)
{
    (void)step;
    return train_average_wait(state);
}

static int settle(void *state)
{
    return train_average_settle(state);
}

static void destroy(void *state)
{
    train_average_destroy(state);
}

static int leave(const struct train_options *options, int ranks, uint64_t step,
                 const double *arrived, double *left)
{
    (void)options, (void)step;
    train_leave_together(ranks, arrived, left);
    return WEFT_OK;
}

const struct train_algorithm train_allreduce = {
    .name = "allreduce",
    .summary = "gradients averaged over all ranks at every step",
    .create = create,
    .one_model = 1,
    .streams = 1,
    .gradients = {step_gradients, post_gradients, wait_gradients},
    .settle = settle,
    .destroy = destroy,
    .leave = leave,
};
