/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is executed in the order of issue: messages between devices that go over a communicator
 * (NCCL). It executes them one after the other and ends none before its other end has been issued,
 * too, so all ranks must issue what they have in common in one order, whichever runs it is of. All
 * contexts of a family issue to one stream, and take turns.
 *
 * A turn is the right to issue: of a version whose order is known beforehand (graph/issue.h), with
 * all of its rounds; or of messages of two ranks, which both of them have reached. Its time is
 * agreed on by all who take part, once all are ready for it, and ranks issue in the order of times
 * (Skeen's algorithm: Birman, Joseph, ACM TOCS 1987, section 5):
 *
 *     coordinator (the lowest rank)              another one
 *                 <------ ARRIVED ------         is ready
 *     all are:
 *     proposes 5  ------- ASKED 5 ----->         proposes 8: its clock is further
 *                 <------ PROPOSED 8 ---
 *     the largest:
 *     time 8      ------- FINAL 8 ----->
 *
 * A clock is never behind a time that it has seen, so what is proposed later is later. A rank
 * issues a turn when its time is final and below all others that it has, proposed ones included:
 * nothing that is still to be agreed on can come before it. So any two turns are issued in one
 * order by all ranks that have both, and the first of all turns that are not over can always go on.
 * Nobody waits in this for anything but the answer of an engine: who is not ready has not arrived,
 * and blocks nobody.
 */
#ifndef WEFT_RUNTIME_ENGINE_ISSUER_H
#define WEFT_RUNTIME_ENGINE_ISSUER_H

#include "runtime/engine/device.h"
#include "runtime/engine/engine.h"

struct weft__ordered;

struct weft__turn {
    struct weft__ordered *of;
    uint64_t time;
    /* Of a final time: who has decided it, and how many it had before. Final times of which two are
     * equal differ in these. */
    int32_t decider;
    uint32_t serial;
    uint32_t place; /* in the heap, from 1; 0: it is not there */
    int final;
    uint32_t heard; /* by the coordinator of a version: who has arrived, then who has proposed */
    /* Of two ranks: */
    int32_t peer;
    uint32_t first, count; /* its messages, linked by weft__end.next */
};

/* A family's; it belongs to the root's engine. */
struct weft__issuer {
    struct weft__device *device;
    struct weft__stream *stream;
    struct weft__turn **heap; /* by time; heap[0] is the first */
    uint32_t count, capacity;
    uint64_t clock;
    uint32_t serial;
    struct weft__ordered *taking; /* its communicator is in progress: nothing else is issued */
    int going;                    /* weft__issuer_go() is under way */
};

/* Made for a device; negative, with weft__error set. Closing waits for what is on the stream. */
int weft__issuer_open(struct weft__issuer **issuer, struct weft__device *device);
void weft__issuer_close(struct weft__issuer *issuer);
/* Room for so many turns more: so that none needs memory. */
int weft__issuer_reserve(struct weft__issuer *issuer, uint32_t turns);
void weft__issuer_unreserve(struct weft__issuer *issuer, uint32_t turns);

/* Enters a turn with its time, or with one that is final now. */
void weft__turn_enter(struct weft__issuer *issuer, struct weft__turn *turn);
void weft__turn_decide(struct weft__issuer *issuer, struct weft__turn *turn, uint64_t time,
                       int32_t decider, uint32_t serial);
/* Takes it out, if it is in. */
void weft__turn_leave(struct weft__issuer *issuer, struct weft__turn *turn);

/* A new time, later than all that have been seen, `seen` included. */
static inline uint64_t weft__issuer_time(struct weft__issuer *issuer, uint64_t seen)
{
    if (seen > issuer->clock)
        issuer->clock = seen;
    return ++issuer->clock;
}

/* Issues what can be. */
void weft__issuer_go(struct weft__issuer *issuer);

#endif
