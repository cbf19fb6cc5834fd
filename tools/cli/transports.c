/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/cli/transports.h"

#include <stddef.h>
#include <weft/weft.h>

enum { MOST = 31, SETS = 8 };

static unsigned uses_of(const struct weft_transport *transport)
{
    return (transport->virtual_time ? CLI_VIRTUAL : CLI_RUNS) | (transport->cost ? CLI_COSTS : 0);
}

const char *const *cli_transports(unsigned uses)
{
    static const char *names[SETS][MOST + 1];
    const char **set = names[uses % SETS];
    size_t count = 0;

    for (size_t i = 0; i < weft_transport_count() && count < MOST; i++)
        if (uses_of(weft_transport_at(i)) & uses)
            set[count++] = weft_transport_at(i)->name;
    set[count] = NULL;
    return set;
}

int cli_has_transport(const char *name)
{
    const struct weft_transport *transport = weft_transport_find(name);

    return transport && transport->available;
}

int cli_uses_processes(const char *name)
{
    const struct weft_transport *transport = weft_transport_find(name);

    return transport && transport->processes;
}
