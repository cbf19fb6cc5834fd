/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A message that has come and that no receive takes, held against a receive that waits.
 *
 * The commonest mistake is a wrong tag. A small message does not wait for its receive, so its
 * sender has ended and knows of nothing; it lies in the receiver's table, and the receive waits.
 * Which message was meant is a guess: the one that differs least, if it differs in one thing only.
 *
 *     object  version  sender  tag     size
 *     same    same     same    other   any      but one that fits comes first
 *     same    other    same    same    fits     the sender is ahead, or counts otherwise
 *     same    same     other   same    fits
 *     other   any      same    same    fits     objects were created in another order
 *
 * A message for which this run still has a receive is not to be had: that will take it.
 */
#include "runtime/context/context.h"
#include <stdio.h>

enum { WRONG_TAG, WRONG_TAG_AND_SIZE, WRONG_VERSION, WRONG_SENDER, WRONG_OBJECT, UNLIKE };

/* Whether the plan of a run has a receive for a message of its version. */
static int has_receive(const struct weft_run *run, const struct weft__message *message)
{
    const struct weft_plan *plan = run->plan;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct weft__node *node = &plan->nodes[n];
        if (node->kind == WEFT_NODE_RECV && node->tag == message->tag &&
            weft__peer(run, node->peer) == message->from)
            return 1;
    }
    return 0;
}

static int likeness(const struct weft_run *run, const struct weft__message *wanted, int fits,
                    const struct weft__message *message)
{
    int tag = message->tag == wanted->tag;
    int from = message->from == wanted->from;
    int version = message->version == wanted->version;
    if (message->object != wanted->object)
        return from && tag && fits ? WRONG_OBJECT : UNLIKE;
    if (!version)
        return from && tag && fits ? WRONG_VERSION : UNLIKE;
    if (tag == from || has_receive(run, message))
        return UNLIKE;
    if (tag)
        return fits ? WRONG_SENDER : UNLIKE;
    return fits ? WRONG_TAG : WRONG_TAG_AND_SIZE;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a < b ? b - a : a - b;
}

/* Of two that are equally like it, the nearer one: so the answer does not depend on the table. */
static int is_nearer(const struct weft__message *a, const struct weft__message *b,
                     const struct weft__message *wanted)
{
    const uint64_t away[][2] = {
        {distance(a->tag, wanted->tag), distance(b->tag, wanted->tag)},
        {distance(a->version, wanted->version), distance(b->version, wanted->version)},
        {a->object, b->object},
        {(uint64_t)a->from, (uint64_t)b->from},
        {a->tag, b->tag}};
    for (size_t i = 0; i < sizeof away / sizeof away[0]; i++)
        if (away[i][0] != away[i][1])
            return away[i][0] < away[i][1];
    return 0;
}

const struct weft__message *weft__unmatched_for(const struct weft_run *run, uint32_t n)
{
    const struct weft__match *match = &run->engine->match;
    const struct weft__node *node = &run->plan->nodes[n];
    if (node->kind != WEFT_NODE_RECV)
        return NULL;
    const struct weft__message *wanted = &run->xfers[node->index].message;
    if (wanted->xflags != WEFT__X_POSTED)
        return NULL;
    size_t capacity = weft__region_bytes(run, &run->plan->regions[node->regions]);
    const struct weft__message *found = NULL;
    int best = UNLIKE;
    for (size_t b = 0; b <= match->mask; b++)
        for (const struct weft__message *message = match->buckets[b]; message;
             message = message->next) {
            if (message->kind != WEFT__DATA)
                continue;
            int fits =
                node->flags & WEFT__UP_TO ? message->bytes <= capacity : message->bytes == capacity;
            int like = likeness(run, wanted, fits, message);
            if (like < best ||
                (like == best && like != UNLIKE && is_nearer(message, found, wanted))) {
                best = like;
                found = message;
            }
        }
    return found;
}

void weft__unmatched_text(const struct weft_run *run, const struct weft__message *message,
                          char *text, size_t size)
{
    char object[64] = "";
    if (message->object != run->object->id)
        snprintf(object, sizeof object, " of object %s", WEFT__OBJECT_NAME(message->object));
    snprintf(text, size,
             "a message of rank %d with tag %u, %zu bytes, version %llu%s has come and matches "
             "nothing",
             message->from, message->tag, message->bytes, (unsigned long long)message->version,
             object);
}
