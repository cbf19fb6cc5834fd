/* SPDX-License-Identifier: BSD-3-Clause */
/* What weft sim says of a fabric, and of what went over its links. */
#ifndef WEFT_TOOLS_COMMANDS_SIM_TRAFFIC_H
#define WEFT_TOOLS_COMMANDS_SIM_TRAFFIC_H

#include "tools/cli/cli.h"

/** Whether a fabric has room for so many ranks. 0, or an exit status after a line. */
int sim_fabric_check(const struct weft_fabric *fabric, const char *command, int ranks);

/** Adds "fabric" and "traffic" to an object, where there is a fabric. */
void sim_traffic_json(const struct weft_fabric *fabric, const struct weft_sim_result *result,
                      json_t *object);

/** Prints the lines "fabric" and "traffic", a line for each level, and the busiest links. */
void sim_traffic_print(const struct weft_fabric *fabric, const struct weft_sim_result *result);

#endif
