/* SPDX-License-Identifier: BSD-3-Clause */
/* weft launch: processes of this machine that find each other by weft_context_create_world(). */
#include "tools/cli/cli.h"
#include "tools/cli/starter.h"

/* Others that fail for the same reason can say so, or that a peer is gone. */
#define PATIENCE_S 0.2

static int launch(struct cli *cli)
{
    struct starter starter = {.command = cli->spec->name, .patience_s = PATIENCE_S};

    if (!cli_parse(cli, &starter))
        return cli->status;
    if (!starter.ranks)
        return cli_usage(cli->spec->name, "missing -n; usage: weft launch -n P %s",
                         cli->spec->operands);
    starter.words = cli->operands;
    return starter_run(&starter);
}

static const struct cli_option table[] = {
    {"ranks", 'n', CLI_INTEGER, "P", "number of processes", CLI_AT(struct starter, ranks),
     .called = "-n", .least = 1, .most = 1024},
    {"prefix", 'p', .help = "the rank in front of each line that is written",
     CLI_AT(struct starter, prefix)},
    {"bind", 'b', .help = "bind ranks to the cores of this machine, in their order",
     CLI_AT(struct starter, bind)},
    {"keep-going", 'k', .help = "a process that fails or is killed does not end the others",
     CLI_AT(struct starter, keep_going)},
    {"grace", 'g', CLI_REAL, "SECONDS", "from SIGTERM to SIGKILL, where others are ended", "5",
     CLI_AT(struct starter, grace_s), .high = 1e6},
    {"help", 'h', .help = "this text"},
    {0},
};

const struct cli_spec weft_command_launch = {
    .name = "launch",
    .summary = "starts processes on this machine that have a context together",
    .operands = "PROGRAM [ARGUMENT...]",
    .operands_min = 1,
    .operands_max = INT32_MAX,
    .operands_last = 1,
    .each = 1,
    .about =
        "Starts P processes of PROGRAM, in which weft_context_create_world() with transport shared "
        "finds the others; no MPI is needed. Options stand before PROGRAM; rank 0 has the standard "
        "input. Signals are passed on to all processes; a second one that asks them to end ends "
        "those that have not. When one fails, the others get SIGTERM, and SIGKILL if they are "
        "still there after the time of --grace. Exit status: that of the first that failed, 128 + "
        "N if signal N ended it; 127 if there is no such program, 126 if it cannot be executed. "
        "With --keep-going: of the first that ended by itself with another status than 0, else 0 "
        "if one ended well.",
    .options = table,
    .common = CLI_NOTHING,
    .run = launch,
};
