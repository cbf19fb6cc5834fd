/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A run whose messages between devices go over a communicator, in the order of issue (issuer.h).
 *
 *     reached       the graph allows the message: what it comes after has been put on a stream, or
 *                   has ended. Both ends may have to agree first.
 *     being taken   a group of them has been handed to the communicator, which is in progress
 *     issued        it is on the issuer's stream; what may follow it on streams is released
 *     landed        the stream has passed it: it has ended
 *
 * Where the order is known beforehand all ranks have computed it when the run was created, and a
 * version needs one turn for all of its rounds (known.c). Else two ranks agree on the messages that
 * both have reached (agreed.c).
 *
 * A message is contiguous memory: slots that are bound to lists have a place on the device where
 * their messages are put together.
 *
 * A version that fails ends the communicator, here and on all other ranks, for nobody knows which
 * messages they have issued. A run is then to be destroyed and created again.
 */
#ifndef WEFT_RUNTIME_ENGINE_ORDERED_H
#define WEFT_RUNTIME_ENGINE_ORDERED_H

#include "runtime/engine/device.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/issuer.h"

/* A communicator, and its ranks in the order that it has them in. */
struct weft__circle {
    struct weft__comm *comm;
    int32_t *ranks; /* NULL: all */
    uint32_t count;
    uint32_t layer; /* they are joined one after the other */
};

/* What the runs of an object share. */
struct weft__team {
    unsigned references;
    struct weft__issuer *issuer;
    struct weft__circle *circles; /* the first is of all ranks; then those of joint nodes here */
    uint32_t circle_count;
    int aborted;
    /* Of a version whose order is known: the ranks that have messages in it. */
    int32_t *members;
    uint32_t member_count;
    int in_order; /* versions of all runs start in one order on all ranks: no turn is agreed on */
    int fixed;    /* the ranks that plans name are those of the context */
};

/* An end of a message; by the index of its transfer. */
struct weft__end {
    size_t bytes;     /* that are sent */
    uint32_t circle;  /* whose it is */
    uint32_t next;    /* node of the next one of its turn, or WEFT__NONE */
    uint32_t theirs;  /* the other end's node */
    uint8_t reached;  /* here */
    uint8_t arrived;  /* there: of ends whose lower rank this one is */
    uint8_t gathered; /* bit i: data of region i goes by way of `staging` */
};

/* So many of `issued`, taken together. */
struct weft__group {
    uint32_t first, count;
    uint32_t ticket; /* of the issuer's stream */
};

/* An end by what the other rank calls it. */
struct weft__by_tag {
    uint32_t tag;
    uint32_t receives;
    uint32_t node;
};

struct weft__ordered {
    struct weft_run *run;
    struct weft__team *team;
    struct weft__ordered *next, *before; /* of the engine, those with a group that has not landed */
    int flying;
    int known;
    uint8_t *over;      /* by node: it is a message over the communicator */
    uint32_t count;     /* of them */
    uint32_t reserved;  /* turns of the issuer's */
    uint32_t *after;    /* the plan's successors, in another order ... */
    uint32_t *streamed; /* ... of which so many follow on streams */
    struct weft__end *ends;
    struct weft__comm_item *items; /* room for a group */
    char *staging;                 /* memory of the device, or NULL */
    size_t *staged;                /* a transfer's place there */

    /* Of the version under way. */
    uint32_t *issued; /* nodes, in the order of issue */
    uint32_t issued_count;
    struct weft__group *groups;
    uint32_t group_head, group_tail;
    struct weft__comm *takes; /* the latest group */

    /* A known order: nodes of round r are sequence[first[r]] .. sequence[first[r + 1] - 1]. */
    uint32_t *sequence, *first, *round_of;
    uint32_t rounds;
    uint32_t *left; /* of a round: so many are not reached */
    uint32_t round; /* the next to be issued */
    struct weft__turn turn;
    int asked;       /* this rank has arrived */
    uint64_t latest; /* on the coordinator: of the times that were proposed */

    /* An order that is agreed on. */
    struct weft__by_tag *by_tag;
    struct weft__turn *turns;
    uint32_t turn_count;
    uint32_t *fresh; /* nodes that have been reached, and are not looked at yet */
    uint32_t fresh_count;

    /* After a failure. */
    int draining;
    int drain_marked;
    uint32_t drained; /* what the stream has to pass */
};

/* What the ranks have agreed on when a run was created. Arrays are taken; `sequence` and `first` if
 * the order is known. */
struct weft__order_known {
    uint8_t *over;
    uint32_t *sequence, *first;
    uint32_t rounds;
};

/* The circle of so many ranks; WEFT__NONE: there is none. */
uint32_t weft__team_circle(const struct weft__team *team, const int32_t *ranks, uint32_t count);
/* Makes a run's part; its device part is there. The team gets a reference more. Driving. */
int weft__ordered_open(struct weft_run *run, struct weft__team *team,
                       struct weft__order_known *known);
void weft__ordered_close(struct weft_run *run);
void weft__team_release(struct weft__team *team);
/* Ends its communicator, if nothing has: no version can be started any more. */
void weft__team_abort(struct weft__team *team);
/* A slot that messages are of is to be bound to a list. Driving or not; the run is idle. */
int weft__ordered_reserve(struct weft_run *run, uint32_t slot);

/* A version begins. */
void weft__ordered_begin(struct weft__engine *engine, struct weft_run *run);
/* A node of the communicator's has been reached: 0; 1: it is started as any other. */
int weft__ordered_start(struct weft__engine *engine, struct weft_run *run, uint32_t node);
/* The run has had its turn of nodes. */
void weft__ordered_settle(struct weft_run *run);
/* A WEFT__TURN has come. */
void weft__ordered_note(struct weft__engine *engine, struct weft__message *message);
/* Goes on with what is being taken, lands what has arrived. */
void weft__ordered_poll(struct weft__engine *engine);
/* The run fails: ends its communicator, takes its turns back. */
void weft__ordered_fail(struct weft_run *run);
/* The node of a version that waits for a rank which has left, or WEFT__NONE. */
uint32_t weft__ordered_awaits(const struct weft_run *run, int rank);
/* Whether its plan's ranks cannot be bound to others. */
int weft__ordered_is_fixed(const struct weft_run *run);
/* Why a run cannot be started any more; NULL: it can. */
const char *weft__ordered_over(const struct weft_run *run);

static inline int weft__ordered_has(const struct weft__ordered *ordered, uint32_t node)
{
    return ordered && ordered->over[node];
}

/* ---- among the files of it ---- */

/* Issues what has the turn, or a round of it. 0: that is not to be issued yet. */
int weft__ordered_issue(struct weft__turn *turn);
/* Hands nodes to the communicator as a group: messages, or one joint node. 0: the run has failed by
 * it. */
int weft__ordered_group(struct weft__ordered *ordered, const uint32_t *nodes, uint32_t count);
/* The latest group has been taken: a ticket is put behind it, and what may follow its nodes on the
 * run's stream, which waits for it then, is released. */
void weft__ordered_taken(struct weft__ordered *ordered);
/* Puts it into the engine's list of those with something in the air. */
void weft__ordered_enter(struct weft__ordered *ordered);
/* Whether what a node gets comes by way of the staging: a flight of the run's ends it. */
int weft__ordered_scatters(const struct weft_run *run, uint32_t node);
/* Bytes in `staging` for a region. */
static inline size_t weft__staged_bytes(const struct weft__region *region)
{
    return (region->bytes + 255) & ~(size_t)255;
}
static inline struct weft__end *weft__end_of(const struct weft__ordered *ordered, uint32_t node)
{
    return &ordered->ends[ordered->run->plan->nodes[node].index];
}

/* What WEFT__TURN says; behind it `count` ends. */
enum weft__turn_what {
    WEFT__PAIR_ARRIVED, /* the sender, the higher rank, has reached these */
    WEFT__PAIR_ASKED,   /* so has the lower one: a time is wanted, after `time` */
    WEFT__PAIR_FINAL,
    WEFT__ALL_ARRIVED, /* all of the first round */
    WEFT__ALL_ASKED,
    WEFT__ALL_PROPOSED,
    WEFT__ALL_FINAL
};

struct weft__turn_end {
    uint32_t node; /* of the higher rank */
    uint32_t tag;
    uint64_t bytes;    /* that are sent, or the receiver's room */
    uint32_t receives; /* the higher rank does */
    uint32_t unused;
};

struct weft__turn_note {
    uint64_t time;
    uint32_t what;
    uint32_t turn; /* the lower rank's number of it */
    int32_t decider;
    uint32_t serial;
    uint32_t count;
    uint32_t unused;
};

enum {
    WEFT__TURN_ENDS =
        (WEFT__NEWS_BYTES - sizeof(struct weft__turn_note)) / sizeof(struct weft__turn_end)
};

/* Sends a note with the ends behind it. Fails the run if it cannot. */
void weft__turn_tell(struct weft__ordered *ordered, int to, const struct weft__turn_note *note,
                     const struct weft__turn_end *ends);

/* known.c and agreed.c: what the functions above do for one or the other. */
int weft__known_open(struct weft__ordered *ordered, const struct weft__order_known *known);
void weft__known_begin(struct weft__ordered *ordered);
void weft__known_reached(struct weft__ordered *ordered, uint32_t node);
void weft__known_settle(struct weft__ordered *ordered);
int weft__known_issue(struct weft__ordered *ordered);
void weft__known_note(struct weft__ordered *ordered, int from, const struct weft__turn_note *note);
int weft__agreed_open(struct weft__ordered *ordered);
void weft__agreed_begin(struct weft__ordered *ordered);
void weft__agreed_settle(struct weft__ordered *ordered);
int weft__agreed_issue(struct weft__turn *turn);
void weft__agreed_note(struct weft__ordered *ordered, int from, const struct weft__turn_note *note,
                       const struct weft__turn_end *ends);
void weft__agreed_fail(struct weft__ordered *ordered);

#endif
