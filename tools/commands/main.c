/* SPDX-License-Identifier: BSD-3-Clause */
/* The `weft` command: finds the subcommand in one table and hands over. */
#include "tools/cli/cli.h"

#include <string.h>

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
    int mpi; /* may run over MPI: all ranks that mpiexec started take part */
};

static const struct command commands[] = {
    {"info", weft_cmd_info, "what this build and this machine have", 0},
    {"list", weft_cmd_list, "the templates, their parameters, algorithms and costs", 0},
    {"dump", weft_cmd_dump,
     "the schedule of a template or file, as text, JSON, DOT, GOAL or a page", 0},
    {"check", weft_cmd_check, "what is wrong with a template or file, before it runs", 0},
    {"run", weft_cmd_run, "executes a template or a schedule file", 1},
    {"sim", weft_cmd_sim, "simulates a template or a schedule file on a network", 0},
    {"groups", weft_cmd_groups, "the groups that average together in a version", 0},
    {"trace", weft_cmd_trace, "merges traces of ranks into one", 0},
    {"post-mortem", weft_cmd_post_mortem, "why a program hangs, from what its ranks left", 0},
    {"bench", weft_cmd_bench, "measurements, each beside its peer and its limit", 1},
    {"train", weft_cmd_train, "the demonstration trainer", 1},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static int help(void)
{
    printf("weft %s: collective communication written down as graphs\n\n"
           "usage: weft COMMAND [options]\n\n",
           weft_version());
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-13s%s\n", commands[i].name, commands[i].summary);
    printf(
        "\nweft COMMAND --help describes a command. Exit status: 0 done, 1 it ran and the answer "
        "is no,\n2 wrong usage or unreadable input.\n");
    return cli_finish(NULL);
}

static int unknown(const char *word)
{
    const char *names[COMMANDS + 1] = {NULL};
    char list[256] = "";
    size_t used = 0;

    for (int i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
        if (used < sizeof list) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                     commands[i].name);
        }
    }
    if (!word)
        return cli_usage(NULL, "no command; expected one of %s (see weft --help)", list);
    const char *near = cli_nearest(word, names);
    if (near) {
        return cli_usage(NULL, "unknown command '%s', did you mean '%s'? Expected one of %s", word,
                         near, list);
    }
    return cli_usage(NULL, "unknown command '%s'; expected one of %s", word, list);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return unknown(NULL);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return help();
    if (strcmp(argv[1], "--version") == 0) {
        printf("weft %s\n", weft_version());
        return cli_finish(NULL);
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            if (cli_is_follower() && !commands[i].mpi)
                return CLI_OK; /* under mpiexec, rank 0 prints */
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    return unknown(argv[1]);
}
