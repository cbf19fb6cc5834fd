/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plans of group averaging: activations, an allreduce for each size and place of a group that
 * the rank ever has, the synchronisation. All are made at creation, because nothing may be
 * allocated while versions run; which ranks a group has is bound when its version starts.
 */
#include <string.h>

#include "schedules/objects/group_average/group_average.h"
#include <weft/activation.h>
#include <weft/cost.h>
#include <weft/memory.h>
#include <weft/plan.h>

enum {
    DIVIDED = 1 << 16
}; /* elements that one node divides: signals are not kept waiting longer */

/* ---- activation ---- */

static int make_activation(struct weft_group_average *average, int kind)
{
    static const char *const names[] = {"activation", "sync-arrival", "activation-now", "left"};
    struct weft_schedule *schedule;
    int status = weft_schedule_create(&schedule, average->rank, average->ranks);
    if (status)
        return status;
    weft_schedule_set_name(schedule, names[kind]);
    if (kind == WEFT__ACTIVATE) {
        average->application = weft_activation_add(schedule, 0, NULL);
    } else if (kind == WEFT__ACTIVATE_SELF) {
        weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    } else if (kind == WEFT__ACTIVATE_NOW) {
        for (int i = 0; i < weft_activation_edges(average->ranks); i++) {
            int peer = weft_activation_peer(average->rank, average->ranks, i);
            if (peer >= 0)
                weft_schedule_add_signal(schedule, peer, (uint32_t)i);
        }
    }
    status = weft_schedule_commit(schedule, &average->activations[kind]);
    weft_schedule_destroy(schedule);
    return status;
}

/* ---- averages ---- */

static int keep_plan(struct weft__average_plan *kept, const struct weft_schedule *schedule)
{
    size_t nodes = weft_schedule_node_count(schedule);
    for (size_t n = 0; n < nodes; n++) {
        struct weft_node_info node = {.struct_size = sizeof node};
        struct weft_slot_info slot = {.struct_size = sizeof slot};
        weft_schedule_get_node(schedule, (weft_node_t)n, &node);
        if (node.kind != WEFT_NODE_SEND)
            continue;
        weft_schedule_get_slot(schedule, node.regions[0].slot, &slot);
        kept->messages++;
        kept->bytes += node.regions[0].count * weft_dtype_size(slot.dtype);
    }
    int status = weft_schedule_commit(schedule, &kept->plan);
    if (status)
        return status;
    kept->send = weft_plan_find_slot(kept->plan, "send");
    kept->recv = weft_plan_find_slot(kept->plan, "recv");
    return WEFT_OK;
}

/* After everything else the sum is divided, in slices. */
static void add_division(struct weft_group_average *average, struct weft_schedule *schedule)
{
    size_t nodes = weft_schedule_node_count(schedule);
    weft_node_t all = weft_schedule_add_join(schedule);
    for (size_t n = 0; n < nodes; n++)
        weft_schedule_add_order(schedule, (weft_node_t)n, all);
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    weft_slot_t recv = 0;
    while (weft_schedule_get_slot(schedule, recv, &slot) == WEFT_OK &&
           strcmp(slot.name, "recv") != 0)
        recv++;
    size_t slice = average->device ? average->count : DIVIDED; /* which keeps nobody waiting */
    for (size_t at = 0; at < average->count; at += slice) {
        size_t left = average->count - at;
        struct weft_compute_argument sum = {weft_region_at(recv, at, left < slice ? left : slice),
                                            WEFT_UPDATE};
        weft_node_t node = weft_schedule_add_compute(schedule, average->divide, &sum, 1, 0);
        weft_schedule_add_order(schedule, all, node);
    }
}

/* An allreduce among `members`, of which this rank is number `place`. */
static int make_average(struct weft_group_average *average, struct weft__average_plan *kept,
                        const struct weft__surroundings *around, int place, int members,
                        int synchronises)
{
    struct weft_template_params params;
    struct weft_schedule *schedule;
    weft_template_params_init(&params);
    params.count = average->count;
    params.dtype = average->work;
    params.memory = average->config.memory;
    params.algo = average->config.algo;
    params.cost = &around->cost;
    if (synchronises) /* who is in a group changes, and with it which hosts are */
        params.hosts = around->hosts;
    int status = weft_template_build("allreduce", place, members, &params, &schedule);
    if (status)
        return status;
    weft_schedule_set_name(schedule, synchronises ? "synchronisation" : "group-average");
    if (synchronises)
        add_division(average, schedule);
    status = keep_plan(kept, schedule);
    weft_schedule_destroy(schedule);
    return status;
}

static int make_nothing(struct weft_group_average *average, struct weft__average_plan *kept)
{
    struct weft_schedule *schedule;
    int status = weft_schedule_create(&schedule, average->rank, average->ranks);
    if (status)
        return status;
    weft_schedule_set_name(schedule, "no-average");
    status = weft_schedule_commit(schedule, &kept->plan);
    weft_schedule_destroy(schedule);
    return status;
}

/* A plan for each place that this rank ever has: of the groups of `largest` members first, then of
 * those of one less. plan_at: the plan of a place, -1: it never is there. */
static int find_places(struct weft_group_average *average)
{
    if (!average->groups)
        return 0;
    size_t largest = (size_t)average->largest;
    unsigned char *places = weft_memory_alloc(2 * largest, 1);
    average->plan_at = weft_memory_alloc(2 * largest, sizeof *average->plan_at);
    int found = WEFT_ERR_MEMORY, plan = 0;
    if (places && average->plan_at)
        found = weft_groups_places(average->groups, average->rank, places);
    for (size_t i = 0; found >= 0 && i < 2 * largest; i++)
        average->plan_at[i] = places[i] ? plan++ : -1;
    weft_memory_free(places);
    return found;
}

int weft__average_make_plans(struct weft_group_average *average)
{
    struct weft_op_config op;
    struct weft_op *divide;
    weft_op_config_init(&op);
    op.name = "divide-by-ranks";
    op.compute = weft__average_divide;
    op.device = weft__average_divide_there;
    int status = weft_op_create(&divide, &op);
    if (status)
        return status;
    average->divide = divide;
    int largest = average->largest, groups = find_places(average);
    if (groups == WEFT_ERR_MEMORY)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d places", 2 * largest);
    average->plan_count = (size_t)groups + 2;
    average->plans = weft_memory_alloc(average->plan_count, sizeof *average->plans);
    if (!average->plans)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu plans", average->plan_count);
    struct weft__surroundings around;
    status = weft__surroundings_find(&around, average->context);
    for (int i = 0; !status && groups && i < 2 * largest; i++)
        if (average->plan_at[i] >= 0)
            status = make_average(average, &average->plans[average->plan_at[i]], &around,
                                  i % largest, largest - i / largest, 0);
    if (!status)
        status = make_average(average, &average->plans[groups], &around, average->rank,
                              average->ranks, 1);
    weft__surroundings_free(&around);
    if (!status)
        status = make_nothing(average, &average->plans[groups + 1]);
    for (int i = 0; !status && i < WEFT__ACTIVATIONS; i++)
        status = make_activation(average, i);
    return status;
}

void weft__average_free_plans(struct weft_group_average *average)
{
    for (size_t i = 0; average->plans && i < average->plan_count; i++)
        weft_plan_destroy(average->plans[i].plan);
    weft_memory_free(average->plans);
    weft_memory_free(average->plan_at);
    for (int i = 0; i < WEFT__ACTIVATIONS; i++)
        weft_plan_destroy(average->activations[i]);
    weft_op_destroy(average->divide);
}

size_t weft__average_plan_of(struct weft_group_average *average, uint64_t version, int *members)
{
    *members = average->ranks;
    if (weft__average_syncs(average, version))
        return average->plan_count - 2;
    *members = 0;
    if (!average->groups)
        return average->plan_count - 1;
    int place = 0;
    weft_groups_at(average->groups, version, average->rank, average->members, members, &place);
    return (size_t)average->plan_at[(*members == average->largest ? 0 : average->largest) + place];
}

/* The number of a place in SplitMix64's sequence. */
static uint64_t mix(uint64_t seed, uint64_t number)
{
    return weft__scramble(seed + number * UINT64_C(0x9e3779b97f4a7c15));
}

int weft_group_average_activator(uint64_t seed, int ranks, uint64_t version)
{
    return ranks < 1 ? WEFT_PEER_NONE : (int)(mix(seed, version) % (uint64_t)ranks);
}

int weft__average_activates(const struct weft_group_average *average, uint64_t version)
{
    if (average->config.activation == WEFT_AVERAGE_ANYONE)
        return 1;
    return weft_group_average_activator(average->config.seed, average->ranks, version) ==
           average->rank;
}
