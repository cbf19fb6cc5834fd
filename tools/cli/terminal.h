/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a terminal is told: how wide it is, a line of progress that is written over, and what
 * becomes of it when the user interrupts. No escape sequences are used.
 */
#ifndef WEFT_TOOLS_CLI_TERMINAL_H
#define WEFT_TOOLS_CLI_TERMINAL_H

#include <weft/status.h>

/** Columns of the terminal that standard output is: COLUMNS, else what it says of itself, else 80.
 *  0: it is no terminal, and lines may be as long as they are. */
int cli_width(void);

/** 1 if lines of progress are shown: standard error is a terminal, and no dumb one. */
int cli_shows_progress(void);

/** Shows a line on standard error in the place of the one before, cut to the terminal's width;
 *  nothing where none is shown. One thread at a time. SIGINT and SIGTERM erase it before they end
 *  the process. */
void cli_progress(const char *format, ...) WEFT_PRINTF(1, 2);

/** Erases the line. */
void cli_progress_end(void);

/** From now on the first SIGINT or SIGTERM is only noted; the second ends the process at once. */
void cli_catch_signals(void);

/** The signal that was noted, or 0. From any thread. */
int cli_caught_signal(void);

#endif
