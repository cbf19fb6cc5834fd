/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One step through parameter servers: any numbers of workers and servers, apart and co-located,
 * under orders drawn from seeds; the memory of a server; what the three ways of pushing take.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

#include "runtime/plan/plan.h"
#include "support/affine.h"
#include "support/interpreter.h"
#include "support/sweep.h"

enum { MOST = 33 };

static const char *const pushes[] = {"all", "turns", "paced"};

static char what[200];

static struct weft_template_params params_of(const char *algo, size_t count)
{
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.algo = algo;
    params.count = count;
    params.segment = WEFT_SEGMENT_NONE;
    return params;
}

static void build(const struct weft_template_params *params, int ranks,
                  struct weft_schedule **schedules)
{
    char text[256];
    snprintf(what, sizeof what,
             "%s on %d ranks, %d servers%s%s, count %zu, segment %zd, window %zu", params->algo,
             ranks, params->servers, params->colocated ? " co-located" : "",
             params->in_place ? ", in place" : "", params->count, (ssize_t)params->segment,
             params->window);
    for (int r = 0; r < ranks; r++) {
        cr_assert_eq(weft_template_build("server-step", r, ranks, params, &schedules[r]), WEFT_OK,
                     "%s: %s", what, weft_error_text());
        int race = interp_find_race(schedules[r], text, sizeof text);
        cr_assert_eq(race, 0, "%s: %s", what, text);
    }
}

static void destroy(struct weft_schedule **schedules, int ranks)
{
    for (int r = 0; r < ranks; r++)
        weft_schedule_destroy(schedules[r]);
}

/* Slot 0 of a worker is its contribution; a server has none. */
static void fill(struct weft_schedule **schedules, const struct interp_memory *memory, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        struct weft_slot_info info = {.struct_size = sizeof info};
        if (weft_schedule_get_slot(schedules[r], 0, &info) || info.kind == WEFT_SLOT_SCRATCH)
            continue;
        uint64_t *data = memory->slots[r][0], seed = (uint64_t)r + 1;
        for (size_t i = 0; i < info.count; i++)
            data[i] = seed = seed * 6364136223846793005u + 1442695040888963407u;
    }
}

static void check(const struct weft_template_params *params, int ranks, int seeds)
{
    struct weft_schedule *schedules[MOST];
    const struct weft_schedule *const *view = (const struct weft_schedule *const *)schedules;
    struct interp_memory initial, memory;
    char text[256];
    int workers = params->colocated || ranks == 1 ? ranks : ranks - params->servers;
    build(params, ranks, schedules);
    for (int r = 0; r < ranks; r++)
        cr_assert_eq(weft_schedule_result_count(schedules[r]), r < workers, "%s", what);
    cr_assert_eq(interp_memory_create(&initial, view, ranks), 0);
    fill(schedules, &initial, ranks);
    for (int seed = 0; seed < seeds; seed++) {
        struct interp_options options = {.seed = 31 * (uint64_t)seed + (uint64_t)ranks,
                                         .rendezvous = (seed + ranks) & 1};
        cr_assert_eq(interp_memory_create(&memory, view, ranks), 0);
        fill(schedules, &memory, ranks);
        int status = interp_run(view, ranks, &memory, &options, text, sizeof text);
        cr_assert_eq(status, 0, "%s, seed %d: %s", what, seed, text);
        status = interp_check_results(view, ranks, &initial, &memory, text, sizeof text);
        cr_assert_eq(status, 0, "%s, seed %d: %s", what, seed, text);
        interp_memory_destroy(&memory);
    }
    interp_memory_destroy(&initial);
    destroy(schedules, ranks);
}

/* By an operation that shows a worker that is missing, there twice, or in the wrong place. */
static void sweep(const char *algo, int colocated)
{
    static const size_t counts[] = {0, 1, 7, 37}, segments[] = {WEFT_SEGMENT_NONE, 8, 24};
    struct weft_op *op = affine_op();
    cr_assert_not_null(op);
    for (int ranks = 1; ranks <= SWEPT(MOST, 10); ranks++)
        for (int servers = 1; servers <= ranks; servers++) {
            int few = ranks > 9; /* of many only those that are at an end, and some between */
            if ((!colocated && servers == ranks && ranks > 1) ||
                (few && servers > 3 && servers < ranks - 1 && servers % 7))
                continue;
            for (int i = 0; i < (few ? 4 : 24); i++) {
                struct weft_template_params params = params_of(algo, counts[few ? 3 : i % 4]);
                params.dtype = WEFT_U64;
                params.op = op;
                params.servers = servers;
                params.colocated = colocated;
                params.in_place = i / 2 % 2;
                params.segment = segments[(i + ranks) % 3];
                params.window = (size_t)(i + servers) % 4;
                check(&params, ranks, few ? 2 : 4);
            }
        }
    weft_op_destroy(op);
}

Test(server_step, all_at_once)
{
    sweep("all", 0);
}

Test(server_step, all_at_once_colocated)
{
    sweep("all", 1);
}

Test(server_step, in_turns)
{
    sweep("turns", 0);
}

Test(server_step, in_turns_colocated)
{
    sweep("turns", 1);
}

Test(server_step, paced)
{
    sweep("paced", 0);
}

Test(server_step, paced_colocated)
{
    sweep("paced", 1);
}

/* ---- memory ---- */

/* Elements of scratch on a rank. */
static size_t scratch_of(const struct weft_template_params *params, int rank, int ranks)
{
    struct weft_schedule *schedule;
    size_t elements = 0;
    cr_assert_eq(weft_template_build("server-step", rank, ranks, params, &schedule), WEFT_OK);
    for (size_t s = 0; s < weft_schedule_slot_count(schedule); s++) {
        struct weft_slot_info info = {.struct_size = sizeof info};
        weft_schedule_get_slot(schedule, (weft_slot_t)s, &info);
        elements += info.kind == WEFT_SLOT_SCRATCH ? info.count : 0;
    }
    weft_schedule_destroy(schedule);
    return elements;
}

Test(server_step, a_server_has_room_for_what_may_come_out_of_order)
{
    enum { COUNT = 1 << 16, SEGMENT = 1 << 10, WORKERS = 16, PADDING = 16 * (WORKERS + 2) };
    for (int a = 0; a < 3; a++) {
        struct weft_template_params params = params_of(pushes[a], COUNT);
        params.segment = 4 * SEGMENT;
        params.window = 2;
        size_t elements = scratch_of(&params, WORKERS, WORKERS + 1);
        size_t expected = a == 0   ? (size_t)COUNT * WORKERS
                          : a == 1 ? (size_t)COUNT * 3
                                   : (size_t)COUNT + (size_t)2 * SEGMENT * (WORKERS - 1);
        cr_assert(elements >= expected && elements <= expected + PADDING, "%s: %zu, expected %zu",
                  pushes[a], elements, expected);
        cr_assert_eq(scratch_of(&params, 0, WORKERS + 1), 0);
    }
}

/* What is received and at once added needs no room where ranks share memory: the plan must see
 * that. */
Test(server_step, rooms_are_of_a_receive_and_a_reduction_alone)
{
    for (int a = 0; a < 3; a++)
        for (int colocated = 0; colocated < 2; colocated++) {
            struct weft_template_params params = params_of(pushes[a], 1000);
            struct weft_schedule *schedule;
            struct weft_plan *plan;
            size_t fused = 0;
            params.segment = 4 * 64;
            params.colocated = colocated;
            cr_assert_eq(
                weft_template_build("server-step", colocated ? 0 : 5, 6, &params, &schedule),
                WEFT_OK);
            cr_assert_eq(weft_schedule_commit(schedule, &plan), WEFT_OK);
            for (uint32_t n = 0; n < plan->node_count; n++)
                fused += (plan->nodes[n].flags & WEFT__FUSED) != 0;
            /* 16 segments of workers that are not the first. */
            cr_assert_eq(fused, (size_t)16 * (colocated ? 5 : 4), "%s: %zu", pushes[a], fused);
            weft_plan_destroy(plan);
            weft_schedule_destroy(schedule);
        }
}

/* ---- who waits for whom ---- */

static struct weft_sim_result *simulate(const struct weft_template_params *params, int ranks,
                                        double G, double L, struct weft_schedule **schedules)
{
    struct weft_sim_config config;
    struct weft_sim_result *result = NULL;
    struct weft_net net;
    weft_net_init(&net);
    net.G = G;
    net.L = L;
    net.flags = WEFT_NET_OFFLOAD;
    weft_sim_config_init(&config);
    build(params, ranks, schedules);
    config.ranks = ranks;
    config.schedules = (const struct weft_schedule *const *)schedules;
    config.net = &net;
    config.flags = WEFT_SIM_KEEP_NODES;
    cr_assert_eq(weft_simulate(&config, &result), WEFT_OK, "%s", weft_error_text());
    cr_assert(result->complete, "%s", what);
    return result;
}

static double time_of(const struct weft_template_params *params, int ranks, double G, double L)
{
    struct weft_schedule *schedules[MOST];
    struct weft_sim_result *result = simulate(params, ranks, G, L, schedules);
    double us = result->time_us;
    weft_sim_result_destroy(result);
    destroy(schedules, ranks);
    return us;
}

/* k segments of W workers go through the link of each of N servers; then, or in the meantime, the
 * results. Without latency nothing else takes time. */
Test(server_step, a_server_s_link_is_what_takes_the_time)
{
    for (int servers = 1; servers <= 4; servers *= 2)
        for (int workers = 4; workers <= 16; workers *= 2)
            for (int k = 1; k <= 64; k *= 8) {
                const size_t count = 1 << 14;
                const double block = 4.0 * (double)count / servers; /* microseconds, with G = 1 */
                struct weft_template_params params = params_of("all", count);
                params.segment = (size_t)block / (size_t)k;
                params.servers = servers;
                params.window = 1;
                double all = time_of(&params, workers + servers, 1, 0);
                cr_assert_float_eq(all, workers * (block + block / k), block / k, "%s: %g", what,
                                   all);
                params.algo = "turns";
                double turns = time_of(&params, workers + servers, 1, 0);
                cr_assert_float_eq(turns, (2 * workers - 1) * block + block / k, block / k,
                                   "%s: %g", what, turns);
                if (servers > 1) /* a worker has more links to keep busy than one segment does */
                    continue;
                params.algo = "paced";
                double paced = time_of(&params, workers + servers, 1, 0);
                cr_assert_float_eq(paced, all, 2 * block / k, "%s: %g, not %g", what, paced, all);
            }
}

/* How many pushes are under way to the server at most: sent, and not there. */
static int most_pushes(const struct weft_template_params *params, int ranks)
{
    struct weft_schedule *schedules[MOST];
    struct weft_sim_result *result = simulate(params, ranks, 0.01, 5, schedules);
    const struct weft_sim_node *server = result->nodes_at + result->first_node[ranks - 1];
    const uint64_t nodes = result->first_node[ranks] - result->first_node[ranks - 1];
    int most = 0;
    for (uint64_t n = 0; n < nodes; n++) {
        int there = 0;
        struct weft_node_info info = {.struct_size = sizeof info};
        weft_schedule_get_node(schedules[ranks - 1], (weft_node_t)n, &info);
        if (info.kind != WEFT_NODE_RECV)
            continue;
        const struct weft_sim_node *send =
            result->nodes_at + result->first_node[server[n].peer] + server[n].peer_node;
        for (uint64_t m = 0; m < nodes; m++) {
            weft_schedule_get_node(schedules[ranks - 1], (weft_node_t)m, &info);
            if (info.kind != WEFT_NODE_RECV)
                continue;
            const struct weft_sim_node *other =
                result->nodes_at + result->first_node[server[m].peer] + server[m].peer_node;
            there += other->start_us <= send->start_us && server[m].end_us > send->start_us;
        }
        most = there > most ? there : most;
    }
    weft_sim_result_destroy(result);
    destroy(schedules, ranks);
    return most;
}

Test(server_step, as_much_is_under_way_as_was_asked_for)
{
    enum { WORKERS = 8, SEGMENTS = 10 };
    struct weft_template_params params = params_of("all", 100 * SEGMENTS);
    params.segment = 400;
    cr_assert_gt(most_pushes(&params, WORKERS + 1), WORKERS * SEGMENTS * 3 / 4);
    params.algo = "turns";
    cr_assert_leq(most_pushes(&params, WORKERS + 1), SEGMENTS);
    params.algo = "paced";
    for (params.window = 1; params.window <= 4; params.window++) {
        int most = most_pushes(&params, WORKERS + 1), window = (int)params.window;
        cr_assert(most <= WORKERS * window && most > WORKERS * (window - 1), "%s: %d", what, most);
    }
}

/* ---- costs and errors ---- */

static double cost_of(const struct weft_template_params *params, int ranks)
{
    double us = -1;
    cr_assert_eq(weft_template_choose("server-step", ranks, params, NULL, &us), WEFT_OK, "%s",
                 weft_error_text());
    return us;
}

/* The formulas say what a simulation says, where only the link takes time. */
Test(server_step, costs_are_those_of_the_link)
{
    struct weft_cost_model cost;
    weft_cost_model_init(&cost, "local");
    cost.alpha_us = cost.node_us = cost.gamma_us_per_byte = cost.copy_us_per_byte = 0;
    cost.beta_us_per_byte = 1;
    for (int a = 0; a < 3; a++)
        for (int servers = 1; servers <= (a < 2 ? 3 : 1); servers++)
            for (int workers = 4; workers <= 13; workers += 3)
                for (int k = 1; k <= 16; k *= 4) {
                    struct weft_template_params params = params_of(pushes[a], 16 * 12 * 16);
                    const double block = 4.0 * (double)params.count / servers;
                    params.cost = &cost;
                    params.servers = servers;
                    params.segment = (size_t)block / (size_t)k;
                    double took = time_of(&params, workers + servers, 1, 0);
                    cr_assert_float_eq(cost_of(&params, workers + servers), took, 2 * block / k,
                                       "%s: %g, %g", what, cost_of(&params, workers + servers),
                                       took);
                }
    for (int a = 0; a < 3; a++) {
        struct weft_template_params params = params_of(pushes[a], 100);
        params.cost = &cost;
        cr_assert_float_eq(cost_of(&params, 1), 0, 1e-9);
        params.colocated = 1;
        params.servers = 8; /* each has an eighth of all */
        cr_assert_lt(cost_of(&params, 8), 4 * 100 * 2.0);
    }
}

static void refused(int ranks, const struct weft_template_params *params, const char *text)
{
    struct weft_schedule *schedule = NULL;
    cr_assert_lt(weft_template_build("server-step", 0, ranks, params, &schedule), 0, "%s", text);
    cr_assert_null(schedule);
    cr_assert_not_null(strstr(weft_error_text(), text), "%s", weft_error_text());
}

Test(server_step, bad_parameters_are_named)
{
    struct weft_template_params params = params_of(NULL, 8);
    params.servers = 4;
    refused(4, &params, "servers is 4, expected 1 to 3 of 4 ranks, as one is a worker");
    params.colocated = 1;
    params.servers = 5;
    refused(4, &params, "servers is 5, expected 1 to 4 of 4 ranks");
    params.servers = -1;
    refused(4, &params, "params->servers is -1");
    params.servers = 1;
    params.colocated = 2;
    refused(4, &params, "params->colocated is 2");
    params.colocated = 0;
    params.servers = 2;
    refused(1, &params, "servers is 2, expected 1 to 1 of 1 ranks");
    params = params_of("some", 8);
    refused(4, &params, "expected one of: all, turns, paced");
}

/* Nodes are numbered by 31 bits: told at once, with what is enough. */
Test(server_step, segments_that_are_too_many)
{
    for (int a = 0; a < 3; a++) {
        struct weft_template_params params = params_of(pushes[a], (size_t)1 << 33);
        size_t least = 0;
        params.segment = 4;
        refused(9, &params, "expected segments of at least");
        cr_assert_eq(sscanf(strstr(weft_error_text(), "at least "), "at least %zu", &least), 1);
        cr_assert(least > 4 && least % 4 == 0, "%s", weft_error_text());
        params.segment = least - 4;
        refused(9, &params, "expected segments of at least");
        struct weft_schedule *schedule; /* a rank alone copies all at once */
        params.count *= 128;
        params.segment = 4;
        cr_assert_eq(weft_template_build("server-step", 0, 1, &params, &schedule), WEFT_OK);
        cr_assert_eq(weft_schedule_node_count(schedule), 1);
        weft_schedule_destroy(schedule);
    }
}
