/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Activation: the fragment of a schedule by which a version that somebody has started is started
 * everywhere, though nobody waits for anybody to arrive.
 *
 * Edges are r <-> r XOR 2^i, those that exist among the ranks. The application's event and one
 * event for each edge form a choice; whichever fires first starts the version, and the rank passes
 * it on:
 *
 *     application ----> signals on every edge
 *     edge i      ----> signals on the edges above i          (ranks a power of two)
 *                 ----> signals on every edge but i           (any other number)
 *
 * On a power of two one activator costs P - 1 signals. For other numbers neither pruning nor edges
 * to r + 2^i mod P reach every rank once there are two activators (docs/model.md).
 *
 * Source: Li et al., "Breaking (Global) Barriers in Parallel Stochastic Optimization with
 * Wait-Avoiding Group Averaging" (TPDS 2021), section 3.1.
 */
#ifndef WEFT_ACTIVATION_H
#define WEFT_ACTIVATION_H

#include <weft/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How many edges the ranks need: the smallest n with 2^n >= ranks. Channels 0 .. n - 1 (from the
 *  first channel) carry the signals. */
WEFT_EXPORT int weft_activation_edges(int ranks);

/** The rank at the other end of edge @p edge; -1 if there is none. */
WEFT_EXPORT int weft_activation_peer(int rank, int ranks, int edge);

/**
 * Adds the fragment to a schedule of all ranks.
 * @param channel the first channel.
 * @param started receives a join that ends once the version has been started; may be NULL.
 * @return the application's event, or a negative status.
 */
WEFT_EXPORT weft_node_t weft_activation_add(struct weft_schedule *schedule, uint32_t channel,
                                            weft_node_t *started);

#ifdef __cplusplus
}
#endif

#endif
