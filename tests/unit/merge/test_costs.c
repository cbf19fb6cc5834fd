/* SPDX-License-Identifier: BSD-3-Clause */
/* What an allreduce costs: given, measured, fitted, predicted. */
#include <float.h>

#include "tests/unit/merge/layers.h"

static double ask(const struct weft_merge_cost *cost, double bytes)
{
    double us = -1;
    cr_assert_eq(weft_merge_cost_get(cost, bytes, &us), WEFT_OK, "%s", weft_error_text());
    return us;
}

static void refused(const struct weft_merge_cost *cost, double bytes, const char *expected)
{
    double us = -1;
    cr_expect_eq(weft_merge_cost_get(cost, bytes, &us), WEFT_ERR_INVALID, "expected: %s", expected);
    cr_expect(strstr(weft_error_text(), expected), "\"%s\", expected \"%s\"", weft_error_text(),
              expected);
    cr_expect_eq(us, -1);
}

Test(costs, are_a_and_b)
{
    struct weft_merge_cost cost;
    weft_merge_cost_init(&cost);
    cr_expect_eq(ask(&cost, 1e9), 0);
    cost.a_us = 90.52;
    cost.b_us_per_byte = 0.001;
    cr_expect_eq(ask(&cost, 0), 90.52);
    cr_expect_eq(ask(&cost, 1e6), 90.52 + 0.001 * 1e6);
    refused(&cost, -1, "bytes is -1");
    refused(&cost, NAN, "bytes is nan");
    refused(&cost, INFINITY, "bytes is inf");
    cost.a_us = -1;
    refused(&cost, 1, "cost->a_us is -1");
    cost.a_us = 1;
    cost.b_us_per_byte = NAN;
    refused(&cost, 1, "cost->b_us_per_byte is nan");
    cost.b_us_per_byte = DBL_MAX;
    refused(&cost, 4, "costs inf microseconds");
}

Test(costs, are_lines_between_points)
{
    struct weft_merge_point points[] = {{10, 4}, {20, 8}, {40, 0}, {80, 2}};
    struct weft_merge_cost cost;
    weft_merge_cost_init(&cost);
    cost.a_us = 1e6; /* points go before */
    cost.points = points;
    cost.point_count = 4;
    static const double expected[][2] = {{0, 4},  {9, 4},  {10, 4}, {15, 6},   {20, 8},
                                         {30, 4}, {40, 0}, {60, 1}, {160, 6.0}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        cr_expect_eq(ask(&cost, expected[i][0]), expected[i][1], "%g bytes: %g", expected[i][0],
                     ask(&cost, expected[i][0]));
    cost.point_count = 3; /* a line that falls is not gone along any further */
    cr_expect_eq(ask(&cost, 1e9), 0);
    points[2].us = 2;
    cr_expect_eq(ask(&cost, 41), 2);
    cr_expect_eq(ask(&cost, 1e9), 2);
    cost.point_count = 2;
    cr_expect_eq(ask(&cost, 60), 24);
    points[1].us = 4;
    cr_expect_eq(ask(&cost, 1e300), 4);
}

/* Just before a point that is 0 a line is below it by rounding. */
Test(costs, are_not_negative_by_rounding)
{
    struct weft_merge_point points[] = {{4.8, 30.2}, {15.8, 0}};
    struct weft_merge_cost cost = {.struct_size = sizeof cost, .points = points, .point_count = 2};
    double rise = (nextafter(15.8, 0) - 4.8) * (-30.2 / (15.8 - 4.8));
    cr_assert_lt(30.2 + rise, 0);
    cr_expect_eq(ask(&cost, nextafter(15.8, 0)), 0);
}

static double square(void *user, double bytes)
{
    ++*(int *)user;
    return bytes * bytes;
}

Test(costs, are_a_function)
{
    struct weft_merge_point points[] = {{10, 4}, {20, 8}};
    int calls = 0;
    struct weft_merge_cost cost = {.struct_size = sizeof cost,
                                   .points = points,
                                   .point_count = 2,
                                   .function = square,
                                   .user = &calls};
    cr_expect_eq(ask(&cost, 3), 9);
    cr_expect_eq(calls, 1);
    refused(&cost, 1e200, "costs inf microseconds");
}

Test(costs, refuse_points_that_are_none)
{
    struct weft_merge_point points[] = {{10, 4}, {20, 8}, {30, 8}};
    struct weft_merge_cost cost = {.struct_size = sizeof cost, .points = points, .point_count = 3};
    points[2].bytes = 20;
    refused(&cost, 1, "cost->points[2].bytes is 20, expected more than the 20 before it");
    points[2].bytes = 5;
    refused(&cost, 1, "cost->points[2].bytes is 5");
    points[2].bytes = NAN;
    refused(&cost, 1, "cost->points[2].bytes is nan");
    points[0].bytes = -1;
    refused(&cost, 1, "cost->points[0].bytes is -1");
    points[0] = (struct weft_merge_point){10, -4};
    refused(&cost, 1, "cost->points[0].us is -4");
    points[0].us = INFINITY;
    refused(&cost, 1, "cost->points[0].us is inf");
    cost.point_count = 1;
    refused(&cost, 1, "cost->point_count is 1, expected 0, or 2");
    cost.points = NULL;
    refused(&cost, 1, "cost->points is NULL");
}

/* A plan asks for neighbouring sizes, up and down again; the answers are those of single calls. */
Test(costs, do_not_depend_on_what_was_asked_before)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct draw draw = {seed};
        struct job job;
        draw_layers(&draw, WHOLE, 1, 30, &job);
        weft_merge_cost_init(&job.cost);
        for (int p = 0; p < 4; p++)
            job.points[p] =
                (struct weft_merge_point){3 + 5 * p + draw_below(&draw, 4), draw_below(&draw, 9)};
        job.cost.points = job.points;
        job.cost.point_count = 4;
        struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_EXACT);
        double end = 0;
        for (size_t g = 0; g < summary_of(plan).group_count; g++) {
            struct weft_merge_group group = group_of(plan, g);
            end = fmax(end, group.ready_us) + ask(&job.cost, (double)group.bytes);
            cr_assert_eq(group.end_us, end);
        }
        weft_merge_plan_destroy(plan);
    }
}

/* ---- fits ---- */

static double error_of(const struct weft_merge_point *points, size_t count, double a, double b)
{
    double sum = 0;
    for (size_t p = 0; p < count; p++) {
        double relative = (a + b * points[p].bytes - points[p].us) / points[p].us;
        sum += relative * relative;
    }
    return sum;
}

Test(costs, are_fitted_to_a_line)
{
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct draw draw = {seed};
        struct weft_merge_point points[8];
        double a = seed % 5 ? 1000 * draw_real(&draw) : 0;
        double b = seed % 7 ? 1e-3 * draw_real(&draw) : 0, fitted_a, fitted_b;
        size_t count = 2 + draw_below(&draw, 7);
        if (!a && !b)
            continue;
        for (size_t p = 0; p < count; p++) {
            points[p].bytes = floor(1 + exp(16 * draw_real(&draw)));
            points[p].us = a + b * points[p].bytes;
        }
        points[1].bytes = points[0].bytes * 2;
        points[1].us = a + b * points[1].bytes;
        cr_assert_eq(weft_merge_cost_fit(points, count, &fitted_a, &fitted_b), WEFT_OK, "%s",
                     weft_error_text());
        cr_assert_leq(error_of(points, count, fitted_a, fitted_b), 1e-20 * (double)count,
                      "seed %llu: %g, %g for %g, %g", (unsigned long long)seed, fitted_a, fitted_b,
                      a, b);
    }
}

/* No a and b nearby, 0 or more, are better; whether one of them is 0 or not. */
Test(costs, are_fitted_with_the_least_error)
{
    int zero_a = 0, zero_b = 0, cases = 2000;
    for (int seed = 0; seed < cases; seed++) {
        struct draw draw = {(uint64_t)seed};
        struct weft_merge_point points[8];
        size_t count = 2 + draw_below(&draw, 7);
        double a, b;
        for (size_t p = 0; p < count; p++)
            points[p] = (struct weft_merge_point){(double)p + draw_real(&draw),
                                                  0.1 + 10 * draw_real(&draw)};
        cr_assert_eq(weft_merge_cost_fit(points, count, &a, &b), WEFT_OK);
        cr_assert(a >= 0 && b >= 0);
        double least = error_of(points, count, a, b);
        for (int step = 0; step < 16; step++) {
            double near_a = a + (step % 4 - 1.5) * (step < 8 ? 1e-3 : 1);
            double near_b = b + (step / 4 % 4 - 1.5) * (step < 8 ? 1e-3 : 1);
            for (int which = 0; which < 3; which++)
                cr_assert_geq(error_of(points, count, which == 1 ? a : fmax(0, near_a),
                                       which == 2 ? b : fmax(0, near_b)),
                              least * (1 - 1e-12), "seed %d", seed);
        }
        zero_a += a == 0;
        zero_b += b == 0;
    }
    cr_assert(zero_a > 10 && zero_b > 10 && zero_a + zero_b < cases, "a is 0 in %d, b in %d",
              zero_a, zero_b);
}

Test(costs, refuse_what_cannot_be_fitted)
{
    struct weft_merge_point points[] = {{10, 4}, {10, 8}, {10, 6}};
    double a = -1, b = -1;
    cr_expect_eq(weft_merge_cost_fit(points, 3, &a, &b), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "3 points of one size"), "%s", weft_error_text());
    cr_expect_eq(weft_merge_cost_fit(points, 0, &a, &b), WEFT_ERR_INVALID);
    points[1] = (struct weft_merge_point){20, 0};
    cr_expect_eq(weft_merge_cost_fit(points, 3, &a, &b), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "points[1].us is 0"), "%s", weft_error_text());
    points[1].us = NAN;
    cr_expect_eq(weft_merge_cost_fit(points, 3, &a, &b), WEFT_ERR_INVALID);
    points[1].us = -3;
    cr_expect_eq(weft_merge_cost_fit(points, 3, &a, &b), WEFT_ERR_INVALID);
    points[1] = (struct weft_merge_point){INFINITY, 3};
    cr_expect_eq(weft_merge_cost_fit(points, 3, &a, &b), WEFT_ERR_INVALID);
    cr_expect(a == -1 && b == -1);
    points[0].us = points[2].us = 0;
    points[1] = (struct weft_merge_point){20, 0};
    cr_expect_eq(weft_merge_cost_fit(points, 3, &a, &b), WEFT_OK, "one rank: all is free");
    cr_expect(a == 0 && b == 0);
}

/* ---- predictions ---- */

Test(costs, are_predicted_as_a_template_is_chosen)
{
    static const int sizes[] = {1, 2, 3, 8, 64, 1000};
    static const size_t most[] = {0, 1, 4, 100, 4096, 1000001, (size_t)1 << 40};
    struct weft_merge_point points[WEFT_MERGE_POINTS];
    struct weft_cost_model model;
    struct weft_template_params params;
    weft_cost_model_init(&model, "mpi");
    weft_template_params_init(&params);
    params.dtype = WEFT_BF16;
    params.cost = &model;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t m = 0; m < sizeof most / sizeof most[0]; m++) {
            size_t count = 0;
            cr_assert_eq(weft_merge_cost_predict(&params, sizes[s], most[m], points, &count),
                         WEFT_OK, "%s", weft_error_text());
            cr_assert(count >= 2 && count <= WEFT_MERGE_POINTS);
            cr_expect_eq(points[0].bytes, 0);
            cr_expect(points[count - 1].bytes >= (double)most[m]);
            cr_expect(points[count - 1].bytes < (double)most[m] + 2 + 2 * !most[m]);
            for (size_t p = 0; p < count; p++) {
                double us;
                params.count = (size_t)points[p].bytes / 2;
                cr_assert_eq(weft_template_choose("allreduce", sizes[s], &params, NULL, &us),
                             WEFT_OK);
                cr_expect_eq(points[p].us, us);
                cr_expect(!p || points[p].bytes > points[p - 1].bytes);
                cr_expect(p < 3 || points[p].bytes <= 1.5 * points[p - 1].bytes + 2);
            }
            struct weft_merge_cost cost = {
                .struct_size = sizeof cost, .points = points, .point_count = count};
            cr_expect_eq(ask(&cost, points[count - 1].bytes), points[count - 1].us);
        }
}

/* Between the points a prediction is off by little: the costs of algorithms are lines, and the
 * least of them is chosen. Where messages wait for their receives, lines have a step, which may be
 * anywhere between two points. */
static void predict_between(size_t eager_bytes, double wait_us, double off)
{
    struct weft_merge_point points[WEFT_MERGE_POINTS];
    struct weft_template_params params;
    struct weft_cost_model model;
    size_t count = 0;
    weft_cost_model_init(&model, "local");
    model.eager_bytes = eager_bytes;
    model.rendezvous_us = wait_us;
    weft_template_params_init(&params);
    params.cost = &model;
    for (int ranks = 2; ranks < 40; ranks++) {
        cr_assert_eq(weft_merge_cost_predict(&params, ranks, 1 << 28, points, &count), WEFT_OK);
        struct weft_merge_cost cost = {
            .struct_size = sizeof cost, .points = points, .point_count = count};
        for (size_t elements = 5; elements < 1 << 26; elements += 1 + elements / 3) {
            double us;
            params.count = elements;
            cr_assert_eq(weft_template_choose("allreduce", ranks, &params, NULL, &us), WEFT_OK);
            cr_expect_float_eq(ask(&cost, 4.0 * (double)elements) / us, 1, off,
                               "%d ranks, %zu elements: %g, chosen %g", ranks, elements,
                               ask(&cost, 4.0 * (double)elements), us);
        }
    }
}

Test(costs, are_predicted_between_points)
{
    predict_between(0, 0, 0.1);
    predict_between(512, 0.5, 0.4);
    predict_between(8192, 2.2, 0.8); /* a wait is a third of a message that has one */
}

Test(costs, are_predicted_at_sizes_that_ascend_however_large)
{
    static const weft_dtype_t dtypes[] = {WEFT_U8, WEFT_F32, WEFT_F64};
    struct weft_merge_point points[WEFT_MERGE_POINTS];
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.algo = "ring";
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (int power = 50; power < 62; power++)
            for (size_t more = 0; more < 20; more++) {
                size_t count = 0, most = ((size_t)1 << power) + more;
                double us = 0;
                params.dtype = dtypes[d];
                cr_assert_eq(weft_merge_cost_predict(&params, 2, most, points, &count), WEFT_OK,
                             "%s", weft_error_text());
                struct weft_merge_cost cost = {
                    .struct_size = sizeof cost, .points = points, .point_count = count};
                cr_expect_eq(weft_merge_cost_get(&cost, (double)most, &us), WEFT_OK, "%zu: %s",
                             most, weft_error_text());
                cr_expect(points[count - 1].bytes >= (double)most && us > 0);
            }
}

Test(costs, are_predicted_up_to_what_memory_has)
{
    struct weft_merge_point points[WEFT_MERGE_POINTS];
    struct weft_template_params params;
    size_t count = 0;
    weft_template_params_init(&params);
    params.dtype = WEFT_U8;
    int status = weft_merge_cost_predict(&params, 2, SIZE_MAX, points, &count);
    if (status)
        cr_expect(strstr(weft_error_text(), "weft_merge_cost_predict: "), "%s", weft_error_text());
    else
        cr_expect_leq(count, WEFT_MERGE_POINTS);
    cr_expect_eq(weft_merge_cost_predict(NULL, 0, 4, points, &count), WEFT_ERR_INVALID);
    params.algo = "no such";
    cr_expect_eq(weft_merge_cost_predict(&params, 2, 4, points, &count), WEFT_ERR_NOT_FOUND);
    params.algo = "ring";
    cr_expect_eq(weft_merge_cost_predict(&params, 2, 4, points, &count), WEFT_OK);
}
