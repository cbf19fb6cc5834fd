/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loop over events, and the functions of the ranks, which are fibers.
 *
 * Everything happens in one thread. A function runs until it calls something that waits; then the
 * loop takes the next event, which may let an engine work or a function go on. All that a function
 * or an engine does between two events takes no virtual time.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/transport/virtual/virtual.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call that polls takes so long. */
#define POLL_TICKS (UINT64_C(1000) * WEFT__TICKS_PER_NS)
/* If ranks do nothing but poll, a poll takes twice as long after each that many of all of them ...
 */
#define POLLS_EACH 16
/* ... and after so many doublings nothing will ever happen. */
#define POLL_DOUBLINGS 30
/* Failing calls of a stopped rank before its function is given up. */
#define MOST_ESCAPES 1000000

/* ---- time and events ---- */

static weft__ticks_t ticks_of_ns(uint64_t ns)
{
    return ns < WEFT__TICKS_MAX / WEFT__TICKS_PER_NS ? ns * WEFT__TICKS_PER_NS
                                                     : WEFT__VIRTUAL_NEVER;
}

static uint64_t now_ns(const struct weft__virtual *world)
{
    return world->now / WEFT__TICKS_PER_NS;
}

static double now_seconds(const struct weft__virtual *world)
{
    return (double)world->now / (1e9 * WEFT__TICKS_PER_NS);
}

/* What can follow from one cause without being taken for the consequence of the next. */
#define TURN_BITS 16

uint64_t weft__virtual_turn(struct weft__virtual *world)
{
    return ++world->turns << TURN_BITS;
}

uint64_t weft__virtual_follow(struct weft__virtual_rank *rank)
{
    uint32_t most = (1u << TURN_BITS) - 1;
    rank->after += rank->after < most;
    return rank->turn + rank->after;
}

void weft__virtual_tell(struct weft__virtual_rank *rank, uint64_t turn)
{
    rank->turn = turn;
    rank->after = 0;
}

void weft__virtual_push(struct weft__virtual *world, weft__ticks_t time, uint64_t turn,
                        enum weft__virtual_what what, void *subject)
{
    struct weft__virtual_entry entry = {
        .time = time < WEFT__TICKS_MAX ? time : WEFT__TICKS_MAX,
        .turn = world->config.shuffle ? weft__random(&world->order_random) : turn,
        .subject = subject,
        .what = (uint32_t)what,
    };
    /* One for each rank stays free, to let its function go on when memory has run out. */
    size_t spare = world->broken ? 0 : (size_t)world->size;
    if (weft__virtual_queue_reserve(&world->queue, world->queue.count + 1 + spare) == 0)
        weft__virtual_queue_push(&world->queue, entry);
    else
        weft__virtual_break(world, WEFT_ERR_MEMORY, "out of memory for an event");
}

void weft__virtual_record(struct weft__virtual *world, weft_virtual_kind_t kind, int rank,
                          const struct weft__message *message)
{
    struct weft_virtual_result *result = &world->result;
    uint64_t hash = weft__hash_word(result->hash, world->now);
    result->events++;
    hash = weft__hash_word(hash, (uint64_t)kind << 32 | (uint32_t)rank);
    if (message) {
        hash = weft__hash_word(hash, weft__object_key(message->object, message->tag));
        hash = weft__hash_word(hash, message->version);
        hash = weft__hash_word(hash, message->bytes);
        hash = weft__hash_word(hash, (uint64_t)message->from << 8 | message->kind);
    }
    result->hash = hash;
    if (!world->config.trace)
        return;
    struct weft_virtual_event event = {.time_ns = now_ns(world), .kind = kind, .rank = rank};
    if (message) {
        event.from = message->from;
        event.object = message->object;
        event.version = message->version;
        event.tag = message->tag;
        event.bytes = message->kind == WEFT__DATA ? message->bytes : 0;
        event.signal = message->kind != WEFT__DATA;
    }
    world->config.trace(world->config.trace_user, &event);
}

/* ---- functions of ranks ---- */

static void set_timer(struct weft__virtual_rank *rank)
{
    weft__ticks_t until = rank->engine_until;
    if (rank->state == WEFT__V_BLOCKED && rank->until < until)
        until = rank->until;
    if (until < rank->world->now) /* the rank has paused */
        until = rank->world->now;
    if (until >= rank->timer_at)
        return;
    rank->timer_at = until;
    weft__virtual_push(rank->world, until, weft__virtual_turn(rank->world), WEFT__V_TIMER, rank);
}

/* A blocked function is to go on at `time`. */
static void resume_at(struct weft__virtual_rank *rank, weft__ticks_t time)
{
    rank->state = WEFT__V_READY;
    weft__virtual_push(rank->world, time, weft__virtual_turn(rank->world), WEFT__V_RESUME, rank);
}

/* Resumes the function if what it waits for has come. */
static void look(struct weft__virtual_rank *rank)
{
    if (rank->state != WEFT__V_BLOCKED)
        return;
    if ((rank->done && rank->done(rank->argument)) || rank->until <= rank->world->now)
        resume_at(rank, rank->world->now);
}

/* Switches to a function until it waits or ends. The text of its latest error is its own. */
static void run_function(struct weft__virtual_rank *rank)
{
    struct weft__virtual *world = rank->world;
    weft__error_exchange(&rank->text);
    world->current = rank;
    weft__fiber_resume(&rank->fiber);
    world->current = NULL;
    weft__error_exchange(&rank->text);
    if (weft__fiber_overrun(&rank->fiber)) {
        fprintf(stderr, "weft: the function of virtual rank %d has overrun its stack\n",
                rank->base.rank);
        abort();
    }
}

static void wake_all(struct weft__virtual *world)
{
    for (int r = 0; r < world->size; r++)
        if (world->ranks[r].context)
            weft__virtual_wake(&world->ranks[r].base);
}

/* Those who look for ranks that are present look again. */
static void tell_returned(struct weft__virtual *world)
{
    for (int r = 0; r < world->size; r++) {
        struct weft_context *context = world->ranks[r].context;
        if (!context || !atomic_load_explicit(&context->looking, memory_order_relaxed))
            continue;
        weft__engine_returned(&context->engine);
        weft__virtual_wake(&world->ranks[r].base);
    }
}

void weft__virtual_main(void *argument)
{
    struct weft__virtual_rank *rank = argument;
    struct weft__virtual *world = rank->world;
    rank->status = world->fn(rank->context, world->user);
    rank->state = WEFT__V_ENDED;
    if (rank->stopped)
        return;
    world->live--;
    world->result.end_ns = now_ns(world);
    if (rank->status >= 0) {
        tell_returned(world);
        return;
    }
    int first = world->failed == 0;
    /* One that says only that another has failed gives way to the other. */
    if (first || (weft__error_elsewhere(world->ranks[world->failed - 1].status) &&
                  !weft__error_elsewhere(rank->status))) {
        world->failed = rank->base.rank + 1;
        rank->failure = weft__strdup(weft_error_text());
    }
    if (first) {
        char text[WEFT__NEWS_BYTES + 64];
        snprintf(text, sizeof text, "rank %d has failed: %.*s", rank->base.rank, WEFT__NEWS_BYTES,
                 rank->failure && rank->failure[0] ? rank->failure
                                                   : weft_status_text(rank->status));
        for (int r = 0; r < world->size; r++)
            weft__context_abort(world->ranks[r].context, text);
        wake_all(world);
    }
}

/* ---- the transport's clock and waits ---- */

uint64_t weft__virtual_now(const struct weft__transport *transport)
{
    return now_ns(((const struct weft__virtual_rank *)transport)->world);
}

void weft__virtual_wake(struct weft__transport *transport)
{
    struct weft__virtual_rank *rank = (struct weft__virtual_rank *)transport;
    if (rank->waking || rank->stopped)
        return;
    rank->waking = 1;
    struct weft__virtual *world = rank->world;
    weft__virtual_push(world, world->now, weft__virtual_turn(world), WEFT__V_WAKE, rank);
}

/* How long a poll takes: longer and longer while nobody does anything else. */
static weft__ticks_t poll_ticks(struct weft__virtual *world)
{
    uint64_t doublings = world->idle_polls / (POLLS_EACH * ((uint64_t)world->size + 1));
    return POLL_TICKS << (doublings < POLL_DOUBLINGS ? doublings : POLL_DOUBLINGS);
}

/* Why a wait fails that nothing will end; 0: something may. */
static int hopeless(struct weft__virtual_rank *rank)
{
    struct weft__virtual *world = rank->world;
    if (rank->unwinding)
        return weft__error(WEFT_ERR_CANCELLED, "rank %d has been stopped", rank->base.rank);
    if (world->broken)
        return weft__error(world->broken, "%s", world->text);
    return 0;
}

int weft__virtual_block(struct weft__transport *transport, int (*done)(void *), void *argument,
                        uint64_t until)
{
    struct weft__virtual_rank *rank = (struct weft__virtual_rank *)transport;
    struct weft__virtual *world = rank->world;
    if (done && done(argument))
        return 1;
    if (world->current != rank)
        return weft__error(WEFT_ERR_STATE,
                           "waiting on virtual rank %d, which its own function alone may do",
                           rank->base.rank);
    int status = hopeless(rank);
    if (rank->unwinding && ++rank->escapes > MOST_ESCAPES)
        weft__fiber_pause(&rank->fiber);
    if (status < 0)
        return status;
    rank->done = done;
    rank->argument = argument;
    rank->until = ticks_of_ns(until);
    rank->polls = rank->until <= world->now;
    if (rank->polls) {
        rank->until = WEFT__VIRTUAL_NEVER;
        resume_at(rank, world->now + poll_ticks(world));
    } else {
        rank->state = WEFT__V_BLOCKED;
        set_timer(rank);
    }
    weft__fiber_pause(&rank->fiber);
    rank->polls = 0;
    if (done && done(argument))
        return 1;
    return hopeless(rank);
}

void weft__virtual_step(struct weft__virtual_rank *rank)
{
    struct weft__virtual *world = rank->world;
    struct weft_context *context = rank->context;
    uint64_t now = now_ns(world);
    uint64_t next;
    if (!weft__drive_try(context))
        return; /* only for a moment, from within; whoever it is looks at everything */
    rank->waking = 1;
    do
        next = weft__drive_step(context, now);
    while (next <= now && !world->config.shuffle);
    weft__drive_unlock(context);
    if (atomic_load_explicit(&context->reapable, memory_order_relaxed))
        weft__object_reap(context);
    rank->waking = 0;
    if (next <= now)
        weft__virtual_wake(&rank->base);
    rank->engine_until = next <= now ? WEFT__VIRTUAL_NEVER : ticks_of_ns(next);
    look(rank);
    set_timer(rank);
}

/* ---- the end of everything ---- */

void weft__virtual_break(struct weft__virtual *world, int status, const char *format, ...)
{
    if (world->broken)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(world->text, sizeof world->text, format, arguments);
    va_end(arguments);
    world->broken = status;
}

/* Fails what is unfinished on a rank with the reason for which the world is broken. */
static void break_rank(struct weft__virtual_rank *rank)
{
    struct weft__virtual *world = rank->world;
    struct weft__engine *engine = &rank->context->engine;
    weft__drive_lock(rank->context);
    weft__engine_abort(engine, world->broken, world->text);
    weft__drive_unlock(rank->context);
    if (rank->state == WEFT__V_BLOCKED)
        resume_at(rank, world->now);
}

static void break_all(struct weft__virtual *world)
{
    for (int r = 0; r < world->size; r++)
        if (!world->ranks[r].stopped)
            break_rank(&world->ranks[r]);
    world->told = 1;
}

/* Nothing can happen any more. Says which rank waits, for what. */
static void deadlock(struct weft__virtual *world)
{
    int waiting = 0;
    const struct weft__virtual_rank *first = NULL;
    for (int r = world->size; r-- > 0;)
        if (!world->ranks[r].stopped && world->ranks[r].state != WEFT__V_ENDED) {
            first = &world->ranks[r];
            waiting++;
        }
    struct weft_run *run = !first ? NULL : weft__family_active(first->context);
    char *report = !run ? NULL : weft__report(run);
    size_t length = !report ? 0 : strlen(report);
    while (length > 0 && report[length - 1] == '\n')
        report[--length] = '\0';
    weft__virtual_break(world, WEFT_ERR_DEADLOCK,
                        "at %.9f s of virtual time nothing is left that could happen, and %d of %d "
                        "ranks wait; rank %d%s%.300s",
                        now_seconds(world), waiting, world->size, !first ? 0 : first->base.rank,
                        !report ? "" : ": ", !report ? " waits in no run" : report);
    weft_memory_free(report);
}

/* ---- the loop ---- */

static struct weft__virtual_rank *rank_of(struct weft__virtual *world,
                                          const struct weft__virtual_entry *entry)
{
    const struct weft__virtual_message *message = entry->subject;
    switch ((enum weft__virtual_what)entry->what) {
    case WEFT__V_ARRIVE:
    case WEFT__V_DELIVER:
        return &world->ranks[message->to];
    case WEFT__V_SENT:
        return &world->ranks[message->from];
    case WEFT__V_COMPUTED:
        return ((struct weft__virtual_compute *)entry->subject)->rank;
    case WEFT__V_DIED:
        return ((struct weft__virtual_death *)entry->subject)->rank;
    case WEFT__V_STOP:
    case WEFT__V_RESUME:
    case WEFT__V_WAKE:
    case WEFT__V_TIMER:
    case WEFT__V_SERVE:
    default:
        return entry->subject;
    }
}

/* The others hear of it: each in its own time, and after all that it has sent to them. */
static void announce(struct weft__virtual_rank *dead)
{
    struct weft__virtual *world = dead->world;
    dead->deaths = weft__calloc((size_t)world->size, sizeof *dead->deaths);
    if (!dead->deaths)
        weft__virtual_break(world, WEFT_ERR_MEMORY, "out of memory for the death of a rank");
    for (int r = 0; dead->deaths && r < world->size; r++) {
        if (r == dead->base.rank || world->ranks[r].stopped)
            continue;
        dead->deaths[r] = (struct weft__virtual_death){.rank = &world->ranks[r], .dead = dead};
        weft__virtual_push(world, world->now + weft__virtual_death_delay(world),
                           weft__virtual_turn(world), WEFT__V_DIED, &dead->deaths[r]);
    }
}

static void stop(struct weft__virtual_rank *rank)
{
    if (rank->stopped)
        return;
    rank->stopped = 1;
    rank->stopped_at = rank->world->now;
    if (rank->state != WEFT__V_ENDED)
        rank->world->live--;
    if (rank->world->config.deaths)
        announce(rank);
}

static void hear_of_death(struct weft__virtual *world, struct weft__virtual_death *death,
                          uint64_t turn)
{
    struct weft__virtual_rank *rank = death->rank;
    const struct weft__message told = {.from = death->dead->base.rank};
    if (!weft__virtual_drained(world, death->dead->base.rank, rank->base.rank)) {
        weft__virtual_push(world, world->now + POLL_TICKS, turn, WEFT__V_DIED, death);
        return;
    }
    weft__virtual_record(world, WEFT_VIRTUAL_DIED, rank->base.rank, &told);
    death->next = rank->died;
    rank->died = death;
    weft__virtual_tell(rank, turn);
    weft__virtual_step(rank);
}

/* If the rank pauses or has stopped: puts the event off, or away. 1 if the event may happen. Where
 * time has ended, so have pauses. */
static int may_happen(struct weft__virtual *world, struct weft__virtual_rank *rank,
                      struct weft__virtual_entry *entry)
{
    weft__ticks_t when = weft__virtual_available(rank, world->now);
    if (when == world->now || (world->broken && when != WEFT__VIRTUAL_NEVER))
        return 1;
    if (when != WEFT__VIRTUAL_NEVER) {
        if (entry->what == WEFT__V_SERVE)
            rank->serve_at = when;
        else if (entry->what == WEFT__V_TIMER)
            rank->timer_at = when;
        weft__virtual_push(world, when, entry->turn, (enum weft__virtual_what)entry->what,
                           entry->subject);
        return 0;
    }
    stop(rank);
    if (entry->what == WEFT__V_ARRIVE || entry->what == WEFT__V_DELIVER)
        weft__virtual_lose(world, entry->subject);
    else if (entry->what == WEFT__V_SENT)
        weft__virtual_sent(world, entry->subject, entry->turn, 0);
    else if (entry->what == WEFT__V_COMPUTED)
        weft__virtual_computed(entry->subject, 0);
    return 0;
}

static void happen_to_rank(struct weft__virtual *world, struct weft__virtual_rank *rank,
                           const struct weft__virtual_entry *entry)
{
    switch ((enum weft__virtual_what)entry->what) {
    case WEFT__V_RESUME:
        weft__virtual_record(world, WEFT_VIRTUAL_RESUME, rank->base.rank, NULL);
        run_function(rank);
        break;
    case WEFT__V_WAKE:
        weft__virtual_record(world, WEFT_VIRTUAL_STEP, rank->base.rank, NULL);
        rank->waking = 0;
        weft__virtual_tell(rank, entry->turn);
        weft__virtual_step(rank);
        break;
    case WEFT__V_TIMER:
        rank->timer_at = WEFT__VIRTUAL_NEVER;
        if (rank->engine_until <= world->now) {
            weft__virtual_record(world, WEFT_VIRTUAL_STEP, rank->base.rank, NULL);
            weft__virtual_tell(rank, entry->turn);
            weft__virtual_step(rank);
        } else {
            look(rank);
            set_timer(rank);
        }
        break;
    case WEFT__V_SERVE:
        rank->serve_at = WEFT__VIRTUAL_NEVER;
        weft__virtual_serve(rank);
        break;
    default:
        break;
    }
}

static void happen(struct weft__virtual *world, struct weft__virtual_entry *entry)
{
    struct weft__virtual_rank *rank = rank_of(world, entry);
    if ((entry->what == WEFT__V_SERVE && entry->time != rank->serve_at) ||
        (entry->what == WEFT__V_TIMER && entry->time != rank->timer_at))
        return; /* an earlier one has done it */
    if (world->broken && entry->what == WEFT__V_SERVE)
        return; /* its time does not come: nothing is served any more */
    if (world->has_faults && !may_happen(world, rank, entry))
        return;
    if (entry->what != WEFT__V_RESUME || !rank->polls)
        world->idle_polls = 0;
    else if (++world->idle_polls > POLLS_EACH * POLL_DOUBLINGS * ((uint64_t)world->size + 1))
        deadlock(world);
    switch ((enum weft__virtual_what)entry->what) {
    case WEFT__V_ARRIVE:
        weft__virtual_arrive(world, entry->subject);
        break;
    case WEFT__V_DELIVER:
        weft__virtual_deliver(world, entry->subject);
        break;
    case WEFT__V_SENT:
        weft__virtual_sent(world, entry->subject, entry->turn, 1);
        break;
    case WEFT__V_COMPUTED:
        weft__virtual_computed(entry->subject, 1);
        break;
    case WEFT__V_DIED:
        hear_of_death(world, entry->subject, entry->turn);
        break;
    case WEFT__V_STOP:
        break; /* it has stopped, or is over */
    default:
        happen_to_rank(world, rank, entry);
        break;
    }
}

/* A signal is about to end the program: the traces that there are so far. */
static void write_traces(struct weft__virtual *world, unsigned asked)
{
    world->traces_asked = asked;
    for (int r = 0; r < world->size; r++)
        if (world->ranks[r].context)
            weft__family_flush(world->ranks[r].context, asked);
}

/* All functions have returned. Objects that ranks have left go on until all have. */
static int serves(struct weft__virtual *world)
{
    for (int r = 0; !world->serving && r < world->size; r++)
        if (!world->ranks[r].stopped)
            weft__object_abandon(world->ranks[r].context);
    world->serving = 1;
    for (; world->served < world->size; world->served++) {
        const struct weft__virtual_rank *rank = &world->ranks[world->served];
        if (!rank->stopped && !weft__object_all_over(rank->context))
            return !world->broken && world->queue.count > 0;
    }
    return 0;
}

static void loop(struct weft__virtual *world)
{
    weft__ticks_t limit =
        world->config.limit_ns == 0 ? WEFT__VIRTUAL_NEVER : ticks_of_ns(world->config.limit_ns);
    while (world->live > 0 || serves(world)) {
        unsigned asked = atomic_load_explicit(&weft__traces_asked, memory_order_relaxed);
        if (asked != world->traces_asked)
            write_traces(world, asked);
        if (world->broken && !world->told)
            break_all(world);
        if (world->queue.count == 0) {
            if (world->broken)
                break; /* cannot be: every function has been told */
            deadlock(world);
            continue;
        }
        struct weft__virtual_entry entry = weft__virtual_queue_pop(&world->queue);
        if (entry.time >= limit && world->live == 0) {
            weft__virtual_queue_push(&world->queue, entry);
            break;
        }
        if (entry.time >= limit && !world->broken) {
            weft__virtual_break(world, WEFT_ERR_TIMEOUT,
                                "the limit of %.9f s of virtual time is reached",
                                (double)world->config.limit_ns * 1e-9);
            weft__virtual_queue_push(&world->queue, entry);
            continue;
        }
        if (!world->broken)
            world->now = entry.time;
        happen(world, &entry);
    }
}

/* Stopped functions return with errors, to free what they hold; what those that had returned before
 * have left is over. */
static void unwind(struct weft__virtual *world)
{
    for (int r = 0; r < world->size; r++) {
        struct weft__virtual_rank *rank = &world->ranks[r];
        int runs = rank->state != WEFT__V_ENDED && rank->fiber.started;
        if (!runs && !rank->stopped)
            continue;
        rank->stopped = 1;
        rank->unwinding = 1;
        weft__context_abort(rank->context, "the rank has been stopped");
        if (runs)
            run_function(rank);
    }
}

static int outcome(struct weft__virtual *world)
{
    char when[96];
    snprintf(when, sizeof when, " (%.9f s of virtual time, seed %llu)", now_seconds(world),
             (unsigned long long)world->config.seed);
    if (world->failed != 0) {
        const struct weft__virtual_rank *rank = &world->ranks[world->failed - 1];
        return weft__error(rank->status, "rank %d: %.380s%s", rank->base.rank,
                           rank->failure && rank->failure[0] ? rank->failure
                                                             : weft_status_text(rank->status),
                           when);
    }
    if (world->broken)
        return weft__error(world->broken, "%.400s%s", world->text, when);
    for (int r = 0; r < world->size; r++)
        if (!world->ranks[r].stopped && world->ranks[r].status != WEFT_OK)
            return world->ranks[r].status;
    return WEFT_OK;
}

int weft__virtual_play(struct weft__virtual *world)
{
    world->live = world->size;
    for (int r = 0; r < world->size; r++)
        resume_at(&world->ranks[r], 0);
    loop(world);
    unwind(world);
    return outcome(world);
}
