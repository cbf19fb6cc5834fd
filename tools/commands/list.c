/* SPDX-License-Identifier: BSD-3-Clause */
/* weft list: the templates and objects, one line each; with --algorithms their algorithms and costs
 * as well, and with -n what each is predicted to take, and which would be chosen. */
#include "tools/cli/cli.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"
#include "tools/cli/transports.h"
#include "tools/commands/objects.h"

#include <string.h>
#include <unistd.h>

struct options {
    int algorithms;
    const char *transport;
    const char *cost_file; /* or NULL: the transport's defaults */
};

/* What -n asks for: the time of each algorithm. */
struct prices {
    const struct weft_template_params *params;
    int ranks; /* 0: nobody has asked */
};

/* Entry number @p index of the list: templates, then objects; NULL past the end. */
static const struct weft_template *entry_at(size_t index)
{
    size_t templates = weft_template_count();

    return index < templates ? weft_template_at(index) : object_at(index - templates);
}

/* The object with a name, or the template; NULL with an error text. */
static const struct weft_template *find(const char *name)
{
    for (size_t i = 0; object_at(i); i++)
        if (strcmp(object_at(i)->name, name) == 0)
            return object_at(i);
    return weft_template_find(name);
}

static int is_object(const struct weft_template *template)
{
    for (size_t i = 0; object_at(i); i++)
        if (object_at(i) == template)
            return 1;
    return 0;
}

static json_t *words(const char *text)
{
    json_t *list = json_array();

    while (*text) {
        size_t length = strcspn(text, " ");
        if (length)
            json_array_append_new(list, json_stringn(text, length));
        text += length + (text[length] != '\0');
    }
    return list;
}

/* The algorithm that would be chosen, or NULL: there is no choice of an object, nor of a template
 * that these parameters do not fit. */
static const char *chosen(const struct weft_template *template, const struct prices *prices)
{
    const char *algorithm = NULL;

    if (prices->ranks == 0 || is_object(template) ||
        weft_template_choose(template->name, prices->ranks, prices->params, &algorithm, NULL))
        return NULL;
    return algorithm;
}

/* Microseconds that an algorithm is predicted to take; 0 if it does not serve these parameters. */
static int price(const struct weft_template *template, const char *algorithm,
                 const struct prices *prices, double *us)
{
    struct weft_template_params params = *prices->params;

    params.algo = algorithm;
    return !is_object(template) &&
           weft_template_choose(template->name, prices->ranks, &params, NULL, us) == WEFT_OK;
}

static json_t *algorithm_json(const struct weft_template *template, const struct weft_algorithm *a,
                              const struct prices *prices)
{
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:b}", "name", a->name, "cost", a->cost ? a->cost : "", "notes",
                  a->notes ? a->notes : "", "ordered", a->ordered);
    double us;

    if (prices->ranks > 0)
        json_object_set_new(object, "predicted_us",
                            price(template, a->name, prices, &us) ? json_real(us) : json_null());
    return object;
}

static int print_json(const char *command, const struct weft_template *template, const char *kind,
                      const struct prices *prices)
{
    json_t *algorithms = json_array();

    for (size_t i = 0; i < template->algorithm_count; i++)
        json_array_append_new(algorithms,
                              algorithm_json(template, &template->algorithms[i], prices));
    json_t *line = json_pack("{s:s, s:s, s:o, s:s, s:s, s:s, s:o}", "name", template->name, "kind",
                             kind, "parameters", words(template->parameters), "result",
                             template->result, "summary", template->summary, "cost",
                             template->algorithm_count && template->algorithms[0].cost
                                 ? template->algorithms[0].cost
                                 : "",
                             "algorithms", algorithms);
    if (prices->ranks > 0) {
        const char *algorithm = chosen(template, prices);
        json_object_set_new(line, "ranks", json_integer(prices->ranks));
        json_object_set_new(line, "chosen", algorithm ? json_string(algorithm) : json_null());
    }
    return cli_print_json(command, line);
}

/* A paragraph behind a word, as "  cost: ..."; broken where a terminal ends. */
static void paragraph(int indent, const char *word, const char *text, int width)
{
    char line[1024];

    snprintf(line, sizeof line, "%s%s%s", word ? word : "", word ? ": " : "", text);
    table_paragraph(stdout, line, width, indent, word ? 2 : 0);
}

/* "name", or "name  12.3 us, chosen". */
static void print_name(const struct weft_template *template, const struct weft_algorithm *a,
                       const struct prices *prices)
{
    const char *best = chosen(template, prices);
    double us;

    printf("  %s", a->name);
    if (prices->ranks > 0 && price(template, a->name, prices, &us))
        printf("  %.3g us%s", us, best && !strcmp(best, a->name) ? ", chosen" : "");
    printf("\n");
}

static void print_algorithms(const struct weft_template *template, const struct prices *prices)
{
    int width = cli_width();

    paragraph(0, template->name, template->summary, width);
    paragraph(2, "parameters", template->parameters, width);
    paragraph(2, "result", template->result, width);
    for (size_t i = 0; i < template->algorithm_count; i++) {
        const struct weft_algorithm *a = &template->algorithms[i];
        print_name(template, a, prices);
        paragraph(4, "cost", a->cost ? a->cost : "-", width);
        if (a->notes && *a->notes)
            paragraph(4, NULL, a->notes, width ? width : 100);
    }
    printf("\n");
}

static void add_row(struct table *table, const struct weft_template *template)
{
    const char *cost = template->algorithm_count ? template->algorithms[0].cost : NULL;

    table_cell(table, "%s", template->name);
    table_cell(table, "%s", template->parameters);
    if (template->algorithm_count > 1) {
        table_cell(table, "%s  (%s; %zu more)", cost ? cost : "-", template->algorithms[0].name,
                   template->algorithm_count - 1);
    } else {
        table_cell(table, "%s", cost ? cost : "-");
    }
}

/* The entries from @first to before @last, a line each. */
static int print_table(const char *const headings[3], size_t first, size_t last)
{
    struct table *table = table_create(headings, 3);
    int status = -1;

    for (size_t i = first; table && i < last && entry_at(i); i++)
        add_row(table, entry_at(i));
    if (table)
        status = table_print(table, stdout);
    table_destroy(table);
    return status ? cli_fail("list", "out of memory") : 0;
}

static int print_all(void)
{
    static const char *const templates[] = {"name", "parameters", "cost"};
    static const char *const objects[] = {"object", "settings", "cost of a step"};
    size_t count = weft_template_count();
    int status = print_table(templates, 0, count);

    if (!status) {
        printf("\n");
        status = print_table(objects, count, SIZE_MAX);
    }
    if (!status) {
        printf("\n");
        table_say(0, 0, "weft list NAME describes its result and each of its algorithms.");
    }
    return status;
}

/* The numbers by which algorithms are chosen. */
static void print_costs(const struct options *options, const struct weft_cost_model *cost,
                        const struct prices *prices)
{
    const double mega = 1024 * 1024;
    char text[512];

    snprintf(
        text, sizeof text,
        "On %d ranks, %zu elements, by %s%s%s: alpha %.3g us, %.3g us more beyond %zu bytes, "
        "%.3g us a MiB more up to them; beta %.3g, both ways at once %.3g, gamma %.3g, copy %.3g "
        "us a MiB; node %.3g us; "
        "%zu cores, %.3g us from one rank to another of a core.",
        prices->ranks, prices->params->count, options->transport, options->cost_file ? " of " : "",
        options->cost_file ? options->cost_file : "", cost->alpha_us, cost->rendezvous_us,
        cost->eager_bytes, cost->eager_us_per_byte * mega, cost->beta_us_per_byte * mega,
        (cost->exchange_us_per_byte > 0 ? cost->exchange_us_per_byte : cost->beta_us_per_byte) *
            mega,
        cost->gamma_us_per_byte * mega, cost->copy_us_per_byte * mega, cost->node_us, cost->cores,
        cost->switch_us);
    paragraph(0, NULL, text, cli_width());
    printf("\n");
}

static int list(struct cli *cli)
{
    const char *command = cli->spec->name;
    const struct weft_template *only = NULL;
    struct options options = {0};
    struct weft_cost_model cost;
    int status = 0;

    if (!cli_parse(cli, &options))
        return cli->status;
    const struct prices prices = {.params = &cli->params, .ranks = cli->ranks};
    weft_cost_model_init(&cost, options.transport);
    if (options.cost_file &&
        weft_cost_model_read(options.cost_file, options.transport, &cost, NULL))
        return cli_usage(command, "--cost: %s", weft_error_text());
    if (cost.cores == 0)
        cost.cores = (size_t)sysconf(_SC_NPROCESSORS_ONLN); /* as a context of one host has it */
    cli->params.cost = &cost;
    options.algorithms |= cli->ranks > 0;
    if (cli->operand_count) {
        only = find(cli->operands[0]);
        options.algorithms = 1;
        if (!only)
            return cli_usage(command, "%s", weft_error_text());
    }
    if (!options.algorithms && !cli->json)
        status = print_all();
    if (!cli->json && cli->ranks > 0)
        print_costs(&options, &cost, &prices);
    for (size_t i = 0; (options.algorithms || cli->json) && entry_at(i) && !status; i++) {
        const struct weft_template *template = entry_at(i);
        const char *kind = i < weft_template_count() ? "template" : "object";
        if (only && template != only)
            continue;
        if (cli->json)
            status = print_json(command, template, kind, &prices);
        else
            print_algorithms(template, &prices);
    }
    return status ? status : cli_finish(command);
}

static const struct cli_option table[] = {
    {"algorithms", 'a', .help = "each algorithm with its cost and its notes",
     CLI_AT(struct options, algorithms)},
    {"transport", 0, CLI_TRANSPORT, "NAME", "with -n: whose costs choose", "local",
     CLI_AT(struct options, transport), .uses = CLI_COSTS},
    {"cost", 0, CLI_FILE, "FILE", "with -n: costs that choose (weft bench model)",
     CLI_AT(struct options, cost_file)},
    {0},
};

const struct cli_spec weft_command_list = {
    .name = "list",
    .summary = "the templates, their parameters, algorithms and costs",
    .operands = "[NAME]",
    .operands_max = 1,
    .about =
        "The templates, and the objects that have functions of their own, with their "
        "parameters and their cost: P ranks, m bytes of the whole vector, alpha a message, "
        "beta a byte sent, gamma a byte reduced. With NAME, that one in full. With -n, what each "
        "algorithm is predicted to take for these parameters, and which would be chosen.",
    .options = table,
    .common = CLI_TEMPLATE,
    .run = list,
};
