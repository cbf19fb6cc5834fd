/* SPDX-License-Identifier: BSD-3-Clause */
/* Joint nodes by the names that NCCL has for them. */
#include <weft/nccl.h>

#include "runtime/graph/joint.h"
#include "runtime/graph/schedule.h"

static weft_node_t add(const char *who, struct weft_schedule *schedule, weft_joint_kind_t kind,
                       weft_op_kind_t op, int root, const struct weft_joint *joint,
                       const struct weft_region *to, const struct weft_region *from)
{
    struct weft_joint config;
    int status = weft__schedule_enter(schedule, who);

    if (!status)
        status = weft__joint_read(schedule, who, joint, &config);
    if (status)
        return status;
    config.kind = kind;
    config.op = op;
    config.root = root;
    return weft__schedule_add_joint(schedule, who, &config, to, from);
}

weft_node_t weft_schedule_nccl_allreduce(struct weft_schedule *schedule, weft_op_kind_t op,
                                         struct weft_region to, struct weft_region from,
                                         const struct weft_joint *joint)
{
    return add(__func__, schedule, WEFT_JOINT_FOLD_ALL, op, 0, joint, &to, &from);
}

weft_node_t weft_schedule_nccl_reduce(struct weft_schedule *schedule, weft_op_kind_t op,
                                      struct weft_region to, struct weft_region from, int root,
                                      const struct weft_joint *joint)
{
    return add(__func__, schedule, WEFT_JOINT_FOLD_ONE, op, root, joint, &to, &from);
}

weft_node_t weft_schedule_nccl_broadcast(struct weft_schedule *schedule, struct weft_region region,
                                         int root, const struct weft_joint *joint)
{
    return add(__func__, schedule, WEFT_JOINT_SPREAD, WEFT_SUM, root, joint, &region, &region);
}

weft_node_t weft_schedule_nccl_allgather(struct weft_schedule *schedule, struct weft_region to,
                                         struct weft_region from, const struct weft_joint *joint)
{
    return add(__func__, schedule, WEFT_JOINT_COLLECT, WEFT_SUM, 0, joint, &to, &from);
}

weft_node_t weft_schedule_nccl_reduce_scatter(struct weft_schedule *schedule, weft_op_kind_t op,
                                              struct weft_region to, struct weft_region from,
                                              const struct weft_joint *joint)
{
    return add(__func__, schedule, WEFT_JOINT_FOLD_PARTS, op, 0, joint, &to, &from);
}
