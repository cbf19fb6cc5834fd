/* SPDX-License-Identifier: BSD-3-Clause */
/* The help of a subcommand, for people and as JSON, from the table that parses it. */
#include "tools/cli/cli.h"
#include "tools/cli/parse.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"

#include <stdio.h>

enum { HELP_COLUMN = 29, HELP_WIDTH = 100 };

static int help_width(void)
{
    return cli_width() ? cli_width() : HELP_WIDTH;
}

static void print_option(const struct cli_option *option)
{
    char left[64];
    char text[512];

    snprintf(left, sizeof left, "%s%c%s--%s%s%s", option->letter ? "-" : " ",
             option->letter ? option->letter : ' ', option->letter ? ", " : "  ", option->name,
             option->value ? " " : "", option->value ? option->value : "");
    snprintf(text, sizeof text, "%s%s%s%s", option->help, option->fallback ? " (default " : "",
             option->fallback ? option->fallback : "", option->fallback ? ")" : "");
    table_term(stdout, left, text, help_width(), 2, HELP_COLUMN);
}

static int print_text(const struct cli_spec *spec)
{
    const struct cli_option *tables[CLI_TABLES];

    table_say(0, 7, "usage: weft %s%s%s [options]", spec->name, spec->operands ? " " : "",
              spec->operands ? spec->operands : "");
    printf("\n");
    table_paragraph(stdout, spec->about, help_width(), 0, 0);
    printf("\n");
    if (spec->more)
        spec->more();
    cli_tables(spec, tables);
    for (int t = 0; t < CLI_TABLES; t++) {
        for (const struct cli_option *option = tables[t]; option->name; option++)
            if (option->help)
                print_option(option);
    }
    return cli_finish(spec->name);
}

/* The kinds, as JSON calls them. */
static const char *kind_of(const struct cli_option *option)
{
    switch (option->kind) {
    case CLI_FLAG:
        return "flag";
    case CLI_INTEGER:
        return "integer";
    case CLI_SIZE:
        return "size";
    case CLI_REAL:
        return "number";
    case CLI_DURATION:
        return "duration";
    case CLI_FILE:
        return "file";
    case CLI_CHOICE:
    case CLI_WORD:
    case CLI_TRANSPORT:
    case CLI_DTYPE:
    case CLI_OP:
        return "choice";
    default:
        return "text";
    }
}

static json_t *json_option(const struct cli_option *option)
{
    const char *const *words = cli_words(option);
    json_t *object = json_pack("{s:s, s:s, s:s}", "name", option->name, "kind", kind_of(option),
                               "help", option->help);

    if (option->letter)
        json_object_set_new(object, "letter", json_stringn(&option->letter, 1));
    if (option->value)
        json_object_set_new(object, "value", json_string(option->value));
    if (option->fallback)
        json_object_set_new(object, "default", json_string(option->fallback));
    if (words) {
        json_t *list = json_array();
        for (; *words; words++)
            json_array_append_new(list, json_string(*words));
        json_object_set_new(object, "choices", list);
    }
    return object;
}

static int print_json(const struct cli_spec *spec)
{
    const struct cli_option *tables[CLI_TABLES];
    json_t *options = json_array();

    cli_tables(spec, tables);
    for (int t = 0; t < CLI_TABLES; t++) {
        for (const struct cli_option *option = tables[t]; option->name; option++)
            if (option->help)
                json_array_append_new(options, json_option(option));
    }
    return cli_print_json(spec->name,
                          json_pack("{s:s, s:s, s:s, s:s, s:o}", "command", spec->name, "summary",
                                    spec->summary, "operands", spec->operands ? spec->operands : "",
                                    "about", spec->about, "options", options));
}

int cli_help(const struct cli_spec *spec, int json)
{
    return json ? print_json(spec) : print_text(spec);
}
