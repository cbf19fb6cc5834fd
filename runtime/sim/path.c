/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The critical path: from what ended last back to time 0, one cause after the other. Every cause
 * ends no later than what it held up begins, so the walk goes back in time or, where things cost
 * nothing, stays at an instant but goes back in the order of causes: it ends.
 */
#include "runtime/sim/sim.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

struct walk {
    struct weft__sim *sim;
    struct weft_sim_step *steps; /* latest first */
    size_t count, capacity;
};

/* Where the walk is: a node, or only the sender's part of what led to it. */
struct place {
    uint32_t rank, node;
    weft__ticks_t end; /* of its part of the path, if the step does not say */
};

static uint32_t peer_of(const struct weft__sim_rank *rank, const struct weft__sim_node *node)
{
    return node->kind == WEFT_NODE_SEND     ? rank->send_peer[node->index]
           : node->kind == WEFT_NODE_RECV   ? rank->recv_peer[node->index]
           : node->kind == WEFT_NODE_SIGNAL ? rank->signal_peer[node->index]
                                            : WEFT__SIM_NONE;
}

/* The end of a node by itself; a rendezvous send ends when it is met, which its successor tells. */
static weft__ticks_t end_of(const struct weft__sim *sim, const struct weft__sim_rank *rank,
                            uint32_t n)
{
    const struct weft__sim_node *node = &rank->shape->node[n];
    const struct weft__sim_state *state = &rank->state[n];
    struct weft__port port = {0};

    switch (node->kind) {
    case WEFT_NODE_SEND:
        weft__port_send(&port, &sim->model, state->start, node->bytes);
        return port.cpu;
    case WEFT_NODE_SIGNAL:
        weft__port_send(&port, &sim->model, state->start, WEFT__SIM_SIGNAL_BYTES);
        return port.cpu;
    case WEFT_NODE_RECV:
        return state->left & WEFT__SIM_LATE
                   ? state->start
                   : weft__port_receive(&port, &sim->model, state->start, node->bytes);
    default:
        return state->start + weft__sim_cost(sim, node);
    }
}

static int add(struct walk *walk, uint32_t at, uint32_t n, weft__ticks_t end,
               weft_sim_reason_t reason)
{
    const struct weft__sim_rank *rank = &walk->sim->ranks[at];
    const struct weft__sim_node *node = &rank->shape->node[n];
    uint32_t peer = peer_of(rank, node);

    if (weft__grow((void **)&walk->steps, &walk->capacity, walk->count + 1, sizeof *walk->steps))
        return weft__error_memory("a simulation");
    walk->steps[walk->count++] =
        (struct weft_sim_step){.rank = (int)at,
                               .node = (weft_node_t)n,
                               .kind = (weft_node_kind_t)node->kind,
                               .peer = peer == WEFT__SIM_NONE ? -1 : (int)peer,
                               .bytes = node->bytes,
                               .start_us = weft__ticks_us(rank->state[n].start),
                               .end_us = weft__ticks_us(end),
                               .reason = reason};
    return WEFT_OK;
}

/* The send of a receive's message. */
static uint32_t sender(const struct weft__sim *sim, uint32_t at, uint32_t n, uint32_t *from)
{
    const struct weft__sim_rank *rank = &sim->ranks[at];
    const struct weft__sim_node *node = &rank->shape->node[n];

    *from = rank->recv_peer[node->index];
    return weft__sim_find_send(sim, *from, at, node->tag, node->index);
}

/* The latest signal of rank `from` to rank `at`, to a channel or (NONE) to any, that began before.
 */
static uint32_t signaller(const struct weft__sim *sim, uint32_t from, uint32_t at, uint32_t channel,
                          weft__ticks_t before)
{
    const struct weft__sim_rank *rank = &sim->ranks[from];
    uint32_t latest = WEFT__SIM_NONE;

    for (uint32_t n = 0; n < rank->shape->nodes; n++) {
        const struct weft__sim_node *node = &rank->shape->node[n];

        if (node->kind == WEFT_NODE_SIGNAL &&
            (channel == WEFT_CHANNEL_NONE || node->tag == channel) &&
            rank->signal_peer[node->index] == at && rank->state[n].left & WEFT__SIM_STARTED &&
            rank->state[n].start <= before &&
            (latest == WEFT__SIM_NONE || rank->state[n].start > rank->state[latest].start))
            latest = n;
    }
    return latest;
}

/* From a node to what it had to wait for. 0: time 0 is reached. */
static int step_back(const struct weft__sim *sim, uint32_t *at, uint32_t *n,
                     weft_sim_reason_t *reason)
{
    const struct weft__sim_rank *rank = &sim->ranks[*at];
    uint32_t cause = rank->state[*n].cause, from = *at, node = cause >> 3;

    switch (cause & 7) {
    case WEFT__SIM_MESSAGE:
        *reason = WEFT_SIM_MESSAGE;
        if (rank->shape->node[*n].kind == WEFT_NODE_RECV)
            node = sender(sim, *at, *n, &from);
        else
            node =
                signaller(sim, from = node, *at, rank->shape->node[*n].tag, rank->state[*n].start);
        break;
    case WEFT__SIM_SIGNAL:
        *reason = WEFT_SIM_PROCESSOR;
        node = signaller(sim, from = node, *at, WEFT_CHANNEL_NONE, rank->state[*n].start);
        break;
    case WEFT__SIM_ORDER:
        *reason = WEFT_SIM_ORDER;
        break;
    case WEFT__SIM_CPU:
        *reason = WEFT_SIM_PROCESSOR;
        break;
    case WEFT__SIM_LINK:
        *reason = WEFT_SIM_LINK;
        break;
    case WEFT__SIM_CPU_MSG:
    case WEFT__SIM_LINK_MSG:
        *reason = (cause & 7) == WEFT__SIM_CPU_MSG ? WEFT_SIM_PROCESSOR : WEFT_SIM_LINK;
        if (rank->state[node].left & WEFT__SIM_LATE || node == *n) /* what it was itself held up */
            node = sender(sim, *at, node, &from);                  /* by is not kept: its send */
        break;
    default:
        *reason = cause == WEFT__SIM_BY_TIME ? WEFT_SIM_TIME : WEFT_SIM_FIRST;
        return 0;
    }
    *at = from;
    *n = node;
    return node != WEFT__SIM_NONE;
}

/* A rendezvous send that others waited for ended when it was met: by a receive that was posted late
 * (then the path goes there), or by its own message coming in. */
static int is_met_late(const struct weft__sim *sim, uint32_t at, uint32_t n, uint32_t *to,
                       uint32_t *recv)
{
    const struct weft__sim_rank *rank = &sim->ranks[at];
    const struct weft__sim_node *node = &rank->shape->node[n];

    if (node->kind != WEFT_NODE_SEND || weft__loggops_eager(&sim->model, node->bytes))
        return 0;
    *to = rank->send_peer[node->index];
    *recv = weft__sim_find_recv((struct weft__sim *)sim, *to, at, node->tag, node->index);
    return *recv != WEFT__SIM_NONE && sim->ranks[*to].state[*recv].left & WEFT__SIM_LATE;
}

static weft__ticks_t earlier(weft__ticks_t a, weft__ticks_t b)
{
    return a < b ? a : b;
}

static int walk_back(struct walk *walk, uint32_t at, uint32_t n)
{
    struct weft__sim *sim = walk->sim;
    weft__ticks_t end = end_of(sim, &sim->ranks[at], n);
    weft_sim_reason_t held = WEFT_SIM_ORDER; /* why what came before this held up what follows */

    for (uint64_t left = 2 * sim->nodes + 2; left; left--) {
        weft_sim_reason_t reason = WEFT_SIM_FIRST;
        uint32_t here = at, node = n, to, recv;
        int status, more;

        if (held == WEFT_SIM_ORDER && is_met_late(sim, at, n, &to, &recv)) {
            weft__ticks_t met = sim->ranks[to].state[recv].start;

            status = add(walk, at, n, met, WEFT_SIM_RENDEZVOUS);
            at = here = to;
            n = node = recv;
            end = met;
            if (status)
                return status;
        }
        more = step_back(sim, &at, &n, &reason);
        status =
            add(walk, here, node, end, more || reason == WEFT_SIM_TIME ? reason : WEFT_SIM_FIRST);
        if (status || !more)
            return status;
        end = end_of(sim, &sim->ranks[at], n);
        if (sim->model.offload && reason == WEFT_SIM_PROCESSOR) /* it had it for a part of that */
            end = earlier(end, sim->ranks[here].state[node].start);
        held = reason;
    }
    return WEFT_OK;
}

int weft__sim_path(struct weft__sim *sim, struct weft_sim_step **path, size_t *length)
{
    struct walk walk = {.sim = sim};
    const struct weft__port *port;
    uint32_t last = 0, n, holder;
    int status;

    for (uint32_t at = 1; at < sim->size; at++)
        if (weft__port_done(&sim->ranks[at].port) > weft__port_done(&sim->ranks[last].port))
            last = at;
    port = &sim->ranks[last].port;
    holder = port->taken_in > port->cpu ? sim->ranks[last].receive : sim->ranks[last].cpu;
    *path = NULL;
    *length = 0;
    n = holder >> 2;
    if ((holder & 3) == WEFT__SIM_OF_SIGNAL) {
        uint32_t from = n;

        n = signaller(sim, from, last, WEFT_CHANNEL_NONE, UINT64_MAX);
        last = from;
    }
    if (n >= sim->ranks[last].shape->nodes || !(sim->ranks[last].state[n].left & WEFT__SIM_STARTED))
        return WEFT_OK; /* nothing ever happened there, or a message that nobody wants */
    status = walk_back(&walk, last, n);
    if (status) {
        weft__free(walk.steps);
        return status;
    }
    for (size_t i = 0; i < walk.count / 2; i++) {
        struct weft_sim_step step = walk.steps[i];

        walk.steps[i] = walk.steps[walk.count - 1 - i];
        walk.steps[walk.count - 1 - i] = step;
    }
    *path = walk.steps;
    *length = walk.count;
    return WEFT_OK;
}
