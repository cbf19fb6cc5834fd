/* SPDX-License-Identifier: BSD-3-Clause */
/* weft list: the templates and objects, one line each; with --algorithms their algorithms and costs
 * as well. */
#include "tools/cli/cli.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"
#include "tools/commands/objects.h"

#include <string.h>

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

static int print_json(const char *command, const struct weft_template *template, const char *kind)
{
    json_t *algorithms = json_array();

    for (size_t i = 0; i < template->algorithm_count; i++) {
        const struct weft_algorithm *a = &template->algorithms[i];
        json_array_append_new(algorithms,
                              json_pack("{s:s, s:s, s:s, s:b}", "name", a->name, "cost",
                                        a->cost ? a->cost : "", "notes", a->notes ? a->notes : "",
                                        "ordered", a->ordered));
    }
    return cli_print_json(
        command, json_pack("{s:s, s:s, s:o, s:s, s:s, s:s, s:o}", "name", template->name, "kind",
                           kind, "parameters", words(template->parameters), "result",
                           template->result, "summary", template->summary, "cost",
                           template->algorithm_count && template->algorithms[0].cost
                               ? template->algorithms[0].cost
                               : "",
                           "algorithms", algorithms));
}

/* A paragraph behind a word, as "  cost: ..."; broken where a terminal ends. */
static void paragraph(int indent, const char *word, const char *text, int width)
{
    char line[1024];

    snprintf(line, sizeof line, "%s%s%s", word ? word : "", word ? ": " : "", text);
    table_paragraph(stdout, line, width, indent, word ? 2 : 0);
}

static void print_algorithms(const struct weft_template *template)
{
    int width = cli_width();

    paragraph(0, template->name, template->summary, width);
    paragraph(2, "parameters", template->parameters, width);
    paragraph(2, "result", template->result, width);
    for (size_t i = 0; i < template->algorithm_count; i++) {
        const struct weft_algorithm *a = &template->algorithms[i];
        printf("  %s\n", a->name);
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

struct options {
    int algorithms;
};

static int list(struct cli *cli)
{
    const char *command = cli->spec->name;
    const struct weft_template *only = NULL;
    struct options options = {0};
    int status = 0;

    if (!cli_parse(cli, &options))
        return cli->status;
    if (cli->operand_count) {
        only = find(cli->operands[0]);
        options.algorithms = 1;
        if (!only)
            return cli_usage(command, "%s", weft_error_text());
    }
    if (!options.algorithms && !cli->json)
        status = print_all();
    for (size_t i = 0; (options.algorithms || cli->json) && entry_at(i) && !status; i++) {
        const struct weft_template *template = entry_at(i);
        const char *kind = i < weft_template_count() ? "template" : "object";
        if (only && template != only)
            continue;
        if (cli->json)
            status = print_json(command, template, kind);
        else
            print_algorithms(template);
    }
    return status ? status : cli_finish(command);
}

static const struct cli_option table[] = {
    {"algorithms", 'a', .help = "each algorithm with its cost and its notes",
     CLI_AT(struct options, algorithms)},
    {0},
};

const struct cli_spec weft_command_list = {
    .name = "list",
    .summary = "the templates, their parameters, algorithms and costs",
    .operands = "[NAME]",
    .operands_max = 1,
    .about = "The templates, and the objects that have functions of their own, with their "
             "parameters and their cost: P ranks, m bytes of the whole vector, alpha a message, "
             "beta a byte sent, gamma a byte reduced. With NAME, that one in full.",
    .options = table,
    .run = list,
};
