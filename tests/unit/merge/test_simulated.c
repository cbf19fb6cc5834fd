/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The planner's times against those of the simulator, which plays the template "merged-allreduce":
 * every layer is an event that the application fires when the layer is ready. On a network of
 * latency L and gap G a byte, with a reduction of R a byte, algorithms take a + b M as the paper's
 * Table II has it.
 */
#include "tests/unit/merge/layers.h"

enum { CASES = 400, MOST_RANKS = 13 };

struct algorithm {
    const char *name;
    int powers; /* of two alone */
};

static const struct algorithm algorithms[] = {
    {"recursive-doubling", 1}, {"ring", 0}, {"reduce-scatter-allgather", 1}};

/* The simulator counts picoseconds: on such numbers its sums are exact. */
static double draw_us(struct draw *draw, double most)
{
    return floor(most * draw_real(draw) * 1e6) / 1e6;
}

static int log_of(int ranks)
{
    int log = 0;
    while (1 << log < ranks)
        log++;
    return log;
}

/* Table II, with a reduction by the byte. */
static void set_cost(struct job *job, int algorithm, int ranks, const struct weft_net *net,
                     double reduce)
{
    double steps = log_of(ranks), share = (ranks - 1.0) / ranks;
    weft_merge_cost_init(&job->cost);
    if (algorithm == 0) {
        job->cost.a_us = steps * net->L;
        job->cost.b_us_per_byte = steps * (net->G + reduce);
    } else {
        job->cost.a_us = 2 * (algorithm == 1 ? ranks - 1 : steps) * net->L;
        job->cost.b_us_per_byte = share * (2 * net->G + reduce);
    }
}

/* ---- schedules ---- */

struct groups {
    const struct job *job;
    int ranks;
    const char *algo;
    size_t sizes[MOST_LAYERS];
    size_t count;
};

static struct weft_schedule *build(const struct groups *groups, int rank)
{
    struct weft_schedule *schedule = NULL;
    struct weft_template_params params;
    size_t elements[MOST_LAYERS];
    for (size_t i = 0; i < groups->job->count; i++)
        elements[i] = groups->job->layers[i].bytes / 4;
    weft_template_params_init(&params);
    params.algo = groups->algo;
    params.in_place = 1;
    params.segment = WEFT_SEGMENT_NONE;
    params.layers = elements;
    params.layer_count = groups->job->count;
    params.groups = groups->sizes;
    params.group_count = groups->count;
    cr_assert_eq(weft_template_build("merged-allreduce", rank, groups->ranks, &params, &schedule),
                 WEFT_OK, "%s", weft_error_text());
    return schedule;
}

/* When the node with a label ended. */
static double end_of(const struct weft_schedule *schedule, const struct weft_sim_node *nodes,
                     const char *label)
{
    for (weft_node_t n = 0; n < (weft_node_t)weft_schedule_node_count(schedule); n++) {
        struct weft_node_info info = {.struct_size = sizeof info};
        cr_assert_eq(weft_schedule_get_node(schedule, n, &info), WEFT_OK);
        if (info.label && !strcmp(info.label, label))
            return nodes[n].end_us;
    }
    cr_assert_fail("no node is called %s", label);
    return -1;
}

static void check_times(const struct groups *groups, const struct weft_merge_plan *plan,
                        const struct weft_net *net, double reduce, const char *what)
{
    struct weft_schedule *schedules[MOST_RANKS];
    struct weft_sim_firing firings[MOST_LAYERS];
    char labels[MOST_LAYERS][32];
    struct weft_sim_config config;
    struct weft_sim_result *result = NULL;
    for (int r = 0; r < groups->ranks; r++)
        schedules[r] = build(groups, r);
    for (size_t i = 0; i < groups->job->count; i++) {
        snprintf(labels[i], sizeof labels[i], "ready %zu", i);
        firings[i] = (struct weft_sim_firing){
            .label = labels[i], .rank = WEFT_SIM_EVERY_RANK, .us = groups->job->layers[i].ready_us};
    }
    weft_sim_config_init(&config);
    config.ranks = groups->ranks;
    config.schedules = (const struct weft_schedule *const *)schedules;
    config.net = net;
    config.reduce_us_per_byte = reduce;
    config.firings = firings;
    config.firing_count = groups->job->count;
    config.flags = WEFT_SIM_KEEP_NODES;
    cr_assert_eq(weft_simulate(&config, &result), WEFT_OK, "%s", weft_error_text());
    for (int r = 0; r < groups->ranks; r++)
        for (size_t g = 0; g < groups->count; g++) {
            const struct weft_sim_node *nodes = &result->nodes_at[result->first_node[r]];
            struct weft_merge_group group = group_of(plan, g);
            char label[32];
            snprintf(label, sizeof label, "group%zu ready", g);
            double start = end_of(schedules[r], nodes, label);
            *strchr(label, ' ') = '\0';
            double end = end_of(schedules[r], nodes, label);
            cr_assert_float_eq(start, group.start_us, 1e-9 * (1 + group.start_us),
                               "%s: rank %d, group %zu starts at %.17g, planned %.17g", what, r, g,
                               start, group.start_us);
            cr_assert_float_eq(end, group.end_us, 1e-9 * (1 + group.end_us),
                               "%s: rank %d, group %zu ends at %.17g, planned %.17g", what, r, g,
                               end, group.end_us);
        }
    weft_sim_result_destroy(result);
    for (int r = 0; r < groups->ranks; r++)
        weft_schedule_destroy(schedules[r]);
}

/* A network, an algorithm and layers on it, of blocks that are all of one size. */
struct play {
    struct job job;
    struct groups groups;
    struct weft_net net;
    double reduce;
};

static void draw_play(struct draw *draw, int zeros, struct play *play)
{
    struct job *job = &play->job;
    int chosen = (int)draw_below(draw, 3);
    play->groups = (struct groups){.job = job, .algo = algorithms[chosen].name};
    size_t ranks = algorithms[chosen].powers ? 1u << (1 + draw_below(draw, 3))
                                             : 2 + draw_below(draw, MOST_RANKS - 1);
    play->groups.ranks = (int)ranks;
    play->reduce = draw_below(draw, 2) ? draw_us(draw, 1e-4) : 0;
    weft_net_init(&play->net);
    play->net.L = draw_below(draw, 4) ? draw_us(draw, 100) : 0;
    play->net.G = draw_below(draw, 4) ? draw_us(draw, 1e-3) : 0;
    draw_layers(draw, DEEP, draw_below(draw, 4), 1 + draw_below(draw, 12), job);
    for (size_t i = 0; i < job->count; i++) {
        job->layers[i].ready_us = floor(1e6 * job->layers[i].ready_us) / 1e6;
        job->layers[i].bytes = (job->layers[i].bytes / 100 / ranks + 1) * 4 * ranks;
        if (zeros && draw_below(draw, 2))
            job->layers[i].bytes = 0;
    }
    set_cost(job, chosen, play->groups.ranks, &play->net, play->reduce);
}

Test(simulated, ends_are_those_of_the_plan)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct play play;
        draw_play(&draw, 0, &play);
        for (int method = WEFT_MERGE_EXACT; method <= WEFT_MERGE_BUCKETS; method++) {
            char what[128];
            struct weft_merge_config config;
            weft_merge_config_init(&config);
            config.method = method;
            config.bucket_bytes = 1 + draw_below(&draw, 200000);
            struct weft_merge_plan *plan = plan_by(&play.job, &config);
            play.groups.count = sizes_of(plan, play.groups.sizes);
            snprintf(what, sizeof what, "seed %llu, %s on %d ranks, method %d",
                     (unsigned long long)seed, play.groups.algo, play.groups.ranks, method);
            check_times(&play.groups, plan, &play.net, play.reduce, what);
            weft_merge_plan_destroy(plan);
        }
    }
}

/* What weft does: no bytes, no messages. */
static double sent(void *user, double bytes)
{
    const struct job *job = user;
    double transfer = job->cost.b_us_per_byte * bytes;
    return bytes > 0 ? job->cost.a_us + transfer : 0;
}

/* A plan has a group of no bytes cost a; a cost that knows that such a group is not sent is
 * simulated to the point, whatever the groups. */
Test(simulated, groups_of_no_bytes_are_not_sent)
{
    int early = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct play play;
        char what[128];
        draw_play(&draw, 1, &play);
        for (int method = WEFT_MERGE_EXACT; method <= WEFT_MERGE_BUCKETS; method++) {
            struct job job = play.job;
            job.cost.function = sent;
            job.cost.user = &play.job;
            struct weft_merge_plan *plan = plan_with(&job, method);
            play.groups.count = sizes_of(plan, play.groups.sizes);
            snprintf(what, sizeof what, "seed %llu, %s on %d ranks, method %d, zeros",
                     (unsigned long long)seed, play.groups.algo, play.groups.ranks, method);
            check_times(&play.groups, plan, &play.net, play.reduce, what);
            early += summary_of(plan).end_us < end_by(&play.job, method);
            weft_merge_plan_destroy(plan);
        }
    }
    cr_assert_gt(early, 0);
}
