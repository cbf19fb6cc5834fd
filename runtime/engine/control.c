/* SPDX-License-Identifier: BSD-3-Clause */
/* What comes beside payloads: signals, news that a version or an object has failed. */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/ordered.h"
#include <stdio.h>
#include <string.h>

/* ---- keeping and dropping ---- */

static int is_remembered(const struct weft__engine *engine, uint64_t number)
{
    for (size_t i = 0; i < engine->failed_count; i++)
        if (engine->failed_numbers[i] == number)
            return 1;
    return 0;
}

static void remember_given_up(struct weft__engine *engine, uint64_t version)
{
    engine->given_up[engine->given_up_count++ % WEFT__GIVEN_UP_KEPT] = version;
}

static int is_given_up(const struct weft__engine *engine, uint64_t version)
{
    for (uint64_t i = 0; i < engine->given_up_count && i < WEFT__GIVEN_UP_KEPT; i++)
        if (engine->given_up[i] == version)
            return 1;
    return 0;
}

/* Whether the object that a message is for has failed here, or the version of the sequence: who has
 * sent it hears the reason from who has given up, not from this rank. */
static int has_failed(const struct weft__engine *engine, const struct weft__message *message)
{
    uint64_t number = WEFT__NUMBER(message->object);
    if (message->object == WEFT__SEQUENCE)
        return is_given_up(engine, message->version);
    const struct weft__object *object = weft__object_find(engine, number);
    if (object && object->whole)
        return atomic_load_explicit(&object->whole->status, memory_order_relaxed) < 0;
    return is_remembered(engine, number);
}

void weft__engine_refuse(struct weft__engine *engine, struct weft__message *message)
{
    int consumed = has_failed(engine, message) ? WEFT__HAS_FAILED : 0;
    engine->transport->ops->release(engine->transport, message, consumed);
}

void weft__engine_drop(struct weft__engine *engine, struct weft__message *message)
{
    while (message) {
        struct weft__message *next = message->next;
        weft__engine_refuse(engine, message);
        message = next;
    }
}

/* Keeps a message for an object to come. Signals of one rank on one channel are cumulative: the
 * later is kept. A series hears who has sent them. */
static void keep_early(struct weft__engine *engine, struct weft__message *message)
{
    struct weft__message **link = &engine->early;
    for (; *link; link = &(*link)->next)
        if ((*link)->object == message->object && (*link)->kind == message->kind &&
            ((message->kind == WEFT__SIGNAL && (*link)->tag == message->tag &&
              (*link)->from == message->from) ||
             ((message->kind == WEFT__FAIL || message->kind == WEFT__BEREFT) &&
              (*link)->version == message->version) ||
             message->kind == WEFT__NEWS)) {
            if ((*link)->version < message->version && message->kind != WEFT__NEWS)
                (*link)->version = message->version;
            engine->transport->ops->release(engine->transport, message, 1);
            return;
        }
    message->next = NULL;
    *link = message;
}

void weft__engine_signal(struct weft__engine *engine, struct weft__message *message)
{
    struct weft__object *object;
    if (weft__object_awaited(engine, message->object, &object)) {
        keep_early(engine, message);
        return;
    }
    uint32_t channel = message->tag;
    uint64_t version = message->version;
    if (object && object->whole)
        weft__whole_touch(engine, object->whole);
    if (object && object->whole && object == &object->whole->number)
        engine->host->whole_signalled(object->whole, message->from, channel, version);
    if (object && object->series)
        engine->host->series_signalled(object->series, message);
    else if (object && object->listener)
        object->listener->signalled(object->listener->user, object->listener, message->from,
                                    channel, version);
    engine->transport->ops->release(engine->transport, message, 1);
    if (!object)
        return;
    uint64_t *reached = weft__object_reached(object, channel);
    if (!reached || version == UINT64_MAX || *reached >= version + 1)
        return;
    *reached = version + 1;
    struct weft_run *run = object->active;
    if (!run || version < run->version)
        return;
    weft__engine_fire_channel(engine, run, channel);
}

/* A run fails since another's has that needs a rank which has died; who waits for this one hears of
 * that rank, too. */
static void be_bereft(struct weft__engine *engine, struct weft_run *run,
                      struct weft__message *message)
{
    char how[WEFT__NEWS_BYTES], text[WEFT__NEWS_BYTES + 64];
    int from = message->from, dead = (int)message->tag;
    snprintf(how, sizeof how, "%.*s", message->data ? (int)message->bytes : 0,
             message->data ? (const char *)message->data : "");
    engine->transport->ops->release(engine->transport, message, 1);
    snprintf(text, sizeof text, "rank %d has died%s%s, as rank %d reports", dead,
             how[0] ? ": " : "", how, from);
    if (dead >= 0 && dead < engine->transport->size) /* it may have been garbled */
        engine->host->reported(engine->context, dead, how);
    run->cause = WEFT_ERR_PEER;
    run->how = how;
    weft__engine_fail(engine, run, WEFT_ERR_PEER, WEFT__NONE, dead, text);
    run->how = NULL;
}

int weft__has_left(const struct weft__message *message, const struct weft_run *run)
{
    return message->kind == WEFT__FAIL && message->tag == WEFT_OK && !run->unordered &&
           message->version >= run->object->skipped && message->version <= run->version;
}

void weft__engine_failure(struct weft__engine *engine, struct weft__message *message)
{
    struct weft__object *object;
    if (weft__object_awaited(engine, message->object, &object)) {
        keep_early(engine, message);
        return;
    }
    struct weft_run *run = !object ? NULL : object->active;
    if (run && weft__has_left(message, run))
        message->version = run->version;
    /* A communicator ends with any version that fails, on whichever rank. */
    if (object && object->team && (message->kind == WEFT__BEREFT || message->tag != WEFT_OK)) {
        if (run)
            message->version = run->version;
        else
            weft__team_abort(object->team);
        if (!run && message->version < object->floor)
            message->version = object->floor; /* the next one hears of it */
    }
    uint64_t version = message->version;
    if (!object || version < object->floor) {
        engine->transport->ops->release(engine->transport, message, 1);
        return;
    }
    if (!run || version > run->version || (object->unordered && version != run->version)) {
        for (struct weft__message *kept = object->failed; kept; kept = kept->next)
            if (kept->version == version) {
                engine->transport->ops->release(engine->transport, message, 1);
                return;
            }
        message->next = object->failed;
        object->failed = message;
        return;
    }
    if (message->kind == WEFT__BEREFT) {
        be_bereft(engine, run, message);
        return;
    }
    int from = message->from;
    int cause = -(int)message->tag;
    int given_up = message->kind == WEFT__GIVEN_UP;
    int origin = given_up ? from : (int)message->bytes;
    char text[WEFT__NEWS_BYTES];
    if (given_up)
        snprintf(text, sizeof text, "rank %d failed: %.*s", from,
                 message->data ? (int)message->bytes : 0,
                 message->data ? (const char *)message->data : "");
    else if (!cause)
        snprintf(text, sizeof text, "rank %d has left", origin);
    else if (origin == from)
        snprintf(text, sizeof text, "rank %d failed (%s)", origin, weft_status_text(cause));
    else
        snprintf(text, sizeof text, "rank %d failed (%s), as rank %d reports", origin,
                 weft_status_text(cause), from);
    engine->transport->ops->release(engine->transport, message, 1);
    if (given_up)
        remember_given_up(engine, version);
    run->cause = cause;
    run->told = given_up;
    weft__engine_fail(engine, run, WEFT_ERR_PEER, WEFT__NONE, origin, text);
}

/* ---- news ---- */

/* What an object has heard of failures that it did not wait for, in versions below `below`. */
static void drop_failures(struct weft__engine *engine, struct weft__object *object, uint64_t below)
{
    struct weft__message **link = &object->failed;
    while (*link) {
        struct weft__message *message = *link;
        if (message->version >= below) {
            link = &message->next;
            continue;
        }
        *link = message->next;
        engine->transport->ops->release(engine->transport, message, 1);
    }
}

/* So often memory for a message is asked for: what is not told leaves others waiting. Then once
 * more with so much of the text as every transport has room for; and who is not told even so hears
 * it from another. */
enum { TELLING_TRIES = 100, BRIEF_BYTES = 120 };

int weft__engine_control(struct weft__engine *engine, const struct weft__message *message)
{
    struct weft__transport *transport = engine->transport;
    int status = WEFT_ERR_MEMORY;
    for (int i = 0; status == WEFT_ERR_MEMORY && i < TELLING_TRIES; i++)
        status = transport->ops->control(transport, message);
    return status;
}

static void tell_one(struct weft__engine *engine, const struct weft__message *message)
{
    struct weft__transport *transport = engine->transport;
    struct weft__message brief = *message;
    int status = weft__engine_control(engine, message);
    if (brief.bytes > BRIEF_BYTES)
        brief.bytes = BRIEF_BYTES;
    if (status == WEFT_ERR_MEMORY)
        transport->ops->control(transport, &brief);
}

static void tell_news(struct weft__engine *engine, uint64_t object, const struct weft__news *news,
                      int64_t to)
{
    const size_t bytes = strlen(news->text);
    const struct weft__message message = {.version = (uint64_t)news->origin,
                                          .object = object,
                                          .tag = (uint32_t)-news->status,
                                          .bytes = bytes < WEFT__NEWS_BYTES ? bytes
                                                                            : WEFT__NEWS_BYTES - 1,
                                          .data = news->text,
                                          .from = engine->transport->rank,
                                          .to = (int32_t)to,
                                          .kind = WEFT__NEWS};
    tell_one(engine, &message);
}

/* What ranks nearby have been told, and others not yet. */
struct weft__told {
    struct weft__told *next;
    uint64_t object;
    int origin, status;
    char text[];
};

static void note_told(struct weft__engine *engine, uint64_t object, const struct weft__news *news)
{
    for (const struct weft__told *told = engine->told; told; told = told->next)
        if (told->object == object)
            return;
    const size_t bytes = strlen(news->text) + 1;
    struct weft__told *told = weft__malloc(1, sizeof *told + bytes);
    if (!told)
        return; /* they hear of it from others */
    told->object = object;
    told->origin = news->origin;
    told->status = news->status;
    memcpy(told->text, news->text, bytes);
    told->next = engine->told;
    engine->told = told;
}

void weft__engine_tell(struct weft__engine *engine, uint64_t object, const struct weft__news *news)
{
    int64_t rank = engine->transport->rank, size = engine->transport->size;
    struct weft__error_saved saved; /* that a peer cannot be told is not the caller's error */
    weft__error_save(&saved);
    if (!engine->gone)
        note_told(engine, object, news);
    /* Where ranks are gone that would pass them on: to everybody. */
    for (int64_t hop = 1; hop < size; hop = engine->gone ? hop + 1 : 2 * hop) {
        const int64_t ahead = (rank + hop) % size, behind = (rank + size - hop) % size;
        tell_news(engine, object, news, ahead);
        if (!engine->gone && behind != ahead)
            tell_news(engine, object, news, behind);
    }
    weft__error_restore(&saved);
}

static int is_power(int64_t distance)
{
    return (distance & (distance - 1)) == 0;
}

void weft__engine_tell_rest(struct weft__engine *engine)
{
    int64_t rank = engine->transport->rank, size = engine->transport->size;
    struct weft__error_saved saved;
    weft__error_save(&saved);
    while (engine->told) {
        struct weft__told *told = engine->told;
        const struct weft__news news = {told->origin, told->status, told->text};
        engine->told = told->next;
        for (int64_t hop = 1; hop < size && engine->failed != WEFT_ERR_TRANSPORT; hop++) {
            const int64_t to = (rank + hop) % size;
            if (!is_power(hop) && !is_power(size - hop) && to != news.origin &&
                !weft__engine_has_gone(engine, (int)to))
                tell_news(engine, told->object, &news, to);
        }
        weft__free(told);
    }
    weft__error_restore(&saved);
}

void weft__told_free(struct weft__engine *engine)
{
    while (engine->told) {
        struct weft__told *told = engine->told;
        engine->told = told->next;
        weft__free(told);
    }
}

void weft__sequence_give_up(struct weft__engine *engine, uint64_t version, int status,
                            const char *text)
{
    struct weft__object *object = &engine->sequence;
    const struct weft__transport *transport = engine->transport;
    size_t bytes = strlen(text);
    struct weft__error_saved saved; /* of a rank that cannot be told */
    weft__error_save(&saved);
    object->floor = version + 1;
    remember_given_up(engine, version);
    if (object->failing == UINT64_MAX)
        object->failing = version;
    for (int r = 0; r < transport->size && engine->failed == 0; r++) {
        struct weft__message message = {.version = version,
                                        .object = WEFT__SEQUENCE,
                                        .tag = (uint32_t)-status,
                                        .bytes =
                                            bytes < WEFT__NEWS_BYTES ? bytes : WEFT__NEWS_BYTES - 1,
                                        .data = text,
                                        .from = transport->rank,
                                        .to = r,
                                        .kind = WEFT__GIVEN_UP};
        if (r != transport->rank)
            tell_one(engine, &message);
    }
    weft__engine_drop(engine, weft__match_purge(&engine->match, WEFT__SEQUENCE, version + 1));
    drop_failures(engine, object, version + 1);
    weft__error_restore(&saved);
}

int weft__whole_mark(struct weft__engine *engine, struct weft__whole *whole, int status,
                     const char *text, const struct weft__news *tell)
{
    if (whole->over || atomic_load_explicit(&whole->status, memory_order_relaxed))
        return 0;
    snprintf(whole->text, sizeof whole->text, "%.*s", WEFT__NEWS_BYTES - 1, text);
    atomic_store_explicit(&whole->status, status, memory_order_release);
    if (tell)
        weft__engine_tell(engine, whole->number.id, tell);
    return 1;
}

/* Callbacks may end members, but start none. */
void weft__whole_spread(struct weft__engine *engine, struct weft__whole *whole)
{
    int status = atomic_load_explicit(&whole->status, memory_order_relaxed);
    for (struct weft__object *member = whole->members; member;) {
        if (member->active) {
            weft__engine_fail(engine, member->active, status, WEFT__NONE, engine->transport->rank,
                              whole->text);
            member = whole->members; /* a callback may have changed the list */
            continue;
        }
        if (member->series)
            engine->host->series_failed(member->series, status, whole->text);
        member = member->fellow;
    }
    engine->host->whole_failed(whole);
}

void weft__whole_fail(struct weft__engine *engine, struct weft__whole *whole, int status,
                      const char *text, const struct weft__news *tell)
{
    if (weft__whole_mark(engine, whole, status, text, tell))
        weft__whole_spread(engine, whole);
}

void weft__engine_abort(struct weft__engine *engine, int status, const char *text)
{
    if (engine->failed < 0)
        return;
    engine->failed = status;
    engine->reason = weft__strdup(text); /* NULL: the status alone tells */
    /* First, so that their runs tell nobody: all hear of what has happened, or cannot. */
    for (uint64_t c = 0; engine->objects && c <= engine->object_mask; c++)
        for (struct weft__object *object = engine->objects[c]; object; object = object->next)
            if (weft__object_is_whole(object))
                weft__whole_fail(engine, object->whole, status, text, NULL);
    while (engine->active)
        weft__engine_fail(engine, engine->active, status, weft__oldest_wait(engine->active),
                          engine->transport->rank, text);
    engine->host->all_failed(engine->context, status, text);
}

static int is_early(const struct weft__engine *engine, uint64_t object)
{
    for (const struct weft__message *kept = engine->early; kept; kept = kept->next)
        if (kept->object == object && kept->kind == WEFT__NEWS)
            return 1;
    return 0;
}

void weft__engine_news(struct weft__engine *engine, struct weft__message *message)
{
    char theirs[WEFT__NEWS_BYTES], text[WEFT__NEWS_BYTES + 64];
    struct weft__object *object = NULL;
    struct weft__news news = {(int)message->version, -(int)message->tag, theirs};
    int everything = message->object == WEFT__EVERY_OBJECT;
    uint64_t number = message->object;
    snprintf(theirs, sizeof theirs, "%.*s", (int)message->bytes,
             message->data ? (const char *)message->data : "");
    snprintf(text, sizeof text, "rank %d has %s: %s", news.origin,
             everything ? "aborted" : "failed", theirs);
    if (!everything && weft__object_awaited(engine, number, &object)) {
        if (!is_early(engine, number)) /* who has not got there passes them on, too */
            weft__engine_tell(engine, number, &news);
        keep_early(engine, message);
        return;
    }
    engine->transport->ops->release(engine->transport, message, 1);
    if (everything && engine->failed >= 0) {
        weft__engine_tell(engine, number, &news);
        weft__engine_abort(engine, WEFT_ERR_PEER, text);
    } else if (object && object->whole) {
        weft__whole_fail(engine, object->whole, WEFT_ERR_PEER, text, &news);
    } else if (!everything && !object && !is_remembered(engine, number)) {
        /* It is gone here, not everywhere: who still has it may hear of it by this rank alone. */
        weft__whole_remember(engine, number);
        weft__engine_tell(engine, number, &news);
    }
}
