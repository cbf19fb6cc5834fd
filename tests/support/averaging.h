/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A hostile user of group averaging, and a judge of what it gets.
 *
 * Everything about a case is drawn from its seed: ranks, settings, steps of each rank, where it
 * pauses. A contribution says in every element whose it is and of which step, and nothing in the
 * elements of others; so from an average one can tell, element by element, which contribution of
 * which rank is in it. What the ranks have seen is compared at the end.
 */
#ifndef WEFT_TESTS_AVERAGING_H
#define WEFT_TESTS_AVERAGING_H

#include <weft/weft.h>

enum { AVERAGING_RANKS = 64, AVERAGING_STEPS = 40, AVERAGING_TEXT = 512 };

struct averaging_case {
    uint64_t seed;
    int ranks;
    /* Without tensors and state. */
    struct weft_group_average_config config;
    int block;                    /* elements that say the same of one rank */
    int first[AVERAGING_RANKS];   /* steps that were done before, by a checkpoint */
    int steps[AVERAGING_RANKS];   /* the number of the last one, + 1 */
    int splits;                   /* percent of the steps that are posted and waited for */
    int pauses;                   /* percent of the steps before which a rank pauses */
    uint64_t pause_ns;            /* the longest, but for rare ones of 20 times that */
    int gave_up[AVERAGING_RANKS]; /* 1: what a rank said last may be there or not */
    int fails;                    /* 1: calls may fail; what succeeds must be right all the same */
    int patience;                 /* a step is given up after so many deadlines; 0: it is not */
    uint64_t bound_ns; /* a step that nobody has to be waited for takes at most this; 0: any */
};

/* What one rank saw of a version: for each rank the steps whose contributions were in its sum. */
struct averaging_seen {
    int taken;     /* 0: this rank took no sum of this version */
    uint64_t bits; /* hash of the average; 0 if it was mixed */
    struct {
        int from, upto;
    } of[AVERAGING_RANKS];
};
enum {
    AVERAGING_TAKEN_OUT = -4, /* of the rank that looked, by WEFT_STALE_SUBSTITUTE */
    AVERAGING_ABSENT = -3,
    AVERAGING_ERA = -2,
    AVERAGING_NOTHING = -1
};

struct averaging_log {
    struct averaging_seen seen[AVERAGING_STEPS];
    uint64_t stale, empty, active, waited_most_ns;
    char wrong[AVERAGING_TEXT]; /* what was wrong first; empty: nothing */
};

/* Draws a case with at most so many ranks. */
void averaging_draw(struct averaging_case *drawn, uint64_t seed, int most_ranks);
/* Draws a case of so many ranks. */
void averaging_draw_among(struct averaging_case *drawn, uint64_t seed, int ranks);
/* Its settings in a line. */
void averaging_describe(const struct averaging_case *drawn, char text[AVERAGING_TEXT]);
/* What a rank does. */
void averaging_rank(const struct averaging_case *drawn, struct weft_context *context,
                    struct averaging_log *log);

/* The same in pieces, for who fails in the middle. Statuses are those of the object's calls. The
 * actor exists even if the object could not be created; averaging_end() frees both. */
struct averaging_actor;
int averaging_begin(struct averaging_actor **actor, const struct averaging_case *drawn,
                    struct weft_context *context, struct averaging_log *log);
int averaging_step(struct averaging_actor *actor, int step);
int averaging_end(struct averaging_actor *actor);
struct weft_group_average *averaging_object(const struct averaging_actor *actor);

/* Compares what the ranks have seen. 0, and a text, if something is wrong. */
int averaging_judge(const struct averaging_case *drawn, struct averaging_log *const *logs,
                    char text[AVERAGING_TEXT]);

uint64_t averaging_random(uint64_t *state);

#endif
