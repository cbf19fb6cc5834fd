/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The options of a subcommand as one table: an entry says what an option is called, what its value
 * may be, which field it sets and what the help says of it. Parsing, the help, spelling suggestions
 * and `weft help --json` (for whatever is generated: pages of a manual, completions of a shell)
 * read the same table.
 */
#ifndef WEFT_TOOLS_CLI_OPTIONS_H
#define WEFT_TOOLS_CLI_OPTIONS_H

#include <stddef.h>

/** What the value of an option is, and the type of the field that it sets. */
enum cli_kind {
    /** No value; int: 1. */
    CLI_FLAG,
    /** An integer from `least` to `most`; any integer type of 32 or 64 bits. */
    CLI_INTEGER,
    /** A number from 0, with k, M or G after it; size_t. */
    CLI_SIZE,
    /** A number from `low` to `high`, times `scale`; double. */
    CLI_REAL,
    /** The same; uint64_t. For times: `scale` is the nanoseconds of the unit that is typed. */
    CLI_DURATION,
    /** Any text; const char *, borrowed from the command line. */
    CLI_TEXT,
    /** The name of a file that is read; const char *. Refused at once if it cannot be read, or may
     *  have no end. */
    CLI_FILE,
    /** One of `words`; its number, of type int or an enumeration. */
    CLI_CHOICE,
    /** One of `words`; the word, const char *. */
    CLI_WORD,
    /** A transport that can do what `uses` says; its name, const char *. */
    CLI_TRANSPORT,
    /** weft_dtype_t. */
    CLI_DTYPE,
    /** const struct weft_op *: a built-in one. */
    CLI_OP,
    /** What take() reads. */
    CLI_TAKE
};

/** An option. A table of them ends with one whose name is NULL. */
struct cli_option {
    /** Long name, without dashes. */
    const char *name;
    /** Short name, or 0. */
    char letter;
    enum cli_kind kind;
    /** Name of its value in the help; NULL: takes none. */
    const char *value;
    /** One line. NULL: not in the help. */
    const char *help;
    /** The default, read as if it were typed, and shown in the help; NULL: what the field holds. */
    const char *fallback;
    /** The field: CLI_AT(). */
    size_t field;
    size_t width;
    /** As its errors call it; NULL: by its long name. */
    const char *called;
    long long least;
    long long most;
    double low;
    double high;
    /** 0: 1. */
    double scale;
    /** NULL-terminated. */
    const char *const *words;
    /** Title of the section of the help whose words it takes, several separated by commas. */
    const char *among;
    /** CLI_TRANSPORT: bits of enum cli_transport_use. */
    unsigned uses;
    /** Reads @p text into @p target, what the fields belong to. 0, or an exit status after a line.
     *  */
    int (*take)(void *target, const char *command, const char *text);
};

/** Field @p member of struct @p type, for an entry of a table. */
#define CLI_AT(type, member)                                                                       \
    .field = offsetof(type, member), .width = sizeof(((type *)NULL)->member)

/** A word and what it means. */
struct cli_term {
    const char *word;
    const char *text;
};

/** A part of the help between its first paragraph and its options. A table of them ends with one
 *  whose title is NULL. */
struct cli_section {
    const char *title;
    /** Ends with one whose word is NULL. NULL: as term() says. */
    const struct cli_term *terms;
    /** Fills in a term; 0: there are no more. Its texts live as long as the program. */
    int (*term)(size_t index, struct cli_term *term);
    /** A paragraph below the terms, or NULL. */
    const char *closing;
};

/** What a subcommand accepts, and what it does. */
struct cli;
struct cli_spec {
    const char *name;
    /** One line for the list of subcommands. */
    const char *summary;
    /** Words after the options: "TEMPLATE", "[NAME]"; NULL: none. */
    const char *operands;
    int operands_min;
    int operands_max;
    /** 1: options stand before the first of them, what follows is another program's. */
    int operands_last;
    /** A paragraph for the help, without line ends. */
    const char *about;
    /** Further parts of the help; or NULL. */
    const struct cli_section *sections;
    /** Title of the section whose words its operands are; or NULL. */
    const char *operands_among;
    /** Its own; their fields are in what it hands to cli_parse(). */
    const struct cli_option *options;
    /** Which common options it accepts as well: enum cli_common. */
    int common;
    /** 1: all processes that a launcher started may take part; 0: the first one alone.
     *  */
    int mpi;
    /** 1: each process that a launcher started does all of it, by itself. */
    int each;
    /** Parses and does it. Returns the exit status. */
    int (*run)(struct cli *cli);
};

/** CLI_NOTHING: not even --json; CLI_RANKS: -n; CLI_TEMPLATE: the parameters of templates as well.
 */
enum cli_common { CLI_NOTHING = -1, CLI_NO_RANKS, CLI_RANKS, CLI_TEMPLATE };

#endif
