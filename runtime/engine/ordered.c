/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages over a communicator: reached, taken, issued, landed; and what becomes of them when their
 * run fails. */
#include "runtime/engine/ordered.h"

#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/flight.h"
#include "runtime/engine/record.h"

static struct weft__xfer *xfer_of(const struct weft_run *run, uint32_t n)
{
    return &run->xfers[run->plan->nodes[n].index];
}

static const struct weft__device_ops *ops_of(const struct weft__ordered *ordered)
{
    return ordered->team->issuer->device->ops;
}

static struct weft__ordered *ordered_of(const struct weft_run *run)
{
    return run && run->flights ? run->flights->ordered : NULL;
}

/* ---- the engine's list of those with something in the air ---- */

void weft__ordered_enter(struct weft__ordered *ordered)
{
    struct weft__engine *engine = ordered->run->engine;

    if (ordered->flying)
        return;
    ordered->flying = 1;
    ordered->before = NULL;
    ordered->next = engine->ordered;
    if (engine->ordered)
        engine->ordered->before = ordered;
    engine->ordered = ordered;
    engine->landed_ns = engine->now;
    engine->pending++;
}

static void leave(struct weft__ordered *ordered)
{
    struct weft__engine *engine = ordered->run->engine;

    ordered->flying = 0;
    if (ordered->before)
        ordered->before->next = ordered->next;
    else
        engine->ordered = ordered->next;
    if (ordered->next)
        ordered->next->before = ordered->before;
    engine->pending--;
}

/* ---- reaching ---- */

void weft__ordered_begin(struct weft__engine *engine, struct weft_run *run)
{
    struct weft__ordered *ordered = run->flights->ordered;
    struct weft__message **link = &run->object->notes;

    ordered->issued_count = 0;
    ordered->group_head = ordered->group_tail = 0;
    if (ordered->known)
        weft__known_begin(ordered);
    else
        weft__agreed_begin(ordered);
    while (*link && weft__run_active(run)) {
        struct weft__message *message = *link;

        if (message->version > run->version ||
            (run->unordered && message->version != run->version)) {
            link = &message->next;
            continue;
        }
        *link = message->next;
        weft__ordered_note(engine, message);
    }
}

int weft__ordered_start(struct weft__engine *engine, struct weft_run *run, uint32_t n)
{
    struct weft__ordered *ordered = run->flights->ordered;
    struct weft__xfer *xfer = xfer_of(run, n);

    if (!(run->plan->nodes[n].flags & WEFT__JOINT) &&
        weft__peer(run, run->plan->nodes[n].peer) == WEFT_PEER_NONE)
        return 1;
    if (engine->recorder)
        weft__note_node(engine, run, n, WEFT__NOTE_START);
    xfer->message.xflags = WEFT__X_AGREEING;
    xfer->done = (size_t)engine->now;
    if (ordered->known)
        weft__known_reached(ordered, n);
    else
        ordered->fresh[ordered->fresh_count++] = n;
    return 0;
}

static void look_for_forsaken(struct weft__engine *engine, struct weft_run *run);

void weft__ordered_settle(struct weft_run *run)
{
    struct weft__ordered *ordered = run->flights->ordered;

    if (ordered->known)
        weft__known_settle(ordered);
    else if (ordered->fresh_count > 0)
        weft__agreed_settle(ordered);
    if (weft__run_active(run) && run->engine->gone)
        look_for_forsaken(run->engine, run);
    weft__issuer_go(ordered->team->issuer);
}

int weft__ordered_issue(struct weft__turn *turn)
{
    return turn->of->known ? weft__known_issue(turn->of) : weft__agreed_issue(turn);
}

/* ---- ranks that have left ---- */

/* Whether a message, or all of a version, needs a rank to agree which has not done so. */
static int awaits(const struct weft__ordered *ordered, uint32_t n, int rank)
{
    const struct weft__team *team = ordered->team;

    if (!ordered->known)
        return weft__peer(ordered->run, ordered->run->plan->nodes[n].peer) == rank &&
               !weft__end_of(ordered, n)->arrived;
    if (team->in_order || ordered->turn.final)
        return 0;
    for (uint32_t m = 0; m < team->member_count; m++)
        if (team->members[m] == rank)
            return 1;
    return 0;
}

uint32_t weft__ordered_awaits(const struct weft_run *run, int rank)
{
    const struct weft__ordered *ordered = ordered_of(run);

    for (uint32_t i = 0; ordered && i < run->plan->xfer_count; i++)
        if (run->xfers[i].message.xflags == WEFT__X_AGREEING &&
            awaits(ordered, run->xfers[i].node, rank))
            return run->xfers[i].node;
    return WEFT__NONE;
}

/* A version that goes on fails, if it needs a rank that has left before. */
static void look_for_forsaken(struct weft__engine *engine, struct weft_run *run)
{
    for (int rank = 0; rank < engine->transport->size && weft__run_active(run); rank++) {
        uint32_t n =
            weft__engine_has_gone(engine, rank) ? weft__ordered_awaits(run, rank) : WEFT__NONE;

        if (n != WEFT__NONE)
            weft__engine_forsaken(engine, run, n, rank);
    }
}

/* ---- notes ---- */

void weft__turn_tell(struct weft__ordered *ordered, int to, const struct weft__turn_note *note,
                     const struct weft__turn_end *ends)
{
    struct weft_run *run = ordered->run;
    struct weft__engine *engine = run->engine;
    char bytes[WEFT__NEWS_BYTES];
    struct weft__message message = {.data = bytes,
                                    .bytes = sizeof *note + note->count * sizeof *ends,
                                    .version = run->version,
                                    .object = run->object->id,
                                    .from = engine->transport->rank,
                                    .to = to,
                                    .kind = WEFT__TURN};
    int status;

    memcpy(bytes, note, sizeof *note);
    if (note->count > 0)
        memcpy(bytes + sizeof *note, ends, note->count * sizeof *ends);
    status = weft__engine_control(engine, &message);
    if (status < 0)
        weft__engine_fail(engine, run, status, WEFT__NONE, engine->transport->rank,
                          weft_error_text());
}

/* What a message says; it may have been garbled. 0: it says nothing. */
static int read_note(const struct weft__message *message, struct weft__turn_note *note,
                     struct weft__turn_end *ends)
{
    if (!message->data || message->bytes < sizeof *note)
        return 0;
    memcpy(note, message->data, sizeof *note);
    if (note->count > WEFT__TURN_ENDS ||
        message->bytes != sizeof *note + note->count * sizeof *ends)
        return 0;
    if (note->count > 0)
        memcpy(ends, (const char *)message->data + sizeof *note, note->count * sizeof *ends);
    return 1;
}

void weft__ordered_note(struct weft__engine *engine, struct weft__message *message)
{
    struct weft__turn_end ends[WEFT__TURN_ENDS];
    struct weft__turn_note note;
    struct weft__object *object;
    struct weft_run *run;
    int from = message->from;

    /* Objects with a communicator exist on all ranks before one of them goes on. */
    weft__object_awaited(engine, message->object, &object);
    run = object ? object->active : NULL;
    if (object && message->version >= object->floor &&
        (!run || message->version > run->version ||
         (object->unordered && message->version != run->version))) {
        struct weft__message **last = &object->notes;

        while (*last)
            last = &(*last)->next;
        message->next = NULL;
        *last = message;
        return;
    }
    struct weft__ordered *ordered =
        run && message->version == run->version ? ordered_of(run) : NULL;
    int reads =
        ordered && from >= 0 && from < engine->transport->size && read_note(message, &note, ends);
    engine->transport->ops->release(engine->transport, message, 1);
    if (!reads)
        return;
    if (ordered->known)
        weft__known_note(ordered, from, &note);
    else
        weft__agreed_note(ordered, from, &note, ends);
    weft__issuer_go(ordered->team->issuer);
}

/* ---- landing ---- */

static void land(struct weft__engine *engine, struct weft__ordered *ordered)
{
    const struct weft__group group = ordered->groups[ordered->group_head++];
    struct weft_run *run = ordered->run;
    uint64_t version = run->version;

    if (ordered->group_head == ordered->group_tail)
        leave(ordered);
    engine->did++;
    engine->landed_ns = engine->now;
    for (uint32_t i = 0; i < group.count; i++) {
        uint32_t n = ordered->issued[group.first + i];

        /* Callbacks of a run that ends may start it again. */
        if (!weft__run_active(run) || run->version != version)
            return;
        if (weft__ordered_scatters(run, n))
            continue; /* its flight ends it */
        xfer_of(run, n)->message.xflags = WEFT__X_IDLE;
        weft__engine_landed(engine, run, n);
    }
}

/* Negative, with weft__error set: a communicator of the run has failed. */
static int look_at_circles(const struct weft__ordered *ordered)
{
    int status = WEFT_OK;

    for (uint32_t c = 0; c < ordered->team->circle_count && status >= 0; c++)
        status = ops_of(ordered)->comm_poll(ordered->team->circles[c].comm);
    return status;
}

/* A stream goes on behind what its communicator has failed to do: it is asked first. */
static void land_if_done(struct weft__engine *engine, struct weft__ordered *ordered)
{
    int status = look_at_circles(ordered);

    if (status >= 0)
        land(engine, ordered);
    else
        weft__engine_fail(engine, ordered->run, status,
                          ordered->issued[ordered->groups[ordered->group_head].first],
                          engine->transport->rank, weft_error_text());
}

/* What is being taken has been, or has failed. */
static void look_at_taking(struct weft__issuer *issuer)
{
    struct weft__ordered *ordered = issuer->taking;
    int status;

    if (ordered->draining)
        return;
    status = ops_of(ordered)->comm_poll(ordered->takes);
    if (status == WEFT_IN_PROGRESS)
        return;
    if (status < 0) {
        weft__engine_fail(ordered->run->engine, ordered->run, status,
                          ordered->issued[ordered->groups[ordered->group_tail - 1].first],
                          ordered->run->engine->transport->rank, weft_error_text());
        return;
    }
    issuer->taking = NULL;
    ordered->run->engine->did++;
    weft__ordered_taken(ordered);
    weft__issuer_go(issuer);
}

/* ---- failing ---- */

void weft__ordered_fail(struct weft_run *run)
{
    struct weft__ordered *ordered = ordered_of(run);
    struct weft__issuer *issuer;

    if (!ordered)
        return;
    issuer = ordered->team->issuer;
    if (ordered->known)
        weft__turn_leave(issuer, &ordered->turn);
    else
        weft__agreed_fail(ordered);
    for (uint32_t i = 0; i < run->plan->xfer_count; i++)
        if (run->xfers[i].message.xflags == WEFT__X_AGREEING)
            run->xfers[i].message.xflags = WEFT__X_IDLE;
    weft__team_abort(ordered->team);
    if (ordered->flying) {
        ordered->draining = 1;
        ordered->drain_marked = 0;
        run->borrowed++;
    }
    weft__issuer_go(issuer); /* others may have waited for its turn */
}

/* Nothing of a failed version is on the stream any more. */
static void drained(struct weft__ordered *ordered)
{
    struct weft_run *run = ordered->run;
    struct weft__issuer *issuer = ordered->team->issuer;

    for (uint32_t i = 0; i < run->plan->xfer_count; i++)
        if (run->xfers[i].message.xflags == WEFT__X_ISSUED)
            run->xfers[i].message.xflags = WEFT__X_IDLE;
    ordered->draining = 0;
    ordered->group_head = ordered->group_tail;
    leave(ordered);
    run->borrowed--;
    run->engine->did++;
    if (issuer->taking == ordered)
        issuer->taking = NULL;
    weft__issuer_go(issuer);
}

/* The communicator lets go of the stream first; then whatever it had put there is passed. 1: it has
 * been. */
static int drain(struct weft__ordered *ordered)
{
    struct weft__issuer *issuer = ordered->team->issuer;
    struct weft__stream *stream = issuer->stream;
    int busy = issuer->taking && issuer->taking != ordered; /* nothing is put on it meanwhile */

    /* Acquire: pairs with the release of who has aborted it. */
    for (uint32_t c = 0; c < ordered->team->circle_count; c++)
        if (!atomic_load_explicit(&ordered->team->circles[c].comm->gone, memory_order_acquire))
            return 0;
    if (!ordered->drain_marked && !busy && ops_of(ordered)->mark(stream) == WEFT_OK) {
        ordered->drain_marked = 1;
        ordered->drained = stream->issued;
    }
    if (!ordered->drain_marked || !weft__stream_passed(stream, ordered->drained))
        return 0;
    drained(ordered);
    return 1;
}

/* ---- looking: whether the device, or another rank, has failed ---- */

/* 1: the list has changed. */
static int look_after(struct weft__engine *engine, struct weft__ordered *ordered)
{
    int status = ops_of(ordered)->failed(ordered->team->issuer->stream);

    if (ordered->draining) {
        if (status >= 0)
            return 0;
        drained(ordered);
        return 1;
    }
    if (ordered->team->issuer->taking != ordered && status >= 0)
        status = look_at_circles(ordered);
    if (status >= 0)
        return 0;
    weft__engine_fail(engine, ordered->run, status, ordered->issued[0], engine->transport->rank,
                      weft_error_text());
    return 1;
}

static void look_after_all(struct weft__engine *engine)
{
    engine->ordered_looks = 0;
    engine->ordered_looked_ns = engine->now;
    for (struct weft__ordered *ordered = engine->ordered; ordered;)
        ordered = look_after(engine, ordered) ? engine->ordered : ordered->next;
}

static int has_passed(const struct weft__ordered *ordered)
{
    const struct weft__issuer *issuer = ordered->team->issuer;
    int last = ordered->group_head + 1 == ordered->group_tail;

    return !(last && issuer->taking == ordered) &&
           weft__stream_passed(issuer->stream, ordered->groups[ordered->group_head].ticket);
}

void weft__ordered_poll(struct weft__engine *engine)
{
    uint32_t did = engine->did;
    struct weft__issuer *issuer = engine->ordered->team->issuer;

    if (issuer->taking)
        look_at_taking(issuer);
    for (struct weft__ordered *ordered = engine->ordered; ordered;) {
        int done = 0;

        if (ordered->draining) {
            done = drain(ordered);
        } else if (has_passed(ordered)) {
            land_if_done(engine, ordered);
            done = 1;
        }
        /* A run may have ended, and others have begun or failed. */
        ordered = done ? engine->ordered : ordered->next;
    }
    if (engine->did == did && engine->ordered &&
        (++engine->ordered_looks >= WEFT__LOOKS ||
         engine->now - engine->ordered_looked_ns >= WEFT__LOOK_NS))
        look_after_all(engine);
}

int weft__ordered_is_fixed(const struct weft_run *run)
{
    const struct weft__ordered *ordered = ordered_of(run);

    return ordered && ordered->team->fixed;
}

const char *weft__ordered_over(const struct weft_run *run)
{
    const struct weft__ordered *ordered = ordered_of(run);

    return ordered && ordered->team->aborted && run->status < 0
               ? "its communicator has been ended by a failure: destroy it on all ranks, and "
                 "create it again"
               : NULL;
}
