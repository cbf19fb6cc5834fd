/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport of virtual ranks: what wants a rank's processor or links waits in a queue of its
 * kind; when they are free, the one that could go first goes, and of several the one that was
 * caused first, as loggops.h says.
 *
 * Payloads are copied when a send begins, so a message never points into another rank's memory, and
 * a send that is cancelled is simply forgotten.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/record.h"
#include "runtime/transport/virtual/virtual.h"
#include <stdio.h>
#include <string.h>

/* message.flags */
enum { EAGER = 1 };
/* What a signal is to the network, as in weft_simulate(). */
enum { SIGNAL_BYTES = 8 };

/* ---- records ---- */

static struct weft__virtual_message *make(struct weft__virtual *world,
                                          const struct weft__message *from, size_t room)
{
    if (room > SIZE_MAX - sizeof(struct weft__virtual_message))
        return NULL;
    struct weft__virtual_message *message =
        weft__malloc(1, sizeof(struct weft__virtual_message) + room);
    if (!message)
        return NULL;
    memset(message, 0, sizeof *message);
    message->base.bytes = from->bytes;
    message->base.version = from->version;
    message->base.object = from->object;
    message->base.tag = from->tag;
    message->base.from = from->from;
    message->base.to = from->to;
    message->base.kind = from->kind;
    message->base.part = from->part;
    message->base.turn = from->turn;
    message->from = from->from;
    message->to = from->to;
    message->references = 1;
    message->room = room;
    message->all_next = world->all;
    if (world->all)
        world->all->all_previous = message;
    world->all = message;
    return message;
}

static void unreference(struct weft__virtual *world, struct weft__virtual_message *message)
{
    if (--message->references > 0)
        return;
    if (message->xfer)
        message->xfer->handle = 0;
    if (message->all_previous)
        message->all_previous->all_next = message->all_next;
    else
        world->all = message->all_next;
    if (message->all_next)
        message->all_next->all_previous = message->all_previous;
    weft__free(message);
}

static void drop_compute(struct weft__virtual_compute *compute)
{
    if (compute->all_previous)
        compute->all_previous->all_next = compute->all_next;
    else
        compute->rank->all_computes = compute->all_next;
    if (compute->all_next)
        compute->all_next->all_previous = compute->all_previous;
    weft__free(compute);
}

void weft__virtual_forget(struct weft__virtual *world)
{
    while (world->all) {
        struct weft__virtual_message *message = world->all;
        world->all = message->all_next;
        weft__free(message);
    }
    for (int r = 0; r < world->size; r++)
        while (world->ranks[r].all_computes)
            drop_compute(world->ranks[r].all_computes);
}

/* ---- processor and links ---- */

/* The bytes for which the network is paid. */
static uint64_t paid(const struct weft__virtual *world, const struct weft__message *message)
{
    double scale = world->config.byte_scale;
    if (message->kind != WEFT__DATA)
        return SIGNAL_BYTES;
    return scale == 1 ? message->bytes : (uint64_t)((double)message->bytes * scale + 0.5);
}

/* When the first in each queue could go, at `now` or after, and who goes first. */
struct choice {
    weft__ticks_t time;
    uint64_t turn;
    enum { NOTHING, SEND, RECEIVE, COMPUTE } what;
};

static void consider(struct choice *best, int what, weft__ticks_t time, uint64_t turn)
{
    if (best->what != NOTHING && (time > best->time || (time == best->time && turn >= best->turn)))
        return;
    best->what = what;
    best->time = time;
    best->turn = turn;
}

static struct choice choose(struct weft__virtual_rank *rank)
{
    struct choice best = {WEFT__VIRTUAL_NEVER, WEFT__VIRTUAL_NEVER, NOTHING};
    const struct weft__port *port = &rank->port;
    weft__ticks_t now = rank->world->now;
    while (rank->computes && !rank->computes->run) {
        struct weft__virtual_compute *failed = rank->computes;
        rank->computes = failed->next;
        if (!rank->computes)
            rank->computes_end = &rank->computes;
        drop_compute(failed);
    }
    if (rank->arrivals)
        consider(&best, RECEIVE,
                 weft__ticks_later(now, weft__port_can_receive(port, &rank->world->net)),
                 rank->arrivals->turn);
    if (rank->sends)
        consider(&best, SEND, weft__ticks_later(now, weft__port_can_send(port)), rank->sends->turn);
    if (rank->computes)
        consider(&best, COMPUTE, weft__ticks_later(now, weft__port_can_compute(port)),
                 rank->computes->turn);
    return best;
}

/* Sees to it that the queues are looked at when something in them can go. */
static void arm(struct weft__virtual_rank *rank)
{
    struct choice best = choose(rank);
    if (best.what == NOTHING || best.time >= rank->serve_at)
        return;
    rank->serve_at = best.time;
    weft__virtual_push(rank->world, best.time, best.turn, WEFT__V_SERVE, rank);
}

static void end_send(struct weft__virtual *world, struct weft__virtual_message *message,
                     weft__ticks_t time)
{
    message->references++;
    weft__virtual_push(world, time, weft__virtual_turn(world), WEFT__V_SENT, message);
}

/* Returns 1 if the send has ended with that. */
static int begin_send(struct weft__virtual_rank *rank, struct weft__virtual_message *message)
{
    struct weft__virtual *world = rank->world;
    weft__ticks_t there =
        weft__port_send(&rank->port, &world->net, world->now, paid(world, &message->base));
    if (rank->base.rank != message->to)
        there += weft__virtual_delay(world);
    message->turn = weft__virtual_turn(world);
    message->under_way = 1;
    weft__virtual_push(world, there, message->turn, WEFT__V_ARRIVE, message);
    if (message->base.kind == WEFT__DATA) {
        world->result.messages++;
        world->result.bytes += message->base.bytes;
    } else {
        world->result.signals++;
    }
    if (!message->xfer || message->base.flags != EAGER)
        return 0;
    if (rank->port.cpu <= world->now)
        return 1;
    end_send(world, message, rank->port.cpu);
    return 0;
}

/* The receive of a rendezvous has been posted and its first byte is here. */
static void rendezvous(struct weft__virtual *world, struct weft__virtual_message *message)
{
    struct weft__virtual_rank *sender = &world->ranks[message->from];
    message->posted = 1;
    end_send(world, message, weft__port_rendezvous(&sender->port, world->now));
}

static void begin_receive(struct weft__virtual_rank *rank, struct weft__virtual_message *message)
{
    struct weft__virtual *world = rank->world;
    weft__ticks_t end =
        weft__port_receive(&rank->port, &world->net, world->now, paid(world, &message->base));
    message->turn = weft__virtual_turn(world);
    if (message->xfer && message->base.flags != EAGER &&
        weft__family_posted(rank->context, &message->base))
        rendezvous(world, message);
    if (end > world->now)
        weft__virtual_push(world, end, message->turn, WEFT__V_DELIVER, message);
    else
        weft__virtual_deliver(world, message);
}

static void begin_compute(struct weft__virtual_rank *rank, struct weft__virtual_compute *compute)
{
    struct weft__virtual *world = rank->world;
    weft__ticks_t end = weft__port_compute(&rank->port, world->now, compute->cost);
    compute->turn = weft__virtual_turn(world);
    struct weft__engine *engine = compute->run->engine;
    if (engine->recorder)
        weft__note_node(engine, compute->run, compute->node, WEFT__NOTE_START);
    weft__virtual_push(world, end, compute->turn, WEFT__V_COMPUTED, compute);
}

void weft__virtual_serve(struct weft__virtual_rank *rank)
{
    weft__ticks_t pending = rank->serve_at;
    rank->serve_at = 0; /* nobody arms meanwhile */
    struct choice best = choose(rank);
    for (; best.what != NOTHING && best.time <= rank->world->now; best = choose(rank)) {
        if (best.what == SEND) {
            struct weft__virtual_message *message = rank->sends;
            rank->sends = message->next;
            if (!rank->sends)
                rank->sends_end = &rank->sends;
            if (begin_send(rank, message))
                end_send(rank->world, message, rank->world->now);
        } else if (best.what == RECEIVE) {
            struct weft__virtual_message *message = rank->arrivals;
            rank->arrivals = message->next;
            if (!rank->arrivals)
                rank->arrivals_end = &rank->arrivals;
            begin_receive(rank, message);
        } else {
            struct weft__virtual_compute *compute = rank->computes;
            rank->computes = compute->next;
            if (!rank->computes)
                rank->computes_end = &rank->computes;
            begin_compute(rank, compute);
        }
    }
    rank->serve_at = pending;
    arm(rank);
}

/* ---- what the events do ---- */

void weft__virtual_arrive(struct weft__virtual *world, struct weft__virtual_message *message)
{
    struct weft__virtual_rank *rank = &world->ranks[message->to];
    message->next = NULL;
    *rank->arrivals_end = message;
    rank->arrivals_end = &message->next;
    if (rank->serve_at <= world->now)
        return;
    if (weft__port_can_receive(&rank->port, &world->net) <= world->now)
        weft__virtual_serve(rank);
    else
        arm(rank);
}

void weft__virtual_deliver(struct weft__virtual *world, struct weft__virtual_message *message)
{
    struct weft__virtual_rank *rank = &world->ranks[message->to];
    weft__virtual_record(world, WEFT_VIRTUAL_ARRIVE, rank->base.rank, &message->base);
    message->under_way = 0;
    message->base.next = NULL;
    *rank->inbox_end = &message->base;
    rank->inbox_end = &message->base.next;
    weft__virtual_tell(rank, message->turn);
    weft__virtual_step(rank);
}

void weft__virtual_lose(struct weft__virtual *world, struct weft__virtual_message *message)
{
    weft__virtual_record(world, WEFT_VIRTUAL_LOST, message->to, &message->base);
    message->under_way = 0;
    unreference(world, message);
}

int weft__virtual_drained(const struct weft__virtual *world, int from, int to)
{
    const struct weft__virtual_message *message = world->all;
    while (message && !(message->under_way && message->from == from && message->to == to))
        message = message->all_next;
    return !message;
}

void weft__virtual_sent(struct weft__virtual *world, struct weft__virtual_message *message,
                        uint64_t turn, int alive)
{
    struct weft__virtual_rank *rank = &world->ranks[message->from];
    struct weft__xfer *xfer = message->xfer;
    int status = message->refused;
    message->xfer = NULL;
    unreference(world, message);
    if (!xfer)
        return;
    xfer->handle = alive ? (uint64_t)(int64_t)status : 0; /* not the message, which may be gone */
    if (!alive)
        return;
    weft__virtual_record(world, WEFT_VIRTUAL_SENT, rank->base.rank, &xfer->message);
    xfer->message.next = rank->ended;
    rank->ended = &xfer->message;
    weft__virtual_tell(rank, turn);
    weft__virtual_step(rank);
}

void weft__virtual_computed(struct weft__virtual_compute *compute, int alive)
{
    struct weft__virtual_rank *rank = compute->rank;
    struct weft_run *run = compute->run;
    if (!run || !alive) {
        drop_compute(compute);
        return;
    }
    if (compute->cost > 0)
        weft__virtual_record(rank->world, WEFT_VIRTUAL_COMPUTED, rank->base.rank, NULL);
    weft__virtual_tell(rank, compute->turn);
    rank->computed = compute;
    weft__virtual_step(rank);
}

/* ---- the table ---- */

static void copy_payload(struct weft__virtual_message *message, const struct weft__xfer *xfer)
{
    size_t bytes = xfer->message.bytes;
    for (size_t at = 0, chunk; at < bytes; at += chunk) {
        chunk = bytes - at;
        const char *from = xfer->message.list ? weft__xfer_chunk(xfer, at, &chunk)
                                              : (const char *)xfer->message.data + at;
        if (chunk > bytes - at)
            chunk = bytes - at;
        memcpy(message->payload + at, from, chunk);
    }
}

/* Begins it if nothing is before it; else it waits. Returns 1 if it has ended. */
static int submit(struct weft__virtual_rank *rank, struct weft__virtual_message *message)
{
    weft__ticks_t now = rank->world->now;
    if (!rank->sends && !rank->arrivals && !rank->computes &&
        weft__port_can_send(&rank->port) <= now)
        return begin_send(rank, message);
    message->turn = weft__virtual_follow(rank);
    message->next = NULL;
    *rank->sends_end = message;
    rank->sends_end = &message->next;
    arm(rank);
    return 0;
}

static int virtual_send(struct weft__transport *transport, struct weft__xfer *xfer)
{
    struct weft__virtual_rank *rank = (struct weft__virtual_rank *)transport;
    struct weft__virtual *world = rank->world;
    if (weft__engine_death(transport->engine, xfer->message.to))
        return weft__error(WEFT_ERR_PEER, "rank %d has died", xfer->message.to);
    size_t room = world->config.no_payload ? 0 : xfer->message.bytes;
    struct weft__virtual_message *message = make(world, &xfer->message, room);
    if (!message)
        return weft__error_memory("a message");
    if (room > 0) {
        copy_payload(message, xfer);
        /* Reductions that wait for the processor are nodes of their own: the payload is fetched
         * first. */
        message->base.data = world->timed ? NULL : message->payload;
    }
    message->base.flags = weft__loggops_eager(&world->net, paid(world, &message->base)) ? EAGER : 0;
    message->xfer = xfer;
    xfer->handle = (uint64_t)(uintptr_t)message;
    if (!submit(rank, message))
        return WEFT_IN_PROGRESS;
    message->xfer = NULL;
    return WEFT_OK;
}

static int virtual_control(struct weft__transport *transport, const struct weft__message *given)
{
    struct weft__virtual_rank *rank = (struct weft__virtual_rank *)transport;
    struct weft__virtual *world = rank->world;
    int copies = 1;
    if (weft__engine_death(transport->engine, given->to))
        return WEFT_OK;
    if (given->kind == WEFT__SIGNAL && world->config.duplicate_share > 0 &&
        weft__virtual_share(&world->fault_random) < world->config.duplicate_share)
        copies = 2;
    for (int c = 0; c < copies; c++) {
        size_t bytes = given->data ? given->bytes : 0; /* of news */
        struct weft__virtual_message *message = make(world, given, bytes);
        if (!message)
            return weft__error_memory("a signal");
        if (bytes) {
            memcpy(message->payload, given->data, bytes);
            message->base.data = message->payload;
        }
        submit(rank, message);
    }
    return WEFT_OK;
}

static int virtual_poll(struct weft__transport *transport)
{
    struct weft__virtual_rank *rank = (struct weft__virtual_rank *)transport;
    int count = 0;
    while (rank->ended) {
        struct weft__xfer *xfer = weft__xfer_of(rank->ended);
        rank->ended = xfer->message.next;
        weft__engine_sent(transport->engine, xfer, (int)(int64_t)xfer->handle);
        count++;
    }
    struct weft__virtual_compute *compute = rank->computed;
    rank->computed = NULL;
    if (compute) {
        struct weft_run *run = compute->run;
        uint32_t node = compute->node;
        drop_compute(compute);
        if (run)
            weft__engine_spent(transport->engine, run, node);
        count++;
    }
    while (rank->inbox) {
        struct weft__message *message = rank->inbox;
        rank->inbox = message->next;
        if (!rank->inbox)
            rank->inbox_end = &rank->inbox;
        weft__engine_message(transport->engine, message);
        count++;
    }
    while (rank->died) { /* after all that has come from them */
        const struct weft__virtual_rank *dead = rank->died->dead;
        char how[64];
        rank->died = rank->died->next;
        snprintf(how, sizeof how, "stopped at %.9f s of virtual time",
                 (double)dead->stopped_at / (1e9 * WEFT__TICKS_PER_NS));
        weft__engine_died(transport->engine, dead->base.rank, how);
        count++;
    }
    return count;
}

static int virtual_returned(const struct weft__transport *transport, int rank)
{
    const struct weft__virtual *world = ((const struct weft__virtual_rank *)transport)->world;
    return world->ranks[rank].state == WEFT__V_ENDED;
}

static int virtual_fetch(struct weft__transport *transport, struct weft__message *message,
                         struct weft__xfer *xfer)
{
    (void)transport;
    const struct weft__virtual_message *from = (const struct weft__virtual_message *)message;
    for (size_t at = 0, chunk; at < from->room; at += chunk) {
        chunk = from->room - at;
        char *to = xfer->message.list ? weft__xfer_chunk(xfer, at, &chunk)
                                      : (char *)xfer->message.data + at;
        if (chunk > from->room - at)
            chunk = from->room - at;
        memcpy(to, from->payload + at, chunk);
    }
    return WEFT_OK;
}

static void virtual_release(struct weft__transport *transport, struct weft__message *given,
                            int consumed)
{
    struct weft__virtual *world = ((struct weft__virtual_rank *)transport)->world;
    struct weft__virtual_message *message = (struct weft__virtual_message *)given;
    if (message->xfer && message->base.flags != EAGER && !message->posted) {
        message->refused = consumed == 1   ? WEFT_OK
                           : consumed == 0 ? WEFT_ERR_PEER
                                           : WEFT_ERR_CANCELLED;
        rendezvous(world, message);
    }
    unreference(world, message);
}

static int virtual_cancel(struct weft__transport *transport, struct weft__xfer *xfer)
{
    struct weft__virtual_rank *rank = (struct weft__virtual_rank *)transport;
    struct weft__message **link = &rank->ended;
    while (*link && *link != &xfer->message)
        link = &(*link)->next;
    if (*link) {
        *link = xfer->message.next;
        return WEFT_OK;
    }
    struct weft__virtual_message *message = (struct weft__virtual_message *)(uintptr_t)xfer->handle;
    if (message)
        message->xfer = NULL;
    return WEFT_OK;
}

/* ---- nodes that take time ---- */

static weft__ticks_t cost_of(const struct weft__virtual *world, int rank,
                             const struct weft_run *run, const struct weft__node *node)
{
    const struct weft_virtual_config *config = &world->config;
    const struct weft__region *regions = &run->plan->regions[node->regions];
    double ns = config->node_ns;
    double bytes = 0;
    if (node->kind == WEFT_NODE_JOIN)
        return 0;
    if (node->kind == WEFT_NODE_COMPUTE) {
        for (uint32_t i = 0; i < node->region_count; i++)
            bytes += (double)weft__region_bytes(run, &regions[i]);
        if (config->compute_ns)
            ns += (double)config->compute_ns(config->compute_user, rank,
                                             weft_op_name(run->plan->ops[node->op]),
                                             (size_t)(bytes * config->byte_scale));
    } else {
        bytes = (double)weft__region_bytes(run, regions) * config->byte_scale;
        ns += bytes * (node->kind == WEFT_NODE_REDUCE ? config->reduce_ns_per_byte
                                                      : config->copy_ns_per_byte);
    }
    return weft__ticks(ns / 1000);
}

/* What costs nothing waits for the processor all the same. */
static int virtual_spend(struct weft__transport *transport, struct weft_run *run, uint32_t n)
{
    struct weft__virtual_rank *rank = (struct weft__virtual_rank *)transport;
    struct weft__virtual *world = rank->world;
    const struct weft__node *node = &run->plan->nodes[n];
    weft__ticks_t cost = cost_of(world, transport->rank, run, node);
    struct weft__virtual_compute *compute = weft__calloc(1, sizeof *compute);
    if (!compute) {
        weft__virtual_break(world, WEFT_ERR_MEMORY, "out of memory for a node that takes time");
        return WEFT_OK;
    }
    *compute = (struct weft__virtual_compute){.rank = rank,
                                              .run = run,
                                              .node = n,
                                              .cost = cost,
                                              .turn = weft__virtual_follow(rank),
                                              .all_next = rank->all_computes};
    if (rank->all_computes)
        rank->all_computes->all_previous = compute;
    rank->all_computes = compute;
    *rank->computes_end = compute;
    rank->computes_end = &compute->next;
    arm(rank);
    return WEFT_IN_PROGRESS;
}

static void virtual_unspend(struct weft__transport *transport, const struct weft_run *run)
{
    struct weft__virtual_rank *rank = (struct weft__virtual_rank *)transport;
    for (struct weft__virtual_compute *c = rank->all_computes; c; c = c->all_next)
        if (c->run == run)
            c->run = NULL;
}

static int virtual_hosts(struct weft__transport *transport, int *hosts)
{
    const struct weft__virtual *world = ((struct weft__virtual_rank *)transport)->world;
    int each = world->config.ranks_per_host > 0 ? world->config.ranks_per_host : world->size;
    for (int r = 0; r < world->size; r++)
        hosts[r] = r / each;
    return WEFT_OK;
}

static void virtual_close(struct weft__transport *transport)
{
    (void)transport; /* the rank belongs to the world */
}

const struct weft__transport_ops weft__virtual_ops = {
    .send = virtual_send,
    .control = virtual_control,
    .poll = virtual_poll,
    .fetch = virtual_fetch,
    .release = virtual_release,
    .cancel = virtual_cancel,
    .hosts = virtual_hosts,
    .returned = virtual_returned,
    .now = weft__virtual_now,
    .block = weft__virtual_block,
    .wake = weft__virtual_wake,
    .spend = virtual_spend,
    .unspend = virtual_unspend,
    .close = virtual_close,
};
