/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulation: events in the order of time and cause, the arithmetic of loggops.h.
 *
 * An event is something that wants a rank at a time. If the rank is busy then, it waits, and what
 * wants the same thing waits in line behind it: a line is in the order of causes, because what a
 * rank releases later is ready later, and a message sent later arrives later. So the queue holds
 * three events a rank and the messages under way, however much a rank has posted.
 */
#include "runtime/sim/sim.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/graph/settle.h"

#include <stdlib.h>
#include <string.h>

/* weft__sim_event.what: the line, whether it is its head; or a receive to be posted; or an event
 * that the application fires; or a message, or a signal, that the adapter has taken in. */
enum { LINE = WEFT__SIM_LINE, HEAD = 4, POST = 8, FIRE = 16, RECEIVED = 32, HEARD = 64 };

static void fail_memory(struct weft__sim *sim)
{
    if (!sim->status)
        sim->status = weft__error_memory("a simulation");
}

void weft__sim_later(struct weft__sim *sim, const struct weft__sim_event *event)
{
    if (event->time > WEFT__TICKS_MAX && !sim->status)
        sim->status = weft__error(WEFT_ERR_UNSUPPORTED,
                                  "%s: the simulated time exceeds %.3g s: smaller costs "
                                  "or messages are expected",
                                  sim->who, weft__ticks_us(WEFT__TICKS_MAX) / 1e6);
    if (weft__sim_push(&sim->queue, event))
        fail_memory(sim);
}

static struct weft_sim_node *kept(struct weft__sim *sim, uint32_t rank, uint32_t n)
{
    return &sim->kept[sim->first_node[rank] + n];
}

/* ---- lines ---- */

/* A holder as the cause of what it holds up. */
static uint32_t cause_of(uint32_t holder, enum weft__sim_cause node, enum weft__sim_cause message)
{
    uint32_t kind = (holder & 3) == WEFT__SIM_OF_NODE      ? node
                    : (holder & 3) == WEFT__SIM_OF_MESSAGE ? message
                                                           : WEFT__SIM_SIGNAL;

    return holder >> 2 << 3 | kind;
}

/* When the head of a line could go, and who is in its way until then. */
static weft__ticks_t line_free(const struct weft__sim_rank *rank, uint32_t line, int offload,
                               uint32_t *cause)
{
    weft__ticks_t link = line == WEFT__SIM_SENDS      ? rank->port.send
                         : line == WEFT__SIM_MESSAGES ? rank->port.receive
                                                      : 0;
    uint32_t holder = line == WEFT__SIM_SENDS ? rank->send : rank->receive;

    if (link > rank->port.cpu || (offload && line == WEFT__SIM_MESSAGES)) {
        *cause = cause_of(holder, WEFT__SIM_LINK, WEFT__SIM_LINK_MSG);
        return link;
    }
    *cause = cause_of(rank->cpu, WEFT__SIM_CPU, WEFT__SIM_CPU_MSG);
    return rank->port.cpu;
}

static void line_append(struct weft__sim *sim, struct weft__sim_rank *rank,
                        const struct weft__sim_event *event, uint32_t line)
{
    uint32_t cell = sim->free_cell;

    if (cell) {
        sim->free_cell = sim->cells[cell - 1].next;
    } else if (sim->cell_count == UINT32_MAX - 1 ||
               weft__grow((void **)&sim->cells, &sim->cell_capacity, sim->cell_count + 1,
                          sizeof *sim->cells)) {
        fail_memory(sim);
        return;
    } else {
        cell = (uint32_t)++sim->cell_count;
    }
    sim->cells[cell - 1] = (struct weft__sim_cell){event->order, event->node, event->source, 0, 0};
    if (rank->first[line])
        sim->cells[rank->last[line] - 1].next = cell;
    else
        rank->first[line] = cell;
    rank->last[line] = cell;
}

/* Where the cause of what waits is kept: a message's with its receive, or nowhere. */
static void set_cause(struct weft__sim *sim, uint32_t at, uint32_t line, uint32_t node,
                      uint32_t source, uint32_t cause)
{
    struct weft__sim_rank *rank = &sim->ranks[at];

    if (line == WEFT__SIM_MESSAGES) {
        const struct weft__sim_node *send = &sim->ranks[source].shape->node[node];

        if (send->kind != WEFT_NODE_SEND)
            return;
        node = weft__sim_find_recv(sim, at, source, send->tag, send->index);
        if (node == WEFT__SIM_NONE)
            return;
    }
    rank->state[node].cause = cause;
}

/* The head of a line is done: the next one comes forward. */
static void line_next(struct weft__sim *sim, uint32_t at, uint32_t line)
{
    struct weft__sim_rank *rank = &sim->ranks[at];
    uint32_t cell = rank->first[line], cause;
    struct weft__sim_event event;

    if (!cell) {
        rank->busy &= ~(1u << line);
        return;
    }
    event = (struct weft__sim_event){.time = line_free(rank, line, sim->model.offload, &cause),
                                     .order = sim->cells[cell - 1].order,
                                     .rank = at,
                                     .node = sim->cells[cell - 1].node,
                                     .source = sim->cells[cell - 1].source,
                                     .what = line | HEAD};
    rank->first[line] = sim->cells[cell - 1].next;
    sim->cells[cell - 1].next = sim->free_cell;
    sim->free_cell = cell;
    set_cause(sim, at, line, event.node, event.source, cause);
    weft__sim_later(sim, &event);
}

/* ---- nodes become ready ---- */

/* Every predecessor has ended, an event has fired, by `now`: the node asks for what it needs from
 * when the processor is free. */
static void ready(struct weft__sim *sim, uint32_t at, uint32_t n, uint32_t cause, weft__ticks_t now)
{
    struct weft__sim_rank *rank = &sim->ranks[at];
    const struct weft__sim_node *node = &rank->shape->node[n];
    uint32_t line = node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_SIGNAL ? WEFT__SIM_SENDS
                                                                                   : WEFT__SIM_WORK;
    struct weft__sim_event event = {
        .order = sim->order++, .rank = at, .node = n, .what = line | HEAD};

    event.time = weft__ticks_later(rank->port.cpu, now);
    if (sim->kept && kept(sim, at, n)->ready_us < 0)
        kept(sim, at, n)->ready_us = weft__ticks_us(event.time);
    if (node->kind == WEFT_NODE_RECV) {
        event.what = POST;
        event.source = cause;
        weft__sim_later(sim, &event);
        return;
    }
    rank->state[n].cause = cause;
    if (node->kind == WEFT_NODE_EVENT && !(rank->state[n].left & WEFT__SIM_FIRED))
        return;
    if (rank->busy >> line & 1) {
        line_append(sim, rank, &event, line);
        return;
    }
    rank->busy |= 1u << line;
    if (line == WEFT__SIM_SENDS && rank->port.send > event.time)
        event.time = line_free(rank, line, 0, &rank->state[n].cause);
    weft__sim_later(sim, &event);
}

/* The order in which LogGOPSim starts what becomes ready at once. */
static int precedence(const struct weft__sim_node *node)
{
    return node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_SIGNAL ? 0
           : node->kind == WEFT_NODE_RECV                                 ? 1
                                                                          : 2;
}

/* What the end (1) or the retirement (0) of a predecessor means to a node. */
static enum weft__settled settle(struct weft__sim_rank *rank, uint32_t n, int ended)
{
    uint32_t *word = &rank->state[n].left, left = *word & WEFT__SIM_COUNT;
    int any = !rank->shape->plain && rank->shape->node[n].any;
    enum weft__settled settled = weft__settle(&left, any, ended);

    *word = (*word & ~WEFT__SIM_COUNT) | left;
    return settled;
}

/* A node has ended; what it was the last to hold up is ready. */
static void end_node(struct weft__sim *sim, uint32_t at, uint32_t n, weft__ticks_t end)
{
    struct weft__sim_rank *rank = &sim->ranks[at];
    const struct weft__sim_shape *shape = rank->shape;
    uint32_t first = shape->node[n].first, last = shape->node[n + 1].first;
    uint32_t cause = n << 3 | WEFT__SIM_ORDER;

    rank->state[n].left |= WEFT__SIM_ENDED;
    sim->ended++;
    if (sim->kept)
        kept(sim, at, n)->end_us = weft__ticks_us(end);
    if (rank->port.cpu > end) /* somebody else had the processor when this ended */
        (void)line_free(rank, WEFT__SIM_WORK, 0, &cause);
    if (!sim->model.free_bytes) {
        for (uint32_t e = first; e < last; e++)
            if (settle(rank, shape->after[e], 1) == WEFT__SETTLED_STARTS)
                ready(sim, at, shape->after[e], cause, end);
        return;
    }
    for (int turn = 0; turn < 3; turn++)
        for (uint32_t e = first; e < last; e++) {
            uint32_t next = shape->after[e];

            if (precedence(&shape->node[next]) == turn &&
                settle(rank, next, 1) == WEFT__SETTLED_STARTS)
                ready(sim, at, next, cause, end);
        }
}

/* ---- events and choices ---- */

static int stack_push(struct weft__sim *sim, size_t *depth, uint32_t n)
{
    if (weft__grow((void **)&sim->stack, &sim->stack_capacity, *depth + 1, sizeof *sim->stack)) {
        fail_memory(sim);
        return -1;
    }
    sim->stack[(*depth)++] = n;
    return 0;
}

/* Retires a node, and what depends on it: ALL nodes at once, ANY nodes when nothing is left. */
static void retire(struct weft__sim *sim, uint32_t at, uint32_t n)
{
    const uint32_t over = WEFT__SIM_STARTED | WEFT__SIM_ENDED | WEFT__SIM_RETIRED;
    struct weft__sim_rank *rank = &sim->ranks[at];
    const struct weft__sim_shape *shape = rank->shape;
    size_t depth = 0;

    if (stack_push(sim, &depth, n))
        return;
    while (depth) {
        n = sim->stack[--depth];
        if (rank->state[n].left & over)
            continue;
        rank->state[n].left = (rank->state[n].left & ~WEFT__SIM_COUNT) | WEFT__SIM_RETIRED;
        sim->ended++;
        if (sim->kept)
            kept(sim, at, n)->retired = 1;
        for (uint32_t e = shape->node[n].first; e < shape->node[n + 1].first; e++) {
            uint32_t next = shape->after[e];

            if (settle(rank, next, 0) == WEFT__SETTLED_RETIRES && stack_push(sim, &depth, next))
                return;
        }
    }
}

/* Fires an event: the rest of its choice is retired, and it ends when its predecessors allow. */
static void fire(struct weft__sim *sim, uint32_t at, uint32_t n, uint32_t cause, weft__ticks_t now)
{
    struct weft__sim_rank *rank = &sim->ranks[at];
    const struct weft__sim_shape *shape = rank->shape;
    uint32_t choice = shape->node[n].choice;

    if (rank->state[n].left & (WEFT__SIM_FIRED | WEFT__SIM_RETIRED))
        return;
    rank->state[n].left |= WEFT__SIM_FIRED;
    if (!(rank->state[n].left & WEFT__SIM_COUNT))
        ready(sim, at, n, cause, now);
    for (uint32_t other = 0; choice && other < shape->nodes; other++)
        if (other != n && shape->node[other].kind == WEFT_NODE_EVENT &&
            shape->node[other].choice == choice)
            retire(sim, at, other);
}

/* Does the application fire this event by itself? See weft_sim_config.activators. */
static int fires(const struct weft__sim *sim, uint32_t at, uint32_t n)
{
    const struct weft__sim_shape *shape = sim->ranks[at].shape;
    uint32_t choice = shape->node[n].choice;

    if (sim->ranks[at].state[n].left & WEFT__SIM_TIMED)
        return !sim->ranks[at].state[n].start;
    if (shape->node[n].tag != WEFT_CHANNEL_NONE)
        return 0;
    if (sim->activate[at])
        return 1;
    for (uint32_t other = 0; choice && other < shape->nodes; other++)
        if (shape->node[other].kind == WEFT_NODE_EVENT && shape->node[other].choice == choice &&
            shape->node[other].tag != WEFT_CHANNEL_NONE)
            return 0;
    return 1;
}

/* ---- what happens ---- */

static void do_send(struct weft__sim *sim, uint32_t at, uint32_t n, weft__ticks_t now)
{
    struct weft__sim_rank *rank = &sim->ranks[at];
    const struct weft__sim_node *node = &rank->shape->node[n];
    int is_signal = node->kind == WEFT_NODE_SIGNAL;
    uint64_t bytes = is_signal ? WEFT__SIM_SIGNAL_BYTES : node->bytes;
    struct weft__sim_event message = {.order = sim->order++,
                                      .rank = is_signal ? rank->signal_peer[node->index]
                                                        : rank->send_peer[node->index],
                                      .node = n,
                                      .source = at,
                                      .what = WEFT__SIM_MESSAGES};

    rank->state[n].left |= WEFT__SIM_STARTED;
    rank->state[n].start = now;
    message.time = weft__port_send(&rank->port, &sim->model, now, bytes);
    if (sim->flows) {
        message.time -= sim->model.L;
        message.what = WEFT__SIM_ENTER;
    }
    rank->cpu = rank->send = n << 2 | WEFT__SIM_OF_NODE;
    if (is_signal) {
        sim->signals++;
    } else {
        sim->messages++;
        sim->bytes += bytes;
    }
    if (sim->kept)
        kept(sim, at, n)->start_us = weft__ticks_us(now);
    weft__sim_later(sim, &message);
    if (is_signal || weft__loggops_eager(&sim->model, bytes))
        end_node(sim, at, n, rank->port.cpu);
}

static void do_work(struct weft__sim *sim, uint32_t at, uint32_t n, weft__ticks_t now)
{
    struct weft__sim_rank *rank = &sim->ranks[at];

    rank->state[n].left |= WEFT__SIM_STARTED;
    rank->state[n].start = now;
    if (sim->kept)
        kept(sim, at, n)->start_us = weft__ticks_us(now);
    weft__port_compute(&rank->port, now, weft__sim_cost(sim, &rank->shape->node[n]));
    rank->cpu = n << 2 | WEFT__SIM_OF_NODE;
    end_node(sim, at, n, rank->port.cpu);
}

/* A receive ends. Its message has the processor until then, or the adapter has it: then the
 * processor may do other things before that, and what waits for the receive must not ask yet. */
static void end_receive(struct weft__sim *sim, uint32_t at, uint32_t n, weft__ticks_t now,
                        weft__ticks_t end)
{
    if (sim->model.offload && end > now)
        weft__sim_later(
            sim, &(struct weft__sim_event){
                     .time = end, .order = sim->order++, .rank = at, .node = n, .what = RECEIVED});
    else
        end_node(sim, at, n, end);
}

/* Both ends of a rendezvous have met at `now`; they end in the order of ranks. The receive ends at
 * `end`. An eager send has ended before. */
static void meet(struct weft__sim *sim, uint32_t from, uint32_t send, uint32_t at, uint32_t recv,
                 weft__ticks_t now, weft__ticks_t end)
{
    const struct weft__sim_node *node = &sim->ranks[from].shape->node[send];
    weft__ticks_t before = sim->ranks[from].port.cpu;

    if (weft__loggops_eager(&sim->model, node->bytes)) {
        end_receive(sim, at, recv, now, end);
        return;
    }
    if (weft__port_rendezvous(&sim->ranks[from].port, now) > before)
        sim->ranks[from].cpu = send << 2 | WEFT__SIM_OF_NODE;
    if (from > at)
        end_receive(sim, at, recv, now, end);
    end_node(sim, from, send, now);
    if (from <= at)
        end_receive(sim, at, recv, now, end);
}

/* When a message that began to come in at `start` is there. */
static weft__ticks_t received(const struct weft__sim *sim, weft__ticks_t start, uint64_t bytes)
{
    struct weft__port port = {0};

    return weft__port_receive(&port, &sim->model, start, bytes);
}

/* A receive is posted; if its message is there, or is coming in, that ends it. */
static void post(struct weft__sim *sim, uint32_t at, uint32_t n, weft__ticks_t now, uint32_t cause)
{
    struct weft__sim_rank *rank = &sim->ranks[at];
    struct weft__sim_state *state = &rank->state[n];
    const struct weft__sim_node *node = &rank->shape->node[n];
    weft__ticks_t end;
    uint32_t from, send;

    state->left |= WEFT__SIM_STARTED;
    if (!(state->left & WEFT__SIM_ARRIVED)) {
        state->cause = cause;
        return;
    }
    from = rank->recv_peer[node->index];
    send = weft__sim_find_send(sim, from, at, node->tag, node->index);
    end = received(sim, state->start, sim->ranks[from].shape->node[send].bytes);
    if (end <= now) {
        state->left |= WEFT__SIM_LATE;
        state->start = end = now;
        state->cause = cause;
    }
    meet(sim, from, send, at, n, now, end);
}

/* A signal that has, or will have at `now`, been taken in. */
static void hear_signal(struct weft__sim *sim, uint32_t at, uint32_t from, uint32_t channel,
                        weft__ticks_t now)
{
    const struct weft__sim_shape *shape = sim->ranks[at].shape;
    uint32_t cause = from < WEFT__SIM_NODES_MAX ? from << 3 | WEFT__SIM_MESSAGE : WEFT__SIM_FIRST;

    for (uint32_t n = 0; shape->events && n < shape->nodes; n++)
        if (shape->node[n].kind == WEFT_NODE_EVENT && shape->node[n].tag == channel)
            fire(sim, at, n, cause, now);
}

static void lose(struct weft__sim *sim, uint32_t from, uint32_t send, uint32_t to, uint32_t recv)
{
    if (sim->lost_count++ < WEFT__SIM_LOST)
        sim->lost[sim->lost_count - 1] = (struct weft__sim_lost){from, send, to, recv};
}

/* What comes in has the incoming link, and the processor. */
static void hold(struct weft__sim_rank *rank, uint32_t holder, int has_cpu, int known)
{
    if (known)
        rank->receive = holder;
    if (known && has_cpu)
        rank->cpu = holder;
}

static void do_message(struct weft__sim *sim, uint32_t at, const struct weft__sim_event *event)
{
    struct weft__sim_rank *rank = &sim->ranks[at];
    const struct weft__sim_node *send = &sim->ranks[event->source].shape->node[event->node];
    int is_signal = send->kind == WEFT_NODE_SIGNAL;
    uint32_t n = is_signal ? WEFT__SIM_NONE
                           : weft__sim_find_recv(sim, at, event->source, send->tag, send->index);
    weft__ticks_t before = rank->port.cpu;
    weft__ticks_t end = weft__port_receive(&rank->port, &sim->model, event->time,
                                           is_signal ? WEFT__SIM_SIGNAL_BYTES : send->bytes);
    /* Behind what had the processor before, a message that the adapter takes in is not in the way:
     * the path goes on to that. */
    int has_cpu = !sim->model.offload || (before <= event->time && rank->port.cpu > event->time);

    if (is_signal) {
        hold(rank, event->source << 2 | WEFT__SIM_OF_SIGNAL, has_cpu,
             event->source < WEFT__SIM_NODES_MAX);
        if (sim->model.offload && end > event->time) {
            struct weft__sim_event heard = *event;

            heard.time = end;
            heard.order = sim->order++;
            heard.what = HEARD;
            weft__sim_later(sim, &heard);
        } else {
            hear_signal(sim, at, event->source, send->tag, end);
        }
        return;
    }
    if (n == WEFT__SIM_NONE) {
        lose(sim, event->source, event->node, at, n);
        return;
    }
    hold(rank, n << 2 | WEFT__SIM_OF_MESSAGE, has_cpu, 1);
    if (rank->shape->node[n].up_to ? send->bytes > rank->shape->node[n].bytes
                                   : send->bytes != rank->shape->node[n].bytes)
        lose(sim, event->source, event->node, at, n);
    if (sim->kept) {
        kept(sim, at, n)->start_us = weft__ticks_us(event->time);
        kept(sim, at, n)->peer_node = (weft_node_t)event->node;
        kept(sim, event->source, event->node)->peer_node = (weft_node_t)n;
    }
    if (!(event->what & HEAD))
        rank->state[n].cause = WEFT__SIM_MESSAGE;
    rank->state[n].start = event->time;
    rank->state[n].left |= WEFT__SIM_ARRIVED;
    if (rank->state[n].left & WEFT__SIM_STARTED)
        meet(sim, event->source, event->node, at, n, event->time, end);
}

/* Something wants its rank now: it goes, or waits, or is behind others that do. */
static void happen(struct weft__sim *sim, struct weft__sim_event *event)
{
    struct weft__sim_rank *rank = &sim->ranks[event->rank];
    uint32_t line = event->what & LINE, cause;
    weft__ticks_t free;

    if (event->what & WEFT__SIM_FLOWING) {
        weft__flows_happen(sim, event);
        return;
    }
    if (event->what & POST) {
        post(sim, event->rank, event->node, event->time, event->source);
        return;
    }
    if (event->what & FIRE) {
        fire(sim, event->rank, event->node, WEFT__SIM_BY_TIME, event->time);
        return;
    }
    if (event->what & RECEIVED) {
        end_node(sim, event->rank, event->node, event->time);
        return;
    }
    if (event->what & HEARD) {
        hear_signal(sim, event->rank, event->source,
                    sim->ranks[event->source].shape->node[event->node].tag, event->time);
        return;
    }
    if (!(event->what & HEAD) && rank->busy >> line & 1) {
        line_append(sim, rank, event, line);
        return;
    }
    free = line_free(rank, line, sim->model.offload, &cause);
    if (free > event->time) {
        rank->busy |= 1u << line;
        event->time = free;
        event->what |= HEAD;
        set_cause(sim, event->rank, line, event->node, event->source, cause);
        weft__sim_later(sim, event);
        return;
    }
    if (line == WEFT__SIM_SENDS)
        do_send(sim, event->rank, event->node, event->time);
    else if (line == WEFT__SIM_WORK)
        do_work(sim, event->rank, event->node, event->time);
    else
        do_message(sim, event->rank, event);
    if (event->what & HEAD)
        line_next(sim, event->rank, line);
}

/* ---- from beginning to end ---- */

/* An event that the application fires later, or that a signal does: it is open. */
static void begin_event(struct weft__sim *sim, uint32_t at, uint32_t n)
{
    const struct weft__sim_rank *rank = &sim->ranks[at];

    if (sim->kept && !rank->shape->node[n].waits)
        kept(sim, at, n)->ready_us = 0;
    if (rank->state[n].left & WEFT__SIM_TIMED && rank->state[n].start)
        weft__sim_later(sim, &(struct weft__sim_event){.time = rank->state[n].start,
                                                       .order = sim->order++,
                                                       .rank = at,
                                                       .node = n,
                                                       .what = FIRE});
}

static void begin_rank(struct weft__sim *sim, uint32_t at)
{
    struct weft__sim_rank *rank = &sim->ranks[at];
    const struct weft__sim_shape *shape = rank->shape;
    int turns = sim->model.free_bytes ? 3 : 1;

    for (uint32_t n = 0; shape->events && n < shape->nodes; n++)
        if (shape->node[n].kind == WEFT_NODE_EVENT && !fires(sim, at, n))
            begin_event(sim, at, n);
        else if (shape->node[n].kind == WEFT_NODE_EVENT &&
                 shape->node[n].waits) /* the others below, in their order */
            fire(sim, at, n, 0, 0);
    for (int turn = 0; turn < turns; turn++)
        for (uint32_t n = 0; n < shape->nodes; n++) {
            const struct weft__sim_node *node = &shape->node[n];

            if (node->waits || (turns == 3 && precedence(node) != turn))
                continue;
            if (node->kind == WEFT_NODE_EVENT && fires(sim, at, n))
                fire(sim, at, n, 0, 0);
            else if (node->kind == WEFT_NODE_RECV)
                post(sim, at, n, 0, WEFT__SIM_FIRST);
            else if (node->kind != WEFT_NODE_EVENT)
                ready(sim, at, n, 0, 0);
            if (sim->kept && node->kind == WEFT_NODE_RECV)
                kept(sim, at, n)->ready_us = 0;
        }
}

int weft__sim_run(struct weft__sim *sim)
{
    struct weft__sim_event event;

    for (uint32_t at = 0; at < sim->size && !sim->status; at++)
        begin_rank(sim, at);
    while (sim->queue.count && !sim->status) {
        weft__sim_prefetch(sim);
        if (weft__sim_pop(&sim->queue, &event))
            fail_memory(sim);
        else
            happen(sim, &event);
    }
    return sim->status;
}
