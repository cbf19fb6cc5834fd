/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: what is asked for is checked, a method makes groups (methods.c), and here they get their
 * times. */
#include <float.h>
#include <math.h>

#include <weft/memory.h>

#include "schedules/merge/merge.h"

struct weft_merge_plan {
    struct weft_merge_summary summary;
    struct weft_merge_group *groups; /* owned */
    size_t *layers;                  /* as they are sent; owned, the groups point into it */
};

/* ---- what is asked for ---- */

void weft_merge_config_init_sized(struct weft_merge_config *config, size_t size)
{
    weft_sized_init(config, size);
}

int weft__merge_config_read(const char *who, const struct weft_merge_config *given,
                            struct weft_merge_config *config)
{
    int status = weft_sized_read(who, "config", given, config, sizeof *config);
    if (!status)
        status = weft_sized_real(who, "config->cycle_us", config->cycle_us, 0, DBL_MAX);
    if (status)
        return status;
    if ((unsigned)config->method > WEFT_MERGE_GIVEN)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->method is %d, expected one of weft_merge_method_t", who,
                              (int)config->method);
    if (config->group_count && !config->group_layers)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->group_layers is NULL, expected %zu entries", who,
                              config->group_count);
    if (!config->bucket_bytes)
        config->bucket_bytes = (size_t)(config->method == WEFT_MERGE_CYCLES ? 64 : 25) << 20;
    if (!config->first_bucket_bytes)
        config->first_bucket_bytes = config->bucket_bytes;
    if (config->cycle_us == 0)
        config->cycle_us = 5000;
    return WEFT_OK;
}

static int check_layers(const char *who, const struct weft_merge_layer *layers, size_t count)
{
    size_t bytes = 0;
    if (count && !layers)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `layers` is NULL, expected %zu", who,
                              count);
    for (size_t i = 0; i < count; i++) {
        if (!(layers[i].ready_us >= 0 && layers[i].ready_us <= DBL_MAX))
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: layers[%zu].ready_us is %g, expected a finite number, 0 or "
                                  "more",
                                  who, i, layers[i].ready_us);
        if (layers[i].bytes > SIZE_MAX - bytes)
            return weft_error_set(
                WEFT_ERR_INVALID,
                "%s: layers[%zu].bytes is %zu, expected at most %zu after the %zu "
                "of the layers before",
                who, i, layers[i].bytes, SIZE_MAX - bytes, bytes);
        bytes += layers[i].bytes;
    }
    return WEFT_OK;
}

/* ---- times ---- */

static void add_layers(const struct weft__merge_work *work, struct weft_merge_plan *plan,
                       struct weft_merge_group *group, size_t place)
{
    group->struct_size = sizeof *group;
    group->layers = &plan->layers[place];
    for (size_t i = place; i < place + group->layer_count; i++) {
        const struct weft_merge_layer *layer = weft__merge_layer(work, i);
        plan->layers[i] = (size_t)(layer - work->layers);
        group->bytes += layer->bytes;
        group->ready_us = weft__merge_later(group->ready_us, layer->ready_us);
    }
}

/* How much of a group's time is before the last layer is ready. */
static double hidden(const struct weft_merge_group *group, double ready)
{
    if (group->end_us <= ready)
        return group->end_us - group->start_us;
    return group->start_us < ready ? ready - group->start_us : 0;
}

/* Without communication everything is hidden. */
static void sum_up(struct weft_merge_plan *plan)
{
    struct weft_merge_summary *summary = &plan->summary;
    for (size_t g = 0; g < summary->group_count; g++) {
        struct weft_merge_group *group = &plan->groups[g];
        group->hidden_us = hidden(group, summary->ready_us);
        summary->communication_us += group->end_us - group->start_us;
        summary->hidden_us += group->hidden_us;
    }
    summary->hidden_fraction = 1;
    if (summary->communication_us > 0)
        summary->hidden_fraction = summary->hidden_us / summary->communication_us;
}

static int set_times(struct weft__merge_work *work, struct weft_merge_plan *plan)
{
    struct weft_merge_summary *summary = &plan->summary;
    size_t place = 0;
    for (size_t g = 0; g < work->group_count; g++) {
        struct weft_merge_group *group = &plan->groups[g];
        group->layer_count = work->sizes[g];
        add_layers(work, plan, group, place);
        place += group->layer_count;
        group->start_us = weft__merge_later(summary->end_us, group->ready_us);
        if (work->earliest)
            group->start_us = weft__merge_later(group->start_us, work->earliest[g]);
        group->end_us = group->start_us + weft__merge_price(&work->price, (double)group->bytes);
        summary->end_us = group->end_us;
        summary->ready_us = weft__merge_later(summary->ready_us, group->ready_us);
    }
    int status = weft__merge_price_status(work->who, &work->price);
    if (status)
        return status;
    sum_up(plan);
    if (!isfinite(summary->end_us) || !isfinite(summary->communication_us))
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: the last allreduce ends at %g microseconds, expected times that "
                              "are finite together",
                              work->who, summary->end_us);
    return WEFT_OK;
}

/* What is proved (docs/merging.md), and nothing else: that some comparison is as good by chance, or
 * that points happen to be on a line, is not looked at. */
static weft_merge_optimal_t optimal(const struct weft__merge_work *work)
{
    if (work->config->method != WEFT_MERGE_EXACT)
        return WEFT_MERGE_NOT_OPTIMAL;
    int monotone = 1;
    for (size_t i = 1; i < work->layer_count; i++)
        monotone &= work->layers[i].ready_us >= work->layers[i - 1].ready_us;
    return work->price.linear && monotone ? WEFT_MERGE_OPTIMAL_ALL : WEFT_MERGE_OPTIMAL_CONTIGUOUS;
}

const char *weft_merge_optimal_name(weft_merge_optimal_t optimal)
{
    static const char *const names[] = {[WEFT_MERGE_NOT_OPTIMAL] = "no",
                                        [WEFT_MERGE_OPTIMAL_CONTIGUOUS] = "contiguous",
                                        [WEFT_MERGE_OPTIMAL_ALL] = "all"};
    return (unsigned)optimal <= WEFT_MERGE_OPTIMAL_ALL ? names[optimal] : "unknown";
}

/* ---- life ---- */

static int make(struct weft__merge_work *work, struct weft_merge_plan **result)
{
    int status = weft__merge_group(work);
    if (status)
        return status;
    struct weft_merge_plan *plan = weft_memory_alloc(1, sizeof *plan);
    if (plan) {
        plan->groups = weft_memory_alloc(work->group_count + 1, sizeof *plan->groups);
        plan->layers = weft_memory_alloc(work->layer_count + 1, sizeof *plan->layers);
    }
    if (!plan || !plan->groups || !plan->layers) {
        status = weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for %zu layers", work->who,
                                work->layer_count);
    } else {
        plan->summary = (struct weft_merge_summary){.struct_size = sizeof plan->summary,
                                                    .optimal = optimal(work),
                                                    .layer_count = work->layer_count,
                                                    .group_count = work->group_count};
        status = set_times(work, plan);
    }
    if (status)
        weft_merge_plan_destroy(plan);
    else
        *result = plan;
    return status;
}

int weft_merge_plan_create(struct weft_merge_plan **plan, const struct weft_merge_layer *layers,
                           size_t layer_count, const struct weft_merge_cost *cost,
                           const struct weft_merge_config *given)
{
    struct weft_merge_config config;
    struct weft__merge_work work = {
        .who = __func__, .layers = layers, .layer_count = layer_count, .config = &config};
    if (!plan)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `plan` is NULL", __func__);
    int status = weft__merge_config_read(__func__, given, &config);
    if (!status)
        status = weft__merge_price_read(__func__, cost, &work.price);
    if (!status)
        status = check_layers(__func__, layers, layer_count);
    if (status)
        return status;
    work.sizes =
        layer_count < SIZE_MAX ? weft_memory_alloc(layer_count + 1, sizeof *work.sizes) : NULL;
    status = work.sizes ? make(&work, plan)
                        : weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for %zu layers",
                                         __func__, layer_count);
    weft_memory_free(work.earliest);
    weft_memory_free(work.order);
    weft_memory_free(work.sizes);
    return status;
}

static int no_plan(const char *who)
{
    return weft_error_set(WEFT_ERR_INVALID, "%s: argument `plan` is NULL", who);
}

int weft_merge_plan_get_summary(const struct weft_merge_plan *plan,
                                struct weft_merge_summary *summary)
{
    if (!plan)
        return no_plan(__func__);
    if (!summary)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `summary` is NULL", __func__);
    return weft_sized_fill(__func__, "summary", summary, &plan->summary, sizeof plan->summary);
}

int weft_merge_plan_get_group(const struct weft_merge_plan *plan, size_t group,
                              struct weft_merge_group *result)
{
    if (!plan)
        return no_plan(__func__);
    if (!result)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `result` is NULL", __func__);
    if (group >= plan->summary.group_count)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `group` is %zu, expected 0 .. %zd%s",
                              __func__, group, (ptrdiff_t)plan->summary.group_count - 1,
                              plan->summary.group_count ? "" : ": the plan has none");
    return weft_sized_fill(__func__, "result", result, &plan->groups[group], sizeof *result);
}

void weft_merge_plan_destroy(struct weft_merge_plan *plan)
{
    if (!plan)
        return;
    weft_memory_free(plan->layers);
    weft_memory_free(plan->groups);
    weft_memory_free(plan);
}
