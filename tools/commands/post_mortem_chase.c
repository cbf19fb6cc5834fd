/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why a node waits. Each node that waits has one thing to wait for: a blocked one its first
 * unfinished predecessor, a receive the send of its message, a send its receive, an event a signal;
 * and a rank that has not come to that has something else to wait for. Following this ends at a
 * node or a rank that has no excuse, which is the cause, or where one has been before, which is a
 * deadlock.
 */
#include "tools/commands/post_mortem.h"

#include <stdarg.h>
#include <string.h>

/* A node under way from a wait to its cause. */
struct place {
    struct pm_rank *rank;
    struct pm_object *object;
    struct pm_node *node;
    char line[300]; /* why one goes on from here */
};

struct path {
    struct place *at;
    size_t count, capacity;
};

static int push(struct path *path, struct pm_rank *rank, struct pm_object *object,
                struct pm_node *node)
{
    if (path->count == path->capacity) {
        size_t capacity = path->capacity ? 2 * path->capacity : 16;
        struct place *at = weft_memory_alloc(capacity, sizeof *at);
        if (!at)
            return -1;
        if (path->count)
            memcpy(at, path->at, path->count * sizeof *at);
        weft_memory_free(path->at);
        path->at = at;
        path->capacity = capacity;
    }
    path->at[path->count++] = (struct place){.rank = rank, .object = object, .node = node};
    return 0;
}

/* ---- causes ---- */

static int blame(struct pm_cause *cause, const char *kind, int rank, const char *format, ...)
    WEFT_PRINTF(4, 5);
static int blame(struct pm_cause *cause, const char *kind, int rank, const char *format, ...)
{
    va_list list;

    cause->kind = kind;
    cause->rank = rank;
    va_start(list, format);
    vsnprintf(cause->text, sizeof cause->text, format, list);
    va_end(list);
    return 0;
}

static const char *plan_of(const struct pm_object *object)
{
    return object->plan ? object->plan : "?";
}

static int has_left(const struct pm_rank *rank, int peer)
{
    for (size_t i = 0; i < rank->left_count; i++)
        if (rank->left[i] == peer)
            return 1;
    return 0;
}

/* What a rank does, as far as it is in weft: an active object and a node in it that has not ended,
 * the most telling one. 0 if it does nothing. */
static int busy_with(struct pm_rank *rank, struct pm_object *only, struct pm_object **object,
                     struct pm_node **node)
{
    int best = PM_RETIRED;

    for (size_t o = 0; o < rank->count; o++) {
        struct pm_object *candidate = &rank->objects[o];
        if (candidate->stage != PM_ACTIVE || (only && candidate != only))
            continue;
        for (size_t n = 0; n < candidate->node_count; n++) {
            struct pm_node *of = &candidate->nodes[n];
            /* A series whose version waits for the application is at rest. */
            int rests = candidate->kind == PM_SERIES && of->kind == WEFT_NODE_EVENT;
            if ((int)of->state > best && of->state != PM_BLOCKED && !rests) {
                best = (int)of->state;
                *object = candidate;
                *node = of;
            }
        }
    }
    return best > PM_RETIRED;
}

/* ---- one step ---- */

/* Goes on at what @p rank does instead; 0: it does nothing, and is to blame. -1: no memory. */
static int go_where_busy(struct path *path, struct pm_rank *rank, struct pm_object *only,
                         const char *line)
{
    struct pm_object *object = NULL;
    struct pm_node *node = NULL;

    if (!busy_with(rank, only, &object, &node))
        return 0;
    snprintf(path->at[path->count - 1].line, sizeof path->at->line, "%s", line);
    return push(path, rank, object, node) ? -1 : 1;
}

static int step_blocked(struct path *path, struct pm_cause *cause)
{
    struct place *at = &path->at[path->count - 1];
    struct pm_node *next = NULL;
    char text[200];

    for (size_t i = 0; i < at->node->after_count; i++) {
        struct pm_node *before = pm_node_of(at->object, at->node->after[i]);
        if (before && (!next || before->state > next->state))
            next = before;
    }
    pm_describe(at->node, text, sizeof text);
    if (!next) {
        return blame(cause, "unknown", at->rank->rank,
                     "rank %d: %s has not begun, and its dump does not say why", at->rank->rank,
                     text);
    }
    snprintf(at->line, sizeof at->line, "which waits for node %d", next->number);
    return push(path, at->rank, at->object, next) ? -1 : 1;
}

/* The end of a message on the other side: the node that sends (or receives) it. */
static struct pm_node *partner_of(const struct pm_object *object, const struct pm_node *node,
                                  int rank)
{
    weft_node_kind_t kind = node->kind == WEFT_NODE_RECV ? WEFT_NODE_SEND : WEFT_NODE_RECV;

    for (size_t n = 0; n < object->node_count; n++)
        if (object->nodes[n].kind == kind && object->nodes[n].peer == rank &&
            object->nodes[n].tag == node->tag)
            return &object->nodes[n];
    return NULL;
}

/* "a message of rank 0 with tag 8, 16 bytes, version 0 has come and matches nothing". */
static void describe_instead(const struct place *at, char *text, size_t size)
{
    const struct pm_message *message = &at->node->instead;
    char object[64] = "";

    if (message->object != at->object->number)
        snprintf(object, sizeof object, " of object %s", PM_NAME(message->object));
    snprintf(text, size,
             "a message of rank %lld with tag %lld, %lld bytes, version %lld%s has come and "
             "matches nothing",
             message->from, message->tag, message->bytes, message->version, object);
}

/* The peer cannot be asked, or knows of no other end: then what has come instead tells most. 1, or
 * 0 if nothing has. */
static int blame_instead(struct pm_cause *cause, const struct place *at, const char *peer_is)
{
    char instead[160];

    if (!at->node->has_instead)
        return 0;
    describe_instead(at, instead, sizeof instead);
    blame(cause, "unmatched", at->node->peer,
          "rank %d waits for tag %lld of rank %d in `%s`, version %lld of object %s; %s; rank %d "
          "%s",
          at->rank->rank, at->node->tag, at->node->peer, plan_of(at->object), at->object->version,
          at->object->name, instead, at->node->peer, peer_is);
    return 1;
}

static int blame_failed(struct pm_cause *cause, const struct pm_rank *rank,
                        const struct pm_object *object)
{
    const char *why = object->error ? object->error : weft_status_text(object->status);

    if (object->kind == PM_OBJECT)
        return blame(cause, "failed", rank->rank, "rank %d: object %s has failed: %s", rank->rank,
                     object->name, why);
    return blame(cause, "failed", rank->rank,
                 "rank %d: `%s`, version %lld of object %s has failed: %s", rank->rank,
                 plan_of(object), object->version, object->name, why);
}

/* What has failed by itself on a rank: a run or series, which tells more than the object that has
 * failed with it; else an object. NULL: nothing. */
static const struct pm_object *failed_object(const struct pm_rank *rank)
{
    const struct pm_object *failed = NULL;

    for (size_t o = 0; o < rank->count; o++) {
        const struct pm_object *object = &rank->objects[o];
        if (pm_failed(object) && (!failed || failed->kind == PM_OBJECT))
            failed = object;
    }
    return failed;
}

/* A message that is sent may lie where nobody takes it. */
static void hint_unmatched(const struct pm_rank *at, const struct pm_object *object, int from,
                           char *text, size_t size)
{
    text[0] = '\0';
    for (size_t i = 0; i < at->unmatched_count; i++) {
        const struct pm_message *message = &at->unmatched[i];
        if (message->object == object->number && message->version == object->version &&
            message->from == from) {
            snprintf(text, size,
                     "; rank %d holds a message of rank %d with tag %lld, %lld bytes, that no "
                     "receive takes",
                     at->rank, from, message->tag, message->bytes);
            return;
        }
    }
}

/* The plan of the peer has no other end of the message. */
static int blame_missing(struct pm_cause *cause, const struct place *at, const struct pm_rank *peer)
{
    int receives = at->node->kind == WEFT_NODE_RECV;
    char hint[200] = "; ";

    if (!receives)
        hint_unmatched(peer, at->object, at->rank->rank, hint, sizeof hint);
    else if (at->node->has_instead)
        describe_instead(at, hint + 2, sizeof hint - 2);
    else
        hint[0] = '\0';
    return blame(cause, receives ? "no-send" : "no-receive", peer->rank,
                 "rank %d has no %s rank %d with tag %lld in `%s`, version %lld of object %s%s",
                 peer->rank, receives ? "send to" : "receive from", at->rank->rank, at->node->tag,
                 plan_of(at->object), at->object->version, at->object->name, hint);
}

/* The other end has done its part, or says so. */
static int blame_lost(struct pm_cause *cause, const struct place *at, const struct pm_rank *peer,
                      const char *how)
{
    int receives = at->node->kind == WEFT_NODE_RECV;

    return blame(cause, "lost", peer->rank,
                 "the message of rank %d to rank %d with tag %lld in `%s`, version %lld of object "
                 "%s: rank %d %s, and it has not arrived: in flight, or lost",
                 receives ? peer->rank : at->rank->rank, receives ? at->rank->rank : peer->rank,
                 at->node->tag, plan_of(at->object), at->object->version, at->object->name,
                 peer->rank, how);
}

/* The peer's object is at the same version. */
static int step_partner(struct path *path, struct pm_cause *cause, struct pm_rank *peer,
                        struct pm_object *object)
{
    struct place *at = &path->at[path->count - 1];
    struct pm_node *partner = partner_of(object, at->node, at->rank->rank);
    int receives = at->node->kind == WEFT_NODE_RECV;

    if (!partner)
        return blame_missing(cause, at, peer);
    if (partner->state == PM_ENDED)
        return blame_lost(cause, at, peer, receives ? "has sent it" : "has ended its receive");
    if (partner->state == PM_WAITING)
        return blame_lost(cause, at, peer, receives ? "sends it" : "has posted its receive");
    if (partner->state == PM_RETIRED) {
        return blame(cause, "retired", peer->rank,
                     "rank %d has retired the %s rank %d with tag %lld in `%s`, version %lld of "
                     "object %s: another event of a choice was first there",
                     peer->rank, receives ? "send to" : "receive from", at->rank->rank,
                     at->node->tag, plan_of(object), object->version, object->name);
    }
    snprintf(at->line, sizeof at->line, "rank %d has not come to its %s (node %d)", peer->rank,
             receives ? "send" : "receive", partner->number);
    return push(path, peer, object, partner) ? -1 : 1;
}

/* The peer has not come to this version. */
static int step_behind(struct path *path, struct pm_cause *cause, struct pm_rank *peer,
                       struct pm_object *object)
{
    const struct place *at = &path->at[path->count - 1];
    long long version = at->object->version;
    const char *name = at->object->name;
    const char *plan = plan_of(at->object);
    char line[200];

    if (object && object->stage == PM_OVER && object->status < 0)
        return blame_failed(cause, peer, object);
    if (!object) {
        snprintf(line, sizeof line, "rank %d has not created object %s", peer->rank, name);
    } else if (object->version == PM_NO_VERSION) {
        snprintf(line, sizeof line, "rank %d has not started object %s", peer->rank, name);
    } else {
        snprintf(line, sizeof line, "rank %d is at version %lld of object %s", peer->rank,
                 object->version, name);
    }
    struct pm_object *only = object && object->stage == PM_ACTIVE ? object : NULL;
    int moved = go_where_busy(path, peer, only, line);
    if (moved)
        return moved;
    const struct pm_object *failed = failed_object(peer);
    if (failed)
        return blame_failed(cause, peer, failed);
    if (blame_instead(cause, at, object ? "has not started it" : "has not created that object"))
        return 0;
    return blame(cause, object ? "not-started" : "not-created", peer->rank,
                 "rank %d has not %s `%s`, version %lld of object %s%s, and waits for nothing in "
                 "weft: its program is elsewhere",
                 peer->rank, object ? "started" : "created", plan, version, name,
                 !object                            ? ""
                 : object->version == PM_NO_VERSION ? " (nor any before)"
                                                    : "");
}

static int step_message(struct path *path, struct pm_cause *cause, const struct pm_program *program)
{
    const struct place *at = &path->at[path->count - 1];
    long long version = at->object->version;
    int number = at->node->peer;
    struct pm_rank *peer = pm_rank_of(program, number);

    cause->peer = at->rank->rank;
    cause->tag = at->node->tag;
    if (!peer) {
        int left = has_left(at->rank, number);
        if (blame_instead(cause, at, left ? "has left" : "has left no dump"))
            return 0;
        return blame(cause, left ? "left" : "no-dump", number,
                     left ? "rank %d has left: it has destroyed its context"
                          : "rank %d has left no dump: it has ended, was killed, or is not in weft",
                     number);
    }
    struct pm_object *object = pm_object_of(peer, at->object->number);
    if (pm_destroyed(peer, at->object->number)) {
        if (blame_instead(cause, at, "has destroyed that object"))
            return 0;
        return blame(cause, "destroyed", number, "rank %d has destroyed object %s (`%s` here)",
                     number, at->object->name, plan_of(at->object));
    }
    if (object && object->version == version && pm_failed(object))
        return blame_failed(cause, peer, object);
    if (!object || object->version < version || object->stage == PM_QUEUED)
        return step_behind(path, cause, peer, object);
    if (object->version == version && object->stage == PM_ACTIVE)
        return step_partner(path, cause, peer, object);
    if (object->version == version && object->stage == PM_OVER && object->status < 0)
        return step_behind(path, cause, peer, object);
    if (object->node_count > 0 && !partner_of(object, at->node, at->rank->rank))
        return blame_missing(cause, at, peer);
    if (blame_instead(cause, at, "has ended that version"))
        return 0;
    return blame_lost(cause, at, peer, "has ended that version");
}

/* An event: somebody's signal that is still to come, or the application. */
static int step_event(struct path *path, struct pm_cause *cause, const struct pm_program *program)
{
    struct place *at = &path->at[path->count - 1];
    char text[200];

    cause->tag = at->node->tag;
    for (size_t r = 0; at->node->tag >= 0 && r < program->count; r++) {
        struct pm_rank *rank = &program->ranks[r];
        struct pm_object *object = pm_object_of(rank, at->object->number);
        for (size_t n = 0; object && n < object->node_count; n++) {
            struct pm_node *node = &object->nodes[n];
            if (node->kind != WEFT_NODE_SIGNAL || node->peer != at->rank->rank ||
                node->tag != at->node->tag)
                continue;
            if (object->version < at->object->version)
                return step_behind(path, cause, rank, object);
            if (object->stage == PM_ACTIVE && object->version == at->object->version &&
                (node->state == PM_BLOCKED || node->state == PM_READY)) {
                snprintf(at->line, sizeof at->line, "rank %d has not come to its signal (node %d)",
                         rank->rank, node->number);
                return push(path, rank, object, node) ? -1 : 1;
            }
        }
    }
    pm_describe(at->node, text, sizeof text);
    return blame(cause, "event", at->rank->rank,
                 "rank %d: %s of `%s`, version %lld of object %s waits for its application to "
                 "fire it%s",
                 at->rank->rank, text, plan_of(at->object), at->object->version, at->object->name,
                 at->node->tag >= 0 ? ", or for a signal that nobody owes" : "");
}

/* 1: one place further; 0: the cause is found; -1: no memory. */
static int step(struct path *path, struct pm_cause *cause, const struct pm_program *program)
{
    const struct place *at = &path->at[path->count - 1];
    char text[200];

    cause->object = at->object->number;
    cause->version = at->object->version;
    cause->node = at->node->number;
    cause->tag = -1;
    cause->peer = -1;
    pm_describe(at->node, text, sizeof text);
    if (at->node->state == PM_BLOCKED)
        return step_blocked(path, cause);
    if (at->node->state == PM_READY) {
        return blame(cause, "not-driven", at->rank->rank,
                     "rank %d: %s of `%s`, version %lld of object %s is ready and was not begun: "
                     "nobody drives the engine (it needs a wait, or helper progress)",
                     at->rank->rank, text, plan_of(at->object), at->object->version,
                     at->object->name);
    }
    if (at->node->state == PM_WAITING &&
        (at->node->kind == WEFT_NODE_SEND || at->node->kind == WEFT_NODE_RECV))
        return step_message(path, cause, program);
    if (at->node->kind == WEFT_NODE_EVENT)
        return step_event(path, cause, program);
    return blame(cause, "operation", at->rank->rank,
                 "rank %d: %s of `%s`, version %lld of object %s has begun and not ended",
                 at->rank->rank, text, plan_of(at->object), at->object->version, at->object->name);
}

/* ---- paths ---- */

static size_t add_line(char *chain, size_t used, size_t size, const struct place *at)
{
    char text[200];
    char age[40] = "";

    pm_describe(at->node, text, sizeof text);
    if (at->node->since_s >= 0)
        snprintf(age, sizeof age, " has waited %.3f s", at->node->since_s);
    int length = snprintf(chain + used, size - used, "rank %d: %s of `%s` v%lld%s%s%s\n",
                          at->rank->rank, text, plan_of(at->object), at->object->version, age,
                          at->line[0] ? ": " : "", at->line);
    return used + (length > 0 && (size_t)length < size - used ? (size_t)length : 0);
}

/* The places from @p first on, the middle of a long path left out. */
static void describe_path(const struct path *path, size_t first, struct pm_cause *cause)
{
    enum { SHOWN = 6, LINE = 600 };
    size_t used = 0;
    size_t count = path->count - first;

    for (size_t i = 0; i < count && used + LINE < sizeof cause->chain; i++) {
        if (count > SHOWN && i == SHOWN / 2) {
            size_t hidden = count - SHOWN;
            used += (size_t)snprintf(cause->chain + used, sizeof cause->chain - used,
                                     "... and %zu more\n", hidden);
            i += hidden;
        }
        used = add_line(cause->chain, used, sizeof cause->chain, &path->at[first + i]);
    }
}

/* Ends at a place where the path has been before. */
static void blame_cycle(const struct path *path, struct pm_cause *cause)
{
    const struct place *last = &path->at[path->count - 1];
    size_t first = 0;
    char ranks[160] = "";
    size_t used = 0;

    while (path->at[first].node != last->node)
        first++;
    for (size_t i = first; i + 1 < path->count; i++) {
        size_t seen = first;
        while (path->at[seen].rank != path->at[i].rank)
            seen++;
        if (seen == i && used + 24 < sizeof ranks) {
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%d", used ? ", " : "",
                                     path->at[i].rank->rank);
        }
    }
    blame(cause, "deadlock", last->rank->rank,
          strchr(ranks, ',') ? "ranks %s wait for each other in a circle"
                             : "rank %s waits for itself in a circle",
          ranks);
    describe_path(path, first, cause);
}

static struct pm_cause *new_cause(struct pm_program *program)
{
    if (program->cause_count == program->cause_capacity) {
        size_t capacity = program->cause_capacity ? 2 * program->cause_capacity : 8;
        struct pm_cause *causes = weft_memory_alloc(capacity, sizeof *causes);
        if (!causes)
            return NULL;
        if (program->cause_count)
            memcpy(causes, program->causes, program->cause_count * sizeof *causes);
        weft_memory_free(program->causes);
        program->causes = causes;
        program->cause_capacity = capacity;
    }
    struct pm_cause *cause = &program->causes[program->cause_count++];
    *cause = (struct pm_cause){.rank = -1, .peer = -1, .node = -1, .tag = -1};
    return cause;
}

/* Waits of different nodes may have one cause. */
static int known_cause(const struct pm_program *program, const struct pm_cause *cause)
{
    for (size_t i = 0; i + 1 < program->cause_count; i++)
        if (strcmp(program->causes[i].text, cause->text) == 0)
            return (int)i;
    return -1;
}

static int follow(struct pm_program *program, struct path *path)
{
    struct pm_cause *cause = new_cause(program);
    int moved = 1;
    int found = 0;

    if (!cause)
        return -1;
    while (moved == 1) {
        struct pm_node *node = path->at[path->count - 1].node;
        if (node->cause > 0) {
            found = node->cause;
            break;
        }
        if (node->cause < 0) {
            blame_cycle(path, cause);
            break;
        }
        node->cause = -1;
        moved = step(path, cause, program);
    }
    if (moved < 0)
        return -1;
    int known = found ? found - 1 : known_cause(program, cause);
    if (known >= 0)
        program->cause_count--;
    else
        known = (int)program->cause_count - 1;
    if (!found && !program->causes[known].chain[0])
        describe_path(path, 0, &program->causes[known]);
    for (size_t i = 0; i < path->count; i++)
        path->at[i].node->cause = known + 1;
    program->causes[known].waits++;
    return 0;
}

/* What has failed by itself is a cause even if nobody waits for it. */
static int find_failed(struct pm_program *program)
{
    for (size_t r = 0; r < program->count; r++) {
        const struct pm_rank *rank = &program->ranks[r];
        const struct pm_object *object = failed_object(rank);
        struct pm_cause *cause = object ? new_cause(program) : NULL;
        if (!object)
            continue;
        if (!cause)
            return -1;
        cause->object = object->number;
        cause->version = object->version;
        blame_failed(cause, rank, object);
    }
    return 0;
}

int pm_find_causes(struct pm_program *program)
{
    struct path path = {NULL, 0, 0};
    int status = find_failed(program);

    for (size_t r = 0; r < program->count; r++) {
        struct pm_rank *rank = &program->ranks[r];
        for (size_t o = 0; o < rank->count; o++) {
            struct pm_object *object = &rank->objects[o];
            for (size_t n = 0; object->stage == PM_ACTIVE && n < object->node_count; n++) {
                struct pm_node *node = &object->nodes[n];
                int rests = object->kind == PM_SERIES && node->kind == WEFT_NODE_EVENT;
                if (node->state != PM_WAITING || rests)
                    continue;
                path.count = 0;
                if (!status)
                    status = push(&path, rank, object, node) || follow(program, &path) ? -1 : 0;
            }
        }
    }
    weft_memory_free(path.at);
    return status;
}
