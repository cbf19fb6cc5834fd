/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/cli/transports.h"

#include <stddef.h>
#include <string.h>
#include <weft/weft.h>

enum { MOST = 31, SETS = 16 };

static const char IN_ORDER[] = "nccl";

static int has(const char *const *set, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(set[i], name))
            return 1;
    return 0;
}

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
    if (uses & CLI_IN_ORDER && count < MOST && !has(set, count, IN_ORDER))
        set[count++] = IN_ORDER;
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

void cli_network_costs(const struct weft_net *net, struct weft_cost_model *cost)
{
    *cost = (struct weft_cost_model){.struct_size = cost->struct_size,
                                     .alpha_us = net->L + 2 * net->o,
                                     .beta_us_per_byte = net->G,
                                     .segment_bytes = cost->segment_bytes,
                                     .cores = cost->cores,
                                     .switch_us = cost->switch_us};
}
