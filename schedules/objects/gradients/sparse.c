/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups that are summed sparsely: a sparse average a group, over its layers' tensors.
 *
 *     ready    who announces the last layer of a group posts it: accumulates and selects, in that
 *              thread; then the group's event fires
 *     runs     go on side by side, each by itself: unlike a dense group none waits for another
 *     wait     first for the event, as other threads may still announce layers of the group; then
 *              the first who waits for a layer of it ends the group, and writes its gradients
 *
 * The events are those of a run without messages. A group's lock is held by who posts or ends it.
 *
 * Residuals and velocities are elements' own: where other groups take the place of these they move,
 * by way of the order of the model. Groups of the same layers keep their regions (Ok-Topk) too.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "schedules/objects/gradients/gradients.h"
#include "schedules/objects/sparse_average/member.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

#define DENSITY 0.001 /* of sparse averages, by default */

/* What texts begin with. */
static const char who_announces[] = "announcing a layer";
static const char who_waits[] = "waiting for a layer";

struct group {
    const struct weft__gradients_group *of;
    struct weft_sparse_average *average;
    weft_node_t event, join;
    pthread_mutex_t lock;
    int locks;             /* it has been made */
    atomic_size_t missing; /* layers that have not been announced in this step */
    int posted;            /* and not been ended; under the lock */
    uint64_t start;        /* of the step; under the lock */
    uint64_t messages, bytes;
};

struct sums {
    struct group *groups; /* owned */
    size_t group_count;
    struct weft_run *run;
    /* The state that was asked for last, in the order of the model. Owned. */
    float *residual, *velocity, *unsent;
    uint64_t *regions;
    size_t region_count;
};

/* ---- the configuration ---- */

/* What is wrong with a sparse average's configuration, as a member of config. */
static int check_average(const char *who, const struct weft_sparse_average_config *config)
{
    char text[320];
    int status = weft__sparse_average_check(who, config);
    if (!status)
        return WEFT_OK;
    snprintf(text, sizeof text, "%s", weft_error_text());
    const char *member = strstr(text, "config->");
    return member ? weft_error_set(status, "%.*sconfig->sparse->%s", (int)(member - text), text,
                                   member + strlen("config->"))
                  : status;
}

static int check_state(const char *who, const struct weft_sparse_average_config *config,
                       weft_gradients_method_t method, const struct weft_gradients_state *state)
{
    if (state->region_count && !state->regions)
        return REFUSE("%s: config->state->regions is NULL, expected %zu words", who,
                      state->region_count);
    if (method == WEFT_GRADIENTS_DENSE &&
        (state->residual || state->velocity || state->unsent || state->regions))
        return REFUSE("%s: config->state has %s, expected NULL with WEFT_GRADIENTS_DENSE", who,
                      state->residual   ? "residual"
                      : state->velocity ? "velocity"
                      : state->unsent   ? "unsent"
                                        : "regions");
    if (method == WEFT_GRADIENTS_SPARSE && state->velocity && config->momentum == 0)
        return REFUSE("%s: config->state->velocity is given, expected NULL with "
                      "config->sparse->momentum 0",
                      who);
    if (state->unsent && !state->failed)
        return REFUSE("%s: config->state->unsent is given, expected NULL but of an object that has "
                      "failed",
                      who);
    return WEFT_OK;
}

int weft__gradients_sparse_check(const char *who, const struct weft_sparse_average_config *config,
                                 weft_gradients_method_t method,
                                 const struct weft_gradients_state *state)
{
    int status = check_state(who, config, method, state);
    if (status)
        return status;
    status = check_average(who, config);
    if (status)
        return status;
    if (config->dtype)
        return REFUSE("%s: config->sparse->dtype is %d, expected 0: config->dtype says it", who,
                      (int)config->dtype);
    if (config->tensors || config->tensor_count)
        return REFUSE("%s: config->sparse->tensors is %s, of %zu, expected NULL, of 0: "
                      "config->tensors says it",
                      who, config->tensors ? "given" : "NULL", config->tensor_count);
    const char *set = config->scope         ? "scope"
                      : config->deadline_ns ? "deadline_ns"
                      : config->meet_ns     ? "meet_ns"
                      : config->leave_ns    ? "leave_ns"
                      : config->state       ? "state"
                                            : NULL;
    return set ? REFUSE("%s: config->sparse->%s is given, expected 0", who, set) : WEFT_OK;
}

size_t weft__gradients_sparse_settings(const struct weft_sparse_average_config *config,
                                       struct weft__setting settings[])
{
    const double numbers[] = {(double)config->k,
                              config->k ? 0 : config->density,
                              config->momentum,
                              config->clip_norm,
                              (double)config->residual,
                              (double)config->nan,
                              (double)config->threshold_steps,
                              (double)config->balance_steps,
                              (double)config->warmup_steps};
    settings[0] = weft__setting_count("config->sparse->method", (uint64_t)config->method);
    settings[1] = weft__setting_reals("the numbers of config->sparse (k, density, momentum ...)",
                                      numbers, sizeof numbers / sizeof *numbers);
    settings[2] = weft__setting_reals("config->sparse->warmup", config->warmup,
                                      config->warmup_steps ? config->warmup_count : 0);
    return 3;
}

/* What is sent of a group is pairs, of 8 bytes: a group of M bytes of f32 costs as an allreduce of
 * 2 density M bytes, or of 8 k. */
int weft__gradients_sparse_cost(const struct weft_gradients *g, struct weft_merge_point *points,
                                size_t *count)
{
    const double density = g->sparse.density > 0 ? g->sparse.density : DENSITY;
    const double all = (double)g->model.count * sizeof(float);
    struct weft_merge_cost cost;
    double us;
    for (size_t i = 0; i < *count && !g->sparse.k; i++)
        points[i].bytes = ceil(points[i].bytes / (2 * density));
    if (!g->sparse.k)
        return WEFT_OK;
    weft_merge_cost_init(&cost);
    cost.points = points;
    cost.point_count = *count;
    int status = weft_merge_cost_get(&cost, 8.0 * (double)g->sparse.k, &us);
    if (status)
        return status;
    points[0] = (struct weft_merge_point){.bytes = 0, .us = us};
    points[1] = (struct weft_merge_point){.bytes = all, .us = us};
    *count = 2;
    return WEFT_OK;
}

/* ---- residuals, in the order of the model ---- */

/* The elements of a group, which lie one behind the other, are those of the model; and back. */
static void gather(const struct weft_gradients *g, const struct group *group, float *packed,
                   const float *model)
{
    for (size_t i = 0; i < group->of->layer_count; i++) {
        const struct weft__gradients_layer *layer = &g->layers[group->of->layers[i]];
        memcpy(packed, model + layer->offset, layer->count * sizeof *model);
        packed += layer->count;
    }
}

static void scatter(const struct weft_gradients *g, const struct group *group, const float *packed,
                    float *model)
{
    for (size_t i = 0; i < group->of->layer_count; i++) {
        const struct weft__gradients_layer *layer = &g->layers[group->of->layers[i]];
        memcpy(model + layer->offset, packed, layer->count * sizeof *model);
        packed += layer->count;
    }
}

/* Regions say whose they are: the number of ranks, then of each group its number of layers, the
 * layers, the number of words, the words. */
static size_t region_words(const struct weft_gradients *g, const struct sums *sums)
{
    size_t words = 1;
    for (size_t i = 0; i < sums->group_count; i++)
        words += sums->groups[i].of->layer_count + (size_t)g->ranks + 4;
    return words;
}

static uint64_t *put_regions(uint64_t *word, const struct group *group,
                             const struct weft_sparse_average_state *state)
{
    *word++ = group->of->layer_count;
    for (size_t i = 0; i < group->of->layer_count; i++)
        *word++ = group->of->layers[i];
    *word++ = state->region_count;
    memcpy(word, state->regions, state->region_count * sizeof *word);
    return word + state->region_count;
}

/* The regions of a group of the same layers, or NULL. */
static const uint64_t *find_regions(const uint64_t *word, size_t count, const struct group *group,
                                    int ranks, size_t *found)
{
    const uint64_t *end = word + count;
    if (!count || *word++ != (uint64_t)ranks)
        return NULL;
    while (word < end) {
        uint64_t layers = *word++;
        if (layers >= (uint64_t)(end - word))
            return NULL;
        int same = layers == group->of->layer_count;
        for (uint64_t i = 0; i < layers; i++)
            same = same && word[i] == group->of->layers[i];
        word += layers;
        *found = (size_t)*word++;
        if (*found > (size_t)(end - word))
            return NULL;
        if (same)
            return word;
        word += *found;
    }
    return NULL;
}

/* Brings what all groups keep into the order of the model. Of an object that has failed regions are
 * nothing to go on from. */
static int collect(const struct weft_gradients *g, struct sums *sums)
{
    const int momentum = g->sparse.momentum != 0, oktopk = g->sparse.method == WEFT_SPARSE_OKTOPK;
    size_t count = g->model.count + 1;
    if (!sums->residual)
        sums->residual = weft_memory_alloc(count, sizeof *sums->residual);
    if (momentum && !sums->velocity)
        sums->velocity = weft_memory_alloc(count, sizeof *sums->velocity);
    if (oktopk && !sums->regions)
        sums->regions = weft_memory_alloc(region_words(g, sums), sizeof *sums->regions);
    if (!sums->residual || (momentum && !sums->velocity) || (oktopk && !sums->regions))
        return weft__gradients_no_memory("residuals", g->model.count);
    uint64_t *word = sums->regions;
    if (oktopk)
        *word++ = (uint64_t)g->ranks;
    for (size_t i = 0; i < sums->group_count; i++) {
        const struct group *group = &sums->groups[i];
        struct weft_sparse_average_state state = {.struct_size = sizeof state};
        int status = weft_sparse_average_get_state(group->average, &state);
        if (status)
            return status;
        scatter(g, group, state.residual, sums->residual);
        if (momentum)
            scatter(g, group, state.velocity, sums->velocity);
        if (state.regions)
            word = put_regions(word, group, &state);
    }
    sums->region_count = oktopk ? (size_t)(word - sums->regions) : 0;
    return WEFT_OK;
}

/* What a group had selected in the step that has failed, but for layers whose sum was given. */
static int collect_unsent(struct weft_gradients *g, struct sums *sums, struct group *group)
{
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    int status = weft_sparse_average_get_state(group->average, &state);
    const float *unsent = state.unsent;
    if (status || !unsent)
        return status;
    if (!sums->unsent)
        sums->unsent = weft_memory_alloc(g->model.count + 1, sizeof *sums->unsent);
    if (!sums->unsent)
        return weft__gradients_no_memory("what was not sent", g->model.count);
    for (size_t i = 0; i < group->of->layer_count; i++) {
        const size_t l = group->of->layers[i];
        const struct weft__gradients_layer *layer = &g->layers[l];
        if (!(g->states[l] & WEFT__LAYER_GIVEN))
            memcpy(sums->unsent + layer->offset, unsent, layer->count * sizeof *unsent);
        unsent += layer->count;
    }
    return WEFT_OK;
}

/* The step under way has failed: what had been posted of it. */
static int abandon(struct weft_gradients *g, struct sums *sums)
{
    int status = WEFT_OK;
    memset(g->kept, 0, g->layer_count);
    for (size_t i = 0; i < sums->group_count && g->open && !status; i++) {
        struct group *group = &sums->groups[i];
        pthread_mutex_lock(&group->lock);
        const int kept = weft__sparse_average_abandon(group->average, g->next);
        group->posted = 0;
        pthread_mutex_unlock(&group->lock);
        for (size_t j = 0; j < group->of->layer_count; j++)
            g->kept[group->of->layers[j]] = kept != 0;
        if (kept)
            status = collect_unsent(g, sums, group);
    }
    return status;
}

/* ---- making ---- */

/* What groups go on from: a checkpoint, the groups before, or nothing. */
static int find_source(struct weft_gradients *g, struct weft__gradients_plan *before,
                       const struct weft_gradients_state *state,
                       struct weft_gradients_state *source)
{
    *source = (struct weft_gradients_state){.struct_size = sizeof *source};
    if (state)
        *source = *state;
    if (!before)
        return WEFT_OK;
    struct sums *old = before->sums;
    int status = collect(g, old);
    source->residual = old->residual;
    source->velocity = old->velocity;
    source->regions = old->regions;
    source->region_count = old->region_count;
    return status;
}

/* The tensors of a group. */
static struct weft_piece *list_tensors(const struct weft_gradients *g, const struct group *group,
                                       size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < group->of->layer_count; i++)
        *count += g->layers[group->of->layers[i]].tensor_count;
    struct weft_piece *tensors = weft_memory_alloc(*count + 1, sizeof *tensors);
    struct weft_piece *to = tensors;
    for (size_t i = 0; tensors && i < group->of->layer_count; i++) {
        const struct weft__gradients_layer *layer = &g->layers[group->of->layers[i]];
        memcpy(to, g->model.tensors + layer->first, layer->tensor_count * sizeof *to);
        to += layer->tensor_count;
    }
    return tensors;
}

/* packed: room for the residuals and the velocities of the group, where there are any. */
static int make_average(const struct weft_gradients *g, struct group *group, uint64_t next,
                        const struct weft_gradients_state *source, float *const packed[2])
{
    struct weft_sparse_average_config config = g->sparse;
    struct weft_sparse_average_state state = {
        .struct_size = sizeof state, .next = next, .residual = packed[0], .velocity = packed[1]};
    size_t count;
    struct weft_piece *tensors = list_tensors(g, group, &count);
    if (!tensors)
        return weft__gradients_no_memory("a list of tensors", count);
    if (packed[0])
        gather(g, group, packed[0], source->residual);
    if (packed[1])
        gather(g, group, packed[1], source->velocity);
    state.regions = find_regions(source->regions, source->regions ? source->region_count : 0, group,
                                 g->ranks, &state.region_count);
    state.region_count = state.regions ? state.region_count : 0;
    config.struct_size = sizeof config;
    config.dtype = g->model.dtype;
    config.tensors = tensors;
    config.tensor_count = count;
    config.leave_ns = g->config.leave_ns;
    config.state = &state;
    int status = weft__sparse_average_create_member(&group->average, "making groups of layers",
                                                    g->context, g->object, &config);
    weft_memory_free(tensors);
    return status;
}

static int make_averages(const struct weft_gradients *g, struct sums *sums, uint64_t next,
                         const struct weft_gradients_state *source)
{
    float *packed[2] = {NULL, NULL};
    size_t most = 0;
    int status = WEFT_OK;
    for (size_t i = 0; i < sums->group_count; i++)
        most = sums->groups[i].of->count > most ? sums->groups[i].of->count : most;
    if (source->residual)
        packed[0] = weft_memory_alloc(most + 1, sizeof *packed[0]);
    if (source->velocity)
        packed[1] = weft_memory_alloc(most + 1, sizeof *packed[1]);
    if ((source->residual && !packed[0]) || (source->velocity && !packed[1]))
        status = weft__gradients_no_memory("residuals", most);
    for (size_t i = 0; i < sums->group_count && !status; i++)
        status = make_average(g, &sums->groups[i], next, source, packed);
    weft_memory_free(packed[1]);
    weft_memory_free(packed[0]);
    return status;
}

/* An event of each group, and a join that it can be waited for by. */
static int add_groups(struct weft_schedule *schedule, struct sums *sums)
{
    char label[96];
    int status = WEFT_OK;
    for (size_t i = 0; i < sums->group_count && !status; i++) {
        struct group *group = &sums->groups[i];
        group->event = weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
        group->join = weft_schedule_add_join(schedule);
        snprintf(label, sizeof label, "all layers of group %zu, the first of them layer %zu", i,
                 group->of->layer_count ? group->of->layers[0] : 0);
        if (group->event < 0 || group->join < 0)
            return group->event < 0 ? (int)group->event : (int)group->join;
        status = weft_schedule_set_label(schedule, group->event, label);
        if (!status)
            status = weft_schedule_add_order(schedule, group->event, group->join);
    }
    return status;
}

static int make_run(const struct weft_gradients *g, struct sums *sums)
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.object = g->object;
    int status = weft_schedule_create(&schedule, g->rank, g->ranks);
    if (!status)
        status = weft_schedule_set_name(schedule, "gradients");
    if (!status)
        status = add_groups(schedule, sums);
    if (!status)
        status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft_run_create(&sums->run, g->context, plan, &config);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return status;
}

static int create(struct weft_gradients *g, struct weft__gradients_plan *plan,
                  struct weft__gradients_plan *before, const struct weft_gradients_state *state)
{
    struct weft_gradients_state source;
    struct sums *sums = weft_memory_alloc(1, sizeof *sums);
    if (!sums)
        return weft__gradients_no_memory("groups", plan->group_count);
    plan->sums = sums;
    sums->groups = weft_memory_alloc(plan->group_count + 1, sizeof *sums->groups);
    if (!sums->groups)
        return weft__gradients_no_memory("groups", plan->group_count);
    sums->group_count = plan->group_count;
    for (size_t i = 0; i < plan->group_count; i++) {
        sums->groups[i].of = &plan->groups[i];
        if (pthread_mutex_init(&sums->groups[i].lock, NULL))
            return weft__gradients_no_memory("locks of groups", plan->group_count);
        sums->groups[i].locks = 1;
    }
    int status = find_source(g, before, state, &source);
    if (!status)
        status = make_run(g, sums);
    return status ? status : make_averages(g, sums, plan->since, &source);
}

static void destroy(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct sums *sums = plan->sums;
    (void)g;
    plan->sums = NULL;
    if (!sums)
        return;
    for (size_t i = 0; i < sums->group_count; i++) {
        weft__sparse_average_free(sums->groups[i].average);
        if (sums->groups[i].locks)
            pthread_mutex_destroy(&sums->groups[i].lock);
    }
    weft_run_destroy(sums->run);
    weft_memory_free(sums->regions);
    weft_memory_free(sums->unsent);
    weft_memory_free(sums->velocity);
    weft_memory_free(sums->residual);
    weft_memory_free(sums->groups);
    weft_memory_free(sums);
}

static void quit(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct sums *sums = plan->sums;
    (void)g;
    for (size_t i = 0; i < sums->group_count; i++)
        weft__sparse_average_leave(sums->groups[i].average, "leaving");
}

/* ---- steps ---- */

static int begin(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct sums *sums = plan->sums;
    (void)g;
    for (size_t i = 0; i < sums->group_count; i++)
        atomic_store_explicit(&sums->groups[i].missing, sums->groups[i].of->layer_count,
                              memory_order_relaxed); /* the lock of the object orders it */
    return weft_run_start(sums->run);
}

/* What cannot be posted the others would wait for. */
static void give_up(struct weft_gradients *g, int status)
{
    char text[320];
    snprintf(text, sizeof text, "%s", weft_error_text());
    weft_object_fail(g->object, status, text);
}

static int ready(struct weft_gradients *g, struct weft__gradients_plan *plan, size_t layer)
{
    struct sums *sums = plan->sums;
    struct group *group = &sums->groups[plan->group_of[layer]];
    /* The gradients of layers that other threads have announced are there to be read. */
    if (atomic_fetch_sub_explicit(&group->missing, 1, memory_order_acq_rel) > 1)
        return WEFT_OK;
    pthread_mutex_lock(&group->lock);
    group->start = weft_context_now(g->context);
    int status = weft__sparse_average_post(group->average, who_announces);
    group->posted = !status;
    pthread_mutex_unlock(&group->lock);
    if (!status)
        status = weft_run_fire(sums->run, group->event);
    if (status && !weft_object_check(g->object, who_announces))
        give_up(g, status);
    return status;
}

/* A sparse average counts its tensors from the first of its group. */
static void tell_group(const struct group *group, int status)
{
    char text[320];
    snprintf(text, sizeof text, "%s", weft_error_text());
    weft_error_set(status, "%s (in the group that begins with layer %zu)", text,
                   group->of->layers[0]);
}

/* The first who waits writes the gradients. */
static int end_group(struct weft_gradients *g, struct group *group, uint64_t until)
{
    if (!group->posted)
        return WEFT_OK;
    int status =
        weft__sparse_average_wait(group->average, who_waits, until == WEFT_NEVER ? 0 : until);
    if (status && (status != WEFT_ERR_COMPUTE || weft_object_check(g->object, who_waits)))
        return status;
    if (status)
        tell_group(group, status);
    weft__sparse_average_write(group->average,
                               g->config.reduction == WEFT_GRADIENTS_SUM ? 1 : g->ranks);
    group->posted = 0;
    return status;
}

static int wait(struct weft_gradients *g, struct weft__gradients_plan *plan, size_t layer,
                uint64_t until)
{
    struct sums *sums = plan->sums;
    struct group *group = &sums->groups[plan->group_of[layer]];
    int status = weft_run_wait_node(sums->run, group->join, weft__gradients_left(g, until));
    if (status)
        return status;
    pthread_mutex_lock(&group->lock);
    status = end_group(g, group, until);
    pthread_mutex_unlock(&group->lock);
    return status;
}

static int end(struct weft_gradients *g, struct weft__gradients_plan *plan, uint64_t until)
{
    struct sums *sums = plan->sums;
    int status = weft_run_wait(sums->run, weft__gradients_left(g, until));
    for (size_t i = 0; i < sums->group_count && !status; i++) {
        pthread_mutex_lock(&sums->groups[i].lock);
        status = end_group(g, &sums->groups[i], until);
        pthread_mutex_unlock(&sums->groups[i].lock);
        if (status == WEFT_ERR_COMPUTE && !weft_object_check(g->object, who_waits)) {
            weft__gradients_keep_bad(g, status);
            status = WEFT_OK;
        }
    }
    for (size_t i = 0; i < sums->group_count && !status; i++) {
        struct group *group = &sums->groups[i];
        struct weft_sparse_average_stats stats = {.struct_size = sizeof stats};
        status = weft_sparse_average_get_stats(group->average, &stats);
        uint64_t ended = weft__sparse_average_ended(group->average);
        plan->sent.messages += stats.messages - group->messages;
        plan->sent.bytes += stats.bytes - group->bytes;
        group->messages = stats.messages;
        group->bytes = stats.bytes;
        plan->spans[i].start = group->start;
        plan->spans[i].end = ended > group->start ? ended : group->start;
    }
    return status;
}

/* What lies behind it grows. */
static char *append(char *text, char *more)
{
    if (!text || !more)
        return text ? text : more;
    size_t length = strlen(text), room = length + strlen(more) + 2;
    char *both = weft_memory_alloc(room, 1);
    if (both)
        snprintf(both, room, "%s%s%s", text, length && text[length - 1] != '\n' ? "\n" : "", more);
    weft_memory_free(more);
    if (!both)
        return text;
    weft_memory_free(text);
    return both;
}

static char *report(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct sums *sums = plan->sums;
    char *text = NULL;
    (void)g;
    if (weft_run_report(sums->run, &text))
        text = NULL;
    for (size_t i = 0; i < sums->group_count; i++) {
        struct group *group = &sums->groups[i];
        if (pthread_mutex_trylock(&group->lock))
            continue; /* somebody waits for it */
        text = append(text, group->posted ? weft__sparse_average_report(group->average) : NULL);
        pthread_mutex_unlock(&group->lock);
    }
    return text;
}

static int save(struct weft_gradients *g, struct weft__gradients_plan *plan,
                struct weft_gradients_state *state)
{
    struct sums *sums = plan->sums;
    int status = state->failed ? abandon(g, sums) : WEFT_OK;
    if (!status)
        status = collect(g, sums);
    if (status)
        return status;
    state->residual = sums->residual;
    state->velocity = sums->velocity;
    state->regions = state->failed ? NULL : sums->regions;
    state->region_count = state->failed ? 0 : sums->region_count;
    state->kept = state->failed ? g->kept : NULL;
    state->unsent = state->failed ? sums->unsent : NULL;
    return WEFT_OK;
}

const struct weft__gradients_way weft__gradients_sparse = {
    .name = "sparse",
    .create = create,
    .begin = begin,
    .ready = ready,
    .wait = wait,
    .end = end,
    .report = report,
    .quit = quit,
    .destroy = destroy,
    .save = save,
};
