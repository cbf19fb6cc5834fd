/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What has become of ranks, and contexts of those that are left: weft_context_shrink().
 *
 * Each rank makes all that it needs and invites the others, as weft_context_split() does. Which
 * ranks the context has is what the lowest rank that is present proposes, once it has heard of
 * every rank that it is there or gone; when all of these have agreed, the proposal holds:
 *
 *      rank 0 (coordinates)         rank 1                       rank 2
 *      INVITE 1, 2   <----------->  INVITE 0, 2   <----------->  INVITE 0, 1
 *      PROPOSE 0, 1, 2 ---------->  has their invitations
 *                    <-----------   ACK
 *                    <----------------------------------------   ACK
 *      COMMIT ------------------->  COMMIT --------------------> begins; COMMIT to all ...
 *
 * If it dies the next one coordinates. That one may propose what it likes if it has acknowledged
 * nothing, since then nobody has committed anything; else it proposes what it acknowledged last,
 * since somebody may have. So all who return have the same ranks, those that die afterwards
 * included. This needs to be right about who is gone, sooner or later: deaths are told by the
 * transport, never guessed from a silence.
 *
 * A rank acknowledges a proposal only when it has the invitations of all its ranks, but for those
 * that it knows are dead, and knows itself that the others are gone. So nothing can fail after
 * COMMIT; whoever commits passes it on before it returns, so nobody needs a rank that has returned.
 * A rank that cannot begin (memory) says FAILED in place of its invitation, and is no member; the
 * proposal is then that all fail, with its status.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/context/part.h"
#include <stdio.h>
#include <string.h>

/* Of message.object: what is none of a split or a subset (split.c). */
#define OF_SHRINK UINT64_C(1)
#define TYPE_BITS 62

enum what { INVITE, FAILED, PROPOSE, ACK, COMMIT };

/* How every message begins; behind it what `what` says. */
struct head {
    uint32_t what;
    uint32_t ballot;          /* PROPOSE, ACK: of its coordinator, from 1 */
    int32_t status;           /* FAILED: why; PROPOSE: with which all fail, or WEFT_OK, ... */
    int32_t origin;           /* ... and the rank that has */
    uint32_t fragment;        /* PROPOSE: of the set, then if all fail the text */
    struct weft__place place; /* INVITE */
};
enum { BODY_BYTES = WEFT__NEWS_BYTES - sizeof(struct head) };

/* What is known of a rank, beside that it is gone. */
enum { UNHEARD, INVITED, OUT };

/* What is, or may be, agreed on. */
struct proposal {
    int coordinator; /* -1: none */
    uint32_t ballot;
    int status, origin;
    char text[BODY_BYTES + 1];
    unsigned char *set; /* a bit a rank */
};

/* One call; on its stack. */
struct shrinking {
    struct weft_context *parent;
    const char *who;
    uint64_t number;
    int size, own;
    struct weft__part *part;
    struct weft_context *context;
    struct weft__place *places;
    unsigned char *heard;   /* of each rank */
    unsigned char *acked;   /* a bit a rank */
    struct proposal agreed; /* the latest that this rank has acknowledged */
    struct proposal coming; /* of which not all is here, or not all that it needs */
    uint32_t fragments;     /* of it that are here */
    /* Ranks below these need not be looked at again. */
    int lowest;  /* gone */
    int known;   /* heard of, or gone */
    int needed;  /* of those that are coming: invitations are here */
    int waiting; /* acknowledged, or gone */
    int leads;
    int inherited;                    /* what it proposes is not its own */
    const struct weft__death *deaths; /* when it proposed */
    struct {                          /* the lowest rank that has failed, and why */
        int rank, status;
        char text[BODY_BYTES + 1];
    } failure;
    int decided;
};

static int has_bit(const unsigned char *bits, int i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

static void set_bit(unsigned char *bits, int i)
{
    bits[i / 8] |= (unsigned char)(1u << (i % 8));
}

static size_t set_bytes(const struct shrinking *s)
{
    return ((size_t)s->size + 7) / 8;
}

static uint32_t fragment_count(const struct shrinking *s, int status)
{
    return (uint32_t)((set_bytes(s) - 1) / BODY_BYTES + 1) + (status < 0);
}

/* ---- who is there ---- */

/* The function of a rank has returned: it will call nothing any more. Any thread. */
static int has_returned(const struct weft_context *context, int rank)
{
    const struct weft__transport *transport = context->root->engine.transport;
    return transport->ops->returned &&
           transport->ops->returned(transport, weft__root_rank(context, rank));
}

/* Whether a rank takes no part. It stays so. */
static int is_absent(const struct shrinking *s, int rank)
{
    return rank != s->own &&
           (s->heard[rank] == OUT || weft__engine_has_gone(&s->parent->engine, rank) ||
            has_returned(s->parent, rank));
}

int weft_context_rank_state(const struct weft_context *context, int rank, weft_rank_state_t *state,
                            const char **how)
{
    if (!context || !state)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, context ? "state" : "context");
    int size = context->engine.transport->size;
    if (rank < 0 || rank >= size)
        return WEFT__INVALID("%s: argument `rank` is %d, expected 0..%d", __func__, rank, size - 1);
    struct weft_context *locked = (struct weft_context *)(uintptr_t)context;
    int drives = weft__drives(locked);
    if (!drives)
        weft__drive_lock(locked);
    const struct weft__death *death = weft__engine_death(&context->engine, rank);
    int left = weft__engine_has_gone(&context->engine, rank) || has_returned(context, rank);
    if (!death && !left)
        death = weft__engine_report(&context->root->engine, weft__root_rank(context, rank));
    if (!drives)
        weft__drive_unlock(locked);
    *state = death ? WEFT_RANK_DEAD : left ? WEFT_RANK_LEFT : WEFT_RANK_PRESENT;
    if (how)
        *how = death ? death->how : "";
    return WEFT_OK;
}

/* ---- messages ---- */

int weft__shrink_is(uint64_t number)
{
    return number >> TYPE_BITS == OF_SHRINK;
}

void weft__shrink_heard(struct weft_context *context, struct weft__message *message)
{
    uint64_t next = context->shrinks | OF_SHRINK << TYPE_BITS;
    if (message->bytes < sizeof(struct head) || message->object + context->shrinking < next) {
        context->engine.transport->ops->release(context->engine.transport, message, 1);
        return;
    }
    struct weft__message **link = &context->shrink_messages;
    while (*link)
        link = &(*link)->next;
    message->next = NULL;
    *link = message;
    weft__invitations_look(context);
}

void weft__shrink_drop(struct weft_context *context, uint64_t below)
{
    struct weft__transport *transport = context->engine.transport;
    for (struct weft__message **link = &context->shrink_messages; *link;) {
        struct weft__message *message = *link;
        if (message->object >= below) {
            link = &message->next;
            continue;
        }
        *link = message->next;
        transport->ops->release(transport, message, 1);
    }
}

/* While driving. */
static int tell(struct shrinking *s, int to, const struct head *head, const void *body,
                size_t bytes)
{
    struct weft__engine *engine = &s->parent->engine;
    struct {
        struct head head;
        char body[BODY_BYTES];
    } payload = {.head = *head};
    if (bytes > 0)
        memcpy(payload.body, body, bytes);
    struct weft__message message = {.data = &payload,
                                    .bytes = sizeof payload.head + bytes,
                                    .object = s->number,
                                    .from = s->own,
                                    .to = to,
                                    .kind = WEFT__INVITE};
    return weft__engine_control(engine, &message);
}

/* To all that are present; `members`: of a set, or NULL. The first status that is an error. */
static int tell_all(struct shrinking *s, const unsigned char *members, const struct head *head,
                    const void *body, size_t bytes)
{
    int status = WEFT_OK;
    for (int step = 1; step < s->size; step++) {
        int to = (int)(((int64_t)s->own + step) % s->size);
        if ((members && !has_bit(members, to)) || weft__engine_has_gone(&s->parent->engine, to))
            continue;
        int told = tell(s, to, head, body, bytes);
        if (status == WEFT_OK)
            status = told;
    }
    return status;
}

/* ---- coordinating: while driving ---- */

static void propose(struct shrinking *s)
{
    const struct proposal *agreed = &s->agreed;
    struct head head = {.what = PROPOSE,
                        .ballot = agreed->ballot,
                        .status = agreed->status,
                        .origin = agreed->origin};
    size_t bytes = set_bytes(s);
    for (size_t at = 0; at < bytes; at += BODY_BYTES, head.fragment++)
        tell_all(s, agreed->set, &head, agreed->set + at,
                 bytes - at < BODY_BYTES ? bytes - at : BODY_BYTES);
    if (agreed->status < 0)
        tell_all(s, agreed->set, &head, agreed->text, strlen(agreed->text));
    memset(s->acked, 0, bytes);
    s->waiting = 0;
    s->deaths = s->parent->engine.deaths;
}

/* All that are there; or if one of them has failed, that all do. 0: not all have been heard. */
static int choose(struct shrinking *s)
{
    while (s->known < s->size &&
           (s->known == s->own || s->heard[s->known] != UNHEARD || is_absent(s, s->known)))
        s->known++;
    if (s->known < s->size)
        return 0;
    memset(s->agreed.set, 0, set_bytes(s));
    for (int r = 0; r < s->size; r++)
        if (r == s->own || (s->heard[r] == INVITED && !is_absent(s, r)))
            set_bit(s->agreed.set, r);
    s->agreed.status = s->failure.status;
    s->agreed.origin = s->failure.rank;
    memcpy(s->agreed.text, s->failure.text, sizeof s->agreed.text);
    return 1;
}

static void lead(struct shrinking *s)
{
    struct proposal *agreed = &s->agreed;
    if (!s->leads) {
        s->inherited = agreed->coordinator >= 0;
        if (!s->inherited && !choose(s))
            return;
        s->leads = 1;
        agreed->coordinator = s->own;
        agreed->ballot = 1;
        propose(s);
    } else if (!s->inherited && s->deaths != s->parent->engine.deaths) {
        choose(s); /* it has committed nothing yet: without those that have died meanwhile */
        agreed->ballot++;
        propose(s);
    }
    while (s->waiting < s->size && (s->waiting == s->own || !has_bit(agreed->set, s->waiting) ||
                                    has_bit(s->acked, s->waiting) || is_absent(s, s->waiting)))
        s->waiting++;
    s->decided = s->waiting == s->size;
}

/* ---- agreeing: while driving ---- */

static int is_newer(const struct proposal *old, int coordinator, uint32_t ballot)
{
    return coordinator > old->coordinator ||
           (coordinator == old->coordinator && ballot > old->ballot);
}

/* A fragment of a proposal; those of one may come in any order, and mixed with older ones. */
static void hear_proposal(struct shrinking *s, int from, const struct head *head,
                          const unsigned char *body, size_t bytes)
{
    struct proposal *coming = &s->coming;
    size_t at = (size_t)head->fragment * BODY_BYTES;
    if (s->leads || !is_newer(&s->agreed, from, head->ballot))
        return;
    if (is_newer(coming, from, head->ballot)) {
        coming->coordinator = from;
        coming->ballot = head->ballot;
        coming->status = head->status;
        coming->origin = head->origin;
        coming->text[0] = '\0';
        s->fragments = 0;
        s->needed = 0;
    } else if (coming->coordinator != from || coming->ballot != head->ballot) {
        return;
    }
    if (at < set_bytes(s))
        memcpy(coming->set + at, body, bytes < set_bytes(s) - at ? bytes : set_bytes(s) - at);
    else
        snprintf(coming->text, sizeof coming->text, "%.*s", (int)bytes, (const char *)body);
    s->fragments++;
}

/* Acknowledges what has come if all is here that it needs. */
static void agree(struct shrinking *s)
{
    struct proposal *coming = &s->coming;
    if (s->leads || coming->coordinator < 0 || s->fragments != fragment_count(s, coming->status))
        return;
    while (s->needed < s->size &&
           (is_absent(s, s->needed) || (has_bit(coming->set, s->needed) &&
                                        (s->needed == s->own || s->heard[s->needed] == INVITED))))
        s->needed++;
    if (s->needed < s->size)
        return;
    unsigned char *set = s->agreed.set;
    s->agreed = *coming;
    coming->set = set;
    coming->coordinator = -1;
    const struct head head = {.what = ACK, .ballot = s->agreed.ballot};
    tell(s, s->agreed.coordinator, &head, NULL, 0);
}

static void hear_failure(struct shrinking *s, int from, const struct head *head,
                         const unsigned char *body, size_t bytes)
{
    int invited = s->heard[from] == INVITED;
    s->heard[from] = OUT;
    if (invited || (s->failure.status < 0 && s->failure.rank < from))
        return; /* it takes back what it has said: the parent has failed there */
    s->failure.rank = from;
    s->failure.status = head->status;
    snprintf(s->failure.text, sizeof s->failure.text, "%.*s", (int)bytes, (const char *)body);
}

static void hear(struct shrinking *s, const struct weft__message *message)
{
    struct head head;
    memcpy(&head, message->data, sizeof head);
    const unsigned char *body = (const unsigned char *)message->data + sizeof head;
    size_t bytes = message->bytes - sizeof head;
    int from = message->from;
    switch ((enum what)head.what) {
    case INVITE:
        if (s->heard[from] == UNHEARD) {
            s->heard[from] = INVITED;
            s->places[from] = head.place;
        }
        break;
    case FAILED:
        hear_failure(s, from, &head, body, bytes);
        break;
    case PROPOSE:
        hear_proposal(s, from, &head, body, bytes);
        break;
    case ACK:
        if (s->leads && head.ballot == s->agreed.ballot)
            set_bit(s->acked, from);
        break;
    case COMMIT:
        s->decided |= s->agreed.coordinator >= 0;
        break;
    default:
        break;
    }
}

/* Hears what has come, and does what follows. 1: it is over. */
static int advance(struct shrinking *s)
{
    struct weft_context *parent = s->parent;
    struct weft__transport *transport = parent->engine.transport;
    for (struct weft__message **link = &parent->shrink_messages; *link;) {
        struct weft__message *message = *link;
        if (message->object != s->number) {
            link = &message->next;
            continue;
        }
        *link = message->next;
        hear(s, message);
        transport->ops->release(transport, message, 1);
    }
    if (!s->decided)
        agree(s);
    while (s->lowest < s->own && is_absent(s, s->lowest))
        s->lowest++;
    if (!s->decided && s->lowest == s->own)
        lead(s);
    if (s->decided) {
        const struct head head = {.what = COMMIT};
        tell_all(s, s->agreed.set, &head, NULL, 0);
    }
    return s->decided;
}

/* ---- the call ---- */

/* While driving. */
static int prepare(struct shrinking *s)
{
    size_t size = (size_t)s->size, bytes = set_bytes(s);
    int status = weft__family_make(s->parent->root);
    if (status == WEFT_OK)
        status = weft__part_open(&s->part, s->parent->root, s->size);
    if (status != WEFT_OK)
        return status;
    s->places = weft__calloc(size, sizeof *s->places);
    s->heard = weft__calloc(size, 1);
    s->acked = weft__calloc(bytes, 1);
    s->agreed.set = weft__calloc(bytes, 1);
    s->coming.set = weft__calloc(bytes, 1);
    if (!s->places || !s->heard || !s->acked || !s->agreed.set || !s->coming.set)
        return weft__error_memory(s->who);
    return weft__context_child(&s->context, s->parent, s->part);
}

static void release(struct shrinking *s)
{
    weft__free(s->places);
    weft__free(s->heard);
    weft__free(s->acked);
    weft__free(s->agreed.set);
    weft__free(s->coming.set);
}

/* This rank takes no part, or no more: those that have the context by now hear that it has not.
 * While driving. */
static void withdraw(struct shrinking *s, int status, const char *text)
{
    const struct head head = {.what = FAILED, .status = status};
    size_t length = strlen(text);
    struct weft__error_saved saved; /* that a rank cannot be told is not the reason */
    weft__error_save(&saved);
    tell_all(s, NULL, &head, text, length < BODY_BYTES ? length : BODY_BYTES);
    for (int r = 0; s->heard && s->places && r < s->size; r++)
        if (s->heard[r] == INVITED)
            weft__part_decline(s->parent->root, weft__root_rank(s->parent, r), s->places[r]);
    weft__error_restore(&saved);
}

struct looking {
    struct weft_context *root;
    uint32_t seen;
};

static int has_heard(void *argument)
{
    const struct looking *looking = argument;
    return atomic_load_explicit(&looking->root->heard, memory_order_seq_cst) != looking->seen;
}

/* Until all agree, or this rank cannot go on. */
static int await(struct shrinking *s)
{
    struct weft_context *parent = s->parent;
    const struct weft__engine *engine = &parent->engine;
    struct looking looking = {.root = parent->root};
    for (;;) {
        weft__drive_lock(parent);
        int decided = engine->failed == 0 && advance(s);
        int status = engine->failed < 0
                         ? weft__error(engine->failed, "%s: %s", s->who,
                                       engine->reason ? engine->reason : "the transport has failed")
                         : WEFT_OK;
        looking.seen = atomic_load_explicit(&looking.root->heard, memory_order_seq_cst);
        weft__drive_unlock(parent);
        if (status < 0 || decided)
            return status;
        status = weft__drive_until(parent, has_heard, &looking, WEFT__NEVER, NULL);
        if (status < 0)
            return status;
    }
}

/* The same on all ranks, for traces. */
static uint64_t name_group(const struct shrinking *s)
{
    uint64_t group = weft__hash_word(s->parent->engine.transport->group, s->number);
    for (int r = 0; r < s->size; r++)
        if (has_bit(s->agreed.set, r))
            group = weft__hash_word(group, (uint64_t)r);
    return group | 1;
}

static void begin(struct shrinking *s)
{
    struct weft_context *parent = s->parent;
    const struct weft__engine *root = &parent->root->engine;
    struct weft__member *members = s->part->members;
    int count = 0, own = 0;
    weft__drive_lock(parent);
    s->places[s->own] = s->part->place;
    for (int r = 0; r < s->size; r++) {
        if (!has_bit(s->agreed.set, r))
            continue;
        if (r == s->own)
            own = count;
        members[count].rank = weft__root_rank(parent, r);
        members[count].place = s->places[r];
        members[count++].absent = r != s->own && s->heard[r] != INVITED; /* it has died */
    }
    weft__part_shrink(s->part, count);
    weft__part_begin(s->part, s->context, count, own, name_group(s));
    if (root->failed < 0)
        weft__engine_abort(&s->context->engine, root->failed,
                           root->reason ? root->reason : "the transport has failed");
    weft__drive_unlock(parent);
    weft__context_begun(s->context);
}

static void discard(struct shrinking *s)
{
    weft__drive_lock(s->parent);
    if (s->part) {
        s->part->context = NULL;
        weft__part_free(s->part);
    }
    if (s->context)
        weft__recorder_close(s->context, 0);
    weft__drive_unlock(s->parent);
    if (s->context)
        weft__context_free(s->context);
}

/* Takes the number of a call, and enters it. While driving. */
static int enter(struct shrinking *s)
{
    struct weft_context *parent = s->parent;
    const struct weft__engine *engine = &parent->engine;
    if (parent->shrinking)
        return weft__error(WEFT_ERR_STATE, "%s: another thread is in it", s->who);
    if (!parent->root->engine.transport->reports_deaths)
        return weft__error(WEFT_ERR_UNSUPPORTED,
                           "%s: nobody tells of ranks that die on this transport, `%s`", s->who,
                           engine->transport->about->name);
    if (engine->failed < 0)
        return weft__error(engine->failed, "%s: %s", s->who,
                           engine->reason ? engine->reason : "the transport has failed");
    s->number = parent->shrinks++ | OF_SHRINK << TYPE_BITS;
    parent->shrinking = 1;
    atomic_fetch_add_explicit(&parent->root->looking, 1, memory_order_relaxed);
    return WEFT_OK;
}

static int start(struct shrinking *s)
{
    char text[WEFT__ERROR_BYTES];
    int status = prepare(s);
    if (status == WEFT_OK) {
        const struct head head = {.what = INVITE, .place = s->part->place};
        status = tell_all(s, NULL, &head, NULL, 0);
    }
    if (status == WEFT_OK)
        return WEFT_OK;
    snprintf(text, sizeof text, "%s", weft_error_text());
    withdraw(s, status, text);
    return weft__error(status, "%s", text);
}

static int shrink(struct shrinking *s)
{
    struct weft_context *parent = s->parent;
    weft__drive_lock(parent);
    int status = enter(s);
    int entered = status == WEFT_OK;
    if (entered)
        status = start(s);
    weft__drive_unlock(parent);
    if (status == WEFT_OK) {
        status = await(s);
        if (status < 0) {
            weft__drive_lock(parent);
            withdraw(s, status, weft_error_text());
            weft__drive_unlock(parent);
        } else if (s->agreed.status < 0) {
            status = weft__error(s->agreed.status, "%s: rank %d: %s", s->who, s->agreed.origin,
                                 s->agreed.text);
        }
    }
    if (!entered)
        return status;
    weft__drive_lock(parent);
    parent->shrinking = 0;
    atomic_fetch_sub_explicit(&parent->root->looking, 1, memory_order_relaxed);
    weft__shrink_drop(parent, s->number + 1);
    weft__drive_unlock(parent);
    return status;
}

int weft_context_shrink(struct weft_context *context, struct weft_context **survivors)
{
    if (!context || !survivors)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__,
                             context ? "survivors" : "context");
    struct shrinking s = {.parent = context,
                          .who = __func__,
                          .size = context->engine.transport->size,
                          .own = context->engine.transport->rank,
                          .agreed.coordinator = -1,
                          .coming.coordinator = -1};
    weft__object_reap(context);
    int status = shrink(&s);
    if (status == WEFT_OK)
        begin(&s);
    else
        discard(&s);
    release(&s);
    if (status == WEFT_OK)
        *survivors = s.context;
    return status;
}
