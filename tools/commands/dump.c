/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft dump: writes schedules as text or JSON, which read back, as DOT for Graphviz, as GOAL for
 * LogGOPSim, or as a page to look at.
 */
#include "tools/cli/cli.h"
#include "tools/cli/transports.h"
#include "tools/page/html.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

struct dump {
    int rank;
    int format;
    const char *output;
    const char *transport;
    const char *cost_file;         /* or NULL: estimates */
    struct weft_goal_options goal; /* activators and costs, for html as well */
    struct cli_op_costs op_costs;  /* for both */
    int *activators;
    const char *net;
    const char *trace;
    long long run;
    int place;
};

/* In the order of weft_format_t, and one more. */
static const char *const formats[] = {"text", "json", "dot", "goal", "html", NULL};
enum { FORMAT_HTML = WEFT_FORMAT_GOAL + 1 };

static int take_activate(void *target, const char *command, const char *text)
{
    struct dump *dump = target;
    int status = cli_activators(command, text, &dump->activators, &dump->goal.activator_count);

    dump->goal.activators = dump->activators;
    return status;
}

static int take_compute(void *target, const char *command, const char *text)
{
    struct weft_goal_options *goal = &((struct dump *)target)->goal;

    return cli_compute(command, text, &goal->reduce_us_per_byte, &goal->copy_us_per_byte,
                       &goal->compute_us_per_byte, &((struct dump *)target)->op_costs);
}

/* Times and networks are in some formats alone: in others who gives them would believe they are. */
static int check_format(const struct cli *cli, const struct dump *dump)
{
    static const char *const of_both[] = {"activate", "compute"};
    static const char *const of_pages[] = {"net", "trace", "run"};
    for (size_t i = 0; i < 2 && dump->format < WEFT_FORMAT_GOAL; i++)
        if (cli_typed(cli, of_both[i]))
            return cli_usage("dump", "--%s: with --format %s; expected goal or html", of_both[i],
                             formats[dump->format]);
    for (size_t i = 0; i < 3 && dump->format != FORMAT_HTML; i++)
        if (cli_typed(cli, of_pages[i]))
            return cli_usage("dump", "--%s: with --format %s; expected html", of_pages[i],
                             formats[dump->format]);
    return 0;
}

/* What the options say together. 0, or an exit status after a line. */
static int settle(struct cli *cli, struct dump *dump, struct weft_cost_model *cost)
{
    if (cli->json) {
        if (cli_typed(cli, "format") && dump->format != WEFT_FORMAT_JSON) {
            return cli_usage("dump", "--format: '%s' with --json; expected json",
                             formats[dump->format]);
        }
        dump->format = WEFT_FORMAT_JSON;
    }
    int status = check_format(cli, dump);
    if (status)
        return status;
    weft_cost_model_init(cost, dump->transport);
    cli->params.cost = cost;
    return dump->cost_file && weft_cost_model_read(dump->cost_file, dump->transport, cost, NULL)
               ? cli_usage("dump", "--cost: %s", weft_error_text())
               : 0;
}

/* With --json a document is one line: no string of JSON has a line end in it. */
static void join_lines(char *text)
{
    for (; *text; text++)
        if (*text == '\n' && text[1])
            *text = ' ';
}

static int write_out(const struct dump *dump, const char *text, size_t length)
{
    if (!dump->output || strcmp(dump->output, "-") == 0) {
        fwrite(text, 1, length, stdout);
        return cli_finish("dump");
    }
    FILE *file = fopen(dump->output, "wb");
    if (!file) {
        return cli_usage("dump", "-o %s: %s; expected a file that can be written", dump->output,
                         strerror(errno));
    }
    size_t written = fwrite(text, 1, length, file);
    int failed = fflush(file) != 0 || written != length;
    int reason = errno;
    if (fclose(file) != 0 || failed) {
        return cli_usage("dump", "-o %s: %s; expected a file that can be written", dump->output,
                         strerror(failed ? reason : errno));
    }
    return 0;
}

static int write_text(const struct dump *dump, const struct cli_schedules *schedules, char **text,
                      size_t *length)
{
    const struct weft_schedule *const *at = (const struct weft_schedule *const *)schedules->at;
    size_t count = dump->rank >= 0 ? 1 : schedules->count;

    if (dump->format == WEFT_FORMAT_GOAL) {
        struct weft_goal_options goal = dump->goal;
        goal.op_costs = dump->op_costs.at;
        goal.op_cost_count = dump->op_costs.count;
        return weft_schedule_write_goal(at, count, &goal, text, length);
    }
    return weft_schedule_write(at, count, (weft_format_t)dump->format, text, length);
}

/* The list as it was typed, cut where it is long; nothing if it was not. */
static void name_counts(char *text, size_t size, const char *typed)
{
    if (typed)
        snprintf(text, size, "counts %.40s%s", typed, strlen(typed) > 40 ? "..." : "");
}

static void name_bits(char *text, size_t size, const struct weft_quantiser *quantiser)
{
    if (quantiser->bits == WEFT_QUANTISE_SIGN)
        snprintf(text, size, "signs");
    else if (quantiser->bits)
        snprintf(text, size, "%d bits", quantiser->bits);
}

/* What the template was made with, in words. */
static void name_parameters(char *text, size_t size, const struct cli *cli)
{
    const struct weft_template *template = weft_template_find(cli->operands[0]);
    const struct weft_template_params *params = &cli->params;
    const char *words = template ? template->parameters : "";
    size_t used = 0;

    text[0] = '\0';
    for (; *words; words += strspn(words, " ")) {
        size_t length = strcspn(words, " ");
        char value[64] = "";
        if (strncmp(words, "count", length) == 0)
            snprintf(value, sizeof value, "count %zu", params->count);
        else if (strncmp(words, "counts", length) == 0 ||
                 strncmp(words, "send-counts", length) == 0)
            name_counts(value, sizeof value, cli_typed(cli, "counts"));
        else if (strncmp(words, "dtype", length) == 0)
            snprintf(value, sizeof value, "%s", weft_dtype_name(params->dtype));
        else if (strncmp(words, "op", length) == 0)
            snprintf(value, sizeof value, "%s", weft_op_name(params->op));
        else if (strncmp(words, "root", length) == 0)
            snprintf(value, sizeof value, "root %d", params->root);
        else if (strncmp(words, "segment", length) == 0 && params->segment)
            snprintf(value, sizeof value, "segment %zu",
                     params->segment == WEFT_SEGMENT_NONE ? 0 : params->segment);
        else if (strncmp(words, "slice", length) == 0 && params->slice)
            snprintf(value, sizeof value, "slices of %zu", params->slice);
        else if (strncmp(words, "components", length) == 0 && params->components)
            snprintf(value, sizeof value, "%zu components", params->components);
        else if (strncmp(words, "bits", length) == 0)
            name_bits(value, sizeof value, &cli->quantiser);
        else if (strncmp(words, "layers", length) == 0 && cli->layers)
            snprintf(value, sizeof value, "layers %.40s", cli->layers);
        else if (strncmp(words, "merge", length) == 0 && cli->merge)
            snprintf(value, sizeof value, "merged by %.40s", cli->merge);
        else if (strncmp(words, "group-size", length) == 0 && params->group_size)
            snprintf(value, sizeof value, "group size %d", params->group_size);
        else if (strncmp(words, "servers", length) == 0)
            snprintf(value, sizeof value, "servers %d%s", params->servers ? params->servers : 1,
                     params->colocated ? ", co-located" : "");
        else if (strncmp(words, "window", length) == 0 && params->window)
            snprintf(value, sizeof value, "window %zu", params->window);
        else if (strncmp(words, "aggregate", length) == 0 && params->aggregate)
            snprintf(value, sizeof value, "%zu blocks a message", params->aggregate);
        else if (strncmp(words, "radix", length) == 0 && params->radix)
            snprintf(value, sizeof value, "radix %d", params->radix);
        if (*value && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", value);
        words += length;
    }
}

/* The network, and how it is called on the page. */
static int choose_net(const struct dump *dump, const struct cli *cli, struct weft_net *net,
                      char *text, size_t size)
{
    struct weft_cost_model cost;

    weft_net_init(net);
    if (dump->net) {
        snprintf(text, size, "%s", dump->net);
        return weft_net_parse(dump->net, net) ? cli_usage("dump", "--net: %s", weft_error_text())
                                              : 0;
    }
    weft_cost_model_init(&cost, "local");
    cost = cli->params.cost ? *cli->params.cost : cost;
    net->L = cost.alpha_us;
    net->G = cost.beta_us_per_byte;
    snprintf(text, size, "L=%g,G=%g", net->L, net->G);
    return 0;
}

static int write_page(const struct dump *dump, const struct cli *cli,
                      const struct cli_schedules *schedules)
{
    struct html_page page = {.schedules = (const struct weft_schedule *const *)schedules->at,
                             .ranks = schedules->count};
    struct weft_sim_config config;
    struct weft_sim_firing *firings = NULL; /* of the layers of a table */
    struct weft_net net;
    char net_text[256];
    size_t length = 0;

    if (dump->rank >= 0 || schedules->count != (size_t)schedules->size) {
        return cli_usage("dump",
                         "--format html: a page is of all %d ranks; expected no -r, and a "
                         "file that holds all",
                         schedules->size);
    }
    weft_sim_config_init(&config);
    config.activators = dump->goal.activators;
    config.activator_count = dump->goal.activator_count;
    config.reduce_us_per_byte = dump->goal.reduce_us_per_byte;
    config.copy_us_per_byte = dump->goal.copy_us_per_byte;
    config.compute_us_per_byte = dump->goal.compute_us_per_byte;
    config.op_costs = dump->op_costs.at;
    config.op_cost_count = dump->op_costs.count;
    if (choose_net(dump, cli, &net, net_text, sizeof net_text))
        return CLI_WRONG;
    config.net = &net;
    name_parameters(page.parameters, sizeof page.parameters, cli);
    int status = cli_layer_firings(cli, &firings, &config.firing_count);
    config.firings = firings;
    if (status) {
        cli_firings_free(firings, config.firing_count);
        return status;
    }
    status = html_simulate(&page, &config, net_text);
    cli_firings_free(firings, config.firing_count);
    if (status == WEFT_OK && dump->trace)
        status = html_read_trace(&page, dump->trace, dump->run);
    if (status) {
        html_free(&page);
        return (status == WEFT_ERR_MEMORY ? cli_fail : cli_usage)(
            "dump", "%s: %s", dump->trace ? dump->trace : cli->operands[0], weft_error_text());
    }
    char *text = html_write(&page, &length);
    status = text ? write_out(dump, text, length) : cli_fail("dump", "out of memory for a page");
    if (page.first[page.ranks] > HTML_MOST_NODES) {
        fprintf(stderr, "weft dump: the page holds the first ranks, with up to %zu of %zu nodes\n",
                HTML_MOST_NODES, page.first[page.ranks]);
    }
    weft_memory_free(text);
    html_free(&page);
    return status;
}

/* --place: the copies that a commit would add. */
static int place(const struct cli *cli, const struct cli_schedules *schedules)
{
    for (size_t i = 0; i < schedules->count; i++)
        if (weft_schedule_place(schedules->at[i]) != WEFT_OK)
            return cli_fail("dump", "%s: %s", cli->operands[0], weft_error_text());
    return 0;
}

/* Builds or reads the schedules, and writes them. */
static int write_schedules(struct cli *cli, const struct dump *dump)
{
    struct cli_schedules schedules;
    size_t length = 0;
    char *text = NULL;
    int status = cli_settle_layers(cli, cli->operands[0], cli->ranks ? cli->ranks : 4);

    if (!status)
        status = cli_schedules_load(&schedules, cli, cli->operands[0], 4, dump->rank);
    if (status)
        return status;
    if (dump->place && (status = place(cli, &schedules)))
        goto free_schedules;
    if (dump->format == FORMAT_HTML) {
        /* What is simulated, and traced without NCCL, are messages. */
        status = cli_schedules_write_out(&schedules, cli);
        status = status ? status : write_page(dump, cli, &schedules);
        goto free_schedules;
    }
    status = write_text(dump, &schedules, &text, &length);
    if (status == WEFT_OK && cli->json && dump->format == WEFT_FORMAT_JSON)
        join_lines(text);
    if (status == WEFT_OK) {
        status = write_out(dump, text, length);
    } else {
        status = (status == WEFT_ERR_MEMORY ? cli_fail : cli_usage)(
            "dump", "%s: %s", cli->operands[0], weft_error_text());
    }
    weft_memory_free(text);

free_schedules:
    cli_schedules_free(&schedules);
    return status;
}

static int dump(struct cli *cli)
{
    struct dump dump = {.rank = -1, .run = -1};
    struct weft_cost_model cost;
    int status;

    weft_goal_options_init(&dump.goal);
    if (!cli_parse(cli, &dump))
        status = cli->status;
    else if (!(status = settle(cli, &dump, &cost)))
        status = write_schedules(cli, &dump);
    weft_memory_free(dump.activators);
    return status;
}

static const struct cli_option table[] = {
    {"rank", 'r', CLI_INTEGER, "R", "the schedule of one rank (default: of all)",
     CLI_AT(struct dump, rank), .called = "-r", .most = INT_MAX},
    {"format", 'f', CLI_CHOICE, "FORMAT", "text, json, dot, goal or html", "text",
     CLI_AT(struct dump, format), .words = formats},
    {"output", 'o', CLI_TEXT, "FILE", "where to write it (default: standard output)",
     CLI_AT(struct dump, output)},
    {"place", .help = "with the copies between host and device that a commit adds",
     CLI_AT(struct dump, place)},
    {"transport", 0, CLI_TRANSPORT, "NAME", "whose costs choose the algorithm", "local",
     CLI_AT(struct dump, transport), .uses = CLI_COSTS},
    {"cost", 0, CLI_FILE, "FILE", "costs that choose the algorithm (weft bench model)",
     CLI_AT(struct dump, cost_file)},
    {"activate", 0, CLI_TAKE, "R,R..",
     "goal, html: ranks whose application arrives first (default 0)", .take = take_activate},
    {"compute", 0, CLI_TAKE, "COST",
     "goal, html: microseconds a byte (default 0), or reduce=..,copy=..,call=..; of one of weft's: "
     "project=WRITTEN:READ:PRODUCT",
     .take = take_compute},
    {"net", 0, CLI_TEXT, "L=..,G=..",
     "html: network, as weft sim takes it (default: of the transport)", CLI_AT(struct dump, net)},
    {"trace", 0, CLI_FILE, "FILE", "html: times from a trace instead of a simulation",
     CLI_AT(struct dump, trace)},
    {"run", 0, CLI_INTEGER, "N", "html: which run of the trace, from 0 (default: the last)",
     CLI_AT(struct dump, run), .most = LLONG_MAX},
    {0},
};

const struct cli_spec weft_command_dump = {
    .name = "dump",
    .summary = "the schedule of a template or file, as text, JSON, DOT, GOAL or a page",
    .operands = "TEMPLATE|FILE...",
    .operands_min = 1,
    .operands_max = INT32_MAX,
    .about = "Writes the schedule of a template, or of a schedule file, for one rank or for all "
             "(default: 4 ranks). text and json read back into the same schedule; dot is for "
             "Graphviz; goal is for LogGOPSim, all ranks, with events and signals resolved; html "
             "is a page to look at, of all ranks.",
    .options = table,
    .common = CLI_TEMPLATE,
    .run = dump,
};
