/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed averaging: runs of the object, and sums that no projection compresses. */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/compressed_average/compressed_average.h"

/* ---- runs ---- */

static void note_end(void *user, struct weft_run *run, int status)
{
    struct weft_compressed_average *average = user;
    (void)run;
    (void)status;
    atomic_store_explicit(&average->ended_ns, weft_context_now(average->context),
                          memory_order_relaxed);
}

static void count_sends(struct weft__compressed_run *made, const struct weft_schedule *schedule)
{
    struct weft_node_info node = {.struct_size = sizeof node};
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    for (size_t n = 0; n < weft_schedule_node_count(schedule); n++) {
        if (weft_schedule_get_node(schedule, (weft_node_t)n, &node) || node.kind != WEFT_NODE_SEND)
            continue;
        weft_schedule_get_slot(schedule, node.regions[0].slot, &slot);
        made->messages++;
        made->bytes += node.regions[0].count * weft_dtype_size(slot.dtype);
    }
}

int weft__compressed_run_make(struct weft_compressed_average *average, const char *name,
                              struct weft_template_params *params,
                              struct weft__compressed_run *made)
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.object = average->object;
    config.ended = note_end;
    config.user = average;
    params->cost = &average->surroundings.cost;
    params->hosts = average->surroundings.hosts;
    *made = (struct weft__compressed_run){.run = NULL};
    int status = weft_template_build(name, weft_context_rank(average->context), average->ranks,
                                     params, &schedule);
    if (!status)
        count_sends(made, schedule);
    if (!status)
        status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft_run_create(&made->run, average->context, plan, &config);
    if (!status) {
        made->next = average->runs;
        average->runs = made;
    }
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return status;
}

void weft__compressed_run_free(struct weft_compressed_average *average,
                               struct weft__compressed_run *run)
{
    struct weft__compressed_run **at = &average->runs;
    while (*at && *at != run)
        at = &(*at)->next;
    if (*at)
        *at = run->next;
    if (average->late && average->late == run->run)
        average->late = NULL;
    weft_run_destroy(run->run);
    *run = (struct weft__compressed_run){.run = NULL};
}

int weft__compressed_run_start(struct weft_compressed_average *average,
                               struct weft__compressed_run *run)
{
    int status = weft_run_start_version(run->run, average->next);
    if (status)
        return status;
    average->step.messages += run->messages;
    average->step.bytes += run->bytes;
    return WEFT_OK;
}

static uint64_t left_until(const struct weft_context *context, uint64_t until)
{
    uint64_t now = weft_context_now(context);
    return !until ? WEFT_NEVER : until > now ? until - now : 0;
}

int weft__compressed_run_wait(struct weft_compressed_average *average,
                              const struct weft__compressed_run *run, uint64_t until)
{
    uint64_t began = weft_context_now(average->context);
    int status = weft_run_wait(run->run, left_until(average->context, until));
    average->stats.waited_ns += weft_context_now(average->context) - began;
    average->late = status == WEFT_IN_PROGRESS ? run->run : NULL;
    if (status == WEFT_OK || status == WEFT_IN_PROGRESS)
        return status;
    /* What has failed the object tells more than the run that has failed with it. */
    int failed = weft_object_check(average->object, average->who);
    return failed ? failed : status;
}

int weft__compressed_fail(struct weft_compressed_average *average, int status)
{
    char text[384];
    snprintf(text, sizeof text, "%s", weft_error_text());
    if (!weft_object_check(average->object, average->who))
        weft_object_fail(average->object, status, text);
    int failed = weft_object_check(average->object, average->who);
    return failed ? failed : status;
}

/* ---- sums ---- */

static const char *way_of(const struct weft_compressed_average *average)
{
    return average->config.qsgd_way == WEFT_QSGD_RING ? "ring" : "all-to-all";
}

static int bind(struct weft_compressed_average *average, const struct weft__sum *sum)
{
    struct weft_run *run = sum->run.run;
    int status = weft_run_bind_input_name(run, "send", average->values, sum->count, WEFT_F32);
    if (!status)
        status = weft_run_bind_name(run, "recv", average->sum, sum->count, WEFT_F32);
    if (!status && sum->quantised && average->keeps)
        status = weft_run_bind_name(run, "sent", average->sent, sum->count, WEFT_F32);
    return status;
}

int weft__sum_make(struct weft_compressed_average *average, struct weft__sum *sum,
                   const struct weft_quantiser *quantiser, size_t count)
{
    const int quantised = quantiser != NULL;
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.count = count;
    *sum = (struct weft__sum){.quantised = quantised, .count = count, .bits = 32};
    if (quantised) {
        params.algo = way_of(average);
        params.quantiser = quantiser;
        params.sent = average->keeps;
        sum->bits = 8.0 * (double)weft_quantised_bytes(quantiser, count) / (double)count;
    }
    int status = weft__compressed_run_make(average, quantised ? "quantised-allreduce" : "allreduce",
                                           &params, &sum->run);
    return status ? status : bind(average, sum);
}

void weft__sum_free(struct weft_compressed_average *average, struct weft__sum *sum)
{
    weft__compressed_run_free(average, &sum->run);
}

int weft__sum_start(struct weft_compressed_average *average, struct weft__sum *sum)
{
    return weft__compressed_run_start(average, &sum->run);
}

int weft__sum_wait(struct weft_compressed_average *average, struct weft__sum *sum, uint64_t until)
{
    int status = weft__compressed_run_wait(average, &sum->run, until);
    if (status)
        return status;
    average->step.bits = sum->bits;
    average->step.loss = sum->quantised ? -1 : 0;
    if (!sum->quantised && average->keeps) /* nothing is dropped */
        memcpy(average->sent, average->values, sum->count * sizeof *average->sent);
    return WEFT_OK;
}

size_t weft__sum_settings(const struct weft_compressed_average *average,
                          struct weft__setting settings[])
{
    const struct weft_quantiser *quantiser = &average->quantiser;
    settings[0] = weft__setting_count("config->quantiser->bits", (uint64_t)quantiser->bits);
    settings[1] = weft__setting_count("config->quantiser->bucket", quantiser->bucket);
    settings[2] = weft__setting_word("config->quantiser->norm", (int)quantiser->norm,
                                     quantiser->norm == WEFT_QUANTISE_MAX ? "max" : "l2");
    settings[3] = weft__setting_count("config->quantiser->seed", quantiser->seed);
    settings[4] =
        weft__setting_word("config->qsgd_way", (int)average->config.qsgd_way,
                           average->config.qsgd_way == WEFT_QSGD_RING ? "ring" : "shards");
    return 5;
}
