/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse averaging against a plain computation of all ranks, bit by bit. */
#include <criterion/criterion.h>
#include <math.h>

#include "runtime/alloc.h"
#include "support/ranks.h"
#include "support/sparse_reference.h"

enum { ELEMENTS = 421, TENSORS = 6, MOST_STEPS = 12 };

static const size_t counts[TENSORS] = {97, 0, 1, 300, 22, 1};

static uint64_t scramble(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Inexact numbers of magnitudes that differ, zeros and ties among them. */
static float gradient_of(int rank, uint64_t step, size_t element)
{
    uint64_t bits = scramble(scramble(step * 64 + (uint64_t)rank) + element);
    if (bits % 11 == 0)
        return 0;
    if (bits % 13 == 0)
        return bits & 1 << 20 ? 0.25f : -0.25f;
    return (float)((double)(int64_t)scramble(bits) * 0x1p-63 * ldexp(1, (int)(bits >> 8) % 8));
}

/* ---- a training: some steps on some ranks, and what came of it ---- */

struct seen {
    struct weft_sparse_average_result result[MOST_STEPS];
    float mean[MOST_STEPS][ELEMENTS];
    float residual[MOST_STEPS][ELEMENTS];
    float velocity[MOST_STEPS][ELEMENTS];
    double norm;
    struct weft_sparse_average_statistics statistics;
};

enum how { STEP, SPLIT, TENSORWISE };

struct training {
    struct weft_sparse_average_config config;
    int size, steps;
    enum how how;
    struct seen *seen; /* of each rank */
};

static struct weft_piece *lay_out(struct weft_piece tensors[TENSORS], float *data)
{
    for (int t = 0; t < TENSORS; t++) {
        tensors[t] = (struct weft_piece){data, counts[t]};
        data += counts[t];
    }
    return tensors;
}

static void set_gradients(float *data, int rank, uint64_t step)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        data[i] = gradient_of(rank, step, i);
}

/* A step in two halves; the gradients are overwritten in between, the mean is applied to zeros. */
static void split_step(struct weft_sparse_average *average, float *data, float *mean,
                       struct weft_sparse_average_result *result)
{
    struct weft_piece tensors[TENSORS];
    OK(weft_sparse_average_post(average));
    CHECK_STATUS(weft_sparse_average_post(average), WEFT_ERR_STATE);
    CHECK_STATUS(weft_sparse_average_step(average, NULL), WEFT_ERR_STATE);
    memset(data, 0x55, ELEMENTS * sizeof *data);
    OK(weft_sparse_average_wait(average, result));
    memset(mean, 0, ELEMENTS * sizeof *mean);
    OK(weft_sparse_average_apply(average, weft_sparse_average_next(average) ? 1 : 0, WEFT_F32,
                                 lay_out(tensors, mean), TENSORS));
    for (size_t i = 0; i < ELEMENTS; i++)
        CHECK(memcmp(&data[i], "\x55\x55\x55\x55", 4) == 0);
}

/* Tensor by tensor, in an order of the rank's own. */
static void tensor_steps(struct weft_sparse_average *average, int rank, uint64_t step, float *mean,
                         struct weft_sparse_average_result *result)
{
    struct weft_piece tensors[TENSORS];
    memset(mean, 0, ELEMENTS * sizeof *mean);
    lay_out(tensors, mean);
    memset(result, 0, sizeof *result);
    for (size_t i = 0; i < TENSORS; i++)
        OK(weft_sparse_average_post_tensor(average, ((size_t)rank + i) % TENSORS));
    for (size_t i = 0; i < TENSORS; i++) {
        struct weft_sparse_average_result one;
        OK(weft_sparse_average_wait_tensor(average, i, &one));
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

static void train_rank(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct training *training = ranks->user;
    struct seen *seen = &training->seen[rank];
    struct weft_sparse_average_config config = training->config;
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_state state;
    struct weft_piece tensors[TENSORS];
    float data[ELEMENTS];
    config.tensors = lay_out(tensors, data);
    config.tensor_count = TENSORS;
    OK(weft_sparse_average_create(&average, context, &config));
    for (int step = 0; step < training->steps; step++) {
        CHECK(weft_sparse_average_next(average) == (uint64_t)step);
        set_gradients(data, rank, (uint64_t)step);
        if (training->how == STEP) {
            OK(weft_sparse_average_step(average, &seen->result[step]));
            memcpy(seen->mean[step], data, sizeof data);
        } else if (training->how == SPLIT) {
            split_step(average, data, seen->mean[step], &seen->result[step]);
        } else {
            tensor_steps(average, rank, (uint64_t)step, seen->mean[step], &seen->result[step]);
        }
        OK(weft_sparse_average_get_state(average, &state));
        memcpy(seen->residual[step], state.residual, sizeof data);
        if (state.velocity)
            memcpy(seen->velocity[step], state.velocity, sizeof data);
    }
    OK(weft_sparse_average_get_statistics(average, &seen->statistics));
    OK(weft_sparse_average_residual_norm(average, &seen->norm));
    weft_sparse_average_destroy(average);
}

/* ---- against the reference ---- */

static double density_of(const struct weft_sparse_average_config *config, uint64_t step)
{
    if (config->warmup_steps && step / config->warmup_steps < config->warmup_count)
        return config->warmup[step / config->warmup_steps];
    return config->density;
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
        cr_assert(found[i] == expected[i],
                  "%s of rank %d of %d, step %d, method %d, scope %d, residual %d: [%zu] is %.9g, "
                  "expected %.9g",
                  what, rank, training->size, step, (int)training->config.method,
                  (int)training->config.scope, (int)training->config.residual, i, (double)found[i],
                  (double)expected[i]);
}

static void compare_step(const struct training *training, const struct sparse_reference *reference,
                         int step)
{
    float mean[ELEMENTS] = {0};
    size_t pairs = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        if (!reference->sum.present[i])
            continue;
        pairs++;
        mean[i] = training->how == STEP ? reference->sum.value[i] / (float)training->size
                                        : (float)(1.0 / training->size) * reference->sum.value[i];
    }
    for (int r = 0; r < training->size; r++) {
        const struct seen *seen = &training->seen[r];
        compare_floats("the mean", training, r, step, seen->mean[step], mean);
        compare_floats("the residual", training, r, step, seen->residual[step],
                       reference->residual[r]);
        if (training->config.momentum > 0)
            compare_floats("the velocity", training, r, step, seen->velocity[step],
                           reference->velocity[r]);
        cr_assert_eq(seen->result[step].version, (uint64_t)step);
        cr_assert_eq(seen->result[step].pairs, pairs);
        cr_assert_eq(seen->result[step].selected, reference->selected[r]);
        if (!training->config.k)
            cr_assert_eq(seen->result[step].density, density_of(&training->config, (uint64_t)step));
    }
}

static void compare_statistics(const struct training *training,
                               const struct sparse_reference *reference)
{
    uint64_t sent = 0, bytes = 0;
    for (int r = 0; r < training->size; r++) {
        const struct weft_sparse_average_statistics *found = &training->seen[r].statistics;
        double square = 0;
        cr_assert_eq(found->steps, (uint64_t)training->steps);
        cr_assert_eq(found->elements, (uint64_t)training->steps * ELEMENTS);
        cr_assert_eq(found->dropped, reference->dropped[r]);
        cr_assert_float_eq(found->dropped_mass, reference->dropped_mass[r],
                           1e-12 * reference->dropped_mass[r]);
        cr_assert_eq(found->returned, reference->returned[r]);
        cr_assert_float_eq(found->returned_mass, reference->returned_mass[r],
                           1e-12 * reference->returned_mass[r]);
        cr_assert_eq(found->nans, 0);
        for (size_t i = 0; i < ELEMENTS; i++)
            square += (double)reference->residual[r][i] * (double)reference->residual[r][i];
        cr_assert_float_eq(training->seen[r].norm, sqrt(square), 1e-12 * sqrt(square));
        sent += found->messages;
        bytes += found->bytes;
    }
    cr_assert_eq(sent > 0, training->size > 1);
    cr_assert_eq(bytes > 0, training->size > 1);
}

static void run_training(struct training *training)
{
    struct sparse_reference reference;
    struct ranks ranks;
    struct weft_piece tensors[TENSORS];
    float *gradients[REFERENCE_RANKS];
    struct weft_sparse_average_config config = training->config;
    ranks_init(&ranks, training->size, train_rank, training);
    ranks.config.progress = training->how == STEP ? WEFT_PROGRESS_CALLER : WEFT_PROGRESS_HELPER;
    training->seen = calloc((size_t)training->size, sizeof *training->seen);
    cr_assert_not_null(training->seen);
    ranks_run(&ranks);
    config.tensors = lay_out(tensors, NULL);
    config.tensor_count = TENSORS;
    sparse_reference_init(&reference, training->size, &config);
    for (int r = 0; r < training->size; r++)
        gradients[r] = calloc(ELEMENTS, sizeof(float));
    for (int step = 0; step < training->steps; step++) {
        for (int r = 0; r < training->size; r++)
            set_gradients(gradients[r], r, (uint64_t)step);
        sparse_reference_step(&reference, (uint64_t)step, k_of, &config, gradients);
        compare_step(training, &reference, step);
    }
    compare_statistics(training, &reference);
    sparse_reference_free(&reference);
    for (int r = 0; r < training->size; r++)
        free(gradients[r]);
    free(training->seen);
}

static struct training training_of(weft_sparse_method_t method, int size)
{
    static const double warmup[] = {0.25, 0.0725, 0.015};
    struct training training = {.size = size, .steps = 8};
    weft_sparse_average_config_init(&training.config);
    training.config.method = method;
    training.config.warmup_steps = 2;
    training.config.warmup = warmup;
    training.config.warmup_count = 3;
    training.config.density = 0.03;
    return training;
}

static void try_variants(weft_sparse_method_t method, int size)
{
    for (int variant = 0; variant < 8; variant++) {
        struct training training = training_of(method, size);
        training.config.scope = variant & 1 ? WEFT_SPARSE_TENSOR : WEFT_SPARSE_MODEL;
        training.config.residual = variant & 2 ? WEFT_SPARSE_PAPER : WEFT_SPARSE_CONSERVING;
        training.config.momentum = variant & 4 ? 0.9 : 0;
        training.how = variant == 0 || variant == 5   ? SPLIT
                       : variant == 1 || variant == 7 ? TENSORWISE
                                                      : STEP;
        run_training(&training);
    }
}

Test(sparse_average, tree_is_the_plain_computation)
{
    for (int size = 1; size <= 17; size++)
        try_variants(WEFT_SPARSE_GTOPK, size);
}

Test(sparse_average, butterfly_is_the_plain_computation)
{
    for (int size = 1; size <= 17; size++)
        try_variants(WEFT_SPARSE_GTOPK_BUTTERFLY, size);
}

Test(sparse_average, allgather_is_the_plain_computation)
{
    for (int size = 1; size <= 17; size++)
        try_variants(WEFT_SPARSE_ALLGATHER, size);
}
