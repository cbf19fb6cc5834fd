/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzes weft_check() with libFuzzer: whatever can be read can be checked. A fault names ranks and
 * has a text; what commit refuses as a cycle or duplicate is found, and if no fault is found,
 * commit refuses none. Where there is no order of issue, there is a deadlock.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/check.h>
#include <weft/format.h>
#include <weft/memory.h>
#include <weft/plan.h>
#include <weft/sparse.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int do_nothing(struct weft_call *call)
{
    (void)call;
    return WEFT_OK;
}

/* Operations that documents may name, made once: lists of pairs fold and take parts. */
enum { USER_OPS = 4, OPS = USER_OPS + WEFT_SPARSE_OP_COUNT };

static const struct weft_op *const *user_ops(void)
{
    static const char *const names[USER_OPS] = {"quantise", "top", "update", "filter"};
    static const unsigned flags[USER_OPS] = {0, WEFT_OP_FOLDS, WEFT_OP_FOLDS, WEFT_OP_FOLDS};
    static struct weft_op *ops[OPS];
    struct weft_op_config config;

    for (int i = 0; i < OPS && !ops[i]; i++) {
        weft_op_config_init(&config);
        if (i < USER_OPS) {
            config.name = names[i];
            config.compute = do_nothing;
            config.flags = flags[i];
        }
        if (i < USER_OPS ? weft_op_create(&ops[i], &config)
                         : weft_sparse_op((weft_sparse_op_kind_t)(i - USER_OPS), &ops[i]))
            abort();
    }
    return (const struct weft_op *const *)ops;
}

static void require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_check: %s: %s\n", what, weft_error_text());
    abort();
}

/* The kinds of fault that were found, a bit each. */
static unsigned kinds_of(const struct weft_check_report *report)
{
    struct weft_fault fault = {.struct_size = sizeof fault};
    unsigned kinds = 0;

    for (size_t i = 0; weft_check_report_get_fault(report, i, &fault) == WEFT_OK; i++) {
        require(fault.rank_count > 0, "a fault without ranks");
        require(fault.text && *fault.text && !strchr(fault.text, '\n'), "a fault without a line");
        kinds |= 1u << fault.kind;
    }
    require((kinds == 0) == weft_check_report_ok(report), "faults, and none");
    return kinds;
}

static void compare_commit(const struct weft_schedule *schedule, unsigned kinds)
{
    struct weft_plan *plan = NULL;
    int status = weft_schedule_commit(schedule, &plan);

    if (status == WEFT_ERR_CYCLE)
        require(kinds >> WEFT_FAULT_CYCLE & 1, "commit finds a cycle");
    if (status == WEFT_ERR_DUPLICATE)
        require(kinds >> WEFT_FAULT_MATCH & 1, "commit finds a duplicate");
    weft_plan_destroy(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weft_schedule **schedules;
    struct weft_check_report *report;
    struct weft_check_config config;
    struct weft_read_options options;
    struct weft_check_summary summary = {.struct_size = sizeof summary};
    size_t count;

    weft_read_options_init(&options);
    options.ops = user_ops();
    options.op_count = OPS;
    options.size = 5;
    options.most_repeated = 1 << 12;
    if (weft_schedule_read_with((const char *)data, size, &options, &schedules, &count))
        return 0;
    weft_check_config_init(&config);
    config.executions = 8;
    config.faults = 1000;
    config.in_order = 1;
    if (count) {
        int status =
            weft_check((const struct weft_schedule *const *)schedules, count, &config, &report);

        require(status == WEFT_OK, "what was read cannot be checked");
        unsigned kinds = kinds_of(report);

        weft_check_report_get_summary(report, &summary);
        require(!(kinds >> WEFT_FAULT_ORDER & 1) || kinds >> WEFT_FAULT_DEADLOCK & 1 ||
                    summary.faults > config.faults || !summary.executions,
                "no order, and no deadlock");
        require(!summary.unordered == !summary.unordered_text, "what is unordered, without a text");
        for (size_t i = 0; i < count; i++)
            compare_commit(schedules[i], kinds);
        weft_check_report_destroy(report);
    }
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free(schedules);
    return 0;
}
