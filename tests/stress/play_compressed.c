/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compressed averaging in a play: the means of a step are the same bits on all ranks, and no
 * further from those of the gradients than the method may be; where residuals are kept nothing is
 * lost. All ranks are in the phases in which they should be, and all votes are counted.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compression.h"
#include "play.h"

enum { TENSORS = 6, COUNT = 101 };

static const size_t counts[TENSORS] = {24, 0, 3, 18, 24, 32};
static const struct weft_tensor_shape shapes[TENSORS] = {
    {WEFT_TENSOR_DENSE, 6, 4, 0, 0},  {WEFT_TENSOR_VECTOR, 0, 0, 0, 0},
    {WEFT_TENSOR_VECTOR, 3, 0, 0, 0}, {WEFT_TENSOR_OIHW, 3, 1, 2, 3},
    {WEFT_TENSOR_OHWI, 4, 2, 3, 1},   {WEFT_TENSOR_HWIO, 4, 2, 2, 2}};

/* What a rank has seen of a step. */
struct seen {
    float mean[COUNT], residual[COUNT];
    weft_compressed_phase_t phase;
    int votes;
    double loss;
};

struct compressed {
    struct compression compression;
    int split;
    struct seen seen[PLAY_RANKS][PLAY_STEPS];
};

struct actor {
    struct play_actor base;
    struct weft_compressed_average *average;
    struct weft_compressed_average_result result;
    float data[COUNT];
};

static float gradient(const struct play_object *object, int rank, int step, int i)
{
    const struct compressed *compressed = object->settings;
    size_t tensor = 0, end = counts[0];
    if (!compressed->compression.planted)
        return compression_gradient(object->seed, rank, step, (size_t)i);
    while ((size_t)i >= end)
        end += counts[++tensor];
    return compression_planted(object->seed, rank, step, tensor, (size_t)i);
}

static void draw(struct play_object *object, uint64_t *random)
{
    struct compressed *compressed = play_take(1, sizeof *compressed);
    struct weft_compressed_average_config *config = &compressed->compression.config;
    compression_draw(&compressed->compression, random);
    config->shapes = shapes;
    compressed->split = play_below(random, 2);
    PLAY_TIMES(object, config);
    object->settings = compressed;
}

static int begin(struct play_object *object, struct weft_context *context, int rank)
{
    struct compressed *compressed = object->settings;
    struct actor *actor = play_actor_make(object, context, rank, sizeof *actor);
    struct weft_compressed_average_config config = compressed->compression.config;
    struct weft_piece tensors[TENSORS];
    float *data = actor->data;
    for (int t = 0; t < TENSORS; t++) {
        tensors[t] = (struct weft_piece){data, counts[t]};
        data += counts[t];
    }
    config.tensors = tensors;
    config.tensor_count = TENSORS;
    actor->result.struct_size = sizeof actor->result;
    return weft_compressed_average_create(&actor->average, context, &config);
}

static int wait(void *of)
{
    struct actor *actor = of;
    return weft_compressed_average_wait(actor->average, &actor->result);
}

static int see(struct actor *actor, struct seen *seen)
{
    struct weft_compressed_average_state state = {.struct_size = sizeof state};
    int status = weft_compressed_average_get_state(actor->average, &state);
    memcpy(seen->mean, actor->data, sizeof seen->mean);
    if (status == WEFT_OK && state.residual)
        memcpy(seen->residual, state.residual, sizeof seen->residual);
    seen->phase = actor->result.phase;
    seen->votes = actor->result.votes;
    seen->loss = actor->result.loss;
    return status;
}

static int step(struct play_object *object, int rank, int step)
{
    struct compressed *compressed = object->settings;
    struct actor *actor = object->actors[rank];
    int status;
    play_actor_sleep(&actor->base);
    for (int i = 0; i < COUNT; i++)
        actor->data[i] = gradient(object, rank, step, i);
    if (compressed->split) {
        status = weft_compressed_average_post(actor->average);
        play_actor_sleep(&actor->base);
        if (status == WEFT_OK)
            status = play_actor_wait(&actor->base, wait(actor), wait, actor);
    } else {
        status = play_actor_wait(&actor->base,
                                 weft_compressed_average_step(actor->average, &actor->result), wait,
                                 actor);
    }
    return status ? status : see(actor, &compressed->seen[rank][step]);
}

static int fail(struct play_object *object, int rank, int status, const char *text)
{
    struct actor *actor = object->actors[rank];
    return weft_compressed_average_fail(actor->average, status, text);
}

static int end(struct play_object *object, int rank)
{
    struct actor *actor = object->actors[rank];
    return play_actor_end(object, rank, weft_compressed_average_destroy(actor->average));
}

/* ---- judgement ---- */

/* All that have taken the step have the same. Returns one of them, -1 if there are none, -2 if they
 * have not. */
static int judge_same(const struct play_object *object, int step, char text[PLAY_TEXT])
{
    const struct compressed *compressed = object->settings;
    int first = -1;
    for (int r = 0; r < object->ranks; r++) {
        const struct seen *seen = &compressed->seen[r][step], *other;
        if (step >= object->taken[r])
            continue;
        first = first < 0 ? r : first;
        other = &compressed->seen[first][step];
        if (memcmp(seen->mean, other->mean, sizeof seen->mean) != 0 ||
            seen->phase != other->phase || seen->votes != other->votes) {
            snprintf(text, PLAY_TEXT,
                     "step %d: the mean (phase, votes) of rank %d is not that of rank %d", step, r,
                     first);
            return -2;
        }
    }
    return first;
}

static int judge_element(const struct play_object *object, int step, int first, int i,
                         char text[PLAY_TEXT])
{
    const struct compressed *compressed = object->settings;
    const struct compression *compression = &compressed->compression;
    const struct seen *seen = &compressed->seen[first][step];
    const double most = compression->planted ? 2 : 128;
    const double got = (double)seen->mean[i] * object->ranks;
    const double bound = compression_bound(compression, seen->phase, step, object->ranks, most);
    double sum = 0, left = 0, size = 0;
    int all = compression_keeps(compression);
    for (int r = 0; r < object->ranks; r++) {
        const double before = step ? (double)compressed->seen[r][step - 1].residual[i] : 0;
        const double after = (double)compressed->seen[r][step].residual[i];
        const double value = (double)gradient(object, r, step, i);
        all &= step < object->taken[r];
        sum += value;
        left += value + before - after;
        size += fabs(value) + fabs(before) + fabs(after);
    }
    if (bound >= 0 && !(fabs(got - sum) <= bound)) {
        snprintf(text, PLAY_TEXT,
                 "step %d: element %d adds up to %.9g, expected %.9g, give or take %g", step, i,
                 got, sum, bound);
        return 0;
    }
    /* Components of others in a slice have a part in rounding. */
    const double rounding = 0x1p-13 * (size + most * object->ranks);
    if (all && !(fabs(got - left) <= rounding)) {
        snprintf(text, PLAY_TEXT,
                 "step %d: element %d adds up to %.9g, of gradients and residuals it is %.9g", step,
                 i, got, left);
        return 0;
    }
    return 1;
}

/* Of a compressed step: ranks have voted whose loss was beyond the bound in the step before. */
static int judge_votes(const struct play_object *object, int step, int votes, char text[PLAY_TEXT])
{
    const struct compressed *compressed = object->settings;
    const double bound = compressed->compression.gradiveq.loss_bound;
    int expected = 0;
    for (int r = 0; r < object->ranks; r++) {
        const struct seen *before = step ? &compressed->seen[r][step - 1] : NULL;
        if (step > object->taken[r])
            return 1; /* nobody knows what it has seen */
        expected += before && before->phase == WEFT_COMPRESSED_COMPRESSED && bound > 0 &&
                    before->loss > bound;
    }
    if (compressed->compression.config.method != WEFT_COMPRESSED_GRADIVEQ || votes == expected)
        return 1;
    snprintf(text, PLAY_TEXT, "step %d: %d votes, expected %d", step, votes, expected);
    return 0;
}

static int judge(struct play_object *object, char text[PLAY_TEXT])
{
    const struct compressed *compressed = object->settings;
    struct compression_phases phases;
    compression_phases_begin(&phases, &compressed->compression);
    for (int step = 0; step < PLAY_STEPS; step++) {
        const int first = judge_same(object, step, text);
        if (first < 0)
            return first == -1;
        const struct seen *seen = &compressed->seen[first][step];
        if (seen->phase != phases.phase) {
            snprintf(text, PLAY_TEXT, "step %d: %s, expected %s", step,
                     weft_compressed_phase_name(seen->phase),
                     weft_compressed_phase_name(phases.phase));
            return 0;
        }
        for (int i = 0; i < COUNT; i++)
            if (!judge_element(object, step, first, i, text))
                return 0;
        if (seen->phase == WEFT_COMPRESSED_COMPRESSED &&
            !judge_votes(object, step, seen->votes, text))
            return 0;
        compression_phases_step(&phases, seen->votes, object->ranks);
    }
    return 1;
}

const struct play_kind play_compressed = {
    .name = "compressed",
    .waits = 1,
    .needs_all = 1,
    .draw = draw,
    .begin = begin,
    .step = step,
    .fail = fail,
    .end = end,
    .judge = judge,
};
