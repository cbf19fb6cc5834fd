/* SPDX-License-Identifier: BSD-3-Clause */
/* The demonstration trainer, whole: its algorithms. */
#include "tools/train/algorithm.h"
#include "tools/train/dataset.h"
#include "tools/train/loop.h"
#include "tools/train/model.h"
#include "tools/train/random.h"
#include "tools/train/yardsticks.h"
#include "train_jobs.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- whole trainings ---- */

static int run_virtual_job(struct train_job *job, int ranks, const char *imbalance,
                           enum train_order order)
{
    struct train_options options;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    options.order = order;
    cr_assert_eq(train_delays_parse(&options.imbalance, imbalance), WEFT_OK);
    options.is_virtual = 1;
    options.ranks = ranks;
    options.steps = 30;
    options.compute_seconds = 0.01;
    /* Between GradiVeQ's phases ranks meet, which is beside nothing. */
    if (order == TRAIN_BESIDE)
        options.compress.warmup_steps = options.steps;
    int status = run_with(job, &options, 3, 4);
    train_options_free(&options);
    return status;
}

/* All numbers of ranks where layers are computed as they are listed; 2 and 8 otherwise. */
static size_t first_size(enum train_order order)
{
    return order == TRAIN_LISTING ? 0 : 1;
}

static size_t next_size(enum train_order order, size_t i)
{
    return i + (order == TRAIN_LISTING ? 1 : 3);
}

static void check_learning(enum train_order order)
{
    for (const struct train_algorithm *const *at = train_algorithms(); *at; at++) {
        if (!is_available(*at))
            continue;
        for (size_t i = first_size(order); i < sizeof sizes / sizeof sizes[0];
             i = next_size(order, i)) {
            struct train_outcome outcome = train_as(*at, sizes[i], 42, 3, order);
            cr_assert(outcome.identical, "%s: %d ranks differ", (*at)->name, sizes[i]);
            cr_assert_eq(outcome.ranks, sizes[i]);
            cr_assert_gt(outcome.test_accuracy, 0.7, "%s, %d ranks: %g", (*at)->name, sizes[i],
                         outcome.test_accuracy);
            cr_assert(outcome.stale_fraction >= 0.0 && outcome.stale_fraction <= 1.0);
            cr_assert_leq(outcome.bound_samples_per_second,
                          outcome.ideal_samples_per_second * (1 + 1e-9));
            cr_assert_eq(outcome.curve[0].seconds, 0.0);
            cr_assert_eq(outcome.curve[outcome.curve_count - 1].accuracy, outcome.test_accuracy);
            train_outcome_free(&outcome);
        }
    }
}

Test(train, every_algorithm_learns_and_ends_with_one_model)
{
    check_learning(TRAIN_LISTING);
}

Test(train, every_algorithm_learns_with_exchanges_after_the_gradient)
{
    check_learning(TRAIN_AFTER);
}

Test(train, every_algorithm_learns_with_exchanges_beside_the_gradient)
{
    check_learning(TRAIN_BESIDE);
}

static void check_seeds(enum train_order order)
{
    static const struct train_algorithm *const synchronous[] = {
        &train_allreduce, &train_local,  &train_d_psgd,   &train_sgp,  &train_topk,
        &train_gtopk,     &train_oktopk, &train_gradiveq, &train_qsgd, &train_powersgd};

    for (size_t a = 0; a < sizeof synchronous / sizeof synchronous[0]; a++) {
        if (!is_available(synchronous[a]))
            continue;
        for (size_t i = first_size(order); i < sizeof sizes / sizeof sizes[0];
             i = next_size(order, i)) {
            struct train_outcome first = train_as(synchronous[a], sizes[i], 10, 11, order);
            struct train_outcome again = train_as(synchronous[a], sizes[i], 10, 11, order);
            struct train_outcome other = train_as(synchronous[a], sizes[i], 10, 12, order);
            cr_assert_eq(first.checksum, again.checksum, "%s, %d ranks", synchronous[a]->name,
                         sizes[i]);
            cr_assert_neq(first.checksum, other.checksum);
            train_outcome_free(&first);
            train_outcome_free(&again);
            train_outcome_free(&other);
        }
    }
}

Test(train, equal_seeds_give_equal_models)
{
    check_seeds(TRAIN_LISTING);
    check_seeds(TRAIN_BESIDE);
}

/* With one rank nothing is sent, and there is no ratio. */
static void check_ratio(const struct train_outcome *outcome, double dense)
{
    cr_assert_eq(isfinite(outcome->compression_ratio), outcome->ranks > 1);
    if (outcome->ranks > 1)
        cr_assert_float_eq(outcome->compression_ratio * outcome->bytes_sent, dense, 1e-6 * dense);
}

/* What a rank has sent in a step, from what the algorithm sends: models of 4 bytes a parameter, in
 * gossip with a weight of 8. */
Test(train, bytes_are_those_of_the_messages)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int ranks = sizes[i];
        struct train_outcome gradients = train_once(&train_allreduce, ranks, 12, 3);
        struct train_outcome models = train_once(&train_local, ranks, 12, 3);
        struct train_outcome ring = train_once(&train_d_psgd, ranks, 12, 3);
        struct train_outcome pushed = train_once(&train_sgp, ranks, 12, 3);
        double model = 4.0 * (double)gradients.parameters;
        double most = gradients.bytes_per_step_most;

        cr_assert_float_eq(ring.bytes_per_step, (model + 8) * (ranks > 2 ? 2 : ranks - 1), 1e-6);
        cr_assert_float_eq(pushed.bytes_per_step, (model + 8) * (ranks > 1), 1e-6);
        cr_assert_eq(pushed.bytes_per_step_most, pushed.bytes_per_step);
        cr_assert_float_eq(pushed.bytes_sent, pushed.bytes_per_step * ranks * 12, 1e-6);
        /* A sum over all cannot be had for less; and it is taken in every fourth step. */
        cr_assert_geq(gradients.bytes_sent, 12 * 2.0 * (ranks - 1) * model);
        cr_assert(most >= gradients.bytes_per_step && most <= gradients.bytes_sent);
        cr_assert_float_eq(models.bytes_sent, gradients.bytes_sent / 4, 1e-6);
        /* Beside what such a sum needs at least. */
        check_ratio(&gradients, 12 * 2.0 * (ranks - 1) * model);
        check_ratio(&models, 12 * 2.0 * (ranks - 1) * model);
        check_ratio(&ring, 12 * 2.0 * (ranks - 1) * model);
        train_outcome_free(&pushed);
        train_outcome_free(&ring);
        train_outcome_free(&models);
        train_outcome_free(&gradients);
    }
}

/* Gradients keep the models the same; local SGD every fourth step; nobody differs from himself. */
Test(train, models_are_as_far_apart_as_the_algorithm_lets_them)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int ranks = sizes[i];
        struct train_outcome gradients = train_once(&train_allreduce, ranks, 12, 3);
        struct train_outcome models = train_once(&train_local, ranks, 12, 3);
        struct train_outcome ring = train_once(&train_d_psgd, ranks, 12, 3);
        cr_assert_eq(gradients.curve_count, 13);
        for (size_t step = 0; step <= 12; step++) {
            cr_assert_eq(gradients.curve[step].done, step);
            cr_assert_eq(gradients.curve[step].distance, 0.0);
            cr_assert_eq(models.curve[step].distance > 0.0, ranks > 1 && step % 4 != 0);
            cr_assert(ring.curve[step].distance > 0.0 || ranks <= 3 || step == 0);
            cr_assert_geq(models.curve[step].seconds,
                          step > 0 ? models.curve[step - 1].seconds : 0);
        }
        cr_assert_eq(gradients.consensus_distance, 0.0);
        cr_assert_eq(models.consensus_distance > 0.0, ranks > 1);
        train_outcome_free(&ring);
        train_outcome_free(&models);
        train_outcome_free(&gradients);
    }
}

static struct train_outcome train_sparse_as(const struct train_algorithm *algorithm, int ranks,
                                            const struct train_sparse_options *sparse)
{
    struct train_job job = {.algorithm = algorithm};
    struct train_options options;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    options.ranks = ranks;
    options.steps = 24;
    options.sparse = *sparse;
    cr_assert_eq(run_with(&job, &options, 9, 4), WEFT_OK, "%s", weft_error_text());
    train_options_free(&options);
    return job.outcome;
}

/* With all entries sent, the sum is that of allreduce, in another order. */
Test(train, all_entries_are_a_dense_gradient)
{
    static const struct train_algorithm *const algorithms[] = {&train_topk, &train_gtopk,
                                                               &train_oktopk};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct train_outcome dense = train_once(&train_allreduce, sizes[i], 24, 9);
        for (int way = 0; way < 6; way++) {
            struct train_sparse_options sparse = {.density = 1.0, .per_layer = way & 1};
            struct train_outcome found = train_sparse_as(algorithms[way / 2], sizes[i], &sparse);
            cr_assert_float_eq(found.loss, dense.loss, 1e-4 * (1 + dense.loss),
                               "%d ranks, way %d: %g, not %g", sizes[i], way, found.loss,
                               dense.loss);
            cr_assert_float_eq(found.test_accuracy, dense.test_accuracy, 0.011);
            cr_assert_eq(found.k, found.parameters);
            train_outcome_free(&found);
        }
        train_outcome_free(&dense);
    }
}

/* 24 steps, of which 4 x 3 are warm-up: what each rank has sent is what the densities say. */
Test(train, sparse_gradients_are_as_sparse_as_asked)
{
    const struct train_sparse_options sparse = {.density = 0.002, .warmup_steps = 3};
    struct train_outcome outcome = train_sparse_as(&train_topk, 2, &sparse);
    double n = (double)outcome.parameters;
    double expected = (3 * (0.25 + 0.0725 + 0.015 + 0.004) + 12 * 0.002) / 24;

    cr_assert_eq(outcome.k, 102); /* 0.002 * 50,826 */
    /* Zeros are not sent: where a ReLU is off, gradients are 0. */
    cr_assert_leq(outcome.selected_share, expected * 1.001);
    cr_assert_geq(outcome.selected_share, expected * 0.2);
    /* Each of two ranks sends the other its list, in pairs of 8 bytes. */
    cr_assert_float_eq(outcome.bytes_per_step, outcome.selected_share * n * 8, 1e-3);
    train_outcome_free(&outcome);

    /* Of a warm-up only what is above the density. */
    const struct train_sparse_options half = {.density = 0.05, .warmup_steps = 12};
    outcome = train_sparse_as(&train_topk, 1, &half);
    cr_assert_eq(outcome.k, 3685); /* 0.0725 * 50,826 */
    train_outcome_free(&outcome);

    const struct train_sparse_options few = {.density = 1, .k = 7};
    outcome = train_sparse_as(&train_gtopk, 4, &few);
    cr_assert_eq(outcome.k, 7);
    /* A tree of 4 ranks: 3 lists up, 3 down. */
    cr_assert_float_eq(outcome.bytes_sent, 24 * 6 * 7 * 8, 1e-9);
    train_outcome_free(&outcome);
}

/* What a tree and a butterfly make is the same at powers of two, bit by bit, also of residuals;
 * what the paper does with residuals is not. With one rank nothing is dropped. */
Test(train, merges_of_gtopk_agree)
{
    const struct train_sparse_options tree = {.density = 0.01};
    struct train_sparse_options butterfly = tree;
    struct train_sparse_options paper = tree;

    butterfly.gtopk = WEFT_SPARSE_GTOPK_BUTTERFLY;
    paper.residual = WEFT_SPARSE_PAPER;
    for (int ranks = 1; ranks <= 8; ranks *= 2) {
        struct train_outcome a = train_sparse_as(&train_gtopk, ranks, &tree);
        struct train_outcome b = train_sparse_as(&train_gtopk, ranks, &butterfly);
        struct train_outcome c = train_sparse_as(&train_gtopk, ranks, &paper);
        cr_assert_eq(a.checksum, b.checksum, "%d ranks", ranks);
        cr_assert_eq(a.checksum == c.checksum, ranks == 1, "%d ranks", ranks);
        train_outcome_free(&a);
        train_outcome_free(&b);
        train_outcome_free(&c);
    }
}

/* With momentum correction the optimizer has none: at density 1 it is all in the object, and masked
 * at every step, so that it is training without momentum. */
Test(train, momentum_correction_replaces_the_optimizers)
{
    const struct train_sparse_options corrected = {.density = 1.0, .momentum = 0.9};
    struct train_outcome found = train_sparse_as(&train_topk, 3, &corrected);
    struct train_job job = {.algorithm = &train_allreduce};
    struct train_options options;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    options.ranks = 3;
    options.steps = 24;
    options.momentum = 0.0;
    cr_assert_eq(run_with(&job, &options, 9, 4), WEFT_OK, "%s", weft_error_text());
    cr_assert_float_eq(found.loss, job.outcome.loss, 1e-4 * (1 + found.loss));
    train_outcome_free(&job.outcome);
    train_outcome_free(&found);
    train_options_free(&options);
}

/* One step of allreduce on P ranks uses the mean gradient, so does local SGD with period 1 and no
 * momentum yet: after the first step the models agree up to rounding, and so do their losses. */
Test(train, averaging_models_or_gradients_is_the_same_for_one_step)
{
    struct train_outcome gradients = train_once(&train_allreduce, 4, 1, 5);
    struct train_outcome models = train_once(&train_local, 4, 1, 5);

    cr_assert_float_eq(gradients.loss, models.loss, 1e-12);
    cr_assert_float_eq(gradients.test_accuracy, models.test_accuracy, 0.011);
    train_outcome_free(&gradients);
    train_outcome_free(&models);
}

/* On a network that costs next to nothing each algorithm waits for whom its bound says and for
 * nobody else: if one of the two is wrong, they differ. */
static void check_bounds(enum train_order order)
{
    static const char *const imbalances[] = {"two-random:15", "lognormal:8,1",
                                             "fixed:1,10+pareto:2,1.5"};

    for (const struct train_algorithm *const *at = train_algorithms(); *at; at++) {
        if (*at == &train_dssp)
            continue; /* its bound is what it may do at most */
        /* All nine in one order; each number of ranks and each imbalance once in the other. */
        for (size_t i = 0; i < 9 && is_available(*at); i += order == TRAIN_AFTER ? 1 : 4) {
            struct train_job job = {.algorithm = *at};
            int ranks = (int[]){2, 5, 8}[i / 3];
            cr_assert_eq(run_virtual_job(&job, ranks, imbalances[i % 3], order), WEFT_OK, "%s",
                         weft_error_text());
            double share = job.outcome.samples_per_second / job.outcome.bound_samples_per_second;
            /* Layers that are late are not waited for while the slowest computes them. */
            double most = *at == &train_osp ? 1.1 : 1.0 + 1e-6;
            cr_assert(share > 0.97 && share < most, "%s, %d ranks, %s: %g of the bound",
                      (*at)->name, ranks, imbalances[i % 3], share);
            cr_assert(job.outcome.identical);
            train_outcome_free(&job.outcome);
        }
    }
}

Test(train, in_virtual_time_throughput_is_the_bound)
{
    check_bounds(TRAIN_AFTER);
    check_bounds(TRAIN_BESIDE);
}

static struct train_outcome train_wagma_as(weft_average_mode_t mode, int group_size,
                                           uint64_t sync_period,
                                           weft_average_contribution_t contribution)
{
    struct train_job job = {.algorithm = &train_wagma};
    struct train_options options;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    options.ranks = 4;
    options.steps = 12;
    options.mode = mode;
    options.group_size = group_size;
    options.contribution = contribution;
    cr_assert_eq(run_with(&job, &options, 9, sync_period), WEFT_OK, "%s", weft_error_text());
    train_options_free(&options);
    return job.outcome;
}

static void same(const char *name, struct train_outcome found, struct train_outcome expected)
{
    cr_assert_float_eq(found.loss, expected.loss, 1e-4 * (1 + expected.loss), "%s: %g, not %g",
                       name, found.loss, expected.loss);
    cr_assert_eq(found.stale_fraction, 0.0);
    train_outcome_free(&found);
    train_outcome_free(&expected);
}

/* The table of docs/training.md, where it says what a setting is: the same up to rounding. */
Test(train, some_settings_of_wagma_are_other_algorithms)
{
    same("local", train_wagma_as(WEFT_AVERAGE_NONE, 0, 4, WEFT_AVERAGE_REPLACE),
         train_once(&train_local, 4, 12, 9));
    same("allreduce", train_wagma_as(WEFT_AVERAGE_NONE, 0, 1, WEFT_AVERAGE_ACCUMULATE),
         train_once(&train_allreduce, 4, 12, 9));
    same("allreduce in one group",
         train_wagma_as(WEFT_AVERAGE_WAITING, 4, 4, WEFT_AVERAGE_ACCUMULATE),
         train_once(&train_allreduce, 4, 12, 9));
    same("allreduce, never synchronised",
         train_wagma_as(WEFT_AVERAGE_WAITING, 4, 0, WEFT_AVERAGE_ACCUMULATE),
         train_once(&train_allreduce, 4, 12, 9));
}

static int create_alone(void **state, const struct train_setup *setup)
{
    (void)setup;
    *state = NULL;
    return WEFT_OK;
}

static int fail_in_step_3(void *state, uint64_t step)
{
    (void)state;
    return step == 3 ? weft_error_set(WEFT_ERR_COMPUTE, "step 3 is refused") : WEFT_OK;
}

Test(train, ranks_that_never_communicate_are_found_out)
{
    const struct train_algorithm alone = {.name = "alone", .create = create_alone};
    struct train_outcome outcome = train_once(&alone, 3, 5, 1);

    cr_assert_not(outcome.identical);
    train_outcome_free(&outcome);
    outcome = train_once(&alone, 1, 5, 1);
    cr_assert(outcome.identical);
    train_outcome_free(&outcome);
}

Test(train, a_failure_is_reported_with_its_text)
{
    const struct train_algorithm failing = {
        .name = "failing", .create = create_alone, .models.step = fail_in_step_3};
    struct train_job job = {.algorithm = &failing};

    cr_assert_eq(run_job(&job, 3, 5, 1), WEFT_ERR_COMPUTE);
    cr_assert(strstr(weft_error_text(), ": step 3 is refused"), "%s", weft_error_text());
    cr_assert_null(job.outcome.curve);
}

Test(train, optdigits_is_learnt_synchronously)
{
    char storage[4096];
    struct train_options options;
    struct dataset train = {0};
    struct dataset test = {0};

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    const char *folder = train_options_data(&options, storage, sizeof storage);
    cr_assert_eq(dataset_read_folder(&train, &test, folder), WEFT_OK, "%s", weft_error_text());
    cr_assert_eq(train.rows, 3823);
    cr_assert_eq(test.rows, 1797);
    struct train_job job = {
        .options = &options, .algorithm = &train_allreduce, .train = &train, .test = &test};
    cr_assert_eq(train_local_ranks(&job), WEFT_OK, "%s", weft_error_text());
    cr_assert(job.outcome.identical);
    cr_assert_geq(job.outcome.test_accuracy, 0.95);
    train_outcome_free(&job.outcome);
    dataset_free(&test);
    dataset_free(&train);
    train_options_free(&options);
}
