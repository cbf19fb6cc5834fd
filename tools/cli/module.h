/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Modules of the command: libraries that are loaded when what they know is asked for, so that the
 * command works where it is missing. Each has one symbol, a struct that begins with weft's version
 * and the struct's size.
 */
#ifndef WEFT_TOOLS_CLI_MODULE_H
#define WEFT_TOOLS_CLI_MODULE_H

#include <stddef.h>

struct cli_module {
    /** "command-mpi.so": beside the command, or where it was installed. */
    const char *file;
    const char *symbol;
    /** Of the struct. */
    size_t size;
    /** For who has it not: "runs the command over MPI", "MPI". */
    const char *does;
    const char *needs;
};

/** The first of some files that can be read, NULL-terminated, seen from the folder of the command.
 *  1, with its path; 0: there is none. */
int cli_find_beside(const char *const *places, char *path, size_t room);

/** Loads a module; it stays. @return what its symbol is, or NULL with @p why: cut at @p room. */
const void *cli_load_module(const struct cli_module *module, char *why, size_t room);

#endif
