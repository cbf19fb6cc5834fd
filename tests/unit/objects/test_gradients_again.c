/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Merged gradients that go on after failures, created again from their states on those that are
 * left. Of each layer a rank has a number of gradients, each some ones at elements of its own. In a
 * step it announces the next of each layer; one that has come to nothing it announces once more. In
 * the end every one of a rank that is left is in the model or in a residual, once. Where merges
 * drop, one may have counted twice in a step that failed, or have been in the residual of a rank
 * that died. Compressed groups keep in residuals what they drop, and lose nothing, but for what
 * projections and factors have made of a rank's gradients at elements of others: its residual
 * would take that back, if it has not died, and has ended the step where others have.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "support/ranks.h"

enum {
    MOST = 4,
    LAYERS = 3,
    STEPS = 9,
    MORE = 2, /* in which gradients come that have come to nothing */
    ONES = 2,
    COUNT = MOST * STEPS * ONES, /* of a layer */
    ELEMENTS = LAYERS * COUNT
};

struct story {
    uint64_t seed;
    int ranks;
    struct weft_sparse_average_config sparse;
    int compresses; /* instead, by: */
    struct weft_compressed_average_config compressed;
    struct weft_gradiveq_config gradiveq;
    struct weft_powersgd_config powersgd;
    _Atomic int apart; /* a step that failed had ended on some ranks, and on others not */
    int given_cost;
    uint64_t moment_ns[MOST]; /* when a rank dies; 0: never */
    int leaves_at[MOST];      /* so many calls of its, after which a rank leaves; 0: never */
    int fails_at[MOST];       /* likewise, after which it fails the object */
    float total[ELEMENTS];    /* the model, and all residuals */
    int left[MOST];           /* with how many a rank has come to its end */
    int failures;
    int kept, again; /* of rank 0: layers whose gradients were, or were not, in a state */
};

struct actor {
    struct story *story;
    struct weft_context *context;
    int rank, calls;
    uint64_t random;
    struct weft_gradients *gradients;
    uint64_t in[LAYERS];      /* gradients that are in a sum or in the state */
    int announced[LAYERS];    /* in this step: 1: a gradient of it */
    float gradient[ELEMENTS]; /* and sums */
    float residual[ELEMENTS];
    float model[ELEMENTS], common[ELEMENTS];
};

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *random;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) % below;
}

static size_t element_of(int rank, size_t layer, uint64_t step, int i)
{
    return layer * COUNT + ((size_t)rank * STEPS + step) * ONES + (size_t)i;
}

/* ---- steps ---- */

/* What comes in between two calls: time, or the end of this rank's part. 1: it leaves. */
static int live(struct actor *actor)
{
    const struct story *story = actor->story;
    weft_context_sleep(actor->context, 1 + draw(&actor->random, 100000));
    actor->calls++;
    if (actor->calls == story->fails_at[actor->rank])
        OK(weft_gradients_fail(actor->gradients, WEFT_ERR_COMPUTE, "enough"));
    return actor->calls == story->leaves_at[actor->rank];
}

static int announce(struct actor *actor, size_t layer)
{
    float *at = actor->gradient + layer * COUNT;
    const uint64_t next = actor->in[layer];
    memset(at, 0, COUNT * sizeof *at);
    for (int i = 0; i < ONES && next < STEPS; i++)
        actor->gradient[element_of(actor->rank, layer, next, i)] = 1;
    actor->announced[layer] = next < STEPS;
    return next < STEPS ? weft_gradients_ready(actor->gradients, layer)
                        : weft_gradients_absent(actor->gradients, layer);
}

static void apply(struct actor *actor, size_t layer)
{
    for (size_t i = layer * COUNT; i < (layer + 1) * COUNT; i++)
        actor->model[i] += actor->gradient[i];
}

/* *leaves: this rank does. */
static int take_step(struct actor *actor, int *leaves)
{
    const int together = draw(&actor->random, 3) == 0, first = (int)draw(&actor->random, 2);
    int status = WEFT_OK;
    for (size_t l = LAYERS; l > 0 && !status && !*leaves; l--) {
        *leaves = live(actor);
        if (!*leaves)
            status = announce(actor, l - 1);
    }
    if (!status && !*leaves && together) {
        *leaves = live(actor);
        if (!*leaves)
            status = weft_gradients_wait_all(actor->gradients, NULL);
    }
    for (size_t l = 0; l < LAYERS && !status && !*leaves; l++) {
        const size_t layer = first ? l : LAYERS - 1 - l;
        *leaves = !together && live(actor);
        if (!*leaves && !together)
            status = weft_gradients_wait(actor->gradients, layer);
        if (!status && !*leaves)
            apply(actor, layer);
    }
    for (size_t l = 0; l < LAYERS && !status && !*leaves; l++)
        actor->in[l] += actor->announced[l] != 0;
    if (!status && !*leaves)
        memset(actor->announced, 0, sizeof actor->announced);
    return status;
}

/* ---- after a failure ---- */

static int create(struct actor *actor, const struct weft_gradients_state *state)
{
    const struct story *story = actor->story;
    struct weft_gradients_config config;
    struct weft_merge_cost cost;
    struct weft_piece tensors[LAYERS];
    weft_gradients_config_init(&config);
    weft_merge_cost_init(&cost);
    cost.a_us = 5;
    cost.b_us_per_byte = 0.01;
    for (size_t l = 0; l < LAYERS; l++)
        tensors[l] = (struct weft_piece){actor->gradient + l * COUNT, COUNT};
    config.tensors = tensors;
    config.tensor_count = LAYERS;
    config.reduction = WEFT_GRADIENTS_SUM;
    config.method = story->compresses ? WEFT_GRADIENTS_COMPRESSED : WEFT_GRADIENTS_SPARSE;
    config.sparse = story->compresses ? NULL : &story->sparse;
    config.compressed = story->compresses ? &story->compressed : NULL;
    config.cost = story->given_cost ? &cost : NULL;
    config.measure_steps = 1;
    config.check_steps = 1 + story->seed % 3;
    config.gain = 1e-9;
    config.state = state;
    return weft_gradients_create(&actor->gradients, actor->context, &config);
}

/* The model in which each layer has had the most sums: to be taken when the object is there. */
static int find_model(struct actor *actor, const uint64_t *taken)
{
    const int ranks = weft_context_size(actor->context);
    uint64_t all[LAYERS * MOST];
    int status = weft_allgather(actor->context, taken, all, LAYERS, WEFT_U64);
    memcpy(actor->common, actor->model, sizeof actor->common);
    for (size_t l = 0; l < LAYERS && !status; l++) {
        int source = 0;
        for (int r = 1; r < ranks; r++) {
            actor->story->apart |= all[(size_t)r * LAYERS + l] != all[l];
            if (all[(size_t)r * LAYERS + l] > all[(size_t)source * LAYERS + l])
                source = r;
        }
        status = weft_broadcast(actor->context, actor->common + l * COUNT, COUNT, WEFT_F32, source);
    }
    return status;
}

static void resume(struct actor *actor, const struct weft_gradients_state *state)
{
    memcpy(actor->model, actor->common, sizeof actor->model);
    for (size_t l = 0; l < LAYERS && state->failed; l++) {
        if (actor->rank == 0) {
            actor->story->kept += actor->announced[l] && state->kept[l];
            actor->story->again += actor->announced[l] && !state->kept[l];
        }
        actor->in[l] += actor->announced[l] && state->kept[l];
        actor->announced[l] = 0;
    }
}

static int go_on(struct actor *actor)
{
    static const uint64_t none[LAYERS];
    struct weft_gradients_state state = {.struct_size = sizeof state};
    struct weft_gradients *before = actor->gradients;
    const int shrinks = !actor->story->fails_at[0];
    int status = WEFT_ERR_PEER;
    while (status == WEFT_ERR_PEER) {
        status = shrinks ? weft_context_shrink(actor->context, &actor->context) : WEFT_OK;
        if (!status && before) { /* now it has failed, on all; or on none, with all steps taken */
            OK(weft_gradients_get_state(before, &state));
            CHECK(state.residual && !state.failed == !state.kept);
            CHECK(!state.failed == !state.taken);
            CHECK(state.failed || state.next == STEPS + MORE);
        }
        if (!status)
            status = find_model(actor, before && state.taken ? state.taken : none);
        if (!status)
            status = create(actor, before ? &state : NULL);
    }
    if (!status && before)
        resume(actor, &state);
    if (!status)
        weft_gradients_destroy(before);
    return status;
}

/* ---- stories ---- */

static int conclude(struct actor *actor)
{
    struct weft_gradients_state state = {.struct_size = sizeof state};
    int status = weft_gradients_get_state(actor->gradients, &state);
    if (!status)
        status = weft_allreduce(actor->context, state.residual, actor->residual, ELEMENTS, WEFT_F32,
                                weft_op_builtin(WEFT_SUM));
    actor->story->left[actor->rank] = weft_context_size(actor->context);
    for (int i = 0; i < ELEMENTS && !status && actor->rank == 0; i++)
        actor->story->total[i] = actor->model[i] + actor->residual[i];
    for (size_t l = 0; l < LAYERS && !status; l++)
        CHECK(actor->in[l] == STEPS);
    return status;
}

static int enter(struct weft_context *context, void *user)
{
    struct story *story = user;
    struct actor *actor = calloc(1, sizeof *actor);
    int leaves = 0;
    CHECK(actor);
    actor->story = story;
    actor->context = context;
    actor->rank = weft_context_rank(context);
    actor->random = story->seed * 100 + (uint64_t)actor->rank;
    int status = create(actor, NULL);
    for (;;) {
        while (!status && !leaves && weft_gradients_next(actor->gradients) < STEPS + MORE)
            status = take_step(actor, &leaves);
        if (!status && !leaves)
            status = conclude(actor);
        if (!status || leaves)
            break;
        if (actor->rank == 0)
            story->failures++;
        status = go_on(actor);
        if (status)
            break;
    }
    CHECK(!status || leaves || story->moment_ns[actor->rank]);
    weft_gradients_destroy(actor->gradients);
    free(actor);
    return WEFT_OK;
}

static int is_gone(const struct story *story, int rank)
{
    return story->moment_ns[rank] || story->leaves_at[rank];
}

/* Of compressed groups: all that is dropped comes back. */
static int is_kept(const struct story *story)
{
    int kept = !story->apart;
    for (int r = 0; r < story->ranks && story->compressed.method != WEFT_COMPRESSED_QSGD; r++)
        kept &= !is_gone(story, r);
    return kept;
}

/* Ranks that are left, but where one had ended, and gone, when another died. */
static void check(const struct story *story)
{
    const int exact =
        story->compresses ? is_kept(story) : story->sparse.method == WEFT_SPARSE_ALLGATHER;
    const double rounding = story->compresses ? 1e-3 : 0;
    for (int r = 0; r < story->ranks; r++)
        if (!is_gone(story, r) && story->left[r] != story->left[0])
            return;
    for (int r = 0; r < story->ranks; r++)
        for (size_t l = 0; l < LAYERS && !is_gone(story, r); l++)
            for (uint64_t s = 0; s < STEPS; s++)
                for (int i = 0; i < ONES; i++) {
                    double total = story->total[element_of(r, l, s, i)];
                    cr_assert(fabs(total - 1) <= rounding || (!exact && fabs(total) <= MOST),
                              "seed %llu, method %d: rank %d of %d, layer %zu, step %d: %g",
                              (unsigned long long)story->seed, (int)story->sparse.method, r,
                              story->ranks, l, (int)s, total);
                }
}

static struct story story_of(uint64_t *random, uint64_t seed, weft_sparse_method_t method)
{
    struct story story = {.seed = seed};
    weft_sparse_average_config_init(&story.sparse);
    story.sparse.method = method;
    story.sparse.k = 1 + draw(random, 3);
    story.given_cost = draw(random, 4) != 0;
    story.ranks = 2 + (int)draw(random, MOST - 1);
    return story;
}

static const struct weft_tensor_shape shapes[LAYERS] = {{WEFT_TENSOR_OIHW, MOST, 2, 3, 3},
                                                        {WEFT_TENSOR_OHWI, MOST, 2, 3, 3},
                                                        {WEFT_TENSOR_HWIO, MOST, 2, 3, 3}};

/* With phases of a few steps. */
static void compress(struct story *story, weft_compressed_method_t method, uint64_t *random)
{
    story->compresses = 1;
    weft_compressed_average_config_init(&story->compressed);
    weft_gradiveq_config_init(&story->gradiveq);
    weft_powersgd_config_init(&story->powersgd);
    story->gradiveq.warmup_steps = draw(random, 2) ? WEFT_WARMUP_NONE : 1;
    story->gradiveq.sample_steps = 2;
    story->gradiveq.compressed_steps = 1 + draw(random, 4);
    story->gradiveq.loss_bound = draw(random, 2) ? 0 : 0.5;
    story->gradiveq.uncompressed =
        draw(random, 2) ? WEFT_UNCOMPRESSED_DENSE : WEFT_UNCOMPRESSED_QSGD;
    story->powersgd.rank = 1 + draw(random, 2);
    story->compressed.method = method;
    story->compressed.residual = WEFT_COMPRESSED_RESIDUAL_KEPT;
    story->compressed.shapes = shapes;
    story->compressed.gradiveq = &story->gradiveq;
    story->compressed.powersgd = &story->powersgd;
}

enum { SPARSE = -1 };

/* How often one of `seeds` stories on virtual ranks has had a failure. compressed: SPARSE, or by
 * which method. */
static int tell_all(int compressed, weft_sparse_method_t method, uint64_t seeds)
{
    int failures = 0, kept = 0, again = 0;
    for (uint64_t seed = 1; seed <= SWEPT(seeds, seeds / 4); seed++) {
        uint64_t random = seed;
        struct story story = story_of(&random, seed, method);
        if (compressed != SPARSE)
            compress(&story, (weft_compressed_method_t)compressed, &random);
        struct weft_virtual_fault faults[MOST];
        struct weft_virtual_config config;
        weft_virtual_config_init(&config);
        const int fails = draw(&random, compressed == SPARSE ? 4 : 2) == 0;
        story.fails_at[0] = fails ? 1 + (int)draw(&random, (uint64_t)LAYERS * 2 * (STEPS - 2)) : 0;
        for (int r = 1; r < story.ranks && !fails; r++) /* rank 0 is left */
            if (draw(&random, 2)) {
                story.moment_ns[r] = 1 + draw(&random, 5000000);
                faults[config.fault_count++] = (struct weft_virtual_fault){
                    .rank = r, .at_ns = story.moment_ns[r], .for_ns = WEFT_NEVER};
            }
        config.seed = seed;
        config.shuffle = 1;
        config.delay_ns = 30000;
        config.heavy_share = 0.1;
        config.heavy_ns = 300000;
        config.faults = faults;
        config.deaths = 1;
        config.death_ns = 50000;
        OK(weft_virtual_run(story.ranks, &config, enter, &story));
        check(&story);
        failures += story.failures > 0;
        kept += story.kept;
        again += story.again;
    }
    cr_assert_gt(kept, SWEPT(30, 7), "%d", kept);
    cr_assert_gt(again, SWEPT(30, 7), "%d", again);
    return failures;
}

static int tell_many(weft_sparse_method_t method, uint64_t seeds)
{
    return tell_all(SPARSE, method, seeds);
}

Test(gradients_again, gradiveq_loses_nothing_on_virtual_ranks, .timeout = 140)
{
    if (!weft_pca_available())
        cr_skip_test("LAPACK is missing");
    cr_assert_gt(tell_all(WEFT_COMPRESSED_GRADIVEQ, WEFT_SPARSE_GTOPK, 300), SWEPT(100, 25));
}

Test(gradients_again, qsgd_loses_nothing_on_virtual_ranks, .timeout = 140)
{
    cr_assert_gt(tell_all(WEFT_COMPRESSED_QSGD, WEFT_SPARSE_GTOPK, 200), SWEPT(60, 15));
}

Test(gradients_again, powersgd_loses_nothing_on_virtual_ranks, .timeout = 140)
{
    cr_assert_gt(tell_all(WEFT_COMPRESSED_POWERSGD, WEFT_SPARSE_GTOPK, 200), SWEPT(60, 15));
}

Test(gradients_again, allgather_loses_nothing_on_virtual_ranks, .timeout = 140)
{
    cr_assert_gt(tell_many(WEFT_SPARSE_ALLGATHER, 300), SWEPT(100, 25));
}

Test(gradients_again, gtopk_goes_on_with_virtual_ranks, .timeout = 140)
{
    cr_assert_gt(tell_many(WEFT_SPARSE_GTOPK, 200), SWEPT(60, 15));
}

Test(gradients_again, oktopk_goes_on_with_virtual_ranks, .timeout = 140)
{
    cr_assert_gt(tell_many(WEFT_SPARSE_OKTOPK, 200), SWEPT(60, 15));
}

/* Ranks as threads, of which some leave in the middle. */
Test(gradients_again, local_ranks_lose_nothing, .timeout = 140)
{
    for (uint64_t seed = 1; seed <= SWEPT(60, 20); seed++) {
        uint64_t random = seed;
        struct story story = story_of(&random, seed, WEFT_SPARSE_ALLGATHER);
        struct weft_context_config config;
        weft_context_config_init(&config);
        config.progress = seed % 2 ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_DEFAULT;
        for (int r = 1; r < story.ranks; r++)
            if (draw(&random, 2))
                story.leaves_at[r] = 1 + (int)draw(&random, (uint64_t)LAYERS * 2 * STEPS);
        OK(weft_local_run(story.ranks, &config, enter, &story));
        check(&story);
    }
}

/* ---- what is taken over ---- */

enum { DENSE_RANKS = 3, DENSE_STEPS = 6, PAUSE_NS = 100000 };

static int take_dense_step(struct actor *actor)
{
    int status = WEFT_OK;
    for (size_t l = LAYERS; l > 0 && !status; l--) {
        for (size_t i = 0; i < COUNT; i++)
            actor->gradient[(l - 1) * COUNT + i] = (float)(actor->rank + 1);
        weft_context_sleep(actor->context, PAUSE_NS);
        status = weft_gradients_ready(actor->gradients, l - 1);
    }
    return status ? status : weft_gradients_wait_all(actor->gradients, NULL);
}

static int create_dense(struct actor *actor, const struct weft_gradients_state *state, size_t count)
{
    struct weft_gradients_config config;
    struct weft_piece tensors[LAYERS];
    weft_gradients_config_init(&config);
    for (size_t l = 0; l < LAYERS; l++)
        tensors[l] = (struct weft_piece){actor->gradient + l * COUNT, count};
    config.tensors = tensors;
    config.tensor_count = LAYERS;
    config.measure_steps = 2;
    config.reduction = WEFT_GRADIENTS_SUM;
    config.state = state;
    return weft_gradients_create(&actor->gradients, actor->context, &config);
}

/* The times are known at once, the costs are of fewer ranks, and sums are right. */
static void check_taken_over(struct actor *actor)
{
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    OK(weft_gradients_get_plan(actor->gradients, &plan));
    OK(weft_merge_plan_get_summary(plan.merge, &summary));
    CHECK(plan.since == DENSE_STEPS);
    CHECK(summary.ready_us >= (LAYERS - 1) * PAUSE_NS / 1000);
    for (int step = 0; step < 3; step++) {
        OK(take_dense_step(actor));
        for (size_t i = 0; i < ELEMENTS; i++)
            CHECK(actor->gradient[i] == 1 + 2);
    }
}

static void refuse(struct actor *actor, struct weft_gradients_state state, size_t count,
                   const char *text)
{
    CHECK_STATUS(create_dense(actor, &state, count), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), text);
}

static int lose_the_last(struct weft_context *context, void *user)
{
    struct actor *actor = calloc(1, sizeof *actor);
    struct weft_gradients_state state = {.struct_size = sizeof state};
    struct weft_gradients *before;
    int status = WEFT_OK;
    (void)user;
    CHECK(actor);
    actor->context = context;
    actor->rank = weft_context_rank(context);
    OK(create_dense(actor, NULL, COUNT));
    for (int step = 0; step < DENSE_STEPS; step++)
        OK(take_dense_step(actor));
    OK(weft_gradients_ready(actor->gradients, LAYERS - 1));
    CHECK_STATUS(weft_gradients_get_state(actor->gradients, &state), WEFT_ERR_STATE);
    before = actor->gradients;
    if (actor->rank < DENSE_RANKS - 1) {
        for (size_t l = LAYERS - 1; l > 0 && !status; l--)
            status = weft_gradients_ready(before, l - 1);
        CHECK_STATUS(status ? status : weft_gradients_wait(before, 0), WEFT_ERR_PEER);
        OK(weft_context_shrink(context, &actor->context));
        OK(weft_gradients_get_state(before, &state));
        CHECK(state.failed && state.next == DENSE_STEPS && state.taken[0] == DENSE_STEPS);
        CHECK(!state.residual && !state.unsent && !state.kept && !state.regions);
        refuse(actor, state, COUNT - 1, "elements in layer 0, the model has");
        struct weft_gradients_state wrong = state;
        wrong.unsent = actor->residual;
        refuse(actor, wrong, COUNT, "has unsent, expected NULL with WEFT_GRADIENTS_DENSE");
        OK(create_dense(actor, &state, COUNT));
        check_taken_over(actor);
        weft_gradients_destroy(before);
    }
    weft_gradients_destroy(actor->gradients);
    free(actor);
    return WEFT_OK;
}

Test(gradients_again, times_are_taken_over_and_costs_measured_anew)
{
    struct weft_virtual_config config;
    weft_virtual_config_init(&config);
    OK(weft_virtual_run(DENSE_RANKS, &config, lose_the_last, NULL));
}
