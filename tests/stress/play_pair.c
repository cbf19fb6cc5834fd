/* SPDX-License-Identifier: BSD-3-Clause */
/* Averaging in pairs in a play: exchanges keep the sum of all models, so the mean at the end is
 * that of what the ranks have added. */
#include <math.h>
#include <stdio.h>

#include "play.h"

enum { COUNT = 6 };

struct pair {
    struct weft_pair_average_config config;
    int synchronises; /* 1: the ranks end by taking the mean */
    double mean[PLAY_RANKS][COUNT];
    int ended[PLAY_RANKS]; /* 1: with the mean */
};

struct actor {
    struct play_actor base;
    struct weft_pair_average *average;
    double model[COUNT];
};

static double addend(int rank, int step, int i)
{
    return (rank + 1) * (step + 1) * (i + 1);
}

static void draw(struct play_object *object, uint64_t *random)
{
    struct pair *pair = play_take(1, sizeof *pair);
    weft_pair_average_config_init(&pair->config);
    pair->config.dtype = WEFT_F64;
    pair->config.seed = play_random(random);
    PLAY_TIMES(object, &pair->config);
    pair->synchronises = play_below(random, 2);
    object->settings = pair;
}

static int begin(struct play_object *object, struct weft_context *context, int rank)
{
    struct pair *pair = object->settings;
    struct actor *actor = play_actor_make(object, context, rank, sizeof *actor);
    struct weft_pair_average_config config = pair->config;
    struct weft_piece tensor = {actor->model, COUNT};
    config.tensors = &tensor;
    config.tensor_count = 1;
    return weft_pair_average_create(&actor->average, context, &config);
}

static int wait(void *of)
{
    return weft_pair_average_wait(of);
}

static void add(struct actor *actor, int rank, int step)
{
    for (int i = 0; i < COUNT; i++)
        actor->model[i] += addend(rank, step, i) / 2;
}

static int exchange(struct actor *actor, int rank, int step)
{
    play_actor_sleep(&actor->base);
    add(actor, rank, step);
    if (play_below(&actor->base.random, 2)) {
        add(actor, rank, step);
        return play_actor_wait(&actor->base, weft_pair_average_step(actor->average), wait,
                               actor->average);
    }
    int status = weft_pair_average_post(actor->average);
    add(actor, rank, step);
    play_actor_sleep(&actor->base);
    if (status != WEFT_OK)
        return status;
    return play_actor_wait(&actor->base, weft_pair_average_wait(actor->average), wait,
                           actor->average);
}

/* Whether nobody has left before, without whom there is no mean. */
static int all_are_here(const struct play_object *object)
{
    for (int r = 0; r < object->ranks; r++)
        if (object->steps[r] != object->steps[0])
            return 0;
    return 1;
}

static int step(struct play_object *object, int rank, int step)
{
    struct pair *pair = object->settings;
    struct actor *actor = object->actors[rank];
    int status = exchange(actor, rank, step);
    if (status != WEFT_OK || step + 1 < object->steps[rank] || !pair->synchronises ||
        !all_are_here(object))
        return status;
    status = weft_pair_average_synchronise(actor->average);
    pair->ended[rank] = status == WEFT_OK;
    for (int i = 0; i < COUNT; i++)
        pair->mean[rank][i] = actor->model[i];
    return status;
}

static int fail(struct play_object *object, int rank, int status, const char *text)
{
    struct actor *actor = object->actors[rank];
    return weft_pair_average_fail(actor->average, status, text);
}

static int end(struct play_object *object, int rank)
{
    struct actor *actor = object->actors[rank];
    return play_actor_end(object, rank, weft_pair_average_destroy(actor->average));
}

static int judge(struct play_object *object, char text[PLAY_TEXT])
{
    struct pair *pair = object->settings;
    double mean[COUNT] = {0};
    int first = -1;
    for (int r = 0; r < object->ranks; r++)
        for (int t = 0; t < object->steps[r]; t++)
            for (int i = 0; i < COUNT; i++)
                mean[i] += addend(r, t, i) / object->ranks;
    for (int r = 0; r < object->ranks; r++) {
        if (!pair->ended[r])
            continue;
        first = first < 0 ? r : first;
        for (int i = 0; i < COUNT; i++)
            if (pair->mean[r][i] != pair->mean[first][i] ||
                !(fabs(pair->mean[r][i] - mean[i]) <= 1e-9 * mean[i])) {
                snprintf(text, PLAY_TEXT,
                         "rank %d: the mean is %.17g, on rank %d %.17g, expected "
                         "%.17g",
                         r, pair->mean[r][i], first, pair->mean[first][i], mean[i]);
                return 0;
            }
    }
    return 1;
}

const struct play_kind play_pair = {
    .name = "pair",
    .waits = 2,
    .needs_all = 1,
    .leaves = 1,
    .draw = draw,
    .begin = begin,
    .step = step,
    .fail = fail,
    .end = end,
    .judge = judge,
};
