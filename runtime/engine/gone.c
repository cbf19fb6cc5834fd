/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that have left or died.
 *
 * Who has left sends nothing any more: what waits for its messages fails, the rest goes on. Who has
 * died was in the middle of something, so all that it was part of fails, at once, on every rank
 * that hears of it: objects, series and the sequence, which all ranks share; and of the other runs
 * those that need it. These tell their peers, with what they know of the death, so that who waits
 * for them hears of it, too, whether it has been told of the death itself or not. Such a report is
 * kept apart: who asks what has become of the rank finds it dead, but what has come of it and is
 * not yet handed over still counts, until the transport tells.
 *
 *     rank 0                rank 1                rank 2
 *                           waits for 0           dies: "killed by signal 9"
 *     waits for 2  <- - - - - - - - - - - - - - -
 *     its run fails
 *        BEREFT 2 ------->  its run fails: "rank 2 has died: killed by signal 9, as rank 0 reports"
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/flight.h"
#include "runtime/engine/ordered.h"
#include <stdio.h>
#include <string.h>

/* ---- what is known ---- */

static struct weft__death *find(struct weft__death *deaths, int rank)
{
    while (deaths && deaths->rank != rank)
        deaths = deaths->next;
    return deaths;
}

const struct weft__death *weft__engine_death(const struct weft__engine *engine, int rank)
{
    return find(engine->deaths, rank);
}

void weft__engine_fate(const struct weft__engine *engine, int rank, char text[WEFT__FATE_BYTES])
{
    const struct weft__death *death = weft__engine_death(engine, rank);
    if (death)
        snprintf(text, WEFT__FATE_BYTES, "rank %d has died%s%s", rank,
                 death->how[0] != '\0' ? ": " : "", death->how);
    else
        snprintf(text, WEFT__FATE_BYTES, "rank %d has left", rank);
}

static void free_list(struct weft__death *deaths)
{
    while (deaths) {
        struct weft__death *next = deaths->next;
        weft__free(deaths);
        deaths = next;
    }
}

void weft__deaths_free(struct weft__engine *engine)
{
    free_list(engine->deaths);
    free_list(engine->reports);
    engine->deaths = engine->reports = NULL;
}

/* NULL without memory for it. */
static struct weft__death *add(struct weft__death **deaths, int rank, const char *how)
{
    size_t bytes = strlen(how) + 1;
    struct weft__death *death = weft__malloc(1, sizeof *death + bytes);
    if (!death)
        return NULL;
    death->rank = rank;
    memcpy(death->how, how, bytes);
    death->next = *deaths;
    *deaths = death;
    return death;
}

const struct weft__death *weft__engine_report(const struct weft__engine *engine, int rank)
{
    return find(engine->reports, rank);
}

void weft__engine_reported(struct weft__engine *engine, int rank, const char *how)
{
    if (!weft__engine_has_gone(engine, rank) && !find(engine->reports, rank))
        add(&engine->reports, rank, how); /* without memory it is known when the transport tells */
}

/* 0, or -1 without memory for it. */
static int mark_gone(struct weft__engine *engine, int rank)
{
    if (!engine->gone)
        engine->gone = weft__calloc((size_t)engine->transport->size / 8 + 1, 1);
    if (!engine->gone)
        return -1;
    engine->gone[rank / 8] |= (unsigned char)(1u << (rank % 8));
    return 0;
}

/* ---- runs that need a rank ---- */

void weft__engine_forsaken(struct weft__engine *engine, struct weft_run *run, uint32_t node,
                           int rank)
{
    const struct weft__death *death = weft__engine_death(engine, rank);
    char text[WEFT__FATE_BYTES];
    weft__engine_fate(engine, rank, text);
    if (death)
        run->how = death->how;
    weft__engine_fail(engine, run, WEFT_ERR_PEER, node, rank, text);
    run->how = NULL;
}

/* The first node of a run that waits for a message of `rank`; or WEFT__NONE. */
static uint32_t waits_for_rank(const struct weft_run *run, int rank)
{
    for (uint32_t i = 0; i < run->plan->xfer_count; i++)
        if (run->xfers[i].message.xflags == WEFT__X_POSTED && run->xfers[i].message.from == rank)
            return run->xfers[i].node;
    return WEFT__NONE;
}

/* Whether a transfer needs its peer to go on. A payload that is here is whole, whoever has sent it;
 * a job on one that comes in pieces goes on as far as these are here. */
static int needs_peer(int state)
{
    return state == WEFT__X_POSTED || state == WEFT__X_FETCHING || state == WEFT__X_SENDING ||
           state == WEFT__X_COPYING_WAITS || state == WEFT__X_REDUCING_WAITS ||
           state == WEFT__X_CARRYING_WAITS || state == WEFT__X_AGREEING || state == WEFT__X_ISSUED;
}

/* The first node that has a transfer with `rank` under way; or WEFT__NONE. */
static uint32_t exchanges_with(const struct weft_run *run, int rank)
{
    for (uint32_t i = 0; i < run->plan->xfer_count; i++) {
        const struct weft__xfer *xfer = &run->xfers[i];
        if (needs_peer(xfer->message.xflags) &&
            weft__peer(run, run->plan->nodes[xfer->node].peer) == rank)
            return xfer->node;
    }
    return WEFT__NONE;
}

static int has_peer(const struct weft_run *run, int rank)
{
    for (uint32_t i = 0; i < run->plan->peer_count; i++)
        if (weft__peer(run, (int32_t)i) == rank)
            return 1;
    return 0;
}

/* An event that a signal may still fire; or WEFT__NONE. Nobody knows who is to send it. */
static uint32_t listens(const struct weft_run *run)
{
    const struct weft_plan *plan = run->plan;
    for (uint32_t e = 0; e < plan->event_count; e++) {
        uint32_t node = plan->events[e].node;
        int32_t choice = plan->nodes[node].peer;
        uint64_t open = choice >= 0 ? WEFT__CHOICE_WORD(run->version, (uint64_t)0)
                                    : WEFT__EVENT_WORD(run->version, (uint64_t)WEFT__EVENT_IDLE);
        const _Atomic uint64_t *word = choice >= 0 ? &run->choices[choice] : &run->events[e];
        if (plan->events[e].channel != WEFT_CHANNEL_NONE && !(run->waits[node] & WEFT__RETIRE) &&
            atomic_load_explicit(word, memory_order_relaxed) == open)
            return node;
    }
    return WEFT__NONE;
}

/* Whether all ranks of the context have a part in it. */
static int spans(const struct weft__engine *engine, const struct weft_run *run)
{
    return run->series || run->object == &engine->sequence ||
           (run->flights && run->flights->ordered);
}

/* Whether a run cannot end without a rank that has died, as far as can be seen; *node is where. One
 * that waits for a signal and has to do with it may wait for its signal. */
static int needs(const struct weft__engine *engine, const struct weft_run *run, int rank,
                 uint32_t *node)
{
    *node = exchanges_with(run, rank);
    if (*node == WEFT__NONE && run->object && has_peer(run, rank))
        *node = listens(run);
    return *node != WEFT__NONE || spans(engine, run);
}

int weft__engine_bereft(struct weft__engine *engine, struct weft_run *run)
{
    for (const struct weft__death *death = engine->deaths; death; death = death->next) {
        uint32_t node;
        if (!needs(engine, run, death->rank, &node))
            continue;
        weft__engine_forsaken(engine, run, node, death->rank);
        return 1;
    }
    return 0;
}

/* ---- what transports tell ---- */

void weft__engine_left(struct weft__engine *engine, int rank)
{
    if (weft__engine_death(engine, rank))
        return;
    engine->did++;
    mark_gone(engine, rank); /* without memory, receives that are posted later wait */
    struct weft_run *run = engine->active;
    while (run) {
        uint32_t node = waits_for_rank(run, rank);
        if (node == WEFT__NONE)
            node = weft__ordered_awaits(run, rank);
        if (node == WEFT__NONE) {
            run = run->active_next;
            continue;
        }
        weft__engine_forsaken(engine, run, node, rank);
        run = engine->active; /* the list has changed */
    }
    engine->host->left(engine->context, rank);
}

/* Callbacks may end members, but start none. */
static void fail_wholes(struct weft__engine *engine, const char *text)
{
    for (uint64_t c = 0; engine->objects && c <= engine->object_mask; c++)
        for (struct weft__object *object = engine->objects[c]; object; object = object->next)
            if (weft__object_is_whole(object))
                weft__whole_fail(engine, object->whole, WEFT_ERR_PEER, text, NULL);
}

void weft__engine_died(struct weft__engine *engine, int rank, const char *how)
{
    char text[WEFT__FATE_BYTES];
    if (weft__engine_has_gone(engine, rank) || weft__engine_death(engine, rank))
        return;
    engine->did++;
    struct weft__death *death = add(&engine->deaths, rank, how);
    if (!death || mark_gone(engine, rank) < 0) {
        /* What needs it later would wait for ever. */
        snprintf(text, sizeof text, "rank %d has died, and there is no memory to note it", rank);
        weft__engine_abort(engine, WEFT_ERR_MEMORY, text);
        return;
    }
    weft__engine_fate(engine, rank, text);
    fail_wholes(engine, text);
    struct weft_run *run = engine->active;
    while (run) {
        uint32_t node;
        if (!needs(engine, run, rank, &node)) {
            run = run->active_next;
            continue;
        }
        weft__engine_forsaken(engine, run, node, rank);
        run = engine->active; /* the list has changed */
    }
    engine->host->died(engine->context, rank, death->how, text);
}

void weft__engine_returned(struct weft__engine *engine)
{
    engine->did++;
    engine->host->returned(engine->context);
}
