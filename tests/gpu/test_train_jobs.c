/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whole trainings of the trainer on devices, as `weft train --device cuda` runs them: beside those
 * of the processor, what a thread waits for, and drivers that fail in the middle of one.
 */
#include "tests/gpu/train_device.h"

#include "tests/unit/tools/train_jobs.h"

#include <cuda.h>
#include <math.h>
#include <string.h>

enum { ROWS = 40, STEPS = 100 };

struct training {
    const struct train_algorithm *algorithm;
    int model;
    int ranks;
    uint64_t steps;
    enum train_order order;
    const char *imbalance;
    weft_average_contribution_t contribution;
    int avoids; /* waiting */
    double density;
};

static int run_training(const struct training *training, const char *device,
                        struct train_outcome *outcome)
{
    struct train_job job = {.algorithm = training->algorithm};
    struct train_options options;
    struct dataset train, test;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    options.device = device;
    options.model = training->model;
    options.hidden_count = 1;
    options.hidden[0] = 8;
    options.channels = 2;
    options.ranks = training->ranks;
    options.steps = training->steps;
    options.order = training->order;
    options.batch = 4;
    options.rate = 0.05;
    options.momentum = 0.5;
    options.sync_period = 2;
    /* What others find does not depend on who is first. */
    options.mode = training->avoids ? WEFT_AVERAGE_WAIT_AVOIDING : WEFT_AVERAGE_WAITING;
    options.group_size = 2;
    options.contribution = training->contribution;
    if (training->density > 0)
        options.sparse.density = training->density;
    if (training->imbalance)
        DONE(train_delays_parse(&options.imbalance, training->imbalance));
    make_data(&train, ROWS, 1);
    make_data(&test, ROWS, 2);
    job.options = &options;
    job.train = &train;
    job.test = &test;
    int status = train_local_ranks(&job);
    *outcome = job.outcome;
    dataset_free(&test);
    dataset_free(&train);
    train_options_free(&options);
    return status;
}

/* Losses as in the suite of models; of few images those that are right are as many. */
static void compare(const struct training *training)
{
    struct train_outcome outcomes[2];

    for (int d = 0; d < 2; d++)
        DONE(run_training(training, d ? "cuda" : NULL, &outcomes[d]));
    const struct train_outcome *here = &outcomes[0], *there = &outcomes[1];
    cr_assert(there->identical && there->steps == training->steps && !there->interrupted);
    cr_assert_float_eq(there->loss, here->loss, 1e-4 * here->loss, "%s: %.9g, not %.9g",
                       training->algorithm->name, there->loss, here->loss);
    cr_assert_float_eq(there->test_accuracy, here->test_accuracy, 1.01 / ROWS);
    cr_assert_eq(there->curve_count, here->curve_count);
    for (size_t i = 0; i < here->curve_count; i++) {
        cr_assert_eq(there->curve[i].done, here->curve[i].done);
        cr_assert_float_eq(there->curve[i].accuracy, here->curve[i].accuracy, 1.01 / ROWS);
        cr_assert_float_eq(there->curve[i].distance, here->curve[i].distance,
                           1e-3 * here->curve[i].distance + 1e-5);
        cr_assert_geq(there->curve[i].seconds, i ? there->curve[i - 1].seconds : 0.0);
    }
    cr_assert_eq(there->bytes_sent, here->bytes_sent);
    cr_assert(there->gradient_seconds > 0.0 && there->gradient_seconds < there->seconds);
    cr_assert(there->ideal_samples_per_second > 0.0 && isfinite(there->ideal_samples_per_second));
    train_outcome_free(&outcomes[0]);
    train_outcome_free(&outcomes[1]);
}

static void compare_all(const struct train_algorithm *algorithm,
                        weft_average_contribution_t contribution)
{
    for (int order = TRAIN_AFTER; order <= TRAIN_BESIDE; order++)
        for (int ranks = 1; ranks <= 3; ranks++)
            compare(&(struct training){.algorithm = algorithm,
                                       .ranks = ranks,
                                       .steps = 5,
                                       .order = (enum train_order)order,
                                       .contribution = contribution});
    train_check_clean();
}

Test(train_jobs, allreduce)
{
    compare_all(&train_allreduce, WEFT_AVERAGE_REPLACE);
}

Test(train_jobs, local)
{
    compare_all(&train_local, WEFT_AVERAGE_REPLACE);
}

Test(train_jobs, wagma)
{
    compare_all(&train_wagma, WEFT_AVERAGE_REPLACE);
    compare_all(&train_wagma, WEFT_AVERAGE_ACCUMULATE);
}

/* The entries that are largest may be others where they are nearly equal. */
Test(train_jobs, sparse)
{
    static const struct train_algorithm *const algorithms[] = {&train_topk, &train_gtopk,
                                                               &train_oktopk};

    for (int a = 0; a < 3; a++)
        for (int order = TRAIN_AFTER; order <= TRAIN_BESIDE; order++)
            compare(&(struct training){.algorithm = algorithms[a],
                                       .ranks = 1 + 2 * (a + order) % 3,
                                       .steps = 4,
                                       .order = (enum train_order)order,
                                       .density = 0.1});
    train_check_clean();
}

/* Whoever is first starts it: results differ, and all end with one model. */
Test(train_jobs, nobody_is_waited_for)
{
    static const struct train_algorithm *const algorithms[] = {&train_wagma, &train_eager_solo,
                                                               &train_eager_majority};

    for (int a = 0; a < 3; a++)
        for (int order = TRAIN_AFTER; order <= TRAIN_BESIDE; order++) {
            struct training training = {.algorithm = algorithms[a],
                                        .ranks = 3,
                                        .steps = 6,
                                        .order = (enum train_order)order,
                                        .imbalance = "fixed:1,2"};
            struct train_outcome outcome;

            training.avoids = 1;
            DONE(run_training(&training, "cuda", &outcome));
            cr_assert(outcome.identical && outcome.steps == 6 && isfinite(outcome.loss));
            train_outcome_free(&outcome);
        }
    train_check_clean();
}

Test(train_jobs, all_models)
{
    for (int model = 1; net_architectures()[model]; model++)
        compare(&(struct training){.algorithm = &train_allreduce,
                                   .model = model,
                                   .ranks = 2,
                                   .steps = 2,
                                   .order = TRAIN_AFTER});
    train_check_clean();
}

Test(train_jobs, late_ranks)
{
    compare(&(struct training){.algorithm = &train_allreduce,
                               .ranks = 2,
                               .steps = 3,
                               .imbalance = "fixed:1,2",
                               .order = TRAIN_AFTER});
    compare(&(struct training){.algorithm = &train_local,
                               .ranks = 2,
                               .steps = 3,
                               .order = TRAIN_BESIDE,
                               .imbalance = "fixed:1,2"});
    train_check_clean();
}

/* ---- who waits ---- */

static unsigned long waits_of(const struct training *training)
{
    const struct train_standins *standins = train_standins();
    unsigned long before = standins->calls_of("cuStreamSynchronize");
    struct train_outcome outcome;

    DONE(run_training(training, "cuda:0", &outcome));
    train_outcome_free(&outcome);
    return standins->calls_of("cuStreamSynchronize") - before;
}

/* A thread waits for its stream before the first step and after the last; in a step if it is late
 * by design. (Points of the curve are evaluated afterwards: as many in all of these.) */
Test(train_jobs, threads_do_not_wait_in_a_step)
{
    struct training training = {
        .algorithm = &train_allreduce, .ranks = 2, .steps = STEPS, .order = TRAIN_AFTER};
    struct training late = {.algorithm = &train_allreduce,
                            .ranks = 2,
                            .steps = STEPS,
                            .imbalance = "fixed:1,0.001",
                            .order = TRAIN_AFTER};

    if (!train_standins())
        cr_skip("calls of a driver are not counted");
    unsigned long few = waits_of(&training);
    cr_assert_geq(waits_of(&late), few + STEPS);
    training.steps = 2 * STEPS;
    unsigned long many = waits_of(&training);
    cr_assert(many < few + STEPS / 2, "%lu waits in %d steps, %lu in as many again", few, STEPS,
              many);
}

/* ---- drivers that fail ---- */

/* Whoever fails is told with its cause, and all ranks end. */
static void fail_all(const struct training *training, int code, void (*check)(void))
{
    const struct train_standins *standins = train_standins();
    struct train_outcome outcome;
    unsigned failed = 0;

    if (!standins)
        cr_skip("nothing can be made to fail on a device");
    unsigned long before = standins->calls();
    DONE(run_training(training, "cuda", &outcome));
    train_outcome_free(&outcome);
    unsigned long all = standins->calls() - before;
    for (unsigned long n = 1 + all / 40; n <= all; n += all / 9) {
        standins->fail_at(n, code);
        int status = run_training(training, "cuda", &outcome);
        standins->fail_at(0, 0);
        cr_assert(status == WEFT_OK || strstr(weft_error_text(), "CUDA_ERROR_") ||
                      strstr(weft_error_text(), "CUBLAS_STATUS_"),
                  "call %lu: %d, %s", n, status, weft_error_text());
        failed += status != WEFT_OK;
        train_outcome_free(&outcome);
        check();
    }
    cr_assert_gt(failed, 3);
    DONE(run_training(training, "cuda", &outcome));
    train_outcome_free(&outcome);
}

Test(train_jobs, calls_that_fail)
{
    fail_all(
        &(struct training){
            .algorithm = &train_allreduce, .ranks = 3, .steps = 3, .order = TRAIN_AFTER},
        CUDA_ERROR_UNKNOWN, train_check_clean);
    fail_all(
        &(struct training){.algorithm = &train_wagma, .ranks = 3, .steps = 3, .order = TRAIN_AFTER},
        CUDA_ERROR_UNKNOWN, train_check_misuse);
    /* With the context goes what a stream was to write; libweft does not free its words then. */
    fail_all(
        &(struct training){
            .algorithm = &train_local, .ranks = 2, .steps = 3, .order = TRAIN_BESIDE},
        CUDA_ERROR_ILLEGAL_ADDRESS, train_check_misuse);
}
