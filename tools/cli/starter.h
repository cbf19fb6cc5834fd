/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts the processes of a launch on this machine, and sees to it that they end. */
#ifndef WEFT_TOOLS_CLI_STARTER_H
#define WEFT_TOOLS_CLI_STARTER_H

struct starter {
    /** The subcommand, for lines on standard error. */
    const char *command;
    int ranks;
    /** Program and arguments, ended by NULL; the program is looked for in PATH. */
    char **words;
    /** 1: each line that a rank writes gets its number in front. */
    int prefix;
    /** 1: ranks to cores of this machine, in their order. */
    int bind;
    /** 1: one that fails does not end the others. */
    int keep_going;
    /** 1: only a rank that a signal has ended is worth a line. */
    int quiet;
    /** From the first failure to SIGTERM, if others have not ended by themselves. */
    double patience_s;
    /** From SIGTERM to SIGKILL. */
    double grace_s;
};

/**
 * Runs them, until all have ended. Standard input is rank 0's, the others have none. Signals that
 * are sent to this process go to all of them. None outlives this process, whatever ends it.
 * @return the exit status: 0 if none has failed, else that of the first that did, 128 + N if signal
 *         N has ended it; 127: there is no such program, 126: it cannot be executed, after a line.
 *         With keep_going: of the first that has ended by itself with another status than 0; 0 if
 *         one has ended well; else as without it.
 */
int starter_run(const struct starter *starter);

#endif
