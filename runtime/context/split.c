/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts of some ranks: weft_context_split() and weft_context_subset().
 *
 * Each rank makes all that it needs, then sends every other one an invitation: its colour and key,
 * the place that it keeps for the context, or why it has failed. When it has theirs, it knows all
 * that there is to know, and nothing can fail any more: so all ranks have a context or none has.
 *
 *      rank 0                    rank 1                    rank 2, of no colour
 *      make; place 5             make; place 2
 *      invite 1, 2  ---------->  invite 0, 2               invite 0, 1; returns
 *                   <----------               <----------
 *      0 and 1: members, begin   members, begin
 *      send to place 2  ------>  (before it begins: kept)
 *
 * Invitations are control messages, which never wait. So a rank of no colour does not, and nobody
 * waits for it to drive anything: which it would have to if it passed on what others send. Those of
 * weft_context_split() are numbered by the calls on the parent. Those of weft_context_subset() have
 * a hash of ranks and tag; of two with the same one the first counts, so they have a serial, by
 * which those that overtake others wait for them.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/context/part.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers with it are hashes. */
#define OF_SUBSET (UINT64_C(1) << 63)

/* What an invitation says; behind it the text of a failure. */
struct invitation {
    uint64_t serial; /* 0: none */
    int32_t colour, key;
    int32_t status;
    struct weft__place place;
};
enum { TEXT_BYTES = WEFT__NEWS_BYTES - sizeof(struct invitation) };

/* Of subsets: invitations sent to a rank, and received from it without a gap. */
struct weft__serials {
    uint64_t out, in;
};

/* What one call waits for and has heard; on its stack, so that it needs no memory to fail. */
struct weft__gathering {
    struct weft__gathering *next; /* of the context's */
    struct weft_context *parent;
    uint64_t number;
    const int *ranks; /* NULL: all of the parent */
    int count;        /* of them */
    int own;          /* this rank among them */
    struct invitation mine;
    struct invitation *entries; /* by index in ranks; NULL: there was no memory */
    int at;                     /* the next to be heard */
    int status;                 /* the first failure that was told, and its text */
    char text[WEFT__ERROR_BYTES];
    /* What is made of it. */
    struct weft__part *part;
    struct weft_context *context;
};

/* ---- invitations ---- */

void weft__invitations_look(struct weft_context *context)
{
    struct weft_context *root = context->root;
    atomic_fetch_add_explicit(&root->heard, 1, memory_order_seq_cst);
    weft__wake_waiters(root);
}

/* Where those of a rank are kept: with thousands of ranks one list would be a long one. */
static struct weft__message **invitations_of(struct weft_context *context, int from)
{
    return &context->invitations[from % WEFT__INVITATION_LISTS];
}

static void give_back(struct weft_context *context, struct weft__message *message)
{
    struct weft__transport *transport = context->engine.transport;
    transport->ops->release(transport, message, 1);
}

static int is_withdrawn(const struct weft_context *context, uint64_t number)
{
    for (size_t i = 0; i < context->withdrawn_count; i++)
        if (context->withdrawn[i] == number)
            return 1;
    return 0;
}

/* Whether a call that has been made waits for it, or one that can succeed is still to come. */
static int is_awaited(const struct weft_context *context, uint64_t number)
{
    const struct weft__gathering *gathering = context->gatherings;
    while (gathering && gathering->number != number)
        gathering = gathering->next;
    if (number & OF_SUBSET)
        return gathering || !context->has_withdrawn || context->engine.failed >= 0;
    return gathering || number >= context->splits;
}

/* A rank that this one has invited may have a context with it, which this one has not. */
static void decline(struct weft_context *root, int from, const struct invitation *invitation)
{
    if (invitation->status == WEFT_OK && invitation->place.part != 0)
        weft__part_decline(root, from, invitation->place);
}

void weft__invitation_decline(struct weft_context *root, int from,
                              const struct weft__message *message)
{
    struct invitation theirs;
    if (message->bytes < sizeof theirs || weft__shrink_is(message->object))
        return;
    memcpy(&theirs, message->data, sizeof theirs);
    decline(root, from, &theirs);
}

void weft__family_invited(struct weft_context *context, struct weft__message *message)
{
    if (weft__shrink_is(message->object)) {
        weft__shrink_heard(context, message);
        return;
    }
    if (!is_awaited(context, message->object) || message->bytes < sizeof(struct invitation)) {
        if (context->has_withdrawn)
            weft__invitation_decline(context->root, weft__root_rank(context, message->from),
                                     message);
        give_back(context, message);
        return;
    }
    if (is_withdrawn(context, message->object)) /* kept all the same: it has a serial */
        weft__invitation_decline(context->root, weft__root_rank(context, message->from), message);
    struct weft__message **link = invitations_of(context, message->from);
    while (*link)
        link = &(*link)->next;
    message->next = NULL;
    *link = message;
    weft__invitations_look(context);
}

/* Those of a number, or all. */
static void drop(struct weft_context *context, uint64_t number, int all)
{
    for (int list = 0; list < WEFT__INVITATION_LISTS; list++)
        for (struct weft__message **link = &context->invitations[list]; *link;) {
            struct weft__message *message = *link;
            if (!all && message->object != number) {
                link = &message->next;
                continue;
            }
            *link = message->next;
            give_back(context, message);
        }
}

void weft__invitations_drop(struct weft_context *context)
{
    drop(context, 0, 1);
    weft__shrink_drop(context, UINT64_MAX);
    weft__free(context->serials);
    context->serials = NULL;
    weft__free(context->withdrawn);
    context->withdrawn = NULL;
    context->withdrawn_count = context->withdrawn_capacity = 0;
}

static uint64_t serial_of(const struct weft__message *message)
{
    uint64_t serial;
    memcpy(&serial, message->data, sizeof serial); /* its first member */
    return serial;
}

/* The largest serial up to which all of a rank's are here. */
static uint64_t without_gap(struct weft_context *context, int from)
{
    struct weft__serials *serials = context->serials;
    const struct weft__message *first = *invitations_of(context, from), *message = first;
    if (!serials || (context->unserialled && serials[from].in == 0))
        return UINT64_MAX;
    while (message)
        if ((message->object & OF_SUBSET) && message->from == from &&
            serial_of(message) == serials[from].in + 1) {
            serials[from].in++;
            message = first;
        } else {
            message = message->next;
        }
    return serials[from].in;
}

/* The first invitation of a rank to a number, taken out; or NULL. */
static struct weft__message *take(struct weft_context *context, uint64_t number, int from)
{
    uint64_t most = number & OF_SUBSET ? without_gap(context, from) : UINT64_MAX;
    struct weft__message **best = NULL;
    for (struct weft__message **link = invitations_of(context, from); *link; link = &(*link)->next)
        if ((*link)->object == number && (*link)->from == from && serial_of(*link) <= most &&
            (!best || serial_of(*link) < serial_of(*best)))
            best = link;
    if (!best)
        return NULL;
    struct weft__message *message = *best;
    *best = message->next;
    if (context->unserialled && context->serials && serial_of(message) > context->serials[from].in)
        context->serials[from].in = serial_of(message);
    return message;
}

static int rank_at(const struct weft__gathering *gathering, int index)
{
    return gathering->ranks ? gathering->ranks[index] : index;
}

static void note_failure(struct weft__gathering *gathering, int status, int rank, const char *text)
{
    if (gathering->status != WEFT_OK)
        return;
    gathering->status = status;
    snprintf(gathering->text, sizeof gathering->text, "rank %d: %s", rank, text);
}

static void note_gone(struct weft__gathering *gathering, int rank)
{
    if (gathering->status != WEFT_OK)
        return;
    gathering->status = WEFT_ERR_PEER;
    weft__engine_fate(&gathering->parent->engine, rank, gathering->text);
}

static void hear(struct weft__gathering *gathering, int index, const struct weft__message *message)
{
    struct invitation theirs;
    char text[TEXT_BYTES + 1];
    memcpy(&theirs, message->data, sizeof theirs);
    snprintf(text, sizeof text, "%.*s", (int)(message->bytes - sizeof theirs),
             (const char *)message->data + sizeof theirs);
    if (theirs.status < 0)
        note_failure(gathering, theirs.status, rank_at(gathering, index), text);
    if (gathering->entries)
        gathering->entries[index] = theirs;
}

/* A rank that is to be heard and has died; -1: none. Those that have heard it may have failed in
 * something else by now and come no more: nobody waits for them. */
static int dead_rank(const struct weft__gathering *gathering)
{
    const struct weft__engine *engine = &gathering->parent->engine;
    for (const struct weft__death *death = engine->deaths; death; death = death->next)
        for (int i = 0; i < gathering->count; i++)
            if (rank_at(gathering, i) == death->rank)
                return death->rank;
    return -1;
}

/* Hears what has come, in the order of the ranks, so that all name the same one that has failed. 1:
 * all of it, or more is not waited for. What a rank has said before it died counts, so that all get
 * a context whose ranks have all invited each other; but after a call for a subset that has failed,
 * what has come for it is not for the next. With a rank dead nobody waits for what is missing:
 * others may have failed in something else by it, and not call at all. While driving. */
static int gather(struct weft__gathering *gathering)
{
    struct weft_context *parent = gathering->parent;
    int dead = dead_rank(gathering);
    if (dead >= 0 && is_withdrawn(parent, gathering->number)) {
        note_gone(gathering, dead);
        return 1;
    }
    for (; gathering->at < gathering->count; gathering->at++) {
        int rank = rank_at(gathering, gathering->at);
        if (gathering->at == gathering->own)
            continue;
        struct weft__message *message = take(parent, gathering->number, rank);
        if (!message && dead >= 0) {
            note_gone(gathering, dead);
            return 1;
        }
        if (!message && !weft__engine_has_gone(&parent->engine, rank))
            return 0;
        if (message) {
            hear(gathering, gathering->at, message);
            give_back(parent, message);
        } else {
            note_gone(gathering, rank);
        }
    }
    return 1;
}

/* A call for a subset that has failed since one of its ranks has died, which no other call for the
 * same ranks can succeed after. */
static void remember_withdrawn(struct weft_context *parent, uint64_t number)
{
    if (parent->engine.failed < 0 || is_withdrawn(parent, number))
        return;
    if (weft__grow((void **)&parent->withdrawn, &parent->withdrawn_capacity,
                   parent->withdrawn_count + 1, sizeof *parent->withdrawn) == 0)
        parent->withdrawn[parent->withdrawn_count++] = number;
    else /* who invites later would wait for this rank */
        weft__engine_abort(&parent->engine, WEFT_ERR_MEMORY, "out of memory for a context");
}

/* A call fails though this rank has invited the others, and without having heard all of them: the
 * parent has been aborted, say. Those who have heard all by now have the context; they are told
 * that this rank is not in it. While driving. */
static void withdraw(const struct weft__gathering *gathering)
{
    struct weft_context *parent = gathering->parent;
    parent->has_withdrawn = 1;
    if (gathering->number & OF_SUBSET)
        remember_withdrawn(parent, gathering->number);
    for (int i = 0; i < gathering->at; i++)
        decline(parent->root, weft__root_rank(parent, rank_at(gathering, i)),
                &gathering->entries[i]);
    for (int list = 0; list < WEFT__INVITATION_LISTS; list++)
        for (const struct weft__message *message = parent->invitations[list]; message;
             message = message->next)
            if (message->object == gathering->number)
                weft__invitation_decline(parent->root, weft__root_rank(parent, message->from),
                                         message);
}

/* Memory that is not there for an invitation: without its text, then. The others are invited even
 * if one cannot be. While driving. */
static int invite(const struct weft__gathering *gathering, const char *text)
{
    struct weft_context *parent = gathering->parent;
    struct weft__engine *engine = &parent->engine;
    struct {
        struct invitation invitation;
        char text[TEXT_BYTES];
    } payload = {.invitation = gathering->mine};
    size_t length = strlen(text);
    int status = WEFT_OK;
    if (length > TEXT_BYTES)
        length = TEXT_BYTES;
    memcpy(payload.text, text, length);
    for (int step = 1; step < gathering->count; step++) {
        int to = rank_at(gathering, (int)(((int64_t)gathering->own + step) % gathering->count));
        struct weft__message message = {.data = &payload,
                                        .bytes = sizeof payload.invitation + length,
                                        .object = gathering->number,
                                        .from = engine->transport->rank,
                                        .to = to,
                                        .kind = WEFT__INVITE};
        if (gathering->number & OF_SUBSET && parent->serials)
            payload.invitation.serial = ++parent->serials[to].out;
        int told = weft__engine_control(engine, &message);
        message.bytes = sizeof payload.invitation;
        if (told == WEFT_ERR_MEMORY)
            told = weft__engine_control(engine, &message);
        if (status == WEFT_OK)
            status = told;
    }
    return status;
}

/* ---- what a rank makes before it invites ---- */

int weft__family_make(struct weft_context *root)
{
    if (root->family)
        return WEFT_OK;
    struct weft__transport *transport = root->engine.transport;
    struct weft__family *family = weft__calloc(1, sizeof *family);
    int status = family ? WEFT_OK : weft__error_memory("a context");
    if (family && transport->host_count > 1 && transport->ops->hosts) {
        family->hosts = weft__malloc((size_t)transport->size, sizeof *family->hosts);
        family->numbers = weft__malloc((size_t)transport->host_count, sizeof *family->numbers);
        status = family->hosts && family->numbers ? transport->ops->hosts(transport, family->hosts)
                                                  : weft__error_memory("a context");
    }
    if (status != WEFT_OK && family) {
        weft__free(family->hosts);
        weft__free(family->numbers);
        weft__free(family);
    }
    if (status != WEFT_OK)
        return status;
    weft__part_ops(&family->ops, transport);
    root->family = family;
    return WEFT_OK;
}

/* While driving. */
static int prepare(struct weft__gathering *gathering)
{
    struct weft_context *parent = gathering->parent, *root = parent->root;
    int status = weft__family_make(root);
    if (status == WEFT_OK)
        status = weft__part_open(&gathering->part, root, gathering->count);
    if (status != WEFT_OK)
        return status;
    gathering->mine.place = gathering->part->place;
    gathering->entries = weft__calloc((size_t)gathering->count, sizeof *gathering->entries);
    if (!gathering->entries)
        return weft__error_memory("a context");
    return weft__context_child(&gathering->context, parent, gathering->part);
}

/* Without memory for them this rank counts nothing, and later begins where the others are. */
static int make_serials(struct weft_context *parent)
{
    if (parent->serials)
        return WEFT_OK;
    parent->serials = weft__calloc((size_t)parent->engine.transport->size, sizeof *parent->serials);
    if (parent->serials)
        return WEFT_OK;
    parent->unserialled = 1;
    return weft__error_memory("a context");
}

static void discard(struct weft__gathering *gathering)
{
    struct weft_context *parent = gathering->parent;
    weft__drive_lock(parent);
    if (gathering->part) {
        gathering->part->context = NULL;
        weft__part_free(gathering->part);
    }
    if (gathering->context)
        weft__recorder_close(gathering->context, 0);
    weft__drive_unlock(parent);
    if (gathering->context)
        weft__context_free(gathering->context);
}

/* ---- when all have been heard ---- */

/* By key, then by the index, which `serial` has by now. */
static int compare_entries(const void *left, const void *right)
{
    const struct invitation *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->serial < b->serial ? -1 : a->serial > b->serial;
}

/* Writes the members, in their order. Returns how many, and in *own which is this rank. */
static int choose_members(const struct weft__gathering *gathering, int *own)
{
    struct invitation *entries = gathering->entries;
    struct weft__member *members = gathering->part->members;
    int count = 0;
    entries[gathering->own] = gathering->mine;
    for (int i = 0; i < gathering->count; i++)
        if (entries[i].colour == gathering->mine.colour) {
            entries[count] = entries[i];
            entries[count++].serial = (uint64_t)i;
        }
    qsort(entries, (size_t)count, sizeof *entries, compare_entries);
    for (int r = 0; r < count; r++) {
        int index = (int)entries[r].serial;
        members[r].rank = weft__root_rank(gathering->parent, rank_at(gathering, index));
        members[r].place = entries[r].place;
        if (index == gathering->own)
            *own = r;
    }
    return count;
}

/* A number that its ranks agree on, for traces: no other context has the same places there. */
static uint64_t name_group(const struct weft__gathering *gathering, int count)
{
    uint64_t group = weft__hash_word(gathering->parent->engine.transport->group, gathering->number);
    for (int r = 0; r < count; r++) {
        const struct weft__member *member = &gathering->part->members[r];
        group = weft__hash_word(group, (uint64_t)(uint32_t)member->rank << 32 |
                                           (uint32_t)member->place.turn << 16 | member->place.part);
    }
    return group | 1;
}

static void begin(struct weft__gathering *gathering)
{
    struct weft_context *parent = gathering->parent, *context = gathering->context;
    int own = 0;
    weft__drive_lock(parent);
    int count = choose_members(gathering, &own);
    weft__part_shrink(gathering->part, count);
    weft__part_begin(gathering->part, context, count, own, name_group(gathering, count));
    const struct weft__engine *root = &parent->root->engine;
    if (root->failed < 0) /* since all have been heard: it was not there to fail with the others */
        weft__engine_abort(&context->engine, root->failed,
                           root->reason ? root->reason : "the transport has failed");
    weft__drive_unlock(context);
    weft__context_begun(context);
}

/* ---- the call ---- */

struct looking {
    struct weft_context *root;
    uint32_t seen;
};

static int has_heard(void *argument)
{
    const struct looking *looking = argument;
    return atomic_load_explicit(&looking->root->heard, memory_order_seq_cst) != looking->seen;
}

/* Waits until all have been heard, or nothing more will be. */
static void await(struct weft__gathering *gathering)
{
    struct weft_context *parent = gathering->parent;
    const struct weft__engine *engine = &parent->engine;
    struct looking looking = {.root = parent->root};
    for (;;) {
        weft__drive_lock(parent);
        int ended = gather(gathering);
        if (!ended && engine->failed < 0) {
            gathering->status = engine->failed;
            snprintf(gathering->text, sizeof gathering->text, "%s",
                     engine->reason ? engine->reason : "the transport has failed");
            ended = 1;
        }
        looking.seen = atomic_load_explicit(&looking.root->heard, memory_order_seq_cst);
        weft__drive_unlock(parent);
        if (ended)
            return;
        int status = weft__drive_until(parent, has_heard, &looking, WEFT__NEVER, NULL);
        if (status < 0) {
            gathering->status = status;
            snprintf(gathering->text, sizeof gathering->text, "%s", weft_error_text());
            return;
        }
    }
}

static void enter(struct weft__gathering *gathering)
{
    gathering->next = gathering->parent->gatherings;
    gathering->parent->gatherings = gathering;
}

static void leave(struct weft__gathering *gathering)
{
    struct weft_context *parent = gathering->parent;
    weft__drive_lock(parent);
    struct weft__gathering **link = &parent->gatherings;
    while (*link != gathering)
        link = &(*link)->next;
    *link = gathering->next;
    if (gathering->entries && gathering->mine.status == WEFT_OK && gathering->at < gathering->count)
        withdraw(gathering);
    if (!(gathering->number & OF_SUBSET))
        drop(parent, gathering->number, 0);
    weft__drive_unlock(parent);
}

/* `status`: what is wrong with the caller's arguments, with its text. A rank that fails tells the
 * others why. One of no colour has nothing to wait for; nor has one that fails, but in a subset: it
 * takes the invitations out, so that they are not taken for those to the next. */
static int make(const char *who, struct weft__gathering *gathering, int status,
                struct weft_context **out)
{
    struct weft_context *parent = gathering->parent;
    int subset = (gathering->number & OF_SUBSET) != 0;
    int none = !subset && gathering->mine.colour == WEFT_COLOUR_NONE;
    char text[WEFT__ERROR_BYTES] = "";
    weft__object_reap(parent);
    weft__drive_lock(parent);
    if (!subset)
        gathering->number = parent->splits++;
    if (status == WEFT_OK && parent->engine.failed < 0)
        status =
            weft__error(parent->engine.failed, "%s: %s", who,
                        parent->engine.reason ? parent->engine.reason : "the transport has failed");
    int counted = subset ? make_serials(parent) : WEFT_OK;
    if (status == WEFT_OK)
        status = counted;
    if (status == WEFT_OK && !none)
        status = prepare(gathering);
    if (status < 0)
        snprintf(text, sizeof text, "%s", weft_error_text());
    gathering->mine.status = status;
    enter(gathering);
    int told = invite(gathering, text);
    weft__drive_unlock(parent);
    if (told < 0)
        gathering->status = told;
    if (told < 0)
        snprintf(gathering->text, sizeof gathering->text, "%s", weft_error_text());
    else if (subset || (status == WEFT_OK && !none))
        await(gathering);
    leave(gathering);
    if (status < 0)
        status = weft__error(status, "%s", text);
    else if (gathering->status < 0)
        status = weft__error(gathering->status, "%s: %s", who, gathering->text);
    if (status == WEFT_OK && !none)
        begin(gathering);
    else
        discard(gathering);
    weft__free(gathering->entries);
    if (status == WEFT_OK)
        *out = gathering->context;
    return status;
}

int weft_context_split(struct weft_context *parent, int colour, int key, struct weft_context **out)
{
    int status = WEFT_OK;
    if (!parent)
        return WEFT__INVALID("%s: argument `parent` is NULL", __func__);
    if (!out)
        status = WEFT__INVALID("%s: argument `context` is NULL", __func__);
    else if (colour < WEFT_COLOUR_NONE)
        status = WEFT__INVALID("%s: argument `colour` is %d, expected at least 0, or "
                               "WEFT_COLOUR_NONE",
                               __func__, colour);
    struct weft__gathering gathering = {.parent = parent,
                                        .count = parent->engine.transport->size,
                                        .own = parent->engine.transport->rank,
                                        .mine = {.colour = colour, .key = key}};
    return make(__func__, &gathering, status, out);
}

static int compare_ranks(const void *left, const void *right)
{
    int a = *(const int *)left, b = *(const int *)right;
    return a < b ? -1 : a > b;
}

/* Looks at the list; *own is the index of this rank. */
static int check_ranks(const char *who, const struct weft_context *parent, const int *ranks,
                       int count, int *own)
{
    int size = parent->engine.transport->size, rank = parent->engine.transport->rank;
    *own = -1;
    if (!ranks)
        return WEFT__INVALID("%s: argument `ranks` is NULL", who);
    if (count < 1 || count > size)
        return WEFT__INVALID("%s: argument `count` is %d, expected 1..%d", who, count, size);
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= size)
            return WEFT__INVALID("%s: ranks[%d] is %d, expected 0..%d", who, i, ranks[i], size - 1);
        if (ranks[i] == rank)
            *own = i;
    }
    if (*own < 0)
        return WEFT__INVALID("%s: argument `ranks` has not this rank, %d", who, rank);
    int *sorted = weft__malloc((size_t)count, sizeof *sorted);
    if (!sorted)
        return weft__error_memory(who);
    memcpy(sorted, ranks, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_ranks);
    int twice = -1;
    for (int i = 1; i < count && twice < 0; i++)
        if (sorted[i] == sorted[i - 1])
            twice = sorted[i];
    weft__free(sorted);
    return twice < 0 ? WEFT_OK
                     : WEFT__INVALID("%s: argument `ranks` has rank %d twice", who, twice);
}

int weft_context_subset(struct weft_context *parent, const int *ranks, int count, int tag,
                        struct weft_context **out)
{
    int own;
    if (!parent)
        return WEFT__INVALID("%s: argument `parent` is NULL", __func__);
    int status = check_ranks(__func__, parent, ranks, count, &own);
    if (status == WEFT_ERR_INVALID)
        return status; /* there is nobody to be told */
    if (!out)
        status = WEFT__INVALID("%s: argument `context` is NULL", __func__);
    uint64_t hash = weft__hash_word(WEFT__HASH_EMPTY, (uint64_t)(uint32_t)tag);
    for (int i = 0; i < count; i++)
        hash = weft__hash_word(hash, (uint64_t)(uint32_t)ranks[i]);
    struct weft__gathering gathering = {
        .parent = parent, .number = hash | OF_SUBSET, .ranks = ranks, .count = count, .own = own};
    return make(__func__, &gathering, status, out);
}

int weft_context_root_ranks(const struct weft_context *context, int *ranks)
{
    if (!context || !ranks)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !context ? "context" : "ranks");
    for (int r = 0; r < context->engine.transport->size; r++)
        ranks[r] = weft__root_rank(context, r);
    return WEFT_OK;
}
