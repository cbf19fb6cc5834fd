/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients: the ranks meet. They compare their settings, measure what an allreduce costs,
 * agree on times and on what an object that has failed has left, and make the same plan. */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/gradients/create.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

static struct weft__setting cost_setting(const struct weft_gradients *g, const double plain[2])
{
    const struct weft_merge_cost *cost = &g->cost;
    if (!g->given_cost)
        return weft__setting_word("config->cost", 0, "none");
    return cost->points
               ? weft__setting_reals("config->cost", &g->points[0].bytes, 2 * cost->point_count)
               : weft__setting_reals("config->cost", plain, 2);
}

/* Settings by which ranks tell each other whether one of them goes on from an object that has
 * failed, whether one of them knows times, and whether all have the same words and numbers. */
enum { SETTING_FAILED, SETTING_TIMED, SETTING_SAME };

static struct weft__setting told_setting(int value)
{
    struct weft__setting told = weft__setting_count("config->state", value != 0);
    told.apart = 1;
    return told;
}

static int agree(struct weft__creation *creation, struct weft_gradients *g,
                 const struct weft__gradients_given *given)
{
    static const char *const reductions[] = {"average", "sum"};
    static const char *const methods[] = {"dense", "sparse", "compressed"};
    static const char *const policies[] = {"error", "zero"};
    const struct weft_gradients_config *config = &g->config;
    const double plain[] = {g->cost.a_us, g->cost.b_us_per_byte};
    char merge[WEFT_MERGE_METHOD_TEXT] = "";
    weft_merge_method_format(&g->merge, merge, sizeof merge);
    const int stated = given->config.state != NULL, failed = given->state.failed != 0;
    struct weft__setting agreed = weft__setting_counts(
        "config->state->agreed", given->state.agreed,
        stated && given->state.agreed ? given->state.agreed_count : 0, sizeof *given->state.agreed);
    struct weft__setting next = weft__setting_count("the next step", g->next), near = next;
    struct weft__setting same =
        weft__setting_count("config->state", weft__gradients_compressed_number(&given->state));
    same.apart = UINT64_MAX;
    agreed.abstains = next.abstains = failed; /* which may be behind by one, and its times too */
    near.apart = 1;
    struct weft__setting settings[WEFT__SETTINGS_MOST] = {
        [SETTING_FAILED] = told_setting(failed),
        [SETTING_TIMED] = told_setting(g->planning.timed),
        [SETTING_SAME] = same,
        weft__setting_count("the number of elements", g->model.count),
        weft__setting_count("the number of layers", g->layer_count),
        weft__setting_counts("the layers' elements", &g->layers->count, g->layer_count,
                             sizeof *g->layers),
        weft__setting_word("config->dtype", (int)config->dtype, weft_dtype_name(config->dtype)),
        weft__setting_word("config->wire_dtype", (int)config->wire_dtype,
                           weft_dtype_name(config->wire_dtype)),
        weft__setting_word("config->reduction", (int)config->reduction,
                           reductions[config->reduction]),
        weft__setting_word("config->method", (int)config->method, methods[config->method]),
        weft__setting_word("config->missing", (int)config->missing, policies[config->missing]),
        weft__setting_string("config->merge", merge),
        weft__setting_counts("config->merge->group_layers", g->group_layers,
                             g->group_layers ? g->merge.group_count : 0, sizeof(size_t)),
        cost_setting(g, plain),
        weft__setting_word("config->ready_ns", g->given_times, g->given_times ? "given" : "none"),
        weft__setting_count("config->measure_steps", config->measure_steps),
        weft__setting_count("config->check_steps", config->check_steps),
        weft__setting_real("config->gain", config->gain),
        agreed,
        weft__setting_word("the costs of config->state", g->measured_cost,
                           g->measured_cost ? "taken" : "not taken"),
        next,
        near,
    };
    size_t count = 0;
    while (settings[count].name)
        count++;
    if (config->method == WEFT_GRADIENTS_SPARSE)
        count += weft__gradients_sparse_settings(&g->sparse, settings + count);
    if (config->method == WEFT_GRADIENTS_COMPRESSED)
        count += weft__gradients_compressed_settings(g, &given->state, settings + count);
    int status = weft__creation_end(creation, settings, count, &g->next, config->meet_ns, WEFT_OK);
    g->first = g->next;
    return status;
}

/* A number that plans which are not the same do not share. */
static uint64_t plan_number(const struct weft_gradients *g)
{
    const struct weft__gradients_plan *plan = g->plan;
    uint64_t number = plan->group_count;
    for (size_t k = 0; k < plan->group_count; k++)
        number = weft__scramble(number ^ plan->groups[k].layer_count);
    for (size_t i = 0; i < g->layer_count; i++)
        number = weft__scramble(number ^ plan->order[i]);
    return number;
}

/* What the ranks tell each other once they have met. */
struct words {
    struct weft_run *run; /* NULL: one rank */
    uint64_t largest[2];
};

static int make_words(struct weft_gradients *g, struct words *words)
{
    struct weft_template_params params;
    if (g->ranks == 1)
        return WEFT_OK;
    weft_template_params_init(&params);
    params.dtype = WEFT_U64;
    params.count = 2;
    params.op = weft_op_builtin(WEFT_MAX);
    params.in_place = 1;
    int status = weft__gradients_exchange(g, "allreduce", &params, "recv", words->largest, NULL,
                                          &words->run);
    return status ? status : weft_run_set_deadline(words->run, g->config.meet_ns);
}

/* All have a plan, and the same. */
static int compare_plans(const char *who, struct weft_gradients *g, struct words *words)
{
    uint64_t number = plan_number(g);
    if (!words->run)
        return WEFT_OK;
    words->largest[0] = number;
    words->largest[1] = ~number;
    int status = weft_run_execute(words->run);
    if (status || (words->largest[0] == number && words->largest[1] == ~number))
        return status;
    return REFUSE("%s: the ranks have made different plans of the same times and costs: expected "
                  "the same arithmetic on all",
                  who);
}

/* The largest numbers of layers of all ranks, as times of steps are agreed on later, without a
 * deadline. */
static int agree_largest(struct weft_gradients *g)
{
    struct weft_run *run = g->planning.agree;
    if (!run)
        return WEFT_OK;
    int status = weft_run_set_deadline(run, g->config.meet_ns);
    if (!status)
        status = weft_run_execute(run);
    return status ? status : weft_run_set_deadline(run, 0);
}

/* Of `agreeing`, the latest of all ranks. */
static int agree_times(struct weft_gradients *g)
{
    struct weft__gradients_planning *planning = &g->planning;
    int status = agree_largest(g);
    if (status)
        return status;
    memcpy(planning->times, planning->agreeing, g->layer_count * sizeof *planning->times);
    planning->timed = 1;
    return WEFT_OK;
}

/* An object has failed in a step: a layer whose sum has been given to a rank that goes on has had
 * that step; of others what was selected goes back. */
static int resume(struct weft_gradients *g, const struct weft_gradients_state *state)
{
    uint64_t *largest = g->planning.agreeing;
    const size_t size = g->layer_count * sizeof *largest;
    memcpy(largest, g->taken_before, size);
    int status = agree_largest(g);
    if (status)
        return status;
    for (size_t l = 0; l < g->layer_count; l++) {
        const struct weft__gradients_layer *layer = &g->layers[l];
        if (g->residual && largest[l] == g->taken_before[l])
            for (size_t i = layer->offset; i < layer->offset + layer->count; i++)
                g->residual[i] += state->unsent[i];
    }
    memcpy(g->taken_before, largest, size);
    return WEFT_OK;
}

/* The first plan, with what there is to go on from. */
static int plan_first(const struct weft__creation *creation, struct weft_gradients *g,
                      const struct weft__gradients_given *given)
{
    struct weft_gradients_state state = given->state;
    if (g->residual)
        state.residual = g->residual;
    if (weft__creation_largest(creation, SETTING_SAME) !=
        weft__creation_smallest(creation, SETTING_SAME)) { /* of a failure: begins anew */
        state.words = NULL;
        state.numbers = NULL;
        state.word_count = state.number_count = 0;
        state.votes = NULL;
    }
    int status = weft__gradients_plan_first(g, given->config.state ? &state : NULL);
    weft_memory_free(g->residual);
    g->residual = NULL;
    return status;
}

/* What ranks know of times, and of layers, where it is not the same on all. */
static int agree_rest(const struct weft__creation *creation, struct weft_gradients *g,
                      const struct weft__gradients_given *given)
{
    struct weft__gradients_planning *planning = &g->planning;
    int status = g->given_times ? agree_times(g) : WEFT_OK;
    if (status || !weft__creation_largest(creation, SETTING_FAILED))
        return status;
    status = resume(g, &given->state);
    if (status || g->given_times || !weft__creation_largest(creation, SETTING_TIMED))
        return status;
    memcpy(planning->agreeing, planning->times, g->layer_count * sizeof *planning->times);
    return agree_times(g);
}

/* After the meeting: costs, times, the first plan. What fails here fails the object, as the others
 * wait. */
static int settle(const struct weft__creation *creation, struct weft_gradients *g,
                  const struct weft__gradients_given *given,
                  struct weft__gradients_calibration *calibration, struct words *words)
{
    const char *who = creation->who;
    int status = weft__gradients_calibrate(g, calibration);
    if (!status)
        status = agree_rest(creation, g, given);
    if (!status)
        status = plan_first(creation, g, given);
    if (!status)
        status = compare_plans(who, g, words);
    if (!status) {
        weft__gradients_look_at_phase(g);
        return WEFT_OK;
    }
    char text[512];
    snprintf(text, sizeof text, "%s", weft_error_text());
    int failed = weft_object_check(g->object, who);
    if (failed)
        return failed;
    weft_object_fail(g->object, status, text);
    return weft_error_set(status, "%s", text);
}

int weft__gradients_meet(struct weft__creation *creation, struct weft_gradients *g,
                         const struct weft__gradients_given *given, int status)
{
    struct weft__gradients_calibration *calibration = NULL;
    struct words words = {0};
    if (!status)
        status = weft__gradients_calibration_make(g, &calibration);
    if (!status)
        status = make_words(g, &words);
    status =
        status ? weft__creation_end(creation, NULL, 0, NULL, 0, status) : agree(creation, g, given);
    if (!status)
        status = settle(creation, g, given, calibration, &words);
    weft__gradients_calibration_free(calibration);
    weft_run_destroy(words.run);
    return status;
}
