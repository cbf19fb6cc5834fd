/* SPDX-License-Identifier: BSD-3-Clause */
/* weft list: the templates and objects, one line each; with --algorithms their algorithms and costs
 * as well. */
#include "tools/cli/cli.h"
#include "tools/commands/objects.h"

#include <string.h>

enum { OPTION_ALGORITHMS = 1 };

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

/* The width of the longest name and of the longest list of parameters of some entries. */
static void widths(size_t first, size_t last, int *name, int *parameters)
{
    *name = (int)strlen("name");
    *parameters = (int)strlen("parameters");
    for (size_t i = first; i < last && entry_at(i); i++) {
        int n = (int)strlen(entry_at(i)->name);
        int p = (int)strlen(entry_at(i)->parameters);
        *name = n > *name ? n : *name;
        *parameters = p > *parameters ? p : *parameters;
    }
}

/* Prints @text in lines of at most 100 columns, each with @indent blanks before it. */
static void wrap(const char *text, int indent)
{
    int column = 0;

    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > 0 && column + 1 + length > 100) {
            printf("\n");
            column = 0;
        }
        column +=
            column ? printf(" %.*s", length, text) : printf("%*s%.*s", indent, "", length, text);
        text += length + (text[length] == ' ');
    }
    printf("\n");
}

static void print_algorithms(const struct weft_template *template)
{
    printf("%s: %s\n  parameters: %s\n  result: %s\n", template->name, template->summary,
           template->parameters, template->result);
    for (size_t i = 0; i < template->algorithm_count; i++) {
        const struct weft_algorithm *a = &template->algorithms[i];
        printf("  %s\n    cost: %s\n", a->name, a->cost ? a->cost : "-");
        if (a->notes && *a->notes)
            wrap(a->notes, 4);
    }
    printf("\n");
}

static void print_line(const struct weft_template *template, int name, int parameters)
{
    const char *cost = template->algorithm_count ? template->algorithms[0].cost : NULL;

    printf("%-*s  %-*s  %s", name, template->name, parameters, template->parameters,
           cost ? cost : "-");
    if (template->algorithm_count > 1)
        printf("  (%s; %zu more)", template->algorithms[0].name, template->algorithm_count - 1);
    printf("\n");
}

int weft_cmd_list(int argc, char **argv)
{
    static const struct cli_option options[] = {
        {"algorithms", 'a', OPTION_ALGORITHMS, NULL, "each algorithm with its cost and its notes"},
        {0},
    };
    static const struct cli_spec spec = {
        .name = "list",
        .operands = "[NAME]",
        .operands_max = 1,
        .about =
            "The templates, and the objects that have functions of their own, with their "
            "parameters and their\ncost: P ranks, m bytes of the whole vector, alpha a message, "
            "beta a byte sent, gamma a byte reduced.\nWith NAME, that one in full.",
        .options = options,
    };
    struct cli cli;
    int full = 0;
    int status;

    cli_begin(&cli, &spec, argc, argv);
    while ((status = cli_next(&cli)) != CLI_DONE) {
        if (status == CLI_STOP)
            return cli.status;
        full = 1;
    }
    const struct weft_template *only = NULL;
    if (cli.operand_count) {
        only = find(cli.operands[0]);
        full = 1;
        if (!only)
            return cli_usage(spec.name, "%s", weft_error_text());
    }
    int name, parameters;
    widths(0, weft_template_count(), &name, &parameters);
    if (!full && !cli.json)
        printf("%-*s  %-*s  %s\n", name, "name", parameters, "parameters", "cost");
    for (size_t i = 0; entry_at(i); i++) {
        const struct weft_template *template = entry_at(i);
        if (only && template != only)
            continue;
        if (cli.json) {
            const char *kind = i < weft_template_count() ? "template" : "object";
            if (print_json(spec.name, template, kind))
                return CLI_WRONG;
        } else if (full) {
            print_algorithms(template);
        } else {
            if (i == weft_template_count()) {
                widths(i, SIZE_MAX, &name, &parameters);
                printf("\n%-*s  %-*s  cost of a step\n", name, "object", parameters, "settings");
            }
            print_line(template, name, parameters);
        }
    }
    if (!full && !cli.json)
        printf("\nweft list NAME describes its result and each of its algorithms.\n");
    return cli_finish(spec.name);
}
