/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/cli/transports.h"

#include <stddef.h>
#include <string.h>
#include <weft/weft.h>

static const struct {
    const char *name;
    unsigned uses;
} transports[] = {
    {"local", CLI_RUNS | CLI_COSTS},
    {"mpi", CLI_RUNS | CLI_COSTS},
    {"virtual", CLI_VIRTUAL},
};

enum { TRANSPORTS = sizeof transports / sizeof transports[0], SETS = 8 };

const char *const *cli_transports(unsigned uses)
{
    static const char *names[SETS][TRANSPORTS + 1];
    const char **set = names[uses % SETS];
    size_t count = 0;

    for (size_t i = 0; i < TRANSPORTS; i++)
        if (transports[i].uses & uses)
            set[count++] = transports[i].name;
    return set;
}

int cli_has_transport(const char *name)
{
    for (const char *const *known = weft_transports(); *known; known++)
        if (strcmp(*known, name) == 0)
            return 1;
    return strcmp(name, "virtual") == 0;
}
