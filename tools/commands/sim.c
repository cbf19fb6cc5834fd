/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft sim: what a schedule costs on a network that need not exist. The schedules of a template are
 * built one at a time and handed to weft_simulate(); those of a file are there already.
 */
#include "tools/cli/cli.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"
#include "tools/cli/transports.h"
#include "tools/commands/sim_traffic.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COMMAND "sim"

enum { PATH_SHOWN = 24, BUILD_SHOWN = 1 << 16 };

struct sim {
    struct cli *cli;
    struct weft_sim_config config;
    struct weft_cost_model cost; /* chooses the algorithm, and is the network if none is given */
    struct weft_net net;         /* typed, of the cost file, or of the cost model */
    struct weft_fabric fabric;   /* typed with it, or none */
    const char *cost_file;
    const char *transport;
    const char *trace;
    int *activators;
    struct weft_sim_firing *firings;
    struct cli_op_costs op_costs;
    int loggopsim;
    int no_payload; /* there never is one */
    int whole_path;
    struct cli_schedules schedules; /* of a file, or of a template that is traced */
    atomic_int built;
};

/* ---- options ---- */

static int take_net(void *target, const char *command, const char *text)
{
    struct sim *sim = target;

    return weft_fabric_parse(text, &sim->fabric, &sim->net)
               ? cli_usage(command, "--net: %s", weft_error_text())
               : 0;
}

static int take_compute(void *target, const char *command, const char *text)
{
    struct weft_sim_config *config = &((struct sim *)target)->config;

    return cli_compute(command, text, &config->reduce_us_per_byte, &config->copy_us_per_byte,
                       &config->compute_us_per_byte, &((struct sim *)target)->op_costs);
}

static int take_activate(void *target, const char *command, const char *text)
{
    struct sim *sim = target;
    int status = cli_activators(command, text, &sim->activators, &sim->config.activator_count);

    sim->config.activators = sim->activators;
    return status;
}

static int take_firing(void *target, const char *command, const char *text)
{
    struct sim *sim = target;
    int status = cli_firing(command, text, &sim->firings, &sim->config.firing_count);

    sim->config.firings = sim->firings;
    return status;
}

/* The costs that choose the algorithm, the network and the costs of computing, from one another
 * where they are not given. */
static int settle(struct sim *sim)
{
    struct weft_sim_config *config = &sim->config;

    /* Costs of operations alone say nothing of what the cost file has. */
    int typed_rates = config->reduce_us_per_byte >= 0 || config->copy_us_per_byte >= 0 ||
                      config->compute_us_per_byte >= 0;
    config->reduce_us_per_byte = fmax(config->reduce_us_per_byte, 0);
    config->copy_us_per_byte = fmax(config->copy_us_per_byte, 0);
    config->compute_us_per_byte = fmax(config->compute_us_per_byte, 0);
    weft_cost_model_init(&sim->cost, sim->transport);
    struct weft_net typed = sim->net;
    weft_net_init(&sim->net);
    sim->net.L = sim->cost.alpha_us;
    sim->net.G = sim->cost.beta_us_per_byte;
    if (sim->cost_file) {
        int status = weft_cost_model_read(sim->cost_file, sim->transport, &sim->cost, &sim->net);
        if (status)
            return cli_usage(COMMAND, "--cost: %s", weft_error_text());
        if (!typed_rates) {
            config->reduce_us_per_byte = sim->cost.gamma_us_per_byte;
            config->compute_us_per_byte = sim->cost.gamma_us_per_byte;
            config->copy_us_per_byte = sim->cost.copy_us_per_byte;
        }
    }
    if (cli_typed(sim->cli, "net")) {
        sim->net = typed;
        cli_network_costs(&typed, &sim->cost);
        sim->cost.alpha_us += sim->fabric.hop_us;
        sim->cost.beta_us_per_byte = fmax(typed.G, sim->fabric.link_us_per_byte);
        sim->cost.gamma_us_per_byte = config->reduce_us_per_byte;
        sim->cost.copy_us_per_byte = config->copy_us_per_byte;
    }
    if (sim->loggopsim)
        sim->net.flags |= WEFT_NET_LOGGOPSIM;
    config->net = &sim->net;
    config->fabric = &sim->fabric;
    if (sim->fabric.kind && !(sim->fabric.link_us_per_byte > 0))
        sim->fabric.link_us_per_byte = sim->net.G;
    config->op_costs = sim->op_costs.at;
    config->op_cost_count = sim->op_costs.count;
    sim->cli->params.cost = &sim->cost;
    return 0;
}

/* ---- schedules ---- */

static int build(void *user, int rank, struct weft_schedule **schedule)
{
    struct sim *sim = user;

    int built = atomic_fetch_add(&sim->built, 1) + 1;
    if (sim->config.ranks >= BUILD_SHOWN && built % BUILD_SHOWN == 1)
        cli_progress("weft sim: %d of %d ranks", built, sim->config.ranks);
    return cli_template_build(sim->cli, &sim->cli->params, sim->cli->operands[0], rank,
                              sim->config.ranks, schedule);
}

/* What is simulated: a template's builder, or the schedules of a file. One rank is built first, so
 * that what is wrong with parameters is wrong usage. */
static int prepare(struct sim *sim)
{
    const char *name = sim->cli->operands[0];
    struct weft_schedule *first = NULL;
    int status;

    sim->config.ranks = sim->cli->ranks ? sim->cli->ranks : 4;
    status = cli_settle_layers(sim->cli, name, sim->config.ranks);
    if (!status)
        status = cli_layer_firings(sim->cli, &sim->firings, &sim->config.firing_count);
    sim->config.firings = sim->firings;
    if (status)
        return status;
    if (!weft_template_find(name) || sim->trace) {
        status = cli_schedules_load(&sim->schedules, sim->cli, name, 4, -1);
        /* What is simulated are messages; a trace names their nodes. */
        status = status ? status : cli_schedules_write_out(&sim->schedules, sim->cli);
        if (status)
            return status;
        sim->config.ranks = sim->schedules.size;
        sim->config.schedules = (const struct weft_schedule *const *)sim->schedules.at;
        if (sim->schedules.count != (size_t)sim->schedules.size || !sim->schedules.count) {
            return cli_usage(COMMAND,
                             "%s: has schedules of %zu ranks of %d; expected one for each rank",
                             name, sim->schedules.count, sim->schedules.size);
        }
    } else {
        status = cli_check_counts(sim->cli, name, sim->config.ranks);
        if (!status)
            status = cli_check_memory(sim->cli, name, sim->config.ranks, 0);
        if (status)
            return status;
        status =
            cli_template_build(sim->cli, &sim->cli->params, name, 0, sim->config.ranks, &first);
        weft_schedule_destroy(first);
        if (status) {
            return status == WEFT_ERR_MEMORY ? cli_fail(COMMAND, "%s", weft_error_text())
                                             : cli_usage(COMMAND, "%s", weft_error_text());
        }
        sim->config.build = build;
        sim->config.user = sim;
    }
    status = sim_fabric_check(&sim->fabric, COMMAND, sim->config.ranks);
    if (status)
        return status;
    for (size_t i = 0; i < sim->config.activator_count; i++) {
        if (sim->activators[i] >= sim->config.ranks) {
            return cli_usage(COMMAND, "--activate: '%d'; expected ranks from 0 to %d",
                             sim->activators[i], sim->config.ranks - 1);
        }
    }
    if (!sim->config.threads) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        sim->config.threads = cores > 1 ? (int)(cores < 64 ? cores : 64) : 1;
    }
    return 0;
}

/* ---- what came out ---- */

static json_t *json_path(const struct weft_sim_result *result)
{
    json_t *path = json_array();

    for (size_t i = 0; i < result->path_length; i++) {
        const struct weft_sim_step *step = &result->path[i];
        json_t *object =
            json_pack("{s:i, s:i, s:s, s:f, s:f, s:s}", "rank", step->rank, "node", (int)step->node,
                      "kind", weft_node_kind_name(step->kind), "start_us", step->start_us, "end_us",
                      step->end_us, "after", weft_sim_reason_name(step->reason));
        if (step->peer >= 0)
            json_object_set_new(object, "peer", json_integer(step->peer));
        json_object_set_new(object, "bytes", json_integer((json_int_t)step->bytes));
        json_array_append_new(path, object);
    }
    return path;
}

static json_t *json_faults(const struct weft_sim_result *result)
{
    json_t *faults = json_array();

    for (size_t i = 0; i < result->fault_count; i++) {
        const struct weft_sim_fault *fault = &result->faults[i];
        const char *colon = strchr(fault->text, ':');
        json_t *object =
            json_pack("{s:s%, s:[i], s:[{s:i, s:i}], s:s}", "kind", fault->text,
                      colon ? (size_t)(colon - fault->text) : 0, "ranks", fault->rank, "nodes",
                      "rank", fault->rank, "node", (int)fault->node, "text", fault->text);
        json_array_append_new(faults, object);
    }
    return faults;
}

static int print_json(const struct sim *sim, const struct weft_sim_result *result, double seconds)
{
    const struct weft_net *net = &sim->net;
    json_t *times = json_array();
    json_t *object = json_pack(
        "{s:i, s:f, s:I, s:I, s:I, s:f, s:o, s:b, s:I}", "ranks", result->ranks, "time_us",
        result->time_us, "messages", (json_int_t)result->messages, "bytes",
        (json_int_t)result->bytes, "nodes", (json_int_t)result->nodes, "nodes_per_second",
        seconds > 0 ? (double)result->nodes / seconds : 0, "critical_path", json_path(result),
        "complete", result->complete, "signals", (json_int_t)result->signals);

    for (int rank = 0; rank < result->ranks; rank++)
        json_array_append_new(times, json_real(result->rank_us[rank]));
    json_object_set_new(object, "rank_us", times);
    json_object_set_new(object, "net",
                        json_pack("{s:f, s:f, s:f, s:f, s:f}", "L", net->L, "o", net->o, "g",
                                  net->g, "G", net->G, "O", net->O));
    if (net->S == WEFT_NET_NO_EAGER || (net->S && net->S <= INT64_MAX))
        json_object_set_new(json_object_get(object, "net"), "S",
                            json_integer(net->S == WEFT_NET_NO_EAGER ? 0 : (json_int_t)net->S));
    if (net->flags & WEFT_NET_OFFLOAD)
        json_object_set_new(json_object_get(object, "net"), "offload", json_true());
    if (sim->fabric.kind)
        sim_traffic_json(&sim->fabric, result, object);
    if (!result->complete)
        json_object_set_new(object, "faults", json_faults(result));
    return cli_print_json(COMMAND, object);
}

static void print_step(const struct weft_sim_step *step)
{
    char peer[64] = "";

    if (step->kind == WEFT_NODE_SEND || step->kind == WEFT_NODE_SIGNAL)
        snprintf(peer, sizeof peer, " to %d", step->peer);
    else if (step->kind == WEFT_NODE_RECV)
        snprintf(peer, sizeof peer, " from %d", step->peer);
    table_say(2, 4, "%12.3f .. %-12.3f  rank %d node %d: %s%s, %llu bytes; after %s",
              step->start_us, step->end_us, step->rank, (int)step->node,
              weft_node_kind_name(step->kind), peer, (unsigned long long)step->bytes,
              step->reason == WEFT_SIM_FIRST  ? "nothing"
              : step->reason == WEFT_SIM_TIME ? "its time"
                                              : weft_sim_reason_name(step->reason));
}

static void print_path(const struct sim *sim, const struct weft_sim_result *result)
{
    size_t length = result->path_length;
    size_t head = sim->whole_path || length <= PATH_SHOWN ? length : PATH_SHOWN / 2;

    table_say(0, 2, "critical path, %zu nodes, in microseconds", length);
    for (size_t i = 0; i < head; i++)
        print_step(&result->path[i]);
    if (head < length) {
        printf("  ... %zu more (--path shows them)\n", length - PATH_SHOWN);
        for (size_t i = length - PATH_SHOWN / 2; i < length; i++)
            print_step(&result->path[i]);
    }
}

/* What keeps it from ending comes before the figures of what did end. */
static void print_faults(const struct weft_sim_result *result)
{
    printf("does not end: %llu nodes are left\n", (unsigned long long)result->stuck);
    for (size_t i = 0; i < result->fault_count; i++)
        table_say(2, 2, "%s", result->faults[i].text);
    printf("  until then %.6g us\n", result->time_us);
}

static int print_text(const struct sim *sim, const struct weft_sim_result *result, double seconds)
{
    const struct weft_net *net = &sim->net;
    int slowest = 0, fastest = 0;
    char more[64] = "";

    for (int rank = 1; rank < result->ranks; rank++) {
        slowest = result->rank_us[rank] > result->rank_us[slowest] ? rank : slowest;
        fastest = result->rank_us[rank] < result->rank_us[fastest] ? rank : fastest;
    }
    printf("%s on %d rank%s: ", sim->cli->operands[0], result->ranks,
           result->ranks == 1 ? "" : "s");
    if (result->complete)
        printf("%.6g us\n", result->time_us);
    else
        print_faults(result);
    if (net->S && net->S != UINT64_MAX)
        snprintf(more, sizeof more, ",S=%llu",
                 net->S == WEFT_NET_NO_EAGER ? 0 : (unsigned long long)net->S);
    table_say(2, 11, "network    L=%g,o=%g,g=%g,G=%g,O=%g%s%s (microseconds, bytes)", net->L,
              net->o, net->g, net->G, net->O, more,
              net->flags & WEFT_NET_OFFLOAD ? ",offload=1" : "");
    if (sim->fabric.kind)
        sim_traffic_print(&sim->fabric, result);
    printf("  slowest    rank %d, %.6g us\n  fastest    rank %d, %.6g us\n", slowest,
           result->rank_us[slowest], fastest, result->rank_us[fastest]);
    *more = '\0';
    if (result->signals)
        snprintf(more, sizeof more, ", %llu signals", (unsigned long long)result->signals);
    table_say(2, 11, "messages   %llu of %llu bytes together%s",
              (unsigned long long)result->messages, (unsigned long long)result->bytes, more);
    *more = '\0';
    if (seconds > 0)
        snprintf(more, sizeof more, ", %.3g million a second",
                 (double)result->nodes / seconds / 1e6);
    table_say(2, 11, "nodes      %llu%s", (unsigned long long)result->nodes, more);
    if (result->complete && result->path_length)
        print_path(sim, result);
    return cli_finish(COMMAND);
}

/* ---- trace ---- */

static uint64_t ns_of(double us)
{
    return us > 0 ? (uint64_t)llround(us * 1e3) : 0;
}

static int trace_node(struct weft_trace *trace, const struct weft_schedule *schedule,
                      weft_node_t number, const struct weft_sim_node *node)
{
    struct weft_trace_span span = {.struct_size = sizeof span};
    struct weft_node_info info = {.struct_size = sizeof info};
    struct weft_slot_info slot = {.struct_size = sizeof slot};

    weft_schedule_get_node(schedule, number, &info);
    weft_trace_span_init(&span);
    span.rank = weft_schedule_rank(schedule);
    span.kind = info.kind;
    span.node = number;
    span.object = 0;
    span.peer = info.peer;
    span.tag =
        info.kind == WEFT_NODE_EVENT || info.kind == WEFT_NODE_SIGNAL ? info.channel : info.tag;
    span.plan = weft_schedule_name(schedule);
    span.label = info.label;
    if (info.region_count && !weft_schedule_get_slot(schedule, info.regions[0].slot, &slot))
        span.bytes = (uint64_t)info.regions[0].count * weft_dtype_size(slot.dtype);
    span.end = node->retired      ? WEFT_TRACE_RETIRED
               : node->end_us < 0 ? WEFT_TRACE_UNFINISHED
                                  : WEFT_TRACE_ENDED;
    /* An event is open until it fires. */
    span.start_ns = ns_of(node->start_us >= 0 && info.kind != WEFT_NODE_EVENT ? node->start_us
                                                                              : node->ready_us);
    span.end_ns = node->end_us < 0 ? span.start_ns : ns_of(node->end_us);
    span.end_ns = span.end_ns < span.start_ns ? span.start_ns : span.end_ns;
    if (info.kind == WEFT_NODE_RECV && node->start_us >= 0)
        span.arrived_ns = span.start_ns;
    return weft_trace_add(trace, &span);
}

/* What every node did, as a trace of a run would say it. */
static int write_trace(const struct sim *sim, const struct weft_sim_result *result)
{
    struct weft_trace *trace = NULL;
    int status = weft_trace_create(&trace);

    for (int rank = 0; rank < result->ranks && !status; rank++) {
        uint64_t first = result->first_node[rank];

        for (uint64_t i = first; i < result->first_node[rank + 1] && !status; i++) {
            status = trace_node(trace, sim->config.schedules[rank], (weft_node_t)(i - first),
                                &result->nodes_at[i]);
        }
    }
    if (!status)
        status = weft_trace_write(trace, strcmp(sim->trace, "-") ? sim->trace : NULL);
    weft_trace_destroy(trace);
    return status ? cli_usage(COMMAND, "--trace: %s", weft_error_text()) : 0;
}

/* ---- the command ---- */

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int simulate(struct sim *sim)
{
    struct weft_sim_result *result = NULL;
    double begin = now();

    sim->config.flags = sim->trace ? WEFT_SIM_KEEP_NODES : 0;
    int status = weft_simulate(&sim->config, &result);
    double seconds = now() - begin;
    cli_progress_end();
    if (status == WEFT_ERR_INVALID && sim->firings)
        return cli_usage(COMMAND, "--fire: %s", weft_error_text());
    if (status)
        return cli_fail(COMMAND, "%s: %s", sim->cli->operands[0], weft_error_text());
    int ended = result->complete;
    status = sim->cli->json ? print_json(sim, result, seconds) : print_text(sim, result, seconds);
    if (!status && sim->trace)
        status = write_trace(sim, result);
    weft_sim_result_destroy(result);
    return status ? status : ended ? CLI_OK : CLI_NO;
}

static int run(struct cli *cli)
{
    struct sim sim = {.cli = cli};
    int status;

    weft_sim_config_init(&sim.config);
    sim.config.reduce_us_per_byte = -1; /* not typed */
    sim.config.copy_us_per_byte = -1;
    sim.config.compute_us_per_byte = -1;
    weft_net_init(&sim.net);
    weft_fabric_init(&sim.fabric);
    int going = cli_parse(cli, &sim);
    status = going ? settle(&sim) : cli->status;
    if (going && !status)
        status = prepare(&sim);
    if (going && !status)
        status = simulate(&sim);
    cli_schedules_free(&sim.schedules);
    weft_memory_free(sim.activators);
    cli_firings_free(sim.firings, sim.config.firing_count);
    return status;
}

static const struct cli_option table[] = {
    {"net", 0, CLI_TAKE, "L=..,G=..",
     "network: L, o, g in microseconds, G, O in microseconds a byte, S in bytes; "
     "offload=1: the adapter takes messages in by itself; torus=32x32 or fat-tree=32x32: how "
     "hosts are wired",
     .take = take_net},
    {"links", 0, CLI_INTEGER, "N", "busiest links of a torus or fat tree that are told of", "8",
     CLI_AT(struct sim, config.links), .least = 1, .most = INT32_MAX},
    {"compute", 0, CLI_TAKE, "COST",
     "of operations, microseconds a byte (default 0), or reduce=..,copy=..,call=..; of one of "
     "weft's: "
     "project=WRITTEN:READ:PRODUCT",
     .take = take_compute},
    {"no-payload", .help = "no memory for contents of messages (there never is)",
     CLI_AT(struct sim, no_payload)},
    {"cost", 0, CLI_FILE, "FILE", "network and costs as weft bench model wrote them",
     CLI_AT(struct sim, cost_file)},
    {"transport", 0, CLI_TRANSPORT, "NAME", "whose costs, if nothing else gives them", "local",
     CLI_AT(struct sim, transport), .uses = CLI_COSTS},
    {"activate", 0, CLI_TAKE, "R,R..",
     "ranks whose application fires its events at time 0 (default 0)", .take = take_activate},
    {"fire", 0, CLI_TAKE, "EVENT=US[@R]",
     "the application fires the event of a label, or a node, then (on rank R); may be repeated",
     .take = take_firing},
    {"path", .help = "the whole critical path, however long", CLI_AT(struct sim, whole_path)},
    {"trace", 0, CLI_TEXT, "FILE", "what every node did, as Chrome trace JSON",
     CLI_AT(struct sim, trace)},
    {"threads", 0, CLI_INTEGER, "N", "threads that build schedules (default: the cores)",
     CLI_AT(struct sim, config.threads), .least = 1, .most = 1024},
    {"loggopsim", .help = "LogGOPSim's times to the letter: m bytes take (m - 1) G",
     CLI_AT(struct sim, loggopsim)},
    {0},
};

static const struct cli_term wiring[] = {
    {"torus=AxB..", "a torus; routes are minimal and dimension-ordered"},
    {"fat-tree=AxB..",
     "A hosts at a leaf switch, B leaf switches under each of the next level, and so on; the way "
     "up is chosen by the destination (D-mod-k)"},
    {"oversubscription=F", "links down of a leaf switch for each up (1)"},
    {"ranks-per-host=R", "ranks that share the links of a host (1)"},
    {"hop=US", "latency of a link, on top of L (0)"},
    {"link=US_PER_BYTE", "1 / bandwidth of a link (G)"},
    {"place=random:SEED", "ranks on hosts drawn at random, not in the order of their numbers"},
    {0},
};

static const struct cli_section sections[] = {
    {"Words of --net by which messages share the links of their routes", .terms = wiring,
     .closing = "Messages that cross a link at the same time have max-min fair shares of it. A "
                "rank sends one at a time over each link that leaves its host."},
    {0},
};

const struct cli_spec weft_command_sim = {
    .name = COMMAND,
    .summary = "simulates a template or a schedule file on a network",
    .operands = "TEMPLATE|FILE...",
    .operands_min = 1,
    .operands_max = INT32_MAX,
    .about = "Simulates a template, or a schedule file, on a LogGOPS network, without "
             "payloads: when each rank finishes, what is sent, and what held the last one up "
             "(the critical path). Exit status 1 if it does not end. Without --net the "
             "network is alpha and beta of a transport.",
    .sections = sections,
    .options = table,
    .common = CLI_TEMPLATE,
    .run = run,
};
