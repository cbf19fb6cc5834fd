/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: a step function over runs.
 *
 * A run counts, for each node, the predecessors still to come. A node whose count reaches zero is
 * put into the run's ready set, a bitmap in levels of 64 (one bit of a level says that a word of
 * the level below has bits), from which the node created first is taken. So starting costs no
 * allocation, nodes start in the order in which they were created, and putting one in twice is
 * harmless: a node to be retired goes through the same set, with WEFT__RETIRE in its word. Events
 * are in it only when predecessors of theirs have ended: without any, an event is open when the run
 * begins.
 *
 * A step takes what the transport has, works one slice of the first long computation, then starts
 * ready nodes up to a budget, so that what arrives is never stuck behind a large reduction.
 */
#include "runtime/engine/engine.h"
#include "runtime/base/error.h"
#include "runtime/base/search.h"
#include "runtime/engine/flight.h"
#include "runtime/engine/ordered.h"
#include "runtime/engine/record.h"
#include <string.h>

/* Nodes started in one step before the transport is looked at again. */
#define STEP_NODES 4096
/* So many bytes of reduction or copy count as one node more. */
#define BYTES_PER_NODE 64

/* What is rare is WEFT__NOINLINE: the variables of the loop over nodes then fit into registers. */
#if defined(__GNUC__)
#    define ALWAYS_INLINE inline __attribute__((always_inline))
#else
#    define ALWAYS_INLINE inline
#endif

/* ---- the ready set ---- */

/* A word of level 0 has got its first bit. */
static WEFT__NOINLINE void ready_raise(struct weft_run *run, uint32_t word)
{
    const struct weft_plan *plan = run->plan;
    if (word < run->lowest)
        run->lowest = word;
    for (uint32_t level = 1; level < plan->levels; level++) {
        uint64_t *up = &run->ready[plan->level_word[level] + word / 64];
        uint64_t before = *up;
        *up = before | (uint64_t)1 << (word % 64);
        if (before != 0)
            return;
        word /= 64;
    }
}

static inline void ready_push(struct weft_run *run, uint64_t *ready, uint32_t node)
{
    uint64_t *word = &ready[node / 64];
    uint64_t before = *word;
    *word = before | (uint64_t)1 << (node % 64);
    if (before == 0)
        ready_raise(run, node / 64);
}

static inline int ready_empty(const struct weft_run *run)
{
    return run->ready[run->plan->words - 1] == 0;
}

/* The first word of level 0 that has bits. */
static WEFT__NOINLINE uint32_t ready_lowest(const struct weft_run *run)
{
    const struct weft_plan *plan = run->plan;
    uint32_t index = 0;
    for (uint32_t level = plan->levels; level-- > 1;)
        index = index * 64 + (uint32_t)__builtin_ctzll(run->ready[plan->level_word[level] + index]);
    return index;
}

/* A word of level 0 has become empty. */
static WEFT__NOINLINE void ready_clear(struct weft_run *run, uint32_t word)
{
    const struct weft_plan *plan = run->plan;
    for (uint32_t level = 1; level < plan->levels; level++) {
        uint64_t *up = &run->ready[plan->level_word[level] + word / 64];
        *up &= ~((uint64_t)1 << (word % 64));
        if (*up != 0)
            return;
        word /= 64;
    }
}

/* Of a set that is not empty. `lowest` is a word with no bits before it: mostly the one. */
static inline uint32_t ready_pop(struct weft_run *run, uint64_t *ready)
{
    uint32_t word = run->lowest;
    uint64_t bits = ready[word];
    if (bits == 0) {
        word = run->lowest = ready_lowest(run);
        bits = ready[word];
    }
    uint64_t rest = bits & (bits - 1);
    ready[word] = rest;
    if (rest == 0)
        ready_clear(run, word);
    return word * 64 + (uint32_t)__builtin_ctzll(bits);
}

/* Puts the run into the engine's list of those with ready nodes. */
static inline void enlist(struct weft__engine *engine, struct weft_run *run)
{
    if (run->in_ready)
        return;
    run->in_ready = 1;
    run->ready_next = NULL;
    if (engine->ready_tail)
        engine->ready_tail->ready_next = run;
    else
        engine->ready_head = run;
    engine->ready_tail = run;
}

void weft__engine_make_ready(struct weft__engine *engine, struct weft_run *run, uint32_t node)
{
    ready_push(run, run->ready, node);
    enlist(engine, run);
}

/* ---- ends of nodes ----
 *
 * ALL, ANY, choices and retirement. Who executes without the engine has the same rule in
 * graph/settle.h, which says it in a table; this one is apart because it is hot, shares its word
 * with flags, and events are atomic. tests/unit/graph/test_settle.c compares the two. */

/* A successor whose word has flags: what the end of a predecessor means to it. */
static WEFT__NOINLINE void succeed_flagged(struct weft_run *run, uint32_t node)
{
    uint32_t word = run->waits[node];
    if (word & (WEFT__STARTED | WEFT__RETIRE))
        return;
    if (word & WEFT__ANY) {
        run->waits[node] = word | WEFT__STARTED;
        ready_push(run, run->ready, node);
    } else if ((word & WEFT__COUNT) == 0) {
        ready_push(run, run->ready, node);
    }
}

/* Tells the successors [after, end). With `direct` (nothing else is ready), the first that becomes
 * ready is not put into the set but returned, to be started next: the others come after it. */
static ALWAYS_INLINE uint32_t release(struct weft_run *run, const uint32_t *after,
                                      const uint32_t *end, int direct, int plain)
{
    uint32_t *waits = run->waits;
    uint64_t *ready = run->ready;
    uint32_t held = WEFT__NONE;
    for (; after < end; after++) {
        uint32_t next = *after;
        uint32_t word = --waits[next];
        if (word == 0) {
            if (direct) {
                held = next;
                direct = 0;
            } else {
                ready_push(run, ready, next);
            }
        } else if (!plain && (word & ~WEFT__COUNT)) {
            succeed_flagged(run, next);
            direct = 0;
        }
    }
    return held;
}

static ALWAYS_INLINE uint32_t release_successors(struct weft_run *run, uint32_t node, int direct,
                                                 int plain)
{
    const struct weft_plan *plan = run->plan;
    return release(run, plan->after + plan->first[node], plan->after + plan->first[node + 1],
                   direct, plain);
}

void weft__engine_finish(struct weft__engine *engine, struct weft_run *run, uint32_t node)
{
    if (engine->recorder)
        weft__note_node(engine, run, node, WEFT__NOTE_END);
    release_successors(run, node, 0, 0);
    engine->did++;
    if (--run->left == 0)
        weft__engine_end(engine, run, WEFT_OK);
    else if (!run->in_ready && !ready_empty(run))
        enlist(engine, run);
}

void weft__engine_issued(struct weft__engine *engine, struct weft_run *run, uint32_t node)
{
    const struct weft__flights *flights = run->flights;
    const uint32_t *after = flights->after + run->plan->first[node];
    if (!weft__run_active(run))
        return;
    release(run, after, after + flights->streamed[node], 0, 0);
    if (!run->in_ready && !ready_empty(run))
        enlist(engine, run);
}

void weft__engine_landed(struct weft__engine *engine, struct weft_run *run, uint32_t node)
{
    const struct weft_plan *plan = run->plan;
    if (engine->recorder)
        weft__note_node(engine, run, node, WEFT__NOTE_END);
    release(run, run->flights->after + plan->first[node] + run->flights->streamed[node],
            run->flights->after + plan->first[node + 1], 0, 0);
    engine->did++;
    if (--run->left == 0)
        weft__engine_end(engine, run, WEFT_OK);
    else if (!run->in_ready && !ready_empty(run))
        enlist(engine, run);
}

/* Retires a node: its ALL successors are retired, its ANY successors when nothing else can come. */
static WEFT__NOINLINE void retire(struct weft__engine *engine, struct weft_run *run, uint32_t node)
{
    const struct weft_plan *plan = run->plan;
    if (plan->nodes[node].kind == WEFT_NODE_EVENT) {
        uint64_t idle = WEFT__EVENT_WORD(run->version, (uint64_t)WEFT__EVENT_IDLE);
        atomic_compare_exchange_strong_explicit(
            &run->events[plan->nodes[node].index], &idle,
            WEFT__EVENT_WORD(run->version, (uint64_t)WEFT__EVENT_RETIRED), memory_order_acq_rel,
            memory_order_relaxed);
    }
    for (uint32_t e = plan->first[node]; e < plan->first[node + 1]; e++) {
        uint32_t next = plan->after[e];
        uint32_t word = --run->waits[next];
        if (word & (WEFT__STARTED | WEFT__RETIRE))
            continue;
        if ((word & WEFT__ANY) && (word & WEFT__COUNT) != 0)
            continue;
        run->waits[next] = word | WEFT__RETIRE;
        ready_push(run, run->ready, next);
    }
    engine->did++;
    if (engine->recorder)
        weft__note_node(engine, run, node, WEFT__NOTE_RETIRED);
    if (--run->left == 0)
        weft__engine_end(engine, run, WEFT_OK);
}

/* ---- events ---- */

int weft__event_try(struct weft_run *run, uint32_t event, uint64_t version)
{
    const struct weft_plan *plan = run->plan;
    int32_t choice = plan->nodes[plan->events[event].node].peer;
    uint64_t idle;
    if (atomic_load_explicit(&run->events[event], memory_order_acquire) ==
        WEFT__EVENT_WORD(version, (uint64_t)WEFT__EVENT_RETIRED))
        return WEFT_RETIRED;
    /* Release: what the firer wrote before is seen by the nodes that the event releases. */
    if (choice >= 0) {
        idle = WEFT__CHOICE_WORD(version, (uint64_t)0);
        return atomic_compare_exchange_strong_explicit(
                   &run->choices[choice], &idle, WEFT__CHOICE_WORD(version, (uint64_t)event + 1),
                   memory_order_acq_rel, memory_order_acquire)
                   ? WEFT_OK
                   : WEFT_RETIRED;
    }
    idle = WEFT__EVENT_WORD(version, (uint64_t)WEFT__EVENT_IDLE);
    return atomic_compare_exchange_strong_explicit(
               &run->events[event], &idle, WEFT__EVENT_WORD(version, (uint64_t)WEFT__EVENT_FIRED),
               memory_order_acq_rel, memory_order_acquire)
               ? WEFT_OK
               : WEFT_RETIRED;
}

/* An event has fired: it ends if its predecessors have; the rest of its choice is retired. */
void weft__engine_fire(struct weft__engine *engine, struct weft_run *run, uint32_t event)
{
    const struct weft_plan *plan = run->plan;
    uint32_t node = plan->events[event].node;
    int32_t choice = plan->nodes[node].peer;
    if (choice >= 0)
        for (uint32_t i = plan->choice_first[choice]; i < plan->choice_first[choice + 1]; i++) {
            uint32_t other = plan->choice_events[i];
            uint32_t loser = plan->events[other].node;
            uint32_t word = run->waits[loser];
            if (other == event || (word & WEFT__RETIRE))
                continue;
            run->waits[loser] = (word & ~WEFT__OPEN) | WEFT__RETIRE;
            /* One that is open is in no set. The run does not end: the winner has not. */
            if (word & WEFT__OPEN)
                retire(engine, run, loser);
            else
                ready_push(run, run->ready, loser);
        }
    if (!ready_empty(run))
        enlist(engine, run);
    if (run->waits[node] & WEFT__RETIRE)
        return;
    if (run->waits[node] & WEFT__OPEN) {
        run->waits[node] &= ~WEFT__OPEN;
        weft__engine_finish(engine, run, node);
    } else {
        run->waits[node] |= WEFT__FIRED;
        engine->did++;
    }
}

void weft__engine_fired(struct weft__engine *engine, struct weft_run *run)
{
    /* Acquire pairs with the release of the push in weft_run_fire(). */
    uint32_t event = atomic_exchange_explicit(&run->fired_head, 0, memory_order_acquire);
    while (event != 0 &&
           atomic_load_explicit(&run->state, memory_order_relaxed) == WEFT__RUN_ACTIVE) {
        uint32_t next = run->fired_next[event - 1];
        weft__engine_fire(engine, run, event - 1);
        event = next;
    }
}

/* A node of the ready set that is to be retired, or of a join that somebody waits for. */
static WEFT__NOINLINE void pass(struct weft__engine *engine, struct weft_run *run, uint32_t node)
{
    uint32_t word = run->waits[node];
    if (word & WEFT__WATCHED) {
        run->waits[node] = word & ~WEFT__WATCHED;
        weft__watches_tell(engine, run, node, word & WEFT__RETIRE ? WEFT_RETIRED : WEFT_OK);
    }
    if (word & WEFT__RETIRE) {
        retire(engine, run, node);
        return;
    }
    if (engine->recorder)
        weft__note_node(engine, run, node, WEFT__NOTE_START);
    weft__engine_finish(engine, run, node);
}

/* ---- starts of nodes ---- */

/* Sends what message.data, .list and .bytes say. */
static ALWAYS_INLINE int post(struct weft__engine *engine, struct weft_run *run, uint32_t n,
                              const struct weft__node *node, int peer)
{
    struct weft__transport *transport = engine->transport;
    struct weft__xfer *xfer = &run->xfers[node->index];
    struct weft__message *message = &xfer->message;
    message->kind = WEFT__DATA;
    message->version = run->version;
    message->object = run->object->id;
    message->tag = node->tag;
    message->from = transport->rank;
    message->to = peer;
    message->xflags = WEFT__X_SENDING;
    xfer->done = (size_t)engine->now;
    engine->stats.messages_sent++;
    engine->stats.bytes_sent += message->bytes;
    int status = message->list == WEFT__DEVICE ? transport->ops->send_device(transport, xfer)
                                               : transport->ops->send(transport, xfer);
    if (status == WEFT_IN_PROGRESS)
        return status;
    message->xflags = WEFT__X_IDLE;
    if (status == WEFT_OK) {
        weft__engine_finish(engine, run, n);
    } else if (status == WEFT__OUT_OF_REACH) {
        engine->stats.messages_sent--;
        engine->stats.bytes_sent -= message->bytes;
    } else if (weft__engine_death(engine, peer)) {
        weft__engine_forsaken(engine, run, n, peer);
    } else {
        weft__engine_fail(engine, run, status, n, status == WEFT_ERR_PEER ? peer : transport->rank,
                          weft_error_text());
    }
    return status;
}

static void start_send(struct weft__engine *engine, struct weft_run *run, uint32_t n,
                       const struct weft__node *node, int peer)
{
    struct weft__message *message = &run->xfers[node->index].message;
    const struct weft__region *region = &run->plan->regions[node->regions];
    size_t bytes = weft__region_bytes(run, region);
    size_t chunk = bytes;
    message->data = weft__region_chunk(run, region, 0, &chunk);
    message->list = chunk < bytes;
    if (message->list)
        message->data = NULL;
    message->bytes = bytes;
    post(engine, run, n, node, peer);
}

int weft__engine_post(struct weft__engine *engine, struct weft_run *run, uint32_t n,
                      const void *data, int list)
{
    const struct weft__node *node = &run->plan->nodes[n];
    struct weft__message *message = &run->xfers[node->index].message;
    message->data = data;
    message->list = (uint8_t)list;
    message->bytes = weft__region_bytes(run, &run->plan->regions[node->regions]);
    return post(engine, run, n, node, weft__peer(run, node->peer));
}

static void start_recv(struct weft__engine *engine, struct weft_run *run,
                       const struct weft__node *node, int peer)
{
    struct weft__xfer *xfer = &run->xfers[node->index];
    struct weft__message *message = &xfer->message;
    message->kind = WEFT__RECEIVE;
    message->version = run->version;
    message->object = run->object->id;
    message->tag = node->tag;
    message->from = peer;
    message->xflags = WEFT__X_POSTED;
    xfer->done = (size_t)engine->now;
    struct weft__message *arrived = weft__match_post(&engine->match, message);
    if (arrived)
        weft__engine_deliver(engine, xfer, arrived);
    else if (weft__engine_has_gone(engine, peer))
        weft__engine_forsaken(engine, run, xfer->node, peer);
}

static void start_signal(struct weft__engine *engine, struct weft_run *run, uint32_t n,
                         const struct weft__node *node, int peer)
{
    struct weft__message signal = {.version = run->version,
                                   .object = run->object->id,
                                   .tag = node->tag,
                                   .from = engine->transport->rank,
                                   .to = peer,
                                   .kind = WEFT__SIGNAL};
    engine->stats.signals_sent++;
    int status = engine->transport->ops->control(engine->transport, &signal);
    if (status < 0)
        weft__engine_fail(engine, run, status, n, engine->transport->rank, weft_error_text());
    else
        weft__engine_finish(engine, run, n);
}

/* A reduction or copy: 1 if it has ended, 0 if it goes on as a job or has failed the run. */
static WEFT__NOINLINE int start_local(struct weft__engine *engine, struct weft_run *run, uint32_t n,
                                      const struct weft__node *node)
{
    const struct weft__region *region = &run->plan->regions[node->regions];
    size_t bytes = weft__region_bytes(run, region);
    if (node->index != WEFT__NONE && bytes > engine->slice_bytes) {
        weft__engine_job(engine, &run->xfers[node->index], WEFT__X_COMPUTING);
        return 0;
    }
    int status = node->kind == WEFT_NODE_COPY ? weft__engine_copy(run, n, 0, bytes)
                                              : weft__engine_reduce(run, n, NULL, 0, bytes);
    if (status == WEFT_OK)
        return 1;
    weft__engine_broken(engine, run, n);
    return 0;
}

/* Whether a node goes on as on any transport; 0: its time has to pass first, or it touches nothing
 * and has ended. Its start is noted when it has begun. */
static WEFT__NOINLINE int start_special(struct weft__engine *engine, struct weft_run *run,
                                        uint32_t n, const struct weft__node *node)
{
    struct weft__transport *transport = engine->transport;
    if (run->flights && (node->flags & WEFT__DEVICE_NODE) && !weft__device_start(engine, run, n))
        return 0;
    int works =
        transport->timed && (node->kind == WEFT_NODE_REDUCE || node->kind == WEFT_NODE_COPY ||
                             node->kind == WEFT_NODE_COMPUTE);
    if (works && transport->ops->spend(transport, run, n) == WEFT_IN_PROGRESS)
        return 0;
    if (engine->recorder)
        weft__note_node(engine, run, n, WEFT__NOTE_START);
    if (!works || !transport->no_payload || node->kind == WEFT_NODE_COMPUTE)
        return 1;
    weft__engine_finish(engine, run, n);
    return 0;
}

void weft__engine_spent(struct weft__engine *engine, struct weft_run *run, uint32_t n)
{
    const struct weft__node *node = &run->plan->nodes[n];
    engine->did++;
    engine = run->engine;
    if (node->kind == WEFT_NODE_COMPUTE)
        weft__engine_compute(engine, run, n);
    else if (node->kind == WEFT_NODE_JOIN || engine->transport->no_payload ||
             start_local(engine, run, n, node))
        weft__engine_finish(engine, run, n);
}

static WEFT__NOINLINE void start(struct weft__engine *engine, struct weft_run *run, uint32_t n)
{
    const struct weft__node *node = &run->plan->nodes[n];
    int peer;
    switch ((weft_node_kind_t)node->kind) {
    case WEFT_NODE_SEND:
    case WEFT_NODE_RECV:
    case WEFT_NODE_SIGNAL:
        peer = weft__peer(run, node->peer);
        if (peer == WEFT_PEER_NONE) {
            if (node->produces != 0)
                run->values[node->produces - 1] = 0;
            weft__engine_finish(engine, run, n);
        } else if (node->kind == WEFT_NODE_SEND) {
            start_send(engine, run, n, node, peer);
        } else if (node->kind == WEFT_NODE_RECV) {
            start_recv(engine, run, node, peer);
        } else {
            start_signal(engine, run, n, node, peer);
        }
        break;
    case WEFT_NODE_COMPUTE:
        weft__engine_compute(engine, run, n);
        break;
    case WEFT_NODE_EVENT:
        if (run->waits[n] & WEFT__FIRED)
            weft__engine_finish(engine, run, n);
        else
            run->waits[n] |= WEFT__OPEN;
        break;
    case WEFT_NODE_REDUCE:
    case WEFT_NODE_COPY:
    case WEFT_NODE_JOIN:
    default:
        break; /* run_ready() */
    }
}

/* What a reduction or copy counts for in a step's budget, beside the node that it is. */
static int extra_budget(const struct weft__engine *engine, const struct weft_run *run,
                        const struct weft__node *node)
{
    size_t bytes = run->plan->regions[node->regions].bytes;
    return bytes > engine->slice_bytes ? 0 : (int)(bytes / BYTES_PER_NODE);
}

/* Starts ready nodes of a run while it is active and the budget lasts. A node that becomes ready
 * while nothing else is goes on as `next`, without having been in the set. `plain` and `special`
 * are known where it is called, so that a run without flags, tracing and virtual time has no
 * branches for them. */
static ALWAYS_INLINE void start_nodes(struct weft__engine *engine, struct weft_run *run, int plain,
                                      int special)
{
    const struct weft__node *nodes = run->plan->nodes;
    uint64_t *ready = run->ready;
    const uint64_t *top = &ready[run->plan->words - 1]; /* 0: nothing is ready */
    uint32_t next = WEFT__NONE;
    for (int budget = STEP_NODES; budget > 0; budget--) {
        uint32_t n = next;
        if (n == WEFT__NONE) {
            if (*top == 0)
                return;
            n = ready_pop(run, ready);
            if (!plain && (run->waits[n] & (WEFT__RETIRE | WEFT__WATCHED))) {
                pass(engine, run, n);
                if (!weft__run_active(run))
                    return;
                continue;
            }
        }
        next = WEFT__NONE;
        const struct weft__node *node = &nodes[n];
        if (special && !start_special(engine, run, n, node)) {
            if (!weft__run_active(run))
                return;
            continue;
        }
        if (node->kind == WEFT_NODE_REDUCE || node->kind == WEFT_NODE_COPY) {
            budget -= extra_budget(engine, run, node);
            if (!start_local(engine, run, n, node)) {
                if (!weft__run_active(run))
                    return;
                continue;
            }
        } else if (node->kind != WEFT_NODE_JOIN) {
            start(engine, run, n);
            if (!weft__run_active(run))
                return;
            continue;
        }
        if (special && engine->recorder)
            weft__note_node(engine, run, n, WEFT__NOTE_END);
        next = release_successors(run, n, *top == 0, plain);
        if (--run->left == 0) {
            weft__engine_end(engine, run, WEFT_OK);
            return;
        }
    }
    if (next != WEFT__NONE)
        ready_push(run, ready, next);
}

/* In a plain plan no word of a node ever has flags. */
static WEFT__NOINLINE void start_plain(struct weft__engine *engine, struct weft_run *run)
{
    start_nodes(engine, run, 1, 0);
}

/* A recorder notes its nodes, or they take virtual time, or are on a device. */
static WEFT__NOINLINE void start_watched(struct weft__engine *engine, struct weft_run *run)
{
    start_nodes(engine, run, 0, 1);
    if (run->flights)
        weft__flights_mark(engine, run->flights);
    if (run->flights && run->flights->ordered && weft__run_active(run))
        weft__ordered_settle(run);
}

static WEFT__NOINLINE void start_any(struct weft__engine *engine, struct weft_run *run)
{
    if (run->flights)
        start_watched(engine, run);
    else
        start_nodes(engine, run, 0, 0);
}

/* The first run in the list gets its turn; then it goes to the end of the list, or out. */
static void run_ready(struct weft__engine *engine)
{
    struct weft_run *run = engine->ready_head;
    engine->did++;
    if (weft__run_active(run) && (engine->recorder || engine->transport->timed))
        start_watched(engine, run);
    else if (weft__run_active(run) && run->plain)
        start_plain(engine, run);
    else if (weft__run_active(run))
        start_any(engine, run);
    /* Nothing else takes runs out of the list while its head is at work. */
    engine->ready_head = run->ready_next;
    if (!engine->ready_head)
        engine->ready_tail = NULL;
    run->in_ready = 0;
    if (weft__run_active(run) && !ready_empty(run))
        enlist(engine, run);
}

/* ---- runs ---- */

/* The run may end with any of them: a series then prepares its next version, which is not active
 * yet. */
static void fire_reached(struct weft__engine *engine, struct weft_run *run)
{
    const struct weft__object *object = run->object;
    for (uint32_t i = 0; i < object->channel_count && weft__run_active(run); i++)
        if (object->reached[i] > run->version)
            weft__engine_fire_channel(engine, run, object->channels[i]);
}

/* The first event of a plan with a channel of at least `channel`. */
static uint32_t events_from(const struct weft_plan *plan, uint32_t channel)
{
    uint32_t low = 0;
    uint32_t high = plan->event_count;
    WEFT__SEARCH(low, high, middle, plan->events[middle].channel < channel)
    return low;
}

void weft__engine_fire_channel(struct weft__engine *engine, struct weft_run *run, uint32_t channel)
{
    const struct weft_plan *plan = run->plan;
    for (uint32_t e = events_from(plan, channel);
         e < plan->event_count && plan->events[e].channel == channel && weft__run_active(run); e++)
        if (weft__event_try(run, e, run->version) == WEFT_OK)
            weft__engine_fire(engine, run, e);
}

/* Events without predecessors are open from the start: nothing has to be started for them. */
static WEFT__NOINLINE void note_open(struct weft__engine *engine, const struct weft_run *run)
{
    const struct weft_plan *plan = run->plan;
    for (uint32_t e = 0; e < plan->event_count; e++)
        if (plan->waits[plan->events[e].node] & WEFT__OPEN)
            weft__note_node(engine, run, plan->events[e].node, WEFT__NOTE_START);
}

void weft__engine_start(struct weft__engine *engine, struct weft_run *run)
{
    const struct weft_plan *plan = run->plan;
    struct weft__object *object = run->object;
    int status;
    memcpy(run->waits, plan->waits, plan->node_count * sizeof *run->waits);
    memcpy(run->ready, plan->roots, plan->words * sizeof *run->ready);
    run->lowest = 0;
    run->left = plan->node_count;
    run->plain = plan->plain;
    if (run->watches)
        weft__watches_start(run);
    run->status = WEFT_IN_PROGRESS;
    run->cause = 0;
    run->told = 0;
    run->active_next = engine->active;
    run->active_previous = NULL;
    if (engine->active)
        engine->active->active_previous = run;
    engine->active = run;
    engine->active_count++;
    engine->did++;
    run->expires_ns = run->deadline_ns == 0 || run->deadline_ns >= WEFT__NEVER - run->started_ns
                          ? WEFT__NEVER
                          : run->started_ns + run->deadline_ns;
    if (run->expires_ns < engine->expires_ns)
        engine->expires_ns = run->expires_ns;
    if (object) {
        object->skipped = object->floor;
        if (!object->unordered)
            object->floor = run->version; /* versions that were skipped will never be run */
        object->active = run;
    }
    if (engine->recorder)
        weft__note_run(engine, run, WEFT__NOTE_RUN_START);
    atomic_store_explicit(&run->state, WEFT__RUN_ACTIVE, memory_order_release);
    if (engine->failed < 0) {
        weft__engine_fail(engine, run, engine->failed, WEFT__NONE, engine->transport->rank,
                          engine->reason ? engine->reason : "the transport has failed");
        return;
    }
    if (object && object->whole &&
        (status = atomic_load_explicit(&object->whole->status, memory_order_relaxed)) < 0) {
        weft__engine_fail(engine, run, status, WEFT__NONE, engine->transport->rank,
                          object->whole->text);
        return;
    }
    if (engine->deaths && weft__engine_bereft(engine, run))
        return;
    if (object && object->failed && weft__object_failed(engine, run))
        return;
    if (object && object->team && object->team->aborted) {
        weft__engine_fail(engine, run, WEFT_ERR_PEER, WEFT__NONE, engine->transport->rank,
                          "its communicator has been ended by a failure on another rank");
        return;
    }
    if (plan->node_count == 0) {
        weft__engine_end(engine, run, WEFT_OK);
        return;
    }
    if (engine->recorder)
        note_open(engine, run);
    if (run->flights && run->flights->ordered)
        weft__ordered_begin(engine, run);
    if (!weft__run_active(run))
        return;
    enlist(engine, run);
    if (object && object->channel_count > 0 && plan->event_count > 0)
        fire_reached(engine, run);
}

/* ---- the step ---- */

/* How soon to look again at what no bell tells of: calls that are asked, and a device. */
static WEFT__NOINLINE uint64_t interval(const struct weft__engine *engine)
{
    return engine->asked ? WEFT__CALL_POLL_NS : weft__flights_interval(engine);
}

uint64_t weft__engine_step(struct weft__engine *engine, uint64_t now)
{
    engine->now = now;
    engine->stats.steps++;
    int status = engine->transport->ops->poll(engine->transport);
    if (status < 0 && engine->failed == 0)
        weft__engine_abort(engine, status, weft_error_text());
    if (engine->job_head)
        weft__engine_work(engine);
    if (engine->ready_head)
        run_ready(engine);
    int parts = 0;
    if (engine->pending)
        parts = weft__engine_poll_calls(engine);
    else
        engine->polling = 0;
    if (now >= engine->expires_ns)
        weft__engine_deadlines(engine);
    if (engine->ready_head || engine->job_head || parts)
        return now;
    if (engine->polling) {
        uint64_t next = now + interval(engine);
        return next < engine->expires_ns ? next : engine->expires_ns;
    }
    return engine->expires_ns;
}
