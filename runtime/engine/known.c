/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A version whose order is known beforehand: its rounds, one after the other, each when all of its
 * nodes here have been reached. It has the turn from the first one on until the last is issued. All
 * ranks that have messages in it agree on its time, once each has reached its first round.
 */
#include "runtime/engine/ordered.h"

#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

static int own_rank(const struct weft__ordered *ordered)
{
    return ordered->run->engine->transport->rank;
}

static int coordinates(const struct weft__ordered *ordered)
{
    return ordered->team->members[0] == own_rank(ordered);
}

static void tell(struct weft__ordered *ordered, int to, enum weft__turn_what what)
{
    const struct weft__turn *turn = &ordered->turn;
    const struct weft__turn_note note = {
        .what = what, .time = turn->time, .decider = turn->decider, .serial = turn->serial};

    if (weft__run_active(ordered->run))
        weft__turn_tell(ordered, to, &note, NULL);
}

static void tell_others(struct weft__ordered *ordered, enum weft__turn_what what)
{
    for (uint32_t m = 1; m < ordered->team->member_count; m++)
        tell(ordered, ordered->team->members[m], what);
}

/* ---- the version ---- */

void weft__known_begin(struct weft__ordered *ordered)
{
    const struct weft_run *run = ordered->run;

    for (uint32_t round = 0; round < ordered->rounds; round++)
        ordered->left[round] = ordered->first[round + 1] - ordered->first[round];
    /* Of joint nodes only whether there are any matters. */
    for (uint32_t i = 0; i < ordered->count; i++) {
        uint32_t n = ordered->sequence[i];

        weft__end_of(ordered, n)->bytes = run->plan->regions[run->plan->nodes[n].regions].bytes;
    }
    ordered->round = 0;
    ordered->asked = 0;
    ordered->turn = (struct weft__turn){.of = ordered};
}

void weft__known_reached(struct weft__ordered *ordered, uint32_t node)
{
    ordered->left[ordered->round_of[ordered->run->plan->nodes[node].index]]--;
}

/* ---- its turn ---- */

static void decide(struct weft__ordered *ordered, uint64_t time)
{
    struct weft__issuer *issuer = ordered->team->issuer;
    const struct weft__engine *engine = ordered->run->engine;

    weft__turn_decide(issuer, &ordered->turn, time, engine->family->transport->rank,
                      ++issuer->serial);
}

/* On the coordinator: one more has arrived. */
static void arrived(struct weft__ordered *ordered)
{
    struct weft__turn *turn = &ordered->turn;

    if (++turn->heard < ordered->team->member_count)
        return;
    turn->heard = 1;
    turn->time = ordered->latest = weft__issuer_time(ordered->team->issuer, 0);
    if (ordered->team->member_count == 1) {
        decide(ordered, turn->time);
        return;
    }
    weft__turn_enter(ordered->team->issuer, turn);
    tell_others(ordered, WEFT__ALL_ASKED);
}

void weft__known_settle(struct weft__ordered *ordered)
{
    if (ordered->asked || ordered->rounds == 0 || ordered->left[0] > 0)
        return;
    ordered->asked = 1;
    if (ordered->team->in_order)
        decide(ordered, weft__issuer_time(ordered->team->issuer, 0));
    else if (coordinates(ordered))
        arrived(ordered);
    else
        tell(ordered, ordered->team->members[0], WEFT__ALL_ARRIVED);
}

void weft__known_note(struct weft__ordered *ordered, int from, const struct weft__turn_note *note)
{
    struct weft__issuer *issuer = ordered->team->issuer;
    struct weft__turn *turn = &ordered->turn;

    switch ((enum weft__turn_what)note->what) {
    case WEFT__ALL_ARRIVED:
        if (coordinates(ordered) && !turn->place)
            arrived(ordered);
        break;
    case WEFT__ALL_ASKED:
        if (turn->place || !ordered->asked)
            break;
        turn->time = weft__issuer_time(issuer, note->time);
        weft__turn_enter(issuer, turn);
        tell(ordered, from, WEFT__ALL_PROPOSED);
        break;
    case WEFT__ALL_PROPOSED:
        if (!turn->place || turn->final)
            break;
        ordered->latest = note->time > ordered->latest ? note->time : ordered->latest;
        if (++turn->heard < ordered->team->member_count)
            break;
        decide(ordered, ordered->latest);
        tell_others(ordered, WEFT__ALL_FINAL);
        break;
    case WEFT__ALL_FINAL:
        if (turn->place && !turn->final)
            weft__turn_decide(issuer, turn, note->time, note->decider, note->serial);
        break;
    case WEFT__PAIR_ARRIVED:
    case WEFT__PAIR_ASKED:
    case WEFT__PAIR_FINAL:
    default:
        break;
    }
}

int weft__known_issue(struct weft__ordered *ordered)
{
    uint32_t round = ordered->round;
    uint32_t first = ordered->first[round];

    if (ordered->left[round] > 0)
        return 0;
    if (++ordered->round == ordered->rounds)
        weft__turn_leave(ordered->team->issuer, &ordered->turn);
    weft__ordered_group(ordered, ordered->sequence + first, ordered->first[round + 1] - first);
    return 1;
}

/* ---- making ---- */

int weft__known_open(struct weft__ordered *ordered, const struct weft__order_known *known)
{
    const struct weft_plan *plan = ordered->run->plan;

    ordered->sequence = known->sequence;
    ordered->first = known->first;
    ordered->rounds = known->rounds;
    ordered->left = weft__calloc((size_t)known->rounds + 1, sizeof *ordered->left);
    ordered->round_of = weft__calloc((size_t)plan->xfer_count + 1, sizeof *ordered->round_of);
    if (!ordered->left || !ordered->round_of)
        return weft__error_memory("an order of messages");
    for (uint32_t round = 0; round < known->rounds; round++)
        for (uint32_t i = known->first[round]; i < known->first[round + 1]; i++)
            ordered->round_of[plan->nodes[known->sequence[i]].index] = round;
    int status = weft__issuer_reserve(ordered->team->issuer, 1);
    ordered->reserved = status == WEFT_OK;
    return status;
}
