/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that a command reads: no device, and none that has no end. */
#ifndef WEFT_TOOLS_CLI_FILES_H
#define WEFT_TOOLS_CLI_FILES_H

#include <stddef.h>

/** Refuses devices, before anything reads them. What else is wrong with a file is for its reader to
 *  say. @p option: "--cost", or NULL. 0, or CLI_WRONG after a line. */
int cli_check_file(const char *command, const char *option, const char *path);

/**
 * The whole of a file ("-": standard input), NUL-terminated, freed with free(). @p what: "a
 * schedule file". NULL after a line; the exit status is CLI_WRONG then.
 */
char *cli_read_file(const char *command, const char *path, const char *what, size_t *length);

/** Where @p name of what comes with the command ("optdigits", "layers/vgg16.json") lies: from where
 *  the command is, else in the source tree, there or not. Returns @p storage. */
const char *cli_data_path(const char *name, char *storage, size_t size);

#endif
