/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages under way on a fabric; flows.h says how. */
#include "runtime/sim/flows.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/sim/fabric.h"
#include "runtime/sim/sim.h"

#include <stdlib.h>

/* Behind all else of an instant: first what ends, then the shares of what is left. */
#define ORDER_SETTLE UINT64_MAX
#define ORDER_WAKE   (UINT64_MAX - 1)

/* ---- where ranks are ---- */

/* Draws `count` of the numbers below `of`, without repetition, into `drawn`. */
static int draw(uint32_t *drawn, uint32_t count, uint64_t of, uint64_t seed)
{
    uint32_t *numbers = of < UINT32_MAX ? weft__malloc((size_t)of, sizeof *numbers) : NULL;

    if (!numbers)
        return -1;
    for (uint64_t i = 0; i < of; i++)
        numbers[i] = (uint32_t)i;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t other = i + weft__random(&seed) % (of - i);

        drawn[i] = numbers[other];
        numbers[other] = numbers[i];
    }
    weft__free(numbers);
    return 0;
}

static int place(struct weft__flows *flows, const char *who, const struct weft_fabric *fabric)
{
    uint64_t room = (uint64_t)flows->routes.hosts * (uint32_t)fabric->ranks_per_host;
    uint32_t per_host = (uint32_t)fabric->ranks_per_host;

    for (uint32_t rank = 0; fabric->hosts && rank < flows->ranks; rank++) {
        if (fabric->hosts[rank] < 0 || (uint32_t)fabric->hosts[rank] >= flows->routes.hosts)
            return WEFT__INVALID("%s: config->fabric->hosts[%u] is %d, expected 0..%u", who, rank,
                                 fabric->hosts[rank], flows->routes.hosts - 1);
        flows->hosts[rank] = (uint32_t)fabric->hosts[rank];
    }
    if (fabric->hosts)
        return WEFT_OK;
    if (flows->ranks > room)
        return WEFT__INVALID("%s: config->ranks is %u, expected at most %llu: config->fabric has "
                             "%u hosts, ranks_per_host is %d",
                             who, flows->ranks, (unsigned long long)room, flows->routes.hosts,
                             fabric->ranks_per_host);
    for (uint32_t rank = 0; rank < flows->ranks; rank++)
        flows->hosts[rank] = rank;
    /* No more places than could be taken: they are drawn from a list of them. */
    per_host = per_host < flows->ranks ? per_host : flows->ranks;
    if (fabric->flags & WEFT_FABRIC_RANDOM &&
        draw(flows->hosts, flows->ranks, (uint64_t)flows->routes.hosts * per_host, fabric->seed))
        return weft__error_memory("the places of ranks");
    for (uint32_t rank = 0; rank < flows->ranks; rank++)
        flows->hosts[rank] /= per_host;
    return WEFT_OK;
}

/* ---- a life ---- */

/* What each resource has, in rates: the slower of link and adapter has 1. */
static int begin_shares(struct weft__flows *flows, double link, double adapter)
{
    uint32_t count = flows->routes.links + 2 * flows->ranks;
    uint32_t stride = flows->routes.longest + 2;

    flows->per_byte = link > adapter ? link : adapter;
    flows->links = link > 0;
    flows->adapters = adapter > 0;
    if (weft__shares_begin(&flows->shares, count, stride))
        return -1;
    for (uint32_t i = 0; i < count; i++)
        flows->shares.resources[i].capacity =
            flows->per_byte / (i < flows->routes.links ? link : adapter);
    return 0;
}

static int allocate(struct weft__flows *flows)
{
    size_t lanes = ((size_t)flows->routes.ports + 1) * flows->ranks;

    flows->hosts = weft__malloc(flows->ranks, sizeof *flows->hosts);
    flows->lanes = weft__calloc(lanes, sizeof *flows->lanes);
    flows->route = weft__malloc(flows->routes.longest, sizeof *flows->route);
    flows->uses = weft__malloc(flows->routes.longest + (size_t)2, sizeof *flows->uses);
    flows->loads = weft__calloc(flows->routes.links, sizeof *flows->loads);
    return flows->hosts && flows->lanes && flows->route && flows->uses && flows->loads ? 0 : -1;
}

int weft__flows_create(struct weft__sim *sim, const struct weft_net *net)
{
    struct weft__flows *flows;
    struct weft_fabric fabric;
    struct weft__routes routes;
    int status = weft__fabric_read(sim->who, "config->fabric", sim->config->fabric, &fabric);

    if (status || fabric.kind == WEFT_FABRIC_NONE)
        return status;
    if ((status = weft__routes_of(sim->who, "config->fabric", &fabric, &routes)))
        return status;
    sim->flows = flows = weft__calloc(1, sizeof *flows);
    if (!flows)
        return weft__error_memory("a fabric");
    flows->routes = routes;
    flows->ranks = sim->size;
    flows->hop = weft__ticks(fabric.hop_us);
    flows->wake = WEFT_NEVER;
    sim->model.G_in = 0;
    if (allocate(flows) ||
        begin_shares(flows,
                     fabric.link_us_per_byte > 0 ? fabric.link_us_per_byte * WEFT__TICKS_PER_US
                                                 : sim->model.G,
                     net->G * WEFT__TICKS_PER_US))
        return weft__error_memory("a fabric");
    return place(flows, sim->who, &fabric);
}

void weft__flows_destroy(struct weft__flows *flows)
{
    if (!flows)
        return;
    weft__shares_free(&flows->shares);
    weft__free(flows->hosts);
    weft__free(flows->lanes);
    weft__free(flows->flows);
    weft__free(flows->ends);
    weft__free(flows->route);
    weft__free(flows->uses);
    weft__free(flows->loads);
    weft__free(flows);
}

/* ---- the heap of ends ---- */

static int ends_before(const struct weft__flow *a, const struct weft__flow *b)
{
    return a->end < b->end || (a->end == b->end && a->message.order < b->message.order);
}

static void put(struct weft__flows *flows, uint32_t at, uint32_t flow)
{
    flows->ends[at] = flow;
    flows->flows[flow].place = at + 1;
}

/* Moves a flow from a free place of the heap to where its end belongs. */
static void settle_place(struct weft__flows *flows, uint32_t at, uint32_t flow)
{
    const struct weft__flow *own = &flows->flows[flow];
    uint32_t *ends = flows->ends, child;

    for (; at && ends_before(own, &flows->flows[ends[(at - 1) / 2]]); at = (at - 1) / 2)
        put(flows, at, ends[(at - 1) / 2]);
    for (; (child = 2 * at + 1) < flows->end_count; at = child) {
        child += child + 1 < flows->end_count &&
                 ends_before(&flows->flows[ends[child + 1]], &flows->flows[ends[child]]);
        if (!ends_before(&flows->flows[ends[child]], own))
            break;
        put(flows, at, ends[child]);
    }
    put(flows, at, flow);
}

/* A flow has an end, or another one. */
static void set_end(struct weft__flows *flows, uint32_t flow, weft__ticks_t end)
{
    uint32_t place = flows->flows[flow].place;

    flows->flows[flow].end = end;
    settle_place(flows, place ? place - 1 : flows->end_count++, flow);
}

static uint32_t take_first(struct weft__flows *flows)
{
    uint32_t first = flows->ends[0], last = flows->ends[--flows->end_count];

    if (flows->end_count)
        settle_place(flows, 0, last);
    flows->flows[first].place = 0;
    return first;
}

/* ---- flows come and go ---- */

static void plan_wake(struct weft__sim *sim)
{
    struct weft__flows *flows = sim->flows;

    if (!flows->end_count || flows->flows[flows->ends[0]].end >= flows->wake)
        return;
    flows->wake = flows->flows[flows->ends[0]].end;
    weft__sim_later(sim, &(struct weft__sim_event){
                             .time = flows->wake, .order = ORDER_WAKE, .what = WEFT__SIM_WAKE});
}

static void plan_settle(struct weft__sim *sim, weft__ticks_t now)
{
    if (sim->flows->settling)
        return;
    sim->flows->settling = 1;
    weft__sim_later(sim, &(struct weft__sim_event){
                             .time = now, .order = ORDER_SETTLE, .what = WEFT__SIM_SETTLE});
}

static uint64_t bytes_of(const struct weft__sim *sim, const struct weft__sim_event *message)
{
    const struct weft__sim_node *send = &sim->ranks[message->source].shape->node[message->node];

    return send->kind == WEFT_NODE_SIGNAL ? WEFT__SIM_SIGNAL_BYTES : send->bytes;
}

/* A message goes over the first `hops` links of flows->route. */
static void load(struct weft__flows *flows, uint32_t hops, uint64_t bytes)
{
    uint32_t levels = 0;

    for (uint32_t i = 0; i < hops; i++) {
        struct weft__load *load = &flows->loads[flows->route[i]];

        load->messages++;
        load->bytes += bytes;
        levels |= 1u << weft__route_level(&flows->routes, flows->route[i]);
    }
    for (uint32_t level = 0; level < flows->routes.levels; level++)
        flows->crossing[level] += levels >> level & 1 ? bytes : 0;
}

/* The turn of a flow has come, and its route is in flows->route. */
static void begin(struct weft__sim *sim, uint32_t number, weft__ticks_t now)
{
    struct weft__flows *flows = sim->flows;
    struct weft__flow *flow = &flows->flows[number];
    uint64_t bytes = bytes_of(sim, &flow->message);
    uint32_t count = 0;

    load(flows, flow->hops, bytes);
    if (flows->adapters) {
        flows->uses[count++] = flows->routes.links + flow->message.source;
        flows->uses[count++] = flows->routes.links + flows->ranks + flow->message.rank;
    }
    for (uint32_t i = 0; flows->links && i < flow->hops; i++)
        flows->uses[count++] = flows->route[i];
    flow->left = flows->per_byte * (double)weft__loggops_bytes(&sim->model, bytes);
    flow->since = now;
    flow->rate = 0;
    weft__shares_add(&flows->shares, number, flows->uses, count);
    if (count) {
        plan_settle(sim, now);
        return;
    }
    set_end(flows, number, now);
    plan_wake(sim);
}

static uint32_t route(struct weft__flows *flows, const struct weft__sim_event *message)
{
    return weft__route(&flows->routes, flows->hosts[message->source], flows->hosts[message->rank],
                       flows->route);
}

/* A free flow, NONE without memory. */
static uint32_t take_flow(struct weft__flows *flows)
{
    uint32_t number = flows->free_flow;

    if (number) {
        flows->free_flow = flows->flows[number - 1].next;
        return number - 1;
    }
    if (flows->flow_count == UINT32_MAX - 1 ||
        weft__grow((void **)&flows->flows, &flows->flow_capacity, flows->flow_count + (size_t)1,
                   sizeof *flows->flows) ||
        weft__grow((void **)&flows->ends, &flows->end_capacity, flows->flow_count + (size_t)1,
                   sizeof *flows->ends) ||
        weft__shares_reserve(&flows->shares, flows->flow_count + 1))
        return WEFT__SIM_NONE;
    return flows->flow_count++;
}

static void enter(struct weft__sim *sim, const struct weft__sim_event *event)
{
    struct weft__flows *flows = sim->flows;
    uint32_t number = take_flow(flows), hops, lane;
    struct weft__lane *at;

    if (number == WEFT__SIM_NONE) {
        sim->status = weft__error_memory("a simulation");
        return;
    }
    hops = route(flows, event);
    lane = event->source * (flows->routes.ports + 1) +
           (hops ? flows->route[0] % flows->routes.ports : flows->routes.ports);
    flows->flows[number] = (struct weft__flow){.message = *event, .lane = lane, .hops = hops};
    at = &flows->lanes[lane];
    if (at->first)
        flows->flows[at->last - 1].next = number + 1;
    else
        at->first = number + 1;
    at->last = number + 1;
    if (at->first == number + 1)
        begin(sim, number, event->time);
}

/* The last byte of a flow has left: it arrives, and the next one of its lane may go. */
static void end(struct weft__sim *sim, uint32_t number, weft__ticks_t now)
{
    struct weft__flows *flows = sim->flows;
    struct weft__flow *flow = &flows->flows[number];
    struct weft__lane *lane = &flows->lanes[flow->lane];

    if (flows->shares.flows[number].uses)
        plan_settle(sim, now);
    weft__shares_remove(&flows->shares, number);
    flow->message.time = now + sim->model.L + flow->hops * flows->hop;
    flow->message.what = WEFT__SIM_MESSAGES;
    weft__sim_later(sim, &flow->message);
    lane->first = flow->next;
    flow->next = flows->free_flow;
    flows->free_flow = number + 1;
    if (lane->first) {
        route(flows, &flows->flows[lane->first - 1].message);
        begin(sim, lane->first - 1, now);
    }
}

static void wake(struct weft__sim *sim, weft__ticks_t now)
{
    struct weft__flows *flows = sim->flows;

    if (flows->wake == now)
        flows->wake = WEFT_NEVER;
    while (flows->end_count && flows->flows[flows->ends[0]].end <= now)
        end(sim, take_first(flows), now);
    plan_wake(sim);
}

static void settle(struct weft__sim *sim, weft__ticks_t now)
{
    struct weft__flows *flows = sim->flows;

    flows->settling = 0;
    weft__shares_solve(&flows->shares);
    for (uint32_t i = 0; i < flows->shares.affected_count; i++) {
        uint32_t number = flows->shares.affected[i];
        struct weft__flow *flow = &flows->flows[number];
        double rate = flows->shares.flows[number].share, ticks;

        if (rate == flow->rate)
            continue;
        ticks = flow->left - flow->rate * (double)(now - flow->since);
        flow->left = ticks > 0 ? ticks : 0;
        flow->since = now;
        flow->rate = rate;
        set_end(flows, number, now + weft__ticks_bytes(flow->left / rate, 1));
    }
    plan_wake(sim);
}

void weft__flows_happen(struct weft__sim *sim, const struct weft__sim_event *event)
{
    if (event->what & WEFT__SIM_ENTER)
        enter(sim, event);
    else if (event->what & WEFT__SIM_WAKE)
        wake(sim, event->time);
    else
        settle(sim, event->time);
}
