/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse averaging by Ok-Topk: the template oktopk, and what it leaves to a trainer.
 *
 *     threshold   every threshold_steps steps, and where k changes, a step keeps all sums that
 *                 there is room for; the k-th largest of them is the threshold of the steps after
 *                 it
 *     bounds      every balance_steps steps ranks add up the bounds that each would have, beside
 *                 the aggregation; their mean holds from the next step on
 *
 * Both come from what all ranks have alike, and are part of a checkpoint.
 */
#include <stdio.h>
#include <string.h>

#include <weft/template.h>

#include "schedules/objects/sparse_average/sparse_average.h"

/* ---- plans ---- */

/* An operation that sees whether messages have contents. */
static int probe(struct weft_call *call)
{
    struct weft__sparse_unit *unit = call->user;
    unit->omitted = !call->arguments[0].data;
    return WEFT_OK;
}

static int add_probe(struct weft__sparse_unit *unit, struct weft_schedule *schedule)
{
    struct weft_op_config config;
    weft_op_config_init(&config);
    config.name = "probe";
    config.compute = probe;
    config.user = unit;
    int status = weft_op_create(&unit->choose, &config);
    weft_slot_t slot = weft_schedule_add_slot(schedule, "probe", WEFT_U8, 1, WEFT_SLOT_SCRATCH);
    struct weft_compute_argument argument = {weft_region_at(slot, 0, 1), WEFT_READ};
    weft_schedule_add_compute(schedule, unit->choose, &argument, 1, 0);
    return status ? status : weft_schedule_status(schedule);
}

/* Sends, and nodes that drop pairs: of what they read they do not write all. */
static int is_drop(const struct weft_node_info *info)
{
    return info->kind == WEFT_NODE_COMPUTE && info->region_count == 6;
}

/* Finds in the template's schedule what the statistics need. */
static int read_schedule(struct weft__sparse_unit *unit, const struct weft_schedule *schedule)
{
    struct weft_node_info info = {.struct_size = sizeof info};
    size_t count = weft_schedule_node_count(schedule);
    unit->sends = weft_memory_alloc(count + 1, sizeof *unit->sends);
    unit->parts = weft_memory_alloc(count + 1, sizeof *unit->parts);
    if (!unit->sends || !unit->parts)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu nodes", count);
    for (size_t n = 0; n < count; n++) {
        int status = weft_schedule_get_node(schedule, (weft_node_t)n, &info);
        if (status)
            return status;
        if (info.kind == WEFT_NODE_SEND)
            unit->sends[unit->send_count++] = (struct weft__sparse_send){-1, info.regions[0].value};
        else if (is_drop(&info) && !strcmp(weft_op_name(info.op), "sparse-keep"))
            unit->summed = info.regions[1].value, unit->region = info.produces;
        else if (info.kind == WEFT_NODE_COMPUTE && info.region_count >= 3 &&
                 info.regions[1].slot == unit->send_slot &&
                 !strcmp(weft_op_name(info.op), "sparse-part"))
            unit->parts[unit->part_count++] = info.produces;
    }
    return WEFT_OK;
}

static int make_run(struct weft__sparse_unit *unit, struct weft_schedule *schedule)
{
    struct weft_plan *plan = NULL;
    int status = weft_schedule_commit(schedule, &plan);
    if (!status) {
        unit->send_slot = weft_plan_find_slot(plan, "send");
        status = read_schedule(unit, schedule);
    }
    if (!status)
        status = weft__sparse_run(unit, plan, &unit->run);
    if (!status) {
        unit->pairs = weft_plan_find_value(plan, "pairs");
        unit->sum = weft_plan_find_value(plan, "kept");
        unit->share = weft_plan_find_value(plan, "share");
        unit->quota = weft_plan_find_value(plan, "quota");
    }
    weft_plan_destroy(plan);
    return status;
}

static int bind_all(struct weft__sparse_unit *unit)
{
    const struct weft_sparse_average *average = unit->average;
    struct weft_run *run = unit->run;
    size_t bounds = (size_t)weft_context_size(average->context) + 1;
    int status = weft_run_bind_input_name(run, "send", unit->own, unit->most, WEFT_U64);
    if (!status)
        status = weft_run_bind_name(run, "recv", unit->list, unit->capacity, WEFT_U64);
    float *residual = average->device ? average->device->residual + unit->there
                                      : average->residual + unit->offset;
    if (!status)
        status = weft_run_bind_name(run, "residual", residual, unit->count, WEFT_F32);
    if (!status)
        status = weft_run_bind_input_name(run, "bounds", unit->regions + 1, bounds, WEFT_U64);
    return status ? status
                  : weft_run_bind_input_name(run, "threshold", &unit->threshold, 1, WEFT_F32);
}

/* What the statistics count of it: its messages do not change. */
static int count_balance(struct weft__sparse_unit *unit, const struct weft_schedule *schedule)
{
    struct weft_node_info info = {.struct_size = sizeof info};
    int status = WEFT_OK;
    for (size_t n = 0; n < weft_schedule_node_count(schedule) && !status; n++) {
        status = weft_schedule_get_node(schedule, (weft_node_t)n, &info);
        if (status || info.kind != WEFT_NODE_SEND)
            continue;
        unit->balance_messages++;
        unit->balance_bytes += info.regions[0].count * sizeof(uint64_t);
    }
    return status;
}

/* The schedule of a template, by the costs and hosts of the context. */
static int build(struct weft_context *context, const char *name,
                 struct weft_template_params *params, struct weft_schedule **schedule)
{
    struct weft__surroundings around;
    int status = weft__surroundings_find(&around, context);
    params->cost = &around.cost;
    params->hosts = around.hosts;
    if (!status)
        status = weft_template_build(name, weft_context_rank(context), weft_context_size(context),
                                     params, schedule);
    params->cost = NULL; /* they end here */
    params->hosts = NULL;
    weft__surroundings_free(&around);
    return status;
}

static int make_balance(struct weft__sparse_unit *unit)
{
    struct weft_context *context = unit->average->context;
    struct weft_template_params params;
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    size_t bounds = (size_t)weft_context_size(context) + 1;
    unit->balance = weft_memory_alloc(bounds, sizeof *unit->balance);
    if (!unit->balance)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu bounds", bounds);
    weft_template_params_init(&params);
    params.count = bounds;
    params.dtype = WEFT_U64;
    params.in_place = 1;
    int status = build(context, "allreduce", &params, &schedule);
    if (!status)
        status = count_balance(unit, schedule);
    if (!status)
        status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft__sparse_run(unit, plan, &unit->balance_run);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return status ? status
                  : weft_run_bind_name(unit->balance_run, "recv", unit->balance, bounds, WEFT_U64);
}

/* The residual is on the device, and so is then what the operations do that drop pairs. */
static int place_residual(struct weft_schedule *schedule)
{
    struct weft_slot_info info = {.struct_size = sizeof info};
    for (size_t i = 0; i < weft_schedule_slot_count(schedule); i++)
        if (!weft_schedule_get_slot(schedule, (weft_slot_t)i, &info) &&
            !strcmp(info.name, "residual"))
            return weft_schedule_set_memory(schedule, (weft_slot_t)i, WEFT_MEMORY_DEVICE);
    return WEFT_OK;
}

int weft__sparse_regions_plan(struct weft__sparse_unit *unit)
{
    struct weft_context *context = unit->average->context;
    struct weft_template_params params;
    struct weft_schedule *schedule = NULL;
    weft_template_params_init(&params);
    params.count = unit->count;
    params.k = unit->most;
    int status = build(context, "oktopk", &params, &schedule);
    if (!status && unit->average->device)
        status = place_residual(schedule);
    if (!status)
        status = add_probe(unit, schedule);
    if (!status)
        status = make_run(unit, schedule);
    weft_schedule_destroy(schedule);
    if (!status)
        status = bind_all(unit);
    return status ? status : make_balance(unit);
}

/* ---- steps ---- */

/* 1: there is no threshold, it is time, or the k of this step is not that of the one before. */
static int estimates(const struct weft__sparse_unit *unit)
{
    const struct weft_sparse_average *average = unit->average;
    return !unit->regions[0] || unit->next % average->config.threshold_steps == 0 ||
           weft__sparse_step_k(unit, unit->next) != weft__sparse_step_k(unit, unit->next - 1);
}

static int start_balance(struct weft__sparse_unit *unit)
{
    struct weft_sparse own = weft__sparse_list(unit->own, unit->selected);
    int status = weft_sparse_bounds(&own, unit->count, weft_context_size(unit->average->context),
                                    unit->balance);
    if (!status)
        status = weft_run_start(unit->balance_run);
    unit->balancing = !status;
    return status;
}

int weft__sparse_regions_start(struct weft__sparse_unit *unit)
{
    const struct weft_sparse_average *average = unit->average;
    size_t share, quota;
    uint32_t bits = (uint32_t)unit->regions[0];
    unit->estimating = estimates(unit);
    memcpy(&unit->threshold, &bits, sizeof bits);
    if (unit->estimating)
        unit->threshold = 0;
    int status =
        weft_sparse_region_limits(unit->k, weft_context_size(average->context), &share, &quota);
    if (!status)
        status = weft_run_bind_value(unit->run, unit->pairs, unit->selected);
    if (!status)
        status = weft_run_bind_value(unit->run, unit->share, share);
    if (!status)
        status = weft_run_bind_value(unit->run, unit->quota, quota);
    if (!status)
        status = weft_run_start(unit->run);
    if (!status && unit->next % average->config.balance_steps == 0)
        status = start_balance(unit);
    return status;
}

/* What the next steps go by. */
static int learn(struct weft__sparse_unit *unit)
{
    struct weft_sparse_average *average = unit->average;
    uint64_t ranks = (uint64_t)weft_context_size(average->context);
    if (unit->balancing) {
        average->stats.messages += unit->balance_messages;
        average->stats.bytes += unit->balance_bytes;
        for (uint64_t j = 0; j <= ranks && !unit->omitted; j++)
            unit->regions[1 + j] = unit->balance[j] / ranks;
    }
    unit->balancing = 0;
    if (!unit->estimating)
        return WEFT_OK;
    struct weft_sparse sum = weft__sparse_list(unit->list, unit->kept);
    struct weft_sparse_options options;
    double magnitude = 0;
    uint32_t bits;
    weft_sparse_options_init(&options);
    options.nan = WEFT_NAN_ZERO;
    options.workspace = average->merge_workspace;
    options.workspace_bytes = average->merge_workspace_bytes;
    int status = weft_sparse_kth(&options, &sum, unit->k, &magnitude);
    float threshold = (float)magnitude;
    memcpy(&bits, &threshold, sizeof bits);
    unit->regions[0] = bits;
    return status;
}

int weft__sparse_regions_end(struct weft__sparse_unit *unit)
{
    struct weft_sparse_average_stats *stats = &unit->average->stats;
    uint64_t sent = 0, left = unit->selected;
    unit->kept = unit->omitted ? 0 : (size_t)weft_run_get_value(unit->run, unit->sum);
    for (int i = 0; i < unit->send_count; i++)
        sent += weft_run_get_value(unit->run, unit->sends[i].pairs);
    for (int i = 0; i < unit->part_count; i++)
        left -= weft_run_get_value(unit->run, unit->parts[i]);
    if (weft_context_size(unit->average->context) == 1)
        left = 0; /* there are no parts */
    stats->messages += (uint64_t)unit->send_count;
    stats->bytes += sent * sizeof(uint64_t);
    stats->dropped += left + weft_run_get_value(unit->run, unit->summed) -
                      weft_run_get_value(unit->run, unit->region);
    return learn(unit);
}
