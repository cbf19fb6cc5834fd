/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What follows what on a stream of a device.
 *
 *     recv a ---> reduce b ---> copy c ---> reduce d ---> send e
 *     (device)    (device)      (device)    (device)      waits until d has ended
 *
 * A stream does its work in order, so b, c and d are put on it one behind the other without anybody
 * waiting. That is right for a node that finds on the device all that it needs. One that reads
 * memory of the host does so when it is put there, or before; and one whose count is known at run
 * time may have it from a node that is still on the stream: these wait like nodes of the host. So
 * the successors of each node are in two groups.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/plan/plan.h"

static int is_there(const struct weft_plan *plan, const struct weft__region *region)
{
    return plan->slots[region->slot].memory == WEFT_MEMORY_DEVICE;
}

/* Whether a node may be put on the stream behind others that have not ended. */
static int follows(const struct weft_plan *plan, uint32_t n, const uint8_t *over)
{
    const struct weft__node *node = &plan->nodes[n];
    int message = node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV;
    if (!(node->flags & WEFT__DEVICE_NODE) || (message && !(over && over[n])))
        return 0;
    for (uint32_t i = 0; i < node->region_count; i++) {
        const struct weft__region *region = &plan->regions[node->regions + i];
        if (region->value != 0)
            return 0;
        /* A copy to the host writes there when its turn has come. */
        if (!is_there(plan, region) && !(node->kind == WEFT_NODE_COPY && i == 0))
            return 0;
    }
    return 1;
}

uint32_t weft__plan_followers(const struct weft_plan *plan, uint32_t n, const uint8_t *over,
                              uint32_t *after, uint32_t *room)
{
    uint32_t used = 0, kept = 0;
    uint32_t count = plan->first[n + 1] - plan->first[n];
    for (uint32_t e = 0; e < count; e++)
        if (!follows(plan, after[e], over))
            room[kept++] = after[e];
        else
            after[used++] = after[e];
    for (uint32_t e = 0; e < kept; e++)
        after[used + e] = room[e];
    return used;
}

uint32_t *weft__plan_followers_room(const struct weft_plan *plan)
{
    uint32_t most = 0;
    for (uint32_t n = 0; n < plan->node_count; n++)
        if (plan->first[n + 1] - plan->first[n] > most)
            most = plan->first[n + 1] - plan->first[n];
    return weft__malloc(most + (size_t)1, sizeof(uint32_t));
}

int weft__plan_stream(struct weft_plan *plan)
{
    if (!plan->on_device)
        return WEFT_OK;
    plan->plain = 0;
    uint32_t *room = weft__plan_followers_room(plan);
    plan->streamed = weft__calloc(plan->node_count + (size_t)1, sizeof *plan->streamed);
    if (!room || !plan->streamed) {
        weft__free(room);
        return weft__error_memory("a plan");
    }
    plan->bytes += plan->node_count * sizeof *plan->streamed;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct weft__node *node = &plan->nodes[n];
        if ((node->flags & WEFT__DEVICE_NODE) && node->kind != WEFT_NODE_SEND)
            plan->streamed[n] =
                weft__plan_followers(plan, n, NULL, plan->after + plan->first[n], room);
        plan->device_nodes += (node->flags & WEFT__DEVICE_NODE) != 0;
    }
    weft__free(room);
    return WEFT_OK;
}
