/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When the trainer's ranks exchange: after the gradient, or beside it as some listings have it.
 * What comes of either order is computed here once more, by hand and one rank after the other.
 */
#include "tools/train/algorithm.h"
#include "tools/train/batches.h"
#include "train_jobs.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { STEPS = 14, SYNC = 4, SEED = 9, MOST_RANKS = 5, FLOATS = 64 * 12 + 12 + 12 * 10 + 10 };

static void set_up(struct train_options *options, int ranks, enum train_order order)
{
    cr_assert_eq(train_options_init(options), WEFT_OK);
    options->order = order;
    options->ranks = ranks;
    options->steps = STEPS;
    options->hidden[0] = 12;
    options->hidden_count = 1;
}

/* ---- by hand ---- */

enum kind { GRADIENTS, RING, EXPONENTIAL, PERIODIC, TOGETHER };

struct hand {
    enum kind kind;
    int ranks;
    int beside;
    struct model *models[MOST_RANKS];
    struct train_batches batches[MOST_RANKS];
    /* Beside: what the exchange that is under way adds to each model. */
    float change[MOST_RANKS][FLOATS];
    /* Delayed: the mean gradient of the step before. */
    float delayed[FLOATS];
};

/* The mean over ranks `of`, of models. */
static void mean_of(const struct hand *hand, const int *of, int count, float *mean)
{
    float model[FLOATS];

    memset(mean, 0, sizeof model);
    for (int i = 0; i < count; i++) {
        model_save(hand->models[of[i]], model);
        for (int f = 0; f < FLOATS; f++)
            mean[f] += model[f] / (float)count;
    }
}

/* Whom a rank averages with after `step`; itself is first. */
static int partners_of(const struct hand *hand, int rank, uint64_t step, int *of)
{
    int hops[2];
    int count = 0;

    of[0] = rank;
    if (hand->kind == PERIODIC || hand->kind == TOGETHER) {
        for (int i = 0; i < hand->ranks; i++)
            of[i] = i;
        return hand->kind == TOGETHER || (step + 1) % SYNC == 0 ? hand->ranks : 0;
    }
    if (hand->kind == RING)
        count = weft_gossip_hops(WEFT_GOSSIP_RING, hand->ranks,
                                 hand->ranks > 2 ? 2 : hand->ranks - 1, step, hops);
    else if (hand->kind == EXPONENTIAL)
        count = weft_gossip_hops(WEFT_GOSSIP_EXPONENTIAL, hand->ranks, hand->ranks > 1, step, hops);
    for (int i = 0; i < count; i++)
        of[1 + i] = (rank + hand->ranks - hops[i]) % hand->ranks;
    return 1 + count;
}

/* What averaging after `step` adds to each model. */
static void mix(struct hand *hand, uint64_t step)
{
    for (int r = 0; r < hand->ranks; r++) {
        float model[FLOATS], mean[FLOATS];
        int of[MOST_RANKS];
        int count = partners_of(hand, r, step, of);

        model_save(hand->models[r], model);
        mean_of(hand, of, count, mean);
        for (int f = 0; f < FLOATS; f++)
            hand->change[r][f] = count ? mean[f] - model[f] : 0.0f;
    }
}

static void apply(struct hand *hand)
{
    for (int r = 0; r < hand->ranks; r++) {
        float model[FLOATS];

        model_save(hand->models[r], model);
        for (int f = 0; f < FLOATS; f++)
            model[f] += hand->change[r][f];
        model_load(hand->models[r], model);
    }
}

/* Every rank's gradient becomes their mean, or that of the step before. */
static void average_gradients(struct hand *hand)
{
    float mean[FLOATS] = {0};

    for (int r = 0; r < hand->ranks; r++) {
        int at = 0;
        for (size_t t = 0; t < model_tensor_count(hand->models[r]); t++) {
            const struct weft_piece *tensor = &model_gradients(hand->models[r])[t];
            for (size_t i = 0; i < tensor->count; i++)
                mean[at++] += ((float *)tensor->data)[i] / (float)hand->ranks;
        }
        cr_assert_eq(at, FLOATS);
    }
    for (int r = 0; r < hand->ranks; r++) {
        int at = 0;
        for (size_t t = 0; t < model_tensor_count(hand->models[r]); t++) {
            const struct weft_piece *tensor = &model_gradients(hand->models[r])[t];
            memcpy(tensor->data, (hand->beside ? hand->delayed : mean) + at,
                   tensor->count * sizeof(float));
            at += (int)tensor->count;
        }
    }
    memcpy(hand->delayed, mean, sizeof mean);
}

static void update(struct hand *hand, const struct train_options *options)
{
    for (int r = 0; r < hand->ranks; r++)
        model_update(hand->models[r], (float)options->rate, (float)options->momentum);
}

/* x <- W (x - rate g), or x <- W x - rate g. Returns the mean of the losses. */
static double step_by_hand(struct hand *hand, const struct train_options *options, uint64_t step)
{
    double loss = 0;

    for (int r = 0; r < hand->ranks; r++) {
        train_batches_take(&hand->batches[r], step);
        double own;
        cr_assert_eq(model_gradient(hand->models[r], hand->batches[r].images,
                                    hand->batches[r].labels, options->batch, NULL, &own),
                     WEFT_OK);
        loss += own / hand->ranks;
    }
    if (hand->kind == GRADIENTS) {
        average_gradients(hand);
        update(hand, options);
        return loss;
    }
    if (hand->beside && step > 0) {
        mix(hand, step - 1);
        apply(hand);
    }
    update(hand, options);
    if (!hand->beside) {
        mix(hand, step);
        apply(hand);
    }
    return loss;
}

/* The mean loss at the last step; the models' mean afterwards, in the first model. */
static double train_by_hand(struct hand *hand, const struct train_options *options,
                            const struct dataset *data)
{
    struct train_shards shards = {0};
    struct net_config net = train_options_net(options);
    int all[MOST_RANKS];
    float mean[FLOATS];
    double loss = 0;

    for (int r = 0; r < hand->ranks; r++) {
        all[r] = r;
        cr_assert_eq(model_create(&hand->models[r], &net, options->batch, SEED), WEFT_OK);
        cr_assert_eq(train_batches_init(&hand->batches[r], data, &shards, options->batch, SEED, r,
                                        hand->ranks),
                     WEFT_OK);
    }
    for (uint64_t step = 0; step < STEPS; step++)
        loss = step_by_hand(hand, options, step);
    if (hand->kind == GRADIENTS && hand->beside) {
        average_gradients(hand); /* what is still under way */
        update(hand, options);
    }
    mean_of(hand, all, hand->ranks, mean);
    model_load(hand->models[0], mean);
    return loss;
}

static void check_by_hand(const struct train_algorithm *algorithm,
                          weft_average_contribution_t contribution, enum kind kind, int ranks,
                          enum train_order order)
{
    struct train_job job = {.algorithm = algorithm};
    struct train_options options;
    struct hand hand = {.kind = kind, .ranks = ranks};
    struct dataset train, test;

    set_up(&options, ranks, order);
    options.mode = WEFT_AVERAGE_WAITING; /* of wagma: one group, which waits for its members */
    options.group_size = ranks;
    options.contribution = contribution;
    options.sparse.density = 1.0;
    options.compress.warmup_steps = STEPS; /* nothing is compressed */
    options.compress.uncompressed = WEFT_UNCOMPRESSED_DENSE;
    cr_assert_eq(run_with(&job, &options, SEED, SYNC), WEFT_OK, "%s", weft_error_text());
    hand.beside = train_is_beside(&options, algorithm);
    make_data(&train, 600, 1);
    make_data(&test, 200, 2);
    double loss = train_by_hand(&hand, &options, &train);
    cr_assert_float_eq(job.outcome.loss, loss, 2e-5 * (1 + loss), "%s, %d ranks, %s: %g, not %g",
                       algorithm->name, ranks, train_order_name(&options, algorithm),
                       job.outcome.loss, loss);
    double accuracy = 0.0;
    for (size_t row = 0; row < test.rows; row += options.batch) {
        double part = NAN;
        cr_assert_eq(model_accuracy(hand.models[0], test.images + row * DATASET_PIXELS,
                                    test.labels + row, options.batch, &part),
                     WEFT_OK);
        accuracy += part;
    }
    accuracy *= (double)options.batch / (double)test.rows;
    cr_assert_float_eq(job.outcome.test_accuracy, accuracy, 0.0101);
    for (int r = 0; r < ranks; r++) {
        train_batches_free(&hand.batches[r]);
        model_destroy(hand.models[r]);
    }
    dataset_free(&test);
    dataset_free(&train);
    train_outcome_free(&job.outcome);
    train_options_free(&options);
}

static void check_contribution(const struct train_algorithm *algorithm,
                               weft_average_contribution_t contribution, enum kind kind)
{
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        check_by_hand(algorithm, contribution, kind, ranks, TRAIN_LISTING);
        check_by_hand(algorithm, contribution, kind, ranks, TRAIN_AFTER);
        check_by_hand(algorithm, contribution, kind, ranks, TRAIN_BESIDE);
    }
}

static void check_all_by_hand(const struct train_algorithm *algorithm, enum kind kind)
{
    check_contribution(algorithm, WEFT_AVERAGE_REPLACE, kind);
}

Test(train_order, d_psgd_is_its_listing)
{
    check_all_by_hand(&train_d_psgd, RING);
}

Test(train_order, sgp_is_its_listing)
{
    check_all_by_hand(&train_sgp, EXPONENTIAL);
}

Test(train_order, local_sgd_is_its_listing)
{
    check_all_by_hand(&train_local, PERIODIC);
}

Test(train_order, allreduce_is_its_listing_or_a_step_late)
{
    check_all_by_hand(&train_allreduce, GRADIENTS);
}

Test(train_order, merged_is_its_listing_in_all_orders)
{
    check_all_by_hand(&train_merged, GRADIENTS);
}

Test(train_order, sparse_gradients_with_all_entries_are_dense_ones)
{
    check_all_by_hand(&train_topk, GRADIENTS);
    check_all_by_hand(&train_gtopk, GRADIENTS);
    check_all_by_hand(&train_oktopk, GRADIENTS);
}

Test(train_order, gradients_that_are_not_compressed_yet_are_dense_ones)
{
    check_all_by_hand(&train_powersgd, GRADIENTS);
    if (weft_pca_available())
        check_all_by_hand(&train_gradiveq, GRADIENTS);
}

Test(train_order, wagma_in_one_group_that_waits_is_an_average_of_all)
{
    check_contribution(&train_wagma, WEFT_AVERAGE_REPLACE, TOGETHER);
    check_contribution(&train_wagma, WEFT_AVERAGE_ACCUMULATE, GRADIENTS);
}

/* The orders are told apart by the numbers above. */
Test(train_order, orders_differ)
{
    static const struct train_algorithm *const algorithms[] = {&train_d_psgd, &train_sgp,
                                                               &train_local, &train_allreduce};

    for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; a++) {
        double loss[2];
        for (int beside = 0; beside < 2; beside++) {
            struct train_job job = {.algorithm = algorithms[a]};
            struct train_options options;
            set_up(&options, 4, beside ? TRAIN_BESIDE : TRAIN_AFTER);
            cr_assert_eq(run_with(&job, &options, SEED, SYNC), WEFT_OK, "%s", weft_error_text());
            loss[beside] = job.outcome.loss;
            train_outcome_free(&job.outcome);
            train_options_free(&options);
        }
        cr_assert_gt(fabs(loss[0] - loss[1]), 1e-3, "%s", algorithms[a]->name);
    }
}

/* ---- which order is whose ---- */

Test(train_order, listings_are_the_papers)
{
    struct train_options options;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    cr_assert_eq(options.order, TRAIN_LISTING);
    for (const struct train_algorithm *const *at = train_algorithms(); *at; at++) {
        int beside = *at == &train_d_psgd || *at == &train_ad_psgd;
        cr_assert_eq(train_is_beside(&options, *at), beside, "%s", (*at)->name);
        const int layers = *at == &train_merged || (*at)->serve;
        const char *order = beside ? "beside" : layers ? "layers" : "after";
        cr_assert_str_eq(train_order_name(&options, *at), order);
    }
    options.order = TRAIN_BESIDE;
    cr_assert_str_eq(train_order_name(&options, &train_wagma), "beside");
    cr_assert_str_eq(train_order_name(&options, &train_local), "beside");
    cr_assert_str_eq(train_order_name(&options, &train_eager_solo), "delayed");
    cr_assert_str_eq(train_order_name(&options, &train_gtopk), "delayed");
    cr_assert(train_needs_helper(&options, &train_allreduce));
    options.contribution = WEFT_AVERAGE_ACCUMULATE;
    cr_assert_str_eq(train_order_name(&options, &train_wagma), "delayed");
    options.order = TRAIN_AFTER;
    cr_assert_str_eq(train_order_name(&options, &train_wagma), "after");
    cr_assert_not(train_needs_helper(&options, &train_allreduce));
    train_options_free(&options);
}

/* ---- what it costs ---- */

/* The share of the ideal throughput where a model takes 3 ms on the network, and a step 20. */
static double share_of_ideal(const struct train_algorithm *algorithm, enum train_order order)
{
    struct train_job job = {.algorithm = algorithm};
    struct train_options options;

    set_up(&options, 4, order);
    options.is_virtual = 1;
    options.steps = 81;
    options.compute_seconds = 0.02;
    options.net.L = 1000;
    options.net.G = 2000.0 / (4 * FLOATS);
    options.sparse.density = 0.02;
    cr_assert_eq(run_with(&job, &options, SEED, SYNC), WEFT_OK, "%s: %s", algorithm->name,
                 weft_error_text());
    double share = job.outcome.samples_per_second / job.outcome.ideal_samples_per_second;
    train_outcome_free(&job.outcome);
    train_options_free(&options);
    return share;
}

/* One exchange is left after the last step: it shows. */
Test(train_order, beside_the_gradient_exchanges_take_no_time)
{
    for (const struct train_algorithm *const *at = train_algorithms(); *at; at++) {
        if ((*at)->layers.ready || ((*at)->available && !(*at)->available()))
            continue; /* it has one order, or needs LAPACK */
        double after = share_of_ideal(*at, TRAIN_AFTER);
        double beside = share_of_ideal(*at, TRAIN_BESIDE);
        cr_assert_gt(beside, 0.98, "%s beside: %g", (*at)->name, beside);
        cr_assert_lt(after, 0.97, "%s after: %g", (*at)->name, after);
    }
}
