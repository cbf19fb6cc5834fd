/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two simulators agree: what a schedule takes on virtual ranks, executed by the engine, is what
 * weft_simulate() says; and both are the closed formulas where these exist. Schedules with signals
 * are executed and not compared: a signal of the engine ends when it is handed to the transport,
 * one of the simulation with the overhead, and it counts what arrives after the end.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ranks.h"
#include "tests/support/bind.h"

struct trial {
    const char *name;
    struct weft_template_params params;
    int size;
    double rank_us[64]; /* when each rank's run ended */
};

static int build(void *user, int rank, struct weft_schedule **schedule)
{
    struct trial *trial = user;
    return weft_template_build(trial->name, rank, trial->size, &trial->params, schedule);
}

/* Fires what the simulation fires: on rank 0 every event without a channel, elsewhere those that
 * no signal can stand in for. */
static void fire(struct weft_run *run, const struct weft_schedule *schedule, int rank)
{
    struct weft_node_info node = {.struct_size = sizeof node};
    for (weft_node_t n = 0; weft_schedule_get_node(schedule, n, &node) == WEFT_OK; n++)
        if (node.kind == WEFT_NODE_EVENT && node.channel == WEFT_CHANNEL_NONE &&
            (rank == 0 || node.choice < 0))
            CHECK(weft_run_fire(run, n) >= 0);
}

static int execute(struct weft_context *context, void *user)
{
    struct trial *trial = user;
    struct weft_schedule *schedule = NULL;
    int rank = weft_context_rank(context);
    OK(build(trial, rank, &schedule));
    struct weft_plan *plan = NULL;
    OK(weft_schedule_commit(schedule, &plan));
    struct weft_run *run = make_run(context, plan, NULL); /* which holds the plan */
    for (size_t s = 0; s < weft_schedule_slot_count(schedule); s++) {
        struct weft_slot_info info = {.struct_size = sizeof info};
        OK(weft_schedule_get_slot(schedule, (weft_slot_t)s, &info));
        if (info.kind != WEFT_SLOT_SCRATCH)
            OK(bind_slot(run, (weft_slot_t)s, NULL));
    }
    for (int v = 0; v < 2; v++) { /* lists of pairs: full ones */
        weft_value_t value = weft_plan_find_value(plan, v ? "k" : "pairs");
        if (value >= 0)
            OK(weft_run_bind_value(run, value, trial->params.k));
    }
    OK(weft_run_start(run));
    fire(run, schedule, rank);
    weft_schedule_destroy(schedule);
    OK(weft_run_wait(run, WEFT_NEVER));
    trial->rank_us[rank] = (double)weft_context_now(context) * 1e-3;
    weft_run_destroy(run);
    return WEFT_OK;
}

static void compare(const struct weft_net *net, struct trial *trial, double reduce_ns,
                    double copy_ns)
{
    struct weft_sim_config sim;
    struct weft_sim_result *result = NULL;
    struct weft_virtual_config config;
    weft_sim_config_init(&sim);
    sim.ranks = trial->size;
    sim.build = build;
    sim.user = trial;
    sim.net = net;
    sim.reduce_us_per_byte = reduce_ns * 1e-3;
    sim.copy_us_per_byte = copy_ns * 1e-3;
    OK(weft_simulate(&sim, &result));
    cr_assert(result->complete);
    double simulated = result->time_us;
    weft_virtual_config_init(&config);
    config.net = net;
    config.no_payload = 1;
    config.reduce_ns_per_byte = reduce_ns;
    config.copy_ns_per_byte = copy_ns;
    OK(weft_virtual_run(trial->size, &config, execute, trial));
    double end = 0;
    for (int r = 0; r < trial->size; r++)
        end = end < trial->rank_us[r] ? trial->rank_us[r] : end;
    /* Virtual ranks are told whole nanoseconds. Where two messages of three partners reach a link
     * of an adapter at one instant, either may come in first: that is one message. */
    int ties = net->flags & WEFT_NET_OFFLOAD && trial->params.algo &&
               !strcmp(trial->params.algo, "recursive-multiplying");
    double tie = ties ? (double)trial->params.count * sizeof(float) * net->G : 0;
    cr_assert(result->signals > 0 ||
                  (end <= simulated + tie + 1e-6 && end > simulated - tie - 1.001e-3),
              "%s %s P=%d count=%zu: %.4f us on virtual ranks, %.4f us simulated", trial->name,
              trial->params.algo, trial->size, trial->params.count, end, simulated);
    weft_sim_result_destroy(result);
}

/* Every algorithm of the templates whose messages have sizes that are known; without payload lists
 * of pairs are as long as they can be, in both. */
static const char *const names[] = {
    "allgather", "allreduce",       "alltoall", "barrier",        "broadcast",
    "gather",    "group-allreduce", "reduce",   "reduce-scatter", "neighbour-exchange",
    "scatter",   "activation",      "gtopk",    "topk-allgather"};

static void compare_all(const char *network, double reduce_ns, double copy_ns)
{
    static const int sizes[] = {1, 2, 3, 5, 8, 13, 16, 33};
    static const size_t counts[] = {0, 1, 1000};
    struct weft_net net;
    weft_net_init(&net);
    OK(weft_net_parse(network, &net));
    for (size_t t = 0; t < sizeof names / sizeof names[0]; t++) {
        const struct weft_template *template = weft_template_find(names[t]);
        cr_assert_not_null(template, "%s", weft_error_text());
        for (size_t cell = 0; cell < template->algorithm_count * 8 * 3; cell += SWEPT(1, 5)) {
            struct trial trial = {.name = template->name, .size = sizes[cell / 3 % 8]};
            weft_template_params_init(&trial.params);
            trial.params.algo = template->algorithms[cell / 24].name;
            trial.params.count = trial.params.k = counts[cell % 3];
            compare(&net, &trial, reduce_ns, copy_ns);
        }
    }
}

Test(virtual_model, latency_alone)
{
    compare_all("L=2", 0, 0);
}

Test(virtual_model, bandwidth)
{
    compare_all("L=2,G=0.001", 0, 0);
}

Test(virtual_model, overheads)
{
    compare_all("L=2,o=0.3", 0, 0);
}

Test(virtual_model, gaps)
{
    compare_all("L=2,g=0.7", 0, 0);
}

Test(virtual_model, an_adapter)
{
    compare_all("L=2,G=0.001,offload=1", 0.1, 0.05);
    compare_all("L=2,G=0.001,S=64,offload=1", 0.1, 0.05);
}

Test(virtual_model, rendezvous)
{
    compare_all("L=2,G=0.001,S=100", 0, 0);
}

Test(virtual_model, everything_costs)
{
    compare_all("L=2,o=0.3,g=0.7,G=0.001,O=0.0005", 0.3, 0.1);
}

Test(virtual_model, everything_costs_and_waits)
{
    compare_all("L=2,o=0.3,g=0.7,G=0.001,O=0.0005,S=0", 0.3, 0.1);
}

/* ---- formulas ---- */

static double takes(const char *name, const char *algorithm, int size, size_t count,
                    const struct weft_virtual_config *config)
{
    struct trial trial = {.name = name, .size = size};
    weft_template_params_init(&trial.params);
    trial.params.algo = algorithm;
    trial.params.count = count;
    trial.params.segment = WEFT_SEGMENT_NONE;
    OK(weft_virtual_run(size, config, execute, &trial));
    double end = 0;
    for (int r = 0; r < size; r++)
        end = end < trial.rank_us[r] ? trial.rank_us[r] : end;
    return end;
}

Test(virtual_model, closed_formulas)
{
    struct weft_virtual_config config;
    struct weft_net net;
    double alpha = 2, beta = 0.001, m = 6400 * 4;
    weft_virtual_config_init(&config);
    weft_net_init(&net);
    config.net = &net;
    config.no_payload = 1;
    net.L = alpha;
    net.G = beta;
    for (int rounds = 1; rounds <= 6; rounds++) {
        int size = 1 << rounds;
        cr_assert_float_eq(takes("allreduce", "ring", size, 6400, &config),
                           2 * (size - 1) * alpha + 2.0 * (size - 1) / size * m * beta, 2e-3);
        cr_assert_float_eq(takes("allreduce", "recursive-doubling", size, 6400, &config),
                           rounds * (alpha + m * beta), 2e-3);
        cr_assert_float_eq(takes("broadcast", "binomial", size, 6400, &config),
                           rounds * (alpha + m * beta), 2e-3);
    }
}
