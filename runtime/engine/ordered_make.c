/* SPDX-License-Identifier: BSD-3-Clause */
/* What a run needs for messages over a communicator: made when it is created. */
#include "runtime/engine/ordered.h"

#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/flight.h"
#include "runtime/graph/joint.h"

void weft__team_abort(struct weft__team *team)
{
    if (team->aborted)
        return;
    team->aborted = 1;
    for (uint32_t c = 0; c < team->circle_count; c++)
        if (team->circles[c].comm)
            team->issuer->device->ops->comm_abort(team->circles[c].comm);
}

void weft__team_release(struct weft__team *team)
{
    if (!team || --team->references > 0)
        return;
    for (uint32_t c = 0; c < team->circle_count; c++) {
        team->issuer->device->ops->comm_close(team->circles[c].comm);
        weft__free(team->circles[c].ranks);
    }
    weft__free(team->circles);
    weft__free(team->members);
    weft__free(team);
}

uint32_t weft__team_circle(const struct weft__team *team, const int32_t *ranks, uint32_t count)
{
    for (uint32_t c = 0; c < team->circle_count; c++) {
        const struct weft__circle *circle = &team->circles[c];
        uint32_t r = 0;

        if (circle->count != count)
            continue;
        while (r < count && ranks[r] == (circle->ranks ? circle->ranks[r] : (int32_t)r))
            r++;
        if (r == count)
            return c;
    }
    return WEFT__NONE;
}

/* Joint nodes find the communicators of their ranks. */
static int find_circles(struct weft__ordered *ordered)
{
    const struct weft_plan *plan = ordered->run->plan;
    int status = WEFT_OK;

    for (uint32_t n = 0; n < plan->node_count && status == WEFT_OK; n++) {
        const struct weft__joint *joint =
            plan->nodes[n].flags & WEFT__JOINT ? plan->ops[plan->nodes[n].op]->joint : NULL;
        int32_t *ranks = joint ? weft__malloc((size_t)joint->ranks->count, sizeof *ranks) : NULL;

        if (!joint)
            continue;
        if (!ranks)
            return weft__error_memory("messages over a communicator");
        weft__ranks_fill(joint->ranks, ranks);
        weft__end_of(ordered, n)->circle =
            weft__team_circle(ordered->team, ranks, (uint32_t)joint->ranks->count);
        if (weft__end_of(ordered, n)->circle == WEFT__NONE)
            status = weft__error(WEFT_ERR_STATE, "node %u has no communicator", n);
        weft__free(ranks);
    }
    return status;
}

/* Successors of nodes that are messages over the communicator follow what is on streams, and are
 * followed, like computations. */
static int sort_successors(struct weft__ordered *ordered)
{
    const struct weft_plan *plan = ordered->run->plan;
    uint32_t *room = weft__plan_followers_room(plan);

    ordered->after = weft__malloc(plan->edge_count, sizeof *ordered->after);
    ordered->streamed = weft__calloc((size_t)plan->node_count + 1, sizeof *ordered->streamed);
    if (!room || !ordered->after || !ordered->streamed) {
        weft__free(room);
        return weft__error_memory("messages over a communicator");
    }
    if (plan->edge_count > 0)
        memcpy(ordered->after, plan->after, plan->edge_count * sizeof *ordered->after);
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct weft__node *node = &plan->nodes[n];
        int message = node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV;

        if ((node->flags & WEFT__DEVICE_NODE) && (!message || ordered->over[n]))
            ordered->streamed[n] =
                weft__plan_followers(plan, n, ordered->over, ordered->after + plan->first[n], room);
    }
    weft__free(room);
    return WEFT_OK;
}

static int make(struct weft__ordered *ordered, const struct weft__order_known *known)
{
    const struct weft_plan *plan = ordered->run->plan;
    int status;

    for (uint32_t n = 0; n < plan->node_count; n++)
        ordered->count += ordered->over[n] != 0;
    ordered->ends = weft__calloc((size_t)plan->xfer_count + 1, sizeof *ordered->ends);
    ordered->items = weft__calloc((size_t)ordered->count + 1, sizeof *ordered->items);
    ordered->issued = weft__calloc((size_t)ordered->count + 1, sizeof *ordered->issued);
    ordered->groups = weft__calloc((size_t)ordered->count + 1, sizeof *ordered->groups);
    if (!ordered->ends || !ordered->items || !ordered->issued || !ordered->groups)
        return weft__error_memory("messages over a communicator");
    status = find_circles(ordered);
    if (status == WEFT_OK)
        status = sort_successors(ordered);
    if (status == WEFT_OK)
        status = ordered->known ? weft__known_open(ordered, known) : weft__agreed_open(ordered);
    return status;
}

int weft__ordered_open(struct weft_run *run, struct weft__team *team,
                       struct weft__order_known *known)
{
    struct weft__ordered *ordered = weft__calloc(1, sizeof *ordered);
    int status;

    if (!ordered) {
        weft__free(known->over);
        weft__free(known->sequence);
        weft__free(known->first);
        return weft__error_memory("messages over a communicator");
    }
    ordered->run = run;
    ordered->team = team;
    team->references++;
    ordered->over = known->over;
    ordered->sequence = known->sequence;
    ordered->first = known->first;
    ordered->known = known->first != NULL;
    run->flights->ordered = ordered;
    status = make(ordered, known);
    if (status != WEFT_OK) {
        weft__ordered_close(run);
        return status;
    }
    run->flights->after = ordered->after;
    run->flights->streamed = ordered->streamed;
    return WEFT_OK;
}

void weft__ordered_close(struct weft_run *run)
{
    struct weft__ordered *ordered = run->flights->ordered;

    if (!ordered)
        return;
    weft__issuer_unreserve(ordered->team->issuer, ordered->reserved);
    if (ordered->staging)
        run->flights->stream->device->ops->free(run->flights->stream->device, ordered->staging);
    weft__team_release(ordered->team);
    weft__free(ordered->over);
    weft__free(ordered->after);
    weft__free(ordered->streamed);
    weft__free(ordered->ends);
    weft__free(ordered->items);
    weft__free(ordered->staged);
    weft__free(ordered->issued);
    weft__free(ordered->groups);
    weft__free(ordered->sequence);
    weft__free(ordered->first);
    weft__free(ordered->round_of);
    weft__free(ordered->left);
    weft__free(ordered->by_tag);
    weft__free(ordered->turns);
    weft__free(ordered->fresh);
    weft__free(ordered);
    run->flights->ordered = NULL;
    run->flights->after = run->plan->after;
    run->flights->streamed = run->plan->streamed;
}

int weft__ordered_reserve(struct weft_run *run, uint32_t slot)
{
    struct weft__ordered *ordered = run->flights ? run->flights->ordered : NULL;
    const struct weft_plan *plan = run->plan;
    struct weft__device *device;
    size_t total = 0;
    int used = 0;

    if (!ordered || ordered->staging)
        return WEFT_OK;
    device = run->flights->stream->device;
    if (!ordered->staged)
        ordered->staged = weft__calloc((size_t)plan->xfer_count + 1, sizeof *ordered->staged);
    if (!ordered->staged)
        return weft__error_memory("a list of tensors");
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct weft__node *node = &plan->nodes[n];

        if (!ordered->over[n])
            continue;
        ordered->staged[node->index] = total;
        for (uint32_t i = 0; i < node->region_count; i++) {
            const struct weft__region *region = &plan->regions[node->regions + i];

            used |= region->slot == slot;
            total += weft__staged_bytes(region);
        }
    }
    if (!used || total == 0)
        return WEFT_OK;
    ordered->staging = device->ops->alloc(device, total);
    return ordered->staging ? WEFT_OK : WEFT_ERR_MEMORY;
}
