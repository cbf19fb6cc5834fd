/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages on which the two ranks agree, since nobody knows beforehand when both reach them: peers
 * that are bound from run to run, what comes after choices and events of the application.
 *
 *     rank 0 (the lower one)               rank 2
 *       reaches its end of A
 *                     <-- PAIR_ARRIVED --    reaches its ends of A and B
 *       reaches its end of B
 *       ...
 *
 * What both have reached is a turn: the messages of one note, or of what this rank has reached at
 * once. Both issue them as one group, in the order of the lower rank's list.
 */
#include "runtime/engine/ordered.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/search.h"

static int own_rank(const struct weft__ordered *ordered)
{
    return ordered->run->engine->transport->rank;
}

static const struct weft__node *node_of(const struct weft__ordered *ordered, uint32_t n)
{
    return &ordered->run->plan->nodes[n];
}

static int peer_of(const struct weft__ordered *ordered, uint32_t n)
{
    return weft__peer(ordered->run, node_of(ordered, n)->peer);
}

static int receives(const struct weft__ordered *ordered, uint32_t n)
{
    return node_of(ordered, n)->kind == WEFT_NODE_RECV;
}

/* What is sent, or the room for it. */
static size_t bytes_of(const struct weft__ordered *ordered, uint32_t n)
{
    const struct weft_run *run = ordered->run;

    return weft__region_bytes(run, &run->plan->regions[node_of(ordered, n)->regions]);
}

void weft__agreed_begin(struct weft__ordered *ordered)
{
    memset(ordered->ends, 0, ordered->run->plan->xfer_count * sizeof *ordered->ends);
    ordered->turn_count = 0;
    ordered->fresh_count = 0;
}

/* ---- ends by what the other rank calls them ---- */

static int compare(const struct weft__by_tag *a, uint32_t tag, uint32_t does_receive)
{
    if (a->receives != does_receive)
        return a->receives < does_receive ? -1 : 1;
    return (a->tag > tag) - (a->tag < tag);
}

static int compare_ends(const void *left, const void *right)
{
    const struct weft__by_tag *a = left, *b = right;
    int order = compare(a, b->tag, b->receives);

    return order ? order : (a->node > b->node) - (a->node < b->node);
}

/* The end here with a tag and a peer; WEFT__NONE: there is none. */
static uint32_t find(const struct weft__ordered *ordered, uint32_t tag, uint32_t does_receive,
                     int peer)
{
    uint32_t low = 0, high = ordered->count;

    WEFT__SEARCH(low, high, middle, compare(&ordered->by_tag[middle], tag, does_receive) < 0)
    for (; low < ordered->count && compare(&ordered->by_tag[low], tag, does_receive) == 0; low++)
        if (peer_of(ordered, ordered->by_tag[low].node) == peer)
            return ordered->by_tag[low].node;
    return WEFT__NONE;
}

/* ---- sizes ---- */

/* What arrives fits; else the run fails: 0. */
static int fits(struct weft__ordered *ordered, uint32_t n, uint64_t bytes)
{
    struct weft_run *run = ordered->run;
    const struct weft__node *node = node_of(ordered, n);
    size_t room = bytes_of(ordered, n);
    int up_to = node->flags & WEFT__UP_TO;
    char text[96];

    if (up_to ? bytes <= room && bytes % weft__node_element(run->plan, node) == 0 : bytes == room)
        return 1;
    snprintf(text, sizeof text, "a message of %llu bytes arrived, expected %s%zu",
             (unsigned long long)bytes, up_to ? "whole elements, at most " : "", room);
    weft__engine_fail(run->engine, run, WEFT_ERR_TRUNCATED, n, own_rank(ordered), text);
    return 0;
}

/* ---- turns ---- */

static struct weft__turn *make_turn(struct weft__ordered *ordered, int peer)
{
    struct weft__turn *turn = &ordered->turns[ordered->turn_count++];

    *turn = (struct weft__turn){.of = ordered, .peer = peer, .first = WEFT__NONE};
    return turn;
}

/* Its messages, in their order. */
static void fill(struct weft__ordered *ordered, struct weft__turn *turn, const uint32_t *nodes,
                 uint32_t count)
{
    turn->count = count;
    for (uint32_t i = count; i-- > 0;) {
        weft__end_of(ordered, nodes[i])->next = turn->first;
        turn->first = nodes[i];
    }
}

static void decide(struct weft__ordered *ordered, struct weft__turn *turn, uint64_t time)
{
    struct weft__issuer *issuer = ordered->team->issuer;

    weft__turn_decide(issuer, turn, time, ordered->run->engine->family->transport->rank,
                      ++issuer->serial);
}

/* The lower rank: both ends of some messages have been reached. */
static void ask(struct weft__ordered *ordered, int peer, const uint32_t *nodes, uint32_t count)
{
    struct weft__issuer *issuer = ordered->team->issuer;
    struct weft__turn_end ends[WEFT__TURN_ENDS];
    struct weft__turn *turn = make_turn(ordered, peer);

    fill(ordered, turn, nodes, count);
    turn->time = weft__issuer_time(issuer, 0);
    if (peer == own_rank(ordered)) {
        decide(ordered, turn, turn->time);
        return;
    }
    const struct weft__turn_note note = {.time = turn->time,
                                         .what = WEFT__PAIR_ASKED,
                                         .turn = (uint32_t)(turn - ordered->turns),
                                         .count = count};
    for (uint32_t i = 0; i < count; i++) {
        const struct weft__end *end = weft__end_of(ordered, nodes[i]);

        ends[i] = (struct weft__turn_end){.node = end->theirs, .bytes = end->bytes};
    }
    weft__turn_enter(issuer, turn);
    weft__turn_tell(ordered, peer, &note, ends);
}

/* The higher rank: tells of what it has reached. */
static void arrive(struct weft__ordered *ordered, int peer, const uint32_t *nodes, uint32_t count)
{
    const struct weft__turn_note note = {.what = WEFT__PAIR_ARRIVED, .count = count};
    struct weft__turn_end ends[WEFT__TURN_ENDS];

    for (uint32_t i = 0; i < count; i++)
        ends[i] = (struct weft__turn_end){.node = nodes[i],
                                          .tag = node_of(ordered, nodes[i])->tag,
                                          .bytes = bytes_of(ordered, nodes[i]),
                                          .receives = (uint32_t)receives(ordered, nodes[i])};
    weft__turn_tell(ordered, peer, &note, ends);
}

/* ---- what this rank has reached ---- */

/* Both ends are this rank's. */
static void meet_oneself(struct weft__ordered *ordered, uint32_t n)
{
    uint32_t other =
        find(ordered, node_of(ordered, n)->tag, !receives(ordered, n), own_rank(ordered));
    uint32_t nodes[2] = {n, other};

    if (other == WEFT__NONE || !weft__end_of(ordered, other)->reached ||
        weft__end_of(ordered, n)->arrived)
        return;
    weft__end_of(ordered, n)->arrived = weft__end_of(ordered, other)->arrived = 1;
    uint32_t to = receives(ordered, n) ? n : other;
    size_t bytes = bytes_of(ordered, to == n ? other : n);
    if (!fits(ordered, to, bytes))
        return;
    weft__end_of(ordered, n)->bytes = weft__end_of(ordered, other)->bytes = bytes;
    ask(ordered, own_rank(ordered), nodes, 2);
}

/* Those of the fresh nodes from `at` on that are of its peer, at most a note of them. */
static uint32_t take_fresh(struct weft__ordered *ordered, uint32_t at,
                           uint32_t nodes[WEFT__TURN_ENDS])
{
    int peer = peer_of(ordered, ordered->fresh[at]);
    int lower = own_rank(ordered) < peer;
    uint32_t count = 0;

    for (uint32_t i = at; i < ordered->fresh_count && count < WEFT__TURN_ENDS; i++) {
        uint32_t n = ordered->fresh[i];

        if (n == WEFT__NONE || peer_of(ordered, n) != peer)
            continue;
        ordered->fresh[i] = WEFT__NONE;
        if (!lower || weft__end_of(ordered, n)->arrived)
            nodes[count++] = n;
    }
    return count;
}

void weft__agreed_settle(struct weft__ordered *ordered)
{
    const struct weft_run *run = ordered->run;
    uint32_t nodes[WEFT__TURN_ENDS];

    for (uint32_t i = 0; i < ordered->fresh_count; i++) {
        struct weft__end *end = weft__end_of(ordered, ordered->fresh[i]);

        end->reached = 1;
        if (!receives(ordered, ordered->fresh[i]))
            end->bytes = bytes_of(ordered, ordered->fresh[i]);
    }
    for (uint32_t i = 0; i < ordered->fresh_count && weft__run_active(run);) {
        uint32_t n = ordered->fresh[i];
        int peer = n == WEFT__NONE ? WEFT_PEER_NONE : peer_of(ordered, n);

        if (peer == own_rank(ordered)) {
            ordered->fresh[i++] = WEFT__NONE;
            meet_oneself(ordered, n);
            continue;
        }
        if (n == WEFT__NONE) {
            i++;
            continue;
        }
        uint32_t count = take_fresh(ordered, i, nodes);
        if (count > 0 && own_rank(ordered) < peer)
            ask(ordered, peer, nodes, count);
        else if (count > 0)
            arrive(ordered, peer, nodes, count);
    }
    ordered->fresh_count = 0;
}

/* ---- notes ---- */

/* The lower rank hears what the higher one has reached. */
static void hear(struct weft__ordered *ordered, int from, const struct weft__turn_note *note,
                 const struct weft__turn_end *theirs)
{
    uint32_t nodes[WEFT__TURN_ENDS];
    uint32_t count = 0;

    for (uint32_t i = 0; i < note->count; i++) {
        uint32_t n = find(ordered, theirs[i].tag, !theirs[i].receives, from);
        struct weft__end *end = n == WEFT__NONE ? NULL : weft__end_of(ordered, n);

        if (!end || end->arrived)
            continue; /* garbled, or a message that nobody waits for */
        if (receives(ordered, n) && !fits(ordered, n, theirs[i].bytes))
            return;
        if (receives(ordered, n))
            end->bytes = theirs[i].bytes;
        end->arrived = 1;
        end->theirs = theirs[i].node;
        if (end->reached)
            nodes[count++] = n;
    }
    if (count > 0)
        ask(ordered, from, nodes, count);
}

static int is_end_with(const struct weft__ordered *ordered, uint32_t n, int peer)
{
    return n < ordered->run->plan->node_count && ordered->over[n] &&
           weft__end_of(ordered, n)->reached && !weft__end_of(ordered, n)->arrived &&
           peer_of(ordered, n) == peer;
}

/* The higher rank is asked for a time: it has the last word. */
static void answer(struct weft__ordered *ordered, int from, const struct weft__turn_note *note,
                   const struct weft__turn_end *asked)
{
    uint32_t nodes[WEFT__TURN_ENDS];

    for (uint32_t i = 0; i < note->count; i++) {
        uint32_t n = asked[i].node;

        if (!is_end_with(ordered, n, from))
            return;
        if (receives(ordered, n) && !fits(ordered, n, asked[i].bytes))
            return;
        if (receives(ordered, n))
            weft__end_of(ordered, n)->bytes = asked[i].bytes;
        weft__end_of(ordered, n)->arrived = 1;
        nodes[i] = n;
    }
    struct weft__turn *turn = make_turn(ordered, from);
    fill(ordered, turn, nodes, note->count);
    decide(ordered, turn, weft__issuer_time(ordered->team->issuer, note->time));
    const struct weft__turn_note final = {.what = WEFT__PAIR_FINAL,
                                          .turn = note->turn,
                                          .time = turn->time,
                                          .decider = turn->decider,
                                          .serial = turn->serial};
    weft__turn_tell(ordered, from, &final, NULL);
}

void weft__agreed_note(struct weft__ordered *ordered, int from, const struct weft__turn_note *note,
                       const struct weft__turn_end *ends)
{
    struct weft__turn *turn;

    switch ((enum weft__turn_what)note->what) {
    case WEFT__PAIR_ARRIVED:
        if (own_rank(ordered) < from)
            hear(ordered, from, note, ends);
        break;
    case WEFT__PAIR_ASKED:
        if (own_rank(ordered) > from && note->count > 0)
            answer(ordered, from, note, ends);
        break;
    case WEFT__PAIR_FINAL:
        turn = note->turn < ordered->turn_count ? &ordered->turns[note->turn] : NULL;
        if (turn && turn->place && !turn->final && turn->peer == from)
            weft__turn_decide(ordered->team->issuer, turn, note->time, note->decider, note->serial);
        break;
    case WEFT__ALL_ARRIVED:
    case WEFT__ALL_ASKED:
    case WEFT__ALL_PROPOSED:
    case WEFT__ALL_FINAL:
    default:
        break;
    }
}

/* ---- issuing ---- */

int weft__agreed_issue(struct weft__turn *turn)
{
    struct weft__ordered *ordered = turn->of;
    uint32_t nodes[WEFT__TURN_ENDS];
    uint32_t count = 0;

    for (uint32_t n = turn->first; n != WEFT__NONE; n = weft__end_of(ordered, n)->next)
        nodes[count++] = n;
    weft__turn_leave(ordered->team->issuer, turn);
    weft__ordered_group(ordered, nodes, count);
    return 1;
}

void weft__agreed_fail(struct weft__ordered *ordered)
{
    for (uint32_t t = 0; t < ordered->turn_count; t++)
        weft__turn_leave(ordered->team->issuer, &ordered->turns[t]);
    ordered->fresh_count = 0;
}

int weft__agreed_open(struct weft__ordered *ordered)
{
    const struct weft_plan *plan = ordered->run->plan;
    size_t count = ordered->count;
    uint32_t at = 0;

    ordered->by_tag = weft__malloc(count, sizeof *ordered->by_tag);
    ordered->turns = weft__calloc(count, sizeof *ordered->turns);
    ordered->fresh = weft__malloc(count, sizeof *ordered->fresh);
    if (!ordered->by_tag || !ordered->turns || !ordered->fresh)
        return weft__error_memory("messages that ranks agree on");
    for (uint32_t n = 0; n < plan->node_count; n++)
        if (ordered->over[n])
            ordered->by_tag[at++] =
                (struct weft__by_tag){plan->nodes[n].tag, plan->nodes[n].kind == WEFT_NODE_RECV, n};
    qsort(ordered->by_tag, count, sizeof *ordered->by_tag, compare_ends);
    int status = weft__issuer_reserve(ordered->team->issuer, ordered->count);
    ordered->reserved = status == WEFT_OK ? ordered->count : 0;
    return status;
}
