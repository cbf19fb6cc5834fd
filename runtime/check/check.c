/* SPDX-License-Identifier: BSD-3-Clause */
/* weft_check(): the phases one after the other, each on what the ones before have left sound. */
#include "runtime/check/check.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/graph/joint.h"

enum { MOST_FAULTS = 100, MOST_EXECUTIONS = 1024 };

void weft_check_config_init_sized(struct weft_check_config *config, size_t size)
{
    weft_sized_init(config, size);
}

static int read_config(struct weft__check *check, const struct weft_check_config *given)
{
    struct weft_check_config *config = &check->config;
    int status = weft_sized_read(check->who, "config", given, config, sizeof *config);

    if (!status)
        status = weft_sized_number(check->who, "config->local_only", config->local_only, 0, 1);
    if (!status)
        status = weft_sized_number(check->who, "config->in_order", config->in_order, 0, 1);
    if (!config->faults)
        config->faults = MOST_FAULTS;
    if (!config->executions)
        config->executions = MOST_EXECUTIONS;
    return status;
}

/* 0, or -1 without memory. */
static int phases(struct weft__check *check)
{
    if (weft__check_cycles(check) || weft__check_match(check) || weft__check_fits(check) ||
        weft__check_races(check))
        return -1;
    if (check->cyclic)
        return 0;
    if (check->config.in_order && weft__check_order(check))
        return -1;
    if (check->config.local_only)
        return 0;
    return weft__check_executions(check);
}

/* A document of a few ranks may claim to be of billions: memory is for what is there. */
static int is_hopeless(const struct weft__check *check, size_t count)
{
    return (size_t)check->size / 1000 > count;
}

static int hopeless_fault(struct weft__check *check, size_t count)
{
    struct weft__fault fault;

    weft__fault_begin(&fault, WEFT_FAULT_MATCH);
    weft__fault_rank(&fault, check->size - 1);
    weft__out_format(&fault.text,
                     "of %d ranks only %zu ha%s a schedule: too few to compare anything",
                     check->size, count, count == 1 ? "s" : "ve");
    return weft__fault_end(check, &fault) ? weft__error_memory("a check") : WEFT_OK;
}

static int check_plain(struct weft__check *check, const struct weft_schedule *const *schedules,
                       size_t count)
{
    int status = weft__check_graph(check, schedules, count);

    if (status == WEFT_OK && phases(check))
        status = weft__error_memory("a check");
    weft__check_graph_free(check);
    return status;
}

static int has_joints(const struct weft_schedule *const *schedules, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (schedules[i] && !schedules[i]->status && weft__schedule_has_joints(schedules[i]))
            return 1;
    return 0;
}

/* On copies without joint nodes. */
static int check_written_out(struct weft__check *check,
                             const struct weft_schedule *const *schedules, size_t count)
{
    struct weft__written_out written;
    int status = weft__write_out_all(&written, schedules, count, "a check");

    check->originals = weft__calloc((size_t)check->size, sizeof(struct weft_schedule *));
    if (status == WEFT_OK && !check->originals)
        status = weft__error_memory("a check");
    for (size_t i = 0; i < count && status == WEFT_OK; i++) {
        const struct weft_schedule *given = schedules[i];

        if (given && !given->status && given->size == check->size && !check->originals[given->rank])
            check->originals[given->rank] = given;
    }
    if (status == WEFT_OK)
        status = check_plain(check, written.plain, count);
    weft__free((void *)check->originals);
    weft__written_out_free(&written);
    return status;
}

int weft_check(const struct weft_schedule *const *schedules, size_t count,
               const struct weft_check_config *config, struct weft_check_report **report)
{
    struct weft__check check = {.who = __func__};
    int status;

    if (!schedules || !report)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__,
                             schedules ? "report" : "schedules");
    if (!count || !schedules[0])
        return WEFT__INVALID("%s: argument `%s`, expected at least one schedule", __func__,
                             count ? "schedules[0]` is NULL" : "count` is 0");
    if ((status = read_config(&check, config)) != WEFT_OK ||
        (status = weft__schedule_enter(schedules[0], __func__)) != WEFT_OK)
        return status;
    check.report = weft__calloc(1, sizeof *check.report);
    if (!check.report)
        return weft__error_memory("a check");
    check.size = schedules[0]->size;
    check.report->most = check.config.faults;
    check.report->summary.struct_size = sizeof check.report->summary;
    check.report->summary.ranks = check.size;
    if (is_hopeless(&check, count)) {
        status = hopeless_fault(&check, count);
    } else {
        status = has_joints(schedules, count) ? check_written_out(&check, schedules, count)
                                              : check_plain(&check, schedules, count);
    }
    if (status != WEFT_OK) {
        weft_check_report_destroy(check.report);
        return status;
    }
    weft__report_sort(check.report);
    *report = check.report;
    return WEFT_OK;
}
