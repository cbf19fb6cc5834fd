/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Merged gradients: checkpoints. What ranks have agreed on is a list of words:
 *
 *     format, ranks, layers, a number of how they are merged, elements of each layer,
 *     1 if times are known, nanoseconds of each layer,
 *     number of costs, bytes and microseconds (the bits of a double) of each,
 *     number of groups, layers of each, the layer at each position
 */
#include <string.h>

#include "schedules/objects/gradients/gradients.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

enum { FORMAT = 2, HEAD = 4 };
#define MOST_NEXT (UINT64_C(1) << 62)

size_t weft__gradients_state_words(size_t layer_count)
{
    return HEAD + 4 * layer_count + 1 + 1 + 2 * (size_t)WEFT__CALIBRATION_SIZES + 1;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double value_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A number that two ways to merge do not share: of the method's name and its numbers, as far as it
 * has some. */
static uint64_t merge_number(const struct weft_gradients *g)
{
    char text[WEFT_MERGE_METHOD_TEXT] = "";
    uint64_t number = 0;
    weft_merge_method_format(&g->merge, text, sizeof text);
    for (const char *at = text; *at; at++)
        number = weft__scramble(number ^ (unsigned char)*at);
    for (size_t k = 0; k < g->merge.group_count; k++)
        number = weft__scramble(number ^ g->merge.group_layers[k]);
    return number;
}

static size_t write_words(const struct weft_gradients *g, uint64_t *words)
{
    const struct weft__gradients_plan *plan = g->plan;
    const size_t layers = g->layer_count;
    size_t at = 0;
    words[at++] = FORMAT;
    words[at++] = (uint64_t)g->ranks;
    words[at++] = layers;
    words[at++] = merge_number(g);
    for (size_t l = 0; l < layers; l++)
        words[at++] = g->layers[l].count;
    words[at++] = g->planning.timed != 0;
    for (size_t l = 0; l < layers; l++)
        words[at++] = g->planning.timed ? g->planning.times[l] : 0;
    size_t costs = g->measured_cost ? g->cost.point_count : 0;
    words[at++] = costs;
    for (size_t i = 0; i < costs; i++) {
        words[at++] = (uint64_t)g->points[i].bytes;
        words[at++] = bits_of(g->points[i].us);
    }
    words[at++] = plan->group_count;
    for (size_t k = 0; k < plan->group_count; k++)
        words[at++] = plan->groups[k].layer_count;
    for (size_t i = 0; i < layers; i++)
        words[at++] = plan->order[i];
    return at;
}

/* Waits until nobody is in a wait any more, of an object that has failed. */
static void calm(struct weft_gradients *g)
{
    pthread_mutex_lock(&g->lock);
    while (g->waiters || g->ending)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void count_taken(struct weft_gradients *g)
{
    for (size_t l = 0; l < g->layer_count; l++)
        g->taken[l] = g->taken_before[l] + (g->next - g->first) +
                      (g->open && g->states[l] & WEFT__LAYER_GIVEN);
}

int weft_gradients_get_state(struct weft_gradients *gradients, struct weft_gradients_state *state)
{
    if (!gradients || !state)
        return REFUSE("%s: %s is NULL", __func__, gradients ? "state" : "gradients");
    const int failed = weft_object_check(gradients->object, __func__) != WEFT_OK;
    int status = failed ? WEFT_OK : weft__gradients_check_idle(gradients, __func__);
    if (status)
        return status;
    if (failed) {
        calm(gradients);
        count_taken(gradients);
    }
    struct weft_gradients_state got = {.struct_size = sizeof got,
                                       .next = gradients->next,
                                       .agreed = gradients->agreed,
                                       .failed = failed,
                                       .taken = failed ? gradients->taken : NULL,
                                       .stats = gradients->stats};
    got.agreed_count = write_words(gradients, gradients->agreed);
    if (gradients->way->save)
        status = gradients->way->save(gradients, gradients->plan, &got);
    return status ? status : weft_sized_fill(__func__, "state", state, &got, sizeof got);
}

/* ---- reading ---- */

/* Where the parts of a state's words begin. */
struct words {
    const uint64_t *elements, *timed, *times, *costs, *groups, *order;
    size_t cost_count, group_count;
};

/* 0: they are cut, or not what this version writes. */
static int find_words(const struct weft_gradients_state *state, struct words *words)
{
    const uint64_t *at = state->agreed;
    size_t left = state->agreed_count;
    if (left < HEAD || at[0] != FORMAT || at[2] > left)
        return 0;
    const size_t layers = (size_t)at[2];
    if (left < HEAD + 2 * layers + 2)
        return 0;
    words->elements = at + HEAD;
    words->timed = words->elements + layers;
    words->times = words->timed + 1;
    words->cost_count = (size_t)words->times[layers];
    words->costs = words->times + layers + 1;
    left -= HEAD + 2 * layers + 2;
    if (words->cost_count > WEFT__CALIBRATION_SIZES || left < 2 * words->cost_count + 1)
        return 0;
    words->group_count = (size_t)words->costs[2 * words->cost_count];
    words->groups = words->costs + 2 * words->cost_count + 1;
    left -= 2 * words->cost_count + 1;
    words->order = words->groups + words->group_count;
    return words->group_count <= layers && left == words->group_count + layers;
}

/* Costs ascend, groups have all layers, each once. */
static int is_sound(const struct words *words, size_t layers)
{
    size_t all = 0;
    for (size_t i = 0; i < words->cost_count; i++) {
        double us = value_of(words->costs[2 * i + 1]);
        if (!(us >= 0 && us < 1e18) || (i && words->costs[2 * i] <= words->costs[2 * i - 2]))
            return 0;
    }
    for (size_t k = 0; k < words->group_count; k++) {
        if (!words->groups[k] || words->groups[k] > layers - all)
            return 0;
        all += (size_t)words->groups[k];
    }
    for (size_t i = 0; i < layers; i++) {
        if (words->order[i] >= layers || words->times[i] > UINT64_C(1) << 62)
            return 0;
        for (size_t j = 0; j < i; j++)
            if (words->order[j] == words->order[i])
                return 0;
    }
    return all == layers && words->cost_count != 1 && *words->timed < 2;
}

int weft__gradients_state_check(const struct weft_gradients *g, const char *who,
                                const struct weft_gradients_state *state)
{
    struct words words;
    if (state->next >= MOST_NEXT)
        return REFUSE("%s: config->state->next is %llu, expected less than 2^62", who,
                      (unsigned long long)state->next);
    if (!state->agreed)
        return state->agreed_count ? REFUSE("%s: config->state->agreed is NULL, expected %zu words",
                                            who, state->agreed_count)
                                   : WEFT_OK;
    if (!find_words(state, &words))
        return REFUSE("%s: config->state->agreed is not what weft_gradients_get_state() gives",
                      who);
    if (state->agreed[2] != g->layer_count)
        return REFUSE("%s: config->state is of %llu layers, the model has %zu", who,
                      (unsigned long long)state->agreed[2], g->layer_count);
    for (size_t l = 0; l < g->layer_count; l++)
        if (words.elements[l] != g->layers[l].count)
            return REFUSE("%s: config->state has %llu elements in layer %zu, the model has %zu",
                          who, (unsigned long long)words.elements[l], l, g->layers[l].count);
    return is_sound(&words, g->layer_count)
               ? WEFT_OK
               : REFUSE("%s: config->state->agreed is not what weft_gradients_get_state() gives",
                        who);
}

static int read_costs(struct weft_gradients *g, const struct words *words)
{
    struct weft_merge_point points[WEFT__CALIBRATION_SIZES];
    struct weft_merge_cost cost;
    weft_merge_cost_init(&cost);
    for (size_t i = 0; i < words->cost_count; i++)
        points[i] = (struct weft_merge_point){.bytes = (double)words->costs[2 * i],
                                              .us = value_of(words->costs[2 * i + 1])};
    cost.points = points;
    cost.point_count = words->cost_count;
    g->measured_cost = 1;
    return weft__gradients_copy_cost(g, &cost);
}

int weft__gradients_state_read(struct weft_gradients *g, const struct weft_gradients_state *state)
{
    struct words words;
    struct weft__gradients_planning *planning = &g->planning;
    const size_t layers = g->layer_count;
    g->before = state->stats;
    g->stats = state->stats;
    if (state->taken)
        memcpy(g->taken_before, state->taken, layers * sizeof *state->taken);
    if (!state->agreed || !find_words(state, &words))
        return WEFT_OK;
    if (*words.timed && !g->given_times) {
        memcpy(planning->times, words.times, layers * sizeof *planning->times);
        planning->timed = 1;
    }
    if (state->failed || state->agreed[1] != (uint64_t)g->ranks)
        return WEFT_OK; /* costs are others, and so are plans; or ranks may have others */
    int status = WEFT_OK;
    if (words.cost_count && !g->given_cost)
        status = read_costs(g, &words);
    if (status || g->given_cost || g->given_times || state->agreed[3] != merge_number(g))
        return status; /* groups are not what would be made now */
    planning->restored = weft_memory_alloc(layers + 1, sizeof *planning->restored);
    if (!planning->restored)
        return weft__gradients_no_memory("an order of layers", layers);
    for (size_t i = 0; i < layers; i++)
        planning->restored[i] = (size_t)words.order[i];
    planning->decision[0] = words.group_count;
    memcpy(planning->decision + 1, words.groups, words.group_count * sizeof *words.groups);
    return WEFT_OK;
}
