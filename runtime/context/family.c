/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contexts of a family: steps, and how they end.
 *
 * To destroy one that was split waits for nobody. Its runs end; if it has objects that other ranks
 * still need, it becomes an orphan, which the family goes on driving until they are over. Then its
 * ranks are told, and its engine is freed. The part remains until all of them have told the same:
 * until then something may still come for its place.
 *
 *   in use --- destroy ---> orphan --- objects over ---> ended --- all others have ---> place free
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/context/part.h"
#include "runtime/engine/flight.h"
#include <sched.h>

/* ---- steps ---- */

int weft__family_rests(const struct weft_context *context)
{
    const struct weft__engine *engine = &context->engine;
    return engine->active_count == 0 && !engine->ready_head && !engine->job_head &&
           !engine->pending && engine->expires_ns == WEFT__NEVER && !context->doomed &&
           !context->zombies;
}

void weft__family_wake(struct weft_context *context)
{
    if (!context->part || context->is_awake)
        return;
    context->is_awake = 1;
    context->awake_next = context->root->awake;
    context->root->awake = context;
}

/* Whether a step would find anything but what arrives. */
static int works(const struct weft_context *context, uint64_t now)
{
    const struct weft__engine *engine = &context->engine;
    return engine->ready_head || engine->job_head || engine->pending || engine->expires_ns <= now;
}

static uint64_t step(struct weft_context *root, struct weft_context *context, uint64_t now)
{
    struct weft__engine *engine = &context->engine;
    uint32_t did = engine->did;
    uint64_t next = weft__engine_step(engine, now);
    root->engine.did += engine->did - did;
    if (context->doomed)
        weft__run_reap(context);
    if (context->zombies)
        weft__run_bury(context, 0);
    return next;
}

uint64_t weft__family_step(struct weft_context *root, uint64_t now, uint64_t next)
{
    struct weft_context *list = root->awake;
    root->awake = NULL; /* callbacks may wake others, and these again */
    while (list) {
        struct weft_context *context = list;
        list = context->awake_next;
        context->is_awake = 0;
        uint64_t due = works(context, now) || context->doomed || context->zombies
                           ? step(root, context, now)
                           : context->engine.expires_ns;
        if (due < next)
            next = due;
        if (!weft__family_rests(context))
            weft__family_wake(context);
    }
    return next;
}

static void land(struct weft__engine *engine)
{
    if (engine->flying)
        weft__flights_poll(engine);
}

void weft__family_land(const struct weft_context *context)
{
    struct weft_context *root = context->root;
    land(&root->engine);
    for (struct weft__part *part = root->family ? root->family->parts : NULL; part;
         part = part->next)
        if (part->context)
            land(&part->context->engine);
}

struct weft_run *weft__family_active(const struct weft_context *root)
{
    struct weft_run *run = root->engine.active;
    for (const struct weft_context *context = root->awake; context && !run;
         context = context->awake_next)
        run = context->engine.active;
    return run;
}

void weft__family_dump(struct weft_context *context, const char *why)
{
    weft__state_dump(context, why);
    if (context->family)
        for (struct weft__part *part = context->family->parts; part; part = part->next)
            if (part->context && part->context->engine.active)
                weft__state_dump(part->context, why);
}

static void flush(struct weft_context *context, unsigned asked)
{
    weft__recorder_flush(context);
    atomic_store(&context->traces_written, asked);
}

void weft__family_flush(struct weft_context *root, unsigned asked)
{
    flush(root, asked);
    if (root->family)
        for (struct weft__part *part = root->family->parts; part; part = part->next)
            if (part->context)
                flush(part->context, asked);
}

void weft__family_abort(struct weft_context *root, int status, const char *text)
{
    if (root->family)
        for (struct weft__part *part = root->family->parts; part; part = part->next)
            if (part->context) {
                weft__family_wake(part->context);
                weft__engine_abort(&part->context->engine, status, text);
            }
    weft__invitations_look(root);
}

/* ---- ends ---- */

/* The first thing of a context that belongs to no object, of those that destroy() ends at once. */
static struct weft_run *loose_run(const struct weft_context *context)
{
    struct weft_run *run = context->runs;
    while (run && (run->series || run->of_object || (run->object && run->object->whole)))
        run = run->all_next;
    return run;
}

static void end_loose(struct weft_context *context)
{
    struct weft_series *series;
    struct weft_run *run;
    while ((series = weft__series_loose(context)))
        weft_series_destroy(series);
    weft__drive_lock(context);
    while ((run = loose_run(context)))
        weft__run_end(run);
    weft__drive_unlock(context);
}

/* A context out of the list of those that are awake. While driving. */
static void put_to_rest(struct weft_context *context)
{
    struct weft_context **link = &context->root->awake;
    while (*link && *link != context)
        link = &(*link)->awake_next;
    if (*link)
        *link = context->awake_next;
    context->is_awake = 0;
}

/* Sends that the transport has not given back yet are the root's from now on. */
static void hand_over_zombies(struct weft_context *context)
{
    struct weft_context *root = context->root;
    while (context->zombies) {
        struct weft_run *run = context->zombies;
        context->zombies = run->all_next;
        run->context = root;
        run->engine = &root->engine;
        run->all_next = root->zombies;
        root->zombies = run;
    }
    weft__run_bury(root, 0);
}

/* Ends a context whose objects are over. Not driving; nobody else does. */
static void end(struct weft_context *context)
{
    struct weft_context *root = context->root;
    struct weft__part *part = context->part;
    weft__object_release_all(context);
    while (context->all_series)
        weft_series_destroy(context->all_series);
    weft__trace_unwatch(context);
    weft__drive_lock(context);
    while (context->runs)
        weft__run_end(context->runs);
    weft__drive_commands(context);
    weft__drive_unlock(context);
    while (atomic_load_explicit(&context->engine.completing, memory_order_acquire) != 0)
        sched_yield();
    weft__drive_lock(context);
    weft__engine_tell_rest(&context->engine);
    weft__part_leave(part);
    weft__recorder_close(context, 1);
    weft__run_bury(context, 0);
    hand_over_zombies(context);
    weft__context_drop_messages(context);
    put_to_rest(context);
    part->context = NULL;
    weft__part_end(part);
    weft__drive_unlock(root);
    weft__context_free(context);
}

void weft__family_destroy(struct weft_context *context)
{
    struct weft_context *root = context->root;
    struct weft__error_saved saved; /* that something is cancelled is not the caller's error */
    weft__error_save(&saved);
    weft__attachments_end(context);
    weft__object_abandon(context);
    end_loose(context);
    weft__drive_lock(context);
    context->part->orphan = 1; /* from now on another thread may end it */
    atomic_store_explicit(&root->reapable, 1, memory_order_release);
    weft__drive_unlock(context);
    weft__object_reap(root);
    weft__error_restore(&saved);
}

/* The next that is to be ended. */
static struct weft_context *take_orphan(struct weft_context *root)
{
    struct weft_context *orphan = NULL;
    weft__drive_lock(root);
    if (root->family)
        for (struct weft__part *part = root->family->parts; part && !orphan; part = part->next)
            if (part->context && part->orphan && !part->ending &&
                weft__object_all_over(part->context) &&
                atomic_load_explicit(&part->context->releasing, memory_order_acquire) == 0) {
                part->ending = 1;
                orphan = part->context;
            }
    weft__drive_unlock(root);
    return orphan;
}

void weft__family_reap(struct weft_context *root)
{
    struct weft_context *context;
    while ((context = take_orphan(root)))
        end(context);
}

/* One that the user has not destroyed. */
static struct weft_context *take_left(struct weft_context *root)
{
    struct weft_context *context = NULL;
    weft__drive_lock(root);
    if (root->family)
        for (struct weft__part *part = root->family->parts; part && !context; part = part->next)
            if (part->context && !part->orphan)
                context = part->context;
    weft__drive_unlock(root);
    return context;
}

void weft__family_destroy_all(struct weft_context *root)
{
    struct weft_context *context;
    while ((context = take_left(root)))
        weft__family_destroy(context);
}

/* Whether all have ended; the helper may be ending one. */
static int have_ended(struct weft_context *root)
{
    int ended = 1;
    weft__drive_lock(root);
    for (const struct weft__part *part = root->family->parts; part; part = part->next)
        ended &= !part->context;
    weft__drive_unlock(root);
    return ended;
}

void weft__family_end_all(struct weft_context *root)
{
    while (root->family && !have_ended(root)) {
        weft__family_reap(root);
        sched_yield();
    }
}

void weft__family_free(struct weft_context *root)
{
    struct weft__family *family = root->family;
    if (!family)
        return;
    while (family->parts) {
        struct weft__part *part = family->parts;
        family->parts = part->next;
        weft__free(part->members);
        weft__free(part->order);
        weft__free(part);
    }
    weft__free(family->seats);
    weft__free(family->hosts);
    weft__free(family->numbers);
    weft__free(family);
}
