/* SPDX-License-Identifier: BSD-3-Clause */
/* What a plan tells of itself, what it refuses, and what happens when memory runs out. */
#include <float.h>

#include "runtime/base/alloc.h"
#include "tests/unit/merge/layers.h"

enum { CASES = 3000 };

/* ---- numbers ---- */

/* Every layer is in one group, times are those of the rule, and hidden is what lies before the last
 * layer is ready. */
static void check_plan(const struct job *job, const struct weft_merge_plan *plan, int cycles)
{
    struct weft_merge_summary summary = summary_of(plan);
    int seen[MOST_LAYERS] = {0};
    double last = 0, end = 0, hidden = 0, communication = 0;
    for (size_t i = 0; i < job->count; i++)
        last = fmax(last, job->layers[i].ready_us);
    for (size_t g = 0; g < summary.group_count; g++) {
        struct weft_merge_group group = group_of(plan, g);
        double ready = 0;
        size_t bytes = 0;
        for (size_t i = 0; i < group.layer_count; i++) {
            cr_assert(!seen[group.layers[i]]++);
            ready = fmax(ready, job->layers[group.layers[i]].ready_us);
            bytes += job->layers[group.layers[i]].bytes;
        }
        cr_assert(group.ready_us == ready && group.bytes == bytes);
        cr_assert(cycles ? group.start_us >= fmax(end, ready) : group.start_us == fmax(end, ready));
        end = group.start_us + cost_of(job, bytes);
        cr_assert_eq(group.end_us, end);
        cr_assert_eq(group.hidden_us, fmax(0, fmin(end, last) - group.start_us));
        hidden += group.hidden_us;
        communication += end - group.start_us;
    }
    for (size_t i = 0; i < job->count; i++)
        cr_assert(seen[i]);
    cr_assert_eq(summary.layer_count, job->count);
    cr_assert(summary.ready_us == last && summary.end_us == end);
    cr_assert(summary.hidden_us == hidden && summary.communication_us == communication);
    cr_assert_eq(summary.hidden_fraction, communication > 0 ? hidden / communication : 1);
    cr_assert(summary.hidden_fraction >= 0 && summary.hidden_fraction <= 1);
}

Test(plan, tells_its_timeline)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        enum kind kind = seed % KIND_END;
        draw_layers(&draw, kind, draw_below(&draw, 2), draw_below(&draw, MOST_LAYERS + 1), &job);
        draw_cost(&draw, kind, &job);
        for (int method = WEFT_MERGE_EXACT; method <= WEFT_MERGE_CYCLES; method++) {
            struct weft_merge_plan *plan = plan_with(&job, method);
            check_plan(&job, plan, method == WEFT_MERGE_CYCLES);
            weft_merge_plan_destroy(plan);
        }
    }
}

/* a = 2, b = 1. The last layer is ready at 4: of 3 + 4 microseconds the first 3 are hidden. */
Test(plan, hides_what_is_before_the_last_layer_is_ready)
{
    struct job job = {.layers = {{1, 1}, {1, 2}, {1, 4}}, .count = 3};
    weft_merge_cost_init(&job.cost);
    job.cost.a_us = 2;
    job.cost.b_us_per_byte = 1;
    struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_EXACT);
    struct weft_merge_summary summary = summary_of(plan);
    cr_expect(summary.ready_us == 4 && summary.end_us == 8);
    cr_expect(summary.communication_us == 7 && summary.hidden_us == 3);
    cr_expect_eq(summary.hidden_fraction, 3.0 / 7);
    cr_expect(group_of(plan, 0).hidden_us == 3 && group_of(plan, 1).hidden_us == 0);
    weft_merge_plan_destroy(plan);
    /* One that goes on beyond it: 1 .. 6 and 6 .. 11, of which 1 .. 4 */
    plan = plan_with(&(struct job){.layers = {{3, 1}, {3, 4}}, .count = 2, .cost = job.cost},
                     WEFT_MERGE_WFBP);
    summary = summary_of(plan);
    cr_expect(summary.end_us == 11 && summary.hidden_us == 3 && summary.communication_us == 10);
    cr_expect_eq(group_of(plan, 0).hidden_us, 3);
    weft_merge_plan_destroy(plan);
}

Test(plan, hides_everything_if_there_is_nothing)
{
    struct job job = {.count = 0};
    weft_merge_cost_init(&job.cost);
    job.cost.a_us = 1;
    for (int method = WEFT_MERGE_EXACT; method <= WEFT_MERGE_GIVEN; method++) {
        struct weft_merge_config config = {.struct_size = sizeof config, .method = method};
        struct weft_merge_plan *plan = NULL;
        struct weft_merge_group group = {.struct_size = sizeof group};
        cr_assert_eq(weft_merge_plan_create(&plan, NULL, 0, &job.cost, &config), WEFT_OK, "%s",
                     weft_error_text());
        struct weft_merge_summary summary = summary_of(plan);
        cr_expect(!summary.group_count && !summary.layer_count && !summary.end_us &&
                  !summary.ready_us && !summary.communication_us && !summary.hidden_us);
        cr_expect_eq(summary.hidden_fraction, 1);
        cr_expect_eq(weft_merge_plan_get_group(plan, 0, &group), WEFT_ERR_INVALID);
        weft_merge_plan_destroy(plan);
    }
    /* Layers, and allreduces that are free. */
    job = (struct job){.layers = {{4, 1}, {8, 5}}, .count = 2};
    weft_merge_cost_init(&job.cost);
    struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_WFBP);
    cr_expect_eq(summary_of(plan).hidden_fraction, 1);
    cr_expect_eq(summary_of(plan).end_us, 5);
    weft_merge_plan_destroy(plan);
}

/* Layers without parameters cost the latency, alone or together. */
Test(plan, a_group_of_no_bytes_costs_a)
{
    struct job job = {.layers = {{0, 1}, {0, 10}, {0, 11}}, .count = 3};
    size_t sizes[MOST_LAYERS];
    weft_merge_cost_init(&job.cost);
    job.cost.a_us = 3;
    job.cost.b_us_per_byte = 7;
    struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_EXACT);
    cr_expect_eq(summary_of(plan).end_us, 14);
    cr_expect_eq(sizes_of(plan, sizes), 1, "of two plans that end then the one of fewer groups");
    cr_expect_eq(summary_of(plan).communication_us, 3);
    weft_merge_plan_destroy(plan);
    cr_expect_eq(end_by(&job, WEFT_MERGE_WFBP), 16);
}

/* ---- what is refused ---- */

static void refused(const struct job *job, const struct weft_merge_config *config,
                    const char *expected)
{
    struct weft_merge_plan *plan = (struct weft_merge_plan *)job;
    cr_expect_eq(weft_merge_plan_create(&plan, job->layers, job->count, &job->cost, config),
                 WEFT_ERR_INVALID, "expected: %s", expected);
    cr_expect(strstr(weft_error_text(), expected), "\"%s\", expected \"%s\"", weft_error_text(),
              expected);
    cr_expect_eq(plan, (const struct weft_merge_plan *)job, "written in spite of it");
}

static struct job two_layers(void)
{
    struct job job = {.layers = {{4, 1}, {8, 5}}, .count = 2};
    weft_merge_cost_init(&job.cost);
    job.cost.a_us = 1;
    return job;
}

Test(plan, refuses_layers_that_cannot_be)
{
    struct job job = two_layers();
    job.layers[1].ready_us = -1;
    refused(&job, NULL, "layers[1].ready_us is -1, expected a finite number, 0 or more");
    job.layers[1].ready_us = NAN;
    refused(&job, NULL, "layers[1].ready_us is nan");
    job.layers[1].ready_us = INFINITY;
    refused(&job, NULL, "layers[1].ready_us is inf");
    job = two_layers();
    job.layers[1].bytes = SIZE_MAX;
    refused(&job, NULL,
            "layers[1].bytes is 18446744073709551615, expected at most "
            "18446744073709551611 after the 4 of the layers before");
    job.layers[1].bytes = SIZE_MAX - 4;
    weft_merge_plan_destroy(plan_with(&job, WEFT_MERGE_EXACT));
    job = two_layers();
    job.layers[1].ready_us = DBL_MAX;
    job.cost.a_us = DBL_MAX;
    refused(&job, NULL, "the last allreduce ends at inf");
    struct weft_merge_plan *plan = NULL;
    cr_expect_eq(weft_merge_plan_create(&plan, NULL, 2, &job.cost, NULL), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "argument `layers` is NULL"), "%s", weft_error_text());
}

Test(plan, refuses_groups_that_do_not_add_up)
{
    struct job job = two_layers();
    size_t sizes[] = {1, 1, 1};
    struct weft_merge_config config;
    weft_merge_config_init(&config);
    config.method = WEFT_MERGE_GIVEN;
    refused(&job, &config, "config->group_layers add up to 0, expected 2 layers");
    config.group_layers = sizes;
    config.group_count = 1;
    refused(&job, &config, "config->group_layers add up to 1, expected 2 layers");
    config.group_count = 3;
    refused(&job, &config, "config->group_layers[2] is 1, expected 1 .. the 0 layers");
    sizes[1] = 0;
    refused(&job, &config, "config->group_layers[1] is 0, expected 1 .. the 1 layers");
    sizes[0] = SIZE_MAX;
    refused(&job, &config, "config->group_layers[0] is 18446744073709551615");
}

static double strange(void *user, double bytes)
{
    return bytes > 4 ? *(const double *)user : 1;
}

Test(plan, refuses_what_is_no_cost)
{
    static const double answers[] = {NAN, INFINITY, -INFINITY, -1e-300};
    struct job job = two_layers();
    job.cost.function = strange;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        job.cost.user = (void *)&answers[i];
        for (int method = WEFT_MERGE_EXACT; method <= WEFT_MERGE_CYCLES; method++) {
            struct weft_merge_config config = {.struct_size = sizeof config, .method = method};
            refused(&job, &config, "expected a finite number, 0 or more");
            cr_expect(strstr(weft_error_text(), " bytes costs "), "%s", weft_error_text());
        }
    }
    job = two_layers();
    job.cost.b_us_per_byte = DBL_MAX;
    refused(&job, NULL, "an allreduce of 4 bytes costs inf microseconds");
}

/* ---- memory ---- */

Test(plan, refuses_when_memory_runs_out)
{
    struct job job = two_layers();
    for (int method = WEFT_MERGE_EXACT; method <= WEFT_MERGE_GIVEN; method++) {
        size_t sizes[] = {2};
        struct weft_merge_config config = {.struct_size = sizeof config,
                                           .method = method,
                                           .group_layers = sizes,
                                           .group_count = 1};
        for (long failing = 1;; failing++) {
            struct weft_merge_plan *plan = NULL;
            atomic_store(&weft__alloc_countdown, failing);
            int status = weft_merge_plan_create(&plan, job.layers, job.count, &job.cost, &config);
            int done = atomic_load(&weft__alloc_countdown) > 0;
            atomic_store(&weft__alloc_countdown, -1);
            if (done) {
                cr_expect_eq(status, WEFT_OK);
                cr_expect_gt(failing, 3);
                weft_merge_plan_destroy(plan);
                break;
            }
            cr_expect_eq(status, WEFT_ERR_MEMORY, "method %d, call %ld", method, failing);
            cr_expect(strstr(weft_error_text(), "weft_merge_plan_create: out of memory"), "%s",
                      weft_error_text());
            cr_expect_null(plan);
        }
    }
}
