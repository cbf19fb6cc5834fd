/* SPDX-License-Identifier: BSD-3-Clause */
/* weft check: what is wrong with the schedules of all ranks together, before anything runs. */
#include "tools/cli/cli.h"

#include <inttypes.h>
#include <string.h>

enum { OPTION_EXECUTIONS = 1, OPTION_SEED, OPTION_FAULTS, OPTION_TRANSPORT };

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

/* Takes the options of check; 0, or CLI_STOP with cli->status set or CLI_WRONG. */
static int parse(struct cli *cli, struct weft_check_config *config, struct weft_cost_model *cost)
{
    static const char *const transports[] = {"local", "mpi", NULL};
    const char *name = cli->spec->name;
    long long number;
    int choice;
    int id;

    while ((id = cli_next(cli)) > 0) {
        switch (id) {
        case OPTION_EXECUTIONS:
            if (cli_integer(name, "--executions", cli->value, 1, INT64_MAX, &number))
                return CLI_WRONG;
            config->executions = (size_t)number;
            break;
        case OPTION_SEED:
            if (cli_integer(name, "--seed", cli->value, 0, INT64_MAX, &number))
                return CLI_WRONG;
            config->seed = (uint64_t)number;
            break;
        case OPTION_FAULTS:
            if (cli_integer(name, "--faults", cli->value, 1, INT32_MAX, &number))
                return CLI_WRONG;
            config->faults = (size_t)number;
            break;
        default:
            choice = cli_choice(name, "--transport", cli->value, transports);
            if (choice < 0)
                return CLI_WRONG;
            weft_cost_model_init(cost, transports[choice]);
            cli->params.cost = cost;
        }
    }
    return id == CLI_STOP ? CLI_STOP : 0;
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

int weft_cmd_check(int argc, char **argv)
{
    static const struct cli_option options[] = {
        {"executions", 0, OPTION_EXECUTIONS, "N",
         "executions of choices to check at most (default 1024, fewer for large graphs)"},
        {"seed", 0, OPTION_SEED, "N", "what executions beyond that are drawn from (default 1)"},
        {"faults", 0, OPTION_FAULTS, "N", "faults to show at most (default 100)"},
        {"transport", 0, OPTION_TRANSPORT, "NAME",
         "local (default) or mpi: whose costs choose the algorithm"},
        {0},
    };
    static const struct cli_spec spec = {
        .name = "check",
        .operands = "TEMPLATE|FILE...",
        .operands_min = 1,
        .operands_max = INT32_MAX,
        .about = "Checks the schedules of all ranks (default: 4) of a template, or of a schedule "
                 "file, together:\ncycles, messages without counterparts, sizes, deadlock if every "
                 "send waits for its receive, races,\nand by symbolic execution the results that "
                 "they state. Exit status 1 if there is a fault.",
        .options = options,
        .common = CLI_TEMPLATE,
    };
    struct weft_check_config config;
    struct cli_schedules schedules;
    struct weft_cost_model cost;
    struct weft_read_refusal refusal = {.rank = -1};
    struct cli cli;

    weft_check_config_init(&config);
    cli_begin(&cli, &spec, argc, argv);
    int status = parse(&cli, &config, &cost);
    if (status)
        return status == CLI_STOP ? cli.status : status;
    cli.refusal = &refusal;
    status = cli_schedules_load(&schedules, &cli, cli.operands[0], 4, -1);
    if (status)
        return status == CLI_NO && refusal.rank >= 0 ? tell_refusal(&cli, &refusal) : status;
    status = check(&cli, &schedules, &config);
    cli_schedules_free(&schedules);
    return status;
}
