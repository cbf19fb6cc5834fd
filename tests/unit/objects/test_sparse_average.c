/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse averaging against a plain computation of all ranks, bit by bit. */
#include <criterion/criterion.h>
#include <math.h>

#include "support/sparse_reference.h"
#include "support/virtual_ranks.h"

enum { ELEMENTS = 421, TENSORS = 6, MOST_STEPS = 12 };

static const size_t counts[TENSORS] = {97, 0, 1, 300, 22, 1};

static uint64_t scramble(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* ---- a training: some steps on some ranks, and what came of it ---- */

struct seen {
    struct weft_sparse_average_result result[MOST_STEPS];
    /* Of each step: the sum, the mean or (split forms) what it was when applied to zeros. */
    float sum[MOST_STEPS][ELEMENTS];
    float mean[MOST_STEPS][ELEMENTS];
    float residual[MOST_STEPS][ELEMENTS];
    float velocity[MOST_STEPS][ELEMENTS];
    double norm;
    struct weft_sparse_average_stats stats;
};

enum how { STEP, SPLIT, TENSORWISE };

struct training {
    struct weft_sparse_average_config config;
    int size, steps;
    enum how how;
    int apart;     /* tensors do not lie one behind the other */
    int restart;   /* before this step a new object goes on from a checkpoint; 0: no */
    uint64_t seed; /* not 0: virtual ranks, whose messages are delayed */
    int bad_rank;  /* has something that is not finite in its gradient of step 3; -1: none */
    double bad_value;
    struct seen *seen; /* of each rank */
};

enum { BAD_STEP = 3, BAD_ELEMENT = 100, BAD_TENSOR = 3, BADS = 2 };

/* Inexact numbers of magnitudes that differ, zeros and ties among them. */
static float gradient_of(const struct training *training, int rank, uint64_t step, size_t element)
{
    uint64_t bits = scramble(scramble(step * 64 + (uint64_t)rank) + element);
    if (rank == training->bad_rank && step == BAD_STEP && element >= BAD_ELEMENT &&
        element < BAD_ELEMENT + BADS)
        return (float)training->bad_value;
    if (bits % 11 == 0)
        return 0;
    if (bits % 13 == 0)
        return bits & 1 << 20 ? 0.25f : -0.25f;
    return (float)((double)(int64_t)scramble(bits) * 0x1p-63 * ldexp(1, (int)(bits >> 8) % 8));
}

/* The gradients of a rank, and the object that averages them. */
struct trainee {
    const struct training *training;
    struct weft_context *context;
    int rank;
    struct weft_sparse_average *average;
    char data[4 * (TENSORS + ELEMENTS)];
    struct weft_piece tensors[TENSORS];
    uint64_t random;
};

static void lay_out(struct weft_piece tensors[TENSORS], void *data, size_t element, size_t gap)
{
    char *at = data;
    for (int t = 0; t < TENSORS; t++) {
        tensors[t] = (struct weft_piece){at, counts[t]};
        at += counts[t] * element + gap;
    }
}

static void set_gradients(struct trainee *trainee, uint64_t step)
{
    size_t i = 0;
    for (int t = 0; t < TENSORS; t++)
        for (size_t j = 0; j < counts[t]; j++) {
            float value = gradient_of(trainee->training, trainee->rank, step, i++);
            size_t size = weft_dtype_size(trainee->training->config.dtype);
            OK(weft_convert(trainee->training->config.dtype,
                            (char *)trainee->tensors[t].data + j * size, WEFT_F32, &value, 1));
        }
}

static void get_tensors(const struct trainee *trainee, float *values)
{
    for (int t = 0; t < TENSORS; t++) {
        OK(weft_convert(WEFT_F32, values, trainee->training->config.dtype, trainee->tensors[t].data,
                        counts[t]));
        values += counts[t];
    }
}

/* On virtual ranks: computes for a while. */
static void pause_a_while(struct trainee *trainee)
{
    if (trainee->training->seed) {
        trainee->random = scramble(trainee->random);
        OK(weft_context_sleep(trainee->context, trainee->random % 50000));
    }
}

/* The status of a step in which this rank may have had a bad gradient. */
static void expect_status(const struct trainee *trainee, uint64_t step, int tensor, int status)
{
    const struct training *training = trainee->training;
    int bad = trainee->rank == training->bad_rank && step == BAD_STEP &&
              training->config.nan == WEFT_NAN_ERROR && (tensor < 0 || tensor == BAD_TENSOR);
    CHECK_STATUS(status, bad ? WEFT_ERR_COMPUTE : WEFT_OK);
    if (bad) {
        CHECK_TEXT(weft_error_text(), "step 3: 2 NaNs");
        CHECK_TEXT(weft_error_text(), "tensor 3");
    }
}

static void one_step(struct trainee *trainee, uint64_t step, struct seen *seen)
{
    pause_a_while(trainee);
    seen->result[step].struct_size = sizeof seen->result[step];
    expect_status(trainee, step, -1,
                  weft_sparse_average_step(trainee->average, &seen->result[step]));
    get_tensors(trainee, seen->mean[step]);
}

/* A step in two halves; the gradients are overwritten in between, the mean is applied to zeros. */
static void split_step(struct trainee *trainee, uint64_t step, struct seen *seen)
{
    struct weft_sparse_average *average = trainee->average;
    struct weft_piece tensors[TENSORS];
    char were[sizeof trainee->data];
    OK(weft_sparse_average_post(average));
    CHECK_STATUS(weft_sparse_average_post(average), WEFT_ERR_STATE);
    CHECK_STATUS(weft_sparse_average_step(average, NULL), WEFT_ERR_STATE);
    memset(trainee->data, 0x55, sizeof trainee->data);
    memset(were, 0x55, sizeof were);
    pause_a_while(trainee);
    seen->result[step].struct_size = sizeof seen->result[step];
    expect_status(trainee, step, -1, weft_sparse_average_wait(average, &seen->result[step]));
    CHECK(memcmp(trainee->data, were, sizeof were) == 0);
    lay_out(tensors, seen->mean[step], sizeof(float), 0);
    OK(weft_sparse_average_apply(average, 1, WEFT_F32, tensors, TENSORS));
}

/* Tensor by tensor, in an order of the rank's own. */
static void tensor_steps(struct trainee *trainee, uint64_t step, struct seen *seen)
{
    struct weft_sparse_average *average = trainee->average;
    struct weft_sparse_average_result *result = &seen->result[step];
    struct weft_piece tensors[TENSORS];
    lay_out(tensors, seen->mean[step], sizeof(float), 0);
    for (size_t i = 0; i < TENSORS; i++) {
        pause_a_while(trainee);
        OK(weft_sparse_average_post_tensor(average, ((size_t)trainee->rank + i) % TENSORS));
    }
    for (size_t i = 0; i < TENSORS; i++) {
        struct weft_sparse_average_result one = {.struct_size = sizeof one};
        pause_a_while(trainee);
        expect_status(trainee, step, (int)i, weft_sparse_average_wait_tensor(average, i, &one));
        CHECK(one.version == step);
        CHECK_STATUS(weft_sparse_average_wait_tensor(average, i, NULL), WEFT_ERR_STATE);
        OK(weft_sparse_average_apply_tensor(average, i, 1, WEFT_F32, tensors[i].data));
        result->version = one.version;
        result->density = one.density;
        result->k += one.k;
        result->selected += one.selected;
        result->pairs += one.pairs;
    }
}

static void get_sum(const struct trainee *trainee, float *sum)
{
    size_t units = trainee->training->config.scope == WEFT_SPARSE_MODEL ? 1 : TENSORS;
    for (size_t u = 0; u < units; u++) {
        struct weft_sparse pairs;
        OK(weft_sparse_average_get_pairs(trainee->average, u, &pairs));
        for (size_t i = 0; i < pairs.count; i++)
            sum[((uint32_t *)pairs.indices)[i]] = ((float *)pairs.values)[i];
        sum += counts[u];
    }
}

static void create(struct trainee *trainee, const struct weft_sparse_average_state *state)
{
    const struct training *training = trainee->training;
    struct weft_sparse_average_config config = training->config;
    lay_out(trainee->tensors, trainee->data, weft_dtype_size(config.dtype),
            training->apart ? weft_dtype_size(config.dtype) : 0);
    config.tensors = trainee->tensors;
    config.tensor_count = TENSORS;
    config.state = state;
    OK(weft_sparse_average_create(&trainee->average, trainee->context, &config));
}

/* Goes on with another object, from a checkpoint. */
static void restart(struct trainee *trainee)
{
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    float residual[ELEMENTS], velocity[ELEMENTS];
    OK(weft_sparse_average_get_state(trainee->average, &state));
    uint64_t regions[TENSORS * (REFERENCE_RANKS + 2)];
    memcpy(residual, state.residual, sizeof residual);
    state.residual = residual;
    if (state.regions)
        state.regions = memcpy(regions, state.regions, state.region_count * sizeof *regions);
    CHECK((state.velocity != NULL) == (trainee->training->config.momentum > 0));
    if (state.velocity)
        state.velocity = memcpy(velocity, state.velocity, sizeof velocity);
    weft_sparse_average_destroy(trainee->average);
    create(trainee, &state);
}

static int train(struct weft_context *context, void *user)
{
    static void (*const ways[])(struct trainee *, uint64_t, struct seen *) = {
        [STEP] = one_step, [SPLIT] = split_step, [TENSORWISE] = tensor_steps};
    struct training *training = user;
    struct trainee trainee = {.training = training,
                              .context = context,
                              .rank = weft_context_rank(context),
                              .random =
                                  training->seed * 100 + (uint64_t)weft_context_rank(context)};
    struct seen *seen = &training->seen[trainee.rank];
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    create(&trainee, NULL);
    for (uint64_t step = 0; step < (uint64_t)training->steps; step++) {
        if (step && step == (uint64_t)training->restart)
            restart(&trainee);
        CHECK(weft_sparse_average_next(trainee.average) == step);
        set_gradients(&trainee, step);
        ways[training->how](&trainee, step, seen);
        get_sum(&trainee, seen->sum[step]);
        OK(weft_sparse_average_get_state(trainee.average, &state));
        memcpy(seen->residual[step], state.residual, sizeof seen->residual[step]);
        if (state.velocity)
            memcpy(seen->velocity[step], state.velocity, sizeof seen->velocity[step]);
    }
    seen->stats.struct_size = sizeof seen->stats;
    OK(weft_sparse_average_get_stats(trainee.average, &seen->stats));
    OK(weft_sparse_average_residual_norm(trainee.average, &seen->norm));
    weft_sparse_average_destroy(trainee.average);
    return WEFT_OK;
}

/* ---- against the reference ---- */

static double density_of(const struct weft_sparse_average_config *config, uint64_t step)
{
    if (config->warmup_steps && step / config->warmup_steps < config->warmup_count)
        return config->warmup[step / config->warmup_steps];
    return config->density ? config->density : 0.001;
}

static size_t k_of(void *user, uint64_t step, size_t count)
{
    const struct weft_sparse_average_config *config = user;
    int warm = config->warmup_steps && step / config->warmup_steps < config->warmup_count;
    double k = config->k && !warm ? (double)config->k
                                  : floor(density_of(config, step) * (double)count + 0.5);
    k = k < 1 ? 1 : k;
    return k < (double)count ? (size_t)k : count;
}

static void compare_floats(const char *what, const struct training *training, int rank, int step,
                           const float *found, const float *expected)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        if (found[i] != expected[i])
            cr_assert_fail("%s of rank %d of %d, step %d, seed %d, method %d, scope %d, residual "
                           "%d: [%zu] is %.9g, expected %.9g",
                           what, rank, training->size, step, (int)training->seed,
                           (int)training->config.method, (int)training->config.scope,
                           (int)training->config.residual, i, (double)found[i],
                           (double)expected[i]);
}

static void compare_step(const struct training *training, const struct sparse_reference *reference,
                         int step)
{
    const struct weft_sparse_average_config *config = &training->config;
    float sum[ELEMENTS] = {0}, mean[ELEMENTS], share = (float)(1.0 / training->size);
    size_t pairs = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        pairs += (size_t)reference->sum.present[i];
        sum[i] = reference->sum.present[i] ? reference->sum.value[i] : 0;
        mean[i] = training->how == STEP ? sum[i] / (float)training->size : share * sum[i];
        if (training->how == STEP) {
            uint32_t narrow;
            weft_convert(config->dtype, &narrow, WEFT_F32, &mean[i], 1);
            weft_convert(WEFT_F32, &mean[i], config->dtype, &narrow, 1);
        }
    }
    for (int r = 0; r < training->size; r++) {
        const struct seen *seen = &training->seen[r];
        compare_floats("the sum", training, r, step, seen->sum[step], sum);
        compare_floats("the mean", training, r, step, seen->mean[step], mean);
        compare_floats("the residual", training, r, step, seen->residual[step],
                       reference->residual[r]);
        if (config->momentum > 0)
            compare_floats("the velocity", training, r, step, seen->velocity[step],
                           reference->velocity[r]);
        cr_assert_eq(seen->result[step].version, (uint64_t)step);
        cr_assert_eq(seen->result[step].pairs, pairs);
        cr_assert_eq(seen->result[step].selected, reference->selected[r]);
        if (!config->k)
            cr_assert_eq(seen->result[step].density, density_of(config, (uint64_t)step));
    }
}

static void compare_statistics(const struct training *training,
                               const struct sparse_reference *reference)
{
    uint64_t sent = 0, bytes = 0;
    for (int r = 0; r < training->size; r++) {
        const struct weft_sparse_average_stats *found = &training->seen[r].stats;
        double square = 0;
        cr_assert_eq(found->steps, (uint64_t)training->steps);
        cr_assert_eq(found->elements, (uint64_t)training->steps * ELEMENTS);
        cr_assert_eq(found->dropped, reference->dropped[r]);
        double mass =
            training->config.method == WEFT_SPARSE_OKTOPK ? 0 : reference->dropped_mass[r];
        cr_assert_float_eq(found->dropped_mass, mass, 1e-12 * mass);
        cr_assert_eq(found->returned, reference->returned[r]);
        cr_assert_float_eq(found->returned_mass, reference->returned_mass[r],
                           1e-12 * reference->returned_mass[r]);
        cr_assert_eq(found->nans, r == training->bad_rank ? BADS : 0);
        for (size_t i = 0; i < ELEMENTS; i++)
            square += (double)reference->residual[r][i] * (double)reference->residual[r][i];
        cr_assert_float_eq(training->seen[r].norm, sqrt(square), 1e-12 * sqrt(square));
        sent += found->messages;
        bytes += found->bytes;
    }
    cr_assert_eq(sent > 0, training->size > 1);
    cr_assert_eq(bytes > 0, training->size > 1);
}

/* sum + residuals = gradients + residuals before, for every index, within the bound of the header.
 */
static void expect_nothing_lost(const struct training *training, int step, float *const *gradients)
{
    double n = 2, bound;
    for (int span = 1; span < training->size; span *= 2)
        n++;
    bound = n * 0x1p-24 / (1 - n * 0x1p-24);
    for (size_t i = 0; i < ELEMENTS; i++) {
        double lost = -(double)training->seen[0].sum[step][i], magnitudes = 0;
        for (int r = 0; r < training->size; r++) {
            const struct seen *seen = &training->seen[r];
            double before = step ? (double)seen->residual[step - 1][i] : 0;
            lost += (double)gradients[r][i] + before - (double)seen->residual[step][i];
            magnitudes += fabs((double)gradients[r][i]) + fabs(before);
        }
        if (fabs(lost) > bound * magnitudes)
            cr_assert_fail("P = %d, step %d: %g of %g is lost at %zu", training->size, step, lost,
                           magnitudes, i);
    }
}

static void train_local(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    OK(train(context, ranks->user));
}

static void run_ranks(struct training *training)
{
    if (training->seed) {
        struct weft_virtual_config config = with_seed(training->seed);
        struct weft_net net;
        give_net(&config, &net);
        config.delay_ns = 20000;
        config.heavy_share = 0.1;
        config.heavy_ns = 300000;
        if (training->seed % 2)
            net.S = 64; /* larger messages by rendezvous */
        cr_assert_eq(weft_virtual_run(training->size, &config, train, training), WEFT_OK, "%s",
                     weft_error_text());
    } else {
        struct ranks ranks;
        ranks_init(&ranks, training->size, train_local, training);
        ranks.config.progress = training->how == STEP ? WEFT_PROGRESS_CALLER : WEFT_PROGRESS_HELPER;
        ranks_run(&ranks);
    }
}

static void run_training(struct training *training)
{
    struct sparse_reference reference;
    struct weft_piece tensors[TENSORS];
    float *gradients[REFERENCE_RANKS];
    struct weft_sparse_average_config config = training->config;
    int plain = config.momentum == 0 && config.clip_norm == 0 && training->bad_rank < 0;
    training->seen = calloc((size_t)training->size, sizeof *training->seen);
    cr_assert_not_null(training->seen);
    run_ranks(training);
    lay_out(tensors, NULL, 0, 0);
    config.tensors = tensors;
    config.tensor_count = TENSORS;
    sparse_reference_init(&reference, training->size, &config);
    for (int r = 0; r < training->size; r++)
        gradients[r] = calloc(ELEMENTS, sizeof(float));
    for (int step = 0; step < training->steps; step++) {
        for (int r = 0; r < training->size; r++)
            for (size_t i = 0; i < ELEMENTS; i++) {
                float value = gradient_of(training, r, (uint64_t)step, i);
                uint32_t narrow;
                weft_convert(config.dtype, &narrow, WEFT_F32, &value, 1);
                weft_convert(WEFT_F32, &gradients[r][i], config.dtype, &narrow, 1);
            }
        sparse_reference_step(&reference, (uint64_t)step, k_of, &config, gradients);
        compare_step(training, &reference, step);
        if (plain &&
            (config.residual == WEFT_SPARSE_CONSERVING || config.method == WEFT_SPARSE_ALLGATHER))
            expect_nothing_lost(training, step, gradients);
    }
    compare_statistics(training, &reference);
    sparse_reference_free(&reference);
    for (int r = 0; r < training->size; r++)
        free(gradients[r]);
    free(training->seen);
}

/* Under sanitizers, and on devices, whose kernels the host plays, a part of it: other variants of
 * each method. */
#ifdef WEFT_TEST_DEVICE
enum { FEW = 1, MOST_RANKS = 3, WARM_STEPS = 1, WARM_COUNT = 2 };
static const int some_sizes[] = {2, 3};
#elif WEFT_SANITIZED
enum { FEW = 1, MOST_RANKS = 9, WARM_STEPS = 2, WARM_COUNT = 2 };
static const int some_sizes[] = {1, 2, 3, 5};
#else
enum { FEW = 0, MOST_RANKS = 17, WARM_STEPS = 2, WARM_COUNT = 3 };
static const int some_sizes[] = {1, 2, 3, 5, 8};
#endif

static struct training training_of(weft_sparse_method_t method, int size)
{
    static const double warmup[] = {0.25, 0.0725, 0.015};
    struct training training = {.size = size, .steps = FEW ? 4 : 8, .bad_rank = -1};
    weft_sparse_average_config_init(&training.config);
    training.config.method = method;
    training.config.warmup_steps = WARM_STEPS;
    training.config.warmup = warmup;
    training.config.warmup_count = WARM_COUNT;
    training.config.density = 0.03;
    return training;
}

static struct training variant_of(weft_sparse_method_t method, int size, int variant)
{
    static const enum how ways[8] = {SPLIT, TENSORWISE, STEP, STEP, STEP, SPLIT, STEP, TENSORWISE};
    struct training training = training_of(method, size);
    training.config.scope = variant & 1 ? WEFT_SPARSE_TENSOR : WEFT_SPARSE_MODEL;
    training.config.residual =
        variant & 2 && method != WEFT_SPARSE_OKTOPK ? WEFT_SPARSE_PAPER : WEFT_SPARSE_CONSERVING;
    training.config.momentum = variant & 4 ? 0.9 : 0;
    training.config.threshold_steps = 1 + (uint64_t)(variant / 2 + size) % 4;
    training.config.balance_steps = 1 + (uint64_t)(variant + size) % 3;
    training.how = ways[variant % 8];
    training.apart = size % 2;
    return training;
}

/* All variants on some numbers of ranks, two on each of the others. */
static void try_variants(weft_sparse_method_t method)
{
    for (int size = 1; size <= MOST_RANKS; size++)
        for (int variant = 0; variant < 8; variant++) {
            struct training training = variant_of(method, size, variant);
            int every = !FEW && (size == 2 || size == 3 || size == 5);
            if (every || (variant - size - FEW * (int)method) % 4 == 0)
                run_training(&training);
        }
}

Test(sparse_average, tree_is_the_plain_computation)
{
    try_variants(WEFT_SPARSE_GTOPK);
}

Test(sparse_average, butterfly_is_the_plain_computation)
{
    try_variants(WEFT_SPARSE_GTOPK_BUTTERFLY);
}

Test(sparse_average, allgather_is_the_plain_computation)
{
    try_variants(WEFT_SPARSE_ALLGATHER);
}

Test(sparse_average, regions_are_the_plain_computation)
{
    try_variants(WEFT_SPARSE_OKTOPK);
}

/* ---- settings ---- */

enum { SIZES = sizeof some_sizes / sizeof some_sizes[0], METHODS = 4 };

/* Every method, both scopes, on some numbers of ranks. */
static void try_setting(void (*set)(struct training *training))
{
    for (int method = 0; method < METHODS; method++)
        for (int s = 0; s < SIZES; s++)
            for (int scope = 0; scope < 2; scope++) {
                struct training training = training_of((weft_sparse_method_t)method, some_sizes[s]);
                if (FEW && (2 * s + scope - method) % 4)
                    continue;
                training.config.scope = (weft_sparse_scope_t)scope;
                set(&training);
                run_training(&training);
            }
}

static void set_restart(struct training *training)
{
    training->restart = 3;
    training->config.momentum = training->size % 2 ? 0.5 : 0;
    if (training->size == 5 && training->config.method != WEFT_SPARSE_OKTOPK)
        training->config.residual = WEFT_SPARSE_PAPER;
    training->config.threshold_steps = 5;
}

Test(sparse_average, a_checkpoint_goes_on_as_if_nothing_had_happened)
{
    try_setting(set_restart);
}

static void set_clip(struct training *training)
{
    training->config.clip_norm = 40;
    training->config.momentum = training->size % 2 ? 0.5 : 0;
}

Test(sparse_average, gradients_are_clipped)
{
    try_setting(set_clip);
}

static void set_bf16(struct training *training)
{
    training->config.dtype = WEFT_BF16;
    training->config.momentum = training->size % 2 ? 0.5 : 0;
}

static void set_f16(struct training *training)
{
    training->config.dtype = WEFT_F16;
}

Test(sparse_average, gradients_of_half_precision)
{
    try_setting(set_bf16);
    try_setting(set_f16);
}

static void set_k(struct training *training)
{
    training->config.k = 7;
}

static void set_everything(struct training *training)
{
    training->config.k = 100000;
    training->config.warmup_steps = 0;
}

Test(sparse_average, pairs_may_be_counted)
{
    try_setting(set_k);
    try_setting(set_everything);
}

static void set_nan(struct training *training)
{
    training->bad_rank = training->size / 2;
    training->bad_value = training->size % 2 ? NAN : -INFINITY;
    training->config.momentum = training->size == 5 ? 0.5 : 0;
}

static void set_nan_tensorwise(struct training *training)
{
    set_nan(training);
    training->how = training->config.scope == WEFT_SPARSE_TENSOR ? TENSORWISE : SPLIT;
}

static void set_nan_zero(struct training *training)
{
    set_nan(training);
    training->config.nan = WEFT_NAN_ZERO;
}

Test(sparse_average, a_gradient_that_is_not_finite_counts_as_zero)
{
    try_setting(set_nan);
    try_setting(set_nan_tensorwise);
    try_setting(set_nan_zero);
}

/* ---- virtual ranks ---- */

Test(sparse_average, virtual_ranks_under_delays)
{
    for (uint64_t seed = 1; seed <= SWEPT(120, 30); seed++) {
        struct training training = variant_of((weft_sparse_method_t)(seed % METHODS),
                                              1 + (int)(scramble(seed) % 17), (int)(seed / 3));
        training.seed = seed;
        training.restart = seed % 5 ? 0 : 4;
        run_training(&training);
    }
}

/* Without payload lists are as long as they can be, and sums are empty. */
static int train_blindly(struct weft_context *context, void *user)
{
    const struct weft_sparse_average_config *given = user;
    struct weft_sparse_average_config config = *given;
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_stats stats = {.struct_size = sizeof stats};
    struct weft_sparse_average_result result = {.struct_size = sizeof result};
    float data[1000];
    struct weft_piece tensor = {data, 1000};
    int size = weft_context_size(context), rank = weft_context_rank(context);
    config.tensors = &tensor;
    config.tensor_count = 1;
    OK(weft_sparse_average_create(&average, context, &config));
    for (size_t i = 0; i < 1000; i++)
        data[i] = (float)(i % 9 + 1);
    OK(weft_sparse_average_step(average, &result));
    CHECK(result.pairs == (size > 1 || config.method == WEFT_SPARSE_OKTOPK ? 0 : 10));
    CHECK(result.selected == 10);
    OK(weft_sparse_average_get_stats(average, &stats));
    if (config.method < WEFT_SPARSE_ALLGATHER)
        CHECK(stats.bytes == 80 * stats.messages);
    if (config.method == WEFT_SPARSE_GTOPK && rank) /* to the parent and to children */
        CHECK(stats.messages >= 1);
    if (config.method == WEFT_SPARSE_ALLGATHER && size == 16) /* (P - 1) 8 k, in log2 P messages */
        CHECK(stats.messages == 4 && stats.bytes == 15 * 80);
    weft_sparse_average_destroy(average);
    return WEFT_OK;
}

Test(sparse_average, virtual_ranks_without_payload)
{
    for (int method = 0; method < METHODS; method++)
        for (int size = 1; size <= 17; size++) {
            struct weft_sparse_average_config config;
            struct weft_virtual_config network;
            weft_sparse_average_config_init(&config);
            config.method = (weft_sparse_method_t)method;
            if (size % 2 && method != WEFT_SPARSE_OKTOPK)
                config.residual = WEFT_SPARSE_PAPER;
            config.density = 0.01;
            weft_virtual_config_init(&network);
            network.no_payload = 1;
            cr_assert_eq(weft_virtual_run(size, &network, train_blindly, &config), WEFT_OK, "%s",
                         weft_error_text());
        }
}
