/* SPDX-License-Identifier: BSD-3-Clause */
/* The demonstration trainer: algorithms with parameter servers. */
#include "tools/train/yardsticks.h"
#include "train_jobs.h"

#include <math.h>
#include <stdio.h>

enum { MLP, CNN, RESNET };

static const struct train_algorithm *const served[] = {&train_bsp,  &train_asp,  &train_ssp,
                                                       &train_dssp, &train_r2sp, &train_osp};
enum { SERVED = sizeof served / sizeof served[0] };

static void set_up(struct train_options *options, int model, int ranks)
{
    cr_assert_eq(train_options_init(options), WEFT_OK);
    options->model = model;
    options->channels = 4;
    options->ranks = ranks;
    options->steps = 24;
    options->is_virtual = 1;
    options->compute_seconds = 0.01;
}

static struct train_outcome run(const struct train_algorithm *algorithm,
                                struct train_options *options, uint64_t seed)
{
    struct train_job job = {.algorithm = algorithm};
    int status = run_with(&job, options, seed, 4);

    cr_assert_eq(status, WEFT_OK, "%s, %d ranks, %d servers: %s: %s", algorithm->name,
                 options->ranks, options->servers.count, weft_status_text(status),
                 weft_error_text());
    train_options_free(options);
    return job.outcome;
}

/* ---- yardsticks ---- */

static double bound_of(const struct train_algorithm *algorithm, const struct train_options *options)
{
    const double compute[] = {0.01, 0.01, 0.01, 0.01, 0.01};
    struct train_yardsticks found;

    cr_assert_eq(train_yardsticks(&found, options, algorithm, 5, compute), WEFT_OK);
    return found.bound_seconds;
}

static double own_time(const struct train_options *options, uint64_t step, int rank)
{
    return 0.01 + train_delay(&options->imbalance, options->seed, step, rank, 5);
}

enum { STEPS = 40 };

/* The definition, played step by step: who has done c of them waits until all have done c - s. */
static double play_ahead(const struct train_options *options, uint64_t ahead)
{
    double ended[STEPS][5];
    double last = 0.0;

    for (uint64_t step = 0; step < STEPS; step++) {
        for (int rank = 0; rank < 5; rank++) {
            double begins = step > 0 ? ended[step - 1][rank] : 0.0;
            for (int other = 0; other < 5 && step > ahead; other++)
                begins = fmax(begins, ended[step - 1 - ahead][other]);
            ended[step][rank] = begins + own_time(options, step, rank);
        }
    }
    for (int rank = 0; rank < 5; rank++) {
        double left = ended[STEPS - 1][rank];
        for (int other = 0; other < 5 && ahead < STEPS; other++)
            left = fmax(left, ended[STEPS - 1 - ahead][other]);
        last = fmax(last, left);
    }
    return last;
}

/* One push after the other, round and round. */
static double play_turns(const struct train_options *options)
{
    double ended[5] = {0};
    double turn = 0.0;

    for (uint64_t step = 0; step < STEPS; step++)
        for (int rank = 0; rank < 5; rank++)
            turn = ended[rank] = fmax(turn, ended[rank] + own_time(options, step, rank));
    return turn;
}

Test(train_servers, bounds_are_those_of_the_definitions)
{
    static const char *const imbalances[] = {"two-random:15", "lognormal:8,1",
                                             "fixed:1,10+pareto:2,1.5"};
    struct train_options options;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    options.steps = STEPS;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(train_delays_parse(&options.imbalance, imbalances[i]), WEFT_OK);
        double together = bound_of(&train_allreduce, &options);
        double before = together;
        cr_assert_eq(bound_of(&train_bsp, &options), together);
        cr_assert_eq(bound_of(&train_osp, &options), together);
        for (uint64_t ahead = 0; ahead < STEPS + 3; ahead++) {
            options.servers.staleness = ahead;
            options.servers.staleness_most = ahead;
            double found = bound_of(&train_ssp, &options);
            cr_assert_float_eq(found, play_ahead(&options, ahead), 1e-12, "%s, ahead %d: %g",
                               imbalances[i], (int)ahead, found);
            cr_assert_eq(bound_of(&train_dssp, &options), found);
            cr_assert_leq(found, before);
            if (ahead == 0)
                cr_assert_float_eq(found, together, 1e-12);
            before = found;
        }
        cr_assert_float_eq(before, bound_of(&train_asp, &options), 1e-12);
        cr_assert_lt(before, together);
        cr_assert_float_eq(bound_of(&train_r2sp, &options), play_turns(&options), 1e-12);
    }
    train_options_free(&options);
}

/* ---- what they are ---- */

/* The sum over workers is in their order, wherever servers are and however many: equal bits. */
Test(train_servers, bsp_is_synchronous_sgd)
{
    for (int model = MLP; model <= RESNET; model++) {
        for (int ranks = 1; ranks <= 5; ranks += ranks < 3 ? 1 : 2) {
            struct train_options options;
            uint64_t checksum = 0;

            set_up(&options, model, ranks);
            struct train_outcome plain = run(&train_allreduce, &options, 5);
            for (int way = 0; way < 6; way++) {
                set_up(&options, model, ranks);
                options.servers.colocated = way >= 3;
                options.servers.count = (int[]){1, 2, 5}[way % 3];
                options.servers.flow = (weft_server_flow_t)(way % 3);
                if (way >= 3 && options.servers.count > ranks) {
                    train_options_free(&options);
                    continue;
                }
                struct train_outcome found = run(&train_bsp, &options, 5);
                cr_assert(found.identical);
                cr_assert_eq(found.ranks, ranks);
                cr_assert_eq(found.steps, plain.steps);
                cr_assert_float_eq(found.loss, plain.loss, 1e-4 * (1 + plain.loss),
                                   "model %d, %d ranks, way %d: %g, not %g", model, ranks, way,
                                   found.loss, plain.loss);
                cr_assert_eq(found.consensus_distance, 0.0);
                cr_assert_eq(found.served.staleness, 0.0);
                if (way > 0)
                    cr_assert_eq(found.checksum, checksum, "model %d, %d ranks, way %d", model,
                                 ranks, way);
                checksum = found.checksum;
                train_outcome_free(&found);
            }
            train_outcome_free(&plain);
        }
    }
}

Test(train_servers, all_learn_with_any_servers, .timeout = 140)
{
    for (int a = 0; a < SERVED; a++) {
        for (int way = 0; way < 6; way++) {
            struct train_options options;

            set_up(&options, MLP, way < 3 ? 4 : 3);
            options.is_virtual = 0;
            options.compute_seconds = 0.0;
            options.steps = 60;
            options.servers.colocated = way >= 3;
            options.servers.count = 1 + way % 3;
            options.servers.flow = (weft_server_flow_t)(way % 3);
            struct train_outcome found = run(served[a], &options, 3);
            cr_assert(found.identical, "%s, way %d", served[a]->name, way);
            cr_assert_gt(found.test_accuracy, 0.7, "%s, way %d: %g", served[a]->name, way,
                         found.test_accuracy);
            cr_assert_eq(found.served.servers, 1 + way % 3);
            cr_assert_gt(found.served.synchronised_seconds, 0.0);
            train_outcome_free(&found);
        }
    }
}

/* A rank by itself has nobody's updates but its own. */
Test(train_servers, one_rank_is_never_stale)
{
    struct train_options options;

    set_up(&options, CNN, 1);
    struct train_outcome plain = run(&train_allreduce, &options, 5);
    for (int a = 0; a < SERVED; a++) {
        set_up(&options, CNN, 1);
        options.servers.osp_share = WEFT_OSP_NOTHING;
        struct train_outcome found = run(served[a], &options, 5);
        cr_assert_float_eq(found.loss, plain.loss, 1e-4 * (1 + plain.loss), "%s: %g, not %g",
                           served[a]->name, found.loss, plain.loss);
        cr_assert_eq(found.served.staleness, 0.0);
        cr_assert_eq(found.stale_fraction, 0.0);
        train_outcome_free(&found);
    }
    train_outcome_free(&plain);
}

/* Where all take the same time a gradient misses at most one update of each other rank. */
Test(train_servers, staleness_is_what_others_have_pushed)
{
    struct train_options options;

    set_up(&options, MLP, 5);
    struct train_outcome found = run(&train_asp, &options, 5);
    cr_assert(found.served.staleness > 2.0 && found.served.staleness < 4.5, "%g",
              found.served.staleness);
    cr_assert_gt(found.consensus_distance, 0.0);
    train_outcome_free(&found);
    set_up(&options, MLP, 5);
    options.servers.staleness = 0;
    found = run(&train_ssp, &options, 5);
    cr_assert_leq(found.served.staleness, 4.0);
    train_outcome_free(&found);
}

/* Every rank pushes all gradients and pulls all parameters. */
Test(train_servers, bytes_are_those_of_the_messages)
{
    for (int a = 0; a < SERVED; a++) {
        for (int servers = 1; servers <= 2; servers++) {
            struct train_options options;

            set_up(&options, CNN, 3);
            options.servers.count = servers;
            options.servers.osp_share = WEFT_OSP_NOTHING;
            struct train_outcome found = run(served[a], &options, 5);
            double model = 4.0 * (double)found.parameters;
            double all = 24.0 * 3 * 2 * model;
            cr_assert(found.bytes_sent >= all && found.bytes_sent < 1.1 * all, "%s: %g, not %g",
                      served[a]->name, found.bytes_sent, all);
            cr_assert_float_eq(found.compression_ratio * found.bytes_sent, all * 2 / 3, 1.0);
            train_outcome_free(&found);
        }
    }
}

/* ---- OSP ---- */

Test(train_servers, osp_with_nothing_late_is_bsp)
{
    for (int model = MLP; model <= RESNET; model++) {
        struct train_options options;

        set_up(&options, model, 4);
        struct train_outcome plain = run(&train_bsp, &options, 5);
        set_up(&options, model, 4);
        options.servers.osp_share = WEFT_OSP_NOTHING;
        struct train_outcome found = run(&train_osp, &options, 5);
        cr_assert_eq(found.checksum, plain.checksum, "model %d", model);
        cr_assert_eq(found.served.late_share, 0.0);
        cr_assert_eq(found.served.late_layers, 0.0);
        train_outcome_free(&found);
        train_outcome_free(&plain);
    }
}

Test(train_servers, osp_sends_late_what_it_is_told_to)
{
    for (int correction = WEFT_OSP_AT_END; correction <= WEFT_OSP_BEFORE_LAYER; correction++) {
        struct train_options options;

        set_up(&options, CNN, 4);
        options.steps = 60;
        options.servers.osp_share = 0.5;
        options.servers.osp_correction = (weft_osp_correction_t)correction;
        struct train_outcome found = run(&train_osp, &options, 5);
        cr_assert(found.identical);
        cr_assert(found.served.late_share > 0.05 && found.served.late_share <= 0.5, "%g",
                  found.served.late_share);
        cr_assert_gt(found.served.late_layers, 0.5);
        cr_assert_gt(found.test_accuracy, 0.7, "%g", found.test_accuracy);
        train_outcome_free(&found);
    }
}

/* 600 rows are 19 steps of 4 ranks: nothing is late before two losses are known. */
Test(train_servers, osp_follows_the_loss)
{
    struct train_options options;

    set_up(&options, CNN, 4);
    options.steps = 19;
    struct train_outcome found = run(&train_osp, &options, 5);
    cr_assert_eq(found.served.late_share, 0.0);
    train_outcome_free(&found);
    set_up(&options, CNN, 4);
    options.steps = 90;
    found = run(&train_osp, &options, 5);
    cr_assert_gt(found.served.late_share, 0.0);
    cr_assert_leq(found.served.late_share, 0.8);
    train_outcome_free(&found);
    set_up(&options, CNN, 4);
    options.steps = 90;
    options.servers.osp_most = 0.0;
    found = run(&train_osp, &options, 5);
    cr_assert_eq(found.served.late_share, 0.0);
    train_outcome_free(&found);
}
