/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients whose groups are compressed: as compressed averages of the same groups, bit by
 * bit; nothing is lost where other groups take the place of these; and on from checkpoints. */
#include <criterion/criterion.h>
#include <math.h>

#include "layers_job.h"

enum { RANKS = 5, STEPS = 10, WORDS = 400, NUMBERS = 400 };

static const struct weft_tensor_shape shapes[JOB_TENSORS] = {
    {WEFT_TENSOR_VECTOR, 0, 0, 0, 0}, {WEFT_TENSOR_VECTOR, 3, 0, 0, 0},
    {WEFT_TENSOR_DENSE, 3, 2, 0, 0},  {WEFT_TENSOR_VECTOR, 0, 0, 0, 0},
    {WEFT_TENSOR_OIHW, 5, 1, 2, 2},   {WEFT_TENSOR_VECTOR, 0, 0, 0, 0}};

struct seen {
    float result[JOB_ELEMENTS], residual[JOB_ELEMENTS];
    size_t groups; /* in force in the step */
    uint64_t since;
};

enum { QUANTISED, SIGNS, FACTORED, COLD, KINDS };

struct trial {
    int kind;
    struct weft_compressed_average_config compressed;
    struct weft_quantiser quantiser;
    struct weft_powersgd_config powersgd;
    weft_gradients_reduction_t reduction;
    weft_merge_method_t method;
    const size_t *group_layers; /* WEFT_MERGE_GIVEN */
    size_t group_count;
    int plain;   /* compressed averages by themselves */
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
    job->config.method = WEFT_GRADIENTS_COMPRESSED;
    job->config.compressed = &trial->compressed;
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
    float residual[JOB_ELEMENTS], numbers[NUMBERS];
    uint64_t agreed[200], words[WORDS];
    OK(weft_gradients_get_state(job->gradients, &state));
    CHECK(state.agreed_count <= 200 && state.word_count <= WORDS && state.number_count <= NUMBERS);
    CHECK(state.words && !state.velocity && !state.regions && !state.unsent && !state.kept);
    CHECK(!state.residual == (trial->kind == COLD));
    if (state.residual)
        state.residual = memcpy(residual, state.residual, sizeof residual);
    state.words = memcpy(words, state.words, state.word_count * sizeof *words);
    if (state.numbers)
        state.numbers = memcpy(numbers, state.numbers, state.number_count * sizeof *numbers);
    state.agreed = memcpy(agreed, state.agreed, state.agreed_count * sizeof *agreed);
    OK(weft_gradients_destroy(job->gradients));
    create(job, trial, &state);
}

static void look(struct job *job, struct seen *seen)
{
    struct weft_gradients_state state = {.struct_size = sizeof state};
    memcpy(seen->result, job->data, sizeof seen->result);
    OK(weft_gradients_get_state(job->gradients, &state));
    if (state.residual)
        memcpy(seen->residual, state.residual, sizeof seen->residual);
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
        /* Ranks wait for layers in orders of their own. */
        for (size_t l = 0; l < JOB_LAYERS; l++)
            OK(weft_gradients_wait(job.gradients, (l + (size_t)job.rank) % JOB_LAYERS));
        look(&job, seen);
    }
    OK(weft_gradients_destroy(job.gradients));
    return WEFT_OK;
}

/* ---- compressed averages by themselves ---- */

static int train_plainly(struct weft_context *context, void *user)
{
    struct trial *trial = user;
    struct weft_compressed_average *groups[JOB_LAYERS];
    size_t last = JOB_LAYERS, from[JOB_LAYERS];
    struct job job;
    job_init(&job, context);
    for (size_t k = 0; k < trial->group_count; k++) { /* from the last layer on */
        struct weft_compressed_average_config config = trial->compressed;
        size_t tensor = 0, end = 0;
        last -= trial->group_layers[k];
        for (size_t l = 0; l < last + trial->group_layers[k]; l++) {
            tensor += l < last ? job_layer_tensors[l] : 0;
            end += job_layer_tensors[l];
        }
        from[k] = job_first[last];
        config.sum = trial->reduction == WEFT_GRADIENTS_SUM;
        config.tensors = job.tensors + tensor;
        config.tensor_count = end - tensor;
        config.shapes = shapes + tensor;
        OK(weft_compressed_average_create(&groups[k], context, &config));
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        struct seen *seen = &trial->seen[job.rank][step];
        fill(&job, step);
        for (size_t k = 0; k < trial->group_count; k++) {
            struct weft_compressed_average_state state = {.struct_size = sizeof state};
            size_t count = (k ? from[k - 1] : JOB_ELEMENTS) - from[k];
            OK(weft_compressed_average_step(groups[k], NULL));
            OK(weft_compressed_average_get_state(groups[k], &state));
            if (state.residual)
                memcpy(seen->residual + from[k], state.residual, count * sizeof(float));
        }
        memcpy(seen->result, job.data, sizeof seen->result);
        seen->groups = trial->group_count;
    }
    for (size_t k = 0; k < trial->group_count; k++)
        OK(weft_compressed_average_destroy(groups[k]));
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
                cr_assert(a->result[i] == b->result[i] && a->residual[i] == b->residual[i],
                          "kind %d, rank %d of %d, step %d, restart %d: [%zu] is %.9g, expected "
                          "%.9g; residual %.9g, expected %.9g",
                          found->kind, r, size, t, found->restart, i, (double)a->result[i],
                          (double)b->result[i], (double)a->residual[i], (double)b->residual[i]);
            }
}

static void set(struct trial *trial, int kind, uint64_t seed)
{
    static const size_t given[] = {2, 1, 2};
    memset(trial, 0, sizeof *trial);
    trial->kind = kind;
    trial->method = WEFT_MERGE_GIVEN;
    trial->group_layers = given;
    trial->group_count = 3;
    trial->seed = seed;
    weft_compressed_average_config_init(&trial->compressed);
    weft_quantiser_init(&trial->quantiser);
    weft_powersgd_config_init(&trial->powersgd);
    trial->quantiser.bits = kind == SIGNS ? WEFT_QUANTISE_SIGN : 4;
    trial->quantiser.bucket = 8;
    trial->powersgd.rank = 1;
    trial->powersgd.least_ratio = 0.1;
    trial->powersgd.cold_start = kind == COLD;
    trial->compressed.method = kind < FACTORED ? WEFT_COMPRESSED_QSGD : WEFT_COMPRESSED_POWERSGD;
    trial->compressed.residual =
        kind == COLD ? WEFT_COMPRESSED_RESIDUAL_NONE : WEFT_COMPRESSED_RESIDUAL_KEPT;
    trial->compressed.quantiser = &trial->quantiser;
    trial->compressed.powersgd = &trial->powersgd;
    trial->compressed.shapes = shapes;
}

static void expect_plain(int kind, int size, uint64_t seed, int restart)
{
    static struct trial found, plain;
    set(&found, kind, seed);
    set(&plain, kind, seed);
    found.restart = restart;
    plain.plain = 1;
    run(&found, size);
    run(&plain, size);
    expect_same(&found, &plain, size);
}

Test(gradients_compressed, has_the_bits_of_compressed_averages_of_its_groups)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int size = 1; size <= RANKS; size++)
            for (uint64_t seed = 1; seed <= 3; seed++)
                expect_plain(kind, size, seed, 0);
}

Test(gradients_compressed, goes_on_from_a_checkpoint_with_the_same_bits)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int size = 1; size <= RANKS; size += 2)
            for (int restart = 1; restart < STEPS; restart += 3)
                expect_plain(kind, size, 1 + (uint64_t)restart % 2, restart);
}

/* sum + residuals = gradients + residuals before, up to some units in the last place of the largest
 * of a step. */
static void expect_nothing_lost(const struct trial *trial, int size)
{
    for (int t = 0; t < STEPS; t++) {
        double most = 0, worst = 0;
        for (size_t i = 0; i < JOB_ELEMENTS; i++) {
            double lost = -(double)trial->seen[0][t].result[i];
            for (int r = 0; r < size; r++) {
                double before = t ? (double)trial->seen[r][t - 1].residual[i] : 0;
                double value = (double)value_of(r, (uint64_t)t, i);
                lost += value + before - (double)trial->seen[r][t].residual[i];
                most = fmax(most, fabs(value + before));
                cr_assert(trial->seen[r][t].result[i] == trial->seen[0][t].result[i]);
            }
            worst = fmax(worst, fabs(lost));
        }
        cr_assert(worst <= 32 * size * 0x1p-24 * size * most,
                  "kind %d, P = %d, step %d, %zu groups: %g of %g is lost", trial->kind, size, t,
                  trial->seen[0][t].groups, worst, most);
    }
}

Test(gradients_compressed, loses_nothing_where_groups_change)
{
    static struct trial trial;
    int changes = 0;
    for (int kind = 0; kind < COLD; kind++)
        for (int size = 1; size <= RANKS; size++)
            for (uint64_t seed = 1; seed <= 5; seed++) {
                set(&trial, kind, seed);
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
    cr_assert_gt(changes, 10, "plans have changed %d times", changes);
}

/* Matrices are factored each by itself: factors that stay with their tensors make the sums the same
 * whatever the groups are, up to rounding. */
Test(gradients_compressed, factors_stay_with_their_tensors)
{
    static struct trial changing, fixed;
    int changes = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        set(&changing, FACTORED, seed);
        set(&fixed, FACTORED, seed);
        changing.method = WEFT_MERGE_EXACT;
        changing.group_layers = NULL;
        changing.group_count = 0;
        changing.replans = 1;
        run(&changing, 3);
        run(&fixed, 3);
        for (int t = 0; t < STEPS; t++) {
            changes += t && changing.seen[0][t].since != changing.seen[0][t - 1].since;
            for (size_t i = 0; i < JOB_ELEMENTS; i++) {
                const double a = (double)changing.seen[0][t].result[i];
                const double b = (double)fixed.seen[0][t].result[i];
                cr_assert(fabs(a - b) < 0.01, "seed %d, step %d: [%zu] is %g, expected %g",
                          (int)seed, t, i, a, b);
            }
        }
    }
    cr_assert_gt(changes, 0);
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
        for (size_t i = 0; i < JOB_ELEMENTS; i++)
            CHECK(isfinite(job.data[i]));
    }
    OK(weft_gradients_destroy(job.gradients));
    return WEFT_OK;
}

Test(gradients_compressed, nans_are_told_and_the_step_is_taken)
{
    static struct trial trial;
    struct weft_virtual_config config = with_seed(9);
    for (int kind = 0; kind < KINDS; kind++)
        for (int size = 2; size <= RANKS; size++) {
            set(&trial, kind, 1);
            OK(weft_virtual_run(size, &config, have_nans, &trial));
        }
}

/* ---- what is refused ---- */

static void refused(struct job *job, const struct trial *trial, const char *text)
{
    job->config.compressed = &trial->compressed;
    CHECK(job_create(job) < 0);
    CHECK_TEXT(weft_error_text(), text);
}

/* The state of an object of these layers, with a word changed. */
static void refuse_words(struct job *job, struct trial *trial)
{
    struct weft_gradients_state state = {.struct_size = sizeof state}, wrong;
    uint64_t words[WORDS];
    struct job made = *job;
    create(&made, trial, NULL);
    OK(job_step(&made, 0));
    OK(weft_gradients_get_state(made.gradients, &state));
    CHECK(state.word_count && state.word_count <= WORDS);
    job->merge = made.merge;
    job->config.merge = &job->merge;
    job->config.method = WEFT_GRADIENTS_COMPRESSED;
    for (size_t i = 0; i < state.word_count; i++) {
        wrong = state;
        wrong.words = memcpy(words, state.words, state.word_count * sizeof *words);
        words[i] = UINT64_MAX - 7;
        job->config.state = &wrong;
        refused(job, trial, "state");
    }
    for (size_t count = 1; count < state.word_count; count++) {
        wrong = state;
        wrong.word_count = count;
        job->config.state = &wrong;
        refused(job, trial, "state");
    }
    wrong = state;
    wrong.number_count--;
    refused(job, trial, "state");
    job->config.state = NULL;
    OK(weft_gradients_destroy(made.gradients));
}

static int refuse(struct weft_context *context, void *user)
{
    const float zeros[JOB_ELEMENTS] = {0};
    struct weft_gradients_state state = {.struct_size = sizeof state, .velocity = zeros};
    struct weft_tensor_shape wrong[JOB_TENSORS];
    struct trial *trial = calloc(1, sizeof *trial);
    struct job job;
    (void)user;
    CHECK(trial);
    set(trial, FACTORED, 1);
    job_init(&job, context);
    refuse_words(&job, trial);
    job_init(&job, context);
    job.config.method = WEFT_GRADIENTS_COMPRESSED;
    trial->powersgd.least_ratio = -1;
    refused(&job, trial, "weft_gradients_create: config->compressed->powersgd->least_ratio is -1");
    trial->powersgd.least_ratio = 0.1;
    trial->compressed.deadline_ns = 1;
    refused(&job, trial, "config->compressed->deadline_ns");
    trial->compressed.deadline_ns = 0;
    trial->compressed.sum = 1;
    refused(&job, trial, "config->compressed->sum");
    trial->compressed.sum = 0;
    trial->compressed.dtype = WEFT_F16;
    refused(&job, trial, "config->compressed->dtype");
    trial->compressed.dtype = WEFT_F32;
    trial->powersgd.rank = 1 + (size_t)job.rank; /* the ranks differ */
    refused(&job, trial, job.size > 1 ? "do not agree about" : "");
    trial->powersgd.rank = 1;
    trial->powersgd.seed = (UINT64_C(1) << 53) + (uint64_t)(job.rank == 1); /* no two doubles */
    refused(&job, trial, job.size > 1 ? "config->compressed->powersgd" : "");
    trial->powersgd.seed = 0;
    memcpy(wrong, shapes, sizeof wrong);
    wrong[4].width = 3;
    trial->compressed.shapes = wrong;
    refused(&job, trial, "config->compressed->shapes[4] is 5 outputs");
    wrong[4] = (struct weft_tensor_shape){WEFT_TENSOR_OIHW, 4 + (size_t)job.rank % 2, 1, 1, 5};
    if (job.rank % 2)
        wrong[4].width = 4;
    refused(&job, trial, job.size > 1 ? "config->compressed->shapes" : "");
    trial->compressed.shapes = shapes;
    job.config.wire_dtype = WEFT_F16;
    refused(&job, trial, "config->wire_dtype is f16, expected f32 with WEFT_GRADIENTS_COMPRESSED");
    job.config.wire_dtype = WEFT_F32;
    job.config.state = &state;
    refused(&job, trial, "config->state->velocity");
    state.velocity = NULL;
    state.words = (const uint64_t[]){0};
    state.word_count = 1;
    job.config.method = WEFT_GRADIENTS_DENSE;
    refused(&job, trial, "config->state->words is given, expected NULL but with");
    state.words = NULL;
    state.word_count = 0;
    state.numbers = zeros;
    state.number_count = 1;
    refused(&job, trial, "config->state->numbers is given, expected NULL but with");
    state.numbers = NULL;
    state.number_count = 0;
    state.votes = (const unsigned char[JOB_LAYERS]){0};
    refused(&job, trial, "config->state->votes is given, expected NULL but with");
    free(trial);
    return WEFT_OK;
}

Test(gradients_compressed, refuses_what_it_cannot_do)
{
    struct weft_virtual_config config = with_seed(10);
    OK(weft_virtual_run(3, &config, refuse, NULL));
}

/* ---- measured costs ---- */

enum { MANY = 100000 };

struct priced {
    int bits;  /* 0: dense */
    double us; /* of the group of all layers, planned; on rank 0 */
};

static int price(struct weft_context *context, void *user)
{
    struct priced *priced = user;
    static float data[2][MANY];
    float *mine = data[weft_context_rank(context)];
    const struct weft_piece tensors[2] = {{mine, MANY / 2}, {mine + MANY / 2, MANY / 2}};
    struct weft_compressed_average_config compressed;
    struct weft_quantiser quantiser;
    struct weft_merge_config merge;
    struct weft_gradients_config config;
    struct weft_gradients *gradients = NULL;
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    weft_compressed_average_config_init(&compressed);
    weft_quantiser_init(&quantiser);
    quantiser.bits = priced->bits;
    compressed.method = WEFT_COMPRESSED_QSGD;
    compressed.quantiser = &quantiser;
    weft_merge_config_init(&merge);
    merge.method = WEFT_MERGE_SINGLE;
    weft_gradients_config_init(&config);
    config.tensors = tensors;
    config.tensor_count = 2;
    config.merge = &merge;
    config.compressed = &compressed;
    config.method = priced->bits ? WEFT_GRADIENTS_COMPRESSED : WEFT_GRADIENTS_DENSE;
    OK(weft_gradients_create(&gradients, context, &config));
    OK(weft_gradients_get_plan(gradients, &plan));
    OK(weft_merge_plan_get_summary(plan.merge, &summary));
    priced->us = summary.communication_us;
    OK(weft_gradients_destroy(gradients));
    return WEFT_OK;
}

static double price_of(int bits)
{
    struct priced priced = {.bits = bits};
    struct weft_virtual_config config = with_seed(11);
    struct weft_net net;
    give_net(&config, &net);
    net.G = 0.001;
    OK(weft_virtual_run(2, &config, price, &priced));
    return priced.us;
}

Test(gradients_compressed, plans_count_what_bits_cost)
{
    const double dense = price_of(0), eight = price_of(8), four = price_of(4);
    cr_assert(eight < 0.4 * dense && eight > 0.1 * dense, "%g, %g", eight, dense);
    cr_assert(four < 0.7 * eight && four > 0.3 * eight, "%g, %g", four, eight);
}
