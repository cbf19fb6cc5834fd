/* SPDX-License-Identifier: BSD-3-Clause */
/* What the plan is compared with: WFBP, SyncEASGD, PyTorch's buckets, Horovod's cycles, and groups
 * as they are given. */
#include "tests/unit/merge/layers.h"

enum { CASES = 3000 };

static void draw_job(uint64_t seed, struct draw *draw, int in_order, struct job *job)
{
    enum kind kind = seed % KIND_END;
    draw_layers(draw, kind, in_order, draw_below(draw, MOST_LAYERS + 1), job);
    draw_cost(draw, kind, job);
}

/* ---- WFBP: equation 7; SyncEASGD ---- */

Test(comparisons, wfbp_sends_every_layer)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        double end = 0;
        draw_job(seed, &draw, 0, &job);
        struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_WFBP);
        cr_assert_eq(summary_of(plan).group_count, job.count);
        for (size_t i = 0; i < job.count; i++) {
            struct weft_merge_group group = group_of(plan, i);
            double start = fmax(end, job.layers[i].ready_us);
            cr_assert(group.layer_count == 1 && group.layers[0] == i);
            cr_assert_eq(group.bytes, job.layers[i].bytes);
            cr_assert_eq(group.ready_us, job.layers[i].ready_us);
            cr_assert_eq(group.start_us, start);
            end = start + cost_of(&job, job.layers[i].bytes);
            cr_assert_eq(group.end_us, end);
        }
        cr_assert_eq(summary_of(plan).end_us, end);
        weft_merge_plan_destroy(plan);
    }
}

Test(comparisons, single_sends_all_after_the_last)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        double last = 0;
        size_t bytes = 0;
        draw_job(seed, &draw, 0, &job);
        for (size_t i = 0; i < job.count; i++) {
            last = fmax(last, job.layers[i].ready_us);
            bytes += job.layers[i].bytes;
        }
        struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_SINGLE);
        struct weft_merge_summary summary = summary_of(plan);
        cr_assert_eq(summary.group_count, job.count > 0);
        cr_assert_eq(summary.ready_us, last);
        if (job.count) {
            cr_assert_eq(group_of(plan, 0).layer_count, job.count);
            cr_assert_eq(summary.end_us, last + cost_of(&job, bytes));
            cr_assert_eq(summary.hidden_us, 0);
        }
        weft_merge_plan_destroy(plan);
    }
}

/* ---- buckets: compute_bucket_assignment_by_size() of PyTorch, for one datatype and device ---- */

struct bucket {
    size_t indices[MOST_LAYERS];
    size_t count;
    size_t size;
};

static size_t assign(const struct job *job, const size_t *limits, size_t limit_count,
                     struct bucket *result)
{
    struct bucket bucket = {.count = 0};
    size_t results = 0, limit = 0;
    for (size_t i = 0; i < job->count; i++) {
        bucket.indices[bucket.count++] = i;
        bucket.size += job->layers[i].bytes;
        if (bucket.size >= limits[limit]) {
            result[results++] = bucket;
            bucket = (struct bucket){.count = 0};
            if (limit + 1 != limit_count)
                limit++;
        }
    }
    if (bucket.count)
        result[results++] = bucket;
    return results;
}

Test(comparisons, buckets_are_those_of_pytorch)
{
    static struct bucket expected[MOST_LAYERS];
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        struct weft_merge_config config;
        draw_job(seed, &draw, 0, &job);
        weft_merge_config_init(&config);
        config.method = WEFT_MERGE_BUCKETS;
        unsigned scale = seed % KIND_END == WHOLE ? 12 : 4000000;
        size_t limits[2] = {1 + draw_below(&draw, scale), 1 + draw_below(&draw, scale)};
        config.bucket_bytes = limits[1];
        if (draw_below(&draw, 2))
            config.first_bucket_bytes = limits[0];
        else
            limits[0] = limits[1];
        size_t buckets = assign(&job, limits, 2, expected);
        struct weft_merge_plan *plan = plan_by(&job, &config);
        size_t sizes[MOST_LAYERS];
        cr_assert_eq(sizes_of(plan, sizes), buckets, "seed %llu", (unsigned long long)seed);
        for (size_t g = 0; g < buckets; g++) {
            cr_assert_eq(sizes[g], expected[g].count, "seed %llu", (unsigned long long)seed);
            cr_assert_eq(group_of(plan, g).bytes, expected[g].size);
        }
        weft_merge_plan_destroy(plan);
    }
}

Test(comparisons, buckets_are_of_25_mib)
{
    enum { MIB = 1 << 20 };
    struct job job = {.layers = {{24 * MIB, 1}, {MIB - 1, 2}, {1, 3}, {25 * MIB, 4}, {7, 5}},
                      .count = 5};
    struct weft_merge_config config;
    size_t sizes[MOST_LAYERS];
    weft_merge_cost_init(&job.cost);
    struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_BUCKETS);
    cr_expect_eq(sizes_of(plan, sizes), 3);
    cr_expect(sizes[0] == 3 && sizes[1] == 1 && sizes[2] == 1);
    weft_merge_plan_destroy(plan);
    weft_merge_config_init(&config);
    config.method = WEFT_MERGE_BUCKETS;
    config.first_bucket_bytes = MIB;
    plan = plan_by(&job, &config);
    cr_expect_eq(sizes_of(plan, sizes), 3);
    cr_expect(sizes[0] == 1 && sizes[1] == 3 && sizes[2] == 1);
    weft_merge_plan_destroy(plan);
}

/* ---- cycles: Horovod's thread, a microsecond at a time ---- */

struct fused {
    size_t layers[MOST_LAYERS];
    size_t count;
    double start, end;
};

/* Whole numbers. The thread sleeps until it is `wake`, takes what is ready, sends it group by
 * group, and sleeps for what is left of the cycle. */
static size_t play(const struct job *job, size_t most, int cycle, struct fused *fused)
{
    int sent[MOST_LAYERS] = {0}, wake = 0;
    size_t left = job->count, groups = 0;
    for (int now = 0; left; now++) {
        if (now < wake)
            continue;
        size_t queue[MOST_LAYERS], length = 0, head = 0;
        double end = now;
        for (int ready = 0; ready <= now; ready++) /* in the order in which they became ready */
            for (size_t i = 0; i < job->count; i++)
                if (!sent[i] && job->layers[i].ready_us == ready) {
                    queue[length++] = i;
                    sent[i] = 1;
                }
        left -= length;
        while (head < length) {
            struct fused *group = &fused[groups++];
            size_t bytes = job->layers[queue[head]].bytes;
            *group = (struct fused){.layers = {queue[head++]}, .count = 1, .start = end};
            while (head < length && bytes + job->layers[queue[head]].bytes <= most) {
                bytes += job->layers[queue[head]].bytes;
                group->layers[group->count++] = queue[head++];
            }
            end += cost_of(job, bytes);
            group->end = end;
        }
        wake = (int)fmax(now + cycle, end);
    }
    return groups;
}

Test(comparisons, cycles_are_those_of_horovod)
{
    static struct fused expected[MOST_LAYERS];
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        struct weft_merge_config config;
        draw_layers(&draw, WHOLE, draw_below(&draw, 2), draw_below(&draw, 30), &job);
        draw_linear(&draw, WHOLE, &job);
        weft_merge_config_init(&config);
        config.method = WEFT_MERGE_CYCLES;
        config.bucket_bytes = 1 + draw_below(&draw, 12);
        config.cycle_us = 1 + draw_below(&draw, 9);
        size_t groups = play(&job, config.bucket_bytes, (int)config.cycle_us, expected);
        struct weft_merge_plan *plan = plan_by(&job, &config);
        cr_assert_eq(summary_of(plan).group_count, groups, "seed %llu", (unsigned long long)seed);
        for (size_t g = 0; g < groups; g++) {
            struct weft_merge_group group = group_of(plan, g);
            cr_assert_eq(group.layer_count, expected[g].count, "seed %llu, group %zu",
                         (unsigned long long)seed, g);
            for (size_t i = 0; i < group.layer_count; i++)
                cr_assert_eq(group.layers[i], expected[g].layers[i], "seed %llu, group %zu",
                             (unsigned long long)seed, g);
            cr_assert_eq(group.start_us, expected[g].start, "seed %llu, group %zu",
                         (unsigned long long)seed, g);
            cr_assert_eq(group.end_us, expected[g].end);
        }
        weft_merge_plan_destroy(plan);
    }
}

/* Cycles that are too short to be counted end all the same. */
Test(comparisons, cycles_may_be_as_short_as_numbers_are)
{
    struct job job = {.layers = {{4, 1}, {4, 1e15}, {4, 3e18}}, .count = 3};
    struct weft_merge_config config;
    weft_merge_cost_init(&job.cost);
    job.cost.a_us = 1;
    weft_merge_config_init(&config);
    config.method = WEFT_MERGE_CYCLES;
    config.cycle_us = 5e-324;
    struct weft_merge_plan *plan = plan_by(&job, &config);
    cr_expect_eq(summary_of(plan).group_count, 3);
    cr_expect_eq(group_of(plan, 1).start_us, 1e15);
    cr_expect_eq(summary_of(plan).end_us, 3e18);
    weft_merge_plan_destroy(plan);
    config.cycle_us = 1e300;
    plan = plan_by(&job, &config);
    cr_expect_eq(summary_of(plan).group_count, 1);
    cr_expect_eq(summary_of(plan).end_us, 1e300);
    weft_merge_plan_destroy(plan);
}

/* By default 64 MiB and 5 ms. */
Test(comparisons, cycles_have_the_defaults_of_the_time)
{
    struct job job = {.layers = {{40u << 20, 1}, {24u << 20, 1}, {1, 1}}, .count = 3};
    weft_merge_cost_init(&job.cost);
    struct weft_merge_plan *plan = plan_with(&job, WEFT_MERGE_CYCLES);
    cr_expect_eq(summary_of(plan).group_count, 2);
    cr_expect_eq(group_of(plan, 0).layer_count, 2);
    cr_expect_eq(group_of(plan, 0).start_us, 5000);
    weft_merge_plan_destroy(plan);
}

/* ---- given ---- */

/* The groups of any plan, given, are that plan. */
Test(comparisons, given_groups_are_timed_as_any)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct job job;
        struct weft_merge_config config;
        size_t sizes[MOST_LAYERS];
        draw_job(seed, &draw, 0, &job);
        struct weft_merge_plan *plan = plan_with(&job, seed % (WEFT_MERGE_BUCKETS + 1));
        weft_merge_config_init(&config);
        config.method = WEFT_MERGE_GIVEN;
        config.group_layers = sizes;
        config.group_count = sizes_of(plan, sizes);
        struct weft_merge_plan *same = plan_by(&job, &config);
        struct weft_merge_summary a = summary_of(plan), b = summary_of(same);
        cr_assert_eq(b.optimal, WEFT_MERGE_NOT_OPTIMAL);
        cr_assert(a.end_us == b.end_us && a.communication_us == b.communication_us &&
                  a.hidden_us == b.hidden_us && a.hidden_fraction == b.hidden_fraction);
        for (size_t g = 0; g < b.group_count; g++)
            cr_assert_eq(group_of(plan, g).start_us, group_of(same, g).start_us);
        weft_merge_plan_destroy(same);
        weft_merge_plan_destroy(plan);
    }
}
