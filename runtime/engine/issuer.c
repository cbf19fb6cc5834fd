/* SPDX-License-Identifier: BSD-3-Clause */
/* Turns in the order of their times, in a binary heap; and who is next. */
#include "runtime/engine/issuer.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/ordered.h"

/* ---- the heap ---- */

/* Whether `a` comes before `b`. Of equal times one that is only proposed does: its final one may be
 * the same, and then who has decided it counts. */
static int is_before(const struct weft__turn *a, const struct weft__turn *b)
{
    if (a->time != b->time)
        return a->time < b->time;
    if (a->final != b->final)
        return !a->final;
    if (a->decider != b->decider)
        return a->decider < b->decider;
    return a->serial < b->serial;
}

static void put(struct weft__issuer *issuer, uint32_t place, struct weft__turn *turn)
{
    issuer->heap[place - 1] = turn;
    turn->place = place;
}

static void rise(struct weft__issuer *issuer, struct weft__turn *turn)
{
    uint32_t place = turn->place;

    for (; place > 1 && is_before(turn, issuer->heap[place / 2 - 1]); place /= 2)
        put(issuer, place, issuer->heap[place / 2 - 1]);
    put(issuer, place, turn);
}

static void sink(struct weft__issuer *issuer, struct weft__turn *turn)
{
    uint32_t place = turn->place;

    while (2 * place <= issuer->count) {
        uint32_t child = 2 * place;

        if (child < issuer->count && is_before(issuer->heap[child], issuer->heap[child - 1]))
            child++;
        if (!is_before(issuer->heap[child - 1], turn))
            break;
        put(issuer, place, issuer->heap[child - 1]);
        place = child;
    }
    put(issuer, place, turn);
}

void weft__turn_enter(struct weft__issuer *issuer, struct weft__turn *turn)
{
    put(issuer, ++issuer->count, turn);
    rise(issuer, turn);
}

void weft__turn_decide(struct weft__issuer *issuer, struct weft__turn *turn, uint64_t time,
                       int32_t decider, uint32_t serial)
{
    if (time > issuer->clock)
        issuer->clock = time;
    turn->time = time;
    turn->decider = decider;
    turn->serial = serial;
    turn->final = 1;
    if (turn->place)
        sink(issuer, turn); /* a time that becomes final is not earlier */
    else
        weft__turn_enter(issuer, turn);
}

void weft__turn_leave(struct weft__issuer *issuer, struct weft__turn *turn)
{
    uint32_t place = turn->place;
    struct weft__turn *last;

    if (!place)
        return;
    turn->place = 0;
    last = issuer->heap[--issuer->count];
    if (last == turn)
        return;
    put(issuer, place, last);
    sink(issuer, last);
    rise(issuer, last);
}

int weft__issuer_reserve(struct weft__issuer *issuer, uint32_t turns)
{
    struct weft__turn **more;

    if (turns > UINT32_MAX - issuer->capacity)
        return weft__error(WEFT_ERR_UNSUPPORTED, "too many messages over a communicator");
    more = (struct weft__turn **)weft__realloc((void *)issuer->heap,
                                               (size_t)issuer->capacity + turns, sizeof *more);
    if (!more)
        return weft__error_memory("a communicator");
    issuer->heap = more;
    issuer->capacity += turns;
    return WEFT_OK;
}

void weft__issuer_unreserve(struct weft__issuer *issuer, uint32_t turns)
{
    issuer->capacity -= turns;
}

/* ---- its life ---- */

int weft__issuer_open(struct weft__issuer **out, struct weft__device *device)
{
    struct weft__issuer *issuer = weft__calloc(1, sizeof *issuer);
    int status;

    if (!issuer)
        return weft__error_memory("a communicator");
    status = device->ops->open(device, &issuer->stream);
    if (status != WEFT_OK) {
        weft__free(issuer);
        return status;
    }
    device->ops->retain(device);
    issuer->device = device;
    *out = issuer;
    return WEFT_OK;
}

void weft__issuer_close(struct weft__issuer *issuer)
{
    if (!issuer)
        return;
    issuer->device->ops->close(issuer->stream);
    issuer->device->ops->end(issuer->device);
    weft__free((void *)issuer->heap);
    weft__free(issuer);
}

void weft__issuer_go(struct weft__issuer *issuer)
{
    if (issuer->going)
        return;
    issuer->going = 1;
    while (!issuer->taking && issuer->count > 0 && issuer->heap[0]->final &&
           weft__ordered_issue(issuer->heap[0]))
        ;
    issuer->going = 0;
}
