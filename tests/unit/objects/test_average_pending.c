/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every gradient that is published enters one version or is pending, also where ranks stop and go
 * on from checkpoints. Each has an element of its own, which is 1: so a sum tells which are in it.
 *
 * Rank 0 is the fastest and in every group, and so takes the sum of every version:
 *
 *     rank 0    0 1 2 3 4 5 .   save, stop    6 7 8 9 .        save, stop
 *     rank 1    0   1   . save, stop          2   3   4 ...    some gradients are late, or pending
 */
#include <criterion/criterion.h>
#include <math.h>

#include "average_job.h"

enum { STEPS = 24, PHASES = 4, ELEMENTS = MOST * STEPS };

struct history {
    struct weft_group_average_config config;
    uint64_t seed;
    int ranks, phases;
    int upto[PHASES]; /* steps of rank 0 in all */
    int published[MOST][STEPS], summed[MOST][STEPS], pending[MOST][STEPS];
};

struct actor {
    struct history *history;
    struct weft_context *context;
    struct weft_group_average *average;
    int rank;
    uint64_t random;
    double *wide;   /* of ELEMENTS, as the following */
    void *gradient; /* of the datatype */
    void *kept;     /* what was pending, between two objects */
};

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *random;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) % below;
}

static weft_dtype_t work_of(const struct history *history)
{
    return history->config.dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
}

/* ---- steps ---- */

/* A sum of `members` has been divided by them: adds its gradients to a table. */
static void count(const struct actor *actor, const void *data, weft_dtype_t dtype, int members,
                  int table[MOST][STEPS])
{
    OK(weft_convert(WEFT_F64, actor->wide, dtype, data, ELEMENTS));
    for (size_t i = 0; i < ELEMENTS; i++)
        table[i / STEPS][i % STEPS] += (int)lround(actor->wide[i] * members);
}

static void step(struct actor *actor, int number)
{
    struct history *history = actor->history;
    struct weft_group_average_result result = {.struct_size = sizeof result};
    memset(actor->wide, 0, ELEMENTS * sizeof *actor->wide);
    actor->wide[actor->rank * STEPS + number] = 1;
    history->published[actor->rank][number]++;
    OK(weft_convert(history->config.dtype, actor->gradient, WEFT_F64, actor->wide, ELEMENTS));
    if (draw(&actor->random, 3)) {
        OK(weft_group_average_step(actor->average, &result));
    } else {
        OK(weft_group_average_post(actor->average));
        memset(actor->gradient, 0, ELEMENTS * weft_dtype_size(history->config.dtype));
        OK(weft_group_average_wait(actor->average, &result));
    }
    if (actor->rank != 0)
        return;
    CHECK(result.version == (uint64_t)number);
    CHECK(result.members == history->ranks || history->config.mode == WEFT_AVERAGE_NONE);
    count(actor, actor->gradient, history->config.dtype, result.members, history->summed);
}

/* ---- checkpoints ---- */

/* Whoever looks gets the same, or less, as a version may have consumed it; taken, it is gone. */
static void save(struct actor *actor, struct weft_group_average_state *state)
{
    size_t bytes = ELEMENTS * weft_dtype_size(work_of(actor->history));
    struct weft_group_average_state seen = {.struct_size = sizeof seen}, after = seen;
    void *copy = malloc(bytes);
    CHECK(copy);
    *state = seen;
    OK(weft_group_average_get_state(actor->average, &seen));
    CHECK(seen.pending_count == (seen.pending ? ELEMENTS : 0));
    if (seen.pending)
        memcpy(copy, seen.pending, bytes);
    weft_context_sleep(actor->context, 1 + draw(&actor->random, 2000000));
    CHECK(!seen.pending || memcmp(copy, seen.pending, bytes) == 0);
    OK(weft_group_average_take_state(actor->average, state));
    CHECK(!state->pending || (seen.pending && memcmp(copy, state->pending, bytes) == 0));
    OK(weft_group_average_get_state(actor->average, &after));
    CHECK(!after.pending && after.pending_count == 0 && after.next == state->next);
    weft_context_sleep(actor->context, 1 + draw(&actor->random, 2000000));
    if (state->pending) { /* versions have gone by */
        CHECK(memcmp(copy, state->pending, bytes) == 0);
        memcpy(actor->kept, state->pending, bytes);
        state->pending = actor->kept;
    }
    free(copy);
}

static void live(struct actor *actor, int phase, struct weft_group_average_state *state)
{
    struct history *history = actor->history;
    struct weft_piece tensors[] = {{actor->gradient, ELEMENTS}};
    struct weft_group_average_config config = history->config;
    int next = (int)state->next, upto = history->upto[phase];
    config.tensors = tensors;
    config.tensor_count = 1;
    config.state = state;
    OK(weft_group_average_create(&actor->average, actor->context, &config));
    CHECK(weft_group_average_next(actor->average) == state->next);
    if (actor->rank != 0)
        upto -= (int)draw(&actor->random, (uint64_t)(upto - next + 1));
    for (; next < upto; next++) {
        weft_context_sleep(actor->context,
                           1000000 + (actor->rank ? 500000 + draw(&actor->random, 6000000) : 0));
        step(actor, next);
    }
    save(actor, state);
    OK(weft_group_average_destroy(actor->average));
}

static int enter_history(struct weft_context *context, void *user)
{
    struct history *history = user;
    struct weft_group_average_state state = {.struct_size = sizeof state};
    struct actor actor = {.history = history, .context = context};
    actor.rank = weft_context_rank(context);
    actor.random = history->seed * 100 + (uint64_t)actor.rank;
    actor.wide = calloc(ELEMENTS, sizeof(double));
    actor.gradient = calloc(ELEMENTS, sizeof(double));
    actor.kept = calloc(ELEMENTS, sizeof(double));
    CHECK(actor.wide && actor.gradient && actor.kept);
    for (int phase = 0; phase < history->phases; phase++)
        live(&actor, phase, &state);
    if (state.pending)
        count(&actor, state.pending, work_of(history), 1, history->pending);
    free(actor.wide);
    free(actor.gradient);
    free(actor.kept);
    return WEFT_OK;
}

/* ---- histories ---- */

static void draw_history(struct history *history, uint64_t seed)
{
    static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};
    uint64_t random = seed;
    memset(history, 0, sizeof *history);
    weft_group_average_config_init(&history->config);
    history->seed = seed;
    history->ranks = 1 + (int)draw(&random, 7);
    history->phases = 1 + (int)draw(&random, PHASES);
    for (int i = 0, from = 0; i < history->phases; i++)
        from = history->upto[i] = from + (int)draw(&random, STEPS / PHASES + 1);
    history->config.dtype = dtypes[draw(&random, 4)];
    history->config.contribution = WEFT_AVERAGE_ACCUMULATE;
    history->config.mode = (weft_average_mode_t)(draw(&random, 4) % 3);
    history->config.activation = (weft_average_activation_t)(draw(&random, 3) == 0);
    history->config.group_size = history->ranks;
    history->config.sync_period = draw(&random, 2) ? WEFT_NEVER : 2 + draw(&random, 6);
    history->config.patience_ns = draw(&random, 2) ? WEFT_NS_NONE : 0;
    history->config.seed = seed;
}

/* How many gradients were pending at the end. */
static int run_history(struct history *history)
{
    struct weft_virtual_config config;
    int pending = 0;
    weft_virtual_config_init(&config);
    config.seed = history->seed;
    OK(weft_virtual_run(history->ranks, &config, enter_history, history));
    for (int r = 0; r < MOST; r++)
        for (int s = 0; s < STEPS; s++) {
            pending += history->pending[r][s];
            cr_assert_eq(history->summed[r][s] + history->pending[r][s], history->published[r][s],
                         "seed %llu: gradient %d of rank %d of %d: published %d, summed %d, "
                         "pending %d",
                         (unsigned long long)history->seed, s, r, history->ranks,
                         history->published[r][s], history->summed[r][s], history->pending[r][s]);
        }
    return pending;
}

Test(average_pending, no_gradient_is_lost_or_counts_twice, .timeout = 140)
{
    struct history *history = malloc(sizeof *history);
    int pending = 0;
    CHECK(history);
    for (uint64_t seed = 1; seed <= SWEPT(300, 80); seed++) {
        draw_history(history, seed);
        pending += run_history(history);
    }
    cr_assert_gt(pending, SWEPT(100, 20));
    free(history);
}

/* ---- what is refused ---- */

Test(average_pending, what_is_pending_fits_the_object)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct weft_group_average_config config;
    struct weft_group_average_state state = {.struct_size = sizeof state};
    struct weft_group_average *average = NULL;
    float model[4] = {0}, pending[4] = {1, 2, 3, 4};
    struct weft_piece tensor = {model, 4};
    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.state = &state;
    state.pending = pending;
    state.pending_count = 4;
    CHECK_STATUS(weft_group_average_create(&average, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->state->pending is ");
    CHECK_TEXT(weft_error_text(), "WEFT_AVERAGE_ACCUMULATE");
    config.contribution = WEFT_AVERAGE_ACCUMULATE;
    state.pending_count = 3;
    CHECK_STATUS(weft_group_average_create(&average, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->state->pending_count is 3, expected 4");
    state.pending_count = 4;
    OK(weft_group_average_create(&average, alone.context, &config));
    memset(pending, 0, sizeof pending); /* it was copied */
    for (int i = 0; i < 4; i++)
        model[i] = 10;
    OK(weft_group_average_step(average, NULL));
    for (int i = 0; i < 4; i++)
        CHECK(model[i] == (float)(11 + i));
    OK(weft_group_average_destroy(average));
    alone_destroy(&alone);
}
