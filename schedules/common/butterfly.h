/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Butterflies: in each of log2 p steps a participant exchanges with one other.
 *
 * A participant stands at a position. In step k the range of positions that two participants share
 * is halved, and each keeps the half that it stands in: so a range is always contiguous, and what
 * a participant has in the end, or begins with on the way back, is its position. Who its peer is
 * says the numbering:
 *
 *     steps of 8        nearest           farthest          bine
 *     rank 0            1 2 4             4 2 1             1 7 3
 *     rank 1            0 3 5             5 3 0             0 2 6
 *     position of 0..7  0 4 2 6 1 5 3 7   0 1 2 3 4 5 6 7   0 4 6 1 3 7 5 2
 *
 * It needs no more than that the two stand in the same range before the step and in different
 * halves of it.
 */
#ifndef WEFT_SCHEDULES_COMMON_BUTTERFLY_H
#define WEFT_SCHEDULES_COMMON_BUTTERFLY_H

#include "schedules/common/template.h"

enum weft__numbering {
    WEFT__NEAREST,  /* what meets stands for contiguous ranks: their order is kept */
    WEFT__FARTHEST, /* participant v stands at position v */
    WEFT__BINE      /* bine.c */
};

/*
 * The ranks of a group as a power of two: of the first 2 * extra, one of two takes the part of the
 * other in, and gives it the result in the end. Participant v stands for a contiguous range of
 * ranks.
 */
struct weft__butterfly {
    struct weft__group group;
    enum weft__numbering numbering;
    int power, log, extra;
    int head;     /* takes part rather than the even one of its two; -1: nobody */
    int me;       /* participant, -1: folded in */
    int position; /* of it */
    int partner;  /* index in the group with whom this one folds, -1: none */
};

/* head: index in the group of a rank that is to take part, or -1. */
void weft__butterfly_make(struct weft__butterfly *butterfly, const struct weft__group *group,
                          enum weft__numbering numbering, int head);

/* The rank of a participant; the participant that an index in the group is, or is folded into. */
int weft__butterfly_rank(const struct weft__butterfly *butterfly, int participant);
int weft__butterfly_participant(const struct weft__butterfly *butterfly, int index);
/* The participant at a position. */
int weft__butterfly_at(const struct weft__butterfly *butterfly, int position);
/* The peer of this participant in step k, and whether it keeps the upper half. */
int weft__butterfly_peer(const struct weft__butterfly *butterfly, int k);
int weft__butterfly_upper(const struct weft__butterfly *butterfly, int k);
/* The first index that participant v stands for; v = power: the end. */
static inline int weft__butterfly_first(const struct weft__butterfly *butterfly, int v)
{
    return v < butterfly->extra ? 2 * v : v + butterfly->extra;
}

/* Before: the part of the partner comes in, to `acc`, or goes there. Returns 0 if this rank has
 * folded and takes no part. After: the result goes back. Message number `message`. */
int weft__butterfly_fold_in(struct weft__build *build, const struct weft__butterfly *butterfly,
                            struct weft_region *current, struct weft_region acc, uint64_t message);
void weft__butterfly_fold_out(struct weft__build *build, const struct weft__butterfly *butterfly,
                              struct weft_region recv, uint64_t message);

/* What stands at positions lo .. hi - 1 of a region: the blocks of the ranks that the participants
 * of these numbers stand for (blocks 1), or equal parts. */
struct weft_region weft__butterfly_part(const struct weft__build *build,
                                        const struct weft__butterfly *butterfly, int blocks,
                                        struct weft_region region, int lo, int hi);

/* Everybody's part of its own position, combined, comes to `work`; *current becomes that. */
void weft__butterfly_reduce_scatter(struct weft__build *build,
                                    const struct weft__butterfly *butterfly, int blocks,
                                    struct weft_region *current, struct weft_region work,
                                    uint64_t message);
/* Everybody gets all positions of a region in which its own is. root: the participant from which
 * weft__butterfly_scatter() brought it, so that nothing of that is sent again; or -1. */
void weft__butterfly_allgather(struct weft__build *build, const struct weft__butterfly *butterfly,
                               int blocks, struct weft_region region, int root, uint64_t message);
/* The same to one participant, and from one that has all, in equal parts. */
void weft__butterfly_gather(struct weft__build *build, const struct weft__butterfly *butterfly,
                            int root, struct weft_region region, uint64_t message);
void weft__butterfly_scatter(struct weft__build *build, const struct weft__butterfly *butterfly,
                             int root, struct weft_region region, uint64_t message);

/* Elements and regions of scratch that weft__butterfly_reduce_scatter() takes. */
void weft__butterfly_reserve(struct weft__build *build, const struct weft__butterfly *butterfly,
                             size_t count, int folds);

/* ---- bine.c ---- */

/* The peer of v in step k of a Bine butterfly over 2^log; the position of v without reversing its
 * bits, and who has a position. */
int weft__bine_peer(int v, int k, int log);
int weft__bine_place(int v, int log);
int weft__bine_at(int place, int log);
/* A Bine tree: parent and children, the farthest first. Subtrees are no ranges: lo and hi are not
 * set. Of sizes that are no power of two, those that fold hang on their partners, as last child. */
void weft__bine_tree_make(struct weft__tree *tree, int index, int size, int root);

/* ---- costs ---- */

/* Halving and doubling all bytes, with or without reductions; to fold in and out. */
double weft__cost_halving(const struct weft__shape *shape, int size, double bytes, int reduces);
double weft__cost_fold(const struct weft__shape *shape, double in, double out);

#endif
