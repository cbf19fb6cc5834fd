/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What calls of operations cost in a model (struct weft_sim_op_cost), for all that works with such
 * models: the simulator, and GOAL.
 */
#ifndef WEFT_RUNTIME_GRAPH_OP_PRICE_H
#define WEFT_RUNTIME_GRAPH_OP_PRICE_H

#include "runtime/graph/schedule.h"

#include <weft/sim.h>

/* A caller's `op_costs`. WEFT_OK, or a status with its text. */
int weft__op_prices_check(const char *who, const struct weft_sim_op_cost *costs, size_t count);
/* The entry of a compute node's operation, or NULL. */
const struct weft_sim_op_cost *weft__op_price_find(const struct weft_sim_op_cost *costs,
                                                   size_t count, const struct weft__snode *node);
/* What it costs by that, in microseconds. */
double weft__op_price_us(const struct weft_sim_op_cost *cost, const struct weft_schedule *s,
                         const struct weft__snode *node);

#endif
