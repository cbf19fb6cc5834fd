/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gossip and averaging in pairs that go on after a rank has gone, created again on those that are
 * left, from their states. A rank gives up at a moment that is drawn: in a step, in a
 * synchronisation, between two. Models begin between 0 and 1 and nothing is added to them, so all
 * that is averaged stays there, and what has been torn or added twice does not.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "support/ranks.h"

enum { MOST = 6, STEPS = 12, MORE = 40, ELEMENTS = 1000 };

struct story {
    uint64_t seed;
    int ranks, victim, pairs;
    weft_gossip_graph_t graph;
    uint64_t moment_ns;
    double before[MOST], after[MOST]; /* of those that are left: when they go on, and in the end */
    uint64_t next[MOST];              /* when they go on */
    int gone;                         /* the victim has gone in time */
};

struct actor {
    struct story *story;
    int rank;
    uint64_t random, until;
    double model[ELEMENTS];
    struct weft_gossip *gossip;
    struct weft_pair_average *pair;
};

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *random;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) % below;
}

static int create(struct actor *actor, struct weft_context *context, const void *state)
{
    struct weft_piece tensor = {actor->model, ELEMENTS};
    struct weft_pair_average_config pair;
    struct weft_gossip_config gossip;
    if (actor->story->pairs) {
        weft_pair_average_config_init(&pair);
        pair.dtype = WEFT_F64;
        pair.tensors = &tensor;
        pair.tensor_count = 1;
        pair.initial = state ? WEFT_INITIAL_SAME : WEFT_INITIAL_ANY; /* a state is not compared */
        pair.seed = actor->story->seed;
        pair.state = state;
        return weft_pair_average_create(&actor->pair, context, &pair);
    }
    weft_gossip_config_init(&gossip);
    gossip.dtype = WEFT_F64;
    gossip.tensors = &tensor;
    gossip.tensor_count = 1;
    gossip.initial = state ? WEFT_INITIAL_SAME : WEFT_INITIAL_ANY;
    gossip.graph = actor->story->graph;
    gossip.state = state;
    return weft_gossip_create(&actor->gossip, context, &gossip);
}

static int leaves(const struct actor *actor, struct weft_context *context)
{
    return actor->rank == actor->story->victim && weft_context_now(context) >= actor->until;
}

static int step(struct actor *actor, struct weft_context *context)
{
    int pairs = actor->story->pairs;
    int status = pairs ? weft_pair_average_post(actor->pair) : weft_gossip_post(actor->gossip);
    if (status)
        return status;
    weft_context_sleep(context, 1 + draw(&actor->random, 100000));
    if (leaves(actor, context))
        return WEFT_ERR_CANCELLED;
    return pairs ? weft_pair_average_wait(actor->pair) : weft_gossip_wait(actor->gossip);
}

/* As many steps, now and then a synchronisation. */
static int live(struct actor *actor, struct weft_context *context, uint64_t steps)
{
    int status = WEFT_OK;
    for (uint64_t s = 0; s < steps && !status; s++) {
        weft_context_sleep(context, 1 + draw(&actor->random, 200000));
        status = leaves(actor, context) ? WEFT_ERR_CANCELLED : step(actor, context);
        if (!status && actor->story->pairs && s % 5 == 4)
            status = weft_pair_average_synchronise(actor->pair);
    }
    return status;
}

static double mean_of(const struct actor *actor)
{
    for (int i = 0; i < ELEMENTS; i++)
        cr_assert(actor->model[i] > -1e-9 && actor->model[i] < 1 + 1e-9,
                  "seed %llu: rank %d has %g", (unsigned long long)actor->story->seed, actor->rank,
                  actor->model[i]);
    double sum = 0;
    for (int i = 0; i < ELEMENTS; i++)
        sum += actor->model[i] / ELEMENTS;
    return sum;
}

static void go_on(struct actor *actor, struct weft_context *context)
{
    struct story *story = actor->story;
    struct weft_gossip_state gossip = {.struct_size = sizeof gossip};
    struct weft_pair_average_state pair = {.struct_size = sizeof pair};
    struct weft_context *left;
    struct weft_gossip *old_gossip = actor->gossip;
    struct weft_pair_average *old_pair = actor->pair;
    int ranks[MOST], count = 0;
    if (story->pairs)
        OK(weft_pair_average_get_state(actor->pair, &pair));
    else
        OK(weft_gossip_get_state(actor->gossip, &gossip));
    for (int r = 0; r < story->ranks; r++)
        if (r != story->victim)
            ranks[count++] = r;
    story->before[actor->rank] = mean_of(actor);
    OK(weft_context_subset(context, ranks, count, 1, &left));
    OK(create(actor, left, story->pairs ? (void *)&pair : (void *)&gossip));
    weft_pair_average_destroy(old_pair);
    weft_gossip_destroy(old_gossip);
    story->next[actor->rank] =
        story->pairs ? weft_pair_average_next(actor->pair) : weft_gossip_next(actor->gossip);
    CHECK(story->next[actor->rank] >= (story->pairs ? pair.next : gossip.next));
    OK(live(actor, left, MORE));
    if (story->pairs)
        OK(weft_pair_average_synchronise(actor->pair));
    story->after[actor->rank] = mean_of(actor);
}

static int enter(struct weft_context *context, void *user)
{
    struct story *story = user;
    struct actor *actor = calloc(1, sizeof *actor);
    CHECK(actor);
    actor->story = story;
    actor->rank = weft_context_rank(context);
    actor->random = story->seed * 100 + (uint64_t)actor->rank;

    for (int i = 0; i < ELEMENTS; i++)
        actor->model[i] = (double)draw(&actor->random, 1000) / 999;
    OK(create(actor, context, NULL));
    actor->until = weft_context_now(context) + story->moment_ns;
    int status = live(actor, context, STEPS);
    if (actor->rank == story->victim) {
        story->gone = status == WEFT_ERR_CANCELLED;
        status = WEFT_ERR_CANCELLED;
        if (story->pairs)
            OK(weft_pair_average_fail(actor->pair, status, "this rank goes"));
        else
            OK(weft_gossip_fail(actor->gossip, status, "this rank goes"));
    } else {
        while (!status) /* until it has gone */
            status = step(actor, context);
        CHECK_STATUS(status, WEFT_ERR_PEER);
        go_on(actor, context);
    }
    weft_pair_average_destroy(actor->pair);
    weft_gossip_destroy(actor->gossip);
    free(actor);
    return WEFT_OK;
}

static void tell(uint64_t seed, int pairs, int *gone)
{
    uint64_t random = seed;
    struct story story = {.seed = seed, .pairs = pairs};
    struct weft_virtual_config config;
    double before = 0, after = 0;
    uint64_t next = 0;
    weft_virtual_config_init(&config);
    story.ranks = 2 + (int)draw(&random, MOST - 1);
    story.victim = (int)draw(&random, (uint64_t)story.ranks);
    story.graph = (weft_gossip_graph_t)draw(&random, 2);
    story.moment_ns = 1000000 + draw(&random, 2000000); /* after the creation */
    config.seed = seed;
    config.shuffle = 1;
    config.delay_ns = 30000;
    config.heavy_share = 0.1;
    config.heavy_ns = 300000;
    OK(weft_virtual_run(story.ranks, &config, enter, &story));
    for (int r = 0; r < story.ranks; r++) {
        before += story.before[r];
        after += story.after[r];
        next = story.next[r] > next ? story.next[r] : next;
    }
    cr_assert_float_eq(before, after, 1e-9, "seed %llu: the models add up to %.12g, then %.12g",
                       (unsigned long long)seed, before, after);
    for (int r = 0; r < story.ranks && !pairs; r++)
        cr_assert(r == story.victim || story.next[r] == next);
    *gone += story.gone;
}

Test(gossip_again, goes_on_with_the_models_that_are_left, .timeout = 140)
{
    int gone = 0;
    for (uint64_t seed = 1; seed <= SWEPT(300, 60); seed++)
        tell(seed, 0, &gone);
    cr_assert_gt(gone, SWEPT(100, 20));
}

Test(gossip_again, pairs_go_on_with_the_models_that_are_left, .timeout = 140)
{
    int gone = 0;
    for (uint64_t seed = 1; seed <= SWEPT(300, 60); seed++)
        tell(seed, 1, &gone);
    cr_assert_gt(gone, SWEPT(100, 20));
}
