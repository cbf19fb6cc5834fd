/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the subcommands of `weft` share: options, numbers, error lines, JSON lines, and getting the
 * schedules of a template or of a file.
 *
 * Wrong usage is one line on standard error, "weft COMMAND: what is wrong; what was expected", and
 * exit status 2.
 */
#ifndef WEFT_TOOLS_CLI_CLI_H
#define WEFT_TOOLS_CLI_CLI_H

#include "tools/cli/options.h"

#include <jansson.h>
#include <stdio.h>
#include <weft/weft.h>

/** Exit statuses: done; it ran and the answer is no; wrong usage or unreadable input. */
enum cli_exit { CLI_OK = 0, CLI_NO = 1, CLI_WRONG = 2 };

/** Most options of a subcommand, common ones and all; most -D. */
enum { CLI_OPTIONS = 96, CLI_DEFINITIONS = 64 };

/** A command line while it is parsed, and what its common options said. */
struct cli {
    const struct cli_spec *spec;
    /** The words as they were typed; [0] is the subcommand. */
    int argc;
    char **argv;
    /** -n, or 0 if it was left out. */
    int ranks;
    int json;
    /** --device, or NULL. */
    const char *device;
    /** Template parameters; texts are borrowed from argv. */
    struct weft_template_params params;
    /** --counts, of which cli_template_build() gives each rank its share. Freed by cli_run(). */
    size_t *counts;
    size_t count_count;
    /** --bits, --bucket and --norm; params.quantiser is it. */
    struct weft_quantiser quantiser;
    /** --layers and --merge, and what cli_settle_layers() makes of them. */
    const char *layers;
    const char *merge;
    struct cli_merged *merged;
    /** -D: parameters of a schedule file; values are borrowed from argv, or are in `scaled`. */
    struct weft_parameter definitions[CLI_DEFINITIONS];
    char defined[CLI_DEFINITIONS][64];
    char scaled[CLI_DEFINITIONS][24]; /* those with k, M or G, as numbers */
    size_t definition_count;
    /** Words that are no options. */
    char **operands;
    int operand_count;
    /** What to exit with if cli_parse() returned 0. */
    int status;
    /** Set by a command that tells itself of nodes that no schedule can have; else NULL. */
    struct weft_read_refusal *refusal;
    /* private: argv in the order of getopt; the entries of the tables, and which were typed */
    char **words;
    const struct cli_option *options[CLI_OPTIONS];
    const char *typed[CLI_OPTIONS];
    size_t option_count;
};

/** Runs a subcommand; argv[0] is its name. Returns the exit status. */
int cli_run(const struct cli_spec *spec, int argc, char **argv);

/**
 * Sets the fields of @p target (which the subcommand's own table speaks of; NULL if that has none)
 * to their defaults, then to what was typed. 1: go on; 0: the command is over (--help, wrong
 * usage), with cli->status.
 */
int cli_parse(struct cli *cli, void *target);

/** Sets the fields of @p target that a table has defaults for. 0, or an exit status. */
int cli_defaults(const struct cli_option *table, const char *command, void *target);

/** The value of option @p name as it was typed; "" if it takes none; NULL: it was not typed. */
const char *cli_typed(const struct cli *cli, const char *name);

/** Prints the help of a subcommand; with @p json its table as one JSON object. Returns an exit
 *  status. */
int cli_help(const struct cli_spec *spec, int json);

/** Prints "weft COMMAND: ..." as one line on standard error (command NULL: "weft: ..."), on the
 *  first rank only if a launcher started this process. Returns CLI_WRONG. */
int cli_usage(const char *command, const char *format, ...) WEFT_PRINTF(2, 3);

/** As cli_usage() for what failed while it ran. Returns CLI_NO. */
int cli_fail(const char *command, const char *format, ...) WEFT_PRINTF(2, 3);

/**
 * Numbers. Each returns 0, or CLI_WRONG after a line that names @p option (as typed: "--count",
 * "-n") and what was expected. Sizes take the suffixes k, M, G (powers of 1024).
 */
int cli_size(const char *command, const char *option, const char *text, size_t *value);
int cli_integer(const char *command, const char *option, const char *text, long long least,
                long long most, long long *value);
int cli_real(const char *command, const char *option, const char *text, double least, double most,
             double *value);

/** Most operations with costs of their own. */
enum { CLI_OP_COSTS = 16 };

/** Costs of operations, for weft_sim_config.op_costs. */
struct cli_op_costs {
    struct weft_sim_op_cost at[CLI_OP_COSTS];
    char names[CLI_OP_COSTS][64];
    size_t count;
};

/**
 * The value of --compute, microseconds a byte: "0.001" (reductions and calls), or
 * "reduce=0.001,copy=0,call=0" in any order; what is not named is left as it is. Operations of
 * weft/compress.h and weft/sparse.h have costs of their own, "project=WRITTEN:READ:PRODUCT", which
 * are added to @p costs (NULL: refused). 0 or an exit status.
 */
int cli_compute(const char *command, const char *text, double *reduce, double *copy, double *call,
                struct cli_op_costs *costs);

/** The value of --activate, ranks as "0,5,7", in an array that replaces and frees the one before
 *  (or NULL) and is freed with weft_memory_free(), also after an error. 0 or an exit status. */
int cli_activators(const char *command, const char *text, int **ranks, size_t *count);

/** The value of --fire, "LABEL=US", "NODE=US" or either with "@RANK" behind it, as one more entry
 *  of a list that is freed with cli_firings_free(), also after an error. 0 or an exit status. */
int cli_firing(const char *command, const char *text, struct weft_sim_firing **firings,
               size_t *count);
void cli_firings_free(struct weft_sim_firing *firings, size_t count);

/** The word of @p words (NULL-terminated) nearest to @p word, or NULL if none is near. */
const char *cli_nearest(const char *word, const char *const *words);

/** Number of @p word in @p words (NULL-terminated); -1 after a line that lists them. */
int cli_choice(const char *command, const char *option, const char *word, const char *const *words);

/** Prints @p object as one line on standard output, and takes it. 0, or CLI_WRONG after a line. */
int cli_print_json(const char *command, json_t *object);

/** The same with numbers of @p digits figures, not 9: for those that somebody computes after. */
int cli_print_json_exactly(const char *command, json_t *object, int digits);

/** Flushes standard output. 0, or CLI_WRONG after a line if something could not be written. */
int cli_finish(const char *command);

/** 1 if this process is not the first of those that mpiexec or weft launch started. */
int cli_is_follower(void);

/** From now on this process is none of several, whoever started it, for cli_is_follower(). */
void cli_follow_nobody(void);

/** The schedules of a template or file, in ascending rank. */
struct cli_schedules {
    struct weft_schedule **at;
    size_t count;
    /** Ranks of the collective: `count` unless a file holds only some of them. */
    int size;
    /** 1: from a file. */
    int file;
};

/**
 * Builds the schedules of template or file @p name for -n ranks (left out: @p fallback for a
 * template and a file of any size, else what the file says). @p only: one rank's alone, or -1.
 * @return 0, or the exit status after a line.
 */
int cli_schedules_load(struct cli_schedules *schedules, const struct cli *cli, const char *name,
                       int fallback, int only);
void cli_schedules_free(struct cli_schedules *schedules);

/** Makes messages of a file's joint nodes (weft_schedule_write_out()). 0, or the exit status after
 *  a line. */
int cli_schedules_write_out(struct cli_schedules *schedules, const struct cli *cli);

/** The value of --counts, for the table of options. */
int cli_take_counts(void *target, const char *command, const char *text);

/** Refuses a list of --counts with more numbers than template @p name has blocks on @p size ranks.
 *  0, or CLI_WRONG after a line. */
int cli_check_counts(const struct cli *cli, const char *name, int size);

/** As weft_template_build(), with @p params and the rank's share of --counts. Any thread. */
int cli_template_build(const struct cli *cli, const struct weft_template_params *params,
                       const char *name, int rank, int size, struct weft_schedule **schedule);

/**
 * Takes --layers and --merge, if template @p name has layers: reads the table, and plans the groups
 * for @p size ranks by cli->params.cost and its algorithm. Before the template is built. 0, or an
 * exit status after a line.
 */
int cli_settle_layers(struct cli *cli, const char *name, int size);
void cli_merged_free(struct cli_merged *merged);

/** Puts the times of the layers before a list that cli_firing() has made. 0, or an exit status
 *  after a line. */
int cli_layer_firings(const struct cli *cli, struct weft_sim_firing **firings, size_t *count);

/** Refuses a template whose schedules of @p count of @p size ranks cannot fit, by smaller ones of
 *  it; @p count 0: whose simulation cannot. 0, or CLI_WRONG after a line. */
int cli_check_memory(const struct cli *cli, const char *name, int size, size_t count);

#endif
