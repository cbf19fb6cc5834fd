/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups summed by allreduces: one graph, and one run of it, for all groups of a plan. */
#include <stdatomic.h>
#include <stdio.h>

#include "schedules/objects/gradients/graph.h"

struct dense {
    struct weft_run *run;               /* NULL: there are no layers */
    struct weft__gradients_nodes nodes; /* owned */
    const struct weft_op *clock;        /* owned */
    unsigned char *in_place;            /* by group; owned */
    _Atomic size_t *left;               /* by group: layers that are still to be announced; owned */
    struct weft__gradients_traffic sent; /* in a step */
};

/* ---- creation ---- */

/* The context's clock; virtual ranks have a virtual one. */
static int clock_now(struct weft_call *call)
{
    *call->value = weft_context_now(call->user);
    return WEFT_OK;
}

static int make_clock(struct dense *dense, struct weft_context *context)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "clock";
    config.compute = clock_now;
    config.user = context;
    int status = weft_op_create(&op, &config);
    dense->clock = op;
    return status;
}

static int make_lists(struct dense *dense, size_t layer_count, size_t group_count)
{
    struct weft__gradients_nodes *nodes = &dense->nodes;
    nodes->ready = weft_memory_alloc(layer_count, sizeof *nodes->ready);
    nodes->done = weft_memory_alloc(layer_count, sizeof *nodes->done);
    nodes->started = weft_memory_alloc(group_count, sizeof *nodes->started);
    nodes->ended = weft_memory_alloc(group_count, sizeof *nodes->ended);
    dense->in_place = weft_memory_alloc(group_count, 1);
    dense->left = weft_memory_alloc(group_count, sizeof *dense->left);
    if (nodes->ready && nodes->done && nodes->started && nodes->ended && dense->in_place &&
        dense->left)
        return WEFT_OK;
    return weft__gradients_no_memory("a plan of layers", layer_count);
}

/* Where the elements of a group begin if they lie one behind the other in the order of the model;
 * else NULL. */
static void *is_adjacent(const struct weft_gradients *g, const struct weft__gradients_group *group)
{
    const size_t size = weft_dtype_size(g->model.dtype);
    char *first = NULL, *end = NULL;
    for (size_t i = 0; i < group->layer_count; i++) {
        const struct weft__gradients_layer *layer = &g->layers[group->layers[i]];
        for (size_t t = layer->first; t < layer->first + layer->tensor_count; t++) {
            const struct weft_piece *tensor = &g->model.tensors[t];
            if (!tensor->count)
                continue;
            if (end && end != tensor->data)
                return NULL;
            first = first ? first : tensor->data;
            end = (char *)tensor->data + tensor->count * size;
        }
    }
    return first;
}

static int build(struct weft_gradients *g, const struct weft__gradients_plan *plan,
                 struct dense *dense)
{
    const struct weft__gradients_shape shape = {
        .dtype = g->model.dtype,
        .wire = g->config.wire_dtype,
        .reduction = g->config.reduction,
        .layers = g->layers,
        .layer_count = g->layer_count,
        .groups = plan->groups,
        .group_count = plan->group_count,
        .in_place = dense->in_place,
        .cost = &g->surroundings.cost,
        .hosts = g->surroundings.hosts,
        .clock = dense->clock,
    };
    struct weft_schedule *schedule = NULL;
    struct weft_plan *compiled = NULL;
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.object = g->object;
    int status = weft__gradients_schedule(&shape, g->rank, g->ranks, &dense->nodes, &schedule);
    if (!status)
        status = weft_schedule_commit(schedule, &compiled);
    if (!status)
        status = weft_run_create(&dense->run, g->context, compiled, &config);
    if (!status)
        weft__gradients_count_sends(&dense->sent, schedule);
    weft_plan_destroy(compiled);
    weft_schedule_destroy(schedule);
    return status;
}

/* A slot of a layer: its tensors. */
static int bind_layer(struct weft_gradients *g, struct dense *dense, size_t l)
{
    const struct weft__gradients_layer *layer = &g->layers[l];
    char name[48];
    snprintf(name, sizeof name, "layer.%zu", l);
    weft_slot_t slot = weft_plan_find_slot(weft_run_plan(dense->run), name);
    return slot < 0 ? slot
                    : weft_run_bind_list(dense->run, slot, g->model.tensors + layer->first,
                                         layer->tensor_count, g->model.dtype);
}

static int bind_group(struct weft_gradients *g, const struct weft__gradients_plan *plan,
                      struct dense *dense, size_t k)
{
    const struct weft__gradients_group *group = &plan->groups[k];
    char name[48];
    int status = WEFT_OK;
    if (g->ranks == 1 || !group->count)
        return WEFT_OK;
    if (dense->in_place[k]) {
        snprintf(name, sizeof name, "group.%zu", k);
        return weft_run_bind_name(dense->run, name, is_adjacent(g, group), group->count,
                                  g->model.dtype);
    }
    dense->sent.copied_bytes += 2 * group->count * weft_dtype_size(g->model.dtype);
    for (size_t i = 0; i < group->layer_count && !status; i++)
        if (g->layers[group->layers[i]].count)
            status = bind_layer(g, dense, group->layers[i]);
    return status;
}

static int create(struct weft_gradients *g, struct weft__gradients_plan *plan,
                  struct weft__gradients_plan *before, const struct weft_gradients_state *state)
{
    (void)before;
    (void)state;
    struct dense *dense = weft_memory_alloc(1, sizeof *dense);
    plan->sums = dense;
    if (!dense)
        return weft__gradients_no_memory("a plan of layers", g->layer_count);
    if (!g->layer_count)
        return WEFT_OK;
    int status = make_lists(dense, g->layer_count, plan->group_count);
    for (size_t k = 0; k < plan->group_count && !status; k++)
        dense->in_place[k] =
            g->config.wire_dtype == g->model.dtype && is_adjacent(g, &plan->groups[k]) != NULL;
    if (!status)
        status = make_clock(dense, g->context);
    if (!status)
        status = build(g, plan, dense);
    for (size_t k = 0; k < plan->group_count && !status; k++)
        status = bind_group(g, plan, dense, k);
    return status;
}

static void destroy(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct dense *dense = plan->sums;
    (void)g;
    if (!dense)
        return;
    weft_run_destroy(dense->run);
    weft_op_destroy(dense->clock);
    weft_memory_free(dense->nodes.ready);
    weft_memory_free(dense->nodes.done);
    weft_memory_free(dense->nodes.started);
    weft_memory_free(dense->nodes.ended);
    weft_memory_free(dense->in_place);
    weft_memory_free((void *)dense->left);
    weft_memory_free(dense);
    plan->sums = NULL;
}

/* ---- steps ---- */

static int begin(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct dense *dense = plan->sums;
    (void)g;
    for (size_t k = 0; k < plan->group_count; k++)
        atomic_store_explicit(&dense->left[k], plan->groups[k].layer_count, memory_order_relaxed);
    return dense->run ? weft_run_start(dense->run) : WEFT_OK;
}

/* The layers of a group have one event, or each its own. */
static int share_event(const struct dense *dense, const struct weft__gradients_group *group)
{
    return dense->nodes.ready[group->layers[0]] ==
           dense->nodes.ready[group->layers[group->layer_count - 1]];
}

static int ready(struct weft_gradients *g, struct weft__gradients_plan *plan, size_t layer)
{
    struct dense *dense = plan->sums;
    const size_t k = plan->group_of[layer];
    (void)g;
    /* Who is the last sees what the others have written: each releases, the last one acquires. */
    if (share_event(dense, &plan->groups[k]) &&
        atomic_fetch_sub_explicit(&dense->left[k], 1, memory_order_acq_rel) > 1)
        return WEFT_OK;
    return weft_run_fire(dense->run, dense->nodes.ready[layer]);
}

static int wait(struct weft_gradients *g, struct weft__gradients_plan *plan, size_t layer,
                uint64_t until)
{
    struct dense *dense = plan->sums;
    return weft_run_wait_node(dense->run, dense->nodes.done[layer], weft__gradients_left(g, until));
}

static int end(struct weft_gradients *g, struct weft__gradients_plan *plan, uint64_t until)
{
    struct dense *dense = plan->sums;
    int status = dense->run ? weft_run_wait(dense->run, weft__gradients_left(g, until)) : WEFT_OK;
    if (status)
        return status;
    for (size_t k = 0; k < plan->group_count && dense->run; k++) {
        plan->spans[k].start = weft_run_get_value(dense->run, dense->nodes.started[k]);
        plan->spans[k].end = weft_run_get_value(dense->run, dense->nodes.ended[k]);
    }
    weft__gradients_add_traffic(&plan->sent, &dense->sent);
    return WEFT_OK;
}

static char *report(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct dense *dense = plan->sums;
    char *text = NULL;
    (void)g;
    return dense->run && !weft_run_report(dense->run, &text) ? text : NULL;
}

static void quit(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct dense *dense = plan->sums;
    (void)g;
    if (dense && dense->run)
        weft_run_quit(dense->run);
}

const struct weft__gradients_way weft__gradients_dense = {
    .name = "dense",
    .create = create,
    .begin = begin,
    .ready = ready,
    .wait = wait,
    .end = end,
    .report = report,
    .quit = quit,
    .destroy = destroy,
};
