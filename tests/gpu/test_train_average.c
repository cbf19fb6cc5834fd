/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Averages of the trainer's models on devices: of ranks that train, beside the same on the
 * processor; what no thread waits for; and averages that fail.
 */
#include "tests/gpu/train_device.h"

#include "tests/gpu/support/device_memory.h"
#include "tests/support/ranks.h"
#include "tools/train/algorithm.h"
#include "tools/train/average.h"

#include <math.h>

enum { BATCH = 2, STEPS = 5, MOST = 5 };

/* What is averaged, and how. */
struct way {
    enum train_average_place place;
    int gradients; /* else models */
    int waits;     /* as where ranks may die, and others go on */
    double losses[2][MOST];
    uint64_t sums[2][MOST];
};

struct rank {
    struct train_options options;
    struct train_setup setup;
    struct train_average *average;
};

/* With a model on the rank's device, or by the processor. */
static void begin(struct rank *is, struct weft_context *context, int rank, int on_device,
                  const struct way *way)
{
    struct net_config net = train_net(net_architectures()[0], 0);
    struct backend *backend;

    memset(is, 0, sizeof *is);
    is->options.processes = way->waits;
    is->options.on_death = TRAIN_GO_ON;
    is->setup.context = context;
    is->setup.options = &is->options;
    is->setup.cost.struct_size = sizeof is->setup.cost;
    OK(weft_context_get_cost(context, &is->setup.cost));
    if (on_device) {
        const struct train_device_config config = {rank % 2, BATCH, TRAIN_NUMBERS};
        OK(weft_command_cuda.create(&backend, &config));
    } else {
        OK(backend_create_cpu(&backend, context));
    }
    OK(model_create_by(&is->setup.model, backend, &net, BATCH, 1));
    OK(train_average_create(&is->average, &is->setup,
                            way->gradients ? model_gradients(is->setup.model)
                                           : model_parameters(is->setup.model),
                            way->place));
}

static void end(struct rank *is)
{
    train_average_destroy(is->average);
    model_destroy(is->setup.model);
}

static void gradient(struct rank *is, int rank, uint64_t step)
{
    float images[BATCH * TRAIN_NUMBERS];
    uint8_t labels[BATCH];

    train_draw_batch(images, labels, BATCH, step * MOST + (uint64_t)rank);
    OK(model_gradient(is->setup.model, images, labels, BATCH, NULL, NULL));
}

/* ---- trainings ---- */

static void train(struct rank *is, int rank, const struct way *way)
{
    for (uint64_t step = 0; step < STEPS; step++) {
        gradient(is, rank, step);
        if (way->place == TRAIN_APART && step > 0)
            OK(train_average_wait(is->average));
        if (way->gradients)
            OK(train_average_execute(is->average));
        OK(model_update(is->setup.model, 0.05f, 0.5f));
        if (way->place == TRAIN_APART)
            OK(train_average_post(is->average));
        else if (!way->gradients)
            OK(train_average_execute(is->average));
    }
    if (way->place == TRAIN_APART)
        OK(train_average_wait(is->average));
    OK(train_average_settle(is->average));
    OK(train_average_settle(is->average)); /* nothing is under way */
}

static void train_both(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct way *way = ranks->user;

    for (int on_device = 0; on_device <= 1; on_device++) {
        struct rank is;

        begin(&is, context, rank, on_device, way);
        train(&is, rank, way);
        OK(model_loss(is.setup.model, &way->losses[on_device][rank]));
        OK(model_checksum(is.setup.model, &way->sums[on_device][rank]));
        ranks_meet(ranks);
        end(&is);
    }
}

/* Losses as in the suite of models; where models are the same, they are so bit by bit. */
static void check_way(struct way way)
{
    static const int sizes[] = {1, 2, 3, MOST};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ranks_run_helped(train_both, sizes[i], &way);
        for (int r = 0; r < sizes[i]; r++) {
            cr_assert_float_eq(way.losses[1][r], way.losses[0][r], 1e-4 * way.losses[0][r],
                               "%d ranks: %.9g, not %.9g", sizes[i], way.losses[1][r],
                               way.losses[0][r]);
            if (way.place != TRAIN_APART)
                cr_assert_eq(way.sums[1][r], way.sums[1][0]);
        }
    }
    train_check_clean();
}

Test(train_average, gradients)
{
    check_way((struct way){.place = TRAIN_IN_PLACE, .gradients = 1});
}

Test(train_average, models)
{
    check_way((struct way){.place = TRAIN_KEPT});
}

Test(train_average, models_beside_the_gradient)
{
    check_way((struct way){.place = TRAIN_APART});
}

Test(train_average, threads_that_wait)
{
    check_way((struct way){.place = TRAIN_IN_PLACE, .gradients = 1, .waits = 1});
    check_way((struct way){.place = TRAIN_KEPT, .waits = 1});
    check_way((struct way){.place = TRAIN_APART, .waits = 1});
}

/* ---- who waits ---- */

/* The stream of rank 0 gets nowhere, and yet its thread has a whole step behind it. */
static void hold(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct way *way = ranks->user;
    uint32_t *gate;
    struct rank is;

    begin(&is, context, rank, 1, way);
    device_use(rank % 2);
    gate = device_pin(sizeof *gate);
    *gate = 0;
    if (rank == 0)
        device_stream_hold(model_backend(is.setup.model)->stream, gate, 1);
    gradient(&is, rank, 0);
    OK(train_average_execute(is.average));
    OK(model_update(is.setup.model, 0.05f, 0.5f));
    ranks_meet(ranks);
    atomic_store((_Atomic uint32_t *)gate, 1);
    OK(train_average_settle(is.average));
    ranks_meet(ranks);
    end(&is);
    device_use(rank % 2);
    device_unpin(gate);
}

Test(train_average, streams_wait_and_no_thread)
{
    struct way way = {.place = TRAIN_IN_PLACE, .gradients = 1};

    ranks_run_helped(hold, 3, &way);
}

/* ---- averages that fail ---- */

static void fail(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct way *way = ranks->user;
    uint64_t before = 0, after = 0;
    struct rank is;

    begin(&is, context, rank, 1, way);
    gradient(&is, rank, 0);
    OK(model_update(is.setup.model, 0.05f, 0.5f));
    OK(model_checksum(is.setup.model, &before));
    ranks_meet(ranks);
    if (rank == 0)
        OK(weft_context_abort(context, WEFT_ERR_CANCELLED, "enough"));
    int status = way->place == TRAIN_APART ? train_average_post(is.average)
                                           : train_average_execute(is.average);
    if (status == WEFT_OK && way->place == TRAIN_APART)
        status = train_average_wait(is.average);
    if (status == WEFT_OK) {
        CHECK(!way->waits);
        status = train_average_settle(is.average);
    }
    CHECK_STATUS(status, rank == 0 ? WEFT_ERR_CANCELLED : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "enough");
    /* Nothing holds the stream any more. */
    OK(model_backend(is.setup.model)->ops->settle(model_backend(is.setup.model)));
    OK(model_checksum(is.setup.model, &after));
    if (way->waits && way->place == TRAIN_KEPT)
        CHECK(before == after);
    ranks_meet(ranks);
    end(&is);
}

Test(train_average, failures_are_found)
{
    for (int waits = 0; waits <= 1; waits++) {
        for (int place = TRAIN_IN_PLACE; place <= TRAIN_APART; place++) {
            struct way way = {.place = (enum train_average_place)place, .waits = waits};

            ranks_run_helped(fail, 3, &way);
        }
    }
    train_check_clean();
}
