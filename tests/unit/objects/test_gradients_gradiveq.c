/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Merged gradients whose groups go through GradiVeQ's phases: as compressed averages of the same
 * groups, bit by bit, votes included; on from checkpoints in the middle of phases, in the same
 * groups and in others; under plans that change in the middle of a phase.
 */
#include <criterion/criterion.h>
#include <weft/gradients.h>

#include "given_costs.h"
#include "gradiveq_job.h"

enum { LAYERS = 5, STEPS = JOB_STEPS, NOISY = 4, NOISY_STEP = 8 };

/* The tensors of gradiveq_job.h: a convolution and its bias, another, nothing, a dense layer, a
 * convolution. */
static const size_t layer_tensors[LAYERS] = {2, 1, 0, 1, 1};
static const size_t first_tensors[LAYERS] = {0, 2, 3, 3, 4};

static const int sizes[] = {1, 2, 3, 5};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* How many layers each group has, from the last one on. */
struct grouping {
    size_t count, layers[LAYERS];
};
static const struct grouping together = {1, {5}}, alone = {5, {1, 1, 1, 1, 1}},
                             three = {3, {1, 2, 2}}, two = {2, {2, 3}};

struct merged {
    struct job job;
    struct weft_gradients *gradients;
    struct weft_merge_config merge;
    struct weft_merge_cost cost;
    struct weft_gradients_config config;
    struct weft_compressed_average_config compressed;
};

static void init(struct merged *merged, struct weft_context *context, int votes)
{
    struct job *job = &merged->job;
    memset(merged, 0, sizeof *merged);
    if (votes)
        job_init_votes(job, context);
    else
        job_init(job, context);
    merged->compressed = job->config;
    merged->compressed.tensors = NULL;
    merged->compressed.tensor_count = 0;
    merged->compressed.sum = 0;
    given_costs_init(&merged->config, &merged->merge, &merged->cost);
    merged->config.tensors = job->tensors;
    merged->config.tensor_count = JOB_TENSORS;
    merged->config.layer_tensors = layer_tensors;
    merged->config.layer_count = LAYERS;
    merged->config.method = WEFT_GRADIENTS_COMPRESSED;
    merged->config.compressed = &merged->compressed;
    merged->config.check_steps = WEFT_NEVER;
}

static void group(struct merged *merged, const struct grouping *grouping)
{
    merged->merge.method = WEFT_MERGE_GIVEN;
    merged->merge.group_layers = grouping->layers;
    merged->merge.group_count = grouping->count;
}

static void create(struct merged *merged)
{
    OK(weft_gradients_create(&merged->gradients, merged->job.context, &merged->config));
}

/* Others have noise in all, or in the last layer alone. */
static float noise_of(const struct job *job, uint64_t step, int t, int everywhere)
{
    if (step == NOISY_STEP && 2 * job->rank <= job->size && (everywhere || t == NOISY))
        return 9;
    return everywhere ? 0.01F : 0;
}

static void fill_noisily(struct job *job, uint64_t step, int everywhere)
{
    for (int t = 0; t < JOB_TENSORS; t++)
        for (size_t at = 0; at < job_counts[t]; at++)
            ((float *)job->tensors[t].data)[job_place(t, at)] =
                job_value(job->rank, step, t, at, noise_of(job, step, t, everywhere));
}

/* Announces what the tensors have, and waits. */
static struct weft_gradients_result take(struct merged *merged, uint64_t step)
{
    struct weft_gradients_result result = {.struct_size = sizeof result};
    for (size_t l = LAYERS; l > 0; l--)
        OK(weft_gradients_ready(merged->gradients, l - 1));
    OK(weft_gradients_wait_all(merged->gradients, &result));
    CHECK(result.step == step);
    return result;
}

/* Another object goes on from copies of what this one has. */
static void restart(struct merged *merged)
{
    struct weft_gradients_state state = {.struct_size = sizeof state};
    OK(weft_gradients_get_state(merged->gradients, &state));
    CHECK(state.words && state.votes);
    void *copies[] = {job_copy(state.agreed, state.agreed_count * sizeof *state.agreed),
                      job_copy(state.words, state.word_count * sizeof *state.words),
                      job_copy(state.numbers, state.number_count * sizeof *state.numbers),
                      job_copy(state.votes, LAYERS),
                      job_copy(state.residual, state.residual ? JOB_ELEMENTS * sizeof(float) : 0)};
    state.agreed = copies[0];
    state.words = copies[1];
    state.numbers = copies[2];
    state.votes = copies[3];
    state.residual = state.residual ? copies[4] : NULL;
    OK(weft_gradients_destroy(merged->gradients));
    merged->config.state = &state;
    create(merged);
    merged->config.state = NULL;
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
        free(copies[i]);
}

/* ---- bits ---- */

struct life {
    const struct grouping *grouping;
    uint64_t restarts; /* a bit for each step before which there is one */
    uint64_t hashes[STEPS];
    int compressed[STEPS]; /* groups */
    double loss[STEPS], bits[STEPS];
};

static void live(struct weft_context *context, struct life *life)
{
    struct merged *merged = calloc(1, sizeof *merged);
    CHECK(merged);
    init(merged, context, 1);
    group(merged, life->grouping);
    create(merged);
    for (uint64_t step = 0; step < STEPS; step++) {
        if (life->restarts >> step & 1)
            restart(merged);
        const weft_compressed_phase_t phase = weft_gradients_phase(merged->gradients);
        fill_noisily(&merged->job, step, 1);
        struct weft_gradients_result result = take(merged, step);
        life->hashes[step] = job_hash(&merged->job);
        life->compressed[step] = (int)result.compressed_groups;
        life->loss[step] = result.loss;
        life->bits[step] = result.bits;
        CHECK((phase == WEFT_COMPRESSED_COMPRESSED) == (result.compressed_groups > 0));
        job_check_same(&merged->job, merged->job.data, sizeof merged->job.data);
    }
    OK(weft_gradients_destroy(merged->gradients));
    free(merged);
}

static void live_plainly(struct weft_context *context, struct life *life)
{
    struct weft_compressed_average *groups[LAYERS];
    struct job job;
    size_t last = LAYERS;
    job_init_votes(&job, context);
    memset(life->compressed, 0, sizeof life->compressed);
    for (size_t k = 0; k < life->grouping->count; k++) {
        struct weft_compressed_average_config config = job.config;
        const size_t end = last < LAYERS ? first_tensors[last] : JOB_TENSORS;
        last -= life->grouping->layers[k];
        config.tensors = job.tensors + first_tensors[last];
        config.tensor_count = end - first_tensors[last];
        config.shapes = job_shapes + first_tensors[last];
        OK(weft_compressed_average_create(&groups[k], context, &config));
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        fill_noisily(&job, step, 1);
        for (size_t k = 0; k < life->grouping->count; k++) {
            struct weft_compressed_average_result result = {.struct_size = sizeof result};
            OK(weft_compressed_average_step(groups[k], &result));
            life->compressed[step] += result.phase == WEFT_COMPRESSED_COMPRESSED && result.bits > 0;
            life->loss[step] = result.loss;
            life->bits[step] = result.bits;
        }
        life->hashes[step] = job_hash(&job);
    }
    for (size_t k = 0; k < life->grouping->count; k++)
        OK(weft_compressed_average_destroy(groups[k]));
}

static int has_the_bits(struct weft_context *context, void *user)
{
    struct life found = {.grouping = user}, plain = {.grouping = user};
    live(context, &found);
    live_plainly(context, &plain);
    int most = 0, fewer = 0;
    for (int step = 0; step < STEPS; step++) {
        CHECK(found.hashes[step] == plain.hashes[step]);
        CHECK(found.compressed[step] == plain.compressed[step]);
        most = found.compressed[step] > most ? found.compressed[step] : most;
        fewer += step > NOISY_STEP && found.compressed[step] < most;
        if (found.grouping->count > 1)
            continue;
        CHECK(found.bits[step] == plain.bits[step]);
        CHECK(found.compressed[step] ? found.loss[step] == plain.loss[step]
                                     : fabs(found.loss[step] - plain.loss[step]) < 1e-9);
    }
    CHECK(most >= 1 && fewer > 0); /* it was as it was meant to be */
    return WEFT_OK;
}

Test(gradients_gradiveq, has_the_bits_of_compressed_averages_of_its_groups)
{
    const struct grouping *const groupings[] = {&together, &alone, &three, &two};
    for (int i = 0; i < SIZES; i++)
        for (int k = 0; k < 4; k++) {
            struct weft_virtual_config config = with_seed((uint64_t)(i * 4 + k));
            OK(weft_virtual_run(sizes[i], &config, has_the_bits, (void *)(uintptr_t)groupings[k]));
        }
}

static int goes_on(struct weft_context *context, void *user)
{
    struct life expected = {.grouping = user};
    live(context, &expected);
    for (uint64_t step = 1; step <= STEPS; step++) {
        struct life found = {.grouping = user};
        found.restarts = step < STEPS ? UINT64_C(1) << step : UINT64_MAX - 1;
        live(context, &found);
        for (int s = 0; s < STEPS; s++)
            CHECK(found.hashes[s] == expected.hashes[s] &&
                  found.compressed[s] == expected.compressed[s] &&
                  found.loss[s] == expected.loss[s]);
    }
    return WEFT_OK;
}

Test(gradients_gradiveq, checkpoints_in_every_step, .timeout = 140)
{
    for (int i = 0; i < SIZES; i++) {
        struct weft_virtual_config config = with_seed(3);
        OK(weft_virtual_run(sizes[i], &config, goes_on, (void *)(uintptr_t)&three));
    }
}

static void local(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    has_the_bits(context, ranks->user);
}

Test(gradients_gradiveq, local_ranks)
{
    ranks_run_once(local, 1, (void *)(uintptr_t)&three);
    ranks_run_once(local, 3, (void *)(uintptr_t)&three);
    ranks_run_helped(local, 3, (void *)(uintptr_t)&three);
}

/* ---- other groups ---- */

static weft_compressed_phase_t expected_phase(uint64_t step)
{
    return step < 2             ? WEFT_COMPRESSED_WARMUP
           : (step - 2) % 9 < 4 ? WEFT_COMPRESSED_SAMPLING
                                : WEFT_COMPRESSED_COMPRESSED;
}

/* What is planted is reconstructed, whichever groups have found the projections. */
static int changes_groups(struct weft_context *context, void *user)
{
    static const struct grouping *const groupings[] = {&together, &alone, &three, &two};
    struct merged *merged = calloc(1, sizeof *merged);
    (void)user;
    CHECK(merged);
    for (uint64_t at = 0; at < 14; at++)
        for (int from = 0; from < 4; from++)
            for (int to = 0; to < 4; to++) {
                struct weft_gradiveq_tensor info = {.struct_size = sizeof info};
                init(merged, context, 0);
                group(merged, groupings[from]);
                create(merged);
                for (uint64_t step = 0; step < 17; step++) {
                    if (step == at)
                        group(merged, groupings[to]);
                    if (step == at)
                        restart(merged);
                    CHECK(weft_gradients_phase(merged->gradients) == expected_phase(step));
                    fill_noisily(&merged->job, step, 0);
                    if (step == NOISY_STEP)
                        job_fill(&merged->job, step, 0);
                    take(merged, step);
                    CHECK(job_error(&merged->job, step, 0) < 1e-4);
                    OK(weft_gradients_get_tensor(merged->gradients, 0, &info));
                    CHECK(info.slice == 36 && (step < 5 || info.components == JOB_RANK));
                    OK(weft_gradients_get_tensor(merged->gradients, 3, &info));
                    CHECK(!info.slice);
                }
                OK(weft_gradients_destroy(merged->gradients));
            }
    free(merged);
    return WEFT_OK;
}

Test(gradients_gradiveq, groups_that_are_joined_and_split_go_on, .timeout = 140)
{
    for (int size = SWEPT(1, 3); size <= 3; size += 2) {
        struct weft_virtual_config config = with_seed(5);
        OK(weft_virtual_run(size, &config, changes_groups, NULL));
    }
}

/* Most vote in step 8 for the end of the phase of the last layer's group, which ends with step 9.
 * Before step `at` there are other groups. */
static void vote(struct merged *merged, const struct grouping *from, const struct grouping *to,
                 uint64_t at, int compressed[STEPS])
{
    group(merged, from);
    create(merged);
    for (uint64_t step = 0; step < STEPS; step++) {
        if (step == at)
            group(merged, to);
        if (step == at)
            restart(merged);
        fill_noisily(&merged->job, step, 0);
        compressed[step] = (int)take(merged, step).compressed_groups;
    }
    OK(weft_gradients_destroy(merged->gradients));
}

static int votes_move(struct weft_context *context, void *user)
{
    struct merged *merged = calloc(1, sizeof *merged);
    int compressed[STEPS];
    (void)user;
    CHECK(merged);
    /* Steps 6 to 10 would be compressed. The dense layer is sent as it is in those of its group,
     * which counts as well. */
    init(merged, context, 1);
    vote(merged, &two, &two, NOISY_STEP + 1, compressed);
    CHECK(compressed[8] == 2 && compressed[9] == 2 && compressed[10] == 1 && compressed[11] == 0);
    /* The vote goes with the layer that was lost, and not with its neighbour. */
    init(merged, context, 1);
    vote(merged, &two, &alone, NOISY_STEP + 1, compressed);
    CHECK(compressed[8] == 2 && compressed[9] == 4 && compressed[10] == 3 && compressed[11] == 0);
    /* And is that of all that it is joined to. */
    init(merged, context, 1);
    vote(merged, &two, &together, NOISY_STEP + 1, compressed);
    CHECK(compressed[8] == 2 && compressed[9] == 1 && compressed[10] == 0);
    CHECK(compressed[13] == 0 && compressed[14] == 1);
    /* Once a phase has ended others that are joined to it sample anew: steps 10 to 13. */
    init(merged, context, 1);
    vote(merged, &two, &together, NOISY_STEP + 2, compressed);
    CHECK(compressed[9] == 2 && compressed[10] == 0 && compressed[13] == 0 && compressed[14] == 1);
    init(merged, context, 1);
    vote(merged, &two, &together, NOISY_STEP + 4, compressed);
    CHECK(compressed[10] == 1 && compressed[11] == 0 && compressed[15] == 0);
    CHECK(compressed[16] == 1);
    free(merged);
    return WEFT_OK;
}

Test(gradients_gradiveq, votes_go_with_their_layers)
{
    for (int i = 0; i < SIZES; i++) {
        struct weft_virtual_config config = with_seed(6);
        OK(weft_virtual_run(sizes[i], &config, votes_move, NULL));
    }
}

/* ---- plans that change ---- */

struct changes {
    uint64_t seed;
    int plans, within; /* a compressed phase that goes on */
};

static int changes_plans(struct weft_context *context, void *user)
{
    struct changes *changes = user;
    struct merged *merged = calloc(1, sizeof *merged);
    uint64_t since = 0;
    CHECK(merged);
    init(merged, context, 0);
    merged->cost.a_us = 100;
    merged->config.measure_steps = 1;
    merged->config.check_steps = 1;
    merged->config.gain = 1e-9;
    create(merged);
    for (uint64_t step = 0; step < STEPS; step++) {
        struct weft_gradients_plan plan = {.struct_size = sizeof plan};
        OK(weft_gradients_get_plan(merged->gradients, &plan));
        CHECK(weft_gradients_phase(merged->gradients) == expected_phase(step));
        if (merged->job.rank == 0 && plan.since != since) {
            changes->plans++;
            changes->within += expected_phase(step - 1) == WEFT_COMPRESSED_COMPRESSED &&
                               expected_phase(step) == WEFT_COMPRESSED_COMPRESSED;
        }
        since = plan.since;
        job_fill(&merged->job, step, 0);
        for (size_t i = 0; i < LAYERS; i++) {
            const double share = (double)job_number(changes->seed, step / 3, i, 1);
            const uint64_t pause = 1 + (uint64_t)(200000 * (1 + share));
            OK(weft_context_sleep(context, pause));
            OK(weft_gradients_ready(merged->gradients, step / 2 % 2 ? i : LAYERS - 1 - i));
        }
        for (size_t l = 0; l < LAYERS; l++)
            OK(weft_gradients_wait(merged->gradients, (l + (size_t)merged->job.rank) % LAYERS));
        CHECK(job_error(&merged->job, step, 0) < 1e-4);
        job_check_same(&merged->job, merged->job.data, sizeof merged->job.data);
    }
    OK(weft_gradients_destroy(merged->gradients));
    free(merged);
    return WEFT_OK;
}

Test(gradients_gradiveq, projections_stay_with_their_tensors)
{
    struct changes changes = {.plans = 0};
    for (int i = 0; i < SIZES; i++)
        for (changes.seed = 1; changes.seed <= 10; changes.seed++) {
            struct weft_virtual_config config = with_seed(changes.seed);
            OK(weft_virtual_run(sizes[i], &config, changes_plans, &changes));
        }
    cr_assert_gt(changes.plans, 30, "%d", changes.plans);
    cr_assert_gt(changes.within, 10, "%d", changes.within);
}

/* ---- what is asked ---- */

static int asks(struct weft_context *context, void *user)
{
    struct weft_gradiveq_tensor info = {.struct_size = sizeof info};
    struct merged *merged = calloc(1, sizeof *merged);
    (void)user;
    CHECK(merged);
    init(merged, context, 0);
    create(merged);
    CHECK(weft_gradients_phase(NULL) == WEFT_COMPRESSED_WARMUP);
    CHECK_STATUS(weft_gradients_get_tensor(merged->gradients, JOB_TENSORS, &info),
                 WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "tensor is 5, expected less than 5");
    job_fill(&merged->job, 0, 0);
    OK(weft_gradients_ready(merged->gradients, 0));
    CHECK_STATUS(weft_gradients_get_tensor(merged->gradients, 0, &info), WEFT_ERR_STATE);
    for (size_t l = 1; l < LAYERS; l++)
        OK(weft_gradients_ready(merged->gradients, l));
    OK(weft_gradients_wait_all(merged->gradients, NULL));
    OK(weft_gradients_get_tensor(merged->gradients, 4, &info));
    CHECK(info.slice == 36 && info.slices == 3);
    OK(weft_gradients_destroy(merged->gradients));
    merged->config.method = WEFT_GRADIENTS_DENSE;
    create(merged);
    OK(weft_gradients_get_tensor(merged->gradients, 0, &info));
    CHECK(!info.slice && !info.components);
    OK(weft_gradients_destroy(merged->gradients));
    free(merged);
    return WEFT_OK;
}

Test(gradients_gradiveq, tensors_are_told_between_steps)
{
    struct weft_virtual_config config = with_seed(8);
    OK(weft_virtual_run(2, &config, asks, NULL));
}
