/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects: what the versions of a run have in common on all ranks. An object's number is the order
 * of creation, so messages may come for one before it exists here; they are kept until it does.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/engine.h"
#include <stdio.h>
#include <stdlib.h>

/* Of the table of objects, to begin with. A power of two. */
#define FIRST_CHAINS 16

const char *weft__object_name(uint64_t id, char text[WEFT__NAME_BYTES])
{
    unsigned long long number = WEFT__NUMBER(id), member = id >> WEFT__NUMBER_BITS;
    if (id == WEFT__SEQUENCE)
        snprintf(text, WEFT__NAME_BYTES, "sequence");
    else if (member)
        snprintf(text, WEFT__NAME_BYTES, "%llu.%llu", number, member);
    else
        snprintf(text, WEFT__NAME_BYTES, "%llu", number);
    return text;
}

static int compare_channels(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static int find_channels(struct weft__object *object, struct weft_plan *const *plans, size_t count)
{
    size_t total = 0;
    for (size_t p = 0; p < count; p++)
        total += plans[p]->event_count;
    object->channels = weft__malloc(total, sizeof *object->channels);
    object->reached = weft__calloc(total, sizeof *object->reached);
    if (!object->channels || !object->reached)
        return WEFT_ERR_MEMORY;
    size_t n = 0;
    for (size_t p = 0; p < count; p++)
        for (uint32_t e = 0; e < plans[p]->event_count; e++)
            if (plans[p]->events[e].channel != WEFT_CHANNEL_NONE)
                object->channels[n++] = plans[p]->events[e].channel;
    qsort(object->channels, n, sizeof *object->channels, compare_channels);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || object->channels[i] != object->channels[i - 1])
            object->channels[object->channel_count++] = object->channels[i];
    return WEFT_OK;
}

uint64_t *weft__object_reached(struct weft__object *object, uint32_t channel)
{
    if (object->channel_count == 0)
        return NULL; /* it may have no list */
    const uint32_t *found = bsearch(&channel, object->channels, object->channel_count,
                                    sizeof *object->channels, compare_channels);
    return found ? &object->reached[found - object->channels] : NULL;
}

size_t weft__object_bytes(const struct weft_plan *plan)
{
    const struct weft__object *object;
    return sizeof *object +
           plan->event_count * (sizeof *object->channels + sizeof *object->reached);
}

/* Room for one more: as many chains as objects, so that most chains have one. 0, or -1. */
static int object_room(struct weft__engine *engine)
{
    size_t chains = !engine->objects ? 0 : (size_t)engine->object_mask + 1;
    if (engine->object_count < chains)
        return 0;
    size_t wanted = chains == 0 ? FIRST_CHAINS : 2 * chains;
    struct weft__object **table = weft__calloc(wanted, sizeof *table);
    if (!table)
        return -1;
    for (size_t c = 0; c < chains; c++) {
        struct weft__object *object = engine->objects[c];
        while (object) {
            struct weft__object *next = object->next;
            struct weft__object **chain = &table[weft__object_chain(object->id) & (wanted - 1)];
            object->next = *chain;
            *chain = object;
            object = next;
        }
    }
    weft__free((void *)engine->objects);
    engine->objects = table;
    engine->object_mask = wanted - 1;
    return 0;
}

static void enter(struct weft__engine *engine, struct weft__object *object)
{
    object->failing = UINT64_MAX;
    struct weft__object **chain =
        &engine->objects[weft__object_chain(object->id) & engine->object_mask];
    object->next = *chain;
    *chain = object;
    engine->object_count++;
}

int weft__engine_object(struct weft__engine *engine, struct weft_plan *const *plans, size_t count,
                        struct weft_series *series, struct weft_run *run, struct weft__whole *whole,
                        struct weft__object **out)
{
    struct weft__object *object = weft__calloc(1, sizeof *object);
    if (!object || find_channels(object, plans, count) != WEFT_OK || object_room(engine) != 0) {
        if (object) {
            weft__free(object->channels);
            weft__free(object->reached);
        }
        weft__free(object);
        return weft__error_memory("an object");
    }
    if (whole) {
        object->id = whole->number.id | ++whole->member_count << WEFT__NUMBER_BITS;
        object->whole = whole;
        object->fellow = whole->members;
        whole->members = object;
    } else {
        object->id = engine->object_next++;
    }
    enter(engine, object);
    object->series = series;
    object->unordered = run && run->unordered;
    object->listener = run && run->signalled ? run : NULL;
    *out = object;
    weft__object_early(engine, object);
    return WEFT_OK;
}

int weft__whole_add(struct weft__engine *engine, struct weft__whole *whole)
{
    whole->number.id = engine->object_next++; /* also if this fails: the others count on */
    if (object_room(engine) != 0)
        return weft__error_memory("an object");
    whole->number.whole = whole;
    enter(engine, &whole->number);
    weft__object_early(engine, &whole->number);
    return WEFT_OK;
}

/* What has come for members that were never created. */
static void drop_early(struct weft__engine *engine, uint64_t number)
{
    struct weft__message **link = &engine->early;
    while (*link) {
        struct weft__message *message = *link;
        if (WEFT__NUMBER(message->object) != number) {
            link = &message->next;
            continue;
        }
        *link = message->next;
        engine->transport->ops->release(engine->transport, message, 0);
    }
}

static void take_out(struct weft__engine *engine, const struct weft__object *object)
{
    struct weft__object **link =
        &engine->objects[weft__object_chain(object->id) & engine->object_mask];
    while (*link != object)
        link = &(*link)->next;
    *link = object->next;
    engine->object_count--;
}

void weft__whole_forget(struct weft__engine *engine, uint64_t number)
{
    drop_early(engine, number);
    weft__engine_drop(engine, weft__match_purge_whole(&engine->match, number));
}

void weft__whole_remember(struct weft__engine *engine, uint64_t number)
{
    if (weft__grow((void **)&engine->failed_numbers, &engine->failed_capacity,
                   engine->failed_count + 1, sizeof *engine->failed_numbers) == 0)
        engine->failed_numbers[engine->failed_count++] = number;
}

void weft__whole_drop(struct weft__engine *engine, struct weft__whole *whole)
{
    for (struct weft__object *member = whole->members; member; member = member->fellow)
        member->whole = NULL; /* the context is being destroyed, and they will be */
    weft__whole_forget(engine, whole->number.id);
    if (atomic_load_explicit(&whole->status, memory_order_relaxed) < 0)
        weft__whole_remember(engine, whole->number.id);
    take_out(engine, &whole->number);
}

/* What came for this object before it was created here. */
void weft__object_early(struct weft__engine *engine, struct weft__object *object)
{
    struct weft__message **link = &engine->early;
    while (*link) {
        struct weft__message *message = *link;
        if (message->object != object->id) {
            link = &message->next;
            continue;
        }
        *link = message->next;
        if (message->kind == WEFT__SIGNAL)
            weft__engine_signal(engine, message);
        else if (message->kind == WEFT__NEWS)
            weft__engine_news(engine, message);
        else
            weft__engine_failure(engine, message);
    }
}

void weft__object_drop(struct weft__engine *engine, struct weft__object *object)
{
    weft__engine_drop(engine, weft__match_purge(&engine->match, object->id, UINT64_MAX));
    weft__engine_drop(engine, object->failed);
    weft__engine_drop(engine, object->notes);
    take_out(engine, object);
    if (object->whole) {
        struct weft__object **link = &object->whole->members;
        while (*link != object)
            link = &(*link)->fellow;
        *link = object->fellow;
    }
    weft__free(object->channels);
    weft__free(object->reached);
    weft__free(object);
}

int weft__object_failed(struct weft__engine *engine, struct weft_run *run)
{
    struct weft__message **link = &run->object->failed;
    while (*link) {
        struct weft__message *message = *link;
        int mine = message->version == run->version || weft__has_left(message, run);
        if (!mine && (message->version > run->version || run->unordered)) {
            link = &message->next;
            continue;
        }
        *link = message->next;
        if (mine)
            weft__engine_failure(engine, message);
        else
            engine->transport->ops->release(engine->transport, message, 0);
        if (mine)
            return 1;
    }
    return 0;
}
