/* SPDX-License-Identifier: BSD-3-Clause */
/* How a play is given: what the ranks do, and how deeds come to pass. */
#include "play.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/alloc.h"

/* ---- what is left behind ---- */

/* Objects that a rank has not destroyed are not leaks of the library. */
static struct {
    void **list;
    size_t count, capacity;
} kept;

static void keep(void *actor)
{
    if (kept.count == kept.capacity) {
        kept.capacity = kept.capacity ? 2 * kept.capacity : 64;
        kept.list = realloc(kept.list, kept.capacity * sizeof *kept.list);
        if (!kept.list)
            abort();
    }
    kept.list[kept.count++] = actor;
}

/* ---- what kinds share ---- */

/* ---- events ---- */

/* Whether the allocation that was to fail has failed, and whose it was. */
static void look_for_victim(struct play *play)
{
    for (int e = 0; e < play->event_count; e++) {
        struct play_event *event = &play->events[e];
        if (event->deed != PLAY_MEMORY || !event->due || event->done ||
            atomic_load(&weft__alloc_countdown) > 0)
            continue;
        event->done = 1;
        event->victim = play->latest;
    }
}

static void arise(struct play *play, struct play_event *event)
{
    struct weft_context *context = play->contexts[event->rank];
    char words[64];
    if (event->deed == PLAY_MEMORY && atomic_load(&weft__alloc_countdown) <= 0) {
        atomic_store(&weft__alloc_countdown, 1 + event->skipped);
        event->due = 1;
    } else if (event->deed == PLAY_ABORT && context) {
        play_words(play, event->rank, words, sizeof words);
        weft_context_abort(context, WEFT_ERR_COMPUTE, words);
        event->due = event->done = 1;
    } else if (event->deed != PLAY_ABORT && event->deed != PLAY_MEMORY) {
        event->due = 1; /* the rank's function does it */
    }
}

static void rehearse_event(struct play *play, uint64_t time_ns)
{
    if (play->time_count == play->time_capacity) {
        play->time_capacity = play->time_capacity ? 2 * play->time_capacity : 1024;
        play->times = realloc(play->times, play->time_capacity * sizeof *play->times);
        if (!play->times)
            abort();
    }
    play->times[play->time_count++] = time_ns;
}

static void on_event(void *user, const struct weft_virtual_event *event)
{
    struct play *play = user;
    uint64_t number = play->happened++;
    if (event->time_ns < play->now_ns && play->now_ns - event->time_ns > play->back_ns)
        play->back_ns = play->now_ns - event->time_ns;
    play->now_ns = event->time_ns;
    if (play->rehearsing) {
        rehearse_event(play, event->time_ns);
        return;
    }
    look_for_victim(play);
    play->latest = event->rank;
    for (int e = 0; e < play->event_count; e++)
        if (!play->events[e].due && number >= play->events[e].event)
            arise(play, &play->events[e]);
}

/* ---- a rank ---- */

struct life {
    struct play *play;
    struct weft_context *context;
    int rank;
    int alive[PLAY_OBJECTS];
    int over; /* 1: the function is to return */
    int status;
    const struct play_report *told; /* the error that it returns; NULL: another */
};

/* The longest that a call may take. */
static uint64_t may_take(const struct play_object *object, int rank, int step)
{
    const struct play *play = object->play;
    uint64_t slack = 6000000 + 4 * object->sleep_ns + 10 * play->network.pause_ns;
    for (int e = 0; e < play->event_count; e++)
        if (play->events[e].deed == PLAY_PAUSE && play->events[e].rank == rank)
            slack += play->events[e].for_ns;
    if (step == PLAY_STEPS) /* some have to end a step that others are in */
        return object->leave_ns + slack;
    if (!object->deadline_ns || !object->patience)
        return UINT64_C(1000000000);
    return object->deadline_ns * (uint64_t)(object->patience * object->kind->waits) + slack;
}

/* Notes how a call went. */
static void note(struct life *life, struct play_object *object, int step, int status,
                 uint64_t began)
{
    struct play_report *report = &object->reports[life->rank];
    uint64_t now = weft_context_now(life->context), took = now - began;
    if (took > may_take(object, life->rank, step) && !report->overdue) {
        report->overdue = 1;
        report->took_ns = took;
        report->may_take_ns = may_take(object, life->rank, step);
        report->step = step;
    }
    if (status == WEFT_OK || report->status != WEFT_OK)
        return;
    report->status = status;
    report->step = step;
    report->at_ns = now;
    snprintf(report->text, sizeof report->text, "%s", weft_error_text());
}

static void end(struct life *life, struct play_object *object)
{
    if (!life->alive[object->number])
        return;
    life->alive[object->number] = 0;
    if (object->reports[life->rank].status == WEFT_OK) /* of others a step may be under way */
        object->steps[life->rank] = object->taken[life->rank];
    uint64_t began = weft_context_now(life->context);
    int status = object->kind->end(object, life->rank);
    note(life, object, PLAY_STEPS, status, began);
    object->reports[life->rank].returned = 1;
}

static void end_all(struct life *life)
{
    struct play *play = life->play;
    for (int i = 0; i < play->object_count; i++) {
        int o = play->crossed && life->rank % 2 ? play->object_count - 1 - i : i;
        end(life, &play->objects[o]);
    }
}

static void keep_all(struct life *life)
{
    struct play *play = life->play;
    for (int o = 0; o < play->object_count; o++) {
        struct play_object *object = &play->objects[o];
        if (life->alive[o])
            keep(object->actors[life->rank]);
        life->alive[o] = 0;
        object->reports[life->rank].returned = 1;
    }
}

/* What the rank is to do now. */
static void act(struct life *life, struct play_event *event)
{
    struct play *play = life->play;
    struct play_object *object = &play->objects[event->object];
    char words[64];
    play_words(play, life->rank, words, sizeof words);
    if ((event->deed == PLAY_FAIL || event->deed == PLAY_LEAVE) && !life->alive[event->object])
        return; /* not yet, or no more */
    event->done = 1;
    if (event->deed == PLAY_FAIL) {
        uint64_t began = weft_context_now(life->context);
        note(life, object, object->taken[life->rank],
             object->kind->fail(object, life->rank, WEFT_ERR_COMPUTE, words), began);
    } else if (event->deed == PLAY_LEAVE) {
        end(life, object);
    } else {
        life->over = 1;
        life->told = NULL;
        if (event->deed == PLAY_ERROR)
            end_all(life);
        else
            keep_all(life);
        life->status =
            event->deed == PLAY_ABANDON ? WEFT_OK : weft_error_set(WEFT_ERR_COMPUTE, "%s", words);
    }
}

static void act_all(struct life *life)
{
    struct play *play = life->play;
    for (int e = 0; e < play->event_count && !life->over; e++) {
        struct play_event *event = &play->events[e];
        int by_function = event->deed >= PLAY_FAIL && event->deed <= PLAY_ABANDON;
        if (by_function && event->rank == life->rank && event->due && !event->done)
            act(life, event);
    }
}

/* An object has failed here: the rank destroys it, and goes on with what is left, or gives up. */
static void suffer(struct life *life, struct play_object *object)
{
    life->told = &object->reports[life->rank];
    life->status = life->told->status;
    life->over = life->play->tells;
    end(life, object);
}

static void begin(struct life *life, struct play_object *object)
{
    uint64_t began = weft_context_now(life->context);
    int status = object->kind->begin(object, life->context, life->rank);
    life->alive[object->number] = 1;
    note(life, object, -1, status, began);
    if (status != WEFT_OK)
        suffer(life, object);
}

static void step(struct life *life, struct play_object *object, int step)
{
    uint64_t began = weft_context_now(life->context);
    int status = object->kind->step(object, life->rank, step);
    object->taken[life->rank] += status == WEFT_OK;
    note(life, object, step, status, began);
    if (status != WEFT_OK)
        suffer(life, object);
}

/* A step of an object, of which another may be waiting: who has no more leaves it before it goes on
 * with others, or all would wait in a circle. */
static void take_turn(struct life *life, struct play_object *object, int turn)
{
    if (!life->alive[object->number])
        return;
    if (turn < object->steps[life->rank])
        step(life, object, turn);
    else if (object->unequal)
        end(life, object);
}

static int live(struct weft_context *context, void *user)
{
    struct play *play = user;
    struct life life = {.play = play, .context = context, .rank = weft_context_rank(context)};
    play->contexts[life.rank] = context;
    for (int o = 0; o < play->object_count && !life.over; o++) {
        act_all(&life);
        if (!life.over)
            begin(&life, &play->objects[o]);
    }
    for (int t = 0; t < PLAY_STEPS && !life.over; t++)
        for (int o = 0; o < play->object_count && !life.over; o++) {
            act_all(&life);
            if (!life.over)
                take_turn(&life, &play->objects[o], t);
        }
    if (!life.over)
        act_all(&life);
    end_all(&life);
    for (int o = 0; o < play->object_count; o++)
        play->objects[o].reports[life.rank].returned = 1;
    if (life.over && life.told) /* what was called since may have another text */
        return weft_error_set(life.status, "%s", life.told->text);
    return life.over ? life.status : WEFT_OK;
}

/* ---- the play ---- */

static void set_events(struct play *play)
{
    play->network.fault_count = 0;
    play->network.faults = play->faults;
    for (int e = 0; e < play->event_count; e++) {
        struct play_event *event = &play->events[e];
        event->event = (uint64_t)(event->share * (double)play->time_count);
        if (event->deed != PLAY_STOP && event->deed != PLAY_PAUSE)
            continue;
        event->due = event->done = 1; /* comes for certain */
        play->faults[play->network.fault_count++] = (struct weft_virtual_fault){
            .rank = event->rank,
            .at_ns = play->times[event->event],
            .for_ns = event->deed == PLAY_STOP ? WEFT_NEVER : event->for_ns,
        };
    }
}

void play_perform(struct play *play)
{
    play->happened = play->now_ns = play->back_ns = 0;
    play->latest = -1;
    play->network.trace = on_event;
    play->network.trace_user = play;
    if (!play->rehearsing)
        set_events(play);
    play->status = weft_virtual_run(play->ranks, &play->network, live, play);
    snprintf(play->text, sizeof play->text, "%s", play->status ? weft_error_text() : "");
    look_for_victim(play);
    atomic_store(&weft__alloc_countdown, -1);
}
