/* SPDX-License-Identifier: BSD-3-Clause */
/* The greedy against the paper's Algorithm 1, written down as it stands there, and against the
 * exact plan: how often it is later, and by how much. */
#include "tests/unit/merge/layers.h"

enum { CASES = 6000, FIGURES = 3000 };

/* ---- Algorithm 1: layers L .. 1, arrays from 1 ---- */

struct paper {
    int L;
    double a, b;
    double p[MOST_LAYERS + 1], tb[MOST_LAYERS + 1], tc[MOST_LAYERS + 1];
    double taub[MOST_LAYERS + 1], tauc[MOST_LAYERS + 1];
    int in_M[MOST_LAYERS + 1];
};

static double T_ar(const struct paper *paper, double p)
{
    return paper->a + paper->b * p;
}

static void CALCULATECOMMSTART(struct paper *paper)
{
    int L = paper->L;
    paper->tauc[L] = paper->taub[L] + paper->tb[L];
    for (int l = L - 1; l >= 1; l--)
        paper->tauc[l] = fmax(paper->tauc[l + 1] + paper->tc[l + 1], paper->taub[l] + paper->tb[l]);
}

static void MERGE(struct paper *paper, int l)
{
    paper->tc[l] = 0;
    paper->p[l - 1] = paper->p[l - 1] + paper->p[l];
    paper->tc[l - 1] = T_ar(paper, paper->p[l - 1]);
}

/* The loop of line 9 ends at 2, where tau_b[1] and for l = 2 tau_b[0] are needed: the end of the
 * backward pass. */
static void algorithm_1(struct paper *paper, double tf)
{
    for (int l = 1; l <= paper->L; l++)
        paper->tc[l] = T_ar(paper, paper->p[l]);
    paper->taub[paper->L] = tf;
    for (int l = paper->L - 1; l >= 0; l--)
        paper->taub[l] = paper->taub[l + 1] + paper->tb[l + 1];
    CALCULATECOMMSTART(paper);
    for (int l = paper->L; l >= 2; l--)
        if (paper->taub[l - 2] - paper->tauc[l] < paper->a) {
            MERGE(paper, l);
            CALCULATECOMMSTART(paper);
            paper->in_M[l] = 1;
        }
}

/* The same layers for the paper, with times that it computes, and for the planner. */
static void draw_paper(struct draw *draw, enum kind kind, struct paper *paper, struct job *job,
                       size_t count)
{
    double tf = kind == WHOLE ? draw_below(draw, 4) : 5000 * draw_real(draw);
    draw_layers(draw, kind, 1, count, job);
    draw_linear(draw, kind, job);
    *paper =
        (struct paper){.L = (int)job->count, .a = job->cost.a_us, .b = job->cost.b_us_per_byte};
    for (int l = paper->L; l >= 1; l--) {
        size_t i = (size_t)(paper->L - l);
        paper->p[l] = (double)job->layers[i].bytes;
        paper->tb[l] = job->layers[i].ready_us - (i ? job->layers[i - 1].ready_us : 0);
    }
    algorithm_1(paper, tf);
    for (int l = paper->L; l >= 1; l--)
        job->layers[paper->L - l].ready_us = paper->taub[l] + paper->tb[l];
}

Test(greedy, is_the_papers_algorithm_1)
{
    int merged = 0, alone = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct paper paper;
        struct job job;
        draw_paper(&draw, seed % KIND_END, &paper, &job, 1 + draw_below(&draw, MOST_LAYERS));
        struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_GREEDY);
        struct weft_merge_summary summary = summary_of(plan);
        int l = paper.L;
        for (size_t g = 0; g < summary.group_count; g++) {
            struct weft_merge_group group = group_of(plan, g);
            for (size_t i = 0; i < group.layer_count; i++, l--) {
                int with_next = i + 1 < group.layer_count;
                cr_assert_eq(group.layers[i], (size_t)(paper.L - l));
                cr_assert_eq(paper.in_M[l], with_next, "seed %llu: layer %d",
                             (unsigned long long)seed, l);
                merged += with_next;
                alone += !with_next;
            }
            cr_assert_eq(group.start_us, paper.tauc[l + 1]);
            cr_assert_eq(group.end_us, paper.tauc[l + 1] + paper.tc[l + 1]);
        }
        cr_assert_eq(l, 0);
        weft_merge_plan_destroy(plan);
    }
    cr_assert(merged > CASES && alone > CASES, "%d layers merged, %d not", merged, alone);
}

/* M = { l | tau_b[l-2] - tau_c[l] < a, 1 < l <= L } of the plan itself. */
Test(greedy, merges_what_equation_27_says)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        double end = 0;
        draw_layers(&draw, seed % KIND_END, 1, 1 + draw_below(&draw, MOST_LAYERS), &job);
        draw_linear(&draw, seed % KIND_END, &job);
        struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_GREEDY);
        size_t sizes[MOST_LAYERS], groups = sizes_of(plan, sizes), i = 0;
        for (size_t g = 0; g < groups; g++) {
            double could_start = end;
            for (size_t n = 0; n < sizes[g]; n++, i++) {
                could_start = fmax(could_start, job.layers[i].ready_us);
                if (i + 1 < job.count)
                    cr_assert_eq(job.layers[i + 1].ready_us - could_start < job.cost.a_us,
                                 n + 1 < sizes[g], "seed %llu: layer %zu", (unsigned long long)seed,
                                 i);
            }
            cr_assert_eq(group_of(plan, g).start_us, could_start);
            end = group_of(plan, g).end_us;
        }
        weft_merge_plan_destroy(plan);
    }
}

/* For other costs inequality 26, both of its sides as they stand there. */
Test(greedy, merges_what_inequality_26_says_for_other_costs)
{
    int both = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        size_t sizes[MOST_LAYERS], i = 0;
        draw_layers(&draw, seed % KIND_END, draw_below(&draw, 2), 2 + draw_below(&draw, 20), &job);
        draw_cost(&draw, seed % KIND_END, &job);
        if (!job.cost.function && !job.cost.point_count)
            continue;
        struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_GREEDY);
        size_t groups = sizes_of(plan, sizes);
        double end = 0;
        for (size_t g = 0; g < groups; g++) {
            double tauc = end;
            size_t p = 0;
            for (size_t n = 0; n < sizes[g] && i + 1 < job.count; n++, i++) {
                double next = job.layers[i + 1].ready_us;
                size_t after = job.layers[i + 1].bytes;
                tauc = fmax(tauc, job.layers[i].ready_us);
                p += job.layers[i].bytes;
                int merge = fmax(tauc, next) + cost_of(&job, p + after) <
                            fmax(tauc + cost_of(&job, p), next) + cost_of(&job, after);
                cr_assert_eq(merge, n + 1 < sizes[g], "seed %llu: layer %zu",
                             (unsigned long long)seed, i);
                both |= 1 << merge;
            }
            end = group_of(plan, g).end_us;
        }
        weft_merge_plan_destroy(plan);
    }
    cr_assert_eq(both, 3);
}

/* ---- what it misses ---- */

/* The smallest case, worked out in docs/merging.md. */
Test(greedy, misses_a_start_that_is_already_possible)
{
    struct job job = {.layers = {{1, 1}, {1, 2}, {1, 4}}, .count = 3};
    size_t sizes[MOST_LAYERS];
    weft_merge_cost_init(&job.cost);
    job.cost.a_us = 2;
    job.cost.b_us_per_byte = 1;
    struct weft_merge_plan *greedy = plan_with(&job, WEFT_MERGE_GREEDY);
    struct weft_merge_plan *exact = plan_with(&job, WEFT_MERGE_EXACT);
    cr_expect_eq(sizes_of(greedy, sizes), 2);
    cr_expect(sizes[0] == 2 && sizes[1] == 1);
    cr_expect_eq(summary_of(greedy).end_us, 9);
    cr_expect_eq(sizes_of(exact, sizes), 2);
    cr_expect(sizes[0] == 1 && sizes[1] == 2);
    cr_expect_eq(summary_of(exact).end_us, 8);
    weft_merge_plan_destroy(exact);
    weft_merge_plan_destroy(greedy);
}

/* For two layers it is exact: there is one decision, and it is the right one. */
Test(greedy, is_exact_for_two_layers)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        draw_layers(&draw, WHOLE, 1, 2, &job);
        draw_linear(&draw, WHOLE, &job);
        cr_assert_eq(end_by(&job, WEFT_MERGE_GREEDY), end_by(&job, WEFT_MERGE_EXACT), "seed %llu",
                     (unsigned long long)seed);
    }
}

/* The figures of docs/merging.md: run with --verbose. */
Test(greedy, is_later_than_exact_now_and_then)
{
    static const char *const names[KIND_END] = {[WHOLE] = "small whole numbers",
                                                [REAL] = "uniform sizes",
                                                [DEEP] = "a few large, many small"};
    for (enum kind kind = WHOLE; kind < KIND_END; kind++) {
        int later = 0;
        double worst = 1;
        for (uint64_t seed = 0; seed < FIGURES; seed++) {
            struct draw draw = {seed};
            struct job job;
            draw_layers(&draw, kind, 1, 2 + draw_below(&draw, MOST_LAYERS - 1), &job);
            draw_linear(&draw, kind, &job);
            double exact = end_by(&job, WEFT_MERGE_EXACT), end = end_by(&job, WEFT_MERGE_GREEDY);
            later += end > exact * (1 + 1e-9);
            worst = fmax(worst, exact > 0 ? end / exact : 1);
        }
        cr_log_info("%s: later in %d of %d cases, by a factor of up to %.3f", names[kind], later,
                    FIGURES, worst);
        cr_assert(later > 0 && later < FIGURES && worst > 1.01 && worst < 2,
                  "%s: later in %d of %d cases, by up to %.3f", names[kind], later, FIGURES, worst);
    }
}
