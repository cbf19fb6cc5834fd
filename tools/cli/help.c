/* SPDX-License-Identifier: BSD-3-Clause */
/* The help of a subcommand, for people and as JSON, from the table that parses it. */
#include "tools/cli/cli.h"
#include "tools/cli/parse.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"

#include <stdio.h>
#include <string.h>

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

int cli_section_term(const struct cli_section *section, size_t index, struct cli_term *term)
{
    if (!section->terms)
        return section->term(index, term);
    *term = section->terms[index];
    return term->word != NULL;
}

void cli_print_sections(const struct cli_section *section)
{
    struct cli_term term;

    for (; section && section->title; section++) {
        size_t longest = 0;
        for (size_t i = 0; cli_section_term(section, i, &term); i++)
            longest = strlen(term.word) > longest ? strlen(term.word) : longest;
        printf("%s:\n", section->title);
        for (size_t i = 0; cli_section_term(section, i, &term); i++)
            table_term(stdout, term.word, term.text, help_width(), 2, (int)longest + 4);
        printf("\n");
        if (section->closing) {
            table_paragraph(stdout, section->closing, help_width(), 0, 0);
            printf("\n");
        }
    }
}

static int print_text(const struct cli_spec *spec)
{
    const struct cli_option *tables[CLI_TABLES];

    table_say(0, 7, "usage: weft %s%s%s%s%s", spec->name, spec->operands_last ? " [options]" : "",
              spec->operands ? " " : "", spec->operands ? spec->operands : "",
              spec->operands_last ? "" : " [options]");
    printf("\n");
    table_paragraph(stdout, spec->about, help_width(), 0, 0);
    printf("\n");
    cli_print_sections(spec->sections);
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
    if (option->among)
        json_object_set_new(object, "among", json_string(option->among));
    return object;
}

static json_t *json_sections(const struct cli_section *section)
{
    json_t *sections = json_array();
    struct cli_term term;

    for (; section && section->title; section++) {
        json_t *terms = json_array();
        for (size_t i = 0; cli_section_term(section, i, &term); i++)
            json_array_append_new(terms,
                                  json_pack("{s:s, s:s}", "word", term.word, "text", term.text));
        json_array_append_new(sections,
                              json_pack("{s:s, s:o, s:s}", "title", section->title, "terms", terms,
                                        "closing", section->closing ? section->closing : ""));
    }
    return sections;
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
    return cli_print_json(
        spec->name,
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "command", spec->name, "summary",
                  spec->summary, "operands", spec->operands ? spec->operands : "", "operands_among",
                  spec->operands_among ? spec->operands_among : "", "about", spec->about,
                  "sections", json_sections(spec->sections), "options", options));
}

int cli_help(const struct cli_spec *spec, int json)
{
    return json ? print_json(spec) : print_text(spec);
}
