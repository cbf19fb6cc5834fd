/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients: creation and end. What is given is read by config.c; ranks meet in meet.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "schedules/objects/gradients/create.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

#define MOST_NS (UINT64_C(1) << 62)

void weft_gradients_config_init_sized(struct weft_gradients_config *config, size_t size)
{
    weft_sized_init(config, size);
}

int weft__gradients_no_memory(const char *what, size_t count)
{
    return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %s (%zu)", what, count);
}

/* ---- exchanges ---- */

void weft__gradients_add_traffic(struct weft__gradients_traffic *to,
                                 const struct weft__gradients_traffic *what)
{
    to->messages += what->messages;
    to->bytes += what->bytes;
    to->copied_bytes += what->copied_bytes;
}

void weft__gradients_count_sends(struct weft__gradients_traffic *traffic,
                                 const struct weft_schedule *schedule)
{
    struct weft_node_info node = {.struct_size = sizeof node};
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    for (size_t n = 0; n < weft_schedule_node_count(schedule); n++) {
        if (weft_schedule_get_node(schedule, (weft_node_t)n, &node) || node.kind != WEFT_NODE_SEND)
            continue;
        weft_schedule_get_slot(schedule, node.regions[0].slot, &slot);
        traffic->messages++;
        traffic->bytes += node.regions[0].count * weft_dtype_size(slot.dtype);
    }
}

int weft__gradients_exchange(struct weft_gradients *g, const char *template_name,
                             struct weft_template_params *params, const char *slot, void *data,
                             struct weft__gradients_traffic *traffic, struct weft_run **run)
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.object = g->object;
    params->cost = &g->surroundings.cost;
    params->hosts = g->surroundings.hosts;
    int status = weft_template_build(template_name, g->rank, g->ranks, params, &schedule);
    if (!status && traffic)
        weft__gradients_count_sends(traffic, schedule);
    if (!status)
        status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft_run_create(run, g->context, plan, &config);
    if (!status)
        status = weft_run_bind_name(*run, slot, data, params->count, params->dtype);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return status;
}

/* ---- memory ---- */

static int check_layers(const char *who, const struct weft_gradients_config *config)
{
    size_t all = 0;
    if (!config->layer_tensors)
        return !config->layer_count || config->layer_count == config->tensor_count
                   ? WEFT_OK
                   : REFUSE("%s: config->layer_tensors is NULL, expected a list for "
                            "config->layer_count %zu with %zu tensors",
                            who, config->layer_count, config->tensor_count);
    for (size_t l = 0; l < config->layer_count; l++) {
        if (config->layer_tensors[l] > config->tensor_count - all)
            return REFUSE("%s: config->layer_tensors[%zu] is %zu, expected at most the %zu tensors "
                          "that are left",
                          who, l, config->layer_tensors[l], config->tensor_count - all);
        all += config->layer_tensors[l];
    }
    return all == config->tensor_count
               ? WEFT_OK
               : REFUSE("%s: config->layer_tensors add up to %zu, expected the %zu of "
                        "config->tensor_count",
                        who, all, config->tensor_count);
}

static int copy_layers(const char *who, struct weft_gradients *g,
                       const struct weft_gradients_config *config)
{
    struct weft__model *model = &g->model;
    int status = weft__model_init(model, who, WEFT__GRADIENT_DTYPES, config->dtype, config->tensors,
                                  config->tensor_count);
    if (!status)
        status = check_layers(who, config);
    for (size_t t = 0; t < model->tensor_count && !status; t++)
        if ((uintptr_t)model->tensors[t].data % weft_dtype_size(model->dtype))
            status = REFUSE("%s: config->tensors[%zu].data is %p, expected memory that is aligned "
                            "for %s",
                            who, t, model->tensors[t].data, weft_dtype_name(model->dtype));
    if (status)
        return status;
    g->layer_count = config->layer_tensors ? config->layer_count : config->tensor_count;
    g->layers = weft_memory_alloc(g->layer_count + 1, sizeof *g->layers);
    g->states = weft_memory_alloc(g->layer_count + 1, 1);
    g->announced_ns = weft_memory_alloc(g->layer_count + 1, sizeof *g->announced_ns);
    g->agreed = weft_memory_alloc(weft__gradients_state_words(g->layer_count), sizeof *g->agreed);
    g->taken = weft_memory_alloc(g->layer_count + 1, sizeof *g->taken);
    g->taken_before = weft_memory_alloc(g->layer_count + 1, sizeof *g->taken_before);
    g->kept = weft_memory_alloc(g->layer_count + 1, 1);
    if (!g->layers || !g->states || !g->announced_ns || !g->agreed || !g->taken ||
        !g->taken_before || !g->kept)
        return weft__gradients_no_memory("a list of layers", g->layer_count);
    for (size_t l = 0, t = 0, at = 0; l < g->layer_count; l++) {
        struct weft__gradients_layer *layer = &g->layers[l];
        layer->first = t;
        layer->tensor_count = config->layer_tensors ? config->layer_tensors[l] : 1;
        layer->offset = at;
        for (; t < layer->first + layer->tensor_count; t++)
            layer->count += model->tensors[t].count;
        at += layer->count;
    }
    return WEFT_OK;
}

/* What is wrong with groups shows in a plan. */
static int copy_merge(const char *who, struct weft_gradients *g,
                      const struct weft__gradients_given *given)
{
    struct weft_merge_plan *tried = NULL;
    g->merge = given->merge;
    g->merge.group_layers = NULL;
    g->merge.group_count = 0;
    if (given->merge.method == WEFT_MERGE_GIVEN && given->merge.group_layers) {
        const size_t count = given->merge.group_count;
        g->group_layers = weft_memory_alloc(count + 1, sizeof *g->group_layers);
        if (!g->group_layers)
            return weft__gradients_no_memory("groups", count);
        memcpy(g->group_layers, given->merge.group_layers, count * sizeof *g->group_layers);
        g->merge.group_layers = g->group_layers;
        g->merge.group_count = count;
    }
    weft_merge_cost_init(&g->cost);
    g->given_cost = given->config.cost != NULL;
    int status = g->given_cost ? weft__gradients_copy_cost(g, &given->cost) : WEFT_OK;
    if (status)
        return status == WEFT_ERR_INVALID ? weft__gradients_retell(status, who, "cost", "cost")
                                          : status;
    status = weft__gradients_predict(g, NULL, NULL, &g->merge, &tried);
    weft_merge_plan_destroy(tried);
    return status == WEFT_ERR_INVALID ? weft__gradients_retell(status, who, "config", "merge")
                                      : status;
}

static int copy_times(const char *who, struct weft_gradients *g,
                      const struct weft_gradients_config *config)
{
    g->given_times = config->ready_ns != NULL;
    for (size_t l = 0; g->given_times && l < g->layer_count; l++) {
        if (config->ready_ns[l] >= MOST_NS)
            return REFUSE("%s: config->ready_ns[%zu] is %llu, expected less than 2^62", who, l,
                          (unsigned long long)config->ready_ns[l]);
        g->planning.agreeing[l] = config->ready_ns[l];
    }
    return WEFT_OK;
}

static int copy_sparse(struct weft_gradients *g, const struct weft_sparse_average_config *given)
{
    const size_t count = given->warmup ? given->warmup_count : 0;
    g->sparse = *given;
    g->sparse.warmup = NULL;
    if (!count)
        return WEFT_OK;
    g->warmup = weft_memory_alloc(count, sizeof *g->warmup);
    if (!g->warmup)
        return weft__gradients_no_memory("a list of densities", count);
    memcpy(g->warmup, given->warmup, count * sizeof *g->warmup);
    g->sparse.warmup = g->warmup;
    return WEFT_OK;
}

/* The residual of an object that has failed, to which more may come. */
static int copy_residual(struct weft_gradients *g, const struct weft_gradients_state *state)
{
    const size_t count = g->model.count;
    if (!state->unsent)
        return WEFT_OK;
    g->residual = weft_memory_alloc(count + 1, sizeof *g->residual);
    if (!g->residual)
        return weft__gradients_no_memory("residuals", count);
    if (state->residual)
        memcpy(g->residual, state->residual, count * sizeof *g->residual);
    return WEFT_OK;
}

static const struct weft__gradients_way *const ways[] = {
    [WEFT_GRADIENTS_DENSE] = &weft__gradients_dense,
    [WEFT_GRADIENTS_SPARSE] = &weft__gradients_sparse,
    [WEFT_GRADIENTS_COMPRESSED] = &weft__gradients_compressed,
};

/* Everything that needs no other rank. */
static int prepare(const char *who, struct weft_gradients *g,
                   const struct weft__gradients_given *given)
{
    const struct weft_gradients_config *config = &given->config;
    g->rank = weft_context_rank(g->context);
    g->ranks = weft_context_size(g->context);
    g->config = *config;
    g->config.tensors = NULL;
    g->config.layer_tensors = NULL;
    g->config.merge = NULL;
    g->config.cost = NULL;
    g->config.ready_ns = NULL;
    g->config.state = NULL;
    g->config.sparse = NULL;
    g->config.compressed = NULL;
    g->way = ways[config->method];
    int status = copy_layers(who, g, config);
    if (!status)
        status = copy_sparse(g, &given->sparse);
    if (!status && config->method == WEFT_GRADIENTS_COMPRESSED)
        status = weft__gradients_compressed_copy(g, &given->compressed);
    if (!status)
        status = weft__surroundings_find(&g->surroundings, g->context);
    if (!status)
        status = copy_merge(who, g, given);
    if (!status)
        status = weft__gradients_planning_make(g);
    if (!status)
        status = copy_times(who, g, config);
    if (!status && config->state)
        status = weft__gradients_state_check(g, who, &given->state);
    if (!status && config->state)
        status = weft__gradients_state_read(g, &given->state);
    if (!status && config->state)
        status = copy_residual(g, &given->state);
    g->next = g->first = config->state ? given->state.next : 0;
    return status;
}

static void free_all(struct weft_gradients *g)
{
    weft__gradients_plan_free(g, g->plan);
    weft__gradients_planning_free(g);
    weft_object_destroy(g->object);
    weft__surroundings_free(&g->surroundings);
    weft_memory_free(g->points);
    weft_memory_free(g->group_layers);
    weft_memory_free(g->residual);
    weft_memory_free(g->kept);
    weft_memory_free(g->taken_before);
    weft_memory_free(g->taken);
    weft_memory_free(g->agreed);
    weft_memory_free(g->announced_ns);
    weft_memory_free(g->states);
    weft_memory_free(g->layers);
    weft__gradients_compressed_free(g);
    weft_memory_free(g->warmup);
    weft__model_free(&g->model);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    weft_memory_free(g);
}

int weft_gradients_create(struct weft_gradients **gradients, struct weft_context *context,
                          const struct weft_gradients_config *config)
{
    if (!context)
        return REFUSE("%s: context is NULL", __func__);
    struct weft__gradients_given given = {.state.struct_size = sizeof given.state};
    int status = gradients ? weft__gradients_given_read(__func__, config, &given)
                           : REFUSE("%s: gradients is NULL", __func__);
    struct weft_gradients *g = status ? NULL : weft_memory_alloc(1, sizeof *g);
    if (!status && !g)
        status = weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", __func__);
    struct weft__creation creation;
    status = weft__creation_begin(&creation, context, __func__, NULL, status);
    if (g) {
        g->context = context;
        g->object = creation.object;
        pthread_mutex_init(&g->lock, NULL);
        pthread_cond_init(&g->changed, NULL);
    }
    if (!g) { /* the others meet */
        status = weft__creation_end(&creation, NULL, 0, NULL, 0, status);
        weft_object_destroy(creation.object);
        return status;
    }
    if (!status)
        status = prepare(__func__, g, &given);
    status = weft__gradients_meet(&creation, g, &given, status);
    if (!status)
        *gradients = g;
    else
        free_all(g);
    return status;
}

/* ---- the end ---- */

/* The step under way, and what has been posted beside it; then the others know that there is none
 * after it. */
static int leave(const char *who, struct weft_gradients *g)
{
    struct weft__gradients_planning *planning = &g->planning;
    uint64_t now = weft_context_now(g->context), limit = g->config.leave_ns;
    uint64_t until = limit == WEFT_NEVER || now > WEFT_NEVER - 1 - limit ? WEFT_NEVER : now + limit;
    int status = WEFT_OK;
    g->config.deadline_ns = limit; /* of what texts tell */
    for (size_t l = 0; l < g->layer_count && !status && g->open; l++)
        status = weft__gradients_wait_layer(g, who, l, until);
    struct weft_run *posted = planning->phase == WEFT__PLAN_AGREEING   ? planning->agree
                              : planning->phase == WEFT__PLAN_DECIDING ? planning->decide
                                                                       : NULL;
    if (!status && posted)
        status = weft__object_end_run(who, g->object, posted, limit);
    if (status)
        return status;
    g->way->quit(g, g->plan);
    if (planning->agree)
        weft_run_quit(planning->agree);
    if (planning->decide)
        weft_run_quit(planning->decide);
    return WEFT_OK;
}

/* What ends this rank's part for good. */
static int give_up(const char *who, struct weft_gradients *g, int status)
{
    char text[512];
    snprintf(text, sizeof text, "%s", weft_error_text());
    weft_object_fail(g->object, status, text);
    (void)who;
    return weft_error_set(status, "%s", text);
}

static int refuse_open(const char *who, struct weft_gradients *g)
{
    size_t l = 0;
    while (g->states[l])
        l++;
    weft_error_set(WEFT_ERR_STATE,
                   "%s: step %llu is under way, in which layer %zu has not been announced", who,
                   (unsigned long long)g->next, l);
    return give_up(who, g, WEFT_ERR_STATE);
}

int weft_gradients_destroy(struct weft_gradients *gradients)
{
    if (!gradients)
        return WEFT_OK;
    int status = weft_object_check(gradients->object, __func__);
    if (!status && gradients->open && gradients->announced < gradients->layer_count)
        status = refuse_open(__func__, gradients);
    else if (!status)
        status = leave(__func__, gradients);
    if (status == WEFT_ERR_TIMEOUT)
        status = give_up(__func__, gradients, status);
    free_all(gradients);
    return status;
}
