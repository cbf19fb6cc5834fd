/* SPDX-License-Identifier: BSD-3-Clause */
/* What the order of issue has to know of a plan: runtime/graph/issue.h. */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/graph/op.h"
#include "runtime/plan/plan.h"

static struct weft__issue_node node_of(const struct weft_plan *plan, uint32_t index)
{
    const struct weft__node *node = &plan->nodes[index];
    struct weft__issue_node out = {.peer = -1, .kind = node->kind};

    if (plan->waits[index] & WEFT__ANY)
        out.flags |= WEFT__ISSUE_ANY;
    switch (node->kind) {
    case WEFT_NODE_COMPUTE:
        if (node->flags & WEFT__JOINT) {
            const struct weft__region *region = &plan->regions[node->regions];
            const struct weft__slot *slot = &plan->slots[region->slot];
            uint8_t flags = out.flags;

            out = weft__issue_joint(plan->ops[node->op]->joint, plan->rank, slot->dtype,
                                    region->bytes / slot->element, node->region_count);
            out.flags |= flags;
        }
        break;
    case WEFT_NODE_EVENT:
        out.tag = node->tag;
        if (node->peer >= 0)
            out.flags |= WEFT__ISSUE_CHOICE;
        break;
    case WEFT_NODE_SEND:
    case WEFT_NODE_RECV:
        out.bytes = plan->regions[node->regions].bytes;
        if (plan->slots[plan->regions[node->regions].slot].memory == WEFT_MEMORY_DEVICE)
            out.flags |= WEFT__ISSUE_DEVICE | (out.bytes > 0 ? WEFT__ISSUE_IN_ORDER : 0);
        if (plan->regions[node->regions].value != 0 || (node->flags & WEFT__UP_TO))
            out.flags |= WEFT__ISSUE_VARIES;
        out.peer = plan->peers[node->peer];
        out.tag = node->tag;
        break;
    case WEFT_NODE_SIGNAL:
        out.peer = plan->peers[node->peer];
        out.tag = node->tag;
        break;
    default:
        break;
    }
    return out;
}

int weft__plan_issue(const struct weft_plan *plan, struct weft__issue_node **nodes,
                     struct weft__issue_list *list)
{
    struct weft__issue_node *made = weft__malloc(plan->node_count, sizeof *made);

    if (!made)
        return weft__error_memory("a list of messages");
    for (uint32_t n = 0; n < plan->node_count; n++)
        made[n] = node_of(plan, n);
    *nodes = made;
    *list = (struct weft__issue_list){
        .nodes = made, .first = plan->first, .after = plan->after, .count = plan->node_count};
    return WEFT_OK;
}
