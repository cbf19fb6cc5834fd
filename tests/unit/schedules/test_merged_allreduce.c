/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The template merged-allreduce: its layers and groups, that its schedules are right for all
 * numbers of ranks, and that its simulated end is what the planner predicts.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <weft/weft.h>

#include "tests/support/sweep.h"

enum { MOST_RANKS = 33, MOST_LAYERS = 40 };

static uint64_t random_state = 20261122;

static size_t draw(size_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(random_state >> 33) % below;
}

/* ---- its graph ---- */

static struct weft_schedule *built(int rank, int size, const struct weft_template_params *params)
{
    struct weft_schedule *schedule = NULL;

    cr_assert_eq(weft_template_build("merged-allreduce", rank, size, params, &schedule), WEFT_OK,
                 "%s", weft_error_text());
    return schedule;
}

static void expect_right(int size, const struct weft_template_params *params)
{
    struct weft_schedule *schedules[MOST_RANKS];
    struct weft_check_report *report = NULL;
    struct weft_fault fault = {.struct_size = sizeof fault};

    for (int r = 0; r < size; r++)
        schedules[r] = built(r, size, params);
    cr_assert_eq(
        weft_check((const struct weft_schedule *const *)schedules, (size_t)size, NULL, &report),
        WEFT_OK, "%s", weft_error_text());
    if (!weft_check_report_ok(report))
        weft_check_report_get_fault(report, 0, &fault);
    cr_expect(weft_check_report_ok(report), "%s on %d ranks: %s", params->algo, size, fault.text);
    weft_check_report_destroy(report);
    for (int r = 0; r < size; r++)
        weft_schedule_destroy(schedules[r]);
}

Test(merged_allreduce, every_algorithm_is_right_on_1_to_33_ranks)
{
    const struct weft_template *template = weft_template_find("merged-allreduce");
    const size_t layers[] = {7, 0, 3, 12, 1}, groups[] = {1, 3, 1};

    for (size_t a = 0; a < template->algorithm_count; a++)
        for (int size = 1; size <= MOST_RANKS; size += SWEPT(1, size < 9 ? 1 : 8))
            expect_right(size, &(struct weft_template_params){
                                   .struct_size = sizeof(struct weft_template_params),
                                   .algo = template->algorithms[a].name,
                                   .in_place = size % 2,
                                   .layers = layers,
                                   .layer_count = 5,
                                   .groups = groups,
                                   .group_count = 3});
}

Test(merged_allreduce, layers_and_groups_are_cut_where_they_are_not_given)
{
    for (size_t layers = 0; layers <= 9; layers++)
        for (size_t groups = 0; groups <= (layers ? layers : 4); groups++)
            expect_right(3, &(struct weft_template_params){.struct_size =
                                                               sizeof(struct weft_template_params),
                                                           .count = 25,
                                                           .layer_count = layers,
                                                           .group_count = groups});
}

/* An event a layer, a send a group on two ranks, each of the layers' elements together. */
Test(merged_allreduce, a_group_is_the_elements_of_its_layers)
{
    const size_t layers[] = {7, 5, 3, 12}, groups[] = {1, 3};
    const struct weft_template_params params = {.struct_size = sizeof params,
                                                .algo = "recursive-doubling",
                                                .layers = layers,
                                                .layer_count = 4,
                                                .groups = groups,
                                                .group_count = 2};
    struct weft_schedule *schedule = built(1, 2, &params);
    size_t events = 0, sends = 0, offsets[2] = {0}, counts[2] = {0};

    for (size_t n = 0; n < weft_schedule_node_count(schedule); n++) {
        struct weft_node_info node = {.struct_size = sizeof node};
        char label[32];

        weft_schedule_get_node(schedule, (weft_node_t)n, &node);
        snprintf(label, sizeof label, "ready %zu", events);
        if (node.kind == WEFT_NODE_EVENT) {
            cr_expect_str_eq(node.label, label);
            events++;
        } else if (node.kind == WEFT_NODE_SEND) {
            cr_assert(sends < 2);
            offsets[sends] = node.regions[0].offset;
            counts[sends++] = node.regions[0].count;
        }
    }
    cr_expect(events == 4 && sends == 2);
    cr_expect(offsets[0] == 0 && counts[0] == 7 && offsets[1] == 7 && counts[1] == 20);
    weft_schedule_destroy(schedule);
}

static void refused(const struct weft_template_params *params, const char *word)
{
    struct weft_schedule *schedule = NULL;

    cr_expect_eq(weft_template_build("merged-allreduce", 0, 2, params, &schedule),
                 WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), word), "\"%s\" does not say \"%s\"",
                       weft_error_text(), word);
}

Test(merged_allreduce, what_is_wrong_with_layers_and_groups_is_named)
{
    const size_t layers[] = {4, SIZE_MAX / 8}, groups[] = {1, 1}, none[] = {2, 0};
    struct weft_template_params params = {.struct_size = sizeof params};

    params.layers = layers;
    refused(&params, "merged-allreduce: layer_count is 0");
    params.layer_count = 2;
    refused(&params, "merged-allreduce: layers[1] is ");
    params.layers = NULL;
    params.group_count = 3;
    refused(&params, "merged-allreduce: group_count is 3, expected 1 to the 2 layers");
    params.layer_count = 3;
    params.groups = groups;
    params.group_count = 2;
    refused(&params, "merged-allreduce: groups have 2 layers together, expected all 3");
    params.layer_count = 2;
    params.groups = none;
    refused(&params, "merged-allreduce: groups[1] is 0, behind 2 layers of other groups");
}

/* ---- against the planner ---- */

struct job {
    int size;
    struct weft_template_params params;
};

static int build(void *user, int rank, struct weft_schedule **schedule)
{
    const struct job *job = user;

    return weft_template_build("merged-allreduce", rank, job->size, &job->params, schedule);
}

/* The end of the plan's groups in a simulation, in which layers are ready at their times. */
static double simulated_end(struct job *job, const struct weft_cost_model *cost,
                            const struct weft_merge_layer *layers, size_t count)
{
    struct weft_sim_firing firings[MOST_LAYERS];
    char labels[MOST_LAYERS][32];
    struct weft_net net;
    struct weft_sim_config config;
    struct weft_sim_result *result = NULL;
    double end;

    weft_net_init(&net);
    net.L = cost->alpha_us;
    net.G = cost->beta_us_per_byte;
    weft_sim_config_init(&config);
    config.ranks = job->size;
    config.build = build;
    config.user = job;
    config.net = &net;
    config.firings = firings;
    config.firing_count = count;
    for (size_t i = 0; i < count; i++) {
        snprintf(labels[i], sizeof labels[i], "ready %zu", i);
        firings[i] = (struct weft_sim_firing){
            .label = labels[i], .rank = WEFT_SIM_EVERY_RANK, .us = layers[i].ready_us};
    }
    cr_assert_eq(weft_simulate(&config, &result), WEFT_OK, "%s", weft_error_text());
    cr_assert(result->complete);
    end = result->time_us;
    weft_sim_result_destroy(result);
    return end;
}

static void compare(int size, const char *algo, weft_merge_method_t method,
                    const struct weft_merge_layer *layers, size_t count)
{
    struct job job = {.size = size};
    struct weft_cost_model model;
    struct weft_merge_cost cost;
    struct weft_merge_config config;
    struct weft_merge_plan *plan = NULL;
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    size_t elements[MOST_LAYERS], groups[MOST_LAYERS];
    int log2 = 0;

    while (1 << log2 < size)
        log2++;
    weft_cost_model_init(&model, "local");
    model.alpha_us = 20;
    model.beta_us_per_byte = 0.0008;
    model.gamma_us_per_byte = model.node_us = model.copy_us_per_byte = 0;
    weft_merge_cost_init(&cost);
    cost.a_us = strcmp(algo, "ring") ? log2 * model.alpha_us : 2 * (size - 1) * model.alpha_us;
    cost.b_us_per_byte = strcmp(algo, "ring") ? log2 * model.beta_us_per_byte
                                              : 2.0 * (size - 1) / size * model.beta_us_per_byte;
    weft_merge_config_init(&config);
    config.method = method;
    config.bucket_bytes = 40000;
    cr_assert_eq(weft_merge_plan_create(&plan, layers, count, &cost, &config), WEFT_OK, "%s",
                 weft_error_text());
    weft_merge_plan_get_summary(plan, &summary);
    for (size_t g = 0; g < summary.group_count; g++) {
        struct weft_merge_group group = {.struct_size = sizeof group};

        weft_merge_plan_get_group(plan, g, &group);
        groups[g] = group.layer_count;
    }
    for (size_t i = 0; i < count; i++)
        elements[i] = layers[i].bytes / sizeof(float);
    weft_template_params_init(&job.params);
    job.params.algo = algo;
    job.params.cost = &model;
    job.params.layers = elements;
    job.params.layer_count = count;
    job.params.groups = groups;
    job.params.group_count = summary.group_count;
    double end = simulated_end(&job, &model, layers, count);
    cr_expect(fabs(end - summary.end_us) <= 1e-5 * (double)count,
              "%s, %d ranks, method %d, %zu layers: simulated %.9g, planned %.9g", algo, size,
              (int)method, count, end, summary.end_us);
    weft_merge_plan_destroy(plan);
}

/* Bytes of layers are multiples of the ranks' elements, so that the blocks of a ring are equal. */
static size_t draw_layers(struct weft_merge_layer *layers, int size)
{
    size_t count = 1 + draw(MOST_LAYERS);
    double time = 0;

    for (size_t i = 0; i < count; i++) {
        time += (double)draw(400) / 4;
        layers[i] = (struct weft_merge_layer){(1 + draw(3000)) * 4 * (size_t)size, time};
    }
    return count;
}

enum { TURNS = SWEPT(15, 3) };

Test(merged_allreduce, the_simulated_end_is_the_planned_one)
{
    static const int sizes[] = {2, 4, 8, 16, 3, 5, 12};
    struct weft_merge_layer layers[MOST_LAYERS];

    for (int turn = 0; turn < TURNS; turn++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            size_t count = draw_layers(layers, sizes[s]);

            for (int method = WEFT_MERGE_EXACT; method <= WEFT_MERGE_BUCKETS; method++) {
                if (s < 4)
                    compare(sizes[s], "recursive-doubling", (weft_merge_method_t)method, layers,
                            count);
                compare(sizes[s], "ring", (weft_merge_method_t)method, layers, count);
            }
        }
}

/* ---- on ranks ---- */

enum { RANKS = 5, COUNT = 211 };

/* Fires the events in an order of its own, in virtual time. */
static int train(struct weft_context *context, void *user)
{
    const struct weft_template_params params = {.struct_size = sizeof params,
                                                .count = COUNT,
                                                .dtype = WEFT_I32,
                                                .in_place = 1,
                                                .layer_count = 6,
                                                .group_count = 3};
    uint64_t seed = *(uint64_t *)user;
    int rank = weft_context_rank(context);
    struct weft_schedule *schedule = built(rank, RANKS, &params);
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    weft_node_t events[6];
    size_t found = 0;
    int32_t data[COUNT];

    for (size_t n = 0; n < weft_schedule_node_count(schedule); n++) {
        struct weft_node_info node = {.struct_size = sizeof node};

        weft_schedule_get_node(schedule, (weft_node_t)n, &node);
        if (node.kind == WEFT_NODE_EVENT)
            events[found++] = (weft_node_t)n;
    }
    int status = found == 6 ? weft_schedule_commit(schedule, &plan) : WEFT_ERR_STATE;
    if (!status)
        status = weft_run_create(&run, context, plan, NULL);
    if (!status)
        status = weft_run_bind_name(run, "recv", data, COUNT, WEFT_I32);
    for (int32_t step = 0; step < 3 && !status; step++) {
        for (int32_t i = 0; i < COUNT; i++)
            data[i] = i + 1000 * rank + step;
        status = weft_run_start(run);
        for (size_t i = 0; i < 6 && !status; i++) {
            status = weft_context_sleep(context, 1 + (seed * 7919 + (uint64_t)rank * 31) % 5000);
            if (!status)
                status = weft_run_fire(run, events[(i + seed + (size_t)rank) % 6]);
        }
        if (!status)
            status = weft_run_wait(run, WEFT_NEVER);
        for (int32_t i = 0; i < COUNT && !status; i++)
            if (data[i] != RANKS * (i + step) + 1000 * RANKS * (RANKS - 1) / 2)
                status = weft_error_set(WEFT_ERR_STATE, "element %d is %d", i, data[i]);
    }
    weft_run_destroy(run);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return status;
}

Test(merged_allreduce, layers_may_be_ready_in_any_order)
{
    for (uint64_t seed = 0; seed < SWEPT(50, 10); seed++) {
        struct weft_virtual_config config;

        weft_virtual_config_init(&config);
        config.seed = seed;
        config.shuffle = 1;
        config.delay_ns = 3000;
        cr_assert_eq(weft_virtual_run(RANKS, &config, train, &seed), WEFT_OK, "seed %d: %s",
                     (int)seed, weft_error_text());
    }
}
