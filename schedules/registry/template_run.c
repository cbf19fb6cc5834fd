/* SPDX-License-Identifier: BSD-3-Clause */
/* A template for a context in one call: its costs and hosts are the context's. */
#include <weft/context.h>
#include <weft/memory.h>
#include <weft/plan.h>
#include <weft/sim.h>

#include "schedules/common/template.h"

static int find_hosts(struct weft_context *context, int size, int **hosts)
{
    *hosts = weft_memory_alloc((size_t)size, sizeof **hosts);
    if (!*hosts)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for the hosts of %d ranks", size);
    return weft_context_hosts(context, *hosts);
}

static int create_plan(const char *who, struct weft_plan **plan, struct weft_context *context,
                       const char *name, const struct weft_template_params *params)
{
    struct weft_template_params full;
    struct weft_cost_model model = {.struct_size = sizeof model};
    struct weft_schedule *schedule = NULL;
    int rank = weft_context_rank(context), size = weft_context_size(context);
    int *hosts = NULL;
    int status = weft__params_read(who, &full, params);
    if (!status && !full.cost) {
        status = weft_context_get_cost(context, &model);
        full.cost = &model;
    }
    /* A list of all ranks on each of them: with many virtual ranks that is most of the work. */
    if (!status && !full.hosts && weft__template_flags(name) & WEFT__USES_HOSTS &&
        weft_context_host_count(context) > 1) {
        status = find_hosts(context, size, &hosts);
        full.hosts = hosts;
    }
    if (!status)
        status = weft__template_build(who, name, rank, size, &full, &schedule);
    if (!status)
        status = weft_schedule_commit(schedule, plan);
    weft_schedule_destroy(schedule);
    weft_memory_free(hosts);
    return status;
}

int weft_template_create_plan(struct weft_plan **plan, struct weft_context *context,
                              const char *name, const struct weft_template_params *params)
{
    if (!plan || !context)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `%s` is NULL", __func__,
                              plan ? "context" : "plan");
    return create_plan(__func__, plan, context, name, params);
}

int weft_template_create_run(struct weft_run **run, struct weft_context *context, const char *name,
                             const struct weft_template_params *params)
{
    struct weft_plan *plan = NULL;
    if (!run || !context)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `%s` is NULL", __func__,
                              run ? "context" : "run");
    int status = create_plan(__func__, &plan, context, name, params);
    if (!status)
        status = weft_run_create(run, context, plan, NULL);
    weft_plan_destroy(plan);
    return status;
}
