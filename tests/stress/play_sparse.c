/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse averaging in a play: every step of every rank is compared with the plain computation of
 * support/sparse_reference.h, bit by bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "play.h"
#include "support/sparse_reference.h"

enum { TENSORS = 3, COUNT = 40 };

static const size_t counts[TENSORS] = {9, 0, 31};

enum how { STEP, SPLIT, TENSORWISE };

struct sparse {
    struct weft_sparse_average_config config;
    float mean[PLAY_RANKS][PLAY_STEPS][COUNT]; /* of each step */
};

struct actor {
    struct play_actor base;
    struct weft_sparse_average *average;
    float data[COUNT];
    size_t tensor;
};

static void lay_out(struct weft_piece tensors[TENSORS], float *data)
{
    for (int t = 0; t < TENSORS; t++) {
        tensors[t] = (struct weft_piece){data, counts[t]};
        data += counts[t];
    }
}

/* Numbers that differ in magnitude, with zeros and ties among them. */
static float gradient(const struct play_object *object, int rank, int step, int i)
{
    uint64_t state = object->seed + (uint64_t)((rank * PLAY_STEPS + step) * COUNT + i) * 977;
    uint64_t bits = play_random(&state);
    if (bits % 11 == 0)
        return 0;
    if (bits % 13 == 0)
        return bits & 1 << 20 ? 0.25f : -0.25f;
    return (float)((double)(int64_t)play_random(&state) * 0x1p-63 * (double)(1 << bits % 8));
}

static void draw(struct play_object *object, uint64_t *random)
{
    static const weft_sparse_method_t methods[] = {WEFT_SPARSE_GTOPK, WEFT_SPARSE_GTOPK_BUTTERFLY,
                                                   WEFT_SPARSE_ALLGATHER, WEFT_SPARSE_OKTOPK};
    struct sparse *sparse = play_take(1, sizeof *sparse);
    struct weft_sparse_average_config *config = &sparse->config;
    weft_sparse_average_config_init(config);
    config->method = methods[play_below(random, 4)];
    config->scope = play_below(random, 2) ? WEFT_SPARSE_MODEL : WEFT_SPARSE_TENSOR;
    config->residual = config->method == WEFT_SPARSE_OKTOPK || play_below(random, 2)
                           ? WEFT_SPARSE_CONSERVING
                           : WEFT_SPARSE_PAPER;
    config->k = 1 + (size_t)play_below(random, 9);
    config->threshold_steps = 1 + (uint64_t)play_below(random, 3);
    config->balance_steps = 1 + (uint64_t)play_below(random, 3);
    config->momentum = play_below(random, 3) ? 0 : 0.5;
    PLAY_TIMES(object, config);
    object->settings = sparse;
}

static enum how how_of(const struct play_object *object)
{
    const struct sparse *sparse = object->settings;
    if (sparse->config.scope == WEFT_SPARSE_TENSOR && object->seed % 2)
        return TENSORWISE;
    return object->seed % 4 < 2 ? STEP : SPLIT;
}

static int begin(struct play_object *object, struct weft_context *context, int rank)
{
    struct sparse *sparse = object->settings;
    struct actor *actor = play_actor_make(object, context, rank, sizeof *actor);
    struct weft_sparse_average_config config = sparse->config;
    struct weft_piece tensors[TENSORS];
    lay_out(tensors, actor->data);
    config.tensors = tensors;
    config.tensor_count = TENSORS;
    return weft_sparse_average_create(&actor->average, context, &config);
}

static int wait(void *of)
{
    return weft_sparse_average_wait(of, NULL);
}

static int wait_tensor(void *of)
{
    struct actor *actor = of;
    return weft_sparse_average_wait_tensor(actor->average, actor->tensor, NULL);
}

/* Tensor by tensor, in an order of the rank's own. */
static int tensorwise(struct actor *actor, int rank)
{
    int status = WEFT_OK;
    for (size_t i = 0; i < TENSORS && status == WEFT_OK; i++) {
        play_actor_sleep(&actor->base);
        status = weft_sparse_average_post_tensor(actor->average, ((size_t)rank + i) % TENSORS);
    }
    for (size_t i = 0; i < TENSORS && status == WEFT_OK; i++) {
        actor->tensor = i;
        status = play_actor_wait(&actor->base, wait_tensor(actor), wait_tensor, actor);
    }
    return status;
}

static int step(struct play_object *object, int rank, int step)
{
    struct sparse *sparse = object->settings;
    struct actor *actor = object->actors[rank];
    struct weft_piece tensors[TENSORS];
    int status;
    play_actor_sleep(&actor->base);
    for (int i = 0; i < COUNT; i++)
        actor->data[i] = gradient(object, rank, step, i);
    if (how_of(object) == TENSORWISE) {
        status = tensorwise(actor, rank);
    } else if (how_of(object) == SPLIT) {
        status = weft_sparse_average_post(actor->average);
        play_actor_sleep(&actor->base);
        if (status == WEFT_OK)
            status = play_actor_wait(&actor->base, wait(actor->average), wait, actor->average);
    } else {
        status = play_actor_wait(&actor->base, weft_sparse_average_step(actor->average, NULL), wait,
                                 actor->average);
    }
    if (status == WEFT_OK && how_of(object) != STEP) {
        memset(actor->data, 0, sizeof actor->data);
        lay_out(tensors, actor->data);
        status = weft_sparse_average_apply(actor->average, 1, WEFT_F32, tensors, TENSORS);
    }
    memcpy(sparse->mean[rank][step], actor->data, sizeof actor->data);
    return status;
}

static int fail(struct play_object *object, int rank, int status, const char *text)
{
    struct actor *actor = object->actors[rank];
    return weft_sparse_average_fail(actor->average, status, text);
}

static int end(struct play_object *object, int rank)
{
    struct actor *actor = object->actors[rank];
    return play_actor_end(object, rank, weft_sparse_average_destroy(actor->average));
}

static size_t k_of(void *user, uint64_t step, size_t count)
{
    const struct weft_sparse_average_config *config = user;
    (void)step;
    return config->k < count ? config->k : count;
}

static int compare(const struct play_object *object, const struct sparse_reference *reference,
                   int step, char text[PLAY_TEXT])
{
    const struct sparse *sparse = object->settings;
    float share = (float)(1.0 / object->ranks);
    for (int i = 0; i < COUNT; i++) {
        float sum = reference->sum.present[i] ? reference->sum.value[i] : 0;
        float mean = how_of(object) == STEP ? sum / (float)object->ranks : share * sum;
        for (int r = 0; r < object->ranks; r++)
            if (step < object->taken[r] && sparse->mean[r][step][i] != mean) {
                snprintf(text, PLAY_TEXT, "rank %d, step %d: element %d is %.9g, expected %.9g", r,
                         step, i, (double)sparse->mean[r][step][i], (double)mean);
                return 0;
            }
    }
    return 1;
}

static int judge(struct play_object *object, char text[PLAY_TEXT])
{
    struct sparse *sparse = object->settings;
    struct weft_sparse_average_config config = sparse->config;
    struct weft_piece tensors[TENSORS];
    struct sparse_reference reference;
    float *gradients[PLAY_RANKS], none[COUNT];
    int right = 1, most = 0;
    lay_out(tensors, none);
    config.tensors = tensors;
    config.tensor_count = TENSORS;
    sparse_reference_init(&reference, object->ranks, &config);
    for (int r = 0; r < object->ranks; r++) {
        gradients[r] = play_take(COUNT, sizeof *gradients[r]);
        most = object->taken[r] > most ? object->taken[r] : most;
    }
    for (int t = 0; t < most && right; t++) {
        for (int r = 0; r < object->ranks; r++)
            for (int i = 0; i < COUNT; i++)
                gradients[r][i] = gradient(object, r, t, i);
        sparse_reference_step(&reference, (uint64_t)t, k_of, &config, gradients);
        right = compare(object, &reference, t, text);
    }
    for (int r = 0; r < object->ranks; r++)
        free(gradients[r]);
    sparse_reference_free(&reference);
    return right;
}

const struct play_kind play_sparse = {
    .name = "sparse",
    .waits = 3,
    .needs_all = 1,
    .draw = draw,
    .begin = begin,
    .step = step,
    .fail = fail,
    .end = end,
    .judge = judge,
};
