/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compressed averages that go on after failures, created again from their states: by all ranks,
 * where one has given up, or by those that are left, where some have died.
 *
 * In each of its first steps a rank gives gradients; in the end the model and all residuals are
 * what was given, up to rounding. Where the step that failed had ended on some ranks the others had
 * their part of its sum, and do not know what was dropped of it; and who dies takes its residual
 * along: then the total is near what was given.
 */
#include <criterion/criterion.h>

#include "compressed_config.h"
#include "support/ranks.h"

enum { MOST = 5, GIVEN = 6, STEPS = 14, ELEMENTS = COMPRESSED_ELEMENTS };

struct story {
    uint64_t seed;
    int ranks, dies;
    const struct compressed_method *method;
    uint64_t moment_ns[MOST]; /* when a rank dies; 0: never */
    int failures, uneven;     /* that rank 0 has seen; after which ranks had come to other steps */
    int given[MOST];          /* steps whose gradients count; the last one may, or may not */
    float total[ELEMENTS];    /* the model, and all residuals */
    float model[MOST][ELEMENTS];
    uint64_t steps[MOST]; /* how many a rank has had in the end; 0: it has died */
};

struct actor {
    struct story *story;
    int rank, given;
    uint64_t random;
    struct weft_compressed_average *average;
    struct compressed_settings settings;
    float gradient[ELEMENTS], residual[ELEMENTS], sum[ELEMENTS];
    /* The model, and its updates behind it. */
    float model[ELEMENTS + 1], taken[ELEMENTS + 1];
};

static uint64_t draw(uint64_t *random, uint64_t below)
{
    return compressed_scramble((*random)++) % below;
}

static void apply(struct actor *actor)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        actor->model[i] += actor->gradient[i];
    actor->model[ELEMENTS]++;
}

static int live(struct actor *actor, struct weft_context *context)
{
    struct story *story = actor->story;
    int status = WEFT_OK;
    while (!status && weft_compressed_average_next(actor->average) < STEPS) {
        weft_context_sleep(context, 1 + draw(&actor->random, 300000));
        memset(actor->gradient, 0, sizeof actor->gradient);
        for (size_t i = 0; i < ELEMENTS && actor->given < GIVEN; i++)
            actor->gradient[i] = compressed_gradient(actor->rank, (uint64_t)actor->given, i);
        status = weft_compressed_average_post(actor->average);
        /* What was not posted was never given. */
        actor->given += !status && actor->given < GIVEN;
        weft_context_sleep(context, 1 + draw(&actor->random, 100000));
        if (!status && !story->dies && actor->given < GIVEN && !draw(&actor->random, 12))
            OK(weft_compressed_average_fail(actor->average, WEFT_ERR_PEER, "as drawn"));
        if (!status)
            status = weft_compressed_average_wait(actor->average, NULL);
        if (!status)
            apply(actor);
    }
    return status;
}

/* Whose model has had the most updates gives it to all. */
static int share(struct actor *actor, struct weft_context *context)
{
    int ranks = weft_context_size(context), source = 0, uneven = 0;
    float updates[MOST];
    int status = weft_allgather(context, &actor->model[ELEMENTS], updates, 1, WEFT_F32);
    for (int r = 0; !status && r < ranks; r++) {
        source = updates[r] > updates[source] ? r : source;
        uneven |= updates[r] != updates[0];
    }
    memcpy(actor->taken, actor->model, sizeof actor->taken);
    if (!status)
        status = weft_broadcast(context, actor->taken, ELEMENTS + 1, WEFT_F32, source);
    if (!status)
        memcpy(actor->model, actor->taken, sizeof actor->taken);
    if (!status && actor->rank == 0)
        actor->story->uneven += uneven;
    return status;
}

static int go_on(struct actor *actor, struct weft_context **context)
{
    struct weft_compressed_average_state state = {.struct_size = sizeof state};
    struct weft_compressed_average *before = actor->average;
    int status = WEFT_ERR_PEER;
    while (status == WEFT_ERR_PEER) {
        status = actor->story->dies ? weft_context_shrink(*context, context) : WEFT_OK;
        if (!status && before) { /* now it has failed, on all */
            OK(weft_compressed_average_get_state(before, &state));
            CHECK(state.failed && (!state.unsent || !state.residual));
            actor->settings.config.state = &state;
        }
        if (!status)
            status = share(actor, *context);
        if (!status)
            status =
                weft_compressed_average_create(&actor->average, *context, &actor->settings.config);
    }
    if (!status)
        weft_compressed_average_destroy(before);
    return status;
}

static int conclude(struct actor *actor, struct weft_context *context)
{
    struct weft_compressed_average_state state = {.struct_size = sizeof state};
    struct story *story = actor->story;
    int status = weft_compressed_average_get_state(actor->average, &state);
    if (!status)
        status = weft_allreduce(context, state.residual, actor->residual, ELEMENTS, WEFT_F32,
                                weft_op_builtin(WEFT_SUM));
    if (status)
        return status;
    memcpy(story->model[actor->rank], actor->model, sizeof story->model[0]);
    story->steps[actor->rank] = weft_compressed_average_next(actor->average);
    story->given[actor->rank] = actor->given;
    for (int i = 0; i < ELEMENTS && actor->rank == 0; i++)
        story->total[i] = actor->model[i] + actor->residual[i];
    return WEFT_OK;
}

static int enter(struct weft_context *context, void *user)
{
    struct story *story = user;
    struct actor *actor = calloc(1, sizeof *actor);
    CHECK(actor);
    actor->story = story;
    actor->rank = weft_context_rank(context);
    actor->random = compressed_scramble(story->seed * 100 + (uint64_t)actor->rank);
    compressed_set(&actor->settings, story->method, WEFT_F32, actor->gradient, 0);
    actor->settings.config.sum = 1;
    int status = weft_compressed_average_create(&actor->average, context, &actor->settings.config);
    for (;;) {
        if (!status)
            status = live(actor, context);
        if (!status)
            status = conclude(actor, context);
        if (status != WEFT_ERR_PEER)
            break;
        story->failures += actor->rank == 0;
        status = go_on(actor, &context);
        if (status)
            break;
    }
    CHECK(!status || story->moment_ns[actor->rank]);
    weft_compressed_average_destroy(actor->average);
    free(actor);
    return WEFT_OK;
}

/* What the total is off from what was given, in the root of the mean square. */
static double judge(const struct story *story)
{
    double squares = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        double given = 0;
        for (int r = 0; r < story->ranks; r++)
            for (int s = 0; s < story->given[r]; s++)
                given += (double)compressed_gradient(r, (uint64_t)s, i);
        const double off = (double)story->total[i] - given;
        cr_assert(isfinite(off));
        squares += off * off;
    }
    for (int r = 1; r < story->ranks; r++)
        if (story->steps[r] == story->steps[0] && !story->dies)
            cr_assert(!memcmp(story->model[r], story->model[0], sizeof story->model[0]));
    return sqrt(squares / ELEMENTS);
}

static void tell(struct story *story)
{
    uint64_t random = story->seed;
    struct weft_virtual_config config;
    struct weft_virtual_fault faults[MOST];
    weft_virtual_config_init(&config);
    story->ranks = 2 + (int)draw(&random, MOST - 1);
    for (int r = 1; r < story->ranks && story->dies; r++) /* rank 0 is left */
        if (draw(&random, 2)) {
            story->moment_ns[r] = 1 + draw(&random, 6000000);
            faults[config.fault_count++] = (struct weft_virtual_fault){
                .rank = r, .at_ns = story->moment_ns[r], .for_ns = WEFT_NEVER};
        }
    config.seed = story->seed;
    config.shuffle = 1;
    config.delay_ns = 30000;
    config.heavy_share = 0.1;
    config.heavy_ns = 300000;
    config.faults = faults;
    config.deaths = story->dies;
    config.death_ns = 50000;
    OK(weft_virtual_run(story->ranks, &config, enter, story));
}

static void tell_many(int m, int dies, uint64_t seeds)
{
    int failed = 0, exact = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct story *story = calloc(1, sizeof *story);
        CHECK(story);
        story->seed = seed;
        story->dies = dies;
        story->method = &compressed_methods[m];
        tell(story);
        const double off = judge(story);
        failed += story->failures > 0;
        if (!dies && !story->uneven) {
            exact += story->failures > 0;
            cr_assert(off < 1e-4, "%s, seed %llu: off by %g", story->method->name,
                      (unsigned long long)seed, off);
        }
        free(story);
    }
    cr_assert_gt(failed, (int)seeds / 4);
    cr_assert(dies || exact > (int)seeds / 10, "%d", exact);
}

static void tell_all(int dies)
{
    for (int m = 0; m < COMPRESSED_METHODS; m++)
        if (compressed_methods[m].keeps)
            tell_many(m, dies, 60);
}

Test(compressed_again, who_gives_up_takes_nothing_away, .timeout = 140)
{
    tell_all(0);
}

Test(compressed_again, those_that_are_left_go_on, .timeout = 140)
{
    tell_all(1);
}
