/* SPDX-License-Identifier: BSD-3-Clause */
/* The `weft` command: finds the subcommand in one table and hands over. */
#include "tools/cli/cli.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"

#include <string.h>

/* Every subcommand, in the order of the help: NAME is weft_command_NAME, a struct cli_spec in a
 * file of its own. */
#define COMMANDS(X)                                                                                \
    X(info)                                                                                        \
    X(list)                                                                                        \
    X(dump)                                                                                        \
    X(check)                                                                                       \
    X(run)                                                                                         \
    X(sim)                                                                                         \
    X(groups)                                                                                      \
    X(trace)                                                                                       \
    X(post_mortem)                                                                                 \
    X(bench)                                                                                       \
    X(train)

#define DECLARE(name) extern const struct cli_spec weft_command_##name;
COMMANDS(DECLARE)
#undef DECLARE

#define ENTRY(name) &weft_command_##name,
static const struct cli_spec *const commands[] = {COMMANDS(ENTRY)};
#undef ENTRY

enum { COUNT = sizeof commands / sizeof commands[0] };

static int help_all(void)
{
    printf("weft %s: collective communication written down as graphs\n\n"
           "usage: weft COMMAND [options]\n\n",
           weft_version());
    for (int i = 0; i < COUNT; i++)
        table_term(stdout, commands[i]->name, commands[i]->summary, cli_width(), 2, 15);
    printf("\n");
    table_paragraph(stdout,
                    "weft COMMAND --help (or weft help COMMAND) describes a command. Exit status: "
                    "0 done, 1 it ran and the answer is no, 2 wrong usage or unreadable input.",
                    cli_width() ? cli_width() : 100, 0, 0);
    return cli_finish(NULL);
}

static int unknown(const char *word)
{
    const char *names[COUNT + 1] = {NULL};
    char list[256] = "";
    size_t used = 0;

    for (int i = 0; i < COUNT; i++) {
        names[i] = commands[i]->name;
        if (used < sizeof list) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                     commands[i]->name);
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

static const struct cli_spec *find(const char *word)
{
    for (int i = 0; i < COUNT; i++)
        if (strcmp(word, commands[i]->name) == 0)
            return commands[i];
    return NULL;
}

/* weft help [--json] [COMMAND] */
static int help(int argc, char **argv)
{
    int json = argc > 1 && strcmp(argv[1], "--json") == 0;
    const char *word = argc > 1 + json ? argv[1 + json] : NULL;

    if (argc > 2 + json) {
        return cli_usage(NULL, "unexpected word '%s'; usage: weft help [--json] [COMMAND]",
                         argv[2 + json]);
    }
    if (word && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0))
        return help_all();
    if (word)
        return find(word) ? cli_help(find(word), json) : unknown(word);
    int status = json ? 0 : help_all();
    for (int i = 0; json && i < COUNT && !status; i++)
        status = cli_help(commands[i], 1);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return unknown(NULL);
    const struct cli_spec *command = find(argv[1]);
    if (cli_is_follower() && !(command && command->mpi))
        return CLI_OK; /* under mpiexec, rank 0 prints */
    if (command)
        return cli_run(command, argc - 1, argv + 1);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help_all();
    if (strcmp(argv[1], "help") == 0)
        return help(argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("weft %s\n", weft_version());
        return cli_finish(NULL);
    }
    return unknown(argv[1]);
}
