/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of the trainer layer by layer: their pace, and merged gradients. */
#include "tools/train/algorithm.h"
#include "tools/train/loop.h"
#include "tools/train/merged.h"
#include "tools/train/pace.h"
#include "train_jobs.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <weft/virtual.h>

static const char *const merges[] = {"exact", "greedy", "wfbp", "single", "bucket:4K"};
enum { MERGES = sizeof merges / sizeof merges[0], CNN = 1, RESNET = 2 };

/* ---- the pace ---- */

enum { STEP_NS = 10000000 };

/* Two steps, in the second of which 3 ms are lost before the last layer's forward pass. */
static int walk(struct weft_context *context, void *user)
{
    const size_t hidden[] = {32, 16};
    const struct net_config net = {.architecture = net_architectures()[0],
                                   .image = {8, 8, 1},
                                   .classes = 10,
                                   .hidden = hidden,
                                   .hidden_count = 2};
    struct model *model = NULL;
    struct train_pace *pace = NULL;

    (void)user;
    cr_assert_eq(model_create(&model, &net, 1, 1), WEFT_OK);
    cr_assert_eq(train_pace_create(&pace, context, model, STEP_NS), WEFT_OK);
    for (int lost = 0; lost <= 3000000; lost += 3000000) {
        uint64_t began = weft_context_now(context);
        double over = 0.0;

        train_pace_begin(pace);
        for (size_t l = 0; l < 3; l++) {
            if (l == 2 && lost) {
                cr_assert_eq(weft_context_sleep(context, (uint64_t)lost), WEFT_OK);
                train_pace_shift(pace, (uint64_t)lost);
            }
            cr_assert_eq(train_pace_forward(pace, l), WEFT_OK);
            over += train_pace_forward_share(pace, l);
            cr_assert_float_eq((double)(weft_context_now(context) - began),
                               over * STEP_NS + (l == 2 ? lost : 0), 2.0);
        }
        for (size_t l = 3; l-- > 0;) {
            cr_assert_eq(train_pace_backward(pace, l), WEFT_OK);
            over += train_pace_backward_share(pace, l);
            cr_assert_float_eq((double)(weft_context_now(context) - began), over * STEP_NS + lost,
                               2.0);
        }
        cr_assert_float_eq(over, 1.0, 1e-12);
    }
    /* By the image there is no product: 64 x 32, 32 x 16, 16 x 10 forward, the latter two twice. */
    double work = 2 * (3 * (32 * 16 + 16 * 10) + 2 * 64 * 32) + 2 * (32 + 16);
    cr_assert_float_eq(train_pace_forward_share(pace, 2), 2 * 16 * 10 / work, 0.01);
    cr_assert_float_eq(train_pace_backward_share(pace, 0), 2 * 64 * 32 / work, 0.01);
    train_pace_destroy(pace);
    model_destroy(model);
    return WEFT_OK;
}

Test(train_layers, layers_take_their_shares_of_a_step)
{
    struct weft_virtual_config config;

    weft_virtual_config_init(&config);
    cr_assert_eq(weft_virtual_run(1, &config, walk, NULL), WEFT_OK, "%s", weft_error_text());
}

static int measure(struct weft_context *context, void *user)
{
    const struct net_config net = {.architecture = net_architectures()[RESNET],
                                   .image = {8, 8, 1},
                                   .classes = 10,
                                   .channels = 4};
    float images[64] = {0};
    const uint8_t label = 3;
    struct model *model = NULL;
    struct train_pace *pace = NULL;
    double sum = 0.0;

    (void)user;
    cr_assert_eq(model_create(&model, &net, 1, 1), WEFT_OK);
    cr_assert_eq(train_pace_create(&pace, context, model, 0), WEFT_OK);
    cr_assert_eq(train_pace_measure(pace, model, images, &label, 1), WEFT_OK);
    for (size_t l = 0; l < model_layer_count(model); l++) {
        cr_assert_geq(train_pace_forward_share(pace, l), 0.0);
        cr_assert_geq(train_pace_backward_share(pace, l), 0.0);
        sum += train_pace_forward_share(pace, l) + train_pace_backward_share(pace, l);
    }
    cr_assert_float_eq(sum, 1.0, 1e-12);
    train_pace_destroy(pace);
    model_destroy(model);
    return WEFT_OK;
}

Test(train_layers, measured_shares_add_up)
{
    struct weft_virtual_config config;

    weft_virtual_config_init(&config);
    cr_assert_eq(weft_virtual_run(1, &config, measure, NULL), WEFT_OK, "%s", weft_error_text());
}

/* ---- merged gradients ---- */

static void set_up(struct train_options *options, int model, int ranks, const char *merge)
{
    cr_assert_eq(train_options_init(options), WEFT_OK);
    options->model = model;
    options->channels = 4;
    options->ranks = ranks;
    options->steps = 24;
    options->is_virtual = 1;
    options->compute_seconds = 0.01;
    cr_assert_eq(weft_merge_method_parse(merge, &options->merge), WEFT_OK);
}

static struct train_outcome run(const struct train_algorithm *algorithm,
                                struct train_options *options, uint64_t seed)
{
    struct train_job job = {.algorithm = algorithm};

    cr_assert_eq(run_with(&job, options, seed, 4), WEFT_OK, "%s", weft_error_text());
    train_options_free(options);
    return job.outcome;
}

/* All updates are by the mean gradient of their own step: on the way, too, for points of the curve
 * are of models between steps. */
Test(train_layers, merged_is_synchronous_sgd)
{
    for (int model = 0; model <= RESNET; model++) {
        for (int ranks = 1; ranks <= 4; ranks += ranks < 3 ? 2 : 1) {
            struct train_options options;

            set_up(&options, model, ranks, "exact");
            struct train_outcome plain = run(&train_allreduce, &options, 5);
            for (int i = 0; i < 2 * MERGES; i++) {
                set_up(&options, model, ranks, merges[i / 2]);
                options.merge_wait = i % 2;
                struct train_outcome merged = run(&train_merged, &options, 5);
                cr_assert(merged.identical);
                cr_assert_eq(merged.steps, plain.steps);
                cr_assert_float_eq(merged.loss, plain.loss, 1e-4 * (1 + plain.loss),
                                   "model %d, %d ranks, %s: %g, not %g", model, ranks,
                                   merges[i / 2], merged.loss, plain.loss);
                cr_assert_eq(merged.curve_count, plain.curve_count);
                for (size_t at = 0; at < plain.curve_count; at++)
                    cr_assert_float_eq(merged.curve[at].accuracy, plain.curve[at].accuracy, 0.0101);
                train_outcome_free(&merged);
            }
            train_outcome_free(&plain);
        }
    }
}

Test(train_layers, sparse_groups_with_all_entries_are_dense)
{
    struct train_options options;

    set_up(&options, RESNET, 3, "exact");
    struct train_outcome plain = run(&train_merged, &options, 5);
    for (int sparse = TRAIN_MERGE_TOPK; sparse <= TRAIN_MERGE_GTOPK; sparse++) {
        set_up(&options, RESNET, 3, "exact");
        options.merge_sparse = (enum train_merge_sparse)sparse;
        options.sparse.density = 1.0;
        struct train_outcome merged = run(&train_merged, &options, 5);
        cr_assert(merged.identical);
        cr_assert_float_eq(merged.loss, plain.loss, 1e-4 * (1 + plain.loss), "%d: %g, not %g",
                           sparse, merged.loss, plain.loss);
        train_outcome_free(&merged);
    }
    train_outcome_free(&plain);
}

Test(train_layers, sparse_groups_send_less_and_learn)
{
    struct train_options options;

    set_up(&options, CNN, 3, "bucket:4K");
    options.steps = 60;
    struct train_outcome plain = run(&train_merged, &options, 5);
    set_up(&options, CNN, 3, "bucket:4K");
    options.steps = 60;
    options.merge_sparse = TRAIN_MERGE_GTOPK;
    options.sparse.density = 0.05;
    struct train_outcome merged = run(&train_merged, &options, 5);
    cr_assert(merged.identical);
    cr_assert_lt(merged.bytes_sent, 0.3 * plain.bytes_sent);
    cr_assert_lt(merged.loss, 2.1, "it learns: %g", merged.loss);
    train_outcome_free(&merged);
    train_outcome_free(&plain);
}

/* 0: of GradiVeQ there is none without LAPACK. */
static int is_there(enum train_compression compression)
{
    return compression != TRAIN_COMPRESS_GRADIVEQ || weft_pca_available();
}

Test(train_layers, groups_that_are_not_compressed_yet_are_dense)
{
    struct train_options options;

    set_up(&options, RESNET, 3, "exact");
    struct train_outcome plain = run(&train_merged, &options, 5);
    for (int method = TRAIN_COMPRESS_GRADIVEQ; method <= TRAIN_COMPRESS_POWERSGD; method++) {
        set_up(&options, RESNET, 3, "exact");
        if (method == TRAIN_COMPRESS_QSGD || !is_there((enum train_compression)method))
            continue;
        options.merge_compress = (enum train_compression)method;
        options.compress.warmup_steps = options.steps;
        options.compress.uncompressed = WEFT_UNCOMPRESSED_DENSE;
        struct train_outcome merged = run(&train_merged, &options, 5);
        cr_assert(merged.identical);
        cr_assert_float_eq(merged.loss, plain.loss, 1e-4 * (1 + plain.loss), "%d: %g, not %g",
                           method, merged.loss, plain.loss);
        train_outcome_free(&merged);
    }
    train_outcome_free(&plain);
}

Test(train_layers, compressed_groups_send_less_and_learn)
{
    struct train_options options;

    for (int method = TRAIN_COMPRESS_GRADIVEQ; method <= TRAIN_COMPRESS_POWERSGD; method++) {
        set_up(&options, CNN, 3, "bucket:4K");
        if (!is_there((enum train_compression)method))
            continue;
        options.steps = 60;
        options.merge_compress = (enum train_compression)method;
        struct train_outcome merged = run(&train_merged, &options, 5);
        cr_assert(merged.identical);
        cr_assert_gt(merged.compression_ratio, 2.5, "%d: %g", method, merged.compression_ratio);
        cr_assert_lt(merged.loss, 2.1, "%d learns: %g", method, merged.loss);
        train_outcome_free(&merged);
    }
}

Test(train_layers, merged_gives_equal_bits_and_times_in_virtual_time)
{
    for (int wait = 0; wait < 2; wait++) {
        struct train_outcome outcomes[2];
        for (int i = 0; i < 2; i++) {
            struct train_options options;
            set_up(&options, CNN, 3, "exact");
            options.merge_wait = wait;
            cr_assert_eq(weft_net_parse("L=30,G=0.02", &options.net), WEFT_OK);
            outcomes[i] = run(&train_merged, &options, 6);
        }
        cr_assert_eq(outcomes[0].checksum, outcomes[1].checksum);
        cr_assert_eq(outcomes[0].seconds, outcomes[1].seconds);
        train_outcome_free(&outcomes[1]);
        train_outcome_free(&outcomes[0]);
    }
}

static void check_groups(const struct train_merged *merged, const char *merge)
{
    char sent[64] = {0};
    size_t layers = 0;

    for (size_t g = 0; g < merged->group_count; g++)
        layers += merged->group_layers[g];
    cr_assert_eq(layers, merged->layer_count);
    for (size_t i = 0; i < merged->layer_count; i++)
        cr_assert_eq(sent[merged->layers[i]]++, 0);
    if (strcmp(merge, "single") == 0)
        cr_assert_eq(merged->group_count, 1);
    if (strcmp(merge, "wfbp") == 0)
        cr_assert_eq(merged->group_count, merged->layer_count);
}

/* The network costs so much that something is to be gained. */
Test(train_layers, steps_last_as_planned_in_virtual_time)
{
    for (int wait = 0; wait < 2; wait++) {
        double exact = 0.0;
        for (size_t i = 0; i < MERGES; i++) {
            struct train_options options;

            set_up(&options, RESNET, 4, merges[i]);
            options.channels = 16;
            options.merge_wait = wait;
            cr_assert_eq(weft_net_parse("L=100,G=0.005", &options.net), WEFT_OK);
            struct train_outcome outcome = run(&train_merged, &options, 5);
            double planned = outcome.planned_step_seconds;
            exact = i == 0 ? outcome.step_seconds : exact;
            check_groups(&outcome.merged, merges[i]);
            cr_assert_float_eq(outcome.step_seconds, planned, 0.02 * planned, "%s: %g, planned %g",
                               merges[i], outcome.step_seconds, planned);
            cr_assert_float_eq(outcome.merged.hidden, outcome.merged.planned_hidden, 0.05, "%s",
                               merges[i]);
            cr_assert_geq(outcome.step_seconds, exact * (1 - 1e-3), "%s", merges[i]);
            cr_assert_geq(outcome.step_seconds, 0.01 * (1 - 1e-9));
            cr_assert_leq(outcome.samples_per_second, outcome.bound_samples_per_second);
            train_outcome_free(&outcome);
        }
    }
}

/* A late rank delays everybody's step by what it is late, and no more. */
Test(train_layers, delays_lie_before_the_first_gradient)
{
    struct train_options options;

    set_up(&options, CNN, 4, "wfbp");
    cr_assert_eq(train_delays_parse(&options.imbalance, "fixed:1,5"), WEFT_OK);
    struct train_outcome outcome = run(&train_merged, &options, 5);
    cr_assert_float_eq(outcome.step_seconds, 0.015, 0.0005);
    cr_assert_leq(outcome.samples_per_second, outcome.bound_samples_per_second);
    cr_assert_geq(outcome.samples_per_second, 0.95 * outcome.bound_samples_per_second);
    train_outcome_free(&outcome);
}

/* ---- deaths ---- */

enum { WALKERS = 3, WALKED = 3, WALK_STEPS = 12, MORE_STEPS = 2 };

/* Every rank has a one in each layer in each step, at an element of its own. */
struct walker {
    struct train_setup setup;
    void *state;
    int me;
    uint64_t steps, updates;
    float sums[WALKED][WALKERS], common[WALKED][WALKERS];
};

static struct {
    uint64_t seed;
    float sums[WALKED][WALKERS];
    uint64_t went_on;
} walked;

/* As the trainer: a step of which all layers have been announced is in the state. */
static int walk_a_step(struct walker *walker)
{
    const struct train_setup *setup = &walker->setup;
    struct train_random random =
        train_random_make(walked.seed, TRAIN_RANDOM_SHUFFLE, walker->steps, (uint64_t)walker->me);
    struct model_layer layer;
    int status = WEFT_OK;

    for (size_t l = WALKED; l-- > 0 && status == WEFT_OK;) {
        weft_context_sleep(setup->context, 1 + train_random_below(&random, 200000));
        model_get_layer(setup->model, l, &layer);
        for (size_t t = layer.first_tensor; t < layer.first_tensor + layer.tensor_count; t++)
            memset(setup->gradients[t].data, 0, setup->gradients[t].count * sizeof(float));
        ((float *)setup->gradients[layer.first_tensor].data)[walker->me] =
            walker->steps < WALK_STEPS;
        status = train_merged.layers.ready(walker->state, l);
    }
    walker->steps += status == WEFT_OK;
    for (size_t l = 0; l < WALKED && status == WEFT_OK; l++) {
        status = train_merged.layers.wait(walker->state, l);
        model_get_layer(setup->model, l, &layer);
        for (int r = 0; r < WALKERS && status == WEFT_OK; r++)
            walker->sums[l][r] +=
                (float)setup->size * ((const float *)setup->gradients[layer.first_tensor].data)[r];
        walker->updates += status == WEFT_OK;
    }
    return status;
}

static int walk_on(struct walker *walker)
{
    struct train_setup *setup = &walker->setup;
    const double mine[] = {(double)walker->steps, (double)walker->updates};
    double told[2 * WALKERS];
    int first = 0;

    int status = weft_context_shrink(setup->context, &setup->context);
    if (status != WEFT_OK)
        return status;
    setup->rank = weft_context_rank(setup->context);
    setup->size = weft_context_size(setup->context);
    status = weft_allgather(setup->context, mine, told, 2, WEFT_F64);
    setup->step = walker->steps;
    for (int r = 0; r < setup->size && status == WEFT_OK; r++) {
        setup->step = told[2 * r] < (double)setup->step ? (uint64_t)told[2 * r] : setup->step;
        first = told[2 * r + 1] > told[2 * first + 1] ? r : first;
    }
    memcpy(walker->common, walker->sums, sizeof walker->common);
    if (status == WEFT_OK)
        status = weft_broadcast(setup->context, walker->common, sizeof walker->common / 4, WEFT_F32,
                                first);
    if (status == WEFT_OK)
        status = walker->state ? train_merged.again(&walker->state, setup)
                               : train_merged.create(&walker->state, setup);
    if (status != WEFT_OK)
        return status;
    memcpy(walker->sums, walker->common, sizeof walker->sums);
    walker->steps = setup->step;
    walker->updates = (uint64_t)told[2 * first + 1];
    if (walker->me == 0)
        walked.went_on += walker->steps > 0;
    return WEFT_OK;
}

static int walk_with_deaths(struct weft_context *context, void *user)
{
    const size_t hidden[] = {8, 8};
    const struct net_config net = {.architecture = net_architectures()[0],
                                   .image = {4, 4, 1},
                                   .classes = 10,
                                   .hidden = hidden,
                                   .hidden_count = 2};
    struct walker walker = {.setup = {.context = context,
                                      .rank = weft_context_rank(context),
                                      .size = weft_context_size(context),
                                      .options = user}};

    walker.me = walker.setup.rank;
    cr_assert_eq(model_create(&walker.setup.model, &net, 1, 1), WEFT_OK);
    walker.setup.gradients = model_gradients(walker.setup.model);
    int status = train_merged.create(&walker.state, &walker.setup);
    for (;;) {
        while (status == WEFT_OK && walker.steps < WALK_STEPS + MORE_STEPS)
            status = walk_a_step(&walker);
        if (status != WEFT_ERR_PEER)
            break;
        while (status == WEFT_ERR_PEER)
            status = walk_on(&walker);
    }
    if (walker.me == 0)
        memcpy(walked.sums, walker.sums, sizeof walked.sums);
    cr_assert(status == WEFT_OK || walker.me == WALKERS - 1, "%s", weft_error_text());
    if (walker.state)
        train_merged.destroy(walker.state);
    model_destroy(walker.setup.model);
    return WEFT_OK;
}

Test(train_layers, deaths_lose_no_gradient_of_those_that_are_left, .timeout = 140)
{
    struct train_options options;

    set_up(&options, 0, WALKERS, "wfbp");
    options.merge_sparse = TRAIN_MERGE_TOPK;
    options.sparse.k = 1;
    options.sparse.warmup_steps = 0;
    walked.went_on = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct train_random random = train_random_make(seed, TRAIN_RANDOM_SHUFFLE, 0, 0);
        struct weft_virtual_fault fault = {.rank = WALKERS - 1,
                                           .at_ns = 1 + train_random_below(&random, 8000000),
                                           .for_ns = WEFT_NEVER};
        struct weft_virtual_config config;
        weft_virtual_config_init(&config);
        config.seed = walked.seed = seed;
        config.faults = &fault;
        config.fault_count = 1;
        config.deaths = 1;
        config.death_ns = 50000;
        config.delay_ns = 30000;
        config.shuffle = 1;
        cr_assert_eq(weft_virtual_run(WALKERS, &config, walk_with_deaths, &options), WEFT_OK, "%s",
                     weft_error_text());
        for (size_t l = 0; l < WALKED; l++)
            for (int r = 0; r < WALKERS - 1; r++)
                cr_assert_float_eq(walked.sums[l][r], (float)WALK_STEPS, 1e-3,
                                   "seed %llu: layer %zu, rank %d: %g", (unsigned long long)seed, l,
                                   r, (double)walked.sums[l][r]);
    }
    cr_assert_gt(walked.went_on, 50);
}
