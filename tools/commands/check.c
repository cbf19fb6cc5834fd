/* SPDX-License-Identifier: BSD-3-Clause */
/* weft check: what is wrong with the schedules of all ranks together, before anything runs. */
#include "tools/cli/cli.h"
#include "tools/cli/transports.h"

#include <inttypes.h>
#include <string.h>

static json_t *json_fault(const struct weft_fault *fault)
{
    json_t *ranks = json_array();
    json_t *nodes = json_array();

    for (size_t i = 0; i < fault->rank_count; i++)
        json_array_append_new(ranks, json_integer(fault->ranks[i]));
    for (size_t i = 0; i < fault->node_count; i++) {
        json_array_append_new(nodes, json_pack("{s:i, s:i}", "rank", fault->nodes[i].rank, "node",
                                               (int)fault->nodes[i].node));
    }
    return json_pack("{s:s, s:o, s:o, s:I, s:s}", "kind", weft_fault_kind_name(fault->kind),
                     "ranks", ranks, "nodes", nodes, "bytes", (json_int_t)fault->bytes, "text",
                     fault->text);
}

static int print_json(const char *command, const struct weft_check_report *report,
                      const struct weft_check_summary *summary)
{
    json_t *faults = json_array();
    struct weft_fault fault;

    for (size_t i = 0; weft_check_fault(report, i, &fault) == WEFT_OK; i++)
        json_array_append_new(faults, json_fault(&fault));
    return cli_print_json(
        command,
        json_pack("{s:b, s:i, s:I, s:o, s:I, s:I, s:I, s:b, s:I}", "ok", summary->faults == 0,
                  "ranks", summary->ranks, "nodes", (json_int_t)summary->nodes, "faults", faults,
                  "fault_count", (json_int_t)summary->faults, "messages",
                  (json_int_t)summary->messages, "executions", (json_int_t)summary->executions,
                  "bounded", summary->bounded, "results", (json_int_t)summary->results));
}

static int print_text(const char *command, const char *name, const struct weft_check_report *report,
                      const struct weft_check_summary *summary)
{
    struct weft_fault fault;
    size_t shown = weft_check_fault_count(report);

    for (size_t i = 0; weft_check_fault(report, i, &fault) == WEFT_OK; i++)
        printf("%-10s%s\n", weft_fault_kind_name(fault.kind), fault.text);
    if (summary->faults > shown)
        printf("and %" PRIu64 " more\n", summary->faults - shown);
    printf("%s: %d rank%s, %" PRIu64 " nodes, %" PRIu64 " messages: ", name, summary->ranks,
           summary->ranks == 1 ? "" : "s", summary->nodes, summary->messages);
    if (summary->faults)
        printf("%" PRIu64 " fault%s\n", summary->faults, summary->faults == 1 ? "" : "s");
    else
        printf("no fault%s\n", summary->results ? "" : "; no result is stated to compare with");
    if (summary->bounded) {
        printf("bounded: %" PRIu64 " executions of its choices were checked, there are more\n",
               summary->executions);
    } else if (summary->executions > 1) {
        printf("all %" PRIu64 " executions of its choices were checked\n", summary->executions);
    }
    return cli_finish(command);
}

static int check(const struct cli *cli, const struct cli_schedules *schedules,
                 const struct weft_check_config *config)
{
    struct weft_check_summary summary = {.struct_size = sizeof summary};
    struct weft_check_report *report;

    if (weft_check((const struct weft_schedule *const *)schedules->at, schedules->count, config,
                   &report) != WEFT_OK)
        return cli_fail(cli->spec->name, "%s: %s", cli->operands[0], weft_error_text());
    weft_check_report_summary(report, &summary);
    int status = cli->json ? print_json(cli->spec->name, report, &summary)
                           : print_text(cli->spec->name, cli->operands[0], report, &summary);
    weft_check_report_destroy(report);
    return status ? status : summary.faults ? CLI_NO : CLI_OK;
}

/* A node that cannot be in any schedule is a fault of the file, though no other can be looked for.
 */
static int tell_refusal(const struct cli *cli, const struct weft_read_refusal *refusal)
{
    const char *kind = weft_fault_kind_name(refusal->peer ? WEFT_FAULT_MATCH : WEFT_FAULT_SIZE);
    char text[600];

    snprintf(text, sizeof text, "rank %d node %d: %s", refusal->rank, (int)refusal->node,
             weft_error_text());
    if (!cli->json) {
        printf("%-10s%s\n%s: what else is wrong can be seen once this is mended\n", kind, text,
               cli->operands[0]);
        int status = cli_finish(cli->spec->name);
        return status ? status : CLI_NO;
    }
    json_t *fault = json_pack("{s:s, s:[i], s:[{s:i, s:i}], s:i, s:s}", "kind", kind, "ranks",
                              refusal->rank, "nodes", "rank", refusal->rank, "node",
                              (int)refusal->node, "bytes", 0, "text", text);
    int status = cli_print_json(
        cli->spec->name, json_pack("{s:b, s:i, s:i, s:[o], s:i}", "ok", 0, "ranks", refusal->size,
                                   "nodes", (int)refusal->node, "faults", fault, "fault_count", 1));
    return status ? status : CLI_NO;
}

struct options {
    struct weft_check_config config;
    const char *transport;
};

static int run(struct cli *cli)
{
    struct weft_read_refusal refusal = {.rank = -1};
    struct cli_schedules schedules;
    struct weft_cost_model cost;
    struct options options = {0};

    weft_check_config_init(&options.config);
    if (!cli_parse(cli, &options))
        return cli->status;
    weft_cost_model_init(&cost, options.transport);
    if (cli_typed(cli, "transport"))
        cli->params.cost = &cost;
    cli->refusal = &refusal;
    int status = cli_schedules_load(&schedules, cli, cli->operands[0], 4, -1);
    if (status)
        return status == CLI_NO && refusal.rank >= 0 ? tell_refusal(cli, &refusal) : status;
    status = check(cli, &schedules, &options.config);
    cli_schedules_free(&schedules);
    return status;
}

static const struct cli_option table[] = {
    {"executions", 0, CLI_INTEGER, "N",
     "executions of choices to check at most (default 1024, fewer for large graphs)",
     CLI_AT(struct options, config.executions), .least = 1, .most = INT64_MAX},
    {"seed", 0, CLI_INTEGER, "N", "what executions beyond that are drawn from", "1",
     CLI_AT(struct options, config.seed), .most = INT64_MAX},
    {"faults", 0, CLI_INTEGER, "N", "faults to show at most", "100",
     CLI_AT(struct options, config.faults), .least = 1, .most = INT32_MAX},
    {"transport", 0, CLI_TRANSPORT, "NAME", "whose costs choose the algorithm", "local",
     CLI_AT(struct options, transport), .uses = CLI_COSTS},
    {0},
};

const struct cli_spec weft_command_check = {
    .name = "check",
    .summary = "what is wrong with a template or file, before it runs",
    .operands = "TEMPLATE|FILE...",
    .operands_min = 1,
    .operands_max = INT32_MAX,
    .about = "Checks the schedules of all ranks (default: 4) of a template, or of a schedule file, "
             "together: cycles, messages without counterparts, sizes, deadlock if every send "
             "waits for its receive, races, and by symbolic execution the results that they "
             "state. Exit status 1 if there is a fault.",
    .options = table,
    .common = CLI_TEMPLATE,
    .run = run,
};
