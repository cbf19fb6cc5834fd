/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups that are summed by members: their steps (members.h). */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/gradients/members.h"

/* What texts begin with. */
static const char who_announces[] = "announcing a layer";
static const char who_waits[] = "waiting for a layer";

/* ---- elements in the order of the model ---- */

void weft__gradients_sum_gather(const struct weft_gradients *g,
                                const struct weft__gradients_sum *group, float *packed,
                                const float *model)
{
    for (size_t i = 0; i < group->of->layer_count; i++) {
        const struct weft__gradients_layer *layer = &g->layers[group->of->layers[i]];
        memcpy(packed, model + layer->offset, layer->count * sizeof *model);
        packed += layer->count;
    }
}

void weft__gradients_sum_scatter(const struct weft_gradients *g,
                                 const struct weft__gradients_sum *group, const float *packed,
                                 float *model)
{
    for (size_t i = 0; i < group->of->layer_count; i++) {
        const struct weft__gradients_layer *layer = &g->layers[group->of->layers[i]];
        memcpy(model + layer->offset, packed, layer->count * sizeof *model);
        packed += layer->count;
    }
}

/* What a group had posted in the step that has failed, but for layers whose sum was given. */
static int collect_unsent(struct weft_gradients *g, struct weft__gradients_sums *sums,
                          struct weft__gradients_sum *group)
{
    const float *unsent = NULL;
    int status = sums->does->unsent(group->member, &unsent);
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

int weft__gradients_sums_abandon(struct weft_gradients *g, struct weft__gradients_sums *sums)
{
    int status = WEFT_OK;
    memset(g->kept, 0, g->layer_count);
    for (size_t i = 0; i < sums->group_count && g->open && !status; i++) {
        struct weft__gradients_sum *group = &sums->groups[i];
        pthread_mutex_lock(&group->lock);
        const int kept = sums->does->abandon(group->member, g->next);
        group->posted = group->taken = 0;
        pthread_mutex_unlock(&group->lock);
        for (size_t j = 0; j < group->of->layer_count; j++)
            g->kept[group->of->layers[j]] = kept != 0;
        if (kept)
            status = collect_unsent(g, sums, group);
    }
    return status;
}

/* ---- making ---- */

struct weft_piece *weft__gradients_sum_tensors(const struct weft_gradients *g,
                                               const struct weft__gradients_sum *group,
                                               size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < group->of->layer_count; i++)
        *count += g->layers[group->of->layers[i]].tensor_count;
    struct weft_piece *tensors = weft_memory_alloc(*count + 1, sizeof *tensors);
    struct weft_piece *to = tensors;
    if (!tensors)
        weft__gradients_no_memory("a list of tensors", *count);
    for (size_t i = 0; tensors && i < group->of->layer_count; i++) {
        const struct weft__gradients_layer *layer = &g->layers[group->of->layers[i]];
        memcpy(to, g->model.tensors + layer->first, layer->tensor_count * sizeof *to);
        to += layer->tensor_count;
    }
    return tensors;
}

/* An event of each group, and a join that it can be waited for by. */
static int add_groups(struct weft_schedule *schedule, struct weft__gradients_sums *sums)
{
    char label[96];
    int status = WEFT_OK;
    for (size_t i = 0; i < sums->group_count && !status; i++) {
        struct weft__gradients_sum *group = &sums->groups[i];
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

static int make_run(const struct weft_gradients *g, struct weft__gradients_sums *sums)
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

int weft__gradients_sums_make(struct weft_gradients *g, struct weft__gradients_plan *plan,
                              const struct weft__gradients_member *does)
{
    struct weft__gradients_sums *sums = weft_memory_alloc(1, sizeof *sums);
    if (!sums)
        return weft__gradients_no_memory("groups", plan->group_count);
    plan->sums = sums;
    sums->does = does;
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
    return make_run(g, sums);
}

void weft__gradients_sums_free(struct weft__gradients_sums *sums)
{
    if (!sums)
        return;
    for (size_t i = 0; i < sums->group_count; i++) {
        sums->does->free(sums->groups[i].member);
        if (sums->groups[i].locks)
            pthread_mutex_destroy(&sums->groups[i].lock);
    }
    weft_run_destroy(sums->run);
    weft_memory_free(sums->unsent);
    weft_memory_free(sums->residual);
    weft_memory_free(sums->groups);
    weft_memory_free(sums);
}

void weft__gradients_sums_quit(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct weft__gradients_sums *sums = plan->sums;
    (void)g;
    for (size_t i = 0; i < sums->group_count; i++)
        sums->does->leave(sums->groups[i].member, "leaving");
}

/* ---- steps ---- */

int weft__gradients_sums_begin(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct weft__gradients_sums *sums = plan->sums;
    (void)g;
    plan->compression = (struct weft__gradients_compression){0};
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

int weft__gradients_sums_ready(struct weft_gradients *g, struct weft__gradients_plan *plan,
                               size_t layer)
{
    struct weft__gradients_sums *sums = plan->sums;
    struct weft__gradients_sum *group = &sums->groups[plan->group_of[layer]];
    /* The gradients of layers that other threads have announced are there to be read. */
    if (atomic_fetch_sub_explicit(&group->missing, 1, memory_order_acq_rel) > 1)
        return WEFT_OK;
    pthread_mutex_lock(&group->lock);
    group->start = weft_context_now(g->context);
    int status = sums->does->post(group->member, who_announces);
    group->posted = !status;
    pthread_mutex_unlock(&group->lock);
    if (!status)
        status = weft_run_fire(sums->run, group->event);
    if (status && !weft_object_check(g->object, who_announces))
        give_up(g, status);
    return status;
}

/* A member counts its tensors from the first of its group. */
static void tell_group(const struct weft__gradients_sum *group, int status)
{
    char text[320];
    snprintf(text, sizeof text, "%s", weft_error_text());
    weft_error_set(status, "%s (in the group that begins with layer %zu)", text,
                   group->of->layers[0]);
}

/* The first who waits writes the gradients. */
static int take(struct weft_gradients *g, const struct weft__gradients_sums *sums,
                struct weft__gradients_sum *group, uint64_t until)
{
    if (!group->posted)
        return WEFT_OK;
    int status = sums->does->wait(group->member, who_waits, until == WEFT_NEVER ? 0 : until);
    if (status && (status != WEFT_ERR_COMPUTE || weft_object_check(g->object, who_waits)))
        return status;
    if (status)
        tell_group(group, status);
    sums->does->write(group->member, g->config.reduction == WEFT_GRADIENTS_SUM ? 1 : g->ranks);
    group->posted = 0;
    group->taken = 1;
    return status;
}

int weft__gradients_sums_wait(struct weft_gradients *g, struct weft__gradients_plan *plan,
                              size_t layer, uint64_t until)
{
    struct weft__gradients_sums *sums = plan->sums;
    struct weft__gradients_sum *group = &sums->groups[plan->group_of[layer]];
    int status = weft_run_wait_node(sums->run, group->join, weft__gradients_left(g, until));
    if (status)
        return status;
    pthread_mutex_lock(&group->lock);
    status = take(g, sums, group, until);
    pthread_mutex_unlock(&group->lock);
    return status;
}

/* What a member does before the next step, and what it has sent. */
static int finish(struct weft__gradients_plan *plan, struct weft__gradients_sums *sums,
                  size_t number, uint64_t until)
{
    struct weft__gradients_sum *group = &sums->groups[number];
    struct weft__gradients_traffic now = {0};
    const uint64_t ended = sums->does->ended(group->member);
    int status = WEFT_OK;
    if (!group->taken)
        return WEFT_OK;               /* in a call before this one */
    pthread_mutex_lock(&group->lock); /* who reports stays away */
    if (sums->does->finish)
        status = sums->does->finish(group->member, who_waits, until == WEFT_NEVER ? 0 : until);
    if (!status)
        status = sums->does->count(group->member, &now);
    if (!status && sums->does->compression)
        sums->does->compression(group->member, &plan->compression);
    if (!status)
        group->taken = 0;
    pthread_mutex_unlock(&group->lock);
    if (status)
        return status;
    plan->sent.messages += now.messages - group->before.messages;
    plan->sent.bytes += now.bytes - group->before.bytes;
    group->before = now;
    plan->spans[number].start = group->start;
    plan->spans[number].end = ended > group->start ? ended : group->start;
    return WEFT_OK;
}

int weft__gradients_sums_end(struct weft_gradients *g, struct weft__gradients_plan *plan,
                             uint64_t until)
{
    struct weft__gradients_sums *sums = plan->sums;
    int status = weft_run_wait(sums->run, weft__gradients_left(g, until));
    for (size_t i = 0; i < sums->group_count && !status; i++) {
        pthread_mutex_lock(&sums->groups[i].lock);
        status = take(g, sums, &sums->groups[i], until);
        pthread_mutex_unlock(&sums->groups[i].lock);
        if (status == WEFT_ERR_COMPUTE && !weft_object_check(g->object, who_waits)) {
            weft__gradients_keep_bad(g, status);
            status = WEFT_OK;
        }
    }
    for (size_t i = 0; i < sums->group_count && !status; i++)
        status = finish(plan, sums, i, until);
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

char *weft__gradients_sums_report(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct weft__gradients_sums *sums = plan->sums;
    char *text = NULL;
    (void)g;
    if (weft_run_report(sums->run, &text))
        text = NULL;
    for (size_t i = 0; i < sums->group_count; i++) {
        struct weft__gradients_sum *group = &sums->groups[i];
        if (pthread_mutex_trylock(&group->lock))
            continue; /* somebody waits for it */
        text =
            append(text, group->posted || group->taken ? sums->does->report(group->member) : NULL);
        pthread_mutex_unlock(&group->lock);
    }
    return text;
}
