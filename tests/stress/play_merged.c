/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Merged gradients in a play: layers of any sizes, near each other in memory or not, announced in
 * any order at any time, or absent, under plans that change; sometimes all ranks go on with new
 * objects from a checkpoint. Judged by serial sums, where residuals are kept by what sums and
 * residuals have together; all ranks have the same bits and plans.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compression.h"
#include "play.h"

enum { LAYERS = 8, TENSORS = 16, MOST = 6, MOST_SHAPED = 12, SEED_STEP = 977 };
enum { ELEMENTS = TENSORS * MOST_SHAPED, BYTES = 2048 };

/* How a rank waits. */
enum how { ALL, FORWARD, SOME, HOWS };

struct merged {
    struct weft_gradients_config config;
    struct weft_sparse_average_config sparse;
    struct compression compression;
    struct weft_tensor_shape shapes[TENSORS];
    struct weft_merge_config merge;
    struct weft_merge_cost cost;
    uint64_t ready_ns[LAYERS];
    size_t layer_tensors[LAYERS], group_layers[LAYERS];
    size_t counts[TENSORS];
    size_t elements;
    int measured; /* costs are */
    int exact;    /* gradients are small whole numbers */
    int absents;  /* some layers have no gradients */
    int keeps;    /* residuals */
    int restart;  /* before this step, from a checkpoint; -1: never */
    enum how how;
    /* Of each step. */
    float result[PLAY_RANKS][PLAY_STEPS][ELEMENTS];
    float residual[PLAY_RANKS][PLAY_STEPS][ELEMENTS];
    uint64_t plan[PLAY_RANKS][PLAY_STEPS];
    char wrong[PLAY_TEXT]; /* a call that should have been refused */
};

struct actor {
    struct play_actor base;
    struct weft_gradients *gradients;
    size_t layer; /* that is waited for */
    struct weft_piece tensors[TENSORS];
    char data[BYTES];
};

static uint64_t draw_at(const struct play_object *object, int rank, int step, uint64_t what)
{
    uint64_t state =
        object->seed + ((uint64_t)(rank * PLAY_STEPS + step) * 4096 + what) * SEED_STEP;
    return play_random(&state);
}

/* ---- settings ---- */

static void draw_layers(struct merged *merged, uint64_t *random)
{
    size_t tensor = 0;
    merged->config.layer_count = 1 + (size_t)play_below(random, LAYERS);
    for (size_t l = 0; l < merged->config.layer_count; l++) {
        merged->layer_tensors[l] =
            play_below(random, 3) ? 1 : (size_t)play_below(random, TENSORS / LAYERS + 1);
        for (size_t t = 0; t < merged->layer_tensors[l]; t++, tensor++) {
            merged->counts[tensor] = (size_t)play_below(random, 1 + MOST);
            merged->elements += merged->counts[tensor];
        }
    }
    merged->config.tensor_count = tensor;
}

static void draw_merge(struct merged *merged, uint64_t *random)
{
    static const weft_merge_method_t methods[] = {
        WEFT_MERGE_EXACT,  WEFT_MERGE_EXACT,   WEFT_MERGE_GREEDY, WEFT_MERGE_WFBP,
        WEFT_MERGE_SINGLE, WEFT_MERGE_BUCKETS, WEFT_MERGE_GIVEN};
    struct weft_merge_config *merge = &merged->merge;
    size_t left = merged->config.layer_count;
    weft_merge_config_init(merge);
    merge->method = methods[play_below(random, 7)];
    if (merge->method == WEFT_MERGE_BUCKETS)
        merge->bucket_bytes = 4 + (size_t)play_below(random, 200);
    if (merge->method != WEFT_MERGE_GIVEN)
        return;
    while (left > 0) {
        size_t layers = 1 + (size_t)play_below(random, (int)left);
        merged->group_layers[merge->group_count++] = layers;
        left -= layers;
    }
    merge->group_layers = merged->group_layers;
}

static void draw_sparse(struct merged *merged, uint64_t *random)
{
    static const weft_sparse_method_t methods[] = {WEFT_SPARSE_GTOPK, WEFT_SPARSE_GTOPK_BUTTERFLY,
                                                   WEFT_SPARSE_ALLGATHER, WEFT_SPARSE_OKTOPK};
    weft_sparse_average_config_init(&merged->sparse);
    merged->sparse.method = methods[play_below(random, 4)];
    if (play_below(random, 2))
        merged->sparse.k = 1 + (size_t)play_below(random, 9);
    else
        merged->sparse.density = 0.3;
    merged->sparse.threshold_steps = 1 + (uint64_t)play_below(random, 3);
    merged->sparse.balance_steps = 1 + (uint64_t)play_below(random, 3);
    merged->config.method = WEFT_GRADIENTS_SPARSE;
    merged->config.dtype = WEFT_F32;
    merged->config.sparse = &merged->sparse;
    merged->keeps = 1;
}

/* Tensors get shapes, and the elements of these. */
static void draw_shapes(struct merged *merged, uint64_t *random)
{
    static const struct weft_tensor_shape shapes[] = {
        {WEFT_TENSOR_DENSE, 3, 2, 0, 0}, {WEFT_TENSOR_DENSE, 3, 4, 0, 0},
        {WEFT_TENSOR_OIHW, 2, 1, 1, 3},  {WEFT_TENSOR_OIHW, 2, 2, 3, 1},
        {WEFT_TENSOR_OHWI, 3, 2, 2, 1},  {WEFT_TENSOR_HWIO, 2, 1, 3, 2}};
    merged->elements = 0;
    for (size_t t = 0; t < merged->config.tensor_count; t++) {
        struct weft_tensor_shape *shape = &merged->shapes[t];
        if (play_below(random, 3)) {
            *shape = shapes[play_below(random, sizeof shapes / sizeof *shapes)];
            merged->counts[t] = shape->outputs * shape->inputs;
            if (shape->layout != WEFT_TENSOR_DENSE)
                merged->counts[t] *= shape->height * shape->width;
        }
        merged->elements += merged->counts[t];
    }
}

static void draw_compressed(struct merged *merged, uint64_t *random)
{
    static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F32, WEFT_F16, WEFT_BF16};
    struct compression *compression = &merged->compression;
    compression_draw(compression, random);
    draw_shapes(merged, random);
    compression->config.shapes = merged->shapes;
    merged->config.method = WEFT_GRADIENTS_COMPRESSED;
    merged->config.dtype = compression->planted ? WEFT_F32 : dtypes[play_below(random, 4)];
    merged->config.compressed = &compression->config;
    merged->keeps = compression_keeps(compression);
}

static void draw_dense(struct merged *merged, uint64_t *random)
{
    static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F32, WEFT_F16, WEFT_BF16};
    merged->config.dtype = dtypes[play_below(random, 4)];
    merged->config.wire_dtype = dtypes[play_below(random, 4)];
    merged->exact = play_below(random, 3) > 0;
}

/* Whose object has failed, or is left, alone comes to no meeting: the others would wait. */
static int may_restart(const struct play *play)
{
    int may = 1;
    for (int e = 0; e < play->event_count; e++) {
        const enum play_deed deed = play->events[e].deed;
        may &= deed == PLAY_ABORT || deed == PLAY_ERROR || deed == PLAY_RUN || deed == PLAY_PAUSE;
    }
    return may;
}

static void draw(struct play_object *object, uint64_t *random)
{
    struct merged *merged = play_take(1, sizeof *merged);
    struct weft_gradients_config *config = &merged->config;
    weft_gradients_config_init(config);
    draw_layers(merged, random);
    draw_merge(merged, random);
    switch (play_below(random, 4)) {
    case 0:
        draw_sparse(merged, random);
        break;
    case 1:
        draw_compressed(merged, random);
        break;
    default:
        draw_dense(merged, random);
    }
    config->layer_tensors = merged->layer_tensors;
    config->merge = &merged->merge;
    config->reduction = play_below(random, 2) ? WEFT_GRADIENTS_AVERAGE : WEFT_GRADIENTS_SUM;
    config->missing =
        play_below(random, 2) ? WEFT_GRADIENTS_MISSING_ERROR : WEFT_GRADIENTS_MISSING_ZERO;
    config->measure_steps = 1 + (uint64_t)play_below(random, 2);
    config->check_steps = 1 + (uint64_t)play_below(random, 3);
    config->gain = 1e-9;
    merged->measured = !object->deadline_ns && play_below(random, 4) == 0;
    weft_merge_cost_init(&merged->cost);
    merged->cost.a_us = (double)play_below(random, 20);
    merged->cost.b_us_per_byte = (double)play_below(random, 200) * 1e-3;
    config->cost = merged->measured ? NULL : &merged->cost;
    for (size_t l = 0; l < config->layer_count; l++)
        merged->ready_ns[l] = 1000 * (uint64_t)play_below(random, 500);
    config->ready_ns = play_below(random, 4) ? NULL : merged->ready_ns;
    merged->absents = !merged->compression.planted && play_below(random, 2);
    merged->restart = play_below(random, 2) ? -1 : 1 + play_below(random, PLAY_STEPS - 1);
    if (!may_restart(object->play))
        merged->restart = -1;
    merged->how = (enum how)play_below(random, HOWS);
    PLAY_TIMES(object, config);
    object->settings = merged;
}

/* ---- a rank ---- */

/* Tensors lie one behind the other, apart, or the wrong way round: each rank has its own way. */
static void lay_out(const struct play_object *object, struct actor *actor, int rank)
{
    const struct merged *merged = object->settings;
    const struct weft_gradients_config *config = &merged->config;
    size_t size = weft_dtype_size(config->dtype);
    uint64_t way = draw_at(object, rank, 0, 1) % 4;
    char *at = actor->data;
    for (size_t i = 0; i < config->tensor_count; i++) {
        size_t t = way == 2 ? config->tensor_count - 1 - i : i;
        actor->tensors[t] = (struct weft_piece){at, merged->counts[t]};
        at += merged->counts[t] * size + (way == 1 || (way == 3 && i % 3 == 0) ? size : 0);
    }
}

static int begin(struct play_object *object, struct weft_context *context, int rank)
{
    struct merged *merged = object->settings;
    struct actor *actor = play_actor_make(object, context, rank, sizeof *actor);
    struct weft_gradients_config config = merged->config;
    lay_out(object, actor, rank);
    config.tensors = actor->tensors;
    return weft_gradients_create(&actor->gradients, context, &config);
}

static int is_absent(const struct play_object *object, int rank, int step, size_t layer)
{
    const struct merged *merged = object->settings;
    return merged->absents && draw_at(object, rank, step, 100 + layer) % 5 == 0;
}

static size_t tensor_of(const struct merged *merged, size_t element)
{
    size_t tensor = 0, end = merged->counts[0];
    while (element >= end)
        end += merged->counts[++tensor];
    return tensor;
}

static float gradient(const struct play_object *object, int rank, int step, size_t layer,
                      size_t element)
{
    const struct merged *merged = object->settings;
    uint64_t bits = draw_at(object, rank, step, 200 + element);
    if (is_absent(object, rank, step, layer))
        return 0;
    if (merged->exact)
        return (float)((int)(bits % 7) - 3);
    if (merged->compression.planted)
        return compression_planted(object->seed, rank, step, tensor_of(merged, element), element);
    float value = (float)((double)(int64_t)(bits * UINT64_C(0x9e3779b97f4a7c15)) * 0x1p-63);
    uint32_t narrow; /* as it can lie in the tensors */
    weft_convert(merged->config.dtype, &narrow, WEFT_F32, &value, 1);
    weft_convert(WEFT_F32, &value, merged->config.dtype, &narrow, 1);
    return value;
}

static void set_layer(const struct play_object *object, struct actor *actor, int rank, int step,
                      size_t layer)
{
    const struct merged *merged = object->settings;
    size_t tensor = 0, element = 0, size = weft_dtype_size(merged->config.dtype);
    for (size_t l = 0; l <= layer; l++)
        for (size_t i = 0; i < merged->layer_tensors[l]; i++, tensor++)
            for (size_t e = 0; e < merged->counts[tensor]; e++, element++) {
                float value = gradient(object, rank, step, l, element);
                if (l == layer)
                    weft_convert(merged->config.dtype,
                                 (char *)actor->tensors[tensor].data + e * size, WEFT_F32, &value,
                                 1);
            }
}

static void get_result(const struct merged *merged, const struct actor *actor, float *to)
{
    for (size_t t = 0; t < merged->config.tensor_count; t++) {
        weft_convert(WEFT_F32, to, merged->config.dtype, actor->tensors[t].data, merged->counts[t]);
        to += merged->counts[t];
    }
}

/* What must be refused, sometimes. */
static void provoke(struct play_object *object, struct actor *actor, int rank, int step,
                    size_t layer, int status)
{
    struct merged *merged = object->settings;
    if (status != WEFT_OK || draw_at(object, rank, step, 400 + layer) % 4)
        return;
    if (weft_gradients_ready(actor->gradients, layer) == WEFT_OK)
        snprintf(merged->wrong, sizeof merged->wrong, "rank %d, step %d: layer %zu was taken twice",
                 rank, step, layer);
}

/* The layers in the order in which they are announced: from the last on, more or less. */
static void order_layers(const struct play_object *object, int rank, int step, size_t order[LAYERS])
{
    const struct merged *merged = object->settings;
    uint64_t random = draw_at(object, rank, step, 2);
    size_t count = merged->config.layer_count;
    int swaps = random % 4 == 0 ? LAYERS : random % 4 == 1;
    for (size_t i = 0; i < count; i++)
        order[i] = count - 1 - i;
    for (int i = 0; i < swaps; i++) {
        size_t a = (size_t)play_below(&random, (int)count),
               b = (size_t)play_below(&random, (int)count);
        size_t other = order[a];
        order[a] = order[b];
        order[b] = other;
    }
}

static int announce(struct play_object *object, struct actor *actor, int rank, int step)
{
    const struct merged *merged = object->settings;
    size_t order[LAYERS];
    int status = WEFT_OK;
    order_layers(object, rank, step, order);
    for (size_t i = 0; i < merged->config.layer_count && status == WEFT_OK; i++) {
        size_t layer = order[i];
        play_actor_sleep(&actor->base);
        if (!is_absent(object, rank, step, layer)) {
            set_layer(object, actor, rank, step, layer);
            status = weft_gradients_ready(actor->gradients, layer);
        } else if (merged->config.missing == WEFT_GRADIENTS_MISSING_ERROR || merged->how != ALL ||
                   i == 0) {
            status = weft_gradients_absent(actor->gradients, layer);
        } else {
            continue; /* nobody says so: it is found missing in the end */
        }
        provoke(object, actor, rank, step, layer, status);
    }
    return status;
}

static int wait_all(void *of)
{
    return weft_gradients_wait_all(((struct actor *)of)->gradients, NULL);
}

static int wait_layer(void *of)
{
    struct actor *actor = of;
    return weft_gradients_wait(actor->gradients, actor->layer);
}

static int wait_step(const struct play_object *object, struct actor *actor, int rank, int step)
{
    const struct merged *merged = object->settings;
    int status = WEFT_OK;
    for (size_t l = 0; l < merged->config.layer_count && status == WEFT_OK; l++) {
        int left = merged->how == SOME &&
                   (is_absent(object, rank, step, l) || draw_at(object, rank, step, 300 + l) % 2);
        if (merged->how == ALL || left)
            continue;
        actor->layer = l;
        play_actor_sleep(&actor->base);
        status = play_actor_wait(&actor->base, wait_layer(actor), wait_layer, actor);
    }
    if (status != WEFT_OK || merged->how == FORWARD)
        return status;
    if (weft_gradients_next(actor->gradients) != (uint64_t)step)
        return WEFT_OK; /* that was the last */
    return play_actor_wait(&actor->base, wait_all(actor), wait_all, actor);
}

/* What the plan says, in a number. */
static int log_plan(struct merged *merged, struct actor *actor, int rank, int step)
{
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    struct weft_merge_group group = {.struct_size = sizeof group};
    int status = weft_gradients_get_plan(actor->gradients, &plan);
    uint64_t hash = plan.since;
    for (size_t i = 0; i < plan.layer_count && !status; i++)
        hash = hash * UINT64_C(1099511628211) + plan.order[i] + 1;
    for (size_t i = 0; i < plan.group_count && !status; i++) {
        status = weft_merge_plan_get_group(plan.merge, i, &group);
        hash = hash * UINT64_C(1099511628211) + group.layer_count + 100;
    }
    merged->plan[rank][step] = hash;
    return status;
}

static void *copy_of(const void *from, size_t bytes)
{
    void *copy = play_take(bytes + 1, 1);
    if (from)
        memcpy(copy, from, bytes);
    return copy;
}

/* Another object goes on from what this one has. */
static int restart(struct play_object *object, struct actor *actor)
{
    struct merged *merged = object->settings;
    struct weft_gradients_config config = merged->config;
    struct weft_gradients_state state = {.struct_size = sizeof state};
    int status = weft_gradients_get_state(actor->gradients, &state);
    if (status != WEFT_OK)
        return status;
    const size_t bytes = merged->elements * sizeof(float), votes = merged->config.layer_count;
    void *const copies[] = {copy_of(state.agreed, state.agreed_count * sizeof *state.agreed),
                            copy_of(state.residual, state.residual ? bytes : 0),
                            copy_of(state.velocity, state.velocity ? bytes : 0),
                            copy_of(state.regions, state.region_count * sizeof *state.regions),
                            copy_of(state.words, state.word_count * sizeof *state.words),
                            copy_of(state.numbers, state.number_count * sizeof *state.numbers),
                            copy_of(state.votes, state.votes ? votes : 0)};
    state.agreed = copies[0];
    state.residual = state.residual ? copies[1] : NULL;
    state.velocity = state.velocity ? copies[2] : NULL;
    state.regions = state.regions ? copies[3] : NULL;
    state.words = state.words ? copies[4] : NULL;
    state.numbers = state.numbers ? copies[5] : NULL;
    state.votes = state.votes ? copies[6] : NULL;
    config.tensors = actor->tensors;
    config.state = &state;
    /* Where one has been away for longer than others leave for, they do not come any more. */
    config.meet_ns = object->deadline_ns ? object->deadline_ns : UINT64_C(500000000);
    status = weft_gradients_destroy(actor->gradients);
    actor->gradients = NULL;
    if (status == WEFT_OK)
        status = weft_gradients_create(&actor->gradients, actor->base.context, &config);
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
        free(copies[i]);
    return status;
}

static int step(struct play_object *object, int rank, int step)
{
    struct merged *merged = object->settings;
    struct actor *actor = object->actors[rank];
    struct weft_gradients_state state = {.struct_size = sizeof state};
    int status = step == merged->restart ? restart(object, actor) : WEFT_OK;
    if (status == WEFT_OK)
        status = log_plan(merged, actor, rank, step);
    if (status == WEFT_OK)
        status = announce(object, actor, rank, step);
    play_actor_sleep(&actor->base);
    if (status == WEFT_OK)
        status = wait_step(object, actor, rank, step);
    if (status != WEFT_OK)
        return status;
    get_result(merged, actor, merged->result[rank][step]);
    status = weft_gradients_get_state(actor->gradients, &state);
    if (status == WEFT_OK && state.residual)
        memcpy(merged->residual[rank][step], state.residual,
               merged->elements * sizeof *state.residual);
    return status;
}

static int fail(struct play_object *object, int rank, int status, const char *text)
{
    struct actor *actor = object->actors[rank];
    return weft_gradients_fail(actor->gradients, status, text);
}

static int end(struct play_object *object, int rank)
{
    struct actor *actor = object->actors[rank];
    return play_actor_end(object, rank, weft_gradients_destroy(actor->gradients));
}

/* ---- judgement ---- */

static double unit_of(weft_dtype_t dtype)
{
    return dtype == WEFT_F16 ? 0x1p-11 : dtype == WEFT_BF16 ? 0x1p-8 : 0x1p-24;
}

/* How far a sum of P values may be from the right one. */
static double bound_of(const struct play_object *object, double magnitudes, double sum)
{
    const struct merged *merged = object->settings;
    double u = unit_of(merged->config.wire_dtype), n = object->ranks + 3;
    double bound = n * u / (1 - n * u) * magnitudes;
    if (merged->exact)
        bound = 0;
    if (!merged->exact || merged->config.reduction == WEFT_GRADIENTS_AVERAGE)
        bound += 2 * fabs(sum) * (unit_of(merged->config.dtype) + u) + 0x1p-22;
    if (merged->config.method == WEFT_GRADIENTS_SPARSE)
        bound += 0x1p-20 * magnitudes;
    return bound;
}

/* Of compressed groups; -1: anything may be. Gradients are not above 1. */
static double bound_of_compressed(const struct play_object *object, int step, double magnitudes,
                                  double sum)
{
    const struct merged *merged = object->settings;
    const double rounding = 2 * fabs(sum) * unit_of(merged->config.dtype) + 0x1p-22;
    if (merged->keeps) /* elements of others have a part in what is rounded */
        return rounding + 0x1p-13 * (magnitudes + object->ranks);
    double bound =
        compression_bound(&merged->compression, WEFT_COMPRESSED_COMPRESSED, step, object->ranks, 1);
    /* What an f16 is after rounding may be above 1 by as much. */
    return bound < 0 ? -1 : bound * (1 + unit_of(merged->config.dtype)) + 2 * rounding;
}

static int judge_element(struct play_object *object, int step, size_t layer, size_t element,
                         char text[PLAY_TEXT])
{
    const struct merged *merged = object->settings;
    const int compressed = merged->config.method == WEFT_GRADIENTS_COMPRESSED;
    double sum = 0, magnitudes = 0, found = (double)merged->result[0][step][element];
    for (int r = 0; r < object->ranks; r++) {
        double value = (double)gradient(object, r, step, layer, element), before = 0;
        if (merged->keeps && step)
            before = (double)merged->residual[r][step - 1][element];
        sum += value + before;
        magnitudes += fabs(value) + fabs(before);
        if (merged->keeps)
            sum -= (double)merged->residual[r][step][element];
    }
    if (merged->config.reduction == WEFT_GRADIENTS_AVERAGE)
        found *= object->ranks;
    double bound = compressed ? bound_of_compressed(object, step, magnitudes, sum)
                              : bound_of(object, magnitudes, sum);
    if (bound < 0 ? isfinite(found) : fabs(found - sum) <= bound)
        return 1;
    snprintf(text, PLAY_TEXT, "step %d, layer %zu: element %zu is %.9g, expected %.9g within %.3g",
             step, layer, element, found, sum, bound);
    return 0;
}

/* Planted gradients are not changed by what becomes of them. */
static int judge_planted(struct play_object *object, int step, char text[PLAY_TEXT])
{
    const struct merged *merged = object->settings;
    for (size_t e = 0; merged->compression.planted && e < merged->elements; e++) {
        double sum = 0, found = (double)merged->result[0][step][e];
        for (int r = 0; r < object->ranks; r++)
            sum += (double)gradient(object, r, step, 0, e);
        if (merged->config.reduction == WEFT_GRADIENTS_AVERAGE)
            found *= object->ranks;
        if (fabs(found - sum) <= 0x1p-9 * object->ranks)
            continue;
        snprintf(text, PLAY_TEXT, "step %d: planted element %zu is %.9g, expected %.9g", step, e,
                 found, sum);
        return 0;
    }
    return 1;
}

static int judge_step(struct play_object *object, int step, char text[PLAY_TEXT])
{
    const struct merged *merged = object->settings;
    size_t tensor = 0, element = 0;
    for (int r = 1; r < object->ranks; r++) {
        if (memcmp(merged->result[r][step], merged->result[0][step],
                   merged->elements * sizeof(float)) != 0) {
            snprintf(text, PLAY_TEXT, "step %d: ranks 0 and %d have other bits", step, r);
            return 0;
        }
        if (merged->plan[r][step] != merged->plan[0][step]) {
            snprintf(text, PLAY_TEXT, "step %d: ranks 0 and %d have other plans", step, r);
            return 0;
        }
    }
    for (size_t l = 0; l < merged->config.layer_count; l++)
        for (size_t t = 0; t < merged->layer_tensors[l]; t++, tensor++)
            for (size_t e = 0; e < merged->counts[tensor]; e++, element++)
                if (!judge_element(object, step, l, element, text))
                    return 0;
    return judge_planted(object, step, text);
}

static int judge(struct play_object *object, char text[PLAY_TEXT])
{
    const struct merged *merged = object->settings;
    int least = PLAY_STEPS;
    if (merged->wrong[0]) {
        snprintf(text, PLAY_TEXT, "%.700s", merged->wrong);
        return 0;
    }
    for (int r = 0; r < object->ranks; r++)
        least = object->taken[r] < least ? object->taken[r] : least;
    for (int t = 0; t < least; t++)
        if (!judge_step(object, t, text))
            return 0;
    return 1;
}

const struct play_kind play_merged = {
    .name = "merged",
    .waits = LAYERS + 3,
    .needs_all = 1,
    .draw = draw,
    .begin = begin,
    .step = step,
    .fail = fail,
    .end = end,
    .judge = judge,
};
