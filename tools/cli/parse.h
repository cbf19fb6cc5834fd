/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of a subcommand, for parsing and for the help. */
#ifndef WEFT_TOOLS_CLI_PARSE_H
#define WEFT_TOOLS_CLI_PARSE_H

#include "tools/cli/options.h"

enum { CLI_TABLES = 5 };

/** The parameters of templates. */
extern const struct cli_option cli_template_options[];

/** The tables of a subcommand in the order of the help: its own, then the common ones. */
void cli_tables(const struct cli_spec *spec, const struct cli_option *tables[CLI_TABLES]);

/** Term number @p index of a section; 0: there are no more. */
int cli_section_term(const struct cli_section *section, size_t index, struct cli_term *term);

/** Prints sections, an empty line after each. NULL: none. */
void cli_print_sections(const struct cli_section *section);

/** The words that an option may have as its value, NULL-terminated; NULL if it is no choice. */
const char *const *cli_words(const struct cli_option *option);

#endif
