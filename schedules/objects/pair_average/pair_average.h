/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Averaging in pairs (weft/gossip.h says what it computes).
 *
 * Every even rank has a run of its own; on it the run is the asking side, on every odd rank the
 * answering side. Versions are the steps of the even rank. Everybody can compute whom it draws in
 * which step, so an odd rank keeps each run started with the next version that will draw it:
 *
 *     even rank    signal -> partner        send model        recv d
 *     odd rank     event(signal) -> take room -> recv into room -> take model -> mix ...
 *                      ... -> leave model -> send d -> leave room            (ended: start the
 *                      next)
 *                  event(leave)             in a choice with the one above: how a run comes to rest
 *
 * An odd rank has one room for a visiting model, and enters one visitor at a time; the
 * application's steps and the visitors take turns at its model. The turns are compute nodes that
 * end later, so nobody blocks: all of this runs where the engine is driven, one thread at a time,
 * and needs no locks. What the application has last published and what visitors have added since
 * are kept apart,
 *
 *     model = published + added
 *
 * so that a step only adds `added` to the tensors, and what the application has done stays. Mixing
 * is cut into nodes of a slice each: a signal is never stuck behind a large model.
 */
#ifndef WEFT_SCHEDULES_OBJECTS_PAIR_AVERAGE_PAIR_AVERAGE_H
#define WEFT_SCHEDULES_OBJECTS_PAIR_AVERAGE_PAIR_AVERAGE_H

#include <stdatomic.h>

#include <weft/gossip.h>
#include <weft/object.h>
#include <weft/run.h>

#include "schedules/objects/model.h"

/* Whose turn it is; and who waits for it, in the order in which they came. */
struct turn {
    int taken;
    struct weft_call **waiting; /* a ring; owned */
    size_t capacity, first, count;
};

struct weft_pair_average;

/* The run of one even rank. */
struct meeting {
    struct weft_pair_average *average;
    struct weft_run *run;
    int asker;         /* its rank */
    weft_node_t leave; /* answering side: the event that brings it to rest */
};

/* Compute operations. */
enum {
    OP_TAKE_ROOM,
    OP_LEAVE_ROOM,
    OP_TAKE_MODEL,
    OP_LEAVE_MODEL,
    OP_MIX,
    OP_SETTLE,
    OP_PUBLISH,
    OPS
};

struct weft_pair_average {
    struct weft_context *context;
    struct weft__model model;
    int rank, size;
    uint64_t seed, deadline_ns, meet_ns;
    char *published; /* what was sent; on odd ranks what visitors see, without `added` */
    char *added;     /* even ranks: the d that came back */
    char *room;      /* odd ranks; one allocation with the others, which begins at `published` */
    struct meeting *meetings; /* of ranks 0, 2, 4 ... */
    int meeting_count;
    struct turn room_turn, model_turn;
    struct weft_op *ops[OPS]; /* owned */
    struct weft_run *settle;  /* odd ranks: the application's turn at its model */
    struct weft_run *publish; /* odd ranks: the same after a synchronisation */
    struct weft_run *barrier, *sum;
    struct weft_object *object; /* of all runs but the two turns */
    enum weft__step step;
    int asked;         /* even ranks: the exchange of the step is under way */
    atomic_int asking; /* the same, to the thread that drives the engine */
    /* Of that thread: the object has failed; all ranks have left, and this one waits for its last
     * answer; nobody asks any more, and answering runs come to rest. */
    int broken, all_left, resting;
    int under_way; /* of these */
    atomic_uint_least64_t answered;
    struct weft_pair_average_stats stats;
};

/* ---- ops.c ---- */

/* Makes average->ops. */
int weft__pair_make_ops(struct weft_pair_average *average);
/* Callback of the object: who waits for a turn must not do so for ever. */
void weft__pair_failed(void *user, struct weft_object *object, int status);

/* ---- plans.c ---- */

/* Makes all runs: the same objects on all ranks. Collective, does not block. */
int weft__pair_make_runs(struct weft_pair_average *average);
/* Starts an answering run with the first step from `from` on in which its asker draws this rank. */
int weft__pair_start_visit(struct meeting *meeting, uint64_t from);
/* Callbacks of the object: all ranks have left; and none waits for an answer any more. */
void weft__pair_left(void *user, struct weft_object *object);
void weft__pair_settled(void *user, struct weft_object *object, uint64_t largest);

#endif
