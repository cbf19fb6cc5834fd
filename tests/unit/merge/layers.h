/* SPDX-License-Identifier: BSD-3-Clause */
/* Random layers and costs for the suites of the planner, and what they ask of a plan. */
#ifndef WEFT_TESTS_MERGE_LAYERS_H
#define WEFT_TESTS_MERGE_LAYERS_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "tests/support/draw.h"

enum { MOST_LAYERS = 64 };

/* What a case is like. */
enum kind {
    WHOLE, /* small whole numbers: ties everywhere, no rounding */
    REAL,  /* any sizes and times */
    DEEP,  /* as a network: a few large layers, many small */
    KIND_END
};

/* A case: layers, and what an allreduce takes. */
struct job {
    struct weft_merge_layer layers[MOST_LAYERS];
    size_t count;
    struct weft_merge_cost cost;
    struct weft_merge_point points[4];
};

static inline void draw_layers(struct draw *draw, enum kind kind, int monotone, size_t count,
                               struct job *job)
{
    double now = 0;
    job->count = count;
    for (size_t i = 0; i < count; i++) {
        struct weft_merge_layer *layer = &job->layers[i];
        if (kind == WHOLE) {
            layer->bytes = draw_below(draw, 3) ? draw_below(draw, 6) : 0;
            now += draw_below(draw, 2) * draw_below(draw, 7);
            layer->ready_us = monotone ? now : draw_below(draw, 16);
        } else {
            double size = kind == DEEP ? exp(log(1e7) * draw_real(draw)) : 1e6 * draw_real(draw);
            layer->bytes = draw_below(draw, 8) ? (size_t)size : 0;
            now += draw_below(draw, 8) ? 1000 * draw_real(draw) : 0;
            layer->ready_us = monotone ? now : 1000 * (double)count * draw_real(draw);
        }
    }
}

static inline void draw_linear(struct draw *draw, enum kind kind, struct job *job)
{
    weft_merge_cost_init(&job->cost);
    if (kind == WHOLE) {
        job->cost.a_us = draw_below(draw, 6);
        job->cost.b_us_per_byte = draw_below(draw, 3);
    } else {
        job->cost.a_us = draw_below(draw, 6) ? 1500 * draw_real(draw) : 0;
        job->cost.b_us_per_byte = draw_below(draw, 6) ? 2e-3 * draw_real(draw) : 0;
    }
}

/* Neither convex nor rising: what a change of algorithm looks like, and worse. */
static inline double odd_cost(void *user, double bytes)
{
    const struct job *job = user;
    double a = job->cost.a_us, b = job->cost.b_us_per_byte;
    return bytes < 10 ? a + b * bytes : 3 * a + b * fmod(bytes, 17) + sqrt(bytes);
}

static inline void draw_cost(struct draw *draw, enum kind kind, struct job *job)
{
    unsigned form = draw_below(draw, 3);
    draw_linear(draw, kind, job);
    if (form == 1) {
        job->cost.function = odd_cost;
        job->cost.user = job;
    } else if (form == 2) {
        double bytes = 0, scale = kind == WHOLE ? 8 : 1e6;
        for (int p = 0; p < 4; p++) {
            bytes += 1 + scale * draw_real(draw);
            job->points[p] = (struct weft_merge_point){bytes, scale * 1e-3 * draw_below(draw, 9)};
        }
        job->cost.points = job->points;
        job->cost.point_count = 2 + draw_below(draw, 3);
    }
}

/* ---- what is asked of a plan ---- */

static inline struct weft_merge_plan *plan_by(const struct job *job,
                                              const struct weft_merge_config *config)
{
    struct weft_merge_plan *plan = NULL;
    cr_assert_eq(weft_merge_plan_create(&plan, job->layers, job->count, &job->cost, config),
                 WEFT_OK, "%s", weft_error_text());
    return plan;
}

static inline struct weft_merge_plan *plan_with(const struct job *job, weft_merge_method_t method)
{
    struct weft_merge_config config;
    weft_merge_config_init(&config);
    config.method = method;
    return plan_by(job, &config);
}

static inline struct weft_merge_summary summary_of(const struct weft_merge_plan *plan)
{
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    cr_assert_eq(weft_merge_plan_get_summary(plan, &summary), WEFT_OK);
    return summary;
}

static inline struct weft_merge_group group_of(const struct weft_merge_plan *plan, size_t group)
{
    struct weft_merge_group result = {.struct_size = sizeof result};
    cr_assert_eq(weft_merge_plan_get_group(plan, group, &result), WEFT_OK, "%s", weft_error_text());
    return result;
}

/* How many layers each group has; all of successive layers. */
static inline size_t sizes_of(const struct weft_merge_plan *plan, size_t *sizes)
{
    struct weft_merge_summary summary = summary_of(plan);
    size_t next = 0;
    for (size_t g = 0; g < summary.group_count; g++) {
        struct weft_merge_group group = group_of(plan, g);
        cr_assert_gt(group.layer_count, 0);
        for (size_t i = 0; i < group.layer_count; i++)
            cr_assert_eq(group.layers[i], next++);
        sizes[g] = group.layer_count;
    }
    cr_assert_eq(next, summary.layer_count);
    return summary.group_count;
}

static inline double end_by(const struct job *job, weft_merge_method_t method)
{
    struct weft_merge_plan *plan = plan_with(job, method);
    double end = summary_of(plan).end_us;
    weft_merge_plan_destroy(plan);
    return end;
}

static inline double cost_of(const struct job *job, size_t bytes)
{
    double us = 0;
    cr_assert_eq(weft_merge_cost_get(&job->cost, (double)bytes, &us), WEFT_OK, "%s",
                 weft_error_text());
    return us;
}

#endif
