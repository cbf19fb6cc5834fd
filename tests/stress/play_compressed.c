/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed averaging in a play: the means of a step are the same bits on all ranks, and no
 * further from those of the gradients than the method may be. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "play.h"

enum { TENSORS = 4, COUNT = 45, BUCKET = 8 };

static const size_t counts[TENSORS] = {24, 0, 3, 18};
static const struct weft_tensor_shape shapes[TENSORS] = {{WEFT_TENSOR_DENSE, 6, 4, 0, 0},
                                                         {WEFT_TENSOR_VECTOR, 0, 0, 0, 0},
                                                         {WEFT_TENSOR_VECTOR, 3, 0, 0, 0},
                                                         {WEFT_TENSOR_OIHW, 3, 1, 2, 3}};

struct compressed {
    struct weft_compressed_average_config config;
    struct weft_quantiser quantiser;
    struct weft_powersgd_config powersgd;
    int split;
    float mean[PLAY_RANKS][PLAY_STEPS][COUNT]; /* of each step */
};

struct actor {
    struct play_actor base;
    struct weft_compressed_average *average;
    float data[COUNT];
};

/* Numbers that differ in magnitude, up to 128, with zeros among them. */
static float gradient(const struct play_object *object, int rank, int step, int i)
{
    uint64_t state = object->seed + (uint64_t)((rank * PLAY_STEPS + step) * COUNT + i) * 977;
    uint64_t bits = play_random(&state);
    if (bits % 11 == 0)
        return 0;
    return (float)((double)(int64_t)play_random(&state) * 0x1p-63 * (double)(1 << bits % 8));
}

static void draw(struct play_object *object, uint64_t *random)
{
    static const int bits[] = {2, 4, 8, WEFT_QUANTISE_SIGN};
    struct compressed *compressed = play_take(1, sizeof *compressed);
    struct weft_compressed_average_config *config = &compressed->config;
    weft_compressed_average_config_init(config);
    weft_quantiser_init(&compressed->quantiser);
    weft_powersgd_config_init(&compressed->powersgd);
    config->method = play_below(random, 2) ? WEFT_COMPRESSED_QSGD : WEFT_COMPRESSED_POWERSGD;
    config->qsgd_way = play_below(random, 2) ? WEFT_QSGD_SHARDS : WEFT_QSGD_RING;
    config->residual = (weft_compressed_residual_t)play_below(random, 3);
    config->shapes = shapes;
    config->quantiser = &compressed->quantiser;
    config->powersgd = &compressed->powersgd;
    compressed->quantiser.bits = bits[play_below(random, 4)];
    compressed->quantiser.bucket = BUCKET;
    compressed->powersgd.rank = 1 + (size_t)play_below(random, 4);
    compressed->powersgd.warmup_steps = (uint64_t)play_below(random, 3);
    compressed->powersgd.cold_start = play_below(random, 2);
    compressed->powersgd.least_ratio = 0.1;
    compressed->split = play_below(random, 2);
    PLAY_TIMES(object, config);
    object->settings = compressed;
}

static int begin(struct play_object *object, struct weft_context *context, int rank)
{
    struct compressed *compressed = object->settings;
    struct actor *actor = play_actor_make(object, context, rank, sizeof *actor);
    struct weft_compressed_average_config config = compressed->config;
    struct weft_piece tensors[TENSORS];
    float *data = actor->data;
    for (int t = 0; t < TENSORS; t++) {
        tensors[t] = (struct weft_piece){data, counts[t]};
        data += counts[t];
    }
    config.tensors = tensors;
    config.tensor_count = TENSORS;
    return weft_compressed_average_create(&actor->average, context, &config);
}

static int wait(void *of)
{
    return weft_compressed_average_wait(of, NULL);
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
            status = play_actor_wait(&actor->base, wait(actor->average), wait, actor->average);
    } else {
        status = play_actor_wait(&actor->base, weft_compressed_average_step(actor->average, NULL),
                                 wait, actor->average);
    }
    memcpy(compressed->mean[rank][step], actor->data, sizeof actor->data);
    return status;
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

/* How far the sum of a step may be from that of the gradients, none of which is above `most`; -1:
 * nothing is known, as what was not sent before may come with it, or matrices lose what they do. */
static double bound_of(const struct play_object *object, int step, double most)
{
    const struct compressed *compressed = object->settings;
    const int keeps = compressed->config.residual == WEFT_COMPRESSED_RESIDUAL_KEPT;
    const double ranks = object->ranks, rounding = 0x1p-15 * ranks * most;
    if (compressed->config.method == WEFT_COMPRESSED_POWERSGD)
        return (uint64_t)step < compressed->powersgd.warmup_steps ? rounding
               : keeps || compressed->powersgd.rank < 4 || step   ? -1
                                                                  : rounding;
    if (keeps || compressed->quantiser.bits == WEFT_QUANTISE_SIGN)
        return -1;
    /* Each is quantised to a level of one rank's, then sums to one of at most all ranks'; around a
     * ring sums are quantised P times, and grow by it. */
    const double levels = (1 << (compressed->quantiser.bits - 1)) - 1;
    if (compressed->config.qsgd_way == WEFT_QSGD_SHARDS)
        return most * ranks / levels * (2 + 1 / levels) + rounding;
    return most * ranks * ranks / levels * pow(1 + 1 / levels, ranks) + rounding;
}

static int compare(const struct play_object *object, int step, char text[PLAY_TEXT])
{
    const struct compressed *compressed = object->settings;
    int first = -1;
    for (int r = 0; r < object->ranks; r++) {
        if (step >= object->taken[r])
            continue;
        first = first < 0 ? r : first;
        if (memcmp(compressed->mean[r][step], compressed->mean[first][step],
                   sizeof compressed->mean[r][step]) != 0) {
            snprintf(text, PLAY_TEXT, "step %d: the mean of rank %d is not that of rank %d", step,
                     r, first);
            return 0;
        }
    }
    const double bound = bound_of(object, step, 128);
    for (int i = 0; i < COUNT && first >= 0 && bound >= 0; i++) {
        double sum = 0;
        for (int r = 0; r < object->ranks; r++)
            sum += (double)gradient(object, r, step, i);
        const double got = (double)compressed->mean[first][step][i] * object->ranks;
        if (!(fabs(got - sum) <= bound)) {
            snprintf(text, PLAY_TEXT,
                     "step %d: element %d adds up to %.9g, expected %.9g, give or take %g", step, i,
                     got, sum, bound);
            return 0;
        }
    }
    return 1;
}

static int judge(struct play_object *object, char text[PLAY_TEXT])
{
    for (int step = 0; step < PLAY_STEPS; step++)
        if (!compare(object, step, text))
            return 0;
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
