/* SPDX-License-Identifier: BSD-3-Clause */
/* The exact plan against every plan there is, and against every other method. */
#include "tests/unit/merge/layers.h"

enum { CASES = 6000, CASES_OF_ALL = 1500 };

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

struct best {
    double end;
    size_t groups; /* the fewest with that end */
};

/* Bit i of a mask: a group ends with layer i. */
static double end_of_mask(const struct job *job, unsigned mask, size_t *groups)
{
    double end = 0, ready = 0;
    size_t bytes = 0;
    *groups = 0;
    for (size_t i = 0; i < job->count; i++) {
        ready = fmax(ready, job->layers[i].ready_us);
        bytes += job->layers[i].bytes;
        if (i + 1 == job->count || mask >> i & 1) {
            end = fmax(end, ready) + cost_of(job, bytes);
            ready = 0;
            bytes = 0;
            ++*groups;
        }
    }
    return end;
}

static struct best best_of_masks(const struct job *job)
{
    struct best best = {INFINITY, 0};
    for (unsigned mask = 0; mask < 1u << (job->count - 1); mask++) {
        size_t groups;
        double end = end_of_mask(job, mask, &groups);
        if (end < best.end || (end == best.end && groups < best.groups))
            best = (struct best){end, groups};
    }
    return best;
}

Test(exact, no_groups_of_neighbours_end_earlier)
{
    char text[1024];
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        enum kind kind = seed % KIND_END;
        int monotone = draw_below(&draw, 2);
        /* Mostly small; 12 layers have 2048 groupings. */
        size_t count = 1 + draw_below(&draw, seed % 10 ? 8 : 12);
        draw_layers(&draw, kind, monotone, count, &job);
        draw_cost(&draw, kind, &job);
        note(&job, seed, text, sizeof text);
        struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_EXACT);
        struct weft_merge_summary summary = summary_of(plan);
        struct best best = best_of_masks(&job);
        cr_assert_eq(summary.end_us, best.end, "%s: %.17g, %.17g is possible", text, summary.end_us,
                     best.end);
        size_t sizes[MOST_LAYERS];
        sizes_of(plan, sizes);
        weft_merge_plan_destroy(plan);
    }
}

Test(exact, no_method_ends_earlier)
{
    char text[4096];
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        enum kind kind = seed % KIND_END;
        int monotone = draw_below(&draw, 2);
        draw_layers(&draw, kind, monotone, 1 + draw_below(&draw, MOST_LAYERS), &job);
        draw_cost(&draw, kind, &job);
        note(&job, seed, text, sizeof text);
        double exact = end_by(&job, WEFT_MERGE_EXACT);
        for (int method = WEFT_MERGE_GREEDY; method <= WEFT_MERGE_BUCKETS; method++)
            cr_assert_leq(exact, end_by(&job, method), "%s: method %d", text, method);
    }
}
