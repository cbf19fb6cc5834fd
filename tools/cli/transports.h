/* SPDX-License-Identifier: BSD-3-Clause */
/* The transports, as options choose one. */
#ifndef WEFT_TOOLS_CLI_TRANSPORTS_H
#define WEFT_TOOLS_CLI_TRANSPORTS_H

#include <weft/cost.h>

/** What a transport is wanted for. */
enum cli_transport_use {
    /** Executing collectives in real time. */
    CLI_RUNS = 1,
    /** Costs that choose algorithms. */
    CLI_COSTS = 2,
    /** Ranks in virtual time. */
    CLI_VIRTUAL = 4,
    /** Executing messages in the order in which they are issued: NCCL, whether this build has it or
     *  not, for what only looks at schedules. */
    CLI_IN_ORDER = 8
};

/** Names of the transports that can be used for one of @p uses, NULL-terminated. Static storage. */
const char *const *cli_transports(unsigned uses);

/** 1 if this build has it. */
int cli_has_transport(const char *name);

/** What messages cost in virtual time on a network, without what ranks do: no copies or sums, and
 *  whoever is on time waits for nothing. Segments and cores stay. */
void cli_network_costs(const struct weft_net *net, struct weft_cost_model *cost);

/** 1 if its ranks are processes, which a launcher starts. */
int cli_uses_processes(const char *name);

#endif
