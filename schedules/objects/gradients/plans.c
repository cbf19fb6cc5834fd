/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Merged gradients: plans.
 *
 *     steps 0 .. m-1      each rank measures when its layers are announced
 *     end of step m-1     posts the medians: an allreduce finds the largest
 *     end of step m       has them; rank 0 plans, and its groups are broadcast
 *     end of step m+1     has them: all ranks change their plans, for step m+2 on
 *
 * An exchange that was posted at the end of a step is over, or about to be, at the end of the next
 * one, which no rank comes to before all have posted. So nobody waits for a plan. That rank 0
 * decides keeps the plans the same whatever the ranks' arithmetic is.
 */
#include <stdlib.h>
#include <string.h>

#include <weft/template.h>

#include "schedules/objects/gradients/gradients.h"

enum { BUCKET = 25 << 20, FIRST_BUCKET = 1 << 20 }; /* as PyTorch's DDP */

/* ---- what a plan is ---- */

struct timed {
    uint64_t time;
    size_t layer;
};

static int compare_timed(const void *one, const void *other)
{
    const struct timed *a = one, *b = other;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return a->layer > b->layer ? -1 : a->layer < b->layer;
}

/* The last layer of the model first; of times, the earliest. NULL: there is no memory. */
static size_t *make_order(size_t count, const uint64_t *times)
{
    size_t *order = weft_memory_alloc(count + 1, sizeof *order);
    struct timed *sorted = weft_memory_alloc(count + 1, sizeof *sorted);
    if (order && sorted) {
        for (size_t l = 0; l < count; l++)
            sorted[l] = (struct timed){.time = times ? times[l] : 0, .layer = l};
        qsort(sorted, count, sizeof *sorted, compare_timed);
        for (size_t i = 0; i < count; i++)
            order[i] = sorted[i].layer;
    } else {
        weft_memory_free(order);
        order = NULL;
        weft__gradients_no_memory("an order of layers", count);
    }
    weft_memory_free(sorted);
    return order;
}

int weft__gradients_predict(const struct weft_gradients *g, const size_t *order,
                            const uint64_t *times, const struct weft_merge_config *config,
                            struct weft_merge_plan **merge)
{
    const size_t size = weft_dtype_size(g->config.wire_dtype);
    struct weft_merge_layer *layers = weft_memory_alloc(g->layer_count + 1, sizeof *layers);
    if (!layers)
        return weft__gradients_no_memory("a plan of layers", g->layer_count);
    for (size_t i = 0; i < g->layer_count; i++) {
        size_t l = order ? order[i] : g->layer_count - 1 - i;
        layers[i].bytes = g->layers[l].count * size;
        layers[i].ready_us = times ? (double)times[l] * 1e-3 : 0;
    }
    int status = weft_merge_plan_create(merge, layers, g->layer_count, &g->cost, config);
    weft_memory_free(layers);
    return status;
}

static int predict_given(const struct weft_gradients *g, const size_t *order, const uint64_t *times,
                         const size_t *sizes, size_t group_count, struct weft_merge_plan **merge)
{
    struct weft_merge_config config;
    weft_merge_config_init(&config);
    config.method = WEFT_MERGE_GIVEN;
    config.group_layers = sizes;
    config.group_count = group_count;
    return weft__gradients_predict(g, order, times, &config, merge);
}

static double end_of(const struct weft_merge_plan *merge, double *ready)
{
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    weft_merge_plan_get_summary(merge, &summary);
    *ready = summary.ready_us;
    return summary.end_us;
}

void weft__gradients_plan_free(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    if (!plan)
        return;
    g->way->destroy(g, plan);
    weft_merge_plan_destroy(plan->merge);
    weft_memory_free(plan->order);
    weft_memory_free(plan->layers);
    weft_memory_free(plan->groups);
    weft_memory_free(plan->group_of);
    weft_memory_free(plan->spans);
    weft_memory_free(plan->ready_us);
    weft_memory_free(plan);
}

static int compare_sizes(const void *one, const void *other)
{
    size_t a = *(const size_t *)one, b = *(const size_t *)other;
    return a < b ? -1 : a > b;
}

/* Groups of the merge plan, as layers of the model. */
static void fill_groups(const struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    for (size_t k = 0, at = 0; k < plan->group_count; k++) {
        struct weft_merge_group merged = {.struct_size = sizeof merged};
        struct weft__gradients_group *group = &plan->groups[k];
        weft_merge_plan_get_group(plan->merge, k, &merged);
        group->layers = plan->layers + at;
        group->layer_count = merged.layer_count;
        for (size_t i = 0; i < merged.layer_count; i++, at++) {
            plan->layers[at] = plan->order[merged.layers[i]];
            plan->group_of[plan->layers[at]] = k;
            group->count += g->layers[plan->layers[at]].count;
        }
        qsort(plan->layers + at - merged.layer_count, merged.layer_count, sizeof *plan->layers,
              compare_sizes);
    }
}

static int allocate(struct weft__gradients_plan *plan, size_t layers)
{
    const size_t groups = plan->group_count;
    plan->layers = weft_memory_alloc(layers + 1, sizeof *plan->layers);
    plan->groups = weft_memory_alloc(groups + 1, sizeof *plan->groups);
    plan->group_of = weft_memory_alloc(layers + 1, sizeof *plan->group_of);
    plan->spans = weft_memory_alloc(groups + 1, sizeof *plan->spans);
    plan->ready_us = weft_memory_alloc(layers + 2 * groups + 1, sizeof *plan->ready_us);
    if (!plan->layers || !plan->groups || !plan->group_of || !plan->spans || !plan->ready_us)
        return weft__gradients_no_memory("a plan of layers", layers);
    plan->start_us = plan->ready_us + layers;
    plan->end_us = plan->start_us + groups;
    return WEFT_OK;
}

/* Takes `order` and `merge`, whatever becomes of it. Puts it in force. */
static int enact(struct weft_gradients *g, size_t *order, struct weft_merge_plan *merge,
                 uint64_t since, const struct weft_gradients_state *state)
{
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    struct weft__gradients_plan *plan = weft_memory_alloc(1, sizeof *plan);
    if (!plan) {
        weft_memory_free(order);
        weft_merge_plan_destroy(merge);
        return weft__gradients_no_memory("a plan of layers", g->layer_count);
    }
    weft_merge_plan_get_summary(merge, &summary);
    plan->since = since;
    plan->order = order;
    plan->merge = merge;
    plan->group_count = summary.group_count;
    int status = allocate(plan, g->layer_count);
    if (!status) {
        fill_groups(g, plan);
        status = g->way->create(g, plan, g->plan, state);
    }
    if (status) {
        weft__gradients_plan_free(g, plan);
        return status;
    }
    if (g->plan)
        weft__gradients_add_traffic(&g->planning.sent, &g->plan->sent);
    weft__gradients_plan_free(g, g->plan);
    g->plan = plan;
    g->planning.plans++;
    return WEFT_OK;
}

/* Whether a method needs to know when layers are there. */
static int needs_times(const struct weft_merge_config *merge)
{
    return merge->method == WEFT_MERGE_EXACT || merge->method == WEFT_MERGE_GREEDY;
}

/* The sizes of a decision as they are given to a merge plan. */
static int predict_decision(const struct weft_gradients *g, const size_t *order,
                            const uint64_t *times, struct weft_merge_plan **merge)
{
    const size_t count = (size_t)g->planning.decision[0];
    size_t *sizes = weft_memory_alloc(count + 1, sizeof *sizes);
    if (!sizes)
        return weft__gradients_no_memory("a plan of layers", count);
    for (size_t k = 0; k < count; k++)
        sizes[k] = (size_t)g->planning.decision[1 + k];
    int status = predict_given(g, order, times, sizes, count, merge);
    weft_memory_free(sizes);
    return status;
}

int weft__gradients_plan_first(struct weft_gradients *g, const struct weft_gradients_state *state)
{
    struct weft__gradients_planning *planning = &g->planning;
    const uint64_t *times = planning->timed ? planning->times : NULL;
    struct weft_merge_config buckets;
    struct weft_merge_plan *merge = NULL;
    size_t *order = planning->restored;
    int status = WEFT_OK;
    planning->restored = NULL;
    if (order) {
        status = predict_decision(g, order, times, &merge);
    } else {
        order = make_order(g->layer_count, times);
        if (!order)
            return WEFT_ERR_MEMORY;
        weft_merge_config_init(&buckets);
        buckets.method = WEFT_MERGE_BUCKETS;
        buckets.bucket_bytes = BUCKET;
        buckets.first_bucket_bytes = FIRST_BUCKET;
        status = weft__gradients_predict(
            g, order, times, times || !needs_times(&g->merge) ? &g->merge : &buckets, &merge);
    }
    if (status) {
        weft_memory_free(order);
        return status;
    }
    if (!g->layer_count || g->given_times)
        planning->check = WEFT_NEVER;
    else
        planning->check = times && g->config.check_steps != WEFT_NEVER
                              ? g->next + g->config.check_steps
                              : WEFT_NEVER;
    planning->phase = g->layer_count && !times ? WEFT__PLAN_MEASURING : WEFT__PLAN_SETTLED;
    return enact(g, order, merge, g->next, state);
}

/* ---- memory and exchanges ---- */

int weft__gradients_planning_make(struct weft_gradients *g)
{
    struct weft__gradients_planning *planning = &g->planning;
    const size_t layers = g->layer_count;
    planning->samples =
        weft_memory_alloc(layers * g->config.measure_steps + 1, sizeof *planning->samples);
    planning->times = weft_memory_alloc(layers + 1, sizeof *planning->times);
    planning->agreeing = weft_memory_alloc(layers + 1, sizeof *planning->agreeing);
    planning->decision = weft_memory_alloc(layers + 1, sizeof *planning->decision);
    if (!planning->samples || !planning->times || !planning->agreeing || !planning->decision)
        return weft__gradients_no_memory("times of layers", layers);
    if (!layers || g->ranks == 1)
        return WEFT_OK;
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.dtype = WEFT_U64;
    params.count = layers;
    params.op = weft_op_builtin(WEFT_MAX);
    params.in_place = 1;
    int status = weft__gradients_exchange(g, "allreduce", &params, "recv", planning->agreeing,
                                          &planning->per_agree, &planning->agree);
    weft_template_params_init(&params);
    params.dtype = WEFT_U64;
    params.count = 1 + layers;
    return status ? status
                  : weft__gradients_exchange(g, "broadcast", &params, "buffer", planning->decision,
                                             &planning->per_decide, &planning->decide);
}

void weft__gradients_planning_free(struct weft_gradients *g)
{
    struct weft__gradients_planning *planning = &g->planning;
    weft_run_destroy(planning->decide);
    weft_run_destroy(planning->agree);
    weft_memory_free(planning->restored);
    weft_memory_free(planning->decision);
    weft_memory_free(planning->agreeing);
    weft_memory_free(planning->times);
    weft_memory_free(planning->samples);
}

/* ---- measuring ---- */

static uint64_t median(uint64_t *values, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t j = i; j > 0 && values[j - 1] > values[j]; j--) {
            uint64_t larger = values[j - 1];
            values[j - 1] = values[j];
            values[j] = larger;
        }
    return values[count / 2];
}

static int post(struct weft_run *run, struct weft__gradients_planning *planning,
                const struct weft__gradients_traffic *traffic)
{
    int status = run ? weft_run_start(run) : WEFT_OK;
    if (!status)
        weft__gradients_add_traffic(&planning->sent, traffic);
    return status;
}

static int record(struct weft_gradients *g)
{
    struct weft__gradients_planning *planning = &g->planning;
    const size_t steps = (size_t)g->config.measure_steps;
    for (size_t l = 0; l < g->layer_count; l++)
        planning->samples[l * steps + planning->sample_count] = g->announced_ns[l] - g->began_ns;
    if (++planning->sample_count < steps)
        return WEFT_OK;
    for (size_t l = 0; l < g->layer_count; l++)
        planning->agreeing[l] = median(planning->samples + l * steps, steps);
    planning->phase = WEFT__PLAN_AGREEING;
    return post(planning->agree, planning, &planning->per_agree);
}

/* ---- deciding ---- */

static int is_same(const struct weft_gradients *g, const size_t *order,
                   const struct weft_merge_plan *merge)
{
    const struct weft__gradients_plan *plan = g->plan;
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    weft_merge_plan_get_summary(merge, &summary);
    if (summary.group_count != plan->group_count)
        return 0;
    for (size_t k = 0; k < plan->group_count; k++) {
        struct weft_merge_group group = {.struct_size = sizeof group};
        weft_merge_plan_get_group(merge, k, &group);
        if (group.layer_count != plan->groups[k].layer_count)
            return 0;
        for (size_t i = 0; i < group.layer_count; i++)
            if (plan->group_of[order[group.layers[i]]] != k)
                return 0;
    }
    return 1;
}

/* The plan in force as it would go with new times. */
static int predict_old(const struct weft_gradients *g, struct weft_merge_plan **merge)
{
    const struct weft__gradients_plan *plan = g->plan;
    size_t *sizes = weft_memory_alloc(plan->group_count + 1, sizeof *sizes);
    if (!sizes)
        return weft__gradients_no_memory("a plan of layers", plan->group_count);
    for (size_t k = 0; k < plan->group_count; k++)
        sizes[k] = plan->groups[k].layer_count;
    int status =
        predict_given(g, plan->order, g->planning.agreeing, sizes, plan->group_count, merge);
    weft_memory_free(sizes);
    return status;
}

/* Whether it pays to change: at first always, as the groups are those of nobody's choice. */
static int is_better(const struct weft_gradients *g, const struct weft_merge_plan *merge,
                     const struct weft_merge_plan *old)
{
    double ready, end = end_of(merge, &ready), old_end = end_of(old, &ready);
    return !g->planning.timed || old_end - end > g->config.gain * (old_end - ready);
}

static void write_decision(const struct weft_merge_plan *merge, uint64_t *decision)
{
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    weft_merge_plan_get_summary(merge, &summary);
    decision[0] = summary.group_count;
    for (size_t k = 0; k < summary.group_count; k++) {
        struct weft_merge_group group = {.struct_size = sizeof group};
        weft_merge_plan_get_group(merge, k, &group);
        decision[1 + k] = group.layer_count;
    }
}

/* On rank 0: no groups mean that the plan stays. */
static int decide(struct weft_gradients *g)
{
    struct weft__gradients_planning *planning = &g->planning;
    struct weft_merge_plan *merge = NULL, *old = NULL;
    size_t *order = make_order(g->layer_count, planning->agreeing);
    if (!order)
        return WEFT_ERR_MEMORY;
    int status = weft__gradients_predict(g, order, planning->agreeing, &g->merge, &merge);
    if (!status)
        status = predict_old(g, &old);
    planning->decision[0] = 0;
    if (!status && !is_same(g, order, merge) && is_better(g, merge, old))
        write_decision(merge, planning->decision);
    weft_merge_plan_destroy(old);
    weft_merge_plan_destroy(merge);
    weft_memory_free(order);
    return status;
}

/* What rank 0 has decided, on all ranks. */
static int follow(struct weft_gradients *g)
{
    struct weft__gradients_planning *planning = &g->planning;
    struct weft_merge_plan *merge = NULL;
    int status = WEFT_OK;
    if (planning->decision[0]) {
        size_t *order = make_order(g->layer_count, planning->agreeing);
        if (!order)
            return WEFT_ERR_MEMORY;
        status = predict_decision(g, order, planning->agreeing, &merge);
        if (status)
            weft_memory_free(order);
        else
            status = enact(g, order, merge, g->next + 1, NULL);
    } else {
        status = predict_old(g, &merge);
        if (!status) {
            weft_merge_plan_destroy(g->plan->merge);
            g->plan->merge = merge;
        }
    }
    if (status)
        return status;
    memcpy(planning->times, planning->agreeing, g->layer_count * sizeof *planning->times);
    planning->timed = 1;
    planning->checks++;
    planning->phase = WEFT__PLAN_SETTLED;
    planning->check =
        g->config.check_steps == WEFT_NEVER ? WEFT_NEVER : g->next + g->config.check_steps;
    return WEFT_OK;
}

/* What this rank cannot do fails the object: the others would do it. */
static int give_up(struct weft_gradients *g, int status)
{
    char text[512];
    strncpy(text, weft_error_text(), sizeof text - 1);
    text[sizeof text - 1] = 0;
    weft_object_fail(g->object, status, text);
    return status;
}

static int wait_for(struct weft_gradients *g, struct weft_run *run, uint64_t until)
{
    return run ? weft_run_wait(run, weft__gradients_left(g, until)) : WEFT_OK;
}

char *weft__gradients_plan_report(const struct weft_gradients *g)
{
    const struct weft__gradients_planning *planning = &g->planning;
    struct weft_run *run =
        planning->phase == WEFT__PLAN_AGREEING ? planning->agree : planning->decide;
    char *text = NULL;
    return run && !weft_run_report(run, &text) ? text : NULL;
}

int weft__gradients_plan_next(struct weft_gradients *g, uint64_t until)
{
    struct weft__gradients_planning *planning = &g->planning;
    int status = WEFT_OK;
    switch (planning->phase) {
    case WEFT__PLAN_SETTLED:
        if (planning->check != WEFT_NEVER && g->next >= planning->check) {
            planning->phase = WEFT__PLAN_MEASURING;
            planning->sample_count = 0;
        }
        return WEFT_OK;
    case WEFT__PLAN_MEASURING:
        status = record(g);
        break;
    case WEFT__PLAN_AGREEING:
        status = wait_for(g, planning->agree, until);
        if (status)
            return status;
        if (g->rank == 0)
            status = decide(g);
        if (!status)
            status = post(planning->decide, planning, &planning->per_decide);
        planning->phase = WEFT__PLAN_DECIDING;
        break;
    case WEFT__PLAN_DECIDING:
        status = wait_for(g, planning->decide, until);
        if (status)
            return status;
        status = follow(g);
        break;
    }
    return status ? give_up(g, status) : WEFT_OK;
}
