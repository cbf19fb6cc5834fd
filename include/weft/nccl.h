/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Collectives of NCCL as nodes of schedules: joint nodes (weft/joint.h) by NCCL's names. So a
 * hierarchical schedule uses NCCL among the devices of a host, and messages between hosts.
 *
 *     weft_joint_init(&host);
 *     host.ranks = (const int[]){0, 1, 2, 3}, host.rank_count = 4;
 *     sum = weft_schedule_nccl_reduce(schedule, WEFT_SUM, all, all, 0, &host);
 *     ... rank 0 exchanges `all` with other hosts, after `sum`
 *     back = weft_schedule_nccl_broadcast(schedule, all, 0, &host);
 *     weft_schedule_add_order(schedule, exchanged, back);
 *
 * All of a group add the same call, in orders that need not be the same: what meets is what has the
 * same group and tag. Runs are created with weft_run_config.nccl, WEFT_NCCL_KNOWN or
 * WEFT_NCCL_IN_ORDER, and tell there if nodes would wait for each other in a circle, as
 * `weft check --transport nccl` does. Anywhere else weft_schedule_write_out() makes messages of
 * them. NCCL is not needed to build a schedule, nor to include this; it has been written for NCCL
 * 2.14 to 2.28 (its user guide, "Collective Communication Functions").
 *
 * All functions return the node, or a negative status, as all errors of a builder.
 */
#ifndef WEFT_NCCL_H
#define WEFT_NCCL_H

#include <weft/joint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * ncclAllReduce: @p to = combination of all ranks' @p from, element by element.
 * @param op WEFT_SUM, WEFT_PROD, WEFT_MIN or WEFT_MAX; NCCL has no 16-bit integers.
 * @param to of as many elements, and may be the same region.
 * @param joint of which `ranks`, `rank_count` and `tag` are looked at: the i-th of its ranks has
 *        rank i in the communicator. NULL: all ranks, tag 0. So for all that follow.
 */
WEFT_EXPORT weft_node_t weft_schedule_nccl_allreduce(struct weft_schedule *schedule,
                                                     weft_op_kind_t op, struct weft_region to,
                                                     struct weft_region from,
                                                     const struct weft_joint *joint);

/** ncclReduce: the same, but only rank @p root of the schedule gets it; @p to is looked at there
 *  alone. */
WEFT_EXPORT weft_node_t weft_schedule_nccl_reduce(struct weft_schedule *schedule, weft_op_kind_t op,
                                                  struct weft_region to, struct weft_region from,
                                                  int root, const struct weft_joint *joint);

/** ncclBroadcast, in place: @p region of all becomes what it is on rank @p root of the schedule. */
WEFT_EXPORT weft_node_t weft_schedule_nccl_broadcast(struct weft_schedule *schedule,
                                                     struct weft_region region, int root,
                                                     const struct weft_joint *joint);

/**
 * ncclAllGather: @p to = @p from of the first of the group, then of the second, and so on.
 * @param to of as many times more elements. In place where @p from is this rank's part of it, or
 *        the same region.
 */
WEFT_EXPORT weft_node_t weft_schedule_nccl_allgather(struct weft_schedule *schedule,
                                                     struct weft_region to, struct weft_region from,
                                                     const struct weft_joint *joint);

/**
 * ncclReduceScatter: the i-th of a group of n gets the i-th of n equal parts of the combination of
 * all ranks' @p from, in @p to.
 * @param from of as many times more elements. In place where @p to is this rank's part of it, or
 *        the same region; what is in the other parts is undefined afterwards.
 */
WEFT_EXPORT weft_node_t weft_schedule_nccl_reduce_scatter(struct weft_schedule *schedule,
                                                          weft_op_kind_t op, struct weft_region to,
                                                          struct weft_region from,
                                                          const struct weft_joint *joint);

#ifdef __cplusplus
}
#endif

#endif
