/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who drives the engine, and how they idle.
 *
 * `driven` is a lock that is only tried, odd while somebody drives: whoever takes it drives. Before
 * a thread sleeps it gives `driven` back, so that any other thread can drive at once; it registers
 * on the bell, looks once more at everything (a whole step), and sleeps only if there was nothing.
 * While somebody drives, registered sleepers are kept in `parked`, so that what arrives does not
 * wake them: the driver sees it by itself. When it stops driving it registers them again, and rings
 * if something has come.
 *
 *   to drive           driven + 1, sleepers -> parked
 *   to stop            driven + 1; commands that came meanwhile? again; parked -> sleepers; look
 *   to sleep           register; step; driven + 1; futex
 *
 * All callers share one bit of the bell. So none takes it away, except to park it: a bit too many
 * costs a needless wake-up, one too few would be a thread that sleeps for ever.
 *
 * All of this is the root's of a family: who drives any of its contexts drives them all.
 *
 * A command is put in a list and its giver tries to drive: if that fails, the driver will see the
 * list, since it looks there after giving `driven` back.
 */
#include "runtime/base/error.h"
#include "runtime/base/topology.h"
#include "runtime/context/part.h"
#include "runtime/engine/gate.h"
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

/* Empty polls between two looks at the clock. */
#define POLLS_PER_CLOCK 16
/* A sleeper that nobody wakes polls after a tenth of the time it has waited. */
#define BACK_OFF 10
/* Tries of a caller to get the engine from a driver before it sleeps. */
#define TRIES 64

uint64_t weft__clock(const struct weft_context *context)
{
    return weft__engine_clock(&context->engine);
}

uint64_t weft__time_after(const struct weft_context *context, uint64_t timeout_ns)
{
    uint64_t now = timeout_ns < WEFT_NEVER ? weft__clock(context) : 0;
    return timeout_ns >= WEFT_NEVER || timeout_ns > WEFT__NEVER - 1 - now ? WEFT__NEVER
                                                                          : now + timeout_ns;
}

int weft__helps(struct weft_context *context)
{
    return atomic_load_explicit(&context->root->helper_self, memory_order_relaxed) ==
           (uintptr_t)pthread_self();
}

uint64_t weft_context_now(const struct weft_context *context)
{
    return !context ? 0 : weft__clock(context);
}

int weft_context_sleep(struct weft_context *context, uint64_t ns)
{
    if (!context)
        return WEFT__INVALID("%s: argument `context` is NULL", __func__);
    int checked = weft_sized_time(__func__, "ns", ns, WEFT_NEVER);
    if (checked != WEFT_OK)
        return checked;
    if (ns == 0)
        return WEFT_OK;
    struct weft__transport *transport = context->engine.transport;
    uint64_t until = weft__clock(context);
    until = ns > (uint64_t)INT64_MAX - until ? (uint64_t)INT64_MAX : until + ns;
    if (transport->ops->block) {
        int status = transport->ops->block(transport, NULL, NULL, until);
        return status < 0 ? status : WEFT_OK;
    }
    struct timespec time = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
    return WEFT_OK;
}

/* ---- taking and giving back ---- */

static int is_driven(struct weft_context *context)
{
    return (int)(atomic_load_explicit(&context->driven, memory_order_seq_cst) & 1);
}

static int drive_try(struct weft_context *context)
{
    uint32_t nobody = atomic_load_explicit(&context->driven, memory_order_relaxed);
    if (nobody & 1 ||
        !atomic_compare_exchange_strong_explicit(&context->driven, &nobody, nobody + 1,
                                                 memory_order_seq_cst, memory_order_relaxed))
        return 0;
    atomic_store_explicit(&context->driver, (uintptr_t)pthread_self(), memory_order_relaxed);
    atomic_store_explicit(&context->driver_turn, nobody + 1, memory_order_release);
    struct weft__bell *bell = context->engine.transport->bell;
    if (atomic_load_explicit(&bell->sleeper, memory_order_relaxed) != 0) {
        uint32_t bits = atomic_exchange_explicit(&bell->sleeper, 0, memory_order_seq_cst);
        atomic_fetch_or_explicit(&context->parked, bits, memory_order_seq_cst);
    }
    return 1;
}

int weft__drive_try(struct weft_context *context)
{
    return drive_try(context->root);
}

int weft__drives(struct weft_context *context)
{
    context = context->root;
    /* Of this turn, so `driver` is whoever has taken it, or a later one: another thread. */
    uint32_t turn = atomic_load_explicit(&context->driver_turn, memory_order_acquire);
    return (turn & 1) && turn == atomic_load_explicit(&context->driven, memory_order_relaxed) &&
           atomic_load_explicit(&context->driver, memory_order_relaxed) ==
               (uintptr_t)pthread_self();
}

void weft__drive_lock(struct weft_context *context)
{
    context = context->root;
    if (drive_try(context))
        return;
    atomic_fetch_add_explicit(&context->wanted, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&context->locking, 1, memory_order_relaxed);
    while (!weft__drive_try(context))
        sched_yield();
    atomic_fetch_sub_explicit(&context->locking, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&context->wanted, 1, memory_order_relaxed);
}

int weft__drive_lock_until(struct weft_context *context, uint64_t until)
{
    int driving = 0;
    context = context->root;
    atomic_fetch_add_explicit(&context->wanted, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&context->locking, 1, memory_order_relaxed);
    while (!(driving = weft__drive_try(context)) && weft__now() < until)
        sched_yield();
    atomic_fetch_sub_explicit(&context->locking, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&context->wanted, 1, memory_order_relaxed);
    return driving;
}

static inline void command_run(struct weft_run *run, uint32_t commands)
{
    struct weft__engine *engine = run->engine;
    commands |= run->held;
    run->held = 0;
    /* One that a stream was to start begins, and fails. */
    if ((commands & WEFT__DO_CANCEL) && weft__gates_drop(engine, run))
        commands |= WEFT__DO_START;
    if (commands & WEFT__DO_START)
        weft__engine_start(engine, run);
    if (commands & WEFT__DO_POKE) {
        commands &= ~(uint32_t)WEFT__DO_POKE;
        weft__series_poked(run->series);
    }
    int state = atomic_load_explicit(&run->state, memory_order_relaxed);
    /* Another thread is about to give the command to start. */
    if (state == WEFT__RUN_QUEUED && !(commands & WEFT__DO_START))
        run->held = commands;
    if (state != WEFT__RUN_ACTIVE)
        return;
    if (commands & WEFT__DO_FIRE)
        weft__engine_fired(engine, run);
    if (commands & WEFT__DO_CANCEL)
        weft__engine_fail(engine, run, WEFT_ERR_CANCELLED, WEFT__NONE, engine->transport->rank, "");
}

void weft__gate_open(struct weft_run *run)
{
    if (run->deadline_ns != 0 || run->context->config.stall_ns != 0)
        run->started_ns = weft__clock(run->context);
    command_run(run, WEFT__DO_START);
}

void weft__gate_fire(struct weft_run *run, uint32_t node, uint64_t version)
{
    (void)weft__run_fire(run, (weft_node_t)node, &version);
}

static void commanded_run(struct weft_context *root, struct weft_run *run, uint32_t commands)
{
    struct weft_context *context = run->context; /* a callback may destroy the run */
    command_run(run, commands);
    if (context == root)
        return;
    root->engine.did++;
    weft__family_wake(context);
}

void weft__drive_commands(struct weft_context *context)
{
    context = context->root;
    /* Acquire pairs with the push in weft__command_give(). */
    struct weft__commanded *given =
        atomic_exchange_explicit(&context->commands, NULL, memory_order_acquire);
    struct weft__commanded *in_order = NULL;
    while (given) {
        struct weft__commanded *next = given->next;
        given->next = in_order;
        in_order = given;
        given = next;
    }
    while (in_order) {
        given = in_order;
        in_order = given->next;
        uint32_t commands = atomic_exchange_explicit(&given->commands, 0, memory_order_acq_rel);
        if (given->kind == WEFT__OF_RUN)
            commanded_run(context, weft__run_of(given), commands);
        else if (given->kind == WEFT__OF_OBJECT)
            weft__object_commanded(given);
        else
            weft__context_aborted(
                (void *)((char *)given - offsetof(struct weft_context, commanded)));
    }
}

static int is_reapable(struct weft_context *context)
{
    return atomic_load_explicit(&context->reapable, memory_order_relaxed) != 0;
}

/* Whether an engine has something to do or to look for, that no bell will tell. */
static int is_busy(const struct weft__engine *engine)
{
    return engine->ready_head || engine->job_head || engine->pending ||
           engine->expires_ns != WEFT__NEVER ||
           (!engine->transport->wakes && engine->active_count > 0);
}

/* Whether a sleeper should be woken rather than left to the bell. */
static int has_work(struct weft_context *context)
{
    for (const struct weft_context *other = context->awake; other; other = other->awake_next)
        if (is_busy(&other->engine))
            return 1;
    return is_busy(&context->engine) ||
           (context->config.progress == WEFT_PROGRESS_HELPER && is_reapable(context));
}

/* What has been done to a context that is not the root may be more to do. */
static WEFT__NOINLINE struct weft_context *look_after(struct weft_context *context)
{
    if (context->doomed)
        weft__run_reap(context);
    if (!weft__family_rests(context))
        weft__family_wake(context);
    return context->root;
}

void weft__drive_unlock(struct weft_context *context)
{
    if (context->part)
        context = look_after(context);
    struct weft__transport *transport = context->engine.transport;
    if (context->doomed)
        weft__run_reap(context);
    if (transport->ops->wake) {
        int left =
            has_work(context) || atomic_load_explicit(&context->commands, memory_order_relaxed);
        atomic_fetch_add_explicit(&context->driven, 1, memory_order_seq_cst);
        if (left)
            transport->ops->wake(transport);
        return;
    }
    for (;;) {
        int work = has_work(context);
        uint32_t stopped = atomic_fetch_add_explicit(&context->driven, 1, memory_order_seq_cst) + 1;
        if (atomic_load_explicit(&context->commands, memory_order_seq_cst)) {
            /* Whoever gave it may have failed to drive because we did. */
            if (!drive_try(context))
                return;
            weft__drive_step(context, context->engine.now);
            continue;
        }
        if (atomic_load_explicit(&context->parked, memory_order_seq_cst) == 0)
            return;
        uint32_t bits = atomic_exchange_explicit(&context->parked, 0, memory_order_seq_cst);
        if (bits == 0)
            return;
        atomic_fetch_or_explicit(&transport->bell->sleeper, bits, memory_order_seq_cst);
        /* Who has driven meanwhile did not see the sleepers, and may have ended their runs. */
        if (work || atomic_load_explicit(&context->driven, memory_order_seq_cst) != stopped ||
            (transport->ops->pending && transport->ops->pending(transport)))
            weft__bell_ring(transport->bell);
        return;
    }
}

uint64_t weft__drive_step(struct weft_context *context, uint64_t now)
{
    context = context->root;
    if (atomic_load_explicit(&context->commands, memory_order_relaxed))
        weft__drive_commands(context);
    uint64_t next = weft__engine_step(&context->engine, now);
    if (context->awake)
        next = weft__family_step(context, now, next);
    if (context->doomed)
        weft__run_reap(context);
    if (atomic_load_explicit(&context->commands, memory_order_relaxed))
        return now;
    return next;
}

void weft__command(struct weft_context *context, struct weft_run *run, uint32_t command)
{
    /* Once it is in the list, a callback may destroy the run. */
    weft__command_give(context, &run->commanded, command,
                       command == WEFT__DO_START ? run->started_ns : 0);
}

void weft__command_give(struct weft_context *context, struct weft__commanded *commanded,
                        uint32_t command, uint64_t started)
{
    context = context->root;
    if (atomic_fetch_or_explicit(&commanded->commands, command, memory_order_acq_rel) == 0) {
        struct weft__commanded *head =
            atomic_load_explicit(&context->commands, memory_order_relaxed);
        do
            commanded->next = head;
        while (!atomic_compare_exchange_weak_explicit(&context->commands, &head, commanded,
                                                      memory_order_seq_cst, memory_order_relaxed));
    }
    struct weft__transport *transport = context->engine.transport;
    if (transport->ops->wake) {
        transport->ops->wake(transport);
        return;
    }
    if (drive_try(context)) {
        uint64_t now = context->engine.now;
        weft__drive_step(context, started > now ? started : now);
        atomic_store_explicit(&context->handed, 1, memory_order_relaxed);
        weft__drive_unlock(context);
    }
}

void weft__wake_waiters(struct weft_context *context)
{
    context = context->root;
    if (atomic_load_explicit(&context->waiters, memory_order_seq_cst) != 0) {
        atomic_fetch_add_explicit(&context->baton, 1, memory_order_seq_cst);
        weft__futex_wake(&context->baton, WEFT__BELL_ANY);
    }
    /* A caller that sleeps on the bell may wait for the run that has just ended. */
    struct weft__bell *bell = context->engine.transport->bell;
    if (atomic_load_explicit(&context->parked, memory_order_seq_cst) & WEFT__BELL_CALLER) {
        atomic_fetch_and_explicit(&context->parked, ~(uint32_t)WEFT__BELL_CALLER,
                                  memory_order_seq_cst);
        weft__bell_wake(bell, WEFT__BELL_CALLER);
    } else if (atomic_load_explicit(&bell->sleeper, memory_order_seq_cst) & WEFT__BELL_CALLER) {
        weft__bell_wake(bell, WEFT__BELL_CALLER);
    }
}

/* ---- idling ---- */

struct idle {
    uint64_t since; /* 0: not idle */
    unsigned polls;
};

/* Idle since when: lets the user drive something else. How long to sleep at most. */
static inline uint64_t meanwhile(const struct weft_context_config *config, const struct idle *idle,
                                 uint64_t now)
{
    return config->meanwhile ? config->meanwhile(config->meanwhile_user, now - idle->since)
                             : WEFT__NEVER;
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* How long to sleep where nobody wakes: a share of the wait so far, so that what comes is late by
 * no more than that share of it, and a long wait costs few polls. */
static uint64_t back_off_ns(const struct weft_context_config *config, uint64_t waited)
{
    uint64_t sleep = waited / BACK_OFF;
    if (sleep < config->sleep_min_ns)
        return config->sleep_min_ns;
    return sleep < config->sleep_max_ns ? sleep : config->sleep_max_ns;
}

/* Sleeps while nothing happens, for at most `limit`. Called driving; returns not driving (0), or
 * driving (1) if the last look found something. */
static int sleep_idle(struct weft_context *context, struct idle *idle, uint32_t bit, uint64_t limit)
{
    struct weft__transport *transport = context->engine.transport;
    struct weft__bell *bell = transport->bell;
    uint32_t seen = atomic_load_explicit(&bell->count, memory_order_seq_cst);
    atomic_fetch_or_explicit(&bell->sleeper, bit, memory_order_seq_cst);
    /* Looked at after `seen`: weft__helper_stop() changes them in the other order. */
    int stop = bit == WEFT__BELL_HELPER &&
               (atomic_load_explicit(&context->stopping, memory_order_seq_cst) != 0 ||
                is_reapable(context));
    uint32_t did = context->engine.did;
    uint64_t now = weft__now();
    uint64_t next = weft__drive_step(context, now);
    if (stop || context->engine.did != did || next <= now ||
        atomic_load_explicit(&context->commands, memory_order_seq_cst)) {
        atomic_fetch_and_explicit(&bell->sleeper, ~bit, memory_order_seq_cst);
        if (bit == WEFT__BELL_CALLER) /* another caller may sleep under the same bit */
            atomic_fetch_or_explicit(&context->parked, bit, memory_order_seq_cst);
        return 1;
    }
    if (next - now < limit)
        limit = next - now;
    if (!transport->wakes) {
        uint64_t back_off = back_off_ns(&context->config, now - idle->since);
        limit = back_off < limit ? back_off : limit;
    }
    context->engine.stats.sleeps++;
    atomic_fetch_add_explicit(&context->driven, 1, memory_order_seq_cst);
    if (!atomic_load_explicit(&context->commands, memory_order_seq_cst))
        weft__bell_wait(bell, seen, bit, limit);
    if (bit == WEFT__BELL_CALLER)
        return 0; /* for the same reason it stays registered */
    atomic_fetch_and_explicit(&bell->sleeper, ~bit, memory_order_seq_cst);
    atomic_fetch_and_explicit(&context->parked, ~bit, memory_order_seq_cst);
    return 0;
}

/* ---- callers ---- */

struct waiting {
    int (*done)(void *);
    void *argument;
    uint64_t until;
    uint64_t began;
    uint64_t report;              /* how long to wait before the next stall report: doubles */
    struct weft_context *context; /* for stall reports, and NULL or ... */
    struct weft_run *run;
};

/* Whether it is time for a report. The wait begins with the first call. */
static int stalls(const struct weft_context *context, struct waiting *waiting, uint64_t now)
{
    uint64_t stall = context->config.stall_ns;
    if (waiting->began == 0) {
        waiting->began = now;
        waiting->report = stall;
    }
    return stall != 0 && now - waiting->began >= waiting->report;
}

static void report_stall(struct waiting *waiting, uint64_t now)
{
    struct weft_context *context = waiting->context;
    waiting->report = 2 * (now - waiting->began);
    /* The files first: who reads the report finds them. */
    weft__state_dump(context, "a wait takes long");
    weft__recorder_flush(context);
    weft__log(context, WEFT_LOG_WARNING, "waiting for %.1f s",
              (double)(now - waiting->began) * 1e-9);
    /* A series is waited for without a run: any may be what holds it. */
    weft__report_log(context, waiting->run, WEFT_LOG_WARNING);
}

/* Lets a thread that wants the engine have it. Called driving; returns not driving. */
static void give_way(struct weft_context *context)
{
    weft__drive_unlock(context);
    for (int i = 0; i < TRIES; i++) {
        if (atomic_load_explicit(&context->wanted, memory_order_relaxed) == 0)
            return;
        sched_yield();
    }
}

/* Drives until done, or it is time: 1; or until somebody else drives or wants to: 0. Called
 * driving; returns driving if 1. */
static int drive(struct weft_context *context, struct waiting *waiting)
{
    const struct weft_context_config *config = &context->config;
    struct weft__engine *engine = &context->engine;
    struct idle idle = {0, 0};
    uint64_t now = engine->now;
    if (waiting->until != WEFT__NEVER || engine->expires_ns != WEFT__NEVER || context->awake ||
        config->stall_ns != 0)
        now = weft__now();
    for (unsigned steps = 1;; steps++) {
        uint32_t did = engine->did;
        uint64_t next = weft__drive_step(context, now);
        if (waiting->done(waiting->argument))
            return 1;
        if (atomic_load_explicit(&context->locking, memory_order_relaxed) != 0) {
            give_way(context);
            return 0;
        }
        if (engine->did != did || next <= now) {
            idle = (struct idle){0, 0};
            if (steps % 64 == 0 && (now = weft__now()) >= waiting->until)
                return 1;
            continue;
        }
        if (++idle.polls % POLLS_PER_CLOCK != 0 && config->spin_ns != 0 &&
            (idle.since == 0 || now - idle.since < config->spin_ns)) {
            relax();
            continue;
        }
        now = weft__now();
        if (now >= waiting->until)
            return 1;
        if (stalls(context, waiting, now))
            report_stall(waiting, now);
        if (idle.since == 0)
            idle.since = now;
        uint64_t limit = meanwhile(config, &idle, now);
        if (now - idle.since < config->spin_ns)
            continue;
        if (limit == 0 || now - idle.since - config->spin_ns < config->yield_ns) {
            if (context->seating.says)
                weft__seating_yield(context, now);
            else
                sched_yield();
            continue;
        }
        if (waiting->until - now < limit)
            limit = waiting->until - now;
        if (config->stall_ns != 0 && config->stall_ns < limit)
            limit = config->stall_ns;
        if (!sleep_idle(context, &idle, WEFT__BELL_CALLER, limit)) {
            if (waiting->done(waiting->argument) || !drive_try(context))
                return 0;
            now = weft__now();
        }
    }
}

/* Somebody else drives: waits for the end, or for the engine. */
static void wait_turn(struct weft_context *context, struct waiting *waiting)
{
    atomic_fetch_add_explicit(&context->wanted, 1, memory_order_relaxed);
    for (int i = 0; i < TRIES; i++) {
        if (waiting->done(waiting->argument) || !is_driven(context)) {
            atomic_fetch_sub_explicit(&context->wanted, 1, memory_order_relaxed);
            return;
        }
        sched_yield();
    }
    atomic_fetch_sub_explicit(&context->wanted, 1, memory_order_relaxed);
    uint32_t seen = atomic_load_explicit(&context->baton, memory_order_seq_cst);
    atomic_fetch_add_explicit(&context->waiters, 1, memory_order_seq_cst);
    if (!waiting->done(waiting->argument) && is_driven(context)) {
        uint64_t now = weft__now();
        uint64_t limit = waiting->until <= now ? 0 : waiting->until - now;
        /* Bounded, since a driver that falls asleep leaves the engine to whoever wakes first. */
        if (limit > context->config.sleep_max_ns)
            limit = context->config.sleep_max_ns;
        weft__futex_wait(&context->baton, seen, WEFT__BELL_ANY, limit);
    }
    atomic_fetch_sub_explicit(&context->waiters, 1, memory_order_seq_cst);
    if (context->config.stall_ns == 0)
        return;
    uint64_t now = weft__now();
    if (stalls(context, waiting, now) && !waiting->done(waiting->argument)) {
        weft__drive_lock(context);
        report_stall(waiting, now);
        weft__drive_unlock(context);
    }
}

/* As weft__drive_until(), where the transport drives. */
static int block(struct weft_context *context, struct waiting *waiting)
{
    struct weft__transport *transport = context->engine.transport;
    for (;;) {
        uint64_t now = weft__clock(context);
        if (stalls(context, waiting, now))
            report_stall(waiting, now);
        uint64_t until = waiting->until;
        if (context->config.stall_ns != 0 && until - now > waiting->report)
            until = waiting->began + waiting->report;
        int status = transport->ops->block(transport, waiting->done, waiting->argument, until);
        if (status != 0)
            return status;
        if (weft__clock(context) >= waiting->until)
            return waiting->done(waiting->argument);
    }
}

int weft__yield(struct weft_context *context)
{
    struct weft__transport *transport = context->engine.transport;
    if (transport->ops->block)
        return transport->ops->block(transport, NULL, NULL, 0);
    sched_yield();
    return 0;
}

int weft__drive_until(struct weft_context *context, int (*done)(void *), void *argument,
                      uint64_t until, struct weft_run *run)
{
    struct waiting waiting = {
        .done = done, .argument = argument, .until = until, .context = context, .run = run};
    context = context->root;
    if (context->engine.transport->ops->block)
        return block(context, &waiting);
    for (;;) {
        if (done(argument))
            return 1;
        if (until != WEFT__NEVER && weft__now() >= until)
            return done(argument);
        if (!drive_try(context)) {
            wait_turn(context, &waiting);
            continue;
        }
        if (!drive(context, &waiting))
            continue;
        int ended = done(argument);
        weft__drive_unlock(context);
        /* Others that wait for their runs drive from now on. */
        if (atomic_load_explicit(&context->waiters, memory_order_seq_cst) != 0) {
            atomic_fetch_add_explicit(&context->baton, 1, memory_order_seq_cst);
            weft__futex_wake(&context->baton, WEFT__BELL_ANY);
        }
        return ended;
    }
}

int weft__progress(struct weft_context *context, int whole_family)
{
    struct weft_context *root = context->root;
    if (root->engine.transport->ops->block) {
        int status = weft__yield(root);
        return status < 0 ? status : context->engine.active_count > 0 ? WEFT_IN_PROGRESS : WEFT_OK;
    }
    if (!drive_try(root))
        return WEFT_IN_PROGRESS;
    uint64_t now =
        root->engine.expires_ns != WEFT__NEVER || root->awake ? weft__now() : root->engine.now;
    weft__drive_step(root, now);
    int unfinished =
        whole_family ? weft__family_active(root) != NULL : context->engine.active_count > 0;
    weft__drive_unlock(root);
    if (!root->has_helper && is_reapable(root))
        weft__object_reap(root);
    return unfinished ? WEFT_IN_PROGRESS : WEFT_OK;
}

int weft_context_progress(struct weft_context *context)
{
    return !context ? WEFT__INVALID("%s: argument `context` is NULL", __func__)
                    : weft__progress(context, 0);
}

int weft_context_wait(struct weft_context *context, weft_done_fn done, void *user,
                      uint64_t timeout_ns)
{
    WEFT__REQUIRE(context, "%s: argument `context` is NULL", __func__);
    WEFT__REQUIRE(done, "%s: argument `done` is NULL", __func__);
    int status = weft_sized_time(__func__, "timeout_ns", timeout_ns, WEFT_NEVER);
    if (status != WEFT_OK)
        return status;
    if (weft__drives(context))
        return weft__error(WEFT_ERR_STATE, "%s: called by a callback, which must not block",
                           __func__);
    int ended = weft__drive_until(context, done, user, weft__time_after(context, timeout_ns), NULL);
    return ended < 0 ? ended : ended ? WEFT_OK : WEFT_IN_PROGRESS;
}

/* ---- the helper ---- */

static int stopping(struct weft_context *context)
{
    return atomic_load_explicit(&context->stopping, memory_order_seq_cst) != 0;
}

/* Waits, not driving, until nobody else drives. */
static void park(struct weft_context *context)
{
    struct weft__bell *bell = context->engine.transport->bell;
    uint32_t seen = atomic_load_explicit(&bell->count, memory_order_seq_cst);
    atomic_fetch_or_explicit(&context->parked, WEFT__BELL_HELPER, memory_order_seq_cst);
    /* Either the driver sees us parked when it stops, or we see that it has. */
    if (is_driven(context) && !stopping(context)) {
        uint64_t limit =
            context->engine.transport->wakes ? WEFT_NEVER : context->config.sleep_max_ns;
        weft__bell_wait(bell, seen, WEFT__BELL_HELPER, limit);
    }
    atomic_fetch_and_explicit(&context->parked, ~(uint32_t)WEFT__BELL_HELPER, memory_order_seq_cst);
    atomic_fetch_and_explicit(&bell->sleeper, ~(uint32_t)WEFT__BELL_HELPER, memory_order_seq_cst);
}

/* A caller has started something, which woke the helper, perhaps on the caller's own core: it wants
 * to go on (to launch its computation, say), and what it left can be done a moment later. */
static void let_caller_go(struct weft_context *context)
{
    if (atomic_exchange_explicit(&context->handed, 0, memory_order_relaxed) != 0)
        sched_yield();
}

/* Drives until a caller wants to, or it has slept. Called driving; returns not driving. */
static void help(struct weft_context *context)
{
    const struct weft_context_config *config = &context->config;
    struct weft__engine *engine = &context->engine;
    struct idle idle = {0, 0};
    uint64_t now = weft__now();
    for (unsigned steps = 1; !stopping(context); steps++) {
        uint32_t did = engine->did;
        uint64_t next = weft__drive_step(context, now);
        if (atomic_load_explicit(&context->wanted, memory_order_relaxed) != 0) {
            give_way(context);
            return;
        }
        if (is_reapable(context)) {
            weft__drive_unlock(context);
            weft__object_reap(context);
            return;
        }
        if (engine->did != did || next <= now) {
            idle = (struct idle){0, 0};
            if (steps % 64 == 0)
                now = weft__now();
            continue;
        }
        now = weft__now();
        if (idle.since == 0)
            idle.since = now;
        /* With nothing under way there is nothing to be quick for. */
        int active = engine->active_count > 0 || context->awake;
        uint64_t limit = active ? meanwhile(config, &idle, now) : WEFT__NEVER;
        if (active && (limit == 0 || now - idle.since < config->helper_yield_ns)) {
            sched_yield();
            continue;
        }
        if (!sleep_idle(context, &idle, WEFT__BELL_HELPER, limit)) {
            let_caller_go(context);
            if (stopping(context) || !drive_try(context))
                return;
            now = weft__now();
        }
    }
    weft__drive_unlock(context);
}

static void *helper(void *argument)
{
    struct weft_context *context = argument;
    atomic_store_explicit(&context->helper_self, (uintptr_t)pthread_self(), memory_order_relaxed);
    weft__topology_bind(context->helper_thread);
    while (!stopping(context)) {
        let_caller_go(context);
        if (drive_try(context))
            help(context);
        else
            park(context);
    }
    return NULL;
}

int weft__helper_start(struct weft_context *context)
{
    context->helper_thread = context->config.bind_helper == WEFT_BIND_ON
                                 ? weft__topology_helper(context->engine.transport->local_ranks)
                                 : -1;
    int error = pthread_create(&context->helper, NULL, helper, context);
    if (error != 0)
        return weft__error(WEFT_ERR_SYSTEM, "the helper thread could not be started: %s",
                           strerror(error));
    context->has_helper = 1;
    return WEFT_OK;
}

void weft__helper_stop(struct weft_context *context)
{
    while (atomic_load_explicit(&context->engine.completing, memory_order_acquire) != 0)
        sched_yield();
    if (!context->has_helper || context->engine.transport->ops->block)
        return;
    atomic_store_explicit(&context->stopping, 1, memory_order_seq_cst);
    weft__bell_wake(context->engine.transport->bell, WEFT__BELL_HELPER);
    pthread_join(context->helper, NULL);
    context->has_helper = 0;
}
