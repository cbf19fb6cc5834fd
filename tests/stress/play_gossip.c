/* SPDX-License-Identifier: BSD-3-Clause */
/* Gossip in a play: every step of every rank is computed again, all ranks one after the other. */
#include <math.h>
#include <stdio.h>

#include "play.h"

enum { COUNT = 6 };

struct gossip {
    struct weft_gossip_config config;
    double model[PLAY_RANKS][PLAY_STEPS][COUNT]; /* after each step */
};

struct actor {
    struct play_actor base;
    struct weft_gossip *gossip;
    double model[COUNT];
};

static double addend(int rank, int step, int i)
{
    return (rank + 1) * (step + 1) + i;
}

static void draw(struct play_object *object, uint64_t *random)
{
    struct gossip *gossip = play_take(1, sizeof *gossip);
    weft_gossip_config_init(&gossip->config);
    gossip->config.dtype = WEFT_F64;
    gossip->config.graph = play_below(random, 2) ? WEFT_GOSSIP_RING : WEFT_GOSSIP_EXPONENTIAL;
    gossip->config.neighbours = play_below(random, 4);
    PLAY_TIMES(object, &gossip->config);
    object->settings = gossip;
}

static int neighbours(const struct gossip *gossip)
{
    int ring = gossip->config.graph == WEFT_GOSSIP_RING;
    return gossip->config.neighbours ? gossip->config.neighbours : ring ? 2 : 1;
}

static int begin(struct play_object *object, struct weft_context *context, int rank)
{
    struct gossip *gossip = object->settings;
    struct actor *actor = play_actor_make(object, context, rank, sizeof *actor);
    struct weft_gossip_config config = gossip->config;
    struct weft_piece tensor = {actor->model, COUNT};
    config.tensors = &tensor;
    config.tensor_count = 1;
    return weft_gossip_create(&actor->gossip, context, &config);
}

static int wait(void *of)
{
    return weft_gossip_wait(of);
}

/* Half of what a step adds is added while it is under way, if it is taken in two halves. */
static int splits(const struct play_object *object, int rank, int step)
{
    return (int)(object->seed >> (rank + step) % 60 & 1);
}

static void add(struct actor *actor, int rank, int step)
{
    for (int i = 0; i < COUNT; i++)
        actor->model[i] += addend(rank, step, i);
}

static int step(struct play_object *object, int rank, int step)
{
    struct gossip *gossip = object->settings;
    struct actor *actor = object->actors[rank];
    int status;
    play_actor_sleep(&actor->base);
    add(actor, rank, step);
    if (splits(object, rank, step)) {
        status = weft_gossip_post(actor->gossip);
        add(actor, rank, step);
        play_actor_sleep(&actor->base);
        if (status == WEFT_OK)
            status = weft_gossip_wait(actor->gossip);
    } else {
        status = weft_gossip_step(actor->gossip);
    }
    status = play_actor_wait(&actor->base, status, wait, actor->gossip);
    for (int i = 0; i < COUNT; i++)
        gossip->model[rank][step][i] = actor->model[i];
    return status;
}

static int fail(struct play_object *object, int rank, int status, const char *text)
{
    struct actor *actor = object->actors[rank];
    return weft_gossip_fail(actor->gossip, status, text);
}

static int end(struct play_object *object, int rank)
{
    struct actor *actor = object->actors[rank];
    return play_actor_end(object, rank, weft_gossip_destroy(actor->gossip));
}

/* A step of all ranks. */
static void average(const struct play_object *object, int step, double (*models)[COUNT])
{
    const struct gossip *gossip = object->settings;
    double posted[PLAY_RANKS][COUNT];
    int hops[PLAY_RANKS], ranks = object->ranks, many = neighbours(gossip);
    int count = weft_gossip_hops(gossip->config.graph, ranks, many, (uint64_t)step, hops);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < COUNT; i++)
            posted[r][i] = models[r][i] + addend(r, step, i);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < COUNT; i++) {
            models[r][i] = posted[r][i];
            for (int h = 0; h < count; h++)
                models[r][i] += posted[(r + ranks - hops[h]) % ranks][i];
            models[r][i] /= count + 1;
            models[r][i] += splits(object, r, step) ? addend(r, step, i) : 0;
        }
}

static int judge(struct play_object *object, char text[PLAY_TEXT])
{
    const struct gossip *gossip = object->settings;
    double models[PLAY_RANKS][COUNT] = {{0}};
    for (int t = 0; t < PLAY_STEPS; t++) {
        average(object, t, models);
        for (int r = 0; r < object->ranks; r++)
            for (int i = 0; i < COUNT; i++)
                if (t < object->taken[r] &&
                    !(fabs(gossip->model[r][t][i] - models[r][i]) <= 1e-9 * models[r][i])) {
                    snprintf(text, PLAY_TEXT, "rank %d, step %d: %.17g, expected %.17g", r, t,
                             gossip->model[r][t][i], models[r][i]);
                    return 0;
                }
    }
    return 1;
}

const struct play_kind play_gossip = {
    .name = "gossip",
    .waits = 1,
    .needs_all = 1,
    .draw = draw,
    .begin = begin,
    .step = step,
    .fail = fail,
    .end = end,
    .judge = judge,
};
