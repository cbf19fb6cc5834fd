/* SPDX-License-Identifier: BSD-3-Clause */
/* Where ranks wait, and that they keep apart (seat.h has the picture). */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/topology.h"
#include "runtime/context/context.h"

#include <sched.h>

enum {
    YIELDS_PER_LOOK = 4,
    TIMES = 16,      /* a rank that comes later moves after so many, */
    LONG_TIMES = 64, /* the one that was there before it after so many */
    ALONE = 4,       /* looks after which others are forgotten */
    SLICES = 8       /* lost to others, at least, before it goes back */
};
/* Between moves; and after it has gone back. */
#define REST_LEAST UINT64_C(2000000)
#define REST_MOST  UINT64_C(32000000)
#define BACK_LEAST UINT64_C(128000000)
#define BACK_MOST  UINT64_C(4000000000)
/* A yield that takes so long was somebody's slice. */
#define SLICE UINT64_C(400000)
/* After so long a move was good. */
#define TRIAL UINT64_C(200000000)

static _Atomic uint64_t *seat(struct weft__transport *transport, int member)
{
    return transport->ops->seat(transport, member);
}

int weft__seating_look(struct weft__seating *seating, struct weft__transport *transport, int thread,
                       uint64_t now)
{
    const _Atomic uint64_t *other;
    int own = transport->seat, earlier = 0, later = 0;
    atomic_store_explicit(seat(transport, own), weft__seat_word(++seating->looks, thread),
                          memory_order_relaxed);
    for (int i = 0; i < transport->local_ranks && (other = seat(transport, i)); i++) {
        uint64_t says = atomic_load_explicit(other, memory_order_relaxed);
        int waits = says != seating->said[i]; /* one that does not may be anywhere by now */
        seating->said[i] = says;
        if (!waits || i == own || weft__seat_thread(says) != thread)
            continue;
        if (i < own)
            earlier = 1;
        else
            later = 1;
    }
    if (earlier || later) {
        seating->alone = 0;
        seating->times++;
        return now >= seating->until && seating->times >= (earlier ? TIMES : LONG_TIMES);
    }
    if (++seating->alone >= ALONE)
        seating->times = 0;
    return 0;
}

/* Twice as long as the last time, within limits. */
static void rest(struct weft__seating *seating, uint64_t least, uint64_t most, uint64_t now)
{
    uint64_t twice = 2 * seating->rest;
    seating->rest = twice < least ? least : twice < most ? twice : most;
    seating->until = now + seating->rest;
    seating->times = 0;
}

void weft__seating_moved(struct weft__seating *seating, int from, uint64_t now)
{
    rest(seating, REST_LEAST, seating->rest > REST_MOST ? seating->rest : REST_MOST, now);
    seating->from = from;
    seating->moved = now;
    seating->slices = 0;
    seating->lost = 0;
}

int weft__seating_lost(struct weft__seating *seating, uint64_t began, uint64_t ended)
{
    int from = seating->from;
    if (ended - began >= SLICE) {
        seating->slices++;
        seating->lost += ended - began;
    }
    if (seating->slices >= SLICES && seating->lost > (ended - seating->moved) / 2) {
        rest(seating, BACK_LEAST, BACK_MOST, ended);
        seating->from = -1;
        return from;
    }
    if (ended - seating->moved >= TRIAL) {
        seating->from = -1;
        seating->rest = 0;
    }
    return -1;
}

int weft__seating_open(struct weft_context *context)
{
    struct weft__transport *transport = context->engine.transport;
    struct weft__seating *seating = &context->seating;
    size_t places = (size_t)transport->local_ranks;
    seating->from = -1;
    if (!transport->ops->seat || places < 2 || weft__topology_cores() < transport->local_ranks)
        return WEFT_OK;
    seating->said = weft__calloc(places, sizeof *seating->said);
    if (!seating->said)
        return weft__error_memory("a context");
    seating->says = 1;
    seating->moves = context->config.keep_apart == WEFT_BIND_ON && weft__topology_threads() > 1;
    return WEFT_OK;
}

void weft__seating_close(struct weft_context *context)
{
    struct weft__transport *transport = context->engine.transport;
    if (context->seating.says)
        atomic_store_explicit(seat(transport, transport->seat), 0, memory_order_relaxed);
    context->seating.says = 0;
}

/* To where nobody is; 0: there is no such place. */
static int move(struct weft_context *context)
{
    struct weft__transport *transport = context->engine.transport;
    const _Atomic uint64_t *other;
    cpu_set_t taken;
    CPU_ZERO(&taken);
    for (int i = 0; (other = seat(transport, i)); i++) {
        int thread = weft__seat_thread(atomic_load_explicit(other, memory_order_relaxed));
        if (thread >= 0 && thread < CPU_SETSIZE)
            CPU_SET((size_t)thread, &taken);
    }
    int thread = weft__topology_move(&taken);
    if (thread < 0)
        return 0;
    context->engine.stats.moves++;
    weft__log(context, WEFT_LOG_DEBUG, "moved to hardware thread %d, to be apart", thread);
    return 1;
}

static void look(struct weft_context *context, uint64_t now)
{
    struct weft__seating *seating = &context->seating;
    int thread = sched_getcpu();
    if (thread < 0 || !weft__seating_look(seating, context->engine.transport, thread, now) ||
        !seating->moves)
        return;
    weft__seating_moved(seating, move(context) ? thread : -1, now);
    seating->who = (uintptr_t)pthread_self();
}

void weft__seating_yield(struct weft_context *context, uint64_t now)
{
    struct weft__seating *seating = &context->seating;
    if (++seating->yields % YIELDS_PER_LOOK == 0)
        look(context, now);
    sched_yield();
    if (seating->from < 0)
        return;
    if (seating->who != (uintptr_t)pthread_self()) {
        seating->from = -1; /* another caller's move is not this one's to take back */
        return;
    }
    int back = weft__seating_lost(seating, now, weft__now());
    if (back >= 0 && weft__topology_move_to(back)) {
        context->engine.stats.moves++;
        weft__log(context, WEFT_LOG_DEBUG, "moved back to hardware thread %d", back);
    }
}
