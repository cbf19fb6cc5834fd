/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arithmetic of LogGOPS: when a rank's processor and its two links are busy. Both simulators
 * use it, the one of flat schedules (sim.c) and the one of whole engines in virtual time, so that
 * equal schedules take equal times.
 *
 *              t        t + o + mO
 *   sender     |== cpu ==|
 *              |==== send link ====|  t + g + mG
 *                         \
 *                          L
 *                           \       w = t + o + L, or later: when cpu and link are free
 *   receiver                 |========== cpu =========|  w + o + max(mO, mG): the receive ends
 *                            |=== receive link ===|      w + g + mG
 *
 * Rules, as LogGOPSim has them:
 * - what wants a rank waits until the processor and the link that it needs are free, and takes both
 *   at once; among those that wait for the same instant, the one goes first that was *caused*
 *   first: a message when its send began, a node when what it last waited for began; nodes caused
 *   by the same go in the order of creation;
 * - an arriving message takes the receiver's processor whether or not its receive has been posted;
 * - a message of more than S bytes (rendezvous) travels as an eager one does, but its send ends
 *   only when the message has begun to be received and its receive has been posted: at that
 *   instant, with no latency of its own, the sender's processor and send link become free at the
 *   earliest;
 * - posting a receive costs nothing;
 * - with WEFT_NET_OFFLOAD a message waits for the link alone and has of the processor o + mO, as
 *   soon as that is free; the receive ends as above, processor or not.
 *
 * Time is counted in integer picoseconds, so that sums are exact, ties are ties on every machine,
 * and the order of additions does not matter. 2^62 ps are 53 days; costs are clamped, not wrapped.
 */
#ifndef WEFT_RUNTIME_COST_LOGGOPS_H
#define WEFT_RUNTIME_COST_LOGGOPS_H

#include <weft/sim.h>

typedef uint64_t weft__ticks_t;

#define WEFT__TICKS_PER_NS 1000u
#define WEFT__TICKS_PER_US 1000000u
/* No cost is larger, and no time may pass it: sums of a time and a few costs stay in 64 bits. */
#define WEFT__TICKS_MAX (UINT64_C(1) << 61)

/* A network in ticks. */
struct weft__loggops {
    weft__ticks_t L, o, g;
    double G, O; /* ticks a byte */
    double G_in; /* of the incoming link: G, or 0 where bytes come in as a fabric lets them */
    uint64_t S;
    uint64_t free_bytes; /* 1 with WEFT_NET_LOGGOPSIM */
    int offload;         /* WEFT_NET_OFFLOAD */
};

/* When a rank's processor and links are free again. Starts as zeros. */
struct weft__port {
    weft__ticks_t cpu;
    weft__ticks_t send;
    weft__ticks_t receive;
    weft__ticks_t taken_in; /* when the last message was: later than cpu with offload alone */
};

/* Reads a network by the policy of weft/sized.h and checks its ranges; @p given NULL: all is free.
 * @p name is whose argument it is, for the error's text. */
int weft__net_read(const char *who, const char *name, const struct weft_net *given,
                   struct weft_net *net);

/* What there may be in the text of a network, but for what says how it is wired. */
#define WEFT__NET_WORDS "L=, o=, g=, G=, O=, S=, offload="

/* Whether a word of such a text, "L=1.5", is one of weft_net. */
int weft__net_knows(const char *word, size_t length);
/* Takes it into @p net; @p seen has a bit for each parameter there was, and begins as 0. WEFT_OK;
 * WEFT_ERR_INVALID, with a text that begins with "network: " and the word. */
int weft__net_take(const char *word, size_t length, struct weft_net *net, unsigned *seen);
/* A number of @p length bytes from 0 to @p max: digits, a point, an exponent. 0, or -1. */
int weft__net_number(const char *text, size_t length, double max, double *number);

/* Microseconds in ticks, rounded to the nearest, clamped. */
static inline weft__ticks_t weft__ticks(double us)
{
    double ticks = us * WEFT__TICKS_PER_US + 0.5;

    if (!(ticks >= 1))
        return 0;
    return ticks < (double)WEFT__TICKS_MAX ? (weft__ticks_t)ticks : WEFT__TICKS_MAX;
}

static inline double weft__ticks_us(weft__ticks_t ticks)
{
    return (double)ticks / WEFT__TICKS_PER_US;
}

/* What `bytes` cost at `each` ticks a byte. */
static inline weft__ticks_t weft__ticks_bytes(double each, uint64_t bytes)
{
    double ticks = each * (double)bytes + 0.5;

    return ticks < (double)WEFT__TICKS_MAX ? (weft__ticks_t)ticks : WEFT__TICKS_MAX;
}

static inline weft__ticks_t weft__ticks_later(weft__ticks_t a, weft__ticks_t b)
{
    return a > b ? a : b;
}

static inline struct weft__loggops weft__loggops_of(const struct weft_net *net)
{
    struct weft__loggops model = {
        .L = weft__ticks(net->L),
        .o = weft__ticks(net->o),
        .g = weft__ticks(net->g),
        .G = net->G * WEFT__TICKS_PER_US,
        .O = net->O * WEFT__TICKS_PER_US,
        .G_in = net->G * WEFT__TICKS_PER_US,
        .S = net->S == 0                   ? UINT64_MAX
             : net->S == WEFT_NET_NO_EAGER ? 0
                                           : net->S,
        .free_bytes = net->flags & WEFT_NET_LOGGOPSIM ? 1 : 0,
        .offload = net->flags & WEFT_NET_OFFLOAD ? 1 : 0,
    };

    return model;
}

/* The bytes of a message that take time. */
static inline uint64_t weft__loggops_bytes(const struct weft__loggops *model, uint64_t bytes)
{
    return bytes > model->free_bytes ? bytes - model->free_bytes : 0;
}

static inline int weft__loggops_eager(const struct weft__loggops *model, uint64_t bytes)
{
    return bytes <= model->S;
}

/* The earliest time at which this rank could begin to send, to take in a message, to compute. */
static inline weft__ticks_t weft__port_can_send(const struct weft__port *port)
{
    return weft__ticks_later(port->cpu, port->send);
}

static inline weft__ticks_t weft__port_can_receive(const struct weft__port *port,
                                                   const struct weft__loggops *model)
{
    return model->offload ? port->receive : weft__ticks_later(port->cpu, port->receive);
}

static inline weft__ticks_t weft__port_can_compute(const struct weft__port *port)
{
    return port->cpu;
}

/* Begins to send at `now`, which is not before weft__port_can_send(). The processor is the sender's
 * until port->cpu, when an eager send ends. Returns when the first byte is at the receiver. */
static inline weft__ticks_t weft__port_send(struct weft__port *port,
                                            const struct weft__loggops *model, weft__ticks_t now,
                                            uint64_t bytes)
{
    uint64_t m = weft__loggops_bytes(model, bytes);

    port->cpu = now + model->o + weft__ticks_bytes(model->O, m);
    port->send = now + model->g + weft__ticks_bytes(model->G, m);
    return now + model->o + model->L;
}

/* Begins to take a message in at `now`, which is not before weft__port_can_receive(). Returns when
 * the receive has ended, which is port->cpu but with offload. */
static inline weft__ticks_t weft__port_receive(struct weft__port *port,
                                               const struct weft__loggops *model, weft__ticks_t now,
                                               uint64_t bytes)
{
    uint64_t m = weft__loggops_bytes(model, bytes);
    weft__ticks_t gap = weft__ticks_bytes(model->G_in, m), own = weft__ticks_bytes(model->O, m);
    weft__ticks_t end = now + model->o + weft__ticks_later(own, gap);

    port->cpu = model->offload ? weft__ticks_later(port->cpu, now) + model->o + own : end;
    port->receive = now + model->g + gap;
    port->taken_in = weft__ticks_later(port->taken_in, end);
    return end;
}

/* Computes for `cost` from `now` on, which is not before weft__port_can_compute(). Returns the end.
 */
static inline weft__ticks_t weft__port_compute(struct weft__port *port, weft__ticks_t now,
                                               weft__ticks_t cost)
{
    port->cpu = now + cost;
    return port->cpu;
}

/* When all that the port has begun has ended. */
static inline weft__ticks_t weft__port_done(const struct weft__port *port)
{
    return weft__ticks_later(port->cpu, port->taken_in);
}

/* A rendezvous that this rank sends has found its receive, at `now`: when the send ends. */
static inline weft__ticks_t weft__port_rendezvous(struct weft__port *port, weft__ticks_t now)
{
    port->cpu = weft__ticks_later(port->cpu, now);
    port->send = weft__ticks_later(port->send, now);
    return port->cpu;
}

#endif
