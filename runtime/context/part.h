/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Families: a context that was made on a transport, the root, and all that were split from it.
 *
 *      context (root)             context (4 of its ranks)       context (2 of these)
 *         engine                     engine                         engine
 *           |                          |                              |
 *       transport  <--------------  part  <- ranks translated      part
 *     local, mpi ...  <----------------------------------------------+
 *
 * Each context has an engine of its own: its own numbers of objects, runs, failures. One with a
 * part has no transport of its own: what it sends goes by the root's, with ranks translated, and
 * with the *place* that its receiver gave the context in its own table. So what arrives finds its
 * engine by an index, no two ranks have to agree on a number, and any transport will do.
 *
 * A family is driven as one: who drives any of its contexts drives the root. A step of the root
 * polls the transport, then steps those that are awake, which have something to do or to wait for.
 * Those that are idle cost nothing.
 */
#ifndef WEFT_RUNTIME_CONTEXT_PART_H
#define WEFT_RUNTIME_CONTEXT_PART_H

#include "runtime/context/context.h"

/* Where a rank keeps a context in its table: the index, and how often others were there before. */
struct weft__place {
    uint16_t part;
    uint8_t turn;
};

/* A rank of a part. */
struct weft__member {
    int32_t rank;             /* of the root */
    struct weft__place place; /* of the context there */
    uint8_t gone;             /* nothing more comes from it, ... */
    uint8_t deaf;             /* ... and it takes nothing more */
    uint8_t leaving;          /* it leaves, but not all that it has sent may be here */
    uint8_t told;             /* by itself */
    uint8_t absent;           /* it never had a context there, and nothing of this one is for it */
    uint32_t sent, received;  /* messages but signals, modulo 2^32 */
    uint32_t expected;        /* while it is leaving */
};

struct weft__part {
    struct weft__transport base; /* first */
    struct weft_context *root;
    struct weft_context *context; /* NULL: it has ended here, and not everywhere */
    struct weft__part *next, *previous;
    struct weft__member *members; /* by the rank in the context; NULL: it is being made */
    int32_t *order;               /* their ranks, ascending by that of the root */
    int others;                   /* that are not gone */
    struct weft__place place;     /* here */
    int orphan;                   /* destroyed by the user, ... */
    int ending;                   /* ... and somebody is ending it */
    struct weft__message *early, **early_end; /* that came while it was being made */
};

struct weft__seat {
    struct weft__part *part; /* NULL: free */
    uint16_t next;           /* of the free ones */
    uint8_t turn;
};

struct weft__family {
    struct weft__transport_ops ops; /* of all its parts */
    struct weft__part *parts;
    struct weft__seat *seats; /* the first is not used: it is the root */
    uint32_t seat_count;
    uint16_t free_first, free_last; /* a queue, so that a place rests before it is used again */
    int *hosts;                     /* of the root's ranks; NULL: one host */
    int *numbers;                   /* room to number hosts anew */
};

/* ---- part.c ---- */

/* A part for at most `most` members, entered in the family of `root`, with a place; its members are
 * still to be set. While driving. */
int weft__part_open(struct weft__part **part, struct weft_context *root, int most);
/* Members [0, count) of its table are set: it can send, and is handed what has come. `own`: this
 * rank's. While driving. */
void weft__part_begin(struct weft__part *part, struct weft_context *context, int count, int own,
                      uint64_t group);
/* Gives back the memory of members beyond `count`. */
void weft__part_shrink(struct weft__part *part, int count);
/* Tells the others that nothing comes from here any more, and takes nothing more itself. */
void weft__part_leave(struct weft__part *part);
/* Tells a rank of the root that this one is not in the context that it has, or may have, there. */
void weft__part_decline(struct weft_context *root, int rank, struct weft__place place);
/* Frees it as soon as all others are gone. While driving. */
void weft__part_end(struct weft__part *part);
/* Frees it at once: there was no context, or the root is closed. */
void weft__part_free(struct weft__part *part);
/* What the parts of a family do: only what the root's transport can. */
void weft__part_ops(struct weft__transport_ops *ops, const struct weft__transport *root);
/* A rank of the root as one of a part; -1: it is none. */
int weft__part_rank(const struct weft__part *part, int rank);
/* A rank of a context as one of its root. */
int weft__root_rank(const struct weft_context *context, int rank);

/* ---- family.c ---- */

/* Whether a context has nothing to do and nothing to wait for. While driving. */
int weft__family_rests(const struct weft_context *context);
/* A context that is no root takes part in the steps from now on. While driving. */
void weft__family_wake(struct weft_context *context);
/* One step of those that are awake; the earlier of `next` and when they want the next. */
/* Lands what has come out of devices, and does nothing else. While driving. */
void weft__family_land(const struct weft_context *context);
uint64_t weft__family_step(struct weft_context *root, uint64_t now, uint64_t next);
/* Leaves the state of a context, and of those of a root's family that have something under way.
 * While driving. */
void weft__family_dump(struct weft_context *context, const char *why);
/* Fails all but the root. While driving. */
void weft__family_abort(struct weft_context *root, int status, const char *text);
/* weft_context_destroy() of one that is no root. Does not wait for others. */
void weft__family_destroy(struct weft_context *context);
/* Ends those that have been destroyed and whose objects are over. Not while driving. */
void weft__family_reap(struct weft_context *root);
/* The root is being destroyed: destroys what is left; then, when all objects are over, ends it. */
void weft__family_destroy_all(struct weft_context *root);
void weft__family_end_all(struct weft_context *root);
/* Once the root's transport is closed. */
void weft__family_free(struct weft_context *root);

/* weft__host.delivered, .invited, .left, .died. */
void weft__family_delivered(struct weft_context *root, struct weft__message *message);
void weft__family_left(struct weft_context *root, int rank);
/* For all contexts of the family: a rank is the same process in each. */
void weft__family_reported(struct weft_context *context, int rank, const char *how);
void weft__family_died(struct weft_context *context, int rank, const char *how, const char *text);
void weft__family_invited(struct weft_context *context, struct weft__message *message);
/* Whoever sends an invitation to a context that has ended here may have heard of this rank that it
 * takes part: it hears that it does not. `from`: of the root. */
void weft__invitation_decline(struct weft_context *root, int from,
                              const struct weft__message *message);
/* Gives back the invitations that nobody has taken; wakes those who wait for some. split.c. */
void weft__invitations_drop(struct weft_context *context);
void weft__invitations_look(struct weft_context *context);

/* ---- shrink.c ---- */

/* Whether an invitation is one of weft_context_shrink(); takes it; gives back those of calls below
 * a number. While driving. */
int weft__shrink_is(uint64_t number);
void weft__shrink_heard(struct weft_context *context, struct weft__message *message);
void weft__shrink_drop(struct weft_context *context, uint64_t below);
/* What a root needs to have others split from it. split.c. */
int weft__family_make(struct weft_context *root);

#endif
