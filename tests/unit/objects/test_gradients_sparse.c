/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients whose groups are summed sparsely: as sparse averages of the same groups, bit by
 * bit; nothing is lost where other groups take the place of these; and on from checkpoints. */
#include <criterion/criterion.h>
#include <math.h>

#include "layers_job.h"

enum { RANKS = 5, STEPS = 10 };

struct seen {
    float result[JOB_ELEMENTS], residual[JOB_ELEMENTS], velocity[JOB_ELEMENTS];
    size_t groups; /* in force in the step */
    uint64_t since;
};

struct trial {
    struct weft_sparse_average_config sparse;
    weft_gradients_reduction_t reduction;
    weft_merge_method_t method;
    const size_t *group_layers; /* WEFT_MERGE_GIVEN */
    size_t group_count;
    int plain;   /* sparse averages by themselves */
    int restart; /* before this step another object goes on from a checkpoint; 0: never */
    int replans; /* times change all the time */
    uint64_t seed;
    struct seen seen[RANKS][STEPS];
};

static uint64_t scramble(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 31);
}

static float value_of(int rank, uint64_t step, size_t i)
{
    uint64_t bits = scramble(scramble(step * 64 + (uint64_t)rank) + i);
    if (bits % 11 == 0)
        return 0;
    return (float)((double)(int64_t)scramble(bits) * 0x1p-63 * (double)(1 << bits % 8));
}

static void fill(struct job *job, uint64_t step)
{
    for (size_t i = 0; i < JOB_ELEMENTS; i++)
        job->data[i] = value_of(job->rank, step, i);
}

/* ---- the object ---- */

static void create(struct job *job, const struct trial *trial,
                   const struct weft_gradients_state *state)
{
    job->config.method = WEFT_GRADIENTS_SPARSE;
    job->config.sparse = &trial->sparse;
    job->config.reduction = trial->reduction;
    job->merge.method = trial->method;
    job->merge.group_layers = trial->group_layers;
    job->merge.group_count = trial->group_count;
    job->config.state = state;
    job->config.measure_steps = trial->replans ? 1 : 0;
    job->config.check_steps = trial->replans ? 1 : WEFT_NEVER;
    job->config.gain = 1e-9;
    OK(job_create(job));
}

/* Another object, which goes on from copies of what this one has. */
static void restart(struct job *job, const struct trial *trial)
{
    struct weft_gradients_state state = {.struct_size = sizeof state};
    float residual[JOB_ELEMENTS], velocity[JOB_ELEMENTS];
    uint64_t agreed[200], regions[200];
    OK(weft_gradients_get_state(job->gradients, &state));
    CHECK(state.residual && state.agreed_count <= 200 && state.region_count <= 200);
    CHECK(!state.velocity == (trial->sparse.momentum == 0));
    CHECK(!state.regions == (trial->sparse.method != WEFT_SPARSE_OKTOPK));
    state.residual = memcpy(residual, state.residual, sizeof residual);
    if (state.velocity)
        state.velocity = memcpy(velocity, state.velocity, sizeof velocity);
    if (state.regions)
        state.regions = memcpy(regions, state.regions, state.region_count * sizeof *regions);
    state.agreed = memcpy(agreed, state.agreed, state.agreed_count * sizeof *agreed);
    OK(weft_gradients_destroy(job->gradients));
    create(job, trial, &state);
}

static void look(struct job *job, struct seen *seen)
{
    struct weft_gradients_state state = {.struct_size = sizeof state};
    memcpy(seen->result, job->data, sizeof seen->result);
    OK(weft_gradients_get_state(job->gradients, &state));
    memcpy(seen->residual, state.residual, sizeof seen->residual);
    if (state.velocity)
        memcpy(seen->velocity, state.velocity, sizeof seen->velocity);
}

static int train(struct weft_context *context, void *user)
{
    struct trial *trial = user;
    struct job job;
    job_init(&job, context);
    create(&job, trial, NULL);
    for (uint64_t step = 0; step < STEPS; step++) {
        struct weft_gradients_plan plan = {.struct_size = sizeof plan};
        struct seen *seen = &trial->seen[job.rank][step];
        if (step && step == (uint64_t)trial->restart)
            restart(&job, trial);
        CHECK(weft_gradients_next(job.gradients) == step);
        OK(weft_gradients_get_plan(job.gradients, &plan));
        seen->groups = plan.group_count;
        seen->since = plan.since;
        fill(&job, step);
        for (size_t i = 0; i < JOB_LAYERS; i++) {
            uint64_t pause = scramble(trial->seed * 100 + step / 2 * 10 + i) % 400000;
            size_t layer = trial->replans && step / 2 % 2 ? i : JOB_LAYERS - 1 - i;
            OK(weft_context_sleep(context, pause));
            OK(weft_gradients_ready(job.gradients, layer));
        }
        for (size_t l = 0; l < JOB_LAYERS; l++)
            OK(weft_gradients_wait(job.gradients, l));
        look(&job, seen);
    }
    OK(weft_gradients_destroy(job.gradients));
    return WEFT_OK;
}

/* ---- sparse averages by themselves ---- */

static int train_plainly(struct weft_context *context, void *user)
{
    struct trial *trial = user;
    struct weft_sparse_average *groups[JOB_LAYERS];
    size_t last = JOB_LAYERS, from[JOB_LAYERS];
    struct job job;
    job_init(&job, context);
    for (size_t k = 0; k < trial->group_count; k++) { /* from the last layer on */
        struct weft_sparse_average_config config = trial->sparse;
        size_t tensor = 0, end = 0;
        last -= trial->group_layers[k];
        for (size_t l = 0; l < last + trial->group_layers[k]; l++) {
            tensor += l < last ? job_layer_tensors[l] : 0;
            end += job_layer_tensors[l];
        }
        from[k] = job_first[last];
        config.tensors = job.tensors + tensor;
        config.tensor_count = end - tensor;
        OK(weft_sparse_average_create(&groups[k], context, &config));
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        struct seen *seen = &trial->seen[job.rank][step];
        fill(&job, step);
        for (size_t k = 0; k < trial->group_count; k++) {
            struct weft_sparse_average_state state = {.struct_size = sizeof state};
            size_t count = (k ? from[k - 1] : JOB_ELEMENTS) - from[k];
            OK(weft_sparse_average_step(groups[k], NULL));
            OK(weft_sparse_average_get_state(groups[k], &state));
            memcpy(seen->residual + from[k], state.residual, count * sizeof(float));
            if (state.velocity)
                memcpy(seen->velocity + from[k], state.velocity, count * sizeof(float));
        }
        memcpy(seen->result, job.data, sizeof seen->result);
        seen->groups = trial->group_count;
    }
    for (size_t k = 0; k < trial->group_count; k++)
        OK(weft_sparse_average_destroy(groups[k]));
    return WEFT_OK;
}

/* ---- comparisons ---- */

static void run(struct trial *trial, int size)
{
    struct weft_virtual_config config = with_seed(trial->seed);
    OK(weft_virtual_run(size, &config, trial->plain ? train_plainly : train, trial));
}

static void expect_same(const struct trial *found, const struct trial *expected, int size)
{
    for (int r = 0; r < size; r++)
        for (int t = 0; t < STEPS; t++)
            for (size_t i = 0; i < JOB_ELEMENTS; i++) {
                const struct seen *a = &found->seen[r][t], *b = &expected->seen[r][t];
                cr_assert(a->result[i] == b->result[i] && a->residual[i] == b->residual[i] &&
                              a->velocity[i] == b->velocity[i],
                          "method %d, rank %d of %d, step %d, restart %d: [%zu] is %.9g, expected "
                          "%.9g; residual %.9g, expected %.9g",
                          (int)found->sparse.method, r, size, t, found->restart, i,
                          (double)a->result[i], (double)b->result[i], (double)a->residual[i],
                          (double)b->residual[i]);
            }
}

static struct trial trial_of(int method, uint64_t seed)
{
    static const size_t given[] = {2, 1, 2};
    struct trial trial = {
        .method = WEFT_MERGE_GIVEN, .group_layers = given, .group_count = 3, .seed = seed};
    weft_sparse_average_config_init(&trial.sparse);
    trial.sparse.method = (weft_sparse_method_t)method;
    trial.sparse.k = 3;
    trial.sparse.threshold_steps = 3;
    trial.sparse.balance_steps = 2;
    trial.sparse.momentum = seed % 2 ? 0 : 0.5;
    return trial;
}

static void expect_plain(int method, int size, uint64_t seed, int restart)
{
    static struct trial found, plain;
    found = plain = trial_of(method, seed);
    found.restart = restart;
    plain.plain = 1;
    run(&found, size);
    run(&plain, size);
    expect_same(&found, &plain, size);
}

Test(gradients_sparse, has_the_bits_of_sparse_averages_of_its_groups)
{
    for (int method = WEFT_SPARSE_GTOPK; method <= WEFT_SPARSE_OKTOPK; method++)
        for (int size = 1; size <= RANKS; size++)
            for (uint64_t seed = 1; seed <= 4; seed++)
                expect_plain(method, size, seed, 0);
}

Test(gradients_sparse, goes_on_from_a_checkpoint_with_the_same_bits)
{
    for (int method = WEFT_SPARSE_GTOPK; method <= WEFT_SPARSE_OKTOPK; method++)
        for (int size = 1; size <= RANKS; size += 2)
            for (int restart = 1; restart < STEPS; restart += 2)
                expect_plain(method, size, 1 + (uint64_t)restart % 2, restart);
}

/* sum + residuals = gradients + residuals before, within the bound of sparse averages. */
static void expect_nothing_lost(const struct trial *trial, int size)
{
    double n = 4, bound;
    for (int span = 1; span < size; span *= 2)
        n++;
    bound = n * 0x1p-24 / (1 - n * 0x1p-24);
    for (int t = 0; t < STEPS; t++)
        for (size_t i = 0; i < JOB_ELEMENTS; i++) {
            double lost = -(double)trial->seen[0][t].result[i], magnitudes = 0;
            for (int r = 0; r < size; r++) {
                double before = t ? (double)trial->seen[r][t - 1].residual[i] : 0;
                double value = (double)value_of(r, (uint64_t)t, i);
                lost += value + before - (double)trial->seen[r][t].residual[i];
                magnitudes += fabs(value) + fabs(before);
                cr_assert(trial->seen[r][t].result[i] == trial->seen[0][t].result[i]);
            }
            cr_assert(fabs(lost) <= bound * magnitudes,
                      "method %d, P = %d, step %d, %zu groups: %g of %g is lost at %zu",
                      (int)trial->sparse.method, size, t, trial->seen[0][t].groups, lost,
                      magnitudes, i);
        }
}

Test(gradients_sparse, loses_nothing_where_groups_change)
{
    static struct trial trial;
    int changes = 0;
    for (int method = WEFT_SPARSE_GTOPK; method <= WEFT_SPARSE_OKTOPK; method++)
        for (int size = 1; size <= RANKS; size++)
            for (uint64_t seed = 1; seed <= 6; seed++) {
                trial = trial_of(method, seed);
                trial.sparse.momentum = 0;
                trial.method = WEFT_MERGE_EXACT;
                trial.group_layers = NULL;
                trial.group_count = 0;
                trial.reduction = WEFT_GRADIENTS_SUM;
                trial.replans = 1;
                run(&trial, size);
                expect_nothing_lost(&trial, size);
                for (int t = 1; t < STEPS; t++)
                    changes += trial.seen[0][t].since != trial.seen[0][t - 1].since;
            }
    cr_assert_gt(changes, 20, "plans have changed %d times", changes);
}

/* Where an element was not selected its velocity is what it was, by the momentum, and the gradient:
 * under any groups. */
Test(gradients_sparse, carries_velocities_over)
{
    static struct trial trial;
    size_t kept = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        trial = trial_of(WEFT_SPARSE_GTOPK, seed);
        trial.sparse.momentum = 0.5;
        trial.method = WEFT_MERGE_EXACT;
        trial.group_layers = NULL;
        trial.group_count = 0;
        trial.replans = 1;
        run(&trial, 3);
        for (int r = 0; r < 3; r++)
            for (int t = 1; t < STEPS; t++)
                for (size_t i = 0; i < JOB_ELEMENTS; i++) {
                    const struct seen *seen = trial.seen[r];
                    float velocity = seen[t].velocity[i];
                    float expected = 0.5f * seen[t - 1].velocity[i] + value_of(r, (uint64_t)t, i);
                    cr_assert(velocity == 0 || velocity == expected,
                              "rank %d, step %d: [%zu] is %.9g, expected %.9g", r, t, i,
                              (double)velocity, (double)expected);
                    kept += velocity != 0;
                }
    }
    cr_assert_gt(kept, 1000);
}

/* ---- what is not finite ---- */

enum { BAD_LAYER = 3, BAD_RANK = 1 };

static int have_nans(struct weft_context *context, void *user)
{
    struct trial *trial = user;
    struct job job;
    job_init(&job, context);
    create(&job, trial, NULL);
    for (uint64_t step = 0; step < 3; step++) {
        int bad = job.rank == BAD_RANK && step == 1;
        for (size_t l = 0; l < JOB_LAYERS; l++) {
            job_fill(&job, step, l);
            if (bad && l == BAD_LAYER)
                job.data[job_first[l]] = NAN;
            OK(weft_gradients_ready(job.gradients, l));
        }
        CHECK_STATUS(weft_gradients_wait_all(job.gradients, NULL),
                     bad ? WEFT_ERR_COMPUTE : WEFT_OK);
        if (bad) {
            CHECK_TEXT(weft_error_text(), "1 NaNs");
            CHECK_TEXT(weft_error_text(), "step 1");
            CHECK_TEXT(weft_error_text(), "begins with layer 3");
        }
        CHECK(weft_gradients_next(job.gradients) == step + 1);
        for (size_t l = 0; l < JOB_LAYERS; l++) /* the group of layers 3 and 4 counts as zero */
            job_check(&job, step, l, step == 1 && l >= BAD_LAYER ? BAD_RANK : -1);
    }
    OK(weft_gradients_destroy(job.gradients));
    return WEFT_OK;
}

Test(gradients_sparse, nans_are_told_and_the_step_is_taken)
{
    static struct trial trial;
    struct weft_virtual_config config = with_seed(9);
    trial = trial_of(WEFT_SPARSE_ALLGATHER, 1);
    trial.reduction = WEFT_GRADIENTS_SUM;
    trial.sparse.k = 0;
    trial.sparse.density = 1;
    for (int size = 2; size <= RANKS; size++)
        OK(weft_virtual_run(size, &config, have_nans, &trial));
}

/* ---- what is refused ---- */

static void refused(struct job *job, struct weft_sparse_average_config sparse, const char *text)
{
    job->config.sparse = &sparse;
    CHECK(job_create(job) < 0);
    CHECK_TEXT(weft_error_text(), text);
}

static int refuse(struct weft_context *context, void *user)
{
    struct weft_sparse_average_config sparse;
    const float zeros[JOB_ELEMENTS] = {0};
    struct weft_gradients_state state = {.struct_size = sizeof state, .velocity = zeros};
    struct job job;
    (void)user;
    job_init(&job, context);
    weft_sparse_average_config_init(&sparse);
    job.config.method = WEFT_GRADIENTS_SPARSE;
    sparse.density = 2;
    refused(&job, sparse, "config->sparse->density is 2");
    sparse.density = 0.5;
    sparse.deadline_ns = 1;
    refused(&job, sparse, "config->sparse->deadline_ns");
    sparse.deadline_ns = 0;
    sparse.k = 3 + (size_t)job.rank; /* the ranks differ */
    refused(&job, sparse, job.size > 1 ? "do not agree about" : "");
    sparse.k = 3;
    job.config.wire_dtype = WEFT_F16;
    refused(&job, sparse, "config->wire_dtype is f16, expected f32 with WEFT_GRADIENTS_SPARSE");
    job.config.wire_dtype = WEFT_BF16;
    refused(&job, sparse, "config->wire_dtype is bf16, expected f32 with WEFT_GRADIENTS_SPARSE");
    job.config.wire_dtype = WEFT_F32;
    job.config.state = &state;
    refused(&job, sparse, "config->state->velocity");
    return WEFT_OK;
}

Test(gradients_sparse, refuses_what_it_cannot_do)
{
    struct weft_virtual_config config = with_seed(10);
    OK(weft_virtual_run(3, &config, refuse, NULL));
}

/* ---- measured costs ---- */

enum { MANY = 100000 };

struct priced {
    size_t k;
    double density;
    double us; /* of the group of all layers, planned; on rank 0 */
};

static int price(struct weft_context *context, void *user)
{
    struct priced *priced = user;
    static float data[2][MANY];
    float *mine = data[weft_context_rank(context)];
    const struct weft_piece tensors[2] = {{mine, MANY / 2}, {mine + MANY / 2, MANY / 2}};
    struct weft_sparse_average_config sparse;
    struct weft_merge_config merge;
    struct weft_gradients_config config;
    struct weft_gradients *gradients = NULL;
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    weft_sparse_average_config_init(&sparse);
    sparse.k = priced->k;
    sparse.density = priced->density;
    weft_merge_config_init(&merge);
    merge.method = WEFT_MERGE_SINGLE;
    weft_gradients_config_init(&config);
    config.tensors = tensors;
    config.tensor_count = 2;
    config.merge = &merge;
    config.sparse = &sparse;
    config.method = priced->k || priced->density > 0 ? WEFT_GRADIENTS_SPARSE : WEFT_GRADIENTS_DENSE;
    OK(weft_gradients_create(&gradients, context, &config));
    OK(weft_gradients_get_plan(gradients, &plan));
    OK(weft_merge_plan_get_summary(plan.merge, &summary));
    priced->us = summary.communication_us;
    OK(weft_gradients_destroy(gradients));
    return WEFT_OK;
}

static double price_of(size_t k, double density)
{
    struct priced priced = {.k = k, .density = density};
    struct weft_virtual_config config = with_seed(11);
    struct weft_net net;
    give_net(&config, &net);
    net.G = 0.001;
    OK(weft_virtual_run(2, &config, price, &priced));
    return priced.us;
}

Test(gradients_sparse, plans_count_what_pairs_cost)
{
    double dense = price_of(0, 0), half = price_of(0, 0.5), share = price_of(0, 0.01);
    cr_assert_float_eq(half, dense, 0.01 * dense, "half of all as pairs: %g, all: %g", half, dense);
    cr_assert(share < 0.1 * dense && share > 0.001 * dense, "%g, %g", share, dense);
    cr_assert_float_eq(price_of(MANY / 100, 0), share, 0.01 * share);
}
