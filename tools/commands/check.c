/* SPDX-License-Identifier: BSD-3-Clause */
/* weft check: what is wrong with the schedules of all ranks together, before anything runs. */
#include "tools/cli/cli.h"
#include "tools/cli/table.h"
#include "tools/cli/transports.h"
#include "tools/commands/check_lines.h"

#include <inttypes.h>
#include <string.h>

/* Faults that are put together, unless told otherwise: few lines come of them. */
enum { MOST_FOLDED = 1000 };

struct options {
    struct weft_check_config config;
    const char *transport;
    int all;
};

/* What was not read from a text has no lines. */
static void set_line(json_t *object, size_t line)
{
    if (line)
        json_object_set_new(object, "line", json_integer((json_int_t)line));
}

static json_t *json_fault(const struct weft_fault *fault)
{
    json_t *ranks = json_array();
    json_t *nodes = json_array();

    for (size_t i = 0; i < fault->rank_count; i++)
        json_array_append_new(ranks, json_integer(fault->ranks[i]));
    for (size_t i = 0; i < fault->node_count; i++) {
        json_t *node = json_pack("{s:i, s:i}", "rank", fault->nodes[i].rank, "node",
                                 (int)fault->nodes[i].node);
        set_line(node, fault->nodes[i].line);
        json_array_append_new(nodes, node);
    }
    json_t *object =
        json_pack("{s:s, s:o, s:o, s:I, s:s}", "kind", weft_fault_kind_name(fault->kind), "ranks",
                  ranks, "nodes", nodes, "bytes", (json_int_t)fault->bytes, "text", fault->text);
    set_line(object, fault->node_count ? fault->nodes[0].line : 0);
    return object;
}

/* Faults put together by their causes, for programs that show them to people. */
static json_t *json_groups(const struct weft_check_report *report, const struct check_group *groups,
                           size_t count)
{
    json_t *array = json_array();
    struct weft_fault fault = {.struct_size = sizeof fault};

    for (size_t g = 0; g < count; g++) {
        json_t *ranks = json_array();

        for (size_t i = 0; i < groups[g].rank_count; i++)
            json_array_append_new(ranks, json_integer(groups[g].ranks[i]));
        weft_check_report_get_fault(report, groups[g].first, &fault);
        json_t *group = json_pack(
            "{s:s, s:I, s:o, s:s, s:s}", "kind", weft_fault_kind_name(groups[g].kind), "count",
            (json_int_t)groups[g].count, "ranks", ranks, "of", groups[g].what, "text", fault.text);
        set_line(group, groups[g].line);
        json_array_append_new(array, group);
    }
    return array;
}

/* What --transport nccl adds. */
static json_t *json_order(const struct weft_check_summary *summary)
{
    json_t *order =
        json_pack("{s:I, s:I, s:I}", "messages", (json_int_t)summary->ordered, "rounds",
                  (json_int_t)summary->rounds, "agreements", (json_int_t)summary->unordered);

    if (summary->unordered_text)
        json_object_set_new(order, "text", json_string(summary->unordered_text));
    return order;
}

static int print_json(const char *command, const struct weft_check_report *report,
                      const struct weft_check_summary *summary, const struct check_group *groups,
                      size_t group_count, const struct options *options)
{
    json_t *faults = json_array();
    struct weft_fault fault = {.struct_size = sizeof fault};

    for (size_t i = 0; weft_check_report_get_fault(report, i, &fault) == WEFT_OK; i++)
        json_array_append_new(faults, json_fault(&fault));
    json_t *object = json_pack(
        "{s:b, s:i, s:I, s:o, s:o, s:I, s:I, s:I, s:b, s:b, s:I}", "ok", summary->faults == 0,
        "ranks", summary->ranks, "nodes", (json_int_t)summary->nodes, "faults", faults, "folded",
        json_groups(report, groups, group_count), "fault_count", (json_int_t)summary->faults,
        "messages", (json_int_t)summary->messages, "executions", (json_int_t)summary->executions,
        "bounded", summary->bounded, "more", summary->more, "results",
        (json_int_t)summary->results);
    if (options->config.in_order)
        json_object_set_new(object, "order", json_order(summary));
    return cli_print_json(command, object);
}

/* "line 12, send `out`, 48 faults on ranks 0-7; the first: " before the text of the first. */
static void print_group(const struct weft_check_report *report, const struct check_group *group)
{
    struct weft_fault fault = {.struct_size = sizeof fault};
    char ranks[160];
    char line[40] = "";
    char what[512] = "";

    weft_check_report_get_fault(report, group->first, &fault);
    if (group->line)
        snprintf(line, sizeof line, "line %zu%s", group->line, group->count > 1 ? ", " : ": ");
    if (group->count > 1) {
        check_rank_text(group->ranks, group->rank_count, ranks, sizeof ranks);
        snprintf(what, sizeof what, "%s%s%zu faults on rank%s %s; the first: ", group->what,
                 *group->what ? ", " : "", group->count, group->rank_count == 1 ? "" : "s", ranks);
    }
    table_say(0, 10, "%-10s%s%s%s", weft_fault_kind_name(group->kind), line, what, fault.text);
}

static void print_fault(const struct weft_fault *fault)
{
    char line[40] = "";

    if (fault->node_count && fault->nodes[0].line)
        snprintf(line, sizeof line, "line %zu: ", fault->nodes[0].line);
    table_say(0, 10, "%-10s%s%s", weft_fault_kind_name(fault->kind), line, fault->text);
}

/* What --transport nccl adds. */
static void print_order(const struct weft_check_summary *summary)
{
    table_say(0, 2, "in order: %" PRIu64 " message%s in %" PRIu64 " round%s", summary->ordered,
              summary->ordered == 1 ? "" : "s", summary->rounds, summary->rounds == 1 ? "" : "s");
    if (summary->unordered)
        table_say(0, 2,
                  "not known beforehand, so that both ranks must agree over the host's transport: "
                  "%" PRIu64 " end%s of messages; the first: %s",
                  summary->unordered, summary->unordered == 1 ? "" : "s", summary->unordered_text);
}

static int print_text(const char *command, const char *name, const struct weft_check_report *report,
                      const struct weft_check_summary *summary, const struct check_group *groups,
                      size_t group_count, const struct options *options)
{
    int all = options->all;
    struct weft_fault fault = {.struct_size = sizeof fault};
    size_t kept = weft_check_report_fault_count(report);
    char found[160];

    for (size_t i = 0; !all && i < group_count; i++)
        print_group(report, &groups[i]);
    for (size_t i = 0; all && weft_check_report_get_fault(report, i, &fault) == WEFT_OK; i++)
        print_fault(&fault);
    if (summary->faults > kept)
        printf("and %" PRIu64 " more\n", summary->faults - kept);
    if (summary->faults)
        snprintf(found, sizeof found, "%s%" PRIu64 " fault%s%s%s", summary->more ? "at least " : "",
                 summary->faults, summary->faults == 1 ? "" : "s",
                 summary->more ? " (no more than 8 races are looked for in a rank)" : "",
                 !all && group_count < kept ? " (--all shows each)" : "");
    else
        snprintf(found, sizeof found, "no fault%s",
                 summary->results ? "" : "; no result is stated to compare with");
    table_say(0, 2, "%s: %d rank%s, %" PRIu64 " node%s, %" PRIu64 " message%s: %s", name,
              summary->ranks, summary->ranks == 1 ? "" : "s", summary->nodes,
              summary->nodes == 1 ? "" : "s", summary->messages, summary->messages == 1 ? "" : "s",
              found);
    if (summary->bounded) {
        table_say(0, 2,
                  "bounded: %" PRIu64 " executions of its choices were checked, there are more",
                  summary->executions);
    } else if (summary->executions > 1) {
        table_say(0, 2, "all %" PRIu64 " executions of its choices were checked",
                  summary->executions);
    }
    if (options->config.in_order)
        print_order(summary);
    return cli_finish(command);
}

static int check(const struct cli *cli, const struct cli_schedules *schedules,
                 const struct options *options)
{
    const struct weft_schedule *const *at = (const struct weft_schedule *const *)schedules->at;
    struct weft_check_summary summary = {.struct_size = sizeof summary};
    const char *command = cli->spec->name;
    struct weft_check_report *report;
    struct check_group *groups;
    size_t count = 0;

    if (weft_check(at, schedules->count, &options->config, &report) != WEFT_OK)
        return cli_fail(command, "%s: %s", cli->operands[0], weft_error_text());
    weft_check_report_get_summary(report, &summary);
    groups = check_groups(report, at, schedules->count, &count);
    int status;
    if (!groups)
        status = cli_fail(command, "out of memory for %zu faults",
                          weft_check_report_fault_count(report));
    else if (cli->json)
        status = print_json(command, report, &summary, groups, count, options);
    else
        status = print_text(command, cli->operands[0], report, &summary, groups, count, options);
    check_groups_free(groups, count);
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
        table_say(0, 10, "%-10s%s", kind, text);
        table_say(0, 2, "%s: what else is wrong can be seen once this is mended", cli->operands[0]);
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

static int run(struct cli *cli)
{
    struct weft_read_refusal refusal = {.struct_size = sizeof refusal, .rank = -1};
    struct cli_schedules schedules;
    struct weft_cost_model cost;
    struct options options = {0};

    weft_check_config_init(&options.config);
    if (!cli_parse(cli, &options))
        return cli->status;
    options.config.in_order = strcmp(options.transport, "nccl") == 0;
    weft_cost_model_init(&cost, weft_transport_find(options.transport) ? options.transport : NULL);
    if (cli_typed(cli, "transport"))
        cli->params.cost = &cost;
    if (!cli_typed(cli, "faults") && !cli->json && !options.all)
        options.config.faults = MOST_FOLDED;
    cli->refusal = &refusal;
    int status = cli_settle_layers(cli, cli->operands[0], cli->ranks ? cli->ranks : 4);
    if (!status)
        status = cli_schedules_load(&schedules, cli, cli->operands[0], 4, -1);
    if (status)
        return status == CLI_NO && refusal.rank >= 0 ? tell_refusal(cli, &refusal) : status;
    status = check(cli, &schedules, &options);
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
    {"all", 0, CLI_FLAG, NULL,
     "show each fault; left out, those of one line of a file (or of one label) are one line", NULL,
     CLI_AT(struct options, all)},
    {"transport", 0, CLI_TRANSPORT, "NAME",
     "whose costs choose the algorithm; nccl: also whether messages between devices can be issued "
     "in one order",
     "local", CLI_AT(struct options, transport), .uses = CLI_COSTS | CLI_IN_ORDER},
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
             "state. With --transport nccl also for an order in which messages between devices can "
             "be issued. Exit status 1 if there is a fault.",
    .options = table,
    .common = CLI_TEMPLATE,
    .run = run,
};
