/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse averages that go on after deaths, created again on those that are left from their states.
 * In each of its steps a rank has three ones, each an element of its own, and may send one or two
 * of them. In the end every one of a rank that is left is in the model or in a residual. Where
 * merges drop, one may have counted twice in a step that failed, or have been in the residual of a
 * rank that died.
 */
#include <criterion/criterion.h>

#include "support/ranks.h"

enum { MOST = 5, STEPS = 12, ONES = 3, ELEMENTS = MOST * STEPS * ONES };

struct story {
    uint64_t seed;
    int ranks;
    struct weft_sparse_average_config config;
    uint64_t moment_ns[MOST];   /* when a rank dies; 0: never */
    int published[MOST][STEPS]; /* -1: perhaps */
    float total[ELEMENTS];      /* the model, and all residuals */
    int left[MOST];             /* with how many a rank has come to its end */
    int died_in;
};

struct actor {
    struct story *story;
    int rank;
    uint64_t random;
    struct weft_sparse_average *average;
    float gradient[ELEMENTS], residual[ELEMENTS], unsent[ELEMENTS];
    /* The model, and its updates behind it. */
    float model[ELEMENTS + 1], taken[ELEMENTS + 1];
};

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *random;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) % below;
}

/* The sum of a step goes to the model. */
static void apply(struct actor *actor)
{
    struct weft_sparse pairs;
    OK(weft_sparse_average_get_pairs(actor->average, 0, &pairs));
    const uint32_t *indices = pairs.indices;
    const float *values = pairs.values;
    for (size_t i = 0; i < pairs.count; i++)
        actor->model[indices[i]] += values[i];
    actor->model[ELEMENTS]++;
}

static int live(struct actor *actor, struct weft_context *context, int *step)
{
    struct story *story = actor->story;
    int status = WEFT_OK;
    while (!status && weft_sparse_average_next(actor->average) < STEPS) {
        weft_context_sleep(context, 1 + draw(&actor->random, 300000));
        memset(actor->gradient, 0, sizeof actor->gradient);
        for (int i = 0; i < ONES && *step < STEPS; i++)
            actor->gradient[(actor->rank * STEPS + *step) * ONES + i] = 1;
        status = weft_sparse_average_post(actor->average);
        if (*step < STEPS)
            story->published[actor->rank][(*step)++] = status ? -1 : 1;
        weft_context_sleep(context, 1 + draw(&actor->random, 100000));
        if (!status)
            status = weft_sparse_average_wait(actor->average, NULL);
        if (!status)
            apply(actor);
    }
    return status;
}

/* Whose model has had the most updates gives it to all. */
static int share(struct actor *actor, struct weft_context *context)
{
    int ranks = weft_context_size(context), source = 0;
    float updates[MOST];
    int status = weft_allgather(context, &actor->model[ELEMENTS], updates, 1, WEFT_F32);
    for (int r = 0; !status && r < ranks; r++)
        source = updates[r] > updates[source] ? r : source;
    memcpy(actor->taken, actor->model, sizeof actor->taken);
    if (!status)
        status = weft_broadcast(context, actor->taken, ELEMENTS + 1, WEFT_F32, source);
    if (!status)
        memcpy(actor->model, actor->taken, sizeof actor->taken);
    return status;
}

static int go_on(struct actor *actor, struct weft_context **context)
{
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    struct weft_sparse_average_config config = actor->story->config;
    struct weft_piece tensor = {actor->gradient, ELEMENTS};
    struct weft_sparse_average *before = actor->average;
    int status = WEFT_ERR_PEER;
    config.tensors = &tensor;
    config.tensor_count = 1;
    while (status == WEFT_ERR_PEER) {
        status = weft_context_shrink(*context, context);
        if (!status && before) { /* now it has failed, on all */
            OK(weft_sparse_average_get_state(before, &state));
            CHECK(state.failed);
            config.state = &state;
        }
        if (!status)
            status = share(actor, *context);
        if (!status)
            status = weft_sparse_average_create(&actor->average, *context, &config);
    }
    if (!status)
        weft_sparse_average_destroy(before);
    return status;
}

static int conclude(struct actor *actor, struct weft_context *context)
{
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    int status = weft_sparse_average_get_state(actor->average, &state);
    if (!status)
        status = weft_allreduce(context, state.residual, actor->residual, ELEMENTS, WEFT_F32,
                                weft_op_builtin(WEFT_SUM));
    actor->story->left[actor->rank] = weft_context_size(context);
    if (status || actor->rank != 0)
        return status;
    for (int i = 0; i < ELEMENTS; i++)
        actor->story->total[i] = actor->model[i] + actor->residual[i];
    return status;
}

static int enter(struct weft_context *context, void *user)
{
    struct story *story = user;
    struct actor *actor = calloc(1, sizeof *actor);
    struct weft_piece tensor = {NULL, ELEMENTS};
    struct weft_sparse_average_config config = story->config;
    int step = 0;
    CHECK(actor);
    actor->story = story;
    actor->rank = weft_context_rank(context);
    actor->random = story->seed * 100 + (uint64_t)actor->rank;
    tensor.data = actor->gradient;
    config.tensors = &tensor;
    config.tensor_count = 1;
    int status = weft_sparse_average_create(&actor->average, context, &config);
    for (;;) {
        if (!status)
            status = live(actor, context, &step);
        if (!status)
            status = conclude(actor, context);
        if (status != WEFT_ERR_PEER)
            break;
        story->died_in++;
        status = go_on(actor, &context);
        if (status)
            break;
    }
    CHECK(!status || story->moment_ns[actor->rank]);
    weft_sparse_average_destroy(actor->average);
    free(actor);
    return WEFT_OK;
}

static void check(const struct story *story, int r, int s)
{
    int published = story->published[r][s], exact = story->config.method == WEFT_SPARSE_ALLGATHER;
    if (story->moment_ns[r] || !published)
        return;
    for (int other = 0; other < story->ranks;
         other++) /* one had ended, and gone, when another died */
        if (!story->moment_ns[other] && story->left[other] != story->left[r])
            return;
    for (int i = 0; i < ONES; i++) {
        double total = story->total[(r * STEPS + s) * ONES + i];
        cr_assert((published < 0 && total == 0) || total == 1 || (!exact && total <= MOST),
                  "seed %llu, method %d: rank %d of %d, step %d: %g",
                  (unsigned long long)story->seed, (int)story->config.method, r, story->ranks, s,
                  total);
    }
}

static void tell(uint64_t seed, weft_sparse_method_t method, int *died)
{
    uint64_t random = seed;
    struct story story = {.seed = seed};
    struct weft_virtual_config config;
    struct weft_virtual_fault faults[MOST];
    weft_virtual_config_init(&config);
    weft_sparse_average_config_init(&story.config);
    story.config.method = method;
    story.config.k = 1 + draw(&random, 2);
    story.ranks = 2 + (int)draw(&random, MOST - 1);
    for (int r = 1; r < story.ranks; r++) /* rank 0 is left */
        if (draw(&random, 2)) {
            story.moment_ns[r] = 1 + draw(&random, 6000000);
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
    for (int r = 0; r < story.ranks; r++)
        for (int s = 0; s < STEPS; s++)
            check(&story, r, s);
    *died += story.died_in > 0;
}

static void tell_many(weft_sparse_method_t method)
{
    int died = 0;
    for (uint64_t seed = 1; seed <= SWEPT(300, 60); seed++)
        tell(seed, method, &died);
    cr_assert_gt(died, SWEPT(100, 20));
}

Test(sparse_again, allgather_loses_nothing, .timeout = 140)
{
    tell_many(WEFT_SPARSE_ALLGATHER);
}

Test(sparse_again, gtopk_goes_on, .timeout = 140)
{
    tell_many(WEFT_SPARSE_GTOPK);
}

Test(sparse_again, oktopk_goes_on, .timeout = 140)
{
    tell_many(WEFT_SPARSE_OKTOPK);
}
