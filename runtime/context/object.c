/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects from the user's side (weft/object.h): made, failed, left, released.
 *
 * The failing itself is the engine's (engine/control.c). Leaving counts over a binomial tree, by
 * signals to the object's own number:
 *
 *     rank 4   rank 2   rank 1            rank 0
 *       LEFT ---------------------------->  has left, and all below it have
 *                LEFT ------------------->
 *                         LEFT ---------->  all have: ALL down the tree; `left` is called
 *       <- ALL   <- ALL   <- ALL ---------
 *       NUMBER --------------------------->  the largest of each subtree goes up
 *                ...                         ... and of all ranks down; `settled` is called
 *       DONE ----------------------------->  all below it have done what there was
 *       <- END   <- END   <- END ---------  only now is it released: until then each passes news on
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/context/part.h"
#include <stdio.h>
#include <string.h>
#include <weft/object.h>

#define LEAVE_NS UINT64_C(60000000000)

/* Channels of the object's own number. */
enum { LEFT, ALL, NUMBER, LARGEST, DONE, END };

struct weft_object {
    struct weft__whole whole; /* first */
    struct weft_context *context;
    struct weft_object *next; /* of the context's */
    struct weft_object_config config;
    struct weft__commanded commanded;
    /* What weft_object_fail() has been given: 1 while it is written, then 2. */
    _Atomic uint32_t failing;
    int fail_status;
    char fail_text[WEFT__NEWS_BYTES];
    _Atomic int over; /* failed, or nothing is left to do */
    int left;
    int all_left;
    int has_settled;
    int has_largest;
    int done;
    uint32_t left_below, settled_below, done_below; /* a bit a child */
    uint64_t number;                                /* the largest below, with its own */
    int releasing;
    int excused; /* its context does not wait for it */
};

static struct weft_object *object_of(struct weft__whole *whole)
{
    return (struct weft_object *)whole;
}

struct weft__whole *weft__object_whole(struct weft_object *object)
{
    return object ? &object->whole : NULL;
}

int weft__object_check(const char *who, const char *member, const struct weft_object *object,
                       const struct weft_context *context)
{
    return !object || object->context == context
               ? WEFT_OK
               : WEFT__INVALID("%s: %s is of another context", who, member);
}

/* ---- making ---- */

void weft_object_config_init_sized(struct weft_object_config *config, size_t size)
{
    weft_sized_init(config, size);
}

static int check_config(const char *who, const struct weft_object_config *given,
                        struct weft_object_config *config)
{
    int status = weft_sized_read(who, "config", given, config, sizeof *config);
    if (status == WEFT_OK)
        status = weft_sized_time(who, "config->leave_ns", config->leave_ns, WEFT_NEVER);
    if (status == WEFT_OK)
        status = weft_sized_number(who, "config->silent", config->silent, 0, 1);
    if (status == WEFT_OK && config->leave_ns == 0)
        config->leave_ns = LEAVE_NS;
    return status;
}

/* One more or less that is not over: its context counts it, and its family. Release pairs with the
 * acquire of who waits for all to be over. */
static void count(struct weft_context *context, uint32_t more)
{
    atomic_fetch_add_explicit(&context->objects_open, more, memory_order_release);
    if (context->part)
        atomic_fetch_add_explicit(&context->root->objects_open, more, memory_order_release);
}

/* There is something for weft__object_reap() to do. */
static void set_reapable(struct weft_context *context)
{
    atomic_store_explicit(&context->root->reapable, 1, memory_order_release);
}

/* It counts no more. */
static void set_over(struct weft_object *object)
{
    if (!atomic_exchange_explicit(&object->over, 1, memory_order_relaxed) && !object->excused)
        count(object->context, (uint32_t)-1);
}

/* The object has its number, which the others know it by, but no memory. While driving. */
static void tell_stillborn(struct weft_context *context, uint64_t number)
{
    const struct weft__news news = {context->engine.transport->rank, WEFT_ERR_MEMORY,
                                    "out of memory for an object"};
    weft__whole_remember(&context->engine, number);
    weft__whole_forget(&context->engine, number);
    weft__engine_tell(&context->engine, number, &news);
}

/* One that is made when a rank of the context has died fails at once: it spans all of them. While
 * driving. */
static void mourn(struct weft__engine *engine, struct weft__whole *whole)
{
    char text[WEFT__FATE_BYTES];
    if (!engine->deaths)
        return;
    weft__engine_fate(engine, engine->deaths->rank, text);
    weft__whole_fail(engine, whole, WEFT_ERR_PEER, text, NULL);
}

int weft_object_create(struct weft_object **out, struct weft_context *context,
                       const struct weft_object_config *given)
{
    if (!out || !context)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, out ? "context" : "object");
    struct weft_object_config config;
    int status = check_config(__func__, given, &config);
    if (status != WEFT_OK)
        return status;
    weft__object_reap(context);
    struct weft_object *object = weft__calloc(1, sizeof *object);
    weft__drive_lock(context);
    if (object) {
        object->context = context;
        object->config = config;
        object->commanded.kind = WEFT__OF_OBJECT;
        count(context, 1);
        status = weft__whole_add(&context->engine, &object->whole);
    } else {
        status = weft__error_memory(__func__);
        tell_stillborn(context, context->engine.object_next++);
    }
    if (object && status != WEFT_OK) {
        tell_stillborn(context, object->whole.number.id);
        set_over(object);
        weft__free(object);
    } else if (object) {
        object->next = context->all_objects;
        context->all_objects = object;
        if (context->engine.failed < 0)
            weft__whole_fail(
                &context->engine, &object->whole, context->engine.failed,
                context->engine.reason ? context->engine.reason : "the transport has failed", NULL);
        mourn(&context->engine, &object->whole);
        *out = object;
    }
    weft__drive_unlock(context);
    return status;
}

int weft_object_skip(struct weft_object *object, size_t count)
{
    enum { MOST = 1 << 20 };
    if (!object)
        return WEFT__INVALID("%s: argument `object` is NULL", __func__);
    weft__drive_lock(object->context);
    uint64_t members = object->whole.member_count;
    if (count <= MOST - members)
        object->whole.member_count += count;
    weft__drive_unlock(object->context);
    if (count > MOST - members)
        return WEFT__INVALID("%s: argument `count` is %zu, expected at most %llu: the object has "
                             "%llu members",
                             __func__, count, (unsigned long long)(MOST - members),
                             (unsigned long long)members);
    return WEFT_OK;
}

/* ---- failing ---- */

int weft_object_check(const struct weft_object *object, const char *who)
{
    if (!object || !who)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, object ? "who" : "object");
    /* Acquire pairs with the release in weft__whole_mark(): the text is there. */
    int status = atomic_load_explicit(&object->whole.status, memory_order_acquire);
    if (status < 0)
        return weft__error(status, "%s: %s", who, object->whole.text);
    /* weft_object_fail() has been called, and nobody has driven since. Acquire as there. */
    if (atomic_load_explicit(&object->failing, memory_order_acquire) == 2)
        return weft__error(object->fail_status, "%s: %s", who, object->fail_text);
    return WEFT_OK;
}

static void end(struct weft_object *object)
{
    set_over(object);
    if (object->left)
        set_reapable(object->context);
    weft__wake_waiters(object->context);
}

void weft__object_failed_whole(struct weft__whole *whole)
{
    struct weft_object *object = object_of(whole);
    int status = atomic_load_explicit(&whole->status, memory_order_relaxed);
    if (object->config.failed)
        object->config.failed(object->config.user, object, status);
    end(object);
}

/* Fails it here and tells the others. While driving. */
static void fail_told(struct weft_object *object, int status, const char *text)
{
    struct weft__engine *engine = &object->context->engine;
    const struct weft__news news = {engine->transport->rank, status, text};
    weft__whole_fail(engine, &object->whole, status, text, &news);
}

void weft__object_commanded(struct weft__commanded *commanded)
{
    struct weft_object *object =
        (void *)((char *)commanded - offsetof(struct weft_object, commanded));
    /* Acquire pairs with the release in weft_object_fail(). */
    if (atomic_load_explicit(&object->failing, memory_order_acquire) == 2)
        fail_told(object, object->fail_status, object->fail_text);
}

int weft_object_fail(struct weft_object *object, int status, const char *text)
{
    if (!object)
        return WEFT__INVALID("%s: argument `object` is NULL", __func__);
    if (status >= 0)
        return WEFT__INVALID("%s: argument `status` is %d, expected an error", __func__, status);
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&object->failing, &none, 1))
        return WEFT_OK; /* the first one counts */
    object->fail_status = status;
    snprintf(object->fail_text, sizeof object->fail_text, "%s",
             text && text[0] != '\0' ? text : weft_status_text(status));
    atomic_store_explicit(&object->failing, 2, memory_order_release);
    weft__command_give(object->context, &object->commanded, WEFT__DO_FAIL, 0);
    return WEFT_OK;
}

/* ---- leaving: while driving ---- */

static int rank_of(const struct weft_object *object)
{
    return object->context->engine.transport->rank;
}

/* Child i of a rank is rank + 2^i, below its lowest bit. */
static int child_count(const struct weft_object *object)
{
    int64_t rank = rank_of(object), size = object->context->engine.transport->size;
    int count = 0;
    while (rank + (INT64_C(1) << count) < size && (rank == 0 || !(rank >> count & 1)))
        count++;
    return count;
}

static void signal_to(const struct weft_object *object, int rank, uint32_t channel, uint64_t value)
{
    struct weft__transport *transport = object->context->engine.transport;
    struct weft__message signal = {.version = value,
                                   .object = object->whole.number.id,
                                   .tag = channel,
                                   .from = transport->rank,
                                   .to = rank,
                                   .kind = WEFT__SIGNAL};
    object->context->engine.stats.signals_sent++;
    int status = transport->ops->control(transport, &signal);
    if (status < 0)
        fail_told((struct weft_object *)(uintptr_t)object, status, weft_error_text());
}

static void signal_up(const struct weft_object *object, uint32_t channel, uint64_t value)
{
    int rank = rank_of(object);
    signal_to(object, rank & (rank - 1), channel, value);
}

static void signal_down(const struct weft_object *object, uint32_t channel, uint64_t value)
{
    for (int i = child_count(object); i-- > 0;)
        signal_to(object, rank_of(object) + (1 << i), channel, value);
}

/* Bits of all children. */
static uint32_t all_below(const struct weft_object *object)
{
    return (UINT32_C(1) << child_count(object)) - 1;
}

static void look_done(struct weft_object *object)
{
    if (!object->done || object->done_below != all_below(object))
        return;
    if (rank_of(object) != 0) {
        signal_up(object, DONE, 0);
        return;
    }
    signal_down(object, END, 0);
    end(object);
}

static void set_done(struct weft_object *object)
{
    if (object->done)
        return;
    object->done = 1;
    look_done(object);
}

static void set_largest(struct weft_object *object, uint64_t largest)
{
    if (object->has_largest)
        return;
    object->has_largest = 1;
    signal_down(object, LARGEST, largest);
    if (object->config.settled)
        object->config.settled(object->config.user, object, largest);
    else
        set_done(object);
}

static void look_settled(struct weft_object *object)
{
    if (!object->has_settled || object->settled_below != all_below(object))
        return;
    if (rank_of(object) == 0)
        set_largest(object, object->number);
    else
        signal_up(object, NUMBER, object->number);
}

static void settle(struct weft_object *object, uint64_t number)
{
    if (object->has_settled)
        return;
    object->has_settled = 1;
    if (number > object->number)
        object->number = number;
    look_settled(object);
}

static void set_all_left(struct weft_object *object)
{
    if (object->all_left)
        return;
    object->all_left = 1;
    signal_down(object, ALL, 0);
    if (object->config.left)
        object->config.left(object->config.user, object);
    else
        settle(object, 0);
}

static void look_left(struct weft_object *object)
{
    if (!object->left || object->left_below != all_below(object))
        return;
    if (rank_of(object) == 0)
        set_all_left(object);
    else
        signal_up(object, LEFT, 0);
}

void weft__object_signalled(struct weft__whole *whole, int from, uint32_t channel, uint64_t value)
{
    struct weft_object *object = object_of(whole);
    int below = from - rank_of(object); /* of a child */
    if (atomic_load_explicit(&object->over, memory_order_relaxed))
        return;
    switch (channel) {
    case LEFT:
        if (object->left_below & (uint32_t)below)
            return; /* it comes again */
        object->left_below |= (uint32_t)below;
        look_left(object);
        break;
    case ALL:
        set_all_left(object);
        break;
    case NUMBER:
        if (object->settled_below & (uint32_t)below)
            return;
        object->settled_below |= (uint32_t)below;
        if (value > object->number)
            object->number = value;
        look_settled(object);
        break;
    case LARGEST:
        set_largest(object, value);
        break;
    case DONE:
        if (object->done_below & (uint32_t)below)
            return;
        object->done_below |= (uint32_t)below;
        look_done(object);
        break;
    case END:
        signal_down(object, END, 0);
        end(object);
        break;
    default:
        break;
    }
}

/* The rank that is to say something next: of a child what is true of all below it. */
static int awaited(const struct weft_object *object)
{
    int rank = rank_of(object);
    uint32_t heard = object->done          ? object->done_below
                     : object->has_settled ? object->settled_below
                                           : object->left_below;
    uint32_t missing = all_below(object) & ~heard;
    if (object->all_left && !object->has_settled)
        return rank;
    if (object->has_largest && !object->done)
        return rank;
    return missing != 0 ? rank + (int)(missing & (0 - missing)) : rank & (rank - 1);
}

uint64_t weft__object_due(struct weft_context *context, uint64_t now)
{
    uint64_t next = WEFT__NEVER;
    for (struct weft_object *object = context->all_objects; object; object = object->next) {
        uint64_t limit = object->config.leave_ns, touched = object->whole.touched_ns;
        if (!object->left || atomic_load_explicit(&object->over, memory_order_relaxed) ||
            limit >= WEFT__NEVER - 1 - touched || object->excused)
            continue;
        if (touched + limit > now) {
            next = touched + limit < next ? touched + limit : next;
        } else if (object->config.silent) { /* goes on passing on what comes, unless all end */
            object->excused = 1;
            count(context, (uint32_t)-1);
            set_reapable(context);
            weft__wake_waiters(context);
        } else {
            char text[160];
            snprintf(text, sizeof text,
                     "rank %d has left, and not all others have: nothing has happened for %.3f s, "
                     "waiting for rank %d",
                     rank_of(object), (double)limit * 1e-9, awaited(object));
            fail_told(object, WEFT_ERR_TIMEOUT, text);
        }
    }
    return next;
}

/* ---- being released ---- */

/* It is going to be released, by who calls this. While driving. */
static void take(struct weft_object *object)
{
    object->releasing = 1;
    object->whole.over = 1;
    atomic_fetch_add_explicit(&object->context->releasing, 1, memory_order_relaxed);
}

static void release(struct weft_object *object)
{
    struct weft_context *context = object->context;
    if (object->config.release)
        object->config.release(object->config.user);
    else
        weft_object_destroy(object);
    /* Release pairs with the acquire in weft__object_end_all(). */
    atomic_fetch_sub_explicit(&context->releasing, 1, memory_order_release);
}

/* ---- leaving: by the user ---- */

int weft_object_leave(struct weft_object *object)
{
    if (!object)
        return WEFT__INVALID("%s: argument `object` is NULL", __func__);
    if (!object->config.release)
        return WEFT__INVALID("%s: config->release is NULL, expected a function", __func__);
    struct weft_context *context = object->context;
    weft__drive_lock(context);
    weft__drive_commands(context); /* it may fail by one */
    int again = object->left, now = 0;
    if (!again) {
        object->left = 1;
        object->whole.timed = 1;
        object->whole.touched_ns = weft__clock(context);
        now = atomic_load_explicit(&object->over, memory_order_relaxed);
        if (now) {
            take(object);
            set_reapable(context); /* a context may have waited for it to be over */
        } else {
            look_left(object);
            uint64_t due = weft__object_due(context, 0);
            if (due < context->engine.expires_ns)
                context->engine.expires_ns = due;
        }
    }
    weft__drive_unlock(context);
    if (again)
        return weft__error(WEFT_ERR_STATE, "%s: the object has been left before", __func__);
    if (now)
        release(object); /* by this thread: its caller gets the memory back that was lent */
    weft__object_reap(context);
    return WEFT_OK;
}

int weft_object_settle(struct weft_object *object, uint64_t number)
{
    if (!object)
        return WEFT__INVALID("%s: argument `object` is NULL", __func__);
    if (!object->all_left)
        return weft__error(WEFT_ERR_STATE, "%s: not all ranks have left the object", __func__);
    settle(object, number);
    return WEFT_OK;
}

int weft_object_done(struct weft_object *object)
{
    if (!object)
        return WEFT__INVALID("%s: argument `object` is NULL", __func__);
    if (!object->has_largest)
        return weft__error(WEFT_ERR_STATE, "%s: the ranks have not settled", __func__);
    set_done(object);
    return WEFT_OK;
}

/* ---- ends ---- */

void weft_object_destroy(struct weft_object *object)
{
    if (!object)
        return;
    struct weft_context *context = object->context;
    weft__drive_lock(context);
    weft__drive_commands(context); /* none of them may point to it; it may fail by one */
    object->whole.over = 1;
    weft__whole_drop(&context->engine, &object->whole);
    struct weft_object **link = &context->all_objects;
    while (*link != object)
        link = &(*link)->next;
    *link = object->next;
    set_over(object);
    weft__drive_unlock(context);
    weft__free(object);
}

/* Whether the transport still has memory of it. While driving. */
static int is_lent(const struct weft_object *object)
{
    for (const struct weft_run *run = object->context->runs; run; run = run->all_next)
        if (run->object && run->object->whole == &object->whole && weft__run_is_lent(run))
            return 1;
    return 0;
}

void weft__object_reclaimed(struct weft_context *context)
{
    set_reapable(context);
}

static int is_releasable(const struct weft_object *object)
{
    return object->left && atomic_load_explicit(&object->over, memory_order_relaxed) &&
           !is_lent(object); /* weft__object_reclaimed() follows */
}

/* The next to be released: over, and left to the context; `all`: any. NULL: none. While driving. */
static struct weft_object *take_of(struct weft_context *context, int all)
{
    struct weft_object *object = context->all_objects;
    while (object && (object->releasing || !(all || is_releasable(object))))
        object = object->next;
    if (object)
        take(object);
    return object;
}

static struct weft_object *take_over(struct weft_context *context)
{
    weft__drive_lock(context);
    struct weft_object *object = take_of(context, 1);
    weft__drive_unlock(context);
    return object;
}

/* The same of a family, of those that are over. */
static struct weft_object *take_in_family(struct weft_context *root)
{
    weft__drive_lock(root);
    struct weft_object *object = take_of(root, 0);
    if (root->family)
        for (struct weft__part *part = root->family->parts; part && !object; part = part->next)
            if (part->context && !part->ending) /* who ends it releases them */
                object = take_of(part->context, 0);
    weft__drive_unlock(root);
    return object;
}

void weft__object_reap(struct weft_context *context)
{
    struct weft_context *root = context->root;
    if (!atomic_exchange_explicit(&root->reapable, 0, memory_order_acquire))
        return;
    struct weft_object *object;
    while ((object = take_in_family(root)))
        release(object);
    weft__family_reap(root);
}

static void abandon(struct weft_context *context)
{
    char text[96];
    snprintf(text, sizeof text, "rank %d has destroyed its context, not the object",
             context->engine.transport->rank);
    for (struct weft_object *object = context->all_objects; object; object = object->next)
        if (!object->left)
            fail_told(object, WEFT_ERR_CANCELLED, text);
}

void weft__object_abandon(struct weft_context *context)
{
    weft__drive_lock(context);
    abandon(context);
    if (context->family)
        for (struct weft__part *part = context->family->parts; part; part = part->next)
            if (part->context)
                abandon(part->context);
    weft__drive_unlock(context);
}

int weft__object_all_over(const struct weft_context *context)
{
    return atomic_load_explicit(&context->objects_open, memory_order_acquire) == 0;
}

static int all_over(void *context)
{
    return weft__object_all_over(context);
}

void weft__object_release_all(struct weft_context *context)
{
    struct weft_object *object;
    while ((object = take_over(context)))
        release(object);
}

void weft__object_end_all(struct weft_context *context)
{
    struct weft__error_saved saved; /* virtual ranks that have returned do not wait, and say so */
    weft__error_save(&saved);
    weft__object_abandon(context);
    weft__drive_until(context, all_over, context, WEFT__NEVER, NULL);
    weft__object_release_all(context);
    /* The helper may be in the middle of releasing one. */
    while (atomic_load_explicit(&context->releasing, memory_order_acquire) != 0 &&
           weft__yield(context) >= 0)
        ;
    weft__error_restore(&saved);
}
