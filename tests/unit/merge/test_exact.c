/* SPDX-License-Identifier: BSD-3-Clause */
/* The exact plan against every plan there is, and against every other method. */
#include "tests/unit/merge/layers.h"

enum { CASES = 6000 };

static void note(const struct job *job, uint64_t seed, char *text, size_t size)
{
    int length = snprintf(text, size, "seed %llu, a %.17g, b %.17g, %s:", (unsigned long long)seed,
                          job->cost.a_us, job->cost.b_us_per_byte,
                          job->cost.function      ? "function"
                          : job->cost.point_count ? "points"
                                                  : "linear");
    for (size_t i = 0; i < job->count && (size_t)length < size; i++)
        length += snprintf(text + length, size - (size_t)length, " %zu at %.17g",
                           job->layers[i].bytes, job->layers[i].ready_us);
}

/* ---- all groups of successive layers ---- */

/* The ends of the groups of a mask, of which bit i says that one ends with layer i; the last ends
 * in any case. ends[i]: when it does; -1: none there. */
static double end_of_mask(const struct job *job, size_t count, unsigned mask, double *ends)
{
    double end = 0, ready = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        ready = fmax(ready, job->layers[i].ready_us);
        bytes += job->layers[i].bytes;
        ends[i] = -1;
        if (i + 1 == count || mask >> i & 1) {
            ends[i] = end = fmax(end, ready) + cost_of(job, bytes);
            ready = 0;
            bytes = 0;
        }
    }
    return end;
}

/* The earliest end of groups of the first `count` layers. */
static double best_of_masks(const struct job *job, size_t count)
{
    double best = INFINITY, ends[MOST_LAYERS];
    for (unsigned mask = 0; mask < 1u << (count - 1); mask++)
        best = fmin(best, end_of_mask(job, count, mask, ends));
    return best;
}

/* Of the groups of which each ends as early as groups of these layers can: how few there can be. */
static size_t fewest(const struct job *job)
{
    double best[MOST_LAYERS], ends[MOST_LAYERS];
    size_t fewest = SIZE_MAX;
    for (size_t i = 0; i < job->count; i++)
        best[i] = best_of_masks(job, i + 1);
    for (unsigned mask = 0; mask < 1u << (job->count - 1); mask++) {
        size_t groups = 0, early = 0;
        end_of_mask(job, job->count, mask, ends);
        for (size_t i = 0; i < job->count; i++) {
            groups += ends[i] >= 0;
            early += ends[i] == best[i];
        }
        if (groups == early && groups < fewest)
            fewest = groups;
    }
    return fewest;
}

/* A case of `count` layers by a seed; a third each is linear, by points and a function. */
static void draw_job(uint64_t seed, struct draw *draw, size_t count, struct job *job, char *text,
                     size_t size)
{
    enum kind kind = seed % KIND_END;
    draw_layers(draw, kind, draw_below(draw, 2), count, job);
    draw_cost(draw, kind, job);
    note(job, seed, text, size);
}

Test(exact, no_groups_of_neighbours_end_earlier)
{
    char text[2048];
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        size_t sizes[MOST_LAYERS];
        /* Mostly small; 12 layers have 2048 groupings. */
        draw_job(seed, &draw, 1 + draw_below(&draw, seed % 4 ? 8 : 12), &job, text, sizeof text);
        struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_EXACT);
        struct weft_merge_summary summary = summary_of(plan);
        double best = best_of_masks(&job, job.count);
        cr_assert_eq(summary.end_us, best, "%s: %.17g, %.17g is possible", text, summary.end_us,
                     best);
        cr_assert_eq(summary.group_count, sizes_of(plan, sizes));
        weft_merge_plan_destroy(plan);
    }
}

Test(exact, of_equal_ends_the_fewest_groups)
{
    char text[2048];
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        draw_job(seed, &draw, 1 + draw_below(&draw, 8), &job, text, sizeof text);
        struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_EXACT);
        cr_assert_eq(summary_of(plan).group_count, fewest(&job), "%s: %zu groups, expected %zu",
                     text, summary_of(plan).group_count, fewest(&job));
        weft_merge_plan_destroy(plan);
    }
}

/* ---- all groups whatsoever, in any order ---- */

/* The earliest end if the layers of `left` are still to be sent after `end`. */
static double best_of_all(const struct job *job, unsigned left, double end)
{
    double best = INFINITY;
    if (!left)
        return end;
    for (unsigned group = left; group; group = (group - 1) & left) {
        double ready = 0;
        size_t bytes = 0;
        for (size_t i = 0; i < job->count; i++)
            if (group >> i & 1) {
                ready = fmax(ready, job->layers[i].ready_us);
                bytes += job->layers[i].bytes;
            }
        best = fmin(best, best_of_all(job, left & ~group, fmax(end, ready) + cost_of(job, bytes)));
    }
    return best;
}

Test(exact, no_groups_in_any_order_end_earlier_if_it_says_all)
{
    char text[2048];
    int all = 0, better = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        draw_job(seed, &draw, 1 + draw_below(&draw, seed % 16 ? 5 : 6), &job, text, sizeof text);
        struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_EXACT);
        struct weft_merge_summary summary = summary_of(plan);
        double best = best_of_all(&job, (1u << job.count) - 1, 0);
        weft_merge_plan_destroy(plan);
        if (summary.optimal != WEFT_MERGE_OPTIMAL_ALL) {
            cr_assert_eq(summary.optimal, WEFT_MERGE_OPTIMAL_CONTIGUOUS);
            better += best < summary.end_us * (1 - 1e-9);
            continue;
        }
        all++;
        /* Whole numbers are added without rounding. */
        double slack = seed % KIND_END == WHOLE ? 0 : 1e-12 * best;
        cr_assert_leq(summary.end_us, best + slack, "%s: %.17g, %.17g is possible", text,
                      summary.end_us, best);
    }
    cr_log_info("%d of %d cases are optimal over all groups, of the others %d are not", all, CASES,
                better);
    cr_assert_gt(all, CASES / 10);
    /* What the proof leaves out is not true. */
    cr_assert_gt(better, CASES / 100);
}

static double two_or_three(void *user, double bytes)
{
    (void)user;
    return bytes == 2 ? 1 : 3;
}

/* The two cases of docs/merging.md: why it does not always say all. */
Test(exact, other_orders_can_end_earlier)
{
    struct job falling = {.layers = {{1, 3}, {2, 1}}, .count = 2};
    struct job odd = {.layers = {{1, 0}, {2, 0}, {1, 0}}, .count = 3};
    weft_merge_cost_init(&falling.cost);
    falling.cost.b_us_per_byte = 1;
    cr_expect_eq(end_by(&falling, WEFT_MERGE_EXACT), 6);
    cr_expect_eq(best_of_all(&falling, 3, 0), 4);
    weft_merge_cost_init(&odd.cost);
    odd.cost.function = two_or_three;
    cr_expect_eq(end_by(&odd, WEFT_MERGE_EXACT), 3);
    cr_expect_eq(best_of_all(&odd, 7, 0), 2);
}

static weft_merge_optimal_t optimal_of(const struct job *job, weft_merge_method_t method)
{
    struct weft_merge_plan *plan = plan_with(job, method);
    weft_merge_optimal_t optimal = summary_of(plan).optimal;
    weft_merge_plan_destroy(plan);
    return optimal;
}

Test(exact, says_in_what_sense_it_is_optimal)
{
    struct job job = {.layers = {{4, 1}, {4, 1}, {0, 3}}, .count = 3};
    weft_merge_cost_init(&job.cost);
    cr_expect_eq(optimal_of(&job, WEFT_MERGE_EXACT), WEFT_MERGE_OPTIMAL_ALL, "nothing costs any");
    job.cost.a_us = 1;
    cr_expect_eq(optimal_of(&job, WEFT_MERGE_EXACT), WEFT_MERGE_OPTIMAL_ALL);
    for (int method = WEFT_MERGE_GREEDY; method <= WEFT_MERGE_CYCLES; method++)
        cr_expect_eq(optimal_of(&job, method), WEFT_MERGE_NOT_OPTIMAL, "method %d", method);
    job.layers[1].ready_us = 0.5;
    cr_expect_eq(optimal_of(&job, WEFT_MERGE_EXACT), WEFT_MERGE_OPTIMAL_CONTIGUOUS, "times fall");
    job.layers[1].ready_us = 1;
    job.points[1] = (struct weft_merge_point){1, 1};
    job.cost.points = job.points;
    job.cost.point_count = 2;
    cr_expect_eq(optimal_of(&job, WEFT_MERGE_EXACT), WEFT_MERGE_OPTIMAL_CONTIGUOUS, "points");
    job.cost.point_count = 0;
    job.cost.function = odd_cost;
    job.cost.user = &job;
    cr_expect_eq(optimal_of(&job, WEFT_MERGE_EXACT), WEFT_MERGE_OPTIMAL_CONTIGUOUS, "function");
    cr_expect_str_eq(weft_merge_optimal_name(WEFT_MERGE_NOT_OPTIMAL), "no");
    cr_expect_str_eq(weft_merge_optimal_name(WEFT_MERGE_OPTIMAL_CONTIGUOUS), "contiguous");
    cr_expect_str_eq(weft_merge_optimal_name(WEFT_MERGE_OPTIMAL_ALL), "all");
    cr_expect_str_eq(weft_merge_optimal_name((weft_merge_optimal_t)7), "unknown");
}

/* ---- other methods ---- */

static int monotone(const struct job *job)
{
    for (size_t i = 1; i < job->count; i++)
        if (job->layers[i].ready_us < job->layers[i - 1].ready_us)
            return 0;
    return 1;
}

Test(exact, no_method_ends_earlier)
{
    char text[4096];
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        draw_job(seed, &draw, 1 + draw_below(&draw, MOST_LAYERS), &job, text, sizeof text);
        double exact = end_by(&job, WEFT_MERGE_EXACT);
        for (int method = WEFT_MERGE_GREEDY; method <= WEFT_MERGE_BUCKETS; method++)
            cr_assert_leq(exact, end_by(&job, method), "%s: method %d", text, method);
        if (monotone(&job))
            cr_assert_leq(exact, end_by(&job, WEFT_MERGE_CYCLES), "%s: cycles", text);
    }
}
