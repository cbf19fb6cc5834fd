/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Averaging in pairs (weft/gossip.h says what it computes).
 *
 * Every rank has one run of one number: on even ranks it is the asking side, on odd ranks the
 * answering side, which takes versions in any order (weft_run_config.unordered). Versions are the
 * steps of the even rank.
 *
 *     even rank    signal -> partner        send model        recv d
 *     odd rank     told of the signal: starts the version, or after those who came before
 *                      recv into room -> take model -> mix ... -> leave model -> send d
 *                      (ended: starts the next)
 *
 * An odd rank remembers of those who have asked in which step they last did, since a signal may
 * come more than once, and who comes after them. It makes room for them as they come, the one
 * thing that is allocated while exchanges run: there may be very many even ranks, and few of them
 * come.
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

/* Whose turn it is at the model: the visitor's or the application's; the other may wait. */
struct turn {
    int taken;
    struct weft_call *waiting; /* or NULL */
};

/* Those who have asked an odd rank; who waits, in the order in which they came. */
struct visitor {
    uint64_t asked; /* 1 + the last step in which it has asked; 0: nobody is at this place */
    int rank;
    int next; /* the rank that came after it, -1: none */
};
struct visitors {
    struct visitor *table; /* by the hash of the rank; a power of two; owned */
    size_t capacity, count;
    int first, last; /* -1: nobody waits */
    int visiting;    /* a visit is under way */
};

/* Compute operations. */
enum { OP_TAKE_MODEL, OP_LEAVE_MODEL, OP_MIX, OP_SETTLE, OP_PUBLISH, OPS };

struct weft_pair_average {
    struct weft_context *context;
    struct weft__model model;
    int rank, size;
    weft_initial_t initial;
    int restored; /* from a state */
    weft_nan_policy_t nan;
    uint64_t seed, deadline_ns, meet_ns;
    char *published; /* what was sent; on odd ranks what visitors see, without `added` */
    char *added;     /* even ranks: the d that came back */
    char *room;      /* odd ranks; one allocation with the others, which begins at `published` */
    struct visitors visitors;  /* odd ranks; on the thread that drives the engine */
    struct turn model_turn;    /* likewise */
    struct weft_op *ops[OPS];  /* owned */
    struct weft_run *settle;   /* odd ranks: the application's turn at its model */
    struct weft_run *publish;  /* odd ranks: the same after a synchronisation */
    struct weft_run *exchange; /* the asking or the answering side */
    struct weft_run *barrier, *sum;
    struct weft_object *object; /* of all runs but the two turns */
    enum weft__step step;
    /* Where a synchronisation is that a deadline has ended the wait for. */
    enum pair_meeting { PAIR_APART, PAIR_MEETS, PAIR_SUMS } synchronising;
    int asked;         /* even ranks: the exchange of the step is under way */
    atomic_int asking; /* the same, to the thread that drives the engine */
    /* Of that thread: the object has failed; all ranks have left, and this one waits for its last
     * answer; nobody asks any more, and the last visit comes to its end. */
    int broken, all_left, resting;
    atomic_uint_least64_t answered;
    struct weft_pair_average_stats stats;
};

/* ---- ops.c ---- */

/* Makes average->ops. */
int weft__pair_make_ops(struct weft_pair_average *average);
/* Callback of the object: who waits for a turn must not do so for ever. */
void weft__pair_failed(void *user, struct weft_object *object, int status);

/* ---- plans.c ---- */

enum { WEFT__PAIR_VISITORS = 16 }; /* for so many there is room from the beginning */

/* Makes all runs: the same objects on all ranks. Collective, does not block. */
int weft__pair_make_runs(struct weft_pair_average *average);
/* Callbacks of the object: all ranks have left; and none waits for an answer any more. */
void weft__pair_left(void *user, struct weft_object *object);
void weft__pair_settled(void *user, struct weft_object *object, uint64_t largest);

#endif
